//! LIST scenarios beyond the rows of the table: paging, expired continue tokens, and freshness.

use http::Method;
use tests::{
    http::{Client, with_query},
    objects::{configmap, secret},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/configmaps";
/// ConfigMaps of a namespace in which kube-apiserver keeps none of its own.
const HERE: &str = "/api/v1/namespaces/default/configmaps";

/// Path of a page by its limit and token.
fn page(limit: usize, token: &str) -> String {
    with_query(CONFIGMAPS, &[("limit", &limit.to_string()), ("continue", token)])
}

async fn create_many(client: &Client, count: usize) {
    for index in 0..count {
        client.create(&configmap(&format!("c{index:03}")).label("odd", ["no", "yes"][index % 2])).await;
    }
}

#[tokio::test]
async fn pages_of_any_size_add_up_to_one_state() {
    const OBJECTS: usize = 120;
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let server = server(&[]).await;
    let client = server.client();
    create_many(&client, OBJECTS).await;
    for walk in 0..5 {
        let (mut seen, mut token, mut at) = (Vec::new(), String::new(), None);
        loop {
            let path = page(rng.usize(1..60), &token);
            let answer = client.get(&path).await.with_code(200);
            let position = *at.get_or_insert_with(|| answer.resource_version());
            assert_eq!(answer.resource_version(), position, "seed {seed}, walk {walk}: {path}");
            seen.extend(answer.keys());
            // No page contains objects written after the first one.
            client.create(&configmap(&format!("w{walk}-{}", seen.len())).namespace("later")).await;
            match answer.token() {
                Some(next) => {
                    let remaining = answer.remaining().expect("a count beside the token");
                    assert!(seen.len() + usize::try_from(remaining).expect("it fits") >= OBJECTS, "seed {seed}");
                    token = next;
                }
                None => break,
            }
        }
        assert!(seen.is_sorted(), "seed {seed}, walk {walk}");
        assert_eq!(seen.iter().filter(|key| key.starts_with("default/")).count(), OBJECTS, "seed {seed}, walk {walk}");
    }
}

#[tokio::test]
async fn a_walk_with_a_selector_needs_no_more_pages_than_its_matches_fill() {
    let server = server(&[]).await;
    let client = server.client();
    create_many(&client, 10).await;
    let (mut names, mut token, mut calls) = (Vec::new(), String::new(), 0);
    loop {
        let path = with_query(CONFIGMAPS, &[("limit", "3"), ("labelSelector", "odd=yes"), ("continue", &token)]);
        let answer = client.get(&path).await.with_code(200);
        assert_eq!(answer.remaining(), None, "nobody counted what the selector hides");
        names.extend(answer.keys());
        calls += 1;
        match answer.token() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!((names.len(), calls), (5, 2));
}

#[tokio::test]
async fn a_token_may_be_followed_with_another_limit_and_another_selector() {
    let server = server(&[]).await;
    let client = server.client();
    create_many(&client, 10).await;
    let first = client.get(&with_query(HERE, &[("limit", "4")])).await.with_code(200);
    let token = first.token().expect("six more");
    let rest = client.get(&with_query(HERE, &[("continue", &token)])).await.with_code(200);
    assert_eq!((rest.keys().len(), rest.token()), (6, None));
    let odd = client.get(&with_query(HERE, &[("continue", &token), ("labelSelector", "odd=yes")])).await;
    assert_eq!(odd.keys(), ["default/c005", "default/c007", "default/c009"]);
    assert_eq!(odd.resource_version(), first.resource_version());
}

/// Goal: tokens in the format of kube-apiserver's etcd store are accepted. Method: the server's token without the
/// leading slash of the key, and with members in another order and one more member.
#[tokio::test]
async fn a_token_as_others_write_it_leads_to_the_same_page() {
    let server = server(&[]).await;
    let client = server.client();
    create_many(&client, 10).await;
    let first = client.get(&page(4, "")).await.with_code(200);
    let at = first.resource_version();
    client.create(&configmap("c005x")).await;
    let ours = client.get(&page(4, &first.token().expect("six more"))).await.with_code(200);
    assert_eq!(ours.keys(), ["default/c004", "default/c005", "default/c006", "default/c007"]);
    for text in [
        format!(r#"{{"v":"meta.k8s.io/v1","rv":{at},"start":"default/c003\u0000"}}"#),
        format!(r#"{{"start":"/default/c003\u0000","more":{{}},"rv":{at},"v":"meta.k8s.io/v1"}}"#),
    ] {
        let theirs = client.get(&page(4, &base64(&text))).await.with_code(200);
        assert_eq!(theirs.body, ours.body, "{text}");
    }
}

/// Base64 in the URL-safe alphabet, without padding.
fn base64(text: &str) -> String {
    let bytes = serde_json::to_value(k8s_openapi::ByteString(text.into())).expect("bytes are a text");
    bytes.as_str().expect("bytes are a text").trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Goal: a client that pages slower than the history window lasts still gets the rest, and learns that it is of another
/// state. Method: a small window, and writes until the token's position has expired.
#[tokio::test]
async fn a_walk_outlives_its_history_by_the_token_in_the_error() {
    const OBJECTS: usize = 40;
    let server = server(&["--window-bytes", "65536"]).await;
    let client = server.client();
    create_many(&client, OBJECTS).await;
    let first = client.get(&page(15, "")).await.with_code(200);
    let (mut seen, token) = (first.keys(), first.token().expect("25 more"));
    let filler = "x".repeat(1_000_000);
    let path = configmap("filler").namespace("zoo").path();
    client.create(&configmap("filler").namespace("zoo")).await;
    let mut rounds = 0;
    let expired = loop {
        // The state of a paged list is retained up to a bound that these writes exceed.
        for _ in 0..20 {
            rounds += 1;
            let body = format!("{{\"metadata\":{{\"name\":\"filler\"}},\"data\":{{\"k\":\"{rounds}{filler}\"}}}}");
            let headers = [("content-type", "application/json")];
            client.send(Client::request(Method::PUT, &path, &headers, body.into())).await.with_code(200);
        }
        let answer = client.get(&page(10, &token)).await;
        if answer.code == 410 {
            break answer;
        }
        answer.with_code(200);
        assert!(rounds < 400, "a state of {rounds} writes ago is still there");
    };
    assert_eq!(expired.json()["reason"], "Expired");
    let (mut token, mut at) = (expired.token().expect("a way on"), None);
    loop {
        let answer = client.get(&page(10, &token)).await.with_code(200);
        let position = *at.get_or_insert_with(|| answer.resource_version());
        assert_eq!(answer.resource_version(), position, "the rest is one state again");
        seen.extend(answer.keys());
        match answer.token() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert!(at > Some(first.resource_version()));
    assert_eq!(seen.iter().filter(|key| key.starts_with("default/")).count(), OBJECTS);
    assert_eq!(seen.last().map(String::as_str), Some("zoo/filler"));
    assert!(seen.is_sorted());
}

#[tokio::test]
async fn any_freshness_is_never_behind_what_this_client_has_seen() {
    let server = server(&[]).await;
    let client = server.client();
    for round in 0..30 {
        let written = client.create(&configmap(&format!("c{round}"))).await;
        let seen = client.get(HERE).await.with_code(200).resource_version();
        let any = client.get(&with_query(HERE, &[("resourceVersion", "0")])).await.with_code(200);
        assert!(seen >= written && any.resource_version() >= seen, "round {round}");
        assert_eq!(any.keys().len(), round + 1);
    }
}

#[tokio::test]
async fn one_object_is_read_as_the_list_has_it() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("<&>\u{2028}\"\\ä🦀").label("app", "x")).await;
    let list = client.get(CONFIGMAPS).await.with_code(200);
    let mut object = client.get(&configmap("a").path()).await.with_code(200).json();
    let whole = object.as_object_mut().unwrap();
    assert_eq!((whole.remove("kind"), whole.remove("apiVersion")), (Some("ConfigMap".into()), Some("v1".into())));
    assert_eq!(list.json()["items"][0], object);
    assert_eq!(object["data"]["k"], "<&>\u{2028}\"\\ä🦀");
}

#[tokio::test]
async fn types_do_not_see_each_other() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("same")).await;
    let later = client.create(&secret("same")).await;
    let (maps, secrets) = (client.get(HERE).await, client.get("/api/v1/secrets").await);
    assert_eq!((maps.keys(), secrets.keys()), (vec!["default/same".into()], vec!["default/same".into()]));
    assert_eq!((maps.resource_version(), secrets.resource_version()), (later, later), "positions are of the storage");
    client.delete(&configmap("same").path()).await.with_code(200);
    assert_eq!(client.get("/api/v1/secrets").await.keys(), ["default/same"]);
}

#[tokio::test]
async fn objects_of_every_size_are_listed_whole() {
    let server = server(&[]).await;
    let client = server.client();
    let sizes = [0, 1, 2_000, 16_383, 16_384, 16_385, 65_536, 300_000, 1_000_000];
    for (index, size) in sizes.iter().enumerate() {
        client.create(&configmap(&format!("c{index}")).data(&"x".repeat(*size))).await;
    }
    let list = client.get(HERE).await.with_code(200).json();
    let found: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|item| item["data"]["k"].as_str().map(str::len)).collect();
    assert_eq!(found, sizes.map(Some));
    for (index, size) in sizes.iter().enumerate() {
        let one = client.get(&configmap(&format!("c{index}")).path()).await.with_code(200).json();
        assert_eq!(one["data"]["k"].as_str().map(str::len), Some(*size));
    }
}

/// Goal: `timeout` limits a request, and a watch has its own timeout. Method: a position that is never reached.
#[tokio::test]
async fn a_request_gets_no_more_time_than_it_asks_for() {
    let server = server(&["--first-revision", "1000"]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let ahead = with_query(CONFIGMAPS, &[("resourceVersion", "5000")]);
    let late = client.get(&format!("{ahead}&timeout=300ms")).await.with_code(504);
    assert_eq!(late.message(), "Timeout: request did not complete within the allotted timeout");
    let patient = client.get(&format!("{ahead}&timeout=10s")).await.with_code(504);
    assert!(patient.message().starts_with("Timeout: Too large resource version: 5000"), "{}", patient.message());
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&timeout=1ms&timeoutSeconds=6")).await;
    assert_eq!(tests::http::briefs(&watch.rest(tests::http::LINE_WAIT).await), ["ADDED default/a"]);
    for odd in ["abc", "5", "1s2", "-"] {
        let refused = client.get(&with_query(CONFIGMAPS, &[("timeout", odd)])).await.with_code(400);
        assert!(refused.message().starts_with("invalid timeout specified in the request URL - time: "), "{odd}");
    }
}
