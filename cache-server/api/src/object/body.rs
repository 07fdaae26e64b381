//! Parses the body of a write into an object, or explains why it cannot.
//!
//! INVARIANT: messages contain field names, `kind` and `apiVersion`, which strict validation requires, and no other
//! value of a body, as it may be a secret. An answer holds at most `MESSAGE_BYTES_MAX` of them.
//!
//! Source: apiserver `endpoints/handlers/{create,rest}.go`, transformDecodeError.

use std::borrow::Cow;

use informer_serving::{
    go,
    status::{Status, StatusExt as _},
};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value};

use super::{
    options::FieldValidation,
    protobuf::{self, ProtobufRefusal},
    validation::{self, BoundedValueSeed},
    weight::Weight,
};
use crate::registry::{Registry, ResourceType};

/// An object being written. Members are sorted; the cache puts kind and apiVersion first.
pub type Object = Map<String, Value>;

/// Accepted media types of a body. The last one only for types with a known protobuf message.
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// Values that YAML aliases may repeat: about as many as a document may have. The parser has its own bounds for
/// everything else.
const YAML_REPLAYED_MAX: usize = 250_000;

impl Encoding {
    /// Selects the encoding by the Content-Type of a body for objects of `ty`; JSON if there is none.
    ///
    /// # Errors
    /// 415 for any other media type.
    pub fn of(ty: &ResourceType, content_type: Option<&str>) -> Result<Self, Status> {
        let accepted = if protobuf::reads(ty) { &ACCEPTED[..] } else { &ACCEPTED[..2] };
        match media_type(content_type).as_deref() {
            None | Some("application/json") => Ok(Self::Json),
            Some("application/yaml") => Ok(Self::Yaml),
            Some(protobuf::MEDIA_TYPE) if accepted.contains(&protobuf::MEDIA_TYPE) => Ok(Self::Protobuf),
            Some(_) => Err(Status::unsupported_media_type(accepted)),
        }
    }

    /// Parses one document.
    ///
    /// # Errors
    /// A message with the kind and place of the error, without text of the body.
    pub fn decode(self, body: &[u8]) -> Result<Value, String> {
        self.decode_noting(body, &mut false)
    }

    /// Parses one document, and sets `duplicates` if some object in it has a duplicate member; the last value wins.
    ///
    /// # Errors
    /// A message with the kind and place of the error, without text of the body.
    pub fn decode_noting(self, body: &[u8], duplicates: &mut bool) -> Result<Value, String> {
        let mut weight = Weight::default();
        let noting = BoundedValueSeed { duplicates, weight: &mut weight };
        match self {
            Self::Json => json(body, noting).map_err(|error| {
                // Errors of this decoder alone, such as lone surrogates, have no Go message.
                let text = go::json_error(body).unwrap_or_else(|| error.to_string());
                format!("json parse error: {text}")
            }),
            Self::Yaml => yaml(body, |document| noting.deserialize(document)).map_err(|error| {
                // The parser reports only the position when our bound stopped it.
                weight.exceeded().map_or(error, |heavy| format!("yaml parse error: {heavy}"))
            }),
            // Only options arrive here; `read_noting` parses protobuf objects directly.
            Self::Protobuf => protobuf::read_options(body),
        }
    }

    /// Parses a document again, to collect complaints about its fields in order.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn walk(self, body: &[u8], order: &validation::ComplaintOrder<'_>) -> Result<(), String> {
        match self {
            Self::Json => {
                order.read(&mut serde_json::Deserializer::from_slice(body)).map_err(|error| error.to_string())
            }
            Self::Yaml => yaml(body, |document| order.read(document)),
            // Protobuf has no field names, so no unknown ones.
            Self::Protobuf => Ok(()),
        }
    }
}

fn json(body: &[u8], seed: BoundedValueSeed<'_>) -> Result<Value, serde_json::Error> {
    let mut document = serde_json::Deserializer::from_slice(body);
    let value = seed.deserialize(&mut document)?;
    document.end()?;
    Ok(value)
}

/// Parses YAML. Manifests write file modes as 0644, an octal number in YAML 1.1, but use `y` and `no` mostly as names.
fn yaml<T>(
    body: &[u8],
    read: impl for<'e> FnOnce(serde_saphyr::Deserializer<'_, 'e>) -> Result<T, serde_saphyr::Error>,
) -> Result<T, String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        strict_booleans: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: YAML_REPLAYED_MAX },
    };
    serde_saphyr::with_deserializer_from_slice_with_options(body, options, read).map_err(|error| {
        match error.location() {
            Some(at) => format!("yaml parse error at line {} column {}", at.line(), at.column()),
            None => "yaml parse error".to_owned(),
        }
    })
}

/// Returns the media type of a header in lower case, without parameters; `None` if there is none.
pub fn media_type(header: Option<&str>) -> Option<Cow<'_, str>> {
    let essence = header?.split(';').next()?.trim();
    let is_lower = !essence.bytes().any(|byte| byte.is_ascii_uppercase());
    let essence = if is_lower { Cow::Borrowed(essence) } else { Cow::Owned(essence.to_ascii_lowercase()) };
    (!essence.is_empty()).then_some(essence)
}

/// Parses an object of type `ty`. Missing kind and apiVersion are added; fields are kept as sent.
///
/// # Errors
/// 415 for an unknown media type; 400 if the body is no object, or an object of another type.
pub fn read_object(
    registry: &Registry,
    ty: &ResourceType,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Object, Status> {
    read_noting(registry, ty, Encoding::of(ty, content_type)?, body, &mut false)
}

/// Parses an object of type `ty`, and drops unknown fields. Complaints about fields go to `warnings` unless
/// `validation` says otherwise.
///
/// # Errors
/// As [`read_object`]; 400 for values of a wrong JSON type and, with strict validation, for unknown or duplicate
/// fields.
pub fn read_valid(
    registry: &Registry,
    ty: &ResourceType,
    content_type: Option<&str>,
    body: &[u8],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Object, Status> {
    let encoding = Encoding::of(ty, content_type)?;
    let mut duplicates = false;
    let mut object = read_noting(registry, ty, encoding, body, &mut duplicates)?;
    let found = validation::check(ty, &mut object);
    let refuse = |error: &str| cannot_be_handled(ty, &ty.kind, &ty.version, error);
    if let Some(error) = found.mistyped {
        return Err(refuse(&error));
    }
    if validation != FieldValidation::Ignore && (duplicates || !found.unknown.is_empty()) {
        let complaints = validation::complaints(encoding, body, &found.unknown, duplicates);
        validation::report(validation, complaints, warnings).map_err(|error| refuse(&error))?;
    }
    Ok(object)
}

fn read_noting(
    registry: &Registry,
    ty: &ResourceType,
    encoding: Encoding,
    body: &[u8],
    duplicates: &mut bool,
) -> Result<Object, Status> {
    let mut object = match encoding {
        Encoding::Json | Encoding::Yaml => document(ty, encoding, body, duplicates)?,
        Encoding::Protobuf => protobuf::read(body, ty.api_version(), &ty.kind).map_err(|error| match error {
            ProtobufRefusal::Unrecognized(error) => unrecognized(ty, &error),
            ProtobufRefusal::TooHeavy(error) => error.into(),
            ProtobufRefusal::Broken { version, kind, error } => cannot_be_handled(ty, &kind, &version, &error),
        })?,
    };
    check_type(registry, ty, &object)?;
    // Nearly all clients send both.
    for (member, value) in [("kind", &*ty.kind), ("apiVersion", ty.api_version())] {
        if object.get(member).and_then(Value::as_str) != Some(value) {
            object.insert(member.to_owned(), Value::String(value.to_owned()));
        }
    }
    super::metadata::check_shape(&object).map_err(|error| cannot_be_handled(ty, &ty.kind, &ty.version, &error))?;
    Ok(object)
}

/// Parses a text body as an object.
fn document(ty: &ResourceType, encoding: Encoding, body: &[u8], duplicates: &mut bool) -> Result<Object, Status> {
    let refuse = |error: String| unrecognized(ty, &format!("couldn't get version/kind; {error}"));
    let value = encoding.decode_noting(body, duplicates).map_err(refuse)?;
    match value {
        Value::Object(object) => Ok(object),
        // Go reads null as an empty object.
        Value::Null => Ok(Object::new()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let found = go::json_type(&other);
            Err(refuse(format!("json parse error: json: cannot unmarshal {found} into an object")))
        }
    }
}

/// Checks that `object` has the kind and apiVersion of `ty`, or neither.
///
/// # Errors
/// 400 with Kubernetes' messages.
fn check_type(registry: &Registry, ty: &ResourceType, object: &Object) -> Result<(), Status> {
    let declared = |member: &str| text(object, member).map_err(|error| unrecognized(ty, &error));
    let api_version = declared("apiVersion")?.unwrap_or_else(|| ty.api_version());
    let kind = declared("kind")?.unwrap_or(&ty.kind);
    if api_version == ty.api_version() && kind == ty.kind {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let Some(found) = registry.by_kind(api_version, kind) else {
        let error = format!("no kind {kind:?} is registered for version {api_version:?} in scheme \"built-in\"");
        return Err(cannot_be_handled(ty, kind, version, &error));
    };
    if kind == ty.kind {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            ty.api_version()
        )));
    }
    let from = format!("{}.{}", found.version, found.kind);
    let to = format!("{}.{}", internal_package(ty), ty.kind);
    Err(cannot_be_handled(ty, kind, version, &format!("converting ({from}) to ({to}): unknown conversion")))
}

/// Returns the 400 `{kind} in version "{version}" cannot be handled as a {ty}: {error}`.
pub fn cannot_be_handled(ty: &ResourceType, kind: &str, version: &str, error: &str) -> Status {
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {error}", ty.kind))
}

fn unrecognized(ty: &ResourceType, error: &str) -> Status {
    Status::bad_request(format!("the object provided is unrecognized (must be of type {}): {error}", ty.kind))
}

/// Returns the Go package of kube-apiserver's internal form of the type, used in its messages.
fn internal_package(ty: &ResourceType) -> &str {
    if ty.group.is_empty() { "core" } else { ty.group.split('.').next().unwrap_or(&ty.group) }
}

/// Returns a string member; empty and null count as absent.
fn text<'a>(object: &'a Object, member: &str) -> Result<Option<&'a str>, String> {
    match object.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok((!text.is_empty()).then_some(text)),
        Some(other) => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{member} of \
             type string",
            go::json_type(other)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: (&str, &str, &str), content_type: Option<&str>, body: &str) -> Result<Object, String> {
        let registry = Registry::builtin();
        let ty = registry.find(path.0, path.1, path.2).expect("a built-in type");
        read_object(&registry, &ty, content_type, body.as_bytes())
            .map_err(|status| format!("{} {}", status.code, status.message))
    }

    const CONFIG_MAPS: (&str, &str, &str) = ("", "v1", "configmaps");

    /// Goal: bodies of other types, or that are no object, are refused. Method: a table of body and answer.
    #[test]
    fn bodies_that_are_no_such_object_are_refused() {
        let table = [
            (
                r#"{"kind":"Secret","apiVersion":"v1"}"#,
                "400 Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to \
                 (core.ConfigMap): unknown conversion",
            ),
            (
                r#"{"kind":"ConfigMap","apiVersion":"v2"}"#,
                "400 ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered \
                 for version \"v2\" in scheme \"built-in\"",
            ),
            (
                r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
                "400 Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to \
                 (core.ConfigMap): unknown conversion",
            ),
            (
                r#"{"metadata":{"annotations":{"foo":["bar"]}}}"#,
                "400 ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal array into \
                 Go struct field ObjectMeta.metadata.annotations of type string",
            ),
            (
                "{bad",
                "400 the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json \
                 parse error: invalid character 'b' looking for beginning of object key string",
            ),
            (
                "[]",
                "400 the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json \
                 parse error: json: cannot unmarshal array into an object",
            ),
            (
                r#"{"kind":7}"#,
                "400 the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json \
                 parse error: json: cannot unmarshal number into Go struct field .kind of type string",
            ),
        ];
        for (body, answer) in table {
            assert_eq!(read(CONFIG_MAPS, None, body).expect_err(body), answer);
        }
    }

    #[test]
    fn kind_and_api_version_may_be_left_out() {
        let object = read(("apps", "v1", "deployments"), None, r#"{"metadata":{"name":"a"}}"#).expect("an object");
        assert_eq!((object["kind"].as_str(), object["apiVersion"].as_str()), (Some("Deployment"), Some("apps/v1")));
    }

    #[test]
    fn yaml_reads_as_manifests_are_written() {
        let body = "kind: ConfigMap\nmetadata: {name: y}\ndata:\n  mode: 0644\n  text: \"true\"\n  flag: true\n";
        let object = read(CONFIG_MAPS, Some("application/yaml; charset=utf-8"), body).expect("an object");
        assert_eq!(object["data"]["mode"], 0o644);
        assert_eq!((&object["data"]["text"], &object["data"]["flag"]), (&Value::from("true"), &Value::from(true)));
        assert_eq!(object["metadata"]["name"], "y");
        let error = read(CONFIG_MAPS, Some("application/yaml"), "a: [secret\nb: {").expect_err("not YAML");
        assert!(error.contains("yaml parse error at line") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn other_media_types_are_refused() {
        for content_type in ["text/plain", "application/cbor"] {
            let refused = read(CONFIG_MAPS, Some(content_type), "{}").expect_err(content_type);
            let start = "415 the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml";
            assert!(refused.starts_with(start), "{refused}");
        }
        for content_type in ["application/json", "Application/JSON; charset=utf-8", ""] {
            assert!(read(CONFIG_MAPS, Some(content_type), "{}").is_ok(), "{content_type}");
        }
    }
}
