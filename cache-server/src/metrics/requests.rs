//! Durations and bytes of requests, under kube-apiserver's names and labels.
//!
//! A request lasts until the last byte of its response was handed to the connection, or its client left: a LIST that a slow
//! client reads lasts as long as the reading. An answer of one batch is measured when it is made.
//!
//! INVARIANT: labels come from the registry and from fixed names, never from a request's text: the types bound the series.

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

use super::{OfResource, Series, is_full};
use crate::{
    registry::{Live, Registry as Types, ResourceType},
    route::Target,
    traces::RequestSpan,
};

/// Upper bounds of the durations, in seconds: a part of kube-apiserver's, and one below them.
const DURATIONS: [f64; 9] = [0.001, 0.005, 0.05, 0.2, 1.0, 5.0, 10.0, 30.0, 60.0];

/// Upper bounds of the times of initial states, in seconds, as in kube-apiserver.
const WATCH_LISTS: [f64; 17] =
    [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];

/// Subresources of objects that have series of their own.
const SUBRESOURCES: [&str; 8] =
    ["status", "scale", "finalize", "approval", "binding", "ephemeralcontainers", "eviction", "token"];

/// Names of a resource type. Keys of series have them in place of the type, which would keep its schema.
#[derive(Debug, PartialEq, Eq)]
struct TypeNames {
    group: Box<str>,
    version: Box<str>,
    plural: Box<str>,
    id: Box<str>,
}

impl TypeNames {
    /// Returns the names of a type, which its requests share.
    fn of(ty: &ResourceType) -> Arc<Self> {
        let make = |text: &str| Box::from(text);
        ty.derived.get_or_make(|| Self {
            group: make(&ty.group),
            version: make(&ty.version),
            plural: make(&ty.plural),
            id: make(ty.id()),
        })
    }
}

/// A kind of request: verb, resource type and scope, as kube-apiserver's metrics name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestClass {
    /// In capitals, such as `LIST`.
    pub(crate) verb: &'static str,
    /// `None` for paths without a type, and for unknown types.
    ty: Option<Arc<TypeNames>>,
    subresource: &'static str,
    scope: &'static str,
}

impl RequestClass {
    /// A request for objects: for one of them, for those of a namespace, or for all. Writes have one scope, whatever their
    /// path.
    pub(crate) fn of(verb: &'static str, target: &Target) -> Self {
        let scope = match (verb, &target.name, &target.namespace) {
            ("POST" | "PUT" | "PATCH" | "OTHER", ..) | (_, Some(_), _) => "resource",
            (_, None, Some(_)) => "namespace",
            (_, None, None) => "cluster",
        };
        let requested = target.subresource.as_deref();
        let subresource = SUBRESOURCES.into_iter().find(|name| requested == Some(name)).unwrap_or_default();
        Self { verb, ty: Some(TypeNames::of(&target.ty)), subresource, scope }
    }

    /// A connection to a process in a pod, or a proxy.
    pub(crate) fn connection(ty: &ResourceType, subresource: &'static str) -> Self {
        Self { verb: "CONNECT", ty: Some(TypeNames::of(ty)), subresource, scope: "resource" }
    }

    /// A request without a type.
    pub(crate) const fn without_type(verb: &'static str) -> Self {
        Self { verb, ty: None, subresource: "", scope: "" }
    }

    /// The type's id; empty without a type.
    pub(crate) fn id(&self) -> &str {
        self.ty.as_ref().map_or("", |ty| &ty.id)
    }

    /// Returns the type as it is defined now; `None` without one.
    pub(crate) fn current_type(&self, types: &Types) -> Option<Arc<ResourceType>> {
        let TypeNames { group, version, plural, .. } = &**self.ty.as_ref()?;
        types.find(group, version, plural).or_else(|| types.review(group, version, plural))
    }

    /// True if both are of one definition. Series of an earlier one may have ended.
    pub(super) fn is_of_definition(&self, other: &Self) -> bool {
        match (&self.ty, &other.ty) {
            (Some(ty), Some(other)) => Arc::ptr_eq(ty, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn labels(&self) -> [(&'static str, &str); 6] {
        let [group, version, resource] = self.ty.as_ref().map_or([""; 3], |ty| [&*ty.group, &*ty.version, &*ty.plural]);
        [
            ("verb", self.verb),
            ("group", group),
            ("version", version),
            ("resource", resource),
            ("subresource", self.subresource),
            ("scope", self.scope),
        ]
    }
}

impl Hash for RequestClass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.verb, self.id(), self.subresource, self.scope).hash(state);
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

    fn is_served(&self, types: &Types) -> bool {
        self.ty.is_none() || self.current_type(types).is_some()
    }
}

/// Labels of the watches that begin with the state: those of a [`RequestClass`] without verb and subresource, as in
/// kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WatchListKind(RequestClass);

impl EncodeLabelSet for WatchListKind {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let [_, group, version, resource, _, scope] = self.0.labels();
        [group, version, resource, scope].encode(encoder)
    }
}

impl OfResource for WatchListKind {
    fn resource(&self) -> &str {
        self.0.id()
    }

    fn is_served(&self, types: &Types) -> bool {
        self.0.is_served(types)
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

fn watch_lists() -> Histogram {
    Histogram::new(WATCH_LISTS)
}

impl RequestMeasures {
    pub(super) fn new(types: Arc<Live>) -> Self {
        let (durations, watch_lists) = (Series::new(durations), Series::new(watch_lists));
        Self { types, durations, sent: Series::new(Counter::default), watch_lists, classes: Arc::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let about = "Time from the head of a request to the last byte of its response";
        registry.register_with_unit("apiserver_request_duration", about, Unit::Seconds, self.durations.family());
        let about = "Time from the head of a watch that begins with the state to the end of that";
        registry.register_with_unit("apiserver_watch_list_duration", about, Unit::Seconds, self.watch_lists.family());
        registry.register_with_unit("cache_sent", "Bytes of response bodies", Unit::Bytes, self.sent.family());
    }

    /// Removes the series of types that are not served.
    pub(super) fn retain(&self, types: &Types) {
        self.durations.retain(types);
        self.sent.retain(types);
        self.watch_lists.retain(types);
        // Last: a request between must not put back what has no series any more.
        self.classes.write().retain(|class, _| class.is_served(types));
    }

    /// Returns the metrics of one kind of request: durations, and bytes sent. Cost: one look-up once they exist.
    pub(super) fn of(&self, kind: &RequestClass) -> (Histogram, Counter) {
        if let Some((known, series)) = self.classes.read().get_key_value(kind)
            && known.is_of_definition(kind)
        {
            return series.clone();
        }
        let classes = &mut *self.classes.write();
        if is_full(classes) {
            let types = self.types.now();
            classes.retain(|class, _| class.is_served(&types));
        }
        let series = (self.durations.get(kind, &self.types), self.sent.get(kind, &self.types));
        // The key as well.
        classes.remove(kind);
        classes.insert(kind.clone(), series.clone());
        series
    }

    /// Measures the initial state of a watch, which was sent with its end.
    pub(super) fn watch_list(&self, kind: &RequestClass, took: Duration) {
        let duration = self.watch_lists.get(&WatchListKind(kind.clone()), &self.types);
        duration.observe(took.as_secs_f64());
    }

    /// True if the type of `kind` is served.
    pub(super) fn has(&self, kind: &RequestClass) -> bool {
        kind.is_served(&self.types.now())
    }

    /// Measures a request that arrived at `arrived` until the measure is dropped, which ends its span, too.
    pub(super) fn begin(&self, kind: &RequestClass, arrived: Instant, span: RequestSpan) -> RequestMeasure {
        let (duration, sent) = self.of(kind);
        RequestMeasure { arrived, duration, sent, bytes: 0, on_end: None, span }
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
    span: RequestSpan,
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
        self.span.sent(self.bytes);
        if let Some(on_end) = self.on_end.take() {
            on_end(took, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use api_rules::registry::Definition;

    use super::*;

    /// Goal: a version that is served no longer has no series. Method: a type of two versions, and then of one.
    #[test]
    fn the_series_of_a_version_end_with_it() {
        let version = |name: &str| serde_json::json!({"name": name, "served": true, "storage": name == "v1"});
        let object = serde_json::json!({
            "metadata": {"name": "tests.example.com"},
            "spec": {"group": "example.com", "versions": [version("v1"), version("v1beta1")]},
            "status": {"acceptedNames": {"plural": "tests", "kind": "Test"}},
        });
        let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
        let types = definition.types(&Arc::new(definition.schema()), 1);
        let of = |ty: &Arc<ResourceType>| {
            let ty = Arc::clone(ty);
            RequestClass::of("LIST", &Target { ty, namespace: None, name: None, subresource: None, watched: false })
        };
        let again = definition.types(&Arc::new(definition.schema()), 2);
        assert!(!of(&again[0]).is_of_definition(&of(&types[0])), "its series may have ended with the first one");
        let before = Types::builtin().changed([], &types);
        let (stays, ends): (Vec<_>, Vec<_>) = types.iter().partition(|ty| ty.version == "v1");
        let after = before.changed(&types, stays.iter().copied());
        for (ty, is_served) in [(stays[0], true), (ends[0], false)] {
            assert!(of(ty).is_served(&before), "{}", ty.version);
            assert_eq!(of(ty).is_served(&after), is_served, "{}", ty.version);
            assert!(of(ty).is_of_definition(&of(ty)));
        }
        drop(before);
        let schema = Arc::downgrade(ends[0]);
        let class = of(ends[0]);
        drop(types);
        assert!(schema.upgrade().is_none(), "a key of series keeps no type: {class:?}");
    }
}
