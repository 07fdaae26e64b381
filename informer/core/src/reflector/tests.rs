//! Scripted tests of the reflector: inputs and expected actions as data.

mod health;
mod history;
mod lateness;
mod missing;
mod pages;
mod resuming;

use super::{RelistCause::*, *};
use crate::semantics::{Marks, Read};

/// One step of a script: time passes, then one input arrives or the armed timer fires.
#[derive(Clone, Copy)]
enum Step {
    In(u64, Input<'static>),
    Timer,
}

use Step::Timer;

const fn now(input: Input<'static>) -> Step {
    Step::In(0, input)
}

/// `input` after this many milliseconds.
const fn after(ms: u64, input: Input<'static>) -> Step {
    Step::In(ms, input)
}

const fn observed<'a>(change: ObservedKind, key: &'a str, resource_version: &'a str) -> Input<'a> {
    Input::Object(ObservedObject { change, key, uid: "u", resource_version, is_news: true })
}

const fn object(change: ObservedKind, key: &'static str, version: &'static str) -> Step {
    now(observed(change, key, version))
}

const fn added(key: &'static str, version: &'static str) -> Step {
    object(ObservedKind::Added, key, version)
}

const fn modified(key: &'static str, version: &'static str) -> Step {
    object(ObservedKind::Modified, key, version)
}

const fn deleted(key: &'static str, version: &'static str) -> Step {
    object(ObservedKind::Deleted, key, version)
}

const fn item(key: &'static str, version: &'static str) -> Step {
    object(ObservedKind::Item, key, version)
}

const fn bookmark(version: &'static str) -> Step {
    now(Input::Bookmark { resource_version: version, initial_events_end: false })
}

const fn end_of_state(version: &'static str) -> Step {
    now(Input::Bookmark { resource_version: version, initial_events_end: true })
}

const fn page(version: &'static str, token: Option<&'static str>) -> Step {
    now(Input::PageEnd { resource_version: version, continue_token: token })
}

const fn fails(class: Class) -> Step {
    now(Input::Ended(End::Failed(Failure::new(class))))
}

const fn proof(proof: Proof) -> Step {
    now(Input::Proof(Testimony { proof, key: "gone", uid: "u" }))
}

const START: Step = now(Input::Start);
const OK: Step = now(Input::Accepted);
const CLOSED: Step = now(Input::Ended(End::Closed));
/// A close after a healthy session.
const CLOSED_LATER: Step = after(10_000, Input::Ended(End::Closed));

fn semantic(semantic: &ListSemantic) -> String {
    match semantic {
        ListSemantic::MostRecent => "latest".into(),
        ListSemantic::Any => "any".into(),
        ListSemantic::NotOlderThan(position) => format!(">={position}"),
        ListSemantic::Exact(position) => format!("={position}"),
    }
}

/// Formats an action as scripts write it. A wait does not show its end; use `delays` for that.
pub(super) fn show(action: &Action) -> String {
    match action {
        Action::Send(Read::Stream { semantic: requested, marks: Marks::After(token), .. }) => {
            format!("stream {} after {token}", semantic(requested))
        }
        Action::Send(Read::Stream { semantic: requested, .. }) => format!("stream {}", semantic(requested)),
        Action::Send(Read::List { semantic: requested, limit: Some(_) }) => format!("list {}", semantic(requested)),
        Action::Send(Read::List { semantic: requested, limit: None }) => format!("list-all {}", semantic(requested)),
        Action::Send(Read::Page { token, .. }) => format!("page {token}"),
        Action::Send(Read::Watch { after, .. }) => format!("watch {after}"),
        Action::Close => "close".into(),
        Action::Prove { at, by: ProofBy::Get, skip } => format!("prove {at} by {skip}"),
        Action::Prove { at, by: ProofBy::List, skip } => format!("prove {at} by {skip} listed"),
        Action::Refuse => "refuse".into(),
        Action::Restored => "restored".into(),
        Action::Init { trusts_versions: true, .. } => "init".into(),
        Action::Init { continues_history: true, .. } => "init-comparing".into(),
        Action::Init { .. } => "init-distrusting".into(),
        Action::InitApply => "init-apply".into(),
        Action::InitDone(position) => format!("init-done {position}"),
        Action::Apply => "apply".into(),
        Action::Delete => "delete".into(),
        Action::Bookmark(position) => format!("bookmark {position}"),
        Action::Abandon => "abandon".into(),
        Action::Report(Report::Relist { cause }) => format!("[{cause:?}]"),
        Action::Report(Report::FellBack { cause }) => format!("[fell back: {cause:?}]"),
        Action::Report(Report::Waiting { cause: Ending::Failed(class), .. }) => format!("wait {class:?}"),
        Action::Report(Report::Waiting { cause, .. }) => format!("wait {cause:?}"),
        Action::Report(Report::Healthy) => "healthy".into(),
        Action::Report(Report::Spread { .. }) => "spread".into(),
        Action::Report(Report::Proved) => "proved".into(),
        Action::Report(Report::Foreign) => "foreign".into(),
        Action::Report(Report::HistoryReset) => "history-reset".into(),
        Action::Report(Report::Unordered) => "unordered".into(),
        Action::Report(Report::Expired) => "over".into(),
    }
}

struct Run {
    reflector: Reflector,
    time: Time,
    shown: Vec<String>,
    delays: Vec<Duration>,
}

impl Run {
    fn new(config: Config) -> Self {
        Self { reflector: Reflector::new(config), time: Time::ZERO, shown: Vec::new(), delays: Vec::new() }
    }

    fn step(&mut self, step: Step) {
        let input = match step {
            Step::In(ms, input) => {
                self.time = self.time + Duration::from_millis(ms);
                input
            }
            Timer => {
                self.time = self.reflector.poll_timeout().expect("a timer is armed");
                Input::TimedOut
            }
        };
        self.reflector.handle(self.time, input);
        let before = self.shown.len();
        while let Some(action) = self.reflector.poll_action() {
            if let Action::Report(Report::Waiting { until, .. }) = &action {
                self.delays.push(until.since(self.time));
            }
            self.shown.push(show(&action));
        }
        if self.shown.len() == before {
            self.shown.push("-".into());
        }
    }
}

fn run(config: Config, script: &[Step]) -> Run {
    let mut run = Run::new(config);
    for step in script {
        run.step(*step);
    }
    run
}

/// Runs `script` on the default reflector and compares its actions; `-` for a step without any.
#[track_caller]
fn check(script: &[Step], expected: &str) {
    check_with(Config::default(), script, expected);
}

#[track_caller]
fn check_with(config: Config, script: &[Step], expected: &str) {
    assert_eq!(run(config, script).shown.join(" · "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
}

fn paged() -> Config {
    Config { initial: InitialList::Paged, ..Config::default() }
}

fn only_streams() -> Config {
    Config { initial: InitialList::Stream, ..Config::default() }
}

#[test]
fn a_stream_gives_the_state_and_goes_on_as_the_watch() {
    check(
        &[
            START,
            OK,
            added("a", "9"),
            added("b", "3"),
            end_of_state("12"),
            modified("b", "13"),
            bookmark("20"),
            CLOSED_LATER,
            Timer,
        ],
        "[Start] · stream any · init · init-apply · init-apply · init-done 12 · apply · bookmark 20 \
         · healthy · wait Closed · watch 20",
    );
}

/// Goal: each refusal has its consequence. Method: the same start, one class each.
#[test]
fn streams_are_given_up_at_once_only_when_the_server_cannot() {
    let begin = "[Start] · stream any";
    for (class, expected) in [
        (Class::Refused, "[fell back: Refused] · [FellBack] · list any"),
        (Class::Forbidden, "[fell back: Forbidden] · wait Forbidden · [Interrupted] · list any"),
        (Class::TooMany, "wait TooMany · [Interrupted] · stream any"),
        (Class::Connection, "wait Connection · [Interrupted] · stream any"),
        (Class::Server, "wait Server · [Interrupted] · stream any"),
        (Class::Malformed, "wait Malformed · [Interrupted] · stream any"),
        (Class::TooLarge, "wait TooLarge · [TooLarge] · stream any"),
    ] {
        let script: &[Step] =
            if class == Class::Refused { &[START, fails(class)] } else { &[START, fails(class), Timer] };
        check(script, &format!("{begin} · {expected}"));
    }
}

/// ADDED of `version`, nine seconds after the previous input.
const fn slow(version: &'static str) -> Step {
    after(9_000, observed(ObservedKind::Added, "a", version))
}

#[test]
fn a_stalled_stream_becomes_a_list_and_objects_of_its_initial_state_restart_the_stall() {
    check(
        &[START, OK, added("b", "4"), slow("1"), Timer, OK, item("a", "1"), page("5", None)],
        "[Start] · stream any · init · init-apply · init-apply · abandon · [fell back: Stalled] · [FellBack] · list any \
         · init · init-apply · init-done 5 · watch 5",
    );
    let stalled = run(Config::default(), &[START, OK, added("b", "4"), slow("1"), Timer]);
    assert_eq!(stalled.time, Time(Duration::from_secs(19)));
    assert_eq!(stalled.reflector.verdict(), Verdict::Pages(FallBack::Stalled));
}

#[test]
fn objects_that_are_created_meanwhile_do_not_keep_a_stream_from_standing_still() {
    for created in [&[slow("6")][..], &[bookmark("9"), slow("3")], &[modified("c", "7"), slow("8")]] {
        let script: Vec<Step> = [START, OK, added("a", "5"), added("b", "3")]
            .into_iter()
            .chain(created.iter().copied())
            .chain([Timer])
            .collect();
        let stalled = run(Config::default(), &script);
        assert_eq!(stalled.time, Time(Duration::from_secs(10)), "{:?}", stalled.shown);
        assert_eq!(stalled.shown.last().unwrap(), "list any");
    }
}

/// An overloaded server may queue a request for long, and a list would cost it more.
#[test]
fn headers_that_do_not_come_are_asked_for_again_as_a_stream() {
    check(
        &[START, Timer, Timer, after(60_000, Input::Accepted), end_of_state("5")],
        "[Start] · stream any · close · wait Unanswered · [Interrupted] · stream any · init · init-done 5",
    );
    let late = run(Config::default(), &[START, after(60_000, Input::Accepted), Timer]);
    assert_eq!(late.time, Time(Duration::from_secs(70)), "the stall counts from the headers on");
}

/// Goal: overload and outages never turn streams into lists. Method: thirty of each, in place of a response and inside
/// one.
#[test]
fn a_server_that_has_too_much_to_do_is_asked_for_streams_alone() {
    for class in [Class::TooMany, Class::Server, Class::Connection] {
        let refused = [fails(class), Timer].repeat(30);
        let overloaded = run(Config::default(), &[&[START], &refused[..]].concat());
        assert!(overloaded.shown.iter().all(|shown| !shown.starts_with("list")), "{class:?}: {:?}", overloaded.shown);
        assert_eq!(overloaded.reflector.verdict(), Verdict::Streams);
    }
    for class in [Class::TooMany, Class::Server] {
        let refused = [OK, fails(class), Timer].repeat(30);
        let overloaded = run(Config::default(), &[&[START], &refused[..]].concat());
        assert!(overloaded.shown.iter().all(|shown| !shown.starts_with("list")), "{class:?}: {:?}", overloaded.shown);
    }
}

#[test]
fn three_accepted_streams_that_break_in_a_row_give_one_attempt_with_pages_and_no_verdict() {
    check(
        &[
            START,
            OK,
            CLOSED,
            Timer,
            fails(Class::Server),
            Timer,
            OK,
            fails(Class::Connection),
            Timer,
            OK,
            CLOSED,
            Timer,
            fails(Class::Server),
            Timer,
        ],
        "[Start] · stream any · init · abandon · wait Closed · [Interrupted] · stream any · wait Server · [Interrupted] \
         · stream any · init · abandon · wait Connection · [Interrupted] · stream any \
         · init · abandon · [fell back: Failures] · wait Closed · [Interrupted] · list any · wait Server \
         · [Interrupted] · stream any",
    );
}

/// Servers of one history may run different versions.
#[test]
fn a_verdict_on_streams_stays_at_its_endpoint() {
    let mut moved = run(Config::default(), &[START, fails(Class::Refused), fails(Class::Connection)]);
    assert_eq!(moved.shown.last().unwrap(), "wait Connection");
    moved.reflector.set_verdict(Verdict::Streams);
    moved.step(now(Input::Moved { home: false }));
    assert_eq!(moved.shown.last().unwrap(), "stream any");
    moved.step(fails(Class::Forbidden));
    moved.step(now(Input::Moved { home: false }));
    assert_eq!(moved.shown.last().unwrap(), "stream any", "nor does an attempt with pages");
    moved.reflector.set_verdict(Verdict::Pages(FallBack::Refused));
    moved.step(now(Input::Moved { home: false }));
    assert_eq!(moved.shown.last().unwrap(), "list any");
}

#[test]
fn a_verdict_handed_in_is_believed_for_an_hour_and_then_tried_again() {
    let config = || Config { verdict: Verdict::Pages(FallBack::Refused), ..Config::default() };
    check_with(config(), &[START], "[Start] · list any");
    let expire = [OK, fails(Class::Expired), Timer];
    let script: Vec<Step> =
        [START, OK, page("5", None), after(3_599_000, Input::Ignored)].into_iter().chain(expire).collect();
    assert_eq!(run(config(), &script).shown.last().unwrap(), "list-all >=5");
    let script: Vec<Step> =
        [START, OK, page("5", None), after(4_321_000, Input::Ignored)].into_iter().chain(expire).collect();
    assert_eq!(run(config(), &script).shown.last().unwrap(), "stream >=5");
}

#[test]
fn watches_forbidden_and_lists_allowed_is_polling() {
    let polled = run(
        Config::default(),
        &[
            START,
            fails(Class::Forbidden),
            Timer,
            OK,
            page("5", None),
            fails(Class::Forbidden),
            Timer,
            fails(Class::Forbidden),
            Timer,
            fails(Class::Forbidden),
            Timer,
        ],
    );
    // The watch is requested again until the poll is due.
    let polled = (0..20).fold(polled, |mut polled, _| {
        if !polled.shown.last().unwrap().starts_with("list-all") {
            [fails(Class::Forbidden), Timer].into_iter().for_each(|step| polled.step(step));
        }
        polled
    });
    let polled = [OK, page("9", None), fails(Class::Forbidden)].into_iter().fold(polled, |mut polled, step| {
        polled.step(step);
        polled
    });
    let (retried, again) = ("watch 5 · wait Forbidden · ", "watch 5 · wait WatchForbidden · ");
    let retries = polled.shown.iter().filter(|shown| *shown == "watch 5").count() - 2;
    assert_eq!(
        polled.shown.join(" · "),
        format!(
            "[Start] · stream any · [fell back: Forbidden] · wait Forbidden · [Interrupted] · list any · init · init-done 5 \
             · {}{}[WatchForbidden] · list-all >=5 · init · init-done 9 · watch 9 · wait WatchForbidden",
            retried.repeat(2),
            again.repeat(retries)
        )
    );
    assert!((5..=9).contains(&retries), "{retries}");
    assert!(polled.reflector.is_polling() && polled.reflector.is_synced());
    let mut allowed = polled.reflector;
    for input in [Input::TimedOut, Input::Accepted] {
        let now = allowed.poll_timeout().unwrap();
        allowed.handle(now, input);
    }
    assert!(!allowed.is_polling(), "the watch was accepted");
    let listed = run(Config::default(), &[START, fails(Class::Forbidden), Timer, OK, page("5", None)]).reflector;
    assert!(listed.is_polling() && listed.is_synced(), "told with the first state");
    assert!((21..28).contains(&polled.time.0.as_secs()), "the first poll: {:?}", polled.time);
}

/// Goal: a role that is being replaced, or one bad server behind a load balancer, costs seconds and not a poll
/// interval.
#[test]
fn a_watch_that_is_refused_for_a_moment_is_asked_for_again_within_seconds() {
    for class in [Class::Forbidden, Class::Refused, Class::NotFound] {
        let brief =
            run(paged(), &[START, OK, page("5", None), fails(class), Timer, fails(class), Timer, OK, bookmark("6")]);
        assert_eq!(
            brief.shown[5..].join(" · "),
            format!("wait {class:?} · watch 5 · wait {class:?} · watch 5 · - · bookmark 6")
        );
        assert!(brief.time < Time(Duration::from_secs(3)) && !brief.reflector.is_polling());
    }
}

/// Goal: a server without watches (405) is polled like one that forbids them, and costs few requests. Method: an hour of
/// refusals; count lists and watches.
#[test]
fn watches_refused_and_lists_answered_is_polling() {
    for seed in 0..50 {
        let mut polled = run(Config { seed, ..Config::default() }, &[START, fails(Class::Refused)]);
        let (mut lists, mut watches) = (Vec::new(), Vec::new());
        while polled.time < Time(Duration::from_hours(1)) {
            let (at, request) = (polled.time, polled.shown.last().unwrap().clone());
            if request.starts_with("list") {
                lists.push(at);
                [OK, page("5", None)].into_iter().for_each(|step| polled.step(step));
            } else {
                assert!(request.starts_with("watch"), "{request}");
                watches.push(at);
                [fails(Class::Forbidden), Timer].into_iter().for_each(|step| polled.step(step));
            }
        }
        let within = |times: &[Time], minutes| times.iter().filter(|at| at.0 <= Duration::from_mins(minutes)).count();
        let (minute, hour) = (within(&watches, 1) + within(&lists, 1), lists.len());
        assert!(minute <= 14 && within(&watches, 10) <= 36 && (13..=16).contains(&hour), "{minute} {hour} {watches:?}");
        assert!(polled.reflector.is_polling() && polled.reflector.is_synced());
    }
}

/// Goal: a definition that is installed late gets streams at once. Method: 404 for streams and lists, until one is
/// answered.
#[test]
fn a_type_that_does_not_exist_yet_is_no_verdict_against_streams() {
    let missing = [fails(Class::NotFound), Timer];
    let mut late = run(Config::default(), &[&[START][..], &missing.repeat(6)].concat());
    assert_eq!(late.shown.iter().filter(|shown| *shown == "stream any").count(), 4);
    assert_eq!(late.shown.iter().filter(|shown| *shown == "list any").count(), 3);
    assert_eq!((late.reflector.verdict(), late.shown.last().unwrap().as_str()), (Verdict::Streams, "stream any"));
    late.step(missing[0]);
    // Installed between a stream and its list.
    let found = [Timer, OK, page("5", None), OK, modified("a", "6"), CLOSED_LATER, Timer, fails(Class::Expired), Timer];
    found.into_iter().for_each(|step| late.step(step));
    assert_eq!(late.shown.last().unwrap(), "stream >=6", "{:?}", late.shown);
    assert_eq!(FallBack::ALL.iter().map(|cause| late.reflector.stats().fallbacks(*cause)).sum::<u64>(), 0);
}

/// Goal: a relist uses the right semantic. Method: the position expires, then the server cannot reach it.
#[test]
fn a_relist_asks_not_older_than_seen_and_the_latest_only_after_three_refusals() {
    check_with(
        paged(),
        &[
            START,
            OK,
            page("7", None),
            OK,
            added("a", "8"),
            fails(Class::Expired),
            Timer,
            fails(Class::TooLarge),
            Timer,
            fails(Class::TooLarge),
            Timer,
            fails(Class::TooLarge),
            Timer,
            OK,
            page("3", None),
        ],
        "[Start] · list any · init · init-done 7 · watch 7 · - · apply · healthy · wait Expired · [Expired] · list-all >=8 \
         · wait TooLarge · [TooLarge] · list-all >=8 · wait TooLarge · [TooLarge] · list-all >=8 · wait TooLarge \
         · [TooLarge] · list latest · init-distrusting · history-reset · init-done 3 · watch 3",
    );
}

#[test]
fn state_older_than_asked_for_is_not_taken() {
    check_with(
        only_streams(),
        &[START, OK, end_of_state("7"), fails(Class::Expired), Timer, OK, added("a", "2"), end_of_state("6")],
        "[Start] · stream any · init · init-done 7 · wait Expired · [Expired] · stream >=7 · init · init-apply \
         · close · abandon · wait WentBack",
    );
}

/// kube-apiserver before 1.34 reads limited pages "not older than" from etcd. Only a server that pages reads of any
/// state, which others answer from their cache, is sent limits.
#[test]
fn a_relist_has_no_limit_unless_the_server_has_paged_any_state() {
    let relist = [OK, fails(Class::Expired), Timer];
    let asks = |script: &[Step]| run(paged(), script).shown.last().unwrap().clone();
    assert_eq!(asks(&[&[START, OK, page("7", None)], &relist[..]].concat()), "list-all >=7");
    let pages = [START, OK, page("7", Some("t")), OK, page("7", None)];
    assert_eq!(asks(&[&pages[..], &relist].concat()), "list >=7");
    let most_recent = Config { semantic: ListSemantic::MostRecent, ..paged() };
    assert_eq!(run(most_recent, &[&pages[..], &relist].concat()).shown.last().unwrap(), "list-all >=7");
    let moved = [now(Input::Moved { home: true }), proof(Proof::Same)];
    assert_eq!(asks(&[&pages[..], &moved, &relist].concat()), "list-all >=7", "another server");
}

#[test]
fn the_exact_state_is_listed_and_its_expiry_is_final() {
    let exact = || Config { semantic: ListSemantic::Exact(5.into()), ..Config::default() };
    check_with(exact(), &[START, OK, page("5", None), OK], "[Start] · list =5 · init · init-done 5 · watch 5 · -");
    check_with(exact(), &[START, fails(Class::Expired)], "[Start] · list =5 · over");
    let over = run(exact(), &[START, fails(Class::Expired)]).reflector;
    assert!(over.is_over() && over.poll_timeout().is_none());
    let later = run(exact(), &[START, OK, page("5", None), fails(Class::Expired), Timer]);
    assert_eq!(later.shown.last().unwrap(), "stream >=5", "only the first read is exact");
}

#[test]
fn a_stream_that_breaks_before_its_end_leaves_nothing_and_moves_nothing() {
    check(
        &[START, OK, added("a", "900"), bookmark("950"), CLOSED, Timer],
        "[Start] · stream any · init · init-apply · - · abandon · wait Closed · [Interrupted] · stream any",
    );
}

#[test]
fn changes_during_the_initial_state_belong_to_it() {
    check(
        &[START, OK, added("a", "9"), modified("a", "10"), deleted("a", "11"), bookmark("12"), end_of_state("12")],
        "[Start] · stream any · init · init-apply · init-apply · delete · - · init-done 12",
    );
}

#[test]
fn positions_that_are_none_end_the_initial_state_as_unusable() {
    check(&[START, OK, end_of_state("0")], "[Start] · stream any · init · close · abandon · wait Unusable");
    check_with(paged(), &[START, OK, page("", None)], "[Start] · list any · init · abandon · wait Unusable");
    check_with(
        paged(),
        &[START, OK, item("a", "1"), page("7", Some("t")), OK, item("a", "1"), page("7", Some("t"))],
        "[Start] · list any · init · init-apply · page t · - · init-apply · abandon · wait Unusable",
    );
}

/// Goal: a stream is replaced in bounded time even if objects trickle in and the end bookmark never comes. Method: an
/// object every nine seconds; the server ends the response at its own timeout, or not at all.
#[test]
fn a_stream_that_trickles_for_its_whole_lifetime_is_given_up_for_pages() {
    let config = |initial| Config { initial, watch_timeout_seconds: 300..=300, ..Config::default() };
    let trickle: Vec<Step> = [START, OK, added("b", "4")].into_iter().chain([slow("1"); 33]).collect();
    for end in [after(3_000, Input::Ended(End::Closed)), Timer] {
        let mut tried = run(config(InitialList::Auto), &trickle);
        tried.step(end);
        assert_eq!((tried.shown.last().unwrap().as_str(), tried.time.0.as_secs()), ("list any", 300));
        assert_eq!(tried.reflector.verdict(), Verdict::Pages(FallBack::Stalled));
        let mut only = run(config(InitialList::Stream), &trickle);
        only.step(end);
        assert_eq!((only.shown.last().unwrap().as_str(), only.time.0.as_secs()), ("wait Closed", 300));
    }
}

#[test]
fn a_position_that_goes_back_ends_the_session_and_is_resumed_from_the_last() {
    check(
        &[
            START,
            OK,
            end_of_state("12"),
            modified("a", "13"),
            modified("a", "13"),
            bookmark("11"),
            Timer,
            OK,
            bookmark("9"),
        ],
        "[Start] · stream any · init · init-done 12 · apply · apply · close · wait WentBack · watch 13 · - \
         · close · wait WentBack",
    );
}

#[test]
fn positions_without_an_order_never_go_back() {
    check(
        &[START, OK, end_of_state("zz"), modified("a", "yy"), bookmark("xx"), CLOSED_LATER, Timer],
        "[Start] · stream any · init · init-done zz · apply · bookmark xx · healthy · wait Closed · watch xx",
    );
}

#[test]
fn a_position_the_server_fails_to_resume_from_is_given_up_after_three_times() {
    let broken = [OK, fails(Class::Server), Timer];
    let script: Vec<Step> = [START, OK, end_of_state("7"), CLOSED_LATER, Timer]
        .into_iter()
        .chain(broken)
        .chain(broken)
        .chain(broken)
        .collect();
    assert_eq!(
        run(Config::default(), &script).shown[6..].join(" · "),
        "watch 7 · - · wait Server · watch 7 · - · wait Server · watch 7 · - · wait Server · [NotResumable] · stream >=7"
    );
    // An outage does not concern the position.
    let outage = [fails(Class::Server), Timer];
    let script: Vec<Step> = [START, OK, end_of_state("7"), CLOSED_LATER, Timer]
        .into_iter()
        .chain(std::iter::repeat_n(outage, 20).flatten())
        .collect();
    let shown = run(Config::default(), &script).shown;
    assert_eq!(shown.iter().filter(|shown| shown.starts_with("prove 7 by 0")).count(), 20, "{shown:?}");
    assert!(!shown.contains(&"[NotResumable]".to_owned()));
}

#[test]
fn early_and_late_timers_change_nothing() {
    check(
        &[
            now(Input::TimedOut),
            START,
            now(Input::TimedOut),
            START,
            OK,
            now(Input::TimedOut),
            end_of_state("7"),
            CLOSED,
            now(Input::TimedOut),
            OK,
        ],
        "- · [Start] · stream any · - · - · init · - · init-done 7 · wait Closed · - · -",
    );
}

#[test]
fn objects_without_a_position_are_counted_kept_and_stop_nothing() {
    let counted =
        run(Config::default(), &[START, OK, added("a", ""), added("b", "0"), end_of_state("7"), modified("a", "")]);
    assert_eq!(
        counted.shown.join(" · "),
        "[Start] · stream any · init · init-apply · init-apply · init-done 7 · apply"
    );
    assert_eq!(counted.reflector.stats().unversioned, 3);
}
