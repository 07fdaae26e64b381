//! Credentials are in no record, whatever the policy says.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH, watch_list},
    objects::configmap,
};

use super::{ALL, Audited, CONFIGMAPS};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MARKER: &str = "Tr0ub4dor-and-3";

/// A protobuf field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// A Secret in protobuf, as client-go sends it.
fn protobuf(name: &str) -> Vec<u8> {
    let metadata = field(1, &field(1, name.as_bytes()));
    let entry = [field(1, b"k"), field(2, MARKER.as_bytes())].concat();
    let object = [metadata, field(2, &entry)].concat();
    let meta = [field(1, b"v1"), field(2, b"Secret")].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, &object)].concat()
}

/// One way to send the marker: method, path, Content-Type, body, and the code of its response.
struct Attempt(Method, String, &'static str, Bytes, u16);

/// A Secret with the marker in each of its members.
fn secret(name: &str) -> Value {
    let applied = format!("{{\"stringData\":\"{MARKER}\"}}");
    let metadata = json!({"name": name, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}});
    let data = json!({"k": STANDARD.encode(MARKER)});
    json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data, "stringData": {"s": MARKER}})
}

/// All forms of writes, bodies that are refused included.
fn attempts() -> Vec<Attempt> {
    let put = format!("{SECRETS}/json");
    let yaml = format!("kind: Secret\napiVersion: v1\nmetadata: {{name: yaml}}\nstringData: {{k: {MARKER}}}\n");
    let patch = json!([{"op": "add", "path": "/data/p", "value": STANDARD.encode(MARKER)}]);
    let merge = json!({"stringData": {"m": MARKER}});
    let invalid = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "bad"}, "data": {"k": [MARKER]},
        MARKER: 1, "type": MARKER});
    let request = json!({"kind": "TokenRequest", "spec": {"audiences": [MARKER]}});
    let review = json!({"kind": "TokenReview", "spec": {"token": MARKER}});
    let post = |path: &str, body: &Value, code| {
        Attempt(Method::POST, path.to_owned(), "application/json", body.to_string().into(), code)
    };
    let change = |kind, body: &Value| Attempt(Method::PATCH, put.clone(), kind, body.to_string().into(), 200);
    let sent = |kind, body: Vec<u8>, code| Attempt(Method::POST, SECRETS.to_owned(), kind, body.into(), code);
    let apply = format!("{SECRETS}/applied?fieldManager=m&force=true");
    vec![
        post(SECRETS, &secret("json"), 201),
        post(SECRETS, &secret("json"), 409),
        sent("application/yaml", yaml.into(), 201),
        sent("application/vnd.kubernetes.protobuf", protobuf("proto"), 201),
        Attempt(Method::PUT, put.clone(), "application/json", secret("json").to_string().into(), 200),
        change("application/json-patch+json", &patch),
        change(MERGE_PATCH, &merge),
        change("application/strategic-merge-patch+json", &merge),
        Attempt(Method::PATCH, apply, "application/apply-patch+yaml", secret("applied").to_string().into(), 201),
        post(SECRETS, &invalid, 400),
        post(&format!("{SECRETS}?fieldValidation=Strict"), &invalid, 400),
        sent("text/plain", secret("text").to_string().into(), 415),
        // A Secret at the path of another type.
        post(CONFIGMAPS, &secret("there"), 400),
        post("/api/v1/namespaces/default/serviceaccounts/default/token", &request, 404),
        post("/apis/authentication.k8s.io/v1/tokenreviews", &review, 201),
        // A name is recorded, so that the search below is known to search; the error about it is not.
        post(SECRETS, &secret(MARKER), 422),
    ]
}

/// Goal: no form of a write, and no read, puts the content of a Secret into the log. Method: a marker in each of them, at
/// the highest level; then a search for the marker as text and in base64, in the audit log and on stderr.
#[tokio::test]
async fn secrets_are_in_no_record() {
    let audited = Audited::start(Some(ALL), &["--log", "debug"]).await;
    let (client, coded) = (audited.client(), STANDARD.encode(MARKER));
    for (at, Attempt(method, path, kind, body, code)) in attempts().into_iter().enumerate() {
        let id = if code == 422 { "named".to_owned() } else { format!("write-{at}") };
        let request = Client::request(method, &path, &[("audit-id", &id), ("content-type", kind)], body);
        client.send(request).await.with_code(code);
        let found = audited.last(&id).await;
        assert!(path == CONFIGMAPS || found.last.get("responseObject").is_none(), "{found:#?}");
        assert_eq!(found.last.get("requestObject"), None, "{found:#?}");
        assert_eq!(found.last["responseStatus"]["code"], code);
    }
    read_all(&audited, &coded).await;
    for line in audited.lines() {
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["auditID"] == "named" && event["stage"] == "ResponseComplete" {
            assert_eq!(event["objectRef"]["name"], MARKER);
            assert_eq!(event["responseStatus"].get("message"), None);
            continue;
        }
        assert!(!line.contains(MARKER) && !line.contains(&coded), "{line}");
    }
    let log = audited.server.log();
    assert!(!log.contains(&coded), "{log}");
}

/// Goal: a patch that sets a field of a Secret inside of a custom object is in no record, nor is a Secret that is a text,
/// and other patches are recorded. Method: each form of a patch, below an embedded Secret and beside it, refused ones
/// included; Secrets as YAML and JSON in the data of a ConfigMap; then a search for the marker.
#[tokio::test]
async fn secrets_inside_of_objects_and_texts_are_in_no_record() {
    let audited = Audited::start(Some(ALL), &["--log", "debug"]).await;
    let (client, coded) = (audited.client(), STANDARD.encode(MARKER));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "vaults.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "vaults", "kind": "Vault"}, "versions": [version]}});
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
    let vaults = "/apis/example.com/v1/namespaces/default/vaults";
    let inner = json!({"kind": "Secret", "apiVersion": "v1", "data": {"old": "b2xk"}});
    let vault = json!({"apiVersion": "example.com/v1", "kind": "Vault", "metadata": {"name": "v"},
        "spec": {"template": inner}});
    client.post(vaults, &vault).await.with_code(201);

    let merge = json!({"spec": {"template": {"stringData": {"k": MARKER}}}});
    let add = json!([{"op": "add", "path": "/spec/template/data/p", "value": coded}]);
    let test = json!([{"op": "test", "path": "/spec/template/data/p", "value": MARKER}]);
    let partial = json!({"apiVersion": "example.com/v1", "kind": "Vault", "metadata": {"name": "v"},
        "spec": {"template": {"stringData": {"applied": MARKER}}}});
    let (v, json_patch) = (format!("{vaults}/v"), "application/json-patch+json");
    let applied = format!("{v}?fieldManager=m&force=true");
    let apply = "application/apply-patch+yaml";
    let yaml = format!("apiVersion: v1\nkind: Secret\nstringData:\n  k: {MARKER}\n");
    let texts =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chart"}, "data": {"s.yaml": yaml}});
    let texts_patch =
        json!({"data": {"s.json": format!("{{\"kind\": \"Secret\", \"data\": {{\"k\": \"{coded}\"}}}}")}});
    let chart = format!("{CONFIGMAPS}/chart");
    let before = json!({"spec": {"template": {"kind": "Other", "data": {"k": coded}}}});
    // Would make a Secret of an object that is none, and fails.
    let makes = json!([{"op": "add", "path": "/spec/x", "value": {}},
        {"op": "add", "path": "/spec/x/kind", "value": "Secret"}, {"op": "add", "path": "/spec/x/data", "value": coded},
        {"op": "test", "path": "/spec/x", "value": 1}]);
    for (at, (method, path, kind, body, code)) in [
        (Method::PATCH, &v, MERGE_PATCH, &merge, 200),
        (Method::PATCH, &v, json_patch, &add, 200),
        (Method::PATCH, &v, json_patch, &test, 422),
        (Method::PATCH, &applied, apply, &partial, 200),
        (Method::PATCH, &format!("{vaults}/none"), MERGE_PATCH, &merge, 404),
        (Method::PATCH, &v, MERGE_PATCH, &before, 200),
        (Method::PATCH, &v, json_patch, &makes, 422),
        (Method::POST, &CONFIGMAPS.to_owned(), "application/json", &texts, 201),
        (Method::PATCH, &chart, MERGE_PATCH, &texts_patch, 200),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("inside-{at}");
        let headers = [("audit-id", &*id), ("content-type", kind)];
        client.send(Client::request(method, path, &headers, body.to_string().into())).await.with_code(code);
        let found = audited.last(&id).await;
        assert_eq!(found.last.get("requestObject"), None, "{found:#?}");
        assert_eq!(found.annotation("audit.k8s.io/truncated"), "true", "{found:#?}");
    }
    for line in audited.lines().iter().chain([&audited.server.log()]) {
        assert!(!line.contains(MARKER) && !line.contains(&coded), "{line}");
    }
    // The template is no Secret any more, and `plain` never was one.
    let plain = json!({"metadata": {"labels": {"a": "b"}}});
    client.post(CONFIGMAPS, configmap("plain").body()).await.with_code(201);
    for (id, path) in [("other", v), ("plain", format!("{CONFIGMAPS}/plain"))] {
        let headers = [("audit-id", id), ("content-type", MERGE_PATCH)];
        client.send(Client::request(Method::PATCH, &path, &headers, plain.to_string().into())).await.with_code(200);
        let found = audited.last(id).await;
        assert_eq!(found.last["requestObject"], plain, "{found:#?}");
    }
}

/// Reads the Secrets in all forms, then deletes them.
async fn read_all(audited: &Audited, coded: &str) {
    let client = audited.client();
    let one = format!("{SECRETS}/json");
    let reads = [
        (&*one, "application/json"),
        (&one, "application/yaml"),
        (&one, "application/json;as=Table;v=v1;g=meta.k8s.io"),
        (SECRETS, "application/json"),
        ("/api/v1/secrets", "application/yaml"),
    ];
    for (at, (path, accept)) in reads.into_iter().enumerate() {
        let id = format!("read-{at}");
        client.get_with(path, &[("audit-id", &*id), ("accept", accept)]).await.with_code(200);
        audited.last(&id).await;
    }
    let mut watch = client.watch_with(&watch_list(SECRETS), &[("audit-id", "watch")]).await;
    assert!(String::from_utf8_lossy(&watch.event().await.raw).contains(coded));
    drop(watch);
    audited.last("watch").await;
    for (id, path) in [("one", &*one), ("all", SECRETS)] {
        let request = Client::request(Method::DELETE, path, &[("audit-id", id)], Bytes::new());
        client.send(request).await.with_code(200);
        audited.last(id).await;
    }
}
