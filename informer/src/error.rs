//! What can go wrong, told one level at a time. INVARIANT: no error carries bytes of an object.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use informer_core::{
    Request,
    limits::{LIST_OBJECTS_MAX, LIST_TIME_MAX},
    reflector::Class,
    selector,
    wire::{
        framer::{FrameError, SkipReason},
        status::Status,
    },
};

/// Why a request, or the answer to it, failed.
///
/// Opaque: ask it with the `is_…` methods. `Display` prints this level only; [`source`](StdError::source) has the rest.
/// An error of the configuration is one text without a source: kube's errors repeat their sources in their own text.
/// Cost: cloning is one reference count.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    request: Option<Request>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// The kube configuration yields no client.
    Client(kube::Error),
    /// No answer came: refused, reset, TLS, name resolution, authentication plug-in.
    Connect(kube::Error),
    /// The request was sent, and no headers came within this time.
    NoHeaders(Duration),
    /// The answer's headers refuse the request.
    Refused { code: u16, status: Option<Box<Status>>, retry_after: Option<Duration> },
    /// The headers accepted it, then a Status came where objects were due.
    InAnswer(Box<Status>),
    /// The body broke off.
    Body(kube::Error),
    /// The body is not what it should be.
    Frame(FrameError),
    /// One object of the body is left out; the answer goes on behind it.
    Skipped { key: String, at: u64, reason: SkipReason },
    /// A resourceVersion goes back.
    History,
    /// Initial state was complete, without a resourceVersion; or its pages lead in circles.
    Unusable,
    /// A list without end.
    Endless,
    /// Nothing came for as long as the settings allow.
    Silent,
    /// The answer ended before initial state was complete.
    Ended,
    /// An error was announced, and it cannot be read.
    Malformed,
}

impl Error {
    pub(crate) fn new(kind: Kind, request: Option<&Request>) -> Self {
        Self(Arc::new(Inner { kind, request: request.cloned() }))
    }

    /// Whether the position asked for has left the server's history (410).
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(Status::is_expired) || self.code() == Some(410)
    }

    /// Whether the server does not let this user read the resource (401, 403).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.class() {
            Class::TooMany | Class::Connection | Class::Malformed | Class::TooLarge => true,
            Class::Server => !self.is_forbidden(),
            Class::Expired | Class::Refused | Class::Forbidden => false,
        }
    }

    /// The least time the server asked to wait, from the header or the Status.
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

    /// The key of the one object that this error is about, `namespace/name` or `name`: it is too large, too deep or no
    /// JSON object, and was left out. Everything else of the answer was taken. Empty where it could not be read.
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

    /// The request that failed, when one was made.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        self.0.request.as_ref()
    }

    /// The HTTP status, or the code of a Status that came in an accepted answer.
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

    /// What the reflector makes of it.
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
            Kind::Client(error) => write!(f, "no client can be made of the configuration: {}", Chain(error)),
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
            Kind::Connect(error) | Kind::Body(error) => Some(error),
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

/// All levels and the request in one line: what a `main` that returns the error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.request {
            Some(request) => write!(f, "{} ({request})", Chain(self)),
            None => fmt::Display::fmt(&Chain(self), f),
        }
    }
}

/// An error and everything below it in one line, for logs. Each text once: many errors of others end with the text of
/// their source.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            if !line.ends_with(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            next = error.source();
        }
        f.write_str(&line)
    }
}

/// Which setting of an informer is wrong. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The label selector does not parse.
    #[error("the label selector does not parse")]
    Labels(#[source] selector::label::ParseError),
    /// The field selector does not parse.
    #[error("the field selector does not parse")]
    Fields(#[source] selector::field::ParseError),
    /// The namespace is no name that can stand in a path.
    #[error("namespace {0:?} is not a namespace's name")]
    Namespace(String),
    /// A namespace was given for a type that lives in none.
    #[error("{plural} are cluster-scoped, a namespace cannot be given")]
    ClusterScoped {
        /// The type, as in the path.
        plural: String,
    },
    /// A path to drop that is empty, or takes away what identifies an object.
    #[error("path {0:?} cannot be dropped: it is empty, or objects are told apart by it")]
    DropPath(String),
    /// A number or duration that must not be zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// `Exact` cannot be streamed: a stream is never older than a position, and never exactly at one.
    #[error("ListSemantic::Exact cannot be read with InitialList::Stream")]
    ExactStream,
    /// Secrets would be written to a directory, and nobody has said that they may.
    #[error("a checkpoint of secrets needs checkpoint_secrets")]
    CheckpointSecrets,
    /// `start` was called outside a tokio runtime.
    #[error("start needs a running tokio runtime")]
    NoRuntime,
}

/// How an informer is kept in step, now that its initial state is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ready {
    /// Changes arrive as they happen.
    Watching,
    /// The server answers lists and refuses watches: the list is read again every few minutes, and what lies between
    /// two lists is not seen. See [`Informer::age`](crate::Informer::age).
    Polling,
}

/// An informer whose initial state is not complete, or that has ended, and why. `Display` has the whole cause; there is no
/// [`source`](StdError::source) that would repeat it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotReady {
    /// What it is waiting for.
    pub cause: Cause,
    /// Requests for initial state since the start.
    pub attempts: u64,
    /// How long ago the informer was started.
    pub since: Duration,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not ready after {:.1?} and {} requests: {}", self.since, self.attempts, self.cause)
    }
}

impl StdError for NotReady {}

/// What an informer without its initial state is waiting for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// The first request waits for its part of [`Config::spread`](crate::Config::spread).
    Spread,
    /// Other informers of the cluster are reading their initial state; see
    /// [`ClusterBuilder::relists_at_once`](crate::ClusterBuilder::relists_at_once).
    Queued,
    /// Initial state is being asked for or received, and nothing has failed since.
    Receiving,
    /// A saved state is there, and whether the server's history is still the same one is being asked.
    Proving,
    /// The last attempt failed.
    Failed(Error),
    /// The informer has ended: it was stopped, its runtime is gone, or a function of the program (an index, a transform,
    /// [`Delays`](crate::delays::Delays)) panicked in its task, which is logged.
    Stopped,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spread => f.write_str("its part of the start-up spread is not over"),
            Self::Queued => f.write_str("other informers are reading first"),
            Self::Receiving => f.write_str("initial state is on its way"),
            Self::Proving => f.write_str("the saved state is being proven"),
            Self::Failed(error) => write!(f, "the last attempt failed: {}", Chain(error)),
            Self::Stopped => f.write_str("the informer has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program prints that walks the sources itself, as `anyhow` and `eyre` do.
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
        let kube = kube::Error::ReadEvents(std::io::Error::other("no such context"));
        let error = Error::new(Kind::Client(kube), None);
        let text = "no client can be made of the configuration: Error reading events stream: no such context";
        assert_eq!(error.to_string(), text);
        assert_eq!((format!("{error:?}"), walked(&error)), (text.to_owned(), text.to_owned()));
    }

    #[test]
    fn a_chain_has_each_text_once() {
        let kube = kube::Error::Service(Box::new(kube::Error::ReadEvents(std::io::Error::other("reset"))));
        let error = Error::new(Kind::Connect(kube), None);
        let text = "the server gave no answer: ServiceError: Error reading events stream: reset";
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
