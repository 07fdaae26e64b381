//! Controllers on the store of an informer: one copy of the objects, one decoded value for each running reconcile.
//!
//! A [`Controller`] calls your reconciler for the objects of its primary informer: once for each object at the start,
//! and again when the object or a related one changes. Like kube's `Controller`, it never
//! runs two reconciles of an object at a time, and a hundred changes during a run make one more run.
//!
//! ```no_run
//! use std::{convert::Infallible, sync::Arc, time::Duration};
//! use informer::{Cluster, controller::{Controller, Requeue, changed}};
//! use k8s_openapi::api::{apps::v1::{Deployment, ReplicaSet}, core::v1::Secret};
//! use kube::runtime::reflector::ObjectRef;
//!
//! async fn reconcile(deployment: Arc<Deployment>, _: Arc<kube::Client>) -> Result<Requeue, Infallible> {
//!     println!("{:?}", deployment.metadata.name);
//!     Ok(Requeue::after(Duration::from_secs(3600)))
//! }
//!
//! # async fn doc(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::new(client.clone());
//! let (deployments, sets) = (cluster.informer::<Deployment>().start()?, cluster.informer::<ReplicaSet>().start()?);
//! let secrets = cluster.informer::<Secret>().labels("reload=wanted").metadata_only().start()?;
//! Controller::new(&deployments)
//!     .when(changed::generation)
//!     .owns(&sets)
//!     .watches(&secrets, |secret| Some(ObjectRef::new(secret.name()).within(secret.namespace())))
//!     .graceful_shutdown_on(async { drop(tokio::signal::ctrl_c().await) })
//!     .run(reconcile, |failure| { eprintln!("{failure}"); failure.backoff() }, Arc::new(client))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Differences from `kube::runtime::Controller`
//!
//! - The informers' stores are the only copy. Triggers, owners and predicates are read from metadata; an object is
//!   decoded when it is its turn, and the value is dropped after its last use.
//! - A relist triggers only what differs. Related objects that exist at the start trigger nothing, because every object
//!   is reconciled then.
//! - Reconciles run in tasks of their own: one that blocks or panics does not stop the others.
//! - At most [`RECONCILES_AT_ONCE`] run by default. Objects run in the order in which they were triggered.
//! - [`owns`](Controller::owns) follows the owner that is marked as controller, and checks its uid. It ignores the
//!   version in the reference, as controller-runtime does.
//! - The reconciler returns [`Requeue`]: kube's `Action` keeps its delay private, so another loop cannot read it. Inside
//!   `kube::runtime::finalizer`, return `Action::await_change()`, and your `Requeue` after it.
//!
//! `kube::runtime::finalizer` and `kube::runtime::events` work unchanged. The example `controller` has both, with
//! status conditions and leader election.
//!
//! # Memory
//!
//! The stores and one subscription for each informer, which shares its objects with the store; about 100 bytes and the
//! key for each object that waits; one decoded object for each running reconcile. Keys outside the store do not wait.

pub mod changed;
mod metadata;
mod queue;
mod runner;
mod trigger;

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture};
use kube::{
    Resource,
    runtime::reflector::{Lookup, ObjectRef},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use self::{
    metadata::Owners,
    queue::WorkQueue,
    runner::Runner,
    trigger::{PendingTriggers, Trigger, UpdatePredicate},
};
use crate::{
    decode::DecodeError, ended::EndReason, error::NotReady, informer::Informer, object::Object, object_ref::key_of,
};

/// Reconciles that run at once by default. Each holds one decoded object and the requests it sends.
pub const RECONCILES_AT_ONCE: usize = 16;

/// Time that running reconciles have by default to end after a shutdown began. Shorter than the 30 s after which the
/// kubelet kills a container.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);

/// Default delay after the first failure of an object. Each further failure in a row doubles it, as client-go's
/// `ItemExponentialFailureRateLimiter` does.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(5);

/// Longest default delay after a failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// A controller of the objects of one informer, not running yet. See the [module](self).
#[must_use = "a controller does nothing before run"]
pub struct Controller<K> {
    primary: Informer<K>,
    group: String,
    kind: String,
    when: UpdatePredicate<K>,
    related: Vec<PendingTriggers>,
    concurrency: usize,
    grace: Duration,
    shutdown: BoxFuture<'static, ()>,
}

impl<K> Controller<K>
where
    K: Resource + Send + Sync + 'static,
{
    /// Creates a controller for the objects of `primary`. It keeps this informer, and all related ones, running.
    pub fn new(primary: &Informer<K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(primary, &K::DynamicType::default())
    }

    /// Like [`new`](Self::new), for types known at run time.
    pub fn new_with(primary: &Informer<K>, dynamic_type: &K::DynamicType) -> Self {
        Self {
            primary: primary.clone(),
            group: K::group(dynamic_type).into_owned(),
            kind: K::kind(dynamic_type).into_owned(),
            when: Box::new(changed::resource_version),
            related: Vec::new(),
            concurrency: RECONCILES_AT_ONCE,
            grace: SHUTDOWN_GRACE,
            shutdown: std::future::pending().boxed(),
        }
    }

    /// Ignores updates of primary objects for which `predicate` is false, such as [`changed::generation`]. Its
    /// arguments are the versions this controller saw last and now. Default: every update counts. New objects always
    /// count, and so does the start of a deletion (`deletionTimestamp`), which finalizers wait for.
    pub fn when(mut self, predicate: impl Fn(&Object<K>, &Object<K>) -> bool + Send + 'static) -> Self {
        self.when = Box::new(predicate);
        self
    }

    /// Reconciles an object when one that it controls is added, updated or deleted: an object of `children` whose owner
    /// reference is marked `controller: true` and has the primary's group, kind and uid.
    pub fn owns<C: Send + Sync + 'static>(self, children: &Informer<C>) -> Self {
        self.owns_when(children, changed::resource_version)
    }

    /// Like [`owns`](Self::owns), but ignores updates of children for which `predicate` is false.
    pub fn owns_when<C: Send + Sync + 'static>(
        self,
        children: &Informer<C>,
        predicate: impl Fn(&Object<C>, &Object<C>) -> bool + Send + 'static,
    ) -> Self {
        self.owns_by(Owners::Controller, children, predicate)
    }

    /// Like [`owns`](Self::owns), for every owner reference with the primary's group, kind and uid, whether it is marked
    /// `controller: true` or not. kube's `Controller::owns` does this.
    pub fn owns_any<C: Send + Sync + 'static>(self, children: &Informer<C>) -> Self {
        self.owns_any_when(children, changed::resource_version)
    }

    /// Like [`owns_any`](Self::owns_any), but ignores updates of children for which `predicate` is false.
    pub fn owns_any_when<C: Send + Sync + 'static>(
        self,
        children: &Informer<C>,
        predicate: impl Fn(&Object<C>, &Object<C>) -> bool + Send + 'static,
    ) -> Self {
        self.owns_by(Owners::Any, children, predicate)
    }

    fn owns_by<C: Send + Sync + 'static>(
        mut self,
        owners: Owners,
        children: &Informer<C>,
        predicate: impl Fn(&Object<C>, &Object<C>) -> bool + Send + 'static,
    ) -> Self {
        let (group, kind) = (self.group.clone(), self.kind.clone());
        let map = move |child: &Object<C>| trigger::owner(child, owners, &group, &kind);
        self.related.push(trigger::of_related(children.clone(), Box::new(predicate), map));
        self
    }

    /// Reconciles the objects that `map` returns for an object of `related` that is added, updated or deleted. Of an
    /// update, both versions are mapped. References to objects that do not exist are ignored.
    pub fn watches<C, I>(self, related: &Informer<C>, map: impl Fn(&Object<C>) -> I + Send + 'static) -> Self
    where
        C: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>>,
    {
        self.watches_when(related, changed::resource_version, map)
    }

    /// Like [`watches`](Self::watches), but ignores updates of related objects for which `predicate` is false.
    pub fn watches_when<C, I>(
        mut self,
        related: &Informer<C>,
        predicate: impl Fn(&Object<C>, &Object<C>) -> bool + Send + 'static,
        map: impl Fn(&Object<C>) -> I + Send + 'static,
    ) -> Self
    where
        C: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>>,
    {
        let map = move |object: &Object<C>| map(object).into_iter().map(|to| trigger_of(&to)).collect();
        self.related.push(trigger::of_related(related.clone(), Box::new(predicate), map));
        self
    }

    /// Reconciles each object that `references` yields, if it exists. The end of the stream ends nothing.
    pub fn reconcile_on(mut self, references: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.related.push(trigger::of_stream(references.map(|to| trigger_of(&to))));
        self
    }

    /// Reconciles every object each time `times` yields, for example after a change of the settings. The end of the
    /// stream ends nothing.
    pub fn reconcile_all_on(mut self, times: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.related.push(trigger::of_stream(times.map(|()| Trigger::All)));
        self
    }

    /// Sets how many reconciles run at once, at least one. Default [`RECONCILES_AT_ONCE`].
    pub fn concurrency(mut self, reconciles: usize) -> Self {
        self.concurrency = reconciles.max(1);
        self
    }

    /// Stops the controller once `trigger` resolves: no reconcile starts, and those that run may end within
    /// [`shutdown_grace`](Self::shutdown_grace). Default: never. To stop at once, drop the future of [`run`](Self::run),
    /// which aborts the reconciles that run.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = trigger.boxed();
        self
    }

    /// Sets how long reconciles may run after a shutdown began, before they are aborted. Default [`SHUTDOWN_GRACE`].
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Waits until all informers are ready, then calls `reconcile` for every object, and again as it is triggered.
    /// `error_policy` receives each failure and decides when the object is reconciled again; the default to return is
    /// [`ReconcileFailure::backoff`]. A change of the object cancels the delay.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ControllerError`] if an informer ended, or if reconciles were aborted at the end of the grace period.
    pub async fn run<C, E, F>(
        self,
        reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
        error_policy: impl FnMut(&ReconcileFailure<'_, E>) -> Requeue,
        context: Arc<C>,
    ) -> Result<(), ControllerError>
    where
        K: DeserializeOwned,
        C: Send + Sync + 'static,
        E: Send + 'static,
        F: Future<Output = Result<Requeue, E>> + Send + 'static,
    {
        let Self { primary, when, related: mut sources, concurrency, grace, shutdown, .. } = self;
        sources.push(trigger::of_primary(primary.clone(), when));
        let reconcile = Arc::new(reconcile);
        let reconcile = move |object: Arc<K>| reconcile(object, Arc::clone(&context)).boxed();
        let (queue, running) = (WorkQueue::default(), JoinSet::new());
        let runner = Runner { primary, reconcile, error_policy, concurrency, queue, running };
        runner.run(sources, shutdown, grace).await
    }
}

impl<K> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("primary", &self.primary).finish_non_exhaustive()
    }
}

/// The trigger of a referenced object.
fn trigger_of<K: Lookup>(to: &ObjectRef<K>) -> Trigger {
    Trigger::Object(key_of(to.namespace.as_deref().unwrap_or_default(), &to.name))
}

/// When to reconcile an object again if nothing triggers it earlier. Like kube's `Action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requeue(Option<Duration>);

impl Requeue {
    /// Reconciles the object again after this time.
    #[must_use]
    pub const fn after(delay: Duration) -> Self {
        Self(Some(delay))
    }

    /// Reconciles the object again only when it is triggered. Triggers are not lost, so that this is enough unless the
    /// reconciler reads state outside the cluster.
    #[must_use]
    pub const fn await_change() -> Self {
        Self(None)
    }

    /// The delay; `None` for [`await_change`](Self::await_change).
    #[must_use]
    pub const fn delay(self) -> Option<Duration> {
        self.0
    }
}

/// A reconcile that failed, for the error policy.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReconcileFailure<'a, E> {
    /// The object: `namespace/name`, or `name`.
    pub key: &'a str,
    /// Failures of this object in a row, including this one. A policy that returns [`Requeue::await_change`] ends the row.
    pub failures: u32,
    /// The reason.
    pub error: &'a ReconcileError<E>,
}

impl<E> ReconcileFailure<'_, E> {
    /// A delay that doubles with each failure in a row, from [`BACKOFF_FIRST`] to [`BACKOFF_MAX`]. An object that does
    /// not decode waits for its next change.
    #[must_use]
    pub fn backoff(&self) -> Requeue {
        match self.error {
            ReconcileError::Undecodable(_) => Requeue::await_change(),
            ReconcileError::Failed(_) | ReconcileError::Panicked => {
                let doublings = self.failures.saturating_sub(1);
                let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
                Requeue::after(BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MAX))
            }
        }
    }
}

impl<E: fmt::Display> fmt::Display for ReconcileFailure<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reconcile {} of {} in a row failed: {}", self.failures, self.key, self.error)
    }
}

/// Reason why a reconcile failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError<E> {
    /// The reconciler returned this error.
    #[error("{0}")]
    Failed(E),
    /// The object is no `K`. The reconciler was not called.
    #[error(transparent)]
    Undecodable(DecodeError),
    /// The reconciler panicked.
    #[error("the reconciler panicked")]
    Panicked,
}

/// Reason why a controller ended, other than a shutdown in which all reconciles ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// An informer ended before it was ready.
    #[error("an informer ended: {0}")]
    NotReady(#[source] NotReady),
    /// An informer ended: it was stopped, or a function of the program panicked in its task.
    #[error("the informer of {request} has ended")]
    InformerEnded {
        /// Its last request; see [`Informer::explain`].
        request: String,
        /// The reason of its end.
        #[source]
        reason: EndReason,
    },
    /// Reconciles still ran at the end of the grace period, and were aborted.
    #[error("{reconciles} reconciles were aborted: they ran for longer than the grace period")]
    Aborted {
        /// Number of reconciles.
        reconciles: usize,
    },
}
