//! Answers LIST from the watch cache.
//!
//! INVARIANT: only the request's parameters decide which state it reads: the most recent one (waits until the cache has
//! reached the storage), any, one not older than N (waits), or exactly N (undoes events of the window; below it, asks a
//! storage that keeps a history). No other read falls back to a more expensive source; it fails with 410, 429 or 504. INVARIANT: a body holds one snapshot and one
//! key, whatever its length.
//!
//! Source: apiserver `storage/cacher/delegator/interface.go`, KEP-2340, KEP-4988.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::StatusCode;
use informer_core::{KeyedObject as _, Objects, selector::shard};
use informer_serving::{
    continue_token::{ContinueToken, Position, TokenExtras},
    list::{self, ListMetadata},
    options::ListOptions,
    protobuf,
    reads::{ListRead, RequestedState},
    status::{Status, StatusExt as _},
};
use watch_cache::{CacheSnapshot, Content, Entry, Filter, Form, Measurement, Page, Reader, Slices};

use super::{
    aside,
    body::{self, BATCH, Body, BodyError, Response},
    encode::{Encoder, Gzip, RequestedEncoding},
    negotiate::{AnswerFormat, AnswerSubject},
    query,
};
use crate::{
    app::App,
    cacher::FreshnessError,
    clock,
    config::ListEncoding,
    limits,
    registry::ResourceType,
    route::Target,
    storage::{SourceError, StateRead, StoredState},
};

/// Time for which the position of a paged list stays readable after each page, within the bounds of the window.
const NEXT_PAGE_WAIT: Duration = Duration::from_secs(75);

/// Page steps per poll, whether they find matches or not. Bounds the time that a poll holds a worker.
const STEPS_MAX: usize = 4;

/// `GET …/{plural}`. `owner` is charged for the positions and states that are kept for it.
///
/// # Errors
/// The Status to answer with.
pub(crate) async fn list(
    app: &App,
    target: &Target,
    options: &ListOptions,
    answer: &AnswerFormat,
    owner: u64,
) -> Result<Response, Status> {
    let (selected, state) = SelectedObjects::read(app, target, options, owner).await?;
    let page = selected.page(state).await;
    selected.hold_next(app, &page);
    selected.respond(app, &target.ty, page, answer).await
}

/// The objects of one state that a collection request selects.
pub(crate) struct SelectedObjects {
    reader: Reader,
    /// The resourceVersion of the answer.
    resource_version: u64,
    filter: Arc<Filter>,
    /// First key of the page, as in a continue token.
    start: Option<String>,
    limit: Option<usize>,
    /// Number of objects from `start` on, according to the token.
    following: Option<u64>,
    /// Id of the history of `resource_version`.
    history: Option<u64>,
    /// Age of the state, if it was not confirmed for this request.
    age: Option<Duration>,
}

impl SelectedObjects {
    /// Waits for the state that `options` request.
    ///
    /// # Errors
    /// The Status to answer with.
    pub(crate) async fn read(
        app: &App,
        target: &Target,
        options: &ListOptions,
        owner: u64,
    ) -> Result<(Self, CacheSnapshot), Status> {
        let filter = query::filter(options, target)?;
        let one = options.names_one(target.ty.namespaced, target.namespace.as_deref());
        let read = ListRead::of(options, one)?;
        let limit = read.limit.and_then(|limit| usize::try_from(limit).ok());
        let by_token = matches!(read.which, RequestedState::Exact { by_token: true, .. });
        let extras = if by_token { TokenExtras::read(&options.continue_token) } else { TokenExtras::default() };
        let history = app.caches.history();
        // Both histories may have been at the position. A token without an id is kube-apiserver's.
        if extras.history.is_some_and(|minted| history.is_some_and(|ours| minted != ours)) {
            return Err(read.expired());
        }
        let FoundState { reader, age, state, following: counted } =
            FoundState::read(&read, app, &target.ty, &filter, PageDemand { limit, owner }).await?;
        // Report the requested version: the state at N may stem from an earlier write.
        let resource_version =
            if let RequestedState::Exact { at, .. } = read.which { at } else { state.resource_version };
        // The token's count holds only for the state it was taken from, not for the latest one.
        let following = extras.following.or(counted);
        Ok((Self { reader, resource_version, filter, start: read.start, limit, following, history, age }, state))
    }

    /// Returns the requested page of `state`.
    pub(crate) async fn page(&self, state: CacheSnapshot) -> Page {
        let page = Page::begin(state, Arc::clone(&self.filter), self.start.as_deref(), self.limit);
        let mut page = page.with_following(self.following);
        while page.look_ahead() {
            // Yield to other tasks while a selector matches little, or much is to be counted.
            tokio::task::yield_now().await;
        }
        page
    }

    /// Keeps the position readable for the next page, if there is one.
    pub(crate) fn hold_next(&self, app: &App, page: &Page) {
        if page.next().is_some() {
            self.reader.hold(self.resource_version, app.caches.now() + NEXT_PAGE_WAIT);
        }
    }

    /// Returns a state of these objects that holds no position of the window.
    pub(crate) fn detached(&self, objects: &Objects<Entry>) -> CacheSnapshot {
        self.reader.detached(objects.clone(), self.resource_version)
    }

    /// Answers with a LIST of `page`.
    ///
    /// # Errors
    /// 406 and 400 for a form that a list cannot have, 500 if the body could not be made in memory.
    pub(crate) async fn respond(
        &self,
        app: &App,
        ty: &ResourceType,
        page: Page,
        answer: &AnswerFormat,
    ) -> Result<Response, Status> {
        let (mut answer, mut form) = (answer, answer.form(ty, AnswerSubject::List)?);
        let (now, mut bytes) = (clock::unix_seconds(), None);
        let mut page = page.shown_as(form.clone(), now);
        if form.is_protobuf() {
            bytes = measured(&mut page, &form, ty).await?;
            if bytes.is_none() {
                answer = answer.in_json().ok_or_else(|| Status::internal("an object could not be encoded"))?;
                form = answer.form(ty, AnswerSubject::List)?;
                page = page.shown_as(form.clone(), now);
            }
        }
        let encoding = RequestedEncoding::of(answer);
        let gzip = if answer.gzip && !encoding.is_slow() { Gzip::new(&form) } else { None };
        let shard = self.filter.shard();
        let position = ListPosition { resource_version: self.resource_version, history: self.history, shard };
        let listing = ListBody::new(ty, page, position, &form, bytes);
        let mut response = if bytes.is_none() && app.config.list_encoding == ListEncoding::Buffered {
            let whole = listing.into_whole().await;
            let whole = whole.ok_or_else(|| Status::internal("a list could not be encoded"))?;
            body::json(StatusCode::OK, whole.into())
        } else if encoding.is_slow() {
            let response = aside::run(move || listing.into_response(encoding, None, bytes)).await;
            response.ok_or_else(|| Status::internal("a list could not be encoded"))?
        } else {
            listing.into_response(encoding, gzip, bytes)
        };
        body::set_age(&mut response, self.age);
        Ok(response)
    }
}

/// Returns the bytes of all items of a protobuf list: the length of the list is in front of them. Returns `None` if an item
/// cannot be encoded.
async fn measured(page: &mut Page, form: &Form, ty: &ResourceType) -> Result<Option<u64>, Status> {
    loop {
        match page.measure() {
            Measurement::All(bytes) => return Ok(Some(bytes)),
            Measurement::Failed(entry) => {
                tracing::warn!(resource = ty.id(), object = entry.key(), "object not encoded");
                return Ok(None);
            }
            Measurement::More => tokio::task::yield_now().await,
            Measurement::Slow(entry) => {
                let form = form.clone();
                let encoded = aside::run(move || form.item_bytes(&entry)).await;
                encoded.ok_or_else(|| Status::internal("an object could not be encoded"))?;
            }
        }
    }
}

/// The state that a LIST reads, with its cache.
struct FoundState {
    reader: Reader,
    /// Its age, if it was not confirmed for this read.
    age: Option<Duration>,
    state: CacheSnapshot,
    /// Number of objects from the start of the page on, if the storage has counted them.
    following: Option<u64>,
}

/// Length of a page, and its owner.
#[derive(Clone, Copy)]
struct PageDemand {
    limit: Option<usize>,
    owner: u64,
}

impl FoundState {
    /// Waits for the state that `read` asks for.
    async fn read(
        read: &ListRead,
        app: &App,
        ty: &Arc<ResourceType>,
        filter: &Arc<Filter>,
        PageDemand { limit, owner }: PageDemand,
    ) -> Result<Self, Status> {
        let (reader, age) = match read.which {
            RequestedState::MostRecent => app.caches.recent(ty).await?,
            RequestedState::Any => (app.caches.reader(ty).await?, None),
            RequestedState::NotOlderThan(at) | RequestedState::Exact { at, by_token: false } => {
                (app.caches.at_least(ty, at).await?, None)
            }
            RequestedState::Exact { at, by_token: true } => match app.caches.at_least(ty, at).await {
                // This server, or another one on the storage, gave the token: the storage was restored since.
                Err(FreshnessError::TooLarge { requested, .. })
                    if app.caches.committed(ty).await.is_some_and(|newest| newest < requested) =>
                {
                    return Err(read.expired());
                }
                reader => (reader?, None),
            },
        };
        let reader = reader.owned_by(owner);
        let state = match read.which {
            RequestedState::MostRecent | RequestedState::Any | RequestedState::NotOlderThan(_) => {
                reader.selected(filter)
            }
            RequestedState::Exact { at, .. } if !app.caches.knows(at) => return Err(read.expired()),
            RequestedState::Exact { at, .. } => match exact(&reader, at).await? {
                Some(state) => state,
                None => {
                    let filter = Arc::clone(filter);
                    let below = StateRead { position: at, filter, start: read.start.clone(), limit };
                    return Self::below_window(read, app, ty, reader, below).await;
                }
            },
        };
        Ok(Self { reader, age, state, following: None })
    }

    /// Reads the state from the storage, which may know positions that the cache does not know any more.
    async fn below_window(
        read: &ListRead,
        app: &App,
        ty: &Arc<ResourceType>,
        reader: Reader,
        below: StateRead,
    ) -> Result<Self, Status> {
        let position = below.position;
        match app.caches.stored_at(ty, below).await {
            Ok(StoredState { objects, following }) => {
                let state = reader.detached(objects, position);
                Ok(Self { reader, age: None, state, following })
            }
            Err(SourceError::Compacted { .. }) => Err(read.expired()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the cached state at `at`; `None` if the window does not cover it.
async fn exact(reader: &Reader, at: u64) -> Result<Option<CacheSnapshot>, Status> {
    let state = if reader.events_after(at) > limits::UNDO_INLINE_MAX {
        let reader = reader.clone();
        let exact = aside::run(move || reader.at(at)).await;
        exact.ok_or_else(|| Status::internal("the state could not be read"))?
    } else {
        reader.at(at)
    };
    Ok(state.ok())
}

/// Body of a LIST: head, items of a snapshot, tail.
pub(super) struct ListBody {
    /// `None` while a blocking thread has them.
    items: Option<Box<ListItems>>,
    ends: Ends,
    /// True once an item was handed out, and the head with it.
    begun: bool,
    /// True once everything was handed out.
    over: bool,
    /// Bytes written while deciding whether the list is long enough to compress.
    first: Slices,
    /// True if other tasks come first: a batch behind a long selector, or of objects that were not compressed yet, takes a
    /// millisecond, and a fast client takes many in one turn.
    yields: bool,
    /// The next items, while a blocking thread makes them.
    slow: Option<BoxFuture<'static, Option<SlowItems>>>,
}

/// The items of a list, and their encoding.
struct ListItems {
    /// Shown in the requested form.
    page: Page,
    encoder: Encoder,
}

/// Items that were too slow to make on a worker.
struct SlowItems {
    /// Bytes of the items, behind the head if they are the first.
    out: Slices,
    /// False if they are the last of the list.
    more: bool,
    /// `None` if the body has them.
    items: Option<Box<ListItems>>,
}

/// Position and shard of a list, for its metadata.
#[derive(Clone, Copy)]
struct ListPosition<'a> {
    resource_version: u64,
    /// Id of its history.
    history: Option<u64>,
    shard: Option<&'a shard::Selector>,
}

/// Text around the items of a list.
pub(super) struct Ends {
    /// Text before the first item, up to and including the opening bracket.
    pub(super) head: Bytes,
    /// Text behind the last item, from the closing bracket on, with a newline.
    pub(super) tail: Bytes,
    /// The whole list if it has no items. A list of metadata then has `null` as its items, like a nil slice in Go.
    pub(super) empty: Bytes,
}

impl Ends {
    /// `bytes` are those of all items of a protobuf list.
    fn new(ty: &ResourceType, page: &Page, position: ListPosition<'_>, form: &Form, bytes: Option<u64>) -> Self {
        let ListPosition { resource_version, history, shard } = position;
        let token = page.next().map(|start| {
            let (resource_version, start) = (Position::At(resource_version), start.to_owned());
            let extras = TokenExtras { following: page.remaining(), history };
            ContinueToken { resource_version, start }.encode_with(extras)
        });
        let shard = shard.map(ToString::to_string);
        let (continue_token, remaining, shard) = (token.as_deref(), page.remaining(), shard.as_deref());
        let meta = ListMetadata { resource_version, continue_token, remaining, shard };
        if let Some(bytes) = bytes {
            let (kind, api_version) = match &form.content {
                Content::Metadata(meta) => ("PartialObjectMetadataList".to_owned(), meta.api_version()),
                Content::Whole | Content::Row(_) => (ty.list_kind().to_string(), ty.api_version()),
            };
            let head = protobuf::list_head(&kind, api_version, &meta, bytes);
            let empty = [&*head, protobuf::ENVELOPE_TAIL].concat().into();
            return Self { head: head.into(), tail: Bytes::from_static(protobuf::ENVELOPE_TAIL), empty };
        }
        let opening = |kind: &str, api_version| list::opening(kind, api_version, &meta);
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
                let head = list::head(&ty.list_kind(), ty.api_version(), &meta);
                (head, Bytes::from_static(list::TAIL))
            }
            Content::Whole => {
                let tail = list::custom_tail(&ty.list_kind(), &meta);
                (list::custom_head(ty.api_version()), tail.into())
            }
        };
        let empty = [&*head, &*tail].concat().into();
        Self { head: head.into(), tail, empty }
    }
}

impl ListBody {
    fn new(ty: &ResourceType, page: Page, position: ListPosition<'_>, form: &Form, bytes: Option<u64>) -> Self {
        let ends = Ends::new(ty, &page, position, form, bytes);
        let items = Some(Box::new(ListItems { page, encoder: Encoder::Plain }));
        Self { items, ends, begun: false, over: false, first: Slices::new(), yields: false, slow: None }
    }

    fn items(&mut self) -> &mut ListItems {
        self.items.as_mut().expect("no thread has them")
    }

    /// Pushes the next batch; pushes nothing if no item matched yet. `out` is empty until the first item.
    fn step(&mut self, out: &mut Slices) {
        let ListItems { page, encoder } = self.items.as_deref_mut().expect("no thread has them");
        if !self.begun {
            encoder.head(self.ends.head.clone(), out);
        }
        for _ in 0..STEPS_MAX {
            let before = out.len();
            let more = encoder.step(page, BATCH, out);
            self.begun |= out.len() > before;
            if let Some(item) = page.take_slow() {
                self.begun = true;
                let made = aside::run(move || SlowItems { out: item.make(), more, items: None });
                self.slow = Some(made.boxed());
                return;
            }
            if !more {
                return self.finish(out);
            }
            if encoder.is_slow() || encoder.has_compressed() {
                return;
            }
            // A table row takes about a thousand times as long as sharing slices.
            if out.reached(BATCH) || page.shows_rows() && self.begun {
                return;
            }
        }
        if !self.begun {
            out.clear();
        }
    }

    /// Lets a blocking thread make the next batch.
    fn step_aside(&mut self, mut items: Box<ListItems>) {
        let head = (!self.begun).then(|| self.ends.head.clone());
        let making = aside::run(move || {
            let ListItems { page, encoder } = &mut *items;
            let mut out = Slices::new();
            let is_first = head.is_some();
            if let Some(head) = head {
                encoder.head(head, &mut out);
            }
            let before = out.len();
            let more = encoder.step(page, BATCH, &mut out);
            if is_first && out.len() == before {
                out.clear();
            }
            SlowItems { out, more, items: Some(items) }
        });
        self.slow = Some(making.boxed());
    }

    /// Pushes the tail, or the empty list if there were no items.
    fn finish(&mut self, out: &mut Slices) {
        self.over = true;
        let (tail, empty) = (self.ends.tail.clone(), self.ends.empty.clone());
        if self.begun {
            self.items().encoder.tail(tail, out);
        } else {
            out.clear();
            out.push(self.items().encoder.empty(empty));
        }
    }

    /// Builds the response in the encoding that the client wants, and by `gzip` if it is long. `bytes` are those of all
    /// items, if they are known.
    fn into_response(mut self, encoding: RequestedEncoding, gzip: Option<Gzip>, bytes: Option<u64>) -> Response {
        self.items().encoder = Encoder::new(encoding, &self.ends.head, &self.ends.tail);
        let mut first = Slices::new();
        if let Some(gzip) = gzip {
            self.begin_compressed(gzip, bytes, &mut first);
        }
        let encoder = &self.items().encoder;
        let (content_type, compressed) = (encoder.content_type(), matches!(encoder, Encoder::Gzip(_)));
        let mut response = body::typed(StatusCode::OK, content_type, self.into_body(first));
        if compressed {
            body::set_gzip(&mut response);
        }
        response
    }

    /// Reads items until the list is long enough to compress or ends, and writes those items in the encoding chosen.
    fn begin_compressed(&mut self, mut gzip: Gzip, bytes: Option<u64>, first: &mut Slices) {
        let (mut entries, mut plain, mut more) = (Vec::new(), Slices::new(), true);
        plain.push(self.ends.head.clone());
        let short = limits::GZIP_BYTES_MIN.saturating_sub(self.ends.tail.len());
        let ListItems { page, encoder } = self.items.as_deref_mut().expect("no thread has them");
        let mut is_long = bytes.is_some_and(|bytes| plain.bytes() as u64 + bytes > short as u64);
        // The bytes of a protobuf list are known.
        for _ in 0..if bytes.is_some() { 0 } else { STEPS_MAX } {
            more = page.visit(|entry, is_first| {
                gzip.item(entry, is_first, &mut plain);
                entries.push(Arc::clone(entry));
                is_long = plain.bytes() > short;
                !is_long
            });
            if !more || is_long {
                break;
            }
        }
        // Its length is still unknown: the form of long objects is short.
        is_long |= more && !entries.is_empty();
        self.begun = is_long || !entries.is_empty();
        if is_long {
            gzip.precede(entries);
            *encoder = Encoder::Gzip(Box::new(gzip));
            encoder.head(self.ends.head.clone(), first);
        } else if self.begun {
            *first = plain;
        }
        if !more && !is_long {
            self.finish(first);
        }
    }

    /// Gives a list that ends in its first batch a Content-Length; longer ones are streamed.
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

    /// Builds the whole body in memory, decoding and encoding each object, as a server without shared bytes would.
    /// `None` if the state could not be kept for that long. Lists of several clients advance together, part by part:
    /// threads at the same time would wait for each other's allocations.
    async fn into_whole(mut self) -> Option<Vec<u8>> {
        let mut whole = self.ends.head.to_vec();
        let mut more = true;
        while more {
            (self, whole, more) = aside::run(move || {
                let more = self.add_items(&mut whole);
                (self, whole, more)
            })
            .await?;
            if self.items().page.is_cut() {
                return None;
            }
        }
        if whole.len() == self.ends.head.len() {
            return Some(self.ends.empty.to_vec());
        }
        whole.extend_from_slice(&self.ends.tail);
        Some(whole)
    }

    /// Decodes and encodes the next items. Returns false after the last ones.
    fn add_items(&mut self, whole: &mut Vec<u8>) -> bool {
        let head = self.ends.head.len();
        let mut item = Vec::new();
        self.items().page.visit_texts(|_, text| {
            if whole.len() > head {
                whole.extend_from_slice(list::SEPARATOR);
            }
            item.clear();
            text.iter().for_each(|slice| item.extend_from_slice(slice));
            let object = serde_json::from_slice::<serde_json::Value>(&item).expect("a stored object is JSON");
            serde_json::to_writer(&mut *whole, &object).expect("writing to memory cannot fail");
            true
        })
    }

    /// True once everything was handed out.
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
        if let Some(slow) = &mut self.slow {
            let made = ready!(slow.poll_unpin(cx));
            self.slow = None;
            let Some(SlowItems { mut out, more, items }) = made else { return Poll::Ready(Some(Err(BodyError::Cut))) };
            self.items = items.or_else(|| self.items.take());
            self.begun |= !out.is_empty();
            if !more {
                self.finish(&mut out);
            }
            return self.hand_out(out, cx);
        }
        let items = self.items();
        if items.page.is_cut() {
            return Poll::Ready(Some(Err(BodyError::Cut)));
        }
        if items.encoder.is_slow()
            && let Some(items) = self.items.take()
        {
            self.step_aside(items);
            return self.poll_frame(cx);
        }
        if std::mem::take(&mut self.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut out = Slices::new();
        self.step(&mut out);
        let ListItems { page, encoder } = self.items();
        self.yields = !out.is_empty() && (page.has_long_selector() || encoder.has_compressed());
        self.hand_out(out, cx)
    }

    fn hand_out(&self, out: Slices, cx: &Context<'_>) -> Poll<Option<Result<Slices, BodyError>>> {
        if out.is_empty() && !self.is_over() {
            // Yield to other tasks: the selector matches little.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(out)))
    }
}

#[cfg(test)]
mod tests;
