//! A model API server: answers reads from the model, slowly, and with every fault it was told to have.
//!
//! INVARIANT: without faults it keeps the protocol: states are exact at their position, events are in order and
//! complete, a bookmark never hides one.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;
use informer_core::{
    ListSemantic, Marks, Read, Time,
    reflector::{Class, End, Failure, ProofBy},
};

use crate::model::{Change, Kind, Model, Object};

/// One thing that arrives at the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Headers with a 2xx status.
    Accepted,
    /// The same of a stream that marks its initial state.
    AcceptedWithMarks,
    /// The same of a stream that sends the rest of an initial state.
    Resumed,
    /// A mark in an initial state.
    Mark {
        /// Its token.
        token: String,
    },
    /// An item of a list.
    Item(Object),
    /// An event of a watch.
    Event(Change),
    /// A bookmark; the text of its position need not be one.
    Bookmark {
        /// Its position.
        version: String,
        /// Whether it ends the initial state.
        end: bool,
    },
    /// The end of a list body.
    PageEnd {
        /// The list's position.
        version: u64,
        /// The token, when more follow.
        token: Option<String>,
    },
    /// The one object that was asked for; `None` when it is not there.
    Found(Option<Object>),
    /// Something without meaning.
    Noise,
    /// The end of the answer.
    Ended(End),
}

const TOO_LARGE: Failure = Failure { class: Class::TooLarge, retry_after: Some(Duration::from_secs(1)) };

/// Objects a page of a server that pages whatever is asked.
const LIMIT_OF_ITS_OWN: u32 = 5;

/// What a server can do, and how often it goes wrong. Rates are probabilities for each fact.
#[derive(Clone, Debug, Default)]
pub struct Api {
    /// It knows watch-list. Without, it answers 422.
    pub streams: bool,
    /// It lets this client watch. Without, it answers 403.
    pub watches: bool,
    /// It ignores a page's limit for `resourceVersion=0`, as stock servers do.
    pub ignores_limit: bool,
    /// It pages whatever is asked, as some servers that are not kube-apiserver do.
    pub pages_anyway: bool,
    /// It lets this client read single objects. Without, it answers 403; one object can be listed all the same.
    pub gets: bool,
    /// It reads single objects whatever position they should not be older than: a fault, since it proves nothing then.
    pub gets_anything: bool,
    /// It sends bookmarks to watches from positions it has not reached, with its own. Stock servers stay silent.
    pub tells_where_it_is: bool,
    /// It refuses watches from positions it has not reached. Stock servers accept them.
    pub refuses_the_future: bool,
    /// Its pages after the first tell where it is by then, not where the first was.
    pub pages_tell_now: bool,
    /// It marks its initial states, and goes on behind a mark.
    pub marks: bool,
    /// Marks of another key are not its own: it was restarted since.
    pub marks_key: u64,
    /// How far behind the newest version its memory may be when asked.
    pub lag_max: u64,
    /// How long headers may take, in milliseconds. Zero answers at once.
    pub latency_ms_max: u64,
    /// It answers nothing but errors for now.
    pub down: bool,
    /// Nobody answers before.
    pub unreachable_until: Time,
    /// An error instead of an answer.
    pub refuses: f64,
    /// The connection breaks.
    pub cuts: f64,
    /// A clean end, early.
    pub closes: f64,
    /// An error in the stream.
    pub errors: f64,
    /// Nothing more comes, for ever.
    pub stalls: f64,
    /// An event comes again: the last one, or an older one.
    pub repeats: f64,
    /// A bookmark that goes back, or carries no position, or none of the state's business.
    pub lies: f64,
    /// A page's token has expired.
    pub expires_pages: f64,
    /// A mark that is its own is worth nothing.
    pub forgets_marks: f64,
    /// A stream without marks, as from a server behind the same address that knows none.
    pub knows_no_marks: f64,
    /// The header about marks is lost on its way.
    pub loses_headers: f64,
    /// A state older than asked for, where an error was due.
    pub forgets_what_was_asked: f64,
    /// A read of the state not older than a position is refused, as one that the server cannot read.
    pub refuses_positions: f64,
}

impl Api {
    /// A server drawn from a seed.
    pub fn draw(rng: &mut Rng) -> Self {
        let mut rate = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let api = Self {
            down: false,
            refuses: rate(0.5),
            cuts: rate(0.05),
            closes: rate(0.05),
            errors: rate(0.05),
            stalls: rate(0.01),
            repeats: rate(0.05),
            lies: rate(0.02),
            expires_pages: rate(0.3),
            forgets_marks: rate(0.3),
            knows_no_marks: rate(0.3),
            loses_headers: rate(0.2),
            forgets_what_was_asked: rate(0.5),
            refuses_positions: rate(0.2),
            ..Self::default()
        };
        let lag_max = if rng.bool() { rng.u64(..20) } else { 0 };
        Self {
            streams: rng.u8(..5) > 0,
            marks: rng.u8(..3) > 0,
            marks_key: rng.u64(..),
            watches: rng.u8(..10) > 0,
            ignores_limit: rng.bool(),
            pages_anyway: rng.u8(..4) == 0,
            gets: rng.u8(..5) > 0,
            // Behind its own history as well, it would deny what it has said.
            gets_anything: lag_max == 0 && rng.u8(..3) == 0,
            tells_where_it_is: rng.u8(..3) == 0,
            refuses_the_future: rng.u8(..4) == 0,
            pages_tell_now: rng.bool(),
            lag_max,
            latency_ms_max: if rng.bool() { 50 } else { 0 },
            ..api
        }
    }

    /// The same server without faults. What it cannot do it still cannot.
    #[must_use]
    pub fn without_faults(&self) -> Self {
        Self {
            streams: self.streams,
            watches: self.watches,
            ignores_limit: self.ignores_limit,
            pages_anyway: self.pages_anyway,
            gets: self.gets,
            marks: self.marks,
            marks_key: self.marks_key,
            pages_tell_now: self.pages_tell_now,
            tells_where_it_is: self.tells_where_it_is,
            refuses_the_future: self.refuses_the_future,
            latency_ms_max: self.latency_ms_max,
            unreachable_until: self.unreachable_until,
            ..Self::default()
        }
    }

    /// Begins to answer.
    pub fn ask(&self, now: Time, read: &Read, rng: &mut Rng) -> Answer {
        let lifetime = match read {
            Read::Stream { timeout_seconds, .. } | Read::Watch { timeout_seconds, .. } => u64::from(*timeout_seconds),
            Read::List { .. } | Read::Page { .. } => 60,
        };
        self.answer(now, Phase::Asked(read.clone()), lifetime, rng)
    }

    /// Begins to answer a read of one object, not older than `at`.
    pub fn ask_object(&self, now: Time, key: &str, at: u64, by: ProofBy, rng: &mut Rng) -> Answer {
        self.answer(now, Phase::AskedObject { key: key.to_owned(), at, by }, 60, rng)
    }

    fn answer(&self, now: Time, phase: Phase, lifetime_seconds: u64, rng: &mut Rng) -> Answer {
        Answer {
            phase,
            headers_at: now + Duration::from_millis(rng.u64(..=self.latency_ms_max)),
            ends_at: now + Duration::from_secs(lifetime_seconds),
            bookmark_at: now + Duration::from_secs(60),
            last: None,
        }
    }

    /// The version its memory is at when asked.
    fn memory_at(&self, model: &Model, rng: &mut Rng) -> u64 {
        model.version() - rng.u64(..=self.lag_max).min(model.version() - model.oldest())
    }

    /// One object as it is, unless it may be older than `at`.
    fn object(&self, key: &str, at: u64, by: ProofBy, model: &Model, rng: &mut Rng) -> Result<Option<Object>, Failure> {
        if by == ProofBy::Get && !self.gets {
            return Err(Failure::new(Class::Forbidden));
        }
        let version = self.memory_at(model, rng);
        if version < at && !self.gets_anything {
            return Err(TOO_LARGE);
        }
        Ok(model.state_at(version).remove(key))
    }

    /// The version of the state that `semantic` gets from a server whose memory is at `behind`.
    fn version_for(&self, semantic: &ListSemantic, behind: u64, model: &Model, rng: &mut Rng) -> Result<u64, Failure> {
        match semantic {
            ListSemantic::MostRecent => Ok(model.version()),
            ListSemantic::Any => Ok(behind),
            ListSemantic::NotOlderThan(_) if self.errs(self.refuses_positions, rng) => {
                Err(Failure::new(Class::Refused))
            }
            ListSemantic::NotOlderThan(asked) => {
                let satisfied = asked.as_u64().is_some_and(|asked| asked <= behind);
                if satisfied || self.errs(self.forgets_what_was_asked, rng) { Ok(behind) } else { Err(TOO_LARGE) }
            }
            ListSemantic::Exact(asked) => match asked.as_u64() {
                Some(asked) if asked < model.oldest() => Err(Failure::new(Class::Expired)),
                Some(asked) if asked <= model.version() => Ok(asked),
                Some(_) | None => Err(TOO_LARGE),
            },
        }
    }

    /// What is left of the state that `token` is a mark in, if it can be sent.
    fn rest(&self, token: &str, semantic: &ListSemantic, model: &Model) -> Option<Marked> {
        let mut parts = token.splitn(4, '/');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (key, history, version) = (number()?, number()?, number()?);
        let last = parts.next()?;
        let is_ours = self.marks && key == self.marks_key && history == u64::from(model.number());
        let is_new_enough = match semantic {
            ListSemantic::NotOlderThan(asked) => asked.as_u64().is_some_and(|asked| asked <= version),
            ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) => true,
        };
        if !is_ours || !is_new_enough || version < model.oldest() {
            return None;
        }
        let items = model.state_at(version).into_values().filter(|object| *object.key > *last).collect();
        Some(Marked { items, version, echo: Some(token.to_owned()), last: None })
    }

    fn errs(&self, rate: f64, rng: &mut Rng) -> bool {
        rate > 0.0 && rng.f64() < rate
    }
}

/// One answer as the server gives it.
#[derive(Clone, Debug)]
pub struct Answer {
    phase: Phase,
    headers_at: Time,
    ends_at: Time,
    bookmark_at: Time,
    last: Option<Change>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Headers not sent.
    Asked(Read),
    /// The same, for one object.
    AskedObject { key: String, at: u64, by: ProofBy },
    /// Items of one page of the state at `version`.
    Items { items: VecDeque<Object>, version: u64, token: Option<String> },
    /// Initial events of the state at `version`, then changes up to `until`, then the end bookmark.
    State { items: VecDeque<Object>, version: u64, until: u64 },
    /// Initial events of the state at `version` with marks between them, then the end bookmark.
    Marked(Marked),
    /// Events after `cursor`.
    Live { cursor: u64 },
    /// An error that is already decided.
    Ending(End),
    /// Nothing more.
    Silent,
}

/// An initial state with marks.
#[derive(Clone, Debug)]
struct Marked {
    items: VecDeque<Object>,
    version: u64,
    /// The mark asked with, until it was told again.
    echo: Option<String>,
    /// The object sent last, behind which there may be a mark.
    last: Option<String>,
}

impl Answer {
    /// The next fact that is due, if any.
    pub fn next(&mut self, now: Time, api: &Api, model: &Model, rng: &mut Rng) -> Option<Fact> {
        if now < self.headers_at {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Silent) {
            Phase::Asked(_) | Phase::AskedObject { .. } if now < api.unreachable_until => {
                Some(Fact::Ended(End::Failed(Failure::new(Class::Connection))))
            }
            Phase::Asked(read) => {
                if api.errs(api.stalls, rng) {
                    return None;
                }
                Some(self.begin(&read, api, model, rng))
            }
            Phase::AskedObject { key, at, by } => {
                if api.errs(api.stalls, rng) {
                    return None;
                }
                if api.down || api.errs(api.refuses, rng) {
                    return Some(Fact::Ended(End::Failed(any_failure(rng))));
                }
                let found = api.object(&key, at, by, model, rng);
                Some(found.map_or_else(|failure| Fact::Ended(End::Failed(failure)), Fact::Found))
            }
            Phase::Ending(end) => Some(Fact::Ended(end)),
            Phase::Silent => None,
            Phase::Items { items, version, token } => {
                self.phase = Phase::Items { items, version, token };
                self.fault(api, model, rng).unwrap_or_else(|| self.item())
            }
            Phase::State { items, version, until } => {
                self.phase = Phase::State { items, version, until };
                self.fault(api, model, rng).unwrap_or_else(|| self.initial_event(api, model, rng))
            }
            Phase::Marked(marked) => {
                self.phase = Phase::Marked(marked);
                self.fault(api, model, rng).unwrap_or_else(|| self.marked_event(api, model, rng))
            }
            Phase::Live { cursor } => {
                self.phase = Phase::Live { cursor };
                self.live(now, cursor, api, model, rng)
            }
        }
    }

    fn begin(&mut self, read: &Read, api: &Api, model: &Model, rng: &mut Rng) -> Fact {
        if api.down || api.errs(api.refuses, rng) {
            return Fact::Ended(End::Failed(any_failure(rng)));
        }
        match self.open(read, api, model, rng) {
            Ok(phase) => {
                let with_marks = if let Phase::Marked(marked) = &phase { Some(marked.echo.is_some()) } else { None };
                self.phase = phase;
                match with_marks {
                    Some(_) if api.errs(api.loses_headers, rng) => Fact::Accepted,
                    Some(true) => Fact::Resumed,
                    Some(false) => Fact::AcceptedWithMarks,
                    None => Fact::Accepted,
                }
            }
            Err(failure)
                if read.is_watch() && matches!(failure.class, Class::Expired | Class::TooLarge) && rng.bool() =>
            {
                // Servers say these in the stream; proxies and other servers as HTTP status.
                self.phase = Phase::Ending(End::Failed(failure));
                Fact::Accepted
            }
            Err(failure) => Fact::Ended(End::Failed(failure)),
        }
    }

    fn open(&self, read: &Read, api: &Api, model: &Model, rng: &mut Rng) -> Result<Phase, Failure> {
        if read.is_watch() && !api.watches {
            return Err(Failure::new(Class::Forbidden));
        }
        let behind = api.memory_at(model, rng);
        match read {
            Read::Stream { .. } if !api.streams => Err(Failure::new(Class::Refused)),
            Read::Stream { semantic, marks: Marks::After(token), .. }
                if let Some(marked) =
                    api.rest(token, semantic, model).filter(|_| !api.errs(api.forgets_marks, rng)) =>
            {
                Ok(Phase::Marked(marked))
            }
            Read::Stream { semantic, marks: Marks::New | Marks::After(_), .. }
                if api.marks && !api.errs(api.knows_no_marks, rng) =>
            {
                let version = api.version_for(semantic, behind, model, rng)?;
                let items = model.state_at(version).into_values().collect();
                Ok(Phase::Marked(Marked { items, version, echo: None, last: None }))
            }
            Read::Stream { semantic, .. } => {
                let version = api.version_for(semantic, behind, model, rng)?;
                let until = if rng.u8(..4) == 0 { model.version() } else { version };
                Ok(Phase::State { items: model.state_at(version).into_values().collect(), version, until })
            }
            Read::List { semantic, limit } => {
                let version = api.version_for(semantic, behind, model, rng)?;
                let limit = if *semantic == ListSemantic::Any && api.ignores_limit { None } else { *limit };
                let limit = if api.pages_anyway { limit.or(Some(LIMIT_OF_ITS_OWN)) } else { limit };
                Ok(page(model, version, "", limit))
            }
            Read::Page { limit, token } => {
                let expired = Failure::new(Class::Expired);
                let (history, rest) = token.split_once(' ').ok_or_else(|| Failure::new(Class::Refused))?;
                let (version, start) = rest.split_once(' ').ok_or_else(|| Failure::new(Class::Refused))?;
                let version = version.parse().map_err(|_| Failure::new(Class::Refused))?;
                if history != model.number().to_string() || version < model.oldest() || api.errs(api.expires_pages, rng)
                {
                    return Err(expired);
                }
                let mut phase = page(model, version, start, Some(*limit));
                if let (Phase::Items { version, .. }, true) = (&mut phase, api.pages_tell_now) {
                    *version = model.version();
                }
                Ok(phase)
            }
            Read::Watch { after, .. } => {
                let cursor = after.as_u64().unwrap_or(0);
                if cursor > model.version() && api.refuses_the_future {
                    return Err(TOO_LARGE);
                }
                if cursor < model.oldest() { Err(Failure::new(Class::Expired)) } else { Ok(Phase::Live { cursor }) }
            }
        }
    }

    /// A fault in the middle of an answer.
    fn fault(&mut self, api: &Api, model: &Model, rng: &mut Rng) -> Option<Option<Fact>> {
        let cursor = if let Phase::Live { cursor } = self.phase { Some(cursor) } else { None };
        if api.errs(api.cuts, rng) {
            return Some(Some(Fact::Ended(End::Failed(Failure::new(Class::Connection)))));
        }
        if api.errs(api.closes, rng) {
            return Some(Some(Fact::Ended(End::Closed)));
        }
        if api.errs(api.errors, rng) {
            return Some(Some(Fact::Ended(End::Failed(any_failure(rng)))));
        }
        if api.errs(api.stalls, rng) {
            self.phase = Phase::Silent;
            return Some(None);
        }
        if api.errs(api.lies, rng) {
            // Before the end of the state it must not count, wherever it points. Live it goes back: one that points
            // ahead would hide events, and nobody could tell.
            let version =
                cursor.map_or_else(|| model.version() + 1_000, |cursor| cursor.saturating_sub(rng.u64(1..10)));
            let version = if rng.u8(..4) == 0 { 0 } else { version };
            return Some(Some(Fact::Bookmark { version: version.to_string(), end: false }));
        }
        api.errs(api.lies, rng).then_some(Some(Fact::Noise))
    }

    fn item(&mut self) -> Option<Fact> {
        let Phase::Items { items, version, token } = &mut self.phase else { return None };
        match items.pop_front() {
            Some(object) => Some(Fact::Item(object)),
            None => Some(Fact::PageEnd { version: *version, token: token.take() }),
        }
    }

    fn initial_event(&mut self, api: &Api, model: &Model, rng: &mut Rng) -> Option<Fact> {
        let Phase::State { items, version, until } = &mut self.phase else { return None };
        if let Some(object) = items.pop_front() {
            return Some(Fact::Event(Change { kind: Kind::Added, object }));
        }
        if let Some(change) = model.changes(*version, *until).first() {
            *version = change.object.version;
            return Some(Fact::Event(change.clone()));
        }
        let cursor = *until;
        if api.errs(api.lies, rng) {
            return Some(Fact::Bookmark { version: "0".to_owned(), end: true });
        }
        self.phase = Phase::Live { cursor };
        Some(Fact::Bookmark { version: cursor.to_string(), end: true })
    }

    /// One in four objects is marked.
    fn marked_event(&mut self, api: &Api, model: &Model, rng: &mut Rng) -> Option<Fact> {
        let Phase::Marked(marked) = &mut self.phase else { return None };
        if let Some(token) = marked.echo.take() {
            return Some(Fact::Mark { token });
        }
        if let Some(last) = marked.last.take().filter(|_| rng.u8(..4) == 0) {
            let token = format!("{}/{}/{}/{last}", api.marks_key, model.number(), marked.version);
            return Some(Fact::Mark { token });
        }
        if let Some(object) = marked.items.pop_front() {
            marked.last = Some(object.key.clone());
            return Some(Fact::Event(Change { kind: Kind::Added, object }));
        }
        let cursor = marked.version;
        if cursor < model.oldest() {
            // Nobody could resume from its end.
            return Some(Fact::Ended(End::Closed));
        }
        self.phase = Phase::Live { cursor };
        Some(Fact::Bookmark { version: cursor.to_string(), end: true })
    }

    fn live(&mut self, now: Time, cursor: u64, api: &Api, model: &Model, rng: &mut Rng) -> Option<Fact> {
        if let Some(fact) = self.fault(api, model, rng) {
            return fact;
        }
        if api.errs(api.repeats, rng) {
            let older = model.changes(model.oldest(), cursor);
            let again = if rng.bool() { self.last.clone() } else { rng.choice(older).cloned() };
            if let Some(change) = again {
                return Some(Fact::Event(change));
            }
        }
        if cursor < model.oldest() && !model.changes(cursor, model.oldest()).is_empty() {
            // What follows was forgotten before it could be sent.
            return Some(Fact::Ended(End::Closed));
        }
        if let Some(change) = model.changes(cursor, u64::MAX).first() {
            self.phase = Phase::Live { cursor: change.object.version };
            self.last = Some(change.clone());
            return Some(Fact::Event(change.clone()));
        }
        if now >= self.bookmark_at {
            self.bookmark_at = now + Duration::from_secs(60);
            if cursor > model.version() && !api.tells_where_it_is {
                return None;
            }
            self.phase = Phase::Live { cursor: cursor.max(model.version()) };
            return Some(Fact::Bookmark { version: model.version().to_string(), end: false });
        }
        (now >= self.ends_at).then_some(Fact::Ended(End::Closed))
    }
}

fn page(model: &Model, version: u64, start: &str, limit: Option<u32>) -> Phase {
    let most = limit.map_or(usize::MAX, |limit| limit as usize);
    let view = model.view_at(version);
    let mut rest = view.range(start..).filter(|(key, _)| **key > start).map(|(_, object)| (*object).clone());
    let items: VecDeque<Object> = rest.by_ref().take(most).collect();
    let more = rest.next().is_some();
    let token = items.back().filter(|_| more).map(|last| format!("{} {version} {}", model.number(), last.key));
    Phase::Items { items, version, token }
}

fn any_failure(rng: &mut Rng) -> Failure {
    let class = [Class::Server, Class::TooMany, Class::Connection, Class::Malformed, Class::Expired, Class::TooLarge]
        [rng.usize(..6)];
    Failure { class, retry_after: rng.bool().then(|| Duration::from_secs(rng.u64(..10))) }
}
