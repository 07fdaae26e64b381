//! OpenAPI documents at `/openapi/v3` and `/openapi/v2`, for clients that validate, apply and explain.
//!
//! The index lists a document for each group version, with a hash in its URL: a client may cache a document with a hash
//! forever. A document is built on its first request, on a blocking thread, and cached until its types change. `api/v1`
//! has 580 KiB, `apps/v1` 350 KiB, the others 40 to 270 KiB, and the 18 of built-in types together 2.5 MiB. In a debug
//! build the first takes 0.1 s and all of them 0.5 s.
//!
//! INVARIANT: documents are computed from the registry, so they announce exactly the types that are served.
//!
//! `/openapi/v2` is a single document of all types, in JSON and in protobuf. A change of any type changes it.
//!
//! Not implemented, on purpose: the protobuf form of documents of version 3.
//!
//! Source: kube-openapi `pkg/handler3`, apiserver `endpoints/installer.go`.

mod document;
mod operations;
mod protobuf;
mod schemas;
mod swagger;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock, Weak},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use informer_serving::status::{Status, StatusExt as _};
use parking_lot::Mutex;

use crate::{
    app::App,
    limits::OPENAPI_BYTES_MAX,
    read::body::{self, Response, page_not_found},
    registry::{GroupVersion, Registry},
    request::RequestHead,
    route::OpenApiPath,
    status,
};

/// Cache of documents. Memory: requested documents until their types change, up to [`OPENAPI_BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<OpenApiCache>);

#[derive(Debug, Default)]
struct OpenApiCache {
    /// Registry that the other fields were computed from.
    registry: Weak<Registry>,
    /// Bytes of all cached texts.
    cached_bytes: usize,
    index: Bytes,
    /// By name: those of the index, [`WHOLE`] and [`WHOLE_PROTOBUF`].
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
    text: OnceLock<Bytes>,
    /// Serialises building, so that concurrent requests build it once.
    making: tokio::sync::Mutex<()>,
}

impl Documents {
    /// Runs `then` on the index and the documents of `registry`, after updating them if the registry changed.
    fn of<T>(&self, registry: &Arc<Registry>, then: impl FnOnce(&OpenApiCache) -> T) -> T {
        let mut state = self.0.lock();
        if !Weak::ptr_eq(&state.registry, &Arc::downgrade(registry)) {
            let mut known = std::mem::take(&mut state.documents);
            // Documents with an unchanged hash keep their text.
            let mut keep = |name: &str, hash: String| match known.remove(name).filter(|document| document.hash == hash)
            {
                Some(document) => document,
                None => Arc::new(CachedDocument { hash, text: OnceLock::new(), making: tokio::sync::Mutex::default() }),
            };
            for group in registry.groups() {
                let name = name(group);
                let document = keep(&name, document::hash(group));
                state.documents.insert(name, document);
            }
            state.index = index(&state.documents);
            let hash = document::fingerprint(&state.index);
            for name in [WHOLE, WHOLE_PROTOBUF] {
                state.documents.insert(name.to_owned(), keep(name, hash.clone()));
            }
            state.cached_bytes =
                state.documents.values().filter_map(|document| document.text.get()).map(Bytes::len).sum();
            state.registry = Arc::downgrade(registry);
        }
        then(&state)
    }

    /// Returns the text of a document, building it on a blocking thread if necessary.
    async fn text(&self, registry: &Arc<Registry>, name: &str, document: &CachedDocument) -> Result<Bytes, Status> {
        let _making = document.making.lock().await;
        // Another request may have built it while this one waited for the lock.
        if let Some(text) = document.text.get() {
            return Ok(text.clone());
        }
        let (types, name) = (Arc::clone(registry), name.to_owned());
        let made = tokio::task::spawn_blocking(move || make(&types, &name)).await;
        let text = made.map_err(|_| Status::internal("the document cannot be made"))?;
        let mut state = self.0.lock();
        // A change of the registry may have dropped the document while it was built; its text is counted no more then.
        let is_current = state.documents.values().any(|current| std::ptr::eq(&**current, document));
        let has_room = state.cached_bytes + text.len() <= OPENAPI_BYTES_MAX;
        if is_current && has_room && document.text.set(text.clone()).is_ok() {
            state.cached_bytes += text.len();
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

/// Answers `GET /openapi/v3…` and `GET /openapi/v2`.
///
/// # Errors
/// 500 if the document cannot be built.
pub(crate) async fn answer(app: &App, head: &RequestHead<'_>, path: &OpenApiPath) -> Result<Response, Status> {
    let registry = app.registry.now();
    let name = match path {
        OpenApiPath::Index => {
            let index = documents(app).of(&registry, |state| state.index.clone());
            let etag = document::fingerprint(&index);
            return Ok(unless_known(head.headers, &etag, index));
        }
        OpenApiPath::Document(name) => name,
        OpenApiPath::Whole => match whole_form(&head.accept) {
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
    let text = match document.text.get() {
        Some(text) => text.clone(),
        None => documents(app).text(&registry, name, &document).await?,
    };
    let mut response = unless_known(head.headers, &document.hash, text);
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

/// Answers with the text, or with 304 if the client has it.
fn unless_known(headers: &HeaderMap, hash: &str, text: Bytes) -> Response {
    let etag = HeaderValue::from_str(&format!("\"{hash}\"")).expect("a hash is ASCII");
    let (code, text) = body::unless_known(headers, &etag, text);
    let mut response = body::typed(code, JSON, text.into());
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
}
