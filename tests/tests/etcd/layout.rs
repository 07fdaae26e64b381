//! One server on one etcd: the keys and values are those of Kubernetes, and other clients of etcd may change them.

pub(crate) mod manifests;

use serde_json::{Value, json};
use tests::{
    etcd::EtcdCluster,
    http::{Client, MERGE_PATCH, with_query},
    objects::configmap,
};

use self::manifests::manifests;
use super::{MAP_KEYS, MAPS, assert_converged, listed, raw_map, serve};

/// Creates the object of a manifest. The collection of a new definition may be served a moment later. Returns its
/// resourceVersion, or `None` if the server does not serve the type.
pub(crate) async fn create(client: &Client, collection: &str, manifest: &Value) -> Option<u64> {
    let mut answer = None;
    super::until(&format!("{collection} is served"), async || {
        let is_served = client.get(collection).await.code == 200 || collection.contains("apiregistration");
        if is_served {
            answer = Some(client.post(collection, manifest).await);
        }
        is_served
    })
    .await;
    let answer = answer.filter(|answer| answer.code != 404)?;
    Some(answer.with_code(201).resource_version())
}

/// Goal: every object is at the key that Kubernetes gives it, as JSON, and its resourceVersion is etcd's. Method: an object of
/// each kind of key, created over HTTP and read from etcd.
#[tokio::test]
async fn objects_are_at_the_keys_of_kubernetes_as_json() {
    let Some(etcd) = EtcdCluster::start("etcd layout").await else { return };
    let server = serve(&etcd, &[]).await;
    let client = server.client();
    for (collection, manifest, key) in manifests() {
        let Some(at) = create(&client, collection, &manifest).await else {
            println!("{collection} is not served");
            continue;
        };
        let key = format!("/registry/{key}");
        let Some(pair) = etcd.keys().get(&key).await else {
            let all: Vec<String> = etcd.keys().range("").await.into_iter().map(|pair| pair.key).collect();
            panic!("no {key} in {all:?}");
        };
        // A definition's status and a namespace's finalizers may follow at once.
        assert!(pair.create_revision == at && pair.mod_revision >= at, "{pair:?}, created at {at}");
        let stored = pair.json();
        assert_eq!((&stored["kind"], &stored["apiVersion"]), (&manifest["kind"], &manifest["apiVersion"]), "{key}");
        assert_eq!(stored["metadata"]["name"], manifest["metadata"]["name"], "{key}");
        assert!(stored["metadata"]["uid"].is_string(), "{key}: {stored}");
        let version = &stored["metadata"]["resourceVersion"];
        assert!(version.is_null() || version == "", "etcd has the version: {stored}");
    }
}

/// Goal: requests over HTTP and the keys of etcd agree in every step of an object's life. Method: create, read, replace, patch
/// and delete, with a watch over it all.
#[tokio::test]
async fn an_object_lives_in_etcd() {
    let Some(etcd) = EtcdCluster::start("etcd life").await else { return };
    let server = serve(&etcd, &[]).await;
    let (client, keys) = (server.client(), etcd.keys());
    let before = client.get(MAPS).await.with_code(200).resource_version().to_string();
    let mut watch = client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &before)])).await;
    let (object, key) = (configmap("a"), format!("{MAP_KEYS}default/a"));

    let created = client.create(&object.clone().data("1")).await;
    assert_eq!(keys.get(&key).await.unwrap().mod_revision, created);
    client.post(&object.collection(), object.body()).await.with_code(409);
    let replaced = client.update(&object.clone().data("2")).await;
    let patch = json!({"metadata": {"labels": {"app": "web"}}});
    let patched = client.patch(&object.path(), MERGE_PATCH, &patch).await.with_code(200).resource_version();
    let again = client.patch(&object.path(), MERGE_PATCH, &patch).await.with_code(200).resource_version();
    assert_eq!(again, patched, "a patch that changes nothing writes nothing");
    let stored = keys.get(&key).await.unwrap();
    assert_eq!(stored.mod_revision, patched);
    assert_eq!(
        (&stored.json()["data"]["k"], &stored.json()["metadata"]["labels"]["app"]),
        (&"2".into(), &"web".into())
    );
    let mut stale = stored.json();
    stale["metadata"]["resourceVersion"] = created.to_string().into();
    client.put(&object.path(), &stale).await.with_code(409);
    let selected = client.get(&with_query(MAPS, &[("labelSelector", "app=web")])).await.with_code(200);
    assert_eq!(listed(&selected.json()), [("default/a".to_owned(), patched)]);
    client.delete(&object.path()).await.with_code(200);
    assert!(keys.get(&key).await.is_none());
    client.get(&object.path()).await.with_code(404);

    let events = watch.events(4).await;
    let seen: Vec<(String, u64)> = events.iter().map(|event| (event.brief(), event.resource_version())).collect();
    let deleted = etcd.keys().history(MAP_KEYS, patched).await[0].revision();
    let due = [("ADDED", created), ("MODIFIED", replaced), ("MODIFIED", patched), ("DELETED", deleted)];
    assert_eq!(seen, due.map(|(kind, at)| (format!("{kind} default/a"), at)));
    assert_eq!(events[3].object["metadata"]["labels"]["app"], "web", "the object as it was");
    assert_converged(&client, &keys).await;
}

/// Goal: changes by other clients of etcd are served like those over HTTP. Method: keys are put and deleted in etcd, and read
/// over HTTP at once.
#[tokio::test]
async fn changes_past_the_server_are_served() {
    let Some(etcd) = EtcdCluster::start("etcd past the server").await else { return };
    let server = serve(&etcd, &[]).await;
    let (client, keys) = (server.client(), etcd.keys());
    let before = client.get(MAPS).await.with_code(200).resource_version().to_string();
    let mut watch = client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &before)])).await;
    let (key, object) = raw_map("past", "1");
    let created = keys.put(&key, object).await;
    assert_converged(&client, &keys).await;
    let changed = keys.put(&key, raw_map("past", "2").1).await;
    let found = client.get(&configmap("past").path()).await.with_code(200);
    assert_eq!((&found.json()["data"]["k"], found.resource_version()), (&"2".into(), changed));
    let deleted = keys.delete(&key).await;
    client.get(&configmap("past").path()).await.with_code(404);
    let events = watch.events(3).await;
    let seen: Vec<(String, u64)> = events.iter().map(|event| (event.brief(), event.resource_version())).collect();
    let due = [("ADDED", created), ("MODIFIED", changed), ("DELETED", deleted)];
    assert_eq!(seen, due.map(|(kind, at)| (format!("{kind} default/past"), at)));

    // A value that is no object does not hold up the others.
    keys.put(&format!("{MAP_KEYS}default/damaged"), "no object").await;
    let last = client.create(&configmap("last")).await;
    assert_eq!(watch.event().await.resource_version(), last);
    assert_eq!(listed(&client.get(MAPS).await.with_code(200).json()), [("default/last".to_owned(), last)]);
}

/// Goal: changes of one revision are one step: a watch has all of them, and continues behind all of them. Method: another
/// client of etcd changes several keys in transactions; watches from before, between and after.
#[tokio::test]
async fn changes_of_one_revision_are_one_step() {
    let Some(etcd) = EtcdCluster::start("etcd transactions").await else { return };
    let server = serve(&etcd, &[]).await;
    let (client, keys) = (server.client(), etcd.keys());
    let maps = |value: &str| ["a", "b", "c"].map(|name| raw_map(name, value));
    let before = client.get(MAPS).await.with_code(200).resource_version();
    let watch =
        async |at: u64| client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &at.to_string())])).await;
    let mut open = watch(before).await;
    keys.put_all(&maps("1")).await;
    let created = keys.revision().await;
    keys.put_all(&maps("2")).await;
    let changed = keys.revision().await;
    assert_eq!(changed, created + 1);
    for (mut watch, expected) in [(watch(before).await, 6), (watch(created).await, 3)] {
        let versions = watch.events(expected).await;
        let behind = versions.iter().filter(|event| event.resource_version() == changed).count();
        assert_eq!(behind, 3, "{versions:?}");
    }
    assert_eq!(open.events(6).await.len(), 6);
    let last = client.create(&configmap("last")).await;
    assert_eq!(watch(changed).await.event().await.resource_version(), last);
    assert_eq!(open.event().await.resource_version(), last);
}

/// Goal: two prefixes of one etcd are two clusters. Method: servers with different prefixes, of which one begins like the
/// other.
#[tokio::test]
async fn prefixes_are_separate() {
    let Some(etcd) = EtcdCluster::start("etcd prefixes").await else { return };
    // As in kube-apiserver, the first slash may be left out.
    let servers = [serve(&etcd, &["--etcd-prefix", "one"]).await, serve(&etcd, &["--etcd-prefix", "/one-more"]).await];
    let at = servers[0].client().create(&configmap("a")).await;
    servers[1].client().create(&configmap("b")).await;
    assert_eq!(servers[0].client().get(MAPS).await.with_code(200).keys(), ["default/a"]);
    assert_eq!(servers[1].client().get(MAPS).await.with_code(200).keys(), ["default/b"]);
    assert_eq!(etcd.keys().get("/one/configmaps/default/a").await.unwrap().mod_revision, at);
    assert!(etcd.keys().range("/registry/").await.is_empty());
}

/// Goal: large states, objects near the limit and many types are read whole. Method: raw keys of several pages and several
/// megabytes, read by a list, in pages, and as initial events.
#[tokio::test]
async fn many_and_large_objects_are_listed_whole() {
    let Some(etcd) = EtcdCluster::start("etcd sizes").await else { return };
    drop(serve(&etcd, &[]).await);
    let keys = etcd.keys();
    let object = |number: usize| {
        let bytes = if number.is_multiple_of(300) { 1_000_000 } else { 100 };
        raw_map(&format!("m{number:04}"), &"x".repeat(bytes))
    };
    keys.put_all(&(0..1_500).map(object).collect::<Vec<_>>()).await;
    let server = serve(&etcd, &[]).await;
    let client = server.client();
    assert_converged(&client, &keys).await;
    let (mut token, mut paged) = (Some(String::new()), Vec::new());
    while let Some(continues) = token {
        let page = client.get(&with_query(MAPS, &[("limit", "400"), ("continue", &continues)])).await.with_code(200);
        paged.extend(listed(&page.json()));
        token = page.token();
    }
    assert_eq!(paged, super::stored(&keys, 0).await);
    let mut watch = client.watch(&tests::http::watch_list(MAPS)).await;
    let events = watch.events(1_501).await;
    assert!(events[1_500].ends_initial_state());
    // An event of etcd with several large values comes in fragments.
    let large = "y".repeat(1_000_000);
    for number in 0..5 {
        client.update(&configmap(&format!("m{number:04}")).data(&large)).await;
    }
    assert_eq!(watch.events(5).await.len(), 5);
    assert_converged(&client, &keys).await;
}
