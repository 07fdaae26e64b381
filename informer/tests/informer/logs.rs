//! Logs: each request and each session, and never a body. Spans end with their session.

use std::{
    env,
    fmt::Write as _,
    io,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures::{Stream, StreamExt};
use informer::{Cluster, InitialList};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, core::ApiResource, runtime::watcher};
use tokio::time::timeout;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::MakeWriter,
    layer::{Context, SubscriberExt as _},
    registry::Registry,
};

use crate::fixture::{
    SOON, Step, client_in_memory, end_bookmark, event, in_memory, is_stream, is_watch, item, list, ok, refuse, until,
};

/// Records every log line, at every level.
#[derive(Clone, Default)]
pub(crate) struct RecordedLog(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl RecordedLog {
    fn add(&self, head: &str, level: Level, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{head} {level}"));
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

impl Subscriber for RecordedLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("informer")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata().name(), *span.metadata().level(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        self.add("recorded", Level::TRACE, |line| values.record(line));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add("event", *event.metadata().level(), |line| event.record(line));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Covers two complaints: that a client's requests are invisible, and that whole bodies, Secrets among them, are logged
/// when one does not decode.
#[tokio::test(start_paused = true)]
async fn each_request_is_logged_once_and_no_body_ever() {
    let recorded = RecordedLog::default();
    let guard = tracing::subscriber::set_default(recorded.clone());
    // With a single dispatcher, tracing caches the interest of whichever thread reaches a line first, and other tests'
    // threads have no subscriber.
    let second = Dispatch::new(recorded.clone());
    let secret = |key: &str| item(key, 3).replace("\"node-1\"", "[\"hunter2\"]");
    let (cluster, log) = in_memory(move |number, uri| match number {
        1 => ok([Step::Send(list(&[secret("a/a"), secret("a/b"), r#"{"metadata":"hunter2"}"#.into()], 9, "next"))]),
        2 => ok([Step::Send(format!("{{\"hunter2\":{}", secret("a/c")))]),
        3 => ok([Step::Send(list(&[secret("a/c"), secret("a/d")], 9, ""))]),
        _ if is_watch(uri) && number == 4 => {
            ok([Step::Send("{\"type\":\"ERROR\",\"object\":{\"hunter2\":1}}\n".into())])
        }
        _ => ok([Step::Hang]),
    });
    let secrets = cluster.informer::<Secret>().initial_list(InitialList::Paged).start().unwrap();
    secrets.ready(SOON).await.unwrap();
    until("the watch", || log.uris().len() >= 5).await;
    for entry in &secrets.store().snapshot() {
        entry.decode().unwrap_err();
    }
    let requests: Vec<String> = recorded.lines("request started");
    assert_eq!(requests.len(), log.uris().len(), "{requests:#?}");
    for (line, uri) in requests.iter().zip(log.uris()) {
        assert!(line.starts_with("event DEBUG") && line.ends_with(&format!("request=GET {uri}")), "{line}");
    }
    let sessions = recorded.lines("session ");
    assert_eq!(sessions.len(), requests.len());
    assert!(sessions[0].starts_with("session INFO resource=\"secrets\" request=GET /api/v1/secrets?"), "{sessions:?}");
    assert!(recorded.lines("hunter2").is_empty(), "{:#?}", recorded.lines("hunter2"));
    drop((guard, second));
}

/// Goal: the owner of a skipped object can find it, and its body is never logged. Method: Secrets that are too large,
/// and one without a readable name.
#[tokio::test(start_paused = true)]
async fn a_skipped_object_is_logged_once_by_its_key_and_place_and_never_its_body() {
    let recorded = RecordedLog::default();
    let guard = tracing::subscriber::set_default(recorded.clone());
    let second = Dispatch::new(recorded.clone());
    let large = |version| item("a/large", version).replace("node-1", &"hunter2".repeat(1_000));
    let (cluster, _log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3), large(4), "[\"hunter2\"]".into()], 9, ""))]),
        _ => ok([Step::Send(event("MODIFIED", &large(10)) + &event("MODIFIED", &large(11))), Step::Hang]),
    });
    let declared = cluster.informer::<Secret>().initial_list(InitialList::Unpaged).object_bytes_max(1_000);
    let secrets = declared.start().unwrap();
    secrets.wait_for("11", SOON).await.unwrap();
    let lines = recorded.lines("object skipped");
    assert_eq!((lines.len(), secrets.stats().skipped), (2, 4), "each is told once, and counted: {lines:#?}");
    let expected = ["key=\"a/large\" offset=", "reason=larger than 1000 bytes", "reason=no JSON object"];
    assert!(lines[0].contains(expected[0]) && lines[0].contains(expected[1]), "{lines:#?}");
    assert!(lines[1].contains("key=\"\" offset=") && lines[1].contains(expected[2]), "{lines:#?}");
    assert!(recorded.lines("hunter2").is_empty(), "{:#?}", recorded.lines("hunter2"));
    drop((guard, second));
}

/// Output of a program with an ordinary subscriber: length of the lines, and number of open spans.
#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    lines: usize,
    longest: usize,
    spans: usize,
    spans_open: usize,
    spans_open_max: usize,
}

impl Counted {
    fn counts<T>(&self, read: impl FnOnce(&mut Counts) -> T) -> T {
        read(&mut self.0.lock().unwrap())
    }

    /// Installs it for this thread, with a registry and the usual format, until the returned guard is dropped.
    fn install(&self) -> impl Sized + use<> {
        let format = tracing_subscriber::fmt::layer().with_writer(self.clone());
        let subscriber =
            Registry::default().with(EnvFilter::new("informer=info")).with(Spans(self.clone())).with(format);
        // A second dispatcher, as above.
        (tracing::subscriber::set_default(subscriber), Dispatch::new(RecordedLog::default()))
    }
}

/// Counts spans as they open and close.
struct Spans(Counted);

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.0.counts(|counts| {
            counts.spans += 1;
            counts.spans_open += 1;
            counts.spans_open_max = counts.spans_open_max.max(counts.spans_open);
        });
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.0.counts(|counts| counts.spans_open -= 1);
    }
}

/// Counts lines: the format layer passes each line to a writer in one call.
impl io::Write for Counted {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.counts(|counts| {
            counts.lines += 1;
            counts.longest = counts.longest.max(line.len());
        });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Counted {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A server whose watches end after a second and which fails every thousandth request, with the output of a program
/// with an ordinary subscriber.
struct Sessions {
    client: kube::Client,
    requests: Arc<AtomicUsize>,
    counted: Counted,
}

impl Sessions {
    fn new(counted: Counted) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let (client, _log) = client_in_memory(move |number, uri| {
            count.fetch_add(1, Ordering::Relaxed);
            match number {
                _ if number % 1_000 == 0 => refuse(503, ""),
                _ if is_stream(uri) => ok([Step::Send(end_bookmark(9)), Step::Wait(Duration::from_secs(1))]),
                _ => ok([Step::Wait(Duration::from_secs(1))]),
            }
        });
        Self { client, requests, counted }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Checks that no span outlives its session, however many sessions there were.
    fn check(&self) {
        let sessions = self.requests();
        self.counted.counts(|counts| {
            assert!(counts.spans >= sessions && counts.lines >= sessions / 2_000, "{} lines", counts.lines);
            assert!(counts.spans_open_max <= 4, "{} spans open at once", counts.spans_open_max);
            assert!(counts.longest < 1_000, "a line of {} bytes", counts.longest);
        });
    }

    /// Polls a stream through 3,000 sessions, and drops it.
    async fn read(&self, events: impl Stream) {
        let (mut events, before) = (pin!(events), self.requests());
        while self.requests() < before + 3_000 {
            // A timeout means no event arrived; continue.
            let _ = timeout(Duration::from_secs(600), events.next()).await;
            self.check();
        }
    }
}

/// Runs a program on a worker's stack of 2 MiB, in virtual time, with an ordinary subscriber.
fn on_a_small_stack<F: Future<Output = ()>>(program: impl FnOnce(Sessions) -> F + Send + 'static) {
    let run = move || {
        let counted = Counted::default();
        let _installed = counted.install();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { program(Sessions::new(counted.clone())).await });
        drop(runtime);
        counted.counts(|counts| assert_eq!(counts.spans_open, 0, "all end with the program"));
    };
    thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// Goal: a healthy informer runs for months under an ordinary subscriber and then stops. Method: many sessions in virtual
/// time, 8,000 or `SESSIONS`. With nested session spans, lines grew to hundreds of KiB after a few thousand sessions,
/// and closing the last span overflowed the stack.
#[test]
fn thousands_of_sessions_leave_no_span_and_no_longer_line() {
    let count = env::var("SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(8_000);
    on_a_small_stack(move |sessions| async move {
        let maps = Cluster::new(sessions.client.clone())
            .informer::<ConfigMap>()
            .config(|config| config.watch_timeout_seconds = 1..=1)
            .start()
            .unwrap();
        maps.ready(SOON).await.unwrap();
        while sessions.requests() < count {
            tokio::time::sleep(Duration::from_secs(600)).await;
            sessions.check();
        }
        maps.stop().await;
    });
}

#[test]
fn sessions_of_raw_streams_and_watchers_leave_no_span_either() {
    on_a_small_stack(|sessions| async move {
        let raw = Cluster::new(sessions.client.clone()).raw(&ApiResource::erase::<ConfigMap>(&()));
        sessions.read(raw.config(|config| config.watch_timeout_seconds = 1..=1).start().unwrap()).await;
        let config = watcher::Config { timeout: Some(1), ..watcher::Config::default().streaming_lists() };
        sessions.read(informer::watcher(Api::<ConfigMap>::all(sessions.client.clone()), config)).await;
    });
}
