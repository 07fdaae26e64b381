//! Documents of the API server that carry an ETag: OpenAPI and aggregated discovery, kept so that it need not send them
//! again.
//!
//! INVARIANT: a kept document is sent only after the API server answered 304 to its ETag and to the caller's own
//! credentials, so rights and freshness are the API server's. INVARIANT: a document answers only requests with the path,
//! query, Accept and Accept-Encoding that it was received for: the API server gives its JSON and its protobuf one ETag.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use informer_serving::status::Status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{body::ForwardedBody, headers, unavailable};
use crate::limits::{
    MIRROR_BYTES_MAX, MIRROR_DOCUMENT_BYTES_MAX, MIRROR_DOCUMENTS_MAX, MIRROR_FILLS_MAX, MIRROR_KEY_BYTES_MAX,
};

/// Headers with which a request asks for something else than the whole document.
const PARTIAL: [HeaderName; 5] =
    [header::RANGE, header::IF_RANGE, header::IF_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

/// Headers of a document that stay what they were when it was received.
const OF_CONTENT: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LENGTH];

/// The kept documents.
pub(super) struct Mirror {
    kept: Mutex<KeptDocuments>,
    /// Permits for documents that are being received.
    fills: Semaphore,
}

#[derive(Default)]
struct KeptDocuments {
    /// The most recently used ones last.
    documents: Vec<Arc<MirroredDocument>>,
    /// Bytes of their bodies.
    bytes: usize,
}

/// Everything in a request that chooses a document and its form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DocumentKey {
    path_and_query: String,
    accept: Vec<u8>,
    encoding: Vec<u8>,
}

/// A document as the API server sent it.
struct MirroredDocument {
    key: DocumentKey,
    etag: HeaderValue,
    headers: HeaderMap,
    body: Bytes,
}

/// One request for a document.
pub(super) struct DocumentRequest {
    key: DocumentKey,
    /// The caller's own If-None-Match.
    known: Vec<HeaderValue>,
    /// The document whose ETag the API server is asked about.
    kept: Option<Arc<MirroredDocument>>,
}

impl Mirror {
    pub(super) fn new() -> Self {
        Self { kept: Mutex::default(), fills: Semaphore::new(MIRROR_FILLS_MAX) }
    }

    /// Returns the request for a document, and makes it conditional in `headers` if the document is kept; `None` for
    /// other requests.
    pub(super) fn request(&self, parts: &Parts, headers: &mut HeaderMap) -> Option<DocumentRequest> {
        let key = DocumentKey::of(parts)?;
        let known = headers.get_all(header::IF_NONE_MATCH).iter().cloned().collect();
        let kept = self.kept.lock().find(&key);
        if let Some(document) = &kept {
            // Alone: the API server compares the whole value where it serves discovery.
            headers.insert(header::IF_NONE_MATCH, document.etag.clone());
        }
        Some(DocumentRequest { key, known, kept })
    }

    /// Turns the API server's answer to `request` into the caller's.
    ///
    /// # Errors
    /// 503 if the API server broke off a document.
    pub(super) async fn answer(
        &self,
        request: DocumentRequest,
        response: Response<Incoming>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<ForwardedBody>, Status> {
        let mut headers = headers::of_response(response.headers());
        let document = match (response.status(), &request.kept) {
            (StatusCode::NOT_MODIFIED, Some(document)) => Arc::clone(document),
            (StatusCode::OK, _) => match self.receive(&request.key, &headers, response.into_body()).await? {
                ReceivedDocument::Whole(document) => document,
                ReceivedDocument::Part(begun, rest) => {
                    return Ok(with_head(StatusCode::OK, headers, ForwardedBody::continued(begun, rest, permit)));
                }
            },
            (status, _) => return Ok(with_head(status, headers, ForwardedBody::stream(response.into_body(), permit))),
        };
        for name in OF_CONTENT {
            headers.remove(name);
        }
        if request.knows(&document.etag) {
            return Ok(with_head(StatusCode::NOT_MODIFIED, headers, ForwardedBody::whole(Bytes::new(), permit)));
        }
        let mut merged = document.headers.clone();
        merged.extend(headers);
        merged.insert(header::CONTENT_LENGTH, document.body.len().into());
        Ok(with_head(StatusCode::OK, merged, ForwardedBody::whole(document.body.clone(), permit)))
    }

    /// Receives a document that may be kept, and keeps it. Returns other ones as they come.
    async fn receive(
        &self,
        key: &DocumentKey,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<ReceivedDocument, Status> {
        let length = http_body::Body::size_hint(&body).lower();
        let length = usize::try_from(length).ok().filter(|&length| length <= MIRROR_DOCUMENT_BYTES_MAX);
        let (Some(etag), Some(length), Ok(_fill)) = (kept_etag(headers), length, self.fills.try_acquire()) else {
            return Ok(ReceivedDocument::Part(Bytes::new(), body));
        };
        let mut received = Vec::with_capacity(length);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| unavailable("the upstream API server broke off a document"))?;
            received.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if MIRROR_DOCUMENT_BYTES_MAX < received.len() {
                return Ok(ReceivedDocument::Part(received.into(), body));
            }
        }
        let document = MirroredDocument {
            key: key.clone(),
            etag: etag.clone(),
            headers: headers.clone(),
            // Without the room that the growing buffer had left.
            body: received.into_boxed_slice().into(),
        };
        Ok(ReceivedDocument::Whole(self.kept.lock().insert(document, MIRROR_BYTES_MAX)))
    }
}

/// The API server's answer with a document.
enum ReceivedDocument {
    Whole(Arc<MirroredDocument>),
    /// It is not kept: its beginning, and the rest that was not read.
    Part(Bytes, Incoming),
}

impl DocumentKey {
    /// Returns the key of a request for a whole document; `None` for other requests.
    fn of(parts: &Parts) -> Option<Self> {
        let path = parts.uri.path();
        let has_etag = matches!(path, "/api" | "/apis") || path.starts_with("/openapi/");
        if !has_etag || parts.method != Method::GET || PARTIAL.iter().any(|name| parts.headers.contains_key(name)) {
            return None;
        }
        let joined = |name| {
            let values: Vec<_> = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            values.join(&b", "[..])
        };
        let path_and_query = parts.uri.path_and_query()?.as_str().to_owned();
        let key = Self { path_and_query, accept: joined(header::ACCEPT), encoding: joined(header::ACCEPT_ENCODING) };
        (key.len() <= MIRROR_KEY_BYTES_MAX).then_some(key)
    }

    const fn len(&self) -> usize {
        self.path_and_query.len() + self.accept.len() + self.encoding.len()
    }
}

impl DocumentRequest {
    /// True if the caller has the document with this ETag.
    fn knows(&self, etag: &HeaderValue) -> bool {
        let mut known = self.known.iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        known.any(|known| known.trim_ascii() == b"*" || opaque(known) == opaque(etag.as_bytes()))
    }
}

impl KeptDocuments {
    /// Returns the document that a request asks for, and notes its use. Cost: a comparison with each.
    fn find(&mut self, key: &DocumentKey) -> Option<Arc<MirroredDocument>> {
        let at = self.documents.iter().position(|document| document.key == *key)?;
        let document = self.documents.remove(at);
        self.documents.push(Arc::clone(&document));
        Some(document)
    }

    /// Adds a document in place of the one before, and drops the longest unused ones beyond `bytes_max`.
    fn insert(&mut self, document: MirroredDocument, bytes_max: usize) -> Arc<MirroredDocument> {
        let document = Arc::new(document);
        self.documents.retain(|kept| kept.key != document.key);
        self.documents.push(Arc::clone(&document));
        self.bytes = self.documents.iter().map(|document| document.body.len()).sum();
        while bytes_max < self.bytes || MIRROR_DOCUMENTS_MAX < self.documents.len() {
            self.bytes -= self.documents.remove(0).body.len();
        }
        document
    }
}

/// Returns an ETag without its mark of weakness.
fn opaque(etag: &[u8]) -> &[u8] {
    let etag = etag.trim_ascii();
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

/// Returns the ETag of a document that may be kept: one that depends on nothing but its key.
fn kept_etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    let varies = headers.get_all(header::VARY).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let is_of_key = |name: &[u8]| {
        let name = name.trim_ascii();
        name.eq_ignore_ascii_case(b"accept") || name.eq_ignore_ascii_case(b"accept-encoding")
    };
    headers.get(header::ETAG).filter(|_| varies.into_iter().all(is_of_key))
}

fn with_head(status: StatusCode, headers: HeaderMap, body: ForwardedBody) -> Response<ForwardedBody> {
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

#[cfg(test)]
mod tests;
