//! `load slow-readers`: all clients read an initial state at a limited rate. Measures the memory cost of a slow reader,
//! and checks that its final position can still be resumed.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{
    client::Target,
    failure::{Failure, Kind},
    flags::{Reading, seconds, size},
    idle::head,
    reader::Reader,
    report::Report,
    scan::{Events, List},
    session::{Found, Session, Work},
    watch_list::count,
};

/// Default receive buffer of a slow reader. The kernel's own grows to megabytes, and would take data on behalf of a
/// client that does not read it yet.
const RECEIVE_BYTES: u32 = 64 << 10;

/// Bounds of a single read, which is otherwise a tenth of a second's bytes.
const READ_BYTES: (usize, usize) = (1 << 10, 64 << 10);

/// Time for which a resumed stream must live without an ERROR event.
const RESUMED_WAIT: Duration = Duration::from_secs(1);

/// Kind of the slow read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// A stream of the initial state.
    WatchList,
    /// A list.
    List,
}

/// Flags of `slow-readers`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) reading: Reading,

    /// Bytes that each client reads in a second: bytes, or with kB, MB, KiB, MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MB", value_parser = size)]
    rate: u32,

    /// Maximum duration. A client that is not done then is no failure, unless it has received nothing.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    seconds: Duration,

    /// The kind of read.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = What::WatchList)]
    of: What,

    /// Count a client that the server cuts while it reads, but not as a failure, if the server still answers
    /// afterwards.
    #[arg(long)]
    cuts_are_good: bool,
}

impl Flags {
    /// Applies the default receive buffer of slow readers.
    pub(super) fn with_small_buffers(mut self) -> Self {
        self.reading.server = self.reading.server.with_receive_buffer(RECEIVE_BYTES);
        self
    }
}

struct SlowReaders {
    rate: u32,
    time: Duration,
    of: What,
    cuts_are_good: bool,
}

/// Tolerated lead over the rate: pieces can be small, and timers have millisecond resolution.
const AHEAD: Duration = Duration::from_millis(5);

/// Rate and duration of a slow read.
struct Pace {
    begun: Instant,
    rate: f64,
    time: Duration,
    read_bytes: usize,
}

impl Pace {
    /// Starts after a random part of one read's time, so that the clients do not read in step.
    async fn begin(rate: u32, time: Duration) -> Self {
        let read_bytes = (rate as usize / 10).clamp(READ_BYTES.0, READ_BYTES.1);
        let rate = f64::from(rate);
        let one_read = u32::try_from(read_bytes).map_or(0.0, f64::from) / rate;
        sleep(Duration::from_secs_f64(one_read * fastrand::f64())).await;
        Self { begun: Instant::now(), rate, time, read_bytes }
    }

    /// Waits until this number of bytes is due.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    async fn wait(&self, bytes: u64) {
        let due = Duration::from_secs_f64(bytes as f64 / self.rate);
        let ahead = due.saturating_sub(self.begun.elapsed());
        if ahead > AHEAD {
            sleep(ahead).await;
        }
    }
}

impl Work for SlowReaders {
    async fn work(&self, reader: &mut Reader, found: &mut Found) -> Result<(), Failure> {
        let pace = Pace::begin(self.rate, self.time).await;
        let mut events = Events::default();
        let read = timeout(pace.time, async {
            match self.of {
                What::List => list(reader, found, &pace).await,
                What::WatchList => stream(reader, found, &mut events, &pace).await,
            }
        });
        let read = read.await;
        count(found, &events);
        match read {
            Ok(Ok(())) => match &events.position {
                Some(position) => resume(reader, found, position).await,
                None => Ok(()),
            },
            // Only resets of a started response count as cut: a clean end of an incomplete response is always a
            // failure.
            Ok(Err(failure)) if self.cuts_are_good && found.bytes > 0 && failure.is_cut() => {
                found.cut = true;
                Ok(())
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) if found.bytes == 0 => Err(Failure::new(Kind::Timeout, "nothing came")),
            Err(_) => {
                found.unfinished = true;
                Ok(())
            }
        }
    }
}

async fn list(reader: &mut Reader, found: &mut Found, pace: &Pace) -> Result<(), Failure> {
    let path = reader.reading.path(reader.number, &[]);
    reader.open(&path, found).await?;
    let mut list = List::default();
    while reader.next(found, pace.read_bytes, |piece| list.feed(piece)).await? {
        if found.first.is_empty() && list.objects > 0 {
            found.first.push(pace.begun.elapsed());
        }
        found.partial_objects = list.objects;
        pace.wait(found.bytes).await;
    }
    list.finish()?;
    found.partial_objects = 0;
    found.synced.push(pace.begun.elapsed());
    found.objects.push(list.objects);
    Ok(())
}

async fn stream(reader: &mut Reader, found: &mut Found, events: &mut Events, pace: &Pace) -> Result<(), Failure> {
    let path = reader.reading.watch_list(reader.number);
    reader.open(&path, found).await?;
    while !events.is_synced() {
        reader.events(found, events, pace.read_bytes).await?;
        if found.first.is_empty() && events.counts.added > 0 {
            found.first.push(pace.begun.elapsed());
        }
        pace.wait(found.bytes).await;
    }
    found.synced.push(pace.begun.elapsed());
    found.objects.extend(events.initial);
    Ok(())
}

/// Resumes from the end of the initial state, whose position must not be expired.
async fn resume(reader: &mut Reader, found: &mut Found, position: &str) -> Result<(), Failure> {
    reader.reconnect().await?;
    let path = reader.reading.watch(reader.number, position);
    reader.open(&path, found).await?;
    let mut events = Events::without_initial_state();
    // No event within the time is fine too.
    if let Ok(read) = timeout(RESUMED_WAIT, reader.events(found, &mut events, usize::MAX)).await {
        read?;
    }
    found.resumed = true;
    count(found, &events);
    Ok(())
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let session = Session::begin("slow-readers", &flags.reading, target.clone())?;
    let work = SlowReaders { rate: flags.rate, time: flags.seconds, of: flags.of, cuts_are_good: flags.cuts_are_good };
    let mut report = session.run(work, None, None).await;
    report.add("bytesPerSecondPerClient", flags.rate);
    if flags.cuts_are_good {
        // A server that crashed would cut all clients too, so check that it still answers.
        let alive = timeout(flags.reading.timeout, head(&target, &flags.reading)).await;
        let alive = alive.unwrap_or_else(|_| Err(Failure::new(Kind::Timeout, "no answer after the run")));
        alive.err().into_iter().for_each(|failure| report.failures.add(failure));
    }
    Ok(report)
}
