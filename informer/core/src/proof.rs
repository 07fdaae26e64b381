//! Proves by single objects whether a position belongs to an endpoint's history. Does no I/O.
//!
//! INVARIANT: an object replaced or deleted since the position proves nothing by itself: the watch that follows must
//! send its deletion. Only objects that cannot belong to one history refute a server.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    object::Meta,
    reflector::{ObservedKind, ObservedObject, Proof},
    resource_version::{self, ResourceVersion},
    store::{Entry, Snapshot},
};

/// Objects read for one proof, at most. If objects live for seconds, the newest ones are deleted quickly, and each
/// client of a restarted server would list for it.
pub const WITNESSES_MAX: usize = 8;

/// Objects read if one of them was changed since, which is the best evidence on a busy type.
pub const WITNESSES_CHANGED: usize = 3;

/// Objects examined beyond the requested rank, to find some that are not being deleted.
const SPARE: usize = 8;

/// Returns the stored object to read after `requested` others; `None` if none is left.
///
/// The newest versions are the strongest evidence: a server restored to an older state does not have them. Objects
/// being deleted come last, since they will soon be missing. Cost: one pass over the versions of all objects.
#[must_use]
pub fn witness(snapshot: &Snapshot, requested: usize) -> Option<Arc<Entry>> {
    let rank = rank(requested, snapshot.objects.len());
    let count = rank.saturating_add(1 + SPARE);
    let mut newest: Vec<&Arc<Entry>> = Vec::with_capacity(count.min(snapshot.objects.len()) + 1);
    for entry in snapshot.objects.iter() {
        // Keeps the `count` newest objects, newest first.
        let at = newest.partition_point(|known| !is_newer(entry, known));
        if at < count {
            newest.insert(at, entry);
            newest.truncate(count);
        }
    }
    let (leaving, staying): (Vec<_>, Vec<_>) =
        newest.into_iter().partition(|entry| entry.field("metadata.deletionTimestamp").is_some());
    staying.into_iter().chain(leaving).nth(rank).cloned()
}

/// Returns the rank of the object to read after `requested` others, counted from the newest of `objects`.
///
/// The newest [`WITNESSES_CHANGED`] come one after the other. With more than [`WITNESSES_MAX`] objects each further one
/// is about twice as deep as the previous one: if the newest are deleted, objects of about the same age probably are too,
/// and each missing one costs a request. Where an older object proves nothing, the deletions of the missing ones do.
#[must_use]
pub const fn rank(requested: usize, objects: usize) -> usize {
    if objects <= WITNESSES_MAX || requested < WITNESSES_CHANGED || requested >= WITNESSES_MAX {
        return requested;
    }
    (WITNESSES_CHANGED << (requested + 1 - WITNESSES_CHANGED)) - 1
}

fn is_newer(entry: &Entry, known: &Entry) -> bool {
    resource_version::compare(entry.resource_version(), known.resource_version()) == Some(Ordering::Greater)
}

/// Compares `found` with `stored`, which is part of the state at `position`. `found` was read not older than that;
/// `None` if the object is missing.
///
/// # Source
/// Up to the position two copies of one history are equal: the server's last change at or before it is the stored one,
/// or the histories differ. Versions without an order can only prove equality.
#[must_use]
pub fn compare(stored: &Entry, position: &ResourceVersion, found: Option<&Meta<'_>>) -> Proof {
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

/// Returns true if `event` contains a change that the state of `snapshot` lacks: a later version of an object, an
/// unknown object, or the deletion of a known one.
#[must_use]
pub fn is_news(snapshot: &Snapshot, event: &ObservedObject<'_>) -> bool {
    match (event.change, snapshot.get(event.key)) {
        (ObservedKind::Deleted, known) => known.is_some_and(|known| known.uid() == event.uid),
        (ObservedKind::Added | ObservedKind::Modified | ObservedKind::Item, Some(known)) => {
            resource_version::compare(known.resource_version(), event.resource_version) == Some(Ordering::Less)
        }
        (ObservedKind::Added | ObservedKind::Modified | ObservedKind::Item, None) => true,
    }
}

#[cfg(test)]
mod tests;
