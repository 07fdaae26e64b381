//! Controllers on the store of an informer: one copy of the objects, one decoded value for each running reconcile.
//!
//! A [`Controller`] calls your reconciler for the objects of its primary informer: once for each object at the start,
//! and again when the object or a related one changes. Like kube's `Controller`, it never
//! runs two reconciles of an object at a time, and a hundred changes during a run make one more run.
//!
//! ```no_run
//! use std::{convert::Infallible, sync::Arc, time::Duration};
//! use informer::{Cluster, ObjectRef, controller::{Controller, Requeue, changed}};
//! use k8s_openapi::api::{apps::v1::{Deployment, ReplicaSet}, core::v1::Secret};
//! use kube::core::PartialObjectMeta;
//!
//! async fn reconcile(deployment: Arc<Deployment>, _: Arc<kube::Client>) -> Result<Requeue, Infallible> {
//!     println!("{:?}", deployment.metadata.name);
//!     Ok(Requeue::after(Duration::from_secs(3600)))
//! }
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::try_default().await?;
//! let (deployments, sets) = (cluster.informer::<Deployment>().start()?, cluster.informer::<ReplicaSet>().start()?);
//! let secrets = cluster.informer::<Secret>().labels("reload=wanted").metadata_only::<PartialObjectMeta<Secret>>();
//! let secrets = secrets.start()?;
//! Controller::new(&deployments)
//!     .when(changed::generation)
//!     .owns(&sets)
//!     .watches(&secrets, |secret| Some(ObjectRef::new(secret.name()).within(secret.namespace())))
//!     .shutdown_on_signal()
//!     .run(reconcile, |failure| failure.backoff(), Arc::new(cluster.client()))
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
//! - At most [`RECONCILES_AT_ONCE`] run by default, in the order of their triggers. Changed objects come first, except
//!   at two of eight turns, so that no others starve.
//! - All failing objects share one [budget](Controller::retry_budget) of attempts, as in client-go: a webhook that is
//!   down costs ten attempts a second, however many objects fail.
//! - Each failure is logged as a warning, with key, attempt, error and delay. Lines of a reconcile are in the span
//!   `reconcile`, with the key. [Metrics](Controller::metrics) are named as in controller-runtime.
//! - A type that is missing or forbidden ends the controller after [two minutes](SYNC_DEADLINE), with its name.
//! - [`owns`](Controller::owns) follows the owner that is marked as controller, and checks its uid. It ignores the
//!   version in the reference, as controller-runtime does.
//! - The reconciler returns [`Requeue`]: kube's `Action` keeps its delay private, so another loop cannot read it. Inside
//!   `kube::runtime::finalizer`, return `Action::await_change()`, and your `Requeue` after it.
//!
//! `kube::runtime::finalizer` and `kube::runtime::events` work unchanged. The example `controller` has both, with
//! status conditions and leader election; `manager` has two controllers in one program, with probes and metrics.
//!
//! # Memory
//!
//! The stores and one subscription for each informer, which shares its objects with the store; about 150 bytes and the
//! key for each object that waits; one decoded object for each running reconcile. Keys outside the store do not wait.

mod budget;
pub mod changed;
mod failure;
mod metadata;
mod meter;
#[cfg(feature = "metrics")]
mod metrics;
mod queue;
mod results;
mod runner;
mod signal;
mod trigger;

use std::{collections::HashSet, error::Error as StdError, fmt, sync::Arc, time::Duration};

use futures::{FutureExt as _, Stream, StreamExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

#[cfg(feature = "metrics")]
pub use self::metrics::ControllerMetrics;
use self::{
    budget::RetryBudget,
    metadata::Owners,
    meter::Meter,
    queue::WorkQueue,
    results::{PendingResults, Results},
    runner::{ControllerLife, DELAY_MAX, OnDeleted, Runner},
    signal::Shutdown,
    trigger::{Deletions, PendingTriggers, Trigger, UpdatePredicate},
};
pub use self::{
    failure::{BACKOFF_FIRST, BACKOFF_MAX, ControllerError, RETRY_AFTER_MAX, ReconcileError, ReconcileFailure},
    results::ReconcileOutcome,
    signal::shutdown_signal,
};
use crate::{informer::Informer, object::Object, object_ref::ObjectRef, readiness::Readiness};

/// Reconciles that run at once by default. Each holds one decoded object and the requests it sends.
pub const RECONCILES_AT_ONCE: usize = 16;

/// Time that running reconciles have by default to end after a shutdown began. Shorter than the 30 s after which the
/// kubelet kills a container.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);

/// Time within which the informers of a controller must be ready by default, as in controller-runtime.
pub const SYNC_DEADLINE: Duration = Duration::from_secs(120);

/// Attempts a second at failing objects by default, for all objects of a controller, as in client-go.
pub const RETRIES_PER_SECOND: f64 = 10.0;

/// Attempts at failing objects that may come at once by default, as in client-go.
pub const RETRIES_BURST: u32 = 100;

/// A controller of the objects of one informer, not running yet. See the [module](self).
#[must_use = "a controller does nothing before run"]
pub struct Controller<K> {
    primary: Informer<K>,
    group: String,
    kind: String,
    when: UpdatePredicate<K>,
    related: Vec<PendingTriggers>,
    /// The primary informer and the related ones.
    informers: Vec<Readiness>,
    settings: Settings,
    on_deleted: Option<OnDeleted<K>>,
    shutdown: Shutdown,
    #[cfg(feature = "metrics")]
    metrics: Option<ControllerMetrics>,
}

/// Settings that depend on no type.
#[derive(Debug)]
struct Settings {
    name: String,
    concurrency: usize,
    budget: RetryBudget,
    debounce: Duration,
    sync_deadline: Duration,
    grace: Duration,
}

impl<K> Controller<K>
where
    K: Send + Sync + 'static,
{
    /// Creates a controller for the objects of `primary`. It keeps this informer, and all related ones, running.
    pub fn new(primary: &Informer<K>) -> Self {
        let of = primary.type_meta();
        Self {
            primary: primary.clone(),
            group: of.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: of.kind.clone(),
            when: Box::new(changed::resource_version),
            related: Vec::new(),
            informers: vec![primary.readiness()],
            settings: Settings {
                name: of.kind.to_lowercase(),
                concurrency: RECONCILES_AT_ONCE,
                budget: RetryBudget::new(RETRIES_PER_SECOND, RETRIES_BURST),
                debounce: Duration::ZERO,
                sync_deadline: SYNC_DEADLINE,
                grace: SHUTDOWN_GRACE,
            },
            on_deleted: None,
            shutdown: std::future::pending().boxed(),
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// Sets the name in log lines, spans and metrics. Default: the kind of the primary objects in lower case.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Counts this controller in `metrics`, under its [name](Self::name).
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &ControllerMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
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
        self.follow(children, Box::new(predicate), map);
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
        self.follow(related, Box::new(predicate), map);
        self
    }

    fn follow<C: Send + Sync + 'static>(
        &mut self,
        related: &Informer<C>,
        predicate: UpdatePredicate<C>,
        map: impl Fn(&Object<C>) -> Vec<Trigger> + Send + 'static,
    ) {
        self.informers.push(related.readiness());
        self.related.push(trigger::of_related(related.clone(), predicate, map));
    }

    /// Reconciles each object that `references` yields, if it exists. The end of the stream ends nothing.
    pub fn reconcile_on(mut self, references: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.related.push(trigger::of_stream(references.map(|to| trigger_of(&to))));
        self
    }

    /// Reconciles every object each time `times` yields, for example after a change of the settings. Those that failed
    /// keep their delay. The end of the stream ends nothing.
    pub fn reconcile_all_on(mut self, times: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.related.push(trigger::of_stream(times.map(|()| Trigger::All)));
        self
    }

    /// Calls `handler` with the last known version of each deleted object, when it is the object's turn: after its
    /// reconcile has ended, and before an object that was created with its name is reconciled. An object created and
    /// deleted again before that turn is skipped.
    ///
    /// For state outside the cluster, such as a map or a metric of this program. Deletions while the controller does not
    /// run are not seen, so clean-up that must not be missed needs a finalizer. A panic of the handler is a failure of
    /// the object, and is not repeated.
    ///
    /// Memory: the deleted objects whose turn has not come.
    pub fn on_deleted<F>(mut self, handler: impl Fn(Object<K>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_deleted = Some(Arc::new(move |last_known| handler(last_known).boxed()));
        self
    }

    /// Sets how many reconciles run at once, at least one. Default [`RECONCILES_AT_ONCE`].
    pub fn concurrency(mut self, reconciles: usize) -> Self {
        self.settings.concurrency = reconciles.max(1);
        self
    }

    /// Gathers the triggers of an object for this time after the first one, for one reconcile. Default zero. Does not
    /// delay the objects that exist at the start. A trigger never puts the reconcile off, unlike kube's `debounce`.
    pub fn debounce(mut self, time: Duration) -> Self {
        self.settings.debounce = time.min(DELAY_MAX);
        self
    }

    /// Sets how many attempts a second are made at failing objects, for all of them together, and how many at once.
    /// Default [`RETRIES_PER_SECOND`] and [`RETRIES_BURST`].
    ///
    /// Every reconcile of an object whose last one failed takes a token of the budget, and returns it if it succeeds.
    /// Once as many reconciles as a burst has have failed without a success between them, all others wait for a token
    /// too, until one succeeds. So a webhook that is down, or a missing right, costs this many attempts a second,
    /// however many objects exist. Objects that changed come before the rest, and failing ones come last, except at two
    /// of eight turns, so that none starves.
    ///
    /// An attempt is one reconcile, whose requests kube's own client repeats: up to 16 times at a 429, 503 or 504, after
    /// a `Retry-After` of any length, during which it fills one of the [slots](Self::concurrency). The client of
    /// `Cluster::try_default` repeats none.
    pub fn retry_budget(mut self, per_second: f64, burst: u32) -> Self {
        self.settings.budget = RetryBudget::new(per_second, burst);
        self
    }

    /// Sets the time within which all informers must be ready after [`run`](Self::run) began. Default
    /// [`SYNC_DEADLINE`]; `Duration::MAX` waits as long as they run.
    pub fn sync_deadline(mut self, deadline: Duration) -> Self {
        self.settings.sync_deadline = deadline;
        self
    }

    /// Stops the controller once `trigger` resolves: no reconcile starts, and those that run may end within
    /// [`shutdown_grace`](Self::shutdown_grace). Of several triggers, the first one counts. Default: never. To stop at
    /// once, drop the future of [`run`](Self::run), which aborts the reconciles that run.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = signal::either(self.shutdown, trigger.map(|()| std::future::pending().boxed()).boxed());
        self
    }

    /// Like [`graceful_shutdown_on`](Self::graceful_shutdown_on), at the [signals](shutdown_signal) that end programs:
    /// SIGTERM and SIGINT. A second signal aborts the reconciles that run.
    pub fn shutdown_on_signal(mut self) -> Self {
        self.shutdown = signal::either(self.shutdown, signal::shutdown_on_signals().boxed());
        self
    }

    /// Sets how long reconciles may run after a shutdown began, before they are aborted. Default [`SHUTDOWN_GRACE`].
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Waits until all informers are ready, then calls `reconcile` for every object, and again as it is triggered.
    /// Objects that changed come first, except at two of eight turns, so that no others starve.
    ///
    /// `error_policy` receives each failure and decides when the object is reconciled again; the default to return is
    /// [`ReconcileFailure::backoff`]. A change of the object cancels the delay. Each failure is logged as a warning.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ControllerError`] if an informer was not ready in time or ended, or if reconciles were aborted at the end of the
    /// grace period.
    pub async fn run<C, E, F>(
        self,
        reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
        error_policy: impl FnMut(&ReconcileFailure<'_, E>) -> Requeue,
        context: Arc<C>,
    ) -> Result<(), ControllerError>
    where
        K: DeserializeOwned,
        C: Send + Sync + 'static,
        E: StdError + Send + 'static,
        F: Future<Output = Result<Requeue, E>> + Send + 'static,
    {
        self.drive(reconcile, error_policy, context, drop).await
    }

    /// Like [`run`](Self::run), as a stream of the results of all reconciles. The controller runs while the stream is
    /// polled. The last item is the error, if there was one.
    pub fn run_stream<C, E, F>(
        self,
        reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
        error_policy: impl FnMut(&ReconcileFailure<'_, E>) -> Requeue + Send + 'static,
        context: Arc<C>,
    ) -> impl Stream<Item = Result<ReconcileOutcome<K, E>, ControllerError>> + Send + 'static
    where
        K: DeserializeOwned,
        C: Send + Sync + 'static,
        E: StdError + Send + 'static,
        F: Future<Output = Result<Requeue, E>> + Send + 'static,
    {
        let pending = PendingResults::default();
        let sink = Arc::clone(&pending);
        let run = self.drive(reconcile, error_policy, context, move |reconciled| sink.lock().push_back(reconciled));
        Results::new(run, pending)
    }

    async fn drive<C, E, F>(
        self,
        reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
        error_policy: impl FnMut(&ReconcileFailure<'_, E>) -> Requeue,
        context: Arc<C>,
        sink: impl FnMut(ReconcileOutcome<K, E>),
    ) -> Result<(), ControllerError>
    where
        K: DeserializeOwned,
        C: Send + Sync + 'static,
        E: StdError + Send + 'static,
        F: Future<Output = Result<Requeue, E>> + Send + 'static,
    {
        let meter = self.meter();
        let Self { primary, when, related: mut sources, informers, settings, on_deleted, shutdown, .. } = self;
        let Settings { name, concurrency, budget, debounce, sync_deadline, grace } = settings;
        let on_deleted = on_deleted.map(|handler| (handler, Arc::new(Deletions::new())));
        let deletions = on_deleted.as_ref().map(|(_, deletions)| Arc::clone(deletions));
        sources.push(trigger::of_primary(primary.clone(), when, deletions));
        let reconcile = Arc::new(reconcile);
        let runner = Runner {
            name: name.into(),
            primary,
            reconcile: move |object: Arc<K>| reconcile(object, Arc::clone(&context)).boxed(),
            error_policy,
            sink,
            on_deleted,
            concurrency,
            queue: WorkQueue::new(debounce, budget),
            meter,
            logged: HashSet::new(),
            running: JoinSet::new(),
        };
        runner.run(ControllerLife { sources, informers, sync_deadline, shutdown, grace }).await
    }

    fn meter(&self) -> Meter {
        Meter {
            #[cfg(feature = "metrics")]
            series: self.metrics.as_ref().map(|metrics| metrics.series(&self.settings.name, self.settings.concurrency)),
        }
    }
}

impl<K> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("primary", &self.primary).finish_non_exhaustive()
    }
}

/// The trigger of a referenced object.
fn trigger_of<K>(to: &ObjectRef<K>) -> Trigger {
    Trigger::Object(to.key().to_owned())
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
