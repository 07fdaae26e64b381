//! One client's observations in order, each with its history: a guarantee concerns one history, and mixing concerns
//! two.

use super::histories::Histories;
use crate::checkers::{self, Observation, Violation, ensure};

/// A client's observations over all its processes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    all: Vec<Note>,
    /// The copy's history and position.
    holds: Option<(usize, u64)>,
}

#[derive(Debug)]
enum Note {
    /// A process started, with the copy of this history at this position.
    Began { holds: Option<(usize, u64)> },
    /// An observation from a server that had this history. It is tolerated if the copy may be of another history while
    /// the server owes the deletions that would confirm it; those are due before the next bookmark.
    Saw { history: usize, seen: Observation, is_tolerated: bool },
}

impl Notes {
    pub(super) fn begin(&mut self, holds: Option<(usize, u64)>) {
        self.holds = holds;
        self.all.push(Note::Began { holds });
    }

    pub(super) fn saw(&mut self, history: usize, seen: Observation, is_tolerated: bool) {
        if !is_tolerated {
            self.holds = holds_after(self.holds, history, &seen);
        }
        self.all.push(Note::Saw { history, seen, is_tolerated });
    }

    /// Returns true if the copy may be of `history`.
    pub(super) fn is_of(&self, history: usize, histories: &Histories) -> bool {
        is_of(self.holds, history, histories)
    }

    /// The copy's history and position.
    pub(super) const fn holds(&self) -> Option<(usize, u64)> {
        self.holds
    }

    /// Checks every guarantee within each stretch of one history, and that no stretch resumes a copy of another
    /// history.
    pub(super) fn check(&self, histories: &Histories) -> Result<(), Violation> {
        let mut holds = None;
        let mut stretch: Vec<Observation> = Vec::new();
        let mut of = None;
        let mut is_mixed = false;
        for note in &self.all {
            match note {
                Note::Began { holds: begun } => {
                    close(&mut stretch, of.take(), histories)?;
                    (holds, is_mixed) = (*begun, false);
                }
                Note::Saw { is_tolerated: true, .. } => is_mixed = true,
                Note::Saw { history, seen, is_tolerated: false } => {
                    let is_repaired = matches!(seen, Observation::State { .. });
                    is_mixed &= !is_repaired;
                    let is_bookmark = matches!(seen, Observation::Bookmark { .. });
                    ensure(!(is_mixed && is_bookmark), "Unmixed", || format!("{seen:?} for a copy of two histories"))?;
                    if of != Some(*history) {
                        close(&mut stretch, of.replace(*history), histories)?;
                    }
                    if stretch.is_empty() && !goes_on(holds, *history, seen, histories)? {
                        continue;
                    }
                    stretch.push(seen.clone());
                    holds = holds_after(holds, *history, seen);
                }
            }
        }
        close(&mut stretch, of, histories)
    }
}

/// Returns true if `seen` begins a stretch of `history` for a copy that `holds` another. A request is allowed; an event
/// is a violation.
fn goes_on(
    holds: Option<(usize, u64)>,
    history: usize,
    seen: &Observation,
    histories: &Histories,
) -> Result<bool, Violation> {
    let same = is_of(holds, history, histories);
    match seen {
        Observation::State { .. } => Ok(true),
        Observation::Resumed { .. } => Ok(same),
        Observation::Change(_) | Observation::Bookmark { .. } => {
            ensure(same, "Unmixed", || format!("{seen:?} of history {history} for a copy of {holds:?}"))?;
            Ok(true)
        }
    }
}

fn is_of(holds: Option<(usize, u64)>, history: usize, histories: &Histories) -> bool {
    holds.is_some_and(|(of, at)| of == history || at <= histories.agree_up_to(of, history))
}

fn holds_after(holds: Option<(usize, u64)>, history: usize, seen: &Observation) -> Option<(usize, u64)> {
    match seen {
        Observation::State { version, .. } | Observation::Bookmark { version } => Some((history, *version)),
        Observation::Change(change) => Some((history, change.object.version)),
        Observation::Resumed { .. } => holds,
    }
}

fn close(stretch: &mut Vec<Observation>, of: Option<usize>, histories: &Histories) -> Result<(), Violation> {
    let seen = std::mem::take(stretch);
    of.map_or(Ok(()), |of| checkers::check(&seen, histories.model(of)))
}
