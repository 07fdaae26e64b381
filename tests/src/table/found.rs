//! Renders responses in the notation of the expected ones.
//!
//! INVARIANT: an error's body equals Kubernetes' byte for byte; otherwise its rendering includes the raw body.

use std::time::Duration;

use http::StatusCode;
use informer_core::wire::watch_event::EventKind;
use informer_serving::{
    continue_token::{ContinueToken, Position},
    status::{Details, Status},
    watch_event,
};
use serde_json::Value;

use super::marks::Marks;
use crate::http::{Answer, Event, Watch, key, resource_version};

/// Minimum duration of a response that waited for a position; a shorter one did not wait.
pub(super) const WAITED: Duration = Duration::from_millis(2_800);

/// Prefix of a watch's lines when its headers came late.
pub(super) const LATE: &str = "(after 3 s) | ";

/// An expectation with its positions filled in.
pub(super) struct Expected<'a> {
    pub(super) text: String,
    pub(super) marks: &'a Marks,
}

impl Expected<'_> {
    /// The lines expected of a watch.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.strip_prefix(LATE).unwrap_or(&self.text);
        lines.split(" | ").filter(|line| !line.is_empty())
    }

    /// Returns the expectation, and a whole response in the same notation.
    pub(super) fn of_answer(self, answer: &Answer) -> (String, String) {
        let found = if answer.code == StatusCode::OK { self.success(&answer.json()) } else { self.failure(answer) };
        let (kind, cached) = (answer.header("content-type"), answer.header("cache-control"));
        (self.text, found + &odd_headers(kind, cached))
    }

    /// Returns the expectation, and the lines of a watch in the same notation. `waited` is true if the headers came
    /// late.
    pub(super) fn of_lines(self, watch: &Watch, waited: bool, lines: &[Result<Event, String>]) -> (String, String) {
        let expected: Vec<&str> = self.lines().collect();
        let found = lines.iter().enumerate().map(|(at, line)| match line {
            Ok(event) => event_text(event, expected.get(at).copied().unwrap_or_default()),
            Err(end) => end.clone(),
        });
        let mut found = found.collect::<Vec<_>>().join(" | ");
        if waited {
            found = format!("{LATE}{found}");
        }
        if watch.code() != StatusCode::OK {
            found = format!("{}: {found}", watch.code());
        }
        found.push_str(&odd_headers(watch.header("content-type"), watch.header("cache-control")));
        (self.text.clone(), found)
    }

    /// Renders an object or a list, with the parts that the expectation compares.
    pub(super) fn success(&self, body: &Value) -> String {
        let rows = body["rows"].as_array().map(|rows| rows.iter().map(|row| &row["object"]).collect::<Vec<_>>());
        let Some(items) = body["items"].as_array().map(|items| items.iter().collect()).or(rows) else {
            return object_text(body, &self.text);
        };
        let wanted = self.text.split_once(']').map_or("", |(items, _)| items.trim_start_matches('['));
        let wanted: Vec<&str> = wanted.split(' ').collect();
        let items =
            items.iter().enumerate().map(|(at, item)| object_text(item, wanted.get(at).copied().unwrap_or("@(")));
        let mut found = format!("[{}]", items.collect::<Vec<_>>().join(" "));
        let (metadata, at) = (&body["metadata"], resource_version(body));
        let tail = self.text.split_once(']').map_or("", |(_, tail)| tail);
        if let Some((_, least)) = tail.split_once("@>=") {
            let name = least.split(' ').next().unwrap_or_default();
            let holds = self.marks.of(name).is_some_and(|least| at >= least);
            found.push_str(&if holds { format!(" @>={name}") } else { format!(" @{at}") });
        } else if tail.contains('@') {
            found.push_str(&format!(" @{at}"));
        }
        if let Some(token) = metadata["continue"].as_str().filter(|token| !token.is_empty()) {
            found.push_str(&token_text(token, at));
        }
        if let Some(count) = metadata["remainingItemCount"].as_u64() {
            found.push_str(&format!(" remaining {count}"));
        }
        found
    }

    fn failure(&self, answer: &Answer) -> String {
        let Some(status) = Status::read(&answer.body) else {
            return format!("{} raw: {}", answer.code.as_u16(), answer.text());
        };
        let mut found = status_text(&status);
        if self.text.contains("current: *") {
            found = any_current(&found);
        }
        if answer.code.as_u16() != status.code {
            found = format!("{} with {found}", answer.code);
        }
        // A 406 for a client that accepts no JSON is in the plain-text form.
        if status.to_json() != *answer.body && answer.code != StatusCode::NOT_ACCEPTABLE {
            return format!("{found} raw: {}", answer.text());
        }
        if !status.metadata.continue_token.is_empty() {
            found.push_str(&token_text(&status.metadata.continue_token, 0));
        }
        let wait = status.retry_after().map(|wait| wait.as_secs().to_string());
        if answer.header("retry-after") != wait.as_deref().unwrap_or_default() {
            found.push_str(&format!(" but retry-after {:?}", answer.header("retry-after")));
        }
        if answer.took >= WAITED {
            found.push_str(" after 3 s");
        }
        found
    }
}

/// Describes unexpected headers that every response must have.
fn odd_headers(content_type: &str, cache_control: &str) -> String {
    let mut odd = String::new();
    if content_type != "application/json" {
        odd.push_str(&format!(" as {content_type}"));
    }
    if !cache_control.contains("private") {
        odd.push_str(" for any cache");
    }
    odd
}

/// Code, reason, message, and the object it concerns.
fn status_text(status: &Status) -> String {
    let reason = serde_json::to_value(&status.reason).ok();
    let reason = reason.as_ref().and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("{} {reason}: {}", status.code, status.message);
    if let Some(details) = &status.details {
        if *details == Details::default() {
            text.push_str(" details {}");
        }
        if !details.kind.is_empty() && details.kind != "ListOptions" {
            text.push_str(&format!(" about {} {}", details.kind, details.name));
        }
        let causes = details.causes.iter().map(|cause| {
            let reason = serde_json::to_value(&cause.reason).ok();
            let reason = reason.as_ref().and_then(Value::as_str).unwrap_or_default();
            // The message already lists causes that have a field.
            if cause.field.is_empty() {
                format!("{reason} ({})", cause.message)
            } else {
                format!("{reason} of {}", cause.field)
            }
        });
        let causes = causes.collect::<Vec<_>>().join(" ");
        if !causes.is_empty() {
            text.push_str(&format!(" causes {causes}"));
        }
    }
    if let Some(wait) = status.retry_after() {
        text.push_str(&format!(" wait {}", wait.as_secs()));
    }
    text
}

/// Replaces the number after `current: ` by a star.
fn any_current(text: &str) -> String {
    let Some((before, after)) = text.split_once("current: ") else { return text.to_owned() };
    format!("{before}current: *{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Start of a token: the key after which it continues, with its position if that differs from the list's.
fn token_text(token: &str, list_at: u64) -> String {
    let Ok(token) = ContinueToken::decode(token) else { return format!(" more(unreadable {token})") };
    let start = token.start.strip_suffix('\0').unwrap_or("no NUL").to_owned();
    match token.resource_version {
        Position::At(at) if at == list_at => format!(" more({start})"),
        Position::At(at) => format!(" more({start} at {at})"),
        Position::Latest => format!(" offers({start})"),
    }
}

fn raw(found: &str, event: &Event) -> String {
    format!("{found} raw: {}", String::from_utf8_lossy(&event.raw))
}

fn event_text(event: &Event, wanted: &str) -> String {
    match event.kind {
        EventKind::Added | EventKind::Modified | EventKind::Deleted => {
            let wanted = wanted.split_once(' ').map_or("@(", |(_, object)| object);
            format!("{} {}", event.kind.as_str(), object_text(&event.object, wanted))
        }
        EventKind::Bookmark => {
            let text = |member: &str| event.object[member].as_str().unwrap_or_default();
            let (kind, api_version, at) = (text("kind"), text("apiVersion"), event.resource_version());
            let mut found = format!("{}@{at}", event.brief());
            if wanted.contains('(') {
                found.push_str(&format!("({kind} {api_version})"));
            }
            let plain = watch_event::bookmark(kind, api_version, at, event.ends_initial_state());
            if *plain == *event.raw { found } else { raw(&found, event) }
        }
        EventKind::Error => {
            let status = serde_json::to_vec(&event.object).ok().and_then(|status| Status::read(&status));
            let status = status.unwrap_or_default();
            let found = format!("ERROR {}", status_text(&status));
            if *watch_event::error(&status) == *event.raw { found } else { raw(&found, event) }
        }
        EventKind::Other => event.brief(),
    }
}

/// The key, and the parts that `wanted` compares: `@` the position, `(` the attributes.
pub(super) fn object_text(object: &Value, wanted: &str) -> String {
    let mut text = key(object);
    if wanted.contains('@') {
        text.push_str(&format!("@{}", resource_version(object)));
    }
    if wanted.contains('(') {
        text.push_str(&format!("({})", attributes(object).join(",")));
    }
    text
}

fn attributes(object: &Value) -> Vec<String> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value));
    let others = [("k", &object["data"]["k"]), ("node", &object["spec"]["nodeName"])];
    let all = labels.chain(others).filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    all.collect()
}
