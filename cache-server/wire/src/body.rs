//! The error of a response body.

/// The body cannot be completed. The connection is reset so that the client does not take the part for the whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// A LIST or an initial state was read so slowly that keeping its state became too expensive, or that it gave its seats
    /// back and did not have them again in time.
    #[error("the state was read too slowly")]
    Cut,
    /// The upstream server broke off its answer.
    #[error("the upstream broke off its answer")]
    Upstream,
    /// The caller lost the right to a watch that the upstream server answers. Where its events end is not known here.
    #[error("the right to the watch was withdrawn")]
    Withdrawn,
}
