//! Counters of a reflector: plain numbers that only grow. The driver reads them on demand, so they cannot drift.

use std::ops::AddAssign;

use crate::reflector::{Class, FallBack, RelistCause};

/// Counters of one reflector since its creation. Add the counters of several with `+=`.
///
/// # Source
/// Exposed by the SDK as `informer_*_total{resource, ...}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReflectorStats {
    /// Requests sent, of any kind.
    pub requests: u64,
    /// Requests for changes after a position: the cheap ones.
    pub resumes: u64,
    /// Pages after the first.
    pub pages: u64,
    /// Pages after the first that were retried.
    pub page_retries: u64,
    /// Lists abandoned because they did not end.
    pub endless_lists: u64,
    /// Completed initial states.
    pub syncs: u64,
    /// Items and initial events received for a stage.
    pub initial_objects: u64,
    /// Streams of initial state that resumed where an earlier one broke.
    pub initial_resumes: u64,
    /// Live changes received.
    pub live_objects: u64,
    /// Deletions among the live changes.
    pub live_deletions: u64,
    /// Live bookmarks received.
    pub bookmarks: u64,
    /// Frames that were ignored: objects without a name, unknown types, unexpected events, bookmarks without a usable
    /// position.
    pub ignored: u64,
    /// Objects without a usable resourceVersion: they are kept, and the position does not move.
    pub unversioned: u64,
    /// Sessions that proved healthy.
    pub healthy_sessions: u64,
    /// Sessions that ended before they were healthy.
    pub unhealthy_ends: u64,
    /// Sessions closed because they were silent for too long, and resumed without failure.
    pub silences: u64,
    /// Sessions closed because the position of a bookmark or an event went backwards.
    pub went_back: u64,
    /// Reads of one stored object that prove whether a position belongs to the server's history.
    pub proofs: u64,
    /// Times the server's history had gone back: restored to an older state.
    pub history_resets: u64,
    /// History resets detected by a deletion that never came although the server had passed the position.
    pub missed_deletions: u64,
    /// Times the server had another history.
    pub foreign: u64,
    /// Moves to an endpoint that was refused because it is behind or has another history.
    pub refused_moves: u64,
    relists: [u64; RelistCause::ALL.len()],
    fallbacks: [u64; FallBack::ALL.len()],
    failures: [u64; Class::ALL.len()],
}

impl ReflectorStats {
    /// Requests for initial state because of `cause`. The sum over [`RelistCause::all`] counts every such request.
    #[must_use]
    pub const fn relists(&self, cause: RelistCause) -> u64 {
        self.relists[cause as usize]
    }

    /// Fallbacks from streams to pages because of `cause`.
    #[must_use]
    pub const fn fallbacks(&self, cause: FallBack) -> u64 {
        self.fallbacks[cause as usize]
    }

    /// Responses that failed with `class`.
    #[must_use]
    pub const fn failures(&self, class: Class) -> u64 {
        self.failures[class as usize]
    }

    pub(crate) const fn count_relist(&mut self, cause: RelistCause) {
        self.relists[cause as usize] += 1;
    }

    pub(crate) const fn count_fallback(&mut self, cause: FallBack) {
        self.fallbacks[cause as usize] += 1;
    }

    pub(crate) const fn count_failure(&mut self, class: Class) {
        self.failures[class as usize] += 1;
    }
}

impl AddAssign<&Self> for ReflectorStats {
    fn add_assign(&mut self, other: &Self) {
        // Listed one by one, so that the compiler reports a new counter missing here.
        let Self {
            requests,
            resumes,
            pages,
            page_retries,
            endless_lists,
            syncs,
            initial_objects,
            initial_resumes,
            live_objects,
            live_deletions,
            bookmarks,
            ignored,
            unversioned,
            healthy_sessions,
            unhealthy_ends,
            silences,
            went_back,
            proofs,
            history_resets,
            missed_deletions,
            foreign,
            refused_moves,
            relists,
            fallbacks,
            failures,
        } = self;
        *requests += other.requests;
        *resumes += other.resumes;
        *pages += other.pages;
        *page_retries += other.page_retries;
        *endless_lists += other.endless_lists;
        *syncs += other.syncs;
        *initial_objects += other.initial_objects;
        *initial_resumes += other.initial_resumes;
        *live_objects += other.live_objects;
        *live_deletions += other.live_deletions;
        *bookmarks += other.bookmarks;
        *ignored += other.ignored;
        *unversioned += other.unversioned;
        *healthy_sessions += other.healthy_sessions;
        *unhealthy_ends += other.unhealthy_ends;
        *silences += other.silences;
        *went_back += other.went_back;
        *proofs += other.proofs;
        *history_resets += other.history_resets;
        *missed_deletions += other.missed_deletions;
        *foreign += other.foreign;
        *refused_moves += other.refused_moves;
        add(relists, &other.relists);
        add(fallbacks, &other.fallbacks);
        add(failures, &other.failures);
    }
}

fn add<const N: usize>(counts: &mut [u64; N], more: &[u64; N]) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count += more;
    }
}
