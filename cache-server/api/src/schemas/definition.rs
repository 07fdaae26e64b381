//! Definitions of the built-in types, from `definitions.txt`.
//!
//! INVARIANT: the first use makes an index of the table, about 80 KiB. Schemas are made for each call and not kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use super::PREFIX;

/// A definition, as slices of the table.
pub(crate) struct BuiltinDefinition {
    /// Such as `io.k8s.api.core.v1.PodSpec`.
    pub(crate) name: &'static str,
    /// The apiVersion of a kind that clients can send; `-` for other definitions.
    api_version: &'static str,
    ty: &'static str,
    description: &'static str,
    /// One line for each member.
    members: &'static str,
}

/// A line of the table about a member.
struct MemberLine {
    name: &'static str,
    is_required: bool,
    ty: &'static str,
    description: &'static str,
}

/// All definitions, in the order of their names.
pub(crate) fn all() -> impl Iterator<Item = &'static BuiltinDefinition> {
    DEFINITIONS.by_name.values()
}

/// The definition with this name.
pub(crate) fn find(name: &str) -> Option<&'static BuiltinDefinition> {
    DEFINITIONS.by_name.get(name)
}

/// Name of the definition of a kind that clients can send.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    DEFINITIONS.by_kind.get(&(api_version, kind)).copied()
}

struct BuiltinDefinitions {
    by_name: BTreeMap<&'static str, BuiltinDefinition>,
    /// Names by apiVersion and kind.
    by_kind: HashMap<(&'static str, &'static str), &'static str>,
}

static DEFINITIONS: LazyLock<BuiltinDefinitions> = LazyLock::new(|| {
    let paragraphs = include_str!("definitions.txt").split("\n\n").filter(|text| !text.starts_with('#'));
    let by_name: BTreeMap<_, _> =
        paragraphs.filter_map(definition).map(|definition| (definition.name, definition)).collect();
    let sent = by_name.values().filter(|definition| definition.api_version != "-");
    let kind = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let by_kind = sent.map(|definition| ((definition.api_version, kind(definition.name)), definition.name)).collect();
    BuiltinDefinitions { by_name, by_kind }
});

/// Parses a line `name apiVersion type description`, and keeps the lines that follow.
fn definition(paragraph: &'static str) -> Option<BuiltinDefinition> {
    let (head, members) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
    let mut words = head.splitn(4, ' ');
    Some(BuiltinDefinition {
        name: words.next()?,
        api_version: words.next()?,
        ty: words.next()?,
        description: words.next().unwrap_or_default(),
        members,
    })
}

/// Parses a line `name type description`; `!` after the name marks required members.
fn member(line: &'static str) -> Option<MemberLine> {
    let mut words = line.splitn(3, ' ');
    let (name, ty) = (words.next()?, words.next()?);
    let required = name.strip_suffix('!');
    Some(MemberLine {
        name: required.unwrap_or(name),
        is_required: required.is_some(),
        ty,
        description: words.next().unwrap_or_default(),
    })
}

impl BuiltinDefinition {
    /// The JSON schema, with references below [`PREFIX`]. Cost: parses the lines of the definition.
    pub(crate) fn schema(&self) -> Value {
        self.schema_with(described)
    }

    /// Like [`schema`](Self::schema), without descriptions, which are most of its text.
    pub(crate) fn undescribed_schema(&self) -> Value {
        self.schema_with(|ty, _| schema(ty))
    }

    fn schema_with(&self, schema_of: impl Fn(&str, &str) -> Map<String, Value>) -> Value {
        let (mut members, mut required) = (Map::new(), Vec::new());
        for member in self.members() {
            if member.is_required {
                required.push(Value::from(member.name));
            }
            members.insert(member.name.to_owned(), Value::Object(schema_of(member.ty, member.description)));
        }
        let mut schema = schema_of(self.ty, self.description);
        if !members.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(members));
        }
        if !required.is_empty() {
            schema.insert("required".to_owned(), Value::Array(required));
        }
        Value::Object(schema)
    }

    /// Names of the definitions that this one refers to; a name can come twice.
    pub(crate) fn references(&self) -> impl Iterator<Item = &'static str> {
        self.types().filter(|ty| is_name(ty))
    }

    /// The innermost types of the members and of the definition itself.
    fn types(&self) -> impl Iterator<Item = &'static str> {
        let types = self.members().map(|member| member.ty).chain([self.ty]);
        types.flat_map(|ty| ty.split('|')).map(|ty| ty.trim_start_matches(['[', ']', '{', '}']))
    }

    fn members(&self) -> impl Iterator<Item = MemberLine> {
        self.members.lines().filter_map(member)
    }
}

fn is_name(ty: &str) -> bool {
    ty.contains('.')
}

fn described(ty: &str, description: &str) -> Map<String, Value> {
    let mut schema = schema(ty);
    if !description.is_empty() {
        schema.insert("description".to_owned(), unescape(description).into());
    }
    schema
}

/// The schema of a type: `string`, `integer:int32` with a format, `[]` before the type of items, `{}` before the type of
/// a map's values, the name of a definition, `int-or-string`, or choices between `|`.
fn schema(ty: &str) -> Map<String, Value> {
    let inner = |ty: &str| Value::Object(schema(ty));
    let members: Vec<(&str, Value)> = if ty.contains('|') {
        vec![("oneOf", ty.split('|').map(inner).collect())]
    } else if let Some(item) = ty.strip_prefix("[]") {
        vec![("type", "array".into()), ("items", inner(item))]
    } else if let Some(values) = ty.strip_prefix("{}") {
        vec![("type", "object".into()), ("additionalProperties", inner(values))]
    } else if is_name(ty) {
        vec![("$ref", format!("{PREFIX}{ty}").into())]
    } else if ty == "int-or-string" {
        vec![("x-kubernetes-int-or-string", true.into())]
    } else if let Some((ty, format)) = ty.split_once(':') {
        vec![("type", ty.into()), ("format", format.into())]
    } else {
        vec![("type", ty.into())]
    };
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Replaces `\n` and `\\`.
fn unescape(text: &str) -> String {
    let parts: Vec<String> = text.split("\\\\").map(|part| part.replace("\\n", "\n")).collect();
    parts.join("\\")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_in_the_table_is_known() {
        const SCALARS: [&str; 9] = [
            "boolean",
            "int-or-string",
            "integer:int32",
            "integer:int64",
            "number:double",
            "object",
            "string",
            "string:byte",
            "string:date-time",
        ];
        assert_eq!(all().count(), 511);
        for definition in all() {
            for ty in definition.types() {
                assert!(SCALARS.contains(&ty) || find(ty).is_some(), "{}: {ty}", definition.name);
            }
        }
    }

    #[test]
    fn lines_become_schemas() {
        let text =
            "io.k8s.a.Port v1 object A port.\\nC:\\\\n.\nnumber! integer:int32 Its number.\nsub []{}io.k8s.a.Port";
        let port = definition(text).expect("a definition");
        let name = format!("{PREFIX}io.k8s.a.Port");
        let sub = json!({"type": "array", "items": {"type": "object", "additionalProperties": {"$ref": name}}});
        let number = json!({"type": "integer", "format": "int32", "description": "Its number."});
        let expected = json!({
            "type": "object",
            "description": "A port.\nC:\\n.",
            "required": ["number"],
            "properties": {"number": number, "sub": sub},
        });
        assert_eq!(port.schema(), expected);
        assert_eq!(port.references().collect::<Vec<_>>(), ["io.k8s.a.Port"]);
        let choice = definition("io.k8s.a.Any - []string|boolean").expect("a definition");
        let choices = json!([{"type": "array", "items": {"type": "string"}}, {"type": "boolean"}]);
        assert_eq!(choice.schema(), json!({ "oneOf": choices }));
    }

    #[test]
    fn kinds_that_clients_send_have_definitions() {
        assert_eq!(of_kind("apps/v1", "Deployment"), Some("io.k8s.api.apps.v1.Deployment"));
        assert_eq!(of_kind("v1", "DeleteOptions"), Some("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"));
        assert_eq!(of_kind("v1", "PodSpec"), None);
        assert_eq!(DEFINITIONS.by_kind.len(), 72);
    }
}
