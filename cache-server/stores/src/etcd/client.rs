//! Calls to the members of one etcd cluster.
//!
//! INVARIANT: a call that may have been executed is repeated only if it is a read. INVARIANT: one member is preferred by
//! all calls and watches until it fails, so that a watch and the question for its position go to the same one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tonic::{
    Request, Streaming,
    client::Grpc,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use super::{
    connect::Login,
    failure::EtcdFailure,
    listing::FIRST_PAGE_KEYS,
    messages::{
        AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, RangeRequest, RangeResponse,
        StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchResponse, WatchStreamRequest,
    },
};

/// The cluster. Share it by `Arc`.
pub(super) struct EtcdClient {
    members: Vec<EtcdMember>,
    /// Index of the member that is asked first.
    preferred: AtomicUsize,
    login: Option<Login>,
    /// The user's token, once it is known.
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// Cluster of the last read; zero before it.
    cluster: AtomicU64,
}

/// One address of the cluster. Connects at the first call, and again after a failure.
pub(super) struct EtcdMember {
    pub(super) address: String,
    pub(super) channel: Channel,
    /// See [`super::versions`]: false until the member has answered.
    tells_progress: AtomicBool,
    /// True while the member does not answer.
    is_silent: AtomicBool,
}

impl EtcdMember {
    /// A member that has not answered yet.
    pub(super) const fn new(address: String, channel: Channel) -> Self {
        Self { address, channel, tells_progress: AtomicBool::new(false), is_silent: AtomicBool::new(false) }
    }

    /// Notes an answer about reliable positions; `None` for silence. Returns true if that is news.
    pub(super) fn note(&self, tells_progress: Option<bool>) -> bool {
        let was_silent = self.is_silent.swap(tells_progress.is_none(), Ordering::Relaxed);
        match tells_progress {
            Some(tells) => self.tells_progress.swap(tells, Ordering::Relaxed) != tells || was_silent,
            None => !was_silent,
        }
    }
}

/// An open stream of watches.
pub(super) struct WatchConnection {
    /// Requests to the member.
    pub(super) requests: mpsc::Sender<WatchStreamRequest>,
    pub(super) responses: Streaming<WatchResponse>,
    /// Index of the member, for [`EtcdClient::leave`].
    pub(super) member: usize,
}

impl EtcdClient {
    /// Calls `members`: at least one.
    pub(super) fn new(members: Vec<EtcdMember>, login: Option<Login>) -> Arc<Self> {
        Arc::new(Self {
            members,
            preferred: AtomicUsize::new(0),
            login,
            token: Mutex::default(),
            cluster: AtomicU64::new(0),
        })
    }

    /// Reads a range of keys. Linearizable: it has all that was committed before the call.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdFailure> {
        let time = time_of(&request);
        let read: RangeResponse =
            self.repeat("/etcdserverpb.KV/Range", request, time, EtcdFailure::is_of_member).await?;
        self.cluster.store(read.header.unwrap_or_default().cluster_id, Ordering::Relaxed);
        Ok(read)
    }

    /// Carries out a transaction that writes. It is sent to another member only if it was not executed.
    pub(super) async fn write(&self, request: TxnRequest) -> Result<TxnResponse, EtcdFailure> {
        let is_safe = |failure: &EtcdFailure| matches!(failure, EtcdFailure::NotExecuted(_));
        self.repeat("/etcdserverpb.KV/Txn", request, WRITE, is_safe).await
    }

    /// Drops the history up to a revision. May be repeated: a later attempt fails with [`EtcdFailure::Compacted`].
    pub(super) async fn compact(&self, revision: i64) -> Result<(), EtcdFailure> {
        let request = CompactionRequest { revision };
        let compacted: Result<CompactionResponse, _> =
            self.repeat("/etcdserverpb.KV/Compact", request, PAGE_READ, EtcdFailure::is_of_member).await;
        compacted.map(drop)
    }

    /// Returns the status of each member, in order.
    pub(super) async fn status(&self) -> Vec<Result<StatusResponse, EtcdFailure>> {
        let status = |member| async move {
            let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Status");
            self.authenticated(member, path, StatusRequest {}, SHORT_READ).await
        };
        futures::future::join_all((0..self.members.len()).map(status)).await
    }

    /// Returns the identity of the cluster, once a read was answered.
    pub(super) fn cluster(&self) -> Option<u64> {
        Some(self.cluster.load(Ordering::Relaxed)).filter(|&cluster| cluster != 0)
    }

    /// True if watches of this member can be asked for their position.
    pub(super) fn tells_progress(&self, member: usize) -> bool {
        self.members[member].tells_progress.load(Ordering::Relaxed)
    }

    /// True while a member does not answer.
    pub(super) fn has_silent_members(&self) -> bool {
        self.members.iter().any(|member| member.is_silent.load(Ordering::Relaxed))
    }

    /// Returns the index of the member that is asked first.
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Returns the address of a member.
    fn address(&self, member: usize) -> &str {
        &self.members[member].address
    }

    /// Returns the members in order.
    pub(super) fn members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// Opens a stream for watches, with `first` as its first request: etcd answers once it has one.
    pub(super) async fn watch(&self, first: WatchStreamRequest) -> Result<WatchConnection, EtcdFailure> {
        let member = self.preferred();
        let connected = self.watch_at(member, first.clone()).await;
        match connected {
            Err(EtcdFailure::TokenExpired) => {
                self.token.lock().take();
                self.watch_at(member, first).await
            }
            other => other,
        }
        .inspect_err(|failure| {
            if failure.is_of_member() {
                self.leave(member);
            }
        })
    }

    async fn watch_at(&self, member: usize, first: WatchStreamRequest) -> Result<WatchConnection, EtcdFailure> {
        let (requests, mut queue) = mpsc::channel(WATCH_REQUESTS_QUEUED);
        requests.try_send(first).expect("an empty queue has room");
        let queue = stream::poll_fn(move |context| queue.poll_recv(context));
        let opening = async {
            let request = self.request(member, queue).await?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let mut grpc = self.grpc(member).await?;
            Ok(grpc.streaming(request, path, ProstCodec::default()).await?.into_inner())
        };
        let opened = timeout(SHORT_READ, opening).await;
        let responses = opened.unwrap_or_else(|_| Err(EtcdFailure::Unanswered("no watch in time".to_owned())))?;
        Ok(WatchConnection { requests, responses, member })
    }

    /// Prefers the next member, unless another call has left this one already.
    pub(super) fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        if next != member && self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            tracing::info!(from = self.address(member), to = self.address(next), "etcd endpoint failover");
        }
    }

    /// Calls the preferred member, then the others as long as `repeats` allows it.
    async fn repeat<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        time: Duration,
        repeats: impl Fn(&EtcdFailure) -> bool,
    ) -> Result<A, EtcdFailure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut left = self.members.len();
        loop {
            let member = self.preferred();
            let path = PathAndQuery::from_static(path);
            let failure = match self.authenticated(member, path, request.clone(), time).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if failure.is_of_member() {
                self.leave(member);
            }
            left -= 1;
            if left == 0 || !repeats(&failure) {
                return Err(failure);
            }
        }
    }

    /// Calls one member, with a new token if the one at hand has expired: nothing was executed then.
    async fn authenticated<Q, A>(
        &self,
        member: usize,
        path: PathAndQuery,
        request: Q,
        time: Duration,
    ) -> Result<A, EtcdFailure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        match self.call(member, path.clone(), request.clone(), time).await {
            Err(EtcdFailure::TokenExpired) if self.login.is_some() => {
                self.token.lock().take();
                self.call(member, path, request, time).await
            }
            other => other,
        }
    }

    async fn call<Q, A>(&self, member: usize, path: PathAndQuery, request: Q, time: Duration) -> Result<A, EtcdFailure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let calling = async {
            let request = self.request(member, request).await?;
            let mut grpc = self.grpc(member).await?;
            Ok(grpc.unary(request, path, ProstCodec::default()).await?.into_inner())
        };
        let called = timeout(time, calling).await;
        called.unwrap_or_else(|_| Err(EtcdFailure::Unanswered(format!("no answer within {time:?}"))))
    }

    async fn grpc(&self, member: usize) -> Result<Grpc<Channel>, EtcdFailure> {
        let mut grpc = Grpc::new(self.members[member].channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| EtcdFailure::NotExecuted(error.to_string()))?;
        Ok(grpc)
    }

    /// Returns a request with the headers that etcd wants.
    async fn request<Q>(&self, member: usize, message: Q) -> Result<Request<Q>, EtcdFailure> {
        let token = self.token(member).await?;
        let mut request = Request::new(message);
        // A member that has lost its leader then fails at once, and ends its watches.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    /// Returns the token of the user; `None` without a user, or if etcd does not authenticate.
    async fn token(&self, member: usize) -> Result<Option<MetadataValue<Ascii>>, EtcdFailure> {
        let Some(Login { user, password }) = &self.login else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let request = Request::new(AuthenticateRequest { name: user.clone(), password: password.clone() });
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let answered = self.grpc(member).await?.unary(request, path, ProstCodec::default()).await;
        let answer: AuthenticateResponse = match answered {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.message().contains("authentication is not enabled") => return Ok(None),
            // Whatever happened to this call, the one that it is for was not sent.
            Err(status) => {
                let failure = EtcdFailure::from(status);
                return Err(if let EtcdFailure::Unanswered(text) = failure {
                    EtcdFailure::NotExecuted(text)
                } else {
                    failure
                });
            }
        };
        let token = MetadataValue::try_from(answer.token);
        let mut token = token.map_err(|_| EtcdFailure::Denied("the token is no header".to_owned()))?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }
}

/// Returns the time for a read at one member. etcd also reads the values of the keys that it sends alone, so a large page of
/// keys gets as long as one of objects: otherwise a large type would never resume.
fn time_of(request: &RangeRequest) -> Duration {
    let is_first = request.keys_only && (1..=FIRST_PAGE_KEYS).contains(&request.limit);
    if request.count_only || request.limit == 1 || is_first { SHORT_READ } else { PAGE_READ }
}

/// Bytes of one response. A page of objects has [`super::listing::PAGE_BYTES`] as a rule, and at least one object.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Requests that wait to be sent on the stream of a watch: its creation, and one for its position.
const WATCH_REQUESTS_QUEUED: usize = 2;

/// Time for a read of one object, of a few keys or of a position, at one member: a consistent read waits 3 s in all.
const SHORT_READ: Duration = Duration::from_millis(1_500);

/// Time for a page of objects, at one member.
const PAGE_READ: Duration = Duration::from_secs(30);

/// Time for a write. etcd itself gives up after 7 s unless its election timeout was raised.
const WRITE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a large type resumes at an etcd that is slow but well. Method: the requests of a comparison of its keys.
    #[test]
    fn a_large_page_of_keys_has_the_time_of_a_page() {
        let keys = |limit| time_of(&RangeRequest { keys_only: true, limit, ..RangeRequest::default() });
        assert_eq!([1, FIRST_PAGE_KEYS, 4 * FIRST_PAGE_KEYS].map(keys), [SHORT_READ, SHORT_READ, PAGE_READ]);
        assert_eq!(time_of(&RangeRequest { count_only: true, ..RangeRequest::default() }), SHORT_READ);
        assert_eq!(time_of(&RangeRequest { limit: FIRST_PAGE_KEYS, ..RangeRequest::default() }), PAGE_READ);
    }
}
