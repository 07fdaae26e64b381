//! Upstream mode's decision for each request: answered here, answered from a cache, or passed to the API server.
//!
//! INVARIANT: a read is answered from a cache only after it was allowed to its caller: by the API server, or by this
//! server's own authorizers.
//! INVARIANT: what the cache cannot answer exactly is passed on: other versions of a type, objects outside the cached
//! part, and single objects without a position unless the cache is proved to hold the newest state.

use std::{collections::HashMap, sync::Arc, time::Duration};

use access_rules::{request_info::RequestInfo, user::User};
use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use http::{HeaderMap, Method, StatusCode, header};
use informer_core::selector::field;
use informer_serving::{
    options::resource_version,
    query::Query,
    status::{Details, Status, StatusExt as _},
};
use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    connect::{ONLY_IF_CACHED, UpstreamAddresses},
    forward::{self, Forwarder},
    frequent::{FrequentReaders, ReaderState},
    identity::{self, UpstreamIdentity},
    impersonator::{Impersonator, OwnQuestions},
    key::QuestionKey,
    last_answer::LastAnswer,
    rights::{AskUpstream, CredentialRight, HeldAllow, Rights, SubjectRights},
    sender::OwnRequests,
    source::{Fitness, PROOF_WAIT, Peers, ProvedCache, UpstreamSource},
};
use crate::{
    cacher::Caches,
    coalesced::CoalescedSource,
    config::UpstreamConfig,
    limits::{LATE_REVIEWS_MAX, UPSTREAM_RETRY_AFTER_SECONDS},
    registry::{Registry, ResourceType},
    route::{Route, Target},
};

/// An API server behind this server.
pub struct Upstream {
    pub source: Arc<UpstreamSource>,
    pub forwarder: Arc<Forwarder>,
    /// Passes on requests of users that only this server knows; `None` if they are refused.
    pub impersonator: Option<Impersonator>,
    /// The cluster at its addresses.
    pub identity: Arc<UpstreamIdentity>,
    /// Time of the last answer, which all requests share.
    pub last_answer: Arc<LastAnswer>,
    own_requests: OwnRequests,
    rights: Arc<Rights>,
    /// Rights of this server's own account.
    own_rights: Rights,
    readers: Arc<FrequentReaders>,
    /// Bounds the reviews that go on after their GETs were passed on: connections do not.
    late_reviews: Arc<Semaphore>,
    /// Bounds the reviews of callers whose lists wait for a turn while a type is in doubt.
    doubted_callers: Semaphore,
    /// Maximum age of the proof that a read without a resourceVersion accepts.
    max_staleness: Duration,
    /// The types to cache, as `pods` or `deployments.apps`; empty: all on first use, but Secrets.
    named: Vec<String>,
    /// True if a read outside the cached part of a type is refused, not passed on.
    refuses_outside: bool,
}

/// The server that answers a request.
pub enum Answerer<'a> {
    /// This server: its own health and metrics, or a read from a cache.
    Here,
    /// This server, from a cache with the newest state.
    Proved(ProvedCache),
    /// The API server, through this forwarder.
    Upstream(&'a Forwarder),
    /// This server, with the identity of its cluster as JSON: the answer to another cache-server.
    Identity(Bytes),
}

/// The part of a request that the decision reads.
#[derive(Clone, Copy)]
pub struct ReadHead<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub query: &'a Query,
    pub info: &'a RequestInfo,
    /// True if the API server decides about a cached read by its caller's credentials; false if that is decided.
    pub checks_rights: bool,
    /// True if this server has a form that the client accepts.
    pub is_acceptable: bool,
    /// The caller, if only this server knows it.
    pub local: Option<&'a User>,
}

impl ReadHead<'_> {
    /// True if the client wants no answer rather than one from the API server (RFC 9111, 5.2.1.7).
    fn wants_only_cached(&self) -> bool {
        let directives = self.headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
        let mut directives = directives.flat_map(|value| value.split(','));
        matches!(*self.method, Method::GET | Method::HEAD)
            && directives.any(|directive| directive.trim().eq_ignore_ascii_case(ONLY_IF_CACHED))
    }
}

impl Upstream {
    pub fn new(addresses: UpstreamAddresses, config: &UpstreamConfig) -> Self {
        let UpstreamAddresses { clients, callers, own, peers } = addresses;
        let last_answer = Arc::<LastAnswer>::default();
        let urls = callers.iter().map(|caller| format!("{caller:?}"));
        let identity = UpstreamIdentity::new(urls.zip(clients), Arc::clone(&last_answer));
        let clients = identity.clients();
        let own_requests = OwnRequests::new(clients.clone(), Arc::clone(&last_answer));
        let scopes: HashMap<_, _> = config.scopes.iter().cloned().collect();
        let peers = Peers::new(peers).in_cluster(Arc::clone(&identity));
        let source = Arc::new(UpstreamSource::noting(clients, peers, scopes, Arc::clone(&last_answer)));
        let forwarder = Forwarder::new(callers, Arc::clone(&last_answer)).in_cluster(Arc::clone(&identity));
        let forwarder = Arc::new(forwarder);
        let impersonator = own.map(|own| Impersonator::new(own, &forwarder, own_requests.clone(), &last_answer));
        let questions = Arc::new(CallersQuestions(Arc::clone(&forwarder)));
        let own_questions = Arc::new(OwnQuestions(own_requests.clone()));
        Self {
            source,
            identity,
            impersonator,
            rights: Arc::new(Rights::new(questions, Arc::clone(&last_answer))),
            own_rights: Rights::new(own_questions, Arc::clone(&last_answer)),
            readers: Arc::default(),
            late_reviews: Arc::new(Semaphore::new(LATE_REVIEWS_MAX)),
            doubted_callers: Semaphore::new(DOUBTED_CALLERS_MAX),
            max_staleness: config.max_staleness,
            last_answer,
            forwarder,
            own_requests,
            named: config.resources.clone(),
            refuses_outside: config.refuses_outside,
        }
    }

    /// Sends small requests with this server's own identity.
    pub const fn own_requests(&self) -> &OwnRequests {
        &self.own_requests
    }

    /// The source of the caches. Questions for its newest revision are shared.
    pub fn shared_source(&self) -> Arc<CoalescedSource<UpstreamSource>> {
        CoalescedSource::new(Arc::clone(&self.source))
    }

    /// Returns the types that are cached from the start, as far as they are defined.
    pub fn named_types(&self, registry: &Registry) -> Vec<Arc<ResourceType>> {
        self.named.iter().filter_map(|id| registry.by_id(id)).collect()
    }

    /// Logs the names without a type: they may be misspelt, or defined later.
    pub fn report_unknown(&self, registry: &Registry) {
        for id in self.named.iter().filter(|id| registry.by_id(id).is_none()) {
            tracing::warn!(resource = id.as_str(), "named type unknown");
        }
    }

    /// Returns the first type with a scope that is not known.
    pub fn unknown_scope(&self, registry: &Registry) -> Option<&str> {
        self.source.scoped_types().find(|id| registry.by_id(id).is_none())
    }

    /// True once an address has answered.
    pub fn is_reached(&self) -> bool {
        self.identity.cluster().is_some()
    }

    /// True if the type was named in the settings.
    pub fn is_named(&self, id: &str) -> bool {
        self.named.iter().any(|named| named == id)
    }

    /// True if caches are started by their first read, and ended when idle.
    pub const fn is_on_demand(&self) -> bool {
        self.named.is_empty()
    }

    /// True if no request and no review is on its way.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        let has_late = self.late_reviews.available_permits() < LATE_REVIEWS_MAX;
        let is_acting = self.impersonator.as_ref().is_some_and(|impersonator| !impersonator.is_idle());
        self.forwarder.is_idle() && self.rights.is_idle() && self.own_rights.is_idle() && !has_late && !is_acting
    }

    /// Decides which server answers.
    ///
    /// # Errors
    /// The Status for a caller that may not read, or whose rights the API server did not report; 504 for an
    /// `only-if-cached` request without a cached answer.
    pub async fn answerer(
        &self,
        caches: &Caches,
        registry: &Registry,
        read: ReadHead<'_>,
        route: &Route,
    ) -> Result<Answerer<'_>, Status> {
        match self.decide(caches, registry, read, route).await? {
            Answerer::Upstream(_) if read.wants_only_cached() => Err(not_cached()),
            Answerer::Upstream(_) if may_lose_shard(read, route) => Err(shard_not_applied()),
            answerer @ (Answerer::Here | Answerer::Proved(_) | Answerer::Upstream(_) | Answerer::Identity(_)) => {
                Ok(answerer)
            }
        }
    }

    async fn decide(
        &self,
        caches: &Caches,
        registry: &Registry,
        read: ReadHead<'_>,
        route: &Route,
    ) -> Result<Answerer<'_>, Status> {
        let target = match route {
            Route::Health(..) | Route::Metrics | Route::Debug(_) => return Ok(Answerer::Here),
            Route::Resource(target) => target,
            Route::Discovery(_)
            | Route::OpenApi(_)
            | Route::Version
            | Route::Missing(_)
            | Route::Connect(..)
            | Route::NotFound
            | Route::Forks(_)
            | Route::Unknown => return Ok(self.by_upstream()),
        };
        if let Some(identity) = self.identity_for(read, target) {
            self.check_right(read).await?;
            return Ok(Answerer::Identity(identity));
        }
        if !self.is_cacheable(registry, read, target) {
            return Ok(self.by_upstream());
        }
        if is_newest_object(read, target) {
            match Box::pin(self.proved_cache(caches, read, target)).await {
                Some(proved) => return Ok(Answerer::Proved(proved)),
                None if self.is_passable(read) || self.source.scope(&target.ty).is_some() => {
                    return Ok(self.by_upstream());
                }
                // The cache answers as soon as it is known to be up to date.
                None => {}
            }
        }
        if target.name.is_some() && self.source.scope(&target.ty).is_some() {
            if !self.refuses_outside {
                return Ok(self.by_upstream());
            }
            self.check_right(read).await?;
            return if self.has_inside(caches, read, target).await? {
                Ok(Answerer::Here)
            } else {
                Err(outside(target))
            };
        }
        let is_inside = self.is_inside(read, target);
        if !is_inside && !self.refuses_outside {
            return Ok(self.by_upstream());
        }
        // Before the refusal too: a caller without a right must learn nothing.
        self.check_right(read).await?;
        if !is_inside {
            return Err(outside(target));
        }
        // A peer would trust the state that this one doubts.
        if read.wants_only_cached() && (!caches.is_filled(&target.ty) || self.source.is_in_doubt(&target.ty)) {
            return Err(not_cached());
        }
        if !self.is_fit(caches, &target.ty).await {
            return Ok(self.by_upstream());
        }
        // Watches get 503 meanwhile: passed on, they would stay at the API server long after the doubt.
        if is_newest_list(read) && self.is_in_doubt(read, &target.ty).await? {
            return Box::pin(self.list_in_doubt(read, &target.ty)).await;
        }
        Ok(Answerer::Here)
    }

    /// True if the cache must not answer a list of the newest state.
    ///
    /// # Errors
    /// 410 for a later page of a lost history.
    async fn is_in_doubt(&self, read: ReadHead<'_>, ty: &ResourceType) -> Result<bool, Status> {
        if is_later_page(read) {
            if self.source.is_lost(ty) {
                // Together with pages of the other history it would make a list that no server ever had.
                return Err(Status::expired_list());
            }
            // The API server continues what it began: the cache may have another state at the same revision.
            if self.source.is_suspect(ty) {
                return Ok(true);
            }
        }
        Ok(self.is_passable(read) && !Box::pin(self.source.may_list_newest(ty)).await)
    }

    /// Decides about a list of a type whose history is in doubt. All agents list after an outage: the API server must not
    /// get all of these lists at once, nor a question about each of their callers.
    async fn list_in_doubt(&self, read: ReadHead<'_>, ty: &ResourceType) -> Result<Answerer<'_>, Status> {
        let (is_later, is_page) = (is_later_page(read), is_page(read));
        // A caller as which this server may not act takes no turn from others.
        if (is_later || self.source.has_list_turn(ty, is_page))
            && self.may_pass_in_doubt(read, is_later).await?
            && (is_later || self.source.takes_list_turn(ty, is_page))
        {
            return Ok(self.by_upstream());
        }
        let text = "it is not known yet whether this state is the API server's: it is being compared";
        let details = Details { retry_after_seconds: UPSTREAM_RETRY_AFTER_SECONDS, ..Details::default() };
        Err(Status { details: Some(details), ..Status::unavailable(text) })
    }

    /// True if the API server would get a list of this caller. False, too, if enough others wait for the answer to that: only
    /// one of them gets the turn. A later page needs none.
    async fn may_pass_in_doubt(&self, read: ReadHead<'_>, is_later: bool) -> Result<bool, Status> {
        let Some(user) = read.local else { return Ok(true) };
        let Some(impersonator) = &self.impersonator else { return Ok(false) };
        let _slot = if is_later {
            None
        } else {
            let Ok(slot) = self.doubted_callers.try_acquire() else { return Ok(false) };
            Some(slot)
        };
        Ok(impersonator.act_as(user).await?.is_some())
    }

    /// Rights of users that are known here.
    pub fn subject_rights(&self) -> Arc<SubjectRights> {
        Arc::new(SubjectRights::new(Arc::new(self.own_requests.clone())))
    }

    /// True if this server's own account may do all of these.
    ///
    /// # Errors
    /// A Status if that is not known.
    pub async fn may(&self, acts: &[RequestInfo]) -> Result<bool, Status> {
        let account = HeaderMap::new();
        let allowed = try_join_all(acts.iter().map(|act| self.own_rights.allows(&account, act))).await?;
        Ok(allowed.into_iter().all(|allowed| allowed))
    }

    /// Returns the right of a read's caller, for as long as the read goes on.
    pub fn read_right(&self, headers: &HeaderMap, info: &RequestInfo) -> CredentialRight {
        let credentials = forward::credentials(headers);
        let (caller, allow) = (self.rights.caller(&credentials), self.rights.last_allow(&credentials, info));
        CredentialRight { caller, credentials, allow }
    }

    /// Checks the right of a watch that goes on. `held` is the last answer about it.
    ///
    /// # Errors
    /// As [`answerer`](Self::answerer). 503 in place of 403 for a caller of a forwarded watch that may not ask about its
    /// rights: the API server allowed the watch itself.
    pub async fn check_again(
        &self,
        credentials: &HeaderMap,
        info: &RequestInfo,
        is_forwarded: bool,
        held: Option<&HeldAllow>,
    ) -> Result<HeldAllow, Status> {
        self.rights.check_again(credentials, info, is_forwarded, held).await
    }

    /// True if the API server knows the caller, or this server may ask it to act as the caller.
    const fn is_passable(&self, read: ReadHead<'_>) -> bool {
        read.local.is_none() || self.impersonator.is_some()
    }

    fn by_upstream(&self) -> Answerer<'_> {
        Answerer::Upstream(&self.forwarder)
    }

    /// Returns `Ok` if the read is allowed to its caller.
    async fn check_right(&self, read: ReadHead<'_>) -> Result<(), Status> {
        if read.checks_rights {
            self.rights.check(&forward::credentials(read.headers), read.info).await?;
        }
        Ok(())
    }

    /// Returns the answer to another cache-server that wants to know which cluster this one is in front of; `None` for
    /// other requests.
    fn identity_for(&self, read: ReadHead<'_>, target: &Target) -> Option<Bytes> {
        let is_namespace = target.ty.group.is_empty() && target.ty.plural == "namespaces";
        let accepts = read.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_question = read.wants_only_cached()
            && is_namespace
            && !target.watched
            && target.subresource.is_none()
            && target.name.as_deref() == Some(identity::NAMESPACE)
            && read.query.get("resourceVersion").is_none()
            && accepts == Some(identity::ONLY_METADATA);
        let cluster = self.identity.cluster().filter(|_| is_question)?;
        let metadata = json!({"name": identity::NAMESPACE, "uid": cluster.uid()?});
        let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        Some(object.to_string().into())
    }

    /// True if the cached part of the type has the named object, at the position that the read requires.
    async fn has_inside(&self, caches: &Caches, read: ReadHead<'_>, target: &Target) -> Result<bool, Status> {
        let position = read.query.get("resourceVersion").unwrap_or_default();
        let reader = match resource_version(position).map_err(Status::unmapped)? {
            0 => caches.reader(&target.ty).await?,
            at => caches.at_least(&target.ty, at).await?,
        };
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let key = target.ty.key(namespace, target.name.as_deref().unwrap_or_default());
        Ok(reader.get(&key).is_some())
    }

    /// True if a cache can answer such a read.
    fn is_cacheable(&self, registry: &Registry, head: ReadHead<'_>, target: &Target) -> bool {
        let ty = &target.ty;
        let is_read = matches!(*head.method, Method::GET | Method::HEAD) && target.subresource.is_none();
        // Objects are cached in one version of their type; only the API server converts.
        let is_version = registry.by_id(ty.id()).is_some_and(|cached| cached.version == ty.version);
        is_read && is_version && self.caches_type(ty)
    }

    /// Returns the cache of a GET of one object without a resourceVersion, proved to hold the newest state; `None` if the read
    /// is passed on: that costs the API server no more than a proof, unless several reads share it.
    async fn proved_cache(&self, caches: &Caches, read: ReadHead<'_>, target: &Target) -> Option<ProvedCache> {
        let ty = &target.ty;
        let is_answerable = *read.method == Method::GET && read.is_acceptable && !read.wants_only_cached();
        if !is_answerable || self.source.scope(ty).is_some() {
            return None;
        }
        // The right comes first: a caller without it must cause no question of ours, and keep no cache alive.
        if !self.source.may_prove(ty, self.max_staleness) || !self.may_read_all(read).await {
            return None;
        }
        let proved = self.source.proved_cache(ty, self.max_staleness)?;
        // After so many reads the cache pays, and is used.
        caches.start(ty);
        proved.await
    }

    /// True if the caller may read all objects of the type, or of the namespace, and reads often enough to ask that. Waits at
    /// most as long as for a proof.
    async fn may_read_all(&self, read: ReadHead<'_>) -> bool {
        if !read.checks_rights {
            return true;
        }
        let credentials = forward::credentials(read.headers);
        let deadline = Instant::now() + PROOF_WAIT;
        for (number, questions) in self.readers.questions(read.info).into_iter().enumerate() {
            let key = self.rights.key(&credentials, &questions[0]);
            if number == 0 && !self.readers.count(key) {
                return false;
            }
            match self.readers.state(key) {
                ReaderState::Unknown => {}
                ReaderState::Refused => continue,
                ReaderState::Deferred => return false,
            }
            let mut allowing = self.allowing_all(&credentials, questions);
            match timeout_at(deadline, &mut allowing).await {
                Ok(Ok(true)) => return true,
                Ok(outcome) if is_refusal(&outcome) => self.readers.refuse(key),
                // The API server answers the read itself.
                Ok(Ok(false) | Err(_)) => {
                    self.readers.defer(key);
                    return false;
                }
                Err(_) => {
                    self.finish_late(key, allowing);
                    return false;
                }
            }
        }
        false
    }

    /// Lets the first late review of a caller go on without its read, if not too many do: later reads use the answer.
    fn finish_late(&self, key: QuestionKey, allowing: BoxFuture<'static, Result<bool, Status>>) {
        if self.readers.defer(key)
            && let Ok(slot) = Arc::clone(&self.late_reviews).try_acquire_owned()
        {
            let readers = Arc::clone(&self.readers);
            tokio::spawn(async move {
                let _slot = slot;
                if is_refusal(&allowing.await) {
                    readers.refuse(key);
                }
            });
        }
    }

    /// Returns whether all of the questions are allowed, asked one after the other.
    fn allowing_all(
        &self,
        credentials: &HeaderMap,
        questions: [RequestInfo; 2],
    ) -> BoxFuture<'static, Result<bool, Status>> {
        let (rights, credentials) = (Arc::clone(&self.rights), credentials.clone());
        Box::pin(async move {
            for question in &questions {
                if !rights.allows(&credentials, question).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// True if the type is one to cache.
    fn caches_type(&self, ty: &ResourceType) -> bool {
        let is_secret = ty.group.is_empty() && ty.plural == "secrets";
        if self.named.is_empty() { !is_secret } else { self.named.iter().any(|id| id == ty.id()) }
    }

    /// True if the cached part of the type holds all objects of the read.
    fn is_inside(&self, head: ReadHead<'_>, target: &Target) -> bool {
        let Some(scope) = self.source.scope(&target.ty) else { return true };
        let requested = head.query.get("fieldSelector").unwrap_or_default();
        match (field::Selector::parse(scope), field::Selector::parse(requested)) {
            (Ok(scope), Ok(requested)) => scope.terms().iter().all(|term| requested.terms().contains(term)),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Starts the type's cache, and returns true unless the API server does not let us fill it. Waits at most as long
    /// as a read.
    async fn is_fit(&self, caches: &Caches, ty: &Arc<ResourceType>) -> bool {
        // Also counts as use of a cache that could not be filled yet, so that it is tried again while clients read it.
        caches.start(ty);
        let fitness = tokio::select! {
            biased;
            fitness = self.source.fitness(ty) => fitness,
            // A cache that is not ready answers so itself.
            _ = caches.reader(ty) => Fitness::Unknown,
        };
        !matches!(fitness, Fitness::Unfit(_))
    }
}

/// True if the API server refuses the right that it reviewed, or its caller.
const fn is_refusal(outcome: &Result<bool, Status>) -> bool {
    matches!(outcome, Ok(false) | Err(Status { code: 401 | 403, .. }))
}

/// True for a read of one object in its newest state.
fn is_newest_object(read: ReadHead<'_>, target: &Target) -> bool {
    let position = read.query.get("resourceVersion").unwrap_or_default();
    target.name.is_some() && !target.watched && position.is_empty()
}

/// True for a list of the newest state, and for its later pages.
fn is_newest_list(read: ReadHead<'_>) -> bool {
    read.info.verb == "list" && read.query.get("resourceVersion").unwrap_or_default().is_empty()
}

/// True for a page of a list behind its first one.
fn is_later_page(read: ReadHead<'_>) -> bool {
    read.query.get("continue").is_some_and(|token| !token.is_empty())
}

/// Most concurrent reviews of whether this server may impersonate a caller, for lists of types in doubt. Few of these
/// lists are passed on.
const DOUBTED_CALLERS_MAX: usize = 16;

/// Most objects of a list that counts as a page: those of kubectl and of kube.
const PASSED_PAGE_MAX: u64 = 500;

/// True for a list of at most [`PASSED_PAGE_MAX`] objects.
fn is_page(read: ReadHead<'_>) -> bool {
    let limit = read.query.get("limit").and_then(|limit| limit.parse::<u64>().ok());
    limit.is_some_and(|limit| (1..=PASSED_PAGE_MAX).contains(&limit))
}

/// Refusal of a read that no cache has the answer to.
fn not_cached() -> Status {
    Status::timeout("no cache of this server has the answer, and the request is only-if-cached", 1)
}

/// True for deletions and watches of a shard: an API server without the feature ignores the selector, deletes or watches
/// all objects, and its answer does not show it.
fn may_lose_shard(read: ReadHead<'_>, route: &Route) -> bool {
    let is_unmarked = matches!(route, Route::Resource(_)) && matches!(&*read.info.verb, "watch" | "deletecollection");
    is_unmarked && read.query.get("shardSelector").is_some_and(|selector| !selector.is_empty())
}

fn shard_not_applied() -> Status {
    Status::bad_request("shardSelector: only this server's caches apply it, and they do not answer this request")
}

/// Refusal of everything but probes until the API server was reached.
pub fn unreached() -> Status {
    let details = Details { retry_after_seconds: UPSTREAM_RETRY_AFTER_SECONDS, ..Details::default() };
    Status { details: Some(details), ..Status::unavailable("the upstream API server was not reached yet") }
}

/// Refusal of a read outside the cached part of a type.
fn outside(target: &Target) -> Status {
    Status::bad_request(format!("this cache holds only a part of {}: select that part", target.ty.id()))
}

/// Questions of the rights, sent by the forwarder.
struct CallersQuestions(Arc<Forwarder>);

impl AskUpstream for CallersQuestions {
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        credentials: &'a HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), Status>> {
        Box::pin(self.0.ask(method, path, credentials, body))
    }
}

#[cfg(test)]
mod tests;
