//! Encodes lists and documents: indented JSON, YAML, gzip and protobuf.
//!
//! INVARIANT: a list is encoded item by item, so that it costs the memory of one item, whatever its length. INVARIANT:
//! decompressing a list, or parsing its YAML, gives the list as stored.

mod gzip;
mod indented;
mod yaml;

use api_rules::object::protobuf;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use informer_serving::{
    protobuf::{MEDIA_TYPE, STREAM_MEDIA_TYPE, event},
    status::{Status, StatusExt as _},
    watch_event,
};
use watch_cache::{Budget, Page, Slices};

pub(super) use self::gzip::{Gzip, GzipStream};
use self::{indented::IndentedList, yaml::Yaml};
use super::{
    body::{self, Response},
    negotiate::{AnswerEncoding, AnswerFormat},
    pretty,
};
use crate::status::bounded;

/// Encoding of a list, and its state.
#[derive(Debug)]
pub(super) enum Encoder {
    /// The stored bytes: shared slices.
    Plain,
    /// Protobuf messages: shared slices too.
    Protobuf,
    /// Indented JSON.
    Indented(IndentedList),
    /// YAML, for people.
    Yaml(Box<Yaml>),
    /// Gzip of JSON or protobuf.
    Gzip(Box<Gzip>),
}

/// Encoding that a client requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestedEncoding {
    /// Compact JSON.
    #[default]
    Json,
    /// Indented JSON.
    Indented,
    /// YAML.
    Yaml,
    /// Protobuf. Documents without a message are compact JSON.
    Protobuf,
}

impl RequestedEncoding {
    /// Returns the encoding for an answer format.
    pub(crate) const fn of(answer: &AnswerFormat) -> Self {
        match (answer.encoding, answer.indent) {
            (AnswerEncoding::Yaml, _) => Self::Yaml,
            (AnswerEncoding::Protobuf, _) => Self::Protobuf,
            (AnswerEncoding::Json, true) => Self::Indented,
            (AnswerEncoding::Json, false) => Self::Json,
        }
    }

    /// True if a batch takes milliseconds to encode.
    pub(super) const fn is_slow(self) -> bool {
        matches!(self, Self::Indented | Self::Yaml)
    }

    pub(super) const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Yaml => "application/yaml",
            Self::Protobuf => MEDIA_TYPE,
            Self::Json | Self::Indented => "application/json",
        })
    }

    /// Content-Type of the events of a watch.
    pub(super) const fn stream_type(self) -> HeaderValue {
        HeaderValue::from_static(if matches!(self, Self::Protobuf) { STREAM_MEDIA_TYPE } else { "application/json" })
    }
}

/// Builds the response for one short document; `json` is compact and ends with a newline.
pub(crate) fn whole(code: StatusCode, json: Bytes, encoding: RequestedEncoding) -> Response {
    let text = match encoding {
        RequestedEncoding::Json => json,
        RequestedEncoding::Indented => pretty::indent(&json).into(),
        RequestedEncoding::Yaml => match yaml::document(&json) {
            Some(text) => text.into(),
            None => return body::json(code, json.into()),
        },
        RequestedEncoding::Protobuf => match protobuf::document(&json) {
            Some(message) => message.into(),
            None => return body::json(code, json.into()),
        },
    };
    body::typed(code, encoding.content_type(), text.into())
}

/// Builds the response for an error: code, body, and `Retry-After` if the status has a delay.
pub(crate) fn error(status: &Status, encoding: RequestedEncoding) -> Response {
    let code = StatusCode::from_u16(status.http_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = bounded(status).map_or_else(|| status.to_json(), |short| short.to_json());
    let mut response = whole(code, json.into(), encoding);
    if let Some(wait) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
    }
    response
}

/// Returns the ERROR event of a watch. The stream ends after it.
pub(super) fn error_event(status: &Status, is_protobuf: bool) -> Bytes {
    let object = if is_protobuf { protobuf::document(status.to_json().as_ref()) } else { None };
    object.map_or_else(|| watch_event::error(status), |object| event("ERROR", &object)).into()
}

impl Encoder {
    /// Creates an encoder for a list whose compact JSON is `head`, items, `tail`; `head` ends with the opening bracket
    /// of the items. A list that may be compressed starts plain, because its length is not known yet.
    pub(super) fn new(encoding: RequestedEncoding, head: &[u8], tail: &[u8]) -> Self {
        match encoding {
            RequestedEncoding::Json => Self::Plain,
            RequestedEncoding::Protobuf => Self::Protobuf,
            RequestedEncoding::Indented => Self::Indented(IndentedList::default()),
            RequestedEncoding::Yaml => Yaml::new(head, tail).map_or(Self::Plain, |yaml| Self::Yaml(Box::new(yaml))),
        }
    }

    /// True if the next batch takes milliseconds to encode.
    pub(super) const fn is_slow(&self) -> bool {
        match self {
            Self::Plain | Self::Protobuf => false,
            Self::Indented(_) | Self::Yaml(_) => true,
            Self::Gzip(gzip) => gzip.is_slow(),
        }
    }

    /// True if the last batch took about half a millisecond to encode.
    pub(super) const fn has_compressed(&self) -> bool {
        matches!(self, Self::Gzip(gzip) if gzip.has_compressed())
    }

    /// Writes the part of the list before its items.
    pub(super) fn head(&mut self, head: Bytes, out: &mut Slices) {
        match self {
            Self::Plain | Self::Protobuf => out.push(head),
            Self::Indented(_) => out.push(IndentedList::head(&head).into()),
            Self::Yaml(yaml) => out.push(yaml.head().to_owned().into()),
            Self::Gzip(gzip) => gzip.head(head, out),
        }
    }

    /// Writes the next items of `page`, within `budget`; like [`Page::step`].
    pub(super) fn step(&mut self, page: &mut Page, budget: Budget, out: &mut Slices) -> bool {
        match self {
            Self::Plain | Self::Protobuf => page.step(budget, out),
            Self::Gzip(gzip) => gzip.step(page, out),
            Self::Indented(_) | Self::Yaml(_) => {
                let (mut item, mut text) = (Vec::new(), Vec::new());
                let more = page.visit_texts(|_, slices| {
                    item.clear();
                    slices.iter().for_each(|slice| item.extend_from_slice(slice));
                    match self {
                        Self::Indented(indented) => indented.item(&item, &mut text),
                        Self::Yaml(yaml) => yaml.item(&item, &mut text),
                        Self::Plain | Self::Protobuf | Self::Gzip(_) => {}
                    }
                    text.len() < budget.bytes
                });
                out.push(text.into());
                more
            }
        }
    }

    /// Writes the part of the list behind its items.
    pub(super) fn tail(&mut self, tail: Bytes, out: &mut Slices) {
        let mut text = Vec::new();
        match self {
            Self::Plain | Self::Protobuf => return out.push(tail),
            Self::Indented(indented) => indented.tail(&tail, &mut text),
            Self::Yaml(yaml) => yaml.tail(&mut text),
            Self::Gzip(gzip) => return gzip.tail(tail, out),
        }
        out.push(text.into());
    }

    /// Encodes a list without items, given as compact JSON.
    pub(super) fn empty(&self, empty: Bytes) -> Bytes {
        match self {
            Self::Plain | Self::Protobuf | Self::Gzip(_) => empty,
            Self::Indented(_) => pretty::indent(&empty).into(),
            Self::Yaml(_) => yaml::document(&empty).map_or(empty, Bytes::from),
        }
    }

    /// Content-Type of the whole answer.
    pub(super) fn content_type(&self) -> HeaderValue {
        match self {
            Self::Yaml(_) => RequestedEncoding::Yaml.content_type(),
            Self::Gzip(gzip) if gzip.is_protobuf() => RequestedEncoding::Protobuf.content_type(),
            Self::Protobuf => RequestedEncoding::Protobuf.content_type(),
            Self::Plain | Self::Indented(_) | Self::Gzip(_) => RequestedEncoding::Json.content_type(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_asks_to_wait_has_the_header() {
        let response = error(&Status::too_large_resource_version(9, 7), RequestedEncoding::Json);
        assert_eq!(response.status(), 504);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let response = error(&Status::expired_list(), RequestedEncoding::Json);
        assert_eq!(response.status(), 410);
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }
}
