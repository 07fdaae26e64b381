//! Stored forms of objects: representations, transforms, projections and metadata only.

use std::sync::Arc;

use informer::{Event, Informer, InformerBuilder, InitialList, LabelSelector, Representation, ResourceVersion};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::{Deserialize, Serialize};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use crate::fixture::{Live, SOON, Step, added, cluster_at, event, in_memory, item, list, ok, pod};

const ALL: &[Representation] = &[
    Representation::Json,
    Representation::Typed,
    #[cfg(feature = "packed")]
    Representation::Packed,
];

/// Declares an informer of these items, with live events.
fn declare(items: Vec<String>, live: &Live) -> InformerBuilder<Pod> {
    let live = live.clone();
    let (cluster, _log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&items, 9, ""))]),
        _ => ok([]).live(&live),
    });
    cluster.informer::<Pod>().initial_list(InitialList::Unpaged)
}

async fn ready<K: Send + Sync + 'static>(declared: InformerBuilder<K>) -> Informer<K> {
    let informer = declared.start().unwrap();
    informer.ready(SOON).await.unwrap();
    informer
}

fn value(json: &[u8]) -> serde_json::Value {
    serde_json::from_slice(json).unwrap()
}

/// Goal: representations differ only in their cost. Method: every read of an object and of a snapshot, initial and
/// live.
#[tokio::test(start_paused = true)]
async fn every_representation_reads_alike() {
    for &representation in ALL {
        let live = Live::default();
        let items = (0..100).map(|number| item(&format!("a/p-{number:03}"), number + 1)).collect();
        let pods = ready(declare(items, &live).store(representation)).await;
        live.send(added("b/live", 1_000));
        pods.wait_for(&ResourceVersion::from(1_000), SOON).await.unwrap();
        let now = pods.store().snapshot();
        assert_eq!((now.len(), now.namespace("b").count()), (101, 1), "{representation:?}");
        let selector = LabelSelector::parse("app in (p-007,live)").unwrap();
        let selected: Vec<String> = now.select(&selector).map(|pod| pod.key().to_owned()).collect();
        assert_eq!(selected, ["a/p-007", "b/live"], "{representation:?}");
        let one = now.get("a/p-007").unwrap();
        assert_eq!((one.name(), one.uid(), one.resource_version()), ("p-007", "uid-p-007", "8"));
        assert_eq!((one.label("app").as_deref(), one.labels().len()), (Some("p-007"), 1));
        assert_eq!(one.field("spec.nodeName").as_deref(), Some("node-1"), "{representation:?}");
        let decoded = one.decode().unwrap();
        assert_eq!(decoded.spec.as_ref().unwrap().node_name.as_deref(), Some("node-1"));
        let again = now.get("a/p-007").unwrap().decode().unwrap();
        assert!(Arc::ptr_eq(&decoded, &again), "{representation:?}: one object, decoded once");
        let expected = value(pod("a/p-007", 8).replace(r#","managedFields":[{"manager":"x"}]"#, "").as_bytes());
        assert_eq!(value(&one.json()), expected, "{representation:?}");
        assert_eq!(pods.stats().undecodable, 0);
    }
}

/// Goal: an object that does not decode causes no harm, in any form. Method: one among others, initial and live.
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_kept_delivered_and_counted() {
    for &representation in ALL {
        let live = Live::default();
        let poison = |key: &str, version| pod(key, version).replace("\"containers\":[]", "\"containers\":7");
        let items = vec![item("a/a", 1), poison("a/poison", 2), item("a/z", 3)];
        let pods = ready(declare(items, &live).store(representation)).await;
        let mut changes = pods.subscribe();
        live.send(event("MODIFIED", &poison("a/poison", 10)));
        pods.wait_for(&ResourceVersion::from(10), SOON).await.unwrap();
        let poison = pods.store().snapshot().get("a/poison").unwrap();
        let error = poison.decode().unwrap_err();
        assert_eq!((error.key.as_str(), error.path.as_str()), ("a/poison", "spec.containers"), "{representation:?}");
        assert_eq!(poison.field("spec.containers").as_deref(), Some("7"), "its bytes are there");
        assert_eq!(poison.label("app").as_deref(), Some("poison"));
        // Typed: once for each version on arrival, and once for the call above.
        let expected = if representation == Representation::Typed { 3 } else { 1 };
        assert_eq!(pods.stats().undecodable, expected, "{representation:?}");
        let mut delivered = Vec::new();
        while delivered.len() < 3 {
            if let Some(Event::Added(pod)) = changes.next().await {
                delivered.push(pod.key().to_owned());
            }
        }
        assert_eq!(delivered, ["a/a", "a/poison", "a/z"], "{representation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn typed_objects_are_decoded_when_they_come_and_shared_by_everybody() {
    let pods = ready(declare(vec![item("a/a", 1)], &Live::default()).store(Representation::Typed)).await;
    let weak = Arc::downgrade(&pods.store().snapshot().get("a/a").unwrap().decode().unwrap());
    let held = weak.upgrade().expect("the store holds it");
    assert!(Arc::ptr_eq(&held, &pods.store().snapshot().get("a/a").unwrap().decode().unwrap()));
}

/// Goal: a transform changes an object's contents, not its identity. Method: two transforms, in every form; one tries
/// to rename the object.
#[tokio::test(start_paused = true)]
async fn transforms_happen_in_order_before_the_object_is_kept() {
    for &representation in ALL {
        let live = Live::default();
        let declared = declare(vec![item("a/a", 1)], &live).store(representation);
        let declared = declared
            .transform(|pod| {
                pod.metadata.name = Some("renamed".into());
                pod.metadata.resource_version = None;
                pod.metadata.labels = Some([("tier".to_owned(), "front".to_owned())].into());
            })
            .transform(|pod| {
                assert_eq!(pod.metadata.name.as_deref(), Some("renamed"));
                pod.spec.get_or_insert_default().node_name = Some("node-x".into());
            });
        let mut declared = declared;
        let by_node = declared.index(|pod| pod.field("spec.nodeName"));
        let pods = ready(declared).await;
        live.send(added("a/b", 10));
        pods.wait_for(&ResourceVersion::from(10), SOON).await.unwrap();
        let now = pods.store().snapshot();
        let found: Vec<String> = now.by(&by_node, "node-x").map(|pod| pod.key().to_owned()).collect();
        assert_eq!(found, ["a/a", "a/b"], "{representation:?}");
        let pod = now.get("a/a").unwrap();
        assert_eq!((pod.uid(), pod.resource_version()), ("uid-a", "1"), "{representation:?}");
        assert_eq!((pod.label("tier").as_deref(), pod.label("app")), (Some("front"), None), "{representation:?}");
        assert_eq!(pod.decode().unwrap().metadata.name.as_deref(), Some("renamed"), "{representation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_transform_cannot_decode_is_kept_unchanged_and_counted() {
    let poison = item("a/poison", 2).replace("\"containers\":[]", "\"containers\":7");
    let declared = declare(vec![item("a/a", 1), poison], &Live::default());
    let pods = ready(declared.transform(|pod| pod.spec = None)).await;
    let now = pods.store().snapshot();
    assert_eq!(now.get("a/a").unwrap().field("spec.nodeName"), None);
    assert_eq!(now.get("a/poison").unwrap().field("spec.nodeName").as_deref(), Some("node-1"));
    assert_eq!(pods.stats().undecodable, 1);

    let poison = item("a/poison", 2).replace("\"containers\":[]", "\"containers\":7");
    let declared = declare(vec![item("a/a", 1), poison], &Live::default());
    let pods = ready(declared.transform(|pod| pod.spec = None).project::<PartialObjectMeta<Pod>>()).await;
    assert_eq!(pods.stats().undecodable, 1, "also by a transform in front of a projection");
}

/// The fields that one program reads of a pod.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Placed {
    metadata: ObjectMeta,
    spec: Where,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Where {
    node_name: String,
}

/// Goal: memory holds only the fields a program reads. Method: the JSON of a projected object has the fields of its
/// type; key and labels remain readable; with the JSON form, the whole object is stored.
#[tokio::test(start_paused = true)]
async fn a_projection_keeps_the_fields_of_its_type() {
    let declared = declare(vec![item("a/a", 1)], &Live::default());
    let mut declared = declared.transform(|pod| pod.metadata.uid = None).project::<Placed>();
    let by_node = declared.index(informer::index::node);
    let pods = ready(declared).await;
    let now = pods.store().snapshot();
    let pod = now.by(&by_node, "node-1").next().unwrap();
    assert_eq!((pod.key(), pod.uid(), pod.label("app").as_deref()), ("a/a", "uid-a", Some("a")));
    let placed = pod.decode().unwrap();
    assert_eq!((placed.spec.node_name.as_str(), placed.metadata.uid.as_deref()), ("node-1", None));
    assert_eq!((value(&pod.json()).get("kind"), pod.field("spec.nodeName").as_deref()), (None, Some("node-1")));

    let declared = declare(vec![item("a/a", 1)], &Live::default()).project::<Placed>().store(Representation::Json);
    let pods = ready(declared).await;
    let pod = pods.store().snapshot().get("a/a").unwrap();
    assert_eq!(value(&pod.json())["kind"], "Pod");
    assert_eq!(pod.decode().unwrap().spec.node_name, "node-1");
}

/// Goal: only metadata is requested and stored, whether the server supports that or not. Method: a server that does,
/// and one that sends whole pods; the stored bytes are equal.
#[tokio::test]
async fn only_metadata_is_asked_for_and_kept() {
    let partial = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;
    let whole = list(&[item("a/a", 3)], 9, "");
    let (spec_at, spec_end) = (whole.find(r#","spec""#).unwrap(), whole.rfind("}]}").unwrap());
    let understood = format!("{}{}", &whole[..spec_at], &whole[spec_end..])
        .replace("PodList", "PartialObjectMetadataList")
        .replacen(r#"[{"metadata""#, &format!(r#"[{partial}"metadata""#), 1);
    let mut stored = Vec::new();
    for body in [whole, understood] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_string(body)).mount(&server).await;
        let declared = cluster_at(&server.uri()).informer::<Pod>().initial_list(InitialList::Unpaged);
        let pods: Informer<PartialObjectMeta<Pod>> = ready(declared.metadata_only()).await;
        let pod = pods.store().snapshot().get("a/a").unwrap();
        assert_eq!(pod.decode().unwrap().metadata.uid.as_deref(), Some("uid-a"));
        assert_eq!((pod.label("app").as_deref(), pod.field("spec.nodeName")), (Some("a"), None));
        stored.push(String::from_utf8(pod.json().into_owned()).unwrap());
        let requests = server.received_requests().await.unwrap();
        assert_eq!(
            requests[0].headers["accept"],
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        );
    }
    assert!(stored[0].starts_with(partial) && stored[0] == stored[1], "{stored:?}");
}

#[cfg(feature = "packed")]
/// Goal: packing is lossless, with enough objects to train on. Method: a thousand objects, then live changes.
#[tokio::test(start_paused = true)]
async fn packed_objects_are_the_bytes_that_came() {
    let live = Live::default();
    let items: Vec<String> = (0..1_000).map(|number| item(&format!("a/p-{number:04}"), number + 1)).collect();
    let packed = ready(declare(items.clone(), &live).store(Representation::Packed)).await;
    let plain = ready(declare(items, &Live::default())).await;
    for (packed, plain) in packed.store().snapshot().iter().zip(plain.store().snapshot().iter()) {
        assert_eq!(packed.json(), plain.json());
    }
    live.send(event("MODIFIED", &pod("a/p-0007", 2_000)));
    packed.wait_for(&ResourceVersion::from(2_000), SOON).await.unwrap();
    assert_eq!(
        packed.store().snapshot().get("a/p-0007").unwrap().decode().unwrap().metadata.name.as_deref(),
        Some("p-0007")
    );
}
