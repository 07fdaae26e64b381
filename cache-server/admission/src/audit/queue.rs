//! Lines between the requests that make them and the thread that writes them.
//!
//! INVARIANT: at most [`AUDIT_QUEUE_BYTES_MAX`] wait, and as many are being written. INVARIANT: a line is either written
//! whole, or counted as lost.
//!
//! A request waits for room before its first line, so that a flood of requests cannot push records out of the log. Its
//! later lines do not wait. A disk that takes nothing for [`AUDIT_WAIT_MAX`] delays no further request until it moves on.

use std::{mem, time::Duration};

use parking_lot::{Condvar, Mutex};
use tokio::{sync::Notify, time::timeout};

use crate::limits::{AUDIT_QUEUE_BYTES_MAX, AUDIT_WAIT_MAX};

/// Capacity of a buffer that is kept for the next lines.
const KEPT_BYTES: usize = 256 << 10;

/// Interval at which [`AuditQueue::flushed`] looks.
const FLUSH_CHECK_EVERY: Duration = Duration::from_millis(5);

/// Lines that wait for the writer.
pub(super) struct AuditQueue {
    state: Mutex<QueueState>,
    /// Wakes the writer.
    filled: Condvar,
    /// Wakes requests that wait for room.
    has_room: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct QueueState {
    lines: Vec<u8>,
    /// True while the writer writes a batch.
    is_writing: bool,
    /// True after a request waited in vain, until the writer takes the next batch.
    is_stuck: bool,
    /// True once no line will come.
    is_closed: bool,
}

impl AuditQueue {
    pub(super) fn new() -> Self {
        Self::bounded(AUDIT_QUEUE_BYTES_MAX)
    }

    fn bounded(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), has_room: Notify::new(), bytes_max }
    }

    /// Appends a line. Returns false if it is lost because there is no room.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.lines.len() + line.len() > self.bytes_max {
            return false;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        true
    }

    /// Waits until half of the room is free, at most [`AUDIT_WAIT_MAX`]. Cancel safe.
    pub(super) async fn room(&self) {
        let has_room = || {
            let state = self.state.lock();
            state.is_stuck || state.lines.len() <= self.bytes_max / 2
        };
        if has_room() {
            return;
        }
        let waiting = timeout(AUDIT_WAIT_MAX, async {
            loop {
                let taken = self.has_room.notified();
                if has_room() {
                    return;
                }
                taken.await;
            }
        });
        if waiting.await.is_err() {
            self.state.lock().is_stuck = true;
        }
    }

    /// Returns the lines that wait, in place of `written`, which is kept for further ones. Blocks until there is one;
    /// `None` once the queue is closed and empty.
    pub(super) fn take(&self, mut written: Vec<u8>) -> Option<Vec<u8>> {
        written.clear();
        if written.capacity() > KEPT_BYTES {
            written = Vec::new();
        }
        let mut state = self.state.lock();
        state.is_writing = false;
        while state.lines.is_empty() {
            if state.is_closed {
                return None;
            }
            self.filled.wait(&mut state);
        }
        mem::swap(&mut state.lines, &mut written);
        (state.is_writing, state.is_stuck) = (true, false);
        drop(state);
        self.has_room.notify_waiters();
        Some(written)
    }

    /// Lets the writer end after the lines that wait.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Resolves once no line waits.
    pub(super) async fn flushed(&self) {
        let is_flushed = || {
            let state = self.state.lock();
            state.lines.is_empty() && !state.is_writing
        };
        while !is_flushed() {
            tokio::time::sleep(FLUSH_CHECK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn lines_arrive_in_order_and_whole() {
        let queue = Arc::new(AuditQueue::new());
        let writer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let (mut all, mut batch) = (Vec::new(), Vec::new());
                while let Some(lines) = queue.take(batch) {
                    all.extend_from_slice(&lines);
                    batch = lines;
                }
                String::from_utf8(all).unwrap()
            }
        });
        for number in 0..10_000 {
            assert!(queue.push(format!("{number}\n").as_bytes()));
        }
        queue.close();
        let expected: String = (0..10_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(writer.join().unwrap(), expected);
    }

    /// Goal: a disk that takes nothing delays the server once, and costs bounded memory. Method: a queue without a writer,
    /// in simulated time.
    #[tokio::test(start_paused = true)]
    async fn a_stuck_disk_delays_few_requests() {
        let queue = AuditQueue::bounded(100);
        let begun = tokio::time::Instant::now();
        queue.room().await;
        assert!(begun.elapsed().is_zero());
        assert!(queue.push(&[b'x'; 60]));
        queue.room().await;
        assert_eq!(begun.elapsed(), AUDIT_WAIT_MAX, "the first one waits");
        queue.room().await;
        assert_eq!(begun.elapsed(), AUDIT_WAIT_MAX, "the next one does not");
        assert!(queue.push(&[b'x'; 40]));
        assert!(!queue.push(b"x"), "there is no room for another line");
        assert_eq!(queue.take(Vec::new()).unwrap().len(), 100);
        assert!(queue.push(&[b'x'; 60]), "the writer moved on");
        queue.room().await;
        assert_eq!(begun.elapsed(), 2 * AUDIT_WAIT_MAX, "a moving disk is waited for");
    }
}
