//! Keys that wait for their reconcile, like the work queue of client-go.
//!
//! INVARIANT: a key waits at most once, and runs at most once at a time. Knows no clock: time is an argument.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

/// Keys that are ready, delayed or running.
///
/// Memory: about 100 bytes and one text for each such key. Other keys take none.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    keys: HashMap<Arc<str>, KeyState>,
    /// Ready keys, oldest first. Exactly the keys in `KeyPhase::Ready`.
    ready: VecDeque<Arc<str>>,
    /// Delayed keys by time. Exactly the keys in `KeyPhase::Delayed`.
    delayed: BTreeSet<(Instant, Arc<str>)>,
}

#[derive(Debug)]
struct KeyState {
    phase: KeyPhase,
    /// Failed reconciles since the last success.
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
enum KeyPhase {
    Ready,
    Delayed(Instant),
    /// `again` is true once something triggered the key during its run.
    Running {
        again: bool,
    },
}

impl WorkQueue {
    /// Makes `key` ready, ahead of its delay. While it runs, it becomes ready again at the end of the run: any number
    /// of triggers makes one more run.
    pub(super) fn add(&mut self, key: &str) {
        let Some((key, state)) = self.keys.get_key_value(key).map(|(key, state)| (Arc::clone(key), state.phase)) else {
            let key = Arc::from(key);
            self.keys.insert(Arc::clone(&key), KeyState { phase: KeyPhase::Ready, failures: 0 });
            return self.ready.push_back(key);
        };
        match state {
            KeyPhase::Ready => {}
            KeyPhase::Delayed(at) => {
                self.delayed.remove(&(at, Arc::clone(&key)));
                self.set(&key, KeyPhase::Ready);
                self.ready.push_back(key);
            }
            KeyPhase::Running { .. } => self.set(&key, KeyPhase::Running { again: true }),
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

    /// Takes the key that has been ready for longest. Its run lasts until [`done`](Self::done).
    pub(super) fn take(&mut self, now: Instant) -> Option<Arc<str>> {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.delayed.pop_first()
        {
            self.set(&key, KeyPhase::Ready);
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        self.set(&key, KeyPhase::Running { again: false });
        Some(key)
    }

    /// Time at which the next delayed key becomes ready.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Counts a failure of a running key. Returns its failures in a row.
    pub(super) fn count_failure(&mut self, key: &str) -> u32 {
        self.keys.get_mut(key).map_or(1, |state| {
            state.failures = state.failures.saturating_add(1);
            state.failures
        })
    }

    /// Forgets the failures of a running key.
    pub(super) fn reset_failures(&mut self, key: &str) {
        if let Some(state) = self.keys.get_mut(key) {
            state.failures = 0;
        }
    }

    /// Ends the run of `key`. It becomes ready at once if it was triggered meanwhile, else at the given time.
    pub(super) fn done(&mut self, key: &Arc<str>, again_at: Option<Instant>) {
        let Some(state) = self.keys.get(key) else { return };
        match (state.phase, again_at) {
            (KeyPhase::Ready | KeyPhase::Delayed(_), _) => {}
            (KeyPhase::Running { again: true }, _) => {
                self.set(key, KeyPhase::Ready);
                self.ready.push_back(Arc::clone(key));
            }
            (KeyPhase::Running { again: false }, Some(at)) => {
                self.set(key, KeyPhase::Delayed(at));
                self.delayed.insert((at, Arc::clone(key)));
            }
            (KeyPhase::Running { again: false }, None) => drop(self.keys.remove(key)),
        }
        if self.keys.is_empty() {
            // The first state of a large type makes every key ready once; later only a few are.
            self.keys.shrink_to_fit();
            self.ready.shrink_to_fit();
        }
    }

    fn set(&mut self, key: &str, phase: KeyPhase) {
        if let Some(state) = self.keys.get_mut(key) {
            state.phase = phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn take(queue: &mut WorkQueue, now: Instant) -> Option<String> {
        queue.take(now).map(|key| key.to_string())
    }

    #[test]
    fn keys_run_in_order_and_once() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(key);
        }
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut queue, now)).collect();
        assert_eq!(taken, ["a", "b", "c"]);
        assert_eq!(take(&mut queue, now), None);
    }

    #[test]
    fn a_hundred_triggers_during_a_run_make_one_more() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.add("a");
        let key = queue.take(now).expect("it is ready");
        for _ in 0..100 {
            queue.add("a");
            assert_eq!(take(&mut queue, now), None, "it runs already");
        }
        queue.done(&key, Some(now + SECOND));
        assert_eq!(take(&mut queue, now).as_deref(), Some("a"));
        queue.done(&key, None);
        assert_eq!(take(&mut queue, now + 2 * SECOND), None, "the trigger took the place of the delay");
        assert!(queue.keys.is_empty());
    }

    #[test]
    fn a_trigger_ends_a_delay_and_a_deletion_forgets_it() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for key in ["a", "b", "c"] {
            queue.add(key);
            let key = queue.take(now).expect("it is ready");
            queue.done(&key, Some(now + SECOND));
        }
        assert_eq!((take(&mut queue, now), queue.next_at()), (None, Some(now + SECOND)));
        queue.add("b");
        queue.forget("c");
        assert_eq!(take(&mut queue, now).as_deref(), Some("b"));
        assert_eq!(take(&mut queue, now + SECOND).as_deref(), Some("a"));
        assert_eq!((take(&mut queue, now + SECOND), queue.next_at()), (None, None));
    }

    #[test]
    fn failures_count_in_a_row() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.add("a");
        for expected in 1..=3 {
            let key = queue.take(now).expect("it is ready");
            assert_eq!(queue.count_failure(&key), expected);
            queue.done(&key, Some(now));
        }
        let key = queue.take(now).expect("it is ready");
        queue.reset_failures(&key);
        assert_eq!(queue.count_failure(&key), 1);
    }
}
