//! Failures of calls to etcd, by their meaning for the caller.

use std::error::Error;

use tonic::{Code, ConnectError, Status};

use crate::storage::SourceError;

/// Failure of one call. Texts are for operators, and contain no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EtcdFailure {
    /// The revision was compacted.
    #[error("the revision was compacted")]
    Compacted,
    /// The revision is above the member's newest one.
    #[error("the revision is ahead of etcd")]
    Ahead,
    /// The quota of the database is exceeded: nothing was written.
    #[error("the quota of etcd's database is exceeded")]
    Full,
    /// The request is longer than etcd accepts: nothing was written.
    #[error("the request is larger than etcd accepts")]
    TooLarge,
    /// The response is longer than [`super::client::MESSAGE_BYTES_MAX`].
    #[error("the response is too large")]
    LongResponse,
    /// The token of the user is not valid any more: nothing was executed.
    #[error("the token has expired")]
    TokenExpired,
    /// The user or its rights are not sufficient: nothing was executed.
    #[error("etcd refuses access: {0}")]
    Denied(String),
    /// Nothing was executed; another member may do.
    #[error("etcd does not answer: {0}")]
    NotExecuted(String),
    /// The call may have been executed or not.
    #[error("etcd did not answer: {0}")]
    Unanswered(String),
}

impl EtcdFailure {
    /// True if another member may answer a read.
    pub(super) const fn is_of_member(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::Unanswered(_))
    }

    /// The error of a read.
    pub(super) fn of_read(self, after: u64) -> SourceError {
        match self {
            Self::Compacted | Self::Ahead => SourceError::Compacted { after },
            Self::Denied(_) => SourceError::Forbidden(self.to_string()),
            Self::Full
            | Self::TooLarge
            | Self::LongResponse
            | Self::TokenExpired
            | Self::NotExecuted(_)
            | Self::Unanswered(_) => SourceError::Unavailable(self.to_string()),
        }
    }

    /// The error of a write.
    pub(super) fn of_write(self) -> SourceError {
        match self {
            Self::Full => SourceError::Full(self.to_string()),
            Self::Unanswered(_) | Self::LongResponse => SourceError::Undecided(self.to_string()),
            Self::TooLarge => SourceError::TooLarge(self.to_string()),
            Self::Denied(_) => SourceError::Forbidden(self.to_string()),
            Self::Compacted | Self::Ahead | Self::TokenExpired | Self::NotExecuted(_) => {
                SourceError::Unavailable(self.to_string())
            }
        }
    }
}

impl From<Status> for EtcdFailure {
    fn from(status: Status) -> Self {
        let text = status.message();
        if let Some((_, _, failure)) =
            TEXTS.iter().find(|(code, part, _)| status.code() == *code && text.contains(part))
        {
            return failure(text.to_owned());
        }
        if [Code::PermissionDenied, Code::Unauthenticated].contains(&status.code()) {
            return Self::Denied(text.to_owned());
        }
        if is_of_connecting(&status) { Self::NotExecuted(causes(&status)) } else { Self::Unanswered(causes(&status)) }
    }
}

/// Makes the failure of a text.
type NewFailure = fn(String) -> EtcdFailure;

/// Codes and parts of texts, and their meaning: etcd has one code for several meanings.
///
/// Source: `api/v3rpc/rpctypes/error.go` of etcd-io/etcd.
const TEXTS: [(Code, &str, NewFailure); 12] = [
    (Code::OutOfRange, "has been compacted", |_| EtcdFailure::Compacted),
    (Code::OutOfRange, "future revision", |_| EtcdFailure::Ahead),
    (Code::OutOfRange, "message length too large", |_| EtcdFailure::LongResponse),
    (Code::ResourceExhausted, "database space exceeded", |_| EtcdFailure::Full),
    (Code::InvalidArgument, "request is too large", |_| EtcdFailure::TooLarge),
    // The limit of gRPC itself, a little above that of etcd.
    (Code::ResourceExhausted, "received message larger than max", |_| EtcdFailure::TooLarge),
    (Code::Unauthenticated, "auth token", |_| EtcdFailure::TokenExpired),
    (Code::InvalidArgument, "auth store is old", |_| EtcdFailure::TokenExpired),
    (Code::InvalidArgument, "authentication failed", EtcdFailure::Denied),
    (Code::InvalidArgument, "user name", EtcdFailure::Denied),
    (Code::ResourceExhausted, "too many requests", EtcdFailure::NotExecuted),
    // Sent by a member without a leader before it executes the request.
    (Code::Unavailable, "etcdserver: no leader", EtcdFailure::NotExecuted),
];

/// True if no connection was made, so that no request was sent.
fn is_of_connecting(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the text of a failure and of its innermost cause.
fn causes(status: &Status) -> String {
    let mut innermost: Option<&dyn Error> = status.source();
    while let Some(deeper) = innermost.and_then(Error::source) {
        innermost = Some(deeper);
    }
    match innermost {
        Some(cause) => cause.to_string(),
        None => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an answer of etcd that says that nothing happened is no unknown outcome, and any other one is.
    #[test]
    fn only_outcomes_that_are_unknown_count_as_unknown() {
        let failure = |code, text: &str| EtcdFailure::from(Status::new(code, text));
        let text = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(failure(Code::OutOfRange, text), EtcdFailure::Compacted);
        let full = failure(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full.of_write(), SourceError::Full(_)));
        for (code, text) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "error reading from server: EOF"),
            (Code::Unknown, "transport error"),
            (Code::Cancelled, "operation was canceled"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
        ] {
            assert!(matches!(failure(code, text).of_write(), SourceError::Undecided(_)), "{text}");
        }
        for (code, text) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
        ] {
            assert!(matches!(failure(code, text).of_write(), SourceError::Unavailable(_)), "{text}");
        }
    }
}
