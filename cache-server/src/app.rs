//! The shared parts of a running server. Used as `Arc<App>`; after the start the parts change only behind their own
//! locks.

// The storages that are built in: each has the constructor of an app over it.
#[cfg(feature = "durable")]
mod durable;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod forks;
#[cfg(feature = "assets")]
mod network;
#[cfg(not(feature = "assets"))]
#[path = "app/network/absent.rs"]
mod network;
mod progress;
mod quota_turns;
#[cfg(feature = "upstream")]
mod upstream;

use std::{
    io,
    ops::Deref,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use access_rules::user::User;
use informer_serving::status::Status;
use parking_lot::Mutex;

use self::{forks::Forks, network::ServiceNetwork};
pub(crate) use self::{
    forks::{Fork, ForkError},
    network::AllocationTurn,
    progress::{StartPart, StartProgress},
    quota_turns::QuotaTurns,
};
use crate::{
    access::{
        Access,
        audit::{AuditLog, AuditRecord},
        authenticate::Authenticator,
        authorize::{Authorizer, bootstrap},
        flow::{self, FlowControl},
        lease::{self, HeldRight},
    },
    budget::{Room, Work},
    cacher::Caches,
    config::{Config, FlowSource},
    controllers::{definitions::DefinitionsHandle, leftovers, namespaces::Namespaces},
    limits,
    metrics::Metrics,
    registry::{Live, Registry, ResourceType},
    storage::{Store, StoreFile},
    supervised::SupervisedTasks,
    traces::Traces,
    upstream::{
        error::{NO_SUCH_TYPE, UpstreamError},
        gateway::Upstream,
        identity::{self, ClusterName},
    },
    watched::FileWatcher,
    webhooks::{RequestAdmission, Webhooks},
};

/// The parts of a running server.
pub struct App {
    /// Its settings.
    pub config: Config,
    /// The current resource types.
    pub registry: Arc<Live>,
    /// Tasks that are started again after a panic.
    pub(crate) tasks: Arc<SupervisedTasks>,
    /// Follows the CustomResourceDefinitions and updates the registry.
    pub(crate) definitions: DefinitionsHandle,
    /// Destination of writes.
    pub(crate) writes: Writes,
    /// The watch caches in front of the source.
    pub caches: Arc<Caches>,
    /// Memory budget of request bodies.
    pub(crate) room: Room,
    /// Concurrency limits of writes.
    pub(crate) work: Work,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The rules of access.
    pub(crate) access: Access,
    /// Checks the files of the settings for changes.
    pub(crate) files: FileWatcher,
    /// Progress of the start.
    pub(crate) progress: StartProgress,
    /// Spans of requests.
    pub(crate) traces: Arc<Traces>,
    /// Servers that began with the objects of this one.
    pub(crate) forks: Forks,
    /// Addresses of its Services.
    pub(crate) network: ServiceNetwork,
    /// The webhooks that decide about writes.
    pub(crate) webhooks: Webhooks,
    /// Turns of writes that charge quotas.
    pub(crate) quota_turns: QuotaTurns,
}

/// Destination of writes. Reads do not depend on it.
pub(crate) enum Writes {
    /// This server's own store.
    Local(LocalWrites),
    /// The API server behind this server, with the callers' own credentials.
    Forward(Arc<Upstream>),
}

/// A store that this server writes to, and the controllers that write to it.
pub(crate) struct LocalWrites {
    /// The objects.
    pub(crate) store: Arc<dyn Store>,
    /// Finishes the deletion of namespaces.
    pub(crate) namespaces: Namespaces,
    duty: ControllerDuty,
}

/// The controllers that this server runs over its store.
enum ControllerDuty {
    /// All of them: no other process uses the store.
    Alone {
        /// The file of the store; `None` if the objects are only in memory.
        file: Option<Arc<dyn StoreFile>>,
    },
    /// All of them, as other servers of the store do at the same time.
    Shared,
    /// None: another program runs them.
    None,
}

/// An [`App`] whose writes are local. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct LocalApp<'a> {
    app: &'a App,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) namespaces: &'a Namespaces,
    /// The caller whose rights bound its writes; `None` for the server itself.
    pub(crate) caller: Option<&'a User>,
    /// Records of the request that writes; `None` without an audit log.
    pub(crate) audit: Option<&'a AuditRecord>,
    /// The webhooks that may decide about the write, if there are any for its type. Objects are decoded whole then.
    pub(crate) admission: Option<&'a RequestAdmission>,
    /// Name of the owner of the fields that the write sets; `None` if the server records none.
    pub(crate) manager: Option<&'a str>,
    /// True if the write sets the Scale of an object.
    pub(crate) is_scale: bool,
}

impl<'a> LocalApp<'a> {
    /// The app for the writes of a request.
    pub(crate) const fn of(self, caller: Option<&'a User>, audit: Option<&'a AuditRecord>) -> Self {
        Self { caller, audit, ..self }
    }

    /// The app for the writes that `admission` decides about.
    pub(crate) const fn admitted_by(self, admission: Option<&'a RequestAdmission>) -> Self {
        Self { admission, ..self }
    }

    /// The app for the writes of a manager of fields.
    pub(crate) const fn managed_by(self, manager: Option<&'a str>) -> Self {
        Self { manager, ..self }
    }

    /// The app for writes of an object that set its Scale.
    pub(crate) const fn for_scale(self) -> Self {
        Self { is_scale: true, ..self }
    }
}

impl Deref for LocalApp<'_> {
    type Target = App;

    fn deref(&self) -> &App {
        self.app
    }
}

impl App {
    fn assemble(
        config: Config,
        caches: Caches,
        files: FileWatcher,
        writes: impl FnOnce(&Arc<Caches>, &Arc<Live>, &Arc<SupervisedTasks>) -> Writes,
    ) -> Self {
        assert!(members_are_sorted(), "serde_json is built with its feature preserve_order");
        let caches = Arc::new(caches);
        let types = if config.acts_as_cluster { Registry::of_cluster() } else { Registry::builtin() };
        let registry = Arc::new(Live::new(types));
        let tasks = Arc::clone(files.tasks());
        let writes = writes(&caches, &registry, &tasks);
        let store = match &writes {
            Writes::Local(LocalWrites { duty: ControllerDuty::None, .. }) | Writes::Forward(_) => None,
            Writes::Local(LocalWrites { store, .. }) => Some(Arc::clone(store)),
        };
        let definitions = DefinitionsHandle::new(store, Arc::clone(&caches), Arc::clone(&registry), Arc::clone(&tasks));
        let flow = FlowControl::new(config.flow.seats);
        let metrics = Metrics::new(Arc::clone(&registry));
        let metrics = metrics.with(|registry| flow.register(registry)).with(|registry| tasks.register(registry));
        let metrics = Arc::new(metrics);
        let (room, work) = (Room::of_server(), Work::default());
        let mut authorizer =
            Authorizer::new(&config.authorization, config.upstream.is_some(), metrics.authorization.clone());
        if let Writes::Forward(upstream) = &writes
            && config.authentication.is_configured()
        {
            authorizer.ask_about_users(upstream.subject_rights());
        }
        let access = Access::new(Authenticator::unsecured(), authorizer, flow).with_watches_max(config.watches_max);
        let progress = StartProgress::default();
        let traces = Arc::<Traces>::default();
        let forks = if config.forks { Forks::allowed() } else { Forks::default() };
        let network = ServiceNetwork::new(&config);
        Self {
            config,
            registry,
            tasks,
            definitions,
            writes,
            caches,
            room,
            work,
            metrics,
            access,
            files,
            progress,
            traces,
            forks,
            network,
            webhooks: Webhooks::default(),
            quota_turns: QuotaTurns::default(),
        }
    }

    /// Returns the app with its store; `None` if writes are not local. Without own objects in the build, the optimizer
    /// drops what needs them.
    pub(crate) fn local(&self) -> Option<LocalApp<'_>> {
        match &self.writes {
            Writes::Local(LocalWrites { store, namespaces, .. }) if cfg!(feature = "embedded") => {
                let (caller, audit, admission, manager) = (None, None, None, None);
                Some(LocalApp { app: self, store, namespaces, caller, audit, admission, manager, is_scale: false })
            }
            Writes::Local(_) | Writes::Forward(_) => None,
        }
    }

    /// Returns the API server behind this server; `None` if writes are local. See [`Self::local`].
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match &self.writes {
            Writes::Forward(upstream) if cfg!(feature = "upstream") => Some(upstream),
            Writes::Local(_) | Writes::Forward(_) => None,
        }
    }

    /// Returns the named types, and true for each whose cache is filled. Starts the caches of those whose definition
    /// became known after the start.
    pub(crate) fn named(&self) -> Vec<(Arc<ResourceType>, bool)> {
        let named = self.upstream().map(|upstream| upstream.named_types(&self.registry.now()));
        let state = |ty: Arc<ResourceType>| {
            if !self.caches.is_started(&ty) && self.upstream().is_none_or(Upstream::is_reached) {
                self.caches.start(&ty);
            }
            let is_filled = self.caches.is_filled(&ty);
            (ty, is_filled)
        };
        named.into_iter().flatten().map(state).collect()
    }

    /// Opens the audit log of the settings.
    ///
    /// # Errors
    /// The file, and the error of the operating system.
    pub(crate) fn open_audit_log(&mut self) -> Result<(), (PathBuf, io::Error)> {
        if let Some(settings) = &self.config.audit {
            let opened = AuditLog::open(settings, self.metrics.audit.clone());
            let path = || settings.file.clone().unwrap_or_else(|| "-".into());
            self.access.audit = Some(opened.map_err(|error| (path(), error))?);
        }
        Ok(())
    }

    /// Starts the checks of the rights of open watches, if rights can be withdrawn.
    pub(crate) fn keep_checking_rights(self: &Arc<Self>) {
        if self.upstream().is_none() && !self.access.checks_again() {
            return;
        }
        let (leases, changes) = (Arc::downgrade(&self.access.leases), self.access.changes());
        let (app, roles) = (Arc::downgrade(self), self.access.authorizer.roles());
        self.tasks.spawn("watch-rights", move || {
            let app = Weak::clone(&app);
            let check = move |right, may_ask| check_right(Weak::clone(&app), right, may_ask);
            lease::keep_checking(Weak::clone(&leases), changes.clone(), Arc::clone(&roles), check)
        });
    }

    /// True if the controllers of this server write objects of their own.
    pub(crate) fn runs_controllers(&self) -> bool {
        match &self.writes {
            Writes::Local(local) => !matches!(local.duty, ControllerDuty::None),
            Writes::Forward(_) => false,
        }
    }

    /// True if other servers may write to the store of this one.
    pub(crate) fn shares_store(&self) -> bool {
        !matches!(&self.writes, Writes::Local(LocalWrites { duty: ControllerDuty::Alone { .. }, .. }))
    }

    /// Returns the file of the objects, if they are in one.
    pub(crate) fn file(&self) -> Option<&Arc<dyn StoreFile>> {
        match &self.writes {
            Writes::Local(LocalWrites { duty: ControllerDuty::Alone { file }, .. }) => file.as_ref(),
            Writes::Local(_) | Writes::Forward(_) => None,
        }
    }

    /// Starts the tasks of flow control.
    pub(crate) fn keep_flow_control(&self) {
        let flow = Arc::downgrade(&self.access.flow);
        let checked = Weak::clone(&flow);
        self.tasks.spawn("flow-seats", move || flow::keep_checking(Weak::clone(&checked)));
        if self.config.flow.source == FlowSource::Stored {
            let (caches, registry) = (Arc::downgrade(&self.caches), Arc::clone(&self.registry));
            self.tasks.spawn("flow-control", move || {
                flow::follow(Weak::clone(&flow), Weak::clone(&caches), Arc::clone(&registry))
            });
        }
    }

    /// Waits until the caches of all named types are filled, however long that takes.
    async fn filled(&self) {
        while !self.definitions.are_known() || self.named().iter().any(|(_, is_filled)| !is_filled) {
            tokio::time::sleep(FILLED_CHECK_EVERY).await;
        }
    }

    /// Reads the stored definitions and follows them from now on, finishes what an earlier process began, and starts the
    /// caches of named types. Call before serving requests. With an API server behind this one, waits until it was reached,
    /// however long that takes.
    pub async fn start(&self) {
        if let Writes::Forward(upstream) = &self.writes {
            self.progress.wait_for(StartPart::Upstream);
            let is_doubted = |cluster: &ClusterName| self.caches.has_states_of_others(cluster.uid());
            let cluster = upstream.identity.reached(is_doubted).await;
            self.caches.settle_cluster(cluster.uid());
            self.follow_identity(upstream, cluster);
        }
        self.progress.wait_for(StartPart::Definitions);
        self.definitions.settle().await;
        if let Writes::Local(LocalWrites { store, namespaces, duty }) = &self.writes {
            self.progress.wait_for(StartPart::Deletions);
            match duty {
                ControllerDuty::Alone { file } => {
                    let terminating = file.as_ref().map(|file| file.terminating()).unwrap_or_default();
                    leftovers::finish(&**store, namespaces, &self.registry.now(), &terminating).await;
                }
                ControllerDuty::Shared => {
                    namespaces.settle().await;
                    let (caches, registry) = (Arc::downgrade(&self.caches), Arc::clone(&self.registry));
                    let store = Arc::clone(store);
                    self.tasks.spawn("leftovers", move || {
                        leftovers::keep_finishing(Weak::clone(&caches), Arc::clone(&store), Arc::clone(&registry))
                    });
                }
                ControllerDuty::None => {}
            }
        }
        self.progress.wait_for(StartPart::Authorization);
        self.start_authorizer().await;
        self.begin_caches().await;
        self.progress.complete();
    }

    /// Checks which cluster answers at the addresses, and ends all histories when it is no longer `cluster`.
    fn follow_identity(&self, upstream: &Arc<Upstream>, cluster: ClusterName) {
        let (checked, last_answer) = (Arc::downgrade(&upstream.identity), Arc::clone(&upstream.last_answer));
        self.tasks.spawn("upstream-identity", move || {
            identity::keep_checking(Weak::clone(&checked), Arc::clone(&last_answer))
        });
        let (upstream, caches) = (Arc::downgrade(upstream), Arc::downgrade(&self.caches));
        // Outlives a panic, so that no change of the cluster is missed.
        let followed = Arc::new(Mutex::new(cluster));
        self.tasks.spawn("upstream-cluster", move || {
            follow_cluster(Weak::clone(&upstream), Weak::clone(&caches), Arc::clone(&followed))
        });
    }

    /// Starts the caches of named types. Waits until they are filled, if the server listens only then.
    async fn begin_caches(&self) {
        let Some(upstream) = self.upstream() else { return };
        self.progress.wait_for(StartPart::Caches);
        upstream.report_unknown(&self.registry.now());
        self.named();
        if upstream.is_on_demand() {
            let (caches, registry) = (Arc::downgrade(&self.caches), Arc::clone(&self.registry));
            self.tasks.spawn("idle-caches", move || expire_idle(Weak::clone(&caches), Arc::clone(&registry)));
        }
        if self.config.upstream.as_ref().is_some_and(|settings| settings.listens_when_ready) {
            self.filled().await;
        }
    }

    /// Checks the settings that name types, once all types are known.
    ///
    /// # Errors
    /// [`UpstreamError::Scope`] for a scope of a type that does not exist.
    pub(crate) fn check_scopes(&self) -> Result<(), UpstreamError> {
        let Some(upstream) = self.upstream().filter(|_| self.definitions.are_known()) else { return Ok(()) };
        match upstream.unknown_scope(&self.registry.now()) {
            Some(ty) => Err(UpstreamError::Scope { ty: ty.to_owned(), problem: NO_SUCH_TYPE }),
            None => Ok(()),
        }
    }

    /// Stores the roles of a cluster if they decide here and no other program keeps them, and follows what decides.
    async fn start_authorizer(&self) {
        let authorizer = &self.access.authorizer;
        if let Writes::Local(LocalWrites { store, duty, .. }) = &self.writes
            && authorizer.has_roles()
            && !matches!(duty, ControllerDuty::None)
        {
            bootstrap::store_objects(&self.caches, &**store, &self.registry).await;
        }
        match &self.writes {
            Writes::Forward(upstream) if authorizer.asks_upstream() => {
                let (upstream, caches) = (Arc::downgrade(upstream), Arc::downgrade(&self.caches));
                let (registry, tasks) = (Arc::clone(&self.registry), Arc::downgrade(&self.tasks));
                let task = authorizer.follow_once_allowed(upstream, caches, registry, tasks);
                self.tasks.spawn("roles-allowed", task);
            }
            Writes::Local(_) | Writes::Forward(_) => {
                authorizer.follow(&self.caches, &self.registry, &self.tasks).await;
            }
        }
    }
}

/// Decides again whether the caller of an open watch keeps its right. If `may_ask`, the API server reviews it; returns
/// the reason of its allow.
async fn check_right(app: Weak<App>, right: Arc<HeldRight>, may_ask: bool) -> Result<Option<Arc<str>>, Status> {
    let Some(app) = app.upgrade() else { return Ok(None) };
    let mut reason = None;
    if let (Some(upstream), Some(credentials)) = (app.upstream().filter(|_| may_ask), &right.credentials) {
        let held = right.allow.lock().clone();
        let allow = upstream.check_again(credentials, &right.info, right.is_forwarded, held.as_ref()).await?;
        reason = Some(Arc::clone(&allow.reason));
        *right.allow.lock() = Some(allow);
    }
    let decided = app.access.admit_again(&right.caller, &right.info, may_ask).await?;
    Ok(reason.or_else(|| decided.map(Arc::from)))
}

/// Ends all histories when the addresses of the API server have turned to another cluster than `followed`, until the server
/// is dropped.
async fn follow_cluster(upstream: Weak<Upstream>, caches: Weak<Caches>, followed: Arc<Mutex<ClusterName>>) {
    let Some(mut changes) = upstream.upgrade().map(|upstream| upstream.identity.changes()) else { return };
    let is_followed = changes.borrow().as_ref() == Some(&*followed.lock());
    if !is_followed {
        changes.mark_changed();
    }
    while changes.changed().await.is_ok() {
        let Some(cluster) = changes.borrow_and_update().clone() else { continue };
        let (Some(upstream), Some(caches)) = (upstream.upgrade(), caches.upgrade()) else { return };
        caches.replace_cluster(cluster.uid());
        // A uid that could not be read before names the cluster that the caches have.
        if followed.lock().uid().is_some() {
            upstream.source.lose_histories();
        }
        *followed.lock() = cluster;
    }
}

/// Pause between two checks whether the named types are filled.
const FILLED_CHECK_EVERY: Duration = Duration::from_millis(20);

/// Ends idle caches until the server is dropped.
async fn expire_idle(caches: Weak<Caches>, registry: Arc<Live>) {
    loop {
        tokio::time::sleep(limits::CACHE_IDLE / 10).await;
        let Some(caches) = caches.upgrade() else { return };
        caches.expire(&registry.now(), limits::CACHE_IDLE);
    }
}

/// Returns true unless `serde_json` keeps members in insertion order.
fn members_are_sorted() -> bool {
    let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(r#"{"b":0,"a":0}"#);
    read.is_ok_and(|members| members.keys().next().is_some_and(|first| first == "a"))
}

#[cfg(test)]
mod tests;
