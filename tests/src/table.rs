//! LIST and WATCH as data: what was written, what is asked, what comes. Everything that serves the protocol is held to
//! the same rows: the server over its socket, and the SDK's fake API server behind a listener.
//!
//! INVARIANT: a row says what the protocol says. Where one of the two differs on purpose, the row says that too, and
//! why; no row is left out for one of them.
//!
//! A group has one history. Its rows are asked at once, then more is written, and then the open watches are read.
//!
//! - Writes are `MARK = create pod ns/name key=value...`, with `update`, `delete`, and `list pods`, which only reads. A
//!   mark is the position afterwards. Keys `k` and `node` are the data and the node, others are labels.
//! - Questions are `ns/pods/name?query`, unescaped. `{MARK}`, `{MARK+1}` and `{MARK-1}` are positions, and
//!   `token({MARK}/ns/name$)` is a page's token that starts after `ns/name`; without `$` at it; at `-1`, the latest.
//! - Answers are `[key@MARK(app=x) ...] @MARK more(last key) remaining 2` for a list, `key@MARK` for an object, and
//!   `410 Expired: text` for an error, with causes, waiting and offered token where it has them. What a key is not
//!   followed by is not looked at. `@>=MARK` is a relation.
//! - Events are `ADDED key@MARK(app=x) | INITIAL-END@MARK | ERROR 410 Expired: text | END`. Without the clean end the
//!   stream is still open.

mod found;
mod lists;
mod marks;
mod peer;
mod refusals;
mod watches;

use std::time::Duration;

use futures::future::join_all;

pub use self::peer::Peer;
use self::{found::Expected, marks::Marks};
use crate::http::{Client, LINE_WAIT, Step, Watch};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The server.
    CacheServer,
    /// The SDK's fake API server.
    Fake,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it shows.
    pub claim: &'static str,
    /// What is asked.
    pub ask: &'static str,
    /// More that is asked with the same outcome: appended to the query.
    pub also: &'static [&'static str],
    /// The header `Accept`; empty sends none.
    pub accept: &'static str,
    /// What comes.
    pub expect: Expect,
    /// Who differs, why, and what comes instead.
    pub differs: Option<(Who, &'static str, Expect)>,
}

/// What comes.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// A whole answer.
    Answer(&'static str),
    /// Lines of a watch.
    Events(&'static str),
}

/// Rows over one history.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What its rows are about.
    pub about: &'static str,
    /// What is written before.
    pub writes: &'static [&'static str],
    /// The rows.
    pub cases: &'static [Case],
    /// What is written while watches are open.
    pub then: &'static [&'static str],
}

const fn answers(claim: &'static str, ask: &'static str, expect: &'static str) -> Case {
    Case { claim, ask, also: &[], accept: "", expect: Expect::Answer(expect), differs: None }
}

const fn watches(claim: &'static str, ask: &'static str, expect: &'static str) -> Case {
    Case { claim, ask, also: &[], accept: "", expect: Expect::Events(expect), differs: None }
}

impl Case {
    /// The same with each of these appended.
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

/// Asks everything of one group; what came out otherwise, one text each.
pub async fn run(group: &Group, client: Client, who: Who) -> Vec<String> {
    let mut marks = Marks::default();
    for write in group.writes {
        marks.write(&client, write).await;
    }
    let questions = group.cases.iter().flat_map(|case| {
        let more = case.also.iter().map(|also| {
            let join = if case.ask.contains('?') { '&' } else { '?' };
            format!("{}{join}{also}", case.ask)
        });
        std::iter::once(case.ask.to_owned()).chain(more).map(move |ask| (case, ask))
    });
    let asked = join_all(questions.map(|(case, ask)| open(client, &marks, case, ask, who))).await;
    for write in group.then {
        marks.write(&client, write).await;
    }
    let read = join_all(asked.into_iter().map(|asked| asked.compare(&marks))).await;
    read.into_iter().flatten().map(|wrong| format!("{} / {wrong}", group.about)).collect()
}

/// How long nothing may follow the last line expected. All writes were answered before, so what follows is on its way.
const QUIET: Duration = Duration::from_millis(100);

/// One row that was asked.
struct Asked {
    claim: &'static str,
    ask: String,
    expected: &'static str,
    /// Whether the headers of a watch came late.
    waited: bool,
    came: Came,
}

enum Came {
    Answer(crate::http::Answer),
    Watch(Box<Watch>),
}

async fn open(client: Client, marks: &Marks, case: &'static Case, ask: String, who: Who) -> Asked {
    let expect = case.differs.filter(|(other, ..)| *other == who).map_or(case.expect, |(.., expect)| expect);
    let path = marks.path(&ask);
    let headers = [("accept", case.accept)];
    let headers = if case.accept.is_empty() { &[][..] } else { &headers };
    let (expected, came) = match expect {
        Expect::Answer(expected) => (expected, Came::Answer(client.get_with(&path, headers).await)),
        Expect::Events(expected) => (expected, Came::Watch(Box::new(client.watch_with(&path, headers).await))),
    };
    let waited = matches!(&came, Came::Watch(watch) if watch.age() >= found::WAITED);
    Asked { claim: case.claim, ask, expected, waited, came }
}

impl Asked {
    /// What came otherwise.
    async fn compare(self, marks: &Marks) -> Option<String> {
        let expected = Expected { text: marks.fill(self.expected), marks };
        let (expected, found) = match self.came {
            Came::Answer(answer) => expected.of_answer(&answer),
            Came::Watch(mut watch) => {
                let mut lines = Vec::new();
                let waits = expected.lines().map(|_| LINE_WAIT).collect::<Vec<_>>();
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
