//! Checks that a response is valid and that its status, headers and body agree.
//!
//! INVARIANT: an error is a Status with the response's code, in the encoding of its content type; or one of Kubernetes'
//! few plain texts.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use serde_json::Value;

use super::{ANSWER_BYTES_MAX, FuzzRequest, corpus::MARKER};

/// A response.
pub(super) struct Came {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// True if it ended by itself.
    pub(super) whole: bool,
}

/// Status codes of the protocol for requests without authentication.
const CODES: &[u16] =
    &[200, 201, 202, 301, 304, 400, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 500, 501, 503, 504];

/// Prefixes of the messages that Kubernetes sends with a 500.
const NAMED_500: &[&str] = &[
    "resourceVersion: Invalid value: ",
    "resourceVersion should not be set on objects to be created",
    "strconv.ParseUint: parsing ",
    "failed to create typed patch object (",
    "failed to convert new object (",
];

/// Message of the 500 that ends a watch with a negative `timeoutSeconds`.
const PAST_DEADLINE: &str = "context deadline exceeded";

impl Came {
    /// The beginning of the body, for messages.
    pub(super) fn start(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(2_000).collect()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Renders a request as text.
pub(super) fn shown(asked: &FuzzRequest) -> String {
    let body = String::from_utf8_lossy(&asked.body);
    let body: String = body.chars().take(4_000).collect();
    format!("{} {}\n{:?}\n{body:?}", asked.method, asked.target, asked.headers)
}

/// Checks a response. Returns a description of what is wrong.
pub(super) fn judge(asked: &FuzzRequest, came: &Came) -> Result<(), String> {
    if !CODES.contains(&came.code) {
        return Err(format!("a status that Kubernetes has not: {}", came.code));
    }
    if !came.headers.contains_key("cache-control") || !came.headers.contains_key("audit-id") {
        return Err("headers that every answer has are missing".to_owned());
    }
    let body = unpacked(came)?;
    if came.code == 301 && !came.headers.contains_key("location") {
        return Err("moved nowhere".to_owned());
    }
    if matches!(came.code, 301 | 304) {
        return if body.is_empty() { Ok(()) } else { Err("a body beside an empty answer".to_owned()) };
    }
    // Kubernetes' handler of these documents sends a 406 without a body.
    if came.code == 406 && asked.target.starts_with("/openapi/") && body.is_empty() {
        return Ok(());
    }
    let content_type = came.header("content-type");
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let text = std::str::from_utf8(&body);
    match (media, text) {
        ("application/json", Ok(text)) => {
            let documents = documents(text, came)?;
            for document in &documents {
                json(asked, came, document)?;
            }
            if documents.is_empty() && came.whole && came.code != 200 {
                return Err("an error without a word".to_owned());
            }
            Ok(())
        }
        ("application/yaml", Ok(text)) => {
            let document: Value = serde_saphyr::from_str(text).map_err(|error| format!("no YAML: {error}"))?;
            json(asked, came, &document)
        }
        ("text/plain", Ok(text)) => plain(came, text),
        ("application/vnd.kubernetes.protobuf", _) => messages(&body, content_type, came.whole),
        (_, Err(error)) => Err(format!("no text: {error}")),
        _ if came.code == 200 => Ok(()),
        _ => Err(format!("an error as {content_type:?}")),
    }
}

/// Checks the envelopes of a protobuf body: one, or one per event of a watch.
fn messages(body: &[u8], content_type: &str, is_whole: bool) -> Result<(), String> {
    const PREFIX: &[u8] = b"k8s\0";
    if !content_type.ends_with(";stream=watch") {
        return if body.starts_with(PREFIX) || !is_whole { Ok(()) } else { Err("no envelope".to_owned()) };
    }
    let mut rest = body;
    while let Some((length, event)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some((event, after)) = event.split_at_checked(length) else { break };
        if event.first() != Some(&0x0a) || !event.windows(PREFIX.len()).any(|window| window == PREFIX) {
            return Err("an event without its envelope".to_owned());
        }
        rest = after;
    }
    if rest.is_empty() || !is_whole { Ok(()) } else { Err("an event that is not whole".to_owned()) }
}

fn unpacked(came: &Came) -> Result<Vec<u8>, String> {
    match came.header("content-encoding") {
        "" => Ok(came.body.clone()),
        "gzip" => {
            let mut out = Vec::new();
            let most = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
            let read = MultiGzDecoder::new(&came.body[..]).take(most).read_to_end(&mut out);
            read.map(|_| out).map_err(|error| format!("no gzip: {error}"))
        }
        other => Err(format!("encoded as {other}")),
    }
}

/// The JSON documents of a body: one, or one per line.
fn documents(text: &str, came: &Came) -> Result<Vec<Value>, String> {
    if let Ok(whole) = serde_json::from_str(text) {
        return Ok(vec![whole]);
    }
    if came.code != 200 {
        return Err("an error that is no JSON".to_owned());
    }
    // A stream that was not read to its end may stop inside a line.
    let lines = text.split_inclusive('\n').filter(|line| came.whole || line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).map_err(|error| format!("no JSON: {error} in {line}"))).collect()
}

fn json(asked: &FuzzRequest, came: &Came, document: &Value) -> Result<(), String> {
    let is_status = document["kind"] == "Status";
    if came.code < 400 {
        let line = document["type"].is_string() && document["object"].is_object();
        if line && document["type"] == "ERROR" {
            return status(asked, &document["object"], None);
        }
        if is_status && document["status"] != "Success" {
            return Err("a failure that succeeds".to_owned());
        }
        return Ok(());
    }
    if !is_status {
        return Err("an error that is no Status".to_owned());
    }
    let waits = document["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
    let told = came.header("retry-after").parse::<u64>().unwrap_or(0);
    if waits != told {
        return Err(format!("waits {waits} in the body and {told} in the header"));
    }
    status(asked, document, Some(came.code))
}

/// Checks a failure Status.
fn status(asked: &FuzzRequest, status: &Value, code: Option<u16>) -> Result<(), String> {
    let message = status["message"].as_str().unwrap_or_default();
    if code.is_some_and(|code| status["code"] != code) {
        return Err(format!("a Status of {} in an answer of {code:?}", status["code"]));
    }
    if status["status"] != "Failure"
        || status["apiVersion"] != "v1"
        || !status["metadata"].is_object()
        || message.is_empty()
    {
        return Err("a Status without its members".to_owned());
    }
    let is_past_deadline = message == PAST_DEADLINE && asked.target.contains("timeoutSeconds=-");
    if status["code"] == 500 && !is_past_deadline && !NAMED_500.iter().any(|named| message.starts_with(named)) {
        return Err(format!("a 500 that the protocol does not name: {message}"));
    }
    if status["code"] != 500 && status["reason"].as_str().is_none_or(str::is_empty) {
        return Err("a Status without a reason".to_owned());
    }
    // Names and selectors may appear in errors; contents of data may not.
    let told = status.to_string().contains(MARKER) && !asked.target.contains(MARKER);
    if told { Err("what stood in the data of a body is told".to_owned()) } else { Ok(()) }
}

fn plain(came: &Came, text: &str) -> Result<(), String> {
    if came.code < 400 {
        return Ok(());
    }
    // The only error that Kubernetes sends as JSON with a text/plain content type.
    let timeout = came.code == 504 && serde_json::from_str::<Value>(text).is_ok_and(|status| status["code"] == 504);
    let health = came.code == 500 && text.contains("check failed");
    if timeout || health || (came.code == 404 && text == "404 page not found\n") {
        return Ok(());
    }
    Err("an error in a text of its own".to_owned())
}
