//! Writes that wait for others: webhooks that do not answer, accounts that do not exist.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::Full;
use rcgen::generate_simple_self_signed;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::{
    budget::Room,
    config::AdmissionPlugins,
    limits::{BODIES_BYTES_MAX, CONNECTION_BODIES_BYTES_MAX, LARGE_WRITES_MAX, WRITE_WAIT},
};

/// Goal: a write that waits for webhooks has no budget that other bodies need, and ends at its deadline. Method: three webhooks
/// that take connections and say nothing for 30 s each, whose failures are ignored.
#[tokio::test(start_paused = true)]
async fn a_write_that_waits_holds_up_no_body_and_has_an_end() {
    let server = Server::with(Config { acts_as_cluster: true, ..Config::default() });
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/", silent.local_addr().expect("an address"));
    let authority = generate_simple_self_signed(["a".to_owned()]).expect("a certificate").cert.pem();
    let webhooks = ["a.b.c", "b.b.c", "c.b.c"].map(|name| {
        json!({"name": name, "clientConfig": {"url": url, "caBundle": STANDARD.encode(&authority)}, "timeoutSeconds": 30,
            "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [
                {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}]})
    });
    let kind = "MutatingWebhookConfiguration";
    let configuration = json!({"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "a"},
        "webhooks": webhooks});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let configured = server.send(with_body("POST", path, configuration.to_string())).await;
    assert_eq!(configured.code, 201, "{}", configured.body);

    let room = Room::of_connection();
    let object = json!({"metadata": {"name": "a"}, "data": {"k": "v".repeat(500_000)}}).to_string();
    let mut request: Request<Full<Bytes>> = with_body("POST", "/api/v1/namespaces/a/configmaps", object);
    request.extensions_mut().insert(room.clone());
    let began = Instant::now();
    let mut answering = std::pin::pin!(server.send(request));
    let _connection = tokio::select! {
        answer = &mut answering => panic!("{answer:?}"),
        connection = silent.accept() => connection.expect("a connection"),
    };
    let free = [&room, &server.app.room].map(|room| room.pool(true).free());
    assert_eq!(free, [CONNECTION_BODIES_BYTES_MAX, BODIES_BYTES_MAX]);
    let answer = answering.await;
    assert_eq!((answer.code, began.elapsed()), (504, WRITE_WAIT));
    assert_eq!(answer.message(), "Timeout: request did not complete within the allotted timeout");
}

/// Goal: pods that wait for their account hold up no other write. Method: as many large pods as large writes are ever allowed
/// at once, in a namespace without accounts, then a large ConfigMap; time moves only while everything waits.
#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_an_account_hold_up_no_write() {
    let server = Server::with(Config { acts_as_cluster: true, admission: AdmissionPlugins::ALL, ..Config::default() });
    let long = "v".repeat(500_000);
    let began = Instant::now();
    let pods = (0..LARGE_WRITES_MAX).map(|number| {
        let containers = json!([{"name": "a", "image": "a", "env": [{"name": "A", "value": long}]}]);
        let pod = json!({"metadata": {"name": format!("p{number}")}, "spec": {"containers": containers}});
        server.send(with_body("POST", "/api/v1/namespaces/a/pods", pod.to_string()))
    });
    let mut pods = std::pin::pin!(futures::future::join_all(pods));
    let map = json!({"metadata": {"name": "a"}, "data": {"k": long}}).to_string();
    let map = server.send(with_body("POST", "/api/v1/namespaces/a/configmaps", map));
    let map = tokio::select! {
        biased;
        answers = &mut pods => panic!("{answers:?}"),
        map = map => map,
    };
    assert_eq!((map.code, began.elapsed()), (201, Duration::ZERO), "{}", map.body);
    for answer in pods.await {
        assert_eq!(answer.code, 403, "{}", answer.body);
        assert!(answer.message().contains("error looking up service account a/default"), "{}", answer.message());
    }
    assert!(began.elapsed() > Duration::from_secs(1), "an account may come late");
}
