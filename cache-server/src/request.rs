//! One request without its path and body, as every handler reads it.

use std::borrow::Cow;

use access_rules::user::User;
use http::{HeaderMap, Method, header, request::Parts};
use informer_serving::query::Query;

use crate::{
    access::audit::AuditRecord,
    budget::Room,
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
        let (method, headers) = (&parts.method, &parts.headers);
        Self { method, headers, room, caller: None, owner: 0, audit: None, accept, query, indent, errors, proved: None }
    }
}
