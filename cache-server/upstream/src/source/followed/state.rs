//! State shared by the stream of a type and the probes for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use watch_cache::Reader;

use super::super::objects::ObjectProofs;
use crate::{last_answer::LastAnswer, storage::SourceError};

/// Whether a type can be cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fitness {
    /// No answer yet.
    #[default]
    Unknown,
    /// Its state was read.
    Fit,
    /// The API server does not serve it, does not let us watch it, or its resourceVersions are no numbers.
    Unfit(SourceError),
}

/// Relation of the cache's history to the API server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HistoryTrust {
    /// The stream has followed it from a whole state, or it was compared since the last doubt.
    #[default]
    Sound,
    /// The stream goes on after a break in which the API server may have been restored to an older state.
    Doubtful,
    /// The stream failed, and the API server has accepted no watch since. True if it will be in doubt however short the
    /// break is.
    Broken { since: Instant, is_suspect: bool },
    /// The API server has another history, whose state is being read.
    Lost,
}

/// The stream of a type at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct StreamState {
    /// Every change at or below it was delivered. Zero before the first state.
    pub(in super::super) position: u64,
    /// Number of whole states so far: each begins a history.
    history: u64,
    trust: HistoryTrust,
}

impl StreamState {
    /// True if the API server has accepted the stream, and no failure was seen since.
    pub(in super::super) const fn is_followed(&self) -> bool {
        matches!(self.trust, HistoryTrust::Sound | HistoryTrust::Doubtful)
    }

    /// True if the cache has the API server's history without a doubt.
    pub(in super::super) fn is_sound(&self) -> bool {
        self.trust == HistoryTrust::Sound
    }

    /// True while the whole state must be compared before it is known to be the API server's.
    pub(in super::super) fn is_doubtful(&self) -> bool {
        self.trust == HistoryTrust::Doubtful
    }

    /// True from the loss of the history until the state of the other one is complete.
    pub(in super::super) fn is_lost(&self) -> bool {
        self.trust == HistoryTrust::Lost
    }

    /// True if every change at or below `revision` was delivered, and the API server has accepted the stream.
    pub(in super::super) const fn has_passed(&self, revision: u64) -> bool {
        self.is_followed() && revision <= self.position
    }

    /// True if the history of `seen` continues without a doubt; with `despite_break` also during an outage.
    pub(in super::super) fn continues(&self, seen: Self, despite_break: bool) -> bool {
        self.history == seen.history && (self.is_sound() || despite_break && !self.is_suspect())
    }

    /// True if there is a reason to doubt the history, other than the length of a break.
    pub(in super::super) fn is_suspect(&self) -> bool {
        match self.trust {
            HistoryTrust::Sound => false,
            HistoryTrust::Doubtful | HistoryTrust::Lost => true,
            HistoryTrust::Broken { is_suspect, .. } => is_suspect,
        }
    }

    /// True if the whole state must be compared with the API server's.
    pub(in super::super) fn needs_comparison(&self) -> bool {
        match self.trust {
            HistoryTrust::Sound | HistoryTrust::Lost => false,
            HistoryTrust::Doubtful => true,
            HistoryTrust::Broken { since, is_suspect } => is_suspect || DOUBTFUL_OUTAGE <= since.elapsed(),
        }
    }
}

/// State shared by the stream of a type and the probes for it.
#[derive(Default)]
pub(in super::super) struct FollowedType {
    stream: watch::Sender<StreamState>,
    proofs: Mutex<Vec<CompletenessProof>>,
    /// Notified of a proof and of a loss.
    changed: Notify,
    last_answer: Arc<LastAnswer>,
    /// Number of delays that were ended early since the stream last moved or was confirmed.
    ended_delays: AtomicU32,
    /// Index of the address that the stream used last.
    address: AtomicUsize,
    /// Time of the last loss of a history that this server found.
    lost_at: Mutex<Option<Instant>>,
    /// Time at which the history began.
    begun_at: Mutex<Option<Instant>>,
    fitness: watch::Sender<Fitness>,
    unfit_since: Mutex<Option<Instant>>,
    /// The cache that the stream fills.
    cache: Mutex<Option<Reader>>,
    /// Time at which the API server last sent no position of the quiet type.
    mute_since: Mutex<Option<Instant>>,
    /// True if an object was skipped since the start of the cache's whole state.
    has_skipped: AtomicBool,
    /// True if an object was skipped since the start of the whole state that is being read.
    state_has_skipped: AtomicBool,
    /// Times at which a whole list, and a page, were last passed on while the history was in doubt.
    passed_lists: Mutex<[Option<Instant>; 2]>,
    /// Proofs for reads of single objects.
    pub(in super::super) object_proofs: ObjectProofs,
}

/// Result of a second watch.
#[derive(Clone, Copy, Debug)]
struct CompletenessProof {
    /// Newest change that the second watch saw, or where it began.
    newest_change: u64,
    /// The stream is complete here once it has passed `newest_change`.
    complete: u64,
}

impl FollowedType {
    /// `last_answer` is shared with all requests to the API server.
    pub(in super::super) fn new(last_answer: Arc<LastAnswer>) -> Self {
        Self { last_answer, ..Self::default() }
    }

    pub(in super::super) fn cache(&self) -> Option<Reader> {
        self.cache.lock().clone()
    }

    pub(in super::super) fn set_cache(&self, cache: Option<Reader>) {
        *self.cache.lock() = cache;
    }

    /// Returns the stream as it is now.
    pub(in super::super) fn state(&self) -> StreamState {
        *self.stream.borrow()
    }

    /// Waits until the stream has passed `revision`, and is followed.
    pub(in super::super) async fn passed(&self, revision: u64) {
        self.wait_for(|stream| stream.has_passed(revision)).await;
    }

    /// Waits until `condition` holds of the stream.
    pub(in super::super) async fn wait_for(&self, condition: impl Fn(&StreamState) -> bool) {
        // The sender is part of `self`, so the channel stays open.
        let _ = self.stream.subscribe().wait_for(condition).await;
    }

    /// True unless a pause lasts for lists of this size.
    pub(in super::super) fn has_list_turn(&self, is_page: bool) -> bool {
        is_list_due(self.passed_lists.lock()[usize::from(is_page)], is_page)
    }

    /// Returns true, and begins a pause, unless one lasts for lists of this size.
    pub(in super::super) fn takes_list_turn(&self, is_page: bool) -> bool {
        let last = &mut self.passed_lists.lock()[usize::from(is_page)];
        let is_due = is_list_due(*last, is_page);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// Waits for a proof, or the loss of the history. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn shared_answer(&self) -> &LastAnswer {
        &self.last_answer
    }

    pub(super) fn ended_delays(&self) -> u32 {
        self.ended_delays.load(Ordering::Relaxed)
    }

    pub(super) fn end_delays(&self, number: u32) {
        self.ended_delays.store(number, Ordering::Relaxed);
    }

    /// Notes the address of the stream. Returns true if it was another one before.
    pub(super) fn moved_to(&self, address: usize) -> bool {
        self.address.swap(address, Ordering::Relaxed) != address
    }

    /// Adds the result of a second watch.
    pub(in super::super) fn prove(&self, newest_change: u64, complete: u64) {
        let proofs = &mut *self.proofs.lock();
        if PROOFS_MAX <= proofs.len() {
            proofs.remove(0);
        }
        proofs.push(CompletenessProof { newest_change, complete });
        self.changed.notify_one();
    }

    /// Takes the proofs that hold at the stream's position; returns the newest one's, if it is ahead of the stream. None
    /// while the stream is broken.
    pub(super) fn take_proven(&self) -> Option<u64> {
        let stream = self.state();
        if !stream.is_followed() {
            return None;
        }
        let passed = stream.position;
        let proofs = &mut *self.proofs.lock();
        let proven = proofs.extract_if(.., |proof| proof.newest_change <= passed).map(|proof| proof.complete).max();
        proven.filter(|&complete| passed < complete)
    }

    pub(super) fn pass(&self, revision: u64) {
        let has_moved = self.stream.send_if_modified(|stream| {
            let is_new = stream.position < revision;
            stream.position = revision.max(stream.position);
            is_new
        });
        if has_moved {
            self.end_delays(0);
        }
    }

    /// A stream begins with the state. A history that was lost stays lost until the state of the other one is complete.
    pub(super) fn begin(&self) {
        if !self.state().is_lost() {
            self.restart(0);
        }
    }

    /// A stream is opened after a position, which it must prove. The first one continues a saved state, and the API server
    /// may have been restored meanwhile. A saved state may also be behind an earlier stream, whose proofs do not hold for it.
    pub(super) fn resume(&self, position: u64) {
        let before = self.state().position;
        if before != position {
            self.proofs.lock().clear();
            self.stream.send_modify(|stream| stream.position = position);
        }
        self.break_off(before == 0);
    }

    /// Resets position and proofs for a whole state, which may belong to another history.
    pub(super) fn restart(&self, position: u64) {
        self.proofs.lock().clear();
        // First, so that nothing sent before counts once the history is sound.
        *self.begun_at.lock() = Some(Instant::now());
        self.stream.send_modify(|stream| {
            *stream = StreamState { position, history: stream.history + 1, trust: HistoryTrust::Sound };
        });
    }

    /// An object was skipped: the cache has an older version of it, or none.
    pub(in super::super) fn skip(&self) {
        self.state_has_skipped.store(true, Ordering::Release);
        self.has_skipped.store(true, Ordering::Release);
    }

    /// True if the cache lacks the newest version of some object, which was skipped.
    pub(in super::super) fn has_skipped(&self) -> bool {
        self.has_skipped.load(Ordering::Acquire)
    }

    /// A whole state begins.
    pub(super) fn begin_state(&self) {
        self.state_has_skipped.store(false, Ordering::Release);
    }

    /// The cache has that whole state.
    pub(super) fn end_state(&self) {
        self.has_skipped.store(self.state_has_skipped.load(Ordering::Acquire), Ordering::Release);
    }

    /// The stream failed, or ended.
    pub(super) fn fail(&self) {
        self.break_off(false);
    }

    fn break_off(&self, suspects: bool) {
        self.stream.send_modify(|stream| {
            let since = Instant::now();
            stream.trust = match stream.trust {
                HistoryTrust::Sound => HistoryTrust::Broken { since, is_suspect: suspects },
                HistoryTrust::Doubtful => HistoryTrust::Broken { since, is_suspect: true },
                HistoryTrust::Broken { since, is_suspect } => {
                    HistoryTrust::Broken { since, is_suspect: is_suspect | suspects }
                }
                HistoryTrust::Lost => HistoryTrust::Lost,
            };
        });
    }

    /// A finding of the SDK, such as a position that is too old, or a new address puts the history in doubt.
    pub(in super::super) fn suspect(&self) {
        self.stream.send_modify(|stream| match &mut stream.trust {
            trust @ HistoryTrust::Sound => *trust = HistoryTrust::Doubtful,
            HistoryTrust::Broken { is_suspect, .. } => *is_suspect = true,
            HistoryTrust::Doubtful | HistoryTrust::Lost => {}
        });
    }

    /// The API server has accepted a watch from the stream's position, at another address if `has_moved`.
    pub(super) fn accept(&self, has_moved: bool) {
        self.stream.send_modify(|stream| {
            if matches!(stream.trust, HistoryTrust::Broken { .. }) {
                let is_doubtful = has_moved || stream.needs_comparison();
                stream.trust = if is_doubtful { HistoryTrust::Doubtful } else { HistoryTrust::Sound };
            }
        });
    }

    /// The whole state was compared, and is the API server's.
    pub(super) fn confirm(&self, seen: StreamState) {
        self.stream.send_modify(|stream| {
            if stream.history == seen.history && stream.trust == HistoryTrust::Doubtful {
                stream.trust = HistoryTrust::Sound;
            }
        });
    }

    /// Ends the history that the stream had at `seen`; its state is read anew. Returns false if that has happened already,
    /// or if another history was lost less than [`LOSS_PAUSE`] ago: an API server whose positions go back all the time must
    /// not be listed all the time.
    pub(in super::super) fn lose(&self, seen: StreamState) -> bool {
        let has_just_lost = self.lost_at.lock().is_some_and(|last| last.elapsed() < LOSS_PAUSE);
        !has_just_lost && self.end_history(seen)
    }

    /// Like [`lose`](Self::lose), however often.
    pub(in super::super) fn end_history(&self, seen: StreamState) -> bool {
        let is_lost = self.stream.send_if_modified(|stream| {
            let is_new = stream.history == seen.history && stream.trust != HistoryTrust::Lost;
            if is_new {
                stream.trust = HistoryTrust::Lost;
            }
            is_new
        });
        if is_lost {
            *self.lost_at.lock() = Some(Instant::now());
            self.changed.notify_one();
        }
        is_lost
    }

    /// True if the history is lost or suspect, or began after `time`.
    pub(in super::super) fn is_doubted_since(&self, time: Instant) -> bool {
        self.state().is_suspect() || self.begun_at.lock().is_some_and(|begun| time <= begun)
    }

    pub(super) fn set_fitness(&self, fitness: Fitness) {
        *self.unfit_since.lock() = matches!(fitness, Fitness::Unfit(_)).then(Instant::now);
        self.fitness.send_if_modified(|known| {
            let is_new = *known != fitness;
            *known = fitness;
            is_new
        });
    }

    /// Waits for the first answer.
    pub(in super::super) async fn known_fitness(&self) -> Fitness {
        let mut fitness = self.fitness.subscribe();
        let known = fitness.wait_for(|fitness| *fitness != Fitness::Unknown).await;
        known.map_or(Fitness::Unknown, |fitness| fitness.clone())
    }

    /// True if the API server sent no position of the quiet type in the last [`MUTE_WITHIN`].
    pub(in super::super) fn is_mute(&self) -> bool {
        self.mute_since.lock().is_some_and(|since| since.elapsed() < MUTE_WITHIN)
    }

    pub(in super::super) fn note_mute(&self) {
        *self.mute_since.lock() = Some(Instant::now());
    }

    /// Returns the time until a type that cannot be cached may be tried again.
    pub(in super::super) fn retry_after(&self) -> Option<Duration> {
        let until = (*self.unfit_since.lock())? + UNFIT_PAUSE;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

fn is_list_due(last: Option<Instant>, is_page: bool) -> bool {
    let pause = if is_page { PASSED_PAGES_PAUSE } else { PASSED_LISTS_PAUSE };
    last.is_none_or(|at| pause <= at.elapsed())
}

/// Proofs that wait for the stream. A stream that does not move leaves one for each probe; only late ones matter.
const PROOFS_MAX: usize = 16;

/// Time of a break after which a resumed history is compared as a whole: no etcd is restored in less.
const DOUBTFUL_OUTAGE: Duration = Duration::from_secs(5);

/// Minimum time between two whole lists of a type in doubt that are passed on.
const PASSED_LISTS_PAUSE: Duration = Duration::from_secs(1);

/// Minimum time between two first pages of a type in doubt that are passed on.
const PASSED_PAGES_PAUSE: Duration = Duration::from_millis(50);

/// Minimum time between two losses of a type's history.
const LOSS_PAUSE: Duration = Duration::from_secs(5);

/// Time until a type that cannot be cached is tried again: a definition or a role may have been added.
const UNFIT_PAUSE: Duration = Duration::from_secs(30);

/// Time after which a second watch is tried again at an API server that sent no position: it may have been upgraded.
const MUTE_WITHIN: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a stream counts as complete only where a second watch proves it. Method: proofs before and after the stream
    /// has passed what the second watch saw, overtaken ones, and a state that begins again.
    #[test]
    fn a_proof_holds_once_the_stream_has_passed_what_it_saw() {
        let followed = FollowedType::default();
        followed.pass(5);
        followed.prove(7, 9);
        assert_eq!(followed.take_proven(), None, "the change at 7 is still on its way");
        followed.pass(7);
        assert_eq!(followed.take_proven(), Some(9));
        followed.pass(9);
        assert_eq!(followed.take_proven(), None, "taken once");
        followed.prove(5, 8);
        assert_eq!(followed.take_proven(), None, "behind the stream");
        followed.prove(9, 12);
        followed.prove(9, 15);
        assert_eq!(followed.take_proven(), Some(15), "the newest one that holds");
        followed.prove(9, 20);
        followed.restart(30);
        assert_eq!((followed.take_proven(), followed.state().position), (None, 30), "of the state before");
        followed.prove(32, 50);
        followed.resume(20);
        followed.accept(false);
        assert_eq!(followed.state().position, 20, "of a saved state, which is behind");
        followed.pass(33);
        assert_eq!(followed.take_proven(), None, "the changes between 20 and 30 may be missing");
    }

    /// Goal: what was confirmed counts in an outage, but not while its history is suspect, nor in the next history. Method: a
    /// history in each state of trust, and another one.
    #[tokio::test(start_paused = true)]
    async fn a_confirmation_counts_while_nothing_speaks_against_its_history() {
        let followed = FollowedType::default();
        followed.restart(5);
        let tick = async || tokio::time::advance(Duration::from_millis(1)).await;
        tick().await;
        let (sent, seen) = (Instant::now(), followed.state());
        let counts = || {
            let counts = !followed.is_doubted_since(sent);
            assert_eq!(followed.state().continues(seen, true), counts, "GETs as lists");
            counts
        };
        assert!(counts() && followed.state().continues(seen, false));
        followed.fail();
        assert!(counts() && !followed.state().continues(seen, false), "an outage");
        followed.accept(true);
        assert!(!counts(), "another address");
        followed.fail();
        assert!(!counts(), "an outage of that address");
        followed.accept(false);
        assert!(!counts());
        followed.confirm(followed.state());
        assert!(counts(), "compared");
        followed.fail();
        followed.suspect();
        assert!(!counts(), "found by the SDK");
        tick().await;
        followed.restart(3);
        assert!(!counts(), "another history");
        let (sent, seen) = (Instant::now(), followed.state());
        assert!(followed.is_doubted_since(sent), "maybe sent before it began");
        tick().await;
        assert!(!followed.is_doubted_since(Instant::now()) && followed.end_history(seen));
        assert!(followed.is_doubted_since(Instant::now()), "lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_that_cannot_be_cached_is_tried_again_later() {
        let followed = FollowedType::default();
        assert_eq!(followed.retry_after(), None);
        let refused = Fitness::Unfit(SourceError::Unsupported("not found".to_owned()));
        followed.set_fitness(refused.clone());
        assert_eq!((followed.known_fitness().await, followed.retry_after()), (refused, Some(UNFIT_PAUSE)));
        tokio::time::advance(UNFIT_PAUSE).await;
        assert_eq!(followed.retry_after(), Some(Duration::ZERO));
        followed.set_fitness(Fitness::Fit);
        assert_eq!((followed.known_fitness().await, followed.retry_after()), (Fitness::Fit, None));
    }
}
