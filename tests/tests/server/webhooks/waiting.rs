//! Writes that wait for webhooks delay no others.

use std::{collections::BTreeSet, sync::Arc};

use cache_server::{config::Config, testing};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    APPLY_PATCH, CONFIGMAPS, SHORT_ANSWER_BYTES_MAX, allows, client, configure, denies,
    hook::{Hook, Reply},
    name, named, start, webhook,
};

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Goal: a slow webhook delays no write of another Service. Method: one that never answers, and a Service beside.
#[tokio::test]
async fn a_slow_webhook_holds_no_turn() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| Reply::Never).await;
    let more = json!({"objectSelector": {"matchLabels": {"slow": "true"}}, "timeoutSeconds": 30});
    configure(&client, "Validating", "x", &[webhook(&hook, "x", &["services"], &more)]).await.with_code(201);
    let service = |name: &str, slow: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name,
        "labels": {"slow": slow}}, "spec": {"ports": [{"port": 80}]}})
    };
    let slow = tokio::spawn(async move { client.post(SERVICES, &service("a", "true")).await });
    while hook.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let other = client.post(SERVICES, &service("b", "false")).await.with_code(201).json();
    assert!(other["spec"]["clusterIP"].is_string(), "{other}");
    slow.abort();
}

/// Applies an object of a kind in YAML: the server counts it as a large write.
async fn apply_yaml(client: Client, kind: &str, name: &str) -> Answer {
    let path = format!("/api/v1/namespaces/default/{}s/{name}?fieldManager=me", kind.to_lowercase());
    let body = format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n");
    let headers = [("content-type", APPLY_PATCH)];
    client.send(Client::request(Method::PATCH, &path, &headers, body.into())).await
}

/// Goal: webhooks that write to the server before they answer, and slow ones, block no write. Method: more large writes at once
/// than the server runs, whose webhook waits for all of them, and makes one more for each.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_write_before_it_answers() {
    const WRITERS: usize = 16;
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| allows()).await;
    for kind in ["Mutating", "Validating"] {
        configure(&client, kind, "x", &[webhook(&hook, &kind.to_lowercase(), &["secrets"], &json!({}))])
            .await
            .with_code(201);
    }
    let all = Arc::new(Barrier::new(WRITERS));
    hook.meanwhile(move |question| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
            let answer = apply_yaml(client, "ConfigMap", name(&question["object"])).await;
            assert!(answer.code.is_success(), "{}", answer.text());
        }
    });
    let names: Vec<_> = (0..WRITERS).map(|at| format!("s{at}")).collect();
    for answer in join_all(names.iter().map(|name| apply_yaml(client, "Secret", name))).await {
        answer.with_code(201);
    }
    assert_eq!(hook.seen().len(), 2 * WRITERS);
    let made = client.get(CONFIGMAPS).await.json();
    assert_eq!(made["items"].as_array().map(Vec::len), Some(WRITERS));
}

/// Goal: a flood of writes to a webhook that does not answer costs bounded memory, delays no other type, and ends with its
/// clients. Method: writes until one is refused, another type, and a write after the clients left.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_for_a_webhook_are_bounded() {
    const CALLS_MAX: usize = 256;
    let (_api, client) = start().await;
    let hook = Hook::start(|_, question| if question["name"] == "last" { allows() } else { Reply::Never }).await;
    let more = json!({"timeoutSeconds": 30});
    configure(&client, "Validating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
    let mut writes = JoinSet::new();
    for at in 0..CALLS_MAX {
        writes.spawn(async move { client.post(CONFIGMAPS, &named(&format!("c{at}"))).await });
    }
    while hook.seen().len() < CALLS_MAX {
        tokio::task::yield_now().await;
    }
    let refused = client.post(CONFIGMAPS, &named("last")).await.with_code(429);
    assert_eq!(refused.header("retry-after"), "1");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    client.post("/api/v1/namespaces/default/secrets", &secret).await.with_code(201);
    drop(writes);
    while client.post(CONFIGMAPS, &named("last")).await.code != 201 {
        tokio::task::yield_now().await;
    }
}

/// Goal: Services that webhooks decide about at once get different addresses, and those that are refused give theirs back.
/// Method: as many Services as there are addresses, whose webhook waits for all of them; refused ones first.
#[tokio::test]
async fn services_that_wait_for_webhooks_hold_their_addresses() {
    // Of the six addresses, `kubernetes` has one.
    const FREE: usize = 5;
    let config =
        Config { acts_as_cluster: true, service_range: "10.9.0.0/29".parse().expect("a range"), ..Config::default() };
    let server = testing::start_with(config).await.expect("starts");
    let client = client(&server);
    let all = Arc::new(Barrier::new(FREE));
    let hook = Hook::start(|_, question| {
        let is_refused = question["name"].as_str().is_some_and(|name| name.starts_with('a'));
        if is_refused { denies("no") } else { allows() }
    })
    .await;
    hook.meanwhile(move |_| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
        }
    });
    configure(&client, "Validating", "x", &[webhook(&hook, "x", &["services"], &json!({}))]).await.with_code(201);
    let mut addresses = BTreeSet::new();
    for (prefix, code) in [("a", 403), ("b", 201)] {
        let writes = (0..FREE).map(|at| async move {
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("{prefix}{at}")},
                "spec": {"ports": [{"port": 80}]}});
            client.post(SERVICES, &service).await.with_code(code).json()
        });
        let made = join_all(writes).await;
        addresses.extend(made.iter().filter_map(|service| service["spec"]["clusterIP"].as_str().map(str::to_owned)));
    }
    assert_eq!(addresses.len(), FREE, "{addresses:?}");
}

/// Goal: a dry run of a Service passes its webhooks, though the address that it shows is in no range. Method: a create, and a
/// change that needs an address and a port.
#[tokio::test]
async fn a_dry_run_of_a_service_passes_its_webhooks() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| allows()).await;
    for kind in ["Mutating", "Validating"] {
        configure(&client, kind, "x", &[webhook(&hook, "x", &["services"], &json!({}))]).await.with_code(201);
    }
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    let on_nodes = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    let external = service(json!({"type": "ExternalName", "externalName": "a.example.com"}));
    let tried = client.post(&format!("{SERVICES}?dryRun=All"), &on_nodes).await.with_code(201).json();
    client.post(SERVICES, &external).await.with_code(201);
    let changed = client.put(&format!("{SERVICES}/a?dryRun=All"), &on_nodes).await.with_code(200).json();
    for service in [tried, changed] {
        assert!(
            service["spec"]["clusterIP"].is_string() && service["spec"]["ports"][0]["nodePort"].is_u64(),
            "{service}"
        );
    }
    client.put(&format!("{SERVICES}/a"), &on_nodes).await.with_code(200);
}

/// Goal: long answers are read in turn, and none is lost. Method: more of them at once than the server reads.
#[tokio::test(flavor = "multi_thread")]
async fn long_answers_wait_for_each_other() {
    const WRITES: usize = 12;
    let (_api, client) = start().await;
    let patch = json!([{"op": "add", "path": "/data", "value": {"k": "v".repeat(SHORT_ANSWER_BYTES_MAX)}}]);
    let hook = Hook::start(move |_, _| Reply::patch(&patch)).await;
    let all = Arc::new(Barrier::new(WRITES));
    hook.meanwhile(move |_| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
        }
    });
    let more = json!({"timeoutSeconds": 30});
    configure(&client, "Mutating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
    let names: Vec<_> = (0..WRITES).map(|at| format!("c{at}")).collect();
    let writes = names.iter().map(|name| async move { client.post(CONFIGMAPS, &named(name)).await });
    for answer in join_all(writes).await {
        let made = answer.with_code(201).json();
        assert_eq!(made["data"]["k"].as_str().map(str::len), Some(SHORT_ANSWER_BYTES_MAX));
    }
}
