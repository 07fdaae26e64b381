//! Delete and deletecollection: options in bodies and queries, finalizers, limits.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, briefs, key, with_query},
    objects::{configmap, node, pod, replica_set},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn delete(client: &Client, path: &str, options: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    client.send(Client::request(Method::DELETE, path, &headers, options.to_string().into())).await
}

async fn held(client: &Client, name: &str) {
    let mut body = configmap(name).body().clone();
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    client.post(CONFIGMAPS, &body).await.with_code(201);
}

/// Goal: the delete options of kubectl and the client libraries work. Method: variants of one request, each on a fresh
/// object.
#[tokio::test]
async fn a_delete_takes_its_options_from_body_or_query() {
    let server = server(&[]).await;
    let client = server.client();
    let path = configmap("a").path();
    let whole = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "gracePeriodSeconds": 0});
    for options in [json!({}), json!({"propagationPolicy": "Background"}), json!({"gracePeriodSeconds": 30}), whole] {
        client.create(&configmap("a")).await;
        let answer = delete(&client, &path, &options).await.with_code(200).json();
        assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")), "{options}");
        client.get(&path).await.with_code(404);
    }
    for query in ["", "?propagationPolicy=Background", "?gracePeriodSeconds=0", "?unknown=1"] {
        client.create(&configmap("a")).await;
        client.delete(&format!("{path}{query}")).await.with_code(200);
        client.get(&path).await.with_code(404);
    }
    client.create(&configmap("a")).await;
    for (query, code) in [("?gracePeriodSeconds=x", 400), ("?propagationPolicy=Sideways", 422), ("?dryRun=Some", 422)] {
        client.delete(&format!("{path}{query}")).await.with_code(code);
    }
    for options in [json!({"preconditions": {"uid": "other"}}), json!({"preconditions": {"resourceVersion": "1"}})] {
        delete(&client, &path, &options).await.with_code(409);
    }
    for garbage in ["{bad", "[]", "7"] {
        let headers = [("content-type", "application/json")];
        let request = Client::request(Method::DELETE, &path, &headers, Bytes::from_static(garbage.as_bytes()));
        client.send(request).await.with_code(400);
    }
    client.get(&path).await.with_code(200);
    delete(&client, &path, &json!({"dryRun": ["All"]})).await.with_code(200);
    client.get(&path).await.with_code(200);
}

/// Goal: each type has the right response body. Method: types that return the object and types that return a Status.
#[tokio::test]
async fn a_delete_answers_with_the_object_or_a_status() {
    let server = server(&[]).await;
    let client = server.client();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    for (collection, body, kind) in [
        ("/api/v1/namespaces/default/pods", pod("s").body().clone(), "Pod"),
        ("/api/v1/namespaces/default/services", service, "Service"),
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "s"}}), "ServiceAccount"),
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}}), "Status"),
        ("/apis/apps/v1/namespaces/default/replicasets", replica_set("s").body().clone(), "Status"),
        ("/api/v1/nodes", node("s").body().clone(), "Status"),
    ] {
        let created = client.post(collection, &body).await.with_code(201);
        let deleted = client.delete(&format!("{collection}/s")).await.with_code(200);
        assert_eq!(deleted.json()["kind"], kind, "{collection}");
        assert!(deleted.resource_version() > created.resource_version(), "{collection}: the position of the deletion");
        if kind == "Status" {
            let details = &deleted.json()["details"];
            let plural = collection.rsplit('/').next().unwrap();
            assert_eq!(
                (&details["name"], &details["kind"], &details["uid"]),
                (&json!("s"), &json!(plural), &created.json()["metadata"]["uid"])
            );
            assert_eq!(details.get("group").is_some(), collection.starts_with("/apis"), "{collection}");
            assert!(deleted.json().get("code").is_none());
        }
        client.delete(&format!("{collection}/s")).await.with_code(404);
    }
}

/// Goal: a deletion does not wait for a garbage collector, because the server has none. Method: every policy, on
/// objects with and without the finalizers of other servers' collectors.
#[tokio::test]
async fn whatever_the_policy_an_object_goes() {
    let server = server(&[]).await;
    let client = server.client();
    let wishes = [
        json!({"propagationPolicy": "Foreground"}),
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Background"}),
        json!({"orphanDependents": true}),
        json!({"orphanDependents": false}),
    ];
    for wish in wishes {
        for finalizers in [json!([]), json!(["orphan"]), json!(["foregroundDeletion"])] {
            let body = json!({"metadata": {"name": "a", "finalizers": finalizers}});
            client.post(CONFIGMAPS, &body).await.with_code(201);
            let answer = delete(&client, &configmap("a").path(), &wish).await.with_code(200).json();
            assert_eq!(answer["status"], "Success", "{wish} {finalizers}");
            client.get(&configmap("a").path()).await.with_code(404);
        }
    }
}

/// Goal: a client that requests deletion of dependents gets a 202 while the deletion is pending. Method: an object
/// deleted at once, one with a finalizer, and a pod with a grace period; both option names, in body and query.
#[tokio::test]
async fn a_deletion_that_is_not_over_is_accepted_for_who_asked() {
    let server = server(&[]).await;
    let client = server.client();
    let old_words = json!({"orphanDependents": false});
    client.create(&configmap("free")).await;
    delete(&client, &configmap("free").path(), &old_words).await.with_code(200);
    held(&client, "held").await;
    let path = configmap("held").path();
    delete(&client, &path, &old_words).await.with_code(202);
    client.delete(&format!("{path}?orphanDependents=false")).await.with_code(202);
    for wish in [json!({"orphanDependents": true}), json!({"propagationPolicy": "Background"}), json!({})] {
        delete(&client, &path, &wish).await.with_code(200);
    }
    for (name, wish, code) in [
        ("a", json!({"orphanDependents": false}), 202),
        ("b", json!({"orphanDependents": false, "gracePeriodSeconds": 0}), 200),
        ("c", json!({"propagationPolicy": "Background"}), 200),
    ] {
        client.create(&pod(name).node("n1")).await;
        let answer = delete(&client, &pod(name).path(), &wish).await.with_code(code);
        assert_eq!(answer.json()["kind"], "Pod");
    }
    let both = json!({"orphanDependents": true, "propagationPolicy": "Orphan"});
    let refused = delete(&client, &path, &both).await.with_code(422);
    assert_eq!(
        refused.message(),
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and \
         deletionPropagation cannot be both set"
    );
}

#[tokio::test]
async fn an_object_that_is_going_can_be_changed_but_not_kept() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "fin").await;
    let path = configmap("fin").path();
    let marked = client.delete(&path).await.with_code(200).json();
    let changed = client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "still here"}})).await.with_code(200).json();
    assert_eq!(changed["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    // The deletion mark cannot be removed.
    let back = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    let kept = client.patch(&path, MERGE_PATCH, &back).await.with_code(200).json();
    assert_eq!(kept["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    // A PUT without the finalizers completes the deletion.
    client.put(&path, configmap("fin").data("last").body()).await.with_code(200);
    client.get(&path).await.with_code(404);
    // The name is free again for a new object.
    let again = client.post(CONFIGMAPS, configmap("fin").body()).await.with_code(201).json();
    assert_ne!(again["metadata"]["uid"], marked["metadata"]["uid"]);
}

#[tokio::test]
async fn finalizers_of_living_objects_come_and_go() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "a").await;
    let off = client
        .patch(&configmap("a").path(), MERGE_PATCH, &json!({"metadata": {"finalizers": null}}))
        .await
        .with_code(200);
    assert!(off.json()["metadata"].get("finalizers").is_none_or(|left| *left == json!([])));
    let on = json!({"metadata": {"finalizers": ["example.com/y"]}});
    client.patch(&configmap("a").path(), MERGE_PATCH, &on).await.with_code(200);
    client.get(&configmap("a").path()).await.with_code(200);
}

/// Goal: deletecollection deletes only selected objects, up to the limit. Method: labels, fields, limits.
#[tokio::test]
async fn a_part_of_a_collection_can_be_deleted() {
    let server = server(&[]).await;
    let client = server.client();
    let all = || async { client.get(CONFIGMAPS).await.keys().len() };
    for index in 0..10 {
        client.create(&configmap(&format!("c{index}")).label("odd", ["no", "yes"][index % 2])).await;
    }
    let by_field =
        client.delete(&with_query(CONFIGMAPS, &[("fieldSelector", "metadata.name=c0")])).await.with_code(200);
    assert_eq!((by_field.keys(), all().await), (vec!["default/c0".to_owned()], 9));
    let none = client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=perhaps")])).await.with_code(200);
    assert_eq!((none.json()["items"].clone(), all().await), (json!([]), 9));
    let dry =
        client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=yes"), ("dryRun", "All")])).await.with_code(200);
    assert_eq!((dry.keys().len(), all().await), (5, 9));
    let limited = client.delete(&with_query(CONFIGMAPS, &[("limit", "3")])).await.with_code(200);
    assert_eq!((limited.keys().len(), all().await), (3, 6));
    let odd = client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=yes")])).await.with_code(200);
    assert_eq!(odd.json()["kind"], "ConfigMapList");
    let left = client.get(&with_query(CONFIGMAPS, &[("labelSelector", "odd=yes")])).await;
    assert_eq!((left.keys().len(), all().await), (0, 6 - odd.keys().len()), "those that are selected, and no others");
    for (query, code) in [
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("limit=x", 400),
        ("fieldSelector=spec.x%3Dy", 400),
    ] {
        client.delete(&format!("{CONFIGMAPS}?{query}")).await.with_code(code);
    }
    client.delete("/api/v1/configmaps").await.with_code(405);
}

#[tokio::test]
async fn finalizers_hold_objects_of_a_deleted_collection() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "held").await;
    let at = client.create(&configmap("free")).await;
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
    let listed = client.delete(CONFIGMAPS).await.with_code(200);
    assert_eq!(listed.keys(), ["default/free", "default/held"]);
    let mut seen = briefs(&watch.events(2).await);
    seen.sort();
    assert_eq!(seen, ["DELETED default/free", "MODIFIED default/held"]);
    let left = client.get(CONFIGMAPS).await;
    assert_eq!(left.keys(), ["default/held"]);
    assert!(left.json()["items"][0]["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_collection_outside_of_namespaces_is_deleted_alike() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b"] {
        client.create(&node(name).label("pool", name)).await;
    }
    let gone = client.delete("/api/v1/nodes?labelSelector=pool%3Da").await.with_code(200);
    assert_eq!(gone.keys(), ["a"]);
    assert_eq!(client.get("/api/v1/nodes").await.keys(), ["b"]);
}

/// Goal: a pod gets its grace period. Method: a table of pod, options and seconds; compare the response and the watch
/// events.
#[tokio::test]
async fn a_pod_is_told_to_go_before_it_goes() {
    let server = server(&[]).await;
    let client = server.client();
    let mut quick = pod("quick").node("n1").body().clone();
    quick["spec"]["terminationGracePeriodSeconds"] = json!(5);
    let table = [
        (pod("default").node("n1").body().clone(), json!({}), 30),
        (quick.clone(), json!({}), 5),
        (quick, json!({"gracePeriodSeconds": 60}), 60),
        (pod("nowhere").body().clone(), json!({"gracePeriodSeconds": 60}), 0),
        (pod("hurry").node("n1").body().clone(), json!({"gracePeriodSeconds": 0}), 0),
        (pod("less").node("n1").body().clone(), json!({"gracePeriodSeconds": -7}), 1),
    ];
    for (body, options, seconds) in table {
        let born = client.post(PODS, &body).await.with_code(201).resource_version();
        let path = format!("{PODS}/{}", body["metadata"]["name"].as_str().unwrap());
        let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={born}")).await;
        let dry = json!({"dryRun": ["All"], "gracePeriodSeconds": options.get("gracePeriodSeconds")});
        let told = delete(&client, &path, &dry).await.with_code(200).json();
        assert_eq!(told["metadata"]["deletionGracePeriodSeconds"], seconds, "{options}: as it would be");
        let answer = delete(&client, &path, &options).await.with_code(200);
        let metadata = answer.json()["metadata"].clone();
        assert_eq!((&metadata["deletionGracePeriodSeconds"], &metadata["generation"]), (&json!(seconds), &json!(2)));
        let seen = watch.events(2).await;
        assert_eq!(briefs(&seen), [format!("MODIFIED {}", key(&body)), format!("DELETED {}", key(&body))]);
        assert_eq!(seen[0].object["metadata"]["deletionTimestamp"], metadata["deletionTimestamp"]);
        // With a grace period the response is the mark's, without one the removal's.
        let at = seen[usize::from(seconds == 0)].resource_version();
        assert_eq!(answer.resource_version(), at, "{options}");
        assert_eq!((seen[0].resource_version(), seen[1].resource_version()), (born + 1, born + 2));
        client.get(&path).await.with_code(404);
    }
}

/// Goal: a finished pod gets no grace period. Method: pods of each phase.
#[tokio::test]
async fn a_pod_that_has_ended_goes_at_once() {
    let server = server(&[]).await;
    let client = server.client();
    for (phase, seconds) in [("Running", 30), ("Succeeded", 0), ("Failed", 0), ("Unknown", 30)] {
        client.create(&pod("p").node("n1")).await;
        let patch = json!({"status": {"phase": phase}});
        client.patch(&format!("{}/status", pod("p").path()), MERGE_PATCH, &patch).await.with_code(200);
        let deleted = client.delete(&pod("p").path()).await.with_code(200).json();
        assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], seconds, "{phase}");
        client.get(&pod("p").path()).await.with_code(404);
    }
}

/// Goal: the grace period of a pod with a finalizer can only be shortened, and the last finalizer's removal deletes the
/// pod.
#[tokio::test]
async fn the_grace_of_a_held_pod_can_only_be_shortened() {
    let server = server(&[]).await;
    let client = server.client();
    let mut body = pod("p").node("n1").body().clone();
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    let born = client.post(PODS, &body).await.with_code(201).resource_version();
    let path = pod("p").path();
    let grace = |answer: &Answer| answer.json()["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let first = delete(&client, &path, &json!({"gracePeriodSeconds": 60})).await.with_code(200);
    assert_eq!((grace(&first), first.resource_version()), (Some(60), born + 1));
    for same in [json!({"gracePeriodSeconds": 90}), json!({"gracePeriodSeconds": 60}), json!({})] {
        let again = delete(&client, &path, &same).await.with_code(200);
        assert_eq!((grace(&again), again.resource_version()), (Some(60), first.resource_version()), "{same}");
    }
    let shorter = delete(&client, &path, &json!({"gracePeriodSeconds": 5})).await.with_code(200);
    assert_eq!((grace(&shorter), shorter.json()["metadata"]["generation"].clone()), (Some(5), json!(2)));
    assert!(shorter.resource_version() > first.resource_version());
    let none = delete(&client, &path, &json!({"gracePeriodSeconds": 0})).await.with_code(200);
    assert_eq!(grace(&none), Some(0));
    client.get(&path).await.with_code(200);
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    client.get(&path).await.with_code(404);
    // No kubelet confirms the end of the pod, so the server does not wait for its grace period.
    client.post(PODS, &body).await.with_code(201);
    client.delete(&path).await.with_code(200);
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    client.get(&path).await.with_code(404);
}

/// Goal: deletecollection of pods deletes each like a single delete. Method: the watch events, and the response in
/// every form.
#[tokio::test]
async fn a_deleted_collection_answers_in_any_form() {
    let server = server(&[]).await;
    let client = server.client();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (accept, kind) in [
        ("application/json", "PodList"),
        (table, "Table"),
        (metadata, "PartialObjectMetadataList"),
        ("application/yaml", "PodList"),
    ] {
        let mut born = 0;
        for name in ["a", "b"] {
            born = client.create(&pod(name).node("n1")).await;
        }
        let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={born}")).await;
        let request = Client::request(Method::DELETE, PODS, &[("accept", accept)], Bytes::new());
        let answer = client.send(request).await.with_code(200);
        let list: Value =
            if accept.ends_with("yaml") { serde_saphyr::from_str(answer.text()).expect("YAML") } else { answer.json() };
        let items = list["items"].as_array().or_else(|| list["rows"].as_array()).expect("items");
        assert_eq!((&list["kind"], items.len()), (&json!(kind), 2), "{accept}");
        assert_eq!(list["metadata"]["resourceVersion"], born.to_string(), "as they were listed");
        assert_eq!(
            briefs(&watch.events(4).await),
            ["MODIFIED default/a", "DELETED default/a", "MODIFIED default/b", "DELETED default/b"]
        );
    }
}

/// Goal: deletecollection deletes what a LIST with equal options returns, and deletes no object where that LIST is
/// refused. A `resourceVersion` in its query is also a precondition of each object. Method: a table of query, code, and
/// remaining objects, each on fresh objects.
#[tokio::test]
async fn a_collection_is_deleted_as_it_is_listed() {
    let server = server(&[]).await;
    let client = server.client();
    for (query, accept, code, left) in [
        ("", "", 200, ""),
        ("?resourceVersion=0", "", 409, "*"),
        ("?resourceVersion={at}&resourceVersionMatch=NotOlderThan", "", 409, "*"),
        ("?resourceVersion={at}&resourceVersionMatch=Exact", "", 409, "*"),
        ("?resourceVersion={at}&limit=1", "", 409, "*"),
        ("?resourceVersion={at}&fieldSelector=metadata.name=b", "", 200, "default/a default/late"),
        (
            "?resourceVersion={at}&resourceVersionMatch=Exact&fieldSelector=metadata.name=b",
            "",
            200,
            "default/a default/late",
        ),
        ("?continue={token}", "", 200, "default/a default/late"),
        ("?limit=1", "", 200, "default/b default/late"),
        ("?fieldSelector=metadata.name=b", "", 200, "default/a default/late"),
        ("?resourceVersion=abc", "", 400, "*"),
        ("?resourceVersion=9199999999999999999", "", 504, "*"),
        ("?resourceVersionMatch=Exact", "", 422, "*"),
        ("?resourceVersion={at}&resourceVersionMatch=Nearly", "", 422, "*"),
        ("?continue=zz", "", 400, "*"),
        ("?continue={token}&resourceVersion={at}", "", 400, "*"),
        ("?labelSelector=a in", "", 400, "*"),
        ("?fieldSelector=spec.x=1", "", 400, "*"),
        ("?limit=x", "", 400, "*"),
        ("?dryRun=Some", "", 422, "*"),
        ("?sendInitialEvents=true", "", 422, "*"),
        ("", "application/vnd.unknown", 406, "*"),
    ] {
        client.create(&configmap("a")).await;
        let at = client.create(&configmap("b")).await;
        let first = client.get(&format!("{CONFIGMAPS}?limit=1&resourceVersion={at}")).await.with_code(200).json();
        let token = first["metadata"]["continue"].as_str().expect("one more follows");
        client.create(&configmap("late")).await;
        // After a consistent read, a read at any freshness includes this object too.
        client.get(CONFIGMAPS).await.with_code(200);
        let asked = query.replace("{at}", &at.to_string()).replace("{token}", token).replace(' ', "%20");
        let headers = if accept.is_empty() { vec![] } else { vec![("accept", accept)] };
        let request = Client::request(Method::DELETE, &format!("{CONFIGMAPS}{asked}"), &headers, Bytes::new());
        let answer = client.send(request).await.with_code(code);
        if query.contains("Exact") && code == 200 {
            assert_eq!(answer.resource_version(), at, "{query}");
        }
        let listed = client.get(CONFIGMAPS).await.with_code(200).json();
        let keys: Vec<String> = listed["items"].as_array().expect("items").iter().map(key).collect();
        let expected = if left == "*" { "default/a default/b default/late" } else { left };
        assert_eq!(keys.join(" "), expected, "{query} {accept}");
        client.delete(CONFIGMAPS).await.with_code(200);
    }
}

#[tokio::test]
async fn a_collection_is_not_deleted_for_an_answer_that_cannot_be() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let path = format!("{CONFIGMAPS}?includeObject=Sometimes");
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    client.send(Client::request(Method::DELETE, &path, &table, Bytes::new())).await.with_code(400);
    assert_eq!(client.get(CONFIGMAPS).await.keys(), ["default/a"]);
}

#[tokio::test]
async fn a_collection_is_not_deleted_as_it_was_before_the_history() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    client.delete(&format!("{CONFIGMAPS}?resourceVersion=1&resourceVersionMatch=Exact")).await.with_code(410);
    assert_eq!(client.get(CONFIGMAPS).await.keys(), ["default/a"]);
}

/// Goal: a page of a deletion leads to the next one although its objects are deleted.
#[tokio::test]
async fn a_collection_is_deleted_page_by_page() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b", "c", "d", "e"] {
        client.create(&configmap(name)).await;
    }
    let (mut token, mut seen) = (String::new(), Vec::new());
    for page in 0..3 {
        let answer = client.delete(&format!("{CONFIGMAPS}?limit=2&continue={token}")).await.with_code(200).json();
        seen.extend(answer["items"].as_array().expect("items").iter().map(key));
        answer["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        assert_eq!(token.is_empty(), page == 2);
    }
    assert_eq!(seen, ["default/a", "default/b", "default/c", "default/d", "default/e"]);
    assert!(client.get(CONFIGMAPS).await.with_code(200).json()["items"].as_array().expect("items").is_empty());
}

#[tokio::test]
async fn of_many_deletes_of_one_object_one_wins() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let path = configmap("a").path();
    let answers = futures::future::join_all((0..20).map(|_| client.delete(&path))).await;
    let codes: Vec<u16> = answers.iter().map(|answer| answer.code.as_u16()).collect();
    assert_eq!(
        (codes.iter().filter(|&&code| code == 200).count(), codes.iter().filter(|&&code| code == 404).count()),
        (1, 19)
    );
}
