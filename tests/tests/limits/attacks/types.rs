//! Attacks with definitions, selectors and namespaces.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tests::{
    http::{Client, with_query},
    objects::{configmap, namespace},
};
use tokio::time::sleep;

use super::{Size, victim::Victim};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A definition of `name`s in `example.com`, with printer columns.
fn definition(name: &str, columns: usize) -> Value {
    let columns: Vec<_> =
        (0..columns).map(|index| json!({"name": format!("c{index}"), "type": "string", "jsonPath": "..*"})).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": format!("{name}s"), "singular": name, "kind": format!("Kind{name}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

/// Creates objects whose tables have cells that each search a whole object, with as many columns as the server accepts.
pub(crate) async fn create_wide(client: Client, size: Size) {
    for columns in [5_000, 1_000, 500, 200, 100, 50] {
        if client.post(DEFINITIONS, &definition("wide", columns)).await.code == 201 {
            break;
        }
    }
    let items = vec![json!({"a": 1, "b": [2, 3]}); size.of(20_000, 2_000)];
    for index in 0..size.of(20, 2) {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Kindwide",
            "metadata": {"name": format!("w{index}")}, "spec": {"items": items}});
        client.post("/apis/example.com/v1/namespaces/default/wides", &object).await.with_code(201);
    }
}

/// Requests such tables.
pub(crate) async fn wide_rows(server: &Victim, size: Size) {
    let client = server.client();
    create_wide(client, size).await;
    let tables = (0..4).map(|_| client.get_with("/apis/example.com/v1/wides", &[("accept", AS_TABLE)]));
    for answer in join_all(tables).await {
        assert!(answer.code == 200 || answer.code == 503 || answer.code == 429, "{}", answer.code);
    }
}

/// Creates and deletes definitions; their metrics must disappear.
pub(crate) async fn definitions_churn(server: &Victim, size: Size) {
    let client = server.client();
    let series = async || client.get("/metrics").await.with_code(200).text().lines().count();
    let before = series().await;
    for index in 0..size.of(300, 10) {
        let name = format!("t{index}");
        client.post(DEFINITIONS, &definition(&name, 0)).await.with_code(201);
        let object = json!({"apiVersion": "example.com/v1", "kind": format!("Kind{name}"), "metadata": {"name": "o"}});
        client.post(&format!("/apis/example.com/v1/namespaces/default/{name}s"), &object).await.with_code(201);
        client.delete(&format!("{DEFINITIONS}/{name}s.example.com")).await.with_code(200);
    }
    let mut after = usize::MAX;
    for _ in 0..100 {
        after = series().await;
        if after <= before + 100 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("{before} lines of metrics before, {after} after the types are gone");
}

/// Posts a definition with ten thousand versions, and further definitions after it.
pub(crate) async fn many_versions(server: &Victim, size: Size) {
    let client = server.client();
    let mut many = definition("many", 0);
    let first = many["spec"]["versions"][0].clone();
    let versions: Vec<_> = (0..size.of(10_000, 500))
        .map(|index| {
            let mut version = first.clone();
            version["name"] = format!("v{}", index + 1).into();
            version["storage"] = (index == 0).into();
            version
        })
        .collect();
    many["spec"]["versions"] = versions.into();
    client.post(DEFINITIONS, &many).await;
    for index in 0..5 {
        client.post(DEFINITIONS, &definition(&format!("after{index}"), 0)).await.with_code(201);
    }
}

/// Opens watches and lists with selectors of thousands of conditions.
pub(crate) async fn long_selectors(server: &Victim, size: Size) {
    let client = server.client();
    let selector = |seed: usize, bytes: usize| {
        let values: Vec<_> = (0..bytes / 8).map(|index| format!("{seed:03}{index:04}")).collect();
        format!("app notin ({})", values.join(","))
    };
    let mut watches = Vec::new();
    for index in 0..size.of(500, 20) {
        let query = [("watch", "1"), ("timeoutSeconds", "20"), ("labelSelector", &selector(index, 30_000))];
        watches.push(client.try_watch(&with_query("/api/v1/pods", &query)).await);
    }
    let conditions: Vec<_> = (0..size.of(3_000, 300)).map(|index| format!("l{index}!=v{index}")).collect();
    let path = with_query("/api/v1/pods", &[("labelSelector", &conditions.join(","))]);
    join_all((0..16).map(|_| client.try_get(&path))).await;
    for index in 0..20 {
        client.post("/api/v1/namespaces/default/configmaps", configmap(&format!("beside{index}")).body()).await;
    }
}

/// Creates large namespaces that look as if they were being deleted, and deletes others.
pub(crate) async fn false_marks(server: &Victim, size: Size) {
    let client = server.client();
    let note = "x".repeat(size.of(200_000, 20_000));
    for index in 0..size.of(150, 10) {
        let mut large = namespace(&format!("large{index}")).body().clone();
        large["metadata"]["annotations"] = json!({"deletionTimestamp": note});
        client.post("/api/v1/namespaces", &large).await.with_code(201);
    }
    end_namespaces(client, size.of(10, 2)).await;
}

/// Creates many namespaces and deletes some.
pub(crate) async fn many_namespaces(server: &Victim, size: Size) {
    let client = server.client();
    for start in (0..size.of(20_000, 200)).step_by(50) {
        let create = (start..start + 50).map(async |index| {
            client.post("/api/v1/namespaces", namespace(&format!("many{index}")).body()).await.with_code(201)
        });
        join_all(create).await;
    }
    end_namespaces(client, size.of(20, 2)).await;
}

async fn end_namespaces(client: Client, count: usize) {
    for index in 0..count {
        let ending = namespace(&format!("ending{index}"));
        client.post("/api/v1/namespaces", ending.body()).await.with_code(201);
        client.delete(&ending.path()).await.with_code(200);
    }
}
