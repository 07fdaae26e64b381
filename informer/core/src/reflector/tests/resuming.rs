//! Scripts about streams whose initial state resumes where it broke: see `docs/resuming.md`.

use super::*;

const MARKS: Step = now(Input::AcceptedWithMarks);
const RESUMED: Step = now(Input::Resumed);

const fn mark(token: &'static str) -> Step {
    now(Input::Mark { token })
}

/// A first response up to its break: a@1, a mark, b@2.
const BROKEN: [Step; 6] = [START, MARKS, added("a", "1"), mark("t1"), added("b", "2"), fails(Class::Connection)];
const SHOWN: &str = "[Start] · stream any · init · init-apply · - · init-apply · wait Connection · stream any after t1";

#[track_caller]
fn check_behind_a_mark(rest: &[Step], expected: &str) {
    let script: Vec<Step> = BROKEN.into_iter().chain([Timer]).chain(rest.iter().copied()).collect();
    check(&script, &format!("{SHOWN} {expected}"));
}

#[test]
fn a_stream_that_breaks_behind_a_mark_goes_on_with_the_stage_it_has() {
    check_behind_a_mark(
        &[RESUMED, mark("t1"), added("b", "2"), added("c", "3"), end_of_state("9"), modified("a", "10")],
        "· - · - · init-apply · init-apply · init-done 9 · apply",
    );
}

#[test]
fn a_server_that_begins_anew_is_told_before_the_first_object_and_the_stage_is_dropped() {
    for answer in [OK, MARKS] {
        check_behind_a_mark(
            &[answer, added("a", "1"), end_of_state("12")],
            "· abandon · [Interrupted] · init · init-apply · init-done 12",
        );
    }
    check_behind_a_mark(&[added("a", "1")], "· abandon · [Interrupted] · init · init-apply");
    check_behind_a_mark(&[end_of_state("12")], "· abandon · [Interrupted] · init · init-done 12");
}

#[test]
fn the_last_mark_counts_over_any_number_of_breaks() {
    check_behind_a_mark(
        &[
            RESUMED,
            mark("t1"),
            added("c", "3"),
            mark("t2"),
            added("d", "4"),
            mark("t3"),
            CLOSED,
            Timer,
            RESUMED,
            mark("t3"),
            fails(Class::Server),
            Timer,
            fails(Class::TooMany),
            Timer,
        ],
        "· - · - · init-apply · - · init-apply · - · wait Closed · stream any after t3 · - · - · wait Server \
         · stream any after t3 · wait TooMany · stream any after t3",
    );
}

/// Goal: an incomplete state never passes for a complete one. Method: responses of a server or proxy that loses
/// headers.
#[test]
fn the_rest_of_a_state_that_was_not_announced_is_not_taken() {
    let requested_again = "wait Unusable · [Interrupted] · stream any";
    // The header that announces it was lost.
    check_behind_a_mark(
        &[OK, mark("t1"), Timer],
        &format!("· abandon · [Interrupted] · init · close · abandon · {requested_again}"),
    );
    // It resumes behind another mark than requested.
    check_behind_a_mark(&[RESUMED, mark("t0"), Timer], &format!("· - · close · abandon · {requested_again}"));
    // The client did not ask to resume.
    check(&[START, RESUMED, Timer], &format!("[Start] · stream any · close · {requested_again}"));
    check(
        &[START, MARKS, mark("t1"), Timer],
        &format!("[Start] · stream any · init · close · abandon · {requested_again}"),
    );
}

#[test]
fn marks_of_a_server_that_announces_none_mean_nothing() {
    check(
        &[START, OK, added("a", "1"), mark("t1"), CLOSED, Timer],
        "[Start] · stream any · init · init-apply · - · abandon · wait Closed · [Interrupted] · stream any",
    );
    check_with(
        Config { resume_initial: false, ..Config::default() },
        &[START, MARKS, added("a", "1"), mark("t1"), CLOSED, Timer],
        "[Start] · stream any · init · init-apply · - · abandon · wait Closed · [Interrupted] · stream any",
    );
}

#[test]
fn a_state_that_moves_while_it_is_sent_is_begun_anew() {
    check(
        &[START, MARKS, added("a", "1"), mark("t1"), deleted("a", "2"), mark("t2"), CLOSED, Timer],
        "[Start] · stream any · init · init-apply · - · delete · - · abandon · wait Closed · [Interrupted] · stream any",
    );
}

#[test]
fn what_another_request_would_not_change_begins_anew_and_is_no_verdict_on_streams() {
    for (class, cause) in [
        (Class::Expired, "Expired"),
        (Class::TooLarge, "TooLarge"),
        (Class::Refused, "Interrupted"),
        (Class::Forbidden, "Interrupted"),
    ] {
        check_behind_a_mark(&[fails(class), Timer], &format!("· abandon · wait {class:?} · [{cause}] · stream any"));
    }
}

#[test]
fn three_answers_without_a_new_mark_drop_the_stage() {
    let fruitless = [RESUMED, mark("t1"), added("b", "2"), CLOSED, Timer];
    let last = [RESUMED, mark("t1"), CLOSED, Timer];
    let script: Vec<Step> = fruitless.into_iter().chain(fruitless).chain(last).collect();
    let again = "- · - · init-apply · wait Closed · stream any after t1";
    check_behind_a_mark(
        &script,
        &format!(
            "· {again} · {again} · - · - · abandon · [fell back: Failures] · wait Closed · [Interrupted] · list any"
        ),
    );
    let all: Vec<Step> = BROKEN.into_iter().chain([Timer]).chain(script).collect();
    let shown = run(only_streams(), &all).shown;
    assert_eq!(shown[shown.len() - 4..].join(" · "), "abandon · wait Closed · [Interrupted] · stream any");
}

/// Goal: marks that no server honours do not keep a client without state forever. Method: each response starts over, as
/// behind a load balancer or with too short a window; each sends a mark and breaks.
#[test]
fn streams_that_begin_anew_again_and_again_are_left_for_pages() {
    let tokens = ["t2", "t3", "t4"];
    let anew = tokens.map(|token| [MARKS, added("a", "1"), mark(token), CLOSED, Timer]).concat();
    let begun = "abandon · [Interrupted] · init · init-apply · -";
    check_behind_a_mark(
        &anew,
        &format!(
            "· {begun} · wait Closed · stream any after t2 · {begun} · wait Closed · stream any after t3 · {begun} \
             · abandon · [fell back: Failures] · wait Closed · [Interrupted] · list any"
        ),
    );
    let all: Vec<Step> = BROKEN.into_iter().chain([Timer]).chain(anew).collect();
    assert_eq!(run(only_streams(), &all).shown.last().unwrap(), "stream any after t4");
}

/// Goal: alternating endpoints lead to pages too. Method: each breaks behind a mark, and is left before it gets another
/// request.
#[test]
fn endpoints_that_break_in_turn_are_asked_for_pages() {
    let turn = [now(Input::Moved { home: false }), MARKS, added("a", "1"), mark("t2"), fails(Class::Connection)];
    let script: Vec<Step> = BROKEN.into_iter().chain(turn).chain(turn).chain(turn).chain([Timer]).collect();
    let left = "wait Connection · abandon · [Interrupted] · stream any · init · init-apply · -";
    check(
        &script,
        &format!(
            "[Start] · stream any · init · init-apply · - · init-apply · {left} · {left} · {left} \
             · abandon · [fell back: Failures] · wait Connection · [Interrupted] · list any"
        ),
    );
}

/// Goal: partly resumed streams lead to pages too. Method: every second response starts over.
#[test]
fn going_on_in_between_does_not_hide_that_the_state_is_never_complete() {
    let mut run = run(Config::default(), &BROKEN);
    let mut answers = 0;
    let mut last = "t1";
    while run.reflector.stats().fallbacks(FallBack::Failures) == 0 {
        answers += 1;
        assert!(answers < 10, "{:?}", run.shown);
        run.step(Timer);
        if answers % 2 == 0 {
            run.step(MARKS);
        } else {
            run.step(RESUMED);
            run.step(mark(last));
        }
        run.step(added("a", "1"));
        last = format!("u{answers}").leak();
        run.step(mark(last));
        run.step(CLOSED);
    }
    assert_eq!(answers, 6);
}

/// Goal: a server whose connections are cut every five seconds delivers its state eventually, without a fallback to
/// pages. Method: thirty cuts, each behind a new mark.
#[test]
fn a_state_that_comes_in_pieces_is_complete_in_the_end() {
    let tokens: Vec<&'static str> = (0..30).map(|number| &*format!("t{number}").leak()).collect();
    let mut pieces = Run::new(Config::default());
    pieces.step(START);
    for (number, token) in tokens.iter().enumerate() {
        if number == 0 {
            pieces.step(MARKS);
        } else {
            pieces.step(RESUMED);
            pieces.step(mark(tokens[number - 1]));
        }
        pieces.step(added("a", "1"));
        pieces.step(mark(token));
        pieces.step(after(5_000, Input::Ended(End::Closed)));
        pieces.step(Timer);
    }
    for step in [RESUMED, mark("t29"), end_of_state("40")] {
        pieces.step(step);
    }
    assert_eq!(pieces.shown.last().unwrap(), "init-done 40");
    let stats = pieces.reflector.stats();
    assert_eq!((stats.initial_resumes, stats.relists(Start), stats.relists(Interrupted)), (30, 1, 0));
    assert!(FallBack::ALL.iter().all(|cause| stats.fallbacks(*cause) == 0));
    // A server holds the position of a broken stream for 75 s.
    assert!(pieces.delays.iter().all(|delay| *delay < Duration::from_secs(60)), "{:?}", pieces.delays);
    assert!(pieces.delays.last().unwrap() >= &Duration::from_secs(30), "delays grow as after every early end");
}

#[test]
fn a_stall_behind_a_new_mark_is_resumed_and_one_behind_an_old_one_is_given_up() {
    let script: Vec<Step> = BROKEN[..5].iter().copied().chain([Timer, Timer, RESUMED, mark("t1"), Timer]).collect();
    check(
        &script,
        "[Start] · stream any · init · init-apply · - · init-apply · close · wait Unanswered · stream any after t1 \
         · - · - · abandon · [fell back: Stalled] · [FellBack] · list any",
    );
}

#[test]
fn headers_that_do_not_come_keep_the_stage() {
    check_behind_a_mark(&[Timer, Timer], "· close · wait Unanswered · stream any after t1");
}

#[test]
fn another_endpoint_has_no_use_for_a_mark() {
    let moves = now(Input::Moved { home: false });
    check_behind_a_mark(&[moves], "· abandon · [Interrupted] · stream any");
    let script: Vec<Step> = BROKEN.into_iter().chain([moves]).collect();
    check(
        &script,
        "[Start] · stream any · init · init-apply · - · init-apply · wait Connection · abandon · [Interrupted] \
         · stream any",
    );
}

#[test]
fn marks_that_lead_in_circles_end() {
    let circle = ["t1", "t2", "t3"];
    let mut script = vec![START, MARKS];
    script.extend(circle.iter().cycle().take(12).flat_map(|token| [added("a", "1"), mark(token)]));
    let shown = run(Config::default(), &script).shown;
    assert!(shown.contains(&"wait Unusable".to_owned()), "{shown:?}");
}
