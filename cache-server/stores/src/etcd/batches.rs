//! Cuts the events of a watch into batches: all changes of one revision.

use super::{listing::unsigned, messages::WatchedEvent};

/// Collects the events of fragmented responses.
#[derive(Debug, Default)]
pub(super) struct EventBatches {
    /// Events of the newest revision so far: the next fragment may have more of them.
    held: Vec<WatchedEvent>,
}

impl EventBatches {
    /// Takes the events of one response. Returns those whose revisions are complete, in order.
    pub(super) fn take(&mut self, events: Vec<WatchedEvent>, is_fragment: bool) -> Vec<WatchedEvent> {
        self.held.extend(events);
        let Some(newest) = self.held.last().map(revision_of).filter(|_| is_fragment) else {
            return std::mem::take(&mut self.held);
        };
        let complete = self.held.partition_point(|event| revision_of(event) < newest);
        let rest = self.held.split_off(complete);
        std::mem::replace(&mut self.held, rest)
    }
}

/// Returns the events of each revision.
pub(super) fn by_revision(events: &[WatchedEvent]) -> impl Iterator<Item = &[WatchedEvent]> {
    events.chunk_by(|one, next| revision_of(one) == revision_of(next))
}

pub(super) fn revision_of(event: &WatchedEvent) -> u64 {
    event.kv.as_ref().map_or(0, |kv| unsigned(kv.mod_revision))
}

#[cfg(test)]
mod tests {
    use super::{super::messages::KeyValue, *};

    /// Goal: a revision whose events are in several fragments is one batch. Method: fragments cut within a revision, and a
    /// revision that fills several fragments.
    #[test]
    fn the_events_of_a_revision_stay_together() {
        let mut batches = EventBatches::default();
        let mut taken = |revisions: &[i64], is_fragment| {
            let event =
                |&mod_revision| WatchedEvent { kind: 0, kv: Some(KeyValue { mod_revision, ..KeyValue::default() }) };
            let complete = batches.take(revisions.iter().map(event).collect(), is_fragment);
            by_revision(&complete).map(|batch| (revision_of(&batch[0]), batch.len())).collect::<Vec<_>>()
        };
        assert_eq!(taken(&[1, 2, 2], true), [(1, 1)]);
        assert_eq!(taken(&[2, 2], true), []);
        assert_eq!(taken(&[2, 3, 4], true), [(2, 5), (3, 1)]);
        assert_eq!(taken(&[5], false), [(4, 1), (5, 1)]);
        assert_eq!(taken(&[6, 6], false), [(6, 2)]);
        assert_eq!(taken(&[], false), []);
    }
}
