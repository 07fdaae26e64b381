//! `load watch-list`: all clients open a stream of the initial state at once, and may keep it open.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{
    client::Target,
    failure::{Failure, Kind},
    flags::{Reading, seconds},
    reader::Reader,
    report::Report,
    scan::Events,
    session::{Found, Session, Work},
};

/// Flags of `watch-list`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) reading: Reading,

    /// Time to keep the streams open once all are complete. Left out: each is closed when it is complete.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    hold: Option<Duration>,
}

struct WatchList {
    timeout: Duration,
    hold: bool,
}

impl Work for WatchList {
    async fn work(&self, reader: &mut Reader, found: &mut Found) -> Result<(), Failure> {
        let mut events = Events::default();
        let synced = timeout(self.timeout, initial(reader, found, &mut events)).await;
        let result = match synced {
            Ok(Ok(())) if self.hold => reader.hold(found, &mut events).await,
            Ok(synced) => synced,
            Err(_) => Err(Failure::new(Kind::Timeout, "no end bookmark in time")),
        };
        count(found, &events);
        result
    }
}

/// Opens a stream and reads it to its end bookmark.
pub(super) async fn initial(reader: &mut Reader, found: &mut Found, events: &mut Events) -> Result<(), Failure> {
    let begun = Instant::now();
    let path = reader.reading.watch_list(reader.number);
    reader.open(&path, found).await?;
    let mut first = None;
    while !events.is_synced() {
        reader.events(found, events, usize::MAX).await?;
        if first.is_none() && events.counts.added > 0 {
            first = Some(begun.elapsed());
        }
    }
    found.synced.push(begun.elapsed());
    found.first.extend(first);
    found.objects.extend(events.initial);
    Ok(())
}

/// Adds the counts of a stream to the results.
pub(super) fn count(found: &mut Found, events: &Events) {
    // ADDED events before the end bookmark are objects of the initial state, not changes.
    found.events += events.counts.events() - events.initial.unwrap_or(events.counts.added);
    if !events.is_synced() {
        found.partial_objects += events.counts.added;
    }
    found.bookmarks += events.counts.bookmarks;
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let session = Session::begin("watch-list", &flags.reading, target)?;
    let work = WatchList { timeout: flags.reading.timeout, hold: flags.hold.is_some() };
    Ok(session.run(work, None, flags.hold).await)
}
