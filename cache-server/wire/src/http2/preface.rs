//! Times out clients that never send the HTTP/2 preface; hyper has no timeout and no keep-alive before it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::sleep,
};

use crate::{limits::HEAD_TIMEOUT, tap::Tap};

/// Length of the client's preface.
pub const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// A flag that is set once the client has sent its preface.
#[derive(Clone, Debug, Default)]
pub struct PrefaceFlag(Arc<AtomicBool>);

impl PrefaceFlag {
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Resolves if the client has not sent its preface within [`HEAD_TIMEOUT`].
    pub async fn is_late(&self) {
        sleep(HEAD_TIMEOUT).await;
        if self.is_so() {
            std::future::pending().await
        }
    }
}

/// Sets the flag once the preface was read from the stream.
pub struct PrefaceTap {
    /// Bytes of the preface that are still to be read.
    left: usize,
    begun: PrefaceFlag,
}

impl PrefaceTap {
    pub const fn new(begun: PrefaceFlag) -> Self {
        Self { left: PREFACE_BYTES, begun }
    }
}

impl<S> Tap<S> for PrefaceTap {
    fn poll_read(&mut self, stream: Pin<&mut S>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead,
    {
        let before = into.filled().len();
        ready!(stream.poll_read(cx, into))?;
        if 0 < self.left {
            self.left = self.left.saturating_sub(into.filled().len() - before);
            if self.left == 0 {
                self.begun.0.store(true, Ordering::Relaxed);
            }
        }
        Poll::Ready(Ok(()))
    }
}
