//! Keeps the wakes that a connection causes by itself from the runtime.
//!
//! hyper wakes the task of a connection whenever a handler takes a piece of a request body, while that task is polled.
//! The runtime would put the task at the end of its queue, and wake another thread in case the queue is long: two system
//! calls and two switches of threads for every write. Here the connection is polled again instead.
//!
//! INVARIANT: no wake is lost: each either leads to another poll, or wakes the task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// Polls in a row before the task lets others of its thread run.
const POLLS_MAX: usize = 8;

/// No poll is in progress: a wake goes to the task.
const IDLE: u8 = 0;
/// A poll is in progress.
const POLLING: u8 = 1;
/// A wake came during the poll in progress.
const WOKEN: u8 = 2;

/// The waker of one connection. Cost: one allocation.
pub struct OwnWakes {
    state: Arc<WakeState>,
    waker: Waker,
}

struct WakeState {
    phase: AtomicU8,
    task: AtomicWaker,
}

impl OwnWakes {
    #[expect(clippy::new_without_default, reason = "it begins a state of its own")]
    pub fn new() -> Self {
        let state = Arc::new(WakeState { phase: AtomicU8::new(IDLE), task: AtomicWaker::new() });
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Calls `poll`, and again if it was woken meanwhile.
    pub fn poll<T>(&self, cx: &mut Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let WakeState { phase, task } = &*self.state;
        // Before the first poll: a wake that comes after the last one goes to this waker.
        task.register(cx.waker());
        for _ in 0..POLLS_MAX {
            phase.store(POLLING, Ordering::Release);
            if let Poll::Ready(value) = poll(&mut Context::from_waker(&self.waker)) {
                phase.store(IDLE, Ordering::Release);
                return Poll::Ready(value);
            }
            // Fails after a wake during the poll, whose cause the poll may have missed.
            if phase.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        // The last poll was woken as well: the task is polled again after others.
        phase.store(IDLE, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // During a poll, the first wake leads to another one, and further wakes change nothing.
        if self.phase.compare_exchange(POLLING, WOKEN, Ordering::AcqRel, Ordering::Acquire) == Err(IDLE) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Goal: a wake during a poll leads to another poll and not to the task, one after it to the task. Method: counts
    /// both.
    #[test]
    fn wakes_by_the_connection_itself_do_not_reach_the_task() {
        let (own, task) = (OwnWakes::new(), Arc::new(WakeCount::default()));
        let waker = Waker::from(Arc::clone(&task));
        let (mut polls, mut last) = (0, None);
        let polled = own.poll(&mut Context::from_waker(&waker), |cx| {
            polls += 1;
            last = Some(cx.waker().clone());
            if polls < 3 {
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((polls, task.0.load(Ordering::Relaxed)), (3, 0));
        last.expect("was polled").wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "a wake from outside");
    }

    /// Goal: a connection that always wakes itself lets other tasks run. Method: it wakes itself in every poll.
    #[test]
    fn a_connection_that_wakes_itself_for_ever_yields() {
        let (own, task) = (OwnWakes::new(), Arc::new(WakeCount::default()));
        let waker = Waker::from(Arc::clone(&task));
        let mut polls = 0;
        let polled = own.poll(&mut Context::from_waker(&waker), |cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((polls, task.0.load(Ordering::Relaxed)), (POLLS_MAX, 1));
    }
}
