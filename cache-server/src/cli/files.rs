//! The limit of open files, and how many connections it allows: each connection uses one descriptor.
//!
//! INVARIANT: connections never use the last [`FILES_RESERVED`] descriptors, so that a full server can still read its
//! files and answer `/metrics`.

use crate::limits::{CONNECTIONS_MAX, FILES_RESERVED};

/// Highest value of `--connections-max`, and most connections if there is no limit of open files.
pub(super) const CONNECTIONS_MOST: i64 = 1 << 24;

/// Raises the limit of open files to the maximum allowed. Returns the number of connections it allows, at most
/// `requested`.
pub(super) fn room_for(requested: Option<u32>) -> usize {
    let requested = requested.map(|connections| connections as usize);
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(files) => {
            let room = room(files, requested);
            let usual = requested.unwrap_or(CONNECTIONS_MAX);
            if room < usual {
                tracing::warn!(open_files = files, connections = room, usual, "connection limit lowered");
            } else {
                tracing::debug!(open_files = files, connections = room, "open file limit raised");
            }
            room
        }
        Err(error) => {
            tracing::warn!(%error, "open file limit unchanged");
            requested.unwrap_or(CONNECTIONS_MAX)
        }
    }
}

/// Connections that `files` descriptors allow, at least one and at most `requested`.
fn room(files: u64, requested: Option<usize>) -> usize {
    let free = files.saturating_sub(FILES_RESERVED as u64).clamp(1, CONNECTIONS_MOST.unsigned_abs());
    let free = usize::try_from(free).unwrap_or(CONNECTIONS_MAX);
    requested.map_or(free, |requested| requested.min(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_some_files_to_others() {
        assert_eq!(room(u64::MAX, Some(16_384)), 16_384);
        assert_eq!(room(16_384 + FILES_RESERVED as u64, Some(16_384)), 16_384);
        assert_eq!(room(1_024, Some(16_384)), 1_024 - FILES_RESERVED);
        assert_eq!(room(1 << 20, None), (1 << 20) - FILES_RESERVED, "as many as there are files");
        assert_eq!(room(u64::MAX, None), 1 << 24);
        assert_eq!(room(0, None), 1, "one is served whatever happens");
    }
}
