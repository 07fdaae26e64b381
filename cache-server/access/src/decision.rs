//! Outcome of an authorizer.
//!
//! Source: apiserver `authorization/authorizer/interfaces.go`.

/// Decision of an authorizer about a request. Only [`AccessDecision::Allowed`] lets it pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// The request may pass.
    Allowed {
        /// Reason for the audit log; may be empty.
        reason: String,
    },
    /// The request is refused, whatever other authorizers would decide.
    Denied {
        /// Reason that the caller reads.
        reason: String,
    },
    /// This authorizer does not decide. The next one does; after the last one the request is refused.
    NoOpinion {
        /// Reason that the caller reads if no other authorizer allows; may be empty.
        reason: String,
    },
}

impl AccessDecision {
    /// Returns true if the request may pass.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// Returns the reason; may be empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        let (Self::Allowed { reason } | Self::Denied { reason } | Self::NoOpinion { reason }) = self;
        reason
    }
}
