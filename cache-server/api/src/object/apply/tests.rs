//! Goal: applies of several managers have the result of kube-apiserver. Method: applies to plain objects, with real
//! schemas; `tests/tests/server/conformance/apply.rs` tests the HTTP side.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::registry::Registry;

const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-02T00:00:00Z";

fn ty(group: &str, plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find(group, "v1", plural).expect("a built-in type")
}

fn read(
    place: &WriteTarget<'_>,
    manager: &str,
    force: bool,
    config: &Value,
) -> Result<AppliedConfiguration, (u16, String)> {
    let options = PatchOptions { manager: manager.to_owned(), force, ..PatchOptions::default() };
    AppliedConfiguration::read(place, config.to_string().as_bytes(), options, &mut Vec::new())
        .map_err(|status| (status.code, status.message))
}

/// An object that managers apply to.
struct World {
    ty: Arc<ResourceType>,
    part: Part,
    object: Object,
}

impl World {
    fn new(group: &str, plural: &str, object: Value) -> Self {
        Self { ty: ty(group, plural), part: Part::Main, object: object.as_object().expect("an object").clone() }
    }

    fn config(&self, spec: Value) -> Value {
        let mut config = spec;
        config["apiVersion"] = self.ty.api_version().into();
        config["kind"] = self.ty.kind.clone().into();
        if config.pointer("/metadata/name").is_none() {
            config["metadata"]["name"] = "a".into();
        }
        config
    }

    fn apply(&mut self, manager: &str, now: &str, config: Value) -> Result<(), (u16, String)> {
        self.apply_with(manager, now, config, false)
    }

    fn apply_with(&mut self, manager: &str, now: &str, config: Value, force: bool) -> Result<(), (u16, String)> {
        let place = WriteTarget { ty: &self.ty, namespace: "ns", name: "a", part: self.part };
        let applied = read(&place, manager, force, &self.config(config))?;
        let sent = applied.onto(&self.ty, &self.object, None, now).map_err(|status| (status.code, status.message))?;
        self.object = metadata::prepare_update(&self.ty, &self.object, sent, self.part)
            .map_err(|status| (status.code, status.message))?;
        Ok(())
    }

    fn value(&self, pointer: &str) -> Value {
        Value::Object(self.object.clone()).pointer(pointer).cloned().unwrap_or_default()
    }

    fn entries(&self) -> Value {
        self.value("/metadata/managedFields")
    }
}

fn config_map(data: Value) -> World {
    World::new(
        "",
        "configmaps",
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns"}, "data": data}),
    )
}

fn deployment() -> World {
    let object = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a", "namespace": "ns"}});
    World::new("apps", "deployments", object)
}

#[test]
fn managers_come_together_and_leave_what_is_not_theirs() {
    let mut world = config_map(json!({"old": "0"}));
    world.apply("one", T1, json!({"data": {"a": "1", "b": "2"}})).expect("applies");
    world.apply("two", T2, json!({"data": {"b": "2", "c": "3"}})).expect("applies");
    assert_eq!(world.value("/data"), json!({"old": "0", "a": "1", "b": "2", "c": "3"}));
    // The other manager still applies `b`.
    world.apply("one", T2, json!({})).expect("applies");
    assert_eq!(world.value("/data"), json!({"old": "0", "b": "2", "c": "3"}));
    world.apply("two", T2, json!({"metadata": {"labels": {"l": "x"}}})).expect("applies");
    assert_eq!(world.value("/data"), json!({"old": "0"}));
    assert_eq!(
        world.entries(),
        json!([{"manager": "two", "operation": "Apply", "apiVersion": "v1", "time": T2, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:l": {}}}}}])
    );
    world.apply("two", T2, json!({})).expect("applies");
    assert_eq!((world.entries(), world.value("/metadata")), (Value::Null, json!({"name": "a", "namespace": "ns"})));
}

#[test]
fn the_same_twice_is_the_same() {
    let mut world = deployment();
    let config = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 2, "selector": {"matchLabels": {"x": "y"}},
        "template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}], "env": []}]}}}});
    world.apply("m", T1, config.clone()).expect("applies");
    let before = world.object.clone();
    world.apply("m", T2, config).expect("applies");
    assert_eq!(world.object, before);
}

#[test]
fn fields_are_named_as_the_schema_has_them() {
    let mut world = deployment();
    let config = json!({
        "metadata": {"namespace": "ns", "annotations": {"e": "f"}, "finalizers": ["x/y"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]},
        "spec": {"selector": {"matchLabels": {"x": "y"}}, "template": {"spec": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "args": ["1"], "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol":
                "UDP"}], "resources": {"limits": {"cpu": 1}}, "env": [{"name": "E", "value": null}]}]}}},
        "status": {"replicas": 1}
    });
    world.apply("m", T1, config).expect("applies");
    assert_eq!(
        world.entries()[0]["fieldsV1"],
        json!({
            "f:metadata": {"f:annotations": {"f:e": {}}, "f:finalizers": {"v:\"x/y\"": {}},
                "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
            "f:spec": {"f:selector": {}, "f:template": {"f:spec": {
                "f:nodeSelector": {},
                "f:tolerations": {},
                "f:volumes": {"k:{\"name\":\"v\"}": {".": {}, "f:name": {}, "f:emptyDir": {}}},
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:args": {},
                    "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}}},
                    "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                        "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}}}}}}}}
        })
    );
    assert_eq!(world.value("/status"), Value::Null);
}

#[test]
fn items_come_and_go_by_their_keys() {
    let containers = |names: &[&str]| -> Value {
        let items: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        json!({"spec": {"template": {"spec": {"containers": items}}}})
    };
    let names = |world: &World| -> Vec<String> {
        let items = world.value("/spec/template/spec/containers");
        items.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    let mut world = deployment();
    world.apply("one", T1, containers(&["a", "b"])).expect("applies");
    world.apply("two", T1, containers(&["x", "b"])).expect("applies");
    assert_eq!(names(&world), ["a", "x", "b"]);
    world.apply("one", T2, containers(&["b", "new"])).expect("applies");
    assert_eq!(names(&world), ["x", "b", "new"]);
    world.apply("one", T2, containers(&["new", "b"])).expect("applies");
    assert_eq!(names(&world), ["x", "new", "b"]);
    world.apply("two", T2, json!({})).expect("applies");
    assert_eq!(names(&world), ["new", "b"]);
    world.apply("one", T2, json!({})).expect("applies");
    assert_eq!(world.value("/spec"), Value::Null);
}

#[test]
fn sets_and_whole_values() {
    let mut world = deployment();
    let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
    world.apply("one", T1, finalizers(&["a", "b"])).expect("applies");
    world.apply("two", T1, finalizers(&["b", "c"])).expect("applies");
    world.apply("one", T2, json!({})).expect("applies");
    assert_eq!(world.value("/metadata/finalizers"), json!(["b", "c"]));
    // A selector is atomic: keys left out of it are removed.
    let selector = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
    world.apply("one", T2, selector(json!({"a": "1"}))).expect("applies");
    world.apply("one", T2, selector(json!({"b": "2"}))).expect("applies");
    assert_eq!(world.value("/spec/selector/matchLabels"), json!({"b": "2"}));
}

#[test]
fn other_values_of_what_others_applied_need_force() {
    let mut world = config_map(json!({}));
    world.apply("one", T1, json!({"data": {"a": "1", "b": "1"}})).expect("applies");
    let conflict = "Apply failed with 1 conflict: conflict with \"one\": .data.a";
    assert_eq!(world.apply("two", T2, json!({"data": {"a": "2"}})), Err((409, conflict.to_owned())));
    assert_eq!(world.value("/data/a"), "1");
    world.apply_with("two", T2, json!({"data": {"a": "2"}}), true).expect("by force");
    assert_eq!(world.value("/data/a"), "2");
    // The first manager lost the field, so leaving it out does not remove it.
    world.apply("one", T2, json!({"data": {"b": "1"}})).expect("applies");
    assert_eq!(world.value("/data"), json!({"a": "2", "b": "1"}));
}

#[test]
fn status_is_applied_by_its_subresource_alone() {
    let mut world = deployment();
    world.apply("m", T1, json!({"spec": {"replicas": 1}, "status": {"replicas": 9}})).expect("applies");
    assert_eq!(world.value("/status"), Value::Null);
    world.part = Part::Status;
    world
        .apply("m", T1, json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 2}, "status": {"replicas": 9}}))
        .expect("applies");
    assert_eq!((world.value("/status/replicas"), world.value("/spec/replicas")), (json!(9), json!(1)));
    assert_eq!(world.value("/metadata/labels"), Value::Null);
    let fields: Vec<(Value, Value)> = world
        .entries()
        .as_array()
        .expect("two")
        .iter()
        .map(|entry| (entry["subresource"].clone(), entry["fieldsV1"].clone()))
        .collect();
    assert_eq!(
        fields,
        [
            (Value::Null, json!({"f:spec": {"f:replicas": {}}})),
            (json!("status"), json!({"f:status": {"f:replicas": {}}})),
        ]
    );
}

/// Goal: invalid configurations are refused. Method: a table of configuration, code and message.
#[test]
fn configurations_that_do_not_fit_are_refused() {
    let unfit =
        |error: &str| (500, format!("failed to create typed patch object (/a; apps/v1, Kind=Deployment): {error}"));
    let wrong = |text: &str| (400, text.to_owned());
    let containers = |items: Value| json!({"spec": {"template": {"spec": {"containers": items}}}});
    let table = [
        (json!({"spec": {"foo": 1}}), unfit(".spec.foo: field not declared in schema")),
        (
            json!({"spec": {"foo": 1, "replicas": "x"}, "bar": 1}),
            unfit(
                "errors:\n  .bar: field not declared in schema\n  .spec.foo: field not declared in schema\n  \
                   .spec.replicas: expected numeric (int or float), got string",
            ),
        ),
        (
            containers(json!([{"name": "c"}, {"name": "c"}])),
            unfit(".spec.template.spec.containers: duplicate entries for key [name=\"c\"]"),
        ),
        (
            containers(json!([{"image": "i"}])),
            unfit(
                ".spec.template.spec.containers: element 0: associative list with keys has an element that omits all \
                   key fields [\"name\"] (and doesn't have default values for any key fields)",
            ),
        ),
        (
            containers(json!([{"name": "c", "tty": 1}])),
            unfit(".spec.template.spec.containers[name=\"c\"].tty: expected boolean, got number"),
        ),
        (
            json!({"metadata": {"finalizers": ["x/y", "x/y", {"secret": 1}]}}),
            unfit(
                "errors:\n  .metadata.finalizers: duplicate entries for key [=...]\n  .metadata.finalizers[=...]: expected \
                 string, got object",
            ),
        ),
        (json!({"metadata": {"managedFields": []}}), wrong("metadata.managedFields must be nil")),
    ];
    let world = deployment();
    let place = WriteTarget { ty: &world.ty, namespace: "ns", name: "a", part: Part::Main };
    for (config, refusal) in table {
        assert_eq!(read(&place, "m", false, &world.config(config)).map(drop), Err(refusal));
    }
    let version = json!({"apiVersion": "v2", "kind": "Deployment"});
    let text = "invalid object type: /v2, Kind=Deployment";
    assert_eq!(read(&place, "m", false, &version).map(drop), Err(wrong(text)));
    let kind = json!({"apiVersion": "apps/v1", "kind": "Pod"});
    let text = "invalid object type: apps/v1, Kind=Pod";
    assert_eq!(read(&place, "m", false, &kind).map(drop), Err(wrong(text)));
}

#[test]
fn yaml_is_read_as_well_as_json() {
    let place = WriteTarget { ty: &ty("", "configmaps"), namespace: "ns", name: "a", part: Part::Main };
    let read = |body: &str| {
        let options = PatchOptions { manager: "m".to_owned(), ..PatchOptions::default() };
        let mut warnings = Vec::new();
        AppliedConfiguration::read(&place, body.as_bytes(), options, &mut warnings)
            .map(|applied| (Value::Object(applied.config)["data"].clone(), warnings))
            .map_err(|status| (status.code, status.message))
    };
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: v\n  k: w\n";
    assert_eq!(read(yaml), Ok((json!({"k": "w"}), vec!["duplicate field \"data.k\"".to_owned()])));
    let refused = read("- a").expect_err("a list");
    assert!(refused.0 == 400 && refused.1.starts_with("error decoding YAML: "), "{refused:?}");
    assert_eq!(read("a: [").expect_err("not YAML").0, 400);
}
