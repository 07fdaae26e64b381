//! Follows the objects that authorizers decide by, in the caches of their types, whatever fills those.
//!
//! INVARIANT: level-triggered, as every controller: the policies are those of the current objects. INVARIANT: until all
//! roles and bindings were read once, nothing is decided by them, and until the objects of nodes were, no node is refused for
//! want of a relation; afterwards the last known ones decide, however long the source is away.

use std::{
    convert::Infallible,
    mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use access_rules::{
    decision::AccessDecision,
    node::{NodeAuthorizer, NodeObjectKind},
    rbac::{GROUP, RbacKind, RbacPolicy},
    request_info::RequestInfo,
    user::User,
};
use futures::future::join_all;
use informer_core::KeyedObject as _;
use informer_serving::status::{Details, Status, StatusExt as _};
use parking_lot::RwLock;
use tokio::{sync::watch, time::timeout};
use watch_cache::{CacheSnapshot, Entry};

use crate::{
    cacher::Caches,
    config::AuthorizationMode,
    limits::{FRESH_WAIT, ROLES_SILENT_MAX},
    passes::{self, Controller, PassOutcome},
    registry::{Live, ResourceType},
    settled::SettledPosition,
    supervised::SupervisedTasks,
};

/// Seconds after which a client may repeat a request that could not be decided.
const UNDECIDED_RETRY_SECONDS: u32 = 1;

/// A kind of object that an authorizer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FollowedKind {
    Rbac(RbacKind),
    Node(NodeObjectKind),
}

impl FollowedKind {
    fn ty(self, registry: &Live) -> Arc<ResourceType> {
        let (group, plural) = self.resource();
        registry.now().find(group, "v1", plural).expect("a built-in type")
    }

    /// API group and plural name.
    const fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Rbac(kind) => (GROUP, kind.resource()),
            Self::Node(kind) => kind.resource(),
        }
    }
}

/// The roles and bindings that another server decides by.
pub trait FollowedRoles: Send + Sync {
    /// Number of their changes so far; `None` while they are not known to be up to date.
    fn version(&self) -> Option<u64>;

    /// True if they allow `info` to `subject`.
    fn allow(&self, subject: &User, info: &RequestInfo) -> bool;
}

/// The state of the authorizers, kept up to date by tasks.
pub(super) struct FollowedPolicies {
    pub(super) rbac: RwLock<RbacPolicy>,
    pub(super) node: RwLock<NodeAuthorizer>,
    /// Each followed kind, with the position up to which its objects are read.
    kinds: Vec<(FollowedKind, Arc<SettledPosition>)>,
    /// True once all roles and bindings were read.
    are_roles_known: AtomicBool,
    /// Number of changes of roles and bindings.
    version: watch::Sender<u64>,
    /// True if roles and bindings decide nothing here: they explain decisions of the API server behind this server.
    pub(super) only_explains: bool,
    /// The caches and types of roles and bindings, once they are followed.
    caches: OnceLock<(Weak<Caches>, Vec<Arc<ResourceType>>)>,
    /// Set if the first decision that needs them starts the tasks.
    deferred: OnceLock<DeferredStart>,
}

/// The start of the tasks, put off until a decision needs them.
struct DeferredStart {
    caches: Weak<Caches>,
    registry: Arc<Live>,
    tasks: Weak<SupervisedTasks>,
    started: OnceLock<()>,
}

impl FollowedPolicies {
    /// Follows nothing yet. In front of a cluster, the cluster's own controllers complete its roles.
    pub(super) fn new(modes: &[AuthorizationMode], has_upstream: bool) -> Self {
        let has = |mode| modes.contains(&mode);
        let only_explains = has_upstream && has(AuthorizationMode::Upstream);
        let has_roles = has(AuthorizationMode::Rbac) || only_explains;
        let rbac = RbacKind::ALL.into_iter().filter(|_| has_roles).map(FollowedKind::Rbac);
        let node = NodeObjectKind::ALL.into_iter().filter(|_| has(AuthorizationMode::Node)).map(FollowedKind::Node);
        let kinds = rbac.chain(node).map(|kind| (kind, Arc::default())).collect();
        let rbac = RwLock::new(if has_upstream { RbacPolicy::of_cluster() } else { RbacPolicy::default() });
        let (node, are_roles_known, caches, deferred) = Default::default();
        Self { rbac, node, kinds, are_roles_known, version: watch::Sender::new(0), only_explains, caches, deferred }
    }

    /// Puts the start of the tasks off until a decision needs them.
    pub(super) fn begin_when_needed(&self, caches: &Arc<Caches>, registry: &Arc<Live>, tasks: &Arc<SupervisedTasks>) {
        let (caches, registry, tasks) = (Arc::downgrade(caches), Arc::clone(registry), Arc::downgrade(tasks));
        let _ = self.deferred.set(DeferredStart { caches, registry, tasks, started: OnceLock::new() });
    }

    /// Starts the tasks if that was put off.
    pub(super) fn ensure_begun(self: &Arc<Self>) {
        let Some(DeferredStart { caches, registry, tasks, started }) = self.deferred.get() else { return };
        started.get_or_init(|| {
            if let (Some(caches), Some(tasks)) = (caches.upgrade(), tasks.upgrade()) {
                self.begin(&caches, registry, &tasks);
            }
        });
    }

    /// True once the tasks of all kinds were started.
    pub(super) fn has_begun(&self) -> bool {
        self.caches.get().is_some()
    }

    /// Starts a task for each kind.
    fn begin(self: &Arc<Self>, caches: &Arc<Caches>, registry: &Live, tasks: &Arc<SupervisedTasks>) {
        for (kind, settled) in &self.kinds {
            let (kind, policies, settled) = (*kind, Arc::downgrade(self), Arc::clone(settled));
            let (ty, name) = (kind.ty(registry), format!("authorization/{}", kind.resource().1));
            let follower = move || {
                let (policies, settled) = (Weak::clone(&policies), Arc::clone(&settled));
                PolicyFollower::new(kind, policies, settled)
            };
            tasks.spawn(name, passes::restartable(follower, Arc::downgrade(caches), ty));
        }
        let types = self.roles().map(|(kind, _)| kind.ty(registry)).collect();
        let _ = self.caches.set((Arc::downgrade(caches), types));
    }

    /// Starts a task for each kind, and waits until all are read, at most [`FRESH_WAIT`].
    pub(super) async fn follow(self: &Arc<Self>, caches: &Arc<Caches>, registry: &Live, tasks: &Arc<SupervisedTasks>) {
        self.begin(caches, registry, tasks);
        let known = join_all(self.kinds.iter().map(|(_, settled)| settled.known()));
        if timeout(FRESH_WAIT, known).await.is_err() {
            tracing::warn!(timeout = ?FRESH_WAIT, "authorization start wait timed out");
        }
    }

    /// Waits until all roles and bindings were read once, at most [`FRESH_WAIT`].
    ///
    /// # Errors
    /// 429 if they are not.
    pub(super) async fn roles_are_known(self: &Arc<Self>) -> Result<(), Status> {
        self.ensure_begun();
        if self.are_roles_known.load(Ordering::Acquire) {
            return Ok(());
        }
        let known = join_all(self.roles().map(|(_, settled)| settled.known()));
        if timeout(FRESH_WAIT, known).await.is_err() {
            return Err(Status::too_many_requests("roles and bindings are not known yet", UNDECIDED_RETRY_SECONDS));
        }
        self.are_roles_known.store(true, Ordering::Release);
        Ok(())
    }

    /// Decides about a request of a node. A refusal waits until the objects that may relate the node were read once, at most
    /// [`FRESH_WAIT`]; a relation that is known allows at once.
    ///
    /// # Errors
    /// 503 if they are not: clients take 403 for an answer, and repeat the request after this one.
    pub(super) async fn decide_for_node(
        self: &Arc<Self>,
        user: &User,
        info: &RequestInfo,
    ) -> Result<AccessDecision, Status> {
        self.ensure_begun();
        let kinds = NodeAuthorizer::deciding_kinds(user, info);
        let is_deciding = |kind: FollowedKind| kinds.iter().any(|&deciding| kind == FollowedKind::Node(deciding));
        // Before the decision: an object that is read after it would not count.
        let unread: Vec<_> =
            self.kinds.iter().filter(|(kind, settled)| is_deciding(*kind) && !settled.is_known()).collect();
        let decision = self.node.read().decide(user, info);
        if unread.is_empty() || decision.is_allowed() {
            return Ok(decision);
        }
        if timeout(FRESH_WAIT, join_all(unread.iter().map(|(_, settled)| settled.known()))).await.is_err() {
            let details = Details { retry_after_seconds: UNDECIDED_RETRY_SECONDS, ..Details::default() };
            let status = Status::unavailable("the objects that relate nodes to others are not known yet");
            return Err(Status { details: Some(details), ..status });
        }
        Ok(self.node.read().decide(user, info))
    }

    /// Plural names of the followed types whose objects were not read yet.
    pub(super) fn unread(&self) -> impl Iterator<Item = &'static str> {
        let is_put_off = self.deferred.get().is_some_and(|deferred| deferred.started.get().is_none());
        let unread = self.kinds.iter().filter(move |(_, settled)| !is_put_off && !settled.is_known());
        // Clusters before 1.34 do not serve the version of ResourceSlices that is followed, and work without.
        let unread = unread.filter(|(kind, _)| *kind != FollowedKind::Node(NodeObjectKind::Slice));
        unread.map(|(kind, _)| kind.resource().1)
    }

    /// Waits until all roles and bindings that are stored now are read, at most [`FRESH_WAIT`]: a client that wrote a role
    /// may bind it with its next request.
    pub(super) async fn catch_up(self: &Arc<Self>, caches: &Caches, registry: &Live) {
        self.ensure_begun();
        let waits = self.roles().map(async |(kind, settled)| settled.wait(caches, &kind.ty(registry)).await);
        if join_all(waits).await.iter().any(Result::is_err) {
            tracing::warn!(timeout = ?FRESH_WAIT, "authorization wait timed out");
        }
    }

    fn roles(&self) -> impl Iterator<Item = &(FollowedKind, Arc<SettledPosition>)> {
        self.kinds.iter().filter(|(kind, _)| matches!(kind, FollowedKind::Rbac(_)))
    }

    /// Number of changes of roles and bindings.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Takes over an object, or its deletion. Returns true if decisions may change by it.
    fn set(&self, kind: FollowedKind, entry: &Entry, is_present: bool) -> bool {
        let (namespace, name) = entry.key().split_once('/').unwrap_or_else(|| ("", entry.key()));
        let object = entry.object();
        let set = match (kind, is_present) {
            (FollowedKind::Rbac(kind), true) => self.rbac.write().apply(kind, namespace, name, &object),
            (FollowedKind::Rbac(kind), false) => Ok(self.rbac.write().remove(kind, namespace, name)),
            (FollowedKind::Node(kind), true) => self.node.write().graph.apply(kind, namespace, name, &object),
            (FollowedKind::Node(kind), false) => Ok(self.node.write().graph.remove(kind, namespace, name)),
        };
        set.unwrap_or_else(|_| {
            // The parser's text has parts of the object.
            let resource = kind.resource().1;
            tracing::warn!(resource, key = entry.key(), reason = "unreadable", "authorization object skipped");
            true
        })
    }
}

impl FollowedRoles for FollowedPolicies {
    fn version(&self) -> Option<u64> {
        let (caches, types) = self.caches.get()?;
        let caches = caches.upgrade()?;
        let version = *self.version.borrow();
        let are_followed = self.roles().all(|(_, settled)| settled.is_known())
            && types.iter().all(|ty| caches.is_followed(ty, ROLES_SILENT_MAX));
        are_followed.then_some(version)
    }

    fn allow(&self, subject: &User, info: &RequestInfo) -> bool {
        self.rbac.read().decide(subject, info).is_allowed()
    }
}

/// The task of one kind.
struct PolicyFollower {
    kind: FollowedKind,
    policies: Weak<FollowedPolicies>,
    settled: Arc<SettledPosition>,
    /// True if decisions may have changed since the last pass.
    has_changed: bool,
}

impl PolicyFollower {
    /// Begins with a change: a follower before this one may have panicked between a change and its notice.
    const fn new(kind: FollowedKind, policies: Weak<FollowedPolicies>, settled: Arc<SettledPosition>) -> Self {
        Self { kind, policies, settled, has_changed: true }
    }

    fn set(&mut self, entry: &Entry, is_present: bool) {
        if let Some(policies) = self.policies.upgrade() {
            self.has_changed |= policies.set(self.kind, entry, is_present);
        }
    }

    /// Gives notice of changes since the last one.
    fn publish(&mut self) {
        let Some(policies) = self.policies.upgrade() else { return };
        if mem::take(&mut self.has_changed) && matches!(self.kind, FollowedKind::Rbac(_)) {
            policies.version.send_modify(|version| *version += 1);
        }
    }
}

impl Controller for PolicyFollower {
    type Error = Infallible;

    const RETRY_PAUSE: Duration = Duration::from_millis(500);
    const HELD_PAUSE: Duration = Duration::ZERO;
    const READ_AT_ONCE: usize = 64;

    fn learn(&mut self, entry: &Arc<Entry>, _position: u64) {
        self.set(entry, true);
    }

    fn forget(&mut self, entry: &Entry) {
        self.set(entry, false);
    }

    async fn pass(&mut self, _caches: &Caches, _snapshot: &CacheSnapshot) -> Result<PassOutcome, Infallible> {
        self.publish();
        Ok(PassOutcome::Settled(Vec::new()))
    }

    fn settle(&self, position: u64) {
        self.settled.reach(position);
    }

    fn failed(&self, error: &Infallible) {
        match *error {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watch_cache::{Draft, Schema};

    use super::*;

    /// Goal: changes whose follower panicked before its notice are noticed. Method: followers learn a role and go; the next
    /// one learns the same role.
    #[test]
    fn a_restarted_follower_gives_notice_of_changes_before_it() {
        let policies = Arc::new(FollowedPolicies::new(&[AuthorizationMode::Rbac], false));
        let kind = FollowedKind::Rbac(RbacKind::ClusterRole);
        let schema = Schema {
            kind: "ClusterRole".into(),
            api_version: "rbac.authorization.k8s.io/v1".into(),
            builtin: true,
            fields: Vec::new(),
            node_field: None,
        };
        let role =
            json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        let role = Draft::new(&schema, role.to_string().as_bytes()).expect("an object").commit(1);
        let changes = policies.changes();
        for _ in 0..2 {
            let mut follower = PolicyFollower::new(kind, Arc::downgrade(&policies), Arc::default());
            follower.learn(&role, 1);
            assert!(!changes.has_changed().expect("open"), "not before its notice");
        }
        let mut follower = PolicyFollower::new(kind, Arc::downgrade(&policies), Arc::default());
        follower.learn(&role, 1);
        follower.publish();
        assert!(changes.has_changed().expect("open"));
    }
}
