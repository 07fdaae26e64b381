//! Forks: servers in this process, each of which began with the objects that another one had at one moment.
//!
//! A fork has no address of its own. Its paths are those of its origin below `/snapshots/NAME`, a prefix that the common
//! clients take with their server's URL. So it costs no socket, port or task, and callers prove who they are as they do to
//! its origin, over the same connections. A port of its own would need another listener, certificate check and limit of
//! connections, and would be out of reach of a forwarded port.
//!
//! INVARIANT: a fork costs a few reference counts for each type, however many objects it has: objects, types and documents
//! are shared until one side changes them, and a cache is filled by the first request for its type. INVARIANT: the
//! budgets, turns and records of requests are those of the whole process. INVARIANT: forks do not keep each other or their
//! origin: the origin owns the table of them all.
//!
//! Not copied: the windows of events, so that watches from before the fork get 410, and what requests have begun, such as
//! deletions between the mark of an object and its removal.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use informer_core::Objects;
use parking_lot::Mutex;

use super::{App, ControllerDuty, LocalWrites, QuotaTurns, StartProgress, Writes, network::ServiceNetwork};
use crate::{
    access::authorize::Authorizer,
    controllers::{
        definitions::{DEFINITIONS, DefinitionsHandle},
        namespaces::{NAMESPACES, Namespaces},
    },
    limits::FORKS_MAX,
    storage::StoreFork,
    watched::FileWatcher,
    webhooks::Webhooks,
};

/// A server's access to the forks of its process.
#[derive(Default)]
pub(crate) struct Forks {
    table: Weak<ForkTable>,
    /// Name of the fork that has this; `None` in the server that is no fork.
    own: Option<String>,
    /// Only in the server that is no fork.
    _owned: Option<Arc<ForkTable>>,
}

/// All forks, by name. Forks of forks are among them.
#[derive(Default)]
struct ForkTable(Mutex<BTreeMap<String, Fork>>);

/// One fork.
#[derive(Clone)]
pub(crate) struct Fork {
    /// The name in its paths.
    pub(crate) name: String,
    /// Name of the fork that it was forked from; `None` if that was the server.
    origin: Option<String>,
    /// The server.
    pub(crate) app: Arc<App>,
    /// Revision at which it began.
    pub(crate) revision: u64,
}

/// Reason why there is no new fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForkError {
    /// There are [`FORKS_MAX`].
    TooMany,
    /// The objects are not in memory, or the origin has ended.
    NotForked,
}

impl Forks {
    /// Forks of a server that may have some.
    pub(super) fn allowed() -> Self {
        let table = Arc::<ForkTable>::default();
        Self { table: Arc::downgrade(&table), own: None, _owned: Some(table) }
    }

    /// True if this server may be forked.
    pub(crate) fn are_allowed(&self) -> bool {
        self.table.strong_count() > 0
    }

    /// Forks `origin`. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ForkError`].
    pub(crate) fn begin(&self, origin: &App) -> Result<Fork, ForkError> {
        let table = self.table.upgrade().ok_or(ForkError::NotForked)?;
        let all = &mut *table.0.lock();
        if FORKS_MAX <= all.len() {
            return Err(ForkError::TooMany);
        }
        let name: String = (0..NAME_CHARS).map(|_| fastrand::lowercase()).collect();
        let forks = Self { table: Weak::clone(&self.table), own: Some(name.clone()), _owned: None };
        let (app, revision) = App::fork(origin, forks).ok_or(ForkError::NotForked)?;
        let fork = Fork { name: name.clone(), origin: self.own.clone(), app, revision };
        all.insert(name, fork.clone());
        Ok(fork)
    }

    /// True for all forks in the server that is none, and in a fork for itself and its own: its roles decide about no other.
    fn is_ours(&self, fork: &Fork) -> bool {
        self.own.is_none() || self.own.as_ref() == Some(&fork.name) || self.own == fork.origin
    }

    /// Returns a fork that requests to this server may see and end.
    pub(crate) fn ours(&self, name: &str) -> Option<Fork> {
        self.get(name).filter(|fork| self.is_ours(fork))
    }

    /// Returns a fork.
    pub(crate) fn get(&self, name: &str) -> Option<Fork> {
        self.table.upgrade()?.0.lock().get(name).cloned()
    }

    /// Returns all forks that requests to this server may see and end.
    pub(crate) fn all(&self) -> Vec<Fork> {
        let all = |table: Arc<ForkTable>| table.0.lock().values().filter(|fork| self.is_ours(fork)).cloned().collect();
        self.table.upgrade().map(all).unwrap_or_default()
    }

    /// Ends a fork and its watches. Requests that it has begun end as they would have. Returns it if it was there.
    pub(crate) fn end(&self, name: &str) -> Option<Fork> {
        self.ours(name)?;
        let fork = self.table.upgrade()?.0.lock().remove(name)?;
        fork.app.caches.shut_down();
        Some(fork)
    }

    /// Ends all forks.
    pub(crate) fn end_all(&self) {
        for fork in self.all() {
            self.end(&fork.name);
        }
    }
}

impl App {
    /// Builds a server with the objects that `origin` has now, and returns it with their revision. `None` if the objects
    /// of `origin` are not in memory.
    fn fork(origin: &Self, forks: Forks) -> Option<(Arc<Self>, u64)> {
        let Writes::Local(LocalWrites { store, namespaces, .. }) = &origin.writes else { return None };
        // A definition is stored before its types are served, and removed after they were withdrawn: types that did not
        // change around the copy are those of its definitions, but for definitions that are not in effect yet.
        let (in_effect, types, StoreFork { store, revision, mut objects }) = loop {
            let (in_effect, types) = (origin.definitions.settled_at(), origin.registry.now());
            let copied = store.fork()?;
            if Arc::ptr_eq(&types, &origin.registry.now()) {
                break (in_effect, types, copied);
            }
        };
        let registry = Arc::new(origin.registry.beside(types));
        let (caches, tasks) = (Arc::new(origin.caches.beside(Arc::clone(&store) as _)), Arc::clone(&origin.tasks));
        caches.retain(&registry.now());
        let mut taken = |id| objects.remove(id).unwrap_or_else(Objects::new);
        let mut definitions = DefinitionsHandle::new(
            Some(Arc::clone(&store)),
            Arc::clone(&caches),
            Arc::clone(&registry),
            Arc::clone(&tasks),
        );
        let are_settled = definitions.take_over(&taken(DEFINITIONS), in_effect);
        let duty = ControllerDuty::Alone { file: None };
        let had_ended = namespaces.has_begun();
        let namespaces = Namespaces::new(Arc::clone(&store), &caches, Arc::clone(&registry), Arc::clone(&tasks));
        if had_ended {
            namespaces.take_over(&taken(NAMESPACES));
        }
        let authorizer = Authorizer::new(&origin.config.authorization, false, origin.metrics.authorization.clone());
        let app = Arc::new(Self {
            config: origin.config.clone(),
            registry,
            tasks,
            definitions,
            writes: Writes::Local(LocalWrites { store, namespaces, duty }),
            caches,
            room: origin.room.clone(),
            work: origin.work.clone(),
            metrics: Arc::clone(&origin.metrics),
            access: origin.access.beside(authorizer),
            files: FileWatcher::default(),
            progress: StartProgress::default(),
            traces: Arc::clone(&origin.traces),
            forks,
            network: ServiceNetwork::new(&origin.config),
            webhooks: Webhooks::default(),
            quota_turns: QuotaTurns::default(),
        });
        app.access.authorizer.follow_when_needed(&app.caches, &app.registry, &app.tasks);
        app.keep_checking_rights();
        if !are_settled {
            let app = Arc::downgrade(&app);
            tokio::spawn(async move {
                let Some(app) = app.upgrade() else { return };
                app.definitions.settle().await;
            });
        }
        Some((app, revision))
    }
}

/// Letters of a name: one that was used before hardly comes again, so that its clients find nothing.
const NAME_CHARS: usize = 10;
