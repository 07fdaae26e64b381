//! Protobuf form of the document of `/openapi/v2`, which client-go's `OpenAPISchema` asks for and Argo CD reads.
//!
//! Source: gnostic `openapiv2/OpenAPIv2.proto`. Members that a message has no field for are its vendor extensions.

use bytes::Bytes;
use informer_serving::protobuf::{VARINT, put_bytes, put_tag, put_varint};
use serde_json::{Map, Value};

type JsonMembers = Map<String, Value>;

/// Encodes a document.
///
/// Cost: a copy of each part for each level that it is in.
pub fn document(document: &Value) -> Bytes {
    let mut out = ProtobufMessage::default();
    out.text(1, &document["swagger"]);
    let mut info = within(1, &document["info"]["title"]);
    info.text(2, &document["info"]["version"]);
    out.message(2, &info);
    out.message(8, &named(2, &document["paths"], path));
    out.message(9, &named(1, &document["definitions"], schema));
    out.0.into()
}

/// A message's bytes.
#[derive(Default)]
struct ProtobufMessage(Vec<u8>);

/// Wire type of doubles.
const FIXED64: u32 = 1;

impl ProtobufMessage {
    fn varint(&mut self, field: u32, number: u64) {
        put_tag(field, VARINT, &mut self.0);
        put_varint(number, &mut self.0);
    }

    fn message(&mut self, field: u32, message: &Self) {
        put_bytes(field, &message.0, &mut self.0);
    }

    /// Adds a text, or each of a list of texts.
    fn text(&mut self, field: u32, value: &Value) {
        if let Some(text) = value.as_str() {
            put_bytes(field, text.as_bytes(), &mut self.0);
        }
        items(value).for_each(|item| self.text(field, item));
    }

    fn bool(&mut self, field: u32, value: &Value) {
        if *value == true {
            self.varint(field, 1);
        }
    }

    fn integer(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_i64() {
            self.varint(field, number.cast_unsigned());
        }
    }

    fn double(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_f64() {
            put_tag(field, FIXED64, &mut self.0);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Adds any value, as YAML.
    fn any(&mut self, field: u32, value: &Value) {
        self.message(field, &within(2, &value.to_string().into()));
    }

    /// Adds a vendor extension.
    fn extension(&mut self, field: u32, name: &str, value: &Value) {
        let mut extension = within(1, &name.into());
        extension.any(2, value);
        self.message(field, &extension);
    }

    /// Adds each of a list of parameters.
    fn parameters(&mut self, field: u32, value: &Value) {
        items(value).for_each(|item| self.message(field, &parameter(item)));
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A message of a text or a list of texts.
fn within(field: u32, value: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(field, value);
    out
}

/// A message of one message.
fn around(field: u32, inner: &ProtobufMessage) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.message(field, inner);
    out
}

/// A map, as a list of names and values.
fn named(field: u32, values: &Value, encode: impl Fn(&JsonMembers) -> ProtobufMessage) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, value) in values.as_object().into_iter().flatten() {
        let Value::Object(members) = value else { continue };
        let mut entry = within(1, &name.as_str().into());
        entry.message(2, &encode(members));
        out.message(field, &entry);
    }
    out
}

fn schema(members: &JsonMembers) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, value) in members {
        match &**name {
            "$ref" => out.text(1, value),
            "format" => out.text(2, value),
            "title" => out.text(3, value),
            "description" => out.text(4, value),
            "default" => out.any(5, value),
            "multipleOf" => out.double(6, value),
            "maximum" => out.double(7, value),
            "exclusiveMaximum" => out.bool(8, value),
            "minimum" => out.double(9, value),
            "exclusiveMinimum" => out.bool(10, value),
            "maxLength" => out.integer(11, value),
            "minLength" => out.integer(12, value),
            "pattern" => out.text(13, value),
            "maxItems" => out.integer(14, value),
            "minItems" => out.integer(15, value),
            "uniqueItems" => out.bool(16, value),
            "maxProperties" => out.integer(17, value),
            "minProperties" => out.integer(18, value),
            "required" => out.text(19, value),
            "enum" => items(value).for_each(|item| out.any(20, item)),
            "additionalProperties" => out.message(21, &additional(value)),
            "type" => out.message(22, &within(1, value)),
            "items" => out.message(23, &around(1, &inner(value))),
            "properties" => out.message(25, &named(1, value, schema)),
            "example" => out.any(30, value),
            "externalDocs" => {
                let mut docs = within(1, &value["description"]);
                docs.text(2, &value["url"]);
                out.message(29, &docs);
            }
            name => out.extension(31, name, value),
        }
    }
    out
}

fn inner(value: &Value) -> ProtobufMessage {
    value.as_object().map(schema).unwrap_or_default()
}

/// A schema, or whether there may be any.
fn additional(value: &Value) -> ProtobufMessage {
    if value.is_object() {
        return around(1, &inner(value));
    }
    let mut out = ProtobufMessage::default();
    // `false` is no default here: without a field it would be neither.
    out.varint(2, (*value == true).into());
    out
}

fn path(members: &JsonMembers) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, value) in members {
        let field = match &**name {
            "get" => 2,
            "put" => 3,
            "post" => 4,
            "delete" => 5,
            "patch" => 8,
            _ => {
                out.parameters(9, value);
                continue;
            }
        };
        if let Value::Object(members) = value {
            out.message(field, &operation(members));
        }
    }
    out
}

fn operation(members: &JsonMembers) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, value) in members {
        match &**name {
            "tags" => out.text(1, value),
            "description" => out.text(3, value),
            "operationId" => out.text(5, value),
            "produces" => out.text(6, value),
            "consumes" => out.text(7, value),
            "parameters" => out.parameters(8, value),
            "responses" => out.message(9, &named(1, value, response)),
            name => out.extension(13, name, value),
        }
    }
    out
}

fn response(members: &JsonMembers) -> ProtobufMessage {
    let member = |name| members.get(name).unwrap_or(&Value::Null);
    let mut out = within(1, member("description"));
    out.message(2, &around(1, &inner(member("schema"))));
    around(1, &out)
}

/// A parameter in the body, in the query or in the path: three messages, whose fields have numbers of their own.
fn parameter(parameter: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    if parameter["in"] == "body" {
        out.text(2, &parameter["name"]);
        out.text(3, &parameter["in"]);
        out.bool(4, &parameter["required"]);
        out.message(5, &inner(&parameter["schema"]));
        return around(1, &around(1, &out));
    }
    let (form, ty, unique) = if parameter["in"] == "path" { (4, 5, 19) } else { (3, 6, 20) };
    out.bool(1, &parameter["required"]);
    out.text(2, &parameter["in"]);
    out.text(3, &parameter["description"]);
    out.text(4, &parameter["name"]);
    out.text(ty, &parameter["type"]);
    out.bool(unique, &parameter["uniqueItems"]);
    around(1, &around(2, &around(form, &out)))
}
