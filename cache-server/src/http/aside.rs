//! Runs work that takes milliseconds on threads of its own, a few at a time.
//!
//! INVARIANT: such work never has all cores: while it waits for its turn or runs, the workers answer everybody else.

use std::{sync::LazyLock, thread::available_parallelism};

use tokio::sync::Semaphore;

/// Work that may run at once in this process: half of the cores.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))));

/// Runs `work` on a blocking thread once it has a turn; `None` if it panicked. Needs a tokio runtime. Cancel safe: work
/// that has begun goes on without its client, and keeps its turn until it ends.
pub(super) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = TURNS.acquire().await.expect("the semaphore is never closed");
    let work = tokio::task::spawn_blocking(move || {
        let _until_it_ends = turn;
        work()
    });
    work.await.ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    /// Goal: slow work is never in the way of other tasks. Method: more of it than there are turns, on a runtime of one
    /// worker, none of which ends before the others were answered.
    #[tokio::test]
    async fn workers_are_free_while_slow_work_runs() {
        let (release, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(parking_lot::Mutex::new(wait));
        let slow: Vec<_> = (0..64)
            .map(|number| {
                let wait = std::sync::Arc::clone(&wait);
                tokio::spawn(run(move || {
                    // An error means that the sender is gone: go on.
                    let _ = wait.lock().recv();
                    number
                }))
            })
            .collect();
        tokio::time::timeout(Duration::from_secs(10), tokio::spawn(async { 1 })).await.expect("in time").expect("runs");
        drop(release);
        for (number, slow) in slow.into_iter().enumerate() {
            assert_eq!(slow.await.expect("runs"), Some(number));
        }
        assert_eq!(run(|| -> u8 { panic!("on purpose") }).await, None);
    }
}
