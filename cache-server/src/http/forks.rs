//! `/snapshots`: begins, lists and ends forks, and leads the requests below `/snapshots/NAME/` to them.

use std::{mem, sync::Arc};

use http::{Method, StatusCode, Uri, request::Parts, uri::PathAndQuery};
use informer_serving::status::{Status, StatusExt as _};
use serde_json::{Value, json};

use crate::{
    access::RequestedUri,
    app::{App, Fork, ForkError},
    limits::FORKS_MAX,
    read::body::{self, Response, page_not_found},
    request::RequestHead,
    route::{FORKS, ForkPath},
};

/// Returns the server that a request is for: `app`, or one of its forks, whose prefix is then taken from the path.
pub(super) fn destination(app: Arc<App>, parts: &mut Parts) -> Arc<App> {
    let (mut at, mut found) = (0, None::<Arc<App>>);
    while let Some((fork, length)) =
        parts.uri.path().get(at..).and_then(|path| below_fork(found.as_ref().unwrap_or(&app), path))
    {
        (at, found) = (at + length, Some(fork));
    }
    let Some((fork, uri)) = found.zip(without(&parts.uri, at)) else { return app };
    parts.extensions.insert(RequestedUri(mem::replace(&mut parts.uri, uri)));
    fork
}

/// Returns the fork that a path begins with, and the bytes of its prefix.
fn below_fork(app: &App, path: &str) -> Option<(Arc<App>, usize)> {
    let after = path.strip_prefix('/')?.strip_prefix(FORKS)?.strip_prefix('/')?;
    let (name, rest) = after.split_once('/')?;
    let fork = app.forks.get(name)?;
    Some((fork.app, path.len() - rest.len() - 1))
}

/// Returns a URI without the first bytes of its path.
fn without(uri: &Uri, bytes: usize) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let rest = parts.path_and_query?.as_str().get(bytes..)?.to_owned();
    parts.path_and_query = Some(PathAndQuery::try_from(rest).ok()?);
    Uri::from_parts(parts).ok()
}

/// Answers a request about forks.
///
/// # Errors
/// 404 for a fork that does not exist; 405; 429 if there are [`FORKS_MAX`] forks.
pub(super) fn answer(app: &App, head: &RequestHead<'_>, path: &ForkPath) -> Result<Response, Status> {
    if !app.forks.are_allowed() {
        return Ok(page_not_found());
    }
    let document = |code, document: &Value| Ok(body::json(code, document.to_string().into()));
    let missing = |name: &str| Status::not_found("", FORKS, name);
    match (head.method, path) {
        (&Method::POST, ForkPath::All) => {
            let fork = app.forks.begin(app).map_err(refused)?;
            document(StatusCode::CREATED, &described(app, head, &fork))
        }
        (&Method::GET, ForkPath::All) => {
            let all: Vec<_> = app.forks.all().iter().map(|fork| described(app, head, fork)).collect();
            document(StatusCode::OK, &json!({ "items": all }))
        }
        (&Method::GET, ForkPath::One(name)) => {
            let fork = app.forks.ours(name).ok_or_else(|| missing(name))?;
            document(StatusCode::OK, &described(app, head, &fork))
        }
        (&Method::DELETE, ForkPath::One(name)) => {
            let fork = app.forks.end(name).ok_or_else(|| missing(name))?;
            document(StatusCode::OK, &described(app, head, &fork))
        }
        (_, ForkPath::Below(name)) if app.forks.get(name).is_none() => Err(missing(name)),
        (_, ForkPath::All | ForkPath::One(_) | ForkPath::Below(_)) => Err(Status::generic_method_not_allowed()),
    }
}

fn refused(error: ForkError) -> Status {
    match error {
        ForkError::TooMany => {
            let text = format!("there are {FORKS_MAX} forks, which is the limit: end some by DELETE /{FORKS}/NAME");
            Status::too_many_requests(text, RETRY_SECONDS)
        }
        ForkError::NotForked => Status::internal("the objects of this server cannot be forked"),
    }
}

/// Seconds after which a client may try again to begin a fork.
const RETRY_SECONDS: u32 = 1;

/// Describes a fork. Its URL has the host by which the client reached this server.
fn described(app: &App, head: &RequestHead<'_>, fork: &Fork) -> Value {
    let path = format!("/{FORKS}/{}", fork.name);
    let scheme = if app.config.tls.is_some() { "https" } else { "http" };
    let server = head.host.map_or_else(|| path.clone(), |host| format!("{scheme}://{host}{path}"));
    json!({ "name": fork.name, "server": server, "resourceVersion": fork.revision.to_string() })
}
