//! Durations and bytes of requests, under kube-apiserver's names and labels.
//!
//! A request lasts until the last byte of its response was handed to the connection, or its client left: a LIST that a slow
//! client reads lasts as long as the reading.
//!
//! INVARIANT: labels come from the registry and from fixed names, never from a request's text: clients cannot create series.

use std::{
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use prometheus_client::{
    encoding::{EncodeLabelSet, LabelSetEncoder},
    metrics::{counter::Counter, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use super::{OfResource, SERIES_ROOM, Series};
use crate::{
    registry::{Live, Registry as Types, ResourceType},
    route::Target,
};

/// Upper bounds of the durations, in seconds: a part of kube-apiserver's, and two below them.
const DURATIONS: [f64; 9] = [0.001, 0.005, 0.05, 0.2, 1.0, 5.0, 10.0, 30.0, 60.0];

/// A kind of request: verb, resource type and scope, as kube-apiserver's metrics name them.
#[derive(Clone, Debug)]
pub(crate) struct RequestClass {
    /// In capitals, such as `LIST`.
    pub(crate) verb: &'static str,
    /// `None` for paths without a type, and for unknown types.
    pub(crate) ty: Option<Arc<ResourceType>>,
    scope: &'static str,
}

impl RequestClass {
    /// A request for objects: for one of them, for those of a namespace, or for all.
    pub(crate) fn of(verb: &'static str, target: &Target) -> Self {
        let scope = match (&target.name, &target.namespace) {
            (Some(_), _) => "resource",
            _ if verb == "POST" => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        };
        Self { verb, ty: Some(Arc::clone(&target.ty)), scope }
    }

    /// A connection to a process in a pod, or a proxy.
    pub(crate) fn connection(ty: &Arc<ResourceType>) -> Self {
        Self { verb: "CONNECT", ty: Some(Arc::clone(ty)), scope: "resource" }
    }

    /// A request without a type.
    pub(crate) const fn without_type(verb: &'static str) -> Self {
        Self { verb, ty: None, scope: "" }
    }

    /// The type's id; empty without a type.
    pub(crate) fn id(&self) -> &str {
        self.ty.as_ref().map_or("", |ty| ty.id())
    }

    fn labels(&self) -> [(&'static str, &str); 5] {
        let [group, version, resource] = self.ty.as_ref().map_or([""; 3], |ty| [&*ty.group, &*ty.version, &*ty.plural]);
        [("verb", self.verb), ("group", group), ("version", version), ("resource", resource), ("scope", self.scope)]
    }
}

impl PartialEq for RequestClass {
    fn eq(&self, other: &Self) -> bool {
        let is_one = |ty: &Arc<ResourceType>, other: &Arc<ResourceType>| Arc::ptr_eq(ty, other);
        let have_one = self.ty.as_ref().zip(other.ty.as_ref()).is_some_and(|(ty, other)| is_one(ty, other));
        self.verb == other.verb && self.scope == other.scope && (have_one || self.labels() == other.labels())
    }
}

impl Eq for RequestClass {}

impl Hash for RequestClass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.verb, self.id(), self.scope).hash(state);
    }
}

impl EncodeLabelSet for RequestClass {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.labels().encode(encoder)
    }
}

impl OfResource for RequestClass {
    fn resource(&self) -> &str {
        self.id()
    }
}

/// Labels of the watches that begin with the state: those of a [`RequestClass`] but the verb, as in kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WatchListKind(RequestClass);

impl EncodeLabelSet for WatchListKind {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        (&self.0.labels()[1..]).encode(encoder)
    }
}

impl OfResource for WatchListKind {
    fn resource(&self) -> &str {
        self.0.id()
    }
}

/// The metrics of all requests.
#[derive(Clone)]
pub(super) struct RequestMeasures {
    types: Arc<Live>,
    durations: Series<RequestClass, Histogram>,
    sent: Series<RequestClass, Counter>,
    watch_lists: Series<WatchListKind, Histogram>,
    /// The durations and bytes of each class: one look-up for a request.
    classes: Arc<RwLock<HashMap<RequestClass, (Histogram, Counter)>>>,
}

fn durations() -> Histogram {
    Histogram::new(DURATIONS)
}

impl RequestMeasures {
    pub(super) fn new(types: Arc<Live>) -> Self {
        let (durations, watch_lists) = (Series::new(durations), Series::new(durations));
        Self { types, durations, sent: Series::new(Counter::default), watch_lists, classes: Arc::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let about = "Time from the head of a request to the last byte of its response";
        registry.register_with_unit("apiserver_request_duration", about, Unit::Seconds, self.durations.family());
        let about = "Time from the head of a watch that begins with the state to the end of that";
        registry.register_with_unit("apiserver_watch_list_duration", about, Unit::Seconds, self.watch_lists.family());
        registry.register_with_unit("cache_sent", "Bytes of response bodies", Unit::Bytes, self.sent.family());
    }

    /// Removes the series of deleted types.
    pub(super) fn retain(&self, types: &Types) {
        self.classes.write().retain(|class, _| class.ty.is_none() || types.has_id(class.id()));
        self.durations.retain(types);
        self.sent.retain(types);
        self.watch_lists.retain(types);
    }

    /// Returns the metrics of one kind of request: durations, and bytes sent. Cost: one look-up once they exist.
    #[expect(clippy::mutable_key_type, reason = "equality and hash read only names, which do not change")]
    pub(super) fn of(&self, kind: &RequestClass) -> (Histogram, Counter) {
        if let Some(known) = self.classes.read().get(kind) {
            return known.clone();
        }
        let classes = &mut *self.classes.write();
        if classes.len() > SERIES_ROOM {
            let types = self.types.now();
            classes.retain(|class, _| class.ty.is_none() || types.has_id(class.id()));
        }
        let series = (self.durations.get(kind, &self.types), self.sent.get(kind, &self.types));
        classes.entry(kind.clone()).or_insert(series).clone()
    }

    /// Measures the initial state of a watch, which was sent with its end.
    pub(super) fn watch_list(&self, kind: &RequestClass, took: Duration) {
        let duration = self.watch_lists.get(&WatchListKind(kind.clone()), &self.types);
        duration.observe(took.as_secs_f64());
    }

    /// True if the type of `kind` is served.
    pub(super) fn has(&self, kind: &RequestClass) -> bool {
        self.types.now().has_id(kind.id())
    }

    /// Measures a request that arrived at `arrived` until the measure is dropped.
    pub(super) fn begin(&self, kind: &RequestClass, arrived: Instant) -> RequestMeasure {
        let (duration, sent) = self.of(kind);
        RequestMeasure { arrived, duration, sent, bytes: 0, on_end: None }
    }
}

/// Called at the end of a response with its duration and its bytes.
type OnEnd = Box<dyn FnOnce(Duration, u64) + Send + Sync>;

/// The measurement of one request, which ends when it is dropped.
pub(crate) struct RequestMeasure {
    arrived: Instant,
    duration: Histogram,
    sent: Counter,
    bytes: u64,
    on_end: Option<OnEnd>,
}

impl RequestMeasure {
    /// Counts bytes that were handed to the connection.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.sent.inc_by(bytes as u64);
    }

    /// Calls `on_end` at the end.
    pub(crate) fn then(&mut self, on_end: impl FnOnce(Duration, u64) + Send + Sync + 'static) {
        self.on_end = Some(Box::new(on_end));
    }
}

impl Drop for RequestMeasure {
    fn drop(&mut self) {
        let took = self.arrived.elapsed();
        self.duration.observe(took.as_secs_f64());
        if let Some(on_end) = self.on_end.take() {
            on_end(took, self.bytes);
        }
    }
}
