//! Values of expressions. Those of an object are read through its schema when an expression needs them.

use std::{net::IpAddr, ops::Deref, rc::Rc, sync::LazyLock};

use api_rules::object::Object;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::{
    super::{EMBEDDED, INT_OR_STRING, SchemaObject, flag, formats, properties},
    eval::{Evaluation, EvaluationFailure, EvaluationResult},
    net::{Cidr, Url},
    times,
};

/// A value. Clones share lists, maps and texts.
#[derive(Clone)]
pub(crate) enum CelValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Rc<[u8]>),
    /// A list of an object.
    Items(TypedItems<'a>),
    /// A list that an expression made.
    List(Rc<Vec<Self>>),
    /// An object in an object.
    Members(TypedMembers<'a>),
    /// A map that an expression made.
    Map(Rc<Vec<(Self, Self)>>),
    Timestamp(Timestamp),
    /// In nanoseconds.
    Duration(i64),
    Type(&'static str),
    Optional(Option<Rc<Self>>),
    /// In billionths.
    Quantity(i128),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Rc<Url>),
    /// A named format of texts.
    Format(&'static str),
    /// A value without a schema: it equals others, and has no other operation.
    Opaque(&'a Json),
}

/// A text of the object or of the expression, or one that an expression made.
#[derive(Clone)]
pub(crate) enum Text<'a> {
    Given(&'a str),
    Made(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// A list, and its schema.
#[derive(Clone, Copy)]
pub(crate) struct TypedItems<'a> {
    pub(super) list: &'a [Json],
    pub(super) schema: &'a SchemaObject,
}

impl<'a> TypedItems<'a> {
    pub(super) fn get(&self, at: usize, evaluation: &mut Evaluation<'a, '_>) -> Option<EvaluationResult<'a>> {
        let item = self.list.get(at)?;
        let schema =
            if is_any(self.schema) { Some(self.schema) } else { self.schema.get("items").and_then(Json::as_object) };
        Some(schema.map_or(Ok(CelValue::Opaque(item)), |schema| evaluation.read(item, schema)))
    }
}

/// An object, and its schema.
#[derive(Clone, Copy)]
pub(crate) struct TypedMembers<'a> {
    pub(super) object: &'a Object,
    pub(super) schema: &'a SchemaObject,
    /// True if it has the members of every Kubernetes object.
    is_whole: bool,
}

/// The schema of values that have none, and of all values in them: their JSON types count.
static ANY: LazyLock<SchemaObject> = LazyLock::new(SchemaObject::new);

fn is_any(schema: &SchemaObject) -> bool {
    std::ptr::eq(schema, &*ANY)
}

static TEXT: LazyLock<SchemaObject> = LazyLock::new(|| schema_of(json!({"type": "string"})));

/// The members of metadata that rules may read.
static METADATA: LazyLock<SchemaObject> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    schema_of(json!({"type": "object", "properties": {"name": text, "generateName": text}}))
});

fn schema_of(schema: Json) -> SchemaObject {
    match schema {
        Json::Object(schema) => schema,
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => SchemaObject::new(),
    }
}

impl<'a> TypedMembers<'a> {
    /// True if its members have names, not keys.
    fn is_object(&self) -> bool {
        self.is_whole || properties(self.schema).is_some()
    }

    /// Returns the schema of a member.
    pub(super) fn schema(&self, name: &str) -> Option<&'a SchemaObject> {
        if is_any(self.schema) {
            return Some(self.schema);
        }
        match name {
            "kind" | "apiVersion" if self.is_whole => return Some(&TEXT),
            "metadata" if self.is_whole => return Some(&METADATA),
            _ => {}
        }
        if self.is_object() {
            return properties(self.schema)?.get(name)?.as_object();
        }
        self.schema.get("additionalProperties")?.as_object()
    }

    /// Returns the member with a key as expressions write it. Null members of objects are absent.
    pub(super) fn get(&self, key: &str, evaluation: &mut Evaluation<'a, '_>) -> Option<EvaluationResult<'a>> {
        let name = if self.is_object() { unescaped(key)? } else { key.to_owned() };
        let value = self.object.get(&name)?;
        if self.is_object() && value.is_null() {
            return None;
        }
        Some(evaluation.read(value, self.schema(&name)?))
    }

    /// Returns the keys of the members with a schema, as expressions write them.
    pub(super) fn keys(&self) -> impl Iterator<Item = Text<'a>> {
        let members = *self;
        self.object.keys().filter(move |name| members.schema(name).is_some()).map(move |name| {
            match members.is_object().then(|| escaped(name)).flatten() {
                Some(escaped) if escaped != **name => Text::Made(escaped.into()),
                _ => Text::Given(name),
            }
        })
    }
}

/// Reads a value through its schema. `is_root` is true for a whole Kubernetes object.
///
/// # Errors
/// A text about data that does not fit the schema.
pub(in super::super) fn typed<'a>(
    value: &'a Json,
    schema: &'a SchemaObject,
    is_root: bool,
) -> Result<CelValue<'a>, EvaluationFailure> {
    let mismatch = |expected: &str| Err(EvaluationFailure::error(format!("invalid data, expected {expected}")));
    if is_any(schema) {
        return Ok(untyped(value));
    }
    if value.is_null() {
        return if flag(schema, "nullable") {
            Ok(CelValue::Null)
        } else {
            Err(EvaluationFailure::error("invalid data, got null for schema with nullable=false"))
        };
    }
    if flag(schema, INT_OR_STRING) {
        return match value {
            Json::String(text) => Ok(CelValue::Text(Text::Given(text))),
            Json::Number(number) => whole(number).map_or_else(|| mismatch("int"), |number| Ok(CelValue::Int(number))),
            Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
                mismatch("XIntOrString value to be either a string or integer")
            }
        };
    }
    match (schema.get("type").and_then(Json::as_str).unwrap_or_default(), value) {
        ("object", Json::Object(object)) => {
            Ok(CelValue::Members(TypedMembers { object, schema, is_whole: is_root || flag(schema, EMBEDDED) }))
        }
        ("array", Json::Array(list)) => Ok(CelValue::Items(TypedItems { list, schema })),
        ("string", Json::String(text)) => formatted(text, schema),
        ("number", Json::Number(number)) => Ok(CelValue::Double(number.as_f64().unwrap_or(f64::NAN))),
        ("integer", Json::Number(number)) => {
            whole(number).map_or_else(|| mismatch("int"), |number| Ok(CelValue::Int(number)))
        }
        ("boolean", Json::Bool(value)) => Ok(CelValue::Bool(*value)),
        ("", value) => Ok(CelValue::Opaque(value)),
        (expected, _) => mismatch(expected),
    }
}

/// Reads a value by its JSON type.
pub(super) fn untyped(value: &Json) -> CelValue<'_> {
    match value {
        Json::Null => CelValue::Null,
        Json::Bool(value) => CelValue::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => CelValue::Int(number),
            None => CelValue::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => CelValue::Text(Text::Given(text)),
        Json::Array(list) => CelValue::Items(TypedItems { list, schema: &ANY }),
        Json::Object(object) => CelValue::Members(TypedMembers { object, schema: &ANY, is_whole: false }),
    }
}

/// Returns the bytes of a text that [`typed`] decodes each time.
pub(super) fn decoded_bytes(value: &Json, schema: &SchemaObject) -> usize {
    let is_decoded = |format: &str| ["duration", "date", "date-time", "byte"].contains(&format);
    let format = schema.get("format").and_then(Json::as_str);
    value.as_str().filter(|_| format.is_some_and(is_decoded)).map_or(0, str::len)
}

/// Reads a text as its format says.
fn formatted<'a>(text: &'a str, schema: &SchemaObject) -> EvaluationResult<'a> {
    match schema.get("format").and_then(Json::as_str) {
        Some("duration") => {
            let parsed = formats::parse_duration(text).map(CelValue::Duration);
            parsed.ok_or_else(|| EvaluationFailure::error(format!("unable to parse {text} as duration")))
        }
        Some("date") => times::parse_date(text).map(CelValue::Timestamp),
        Some("date-time") => times::parse_timestamp(text).map(CelValue::Timestamp),
        Some("byte") => match STANDARD.decode(text) {
            Ok(bytes) => Ok(CelValue::Bytes(bytes.into())),
            Err(_) => Err(EvaluationFailure::error(format!("Invalid byte formatted string {text}"))),
        },
        Some(_) | None => Ok(CelValue::Text(Text::Given(text))),
    }
}

/// Returns a number without a fraction.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| super::conversions::to_int(number.as_f64()?).filter(|_| is_whole(number)))
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Names that are no identifiers in expressions.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

const ESCAPES: [(&str, &str); 4] = [("underscores", "__"), ("dot", "."), ("dash", "-"), ("slash", "/")];

/// True if a variable may have the name.
pub(crate) fn is_identifier(name: &str) -> bool {
    let is_part = |first: char| first.is_ascii_alphanumeric() || first == '_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(is_part)
        && !RESERVED.contains(&name)
        && name != "while"
}

/// Writes the name of a member as an identifier; `None` if there is none.
fn escaped(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) || name == "while" {
        return Some(format!("__{name}__"));
    }
    let (mut out, mut rest) = (String::with_capacity(name.len()), name);
    while let Some(first) = rest.chars().next() {
        if let Some((word, symbol)) = ESCAPES.iter().find(|(_, symbol)| rest.starts_with(symbol)) {
            out.push_str(&format!("__{word}__"));
            rest = &rest[symbol.len()..];
        } else if first.is_ascii_alphanumeric() || first == '_' {
            out.push(first);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// Reads the name of a member from an identifier; `None` for an escape that is none.
fn unescaped(key: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(key.len()), key);
    while let Some(at) = rest.find("__") {
        let (before, escape) = rest.split_at(at);
        let inner = &escape[2..];
        // As in Go's pattern, an escape has at least one letter, and no underscore.
        let Some(length) = inner.find('_').filter(|length| *length > 0 && inner[*length..].starts_with("__")) else {
            out.push_str(before);
            out.push('_');
            rest = &escape[1..];
            continue;
        };
        let word = &inner[..length];
        out.push_str(before);
        match ESCAPES.iter().find(|(known, _)| *known == word) {
            Some((_, symbol)) => out.push_str(symbol),
            None if RESERVED.contains(&word) || word == "while" => {
                return (key.len() == word.len() + 4).then(|| word.to_owned());
            }
            None => return None,
        }
        rest = &inner[length + 2..];
    }
    out.push_str(rest);
    Some(out)
}

impl<'a> CelValue<'a> {
    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Made(text.into()))
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// Returns the length of a list.
    pub(super) fn list_length(&self) -> Option<usize> {
        match self {
            Self::Items(items) => Some(items.list.len()),
            Self::List(items) => Some(items.len()),
            _ => None,
        }
    }

    /// Returns an item of a list.
    pub(super) fn item(&self, at: usize, evaluation: &mut Evaluation<'a, '_>) -> Option<EvaluationResult<'a>> {
        match self {
            Self::Items(items) => items.get(at, evaluation),
            Self::List(items) => items.get(at).cloned().map(Ok),
            _ => None,
        }
    }

    /// Returns the name of the type.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Items(_) | Self::List(_) => "list",
            Self::Members(_) | Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Opaque(_) => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_by_kube_apiserver() {
        for (name, identifier) in [
            ("plain", Some("plain")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("_a", Some("_a")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("a$", None),
            ("", None),
        ] {
            assert_eq!(escaped(name).as_deref(), identifier, "{name}");
            if let Some(identifier) = identifier {
                assert_eq!(unescaped(identifier).as_deref(), Some(name), "{identifier}");
            }
        }
        assert_eq!(unescaped("a__other__b"), None);
        assert_eq!(unescaped("a__b").as_deref(), Some("a__b"));
    }
}
