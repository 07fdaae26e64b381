//! Tables of queries and decisions.

use super::*;
use crate::query::Query;

/// Goal: each combination of options reads the right state. Method: queries, and the decision in short.
#[test]
fn a_query_decides_what_is_read() {
    let token = |position| ContinueToken { resource_version: position, start: "k\0".into() }.encode();
    let (at_7, latest) = (token(Position::At(7)), token(Position::Latest));
    let decide = |query: &str| {
        let options = ListOptions::read(&Query::parse(Some(query))).expect(query);
        ListRead::of(&options, false)
    };
    let read = |which, start: Option<&str>, limit| ListRead { which, start: start.map(str::to_owned), limit };
    let exact = |at| RequestedState::Exact { at, by_token: false };
    let by_token = RequestedState::Exact { at: 7, by_token: true };
    for (query, expected) in [
        (String::new(), read(RequestedState::MostRecent, None, None)),
        ("limit=2".into(), read(RequestedState::MostRecent, None, Some(2))),
        ("limit=0".into(), read(RequestedState::MostRecent, None, None)),
        ("limit=-1".into(), read(RequestedState::MostRecent, None, None)),
        ("resourceVersion=0&limit=2".into(), read(RequestedState::Any, None, None)),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=2".into(), read(RequestedState::Any, None, None)),
        ("resourceVersion=5".into(), read(RequestedState::NotOlderThan(5), None, None)),
        ("resourceVersion=5&limit=2".into(), read(exact(5), None, Some(2))),
        (
            "resourceVersion=5&resourceVersionMatch=NotOlderThan".into(),
            read(RequestedState::NotOlderThan(5), None, None),
        ),
        (
            "resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=2".into(),
            read(RequestedState::NotOlderThan(5), None, Some(2)),
        ),
        ("resourceVersion=5&resourceVersionMatch=Exact".into(), read(exact(5), None, None)),
        ("resourceVersion=05&resourceVersionMatch=Exact&limit=2".into(), read(exact(5), None, Some(2))),
        (format!("continue={at_7}"), read(by_token, Some("k\0"), None)),
        (format!("continue={at_7}&limit=2"), read(by_token, Some("k\0"), Some(2))),
        (format!("continue={at_7}&resourceVersion=0"), read(by_token, Some("k\0"), None)),
        (format!("continue={latest}&limit=2"), read(RequestedState::MostRecent, Some("k\0"), Some(2))),
    ] {
        assert_eq!(decide(&query), Ok(expected), "{query}");
    }
    for (query, expected) in [
        (
            format!("continue={at_7}&resourceVersion=5"),
            "specifying resource version is not allowed when using continue",
        ),
        (
            format!("continue={at_7}&resourceVersion=x"),
            "specifying resource version is not allowed when using continue",
        ),
        (
            "continue=%25%25%25&resourceVersion=x".into(),
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
        (
            "resourceVersion=abc".into(),
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
    ] {
        assert_eq!(decide(&query), Err(Status::bad_request(expected)), "{query}");
    }
}

/// Goal: each combination of options starts a watch at the right place. Method: queries, and the decision.
#[test]
fn a_query_decides_where_a_watch_starts() {
    let sie = |value: &str| format!("sendInitialEvents={value}&resourceVersionMatch=NotOlderThan");
    for (query, expected) in [
        (String::new(), WatchStart::State(None)),
        ("resourceVersion=0".into(), WatchStart::State(Some(0))),
        ("resourceVersion=00".into(), WatchStart::State(Some(0))),
        ("resourceVersion=5".into(), WatchStart::After(5)),
        (sie("true"), WatchStart::State(None)),
        (sie("true") + "&resourceVersion=0", WatchStart::State(Some(0))),
        (sie("true") + "&resourceVersion=5", WatchStart::State(Some(5))),
        (sie("false"), WatchStart::Now(true)),
        (sie("false") + "&resourceVersion=0", WatchStart::Now(false)),
        (sie("false") + "&resourceVersion=5", WatchStart::After(5)),
    ] {
        let options = ListOptions::read(&Query::parse(Some(&format!("watch=1&{query}")))).expect("valid");
        assert_eq!(WatchStart::of(&options), Ok(expected), "{query}");
    }
}
