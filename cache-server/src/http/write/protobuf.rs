//! Bodies in Kubernetes' protobuf, read into the JSON that Go would write of them.
//!
//! A body is four bytes, `k8s` and a zero, and an envelope: kind, apiVersion, and the object as bytes. Which field is
//! which member stands in `protobuf_fields.txt`. As Go has it, fields that nobody knows are left out, and so are zeros
//! where JSON leaves them out.
//!
//! INVARIANT: any bytes lead to an object or an error, in time and memory proportional to their length, and no object
//! is nested deeper than it can be read again.
//!
//! Two things are simpler than in Go: a time that is not set is left out everywhere, where Go writes `null` for some,
//! and lists that Go writes as `null` are left out.
//!
//! Source: apimachinery `pkg/runtime/serializer/protobuf`, `pkg/apis/meta/v1/time_proto.go`, `pkg/util/intstr`.

mod message;
mod special;
mod table;
mod wire;

use serde_json::Value;

use self::wire::Malformed;
use super::body::Object;

/// The Content-Type of such bodies.
pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const PREFIX: &[u8] = b"k8s\0";

/// Why a body is no object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It does not even say what it would be.
    Unrecognized(String),
    /// It says what it is, and the rest cannot be read.
    Broken { version: String, kind: String, error: String },
}

/// What a body says of itself; empty where it says nothing.
#[derive(Debug, Default)]
struct Said {
    api_version: String,
    kind: String,
}

/// Reads an object. Where it does not say what it is, it is taken for `api_version` and `kind`. Of a kind that nobody
/// knows there are only kind and apiVersion.
///
/// # Errors
/// What is wrong, in Go's words and without a word of the body.
pub(super) fn read(body: &[u8], api_version: &str, kind: &str) -> Result<Object, Unreadable> {
    let unrecognized = |error: &str| Unreadable::Unrecognized(error.to_owned());
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
    let (mut said, raw) = open(envelope).map_err(|error| unrecognized(&error.to_string()))?;
    for (said, expected) in [(&mut said.api_version, api_version), (&mut said.kind, kind)] {
        if said.is_empty() {
            expected.clone_into(said);
        }
    }
    let mut object = Object::new();
    if let Some(message) = definition(&said).and_then(|name| table::find(&name)) {
        message::decode(message, raw, &mut object, 1).map_err(|error| Unreadable::Broken {
            version: said.api_version.rsplit('/').next().unwrap_or_default().to_owned(),
            kind: said.kind.clone(),
            error: error.to_string(),
        })?;
    }
    object.insert("apiVersion".to_owned(), Value::String(said.api_version));
    object.insert("kind".to_owned(), Value::String(said.kind));
    Ok(object)
}

/// Reads the options of a delete.
///
/// # Errors
/// What is wrong, in Go's words.
pub(super) fn read_options(body: &[u8]) -> Result<Value, String> {
    read(body, "v1", "DeleteOptions").map(Value::Object).map_err(|error| match error {
        Unreadable::Unrecognized(error) | Unreadable::Broken { error, .. } => error,
    })
}

/// The definition of a kind. Options of deletes belong to every group.
fn definition(said: &Said) -> Option<String> {
    let api_version = if said.kind == "DeleteOptions" { "v1" } else { &said.api_version };
    crate::schemas::definition(api_version, &said.kind)
}

/// What an envelope says, and what is in it.
fn open(envelope: &[u8]) -> Result<(Said, &[u8]), Malformed> {
    let (mut said, mut raw): (_, &[u8]) = (Said::default(), &[]);
    let mut reader = wire::Reader::new("Unknown", envelope);
    while let Some((number, piece)) = reader.next()? {
        match number {
            1 => {
                let mut reader = wire::Reader::new("TypeMeta", piece.bytes("TypeMeta")?);
                while let Some((number, piece)) = reader.next()? {
                    match number {
                        1 => said.api_version = piece.text("APIVersion")?,
                        2 => said.kind = piece.text("Kind")?,
                        _ => {}
                    }
                }
            }
            2 => raw = piece.bytes("Raw")?,
            _ => {}
        }
    }
    Ok((said, raw))
}
