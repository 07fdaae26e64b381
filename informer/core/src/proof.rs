//! Whether a position belongs to the history behind an endpoint, told by single objects. Does no I/O.
//!
//! INVARIANT: an object that was replaced or deleted since the position says nothing by itself: the watch that follows
//! has to bring its deletion. Only what cannot be in one history together is held against a server.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    object::Meta,
    reflector::{Change, Observed, Proof},
    resource_version::{self, ResourceVersion},
    store::{Entry, Snapshot},
};

/// Objects that are read again for one proof, at most: where objects live for seconds the newest ones are gone, and
/// every client of a server that restarts would list for it.
pub const WITNESSES_MAX: usize = 8;

/// Objects that are read again where one of them was changed since, which is the best there is on a busy type.
pub const WITNESSES_CHANGED: usize = 3;

/// Objects looked at beyond those asked for, in search of some that are not being deleted.
const SPARE: usize = 8;

/// The stored object to ask about after `asked` others; `None` when nobody is left.
///
/// The newest versions are the strongest witnesses: a server restored to an older state does not have them. Objects
/// that are being deleted come last, since they will be gone. Cost: one pass over the versions of all objects.
#[must_use]
pub fn witness(snapshot: &Snapshot, asked: usize) -> Option<Arc<Entry>> {
    let rank = rank(asked, snapshot.objects.len());
    let wanted = rank.saturating_add(1 + SPARE);
    let mut newest: Vec<&Arc<Entry>> = Vec::with_capacity(wanted.min(snapshot.objects.len()) + 1);
    for entry in snapshot.objects.iter() {
        let at = newest.partition_point(|known| !is_newer(entry, known));
        if at < wanted {
            newest.insert(at, entry);
            newest.truncate(wanted);
        }
    }
    let (leaving, staying): (Vec<_>, Vec<_>) =
        newest.into_iter().partition(|entry| entry.field("metadata.deletionTimestamp").is_some());
    staying.into_iter().chain(leaving).nth(rank).cloned()
}

/// The place of the object to ask about after `asked` others, counted from the newest of `objects`.
///
/// Of more than [`WITNESSES_MAX`] each is twice as deep as the one before: where the newest ones are gone, those of about
/// the same age are gone as well, and each that is gone costs a request. Nothing is lost by it: what an older object cannot
/// tell, the deletions of the missing ones tell.
#[must_use]
pub const fn rank(asked: usize, objects: usize) -> usize {
    if objects <= WITNESSES_MAX || asked >= WITNESSES_MAX { asked } else { (1 << asked) - 1 }
}

fn is_newer(entry: &Entry, known: &Entry) -> bool {
    resource_version::compare(entry.resource_version(), known.resource_version()) == Some(Ordering::Greater)
}

/// What `found` says about a history in which `stored` is part of the state at `position`. `found` was read not older
/// than that; `None` for an object that is not there.
///
/// # Source
/// Up to the position nothing may differ: what the server changed last at or before it is what was stored, or the two
/// have different histories. Versions without an order only ever prove sameness.
#[must_use]
pub fn judge(stored: &Entry, position: &ResourceVersion, found: Option<&Meta<'_>>) -> Proof {
    let Some(found) = found else { return Proof::Missing };
    if stored.is(&found.uid, &found.resource_version) {
        return Proof::Same;
    }
    let after = resource_version::compare(&found.resource_version, position.as_str());
    match (found.uid == stored.uid(), after) {
        (true, Some(Ordering::Greater) | None) => Proof::Changed,
        (true, Some(Ordering::Less | Ordering::Equal)) => Proof::Reset,
        (false, Some(Ordering::Less | Ordering::Equal)) => Proof::Foreign,
        (false, Some(Ordering::Greater) | None) => Proof::Missing,
    }
}

/// Returns true if `event` says something that the state of `snapshot` lacks: a later version of an object, an object
/// that is not there, or the deletion of one that is.
#[must_use]
pub fn is_news(snapshot: &Snapshot, event: &Observed<'_>) -> bool {
    match (event.change, snapshot.get(event.key)) {
        (Change::Deleted, known) => known.is_some_and(|known| known.uid() == event.uid),
        (Change::Added | Change::Modified | Change::Item, Some(known)) => {
            resource_version::compare(known.resource_version(), event.resource_version) == Some(Ordering::Less)
        }
        (Change::Added | Change::Modified | Change::Item, None) => true,
    }
}

#[cfg(test)]
mod tests;
