//! Lookups by index, including lookups of deleted objects.

use std::time::Duration;

use informer::{Informer, InformerBuilder, InitialList, ObjectView, Representation, ResourceVersion, Snapshot, index};
use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::fixture::{Live, SOON, Step, deleted, event, in_memory, list, ok};

/// A pod with a node, labels and owners.
fn pod(key: &str, version: u64, node: &str, app: &str, owners: &[&str]) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    let owner = |uid: &&str| {
        format!(r#"{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","controller":true,"uid":"{uid}"}}"#)
    };
    let owners: Vec<String> = owners.iter().map(owner).collect();
    let owners = owners.join(",");
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"uid-{name}","resourceVersion":"{version}","labels":{{"app":"{app}"}},"ownerReferences":[{owners}]}},"spec":{{"nodeName":"{node}","containers":[]}},"status":{{"phase":"Running"}}}}"#
    )
}

fn three() -> Vec<String> {
    vec![
        pod("b/x", 1, "node-1", "web", &["o1", "o2"]),
        pod("a/y", 2, "node-2", "web", &["o2"]),
        pod("a-b/z", 3, "node-1", "api", &[]),
    ]
}

async fn start(
    items: Vec<String>,
    live: &Live,
    declare: impl FnOnce(InformerBuilder<Pod>) -> InformerBuilder<Pod>,
) -> Informer<Pod> {
    let live = live.clone();
    let (cluster, _log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(list(&items, 9, ""))]),
        _ => ok([]).live(&live),
    });
    let pods = declare(cluster.informer::<Pod>().initial_list(InitialList::Unpaged)).start().unwrap();
    pods.ready(SOON).await.unwrap();
    pods
}

fn keys<'a>(found: impl Iterator<Item = ObjectView<'a, Pod>>) -> String {
    found.map(|pod| format!("{}@{}", pod.key(), pod.resource_version())).collect::<Vec<_>>().join(" ")
}

async fn reached(pods: &Informer<Pod>, version: u64) -> Snapshot<Pod> {
    pods.wait_for(&ResourceVersion::from(version), SOON).await.unwrap();
    pods.store().snapshot()
}

#[tokio::test(start_paused = true)]
async fn objects_are_found_by_node_namespace_label_owner_and_function_in_key_order() {
    let live = Live::default();
    let mut handles = None;
    let pods = start(three(), &live, |mut pods| {
        let by_node = pods.index(|pod| pod.field("spec.nodeName"));
        let (node, namespace) = (pods.index(index::node), pods.index(index::namespace));
        let (app, owner) = (pods.index(index::label("app")), pods.index_each(index::owner_uids));
        let both = pods.index_each(|pod| [pod.name().to_owned(), pod.field("status.phase").unwrap().into_owned()]);
        handles = Some((by_node, node, namespace, app, owner, both));
        pods
    })
    .await;
    let (by_node, node, namespace, app, owner, both) = handles.unwrap();
    let now = pods.store().snapshot();
    for (index, value, expected) in [
        (&by_node, "node-1", "a-b/z@3 b/x@1"),
        (&node, "node-2", "a/y@2"),
        (&node, "node", ""),
        (&namespace, "a", "a/y@2"),
        (&app, "web", "a/y@2 b/x@1"),
        (&owner, "o2", "a/y@2 b/x@1"),
        (&owner, "o1", "b/x@1"),
        (&both, "Running", "a-b/z@3 a/y@2 b/x@1"),
        (&both, "x", "b/x@1"),
    ] {
        assert_eq!(keys(now.by(index, value)), expected, "{value}");
    }
    live.send(event("MODIFIED", &pod("b/x", 10, "node-2", "web", &["o3"])));
    live.send(event("ADDED", &pod("c/n", 11, "node-1", "api", &["o3"])));
    live.send(deleted("a-b/z", 12));
    let then = reached(&pods, 12).await;
    assert_eq!(keys(then.by(&node, "node-1")), "c/n@11");
    assert_eq!(keys(then.by(&node, "node-2")), "a/y@2 b/x@10");
    assert_eq!((keys(then.by(&owner, "o1")), keys(then.by(&owner, "o3"))), (String::new(), "b/x@10 c/n@11".into()));
    assert_eq!(keys(now.by(&node, "node-1")), "a-b/z@3 b/x@1", "a snapshot is one state, indexes included");
}

/// Goal: any field is an index without decoding, in arrays too. Method: the ready-made functions on decoded objects.
#[tokio::test(start_paused = true)]
async fn objects_are_found_by_uid_managing_owner_and_any_field() {
    let live = Live::default();
    let mut items = three();
    items[0] = items[0].replace(
        r#""containers":[]"#,
        r#""containers":[{"name":"c","image":"web:1"},{"name":"d","image":"proxy:2"}],"volumes":[{"name":"v"}]"#,
    );
    items[1] = items[1].replace(r#""controller":true"#, r#""controller":false"#);
    let mut handles = None;
    let pods = start(items, &live, |mut pods| {
        let (uid, manager) = (pods.index(index::uid), pods.index(index::controller_uid));
        let phase = pods.index(index::field("status.phase"));
        let (image, owner) =
            (pods.index_each(index::fields("spec.containers[].image")), pods.index_each(index::owner_uids));
        handles = Some([uid, manager, phase, image, owner]);
        pods.store(Representation::Typed)
    })
    .await;
    let [uid, manager, phase, image, owner] = handles.unwrap();
    let now = pods.store().snapshot();
    for (index, value, expected) in [
        (&uid, "uid-y", "a/y@2"),
        (&manager, "o1", "b/x@1"),
        (&manager, "o2", ""),
        (&owner, "o2", "a/y@2 b/x@1"),
        (&phase, "Running", "a-b/z@3 a/y@2 b/x@1"),
        (&image, "proxy:2", "b/x@1"),
        (&image, "", ""),
    ] {
        assert_eq!(keys(now.by(index, value)), expected, "{value}");
    }
}

/// Goal: a foreign index handle never reads as if there were no objects. Method: a handle of another informer of the same
/// type, and of another user of a shared copy; one of another type does not compile, because of the handle's type
/// parameter.
#[tokio::test(start_paused = true)]
async fn an_index_of_another_informer_panics() {
    let mut of_other = None;
    let _other = start(three(), &Live::default(), |mut pods| {
        of_other = Some(pods.index(index::node));
        pods
    })
    .await;
    let mut own = None;
    let pods = start(three(), &Live::default(), |mut pods| {
        own = Some(pods.index(index::node));
        pods
    })
    .await;
    let now = pods.store().snapshot();
    let panics = |find: &dyn Fn() -> usize| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(find)).expect_err("it panics");
        panic.downcast_ref::<&str>().is_some_and(|text| text.contains("declared for another informer"))
    };
    let of_other = of_other.unwrap();
    assert!(panics(&|| now.by(&of_other, "node-1").count()));
    assert!(panics(&|| now.lingering_by(&of_other, "node-1").count()));
    assert_eq!(now.by(&own.clone().unwrap(), "node-1").count(), 2);

    let cluster = informer::Cluster::new(informer::testing::FakeApiServer::new().client());
    let [(first, by_first), (second, by_second)] = [0, 1].map(|_| {
        let mut declared = cluster.informer::<Pod>();
        let by_node = declared.index(index::node);
        (declared.start_shared().unwrap(), by_node)
    });
    let (first, second) = (first.store().snapshot(), second.store().snapshot());
    assert_eq!((first.by(&by_first, "n").count(), second.by(&by_second, "n").count()), (0, 0));
    assert!(panics(&|| first.by(&by_second, "n").count()) && panics(&|| second.by(&by_first, "n").count()));
    assert_eq!(pods.clone().store().snapshot().by(&own.unwrap(), "node-1").count(), 2, "clones are one informer");
}

#[tokio::test(start_paused = true)]
async fn an_index_function_sees_the_object_as_it_was_received_and_may_decode_and_keep_it() {
    let (cluster, _log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&three(), 9, ""))]),
        _ => ok([Step::Hang]),
    });
    let (sender, shown) = std::sync::mpsc::channel();
    let mut pods = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).store(Representation::Typed);
    let by_node = pods.index_each(move |pod| {
        let _ = sender.send(pod.clone());
        pod.decode().ok().and_then(|pod| pod.spec.as_ref()?.node_name.clone())
    });
    let pods = pods.start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!(keys(pods.store().snapshot().by(&by_node, "node-1")), "a-b/z@3 b/x@1");
    assert_eq!(
        shown.try_iter().map(|pod| pod.json().len()).collect::<Vec<_>>(),
        three().iter().map(String::len).collect::<Vec<_>>()
    );
}

/// Goal: a log collector can name the pod of a file after the pod was deleted, even if another pod took its name.
/// Method: delete, replace and delete again; then wait for as long as objects linger.
#[tokio::test(start_paused = true)]
async fn deleted_objects_linger_by_key_and_uid_and_go_by_themselves() {
    let live = Live::default();
    let pods = start(three(), &live, |pods| pods.linger(Duration::from_secs(60))).await;
    live.send(deleted("a/y", 10));
    live.send(event("ADDED", &pod("a/y", 11, "node-7", "new", &[]).replace("uid-y", "uid-new")));
    let now = reached(&pods, 11).await;
    assert_eq!(now.get("a/y").unwrap().uid(), "uid-new");
    assert_eq!((keys(now.lingering("a/y")), keys(now.lingering("uid-y"))), ("a/y@2".into(), "a/y@2".into()));
    let gone = now.lingering("uid-y").next().unwrap();
    assert_eq!((gone.label("app").as_deref(), gone.field("spec.nodeName").as_deref()), (Some("web"), Some("node-2")));
    assert_eq!((now.len(), keys(now.lingering("uid-new"))), (3, String::new()), "it lives");
    tokio::time::sleep(Duration::from_secs(30)).await;
    live.send(event("DELETED", &pod("a/y", 12, "node-7", "new", &[])));
    let now = reached(&pods, 12).await;
    assert_eq!(keys(now.lingering("a/y")), "a/y@11 a/y@2", "the last deleted first");
    assert_eq!(keys(now.lingering_objects()), "a/y@11 a/y@2", "all of them");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(keys(pods.store().snapshot().lingering("a/y")), "a/y@11");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let now = pods.store().snapshot();
    assert_eq!((keys(now.lingering("a/y")), keys(now.lingering("uid-new"))), (String::new(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn what_a_relist_no_longer_finds_lingers_too() {
    let (cluster, _log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(&three(), 9, ""))]),
        2 => ok([Step::Send(event("ERROR", &crate::fixture::status(410, "Expired", "too old")))]),
        3 => ok([Step::Send(list(&three()[..1], 20, ""))]),
        _ => ok([Step::Hang]),
    });
    let declared = cluster.informer::<Secret>().initial_list(InitialList::Unpaged).linger(Duration::from_secs(3600));
    let secrets = declared.start().unwrap();
    secrets.wait_for(&ResourceVersion::from(20), SOON).await.unwrap();
    let now = secrets.store().snapshot();
    assert_eq!((now.len(), now.lingering("uid-y").count(), now.lingering("uid-x").count()), (1, 1, 0));
}

/// Goal: an agent that only knows a container's log file finds the pod, even after the pod was deleted. Method: pods
/// with container ids, one of which is created and deleted between two snapshots, and one recreated under its key.
#[tokio::test(start_paused = true)]
async fn deleted_objects_are_found_by_the_values_they_had() {
    let pod = |key: &str, version: u64, uid: &str, containers: &[&str]| {
        let statuses: Vec<String> =
            containers.iter().map(|id| format!(r#"{{"name":"c","containerID":"containerd://{id}"}}"#)).collect();
        let status = format!(r#""status":{{"containerStatuses":[{}],"phase":"Running"}}"#, statuses.join(","));
        let pod = pod(key, version, "node-1", "web", &[]).replace(r#""status":{"phase":"Running"}"#, &status);
        pod.replace(&format!("uid-{}", key.split_once('/').unwrap().1), uid)
    };
    let (live, mut by_container, mut by_node) = (Live::default(), None, None);
    let pods = start(vec![pod("a/x", 1, "u1", &["aaa", "bbb"])], &live, |mut pods| {
        by_container = Some(pods.index_each(|pod| {
            let statuses = pod.decode().ok().and_then(|pod| pod.status.clone()?.container_statuses);
            statuses.into_iter().flatten().filter_map(|status| status.container_id).collect::<Vec<_>>()
        }));
        by_node = Some(pods.index(index::node));
        pods.linger(Duration::from_secs(60))
    })
    .await;
    let (by_container, by_node) = (by_container.unwrap(), by_node.unwrap());
    let gone = |now: &Snapshot<Pod>, id: &str| keys(now.lingering_by(&by_container, &format!("containerd://{id}")));
    let now = pods.store().snapshot();
    assert_eq!((keys(now.by(&by_container, "containerd://aaa")), gone(&now, "aaa")), ("a/x@1".into(), String::new()));
    live.send(event("DELETED", &pod("a/x", 10, "u1", &["aaa", "bbb"])));
    live.send(event("ADDED", &pod("a/y", 11, "u2", &["ccc"])) + &event("DELETED", &pod("a/y", 12, "u2", &["ccc"])));
    live.send(event("ADDED", &pod("a/x", 13, "u3", &["ddd"])) + &event("DELETED", &pod("a/x", 14, "u3", &["ddd"])));
    let now = reached(&pods, 14).await;
    assert_eq!(keys(now.by(&by_container, "containerd://aaa")), "", "it is gone");
    assert_eq!((gone(&now, "aaa"), gone(&now, "bbb")), ("a/x@1".into(), "a/x@1".into()));
    assert_eq!(
        (gone(&now, "ccc"), gone(&now, "ddd"), gone(&now, "")),
        ("a/y@11".into(), "a/x@13".into(), String::new())
    );
    assert_eq!(keys(now.lingering_by(&by_node, "node-1")), "a/x@13 a/y@11 a/x@1", "the last deleted first");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(keys(pods.store().snapshot().lingering_by(&by_node, "node-1")), "");
}
