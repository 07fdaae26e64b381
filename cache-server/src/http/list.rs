//! Answers LIST and GET from the watch cache.
//!
//! INVARIANT: what a request asks for decides which state it reads, and nothing else does: most recent (wait until the
//! cache has passed the storage), any, not older than N (wait), or exactly N (undo the window). A read never falls back
//! to something dearer; it says 410, 429 or 504. INVARIANT: a body holds one snapshot and one key, whatever its length.
//!
//! Source: apiserver `storage/cacher/delegator/interface.go`, KEP-2340, KEP-4988.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use informer_core::{
    Objects,
    wire::{
        continue_token::{ContinueToken, Position},
        list,
        options::{ListOptions, resource_version},
        query::Query,
        reads::{ListRead, Which},
        status::Status,
    },
};
use watch_cache::{Content, Entry, Filter, Form, Page, Reader, Slices, Snapshot};

use super::{
    Response, aside,
    body::{self, BATCH, Body, BodyError},
    encode::{self, Encoder, Wanted},
    negotiate::{Answer, Of},
    query,
    route::Target,
    write,
};
use crate::{app::App, config::ListEncoding, limits, registry::ResourceType};

/// How long the position of a paged listing stays readable after its last page, within the window's bounds.
const NEXT_PAGE_WAIT: Duration = Duration::from_secs(75);

/// Steps through the objects in one turn, whether they find something or not. Bounds the time it holds a worker.
const STEPS_MAX: usize = 4;

/// `GET …/{plural}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn list(
    app: &App,
    target: &Target,
    options: &ListOptions,
    answer: &Answer,
) -> Result<Response, Status> {
    let (selected, state) = Selected::read(app, target, options).await?;
    let page = selected.page(state).await;
    selected.hold_next(app, &page);
    respond(app, &target.ty, page, selected.resource_version, answer).await
}

/// `DELETE …/{plural}`: deletes the objects that a LIST of the same query shows, one by one, and answers that LIST.
///
/// # Errors
/// The Status to answer with. What can be refused is, before anything is deleted; after that, the Status of the first
/// object that could not be deleted.
pub(super) async fn delete(
    app: &App,
    target: &Target,
    request: &write::Request<'_>,
    options: &ListOptions,
    answer: &Answer,
) -> Result<Response, Status> {
    let deletion = write::Collection::read(app, request).await?;
    answer.form(&target.ty, Of::List)?;
    let (selected, state) = Selected::read(app, target, options).await?;
    // Without a share in the window: this deletion would fill it, and cut its own answer.
    let objects = state.objects.clone();
    drop(state);
    let mut page = selected.page(selected.detached(&objects)).await;
    selected.hold_next(app, &page);
    let mut entries = Vec::new();
    while page.visit(|entry, _| {
        entries.push(Arc::clone(entry));
        true
    }) {
        if page.is_cut() {
            return Err(Status::server_timeout(&target.ty.group, &target.ty.plural, "deletecollection"));
        }
        tokio::task::yield_now().await;
    }
    deletion.delete(app, &target.ty, &entries).await?;
    // Of the time of the answer: deleting may have taken as long as a state is kept.
    let page = selected.page(selected.detached(&objects)).await;
    respond(app, &target.ty, page, selected.resource_version, answer).await
}

/// The objects of one state that the query of a collection names.
struct Selected {
    reader: Reader,
    /// The position that the answer names.
    resource_version: u64,
    filter: Arc<Filter>,
    /// Where the page starts, as in a token.
    start: Option<String>,
    limit: Option<usize>,
    /// Objects from there on, as the token says.
    following: Option<u64>,
}

impl Selected {
    /// Waits for the state that `options` ask for.
    async fn read(app: &App, target: &Target, options: &ListOptions) -> Result<(Self, Snapshot), Status> {
        let filter = query::filter(options, target)?;
        let one = options.names_one(target.ty.namespaced, target.namespace.as_deref());
        let read = ListRead::of(options, one)?;
        let (reader, state) = state(&read, app, &target.ty).await?;
        // What is said is what was asked for: the state at N may have been made by an earlier write.
        let resource_version = if let Which::Exact { at, .. } = read.which { at } else { state.resource_version };
        let limit = read.limit.and_then(|limit| usize::try_from(limit).ok());
        // Of the same state only: objects come and go in the latest one.
        let is_same = matches!(read.which, Which::Exact { by_token: true, .. });
        let following = is_same.then(|| ContinueToken::following(&options.continue_token)).flatten();
        Ok((Self { reader, resource_version, filter, start: read.start, limit, following }, state))
    }

    /// The page of `state` that was asked for.
    async fn page(&self, state: Snapshot) -> Page {
        let page = Page::begin(state, Arc::clone(&self.filter), self.start.as_deref(), self.limit);
        let mut page = page.with_following(self.following);
        while page.look_ahead() {
            // A selector that matches little, or much to count: let others run.
            tokio::task::yield_now().await;
        }
        page
    }

    /// Keeps the position for the page behind this one.
    fn hold_next(&self, app: &App, page: &Page) {
        if page.next().is_some() {
            self.reader.hold(self.resource_version, app.caches.now() + NEXT_PAGE_WAIT);
        }
    }

    fn detached(&self, objects: &Objects<Entry>) -> Snapshot {
        self.reader.detached(objects.clone(), self.resource_version)
    }
}

/// A LIST of `page`, which says that it is at `resource_version`.
///
/// # Errors
/// 406 and 400 for a form that a list does not have, 500 when the body could not be made in memory.
async fn respond(
    app: &App,
    ty: &ResourceType,
    page: Page,
    resource_version: u64,
    answer: &Answer,
) -> Result<Response, Status> {
    let listing = Listing::new(ty, page, resource_version, answer.form(ty, Of::List)?);
    let wanted = Wanted::of(answer);
    match app.config.list_encoding {
        ListEncoding::Streaming => Ok(listing.into_response(wanted)),
        ListEncoding::Buffered => {
            // Encoding takes long enough to be in the way of everybody else on this worker.
            let whole = tokio::task::spawn_blocking(move || listing.into_whole()).await;
            let whole = whole.ok().flatten().ok_or_else(|| Status::internal("a list could not be encoded"))?;
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
    answer: &Answer,
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
    let (form, wanted) = (answer.form(&target.ty, Of::Object)?, Wanted::of(answer));
    let is_slow = form.is_slow(&entry) || (wanted != Wanted::Json && wanted != Wanted::Gzip && entry.is_long());
    let respond = move || one(&entry, &form, wanted);
    if !is_slow {
        return Ok(respond());
    }
    aside::run(respond).await.ok_or_else(|| Status::internal("the object could not be shown"))
}

/// The response of a GET. Cost: that of reading the object, where it is not sent as it is stored.
fn one(entry: &Entry, form: &Form, wanted: Wanted) -> Response {
    let mut slices = Slices::new();
    entry.object_as(form, unix_now(), &mut slices);
    slices.push_static(b"\n");
    match wanted {
        Wanted::Json | Wanted::Gzip => body::json(StatusCode::OK, Body::full(slices)),
        Wanted::Indented | Wanted::Yaml => encode::whole(StatusCode::OK, joined(&mut slices), wanted),
    }
}

/// Now, in Unix seconds: what the ages in a table are counted to.
pub(super) fn unix_now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Slices in one piece, taken out.
fn joined(slices: &mut Slices) -> Bytes {
    slices.copy_to_bytes(slices.remaining())
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
        Which::Exact { at, .. } => {
            let exact = if reader.events_after(at) > limits::UNDO_INLINE_MAX {
                let reader = reader.clone();
                let exact = aside::run(move || reader.at(at)).await;
                exact.ok_or_else(|| Status::internal("the state could not be read"))?
            } else {
                reader.at(at)
            };
            exact.map_err(|_| read.expired())?
        }
    };
    Ok((reader, snapshot))
}

/// The body of a LIST: head, items from a frozen state, tail.
pub(super) struct Listing {
    /// In the form that was asked for.
    page: Page,
    ends: Ends,
    /// Whether an item was handed out, and with it, the head.
    begun: bool,
    /// Whether everything was handed out.
    over: bool,
    /// What was made before it was known whether the list is short.
    first: Slices,
    encoder: Encoder,
    /// The next item, while it is made apart.
    slow: Option<Slow>,
}

/// An item that takes long to make.
struct Slow {
    /// `None` if it could not be made.
    item: BoxFuture<'static, Option<Slices>>,
    /// True if it is the last one of the list.
    is_last: bool,
}

/// What stands around the items of a list.
pub(super) struct Ends {
    /// Up to the first item, with the bracket.
    pub(super) head: Bytes,
    /// Behind the last, from the bracket on, with a newline.
    pub(super) tail: Bytes,
    /// In place of both when there are no items: `null` is a list to some clients' Go types.
    pub(super) empty: Bytes,
}

impl Ends {
    fn new(ty: &ResourceType, page: &Page, resource_version: u64, form: &Form) -> Self {
        let token = page.next().map(|start| {
            let (resource_version, start) = (Position::At(resource_version), start.to_owned());
            let token = ContinueToken { resource_version, start };
            page.remaining().map_or_else(|| token.encode(), |remaining| token.encode_counted(remaining))
        });
        let (token, remaining) = (token.as_deref(), page.remaining());
        let opening = |kind: &str, api_version| list::opening(kind, api_version, resource_version, token, remaining);
        let (head, tail) = match &form.content {
            Content::Metadata(meta) => {
                let head = [&*opening("PartialObjectMetadataList", meta.api_version()), br#","items":"#].concat();
                let empty = [&*head, b"null}\n"].concat().into();
                return Self { head: [&*head, b"["].concat().into(), tail: list::TAIL.into(), empty };
            }
            Content::Row(row) => {
                let opening = opening("Table", row.meta.api_version());
                let head = [&*opening, br#","columnDefinitions":"#, &*row.definitions, br#","rows":["#].concat();
                (head, Bytes::from_static(list::TAIL))
            }
            Content::Whole if ty.schema.builtin => {
                let head = list::head(&ty.list_kind(), ty.api_version(), resource_version, token, remaining);
                (head, Bytes::from_static(list::TAIL))
            }
            Content::Whole => {
                let tail = list::custom_tail(&ty.list_kind(), resource_version, token, remaining);
                (list::custom_head(ty.api_version()), tail.into())
            }
        };
        let empty = [&*head, &*tail].concat().into();
        Self { head: head.into(), tail, empty }
    }
}

impl Listing {
    fn new(ty: &ResourceType, page: Page, resource_version: u64, form: Form) -> Self {
        let ends = Ends::new(ty, &page, resource_version, &form);
        let page = page.shown_as(form, unix_now());
        Self { page, ends, begun: false, over: false, first: Slices::new(), encoder: Encoder::Plain, slow: None }
    }

    /// Pushes the next batch; nothing when nothing matched so far. `out` is empty until the first item.
    fn step(&mut self, out: &mut Slices) {
        if !self.begun {
            self.encoder.head(self.ends.head.clone(), out);
        }
        for _ in 0..STEPS_MAX {
            let before = out.len();
            let more = self.encoder.step(&mut self.page, BATCH, out);
            self.begun |= out.len() > before;
            if let Some(item) = self.page.take_slow() {
                self.begun = true;
                let item = aside::run(move || item.make()).boxed();
                self.slow = Some(Slow { item, is_last: !more });
                return;
            }
            if !more {
                return self.finish(out);
            }
            // Rows take a thousand times as long as slices.
            if out.reached(BATCH) || self.page.shows_rows() && self.begun {
                return;
            }
        }
        if !self.begun {
            out.clear();
        }
    }

    /// Pushes the end.
    fn finish(&mut self, out: &mut Slices) {
        self.over = true;
        if self.begun {
            self.encoder.tail(self.ends.tail.clone(), out);
        } else {
            out.clear();
            out.push(self.encoder.empty(self.ends.empty.clone()));
        }
    }

    /// The answer as its client wants it.
    fn into_response(mut self, wanted: Wanted) -> Response {
        self.encoder = Encoder::new(wanted, &self.ends.head, &self.ends.tail);
        let mut first = Slices::new();
        if wanted == Wanted::Gzip && self.page.is_plain() {
            self.begin_compressed(&mut first);
        }
        let (content_type, compressed) = (self.encoder.content_type(), matches!(self.encoder, Encoder::Gzip(_)));
        let mut response = body::typed(StatusCode::OK, content_type, self.into_body(first));
        if compressed {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        response
    }

    /// Looks whether the list is long enough to be compressed, and begins with what was looked at.
    fn begin_compressed(&mut self, first: &mut Slices) {
        let (mut entries, mut plain, mut more) = (Vec::new(), Slices::new(), true);
        plain.push(self.ends.head.clone());
        let short = limits::GZIP_BYTES_MIN.saturating_sub(self.ends.tail.len());
        for _ in 0..STEPS_MAX {
            more = self.page.visit(|entry, is_first| {
                entry.item(is_first, &mut plain);
                entries.push(Arc::clone(entry));
                plain.bytes() <= short
            });
            if !more || plain.bytes() > short {
                break;
            }
        }
        self.begun = !entries.is_empty();
        if plain.bytes() > short {
            self.encoder = Encoder::compress(&self.ends.head, &entries, first);
        } else if self.begun {
            *first = plain;
        }
        if !more {
            self.finish(first);
        }
    }

    /// A short list has a length, a long one is a stream.
    fn into_body(mut self, mut first: Slices) -> Body {
        if first.is_empty() && !self.is_over() {
            self.step(&mut first);
        }
        if self.is_over() {
            return Body::full(first);
        }
        self.first = first;
        Body::list(self)
    }

    /// The whole body in memory, each object decoded and encoded again: what it takes when nothing is shared. `None` when
    /// its state could not be kept for so long.
    fn into_whole(mut self) -> Option<Vec<u8>> {
        let mut whole = self.ends.head.to_vec();
        let mut begun = false;
        let mut more = true;
        while more {
            if self.page.is_cut() {
                return None;
            }
            more = self.page.visit_texts(|_, text| {
                if std::mem::replace(&mut begun, true) {
                    whole.extend_from_slice(list::SEPARATOR);
                }
                let item: Vec<u8> = text.iter().flat_map(|slice| slice.iter().copied()).collect();
                let object = serde_json::from_slice::<serde_json::Value>(&item).expect("a stored object is JSON");
                serde_json::to_writer(&mut whole, &object).expect("writing to memory cannot fail");
                true
            });
        }
        if begun {
            whole.extend_from_slice(&self.ends.tail);
            Some(whole)
        } else {
            Some(self.ends.empty.to_vec())
        }
    }

    /// Whether everything was handed out.
    pub(super) const fn is_over(&self) -> bool {
        self.over
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
        if let Some(slow) = &mut self.slow {
            let is_last = slow.is_last;
            let made = ready!(slow.item.poll_unpin(cx));
            self.slow = None;
            let Some(item) = made else { return Poll::Ready(Some(Err(BodyError::Cut))) };
            out = item;
            if is_last {
                self.finish(&mut out);
            }
            return Poll::Ready(Some(Ok(out)));
        }
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
