//! Writes to the fake API server, by the rules of cache-server, and a controller that is tested without a process.

use std::{sync::Arc, time::Duration};

use informer::{
    Cluster,
    controller::{Controller, Requeue},
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::{controller::Action, finalizer},
};
use serde_json::{Value, json};

use crate::fixture::{SOON, until};

const FINALIZER: &str = "example.dev/settings";

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    let containers = json!([{"name": "main", "image": "a:1"}, {"name": "sidecar", "image": "b:1"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    let metadata = json!({"name": name, "namespace": "a", "labels": labels});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
}

fn typed<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// A server and its Deployments in the namespace `a`, of which `x` exists.
async fn deployments() -> (FakeApiServer, Api<Deployment>) {
    let server = FakeApiServer::new();
    let api = Api::namespaced(server.client(), "a");
    api.create(&PostParams::default(), &typed(deployment("x", 1))).await.unwrap();
    (server, api)
}

fn json_patch(operations: Value) -> Patch<Value> {
    Patch::Json(typed(operations))
}

/// Returns the code and message of a refusal.
fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

/// Copies the number of replicas of a Deployment into a ConfigMap, and reports in its status what it did. Deletes the
/// ConfigMap with the Deployment.
async fn reconcile(deployment: Arc<Deployment>, client: Arc<Client>) -> Result<Requeue, finalizer::Error<kube::Error>> {
    let api = Api::<Deployment>::namespaced(Client::clone(&client), "a");
    let settings = Api::<ConfigMap>::namespaced(Client::clone(&client), "a");
    finalizer(&api, FINALIZER, deployment, |event| async {
        match event {
            finalizer::Event::Apply(deployment) => {
                let name = deployment.metadata.name.as_deref().unwrap();
                let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                let mine = PatchParams::apply("settings");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                    "data": {"replicas": replicas.to_string()}});
                settings.patch(name, &mine, &Patch::Apply(map)).await?;
                let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {
                    "observedGeneration": deployment.metadata.generation}});
                api.patch_status(name, &mine, &Patch::Apply(status)).await?;
            }
            finalizer::Event::Cleanup(deployment) => {
                settings.delete(deployment.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await?;
            }
        }
        Ok(Action::await_change())
    })
    .await?;
    Ok(Requeue::await_change())
}

/// Goal: a controller is tested without a process. Method: one with a finalizer, applies and a status, from the
/// creation of its object to the deletion, and the number of its writes.
#[tokio::test(start_paused = true)]
async fn a_controller_with_finalizer_apply_and_status_needs_no_process() {
    let (server, api) = deployments().await;
    let settings = Api::<ConfigMap>::namespaced(server.client(), "a");
    let informer = Cluster::new(server.client()).informer::<Deployment>().start().unwrap();
    informer.ready(SOON).await.unwrap();
    let run = Controller::new(&informer).run(reconcile, |failure| failure.backoff(), Arc::new(server.client()));
    let _running = tokio::spawn(run);
    let observed = || {
        let stored = informer.store().snapshot().get("a/x")?.decode().ok()?;
        let metadata = &stored.metadata;
        Some((metadata.generation, stored.status.as_ref()?.observed_generation))
    };
    until("the first generation", || observed() == Some((Some(1), Some(1)))).await;
    assert_eq!(api.get("x").await.unwrap().metadata.finalizers.unwrap(), [FINALIZER]);
    assert_eq!(settings.get("x").await.unwrap().data.unwrap()["replicas"], "1");

    let more = json!({"spec": {"replicas": 3}});
    api.patch("x", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    until("the second generation", || observed() == Some((Some(2), Some(2)))).await;
    assert_eq!(settings.get("x").await.unwrap().data.unwrap()["replicas"], "3");
    let writes = server.count(RequestKind::Write);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.count(RequestKind::Write), writes, "its own writes do not keep it busy");

    api.delete("x", &DeleteParams::default()).await.unwrap();
    until("the end", || informer.store().snapshot().is_empty()).await;
    assert_eq!((refusal(api.get("x").await).0, refusal(settings.get("x").await).0), (404, 404));
}

#[tokio::test(start_paused = true)]
async fn appliers_own_their_fields() {
    let server = FakeApiServer::new();
    let api = Api::<ConfigMap>::namespaced(server.client(), "a");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data});
    let apply = async |manager: &str, data: Value, force: bool| {
        let params = PatchParams { force, ..PatchParams::apply(manager) };
        api.patch("x", &params, &Patch::Apply(map(data))).await.map(|applied| json!(applied.data))
    };
    assert_eq!(apply("one", json!({"a": "1", "b": "1"}), false).await.unwrap(), json!({"a": "1", "b": "1"}));
    let (code, why) = refusal(apply("two", json!({"a": "2"}), false).await);
    assert_eq!((code, why.contains("conflict with \"one\": .data.a")), (409, true), "{why}");
    assert_eq!(apply("two", json!({"a": "2"}), true).await.unwrap(), json!({"a": "2", "b": "1"}));
    assert_eq!(apply("one", json!({}), false).await.unwrap(), json!({"a": "2"}), "what it left out is removed");
    let position = server.resource_version();
    apply("two", json!({"a": "2"}), false).await.unwrap();
    assert_eq!(server.resource_version(), position, "the same again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn patches_follow_their_kind() {
    let (_, api) = deployments().await;
    let params = PatchParams::default();
    let replicas = async |expected: u32, next: u32| {
        let test = json!({"op": "test", "path": "/spec/replicas", "value": expected});
        let patch = json_patch(json!([test, {"op": "replace", "path": "/spec/replicas", "value": next}]));
        api.patch("x", &params, &patch).await
    };
    assert_eq!(replicas(1, 2).await.unwrap().spec.unwrap().replicas, Some(2));
    assert_eq!(refusal(replicas(1, 3).await).0, 422, "the test fails");

    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "b:2"}]}}}});
    let images = |patched: Deployment| -> Vec<String> {
        let containers = patched.spec.unwrap().template.spec.unwrap().containers;
        containers.into_iter().filter_map(|container| container.image).collect()
    };
    let patched = api.patch("x", &params, &Patch::Strategic(&patch)).await.unwrap();
    assert_eq!(images(patched), ["a:1", "b:2"], "containers merge by their names");
    let patched = api.patch("x", &params, &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(images(patched), ["b:2"], "a merge patch replaces lists");
}

#[tokio::test(start_paused = true)]
async fn generations_count_specs_and_status_is_a_resource_of_its_own() {
    let (server, api) = deployments().await;
    let mut found = api.get("x").await.unwrap();
    assert_eq!((found.metadata.generation, &found.status), (Some(1), &None));
    found.status = typed(json!({"replicas": 9}));
    found.metadata.labels.as_mut().unwrap().insert("a".into(), "b".into());
    found = api.replace("x", &PostParams::default(), &found).await.unwrap();
    assert_eq!((found.metadata.generation, &found.status), (Some(1), &None), "only a label was written");

    found.status = typed(json!({"replicas": 1}));
    found.spec.as_mut().unwrap().replicas = Some(7);
    found = api.replace_status("x", &PostParams::default(), &found).await.unwrap();
    let written = (found.spec.unwrap().replicas, found.status.unwrap().replicas, found.metadata.generation);
    assert_eq!(written, (Some(1), Some(1), Some(1)), "only the status was written");
    let position = server.resource_version();
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let dry = api.patch("x", &PatchParams { dry_run: true, ..PatchParams::default() }, &patch).await.unwrap();
    assert_eq!((dry.spec.unwrap().replicas, dry.metadata.generation), (Some(7), Some(2)));
    api.create(&PostParams { dry_run: true, ..PostParams::default() }, &typed(deployment("y", 1))).await.unwrap();
    api.delete("x", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.unwrap();
    assert_eq!(server.resource_version(), position, "a dry run leaves nothing");
    let found = api.patch("x", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(found.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn deletions_wait_for_finalizers_and_collections_for_selectors() {
    let (server, api) = deployments().await;
    api.create(&PostParams::default(), &typed(deployment("y", 1))).await.unwrap();
    let hold = json!({"metadata": {"finalizers": ["example.dev/held"]}});
    api.patch("x", &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    let only_x = ListParams::default().labels("app=x");
    let listed = api.delete_collection(&DeleteParams::default(), &only_x).await.unwrap().left().unwrap();
    assert_eq!(listed.items.len(), 1);
    let marked = api.get("x").await.unwrap().metadata;
    assert!(marked.deletion_timestamp.is_some() && api.get("y").await.is_ok());
    let more = json!({"metadata": {"finalizers": ["example.dev/held", "example.dev/late"]}});
    assert_eq!(refusal(api.patch("x", &PatchParams::default(), &Patch::Merge(&more)).await).0, 422);
    let free = json_patch(json!([{"op": "remove", "path": "/metadata/finalizers"}]));
    api.patch("x", &PatchParams::default(), &free).await.unwrap();
    assert_eq!(refusal(api.get("x").await).0, 404);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);

    let namespaces = Api::<Namespace>::all(server.client());
    namespaces.create(&PostParams::default(), &typed(json!({"metadata": {"name": "a"}}))).await.unwrap();
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(namespaces.get("a").await).0, 404);
    let all = namespaces.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert_eq!(refusal(all).0, 405, "namespaces are deleted one by one");
    let long = json!({"metadata": {"generateName": "n".repeat(60)}});
    let made = namespaces.create(&PostParams::default(), &typed(long)).await.unwrap();
    assert_eq!(made.metadata.name.unwrap().len(), 63);
    let pods = Api::<Pod>::namespaced(server.client(), "a");
    server.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "spec":
        {"nodeName": "n", "containers": []}}));
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(pods.get("p").await).0, 404, "no kubelet is waited for");
}

/// Goal: custom resources have the rules of their definition, and without one a status and any fields. Method: a type
/// with each.
#[tokio::test(start_paused = true)]
async fn custom_resources_follow_their_definition() {
    let legs = json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let spec = json!({"type": "object", "properties": {"legs": legs}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let server = FakeApiServer::new().put(json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "sheep.example.com"}, "spec": {"group": "example.com",
        "scope": "Cluster", "names": {"plural": "sheep", "kind": "Sheep"}, "versions": [version]}}));
    let of = |kind: &str, plural: &str| {
        let gvk = GroupVersionKind::gvk("example.com", "v1", kind);
        ApiResource::from_gvk_with_plural(&gvk, plural)
    };
    let sheep = of("Sheep", "sheep");
    let api = Api::<DynamicObject>::all_with(server.client(), &sheep);
    for leg in ["left", "right"] {
        let applied = DynamicObject::new("x", &sheep).data(json!({"spec": {"legs": [{"name": leg}]}}));
        api.patch("x", &PatchParams::apply(leg), &Patch::Apply(&applied)).await.unwrap();
    }
    let both = api.get("x").await.unwrap();
    assert_eq!(both.data["spec"]["legs"], json!([{"name": "left"}, {"name": "right"}]), "they merge by their names");
    assert_eq!(both.metadata.generation, Some(2));
    assert_eq!(refusal(api.patch_status("x", &PatchParams::default(), &Patch::Merge(json!({}))).await).0, 404);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    definitions.delete("sheep.example.com", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(definitions.get("sheep.example.com").await).0, 404, "nothing has to clean up");

    let goats = of("Goat", "goats");
    server.serve_resource(&goats);
    let api = Api::<DynamicObject>::namespaced_with(server.client(), "a", &goats);
    let goat = DynamicObject::new("x", &goats).data(json!({"spec": {"odd": 1}, "status": {"seen": false}}));
    let created = api.create(&PostParams::default(), &goat).await.unwrap();
    assert_eq!((&created.data["spec"]["odd"], created.data.get("status")), (&json!(1), None));
    let status = Patch::Merge(json!({"status": {"seen": true}}));
    assert_eq!(api.patch_status("x", &PatchParams::default(), &status).await.unwrap().data["status"]["seen"], true);
}
