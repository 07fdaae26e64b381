//! Ends HTTP/2 watches whose client takes nothing. hyper polls a body only after the client took the frame before, so a
//! body cannot end itself while its stream's window is shut.
//!
//! hyper hands each stream to an executor as one future, which polls the service and later the body. [`Streams`] runs that
//! future beside a deadline that the service sets from within. Dropping the future resets the stream, and no other.

use std::{cell::OnceCell, future::poll_fn, pin::pin, task::Poll};

use tokio::time::{Instant, sleep_until};

use crate::limits::WATCH_END_WAIT;

tokio::task_local! {
    /// End of the watch that the stream of this task answers with. Empty for everything else.
    static DEADLINE: OnceCell<Instant>;
}

/// Sets the end of the watch that this task's stream answers with. Outside of [`Streams`] it does nothing.
pub(super) fn set_deadline(deadline: Instant) {
    let _ = DEADLINE.try_with(|place| place.set(deadline));
}

/// Runs the streams of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(DEADLINE.scope(OnceCell::new(), async move {
            let stream = pin!(stream);
            tokio::select! {
                biased;
                _ = stream => {}
                () = overdue() => tracing::debug!("a watch whose client takes nothing is reset behind its end"),
            }
        }));
    }
}

/// Resolves [`WATCH_END_WAIT`] behind the deadline of this task, once one is set. Memory: no timer before.
async fn overdue() {
    // Set while this task is polled, so each poll looks.
    let deadline = poll_fn(|_| DEADLINE.with(|place| place.get().map_or(Poll::Pending, |&at| Poll::Ready(at)))).await;
    sleep_until(deadline + WATCH_END_WAIT).await;
}
