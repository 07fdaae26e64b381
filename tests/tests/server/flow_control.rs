//! Flow control of a server with users, over its sockets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    genuine::{ADMIN, CACHE, Genuine, GenuineSettings, Identity, token_of},
    http::{ANSWER_WAIT, Answer, Client, MERGE_PATCH},
    process::Server,
};
use tokio::time::{sleep, timeout};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const NODE: &str = "system:node:a";
const AGENT: &str = "system:serviceaccount:kube-system:node-agent";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// Users and their groups.
const USERS: [(&str, &[&str]); 7] = [
    (NODE, &["system:nodes"]),
    (AGENT, &["system:serviceaccounts", "system:serviceaccounts:kube-system"]),
    ("system:serviceaccount:default:app", &["system:serviceaccounts", "system:serviceaccounts:default"]),
    ("system:kube-controller-manager", &[]),
    ("system:kube-scheduler", &[]),
    ("alice", &[]),
    ("bob", &["team"]),
];

/// A server that knows [`USERS`] and [`ADMIN`] by their tokens, with the same files as a kube-apiserver.
struct UserServer {
    server: Server,
    _folder: TempDir,
}

impl UserServer {
    async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let users = USERS.iter().copied().chain([(ADMIN, &["system:masters"][..])]);
        let line = |(number, (name, groups)): (usize, (&str, &[&str]))| {
            format!("{},{name},{number},\"{}\"\n", token_of(name), groups.join(","))
        };
        let tokens = folder.path().join("tokens.csv");
        fs::write(&tokens, users.enumerate().map(line).collect::<String>()).expect("a file");
        let tokens = format!("--token-auth-file={}", tokens.display());
        let server = Server::start(BINARY, &[&[tokens.as_str()], arguments].concat()).await;
        Self { server, _folder: folder }
    }

    fn client(&self, user: &str) -> Client {
        self.server.client().with_token(&token_of(user))
    }
}

/// Values of a metric of the levels or schemas, by their labels.
async fn metric(admin: &Client, name: &str) -> BTreeMap<String, u64> {
    let text = String::from_utf8(admin.get("/metrics").await.with_code(200).body.to_vec()).expect("text");
    let prefix = format!("apiserver_flowcontrol_{name}{{");
    let values = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once("} "));
    values.map(|(labels, value)| (labels.to_owned(), value.parse().expect("a number"))).collect()
}

/// Goal: a storm of lists delays no leases. Method: 30 clients list all pods over and over, while a node renews its lease;
/// lists must wait in queues, use no more seats than their level has, and the node must never be refused.
#[tokio::test]
async fn a_storm_of_lists_does_not_stop_leases() {
    let server =
        UserServer::start(&["--populate=pods=500,nodes=4,namespaces=2,seed=1", "--max-requests-inflight=30"]).await;
    let (node, admin) = (server.client(NODE), server.client(ADMIN));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 1},
    });
    node.post(LEASES, &lease).await.with_code(201);
    let renew = async |renewal: u32| {
        let patch = json!({"spec": {"leaseTransitions": renewal}});
        node.patch(&format!("{LEASES}/a"), MERGE_PATCH, &patch).await.with_code(200).took
    };
    let mut quiet = Vec::new();
    for renewal in 0..100 {
        quiet.push(renew(renewal).await);
    }
    let over = Arc::new(AtomicBool::new(false));
    let storm = (0..30).map(|_| {
        let (alice, over) = (server.client("alice"), Arc::clone(&over));
        async move {
            let mut codes = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                codes.insert(alice.get("/api/v1/pods").await.code.as_u16());
            }
            codes
        }
    });
    let calm = async {
        let level = r#"priority_level="global-default""#;
        let schema = format!(r#"{level},flow_schema="global-default""#);
        let (mut most_waiting, mut stormy) = (0, Vec::new());
        for renewal in 100..200 {
            stormy.push(renew(renewal).await);
            if renewal % 10 == 0 {
                let in_use = metric(&admin, "current_executing_seats").await[&schema];
                let limit = metric(&admin, "upper_limit_seats").await[level];
                assert!(in_use <= limit, "{in_use} of {limit}");
                most_waiting = most_waiting.max(metric(&admin, "current_inqueue_requests").await[&schema]);
            }
        }
        over.store(true, Ordering::Relaxed);
        (most_waiting, stormy)
    };
    let (codes, (most_waiting, mut stormy)) = futures::join!(join_all(storm), calm);
    for (name, times) in [("quiet", &mut quiet), ("storm", &mut stormy)] {
        times.sort_unstable();
        println!("renewals, {name}: median {:?}, 99 % {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    }
    assert!(codes.iter().flatten().all(|code| matches!(code, 200 | 429)), "{codes:?}");
    assert!(most_waiting > 0, "no list waited");
    let refused = metric(&admin, "rejected_requests_total").await;
    assert!(refused.iter().all(|(labels, count)| *count == 0 || labels.contains("global-default")), "{refused:?}");
}

/// The two objects of a published incident, in which agents listed the pods of their nodes until kube-apiservers ran out of
/// memory.
const INCIDENT: &str = r#"
apiVersion: flowcontrol.apiserver.k8s.io/v1beta1
kind: FlowSchema
metadata: {name: restrict-pod-lister, uid: of-schema}
spec:
  priorityLevelConfiguration: {name: restrict-pod-lister}
  matchingPrecedence: 500
  distinguisherMethod: {type: ByUser}
  rules:
    - resourceRules:
        - {apiGroups: [""], namespaces: ["*"], clusterScope: true, resources: [pods], verbs: [list, get]}
      subjects:
        - {kind: ServiceAccount, serviceAccount: {name: node-agent, namespace: kube-system}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1beta1
kind: PriorityLevelConfiguration
metadata: {name: restrict-pod-lister, uid: of-level}
spec:
  type: Limited
  limited:
    assuredConcurrencyShares: 5
    limitResponse:
      type: Queue
      queuing: {queues: 10, queueLengthLimit: 5, handSize: 4}
"#;

#[tokio::test]
async fn the_manifests_of_the_incident_limit_its_agents() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("incident.yaml"), INCIDENT).unwrap();
    let path = format!("--flow-config={}", folder.path().display());
    let populate = "--populate=pods=500,nodes=4,namespaces=2,seed=1";
    let server = UserServer::start(&[&path, populate, "--max-requests-inflight=20"]).await;
    let (agent, admin) = (server.client(AGENT), server.client(ADMIN));
    let answers = join_all((0..100).map(|_| agent.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"))).await;
    let count = |code: u16| answers.iter().filter(|answer| answer.code == code).count();
    assert_eq!(count(200) + count(429), 100);
    assert!(count(200) >= 20, "what waits in the queues of a hand is served: {}", count(200));
    assert!(count(429) > 0, "a hand of queues is full");
    for refused in answers.iter().filter(|answer| answer.code == 429) {
        assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
        assert_eq!(refused.body, "Too many requests, please try again later.\n");
    }
    assert!(answers.iter().all(|answer| answer.headers["x-kubernetes-pf-flowschema-uid"] == "of-schema"));
    assert!(answers.iter().all(|answer| answer.headers["x-kubernetes-pf-prioritylevel-uid"] == "of-level"));
    assert_eq!(metric(&admin, "nominal_limit_seats").await[r#"priority_level="restrict-pod-lister""#], 1);
    agent.get("/api/v1/nodes").await.with_code(200);
}

/// Goal: a changed file takes effect without a restart, and a broken one changes nothing. Method: a level gets more shares,
/// then a wrong field, then another file; log lines and a metric name each step.
#[tokio::test]
async fn changed_files_take_effect_unless_they_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let [file, later] = ["incident.yaml", "later.yaml"].map(|name| folder.path().join(name));
    fs::write(&file, INCIDENT).unwrap();
    let server = UserServer::start(&[&format!("--flow-config={}", folder.path().display())]).await;
    let (agent, admin) = (server.client(AGENT), server.client(ADMIN));
    let seats = async || metric(&admin, "nominal_limit_seats").await[r#"priority_level="restrict-pod-lister""#];
    let reloads = async |result: &str| {
        let text = admin.get("/metrics").await.with_code(200);
        let prefix = format!("cache_flow_config_reloads_total{{result=\"{result}\"}} ");
        text.text().lines().find_map(|line| line.strip_prefix(&prefix)).map_or(0, |count| count.parse().unwrap())
    };
    let first = seats().await;
    fs::write(&file, INCIDENT.replace("assuredConcurrencyShares: 5", "assuredConcurrencyShares: 500")).unwrap();
    until(async || seats().await > 4 * first).await;
    let more = seats().await;
    fs::write(&file, INCIDENT.replace("handSize: 4", "handSize: 40")).unwrap();
    until(async || reloads("failure").await == 1).await;
    assert_eq!((seats().await, reloads("success").await), (more, 1));
    let pods = agent.get("/api/v1/pods").await.with_code(200);
    assert_eq!(pods.header("x-kubernetes-pf-flowschema-uid"), "of-schema");
    server.server.logged("handSize: should not be greater than queues").await;
    fs::write(&later, INCIDENT.replace("uid: of-schema", "uid: later")).unwrap();
    fs::remove_file(&file).unwrap();
    until(async || reloads("success").await == 2).await;
    assert_eq!((seats().await, reloads("failure").await <= 2), (first, true));
    let pods = agent.get("/api/v1/pods").await.with_code(200);
    assert_eq!(pods.header("x-kubernetes-pf-flowschema-uid"), "later");
}

/// Waits until a condition holds, at most for [`ANSWER_WAIT`].
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(ANSWER_WAIT, waiting).await.expect("the condition holds in time");
}

#[test]
fn a_wrong_object_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flow.yaml");
    fs::write(&file, INCIDENT.replace("handSize: 4", "handSize: 40")).unwrap();
    let output =
        Command::new(BINARY).args(["serve", "--listen=127.0.0.1:0", "--flow-config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = r#"document 2: PriorityLevelConfiguration "restrict-pod-lister": spec.limited.limitResponse.queuing.handSize: should not be greater than queues (10)"#;
    assert!(error.contains(expected), "{error}");
}

/// Names of the stored objects of a server, by uid.
async fn names(admin: &Client) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        let list = admin.get(&format!("{GROUP}/{plural}")).await.with_code(200).json();
        for item in list["items"].as_array().expect("items") {
            let text = |field: &str| item["metadata"][field].as_str().expect("text").to_owned();
            names.insert(text("uid"), text("name"));
        }
    }
    names
}

/// Schema and level of an answer.
fn classes(answer: &Answer, names: &BTreeMap<String, String>) -> [String; 2] {
    ["flowschema", "prioritylevel"].map(|kind| {
        let uid = answer.headers.get(format!("x-kubernetes-pf-{kind}-uid"));
        uid.map_or_else(String::new, |uid| names[uid.to_str().expect("text")].clone())
    })
}

/// Specs of all stored objects, by name.
async fn specs(admin: &Client, plural: &str) -> BTreeMap<String, Value> {
    let list = admin.get(&format!("{GROUP}/{plural}")).await.with_code(200).json();
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| (item["metadata"]["name"].as_str().expect("a name").to_owned(), item["spec"].clone())).collect()
}

/// Goal: objects, seats and the classes of requests are those of a kube-apiserver. Method: each user sends each request to
/// both servers; the uids in the headers are translated to names.
#[tokio::test]
async fn requests_are_classified_as_by_kube_apiserver() {
    let identities = USERS.iter().map(|(name, groups)| Identity::new(name, groups)).collect();
    let settings = GenuineSettings { identities, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("flow control", settings).await else { return };
    let server = UserServer::start(&["--flow-config=stored"]).await;
    let (ours, theirs) = (server.client(ADMIN), genuine.client(ADMIN));
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        assert_eq!(specs(&ours, plural).await, specs(&theirs, plural).await);
    }
    for limit in ["nominal", "lower", "upper"] {
        let name = format!("{limit}_limit_seats");
        assert_eq!(metric(&ours, &name).await, metric(&theirs, &name).await, "{name}");
    }
    let (our_names, their_names) = (names(&ours).await, names(&theirs).await);
    let lease = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/none");
    let requests = [
        (Method::GET, "/healthz".to_owned()),
        (Method::GET, "/readyz/ping".to_owned()),
        (Method::HEAD, "/healthz".to_owned()),
        (Method::GET, "/version".to_owned()),
        (Method::GET, "/api/v1/pods?limit=1".to_owned()),
        (Method::GET, "/api/v1/namespaces/default/pods/none".to_owned()),
        (Method::GET, "/api/v1/nodes/none".to_owned()),
        (Method::GET, "/api/v1/nodes/none/status".to_owned()),
        (Method::DELETE, "/api/v1/nodes/none".to_owned()),
        (Method::GET, lease("kube-system")),
        (Method::PUT, lease("kube-system")),
        (Method::PUT, lease("default")),
        (Method::DELETE, lease("kube-system")),
        (Method::GET, "/apis/coordination.k8s.io/v1/leases".to_owned()),
        (Method::GET, "/api/v1/namespaces/kube-system/configmaps/none".to_owned()),
        (Method::GET, "/apis".to_owned()),
    ];
    let mut seen = BTreeSet::new();
    for (user, _) in USERS.iter().chain(&[(ADMIN, &[][..])]) {
        for (method, path) in &requests {
            let request = || Client::request(method.clone(), path, &[], Bytes::new());
            let (our_client, their_client) = (server.client(user), genuine.client(user));
            let (our_answer, their_answer) = futures::join!(our_client.send(request()), their_client.send(request()));
            let expected = classes(&their_answer, &their_names);
            assert_eq!(classes(&our_answer, &our_names), expected, "{user}: {method} {path}");
            seen.insert(expected);
        }
    }
    assert!(seen.len() >= 9, "{seen:?}");
    in_front_of(&genuine, &their_names).await;
}

/// A server in front of the cluster uses the cluster's objects, and follows their changes.
async fn in_front_of(genuine: &Genuine, names: &BTreeMap<String, String>) {
    let kubeconfig = genuine.kubeconfig(CACHE).display().to_string();
    // The account of the cache may not ask about users.
    let open = "--authorization=always-allow";
    let front = UserServer::start(&["--upstream", "--kubeconfig", &kubeconfig, "--flow-config=stored", open]).await;
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": "alice"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "mine"},
        "spec": {"matchingPrecedence": 3, "priorityLevelConfiguration": {"name": "workload-low"}, "rules": [rule]},
    });
    belongs(&front, names, "global-default").await;
    let admin = genuine.client(ADMIN);
    let created = admin.post(&format!("{GROUP}/flowschemas"), &schema).await.with_code(201).json();
    let uid = created["metadata"]["uid"].as_str().expect("a uid").to_owned();
    belongs(&front, &BTreeMap::from([(uid, "mine".to_owned())]), "mine").await;
    admin.delete(&format!("{GROUP}/flowschemas/mine")).await.with_code(200);
    belongs(&front, names, "global-default").await;
}

/// Waits until a request of a user belongs to a schema, whose answer the server itself gives.
async fn belongs(server: &UserServer, names: &BTreeMap<String, String>, schema: &str) {
    let name = |answer: &Answer| {
        let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid")?.to_str().ok()?;
        names.get(uid).cloned()
    };
    let waited = timeout(ANSWER_WAIT, async {
        while name(&server.client("alice").get("/metrics").await).as_deref() != Some(schema) {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "requests do not belong to {schema}");
}
