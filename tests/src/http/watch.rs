//! An open watch, read line by line.
//!
//! INVARIANT: a line is returned only with its newline, and a clean end is distinguished from a cut connection.

use std::{
    fmt,
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use informer_core::wire::watch_event::{EventKind, INITIAL_EVENTS_ANNOTATION};
use serde_json::Value;
use tokio::time::{Instant as Deadline, timeout_at};

use super::{AnswerBody, BODY_BYTES_MAX, key, resource_version};

/// Timeout of a line that is due.
pub const LINE_WAIT: Duration = Duration::from_secs(10);

/// An open watch.
pub struct Watch {
    code: StatusCode,
    headers: HeaderMap,
    body: AnswerBody,
    buffer: BytesMut,
    begun: Instant,
    asked: String,
}

/// The outcome of one read.
#[derive(Debug)]
pub enum Step {
    /// A line.
    Event(Event),
    /// The response ended cleanly.
    End,
    /// The connection broke inside the response.
    Cut(String),
    /// No line arrived in time.
    Silence,
}

/// One line of a watch.
#[derive(Clone)]
pub struct Event {
    /// The event's `type`.
    pub kind: EventKind,
    /// The event's object.
    pub object: Value,
    /// The line as sent, with its newline.
    pub raw: Bytes,
}

impl Watch {
    pub(super) fn new(answer: Response<AnswerBody>, begun: Instant, asked: String) -> Self {
        let (head, body) = answer.into_parts();
        Self { code: head.status, headers: head.headers, body, buffer: BytesMut::new(), begun, asked }
    }

    /// Status code of the answer.
    pub const fn code(&self) -> StatusCode {
        self.code
    }

    /// A header as text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Time since before the connection.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the next line, or the reason why there is none.
    pub async fn step(&mut self, wait: Duration) -> Step {
        let deadline = Deadline::now() + wait;
        loop {
            if let Some(at) = self.buffer.iter().position(|&byte| byte == b'\n') {
                return Step::Event(Event::read(self.buffer.split_to(at + 1).freeze(), &self.asked));
            }
            match timeout_at(deadline, self.body.frame()).await {
                Err(_) => return Step::Silence,
                // A clean end inside a line is a cut.
                Ok(None) if self.buffer.has_remaining() => return Step::Cut("inside a line".to_owned()),
                Ok(None) => return Step::End,
                Ok(Some(Err(error))) => return Step::Cut(error.to_string()),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                        assert!(self.buffer.len() < BODY_BYTES_MAX, "{}: a line without end", self.asked);
                    }
                }
            }
        }
    }

    /// Returns the next line; panics if it does not arrive in time.
    #[track_caller]
    pub fn event(&mut self) -> impl Future<Output = Event> {
        // Taken outside of the future, because `poll` does not know the caller.
        let place = std::panic::Location::caller();
        async move {
            match self.step(LINE_WAIT).await {
                Step::Event(event) => event,
                other @ (Step::End | Step::Cut(_) | Step::Silence) => {
                    panic!("{place}: {}: a line was due, not {other:?}", self.asked)
                }
            }
        }
    }

    /// Returns the next `count` lines; panics if they do not arrive in time.
    #[track_caller]
    pub fn events(&mut self, count: usize) -> impl Future<Output = Vec<Event>> {
        let place = std::panic::Location::caller();
        async move {
            let mut events = Vec::with_capacity(count);
            while events.len() < count {
                match self.step(LINE_WAIT).await {
                    Step::Event(event) => events.push(event),
                    other @ (Step::End | Step::Cut(_) | Step::Silence) => {
                        panic!("{place}: {}: {other:?} after {events:?}, {count} were due", self.asked)
                    }
                }
            }
            events
        }
    }

    /// Returns every line up to the clean end; panics if the end does not arrive within `wait`.
    #[track_caller]
    pub fn rest(&mut self, wait: Duration) -> impl Future<Output = Vec<Event>> {
        let place = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + wait;
            let mut events = Vec::new();
            loop {
                match self.step(deadline.saturating_duration_since(Instant::now())).await {
                    Step::Event(event) => events.push(event),
                    Step::End => return events,
                    other @ (Step::Cut(_) | Step::Silence) => {
                        panic!("{place}: {}: {other:?} after {events:?}, an end was due", self.asked)
                    }
                }
            }
        }
    }
}

impl Event {
    fn read(raw: Bytes, asked: &str) -> Self {
        let line: Value = serde_json::from_slice(&raw)
            .unwrap_or_else(|error| panic!("{asked}: {error} in {}", String::from_utf8_lossy(&raw)));
        let kind = EventKind::parse(line["type"].as_str().unwrap_or_default().as_bytes());
        Self { kind, object: line["object"].clone(), raw }
    }

    /// `metadata.resourceVersion` of the object.
    #[track_caller]
    pub fn resource_version(&self) -> u64 {
        resource_version(&self.object)
    }

    /// True if it is the bookmark that ends the initial state.
    pub fn ends_initial_state(&self) -> bool {
        self.kind == EventKind::Bookmark
            && self.object["metadata"]["annotations"][INITIAL_EVENTS_ANNOTATION].as_str() == Some("true")
    }

    /// Kind and key, such as `ADDED ns/a`. The bookmark that ends the initial state is `INITIAL-END`; an error shows
    /// its code.
    pub fn brief(&self) -> String {
        match self.kind {
            // Tables have no name.
            EventKind::Added | EventKind::Modified | EventKind::Deleted
                if self.object["metadata"]["name"].is_null() =>
            {
                format!("{} {}", self.kind.as_str(), self.object["kind"])
            }
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                format!("{} {}", self.kind.as_str(), key(&self.object))
            }
            EventKind::Bookmark if self.ends_initial_state() => "INITIAL-END".to_owned(),
            EventKind::Bookmark => "BOOKMARK".to_owned(),
            EventKind::Error => format!("ERROR {}", self.object["code"]),
            EventKind::Other => "OTHER".to_owned(),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.object["metadata"]["resourceVersion"].as_str().unwrap_or("-");
        write!(f, "{}@{position}", self.brief())
    }
}

/// Kinds and keys of several events.
pub fn briefs(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::brief).collect()
}
