//! Webhooks of conversion and policies that work against the server, or against other users of it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use cache_server::testing::ApiServer;
use http::Method;
use serde_json::{Value, json};
use tests::http::{Answer, Client, MERGE_PATCH};
use tokio::task::JoinSet;

use super::{
    APPLY_PATCH, CONFIGMAPS, client,
    conversion::{DEFINITIONS, converted, define, definition, host, hosts},
    hook::{Hook, Reply},
    named,
    policies::{BINDINGS, POLICIES, bind, enforce, policy},
    start,
};

/// The answer of a conversion webhook.
fn response(objects: &Value) -> Reply {
    Reply::Response(json!({"convertedObjects": objects, "result": {"status": "Success"}}))
}

/// The objects of a question, converted well.
fn good(question: &Value) -> Vec<Value> {
    let desired = question["desiredAPIVersion"].as_str().expect("a version");
    question["objects"].as_array().expect("objects").iter().map(|it| converted(it.clone(), desired)).collect()
}

/// A server with the type of hosts, converted by `reply`.
async fn served(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> (ApiServer, Client, Hook) {
    let (api, client) = start().await;
    let hook = Hook::start(move |_, question| reply(question)).await;
    define(&client, &hook).await;
    (api, client, hook)
}

async fn apply_yaml(client: Client, path: &str, body: &str) -> Answer {
    let path = format!("{path}?fieldManager=me");
    let headers = [("content-type", APPLY_PATCH)];
    client.send(Client::request(Method::PATCH, &path, &headers, body.to_owned().into())).await
}

/// Goal: a conversion webhook that hangs delays no write of another type. Method: more large writes of its type at once than
/// the server runs, then a large write of another type.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_conversion_delays_no_other_type() {
    const WRITES: usize = 16;
    let (_api, client, hook) = served(|_| Reply::Never).await;
    let mut hung = JoinSet::new();
    for at in 0..WRITES {
        let body =
            format!("apiVersion: example.com/v2\nkind: Host\nmetadata:\n  name: h{at}\nspec:\n  host: a\n  port: 1\n");
        hung.spawn(async move { apply_yaml(client, &format!("{}/h{at}", hosts("v2")), &body).await });
    }
    while hook.seen().len() < WRITES {
        tokio::task::yield_now().await;
    }
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    apply_yaml(client, &format!("{CONFIGMAPS}/a"), body).await.with_code(201);
}

/// Goal: writes that wait for a conversion are bounded. Method: writes until one is refused, another type, and a write after
/// the clients left.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_for_a_conversion_are_bounded() {
    const CALLS_MAX: usize = 256;
    let hangs = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&hangs);
    let reply = move |question: &Value| {
        if still.load(Ordering::SeqCst) { Reply::Never } else { response(&json!(good(question))) }
    };
    let (_api, client, hook) = served(reply).await;
    let create = move |at: usize| async move {
        client.post(&hosts("v2"), &host("v2", &format!("h{at}"), &json!({"host": "a", "port": 1}))).await
    };
    let mut writes = JoinSet::new();
    for at in 0..CALLS_MAX {
        writes.spawn(create(at));
    }
    while hook.seen().len() < CALLS_MAX {
        tokio::task::yield_now().await;
    }
    let refused = create(CALLS_MAX).await.with_code(429);
    assert_eq!(refused.header("retry-after"), "1");
    client.post(CONFIGMAPS, &named("a")).await.with_code(201);
    hangs.store(false, Ordering::SeqCst);
    drop(writes);
    while create(CALLS_MAX).await.code != 201 {
        tokio::task::yield_now().await;
    }
}

/// Goal: the first read of a version says why its webhook does not convert, and so does each write. Method: every kind of read,
/// each as the first one, and a write, while objects wait.
#[tokio::test]
async fn the_first_read_says_why_objects_are_not_converted() {
    let (api, origin, _hook) =
        served(|_| Reply::Response(json!({"result": {"status": "Failure", "message": "out of order"}}))).await;
    origin.post(&hosts("v1"), &host("v1", "a", &json!({"address": "a:1"}))).await.with_code(201);
    let list = hosts("v2");
    for path in
        [list.clone(), format!("{list}?resourceVersion=0"), format!("{list}/a"), format!("{list}/a?resourceVersion=0")]
    {
        let fork = api.fork();
        let refused = client(&fork).get(&path).await.with_code(500);
        assert_eq!(
            refused.message(),
            "conversion webhook for example.com/v1, Kind=Host failed: out of order",
            "{path}"
        );
    }
    let fork = api.fork();
    let watched = client(&fork).get(&format!("{list}?watch=1")).await;
    assert!(watched.text().contains("Kind=Host failed: out of order"), "{}", watched.text());
    let fork = api.fork();
    let patch = json!({"spec": {"port": 3}});
    let refused = client(&fork).patch(&format!("{list}/a"), MERGE_PATCH, &patch).await.with_code(500);
    assert_eq!(refused.message(), "conversion webhook for example.com/v1, Kind=Host failed: out of order");
}

type Change = Arc<dyn Fn(Value) -> Reply + Send + Sync>;

/// Goal: nothing that a conversion webhook answers harms the server or the stored objects, and each answer has its reason.
/// Method: a table of answers, to a create at the version that is converted, and to a list of two objects.
#[tokio::test]
async fn answers_of_conversions_are_checked() {
    let changed = |change: fn(&mut Vec<Value>)| -> Change {
        Arc::new(move |question| {
            let mut objects = good(&question);
            change(&mut objects);
            response(&json!(objects))
        })
    };
    let raw = |code: u16, body: String| -> Change { Arc::new(move |_| Reply::Raw(code, body.clone())) };
    let invalid = |why: &str| format!("returned invalid converted object at index 0: {why}");
    let heavy = format!("[{}]", vec![r#"{"":0}"#; 500_000].join(","));
    let label = "metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters";
    let cases: Vec<(Change, String)> = vec![
        (raw(200, "<".to_owned()), "failed: the answer is no ConversionReview (Syntax)".to_owned()),
        (raw(200, " ".repeat(64 << 20)), "failed: Post \"https://".to_owned()),
        (raw(200, heavy), "failed: decoded, it has more than 25165824 bytes".to_owned()),
        (raw(200, "[".repeat(1 << 20)), "failed: ".to_owned()),
        (raw(307, String::new()), "failed: the server responded with the status code 307".to_owned()),
        (raw(500, "oops".to_owned()), "failed: an error on the server (\"oops\")".to_owned()),
        (changed(|objects| objects.push(objects[0].clone())), "returned 2 objects, expected 1".to_owned()),
        (changed(Vec::clear), "returned 0 objects, expected 1".to_owned()),
        (changed(|objects| objects[0]["metadata"]["name"] = "b".into()), invalid("must have the same name: a != b")),
        (
            changed(|objects| objects[0]["metadata"]["namespace"] = "other".into()),
            invalid("must have the same namespace: default != other"),
        ),
        (changed(|objects| drop(objects[0]["metadata"].take())), invalid("must have the same name: a != ")),
        (changed(|objects| objects[0]["metadata"]["labels"] = json!({"a b": "c"})), invalid(label)),
        (changed(|objects| objects[0]["kind"] = "Pod".into()), invalid("invalid kind (expected Host, received Pod)")),
    ];
    for (change, expected) in cases {
        let (_api, client, _hook) = served(move |question| change(question.clone())).await;
        let refused =
            client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(500);
        let start = "conversion webhook for example.com/v2, Kind=Host ";
        let found = refused.message();
        assert!(found.starts_with(&format!("{start}{expected}")), "{expected}: {found}");
        client.post(&hosts("v1"), &host("v1", "b", &json!({"address": "a:1"}))).await.with_code(201);
        assert_eq!(client.get(&hosts("v1")).await.keys(), ["default/b"]);
    }
    // Of two objects.
    let swapped = |question: &Value| {
        let mut objects = good(question);
        objects.reverse();
        response(&json!(objects))
    };
    let (_api, client, _hook) = served(swapped).await;
    for name in ["a", "b"] {
        client.post(&hosts("v1"), &host("v1", name, &json!({"address": "a:1"}))).await.with_code(201);
    }
    let refused = client.get(&hosts("v2")).await.with_code(500);
    assert!(refused.message().ends_with("index 0: must have the same name: a != b"), "{}", refused.message());
}

/// Goal: a webhook stores and shows only what a version has, and no object beyond the bound. Method: one that adds members and
/// other metadata, and one that makes an object of 2 MiB.
#[tokio::test]
async fn converted_objects_fit_their_version_and_the_storage() {
    let adds = |question: &Value| {
        let mut objects = good(question);
        for object in &mut objects {
            object["spec"]["more"] = json!({"a": "b"});
            object["extra"] = json!(1);
            object["metadata"]["finalizers"] = json!(["example.com/x"]);
            object["metadata"]["resourceVersion"] = json!("7");
            object["metadata"]["generation"] = json!(99);
            object["metadata"]["labels"] = json!({"by": "hook"});
        }
        response(&json!(objects))
    };
    let (_api, client, _hook) = served(adds).await;
    let made =
        client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(201).json();
    let stored = client.get(&format!("{}/a", hosts("v1"))).await.with_code(200).json();
    assert_eq!(stored["metadata"], made["metadata"]);
    for (object, spec) in [(&made, json!({"host": "a", "port": 1})), (&stored, json!({"address": "a:1"}))] {
        assert_eq!((&object["spec"], object.get("extra")), (&spec, None), "{object}");
        let metadata = &object["metadata"];
        assert_eq!((&metadata["generation"], metadata.get("finalizers")), (&json!(1), None), "{object}");
        assert_eq!(metadata["labels"], json!({"by": "hook"}));
    }
    let grows = |question: &Value| {
        let mut objects = good(question);
        objects[0]["spec"]["address"] = "a".repeat(2 << 20).into();
        response(&json!(objects))
    };
    let (_api, client, _hook) = served(grows).await;
    client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(413);
    assert_eq!(client.get(&hosts("v1")).await.keys(), [""; 0]);
}

/// Goal: a definition can be deleted and made again while its webhook converts. Method: a webhook that has it deleted before it
/// answers.
#[tokio::test]
async fn a_definition_may_be_deleted_during_a_conversion() {
    let (_api, client, hook) = served(|question| response(&json!(good(question)))).await;
    client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(201);
    hook.meanwhile(move |_| async move {
        client.delete(&format!("{DEFINITIONS}/hosts.example.com")).await;
    });
    client.post(&hosts("v2"), &host("v2", "b", &json!({"host": "a", "port": 1}))).await;
    while client.get(&hosts("v1")).await.code != 404 {
        tokio::task::yield_now().await;
    }
    hook.meanwhile(|_| async {});
    define(&client, &hook).await;
    client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(201);
    client.get(&format!("{}/a", hosts("v1"))).await.with_code(200);
}

/// Goal: a webhook that replaces a hung one takes effect at once. Method: reads and writes that wait for the first one, a
/// definition with another one, and the same reads and writes.
#[tokio::test]
async fn a_hung_webhook_can_be_replaced() {
    let (_api, client, hook) = served(|_| Reply::Never).await;
    client.post(&hosts("v1"), &host("v1", "a", &json!({"address": "a:1"}))).await.with_code(201);
    let waiting = tokio::spawn(async move { client.get(&hosts("v2")).await });
    while hook.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let other = Hook::start(|_, question| response(&json!(good(question)))).await;
    let spec = json!({"spec": {"conversion": definition(&other)["spec"]["conversion"]}});
    client.patch(&format!("{DEFINITIONS}/hosts.example.com"), MERGE_PATCH, &spec).await.with_code(200);
    assert_eq!(client.get(&hosts("v2")).await.with_code(200).keys(), ["default/a"]);
    let patch = json!({"spec": {"port": 3}});
    client.patch(&format!("{}/a", hosts("v2")), MERGE_PATCH, &patch).await.with_code(200);
    let first = waiting.await.expect("no panic");
    assert!([200, 429].contains(&first.code.as_u16()), "{}", first.text());
}

/// Goal: a deletion at a converted version answers with that version, also with finalizers and of a collection. Method: each.
#[tokio::test]
async fn deletions_answer_with_their_version() {
    let (_api, client, _hook) = served(|question| response(&json!(good(question)))).await;
    let path = format!("{}/a", hosts("v2"));
    let mut held = host("v2", "a", &json!({"host": "a", "port": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.post(&hosts("v2"), &held).await.with_code(201);
    let marked = client.delete(&path).await.with_code(200).json();
    assert_eq!((&marked["apiVersion"], &marked["spec"]["host"]), (&json!("example.com/v2"), &json!("a")));
    let last = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200).json();
    assert_eq!((&last["apiVersion"], &last["spec"]["host"]), (&json!("example.com/v2"), &json!("a")));
    client.get(&path).await.with_code(404);
    for name in ["b", "c"] {
        client.post(&hosts("v1"), &host("v1", name, &json!({"address": "a:1"}))).await.with_code(201);
    }
    client.delete(&format!("{}/b", hosts("v2"))).await.with_code(200);
    client.delete(&hosts("v2")).await.with_code(200);
    assert_eq!(client.get(&hosts("v1")).await.keys(), [""; 0]);
}

/// An expression of some 100,000 steps.
const LONG: &str = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, \
                    [0,1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > -1))))";

/// Goal: an expensive policy delays no other request. Method: writes that it decides about, and as many reads as are answered
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_expensive_policy_delays_no_reads() {
    const WRITES: usize = 12;
    let (_api, client) = start().await;
    let validations = vec![json!({"expression": LONG}); 20];
    client.post(POLICIES, &policy("p", &["configmaps"], &json!({"validations": validations}))).await.with_code(201);
    bind(&client, "p", &json!({})).await.with_code(201);
    let mut writes = JoinSet::new();
    for at in 0..WRITES {
        writes.spawn(async move { client.patient().post(CONFIGMAPS, &named(&format!("c{at}"))).await });
    }
    let (mut reads, mut done) = (0, 0);
    while done < WRITES {
        client.get("/api/v1/namespaces/default").await.with_code(200);
        reads += 1;
        while let Some(answer) = writes.try_join_next() {
            answer.expect("no panic").with_code(201);
            done += 1;
        }
    }
    eprintln!("{reads} reads during {WRITES} writes");
    assert!(reads > 10 * WRITES, "{reads} reads");
}

/// Goal: a policy that reads a large body over and over ends, and so does one whose list grows. Method: a body of a megabyte.
#[tokio::test(flavor = "multi_thread")]
async fn policies_about_large_bodies_end() {
    let (api, _) = start().await;
    let mut large = named("a");
    large["data"] = (0..10_000).map(|at| (format!("k{at}"), json!("v".repeat(100)))).collect::<Value>();
    let linear = "object.data.all(a, object.data[a].size() == 100)";
    for (expression, is_linear) in [
        (linear, true),
        ("object.data.all(a, object.data.all(b, a != b || a == b))", false),
        ("object.data.map(a, object.data.map(b, object.data)).size() > 0", false),
        ("object.data.map(a, object.data.map(b, string(b) + a)).size() > 0", false),
    ] {
        let fork = api.fork();
        let client = client(&fork).patient();
        enforce(&client, "p", &["configmaps"], expression, &json!({})).await;
        let answer = client.post(CONFIGMAPS, &large).await;
        let is_refused = answer.code == 422 && answer.message().contains("actual cost limit exceeded");
        assert!(if is_linear { answer.code == 201 } else { is_refused }, "{expression}: {}", answer.text());
    }
}

/// Goal: parameters that cannot be found deny, unless failures are ignored. Method: a type whose definition is deleted, and one
/// in namespaces for a write outside of them, and a version whose webhook hangs.
#[tokio::test]
async fn parameters_that_are_away_deny() {
    let (api, _, _hook) =
        served(|_| Reply::Response(json!({"result": {"status": "Failure", "message": "out of order"}}))).await;
    let origin = client(&api);
    origin.post(&hosts("v1"), &host("v1", "a", &json!({"address": "a:1"}))).await.with_code(201);
    let nodes = "/api/v1/nodes";
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    for (version, resource, deletes, why) in [
        ("v1", "configmaps", false, ""),
        ("v1", "configmaps", true, "failed to find resource referenced by paramKind: 'example.com/v1, Kind=Host'"),
        (
            "v1",
            "nodes",
            false,
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
        ),
        ("v2", "configmaps", false, "out of order"),
    ] {
        for (failures, denied) in [("Fail", !why.is_empty()), ("Ignore", false)] {
            let fork = api.fork();
            let client = client(&fork);
            let kind = json!({"apiVersion": format!("example.com/{version}"), "kind": "Host"});
            let more = json!({"paramKind": kind, "failurePolicy": failures,
                "validations": [{"expression": "params.spec.address == 'a:1'"}]});
            client.post(POLICIES, &policy("p", &[resource], &more)).await.with_code(201);
            let reference = json!({"paramRef": {"name": "a", "parameterNotFoundAction": "Deny"}});
            bind(&client, "p", &reference).await.with_code(201);
            if deletes {
                client.delete(&format!("{DEFINITIONS}/hosts.example.com")).await.with_code(200);
                while client.get(&hosts("v1")).await.code != 404 {
                    tokio::task::yield_now().await;
                }
            }
            let answer = if resource == "nodes" {
                client.post(nodes, &node).await
            } else {
                client.post(CONFIGMAPS, &named("m")).await
            };
            assert_eq!(
                answer.code.as_u16(),
                if denied { 422 } else { 201 },
                "{resource} {failures}: {}",
                answer.text()
            );
            assert!(!denied || answer.message().contains(why), "{}", answer.message());
            // The way out stays open.
            client.delete(&format!("{BINDINGS}/b-p")).await.with_code(200);
            client.post(CONFIGMAPS, &named("after")).await.with_code(201);
        }
    }
}
