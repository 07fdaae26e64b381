//! All histories of a world, and where they diverge. INVARIANT: a history is never removed, so its number stays unique.

use crate::model::Model;

/// Histories by number. Each was restored from an earlier one, or shares no state with any other.
#[derive(Debug)]
pub(super) struct Histories {
    all: Vec<History>,
}

#[derive(Debug)]
struct History {
    model: Model,
    /// The history it was restored from, and the last version they share.
    restored_from: Option<(usize, u64)>,
    /// True if it may pass positions of its former history: the restore took so long that every client noticed.
    may_pass: bool,
}

impl Histories {
    pub(super) fn new(first: Model) -> Self {
        Self { all: vec![History { model: first, restored_from: None, may_pass: false }] }
    }

    pub(super) fn model(&self, number: usize) -> &Model {
        &self.all[number].model
    }

    pub(super) fn model_mut(&mut self, number: usize) -> &mut Model {
        &mut self.all[number].model
    }

    /// Adds the history of a server restored to the state of `of` at `version`.
    pub(super) fn restore(&mut self, of: usize, version: u64, may_pass: bool) -> usize {
        let model = self.all[of].model.restored(version, self.next_number());
        self.push(History { model, restored_from: Some((of, version)), may_pass })
    }

    /// Adds the history of another cluster with the changes of `of`, made to other objects.
    pub(super) fn twin(&mut self, of: usize) -> usize {
        let model = self.all[of].model.twin(self.next_number());
        self.push(History { model, restored_from: None, may_pass: false })
    }

    /// Returns true if the history may pass positions of the histories it was restored from.
    pub(super) fn may_pass(&self, number: usize) -> bool {
        self.all[number].may_pass
    }

    /// Returns true if a write of `key` at `version` would give one object version two contents: in this history and in
    /// one it was restored from. No client could distinguish them, and in a real cluster this is unlikely.
    pub(super) fn is_taken(&self, number: usize, key: &str, version: u64) -> bool {
        let others = self.ancestors(number).into_iter().skip(1);
        let mut changes = others.flat_map(|(of, _)| self.all[of].model.changes(version - 1, version));
        changes.any(|change| change.object.key == key)
    }

    /// The last version up to which two histories agree; zero for unrelated ones.
    pub(super) fn agree_up_to(&self, one: usize, other: usize) -> u64 {
        let ancestors = self.ancestors(other);
        self.ancestors(one)
            .into_iter()
            .find_map(|(number, up_to)| {
                let (_, and_up_to) = ancestors.iter().find(|(ancestor, _)| *ancestor == number)?;
                Some(up_to.min(*and_up_to))
            })
            .unwrap_or(0)
    }

    /// `number` and the histories it was restored from, each with the last version shared with `number`.
    fn ancestors(&self, number: usize) -> Vec<(usize, u64)> {
        let mut found = vec![(number, u64::MAX)];
        let mut at = &self.all[number];
        let mut up_to = u64::MAX;
        while let Some((from, version)) = at.restored_from {
            up_to = up_to.min(version);
            found.push((from, up_to));
            at = &self.all[from];
        }
        found
    }

    fn push(&mut self, history: History) -> usize {
        self.all.push(history);
        self.all.len() - 1
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap()
    }
}
