//! Goal: the complaints of kube-apiserver's decoder. Method: tables of body and complaint, with real schemas.

use serde_json::json;

use super::*;
use crate::registry::Registry;

fn found(plural: &str, body: &Value) -> (Value, Findings) {
    let registry = Registry::builtin();
    let group = if plural == "deployments" { "apps" } else { "" };
    let ty = registry.find(group, "v1", plural).expect("a built-in type");
    let mut object = body.as_object().expect("an object").clone();
    let findings = check(&ty, &mut object);
    (Value::Object(object), findings)
}

#[test]
fn fields_that_the_type_does_not_have_go() {
    let body = json!({"metadata": {"name": "a", "labels": {"any": "x"}, "who": 1, "annotations": null}, "foo": {"bar": 1},
        "data": {"any": "y"}});
    let (left, findings) = found("configmaps", &body);
    assert_eq!(left, json!({"metadata": {"name": "a", "labels": {"any": "x"}}, "data": {"any": "y"}}));
    assert_eq!(findings.unknown, ["foo", "metadata.who"]);
    let body = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "imag": "i", "env": [{"nam": "x"}]}]}});
    let (left, findings) = found("pods", &body);
    assert_eq!(left, json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{}]}]}}));
    assert_eq!(findings.unknown, ["spec.containers[1].env[0].nam", "spec.containers[1].imag"]);
}

#[test]
fn values_of_other_types_are_named_as_go_does() {
    let table = [
        (
            "deployments",
            json!({"spec": {"replicas": "x"}}),
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "deployments",
            json!({"spec": {"replicas": 3_000_000_000_u64}}),
            "number into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "deployments",
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            "pods",
            json!({"spec": {"containers": [{"name": 7}]}}),
            "number into Go struct field Container.spec.containers.name of type string",
        ),
        ("pods", json!({"spec": "x"}), "string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            "pods",
            json!({"spec": {"hostNetwork": 1}}),
            "number into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            "pods",
            json!({"spec": {"terminationGracePeriodSeconds": 1.5}}),
            "number into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        ("configmaps", json!({"data": {"k": 1}}), "number into Go struct field ConfigMap.data of type string"),
        ("configmaps", json!({"data": ["k"]}), "array into Go struct field ConfigMap.data of type map[string]string"),
    ];
    for (plural, body, text) in table {
        let text = format!("json: cannot unmarshal {text}");
        assert_eq!(found(plural, &body).1.mistyped, Some(text), "{body}");
    }
}

#[test]
fn what_go_reads_is_read() {
    let mut body = json!({
        "metadata": {"creationTimestamp": null, "managedFields": [{"fieldsV1": {"f:x": {"anything": 1}}}],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true}]},
        "spec": {
            "containers": [{"name": "c",
                "resources": {"limits": {"cpu": 1, "memory": "1Gi", "x/y": 0.5}},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "web"}, "initialDelaySeconds": 0},
                "readinessProbe": {"httpGet": {"port": 80}}}],
            "tolerations": [{"tolerationSeconds": 9_007_199_254_740_993_u64}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}, "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}}]
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    });
    let (left, findings) = found("pods", &body);
    assert_eq!(findings, Findings::default());
    body["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1", "memory": "1Gi", "x/y": "0.5"});
    assert_eq!(left["spec"], body["spec"], "quantities are texts");
}

#[test]
fn complaints_stand_in_the_order_of_the_body() {
    let body = r#"{"z":1,"spec":{"b":{"inner":{}},"replicas":1,"replicas":2,"b":3},"a":[{"a":1,"a":2}]}"#;
    let unknown = ["a".to_owned(), "spec.b".to_owned(), "z".to_owned()];
    let texts = complaints(Encoding::Json, body.as_bytes(), &unknown, true);
    let expected = [
        r#"unknown field "z""#,
        r#"unknown field "spec.b""#,
        r#"duplicate field "spec.replicas""#,
        r#"unknown field "a""#,
    ];
    assert_eq!(texts, expected);
    let body = "z: 1\nspec:\n  replicas: 1\n  replicas: 2\n";
    let texts = complaints(Encoding::Yaml, body.as_bytes(), &["z".to_owned()], true);
    assert_eq!(texts, [r#"unknown field "z""#, r#"duplicate field "spec.replicas""#]);
}

#[test]
fn duplicates_are_noticed_and_the_last_one_counts() {
    for (encoding, body, noticed) in [
        (Encoding::Json, r#"{"a":{"b":1,"c":[{"d":1,"d":2}]}}"#, true),
        (Encoding::Json, r#"{"a":{"b":1},"b":{"b":2}}"#, false),
        (Encoding::Yaml, "a: {b: 1, c: [{d: 1, d: 2}]}", true),
        (Encoding::Yaml, "a: {b: 1}\nb: {b: 2}", false),
    ] {
        let mut duplicates = false;
        let value = encoding.decode_noting(body.as_bytes(), &mut duplicates).expect("is read");
        assert_eq!(duplicates, noticed, "{body}");
        assert_eq!(value.pointer("/a/c/0/d"), noticed.then(|| json!(2)).as_ref(), "{body}");
    }
}

#[test]
fn warnings_fit_into_headers() {
    let headers =
        headers(&["unknown field \"a\"".to_owned(), "unknown field \"a\"".to_owned(), "b\\\n\u{7f}".to_owned()]);
    assert_eq!(headers, ["299 - \"unknown field \\\"a\\\"\"", "299 - \"b\\\\\""]);
    let many: Vec<String> = (0..1000).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
    let headers = super::headers(&many);
    assert_eq!(headers.len(), WARNINGS_CHARS_MAX / WARNING_CHARS_MAX);
    assert!(headers.iter().all(|header| header.len() < WARNING_CHARS_MAX + 10));
}

/// Goal: an object equals the one that kube-apiserver's store returns. Method: a table of type, body and result.
#[test]
fn nulls_and_empty_collections_read_as_kube_apiserver_stores_them() {
    let table = [
        ("configmaps", json!({"data": {"k": null}, "metadata": {"labels": {"l": null}}}), {
            json!({"data": {"k": ""}, "metadata": {"labels": {"l": ""}}})
        }),
        ("configmaps", json!({"data": {}, "binaryData": {}, "metadata": {"annotations": {}, "finalizers": []}}), {
            json!({"metadata": {}})
        }),
        ("pods", json!({"spec": {"containers": [{"args": ["a", null], "resources": {"limits": {"cpu": null}}}]}}), {
            json!({"spec": {"containers": [{"args": ["a", ""], "resources": {"limits": {"cpu": "0"}}}]}})
        }),
        ("pods", json!({"spec": {"volumes": [{"emptyDir": {}}], "securityContext": {}, "tolerations": []}}), {
            json!({"spec": {"volumes": [{"emptyDir": {}}], "securityContext": {}}})
        }),
        ("secrets", json!({"data": {"k": null}}), json!({"data": {"k": ""}})),
    ];
    for (plural, body, expected) in table {
        assert_eq!(found(plural, &body), (expected, Findings::default()), "{body}");
    }
    let fields = json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": {}}}, {"fieldsV1": {}}]}});
    assert_eq!(found("configmaps", &fields).0, fields, "what is stored as it came");
}

#[test]
fn texts_of_a_secret_become_its_data() {
    let body =
        json!({"data": {"kept": "YQ==", "both": "YQ=="}, "stringData": {"both": "b", "new": "hunter2", "none": null}});
    let left = json!({"data": {"kept": "YQ==", "both": "Yg==", "new": "aHVudGVyMg==", "none": ""}});
    assert_eq!(found("secrets", &body), (left, Findings::default()));
    assert_eq!(found("secrets", &json!({"stringData": {}})).0, json!({}));
}

#[test]
fn bytes_must_be_base64() {
    for (plural, body) in
        [("secrets", json!({"data": {"k": "%%%"}})), ("configmaps", json!({"binaryData": {"k": "%"}}))]
    {
        assert_eq!(found(plural, &body).1.mistyped.as_deref(), Some("illegal base64 data at input byte 0"));
    }
    assert_eq!(found("secrets", &json!({"data": {"k": "YW\nJj"}})).0, json!({"data": {"k": "YWJj"}}));
}
