//! Decodes Kubernetes' protobuf bodies into the JSON that Go would encode, and encodes objects for clients.
//!
//! A body is four bytes, `k8s` and a zero, and an envelope: kind, apiVersion, and the object as bytes.
//! `protobuf_fields.txt` maps fields to JSON members. As in Go, unknown fields are dropped, and so are zeros where JSON
//! omits them.
//!
//! INVARIANT: any bytes lead to an object or an error, in time and memory proportional to their length, and no object
//! is nested deeper than the decoder of stored objects reads.
//!
//! Two simplifications beside Go: an unset time is always omitted, where Go sometimes writes `null`, and so are lists
//! that Go writes as `null`.
//!
//! Source: apimachinery `pkg/runtime/serializer/protobuf`, `pkg/apis/meta/v1/time_proto.go`, `pkg/util/intstr`.

mod encode;
mod message;
mod special;
mod table;
mod text;
mod wire;

use std::sync::{LazyLock, OnceLock};

use informer_core::wire::json;
pub(crate) use informer_serving::protobuf::MEDIA_TYPE;
use informer_serving::protobuf::{PREFIX, envelope};
use serde_json::Value;
use watch_cache::Messages;

use self::message::{Label, Message, MessageField, Type};
pub(crate) use self::wire::ProtobufError;
use super::{
    body::Object,
    weight::{TooHeavy, Weight},
};
use crate::{registry::ResourceType, schemas::OBJECT_META};

/// Length of an object's JSON, at most, as a multiple of its message. Typical objects have 1.5; a longer text grows.
const JSON_PER_PROTOBUF: usize = 2;

/// Reason for refusing a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProtobufRefusal {
    /// The envelope cannot be decoded.
    Unrecognized(String),
    /// The envelope is valid, but not the object in it.
    Broken { version: String, kind: String, error: String },
    /// The object has too many values.
    TooHeavy(TooHeavy),
}

/// Type in the envelope; empty strings if absent.
#[derive(Debug, Default)]
struct EnvelopeType {
    api_version: String,
    kind: String,
}

/// Returns true if bodies of a type can be decoded. Custom types and types without a message in the table cannot.
pub(crate) fn reads(ty: &ResourceType) -> bool {
    ty.schema.builtin && crate::schemas::definition(ty.api_version(), &ty.kind).and_then(table::find).is_some()
}

/// Returns the encoder of the objects of `ty`; `None` for custom types, for types without a message in the table, and
/// for a version other than the stored one without a conversion.
pub fn messages(ty: &ResourceType) -> Option<&'static dyn Messages> {
    let definition = crate::schemas::definition(ty.api_version(), &ty.kind);
    let message = definition
        .filter(|_| ty.schema.builtin && (!ty.is_swapped() || ty.conversion.is_some()))
        .and_then(table::find)?;
    Some(message)
}

/// Returns the encoder of PartialObjectMetadata, which objects of every type have.
pub fn metadata_messages() -> &'static dyn Messages {
    &*PARTIAL_OBJECT
}

/// Encodes a document of a built-in kind, such as a Status. Returns `None` for other text, and for what cannot be encoded.
pub fn document(text: &[u8]) -> Option<Vec<u8>> {
    let mut named = EnvelopeType::default();
    for member in json::members(text) {
        let member = member.ok()?;
        match &*member.key.bytes() {
            b"kind" => named.kind = json::string(member.value)?.into_owned(),
            b"apiVersion" => named.api_version = json::string(member.value)?.into_owned(),
            _ => {}
        }
    }
    let message = message_of(&named.api_version, &named.kind)?;
    Some(envelope(&named.api_version, &named.kind, &encoded(message, text, "")?))
}

/// Decodes a document that [`document`] or a cache encoded, for logs.
pub fn decoded(body: &[u8]) -> Option<Value> {
    let stored = open_stored(body)?.ok()?;
    let message = |kind| message_of(&stored.api_version, kind);
    let mut object = match (message(&stored.kind), stored.kind.strip_suffix("List")) {
        (Some(message), _) => object_of(message, stored.raw).ok()?,
        (None, kind) => stored.list(message(kind?)?).ok()?,
    };
    object.insert("apiVersion".to_owned(), Value::String(stored.api_version));
    object.insert("kind".to_owned(), Value::String(stored.kind));
    Some(Value::Object(object))
}

/// Returns the message of a kind that this server sends.
fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    match (kind, api_version) {
        ("Status", "v1") => table::find("io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        (PARTIAL, _) => Some(&*PARTIAL_OBJECT),
        _ => definition(api_version, kind).and_then(table::find),
    }
}

/// Decodes an object, without kind and apiVersion.
fn object_of(message: &Message, raw: &[u8]) -> Result<Object, ProtobufError> {
    let mut object = Object::new();
    message::decode(message, raw, &mut object, 1, &mut Weight::default())?;
    Ok(object)
}

const PARTIAL: &str = "PartialObjectMetadata";

/// The message of PartialObjectMetadata, which k8s-pb does not have.
static PARTIAL_OBJECT: LazyLock<Message> = LazyLock::new(|| {
    let (ty, label) = (Type::Message(OBJECT_META), Label::Once);
    let metadata = MessageField { number: 1, name: METADATA, ty, label, zero_stays: false, target: OnceLock::new() };
    Message { name: PARTIAL, fields: vec![metadata], members: OnceLock::new() }
});

/// Member of every object that [`Messages`] has apart.
const METADATA: &str = "metadata";

impl Messages for Message {
    fn metadata(&self, metadata: &[u8]) -> Option<Vec<u8>> {
        encoded(table::find(OBJECT_META)?, metadata, "")
    }

    fn rest(&'static self, object: &[u8]) -> Option<Vec<u8>> {
        encoded(self, object, METADATA)
    }
}

/// Encodes an object without one member. Returns `None` for text that serde does not read: fields nested deeper than 127,
/// and numbers beyond doubles. A part of the object must not pass for the whole: a client would write it back.
fn encoded(message: &'static Message, text: &[u8], without: &'static str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 2);
    if encode::encode(message, text, without, &mut out).is_err() {
        out.clear();
        encode::encode(message, &encode::whole_surrogates(text), without, &mut out).ok()?;
    }
    Some(out)
}

/// Decodes an object. `api_version` and `kind` are the defaults for an envelope without a type. An object of an unknown
/// kind has only kind and apiVersion.
///
/// # Errors
/// Go's message, without text of the body.
pub(crate) fn read(body: &[u8], api_version: &str, kind: &str) -> Result<Object, ProtobufRefusal> {
    let unrecognized = |error: &str| ProtobufRefusal::Unrecognized(error.to_owned());
    if body.is_empty() {
        return Err(unrecognized("empty data"));
    }
    let Some(envelope) = body.strip_prefix(PREFIX) else {
        let error = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(unrecognized(error));
    };
    if envelope.is_empty() {
        return Err(unrecognized("empty body"));
    }
    let (mut type_meta, raw) = open(envelope).map_err(|error| unrecognized(&error.to_string()))?;
    for (declared, expected) in [(&mut type_meta.api_version, api_version), (&mut type_meta.kind, kind)] {
        if declared.is_empty() {
            expected.clone_into(declared);
        }
    }
    let mut object = Object::new();
    if let Some(message) = definition(&type_meta.api_version, &type_meta.kind).and_then(table::find) {
        message::decode(message, raw, &mut object, 1, &mut Weight::default()).map_err(|error| match error {
            ProtobufError::TooHeavy(error) => ProtobufRefusal::TooHeavy(error),
            error @ (ProtobufError::UnexpectedEof
            | ProtobufError::Overflow
            | ProtobufError::NegativeLength
            | ProtobufError::EndOfNoGroup(_)
            | ProtobufError::IllegalTag(..)
            | ProtobufError::IllegalWireType(_)
            | ProtobufError::WrongWireType(..)
            | ProtobufError::TooDeep(_)
            | ProtobufError::Value(_)) => ProtobufRefusal::Broken {
                version: type_meta.api_version.rsplit('/').next().unwrap_or_default().to_owned(),
                kind: type_meta.kind.clone(),
                error: error.to_string(),
            },
        })?;
    }
    object.insert("apiVersion".to_owned(), Value::String(type_meta.api_version));
    object.insert("kind".to_owned(), Value::String(type_meta.kind));
    Ok(object)
}

/// Returns the JSON of an object of `ty`. Returns `None` for any other body: [`read`] tells what it is, or the error.
pub(crate) fn read_text(body: &[u8], ty: &ResourceType) -> Option<Vec<u8>> {
    let message = open_stored(body)?.ok()?;
    let agrees = |declared: &str, expected: &str| declared.is_empty() || declared == expected;
    let is_of_type = agrees(&message.api_version, ty.api_version()) && agrees(&message.kind, &ty.kind);
    if is_of_type && reads(ty) { message.json(ty).ok() } else { None }
}

/// An object as kube-apiserver stores it: the envelope is decoded.
#[derive(Debug)]
pub(crate) struct StoredMessage<'a> {
    pub api_version: String,
    pub kind: String,
    raw: &'a [u8],
}

/// Decodes the envelope of a stored value; `None` if it is not protobuf.
pub(crate) fn open_stored(value: &[u8]) -> Option<Result<StoredMessage<'_>, ProtobufError>> {
    let opened = open(value.strip_prefix(PREFIX)?);
    Some(opened.map(|(type_meta, raw)| StoredMessage { api_version: type_meta.api_version, kind: type_meta.kind, raw }))
}

impl StoredMessage<'_> {
    /// Decodes the object with the message of `ty`, a built-in type, whatever the envelope names. Returns JSON that begins
    /// with kind and apiVersion.
    ///
    /// # Errors
    /// The first error in the bytes.
    pub(crate) fn json(&self, ty: &ResourceType) -> Result<Vec<u8>, ProtobufError> {
        let definition = crate::schemas::definition(ty.api_version(), &ty.kind).unwrap_or_default();
        let message = table::find(definition).ok_or(ProtobufError::Value("no message"))?;
        let mut text = Vec::with_capacity(JSON_PER_PROTOBUF * self.raw.len());
        text.extend_from_slice(format!(r#"{{"kind":"{}","apiVersion":"{}""#, ty.kind, ty.api_version()).as_bytes());
        match text::write_members(message, self.raw, &mut text) {
            Ok(()) => {
                text.push(b'}');
                Ok(text)
            }
            Err(text::TextError::Protobuf(error)) => Err(error),
            Err(text::TextError::Unordered) => Ok(super::draft::ordered(ty, self.object(definition)?)),
        }
    }

    /// Decodes the object, without kind and apiVersion, with the message of a definition.
    ///
    /// # Errors
    /// The first error in the bytes.
    pub(crate) fn object(&self, definition: &str) -> Result<Object, ProtobufError> {
        let message = table::find(definition).ok_or(ProtobufError::Value("no message"))?;
        object_of(message, self.raw)
    }

    /// Decodes a list of objects, without kind and apiVersion. Items are as in JSON: only those of metadata have a type.
    fn list(&self, item: &Message) -> Result<Object, ProtobufError> {
        let (mut metadata, mut items) = (Object::new(), Vec::new());
        let mut reader = wire::MessageReader::new("List", self.raw);
        while let Some((number, piece)) = reader.next()? {
            match number {
                1 => {
                    let message = table::find(LIST_META).ok_or(ProtobufError::Value("no message"))?;
                    metadata = object_of(message, piece.bytes("metadata")?)?;
                }
                2 => {
                    let mut object = object_of(item, piece.bytes("items")?)?;
                    if item.name == PARTIAL {
                        object.insert("apiVersion".to_owned(), Value::String(self.api_version.clone()));
                        object.insert("kind".to_owned(), Value::String(PARTIAL.to_owned()));
                    }
                    items.push(Value::Object(object));
                }
                _ => {}
            }
        }
        let members = [("metadata", Value::Object(metadata)), ("items", Value::Array(items))];
        Ok(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// Decodes the options of a delete.
///
/// # Errors
/// Go's message.
pub(crate) fn read_options(body: &[u8]) -> Result<Value, String> {
    read(body, "v1", "DeleteOptions").map(Value::Object).map_err(|error| match error {
        ProtobufRefusal::Unrecognized(error) | ProtobufRefusal::Broken { error, .. } => error,
        ProtobufRefusal::TooHeavy(error) => error.to_string(),
    })
}

/// Returns the schema definition of a kind. DeleteOptions belong to every group.
fn definition(api_version: &str, kind: &str) -> Option<&'static str> {
    crate::schemas::definition(if kind == "DeleteOptions" { "v1" } else { api_version }, kind)
}

/// Decodes an envelope: the type and the bytes of the object.
fn open(envelope: &[u8]) -> Result<(EnvelopeType, &[u8]), ProtobufError> {
    let (mut type_meta, mut raw): (_, &[u8]) = (EnvelopeType::default(), &[]);
    let mut reader = wire::MessageReader::new("Unknown", envelope);
    while let Some((number, piece)) = reader.next()? {
        match number {
            1 => {
                let mut reader = wire::MessageReader::new("TypeMeta", piece.bytes("TypeMeta")?);
                while let Some((number, piece)) = reader.next()? {
                    match number {
                        1 => type_meta.api_version = piece.text("APIVersion")?,
                        2 => type_meta.kind = piece.text("Kind")?,
                        _ => {}
                    }
                }
            }
            2 => raw = piece.bytes("Raw")?,
            _ => {}
        }
    }
    Ok((type_meta, raw))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{limits::PROTOBUF_DEPTH_MAX, registry::Registry};

    /// Encodes a field of bytes. Numbers must be below 16 here.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length > 0x7f {
            field.push(0x80 | u8::try_from(length & 0x7f).expect("seven bits"));
            length >>= 7;
        }
        field.push(u8::try_from(length).expect("the rest"));
        [&field, bytes].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [PREFIX, &field(1, &type_meta), &field(2, raw)].concat()
    }

    fn value(body: &[u8]) -> Value {
        Value::Object(read(body, "", "").expect("is read"))
    }

    #[test]
    fn members_stand_where_json_has_them() {
        let selector = field(3, &field(1, &field(1, b"a")));
        let variable = [field(1, b"V"), field(3, &[selector, field(9, b"unknown")].concat())].concat();
        let container = [field(1, b"c"), field(2, b""), field(7, &variable), field(8, b"")].concat();
        let spec = [field(2, &container), vec![4 << 3, 0], vec![5 << 3, 0x96, 1]].concat();
        let object = value(&body("v1", "Pod", &[field(1, &field(1, b"p")), field(2, &spec), field(3, b"")].concat()));
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {}, "spec": {
                "terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 150,
                "containers": [{"name": "c", "resources": {}, "env": [
                    {"name": "V", "valueFrom": {"configMapKeyRef": {"name": "a"}}},
                ]}],
            }}),
            "an empty image is left out and a grace period of zero is not; the name of a reference is not nested"
        );
    }

    #[test]
    fn a_body_that_does_not_say_what_it_is_is_taken_for_what_is_expected() {
        let raw = field(1, &field(1, b"a"));
        let object = read(&[PREFIX, &field(2, &raw)].concat(), "v1", "ConfigMap").expect("is read");
        assert_eq!(Value::Object(object), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
        assert_eq!(value(&body("v9", "Thing", &raw)), json!({"apiVersion": "v9", "kind": "Thing"}));
        let options = [field(14, b"unknown"), field(2, &field(1, b"u1"))].concat();
        assert_eq!(
            read_options(&body("apps/v1", "DeleteOptions", &options)),
            Ok(json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}}))
        );
    }

    #[test]
    fn bodies_that_cannot_be_read_are_refused_in_words_of_go() {
        let refused = |body: &[u8]| read(body, "v1", "Pod").expect_err("is refused");
        let unrecognized = |text: &str| ProtobufRefusal::Unrecognized(text.to_owned());
        assert_eq!(refused(b""), unrecognized("empty data"));
        assert_eq!(refused(PREFIX), unrecognized("empty body"));
        assert_eq!(
            refused(b"{}"),
            unrecognized("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
        );
        assert_eq!(refused(b"k8s\0\x0a\x05"), unrecognized("unexpected EOF"));
        let broken = |error: &str| ProtobufRefusal::Broken {
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            error: error.to_owned(),
        };
        assert_eq!(refused(&body("apps/v1", "Deployment", &[0x0a, 9])), broken("unexpected EOF"));
        assert_eq!(
            refused(&body("apps/v1", "Deployment", &[0x10, 1])),
            broken("proto: wrong wireType = 0 for field Spec")
        );
    }

    #[test]
    fn every_built_in_type_has_a_message() {
        let registry = Registry::builtin();
        let unread: Vec<&str> = registry.iter().filter(|ty| !reads(ty)).map(|ty| &*ty.kind).collect();
        assert_eq!(unread, [""; 0]);
    }

    /// Goal: stored objects can be decoded again. Method: schemas nested in schemas, up to the bound and beyond.
    #[test]
    fn nesting_has_a_bound() {
        let nested = |levels: usize| {
            // Field `not` of a schema has number 28: two bytes of tag.
            let deeper = |inner: Vec<u8>, _| [&[0xe2, 0x01], &field(0, &inner)[1..]].concat();
            let schema = (0..levels).fold(Vec::new(), deeper);
            let version = [field(1, b"v1"), field(4, &field(1, &schema))].concat();
            body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &field(7, &version)))
        };
        let object = value(&nested(PROTOBUF_DEPTH_MAX - 6));
        assert!(serde_json::from_str::<Value>(&object.to_string()).is_ok(), "it is read again");
        let refused = read(&nested(PROTOBUF_DEPTH_MAX), "", "").expect_err("too deep");
        assert!(matches!(refused, ProtobufRefusal::Broken { error, .. } if error.contains("nested deeper than")));
    }

    /// Goal: no input causes a panic. Method: random bytes for every kind, many of them valid field numbers.
    #[test]
    fn random_bytes_lead_to_an_object_or_an_error() {
        let mut random = fastrand::Rng::with_seed(4);
        for ty in Registry::builtin().iter() {
            for _ in 0..50 {
                let mut raw = Vec::new();
                for _ in 0..random.usize(..12) {
                    let inner: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..0x20)).collect();
                    raw.extend(field(random.u8(1..15), &field(random.u8(1..15), &inner)));
                }
                let _ = read(&body(ty.api_version(), &ty.kind, &raw), "", "");
            }
        }
    }
}
