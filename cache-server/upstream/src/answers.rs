//! Answers of the API server, for a bounded time and in a bounded number, and the questions that are not answered yet.
//!
//! INVARIANT: errors are not kept. An answer ages from the moment its question was sent, and never replaces the answer to a
//! later question.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use informer_serving::status::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::QuestionKey;
#[cfg(doc)]
use crate::limits::RECHECKS_MAX;
use crate::limits::{RECHECKED_AGE, RIGHT_AGE_AWAY, RIGHT_AGE_LATE};

/// The request or watch that a question about its caller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionOrigin {
    /// A new request. It may wait for its turn.
    Request,
    /// An open watch, whose right is checked again. It waits for no turn: a flood of requests must not prolong a withdrawn
    /// right. At most [`RECHECKS_MAX`] rights are checked at a time.
    OpenWatch,
}

impl QuestionOrigin {
    /// Age up to which an earlier answer counts, if the answer itself does not expire before.
    pub const fn age_max(self) -> Duration {
        match self {
            Self::Request => Duration::MAX,
            Self::OpenWatch => RECHECKED_AGE,
        }
    }
}

type Outcome<T> = Result<T, Status>;

/// A question on its way. The callers that wait for it own it: it ends when the last of them leaves.
type SharedQuestion<T> = Shared<BoxFuture<'static, Outcome<T>>>;

/// Answers by the key of their question.
pub struct AnswerTable<T: Clone> {
    state: Arc<Mutex<TableState<T>>>,
    /// Answers kept at most.
    answers_max: usize,
    /// Returns the age up to which an answer, asked at this time, is used without a new question.
    age_max: fn(&T, Instant) -> Duration,
    /// Age up to which an answer can be found.
    retained_max: Duration,
}

/// Two generations of answers: the elder one is dropped as a whole once the younger one is full or old.
struct TableState<T: Clone> {
    young: HashMap<QuestionKey, DatedAnswer<T>>,
    elder: HashMap<QuestionKey, DatedAnswer<T>>,
    /// Start of the younger generation.
    turned: Instant,
    /// Questions on their way, at most one per waiting caller, by the age that their callers accept: a check of an open watch
    /// must not join a request's question, which may wait for its turn.
    open: HashMap<(QuestionKey, Duration), OpenQuestion<T>>,
    /// Number of the next question.
    next: u64,
}

struct DatedAnswer<T> {
    sent: Instant,
    answer: T,
}

struct OpenQuestion<T: Clone> {
    number: u64,
    shared: WeakShared<BoxFuture<'static, Outcome<T>>>,
}

/// Removes a question from the open ones when it is answered or dropped.
struct OpenGuard<T: Clone> {
    state: Arc<Mutex<TableState<T>>>,
    key: (QuestionKey, Duration),
    number: u64,
}

impl<T: Clone + Send + Sync + 'static> AnswerTable<T> {
    /// Creates an empty table of at most `answers_max` answers. An answer is used up to the age that `age_max` returns,
    /// and found as the last one up to `retained_max`. Memory: 200 bytes for each answer, besides the answer.
    pub fn new(answers_max: usize, age_max: fn(&T, Instant) -> Duration, retained_max: Duration) -> Self {
        let (young, elder, open) = Default::default();
        let state = TableState { young, elder, turned: Instant::now(), open, next: 0 };
        Self { state: Arc::new(Mutex::new(state)), answers_max, age_max, retained_max }
    }

    /// Returns the answer of `key`: a known one that is younger than `age`, or the outcome of `ask`, which callers with equal
    /// keys and ages share. `ask` gets the answer before, if the table still has it.
    ///
    /// # Errors
    /// The error of `ask`.
    pub async fn answer<F>(&self, key: QuestionKey, age: Duration, ask: impl FnOnce(Option<T>) -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        let now = Instant::now();
        let question = {
            let mut state = self.state.lock();
            let last = state.find(&key, now, self.retained_max);
            if let Some(last) =
                last.filter(|last| now.duration_since(last.sent) < age.min((self.age_max)(&last.answer, last.sent)))
            {
                return Ok(last.answer.clone());
            }
            let before = last.map(|last| last.answer.clone());
            match state.open.get(&(key, age)).and_then(|open| open.shared.upgrade()) {
                Some(question) => question,
                None => self.open(&mut state, (key, age), now, ask(before)),
            }
        };
        question.await
    }

    /// Like [`answer`](Self::answer), for a question of this origin. For a request, the last answer counts while the API server
    /// is away, up to [`RIGHT_AGE_AWAY`], and for [`RIGHT_AGE_LATE`] if its answer alone is late: a caller can fill its own
    /// queues at the API server.
    ///
    /// # Errors
    /// The error of `ask`: 503 if the API server is away, 504 if its answer is late. Other ones count as no answer at all.
    pub async fn answer_for<F>(
        &self,
        origin: QuestionOrigin,
        key: QuestionKey,
        ask: impl FnOnce(Option<T>) -> F,
    ) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        let outcome = self.answer(key, origin.age_max(), ask).await;
        let counts_for = match (origin, &outcome) {
            (QuestionOrigin::Request, Err(away)) if away.code == 503 => RIGHT_AGE_AWAY,
            (QuestionOrigin::Request, Err(late)) if late.code == 504 => RIGHT_AGE_LATE,
            (QuestionOrigin::Request | QuestionOrigin::OpenWatch, _) => return outcome,
        };
        self.last(&key, counts_for).map_or(outcome, Ok)
    }

    /// Returns the last answer of `key` if it is younger than `age`, and still known.
    pub fn last(&self, key: &QuestionKey, age: Duration) -> Option<T> {
        let age = age.min(self.retained_max);
        self.state.lock().find(key, Instant::now(), age).map(|last| last.answer.clone())
    }

    /// Number of answers held, used or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.young.len() + state.elder.len()
    }

    /// Number of questions on their way.
    #[cfg(any(test, feature = "testing"))]
    pub fn open_len(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Makes a question that other callers can join.
    fn open<F>(
        &self,
        state: &mut TableState<T>,
        key: (QuestionKey, Duration),
        now: Instant,
        outcome: F,
    ) -> SharedQuestion<T>
    where
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        let number = state.next;
        state.next += 1;
        let guard = OpenGuard { state: Arc::clone(&self.state), key, number };
        let (generation_max, retained_max) = (self.answers_max / 2, self.retained_max);
        let question = async move {
            let answer = outcome.await?;
            let dated = DatedAnswer { sent: now, answer: answer.clone() };
            guard.state.lock().keep(guard.key.0, dated, generation_max, retained_max);
            Ok(answer)
        };
        let question = question.boxed().shared();
        // A question that has just been made can be joined.
        if let Some(shared) = question.downgrade() {
            state.open.insert(key, OpenQuestion { number, shared });
        }
        question
    }
}

impl<T: Clone> TableState<T> {
    /// Returns the last answer of `key` that is younger than `retained_max`.
    fn find(&self, key: &QuestionKey, now: Instant, retained_max: Duration) -> Option<&DatedAnswer<T>> {
        let last = self.young.get(key).or_else(|| self.elder.get(key));
        last.filter(|last| now.duration_since(last.sent) < retained_max)
    }

    fn keep(&mut self, key: QuestionKey, dated: DatedAnswer<T>, generation_max: usize, retained_max: Duration) {
        let now = Instant::now();
        if self.find(&key, now, retained_max).is_some_and(|last| last.sent > dated.sent) {
            return;
        }
        if self.young.len() >= generation_max || now.duration_since(self.turned) >= retained_max {
            mem::swap(&mut self.young, &mut self.elder);
            self.young.clear();
            self.turned = now;
        }
        self.young.insert(key, dated);
    }
}

impl<T: Clone> Drop for OpenGuard<T> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        // Another question with this key may have begun, after the last caller of this one left.
        if state.open.get(&self.key).is_some_and(|open| open.number == self.number) {
            state.open.remove(&self.key);
        }
    }
}
