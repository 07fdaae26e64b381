//! Schedules writes and bounds their concurrency: decoding a large body takes a tenth of a second and a hundred MiB.
//!
//! INVARIANT: a write never holds a worker of the runtime for longer than a small document takes; on Linux, large ones run
//! at a low priority, so that they delay other requests by less than a time slice. INVARIANT: the memory
//! of all documents decoded at once is bounded: small ones by their bytes, large ones by their number, each by
//! [`DECODED_BYTES_MAX`]. INVARIANT: a write that waits for others to decide about it has no permits, so that these may write,
//! too; it has memory of [`WAITING_WRITES_BYTES_MAX`], or is refused.
//!
//! [`WAITING_WRITES_BYTES_MAX`]: limits::WAITING_WRITES_BYTES_MAX
//! [`DECODED_BYTES_MAX`]: limits::DECODED_BYTES_MAX

use std::{
    num::NonZero,
    panic::resume_unwind,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::{self, available_parallelism},
};

use api_rules::object::weight::Size;
use informer_serving::status::Status;
use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::block_in_place,
    time::timeout,
};

use super::no_room;
use crate::limits;

/// Permits for writes. Clones share them.
#[derive(Clone, Debug)]
pub struct Work {
    /// In KiB of decoded documents.
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// In KiB of writes that others decide about.
    waiting: Arc<Semaphore>,
}

/// The permits of a write that others decide about; none while it waits for them.
#[derive(Debug, Default)]
pub struct WorkTurn(Mutex<Option<(Size, OwnedSemaphorePermit)>>);

impl Default for Work {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZero::get);
        Self {
            small: Arc::new(Semaphore::new(limits::SMALL_WRITES_BYTES_MAX >> 10)),
            large: Arc::new(Semaphore::new((processors / 2).clamp(1, limits::LARGE_WRITES_MAX))),
            waiting: Arc::new(Semaphore::new(limits::WAITING_WRITES_BYTES_MAX >> 10)),
        }
    }
}

impl Work {
    /// Runs `work` once it has its permits. Dropping the future cancels work that waits or is small; large work runs to
    /// its end.
    ///
    /// # Errors
    /// 429 if no permit is free within [`limits::ROOM_WAIT`].
    pub async fn run<T: Send>(&self, size: Size, work: impl Future<Output = T> + Send) -> Result<T, Status> {
        let _permit = self.permit(size).await?;
        match size {
            Size::Small(_) => Ok(work.await),
            Size::Large if is_threaded() => Ok(block_in_place(|| on_background_thread(work))),
            Size::Large => Ok(work.await),
        }
    }

    /// Like [`run`](Self::run), for work that [waits](Self::wait) for others. Dropping the future cancels it, whatever its
    /// size, and no thread waits with it. Drop `turn` after it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_in<T>(&self, turn: &WorkTurn, size: Size, work: impl Future<Output = T>) -> Result<T, Status> {
        let permit = self.permit(size).await?;
        *turn.0.lock() = Some((size, permit));
        match size {
            Size::Small(_) => Ok(work.await),
            Size::Large => Ok(OffWorkers::new(work).await),
        }
    }

    /// Waits for `calls` others, each with a copy of the `bytes` of a write: without its permits, which it takes again.
    ///
    /// # Errors
    /// 429 at once if too much waits already, and as [`run`](Self::run) afterwards.
    pub async fn wait<T>(
        &self,
        turn: &WorkTurn,
        bytes: usize,
        calls: usize,
        others: impl Future<Output = T>,
    ) -> Result<T, Status> {
        let least = calls.saturating_mul(limits::WEBHOOK_CALL_BYTES_MIN);
        let all = bytes.saturating_mul(calls + 1).max(least).min(limits::WAITING_WRITES_BYTES_MAX);
        let units = u32::try_from(all >> 10).expect("there are fewer");
        let _memory = Arc::clone(&self.waiting).try_acquire_many_owned(units).map_err(|_| no_room())?;
        let left = turn.0.lock().take().map(|(size, _permit)| size);
        let answer = others.await;
        if let Some(size) = left {
            let permit = self.permit(size).await?;
            *turn.0.lock() = Some((size, permit));
        }
        Ok(answer)
    }

    async fn permit(&self, size: Size) -> Result<OwnedSemaphorePermit, Status> {
        match size {
            Size::Small(bytes) => turn(&self.small, bytes.min(limits::SMALL_WRITES_BYTES_MAX) >> 10).await,
            Size::Large => turn(&self.large, 1).await,
        }
    }
}

/// Steps by which large work is nicer than the server's other threads.
const NICENESS: i32 = 10;

/// Runs `work` on a thread of its own, with a low priority where threads have one, and waits for it. Cost: one thread, about
/// 50 µs.
fn on_background_thread<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let runtime = Handle::current();
    let done = thread::scope(|scope| {
        let work = || {
            #[cfg(target_os = "linux")]
            let _ = rustix::process::nice(NICENESS);
            runtime.block_on(work)
        };
        scope.spawn(work).join()
    });
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A task whose polls may take tenths of a second each: runs none of them on a worker of the runtime.
pub struct OffWorkers<F>(Pin<Box<F>>);

impl<F: Future> OffWorkers<F> {
    /// Wraps the work.
    pub fn new(work: F) -> Self {
        Self(Box::pin(work))
    }
}

impl<F: Future> Future for OffWorkers<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if is_threaded() { block_in_place(|| self.0.as_mut().poll(cx)) } else { self.0.as_mut().poll(cx) }
    }
}

async fn turn(turns: &Arc<Semaphore>, count: usize) -> Result<OwnedSemaphorePermit, Status> {
    let count = u32::try_from(count).expect("there are fewer turns");
    // The common case, without a timer. Permits that others wait for are not free.
    if let Ok(turn) = Arc::clone(turns).try_acquire_many_owned(count) {
        return Ok(turn);
    }
    let waiting = timeout(limits::ROOM_WAIT, Arc::clone(turns).acquire_many_owned(count));
    waiting.await.map(|turn| turn.expect("turns are never closed")).map_err(|_| no_room())
}

/// Returns true if the runtime can move the tasks of a blocked worker to another thread. A current-thread runtime
/// cannot.
fn is_threaded() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: large writes never occupy all workers. Method: 16 large writes that each wait for a task on the only
    /// worker.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_runtime_goes_on_while_large_writes_run() {
        let work = Arc::new(Work::default());
        let running: Vec<_> = (0..16)
            .map(|_| {
                let work = Arc::clone(&work);
                tokio::spawn(async move {
                    let (tell, received) = std::sync::mpsc::channel();
                    let large = async move {
                        tokio::spawn(async move { tell.send(()) });
                        received.recv_timeout(Duration::from_secs(30)).expect("another task ran")
                    };
                    work.run(Size::Large, large).await
                })
            })
            .collect();
        for write in running {
            write.await.expect("no panic").expect("has its turn");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_whose_turn_does_not_come_is_told_to_come_again() {
        let work = Work::default();
        let turns = u32::try_from(work.large.available_permits()).expect("a few");
        let held = Arc::clone(&work.large).acquire_many_owned(turns).await.expect("open");
        let refused = work.run(Size::Large, async {}).await.expect_err("no turn");
        assert_eq!((refused.code, refused.retry_after()), (429, Some(Duration::from_secs(1))));
        assert_eq!(work.run(Size::Small(1), async { 7 }).await.expect("small ones go on"), 7);
        drop(held);
        assert_eq!(work.run(Size::Large, async { 7 }).await.expect("has its turn"), 7);
    }
}
