//! Raw stream: changes as bytes, in order, without a store, for programs that keep state in their own way.
//!
//! An [`Events`] stream resumes, falls back, backs off and relists by itself, like an informer. It has no task: polling
//! drives it. An unpolled stream does not read from its connection, so flow control slows the server down.
//!
//! ```no_run
//! use futures::StreamExt;
//! use informer::{Cluster, ResourceKind, raw::Event};
//!
//! # async fn doc(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
//! let mut pods = cluster.raw(ResourceKind::new("v1", "Pod", "pods")).fields("spec.nodeName=node-1").start()?;
//! while let Some(event) = pods.next().await {
//!     match event {
//!         Ok(Event::InitApply(pod) | Event::Apply(pod)) => println!("{} is {} bytes", pod.key(), pod.json().len()),
//!         Ok(Event::Delete(pod)) => println!("{} is gone", pod.key()),
//!         Ok(_) => {}                                      // where initial state begins and ends, and bookmarks
//!         Err(error) => eprintln!("trying again: {error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use informer_core::{
    ResourceVersion, Time,
    object::Meta,
    proof,
    reflector::ObservedObject,
    session::{Evidence, Order, Sink},
    store::{Store, StoreConfig, StoreError},
};
use tokio::sync::watch;

use crate::{
    cluster::{ClusterOf, ClusterState},
    config::Config,
    declaration::{Declaration, declaration_setters},
    driver::{Driver, DriverSink},
    error::{ConfigError, Error},
    progress::Progress,
    resource_kind::ResourceKind,
};

/// An event of a resource type, in the order the server sent it. Follows the vocabulary of kube's `watcher::Event`,
/// which has neither bookmarks nor aborted initial states. Variants added later will change no state: ignore them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Initial state begins.
    Init,
    /// An object of initial state. May be delivered once more, unchanged, each time its stream broke and resumed. See
    /// [`Config::resume_initial`].
    InitApply(Object),
    /// Initial state is complete at this version: objects not in it do not exist.
    InitDone(ResourceVersion),
    /// Initial state broke off: discard the objects since [`Init`](Self::Init). Either another `Init` follows, or
    /// changes of the state before it.
    InitAbandoned,
    /// An object was added or changed.
    Apply(Object),
    /// An object was deleted, with its last state. Between [`Init`](Self::Init) and [`InitDone`](Self::InitDone): from
    /// the initial state.
    Delete(Object),
    /// No event at or below this version follows: a position for a later [`resume_from`](Builder::resume_from). The
    /// first one of such a stream has its version, once a server has accepted it.
    Bookmark(ResourceVersion),
}

/// One version of one object, undecoded. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    key: String,
    uid: String,
    resource_version: String,
    json: Bytes,
}

impl Object {
    fn new(json: &[u8], meta: &Meta<'_>) -> Self {
        Self {
            key: meta.key(),
            uid: meta.uid.clone().into_owned(),
            resource_version: meta.resource_version.clone().into_owned(),
            json: Bytes::copy_from_slice(json),
        }
    }

    /// `namespace/name`, or `name` for cluster-scoped types.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The uid; empty if the server sent none.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The version as the server sent it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// The object as JSON, with kind and apiVersion and without the dropped paths.
    #[must_use]
    pub const fn json(&self) -> &Bytes {
        &self.json
    }
}

/// Never shows the bytes: objects may be Secrets.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key, self.resource_version)
    }
}

/// Declaration of a raw stream: what it watches, and how. Sends no request before the stream is polled.
#[must_use = "nothing happens before start"]
pub struct Builder {
    pub(crate) declared: Declaration,
    from: Option<ResourceVersion>,
    witnesses: Option<Witnesses>,
}

/// Returns an object of the reader's state.
type Witnesses = Arc<dyn Fn(usize) -> Option<Bytes> + Send + Sync>;

impl<V> ClusterOf<V> {
    /// Declares a raw stream: changes as bytes, in order, without a store. See [`raw`](crate::raw).
    pub fn raw(&self, resource: impl Into<ResourceKind>) -> Builder {
        Builder::new(Arc::clone(self.state()), resource.into())
    }
}

impl Builder {
    pub(crate) fn new(cluster: Arc<ClusterState>, of: ResourceKind) -> Self {
        let config = Config { drop_paths: Vec::new(), ..Config::default() };
        Self { declared: Declaration::new(cluster, of, config), from: None, witnesses: None }
    }

    declaration_setters! {
        drop_path: "Cuts a dotted path, such as `metadata.managedFields`, out of every object while it is received. \
            Default: none.",
        config: "Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`. Settings of \
            the store have no effect here.",
    }

    /// Starts with the changes after `version` instead of initial state. The caller vouches that it still holds the
    /// state at `version`, of this server's history and these selectors. If the version has left the history window,
    /// initial state follows, as after any 410.
    pub fn resume_from(mut self, version: ResourceVersion) -> Self {
        self.from = Some(version);
        self
    }

    /// Lets the stream prove that a server has the reader's history, as an informer does with its store: before it resumes
    /// at another endpoint, and before [`resume_from`](Self::resume_from). `witness` returns the JSON of a stored object,
    /// the newest first, after so many others proved nothing; `None` if none is left, and then initial state follows.
    /// Called on the task that polls the stream.
    pub fn witnesses(mut self, witness: impl Fn(usize) -> Option<Bytes> + Send + Sync + 'static) -> Self {
        self.witnesses = Some(Arc::new(witness));
        self
    }

    /// Creates the stream. Must be called inside a tokio runtime; sends no request before the first poll.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by the stream.
    pub fn start(mut self) -> Result<Events, ConfigError> {
        let selection = self.declared.check()?;
        let delays = self.declared.delays.take();
        let setup = self.declared.setup(&selection, delays);
        let (sender, progress) = watch::channel(Progress::new());
        let queue = EventQueue { events: VecDeque::new(), witnesses: self.witnesses, from: self.from.clone() };
        let driver = Driver::new(setup, queue, sender.into(), self.from);
        let events = stream::unfold(driver, |mut driver| async move {
            loop {
                if let Some(event) = driver.sink().events.pop_front() {
                    return Some((event, driver));
                }
                if driver.is_over() {
                    return None;
                }
                driver.turn().await;
            }
        });
        Ok(Events { events: events.fuse().boxed(), progress })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("declared", &self.declared).field("from", &self.from).finish()
    }
}

/// A stream of [`Event`]s that recovers by itself: an `Err` reports a failure, and further polling retries with
/// backoff. It ends only when a state requested with `Exact` has expired.
///
/// An object that is too large, nested too deep or not a JSON object yields an `Err` with [`Error::skipped`] in its
/// place, and the response continues after it. The reader's version of that object is then stale. The deletion of a
/// skipped object is an [`Event::Delete`] with the object's names only.
///
/// Memory: the object being received, and the objects of the last chunk. While it reads initial state, the stream holds
/// a permit of the cluster's relist budget, and releases it only while it is polled: an unpolled stream keeps other
/// informers waiting.
#[must_use = "nothing is asked unless the stream is polled"]
pub struct Events {
    events: BoxStream<'static, Result<Event, Error>>,
    progress: watch::Receiver<Progress>,
}

impl Events {
    /// The request in flight, else the last one, as on the wire; see [`Informer::explain`](crate::Informer::explain).
    #[must_use]
    pub fn explain(&self) -> String {
        self.progress.borrow().explain()
    }

    /// Time since the server last confirmed what the stream has delivered, by an event, a bookmark or an accepted watch.
    /// `None` before the first complete initial state.
    #[must_use]
    pub fn age(&self) -> Option<std::time::Duration> {
        self.progress.borrow().age()
    }

    /// Index of the endpoint in use, in the cluster's order of preference.
    #[must_use]
    pub fn endpoint(&self) -> usize {
        self.progress.borrow().endpoint
    }

    /// Bytes received in the bodies of accepted responses.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.progress.borrow().stats.bytes_received
    }
}

impl Stream for Events {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("request", &self.explain()).finish_non_exhaustive()
    }
}

/// Events of the last turn. Bounded: a turn reads one chunk.
struct EventQueue {
    events: VecDeque<Result<Event, Error>>,
    witnesses: Option<Witnesses>,
    /// Position that the reader started from, until a server has accepted it.
    from: Option<ResourceVersion>,
}

impl EventQueue {
    /// Returns the reader's evidence, as an entry of a store.
    fn witness(&self, skip: usize) -> Option<Evidence> {
        let json = self.witnesses.as_ref()?(skip)?;
        let meta = Meta::read(&json).ok()?;
        let mut store = Store::new(StoreConfig::default());
        store.restore([(meta, &json[..])], None);
        proof::witness(&store.snapshot(), 0).map(Evidence::Witness)
    }
}

impl Sink for EventQueue {
    fn take(&mut self, _now: Time, order: Order<'_>) -> Result<(), StoreError> {
        self.events.push_back(Ok(match order {
            Order::Init { .. } => Event::Init,
            Order::InitApply(json, meta) => Event::InitApply(Object::new(json, meta)),
            Order::InitDone(position) => Event::InitDone(position),
            Order::Apply(json, meta) => Event::Apply(Object::new(json, meta)),
            Order::Delete(json, meta) => Event::Delete(Object::new(json, meta)),
            Order::Bookmark(position) => Event::Bookmark(position),
            Order::Abandon => Event::InitAbandoned,
            // A reader that starts from a version already has its state.
            Order::Restored => match self.from.take() {
                Some(position) => Event::Bookmark(position),
                None => return Ok(()),
            },
            // A skipped object arrives as an error.
            Order::Skip(..) => return Ok(()),
        }));
        Ok(())
    }

    /// Without witnesses, trusts the caller's position at its own endpoint; at another endpoint, a new initial state not
    /// older than the position replaces it.
    fn evidence(&self, skip: usize, moved: bool) -> Evidence {
        match (&self.witnesses, moved) {
            (Some(_), _) => self.witness(skip).unwrap_or(Evidence::Nothing),
            (None, true) => Evidence::Nothing,
            (None, false) => Evidence::Word,
        }
    }

    /// Keeps no state to compare with, so every event counts as news.
    fn is_news(&self, _event: &ObservedObject<'_>) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn handle_timeout(&mut self, _now: Time) {}
}

impl DriverSink for EventQueue {
    fn failed(&mut self, error: &Error) {
        self.events.push_back(Err(error.clone()));
    }

    fn flush(&mut self) {}
}
