//! Parses and dispatches one request.

use http::{Method, header, request::Parts};
use informer_serving::{
    marks,
    options::ListOptions,
    query::Query,
    reads::WatchStart,
    status::{Status, StatusExt as _},
};

use super::{
    Body, FakeApiServer, RequestKind,
    form::{FakeForm, ResponseShape},
    read,
    types::{self, PathTarget},
    watch,
    write::FakeWrite,
};

/// A parsed request.
pub(super) struct FakeCall<'a> {
    parts: &'a Parts,
    query: Query,
    target: Option<PathTarget>,
    options: Result<ListOptions, Status>,
}

impl<'a> FakeCall<'a> {
    pub(super) fn new(server: &FakeApiServer, parts: &'a Parts) -> Self {
        let query = Query::parse(parts.uri.query());
        let history = server.history();
        let target = types::route(parts.uri.path(), |api_version, plural| history.find(api_version, plural));
        let options = ListOptions::read(&query);
        Self { parts, query, target, options }
    }

    pub(super) fn kind(&self) -> RequestKind {
        if self.parts.method != Method::GET {
            return RequestKind::Write;
        }
        let one = |options: &ListOptions, target: &PathTarget| {
            options.names_one(target.namespaced(), target.namespace.as_deref())
        };
        match (&self.target, &self.options) {
            (Some(PathTarget { name: Some(_), .. }), _) => RequestKind::Get,
            (_, Ok(options)) if options.watch => match WatchStart::of(options) {
                Ok(WatchStart::State(_)) => RequestKind::Stream,
                Ok(WatchStart::Now(_) | WatchStart::After(_)) | Err(_) => RequestKind::Watch,
            },
            (_, Ok(options)) if !options.continue_token.is_empty() => RequestKind::Page,
            (Some(target), Ok(options)) if one(options, target) => RequestKind::Get,
            (_, Ok(_) | Err(_)) => RequestKind::List,
        }
    }

    pub(super) async fn answer(&self, server: &FakeApiServer, body: &[u8]) -> Result<(u16, Body), Status> {
        let target = self.target.as_ref().ok_or_else(Status::generic_not_found)?;
        let header = |name: header::HeaderName| {
            self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        if self.parts.method != Method::GET {
            let (method, query) = (&self.parts.method, &self.query);
            let write = FakeWrite { method, content_type: header(header::CONTENT_TYPE), query, body };
            return write.apply(server, target).map(|(code, body)| (code, Body::whole(body)));
        }
        let accept = header(header::ACCEPT);
        if let Some(name) = &target.name {
            let form = FakeForm::accepted(accept, ResponseShape::Object)?;
            return read::get(server, target, name, &self.query, form).await.map(|body| (200, Body::whole(body)));
        }
        let options = self.options.as_ref().map_err(Status::clone)?;
        let shape = if options.watch { ResponseShape::Object } else { ResponseShape::List };
        let form = FakeForm::accepted(accept, shape)?;
        let answer = if options.watch {
            let for_state = self.query.flag("sendInitialEvents") == Some(true);
            self.may_watch(server, for_state)?;
            let marks = header(header::HeaderName::from_static(marks::HEADER));
            watch::watch(server, target, options, watch::WatchRequest { for_state, marks }, form).await
        } else {
            read::list(server, target, options, form).await
        };
        answer.map(|body| (200, body))
    }

    fn may_watch(&self, server: &FakeApiServer, asks_for_state: bool) -> Result<(), Status> {
        let faults = server.faults();
        if faults.watches_forbidden {
            let (group, plural) = self.target.as_ref().map_or(("", ""), |it| (&it.ty.group, &it.ty.plural));
            return Err(Status::forbidden(group, plural, "", "the test forbids watches"));
        }
        match faults.refused_stream() {
            Some(status) if asks_for_state => Err(status),
            Some(_) | None => Ok(()),
        }
    }
}
