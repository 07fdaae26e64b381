//! Goal: what holds for every history of facts, sensible or not. Method: all sequences of six steps, after three starts,
//! each action checked against a shadow that knows nothing but the promises.

use std::cmp::Ordering;

use super::*;
use crate::semantics::Read;

/// Facts a server can make happen, and the timer.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Accepted,
    /// An object at the next position, or behind the position.
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
    Timer,
}

use Fact::{
    Accepted, Added, Behind, Bookmark, Closed, Deleted, Fails, Item, LastPage, Page, StateEnd, StateEndAtZero, Timer,
};

/// Facts of an open watch, of an open list, and while nothing is open: the last only stale ones.
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
    Timer,
];
const OF_A_LIST: &[Fact] = &[
    Accepted,
    Item,
    Page,
    LastPage,
    Closed,
    Fails(Class::Expired),
    Fails(Class::TooLarge),
    Fails(Class::Forbidden),
    Timer,
];
const OF_NOTHING: &[Fact] = &[Closed, Timer];
/// Facts in any state, whether they can happen there or not.
const OF_ANYTHING: &[Fact] = &[Accepted, Added, StateEnd, Page, LastPage, Closed, Fails(Class::Expired), Timer];

/// What the promises allow to be known: which answer and stage are open.
#[derive(Clone)]
struct Shadow {
    now: Time,
    /// The open answer; `None` when there is none.
    open: Option<Read>,
    staging: bool,
    position: Option<ResourceVersion>,
    /// The last initial read asked for the most recent state: then the position may go back.
    latest: bool,
    initial_reads: u64,
    over: bool,
    /// Timers at one moment.
    spins: u32,
}

impl Shadow {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            open: None,
            staging: false,
            position: None,
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
            Action::Close => assert!(self.open.take().is_some(), "nothing to close"),
            Action::Prove { .. } | Action::Refuse | Action::Restored => unreachable!("not yet"),
            Action::Init { .. } => {
                assert!(!self.staging, "a stage is open");
                assert!(self.open.as_ref().is_some_and(Read::is_initial) || matches!(input, Input::PageEnd { .. }));
                self.staging = true;
            }
            Action::InitApply => assert!(self.staging && of_an_object),
            Action::InitDone(position) => {
                assert!(mem::take(&mut self.staging), "no stage is open");
                self.position = if self.latest { None } else { self.position.take() };
                self.moved(position);
            }
            Action::Apply => assert!(!self.staging && of_an_object && self.is_live()),
            Action::Delete => assert!(of_an_object && (self.staging || self.is_live())),
            Action::Bookmark(position) => {
                assert!(!self.staging && self.is_live());
                self.moved(position);
            }
            Action::Abandon => assert!(mem::take(&mut self.staging), "no stage to abandon"),
            Action::Report(Report::Waiting { until, .. }) => {
                assert!(self.open.is_none() || matches!(input, Input::Ended(_)), "waits with an answer open");
                assert!(!self.staging && until.since(self.now) <= Duration::from_mins(6) && *until >= self.now);
            }
            Action::Report(Report::Expired) => self.over = true,
            Action::Report(
                Report::Relist { .. }
                | Report::FellBack { .. }
                | Report::Healthy
                | Report::Spread { .. }
                | Report::Proved
                | Report::Foreign
                | Report::HistoryReset,
            ) => {}
        }
    }

    fn send(&mut self, read: &Read) {
        match read {
            Read::Stream { semantic, .. } | Read::List { semantic, .. } => {
                assert!(!self.staging, "a new question with the old stage open");
                self.initial_reads += 1;
                self.latest = *semantic == ListSemantic::MostRecent;
                let exact_again = matches!(semantic, ListSemantic::Exact(_)) && self.position.is_some();
                assert!(!exact_again, "only the first read is exact");
            }
            Read::Page { .. } => assert!(self.staging),
            Read::Watch { after, .. } => {
                assert!(!self.staging);
                assert_eq!(Some(after), self.position.as_ref(), "resumes from what was seen last");
            }
        }
        self.open = Some(read.clone());
    }

    /// A stream past its initial state, or a watch.
    fn is_live(&self) -> bool {
        self.open.as_ref().is_some_and(Read::is_watch)
    }

    fn moved(&mut self, to: &ResourceVersion) {
        if let Some(position) = &self.position {
            assert_ne!(to.compare(position), Some(Ordering::Less), "the position went back");
        }
        self.position = Some(to.clone());
    }
}

#[derive(Clone)]
struct Node {
    reflector: Reflector,
    shadow: Shadow,
}

impl Node {
    fn new(config: Config) -> Self {
        let mut node = Self { reflector: Reflector::new(config), shadow: Shadow::new() };
        node.feed(Input::Start);
        node
    }

    /// What can happen next.
    fn alphabet(&self) -> &'static [Fact] {
        match &self.shadow.open {
            Some(read) if read.is_watch() => OF_A_WATCH,
            Some(_) => OF_A_LIST,
            None => OF_NOTHING,
        }
    }

    fn step(&mut self, fact: Fact) {
        let ahead = self.reflector.position().and_then(ResourceVersion::as_u64).unwrap_or(9) + 1;
        let ahead = ahead.to_string();
        let object =
            |change, resource_version| Input::Object(Observed { change, key: "a", uid: "u", resource_version });
        let bookmark = |resource_version, initial_events_end| Input::Bookmark { resource_version, initial_events_end };
        match fact {
            Accepted => self.feed(Input::Accepted),
            Added => self.feed(object(Change::Added, &ahead)),
            Behind => self.feed(object(Change::Modified, "5")),
            Deleted => self.feed(object(Change::Deleted, &ahead)),
            Item => self.feed(object(Change::Item, "5")),
            Bookmark => self.feed(bookmark(&ahead, false)),
            StateEnd => self.feed(bookmark(&ahead, true)),
            StateEndAtZero => self.feed(bookmark("0", true)),
            Page => self.feed(Input::PageEnd { resource_version: &ahead, continue_token: Some("t") }),
            LastPage => self.feed(Input::PageEnd { resource_version: &ahead, continue_token: None }),
            Closed => self.feed(Input::Ended(End::Closed)),
            Fails(class) => self.feed(Input::Ended(End::Failed(Failure::new(class)))),
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
        let list_open = self.shadow.open.as_ref().is_some_and(|read| !read.is_watch());
        self.reflector.handle(self.shadow.now, input);
        match input {
            Input::Ended(_) => self.shadow.open = None,
            Input::PageEnd { .. } if list_open => self.shadow.open = None,
            Input::PageEnd { .. }
            | Input::Start
            | Input::Accepted
            | Input::Object(_)
            | Input::Bookmark { .. }
            | Input::Ignored
            | Input::Proof(_)
            | Input::Moved
            | Input::TimedOut => {}
        }
        while let Some(action) = self.reflector.poll_action() {
            self.shadow.act(&action, &input);
        }
        self.check();
    }

    fn check(&mut self) {
        if matches!(self.reflector.state, State::Watching(_)) && !self.shadow.staging {
            // Live changes move the position without an order that says so; it must never go back.
            let position = self.reflector.position().expect("live").clone();
            self.shadow.moved(&position);
        }
        assert_eq!(self.reflector.position(), self.shadow.position.as_ref());
        assert_eq!(self.reflector.is_over(), self.shadow.over);
        assert_eq!(self.reflector.poll_timeout().is_some(), !self.shadow.over, "a timer unless it is over");
        assert!(!(self.shadow.over && self.shadow.open.is_some()));
        let counted: u64 = RelistCause::ALL.iter().map(|cause| self.reflector.stats().relists(*cause)).sum();
        assert_eq!(counted, self.shadow.initial_reads, "every initial read has a counted cause");
    }
}

/// Runs every continuation of `node`; how many there were.
fn explore(node: &Node, steps: u32, alphabet: fn(&Node) -> &'static [Fact]) -> u32 {
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

fn starts() -> [Config; 3] {
    [
        Config::default(),
        Config { initial: InitialList::Paged, semantic: ListSemantic::MostRecent, ..Config::default() },
        Config { semantic: ListSemantic::Exact(7.into()), ..Config::default() },
    ]
}

#[test]
fn whatever_a_server_does_in_six_steps_every_promise_holds() {
    let explored: u32 = starts().into_iter().map(|config| explore(&Node::new(config), 6, Node::alphabet)).sum();
    assert!(explored > 100_000, "{explored}");
}

#[test]
fn facts_that_cannot_happen_break_no_promise_either() {
    let explored = explore(&Node::new(Config::default()), 6, |_| OF_ANYTHING);
    assert_eq!(explored, 8_u32.pow(6));
}
