//! Schedules writes and bounds their concurrency: decoding a large body takes a tenth of a second and a hundred MiB.
//!
//! INVARIANT: a write never holds a worker of the runtime for longer than a small document takes; on Linux, large ones run
//! at a low priority, so that they delay other requests by less than a time slice. INVARIANT: the memory
//! of all documents decoded at once is bounded: small ones by their bytes, large ones by their number, each by
//! [`DECODED_BYTES_MAX`]. INVARIANT: a write that waits for others to decide about it, or to convert its object, has no
//! permits, so that these may write, too; its body, objects, questions and short answers are part of
//! [`WAITING_WRITES_BYTES_MAX`], or it is refused.
//! INVARIANT: answers are decoded with the permits of the write, and long ones wait for each other before they are
//! read.
//!
//! [`WAITING_WRITES_BYTES_MAX`]: limits::WAITING_WRITES_BYTES_MAX
//! [`DECODED_BYTES_MAX`]: limits::DECODED_BYTES_MAX

use std::{
    future::poll_fn,
    num::NonZero,
    panic::resume_unwind,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    thread::{self, available_parallelism},
};

use api_rules::object::weight::Size;
use informer_serving::status::{Status, StatusExt as _};
use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{block_in_place, yield_now},
    task_local,
    time::{Instant, timeout, timeout_at},
};

use super::{ReservedBudget, no_room};
use crate::limits;

/// Permits for writes. Clones share them.
#[derive(Clone, Debug)]
pub struct Work {
    /// In KiB of decoded documents.
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// In KiB of writes that others decide about.
    waiting: Arc<Semaphore>,
    /// Long answers of these.
    long_answers: Arc<Semaphore>,
    /// Evaluations of expressions.
    evaluations: Arc<Semaphore>,
}

task_local! {
    /// The turn of the write that runs, and the permits that it takes from.
    static TURN: (Arc<WorkTurn>, Work);
}

/// Returns the turn of the write that runs here; `None` outside of one that others decide about.
pub fn current_turn() -> Option<(Arc<WorkTurn>, Work)> {
    TURN.try_with(Clone::clone).ok()
}

/// A write that others decide about: its permits, and none while it waits for them.
#[derive(Debug)]
pub struct WorkTurn {
    /// Length of its body, which is in memory until the write ends.
    body_bytes: usize,
    deadline: Instant,
    state: Mutex<TurnState>,
}

#[derive(Debug)]
struct TurnState {
    /// The budget of its body, until it waits for the first time.
    body: ReservedBudget,
    /// Size of the documents that it decodes itself.
    size: Size,
    permit: Option<(Size, OwnedSemaphorePermit)>,
}

/// Memory of a write that waits, besides its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitingMemory {
    /// Decoded bytes of its objects.
    pub documents: usize,
    /// Bytes of all questions.
    pub questions: usize,
    /// Number of the questions.
    pub calls: usize,
}

impl WaitingMemory {
    /// Returns the bytes for which there are permits.
    fn bytes(self, body: usize) -> usize {
        let answers = self.calls.saturating_mul(limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX);
        let all = [body, self.documents, self.questions, answers].into_iter().fold(0, usize::saturating_add);
        let least = self.calls.saturating_mul(limits::WEBHOOK_CALL_BYTES_MIN);
        all.max(least).min(limits::WAITING_WRITES_BYTES_MAX)
    }
}

impl WorkTurn {
    /// Begins a write whose body arrived.
    pub fn new(body_bytes: usize, body: ReservedBudget) -> Self {
        let state = TurnState { body, size: Size::Small(0), permit: None };
        Self { body_bytes, deadline: Instant::now() + limits::WRITE_WAIT, state: Mutex::new(state) }
    }

    /// Runs the write until its deadline, and outside of the runtime's workers while it is large. Dropping the future
    /// cancels the write, and no thread waits with it.
    ///
    /// # Errors
    /// 504 after [`limits::WRITE_WAIT`], and those of `work`.
    pub async fn run<T>(
        self: &Arc<Self>,
        permits: &Work,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let mut work = pin!(TURN.scope((Arc::clone(self), permits.clone()), work));
        let polled = poll_fn(|cx| {
            let mut poll = || work.as_mut().poll(cx);
            if self.is_large() && is_threaded() { block_in_place(poll) } else { poll() }
        });
        let late = |_| Err(Status::timeout("request did not complete within the allotted timeout", 0));
        timeout_at(self.deadline, polled).await.unwrap_or_else(late)
    }

    fn is_large(&self) -> bool {
        matches!(self.state.lock().permit, Some((Size::Large, _)))
    }
}

impl Default for Work {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZero::get);
        Self {
            small: Arc::new(Semaphore::new(limits::SMALL_WRITES_BYTES_MAX >> 10)),
            large: Arc::new(Semaphore::new((processors / 2).clamp(1, limits::LARGE_WRITES_MAX))),
            waiting: Arc::new(Semaphore::new(limits::WAITING_WRITES_BYTES_MAX >> 10)),
            long_answers: Arc::new(Semaphore::new(limits::WEBHOOK_LONG_ANSWERS_MAX)),
            evaluations: Arc::new(Semaphore::new(processors)),
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

    /// Waits for the permits of a write that others decide about, which [runs](WorkTurn::run) by itself.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn enter(&self, turn: &WorkTurn, size: Size) -> Result<(), Status> {
        turn.state.lock().size = size;
        self.hold(turn, size).await
    }

    /// Waits for others without the permits of the write and the budget of its body. Before their `answers` are
    /// decoded, takes permits for these, too.
    ///
    /// # Errors
    /// 429 at once if too much waits already, and as [`run`](Self::run) afterwards.
    pub async fn wait<T>(
        &self,
        turn: &WorkTurn,
        memory: WaitingMemory,
        others: impl Future<Output = T>,
        answers: impl FnOnce(&T) -> Size,
    ) -> Result<T, Status> {
        let units = u32::try_from(memory.bytes(turn.body_bytes) >> 10).expect("there are fewer");
        // Until there are permits again: the answers are in it.
        let _memory = Arc::clone(&self.waiting).try_acquire_many_owned(units).map_err(|_| no_room())?;
        let size = {
            let state = &mut *turn.state.lock();
            (state.body, state.permit) = (ReservedBudget::default(), None);
            // They may have changed the object since it was measured.
            state.size.max(Size::of_decoded(memory.documents))
        };
        let answered = others.await;
        self.hold(turn, size.and(answers(&answered))).await?;
        Ok(answered)
    }

    /// Waits until one more answer of more than [`limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX`] may be read. Keep the permit
    /// with it.
    pub async fn long_answer(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.long_answers).acquire_owned().await.expect("is never closed")
    }

    /// Evaluates expressions, which may take a second, outside of the runtime's workers: as many writes at once as there are
    /// processors, which bounds the memory of their values.
    pub async fn evaluate<T>(&self, evaluation: impl FnOnce() -> T) -> T {
        let _permit = self.evaluations.acquire().await.expect("is never closed");
        if is_threaded() { block_in_place(evaluation) } else { evaluation() }
    }

    async fn hold(&self, turn: &WorkTurn, size: Size) -> Result<(), Status> {
        let permit = self.permit(size).await?;
        turn.state.lock().permit = Some((size, permit));
        if size == Size::Large {
            // Only the next poll is outside of the runtime's workers.
            yield_now().await;
        }
        Ok(())
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
    use crate::budget::{Room, Rooms};

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

    /// Goal: what a write holds while it waits is bounded, and its answers are decoded with permits. Method: a body
    /// whose budget others need meanwhile; an answer as large as all small writes together, while another write runs.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_gives_back_what_others_need() {
        let (work, room) = (Work::default(), Room::of_server());
        let bytes = limits::BODIES_BYTES_MAX;
        let mut body = ReservedBudget::default();
        body.grow(bytes, Rooms { server: &room, connection: None }).await.expect("is free");
        let turn = WorkTurn::new(bytes, body);
        work.enter(&turn, Size::Small(1 << 20)).await.expect("is free");
        let waiting = WaitingMemory { documents: 1 << 10, questions: 1 << 20, calls: 1 };
        let free =
            || (room.pool(true).free(), work.small.available_permits() << 10, work.waiting.available_permits() << 10);
        assert_eq!(free(), (0, limits::SMALL_WRITES_BYTES_MAX - (1 << 20), limits::WAITING_WRITES_BYTES_MAX));
        let answers = async {
            let held = bytes + (1 << 10) + (1 << 20) + limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX;
            let left = limits::WAITING_WRITES_BYTES_MAX - held;
            assert_eq!(free(), (bytes, limits::SMALL_WRITES_BYTES_MAX, left));
            work.permit(Size::Small(1 << 20)).await.expect("is free")
        };
        let answer = Size::Small(limits::SMALL_WRITES_BYTES_MAX);
        let mut waits = pin!(work.wait(&turn, waiting, answers, |_| answer));
        assert!(timeout(limits::ROOM_WAIT / 2, &mut waits).await.is_err(), "the other write has permits");
        waits.await.map(drop).expect_err("it keeps them");
        let write = work.wait(&turn, waiting, async {}, |()| answer);
        write.await.expect("is free");
        assert_eq!(free(), (bytes, 0, limits::WAITING_WRITES_BYTES_MAX));
    }

    /// Goal: long answers are bounded by their number.
    #[tokio::test(start_paused = true)]
    async fn long_answers_wait_for_each_other() {
        let work = Work::default();
        let mut read = Vec::new();
        for _ in 0..limits::WEBHOOK_LONG_ANSWERS_MAX {
            read.push(work.long_answer().await);
        }
        assert!(timeout(limits::WRITE_WAIT, work.long_answer()).await.is_err());
        read.pop();
        drop(work.long_answer().await);
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
