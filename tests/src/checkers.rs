//! The guarantees of `docs/guarantees.md` as functions, shared by unit tests, the random world and HTTP tests.
//!
//! Each function compares what one watcher saw, in order, with the history.

use std::{fmt, time::Duration};

use informer_core::Time;

use crate::model::{Change, Model, State};

/// One observation of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A complete state: a list, or initial events up to their end bookmark.
    State {
        /// The position that the server gave for it.
        version: u64,
        /// Its objects.
        objects: State,
    },
    /// A live change.
    Change(Change),
    /// A bookmark.
    Bookmark {
        /// Its position.
        version: u64,
    },
    /// A watch from a position was started.
    Resumed {
        /// The position.
        after: u64,
    },
}

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the guarantee.
    pub guarantee: &'static str,
    /// The observation that violates it.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.guarantee, self.seen)
    }
}

impl std::error::Error for Violation {}

/// Returns a violation unless `holds`.
///
/// # Errors
/// Returns the violation if it does not hold.
pub fn ensure(holds: bool, guarantee: &'static str, seen: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { guarantee, seen: seen() }) }
}

/// Versions of live changes, bookmarks and states never decrease.
///
/// # Errors
/// Returns the first decrease.
pub fn ordered(seen: &[Observation]) -> Result<(), Violation> {
    let mut last = 0;
    for each in seen {
        let version = match each {
            Observation::State { version, .. }
            | Observation::Bookmark { version }
            | Observation::Resumed { after: version } => *version,
            Observation::Change(change) => change.object.version,
        };
        ensure(version >= last, "Ordered", || format!("{each:?} after {last}"))?;
        last = version;
    }
    Ok(())
}

/// No change arrives twice.
///
/// # Errors
/// Returns the first repeated change.
pub fn unique(seen: &[Observation]) -> Result<(), Violation> {
    let mut before: Option<&Change> = None;
    for change in changes(seen) {
        let again = before.is_some_and(|before| before.object.version >= change.object.version);
        ensure(!again, "Unique", || format!("{change:?} after {before:?}"))?;
        before = Some(change);
    }
    Ok(())
}

/// No gaps: the changes seen between a state and any later position are exactly the changes in the history between
/// them.
///
/// # Errors
/// Returns the first change that is missing or not part of the history.
pub fn reliable(seen: &[Observation], model: &Model) -> Result<(), Violation> {
    let mut position = None;
    for each in seen {
        match (each, position) {
            (Observation::State { version, .. }, _) => position = Some(*version),
            (Observation::Change(change), Some(at)) => {
                let between = model.changes(at, change.object.version);
                ensure(between == [change.clone()], "Reliable", || format!("{change:?} after {at}, not {between:?}"))?;
                position = Some(change.object.version);
            }
            (Observation::Bookmark { version }, Some(at)) => {
                let between = model.changes(at, *version);
                ensure(between.is_empty(), "Reliable", || format!("bookmark {version} after {at} hides {between:?}"))?;
                position = Some((*version).max(at));
            }
            (Observation::Change(_) | Observation::Bookmark { .. }, None) => {
                ensure(false, "Reliable", || format!("{each:?} before any state"))?;
            }
            // The watcher started from a saved position.
            (Observation::Resumed { after }, None) => position = Some(*after),
            (Observation::Resumed { .. }, Some(_)) => {}
        }
    }
    Ok(())
}

/// A watch from a version starts with the first change after it.
///
/// # Errors
/// Returns the first watch that does not.
pub fn resumable(seen: &[Observation], model: &Model) -> Result<(), Violation> {
    for (at, each) in seen.iter().enumerate() {
        let Observation::Resumed { after } = each else { continue };
        let rest = seen.get(at + 1..).unwrap_or_default();
        if let Some(Observation::Change(change)) =
            rest.iter().find(|next| !matches!(next, Observation::Bookmark { .. }))
        {
            let expected = model.changes(*after, u64::MAX).first();
            ensure(Some(change) == expected, "Resumable", || {
                format!("{change:?} is the first after {after}, not {expected:?}")
            })?;
        }
    }
    Ok(())
}

/// After a bookmark or a state at a version, no change at or below that version follows.
///
/// # Errors
/// Returns the first change that does.
pub fn bookmarkable(seen: &[Observation]) -> Result<(), Violation> {
    let mut promised = 0;
    for each in seen {
        match each {
            Observation::Bookmark { version } | Observation::State { version, .. } => promised = promised.max(*version),
            Observation::Change(change) => {
                let fresh = change.object.version > promised;
                ensure(fresh, "Bookmarkable", || format!("{change:?} after bookmark {promised}"))?;
            }
            Observation::Resumed { .. } => {}
        }
    }
    Ok(())
}

/// A state at a version equals the history replayed to it.
///
/// # Errors
/// Returns the first state that does not.
pub fn atomic(seen: &[Observation], model: &Model) -> Result<(), Violation> {
    for each in seen {
        if let Observation::State { version, objects } = each {
            let truth = model.view_at(*version);
            let equal = truth.values().copied().eq(objects.values());
            ensure(equal, "Atomic", || format!("at {version}: {:?}, not {:?}", objects.values(), truth.values()))?;
        }
    }
    Ok(())
}

/// Once faults have stopped, a copy equals the model.
///
/// # Errors
/// Returns a violation if it does not.
pub fn converges(copy: &State, model: &Model) -> Result<(), Violation> {
    ensure(copy == model.state(), "Converges", || format!("{:?}, not {:?}", copy.values(), model.state().values()))
}

/// Requests are bounded without a healthy session: between two of them there are at most 27 requests, plus 3 per 30 s.
/// `requests` are the times of all requests except further pages; `healthy` are the times of healthy sessions.
///
/// # Errors
/// Returns the first span with more.
pub fn bounded(requests: &[Time], healthy: &[Time]) -> Result<(), Violation> {
    let mut first = 0;
    for (at, now) in requests.iter().enumerate() {
        let proved = healthy.partition_point(|time| time <= now);
        while requests[first] < *now && healthy.partition_point(|time| *time < requests[first]) < proved {
            first += 1;
        }
        let span = now.since(requests[first]);
        // An attempt is at most three requests: a page that expires, the unpaged list, the watch after it.
        let most = 3 * (9 + span.as_secs() / 30);
        let count = (at + 1 - first) as u64;
        ensure(count <= most, "Bounded", || format!("{count} requests in {span:?} without a healthy session"))?;
    }
    Ok(())
}

/// Checks every guarantee that holds at any time.
///
/// # Errors
/// Returns the first violation.
pub fn check(seen: &[Observation], model: &Model) -> Result<(), Violation> {
    ordered(seen)?;
    unique(seen)?;
    reliable(seen, model)?;
    resumable(seen, model)?;
    bookmarkable(seen)?;
    atomic(seen, model)
}

/// Bound on the time from the last fault until a copy equals the model. A dead connection is detected after at most the
/// longest watch lifetime, a server that went back after two of them; then come a backoff and possibly a poll.
pub const CONVERGES_WITHIN: Duration = Duration::from_mins(30);

fn changes(seen: &[Observation]) -> impl Iterator<Item = &Change> {
    seen.iter().filter_map(|each| match each {
        Observation::Change(change) => Some(change),
        Observation::State { .. } | Observation::Bookmark { .. } | Observation::Resumed { .. } => None,
    })
}
