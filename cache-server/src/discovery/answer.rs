//! Answers requests for server documents: discovery, health, version and metrics.

use std::{borrow::Cow, sync::Arc};

use access_rules::request_info::RequestInfo;
use http::{HeaderValue, Method, StatusCode, header};
use informer_serving::status::{Status, StatusExt as _};

use super::{
    debug, document,
    health::{self, Check},
    page, version,
};
use crate::{
    app::App,
    cacher::DownCache,
    clock,
    limits::RIGHT_ASKED_EVERY,
    metrics::{self, ScrapeReadings},
    read::{
        body::{self, Response, page_not_found},
        pretty,
    },
    registry::ResourceType,
    request::RequestHead,
    route::{DebugDocument, DiscoveryPath, Health, Route},
    status,
    upstream::gateway::Upstream,
};

/// Answers a request for a server document.
///
/// # Errors
/// 405 for methods other than GET, 404 for other routes.
pub(crate) async fn answer(app: &App, head: &RequestHead<'_>, route: &Route) -> Result<Response, Status> {
    // Some probes and link checkers send HEAD; kube-apiserver answers health checks for any method.
    let is_page = matches!(route, Route::Debug(DebugDocument::Page | DebugDocument::PageWithoutSlash));
    let probes = *head.method == Method::HEAD && (is_page || matches!(route, Route::Health(..)));
    if *head.method != Method::GET && !probes {
        return Err(Status::generic_method_not_allowed());
    }
    match route {
        Route::Discovery(path) => discovery(app, head, path),
        Route::Health(endpoint, check) => Ok(health(app, head, *endpoint, check.as_deref()).await),
        Route::Version => Ok(body::json(StatusCode::OK, version().into())),
        Route::Metrics => {
            let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
            let readings = scrape_readings(app, metrics::open_files().await);
            Ok(body::typed(StatusCode::OK, content_type, app.metrics.text(&app.caches, &readings).into()))
        }
        Route::Debug(DebugDocument::Watches) => debug::watches(app, head),
        Route::Debug(DebugDocument::Snapshots) => Ok(debug::snapshots(app)),
        Route::Debug(DebugDocument::Summary) => Ok(debug::summary(app)),
        Route::Debug(DebugDocument::Status) => Ok(debug::status(app)),
        Route::Debug(DebugDocument::Page) => Ok(page::page(head.headers)),
        Route::Debug(DebugDocument::PageWithoutSlash) => Ok(page::redirect()),
        Route::Resource(_)
        | Route::Missing(_)
        | Route::Connect(..)
        | Route::OpenApi(_)
        | Route::Forks(_)
        | Route::NotFound => Err(Status::generic_not_found()),
        Route::Unknown => Ok(page_not_found()),
    }
}

fn discovery(app: &App, head: &RequestHead<'_>, path: &DiscoveryPath) -> Result<Response, Status> {
    let listening = app.config.listen.to_string();
    let address = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or(&listening);
    let Some(document) = document(&app.registry.now(), path, Some(&head.accept), address) else {
        return if app.definitions.are_known() { Ok(page_not_found()) } else { Err(status::definitions_unknown()) };
    };
    let content_type = HeaderValue::from_static(document.content_type);
    let Some(etag) = document.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) else {
        let indent = head.indent && *path != DiscoveryPath::Root;
        let body = if indent { pretty::indent(&document.body).into() } else { document.body.into() };
        return Ok(body::typed(StatusCode::OK, content_type, body));
    };
    let (code, body) = body::unless_known(head.headers, &etag, document.body);
    let mut response = body::typed(code, content_type, body.into());
    response.headers_mut().insert(header::ETAG, etag);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    Ok(response)
}

async fn health(app: &App, head: &RequestHead<'_>, endpoint: Health, check: Option<&str>) -> Response {
    let (query, checks) = (head.query.pairs(), checks(app, endpoint));
    let shows_notes = match head.caller.filter(|_| health::has_notes(check, query, &checks)) {
        Some(caller) => {
            let path = format!("/{}/{}", endpoint.name(), check.unwrap_or("*"));
            let each = RequestInfo { verb: "get".into(), path, resource: None };
            // Boxed: the future of every request has room for what it awaits.
            Box::pin(app.access.may_see_reasons(caller, &each)).await
        }
        None => false,
    };
    let Some((code, text)) = health::health(endpoint, check, query, &checks, shows_notes) else {
        return page_not_found();
    };
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    body::text(code, text.into())
}

fn scrape_readings(app: &App, open_files: Option<u64>) -> ScrapeReadings {
    let checks = checks(app, Health::Readyz).into_iter().map(|check| (check.name.into_owned(), check.passes)).collect();
    let reached = app.upstream().filter(|upstream| upstream.is_reached());
    let upstream_silent = reached.map(|upstream| upstream.last_answer.silent_for().unwrap_or_default());
    ScrapeReadings { open_files, checks, upstream_silent }
}

/// A check whose reason is its own, if it fails.
fn check_or(name: &'static str, passes: bool, reason: &str) -> Check {
    Check { name: name.into(), passes, note: (!passes).then(|| reason.to_owned()) }
}

/// The conditions that an endpoint reports.
fn checks(app: &App, endpoint: Health) -> Vec<Check> {
    // Answering at all proves that the server listens; caches start with their first reader, so they are no check.
    let mut checks = vec![check_or("ping", true, "")];
    // A restart of this server would not end an outage of the API server.
    if endpoint != Health::Livez || app.upstream().is_none() {
        let (name, are_known) = ("poststarthook/crd-informer-synced", app.definitions.are_known());
        checks.push(check_or(name, are_known, "the CustomResourceDefinitions are not read yet"));
    }
    // A server that shuts down, or has a cache that is down, is alive but not ready for new clients. In front of an API
    // server, a cache that was filled goes on serving what it has.
    if endpoint == Health::Readyz {
        checks.push(check_or("shutdown", !app.caches.is_stopped(), "the server shuts down"));
        let missing = app.progress.missing();
        if app.upstream().is_some() || missing.is_some() {
            checks.push(check_or("start", missing.is_none(), &missing.unwrap_or_default()));
        }
        if let Some(upstream) = app.upstream() {
            checks.push(upstream_check(upstream));
            checks.extend(rights_check(app));
        }
        checks.extend(app.access.authorizer.unread().map(|unread| {
            check_or("authorization", unread.is_empty(), &format!("not read yet: {}", unread.join(", ")))
        }));
        if app.config.data_dir.is_some() {
            checks.push(storage_check(app));
        }
        let down = app.caches.down();
        let is_up = |id: &str| !down.iter().any(|down| down.resource == id);
        let named = app.named().into_iter().filter(|(ty, _)| is_up(ty.id()));
        checks.extend(named.map(|(ty, passes): (Arc<ResourceType>, bool)| Check {
            name: cache_check(ty.id()),
            passes,
            note: (!passes).then(|| "not filled yet".to_owned()),
        }));
        checks.extend(down.iter().map(|down| down_check(app, down)));
        checks.extend(app.tasks.failing().into_iter().map(|(name, since)| {
            let note = Some(format!("panics since {}", clock::before(since)));
            Check { name: format!("task/{name}").into(), passes: false, note }
        }));
    }
    checks
}

/// The check of the API server behind this server. It passes from its first answer on: caches serve without it.
fn upstream_check(upstream: &Upstream) -> Check {
    let passes = upstream.is_reached();
    let note = if passes {
        let silent = upstream.last_answer.silent_for();
        silent.map(|silent| format!("degraded since {}: it does not answer", clock::before(silent)))
    } else {
        Some("the API server was not reached yet".to_owned())
    };
    Check { name: "upstream".into(), passes, note }
}

/// The check of how rights of open watches are noticed to be withdrawn, if the API server decides about them. It always passes.
fn rights_check(app: &App) -> Option<Check> {
    let authorizer = &app.access.authorizer;
    let is_followed = authorizer.asks_upstream().then(|| authorizer.roles().version().is_some())?;
    let note = if is_followed {
        "followed: roles and bindings explain open watches".to_owned()
    } else {
        format!("asked about every {:?}: roles and bindings are not followed", RIGHT_ASKED_EVERY)
    };
    Some(Check { name: "rights".into(), passes: true, note: Some(note) })
}

/// The check of a store that may refuse writes. A full one goes on with reads and removals.
fn storage_check(app: &App) -> Check {
    let refusal = app.local().and_then(|local| local.store.refuses());
    let (passes, note) = match refusal {
        None => (true, None),
        Some(crate::storage::SourceError::Full(_)) => (true, Some("full: only removals are written".to_owned())),
        Some(error) => (false, Some(error.to_string())),
    };
    Check { name: "storage".into(), passes, note }
}

/// The check of a cache that its source does not keep up to date.
fn down_check(app: &App, down: &DownCache) -> Check {
    let is_needed = app.upstream().is_none_or(|upstream| upstream.is_named(&down.resource));
    let serves_on = app.upstream().is_some() && down.is_filled;
    let passes = serves_on || !is_needed;
    let state = if passes { "degraded" } else { "its source fails" };
    let note = Some(format!("{state} since {}", clock::before(down.since)));
    Check { name: cache_check(&down.resource), passes, note }
}

/// Name of the check of a type's cache.
fn cache_check(id: &str) -> Cow<'static, str> {
    format!("cache/{id}").into()
}
