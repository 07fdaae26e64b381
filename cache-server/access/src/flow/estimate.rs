//! Estimated cost of a request, in seats.
//!
//! Source: apiserver `util/flowcontrol/request/list_work_estimator.go`, by number of objects: lists and initial streams are
//! sent in pieces here, so that their cost is the work for each object, and not their size.

/// Objects that a request may visit for each of its seats.
const OBJECTS_PER_SEAT: usize = 100;

/// Most seats of one request, as in kube-apiserver.
pub const WIDTH_MAX: u32 = 10;

/// The parts of a request that its cost depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestCost {
    /// A get, a write, a request for a document, or a watch without initial state.
    One,
    /// A list, or a watch with its initial state.
    Collection {
        /// Objects of the type.
        objects: usize,
        /// Largest number of objects that the client wants; `None` means all of them.
        limit: Option<usize>,
        /// True if a selector has to be compared with each object. Such a page may visit them all.
        selects: bool,
    },
}

impl RequestCost {
    /// Returns the seats of a request, at most `max` and [`WIDTH_MAX`].
    #[must_use]
    pub fn width(self, max: u32) -> u32 {
        let Self::Collection { objects, limit, selects } = self else { return 1 };
        let visited = if selects { objects } else { limit.unwrap_or(objects).min(objects) };
        let seats = u32::try_from(visited.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(u32::MAX);
        seats.clamp(1, max.clamp(1, WIDTH_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_cost_by_the_objects_that_they_visit() {
        let width = |objects, limit, selects| RequestCost::Collection { objects, limit, selects }.width(WIDTH_MAX);
        assert_eq!(RequestCost::One.width(WIDTH_MAX), 1);
        assert_eq!(width(0, None, false), 1);
        assert_eq!(width(100, None, false), 1);
        assert_eq!(width(101, None, false), 2);
        assert_eq!(width(1_000_000, None, false), 10);
        assert_eq!(width(1_000_000, Some(500), false), 5);
        assert_eq!(width(1_000_000, Some(500), true), 10);
        assert_eq!(width(200, Some(500), false), 2);
        let list = RequestCost::Collection { objects: 1_000_000, limit: None, selects: false };
        assert_eq!((list.width(8), list.width(0)), (8, 1));
    }
}
