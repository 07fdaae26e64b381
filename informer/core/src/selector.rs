//! Which objects are wanted: label and field selectors with Kubernetes' grammar, texts and matching.

pub mod field;
pub mod label;
