//! Rights to read as data: who may read which path, with the objects of RBAC that allow it. A stock kube-apiserver
//! answers each row as expected, and so does every server in front of it.
//!
//! INVARIANT: each case has a user of its own, so cases do not disturb each other and can run at once.
//!
//! A run creates [`world`] and the grants of the cases as a user who may do everything, and waits until the API server
//! knows them. It then sends each request with the caller's credentials, and checks the answer with
//! [`Expected::check`]. A case with a change is sent again after it; rights and tokens are cached for ten seconds by
//! kube-apiserver, and for ten more by a server in front of it.

mod cases;
mod grants;
mod writes;

use serde_json::Value;

pub use cases::cases;
pub use grants::{Manifest, world};
pub use writes::{
    WRITE_FLAGS, WriteCase, WriteUser, outcome, write_cases, write_faults, write_tokens, write_users, write_world,
};

/// Flags of kube-apiserver that the cases need beside RBAC: callers that are nodes may read what concerns them.
pub const FLAGS: &[&str] = &["--authorization-mode=Node"];

/// Text in every object of [`world`]. A refusal never contains it.
pub const MARKER: &str = "text-that-needs-a-right";

/// Place in a path for the continue token of a list with `limit=1` of the path before the query.
pub const CONTINUE: &str = "{continue}";

/// Place in a path for the resourceVersion of a list of the path before the query.
pub const NOW: &str = "{now}";

/// Longest time until a change of rights takes effect, in seconds: a token or right in the cache of kube-apiserver, and
/// then in that of a server in front of it.
pub const CHANGE_SECONDS_MAX: u64 = 25;

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RightsCaller {
    /// A user with a token.
    User {
        /// Its name.
        name: String,
        /// Its groups, beside `system:authenticated`.
        groups: Vec<String>,
    },
    /// A ServiceAccount, with a token of its subresource `token`.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// No credentials.
    Anonymous,
    /// A token that the API server does not know.
    UnknownToken,
}

/// The answer that a caller gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// 200 with at least these objects, as `namespace/name`, or `name` in no namespace.
    Allowed(Vec<String>),
    /// This code, as a Status.
    Refused(u16),
}

/// A change of rights after the first answer.
#[derive(Clone, Debug)]
pub enum RightsChange {
    /// Deletes the object at a path.
    Delete(String),
    /// Creates an object.
    Create(Manifest),
}

/// One row.
#[derive(Clone, Debug)]
pub struct RightsCase {
    /// Unique name.
    pub name: &'static str,
    /// The caller.
    pub caller: RightsCaller,
    /// Objects to create before, in order.
    pub grants: Vec<Manifest>,
    /// Path and query of a GET; watches end by themselves. May contain [`CONTINUE`] or [`NOW`].
    pub path: &'static str,
    /// Headers beside the credentials.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The answer.
    pub expected: Expected,
    /// A change, and the answer once it took effect.
    pub then: Option<(RightsChange, Expected)>,
}

impl Expected {
    /// Checks an answer: its code, its objects, and that a refusal contains no part of an object.
    ///
    /// # Errors
    /// The difference, in one line.
    pub fn check(&self, code: u16, body: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(body);
        match self {
            Self::Refused(expected) => {
                let status: Value = serde_json::from_slice(body).map_err(|error| format!("{error}: {text}"))?;
                let is_refusal = code == *expected && status["kind"] == "Status" && status["code"] == code;
                let differs = || format!("expected {expected}, got {code}: {text}");
                (is_refusal && !text.contains(MARKER)).then_some(()).ok_or_else(differs)
            }
            Self::Allowed(keys) => {
                let found = keys_in(body);
                let missing: Vec<&String> = keys.iter().filter(|key| !found.contains(key)).collect();
                let differs = || format!("expected {keys:?}, got {code} with {found:?}: {text}");
                (code == 200 && missing.is_empty()).then_some(()).ok_or_else(differs)
            }
        }
    }
}

/// Keys of the objects in an object, a list, a table, or the events of a watch.
fn keys_in(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for value in serde_json::Deserializer::from_slice(body).into_iter::<Value>().map_while(Result::ok) {
        let events = matches!(value["type"].as_str(), Some("ADDED" | "MODIFIED")).then(|| value["object"].clone());
        for object in events.into_iter().chain([value]) {
            let lists = [&object["items"], &object["rows"]].into_iter().filter_map(Value::as_array).flatten();
            let of_row = |item: &Value| if item["object"].is_object() { item["object"].clone() } else { item.clone() };
            found.extend(lists.map(of_row).chain([object.clone()]).filter_map(|object| key(&object)));
        }
    }
    found
}

fn key(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str()?;
    Some(object["metadata"]["namespace"].as_str().map_or_else(|| name.to_owned(), |space| format!("{space}/{name}")))
}
