//! Sends equal random requests to this server and to a stock kube-apiserver. Each difference must be a row of
//! `docs/guarantees.md`.
//!
//! Runs where `benches/kube-apiserver/prepare` built the stock server, and passes with a line about it elsewhere. With
//! `CONFORMANCE=upstream`, this server is in front of a second stock server. Each run starts
//! from the seed `DIFFERENTIAL_SEED` and takes `DIFFERENTIAL_SECONDS`.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod allowed;
mod compare;
mod script;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env,
    time::{Duration, Instant},
};

use fastrand::Rng;
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, token_of},
    ways::WITHOUT_PLUGINS,
};
use tokio::time::sleep;

use self::{
    allowed::Case,
    compare::{Difference, Pairs},
    script::{Kind, Request},
};
use crate::conformance;

const SEED: u64 = 1;
const SECONDS: u64 = 10;
/// Number of differences that ends a run.
const WRONG_MAX: usize = 20;
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A server's response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    /// Null if the body is not JSON.
    pub(crate) body: Value,
}

/// Sends one request; `None` if the connection fails.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: Option<&str>,
    body: &str,
) -> Option<Answer> {
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    let response = client.send(request.body(Body::from(body.as_bytes().to_vec())).unwrap()).await.ok()?;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some(Answer { code, warnings, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Positions and uids of an object, by the placeholder of a script.
type Known = HashMap<(usize, String), [(&'static str, String); 2]>;

/// One server, and the last position and uid of each object.
struct Side {
    client: Client,
    known: Known,
}

impl Side {
    fn new(client: Client) -> Self {
        Self { client, known: Known::new() }
    }

    /// Sends a request. Returns `None` if the connection ends without a response.
    async fn ask(&mut self, request: &Request) -> Option<Answer> {
        let key = (request.kind, request.name.clone());
        let unknown = || [("$RV", "1".to_owned()), ("$UID", "11111111-1111-1111-1111-111111111111".to_owned())];
        let known = self.known.get(&key).cloned().unwrap_or_else(unknown);
        let mut body = request.body.clone().unwrap_or_default();
        for (name, value) in &known {
            body = body.replace(name, value);
        }
        let content_type = request.body.as_ref().map(|_| request.content_type);
        let mut answer = send(&self.client, request.method, &request.path, content_type, &body).await?;
        let metadata = &answer.body["metadata"];
        if let (Some(version), Some(uid)) = (metadata["resourceVersion"].as_str(), metadata["uid"].as_str()) {
            self.known.insert(key, [("$RV", version.to_owned()), ("$UID", uid.to_owned())]);
        }
        without_owners(&mut answer.body);
        Some(answer)
    }

    /// Deletes an object, with or without finalizers.
    async fn forget(&mut self, path: &str) {
        let finalizers = json!({"metadata": {"finalizers": null}}).to_string();
        send(&self.client, "PATCH", path, Some(MERGE_PATCH), &finalizers).await.unwrap();
        send(&self.client, "DELETE", &format!("{path}?gracePeriodSeconds=0"), None, "").await.unwrap();
        send(&self.client, "PATCH", path, Some(MERGE_PATCH), &finalizers).await.unwrap();
    }
}

/// Removes managedFields and the positions of lists: the row `managedFields` covers all of the former, and a write of
/// any type advances the position of a stock server's lists.
fn without_owners(body: &mut Value) {
    if body.get("items").is_some() {
        body["metadata"]["resourceVersion"] = Value::Null;
    }
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(without_owners);
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Paths that a server fills in, for each type.
async fn defaults(stock: &Client, kinds: &[Kind]) -> Vec<BTreeSet<String>> {
    let mut defaults = Vec::new();
    for kind in kinds {
        let mut sent = kind.minimal.clone();
        sent["metadata"] = json!({"name": "minimal"});
        sent["kind"] = kind.kind.into();
        sent["apiVersion"] = kind.api_version.into();
        let made = send(stock, "POST", kind.collection, Some("application/json"), &sent.to_string()).await.unwrap();
        assert_eq!(made.code, 201, "{}", made.body);
        send(stock, "DELETE", &format!("{}/minimal", kind.collection), None, "").await.unwrap();
        let mut paths = BTreeSet::new();
        added("", &sent, &made.body, &mut paths);
        defaults.push(paths);
    }
    defaults
}

fn added(path: &str, sent: &Value, made: &Value, paths: &mut BTreeSet<String>) {
    match (sent, made) {
        (Value::Object(sent), Value::Object(made)) => {
            for (name, value) in made {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match sent.get(name) {
                    Some(sent) => added(&path, sent, value, paths),
                    None => {
                        paths.insert(path);
                    }
                }
            }
        }
        (Value::Array(sent), Value::Array(made)) => {
            for (sent, made) in sent.iter().zip(made) {
                added(&format!("{path}[]"), sent, made, paths);
            }
        }
        _ => {}
    }
}

/// Creates the namespace, defines the custom type and waits until it is served.
async fn define(client: &Client, kinds: &[Kind]) {
    let namespace = json!({"metadata": {"name": "team"}}).to_string();
    send(client, "POST", "/api/v1/namespaces", Some("application/json"), &namespace).await.unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = send(client, "POST", path, Some("application/json"), &script::definition().to_string()).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.body);
    for kind in kinds {
        while send(client, "GET", kind.collection, None, "").await.unwrap().code != 200 {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Goal: clients cannot distinguish the servers, except for documented differences. Method: random requests to both, in
/// order; where a row allows different decisions, the object is deleted on both sides.
#[tokio::test]
async fn random_requests_are_answered_as_by_a_stock_server() {
    let settings = GenuineSettings { without_plugins: WITHOUT_PLUGINS, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("differential", settings).await else { return };
    let (seed, seconds) = (number("DIFFERENTIAL_SEED", SEED), number("DIFFERENTIAL_SECONDS", SECONDS));
    let kinds = script::kinds();
    let stock = genuine.kube_client(ADMIN).await;
    let server = conformance::server(&[]).await;
    let mut config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
    config.auth_info.token = Some(token_of(ADMIN).into());
    let ours = Client::try_from(config).unwrap();
    for client in [&stock, &ours] {
        define(client, &kinds).await;
    }
    let defaults = defaults(&stock, &kinds).await;
    let (mut stock, mut ours) = (Side::new(stock), Side::new(ours));
    let (mut rng, mut pairs) = (Rng::with_seed(seed), Pairs::default());
    let (mut requests, mut rows, mut wrong) = (0, BTreeMap::<&str, usize>::new(), Vec::new());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && wrong.len() < WRONG_MAX {
        let request = script::next(&mut rng, &kinds);
        requests += 1;
        // Some JSON patches make a stock server panic.
        let Some(answer) = stock.ask(&request).await else { continue };
        let answers = (answer, ours.ask(&request).await.unwrap());
        let defaults = &defaults[request.kind];
        let case = Case { request: &request, stock: &answers.0, ours: &answers.1, defaults };
        let (mut differ, mut unknown) = (false, Vec::new());
        for difference in compare::differences(case.stock, case.ours, &mut pairs) {
            match allowed::rule(&case, &difference) {
                Some(allowed) => {
                    *rows.entry(allowed.row).or_default() += 1;
                    differ |= !allowed.is_presentation;
                }
                None => unknown.push(difference),
            }
        }
        if differ || !unknown.is_empty() {
            for name in [&*request.name, script::OTHER_NAME] {
                let path = format!("{}/{name}", kinds[request.kind].collection);
                stock.forget(&path).await;
                ours.forget(&path).await;
            }
        }
        if !unknown.is_empty() {
            wrong.push(story(&case, &unknown));
        }
    }
    println!("differential: seed {seed}, {requests} requests, differences by row: {rows:?}");
    assert!(wrong.is_empty(), "seed {seed}, {} differences:\n{}", wrong.len(), wrong.join("\n"));
    allowed::assert_rows_exist();
}

fn story(case: &Case<'_>, differences: &[Difference]) -> String {
    let Case { request, stock, ours, .. } = case;
    let mut story = format!(
        "{} {} {}\n  {}\n",
        request.method,
        request.path,
        request.content_type,
        request.body.as_deref().unwrap_or_default()
    );
    for Difference { path, stock, ours } in differences {
        let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        story.push_str(&format!("  {path}: stock {} ours {}\n", text(stock), text(ours)));
    }
    for (name, answer) in [("stock", stock), ("ours", ours)] {
        story.push_str(&format!("  {name}: {} {} {:?}\n", answer.code, answer.body, answer.warnings));
    }
    story
}
