//! Scripts about events behind the position, and objects without a version.

use super::*;

/// An event whose version, or a later one, the copy already has.
const fn known(change: ObservedKind, key: &'static str, resource_version: &'static str) -> Step {
    now(Input::Object(ObservedObject { change, key, uid: "u", resource_version, is_news: false }))
}

const LIVE: [Step; 4] = [START, OK, added("a", "3"), end_of_state("7")];
const LIVE_SHOWN: &str = "[Start] · stream any · init · init-apply · init-done 7";
const RELIST: &str = "close · wait WentBack · [WentBack] · stream >=7 · init-distrusting";

#[track_caller]
fn check_live(script: &[Step], expected: &str) {
    check(&[&LIVE, script].concat(), &format!("{LIVE_SHOWN} · {expected}"));
}

/// A late event with a change the copy lacks, and an initial state that confirms it.
const LATE: [Step; 5] = [modified("b", "5"), Timer, OK, added("b", "5"), end_of_state("7")];

#[test]
fn a_late_event_with_something_new_leads_to_a_counted_relist() {
    for late in [modified("b", "5"), added("b", "5"), deleted("a", "3")] {
        check_live(&[late, Timer, OK], RELIST);
    }
    let late = run(Config::default(), &[&LIVE[..], &LATE].concat()).reflector;
    assert_eq!((late.stats().relists(WentBack), late.stats().went_back), (1, 1));
    // A late event that the copy already has does not show that events are missing.
    for late in [known(ObservedKind::Modified, "a", "3"), known(ObservedKind::Deleted, "b", "5")] {
        check_live(&[late, Timer], "close · wait WentBack · watch 7");
    }
}

/// A server that counts versions per object must not cause a relist for each event.
#[test]
fn a_type_whose_late_events_two_relists_confirm_is_taken_as_it_comes() {
    let confirmed = [&LIVE[..], &LATE, &LATE].concat();
    let shown = run(Config::default(), &confirmed).shown;
    assert_eq!(shown[shown.len() - 2..], ["unordered", "init-done 7"]);
    let then = [modified("b", "6"), deleted("a", "3"), known(ObservedKind::Modified, "b", "5"), modified("c", "9")];
    let mut taken = run(Config::default(), &[&confirmed[..], &then].concat());
    assert_eq!(taken.shown[taken.shown.len() - 4..], ["apply", "delete", "-", "apply"]);
    assert_eq!(taken.reflector.position(), Some(&9.into()), "no event moves it back");
    // A bookmark moves the position even backwards.
    taken.step(bookmark("8"));
    assert_eq!(taken.shown.last().unwrap(), "bookmark 8");
    assert_eq!(taken.reflector.stats().relists(WentBack), 2);
    // An object's version proves nothing about the history either.
    for step in [fails(Class::Connection), Timer] {
        taken.step(step);
    }
    for proof in [Proof::Reset, Proof::Nothing] {
        taken.step(now(Input::Proof(Testimony { proof, key: "a", uid: "u" })));
    }
    assert_eq!(taken.shown.last().unwrap(), "watch 8");
}

/// A late deletion is confirmed by a state without the object.
#[test]
fn late_deletions_are_confirmed_by_absence() {
    let gone = [deleted("a", "3"), Timer, OK, end_of_state("7")];
    let back = [modified("a", "8"), deleted("a", "3"), Timer, OK, end_of_state("8")];
    let shown = run(Config::default(), &[&LIVE[..], &gone, &back].concat()).shown;
    assert!(shown.contains(&"unordered".to_owned()), "{shown:?}");
}

/// A server that repeats deleted objects causes two relists; later repeats are recognized.
#[test]
fn a_server_that_repeats_itself_is_not_listed_for_ever() {
    let refuted = [modified("b", "5"), Timer, OK, added("a", "3"), end_of_state("7")];
    let script = [&LIVE[..], &refuted, &refuted, &[modified("b", "5"), Timer]].concat();
    let shown = run(Config::default(), &script).shown.join(" · ");
    assert!(shown.ends_with("init-done 7 · close · wait WentBack · watch 7"), "{shown}");
    assert_eq!(shown.matches("[WentBack]").count(), 2, "{shown}");
    // The verdict lasts for `verdict_lasts`.
    let hour = after(80 * 60_000, Input::Accepted);
    let script = [&script[..], &[hour, modified("b", "5")]].concat();
    let later = run(Config::default(), &script);
    assert!(later.shown.join(" · ").ends_with("close · wait WentBack"));
    assert!(later.reflector.stats().relists(WentBack) == 2);
}

/// client-go and kube keep such objects too.
#[test]
fn an_object_without_a_version_is_kept_and_moves_nothing() {
    for version in ["", "0", "a b"] {
        let script = [
            &[START, OK, added("a", version), end_of_state("7")][..],
            &[modified("a", version), deleted("a", version), bookmark("9")],
        ];
        let result = run(Config::default(), &script.concat());
        let shown = result.shown.join(" · ");
        assert!(shown.ends_with("init · init-apply · init-done 7 · apply · delete · bookmark 9"), "{shown}");
        assert_eq!((result.reflector.stats().unversioned, result.reflector.stats().ignored), (3, 0));
    }
    let listed = run(paged(), &[START, OK, item("a", ""), page("7", None)]);
    assert_eq!(listed.shown.join(" · "), "[Start] · list any · init · init-apply · init-done 7 · watch 7");
}
