//! LIST scenarios over real sockets: against the real binary and, where the protocol alone decides, also against the
//! fake API server. Cases that are plain data are in the table (`tests/src/table/`).

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use bytes::Bytes;
use http::Method;
use informer_serving::continue_token::{ContinueToken, Position};
use serde_json::json;
use tests::{
    http::{Client, MERGE_PATCH, with_query},
    objects::{Object, configmap, replica_set, secret},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

tests::on_both![
    a_position_that_comes_in_time_is_served,
    a_list_contains_every_write_answered_before_it,
    a_consistent_list_is_as_new_as_the_last_write_of_any_type,
    pages_are_one_state_whatever_happens_between_them,
    after_an_expired_page_the_rest_is_one_state_again,
    of_several_errors_the_first_in_kubernetes_order_wins,
    a_list_has_the_shape_clients_expect,
    an_update_that_changes_nothing_keeps_the_position,
    methods_that_a_path_does_not_take_are_refused,
];

/// Encodes `1005/ns/name$`: a token at 1005 that starts after `ns/name`; without `$` it starts at it; `-1` is the
/// latest.
fn token(text: &str) -> String {
    let (position, start) = text.split_once('/').unwrap();
    let resource_version = position.parse().map_or(Position::Latest, Position::At);
    ContinueToken { resource_version, start: start.replace('$', "\0") }.encode()
}

/// Goal: a continue token of another server is never answered with this server's state. Method: two servers with equal
/// positions, and the token of one at both, with the id of its history and without it.
#[tokio::test]
async fn a_continue_token_of_another_history_expires() {
    let start = async || Server::start(BINARY, &["--first-revision", "1000"]).await;
    let (minting, other) = (start().await, start().await);
    for server in [&minting, &other] {
        for name in ["a", "b"] {
            server.client().create(&configmap(name)).await;
        }
    }
    let page = minting.client().get("/api/v1/configmaps?limit=1").await.with_code(200);
    let token = page.token().unwrap();
    let next = |token: &str| format!("/api/v1/configmaps?limit=1&continue={token}");
    assert_eq!(minting.client().get(&next(&token)).await.with_code(200).keys(), ["default/b"]);
    let refused = other.client().get(&next(&token)).await.with_code(410);
    assert!(refused.message().starts_with("The provided continue parameter is too old"), "{}", refused.text());
    assert_eq!(refused.json()["reason"], "Expired");
    let offered = refused.token().unwrap();
    assert_eq!(other.client().get(&next(&offered)).await.with_code(200).keys(), ["default/b"]);
    // As kube-apiserver writes it.
    let plain = ContinueToken::decode(&token).unwrap().encode();
    assert_eq!(other.client().get(&next(&plain)).await.with_code(200).keys(), ["default/b"]);
}

async fn a_position_that_comes_in_time_is_served(client: Client) {
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

async fn a_list_contains_every_write_answered_before_it(client: Client) {
    for round in 0..50 {
        let object = configmap(&format!("c{round:02}"));
        let written = client.create(&object).await;
        let list = client.get(&object.collection()).await.with_code(200);
        assert!(list.resource_version() >= written, "round {round}");
        assert_eq!(list.keys().len(), round + 1);
    }
}

async fn a_consistent_list_is_as_new_as_the_last_write_of_any_type(client: Client) {
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

async fn pages_are_one_state_whatever_happens_between_them(client: Client) {
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
        // A delete, a create and an update, which the pages must not show.
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

async fn after_an_expired_page_the_rest_is_one_state_again(client: Client) {
    let begin = client.get("/api/v1/configmaps").await.resource_version();
    for name in ["a", "b", "c", "d"] {
        client.create(&configmap(name)).await;
    }
    let lost = token(&format!("{}/default/a$", begin - 1));
    let answer = client.get(&with_query("/api/v1/configmaps?limit=1", &[("continue", &lost)])).await;
    let newest = client.create(&configmap("bb")).await;
    let next = with_query("/api/v1/configmaps?limit=2", &[("continue", &answer.token().unwrap())]);
    let page = client.get(&next).await.with_code(200);
    assert_eq!((page.keys(), page.resource_version()), (vec!["default/b".into(), "default/bb".into()], newest));
    // From here on the pages are one state again.
    client.delete(&configmap("d").path()).await.with_code(200);
    let next = with_query("/api/v1/configmaps?limit=2", &[("continue", &page.token().unwrap())]);
    let page = client.get(&next).await.with_code(200);
    assert_eq!((page.keys(), page.resource_version()), (vec!["default/c".into(), "default/d".into()], newest));
    assert_eq!(page.token(), None);
}

/// Goal: with several errors the right one wins, and valid requests succeed. Method: all 96 combinations of four
/// parameters.
async fn of_several_errors_the_first_in_kubernetes_order_wins(client: Client) {
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
                            // The cache ignores a limit at 0. Ten objects exist, and six of them were on page one.
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

async fn a_list_has_the_shape_clients_expect(client: Client) {
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

async fn an_update_that_changes_nothing_keeps_the_position(client: Client) {
    let object: Object = configmap("a").data("v").label("app", "x");
    let written = client.create(&object).await;
    assert_eq!(client.update(&object).await, written);
    let same = client.patch(&object.path(), MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
    assert_eq!(same.resource_version(), written);
    assert_eq!(client.get("/api/v1/configmaps").await.resource_version(), written);
    assert!(client.update(&configmap("a").data("w")).await > written);
}

#[tokio::test]
async fn paths_that_are_not_served_are_plain_text() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    for path in ["/apis/none/v1", "/apis/none/v1/foos", "/nothing"] {
        let answer = client.get(path).await.with_code(404);
        assert_eq!(
            (answer.text(), answer.header("content-type")),
            ("404 page not found\n", "text/plain; charset=utf-8"),
            "{path}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
}

async fn methods_that_a_path_does_not_take_are_refused(client: Client) {
    for (method, path) in [
        (Method::PUT, "/api/v1/namespaces/default/configmaps".to_owned()),
        (Method::POST, "/api/v1/namespaces/default/configmaps/a".to_owned()),
    ] {
        let answer = client.send(Client::request(method, &path, &[], Bytes::new())).await.with_code(405);
        assert_eq!(answer.json()["reason"], "MethodNotAllowed", "{path}");
    }
}
