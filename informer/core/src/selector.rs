//! Label and field selectors with Kubernetes' grammar, text forms and matching.

pub mod field;
pub mod label;
