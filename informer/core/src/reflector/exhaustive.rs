//! Exhaustive test of the reflector over short histories.
//!
//! Goal: every promise holds for every sequence of inputs, plausible or not. Method: all sequences of six steps after
//! four starts (five steps for inputs that cannot happen), each action checked against a shadow model that knows only
//! the promises. Every move is to an endpoint never used before.

use std::cmp::Ordering;

use super::*;
use crate::semantics::{Marks, Read};

/// Inputs that a server can cause, and the timer.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Accepted,
    /// An object at the next position; `Behind`: one behind the position.
    Added,
    Behind,
    Deleted,
    Item,
    Bookmark,
    StateEnd,
    StateEndAtZero,
    Page,
    LastPage,
    Closed,
    Fails(Class),
    Proves(Proof),
    /// Headers that announce marks or a resumed state; a new mark; the mark of the request.
    WithMarks,
    Resumed,
    Mark,
    Echo,
    /// Requests go to an endpoint never used before.
    Moves,
    Timer,
}

use Fact::{
    Accepted, Added, Behind, Bookmark, Closed, Deleted, Echo, Fails, Item, LastPage, Mark, Moves, Page, Proves,
    Resumed, StateEnd, StateEndAtZero, Timer, WithMarks,
};

/// Inputs during an open watch, an open list and a proof, and without an open request (only stale ones).
const OF_A_WATCH: &[Fact] = &[
    Accepted,
    Added,
    Behind,
    Deleted,
    Bookmark,
    StateEnd,
    StateEndAtZero,
    Closed,
    Fails(Class::Expired),
    Fails(Class::Refused),
    Fails(Class::Forbidden),
    Fails(Class::Server),
    Moves,
    Timer,
];
const OF_A_LIST: &[Fact] = &[
    Fails(Class::Refused),
    Accepted,
    Item,
    Page,
    LastPage,
    Closed,
    Fails(Class::Expired),
    Fails(Class::TooLarge),
    Fails(Class::Forbidden),
    Fails(Class::TooMany),
    Moves,
    Timer,
];
const OF_A_PROOF: &[Fact] = &[
    Proves(Proof::Same),
    Proves(Proof::Changed),
    Proves(Proof::Foreign),
    Proves(Proof::Reset),
    Proves(Proof::Missing),
    Proves(Proof::Nothing),
    Fails(Class::TooLarge),
    Fails(Class::Forbidden),
    Fails(Class::Server),
    Moves,
    Timer,
];
const OF_NOTHING: &[Fact] = &[Closed, Moves, Timer];
/// Inputs during a stream with marks in its initial state.
const OF_A_MARKED_STREAM: &[Fact] = &[
    Accepted,
    WithMarks,
    Resumed,
    Added,
    Deleted,
    Mark,
    Echo,
    StateEnd,
    Closed,
    Fails(Class::Refused),
    Fails(Class::Connection),
    Moves,
    Timer,
];
/// Inputs in any state, possible there or not.
const OF_ANYTHING: &[Fact] = &[
    Accepted,
    Added,
    StateEnd,
    Page,
    LastPage,
    Closed,
    Fails(Class::Expired),
    Proves(Proof::Same),
    Proves(Proof::Reset),
    Moves,
    Timer,
];

/// Model of the promises: the open response and stage, and the position they allow.
#[derive(Clone)]
struct Shadow {
    now: Time,
    /// The request of the open response, if any.
    open: Option<Read>,
    /// True if the open response belongs to a proof.
    proving: bool,
    /// True if the last response that ended was a page after the first: its stage may wait for a retry.
    page_ended: bool,
    /// Initial state announced by the open stream.
    shown: Offer,
    /// The last mark of the staged state, and the number of marks sent.
    mark: Option<String>,
    marks: u32,
    /// Number of requests, and the number of the one that opened the stage.
    answers: u32,
    staged_by: u32,
    /// True if the open response has sent an object; true if it has proved to be the rest of a state without an
    /// announcement.
    has_objects: bool,
    is_unannounced: bool,
    /// True if the open response has sent a change other than ADDED.
    is_moving: bool,
    /// The endpoint in use, and the one where the position is proved. Each endpoint has a number.
    endpoint: u32,
    proved_at: Option<u32>,
    endpoints: u32,
    /// True if another history was found and its state has not been fetched.
    foreign: bool,
    synced: bool,
    staging: bool,
    position: Option<ResourceVersion>,
    /// True if the last initial read requested the most recent state, so that the position may go back.
    latest: bool,
    initial_reads: u64,
    over: bool,
    /// Consecutive timers at one moment.
    spins: u32,
}

/// Initial state that an open stream announces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    Nothing,
    /// All of it; `marked` if announced with marks.
    All {
        marked: bool,
    },
    /// The rest, behind the mark of the request.
    Rest,
}

impl Shadow {
    fn new(config: &Config) -> Self {
        Self {
            now: Time::ZERO,
            open: None,
            proving: false,
            page_ended: false,
            shown: Offer::Nothing,
            mark: None,
            marks: 0,
            answers: 0,
            staged_by: 0,
            has_objects: false,
            is_unannounced: false,
            is_moving: false,
            endpoint: 0,
            proved_at: None,
            endpoints: 0,
            foreign: false,
            synced: false,
            staging: false,
            position: config.resume.clone(),
            latest: false,
            initial_reads: 0,
            over: false,
            spins: 0,
        }
    }

    fn act(&mut self, action: &Action, input: &Input<'_>) {
        let of_an_object = matches!(input, Input::Object(_));
        match action {
            Action::Send(read) => self.send(read),
            Action::Close => {
                assert!(mem::take(&mut self.proving) || self.open.take().is_some(), "nothing to close");
            }
            Action::Prove { at, skip, .. } => {
                assert!(!self.staging && *skip < crate::proof::WITNESSES_MAX);
                assert_eq!(Some(at), self.position.as_ref());
                self.open = None;
                self.proving = true;
            }
            Action::Refuse => {
                let home = self.proved_at.expect("a way back");
                assert_ne!(home, self.endpoint, "refused where it is at home");
                self.endpoint = home;
            }
            Action::Restored => {
                assert!(!mem::replace(&mut self.synced, true) && self.is_live());
            }
            Action::Init { trusts_versions, .. } => {
                assert!(!trusts_versions || !self.foreign, "equal versions of two histories");
                assert!(!trusts_versions || !self.latest || self.position.is_none(), "it may go back");
                assert!(!self.staging, "a stage is open");
                assert!(self.open.as_ref().is_some_and(Read::is_initial) || matches!(input, Input::PageEnd { .. }));
                self.staging = true;
                self.staged_by = self.answers;
                // The server sent another response than requested: the state from its beginning.
                self.initial_reads += u64::from(self.asks_for_the_rest());
                self.mark = None;
            }
            Action::InitApply => assert!(self.staging && of_an_object),
            Action::InitDone(position) => {
                assert!(mem::take(&mut self.staging), "no stage is open");
                assert!(!self.is_unannounced, "half a state");
                let is_stream = matches!(self.open, Some(Read::Stream { .. }));
                assert!(!is_stream || (self.shown == Offer::Rest) != (self.staged_by == self.answers), "of two states");
                self.mark = None;
                self.position = if self.latest { None } else { self.position.take() };
                self.moved(position);
                self.proved_at = Some(self.endpoint);
                self.foreign = false;
                self.synced = true;
            }
            Action::Apply => assert!(!self.staging && of_an_object && self.is_live()),
            Action::Delete => assert!(of_an_object && (self.staging || self.is_live())),
            Action::Bookmark(position) => {
                assert!(!self.staging && self.is_live());
                self.moved(position);
            }
            Action::Abandon => {
                assert!(mem::take(&mut self.staging), "no stage to abandon");
                self.mark = None;
            }
            Action::Report(Report::Waiting { until, .. }) => {
                assert!(self.open.is_none() || matches!(input, Input::Ended(_)), "waits with an answer open");
                assert!(!self.staging || self.page_ended || self.mark.is_some(), "a stage waits for nothing");
                assert!(until.since(self.now) <= Duration::from_mins(6) && *until >= self.now);
            }
            Action::Report(Report::Expired) => self.over = true,
            Action::Report(Report::Proved) => self.proved_at = Some(self.endpoint),
            Action::Report(
                Report::Relist { .. }
                | Report::FellBack { .. }
                | Report::Healthy
                | Report::Spread { .. }
                | Report::Foreign
                | Report::HistoryReset
                | Report::Unordered,
            ) => {}
        }
    }

    fn send(&mut self, read: &Read) {
        (self.shown, self.has_objects, self.is_unannounced, self.is_moving) = (Offer::Nothing, false, false, false);
        self.answers += 1;
        match read {
            Read::Stream { marks: Marks::After(token), .. } => {
                assert!(self.staging, "the rest of nothing");
                assert_eq!(Some(token), self.mark.as_ref(), "goes on behind what was marked last");
            }
            Read::Stream { semantic, .. } | Read::List { semantic, .. } => {
                assert!(!self.staging, "a new question with the old stage open");
                self.initial_reads += 1;
                self.latest = *semantic == ListSemantic::MostRecent;
                let exact_again =
                    matches!(semantic, ListSemantic::Exact(_)) && (self.position.is_some() || self.foreign);
                assert!(!exact_again, "only the first read is exact");
            }
            Read::Page { .. } => assert!(self.staging),
            Read::Watch { after, .. } => {
                assert!(!self.staging);
                assert_eq!(Some(after), self.position.as_ref(), "resumes from what was seen last");
                assert_eq!(self.proved_at, Some(self.endpoint), "resumes where nothing was proved");
            }
        }
        self.proving = false;
        self.open = Some(read.clone());
    }

    /// Returns true during a watch or a stream past its initial state.
    fn is_live(&self) -> bool {
        self.open.as_ref().is_some_and(Read::is_watch)
    }

    fn asks_for_the_rest(&self) -> bool {
        matches!(&self.open, Some(Read::Stream { marks: Marks::After(_), .. }))
    }

    /// Updates the model with `input`, before the reflector handles it.
    fn show(&mut self, input: &Input<'_>) {
        let is_stream = matches!(self.open, Some(Read::Stream { .. })) && !self.is_past_its_state();
        match (input, self.shown) {
            _ if !is_stream => {}
            (Input::AcceptedWithMarks, Offer::Nothing) => self.shown = Offer::All { marked: true },
            (Input::Resumed, Offer::Nothing) if self.asks_for_the_rest() => self.shown = Offer::Rest,
            (Input::Mark { token }, Offer::All { marked: true } | Offer::Rest) => self.mark = Some((*token).to_owned()),
            (Input::Accepted | Input::Object(_) | Input::Bookmark { initial_events_end: true, .. }, Offer::Nothing) => {
                self.shown = Offer::All { marked: false };
            }
            _ => {}
        }
        if let Input::Object(object) = input {
            self.has_objects |= is_stream;
            // A state that changes while it is sent has no usable marks, whatever the headers announced.
            self.is_moving |= is_stream && object.change != ObservedKind::Added;
        }
        if let Input::Mark { .. } = input {
            self.is_unannounced |= is_stream && !self.has_objects && self.shown != Offer::Rest;
        }
        self.mark = self.mark.take().filter(|_| !self.is_moving);
    }

    /// Returns true if the stage of the stream's state is already closed; before it is opened no state was shown.
    fn is_past_its_state(&self) -> bool {
        !self.staging && self.shown != Offer::Nothing
    }

    fn moved(&mut self, to: &ResourceVersion) {
        if let Some(position) = &self.position {
            assert_ne!(to.compare(position), Some(Ordering::Less), "the position went back");
        }
        self.position = Some(to.clone());
    }
}

#[derive(Clone)]
struct ModelNode {
    reflector: Reflector,
    shadow: Shadow,
}

impl ModelNode {
    fn new(config: Config) -> Self {
        let mut node = Self { shadow: Shadow::new(&config), reflector: Reflector::new(config) };
        node.feed(Input::Start);
        node
    }

    /// Returns the inputs that can happen next.
    fn alphabet(&self) -> &'static [Fact] {
        match &self.shadow.open {
            Some(read) if read.is_watch() => OF_A_WATCH,
            Some(_) => OF_A_LIST,
            None if self.shadow.proving => OF_A_PROOF,
            None => OF_NOTHING,
        }
    }

    /// Like `alphabet`, for a server that marks its initial states.
    fn alphabet_with_marks(&self) -> &'static [Fact] {
        match &self.shadow.open {
            Some(Read::Stream { .. }) => OF_A_MARKED_STREAM,
            Some(_) | None => self.alphabet(),
        }
    }

    fn step(&mut self, fact: Fact) {
        let ahead = self.reflector.position().and_then(ResourceVersion::as_u64).unwrap_or(9) + 1;
        let ahead = ahead.to_string();
        let object = |change, resource_version| {
            Input::Object(ObservedObject { change, key: "a", uid: "u", resource_version, is_news: true })
        };
        let bookmark = |resource_version, initial_events_end| Input::Bookmark { resource_version, initial_events_end };
        match fact {
            Accepted => self.feed(Input::Accepted),
            Added => self.feed(object(ObservedKind::Added, &ahead)),
            Behind => self.feed(object(ObservedKind::Modified, "5")),
            Deleted => self.feed(object(ObservedKind::Deleted, &ahead)),
            Item => self.feed(object(ObservedKind::Item, "5")),
            Bookmark => self.feed(bookmark(&ahead, false)),
            StateEnd => self.feed(bookmark(&ahead, true)),
            StateEndAtZero => self.feed(bookmark("0", true)),
            Page => self.feed(Input::PageEnd { resource_version: &ahead, continue_token: Some("t") }),
            LastPage => self.feed(Input::PageEnd { resource_version: &ahead, continue_token: None }),
            Closed => self.feed(Input::Ended(End::Closed)),
            Fails(class) => self.feed(Input::Ended(End::Failed(Failure::new(class)))),
            Proves(proof) => self.feed(Input::Proof(Testimony { proof, key: "a", uid: "u" })),
            WithMarks => self.feed(Input::AcceptedWithMarks),
            Resumed => self.feed(Input::Resumed),
            Mark => {
                self.shadow.marks += 1;
                let token = format!("t{}", self.shadow.marks);
                self.feed(Input::Mark { token: &token });
            }
            Echo => {
                let token = self.shadow.mark.clone().unwrap_or_default();
                self.feed(Input::Mark { token: &token });
            }
            Moves => self.feed(Input::Moved { home: false }),
            Timer => {
                let Some(at) = self.reflector.poll_timeout() else { return };
                assert!(at >= self.shadow.now, "a timer in the past");
                self.shadow.spins = if at == self.shadow.now { self.shadow.spins + 1 } else { 0 };
                assert!(self.shadow.spins < 3, "spins");
                self.shadow.now = at;
                self.feed(Input::TimedOut);
            }
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        let shadow = &mut self.shadow;
        let list_open = shadow.open.as_ref().is_some_and(|read| !read.is_watch());
        // Only lists are refused because of their position: a stream may be refused for being a stream.
        let named_position = matches!(shadow.open, Some(Read::List { semantic: ListSemantic::NotOlderThan(_), .. }));
        shadow.show(&input);
        self.reflector.handle(shadow.now, input);
        shadow.page_ended = matches!(shadow.open, Some(Read::Page { .. }));
        match input {
            Input::Ended(_) => (shadow.open, shadow.proving) = (None, false),
            Input::Proof(_) => shadow.proving = false,
            Input::PageEnd { .. } if list_open => shadow.open = None,
            Input::Moved { .. } => {
                shadow.endpoints += 1;
                shadow.endpoint = shadow.endpoints;
            }
            Input::PageEnd { .. }
            | Input::Start
            | Input::Accepted
            | Input::AcceptedWithMarks
            | Input::Resumed
            | Input::Mark { .. }
            | Input::Object(_)
            | Input::Bookmark { .. }
            | Input::Ignored
            | Input::TimedOut => {}
        }
        let (mut refused, mut is_other, mut is_done) = (false, false, false);
        while let Some(action) = self.reflector.poll_action() {
            refused |= action == Action::Refuse;
            is_other |= matches!(action, Action::Report(Report::Foreign | Report::HistoryReset));
            is_done |= matches!(action, Action::InitDone(_));
            self.shadow.act(&action, &input);
        }
        let is_refusal = matches!(input, Input::Ended(End::Failed(Failure { class: Class::Refused, .. })));
        is_other |= is_refusal && named_position;
        if is_other && !is_done && !refused {
            (self.shadow.position, self.shadow.proved_at, self.shadow.foreign) = (None, None, true);
        }
        self.check();
    }

    fn check(&mut self) {
        if matches!(self.reflector.state, State::Watching(_)) && !self.shadow.staging {
            // Live changes move the position without an action that names it; it must never go back.
            let position = self.reflector.position().expect("live").clone();
            self.shadow.moved(&position);
        }
        assert_eq!(self.reflector.position(), self.shadow.position.as_ref());
        assert_eq!(self.reflector.is_synced(), self.shadow.synced);
        let shadow = &self.shadow;
        assert_eq!(self.reflector.is_settled(), shadow.proved_at == Some(shadow.endpoint));
        assert_eq!(self.reflector.is_over(), self.shadow.over);
        assert_eq!(self.reflector.poll_timeout().is_some(), !self.shadow.over, "a timer unless it is over");
        assert!(!(self.shadow.over && self.shadow.open.is_some()));
        let counted: u64 = RelistCause::ALL.iter().map(|cause| self.reflector.stats().relists(*cause)).sum();
        assert_eq!(counted, self.shadow.initial_reads, "every initial read has a counted cause");
    }
}

/// Runs every continuation of `node`. Returns their number.
fn explore(node: &ModelNode, steps: u32, alphabet: fn(&ModelNode) -> &'static [Fact]) -> u32 {
    if steps == 0 {
        return 1;
    }
    alphabet(node)
        .iter()
        .map(|fact| {
            let mut next = node.clone();
            next.step(*fact);
            explore(&next, steps - 1, alphabet)
        })
        .sum()
}

fn starts() -> [Config; 4] {
    [
        Config::default(),
        Config { initial: InitialList::Paged, semantic: ListSemantic::MostRecent, ..Config::default() },
        Config { semantic: ListSemantic::Exact(7.into()), ..Config::default() },
        Config { semantic: ListSemantic::Exact(7.into()), resume: Some(9.into()), ..Config::default() },
    ]
}

#[test]
fn whatever_a_server_does_in_six_steps_every_promise_holds() {
    let explored: u32 =
        starts().into_iter().map(|config| explore(&ModelNode::new(config), 6, ModelNode::alphabet)).sum();
    assert!(explored > 100_000, "{explored}");
}

/// Goal: an incomplete state is never shown, and a stage is kept only behind a mark.
#[test]
fn whatever_a_server_with_marks_does_in_six_steps_every_promise_holds() {
    let explored = explore(&ModelNode::new(Config::default()), 6, ModelNode::alphabet_with_marks);
    assert!(explored > 100_000, "{explored}");
}

/// Goal: every promise holds behind a mark too. Method: all continuations of a stream that was accepted, sent an object
/// and a mark, broke, and was requested again.
#[test]
fn whatever_follows_a_mark_every_promise_holds() {
    let mut node = ModelNode::new(Config::default());
    for fact in [WithMarks, Added, Mark, Fails(Class::Connection), Timer] {
        node.step(fact);
    }
    assert!(node.shadow.staging && node.shadow.asks_for_the_rest());
    let explored = explore(&node, 6, ModelNode::alphabet_with_marks);
    assert!(explored > 100_000, "{explored}");
}

#[test]
fn facts_that_cannot_happen_break_no_promise_either() {
    let explored = explore(&ModelNode::new(Config::default()), 5, |_| OF_ANYTHING);
    assert_eq!(explored, 11_u32.pow(5));
}
