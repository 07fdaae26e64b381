//! Sends requests through the cluster's connections and returns responses as bytes.
//! INVARIANT: one `send` is one request; the layers below do not retry. No body is buffered whole.

mod body;
#[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
pub(crate) mod connections;
#[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
pub(crate) mod connector;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(all(test, feature = "kube-5"))]
mod pipe;
#[cfg(all(test, feature = "kube-5", feature = "testing"))]
mod piped;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::BodyExt as _;
use informer_core::{
    Request, limits,
    wire::{
        marks::{self, MarksReply},
        status::Status,
    },
};

use self::body::DecodedBody;
#[cfg(feature = "gzip")]
pub use self::gzip::GzipError;
#[cfg(all(test, feature = "kube-5", feature = "testing"))]
pub(crate) use self::piped::piped_connection;
use crate::{
    connection::{ResponseBody, ServerConnection},
    error::{Error, Kind},
};

/// Connection to one endpoint. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Transport {
    connection: ServerConnection,
    headers_timeout: Duration,
    requested: RequestedParts,
}

/// Parts of the objects requested from the server. A server that does not support this sends whole objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedParts {
    /// Only the metadata.
    pub(crate) metadata_only: bool,
    /// Not `metadata.managedFields`, almost half of a generated pod. They are cut here in any case.
    pub(crate) without_managed_fields: bool,
    /// True if lists may be compressed.
    pub(crate) gzip: bool,
}

/// Form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    /// An endless sequence of events.
    Watch,
    /// A LIST body.
    List,
    /// One object.
    Object,
}

/// An accepted response, read chunk by chunk.
pub(crate) struct Answer {
    request: Request,
    form: ResponseForm,
    marks: Option<MarksReply>,
    body: DecodedBody,
}

impl Transport {
    pub(crate) const fn new(
        connection: ServerConnection,
        headers_timeout: Duration,
        requested: RequestedParts,
    ) -> Self {
        Self { connection, headers_timeout, requested }
    }

    /// Sends one GET and waits for its headers. Dropping the future cancels the request.
    ///
    /// # Errors
    /// No connection, no headers in time, or a status other than 200, with the Status from its body.
    pub(crate) async fn send(&self, request: Request, form: ResponseForm) -> Result<Answer, Error> {
        tracing::debug!(%request, "request started");
        match tokio::time::timeout(self.headers_timeout, self.exchange(&request, form)).await {
            Ok(Ok((body, marks))) => Ok(Answer { request, form, marks, body }),
            Ok(Err(kind)) => Err(Error::new(kind, Some(&request))),
            Err(_) => Err(Error::new(Kind::NoHeaders(self.headers_timeout), Some(&request))),
        }
    }

    async fn exchange(&self, request: &Request, form: ResponseForm) -> Result<(DecodedBody, Option<MarksReply>), Kind> {
        let accepts_gzip = self.accepts_gzip(form);
        let mut sent = http::Request::get(request.uri())
            .header(header::ACCEPT, self.accept(form))
            // Explicit, because a client built with gzip would otherwise request it, hold a 32 KiB window for
            // every watch, and see events only when the server's compressor flushes.
            .header(header::ACCEPT_ENCODING, if accepts_gzip { "gzip" } else { "identity" })
            .body(())
            .map_err(|error| Kind::Connect(error.into()))?;
        if let Some(marks) = request.marks().and_then(|marks| HeaderValue::from_str(marks).ok()) {
            sent.headers_mut().insert(MARKS, marks);
        }
        let (parts, body) = self.connection.send(sent).await.map_err(Kind::connect)?.into_parts();
        if parts.status == http::StatusCode::OK {
            let marks = parts.headers.get(MARKS).and_then(|value| MarksReply::parse(value.as_bytes()));
            return Ok((DecodedBody::new(body, &parts.headers, accepts_gzip), marks));
        }
        // Do not lose the status code because the error body is slow.
        let body = tokio::time::timeout(ERROR_BODY_TIME_MAX, read_at_most(body, limits::ERROR_BODY_BYTES_MAX)).await;
        let status = body.ok().and_then(|body| Status::read(&body));
        Err(Kind::Refused {
            code: parts.status.as_u16(),
            status: status.map(Box::new),
            retry_after: retry_after(&parts.headers),
        })
    }

    /// Returns true if the response may be compressed.
    const fn accepts_gzip(&self, form: ResponseForm) -> bool {
        self.requested.gzip && matches!(form, ResponseForm::List)
    }

    /// The `Accept` header. Metadata-only lists and single objects have different names, and each name is a 406 for the
    /// other form. Plain JSON follows for servers that know neither. kube-apiserver ignores parameters it does not know
    /// (apiserver `endpoints/handlers/negotiation`, `acceptMediaTypeOptions`); for servers that refuse them, the type
    /// is repeated without parameters.
    const fn accept(&self, form: ResponseForm) -> &'static str {
        let RequestedParts { metadata_only, without_managed_fields, gzip: _ } = self.requested;
        // cache-server compresses whole objects only.
        let without_managed_fields = without_managed_fields && !self.accepts_gzip(form);
        match (metadata_only, without_managed_fields, form) {
            (false, false, ResponseForm::Watch | ResponseForm::List | ResponseForm::Object) => "application/json",
            (false, true, ResponseForm::Watch | ResponseForm::List | ResponseForm::Object) => {
                "application/json;drop=metadata.managedFields,application/json"
            }
            (true, false, ResponseForm::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
            }
            (true, false, ResponseForm::Watch | ResponseForm::Object) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
            }
            (true, true, ResponseForm::List) => concat!(
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields,",
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            ),
            (true, true, ResponseForm::Watch | ResponseForm::Object) => concat!(
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;drop=metadata.managedFields,",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            ),
        }
    }
}

impl Answer {
    /// The next bytes; `None` once the response has ended. Cancel safe.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.body.chunk().await.map_err(|error| Error::new(Kind::Body(error), Some(&self.request)))
    }

    /// Reads the last bytes after a list's end, so that its connection can be reused. Gives up after `DRAIN_TIME_MAX`:
    /// a new connection costs less than a long wait.
    pub(crate) async fn drain(mut self) {
        let to_the_end = async {
            for _ in 0..DRAIN_CHUNKS_MAX {
                if !matches!(self.chunk().await, Ok(Some(_))) {
                    return;
                }
            }
        };
        // On a timeout the response is dropped as well; its connection is then closed.
        let _ = tokio::time::timeout(DRAIN_TIME_MAX, to_the_end).await;
    }

    pub(crate) const fn form(&self) -> ResponseForm {
        self.form
    }

    /// The response's answer to the request for marks in its initial state.
    pub(crate) const fn marks(&self) -> Option<MarksReply> {
        self.marks
    }

    pub(crate) const fn request(&self) -> &Request {
        &self.request
    }
}

/// Header that requests marks in an initial state, and that carries the server's answer.
const MARKS: HeaderName = HeaderName::from_static(marks::HEADER);

/// Most chunks read after a list's end: a newline, and the end of the body.
const DRAIN_CHUNKS_MAX: usize = 4;

/// Longest wait for those chunks.
const DRAIN_TIME_MAX: Duration = Duration::from_millis(100);

/// Longest wait for an error's body.
const ERROR_BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Reads the first `limit` bytes of an error's body. Returns what arrived if the body breaks off.
async fn read_at_most(mut body: ResponseBody, limit: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.into_data().unwrap_or_default();
        let room = limit - read.len();
        read.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if read.len() == limit {
            break;
        }
    }
    read
}

/// Parses `Retry-After`, in seconds as Kubernetes sends it, or as a date, as proxies and CDNs do. A past date means no
/// wait.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    // By the server's clock if it sends one: the two machines' clocks may differ.
    let now = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(until.duration_since(now.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let headers = |all: &[(HeaderName, &str)]| -> HeaderMap {
            all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
        };
        let delay = |text: &str, date: Option<&str>| {
            let date = date.map(|date| (header::DATE, date));
            retry_after(&headers(&[Some((header::RETRY_AFTER, text)), date].into_iter().flatten().collect::<Vec<_>>()))
        };
        let date = Some("Wed, 21 Oct 2015 07:28:00 GMT");
        for (text, date, seconds) in [
            ("7", None, Some(7)),
            (" 7 ", date, Some(7)),
            ("Wed, 21 Oct 2015 07:30:00 GMT", date, Some(120)),
            ("Wednesday, 21-Oct-15 07:30:00 GMT", date, Some(120)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", date, Some(0)),
            ("Wed, 21 Oct 2015 07:30:00 GMT", None, Some(0)),
            ("-1", None, None),
            ("soon", None, None),
        ] {
            assert_eq!(delay(text, date), seconds.map(Duration::from_secs), "{text}");
        }
        let in_an_hour = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3_600));
        let wait = delay(&in_an_hour, None).unwrap();
        assert!((3_590..=3_600).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
