//! An API server in memory, for tests.
//!
//! INVARIANT: no sockets, no clock but tokio's: under paused time a test of hours takes milliseconds.

mod log;

use std::{io, time::Duration};

use http_body_util::Full;
use serde::Serialize;

pub use self::log::{Asked, Seen};

/// A Kubernetes API server in memory. Cheap to clone; clones are the same server.
#[derive(Clone, Debug, Default)]
pub struct FakeApiServer {}

/// The body of an answer.
pub type Body = Full<bytes::Bytes>;

#[allow(clippy::unused_self, unused_variables, reason = "bodies follow")]
impl FakeApiServer {
    /// A server without objects, at resourceVersion 1.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Another server of the same history (same objects, uids and resourceVersions) with faults and a log of its own.
    #[must_use]
    pub fn replica(&self) -> Self {
        self.clone()
    }

    /// A client of this server. Needs a tokio runtime.
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
    /// No answer, because the server was told to [`refuse_connections`](Self::refuse_connections).
    pub async fn respond<B>(&self, request: http::Request<B>) -> io::Result<http::Response<Body>>
    where
        B: http_body::Body + Send,
        B::Data: Send,
    {
        Ok(http::Response::new(Full::default()))
    }

    /// Moves to this resourceVersion: the next write is one above it.
    pub fn at(&self, resource_version: u64) -> Self {
        self.clone()
    }

    /// The resourceVersion of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        1
    }

    /// Serves objects of `K`, of which there may be none yet. Built-in types, and those of objects that were put, are
    /// served anyway.
    pub fn serve<K: kube::Resource<DynamicType = ()>>(&self) -> Self {
        self.clone()
    }

    /// As [`serve`](Self::serve), of a type known at run time.
    pub fn serve_resource(&self, resource: &kube::core::ApiResource) -> Self {
        self.clone()
    }

    /// Creates or replaces an object: a typed one, or JSON with `apiVersion` and `kind`.
    pub fn put(&self, object: impl Serialize) -> Self {
        self.clone()
    }

    /// Deletes an object, if it is there. Only its kind, namespace and name are read.
    pub fn delete(&self, object: impl Serialize) -> Self {
        self.clone()
    }

    /// Goes back to an earlier state, as a restore from a backup does: same uids, older resourceVersions.
    pub fn restore(&self, at: u64) -> Self {
        self.clone()
    }

    /// Becomes another cluster that happens to have the same resourceVersions: every uid changes.
    pub fn replace_history(&self) -> Self {
        self.clone()
    }

    /// Answers streams of initial state with this code, as servers without watch-list do with 422.
    pub fn refuse_stream(&self, code: u16) -> Self {
        self.clone()
    }

    /// Answers all watches with 403.
    pub fn forbid_watch(&self) -> Self {
        self.clone()
    }

    /// Positions at or below this one are too old from now on: 410.
    pub fn expire_at(&self, resource_version: u64) -> Self {
        self.clone()
    }

    /// Tokens of pages are too old from now on: 410.
    pub fn page_tokens_expire(&self) -> Self {
        self.clone()
    }

    /// Answers the next `count` requests with this code.
    pub fn fail_next(&self, count: usize, code: u16) -> Self {
        self.clone()
    }

    /// Says `Retry-After` with each failure from now on.
    pub fn retry_after(&self, time: Duration) -> Self {
        self.clone()
    }

    /// Gives no answer at all from now on: the connection is refused.
    pub fn refuse_connections(&self) -> Self {
        self.clone()
    }

    /// Ends the open watches cleanly, once.
    pub fn close_watches(&self) -> Self {
        self.clone()
    }

    /// Ends every watch this long after it was accepted, as a balancer does; at once when zero.
    pub fn close_watches_after(&self, time: Duration) -> Self {
        self.clone()
    }

    /// Accepts streams of initial state from now on, and then says nothing.
    pub fn stall_streams(&self) -> Self {
        self.clone()
    }

    /// Never ends initial state with a bookmark from now on.
    pub fn withhold_end_bookmark(&self) -> Self {
        self.clone()
    }

    /// What is open now says nothing more and never ends, as behind a proxy that lost it. New requests are answered.
    pub fn silence(&self) -> Self {
        self.clone()
    }

    /// Breaks the connection of the next accepted answer after so many bytes of its body.
    pub fn break_next_body(&self, after_bytes: usize) -> Self {
        self.clone()
    }

    /// Time between bookmarks. Default 60 s, as kube-apiserver.
    pub fn bookmarks_every(&self, time: Duration) -> Self {
        self.clone()
    }

    /// Sees no write from now on: a server that is behind its [`replica`](Self::replica)s.
    pub fn freeze(&self) -> Self {
        self.clone()
    }

    /// Ends every fault. What was closed, broken or silenced stays so.
    pub fn recover(&self) -> Self {
        self.clone()
    }

    /// Every request so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        Vec::new()
    }

    /// Requests of this kind so far.
    #[must_use]
    pub fn count(&self, asked: Asked) -> usize {
        0
    }

    /// LISTs and initial streams so far: what "no relist" means is that this stays as it is.
    #[must_use]
    pub fn initial_reads(&self) -> usize {
        self.count(Asked::List) + self.count(Asked::Stream)
    }
}
