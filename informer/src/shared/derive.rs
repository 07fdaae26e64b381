//! The task that derives a copy from other copies: filters or indexes one, or merges those of several namespaces.
//!
//! INVARIANT: readers see only complete states, and the copy counts as ready only after such a state was published.

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use informer_core::store::{DerivedStore, EntryFilter, IndexFn, Snapshot};
use tokio::sync::watch;

use super::copies::CopyUse;
use crate::{
    ended::EndReason,
    progress::{self, Outlet, Progress},
    status::InformerPhase,
    subscription::Source,
};

/// A copy derived from others, which it uses as long as it exists.
pub(crate) struct DerivedCopy {
    // Dropped first: the reason of the end is readable before the drop of `now` ends subscriptions.
    progress: Outlet,
    now: watch::Sender<Snapshot>,
    store: DerivedStore,
    sources: Vec<CopyUse>,
}

/// Changes of the sources: the number of a source, and false once it has ended.
type SourceChanges = stream::SelectAll<BoxStream<'static, (usize, bool)>>;

impl DerivedCopy {
    /// Creates a copy of the objects of `sources` that pass `filter`, and what its readers need.
    pub(crate) fn new(
        sources: Vec<CopyUse>,
        filter: EntryFilter,
        indexes: Vec<IndexFn>,
    ) -> (Self, Source, watch::Receiver<Progress>) {
        let store = DerivedStore::new(sources.iter().map(|source| source.copy.source.ring()), filter);
        let store = store.with_indexes(indexes);
        let (now, state) = watch::channel(store.snapshot());
        let source = Source::derived(state, store.ring().clone());
        let (sender, progress) = watch::channel(Progress::new());
        let mut derived = Self { progress: sender.into(), now, store, sources };
        derived.show_progress();
        (derived, source, progress)
    }

    /// Follows the sources until one of them ends.
    pub(crate) async fn run(&mut self) {
        let mut changes = self.changes();
        while let Some((at, is_alive)) = changes.next().await {
            self.follow(at);
            if !is_alive {
                let reason = progress::ended(self.sources[at].copy.progress.clone()).await;
                return self.ending(reason);
            }
        }
    }

    /// Sets the reason that the drop publishes.
    pub(crate) const fn ending(&mut self, reason: EndReason) {
        self.progress.ending(reason);
    }

    fn changes(&self) -> SourceChanges {
        let changes = self.sources.iter().enumerate().map(|(at, source)| {
            let (mut now, mut progress) = (source.copy.source.now.clone(), source.copy.progress.clone());
            // The states before this were not followed.
            now.mark_changed();
            progress.mark_changed();
            stream::unfold(Some((now, progress)), move |receivers| async move {
                let (mut now, mut progress) = receivers?;
                let changed = tokio::select! {
                    changed = now.changed() => changed,
                    changed = progress.changed() => changed,
                };
                let is_alive = changed.is_ok();
                Some(((at, is_alive), is_alive.then_some((now, progress))))
            })
            .boxed()
        });
        stream::select_all(changes)
    }

    fn follow(&mut self, at: usize) {
        let state = self.sources[at].copy.source.now.borrow().clone();
        if self.store.follow(at, &state) {
            let state = self.store.snapshot();
            if state.synced {
                self.now.send_replace(state);
            }
        }
        self.show_progress();
    }

    /// Publishes the sources' progress as one: ready once all are, as old as the oldest, with the sum of their counts.
    fn show_progress(&mut self) {
        let is_published = self.now.borrow().synced;
        let sources: Vec<_> = self.sources.iter().map(|source| source.copy.progress.borrow()).collect();
        self.progress.send_modify(|shown| {
            shown.show_all(sources.iter().map(|progress| &**progress));
            shown.is_synced &= is_published;
            shown.show_phase(sources.iter().map(|progress| &**progress));
        });
    }
}

impl Progress {
    /// Shows the worst phase among the sources, their newest failure, and the sums of their counts.
    fn show_phase<'a>(&mut self, all: impl Iterator<Item = &'a Self> + Clone) {
        let rank = |one: &&Self| match one.phase {
            InformerPhase::Watching => 0,
            InformerPhase::Polling => 1,
            InformerPhase::Disconnected => 2,
            InformerPhase::Starting | InformerPhase::Ended(_) => 3,
        };
        let worst = all.clone().max_by_key(rank).filter(|_| self.is_synced);
        match worst.map(|worst| (worst.phase, worst.phase_began)) {
            Some((phase @ (InformerPhase::Watching | InformerPhase::Polling | InformerPhase::Disconnected), began)) => {
                (self.phase, self.phase_began) = (phase, began);
            }
            // Its own start; the end is shown by the drop.
            Some(_) | None => self.enter(InformerPhase::Starting),
        }
        self.requests_before = all.clone().map(|one| one.requests_before).sum();
        self.failures = all.clone().map(|one| one.failures).sum();
        self.last_error = all.filter_map(|one| one.last_error.clone()).max_by_key(|(_, at)| *at);
    }

    /// Shows the progress of several informers as one. The request, its failure and its phase are those of the first
    /// informer that is not ready.
    fn show_all<'a>(&mut self, all: impl Iterator<Item = &'a Self> + Clone) {
        let Some(first) = all.clone().find(|one| !one.is_synced).or_else(|| all.clone().next()) else { return };
        self.request.clone_from(&first.request);
        self.endpoint = first.endpoint;
        self.stage = first.stage;
        self.failure.clone_from(&first.failure);
        self.attempts = all.clone().map(|one| one.attempts).sum();
        self.is_synced = all.clone().all(|one| one.is_synced);
        self.is_final = all.clone().any(|one| one.is_final);
        self.is_polling = all.clone().any(|one| one.is_polling);
        self.is_sound = all.clone().all(|one| one.is_sound);
        let is_complete = all.clone().all(|one| one.confirmed.is_some());
        self.confirmed = all.clone().filter_map(|one| one.confirmed).max_by_key(|confirmed| confirmed.age());
        self.confirmed = self.confirmed.filter(|_| is_complete);
        self.stats = first.stats.clone();
        for other in all.filter(|other| !std::ptr::eq(*other, first)) {
            self.stats += &other.stats;
        }
    }
}
