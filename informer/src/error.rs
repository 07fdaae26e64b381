//! Error types, with one level of text per error. INVARIANT: no error carries bytes of an object.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use informer_core::{
    Request,
    limits::{LIST_OBJECTS_MAX, LIST_TIME_MAX},
    reflector::Class,
    selector,
    session::BadFrame,
    wire::{
        framer::{FrameError, SkipReason},
        status::Status,
    },
};

pub(crate) use informer_core::text::Chain;

use crate::ended::EndReason;

/// True for a request whose response is a watch.
pub(crate) fn is_watch(request: &Request) -> bool {
    request.query().split('&').any(|parameter| parameter == "watch=true")
}

/// Failure of a request or of its response.
///
/// Opaque: query it with the `is_…` methods. `Display` prints this level only; [`source`](StdError::source) has the
/// rest. An error of the configuration is one text without a source, because kube's errors repeat their sources in
/// their own text. Cost: cloning is one reference count.
#[derive(Clone)]
pub struct Error(Arc<ErrorState>);

#[derive(Debug)]
struct ErrorState {
    kind: Kind,
    request: Option<Request>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// No client can be built from the configuration.
    #[cfg_attr(
        not(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5")),
        allow(dead_code, reason = "a connection of one's own is made of no configuration")
    )]
    Client(Box<dyn StdError + Send + Sync>),
    /// No response: connection refused or reset, TLS, name resolution, authentication plug-in.
    Connect(Box<dyn StdError + Send + Sync>),
    /// The request was sent, and no headers arrived within this time.
    NoHeaders(Duration),
    /// The response's headers refuse the request.
    Refused { code: u16, status: Option<Box<Status>>, retry_after: Option<Duration> },
    /// The headers accepted the request, but a Status came in place of objects.
    InAnswer(Box<Status>),
    /// The body broke off, or its compression is broken.
    Body(Box<dyn StdError + Send + Sync>),
    /// The body violates the protocol.
    Frame(FrameError),
    /// One object of the body was skipped; the response continues after it.
    Skipped { key: String, at: u64, reason: SkipReason },
    /// A resourceVersion goes backwards.
    History,
    /// Initial state was complete but has no resourceVersion, or its continue tokens form a cycle.
    Unusable,
    /// The list exceeds `LIST_TIME_MAX` or `LIST_OBJECTS_MAX`.
    Endless,
    /// No data arrived within the configured timeout.
    Silent,
    /// The response ended before initial state was complete.
    Ended,
    /// The response announces an error that cannot be parsed.
    Malformed,
}

impl From<BadFrame> for Kind {
    fn from(frame: BadFrame) -> Self {
        match frame {
            BadFrame::Status(status) => Self::InAnswer(status),
            BadFrame::Malformed => Self::Malformed,
            BadFrame::Unidentified { at } => Self::Frame(FrameError::Unexpected { at }),
        }
    }
}

impl Kind {
    /// An error of the connection. Programs walk and print sources, so one with secrets is replaced by its text without.
    pub(crate) fn connect(error: Box<dyn StdError + Send + Sync>) -> Self {
        let chain = Chain(&*error);
        Self::Connect(if chain.has_secrets() { chain.to_string().into() } else { error })
    }
}

impl Error {
    pub(crate) fn new(kind: Kind, request: Option<&Request>) -> Self {
        Self(Arc::new(ErrorState { kind, request: request.cloned() }))
    }

    /// Returns true if the requested position has left the server's history window (410).
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(Status::is_expired) || self.code() == Some(410)
    }

    /// Returns true if the server does not let this user read the resource (401, 403).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// Returns true if an identical request may succeed later without any change of configuration or permissions.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.class() {
            Class::TooMany | Class::Connection | Class::Malformed | Class::TooLarge => true,
            Class::Server => !self.is_forbidden(),
            Class::Expired | Class::Refused | Class::NotFound | Class::Forbidden | _ => false,
        }
    }

    /// Minimum time the server asks clients to wait, from the header or the Status.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let header = match &self.0.kind {
            Kind::Refused { retry_after, .. } => *retry_after,
            Kind::Client(_)
            | Kind::Connect(_)
            | Kind::NoHeaders(_)
            | Kind::InAnswer(_)
            | Kind::Body(_)
            | Kind::Frame(_)
            | Kind::Skipped { .. }
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Silent
            | Kind::Ended
            | Kind::Malformed => None,
        };
        header.or_else(|| self.status().and_then(Status::retry_after))
    }

    /// Key of the one skipped object this error is about, `namespace/name` or `name`: it is too large, nested too deep
    /// or not a JSON object. The rest of the response was processed. Empty if the key could not be read.
    #[must_use]
    pub fn skipped(&self) -> Option<&str> {
        match &self.0.kind {
            Kind::Skipped { key, .. } => Some(key),
            Kind::Client(_)
            | Kind::Connect(_)
            | Kind::NoHeaders(_)
            | Kind::Refused { .. }
            | Kind::InAnswer(_)
            | Kind::Body(_)
            | Kind::Frame(_)
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Silent
            | Kind::Ended
            | Kind::Malformed => None,
        }
    }

    /// The failed request, if one was made.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        self.0.request.as_ref()
    }

    /// The HTTP status, or the code of a Status in an accepted response.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match &self.0.kind {
            Kind::Refused { code, .. } => Some(*code),
            Kind::InAnswer(status) => Some(status.code),
            Kind::Client(_)
            | Kind::Connect(_)
            | Kind::NoHeaders(_)
            | Kind::Body(_)
            | Kind::Frame(_)
            | Kind::Skipped { .. }
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Silent
            | Kind::Ended
            | Kind::Malformed => None,
        }
    }

    /// Class of the error for the reflector.
    pub(crate) fn class(&self) -> Class {
        let status = self.status();
        match &self.0.kind {
            Kind::Refused { .. } | Kind::InAnswer(_) if self.is_expired() => Class::Expired,
            Kind::Refused { .. } | Kind::InAnswer(_) if status.is_some_and(Status::is_too_large_resource_version) => {
                Class::TooLarge
            }
            Kind::Refused { .. } | Kind::InAnswer(_) => match self.code() {
                Some(403 | 405) => Class::Forbidden,
                Some(429) => Class::TooMany,
                Some(404) => Class::NotFound,
                Some(401 | 408) => Class::Server,
                Some(code) if (400..500).contains(&code) => Class::Refused,
                _ => Class::Server,
            },
            Kind::Client(_) | Kind::Connect(_) | Kind::NoHeaders(_) | Kind::Body(_) | Kind::Silent | Kind::Ended => {
                Class::Connection
            }
            Kind::Frame(FrameError::Truncated { .. }) => Class::Connection,
            Kind::Frame(_)
            | Kind::Skipped { .. }
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Malformed => Class::Malformed,
        }
    }

    /// Returns true if the response of an accepted watch, also of initial state, broke off or ended.
    #[cfg_attr(
        not(all(
            feature = "runtime",
            any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5")
        )),
        allow(dead_code, reason = "only streams for kube::runtime leave it out")
    )]
    pub(crate) fn is_cut_watch(&self) -> bool {
        matches!(self.0.kind, Kind::Body(_) | Kind::Frame(FrameError::Truncated { .. }) | Kind::Ended)
            && self.request().is_some_and(is_watch)
    }

    pub(crate) fn status(&self) -> Option<&Status> {
        match &self.0.kind {
            Kind::Refused { status, .. } => status.as_deref(),
            Kind::InAnswer(status) => Some(status),
            Kind::Client(_)
            | Kind::Connect(_)
            | Kind::NoHeaders(_)
            | Kind::Body(_)
            | Kind::Frame(_)
            | Kind::Skipped { .. }
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Silent
            | Kind::Ended
            | Kind::Malformed => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            Kind::Client(error) => write!(f, "no client can be made of the configuration: {}", Chain(&**error)),
            Kind::Connect(_) => f.write_str("the server gave no answer"),
            Kind::NoHeaders(limit) => write!(f, "the server gave no answer within {limit:?}"),
            Kind::Refused { code, status: Some(_), .. } => write!(f, "the server answered {code}"),
            Kind::Refused { code, status: None, .. } => write!(f, "the server answered {code} without a Status"),
            Kind::InAnswer(status) => write!(f, "the server ended an accepted answer with {}", status.code),
            Kind::Body(_) => f.write_str("the answer broke off"),
            Kind::Frame(_) => f.write_str("the answer is not a Kubernetes list or watch"),
            Kind::Skipped { key, at, .. } if key.is_empty() => write!(f, "object at byte {at} of the answer skipped"),
            Kind::Skipped { key, at, .. } => write!(f, "object {key} at byte {at} of the answer skipped"),
            Kind::History => f.write_str("the answer's resourceVersions do not follow what was seen before"),
            Kind::Unusable => f.write_str("the answer's resourceVersion or continue token leads nowhere"),
            Kind::Endless => {
                write!(f, "the list did not end within {LIST_TIME_MAX:?} or {LIST_OBJECTS_MAX} objects")
            }
            Kind::Silent => f.write_str("the answer fell silent"),
            Kind::Ended => f.write_str("the answer ended before initial state was complete"),
            Kind::Malformed => f.write_str("the answer holds an error that cannot be read"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.kind {
            Kind::Connect(error) | Kind::Body(error) => Some(&**error),
            Kind::Refused { status, .. } => status.as_deref().map(|status| status as _),
            Kind::InAnswer(status) => Some(&**status),
            Kind::Frame(error) => Some(error),
            Kind::Skipped { reason, .. } => Some(reason),
            Kind::Client(_)
            | Kind::NoHeaders(_)
            | Kind::History
            | Kind::Unusable
            | Kind::Endless
            | Kind::Silent
            | Kind::Ended
            | Kind::Malformed => None,
        }
    }
}

/// Prints all levels and the request in one line, for a `main` that returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.request {
            Some(request) => write!(f, "{} ({request})", Chain(self)),
            None => fmt::Display::fmt(&Chain(self), f),
        }
    }
}

/// A wrong setting of an informer. No request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The label selector does not parse.
    #[error("the label selector does not parse")]
    Labels(#[source] selector::label::ParseError),
    /// The field selector does not parse.
    #[error("the field selector does not parse")]
    Fields(#[source] selector::field::ParseError),
    /// There is no such part of the objects.
    #[error("there is no shard {index} of {count}")]
    Shard {
        /// The part, from zero.
        index: u32,
        /// The number of parts.
        count: u32,
    },
    /// The namespace is not a valid name for a path segment.
    #[error("namespace {0:?} is not a namespace's name")]
    Namespace(String),
    /// A namespace has selectors of its own, and is not one of the declared namespaces.
    #[error("namespace {0:?} has selectors, but is not one of the declared namespaces")]
    UnselectedNamespace(String),
    /// A namespace was given for a cluster-scoped type.
    #[error("{plural} are cluster-scoped, a namespace cannot be given")]
    ClusterScoped {
        /// The type, as in the path.
        plural: String,
    },
    /// Deleted objects cannot linger in an informer of several namespaces, or in a shared one with indexes.
    #[error("linger cannot be combined with several namespaces or with indexes of a shared copy")]
    LingerDerived,
    /// A policy of [`Delays`](crate::delays::Delays) serves one watch of one user: several namespaces have several
    /// watches, and a shared copy several users.
    #[error("delays cannot be combined with several namespaces or with a shared copy")]
    DelaysShared,
    /// The copy of an equal declaration runs with another value of this setting. Equal declarations share requests, so
    /// declare the setting in all of them, or [`start`](crate::InformerBuilder::start) an informer of your own.
    #[error("the running copy to share has another {0}")]
    SharedSetting(&'static str),
    /// The path to drop is empty, or objects are identified by it.
    #[error("path {0:?} cannot be dropped: it is empty, or objects are told apart by it")]
    DropPath(String),
    /// A number or duration that must not be zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// `Exact` cannot be streamed: a stream guarantees a minimum version, never an exact one.
    #[error("ListSemantic::Exact cannot be read with InitialList::Stream")]
    ExactStream,
    /// Secrets would be written to a directory without explicit permission (`checkpoint_secrets`).
    #[error("a checkpoint of secrets needs checkpoint_secrets")]
    CheckpointSecrets,
    /// `start` was called outside a tokio runtime.
    #[error("start needs a running tokio runtime")]
    NoRuntime,
}

/// Way in which a ready informer is kept in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ready {
    /// Changes arrive as they happen.
    Watching,
    /// The server allows lists and forbids watches: the informer lists every few minutes and misses changes between two
    /// lists. See [`Informer::age`](crate::Informer::age).
    Polling,
    /// A request failed after initial state was complete, and the server has confirmed no state since: the copy may be
    /// stale. [`Informer::status`](crate::Informer::status) has the error.
    Disconnected,
}

/// Why an informer is not ready: its initial state is not complete, or it has ended. `Display` prints the whole cause,
/// so there is no [`source`](StdError::source) that would repeat it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotReady {
    /// The reason.
    pub cause: Cause,
    /// Requests for initial state since the start.
    pub attempts: u64,
    /// Time since the informer was started.
    pub since: Duration,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not ready after {:.1?} and {} requests: {}", self.since, self.attempts, self.cause)
    }
}

impl StdError for NotReady {}

/// Reason why an informer is not ready.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// The first request is delayed by [`Config::spread`](crate::Config::spread).
    Spread,
    /// Other informers of the cluster are reading their initial state; see
    /// [`ClusterBuilder::relists_at_once`](crate::ClusterBuilder::relists_at_once).
    Queued,
    /// Initial state is being requested or received, without a failure so far.
    Receiving,
    /// A saved state is being loaded, or its history is being proven.
    Proving,
    /// The last attempt failed.
    Failed(Error),
    /// The informer has ended, possibly long after it was ready. A panic is logged.
    Ended(EndReason),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spread => f.write_str("its part of the start-up spread is not over"),
            Self::Queued => f.write_str("other informers are reading first"),
            Self::Receiving => f.write_str("initial state is on its way"),
            Self::Proving => f.write_str("the saved state is being proven"),
            Self::Failed(error) => write!(f, "the last attempt failed: {}", Chain(error)),
            Self::Ended(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose text repeats its source's, as kube's errors do.
    #[derive(Debug, thiserror::Error)]
    #[error("Error reading events stream: {0}")]
    struct Repeating(#[source] std::io::Error);

    /// Output of a program that walks the sources itself, as `anyhow` and `eyre` do.
    fn walked(error: &(dyn StdError + 'static)) -> String {
        let (mut texts, mut next) = (Vec::new(), Some(error));
        while let Some(error) = next {
            texts.push(error.to_string());
            next = error.source();
        }
        texts.join(": ")
    }

    #[test]
    fn an_error_of_the_configuration_says_everything_once() {
        let cause = Repeating(std::io::Error::other("no such context"));
        let error = Error::new(Kind::Client(cause.into()), None);
        let text = "no client can be made of the configuration: Error reading events stream: no such context";
        assert_eq!(error.to_string(), text);
        assert_eq!((format!("{error:?}"), walked(&error)), (text.to_owned(), text.to_owned()));
    }

    /// The error of kube about an exec plugin whose output is no credential: the source quotes the output.
    #[derive(Debug, thiserror::Error)]
    #[error("failed to parse auth exec output: {0}")]
    struct Unparsed(#[source] std::io::Error);

    #[test]
    fn neither_an_error_nor_its_sources_show_the_output_of_a_plugin() {
        let plugin = "auth exec command 'KEY=\"secret\" \"aws\"' failed with status exit status: 1: Output { secret }";
        for (source, text) in [
            (Unparsed(std::io::Error::other("invalid: \"secret\"")).into(), "failed to parse auth exec output"),
            (
                Repeating(std::io::Error::other(plugin)).into(),
                "Error reading events stream: auth exec command failed: exit status: 1",
            ),
        ] {
            let error = Error::new(Kind::connect(source), None);
            let text = format!("the server gave no answer: {text}");
            assert_eq!((format!("{error:?}"), walked(&error)), (text.clone(), text));
        }
    }

    #[test]
    fn a_chain_has_each_text_once() {
        let error = Error::new(Kind::Connect(Repeating(std::io::Error::other("reset")).into()), None);
        let text = "the server gave no answer: Error reading events stream: reset";
        assert_eq!(format!("{error:?}"), text);
    }

    #[test]
    fn not_ready_displays_why_the_last_attempt_failed_once() {
        let status = Status::read(br#"{"kind":"Status","status":"Failure","message":"hold on","code":503}"#).unwrap();
        let refused = Kind::Refused { code: 503, status: Some(Box::new(status)), retry_after: None };
        let cause = Cause::Failed(Error::new(refused, None));
        let not_ready = NotReady { cause, attempts: 3, since: Duration::from_secs(2) };
        let text = "not ready after 2.0s and 3 requests: the last attempt failed: the server answered 503: hold on";
        assert_eq!((not_ready.to_string(), walked(&not_ready)), (text.to_owned(), text.to_owned()));
    }
}
