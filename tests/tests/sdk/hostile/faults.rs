//! Named faults of a hostile server. A fault replaces a response, rewrites the lines of a watch, rewrites a list's
//! body, or changes the world without telling the client.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    server::{ReadKind, status},
    world::{Change, Object, World},
};

/// A raw response, and what happens to the connection after it.
pub(crate) struct Raw {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

pub(crate) enum Then {
    Close,
    Reset,
    Hang,
    Repeat { bytes: &'static [u8], every: Duration },
}

/// One line of a watch.
pub(crate) enum Line {
    Change(Change),
    Bookmark { version: u64, ends: bool },
}

impl Line {
    /// The correct line.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Change(change) => event(change.kind, &change.object.json()),
            Self::Bookmark { version, ends } => bookmark(&version.to_string(), *ends),
        }
    }
}

/// Renders the body of a list of objects at a position, with a continue token.
pub(crate) type Listed = fn(&[&Object], u64, &str) -> String;

/// One fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) answer: Option<fn(ReadKind) -> Option<Raw>>,
    pub(crate) line: Option<fn(&Line, &mut Vec<u8>)>,
    pub(crate) list: Option<Listed>,
    pub(crate) world: Option<fn(&mut World)>,
    /// True to accept no connection.
    pub(crate) refuses: bool,
    /// True to end open responses when the fault begins.
    pub(crate) cuts: bool,
    /// Bound on the requests per minute, [`REQUESTS_PER_MINUTE`] by default.
    pub(crate) requests_max: usize,
    /// Bound on the seconds until the copy is correct again.
    pub(crate) converges: u64,
    /// True to run the fault also from the first request on, and with pages.
    pub(crate) starts: bool,
    /// True to write every object once afterwards: some were sent with wrong contents that no client can detect.
    pub(crate) touches: bool,
}

/// Bound on the requests per minute, however the server behaves.
pub(crate) const REQUESTS_PER_MINUTE: usize = 14;

/// Bound on the seconds until a copy is correct after its server recovers: the longest delay, plus the time of a read.
const CONVERGES: u64 = 120;

const DEFAULT: Fault = Fault {
    name: "",
    answer: None,
    line: None,
    list: None,
    world: None,
    refuses: false,
    cuts: false,
    requests_max: REQUESTS_PER_MINUTE,
    converges: CONVERGES,
    starts: true,
    touches: false,
};

const fn answers(name: &'static str, answer: fn(ReadKind) -> Option<Raw>) -> Fault {
    Fault { name, answer: Some(answer), cuts: true, ..DEFAULT }
}

const fn lines(name: &'static str, line: fn(&Line, &mut Vec<u8>)) -> Fault {
    Fault { name, line: Some(line), ..DEFAULT }
}

const fn touched(name: &'static str, line: fn(&Line, &mut Vec<u8>)) -> Fault {
    Fault { touches: true, ..lines(name, line) }
}

const fn lists(name: &'static str, list: fn(&[&Object], u64, &str) -> String) -> Fault {
    Fault { name, list: Some(list), ..DEFAULT }
}

const fn worlds(name: &'static str, world: fn(&mut World)) -> Fault {
    Fault { name, world: Some(world), cuts: true, starts: false, ..DEFAULT }
}

fn raw(head: &str, body: impl AsRef<[u8]>, then: Then) -> Option<Raw> {
    Some(Raw { bytes: [head.as_bytes(), b"\r\n", body.as_ref()].concat(), then })
}

fn http(code: u16, headers: &str, body: impl AsRef<[u8]>) -> Option<Raw> {
    let length = body.as_ref().len();
    raw(&format!("HTTP/1.1 {code} X\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}"), body, Then::Close)
}

fn refusal(code: u16, reason: &str) -> Option<Raw> {
    let (code, body) = status(code, reason, "scripted");
    http(code, "Content-Type: application/json\r\n", body)
}

fn is_watch(asked: ReadKind) -> bool {
    matches!(asked, ReadKind::Watch | ReadKind::Stream)
}

/// Accepts a watch, sends `body`, and ends it.
fn watch_says(asked: ReadKind, body: &str) -> Option<Raw> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    if is_watch(asked) { raw(head, body, Then::Close) } else { None }
}

fn error_event(object: &str) -> String {
    event("ERROR", object)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(version: &str, ends: bool) -> String {
    let annotations = if ends { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let metadata = format!(r#"{{"resourceVersion":"{version}"{annotations}}}"#);
    event("BOOKMARK", &format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#))
}

pub(crate) fn list_body(objects: &[&Object], version: u64, token: &str) -> String {
    list_with(&objects.iter().map(|object| object.json()).collect::<Vec<_>>().join(","), &version.to_string(), token)
}

fn list_with(items: &str, version: &str, token: &str) -> String {
    let metadata = format!(r#"{{"resourceVersion":"{version}","continue":"{token}"}}"#);
    format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#)
}

/// Rewrites each change; bookmarks stay correct.
fn changes(line: &Line, out: &mut Vec<u8>, write: impl FnOnce(&Change) -> String) {
    match line {
        Line::Change(change) => out.extend(write(change).into_bytes()),
        Line::Bookmark { .. } => out.extend(line.text().into_bytes()),
    }
}

/// Rewrites the object of each change.
fn objects(line: &Line, out: &mut Vec<u8>, write: impl FnOnce(&Object) -> String) {
    changes(line, out, |change| event(change.kind, &write(&change.object)));
}

/// Rewrites the object of one change in eight.
fn some(line: &Line, out: &mut Vec<u8>, write: impl FnOnce(&Object) -> String) {
    objects(line, out, |object| if object.version % 8 == 0 { write(object) } else { object.json() });
}

fn bookmarks(line: &Line, out: &mut Vec<u8>, write: impl FnOnce(u64, bool) -> String) {
    match line {
        Line::Bookmark { version, ends } => out.extend(write(*version, *ends).into_bytes()),
        Line::Change(_) => out.extend(line.text().into_bytes()),
    }
}

fn deep(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

const JSON: &str = "Content-Type: application/json\r\n";
const SECOND: Duration = Duration::from_secs(1);

/// All faults.
pub(crate) static FAULTS: &[Fault] = &[
    // Refusals.
    Fault { name: "refused", refuses: true, cuts: true, ..DEFAULT },
    answers("rst_accept", |_| Some(Raw { bytes: Vec::new(), then: Then::Reset })),
    answers("closed_at_once", |_| Some(Raw { bytes: Vec::new(), then: Then::Close })),
    answers("s400", |_| refusal(400, "BadRequest")),
    answers("s401", |_| refusal(401, "Unauthorized")),
    answers("s403", |_| refusal(403, "Forbidden")),
    answers("s404", |_| refusal(404, "NotFound")),
    answers("s405", |_| refusal(405, "MethodNotAllowed")),
    answers("s408", |_| refusal(408, "Timeout")),
    answers("s410", |_| refusal(410, "Expired")),
    answers("s422", |_| refusal(422, "Invalid")),
    answers("s429", |_| refusal(429, "TooManyRequests")),
    answers("s429_retry_after_0", |_| http(429, "Retry-After: 0\r\n", "")),
    answers("s429_retry_after_1", |_| http(429, "Retry-After: 1\r\n", "")),
    answers("s429_retry_after_date", |_| http(429, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "")),
    answers("s500", |_| refusal(500, "InternalError")),
    answers("s502_html", |_| http(502, "Content-Type: text/html\r\n", "<html><h1>Bad Gateway</h1></html>")),
    answers("s503", |_| refusal(503, "ServiceUnavailable")),
    answers("s504", |_| refusal(504, "Timeout")),
    answers("s204", |_| raw("HTTP/1.1 204 No Content\r\nConnection: close\r\n", "", Then::Close)),
    answers("s206", |_| http(206, JSON, "{")),
    answers("s301_other", |_| http(301, "Location: http://127.0.0.1:1/\r\n", "")),
    answers("s302", |_| http(302, "Location: /login\r\n", "<a>login</a>")),
    answers("watch_404", |asked| if is_watch(asked) { refusal(404, "NotFound") } else { None }),
    answers("watch_410", |asked| if is_watch(asked) { refusal(410, "Expired") } else { None }),
    answers("watch_429", |asked| if is_watch(asked) { refusal(429, "TooManyRequests") } else { None }),
    answers("watch_500", |asked| if is_watch(asked) { refusal(500, "InternalError") } else { None }),
    // Watches that stay forbidden are replaced by polling every five minutes.
    Fault {
        converges: 400,
        ..answers("watch_403", |asked| if is_watch(asked) { refusal(403, "Forbidden") } else { None })
    },
    Fault { converges: 400, ..answers("watch_405", |asked| if is_watch(asked) { refusal(405, "") } else { None }) },
    answers("get_403", |asked| if asked == ReadKind::Object { refusal(403, "Forbidden") } else { None }),
    // Invalid responses.
    answers("s200_empty", |_| http(200, JSON, "")),
    answers("s200_html", |_| http(200, "Content-Type: text/html\r\n", "<!doctype html><p>please log in</p>")),
    answers("s200_protobuf", |_| http(200, "Content-Type: application/vnd.kubernetes.protobuf\r\n", b"k8s\0\n\x0c")),
    answers("s200_gzip", |_| http(200, "Content-Encoding: gzip\r\n", b"\x1f\x8b\x08\0\0\0\0\0")),
    answers("s200_status", |_| http(200, JSON, status(500, "InternalError", "scripted").1)),
    answers("s200_object", |_| http(200, JSON, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}"#)),
    answers("s200_truncated", |_| raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n", "{\"kind\":", Then::Close)),
    answers("s200_truncated_reset", |_| raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n", "{\"kind\":", Then::Reset)),
    answers("garbage", |_| raw("SSH-2.0-OpenSSH_9.2", "", Then::Close)),
    answers("headers_1mb", |_| http(200, &format!("X-Long: {}\r\n", "x".repeat(1 << 20)), "")),
    answers("http10", |asked| {
        watch_says(asked, "").map(|_| Raw { bytes: b"HTTP/1.0 200 OK\r\n\r\n".into(), then: Then::Close })
    }),
    answers("hang_before_headers", |_| Some(Raw { bytes: Vec::new(), then: Then::Hang })),
    answers("hang_after_headers", |_| raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "", Then::Hang)),
    answers("hang_in_object", |_| raw("HTTP/1.1 200 OK\r\n", r#"{"type":"ADDED","object":{"kind":"#, Then::Hang)),
    answers("hang_in_error", |_| raw("HTTP/1.1 500 X\r\nContent-Length: 99\r\n", "{", Then::Hang)),
    answers("endless_error", |_| {
        raw(
            "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n",
            "",
            Then::Repeat { bytes: b"4\r\nnope\r\n", every: SECOND / 50 },
        )
    }),
    answers("a_byte_a_second", |_| raw("HTTP/1.1 200 OK\r\n", "{", Then::Repeat { bytes: b" ", every: SECOND })),
    answers("newlines_only", |asked| {
        let head = "HTTP/1.1 200 OK\r\n";
        if is_watch(asked) { raw(head, "\n", Then::Repeat { bytes: b"\n", every: SECOND }) } else { None }
    }),
    answers("chunk_reset", |asked| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
        if is_watch(asked) { raw(head, "ff\r\n{\"type\":", Then::Reset) } else { None }
    }),
    answers("chunk_garbage", |_| raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "zz\r\n", Then::Close)),
    answers("watch_closed_at_once", |asked| watch_says(asked, "")),
    answers("watch_as_list", |asked| watch_says(asked, &list_with("", "7", ""))),
    answers("bom", |asked| watch_says(asked, "\u{feff}{\"type\":\"ADDED\",\"object\":{}}")),
    // ERROR events.
    answers("error_410", |asked| watch_says(asked, &error_event(&status(410, "Expired", "scripted").1))),
    answers("error_gone", |asked| watch_says(asked, &error_event(&status(410, "Gone", "scripted").1))),
    answers("error_expired_no_code", |asked| {
        watch_says(asked, &error_event(r#"{"kind":"Status","reason":"Expired"}"#))
    }),
    answers("error_no_code", |asked| watch_says(asked, &error_event(r#"{"kind":"Status","message":"x"}"#))),
    answers("error_code_string", |asked| watch_says(asked, &error_event(r#"{"kind":"Status","code":"410"}"#))),
    answers("error_success", |asked| watch_says(asked, &error_event(r#"{"kind":"Status","status":"Success"}"#))),
    answers("error_429", |asked| watch_says(asked, &error_event(&status(429, "TooManyRequests", "scripted").1))),
    answers("error_500", |asked| watch_says(asked, &error_event(&status(500, "InternalError", "scripted").1))),
    answers("error_504", |asked| watch_says(asked, &error_event(&status(504, "Timeout", "scripted").1))),
    answers("error_too_large", |asked| {
        watch_says(asked, &error_event(&status(504, "Timeout", "Too large resource version: 9, current: 1").1))
    }),
    answers("error_null", |asked| watch_says(asked, &error_event("null"))),
    answers("error_string", |asked| watch_says(asked, &error_event("\"gone\""))),
    answers("error_huge", |asked| {
        watch_says(asked, &error_event(&format!("{{\"message\":\"{}\"}}", "x".repeat(1 << 20))))
    }),
    // Framing.
    lines("crlf", |line, out| out.extend(line.text().replace('\n', "\r\n").into_bytes())),
    lines("one_line", |line, out| out.extend(line.text().trim_end().as_bytes())),
    lines("type_last", |line, out| {
        changes(line, out, |change| format!("{{\"object\":{},\"type\":\"{}\"}}\n", change.object.json(), change.kind));
    }),
    lines("blank_lines", |line, out| out.extend(format!("\n\n{}", line.text()).into_bytes())),
    lines("unknown_events", |line, out| {
        out.extend((event("RENAMED", "{}") + &event("", "7") + &line.text()).into_bytes());
    }),
    lines("twice", |line, out| out.extend(line.text().repeat(2).into_bytes())),
    lines("all_added", |line, out| {
        changes(line, out, |change| {
            event(if change.kind == "DELETED" { "DELETED" } else { "ADDED" }, &change.object.json())
        });
    }),
    lines("deleted_unknown", |line, out| {
        objects(line, out, |object| object.json());
        if let Line::Change(change) = line {
            let unknown = Object { name: format!("unknown-{}", change.object.version), ..change.object.clone() };
            out.extend(event("DELETED", &unknown.json()).into_bytes());
        }
    }),
    lines("nul_bytes", |line, out| out.extend(format!("\0{}", line.text()).into_bytes())),
    lines("event_without_object", |_, out| out.extend_from_slice(b"{\"type\":\"MODIFIED\"}\n")),
    lines("event_without_type", |line, out| {
        changes(line, out, |change| format!("{{\"object\":{}}}\n", change.object.json()))
    }),
    // Objects.
    lines("metadata_last", |line, out| {
        objects(line, out, |object| {
            format!(r#"{{"data":{{"value":"{}"}},"metadata":{}}}"#, object.value, object.metadata())
        });
    }),
    touched("keys_twice", |line, out| {
        objects(line, out, |object| object.json().replace("}}", "},\"data\":{},\"kind\":\"X\"}"))
    }),
    lines("escapes", |line, out| {
        objects(line, out, |object| object.json().replace("\"metadata\"", "\"m\\u0065tadata\""))
    }),
    lines("no_uid", |line, out| objects(line, out, |object| object.with(&object.metadata().replace(&object.uid, "")))),
    touched("poison", |line, out| {
        some(line, out, |object| object.json().replace("\"data\":", "\"immutable\":7,\"data\":"))
    }),
    touched("some_null", |line, out| some(line, out, |_| "null".into())),
    touched("some_deep", |line, out| {
        some(line, out, |object| object.json().replace("\"data\":", &format!("\"x\":{},\"data\":", deep(600))))
    }),
    touched("some_10000_deep", |line, out| {
        some(line, out, |object| object.json().replace("\"data\":", &format!("\"x\":{},\"data\":", deep(9_990))));
    }),
    touched("some_17mb", |line, out| {
        some(line, out, |object| {
            object.json().replace("\"data\":", &format!("\"x\":\"{}\",\"data\":", "x".repeat(17 << 20)))
        });
    }),
    // A deletion without a name would leave an object that no client could know to be deleted.
    touched("some_metadata_string", |line, out| {
        some(line, out, |object| match line {
            Line::Change(Change { kind: "DELETED", .. }) => object.json(),
            Line::Change(_) | Line::Bookmark { .. } => object.with("\"metadata\""),
        });
    }),
    lines("huge_envelope", |line, out| {
        out.extend(format!("{{\"x\":\"{}\",{}", "x".repeat(100_000), &line.text()[1..]).into_bytes())
    }),
    lines("bad_utf8", |line, out| {
        let text = line.text().replace("\"data\":", "\"x\":\"~\",\"data\":");
        out.extend(text.into_bytes().into_iter().map(|byte| if byte == b'~' { 0xff } else { byte }));
    }),
    // Positions.
    touched("version_missing", |line, out| {
        objects(line, out, |object| object.with(&object.metadata().replace("resourceVersion", "x")))
    }),
    touched("version_number", |line, out| {
        let quoted = |object: &Object| format!("\"{}\"}}", object.version);
        objects(line, out, |object| {
            object.with(&object.metadata().replace(&quoted(object), &format!("{}}}", object.version)))
        });
    }),
    lines("version_abc", |line, out| objects(line, out, |object| object.versioned("abc"))),
    lines("version_huge", |line, out| objects(line, out, |object| object.versioned("99999999999999999999999"))),
    lines("deleted_at_old_version", |line, out| {
        changes(line, out, |change| {
            let back = if change.kind == "DELETED" { 5 } else { 0 };
            let object = Object { version: change.object.version - back, ..change.object.clone() };
            event(change.kind, &object.json())
        });
    }),
    lines("bookmark_abc", |line, out| bookmarks(line, out, |_, ends| bookmark("abc", ends))),
    lines("bookmark_huge", |line, out| bookmarks(line, out, |_, ends| bookmark("99999999999999999999999999", ends))),
    lines("bookmark_space", |line, out| bookmarks(line, out, |_, ends| bookmark("5&limit=1#", ends))),
    Fault {
        // Three reads wait for the position before the client abandons it, with the backoff of failures in between.
        converges: 300,
        ..lines("bookmark_high", |line, out| {
            bookmarks(line, out, |version, ends| bookmark(&(version + 1_000_000).to_string(), ends));
        })
    },
    lines("bookmark_low", |line, out| bookmarks(line, out, |version, ends| bookmark(&(version / 2).to_string(), ends))),
    lines("bookmark_0", |line, out| bookmarks(line, out, |_, ends| bookmark("0", ends))),
    lines("bookmark_empty", |line, out| bookmarks(line, out, |_, ends| bookmark("", ends))),
    lines("no_end", |line, out| bookmarks(line, out, |version, _| bookmark(&version.to_string(), false))),
    lines("end_annotation_false", |line, out| {
        bookmarks(line, out, |version, ends| bookmark(&version.to_string(), ends).replace("\"true\"", "\"false\""));
    }),
    lines("end_twice", |line, out| {
        bookmarks(line, out, |version, ends| bookmark(&version.to_string(), ends).repeat(2))
    }),
    lines("bookmarks_between", |line, out| {
        changes(line, out, |change| {
            event(change.kind, &change.object.json()) + &bookmark(&change.object.version.to_string(), false)
        });
    }),
    // Lists.
    lists("list_metadata_last", |all, version, token| {
        let body = list_body(all, version, token);
        let (head, items) = body.split_once("\"metadata\":{\"resourceVersion\"").unwrap_or((&body, ""));
        let (metadata, items) = items.split_once("},\"items\":").unwrap_or((items, "[]}"));
        format!("{head}\"items\":{},\"metadata\":{{\"resourceVersion\"{metadata}}}}}", &items[..items.len() - 1])
    }),
    lists("list_no_kind", |all, version, token| {
        list_body(all, version, token)
            .replace("\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",", "")
            .replace("\"kind\":\"ConfigMapList\",", "")
    }),
    lists("list_version_0", |all, _, token| list_body(all, 0, token)),
    lists("list_version_missing", |all, version, token| {
        list_body(all, version, token).replacen("\"resourceVersion\"", "\"x\"", 1)
    }),
    lists("list_version_abc", |all, _, token| {
        list_with(&all.iter().map(|it| it.json()).collect::<Vec<_>>().join(","), "abc", token)
    }),
    lists("list_items_missing", |_, version, _| list_with("", &version.to_string(), "").replace(",\"items\":[]", "")),
    lists("list_items_twice", |all, version, token| {
        list_body(all, version, token).replace("\"items\"", "\"items\":[],\"items\"")
    }),
    lists("list_with_null", |all, version, token| {
        list_body(all, version, token).replace("\"items\":[", "\"items\":[null,7,[],")
    }),
    lists("list_trailing", |all, version, token| list_body(all, version, token) + "{}"),
    lists("list_as_watch", |all, _, _| all.iter().map(|object| event("ADDED", &object.json())).collect()),
    // Pages without end, or in circles.
    Fault {
        requests_max: 1_000,
        ..lists("pages_without_end", |all, version, _| {
            // Each page has its own token, and every token leads to the first page.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            list_body(all, version, &format!("{version}-x{now}"))
        })
    },
    Fault {
        requests_max: 50,
        ..lists("token_of_1mb", |all, version, _| list_body(all, version, &"t".repeat(1 << 20)))
    },
    Fault { requests_max: 50, ..lists("token_expired", |all, version, _| list_body(all, version, "1-0")) },
    // Histories.
    worlds("everything_gone", World::clear),
    worlds("compacted", |world| {
        world.step();
        world.compact();
    }),
    worlds("history_higher", |world| world.replace(world.version + 1_000)),
    worlds("history_lower", |world| world.replace(20)),
];
