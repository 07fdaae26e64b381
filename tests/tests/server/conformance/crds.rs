//! CustomResourceDefinitions: types that are created, changed and deleted while the server runs.

use std::time::Duration;

use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, with_query},
    process::Server,
};

use super::{define, server};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const ALL_WIDGETS: &str = "/apis/example.com/v1/widgets";

/// Timeout for the end of a watch or of a definition.
const SOON: Duration = Duration::from_secs(10);

/// `widgets.example.com`, namespaced, with the versions v1 (stored) and v1beta1.
fn definition() -> Value {
    let free = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"spec": {"type": "object", "properties": {
                            "color": {"type": "string"}, "size": {"type": "integer"}}}}}},
                    "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}],
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                },
                {"name": "v1beta1", "served": true, "storage": false, "schema": free},
            ],
        },
    })
}

fn widget(name: &str, color: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": color}})
}

/// [`definition`] with a changed spec.
fn with_spec(change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = definition();
    change(&mut definition["spec"]);
    definition
}

/// A server with [`definition`], and a client.
async fn defined() -> (Server, Client) {
    let server = server(&[]).await;
    let client = server.client();
    define(&client, &definition()).await;
    (server, client)
}

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {definition}"))
}

/// Waits until `path` answers `code`.
async fn until(client: &Client, path: &str, code: u16) -> Answer {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        let answer = client.get(path).await;
        if answer.code == code {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "{path} still answers {}", answer.code);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_plain_404(answer: &Answer) -> bool {
    answer.code == 404 && answer.text() == "404 page not found\n"
}

#[tokio::test]
async fn a_definition_is_in_effect_when_its_creation_is_acknowledged() {
    let server = server(&[]).await;
    let client = server.client();
    client.post(DEFINITIONS, &definition()).await.with_code(201);
    let stored = client.get(DEFINITION).await.with_code(200).json();
    assert_eq!(condition(&stored, "NamesAccepted")["reason"], "NoConflicts");
    assert_eq!(condition(&stored, "Established")["status"], "True");
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
        "shortNames": ["wd"], "categories": ["all"]});
    assert_eq!((&stored["status"]["acceptedNames"], &stored["spec"]["names"]), (&names, &names));
    assert_eq!(stored["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(stored["metadata"]["generation"], 1);
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    assert_eq!(client.get(ALL_WIDGETS).await.with_code(200).keys(), ["default/a"]);
}

#[tokio::test]
async fn types_of_both_scopes_live_where_they_say() {
    let (_server, client) = defined().await;
    let mut cluster = with_spec(|spec| {
        spec["scope"] = json!("Cluster");
        spec["names"] = json!({"plural": "gears", "kind": "Gear"});
    });
    cluster["metadata"]["name"] = json!("gears.example.com");
    define(&client, &cluster).await;
    let gear = json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}});
    client.post("/apis/example.com/v1/gears", &gear).await.with_code(201);
    client.get("/apis/example.com/v1/gears/g").await.with_code(200);
    for path in ["/apis/example.com/v1/namespaces/default/gears", "/apis/example.com/v1/widgets/a"] {
        assert!(is_plain_404(&client.get(path).await), "{path}");
    }
    assert!(is_plain_404(&client.post(ALL_WIDGETS, &widget("a", "red")).await), "no object is in all namespaces");
}

#[tokio::test]
async fn lists_of_custom_resources_have_sorted_members_and_an_empty_continue() {
    let (_server, client) = defined().await;
    let body = client.get(ALL_WIDGETS).await.with_code(200);
    let position = body.resource_version();
    let expected = format!(
        "{{\"apiVersion\":\"example.com/v1\",\"items\":[],\"kind\":\"WidgetList\",\"metadata\":{{\"continue\":\"\",\
         \"resourceVersion\":\"{position}\"}}}}\n"
    );
    assert_eq!(body.text(), expected);
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    client.post(WIDGETS, &widget("b", "red")).await.with_code(201);
    let page = client.get(&with_query(ALL_WIDGETS, &[("limit", "1")])).await.with_code(200);
    assert_eq!((page.json()["items"][0]["kind"].clone(), page.remaining()), (json!("Widget"), Some(1)));
    let rest = client.get(&with_query(ALL_WIDGETS, &[("continue", &page.token().expect("one more"))])).await;
    assert_eq!(rest.keys(), ["default/b"]);
}

#[tokio::test]
async fn every_version_reads_and_writes_the_same_objects() {
    let (_server, client) = defined().await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    let read = client.get(&format!("{beta}/a")).await.with_code(200).json();
    assert_eq!((&read["apiVersion"], &read["spec"]["color"]), (&json!("example.com/v1beta1"), &json!("red")));
    assert_eq!(client.get(&beta).await.json()["items"][0]["apiVersion"], "example.com/v1beta1");
    // A write through one version is visible through the other, and a write without a change keeps the position.
    let same = client.put(&format!("{beta}/a"), &read).await.with_code(200);
    assert_eq!(
        (same.json()["apiVersion"].clone(), same.resource_version()),
        (read["apiVersion"].clone(), { tests::http::resource_version(&read) })
    );
    let patched = client.patch(&format!("{beta}/a"), MERGE_PATCH, &json!({"spec": {"color": "blue"}})).await;
    assert_eq!(patched.with_code(200).json()["apiVersion"], "example.com/v1beta1");
    let stored = client.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!((&stored["apiVersion"], &stored["spec"]["color"]), (&json!("example.com/v1"), &json!("blue")));
    let mut created = widget("b", "red");
    let refused = client.post(&beta, &created).await.with_code(400);
    assert_eq!(
        refused.message(),
        "the API version in the data (example.com/v1) does not match the expected API version (example.com/v1beta1)"
    );
    created["apiVersion"] = json!("example.com/v1beta1");
    assert_eq!(client.post(&beta, &created).await.with_code(201).json()["apiVersion"], "example.com/v1beta1");
    assert_eq!(client.get(&format!("{WIDGETS}/b")).await.with_code(200).json()["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn watches_of_both_versions_tell_the_same_changes() {
    let (_server, client) = defined().await;
    let at = client.get(ALL_WIDGETS).await.resource_version().to_string();
    let path = |version: &str| {
        let path = ALL_WIDGETS.replace("/v1/", &format!("/{version}/"));
        with_query(&path, &[("watch", "1"), ("resourceVersion", &at)])
    };
    let mut watches = [client.watch(&path("v1")).await, client.watch(&path("v1beta1")).await];
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    client.patch(&format!("{WIDGETS}/a"), MERGE_PATCH, &json!({"spec": {"color": "blue"}})).await.with_code(200);
    client.delete(&format!("{WIDGETS}/a")).await.with_code(200);
    for (watch, version) in watches.iter_mut().zip(["example.com/v1", "example.com/v1beta1"]) {
        let events = watch.events(3).await;
        assert_eq!(tests::http::briefs(&events), ["ADDED default/a", "MODIFIED default/a", "DELETED default/a"]);
        assert!(events.iter().all(|event| event.object["apiVersion"] == version), "{version}");
    }
}

#[tokio::test]
async fn versions_that_are_not_served_are_not_there() {
    let (_server, client) = defined().await;
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    let served = |version: usize, served: bool| json!([{"op": "replace", "path": format!("/spec/versions/{version}/served"), "value": served}]);
    let json_patch = "application/json-patch+json";
    client.patch(DEFINITION, json_patch, &served(0, false)).await.with_code(200);
    assert!(is_plain_404(&client.get(&format!("{WIDGETS}/a")).await));
    assert!(is_plain_404(&client.get("/apis/example.com/v1").await));
    client.get(&format!("{}/a", WIDGETS.replace("/v1/", "/v1beta1/"))).await.with_code(200);
    client.patch(DEFINITION, json_patch, &served(0, true)).await.with_code(200);
    client.get(&format!("{WIDGETS}/a")).await.with_code(200);
    assert!(is_plain_404(&client.get("/apis/example.com/v2/widgets").await));
    assert!(is_plain_404(&client.get("/apis/example.com/v1/gears").await), "an unknown resource of a known group");
}

#[tokio::test]
async fn declared_fields_select_and_others_are_refused() {
    let (_server, client) = defined().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        client.post(WIDGETS, &widget(name, color)).await.with_code(201);
    }
    client.patch(&format!("{WIDGETS}/c"), MERGE_PATCH, &json!({"spec": {"size": 3}})).await.with_code(200);
    let select = async |path: &str, selector: &str| client.get(&with_query(path, &[("fieldSelector", selector)])).await;
    assert_eq!(select(ALL_WIDGETS, "spec.color=red").await.keys(), ["default/a", "default/c"]);
    assert_eq!(select(ALL_WIDGETS, "spec.color!=red,metadata.namespace=default").await.keys(), ["default/b"]);
    assert_eq!(select(ALL_WIDGETS, "spec.size=3").await.keys(), ["default/c"]);
    assert_eq!(select(ALL_WIDGETS, "spec.size=").await.keys(), ["default/a", "default/b"]);
    for (path, selector) in [
        (ALL_WIDGETS.to_owned(), "spec.foo=x"),
        // Declared for v1 only.
        (ALL_WIDGETS.replace("/v1/", "/v1beta1/"), "spec.color=red"),
    ] {
        let refused = select(&path, selector).await.with_code(400);
        let label = selector.split('=').next().unwrap();
        assert_eq!(refused.message(), format!("field label not supported: {label}"), "{path}");
    }
}

#[tokio::test]
async fn fields_that_are_declared_later_select_what_was_there_before() {
    let (_server, client) = defined().await;
    client
        .post(
            WIDGETS,
            &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"color": "red", "shape": "round"}}),
        )
        .await
        .with_code(201);
    let mut stored = client.get(DEFINITION).await.json();
    let version = &mut stored["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] = json!({"type": "string"});
    version["selectableFields"] = json!([{"jsonPath": ".spec.shape"}]);
    let mut watch = client.watch(&with_query(ALL_WIDGETS, &[("watch", "1")])).await;
    watch.event().await;
    assert_eq!(client.put(DEFINITION, &stored).await.with_code(200).json()["metadata"]["generation"], 2);
    assert!(watch.rest(SOON).await.is_empty(), "the watch ends and nothing else");
    let found = client.get(&with_query(ALL_WIDGETS, &[("fieldSelector", "spec.shape=round")])).await.with_code(200);
    assert_eq!(found.keys(), ["default/a"]);
    client.get(&with_query(ALL_WIDGETS, &[("fieldSelector", "spec.color=red")])).await.with_code(400);
}

#[tokio::test]
async fn another_storage_version_is_remembered_and_read() {
    let (_server, client) = defined().await;
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    let mut stored = client.get(DEFINITION).await.json();
    stored["spec"]["versions"][0]["storage"] = json!(false);
    stored["spec"]["versions"][1]["storage"] = json!(true);
    let changed = client.put(DEFINITION, &stored).await.with_code(200).json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await.with_code(200).json()["apiVersion"], "example.com/v1");
    let mut gone = client.get(DEFINITION).await.json();
    gone["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let refused = client.put(DEFINITION, &gone).await.with_code(422);
    let why = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
               version, and must remain in spec.versions until a storage migration ensures no data remains persisted in \
               v1 and removes v1 from status.storedVersions";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}

#[tokio::test]
async fn generation_and_status_follow_the_subresource() {
    let (_server, client) = defined().await;
    let mut sent = widget("a", "red");
    sent["status"] = json!({"phase": "Sent"});
    let created = client.post(WIDGETS, &sent).await.with_code(201).json();
    assert_eq!((&created["metadata"]["generation"], created.get("status")), (&json!(1), None));
    let path = format!("{WIDGETS}/a");
    let generation = async |path: &str, patch: Value| {
        client.patch(path, MERGE_PATCH, &patch).await.with_code(200).json()["metadata"]["generation"].clone()
    };
    assert_eq!(generation(&format!("{path}/status"), json!({"status": {"phase": "Ready"}})).await, 1);
    assert_eq!(client.get(&path).await.json()["status"]["phase"], "Ready");
    assert_eq!(generation(&path, json!({"metadata": {"labels": {"a": "b"}}})).await, 1);
    assert_eq!(generation(&path, json!({"status": {"phase": "Other"}})).await, 1);
    assert_eq!(generation(&path, json!({"spec": {"color": "blue"}})).await, 2);
    assert_eq!(generation(&path, json!({"anything": true})).await, 3);
    // v1beta1 has no status subresource, so a write includes the status.
    let beta = path.replace("/v1/", "/v1beta1/");
    assert_eq!(generation(&beta, json!({"status": {"phase": "Other"}})).await, 4);
    let missing = client.get(&format!("{beta}/status")).await.with_code(404);
    assert_eq!(missing.message(), "widgets.example.com \"a\" not found");
}

#[tokio::test]
async fn custom_resources_are_written_as_kubernetes_has_it() {
    let (_server, client) = defined().await;
    let created = client.post(WIDGETS, &widget("a", "red")).await.with_code(201).json();
    let path = format!("{WIDGETS}/a");
    let strategic = client.patch(&path, "application/strategic-merge-patch+json", &json!({})).await.with_code(415);
    assert_eq!(
        strategic.message(),
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
    let mut unversioned = created.clone();
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let refused = client.put(&path, &unversioned).await.with_code(422);
    assert_eq!(
        refused.message(),
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let deleted = client.delete(&path).await.with_code(200).json();
    assert_eq!((&deleted["kind"], &deleted["details"]["kind"]), (&json!("Status"), &json!("widgets")));
    for unnamed in [client.put(WIDGETS, &created).await, client.patch(WIDGETS, MERGE_PATCH, &json!({})).await] {
        assert_eq!(unnamed.with_code(400).message(), "name must be provided");
    }
    let unknown = client.get(&format!("{path}/foo")).await.with_code(404);
    assert_eq!(unknown.message(), "widgets.example.com \"a\" not found");
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_along() {
    let (_server, client) = defined().await;
    for name in ["a", "b"] {
        client.post(WIDGETS, &widget(name, "red")).await.with_code(201);
    }
    let old = client.get(ALL_WIDGETS).await.resource_version().to_string();
    let mut watch = client.watch(&with_query(ALL_WIDGETS, &[("watch", "1"), ("resourceVersion", &old)])).await;
    let counted =
        async || client.get("/metrics").await.text().contains("cache_objects{resource=\"widgets.example.com\"}");
    assert!(counted().await);
    let deleted = client.delete(DEFINITION).await.with_code(200).json();
    assert_eq!(deleted["kind"], "CustomResourceDefinition");
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&deleted, "Terminating")["status"], "True");
    assert_eq!(tests::http::briefs(&watch.rest(SOON).await), ["DELETED default/a", "DELETED default/b"]);
    for path in [ALL_WIDGETS, "/apis/example.com", "/apis/example.com/v1"] {
        assert!(is_plain_404(&client.get(path).await), "{path}");
    }
    client.get(DEFINITION).await.with_code(404);
    assert!(!counted().await);
    client.post(DEFINITIONS, &definition()).await.with_code(201);
    assert!(client.get(ALL_WIDGETS).await.with_code(200).keys().is_empty(), "a new collection");
    let expired =
        client.watch(&with_query(ALL_WIDGETS, &[("watch", "1"), ("resourceVersion", &old)])).await.event().await;
    assert_eq!(expired.brief(), "ERROR 410");
    let exact = [("resourceVersion", &*old), ("resourceVersionMatch", "Exact")];
    client.get(&with_query(ALL_WIDGETS, &exact)).await.with_code(410);
}

#[tokio::test]
async fn objects_with_finalizers_keep_their_definition_until_they_are_gone() {
    let (_server, client) = defined().await;
    let mut held = widget("held", "red");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.post(WIDGETS, &held).await.with_code(201);
    client.post(WIDGETS, &widget("free", "red")).await.with_code(201);
    client.delete(DEFINITION).await.with_code(200);
    let path = format!("{WIDGETS}/held");
    assert!(client.get(&path).await.with_code(200).json()["metadata"]["deletionTimestamp"].is_string());
    client.get(&format!("{WIDGETS}/free")).await.with_code(404);
    let verbs = client.get("/apis/example.com/v1").await.json()["resources"][0]["verbs"].clone();
    assert_eq!(verbs, json!(["delete", "deletecollection", "get", "list", "watch"]));
    let why =
        "widgets.example.com \"new\" is forbidden: create not allowed while custom resource definition is terminating";
    let apply = format!("{WIDGETS}/new?fieldManager=m");
    for refused in [
        client.post(WIDGETS, &widget("new", "red")).await,
        client.patch(&apply, "application/apply-patch+yaml", &widget("new", "red")).await,
    ] {
        assert_eq!(refused.with_code(403).message(), why);
    }
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    until(&client, DEFINITION, 404).await;
    assert!(is_plain_404(&client.get(ALL_WIDGETS).await));
}

#[tokio::test]
async fn names_that_are_taken_wait_for_who_has_them() {
    let (_server, client) = defined().await;
    let mut second =
        with_spec(|spec| spec["names"] = json!({"plural": "others", "kind": "Widget", "shortNames": ["wd"]}));
    second["metadata"]["name"] = json!("others.example.com");
    client.post(DEFINITIONS, &second).await.with_code(201);
    let path = format!("{DEFINITIONS}/others.example.com");
    let stored = client.get(&path).await.with_code(200).json();
    assert_eq!(condition(&stored, "NamesAccepted")["status"], "False");
    assert_eq!(condition(&stored, "Established")["reason"], "NotAccepted");
    assert!(is_plain_404(&client.get("/apis/example.com/v1/others").await));
    client.delete(DEFINITION).await.with_code(200);
    until(&client, "/apis/example.com/v1/others", 200).await;
    assert_eq!(condition(&client.get(&path).await.json(), "NamesAccepted")["status"], "True");
}

/// Goal: an invalid definition is refused before it is stored. Method: a table of changes and error texts.
#[tokio::test]
async fn definitions_that_cannot_be_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let table: [(Value, String); 9] = [
        (
            with_spec(|spec| spec["names"]["plural"] = json!("gears")),
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group".to_owned(),
        ),
        (
            with_spec(|spec| spec["versions"][1]["storage"] = json!(true)),
            "spec.versions: Invalid value: [\"v1\",\"v1beta1\"]: must have exactly one version marked as storage version"
                .to_owned(),
        ),
        (
            with_spec(|spec| spec["scope"] = json!("Planet")),
            "spec.scope: Unsupported value: \"Planet\": supported values: \"Cluster\", \"Namespaced\"".to_owned(),
        ),
        (with_spec(|spec| spec["scope"] = Value::Null), "spec.scope: Required value".to_owned()),
        (
            with_spec(|spec| spec["names"]["kind"] = json!("Wid_get")),
            format!("may have mixed case, but should otherwise match: {label}"),
        ),
        (
            with_spec(|spec| spec["versions"][1]["schema"] = Value::Null),
            "spec.versions[1].schema.openAPIV3Schema: Required value: schemas are required".to_owned(),
        ),
        (
            with_spec(|spec| spec["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.none"}])),
            "spec.versions[0].selectableFields[0].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not \
             refer to a valid field"
                .to_owned(),
        ),
        (
            with_spec(|spec| spec["preserveUnknownFields"] = json!(true)),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
             x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
                .to_owned(),
        ),
        (
            with_spec(|spec| spec["conversion"] = json!({"strategy": "Magic"})),
            "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"".to_owned(),
        ),
    ];
    for (definition, why) in table {
        let refused = client.post(DEFINITIONS, &definition).await.with_code(422);
        let start = "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: ";
        let message = refused.message();
        assert!(message.starts_with(start) && message.contains(&why), "{message}");
    }
    let refused = client.post(DEFINITIONS, &with_spec(|spec| spec["versions"] = json!("v1"))).await;
    assert_eq!(refused.code, 400);
    let mut protected = with_spec(|spec| spec["group"] = json!("sigs.k8s.io"));
    protected["metadata"]["name"] = json!("widgets.sigs.k8s.io");
    let refused = client.post(DEFINITIONS, &protected).await.with_code(422).message();
    assert!(refused.contains("metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups"));
    protected["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    client.post(DEFINITIONS, &protected).await.with_code(201);
    assert!(is_plain_404(&client.get(ALL_WIDGETS).await), "nothing of all that is served");
}

#[tokio::test]
async fn what_a_type_is_does_not_change() {
    let (_server, client) = defined().await;
    for (patch, field) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope: Invalid value: \"Cluster\""),
        (json!({"spec": {"names": {"kind": "Gear"}}}), "spec.names.kind: Invalid value: \"Gear\""),
    ] {
        let refused = client.patch(DEFINITION, MERGE_PATCH, &patch).await.with_code(422);
        assert!(refused.message().contains(&format!("{field}: field is immutable")), "{}", refused.message());
    }
    let same = client.patch(DEFINITION, MERGE_PATCH, &json!({"spec": {"scope": "Namespaced"}})).await.with_code(200);
    assert_eq!(same.resource_version(), client.get(DEFINITION).await.resource_version(), "nothing changed");
}

#[tokio::test]
async fn short_names_change_without_ending_watches() {
    let (_server, client) = defined().await;
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    let mut watch = client.watch(&with_query(ALL_WIDGETS, &[("watch", "1")])).await;
    watch.event().await;
    let names = json!({"spec": {"names": {"shortNames": ["w", "wid"]}}});
    client.patch(DEFINITION, MERGE_PATCH, &names).await.with_code(200);
    let resource = client.get("/apis/example.com/v1").await.json()["resources"][0].clone();
    assert_eq!(resource["shortNames"], json!(["w", "wid"]));
    client.delete(&format!("{WIDGETS}/a")).await.with_code(200);
    assert_eq!(watch.event().await.brief(), "DELETED default/a");
}

#[tokio::test]
async fn tables_and_metadata_of_custom_resources_are_there_too() {
    let server = server(&[]).await;
    let client = server.client();
    let columns = json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    let definition = with_spec(|spec| spec["versions"][0]["additionalPrinterColumns"] = columns);
    define(&client, &definition).await;
    client.post(WIDGETS, &widget("a", "red")).await.with_code(201);
    let table = client.get_with(ALL_WIDGETS, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]).await;
    let table = table.with_code(200).json();
    assert_eq!(
        (&table["columnDefinitions"][1]["name"], &table["rows"][0]["cells"]),
        (&json!("Color"), &json!(["a", "red"]))
    );
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = client.get_with(ALL_WIDGETS, &[("accept", accept)]).await.with_code(200).json();
    assert_eq!((&list["items"][0]["metadata"]["name"], list["items"][0].get("spec")), (&json!("a"), None));
}

#[tokio::test]
async fn a_manifest_may_bring_a_definition_and_its_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.json");
    let mut object = widget("a", "red");
    object["apiVersion"] = json!("example.com/v1beta1");
    std::fs::write(&path, format!("{}\n{object}", definition())).unwrap();
    let server = server(&["--load", path.to_str().unwrap()]).await;
    let client = server.client();
    assert_eq!(client.get(ALL_WIDGETS).await.with_code(200).keys(), ["default/a"]);
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await.json()["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn many_definitions_come_and_go() {
    const COUNT: usize = 40;
    let server = server(&[]).await;
    let client = server.client();
    let name = |index: usize| format!("kinds{index}.g{}.example.com", index % 4);
    for index in 0..COUNT {
        let mut one = with_spec(|spec| {
            spec["group"] = json!(format!("g{}.example.com", index % 4));
            spec["names"] = json!({"plural": format!("kinds{index}"), "kind": format!("Kind{index}")});
        });
        one["metadata"]["name"] = json!(name(index));
        client.post(DEFINITIONS, &one).await.with_code(201);
        client.get(&format!("/apis/g{}.example.com/v1/kinds{index}", index % 4)).await.with_code(200);
    }
    let groups = async || client.get("/apis").await.text().matches("example.com/v1\"").count();
    assert_eq!(groups().await, 2 * 4, "once as a version, once as the preferred one");
    client.delete(DEFINITIONS).await.with_code(200);
    assert!(client.get(DEFINITIONS).await.keys().is_empty());
    assert_eq!(groups().await, 0);
}

/// Goal: every client can read the metadata of every object. Method: metadata fields that are unknown or of another
/// type, in bodies, patches and configurations.
#[tokio::test]
async fn the_metadata_of_a_custom_resource_is_what_all_objects_have() {
    let (_server, client) = defined().await;
    let mut body = widget("a", "red");
    body["metadata"]["who"] = json!(1);
    let created = client.post(WIDGETS, &body).await.with_code(201);
    assert_eq!(created.headers["warning"], "299 - \"unknown field \\\"metadata.who\\\"\"");
    assert!(created.json()["metadata"].get("who").is_none());
    let path = format!("{WIDGETS}/a");
    let strict = client.put(&format!("{path}?fieldValidation=Strict"), &body).await.with_code(400).json();
    assert!(strict["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"metadata.who\""));
    body["metadata"] = json!({"name": "b", "ownerReferences": 5});
    let refused = client.post(WIDGETS, &body).await.with_code(400).json();
    let why = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.ownerReferences";
    assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    let patch = json!({"metadata": {"ownerReferences": [{"uid": 7}]}});
    client.patch(&path, MERGE_PATCH, &patch).await.with_code(422);
}
