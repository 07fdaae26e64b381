//! Writes as text, and the named positions they produce.

use std::collections::BTreeMap;

use informer_serving::continue_token::{ContinueToken, Position};

use crate::{
    http::Client,
    objects::{Object, configmap, namespace, node, pod, replica_set, secret},
};

/// Positions by name.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<String, u64>);

impl Marks {
    /// Executes one line of a script.
    pub(super) async fn write(&mut self, client: &Client, line: &str) {
        let line = Line::parse(line);
        let position = match line.verb {
            Verb::List => client.get(&self.path(line.what)).await.with_code(200).resource_version(),
            Verb::Create => client.create(&line.object()).await,
            Verb::Update => client.update(&line.object()).await,
            Verb::Delete => client.remove(&line.object()).await,
        };
        if !matches!(line.verb, Verb::List) {
            // A consistent read waits until the cache has the write, which a read at `resourceVersion=0` does not.
            client.get(&line.object().path()).await;
        }
        self.set(line.mark, position);
    }

    /// Names a position.
    pub(super) fn set(&mut self, mark: &str, position: u64) {
        assert!(self.0.insert(mark.to_owned(), position).is_none(), "{mark} is a mark already");
    }

    /// The position of a name.
    pub(super) fn of(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Replaces `{NAME}`, `{NAME+1}` and `{NAME-1}`, and `@NAME`, by their positions. Relations (`@>=`) stay.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '@']) {
            let (before, tail) = rest.split_at(at);
            out.push_str(before);
            let braces = tail.starts_with('{');
            let inner = &tail[1..];
            let end = inner.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || "+-".contains(c)));
            let (name, after) = inner.split_at(end.unwrap_or(inner.len()));
            match self.value(name) {
                Some(value) if braces && after.starts_with('}') => {
                    out.push_str(&value.to_string());
                    rest = &after[1..];
                }
                Some(value) if !braces => {
                    out.push_str(&format!("@{value}"));
                    rest = after;
                }
                Some(_) | None => {
                    out.push_str(&tail[..1]);
                    rest = inner;
                }
            }
        }
        out + rest
    }

    fn value(&self, expression: &str) -> Option<u64> {
        let (name, offset) = match expression.find(['+', '-']) {
            Some(at) => (&expression[..at], expression[at..].parse().ok()?),
            None => (expression, 0),
        };
        self.of(name)?.checked_add_signed(offset)
    }

    /// Path of a request: `ns/pods/name?query`, or a path that starts with a slash.
    pub(super) fn path(&self, ask: &str) -> String {
        let ask = self.fill(ask);
        let (place, query) = ask.split_once('?').unwrap_or((&ask, ""));
        let path = if place.starts_with('/') {
            place.to_owned()
        } else {
            let segments: Vec<&str> = place.split('/').collect();
            let at = segments.iter().position(|segment| prefix(segment).is_some());
            let at = at.unwrap_or_else(|| panic!("{ask:?} names no resource"));
            let prefix = prefix(segments[at]).unwrap_or_default();
            let inside = segments[..at].iter().map(|namespace| format!("/namespaces/{namespace}")).collect::<String>();
            format!("{prefix}{inside}/{}", segments[at..].join("/"))
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", escape(&token(value))),
            None => pair.to_owned(),
        });
        let query = pairs.collect::<Vec<_>>().join("&");
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }
}

/// One line of a script: `MARK = create pod ns/name key=value...`, or `MARK = list pods`.
pub(super) struct Line<'a> {
    pub(super) mark: &'a str,
    pub(super) verb: Verb,
    /// The kind of an object, or the path to list.
    pub(super) what: &'a str,
    /// The object's key; empty for a list.
    pub(super) key: &'a str,
    pub(super) attributes: Vec<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    List,
    Create,
    Update,
    Delete,
}

impl<'a> Line<'a> {
    pub(super) fn parse(line: &'a str) -> Self {
        let (mark, rest) = line.split_once(" = ").unwrap_or_else(|| panic!("{line:?} names no mark"));
        let mut words = rest.split(' ');
        let verb = match words.next().unwrap_or_default() {
            "list" => Verb::List,
            "create" => Verb::Create,
            "update" => Verb::Update,
            "delete" => Verb::Delete,
            other => panic!("{line:?}: what is {other:?}?"),
        };
        let (what, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Self { mark, verb, what, key, attributes: words.collect() }
    }

    /// The object to write.
    pub(super) fn object(&self) -> Object {
        object(self.what, self.key, self.attributes.iter().copied())
    }
}

/// Path prefix of the API group and version that serves a plural.
fn prefix(plural: &str) -> Option<&'static str> {
    match plural {
        "pods" | "configmaps" | "secrets" | "nodes" | "namespaces" | "foos" => Some("/api/v1"),
        "replicasets" | "deployments" => Some("/apis/apps/v1"),
        _ => None,
    }
}

fn object<'a>(kind: &str, key: &str, attributes: impl Iterator<Item = &'a str>) -> Object {
    let (place, name) = key.split_once('/').unwrap_or(("", key));
    let mut object = match kind {
        "pod" => pod(name),
        "configmap" => configmap(name),
        "secret" => secret(name),
        "replicaset" => replica_set(name),
        "node" => node(name),
        "namespace" => namespace(name),
        other => panic!("no {other} can be written"),
    };
    if !place.is_empty() {
        object = object.namespace(place);
    }
    for attribute in attributes {
        let (key, value) = attribute.split_once('=').unwrap_or_else(|| panic!("{attribute:?} is no attribute"));
        object = match key {
            "k" => object.data(value),
            "node" => object.node(value),
            label => object.label(label, value),
        };
    }
    object
}

/// Encodes `token(1005/ns/name$)` as a continue token; returns any other text unchanged.
fn token(text: &str) -> String {
    let Some(inner) = text.strip_prefix("token(").and_then(|text| text.strip_suffix(')')) else {
        return text.to_owned();
    };
    let (position, start) = inner.split_once('/').unwrap_or_else(|| panic!("{text:?} is no token"));
    let resource_version = position.parse().map_or(Position::Latest, Position::At);
    ContinueToken { resource_version, start: start.replace('$', "\0") }.encode()
}

fn escape(value: &str) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
