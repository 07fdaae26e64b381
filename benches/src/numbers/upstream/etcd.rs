//! etcd's JSON API, in which keys and values are base64.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::load::{
    client::{Ask, Connection, JSON},
    failure::Failure,
};

/// Largest number of operations in one transaction: etcd's default limit.
pub(super) const OPERATIONS_MAX: usize = 128;
/// Maximum bytes of an answer to a transaction.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An operation of a transaction: to store a value.
pub(super) fn put(key: &str, value: &[u8]) -> Value {
    json!({"requestPut": {"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)}})
}

/// Runs a transaction without conditions.
pub(super) async fn commit(connection: &mut Connection, operations: &[Value]) -> Result<(), Failure> {
    let body = Bytes::from(json!({"success": operations}).to_string());
    let ask = Ask { method: Method::POST, body: Some((JSON, body)), ..Ask::get("/v3/kv/txn") };
    connection.send_well(&ask).await?;
    connection.collect(ANSWER_BYTES_MAX).await.map(drop)
}
