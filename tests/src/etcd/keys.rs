//! The keys of an etcd, read and written through its JSON API: the tests share no code with the server's client.
//!
//! In that API keys and values are base64, 64-bit numbers are strings, and members with default values are missing.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::http::{Client, LINE_WAIT, Step};

/// Largest number of operations in one transaction: etcd's default limit.
const OPERATIONS_MAX: usize = 128;
/// Bytes of values that share a transaction: etcd takes 1.5 MiB a request.
const SMALL_BYTES: usize = 2_000;
/// Key and end of a range of all keys: `\0`.
const ALL: &str = "AA==";

/// A client of one member.
#[derive(Clone, Copy, Debug)]
pub struct EtcdKeys {
    client: Client,
    /// Token of a user, if users are enabled.
    token: Option<&'static str>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdKeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision at which the key was created.
    pub create_revision: u64,
    /// Revision of its last change.
    pub mod_revision: u64,
}

/// One change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdEvent {
    /// The key was created or changed.
    Put(EtcdKeyValue),
    /// The key was deleted.
    Deleted {
        /// The key.
        key: String,
        /// Revision of the deletion.
        revision: u64,
    },
}

impl EtcdKeyValue {
    fn read(pair: &Value) -> Self {
        let number = |name: &str| pair[name].as_str().map_or(0, |text| text.parse().unwrap());
        let bytes = |name: &str| BASE64_STANDARD.decode(pair[name].as_str().unwrap_or_default()).unwrap();
        let key = String::from_utf8(bytes("key")).unwrap();
        let (create_revision, mod_revision) = (number("create_revision"), number("mod_revision"));
        Self { key, value: bytes("value"), create_revision, mod_revision }
    }

    /// The value as JSON; `None` if it is in another format, such as protobuf.
    pub fn try_json(&self) -> Option<Value> {
        serde_json::from_slice(&self.value).ok()
    }

    /// The value as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.value).unwrap_or_else(|error| panic!("{}: {error}", self.key))
    }
}

impl EtcdEvent {
    /// The changed key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(pair) => &pair.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// Revision of the change.
    pub const fn revision(&self) -> u64 {
        match self {
            Self::Put(pair) => pair.mod_revision,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

impl EtcdKeys {
    /// A client without a user.
    pub const fn new(client: Client) -> Self {
        Self { client, token: None }
    }

    /// Sends the requests as a user. Leaks its token, so that clients stay `Copy`.
    #[must_use]
    pub async fn log_in(self, name: &str, password: &str) -> Self {
        let answer = self.call("/v3/auth/authenticate", &json!({"name": name, "password": password})).await;
        Self { token: Some(answer["token"].as_str().unwrap().to_owned().leak()), ..self }
    }

    /// Sends a request of the JSON API.
    ///
    /// # Errors
    /// Returns the reason if etcd does not answer, or answers with an error.
    pub async fn try_call(&self, path: &str, body: &Value) -> Result<Value, String> {
        let answer = self.client.try_send(self.request(path, body)).await?;
        if answer.code == 200 { Ok(answer.json()) } else { Err(answer.text().to_owned()) }
    }

    /// Sends a request of the JSON API that must succeed.
    pub async fn call(&self, path: &str, body: &Value) -> Value {
        self.try_call(path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn request(&self, path: &str, body: &Value) -> http::Request<http_body_util::Full<bytes::Bytes>> {
        let headers: Vec<(&str, &str)> = self.token.iter().map(|token| ("authorization", *token)).collect();
        Client::request(Method::POST, path, &headers, body.to_string().into())
    }

    /// The present revision.
    ///
    /// # Errors
    /// Returns the reason if etcd has no quorum, or does not answer.
    pub async fn try_revision(&self) -> Result<u64, String> {
        Ok(revision(&self.try_call("/v3/kv/range", &json!({"key": ALL})).await?))
    }

    /// The present revision.
    pub async fn revision(&self) -> u64 {
        self.try_revision().await.unwrap_or_else(|error| panic!("no revision: {error}"))
    }

    /// One key.
    pub async fn get(&self, key: &str) -> Option<EtcdKeyValue> {
        let answer = self.call("/v3/kv/range", &json!({"key": BASE64_STANDARD.encode(key)})).await;
        answer["kvs"].as_array().and_then(|pairs| pairs.first()).map(EtcdKeyValue::read)
    }

    /// All keys with a prefix, in order.
    pub async fn range(&self, prefix: &str) -> Vec<EtcdKeyValue> {
        self.range_at(prefix, 0).await
    }

    /// All keys with a prefix at one revision; zero is the present.
    pub async fn range_at(&self, prefix: &str, revision: u64) -> Vec<EtcdKeyValue> {
        let (key, end) = range_of(prefix);
        let range = json!({"key": key, "range_end": end, "revision": revision.to_string()});
        let answer = self.call("/v3/kv/range", &range).await;
        answer["kvs"].as_array().into_iter().flatten().map(EtcdKeyValue::read).collect()
    }

    /// Writes one key. Returns the revision.
    pub async fn put(&self, key: &str, value: impl AsRef<[u8]>) -> u64 {
        self.try_put(key, value).await.unwrap_or_else(|error| panic!("{key} is not written: {error}"))
    }

    /// Writes one key. Returns the revision.
    ///
    /// # Errors
    /// Returns the reason if etcd has no quorum, or does not answer.
    pub async fn try_put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<u64, String> {
        Ok(revision(&self.try_call("/v3/kv/put", &put(key, value.as_ref())).await?))
    }

    /// Deletes one key. Returns the revision.
    pub async fn delete(&self, key: &str) -> u64 {
        revision(&self.call("/v3/kv/deleterange", &json!({"key": BASE64_STANDARD.encode(key)})).await)
    }

    /// Writes keys, several at one revision.
    pub async fn put_all(&self, pairs: &[(String, String)]) {
        for pairs in pairs.chunk_by(|_, next| next.1.len() < SMALL_BYTES) {
            let writes: Vec<_> = pairs.iter().map(|(key, value)| (&**key, Some(value.as_bytes()))).collect();
            self.write_all(&writes).await;
        }
    }

    /// Writes or deletes keys, in transactions of at most [`OPERATIONS_MAX`] operations.
    pub(crate) async fn write_all(&self, writes: &[(&str, Option<&[u8]>)]) {
        for writes in writes.chunks(OPERATIONS_MAX) {
            let operation = |(key, value): &(&str, Option<&[u8]>)| match value {
                Some(value) => json!({"requestPut": put(key, value)}),
                None => json!({"requestDeleteRange": {"key": BASE64_STANDARD.encode(key)}}),
            };
            let operations: Vec<Value> = writes.iter().map(operation).collect();
            self.call("/v3/kv/txn", &json!({"success": operations})).await;
        }
    }

    /// Removes the history before a revision.
    pub async fn compact(&self, revision: u64) {
        self.call("/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).await;
    }

    /// All changes of keys with a prefix after a revision, up to the present.
    ///
    /// # Panics
    /// If a part of that history was compacted.
    pub async fn history(&self, prefix: &str, after: u64) -> Vec<EtcdEvent> {
        // Every revision is that of a change, so the last one ends the history.
        let end = self.revision().await;
        let mut history = Vec::new();
        if end <= after {
            return history;
        }
        let all = json!({"key": ALL, "range_end": ALL, "start_revision": (after + 1).to_string()});
        let request = self.request("/v3/watch", &json!({"create_request": all}));
        let mut watch = self.client.watch_by(request).await;
        let mut at = after;
        while at < end {
            let line = match watch.step(LINE_WAIT).await {
                Step::Event(event) => serde_json::from_slice::<Value>(&event.raw).unwrap(),
                other @ (Step::End | Step::Cut(_) | Step::Silence) => panic!("{other:?} at {at} of {end}"),
            };
            let result = &line["result"];
            assert!(result["canceled"] != true, "the history after {after}: {line}");
            for event in result["events"].as_array().into_iter().flatten() {
                let pair = EtcdKeyValue::read(&event["kv"]);
                at = pair.mod_revision;
                if pair.key.starts_with(prefix) {
                    history.push(match event["type"].as_str() {
                        Some("DELETE") => EtcdEvent::Deleted { key: pair.key, revision: pair.mod_revision },
                        _ => EtcdEvent::Put(pair),
                    });
                }
            }
        }
        history
    }

    /// Enables users: `root`, and one that may read and write the keys with a prefix.
    pub async fn enable_users(&self, root_password: &str, user: &str, password: &str, prefix: &str) {
        let (key, end) = range_of(prefix);
        let keys = json!({"permType": "READWRITE", "key": key, "range_end": end});
        for (path, body) in [
            ("role/add", json!({"name": "root"})),
            ("user/add", json!({"name": "root", "password": root_password})),
            ("user/grant", json!({"user": "root", "role": "root"})),
            ("role/add", json!({"name": user})),
            ("role/grant", json!({"name": user, "perm": keys})),
            ("user/add", json!({"name": user, "password": password})),
            ("user/grant", json!({"user": user, "role": user})),
            ("enable", json!({})),
        ] {
            self.call(&format!("/v3/auth/{path}"), &body).await;
        }
    }

    /// True if an alarm is raised, such as the one of a full database.
    pub async fn has_alarm(&self) -> bool {
        let answer = self.call("/v3/maintenance/alarm", &json!({"action": "GET"})).await;
        answer["alarms"].as_array().is_some_and(|alarms| !alarms.is_empty())
    }

    /// Returns space to a full database, as operators do: compacts, defragments, and disarms the alarm.
    pub async fn free_space(&self) {
        self.compact(self.revision().await).await;
        self.call("/v3/maintenance/defragment", &json!({})).await;
        let alarms = self.call("/v3/maintenance/alarm", &json!({"action": "GET"})).await;
        for alarm in alarms["alarms"].as_array().into_iter().flatten() {
            let disarm = json!({"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]});
            self.call("/v3/maintenance/alarm", &disarm).await;
        }
    }
}

/// Key and end of the range of all keys with a prefix.
fn range_of(prefix: &str) -> (String, String) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => {
            *last += 1;
            (BASE64_STANDARD.encode(prefix), BASE64_STANDARD.encode(&end))
        }
        None => (ALL.to_owned(), ALL.to_owned()),
    }
}

fn put(key: &str, value: &[u8]) -> Value {
    json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)})
}

fn revision(answer: &Value) -> u64 {
    answer["header"]["revision"].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}
