//! Requests of clients at startup: groups, versions, types, and health.

use serde_json::{Value, json};
use tests::http::{Answer, Client, MERGE_PATCH};

use super::{define, server};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn aggregated(client: &Client, path: &str) -> Answer {
    client.get_with(path, &[("accept", AGGREGATED)]).await.with_code(200)
}

fn definition(plural: &str, group: &str, versions: &[&str]) -> Value {
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == versions[0], "subresources": {"status": {}, "scale":
            {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": plural, "kind": plural.to_uppercase()},
        "versions": versions.iter().map(version).collect::<Vec<_>>()}})
}

fn names(list: &Value, path: &str) -> Vec<String> {
    let items = list["items"].as_array().or_else(|| list["groups"].as_array()).expect("groups");
    items.iter().map(|item| item.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn groups_stand_in_the_order_of_kube_apiserver() {
    let server = server(&[]).await;
    let client = server.client();
    for group in ["zoo.example.com", "ant.example.com"] {
        define(&client, &definition("things", group, &["v1"])).await;
    }
    let expected = [
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "resource.k8s.io",
        "ant.example.com",
        "zoo.example.com",
    ];
    assert_eq!(names(&aggregated(&client, "/apis").await.json(), "/metadata/name"), expected);
    assert_eq!(names(&client.get("/apis").await.with_code(200).json(), "/name"), expected);
}

#[tokio::test]
async fn versions_stand_in_the_order_of_preference() {
    let server = server(&[]).await;
    let client = server.client();
    let versions = ["v1alpha1", "v2", "v1beta2", "v1", "v1beta10", "v10"];
    define(&client, &definition("things", "example.com", &versions)).await;
    let group = client.get("/apis/example.com").await.with_code(200).json();
    let listed: Vec<_> = group["versions"].as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
    assert_eq!(listed, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1"]);
    assert_eq!(group["preferredVersion"]["groupVersion"], "example.com/v10");
    let all = aggregated(&client, "/apis").await.json();
    let item = all["items"].as_array().unwrap().last().unwrap().clone();
    let listed: Vec<_> = item["versions"].as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
    assert_eq!(listed, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1"]);
}

#[tokio::test]
async fn an_etag_says_whether_anything_changed() {
    let server = server(&[]).await;
    let client = server.client();
    let before = aggregated(&client, "/apis").await;
    let etag = before.header("etag").to_owned();
    assert_eq!((before.header("content-type"), before.header("vary")), (AGGREGATED, "Accept"));
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
    let known = [("accept", AGGREGATED), ("if-none-match", &*etag)];
    assert!(client.get_with("/apis", &known).await.with_code(304).body.is_empty());
    client.post(DEFINITIONS, &definition("things", "example.com", &["v1"])).await.with_code(201);
    let after = client.get_with("/apis", &known).await.with_code(200);
    assert_ne!(after.header("etag"), etag);
    // A definition with an unchanged spec keeps the tag.
    let path = format!("{DEFINITIONS}/things.example.com");
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await.with_code(200);
    assert_eq!(aggregated(&client, "/apis").await.header("etag"), after.header("etag"));
    client.delete(&path).await.with_code(200);
    client.get_with("/apis", &known).await.with_code(304);
}

#[tokio::test]
async fn both_forms_name_subresources() {
    let server = server(&[]).await;
    let client = server.client();
    define(&client, &definition("things", "example.com", &["v1"])).await;
    let legacy = async |path: &str| client.get(path).await.with_code(200).json()["resources"].clone();
    let find = |resources: &Value, name: &str| {
        resources
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["name"] == name)
            .cloned()
            .unwrap_or_else(|| panic!("{name}"))
    };
    let scale = json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
        "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]});
    assert_eq!(find(&legacy("/apis/apps/v1").await, "deployments/scale"), scale);
    assert_eq!(find(&legacy("/apis/example.com/v1").await, "things/scale")["kind"], "Scale");
    let core = legacy("/api/v1").await;
    assert_eq!(find(&core, "pods/status")["verbs"], json!(["get", "patch", "update"]));
    let one_by_one = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    assert_eq!(find(&core, "namespaces")["verbs"], one_by_one);
    let all = aggregated(&client, "/apis").await.json();
    let group = |name: &str| {
        let items = all["items"].as_array().unwrap();
        items.iter().find(|item| item["metadata"]["name"] == name).unwrap()["versions"][0]["resources"].clone()
    };
    let deployments = group("apps")[2].clone();
    assert_eq!(
        deployments["subresources"],
        json!([
            {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "verbs": ["get", "patch", "update"]},
            {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                "verbs": ["get", "patch", "update"]},
        ])
    );
    let things = group("example.com")[0].clone();
    assert_eq!(things["responseKind"], json!({"group": "example.com", "version": "v1", "kind": "THINGS"}));
    assert_eq!(things["subresources"][0]["responseKind"], things["responseKind"]);
}

#[tokio::test]
async fn stable_types_of_this_release_are_announced_and_served() {
    let server = server(&[]).await;
    let client = server.client();
    for (path, short) in [
        ("/apis/resource.k8s.io/v1/deviceclasses", None),
        ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", None),
        ("/apis/resource.k8s.io/v1/resourceclaimtemplates", None),
        ("/apis/resource.k8s.io/v1/resourceslices", None),
        ("/apis/apiregistration.k8s.io/v1/apiservices", None),
        ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", None),
        ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", None),
        ("/apis/networking.k8s.io/v1/ipaddresses", Some("ip")),
        (DEFINITIONS, Some("crd")),
    ] {
        client.get(path).await.with_code(200);
        let parts: Vec<&str> = path.split('/').collect();
        let resources = client.get(&format!("/apis/{}/{}", parts[2], parts[3])).await.with_code(200).json();
        let found = resources["resources"].as_array().unwrap().iter().find(|one| one["name"] == *parts.last().unwrap());
        let found = found.unwrap_or_else(|| panic!("{path} is not announced"));
        assert_eq!(found["shortNames"][0].as_str(), short, "{path}");
    }
    client.delete("/api/v1/namespaces").await.with_code(405);
}

#[tokio::test]
async fn the_root_lists_paths_that_answer() {
    let server = server(&[]).await;
    let client = server.client();
    define(&client, &definition("things", "example.com", &["v1"])).await;
    let root = client.get("/").await.with_code(200);
    let paths = root.json()["paths"].as_array().unwrap().clone();
    assert!(paths.contains(&json!("/apis/example.com/v1")) && paths.contains(&json!("/version")), "{paths:?}");
    assert!(root.text().starts_with("{\n  \"paths\": [\n    \"/api\",\n"), "for people: {}", root.text());
    for path in paths {
        client.get(path.as_str().unwrap()).await.with_code(200);
    }
}

#[tokio::test]
async fn health_is_one_word_unless_more_is_asked() {
    let server = server(&[]).await;
    let client = server.client();
    for endpoint in ["/healthz", "/livez", "/readyz"] {
        let answer = client.get(endpoint).await.with_code(200);
        assert_eq!((answer.text(), answer.header("content-type")), ("ok", "text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let verbose = client.get(&format!("{endpoint}?verbose")).await.with_code(200);
        let name = &endpoint[1..];
        assert!(verbose.text().starts_with("[+]ping ok\n"), "{}", verbose.text());
        assert!(verbose.text().ends_with(&format!("{name} check passed\n")), "{}", verbose.text());
        assert_eq!(client.get(&format!("{endpoint}/ping")).await.with_code(200).text(), "ok");
        client.get(&format!("{endpoint}/none")).await.with_code(404);
    }
    assert_eq!(client.get("/readyz/poststarthook/crd-informer-synced").await.with_code(200).text(), "ok");
    let unknown = client.get("/livez?exclude=zzz&verbose").await.with_code(200);
    let warning = "warn: some health checks cannot be excluded: no matches for \"zzz\"\n";
    assert!(unknown.text().contains(warning), "{}", unknown.text());
}

#[tokio::test]
async fn resource_slices_are_selected_by_node_and_driver() {
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    let server = server(&[]).await;
    let client = server.client();
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": {"name": "p", "generation": 1,
            "resourceSliceCount": 1}}});
        client.post(SLICES, &slice).await.with_code(201);
    }
    let select = async |selector: &str| client.get(&format!("{SLICES}?fieldSelector={selector}")).await;
    assert_eq!(select("spec.nodeName%3Dn2").await.with_code(200).keys(), ["b"]);
    assert_eq!(select("spec.driver%3Dgpu.example.com,metadata.name%3Da").await.with_code(200).keys(), ["a"]);
    assert_eq!(
        select("spec.foo%3Dx").await.with_code(400).message(),
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.foo"
    );
}
