//! A model API server: answers reads from the model, with configurable latency, lag and faults.
//!
//! INVARIANT: without faults it keeps the protocol: each state is exact at its position, events are ordered and
//! complete, and a bookmark never skips an event.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;
use informer_core::{
    ListSemantic, Marks, Read, Time,
    reflector::{Class, End, Failure, ProofBy},
};

use crate::model::{Change, Kind, Model, Object};

/// One item that a client receives from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Headers with a 2xx status.
    Accepted,
    /// 2xx headers of a stream that marks its initial state.
    AcceptedWithMarks,
    /// 2xx headers of a stream that sends the rest of an initial state, after a mark.
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
        /// True if it ends the initial state.
        end: bool,
    },
    /// The end of a list body.
    PageEnd {
        /// The list's position.
        version: u64,
        /// The continue token if more pages follow.
        token: Option<String>,
    },
    /// The requested object; `None` if it does not exist.
    Found(Option<Object>),
    /// An input without meaning.
    Noise,
    /// The end of the response.
    Ended(End),
}

const TOO_LARGE: Failure = Failure { class: Class::TooLarge, retry_after: Some(Duration::from_secs(1)) };

/// Objects per page of a server that pages every list, whether or not the request has a limit.
const LIMIT_OF_ITS_OWN: u32 = 5;

/// Capabilities of a server and its fault rates. Rates are probabilities per fact.
#[derive(Clone, Debug, Default)]
pub struct Api {
    /// It supports watch-list. Otherwise it answers 422.
    pub streams: bool,
    /// It allows this client to watch. Otherwise it answers 403.
    pub watches: bool,
    /// It ignores a page's limit for `resourceVersion=0`, as stock servers do.
    pub ignores_limit: bool,
    /// It pages every list, as some servers other than kube-apiserver do.
    pub pages_anyway: bool,
    /// It allows this client to get single objects. Otherwise it answers 403; a list of one object still works.
    pub gets: bool,
    /// It serves single objects even when its state is older than the requested position: a fault, because the answer
    /// then proves nothing.
    pub gets_anything: bool,
    /// It sends bookmarks with its own position to watches from positions it has not reached. Stock servers stay
    /// silent.
    pub tells_where_it_is: bool,
    /// It refuses watches from positions it has not reached. Stock servers accept them.
    pub refuses_the_future: bool,
    /// Pages after the first carry the current position instead of the first page's.
    pub pages_tell_now: bool,
    /// It marks its initial states and resumes a stream after a mark.
    pub marks: bool,
    /// Key of its marks. Marks with another key are from before a restart, and it does not honour them.
    pub marks_key: u64,
    /// Maximum lag of its state behind the newest version, in versions, drawn for each request.
    pub lag_max: u64,
    /// Maximum delay of the headers, in milliseconds. Zero answers at once.
    pub latency_ms_max: u64,
    /// It answers every request with an error.
    pub down: bool,
    /// Requests before this time fail as connection errors.
    pub unreachable_until: Time,
    /// Rate of error responses.
    pub refuses: f64,
    /// Rate of broken connections.
    pub cuts: f64,
    /// Rate of early clean ends.
    pub closes: f64,
    /// Rate of errors inside the stream.
    pub errors: f64,
    /// Rate of responses that stall without end.
    pub stalls: f64,
    /// Rate of repeated events: the last one, or an older one.
    pub repeats: f64,
    /// Rate of wrong bookmarks: an older position, no position, or a position that the initial state must ignore.
    pub lies: f64,
    /// Rate of expired continue tokens.
    pub expires_pages: f64,
    /// Rate of valid marks that it does not honour.
    pub forgets_marks: f64,
    /// Rate of streams without marks, as from another server behind the same address that does not support them.
    pub knows_no_marks: f64,
    /// Rate of lost headers that announce marks.
    pub loses_headers: f64,
    /// Rate of states older than requested where an error was due.
    pub forgets_what_was_asked: f64,
    /// Rate of not-older-than reads refused as malformed, as by a server that cannot parse the position.
    pub refuses_positions: f64,
}

impl Api {
    /// A server drawn at random.
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
            // With lag as well, it would deny objects that it has already sent.
            gets_anything: lag_max == 0 && rng.u8(..3) == 0,
            tells_where_it_is: rng.u8(..3) == 0,
            refuses_the_future: rng.u8(..4) == 0,
            pages_tell_now: rng.bool(),
            lag_max,
            latency_ms_max: if rng.bool() { 50 } else { 0 },
            ..api
        }
    }

    /// A server with equal capabilities and no faults.
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

    /// Starts a response to `read`.
    pub fn ask(&self, now: Time, read: &Read, rng: &mut Rng) -> Answer {
        let lifetime = match read {
            Read::Stream { timeout_seconds, .. } | Read::Watch { timeout_seconds, .. } => u64::from(*timeout_seconds),
            Read::List { .. } | Read::Page { .. } => 60,
        };
        self.answer(now, Phase::Asked(read.clone()), lifetime, rng)
    }

    /// Starts a response to a read of one object, not older than `at`.
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

    /// The version of its state, drawn for each request.
    fn memory_at(&self, model: &Model, rng: &mut Rng) -> u64 {
        model.version() - rng.u64(..=self.lag_max).min(model.version() - model.oldest())
    }

    /// One object from the server's state; `TOO_LARGE` if that state is older than `at`.
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

    /// The version of the state that `semantic` selects on a server whose state is at `behind`.
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
            _ => Err(Failure::new(Class::Refused)),
        }
    }

    /// The remaining objects of the initial state that `token` marks, if the mark is valid and not compacted.
    fn rest(&self, token: &str, semantic: &ListSemantic, model: &Model) -> Option<Marked> {
        let mut parts = token.splitn(4, '/');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (key, history, version) = (number()?, number()?, number()?);
        let last = parts.next()?;
        let is_ours = self.marks && key == self.marks_key && history == u64::from(model.number());
        let is_new_enough = match semantic {
            ListSemantic::NotOlderThan(asked) => asked.as_u64().is_some_and(|asked| asked <= version),
            ListSemantic::MostRecent | ListSemantic::Any | ListSemantic::Exact(_) | _ => true,
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

/// One response in progress.
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
    /// Headers of a list, page or watch are due.
    Asked(Read),
    /// Headers of a read of one object are due.
    AskedObject { key: String, at: u64, by: ProofBy },
    /// Items of one page of the state at `version`.
    Items { items: VecDeque<Object>, version: u64, token: Option<String> },
    /// Initial events of the state at `version`, then changes up to `until`, then the end bookmark.
    State { items: VecDeque<Object>, version: u64, until: u64 },
    /// Initial events of the state at `version` with marks between them, then the end bookmark.
    Marked(Marked),
    /// Events after `cursor`.
    Live { cursor: u64 },
    /// An error that is already chosen.
    Ending(End),
    /// The response is silent.
    Silent,
}

/// An initial state with marks.
#[derive(Clone, Debug)]
struct Marked {
    items: VecDeque<Object>,
    version: u64,
    /// The mark of the request, until the stream has echoed it.
    echo: Option<String>,
    /// Key of the object sent last; a mark may follow it.
    last: Option<String>,
}

impl Answer {
    /// Returns the next fact that is due, if any.
    pub fn next(&mut self, now: Time, api: &Api, model: &Model, rng: &mut Rng) -> Option<Fact> {
        if now < self.headers_at {
            return None;
        }
        // Each arm restores or advances the phase; an arm that returns early leaves the response silent.
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
                // kube-apiserver sends these errors in the stream; proxies and other servers send them as an HTTP
                // status.
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
            // Some servers know no such request, and say so by 404. Not drawn, so that seeds keep their worlds.
            Read::Stream { .. } if !api.streams && model.version().is_multiple_of(4) => {
                Err(Failure::new(Class::NotFound))
            }
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

    /// Draws a fault in the middle of a response. `Some(None)` means that the response stalls.
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
            // During the initial state a client must ignore the bookmark wherever it points. A live one points back: a
            // bookmark ahead of the stream would hide events, and no client could detect that.
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

    /// Sends a mark after about one object in four.
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
            // No client could resume from the end of this state.
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
            // The next events were compacted before they could be sent.
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
            // A watch from a future position stays there, whatever position its bookmark has.
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
