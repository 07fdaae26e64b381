//! Reads and removes one stored object, for requests and controllers. Knows no HTTP.

pub(crate) mod current;
pub(crate) mod removal;
