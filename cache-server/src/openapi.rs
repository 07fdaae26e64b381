//! OpenAPI documents at `/openapi/v3` and `/openapi/v2`, for clients that validate, apply and explain.
//!
//! The index lists a document for each group version, with a hash in its URL: a client may cache a document with a hash
//! forever. A document is built on its first request, on a blocking thread, and cached until its types change or no client
//! requests it for a minute or two.
//!
//! INVARIANT: documents are computed from the registry, so they announce exactly the types that are served.
//!
//! `/openapi/v2` is a single document of all types, in JSON and in protobuf. A change of any type changes it. It does not
//! exist before the definitions are known: clients would take it for whole.
//!
//! Not implemented, on purpose: the protobuf form of documents of version 3.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use api_rules::openapi::{document, protobuf, swagger};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use informer_serving::status::{Status, StatusExt as _};
use parking_lot::Mutex;

use crate::{
    app::App,
    limits::OPENAPI_BYTES_MAX,
    read::body::{self, Response, is_known, page_not_found},
    registry::{GroupVersion, Registry},
    request::RequestHead,
    route::OpenApiPath,
    status,
};

/// Cache of documents. Memory: the documents that clients requested lately, up to [`OPENAPI_BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<OpenApiCache>);

#[derive(Debug, Default)]
struct OpenApiCache {
    /// Registry that the other fields were computed from.
    registry: Weak<Registry>,
    /// Bytes of all cached texts.
    cached_bytes: usize,
    index: Bytes,
    /// By name: a document of version 3 for each group version, and the two forms of the document of version 2.
    documents: HashMap<String, Arc<CachedDocument>>,
}

/// Name of the document of version 2. Names in the index begin with `api`.
const WHOLE: &str = "v2";
/// Its protobuf form.
const WHOLE_PROTOBUF: &str = "v2 in protobuf";

/// One document, built or not.
#[derive(Debug)]
struct CachedDocument {
    hash: String,
    text: Mutex<Option<Bytes>>,
    /// True if a client requested it since the last [`Documents::drop_idle`].
    is_used: AtomicBool,
    /// Serialises building, so that concurrent requests build it once.
    making: tokio::sync::Mutex<()>,
}

impl CachedDocument {
    fn new(hash: String) -> Self {
        Self { hash, text: Mutex::default(), is_used: AtomicBool::new(false), making: tokio::sync::Mutex::default() }
    }

    /// Returns the text if it is cached.
    fn cached(&self) -> Option<Bytes> {
        self.is_used.store(true, Ordering::Relaxed);
        self.text.lock().clone()
    }
}

impl OpenApiCache {
    /// Counts the cached texts.
    fn count(&mut self) {
        let bytes = |document: &Arc<CachedDocument>| document.text.lock().as_ref().map_or(0, Bytes::len);
        self.cached_bytes = self.documents.values().map(bytes).sum();
    }
}

impl Documents {
    /// Drops the texts that no client requested since the call before.
    fn drop_idle(&self) {
        let mut state = self.0.lock();
        for document in state.documents.values() {
            if !document.is_used.swap(false, Ordering::Relaxed) {
                document.text.lock().take();
            }
        }
        state.count();
    }

    /// Runs `then` on the index and the documents of `registry`, after updating them if the registry changed.
    fn of<T>(&self, registry: &Arc<Registry>, then: impl FnOnce(&OpenApiCache) -> T) -> T {
        let mut state = self.0.lock();
        if !Weak::ptr_eq(&state.registry, &Arc::downgrade(registry)) {
            let mut known = std::mem::take(&mut state.documents);
            // Documents with an unchanged hash keep their text.
            let mut keep = |name: &str, hash: String| {
                let same = known.remove(name).filter(|document| document.hash == hash);
                same.unwrap_or_else(|| Arc::new(CachedDocument::new(hash)))
            };
            for group in registry.groups() {
                let name = name(group);
                let document = keep(&name, document::hash(group));
                state.documents.insert(name, document);
            }
            state.index = index(&state.documents);
            for name in [WHOLE, WHOLE_PROTOBUF] {
                // Each form has an ETag of its own: a cache that ignores `Vary` must not mistake one for the other.
                let document = keep(name, document::fingerprint(&[&state.index, name.as_bytes()].concat()));
                state.documents.insert(name.to_owned(), document);
            }
            state.count();
            state.registry = Arc::downgrade(registry);
        }
        then(&state)
    }

    /// Returns the text of a document, building it on a blocking thread if necessary.
    async fn text(&self, registry: &Arc<Registry>, name: &str, document: &CachedDocument) -> Result<Bytes, Status> {
        let _making = document.making.lock().await;
        // Another request may have built it while this one waited for the lock.
        if let Some(text) = document.cached() {
            return Ok(text);
        }
        let (types, name) = (Arc::clone(registry), name.to_owned());
        let made = tokio::task::spawn_blocking(move || make(&types, &name)).await;
        let text = made.map_err(|_| Status::internal("the document cannot be made"))?;
        let mut state = self.0.lock();
        // A change of the registry may have dropped the document while it was built; its text is counted no more then.
        let is_current = state.documents.values().any(|current| std::ptr::eq(&**current, document));
        let has_room = state.cached_bytes + text.len() <= OPENAPI_BYTES_MAX;
        if is_current && has_room {
            state.cached_bytes += text.len();
            document.text.lock().replace(text.clone());
        }
        Ok(text)
    }
}

/// Returns the name of a group version in the index.
fn name(group: &GroupVersion) -> String {
    if group.group.is_empty() {
        format!("api/{}", group.version)
    } else {
        format!("apis/{}/{}", group.group, group.version)
    }
}

fn address(name: &str, hash: &str) -> String {
    format!("/openapi/v3/{name}?hash={hash}")
}

fn index(documents: &HashMap<String, Arc<CachedDocument>>) -> Bytes {
    let paths: BTreeMap<&str, serde_json::Value> = documents
        .iter()
        .map(|(name, document)| (&**name, serde_json::json!({ "serverRelativeURL": address(name, &document.hash) })))
        .collect();
    serde_json::json!({ "paths": paths }).to_string().into()
}

/// Returns the cached documents, which the server keeps beside its types.
fn documents(app: &App) -> Arc<Documents> {
    app.registry.derived.get_or_make(Documents::default)
}

/// Drops the documents that no client requested since the call before.
pub(crate) fn drop_idle(app: &App) {
    documents(app).drop_idle();
}

/// Answers `GET /openapi/v3…` and `GET /openapi/v2`.
///
/// # Errors
/// 500 if the document cannot be built; 503 for one that may lack custom types, while the definitions are not known.
pub(crate) async fn answer(app: &App, head: &RequestHead<'_>, path: &OpenApiPath) -> Result<Response, Status> {
    let registry = app.registry.now();
    let name = match path {
        OpenApiPath::Index => {
            let index = documents(app).of(&registry, |state| state.index.clone());
            let etag = tag(&document::fingerprint(&index));
            let text = if is_known(head.headers, &etag) { None } else { Some(index) };
            return Ok(respond(etag, text));
        }
        OpenApiPath::Document(name) => name,
        OpenApiPath::Whole => match whole_form(&head.accept) {
            Some(_) if !app.definitions.are_known() => return Err(status::definitions_unknown()),
            Some(name) => name,
            None => return Ok(not_acceptable()),
        },
    };
    let is_whole = *path == OpenApiPath::Whole;
    let Some(document) = documents(app).of(&registry, |state| state.documents.get(name).cloned()) else {
        return if app.definitions.are_known() { Ok(page_not_found()) } else { Err(status::definitions_unknown()) };
    };
    if !is_whole && !accepts_json(&head.accept) {
        return Ok(not_acceptable());
    }
    let requested = head.query.get("hash").filter(|hash| !hash.is_empty() && !is_whole);
    if requested.is_some_and(|hash| *hash != *document.hash) {
        let whole = address(name, &document.hash);
        // The path of a fork has lost its prefix here: a query alone keeps it.
        let at = if app.access.is_beside { whole.find('?').unwrap_or_default() } else { 0 };
        return Ok(moved(&whole[at..]));
    }
    let etag = tag(&document.hash);
    let text = match document.cached() {
        _ if is_known(head.headers, &etag) => None,
        Some(text) => Some(text),
        None => Some(documents(app).text(&registry, name, &document).await?),
    };
    let mut response = respond(etag, text);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    if name == WHOLE_PROTOBUF {
        response.headers_mut().insert(header::CONTENT_TYPE, PROTOBUF);
    }
    if requested.is_some() {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Ok(response)
}

fn make(registry: &Registry, requested: &str) -> Bytes {
    match requested {
        WHOLE => return swagger::document(registry).to_string().into(),
        WHOLE_PROTOBUF => return protobuf::document(&swagger::document(registry)),
        _ => {}
    }
    let group = registry.groups().find(|group| name(group) == requested);
    group.map(document::text).unwrap_or_default()
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");

fn not_acceptable() -> Response {
    body::typed(StatusCode::NOT_ACCEPTABLE, JSON, Bytes::new().into())
}

fn tag(hash: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{hash}\"")).expect("a hash is ASCII")
}

/// Answers with a text, or with 304 without one.
fn respond(etag: HeaderValue, text: Option<Bytes>) -> Response {
    let code = if text.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = body::typed(code, JSON, text.unwrap_or_default().into());
    response.headers_mut().insert(header::ETAG, etag);
    response
}

/// Redirects to the document's current URL.
fn moved(address: &str) -> Response {
    let mut response = body::typed(StatusCode::MOVED_PERMANENTLY, JSON, Bytes::new().into());
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    response
}

/// Returns true if any clause accepts JSON, whatever its parameters and quality: there is no other encoding.
fn accepts_json(accept: &str) -> bool {
    accept.trim().is_empty() || accept.split(',').any(|clause| is_json(&media_type(clause)))
}

fn media_type(clause: &str) -> String {
    clause.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(media_type: &str) -> bool {
    matches!(media_type, "application/json" | "application/*" | "*/*")
}

/// Returns the name of the form of the document of version 2 that a client prefers: the first of the highest quality.
fn whole_form(accept: &str) -> Option<&'static str> {
    if accept.trim().is_empty() {
        return Some(WHOLE);
    }
    let form = |clause: &str| match &*media_type(clause) {
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        | "application/com.github.proto-openapi.spec.v2@v1.0+protobuf" => Some(WHOLE_PROTOBUF),
        other => is_json(other).then_some(WHOLE),
    };
    let quality = |clause: &str| {
        let quality = clause.split(';').skip(1).find_map(|parameter| parameter.trim().strip_prefix("q="));
        quality.and_then(|quality| quality.trim().parse::<f32>().ok()).unwrap_or(1.0)
    };
    let forms = accept.split(',').filter_map(|clause| Some((quality(clause), form(clause)?)));
    let best = forms.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_all_there_is() {
        for accept in ["", "application/json", "text/html, */*;q=0.1", "application/json, application/x"] {
            assert!(accepts_json(accept), "{accept}");
        }
        assert!(!accepts_json("application/com.github.proto-openapi.spec.v3.v1.0+protobuf"));
    }

    #[test]
    fn version_2_has_two_forms() {
        const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        for (accept, form) in [
            (String::new(), Some(WHOLE)),
            ("*/*".to_owned(), Some(WHOLE)),
            (PROTOBUF.to_owned(), Some(WHOLE_PROTOBUF)),
            (format!("application/json, {PROTOBUF}"), Some(WHOLE)),
            (format!("application/json;q=0.5, {PROTOBUF}"), Some(WHOLE_PROTOBUF)),
            ("text/html".to_owned(), None),
        ] {
            assert_eq!(whole_form(&accept), form, "{accept}");
        }
    }

    /// Goal: documents stay cached while their types do not change. Method: two registries with equal types.
    #[test]
    fn documents_are_kept_until_their_types_change() {
        let documents = Documents::default();
        let document = |registry: &Arc<Registry>| documents.of(registry, |state| state.documents["api/v1"].clone());
        let first = document(&Arc::new(Registry::builtin()));
        let second = document(&Arc::new(Registry::builtin()));
        assert!(Arc::ptr_eq(&first, &second));
    }

    /// Goal: documents take no memory for long after their last client. Method: both forms of the document of all types, of
    /// which one is requested again.
    #[tokio::test]
    async fn documents_that_no_client_requests_are_dropped() {
        let (documents, registry) = (Documents::default(), Arc::new(Registry::builtin()));
        let document = |name: &str| documents.of(&registry, |state| Arc::clone(&state.documents[name]));
        let forms = [WHOLE, WHOLE_PROTOBUF].map(|name| (name, document(name)));
        for (name, document) in &forms {
            documents.text(&registry, name, document).await.expect("a document");
        }
        documents.drop_idle();
        let [(_, json), (_, protobuf)] = &forms;
        let bytes = || documents.0.lock().cached_bytes;
        let both = bytes();
        let requested = json.cached().expect("was requested since the call before");
        documents.drop_idle();
        assert_eq!((bytes(), both > requested.len()), (requested.len(), true));
        assert!(protobuf.cached().is_none() && json.cached().is_some());
        documents.drop_idle();
        documents.drop_idle();
        assert_eq!((bytes(), json.cached()), (0, None));
    }
}
