//! Admission webhooks of a server that acts as a cluster, asked over real sockets.

mod circumstances;
mod conversion;
mod hook;
mod hostile;
mod logged;
mod policies;
mod waiting;

use cache_server::testing::{self, ApiServer};
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::{configmap, namespace, pod},
};

use self::hook::{Hook, Reply};

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Longest answer of a webhook that may change an object, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest answer of another one.
const SHORT_ANSWER_BYTES_MAX: usize = 256 << 10;

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn start() -> (ApiServer, Client) {
    let api = testing::start().await;
    let client = client(&api);
    (api, client)
}

fn client(api: &ApiServer) -> Client {
    let rest = api.url().strip_prefix("http://").expect("no TLS");
    let (address, path) = rest.split_once('/').map_or((rest, None), |(address, path)| (address, Some(path)));
    let client = Client::new(address.parse().expect("an address"));
    path.map_or(client, |path| client.below(&format!("/{path}")))
}

/// A webhook of `hook` at `path`, for all writes of `resources`. `more` replaces and adds members.
fn webhook(hook: &Hook, path: &str, resources: &[&str], more: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{path}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": hook.client_config(path),
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}],
    });
    for (member, value) in more.as_object().expect("members") {
        webhook[member] = value.clone();
    }
    webhook
}

/// Stores a configuration of webhooks, whose kind is `Mutating` or `Validating`.
async fn configure(client: &Client, kind: &str, name: &str, webhooks: &[Value]) -> Answer {
    let (path, configuration) = configuration(kind, name, webhooks);
    client.post(&path, &configuration).await
}

fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> (String, Value) {
    let path = format!("{CONFIGURATIONS}/{}webhookconfigurations", kind.to_lowercase());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": webhooks,
    });
    (path, configuration)
}

fn named(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn denies(message: &str) -> Reply {
    Reply::Response(json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": message}}))
}

fn allows() -> Reply {
    Reply::Response(json!({"allowed": true}))
}

/// Goal: a webhook learns all of a write, and what it changes is completed, checked and stored. Method: a webhook that changes
/// a deployment, and one that only sees it, with the questions of both.
#[tokio::test]
async fn webhooks_change_and_check_objects() {
    let (_api, client) = start().await;
    let hook = Hook::start(|path, _| match path {
        "changes" => Reply::patch(&json!([
            {"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}},
            {"op": "add", "path": "/spec/template/spec/volumes", "value": [{"name": "v", "configMap": {"name": "c"}}]},
            {"op": "add", "path": "/unknown", "value": 1},
        ])),
        _ => Reply::Response(json!({"allowed": true, "warnings": ["look out"]})),
    })
    .await;
    configure(&client, "Mutating", "a", &[webhook(&hook, "changes", &["deployments"], &json!({}))])
        .await
        .with_code(201);
    configure(&client, "Validating", "a", &[webhook(&hook, "sees", &["deployments"], &json!({}))]).await.with_code(201);
    let labels = json!({"app": "a"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generateName": "a-"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = format!("{DEPLOYMENTS}?fieldManager=me&fieldValidation=Strict");
    let answer = client.post(&path, &deployment).await.with_code(201);
    assert_eq!(answer.header("warning"), "299 - \"look out\"");
    let stored = client.get(&format!("{DEPLOYMENTS}/{}", name(&answer.json()))).await.json();
    assert_eq!(stored["metadata"]["labels"], json!({"by": "hook"}));
    let volume = json!({"name": "v", "configMap": {"name": "c", "defaultMode": 420}});
    assert_eq!((&stored["spec"]["template"]["spec"]["volumes"][0], stored.get("unknown")), (&volume, None));

    let seen = hook.seen();
    let [(_, first), (_, second)] = &*seen else { panic!("{seen:?}") };
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let resource = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
        "fieldValidation": "Strict"});
    let user = json!({"username": "system:unsecured", "groups": ["system:masters", "system:authenticated"]});
    for (question, name) in [(first, None), (second, Some(name(&stored)))] {
        let mut question = question.clone();
        assert_eq!(question["uid"].take().as_str().map(str::len), Some(36));
        question["object"].take();
        let mut expected = json!({"uid": null, "object": null, "oldObject": null, "kind": kind, "requestKind": kind,
            "resource": resource, "requestResource": resource, "operation": "CREATE", "namespace": "default",
            "dryRun": false, "userInfo": user, "options": options});
        if let Some(name) = name {
            expected["name"] = name.into();
        }
        assert_eq!(question, expected);
    }
    assert_eq!(first["object"]["spec"]["replicas"], 1, "defaults come before webhooks");
    let mut sent = second["object"].clone();
    let metadata = sent["metadata"].as_object_mut().expect("metadata");
    metadata.extend(stored["metadata"].as_object().expect("metadata").clone());
    assert_eq!(sent, stored);
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

/// Goal: each way to write passes webhooks, with the words of kube-apiserver. Method: one write of each kind to a server whose
/// webhook sees everything.
#[tokio::test]
async fn every_write_passes_webhooks() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| allows()).await;
    let webhook = webhook(&hook, "all", &["*/*"], &json!({}));
    configure(&client, "Validating", "all", &[webhook]).await.with_code(201);
    let path = format!("{CONFIGMAPS}/a");
    client.post(CONFIGMAPS, &named("a")).await.with_code(201);
    client.put(&path, &named("a")).await.with_code(200);
    client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
    let applied = format!("{CONFIGMAPS}/b?fieldManager=me");
    client.patch(&applied, APPLY_PATCH, &named("b")).await.with_code(201);
    client.patch(&applied, APPLY_PATCH, &named("b")).await.with_code(200);
    client.delete(&path).await.with_code(200);
    client.delete(CONFIGMAPS).await.with_code(200);
    client.create(&namespace("ns")).await;
    client.create(&pod("p")).await;
    let path = format!("{PODS}/p");
    client.patch(&format!("{path}/status"), MERGE_PATCH, &json!({"status": {"phase": "Running"}})).await.with_code(200);
    let metadata = json!({"name": "p", "namespace": "default"});
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "n"}});
    client.post(&format!("{path}/binding"), &binding).await.with_code(201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
    client.post(&format!("{path}/eviction"), &eviction).await.with_code(201);
    let labels = json!({"app": "a"});
    let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}, "spec":
        {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers":
        [{"name": "c", "image": "i"}]}}}});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    client.post(sets, &replica_set).await.with_code(201);
    client.patch(&format!("{sets}/r/scale"), MERGE_PATCH, &json!({"spec": {"replicas": 2}})).await.with_code(200);
    // Configurations are exempt.
    client.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/all")).await.with_code(200);
    client.post(CONFIGMAPS, &named("c")).await.with_code(201);

    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let brief = |(_, question): &(String, Value)| {
        let of = |member: &str| text(&question[member]);
        let (resource, kind) = (text(&question["resource"]["resource"]), text(&question["kind"]["kind"]));
        let has = |member: &str| if question[member].is_null() { "-" } else { "+" };
        let (new, old) = (has("object"), has("oldObject"));
        let (operation, part) = (of("operation"), of("subResource"));
        format!("{operation} {resource}/{part} {}/{} {kind} {new}{old}", of("namespace"), of("name"))
    };
    assert_eq!(
        hook.seen().iter().map(brief).collect::<Vec<_>>(),
        [
            "CREATE configmaps/- default/a ConfigMap +-",
            "UPDATE configmaps/- default/a ConfigMap ++",
            "UPDATE configmaps/- default/a ConfigMap ++",
            "CREATE configmaps/- default/b ConfigMap +-",
            "UPDATE configmaps/- default/b ConfigMap ++",
            "DELETE configmaps/- default/a ConfigMap -+",
            "DELETE configmaps/- default/- ConfigMap -+",
            "CREATE namespaces/- ns/ns Namespace +-",
            "CREATE pods/- default/p Pod +-",
            "UPDATE pods/status default/p Pod ++",
            "CREATE pods/binding default/p Binding +-",
            "CREATE pods/eviction default/p Eviction +-",
            "CREATE replicasets/- default/r ReplicaSet +-",
            "UPDATE replicasets/scale default/r Scale ++",
        ]
    );
}

/// Members of a webhook, its answer, and the answer to a create: its code, and the beginning of its message.
type Case = (Value, Reply, u16, String);

/// Creates an object in a fork for each case, under one webhook whose configuration has this kind.
async fn decide(kind: &str, cases: Vec<Case>) {
    let (api, _) = start().await;
    for (more, reply, code, message) in cases {
        let case = format!("{kind} {more} {message}");
        let fork = api.fork();
        let client = client(&fork);
        let hook = Hook::start(move |_, _| reply.clone()).await;
        configure(&client, kind, "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
        let answer = client.post(CONFIGMAPS, &named("a")).await;
        assert_eq!(answer.code.as_u16(), code, "{case}: {}", answer.text());
        if code != 201 {
            assert!(answer.message().starts_with(&message), "{case}: {}", answer.message());
            client.get(&format!("{CONFIGMAPS}/a")).await.with_code(404);
        }
    }
}

fn denied(why: &str) -> String {
    format!("admission webhook \"x.example.com\" denied the request{why}")
}

fn failed(why: &str) -> String {
    format!("Internal error occurred: failed calling webhook \"x.example.com\": {why}")
}

fn invalid(why: &str) -> String {
    failed(&format!("received invalid webhook response: {why}"))
}

/// Goal: what a webhook answers, or fails to, gets the Status of kube-apiserver. Method: a table.
#[tokio::test]
async fn answers_of_webhooks_decide() {
    let (none, ignores) = (json!({}), json!({"failurePolicy": "Ignore"}));
    let raw = |code: u16, body: &str| Reply::Raw(code, body.to_owned());
    let respond = Reply::Response;
    let call = |why: &str| failed(&format!("failed to call webhook: {why}"));
    let brief = |policy: &str| json!({"timeoutSeconds": 1, "failurePolicy": policy});
    let service = json!({"clientConfig": {"service": {"name": "s", "namespace": "ns", "path": "/p"}}});
    let nowhere = json!({"clientConfig": {"url": "https://127.0.0.1:1/p"}});
    let long = " ".repeat(SHORT_ANSWER_BYTES_MAX + 1);
    let broken = "an error on the server (\"oops\") has prevented the request from succeeding";
    let unknown = "Post \"https://s.ns.svc:443/p?timeout=10s\": service \"s\" not found";
    let refused = "Post \"https://127.0.0.1:1/p?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    let gone = json!({"allowed": false, "status": {"code": 200, "reason": "Gone"}});
    let cases = vec![
        (none.clone(), denies("no"), 403, denied(": no")),
        (none.clone(), respond(gone), 400, denied(": Gone")),
        (ignores.clone(), respond(json!({"allowed": false})), 400, denied(" without explanation")),
        (none.clone(), respond(json!({"allowed": true, "uid": "u"})), 500, invalid("expected response.uid=")),
        (none.clone(), raw(200, "{}"), 500, invalid("webhook response was absent")),
        (none.clone(), raw(200, "<"), 500, call("couldn't get version/kind; json parse error: ")),
        (none.clone(), raw(200, &long), 500, call("Post \"https://")),
        (none.clone(), raw(500, "oops"), 500, call(broken)),
        (none.clone(), raw(404, ""), 500, call("the server could not find the requested resource")),
        (none.clone(), raw(302, ""), 500, call("the server responded with the status code 302")),
        (ignores, raw(500, "oops"), 201, String::new()),
        (brief("Fail"), Reply::Never, 500, call("Post \"https://")),
        (brief("Ignore"), Reply::Never, 201, String::new()),
        (none, Reply::patch(&json!([])), 500, invalid("validating webhook may not return response.patch")),
        (service, allows(), 500, call(unknown)),
        (nowhere, allows(), 500, call(refused)),
    ];
    decide("Validating", cases).await;
}

/// Goal: a patch that does not lead to an object of the request is refused. Method: a table.
#[tokio::test]
async fn patches_of_webhooks_are_checked() {
    let patch = |patch: Value, code: u16, message: &str| (json!({}), Reply::patch(&patch), code, message.to_owned());
    let error = "Internal error occurred: ";
    let foreign = "the namespace of the provided object does not match the namespace sent on the request";
    let untyped = json!({"allowed": true, "patch": "W10="});
    let untyped = (json!({}), Reply::Response(untyped), 500, invalid("webhook returned response.patch but not"));
    // Each copy doubles the object.
    let mut grows = vec![json!({"op": "add", "path": "/data", "value": {"k": "x".repeat(1 << 10)}})];
    grows.extend((0..40).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/k{at}")})));
    let respond = |response: Value, code: u16, message: String| (json!({}), Reply::Response(response), code, message);
    let spaces = |bytes: usize| Reply::Raw(200, " ".repeat(bytes));
    let unread = |why: &str| failed(&format!("failed to call webhook: couldn't get version/kind; {why}"));
    let many = json!({"allowed": true, "status": {"details": {"causes": vec![json!({"": 0}); 250_000]}}});
    let long = json!({"allowed": true, "auditAnnotations": {"k": "v".repeat(2 * SHORT_ANSWER_BYTES_MAX)}});
    let cases = vec![
        untyped,
        respond(long, 201, String::new()),
        respond(many, 500, unread("decoded, it has more than 25165824 bytes")),
        (json!({}), spaces(ANSWER_BYTES_MAX), 500, unread("json parse error: ")),
        (json!({}), spaces(ANSWER_BYTES_MAX + 1), 500, failed("failed to call webhook: Post \"https://")),
        patch(json!({}), 500, &failed("received undecodable patch in webhook response: ")),
        patch(json!([{"op": "remove", "path": "/none"}]), 500, error),
        patch(json!([{"op": "replace", "path": "/kind", "value": "Secret"}]), 500, &format!("{error}the kind")),
        patch(json!([{"op": "add", "path": "/metadata/namespace", "value": "other"}]), 400, foreign),
        patch(json!([{"op": "add", "path": "/data", "value": 1}]), 500, error),
        patch(json!([{"op": "replace", "path": "", "value": []}]), 500, error),
        patch(json!(grows), 500, error),
        patch(json!([{"op": "add", "path": "/metadata/name", "value": "b"}]), 201, ""),
    ];
    decide("Mutating", cases).await;
}

/// Goal: the certificate of a webhook is checked. Method: bundles with its issuer, with itself as in envtest, and with others.
#[tokio::test]
async fn a_webhook_proves_who_it_is() {
    let (api, _) = start().await;
    let (hook, other) = (Hook::start(|_, _| allows()).await, Hook::start(|_, _| allows()).await);
    let foreign = |config: Value| {
        let mut foreign = hook.client_config("x");
        foreign["caBundle"] = config["caBundle"].clone();
        foreign
    };
    for (config, is_trusted) in [
        (hook.client_config("x"), true),
        (hook.config_by_itself("x"), true),
        (foreign(other.client_config("x")), false),
        (foreign(other.config_by_itself("x")), false),
    ] {
        let fork = api.fork();
        let client = client(&fork);
        let more = json!({ "clientConfig": config });
        configure(&client, "Validating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
        let answer = client.post(CONFIGMAPS, &named("a")).await;
        assert_eq!(answer.code.as_u16(), if is_trusted { 201 } else { 500 }, "{}", answer.text());
        let why = "tls: failed to verify certificate: x509: ";
        assert!(is_trusted || answer.message().contains(why), "{}", answer.message());
    }
}

/// Goal: warnings reach the client whatever it writes. Method: a webhook that warns of orders about pods, and of deletions.
#[tokio::test]
async fn orders_have_the_warnings_of_webhooks() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| Reply::Response(json!({"allowed": true, "warnings": ["look out"]}))).await;
    for name in ["p", "q"] {
        client.create(&pod(name)).await;
    }
    let webhook = webhook(&hook, "x", &["bindings", "pods", "pods/*"], &json!({}));
    configure(&client, "Validating", "x", &[webhook]).await.with_code(201);
    let binding = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": "default"},
            "target": {"kind": "Node", "name": "n"}})
    };
    let bound = client.post(&format!("{PODS}/p/binding"), &binding("p")).await.with_code(201);
    let named = client.post("/api/v1/namespaces/default/bindings", &binding("q")).await.with_code(201);
    let deleted = client.delete(&format!("{PODS}?gracePeriodSeconds=0")).await.with_code(200);
    for answer in [bound, named, deleted] {
        assert!(answer.header("warning").contains("look out"), "{}", answer.text());
    }
}

/// Goal: selectors, conditions and rules choose writes. Method: a table of members of a webhook that refuses, and whether it is
/// asked about a ConfigMap with the label `a: b` in a namespace with the label `kubernetes.io/metadata.name: default`.
#[tokio::test]
async fn webhooks_are_asked_about_what_they_select() {
    let conditions = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let rule = |more: Value| {
        let mut rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
        rule.as_object_mut().expect("members").extend(more.as_object().expect("members").clone());
        json!({"rules": [rule]})
    };
    let labels = |member: &str, key: &str, value: &str| json!({member: {"matchLabels": {key: value}}});
    let table = [
        (json!({}), true),
        (rule(json!({})), true),
        (rule(json!({"operations": ["UPDATE", "DELETE"]})), false),
        (rule(json!({"apiVersions": ["v2"]})), false),
        (rule(json!({"apiGroups": ["apps"]})), false),
        (rule(json!({"resources": ["configmaps/status", "pods", "pods/*"]})), false),
        (rule(json!({"resources": ["*"]})), true),
        (rule(json!({"resources": ["*/status"]})), false),
        (rule(json!({"scope": "Cluster"})), false),
        (rule(json!({"scope": "Namespaced"})), true),
        (labels("objectSelector", "a", "b"), true),
        (labels("objectSelector", "a", "c"), false),
        (labels("namespaceSelector", "kubernetes.io/metadata.name", "default"), true),
        (labels("namespaceSelector", "kubernetes.io/metadata.name", "other"), false),
        (conditions("object.metadata.labels.a == 'b' && oldObject == null"), true),
        (conditions("request.operation == 'CREATE' && request.userInfo.groups.exists(g, g == 'system:masters')"), true),
        (conditions("has(object.data) && object.data.size() > 0"), false),
        (conditions("request.namespace in ['other'] || object.metadata.?name.orValue('') != 'a'"), false),
    ];
    let (api, _) = start().await;
    let hook = Hook::start(|_, _| denies("no")).await;
    let mut object = named("a");
    object["metadata"]["labels"] = json!({"a": "b"});
    for (more, is_asked) in table {
        let fork = api.fork();
        let client = client(&fork);
        configure(&client, "Validating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
        let answer = client.post(CONFIGMAPS, &object).await;
        assert_eq!(answer.code.as_u16(), if is_asked { 403 } else { 201 }, "{more}: {}", answer.text());
    }
    // A condition without a value fails the write, unless failures are ignored.
    let forbidden = |why: &str| format!("configmaps \"a\" is forbidden: {why}");
    let out_of_budget = "validation failed due to running out of cost budget, no further validation rules will be run";
    let no_key = "expression 'object.none == 1' resulted in error: no such key: none";
    let ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let slow = "abcde".chars().fold("true".to_owned(), |inner, name| format!("{ten}.all({name}, {inner})"));
    let slow = |count: usize| {
        let one = |at: usize| json!({"name": format!("c{at}"), "expression": slow});
        json!({"matchConditions": (0..count).map(one).collect::<Vec<_>>()})
    };
    let fails = [
        (conditions("object.none == 1"), "Fail", 403, forbidden(no_key)),
        (conditions("object.none == 1"), "Ignore", 201, String::new()),
        (slow(1), "Fail", 403, "admission webhook \"x.example.com\" denied the request: no".to_owned()),
        (slow(10), "Fail", 403, forbidden(out_of_budget)),
    ];
    for (mut more, policy, code, message) in fails {
        let fork = api.fork();
        let client = client(&fork);
        more["failurePolicy"] = policy.into();
        configure(&client, "Validating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
        let answer = client.post(CONFIGMAPS, &object).await.with_code(code);
        assert!(message.is_empty() || answer.message() == message, "{}", answer.message());
    }
}

/// Goal: a webhook for one version sees writes at another one, with objects of its own version. Method: autoscalers at v1, under
/// webhooks of v2.
#[tokio::test]
async fn webhooks_see_equivalent_versions() {
    let (_api, client) = start().await;
    let hook = Hook::start(|path, _| match path {
        "changes" => {
            Reply::patch(&json!([{"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization",
            "value": 7}]))
        }
        path => denies(path),
    })
    .await;
    let rule = json!({"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"], "resources": ["*"]});
    let changes = webhook(&hook, "changes", &[], &json!({"rules": [rule]}));
    let exact = webhook(&hook, "exact", &[], &json!({"rules": [rule], "matchPolicy": "Exact"}));
    configure(&client, "Mutating", "a", &[changes]).await.with_code(201);
    configure(&client, "Validating", "b", &[exact]).await.with_code(201);
    let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "targetCPUUtilizationPercentage": 50}});
    let made = client.post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", &scaler).await;
    let made = made.with_code(201).json();
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 7);
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    let (_, question) = hook.seen().remove(0);
    let versions = ["kind", "requestKind"].map(|member| question[member]["version"].clone());
    assert_eq!((versions, &question["object"]["apiVersion"]), ([json!("v2"), json!("v1")], &json!("autoscaling/v2")));
}

/// Goal: webhooks that change objects go in the order of their configurations, and those that want it see later changes.
/// Method: three webhooks that each append their name to an annotation.
#[tokio::test]
async fn later_changes_are_shown_to_earlier_webhooks() {
    let (_api, client) = start().await;
    let hook = Hook::start(|path, question| {
        let before = question["object"]["metadata"]["annotations"]["by"].as_str().unwrap_or_default().to_owned();
        Reply::patch(&json!([
            {"op": "add", "path": "/metadata/annotations", "value": {"by": format!("{before}{path}")}},
        ]))
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    for (name, more) in [("c", &again), ("a", &again), ("b", &json!({}))] {
        let webhook = webhook(&hook, name, &["configmaps"], more);
        configure(&client, "Mutating", name, &[webhook]).await.with_code(201);
    }
    let made = client.post(CONFIGMAPS, &named("x")).await.with_code(201).json();
    assert_eq!(made["metadata"]["annotations"]["by"], "abcac", "c is called again only as a changed the object again");
}

/// Goal: dry runs reach only webhooks without effects, and configurations with others are refused.
#[tokio::test]
async fn a_dry_run_asks_webhooks() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, question| denies(&question["dryRun"].to_string())).await;
    let more = json!({"sideEffects": "NoneOnDryRun"});
    configure(&client, "Validating", "x", &[webhook(&hook, "x", &["configmaps"], &more)]).await.with_code(201);
    let refused = client.post(&format!("{CONFIGMAPS}?dryRun=All"), &named("a")).await.with_code(403);
    assert_eq!(refused.message(), "admission webhook \"x.example.com\" denied the request: true");
}

/// Goal: no object is stored or deleted that its webhooks have not seen as it replaces the one stored then. Method: a webhook
/// that changes the object itself, while it is asked about another change.
#[tokio::test]
async fn a_write_that_comes_late_passes_its_webhooks_again() {
    let (_api, client) = start().await;
    client.create(&configmap("a")).await;
    let path = format!("{CONFIGMAPS}/a");
    let hook = Hook::start(|_, _| allows()).await;
    for verb in ["PATCH", "DELETE"] {
        let rival = {
            let path = path.clone();
            move |question: Value| {
                let path = path.clone();
                async move {
                    if question["oldObject"]["data"][verb].is_null() && question["object"]["data"]["rival"].is_null() {
                        let change = json!({"data": {verb: "v", "rival": "r"}});
                        client.patch(&path, MERGE_PATCH, &change).await.with_code(200);
                    }
                }
            }
        };
        hook.meanwhile(rival);
        let only_others = json!({"matchConditions": [{"name": "c", "expression":
            "request.operation == 'DELETE' || !('rival' in object.?data.orValue({}))"}]});
        let name = verb.to_lowercase();
        configure(&client, "Validating", &name, &[webhook(&hook, &name, &["configmaps"], &only_others)])
            .await
            .with_code(201);
        let before = hook.seen().len();
        if verb == "PATCH" {
            client.patch(&path, MERGE_PATCH, &json!({"data": {"rival": null, "mine": "m"}})).await.with_code(200);
        } else {
            client.delete(&path).await.with_code(200);
        }
        let asked: Vec<_> =
            hook.seen()[before..].iter().map(|(_, question)| question["oldObject"]["data"][verb].clone()).collect();
        assert_eq!(asked, [json!(null), json!("v")], "{verb}");
        client.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{name}")).await.with_code(200);
    }
    client.get(&path).await.with_code(404);
}

/// Goal: a fork has the webhooks that its origin had, and its own.
#[tokio::test]
async fn forks_have_their_own_webhooks() {
    let (api, origin) = start().await;
    let hook = Hook::start(|path, _| denies(path)).await;
    configure(&origin, "Validating", "x", &[webhook(&hook, "origin", &["configmaps"], &json!({}))])
        .await
        .with_code(201);
    let fork = api.fork();
    let of_fork = client(&fork);
    let denied = |by: &str| format!("admission webhook \"{by}.example.com\" denied the request: {by}");
    let refused = of_fork.post(CONFIGMAPS, &named("a")).await.with_code(403);
    assert_eq!(refused.message(), denied("origin"));
    of_fork.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/x")).await.with_code(200);
    of_fork.post(CONFIGMAPS, &named("a")).await.with_code(201);
    configure(&of_fork, "Validating", "y", &[webhook(&hook, "fork", &["pods"], &json!({}))]).await.with_code(201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = of_fork.post(PODS, &pod).await.with_code(403);
    assert_eq!(refused.message(), denied("fork"));
    origin.post(PODS, &pod).await.with_code(201);
    origin.post(CONFIGMAPS, &named("a")).await.with_code(403);
}

/// Goal: configurations are refused as by kube-apiserver. Method: a table of members and the causes that they have.
#[tokio::test]
async fn configurations_are_checked() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| allows()).await;
    let url = |url: &str| json!({"clientConfig": {"url": url}});
    let rule = |member: &str, value: Value| {
        let mut rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        rule[member] = value;
        json!({"rules": [rule]})
    };
    let table = [
        (
            json!({"name": "a.b"}),
            "name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
        ),
        (json!({"sideEffects": null}), "sideEffects: Required value: must specify one of None, NoneOnDryRun"),
        (
            json!({"sideEffects": "Some"}),
            "sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            json!({"timeoutSeconds": 31}),
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            json!({"failurePolicy": "Maybe"}),
            "failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            json!({"admissionReviewVersions": []}),
            "admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            json!({"admissionReviewVersions": ["v2"]}),
            "admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
        (json!({"clientConfig": {}}), "clientConfig: Required value: exactly one of url or service is required"),
        (
            url("http://a/"),
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (url("https://u@a/"), "clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL"),
        (
            rule("operations", json!(["*", "CREATE"])),
            "rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
        ),
        (
            rule("resources", json!(["*/*", "pods"])),
            "rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
        ),
        (rule("resources", json!([])), "rules[0].resources: Required value"),
        (
            json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "objectSelector.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator",
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object."}]}),
            "matchConditions[0].expression: Invalid value: \"object.\": compilation failed: a member without a name",
        ),
    ];
    for (more, cause) in table {
        let refused =
            configure(&client, "Validating", "x", &[webhook(&hook, "x", &["pods"], &more)]).await.with_code(422);
        let start = "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"x\" is invalid: webhooks[0].";
        assert_eq!(refused.message(), format!("{start}{cause}"));
    }
}
