//! Streams of initial state that are marked, and go on behind a mark: what cache-server can and kube-apiserver cannot.

use std::hash::BuildHasher as _;

use informer_core::wire::{
    continue_token::{ContinueToken, Position},
    marks::{self, Answered},
    options::ListOptions,
};

use super::{FakeApiServer, form::Form, types::Target};

/// Marks of one stream.
#[derive(Debug)]
pub(super) struct Marks {
    server: FakeApiServer,
    /// What a token is of, besides its position and key.
    question: String,
    position: u64,
    /// Objects between two marks.
    every: usize,
    left: usize,
    pub(super) answered: Answered,
    /// The token that was asked with and is told again, first.
    pub(super) echo: Option<String>,
}

/// Where a stream of initial state begins.
pub(super) struct Start {
    pub(super) position: u64,
    /// The first key wanted.
    pub(super) key: String,
}

impl Marks {
    /// What the header `asked` comes to: marks, and where to go on, if it says so and that can be.
    pub(super) fn new(
        server: &FakeApiServer,
        target: &Target,
        options: &ListOptions,
        form: Form,
        asked: &str,
    ) -> Option<(Self, Option<Start>)> {
        let faults = server.faults();
        let every = faults.marks_every.filter(|_| !asked.is_empty() && options.allow_bookmarks)?;
        let (path, ListOptions { labels, fields, .. }) = (target.key(""), options);
        let question = format!("{} {path} {labels} {fields} {form:?}", target.ty.plural);
        let mut made = Self {
            server: server.clone(),
            question,
            position: server.position(),
            every,
            left: every,
            answered: if asked == marks::NEW { Answered::Accepted } else { Answered::Restarted },
            echo: None,
        };
        // A state older than demanded is none to go on with.
        let least = options.resource_version.parse().unwrap_or(0);
        let start = made.read(asked).filter(|start| least <= start.position && !server.is_expired(start.position));
        if let Some(Start { position, .. }) = start {
            (made.position, made.answered, made.echo) = (position, Answered::Resumed, Some(asked.to_owned()));
        }
        Some((made, start))
    }

    /// The mark behind the object of `key`, if one is due, in a stream of objects `of` this kind and version.
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

    fn read(&self, asked: &str) -> Option<Start> {
        let (token, check) = asked.rsplit_once('.')?;
        if check != format!("{:016x}", self.check(token)) {
            return None;
        }
        let ContinueToken { resource_version, start } = ContinueToken::decode(token).ok()?;
        match resource_version {
            Position::At(position) => Some(Start { position, key: start }),
            Position::Latest => None,
        }
    }

    /// Of this server, since marks were forgotten last, and of one question.
    fn check(&self, token: &str) -> u64 {
        let epoch = self.server.history().epoch;
        let forgotten = self.server.faults().marks_forgotten;
        self.server.own.marks_key.hash_one((token, &self.question, epoch, forgotten))
    }
}
