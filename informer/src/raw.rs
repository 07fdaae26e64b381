//! Changes as bytes, in order, without a store: what an informer's store takes, for whoever keeps state otherwise.
//!
//! An [`Events`] behaves as an informer does: it resumes, falls back, waits and relists by itself. It is driven by
//! whoever polls it. One that is not polled reads nothing from its socket, and TCP slows the server down.
//!
//! ```no_run
//! use futures::StreamExt;
//! use informer::{Cluster, raw::Event};
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::core::ApiResource;
//!
//! # async fn doc(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
//! let mut pods = cluster.raw(&ApiResource::erase::<Pod>(&())).fields("spec.nodeName=node-1").start()?;
//! while let Some(event) = pods.next().await {
//!     match event {
//!         Ok(Event::InitApply(pod) | Event::Apply(pod)) => println!("{} is {} bytes", pod.key(), pod.json().len()),
//!         Ok(Event::Delete(pod)) => println!("{} is gone", pod.key()),
//!         Ok(Event::Init | Event::InitDone(_) | Event::InitAbandoned | Event::Bookmark(_)) => {}
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
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use informer_core::{
    InitialList, ListSemantic, ResourceVersion, Time, object::Meta, reflector::Observed, store::StoreError,
};
use tokio::sync::watch;

use crate::{
    cluster::Cluster,
    config::Config,
    declaration::{Declaration, Type},
    delays::Delays,
    driver::{Driver, Evidence, Sink, SinkOrder},
    error::{ConfigError, Error},
    progress::Progress,
};

/// What becomes of a resource type, in the order in which the server tells it. The vocabulary of kube's
/// `watcher::Event`, which tells neither bookmarks nor that initial state broke off.
#[derive(Clone, Debug)]
pub enum Event {
    /// Initial state begins.
    Init,
    /// An object of initial state. One is told twice at most each time its stream broke and went on; both times it is
    /// the same. See [`Config::resume_initial`].
    InitApply(Object),
    /// Initial state is complete at this version: what was not in it does not exist.
    InitDone(ResourceVersion),
    /// Initial state broke off: what came since [`Init`](Self::Init) counts for nothing. Another one follows, or changes
    /// of the state before it.
    InitAbandoned,
    /// An object was added or changed.
    Apply(Object),
    /// An object is gone, in its last state. Between [`Init`](Self::Init) and [`InitDone`](Self::InitDone): from the
    /// initial state.
    Delete(Object),
    /// Nothing at or below this version will follow: the place to [`resume_from`](Builder::resume_from) later.
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

    /// The uid; empty when the server sent none.
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

/// Never the bytes: objects may be Secrets.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key, self.resource_version)
    }
}

/// What a raw stream watches, and how. Nothing is sent before the stream is polled.
#[must_use = "nothing happens before start"]
pub struct Builder {
    pub(crate) declared: Declaration,
    from: Option<ResourceVersion>,
}

impl Builder {
    pub(crate) fn new(cluster: Cluster, of: Type) -> Self {
        let config = Config { drop_paths: Vec::new(), ..Config::default() };
        Self { declared: Declaration::new(cluster, of, config), from: None }
    }

    /// Only the objects of one namespace. Default: all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.declared.namespace(namespace.into());
        self
    }

    /// Only objects with these labels: `app in (web,api),!legacy`.
    pub fn labels(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.labels(selector.as_ref());
        self
    }

    /// Only objects with these fields: `spec.nodeName=node-1`. The server decides which fields it knows.
    pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
        self.declared.fields(selector.as_ref());
        self
    }

    /// How fresh the first read has to be; see [`Config::list_semantic`].
    pub fn list_semantic(mut self, semantic: ListSemantic) -> Self {
        self.declared.config.list_semantic = semantic;
        self
    }

    /// How initial state is fetched; see [`Config::initial_list`].
    pub const fn initial_list(mut self, initial: InitialList) -> Self {
        self.declared.config.initial_list = initial;
        self
    }

    /// Objects a page; see [`Config::page_size`].
    pub const fn page_size(mut self, objects: u32) -> Self {
        self.declared.config.page_size = objects;
        self
    }

    /// Cuts a dotted path, such as `metadata.managedFields`, out of every object while it is received. Default: none.
    pub fn drop_path(mut self, path: impl Into<String>) -> Self {
        self.declared.config.drop_paths.push(path.into());
        self
    }

    /// Goes on where a stream of initial state broke; see [`Config::resume_initial`].
    pub const fn resume_initial(mut self, resumes: bool) -> Self {
        self.declared.config.resume_initial = resumes;
        self
    }

    /// Starts with the changes after `version` instead of initial state. The caller vouches that it is a position of
    /// this server's history, of the same selectors, whose state it still holds. When it is no longer there, initial
    /// state follows as after any 410.
    pub fn resume_from(mut self, version: ResourceVersion) -> Self {
        self.from = Some(version);
        self
    }

    /// Waits after failures as `delays` says; see [`delays`](crate::delays).
    pub fn delays(mut self, delays: impl Delays + 'static) -> Self {
        self.declared.delays = Some(Box::new(delays));
        self
    }

    /// Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`. Those of the store mean
    /// nothing here.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.declared.config);
        self
    }

    /// The stream. Must be called inside a tokio runtime; sends nothing before it is polled.
    ///
    /// # Errors
    /// Which setting is wrong. Nothing the server says is an error here.
    pub fn start(self) -> Result<Events, ConfigError> {
        let setup = self.declared.into_setup()?;
        let (sender, progress) = watch::channel(Progress::new());
        let driver = Driver::new(setup, Queue::default(), sender.into(), self.from);
        let events = stream::unfold(driver, |mut driver| async move {
            loop {
                if let Some(event) = driver.sink().0.pop_front() {
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

/// A stream of [`Event`]s that repairs itself: an `Err` tells what went wrong, and polling on tries again, after a delay
/// that grows. It ends only when a state asked for with `Exact` is no longer there.
///
/// An object that is too large, too deep or no JSON object comes as an `Err` with [`Error::skipped`] in its place, and the
/// answer goes on behind it. What the reader has of that object is stale then. The deletion of one is told as
/// [`Event::Delete`], with the object's names alone.
///
/// Memory: the object being received, and the objects of the last chunk received. While initial state is read, the
/// stream holds a turn of the cluster's relist budget; one that is not polled then makes others wait.
#[must_use = "nothing is asked unless the stream is polled"]
pub struct Events {
    events: BoxStream<'static, Result<Event, Error>>,
    progress: watch::Receiver<Progress>,
}

impl Events {
    /// The request in flight, else the last one, as it goes on the wire; see
    /// [`Informer::explain`](crate::Informer::explain).
    #[must_use]
    pub fn explain(&self) -> String {
        self.progress.borrow().explain()
    }

    /// Body bytes of accepted answers, as received so far.
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

/// What the last turn brought. Bounded: a turn reads one chunk.
#[derive(Default)]
struct Queue(VecDeque<Result<Event, Error>>);

impl Sink for Queue {
    fn take(&mut self, _now: Time, order: SinkOrder<'_>) -> Result<(), StoreError> {
        self.0.push_back(Ok(match order {
            SinkOrder::Init { .. } => Event::Init,
            SinkOrder::InitApply(json, meta) => Event::InitApply(Object::new(json, meta)),
            SinkOrder::InitDone(position) => Event::InitDone(position),
            SinkOrder::Apply(json, meta) => Event::Apply(Object::new(json, meta)),
            SinkOrder::Delete(json, meta) => Event::Delete(Object::new(json, meta)),
            SinkOrder::Skip(error, _) => {
                self.failed(error);
                return Ok(());
            }
            SinkOrder::Bookmark(position) => Event::Bookmark(position),
            SinkOrder::Abandon => Event::InitAbandoned,
            // Whoever starts from a version has its state.
            SinkOrder::Restored => return Ok(()),
        }));
        Ok(())
    }

    fn failed(&mut self, error: &Error) {
        self.0.push_back(Err(error.clone()));
    }

    fn flush(&mut self) {}

    /// Nothing is kept to be asked about. Where the position comes from, its history is taken to be the same; at another
    /// endpoint, initial state is not older than it.
    fn evidence(&self, _skip: usize, moved: bool) -> Evidence {
        if moved { Evidence::Nothing } else { Evidence::Word }
    }

    /// Nothing is kept that could tell.
    fn is_news(&self, _event: &Observed<'_>) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn handle_timeout(&mut self, _now: Time) {}
}
