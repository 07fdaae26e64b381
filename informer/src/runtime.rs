//! Events in the vocabulary of `kube::runtime`, for programs that stand on its reflectors and controllers.
//!
//! INVARIANT: what the stream yields can be handed to kube's reflector: every `Init` is followed by all objects there
//! are, and a delete is never told while the reader gathers them.

mod events;
mod failures;

use std::{
    any::Any,
    fmt::{self, Debug},
    marker::PhantomData,
};

use futures::Stream;
use informer_core::{InitialList, ListSemantic};
use kube::{
    Api, Resource,
    runtime::watcher::{self, InitialListStrategy},
};
use serde::de::DeserializeOwned;

use crate::{cluster::Cluster, config::Config, declaration::Type, delays::Delays, raw};

/// Watches what `api` reads, as `kube::runtime::watcher` does and with its types, without its costs to the server.
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
/// # What is different
///
/// - Delays are inside. They grow while anything fails, whichever request it is, and a server that closes its watches
///   at once is asked less and less. `default_backoff()` on top is not needed and does no harm. A policy of your own
///   goes to [`Watcher::delays`].
/// - What is configured is what is asked: `any_semantic()` sends `resourceVersion=0` with pages too, and holds for
///   streams. A relist asks for "not older than what was seen", never for the past.
/// - `streaming_lists()` falls back to pages on servers that refuse streams or let them stand still.
/// - `timeout` is the lifetime the server is asked for. When it is not set, lifetimes are drawn from 300 to 599 s, so that
///   clients do not come back together. Silence of 150 s ends a connection, whatever its lifetime.
/// - An object that is no `K` is an error once, and not in the way of the others; kube's stops there and asks again for
///   ever. See below.
///
/// # Objects that do not decode
///
/// They exist and are not told, so **do not take what a reflector lacks for deleted** where your `K` may be too strict. A
/// state that did decode stays in the reflector until the next relist leaves it out. A delete is told with the metadata
/// alone where `K` decodes from that; else it is an error as well. Of several errors in a row, or in one initial state,
/// the first is told and all are logged (each name once, 1024 names): programs that back off after each error must not
/// stand still for them. To get all objects, broken ones too, read `Api<DeserializeGuard<K>>`: that never fails, and has
/// the metadata and the reason of those that are no `K`.
///
/// An object that is too large, nested too deep or no JSON object is skipped and told like one that does not decode: its
/// error can be downcast to [`Error`](crate::Error), whose [`skipped`](crate::Error::skipped) has the key.
///
/// # Waiting for kube's stores
///
/// `Store::wait_until_ready` of kube-runtime 5.0 wakes one task, the last that waited: the others sleep on. Wait in one
/// place and share the outcome ([`Shared`](futures::future::Shared)), as the controller of our examples does for its
/// reconcilers.
///
/// # What is the same
///
/// Bytes are decoded whole: nothing is cut unless [`Watcher::drop_path`] says so. A relist is `Init`, every object, and
/// `InitDone`; one that breaks starts again with `Init`, unless the server can go on where it broke
/// ([`Config::resume_initial`]). `Api<PartialObjectMeta<K>>` asks for metadata alone.
/// `Api<DynamicObject>` works. With `bookmarks: false` none are asked for.
///
/// Memory: the object being received and those of its chunk. The stream reads only while it is polled. Nothing is sent
/// before that.
///
/// # Errors
///
/// The stream goes on after each, and waits by itself before it asks again. `watcher::Error::WatchError` is what the
/// server said. Everything else is `watcher::Error::WatchFailed(kube::Error::Service(error))`, where `error` can be
/// downcast to [`Error`](crate::Error) or to [`DecodeError`](crate::DecodeError). A selector that does not parse is told
/// as [`ConfigError`](crate::ConfigError), then the stream ends.
pub fn watcher<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Cluster::new(api.clone().into_client()).watcher(&api, config).stream()
}

impl Cluster {
    /// Declares a [`watcher`](crate::watcher) that reads through this cluster: it takes its turn in the relist budget,
    /// and knows what others found out about streams. `api` says what is read; its client is not used.
    ///
    /// A stream holds its turn while it is read from `Init` to `InitDone`. Whoever stops polling one in between lets the
    /// others of the cluster wait.
    pub fn watcher<K: Resource>(&self, api: &Api<K>, config: watcher::Config) -> Watcher<K> {
        Watcher::new(self.clone(), api, config)
    }
}

/// A stream for `kube::runtime` that is not started: see [`Cluster::watcher`].
#[must_use = "nothing happens before stream"]
pub struct Watcher<K> {
    raw: raw::Builder,
    object: PhantomData<fn() -> K>,
}

impl<K: Resource> Watcher<K> {
    fn new(cluster: Cluster, api: &Api<K>, asked: watcher::Config) -> Self {
        let of = Type::at(api.resource_url(), api.namespace(), kind_of::<K>());
        let mut raw = raw::Builder::new(cluster, of);
        let declared = &mut raw.declared;
        if let Some(namespace) = api.namespace() {
            declared.namespace(namespace.to_owned());
        }
        declared.labels(asked.label_selector.as_deref().unwrap_or_default());
        declared.fields(asked.field_selector.as_deref().unwrap_or_default());
        declared.metadata_only = K::metadata_api();
        declared.config.bookmarks = asked.bookmarks;
        declared.config.list_semantic = match asked.list_semantic {
            watcher::ListSemantic::MostRecent => ListSemantic::MostRecent,
            watcher::ListSemantic::Any => ListSemantic::Any,
        };
        // To the server, too, a limit of zero is none.
        let page_size = asked.page_size.filter(|objects| *objects > 0);
        declared.config.initial_list = match (asked.initial_list_strategy, page_size) {
            (InitialListStrategy::StreamingList, _) => InitialList::Auto,
            (InitialListStrategy::ListWatch, Some(_)) => InitialList::Paged,
            (InitialListStrategy::ListWatch, None) => InitialList::Unpaged,
        };
        if let Some(objects) = page_size {
            declared.config.page_size = objects;
        }
        // Zero asks kube-apiserver for a lifetime of its own choice, which is what drawing one is for.
        if let Some(seconds) = asked.timeout.filter(|seconds| *seconds > 0) {
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

    /// Waits after failures as this policy says: [`delays::from_kube`](crate::delays::from_kube) takes those of kube.
    pub fn delays(mut self, delays: impl Delays + 'static) -> Self {
        self.raw = self.raw.delays(delays);
        self
    }

    /// Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`. Those of the store mean
    /// nothing here.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        self.raw = self.raw.config(change);
        self
    }

    /// The stream. Sends nothing before it is polled, inside a tokio runtime.
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

/// The kind of types known at compile time. Others say it in their objects and lists.
fn kind_of<K: Resource>() -> String {
    let known: &dyn Any = &();
    known.downcast_ref::<K::DynamicType>().map_or_else(String::new, |of| K::kind(of).into_owned())
}
