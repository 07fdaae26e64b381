//! LIST and GET: selects the state, its objects and the page.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use informer_serving::{
    continue_token::{ContinueToken, Position},
    list,
    options::{ListOptions, resource_version},
    query::Query,
    reads::{ListRead, RequestedState},
    status::{Status, StatusExt as _},
};

use super::{
    Body, FakeApiServer,
    filter::FakeFilter,
    form::FakeForm,
    history::{ObjectsByKey, StoredObject},
    types::{FakeType, PathTarget},
};

/// Size of a list's chunks, in bytes.
const CHUNK_BYTES: usize = 16 << 10;

/// `GET .../{plural}`.
pub(super) async fn list(
    server: &FakeApiServer,
    target: &PathTarget,
    options: &ListOptions,
    form: FakeForm,
) -> Result<Body, Status> {
    Ok(select(server, target, options).await?.into_body(&target.ty, form))
}

/// Selects the objects of a LIST.
pub(super) async fn select(
    server: &FakeApiServer,
    target: &PathTarget,
    options: &ListOptions,
) -> Result<ListPage, Status> {
    let filter = FakeFilter::new(options, target)?;
    let read = ListRead::of(options, options.names_one(target.namespaced(), target.namespace.as_deref()))?;
    let (position, objects) = state(server, &target.ty, &read).await?;
    Ok(ListPage::cut(target, &filter, &read, &objects, position))
}

/// `GET .../{plural}/{name}`.
pub(super) async fn get(
    server: &FakeApiServer,
    target: &PathTarget,
    name: &str,
    query: &Query,
    form: FakeForm,
) -> Result<Bytes, Status> {
    match query.get("resourceVersion").unwrap_or_default() {
        "" => {}
        given => server.reach(resource_version(given).map_err(Status::unmapped)?).await?,
    }
    let position = server.position();
    let objects = server.history().at(&target.ty, position);
    let stored = objects.get(&target.key(name));
    let stored = stored.ok_or_else(|| Status::not_found(&target.ty.group, &target.ty.plural, name))?;
    Ok([&*form.object(&stored.json), b"\n"].concat().into())
}

/// Selects the position and the objects a LIST returns.
async fn state(server: &FakeApiServer, ty: &FakeType, read: &ListRead) -> Result<(u64, ObjectsByKey), Status> {
    match read.which {
        RequestedState::MostRecent | RequestedState::Any => {}
        RequestedState::NotOlderThan(at) => server.reach(at).await?,
        RequestedState::Exact { at, by_token } => {
            server.reach(at).await?;
            if server.is_expired(at) || (by_token && server.faults().tokens_expire) {
                return Err(read.expired());
            }
            return Ok((at, server.history().at(ty, at)));
        }
    }
    let position = server.position();
    Ok((position, server.history().at(ty, position)))
}

/// One page of a list.
pub(super) struct ListPage {
    pub(super) items: Vec<Arc<StoredObject>>,
    position: u64,
    token: Option<String>,
    remaining: Option<u64>,
    /// Text of the shard selector.
    shard: Option<String>,
}

impl ListPage {
    /// Takes at most `limit` objects that match; adds a token if any object follows, matching or not.
    fn cut(target: &PathTarget, filter: &FakeFilter, read: &ListRead, objects: &ObjectsByKey, position: u64) -> Self {
        let prefix = target.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let start = format!("{prefix}{}", read.start.as_deref().unwrap_or_default());
        let mut rest = objects.range(start..).take_while(|(key, _)| key.starts_with(&prefix)).peekable();
        let most = read.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let (mut items, mut last) = (Vec::new(), None);
        while items.len() < most
            && let Some((key, stored)) = rest.next()
        {
            last = Some(key);
            if filter.matches(stored) {
                items.push(Arc::clone(stored));
            }
        }
        let remaining = rest.count() as u64;
        let last = last.filter(|_| remaining > 0).map(|key| key.strip_prefix(&prefix).unwrap_or(key));
        let token = last.map(|key| ContinueToken::after(key, Position::At(position)).encode());
        let remaining = token.as_ref().map(|_| remaining).filter(|_| filter.selects_all());
        Self { items, position, remaining, token, shard: filter.shard().map(ToString::to_string) }
    }

    pub(super) fn into_body(self, ty: &FakeType, form: FakeForm) -> Body {
        let (kind, api_version) = form.list_type(ty);
        let (continue_token, shard) = (self.token.as_deref(), self.shard.as_deref());
        let meta =
            list::ListMetadata { resource_version: self.position, continue_token, remaining: self.remaining, shard };
        let (head, tail) = if ty.builtin || form == FakeForm::Metadata {
            (list::head(&kind, api_version, &meta), list::TAIL.to_vec())
        } else {
            (list::custom_head(api_version), list::custom_tail(&kind, &meta))
        };
        let bare = ty.builtin;
        let items = self.items.into_iter().enumerate().map(move |(at, stored)| {
            let separator = if at == 0 { &b""[..] } else { list::SEPARATOR };
            let item = match form {
                FakeForm::Whole if bare => stored.item(),
                FakeForm::Whole | FakeForm::Metadata => form.object(&stored.json).into_owned(),
            };
            [separator, &item].concat()
        });
        let mut parts = std::iter::once(head).chain(items).chain(std::iter::once(tail));
        Body::stream(stream::iter(std::iter::from_fn(move || {
            let mut chunk = parts.next()?;
            while chunk.len() < CHUNK_BYTES
                && let Some(part) = parts.next()
            {
                chunk.extend_from_slice(&part);
            }
            Some(Bytes::from(chunk))
        })))
    }
}
