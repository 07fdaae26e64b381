//! Body of an accepted response as a sequence of chunks, decompressed where it has to be.

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tower::BoxError;

use crate::connection::ResponseBody;

#[cfg(feature = "gzip")]
use super::gzip::GzipReader;

/// A body of which no chunk is kept.
pub(super) struct DecodedBody {
    received: ResponseBody,
    #[cfg(feature = "gzip")]
    gzip: Option<Box<GzipReader>>,
}

impl DecodedBody {
    /// `headers` are those of the response. They count only if the request accepted gzip.
    #[cfg(feature = "gzip")]
    pub(super) fn new(received: ResponseBody, headers: &HeaderMap, accepts_gzip: bool) -> Self {
        let encoding = headers.get(http::header::CONTENT_ENCODING);
        let is_gzip = accepts_gzip && encoding.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"gzip"));
        Self { received, gzip: is_gzip.then(|| Box::new(GzipReader::new())) }
    }

    #[cfg(not(feature = "gzip"))]
    pub(super) const fn new(received: ResponseBody, _: &HeaderMap, _: bool) -> Self {
        Self { received }
    }

    /// The next chunk; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// The body broke off, or its gzip stream is broken.
    #[cfg(feature = "gzip")]
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, BoxError> {
        let Some(gzip) = &mut self.gzip else { return received_chunk(&mut self.received).await };
        loop {
            // One chunk of input can expand to many, which no socket interrupts.
            tokio::task::consume_budget().await;
            if let Some(chunk) = gzip.next()? {
                return Ok(Some(chunk));
            }
            match received_chunk(&mut self.received).await? {
                Some(chunk) => gzip.push(chunk),
                None => return Ok(gzip.finish().map(|()| None)?),
            }
        }
    }

    #[cfg(not(feature = "gzip"))]
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, BoxError> {
        received_chunk(&mut self.received).await
    }
}

/// The next chunk as it was sent. Cancel safe.
async fn received_chunk(body: &mut ResponseBody) -> Result<Option<Bytes>, BoxError> {
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame?.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
