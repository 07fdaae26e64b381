//! Rights to write as data: which code and reason a write gets, by its caller. A stock kube-apiserver with its plugin
//! `NodeRestriction` answers each row as expected, and so does this server, but for differences that a row names.
//!
//! Every request is a dry run, so no row changes what another one meets.

mod nodes;
mod roles;
mod signing;
mod verbs;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::grants::Manifest;
use crate::{
    genuine::{ADMIN, token_of},
    http::{Answer, Client},
};

/// Flags of kube-apiserver for the rows, beside those of [`FLAGS`](super::FLAGS).
pub const WRITE_FLAGS: &[&str] = &["--enable-admission-plugins=NodeRestriction"];

/// Place in a body for the uid of the caller's Node.
const OWN_UID: &str = "{own-uid}";

/// Longest time until this server knows the objects of the rows.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);

/// A user and its groups.
pub type WriteUser = (&'static str, &'static [&'static str]);

/// The body of a write.
#[derive(Clone, Debug)]
enum WriteBody {
    /// As it is.
    Sent(Value),
    /// The object at the path, with a merge patch applied.
    Stored(Value),
}

/// One row.
#[derive(Clone, Debug)]
pub struct WriteCase {
    /// The user who sends it.
    pub caller: &'static str,
    /// Name of the row; with the caller, unique.
    pub name: String,
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: WriteBody,
    /// Code and reason of the answer; the reason of a success is empty.
    pub expected: (u16, &'static str),
    /// The answer of this server where it differs, and why.
    pub ours: Option<((u16, &'static str), &'static str)>,
}

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const FORBIDDEN: (u16, &str) = (403, "Forbidden");
const NOT_FOUND: (u16, &str) = (404, "NotFound");
const OK: (u16, &str) = (200, "");
const CREATED: (u16, &str) = (201, "");

/// All rows.
pub fn write_cases() -> Vec<WriteCase> {
    [verbs::cases(), nodes::cases(), roles::cases(), signing::cases()].concat()
}

/// All users of the rows.
pub fn write_users() -> Vec<WriteUser> {
    [verbs::users(), nodes::users(), roles::users(), signing::users()].concat()
}

/// Objects that the rows need, in the order of their creation: the written ones, and roles.
pub fn write_world() -> Vec<Manifest> {
    [verbs::world(), nodes::world(), roles::world(), signing::world()].concat()
}

/// The content of a file of tokens with all users of the rows, and [`ADMIN`].
pub fn write_tokens() -> String {
    let users = write_users().into_iter().chain([(ADMIN, &["system:masters"][..])]);
    let line = |(number, (name, groups)): (usize, WriteUser)| {
        format!("{},{name},{number},\"{}\"\n", token_of(name), groups.join(","))
    };
    users.enumerate().map(line).collect()
}

/// Creates the objects of the rows in this server, which knows the users by [`write_tokens`], and sends all rows. Returns
/// those that are not answered as expected.
pub async fn write_faults(server: Client) -> Vec<String> {
    let as_user = |user: &str| server.with_token(&token_of(user));
    let admin = as_user(ADMIN);
    for manifest in write_world() {
        admin.post(&manifest.collection, &manifest.body).await.with_code(201);
    }
    let (begun, mut faults) = (Instant::now(), Vec::new());
    for case in write_cases() {
        let (caller, (code, reason)) = (as_user(case.caller), case.ours.map_or(case.expected, |(ours, _)| ours));
        loop {
            let answer = case.send(&caller, &admin).await;
            let found = outcome(&answer);
            if found == (code, reason.to_owned()) {
                break;
            }
            if begun.elapsed() > KNOWN_WITHIN {
                faults.push(format!("{} {}: {found:?}, not {code}: {}", case.caller, case.name, answer.text()));
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    faults
}

/// A write by a caller.
fn row(caller: &'static str, name: &str, method: Method, path: &str, body: Value) -> WriteCase {
    WriteCase {
        caller,
        name: name.to_owned(),
        method,
        path: path.to_owned(),
        headers: vec![("content-type", JSON)],
        body: WriteBody::Sent(body),
        expected: FORBIDDEN,
        ours: None,
    }
}

fn post(caller: &'static str, name: &str, path: &str, body: Value) -> WriteCase {
    row(caller, name, Method::POST, path, body)
}

/// A PUT of the stored object with a change.
fn put(caller: &'static str, name: &str, path: &str, change: Value) -> WriteCase {
    WriteCase { body: WriteBody::Stored(change), ..row(caller, name, Method::PUT, path, Value::Null) }
}

fn patch(caller: &'static str, name: &str, path: &str, change: Value) -> WriteCase {
    row(caller, name, Method::PATCH, path, change).with_type(crate::http::MERGE_PATCH)
}

fn apply(caller: &'static str, name: &str, path: &str, object: Value) -> WriteCase {
    let path = format!("{path}?fieldManager=rows&force=true");
    row(caller, name, Method::PATCH, &path, object).with_type(APPLY)
}

fn delete(caller: &'static str, name: &str, path: &str) -> WriteCase {
    row(caller, name, Method::DELETE, path, Value::Null)
}

impl WriteCase {
    fn with_type(mut self, content_type: &'static str) -> Self {
        self.headers[0].1 = content_type;
        self
    }

    fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn expecting(self, expected: (u16, &'static str)) -> Self {
        Self { expected, ..self }
    }

    /// Names the answer of this server, and why it differs.
    fn differing(self, ours: (u16, &'static str), why: &'static str) -> Self {
        Self { ours: Some((ours, why)), ..self }
    }

    /// Sends the row as its caller. `admin` may do everything.
    pub async fn send(&self, caller: &Client, admin: &Client) -> Answer {
        let stored = async |path: &str| {
            let path = path.split('?').next().unwrap_or_default();
            admin.get(path).await.json()
        };
        let mut body = match &self.body {
            WriteBody::Sent(Value::Null) => String::new(),
            WriteBody::Sent(body) => body.to_string(),
            WriteBody::Stored(change) => {
                let mut object = stored(&self.path).await;
                merge(&mut object, change);
                object.to_string()
            }
        };
        if body.contains(OWN_UID) {
            let name = self.caller_node();
            let node = stored(&format!("/api/v1/nodes/{name}")).await;
            // A node that has not registered has none.
            body = body.replace(OWN_UID, node["metadata"]["uid"].as_str().unwrap_or("none"));
        }
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{separator}dryRun=All", self.path);
        caller.send(Client::request(self.method.clone(), &path, &self.headers, Bytes::from(body))).await
    }

    /// The node that sends the row, or that its caller acts as.
    fn caller_node(&self) -> &'static str {
        let acting = self.headers.iter().find(|(name, _)| *name == "impersonate-user").map(|(_, user)| *user);
        acting.unwrap_or(self.caller).strip_prefix("system:node:").expect("a node")
    }
}

/// Code and reason of an answer.
pub fn outcome(answer: &Answer) -> (u16, String) {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_success = answer.code.is_success();
    let reason = if is_success { "" } else { status["reason"].as_str().unwrap_or_default() };
    (answer.code.as_u16(), reason.to_owned())
}

/// Applies a merge patch.
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        object.clone_from(change);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in change {
        if value.is_null() {
            object.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
