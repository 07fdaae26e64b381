//! Coalesces the questions for a source's position: concurrent callers share one request.
//!
//! INVARIANT: a caller gets only the answer to a question that was sent after the call, so that the answer covers every
//! commit before the call. A caller that accepts an age may get the answer to a question that was sent at most that long
//! before the call. INVARIANT: at most one question per type is in flight, and one waits for it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, TryFutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    registry::ResourceType,
    storage::{Confirmation, FollowFrom, Source, SourceError, StateRead, StoredState, Updates},
};

/// A source behind which each [`Source::current`] costs a request. Share it by `Arc`.
pub struct CoalescedSource<S> {
    inner: Arc<S>,
    /// By kind and type id. One entry per type that was ever read.
    questions: Mutex<HashMap<(QuestionKind, String), Questions>>,
    /// For the tasks, which must not keep the source alive.
    this: std::sync::Weak<Self>,
}

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum QuestionKind {
    Current,
    Confirmed,
}

type CoalescedAnswer = Shared<BoxFuture<'static, Result<Confirmation, SourceError>>>;

/// The questions of one type.
#[derive(Default)]
struct Questions {
    /// The last one that was sent.
    last: Option<SentQuestion>,
    /// Sent when the one before it has its answer. Callers join this one.
    next: Option<CoalescedAnswer>,
}

struct SentQuestion {
    sent: Instant,
    answer: CoalescedAnswer,
}

impl SentQuestion {
    fn new(answer: CoalescedAnswer) -> Self {
        Self { sent: Instant::now(), answer }
    }

    /// True if a caller that accepts this age may get the answer, now or once it arrives.
    fn serves(&self, max_age: Duration) -> bool {
        self.sent.elapsed() < max_age && self.answer.peek().is_none_or(Result::is_ok)
    }
}

impl<S: Source> CoalescedSource<S> {
    /// Wraps `inner`.
    pub fn new(inner: Arc<S>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { inner, questions: Mutex::default(), this: this.clone() })
    }

    /// Joins a question that was sent less than `max_age` ago, else the next one; or sends one.
    fn join(&self, kind: QuestionKind, ty: &Arc<ResourceType>, max_age: Duration) -> CoalescedAnswer {
        let questions = &mut *self.questions.lock();
        let of_type = questions.entry((kind, ty.id().to_owned())).or_default();
        let serves = |last: &&SentQuestion| last.serves(max_age) && !self.inner.is_doubted_since(ty, last.sent);
        if let Some(last) = of_type.last.as_ref().filter(serves) {
            return last.answer.clone();
        }
        if let Some(next) = &of_type.next {
            return next.clone();
        }
        let before = of_type.last.take().filter(|last| last.answer.peek().is_none());
        let (inner, ty, this) = (Arc::clone(&self.inner), Arc::clone(ty), self.this.clone());
        match before {
            None => {
                let question = spawned(async move { ask(&*inner, kind, &ty).await });
                of_type.last = Some(SentQuestion::new(question.clone()));
                question
            }
            Some(last) => {
                let before = last.answer.clone();
                of_type.last = Some(last);
                let question = spawned(async move {
                    // Only the end of the question before counts; its result belongs to earlier callers.
                    let _ = before.await;
                    if let Some(this) = this.upgrade() {
                        // From now on callers join the one after this one.
                        this.begin(kind, ty.id());
                    }
                    ask(&*inner, kind, &ty).await
                });
                of_type.next = Some(question.clone());
                question
            }
        }
    }

    fn begin(&self, kind: QuestionKind, ty: &str) {
        if let Some(of_type) = self.questions.lock().get_mut(&(kind, ty.to_owned())) {
            of_type.last = of_type.next.take().map(SentQuestion::new);
        }
    }
}

async fn ask<S: Source>(source: &S, kind: QuestionKind, ty: &Arc<ResourceType>) -> Result<Confirmation, SourceError> {
    let sent = Instant::now();
    let revision = match kind {
        QuestionKind::Current => source.current(ty).await?,
        QuestionKind::Confirmed => source.confirmed(ty).await?,
    };
    Ok(Confirmation { revision, sent })
}

/// Runs a question to its end even if all callers leave, so that those behind it are not held up.
fn spawned(question: impl Future<Output = Result<Confirmation, SourceError>> + Send + 'static) -> CoalescedAnswer {
    let task = tokio::spawn(question);
    let answer = async { task.await.unwrap_or_else(|_| Err(SourceError::Unavailable("a question failed".to_owned()))) };
    answer.boxed().shared()
}

impl<S: Source> Source for CoalescedSource<S> {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: watch_cache::Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        self.inner.follow(ty, from, cache)
    }

    fn skipped(&self, ty: &ResourceType) {
        self.inner.skipped(ty);
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.join(QuestionKind::Current, ty, Duration::ZERO).map_ok(|confirmed| confirmed.revision).boxed()
    }

    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.join(QuestionKind::Confirmed, ty, Duration::ZERO).map_ok(|confirmed| confirmed.revision).boxed()
    }

    fn recently_confirmed(
        &self,
        ty: &Arc<ResourceType>,
        max_age: Duration,
    ) -> BoxFuture<'_, Result<Confirmation, SourceError>> {
        self.join(QuestionKind::Confirmed, ty, max_age).boxed()
    }

    fn is_doubted_since(&self, ty: &ResourceType, time: Instant) -> bool {
        self.inner.is_doubted_since(ty, time)
    }

    fn read_at(&self, ty: &Arc<ResourceType>, read: StateRead) -> BoxFuture<'_, Result<StoredState, SourceError>> {
        self.inner.read_at(ty, read)
    }

    fn is_known(&self, position: u64) -> bool {
        self.inner.is_known(position)
    }

    /// Twice the time: a caller may wait for the question before its own.
    fn confirmed_within(&self) -> Duration {
        2 * self.inner.confirmed_within()
    }

    fn history(&self) -> Option<u64> {
        self.inner.history()
    }

    fn counts_while_away(&self) -> bool {
        self.inner.counts_while_away()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::{sync::Semaphore, time::advance};

    use super::*;
    use crate::registry::Registry;

    /// Answers with the number of the question, once the test adds a permit.
    struct Counted {
        questions: AtomicU64,
        answers: Semaphore,
    }

    impl Source for Counted {
        fn follow(
            &self,
            _: &Arc<ResourceType>,
            _: FollowFrom,
            _: watch_cache::Reader,
        ) -> BoxFuture<'_, Result<Updates, SourceError>> {
            std::future::pending().boxed()
        }

        fn current(&self, _: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
            let number = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                self.answers.acquire().await.expect("never closed").forget();
                Ok(number)
            }
            .boxed()
        }
    }

    /// Goal: no caller gets an answer to a question that was sent before its call, and many callers cost one question. Method:
    /// callers before, during and after questions whose answers the test lets through; some leave.
    #[tokio::test]
    async fn many_callers_cost_one_question_and_none_gets_an_old_answer() {
        let counted = Arc::new(Counted { questions: AtomicU64::new(0), answers: Semaphore::new(0) });
        let source = CoalescedSource::new(Arc::clone(&counted));
        let pods = Registry::builtin().find("", "v1", "pods").expect("a built-in type");
        let reached = |expected| {
            let counted = Arc::clone(&counted);
            async move {
                while counted.questions.load(Ordering::Relaxed) < expected {
                    tokio::task::yield_now().await;
                }
            }
        };
        let first = source.current(&pods);
        reached(1).await;
        drop(first);
        let crowd: Vec<_> = (0..100).map(|_| source.current(&pods)).collect();
        counted.answers.add_permits(1);
        reached(2).await;
        let late = source.current(&pods);
        counted.answers.add_permits(1);
        for caller in crowd {
            assert_eq!(caller.await, Ok(2));
        }
        counted.answers.add_permits(1);
        assert_eq!(late.await, Ok(3));
        counted.answers.add_permits(1);
        assert_eq!(source.current(&pods).await, Ok(4));
    }

    /// Goal: readers that accept an age cost one question in that time and get no older answer. Readers that accept no age
    /// never get a kept answer. Method: paused time, and a question that stays open for three seconds.
    #[tokio::test(start_paused = true)]
    async fn an_answer_serves_readers_that_accept_its_age() {
        const ACCEPTED: Duration = Duration::from_secs(5);
        let counted = Arc::new(Counted { questions: AtomicU64::new(0), answers: Semaphore::new(0) });
        let source = CoalescedSource::new(Arc::clone(&counted));
        let pods = Registry::builtin().find("", "v1", "pods").expect("a built-in type");
        let began = Instant::now();
        let first = source.recently_confirmed(&pods, ACCEPTED);
        while counted.questions.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        advance(Duration::from_secs(3)).await;
        let during = source.recently_confirmed(&pods, ACCEPTED);
        counted.answers.add_permits(1);
        let answer = Ok(Confirmation { revision: 1, sent: began });
        assert_eq!((first.await, during.await), (answer.clone(), answer.clone()), "the open question");
        advance(Duration::from_millis(1_999)).await;
        assert_eq!(source.recently_confirmed(&pods, ACCEPTED).await, answer, "without a question");
        counted.answers.add_permits(2);
        assert_eq!(source.confirmed(&pods).await, Ok(2), "a reader that accepts no age");
        let second = source.recently_confirmed(&pods, ACCEPTED).await.expect("the answer to the other reader");
        assert_eq!((second.revision, second.sent - began), (2, Duration::from_millis(4_999)));
        advance(ACCEPTED).await;
        let third = source.recently_confirmed(&pods, ACCEPTED).await.expect("an answer");
        assert_eq!((third.revision, third.sent.elapsed()), (3, Duration::ZERO), "the one before is too old");
    }
}
