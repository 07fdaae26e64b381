//! Recorded responses of kube-apiserver 1.36, request by request, as expectations for the server.
//!
//! INVARIANT: an expectation is kube-apiserver's response. Where the server deliberately differs, the row names the row
//! of `docs/guarantees.md` that documents it, and expects the server's response instead.
//!
//! A session is a text. A test sends its requests from top to bottom to a fresh server at revision 1000:
//!
//! - `== claim` begins a row, and `~ first cell` names the row of the guarantees that documents the difference.
//! - `> METHOD path?query` is a request, unescaped; `> name: value` is a header, `> {…}` a JSON body, `>| …` a line of
//!   any other body.
//! - `< 201` is the status, `< name: value` a header, and the line `< {…}` is the body; `<| …` is a line of a text
//!   body. The default headers are `application/json`, and `private` in `cache-control`.
//! - `> WATCH path` reads a stream: a line for each event, and `< END` for the clean end. Consecutive watches are open
//!   concurrently. They last eight seconds, so that a busy machine has time for the state; those that take bookmarks
//!   get the last one two seconds before the end, as from kube-apiserver.
//!
//! In a body `…` matches anything: inside a string, as a value, as a member (more may follow) and as the last item of
//! an array. `$uid`, `$time` and `$rv` match values of that format. `$A` names a position that later lines use as
//! `{A}`, `{A+1}` and `{A-1}`, and `token({A}/ns/name$)` is a continue token as in the table of LIST and WATCH.
//! managedFields are compared only if the row expects them.
//!
//! Cases that the table (`tests/src/table/`) checks byte by byte are not repeated here: invalid combinations of
//! options, malformed values, selectors and tokens, future positions, and the start of a watch.

mod custom;
mod documents;
mod forms;
mod lists;
mod pattern;
mod pods;
mod script;
mod watches;
mod writes;

use std::{collections::BTreeMap, fs, path::Path};

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method, StatusCode};
use tests::http::{Client, LINE_WAIT, Step};

use self::{pattern::Marks, script::Row};
use super::server;

/// The response to a row.
struct Came {
    code: u16,
    headers: HeaderMap,
    body: Body,
}

enum Body {
    Whole(Bytes),
    /// Lines of a stream, and how it ended.
    Lines(Vec<serde_json::Value>, String),
}

impl Body {
    /// The beginning of the body, for messages.
    fn start(&self) -> String {
        let text = match self {
            Self::Whole(body) => String::from_utf8_lossy(body).into_owned(),
            Self::Lines(lines, end) => format!("{lines:?} {end}"),
        };
        text.chars().take(400).collect()
    }
}

/// Runs a session; panics with all differences.
async fn holds(session: &str) {
    let server = server(&["--first-revision", "1000"]).await;
    let (client, mut marks, mut wrong) = (server.client(), Marks::default(), Vec::new());
    let rows = script::parse(session);
    let mut rest = &rows[..];
    while let Some(first) = rest.first() {
        // A batch is one row, or consecutive watches.
        let watches = rest.iter().take_while(|row| row.method == "WATCH").count();
        let (batch, others) = rest.split_at(watches.max(1));
        let came = if watches > 0 {
            join_all(batch.iter().map(|row| watch(client, row, &marks))).await
        } else {
            vec![ask(client, first, &marks).await]
        };
        for (row, came) in batch.iter().zip(came) {
            let mut differences = Vec::new();
            compare(row, &came, &mut marks, &mut differences);
            wrong.extend(differences.into_iter().map(|difference| format!("{}: {difference}", row.claim)));
        }
        rest = others;
    }
    assert!(wrong.is_empty(), "{} differences:\n{}\n{marks:?}", wrong.len(), wrong.join("\n"));
}

async fn ask(client: Client, row: &Row<'_>, marks: &Marks) -> Came {
    let method: Method = row.method.parse().expect("a method");
    let headers: Vec<(&str, &str)> = row.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = marks.fill(&row.body);
    let answer = client.send(Client::request(method, &marks.path(row.path), &headers, body.into())).await;
    Came { code: answer.code.as_u16(), headers: answer.headers, body: Body::Whole(answer.body) }
}

async fn watch(client: Client, row: &Row<'_>, marks: &Marks) -> Came {
    let headers: Vec<(&str, &str)> = row.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut watch = client.watch_with(&marks.path(row.path), &headers).await;
    if watch.code() != StatusCode::OK {
        // A `Watch` reads only lines, so repeat the request for its body.
        let answer = client.get_with(&marks.path(row.path), &headers).await;
        return Came { code: answer.code.as_u16(), headers: answer.headers, body: Body::Whole(answer.body) };
    }
    let mut lines = Vec::new();
    let end = loop {
        match watch.step(LINE_WAIT).await {
            Step::Event(event) => lines.push(serde_json::from_slice(&event.raw).expect("it was read")),
            Step::End => break "END".to_owned(),
            other @ (Step::Cut(_) | Step::Silence) => break format!("{other:?}"),
        }
    };
    let names = ["content-type", "cache-control", "content-encoding", "vary"];
    let pairs = names.iter().filter(|name| !watch.header(name).is_empty());
    let headers = pairs.map(|name| (name.parse().expect("a name"), watch.header(name).parse().expect("a value")));
    Came { code: watch.code().as_u16(), headers: headers.collect(), body: Body::Lines(lines, end) }
}

fn compare(row: &Row<'_>, came: &Came, marks: &mut Marks, wrong: &mut Vec<String>) {
    if came.code != row.code {
        // The other differences would only repeat this one.
        wrong.push(format!("status {} and not {}: {}", came.code, row.code, came.body.start()));
        return;
    }
    let usual = [("content-type", "application/json"), ("cache-control", "…private")];
    let mut headers: BTreeMap<&str, &str> = usual.into_iter().collect();
    headers.extend(row.expected_headers.iter().copied());
    for (name, expected) in headers {
        let found = came.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
        let expected = if expected == "no" { "-" } else { expected };
        if !pattern::is_like(expected, found) {
            wrong.push(format!("header {name}: {found:?} and not {expected:?}"));
        }
    }
    match &came.body {
        Body::Lines(lines, end) => compare_lines(row, lines, end, marks, wrong),
        Body::Whole(body) if row.text => {
            let (found, expected) = (String::from_utf8_lossy(body), row.lines.join("\n"));
            if !pattern::is_like(&expected, &found) {
                wrong.push(format!("{found:?} and not {expected:?}"));
            }
        }
        Body::Whole(body) => match (serde_json::from_slice(body), row.lines.first()) {
            (Ok(found), Some(expected)) => marks.compare(expected, &found, wrong),
            (Err(error), Some(_)) => wrong.push(format!("{error} in {}", String::from_utf8_lossy(body))),
            (_, None) => {}
        },
    }
}

fn compare_lines(row: &Row<'_>, lines: &[serde_json::Value], end: &str, marks: &mut Marks, wrong: &mut Vec<String>) {
    for (at, expected) in row.lines.iter().enumerate() {
        match lines.get(at) {
            Some(found) => marks.compare(expected, found, wrong),
            None => wrong.push(format!("no line {}: {expected}", at + 1)),
        }
    }
    wrong.extend(lines.iter().skip(row.lines.len()).map(|line| format!("more: {line}")));
    if end != "END" {
        wrong.push(format!("ends with {end}"));
    }
}

macro_rules! sessions {
    ($($name:ident: $session:expr),+ $(,)?) => {
        $(#[tokio::test]
        async fn $name() {
            holds($session).await;
        })+

        const SESSIONS: &[&str] = &[$($session),+];
    };
}

sessions![
    lists_answer_as_recorded: lists::SESSION,
    watches_answer_as_recorded: watches::SESSION,
    forms_answer_as_recorded: forms::SESSION,
    creations_answer_as_recorded: writes::CREATING,
    changes_answer_as_recorded: writes::CHANGING,
    deletions_answer_as_recorded: writes::DELETING,
    pods_answer_as_recorded: pods::SESSION,
    custom_resources_answer_as_recorded: custom::SESSION,
    documents_answer_as_recorded: documents::SESSION,
];

#[test]
fn what_differs_is_a_guarantee() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guarantees.md");
    let guarantees = fs::read_to_string(file).expect("the guarantees");
    for row in SESSIONS.iter().flat_map(|session| script::parse(session)) {
        if let Some(differs) = row.differs {
            assert!(guarantees.contains(&format!("| {differs} |")), "{}: there is no row {differs:?}", row.claim);
        }
    }
}
