//! Values derived from an object on demand.

use std::sync::{Arc, OnceLock};

use crate::form::{Cells, ConvertedForms, MessageSlot, Rows, Share};

/// Values derived from an object at their first use, and shared from then on.
#[derive(Default)]
pub(super) struct Variants {
    /// Cells for the table that showed it first.
    pub(super) cells: OnceLock<ComputedCells>,
    /// The object as a protobuf message, and its PartialObjectMetadata.
    pub(super) message: MessageSlot,
    pub(super) partial: MessageSlot,
    /// The object at another version.
    pub(super) converted: OnceLock<Box<ConvertedForms>>,
}

/// Cells, and the columns they were computed for.
pub(super) struct ComputedCells {
    pub(super) rows: Arc<dyn Rows>,
    /// `None` if the cells are too long to be cached.
    pub(super) cells: Option<Cells>,
    /// Their share of [`LONG_CELLS`](crate::form::LONG_CELLS).
    pub(super) _share: Option<Share>,
}
