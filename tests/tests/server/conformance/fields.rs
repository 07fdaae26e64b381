//! Fields in write bodies: unknown fields, duplicate fields, and values of another type.

use http::Method;
use serde_json::json;
use tests::{
    http::{Answer, MERGE_PATCH},
    objects::{configmap, pod},
};

use super::{merges::send, server};

const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn warnings(answer: &Answer) -> Vec<String> {
    answer.headers.get_all("warning").iter().map(|value| value.to_str().expect("is text").to_owned()).collect()
}

#[tokio::test]
async fn unknown_fields_are_dropped_and_warned_about() {
    let server = server(&[]).await;
    let client = server.client();
    let body = json!({"metadata": {"name": "a", "who": "x"}, "foo": 1, "data": {"k": "v"}});
    let created = client.post(CONFIG_MAPS, &body).await.with_code(201);
    assert_eq!(
        warnings(&created),
        [r#"299 - "unknown field \"foo\"""#, r#"299 - "unknown field \"metadata.who\"""#],
        "one for each, in the order of the body"
    );
    let object = created.json();
    assert_eq!((object.get("foo"), object["metadata"].get("who")), (None, None));
    let path = format!("{CONFIG_MAPS}/a");
    let put = client.put(&path, &body).await.with_code(200);
    assert_eq!((warnings(&put).len(), put.resource_version()), (2, created.resource_version()));
    for (content_type, patch) in [
        (MERGE_PATCH, json!({"foo": 1})),
        (STRATEGIC_PATCH, json!({"foo": 1})),
        (JSON_PATCH, json!([{"op": "add", "path": "/foo", "value": 1}])),
    ] {
        let patched = client.patch(&path, content_type, &patch).await.with_code(200);
        assert_eq!(warnings(&patched), [r#"299 - "unknown field \"foo\"""#], "{content_type}");
        assert_eq!(patched.resource_version(), created.resource_version(), "{content_type}");
        let ignored =
            client.patch(&format!("{path}?fieldValidation=Ignore"), content_type, &patch).await.with_code(200);
        assert_eq!(warnings(&ignored), [""; 0]);
    }
}

/// Goal: strict validation refuses unknown and duplicate fields. Method: a table of method, media type, body, code and
/// message.
#[tokio::test]
async fn strict_validation_refuses_what_others_drop() {
    let server = server(&[]).await;
    let client = server.client();
    let object = configmap("cm").data("v");
    client.create(&object).await;
    let path = object.path();
    let decoding = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: ";
    let patching = " \"\" is invalid: patch: Invalid value: \"{...}\": strict decoding error: ";
    let yaml = "kind: ConfigMap\nmetadata: {name: cm}\ndata:\n  k: a\n  k: b\nfoo: 1\n";
    let table = [
        (
            Method::POST,
            "application/json",
            r#"{"metadata":{"name":"x"},"foo":1}"#,
            400,
            format!("{decoding}unknown field \"foo\""),
        ),
        (
            Method::PUT,
            "application/json",
            r#"{"z":1,"metadata":{"name":"cm","a":1},"data":{"k":"1","k":"2"},"b":{"c":1}}"#,
            400,
            format!(
                "{decoding}unknown field \"z\", unknown field \"metadata.a\", duplicate field \"data.k\", unknown field \"b\""
            ),
        ),
        (
            Method::PUT,
            "application/yaml",
            yaml,
            400,
            format!("{decoding}duplicate field \"data.k\", unknown field \"foo\""),
        ),
        (
            Method::PATCH,
            MERGE_PATCH,
            r#"{"foo":1,"data":{"a":"1","a":"2"}}"#,
            422,
            format!("{patching}duplicate field \"data.a\", unknown field \"foo\""),
        ),
        (Method::PATCH, STRATEGIC_PATCH, r#"{"foo":1}"#, 422, format!("{patching}unknown field \"foo\"")),
        (
            Method::PATCH,
            JSON_PATCH,
            r#"[{"op":"add","path":"/foo","value":1}]"#,
            422,
            format!("{patching}unknown field \"foo\""),
        ),
        (
            Method::PATCH,
            JSON_PATCH,
            r#"[{"op":"test","path":"/data/k","value":"v","why":1}]"#,
            422,
            format!("{patching}json patch unknown field \"[0].why\""),
        ),
    ];
    for (method, content_type, body, code, message) in table {
        let place = if method == Method::POST { CONFIG_MAPS } else { &path };
        let answer = send(&client, method, &format!("{place}?fieldValidation=Strict"), content_type, body).await;
        assert_eq!((answer.code.as_u16(), answer.message()), (code, message), "{content_type} {body}");
        assert_eq!(warnings(&answer), [""; 0]);
    }
}

#[tokio::test]
async fn validation_has_four_words() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let path = configmap("cm").path();
    for method in [Method::POST, Method::PUT, Method::PATCH] {
        let place = if method == Method::POST { CONFIG_MAPS } else { path.as_str() };
        let kind = match method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            _ => "PatchOptions",
        };
        let content_type = if method == Method::PATCH { MERGE_PATCH } else { "application/json" };
        let answer = send(&client, method, &format!("{place}?fieldValidation=strict"), content_type, "{}").await;
        assert_eq!(
            answer.message(),
            format!(
                "{kind}.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \
                 \"Ignore\", \"Strict\", \"Warn\""
            )
        );
    }
}

#[tokio::test]
async fn values_of_another_type_are_refused_however_lenient() {
    let server = server(&[]).await;
    let client = server.client();
    let table = [
        (
            DEPLOYMENTS,
            json!({"metadata": {"name": "a"}, "spec": {"replicas": "x"}}),
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct \
             field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a"}, "data": {"k": 1}, "foo": 1}),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct \
             field ConfigMap.data of type string",
        ),
    ];
    for (path, body, message) in table {
        for validation in ["Ignore", "Warn", "Strict"] {
            let answer = client.post(&format!("{path}?fieldValidation={validation}"), &body).await.with_code(400);
            assert_eq!(answer.message(), message);
        }
    }
}

#[tokio::test]
async fn quantities_and_ports_are_read_as_numbers_and_as_texts() {
    let server = server(&[]).await;
    let client = server.client();
    let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "livenessProbe": {"httpGet": {"port": "web"}}, "readinessProbe": {"tcpSocket": {"port": 80}}}]});
    let created = client.post(&pod("p").collection(), pod("p").with("spec", spec.clone()).body()).await.with_code(201);
    assert_eq!(warnings(&created), [""; 0]);
    spec["containers"][0]["resources"]["limits"]["cpu"] = json!("1");
    assert_eq!(created.json()["spec"], spec, "typed clients read quantities as texts alone");
}

#[tokio::test]
async fn many_complaints_fit_into_an_answer() {
    let server = server(&[]).await;
    let mut body = json!({"metadata": {"name": "a"}});
    for n in 0..5000 {
        body[format!("x{n}")] = json!(n);
    }
    let answer = server.client().post(CONFIG_MAPS, &body).await.with_code(201);
    assert_eq!(warnings(&answer).len(), 50, "readers of HTTP refuse hundreds of headers");
    assert_eq!(answer.json().as_object().map(serde_json::Map::len), Some(3));
}

#[tokio::test]
async fn fields_that_are_null_are_not_stored() {
    let server = server(&[]).await;
    let client = server.client();
    let spec = json!({"containers": [{"name": "c", "image": "i", "args": null}], "nodeName": null});
    let created = client.post(&pod("p").collection(), pod("p").with("spec", spec).body()).await.with_code(201);
    assert_eq!(warnings(&created), [""; 0]);
    assert_eq!(created.json()["spec"], json!({"containers": [{"name": "c", "image": "i"}]}));
}
