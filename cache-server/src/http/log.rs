//! Debug log line of each request: enough to find, without a proxy, why a client failed.
//!
//! INVARIANT: bodies and credentials are never logged, and only the first characters of page tokens.

use std::{
    fmt::{self, Write as _},
    mem,
    net::SocketAddr,
    time::Duration,
};

use http::{HeaderValue, Method, Version, request::Parts};
use informer_serving::status::Status;

use crate::{
    access::{RequestContext, RequestedUri},
    app::App,
    metrics::RequestClass,
    read::body::Response,
    request::{TextPrefix, user_agent},
    status::logged,
    traces::RequestSpan,
};

/// A request in progress. Counts and logs it exactly once, also if its client disconnects before the answer.
pub(super) struct RequestGuard<'a> {
    app: &'a App,
    parts: &'a Parts,
    kind: RequestClass,
    answered: bool,
    span: RequestSpan,
}

impl<'a> RequestGuard<'a> {
    pub(super) fn new(app: &'a App, parts: &'a Parts, kind: RequestClass) -> Self {
        Self { app, parts, kind, answered: false, span: RequestSpan::default() }
    }

    /// Ends `span` with the request.
    pub(super) fn traced(mut self, mut span: RequestSpan, context: &RequestContext) -> Self {
        span.describe(self.kind.verb, self.kind.id(), self.parts, context);
        self.span = span;
        self
    }

    /// Returns the server, if the request came over HTTP/2.
    pub(super) fn over_http2(&self) -> Option<&'a App> {
        (self.parts.version == Version::HTTP_2).then_some(self.app)
    }

    /// Records the answer: its code now, and its duration and bytes once they are sent. Answers that may last for hours are
    /// logged now.
    pub(super) fn answered(&mut self, context: &RequestContext, response: &mut Response, error: Option<&Status>) {
        self.answered = true;
        let mut span = mem::take(&mut self.span);
        span.answered(response.status());
        let code = response.status().as_u16();
        self.app.metrics.request(self.kind.verb, self.kind.id(), code);
        let mut line = tracing::enabled!(tracing::Level::DEBUG).then(|| self.line(context, code, error));
        let (is_watch, is_forwarded) = (response.body().is_watch(), response.body().is_forwarded());
        let may_last = is_watch || is_forwarded && matches!(self.kind.verb, "WATCH" | "CONNECT");
        if may_last && let Some(line) = line.take() {
            line.log(context.arrived.elapsed(), None);
        }
        if is_watch {
            response.body_mut().trace_watch(span);
            return;
        }
        let mut measure = self.app.metrics.measure(&self.kind, context.arrived, span);
        if let Some(line) = line {
            measure.then(move |took, bytes| line.log(took, Some(bytes)));
        }
        // The body of an answer to HEAD is not sent.
        if self.parts.method != Method::HEAD {
            response.body_mut().measure(measure);
        }
    }

    fn line(&self, context: &RequestContext, code: u16, error: Option<&Status>) -> RequestLine {
        RequestLine {
            verb: self.kind.verb,
            resource: self.kind.id().to_owned(),
            method: self.parts.method.clone(),
            uri: LoggedTarget(self.parts).to_string(),
            user_agent: TextPrefix(user_agent(&self.parts.headers)).to_string(),
            code,
            error: error.map(|error| TextPrefix(&logged(error)).to_string()),
            id: context.id.clone(),
            user: context.user().map_or_else(|| "-".to_owned(), |user| TextPrefix(&user.name).to_string()),
            peer: context.peer.address,
        }
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.span.ended("client_left");
            let Self { app, parts, kind, .. } = self;
            let (verb, resource) = (kind.verb, kind.id());
            app.metrics.aborted(verb, resource);
            let (method, uri) = (&parts.method, LoggedTarget(parts));
            let user_agent = TextPrefix(user_agent(&parts.headers));
            tracing::debug!(verb, resource, %method, %uri, %user_agent, "request aborted");
        }
    }
}

/// The line of an answered request, which may be logged when its response has been sent.
struct RequestLine {
    verb: &'static str,
    resource: String,
    method: Method,
    uri: String,
    user_agent: String,
    code: u16,
    error: Option<String>,
    id: HeaderValue,
    user: String,
    peer: Option<SocketAddr>,
}

impl RequestLine {
    /// Logs the line. `bytes` are those of the body; `None` while it is open.
    fn log(self, took: Duration, bytes: Option<u64>) {
        let Self { verb, resource, method, uri, user_agent, code, error, id, user, peer } = self;
        let (error, peer) = (error.map(tracing::field::display), peer.map(tracing::field::display));
        tracing::debug!(
            verb, resource, %method, %uri, %user_agent, code, error, ?id, user, peer, ?took, bytes, "request answered"
        );
    }
}

/// Displays path and query, with page tokens cut.
struct LoggedTarget<'a>(&'a Parts);

/// Logged characters of a page token: enough to recognise our own tokens.
const TOKEN_CHARS: usize = 8;

impl fmt::Display for LoggedTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = RequestedUri::of(self.0);
        let mut text = uri.path().to_owned();
        for (at, pair) in uri.query().unwrap_or_default().split('&').enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            match pair.strip_prefix("continue=").and_then(|token| token.get(..TOKEN_CHARS)) {
                Some(start) => write!(text, "continue={start}…")?,
                None => text.push_str(pair),
            }
        }
        TextPrefix(text.strip_suffix('?').unwrap_or(&text)).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::limits::LOGGED_CHARS_MAX;

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
