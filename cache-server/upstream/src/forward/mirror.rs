//! Documents of the API server that carry an ETag: OpenAPI and aggregated discovery, kept so that it need not send them
//! again.
//!
//! INVARIANT: a kept document is sent only after the API server answered 304 to its ETag and to the caller's own
//! credentials, so rights and freshness are the API server's. INVARIANT: a document answers only requests with the path,
//! query, Accept and Accept-Encoding that it was received for: the API server gives its JSON and its protobuf one ETag.
//! INVARIANT: no header that one caller got, such as a cookie or a warning, is sent to another one.
//! INVARIANT: every byte of a document counts until the last caller that it is sent to has dropped it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use informer_serving::status::Status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{body::ForwardedBody, headers, unavailable};
use crate::limits::{
    MIRROR_BYTES_MAX, MIRROR_DOCUMENT_BYTES_MAX, MIRROR_DOCUMENTS_MAX, MIRROR_FILLS_MAX, MIRROR_KEY_BYTES_MAX,
};

/// Headers with which a request is for something else than the whole document.
const PARTIAL: [HeaderName; 5] =
    [header::RANGE, header::IF_RANGE, header::IF_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

/// Headers of a document that stay what they were when it was received.
const OF_CONTENT: [HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LENGTH];

/// Headers that are kept with a document. All others come with each 304.
const KEPT: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::VARY, header::CACHE_CONTROL, header::LAST_MODIFIED];

/// The kept documents.
pub(super) struct Mirror {
    retained: Mutex<RetainedDocuments>,
    /// Permits for documents that are being received.
    fills: Semaphore,
    /// A permit for each byte of a document that is kept, received, or sent to a caller.
    room: Arc<Semaphore>,
}

/// The kept documents, the most recently used ones last.
#[derive(Default)]
struct RetainedDocuments(Vec<Arc<MirroredDocument>>);

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
    /// The document whose ETag the request carries.
    retained: Option<Arc<MirroredDocument>>,
}

impl Mirror {
    pub(super) fn new() -> Self {
        let (fills, room) = (Semaphore::new(MIRROR_FILLS_MAX), Arc::new(Semaphore::new(MIRROR_BYTES_MAX)));
        Self { retained: Mutex::default(), fills, room }
    }

    /// Returns the request for a document, and makes it conditional in `headers` if the document is kept; `None` for
    /// other requests.
    pub(super) fn request(&self, parts: &Parts, headers: &mut HeaderMap) -> Option<DocumentRequest> {
        let key = DocumentKey::of(parts)?;
        let known = headers.get_all(header::IF_NONE_MATCH).iter().cloned().collect();
        let retained = self.retained.lock().find(&key);
        if let Some(document) = &retained {
            // Alone: the API server compares the whole value where it serves discovery.
            headers.insert(header::IF_NONE_MATCH, document.etag.clone());
        }
        Some(DocumentRequest { key, known, retained })
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
        let document = match (response.status(), &request.retained) {
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
        headers.insert(header::ETAG, document.etag.clone());
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
        let announced =
            http_body::Body::size_hint(&body).exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let reserved = announced.unwrap_or(MIRROR_DOCUMENT_BYTES_MAX);
        let Some(DocumentFill { etag, mut room, _turn }) = self.begin(headers, reserved) else {
            return Ok(ReceivedDocument::Part(Bytes::new(), body));
        };
        let mut received = Vec::with_capacity(announced.unwrap_or_default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| unavailable("the upstream API server broke off a document"))?;
            received.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if reserved < received.len() {
                return Ok(ReceivedDocument::Part(DocumentBytes::counted(received, room), body));
            }
        }
        drop(room.split(reserved - received.len()));
        let document = MirroredDocument {
            key: key.clone(),
            etag,
            headers: retained_headers(headers),
            body: DocumentBytes::counted(received, room),
        };
        Ok(ReceivedDocument::Whole(self.retained.lock().insert(document)))
    }

    /// Reserves a turn and room to keep a document of at most `length` bytes. `None` if the document must not be kept, or if
    /// there is no room.
    fn begin(&self, headers: &HeaderMap, length: usize) -> Option<DocumentFill<'_>> {
        let etag = retained_etag(headers).filter(|_| length <= MIRROR_DOCUMENT_BYTES_MAX)?.clone();
        let turn = self.fills.try_acquire().ok()?;
        Some(DocumentFill { etag, room: self.reserve(length)?, _turn: turn })
    }

    /// Reserves room for `bytes`, and drops the longest unused documents for it. `None` if callers that read slowly hold
    /// too much.
    fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(bytes).ok()?;
        loop {
            if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) {
                return Some(room);
            }
            self.retained.lock().drop_oldest()?;
        }
    }
}

/// A document that is being received.
struct DocumentFill<'a> {
    etag: HeaderValue,
    /// Room for its bytes.
    room: OwnedSemaphorePermit,
    /// Held while it is received.
    _turn: SemaphorePermit<'a>,
}

/// Bytes of a document, which occupy their room until the last reference to them is dropped.
struct DocumentBytes {
    bytes: Box<[u8]>,
    _room: OwnedSemaphorePermit,
}

impl DocumentBytes {
    fn counted(bytes: Vec<u8>, room: OwnedSemaphorePermit) -> Bytes {
        // A boxed slice is without the room that the growing buffer had left.
        Bytes::from_owner(Self { bytes: bytes.into_boxed_slice(), _room: room })
    }
}

impl AsRef<[u8]> for DocumentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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

impl RetainedDocuments {
    /// Returns the document of a request, and notes its use. Cost: a comparison with each.
    fn find(&mut self, key: &DocumentKey) -> Option<Arc<MirroredDocument>> {
        let at = self.0.iter().position(|document| document.key == *key)?;
        let document = self.0.remove(at);
        self.0.push(Arc::clone(&document));
        Some(document)
    }

    /// Adds a document in place of the one before, and drops the longest unused one beyond [`MIRROR_DOCUMENTS_MAX`].
    fn insert(&mut self, document: MirroredDocument) -> Arc<MirroredDocument> {
        let document = Arc::new(document);
        self.0.retain(|retained| retained.key != document.key);
        self.0.push(Arc::clone(&document));
        if MIRROR_DOCUMENTS_MAX < self.0.len() {
            self.drop_oldest();
        }
        document
    }

    /// Drops the longest unused document; `None` if there is no document.
    fn drop_oldest(&mut self) -> Option<()> {
        (!self.0.is_empty()).then(|| drop(self.0.remove(0)))
    }
}

/// Returns an ETag without its mark of weakness.
fn opaque(etag: &[u8]) -> &[u8] {
    let etag = etag.trim_ascii();
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

/// Returns the ETag of a document that may be kept: one that depends on nothing but its key.
fn retained_etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    let is_of_key = |name: &[u8]| [&b"accept"[..], b"accept-encoding"].iter().any(|key| name.eq_ignore_ascii_case(key));
    let is_forbidden = elements(headers, &header::CACHE_CONTROL).any(|it| it.eq_ignore_ascii_case(b"no-store"));
    let is_shared = !is_forbidden && elements(headers, &header::VARY).all(is_of_key);
    headers.get(header::ETAG).filter(|_| is_shared)
}

/// Returns the elements of a header that is a list.
fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

/// Returns the headers to keep with a document.
fn retained_headers(headers: &HeaderMap) -> HeaderMap {
    let mut retained = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| KEPT.contains(name)) {
        retained.append(name, value.clone());
    }
    retained
}

fn with_head(status: StatusCode, headers: HeaderMap, body: ForwardedBody) -> Response<ForwardedBody> {
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

#[cfg(test)]
mod tests;
