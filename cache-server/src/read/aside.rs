//! Runs work that takes milliseconds on blocking threads, with bounded concurrency.
//!
//! INVARIANT: such work occupies at most half of the cores (or one): the runtime's workers stay free for other
//! requests.

use std::{sync::LazyLock, thread::available_parallelism};

use tokio::sync::Semaphore;

/// Permits for work running at once in this process: half of the cores, at least one.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))));

/// Runs `work` on a blocking thread once a permit is free; `None` if it panicked. Needs a tokio runtime. Cancel safe:
/// work that has started runs to its end without its client, and keeps its permit until then.
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

    /// Goal: slow work does not delay other tasks. Method: start more slow work than there are permits on a runtime
    /// with one worker, and let it end only after another task has run.
    #[tokio::test]
    async fn workers_are_free_while_slow_work_runs() {
        let (release, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(parking_lot::Mutex::new(wait));
        let slow: Vec<_> = (0..64)
            .map(|number| {
                let wait = std::sync::Arc::clone(&wait);
                tokio::spawn(run(move || {
                    // An error means that the sender was dropped: continue.
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
