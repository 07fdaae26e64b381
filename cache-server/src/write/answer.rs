//! The answer to a write, and its response.

use std::sync::Arc;

use api_rules::{
    object::{Object, WriteRequest, draft::ordered, metadata::metadata_mut, validation},
    registry::ResourceType,
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use informer_serving::status::Status;
use watch_cache::{Content, Draft, Entry};

use super::SCALE;
use crate::{
    clock,
    read::{
        body::Response,
        encode::{self, RequestedEncoding},
        negotiate::{AnswerFormat, AnswerSubject},
    },
};

/// Answer to a write.
#[derive(Debug)]
pub(super) struct WriteAnswer {
    /// 200, 201 or 202.
    pub(super) code: StatusCode,
    pub(super) document: AnswerDocument,
    /// Warnings about the fields of the body.
    pub(super) warnings: Vec<String>,
}

/// The document that answers a write.
#[derive(Debug)]
pub(super) enum AnswerDocument {
    /// A stored object.
    Stored(Arc<Entry>),
    /// An object that is not stored in this form: of a dry run, or the last state of a deleted object.
    Unstored(Object),
    /// JSON with a newline at the end: a Scale or a Status.
    Text(Bytes),
}

impl AnswerDocument {
    /// Returns the document as JSON with a newline at the end.
    pub(super) fn json(self, ty: &ResourceType) -> Bytes {
        match self {
            Self::Stored(entry) => {
                if let Some(conversion) = ty.conversion {
                    // An object that was stored can be read.
                    let mut object = serde_json::from_slice(entry.object_text()).unwrap_or_default();
                    (conversion.from_stored)(&mut object);
                    return ordered(ty, object).into();
                }
                let object = entry.object_text();
                let mut json = Vec::with_capacity(object.len() + 1);
                json.extend_from_slice(object);
                json.push(b'\n');
                json.into()
            }
            Self::Unstored(object) => ordered(ty, object).into(),
            Self::Text(text) => text,
        }
    }

    /// Answers a dry run with the object that `draft` would store. Without one, or if nothing is converted on the way into
    /// the storage, it is `object`.
    pub(super) fn tried(ty: &ResourceType, object: &Object, draft: Option<&Draft>) -> Self {
        let read = || {
            let conversion = ty.conversion?;
            let mut stored: Object = serde_json::from_slice(draft?.json()).ok()?;
            (conversion.from_stored)(&mut stored);
            // A draft's is empty.
            let version = object.get("metadata")?.get("resourceVersion");
            let metadata = metadata_mut(&mut stored);
            metadata.remove("resourceVersion");
            metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version.clone())));
            Some(stored)
        };
        Self::Unstored(read().unwrap_or_else(|| object.clone()))
    }

    /// Returns the object with its stored members, which the columns of a table show; `None` if [`Self::json`] has them.
    fn stored_json(&self, ty: &ResourceType) -> Option<Bytes> {
        let conversion = ty.conversion?;
        match self {
            Self::Stored(entry) => Some(entry.object()),
            Self::Unstored(object) => {
                let mut stored = object.clone();
                (conversion.to_stored)(&mut stored);
                Some(ordered(ty, stored).into())
            }
            Self::Text(_) => None,
        }
    }
}

impl WriteAnswer {
    /// Answers with an object that existed before, as it is stored now.
    pub(super) const fn stored(entry: Arc<Entry>) -> Self {
        Self { code: StatusCode::OK, document: AnswerDocument::Stored(entry), warnings: Vec::new() }
    }

    /// Answers that an order was carried out.
    pub(super) fn success(warnings: Vec<String>) -> Self {
        let code = StatusCode::CREATED;
        let status = Status { status: "Success".into(), code: code.as_u16(), ..Status::default() };
        Self { code, document: AnswerDocument::Text(status.to_json().into()), warnings }
    }

    /// Builds the response in the format that the client requested.
    ///
    /// # Errors
    /// The Status of a format that the document cannot have; the write is done then.
    pub(super) fn respond(self, request: &WriteRequest<'_>, format: &AnswerFormat) -> Result<Response, Status> {
        let is_scale = request.subresource == Some(SCALE);
        let form = format.form(request.ty, if is_scale { AnswerSubject::Scale } else { AnswerSubject::Object })?;
        let has_cells = matches!(form.content, Content::Row(_));
        let stored = if has_cells { self.document.stored_json(request.ty) } else { None };
        let json = self.document.json(request.ty);
        let text = form.text(&json, stored.as_ref().unwrap_or(&json), clock::unix_seconds());
        let json = text.map_or(json, Bytes::from);
        let mut response = encode::whole(self.code, json, RequestedEncoding::of(format));
        warn(&mut response, &self.warnings);
        Ok(response)
    }
}

/// Adds warnings to an answer.
pub(super) fn warn(response: &mut Response, warnings: &[String]) {
    for warning in validation::headers(warnings) {
        if let Ok(warning) = HeaderValue::from_bytes(warning.as_bytes()) {
            response.headers_mut().append(header::WARNING, warning);
        }
    }
}
