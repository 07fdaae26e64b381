//! The audit log of a server in front of a cluster: requests that are passed on have their records, too, without bodies.

use std::{collections::BTreeMap, fs};

use http::Method;
use serde_json::Value;
use tests::{
    genuine::{ADMIN, Genuine, token_of},
    http::Client,
    objects::configmap,
};

use super::{cache_with, client_of, until};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n";

/// The last records by Audit-Id.
fn last_records(log: &str) -> BTreeMap<String, Value> {
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let complete = events.filter(|event| event["stage"] == "ResponseComplete");
    complete.map(|event| (event["auditID"].as_str().unwrap().to_owned(), event)).collect()
}

/// Goal: the log says of each request who answered it with which code, and has no secret of a caller; the API server knows
/// the request by the same identifier. Method: reads of a cache, reads and writes that are passed on, and ones that the API
/// server refuses; one of them without an Audit-Id of the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_passed_on_are_recorded() {
    let Some(genuine) = Genuine::start("audit upstream").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let [log, policy] = ["audit.log", "policy.yaml"].map(|name| folder.path().join(name));
    fs::write(&policy, POLICY).unwrap();
    let flags = ["--audit-log", log.to_str().unwrap(), "--audit-policy-file", policy.to_str().unwrap()];
    let server = cache_with(&genuine, "configmaps", &flags).await;
    let (admin, stranger) = (client_of(&server, ADMIN), server.client().with_token("not-a-token"));
    let object = configmap("audited").body().to_string();
    let json = ("content-type", "application/json");
    let path = format!("{CONFIGMAPS}/audited");
    let cases = [
        ("created", &admin, Method::POST, CONFIGMAPS, &*object, 201),
        ("twice", &admin, Method::POST, CONFIGMAPS, &*object, 409),
        ("got", &admin, Method::GET, &*path, "", 200),
        ("listed", &admin, Method::GET, CONFIGMAPS, "", 200),
        ("missing", &admin, Method::GET, "/api/v1/nowhere", "", 404),
        ("unknown", &stranger, Method::GET, &*path, "", 401),
        ("unknown-list", &stranger, Method::GET, CONFIGMAPS, "", 401),
        ("deleted", &admin, Method::DELETE, &*path, "", 200),
    ];
    for (id, client, method, path, body, code) in &cases {
        let headers = [("audit-id", *id), json];
        let request = Client::request(method.clone(), path, &headers, body.to_string().into());
        let answer = client.send(request).await;
        assert_eq!(answer.code, *code, "{id}: {}", answer.text());
    }
    let read = || fs::read_to_string(&log).unwrap();
    until("all are recorded", async || {
        let records = last_records(&read());
        cases.iter().all(|(id, ..)| records.contains_key(*id))
    })
    .await;
    let records = last_records(&read());
    for (id, _, _, path, _, code) in cases {
        let record = &records[id];
        assert_eq!((&record["responseStatus"]["code"], &record["requestURI"]), (&code.into(), &path.into()), "{id}");
        assert!(record["requestObject"].is_null(), "{id}: passed on in pieces");
    }
    assert_eq!(records["created"]["verb"], "create");
    assert_eq!(records["listed"]["objectRef"]["resource"], "configmaps");
    // The API server returns the identifier that this server sent and recorded.
    let answer = admin.get(&path).await.with_code(404);
    let id = answer.header("audit-id").to_owned();
    until("the request is recorded", async || last_records(&read()).contains_key(&id)).await;
    assert!(!read().contains(&token_of(ADMIN)) && !read().contains("not-a-token"));
}
