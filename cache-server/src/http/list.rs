//! Answers LIST and GET from the watch cache.
//!
//! INVARIANT: what a request asks for decides which state it reads, and nothing else does: most recent (wait until the
//! cache has passed the storage), any, not older than N (wait), or exactly N (undo the window). A read never falls back
//! to something dearer; it says 410, 429 or 504. INVARIANT: a body holds one snapshot and one key, whatever its length.
//!
//! Source: apiserver `storage/cacher/delegator/interface.go`, KEP-2340, KEP-4988.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::StatusCode;
use informer_core::wire::{
    continue_token::{ContinueToken, Position},
    list,
    options::{ListOptions, resource_version},
    query::Query,
    reads::{ListRead, Which},
    status::Status,
};
use watch_cache::{Budget, Page, Reader, Slices, Snapshot};

use super::{
    Response,
    body::{self, BATCH, Body, BodyError},
    pretty, query,
    route::Target,
};
use crate::{app::App, config::ListEncoding, registry::ResourceType};

/// How long the position of a paged listing stays readable after its last page, within the window's bounds.
const NEXT_PAGE_WAIT: Duration = Duration::from_secs(75);

/// Steps through the objects in one turn, whether they find something or not. Bounds the time it holds a worker.
const STEPS_MAX: usize = 4;

/// `GET …/{plural}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn list(app: &App, target: &Target, options: &ListOptions) -> Result<Response, Status> {
    let filter = query::filter(options, target)?;
    let one = options.names_one(target.ty.namespaced, target.namespace.as_deref());
    let read = ListRead::of(options, one)?;
    let (reader, snapshot) = state(&read, app, &target.ty).await?;
    // What is said is what was asked for: the state at N may have been made by an earlier write.
    let resource_version = if let Which::Exact { at, .. } = read.which { at } else { snapshot.resource_version };
    let limit = read.limit.and_then(|limit| usize::try_from(limit).ok());
    let page = Page::new(snapshot, filter, read.start.as_deref(), limit);
    if page.next().is_some() {
        reader.hold(resource_version, app.caches.now() + NEXT_PAGE_WAIT);
    }
    respond(app, &target.ty, page, Some(resource_version)).await
}

/// A LIST of `page`, which says that it is at `resource_version`; its own when none is given.
///
/// # Errors
/// 500 when the body could not be made in memory.
pub(super) async fn respond(
    app: &App,
    ty: &ResourceType,
    page: Page,
    resource_version: Option<u64>,
) -> Result<Response, Status> {
    let resource_version = resource_version.unwrap_or_else(|| page.resource_version());
    let listing = Listing::new(ty, page, resource_version);
    match app.config.list_encoding {
        ListEncoding::Streaming => Ok(body::json(StatusCode::OK, listing.into_body())),
        ListEncoding::Buffered => {
            // Encoding takes long enough to be in the way of everybody else on this worker.
            let whole = tokio::task::spawn_blocking(move || listing.into_whole()).await;
            let whole = whole.map_err(|_| Status::internal("a list could not be encoded"))?;
            Ok(body::json(StatusCode::OK, whole.into()))
        }
    }
}

/// `GET …/{plural}/{name}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn get(
    app: &App,
    target: &Target,
    name: &str,
    query: &Query,
    indent: bool,
) -> Result<Response, Status> {
    let reader = match query.get("resourceVersion").unwrap_or_default() {
        "" => app.caches.fresh(&target.ty).await?,
        given => match resource_version(given).map_err(Status::unmapped)? {
            0 => app.caches.reader(&target.ty).await?,
            at => app.caches.at_least(&target.ty, at).await?,
        },
    };
    let key = target.ty.key(target.namespace.as_deref().unwrap_or_default(), name);
    let entry = reader.get(&key).ok_or_else(|| Status::not_found(&target.ty.group, &target.ty.plural, name))?;
    if indent {
        return Ok(body::json(StatusCode::OK, pretty::indent(&entry.object()).into()));
    }
    let mut slices = Slices::new();
    slices.push(entry.object());
    slices.push_static(b"\n");
    Ok(body::json(StatusCode::OK, Body::full(slices)))
}

/// The state a LIST reads, and where it came from.
async fn state(read: &ListRead, app: &App, ty: &Arc<ResourceType>) -> Result<(Reader, Snapshot), Status> {
    let reader = match read.which {
        Which::MostRecent => app.caches.fresh(ty).await?,
        Which::Any => app.caches.reader(ty).await?,
        Which::NotOlderThan(at) | Which::Exact { at, .. } => app.caches.at_least(ty, at).await?,
    };
    let snapshot = match read.which {
        Which::MostRecent | Which::Any | Which::NotOlderThan(_) => reader.snapshot(),
        Which::Exact { at, .. } => reader.at(at).map_err(|_| read.expired())?,
    };
    Ok((reader, snapshot))
}

/// The body of a LIST: head, items from a frozen state, tail.
pub(super) struct Listing {
    page: Page,
    head: Option<Bytes>,
    /// What was made before it was known whether the list is short.
    first: Slices,
    /// `None` once everything was handed out.
    tail: Option<Bytes>,
}

impl Listing {
    fn new(ty: &ResourceType, page: Page, resource_version: u64) -> Self {
        let token = page.next().map(|start| {
            let (resource_version, start) = (Position::At(resource_version), start.to_owned());
            ContinueToken { resource_version, start }.encode()
        });
        let (kind, api_version, remaining) = (ty.list_kind(), ty.api_version(), page.remaining());
        let (head, tail) = if ty.schema.builtin {
            let head = list::head(&kind, api_version, resource_version, token.as_deref(), remaining);
            (head, Bytes::from_static(list::TAIL))
        } else {
            let tail = list::custom_tail(&kind, resource_version, token.as_deref(), remaining);
            (list::custom_head(api_version), tail.into())
        };
        Self { page, head: Some(head.into()), first: Slices::new(), tail: Some(tail) }
    }

    /// Pushes the next batch; nothing when nothing matched so far.
    fn step(&mut self, out: &mut Slices) {
        if let Some(head) = self.head.take() {
            out.push(head);
        }
        for _ in 0..STEPS_MAX {
            let more = self.page.step(BATCH, out);
            if !more {
                if let Some(tail) = self.tail.take() {
                    out.push(tail);
                }
                return;
            }
            if out.reached(BATCH) {
                return;
            }
        }
    }

    /// A short list has a length, a long one is a stream.
    fn into_body(mut self) -> Body {
        let mut first = Slices::new();
        self.step(&mut first);
        if self.is_over() {
            return Body::full(first);
        }
        self.first = first;
        Body::list(self)
    }

    /// The whole body in memory, each object decoded and encoded again: what it takes when nothing is shared.
    fn into_whole(mut self) -> Vec<u8> {
        const ONE: Budget = Budget { slices: 1, bytes: 1 };
        let mut whole = self.head.take().map(Vec::from).unwrap_or_default();
        let (mut item, mut slices) = (Vec::new(), Slices::new());
        let mut more = true;
        while more {
            more = self.page.step(ONE, &mut slices);
            item.clear();
            while slices.has_remaining() {
                let chunk = slices.chunk();
                item.extend_from_slice(chunk);
                let count = chunk.len();
                slices.advance(count);
            }
            let object = item.strip_prefix(list::SEPARATOR).unwrap_or(&item);
            whole.extend_from_slice(&item[..item.len() - object.len()]);
            match serde_json::from_slice::<serde_json::Value>(object) {
                Ok(object) => {
                    serde_json::to_writer(&mut whole, &object).expect("writing to memory cannot fail");
                }
                // Nothing matched in this step.
                Err(_) => whole.extend_from_slice(object),
            }
        }
        whole.extend_from_slice(&self.tail.take().unwrap_or_default());
        whole
    }

    /// Whether everything was handed out.
    pub(super) const fn is_over(&self) -> bool {
        self.tail.is_none()
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Slices, BodyError>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        if self.page.is_cut() {
            return Poll::Ready(Some(Err(BodyError::Cut)));
        }
        let mut out = Slices::new();
        self.step(&mut out);
        if out.is_empty() && !self.is_over() {
            // A selector that matches little: let others run, and go on.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(out)))
    }
}

#[cfg(test)]
mod tests;
