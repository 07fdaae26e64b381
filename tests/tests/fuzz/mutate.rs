//! Generates requests from the corpus: consistent ones, with more and more mutations.
//!
//! INVARIANT: a generator's output depends only on its seed and on the responses it learnt from.

use fastrand::Rng;
use serde_json::Value;

use super::{
    FuzzRequest,
    corpus::{
        ACCEPTS, COLLECTIONS, CONTENT_TYPES, DOCUMENTS, HEADERS, MEMBERS, METHODS, NAMES, OBJECTS, PARAMETERS, PATCHES,
        SUBRESOURCES, VALUES,
    },
    judge::Came,
};

/// Maximum number of learnt values of each kind: positions, tokens, uids.
const LEARNT_MAX: usize = 64;

/// A generator of requests.
pub(super) struct Generator {
    rng: Rng,
    positions: Vec<String>,
    tokens: Vec<String>,
    uids: Vec<String>,
    /// Requests that set up a fresh server.
    beginnings: Vec<FuzzRequest>,
}

impl Generator {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, positions: Vec::new(), tokens: Vec::new(), uids: Vec::new(), beginnings: beginnings() }
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    /// Returns true once in `n` times.
    fn rarely(&mut self, n: u8) -> bool {
        self.rng.u8(..n) == 0
    }

    pub(super) fn next(&mut self) -> FuzzRequest {
        if let Some(first) = self.beginnings.pop() {
            return first;
        }
        let mut asked = if self.rarely(8) { self.document() } else { self.resource() };
        let mut pairs = Vec::new();
        while self.rng.bool() && pairs.len() < 6 {
            let pair = self.parameter();
            pairs.push(pair);
        }
        if self.rarely(3) {
            pairs.extend(self.watch());
        }
        let query: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", self.escaped(value))).collect();
        if !query.is_empty() {
            let join = if asked.target.contains('?') { '&' } else { '?' };
            asked.target = format!("{}{join}{}", asked.target, query.join("&"));
        }
        if self.rarely(3) {
            let accept = self.one(ACCEPTS);
            let accept = if self.rarely(4) { format!("{accept},{}", self.one(ACCEPTS)) } else { accept.to_owned() };
            asked.headers.push(("accept".to_owned(), accept));
        }
        if self.rarely(5) {
            let (name, values) = self.one(HEADERS);
            asked.headers.push((name.to_owned(), self.one(values).to_owned()));
        }
        if self.rarely(20) {
            asked.method = self.one(METHODS).to_owned();
        }
        if self.rarely(20) {
            let mut target = asked.target.into_bytes();
            self.spoil(&mut target);
            asked.target = String::from_utf8_lossy(&target).into_owned();
        }
        asked
    }

    fn document(&mut self) -> FuzzRequest {
        FuzzRequest { method: "GET".to_owned(), target: self.one(DOCUMENTS).to_owned(), ..FuzzRequest::default() }
    }

    fn resource(&mut self) -> FuzzRequest {
        let (collection, kind, version) = self.one(COLLECTIONS);
        // Prefer the names of existing objects.
        let name = if self.rarely(4) { self.one(NAMES) } else { self.one(&NAMES[..4]) };
        let name = if kind == "CustomResourceDefinition" && self.rng.bool() { "foos.example.com" } else { name };
        let method = self.one(&["GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"]);
        let named = match method {
            "GET" | "DELETE" => self.rng.bool(),
            "POST" => self.rarely(20),
            _ => !self.rarely(20),
        };
        let mut target = collection.to_owned();
        if named {
            target = format!("{target}/{name}");
            if self.rarely(4) {
                target = format!("{target}/{}", self.one(SUBRESOURCES));
            }
        }
        let mut asked = FuzzRequest { method: method.to_owned(), target, ..FuzzRequest::default() };
        let (bodies, usual) = match method {
            "POST" | "PUT" => (OBJECTS, self.one(&CONTENT_TYPES[..4])),
            "PATCH" => (PATCHES, self.one(&CONTENT_TYPES[4..8])),
            "DELETE" if self.rng.bool() => (&OBJECTS[7..8], "application/json"),
            _ => return asked,
        };
        // The collection of definitions accepts definitions.
        let body = if kind == "CustomResourceDefinition" && self.rng.bool() { OBJECTS[5] } else { self.one(bodies) };
        let body = body.replace("KIND", kind).replace("VERSION", version).replace("NAME", name);
        let content_type = if self.rarely(10) { self.one(CONTENT_TYPES) } else { usual };
        asked.body = self.body(&body, content_type);
        if !self.rarely(20) {
            asked.headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        if content_type.contains("apply") && !self.rarely(8) {
            asked.target.push_str("?fieldManager=m");
        }
        asked
    }

    fn body(&mut self, text: &str, content_type: &str) -> Vec<u8> {
        let mut text = text.to_owned();
        if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
            while self.rarely(3) {
                self.change(&mut value, 0);
            }
            text = value.to_string();
            // Insert what a parsed value cannot hold: duplicate members and numbers out of range.
            if self.rarely(10) {
                let raw = self.one(VALUES);
                text = text.replacen("\"x\"", raw, 1);
            }
        }
        let mut bytes = text.into_bytes();
        if content_type.contains("protobuf") && !self.rarely(4) {
            bytes = self.protobuf(&bytes);
        }
        if self.rarely(12) {
            self.spoil(&mut bytes);
        }
        if self.rarely(200) {
            bytes = [b"[".repeat(self.rng.usize(..50_000)), bytes].concat();
        }
        bytes
    }

    /// An envelope of Kubernetes' protobuf around a possible object.
    fn protobuf(&mut self, inner: &[u8]) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| -> Vec<u8> {
            let mut out = vec![number << 3 | 2];
            let mut length = bytes.len();
            while length >= 0x80 {
                out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
                length >>= 7;
            }
            out.push(u8::try_from(length).unwrap_or(0));
            out.extend_from_slice(bytes);
            out
        };
        let metadata = [field(1, b"proto"), field(11, &[field(1, b"app"), field(2, b"x")].concat())].concat();
        let object =
            if self.rng.bool() { [field(1, &metadata), field(2, inner)].concat() } else { field(1, &metadata) };
        let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        let mut out = [b"k8s\0".to_vec(), field(1, &kind), field(2, &object)].concat();
        if self.rarely(2) {
            self.spoil(&mut out);
        }
        out
    }

    /// Changes one place of a JSON value.
    fn change(&mut self, value: &mut Value, depth: u8) {
        let deeper = depth < 8 && !self.rarely(4);
        match value {
            Value::Object(members) if deeper && !members.is_empty() => {
                let at = self.rng.usize(..members.len());
                if self.rarely(6) {
                    let name = self.one(MEMBERS).to_owned();
                    let value = self.value();
                    members.insert(name, value);
                } else if self.rarely(6) {
                    let name = members.keys().nth(at).cloned().unwrap_or_default();
                    members.remove(&name);
                } else if let Some(inner) = members.values_mut().nth(at) {
                    self.change(inner, depth + 1);
                }
            }
            Value::Array(items) if deeper && !items.is_empty() => {
                let at = self.rng.usize(..items.len());
                if self.rarely(4) {
                    let again = items[at].clone();
                    items.push(again);
                } else {
                    self.change(&mut items[at], depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                *value = self.value()
            }
        }
    }

    fn value(&mut self) -> Value {
        if self.rarely(4)
            && let Some(learnt) = self.learnt()
        {
            return Value::String(learnt);
        }
        serde_json::from_str(self.one(VALUES)).unwrap_or(Value::Null)
    }

    fn learnt(&mut self) -> Option<String> {
        let all = [&self.positions, &self.uids, &self.tokens];
        let some = all[self.rng.usize(..all.len())];
        (!some.is_empty()).then(|| some[self.rng.usize(..some.len())].clone())
    }

    /// Damages bytes.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.rng.usize(1..4) {
            let at = self.rng.usize(..=bytes.len());
            match self.rng.u8(..5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.rng.u8(..)),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.rng.u8(..8),
                3 if at < bytes.len() => {
                    let end = self.rng.usize(at..=bytes.len().min(at + 40));
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.extend_from_slice(
                    self.one(&["\0", "\u{feff}", "}", "\"", "%", "&&", "/../", "\r\n", "{", "é"]).as_bytes(),
                ),
            }
        }
    }

    fn parameter(&mut self) -> (String, String) {
        let (name, values) = self.one(PARAMETERS);
        let learnt = match name {
            "resourceVersion" => &self.positions,
            "continue" => &self.tokens,
            _ => return (name.to_owned(), self.one(values).to_owned()),
        };
        if !learnt.is_empty() && !self.rng.u8(..3).is_multiple_of(3) {
            let value = learnt[self.rng.usize(..learnt.len())].clone();
            return (name.to_owned(), self.damaged(value));
        }
        (name.to_owned(), self.one(values).to_owned())
    }

    /// Damages a text once in six times.
    fn damaged(&mut self, text: String) -> String {
        if !self.rarely(6) {
            return text;
        }
        let mut bytes = text.into_bytes();
        self.spoil(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Parameters of a valid watch or paged list.
    fn watch(&mut self) -> Vec<(String, String)> {
        let all: &[&[(&str, &str)]] = &[
            &[("watch", "1")],
            &[("watch", "1"), ("timeoutSeconds", "1")],
            &[
                ("watch", "1"),
                ("allowWatchBookmarks", "true"),
                ("sendInitialEvents", "true"),
                ("resourceVersionMatch", "NotOlderThan"),
            ],
            &[("limit", "1")],
            &[("limit", "2"), ("resourceVersion", "0")],
        ];
        self.one(all).iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn escaped(&mut self, value: &str) -> String {
        let raw = self.rarely(10);
        let mut out = String::new();
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (raw && byte.is_ascii_graphic()) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        out
    }

    /// Learns positions, tokens and uids from a response.
    pub(super) fn learn(&mut self, came: &Came) {
        let text = String::from_utf8_lossy(&came.body);
        for (list, before) in [
            (&mut self.positions, "\"resourceVersion\":\""),
            (&mut self.tokens, "\"continue\":\""),
            (&mut self.uids, "\"uid\":\""),
        ] {
            for part in text.split(before).skip(1).take(4) {
                let value = part.split('"').next().unwrap_or_default().to_owned();
                if list.len() < LEARNT_MAX {
                    list.push(value);
                } else {
                    list[self.rng.usize(..LEARNT_MAX)] = value;
                }
            }
        }
    }
}

/// A definition, and two objects in each collection. The last one is sent first.
fn beginnings() -> Vec<FuzzRequest> {
    let create = |collection: &str, body: String| FuzzRequest {
        method: "POST".to_owned(),
        target: collection.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.into_bytes(),
    };
    let inside = COLLECTIONS.iter().filter(|(path, kind, _)| {
        let cluster = ["Node", "Namespace", "ClusterRole"].contains(kind);
        cluster || path.contains("/namespaces/")
    });
    let objects = inside.flat_map(|(path, kind, version)| {
        [("a", OBJECTS[0]), ("b", OBJECTS[4])].map(|(name, body)| {
            create(path, body.replace("KIND", kind).replace("VERSION", version).replace("NAME", name))
        })
    });
    let mut all: Vec<FuzzRequest> = objects.collect();
    all.push(create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", OBJECTS[5].to_owned()));
    all
}
