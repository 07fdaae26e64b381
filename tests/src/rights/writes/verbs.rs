//! Rows of users with some verbs in one namespace: each verb of the API, of three types.

use http::Method;
use serde_json::{Value, json};

use super::{
    super::grants::{Manifest, Rule, binding, role, user},
    CREATED, FORBIDDEN, NOT_FOUND, OK, WriteBody, WriteCase, WriteUser, apply, delete, patch, post, put, row,
};

/// A user, its verbs, and the names to which they are restricted.
const USERS: [(&str, &[&str], &[&str]); 11] = [
    ("w-none", &[], &[]),
    ("w-reader", &["get", "list", "watch"], &[]),
    ("w-updater", &["get", "update"], &[]),
    ("w-patcher", &["get", "patch"], &[]),
    ("w-changer", &["get", "update", "patch"], &[]),
    ("w-creator", &["create"], &[]),
    ("w-deleter", &["delete"], &[]),
    ("w-collector", &["list", "deletecollection"], &[]),
    ("w-writer", &["*"], &[]),
    ("w-named", &["create", "update", "patch", "delete"], &["one"]),
    ("w-named-new", &["create", "update", "patch"], &["new"]),
];

const A: &str = "w-a";

/// A type: its group, plural, kind, a change of its objects, and true if a PUT creates them.
struct WrittenKind {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    change: Value,
    makes: bool,
}

fn kinds() -> [WrittenKind; 3] {
    let kind = |group, plural, kind, change, makes| WrittenKind { group, plural, kind, change, makes };
    [
        kind("", "configmaps", "ConfigMap", json!({"data": {"k": "changed"}}), false),
        kind("", "secrets", "Secret", json!({"data": {"k": "Y2hhbmdlZA=="}}), false),
        kind("coordination.k8s.io", "leases", "Lease", json!({"spec": {"leaseDurationSeconds": 7}}), true),
    ]
}

/// A write with its verb, the name that authorizers see, and the answer to a user with the verb; `None` if that is the answer
/// to a creation.
struct VerbRow(WriteCase, &'static str, &'static str, Option<(u16, &'static str)>);

impl WrittenKind {
    fn collection(&self, namespace: &str) -> String {
        let prefix = if self.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", self.group) };
        format!("{prefix}/namespaces/{namespace}/{}", self.plural)
    }

    fn object(&self, name: &str) -> Value {
        let api_version = if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) };
        let mut object = json!({"apiVersion": api_version, "kind": self.kind, "metadata": {"name": name}});
        let change = self.change.as_object().expect("an object");
        change.iter().for_each(|(member, value)| object[member] = value.clone());
        object
    }

    /// The writes of a caller. One that creates what it did not find needs the right to create as well.
    fn writes(&self, caller: &'static str) -> Vec<VerbRow> {
        let (all, other) = (self.collection(A), self.collection("w-b"));
        let (one, new) = (format!("{all}/one"), format!("{all}/new"));
        let name = |write: &str| format!("{} {write}", self.plural);
        let new_put = WriteCase {
            body: WriteBody::Sent(self.object("new")),
            ..row(caller, &name("put new"), Method::PUT, &new, Value::Null)
        };
        let json_patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let strategic = "application/strategic-merge-patch+json";
        vec![
            VerbRow(post(caller, &name("post new"), &all, self.object("new")), "create", "", Some(CREATED)),
            VerbRow(
                post(caller, &name("post one"), &all, self.object("one")),
                "create",
                "",
                Some((409, "AlreadyExists")),
            ),
            VerbRow(post(caller, &name("post elsewhere"), &other, self.object("new")), "none", "", None),
            VerbRow(put(caller, &name("put one"), &one, self.change.clone()), "update", "one", Some(OK)),
            VerbRow(new_put, "update", "new", if self.makes { None } else { Some(NOT_FOUND) }),
            VerbRow(patch(caller, &name("patch one"), &one, labels.clone()), "patch", "one", Some(OK)),
            VerbRow(patch(caller, &name("patch new"), &new, labels.clone()), "patch", "new", Some(NOT_FOUND)),
            VerbRow(
                row(caller, &name("json patch one"), Method::PATCH, &one, json_patch)
                    .with_type("application/json-patch+json"),
                "patch",
                "one",
                Some(OK),
            ),
            VerbRow(
                row(caller, &name("strategic patch one"), Method::PATCH, &one, labels).with_type(strategic),
                "patch",
                "one",
                Some(OK),
            ),
            VerbRow(apply(caller, &name("apply one"), &one, self.object("one")), "patch", "one", Some(OK)),
            VerbRow(apply(caller, &name("apply new"), &new, self.object("new")), "patch", "new", None),
            VerbRow(delete(caller, &name("delete one"), &one), "delete", "one", Some(OK)),
            VerbRow(delete(caller, &name("delete new"), &new), "delete", "new", Some(NOT_FOUND)),
            VerbRow(delete(caller, &name("delete all"), &all), "deletecollection", "", Some(OK)),
        ]
    }
}

/// True if a user may do this to an object of the first namespace. Collections have no name.
fn may((_, verbs, names): (&str, &[&str], &[&str]), verb: &str, name: &str) -> bool {
    let has_verb = verb != "none" && (verbs.contains(&verb) || verbs.contains(&"*"));
    has_verb && (names.is_empty() || names.contains(&name))
}

pub(super) fn cases() -> Vec<WriteCase> {
    let mut cases = Vec::new();
    for of in USERS {
        for kind in kinds() {
            for VerbRow(case, verb, name, answer) in kind.writes(of.0) {
                let creates = if may(of, "create", name) { CREATED } else { FORBIDDEN };
                let allowed = answer.unwrap_or(creates);
                cases.push(case.expecting(if may(of, verb, name) { allowed } else { FORBIDDEN }));
            }
        }
    }
    cases
}

pub(super) fn users() -> Vec<WriteUser> {
    USERS.iter().map(|(name, ..)| (*name, &[][..])).collect()
}

pub(super) fn world() -> Vec<Manifest> {
    let namespace = |name: &str| Manifest {
        collection: "/api/v1/namespaces".to_owned(),
        body: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    };
    let mut world = vec![namespace(A), namespace("w-b")];
    world.extend(kinds().iter().map(|kind| Manifest { collection: kind.collection(A), body: kind.object("one") }));
    for (name, verbs, names) in USERS.into_iter().filter(|(_, verbs, _)| !verbs.is_empty()) {
        for kind in kinds() {
            let rule = Rule { verbs, group: kind.group, resource: kind.plural, names };
            let of = role(&format!("{name}-{}", kind.plural), Some(A), rule);
            let to = binding(&format!("{name}-{}", kind.plural), Some(A), &of, &user(name));
            world.extend([of, to]);
        }
    }
    world
}
