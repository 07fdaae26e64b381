//! Small requests of this server itself: their bounds and failures. `sender` sends them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use informer_serving::status::{Details, Status, StatusExt as _};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

pub use super::answers::QuestionOrigin;
use crate::limits::REVIEW_WAIT;

/// Reason why a request has no answer, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnRequestError {
    /// No answer came, or it broke off.
    #[error("the request failed: {0}")]
    Failed(String),
    /// No complete answer came in time.
    #[error("no answer came in time")]
    Late,
    /// Not sent: the server is known to answer nothing at present.
    #[error("the server does not answer")]
    Silent,
    /// The answer is longer than its bound.
    #[error("the answer is too long")]
    TooLong,
}

impl OwnRequestError {
    /// Status of a request that needs the answer: 504 if only this answer is late, 503 if the server is away. `question`
    /// completes "the API server did not decide".
    pub fn status(&self, question: &str) -> Status {
        let text = format!("the API server did not decide {question}: {self}");
        let details = Some(Details { retry_after_seconds: RETRY_SECONDS, ..Details::default() });
        match self {
            Self::Late => Status::timeout(&text, RETRY_SECONDS),
            Self::Failed(_) | Self::Silent | Self::TooLong => Status { details, ..Status::unavailable(text) },
        }
    }
}

/// Seconds after which a caller may repeat a request that needs an answer.
const RETRY_SECONDS: u32 = 1;

/// Sends requests of this server itself.
pub trait SendOwn: Send + Sync {
    /// Sends `body` as JSON to a path, with a query if it needs one, and returns the answer of at most `bytes_max`.
    ///
    /// # Errors
    /// [`OwnRequestError`] if there is no complete answer within `wait`.
    fn send<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        bounds: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>>;
}

/// Bounds the questions about callers that the API server answers at the same time: a flood of invented ones must not
/// load it.
#[derive(Clone)]
pub struct ReviewSlots {
    slots: Arc<Semaphore>,
}

impl ReviewSlots {
    /// Creates `max` slots.
    pub fn new(max: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(max)) }
    }

    /// Takes a slot for a request, once one is free.
    ///
    /// # Errors
    /// 429 after [`REVIEW_WAIT`]. It is no fault of the API server, so earlier answers do not count for longer.
    pub async fn enter(&self, origin: QuestionOrigin) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if origin == QuestionOrigin::OpenWatch {
            return Ok(None);
        }
        let slot = timeout(REVIEW_WAIT, Arc::clone(&self.slots).acquire_owned()).await;
        let slot = slot.ok().and_then(Result::ok);
        slot.map(Some).ok_or_else(|| Status::too_many_requests("too many callers wait for a review", 1))
    }

    /// Slots that are free.
    #[cfg(any(test, feature = "testing"))]
    pub fn free(&self) -> usize {
        self.slots.available_permits()
    }
}

/// Bounds of one answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBounds {
    /// Bytes of its body.
    pub bytes_max: usize,
    /// Time until it is complete, with the connection.
    pub wait: Duration,
}
