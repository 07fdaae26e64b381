//! Types that are served from the objects of another one: Events of `events.k8s.io`, and autoscalers of `autoscaling/v1`.

use cache_server::testing;
use http::Method;
use serde_json::{Value, json};
use tests::http::{Client, MERGE_PATCH, briefs};

use super::client_of;

const CORE: &str = "/api/v1/namespaces/default/events";
const OTHER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const OLDER: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const NEWER: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn core(name: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": name, "namespace": "default"},
        "reason": "Tested", "message": "by the core group", "type": "Normal", "count": 1, "source": {"component": "c"}})
}

fn other(name: &str) -> Value {
    json!({"metadata": {"name": name}, "regarding": {"kind": "Pod", "name": name, "namespace": "default"},
        "reason": "Tested", "note": "by the other group", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "rc", "reportingInstance": "ri", "action": "Test"})
}

/// The kind, apiVersion and text of an Event in either group.
fn brief(event: &Value) -> [&str; 3] {
    let text = if event["note"].is_null() { &event["message"] } else { &event["note"] };
    [&event["kind"], &event["apiVersion"], text].map(|value| value.as_str().expect("a text"))
}

const IN_CORE: &str = "v1";
const IN_OTHER: &str = "events.k8s.io/v1";

/// Goal: both groups have the same Events, each with its own members. Method: a watch in each group, then every kind of write
/// by either group, and reads by the other one.
#[tokio::test]
async fn events_are_the_same_in_both_groups() {
    let server = testing::start().await;
    let client = client_of(&server);
    let mut in_core = client.watch(&format!("{CORE}?watch=1")).await;
    let mut in_other = client.watch(&format!("{OTHER}?watch=1")).await;
    let made = client.post(CORE, &core("a")).await.with_code(201).json();
    let seen = client.get(&format!("{OTHER}/a")).await.with_code(200).json();
    assert_eq!(brief(&seen), ["Event", IN_OTHER, "by the core group"]);
    assert_eq!((&seen["deprecatedCount"], &seen["deprecatedSource"]["component"]), (&json!(1), &json!("c")));
    assert_eq!((&seen["metadata"], seen.get("message")), (&made["metadata"], None));
    let answer = client.post(OTHER, &other("b")).await.with_code(201).json();
    assert_eq!(brief(&answer), ["Event", IN_OTHER, "by the other group"]);
    let stored = client.get(&format!("{CORE}/b")).await.with_code(200).json();
    assert_eq!(brief(&stored), ["Event", IN_CORE, "by the other group"]);
    assert_eq!((&stored["reportingComponent"], &stored["involvedObject"]["name"]), (&json!("rc"), &json!("b")));

    let mut whole = seen.clone();
    whole["note"] = json!("replaced");
    let replaced = client.put(&format!("{OTHER}/a"), &whole).await.with_code(200).json();
    assert_eq!(brief(&replaced), ["Event", IN_OTHER, "replaced"]);
    let same = client.put(&format!("{OTHER}/a"), &replaced).await.with_code(200).json();
    assert_eq!(same["metadata"]["resourceVersion"], replaced["metadata"]["resourceVersion"], "nothing changed");
    client.patch(&format!("{OTHER}/b"), MERGE_PATCH, &json!({"note": "merged"})).await.with_code(200);
    let applied = json!({"apiVersion": IN_OTHER, "kind": "Event", "metadata": {"name": "b"}, "deprecatedCount": 7});
    let applied = client.patch(&format!("{OTHER}/b?fieldManager=m"), APPLY_PATCH, &applied).await.with_code(200).json();
    assert_eq!(applied["deprecatedCount"], 7);
    let tried = client.patch(&format!("{OTHER}/b?dryRun=All"), MERGE_PATCH, &json!({"note": "tried"})).await;
    assert_eq!(brief(&tried.with_code(200).json()), ["Event", IN_OTHER, "tried"]);
    let b = client.get(&format!("{CORE}/b")).await.with_code(200).json();
    assert_eq!((&b["message"], &b["count"]), (&json!("merged"), &json!(7)));
    client.delete(&format!("{OTHER}/a")).await.with_code(200);
    let gone = client.get(&format!("{OTHER}/a")).await.with_code(404);
    assert_eq!(gone.message(), "events.events.k8s.io \"a\" not found");
    client.get(&format!("{CORE}/a")).await.with_code(404);

    let expected = [
        "ADDED default/a",
        "ADDED default/b",
        "MODIFIED default/a",
        "MODIFIED default/b",
        "MODIFIED default/b",
        "DELETED default/a",
    ];
    for (watch, version) in [(&mut in_core, IN_CORE), (&mut in_other, IN_OTHER)] {
        let events = watch.events(expected.len()).await;
        assert_eq!(briefs(&events), expected);
        assert!(events.iter().all(|event| event.object["apiVersion"] == version), "{events:?}");
        let texts = events.iter().map(|event| brief(&event.object)[2]);
        assert_eq!(
            texts.collect::<Vec<_>>(),
            ["by the core group", "by the other group", "replaced", "merged", "merged", "replaced"]
        );
    }
}

/// Goal: all kinds of reads have the members of their group. Method: pages, selectors by the fields of each group, a watch-list
/// with its bookmark, metadata, a table and protobuf.
#[tokio::test]
async fn reads_of_events_have_the_members_of_their_group() {
    let server = testing::start().await;
    let client = client_of(&server);
    for name in ["a", "b", "c"] {
        client.post(CORE, &core(name)).await.with_code(201);
    }
    client.post(OTHER, &other("d")).await.with_code(201);
    let first = client.get(&format!("{OTHER}?limit=3")).await.with_code(200);
    assert_eq!((&first.json()["kind"], &first.json()["apiVersion"]), (&json!("EventList"), &json!(IN_OTHER)));
    assert_eq!(first.json()["items"][2]["note"], "by the core group");
    let token = first.token().expect("a next page");
    let rest = client.get(&format!("{OTHER}?limit=3&continue={token}")).await.with_code(200);
    assert_eq!(rest.keys(), ["default/d"]);
    for (path, found) in [
        (format!("{OTHER}?fieldSelector=regarding.name%3Db"), "default/b"),
        (format!("{OTHER}?fieldSelector=reportingController%3Drc,regarding.kind%3DPod"), "default/d"),
        (format!("{CORE}?fieldSelector=involvedObject.name%3Dd,reportingComponent%3Drc"), "default/d"),
    ] {
        assert_eq!(client.get(&path).await.with_code(200).keys(), [found], "{path}");
    }
    for path in
        [format!("{OTHER}?fieldSelector=involvedObject.name%3Db"), format!("{CORE}?fieldSelector=regarding.name%3Db")]
    {
        let refused = client.get(&path).await.with_code(400);
        assert!(refused.message().starts_with("field label not supported: "), "{}", refused.message());
    }
    let state = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = client.watch(&format!("{OTHER}?{state}&fieldSelector=regarding.name%3Dc")).await;
    let events = watch.events(2).await;
    assert_eq!(
        (&events[0].object["note"], &events[1].object["apiVersion"]),
        (&json!("by the core group"), &json!(IN_OTHER))
    );
    assert_eq!(briefs(&events)[0], "ADDED default/c");
    assert_eq!(events[1].object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    forms(&client).await;
}

/// Reads one Event in each form, and in protobuf.
async fn forms(client: &Client) {
    let path = format!("{OTHER}/d");
    let accept = |accept: &'static str| [("accept", accept)];
    let table =
        client.get_with(&path, &accept("application/json;as=Table;v=v1;g=meta.k8s.io")).await.with_code(200).json();
    assert!(table["rows"][0]["cells"].as_array().expect("cells").contains(&json!("by the other group")), "{table}");
    let metadata =
        client.get_with(&path, &accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")).await;
    assert_eq!(metadata.json()["metadata"]["name"], "d");
    for path in [path, OTHER.to_owned()] {
        let message = client.get_with(&path, &accept(PROTOBUF)).await.with_code(200);
        let text = String::from_utf8_lossy(&message.body);
        assert!(message.header("content-type").starts_with(PROTOBUF) && text.contains("events.k8s.io/v1"), "{text}");
        assert!(text.contains("by the other group"), "{text}");
    }
    client
        .post(&format!("{CORE}?dryRun=All"), &json!({"metadata": {"name": "x"}, "note": "unknown here"}))
        .await
        .with_code(201);
    let strict = client.post(&format!("{OTHER}?fieldValidation=Strict"), &core("x")).await.with_code(400);
    assert!(strict.message().contains("unknown field \"involvedObject\""), "{}", strict.message());
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Writes in place of another client, which wants a table.
async fn row_of(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    let content = if method == Method::PATCH { MERGE_PATCH } else { "application/json" };
    let headers = [("accept", TABLE), ("content-type", content)];
    let answer = client.send(Client::request(method, path, &headers, body.to_string().into())).await;
    assert!(answer.code == 200 || answer.code == 201, "{path}: {} {}", answer.code, answer.text());
    answer.json()["rows"][0].clone()
}

/// Goal: a client that shows the answer of its write shows what a read shows, and an attempt tells what the write will do. Method:
/// each kind of write by the types that are not stored: as a dry run and for real, whole and as a table.
#[tokio::test]
async fn answers_of_writes_are_those_of_reads_and_of_dry_runs() {
    let server = testing::start().await;
    let client = client_of(&server);
    let older = |name: &str| {
        json!({"metadata": {"name": name, "annotations": {"autoscaling.alpha.kubernetes.io/behavior": "7", "a": "b"}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 9}})
    };
    // The members of metadata that each write makes anew.
    let brief = |mut object: Value| {
        for member in ["uid", "creationTimestamp", "resourceVersion"] {
            object["metadata"].as_object_mut().expect("metadata").remove(member);
        }
        object
    };
    let spec = json!({"spec": {"targetCPUUtilizationPercentage": null, "maxReplicas": 7}});
    for (root, made, patch, cells) in [
        (OTHER, other("a"), json!({"note": "patched"}), ["Normal", "Tested", "pod/a"]),
        (OLDER, older("a"), spec, ["a", "Deployment/d", "cpu: <unknown>/80%"]),
    ] {
        let path = format!("{root}/a");
        for (method, at, body) in
            [(Method::POST, root, &made), (Method::PUT, path.as_str(), &made), (Method::PATCH, path.as_str(), &patch)]
        {
            let content = if method == Method::PATCH { MERGE_PATCH } else { "application/json" };
            let tried = format!("{at}?dryRun=All");
            let row = row_of(&client, method.clone(), &tried, body).await;
            let send = async |at: &str| {
                let headers = [("content-type", content)];
                client.send(Client::request(method.clone(), at, &headers, body.to_string().into())).await.json()
            };
            let attempt = brief(send(&tried).await);
            let answer = brief(send(at).await);
            assert_eq!(attempt, answer, "{method} {at}");
            assert_eq!(answer, brief(client.get(&path).await.with_code(200).json()), "{method} {at}");
            // Once more, without a change.
            let again = if method == Method::POST { (Method::PUT, path.as_str()) } else { (method.clone(), at) };
            let written = row_of(&client, again.0, again.1, body).await;
            for row in [row, written] {
                let shown = row["cells"].as_array().expect("cells");
                assert!(cells.iter().all(|cell| shown.contains(&json!(cell))), "{method} {at}: {row}");
            }
        }
    }
}

/// Goal: an older client changes what it knows, and keeps what only the newer version has. Method: an autoscaler with members of
/// the newer version, read and written by the older one, with and without its annotations.
#[tokio::test]
async fn autoscalers_keep_what_the_older_version_does_not_know() {
    let server = testing::start().await;
    let client = client_of(&server);
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let newer = json!({"metadata": {"name": "a"}, "spec": {"scaleTargetRef": target, "maxReplicas": 9, "metrics": [pods, cpu]}});
    client.post(NEWER, &newer).await.with_code(201);
    let status = json!({"status": {"desiredReplicas": 3, "conditions": [{"type": "AbleToScale", "status": "True"}]}});
    client.patch(&format!("{NEWER}/a/status"), MERGE_PATCH, &status).await.with_code(200);
    let older = client.get(&format!("{OLDER}/a")).await.with_code(200).json();
    assert_eq!(
        (&older["apiVersion"], &older["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &json!(70))
    );
    let annotation = |object: &Value, name: &str| {
        let name = format!("autoscaling.alpha.kubernetes.io/{name}");
        serde_json::from_str::<Value>(object["metadata"]["annotations"][&name].as_str().expect("a text")).expect("JSON")
    };
    assert_eq!(annotation(&older, "metrics")[0]["pods"], json!({"metricName": "q", "targetAverageValue": "5"}));
    assert_eq!(annotation(&older, "conditions")[0]["type"], "AbleToScale");
    let mut changed = older.clone();
    changed["spec"]["targetCPUUtilizationPercentage"] = json!(60);
    client.put(&format!("{OLDER}/a"), &changed).await.with_code(200);
    let now = client.get(&format!("{NEWER}/a")).await.with_code(200).json();
    assert_eq!((&now["spec"]["metrics"][0], &now["metadata"].get("annotations")), (&pods, &None));
    assert_eq!(now["spec"]["metrics"][1]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(now["status"]["conditions"][0]["type"], "AbleToScale");

    let short = json!({"metadata": {"name": "a"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5}});
    let replaced = client.put(&format!("{OLDER}/a"), &short).await.with_code(200).json();
    assert_eq!(replaced["spec"]["targetCPUUtilizationPercentage"], 80);
    let now = client.get(&format!("{NEWER}/a")).await.with_code(200).json();
    assert_eq!((now["spec"]["metrics"].as_array().map(Vec::len), &now["spec"]["minReplicas"]), (Some(1), &json!(1)));
    assert_eq!(now["status"]["conditions"][0]["type"], "AbleToScale", "a write of the spec keeps the status");
    let plain = json!({"status": {"desiredReplicas": 4}, "metadata": {"annotations": null}});
    client.patch(&format!("{OLDER}/a/status"), MERGE_PATCH, &plain).await.with_code(200);
    let kept = client.get(&format!("{NEWER}/a")).await.with_code(200).json();
    assert_eq!((&kept["spec"], &kept["status"]["desiredReplicas"]), (&now["spec"], &json!(4)));
    let groups = client.get("/apis").await.json();
    let versions = groups["groups"].as_array().expect("groups").iter().find(|group| group["name"] == "autoscaling");
    let versions = versions.expect("the group")["versions"].as_array().expect("versions").clone();
    assert_eq!(versions.iter().map(|version| &version["version"]).collect::<Vec<_>>(), ["v2", "v1"]);
}
