//! Scripts about positions that need a proof: saved ones, other endpoints, silence, restored servers.

use super::*;

const MOVED: Step = now(Input::Moved { home: false });
const BACK: Step = now(Input::Moved { home: true });

fn saved() -> Config {
    Config { resume: Some(7.into()), ..Config::default() }
}

/// Live at 7, after a stream from the same server.
const LIVE: [Step; 3] = [START, OK, end_of_state("7")];
const LIVE_SHOWN: &str = "[Start] · stream any · init · init-done 7";

#[track_caller]
fn check_live(script: &[Step], expected: &str) {
    check(&[&LIVE, script].concat(), &format!("{LIVE_SHOWN} · {expected}"));
}

#[test]
fn a_saved_position_is_proved_and_resumed_from_without_a_list() {
    check_with(
        saved(),
        &[START, proof(Proof::Same), OK, modified("a", "8"), CLOSED, Timer],
        "prove 7 by 0 · proved · watch 7 · restored · apply · healthy · wait Closed · watch 8",
    );
    let resumed = run(saved(), &[START, proof(Proof::Same)]);
    assert!(!resumed.reflector.is_synced(), "not before the watch is accepted");
    assert_eq!(resumed.reflector.position(), Some(&7.into()));
    let resumed = run(saved(), &[START, proof(Proof::Same), OK]);
    assert!(resumed.reflector.is_synced());
    assert_eq!(resumed.reflector.stats().relists(Start), 0);
}

#[test]
fn a_saved_position_that_is_too_old_is_listed_not_older_than_it() {
    check_with(
        saved(),
        &[START, proof(Proof::Same), OK, fails(Class::Expired), Timer, OK, added("a", "3"), end_of_state("9")],
        "prove 7 by 0 · proved · watch 7 · restored · wait Expired · [Expired] · stream >=7 · init · init-apply \
         · init-done 9",
    );
    check_with(
        saved(),
        &[START, proof(Proof::Same), fails(Class::Expired), Timer, OK, end_of_state("9")],
        "prove 7 by 0 · proved · watch 7 · wait Expired · [Expired] · stream >=7 · init · init-done 9",
    );
}

/// Goal: each result of a proof has its consequence. Method: the same saved position, one result each.
#[test]
fn a_saved_position_is_never_used_without_proof() {
    for (answers, expected) in [
        (&[Proof::Foreign][..], "foreign · wait Unproven · [Foreign] · stream any · init-distrusting · init-done 3"),
        (
            &[Proof::Reset],
            "history-reset · wait Unproven · [HistoryReset] · stream latest · init-distrusting · init-done 3",
        ),
        (&[Proof::Nothing], "wait Unproven · [Unproven] · stream >=7 · init-distrusting · close · abandon"),
        (
            &[Proof::Missing; 8],
            "prove 7 by 1 · prove 7 by 2 · prove 7 by 3 · prove 7 by 4 · prove 7 by 5 · prove 7 by 6 · prove 7 by 7 · \
             wait Unproven · [Unproven] · stream >=7 · init-distrusting · close",
        ),
        (
            &[Proof::Missing, Proof::Nothing],
            "prove 7 by 1 · wait Unproven · [Unproven] · stream >=7 · init-distrusting · close",
        ),
        (&[Proof::Missing, Proof::Changed, Proof::Missing], "prove 7 by 1 · prove 7 by 2 · proved · watch 7"),
        (&[Proof::Changed; 3], "prove 7 by 1 · prove 7 by 2 · proved · watch 7"),
        (&[Proof::Changed, Proof::Nothing], "prove 7 by 1 · proved · watch 7"),
        (&[Proof::Changed, Proof::Reset], "prove 7 by 1 · history-reset · wait Unproven · [HistoryReset]"),
        (&[Proof::Missing, Proof::Same], "prove 7 by 1 · proved · watch 7"),
    ] {
        let mut script = vec![START];
        script.extend(answers.iter().map(|answer| proof(*answer)));
        script.extend([Timer, OK, end_of_state("3")]);
        let shown = run(saved(), &script).shown.join(" · ");
        let expected = format!("prove 7 by 0 · {expected}");
        assert!(shown.starts_with(&expected), "{answers:?}\n{shown}\n{expected}");
    }
}

#[test]
fn where_get_is_not_answered_one_object_is_listed() {
    for class in [Class::Forbidden, Class::Refused, Class::Malformed] {
        check_with(
            saved(),
            &[START, fails(class), proof(Proof::Same), OK],
            "prove 7 by 0 · prove 7 by 0 listed · proved · watch 7 · restored",
        );
        check_with(
            saved(),
            &[START, fails(class), fails(class), Timer],
            "prove 7 by 0 · prove 7 by 0 listed · wait Unproven · [Unproven] · stream >=7",
        );
    }
    let broken = [fails(Class::Server), Timer];
    let script: Vec<Step> = [START].into_iter().chain(std::iter::repeat_n(broken, 8).flatten()).collect();
    assert_eq!(run(saved(), &script).shown.last().unwrap(), "prove 7 by 0 listed");
}

#[test]
fn an_outage_says_nothing_about_a_saved_position() {
    for (end, shown) in [
        (now(Input::Ended(End::Failed(Failure::new(Class::Connection)))), "Connection"),
        (fails(Class::TooMany), "TooMany"),
        (CLOSED, "Closed"),
        (Timer, "Unanswered"),
    ] {
        let script: Vec<Step> = [START].into_iter().chain(std::iter::repeat_n([end, Timer], 20).flatten()).collect();
        let tried = run(saved(), &script);
        assert_eq!(tried.shown.last().unwrap(), "prove 7 by 0", "after {shown}");
        assert_eq!(tried.reflector.stats().unhealthy_ends, 20);
        assert!(tried.delays.last().unwrap() >= &Duration::from_secs(30));
    }
}

#[test]
fn a_server_behind_a_saved_position_is_waited_for_three_times() {
    let behind = [fails(Class::TooLarge), Timer];
    let script: Vec<Step> =
        [START].into_iter().chain([behind; 3].concat()).chain([OK, added("a", "2"), end_of_state("5"), OK]).collect();
    check_with(
        saved(),
        &script,
        "prove 7 by 0 · wait TooLarge · prove 7 by 0 · wait TooLarge · prove 7 by 0 · wait TooLarge · [TooLarge] \
         · stream latest · init-distrusting · init-apply · history-reset · init-done 5 · -",
    );
    let reset = run(saved(), &script).reflector;
    assert_eq!((reset.stats().history_resets, reset.position()), (1, Some(&5.into())));
    // The server caught up meanwhile: no reset.
    let script: Vec<Step> = [START].into_iter().chain([behind; 3].concat()).chain([OK, end_of_state("9")]).collect();
    assert_eq!(run(saved(), &script).reflector.stats().history_resets, 0);
}

#[test]
fn an_exact_state_of_another_history_is_not_asked_for() {
    let config = Config { semantic: ListSemantic::Exact(5.into()), ..saved() };
    let script = [START, proof(Proof::Foreign), Timer];
    assert_eq!(run(config, &script).shown.last().unwrap(), "stream latest");
}

#[test]
fn another_endpoint_is_watched_from_the_same_position_after_a_proof() {
    check_live(&[MOVED, proof(Proof::Same), OK, modified("a", "8")], "prove 7 by 0 · proved · watch 7 · - · apply");
    check_live(
        &[fails(Class::Connection), MOVED, proof(Proof::Same), OK],
        "wait Connection · prove 7 by 0 · proved · watch 7 · -",
    );
    // A position that can be resumed is resumed, whatever was pending, even a list.
    check_live(
        &[fails(Class::Expired), MOVED, proof(Proof::Same), OK],
        "wait Expired · prove 7 by 0 · proved · watch 7 · -",
    );
    check_live(
        &[fails(Class::Expired), Timer, OK, added("a", "3"), MOVED, proof(Proof::Same)],
        "wait Expired · [Expired] · stream >=7 · init · init-apply · abandon · prove 7 by 0 · proved · watch 7",
    );
}

/// Regression: two API servers behind one name must not mix two clusters.
#[test]
fn an_endpoint_that_is_foreign_or_behind_is_refused_and_the_position_kept() {
    for (answer, expected) in [
        (proof(Proof::Foreign), "foreign · refuse"),
        (proof(Proof::Reset), "history-reset · refuse"),
        (fails(Class::TooLarge), "refuse"),
    ] {
        check_live(
            &[MOVED, answer, Timer, OK, modified("a", "8")],
            &format!("prove 7 by 0 · {expected} · wait Unproven · watch 7 · - · apply"),
        );
    }
    let unsure = [proof(Proof::Missing); 8];
    check_live(
        &[&[MOVED][..], &unsure, &[Timer]].concat(),
        "prove 7 by 0 · prove 7 by 1 · prove 7 by 2 · prove 7 by 3 · prove 7 by 4 · prove 7 by 5 · prove 7 by 6 · \
         prove 7 by 7 · refuse · wait Unproven · watch 7",
    );
    check_live(
        &[MOVED, fails(Class::Forbidden), fails(Class::Forbidden), Timer],
        "prove 7 by 0 · prove 7 by 0 listed · refuse · wait Unproven · watch 7",
    );
}

/// Both endpoints of a control plane are down while its store is restored, and the first returns before the second has
/// proved anything. By either way back, the first must prove the position again.
#[test]
fn the_endpoint_that_had_the_position_is_asked_for_a_proof_when_it_is_come_back_to() {
    let left = [after(20_000, Input::Ended(End::Failed(Failure::new(Class::Connection)))), MOVED];
    let shown = "healthy · wait Connection · prove 7 by 0 · ";
    for (answer, expected) in [
        (proof(Proof::Same), "proved · watch 7"),
        (proof(Proof::Foreign), "foreign · wait Unproven · [Foreign] · stream any"),
        (proof(Proof::Reset), "history-reset · wait Unproven · [HistoryReset] · stream latest"),
        (fails(Class::TooLarge), "wait TooLarge · prove 7 by 0"),
    ] {
        let script = [&left[..], &[fails(Class::Connection), BACK, answer, Timer]].concat();
        let answered = run(Config::default(), &[&LIVE[..], &script].concat()).shown.join(" · ");
        let expected = format!("{LIVE_SHOWN} · {shown}wait Connection · prove 7 by 0 · {expected}");
        assert!(answered.starts_with(&expected), "{answered}\n{expected}");
        let script = [&left[..], &[fails(Class::TooLarge), Timer, answer, Timer]].concat();
        let answered = run(Config::default(), &[&LIVE[..], &script].concat()).shown.join(" · ");
        let expected = expected.replacen(
            "wait Connection · prove 7 by 0 · wait Connection",
            "wait Connection · prove 7 by 0 · refuse · wait Unproven",
            1,
        );
        assert!(answered.starts_with(&expected), "{answered}\n{expected}");
    }
}

/// A starting server may forbid everything. A list of one object shows whether only the watch is forbidden.
#[test]
fn a_watch_that_is_forbidden_is_given_up_for_polling_only_where_lists_are_allowed() {
    let closed = after(20_000, Input::Ended(End::Closed));
    let forbidden = [closed, Timer, fails(Class::Forbidden), Timer];
    let shown = "healthy · wait Closed · watch 7 · wait Forbidden · prove 7 by 0 listed";
    for (script, expected) in [
        (&[fails(Class::Forbidden), Timer][..], "wait Forbidden · watch 7"),
        (&[proof(Proof::Nothing)], "[WatchForbidden] · stream >=7"),
        (&[proof(Proof::Foreign), Timer], "foreign · wait Unproven · [Foreign] · stream any"),
        (
            &[
                proof(Proof::Same),
                fails(Class::Forbidden),
                Timer,
                fails(Class::Forbidden),
                Timer,
                fails(Class::Forbidden),
                Timer,
            ],
            "proved · watch 7 · wait Forbidden · watch 7 · wait Forbidden · watch 7 · wait WatchForbidden \
             · watch 7",
        ),
    ] {
        check_live(&[&forbidden[..], script].concat(), &format!("{shown} · {expected}"));
    }
    let gone = [&forbidden[..], &[proof(Proof::Missing); 8]].concat();
    assert_eq!(run(Config::default(), &[&LIVE[..], &gone].concat()).shown.last().unwrap(), "watch 7");
}

/// An empty copy cannot mix histories, so the other endpoint is listed; an endpoint that is behind is still refused.
#[test]
fn an_empty_copy_is_listed_at_the_other_endpoint() {
    let listed = [MOVED, proof(Proof::Nothing), Timer];
    let shown = "prove 7 by 0 · wait Unproven · [Unproven] · stream >=7";
    check_live(
        &[&listed[..], &[OK, end_of_state("9"), CLOSED]].concat(),
        &format!("{shown} · init-distrusting · init-done 9 · wait Closed"),
    );
    check_live(
        &[&listed[..], &[fails(Class::TooLarge), Timer]].concat(),
        &format!("{shown} · refuse · wait Unproven · watch 7"),
    );
    check_live(
        &[&listed[..], &[OK, end_of_state("6"), Timer]].concat(),
        &format!("{shown} · init-distrusting · close · abandon · refuse · wait Unproven · watch 7"),
    );
    let pages = run(paged(), &[&[START, OK, page("7", None)][..], &listed, &[OK, page("6", None), Timer, OK]].concat());
    assert_eq!(
        pages.shown[7..].join(" · "),
        "[Unproven] · list-all >=7 · init-distrusting · abandon · refuse · wait Unproven · watch 7 · -"
    );
}

#[test]
fn before_the_first_state_another_endpoint_is_simply_asked() {
    check(
        &[MOVED, START, OK, added("a", "3"), MOVED, OK],
        "- · [Start] · stream any · init · init-apply · abandon \
        · [Interrupted] · stream any · init",
    );
    check(
        &[START, fails(Class::Connection), MOVED],
        "[Start] · stream any · wait Connection · [Interrupted] · stream any",
    );
    let config = Config { spread: Duration::from_secs(60), ..Config::default() };
    check_with(config, &[START, MOVED, Timer], "spread · - · [Start] · stream any");
    // A position never proved is proved at the other endpoint as at the first, and there is no endpoint to return to.
    check_with(
        saved(),
        &[START, fails(Class::Connection), MOVED, proof(Proof::Foreign), Timer],
        "prove 7 by 0 · wait Connection · prove 7 by 0 · foreign · wait Unproven · [Foreign] · stream any",
    );
}

#[test]
fn two_silent_sessions_from_one_position_need_a_proof() {
    let silent = [OK, Timer, Timer];
    let quiet = [&LIVE[..], &[Timer, Timer], &silent].concat();
    let shown = format!("{LIVE_SHOWN} · healthy · watch 7 · - · healthy · prove 7 by 0");
    check(&quiet, &shown);
    for (answer, expected) in [
        (proof(Proof::Same), "proved · watch 7"),
        (proof(Proof::Nothing), "wait Unproven"),
        (proof(Proof::Reset), "history-reset · wait Unproven"),
        (proof(Proof::Foreign), "foreign · wait Unproven"),
        (fails(Class::TooLarge), "wait TooLarge"),
        (fails(Class::Connection), "wait Connection"),
    ] {
        check(&[&quiet[..], &[answer]].concat(), &format!("{shown} · {expected}"));
    }
    // Missing permission to read objects does not justify a relist.
    check(
        &[&quiet[..], &[fails(Class::Forbidden), fails(Class::Forbidden), OK]].concat(),
        &format!("{shown} · prove 7 by 0 listed · watch 7 · -"),
    );
    // One silent session from each of two positions is not two from one position.
    check(
        &[&LIVE[..], &[Timer, Timer, OK, modified("a", "8"), Timer, Timer, OK, Timer, Timer]].concat(),
        &format!("{LIVE_SHOWN} · healthy · watch 7 · - · apply · healthy · watch 8 · - · healthy · prove 8 by 0"),
    );
}

/// A server restored to an older state accepts a watch from a position it has not reached yet, and stays silent.
#[test]
fn a_server_restored_to_an_older_state_is_noticed_by_its_silence() {
    let silent = [OK, Timer, Timer];
    let behind = [fails(Class::TooLarge), Timer];
    let script = [
        &LIVE[..],
        &[fails(Class::Connection), Timer],
        &silent,
        &silent,
        &behind,
        &behind,
        &behind,
        &[OK, added("a", "3"), end_of_state("4")],
    ]
    .concat();
    let shown = run(Config::default(), &script);
    assert!(
        shown
            .shown
            .join(" · ")
            .ends_with("[TooLarge] · stream latest · init-distrusting · init-apply · history-reset · init-done 4"),
        "{:?}",
        shown.shown
    );
    assert_eq!(shown.reflector.stats().history_resets, 1);
}

/// A restored server may also send its position, and its sessions may be long enough to be healthy.
#[test]
fn a_server_that_tells_positions_behind_ours_twice_has_to_prove_them() {
    let back = [OK, after(60_000, Input::Ignored), bookmark("5"), Timer];
    let behind = [fails(Class::TooLarge), Timer];
    let script = [&LIVE[..], &back[1..], &back, &behind, &behind, &behind, &[OK, end_of_state("6")]].concat();
    let shown = run(Config::default(), &script).shown.join(" · ");
    let expected = "healthy · close · wait WentBack · watch 7 · - · healthy · close · wait WentBack · prove 7 by 0";
    assert!(shown.contains(expected) && shown.ends_with("history-reset · init-done 6"), "{shown}");
}

/// A load balancer that cuts each watch before it is silent for long must not hide a restored server. The cost is one
/// small read every five minutes for a quiet type, none for a busy one, and one after an outage.
#[test]
fn a_position_that_nothing_has_told_for_five_minutes_is_proved_before_it_is_resumed_from() {
    let cut = [OK, after(60_000, Input::Ended(End::Closed)), Timer];
    let five_minutes = [&cut.repeat(4)[..], &cut, &[proof(Proof::Same)]].concat();
    let quiet =
        run(Config::default(), &[&LIVE[..], &cut[1..], &cut.repeat(4), &[proof(Proof::Same)], &five_minutes].concat());
    let shown = quiet.shown.join(" · ");
    assert_eq!(shown.matches("prove 7 by 0 · proved · watch 7").count(), 2, "{shown}");
    assert_eq!(quiet.reflector.stats().resumes, 10);
    let busy = [&LIVE[..], &[&[OK, modified("a", "8")][..], &cut[1..]].concat().repeat(11)].concat();
    assert!(!run(Config::default(), &busy).shown.contains(&"prove 8 by 0".to_owned()));
    let outage =
        [&LIVE[..], &[after(1_000, Input::Ended(End::Closed)), Timer], &[fails(Class::Connection), Timer].repeat(12)]
            .concat();
    assert_eq!(run(Config::default(), &outage).shown.last().unwrap(), "prove 7 by 0");
}

/// Servers are replaced and restored during outages. A connection that breaks repeatedly, as behind a load balancer
/// that resets it, does not cost a proof each time.
#[test]
fn what_comes_back_after_an_outage_is_proved_before_it_is_resumed_from() {
    let broken = after(20_000, Input::Ended(End::Failed(Failure::new(Class::Connection))));
    let refused = [fails(Class::Connection), Timer];
    let script =
        [&LIVE[..], &[modified("a", "8"), broken, Timer], &refused, &refused, &[proof(Proof::Foreign), Timer]].concat();
    let shown = run(Config::default(), &script).shown.join(" · ");
    assert!(
        shown.contains("wait Connection · prove 8 by 0 · wait Connection · prove 8 by 0 · wait Connection · "),
        "{shown}"
    );
    assert!(shown.ends_with("prove 8 by 0 · foreign · wait Unproven · [Foreign] · stream any"), "{shown}");
    let at_once = [OK, fails(Class::Connection), Timer];
    let script = [&LIVE[..], &at_once[1..], &[proof(Proof::Same)], &at_once, &at_once].concat();
    let shown = run(Config::default(), &script).shown.join(" · ");
    assert_eq!(shown.matches("prove 7").count(), 1, "{shown}");
}

#[test]
fn after_a_position_went_back_equal_versions_prove_nothing() {
    let back = [OK, bookmark("5"), Timer];
    let script =
        [&LIVE[..], &back, &back, &[proof(Proof::Same)], &back, &[OK, end_of_state("9"), CLOSED, Timer]].concat();
    let shown = run(Config::default(), &script).shown.join(" · ");
    assert!(
        shown.ends_with("[NotResumable] · stream >=7 · init-distrusting · init-done 9 · wait Closed · watch 9"),
        "{shown}"
    );
}

#[test]
fn a_page_that_fails_is_asked_for_again_three_times() {
    let begin = [START, OK, item("a", "3"), page("7", Some("t"))];
    let begin_shown = "[Start] · list any · init · init-apply · page t";
    for (end, shown) in [
        (fails(Class::TooMany), "TooMany"),
        (fails(Class::Server), "Server"),
        (fails(Class::Connection), "Connection"),
        (CLOSED, "Closed"),
    ] {
        check_with(
            paged(),
            &[&begin[..], &[end, Timer, OK, item("b", "4"), page("9", None)]].concat(),
            &format!("{begin_shown} · wait {shown} · page t · - · init-apply · init-done 7 · watch 7"),
        );
        let again = format!("wait {shown} · page t · ").repeat(3);
        check_with(
            paged(),
            &[&begin[..], &[end, Timer].repeat(3), &[end, Timer]].concat(),
            &format!("{begin_shown} · {again}abandon · wait {shown} · [Interrupted] · list any"),
        );
    }
    check_with(
        paged(),
        &[&begin[..], &[Timer, Timer, fails(Class::Expired)]].concat(),
        &format!("{begin_shown} · close · wait Unanswered · page t · abandon · [PageExpired] · list-all any"),
    );
    check_with(
        paged(),
        &[&begin[..], &[fails(Class::Server), MOVED]].concat(),
        &format!("{begin_shown} · wait Server · abandon · [Interrupted] · list any"),
    );
    check_with(
        paged(),
        &[START, fails(Class::Server), Timer],
        "[Start] · list any · wait Server · [Interrupted] · list any",
    );
}

/// Goal: while watches are forbidden, moves between endpoints must not postpone the next poll forever. Method: a move
/// every two minutes, each of which leads to a forbidden watch.
#[test]
fn moves_do_not_put_a_poll_off() {
    let again = [fails(Class::Forbidden), Timer, fails(Class::Forbidden), Timer, fails(Class::Forbidden)];
    let polling = [&[START, OK, page("5", None)], &again[..]].concat();
    let moved = [after(100_000, Input::Moved { home: true }), proof(Proof::Same), fails(Class::Forbidden)];
    let forbidden = [&[Timer, proof(Proof::Same)], &again[..]].concat();
    let mut run = run(paged(), &polling);
    for _ in 0..4 {
        [&moved[..], &forbidden].concat().into_iter().for_each(|step| run.step(step));
        if run.reflector.poll_timeout().is_some_and(|due| due < run.time + Duration::from_secs(120)) {
            run.step(Timer);
            break;
        }
    }
    assert_eq!(run.shown.last().unwrap(), "list-all >=5", "{:?}", run.shown);
}
