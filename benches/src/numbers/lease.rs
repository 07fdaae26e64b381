//! What node leases and EndpointSlices cost: writes that nobody watches, and one write that everybody does.

use super::case::Case;

/// Their cases.
pub(crate) fn cases() -> Vec<Case> {
    Vec::new()
}
