//! An API server in memory, for tests of programs that read Kubernetes.
//!
//! INVARIANT: no sockets, no threads, and no clock but tokio's: under paused time hours pass in milliseconds. INVARIANT:
//! without faults it keeps the list/watch protocol; faults are added one by one, and each is named by its method.
//!
//! [`FakeApiServer`] holds objects, their resourceVersions and the whole history of both. It answers LIST, GET and WATCH
//! as kube-apiserver does (semantics of resourceVersion, pages and their tokens, initial state as a stream, bookmarks,
//! label and field selectors, errors as `Status`) and takes simple writes. Then it can be told to misbehave.
//!
//! ```
//! use std::time::Duration;
//! use informer::{Cluster, Informer, testing::FakeApiServer};
//! use k8s_openapi::api::core::v1::Node;
//! use serde_json::json;
//!
//! /// What is tested: how many nodes take no pods.
//! fn cordoned(nodes: &Informer<Node>) -> usize {
//!     let is_cordoned = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
//!     let nodes = nodes.store().snapshot();
//!     nodes.iter().filter_map(|node| node.decode().ok()).filter(|node| is_cordoned(node)).count()
//! }
//!
//! fn node(name: &str, unschedulable: bool) -> serde_json::Value {
//!     let spec = json!({"unschedulable": unschedulable});
//!     json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
//! }
//!
//! // In a test: #[tokio::test(start_paused = true)] async fn cordoned_nodes_are_counted_through_an_outage()
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = FakeApiServer::new().at(41).put(node("a", false)).put(node("b", true));
//! let nodes = Cluster::new(server.client()).informer::<Node>().start()?;
//! nodes.ready(Duration::from_secs(5)).await?;
//! assert_eq!(cordoned(&nodes), 1);
//!
//! // An outage of ten minutes, in which a node is cordoned. No time passes for the test.
//! server.refuse_connections().close_watches().put(node("a", true));
//! tokio::time::sleep(Duration::from_secs(600)).await;
//! assert_eq!(cordoned(&nodes), 1, "what was known stays readable");
//! server.recover();
//! nodes.wait_for(&server.resource_version().into(), Duration::from_secs(60)).await?;
//! assert_eq!(cordoned(&nodes), 2);
//! assert_eq!(server.initial_reads(), 1, "it resumed, and did not list again");
//! # Ok(())
//! # }
//! ```

mod body;
mod call;
mod faults;
mod filter;
mod form;
mod history;
mod log;
mod marking;
mod read;
mod types;
mod watch;
mod write;

use std::{any::TypeId, error::Error as StdError, fmt, hash::RandomState, io, sync::Arc, time::Duration};

use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Limited};
use informer_core::wire::{marks, status::Status};
use kube::core::{ApiResource, ClusterResourceScope};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::watch as channel,
    time::{Instant, sleep_until},
};

pub use self::{
    body::Body,
    log::{Asked, Seen},
};
use self::{
    call::Call,
    faults::Faults,
    history::{Demand, History},
    log::Log,
    types::Type,
};

/// A Kubernetes API server in memory. Cheap to clone; clones are the same server. See the [module](self) for an
/// example.
///
/// Methods that change it return it, so that a test can set it up in one expression and go on with the same methods.
/// They act at once, on requests to come and on open watches. Cost: every object at every version it ever had, and the
/// text of every request.
///
/// Answers take no time. Under paused time, a program that asks again and again without a pause stops the clock: time
/// passes only while everybody waits. kube's own `watcher` does so when its watches are closed at once.
///
/// Differences from kube-apiserver: no admission, no validation, no defaults, no `generation`, no tables, no discovery, no
/// protobuf, no indented bodies; of patches only JSON merge patches; a write of an object writes its status too; a delete
/// takes nothing else with it; paths that do not exist are always a `Status`; and namespaces need not exist.
#[derive(Clone)]
pub struct FakeApiServer {
    world: Arc<World>,
    own: Arc<Own>,
}

/// What replicas share.
struct World {
    history: Mutex<History>,
    /// Told of every write and every new fault.
    moved: channel::Sender<()>,
}

/// What each replica has for itself.
struct Own {
    faults: Mutex<Faults>,
    log: Log,
    /// No other server's marks are worth anything here.
    marks_key: RandomState,
}

/// How long a read waits for a position that is not there yet, as kube-apiserver.
const FRESH_WAIT: Duration = Duration::from_secs(3);

/// Bytes of a request's body.
const REQUEST_BODY_BYTES_MAX: usize = 3 << 20;

impl FakeApiServer {
    /// A server without objects, at resourceVersion 1. It serves the common built-in types; others with their first
    /// object, or when [`serve`](Self::serve) says so, and until then answers 404 as without their definition.
    #[must_use]
    pub fn new() -> Self {
        let (moved, _) = channel::channel(());
        let world = World { history: Mutex::new(History::new()), moved };
        Self { world: Arc::new(world), own: Arc::new(Own::new()) }
    }

    /// Another server of the same history (same objects, uids and resourceVersions), as of a cluster with several API
    /// servers, or a cache in front of one. Its faults and its log are its own.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self { world: Arc::clone(&self.world), own: Arc::new(Own::new()) }
    }

    /// A client of this server, for [`Cluster::new`](crate::Cluster::new) and for `kube::Api`.
    ///
    /// # Panics
    /// Outside a tokio runtime, as every client of kube.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let server = server.clone();
            async move { server.respond(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Answers one request, for a listener of the test's own.
    ///
    /// # Errors
    /// No answer, because the server was told to [`refuse_connections`](Self::refuse_connections), or the request's
    /// body broke off.
    pub async fn respond<B>(&self, request: http::Request<B>) -> io::Result<http::Response<Body>>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let call = Call::new(self, &parts);
        self.own.log.add(call.asked(), &parts);
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

    /// Moves to this resourceVersion without a write: the next one is one above it.
    ///
    /// # Panics
    /// On one in the past; [`restore`](Self::restore) goes back.
    pub fn at(&self, resource_version: u64) -> Self {
        self.write(|history| history.move_to(resource_version));
        self.clone()
    }

    /// The resourceVersion of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.history().position()
    }

    /// Serves the type `K`, of which there may be no objects yet.
    pub fn serve<K>(&self) -> Self
    where
        K: kube::Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>();
        self.declare(&ApiResource::erase::<K>(&()), Some(namespaced))
    }

    /// As [`serve`](Self::serve), of a type known at run time. Teaches also a plural that cannot be guessed.
    pub fn serve_resource(&self, resource: &ApiResource) -> Self {
        self.declare(resource, None)
    }

    /// Creates or replaces an object: a typed one, or JSON with `apiVersion`, `kind` and `metadata.name`.
    ///
    /// The object keeps a uid and a time of creation of its own, gets those that are missing, and always the next
    /// resourceVersion, unless nothing changes. In a type with namespaces the default one is `default`.
    ///
    /// # Panics
    /// On what is no Kubernetes object.
    pub fn put(&self, object: impl Serialize) -> Self {
        let object = json(object);
        self.write(|history| {
            let ty = history.type_of(&object);
            history.put(&ty, object, Demand::Any).expect("nothing is demanded of what is there");
        });
        self.clone()
    }

    /// Deletes an object, if it is there. Only its kind, namespace and name are read. One with finalizers is marked, as
    /// Kubernetes does, and goes when a write takes the last of them.
    ///
    /// # Panics
    /// On what is no Kubernetes object.
    pub fn delete(&self, object: impl Serialize) -> Self {
        let mut object = json(object);
        self.write(|history| {
            let ty = history.type_of(&object);
            let (namespace, name) = history::place(&ty, &mut object);
            history.delete(&ty, &ty.key(&namespace, &name));
        });
        self.clone()
    }

    /// Goes back to the state at an earlier resourceVersion and forgets what came later, as a restore from a backup
    /// does: same uids, and resourceVersions that were used before are used again. Open watches end.
    pub fn restore(&self, resource_version: u64) -> Self {
        self.write(|history| history.restore(resource_version));
        self.clone()
    }

    /// Becomes another cluster that happens to have the same objects and resourceVersions: every uid changes. Open
    /// watches end.
    pub fn replace_history(&self) -> Self {
        self.write(History::replace_uids);
        self.clone()
    }

    /// Answers streams of initial state with this code from now on. Servers without watch-list do so with 422.
    ///
    /// # Panics
    /// On a code that is no error's.
    pub fn refuse_stream(&self, code: u16) -> Self {
        assert_error(code);
        self.fault(|faults| faults.refused_streams = Some(code))
    }

    /// Answers every watch with 403 from now on.
    pub fn forbid_watch(&self) -> Self {
        self.fault(|faults| faults.watches_forbidden = true)
    }

    /// Positions at or below this one are too old from now on, for watches, exact lists and pages: 410. `u64::MAX`
    /// leaves none to resume from.
    pub fn expire_at(&self, resource_version: u64) -> Self {
        self.fault(|faults| faults.expired = resource_version)
    }

    /// Every token of a page is too old from now on: 410 with a token that continues at the latest state.
    pub fn page_tokens_expire(&self) -> Self {
        self.fault(|faults| faults.tokens_expire = true)
    }

    /// Answers the next `count` requests with this code, whatever they ask.
    ///
    /// # Panics
    /// On a code that is no error's.
    pub fn fail_next(&self, count: usize, code: u16) -> Self {
        assert_error(code);
        self.fault(|faults| faults.failing = (count, code))
    }

    /// Says `Retry-After`, in whole seconds, with each error from now on.
    pub fn retry_after(&self, time: Duration) -> Self {
        self.fault(|faults| faults.retry_after = Some(time))
    }

    /// Gives no answer from now on: the connection is refused. Open watches stay open.
    pub fn refuse_connections(&self) -> Self {
        self.fault(|faults| faults.unreachable = true)
    }

    /// Ends the open watches cleanly, once.
    pub fn close_watches(&self) -> Self {
        self.fault(|faults| faults.closed += 1)
    }

    /// Ends every watch to come cleanly this long after it was accepted, as balancers do. Zero ends it at once.
    pub fn close_watches_after(&self, time: Duration) -> Self {
        self.fault(|faults| faults.watch_lifetime = Some(time))
    }

    /// Accepts streams of initial state from now on, and then says nothing.
    pub fn stall_streams(&self) -> Self {
        self.fault(|faults| faults.streams_stall = true)
    }

    /// Sends initial state and changes from now on, but no bookmark that says where the initial state ends.
    pub fn withhold_end_bookmark(&self) -> Self {
        self.fault(|faults| faults.end_bookmark_withheld = true)
    }

    /// Watches open now say nothing more and never end, as behind a proxy that lost them. New requests are answered.
    pub fn silence(&self) -> Self {
        self.fault(|faults| faults.silenced += 1)
    }

    /// Breaks the connection of the next accepted answer after so many bytes of its body.
    pub fn break_next_body(&self, after_bytes: usize) -> Self {
        self.fault(|faults| faults.break_next_body = Some(after_bytes))
    }

    /// Breaks the connection of every stream of initial state from now on, after so many of its objects.
    pub fn break_streams_after(&self, objects: usize) -> Self {
        self.fault(|faults| faults.streams_break_after = Some(objects))
    }

    /// Marks streams of initial state every so many objects, for clients that ask for it, and goes on behind a mark where
    /// one broke: no fault, but what cache-server can and kube-apiserver cannot. The protocol is `docs/resuming.md`.
    ///
    /// # Panics
    /// On zero.
    pub fn mark_initial_events(&self, every_objects: usize) -> Self {
        assert!(every_objects > 0, "marks without objects between them");
        self.fault(|faults| faults.marks_every = Some(every_objects))
    }

    /// Marks sent so far are worth nothing from now on, as after a restart: streams that were to go on begin anew.
    pub fn forget_marks(&self) -> Self {
        self.fault(|faults| faults.marks_forgotten += 1)
    }

    /// Time between bookmarks of the watches to come. Default 60 s, as kube-apiserver, which sends none while nothing
    /// was written since the watch began. `Duration::MAX` sends none at all.
    ///
    /// # Panics
    /// On zero.
    pub fn bookmarks_every(&self, time: Duration) -> Self {
        assert!(!time.is_zero(), "bookmarks without a pause");
        self.fault(|faults| faults.bookmarks_every = time)
    }

    /// Sees no write from now on: a server that is behind its [`replica`](Self::replica)s, or a state at rest.
    pub fn freeze(&self) -> Self {
        let position = self.position();
        self.fault(|faults| faults.horizon = Some(position))
    }

    /// Ends every fault. What was closed, broken or silenced stays so.
    pub fn recover(&self) -> Self {
        self.fault(|faults| *faults = faults.recovered())
    }

    /// Every request so far, oldest first; also those that got no answer.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.own.log.all()
    }

    /// Requests of this kind so far.
    #[must_use]
    pub fn count(&self, asked: Asked) -> usize {
        self.own.log.all().iter().filter(|seen| seen.asked == asked).count()
    }

    /// LISTs and streams of initial state so far. "No relist" means that this stays as it is.
    #[must_use]
    pub fn initial_reads(&self) -> usize {
        self.count(Asked::List) + self.count(Asked::Stream)
    }

    fn declare(&self, resource: &ApiResource, namespaced: Option<bool>) -> Self {
        let ty = Type::new(&resource.api_version, &resource.plural, &resource.kind, namespaced);
        self.write(|history| history.serve(ty));
        self.clone()
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

    /// Never held across an await, and never while another one is.
    fn history(&self) -> MutexGuard<'_, History> {
        self.world.history.lock()
    }

    fn faults(&self) -> Faults {
        self.own.faults.lock().clone()
    }

    fn moved(&self) -> channel::Receiver<()> {
        self.world.moved.subscribe()
    }

    /// The newest position this server knows of.
    fn position(&self) -> u64 {
        let horizon = self.faults().horizon.unwrap_or(u64::MAX);
        self.history().position().min(horizon)
    }

    fn is_expired(&self, position: u64) -> bool {
        position <= self.faults().expired
    }

    /// Waits for a position as long as kube-apiserver does.
    async fn reach(&self, wanted: u64) -> Result<(), Status> {
        let deadline = Instant::now() + FRESH_WAIT;
        let mut moved = self.moved();
        loop {
            moved.borrow_and_update();
            let current = self.position();
            if wanted <= current {
                return Ok(());
            }
            tokio::select! {
                _ = moved.changed() => {}
                () = sleep_until(deadline) => return Err(Status::too_large_resource_version(wanted, current)),
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

impl Own {
    fn new() -> Self {
        Self { faults: Mutex::new(Faults::default()), log: Log::new(), marks_key: RandomState::new() }
    }
}

fn assert_error(code: u16) {
    assert!((400..600).contains(&code), "{code} is no error: those are 400 to 599");
}

fn json(object: impl Serialize) -> Value {
    serde_json::to_value(object).expect("an object that can be written as JSON")
}
