//! Parses the generated sources of k8s-openapi and k8s-pb, line by line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

/// Module of the Kubernetes version in k8s-openapi that the server is built with.
const VERSION: &str = "v1_36";

/// A definition of k8s-openapi.
#[derive(Default)]
pub(crate) struct Definition {
    /// Such as `io.k8s.api.core.v1.PodSpec`.
    pub(crate) name: String,
    /// The apiVersion of a kind.
    pub(crate) api_version: Option<String>,
    /// The JSON schema; references are paths of definitions.
    pub(crate) schema: Value,
    /// JSON names of members by their Rust names.
    pub(crate) json: BTreeMap<String, String>,
    /// Types of members by their Rust names.
    types: BTreeMap<String, String>,
    /// JSON names of required members.
    pub(crate) required: BTreeSet<String>,
    /// Rust names of members with their merge strategy.
    merges: Vec<(String, Merge)>,
}

/// The strategy of `DeepMerge` for a list or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Atomic,
    AtomicMap,
    Set,
    /// Rust names of the keys.
    Keys(Vec<String>),
}

/// All definitions by folder and Rust name: `api/core/v1/PodSpec`.
pub(crate) struct Definitions(BTreeMap<String, Definition>);

impl Definitions {
    pub(crate) fn read(source: &Path) -> Self {
        let mut all = Self(BTreeMap::new());
        let root = source.join(VERSION);
        each_file(&root, &mut |file| {
            let folder = file.parent().and_then(|folder| folder.strip_prefix(&root).ok()).expect("is below the root");
            let text = fs::read_to_string(file).expect("a readable source");
            if let (Some(name), Some(definition)) = (type_name(&text), definition(&text)) {
                all.0.insert(format!("{}/{name}", folder.display()), definition);
            }
        });
        assert!(all.0.len() > 500, "the definitions were found");
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Definition)> {
        self.0.iter().map(|(path, definition)| (path.as_str(), definition))
    }

    /// Finds a definition by its path; k8s-pb writes `Json` for k8s-openapi's `JSON`.
    pub(crate) fn find(&self, path: &str) -> Option<&Definition> {
        self.0
            .get(path)
            .or_else(|| self.iter().find(|(other, _)| other.eq_ignore_ascii_case(path)).map(|(_, found)| found))
    }

    /// JSON names of `definition`'s members with their merge strategy; keys in JSON too.
    pub(crate) fn merges(&self, definition: &Definition) -> Vec<(String, Merge)> {
        let json = |definition: &Definition, name: &str| {
            // A key in the item's metadata: its names in Rust and in JSON are equal.
            if name.contains('.') {
                return name.to_owned();
            }
            definition.json.get(name).unwrap_or_else(|| panic!("{}: no {name}", definition.name)).clone()
        };
        let translate = |(member, merge): &(String, Merge)| {
            let merge = match merge {
                Merge::Keys(keys) => {
                    let ty = definition.types.get(member).expect("every member has a type");
                    let item = self.item(ty).unwrap_or_else(|| panic!("{}.{member}: no {ty}", definition.name));
                    Merge::Keys(keys.iter().map(|key| json(item, key)).collect())
                }
                Merge::Atomic | Merge::AtomicMap | Merge::Set => merge.clone(),
            };
            (json(definition, member), merge)
        };
        definition.merges.iter().map(translate).collect()
    }

    /// The definition of the items of a list type.
    fn item(&self, ty: &str) -> Option<&Definition> {
        let path = ty.split("crate::").nth(1)?.trim_end_matches(['>', ',']);
        self.0.get(&path.replace("::", "/"))
    }
}

fn each_file(folder: &Path, then: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            each_file(&path, then);
        } else {
            then(&path);
        }
    }
}

fn type_name(text: &str) -> Option<&str> {
    let line =
        text.lines().find_map(|line| line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum ")))?;
    line.split(|c: char| !c.is_alphanumeric()).next()
}

/// The text between the first two quotes.
fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}

fn definition(text: &str) -> Option<Definition> {
    let mut found = Definition { schema: schema(text)?, ..Definition::default() };
    let mut lines = text.lines().map(str::trim).peekable();
    let mut in_required = false;
    while let Some(line) = lines.next() {
        if let Some((member, ty)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": ")) {
            found.types.insert(member.to_owned(), ty.to_owned());
        } else if let Some((name, member)) = line.split_once(" => Field::Key_") {
            let name = quoted(name)?.to_owned();
            found.json.insert(member.trim_end_matches(',').to_owned(), name);
        } else if line.starts_with("const API_VERSION: ") {
            found.api_version = quoted(line).map(str::to_owned);
        } else if line.starts_with("fn schema_name()") {
            found.name = quoted(lines.next()?)?.to_owned();
        } else if line == "\"required\": [" {
            in_required = true;
        } else if in_required {
            match quoted(line) {
                Some(name) => found.required.extend([name.to_owned()]),
                None => in_required = false,
            }
        } else if let Some(call) = line.strip_prefix("crate::merge_strategies::") {
            let argument = || call.split_once('(').map(|(_, rest)| rest).filter(|rest| !rest.is_empty());
            let member = argument().unwrap_or_else(|| lines.next().unwrap_or_default());
            // The values of maps are merged by separate calls.
            let Some(member) = member.strip_prefix("&mut self.").and_then(|rest| rest.split(',').next()) else {
                continue;
            };
            let merge = match call.split('(').next()? {
                "list::atomic" => Merge::Atomic,
                "list::set" => Merge::Set,
                "list::map" => Merge::Keys(keys(lines.nth(1)?)),
                "map::atomic" => Merge::AtomicMap,
                "map::granular" => continue,
                other => panic!("a strategy that nobody knew: {other}"),
            };
            found.merges.push((member.to_owned(), merge));
        }
    }
    (!found.name.is_empty()).then_some(found)
}

/// Parses the argument of `json_schema!`: JSON with commas before closing brackets, and calls for references.
fn schema(text: &str) -> Option<Value> {
    let (_, body) = text.split_once("crate::schemars::json_schema!(")?;
    let mut json = String::new();
    for line in body.lines().map(str::trim) {
        let line = match line {
            // The last line of the macro's argument.
            "})" => "}".to_owned(),
            "schema_obj" => continue,
            _ => schema_line(line),
        };
        if line.starts_with(['}', ']']) && json.ends_with(',') {
            json.pop();
        }
        json.push_str(&line);
        if line == "}" {
            break;
        }
    }
    Some(serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

/// Converts a line of Rust to JSON: `"a": ({`, the two lines that follow it, `"a": (__gen.subschema_for::<crate::b::C>()),`
/// or JSON.
fn schema_line(line: &str) -> String {
    let called = line.split_once("__gen.subschema_for::<crate::").map(|(before, rest)| {
        let (path, _) = rest.split_once(">()").expect("a call");
        (before, format!("\"$ref\": \"{}\"", path.replace("::", "/")))
    });
    if let Some((before, reference)) = called {
        return match before {
            "let mut schema_obj = " => format!("{reference},"),
            _ => format!("{}{{{reference}}},", before.trim_end_matches('(')),
        };
    }
    let inserted = line.strip_prefix("schema_obj.ensure_object().insert(");
    match inserted.and_then(|call| call.strip_suffix(".into());")?.split_once(".into(), ")) {
        Some((name, value)) => format!("{name}: {value}"),
        None if line == "})," => "},".to_owned(),
        None => line.strip_suffix("({").map_or_else(|| line.to_owned(), |before| format!("{before}{{")),
    }
}

/// Parses the keys of `&[|lhs, rhs| lhs.a == rhs.a, |lhs, rhs| …],`.
fn keys(line: &str) -> Vec<String> {
    line.split("== rhs.").skip(1).map(|rest| rest.split([',', ']']).next().unwrap_or_default().to_owned()).collect()
}

/// A field of a message of k8s-pb.
pub(crate) struct Field {
    pub(crate) number: u32,
    /// Rust name, without the prefix of a raw identifier.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) label: Label,
}

/// The type of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar(&'static str),
    /// By folder and name: `api/core/v1/PodSpec`.
    Message(String),
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Once,
    Repeated,
    Map,
}

/// All messages by folder and name.
pub(crate) struct Messages(pub(crate) BTreeMap<String, Vec<Field>>);

impl Messages {
    pub(crate) fn read(source: &Path, definitions: &Definitions) -> Self {
        let mut all = Self(BTreeMap::new());
        each_file(source, &mut |file| {
            let folder =
                file.parent().and_then(|folder| folder.strip_prefix(source).ok()).expect("is below the source");
            let folder = folder.display().to_string();
            messages(&folder, &fs::read_to_string(file).expect("a readable source"), &mut all.0);
        });
        assert!(definitions.iter().filter(|(path, _)| all.0.contains_key(*path)).count() > 400, "they go together");
        all
    }
}

fn messages(folder: &str, text: &str, all: &mut BTreeMap<String, Vec<Field>>) {
    let mut path = String::new();
    let mut attribute = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            path = format!("{folder}/{name}");
            all.insert(path.clone(), Vec::new());
            continue;
        }
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("#[prost(") {
            attribute = Some(rest.to_owned());
        } else if let (Some((name, ty)), Some(attribute)) =
            (line.strip_prefix("pub ").and_then(|line| line.split_once(':')), attribute.take())
        {
            // A long type continues on the next lines.
            let mut ty = ty.trim().to_owned();
            while ty.is_empty() || ty.matches('<').count() > ty.matches('>').count() {
                ty.push_str(lines.next().unwrap_or_else(|| panic!("{path}.{name} does not end")).trim());
            }
            all.entry(path.clone()).or_default().push(field(folder, &attribute, name, &ty));
        }
    }
}

/// Parses `string, optional, tag = "2")]` with the member's Rust name and type.
fn field(folder: &str, attribute: &str, name: &str, ty: &str) -> Field {
    let number = attribute.split("tag = \"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok());
    let (label, scalar) = match attribute.strip_prefix("btree_map = \"") {
        Some(rest) => (Label::Map, rest.split(", ").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()),
        None => {
            let repeated = attribute.contains(" repeated,");
            (
                if repeated { Label::Repeated } else { Label::Once },
                attribute.split([',', ' ']).next().unwrap_or_default(),
            )
        }
    };
    let ty = match scalar {
        "message" => Type::Message(message(folder, ty)),
        "string" => Type::Scalar("string"),
        "bool" => Type::Scalar("bool"),
        "int32" => Type::Scalar("int32"),
        "int64" => Type::Scalar("int64"),
        "double" => Type::Scalar("double"),
        "bytes" => Type::Scalar("bytes"),
        other => panic!("{folder} {name}: a type that nobody knew: {other}"),
    };
    Field {
        number: number.expect("every field has a number"),
        name: name.trim_start_matches("r#").to_owned(),
        ty,
        label,
    }
}

/// The path of the innermost type: `::core::option::Option<super::super::x::Y>` in `a/b/c` is `a/x/Y`.
fn message(folder: &str, ty: &str) -> String {
    let inner = ty.trim_end_matches(['>', ',']).rsplit(['<', ' ', ',']).next().unwrap_or_default();
    assert!(!inner.is_empty(), "{folder}: {ty}");
    let mut folders: Vec<&str> = folder.split('/').collect();
    for part in inner.split("::") {
        match part {
            "super" => drop(folders.pop()),
            part => folders.push(part),
        }
    }
    folders.join("/")
}
