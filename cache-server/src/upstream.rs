//! Upstream mode: this server stands in front of another API server.
//!
//! INVARIANT: the requests of callers carry their own credentials and never this server's, except for users that only this
//! server knows ([`impersonator`]), if the settings want that.

pub(crate) mod answers;
pub(crate) mod connect;
pub(crate) mod forward;
pub(crate) mod gateway;
pub(crate) mod identity;
pub(crate) mod impersonator;
pub(crate) mod key;
pub(crate) mod last_answer;
pub(crate) mod own_requests;
pub(crate) mod rights;
pub(crate) mod source;

#[cfg(test)]
pub(crate) mod tests;
