//! Scripts about lists in pages: their order, their end, and the pauses between those that repeat themselves.

use super::*;

#[test]
fn an_expired_page_is_followed_by_one_unpaged_list_of_the_same_kind() {
    check_with(
        Config { semantic: ListSemantic::MostRecent, ..paged() },
        &[START, OK, item("a", "3"), page("7", Some("t")), fails(Class::Expired), OK, page("9", None)],
        "[Start] · list latest · init · init-apply · page t · abandon · [PageExpired] · list-all latest · init \
         · init-done 9 · watch 9",
    );
}

/// Goal: a list whose tokens repeat ends, whatever the length of the cycle. Method: cycles of one, two and three
/// tokens.
#[test]
fn pages_in_circles_are_given_up() {
    let pages_of = |tokens: &[&'static str]| {
        let mut listed = run(paged(), &[START]);
        for token in tokens {
            [OK, item("a", "1"), page("7", Some(token))].into_iter().for_each(|step| listed.step(step));
            // A pause, because the object is the same.
            match listed.shown.last().unwrap().as_str() {
                "-" => listed.step(Timer),
                "wait Unusable" => break,
                _ => {}
            }
        }
        listed
    };
    for circle in [&["t"][..], &["t", "u"], &["a", "t", "u"]] {
        let tokens: Vec<&'static str> = circle.iter().copied().cycle().take(20).collect();
        let shown = pages_of(&tokens).shown;
        let pages = shown.iter().filter(|shown| shown.starts_with("page")).count();
        assert!(pages <= 3 * circle.len() && shown.contains(&"wait Unusable".into()), "{pages} pages: {shown:?}");
    }
    let lead: Vec<&'static str> = (0..100).map(|number| &*format!("t{number}").leak()).collect();
    let long = pages_of(&lead);
    assert_eq!(long.shown.last().unwrap(), "page t99", "many pages are no circle");
    assert!(long.time > Time(Duration::from_mins(7)), "one page every five seconds, not all at once: {}", long.time);
}

/// Goal: a list that goes on, page after page, is not delayed. Method: a thousand pages with one new object each.
#[test]
fn pages_with_new_objects_follow_each_other_at_once() {
    let mut listed = run(paged(), &[START]);
    for number in 0..1_000 {
        let (key, token): (&'static str, &'static str) = (format!("a/{number:04}").leak(), format!("t{number}").leak());
        [OK, item(key, "1"), page("7", Some(token))].into_iter().for_each(|step| listed.step(step));
    }
    assert_eq!((listed.time, listed.shown.last().unwrap().as_str()), (Time::ZERO, "page t999"));
}

#[test]
fn a_server_that_pages_whatever_is_asked_and_lets_pages_expire_is_asked_with_growing_pauses() {
    let attempt = [OK, item("a", "1"), page("7", Some("t")), fails(Class::Expired)];
    let later = [&attempt[..], &[Timer]].concat();
    let script: Vec<Step> = [&[START], &attempt[..], &later, &later, &later].concat();
    let attempt = "init · init-apply · page t · abandon · wait Expired · [Expired]";
    assert_eq!(
        run(paged(), &script).shown[5..].join(" · "),
        format!(
            "abandon · [PageExpired] · list-all any · {attempt} · list any · {attempt} · list-all any · {attempt} · list any"
        )
    );
}

/// Goal: a list whose pages never end is abandoned. Method: one page per second, each with an object.
#[test]
fn pages_without_end_are_given_up_after_a_time() {
    let mut endless = run(paged(), &[START]);
    for number in 0.. {
        let token: &'static str = format!("t{number}").leak();
        let key: &'static str = format!("a/{number:04}").leak();
        for step in [after(1_000, Input::Accepted), item(key, "1"), page("7", Some(token))] {
            endless.step(step);
        }
        if endless.shown.last().unwrap() == "wait Endless" {
            break;
        }
        assert!(number < 1_000, "{:?}", endless.time);
    }
    assert_eq!(endless.time, Time(limits::LIST_TIME_MAX));
    assert_eq!(endless.reflector.stats().endless_lists, 1);
    endless.step(Timer);
    assert_eq!(endless.shown.last().unwrap(), "list any");
}

#[test]
fn a_list_whose_items_do_not_end_is_given_up_after_a_time() {
    let config = Config { initial: InitialList::Unpaged, ..Config::default() };
    let mut endless = run(config, &[START, OK]);
    for _ in 0..100 {
        endless.step(after(8_999, observed(ObservedKind::Item, "a", "1")));
    }
    endless.step(Timer);
    assert_eq!(endless.shown[endless.shown.len() - 3..].join(" · "), "close · abandon · wait Endless");
    assert_eq!(endless.time, Time(limits::LIST_TIME_MAX));
}

#[test]
fn a_list_in_pages_shares_one_stage_and_the_first_position() {
    check_with(
        paged(),
        &[START, OK, item("a", "3"), page("7", Some("t1")), OK, item("b", "4"), page("9", None), OK, deleted("a", "8")],
        "[Start] · list any · init · init-apply · page t1 · - · init-apply · init-done 7 · watch 7 · - · delete",
    );
}
