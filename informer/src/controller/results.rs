//! Results of a controller's reconciles, as a stream that drives the controller.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, future::BoxFuture};
use parking_lot::Mutex;

use super::{ControllerError, ReconcileError, Requeue};
use crate::object_ref::ObjectRef;

/// A reconcile that ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReconcileOutcome<K, E> {
    /// The object.
    pub object: ObjectRef<K>,
    /// The result of the reconciler.
    pub result: Result<Requeue, ReconcileError<E>>,
    /// When the object is reconciled again: from the result, or from the error policy.
    pub requeue: Requeue,
}

/// Results that the stream has not yielded yet.
///
/// Memory: only those of one poll of the controller, which tokio's budget ends after 128 steps.
pub(super) type PendingResults<K, E> = Arc<Mutex<VecDeque<ReconcileOutcome<K, E>>>>;

/// Runs a controller while it is polled, and yields its results and then the error that ended it.
pub(super) struct Results<K, E> {
    /// `None` once it has ended.
    run: Option<BoxFuture<'static, Result<(), ControllerError>>>,
    pending: PendingResults<K, E>,
    error: Option<ControllerError>,
}

impl<K, E> Results<K, E> {
    pub(super) fn new(
        run: impl Future<Output = Result<(), ControllerError>> + Send + 'static,
        pending: PendingResults<K, E>,
    ) -> Self {
        Self { run: Some(Box::pin(run)), pending, error: None }
    }
}

impl<K, E> Stream for Results<K, E> {
    type Item = Result<ReconcileOutcome<K, E>, ControllerError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let next = |pending: &PendingResults<K, E>| pending.lock().pop_front();
        // Pending results come first, so that they do not pile up.
        if let Some(reconciled) = next(&this.pending) {
            return Poll::Ready(Some(Ok(reconciled)));
        }
        if let Some(run) = &mut this.run
            && let Poll::Ready(end) = run.as_mut().poll(context)
        {
            this.run = None;
            this.error = end.err();
        }
        match next(&this.pending) {
            Some(reconciled) => Poll::Ready(Some(Ok(reconciled))),
            None if this.run.is_some() => Poll::Pending,
            None => Poll::Ready(this.error.take().map(Err)),
        }
    }
}
