//! `load idle`: all clients watch without events. Measures the cost of an idle watch.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    client::{Ask, Target},
    failure::{Failure, Kind},
    flags::{Reading, seconds},
    reader::Reader,
    report::Report,
    scan::{Events, List},
    session::{Found, Session, Work},
    watch_list,
};

/// Maximum bytes of a page with one object.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Flags of `idle`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) reading: Reading,

    /// Duration for which all streams stay open.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    seconds: Duration,

    /// Begin each stream with the initial state, instead of at the head.
    #[arg(long)]
    initial: bool,
}

impl Flags {
    /// Checks combinations of flags. The error is one line.
    pub(super) fn check(&self) -> Result<(), String> {
        let counts = self.reading.expect.is_some() || self.reading.counts_may_differ;
        let useless = counts && !self.initial;
        if useless { Err("--expect and --counts-may-differ need --initial".to_owned()) } else { Ok(()) }
    }
}

struct Idle {
    timeout: Duration,
    /// Position at which streams begin; `None` begins with the initial state.
    position: Option<String>,
}

impl Work for Idle {
    async fn work(&self, reader: &mut Reader, found: &mut Found) -> Result<(), Failure> {
        let mut events = if self.position.is_some() { Events::without_initial_state() } else { Events::default() };
        let opened = timeout(self.timeout, async {
            let Some(position) = &self.position else {
                return watch_list::initial(reader, found, &mut events).await;
            };
            let path = reader.reading.watch(reader.number, position);
            reader.open(&path, found).await
        });
        let opened = opened.await;
        let result = match opened {
            Ok(Ok(())) => reader.hold(found, &mut events).await,
            Ok(failed) => failed,
            Err(_) => Err(Failure::new(Kind::Timeout, "the stream did not open in time")),
        };
        watch_list::count(found, &events);
        result
    }
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let session = Session::begin("idle", &flags.reading, target.clone())?;
    let position = if flags.initial { None } else { Some(head(&target, &flags.reading).await?) };
    let work = Idle { timeout: flags.reading.timeout, position };
    Ok(session.run(work, None, Some(flags.seconds)).await)
}

/// The current position, from a page of one object.
pub(super) async fn head(target: &Target, reading: &Reading) -> Result<String, Failure> {
    let mut connection = target.connect().await?;
    let path = reading.path(0, &[("limit", "1")]);
    connection.send_well(&Ask::get(&path)).await?;
    let mut list = List::default();
    list.feed(&connection.collect(PAGE_BYTES_MAX).await?);
    Ok(list.finish()?.position)
}
