//! A client: its connection, and the decompression of the response it reads.

use std::{io::Write as _, sync::Arc};

use flate2::write::MultiGzDecoder;

use super::{
    client::{Ask, Connection, Target},
    failure::{Failure, Kind},
    flags::Reading,
    scan::{Events, List, ListEnd},
    session::{Found, Gate},
};

/// A client with at most one response at a time.
pub(super) struct Reader {
    /// Index of the client.
    pub(super) number: usize,
    pub(super) reading: Arc<Reading>,
    connection: Connection,
    target: Target,
    gate: Arc<Gate>,
    gunzip: Option<Box<MultiGzDecoder<Vec<u8>>>>,
    /// True once the client has reached the hold phase and arrived at the gate.
    held: bool,
}

impl Drop for Reader {
    /// Arrives at the gate, so that the others do not wait for a client that has ended in any way.
    fn drop(&mut self) {
        if !self.held {
            self.gate.arrive();
        }
    }
}

impl Reader {
    pub(super) const fn new(
        number: usize,
        connection: Connection,
        reading: Arc<Reading>,
        target: Target,
        gate: Arc<Gate>,
    ) -> Self {
        Self { number, reading, connection, target, gate, gunzip: None, held: false }
    }

    /// Replaces the connection by a new one; a response in progress is dropped.
    pub(super) async fn reconnect(&mut self) -> Result<(), Failure> {
        self.gunzip = None;
        self.connection = self.target.connect().await?;
        Ok(())
    }

    /// Sends a request and waits for a 2xx response head.
    pub(super) async fn open(&mut self, path: &str, found: &mut Found) -> Result<(), Failure> {
        found.requests += 1;
        let ask = Ask { accept: &self.reading.accept, gzip: self.reading.gzip, ..Ask::get(path) };
        let head = self.connection.send_well(&ask).await?;
        self.gunzip = head.gzip.then(|| Box::new(MultiGzDecoder::new(Vec::new())));
        Ok(())
    }

    /// Passes the next piece of the decompressed body to `take`. Returns false at the end.
    pub(super) async fn next(
        &mut self,
        found: &mut Found,
        max: usize,
        mut take: impl FnMut(&[u8]) + Send,
    ) -> Result<bool, Failure> {
        let Self { connection, gunzip, .. } = self;
        let Some(gunzip) = gunzip else {
            return connection
                .bytes(max, |piece| {
                    found.bytes += piece.len() as u64;
                    take(piece);
                })
                .await;
        };
        let mut good = Ok(());
        let more = connection.bytes(max, |piece| {
            found.bytes += piece.len() as u64;
            if good.is_ok() {
                good = gunzip.write_all(piece).and_then(|()| gunzip.flush());
            }
            take(gunzip.get_ref());
            gunzip.get_mut().clear();
        });
        let more = more.await?;
        if !more {
            good = good.and_then(|()| gunzip.try_finish());
            take(gunzip.get_ref());
            gunzip.get_mut().clear();
        }
        good.map(|()| more).map_err(|error| Failure::new(Kind::Protocol, format!("gzip: {error}")))
    }

    /// Reads a whole list; calls `first` when the first object has arrived.
    pub(super) async fn list(
        &mut self,
        found: &mut Found,
        mut first: impl FnMut() + Send,
    ) -> Result<(u64, ListEnd), Failure> {
        let mut list = List::default();
        let mut begun = false;
        while self.next(found, usize::MAX, |piece| list.feed(piece)).await? {
            if !begun && list.objects > 0 {
                begun = true;
                first();
            }
        }
        Ok((list.objects, list.finish()?))
    }

    /// Reads the next piece of a stream. An end of the stream is an error.
    pub(super) async fn events(&mut self, found: &mut Found, events: &mut Events, max: usize) -> Result<(), Failure> {
        let more = self.next(found, max, |piece| events.feed(piece)).await?;
        if let Some((code, message)) = events.error.take() {
            return Err(Failure::new(Kind::ErrorEvent(code), message));
        }
        if events.counts.unknown > 0 {
            return Err(Failure::new(Kind::Protocol, "a line that is no event"));
        }
        // A clean end, which counts as a failure but never as a broken connection.
        let what = if events.is_synced() { "the stream ended" } else { "the stream ended before its initial state" };
        if more { Ok(()) } else { Err(Failure::new(Kind::Ended, what)) }
    }

    /// Reads the stream until all clients may end.
    pub(super) async fn hold(&mut self, found: &mut Found, events: &mut Events) -> Result<(), Failure> {
        self.held = true;
        let gate = Arc::clone(&self.gate);
        let mut until = std::pin::pin!(gate.hold());
        loop {
            tokio::select! {
                biased;
                () = &mut until => return Ok(()),
                read = self.events(found, events, usize::MAX) => read?,
            }
        }
    }
}
