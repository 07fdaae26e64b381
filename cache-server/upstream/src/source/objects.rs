//! Shared proofs that a cache holds the newest state, for reads of single objects without a resourceVersion.
//!
//! A read that is passed on costs the API server one small read, and so does the question for its position. So a proof
//! pays only if several reads share it, and no read may wait long for it: one that gets none in time is passed on.
//!
//! INVARIANT: a proof serves only reads that arrived before its question was sent, or that accept its age.
//! INVARIANT: a proof holds only in the history in which it was made, and while nothing puts that in doubt.
//! INVARIANT: a cache that lacks a version of an object, which was skipped, is never proved.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use watch_cache::Reader;

use super::{
    STREAM_WAIT,
    followed::{FollowedType, StreamState},
    reads::TypeReads,
};

/// A cache with the newest state of its type.
#[derive(Clone, Debug)]
pub struct ProvedCache {
    pub reader: Reader,
    /// Age of the proof, if it is older than the read.
    pub age: Option<Duration>,
}

/// The API server's position when it was asked, which the stream has reached.
#[derive(Clone, Copy, Debug)]
struct PositionProof {
    sent: Instant,
    revision: u64,
    /// The stream before the question.
    seen: StreamState,
}

type SharedProof = Shared<BoxFuture<'static, Option<PositionProof>>>;

/// The proofs of one type.
#[derive(Default)]
pub(super) struct ObjectProofs {
    state: Mutex<ProofState>,
    /// Held by the one question that is on its way.
    turn: tokio::sync::Mutex<()>,
    /// Reads that were answered by proofs since the stream last fell behind.
    answered: AtomicU32,
}

#[derive(Default)]
struct ProofState {
    /// Reads whose callers may read the type.
    rate: ReadRate,
    /// Reads of all callers.
    seen: ReadRate,
    /// The question that is not sent yet. Reads join it.
    next: Option<SharedProof>,
    /// Time at which the last question was due. The next pause begins then, because timers send up to a millisecond late.
    due: Option<Instant>,
    /// Time at which the last question was sent.
    sent: Option<Instant>,
    /// True while that question has no answer.
    is_open: bool,
    last: Option<PositionProof>,
    pause: Pause,
    /// Times in a row that the stream fell behind before proofs had answered [`PAYING_READS`].
    misses: u32,
}

/// Whether questions are sent.
#[derive(Clone, Copy, Debug, Default)]
enum Pause {
    #[default]
    None,
    /// The stream is behind, and a second watch proves that it catches up.
    CatchingUp,
    Until(Instant),
}

/// Counts reads in slots of [`SLOT`].
#[derive(Default)]
struct ReadRate {
    begun: Option<Instant>,
    count: u32,
    before: u32,
}

impl ReadRate {
    /// Counts a read. Returns the reads of this slot or of the one before, whichever has more.
    fn count(&mut self, now: Instant) -> u32 {
        let age = self.begun.map_or(Duration::MAX, |begun| now.duration_since(begun));
        if SLOT <= age {
            self.before = if age < 2 * SLOT { self.count } else { 0 };
            (self.begun, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count.max(self.before)
    }
}

/// A way to a proof.
enum ProofRoute {
    Known(PositionProof),
    Awaited(SharedProof),
}

/// Returns a future of the type's cache with a proof that is not older than the call by more than `max_age`; `None` if none
/// is made for so few reads, or at present. The future waits at most [`PROOF_WAIT`].
///
/// Cost: at most one question of the API server in [`SLOT`], up to four while more reads share each.
pub(super) fn prove(
    reads: TypeReads,
    max_age: Duration,
) -> Option<impl Future<Output = Option<ProvedCache>> + Send + 'static> {
    let arrived = Instant::now();
    let joined = join(&reads, arrived, max_age)?;
    Some(async move {
        let deadline = arrived + PROOF_WAIT;
        let proof = match joined {
            ProofRoute::Known(proof) => proof,
            ProofRoute::Awaited(proof) => timeout_at(deadline, proof).await.ok()??,
        };
        let reader = reads.followed.cache()?;
        // The common case, without a timer.
        if reader.applied() < proof.revision {
            timeout_at(deadline, reader.reached(proof.revision)).await.ok()?.ok()?;
        }
        let age = (proof.sent < arrived).then(|| proof.sent.elapsed());
        // Also after the wait: the history may have been lost meanwhile.
        let holds = reads.followed.state().continues(proof.seen, age.is_some()) && !reads.followed.has_skipped();
        holds.then(|| {
            reads.followed.object_proofs.answered.fetch_add(1, Ordering::Relaxed);
            ProvedCache { reader, age }
        })
    })
}

/// Counts a read of any caller. Returns false if there are too few for proofs, and at present; sends nothing.
pub(super) fn may_prove(followed: &FollowedType, max_age: Duration) -> bool {
    let (state, stream, now) = (&mut *followed.object_proofs.state.lock(), followed.state(), Instant::now());
    let seen = state.seen.count(now);
    let is_followed = 0 < stream.position && !followed.has_skipped();
    is_followed && (SHARING_MIN <= seen || state.last.is_some_and(|last| now.duration_since(last.sent) < max_age))
}

fn join(reads: &TypeReads, now: Instant, max_age: Duration) -> Option<ProofRoute> {
    let followed = &reads.followed;
    if followed.has_skipped() {
        return None;
    }
    let state = &mut *followed.object_proofs.state.lock();
    let rate = state.rate.count(now);
    let stream = followed.state();
    let asks = SHARING_MIN <= rate && stream.is_sound() && 0 < stream.position && state.may_ask(now);
    let age = |proof: &PositionProof| now.duration_since(proof.sent);
    if let Some(last) = state.last.filter(|last| age(last) < max_age && stream.continues(last.seen, true)) {
        // Asked before the last proof is too old, so that no read waits for the next one.
        if asks && max_age / 2 <= age(&last) {
            drop(state.next(reads, rate, now));
        }
        return Some(ProofRoute::Known(last));
    }
    asks.then(|| ProofRoute::Awaited(state.next(reads, rate, now)))
}

impl ProofState {
    /// False while the stream is behind, or if the API server is slow to answer the last question.
    fn may_ask(&self, now: Instant) -> bool {
        let is_slow = self.is_open && self.sent.is_some_and(|sent| PROOF_WAIT <= now.duration_since(sent));
        let is_paused = match self.pause {
            Pause::None => false,
            Pause::CatchingUp => true,
            Pause::Until(until) => now < until,
        };
        !is_slow && !is_paused
    }

    /// Returns the next question, which is sent so much later than the last one that enough reads share it.
    fn next(&mut self, reads: &TypeReads, rate: u32, now: Instant) -> SharedProof {
        if let Some(next) = &self.next {
            return next.clone();
        }
        let pause = SLOT / (rate / READS_PER_QUESTION).clamp(1, QUESTIONS_PER_SLOT);
        let due = self.due.map_or(now, |last| now.max(last + pause));
        // A task, so that a question runs to its end even if all its callers leave.
        let task = tokio::spawn(ask(reads.clone(), due));
        let next = async move { task.await.ok().flatten() }.boxed().shared();
        (self.next, self.due) = (Some(next.clone()), Some(due));
        next
    }

    /// A question had no use. Passes reads on for a second, and twice as long each time that happens again in a row.
    fn miss(&mut self, answered: u32) {
        self.misses = if PAYING_READS <= answered { 0 } else { self.misses.saturating_add(1) };
        let pause = MISS_PAUSE * (1 << self.misses.saturating_sub(1).min(MISS_DOUBLINGS_MAX));
        self.pause = Pause::Until(Instant::now() + pause);
    }
}

/// Asks the API server for its position at `due`, once no other question is on its way.
async fn ask(reads: TypeReads, due: Instant) -> Option<PositionProof> {
    let followed = &reads.followed;
    let proofs = &followed.object_proofs;
    let _turn = proofs.turn.lock().await;
    sleep_until(due).await;
    let (sent, seen) = proofs.begin(|| followed.state());
    let found = reads.newest_position(seen).await;
    let proof = found.map(|revision| PositionProof { sent, revision, seen });
    let has_passed = match &proof {
        Ok(proof) if followed.state().has_passed(proof.revision) => true,
        Ok(proof) => timeout(STREAM_WAIT, followed.passed(proof.revision)).await.is_ok(),
        Err(_) => false,
    };
    let state = &mut *proofs.state.lock();
    state.is_open = false;
    match proof {
        Ok(proof) if has_passed => {
            (state.last, state.pause) = (Some(proof), Pause::None);
            Some(proof)
        }
        Ok(proof) => {
            state.pause = Pause::CatchingUp;
            tokio::spawn(catch_up(reads.clone(), proof));
            None
        }
        Err(error) => {
            tracing::debug!(resource = reads.ty.id(), %error, "position not read");
            state.miss(0);
            None
        }
    }
}

/// Waits for a proof that the stream is complete at a position ahead of it. Quiet types lag while others change, and then
/// no shared question helps: the next one would find the stream behind again.
async fn catch_up(reads: TypeReads, proof: PositionProof) {
    let has_reached = matches!(reads.reach(proof.revision).await, Ok(true));
    let proofs = &reads.followed.object_proofs;
    let answered = proofs.answered.swap(0, Ordering::Relaxed);
    let state = &mut *proofs.state.lock();
    state.miss(answered);
    if has_reached {
        state.last = Some(proof);
        if state.misses <= 1 {
            state.pause = Pause::None;
        }
    }
}

impl ObjectProofs {
    /// The next question is sent now: later reads join another one.
    fn begin(&self, stream: impl FnOnce() -> StreamState) -> (Instant, StreamState) {
        let state = &mut *self.state.lock();
        let sent = Instant::now();
        (state.next, state.sent, state.is_open) = (None, Some(sent), true);
        (sent, stream())
    }
}

/// Time in which reads of a type are counted, and the longest time between two questions.
const SLOT: Duration = Duration::from_millis(20);

/// Reads in a slot from which they share questions: 200 a second. Fewer are passed on, as each costs no more than a
/// question.
const SHARING_MIN: u32 = 4;

/// Reads that share a question, from which more questions are sent in a slot.
const READS_PER_QUESTION: u32 = 10;

/// Questions in a slot: at most 200 a second.
const QUESTIONS_PER_SLOT: u32 = 4;

/// Longest wait of a read for its proof, after which it is passed on.
pub const PROOF_WAIT: Duration = Duration::from_millis(50);

/// Reads that proofs must answer before the stream falls behind, so that it is made to catch up at once: a second watch
/// costs the API server some ten small reads.
const PAYING_READS: u32 = 32;

/// Pause after a question that had no use, doubled up to 32 s.
const MISS_PAUSE: Duration = Duration::from_secs(1);
const MISS_DOUBLINGS_MAX: u32 = 5;
