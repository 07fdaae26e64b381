//! Open watches: the client, position and state of each, and its line in the log at its end.
//!
//! INVARIANT: a watch costs some 145 bytes: a place in the table, and a record that only its own task changes, without a
//! lock. A client costs at most some 1,100 bytes while it has watches.
//! INVARIANT: a document shows a bounded number of them, and holds the table only to collect them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use tokio::{runtime::Handle, time::Instant};
use watch_cache::Filter;

use super::requests::{RequestClass, RequestMeasures};
use crate::{
    access::peer::Peer,
    limits::{LOGGED_CHARS_MAX, WATCH_ENDS_LOGGED},
    traces::RequestSpan,
};

/// Watches of one page of [`OpenWatches::page`].
pub(crate) const PAGE_MAX: usize = 500;

/// All open watches.
#[derive(Default)]
pub(crate) struct OpenWatches {
    table: Mutex<WatchTable>,
    ends: Mutex<LoggedEnds>,
    /// True once the server shuts down.
    is_stopped: AtomicBool,
    /// True once another process serves the clients.
    is_left: AtomicBool,
    #[cfg(test)]
    causes: Mutex<std::collections::BTreeSet<&'static str>>,
}

#[derive(Default)]
struct WatchTable {
    /// By number, in the order in which they were opened.
    open: BTreeMap<u64, Arc<WatchRecord>>,
    numbers: u64,
    /// The readers of the open watches, each with their number.
    readers: HashMap<Arc<WatchReader>, usize>,
}

/// The client of a watch. Shared by its watches.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WatchReader {
    /// Name of its user, shortened; `-` if it is not known.
    pub(crate) user: String,
    /// Its User-Agent, shortened.
    pub(crate) agent: String,
}

/// Circumstances of a new watch.
pub(crate) struct WatchOrigin {
    pub(crate) reader: WatchReader,
    pub(crate) peer: Arc<Peer>,
    /// Owner of what is kept for it; zero without limits.
    pub(crate) owner: u64,
    /// Time at which its request arrived.
    pub(crate) arrived: Instant,
}

#[cfg(test)]
impl Default for WatchOrigin {
    fn default() -> Self {
        let reader = WatchReader { user: "-".to_owned(), agent: "-".to_owned() };
        Self { reader, peer: Arc::default(), owner: 0, arrived: Instant::now() }
    }
}

/// One open watch, as its task left it last.
pub(crate) struct WatchRecord {
    number: u64,
    series: Arc<WatchSeries>,
    reader: Arc<WatchReader>,
    peer: Arc<Peer>,
    filter: Arc<Filter>,
    arrived: Instant,
    position: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of the last batch.
    batch: AtomicU32,
    state: AtomicU8,
}

/// Reason for which a watch does nothing at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WatchPause {
    /// Waits for the runtime: was not polled yet, or yielded to other tasks.
    Turn,
    /// Has sent everything.
    Events,
    /// Waits for its client, which does not read, or has not read yet.
    Socket,
    /// Returned its seats to flow control, and waits to get them back.
    Seats,
}

/// Set in the state beside the pause, while the initial state is being sent.
const INITIAL: u8 = 0x80;

impl WatchPause {
    const fn of(state: u8) -> Self {
        match state & !INITIAL {
            1 => Self::Events,
            2 => Self::Socket,
            3 => Self::Seats,
            _ => Self::Turn,
        }
    }

    /// Name in documents.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Events => "events",
            Self::Socket => "socket",
            Self::Seats => "seats",
        }
    }
}

impl WatchRecord {
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn kind(&self) -> &RequestClass {
        &self.series.kind
    }

    pub(crate) fn reader(&self) -> &WatchReader {
        &self.reader
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Time since its request arrived.
    pub(crate) fn age(&self) -> Duration {
        self.arrived.elapsed()
    }

    /// The position behind the last event that it sent.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the last batch, if the connection has not asked for the next one.
    pub(crate) fn bytes_queued(&self) -> u32 {
        if self.pause() == WatchPause::Socket { self.batch.load(Ordering::Relaxed) } else { 0 }
    }

    pub(crate) fn pause(&self) -> WatchPause {
        WatchPause::of(self.state.load(Ordering::Relaxed))
    }

    /// State, by the names of the metric `cache_watchers`.
    pub(crate) fn state(&self) -> &'static str {
        match self.pause() {
            _ if self.state.load(Ordering::Relaxed) & INITIAL != 0 => "initial",
            WatchPause::Events => "live",
            WatchPause::Socket => "parked",
            WatchPause::Turn | WatchPause::Seats => "catching_up",
        }
    }
}

impl OpenWatches {
    fn open(&self, series: &Arc<WatchSeries>, origin: WatchOrigin, filter: Arc<Filter>) -> Arc<WatchRecord> {
        let WatchOrigin { reader, peer, arrived, .. } = origin;
        let (position, events, bytes, batch, state) = Default::default();
        let WatchTable { open, numbers, readers } = &mut *self.table.lock();
        let reader = match readers.get_key_value(&reader) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(reader),
        };
        *readers.entry(Arc::clone(&reader)).or_default() += 1;
        *numbers += 1;
        let number = *numbers;
        let series = Arc::clone(series);
        let watch =
            WatchRecord { number, series, reader, peer, filter, arrived, position, events, bytes, batch, state };
        let watch = Arc::new(watch);
        open.insert(number, Arc::clone(&watch));
        watch
    }

    fn close(&self, watch: &WatchRecord) {
        let WatchTable { open, readers, .. } = &mut *self.table.lock();
        open.remove(&watch.number);
        if let Some(count) = readers.get_mut(&watch.reader) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&watch.reader);
            }
        }
    }

    /// Removes and returns the causes of ends so far.
    #[cfg(test)]
    pub(crate) fn take_causes(&self) -> Vec<&'static str> {
        mem::take(&mut *self.causes.lock()).into_iter().collect()
    }

    /// Notes that caches are closed because the server shuts down.
    pub(crate) fn shut_down(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Lets each watch end soon: another process serves its client from then on. Watches see it when they are polled.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Logs the number of ends that were not logged so far.
    pub(crate) fn flush(&self) {
        let count = self.ends.lock().take();
        if count > 0 {
            tracing::info!(count, "watch ends not logged");
        }
    }

    /// Number of open watches.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().open.len()
    }

    /// Returns at most `limit` watches with numbers above `after`, the oldest first, and true if more follow.
    pub(crate) fn page(&self, after: u64, limit: usize) -> (Vec<Arc<WatchRecord>>, bool) {
        let table = self.table.lock();
        let mut rest = table.open.range(after.saturating_add(1)..).map(|(_, watch)| watch);
        let page: Vec<_> = rest.by_ref().take(limit).cloned().collect();
        let has_more = rest.next().is_some();
        (page, has_more)
    }

    /// Logs the end of a watch, unless too many were logged within a second: those are counted in a line of their own.
    fn log_end(self: &Arc<Self>, watch: &WatchRecord, end: WatchEndCause) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        // The guard ends here: an arm below locks again.
        let fate = self.ends.lock().next(Instant::now());
        match fate {
            LoggedEnd::Logged => {}
            LoggedEnd::Counted => return,
            LoggedEnd::FirstCounted(until) => {
                let Ok(runtime) = Handle::try_current() else {
                    // The next one has a runtime, or the shutdown logs them.
                    self.ends.lock().has_timer = false;
                    return;
                };
                let all = Arc::clone(self);
                runtime.spawn(async move {
                    tokio::time::sleep_until(until).await;
                    all.flush();
                });
                return;
            }
        }
        let (resource, WatchReader { user, agent }) = (watch.kind().id(), watch.reader());
        let namespace = format!("{:.*}", LOGGED_CHARS_MAX, watch.filter.namespace().unwrap_or_default());
        let selects = !watch.filter.selects_all();
        let peer = watch.peer.address.map(tracing::field::display);
        let (took, events, bytes) = (watch.age(), watch.events(), watch.bytes());
        let cause = end.as_str();
        tracing::info!(
            resource,
            namespace = namespace.as_str(),
            selects,
            user,
            user_agent = agent.as_str(),
            peer,
            ?took,
            events,
            bytes,
            cause,
            "watch ended"
        );
    }
}

/// The lines about ends of watches within the current second.
#[derive(Debug, Default)]
struct LoggedEnds {
    /// End of the second.
    until: Option<Instant>,
    logged: u32,
    counted: u64,
    /// True while a task waits for the end of the second, to log the count.
    has_timer: bool,
}

/// Fate of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedEnd {
    Logged,
    Counted,
    /// The first one that is only counted: the count is to be logged at this time.
    FirstCounted(Instant),
}

impl LoggedEnds {
    fn next(&mut self, now: Instant) -> LoggedEnd {
        let until = match self.until {
            Some(until) if now < until => until,
            Some(_) | None => {
                self.logged = 0;
                *self.until.insert(now + Duration::from_secs(1))
            }
        };
        if self.logged < WATCH_ENDS_LOGGED {
            self.logged += 1;
            return LoggedEnd::Logged;
        }
        self.counted += 1;
        if mem::replace(&mut self.has_timer, true) { LoggedEnd::Counted } else { LoggedEnd::FirstCounted(until) }
    }

    /// Returns the count, and begins the next one.
    fn take(&mut self) -> u64 {
        self.has_timer = false;
        mem::take(&mut self.counted)
    }
}

/// Cause of the end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEndCause {
    /// The client disconnected, or its connection broke.
    ClientLeft,
    /// Its timeout passed.
    Deadline,
    /// The credentials of its caller expired.
    CredentialsExpired,
    /// Its caller lost its credentials or its right.
    Withdrawn,
    /// It fell behind the window.
    Expired,
    /// Its initial state became too expensive to keep, or its seats did not come back.
    Cut,
    /// Its client did not read to the end of its time.
    Slow,
    /// The type was listed again, or redefined.
    HistoryEnded,
    /// The server shuts down.
    Shutdown,
    /// The type has no definition any more.
    TypeDeleted,
    /// The cache did not reach its position.
    Ahead,
    /// An object could not be encoded.
    NotEncoded,
    /// Its task panicked.
    Panicked,
}

impl WatchEndCause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ClientLeft => "client_left",
            Self::Deadline => "deadline",
            Self::CredentialsExpired => "credentials_expired",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
            Self::Cut => "cut",
            Self::Slow => "slow",
            Self::HistoryEnded => "history_ended",
            Self::Shutdown => "shutdown",
            Self::TypeDeleted => "type_deleted",
            Self::Ahead => "ahead",
            Self::NotEncoded => "not_encoded",
            Self::Panicked => "panicked",
        }
    }
}

/// The metrics of all watches of one kind, shared by them.
pub(super) struct WatchSeries {
    kind: RequestClass,
    all: Arc<OpenWatches>,
    measures: RequestMeasures,
    open: Gauge,
    events: Counter,
    duration: Histogram,
    sent: Counter,
}

impl WatchSeries {
    pub(super) fn new(
        kind: RequestClass,
        all: &Arc<OpenWatches>,
        measures: &RequestMeasures,
        open: Gauge,
        events: Counter,
    ) -> Arc<Self> {
        let (duration, sent) = measures.of(&kind);
        let (all, measures) = (Arc::clone(all), measures.clone());
        Arc::new(Self { kind, all, measures, open, events, duration, sent })
    }
}

/// One open watch. Dropping it decrements the gauge, ends its measurement, and logs its end.
pub(crate) struct WatchGauge {
    watch: Arc<WatchRecord>,
    /// `None` until it ends by itself.
    end: Option<WatchEndCause>,
    span: RequestSpan,
}

impl WatchGauge {
    pub(super) fn new(series: &Arc<WatchSeries>, origin: WatchOrigin, filter: Arc<Filter>) -> Self {
        series.open.inc();
        Self { watch: series.all.open(series, origin, filter), end: None, span: RequestSpan::default() }
    }

    /// Ends `span` with the watch.
    pub(crate) fn trace(&mut self, span: RequestSpan) {
        self.span = span;
    }

    /// Counts events written to this watch, bookmarks not included. Cost: two additions.
    pub(crate) fn sent(&self, events: u64) {
        self.watch.series.events.inc_by(events);
        add(&self.watch.events, events);
    }

    /// Counts a batch handed to the connection. Cost: two additions.
    pub(crate) fn handed_out(&self, bytes: usize) {
        self.watch.series.sent.inc_by(bytes as u64);
        add(&self.watch.bytes, bytes as u64);
        self.watch.batch.store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Notes where the watch stands, and what it waits for. Cost: two stores.
    pub(crate) fn note(&self, position: u64, is_initial: bool, pause: WatchPause) {
        self.watch.position.store(position, Ordering::Relaxed);
        let initial = if is_initial { INITIAL } else { 0 };
        self.watch.state.store(pause as u8 | initial, Ordering::Relaxed);
    }

    /// Measures the initial state, which was sent with its end.
    pub(crate) fn initial_done(&self) {
        let WatchSeries { kind, measures, .. } = &*self.watch.series;
        measures.watch_list(kind, self.watch.age());
    }

    /// Sets the cause of the end, unless there is one.
    pub(crate) fn end(&mut self, cause: WatchEndCause) {
        self.end.get_or_insert(cause);
    }

    /// True once another process serves the clients. Cost: one load.
    pub(crate) fn is_left(&self) -> bool {
        self.watch.series.all.is_left.load(Ordering::Relaxed)
    }

    /// Sets the cause of the end of a watch whose cache was closed.
    pub(crate) fn closed(&mut self) {
        let WatchSeries { kind, all, measures, .. } = &*self.watch.series;
        let cause = match (all.is_stopped.load(Ordering::Relaxed), measures.has(kind)) {
            (true, _) => WatchEndCause::Shutdown,
            (false, false) => WatchEndCause::TypeDeleted,
            // Redefined, or its cache panicked.
            (false, true) => WatchEndCause::HistoryEnded,
        };
        self.end(cause);
    }
}

/// Adds to a number that one task changes.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl fmt::Debug for WatchGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchGauge").finish_non_exhaustive()
    }
}

impl Drop for WatchGauge {
    fn drop(&mut self) {
        let series = &self.watch.series;
        series.all.close(&self.watch);
        series.open.dec();
        series.duration.observe(self.watch.age().as_secs_f64());
        let without = || if thread::panicking() { WatchEndCause::Panicked } else { WatchEndCause::ClientLeft };
        let end = self.end.unwrap_or_else(without);
        #[cfg(test)]
        series.all.causes.lock().insert(end.as_str());
        series.all.log_end(&self.watch, end);
        self.span.ended(end.as_str());
        self.span.sent(self.watch.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_watch_is_small() {
        assert!(size_of::<WatchRecord>() <= 96, "{}", size_of::<WatchRecord>());
        assert!(size_of::<WatchGauge>() - size_of::<RequestSpan>() <= 16);
    }

    /// Goal: a flood of ends does not flood the log, and none is lost from it. Method: three times as many ends as are logged,
    /// within a second, and one more after it.
    #[tokio::test(start_paused = true)]
    async fn ends_of_watches_are_logged_or_counted() {
        let mut ends = LoggedEnds::default();
        let begun = Instant::now();
        let fates: Vec<_> = (0..3 * WATCH_ENDS_LOGGED).map(|_| ends.next(begun)).collect();
        let count = |fate: LoggedEnd| fates.iter().filter(|one| **one == fate).count();
        let logged = usize::try_from(WATCH_ENDS_LOGGED).expect("a small number");
        assert_eq!(count(LoggedEnd::Logged), logged);
        assert_eq!(count(LoggedEnd::FirstCounted(begun + Duration::from_secs(1))), 1);
        assert_eq!(count(LoggedEnd::Counted), 2 * logged - 1);
        assert_eq!(ends.take(), u64::from(2 * WATCH_ENDS_LOGGED));
        let later = begun + Duration::from_secs(1);
        assert_eq!(ends.next(later), LoggedEnd::Logged);
        let next: Vec<_> = (0..WATCH_ENDS_LOGGED).map(|_| ends.next(later)).collect();
        assert!(matches!(next.last(), Some(LoggedEnd::FirstCounted(_))), "the next count is logged as well");
    }
}
