//! The shared copies of a cluster: counted by their users, and stopped a grace period after the last one.
//!
//! INVARIANT: a copy in the registry has users, or its grace period is running. Users are added, and unused copies
//! removed, under the registry's lock.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    future::pending,
    sync::{Arc, Weak, atomic::AtomicU64},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{derive::DerivedCopy, question::CopyQuestion};
use crate::{
    config::Config,
    decode::DecodedObjects,
    ended::EndReason,
    keep_alive::{InformerHold, KeepAlive},
    lifetime::{Lifetime, StateAtShutdown},
    progress::Progress,
    readiness::{DeclaredObjects, Readiness},
    status::InformerReport,
    subscription::Source,
};

/// The running copies of one cluster. Memory: one entry for each.
#[derive(Default)]
pub(crate) struct SharedCopies {
    by_question: Mutex<CopyTable>,
    /// Copies that follow other copies, those with indexes of one user included.
    derived: Mutex<Vec<Weak<SharedCopy>>>,
}

/// The copies by what they hold.
pub(crate) type CopyTable = HashMap<CopyQuestion, Arc<SharedCopy>>;

/// A copy with any number of users, whatever type they decode its objects to.
pub(crate) struct SharedCopy {
    pub(crate) question: CopyQuestion,
    pub(crate) origin: CopyOrigin,
    pub(crate) source: Source,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) decoders: Decoders,
    /// Settings of the requests, as its first user declared them.
    pub(crate) settings: Config,
    users: watch::Sender<CopyUsers>,
}

/// The users of a copy.
struct CopyUsers {
    count: usize,
    /// When the count last became zero.
    left_at: Instant,
}

/// Source of a shared copy's objects.
pub(crate) enum CopyOrigin {
    /// A watch of its own.
    Watch,
    /// A wider copy, whose objects are filtered.
    Wider,
    /// The copies of `count` watches, merged; some of them may be filtered out of wider ones.
    Namespaces { count: usize, has_filtered: bool },
    /// Another copy, to which one user's indexes are added.
    Indexed(Arc<SharedCopy>),
}

/// Keeps a copy in step as long as it exists.
pub(crate) enum CopyFeed {
    /// An informer with a task of its own, which its drop ends.
    Watch { _running: Arc<KeepAlive> },
    /// A store that follows other copies, in the copy's task.
    Derived(Box<DerivedCopy>),
}

/// The caches of decoded objects of one copy, by type. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Decoders {
    by_type: Arc<Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
    undecodable: Arc<AtomicU64>,
}

/// One use of a shared copy. Its drop ends the use.
pub(crate) struct CopyUse {
    pub(crate) copy: Arc<SharedCopy>,
}

impl SharedCopies {
    pub(crate) fn lock(&self) -> MutexGuard<'_, CopyTable> {
        self.by_question.lock()
    }

    pub(crate) fn add_derived(&self, copy: &Arc<SharedCopy>) {
        let mut derived = self.derived.lock();
        derived.retain(|copy| copy.strong_count() > 0);
        derived.push(Arc::downgrade(copy));
    }

    /// Returns the running copies that follow other copies, in the order of their start.
    fn derived(&self) -> Vec<Arc<SharedCopy>> {
        let derived = self.derived.lock();
        derived.iter().filter_map(Weak::upgrade).filter(|copy| copy.is_running()).collect()
    }

    /// Returns the readiness of the running copies that follow other copies, in the order of their start.
    pub(crate) fn derived_readiness(&self) -> Vec<Readiness> {
        let readiness =
            |copy: &Arc<SharedCopy>| Readiness::new(copy.objects(), Lifetime::of_driver(copy.progress.clone()));
        self.derived().iter().map(readiness).collect()
    }

    /// Returns description and status of the running copies that follow other copies, in the order of their start.
    pub(crate) fn derived_reports(&self) -> Vec<InformerReport> {
        let report = |copy: &Arc<SharedCopy>| {
            let state = copy.source.now.borrow().clone();
            copy.objects().report(&copy.progress.borrow(), &state, true)
        };
        self.derived().iter().map(report).collect()
    }

    /// Removes a copy that has had no users for `grace`. Returns false if it has, or had some meanwhile.
    fn remove_unused(&self, copy: &Arc<SharedCopy>, grace: Duration) -> bool {
        let mut table = self.lock();
        let is_unused = {
            let users = copy.users.borrow();
            users.count == 0 && users.left_at.elapsed() >= grace
        };
        if is_unused {
            remove(&mut table, copy);
        }
        is_unused
    }

    /// Runs a copy until it has had no users for `grace`, or until `feed` ends.
    pub(crate) async fn keep(self: Arc<Self>, copy: Arc<SharedCopy>, grace: Duration, mut feed: CopyFeed) {
        tokio::select! { biased;
            () = self.unused(&copy, grace) => feed.ending(EndReason::Dropped),
            () = feed.run() => {}
        }
        // Ended before it leaves the table: the table's users see its end, and start another copy.
        drop(feed);
        let mut table = self.lock();
        remove(&mut table, &copy);
    }

    async fn unused(&self, copy: &Arc<SharedCopy>, grace: Duration) {
        let mut users = copy.users.subscribe();
        loop {
            // An error would mean that the copy is dropped, but it is borrowed here.
            let left_at = users.wait_for(|users| users.count == 0).await.map(|users| users.left_at);
            let until = left_at.ok().and_then(|left_at| left_at.checked_add(grace));
            let used = users.wait_for(|users| users.count > 0);
            let is_over = match until {
                Some(until) => timeout_at(until, used).await.is_err(),
                // A grace period beyond the end of time.
                None => used.await.is_err(),
            };
            // A user that came and left before this task ran began another grace period.
            if is_over && self.remove_unused(copy, grace) {
                return;
            }
        }
    }
}

impl CopyFeed {
    /// Runs until the copy can no longer be kept in step.
    async fn run(&mut self) {
        match self {
            Self::Watch { .. } => pending().await,
            Self::Derived(derived) => derived.run().await,
        }
    }

    /// Sets the reason with which a drop ends the copy. An informer has its own.
    const fn ending(&mut self, reason: EndReason) {
        match self {
            Self::Watch { .. } => {}
            Self::Derived(derived) => derived.ending(reason),
        }
    }
}

/// Removes this copy, unless another one has taken its place.
fn remove(table: &mut CopyTable, copy: &Arc<SharedCopy>) {
    if table.get(&copy.question).is_some_and(|known| Arc::ptr_eq(known, copy)) {
        table.remove(&copy.question);
    }
}

impl SharedCopy {
    pub(crate) fn new(
        question: CopyQuestion,
        origin: CopyOrigin,
        source: Source,
        progress: watch::Receiver<Progress>,
        decoders: Decoders,
        settings: Config,
    ) -> Self {
        let users = watch::Sender::new(CopyUsers { count: 0, left_at: Instant::now() });
        Self { question, origin, source, progress, decoders, settings, users }
    }

    /// Returns false once the copy has ended: by a panic in its task, or with its runtime.
    pub(crate) fn is_running(&self) -> bool {
        self.progress.borrow().ended.is_none()
    }

    /// Returns true if the copy follows the server by a watch, and its initial state is complete.
    pub(crate) fn is_watching(&self) -> bool {
        let progress = self.progress.borrow();
        progress.is_synced && !progress.is_polling && progress.ended.is_none()
    }

    fn objects(&self) -> Arc<DeclaredObjects> {
        Arc::new(DeclaredObjects::from(&self.question))
    }

    /// Returns true if a wider copy that others declared supplies some of the objects.
    pub(crate) fn is_filtered(&self) -> bool {
        match &self.origin {
            CopyOrigin::Watch => false,
            CopyOrigin::Wider => true,
            CopyOrigin::Namespaces { has_filtered, .. } => *has_filtered,
            CopyOrigin::Indexed(copy) => copy.is_filtered(),
        }
    }

    fn note(&self) -> String {
        let users = self.users.borrow().count;
        match &self.origin {
            CopyOrigin::Watch => format!("shared by {users}"),
            CopyOrigin::Wider => format!("shared by {users}, filtered here: {}", self.question),
            CopyOrigin::Namespaces { count, .. } => format!("shared by {users}, one of {count} watches"),
            CopyOrigin::Indexed(copy) => copy.note(),
        }
    }
}

impl Decoders {
    /// Creates the caches of a copy with the one of the informer that feeds it.
    pub(crate) fn of<K: Send + Sync + 'static>(first: Arc<DecodedObjects<K>>) -> Self {
        let undecodable = first.undecodable_count();
        let decoders = Self { by_type: Arc::default(), undecodable };
        decoders.by_type.lock().insert(TypeId::of::<K>(), first);
        decoders
    }

    pub(crate) fn get<K: Send + Sync + 'static>(&self) -> Arc<DecodedObjects<K>> {
        let new = || Arc::new(DecodedObjects::<K>::counting(Arc::clone(&self.undecodable)));
        let known = {
            let mut by_type = self.by_type.lock();
            Arc::clone(by_type.entry(TypeId::of::<K>()).or_insert_with(|| new()))
        };
        // The entry of a type holds a cache of this type.
        known.downcast().unwrap_or_else(|_| new())
    }
}

impl CopyUse {
    /// Adds a user. Call it under the registry's lock, or before the copy's task runs.
    pub(crate) fn new(copy: &Arc<SharedCopy>) -> Self {
        copy.users.send_modify(|users| users.count += 1);
        Self { copy: Arc::clone(copy) }
    }

    /// State, progress and decoder for a handle of this use.
    pub(crate) fn parts<K>(&self) -> (Source, watch::Receiver<Progress>, Arc<DecodedObjects<K>>)
    where
        K: Send + Sync + 'static,
    {
        let SharedCopy { source, progress, decoders, .. } = &*self.copy;
        (source.clone(), progress.clone(), decoders.get())
    }

    /// Description of the copy's objects.
    pub(crate) fn objects(&self) -> Arc<DeclaredObjects> {
        self.copy.objects()
    }
}

impl InformerHold for CopyUse {
    fn shut_down(self: Box<Self>, last: &watch::Sender<Option<StateAtShutdown>>) {
        // Subscribers see the end before the drop may stop the copy, so that the shutdown is its reason.
        if self.copy.is_running() {
            last.send_modify(|last| *last = Some((self.copy.source.now.borrow().clone(), Instant::now())));
        }
    }

    fn note(&self) -> Option<String> {
        Some(self.copy.note())
    }
}

impl Drop for CopyUse {
    fn drop(&mut self) {
        self.copy.users.send_modify(|users| {
            users.count -= 1;
            users.left_at = Instant::now();
        });
    }
}

impl fmt::Debug for SharedCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCopies").field("copies", &self.lock().len()).finish_non_exhaustive()
    }
}
