//! Scripts about inconclusive proofs: missing objects, refused positions, missing permissions.

use super::*;
use crate::semantics::InitialList;

const fn testimony(proof: Proof, key: &'static str) -> Step {
    now(Input::Proof(Testimony { proof, key, uid: "u" }))
}

const fn added_again(key: &'static str, uid: &'static str, resource_version: &'static str) -> Step {
    now(Input::Object(ObservedObject { change: ObservedKind::Added, key, uid, resource_version, is_news: true }))
}

fn saved() -> Config {
    Config { resume: Some(7.into()), ..Config::default() }
}

/// Proved by an older object, while the newest one is missing.
const RESUMED: [Step; 4] = [START, testimony(Proof::Missing, "a"), testimony(Proof::Same, "b"), OK];
const RESUMED_SHOWN: &str = "prove 7 by 0 · prove 7 by 1 · proved · watch 7 · restored";
const RESET: &str = "close · history-reset · wait Unproven · [HistoryReset] · stream latest · init-distrusting";

#[track_caller]
fn check_resumed(script: &[Step], expected: &str) {
    check_with(saved(), &[&RESUMED, script].concat(), &format!("{RESUMED_SHOWN} · {expected}"));
}

/// A restored server has lost the newest objects, and sends no deletions for them when it passes the position.
#[test]
fn an_object_found_missing_is_deleted_before_the_first_bookmark_or_the_history_is_another() {
    check_resumed(&[bookmark("9"), Timer, OK], RESET);
    check_resumed(&[modified("b", "8"), bookmark("9"), Timer, OK], &format!("apply · {RESET}"));
    check_resumed(&[modified("b", "8"), bookmark("8"), Timer, OK], &format!("apply · {RESET}"));
    check_resumed(&[deleted("a", "8"), bookmark("9")], "delete · bookmark 9");
    // A bookmark at the position itself proves nothing: the server may be behind.
    check_resumed(&[bookmark("7"), deleted("a", "8"), bookmark("9")], "- · delete · bookmark 9");
    // Another object has the name; in one history a deletion would have come first.
    check_resumed(&[added_again("a", "other", "8"), Timer, OK], RESET);
    check_resumed(&[deleted("a", "8"), added_again("a", "other", "9"), bookmark("9")], "delete · apply · bookmark 9");
    // The object exists after all: the server that lacked it was behind.
    check_resumed(&[modified("a", "8"), bookmark("9")], "apply · bookmark 9");
    let reset = run(saved(), &[&RESUMED[..], &[bookmark("9")]].concat()).reflector;
    assert_eq!((reset.stats().history_resets, reset.position(), reset.is_sound()), (1, None, false));
}

#[test]
fn a_deletion_that_is_due_stays_due_over_sessions_and_ends_with_a_relist() {
    let broken = [fails(Class::Connection), Timer];
    let again = [&broken[..], &[testimony(Proof::Same, "c"), OK, bookmark("9"), Timer, OK]].concat();
    let later = after(20_000, Input::Ignored);
    check_resumed(
        &[&[later][..], &again].concat(),
        &format!("healthy · wait Connection · prove 7 by 0 · proved · watch 7 · - · {RESET}"),
    );
    check_resumed(
        &[fails(Class::Expired), Timer, OK, end_of_state("9"), bookmark("10")],
        "wait Expired · [Expired] · stream >=7 · init-comparing · init-done 9 · bookmark 10",
    );
    let due = run(saved(), &RESUMED).reflector;
    assert!(due.is_settled() && !due.is_sound(), "not to be saved");
    let reflector = run(saved(), &[&RESUMED[..], &[deleted("a", "8")]].concat()).reflector;
    assert!(reflector.is_sound());
}

/// Goal: a missing deletion is noticed on servers without bookmarks, but not on dead connections. Method: a sign of
/// life after a minute, or none.
#[test]
fn without_bookmarks_a_deletion_is_overdue_when_the_watch_lived_for_two_and_a_half_minutes() {
    let sign = after(60_000, Input::Ignored);
    check_resumed(&[Timer, sign, Timer, Timer, OK], &format!("healthy · - · {RESET}"));
    let overdue = run(saved(), &[&RESUMED[..], &[Timer, sign, Timer]].concat());
    assert_eq!(overdue.time, Time(saved().idle_timeout));
    check_resumed(&[Timer, Timer, OK, Timer, Timer, OK], &format!("healthy · watch 7 · - · healthy · {RESET}"));
    // A session that was never healthy may have broken before the deletion was sent.
    let cut = [after(9_000, Input::Ended(End::Closed)), Timer, testimony(Proof::Same, "b"), OK];
    let shown = run(saved(), &[&RESUMED[..], &cut.repeat(20)].concat()).shown;
    assert!(!shown.contains(&"history-reset".to_owned()), "{shown:?}");
}

#[test]
fn what_another_endpoint_misses_is_not_held_against_the_one_before() {
    let moved = now(Input::Moved { home: false });
    check(
        &[
            &[START, OK, end_of_state("7"), moved][..],
            &[testimony(Proof::Missing, "a"), testimony(Proof::Foreign, "b"), Timer, OK, bookmark("9")],
        ]
        .concat(),
        "[Start] · stream any · init · init-done 7 · prove 7 by 0 · prove 7 by 1 · foreign · refuse · wait Unproven · \
         watch 7 · - · bookmark 9",
    );
}

/// Regression: an agent without permission to GET must not send a denied request at each outage.
#[test]
fn a_get_that_is_denied_once_is_not_tried_again() {
    let outage = [after(20_000, Input::Ended(End::Failed(Failure::new(Class::Connection)))), Timer];
    let script = [&[START, fails(Class::Forbidden), testimony(Proof::Same, "a"), OK][..], &outage].concat();
    let shown = run(saved(), &script).shown.join(" · ");
    assert_eq!(shown.matches("prove 7 by 0 listed").count(), 2, "{shown}");
    assert_eq!(shown.matches("prove 7 by 0").count(), 3, "{shown}");
    // A starting server may forbid everything, so this refusal is not remembered.
    let starting = [fails(Class::Forbidden), fails(Class::Forbidden), Timer, OK, end_of_state("8")];
    let shown = run(saved(), &[&[START][..], &starting, &outage].concat()).shown;
    assert_eq!(shown.last().unwrap(), "prove 8 by 0");
}

/// Goal: a refused position is not requested forever, with any strategy. Method: an expired watch, then a server that
/// answers 400 to every request with the position.
#[test]
fn a_position_that_the_server_refuses_is_dropped_and_the_most_recent_state_follows() {
    let refused = fails(Class::Refused);
    let end = "wait Expired · [Expired]";
    for (initial, script, expected) in [
        (
            InitialList::Auto,
            &[refused, refused, Timer, OK, end_of_state("9")][..],
            "stream >=7 · [fell back: Refused] · [FellBack] · list-all >=7 · wait Refused · [Refused] · stream latest · \
             init-distrusting · init-done 9",
        ),
        (
            InitialList::Stream,
            &[refused, Timer, OK, end_of_state("9")],
            "stream >=7 · wait Refused · [Refused] · stream latest · init-distrusting · init-done 9",
        ),
        (
            InitialList::Unpaged,
            &[refused, Timer, OK, page("9", None)],
            "list-all >=7 · wait Refused · [Refused] · list-all latest · init-distrusting · init-done 9 · watch 9",
        ),
    ] {
        let script = [&[START, testimony(Proof::Same, "a"), fails(Class::Expired), Timer][..], script].concat();
        let tried = run(Config { initial, ..saved() }, &script);
        let shown = tried.shown.join(" · ");
        let expected = format!("prove 7 by 0 · proved · watch 7 · {end} · {expected}");
        assert_eq!(shown, expected.split_whitespace().collect::<Vec<_>>().join(" "), "{initial:?}");
        assert_eq!((tried.reflector.stats().relists(Refused), tried.reflector.stats().history_resets), (1, 0));
    }
}

/// The checkpoint was written before the server refused its position.
#[test]
fn a_saved_position_that_the_server_refuses_is_dropped_too() {
    let refused = fails(Class::Refused);
    let script = [START, refused, refused, Timer, refused, refused, Timer, OK, end_of_state("9")];
    let shown = run(saved(), &script).shown.join(" · ");
    assert!(shown.ends_with("[Refused] · stream latest · init-distrusting · init-done 9"), "{shown}");
}

#[test]
fn what_no_object_can_prove_for_want_of_sense_is_asked_again() {
    let outage = [after(20_000, Input::Ended(End::Failed(Failure::new(Class::Connection)))), Timer];
    let nonsense = fails(Class::Malformed);
    let script =
        [&[START, OK, end_of_state("7")][..], &outage, &[nonsense, nonsense, Timer, testimony(Proof::Same, "a")]];
    let shown = run(Config::default(), &script.concat()).shown.join(" · ");
    assert!(
        shown.ends_with("prove 7 by 0 listed · wait Malformed · prove 7 by 0 listed · proved · watch 7"),
        "{shown}"
    );
}
