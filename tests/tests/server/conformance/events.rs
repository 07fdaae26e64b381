//! Watch events of changes: labels that start and stop matching, expired histories, and many watchers.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use serde_json::json;
use tests::{
    http::{Client, Event, LINE_WAIT, Step, briefs, strictly_increase, with_query},
    objects::{Object, configmap, node, pod},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Watches from a position, with more query parameters.
async fn watch_from(client: &Client, at: u64, query: &[(&str, &str)]) -> tests::http::Watch {
    let path = with_query(CONFIGMAPS, &[("watch", "1"), ("resourceVersion", &at.to_string())]);
    client.watch(&with_query(&path, query)).await
}

/// Goal: the watch test of Kubernetes' own conformance suite passes. Method: watchers of A, of B, and of both, over the
/// life of two objects.
#[tokio::test]
async fn three_watchers_see_what_their_labels_select() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.get(CONFIGMAPS).await.resource_version();
    let a = |data: &str| configmap("config-a").label("watch", "a").data(data);
    let b = configmap("config-b").label("watch", "b");
    let mut of_a = watch_from(&client, at, &[("labelSelector", "watch=a")]).await;
    let mut of_b = watch_from(&client, at, &[("labelSelector", "watch=b")]).await;
    let mut of_both = watch_from(&client, at, &[("labelSelector", "watch in (a,b)")]).await;
    client.create(&a("0")).await;
    client.update(&a("1")).await;
    client.update(&a("2")).await;
    client.delete(&a("2").path()).await.with_code(200);
    client.create(&b).await;
    client.delete(&b.path()).await.with_code(200);
    client.create(&configmap("config-c").label("watch", "c")).await;
    let life = [
        "ADDED default/config-a",
        "MODIFIED default/config-a",
        "MODIFIED default/config-a",
        "DELETED default/config-a",
    ];
    let other = ["ADDED default/config-b", "DELETED default/config-b"];
    assert_eq!(briefs(&of_a.events(4).await), life);
    assert_eq!(briefs(&of_b.events(2).await), other);
    assert_eq!(briefs(&of_both.events(6).await), [&life[..], &other].concat());
    for watch in [&mut of_a, &mut of_b, &mut of_both] {
        assert!(matches!(watch.step(Duration::from_millis(50)).await, Step::Silence), "nothing of others");
    }
}

#[tokio::test]
async fn a_watch_from_the_answer_of_a_write_begins_behind_it() {
    let server = server(&[]).await;
    let client = server.client();
    let created = client.create(&configmap("a").data("0")).await;
    let first = client.update(&configmap("a").data("1")).await;
    let second = client.update(&configmap("a").data("2")).await;
    let deleted = client.remove(&configmap("a")).await;
    for (from, expected) in
        [(created, &[first, second, deleted][..]), (first, &[second, deleted]), (second, &[deleted])]
    {
        let events = watch_from(&client, from, &[("timeoutSeconds", "1")]).await.rest(LINE_WAIT).await;
        assert_eq!(events.iter().map(Event::resource_version).collect::<Vec<_>>(), expected, "from {from}");
        assert_eq!(events.last().map(Event::brief), Some("DELETED default/a".to_owned()));
    }
}

/// Goal: each watcher sees one write as its selector requires, at one position. Method: a label changes from x to y.
#[tokio::test]
async fn one_write_is_a_deletion_here_and_a_change_there() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.create(&configmap("a").label("app", "x").data("old")).await;
    let selectors = ["app=x", "app=y", "app", "app!=x", "!app"];
    let mut watches = Vec::new();
    for selector in selectors {
        watches.push(watch_from(&client, at, &[("labelSelector", selector), ("timeoutSeconds", "1")]).await);
    }
    let changed = client.update(&configmap("a").label("app", "y").data("new")).await;
    let came = join_all(watches.iter_mut().map(|watch| watch.rest(LINE_WAIT))).await;
    let came: Vec<String> = came
        .iter()
        .map(|events| {
            let told = events.iter().map(|event| {
                assert_eq!(event.resource_version(), changed);
                format!("{} {} {}", event.brief(), event.object["metadata"]["labels"]["app"], event.object["data"]["k"])
            });
            told.collect::<Vec<_>>().join(" | ")
        })
        .collect();
    let (old, new) = ("default/a \"x\" \"old\"", "default/a \"y\" \"new\"");
    let expected = [
        format!("DELETED {old}"),
        format!("ADDED {new}"),
        format!("MODIFIED {new}"),
        format!("ADDED {new}"),
        String::new(),
    ];
    assert_eq!(came, expected);
}

/// Goal: a client that resumes from its last event misses none. Method: restart after every event.
#[tokio::test]
async fn restarts_at_every_event_lose_nothing() {
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.create(&configmap("a").data("0")).await;
    let writes = tokio::spawn(async move {
        for round in 1..=40 {
            client.update(&configmap("a").data(&round.to_string())).await;
        }
        client.delete(&configmap("a").path()).await.with_code(200);
    });
    let (mut at, mut seen) = (begin, Vec::new());
    loop {
        let event = watch_from(&client, at, &[]).await.event().await;
        at = event.resource_version();
        if event.brief().starts_with("DELETED") {
            break;
        }
        seen.push(event.object["data"]["k"].as_str().unwrap().parse::<u32>().unwrap());
    }
    writes.await.unwrap();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>());
}

/// Goal: consecutive short watches, each ended by its timeout, form one sequence.
#[tokio::test]
async fn watches_that_time_out_add_up_to_one_sequence() {
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.create(&configmap("a").data("0")).await;
    let writes = tokio::spawn(async move {
        for round in 1..=30 {
            client.update(&configmap("a").data(&round.to_string())).await;
            tokio::time::sleep(Duration::from_millis(70)).await;
        }
    });
    let (mut at, mut seen, mut watches) = (begin, Vec::new(), 0);
    while seen.len() < 30 {
        for event in watch_from(&client, at, &[("timeoutSeconds", "1")]).await.rest(LINE_WAIT).await {
            at = event.resource_version();
            seen.push(event.object["data"]["k"].as_str().unwrap().parse::<u32>().unwrap());
        }
        watches += 1;
    }
    writes.await.unwrap();
    assert_eq!(seen, (1..=30).collect::<Vec<_>>());
    assert!(watches >= 2, "{watches}");
}

/// Goal: all watchers see one order. Method: watches opened at successive positions during concurrent writes.
#[tokio::test]
async fn a_hundred_watchers_from_successive_positions_agree() {
    const WRITES: usize = 100;
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.get(CONFIGMAPS).await.resource_version();
    let writing = join_all((0..4).map(|writer| async move {
        for number in 0..WRITES / 4 {
            client.create(&configmap(&format!("w{writer}-{number}"))).await;
        }
    }));
    let mut reference = watch_from(&client, begin, &[]).await;
    let reading = async {
        let mut others = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..WRITES {
            let event = reference.event().await;
            others.push(watch_from(&client, event.resource_version(), &[]).await);
            seen.push(event);
        }
        (others, seen)
    };
    let (_, (mut others, seen)) = tokio::join!(writing, reading);
    let positions: Vec<u64> = seen.iter().map(Event::resource_version).collect();
    assert!(strictly_increase(&positions));
    let rest = join_all(others.iter_mut().enumerate().map(|(index, watch)| watch.events(WRITES - 1 - index))).await;
    for (index, events) in rest.iter().enumerate() {
        let (found, expected): (Vec<_>, Vec<_>) =
            events.iter().zip(&seen[index + 1..]).map(|(event, seen)| (&event.raw, &seen.raw)).unzip();
        assert!(found == expected, "the watcher from {}", positions[index]);
    }
}

/// Goal: a kubelet sees only the pods of its node. Method: pods that move between nodes.
#[tokio::test]
async fn agents_of_nodes_share_the_pods_among_them() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.get("/api/v1/pods").await.resource_version();
    let nodes = ["n0", "n1", "n2"];
    let mut watches = Vec::new();
    for node in nodes {
        let path =
            format!("/api/v1/pods?watch=1&resourceVersion={at}&timeoutSeconds=7&fieldSelector=spec.nodeName%3D{node}");
        watches.push(client.watch(&path).await);
    }
    let mut expected: Vec<BTreeMap<String, String>> = vec![BTreeMap::new(); nodes.len()];
    for round in 0..30 {
        let name = format!("p{}", round % 5);
        let node = fastrand::usize(..nodes.len());
        let object = pod(&name).node(nodes[node]).label("round", &round.to_string());
        if round < 5 {
            client.create(&object).await
        } else {
            client.update(&object).await
        };
        for (index, mine) in expected.iter_mut().enumerate() {
            if index == node {
                mine.insert(name.clone(), round.to_string());
            } else {
                mine.remove(&name);
            }
        }
    }
    let came = join_all(watches.iter_mut().map(|watch| watch.rest(LINE_WAIT))).await;
    for (node, (events, expected)) in nodes.iter().zip(came.iter().zip(expected)) {
        let mut mine = BTreeMap::new();
        for event in events {
            let metadata = &event.object["metadata"];
            let name = metadata["name"].as_str().unwrap().to_owned();
            let brief = event.brief();
            let known = if brief.starts_with("DELETED") {
                mine.remove(&name)
            } else {
                mine.insert(name.clone(), metadata["labels"]["round"].as_str().unwrap().to_owned())
            };
            assert_eq!(known.is_some(), !brief.starts_with("ADDED"), "{node}: {brief}");
            assert_eq!(event.object["spec"]["nodeName"], *node, "{brief}: what it shows was here");
        }
        assert_eq!(mine, expected, "{node}");
    }
}

/// Goal: a watch from an expired position ends at once with an in-stream error, and the client recovers by a list.
/// Method: a small window.
#[tokio::test]
async fn whoever_is_too_late_is_told_and_finds_back() {
    let server = server(&["--window-bytes", "65536"]).await;
    let client = server.client();
    let begin = client.create(&configmap("a").data("0")).await;
    let filler = "x".repeat(10_000);
    for round in 0..50 {
        client.update(&configmap("a").data(&format!("{round}{filler}"))).await;
    }
    let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    for query in [&[][..], &[("allowWatchBookmarks", "true")], &[("labelSelector", "none=such")]] {
        let events = watch_from(&client, begin, query).await.rest(LINE_WAIT).await;
        assert_eq!(briefs(&events), ["ERROR 410"], "{query:?}");
        assert_eq!(events[0].object["reason"], "Expired");
    }
    let mut watch = watch_from(&client, listed, &[]).await;
    let next = client.update(&configmap("a").data("last")).await;
    assert_eq!(watch.event().await.resource_version(), next);
}

/// Goal: the server releases closed watches. Method: its own count of watchers.
#[tokio::test]
async fn watchers_that_left_are_forgotten() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let open = async || {
        let metrics = client.get("/metrics").await;
        let lines = metrics.text().lines().filter(|line| line.starts_with("apiserver_longrunning_requests{"));
        let watches = lines.filter(|line| line.contains("configmaps"));
        watches.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum::<u32>()
    };
    for _ in 0..10 {
        let path = format!("{CONFIGMAPS}?watch=1");
        let watches = join_all((0..30).map(|_| client.watch(&path))).await;
        assert!(watches.iter().all(|watch| watch.code() == 200));
        assert!(open().await >= 30, "those that are open are counted");
    }
    for attempt in 0.. {
        if open().await == 0 {
            break;
        }
        assert!(attempt < 100, "{} watches are still counted", open().await);
        // The server detects them when their connections close.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Goal: watchers receive large objects whole. Method: lines of up to a megabyte, among small ones.
#[tokio::test]
async fn lines_of_any_length_arrive_whole() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.get(CONFIGMAPS).await.resource_version();
    let mut watch = watch_from(&client, at, &[]).await;
    let sizes = [1, 4_000, 16_384, 100_000, 1_000_000, 1, 500_000];
    for (index, size) in sizes.iter().enumerate() {
        client.create(&configmap(&format!("c{index}")).data(&"y".repeat(*size))).await;
    }
    for (index, size) in sizes.iter().enumerate() {
        let event = watch.event().await;
        assert_eq!(event.brief(), format!("ADDED default/c{index}"));
        assert_eq!(event.object["data"]["k"].as_str().map(str::len), Some(*size));
        assert_eq!(event.raw.iter().filter(|&&byte| byte == b'\n').count(), 1);
    }
}

/// Goal: deletecollection sends one event per object, in one order, each with its own position.
#[tokio::test]
async fn the_end_of_a_collection_is_the_end_of_each() {
    let server = server(&[]).await;
    let client = server.client();
    let objects: Vec<Object> = (0..20).map(|index| configmap(&format!("c{index:02}"))).collect();
    for object in &objects {
        client.create(object).await;
    }
    let at = client.get(CONFIGMAPS).await.resource_version();
    let mut watch = watch_from(&client, at, &[]).await;
    client.delete("/api/v1/namespaces/default/configmaps").await.with_code(200);
    let events = watch.events(objects.len()).await;
    let mut names = briefs(&events);
    names.sort();
    assert_eq!(names, (0..20).map(|index| format!("DELETED default/c{index:02}")).collect::<Vec<_>>());
    assert!(strictly_increase(&events.iter().map(Event::resource_version).collect::<Vec<_>>()));
    assert!(events.iter().all(|event| event.resource_version() > at));
}

/// Goal: an object with finalizers is modified until the last one is removed. Method: two finalizers, removed one by
/// one.
#[tokio::test]
async fn finalizers_are_seen_going_one_by_one() {
    let server = server(&[]).await;
    let client = server.client();
    let mut body = configmap("fin").body().clone();
    body["metadata"]["finalizers"] = json!(["example.com/x", "example.com/y"]);
    let at = client.post("/api/v1/namespaces/default/configmaps", &body).await.with_code(201).resource_version();
    let mut watch = watch_from(&client, at, &[]).await;
    let path = configmap("fin").path();
    client.delete(&path).await.with_code(200);
    for rest in [json!(["example.com/y"]), json!([])] {
        let patch = json!({"metadata": {"finalizers": rest}});
        client.patch(&path, tests::http::MERGE_PATCH, &patch).await.with_code(200);
    }
    let events = watch.events(3).await;
    assert_eq!(briefs(&events), ["MODIFIED default/fin", "MODIFIED default/fin", "DELETED default/fin"]);
    assert!(events.iter().all(|event| event.object["metadata"]["deletionTimestamp"].is_string()));
    let left: Vec<_> = events.iter().map(|event| event.object["metadata"]["finalizers"].clone()).collect();
    assert_eq!(left, [json!(["example.com/x", "example.com/y"]), json!(["example.com/y"]), json!(["example.com/y"])]);
}

/// Goal: cluster-scoped objects can be watched by name, label and field. Method: a node's life with each selector.
#[tokio::test]
async fn objects_outside_of_namespaces_are_selected_alike() {
    let server = server(&[]).await;
    let client = server.client();
    let at = client.get("/api/v1/nodes").await.resource_version();
    let cordon = |name: &str, on: bool| node(name).with("spec", json!({ "unschedulable": on }));
    client.create(&cordon("a", false).label("pool", "x")).await;
    client.create(&cordon("b", false)).await;
    client.update(&cordon("a", true).label("pool", "x")).await;
    client.update(&cordon("b", true).label("pool", "x")).await;
    client.update(&cordon("a", true).label("pool", "y")).await;
    client.delete(&node("a").path()).await.with_code(200);
    let table = [
        (("fieldSelector", "metadata.name=a"), &["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"][..]),
        (("fieldSelector", "metadata.name=c"), &[]),
        (("labelSelector", "pool=x"), &["ADDED a", "MODIFIED a", "ADDED b", "DELETED a"]),
        (("labelSelector", "pool=y"), &["ADDED a", "DELETED a"]),
        (("labelSelector", "!pool"), &["ADDED b", "DELETED b"]),
        (("fieldSelector", "spec.unschedulable=true"), &["ADDED a", "ADDED b", "MODIFIED a", "DELETED a"]),
        (("fieldSelector", "spec.unschedulable=true,metadata.name!=a"), &["ADDED b"]),
    ];
    let at = at.to_string();
    join_all(table.map(|(selector, expected)| {
        let query = [("watch", "1"), ("timeoutSeconds", "1"), ("resourceVersion", at.as_str()), selector];
        let path = with_query("/api/v1/nodes", &query);
        async move {
            let events = client.watch(&path).await.rest(LINE_WAIT).await;
            assert_eq!(briefs(&events), expected, "{selector:?}");
        }
    }))
    .await;
}
