//! Rows of users that decide about signing requests: beside the subresource, each needs a right over the signer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    super::grants::{Manifest, Rule, binding, role, user},
    NOT_FOUND, OK, WriteCase, WriteUser, patch, put,
};
use crate::objects::SIGNING_REQUEST;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A user, its verbs over signers, and their names.
const USERS: [(&str, &[&str], &[&str]); 5] = [
    ("w-approver", &["approve"], &["example.com/one"]),
    ("w-domain-approver", &["approve"], &["example.com/*"]),
    ("w-other-approver", &["approve", "sign"], &["example.com/other", "other.example.com/*"]),
    ("w-signer", &["sign"], &["example.com/one"]),
    ("w-undecided", &["list"], &["example.com/one"]),
];

fn condition(name: &str) -> Value {
    json!({"status": {"conditions": [{"type": name, "status": "True", "reason": "r"}]}})
}

pub(super) fn cases() -> Vec<WriteCase> {
    let path = |part: &str| format!("{REQUESTS}/w-request/{part}");
    let (approval, status) = (path("approval"), path("status"));
    let mut cases = Vec::new();
    for (user, verbs, signers) in USERS {
        let is_own = signers.iter().any(|signer| ["example.com/one", "example.com/*"].contains(signer));
        let decide = |case: WriteCase, needed: &str| {
            if is_own && verbs.contains(&needed) { case.expecting(OK) } else { case }
        };
        cases.push(decide(patch(user, "approve", &approval, condition("Approved")), "approve"));
        cases.push(decide(put(user, "deny", &approval, condition("Denied")), "approve"));
        cases.push(decide(patch(user, "approve nothing new", &approval, json!({})), "approve"));
        cases.push(decide(patch(user, "fail", &status, condition("Failed")), "sign"));
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        cases.push(patch(user, "label by the status", &status, labels).expecting(OK));
        let none = format!("{REQUESTS}/none/approval");
        cases.push(patch(user, "approve none", &none, condition("Approved")).expecting(NOT_FOUND));
    }
    cases
}

pub(super) fn users() -> Vec<WriteUser> {
    USERS.iter().map(|(name, ..)| (*name, &[][..])).collect()
}

pub(super) fn world() -> Vec<Manifest> {
    let spec = json!({"request": STANDARD.encode(SIGNING_REQUEST), "signerName": "example.com/one",
        "usages": ["client auth"]});
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "w-request"}, "spec": spec});
    let mut world = vec![Manifest { collection: REQUESTS.to_owned(), body }];
    for (name, verbs, names) in USERS {
        let parts = ["certificatesigningrequests/approval", "certificatesigningrequests/status"];
        let rules = parts.map(|resource| Rule { verbs: &["update", "patch"], group: GROUP, resource, names: &[] });
        let signers = Rule { verbs, group: GROUP, resource: "signers", names };
        for (number, rule) in rules.into_iter().chain([signers]).enumerate() {
            let of = role(&format!("{name}-{number}"), None, rule);
            world.extend([binding(&format!("{name}-{number}"), None, &of, &user(name)), of]);
        }
    }
    world
}
