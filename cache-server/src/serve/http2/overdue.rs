//! Resets HTTP/2 watches whose client does not read, once they are past their term. hyper polls a body only after
//! the previous frame was accepted, so a body cannot end itself while its stream's window is closed.
//!
//! hyper hands each stream to an executor as one future, which polls the service and later the body. [`Streams`] runs
//! that future beside a term that the service sets from within. Dropping the future resets this stream only.

use std::{cell::OnceCell, future::poll_fn, pin::pin, task::Poll};

use crate::access::lease::WatchTerm;

tokio::task_local! {
    /// Term of the watch on this task's stream. Empty for other requests.
    static TERM: OnceCell<WatchTerm>;
}

/// Sets the term of the watch on this task's stream. Has no effect outside of [`Streams`].
pub(super) fn set_term(term: WatchTerm) {
    let _ = TERM.try_with(|place| place.set(term));
}

/// Executor for the streams of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(TERM.scope(OnceCell::new(), async move {
            let stream = pin!(stream);
            tokio::select! {
                biased;
                _ = stream => {}
                () = overdue() => tracing::debug!("stalled watch reset"),
            }
        }));
    }
}

/// Resolves at the end of this task's term, once one is set. No timer exists before that.
async fn overdue() {
    // The service sets the term while this task is polled, so checking at each poll needs no waker.
    let term =
        poll_fn(|_| TERM.with(|place| place.get().map_or(Poll::Pending, |term| Poll::Ready(term.clone())))).await;
    term.over().await;
}
