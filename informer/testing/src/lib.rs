//! An in-memory API server, for tests of programs that read Kubernetes. The crate `informer` re-exports it as
//! `informer::testing`, with the feature `testing`.
//!
//! INVARIANT: no sockets of its own, no threads, and only tokio's clock: under paused time hours pass in milliseconds. INVARIANT:
//! without faults it follows the list/watch protocol; each fault is enabled by one method, named after it.
//!
//! [`FakeApiServer`] holds objects, their resourceVersions and the whole history of both. It answers LIST, GET and
//! WATCH like kube-apiserver (semantics of resourceVersion, pages and their tokens, initial state as a stream,
//! bookmarks, label and field selectors, errors as `Status`), and with the feature `writes` writes, by the rules of
//! cache-server. Its methods inject faults. Any client of kube can read from it:
//!
//! ```
//! use informer_testing::FakeApiServer;
//! use k8s_openapi::api::core::v1::Node;
//! use kube::{Api, api::ListParams};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = FakeApiServer::new().at(41);
//! server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}));
//! let nodes: Api<Node> = Api::all(server.client());
//! assert_eq!(nodes.list(&ListParams::default()).await?.items.len(), 1);
//!
//! server.fail_next(1, 403);
//! assert!(nodes.list(&ListParams::default()).await.is_err());
//! assert_eq!(server.requests().len(), 2);
//! # Ok(())
//! # }
//! ```

mod body;
mod call;
mod connection;
mod faults;
mod filter;
mod form;
mod history;
mod log;
mod marking;
mod read;
#[cfg(feature = "writes")]
mod rules;
mod types;
mod watch;
#[cfg(feature = "writes")]
mod write;

use std::{
    error::Error as StdError,
    fmt,
    hash::RandomState,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Limited};
use informer_serving::{
    marks,
    status::{Status, StatusExt as _},
};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::watch as channel,
    time::{Instant, sleep_until},
};
use tower::Service;

pub use self::{
    body::Body,
    log::{LoggedRequest, RequestKind},
};
use self::{call::FakeCall, faults::Faults, history::History, log::RequestLog, types::FakeType};

/// A Kubernetes API server in memory. Cheap to clone; clones are the same server. See the [crate root](crate) for an
/// example.
///
/// Methods that change it return it, so that a test can set it up in one expression and continue with the same methods.
/// They take effect at once, for new requests and for open watches. Cost: keeps every version of every object, and the
/// text of every request.
///
/// Responses take no time. Under paused time, a program that sends requests without a pause stops the clock: time
/// passes only while every task waits. kube's own `watcher` does so if its watches are closed at once.
///
/// With the feature `writes`, clients create, update, patch, apply and delete: with conflicts of field managers,
/// strategic merges, `generation`, the subresource `status`, dry runs, finalizers and collections. Once the
/// CustomResourceDefinition of a type was [`put`](Self::put), the type has its rules; without one, a type has a status
/// and any fields. Without the feature, writes over HTTP get 501. [`put`](Self::put) and [`delete`](Self::delete) obey
/// no rules.
///
/// Differences from kube-apiserver: no admission, defaulting, or validation beyond metadata and the JSON types of
/// built-in fields; no tables, discovery, protobuf or indented bodies, `scale`, or warnings in responses. A delete has
/// no cascade, and waits for no kubelet. Unknown paths always return a `Status`, and namespaces need not exist. Only
/// applies own fields: one that changes another client's field meets no conflict. Definitions prune and check nothing,
/// and are never `Established`. Writes are dated from 2026-01-01.
#[derive(Clone)]
pub struct FakeApiServer {
    world: Arc<World>,
    own: Arc<ReplicaState>,
}

/// State shared by replicas.
struct World {
    history: Mutex<History>,
    /// Notified of every write and every new fault.
    moved: channel::Sender<()>,
    /// Time at which the clock of writes shows [`history::CREATED`].
    #[cfg(feature = "writes")]
    began: Instant,
}

/// State of a single replica.
struct ReplicaState {
    faults: Mutex<Faults>,
    log: RequestLog,
    /// Key of this server's marks, so that it rejects other servers' marks.
    marks_key: RandomState,
}

/// Time that a read waits for a position in the future, as kube-apiserver does.
const FRESH_WAIT: Duration = Duration::from_secs(3);

/// Largest request body, in bytes.
const REQUEST_BODY_BYTES_MAX: usize = 3 << 20;

impl FakeApiServer {
    /// Creates a server without objects, at resourceVersion 1. It serves the common built-in types. Other types are
    /// served from their first object or [`serve`](Self::serve) on; before that they are a 404, like a type without a
    /// definition.
    #[must_use]
    pub fn new() -> Self {
        let (moved, _) = channel::channel(());
        let world = World {
            history: Mutex::new(History::new()),
            moved,
            #[cfg(feature = "writes")]
            began: Instant::now(),
        };
        Self { world: Arc::new(world), own: Arc::new(ReplicaState::new()) }
    }

    /// Creates another server of the same history (same objects, uids and resourceVersions), like one of several API
    /// servers of a cluster, or a cache in front of one. Its faults and its log are separate.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self { world: Arc::clone(&self.world), own: Arc::new(ReplicaState::new()) }
    }

    /// Creates a client of this server, for `informer::Cluster::new` and for `kube::Api` (feature `kube-5`).
    ///
    /// The server itself is a service: `kube::Client::new(server.clone(), "default")` is a client of any kube.
    ///
    /// # Panics
    /// Outside a tokio runtime, like every kube client.
    #[cfg(feature = "kube-5")]
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Answers one request, for a test with its own listener.
    ///
    /// # Errors
    /// No response, because the server [refuses connections](Self::refuse_connections) or the request's body broke off.
    pub async fn respond<B>(&self, request: http::Request<B>) -> io::Result<http::Response<Body>>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let call = FakeCall::new(self, &parts);
        self.own.log.add(call.kind(), &parts);
        let (unreachable, failure) = {
            let mut faults = self.own.faults.lock();
            if faults.unreachable { (true, None) } else { (false, faults.fails()) }
        };
        if unreachable {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the test refuses connections"));
        }
        let answer = match failure {
            Some(status) => Err(status),
            None => {
                let body = Limited::new(body, REQUEST_BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
                call.answer(self, &body.to_bytes()).await
            }
        };
        Ok(self.response(answer))
    }

    /// Moves to this resourceVersion without a write: the next write gets the one after it.
    ///
    /// # Panics
    /// If it is lower than the current one; use [`restore`](Self::restore) for that.
    pub fn at(&self, resource_version: u64) -> Self {
        self.write(|history| history.move_to(resource_version));
        self.clone()
    }

    /// The resourceVersion of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.history().position()
    }

    /// Serves the type `K`, even without objects (feature `kube-5`).
    #[cfg(feature = "kube-5")]
    pub fn serve<K>(&self) -> Self
    where
        K: kube::Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        use std::any::TypeId;

        let is_cluster = TypeId::of::<K::Scope>() == TypeId::of::<kube::core::ClusterResourceScope>();
        self.serve_type(&K::api_version(&()), &K::kind(&()), &K::plural(&()), Some(!is_cluster))
    }

    /// Like [`serve`](Self::serve), for a type known at run time. Also registers a plural that cannot be guessed.
    #[cfg(feature = "kube-5")]
    pub fn serve_resource(&self, resource: &kube::core::ApiResource) -> Self {
        self.serve_type(&resource.api_version, &resource.kind, &resource.plural, None)
    }

    /// Serves a type, even without objects: `apps/v1`, `Deployment`, `deployments`. Serves both scopes if `namespaced` is
    /// unknown.
    pub fn serve_type(&self, api_version: &str, kind: &str, plural: &str, namespaced: Option<bool>) -> Self {
        self.write(|history| drop(history.serve(FakeType::new(api_version, plural, kind, namespaced))));
        self.clone()
    }

    /// Creates or replaces an object: a typed one, or JSON with `apiVersion`, `kind` and `metadata.name`.
    ///
    /// The object keeps its uid and creation time, gets missing ones, and always gets the next resourceVersion, unless
    /// the write changes nothing. The default namespace of a namespaced type is `default`.
    ///
    /// # Panics
    /// If `object` is not a Kubernetes object.
    pub fn put(&self, object: impl Serialize) -> Self {
        let object = json(object);
        self.write(|history| {
            let ty = history.type_of(&object);
            history.put(&ty, object);
        });
        self.clone()
    }

    /// Deletes an object, if it exists. Reads only its kind, namespace and name. An object with finalizers is marked,
    /// as in Kubernetes, and removed by the write that takes its last finalizer.
    ///
    /// # Panics
    /// If `object` is not a Kubernetes object.
    pub fn delete(&self, object: impl Serialize) -> Self {
        let mut object = json(object);
        self.write(|history| {
            let ty = history.type_of(&object);
            let (namespace, name) = history::place(&ty, &mut object);
            history.delete(&ty, &ty.key(&namespace, &name));
        });
        self.clone()
    }

    /// Returns to the state at an earlier resourceVersion and forgets later changes, like a restore from a backup: uids
    /// stay, and resourceVersions are reused. Closes open watches.
    pub fn restore(&self, resource_version: u64) -> Self {
        self.write(|history| history.restore(resource_version));
        self.clone()
    }

    /// Becomes another cluster with equal objects and resourceVersions: every uid changes. Closes open watches.
    pub fn replace_history(&self) -> Self {
        self.write(History::replace_uids);
        self.clone()
    }

    /// Refuses streams of initial state with this code from now on. Servers without watch-list use 422.
    ///
    /// # Panics
    /// If `code` is not an error code.
    pub fn refuse_stream(&self, code: u16) -> Self {
        assert_error(code);
        self.fault(|faults| faults.refused_streams = Some(code))
    }

    /// Refuses every watch with 403 from now on.
    pub fn forbid_watch(&self) -> Self {
        self.fault(|faults| faults.watches_forbidden = true)
    }

    /// Ignores shard selectors from now on, as servers without `ShardedListAndWatch` do.
    pub fn ignore_shards(&self) -> Self {
        self.fault(|faults| faults.shards_unknown = true)
    }

    /// Treats positions at or below this one as too old from now on, for watches, exact lists and pages: 410.
    /// `u64::MAX` makes every position too old to resume from.
    pub fn expire_at(&self, resource_version: u64) -> Self {
        self.fault(|faults| faults.expired = resource_version)
    }

    /// Treats every page token as too old from now on: 410 with a token that continues at the latest state.
    pub fn page_tokens_expire(&self) -> Self {
        self.fault(|faults| faults.tokens_expire = true)
    }

    /// Fails the next `count` requests of any kind with this code.
    ///
    /// # Panics
    /// If `code` is not an error code.
    pub fn fail_next(&self, count: usize, code: u16) -> Self {
        assert_error(code);
        self.fault(|faults| faults.failing = (count, code))
    }

    /// Adds `Retry-After`, in whole seconds, to each error from now on.
    pub fn retry_after(&self, time: Duration) -> Self {
        self.fault(|faults| faults.retry_after = Some(time))
    }

    /// Refuses connections from now on. Open watches stay open.
    pub fn refuse_connections(&self) -> Self {
        self.fault(|faults| faults.unreachable = true)
    }

    /// Closes the open watches cleanly, once.
    pub fn close_watches(&self) -> Self {
        self.fault(|faults| faults.closed += 1)
    }

    /// Breaks the connections of the open watches, once.
    pub fn break_watches(&self) -> Self {
        self.fault(|faults| faults.broken += 1)
    }

    /// Closes every future watch cleanly this long after it was accepted, as load balancers do. Zero closes it at once.
    pub fn close_watches_after(&self, time: Duration) -> Self {
        self.fault(|faults| faults.watch_lifetime = Some(time))
    }

    /// Accepts streams of initial state from now on, but sends no data on them.
    pub fn stall_streams(&self) -> Self {
        self.fault(|faults| faults.streams_stall = true)
    }

    /// Withholds the bookmark that ends initial state from now on; objects and changes are still sent.
    pub fn withhold_end_bookmark(&self) -> Self {
        self.fault(|faults| faults.end_bookmark_withheld = true)
    }

    /// Silences the open watches: they neither send nor end, as behind a proxy that lost them. New requests are
    /// answered.
    pub fn silence(&self) -> Self {
        self.fault(|faults| faults.silenced += 1)
    }

    /// Breaks the connection of the next accepted response after this many bytes of its body.
    pub fn break_next_body(&self, after_bytes: usize) -> Self {
        self.fault(|faults| faults.break_next_body = Some(after_bytes))
    }

    /// Breaks the connection of every stream of initial state from now on, after this many of its objects.
    pub fn break_streams_after(&self, objects: usize) -> Self {
        self.fault(|faults| faults.streams_break_after = Some(objects))
    }

    /// Sends a mark after every `every_objects` objects of a stream of initial state, for clients that request marks,
    /// and resumes a broken stream behind a mark. This is not a fault, but a feature of cache-server that
    /// kube-apiserver lacks. The protocol is in the repository's `docs/resuming.md`.
    ///
    /// # Panics
    /// If `every_objects` is zero.
    pub fn mark_initial_events(&self, every_objects: usize) -> Self {
        assert!(every_objects > 0, "marks without objects between them");
        self.fault(|faults| faults.marks_every = Some(every_objects))
    }

    /// Invalidates the marks sent so far, as a restart does: streams that try to resume start anew.
    pub fn forget_marks(&self) -> Self {
        self.fault(|faults| faults.marks_forgotten += 1)
    }

    /// Sets the time between bookmarks of future watches. Default 60 s, as kube-apiserver, which sends none unless
    /// something was written since the watch began. `Duration::MAX` turns bookmarks off.
    ///
    /// # Panics
    /// If `time` is zero.
    pub fn bookmarks_every(&self, time: Duration) -> Self {
        assert!(!time.is_zero(), "bookmarks without a pause");
        self.fault(|faults| faults.bookmarks_every = time)
    }

    /// Hides later writes from now on: a server that lags behind its [`replica`](Self::replica)s, or a state at rest.
    pub fn freeze(&self) -> Self {
        let position = self.position();
        self.fault(|faults| faults.horizon = Some(position))
    }

    /// Ends every fault. Closed, broken and silenced watches stay so.
    pub fn recover(&self) -> Self {
        self.fault(|faults| *faults = faults.recovered())
    }

    /// Every request so far, oldest first, including unanswered ones.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.own.log.all()
    }

    /// Number of requests of this kind so far.
    #[must_use]
    pub fn count(&self, kind: RequestKind) -> usize {
        self.own.log.all().iter().filter(|seen| seen.kind == kind).count()
    }

    /// Number of LISTs and streams of initial state so far. It stays constant while no client relists.
    #[must_use]
    pub fn initial_reads(&self) -> usize {
        self.count(RequestKind::List) + self.count(RequestKind::Stream)
    }

    fn fault(&self, change: impl FnOnce(&mut Faults)) -> Self {
        change(&mut self.own.faults.lock());
        self.world.moved.send_replace(());
        self.clone()
    }

    fn write<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        let outcome = change(&mut self.world.history.lock());
        self.world.moved.send_replace(());
        outcome
    }

    /// Locks the history. Never hold the guard across an await, or while taking a second one.
    fn history(&self) -> MutexGuard<'_, History> {
        self.world.history.lock()
    }

    fn faults(&self) -> Faults {
        self.own.faults.lock().clone()
    }

    fn moved(&self) -> channel::Receiver<()> {
        self.world.moved.subscribe()
    }

    /// The newest position visible to this server.
    fn position(&self) -> u64 {
        let horizon = self.faults().horizon.unwrap_or(u64::MAX);
        self.history().position().min(horizon)
    }

    fn is_expired(&self, position: u64) -> bool {
        position <= self.faults().expired
    }

    /// Waits for a position as long as kube-apiserver does.
    async fn reach(&self, requested: u64) -> Result<(), Status> {
        let deadline = Instant::now() + FRESH_WAIT;
        let mut moved = self.moved();
        loop {
            moved.borrow_and_update();
            let current = self.position();
            if requested <= current {
                return Ok(());
            }
            tokio::select! {
                _ = moved.changed() => {}
                () = sleep_until(deadline) => return Err(Status::too_large_resource_version(requested, current)),
            }
        }
    }

    fn response(&self, answer: Result<(u16, Body), Status>) -> http::Response<Body> {
        let mut faults = self.own.faults.lock();
        let (code, body, retry_after) = match answer {
            Ok((code, body)) => (code, body.breaking_after(faults.break_next_body.take()), None),
            Err(status) => {
                let wait = faults.retry_after.or_else(|| status.retry_after());
                (status.http_code(), Body::whole(status.to_json()), wait)
            }
        };
        let marks = body.marks;
        let mut response = http::Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(marks) = marks {
            headers.insert(marks::HEADER, HeaderValue::from_static(marks.as_str()));
        }
        if let Some(wait) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

/// Answers requests as [`respond`](FakeApiServer::respond) does.
impl<B> Service<http::Request<B>> for FakeApiServer
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<http::Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let server = self.clone();
        async move { server.respond(request).await }.boxed()
    }
}

impl Default for FakeApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FakeApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeApiServer").field("resource_version", &self.resource_version()).finish_non_exhaustive()
    }
}

impl ReplicaState {
    fn new() -> Self {
        Self { faults: Mutex::new(Faults::default()), log: RequestLog::new(), marks_key: RandomState::new() }
    }
}

fn assert_error(code: u16) {
    assert!((400..600).contains(&code), "{code} is no error: those are 400 to 599");
}

fn json(object: impl Serialize) -> Value {
    serde_json::to_value(object).expect("an object that can be written as JSON")
}

/// The README's program runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct TestingReadme;
