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
    /// Ready keys, with the time since which they are, by [`Lane::place`]. Exactly the keys in `KeyPhase::Ready`.
    ready: BTreeMap<u64, (Arc<str>, Instant)>,
    /// Number of the next key that becomes ready.
    next_number: u64,
    /// Keys that became ready since `take_added`.
    added: u64,
    /// Keys taken so far.
    takes: u64,
    /// True if the next failing key comes from `Lane::RetryChanged`.
    is_retry_changed_next: bool,
    /// Delayed keys by time. Exactly the keys in `KeyPhase::Delayed`.
    delayed: BTreeSet<(Instant, Arc<str>)>,
    /// Time for which triggers of a change are gathered.
    debounce: Duration,
    budget: RetryBudget,
}

/// Priority of a ready key. Triggers name the first two; a key whose last reconcile failed joins the others instead, and
/// each of its attempts needs a token of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Something changed.
    Changed,
    /// The key exists: the controller started, every object is to be reconciled, or a requested delay is over.
    Present,
    /// The last reconcile failed, and something changed since: perhaps the mistake was corrected.
    RetryChanged,
    /// The last reconcile failed.
    Retry,
}

/// One of every `FAIR_SHARE` takes serves `Lane::Present` first, another the lanes of failing keys. So no lane waits for
/// another to become empty.
const FAIR_SHARE: u64 = 8;
const PRESENT_TURN: u64 = FAIR_SHARE / 2 - 1;
const FAILING_TURN: u64 = FAIR_SHARE - 1;

/// Largest number of a ready key: centuries of them. 2 bits remain for the lane.
const PLACES_MAX: u64 = (1 << 62) - 1;
const _: () = assert!(Lane::Retry as u64 <= u64::MAX >> PLACES_MAX.count_ones());

/// Capacity of the table of keys that is never freed: an idle controller allocates no table at each reconcile.
const KEYS_CAPACITY: usize = 56;

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
    /// The lane in which it is ready, or which it joins after its delay or its run.
    lane: Lane,
    /// Failed reconciles since the last success.
    failures: u32,
    /// True while it runs, if the run spent a token of the budget.
    has_spent: bool,
}

#[derive(Clone, Copy, Debug)]
enum KeyPhase {
    /// With the number of its place.
    Ready(u64),
    Delayed(Instant),
    /// With the earliest time of the next run, once something triggered it.
    Running(Option<Instant>),
}

impl WorkQueue {
    pub(super) fn new(debounce: Duration, budget: RetryBudget) -> Self {
        let (keys, ready, delayed) = (HashMap::new(), BTreeMap::new(), BTreeSet::new());
        let (next_number, added, takes, is_retry_changed_next) = (0, 0, 0, true);
        Self { keys, ready, next_number, added, takes, is_retry_changed_next, delayed, debounce, budget }
    }

    /// Number of ready keys.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns how many keys became ready since the last call.
    pub(super) fn take_added(&mut self) -> u64 {
        std::mem::take(&mut self.added)
    }

    /// Makes `key` ready in `lane`, ahead of its delay, or after the debounce time of a change. While it runs, it
    /// becomes ready again at the end of the run: any number of triggers makes one more run. A failing key that is only
    /// present keeps its delay.
    pub(super) fn add(&mut self, key: &str, lane: Lane, now: Instant) {
        let at = if lane == Lane::Changed { now + self.debounce } else { now };
        let Some((key, state)) = self.keys.get_key_value(key) else {
            let (key, phase) = (Arc::from(key), KeyPhase::Running(None));
            self.keys.insert(Arc::clone(&key), KeyState { phase, lane, failures: 0, has_spent: false });
            return self.place(&key, lane, at, now);
        };
        let (key, phase, old, has_failed) = (Arc::clone(key), state.phase, state.lane, state.failures > 0);
        match phase {
            KeyPhase::Ready(number) => {
                let lane = lane.of_key(has_failed);
                if lane < old
                    && let Some((_, since)) = self.ready.remove(&old.place(number))
                {
                    self.insert_ready(&key, lane, since);
                }
            }
            KeyPhase::Delayed(_) if has_failed && lane == Lane::Present => {}
            KeyPhase::Delayed(due) => {
                self.delayed.remove(&(due, Arc::clone(&key)));
                self.place(&key, lane.min(old), at.min(due), now);
            }
            KeyPhase::Running(again) => {
                let (lane, at) = again.map_or((lane, at), |due| (lane.min(old), due.min(at)));
                self.set(&key, lane, KeyPhase::Running(Some(at)));
            }
        }
    }

    /// Forgets a waiting key and its failures: its object was deleted. A key that runs ends its run.
    pub(super) fn forget(&mut self, key: &str) {
        let Some((key, state)) = self.keys.get_key_value(key) else { return };
        let (key, phase, lane) = (Arc::clone(key), state.phase, state.lane);
        match phase {
            KeyPhase::Ready(number) => drop(self.ready.remove(&lane.place(number))),
            KeyPhase::Delayed(at) => _ = self.delayed.remove(&(at, Arc::clone(&key))),
            KeyPhase::Running(_) => return,
        }
        self.remove(&key);
    }

    /// Takes the key that has been ready for longest in the first lane that may run. Its run lasts until
    /// [`done`](Self::done).
    pub(super) fn take(&mut self, now: Instant) -> Option<ReadyKey> {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((at, key)) = self.delayed.pop_first()
        {
            let Some(KeyState { phase: KeyPhase::Delayed(_), lane, .. }) = self.keys.get(&key) else { continue };
            self.make_ready(&key, *lane, at);
        }
        let has_token = self.budget.has_token(now);
        let mut lanes = self.order().into_iter().filter(|lane| has_token || !self.needs_token(*lane));
        let (lane, place) = lanes.find_map(|lane| {
            let places = lane.place(0)..=lane.place(PLACES_MAX);
            self.ready.range(places).next().map(|(place, _)| (lane, *place))
        })?;
        let (key, since) = self.ready.remove(&place)?;
        let has_spent = self.needs_token(lane);
        if has_spent {
            self.budget.spend(now);
        }
        if lane.is_failing() {
            self.is_retry_changed_next = !self.is_retry_changed_next;
        }
        self.takes = self.takes.wrapping_add(1);
        if let Some(state) = self.keys.get_mut(&key) {
            (state.phase, state.has_spent) = (KeyPhase::Running(None), has_spent);
        }
        Some(ReadyKey { key, waited: now.saturating_duration_since(since) })
    }

    /// Lanes in the order in which the next key is taken. Failing keys come last: while the budget is closed, every key
    /// needs a token, and only one that succeeds opens it. The lanes of failing keys take turns: reconcilers that write
    /// a status when they fail trigger themselves.
    const fn order(&self) -> [Lane; 4] {
        let (first, second) = if self.is_retry_changed_next {
            (Lane::RetryChanged, Lane::Retry)
        } else {
            (Lane::Retry, Lane::RetryChanged)
        };
        match self.takes % FAIR_SHARE {
            PRESENT_TURN => [Lane::Present, Lane::Changed, first, second],
            FAILING_TURN => [first, second, Lane::Present, Lane::Changed],
            _ => [Lane::Changed, Lane::Present, first, second],
        }
    }

    const fn needs_token(&self, lane: Lane) -> bool {
        lane.is_failing() || self.budget.is_closed()
    }

    /// Returns the token of a running key, which writes nothing: its object was deleted.
    pub(super) fn return_token(&mut self, key: &str) {
        if let Some(state) = self.keys.get_mut(key)
            && std::mem::take(&mut state.has_spent)
        {
            self.budget.return_token();
        }
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

    /// Forgets the failures of a running key. Only a reconciler that ran proves that writes succeed again.
    pub(super) fn reset_failures(&mut self, key: &str, has_run: bool) {
        if let Some(state) = self.keys.get_mut(key) {
            state.failures = 0;
        }
        if has_run {
            self.budget.succeeded();
            self.return_token(key);
        }
    }

    /// Ends the run of `key`. It becomes ready if it was triggered meanwhile, else at the given time.
    pub(super) fn done(&mut self, key: &Arc<str>, again_at: Option<Instant>, now: Instant) {
        let Some(state) = self.keys.get(key) else { return };
        match (state.phase, again_at) {
            (KeyPhase::Ready(_) | KeyPhase::Delayed(_), _) => {}
            (KeyPhase::Running(Some(at)), _) => self.place(key, state.lane, at, now),
            (KeyPhase::Running(None), Some(at)) => self.delay(key, Lane::Present, at),
            (KeyPhase::Running(None), None) => self.remove(key),
        }
    }

    fn remove(&mut self, key: &str) {
        self.keys.remove(key);
        // The first state of a large type makes every key ready once; later only a few are.
        let (len, capacity) = (self.keys.len(), self.keys.capacity());
        if capacity > KEYS_CAPACITY && len < capacity / 8 {
            self.keys.shrink_to(KEYS_CAPACITY.max(len * 2));
        }
    }

    /// Makes a key ready at this time.
    fn place(&mut self, key: &Arc<str>, lane: Lane, at: Instant, now: Instant) {
        if at <= now { self.make_ready(key, lane, now) } else { self.delay(key, lane, at) }
    }

    fn make_ready(&mut self, key: &Arc<str>, lane: Lane, since: Instant) {
        let has_failed = self.keys.get(key).is_some_and(|state| state.failures > 0);
        self.added += 1;
        self.insert_ready(key, lane.of_key(has_failed), since);
    }

    fn insert_ready(&mut self, key: &Arc<str>, lane: Lane, since: Instant) {
        self.ready.insert(lane.place(self.next_number), (Arc::clone(key), since));
        self.set(key, lane, KeyPhase::Ready(self.next_number));
        self.next_number += 1;
    }

    fn delay(&mut self, key: &Arc<str>, lane: Lane, at: Instant) {
        self.set(key, lane, KeyPhase::Delayed(at));
        self.delayed.insert((at, Arc::clone(key)));
    }

    fn set(&mut self, key: &str, lane: Lane, phase: KeyPhase) {
        if let Some(state) = self.keys.get_mut(key) {
            (state.lane, state.phase) = (lane, phase);
        }
    }
}

impl Lane {
    /// Place in the order of ready keys: by lane, then by number. One integer, because a large type has as many of them as
    /// objects at the start.
    const fn place(self, number: u64) -> u64 {
        (self as u64) << PLACES_MAX.count_ones() | number
    }

    /// The lane that a trigger of this lane makes a key join.
    const fn of_key(self, has_failed: bool) -> Self {
        match (has_failed, self) {
            (false, lane) => lane,
            (true, Self::Changed | Self::RetryChanged) => Self::RetryChanged,
            (true, Self::Present | Self::Retry) => Self::Retry,
        }
    }

    const fn is_failing(self) -> bool {
        matches!(self, Self::RetryChanged | Self::Retry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

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
    fn a_trigger_during_a_run_counts_by_its_own_lane() {
        let (mut queue, now) = queue();
        queue.add("a", Lane::Changed, now);
        let key = queue.take(now).expect("it is ready").key;
        queue.add("a", Lane::Present, now);
        queue.done(&key, None, now);
        queue.add("b", Lane::Changed, now);
        assert_eq!(taken(&mut queue, now), ["b", "a"]);
    }

    #[test]
    fn a_change_of_a_waiting_key_does_not_restart_its_wait() {
        let (mut queue, now) = queue();
        queue.add("c", Lane::Present, now);
        queue.add("c", Lane::Changed, now + SECOND);
        assert_eq!(queue.take(now + SECOND).map(|taken| taken.waited), Some(SECOND));
    }

    /// Goal: the memory of a first state is freed, though keys still wait. Method: of 10,000 keys, one waits for a delay
    /// after the others have ended; then 10,000 that wait for a delay are deleted.
    #[test]
    fn the_table_of_a_first_state_is_freed_while_a_key_waits() {
        let (mut queue, now) = queue();
        let keys: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        for is_delayed in [false, true] {
            keys.iter().for_each(|key| queue.add(key, Lane::Present, now));
            while let Some(ReadyKey { key, .. }) = queue.take(now) {
                queue.done(&key, (is_delayed || &*key == "0").then_some(now + SECOND), now);
            }
            keys[1..].iter().for_each(|key| queue.forget(key));
            assert_eq!(queue.keys.len(), 1);
            assert!(queue.keys.capacity() < 100, "{}", queue.keys.capacity());
        }
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
        queue.reset_failures(&key, true);
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
        for key in ["a", "b"] {
            queue.add(key, Lane::Changed, now);
            let first = queue.take(now).expect("it has not failed yet").key;
            fail(&mut queue, &first);
        }
        let mut runs = 0;
        for _ in 0..100 {
            queue.add("works", Lane::Changed, now);
            let key = queue.take(now).expect("another key needs no token").key;
            if &*key == "works" {
                queue.reset_failures(&key, true);
                queue.done(&key, None, now);
            } else {
                fail(&mut queue, &key);
                runs += 1;
            }
        }
        assert_eq!((runs, queue.ready.len()), (5, 2), "a burst");
        assert_eq!(queue.next_at(), Some(now + SECOND / 10));
        ["a", "b"].iter().for_each(|key| queue.forget(key));

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

    /// Runs a controller of 16 reconciles of 10 ms each in virtual time. `reconcile` returns whether the run succeeds and
    /// the delay of the next one.
    fn simulate(
        queue: &mut WorkQueue,
        (start, end): (Instant, Instant),
        mut reconcile: impl FnMut(&mut WorkQueue, &str, Instant) -> (bool, Option<Duration>),
    ) {
        let (mut now, mut running) = (start, VecDeque::<(Instant, Arc<str>)>::new());
        while now < end {
            while running.len() < 16
                && let Some(ReadyKey { key, .. }) = queue.take(now)
            {
                running.push_back((now + SECOND / 100, key));
            }
            let next = running.front().map(|(at, _)| *at);
            let wakes = queue.next_at().filter(|at| *at > now && running.len() < 16);
            let Some(next) = next.into_iter().chain(wakes).min() else { return };
            now = next;
            while let Some((_, key)) = running.pop_front_if(|(at, _)| *at <= now) {
                let (is_success, delay) = reconcile(queue, &key, now);
                if is_success {
                    queue.reset_failures(&key, true);
                } else {
                    queue.count_failure(&key, true, now);
                }
                queue.done(&key, delay.map(|delay| now + delay), now);
            }
        }
    }

    fn filled(keys: impl IntoIterator<Item = String>) -> (WorkQueue, Instant) {
        let (mut queue, now) = (WorkQueue::new(Duration::ZERO, RetryBudget::new(10.0, 100)), Instant::now());
        keys.into_iter().for_each(|key| queue.add(&key, Lane::Present, now));
        (queue, now)
    }

    fn failing(keys: usize) -> impl Iterator<Item = String> {
        (0..keys).map(|number| format!("fails{number}"))
    }

    /// Goal: objects that work do not wait for the repetitions of those that fail. Method: a start with 1,000 that fail
    /// and write a status, before 100 that work.
    #[test]
    fn a_start_reaches_the_objects_behind_failing_ones() {
        let (mut queue, start) = filled(failing(1_000).chain((0..100).map(|number| format!("works{number}"))));
        let (mut worked, mut last) = (0, start);
        simulate(&mut queue, (start, start + 300 * SECOND), |queue, key, now| {
            if key.starts_with("works") {
                (worked, last) = (worked + 1, now);
                return (true, None);
            }
            queue.add(key, Lane::Changed, now);
            (false, Some(5 * SECOND))
        });
        assert_eq!(worked, 100);
        assert!(last - start < 120 * SECOND, "{:?}", last - start);
    }

    /// Goal: the correction of a failing object takes effect at once, and no retry starves. Method: 50,000 objects fail,
    /// most of them untried, then with 30 that write a status at each failure; one is corrected.
    #[test]
    fn a_corrected_object_is_reconciled_within_seconds() {
        for (keys, writers) in [(50_000, 0), (500, 30)] {
            let (mut queue, start) = filled(failing(keys));
            let minute = start + 60 * SECOND;
            simulate(&mut queue, (start, minute), |_, _, _| (false, Some(SECOND)));
            (1..=writers).for_each(|number| queue.add(&format!("fails{number}"), Lane::Changed, minute));
            queue.add("fails0", Lane::Changed, minute);
            let (mut corrected, mut others) = (None, 0);
            simulate(&mut queue, (minute, minute + 20 * SECOND), |queue, key, now| {
                let number: usize = key[5..].parse().expect("a number");
                if number == 0 {
                    corrected.get_or_insert(now - minute);
                } else if number <= writers {
                    queue.add(key, Lane::Changed, now);
                } else {
                    others += 1;
                }
                (false, Some(SECOND))
            });
            assert!(corrected.is_some_and(|took| took < 8 * SECOND), "{corrected:?} with {writers}");
            assert!(others >= 90, "{others} with {writers}");
        }
    }

    #[test]
    fn deleted_failing_keys_cost_no_token() {
        let (mut queue, start) = filled(failing(1_000));
        let minute = start + 60 * SECOND;
        simulate(&mut queue, (start, minute), |_, _, _| (false, Some(SECOND)));
        failing(1_000).filter(|key| key != "fails999").for_each(|key| queue.forget(&key));
        assert_eq!(take(&mut queue, minute + SECOND).as_deref(), Some("fails999"));
        queue.return_token("fails999");
        assert!(queue.budget.has_token(minute + SECOND) && queue.ready.is_empty() && queue.delayed.is_empty());
    }

    /// Goal: no lane starves. Method: 40 objects whose next change is there before their reconcile ends, or 200 that poll,
    /// beside present and failing ones.
    #[test]
    fn busy_objects_do_not_starve_others() {
        for (busy, lane, delay) in [(40, Lane::Changed, None), (200, Lane::Present, Some(SECOND / 10))] {
            let (mut queue, start) = filled((0..50).map(|number| format!("works{number}")).chain(failing(5)));
            (0..busy).for_each(|number| queue.add(&format!("busy{number}"), lane, start));
            let (mut works, mut fails) = (0, 0);
            simulate(&mut queue, (start, start + 2 * SECOND), |queue, key, now| match &key[..4] {
                "busy" => {
                    if lane == Lane::Changed {
                        queue.add(key, lane, now);
                    }
                    (true, delay)
                }
                "work" => {
                    works += 1;
                    (true, None)
                }
                _ => {
                    fails += 1;
                    (false, Some(SECOND / 10))
                }
            });
            assert_eq!(works, 50, "{lane:?}");
            assert!(fails >= 50, "{fails} {lane:?}");
        }
    }

    /// Goal: a trigger of every object does not put off what is due, and keeps the backoff of failing objects.
    #[test]
    fn a_trigger_of_all_keeps_backoff_and_the_lane_of_a_change() {
        let now = Instant::now();
        let mut queue = WorkQueue::new(SECOND, RetryBudget::new(10.0, 3));
        queue.add("fails", Lane::Present, now);
        let fails = queue.take(now).expect("it is ready").key;
        queue.count_failure(&fails, true, now);
        queue.done(&fails, Some(now + 5 * SECOND), now);
        queue.add("changed", Lane::Changed, now);
        for key in ["a", "b", "changed", "fails"] {
            queue.add(key, Lane::Present, now);
        }
        assert_eq!(taken(&mut queue, now), ["changed", "a", "b"]);
        assert_eq!((queue.next_at(), queue.take_added()), (Some(now + 5 * SECOND), 4));
        queue.add("fails", Lane::Changed, now);
        assert_eq!(take(&mut queue, now + SECOND).as_deref(), Some("fails"), "a change ends its delay");
    }
}
