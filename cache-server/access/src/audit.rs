//! Audit: which requests are recorded, at which level, and what a record looks like.
//!
//! In reading order: [`level`] (levels and stages), [`policy`] (rules that choose them), [`body`] (objects of requests and
//! responses that a record may hold), [`event`] (the record as one line).

pub mod body;
pub mod event;
pub mod level;
pub mod policy;
