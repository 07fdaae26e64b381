//! Nobody sleeps through an event, on any schedule: the wake-up protocol under a model checker.
//!
//! Mounts the very file that runs, `src/interest.rs`, beside locks and atomics of the model. Each test runs once for every
//! way in which its threads can take turns, with a few involuntary switches each. A watcher that nobody wakes is a
//! deadlock, which the model reports with the schedule that led there.
//!
//! INVARIANT: what looks, waits, pushes and wakes here is that file alone; this one only says who does how much.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use loom::{sync::Notify, thread};

use interest::{Closed, Interest, Look, Place, Waiters, Waking, look_or_wait};
use sync::RwLock;

/// The locks and atomics that `interest` takes, of the model. Its locks are never poisoned.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a panic ends the model")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a panic ends the model")
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a panic ends the model")
        }
    }
}

#[path = "../src/interest.rs"]
#[expect(unreachable_pub, reason = "the crate exports it")]
mod interest;

/// What stands for the cache: how many events each of two buckets has.
#[derive(Default)]
struct World {
    state: RwLock<State>,
    buckets: [Arc<Waiters>; 2],
    interest: Arc<Interest>,
}

#[derive(Debug, Default)]
struct State {
    events: [usize; 2],
    ended: bool,
}

impl World {
    /// What the writer does for one event, as `Writer::apply`.
    fn push(&self, buckets: &[usize]) {
        self.interest.publish(&self.state, &mut Vec::new(), |state, touched| {
            for &bucket in buckets {
                state.events[bucket] += 1;
                touched.push(Arc::clone(&self.buckets[bucket]));
            }
        });
    }

    /// The same, and a round right behind it: one thread less to take turns.
    fn push_and_wake(&self, buckets: &[usize]) {
        self.push(buckets);
        Waking::new(Arc::clone(&self.interest)).wake();
    }

    /// As `Writer::close`.
    fn close(&self) {
        self.interest.publish(&self.state, &mut Vec::new(), |state, touched| {
            state.ended = true;
            touched.extend(self.buckets.iter().map(Arc::clone));
        });
        self.interest.close();
    }

    /// What the waking task does.
    fn wake(&self) {
        let mut waking = Waking::new(Arc::clone(&self.interest));
        while block_on(|cx| waking.poll_touched(cx)) != Err(Closed) {
            waking.wake();
        }
    }
}

/// What a cursor is.
struct Watcher {
    world: Arc<World>,
    bucket: usize,
    seen: usize,
    place: Place,
}

impl Watcher {
    fn new(world: &Arc<World>, bucket: usize) -> Self {
        Self { world: Arc::clone(world), bucket, seen: 0, place: Place::default() }
    }

    /// One step: how many events it has seen now, and `None` at the end.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<usize>> {
        let Self { world, bucket, seen, place } = self;
        let wait = Some((&*world.buckets[*bucket], cx.waker()));
        let look = look_or_wait(&world.state, wait, place, |state| {
            let unread = state.events[*bucket] - *seen;
            match (unread, state.ended) {
                (0, false) => Look::Nothing,
                (0, true) => Look::Found(None),
                (unread, _) => Look::Found(Some(unread)),
            }
        });
        match look {
            Look::Nothing => Poll::Pending,
            Look::Found(None) => Poll::Ready(None),
            Look::Found(Some(unread)) => {
                self.seen += unread;
                Poll::Ready(Some(self.seen))
            }
        }
    }

    /// Watches until it has seen that many.
    fn until(&mut self, seen: usize) {
        while self.seen < seen {
            assert!(block_on(|cx| self.poll(cx)).is_some(), "not closed before that");
        }
        assert_eq!(self.seen, seen, "no event that was not pushed");
    }

    fn until_the_end(&mut self) {
        while block_on(|cx| self.poll(cx)).is_some() {}
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.world.buckets[self.bucket].leave(self.place));
    }
}

/// Blocks the thread until `poll` is ready: what a runtime does, and nothing more.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(ready) = poll(&mut Context::from_waker(&waker)) {
            return ready;
        }
        bell.0.wait();
    }
}

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Runs `scenario` on every schedule with at most `switches` involuntary ones.
fn check(switches: usize, scenario: impl Fn(Arc<World>) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || scenario(Arc::new(World::default())));
}

/// Starts a thread of the world.
fn spawn(world: &Arc<World>, scene: impl FnOnce(Arc<World>) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || scene(world))
}

/// Goal: no event falls between looking and waiting, nor between two rounds. Method: a watcher and a writer, and rounds
/// that begin whenever they may.
#[test]
fn a_watcher_gets_every_event() {
    check(3, |world| {
        let waking = spawn(&world, |world| world.wake());
        let watcher = spawn(&world, |world| Watcher::new(&world, 0).until(2));
        world.push(&[0]);
        world.push(&[0]);
        watcher.join().expect("woken");
        world.close();
        waking.join().expect("closed");
    });
}

/// Goal: who leaves takes nobody along, and whoever gets that place is woken. Method: one leaves that waits, another
/// waits for two events.
#[test]
fn a_watcher_that_leaves_takes_nobody_along() {
    check(3, |world| {
        let stays = spawn(&world, |world| Watcher::new(&world, 0).until(2));
        let leaves = spawn(&world, |world| {
            let _ = Watcher::new(&world, 0).poll(&Context::from_waker(Waker::noop()));
        });
        world.push_and_wake(&[0]);
        leaves.join().expect("left");
        world.push_and_wake(&[0]);
        stays.join().expect("woken");
    });
}

/// Goal: a place is good for one round. Method: one is woken and leaves with its old place, which another has by now.
#[test]
fn a_watcher_that_was_woken_takes_nobody_along() {
    check(3, |world| {
        let leaves = spawn(&world, |world| Watcher::new(&world, 0).until(1));
        let stays = spawn(&world, |world| Watcher::new(&world, 0).until(2));
        world.push_and_wake(&[0]);
        leaves.join().expect("woken");
        world.push_and_wake(&[0]);
        stays.join().expect("woken");
    });
}

/// Goal: a watcher that is polled by another task is woken there. Method: it waits with a waker that nobody hears, then
/// with its own.
#[test]
fn a_watcher_that_waits_anew_is_woken_anew() {
    check(3, |world| {
        let waking = spawn(&world, |world| world.wake());
        let watcher = spawn(&world, |world| {
            let mut watcher = Watcher::new(&world, 0);
            let _ = watcher.poll(&Context::from_waker(Waker::noop()));
            watcher.until(1);
        });
        world.push(&[0]);
        watcher.join().expect("woken");
        world.close();
        waking.join().expect("closed");
    });
}

/// Goal: buckets do not hide each other. Method: one event for both, one for either, a watcher each.
#[test]
fn every_bucket_of_an_event_is_woken() {
    check(3, |world| {
        let first = spawn(&world, |world| Watcher::new(&world, 0).until(1));
        let second = spawn(&world, |world| Watcher::new(&world, 1).until(2));
        world.push_and_wake(&[0, 1]);
        world.push_and_wake(&[1]);
        first.join().expect("woken");
        second.join().expect("woken");
    });
}

/// Goal: nobody waits for a cache that is closed, the waking task neither. Method: close while they come.
#[test]
fn everybody_learns_of_the_end() {
    check(3, |world| {
        let waking = spawn(&world, |world| world.wake());
        let watcher = spawn(&world, |world| Watcher::new(&world, 0).until_the_end());
        world.push(&[0]);
        world.close();
        watcher.join().expect("told");
        waking.join().expect("told");
    });
}

/// Goal: wakers may run anything. Method: one that takes every lock there is, when it is called and when it is dropped.
#[test]
fn wakers_run_while_no_lock_is_held() {
    struct Locks(Arc<World>);
    impl Locks {
        fn take(&self) {
            drop(self.0.state.write());
            let mut watcher = Watcher::new(&self.0, 0);
            let _ = watcher.poll(&Context::from_waker(Waker::noop()));
        }
    }
    impl Wake for Locks {
        fn wake(self: Arc<Self>) {
            self.take();
        }
    }
    impl Drop for Locks {
        fn drop(&mut self) {
            self.take();
        }
    }
    check(2, |world| {
        let mut waking = Waking::new(Arc::clone(&world.interest));
        let mut watcher = Watcher::new(&world, 0);
        let locks = || Waker::from(Arc::new(Locks(Arc::clone(&world))));
        let _ = watcher.poll(&Context::from_waker(&locks()));
        // Another task takes over: the first waker is dropped.
        let _ = watcher.poll(&Context::from_waker(&locks()));
        let _ = waking.poll_touched(&mut Context::from_waker(&locks()));
        world.push(&[0]);
        waking.wake();
        let _ = watcher.poll(&Context::from_waker(&locks()));
        let _ = watcher.poll(&Context::from_waker(&locks()));
        drop(watcher);
        let _ = waking.poll_touched(&mut Context::from_waker(&locks()));
        let _ = waking.poll_touched(&mut Context::from_waker(&locks()));
        world.close();
        waking.wake();
    });
}
