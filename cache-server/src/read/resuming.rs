//! Resumable initial streams: a client that opts in by a header continues where its stream broke. See
//! `docs/resuming.md`.
//!
//! INVARIANT: a client that does not opt in sees no difference. INVARIANT: a resumed stream continues the state that
//! its token was taken from, in this very history and for this very request; every other stream starts over and reports
//! that before its first object. INVARIANT: a token never causes an error.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use informer_core::Time;
use informer_serving::{
    continue_token::{ContinueToken, Position},
    marks::{self, MarksReply},
    options::ListOptions,
    reads::WatchStart,
};
use tokio::time::Instant;
use watch_cache::{CacheSnapshot, Content, Cursor, CursorStart, Form, Reader, Slices};

use super::body::Response;
use crate::{app::App, registry::ResourceType, route::Target};

/// Bytes of events between two marks: the most that a break repeats, beside the bytes in flight.
const MARK_BYTES: usize = 128 << 10;

/// Time for which the position of a marked stream stays readable after a break, within the bounds of the window. Equal
/// to the wait for the next page of a list, and longer than the backoff of our own clients.
const MARKED_WAIT: Duration = Duration::from_secs(75);

const HEADER: HeaderName = HeaderName::from_static(marks::HEADER);

/// Keys that make this process's tokens unique. Two 64-bit hashes give a check of 128 bits.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// A keyed hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct KeyedHash([u64; 2]);

impl KeyedHash {
    fn of(what: impl Hash) -> Self {
        Self([KEYS[0].hash_one(&what), KEYS[1].hash_one(&what)])
    }

    fn text(self) -> String {
        let Self([high, low]) = self;
        format!("{high:016x}{low:016x}")
    }
}

/// A watch whose client opted in.
pub(super) struct ResumeRequest {
    ty: Arc<ResourceType>,
    /// apiVersion of the metadata form; `None` for whole objects.
    partial: Option<&'static str>,
    /// Hash of everything that decides which objects are sent, and in which form.
    question: KeyedHash,
    token: String,
}

impl ResumeRequest {
    /// Reads the header; `None` if the client did not opt in, or if the request cannot have marks.
    pub(super) fn read(headers: &HeaderMap, target: &Target, options: &ListOptions, form: &Form) -> Option<Self> {
        let header = headers.get(HEADER)?;
        let has_end = options.send_initial_events == Some(true) && options.allow_bookmarks;
        let partial = match &form.content {
            Content::Whole => None,
            Content::Metadata(meta) => Some(meta.api_version()),
            Content::Row(_) => return None,
        };
        // The marks are lines of JSON.
        if form.is_protobuf() {
            return None;
        }
        let ty = Arc::clone(&target.ty);
        let place = (ty.id(), ty.api_version(), &target.namespace, &target.name);
        let selectors = (options.labels.to_string(), options.fields.to_string(), &*options.shard_selector);
        let question = KeyedHash::of((place, selectors, partial, form.without_managed_fields));
        let value = header.to_str().unwrap_or_default();
        // An invalid token counts as one of another server, and is not stored.
        let token = if value == marks::NEW || marks::is_token(value) { value.to_owned() } else { String::new() };
        has_end.then_some(Self { ty, partial, question, token })
    }

    /// Returns the position to resume from, if the token is valid for a watch that would start at `from`. Never waits:
    /// a token's cache has been listed already.
    pub(super) fn rest(&self, app: &App, from: WatchStart) -> Option<(Reader, CursorStart)> {
        let WatchStart::State(least) = from else { return None };
        let (text, check) = self.token.rsplit_once('.')?;
        let ContinueToken { resource_version, start } = ContinueToken::decode(text).ok()?;
        let Position::At(position) = resource_version else { return None };
        let reader = app.caches.reader(&self.ty).now_or_never()?.ok()?;
        let is_ours = |snapshot: &CacheSnapshot| self.check(snapshot.history_id(), text).text() == check;
        if position < least.unwrap_or(0) || !is_ours(&reader.snapshot()) {
            return None;
        }
        // Check again: the history may have ended in between.
        let snapshot = reader.at(position).ok().filter(is_ours)?;
        (snapshot.resource_version == position).then_some((reader, CursorStart::Rest(snapshot, start)))
    }

    /// Creates the marks of a stream that starts at `start`, and the value of its response header.
    pub(super) fn marks(self, app: &App, reader: &Reader, start: &CursorStart) -> Option<(StreamMarks, MarksReply)> {
        let (snapshot, answered) = match start {
            CursorStart::Initial(snapshot) if self.token == marks::NEW => (snapshot, MarksReply::Accepted),
            CursorStart::Initial(snapshot) => (snapshot, MarksReply::Restarted),
            CursorStart::Rest(snapshot, _) => (snapshot, MarksReply::Resumed),
            CursorStart::After(_) => return None,
        };
        let marks = StreamMarks {
            reader: reader.clone(),
            history: snapshot.history_id(),
            position: snapshot.resource_version,
            opened: (app.caches.now(), Instant::now()),
            bytes: 0,
            echoes: answered == MarksReply::Resumed,
            is_known: answered == MarksReply::Resumed,
            request: self,
        };
        Some((marks, answered))
    }

    fn check(&self, history: u64, text: &str) -> KeyedHash {
        KeyedHash::of((self.question, history, text))
    }

    fn push(&self, token: &str, out: &mut Slices) {
        let line = match self.partial {
            None => marks::mark(&self.ty.kind, self.ty.api_version(), token),
            Some(api_version) => marks::mark("PartialObjectMetadata", api_version, token),
        };
        out.push(line.into());
    }
}

/// Sets the response header that reports whether the stream resumed.
pub(super) fn say(answered: MarksReply, response: &mut Response) {
    response.headers_mut().insert(HEADER, HeaderValue::from_static(answered.as_str()));
}

/// Marks of one stream while it sends the initial state. Once the client knows a mark, dropping this holds the position
/// for `MARKED_WAIT`; during the stream the cursor keeps it.
pub(super) struct StreamMarks {
    request: ResumeRequest,
    reader: Reader,
    history: u64,
    position: u64,
    /// Start time, on the caches' clock and on tokio's.
    opened: (Time, Instant),
    /// Bytes since the last mark.
    bytes: usize,
    /// True until the token that the client sent is repeated.
    echoes: bool,
    /// True if the client knows the position.
    is_known: bool,
}

impl StreamMarks {
    /// Pushes the mark that opens a resumed stream. Returns the number of marks pushed.
    pub(super) fn open(&mut self, out: &mut Slices) -> u64 {
        if !std::mem::take(&mut self.echoes) {
            return 0;
        }
        self.request.push(&self.request.token, out);
        1
    }

    /// Adds `bytes` that were pushed, and pushes a mark behind them if one is due. Returns the number of marks pushed.
    pub(super) fn step(&mut self, bytes: usize, cursor: &Cursor, out: &mut Slices) -> u64 {
        self.bytes += bytes;
        if self.bytes < MARK_BYTES {
            return 0;
        }
        let Some(start) = cursor.behind() else { return 0 };
        let text = ContinueToken { resource_version: Position::At(self.position), start }.encode();
        let token = format!("{text}.{}", self.request.check(self.history, &text).text());
        self.bytes = 0;
        if !marks::is_token(&token) {
            return 0;
        }
        self.is_known = true;
        self.request.push(&token, out);
        1
    }

    /// Ends the marks after the initial state was sent. Bytes lost in flight follow a position that the window usually
    /// still covers, so holding it longer is not worth the memory.
    pub(super) fn done(mut self) {
        self.is_known = false;
    }

    fn hold(&self) {
        // The position must still be readable, and of this history: another one may reuse version numbers.
        let is_there = self.reader.oldest() <= self.position && self.reader.snapshot().history_id() == self.history;
        if is_there {
            let (time, instant) = self.opened;
            self.reader.hold(self.position, time + instant.elapsed() + MARKED_WAIT);
        }
    }
}

impl Drop for StreamMarks {
    fn drop(&mut self) {
        if self.is_known {
            self.hold();
        }
    }
}

#[cfg(test)]
mod tests;
