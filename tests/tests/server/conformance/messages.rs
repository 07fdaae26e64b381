//! Protobuf answers: lists, objects, watches, metadata and errors.
//!
//! Goal: a client that prefers protobuf gets the objects that JSON has. Method: messages of k8s-pb, decoded by prost.

use std::collections::BTreeMap;

use http::Method;
use k8s_pb::{
    api::core::v1 as core,
    apimachinery::pkg::{
        apis::meta::v1::{ListMeta, ObjectMeta, Status, WatchEvent},
        runtime::Unknown,
    },
};
use prost::Message;
use serde_json::json;
use tests::{
    http::{Answer, Client, watch_list, with_query},
    objects::{configmap, pod},
};

use super::{define, server};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Of client-go.
const PREFERRED: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// k8s-pb has no such messages.
#[derive(Clone, PartialEq, Message)]
struct PartialObjectMetadata {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialObjectMetadataList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<PartialObjectMetadata>,
}

async fn accepting(client: &Client, path: &str, accept: &str) -> Answer {
    client.get_with(path, &[("accept", accept)]).await
}

/// Opens an envelope: apiVersion and kind, and the message.
fn open<M: Message + Default>(envelope: &[u8]) -> (String, M) {
    let unknown = Unknown::decode(envelope.strip_prefix(b"k8s\0").expect("an envelope")).expect("is decoded");
    let type_meta = unknown.type_meta.expect("a type");
    let of = format!("{} {}", type_meta.api_version.unwrap(), type_meta.kind.unwrap());
    assert_eq!((unknown.content_encoding.as_deref(), unknown.content_type.as_deref()), (Some(""), Some("")), "{of}");
    (of, M::decode(&*unknown.raw.expect("a message")).expect("is decoded"))
}

/// Decodes an answer.
fn read<M: Message + Default>(answer: &Answer) -> (String, M) {
    assert_eq!(answer.header("content-type"), PROTOBUF, "{}", answer.body.escape_ascii());
    open(&answer.body)
}

/// Splits the body of a watch into events: the type, and the envelope of the object.
fn events(answer: &Answer) -> Vec<(String, Vec<u8>)> {
    assert_eq!(answer.header("content-type"), STREAM);
    let (mut events, mut rest) = (Vec::new(), &*answer.body);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (event, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        let event = WatchEvent::decode(event).expect("an event");
        events.push((event.r#type.unwrap(), event.object.unwrap().raw.unwrap()));
        rest = after;
    }
    assert!(rest.is_empty());
    events
}

fn meta(metadata: Option<&ObjectMeta>) -> (String, u64) {
    let metadata = metadata.expect("metadata");
    let name = metadata.name.clone().unwrap_or_default();
    (name, metadata.resource_version.as_ref().map_or(0, |version| version.parse().unwrap()))
}

/// Goal: objects and lists are messages, with all their fields. Method: one object; a list in two pages; no objects.
#[tokio::test]
async fn objects_and_lists_are_messages() {
    let server = server(&[]).await;
    let client = server.client();
    let labels = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
    let mut versions = Vec::new();
    for name in ["a", "b", "c"] {
        let long = "x".repeat(if name == "b" { 100_000 } else { 3 });
        let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
            "data": {"k": long, "e.x": ""}, "binaryData": {"b": "AP8Q"}});
        versions.push(client.post(CONFIGMAPS, &configmap).await.with_code(201).resource_version());
    }
    let (of, one) =
        read::<core::ConfigMap>(&accepting(&client, &configmap("a").path(), PREFERRED).await.with_code(200));
    assert_eq!((&*of, meta(one.metadata.as_ref())), ("v1 ConfigMap", ("a".to_owned(), versions[0])));
    assert_eq!((one.metadata.unwrap().labels, &*one.binary_data["b"]), (labels, &[0, 255, 16][..]));
    assert_eq!(one.data, [("k", "xxx"), ("e.x", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let page = with_query(CONFIGMAPS, &[("limit", "2"), ("fieldSelector", "metadata.name!=kube-root-ca.crt")]);
    let (of, list) = read::<core::ConfigMapList>(&accepting(&client, &page, PROTOBUF).await.with_code(200));
    let (names, begun) = (
        |list: &core::ConfigMapList| list.items.iter().map(|item| meta(item.metadata.as_ref()).0).collect::<Vec<_>>(),
        list.metadata.clone().unwrap(),
    );
    assert_eq!((&*of, names(&list)), ("v1 ConfigMapList", vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(list.items[1].data["k"].len(), 100_000);
    let next = with_query(&page, &[("continue", begun.r#continue.as_deref().expect("a token"))]);
    let (_, rest) = read::<core::ConfigMapList>(&accepting(&client, &next, PROTOBUF).await.with_code(200));
    assert_eq!((names(&rest), rest.metadata.unwrap().resource_version), (vec!["c".to_owned()], begun.resource_version));
    let none = accepting(&client, "/api/v1/namespaces/quiet/pods", PROTOBUF).await.with_code(200);
    let (of, none) = read::<core::PodList>(&none);
    assert_eq!((&*of, none.items.len()), ("v1 PodList", 0));
    assert!(none.metadata.unwrap().resource_version.is_some());
}

/// Goal: writes and errors are answered in protobuf too. Method: a create, the same again, and an object that is not there.
#[tokio::test]
async fn answers_to_writes_and_errors_are_messages() {
    let server = server(&[]).await;
    let client = server.client();
    let headers = [("accept", PREFERRED), ("content-type", "application/json")];
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    let create = || Client::request(Method::POST, CONFIGMAPS, &headers, body.clone().into());
    let (of, created) = read::<core::ConfigMap>(&client.send(create()).await.with_code(201));
    assert_eq!((&*of, &*created.data["k"]), ("v1 ConfigMap", "v"));
    for (answer, reason, code) in [
        (client.send(create()).await, "AlreadyExists", 409),
        (accepting(&client, &configmap("none").path(), PREFERRED).await, "NotFound", 404),
        (accepting(&client, &configmap("none").path(), PROTOBUF).await, "NotFound", 404),
    ] {
        let (of, status) = read::<Status>(&answer.with_code(code));
        assert_eq!((&*of, status.reason.as_deref(), status.code), ("v1 Status", Some(reason), Some(i32::from(code))));
        assert_eq!(status.details.unwrap().kind.as_deref(), Some("configmaps"));
    }
    let deleted = client.send(Client::request(Method::DELETE, &configmap("a").path(), &headers, "".into())).await;
    let (_, status) = read::<Status>(&deleted.with_code(200));
    assert_eq!(status.status.as_deref(), Some("Success"));
}

/// Goal: events are frames with whole objects, bookmarks and errors. Method: changes of every kind read from the history; a
/// watch-list; a position that is too old.
#[tokio::test]
async fn events_are_frames() {
    let server = server(&[]).await;
    let client = server.client();
    let begun = client.create(&configmap("begun")).await;
    let object = configmap("a").data("v");
    let added = client.create(&object).await;
    let modified = client.update(&configmap("a").data("w")).await;
    let deleted = client.remove(&object).await;
    let last = client.create(&configmap("last")).await;
    let after = |at: u64| format!("{CONFIGMAPS}?watch=1&timeoutSeconds=6&resourceVersion={at}");
    let seen = events(&accepting(&client, &after(begun), PREFERRED).await.with_code(200));
    let seen: Vec<_> = seen
        .iter()
        .map(|(name, object)| {
            let (of, object) = open::<core::ConfigMap>(object);
            let (named, at) = meta(object.metadata.as_ref());
            (format!("{name} {of} {named} {}", object.data.get("k").map_or("", String::as_str)), at)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("ADDED v1 ConfigMap a v".to_owned(), added),
            ("MODIFIED v1 ConfigMap a w".to_owned(), modified),
            ("DELETED v1 ConfigMap a w".to_owned(), deleted),
            ("ADDED v1 ConfigMap last ".to_owned(), last),
        ]
    );
    let list = with_query(
        &watch_list(CONFIGMAPS),
        &[("timeoutSeconds", "6"), ("fieldSelector", "metadata.name!=kube-root-ca.crt")],
    );
    let seen = events(&accepting(&client, &list, PREFERRED).await.with_code(200));
    let bookmark = seen.iter().position(|(name, _)| name == "BOOKMARK").expect("a bookmark");
    let initial: Vec<_> = seen[..bookmark]
        .iter()
        .map(|(name, object)| (&**name, meta(open::<core::ConfigMap>(object).1.metadata.as_ref()).0))
        .collect();
    assert_eq!(initial, [("ADDED", "begun".to_owned()), ("ADDED", "last".to_owned())]);
    let (of, object) = open::<core::ConfigMap>(&seen[bookmark].1);
    let metadata = object.metadata.expect("metadata");
    assert_eq!((&*of, &*metadata.annotations["k8s.io/initial-events-end"]), ("v1 ConfigMap", "true"));
    assert!(meta(Some(&metadata)).1 >= last);
    // A kube-apiserver that has just started still has all events.
    if client.get(&after(1)).await.with_code(200).text().starts_with(r#"{"type":"ERROR""#) {
        let (name, error) = events(&accepting(&client, &after(1), PREFERRED).await.with_code(200)).remove(0);
        let (of, status) = open::<Status>(&error);
        let reason = status.reason.as_deref();
        assert_eq!((&*name, &*of, status.code, reason), ("ERROR", "v1 Status", Some(410), Some("Expired")));
    }
}

/// Goal: the metadata of every type is a message; tables and custom resources are none. Method: one of a built-in and of a
/// custom type: list, object and events; what is JSON.
#[tokio::test]
async fn metadata_of_every_type_is_a_message() {
    const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let server = server(&[]).await;
    let client = server.client();
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}});
    define(&client, &definition).await;
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"x": 1}});
    client.post(FOOS, &foo).await.with_code(201);
    client.create(&pod("a").label("app", "x")).await;
    for collection in [FOOS, PODS] {
        let (of, list) =
            read::<PartialObjectMetadataList>(&accepting(&client, collection, METADATA_LIST).await.with_code(200));
        let labels = |object: &PartialObjectMetadata| object.metadata.as_ref().unwrap().labels["app"].clone();
        assert_eq!((&*of, list.items.len()), ("meta.k8s.io/v1 PartialObjectMetadataList", 1), "{collection}");
        assert_eq!(labels(&list.items[0]), "x");
        let one = accepting(&client, &format!("{collection}/a"), METADATA).await.with_code(200);
        let (of, one) = read::<PartialObjectMetadata>(&one);
        assert_eq!((&*of, labels(&one)), ("meta.k8s.io/v1 PartialObjectMetadata", "x".to_owned()), "{collection}");
        let watch = format!("{collection}?watch=1&timeoutSeconds=6");
        let seen = events(&accepting(&client, &watch, METADATA).await.with_code(200));
        let (of, object) = open::<PartialObjectMetadata>(&seen[0].1);
        assert_eq!(
            (&*seen[0].0, &*of, labels(&object)),
            ("ADDED", "meta.k8s.io/v1 PartialObjectMetadata", "x".to_owned())
        );
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(accepting(&client, collection, table).await.with_code(200).json()["kind"], "Table", "{collection}");
    }
    assert_eq!(accepting(&client, FOOS, PREFERRED).await.with_code(200).json()["kind"], "FooList");
    accepting(&client, FOOS, PROTOBUF).await.with_code(406);
}
