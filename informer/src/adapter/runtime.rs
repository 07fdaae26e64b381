//! Events in the vocabulary of `kube::runtime`, for programs built on its reflectors and controllers.
//!
//! INVARIANT: kube's reflector can consume the stream: every `Init` is followed by all existing objects, and no
//! `Delete` is sent while the reader gathers them.

mod events;
mod failures;

use std::{
    any::Any,
    fmt::{self, Debug},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use futures::Stream;
use informer_core::{InitialList, ListSemantic};
use serde::de::DeserializeOwned;

use super::{
    Cluster, differences,
    kube::{
        Api, Resource,
        runtime::{
            utils::Backoff,
            watcher::{self, InitialListStrategy},
        },
    },
};
use crate::{cluster::ClusterState, config::Config, delays::Delays, raw, resource_kind::ResourceKind};

/// Watches the objects of `api`, like `kube::runtime::watcher` and with its types, at a lower cost to the server.
///
/// One line changes:
///
/// ```no_run
/// use futures::TryStreamExt;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::{Api, ResourceExt, runtime::{WatchStreamExt, reflector, watcher}};
///
/// # async fn doc(client: kube::Client) -> Result<(), watcher::Error> {
/// let pods: Api<Pod> = Api::all(client);
/// let (reader, writer) = reflector::store();
/// // before: let events = watcher(pods, watcher::Config::default()).default_backoff();
/// let events = informer::watcher(pods, watcher::Config::default());
/// let mut pods = std::pin::pin!(reflector(writer, events).applied_objects());
/// loop {
///     match pods.try_next().await {
///         Ok(Some(pod)) => println!("{} of {}", pod.name_any(), reader.state().len()),
///         Ok(None) => return Ok(()),
///         Err(error) => eprintln!("trying again: {error}"),
///     }
/// }
/// # }
/// ```
///
/// # Differences
///
/// - Backoff is built in. It grows with every failure of any request, so a server that closes its watches at once gets
///   fewer and fewer requests. An additional `default_backoff()` is harmless and unnecessary: both run at once, so the
///   longer pause counts. Pass a policy of your own to [`Watcher::delays`].
/// - A watch that breaks or ends resumes by itself and yields no error, unless eight in a row delivered nothing. kube 1
///   to 4 yield one for each watch that breaks, kube 5 for a reset.
/// - Requests follow the configuration: `any_semantic()` sends `resourceVersion=0` for pages and for streams. A relist
///   requests "not older than seen", never an older state.
/// - `streaming_lists()` falls back to pages on servers that refuse streams or let them stall.
/// - `timeout` is the watch lifetime requested from the server. By default lifetimes are drawn from 300 to 599 s, so
///   that clients do not reconnect together. A connection silent for 150 s is closed, whatever its lifetime.
/// - An object that does not decode yields one error and does not block the others; kube's watcher stops at it and
///   retries for ever. See below.
///
/// # Objects that do not decode
///
/// They exist on the server but are not delivered, so **do not treat an object missing from a reflector as deleted** if
/// your `K` may be too strict. A version that did decode stays in the reflector until the next relist leaves it out. A
/// deletion is delivered with metadata only if `K` decodes from that, else as an error as well. Of several such errors
/// in a row, or in one initial state, only the first is delivered and all are logged (each name once, at most 1024
/// names), so that programs that back off after each error do not stall. To get all objects, broken ones included, read
/// `Api<DeserializeGuard<K>>`: it always decodes, and has the metadata and the error of objects that are no `K`.
///
/// An object that is too large, nested too deep or not a JSON object is skipped and reported in this way too. Its error
/// can be downcast to [`Error`](crate::Error), whose [`skipped`](crate::Error::skipped) returns the key.
///
/// # Waiting for kube's stores
///
/// `Store::wait_until_ready` of kube-runtime 5.0 wakes only the last task that waits; the others sleep on. Wait in one
/// place and share the outcome ([`Shared`](futures::future::Shared)), as the controller in our examples does for its
/// reconcilers.
///
/// # Common behaviour
///
/// Objects are decoded whole: no field is cut except by [`Watcher::drop_path`]. A relist is `Init`, every object, and
/// `InitDone`; a relist that breaks starts again with `Init`, unless the server can resume it
/// ([`Config::resume_initial`]). `Api<PartialObjectMeta<K>>` requests metadata only. `Api<DynamicObject>` works.
/// `bookmarks: false` turns bookmarks off.
///
/// Memory: the object being received and the objects of its chunk. The stream reads only while it is polled, and sends
/// no request before the first poll.
///
/// # Errors
///
/// The stream continues after each error, and backs off by itself before the next request. `watcher::Error::WatchError`
/// is a Status from the server. Every other error is `watcher::Error::WatchFailed(kube::Error::Service(error))`, where
/// `error` can be downcast to [`Error`](crate::Error) or [`DecodeError`](crate::DecodeError). A selector that does not
/// parse yields a [`ConfigError`](crate::ConfigError), then the stream ends.
pub fn watcher<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Cluster::new(api.clone().into_client()).watcher(&api, config).stream()
}

impl Cluster {
    /// Declares a [`watcher()`] that reads through this cluster: it shares the relist budget and the
    /// verdicts on streams. `api` defines the objects to read; its client is not used.
    ///
    /// A stream holds a permit of the budget while it reads from `Init` to `InitDone`, and releases it only while it is
    /// polled: a stream that is not polled in between keeps the others of the cluster waiting.
    pub fn watcher<K: Resource>(&self, api: &Api<K>, config: watcher::Config) -> Watcher<K> {
        Watcher::new(Arc::clone(self.state()), api, config)
    }
}

/// An unstarted stream for `kube::runtime`; see [`Cluster::watcher`].
#[must_use = "nothing happens before stream"]
pub struct Watcher<K> {
    raw: raw::Builder,
    object: PhantomData<fn() -> K>,
}

impl<K: Resource> Watcher<K> {
    fn new(cluster: Arc<ClusterState>, api: &Api<K>, requested: watcher::Config) -> Self {
        let (of, namespace) = ResourceKind::at(api.resource_url(), kind_of::<K>());
        let mut raw = raw::Builder::new(cluster, of);
        let declared = &mut raw.declared;
        if let Some(namespace) = namespace {
            declared.selection.namespaces([namespace]);
        }
        declared.selection.labels(None, requested.label_selector.as_deref().unwrap_or_default());
        declared.selection.fields(None, requested.field_selector.as_deref().unwrap_or_default());
        declared.metadata_only = differences::is_metadata::<K>();
        declared.config.bookmarks = requested.bookmarks;
        declared.config.list_semantic = match requested.list_semantic {
            watcher::ListSemantic::MostRecent => ListSemantic::MostRecent,
            watcher::ListSemantic::Any => ListSemantic::Any,
        };
        // A limit of zero means no limit to the server, too.
        let page_size = requested.page_size.filter(|objects| *objects > 0);
        declared.config.initial_list = match (requested.initial_list_strategy, page_size) {
            (InitialListStrategy::StreamingList, _) => InitialList::Auto,
            (InitialListStrategy::ListWatch, Some(_)) => InitialList::Paged,
            (InitialListStrategy::ListWatch, None) => InitialList::Unpaged,
        };
        if let Some(objects) = page_size {
            declared.config.page_size = objects;
        }
        // Zero lets kube-apiserver choose the lifetime; drawing one serves that purpose.
        if let Some(seconds) = requested.timeout.filter(|seconds| *seconds > 0) {
            declared.config.watch_timeout_seconds = seconds..=seconds;
        }
        Self { raw, object: PhantomData }
    }
}

impl<K> Watcher<K> {
    /// Cuts a dotted path, such as `metadata.managedFields`, out of every object while it is received. Default: none.
    pub fn drop_path(mut self, path: impl Into<String>) -> Self {
        self.raw = self.raw.drop_path(path);
        self
    }

    /// Sets the delays after failures; [`delays`] adapts kube's policies.
    pub fn delays(mut self, delays: impl Delays + 'static) -> Self {
        self.raw = self.raw.delays(delays);
        self
    }

    /// Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`. Settings of the store
    /// have no effect here.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        self.raw = self.raw.config(change);
        self
    }

    /// Creates the stream. Sends no request before the first poll, which must be inside a tokio runtime.
    pub fn stream(self) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>
    where
        K: DeserializeOwned + Send + 'static,
    {
        events::stream(self.raw)
    }
}

impl<K> Debug for Watcher<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.raw.declared).finish()
    }
}

/// The kind of types known at compile time; empty for others, whose objects and lists carry it.
fn kind_of<K: Resource>() -> String {
    let known: &dyn Any = &();
    known.downcast_ref::<K::DynamicType>().map_or_else(String::new, |of| K::kind(of).into_owned())
}

/// Adapts a policy of `kube::runtime`, such as its `DefaultBackoff`, to [`Delays`].
pub fn delays(policy: impl Backoff + 'static) -> impl Delays + 'static {
    KubePolicy(policy)
}

struct KubePolicy<B>(B);

impl<B: Backoff> Delays for KubePolicy<B> {
    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}
