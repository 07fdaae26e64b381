//! Access to the server: who sends a request, what it may do, when its turn comes, and what is recorded of it. The rules
//! are those of `access-rules`; this crate connects them to sockets, credentials, caches and files.
//!
//! INVARIANT: a request is admitted before its route is looked at: unauthenticated callers learn nothing of the objects
//! and types that exist. INVARIANT: whatever cannot be decided is refused.
//!
//! Internal to `cache-server`: no stable API.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]
#![allow(missing_docs, unnameable_types, reason = "internal: fields that name themselves, and parts of other types")]

pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod flow;
pub mod guard;
pub mod lease;
pub mod metrics;
pub mod peer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use access_rules::{
    authentication::impersonation::{self, Impersonation},
    flow::estimate::RequestCost,
    request_info::{RequestInfo, ResourceAttributes},
    user::User,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, request::Parts};
use informer_serving::{
    query::Query,
    status::{Status, StatusExt as _},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use uuid::Uuid;

use self::{
    audit::{AuditLog, AuditRecord},
    authenticate::{
        Authenticator, Caller, CallerCredential, ImpersonationRights, certificates::ClientAuthorities,
        signer::TokenSigner,
    },
    authorize::Authorizer,
    flow::{FlowAdmission, FlowControl, FlowHeaders, FlowRefusal, Seat},
    lease::{LeaseTerms, ReviewedRight, WatchLease, WatchLeases},
    peer::Peer,
};
use cache_server_caches::{
    cacher, clock, config, ids, limits, passes, registry, settled,
    shares::{PlaceKind, ProofWatcher, StreamCaller, StreamOwner, UserPlace, UserShare, UserShares},
    storage, stored, supervised, term, watched,
};
use cache_server_upstream::{self as upstream, own_requests::QuestionOrigin, rights::CredentialRight};

/// Header with the identifier of a request, in requests and in responses.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Characters of an Audit-Id that a client may choose; longer ones are replaced. As in kube-apiserver, whose clients send
/// UUIDs.
const AUDIT_ID_CHARS_MAX: usize = 64;

/// Paths of probes of the server's health, which have no credentials.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Prefix of the headers of requests that act as another user.
const IMPERSONATE: &str = impersonation::HEADER_PREFIX;

/// The rules of access of one server.
pub struct Access {
    authenticator: Arc<Authenticator>,
    pub authorizer: Authorizer,
    /// The open watches whose callers' rights are checked again.
    pub leases: Arc<WatchLeases>,
    /// The part of each user in what all users share.
    shares: Arc<UserShares>,
    /// Decides which requests wait.
    pub flow: Arc<FlowControl>,
    /// `None`: requests are not recorded.
    pub audit: Option<Arc<AuditLog>>,
    /// True if another server in this process has the same callers.
    pub is_beside: bool,
}

/// The URI as a client sent it, in the extensions of a request whose path lost a prefix.
#[derive(Clone, Debug)]
pub struct RequestedUri(pub Uri);

impl RequestedUri {
    /// Returns the URI as the client sent it.
    pub fn of(parts: &Parts) -> &Uri {
        parts.extensions.get::<Self>().map_or(&parts.uri, |Self(uri)| uri)
    }
}

/// One request apart from its body. Built once, before routing.
pub struct RequestContext {
    /// Identifier in the response, the log and the audit log: the client's own, or a new one.
    pub id: HeaderValue,
    /// Verb and resource.
    pub info: Arc<RequestInfo>,
    /// The connection.
    pub peer: Arc<Peer>,
    /// Time at which the head was read.
    pub arrived: Instant,
    /// The seats of the request; `None` before its turn, and after they were given back or on.
    pub seat: Option<Seat>,
    /// The part of the caller in what all users share; `None` before the caller is known, and if it has no limits.
    pub share: Option<Arc<UserShare>>,
    /// The caller's place for a watch, or for a request that is passed on, until the response holds it.
    pub place: Option<UserPlace>,
    /// Headers of the response that name its FlowSchema and priority level.
    pub flow: FlowHeaders,
    /// The caller; `None` before it is known, and if it is refused.
    pub caller: Option<Arc<Caller>>,
    /// Its records in the audit log; `None` without one, and once the response holds them.
    pub audit: Option<Box<AuditRecord>>,
    /// Reason for which another server allowed the request to a user that is known here.
    allowed_by: Option<Box<str>>,
    /// Notified once the caller has proved who it is.
    watcher: Option<Arc<dyn ProofWatcher>>,
}

impl RequestContext {
    /// Reads the attributes of a request.
    pub fn new(parts: &Parts, query: &Query) -> Self {
        let chosen = parts.headers.get(AUDIT_ID).filter(|id| (1..=AUDIT_ID_CHARS_MAX).contains(&id.len()));
        let id = chosen.filter(|id| id.to_str().is_ok()).cloned().unwrap_or_else(|| {
            let mut text = Uuid::encode_buffer();
            let id = ids::uuid().hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(id).expect("hexadecimal digits and dashes are a header")
        });
        let info = Arc::new(RequestInfo::new(parts.method.as_str(), parts.uri.path(), query));
        let peer = parts.extensions.get::<Arc<Peer>>().cloned().unwrap_or_default();
        let watcher = parts.extensions.get::<Arc<dyn ProofWatcher>>().cloned();
        let (seat, share, place, flow) = (None, None, None, FlowHeaders::default());
        let (caller, audit, allowed_by) = Default::default();
        Self { id, info, peer, arrived: Instant::now(), seat, share, place, flow, caller, audit, allowed_by, watcher }
    }

    /// The caller's identity; `None` if it is not known.
    pub fn user(&self) -> Option<&User> {
        self.caller.as_deref().map(|caller| &caller.user)
    }
}

impl Access {
    /// `authenticator` and `authorizer` decide about every request, and `flow` when its turn comes.
    pub fn new(authenticator: Authenticator, authorizer: Authorizer, flow: FlowControl) -> Self {
        let (leases, shares) = Default::default();
        let (authenticator, flow) = (Arc::new(authenticator), Arc::new(flow));
        Self { authenticator, authorizer, leases, shares, flow, audit: None, is_beside: false }
    }

    /// Access to another server in this process, whose objects decide by `authorizer`. Its requests have the callers, turns,
    /// records and parts of this one's.
    #[must_use]
    pub fn beside(&self, authorizer: Authorizer) -> Self {
        Self {
            authenticator: Arc::clone(&self.authenticator),
            authorizer,
            leases: Arc::default(),
            shares: Arc::clone(&self.shares),
            flow: Arc::clone(&self.flow),
            audit: self.audit.clone(),
            is_beside: true,
        }
    }

    /// Sets the number of open watches of all users but masters. Call before requests are served.
    #[must_use]
    pub fn with_watches_max(self, watches_max: usize) -> Self {
        Self { shares: Arc::new(UserShares::with_watches_max(watches_max)), ..self }
    }

    /// Lets every caller be `user`.
    #[cfg(any(test, feature = "testing"))]
    pub fn let_in(&mut self, user: &User) {
        self.authenticator = Arc::new(Authenticator::letting_in(user));
    }

    /// Replaces the authenticator. Call before requests are served.
    pub fn authenticate_by(&mut self, authenticator: Authenticator) {
        self.authenticator = Arc::new(authenticator);
    }

    /// The authorities of client certificates, for TLS.
    pub fn client_authorities(&self) -> Option<&Arc<ClientAuthorities>> {
        self.authenticator.authorities()
    }

    /// Returns the user of a token, and its audiences; see [`Authenticator::review`].
    ///
    /// # Errors
    /// 503 if it cannot be decided.
    pub async fn review_token(&self, token: &str, audiences: &[String]) -> Result<Option<(User, Vec<String>)>, Status> {
        self.authenticator.review(token, audiences).await
    }

    /// Issues tokens of service accounts; `None` if this server issues none.
    pub fn token_signer(&self) -> Option<&TokenSigner> {
        self.authenticator.signer.as_ref()
    }

    /// Finds out who sends the request, and returns `Ok` if it may do so.
    ///
    /// # Errors
    /// 401 for credentials that are not valid; 403 for what the caller may not do; 5xx if that cannot be decided.
    pub async fn admit(&self, request: &mut RequestContext, headers: &HeaderMap) -> Result<(), Status> {
        let caller = self.authenticator.authenticate(&request.peer, &request.info, headers).await;
        if let Some(audit) = &mut request.audit {
            audit.authenticated(caller.as_ref().ok());
        }
        let caller = request.caller.insert(caller?);
        if let Some(watcher) = request.watcher.take_if(|_| !caller.user.is_anonymous()) {
            watcher.note_proved();
        }
        // Without authentication there are no other users to act as.
        if self.authenticator.is_configured() && headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE)) {
            let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            if let Some(Impersonation { user, rights }) = impersonation::read(pairs)? {
                *caller = self.impersonated(caller, user, rights).await?;
                if let Some(audit) = &mut request.audit {
                    audit.impersonates(caller);
                }
            }
        }
        let decision = self.authorizer.decide(&caller.user, &request.info).await?;
        if let Some(audit) = &mut request.audit {
            audit.authorized(&decision);
        }
        request.allowed_by = self.authorizer.asks_others().then(|| decision.reason().into());
        authorize::permit(&decision, &caller.user, &request.info)
    }

    /// True if the caller of a health endpoint may see why checks fail: it may read every check alone, `check`, as in
    /// kube-apiserver. False for a caller without credentials where only probes are served without, or the API server decides.
    pub async fn may_see_reasons(&self, caller: &User, check: &RequestInfo) -> bool {
        let is_served = self.authenticator.serves_anonymous_callers() && !self.authorizer.decides_by_credentials();
        if caller.is_anonymous() && !is_served {
            return false;
        }
        let decision = timeout(limits::REASONS_WAIT, self.authorizer.decide(caller, check)).await;
        matches!(decision, Ok(Ok(decision)) if decision.is_allowed())
    }

    /// Begins the records of a request, if requests are recorded.
    pub async fn begin_audit(&self, parts: &Parts, context: &mut RequestContext) {
        if let Some(audit) = &self.audit {
            context.audit = Some(audit.begin(parts, context).await);
        }
    }

    /// Returns the caller that acts as `user`.
    ///
    /// # Errors
    /// 403 if it lacks one of the `rights` for this.
    async fn impersonated(
        &self,
        caller: &Arc<Caller>,
        user: User,
        rights: Vec<RequestInfo>,
    ) -> Result<Arc<Caller>, Status> {
        let rights = ImpersonationRights { caller: Arc::clone(caller), rights };
        self.may_impersonate(&rights, QuestionOrigin::Request).await?;
        let expires = caller.expires;
        Ok(Arc::new(Caller { user, expires, credential: CallerCredential::Impersonation(rights) }))
    }

    async fn may_impersonate(&self, impersonated: &ImpersonationRights, origin: QuestionOrigin) -> Result<(), Status> {
        for right in &impersonated.rights {
            self.authorizer.authorize(&impersonated.caller.user, right, origin).await?;
        }
        Ok(())
    }

    /// Waits until it is the request's turn, at most for `limit`. `cost` is called unless the request is exempt.
    ///
    /// # Errors
    /// [`FlowRefusal`] if too many requests are before it.
    pub async fn await_turn(
        &self,
        request: &mut RequestContext,
        limit: Duration,
        cost: impl FnOnce() -> RequestCost,
    ) -> Result<(), FlowRefusal> {
        // Streams need no seats; a watch has them for its initial state.
        let needs_seats = request.info.verb == "watch" || !is_long_running(&request.info);
        let Some(user) = request.user().filter(|_| needs_seats) else { return Ok(()) };
        let seat = match self.flow.arrive(user, &request.info, cost) {
            FlowAdmission::Seated(seat) => Ok(seat),
            // Boxed: the future of every request has room for what it awaits, and few requests wait.
            FlowAdmission::Waits(wait) => Box::pin(wait.seated(limit)).await,
            FlowAdmission::Refused(refused) => Err(self.flow.refuse(&refused.0, refused.1)),
        };
        match seat {
            Ok(seat) => {
                request.flow = seat.headers();
                request.seat = Some(seat);
                Ok(())
            }
            Err(refusal) => {
                request.flow = refusal.headers.clone();
                Err(refusal)
            }
        }
    }

    /// Finds the part of an admitted caller in what all users share, and takes a place for a watch from it.
    ///
    /// # Errors
    /// 429 if the caller has as many watches as it may have.
    pub fn share(&self, request: &mut RequestContext) -> Result<(), Status> {
        request.share = request.user().and_then(|user| self.shares.of(user));
        if let Some(share) = request.share.as_ref().filter(|_| request.info.verb == "watch") {
            request.place = Some(self.shares.take(share, PlaceKind::Watch).ok_or_else(too_many_watches)?);
        }
        Ok(())
    }

    /// Returns the users for whom these owners keep something.
    pub fn names_of_owners(&self, owners: &HashSet<u64>) -> HashMap<u64, String> {
        self.shares.names_of(owners)
    }

    /// Returns the owner of the response to a request over HTTP/2. `code` is that of the response.
    pub fn stream_owner(&self, request: &RequestContext, code: StatusCode) -> StreamOwner {
        let caller = match request.user() {
            None if code == StatusCode::UNAUTHORIZED => StreamCaller::Refused,
            None => StreamCaller::Unknown,
            Some(user) if user.is_anonymous() && code == StatusCode::FORBIDDEN => StreamCaller::Refused,
            // A caller that was refused has no share yet.
            Some(user) => {
                let share = request.share.clone().or_else(|| self.shares.of(user));
                match share {
                    None => StreamCaller::Unlimited,
                    Some(share) if user.is_anonymous() => StreamCaller::Anonymous(share),
                    Some(share) => StreamCaller::Limited(share),
                }
            }
        };
        StreamOwner::new(Arc::clone(&self.shares), caller)
    }

    /// Returns the owner of a response to a request that was refused before its caller was known.
    pub fn refused_stream(&self) -> StreamOwner {
        StreamOwner::new(Arc::clone(&self.shares), StreamCaller::Refused)
    }

    /// The part of a user in what all users share.
    #[cfg(any(test, feature = "testing"))]
    pub fn share_of(&self, user: &User) -> Option<Arc<UserShare>> {
        self.shares.of(user)
    }

    /// True if no request and no watch holds a place or a lease, and none of their callers is being reviewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        let are_held = 0 < self.shares.taken() || 0 < self.leases.count();
        !are_held && self.authenticator.is_idle() && self.authorizer.is_idle()
    }

    /// Takes a place of the caller for a request that is passed on, instead of one for a watch.
    ///
    /// # Errors
    /// 429 if the caller has as many such requests as it may have.
    pub fn share_upstream(&self, request: &mut RequestContext) -> Result<(), Status> {
        request.place = None;
        if let Some(share) = &request.share {
            request.place = Some(self.shares.take(share, PlaceKind::Forwarded).ok_or_else(too_many_forwarded)?);
        }
        Ok(())
    }

    /// True if rights can be withdrawn while a watch is open.
    pub fn checks_again(&self) -> bool {
        self.authenticator.checks_again() || self.authorizer.checks_again()
    }

    /// Version of the policies, which changes with them; `None` if they never change, or without a notice.
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.authorizer.changes()
    }

    /// Opens the lease of a watch, or returns `None` if nothing can withdraw its right. `right`: the API server's allow
    /// for the caller's own credentials. `is_forwarded`: true if the API server answers the watch.
    pub fn lease(
        &self,
        request: &RequestContext,
        headers: &HeaderMap,
        right: Option<CredentialRight>,
        is_forwarded: bool,
    ) -> Option<WatchLease> {
        let caller = request.caller.as_ref()?;
        let is_reviewed = self.authenticator.asks_about(caller);
        let asks_others = right.is_some() || is_reviewed || self.authorizer.asks_others();
        let asking = asks_others.then(|| ReviewedRight {
            reason: match &right {
                Some(right) => right.allow.as_ref().map(|allow| Arc::clone(&allow.reason)),
                None => Some(request.allowed_by.as_deref().unwrap_or_default().into()),
            },
            expires: authenticate::claimed_expiry(headers),
            // No role explains that a token is valid, nor that its owner may act as another user.
            keeps_asking: is_reviewed || caller.impersonation().is_some(),
        });
        let checks_rights_here = self.authorizer.checks_again() && !self.authorizer.asks_others();
        let is_checked_here = self.authenticator.checks_again() || checks_rights_here;
        let is_held = asking.is_some() || is_checked_here;
        let terms = LeaseTerms { own: right, is_forwarded, is_checked_here, asking };
        is_held.then(|| self.leases.open(caller, &request.info, terms))
    }

    /// Decides again about the caller of an open watch. Unless it `may_ask`, other servers' decisions count on. Returns the
    /// reason of an authorizer that asked.
    ///
    /// # Errors
    /// As [`admit`](Self::admit). A refusal comes before an error of what cannot be decided now.
    pub async fn admit_again(
        &self,
        caller: &Caller,
        info: &RequestInfo,
        may_ask: bool,
    ) -> Result<Option<String>, Status> {
        let decides = may_ask || !self.authorizer.asks_others();
        let impersonating = async {
            match caller.impersonation().filter(|_| decides) {
                Some(impersonated) => self.may_impersonate(impersonated, QuestionOrigin::OpenWatch).await,
                None => Ok(()),
            }
        };
        let authorizing = async {
            if !decides {
                return Ok(None);
            }
            let decision = self.authorizer.decide_by_all(&caller.user, info, QuestionOrigin::OpenWatch).await?;
            authorize::permit(&decision, &caller.user, info)?;
            Ok(self.authorizer.asks_others().then(|| decision.reason().to_owned()))
        };
        // All at once: each may need a request, and the time of a check is bounded.
        let (confirmed, impersonates, authorized) =
            futures::join!(self.authenticator.confirm(caller, may_ask), impersonating, authorizing);
        let mut reason = None;
        let authorized = authorized.map(|by| reason = by);
        let mut errors: Vec<_> = [confirmed, impersonates, authorized].into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| !lease::refuses(error));
        errors.into_iter().next().map_or(Ok(reason), Err)
    }
}

fn too_many_watches() -> Status {
    Status::too_many_requests("too many watches of this user are open, please try again later", 10)
}

fn too_many_forwarded() -> Status {
    Status::too_many_requests("too many requests of this user wait for the upstream", 1)
}

/// True for requests that last as long as their clients like, as in kube-apiserver: watches, and requests for the streams of
/// pods and proxies.
fn is_long_running(info: &RequestInfo) -> bool {
    let streams =
        |of: &ResourceAttributes| matches!(&*of.subresource, "attach" | "exec" | "log" | "portforward" | "proxy");
    info.resource.as_ref().is_some_and(|of| matches!(&*info.verb, "watch" | "proxy") || streams(of))
}

#[cfg(test)]
pub mod tests;
