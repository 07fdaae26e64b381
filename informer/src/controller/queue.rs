//! Keys that wait for their reconcile, like the work queue of client-go and the priorities of controller-runtime.
//!
//! INVARIANT: a key waits at most once, and runs at most once at a time. Knows no clock: time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::budget::RetryBudget;

/// Keys that are ready, delayed or running.
///
/// Memory: about 150 bytes and one text for each such key. Other keys take none.
#[derive(Debug)]
pub(super) struct WorkQueue {
    keys: HashMap<Arc<str>, KeyState>,
    /// Ready keys, with the time since which they are, by lane and then oldest first. Exactly the keys in
    /// `KeyPhase::Ready`.
    ready: BTreeMap<(Lane, u64), (Arc<str>, Instant)>,
    /// Number of the next key that becomes ready.
    next_number: u64,
    /// Delayed keys by time. Exactly the keys in `KeyPhase::Delayed`.
    delayed: BTreeSet<(Instant, Arc<str>)>,
    /// Time for which triggers of a change are gathered.
    debounce: Duration,
    budget: RetryBudget,
}

/// Priority of a ready key. A lane runs while those before it are empty or wait for the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Something changed, or a delay that the reconciler requested is over.
    Changed,
    /// The last reconcile failed. Each attempt needs a token of the budget.
    Retry,
    /// The key exists: the controller started, or every object is to be reconciled.
    Present,
}

/// Lanes in the order in which they run.
const LANES: [Lane; 3] = [Lane::Changed, Lane::Retry, Lane::Present];

/// A key whose run begins.
#[derive(Debug)]
pub(super) struct ReadyKey {
    pub(super) key: Arc<str>,
    /// Time for which it waited for its turn.
    pub(super) waited: Duration,
}

#[derive(Debug)]
struct KeyState {
    phase: KeyPhase,
    /// Failed reconciles since the last success.
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
enum KeyPhase {
    Ready(Lane, u64),
    Delayed(Instant),
    Running {
        /// The lane that the key joins at the end of the run, and the earliest time, once something triggered it.
        again: Option<(Lane, Instant)>,
        /// True if the run spent a token of the budget.
        has_spent: bool,
    },
}

impl WorkQueue {
    pub(super) fn new(debounce: Duration, budget: RetryBudget) -> Self {
        let (keys, ready, delayed) = (HashMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { keys, ready, next_number: 0, delayed, debounce, budget }
    }

    /// Number of ready keys.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Makes `key` ready in `lane`, ahead of its delay, or after the debounce time of a change. While it runs, it
    /// becomes ready again at the end of the run: any number of triggers makes one more run. Returns false if it waits
    /// already.
    pub(super) fn add(&mut self, key: &str, lane: Lane, now: Instant) -> bool {
        let at = if lane == Lane::Changed { now + self.debounce } else { now };
        let Some((key, phase)) = self.keys.get_key_value(key).map(|(key, state)| (Arc::clone(key), state.phase)) else {
            let (key, phase) = (Arc::from(key), KeyPhase::Running { again: None, has_spent: false });
            self.keys.insert(Arc::clone(&key), KeyState { phase, failures: 0 });
            self.place(&key, lane, at, now);
            return true;
        };
        match phase {
            KeyPhase::Ready(Lane::Present, number) if lane == Lane::Changed => {
                self.ready.remove(&(Lane::Present, number));
                self.place(&key, lane, at, now);
                false
            }
            KeyPhase::Delayed(due) if at < due => {
                self.delayed.remove(&(due, Arc::clone(&key)));
                self.place(&key, lane, at, now);
                true
            }
            KeyPhase::Ready(..) | KeyPhase::Delayed(_) => false,
            KeyPhase::Running { again, has_spent } => {
                let joined = again.map_or((lane, at), |(other, due)| (lane.min(other), due.min(at)));
                self.set(&key, KeyPhase::Running { again: Some(joined), has_spent });
                again.is_none()
            }
        }
    }

    /// Forgets a delayed key and its failures: its object was deleted. A ready key stays, and its run finds no object.
    pub(super) fn forget(&mut self, key: &str) {
        let Some((key, state)) = self.keys.get_key_value(key) else { return };
        if let KeyPhase::Delayed(at) = state.phase {
            let key = Arc::clone(key);
            self.keys.remove(&key);
            self.delayed.remove(&(at, key));
        }
    }

    /// Takes the key that has been ready for longest in the first lane that may run. Its run lasts until
    /// [`done`](Self::done).
    pub(super) fn take(&mut self, now: Instant) -> Option<ReadyKey> {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((at, key)) = self.delayed.pop_first()
        {
            self.make_ready(&key, Lane::Changed, at);
        }
        let has_token = self.budget.has_token(now);
        let mut lanes = LANES.into_iter().filter(|lane| has_token || !self.needs_token(*lane));
        let place = lanes.find_map(|lane| self.ready.range((lane, 0)..=(lane, u64::MAX)).next().map(|(at, _)| *at))?;
        let (key, since) = self.ready.remove(&place)?;
        let has_spent = self.needs_token(place.0);
        if has_spent {
            self.budget.spend(now);
        }
        self.set(&key, KeyPhase::Running { again: None, has_spent });
        Some(ReadyKey { key, waited: now.saturating_duration_since(since) })
    }

    const fn needs_token(&self, lane: Lane) -> bool {
        matches!(lane, Lane::Retry) || self.budget.is_closed()
    }

    /// Time at which a key can be taken, if none can be now: the next delay is over, or a token is back.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        let token = if self.ready.is_empty() { None } else { self.budget.next_at() };
        delayed.into_iter().chain(token).min()
    }

    /// Counts a failure of a running key. Returns its failures in a row. One that ran no reconciler costs nothing, so it
    /// does not count in the budget.
    pub(super) fn count_failure(&mut self, key: &str, has_run: bool, now: Instant) -> u32 {
        if has_run {
            self.budget.failed(now);
        }
        self.keys.get_mut(key).map_or(1, |state| {
            state.failures = state.failures.saturating_add(1);
            state.failures
        })
    }

    /// Forgets the failures of a running key.
    pub(super) fn reset_failures(&mut self, key: &str) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.failures = 0;
        self.budget.succeeded(matches!(state.phase, KeyPhase::Running { has_spent: true, .. }));
    }

    /// Ends the run of `key`. It becomes ready if it was triggered meanwhile, else at the given time.
    pub(super) fn done(&mut self, key: &Arc<str>, again_at: Option<Instant>, now: Instant) {
        let Some(state) = self.keys.get(key) else { return };
        match (state.phase, again_at) {
            (KeyPhase::Ready(..) | KeyPhase::Delayed(_), _) => {}
            (KeyPhase::Running { again: Some((lane, at)), .. }, _) => self.place(key, lane, at, now),
            (KeyPhase::Running { again: None, .. }, Some(at)) => self.delay(key, at),
            (KeyPhase::Running { again: None, .. }, None) => drop(self.keys.remove(key)),
        }
        if self.keys.is_empty() {
            // The first state of a large type makes every key ready once; later only a few are.
            self.keys.shrink_to_fit();
        }
    }

    /// Makes a key ready at this time.
    fn place(&mut self, key: &Arc<str>, lane: Lane, at: Instant, now: Instant) {
        if at <= now { self.make_ready(key, lane, now) } else { self.delay(key, at) }
    }

    fn make_ready(&mut self, key: &Arc<str>, lane: Lane, since: Instant) {
        let has_failed = self.keys.get(key).is_some_and(|state| state.failures > 0);
        let lane = if has_failed { Lane::Retry } else { lane };
        self.ready.insert((lane, self.next_number), (Arc::clone(key), since));
        self.set(key, KeyPhase::Ready(lane, self.next_number));
        self.next_number += 1;
    }

    fn delay(&mut self, key: &Arc<str>, at: Instant) {
        self.set(key, KeyPhase::Delayed(at));
        self.delayed.insert((at, Arc::clone(key)));
    }

    fn set(&mut self, key: &str, phase: KeyPhase) {
        if let Some(state) = self.keys.get_mut(key) {
            state.phase = phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> (WorkQueue, Instant) {
        (WorkQueue::new(Duration::ZERO, RetryBudget::new(10.0, 3)), Instant::now())
    }

    fn take(queue: &mut WorkQueue, now: Instant) -> Option<String> {
        queue.take(now).map(|taken| taken.key.to_string())
    }

    fn taken(queue: &mut WorkQueue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| take(queue, now)).collect()
    }

    #[test]
    fn keys_run_in_order_and_once() {
        let (mut queue, now) = queue();
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(key, Lane::Changed, now);
        }
        assert_eq!(queue.len(), 3);
        let first = queue.take(now + SECOND).expect("it is ready");
        assert_eq!((&*first.key, first.waited), ("a", SECOND));
        assert_eq!(taken(&mut queue, now), ["b", "c"]);
    }

    #[test]
    fn changed_keys_run_before_those_that_are_only_present() {
        let (mut queue, now) = queue();
        for key in ["a", "b", "c"] {
            queue.add(key, Lane::Present, now);
        }
        queue.add("new", Lane::Changed, now);
        queue.add("c", Lane::Changed, now);
        queue.add("c", Lane::Present, now);
        assert_eq!(taken(&mut queue, now), ["new", "c", "a", "b"]);
    }

    #[test]
    fn a_hundred_triggers_during_a_run_make_one_more() {
        let (mut queue, now) = queue();
        queue.add("a", Lane::Changed, now);
        let key = queue.take(now).expect("it is ready").key;
        for _ in 0..100 {
            queue.add("a", Lane::Changed, now);
            assert_eq!(take(&mut queue, now), None, "it runs already");
        }
        queue.done(&key, Some(now + SECOND), now);
        assert_eq!(take(&mut queue, now).as_deref(), Some("a"));
        queue.done(&key, None, now);
        assert_eq!(take(&mut queue, now + 2 * SECOND), None, "the trigger took the place of the delay");
        assert!(queue.keys.is_empty());
    }

    #[test]
    fn a_trigger_ends_a_delay_and_a_deletion_forgets_it() {
        let (mut queue, now) = queue();
        for key in ["a", "b", "c"] {
            queue.add(key, Lane::Changed, now);
            let key = queue.take(now).expect("it is ready").key;
            queue.done(&key, Some(now + SECOND), now);
        }
        assert_eq!((take(&mut queue, now), queue.next_at()), (None, Some(now + SECOND)));
        queue.add("b", Lane::Changed, now);
        queue.forget("c");
        assert_eq!(take(&mut queue, now).as_deref(), Some("b"));
        assert_eq!(take(&mut queue, now + SECOND).as_deref(), Some("a"));
        assert_eq!((take(&mut queue, now + SECOND), queue.next_at()), (None, None));
    }

    #[test]
    fn triggers_of_a_debounced_change_make_one_run_that_none_of_them_puts_off() {
        let (_, now) = queue();
        let mut queue = WorkQueue::new(SECOND, RetryBudget::new(10.0, 3));
        for tenth in 0..10 {
            queue.add("a", Lane::Changed, now + tenth * SECOND / 10);
            assert_eq!(take(&mut queue, now + tenth * SECOND / 10), None);
        }
        queue.add("b", Lane::Present, now);
        assert_eq!(taken(&mut queue, now), ["b"], "only changes are gathered");
        assert_eq!(queue.next_at(), Some(now + SECOND), "since the first trigger");
        let key = queue.take(now + SECOND).expect("it is ready").key;
        queue.add("a", Lane::Changed, now + SECOND);
        queue.done(&key, None, now + SECOND);
        assert_eq!((take(&mut queue, now + SECOND), queue.next_at()), (None, Some(now + 2 * SECOND)));
    }

    #[test]
    fn failures_count_in_a_row() {
        let (mut queue, now) = queue();
        queue.add("a", Lane::Changed, now);
        for expected in 1..=2 {
            let key = queue.take(now).expect("it is ready").key;
            assert_eq!(queue.count_failure(&key, true, now), expected);
            queue.done(&key, Some(now), now);
        }
        let key = queue.take(now).expect("it is ready").key;
        queue.reset_failures(&key);
        assert_eq!(queue.count_failure(&key, true, now), 1);
    }

    /// Goal: failing keys share a budget and delay no other key, unless all fail. Method: two keys that fail until the
    /// budget is spent, beside one that works; then keys that all fail.
    #[test]
    fn failing_keys_share_a_budget() {
        let (_, now) = queue();
        let mut queue = WorkQueue::new(Duration::ZERO, RetryBudget::new(10.0, 5));
        let fail = |queue: &mut WorkQueue, key: &Arc<str>| {
            queue.count_failure(key, true, now);
            queue.done(key, Some(now), now);
        };
        let mut runs = 0;
        for key in ["a", "b"] {
            queue.add(key, Lane::Changed, now);
            let first = queue.take(now).expect("it has not failed yet").key;
            fail(&mut queue, &first);
        }
        while let Some(ReadyKey { key, .. }) = queue.take(now) {
            fail(&mut queue, &key);
            queue.add("works", Lane::Changed, now);
            let works = queue.take(now).expect("another key needs no token").key;
            queue.reset_failures(&works);
            queue.done(&works, None, now);
            runs += 1;
        }
        assert_eq!((runs, queue.len()), (5, 2), "a burst");
        assert_eq!(queue.next_at(), Some(now + SECOND / 10));

        let later = now + 10 * SECOND;
        for key in ["a", "b", "c", "d", "e"] {
            queue.add(key, Lane::Changed, later);
            let key = queue.take(later).expect("the tokens are back").key;
            queue.count_failure(&key, true, later);
            queue.done(&key, None, later);
        }
        queue.add("new", Lane::Changed, later);
        assert_eq!(take(&mut queue, later), None, "all of the last five failed");
        assert_eq!(take(&mut queue, later + SECOND / 10).as_deref(), Some("new"));
    }
}
