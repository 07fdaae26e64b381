//! LIST and WATCH as data: writes, requests and expected responses. Every implementation of the protocol passes the
//! same rows: the server over its socket, the SDK's fake API server behind a listener, and the model API server of the
//! seeded worlds.
//!
//! INVARIANT: a row states what the protocol requires. Where one implementation deliberately differs, the row states
//! that and the reason; no row is skipped for one of them. The model answers the reads that a reflector sends; the
//! module `model` says which rows those are, and a test counts them.
//!
//! A group has one history. Its requests are sent concurrently, then more is written, and then the open watches are
//! read.
//!
//! - Writes are `MARK = create pod ns/name key=value...`, with `update`, `delete`, and `list pods`, which only reads. A
//!   mark is the position afterwards. Keys `k` and `node` set the data and the node; other keys are labels.
//! - Requests are `ns/pods/name?query`, unescaped. `{MARK}`, `{MARK+1}` and `{MARK-1}` are positions.
//!   `token({MARK}/ns/name$)` is a continue token that starts after `ns/name`, without `$` at it, and with position
//!   `-1` at the latest state.
//! - Responses are `[key@MARK(app=x) ...] @MARK more(last key) remaining 2` for a list, `key@MARK` for an object, and
//!   `410 Expired: text` for an error, with causes, Retry-After and offered token if present. A part that is missing
//!   after a key is not compared. `@>=MARK` means at least that position.
//! - Events are `ADDED key@MARK(app=x) | INITIAL-END@MARK | ERROR 410 Expired: text | END`. Without `END` the stream
//!   must still be open.

mod found;
mod lists;
mod marks;
mod model;
mod peer;
mod refusals;
mod watches;

use std::time::Duration;

use futures::future::join_all;

use self::{found::Expected, marks::Marks};
pub use self::{model::run_model, peer::Peer};
use crate::http::{Client, LINE_WAIT, Step, Watch};

/// The implementation under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The server.
    CacheServer,
    /// The SDK's fake API server.
    Fake,
    /// The model API server of the seeded worlds.
    Model,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The claim it verifies.
    pub claim: &'static str,
    /// The request.
    pub ask: &'static str,
    /// Query suffixes for further requests with an equal outcome.
    pub also: &'static [&'static str],
    /// The `Accept` header; empty sends none.
    pub accept: &'static str,
    /// The expected response.
    pub expect: Expect,
    /// The implementation that differs, the reason, and its response.
    pub differs: Option<(Who, &'static str, Expect)>,
}

/// An expected response.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// A whole response.
    Answer(&'static str),
    /// Lines of a watch.
    Events(&'static str),
}

/// Rows over one history.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Topic of its rows.
    pub about: &'static str,
    /// Writes before the requests.
    pub writes: &'static [&'static str],
    /// The rows.
    pub cases: &'static [Case],
    /// Writes while watches are open.
    pub then: &'static [&'static str],
}

const fn answers(claim: &'static str, ask: &'static str, expect: &'static str) -> Case {
    Case { claim, ask, also: &[], accept: "", expect: Expect::Answer(expect), differs: None }
}

const fn watches(claim: &'static str, ask: &'static str, expect: &'static str) -> Case {
    Case { claim, ask, also: &[], accept: "", expect: Expect::Events(expect), differs: None }
}

impl Group {
    /// Each row with each of its requests.
    fn questions(&self) -> impl Iterator<Item = (&'static Case, String)> + use<> {
        self.cases.iter().flat_map(|case| {
            let more = case.also.iter().map(|also| {
                let join = if case.ask.contains('?') { '&' } else { '?' };
                format!("{}{join}{also}", case.ask)
            });
            std::iter::once(case.ask.to_owned()).chain(more).map(move |ask| (case, ask))
        })
    }
}

impl Case {
    /// The response required of `who`.
    fn expect(&self, who: Who) -> Expect {
        self.differs.filter(|(other, ..)| *other == who).map_or(self.expect, |(.., expect)| expect)
    }

    /// Adds requests with each of these suffixes.
    const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    const fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    const fn differs(self, who: Who, why: &'static str, expect: Expect) -> Self {
        Self { differs: Some((who, why, expect)), ..self }
    }
}

/// All groups.
pub fn groups() -> impl Iterator<Item = &'static Group> {
    lists::GROUPS.iter().chain(watches::GROUPS).chain(refusals::GROUPS)
}

/// Sends every request of one group. Returns one text per unexpected response.
pub async fn run(group: &Group, client: Client, who: Who) -> Vec<String> {
    let mut marks = Marks::default();
    for write in group.writes {
        marks.write(&client, write).await;
    }
    let asked = join_all(group.questions().map(|(case, ask)| open(client, &marks, case, ask, who))).await;
    for write in group.then {
        marks.write(&client, write).await;
    }
    let read = join_all(asked.into_iter().map(|asked| asked.compare(&marks))).await;
    read.into_iter().flatten().map(|wrong| format!("{} / {wrong}", group.about)).collect()
}

/// Time without a line after the last expected one. All writes were acknowledged before, so a further event would be on
/// its way.
const QUIET: Duration = Duration::from_millis(100);

/// One row whose request was sent.
struct SentRow {
    claim: &'static str,
    ask: String,
    expected: &'static str,
    /// True if the headers of a watch came late.
    waited: bool,
    came: Came,
}

enum Came {
    Answer(crate::http::Answer),
    Watch(Box<Watch>),
}

async fn open(client: Client, marks: &Marks, case: &'static Case, ask: String, who: Who) -> SentRow {
    let path = marks.path(&ask);
    let headers = [("accept", case.accept)];
    let headers = if case.accept.is_empty() { &[][..] } else { &headers };
    let (expected, came) = match case.expect(who) {
        Expect::Answer(expected) => (expected, Came::Answer(client.get_with(&path, headers).await)),
        Expect::Events(expected) => (expected, Came::Watch(Box::new(client.watch_with(&path, headers).await))),
    };
    let waited = matches!(&came, Came::Watch(watch) if watch.age() >= found::WAITED);
    SentRow { claim: case.claim, ask, expected, waited, came }
}

impl SentRow {
    /// Describes an unexpected response; `None` if it is as expected.
    async fn compare(self, marks: &Marks) -> Option<String> {
        let expected = Expected { text: marks.fill(self.expected), marks };
        let (expected, found) = match self.came {
            Came::Answer(answer) => expected.of_answer(&answer),
            Came::Watch(mut watch) => {
                let mut lines = Vec::new();
                let waits = expected.lines().map(|_| LINE_WAIT).collect::<Vec<_>>();
                // After the expected lines the stream must stay silent.
                for wait in waits.into_iter().chain([QUIET]) {
                    match watch.step(wait).await {
                        Step::Event(event) => lines.push(Ok(event)),
                        Step::Silence if wait == QUIET => break,
                        Step::End => lines.push(Err("END".to_owned())),
                        other @ (Step::Cut(_) | Step::Silence) => lines.push(Err(format!("{other:?}"))),
                    }
                    if matches!(lines.last(), Some(Err(_))) {
                        break;
                    }
                }
                expected.of_lines(&watch, self.waited, &lines)
            }
        };
        (found != expected).then(|| {
            let (claim, ask) = (self.claim, marks.fill(&self.ask));
            format!("{claim}: {ask}\n  expected {expected}\n  found    {found}\n  marks    {marks:?}")
        })
    }
}
