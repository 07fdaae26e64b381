//! Sends equal random requests to three servers: this one with objects of its own, a stock kube-apiserver, and this one
//! in front of that kube-apiserver. Each difference must be a row of `docs/guarantees.md`.
//!
//! The API server gets each write once, through the server in front of it. Both answer the same reads about the result,
//! and at the end of a round the same watches of all its events.
//!
//! Runs where `benches/kube-apiserver/prepare` built the stock server, and passes with a line about it elsewhere. Each
//! run starts from the seed `DIFFERENTIAL_SEED` and takes `DIFFERENTIAL_SECONDS`.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod allowed;
mod compare;
mod reads;
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
    genuine::{ADMIN, CACHE, Genuine, GenuineSettings, token_of},
    http::ANSWER_WAIT,
    process::Server,
    ways::WITHOUT_PLUGINS,
};
use tokio::time::{sleep, timeout};

use self::{
    allowed::Case,
    compare::{Difference, Pairs},
    reads::BothWays,
    script::{Kind, Request},
};
use crate::conformance::BINARY;

const SEED: u64 = 1;
const SECONDS: u64 = 6;
/// Seconds of writes whose events are watched again: fewer than a new watch cache of the stock server keeps.
const ROUND_SECONDS: u64 = 20;
/// Number of differences that ends a run.
const WRONG_MAX: usize = 20;
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON: (&str, &str) = ("content-type", "application/json");

/// The types of [`script::kinds`], as the server in front of the stock server caches them: all from the start, Secrets too.
const CACHED: &str = "configmaps,secrets,serviceaccounts,pods,services,nodes,deployments.apps,leases.coordination.k8s.io,\
                      roles.rbac.authorization.k8s.io,widgets.example.com";
/// Message of this server if the API server behind it ends a connection without a response.
const BROKEN_OFF: &str = "the upstream API server broke off without an answer";

/// A server's response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) content_type: String,
    /// A text if the body is neither JSON nor YAML.
    pub(crate) body: Value,
}

/// Sends one request; `None` if the connection fails.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let sent = client.send(request.body(Body::from(body.as_bytes().to_vec())).unwrap());
    let response = timeout(ANSWER_WAIT, sent).await;
    let response = response.unwrap_or_else(|_| panic!("no answer to {method} {path} {headers:?}\n{body}")).ok()?;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
    let content_type = response.headers().get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let body = match content_type.as_str() {
        "application/yaml" => serde_saphyr::from_str(&text).ok(),
        _ => serde_json::from_str(&text).ok(),
    };
    Some(Answer { code, warnings, content_type, body: body.unwrap_or_else(|| text.into()) })
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
        let content_type = [("content-type", request.content_type)];
        let headers: &[_] = if request.body.is_some() { &content_type } else { &[] };
        let answer = send(&self.client, request.method, &request.path, headers, &body).await?;
        self.note(request, &answer);
        let is_broken_off = answer.body["message"].as_str().is_some_and(|message| message.starts_with(BROKEN_OFF));
        (!is_broken_off).then_some(answer)
    }

    /// Remembers position and uid of the object in an answer.
    fn note(&mut self, request: &Request, answer: &Answer) {
        let metadata = &answer.body["metadata"];
        // A dry run may return the version that was sent.
        let version = metadata["resourceVersion"].as_str().filter(|version| *version != "0");
        if let (Some(version), Some(uid)) = (version, metadata["uid"].as_str()) {
            let known = [("$RV", version.to_owned()), ("$UID", uid.to_owned())];
            self.known.insert((request.kind, request.name.clone()), known);
        }
    }

    /// Deletes an object, with or without finalizers.
    async fn forget(&mut self, path: &str) {
        let finalizers = json!({"metadata": {"finalizers": null}}).to_string();
        let patch = [("content-type", MERGE_PATCH)];
        send(&self.client, "PATCH", path, &patch, &finalizers).await.unwrap();
        send(&self.client, "DELETE", &format!("{path}?gracePeriodSeconds=0"), &[], "").await.unwrap();
        send(&self.client, "PATCH", path, &patch, &finalizers).await.unwrap();
    }
}

/// The answer without managedFields and the positions of lists: the row `managedFields` covers all of the former, and a
/// write of any type advances the position of a stock server's lists.
fn comparable(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    without_owners(&mut answer.body);
    answer
}

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
        let made = send(stock, "POST", kind.collection, &[JSON], &sent.to_string()).await.unwrap();
        assert_eq!(made.code, 201, "{}", made.body);
        send(stock, "DELETE", &format!("{}/minimal", kind.collection), &[], "").await.unwrap();
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
    send(client, "POST", "/api/v1/namespaces", &[JSON], &namespace).await.unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = send(client, "POST", path, &[JSON], &script::definition().to_string()).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.body);
    for kind in kinds {
        while send(client, "GET", kind.collection, &[], "").await.unwrap().code != 200 {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Paths of all group versions but the first.
async fn groups(client: &Client) -> Vec<String> {
    let groups = send(client, "GET", "/apis", &[], "").await.unwrap().body;
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap())).collect()
}

fn is_listed(ty: &Value) -> bool {
    ty["verbs"].as_array().is_some_and(|verbs| verbs.contains(&"list".into()))
}

/// A client of a plain HTTP server, as the administrator.
fn client_of(server: &Server) -> Client {
    let mut config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
    config.auth_info.token = Some(token_of(ADMIN).into());
    // A 504 means that the stock server ended the connection; it would do so again.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// The three servers, and the differences so far.
struct Comparison {
    kinds: Vec<Kind>,
    /// Paths that the stock server fills in, by type.
    defaults: Vec<BTreeSet<String>>,
    /// The stock server through the server in front of it.
    stock: Side,
    /// The stock server on both ways.
    both: BothWays,
    /// The server with objects of its own.
    ours: Side,
    pairs: Pairs,
    requests: usize,
    /// Number of allowed differences by row.
    rows: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

impl Comparison {
    async fn new(genuine: &Genuine, ours: &Server, front: &Server) -> Self {
        let (direct, cached, ours) = (genuine.kube_client(ADMIN).await, client_of(front), client_of(ours));
        let kinds = script::kinds();
        for client in [&cached, &ours] {
            define(client, &kinds).await;
        }
        let defaults = defaults(&direct, &kinds).await;
        let watches = [genuine.client(ADMIN), front.client().with_token(&token_of(ADMIN))];
        let both = BothWays::new([direct, cached.clone()], watches, &kinds);
        let (stock, ours) = (Side::new(cached), Side::new(ours));
        let (pairs, requests, rows, wrong) = (Pairs::default(), 0, BTreeMap::new(), Vec::new());
        Self { kinds, defaults, stock, both, ours, pairs, requests, rows, wrong }
    }

    /// Compares the columns of the tables of every type that this server has with those of a release.
    async fn columns(&mut self, minor: u32) {
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        for group in ["/api/v1"].into_iter().map(str::to_owned).chain(groups(&self.ours.client).await) {
            let types = send(&self.ours.client, "GET", &group, &[], "").await.unwrap().body;
            for name in types["resources"].as_array().into_iter().flatten().filter(|ty| is_listed(ty)) {
                let path = format!("{group}/{}", name["name"].as_str().unwrap());
                let columns = |client: Client| async move {
                    let answer = send(&client, "GET", &path, &table, "").await.unwrap();
                    let columns = answer.body["columnDefinitions"].as_array().cloned().unwrap_or_default();
                    let shown = |column: Value| ["name", "type", "format", "priority"].map(|name| column[name].clone());
                    (path, columns.into_iter().map(shown).collect::<Vec<_>>())
                };
                let (path, stock) = columns.clone()(self.both.direct.clone()).await;
                let (_, ours) = columns(self.ours.client.clone()).await;
                // The row `columns of tables`.
                let is_newer = minor >= 37 && path.ends_with("/customresourcedefinitions");
                if stock != ours && !path.ends_with("/ipaddresses") && !is_newer {
                    self.wrong.push(format!("columns of {path}\n  stock: {stock:?}\n  ours: {ours:?}"));
                }
            }
        }
    }

    /// Sends a request to all servers, and compares the answers.
    async fn ask(&mut self, request: &Request) {
        self.requests += 1;
        let stock = if request.method == "GET" {
            let answer = self.both.read(&request.path, "").await;
            self.stock.note(request, &answer);
            answer
        } else {
            // Some JSON patches make a stock server panic.
            let Some(answer) = self.stock.ask(request).await else { return };
            answer
        };
        self.both.note(request.kind, &stock);
        let (stock, ours) = (comparable(&stock), comparable(&self.ours.ask(request).await.unwrap()));
        let case = Case { request, stock: &stock, ours: &ours, defaults: &self.defaults[request.kind] };
        let (mut differ, mut unknown) = (false, Vec::new());
        for difference in compare::differences(case.stock, case.ours, &mut self.pairs) {
            match allowed::rule(&case, &difference) {
                Some(allowed) => {
                    *self.rows.entry(allowed.row).or_default() += 1;
                    differ |= !allowed.is_presentation;
                }
                None => unknown.push(difference),
            }
        }
        if differ || !unknown.is_empty() {
            for name in [&*request.name, script::OTHER_NAME] {
                let path = format!("{}/{name}", self.kinds[request.kind].collection);
                self.stock.forget(&path).await;
                self.ours.forget(&path).await;
            }
        }
        if !unknown.is_empty() {
            self.wrong.push(story(&case, &unknown));
        }
    }

    /// Sends random requests until `end`, and watches what they did.
    async fn round(&mut self, rng: &mut Rng, end: Instant) {
        self.both.begin_round(&self.kinds).await;
        while Instant::now() < end && self.wrong.len() + self.both.wrong.len() < WRONG_MAX {
            let request = script::next(rng, &self.kinds);
            self.ask(&request).await;
            self.both.read_any(rng, request.kind, &self.kinds[request.kind]).await;
        }
        self.both.end_round(&self.kinds).await;
    }
}

/// Goal: clients cannot distinguish the servers, except for documented differences. Method: random requests to all, in
/// order; where a row allows different decisions, the object is deleted on both sides. Random reads follow each request,
/// directly and through the server in front of the stock one.
#[tokio::test]
async fn random_requests_are_answered_as_by_a_stock_server() {
    let settings = GenuineSettings { without_plugins: WITHOUT_PLUGINS, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("differential", settings).await else { return };
    let (seed, seconds) = (number("DIFFERENTIAL_SEED", SEED), number("DIFFERENTIAL_SECONDS", SECONDS));
    println!("differential: seed {seed}");
    let kubeconfig = genuine.kubeconfig(CACHE);
    let upstream = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap(), "--resources", CACHED];
    let (ours, front) = (Server::start(BINARY, &[]).await, Server::start(BINARY, &upstream).await);
    let mut comparison = Comparison::new(&genuine, &ours, &front).await;
    comparison.columns(genuine.minor().await).await;
    let mut rng = Rng::with_seed(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && comparison.wrong.is_empty() && comparison.both.wrong.is_empty() {
        comparison.round(&mut rng, end.min(Instant::now() + Duration::from_secs(ROUND_SECONDS))).await;
    }
    let Comparison { both, requests, rows, mut wrong, .. } = comparison;
    println!("differential: seed {seed}, {requests} requests, differences by row: {rows:?}");
    println!("differential: {} reads on both ways, differences by row: {:?}", both.reads, both.rows);
    wrong.extend(both.wrong);
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
