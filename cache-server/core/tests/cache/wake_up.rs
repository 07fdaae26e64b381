//! No watcher misses a wake-up on any schedule: the wake-up protocol under a model checker.
//!
//! Mounts the production file, `src/interest.rs`, with the model's locks and atomics. Each test runs once for every
//! interleaving of its threads, with at most 2 or 3 involuntary switches each. A watcher that is never woken is a
//! deadlock, which the model reports with the schedule that led to it.
//!
//! INVARIANT: all code that looks, waits, pushes and wakes is in that file; this one only sets up the scenarios.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use loom::{sync::Notify, thread};

use interest::{BucketWaker, ClosedCache, Interest, Look, WaiterRegistration, Waiters, look_or_wait};
use sync::RwLock;

/// The model's versions of the locks and atomics that `interest` imports. Its locks are never poisoned.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    pub(crate) const UNDER_STATE: u8 = 3;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T, const RANK: u8 = 0>(loom::sync::Mutex<T>);

    impl<T, const RANK: u8> Mutex<T, RANK> {
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

#[path = "../../src/interest.rs"]
#[expect(unreachable_pub, reason = "the crate exports it")]
mod interest;

/// A stand-in for the cache: the number of events in each of two buckets.
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
    /// Publishes one event, like `Writer::apply`.
    fn push(&self, buckets: &[usize]) {
        self.interest.publish(&self.state, &mut Vec::new(), |state, touched| {
            for &bucket in buckets {
                state.events[bucket] += 1;
                touched.push(Arc::clone(&self.buckets[bucket]));
            }
        });
    }

    /// Like `push`, followed directly by a wake-up round: one thread less to schedule.
    fn push_and_wake(&self, buckets: &[usize]) {
        self.push(buckets);
        BucketWaker::new(Arc::clone(&self.interest)).wake();
    }

    /// Ends the cache, like `Writer::close`.
    fn close(&self) {
        self.interest.publish(&self.state, &mut Vec::new(), |state, touched| {
            state.ended = true;
            touched.extend(self.buckets.iter().map(Arc::clone));
        });
        self.interest.close();
    }

    /// Runs the waking task.
    fn wake(&self) {
        let mut waking = BucketWaker::new(Arc::clone(&self.interest));
        while block_on(|cx| waking.poll_touched(cx)) != Err(ClosedCache) {
            waking.wake();
        }
    }
}

/// A stand-in for a cursor.
struct Watcher {
    world: Arc<World>,
    bucket: usize,
    seen: usize,
    place: WaiterRegistration,
}

impl Watcher {
    fn new(world: &Arc<World>, bucket: usize) -> Self {
        Self { world: Arc::clone(world), bucket, seen: 0, place: WaiterRegistration::default() }
    }

    /// Runs one step. Returns the number of events seen so far, or `None` at the end.
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

    /// Watches until it has seen this many events.
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

/// Blocks the thread until `poll` is ready: a minimal runtime.
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

/// Spawns a thread with access to the world.
fn spawn(world: &Arc<World>, scene: impl FnOnce(Arc<World>) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || scene(world))
}

/// Goal: no event is lost between looking and waiting, nor between two rounds. Method: a watcher and a writer, with
/// rounds that begin at any time.
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

/// Goal: a leaving watcher removes no other one, and the next user of its place is woken. Method: one waiting watcher
/// leaves, another waits for two events.
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

/// Goal: a place is valid for one round. Method: a woken watcher leaves with its old place, which another one occupies
/// by now.
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

/// Goal: a watcher that moves to another task is woken there. Method: it waits with a no-op waker, then with its own.
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

/// Goal: buckets are woken independently. Method: one event for both and one for the second, with a watcher each.
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

/// Goal: no watcher waits for a closed cache, nor does the waking task. Method: close the cache while they start to
/// wait.
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

/// Goal: wakers may run any code. Method: a waker that takes every lock, when it is called and when it is dropped.
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
        let mut waking = BucketWaker::new(Arc::clone(&world.interest));
        let mut watcher = Watcher::new(&world, 0);
        let locks = || Waker::from(Arc::new(Locks(Arc::clone(&world))));
        let _ = watcher.poll(&Context::from_waker(&locks()));
        // Another task takes over, so the first waker is dropped.
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
