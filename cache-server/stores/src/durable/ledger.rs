//! How much of the history the data file keeps, decided without I/O.
//!
//! INVARIANT: superseded versions leave the file in the order of the changes that superseded them. So the file has the
//! state at one revision, the base, and every change after it.

use std::{collections::VecDeque, time::Duration};

use crate::limits::{
    HISTORY_AGE, HISTORY_BYTES_MAX, HISTORY_CHANGES_MAX, HISTORY_TRIMMED_MAX, HISTORY_TRIMMED_WHEN_FULL,
};

/// Bounds of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryBounds {
    /// Age of its oldest change.
    pub(super) age: Duration,
    /// Bytes that the file has only for it: superseded versions and deletions.
    pub(super) bytes: u64,
    pub(super) changes: usize,
    /// Changes that leave at once: others leave with later writes.
    pub(super) trimmed: usize,
}

impl Default for HistoryBounds {
    fn default() -> Self {
        Self { age: HISTORY_AGE, bytes: HISTORY_BYTES_MAX, changes: HISTORY_CHANGES_MAX, trimmed: HISTORY_TRIMMED_MAX }
    }
}

impl HistoryBounds {
    /// No history at all, since removals would free no room otherwise. It leaves twice as fast as `added` changes come.
    pub(super) const fn on_full_disk(added: usize) -> Self {
        Self { age: Duration::ZERO, bytes: 0, changes: 0, trimmed: HISTORY_TRIMMED_WHEN_FULL + 2 * added }
    }
}

/// One change of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetainedChange {
    pub(super) revision: u64,
    pub(super) unix_ms: u64,
    /// Revision of the version that it superseded; zero if there was none.
    pub(super) superseded: u64,
    /// Bytes that the file loses with the change.
    pub(super) bytes: u32,
    /// True for a deletion, whose own record leaves the file too.
    pub(super) deletes: bool,
}

/// The changes after the base, oldest first.
#[derive(Debug, Default)]
pub(super) struct HistoryLedger {
    base: u64,
    retained: VecDeque<RetainedChange>,
    bytes: u64,
}

/// The changes that leave the history.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HistoryTrim {
    changes: usize,
    /// Bytes that the file loses.
    pub(super) bytes: u64,
    /// The records to remove.
    pub(super) records: Vec<u64>,
    /// The base after that.
    pub(super) base: u64,
}

impl HistoryTrim {
    pub(super) const fn is_empty(&self) -> bool {
        self.changes == 0
    }
}

impl HistoryLedger {
    pub(super) fn new(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// Adds the newest change.
    pub(super) fn push(&mut self, change: RetainedChange) {
        self.bytes += u64::from(change.bytes);
        self.retained.push_back(change);
    }

    /// Returns the changes beyond the bounds.
    pub(super) fn plan(&self, unix_ms: u64, bounds: HistoryBounds) -> HistoryTrim {
        let age = u64::try_from(bounds.age.as_millis()).unwrap_or(u64::MAX);
        let (mut trim, mut bytes) = (HistoryTrim { base: self.base, ..HistoryTrim::default() }, self.bytes);
        for change in self.retained.iter().take(bounds.trimmed) {
            let is_old = age < unix_ms.saturating_sub(change.unix_ms);
            if !is_old && bytes <= bounds.bytes && self.retained.len() - trim.changes <= bounds.changes {
                break;
            }
            bytes -= u64::from(change.bytes);
            trim.changes += 1;
            trim.bytes += u64::from(change.bytes);
            trim.base = change.revision;
            trim.records.extend((change.superseded != 0).then_some(change.superseded));
            trim.records.extend(change.deletes.then_some(change.revision));
        }
        trim
    }

    /// Notes that all changes up to `base` have left.
    pub(super) fn reach(&mut self, base: u64) {
        self.base = base;
        let left = self.retained.iter().take_while(|change| change.revision <= base).count();
        for change in self.retained.drain(..left) {
            self.bytes -= u64::from(change.bytes);
        }
    }

    /// Notes that the planned changes have left.
    pub(super) fn trimmed(&mut self, trim: &HistoryTrim) {
        self.base = trim.base;
        for change in self.retained.drain(..trim.changes) {
            self.bytes -= u64::from(change.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: HistoryBounds =
        HistoryBounds { age: Duration::from_secs(10), bytes: 1_000, changes: 50, trimmed: 1_000 };

    fn change(revision: u64, unix_ms: u64, bytes: u32) -> RetainedChange {
        RetainedChange { revision, unix_ms, superseded: revision - 1, bytes, deletes: false }
    }

    #[test]
    fn each_bound_holds_by_itself() {
        let mut ledger = HistoryLedger::new(5);
        assert_eq!(ledger.plan(1 << 40, BOUNDS), HistoryTrim { base: 5, ..HistoryTrim::default() }, "nothing to trim");
        for number in 0..40 {
            ledger.push(change(10 + number, 1_000 * number, 10));
        }
        assert_eq!(ledger.plan(10_000, BOUNDS).changes, 0, "young, small and few");
        let old = ledger.plan(15_000, BOUNDS);
        assert_eq!((old.base, old.records.as_slice()), (14, &[9, 10, 11, 12, 13][..]));
        ledger.trimmed(&old);
        assert_eq!(ledger.plan(15_000, HistoryBounds { bytes: 300, ..BOUNDS }).changes, 5);
        assert_eq!(ledger.plan(15_000, HistoryBounds { changes: 5, ..BOUNDS }).changes, 30);
        assert_eq!(ledger.plan(0, BOUNDS).changes, 0, "a clock that was set back trims nothing");
    }

    #[test]
    fn a_deletion_leaves_with_the_version_it_deleted() {
        let mut ledger = HistoryLedger::new(5);
        ledger.push(RetainedChange { deletes: true, ..change(8, 0, 10) });
        ledger.push(RetainedChange { superseded: 0, ..change(9, 0, 0) });
        let trim = ledger.plan(1 << 40, BOUNDS);
        assert_eq!((trim.base, trim.records), (9, vec![7, 8]));
    }
}
