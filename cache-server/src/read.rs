//! Reads: lists, single objects and watches from the watch cache, and the form and bytes of every answer.

mod aside;
pub mod body;
pub(crate) mod encode;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod negotiate;
pub(crate) mod pretty;
mod query;
mod resuming;
pub(crate) mod watch;
