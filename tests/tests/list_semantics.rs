//! LIST over real sockets against the real binary: which state each combination of resourceVersion,
//! resourceVersionMatch, limit and continue gives, in which order, on which pages.
//!
//! Method: one history (`Seed`) and tables over it. A row's expectation is a line such as
//! `[second/bar] @NOW more(second/bar) remaining 1`; a star marks the object that was updated.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::collections::BTreeMap;

use futures::future::join_all;
use informer_core::wire::continue_token::{ContinueToken, Position};
use serde_json::json;
use tests::{
    http::{Answer, Client, MERGE_PATCH, key, with_query},
    objects::{Object, configmap, node, pod, replica_set, secret},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PODS: &str = "/api/v1/pods";
const FIVE: &str = "first/bar* second/bar second/foo third/barfoo third/foo";

async fn server() -> Server {
    Server::start(BINARY, &["--first-revision", "1000"]).await
}

/// The history every row reads: R1 to R7 are the positions of the writes, C that of the last one of this type, NOW that
/// of a later write elsewhere. BEFORE lies before the history, FUTURE after it.
struct Seed {
    _server: Server,
    client: Client,
    marks: BTreeMap<&'static str, u64>,
}

impl Seed {
    async fn new() -> Self {
        let server = server().await;
        let client = server.client();
        // The cache of a type starts with its first reader: from here on it remembers.
        let begin = client.get(PODS).await.with_code(200).resource_version();
        let mut marks = BTreeMap::from([("R0", begin), ("BEFORE", begin - 1)]);
        let create = [
            ("first", "bar"),
            ("second", "bar"),
            ("second", "foo"),
            ("third", "barfoo"),
            ("third", "foo"),
            ("second", "baz"),
        ];
        for ((namespace, name), mark) in create.into_iter().zip(["R1", "R2", "R3", "R4", "R5", "R6"]) {
            marks.insert(mark, client.create(&pod(name).namespace(namespace)).await);
        }
        marks.insert("R7", client.update(&pod("bar").namespace("first").node("fakeNode")).await);
        marks.insert("C", client.remove(&pod("baz").namespace("second")).await);
        let now = client.create(&configmap("unrelated")).await;
        marks.insert("NOW", now);
        marks.insert("FUTURE", now + 1_000);
        Self { _server: server, client, marks }
    }

    /// Replaces `{NAME}` by the position of that name.
    fn fill(&self, text: &str) -> String {
        self.marks
            .iter()
            .fold(text.to_owned(), |text, (name, at)| text.replace(&format!("{{{name}}}"), &at.to_string()))
    }

    fn name_of(&self, at: u64) -> String {
        let found = self.marks.iter().find(|(_, mark)| **mark == at);
        found.map_or_else(|| at.to_string(), |(name, _)| (*name).to_owned())
    }

    /// One row: `place` is a namespace or empty for all; `query` may end in `continue=POSITION/start`.
    async fn check(&self, id: &str, place: &str, query: &str, expected: &str) {
        let path = if place.is_empty() { PODS.to_owned() } else { format!("/api/v1/namespaces/{place}/pods") };
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in self.fill(query).split_terminator('&') {
            let (name, value) = pair.split_once('=').unwrap();
            let value = if name == "continue" { token(value) } else { value.to_owned() };
            pairs.push((name.to_owned(), value));
        }
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = self.client.get(&with_query(&path, &pairs)).await;
        let expected = self.fill(expected).replace("{FIVE}", FIVE);
        let found = self.outcome(&answer, &expected);
        assert_eq!(found, expected, "{id}: {}: {}", answer.asked, String::from_utf8_lossy(&answer.body));
    }

    fn outcome(&self, answer: &Answer, expected: &str) -> String {
        if answer.code != 200 {
            let status = answer.json();
            let message = status["message"].as_str().unwrap().split(", current").next().unwrap().to_owned();
            return format!("{} {}: {message}", answer.code.as_u16(), status["reason"].as_str().unwrap());
        }
        let at = answer.resource_version();
        let least = expected.split_once("@>=").map(|(_, rest)| rest.split(' ').next().unwrap());
        let position = match least {
            Some(least) if at >= self.marks[least] => format!(">={least}"),
            _ => self.name_of(at),
        };
        let list = answer.json();
        let items: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| key(item) + if item["spec"]["nodeName"].is_string() { "*" } else { "" })
            .collect();
        let more = answer.token().map(|token| {
            let token = ContinueToken::decode(&token).unwrap();
            let start = token.start.strip_suffix('\0').unwrap_or("no NUL").to_owned();
            let same = token.resource_version == Position::At(at);
            if same { format!(" more({start})") } else { format!(" more({start} elsewhere)") }
        });
        let remaining = answer.remaining().map(|count| format!(" remaining {count}"));
        format!("[{}] @{position}{}{}", items.join(" "), more.unwrap_or_default(), remaining.unwrap_or_default())
    }
}

/// `1005/ns/name$` is a token at 1005 that starts after `ns/name`; without `$` it starts at it; `-1` is the latest.
fn token(text: &str) -> String {
    let (position, start) = text.split_once('/').unwrap();
    let resource_version = position.parse().map_or(Position::Latest, Position::At);
    ContinueToken { resource_version, start: start.replace('$', "\0") }.encode()
}

const TOO_OLD: &str = "410 Expired: The resourceVersion for the provided list is too old.";

/// Name of the row, namespace (empty for all), query, and what it gives. `{FIVE}` stands for all that is left at the end.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (
        "A1",
        "first",
        "resourceVersion=abc",
        "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \
         \"abc\": invalid syntax",
    ),
    (
        "A2",
        "first",
        "resourceVersion=-1",
        "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \
         \"-1\": invalid syntax",
    ),
    (
        "A4",
        "first",
        "resourceVersion=9223372036854775807",
        "504 Timeout: Timeout: Too large resource version: 9223372036854775807",
    ),
    ("A5", "first", "", "[first/bar*] @>=NOW"),
    ("A7", "first", "resourceVersion={R1}&resourceVersionMatch=Exact", "[first/bar] @R1"),
    ("A8", "second", "resourceVersion={R1}&resourceVersionMatch=Exact", "[] @R1"),
    ("A10", "first", "resourceVersion={BEFORE}&resourceVersionMatch=Exact", TOO_OLD),
    ("A10 legacy", "first", "resourceVersion={BEFORE}&limit=1", TOO_OLD),
    ("R0 is kept", "first", "resourceVersion={R0}&resourceVersionMatch=Exact", "[] @R0"),
    ("A11", "first", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "[first/bar*] @>=R0"),
    ("A12", "first", "resourceVersion=0", "[first/bar*] @>=R0"),
    ("A13", "first", "resourceVersion={BEFORE}&resourceVersionMatch=NotOlderThan", "[first/bar*] @>=C"),
    ("A13 no match", "first", "resourceVersion={BEFORE}", "[first/bar*] @>=C"),
    ("A14", "first", "resourceVersion={C}", "[first/bar*] @>=C"),
    ("A16", "first", "resourceVersion={C}&resourceVersionMatch=NotOlderThan", "[first/bar*] @>=C"),
    ("A17", "non-existing", "", "[] @>=NOW"),
    ("A19", "second", "limit=1", "[second/bar] @>=NOW more(bar) remaining 1"),
    ("A20", "second", "limit=1&resourceVersion={C}", "[second/bar] @C more(bar) remaining 1"),
    (
        "A22",
        "second",
        "limit=1&resourceVersion={C}&resourceVersionMatch=NotOlderThan",
        "[second/bar] @>=C more(bar) remaining 1",
    ),
    ("A23", "second", "limit=1&resourceVersion=0", "[second/bar second/foo] @>=R0"),
    (
        "A23 NotOlderThan",
        "second",
        "limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "[second/bar second/foo] @>=R0",
    ),
    ("A25", "second", "limit=1&resourceVersion={R2}&resourceVersionMatch=Exact", "[second/bar] @R2"),
    ("A26", "second", "limit=1&continue={C}/foo", "[second/foo] @C"),
    ("A26 after", "second", "limit=1&continue={C}/foo$", "[] @C"),
    ("A26 with 0", "second", "limit=1&resourceVersion=0&continue={C}/foo", "[second/foo] @C"),
    ("A28", "second", "", "[second/bar second/foo] @>=NOW"),
    ("A29", "", "fieldSelector=metadata.name=barfoo&limit=1", "[third/barfoo] @>=NOW more(third/barfoo)"),
    ("A31", "", "fieldSelector=metadata.name=barfoo&limit=2&resourceVersion=0", "[third/barfoo] @>=R0"),
    ("A32", "", "fieldSelector=metadata.name=bar&limit=2", "[first/bar* second/bar] @>=NOW more(second/bar)"),
    ("A34", "", "fieldSelector=metadata.name=foo&limit=2&continue={C}/third/barfoo", "[third/foo] @C"),
    ("A35", "", "fieldSelector=metadata.name=foo&limit=1&continue={C}/third/barfoo", "[third/foo] @C"),
    ("A37", "", "", "[{FIVE}] @>=NOW"),
    (
        "A38",
        "",
        "fieldSelector=spec.nodeName=fakeNode&resourceVersion={C}&resourceVersionMatch=NotOlderThan&limit=5",
        "[first/bar*] @>=C",
    ),
    (
        "A38 before the update",
        "",
        "fieldSelector=spec.nodeName=fakeNode&resourceVersion={R5}&resourceVersionMatch=Exact",
        "[] @R5",
    ),
    ("A40", "empty", "", "[] @>=NOW"),
    ("A41", "empty", "resourceVersion=0", "[] @>=R0"),
    (
        "A43",
        "",
        "resourceVersion={R7}&resourceVersionMatch=Exact",
        "[first/bar* second/bar second/baz second/foo third/barfoo third/foo] @R7",
    ),
    ("A44", "", "resourceVersion={C}&resourceVersionMatch=Exact", "[{FIVE}] @C"),
    (
        "A46",
        "",
        "resourceVersion={FUTURE}&resourceVersionMatch=Exact",
        "504 Timeout: Timeout: Too large resource version: {FUTURE}",
    ),
    (
        "A47",
        "",
        "limit=1&resourceVersion={R2}&resourceVersionMatch=Exact",
        "[first/bar] @R2 more(first/bar) remaining 1",
    ),
    (
        "A49",
        "",
        "limit=4&resourceVersion={R4}&resourceVersionMatch=Exact",
        "[first/bar second/bar second/foo third/barfoo] @R4",
    ),
    (
        "A50",
        "",
        "limit=1&resourceVersion={R5}&resourceVersionMatch=Exact",
        "[first/bar] @R5 more(first/bar) remaining 4",
    ),
    (
        "A52",
        "",
        "limit=4&resourceVersion={R7}&resourceVersionMatch=Exact",
        "[first/bar* second/bar second/baz second/foo] @R7 more(second/foo) remaining 2",
    ),
    ("A53", "", "limit=8&resourceVersion={C}&resourceVersionMatch=Exact", "[{FIVE}] @C"),
    ("A55", "", "limit=1&continue={R1}/first/bar$", "[] @R1"),
    ("A56", "", "limit=1&continue={R5}/first/bar$", "[second/bar] @R5 more(second/bar) remaining 3"),
    ("A58", "", "limit=4&continue={R7}/second/foo$", "[third/barfoo third/foo] @R7"),
    ("A58 no limit", "", "continue={R7}/second/foo$", "[third/barfoo third/foo] @R7"),
    ("A59", "", "continue=-1/first/bar$", "[second/bar second/foo third/barfoo third/foo] @>=NOW"),
    (
        "N with a token",
        "",
        "resourceVersion={C}&continue={C}/a",
        "400 BadRequest: specifying resource version is not allowed when using continue",
    ),
    ("limit 0", "", "limit=0", "[{FIVE}] @>=NOW"),
    ("limit below 0", "", "limit=-1", "[{FIVE}] @>=NOW"),
];

/// Goal: the table of semantics row by row. Method: one history, all rows at once, since two of them wait.
#[tokio::test]
async fn every_combination_reads_the_state_it_asks_for() {
    let seed = Seed::new().await;
    join_all(ROWS.iter().map(|(id, place, query, expected)| seed.check(id, place, query, expected))).await;
}

#[tokio::test]
async fn a_position_in_the_future_is_waited_for_and_then_refused() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a")).await;
    let path = |query: &str| format!("/api/v1/namespaces/default/configmaps{query}");
    let future = now + 1_000;
    let queries = [
        path(&format!("?resourceVersion={future}")),
        path(&format!("?resourceVersion={future}&limit=1")),
        path(&format!("?resourceVersion={future}&resourceVersionMatch=Exact")),
        path(&format!("?resourceVersion={future}&resourceVersionMatch=NotOlderThan")),
        path(&format!("/a?resourceVersion={future}")),
    ];
    for answer in join_all(queries.iter().map(|query| client.get(query))).await {
        let answer = answer.with_code(504);
        assert_eq!(answer.header("retry-after"), "1", "{}", answer.asked);
        let waited = answer.took.as_secs_f64();
        assert!((2.8..8.0).contains(&waited), "{} took {waited} s", answer.asked);
        let status = answer.json();
        assert_eq!(status["message"], format!("Timeout: Too large resource version: {future}, current: {now}"));
        assert_eq!(status["reason"], "Timeout");
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        assert_eq!(status["details"], json!({"causes": causes, "retryAfterSeconds": 1}));
    }
}

#[tokio::test]
async fn a_position_that_comes_in_time_is_served() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a")).await;
    let wanted = format!("/api/v1/configmaps?resourceVersion={}&resourceVersionMatch=NotOlderThan", now + 1);
    let (answer, written) = tokio::join!(client.get(&wanted), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        client.create(&configmap("b")).await
    });
    let answer = answer.with_code(200);
    assert!(answer.resource_version() >= written);
    assert_eq!(answer.keys(), ["default/a", "default/b"]);
}

#[tokio::test]
async fn a_list_contains_every_write_answered_before_it() {
    let server = server().await;
    let client = server.client();
    for round in 0..50 {
        let object = configmap(&format!("c{round:02}"));
        let written = client.create(&object).await;
        let list = client.get(&object.collection()).await.with_code(200);
        assert!(list.resource_version() >= written, "round {round}");
        assert_eq!(list.keys().len(), round + 1);
    }
}

#[tokio::test]
async fn a_consistent_list_is_as_new_as_the_last_write_of_any_type() {
    let server = server().await;
    let client = server.client();
    let first = client.create(&configmap("a")).await;
    assert_eq!(client.get("/api/v1/configmaps").await.resource_version(), first);
    for round in 0..5 {
        let elsewhere = client.create(&secret(&format!("s{round}"))).await;
        let list = client.get("/api/v1/configmaps").await.with_code(200);
        assert_eq!(list.resource_version(), elsewhere);
        let latest = with_query("/api/v1/configmaps", &[("continue", &token("-1/default"))]);
        assert_eq!(client.get(&latest).await.with_code(200).resource_version(), elsewhere);
        assert_eq!(client.get("/api/v1/configmaps?resourceVersion=0").await.resource_version(), elsewhere);
    }
}

#[tokio::test]
async fn pages_are_one_state_whatever_happens_between_them() {
    let server = server().await;
    let client = server.client();
    client.get("/api/v1/configmaps").await.with_code(200);
    for name in ["a", "b", "c", "d"] {
        client.create(&configmap(name)).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/configmaps?limit=1".to_owned();
    let (mut position, mut calls) = (None, 0_u64);
    loop {
        let page = client.get(&path).await.with_code(200);
        calls += 1;
        let at = *position.get_or_insert_with(|| page.resource_version());
        assert_eq!(page.resource_version(), at, "page {calls}");
        names.extend(page.keys());
        let Some(token) = page.token() else {
            assert_eq!(page.remaining(), None);
            break;
        };
        assert_eq!(page.remaining(), Some(4 - calls));
        path = with_query("/api/v1/configmaps?limit=1", &[("continue", &token)]);
        // A delete, a create and an update the pages must not show.
        match calls {
            1 => client.delete(&configmap("c").path()).await.with_code(200).code.is_success(),
            2 => client.create(&configmap("bb")).await > at,
            _ => client.update(&configmap("d").data("new")).await > at,
        };
    }
    assert_eq!(names, ["default/a", "default/b", "default/c", "default/d"]);
    assert_eq!(calls, 4);
    let after = client.get("/api/v1/configmaps").await;
    assert_eq!(after.keys(), ["default/a", "default/b", "default/bb", "default/d"]);
}

#[tokio::test]
async fn pages_count_what_matches() {
    let server = server().await;
    let client = server.client();
    for index in 0..10 {
        let odd = if index % 2 == 1 { "true" } else { "false" };
        client.create(&configmap(&format!("test-{index}")).label("odd", odd)).await;
    }
    let path = "/api/v1/configmaps?limit=3&labelSelector=odd%3Dtrue";
    let first = client.get(path).await.with_code(200);
    assert_eq!(first.keys(), ["default/test-1", "default/test-3", "default/test-5"]);
    assert_eq!(first.remaining(), None, "never with a selector");
    let second = client.get(&with_query(path, &[("continue", &first.token().unwrap())])).await.with_code(200);
    assert_eq!(second.keys(), ["default/test-7", "default/test-9"]);
    assert_eq!((second.token(), second.remaining()), (None, None));

    // Whether another object matches is not looked at: the page after the last match may be empty.
    let path = "/api/v1/configmaps?limit=1&labelSelector=odd%3Dfalse&fieldSelector=metadata.name%3Dtest-8";
    let first = client.get(path).await.with_code(200);
    assert_eq!(first.keys(), ["default/test-8"]);
    let second = client.get(&with_query(path, &[("continue", &first.token().unwrap())])).await.with_code(200);
    assert!(second.text().contains(r#""items":[]"#), "{}", second.text());
}

#[tokio::test]
async fn an_expired_page_offers_to_go_on_with_the_latest_state() {
    let server = server().await;
    let client = server.client();
    let begin = client.get("/api/v1/configmaps").await.resource_version();
    for name in ["a", "b", "c", "d"] {
        client.create(&configmap(name)).await;
    }
    let lost = token(&format!("{}/default/a$", begin - 1));
    for query in [&[("limit", "1"), ("continue", lost.as_str())][..], &[("continue", lost.as_str())][..]] {
        let answer = client.get(&with_query("/api/v1/configmaps", query)).await.with_code(410);
        let status = answer.json();
        assert_eq!((&status["reason"], &status["details"]), (&json!("Expired"), &json!(null)));
        assert!(
            answer.message().starts_with("The provided continue parameter is too old to display a consistent list")
        );
        let offered = ContinueToken::decode(&answer.token().expect("a token to go on with")).unwrap();
        assert_eq!(offered, ContinueToken { resource_version: Position::Latest, start: "default/a\0".into() });
    }
    let answer = client.get(&with_query("/api/v1/configmaps?limit=1", &[("continue", &lost)])).await;
    let newest = client.create(&configmap("bb")).await;
    let next = with_query("/api/v1/configmaps?limit=2", &[("continue", &answer.token().unwrap())]);
    let page = client.get(&next).await.with_code(200);
    assert_eq!((page.keys(), page.resource_version()), (vec!["default/b".into(), "default/bb".into()], newest));
    // From there on the pages are one state again.
    client.delete(&configmap("d").path()).await.with_code(200);
    let next = with_query("/api/v1/configmaps?limit=2", &[("continue", &page.token().unwrap())]);
    let page = client.get(&next).await.with_code(200);
    assert_eq!((page.keys(), page.resource_version()), (vec!["default/c".into(), "default/d".into()], newest));
    assert_eq!(page.token(), None);
}

/// Goal: which of several errors wins, and what the rest returns. Method: all 96 combinations of four parameters.
#[tokio::test]
async fn of_several_errors_the_first_in_kubernetes_order_wins() {
    let server = server().await;
    let client = server.client();
    let sets = "/apis/apps/v1/replicasets";
    let lost = (client.get(sets).await.with_code(200).resource_version() - 1).to_string();
    for index in 0..15 {
        client.create(&replica_set(&format!("test-{index:02}"))).await;
    }
    for index in 0..5 {
        client.delete(&replica_set(&format!("test-{index:02}")).path()).await.with_code(200);
    }
    let valid = client.get(&format!("{sets}?limit=6")).await.token().unwrap();
    for limit in ["", "6"] {
        for continue_token in ["", valid.as_str(), "invalidContinueToken"] {
            for position in ["", "0", &lost, "invalid"] {
                for matching in ["", "NotOlderThan", "Exact", "InvalidMatch"] {
                    let named = [
                        ("limit", limit),
                        ("continue", continue_token),
                        ("resourceVersion", position),
                        ("resourceVersionMatch", matching),
                    ];
                    let query: Vec<_> = named.into_iter().filter(|(_, value)| !value.is_empty()).collect();
                    let answer = client.get(&with_query(sets, &query)).await;
                    match refusal(limit, continue_token, position, matching, &lost) {
                        Some((code, text)) => {
                            let found = answer.with_code(code).message();
                            assert!(found.contains(text), "{query:?}: {found}");
                        }
                        None => {
                            // The cache ignores a limit at 0; ten remain, and six of them were on page one.
                            let count = match (continue_token, limit, position, matching) {
                                ("", "6", "0", _) | ("", "", _, _) => 10,
                                ("", _, _, _) => 6,
                                (_, _, _, _) => 4,
                            };
                            assert_eq!(answer.with_code(200).keys().len(), count, "{query:?}");
                        }
                    }
                }
            }
        }
    }
}

fn refusal(limit: &str, token: &str, position: &str, matching: &str, lost: &str) -> Option<(u16, &'static str)> {
    let has = |text: &str| !text.is_empty();
    if has(matching) && !has(position) {
        return Some((422, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if has(matching) && has(token) {
        return Some((422, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if matching == "InvalidMatch" {
        return Some((422, "supported values"));
    }
    if matching == "Exact" && position == "0" {
        return Some((422, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
    if position == "invalid" && !has(token) {
        return Some((400, "Invalid value"));
    }
    if token == "invalidContinueToken" {
        return Some((400, "continue key is not valid"));
    }
    if has(token) && has(position) && position != "0" {
        return Some((400, "specifying resource version is not allowed when using continue"));
    }
    let exact = matching == "Exact" || (has(limit) && !has(matching));
    (position == lost && exact).then_some((410, "The resourceVersion for the provided list is too old"))
}

#[tokio::test]
async fn lists_are_in_byte_order_of_their_keys() {
    let server = server().await;
    let client = server.client();
    let keys = ["b/z", "a/x", "a-b/x", "a/x-1", "a/x.1", "a/x1", "a0/x"];
    for key in keys {
        let (namespace, name) = key.split_once('/').unwrap();
        client.create(&configmap(name).namespace(namespace)).await;
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    assert_eq!(client.get("/api/v1/configmaps").await.with_code(200).keys(), sorted);
    for name in ["node-2", "node-10", "node-1"] {
        client.create(&node(name)).await;
    }
    let first = client.get("/api/v1/nodes?limit=2").await.with_code(200);
    assert_eq!(first.keys(), ["node-1", "node-10"]);
    assert_eq!(ContinueToken::decode(&first.token().unwrap()).unwrap().start, "node-10\0");
    let next = with_query("/api/v1/nodes?limit=2", &[("continue", &first.token().unwrap())]);
    assert_eq!(client.get(&next).await.with_code(200).keys(), ["node-2"]);
}

#[tokio::test]
async fn namespaces_with_a_common_prefix_stay_apart() {
    let server = server().await;
    let client = server.client();
    for namespace in ["foo", "foo-bar", "foobar"] {
        for name in ["a", "b"] {
            client.create(&pod(name).namespace(namespace)).await;
        }
    }
    for (place, expected) in [
        ("/api/v1/namespaces/foo/pods", &["foo/a", "foo/b"][..]),
        ("/api/v1/namespaces/foo-bar/pods", &["foo-bar/a", "foo-bar/b"]),
        ("/api/v1/namespaces/foobar/pods", &["foobar/a", "foobar/b"]),
        ("/api/v1/namespaces/fo/pods", &[]),
        ("/api/v1/namespaces/foo/pods?limit=2", &["foo/a", "foo/b"]),
        ("/api/v1/namespaces/foo/pods?resourceVersion=0", &["foo/a", "foo/b"]),
        ("/api/v1/pods?fieldSelector=metadata.namespace%3Dfoo", &["foo/a", "foo/b"]),
    ] {
        assert_eq!(client.get(place).await.with_code(200).keys(), expected, "{place}");
    }
    let first = client.get("/api/v1/namespaces/foo/pods?limit=1").await.with_code(200);
    assert_eq!((first.keys(), first.remaining()), (vec!["foo/a".to_owned()], Some(1)));
    // A token cannot reach out of the list it is used on.
    for start in ["../foo-bar/a", "../../secrets/x"] {
        let token = token(&format!("{}/{start}", first.resource_version()));
        let answer = client.get(&with_query("/api/v1/namespaces/foo/pods", &[("continue", &token)])).await;
        answer.with_code(400);
    }
}

#[tokio::test]
async fn names_and_namespaces_select_the_intersection() {
    let server = server().await;
    let client = server.client();
    for namespace in ["ns0", "ns1", "ns2"] {
        for name in ["bar", "foo"] {
            client.create(&secret(name).namespace(namespace)).await;
        }
    }
    for (place, selector, expected) in [
        ("/api/v1/secrets", "metadata.name=foo", &["ns0/foo", "ns1/foo", "ns2/foo"][..]),
        ("/api/v1/secrets", "metadata.name=foo,metadata.name=bar", &[]),
        ("/api/v1/secrets", "metadata.name=foo,metadata.namespace=ns1", &["ns1/foo"]),
        ("/api/v1/secrets", "metadata.namespace=ns1", &["ns1/bar", "ns1/foo"]),
        ("/api/v1/secrets", "metadata.namespace!=ns1,metadata.name!=foo", &["ns0/bar", "ns2/bar"]),
        ("/api/v1/secrets", "metadata.name=none", &[]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.name=foo", &["ns1/foo"]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.name=foo,metadata.namespace=ns1", &["ns1/foo"]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.name=foo,metadata.namespace=ns2", &[]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.name=foo,metadata.namespace=", &[]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.namespace=ns2", &[]),
        ("/api/v1/namespaces/ns1/secrets", "metadata.name!=foo", &["ns1/bar"]),
    ] {
        for more in [&[][..], &[("resourceVersion", "0")], &[("limit", "500")]] {
            let path = with_query(&with_query(place, &[("fieldSelector", selector)]), more);
            assert_eq!(client.get(&path).await.with_code(200).keys(), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn selectors_read_the_state_the_list_is_of() {
    let server = server().await;
    let client = server.client();
    client.get(PODS).await.with_code(200);
    let old = client.create(&pod("a").label("app", "web").node("n1")).await;
    client.create(&pod("b").label("app", "api").label("tier", "front")).await;
    client.create(&pod("c")).await;
    let new = client.update(&pod("a").label("app", "api").node("n2")).await;
    for (selector, expected) in [
        ("app=web", ""),
        ("app=api", "a b"),
        ("app in (web,api),!tier", "a"),
        ("app notin (api)", "c"),
        ("app!=api", "c"),
        ("app", "a b"),
        ("!app", "c"),
        ("tier=front,app==api", "b"),
    ] {
        let path = with_query(PODS, &[("labelSelector", selector)]);
        let keys = client.get(&path).await.with_code(200).keys();
        let names: Vec<_> = keys.iter().map(|key| key.trim_start_matches("default/")).collect();
        assert_eq!(names.join(" "), expected, "{selector}");
    }
    for (at, label, field, expected) in [
        (old, "app=web", "", 1),
        (old, "app=api", "", 0),
        (old, "", "spec.nodeName=n1", 1),
        (new, "app=web", "", 0),
        (new, "", "spec.nodeName=n1", 0),
        (new, "app=api", "spec.nodeName=n2", 1),
        (new, "app=api", "spec.nodeName=", 1),
    ] {
        let at = at.to_string();
        let query = [
            ("resourceVersion", at.as_str()),
            ("resourceVersionMatch", "Exact"),
            ("labelSelector", label),
            ("fieldSelector", field),
        ];
        let answer = client.get(&with_query(PODS, &query)).await.with_code(200);
        assert_eq!(answer.keys().len(), expected, "{query:?}");
        assert_eq!(answer.resource_version().to_string(), at);
    }
}

#[tokio::test]
async fn a_list_has_the_shape_clients_expect() {
    let server = server().await;
    let client = server.client();
    let empty = client.get("/api/v1/namespaces/none/configmaps").await.with_code(200);
    let at = empty.resource_version();
    assert_eq!(
        empty.text(),
        format!(
            "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{at}\"}},\"items\":[]}}\n"
        )
    );
    assert_eq!(empty.header("content-type"), "application/json");
    assert!(empty.header("cache-control").contains("private"));

    let written = client.create(&configmap("a").data("v")).await;
    let list = client.get("/api/v1/configmaps").await.with_code(200);
    let item = &list.json()["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&json!(null), &json!(null)), "items carry neither");
    assert_eq!(item["metadata"]["resourceVersion"], written.to_string());
    assert_eq!(item["data"], json!({"k": "v"}));
    assert!(list.text().ends_with("]}\n"));
    let object = client.get(&configmap("a").path()).await.with_code(200).json();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")), "objects carry both");
    let sets = client.get("/apis/apps/v1/replicasets").await.with_code(200).json();
    assert_eq!((&sets["kind"], &sets["apiVersion"]), (&json!("ReplicaSetList"), &json!("apps/v1")));
}

#[tokio::test]
async fn long_lists_come_whole_in_both_encodings() {
    const OBJECTS: usize = 300;
    for encoding in ["streaming", "buffered"] {
        let server = Server::start(BINARY, &["--first-revision", "1000", "--list-encoding", encoding]).await;
        let client = server.client();
        let filler = "x".repeat(5_000);
        for index in 0..OBJECTS {
            client.create(&configmap(&format!("c{index:04}")).data(&filler)).await;
        }
        let list = client.get("/api/v1/configmaps").await.with_code(200);
        assert!(list.body.len() > OBJECTS * filler.len(), "{encoding}");
        let keys = list.keys();
        assert_eq!(keys.len(), OBJECTS, "{encoding}");
        assert!(keys.is_sorted(), "{encoding}");
        assert!(list.json()["items"].as_array().unwrap().iter().all(|item| item["data"]["k"] == filler.as_str()));
    }
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_position() {
    let server = server().await;
    let client = server.client();
    let object: Object = configmap("a").data("v").label("app", "x");
    let written = client.create(&object).await;
    assert_eq!(client.update(&object).await, written);
    let same = client.patch(&object.path(), MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
    assert_eq!(same.resource_version(), written);
    assert_eq!(client.get("/api/v1/configmaps").await.resource_version(), written);
    assert!(client.update(&configmap("a").data("w")).await > written);
}
