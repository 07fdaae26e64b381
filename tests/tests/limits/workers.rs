//! The longest time for which one request holds a worker of the server's runtime.
//!
//! Goal: a hostile request delays no other, whatever it asks for. Method: a server in this process whose runtime has one
//! worker, and a task on it that a thread wakes every half millisecond. The worker's CPU time between two turns of this
//! task is the time for which it was held; the least of several tries counts. CPU time, because other programs delay the
//! task, too. A release build with `ATTACKS=all`, or `workers`, has the full sizes and checks the bound.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cache_server::{
    Server,
    config::{Config, PopulateSpec},
};
use futures::future::{BoxFuture, FutureExt as _};
use http::Method;
use serde_json::json;
use tests::http::{Client, MERGE_PATCH, with_query};
use tokio::{runtime, sync::mpsc};

/// Bound on the time for which a request holds a worker.
const HELD_MAX: Duration = Duration::from_millis(10);

/// Tries of each request.
const TRIES: usize = 3;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A server on a runtime with one worker, and the delays of the task beside it.
struct Watched {
    runtime: Option<runtime::Runtime>,
    address: SocketAddr,
    longest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    full: bool,
}

impl Watched {
    fn start(full: bool) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let pods = if full { 5_000 } else { 200 };
        let populate = Some(PopulateSpec { pods, nodes: 10, namespaces: 5, seed: 1 });
        let config = Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), populate, ..Config::default() };
        let server = runtime.block_on(Server::bind(config)).unwrap();
        let address = server.local_addr();
        runtime.spawn(server.serve(future::pending()));
        let (longest, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (sender, mut receiver) = mpsc::unbounded_channel::<Instant>();
        runtime.spawn({
            let longest = Arc::clone(&longest);
            async move {
                let mut last = (thread::current().id(), cpu_nanos());
                while let Some(sent) = receiver.recv().await {
                    let now = (thread::current().id(), cpu_nanos());
                    // The worker's tasks move to another thread when one of them blocks its own.
                    let held = if now.0 == last.0 { now.1 - last.1 } else { sent.elapsed().as_nanos() };
                    longest.fetch_max(u64::try_from(held / 1_000).unwrap(), Ordering::Relaxed);
                    last = now;
                }
            }
        });
        thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) && sender.send(Instant::now()).is_ok() {
                    thread::sleep(Duration::from_micros(500));
                }
            }
        });
        Self { runtime: Some(runtime), address, longest, stop, full }
    }

    const fn of(&self, full: usize, small: usize) -> usize {
        if self.full { full } else { small }
    }

    const fn client(&self) -> Client {
        Client::new(self.address).patient()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// CPU time of this thread in nanoseconds.
fn cpu_nanos() -> u128 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// One request: method, path, headers and body.
struct Asked {
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Bytes,
}

fn get(path: impl Into<String>, headers: &[(&'static str, &'static str)]) -> Asked {
    Asked { method: Method::GET, path: path.into(), headers: headers.to_vec(), body: Bytes::new() }
}

fn send(method: Method, path: impl Into<String>, kind: &'static str, body: impl Into<Bytes>) -> Asked {
    Asked { method, path: path.into(), headers: vec![("content-type", kind)], body: body.into() }
}

type Kind = fn(&Watched, usize) -> BoxFuture<'_, Asked>;

/// Every kind of request by name. Each is made once for each try, with what it needs.
const KINDS: &[(&str, Kind)] = &[
    ("health", |_, _| future::ready(get("/livez", &[])).boxed()),
    ("list", |_, _| future::ready(get("/api/v1/pods", &[])).boxed()),
    ("list, gzip", |_, _| future::ready(get("/api/v1/pods", &[("accept-encoding", "gzip")])).boxed()),
    ("list, pretty", |_, _| future::ready(get("/api/v1/pods?pretty=true", &[])).boxed()),
    ("list, protobuf", |_, _| {
        future::ready(get("/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")])).boxed()
    }),
    ("list, YAML", |_, _| future::ready(get("/api/v1/pods", &[("accept", "application/yaml")])).boxed()),
    ("list, metadata only", |_, _| {
        let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        future::ready(get("/api/v1/pods", &[("accept", accept)])).boxed()
    }),
    ("table", |_, _| future::ready(get("/api/v1/pods", &[("accept", AS_TABLE)])).boxed()),
    ("table of wide rows", |watched, turn| wide_table(watched, turn).boxed()),
    ("list with a long selector", |watched, _| future::ready(get(long_selector(watched, ""), &[])).boxed()),
    ("list with a set selector", |watched, _| future::ready(get(set_selector(watched, ""), &[])).boxed()),
    ("list with a long field selector", |watched, _| {
        let fields: Vec<_> = (0..watched.of(2_000, 200)).map(|index| format!("metadata.name!=n{index}")).collect();
        future::ready(get(with_query("/api/v1/pods", &[("fieldSelector", &fields.join(","))]), &[])).boxed()
    }),
    ("watch with a long selector", |watched, _| {
        let path = long_selector(
            watched,
            "&watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
        );
        future::ready(get(path, &[])).boxed()
    }),
    ("watch from the start", |_, _| future::ready(get("/api/v1/pods?watch=1&timeoutSeconds=1", &[])).boxed()),
    ("forged page token", |watched, _| {
        let token = "A".repeat(watched.of(60_000, 1_000));
        future::ready(get(with_query("/api/v1/pods", &[("limit", "1"), ("continue", &token)]), &[])).boxed()
    }),
    ("metrics", |_, _| future::ready(get("/metrics", &[])).boxed()),
    ("discovery", |_, _| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        future::ready(get("/apis", &[("accept", accept)])).boxed()
    }),
    ("OpenAPI v2", |_, _| future::ready(get("/openapi/v2", &[])).boxed()),
    ("OpenAPI v3", |_, _| future::ready(get("/openapi/v3/api/v1", &[])).boxed()),
    ("create, 250 KiB", |watched, turn| {
        let body = object(turn, watched.of(240 << 10, 20 << 10), r#"{"":0}"#);
        future::ready(send(Method::POST, CONFIGMAPS, "application/json", body)).boxed()
    }),
    ("create, 3 MiB", |watched, turn| {
        let body = object(turn, watched.of(29 * (1 << 20) / 10, 300_000), r#"{"":0}"#);
        future::ready(send(Method::POST, CONFIGMAPS, "application/json", body)).boxed()
    }),
    ("create, YAML of 250 KiB", |watched, _| {
        let body = yaml(watched.of(240 << 10, 20 << 10));
        future::ready(send(Method::POST, CONFIGMAPS, "application/yaml", body)).boxed()
    }),
    ("create, YAML of 3 MiB", |watched, _| {
        let body = yaml(watched.of(29 * (1 << 20) / 10, 300_000));
        future::ready(send(Method::POST, CONFIGMAPS, "application/yaml", body)).boxed()
    }),
    ("create, labels", |watched, turn| {
        let labels: serde_json::Map<_, _> =
            (0..watched.of(8_000, 500)).map(|index| (format!("l{index}"), "v".into())).collect();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("labels{turn}"), "labels": labels}});
        future::ready(send(Method::POST, CONFIGMAPS, "application/json", body.to_string())).boxed()
    }),
    ("merge patch, 250 KiB", |watched, turn| {
        let bytes = watched.of(240 << 10, 20 << 10);
        patched(watched, turn, "merge", MERGE_PATCH, values(r#"{"x":["#, r#"{"":0}"#, bytes, "]}")).boxed()
    }),
    ("JSON patch, 10,000 operations", |watched, turn| {
        let operation = r#"{"op":"add","path":"/data/a","value":"b"}"#;
        let body = values("[", operation, watched.of(10_000, 500) * (operation.len() + 1), "]");
        patched(watched, turn, "operations", JSON_PATCH, body).boxed()
    }),
    ("JSON patch, tests of a large object", |watched, turn| {
        let operation = r#"{"op":"test","path":"/data","value":{"k":""}}"#;
        let body = values("[", operation, watched.of(5_000, 500) * (operation.len() + 1), "]");
        patched(watched, turn, "tests", JSON_PATCH, body).boxed()
    }),
    ("JSON patch, copies that double", |watched, turn| {
        let body = r#"[{"op":"copy","from":"/data","path":"/metadata/annotations"},{"op":"copy","from":"/metadata","path":"/metadata/x"},{"op":"copy","from":"/metadata","path":"/metadata/y"},{"op":"copy","from":"/metadata","path":"/metadata/z"},{"op":"copy","from":"/metadata","path":"/metadata/a"}]"#;
        patched(watched, turn, "copies", JSON_PATCH, body.into()).boxed()
    }),
    ("strategic patch, long lists", |watched, turn| strategic(watched, turn).boxed()),
    ("apply, many fields", |watched, turn| {
        let data: serde_json::Map<_, _> =
            (0..watched.of(8_000, 500)).map(|index| (format!("k{index}"), "v".into())).collect();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("applied{turn}")}, "data": data});
        let path = format!("{CONFIGMAPS}/applied{turn}?fieldManager=m&force=true");
        future::ready(send(Method::PATCH, path, APPLY_PATCH, body.to_string())).boxed()
    }),
    ("apply over many managers", |watched, turn| over_managers(watched, turn).boxed()),
    ("small change of a large object", |watched, turn| {
        patched(watched, turn, "label", MERGE_PATCH, r#"{"metadata":{"labels":{"a":"b"}}}"#.into()).boxed()
    }),
    ("definition, wrong everywhere", |watched, turn| {
        let names: Vec<_> = (0..watched.of(20_000, 500)).map(|index| format!("Bad_{index}")).collect();
        let mut definition = definition(&format!("bad{turn}"), &json!({"type": "object"}));
        definition["spec"]["names"]["shortNames"] = json!(names);
        future::ready(send(Method::POST, DEFINITIONS, "application/json", definition.to_string())).boxed()
    }),
    ("definition, large schema", |watched, turn| {
        let properties: serde_json::Map<_, _> = (0..watched.of(4_000, 100))
            .map(|index| (format!("p{index}"), json!({"type": "object", "properties": {"a": {"type": "string"}}})))
            .collect();
        let definition = definition(&format!("large{turn}"), &json!({"type": "object", "properties": properties}));
        future::ready(send(Method::POST, DEFINITIONS, "application/json", definition.to_string())).boxed()
    }),
    ("deletion of a collection", |watched, turn| collection(watched, turn).boxed()),
];

fn values(head: &str, item: &str, bytes: usize, tail: &str) -> Bytes {
    let items = vec![item; bytes / (item.len() + 1)].join(",");
    format!("{head}{items}{tail}").into()
}

fn object(turn: usize, bytes: usize, item: &str) -> Bytes {
    let head = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"o{turn}-{bytes}"}},"x":["#);
    values(&head, item, bytes, "]}")
}

fn yaml(bytes: usize) -> Bytes {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: yaml-\nx:\n";
    let item = "- {a: 1, b: [x, y]}\n";
    format!("{head}{}", item.repeat(bytes / item.len())).into()
}

fn long_selector(watched: &Watched, more: &str) -> String {
    let conditions: Vec<_> = (0..watched.of(3_000, 100)).map(|index| format!("l{index}!=v{index}")).collect();
    with_query("/api/v1/pods", &[("labelSelector", &conditions.join(","))]) + more
}

fn set_selector(watched: &Watched, more: &str) -> String {
    let values: Vec<_> = (0..watched.of(7_000, 100)).map(|index| format!("v{index}")).collect();
    with_query("/api/v1/pods", &[("labelSelector", &format!("app notin ({})", values.join(",")))]) + more
}

/// Creates an object of some 500 KiB, and returns a patch of it.
async fn patched(watched: &Watched, turn: usize, name: &str, kind: &'static str, patch: Bytes) -> Asked {
    let name = format!("{name}{turn}");
    let data: serde_json::Map<_, _> =
        (0..watched.of(5_000, 50)).map(|index| (format!("k{index}"), "x".repeat(80).into())).collect();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    watched.client().post(CONFIGMAPS, &body).await.with_code(201);
    send(Method::PATCH, format!("{CONFIGMAPS}/{name}"), kind, patch)
}

/// Creates a pod with a long list of merged items, and returns a patch of all of them.
async fn strategic(watched: &Watched, turn: usize) -> Asked {
    let items = |value: &str| -> Vec<_> {
        (0..watched.of(3_000, 50)).map(|index| json!({"name": format!("V{index}"), "value": value})).collect()
    };
    let spec = |value: &str| json!({"containers": [{"name": "c", "image": "i", "env": items(value)}]});
    let name = format!("strategic{turn}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec("a")});
    watched.client().post("/api/v1/namespaces/default/pods", &pod).await.with_code(201);
    let patch = json!({"spec": spec("b")}).to_string();
    send(Method::PATCH, format!("/api/v1/namespaces/default/pods/{name}"), STRATEGIC_PATCH, patch)
}

/// Lets managers apply different fields of one object, and returns a further apply.
async fn over_managers(watched: &Watched, turn: usize) -> Asked {
    let name = format!("managed{turn}");
    let body = |manager: usize| {
        let data: serde_json::Map<_, _> =
            (0..watched.of(800, 20)).map(|index| (format!("m{manager}-{index}"), "v".into())).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    };
    let path = |manager: usize| format!("{CONFIGMAPS}/{name}?fieldManager=m{manager}&force=true");
    for manager in 0..12 {
        watched.client().patch(&path(manager), APPLY_PATCH, &body(manager)).await;
    }
    send(Method::PATCH, path(12), APPLY_PATCH, body(12).to_string())
}

fn definition(name: &str, schema: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": format!("{name}s"), "singular": name, "kind": format!("Kind{name}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    })
}

/// Creates objects whose table has cells that each search a whole object, and returns a request of the table.
async fn wide_table(watched: &Watched, turn: usize) -> Asked {
    let name = format!("wide{turn}");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = definition(&name, &schema);
    let columns: Vec<_> =
        (0..50).map(|index| json!({"name": format!("c{index}"), "type": "string", "jsonPath": "..*"})).collect();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!(columns);
    watched.client().post(DEFINITIONS, &definition).await.with_code(201);
    let items = vec![json!({"a": 1, "b": [2, 3]}); watched.of(20_000, 1_000)];
    for index in 0..3 {
        let object = json!({"apiVersion": "example.com/v1", "kind": format!("Kind{name}"),
            "metadata": {"name": format!("w{index}")}, "spec": {"items": items}});
        watched
            .client()
            .post(&format!("/apis/example.com/v1/namespaces/default/{name}s"), &object)
            .await
            .with_code(201);
    }
    get(format!("/apis/example.com/v1/{name}s"), &[("accept", AS_TABLE)])
}

/// Creates objects in a namespace, and returns the deletion of them all with a selector.
async fn collection(watched: &Watched, turn: usize) -> Asked {
    let path = format!("/api/v1/namespaces/collection{turn}/configmaps");
    for index in 0..watched.of(2_000, 20) {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{index}")}});
        watched.client().post(&path, &body).await.with_code(201);
    }
    let query = long_selector(watched, "");
    let query = query.split_once('?').unwrap().1;
    send(Method::DELETE, format!("{path}?{query}"), "application/json", "{}")
}

#[test]
fn no_request_holds_a_worker_for_long() {
    let wanted = std::env::var("ATTACKS").unwrap_or_default();
    let full = matches!(&*wanted, "all" | "workers");
    if !full && !wanted.is_empty() {
        return;
    }
    let watched = Watched::start(full);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("| request | code | ms until answered | worker held, ms |");
    println!("| --- | ---: | ---: | ---: |");
    let mut missed = Vec::new();
    for (name, kind) in KINDS {
        let mut least = Duration::MAX;
        for turn in 0..if full { TRIES } else { 1 } {
            let asked = runtime.block_on(kind(&watched, turn));
            // Background work of the preparation ends first.
            thread::sleep(Duration::from_millis(50));
            watched.longest.store(0, Ordering::Relaxed);
            let request = Client::request(asked.method, &asked.path, &asked.headers, asked.body);
            let answer = runtime.block_on(watched.client().send(request));
            assert_ne!(answer.code, 406, "{name}");
            thread::sleep(Duration::from_millis(5));
            let held = Duration::from_micros(watched.longest.load(Ordering::Relaxed));
            if held < least {
                least = held;
            }
            if turn == 0 {
                print!("| {name} | {} | {:.1} ", answer.code.as_u16(), answer.took.as_secs_f64() * 1e3);
            }
        }
        println!("| {:.2} |", least.as_secs_f64() * 1e3);
        if least > HELD_MAX {
            missed.push(format!("{name}: {least:?}"));
        }
    }
    if full && !cfg!(debug_assertions) {
        assert!(missed.is_empty(), "{missed:#?}");
    }
}
