//! Runs the rows against the model API server of the seeded worlds, which answers the reads of a reflector.
//!
//! INVARIANT: a row is left out only if no reflector sends its request: it has a selector, a form, unreadable options, a
//! token that no server sent, or initial state without bookmarks. Of the others, the model has neither error texts nor
//! the count of what remains, and it refuses at once what a server waits for; these parts are not compared.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use informer_core::{
    ListSemantic, Marks as WantedMarks, Read, Time,
    reflector::{Class, End, Failure, ProofBy},
};
use informer_serving::{
    continue_token::{ContinueToken, Position},
    options::{ListOptions, resource_version},
    query::Query,
    reads::{ListRead, RequestedState, WatchStart},
};
use serde_json::{Value, json};

use super::{
    Case, Expect, Group, Who,
    found::{Expected, LATE, object_text},
    marks::{Line, Marks, Verb},
};
use crate::{
    api::{Answer, Api, Fact},
    model::{Kind, Model, Object},
};

/// First position of the history, equal for every [`Peer`](super::Peer).
const FIRST: u64 = 1_000;

/// The number of the model's history, with which its tokens begin.
const HISTORY: u32 = 0;

/// Lifetime of a watch whose row requests none, in seconds.
const LIFETIME: u32 = 300;

/// Sends every request of a group that a reflector can send. Returns their number, and one text per unexpected
/// response.
pub fn run_model(group: &Group) -> (usize, Vec<String>) {
    let outcomes: Vec<_> = group.questions().filter_map(|(case, ask)| outcome(group, case, &ask)).collect();
    (outcomes.len(), outcomes.into_iter().filter_map(Result::err).collect())
}

/// Sends one request; `None` if no reflector sends it.
fn outcome(group: &Group, case: &Case, ask: &str) -> Option<Result<(), String>> {
    let place = Place::parse(ask).filter(|_| case.accept.is_empty())?;
    let mut script = Script::new(&place);
    group.writes.iter().for_each(|line| script.write(line));
    let question = Question::parse(&script.marks.path(ask), &place)?;
    let mut response = Response::open(&question);
    response.read(Time::ZERO, &script.model);
    group.then.iter().for_each(|line| script.write(line));
    response.read(Time::ZERO, &script.model);
    response.read(question.ends_at(), &script.model);
    let (expected, found) = match case.expect(Who::Model) {
        Expect::Answer(expected) => script.answer(&response.facts, script.marks.fill(expected)),
        Expect::Events(expected) => script.lines(&response.facts, &script.marks.fill(expected)),
    };
    let (about, claim) = (group.about, case.claim);
    Some(if found == expected {
        Ok(())
    } else {
        Err(format!("{about} / {claim}: {ask}\n  expected {expected}\n  found    {found}"))
    })
}

/// The type, and perhaps the namespace and the name, of a request's path.
struct Place<'a> {
    plural: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// Parses `ns/pods/name?query`; `None` for another path.
    fn parse(ask: &'a str) -> Option<Self> {
        let path = ask.split('?').next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').collect();
        let is_type = |plural: &str| {
            let plurals = ["pods", "configmaps", "secrets", "replicasets", "deployments", "nodes"];
            plurals.contains(&plural)
        };
        let (namespace, plural, name) = match *segments {
            [plural] => (None, plural, None),
            [namespace, plural] => (Some(namespace), plural, None),
            [namespace, plural, name] => (Some(namespace), plural, Some(name)),
            _ => return None,
        };
        is_type(plural).then_some(Self { plural, namespace, name })
    }

    /// Returns true if a written object belongs to the type and lies in the namespace.
    fn holds(&self, kind: &str, key: &str) -> bool {
        let is_inside = |namespace: &str| key.split_once('/').is_some_and(|(of, _)| of == namespace);
        self.plural.strip_suffix('s') == Some(kind) && self.namespace.is_none_or(is_inside)
    }

    /// The prefix of keys that tokens leave out.
    fn prefix(&self) -> String {
        self.namespace.map_or_else(String::new, |namespace| format!("{namespace}/"))
    }
}

/// A request as a reflector sends it.
enum Question {
    Read(Read),
    Object { key: String, at: u64 },
}

impl Question {
    /// Parses a request; `None` if no reflector sends it.
    fn parse(path: &str, place: &Place<'_>) -> Option<Self> {
        let query = Query::parse(path.split_once('?').map(|(_, query)| query));
        if let Some(name) = place.name {
            let at = match query.get("resourceVersion").unwrap_or_default() {
                "" => 0,
                given => resource_version(given).ok()?,
            };
            return Some(Self::Object { key: format!("{}{name}", place.prefix()), at });
        }
        let options = ListOptions::read(&query).ok()?;
        if !options.labels.is_empty() || !options.fields.is_empty() {
            return None;
        }
        if options.watch { Self::watch(&query, &options) } else { Self::list(&options, place) }
    }

    fn watch(query: &Query, options: &ListOptions) -> Option<Self> {
        let timeout_seconds = options.timeout_seconds.map_or(Ok(LIFETIME), u32::try_from).ok()?;
        let is_stream = query.flag("sendInitialEvents") == Some(true) && options.allow_bookmarks;
        let semantic = match WatchStart::of(options).ok()? {
            WatchStart::After(after) => return Some(Self::Read(Read::Watch { after: after.into(), timeout_seconds })),
            WatchStart::Now(_) => return None,
            WatchStart::State(_) if !is_stream => return None,
            WatchStart::State(None) => ListSemantic::MostRecent,
            WatchStart::State(Some(0)) => ListSemantic::Any,
            WatchStart::State(Some(at)) => ListSemantic::NotOlderThan(at.into()),
        };
        Some(Self::Read(Read::Stream { semantic, timeout_seconds, marks: WantedMarks::Unrequested }))
    }

    fn list(options: &ListOptions, place: &Place<'_>) -> Option<Self> {
        let ListRead { which, start, .. } = ListRead::of(options, false).ok()?;
        // The limit as sent: to ignore it for `resourceVersion=0` is the server's part.
        let limit = u32::try_from(options.limit).ok().filter(|limit| *limit > 0);
        let semantic = match (which, start) {
            (RequestedState::Exact { at, .. }, Some(start)) => {
                let token = format!("{HISTORY} {at} {}{}", place.prefix(), start.strip_suffix('\0')?);
                return Some(Self::Read(Read::Page { limit: limit.unwrap_or(u32::MAX), token }));
            }
            (RequestedState::MostRecent | RequestedState::Any | RequestedState::NotOlderThan(_), Some(_)) => {
                return None;
            }
            (RequestedState::MostRecent, None) => ListSemantic::MostRecent,
            (RequestedState::Any, None) => ListSemantic::Any,
            (RequestedState::NotOlderThan(at), None) => ListSemantic::NotOlderThan(at.into()),
            (RequestedState::Exact { at, .. }, None) => ListSemantic::Exact(at.into()),
        };
        Some(Self::Read(Read::List { semantic, limit }))
    }

    /// The end of its lifetime if the row requests one.
    fn ends_at(&self) -> Time {
        match self {
            Self::Read(Read::Stream { timeout_seconds, .. } | Read::Watch { timeout_seconds, .. })
                if *timeout_seconds < LIFETIME =>
            {
                Time(Duration::from_secs(u64::from(*timeout_seconds)))
            }
            Self::Read(_) | Self::Object { .. } => Time::ZERO,
        }
    }
}

/// One response of the model, and what came of it so far.
struct Response {
    api: Api,
    rng: Rng,
    answer: Answer,
    facts: Vec<Fact>,
}

impl Response {
    /// Sends the request to a server without faults.
    fn open(question: &Question) -> Self {
        let api = Api { streams: true, watches: true, gets: true, ignores_limit: true, ..Api::default() };
        let mut rng = Rng::with_seed(0);
        let answer = match question {
            Question::Read(read) => api.ask(Time::ZERO, read, &mut rng),
            Question::Object { key, at } => api.ask_object(Time::ZERO, key, *at, ProofBy::Get, &mut rng),
        };
        Self { api, rng, answer, facts: Vec::new() }
    }

    /// Reads what is due by `now`.
    fn read(&mut self, now: Time, model: &Model) {
        while !self.is_over()
            && let Some(fact) = self.answer.next(now, &self.api, model, &mut self.rng)
        {
            self.facts.push(fact);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.facts.last(), Some(Fact::Ended(_) | Fact::PageEnd { .. } | Fact::Found(_)))
    }
}

/// The history of one place: the objects elsewhere count as those of other types.
struct Script<'a> {
    place: &'a Place<'a>,
    model: Model,
    marks: Marks,
    /// Version and attributes of each object, by kind and key.
    now: BTreeMap<(String, String), (u64, Vec<String>)>,
    /// Each version of the objects of this place, by key and version.
    written: BTreeMap<(String, u64), Value>,
}

impl<'a> Script<'a> {
    fn new(place: &'a Place<'a>) -> Self {
        let (now, written) = (BTreeMap::new(), BTreeMap::new());
        Self { place, model: Model::new(FIRST), marks: Marks::default(), now, written }
    }

    /// Executes one line.
    fn write(&mut self, line: &str) {
        let line = Line::parse(line);
        let position = self.position_after(&line);
        self.marks.set(line.mark, position);
    }

    fn position_after(&mut self, line: &Line<'_>) -> u64 {
        let is_delete = match line.verb {
            Verb::List => return self.model.version(),
            Verb::Create | Verb::Update => false,
            Verb::Delete => true,
        };
        let id = (line.what.to_owned(), line.key.to_owned());
        let attributes: Vec<String> = line.attributes.iter().map(|&attribute| attribute.to_owned()).collect();
        // A write that changes nothing is none.
        if let Some((version, known)) = self.now.get(&id)
            && !is_delete
            && *known == attributes
        {
            return *version;
        }
        let is_here = self.place.holds(line.what, line.key);
        match (is_here, is_delete) {
            (true, true) => self.model.delete(line.key),
            (true, false) => self.model.put(line.key),
            (false, _) => self.model.pass(1),
        }
        let version = self.model.version();
        if is_delete {
            self.now.remove(&id);
        } else {
            self.now.insert(id, (version, attributes));
        }
        if is_here && !is_delete {
            self.written.insert((line.key.to_owned(), version), line.object().body().clone());
        }
        version
    }

    /// The object with the content of its last write. A deleted object has the version of its deletion.
    fn json(&self, object: &Object) -> Value {
        let until = (object.key.clone(), object.version);
        let last = self.written.range(..=until).next_back().filter(|((key, _), _)| *key == object.key);
        let mut body = last.unwrap_or_else(|| panic!("{object:?} was never written")).1.clone();
        body["metadata"]["resourceVersion"] = object.version.to_string().into();
        body
    }

    /// Returns the expectation of a LIST or GET without the parts that the model lacks, and the response in the same
    /// notation.
    fn answer(&self, facts: &[Fact], expected: String) -> (String, String) {
        let text = if expected.starts_with(|letter: char| letter.is_ascii_digit()) {
            until_colon(&expected).to_owned()
        } else {
            expected.split(" remaining ").next().unwrap_or_default().to_owned()
        };
        let expected = Expected { text, marks: &self.marks };
        let mut items = Vec::new();
        let mut found = String::from("no end");
        for fact in facts {
            match fact {
                Fact::Accepted => {}
                Fact::Item(object) => items.push(self.json(object)),
                Fact::PageEnd { version, token } => {
                    let mut metadata = json!({"resourceVersion": version.to_string()});
                    if let Some(token) = token {
                        metadata["continue"] = self.continued(token).into();
                    }
                    found = expected.success(&json!({"metadata": metadata, "items": items}));
                }
                Fact::Found(Some(object)) => found = expected.success(&self.json(object)),
                Fact::Found(None) => found = "404 NotFound".to_owned(),
                Fact::Ended(End::Failed(failure)) => found = failure_text(*failure),
                odd @ (Fact::AcceptedWithMarks
                | Fact::Resumed
                | Fact::Mark { .. }
                | Fact::Event(_)
                | Fact::Bookmark { .. }
                | Fact::Noise
                | Fact::Ended(End::Closed)) => found = format!("{odd:?}"),
            }
        }
        (expected.text, found)
    }

    /// The continue token that a server sends where the model sends `token`.
    fn continued(&self, token: &str) -> String {
        let mut parts = token.splitn(3, ' ').skip(1);
        let (version, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let key = key.strip_prefix(&self.place.prefix()).unwrap_or(key);
        ContinueToken::after(key, Position::At(version.parse().unwrap())).encode()
    }

    /// Returns the expected lines of a watch without the parts that the model lacks, and the lines in the same
    /// notation.
    fn lines(&self, facts: &[Fact], expected: &str) -> (String, String) {
        let expected: Vec<String> =
            expected.strip_prefix(LATE).unwrap_or(expected).split(" | ").map(without_texts).collect();
        let mut found: Vec<String> = Vec::new();
        for fact in facts {
            let wanted = expected.get(found.len()).map_or("", String::as_str);
            match fact {
                Fact::Accepted => {}
                Fact::Event(change) => {
                    let kind = match change.kind {
                        Kind::Added => "ADDED",
                        Kind::Modified => "MODIFIED",
                        Kind::Deleted => "DELETED",
                    };
                    let wanted = wanted.split_once(' ').map_or("@(", |(_, object)| object);
                    found.push(format!("{kind} {}", object_text(&self.json(&change.object), wanted)));
                }
                Fact::Bookmark { version, end: true } => found.push(format!("INITIAL-END@{version}")),
                Fact::Bookmark { version, end: false } => found.push(format!("BOOKMARK@{version}")),
                Fact::Ended(End::Closed) => found.push("END".to_owned()),
                Fact::Ended(End::Failed(failure)) => {
                    found.extend([format!("ERROR {}", failure_text(*failure)), "END".to_owned()]);
                }
                odd @ (Fact::AcceptedWithMarks
                | Fact::Resumed
                | Fact::Mark { .. }
                | Fact::Item(_)
                | Fact::PageEnd { .. }
                | Fact::Found(_)
                | Fact::Noise) => found.push(format!("{odd:?}")),
            }
        }
        (expected.join(" | "), found.join(" | "))
    }
}

/// A line of a watch without the text of an error and the type of a bookmark.
fn without_texts(line: &str) -> String {
    if line.starts_with("ERROR ") {
        return until_colon(line).to_owned();
    }
    let is_bookmark = line.starts_with("INITIAL-END") || line.starts_with("BOOKMARK");
    if is_bookmark { line.split('(').next().unwrap_or_default().to_owned() } else { line.to_owned() }
}

fn until_colon(text: &str) -> &str {
    text.split(':').next().unwrap_or_default()
}

/// Code and reason of the errors that rows of a reflector expect.
fn failure_text(failure: Failure) -> String {
    match failure.class {
        Class::Expired => "410 Expired".to_owned(),
        Class::TooLarge => "504 Timeout".to_owned(),
        odd @ (Class::Refused
        | Class::NotFound
        | Class::Forbidden
        | Class::TooMany
        | Class::Connection
        | Class::Server
        | Class::Malformed
        | _) => format!("{odd:?}"),
    }
}
