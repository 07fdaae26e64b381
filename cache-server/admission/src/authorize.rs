//! Decides what a caller may do: asks the authorizers of the settings in order, until one allows.
//!
//! INVARIANT: a request that no authorizer allows is refused. INVARIANT: a decision by roles or nodes sends no request:
//! what they decide by is followed in the caches.
//!
//! In reading order: the authorizers (here), [`followed`] (the state that they decide by), [`bootstrap`] (roles of a new
//! store), [`escalation`] (roles and bindings that a caller may write).

pub mod bootstrap;
pub mod escalation;
mod followed;

use std::sync::{Arc, Weak};

use access_rules::{
    decision::AccessDecision,
    rbac::{self, RbacKind, full_authority},
    request_info::RequestInfo,
    review::SubjectRules,
    user::{MASTERS, User},
};
use futures::{FutureExt as _, future::BoxFuture};
use informer_serving::{query::Query, status::Status};
use tokio::{sync::watch, time::sleep};

use self::followed::FollowedPolicies;
pub use self::followed::FollowedRoles;
use super::HEALTH_PATHS;
use crate::{
    cacher::Caches,
    config::{AuthorizationConfig, AuthorizationMode},
    limits::{REVIEW_WAIT, RIGHT_ASKED_EVERY},
    metrics::AuthorizationMetrics,
    registry::Live,
    supervised::SupervisedTasks,
    upstream::{gateway::Upstream, own_requests::QuestionOrigin, rights::SubjectRights},
};

/// Turns a decision into the answer to the caller.
///
/// # Errors
/// 403 if the request is not allowed.
pub(super) fn permit(decision: &AccessDecision, user: &User, info: &RequestInfo) -> Result<(), Status> {
    if decision.is_allowed() { Ok(()) } else { Err(info.forbidden(Some(&user.name), decision.reason())) }
}

/// Waits until this server's account may list and watch roles and bindings. Returns false if the server is dropped
/// before.
async fn may_follow_roles(upstream: &Weak<Upstream>) -> bool {
    let reads: Vec<_> = RbacKind::ALL
        .iter()
        .flat_map(|kind| {
            let path = format!("/apis/{}/v1/{}", rbac::GROUP, kind.resource());
            [None, Some("watch=1")].map(|query| RequestInfo::new("GET", &path, &Query::parse(query)))
        })
        .collect();
    let mut pause = REVIEW_WAIT;
    loop {
        let allowed = match upstream.upgrade() {
            Some(upstream) => upstream.may(&reads).await,
            None => return false,
        };
        if allowed == Ok(true) {
            return true;
        }
        tracing::info!(delay = ?pause, ?allowed, "roles and bindings not followed");
        sleep(pause).await;
        // An API server that has just started denies everything for a moment.
        pause = RIGHT_ASKED_EVERY.min(2 * pause);
    }
}

/// Decides about the requests of callers.
pub struct Authorizer {
    modes: Vec<AuthorizationMode>,
    followed: Arc<FollowedPolicies>,
    /// The API server's decisions about users that are known here; `None` if it decides by callers' own credentials.
    subjects: Option<Arc<SubjectRights>>,
    metrics: AuthorizationMetrics,
}

impl Authorizer {
    /// The authorizers of the settings. Without settings, every caller may do everything, or another server decides.
    pub fn new(config: &AuthorizationConfig, has_upstream: bool, metrics: AuthorizationMetrics) -> Self {
        let mut modes = config.modes.clone();
        if modes.is_empty() {
            modes.push(if has_upstream { AuthorizationMode::Upstream } else { AuthorizationMode::AlwaysAllow });
        }
        let followed = Arc::new(FollowedPolicies::new(&modes, has_upstream));
        Self { modes, followed, subjects: None, metrics }
    }

    /// Lets the API server behind this server decide about users that are known here, unless the settings name others.
    pub fn ask_about_users(&mut self, rights: Arc<SubjectRights>) {
        if matches!(*self.modes, [AuthorizationMode::Upstream]) {
            self.subjects = Some(rights);
        }
    }

    /// True if the API server behind this server decides about each read, by its caller's own credentials.
    pub fn decides_by_credentials(&self) -> bool {
        self.modes.contains(&AuthorizationMode::Upstream) && self.subjects.is_none()
    }

    /// True if the API server behind this server decides about users that are known here.
    pub const fn asks_others(&self) -> bool {
        self.subjects.is_some()
    }

    /// True if no question about a user is on its way to the API server.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        self.subjects.as_ref().is_none_or(|subjects| subjects.is_idle())
    }

    /// The followed roles and bindings, as far as they explain decisions of the API server behind this server.
    pub fn roles(&self) -> Arc<dyn FollowedRoles> {
        Arc::clone(&self.followed) as Arc<dyn FollowedRoles>
    }

    /// True if the API server behind this server decides.
    pub fn asks_upstream(&self) -> bool {
        self.followed.only_explains
    }

    /// Returns the task that follows roles and bindings, to explain the API server's decisions, from the time on at
    /// which this server's account may. It asks about that until the server is dropped.
    pub fn follow_once_allowed(
        &self,
        upstream: Weak<Upstream>,
        caches: Weak<Caches>,
        registry: Arc<Live>,
        tasks: Weak<SupervisedTasks>,
    ) -> impl FnMut() -> BoxFuture<'static, ()> + Send + 'static {
        let followed = Arc::clone(&self.followed);
        move || {
            let (followed, registry) = (Arc::clone(&followed), Arc::clone(&registry));
            let (upstream, caches, tasks) = (Weak::clone(&upstream), Weak::clone(&caches), Weak::clone(&tasks));
            async move {
                // The tasks that follow outlive a panic of this one.
                if followed.has_begun() || !may_follow_roles(&upstream).await {
                    return;
                }
                if let (Some(caches), Some(tasks)) = (caches.upgrade(), tasks.upgrade()) {
                    followed.follow(&caches, &registry, &tasks).await;
                }
            }
            .boxed()
        }
    }

    /// Follows the objects that the authorizers decide by from the first request on that needs them, until the caches are
    /// dropped. Members of `system:masters` need none.
    pub fn follow_when_needed(&self, caches: &Arc<Caches>, registry: &Arc<Live>, tasks: &Arc<SupervisedTasks>) {
        self.followed.begin_when_needed(caches, registry, tasks);
    }

    /// Follows the objects that the authorizers decide by, until the caches are dropped. Waits until they are known, at most
    /// 3 s ([`FRESH_WAIT`](crate::limits::FRESH_WAIT)).
    pub async fn follow(&self, caches: &Arc<Caches>, registry: &Live, tasks: &Arc<SupervisedTasks>) {
        self.followed.follow(caches, registry, tasks).await;
    }

    /// Returns `Ok` if `user` may send the request.
    ///
    /// # Errors
    /// 403 if it may not; 429 or 503 while that cannot be decided.
    pub async fn authorize(&self, user: &User, info: &RequestInfo, origin: QuestionOrigin) -> Result<(), Status> {
        permit(&self.decide_by_all(user, info, origin).await?, user, info)
    }

    /// Decides about a new request.
    ///
    /// # Errors
    /// 429 while roles and bindings are not known; 503 while the objects of nodes are not, and the decision may depend on them.
    pub async fn decide(&self, user: &User, info: &RequestInfo) -> Result<AccessDecision, Status> {
        self.decide_by_all(user, info, QuestionOrigin::Request).await
    }

    pub(super) async fn decide_by_all(
        &self,
        user: &User,
        info: &RequestInfo,
        origin: QuestionOrigin,
    ) -> Result<AccessDecision, Status> {
        if user.is_in(MASTERS) {
            self.metrics.allowed("Privileged");
            return Ok(AccessDecision::Allowed { reason: String::new() });
        }
        if is_health(info) {
            self.metrics.allowed("AlwaysAllow");
            return Ok(AccessDecision::Allowed { reason: String::new() });
        }
        let mut reasons = Vec::new();
        for &mode in &self.modes {
            match self.decide_by(mode, user, info, origin).await? {
                allowed @ AccessDecision::Allowed { .. } => {
                    self.metrics.allowed(mode.label());
                    return Ok(allowed);
                }
                AccessDecision::Denied { reason } | AccessDecision::NoOpinion { reason } => reasons.push(reason),
            }
        }
        self.metrics.denied();
        reasons.retain(|reason| !reason.is_empty());
        Ok(AccessDecision::NoOpinion { reason: reasons.join("\n") })
    }

    async fn decide_by(
        &self,
        mode: AuthorizationMode,
        user: &User,
        info: &RequestInfo,
        origin: QuestionOrigin,
    ) -> Result<AccessDecision, Status> {
        Ok(match mode {
            AuthorizationMode::AlwaysAllow => AccessDecision::Allowed { reason: String::new() },
            AuthorizationMode::Upstream => match &self.subjects {
                Some(subjects) => subjects.decide(user, info, origin).await?,
                None => AccessDecision::Allowed { reason: String::new() },
            },
            AuthorizationMode::Node => self.followed.decide_for_node(user, info).await?,
            AuthorizationMode::Rbac => {
                self.followed.roles_are_known().await?;
                self.followed.rbac.read().decide(user, info)
            }
            _ => AccessDecision::NoOpinion { reason: String::new() },
        })
    }

    /// Returns the types that must be read before the authorizers decide, by their plural names; `None` if nothing is followed.
    pub fn unread(&self) -> Option<Vec<&'static str>> {
        let follows = self.modes.iter().any(|mode| matches!(mode, AuthorizationMode::Node | AuthorizationMode::Rbac));
        follows.then(|| self.followed.unread().collect())
    }

    /// Returns the rules of a user in a namespace, as far as the authorizers can list them.
    ///
    /// # Errors
    /// 429 while roles and bindings are not known.
    pub async fn rules_for(&self, user: &User, namespace: &str) -> Result<SubjectRules, Status> {
        let mut rules = SubjectRules::default();
        for mode in &self.modes {
            match mode {
                AuthorizationMode::AlwaysAllow | AuthorizationMode::Upstream => rules.extend(&full_authority()),
                AuthorizationMode::Node => {
                    self.followed.ensure_begun();
                    rules.append(self.followed.node.read().rules_for(user));
                }
                AuthorizationMode::Rbac => rules.append(self.roles_of(user, namespace).await?),
                _ => {}
            }
        }
        Ok(rules)
    }

    /// Returns the rules that roles give to a user. None without roles and bindings.
    async fn roles_of(&self, user: &User, namespace: &str) -> Result<SubjectRules, Status> {
        self.followed.roles_are_known().await?;
        Ok(self.followed.rbac.read().rules_for(user, namespace))
    }

    /// True if rights can be withdrawn.
    pub fn checks_again(&self) -> bool {
        self.modes.iter().any(|mode| match mode {
            AuthorizationMode::AlwaysAllow => false,
            AuthorizationMode::Upstream => self.subjects.is_some(),
            AuthorizationMode::Node | AuthorizationMode::Rbac => true,
            _ => true,
        })
    }

    /// True if the content of writes by nodes is restricted: where the node authorizer decides about their requests.
    pub fn restricts_nodes(&self) -> bool {
        self.modes.contains(&AuthorizationMode::Node)
    }

    /// True if roles and bindings decide.
    pub fn has_roles(&self) -> bool {
        self.modes.contains(&AuthorizationMode::Rbac)
    }

    /// Number of the policies' version, which changes with roles and bindings; `None` if they never change, or without a
    /// notice. A change of pods has none.
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        (self.has_roles() || self.followed.only_explains).then(|| self.followed.changes())
    }
}

/// True for a probe, which every caller may send: a server must not look dead because its authorizer is away. As
/// `--authorization-always-allow-paths` of Kubernetes' servers that leave decisions to others.
fn is_health(info: &RequestInfo) -> bool {
    info.resource.is_none() && info.verb == "get" && HEALTH_PATHS.contains(&&*info.path)
}
