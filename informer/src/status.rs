//! Status of an informer, and of all informers of a cluster, for people, probes and alerts.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

use crate::{
    ended::EndReason,
    error::{Chain, Error},
};

/// Status of an informer, from [`Informer::status`](crate::Informer::status). `Display` prints it in one line, and
/// `Serialize` writes the fields of [`ClusterStatus`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerStatus {
    /// The current phase.
    pub phase: InformerPhase,
    /// Time since the phase began.
    pub since: Duration,
    /// Requests sent in this phase.
    pub requests: u64,
    /// The last request or response that failed since the start, and the time since then.
    pub last_error: Option<(Error, Duration)>,
}

/// Status of the running informers of a cluster, from [`Cluster::status`](crate::Cluster::status): for a page of the
/// program, such as `/debug/informers`. Contains no objects.
///
/// `Serialize` writes the fields in camelCase and times in seconds: `{"informers":[{"resource":"pods",
/// "isDerived":false,"phase":"watching","sinceSeconds":3600.5,"requests":2,"objects":7130,"bytes":37800000,
/// "ageSeconds":12.3}]}`. Absent: empty selectors, all namespaces, `lastError` without a failure, `ageSeconds` before the
/// first state, and `reason` unless the phase is `ended`. `lastError` is `{"message":"…","agoSeconds":5.0}`, its message at
/// most [`ERROR_CHARS_MAX`](Self::ERROR_CHARS_MAX) characters long, and has a `code` if the server answered.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The informers with a watch of their own in the order of their start, then the copies that follow them.
    pub informers: Vec<InformerReport>,
}

impl ClusterStatus {
    /// Characters of the text of an error in a serialized status.
    pub const ERROR_CHARS_MAX: usize = 1_024;
}

/// Description and status of one running informer of a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InformerReport {
    /// Plural of the type, with its group behind a dot if it has one: `pods`, `deployments.apps`.
    pub resource: String,
    /// The namespaces; empty for all namespaces and for cluster-scoped types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Label selector; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub labels: String,
    /// Field selector; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// Shard selector; empty for all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shard: String,
    /// True for a shared copy that follows other copies in place of the server, and shares their objects.
    pub is_derived: bool,
    /// Phase, requests and last error.
    #[serde(flatten)]
    pub status: InformerStatus,
    /// Number of objects that readers see.
    pub objects: usize,
    /// Bytes of these objects in their stored form, names included.
    pub bytes: u64,
    /// Time since the server last confirmed this state; `None` before the first one. See
    /// [`Informer::age`](crate::Informer::age).
    #[serde(rename = "ageSeconds", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub age: Option<Duration>,
}

/// Serialized form of a status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusFields {
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    since_seconds: f64,
    requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<ErrorFields>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorFields {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    ago_seconds: f64,
}

impl Serialize for InformerStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let last_error = self.last_error.as_ref().map(|(error, ago)| ErrorFields {
            message: Chain(error).to_string().chars().take(ClusterStatus::ERROR_CHARS_MAX).collect(),
            code: error.code(),
            ago_seconds: ago.as_secs_f64(),
        });
        let reason = if let InformerPhase::Ended(reason) = self.phase { Some(reason.to_string()) } else { None };
        let (phase, since_seconds) = (self.phase.as_str(), self.since.as_secs_f64());
        StatusFields { phase, reason, since_seconds, requests: self.requests, last_error }.serialize(serializer)
    }
}

fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Phase of an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerPhase {
    /// Initial state is not complete.
    Starting,
    /// Changes arrive as they happen.
    Watching,
    /// The server forbids watches: the informer lists every few minutes.
    Polling,
    /// A request failed after initial state was complete, and the server has confirmed no state since. The copy is
    /// readable, and may be stale.
    Disconnected,
    /// The informer has ended.
    Ended(EndReason),
}

impl InformerPhase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Watching => "watching",
            Self::Polling => "polling",
            Self::Disconnected => "disconnected",
            Self::Ended(_) => "ended",
        }
    }
}

impl fmt::Display for InformerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:.1?}, {} requests", self.phase.as_str(), self.since, self.requests)?;
        if let InformerPhase::Ended(reason) = self.phase {
            write!(f, ": {reason}")?;
        }
        match &self.last_error {
            Some((error, ago)) => write!(f, "; last error {ago:.1?} ago: {}", Chain(error)),
            None => Ok(()),
        }
    }
}
