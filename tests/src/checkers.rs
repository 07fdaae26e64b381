//! The guarantees of `docs/guarantees.md` as functions. Unit tests, the random world and HTTP tests call the same ones.
//!
//! Each reads what one watcher saw, in order, and the history it should agree with.

use std::{fmt, time::Duration};

use informer_core::Time;

use crate::model::{Change, Model, State};

/// What one watcher saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A complete state: a list, or initial events up to their end bookmark.
    State {
        /// The position it is said to be of.
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
    /// It asked for what follows a position.
    Resumed {
        /// The position.
        after: u64,
    },
}

/// A broken guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name.
    pub guarantee: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.guarantee, self.seen)
    }
}

impl std::error::Error for Violation {}

/// A violation, unless `holds`.
///
/// # Errors
/// The violation, when it does not hold.
pub fn ensure(holds: bool, guarantee: &'static str, seen: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { guarantee, seen: seen() }) }
}

/// Versions of live changes, bookmarks and states never go back.
///
/// # Errors
/// The first that did.
pub fn ordered(seen: &[Seen]) -> Result<(), Violation> {
    let mut last = 0;
    for each in seen {
        let version = match each {
            Seen::State { version, .. } | Seen::Bookmark { version } | Seen::Resumed { after: version } => *version,
            Seen::Change(change) => change.object.version,
        };
        ensure(version >= last, "Ordered", || format!("{each:?} after {last}"))?;
        last = version;
    }
    Ok(())
}

/// No change arrives twice.
///
/// # Errors
/// The first that did.
pub fn unique(seen: &[Seen]) -> Result<(), Violation> {
    let mut before: Option<&Change> = None;
    for change in changes(seen) {
        let again = before.is_some_and(|before| before.object.version >= change.object.version);
        ensure(!again, "Unique", || format!("{change:?} after {before:?}"))?;
        before = Some(change);
    }
    Ok(())
}

/// No gap: what was seen between a state and any later position is exactly what happened between them.
///
/// # Errors
/// The first change that is missing, or was not part of the history.
pub fn reliable(seen: &[Seen], model: &Model) -> Result<(), Violation> {
    let mut position = None;
    for each in seen {
        match (each, position) {
            (Seen::State { version, .. }, _) => position = Some(*version),
            (Seen::Change(change), Some(at)) => {
                let between = model.changes(at, change.object.version);
                ensure(between == [change.clone()], "Reliable", || format!("{change:?} after {at}, not {between:?}"))?;
                position = Some(change.object.version);
            }
            (Seen::Bookmark { version }, Some(at)) => {
                let between = model.changes(at, *version);
                ensure(between.is_empty(), "Reliable", || format!("bookmark {version} after {at} hides {between:?}"))?;
                position = Some((*version).max(at));
            }
            (Seen::Change(_) | Seen::Bookmark { .. }, None) => {
                ensure(false, "Reliable", || format!("{each:?} before any state"))?;
            }
            // Nothing was seen before: a saved position.
            (Seen::Resumed { after }, None) => position = Some(*after),
            (Seen::Resumed { .. }, Some(_)) => {}
        }
    }
    Ok(())
}

/// A watch from a version starts with the first change after it.
///
/// # Errors
/// The first watch that did not.
pub fn resumable(seen: &[Seen], model: &Model) -> Result<(), Violation> {
    for (at, each) in seen.iter().enumerate() {
        let Seen::Resumed { after } = each else { continue };
        let rest = seen.get(at + 1..).unwrap_or_default();
        if let Some(Seen::Change(change)) = rest.iter().find(|next| !matches!(next, Seen::Bookmark { .. })) {
            let expected = model.changes(*after, u64::MAX).first();
            ensure(Some(change) == expected, "Resumable", || {
                format!("{change:?} is the first after {after}, not {expected:?}")
            })?;
        }
    }
    Ok(())
}

/// After a bookmark, or a state, at a version, nothing at or below it follows.
///
/// # Errors
/// The first change that did.
pub fn bookmarkable(seen: &[Seen]) -> Result<(), Violation> {
    let mut promised = 0;
    for each in seen {
        match each {
            Seen::Bookmark { version } | Seen::State { version, .. } => promised = promised.max(*version),
            Seen::Change(change) => {
                let fresh = change.object.version > promised;
                ensure(fresh, "Bookmarkable", || format!("{change:?} after bookmark {promised}"))?;
            }
            Seen::Resumed { .. } => {}
        }
    }
    Ok(())
}

/// A state at a version equals the history replayed to it.
///
/// # Errors
/// The first that does not.
pub fn atomic(seen: &[Seen], model: &Model) -> Result<(), Violation> {
    for each in seen {
        if let Seen::State { version, objects } = each {
            let truth = model.view_at(*version);
            let equal = truth.values().copied().eq(objects.values());
            ensure(equal, "Atomic", || format!("at {version}: {:?}, not {:?}", objects.values(), truth.values()))?;
        }
    }
    Ok(())
}

/// Faults stopped, a copy equals the model.
///
/// # Errors
/// When it does not.
pub fn converges(copy: &State, model: &Model) -> Result<(), Violation> {
    ensure(copy == model.state(), "Converges", || format!("{:?}, not {:?}", copy.values(), model.state().values()))
}

/// Requests stay bounded while nothing is healthy: between two healthy sessions, `requests` (times of those that are
/// not further pages) grow with the logarithm of time and then by a few a minute.
///
/// # Errors
/// The first span with more.
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

/// All guarantees that hold at any time.
///
/// # Errors
/// The first that is broken.
pub fn check(seen: &[Seen], model: &Model) -> Result<(), Violation> {
    ordered(seen)?;
    unique(seen)?;
    reliable(seen, model)?;
    resumable(seen, model)?;
    bookmarkable(seen)?;
    atomic(seen, model)
}

/// How long a copy may take to equal the model after the last fault: a dead connection is found after the longest watch
/// lifetime at most, and a server that went back after two of them; then a pause, then perhaps a poll.
pub const CONVERGES_WITHIN: Duration = Duration::from_mins(30);

fn changes(seen: &[Seen]) -> impl Iterator<Item = &Change> {
    seen.iter().filter_map(|each| match each {
        Seen::Change(change) => Some(change),
        Seen::State { .. } | Seen::Bookmark { .. } | Seen::Resumed { .. } => None,
    })
}
