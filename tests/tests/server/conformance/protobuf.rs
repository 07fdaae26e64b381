//! Protobuf bodies: objects encoded as Kubernetes' messages are stored as the JSON that Go would write.
//!
//! Goal: clients that send protobuf, as kubectl does, store the right objects. Method: messages of k8s-pb, encoded by
//! prost, posted and read back.

use bytes::Bytes;
use http::Method;
use k8s_pb::{
    api::{apps::v1 as apps, batch::v1 as batch, coordination::v1 as coordination, core::v1 as core, rbac::v1 as rbac},
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{self as meta, ObjectMeta},
        runtime::{TypeMeta, Unknown},
        util::intstr::IntOrString,
    },
};
use prost::Message;
use serde_json::{Value, json};
use tests::http::{Answer, Client};

use super::{define, server};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The envelope of Kubernetes' protobuf.
fn body(api_version: &str, kind: &str, message: &impl Message) -> Bytes {
    let type_meta = TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let unknown = Unknown {
        type_meta: Some(type_meta),
        raw: Some(message.encode_to_vec()),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    [b"k8s\0".to_vec(), unknown.encode_to_vec()].concat().into()
}

async fn send(client: &Client, method: Method, path: &str, body: Bytes) -> Answer {
    client.send(Client::request(method, path, &[("content-type", PROTOBUF)], body)).await
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn named(name: &str) -> Option<ObjectMeta> {
    Some(ObjectMeta { name: text(name), ..ObjectMeta::default() })
}

/// Metadata as Go encodes it: members that are not pointers are always present.
fn named_by_go(name: &str) -> Option<ObjectMeta> {
    Some(ObjectMeta {
        name: text(name),
        generate_name: text(""),
        namespace: text(""),
        self_link: text(""),
        uid: text(""),
        resource_version: text(""),
        generation: Some(0),
        creation_timestamp: Some(meta::Time::default()),
        ..ObjectMeta::default()
    })
}

fn labels(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Posts a message to a collection, and returns the stored object without the members that the server sets.
async fn stored(client: &Client, collection: &str, api_version: &str, kind: &str, message: &impl Message) -> Value {
    let answer = send(client, Method::POST, collection, body(api_version, kind, message)).await.with_code(201);
    let name = answer.json()["metadata"]["name"].as_str().unwrap().to_owned();
    let mut object = client.get(&format!("{collection}/{name}")).await.with_code(200).json();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for set in ["uid", "resourceVersion", "creationTimestamp", "generation", "namespace", "managedFields"] {
        metadata.remove(set);
    }
    object
}

#[tokio::test]
async fn maps_and_bytes_come_back() {
    let server = server(&[]).await;
    let client = server.client();
    let configmap = core::ConfigMap {
        metadata: named_by_go("a"),
        data: labels(&[("k", "v"), ("empty", "")]),
        binary_data: [("b".to_owned(), vec![0, 255, 16])].into(),
        immutable: Some(false),
    };
    assert_eq!(
        stored(&client, "/api/v1/namespaces/default/configmaps", "v1", "ConfigMap", &configmap).await,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v", "empty": ""},
            "binaryData": {"b": "AP8Q"}, "immutable": false})
    );
    let secret = core::Secret {
        metadata: named("s"),
        r#type: text("Opaque"),
        data: [("p".to_owned(), b"x".to_vec())].into(),
        ..Default::default()
    };
    assert_eq!(
        stored(&client, "/api/v1/namespaces/default/secrets", "v1", "Secret", &secret).await,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "eA=="}, "type": "Opaque"})
    );
}

fn container() -> core::Container {
    core::Container {
        name: text("c"),
        image: text("i"),
        working_dir: text(""),
        ports: vec![core::ContainerPort {
            container_port: Some(80),
            host_port: Some(0),
            protocol: text("TCP"),
            ..Default::default()
        }],
        env: vec![core::EnvVar {
            name: text("V"),
            value: text(""),
            value_from: Some(core::EnvVarSource {
                config_map_key_ref: Some(core::ConfigMapKeySelector {
                    local_object_reference: Some(core::LocalObjectReference { name: text("cm") }),
                    key: text("k"),
                    optional: Some(false),
                }),
                ..Default::default()
            }),
        }],
        resources: Some(core::ResourceRequirements {
            limits: [("cpu".to_owned(), Quantity { string: text("500m") })].into(),
            ..Default::default()
        }),
        liveness_probe: Some(core::Probe {
            handler: Some(core::ProbeHandler {
                http_get: Some(core::HttpGetAction {
                    path: text("/"),
                    port: Some(IntOrString { r#type: Some(1), int_val: Some(0), str_val: text("http") }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            initial_delay_seconds: Some(0),
            period_seconds: Some(7),
            ..Default::default()
        }),
        security_context: Some(core::SecurityContext {
            run_as_user: Some(0),
            privileged: Some(false),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Goal: embedded structs are not nested, pointers to zero are kept, other zeros are dropped. Method: a Deployment with
/// all of them.
#[tokio::test]
async fn a_deployment_comes_back_as_go_writes_it() {
    let server = server(&[]).await;
    let client = server.client();
    let volume = core::Volume {
        name: text("config"),
        volume_source: Some(core::VolumeSource {
            config_map: Some(core::ConfigMapVolumeSource {
                local_object_reference: Some(core::LocalObjectReference { name: text("cm") }),
                default_mode: Some(0o644),
                ..Default::default()
            }),
            ..Default::default()
        }),
    };
    let template = core::PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: labels(&[("app", "web")]),
            creation_timestamp: Some(meta::Time::default()),
            ..Default::default()
        }),
        spec: Some(core::PodSpec {
            containers: vec![container()],
            volumes: vec![volume],
            termination_grace_period_seconds: Some(0),
            host_network: Some(false),
            security_context: Some(core::PodSecurityContext {
                supplemental_groups: vec![0, 1000],
                ..Default::default()
            }),
            ..Default::default()
        }),
    };
    let rolling = apps::RollingUpdateDeployment {
        max_unavailable: Some(IntOrString { r#type: Some(0), int_val: Some(0), str_val: text("") }),
        max_surge: Some(IntOrString { r#type: Some(1), int_val: Some(0), str_val: text("25%") }),
    };
    let deployment = apps::Deployment {
        metadata: named_by_go("web"),
        spec: Some(apps::DeploymentSpec {
            replicas: Some(0),
            min_ready_seconds: Some(0),
            paused: Some(false),
            selector: Some(meta::LabelSelector { match_labels: labels(&[("app", "web")]), ..Default::default() }),
            template: Some(template),
            strategy: Some(apps::DeploymentStrategy { r#type: text("RollingUpdate"), rolling_update: Some(rolling) }),
            ..Default::default()
        }),
        status: Some(apps::DeploymentStatus { replicas: Some(0), ..Default::default() }),
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(
        stored(&client, path, "apps/v1", "Deployment", &deployment).await,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [{
                    "name": "c", "image": "i",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": false}}}],
                    "resources": {"limits": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 7},
                    "securityContext": {"runAsUser": 0, "privileged": false},
                }],
                "volumes": [{"name": "config", "configMap": {"name": "cm", "defaultMode": 420}}],
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"supplementalGroups": [0, 1000]},
            }},
        }})
    );
}

#[tokio::test]
async fn times_come_back_as_texts() {
    let server = server(&[]).await;
    let client = server.client();
    let micro = meta::MicroTime { seconds: Some(1_767_225_600), nanos: Some(123_456_789) };
    let lease = coordination::Lease {
        metadata: named("l"),
        spec: Some(coordination::LeaseSpec {
            holder_identity: text(""),
            acquire_time: Some(micro),
            renew_time: Some(meta::MicroTime::default()),
            lease_transitions: Some(0),
            ..Default::default()
        }),
    };
    assert_eq!(
        stored(
            &client,
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "coordination.k8s.io/v1",
            "Lease",
            &lease
        )
        .await,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {
            "holderIdentity": "", "acquireTime": "2026-01-01T00:00:00.123456Z", "leaseTransitions": 0}})
    );
    let job = batch::Job {
        metadata: Some(ObjectMeta {
            annotations: labels(&[("a", "ü\n")]),
            finalizers: vec!["x.io/y".to_owned()],
            owner_references: vec![meta::OwnerReference {
                api_version: text("batch/v1"),
                kind: text("CronJob"),
                name: text("c"),
                uid: text("u"),
                controller: Some(false),
                block_owner_deletion: None,
            }],
            managed_fields: vec![meta::ManagedFieldsEntry {
                manager: text("m"),
                operation: text("Update"),
                api_version: text("batch/v1"),
                time: Some(meta::Time { seconds: Some(1_767_225_600), nanos: Some(5) }),
                fields_type: text("FieldsV1"),
                fields_v1: Some(meta::FieldsV1 { raw: Some(br#"{"f:spec":{}}"#.to_vec()) }),
                subresource: text(""),
            }],
            ..named("j").unwrap()
        }),
        spec: Some(batch::JobSpec { parallelism: Some(0), suspend: Some(false), ..Default::default() }),
        status: None,
    };
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let answer = send(&client, Method::POST, path, body("batch/v1", "Job", &job)).await.with_code(201).json();
    let metadata = &answer["metadata"];
    assert_eq!(metadata["annotations"], json!({"a": "ü\n"}));
    let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": false}]);
    assert_eq!(metadata["ownerReferences"], owner);
    let managed = &metadata["managedFields"][0];
    assert_eq!((&managed["fieldsV1"], &managed["time"]), (&json!({"f:spec": {}}), &json!("2026-01-01T00:00:00Z")));
    assert_eq!(answer["spec"], json!({"parallelism": 0, "suspend": false}));
}

/// Goal: messages whose JSON is not an object of their fields are converted. Method: a definition with every such
/// message.
#[tokio::test]
async fn a_definition_comes_back_as_go_writes_it() {
    let server = server(&[]).await;
    let client = server.client();
    let json_of = |text: &str| apiextensions::Json { raw: Some(text.as_bytes().to_vec()) };
    let schema =
        |ty: &str| apiextensions::JsonSchemaProps { r#type: text(ty), nullable: Some(false), ..Default::default() };
    let list = apiextensions::JsonSchemaProps {
        items: Some(Box::new(apiextensions::JsonSchemaPropsOrArray {
            schema: Some(Box::new(schema("string"))),
            j_son_schemas: vec![],
        })),
        x_kubernetes_list_type: text("set"),
        max_items: Some(0),
        ..schema("array")
    };
    let map = apiextensions::JsonSchemaProps {
        additional_properties: Some(Box::new(apiextensions::JsonSchemaPropsOrBool {
            allows: Some(true),
            schema: Some(Box::new(apiextensions::JsonSchemaProps {
                minimum: Some(0.0),
                maximum: Some(1.5),
                r#enum: vec![json_of("1"), json_of("null")],
                ..schema("number")
            })),
        })),
        default: Some(json_of(r#"{"a":1}"#)),
        ..schema("object")
    };
    let root = apiextensions::JsonSchemaProps {
        properties: [("list".to_owned(), list), ("map".to_owned(), map)].into(),
        ..schema("object")
    };
    let version = apiextensions::CustomResourceDefinitionVersion {
        name: text("v1"),
        served: Some(true),
        storage: Some(true),
        deprecated: Some(false),
        schema: Some(apiextensions::CustomResourceValidation { open_apiv3_schema: Some(root) }),
        subresources: Some(apiextensions::CustomResourceSubresources {
            status: Some(apiextensions::CustomResourceSubresourceStatus {}),
            scale: None,
        }),
        ..Default::default()
    };
    let definition = apiextensions::CustomResourceDefinition {
        metadata: named("things.example.com"),
        spec: Some(apiextensions::CustomResourceDefinitionSpec {
            group: text("example.com"),
            scope: text("Namespaced"),
            names: Some(apiextensions::CustomResourceDefinitionNames {
                plural: text("things"),
                kind: text("Thing"),
                ..Default::default()
            }),
            versions: vec![version],
            ..Default::default()
        }),
        status: None,
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition);
    let stored = send(&client, Method::POST, path, body).await.with_code(201).json();
    assert_eq!(
        stored["spec"]["versions"][0],
        json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "string"}, "maxItems": 0, "x-kubernetes-list-type": "set"},
            "map": {"type": "object", "default": {"a": 1}, "additionalProperties": {
                "type": "number", "minimum": 0, "maximum": 1.5, "enum": [1, null]}},
        }}}})
    );
}

/// Goal: updates and deletes accept protobuf. Method: an update, a delete with a precondition, and the error text of a
/// refusal.
#[tokio::test]
async fn updates_and_deletes_take_it_too() {
    let server = server(&[]).await;
    let client = server.client();
    let role = |verb: &str| rbac::ClusterRole {
        metadata: named("r"),
        rules: vec![rbac::PolicyRule {
            verbs: vec![verb.to_owned()],
            resources: vec!["pods".to_owned()],
            ..Default::default()
        }],
        aggregation_rule: None,
    };
    let (collection, kind) = ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole");
    let path = format!("{collection}/r");
    let of = |verb: &str| body("rbac.authorization.k8s.io/v1", kind, &role(verb));
    send(&client, Method::POST, collection, of("get")).await.with_code(201);
    let updated = send(&client, Method::PUT, &path, of("list")).await.with_code(200).json();
    assert_eq!(updated["rules"], json!([{"verbs": ["list"], "resources": ["pods"]}]));

    let options = |uid: &str| meta::DeleteOptions {
        preconditions: Some(meta::Preconditions { uid: text(uid), resource_version: None }),
        propagation_policy: text("Background"),
        ..Default::default()
    };
    let of = |uid: &str| body("rbac.authorization.k8s.io/v1", "DeleteOptions", &options(uid));
    let refused = send(&client, Method::DELETE, &path, of("other")).await.with_code(409);
    assert!(refused.message().contains("the UID in the precondition (other)"), "{}", refused.message());
    let uid = updated["metadata"]["uid"].as_str().unwrap();
    send(&client, Method::DELETE, &path, of(uid)).await.with_code(200);
}

/// Goal: malformed bodies are refused with Kubernetes' error texts. Method: a table of body and response.
#[tokio::test]
async fn bodies_that_are_no_objects_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps";
    let secret = core::Secret { metadata: named("s"), ..Default::default() };
    let table: [(Bytes, u16, &str); 6] = [
        (
            "{}".into(),
            400,
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0]",
        ),
        (
            Bytes::from_static(b"k8s\0"),
            400,
            "the object provided is unrecognized (must be of type ConfigMap): empty body",
        ),
        (
            Bytes::from_static(b"k8s\0\x0a\x7f"),
            400,
            "the object provided is unrecognized (must be of type ConfigMap): unexpected EOF",
        ),
        (
            body("v1", "Secret", &secret),
            400,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): \
             unknown conversion",
        ),
        (
            body("v9", "Thing", &secret),
            400,
            "Thing in version \"v9\" cannot be handled as a ConfigMap: no kind \"Thing\" is registered for version \
             \"v9\" in scheme",
        ),
        (
            body("v1", "ConfigMap", &meta::Time { seconds: Some(7), nanos: None }),
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: proto: wrong wireType = 0 for field",
        ),
    ];
    for (body, code, text) in table {
        let answer = send(&client, Method::POST, path, body).await.with_code(code);
        assert!(answer.message().starts_with(text), "{}", answer.message());
    }
}

/// Goal: an unsupported media type is refused with the accepted ones. Method: a type with protobuf messages, and a
/// custom one without.
#[tokio::test]
async fn custom_types_take_no_protobuf() {
    let server = server(&[]).await;
    let client = server.client();
    let refused = client
        .send(Client::request(
            Method::POST,
            "/api/v1/namespaces/default/pods",
            &[("content-type", "text/plain")],
            "x".into(),
        ))
        .await
        .with_code(415);
    let accepted = "the body of the request was in an unknown format - accepted media types include: application/json, \
                    application/yaml";
    assert_eq!(refused.message(), format!("{accepted}, {PROTOBUF}"));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    define(&client, &definition).await;
    let path = "/apis/example.com/v1/namespaces/default/things";
    let configmap = core::ConfigMap { metadata: named("a"), ..Default::default() };
    let refused = send(&client, Method::POST, path, body("example.com/v1", "Thing", &configmap)).await.with_code(415);
    assert_eq!(refused.message(), accepted);
}
