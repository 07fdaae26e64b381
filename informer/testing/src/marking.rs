//! Marked streams of initial state, which resume behind a mark: a feature of cache-server that kube-apiserver lacks.

use std::hash::BuildHasher as _;

use informer_serving::{
    continue_token::{ContinueToken, Position},
    marks::{self, MarksReply},
    options::ListOptions,
};

use super::{FakeApiServer, form::FakeForm, types::PathTarget};

/// Marks of one stream.
#[derive(Debug)]
pub(super) struct MarkSchedule {
    server: FakeApiServer,
    /// Type, path, selectors and form of the request, to which its tokens are bound beside position and key.
    question: String,
    position: u64,
    /// Objects between two marks.
    every: usize,
    left: usize,
    pub(super) answered: MarksReply,
    /// The token of the request, repeated as the first mark.
    pub(super) echo: Option<String>,
}

/// Start of a stream of initial state.
pub(super) struct MarkedStart {
    pub(super) position: u64,
    /// First key to send.
    pub(super) key: String,
}

impl MarkSchedule {
    /// Evaluates the header value `requested`: returns the marks to send, and where to resume if the token is valid.
    pub(super) fn new(
        server: &FakeApiServer,
        target: &PathTarget,
        options: &ListOptions,
        form: FakeForm,
        requested: &str,
    ) -> Option<(Self, Option<MarkedStart>)> {
        let faults = server.faults();
        let every = faults.marks_every.filter(|_| !requested.is_empty() && options.allow_bookmarks)?;
        let (path, ListOptions { labels, fields, shard_selector, .. }) = (target.key(""), options);
        let question = format!("{} {path} {labels} {fields} {shard_selector} {form:?}", target.ty.plural);
        let mut made = Self {
            server: server.clone(),
            question,
            position: server.position(),
            every,
            left: every,
            answered: if requested == marks::NEW { MarksReply::Accepted } else { MarksReply::Restarted },
            echo: None,
        };
        // A state older than the request demands cannot be resumed.
        let least = options.resource_version.parse().unwrap_or(0);
        let start = made.read(requested).filter(|start| least <= start.position && !server.is_expired(start.position));
        if let Some(MarkedStart { position, .. }) = start {
            (made.position, made.answered, made.echo) = (position, MarksReply::Resumed, Some(requested.to_owned()));
        }
        Some((made, start))
    }

    /// Returns the mark after the object `key` if one is due; `of` is kind and apiVersion of the streamed objects.
    pub(super) fn after(&mut self, key: &str, of: (&str, &str)) -> Option<Vec<u8>> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return None;
        }
        self.left = self.every;
        let token = ContinueToken::after(key, Position::At(self.position)).encode();
        let token = format!("{token}.{:016x}", self.check(&token));
        Some(marks::mark(of.0, of.1, &token))
    }

    fn read(&self, requested: &str) -> Option<MarkedStart> {
        let (token, check) = requested.rsplit_once('.')?;
        if check != format!("{:016x}", self.check(token)) {
            return None;
        }
        let ContinueToken { resource_version, start } = ContinueToken::decode(token).ok()?;
        match resource_version {
            Position::At(position) => Some(MarkedStart { position, key: start }),
            Position::Latest => None,
        }
    }

    /// Checksum that binds a token to this server, to the last `forget_marks`, and to one request.
    fn check(&self, token: &str) -> u64 {
        let epoch = self.server.history().epoch;
        let forgotten = self.server.faults().marks_forgotten;
        self.server.own.marks_key.hash_one((token, &self.question, epoch, forgotten))
    }
}
