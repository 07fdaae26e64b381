//! The lists, watches and reviews of rights that reached a kube-apiserver, from its audit log: each with its caller and
//! its query, which counters do not have.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use serde::Deserialize;

/// Records a list, a watch or a review when it arrives and when it is answered, and nothing else.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["Panic"],
    "rules": [{"level": "Metadata", "verbs": ["list", "watch"]},
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "authorization.k8s.io"}]},
        {"level": "None"}]}"#;
const LOG: &str = "audit.log";

/// A list or watch that reached the API server.
#[derive(Clone, Debug)]
pub struct RecordedRead {
    /// Name of its caller.
    pub user: String,
    /// `list` or `watch`.
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// Status code of the answer; `None` if there was none.
    pub code: Option<u16>,
}

/// The part of an event of `audit.k8s.io/v1` that is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: AuditUser,
    #[serde(default)]
    response_status: AuditStatus,
}

#[derive(Deserialize)]
struct AuditUser {
    username: String,
}

#[derive(Default, Deserialize)]
struct AuditStatus {
    code: Option<u16>,
}

impl RecordedRead {
    /// True if it reads the collection at `path`, or a part of it, in all namespaces.
    pub fn is_of(&self, path: &str) -> bool {
        self.uri.split('?').next() == Some(path)
    }

    /// True if it reads the whole state: a list, or a stream that begins with it. Lists of one name or of at most `few`
    /// objects only prove something.
    pub fn is_initial(&self, few: u32) -> bool {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        let of = |name: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        match &*self.verb {
            "watch" => of("sendInitialEvents").is_some_and(|(_, value)| value == "true" || value == "1"),
            _ if query.contains("metadata.name%3D") => false,
            _ => of("limit").and_then(|(_, limit)| limit.parse().ok()).is_none_or(|limit: u32| limit > few),
        }
    }
}

/// The flags of kube-apiserver that request the record. Writes the policy into `folder`.
pub(super) fn flags(folder: &Path) -> [String; 2] {
    let policy = folder.join("audit-policy.json");
    fs::write(&policy, POLICY).unwrap();
    let log = folder.join(LOG);
    [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())]
}

/// The reads so far. A line that a killed server did not finish is skipped.
pub(super) fn reads(folder: &Path) -> Vec<RecordedRead> {
    let events = events(folder);
    let codes: HashMap<_, _> =
        events.iter().filter_map(|event| Some((event.id.clone(), event.response_status.code?))).collect();
    let received = events.into_iter().filter(|event| event.stage == "RequestReceived" && event.verb != "create");
    let read = |AuditEvent { id, user, verb, request_uri, .. }| RecordedRead {
        user: user.username,
        verb,
        uri: request_uri,
        code: codes.get(&id).copied(),
    };
    received.map(read).collect()
}

/// Number of reviews of rights so far, by their caller.
pub(super) fn reviews(folder: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in events(folder).into_iter().filter(|event| event.stage == "RequestReceived" && event.verb == "create") {
        *counts.entry(event.user.username).or_default() += 1;
    }
    counts
}

fn events(folder: &Path) -> Vec<AuditEvent> {
    let log = fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
