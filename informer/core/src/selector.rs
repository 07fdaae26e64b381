//! Label, field and shard selectors with Kubernetes' grammar, text forms and matching.

pub mod field;
pub mod label;
pub mod shard;
