//! The limit of open files, and how many connections it allows: each connection uses one descriptor.
//!
//! INVARIANT: connections never use the last [`FILES_RESERVED`] descriptors, so that a full server can still read its
//! files and answer `/metrics`.

use crate::limits::{CONNECTIONS_MAX, FILES_RESERVED};

/// Highest value of `--connections-max`.
pub(super) const CONNECTIONS_FLAG_MAX: i64 = 1 << 24;

/// Raises the limit of open files to the maximum allowed. Returns the number of connections it allows, at most
/// `requested`.
pub(super) fn room_for(requested: Option<u32>) -> usize {
    // Not all open files by default: one address may open four fifths of all connections without credentials.
    let requested = requested.map_or(CONNECTIONS_MAX, |connections| connections as usize);
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(files) => {
            let room = room(files, requested);
            if room < requested {
                tracing::warn!(open_files = files, connections = room, requested, "connection limit lowered");
            } else {
                tracing::debug!(open_files = files, connections = room, "open file limit raised");
            }
            room
        }
        Err(error) => {
            tracing::warn!(%error, "open file limit unchanged");
            requested
        }
    }
}

/// Connections that `files` descriptors allow, at least one and at most `requested`.
fn room(files: u64, requested: usize) -> usize {
    let free = files.saturating_sub(FILES_RESERVED as u64).max(1);
    usize::try_from(free).map_or(requested, |free| requested.min(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_some_files_to_others() {
        assert_eq!(room(u64::MAX, 16_384), 16_384);
        assert_eq!(room(16_384 + FILES_RESERVED as u64, 16_384), 16_384);
        assert_eq!(room(1_024, 16_384), 1_024 - FILES_RESERVED);
        assert_eq!(room(0, 16_384), 1, "one is served whatever happens");
    }
}
