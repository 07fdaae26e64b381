//! Levels and stages of audit records.
//!
//! Source: apiserver `apis/audit/v1/types.go`.

use serde::Serialize;

/// Level of detail of a record. Each level includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum AuditLevel {
    /// Nothing.
    None,
    /// Caller, request and response, without their bodies.
    Metadata,
    /// Also the body of the request.
    Request,
    /// Also the body of the response.
    RequestResponse,
}

impl AuditLevel {
    /// All levels, by rising detail.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Returns the name, as policies and records have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Stage of a request at which a record is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AuditStage {
    /// The head of the request arrived.
    RequestReceived,
    /// The response begins; only for requests that last long, such as watches.
    ResponseStarted,
    /// The response ended: complete, or because the client left or was cut off.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl AuditStage {
    /// All stages, in their order.
    pub const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// Returns the name, as policies and records have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditStages(u8);

impl AuditStages {
    /// No stage.
    pub const NONE: Self = Self(0);

    /// Returns the set with `stage`.
    #[must_use]
    pub const fn with(self, stage: AuditStage) -> Self {
        Self(self.0 | Self::bit(stage))
    }

    /// Returns the stages of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the set has `stage`.
    #[must_use]
    pub const fn contains(self, stage: AuditStage) -> bool {
        self.0 & Self::bit(stage) != 0
    }

    const fn bit(stage: AuditStage) -> u8 {
        1 << stage as u8
    }
}
