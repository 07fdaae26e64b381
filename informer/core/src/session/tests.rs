//! The session's own rules: the relist budget, moves between endpoints, frames.

use std::time::Duration;

use super::*;
use crate::{
    endpoints, proof,
    reflector::{Failure, FallBack, ObservedObject, RelistCause},
    store::{self, Store, StoreError},
    wire::{framer::Frame, framer::ListEnd, watch_event::EventKind},
};

/// Keeps objects and the names of its orders.
#[derive(Default)]
struct Copy {
    store: Store,
    orders: Vec<&'static str>,
    // True if the holder of the state vouches for its history.
    vouches: bool,
}

impl Sink for Copy {
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError> {
        let (name, event) = match order {
            Order::Restored => ("Restored", store::Event::Restored),
            Order::Init { trusts_versions, .. } => ("Init", store::Event::Init { trusts_versions }),
            Order::InitApply(json, meta) => ("InitApply", store::Event::InitApply(json, meta)),
            Order::InitDone(position) => ("InitDone", store::Event::InitDone(position)),
            Order::Apply(json, meta) => ("Apply", store::Event::Apply(json, meta)),
            Order::Delete(_, meta) => ("Delete", store::Event::Delete(meta)),
            Order::Skip(json, meta) => ("Skip", store::Event::Skip(json, meta)),
            Order::Bookmark(position) => ("Bookmark", store::Event::Bookmark(position)),
            Order::Abandon => ("Abandon", store::Event::Abandon),
        };
        self.orders.push(name);
        self.store.handle(now, event)
    }

    fn evidence(&self, skip: usize, _moved: bool) -> Evidence {
        if self.vouches {
            return Evidence::Word;
        }
        proof::witness(&self.store.snapshot(), skip).map_or(Evidence::Nothing, Evidence::Witness)
    }

    fn is_news(&self, event: &ObservedObject<'_>) -> bool {
        proof::is_news(&self.store.snapshot(), event)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.store.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.store.handle_timeout(now);
    }
}

#[derive(Default)]
struct Table([Verdict; 2]);

impl VerdictTable for Table {
    fn verdict(&self, endpoint: usize) -> Verdict {
        self.0[endpoint]
    }

    fn set_verdict(&mut self, endpoint: usize, verdict: Verdict) {
        self.0[endpoint] = verdict;
    }
}

/// A session with two endpoints.
fn session(config: reflector::Config) -> Session<Copy, Table> {
    let endpoints = Endpoints::new(2, endpoints::Config::default(), 7);
    Session::new(config, None, endpoints, Table::default(), Copy::default())
}

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

/// The actions since the last call, without reports.
fn actions<S: Sink, V: VerdictTable>(session: &mut Session<S, V>) -> Vec<String> {
    let all = std::iter::from_fn(|| session.poll_action());
    let text = |action| match action {
        SessionAction::Queue { .. } => Some("queue".to_owned()),
        SessionAction::Send { endpoint, read: Read::Watch { .. } } => Some(format!("watch at {endpoint}")),
        SessionAction::Send { endpoint, .. } => Some(format!("read at {endpoint}")),
        SessionAction::Prove { endpoint, witness, .. } => Some(format!("prove {} at {endpoint}", witness.key())),
        SessionAction::Close => Some("close".to_owned()),
        SessionAction::Release => Some("release".to_owned()),
        SessionAction::Report(_) => None,
    };
    all.filter_map(text).collect()
}

fn pod(name: &str, version: u64) -> Vec<u8> {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}}}}"#).into_bytes()
}

fn failed(class: Class) -> SessionInput<'static> {
    SessionInput::Ended(End::Failed(Failure::new(class)))
}

/// Sends a stream of initial state with one object to its end bookmark.
fn sync(session: &mut Session<Copy, Table>, now: Time) {
    session.handle(now, SessionInput::Granted);
    session.handle(now, SessionInput::Accepted(None));
    session.handle_frame(now, Frame::Event { kind: EventKind::Added, object: &pod("a", 5) }).expect("an object");
    let end = br#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    session.handle_frame(now, Frame::Event { kind: EventKind::Bookmark, object: end }).expect("a bookmark");
}

#[test]
fn a_read_of_initial_state_waits_for_its_permit_and_gives_it_back_at_its_end() {
    let mut session = session(reflector::Config::default());
    session.handle(at(0), SessionInput::Start);
    assert_eq!(actions(&mut session), ["queue"]);
    assert_eq!(session.poll_timeout(), None, "a read that was not sent cannot be silent");
    session.handle(at(500), SessionInput::Granted);
    assert_eq!(actions(&mut session), ["read at 0"]);
    assert!(session.poll_timeout().is_some_and(|due| due > at(500)), "it is not late from the start");
    session.handle(at(501), SessionInput::Accepted(None));
    session.handle_frame(at(501), Frame::Event { kind: EventKind::Added, object: &pod("a", 5) }).expect("an object");
    assert_eq!(actions(&mut session), [""; 0], "the stream holds its permit");
    assert!(session.is_incomplete());
    let end = br#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    session.handle_frame(at(502), Frame::Event { kind: EventKind::Bookmark, object: end }).expect("a bookmark");
    assert_eq!(actions(&mut session), ["release"]);
    assert!(!session.is_incomplete());
    assert_eq!(session.confirmed_at(), Some(at(502)));
    assert_eq!(session.sink().orders, ["Init", "InitApply", "InitDone"]);
}

#[test]
fn a_read_that_stalls_gives_its_permit_back_and_goes_on() {
    let config = reflector::Config { initial: crate::InitialList::Unpaged, ..reflector::Config::default() };
    let mut session = session(config);
    session.handle(at(0), SessionInput::Start);
    session.handle(at(0), SessionInput::Granted);
    session.handle(at(0), SessionInput::Accepted(None));
    assert_eq!(actions(&mut session), ["queue", "read at 0"]);
    let stalled = session.poll_timeout().expect("a timer");
    assert!(stalled <= Time(TURN_MAX));
    session.handle(stalled, SessionInput::TimedOut);
    assert_eq!(actions(&mut session), ["release"]);
    session.handle_frame(stalled, Frame::Item(&pod("a", 5))).expect("an object");
    let end = ListEnd { resource_version: "9".into(), continue_token: None, remaining: None };
    session.handle_frame(stalled, Frame::ListEnd(end)).expect("an end");
    assert_eq!(actions(&mut session), ["watch at 0"]);
    assert_eq!(session.sink().orders, ["Init", "InitApply", "InitDone"]);
}

/// Goal: one long list in pages does not keep the other informers of a program from starting. Method: the list stalls,
/// which passes its permit on; then its pages go on.
#[test]
fn a_page_needs_a_permit_again_once_its_list_has_lost_its_own() {
    let config = reflector::Config { initial: crate::InitialList::Paged, ..reflector::Config::default() };
    let mut session = session(config);
    session.handle(at(0), SessionInput::Start);
    session.handle(at(0), SessionInput::Granted);
    session.handle(at(0), SessionInput::Accepted(None));
    assert_eq!(actions(&mut session), ["queue", "read at 0"]);
    end_page(&mut session, at(0), "a", "t1");
    assert_eq!(actions(&mut session), ["read at 0"], "the permit is for all pages");
    session.handle(at(0), SessionInput::Accepted(None));
    let stalled = session.poll_timeout().expect("a timer");
    session.handle(stalled, SessionInput::TimedOut);
    assert_eq!(actions(&mut session), ["release"]);
    end_page(&mut session, stalled, "b", "t2");
    assert_eq!(actions(&mut session), ["queue"]);
    session.handle(stalled, SessionInput::Granted);
    assert_eq!(actions(&mut session), ["read at 0"]);
}

/// Sends the rest of a page: one object, and the token of the next page.
fn end_page(session: &mut Session<Copy, Table>, now: Time, name: &str, token: &str) {
    session.handle_frame(now, Frame::Item(&pod(name, 5))).expect("an object");
    let end = ListEnd { resource_version: "9".into(), continue_token: Some(token.into()), remaining: None };
    session.handle_frame(now, Frame::ListEnd(end)).expect("an end");
}

/// A session that has read its initial state, and whose actions were taken.
fn synced() -> Session<Copy, Table> {
    let mut session = session(reflector::Config::default());
    session.handle(at(0), SessionInput::Start);
    sync(&mut session, at(1));
    actions(&mut session);
    session
}

/// Fails the preferred endpoint until the session moves. Returns the time of the move.
fn move_to_fallback(session: &mut Session<Copy, Table>) -> Time {
    let mut now = at(20);
    session.handle(now, failed(Class::Connection));
    while session.endpoint() == 0 {
        now = session.poll_timeout().expect("a timer");
        session.handle(now, SessionInput::TimedOut);
        if session.endpoint() == 0 {
            session.handle(now, failed(Class::Connection));
        }
    }
    now
}

/// Lets timers pass until the session queues or sends a read. Returns that action.
fn next_read(session: &mut Session<Copy, Table>) -> String {
    for _ in 0..20 {
        let found = actions(session).into_iter().find(|action| action != "close" && action != "release");
        if let Some(found) = found {
            return found;
        }
        let now = session.poll_timeout().expect("a timer");
        session.handle(now, SessionInput::TimedOut);
    }
    panic!("no read");
}

#[test]
fn a_relist_is_incomplete_and_confirms_nothing_before_its_end() {
    let mut session = synced();
    session.handle(at(20), failed(Class::Expired));
    assert_eq!(next_read(&mut session), "queue");
    assert!(session.is_incomplete() && session.is_synced());
    session.handle(at(600), SessionInput::Granted);
    session.handle(at(600), SessionInput::Accepted(None));
    session.handle_frame(at(601), Frame::Event { kind: EventKind::Added, object: &pod("a", 15) }).expect("an object");
    assert_eq!(session.confirmed_at(), Some(at(1)), "the stored state is being replaced");
    let end = br#"{"metadata":{"resourceVersion":"19","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    session.handle_frame(at(602), Frame::Event { kind: EventKind::Bookmark, object: end }).expect("a bookmark");
    assert!(!session.is_incomplete());
    assert_eq!(session.confirmed_at(), Some(at(602)));
}

#[test]
fn a_failure_at_a_fallback_is_no_reason_to_return_at_once() {
    let mut session = synced();
    let now = move_to_fallback(&mut session);
    session.handle(now, SessionInput::Proved(Testimony { proof: Proof::Same, key: "a", uid: "a" }));
    session.handle(now, SessionInput::Accepted(None));
    session.handle(now + Duration::from_secs(60), failed(Class::Connection));
    assert_eq!(session.endpoint(), 1);
}

#[test]
fn a_vouched_history_resumes_elsewhere_without_a_proof() {
    let mut session = synced();
    session.sink_mut().vouches = true;
    move_to_fallback(&mut session);
    assert_eq!(actions(&mut session).last().map(String::as_str), Some("watch at 1"));
}

#[test]
fn a_vouched_history_does_not_show_that_lists_are_allowed() {
    let mut session = synced();
    session.sink_mut().vouches = true;
    session.handle(at(20), failed(Class::Forbidden));
    assert_eq!(next_read(&mut session), "queue", "a list shows it");
}

/// Goal: a position that expired at a fallback is first tried at the preferred endpoint, which may have a longer
/// history. Method: fail the preferred endpoint until the session moves, then answer 410.
#[test]
fn a_position_that_expired_at_a_fallback_is_tried_at_the_preferred_endpoint() {
    let mut session = synced();
    let now = move_to_fallback(&mut session);
    assert_eq!(actions(&mut session).last().map(String::as_str), Some("prove a at 1"));
    session.handle(now, SessionInput::Proved(Testimony { proof: Proof::Same, key: "a", uid: "a" }));
    assert_eq!(actions(&mut session), ["watch at 1"]);
    session.handle(now, SessionInput::Accepted(None));
    let later = now + Duration::from_secs(60);
    session.handle(later, failed(Class::Expired));
    assert_eq!(session.endpoint(), 0);
    assert_eq!(actions(&mut session), ["prove a at 0"], "no list, and the position is kept");
    let relists: u64 = RelistCause::ALL.map(|cause| session.stats().relists(cause)).iter().sum();
    assert_eq!(relists, 1);
}

#[test]
fn verdicts_belong_to_the_endpoint_that_they_were_found_at() {
    let mut session = session(reflector::Config::default());
    session.handle(at(0), SessionInput::Start);
    session.handle(at(0), SessionInput::Granted);
    session.handle(at(0), failed(Class::Refused));
    assert_eq!(session.verdicts.0, [Verdict::Pages(FallBack::Refused), Verdict::Streams]);
    assert_eq!(session.endpoint(), 0);
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_is_kept() {
    let mut session = synced();
    let event = |kind, object| Frame::Event { kind, object };
    session.handle_frame(at(2), event(EventKind::Added, br#"{"metadata":{"resourceVersion":"10"}}"#)).expect("kept");
    session.handle_frame(at(2), event(EventKind::Added, br#"{"metadata":{"name":"b","uid":"b"}}"#)).expect("kept");
    let causes: Vec<String> = std::iter::from_fn(|| session.poll_action())
        .filter_map(|action| {
            let SessionAction::Report(SessionReport::Unreadable { key, cause }) = action else { return None };
            Some(format!("{key}: {cause:?}"))
        })
        .collect();
    assert_eq!(causes, [": Nameless", "b: Unversioned"]);
    assert_eq!(session.sink().store.snapshot().objects.len(), 2);
    let status = br#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#;
    let error = session.handle_frame(at(3), event(EventKind::Error, status)).expect_err("an error");
    assert!(matches!(error, BadFrame::Status(status) if status.is_expired()));
}
