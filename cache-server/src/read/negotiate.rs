//! Content negotiation: reads from Accept the encoding of an answer and the form of its objects.
//!
//! INVARIANT: clauses are tried in the order of their quality, and the first whose media type and parameters can be
//! served wins. A clause with unknown requirements is skipped, so that a client that also accepts plain JSON gets that.
//! INVARIANT: only clauses without a form decide whether an error is indented, as errors have no other form.
//!
//! One form is our own: `application/json;drop=metadata.managedFields` returns objects without managedFields, for
//! clients that do not use them. Servers that do not know the parameter ignore it.
//!
//! Source: apiserver `endpoints/handlers/negotiation/negotiate.go`, `endpoints/handlers/{rest,response}.go`.

use std::borrow::Cow;

use api_rules::{object::protobuf, table::Columns};
use http::{HeaderMap, header};
use informer_serving::{
    protobuf::{MEDIA_TYPE, STREAM_MEDIA_TYPE},
    query::Query,
    status::{Status, StatusExt as _},
};
use watch_cache::{Form, Messages, MetaVersion, Row, RowObject};

use super::encode::RequestedEncoding;
use crate::{registry::ResourceType, status};

/// Media types of this server's answers, the preferred one first.
const SERVED: [(&str, AnswerEncoding); 3] = [
    ("application/json", AnswerEncoding::Json),
    ("application/yaml", AnswerEncoding::Yaml),
    (MEDIA_TYPE, AnswerEncoding::Protobuf),
];

/// Media types of this server's streams.
const STREAMED: [&str; 2] = ["application/json;stream=watch", STREAM_MEDIA_TYPE];

/// Media types that Kubernetes knows, served here or not; refusals of others have a different message.
const KNOWN: [&str; 4] = ["application/json", "application/yaml", MEDIA_TYPE, "application/cbor"];

/// Encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEncoding {
    /// JSON.
    Json,
    /// YAML; not available in streams.
    Yaml,
    /// Protobuf; only of built-in types, and of the metadata of all types.
    Protobuf,
}

/// Part of each object that an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerShape {
    Whole,
    /// A PartialObjectMetadata, or a list of them.
    Metadata {
        list: bool,
        meta: MetaVersion,
    },
    Table(MetaVersion),
}

/// Subject of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerSubject {
    /// One object.
    Object,
    /// A list.
    List,
    /// The events of a watch.
    Events,
    /// A Scale: `…/{name}/scale`.
    Scale,
}

/// Answer format that a client requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerFormat {
    /// Encoding of the answer.
    pub(crate) encoding: AnswerEncoding,
    /// True if JSON that is not a stream is indented.
    pub(crate) indent: bool,
    /// True if long lists may be compressed.
    pub(crate) gzip: bool,
    shape: AnswerShape,
    without_managed_fields: bool,
    /// The query parameter `includeObject`, not parsed yet.
    include_object: String,
    /// The same answer as JSON, if this one is protobuf and the client accepts that too.
    in_json: Option<Box<Self>>,
}

impl AnswerFormat {
    /// Reads the requested format of objects of `ty` from the headers and query of a request. `of` decides which media
    /// types an error lists.
    ///
    /// # Errors
    /// 406 if no clause can be served.
    pub(crate) fn read(
        headers: &HeaderMap,
        query: &Query,
        ty: &ResourceType,
        of: AnswerSubject,
    ) -> Result<Self, Status> {
        let accept = joined(headers, header::ACCEPT);
        let include_object = query.get("includeObject").unwrap_or_default().to_owned();
        let gzip = joined(headers, header::ACCEPT_ENCODING).split(',').any(|token| token.trim() == "gzip");
        let clauses = clauses(&accept);
        if clauses.is_empty() && accept.trim().is_empty() {
            let (shape, without_managed_fields) = (AnswerShape::Whole, false);
            let (encoding, indent) = (AnswerEncoding::Json, is_read_by_people(headers, query));
            return Ok(Self { encoding, indent, gzip, shape, without_managed_fields, include_object, in_json: None });
        }
        let served = clauses.iter().filter_map(|clause| {
            let (encoding, shape) = (clause.encoding()?, clause.shape()?);
            // A WebSocket message is one line of JSON.
            let is_served = encoding != AnswerEncoding::Protobuf
                || !headers.contains_key(header::UPGRADE) && messages(ty, shape).is_some();
            // Kubernetes has no columns for reviews.
            let is_served = is_served && !(ty.is_review() && matches!(shape, AnswerShape::Table(_)));
            is_served.then_some((clause, encoding, shape))
        });
        let is_indented = is_read_by_people(headers, query);
        let mut formats = served.map(|(clause, encoding, shape)| Self {
            encoding,
            gzip,
            indent: clause.parameter("pretty") == Some("1") || is_indented,
            shape,
            without_managed_fields: clause.parameter("drop") == Some("metadata.managedFields"),
            include_object: include_object.clone(),
            in_json: None,
        });
        let mut format = formats.next().ok_or_else(|| refusal(&clauses, ty, of))?;
        if format.encoding == AnswerEncoding::Protobuf {
            // Of the same shape: metadata must not become whole objects.
            let json = formats.find(|other| other.encoding == AnswerEncoding::Json && other.shape == format.shape);
            format.in_json = json.map(Box::new);
        }
        Ok(format)
    }

    /// Returns the JSON format for objects that protobuf cannot hold.
    pub(super) fn in_json(&self) -> Option<&Self> {
        self.in_json.as_deref()
    }

    /// Checks that the answer can be streamed.
    ///
    /// # Errors
    /// 406 if it cannot. Other clauses are not tried, as in kube-apiserver.
    pub(crate) fn check_stream(&self) -> Result<(), Status> {
        match self.encoding {
            AnswerEncoding::Json | AnswerEncoding::Protobuf => Ok(()),
            AnswerEncoding::Yaml => Err(Status::not_acceptable(&STREAMED)),
        }
    }

    /// Returns the form of objects of `ty`.
    ///
    /// # Errors
    /// 406 for the metadata of one object where the answer is a list, and the other way round; 400 for invalid table
    /// parameters. kube-apiserver checks these after it has the objects, so errors about the objects come first.
    pub(crate) fn form(&self, ty: &ResourceType, of: AnswerSubject) -> Result<Form, Status> {
        let mut form = match self.shape {
            AnswerShape::Whole => Form::whole(),
            AnswerShape::Metadata { list: false, .. } if of == AnswerSubject::List => {
                return Err(status::not_that_form("PartialObjectMetadata", "is a list", &go_type(ty, "List")));
            }
            AnswerShape::Metadata { list: true, .. } if matches!(of, AnswerSubject::Object | AnswerSubject::Scale) => {
                return Err(status::not_that_form("PartialObjectMetadataList", "is not a list", &go_type(ty, "")));
            }
            AnswerShape::Metadata { meta, .. } => Form::metadata(meta),
            AnswerShape::Table(meta) => {
                let object = include_object(&self.include_object)?;
                let columns = if of == AnswerSubject::Scale { Columns::scale() } else { Columns::of(ty) };
                let definitions = columns.definitions().clone();
                Form::row(Row { rows: columns, definitions, object, meta })
            }
        };
        if ty.is_swapped() && of != AnswerSubject::Scale {
            form = match ty.conversion {
                Some(conversion) => form.converted(&ty.kind, ty.api_version(), conversion),
                None => form.at_version(&ty.kind, ty.api_version()),
            };
        }
        form.without_managed_fields = self.without_managed_fields;
        let messages = if self.encoding == AnswerEncoding::Protobuf { messages(ty, self.shape) } else { None };
        Ok(match messages {
            Some(messages) => form.in_protobuf(messages, ty.api_version(), &ty.kind),
            None => form,
        })
    }
}

/// Returns the encoder for answers of a shape. As in kube-apiserver, tables have none, and custom resources only one for
/// their metadata.
fn messages(ty: &ResourceType, shape: AnswerShape) -> Option<&'static dyn Messages> {
    match shape {
        AnswerShape::Whole => protobuf::messages(ty),
        AnswerShape::Metadata { .. } => Some(protobuf::metadata_messages()),
        AnswerShape::Table(_) => None,
    }
}

/// Returns the 406 for clauses of which none can be served. In kube-apiserver, the router of built-in types checks the
/// media types first, with an error of its own that lists those of the path: of a collection, also of its streams.
fn refusal(clauses: &[Clause<'_>], ty: &ResourceType, of: AnswerSubject) -> Status {
    let served = SERVED.map(|(name, _)| name);
    let is_known = KNOWN.iter().any(|known| clauses.iter().any(|clause| clause.names(known)));
    if is_known || ty.custom.is_some() {
        return Status::not_acceptable(&served);
    }
    let streamed: &[&str] = if matches!(of, AnswerSubject::List | AnswerSubject::Events) { &STREAMED } else { &[] };
    status::no_representation(&[served.as_slice(), streamed].concat())
}

/// Returns Kubernetes' name of the Go type of `ty`'s objects, for its error messages.
fn go_type(ty: &ResourceType, suffix: &str) -> String {
    if !ty.schema.builtin {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = ty.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{}{suffix}", ty.kind)
}

fn include_object(text: &str) -> Result<RowObject, Status> {
    match text {
        "" | "Metadata" => Ok(RowObject::Metadata),
        "Object" => Ok(RowObject::Whole),
        "None" => Ok(RowObject::None),
        other => Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
             'None', or empty",
            informer_serving::go::quote(other)
        ))),
    }
}

/// Returns all values of a header joined by commas; values that are not text are left out.
pub(crate) fn joined(headers: &HeaderMap, name: header::HeaderName) -> Cow<'_, str> {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let Some(first) = values.next() else { return Cow::Borrowed("") };
    // Nearly always the only one.
    values.fold(Cow::Borrowed(first), |all, value| Cow::Owned([&*all, ",", value].concat()))
}

/// Form of documents and errors that have only one form.
pub(crate) struct PlainFormat {
    /// True if documents are indented: by `;pretty=1` in Accept, else by `?pretty=`, else by the client's program.
    pub(crate) indent: bool,
    /// Encoding of errors. Clients that accept no encoding of an error get indented JSON.
    pub(crate) errors: RequestedEncoding,
}

impl PlainFormat {
    /// Reads the format. `accept` are the values of Accept.
    pub(crate) fn read(accept: &str, headers: &HeaderMap, query: &Query) -> Self {
        let clauses = clauses(accept);
        let plain = clauses.iter().find(|clause| clause.is_plain());
        let pretty = plain.is_some_and(|clause| clause.parameter("pretty") == Some("1"));
        let indent = pretty || is_read_by_people(headers, query);
        let errors = match plain.map(Clause::encoding) {
            Some(Some(AnswerEncoding::Yaml)) => RequestedEncoding::Yaml,
            Some(Some(AnswerEncoding::Protobuf)) => RequestedEncoding::Protobuf,
            None if !accept.trim().is_empty() => RequestedEncoding::Indented,
            Some(_) | None if indent => RequestedEncoding::Indented,
            Some(_) | None => RequestedEncoding::Json,
        };
        Self { indent, errors }
    }
}

fn is_read_by_people(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty") {
        None | Some("") => {
            let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program))
        }
        Some(value) => matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// One media range of a header and its parameters.
struct Clause<'a> {
    range: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// Parses the clauses of a header with a quality above zero, sorted by preference: by quality, then named types before
/// wildcards, then by position.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> =
        accept.split(',').filter_map(Clause::parse).filter(|clause| clause.quality > 0.0).collect();
    clauses.sort_by(|left, right| {
        let wildcards = |clause: &Clause<'_>| (clause.range.starts_with('*'), clause.range.ends_with('*'));
        right.quality.total_cmp(&left.quality).then_with(|| wildcards(left).cmp(&wildcards(right)))
    });
    clauses
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let range = parts.next().filter(|range| !range.is_empty())?;
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok());
        Some(Self { range, parameters, quality: quality.unwrap_or(1.0) })
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// Returns true if the range includes `media_type`. Names of media types are case-insensitive.
    fn names(&self, media_type: &str) -> bool {
        self.range == "*/*"
            || self.range.eq_ignore_ascii_case(media_type)
            || self
                .range
                .strip_suffix("/*")
                .is_some_and(|of| media_type.split_once('/').is_some_and(|(range, _)| range.eq_ignore_ascii_case(of)))
    }

    /// Returns the encoding; `None` if this server does not have it, or not as a stream.
    fn encoding(&self) -> Option<AnswerEncoding> {
        let streams = self.parameter("stream").is_some_and(|stream| !stream.is_empty());
        let (_, encoding) = SERVED.iter().find(|(name, _)| self.names(name))?;
        (!streams || *encoding != AnswerEncoding::Yaml).then_some(*encoding)
    }

    /// Returns the form that the parameters request; `None` if it cannot be served.
    fn shape(&self) -> Option<AnswerShape> {
        let known = matches!(self.parameter("stream"), None | Some("" | "watch"))
            && matches!(self.parameter("sv"), None | Some("" | "v1"));
        let [shape, group, version] = ["as", "g", "v"].map(|name| self.parameter(name));
        if !known {
            return None;
        }
        if [shape, group, version].iter().all(Option::is_none) {
            return Some(AnswerShape::Whole);
        }
        let meta = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            _ => return None,
        };
        match shape? {
            "PartialObjectMetadata" => Some(AnswerShape::Metadata { list: false, meta }),
            "PartialObjectMetadataList" => Some(AnswerShape::Metadata { list: true, meta }),
            "Table" => Some(AnswerShape::Table(meta)),
            _ => None,
        }
    }

    /// Returns true if the clause accepts documents with only one form, such as errors.
    fn is_plain(&self) -> bool {
        self.encoding().is_some() && self.shape() == Some(AnswerShape::Whole)
    }
}

#[cfg(test)]
mod tests;
