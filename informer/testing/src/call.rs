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
};

#[cfg(feature = "writes")]
use super::write::FakeWrite;

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
        let mut options = ListOptions::read(&query);
        if let Some(options) = options.as_mut().ok().filter(|_| server.faults().shards_unknown) {
            options.shard_selector.clear();
        }
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
        if self.parts.method != Method::GET {
            return self.write(server, target, body).await;
        }
        let accept = self.header(header::ACCEPT);
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
            let marks = self.header(header::HeaderName::from_static(marks::HEADER));
            watch::watch(server, target, options, watch::WatchRequest { for_state, marks }, form).await
        } else {
            read::list(server, target, options, form).await
        };
        answer.map(|body| (200, body))
    }

    #[cfg(feature = "writes")]
    async fn write(&self, server: &FakeApiServer, target: &PathTarget, body: &[u8]) -> Result<(u16, Body), Status> {
        let content_type = Some(self.header(header::CONTENT_TYPE)).filter(|text| !text.is_empty());
        let write =
            FakeWrite { server, target, method: &self.parts.method, content_type, query: self.query.pairs(), body };
        if self.parts.method != Method::DELETE || target.name.is_some() {
            return write.one().map(|(code, json)| (code, Body::whole(json)));
        }
        let form = FakeForm::accepted(self.header(header::ACCEPT), ResponseShape::List)?;
        write.collection(self.options.as_ref().map_err(Status::clone)?, form).await
    }

    #[cfg(not(feature = "writes"))]
    async fn write(&self, _: &FakeApiServer, _: &PathTarget, _: &[u8]) -> Result<(u16, Body), Status> {
        let message = "the fake server answers writes with the feature `writes` of informer-testing, which is \
                       `testing-writes` of informer";
        Err(Status { message: message.to_owned(), code: 501, ..Status::generic_method_not_allowed() })
    }

    fn header(&self, name: header::HeaderName) -> &str {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
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
