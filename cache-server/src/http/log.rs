//! Debug log line of each request: enough to find, without a proxy, why a client failed.
//!
//! INVARIANT: bodies and credentials are never logged, and only the first characters of page tokens.

use std::fmt::{self, Write as _};

use http::{StatusCode, Version, header, request::Parts};

use crate::{access::RequestContext, app::App, limits::LOGGED_CHARS_MAX};

/// A request in progress. Counts and logs it exactly once, also if its client disconnects before the answer.
pub(super) struct RequestGuard<'a> {
    app: &'a App,
    parts: &'a Parts,
    verb: &'static str,
    resource: &'a str,
    answered: bool,
}

impl<'a> RequestGuard<'a> {
    /// `verb` and `resource` come from the registry and fixed names, never from the request's text, so that metric
    /// labels are bounded.
    pub(super) const fn new(app: &'a App, parts: &'a Parts, verb: &'static str, resource: &'a str) -> Self {
        Self { app, parts, verb, resource, answered: false }
    }

    /// Returns the server, if the request came over HTTP/2.
    pub(super) fn over_http2(&self) -> Option<&'a App> {
        (self.parts.version == Version::HTTP_2).then_some(self.app)
    }

    /// Records the status code of the answer. `error` is the message of a Status.
    pub(super) fn answered(&mut self, context: &RequestContext, code: StatusCode, error: Option<&str>) {
        let Self { app, parts, verb, resource, .. } = *self;
        self.answered = true;
        app.metrics.request(verb, resource, code.as_u16());
        let (method, uri, user_agent) = (&parts.method, LoggedTarget(parts), Agent(parts));
        let (code, error) = (code.as_u16(), error.map(TextPrefix));
        let (id, user, peer) = (&context.id, context.user().map_or("-", |user| &user.name), context.peer.address);
        let took = context.arrived.elapsed();
        match error {
            Some(error) => tracing::debug!(
                verb, resource, %method, %uri, %user_agent, code, %error, ?id, user, ?peer, ?took, "request answered"
            ),
            None => tracing::debug!(
                verb, resource, %method, %uri, %user_agent, code, ?id, user, ?peer, ?took, "request answered"
            ),
        }
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let Self { app, parts, verb, resource, .. } = *self;
            app.metrics.aborted(verb, resource);
            let (method, uri, user_agent) = (&parts.method, LoggedTarget(parts), Agent(parts));
            tracing::debug!(verb, resource, %method, %uri, %user_agent, "request aborted");
        }
    }
}

/// Displays path and query, with page tokens cut.
struct LoggedTarget<'a>(&'a Parts);

/// Logged characters of a page token: enough to recognise our own tokens.
const TOKEN_CHARS: usize = 8;

impl fmt::Display for LoggedTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.uri.path().to_owned();
        for (at, pair) in self.0.uri.query().unwrap_or_default().split('&').enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            match pair.strip_prefix("continue=").and_then(|token| token.get(..TOKEN_CHARS)) {
                Some(start) => write!(text, "continue={start}…")?,
                None => text.push_str(pair),
            }
        }
        TextPrefix(text.strip_suffix('?').unwrap_or(&text)).fmt(f)
    }
}

/// Displays the client's User-Agent.
struct Agent<'a>(&'a Parts);

impl fmt::Display for Agent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent = self.0.headers.get(header::USER_AGENT);
        TextPrefix(agent.and_then(|agent| agent.to_str().ok()).unwrap_or("-")).fmt(f)
    }
}

/// Displays the first [`LOGGED_CHARS_MAX`] characters of a text.
struct TextPrefix<'a>(&'a str);

impl fmt::Display for TextPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(LOGGED_CHARS_MAX) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn target(uri: &str) -> String {
        LoggedTarget(&Request::get(uri).body(()).unwrap().into_parts().0).to_string()
    }

    #[test]
    fn queries_are_logged_without_page_tokens() {
        for (uri, logged) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api/v1/pods?watch=1&labelSelector=a%3Db", "/api/v1/pods?watch=1&labelSelector=a%3Db"),
            ("/api/v1/pods?limit=5&continue=eyJ2IjoibWV0YS5rOHMuaW8&b=", "/api/v1/pods?limit=5&continue=eyJ2Ijoi…&b="),
            ("/api/v1/pods?continue=short", "/api/v1/pods?continue=short"),
        ] {
            assert_eq!(target(uri), logged);
        }
        let long = target(&format!("/{}", "x".repeat(60_000)));
        assert_eq!(long.chars().count(), LOGGED_CHARS_MAX + 1);
    }
}
