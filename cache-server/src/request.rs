//! One request without its path and body, as every handler reads it.

use std::{borrow::Cow, fmt, sync::Arc};

use access_rules::user::User;
use http::{HeaderMap, Method, header, request::Parts, uri::Authority};
use informer_serving::query::Query;
use tokio::time::Instant;

use crate::{
    access::{audit::AuditRecord, peer::Peer},
    budget::Room,
    limits::{LOGGED_CHARS_MAX, READER_CHARS_MAX},
    metrics::watches::{WatchOrigin, WatchReader},
    read::{
        encode::RequestedEncoding,
        negotiate::{self, PlainFormat},
    },
    upstream::source::ProvedCache,
};

/// The head of a request, parsed once.
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    /// Host and port by which the client reached this server; `None` if it did not send them.
    pub(crate) host: Option<&'a str>,
    /// The connection, if it is known.
    pub(crate) peer: Option<&'a Arc<Peer>>,
    /// Time at which the request arrived; `None` before it has a context.
    pub(crate) arrived: Option<Instant>,
    /// Body budget of the connection; `None` if the connection carries one request at a time.
    pub(crate) room: Option<&'a Room>,
    /// The caller; `None` before it is known.
    pub(crate) caller: Option<&'a User>,
    /// Records of the request; `None` without an audit log.
    pub(crate) audit: Option<&'a AuditRecord>,
    /// Hash of the user that is charged for what is kept for it; zero for users without limits.
    pub(crate) owner: u64,
    /// The values of Accept.
    pub(crate) accept: Cow<'a, str>,
    pub(crate) query: Query,
    /// True if documents with only one form are indented for people.
    pub(crate) indent: bool,
    /// Encoding of errors.
    pub(crate) errors: RequestedEncoding,
    /// The cache that answers a read of one object; `None` if it was not chosen yet.
    pub(crate) proved: Option<ProvedCache>,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn new(parts: &'a Parts) -> Self {
        let query = Query::parse(parts.uri.query());
        let accept = negotiate::joined(&parts.headers, header::ACCEPT);
        let PlainFormat { indent, errors } = PlainFormat::read(&accept, &parts.headers, &query);
        let room = parts.extensions.get::<Room>();
        let (method, headers, peer) = (&parts.method, &parts.headers, parts.extensions.get());
        let (arrived, caller, audit, owner, proved) = (None, None, None, 0, None);
        let sent = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = parts.uri.authority().map(Authority::as_str).or_else(sent);
        Self { method, headers, host, peer, arrived, room, caller, audit, owner, accept, query, indent, errors, proved }
    }

    /// Returns who watches, for documents and the log.
    pub(crate) fn watch_origin(&self) -> WatchOrigin {
        let text = |text: &str| prefix(text, READER_CHARS_MAX).into_owned();
        let user = self.caller.map_or("-", |user| &user.name);
        WatchOrigin {
            reader: WatchReader { user: text(user), agent: text(user_agent(self.headers)) },
            peer: self.peer.cloned().unwrap_or_default(),
            owner: self.owner,
            arrived: self.arrived.unwrap_or_else(Instant::now),
        }
    }
}

/// Returns the User-Agent of a request; `-` without one.
pub(crate) fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("-")
}

/// Displays the first [`LOGGED_CHARS_MAX`] characters of a client's text.
pub(crate) struct TextPrefix<'a>(pub(crate) &'a str);

impl fmt::Display for TextPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&prefix(self.0, LOGGED_CHARS_MAX))
    }
}

fn prefix(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
