//! A minimal client: reads a response through the framer, checksums each object, and drops the bytes.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use informer_core::{
    Meta,
    limits::OBJECT_BYTES_MAX,
    wire::{
        framer::{Frame, Framer, FramerConfig, ListEnd, Shape},
        watch_event::EventKind,
    },
};
use measured::Failure;
use tokio::net::TcpStream;

use crate::{checksum::Checksum, plan::Mode};

/// A connection that fetches the initial state in one mode.
pub(crate) struct Fetch {
    pub(crate) address: String,
    pub(crate) mode: Mode,
    /// Bytes per second, for a slow reader.
    pub(crate) rate: Option<usize>,
}

/// The result, with the open response of a watch: dropping it ends the watch.
pub(crate) struct Fetched {
    pub(crate) checksum: Checksum,
    _open: Option<hyper::body::Incoming>,
}

impl Fetch {
    /// Fetches the initial state once.
    pub(crate) async fn run(&self) -> Result<Fetched, Failure> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut checksum = Checksum::default();
        let mut query = match self.mode {
            Mode::BufferedList | Mode::StreamedList => "resourceVersion=0".to_owned(),
            Mode::PagedList => "limit=500".to_owned(),
            Mode::WatchList => {
                "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                    .to_owned()
            }
        };
        loop {
            let request = http::Request::get(format!("/api/v1/pods?{query}"))
                .header("host", &self.address)
                .body(Empty::<Bytes>::new())?;
            let response = sender.send_request(request).await?;
            if response.status() != 200 {
                return Err(format!("{}: HTTP {}", self.mode, response.status()).into());
            }
            let mut body = response.into_body();
            match self.read(&mut body, &mut checksum).await? {
                Outcome::Synced => return Ok(Fetched { checksum, _open: Some(body) }),
                Outcome::Listed(ListEnd { continue_token: Some(token), .. }) => {
                    query = format!("limit=500&continue={token}");
                    sender.ready().await?;
                }
                Outcome::Listed(_) => return Ok(Fetched { checksum, _open: None }),
            }
        }
    }

    async fn read(&self, body: &mut hyper::body::Incoming, checksum: &mut Checksum) -> Result<Outcome, Failure> {
        let shape = if self.mode == Mode::WatchList { Shape::Watch } else { Shape::List };
        let mut framer =
            Framer::new(FramerConfig { shape, cut: vec![], object_bytes_max: OBJECT_BYTES_MAX, type_meta: None });
        let mut listed = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if let Some(rate) = self.rate {
                tokio::time::sleep(Duration::from_secs_f64(data.len() as f64 / rate as f64)).await;
            }
            let mut chunk = &data[..];
            while let Some(frame) = framer.next(&mut chunk)? {
                match frame {
                    Frame::Item(object) | Frame::Event { kind: EventKind::Added, object } => {
                        let meta = Meta::read(object)?;
                        checksum.add(&meta.key(), &meta.uid, &meta.resource_version);
                    }
                    Frame::Event { kind: EventKind::Bookmark, object } => {
                        if Meta::read(object)?.initial_events_end {
                            return Ok(Outcome::Synced);
                        }
                    }
                    Frame::ListEnd(end) => listed = Some(end),
                    Frame::Event { .. } | Frame::Skipped(_) | Frame::Status(_) => {
                        return Err("an event that nobody caused".into());
                    }
                }
            }
        }
        framer.finish()?;
        listed.map(Outcome::Listed).ok_or_else(|| "the stream ended before its end bookmark".into())
    }
}

enum Outcome {
    Synced,
    Listed(ListEnd),
}
