//! Objects compressed by a dictionary trained on the first of them.

use std::sync::Arc;

use informer_core::store::{Body, Represent, Value};

/// Keeps JSON compressed.
pub(crate) struct Packer {}

impl Packer {
    pub(crate) const fn new() -> Self {
        Self {}
    }
}

impl Represent for Packer {
    fn keep(&mut self, json: &[u8], _value: Option<Arc<dyn Value>>) -> Body {
        Body::Json(json.into())
    }

    fn learned(&mut self, _complete: bool) -> bool {
        false
    }
}
