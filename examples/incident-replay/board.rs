//! The state of all copies, written by the agents and read by the view.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::latency::Latencies;

/// Counts of all agents, and the position that each copy has reached.
pub(crate) struct Board {
    /// Version of the newest change that each copy has. 0: it has none yet.
    reached: Vec<AtomicU64>,
    /// Lists that were answered, or initial states that arrived as a stream.
    pub(crate) answered: AtomicU64,
    /// Requests that the server refused for the moment.
    pub(crate) refused: AtomicU64,
    /// Requests without an answer, because the connection broke or none could be made.
    pub(crate) broken: AtomicU64,
    /// Bytes of bodies that arrived.
    pub(crate) bytes: AtomicU64,
    latencies: Mutex<Latencies>,
    /// The first copy whose contents were wrong.
    wrong: Mutex<Option<String>>,
}

impl Board {
    pub(crate) fn new(copies: usize) -> Self {
        Self {
            reached: (0..copies).map(|_| AtomicU64::new(0)).collect(),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            latencies: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Records a list that was answered `after` its first attempt.
    pub(crate) fn answered(&self, after: Duration) {
        self.answered.fetch_add(1, Relaxed);
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(after.as_secs_f64() * 1e3);
    }

    /// Records that a copy has every change up to `version`.
    pub(crate) fn reach(&self, copy: usize, version: u64) {
        self.reached[copy].fetch_max(version, Relaxed);
    }

    /// Records wrong contents; the first ones are kept.
    pub(crate) fn note_wrong(&self, line: impl FnOnce() -> String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(line);
    }

    /// The first copy whose contents were wrong.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The latencies of all lists that were answered.
    pub(crate) fn latencies(&self) -> Latencies {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of copies that have the change of their node. `marks` has the version of each node's change, and copy `i`
    /// belongs to node `i % marks.len()`.
    pub(crate) fn in_sync(&self, marks: &[u64]) -> usize {
        let is_in_sync = |(copy, reached): &(usize, &AtomicU64)| reached.load(Relaxed) >= marks[copy % marks.len()];
        self.reached.iter().enumerate().filter(is_in_sync).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_in_sync_once_it_has_the_change_of_its_node() {
        let board = Board::new(4);
        let marks = [10, 20];
        assert_eq!(board.in_sync(&marks), 0);
        board.reach(0, 10);
        board.reach(1, 19);
        board.reach(2, 9);
        board.reach(3, 21);
        board.reach(3, 1);
        assert_eq!(board.in_sync(&marks), 2);
    }

    #[test]
    fn the_first_wrong_copy_is_kept() {
        let board = Board::new(1);
        board.note_wrong(|| "first".to_owned());
        board.note_wrong(|| "second".to_owned());
        assert_eq!(board.wrong().as_deref(), Some("first"));
    }
}
