//! Changes of sparse objects beside those of whole ones.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use watch_cache::{Draft, Entry};

use super::{
    super::{
        WriteTarget,
        apply::AppliedConfiguration,
        draft::{bounded_draft, sparse_draft},
        metadata::Part,
        options::{FieldValidation, Options, PatchOptions},
        patch::{Patch, PatchType},
        update::{ChangedObject, RequestedChange, SealedChange, UpdatePlan, plan, requested},
        validation,
    },
    *,
};
use crate::registry::{Definition, Registry, ResourceType};

/// Longest object that the drafts may have.
const BYTES_MAX: usize = 1 << 20;

const NOW: &str = "2026-01-03T00:00:00Z";

/// Outcome of a change.
#[derive(Debug, PartialEq)]
enum ChangeOutcome {
    Refused(u16, String),
    Unchanged(Vec<String>),
    /// The stored text, with warnings.
    Stored(String, Vec<String>),
}

struct ChangedPlace {
    ty: Arc<ResourceType>,
    entry: Arc<Entry>,
    part: Part,
}

impl ChangedPlace {
    fn new((group, plural): (&str, &str), mut object: Value, part: Part) -> Self {
        let registry = Registry::builtin().changed([], &custom_types());
        let ty = registry.find(group, "v1", plural).expect("a type");
        let object = object.as_object_mut().expect("an object");
        assert_eq!(validation::check(&ty, object).mistyped, None);
        let draft = bounded_draft(&ty, object, BYTES_MAX).expect("a valid object");
        Self { ty, entry: draft.commit_update(7), part }
    }

    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { ty: &self.ty, namespace: "ns", name: "a", part: self.part }
    }

    /// Makes the change to the whole object, or to the parts of it that the change touches.
    fn outcome(&self, change: &RequestedChange<'_>, object: &Object, sealed: Option<&SealedChange>) -> ChangeOutcome {
        let (Self { ty, entry, .. }, mut warnings) = (self, Vec::new());
        let stored = ChangedObject { object, sealed };
        let options = Options { validation: FieldValidation::Warn, ..Options::default() };
        let sent = requested(&self.target(), stored, change, options, NOW, &mut warnings);
        let planned = sent.and_then(|sent| plan(&self.target(), stored, change, sent));
        let draft = planned.and_then(|plan| match plan {
            UpdatePlan::Keep => Ok(None),
            UpdatePlan::Put(next) if sealed.is_some() => sparse_draft(ty, &next, entry, BYTES_MAX).map(Some),
            UpdatePlan::Put(next) => bounded_draft(ty, &next, BYTES_MAX).map(Some),
            UpdatePlan::Delete(_) => Ok(None),
        });
        match draft {
            Ok(Some(draft)) if !draft.same_content(entry) => {
                let written = draft.commit_update(8);
                ChangeOutcome::Stored(text(written.object_text()), warnings)
            }
            Ok(_) => ChangeOutcome::Unchanged(warnings),
            Err(status) => ChangeOutcome::Refused(status.code, status.message),
        }
    }

    /// Applies a configuration, as [`assert_equal`](Self::assert_equal) patches.
    fn assert_equal_apply(&self, manager: &str, force: bool, config: &Value) -> (bool, ChangeOutcome) {
        let options = PatchOptions { options: Options::default(), manager: manager.to_owned(), force };
        let body = config.to_string();
        match AppliedConfiguration::read(&self.target(), body.as_bytes(), options, &mut Vec::new()) {
            Ok(applied) => self.assert_equal_change(&RequestedChange::Apply(applied), &body),
            Err(status) => (false, ChangeOutcome::Refused(status.code, status.message)),
        }
    }

    /// Returns the place after a change.
    fn after(self, outcome: ChangeOutcome) -> Self {
        let ChangeOutcome::Stored(text, _) = outcome else { return self };
        let draft = Draft::new(&self.ty.schema, text.as_bytes()).expect("a stored object");
        Self { entry: draft.normal().commit_update(7), ..self }
    }

    /// Asserts that both ways lead to one outcome. Returns it, and true if the change is sparse.
    fn assert_equal(&self, media_type: &str, body: &str) -> (bool, ChangeOutcome) {
        let kind = PatchType::of(&self.ty, Some(media_type)).expect("a type of patch");
        let patch = match Patch::read(kind, body.as_bytes(), FieldValidation::Warn) {
            Ok(patch) => patch,
            Err(status) => return (false, ChangeOutcome::Refused(status.code, status.message)),
        };
        self.assert_equal_change(&RequestedChange::Patch(patch), body)
    }

    fn assert_equal_change(&self, change: &RequestedChange<'_>, body: &str) -> (bool, ChangeOutcome) {
        let whole = serde_json::from_slice(self.entry.object_text()).expect("a stored object");
        let expected = self.outcome(change, &whole, None);
        let sparse = change.sparse(&self.ty, &self.entry);
        if let Some((object, sealed)) = &sparse {
            let found = self.outcome(change, object, Some(sealed));
            assert_eq!(found, expected, "{body}\n{}", text(self.entry.object_text()));
        }
        (sparse.is_some(), expected)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn pod() -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B\"\n", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "args": ["x", "y"]})
    };
    json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "x", "tier": "y"},
            "annotations": {"note": "long \u{e9} \"text\""}, "finalizers": ["f/a", "f/b"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2"}],
            "managedFields": [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}}}]},
        "spec": {"nodeName": "n1", "containers": [container("c"), container("d")], "nodeSelector": {"a": "b"},
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
            "tolerations": [{"key": "k", "operator": "Exists"}], "hostNetwork": true},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": ""}]}})
}

fn deployment() -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 3,
            "annotations": {"k": "v"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}},
        "status": {"replicas": 2, "conditions": [{"type": "Available", "status": "True"}]}})
}

fn config_map() -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v", "l": "\u{1}\\u0000"}, "binaryData": {"b": "AA=="},
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"}})
}

fn secret() -> Value {
    json!({"kind": "Secret", "apiVersion": "v1", "data": {"k": "AA=="}, "type": "Opaque",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"}})
}

fn node() -> Value {
    json!({"kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "a", "uid": "u1", "resourceVersion": "7", "labels": {"zone": "z"}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "4", "pods": "110"}, "nodeInfo": {"machineID": "x", "bootID": "b"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "r"}, {"type": "DiskPressure", "status": "False"}],
            "images": [{"names": ["i"], "sizeBytes": 7}, {"names": ["j"], "sizeBytes": 8}]}})
}

/// Returns a custom type with a schema.
fn custom_types() -> Vec<Arc<ResourceType>> {
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"steps": keyed,
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "versions": [version]},
        "status": {"acceptedNames": {"plural": "things", "kind": "Thing"}}});
    let definition = Definition::read(definition.as_object().expect("an object")).expect("a definition");
    definition.types(&Arc::new(definition.schema()), 1)
}

fn thing() -> Value {
    json!({"kind": "Thing", "apiVersion": "example.com/v1",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 1,
            "labels": {"app": "x"}},
        "spec": {"steps": [{"name": "c", "image": "i", "env": {"a": null}}, {"name": "d", "weights": [1, 2.5, null]}],
            "any": {"deep": {"er": [{"name": "c"}, []]}, "empty": {}, "none": null}, "number": 7},
        "status": {"phase": "Done", "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Returns a value of any kind.
fn any_value(random: &mut Rng) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(1.5),
        json!("x"),
        json!(""),
        json!("\u{0}1-2"),
        json!("\u{e9}\"\\\n"),
        json!([]),
        json!({}),
        json!([1, null, {"a": null}]),
        json!({"a": {"b": null, "c": "d"}}),
        json!({"name": "c", "containerPort": 80}),
        json!([{"name": "c", "image": null}]),
        json!({"$patch": "delete"}),
        json!([{"$patch": "replace"}, {"name": "c"}]),
    ];
    random.choice(&values).expect("values").clone()
}

/// Returns a patch of some members of an object, each changed, removed or replaced.
fn object_patch(random: &mut Rng, object: &Object, is_strategic: bool, depth: usize) -> Value {
    let mut patch = Object::new();
    let rate = if depth == 0 { 2 } else { 3 };
    for (name, value) in object {
        // Changes of these are refused.
        let is_fixed = matches!(
            name.as_str(),
            "kind" | "apiVersion" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp" | "name"
        );
        if random.usize(..rate) > 0 || is_fixed && random.usize(..30) > 0 {
            continue;
        }
        let below = value_patch(random, value, is_strategic, depth + 1);
        patch.insert(name.clone(), below);
        if let (true, Value::Array(items), 0) = (is_strategic, value, random.usize(..3)) {
            let order: Vec<Value> = items
                .iter()
                .flat_map(|item| if random.usize(..4) > 0 { Some(key_of(random, item)) } else { None })
                .collect();
            let directive = if random.usize(..4) == 0 { DELETE_FROM } else { SET_ORDER };
            patch.insert(format!("{directive}/{name}"), Value::Array(order));
            if random.bool() {
                patch.remove(name);
            }
        }
    }
    if random.usize(..16) == 0 {
        patch.insert(
            (*random.choice(&["new", "labels", "name", "image", "env"]).expect("names")).into(),
            any_value(random),
        );
    }
    if is_strategic && random.usize(..40) == 0 {
        let retained: Vec<&String> = object.keys().chain(patch.keys()).filter(|_| random.usize(..6) > 0).collect();
        let retained = json!(retained);
        patch.insert("$retainKeys".to_owned(), retained);
    }
    if is_strategic && random.usize(..60) == 0 {
        let directive = *random.choice(&["replace", "delete", "merge", "odd"]).expect("words");
        patch.insert("$patch".to_owned(), directive.into());
    }
    Value::Object(patch)
}

const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Returns the members of an item that may be its key, or a scalar itself.
fn key_of(random: &mut Rng, item: &Value) -> Value {
    let Value::Object(item) = item else { return item.clone() };
    let is_key = |name: &str| matches!(name, "name" | "type" | "containerPort" | "uid" | "ip" | "protocol" | "key");
    let members = item.iter().filter(|(name, _)| is_key(name) && random.usize(..60) > 0);
    Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn value_patch(random: &mut Rng, value: &Value, is_strategic: bool, depth: usize) -> Value {
    match (value, random.usize(..60)) {
        (_, 0) => any_value(random),
        (_, 1 | 10 | 20) => Value::Null,
        // As it is.
        (_, 2 | 3) => value.clone(),
        (Value::Object(object), _) => object_patch(random, object, is_strategic, depth),
        (Value::Array(items), _) if is_strategic => {
            let mut patches = Vec::new();
            for item in items {
                if random.bool() {
                    continue;
                }
                let mut patch = key_of(random, item);
                if let (Value::Object(item), Value::Object(patch)) = (item, &mut patch) {
                    if let Value::Object(more) = object_patch(random, item, true, depth) {
                        let more = more.into_iter().filter(|(name, _)| !patch.contains_key(name));
                        let more: Vec<_> = more.collect();
                        patch.extend(more);
                    }
                    if random.usize(..8) == 0 {
                        patch.insert("$patch".to_owned(), "delete".into());
                    }
                }
                patches.push(patch);
            }
            if random.usize(..6) == 0 {
                patches.push(json!({"name": "new", "image": "i"}));
            }
            Value::Array(patches)
        }
        (Value::Array(items), 4..30) => Value::Array(items[..random.usize(..=items.len())].to_vec()),
        (Value::String(_), _) => json!(format!("changed {}", random.u8(..))),
        (Value::Number(_), _) => json!(random.u8(..)),
        (Value::Bool(value), _) => json!(!value),
        (other, _) => other.clone(),
    }
}

type Sample = ((&'static str, &'static str), fn() -> Value);

const SAMPLES: [Sample; 6] = [
    (("example.com", "things"), thing),
    (("", "pods"), pod),
    (("apps", "deployments"), deployment),
    (("", "configmaps"), config_map),
    (("", "secrets"), secret),
    (("", "nodes"), node),
];

/// Goal: checks of writes by nodes find the members of a status that a patch removes.
#[test]
fn a_removed_status_shows_its_members_to_checks() {
    let mut pod = pod();
    pod["status"] = json!({"phase": "Running", "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}]});
    let place = ChangedPlace::new(("", "pods"), pod, Part::Status);
    for (media_type, body) in
        [(MERGE, r#"{"status":null}"#), (STRATEGIC, r#"{"status":null}"#), (STRATEGIC, r#"{"metadata":{}}"#)]
    {
        let kind = PatchType::of(&place.ty, Some(media_type)).expect("a type of patch");
        let patch = Patch::read(kind, body.as_bytes(), FieldValidation::Warn).expect("a patch");
        let (object, _) = RequestedChange::Patch(patch).sparse(&place.ty, &place.entry).expect("a sparse object");
        assert!(object["status"].get("resourceClaimStatuses").is_some_and(is_sealed), "{body}: {object:?}");
    }
}

/// Goal: patches of lists that have several items with one key change the first.
#[test]
fn patches_change_the_first_of_items_with_one_key() {
    let mut pod = pod();
    let container = pod["spec"]["containers"][0].clone();
    pod["spec"]["containers"] = json!([container.clone(), container.clone(), container]);
    let place = ChangedPlace::new(("", "pods"), pod, Part::Main);
    for body in [
        r#"{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"9"},{"name":"Z","value":"1"}]}]}}"#,
        r#"{"spec":{"containers":[{"name":"c","env":null},{"name":"d","image":"j"}]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/managedFields":[{"manager":"m"}]}}"#,
    ] {
        let (_, outcome) = place.assert_equal(STRATEGIC, body);
        assert!(!matches!(outcome, ChangeOutcome::Refused(..)), "{outcome:?}");
    }
}

/// Goal: a patch of a sparse object leads to the bytes, the warnings or the refusal of the patch of the whole one.
/// Method: random patches of objects of several types, made from their members.
#[test]
fn patches_of_sparse_objects_equal_those_of_whole_ones() {
    let (mut sparse, mut stored, mut refused) = (0, 0, 0);
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let (ty, object) = *random.choice(&SAMPLES).expect("samples");
        let part = if random.usize(..3) == 0 && ty.1 != "configmaps" { Part::Status } else { Part::Main };
        let place = ChangedPlace::new(ty, object(), part);
        let is_strategic = ty.1 != "things" && random.bool();
        let patch = object_patch(&mut random, object().as_object().expect("an object"), is_strategic, 0);
        let media_type = if is_strategic { STRATEGIC } else { MERGE };
        let (is_sparse, outcome) = place.assert_equal(media_type, &patch.to_string());
        sparse += usize::from(is_sparse);
        stored += usize::from(is_sparse && matches!(outcome, ChangeOutcome::Stored(..)));
        refused += usize::from(is_sparse && matches!(outcome, ChangeOutcome::Refused(..)));
    }
    assert!(sparse > 2_000 && stored > 500 && refused > 300, "{sparse} {stored} {refused}");
}

/// Returns some members of a value, with the keys of its items.
fn part_of(random: &mut Rng, value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(object) => {
            let is_key =
                |name: &str| matches!(name, "name" | "type" | "containerPort" | "protocol" | "uid" | "ip" | "key");
            let members = object.iter().filter(|(name, _)| {
                let is_needed = depth == 0 && matches!(name.as_str(), "kind" | "apiVersion" | "metadata");
                let is_ours = depth == 1 && matches!(name.as_str(), "managedFields" | "resourceVersion" | "uid");
                is_needed || (!is_ours && (is_key(name) || random.usize(..3) > 0))
            });
            let members: Vec<_> = members.collect();
            members.into_iter().map(|(name, value)| (name.clone(), part_of(random, value, depth + 1))).collect()
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().filter(|_| random.usize(..4) > 0).collect();
            items.into_iter().map(|item| part_of(random, item, depth + 1)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Changes some scalars of a configuration, and at times the fields that it sets.
fn changed_config(random: &mut Rng, value: &mut Value, depth: usize, is_same: bool) {
    match value {
        Value::Object(object) => {
            for (name, value) in object.iter_mut() {
                let is_fixed =
                    matches!(name.as_str(), "kind" | "apiVersion" | "name" | "namespace" | "type" | "protocol");
                if !is_fixed || random.usize(..200) == 0 {
                    changed_config(random, value, depth + 1, is_same);
                }
            }
            if !is_same && random.usize(..12) == 0 {
                object.insert("labels".to_owned(), json!({"new": "label"}));
            }
            if !is_same && depth > 1 && random.usize(..12) == 0 {
                let first = object.keys().next().cloned();
                first.and_then(|first| object.remove(&first));
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| changed_config(random, item, depth + 1, is_same));
            if random.usize(..8) == 0 {
                items.reverse();
            }
        }
        Value::String(text) if random.usize(..6) == 0 => *text = format!("changed {}", random.u8(..)),
        Value::Number(number) if random.usize(..8) == 0 => *number = random.u8(..).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if random.usize(..400) == 0 {
                *value = any_value(random);
            }
        }
    }
}

/// Goal: an apply to a sparse object leads to the bytes or the refusal of the apply to the whole one. Method: two
/// managers apply random parts of an object, one of them again with other values and, at times, other fields.
#[test]
fn applies_to_sparse_objects_equal_those_to_whole_ones() {
    let (mut sparse, mut stored, mut refused, mut unchanged) = (0, 0, 0, 0);
    for seed in 0..1_500 {
        let mut random = Rng::with_seed(seed);
        let (ty, object) = *random.choice(&SAMPLES).expect("samples");
        let part = if random.usize(..3) == 0 && ty.1 != "configmaps" { Part::Status } else { Part::Main };
        let mut place = ChangedPlace::new(ty, object(), part);
        let mut config = part_of(&mut random, &object(), 0);
        let first = place.assert_equal_apply("one", true, &config);
        place = place.after(first.1);
        if random.bool() {
            let mut other = part_of(&mut random, &object(), 0);
            changed_config(&mut random, &mut other, 0, false);
            let second = place.assert_equal_apply("two", true, &other);
            place = place.after(second.1);
        }
        for _ in 0..3 {
            let (is_same, is_forced) = (random.usize(..3) > 0, random.bool());
            changed_config(&mut random, &mut config, 0, is_same);
            let (is_sparse, outcome) = place.assert_equal_apply("one", is_forced, &config);
            sparse += usize::from(is_sparse);
            stored += usize::from(is_sparse && matches!(outcome, ChangeOutcome::Stored(..)));
            refused += usize::from(is_sparse && matches!(outcome, ChangeOutcome::Refused(..)));
            unchanged += usize::from(is_sparse && matches!(outcome, ChangeOutcome::Unchanged(..)));
            place = place.after(outcome);
        }
    }
    let counts = [sparse, stored, refused, unchanged];
    assert!(counts.iter().zip([1_500, 400, 3, 1_000]).all(|(count, least)| *count > least), "{counts:?}");
}
