//! Signing requests: one party asks, another one approves or denies, and a third signs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH},
    objects::{MASTERS_REQUEST, SIGNING_REQUEST},
    process::Server,
};

use super::server;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A server with the signing request `a`.
async fn with_request() -> Server {
    let server = server(&[]).await;
    let spec = json!({"request": STANDARD.encode(SIGNING_REQUEST), "signerName": "example.com/signer", "usages": ["client auth"],
        "username": "forged", "groups": ["forged"]});
    let conditions = json!([{"type": "Approved", "status": "True"}]);
    let request = json!({"metadata": {"name": "a"}, "spec": spec, "status": {"conditions": conditions}});
    server.client().post(REQUESTS, &request).await.with_code(201);
    server
}

fn path(subresource: &str) -> String {
    format!("{REQUESTS}/a{subresource}")
}

async fn read(client: &Client) -> Value {
    client.get(&path("")).await.with_code(200).json()
}

/// Returns the request with one more condition.
fn with_condition(mut request: Value, name: &str) -> Value {
    let condition = json!({"type": name, "status": "True", "reason": "R"});
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
    request
}

/// Goal: a request names its real creator, and is approved only at its subresource. Method: one with a forged creator and
/// approval, then an approval by each path.
#[tokio::test]
async fn a_request_is_approved_at_its_subresource() {
    let server = with_request().await;
    let client = server.client();
    let made = read(&client).await;
    assert!(made["status"].get("conditions").is_none(), "{made}");
    assert_ne!(made["spec"]["username"], "forged");
    assert!(made["spec"]["username"].is_string() && !made["spec"]["groups"].to_string().contains("forged"), "{made}");
    let mut changed = with_condition(made.clone(), "Approved");
    changed["spec"]["username"] = json!("other");
    client.put(&path(""), &changed).await.with_code(200);
    assert_eq!(read(&client).await["spec"], made["spec"]);
    let refused = client.put(&path("/status"), &changed).await.with_code(422);
    assert!(
        refused.message().contains("updates may not add a condition of type \"Approved\""),
        "{}",
        refused.message()
    );
    changed["status"]["certificate"] = json!(STANDARD.encode("none"));
    let approved = client.put(&path("/approval"), &changed).await.with_code(200).json();
    let condition = &approved["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Approved"), &json!("R")));
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(), "{condition}");
    assert_eq!((&approved["spec"], approved["status"].get("certificate")), (&made["spec"], None));
    assert_eq!(client.get(&path("/approval")).await.with_code(200).json(), read(&client).await);
    assert_eq!(client.put(&path("/approval"), &changed).await.code, 409, "it has the version before");
    client.post(&path("/approval"), &approved).await.with_code(405);
}

/// Goal: no client gets a request for the group that may do everything. Method: a request for it of the signer of such
/// clients and of another one, and one that cannot be read.
#[tokio::test]
async fn masters_are_not_requested() {
    let server = server(&[]).await;
    let client = server.client();
    let post = async |name: &str, request: &str, signer: &str| {
        let spec = json!({"request": STANDARD.encode(request), "signerName": signer, "usages": ["client auth"]});
        client.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await
    };
    let signer = "kubernetes.io/kube-apiserver-client";
    let refused = post("masters", MASTERS_REQUEST, signer).await.with_code(403).message();
    assert!(refused.contains("signer with system:masters group is not allowed"), "{refused}");
    let refused = post("unreadable", "none", signer).await.with_code(422).message();
    let why = "spec.request: Invalid value: \"bm9uZQ==\": PEM block type must be CERTIFICATE REQUEST";
    assert!(refused.ends_with(why), "{refused}");
    post("other", MASTERS_REQUEST, "example.com/signer").await.with_code(201);
    post("plain", SIGNING_REQUEST, signer).await.with_code(201);
}

/// Goal: decisions are final, and the certificate is signed once. Method: a denial by a patch; changes of the conditions and
/// of the certificate at both subresources.
#[tokio::test]
async fn a_decision_is_final() {
    let server = with_request().await;
    let client = server.client();
    let denied = with_condition(json!({}), "Denied");
    client.patch(&path("/approval"), MERGE_PATCH, &denied).await.with_code(200);
    let causes = |message: &str, expected: &[&str]| {
        for text in expected {
            assert!(message.contains(text), "{text}: {message}");
        }
    };
    let both = with_condition(read(&client).await, "Approved");
    let refused = client.put(&path("/approval"), &both).await.with_code(422).message();
    causes(
        &refused,
        &["status.conditions: Invalid value: ", "must specify at most one of: `conditions[{\"type\": \"Approved"],
    );
    let removed = client.patch(&path("/approval"), MERGE_PATCH, &json!({"status": {"conditions": []}})).await;
    causes(&removed.with_code(422).message(), &["updates may not remove a condition of type \"Denied\""]);
    let untrue = json!({"status": {"conditions": [{"type": "Denied", "status": "False"}, {"type": "", "status": ""}]}});
    let refused = client.patch(&path("/approval"), MERGE_PATCH, &untrue).await.with_code(422).message();
    let expected = [
        "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
        "status.conditions[1].type: Required value",
        "status.conditions[1].status: Required value",
    ];
    causes(&refused, &expected);
    // The signer changes neither the reason of the decision nor a certificate.
    let mut failed = with_condition(read(&client).await, "Failed");
    failed["status"]["conditions"][0]["reason"] = json!("other");
    let stored = client.put(&path("/status"), &failed).await.with_code(200).json();
    assert_eq!(stored["status"]["conditions"][0]["reason"], "R");
    assert_eq!(stored["status"]["conditions"][1]["type"], "Failed");
}
