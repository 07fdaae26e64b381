//! Metrics at `/metrics`: counters that handlers increment, and gauges read from their owners at each scrape, so that
//! they cannot drift.
//!
//! Names are kube-apiserver's own where the meaning is the same; metrics that only this server has start with
//! `cache_`.
//!
//! INVARIANT: the series of a type end with its definition, at the next scrape or when the number of series has
//! doubled.

mod process;
mod requests;
pub(crate) mod watches;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::Hash,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use informer_serving::marks::MarksReply;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use tokio::time::Instant;
use watch_cache::{CacheStats, Filter};

pub(crate) use self::{
    process::{open_files, resident_bytes},
    requests::{RequestClass, RequestMeasure},
};
use self::{
    requests::RequestMeasures,
    watches::{OpenWatches, WatchGauge, WatchOrigin, WatchSeries},
};
use crate::{
    access::metrics::{AuditCounters, AuthenticationMetrics, AuthorizationMetrics},
    cacher::Caches,
    registry::{Live, Registry as Types},
    traces::RequestSpan,
};

/// Labels of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    resource: String,
    code: u16,
}

/// Labels of requests whose clients disconnected before a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AbortedLabels {
    verb: &'static str,
    resource: String,
}

/// Labels of a metric of one resource type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

/// Labels of the watches of one resource type in one state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    resource: String,
    state: &'static str,
}

/// Labels of cut readers of one resource type: the kind of read, and the bound that was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutReaders {
    resource: String,
    reader: &'static str,
    reason: &'static str,
}

/// Labels of initial streams of one resource type whose clients requested marks: the server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MarkLabels {
    resource: String,
    answer: &'static str,
}

/// Labels of a health check, as in kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    name: String,
    r#type: &'static str,
}

/// Labels of a long-running request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LongRunning {
    verb: &'static str,
    resource: String,
}

/// Labels that include a resource type.
trait OfResource: Clone + Eq + Hash {
    /// Returns the type's id; empty if the request concerns no type.
    fn resource(&self) -> &str;

    /// True if the type is served, and without a type.
    fn is_served(&self, types: &Types) -> bool {
        self.resource().is_empty() || types.has_id(self.resource())
    }
}

impl OfResource for RequestLabels {
    fn resource(&self) -> &str {
        &self.resource
    }
}

impl OfResource for AbortedLabels {
    fn resource(&self) -> &str {
        &self.resource
    }
}

impl OfResource for ResourceLabels {
    fn resource(&self) -> &str {
        &self.resource
    }
}

impl OfResource for MarkLabels {
    fn resource(&self) -> &str {
        &self.resource
    }
}

impl OfResource for LongRunning {
    fn resource(&self) -> &str {
        &self.resource
    }
}

/// A metric family whose series end with their types. Memory: the labels twice.
#[derive(Clone)]
struct Series<L, M> {
    family: Family<L, M, fn() -> M>,
    labels: Arc<Mutex<Labels<L>>>,
}

struct Labels<L> {
    all: HashSet<L>,
    /// Number of series above which the series of deleted types are removed.
    room: usize,
}

impl<L: OfResource, M: Clone> Series<L, M> {
    fn new(metric: fn() -> M) -> Self {
        let labels = Labels { all: HashSet::new(), room: SERIES_ROOM };
        Self { family: Family::new_with_constructor(metric), labels: Arc::new(Mutex::new(labels)) }
    }

    /// Returns the family, to be registered.
    fn family(&self) -> Family<L, M, fn() -> M> {
        self.family.clone()
    }

    /// Returns the metric of `labels`. Cost: one look-up once it exists.
    fn get(&self, labels: &L, types: &Live) -> M {
        if let Some(metric) = self.family.get(labels) {
            return metric.clone();
        }
        let is_full = {
            let known = &mut *self.labels.lock();
            // Inserted before the series is created, so that no series is missing in `labels`.
            known.all.insert(labels.clone());
            known.room < known.all.len()
        };
        if is_full {
            self.retain(&types.now());
        }
        self.family.get_or_create_owned(labels)
    }

    /// Removes the series of deleted types.
    fn retain(&self, types: &Types) {
        let Labels { all, room } = &mut *self.labels.lock();
        all.retain(|labels| {
            // A label set without a series stays: another thread is about to create it.
            labels.is_served(types) || !self.family.remove(labels)
        });
        *room = all.len() * 2 + SERIES_ROOM;
    }
}

/// Series of deleted types that may stay until the next scrape. Memory: some 200 bytes each.
const SERIES_ROOM: usize = 512;

/// True if another entry would make the map grow: then entries of deleted types are removed. A scan at each entry above the
/// room would cost the square of the number of types.
fn is_full<K, V>(map: &HashMap<K, V>) -> bool {
    SERIES_ROOM < map.len() && map.len() == map.capacity()
}

/// All metrics of one server.
pub struct Metrics {
    registry: Registry,
    types: Arc<Live>,
    requests: Series<RequestLabels, Counter>,
    aborted: Series<AbortedLabels, Counter>,
    long_running: Series<LongRunning, Gauge>,
    watch_events: Series<ResourceLabels, Counter>,
    marked: Series<MarkLabels, Counter>,
    refused_watches: Series<ResourceLabels, Counter>,
    measures: RequestMeasures,
    /// The metrics of watches by their kind.
    watches: Mutex<HashMap<RequestClass, Arc<WatchSeries>>>,
    open: Arc<OpenWatches>,
    started: Instant,
    connections: Gauge,
    connections_ended: Counter,
    /// Counters of authentication.
    pub(crate) authentication: AuthenticationMetrics,
    /// Counters of authorization.
    pub(crate) authorization: AuthorizationMetrics,
    /// Records of the audit log.
    pub(crate) audit: AuditCounters,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates all metrics at zero. They keep series only of current `types`.
    #[must_use]
    pub fn new(types: Arc<Live>) -> Self {
        let mut registry = Registry::default();
        let requests = Series::<RequestLabels, _>::new(Counter::default);
        let aborted = Series::<AbortedLabels, _>::new(Counter::default);
        let long_running = Series::<LongRunning, _>::new(Gauge::default);
        let watch_events = Series::<ResourceLabels, _>::new(Counter::default);
        let marked = Series::<MarkLabels, _>::new(Counter::default);
        let refused_watches = Series::<ResourceLabels, _>::new(Counter::default);
        let measures = RequestMeasures::new(Arc::clone(&types));
        measures.register(&mut registry);
        let connections = Gauge::default();
        let connections_ended = Counter::default();
        let authentication = AuthenticationMetrics::default();
        authentication.register(&mut registry);
        let authorization = AuthorizationMetrics::default();
        authorization.register(&mut registry);
        registry.register("apiserver_request", "Requests answered", requests.family.clone());
        let about_aborted = "Requests whose clients left before they were answered";
        registry.register("apiserver_request_aborts", about_aborted, aborted.family.clone());
        registry.register("apiserver_longrunning_requests", "Watches that are open", long_running.family.clone());
        registry.register(
            "apiserver_watch_events",
            "Events sent to watches, bookmarks not counted",
            watch_events.family.clone(),
        );
        let about_marked = "Initial streams that go on where they broke, by what their clients were told";
        registry.register("cache_marked_streams", about_marked, marked.family.clone());
        let about_refused = "Watches from positions that are too old or unknown";
        registry.register("cache_watches_refused", about_refused, refused_watches.family.clone());
        registry.register("cache_connections", "Connections that are open", connections.clone());
        registry.register("cache_connections_ended", "Connections that ended", connections_ended.clone());
        let audit = AuditCounters::registered(&mut registry);
        Self {
            audit,
            registry,
            types,
            requests,
            aborted,
            long_running,
            watch_events,
            marked,
            refused_watches,
            measures,
            watches: Mutex::default(),
            open: Arc::default(),
            started: Instant::now(),
            connections,
            connections_ended,
            authentication,
            authorization,
        }
    }

    /// Registers metrics that have another owner.
    pub(crate) fn with(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.registry);
        self
    }

    /// Counts one answered request. `verb` is Kubernetes' own, in capitals: `GET`, `LIST`, `WATCH`, `POST`; `resource`
    /// is the type's id (`pods`, `deployments.apps`), empty for paths without a type. Both must come from the server's
    /// own tables, never from the request's text.
    pub fn request(&self, verb: &'static str, resource: &str, code: u16) {
        let labels = RequestLabels { verb, resource: resource.to_owned(), code };
        self.requests.get(&labels, &self.types).inc();
    }

    /// Counts one request whose client disconnected before the response; labels as in [`request`](Self::request).
    pub(crate) fn aborted(&self, verb: &'static str, resource: &str) {
        self.aborted.get(&AbortedLabels { verb, resource: resource.to_owned() }, &self.types).inc();
    }

    /// Measures an answered request until the measure is dropped.
    pub(crate) fn measure(&self, kind: &RequestClass, arrived: Instant, span: RequestSpan) -> RequestMeasure {
        self.measures.begin(kind, arrived, span)
    }

    /// Counts, measures and lists one open watch until the guard is dropped.
    #[must_use]
    pub(crate) fn watch(&self, kind: RequestClass, origin: WatchOrigin, filter: &Arc<Filter>) -> WatchGauge {
        let watches = &mut *self.watches.lock();
        if let Some((known, series)) = watches.get_key_value(&kind)
            && known.is_of_definition(&kind)
        {
            return WatchGauge::new(series, origin, Arc::clone(filter));
        }
        if is_full(watches) {
            let types = self.types.now();
            watches.retain(|kind, _| kind.is_served(&types));
        }
        let resource = kind.id().to_owned();
        let open = self.long_running.get(&LongRunning { verb: "WATCH", resource: resource.clone() }, &self.types);
        let events = self.watch_events.get(&ResourceLabels { resource }, &self.types);
        let series = WatchSeries::new(kind.clone(), &self.open, &self.measures, open, events);
        let gauge = WatchGauge::new(&series, origin, Arc::clone(filter));
        // The key as well.
        watches.remove(&kind);
        watches.insert(kind, series);
        gauge
    }

    /// Time since the start.
    pub(crate) fn running_for(&self) -> Duration {
        self.started.elapsed()
    }

    /// The open watches.
    pub(crate) fn open_watches(&self) -> &OpenWatches {
        &self.open
    }

    /// Counts one initial stream of `resource` whose client requested marks and got `answer`.
    pub(crate) fn marked(&self, resource: &str, answer: MarksReply) {
        let labels = MarkLabels { resource: resource.to_owned(), answer: answer.as_str() };
        self.marked.get(&labels, &self.types).inc();
    }

    /// Counts one watch of `resource` from a position that is too old or unknown.
    pub(crate) fn refused_watch(&self, resource: &str) {
        self.refused_watches.get(&ResourceLabels { resource: resource.to_owned() }, &self.types).inc();
    }

    /// Counts one open connection until the guard is dropped.
    #[must_use]
    pub(crate) fn connection(&self) -> ConnectionGauge {
        self.connections.inc();
        ConnectionGauge { open: self.connections.clone(), ended: self.connections_ended.clone() }
    }

    /// Returns the number of connections that ended since the start.
    pub(crate) fn connections_ended(&self) -> u64 {
        self.connections_ended.get()
    }

    /// Returns the exposition text (OpenMetrics), with other gauges read now.
    #[must_use]
    pub(crate) fn text(&self, caches: &Caches, readings: &ScrapeReadings) -> String {
        let types = &self.types.now();
        self.requests.retain(types);
        self.aborted.retain(types);
        self.long_running.retain(types);
        self.watch_events.retain(types);
        self.marked.retain(types);
        self.refused_watches.retain(types);
        self.measures.retain(types);
        // Last: a concurrent watch must not recreate a removed series.
        self.watches.lock().retain(|kind, _| kind.is_served(types));
        let mut out = String::new();
        let read = read_now(caches, readings);
        let written = text::encode_registry(&mut out, &self.registry)
            .and_then(|()| text::encode_registry(&mut out, &read))
            .and_then(|()| text::encode_eof(&mut out));
        written.expect("writing to a string cannot fail");
        out
    }
}

/// The Content-Type of the metrics.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// States with other owners, as read at a scrape. Unknown ones are absent from the text.
#[derive(Debug, Default)]
pub(crate) struct ScrapeReadings {
    /// Number of open files.
    pub(crate) open_files: Option<u64>,
    /// Names of the checks of `/readyz`; true for those that pass.
    pub(crate) checks: Vec<(String, bool)>,
    /// Time for which the API server behind this server has not answered; zero if it answers.
    pub(crate) upstream_silent: Option<Duration>,
}

/// One open connection. Dropping it decrements the gauge.
#[derive(Debug)]
pub(crate) struct ConnectionGauge {
    open: Gauge,
    ended: Counter,
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.open.dec();
        self.ended.inc();
    }
}

type Number = Gauge<u64, AtomicU64>;

/// Metrics that are read from each cache at a scrape.
#[derive(Default)]
struct CacheGauges {
    objects: Family<ResourceLabels, Number>,
    object_bytes: Family<ResourceLabels, Number>,
    applied: Family<ResourceLabels, Number>,
    stale: Family<ResourceLabels, Gauge<f64, AtomicU64>>,
    window_bytes: Family<ResourceLabels, Number>,
    window_events: Family<ResourceLabels, Number>,
    window_covers: Family<ResourceLabels, Gauge<f64, AtomicU64>>,
    buckets: Family<ResourceLabels, Number>,
    watchers: Family<WatchLabels, Number>,
    expired: Family<ResourceLabels, Counter>,
    cut: Family<CutReaders, Counter>,
    events: Family<ResourceLabels, Counter>,
    selectors: Family<ResourceLabels, Counter>,
    epochs: Family<ResourceLabels, Counter>,
}

impl CacheGauges {
    fn set(&self, resource: &str, stats: &CacheStats) {
        let labels = ResourceLabels { resource: resource.to_owned() };
        self.objects.get_or_create(&labels).set(stats.objects as u64);
        self.object_bytes.get_or_create(&labels).set(stats.object_bytes as u64);
        self.applied.get_or_create(&labels).set(stats.applied);
        self.stale.get_or_create(&labels).set(0.0);
        self.window_bytes.get_or_create(&labels).set(stats.window_bytes as u64);
        self.window_events.get_or_create(&labels).set(stats.window_events as u64);
        self.buckets.get_or_create(&labels).set(stats.buckets as u64);
        self.events.get_or_create(&labels).inc_by(stats.events);
        self.selectors.get_or_create(&labels).inc_by(stats.selector_evaluations);
        self.epochs.get_or_create(&labels).inc_by(stats.epochs);
        if let Some(covered) = stats.window_covers {
            self.window_covers.get_or_create(&labels).set(covered.as_secs_f64());
        }
        let states = [
            ("initial", stats.watchers_initial),
            ("catching_up", stats.watchers_catching_up),
            ("parked", stats.watchers_parked),
            ("live", stats.watchers_live),
        ];
        for (state, count) in states {
            self.watchers.get_or_create(&WatchLabels { resource: resource.to_owned(), state }).set(count);
        }
        self.expired.get_or_create(&labels).inc_by(stats.watchers_expired);
        let cut = [
            ("list", "bytes", stats.lists_cut_for_bytes),
            ("list", "time", stats.lists_cut_for_time),
            ("stream", "bytes", stats.streams_cut_for_bytes),
            ("stream", "time", stats.streams_cut_for_time),
        ];
        for (reader, reason, count) in cut {
            self.cut.get_or_create(&CutReaders { resource: resource.to_owned(), reader, reason }).inc_by(count);
        }
    }

    fn register(self, registry: &mut Registry) {
        registry.register("cache_objects", "Objects in the cache", self.objects);
        registry.register_with_unit("cache_objects", "Memory of the objects", Unit::Bytes, self.object_bytes);
        registry.register("cache_applied_revision", "Newest revision the cache has taken in", self.applied);
        let about_stale = "Time for which the source has not kept the cache up to date";
        registry.register_with_unit("cache_stale", about_stale, Unit::Seconds, self.stale);
        registry.register_with_unit("cache_window", "Bytes that only the window keeps", Unit::Bytes, self.window_bytes);
        registry.register("cache_window_events", "Events in the window", self.window_events);
        let covers = "How far back the window reaches, once it evicts";
        registry.register_with_unit("cache_window", covers, Unit::Seconds, self.window_covers);
        registry.register("cache_buckets", "Nodes, namespaces and names that are watched", self.buckets);
        registry.register("cache_watchers", "Watches that are open, by state", self.watchers);
        registry.register("cache_watches_expired", "Watches that fell behind the window", self.expired);
        registry.register("cache_readers_cut", "LISTs and initial streams cut for being slow", self.cut);
        registry.register("cache_events", "Events taken in", self.events);
        registry.register("cache_selectors_asked", "Times a selector was asked about an event", self.selectors);
        registry.register("cache_epochs", "Times the history began, the first listing included", self.epochs);
    }
}

/// Reads the gauges that have other owners: the caches, the kernel, the checks of `/readyz`.
fn read_now(caches: &Caches, readings: &ScrapeReadings) -> Registry {
    let mut registry = Registry::default();
    let gauges = CacheGauges::default();
    for (resource, stats) in caches.stats() {
        gauges.set(&resource, &stats);
    }
    for down in caches.down() {
        gauges.stale.get_or_create(&ResourceLabels { resource: down.resource }).set(down.since.as_secs_f64());
    }
    gauges.register(&mut registry);
    let compressed = Number::default();
    compressed.set(watch_cache::pieces_bytes() as u64);
    let about_compressed = "Bytes of compressed objects that responses share";
    registry.register_with_unit("cache_compressed", about_compressed, Unit::Bytes, compressed);
    let messages = Number::default();
    messages.set(watch_cache::messages_bytes() as u64);
    let about_messages = "Bytes of protobuf messages and converted objects that clients share";
    registry.register_with_unit("cache_protobuf", about_messages, Unit::Bytes, messages);
    let checks = Family::<CheckLabels, Gauge>::default();
    for (name, passes) in &readings.checks {
        let labels = CheckLabels { name: name.clone(), r#type: "readyz" };
        checks.get_or_create(&labels).set(i64::from(*passes));
    }
    registry.register("kubernetes_healthcheck", "1 for a check that passes", checks);
    if let Some(silent) = readings.upstream_silent {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(silent.as_secs_f64());
        let about_silent = "Time for which the API server has not answered";
        registry.register_with_unit("cache_upstream_silent", about_silent, Unit::Seconds, gauge);
    }
    process::register(&mut registry, readings.open_files);
    registry
}

#[cfg(test)]
mod tests {
    use api_rules::registry::Definition;

    use super::*;
    use crate::{app::App, config::Config, registry::ResourceType, route::Target};

    fn watch_of(ty: Arc<ResourceType>) -> RequestClass {
        RequestClass::of("WATCH", &Target { ty, namespace: None, name: None, subresource: None, watched: false })
    }

    /// A watch of a type that has no definition.
    fn watch_of_undefined() -> RequestClass {
        let object = serde_json::json!({
            "metadata": {"name": "gone.example.com"},
            "spec": {"group": "example.com", "versions": [{"name": "v1", "served": true, "storage": true}]},
            "status": {"acceptedNames": {"plural": "gone", "kind": "Gone"}},
        });
        let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
        watch_of(definition.types(&Arc::new(definition.schema()), 1).remove(0))
    }

    #[test]
    fn requests_and_watches_are_counted_by_kubernetes_names() {
        let app = App::new(Config::default());
        app.metrics.request("LIST", "pods", 200);
        app.metrics.request("LIST", "pods", 200);
        let pods = watch_of(app.registry.now().by_id("pods").expect("pods"));
        let watching = app.metrics.watch(pods, WatchOrigin::default(), &Filter::all());
        watching.sent(7);
        watching.handed_out(1_000);
        let text = app.metrics.text(&app.caches, &ScrapeReadings::default());
        for line in [
            r#"apiserver_request_total{verb="LIST",resource="pods",code="200"} 2"#,
            r#"apiserver_longrunning_requests{verb="WATCH",resource="pods"} 1"#,
            r#"apiserver_watch_events_total{resource="pods"} 7"#,
            r#"cache_sent_bytes_total{verb="WATCH",group="",version="v1",resource="pods",subresource="",scope="cluster"} 1000"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        drop(watching);
        let text = app.metrics.text(&app.caches, &ScrapeReadings::default());
        assert!(text.contains(r#"apiserver_longrunning_requests{verb="WATCH",resource="pods"} 0"#), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// Goal: deleted types leave no series and no memory. Method: requests, watches and events of many types without a
    /// definition, then a scrape; then many of them without one.
    #[test]
    fn the_series_of_a_type_end_with_it() {
        let app = App::new(Config::default());
        app.metrics.request("LIST", "pods", 200);
        app.metrics.request("GET", "", 200);
        app.metrics.request("POST", "gone.example.com", 201);
        app.metrics.marked("gone.example.com", MarksReply::Accepted);
        let watching = app.metrics.watch(watch_of_undefined(), WatchOrigin::default(), &Filter::all());
        drop(app.metrics.measure(&watch_of_undefined(), Instant::now(), RequestSpan::default()));
        let text = app.metrics.text(&app.caches, &ScrapeReadings::default());
        assert!(!text.contains("gone.example.com"), "{text}");
        assert!(text.contains(r#"{verb="LIST",resource="pods",code="200"} 1"#), "{text}");
        assert!(text.contains(r#"{verb="GET",resource="",code="200"} 1"#), "{text}");
        watching.sent(1);
        drop(watching);
        for number in 0..10 * SERIES_ROOM {
            app.metrics.request("LIST", &format!("c{number}.example.com"), 200);
        }
        let labels = app.metrics.requests.labels.lock().all.len();
        assert!(labels <= 2 * SERIES_ROOM + 2, "{labels}");
    }

    #[test]
    fn many_types_cost_few_scans() {
        let (mut map, mut scans) = (HashMap::new(), 0);
        for number in 0..8 * SERIES_ROOM {
            scans += usize::from(is_full(&map));
            map.insert(number, ());
        }
        assert!((1..=4).contains(&scans), "{scans}");
    }

    #[test]
    fn the_process_knows_its_size() {
        let app = App::new(Config::default());
        let text = app.metrics.text(&app.caches, &ScrapeReadings::default());
        let size = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
        assert!(size.is_some_and(|size| size.parse::<u64>().is_ok_and(|size| size > 1 << 20)), "{text}");
    }
}
