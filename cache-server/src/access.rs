//! Access to the server: who sends a request, what it may do, when its turn comes, and what is recorded of it. The rules
//! are those of `access-rules`; this folder connects them to sockets, credentials, caches and files.
//!
//! INVARIANT: a request is admitted before its route is looked at: unauthenticated callers learn nothing of the objects
//! and types that exist. INVARIANT: whatever cannot be decided is refused.

pub(crate) mod authenticate;
pub(crate) mod authorize;
pub(crate) mod guard;
pub(crate) mod lease;
pub(crate) mod peer;

use std::sync::Arc;

use access_rules::{request_info::RequestInfo, user::User};
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};
use informer_serving::{query::Query, status::Status};
use tokio::{sync::watch, time::Instant};

use self::{
    authenticate::{Authenticator, Caller},
    authorize::Authorizer,
    lease::WatchLeases,
    peer::Peer,
};
use crate::ids;

/// Header with the identifier of a request, in requests and in responses.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Characters of an Audit-Id that a client may choose; longer ones are replaced. As in kube-apiserver, whose clients send
/// UUIDs.
const AUDIT_ID_CHARS_MAX: usize = 64;

/// The rules of access of one server.
pub(crate) struct Access {
    authenticator: Authenticator,
    authorizer: Authorizer,
    /// The open watches whose callers' rights are checked again.
    pub(crate) leases: Arc<WatchLeases>,
}

/// One request apart from its body. Built once, before routing.
pub(crate) struct RequestContext {
    /// Identifier in the response, the log and the audit log: the client's own, or a new one.
    pub(crate) id: HeaderValue,
    /// Verb and resource.
    pub(crate) info: Arc<RequestInfo>,
    /// The connection.
    pub(crate) peer: Arc<Peer>,
    /// Time at which the head was read.
    pub(crate) arrived: Instant,
    /// The caller; `None` before it is known, and if it is refused.
    pub(crate) caller: Option<Arc<Caller>>,
}

impl RequestContext {
    /// Reads the attributes of a request.
    pub(crate) fn new(parts: &Parts, query: &Query) -> Self {
        let chosen = parts.headers.get(AUDIT_ID).filter(|id| (1..=AUDIT_ID_CHARS_MAX).contains(&id.len()));
        let id = chosen.filter(|id| id.to_str().is_ok()).cloned().unwrap_or_else(|| {
            let id = ids::uuid().to_string();
            HeaderValue::from_str(&id).expect("hexadecimal digits and dashes are a header")
        });
        let info = Arc::new(RequestInfo::new(parts.method.as_str(), parts.uri.path(), query));
        let peer = parts.extensions.get::<Arc<Peer>>().cloned().unwrap_or_default();
        Self { id, info, peer, arrived: Instant::now(), caller: None }
    }

    /// The caller's identity; `None` if it is not known.
    pub(crate) fn user(&self) -> Option<&User> {
        self.caller.as_deref().map(|caller| &caller.user)
    }
}

impl Access {
    /// `authenticator` and `authorizer` decide about every request.
    pub(crate) fn new(authenticator: Authenticator, authorizer: Authorizer) -> Self {
        Self { authenticator, authorizer, leases: Arc::default() }
    }

    /// Finds out who sends the request, and returns `Ok` if it may do so.
    ///
    /// # Errors
    /// 401 for credentials that are not valid; 403 for what the caller may not do; 5xx if that cannot be decided.
    pub(crate) async fn admit(&self, request: &mut RequestContext, headers: &HeaderMap) -> Result<(), Status> {
        let caller = self.authenticator.authenticate(&request.peer, headers).await?;
        let caller = request.caller.insert(caller);
        self.authorizer.authorize(&caller.user, &request.info).await
    }

    /// True if rights can be withdrawn while a watch is open.
    pub(crate) const fn checks_again(&self) -> bool {
        self.authenticator.checks_again() || self.authorizer.checks_again()
    }

    /// Version of the policies, which changes with them; `None` if they never change, or without a notice.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.authorizer.changes()
    }

    /// Decides again about a caller that was admitted before.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) async fn admit_again(&self, caller: &Caller, info: &RequestInfo) -> Result<(), Status> {
        self.authenticator.confirm(caller).await?;
        self.authorizer.authorize(&caller.user, info).await
    }
}
