//! Scripted tests of the choice: results of requests, and the endpoint chosen.

use super::*;

const fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

fn endpoints(count: usize, seed: u64) -> Endpoints {
    Endpoints::new(count, Config::default(), seed)
}

/// Fires the next timer. Returns its time and the endpoint moved to.
fn fire(endpoints: &mut Endpoints) -> (Time, Option<usize>) {
    let due = endpoints.poll_timeout().expect("a timer");
    (due, endpoints.handle_timeout(due))
}

/// Two endpoints, of which the preferred one failed and the client has just returned to it, with the times of both moves.
fn returned(seed: u64) -> (Endpoints, Time, Time) {
    let mut two = endpoints(2, seed);
    two.failed(at(0), Class::Connection);
    let (moved, _) = fire(&mut two);
    two.worked(moved);
    let (back, to) = fire(&mut two);
    assert_eq!(to, Some(0));
    (two, moved, back)
}

#[test]
fn one_endpoint_is_never_left() {
    let mut one = endpoints(1, 0);
    one.failed(at(0), Class::Connection);
    assert_eq!((one.poll_timeout(), one.handle_timeout(at(1_000)), one.expired(at(1_000))), (None, None, None));
    one.worked(at(1));
    assert_eq!((one.poll_timeout(), one.current()), (None, 0));
}

/// Goal: an overloaded cache, or one still filling, does not send its clients to the server behind it.
#[test]
fn an_endpoint_that_answers_429_is_not_left() {
    let mut two = endpoints(2, 0);
    two.failed(at(0), Class::TooMany);
    assert_eq!(two.poll_timeout(), None);
    two.failed(at(1), Class::Connection);
    two.failed(at(2), Class::TooMany);
    assert_eq!(two.poll_timeout(), None, "it is there");
    two.failed(at(3), Class::Connection);
    assert!(two.poll_timeout().is_some());
}

/// Goal: a client that no endpoint allows to watch polls, and does not go from one to the other.
#[test]
fn what_every_endpoint_forbids_is_no_reason_to_leave() {
    let mut two = endpoints(2, 0);
    two.worked(at(0));
    two.failed(at(1), Class::Forbidden);
    assert_eq!(fire(&mut two).1, Some(1), "the other one may allow it");
    two.failed(at(40), Class::Forbidden);
    assert_eq!(two.current(), 1);
    let returns = two.poll_timeout().expect("the preferred endpoint is tried again");
    assert!(returns > at(60), "and not at once");
    two.worked(at(41));
    two.failed(at(41), Class::Forbidden);
    assert!(two.poll_timeout().is_some_and(|due| due > at(60)), "a list is allowed, the watch after it is not");
    two.failed(at(42), Class::Connection);
    assert!(two.poll_timeout().is_some_and(|due| due < at(200)), "an endpoint that is down is left");
}

#[test]
fn an_endpoint_that_fails_is_left_after_five_to_thirty_seconds_spread_over_all_clients() {
    let mut left = [0; 5];
    for seed in 0..1_000 {
        let mut two = endpoints(2, seed);
        two.worked(at(100));
        two.failed(at(200), Class::Connection);
        two.failed(at(203), Class::Server);
        let (due, to) = fire(&mut two);
        assert_eq!((to, two.current()), (Some(1), 1));
        left[usize::try_from(due.since(at(205)).as_secs() / 5).unwrap()] += 1;
    }
    assert!(left.iter().all(|count| *count > 150), "{left:?}");
}

#[test]
fn an_endpoint_that_works_again_is_not_left() {
    let mut two = endpoints(2, 1);
    two.failed(at(0), Class::Connection);
    assert_eq!(two.handle_timeout(at(4)), None, "not yet");
    two.worked(at(4));
    assert_eq!((two.poll_timeout(), two.handle_timeout(at(100))), (None, None));
    for class in [Class::Expired, Class::TooLarge] {
        two.failed(at(5), class);
        assert_eq!(two.poll_timeout(), None, "{class:?} is about the position");
    }
}

#[test]
fn the_preferred_endpoint_is_tried_again_within_ten_minutes_spread_over_all_clients() {
    let mut thirds = [0; 3];
    for seed in 0..1_000 {
        let (mut two, moved, back) = returned(seed);
        assert!(back.since(moved) >= Duration::from_secs(30), "who has just left would find the same");
        thirds[usize::try_from(back.since(moved).as_secs() / 201).unwrap()] += 1;
        two.worked(back);
        assert_eq!(two.poll_timeout(), None, "home");
    }
    assert!(thirds.iter().all(|count| *count > 250), "{thirds:?}");
}

#[test]
fn a_return_that_fails_goes_back_at_once_and_is_tried_ever_more_rarely() {
    for seed in 0..100 {
        let mut two = endpoints(2, seed);
        two.failed(at(0), Class::Connection);
        let (mut now, _) = fire(&mut two);
        let mut tries = 0;
        while now < at(24 * 3_600) {
            two.worked(now);
            let (back, to) = fire(&mut two);
            assert_eq!(to, Some(0));
            tries += 1;
            two.failed(back, Class::Connection);
            let (again, to) = fire(&mut two);
            assert_eq!((to, again), (Some(1), back), "the fallback worked");
            now = again;
        }
        assert!((20..60).contains(&tries), "{tries} returns in a day");
    }
}

/// Goal: an endpoint that failed when the client returned to it is tried as soon as the other one fails too.
#[test]
fn an_endpoint_that_failed_earlier_is_better_than_one_that_fails_now() {
    for seed in 0..100 {
        let (mut two, _, back) = returned(seed);
        two.failed(back, Class::Connection);
        assert_eq!(fire(&mut two), (back, Some(1)), "the fallback worked");
        two.failed(back, Class::Connection);
        let (due, to) = fire(&mut two);
        assert_eq!(to, Some(0));
        assert!(due.since(back) <= Duration::from_secs(120), "{due:?} after {back:?}");
    }
}

#[test]
fn a_refused_endpoint_leads_back_and_is_left_alone() {
    for seed in 0..100 {
        let mut two = endpoints(2, seed);
        two.settle();
        two.worked(at(0));
        two.failed(at(10), Class::Connection);
        let (moved, _) = fire(&mut two);
        assert_eq!((two.refuse(moved), two.current()), (0, 0));
        two.failed(moved, Class::Connection);
        let (due, to) = fire(&mut two);
        if to.is_none() {
            let (due, to) = fire(&mut two);
            assert_eq!(to, Some(1));
            assert!(due.since(moved) >= Duration::from_secs(30));
        } else {
            assert!(due.since(moved) >= Duration::from_secs(30));
        }
    }
    let mut home = endpoints(2, 1);
    assert_eq!((home.refuse(at(1)), home.poll_timeout()), (0, None), "home cannot be refused");
}

/// A working endpoint may not have the position: a server that is behind may accept a list.
#[test]
fn a_refused_move_leads_back_to_where_the_position_belongs() {
    let mut two = endpoints(2, 1);
    two.settle();
    two.failed(at(0), Class::Connection);
    let (moved, _) = fire(&mut two);
    two.worked(moved);
    assert_eq!((two.refuse(moved), two.current()), (0, 0));
}

#[test]
fn an_expired_position_is_tried_once_more_at_the_preferred_endpoint() {
    let mut two = endpoints(2, 1);
    assert_eq!(two.expired(at(0)), None, "it is the preferred one");
    two.failed(at(0), Class::Connection);
    let (moved, _) = fire(&mut two);
    two.worked(moved);
    two.settle();
    assert_eq!(two.expired(moved), Some(0));
    // It is still down, or refused: do not try it again for the next expired position.
    two.failed(moved, Class::Connection);
    let (again, to) = fire(&mut two);
    assert_eq!(to, Some(1));
    two.worked(again);
    assert_eq!(two.expired(again), None);
    assert_eq!(two.expired(at(24 * 3_600)), Some(0));
    assert_eq!(two.refuse(at(24 * 3_600)), 1);
    assert_eq!(two.expired(at(24 * 3_600)), None);
}

#[test]
fn endpoint_after_endpoint_that_fails_is_left_ever_more_slowly() {
    for seed in 0..100 {
        let mut three = endpoints(3, seed);
        let (mut now, mut visited) = (Time::ZERO, Vec::new());
        while now < at(600) {
            three.failed(now, Class::Connection);
            let (due, to) = fire(&mut three);
            now = due;
            visited.extend(to);
        }
        assert!((4..=20).contains(&visited.len()), "{} moves in ten minutes", visited.len());
        assert!([0, 1, 2].iter().all(|each| visited.contains(each)), "{visited:?}");
    }
}
