//! Keys and values that a stock kube-apiserver keeps in etcd, as `cache_server::etcd` knows them.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cache_server::{
    etcd::{ROOT, decode_value, key_prefix},
    registry::{Definition, Registry, ResourceType},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tests::{
    etcd::EtcdKeyValue,
    genuine::{ADMIN, Genuine, GenuineSettings},
    http::Client,
};
use tokio::time::sleep;

use super::{CHECK_EVERY, PATIENCE, definition};

/// Members that kube-apiserver does not store, but fills in at every read, by type and JSON pointer.
const DEFAULTED: [(&str, &str); 3] = [
    ("persistentvolumeclaims", "/status/phase"),
    ("statefulsets.apps", "/spec/volumeClaimTemplates/0/apiVersion"),
    ("statefulsets.apps", "/spec/volumeClaimTemplates/0/kind"),
];

/// Goal: every object of a cluster is found and read. Method: an object of every built-in type, most of them with enough
/// members to tell equal values from similar ones; each object that the API server lists is at its key, and its value
/// decodes to the object; no other key has the prefix. A custom object is JSON without a resourceVersion.
#[tokio::test]
async fn every_object_is_at_its_key_and_is_read() {
    let Some(genuine) = Genuine::start("upstream layout").await else { return };
    if !genuine.is_of_our_release("upstream layout").await {
        return;
    }
    let admin = genuine.client(ADMIN);
    for manifest in manifests() {
        admin.create_manifest(&manifest).await;
    }
    for ty in Registry::builtin().iter() {
        let begun = Instant::now();
        // kube-apiserver renews leases and repairs addresses at any time.
        let objects = loop {
            match compare(&genuine, &admin, ty).await {
                Ok(objects) => break objects,
                Err(difference) => assert!(begun.elapsed() < PATIENCE, "{}: {difference}", ty.id()),
            }
            sleep(CHECK_EVERY).await;
        };
        assert!(objects > 0, "there is no object of {}", ty.id());
    }
    check_custom(&genuine, &admin).await;
}

/// Checks an object of the type that [`cluster`] defines.
async fn check_custom(genuine: &Genuine, admin: &Client) {
    let thing = manifest("example.com/v1", "Thing", true, json!({"l": []}));
    let begun = Instant::now();
    while admin.post("/apis/example.com/v1/namespaces/default/things", &thing).await.code != 201 {
        assert!(begun.elapsed() < PATIENCE, "the type is not served");
        sleep(CHECK_EVERY).await;
    }
    let stored = genuine.keys().range(&format!("{ROOT}/example.com/things/")).await;
    assert_eq!(stored[0].key, "/registry/example.com/things/default/a");
    let stored = stored[0].json();
    assert_eq!((&stored["kind"], &stored["l"]), (&json!("Thing"), &json!([])));
    assert_eq!(stored["metadata"]["resourceVersion"], Value::Null);
}

/// Compares the objects of one type with the values in etcd. Returns the number of objects.
async fn compare(genuine: &Genuine, admin: &Client, ty: &ResourceType) -> Result<usize, String> {
    let root = if ty.group.is_empty() { "/api" } else { "/apis" };
    let path = format!("{root}/{}/{}", ty.api_version(), ty.plural);
    let list = admin.get(&path).await.with_code(200).json();
    let prefix = format!("{ROOT}/{}", key_prefix(ty));
    let pairs = genuine.keys().range(&prefix).await.into_iter();
    let mut stored: BTreeMap<String, EtcdKeyValue> = pairs.map(|pair| (pair.key.clone(), pair)).collect();
    let items = list["items"].as_array().unwrap();
    for item in items {
        let text = |member: &str| item["metadata"][member].as_str().unwrap_or_default();
        let key = prefix.clone() + &ty.key(text("namespace"), text("name"));
        let Some(value) = stored.remove(&key) else { return Err(format!("{key} does not exist")) };
        if value.mod_revision.to_string() != text("resourceVersion") {
            return Err(format!("{key} changed meanwhile"));
        }
        let decoded = decode_value(ty, &value.value).unwrap_or_else(|error| panic!("{key}: {error}"));
        let mut decoded: Value = serde_json::from_slice(&decoded).unwrap();
        let mut expected = item.clone();
        expected["kind"] = json!(ty.kind);
        expected["apiVersion"] = json!(ty.api_version());
        expected["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        without_nulls(&mut decoded);
        without_nulls(&mut expected);
        for (id, pointer) in DEFAULTED {
            if ty.id() == id && decoded.pointer(pointer).is_none() {
                remove(&mut expected, pointer);
            }
        }
        assert_eq!(decoded, expected, "{key}");
    }
    if stored.is_empty() { Ok(items.len()) } else { Err(format!("unknown keys: {:?}", stored.keys())) }
}

/// Removes the member at a JSON pointer.
fn remove(object: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
}

/// Removes nulls: Go writes them for unset times and lists, where this server omits the members.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Goal: kube-apiserver reads JSON values, whatever it writes itself. Method: a ConfigMap in etcd as JSON, with members in
/// any order, nulls, and without a resourceVersion; then an update through kube-apiserver, which writes protobuf even
/// though nothing changes.
#[tokio::test]
async fn values_may_be_json() {
    let Some(genuine) = Genuine::start("upstream layout").await else { return };
    let admin = genuine.client(ADMIN);
    let configmap = json!({"data": {"a": "b"}, "binaryData": null, "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "written", "namespace": "default", "uid": "6a8a5c3e-9d8e-4f0c-8a52-0a2a1f0e9c11",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": null}});
    let key = format!("{ROOT}/configmaps/default/written");
    genuine.keys().put(&key, configmap.to_string()).await;
    let path = "/api/v1/namespaces/default/configmaps/written";
    let begun = Instant::now();
    let mut read = loop {
        let answer = admin.get(path).await;
        if answer.code == 200 {
            break answer.json();
        }
        assert!(begun.elapsed() < PATIENCE, "it is not read: {}", answer.code);
        sleep(CHECK_EVERY).await;
    };
    assert_eq!(read["data"], configmap["data"]);
    let before = genuine.keys().get(&key).await.unwrap();
    assert_eq!(read["metadata"]["resourceVersion"], before.mod_revision.to_string());
    read["metadata"].as_object_mut().unwrap().remove("managedFields");
    admin.put(path, &read).await.with_code(200);
    let after = genuine.keys().get(&key).await.unwrap();
    assert!(before.value.starts_with(b"{") && after.value.starts_with(b"k8s\0"), "it is written anew");
    let configmaps = Registry::builtin().by_id("configmaps").unwrap();
    let decoded: Value = serde_json::from_slice(&decode_value(&configmaps, &after.value).unwrap()).unwrap();
    assert_eq!(decoded["metadata"]["uid"], configmap["metadata"]["uid"]);
}

/// A manifest of `api_version` and `kind`, in `default` unless `rest` has a namespace of its own. Members of `rest` are
/// beside the metadata.
fn manifest(api_version: &str, kind: &str, namespaced: bool, rest: Value) -> Value {
    let mut manifest = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": "a", "labels": {"app": "a"}, "annotations": {"note": "\u{e9}<\"\\>"}}});
    if namespaced {
        manifest["metadata"]["namespace"] = json!("default");
    }
    let Value::Object(rest) = rest else { return manifest };
    manifest.as_object_mut().unwrap().extend(rest);
    manifest
}

/// Objects of the types that a new cluster has none of.
fn manifests() -> Vec<Value> {
    let mut manifests = core();
    manifests.extend(workloads());
    manifests.extend(cluster());
    manifests.extend(admission());
    manifests.extend(devices());
    manifests
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "valueFrom": {"secretKeyRef":
            {"name": "s", "key": "k", "optional": false}}}],
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}}, "ports": [{"name": "http", "containerPort": 80}],
            "livenessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": 0},
            "securityContext": {"runAsUser": 0, "privileged": false}}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "p", "projected": {"sources": [
            {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}],
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 0, "effect": "NoExecute"}]}})
}

fn core() -> Vec<Value> {
    let namespaced = |kind: &str, rest: Value| manifest("v1", kind, true, rest);
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let mut pod = template();
    pod["metadata"] = json!({"name": "a", "namespace": "default", "ownerReferences": [{"apiVersion": "apps/v1",
        "kind": "ReplicaSet", "name": "r", "uid": "u1", "controller": true, "blockOwnerDeletion": false}]});
    vec![
        namespaced(
            "Event",
            json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r", "type": "Normal",
            "reportingComponent": "example.com/c", "reportingInstance": "i", "series":
                {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.123456Z"}}),
        ),
        namespaced("LimitRange", json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}})),
        manifest(
            "v1",
            "Node",
            false,
            json!({"spec": {"podCIDR": "10.1.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        ),
        namespaced("PersistentVolumeClaim", json!({"spec": claim})),
        manifest(
            "v1",
            "PersistentVolume",
            false,
            json!({"spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/a"}}}),
        ),
        namespaced("Pod", pod),
        namespaced("PodTemplate", json!({"template": template()})),
        namespaced("ReplicationController", json!({"spec": {"selector": {"app": "a"}, "template": template()}})),
        namespaced("ResourceQuota", json!({"spec": {"hard": {"services": "1000"}}})),
        namespaced("Secret", json!({"data": {"k": "AAEC/w==", "empty": ""}, "immutable": false})),
        namespaced("ServiceAccount", json!({"automountServiceAccountToken": false})),
        namespaced(
            "Service",
            json!({"spec": {"ports": [{"name": "n", "port": 80, "targetPort": "http"},
            {"name": "m", "port": 81, "targetPort": 8081}], "selector": {"app": "a"}}}),
        ),
    ]
}

fn workloads() -> Vec<Value> {
    let of = |api_version: &str, kind: &str, rest: Value| manifest(api_version, kind, true, rest);
    let selector = json!({"matchLabels": {"app": "a"}});
    let spec = json!({"selector": selector, "template": template()});
    let mut job = template();
    job["spec"]["restartPolicy"] = json!("Never");
    let mut stateful = spec.clone();
    stateful["serviceName"] = json!("a");
    stateful["volumeClaimTemplates"] = json!([{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1.5Gi"}}}}]);
    vec![
        of("apps/v1", "ControllerRevision", json!({"revision": 0, "data": {"spec": {"b": [1, 2.5, null], "a": "x"}}})),
        of("apps/v1", "DaemonSet", json!({"spec": spec})),
        of("apps/v1", "Deployment", json!({"spec": spec})),
        of("apps/v1", "ReplicaSet", json!({"spec": spec})),
        of("apps/v1", "StatefulSet", json!({"spec": stateful})),
        of(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef":
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        ),
        of(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}}),
        ),
        of("batch/v1", "Job", json!({"spec": {"template": job}})),
        of("policy/v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%", "selector": selector}})),
        of(
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/",
            "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}}),
        ),
        of("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}, "ingress": [{}]}})),
    ]
}

fn cluster() -> Vec<Value> {
    let of = |api_version: &str, kind: &str, rest: Value| manifest(api_version, kind, false, rest);
    let request = CertificateParams::new(Vec::new()).unwrap().serialize_request(&KeyPair::generate().unwrap()).unwrap();
    let request = BASE64_STANDARD.encode(request.pem().unwrap());
    let mut definition = of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({"spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"n": {"type": "number", "maximum": 1.5, "default": 1, "enum": [1, 0.5]},
                "l": {"type": "array", "items": {"type": "string"}, "maxItems": 0},
                "p": {"x-kubernetes-int-or-string": true}, "m": {"additionalProperties": {"type": "boolean"},
                    "type": "object"}}}}}]}}),
    );
    definition["metadata"]["name"] = json!("things.example.com");
    vec![
        definition,
        of(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            json!({"spec": {"request": request, "signerName": "example.com/s", "usages": ["client auth"]}}),
        ),
        of("networking.k8s.io/v1", "IngressClass", json!({"spec": {"controller": "example.com/c"}})),
        of("storage.k8s.io/v1", "CSIDriver", json!({"spec": {"attachRequired": false}})),
        of(
            "storage.k8s.io/v1",
            "CSINode",
            json!({"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n",
            "allocatable": {"count": 0}}]}}),
        ),
        manifest(
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            true,
            json!({"storageClassName": "a", "capacity": "1Gi",
            "nodeTopology": {}}),
        ),
        of("storage.k8s.io/v1", "StorageClass", json!({"provisioner": "example.com/p", "allowVolumeExpansion": false})),
        of(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            json!({"spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "a"}}}),
        ),
        of(
            "storage.k8s.io/v1",
            "VolumeAttributesClass",
            json!({"driverName": "example.com", "parameters": {"a": "b"}}),
        ),
        of("node.k8s.io/v1", "RuntimeClass", json!({"handler": "h", "overhead": {"podFixed": {"cpu": "10m"}}})),
    ]
}

fn admission() -> Vec<Value> {
    let of = |kind: &str, rest: Value| manifest("admissionregistration.k8s.io/v1", kind, false, rest);
    let rules = json!([{"apiGroups": ["none.example.com"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["things"]}]);
    let webhook = json!({"name": "w.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "a"}}, "rules": rules});
    let constraints = json!({"resourceRules": rules});
    vec![
        of("MutatingWebhookConfiguration", json!({"webhooks": [webhook]})),
        of("ValidatingWebhookConfiguration", json!({"webhooks": [webhook]})),
        of(
            "MutatingAdmissionPolicy",
            json!({"spec": {"matchConstraints": constraints, "reinvocationPolicy": "Never",
            "variables": [{"name": "v", "expression": "1"}], "matchConditions": [{"name": "m", "expression": "true"}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
                {"patchType": "JSONPatch", "jsonPatch":
                    {"expression": "[JSONPatch{op: \"test\", path: \"/a\", value: \"b\"}]"}}]}}),
        ),
        of("MutatingAdmissionPolicyBinding", json!({"spec": {"policyName": "a", "matchResources": constraints}})),
        of(
            "ValidatingAdmissionPolicy",
            json!({"spec": {"matchConstraints": constraints,
            "validations": [{"expression": "true", "message": "m"}]}}),
        ),
        of("ValidatingAdmissionPolicyBinding", json!({"spec": {"policyName": "a", "validationActions": ["Deny"]}})),
    ]
}

fn devices() -> Vec<Value> {
    let claim = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "a", "count": 2}}]}});
    let of = |kind: &str, namespaced: bool, rest: Value| manifest("resource.k8s.io/v1", kind, namespaced, rest);
    vec![
        of("DeviceClass", false, json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}})),
        of("ResourceClaim", true, json!({"spec": claim})),
        of("ResourceClaimTemplate", true, json!({"spec": {"spec": claim}})),
        of(
            "ResourceSlice",
            false,
            json!({"spec": {"driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}, "devices": [{"name": "d",
                "attributes": {"i": {"int": 0}, "b": {"bool": false}, "s": {"string": "x"}, "v": {"version": "1.0.0"}},
                "capacity": {"memory": {"value": "1Gi"}}}]}}),
        ),
    ]
}

/// Goal: custom objects that kube-apiserver stores as CBOR are read. Method: its feature gate for that, and an object with
/// each kind of value, among them bytes that are no Unicode and numbers that CBOR shortens.
#[tokio::test]
async fn custom_objects_in_cbor_are_read() {
    let flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let Some(genuine) = Genuine::start_with("upstream layout", GenuineSettings { flags, ..Default::default() }).await
    else {
        return;
    };
    let admin = genuine.client(ADMIN);
    let mut things = definition("cbor.example.com", "Thing", "n");
    things["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    admin.create_manifest(&things).await;
    let numbers = json!([0, -1, 23, 24, 1_u64 << 40, i64::MIN, 1.5, 1e300, 0.1]);
    let rest =
        json!({"n": 1, "numbers": numbers, "others": [true, false, "", "\u{e9}\"\n", [], {}, {"b": {}, "aa": 1}]});
    let thing = manifest("cbor.example.com/v1", "Thing", true, rest);
    let begun = Instant::now();
    let created = loop {
        let answer = admin.post("/apis/cbor.example.com/v1/namespaces/default/things", &thing).await;
        if answer.code == 201 {
            break answer.json();
        }
        assert!(begun.elapsed() < PATIENCE, "the type is not served: {}", answer.text());
        sleep(CHECK_EVERY).await;
    };
    let stored = genuine.keys().range(&format!("{ROOT}/cbor.example.com/things/")).await;
    assert!(stored[0].value.starts_with(&[0xd9, 0xd9, 0xf7]), "the value is CBOR");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.cbor.example.com";
    let things = admin.get(path).await.with_code(200).json();
    let things = Definition::read(things.as_object().unwrap()).unwrap();
    let ty = things.types(&Arc::new(things.schema()), 1).remove(0);
    let mut decoded: Value = serde_json::from_slice(&decode_value(&ty, &stored[0].value).unwrap()).unwrap();
    decoded["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    assert_eq!(decoded, created);
}
