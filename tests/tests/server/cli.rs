//! The command line: `populate` and `churn` against a running server, flags, environment, exit codes.

use std::{collections::BTreeMap, process::Stdio};

use informer_core::wire::watch_event::EventKind;
use serde_json::{Value, json};
use tests::{
    http::Client,
    objects::pod,
    process::{Ended, Server},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::{Child, Command},
};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Every type that the generator creates.
const GENERATED: [&str; 9] = [
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
];

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

async fn items(client: &Client, path: &str) -> Vec<Value> {
    let list = client.get(path).await.with_code(200).json();
    list["items"].as_array().unwrap_or_else(|| panic!("{path}: no items")).clone()
}

/// The numbers of a line by the word before them or after them: `updated 3, created 1`.
fn counts(line: &str) -> BTreeMap<String, u64> {
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2).filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)));
    pairs.collect()
}

/// Asserts one line on stderr, an empty stdout, and this exit code.
fn assert_refused(ended: &Ended, code: i32, why: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{ended:?}");
    let line = ended.stderr.trim_end();
    assert!(line.starts_with("error: ") && line.lines().count() == 1 && line.contains(why), "{why}: {ended:?}");
}

/// Goal: `populate` creates the objects of `--populate`. Method: both with one seed; compare every object except for
/// members that only the server sets.
#[tokio::test]
async fn populate_makes_the_same_objects_as_a_start_with_them() {
    const SPEC: &str = "pods=300,nodes=7,namespaces=5,seed=3";
    let (given, filled) = tokio::join!(Server::start(BINARY, &["--populate", SPEC]), Server::start(BINARY, &[]));
    let ended = Server::run(BINARY, &["populate", "--server", &url(&filled), SPEC]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let mut total = 0;
    for path in GENERATED {
        let (mut given, mut filled) = (items(&given.client(), path).await, items(&filled.client(), path).await);
        total += given.len() as u64;
        for object in given.iter_mut().chain(&mut filled) {
            for member in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                object["metadata"][member].take();
            }
        }
        assert!(given == filled, "{path}: {} and {} objects, not all the same", given.len(), filled.len());
    }
    let counts = counts(&ended.stdout);
    assert_eq!((counts["created"], counts["objects"]), (total, 0), "{ended:?}");

    let again = Server::run(BINARY, &["populate", "--server", &url(&filled), SPEC]).await;
    assert!(again.stdout.starts_with(&format!("created 0 objects, {total} existed already, in ")), "{again:?}");
    assert_eq!(again.code, Some(0), "{again:?}");
}

#[tokio::test]
async fn every_write_of_churn_is_seen() {
    let server = Server::start(BINARY, &["--populate", "pods=60,nodes=3,namespaces=4"]).await;
    let client = server.client();
    let before = client.get("/api/v1/pods").await.with_code(200).resource_version();
    let mut watch = client.watch(&format!("/api/v1/pods?watch=1&resourceVersion={before}")).await;

    let arguments = ["churn", "--server", &url(&server), "--rate", "100/s", "--seconds", "2", "--seed", "5"];
    let ended = Server::run(BINARY, &arguments).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.stdout.trim_end().lines().count(), 1, "{ended:?}");
    let counts = counts(&ended.stdout);
    let (updated, created, deleted) = (counts["updated"], counts["created"], counts["deleted"]);
    let total = usize::try_from(updated + created + deleted).unwrap();
    // A pod's deletion is two events: the deletion mark, then the removal.
    let events = total + usize::try_from(deleted).unwrap();
    assert_eq!(counts["failed"], 0, "{ended:?}");
    assert!((1..=201).contains(&total), "a rate is never exceeded: {ended:?}");

    let last = client.create(&pod("last-of-all")).await;
    let mut seen = BTreeMap::<&str, u64>::new();
    for event in watch.events(events).await {
        *seen.entry(event.kind.as_str()).or_default() += 1;
        assert!((before + 1..last).contains(&event.resource_version()), "{event:?}");
    }
    assert_eq!(watch.event().await.brief(), "ADDED default/last-of-all");
    let seen = |kind: EventKind| seen.get(kind.as_str()).copied().unwrap_or_default();
    let seen = (seen(EventKind::Modified), seen(EventKind::Added), seen(EventKind::Deleted));
    assert_eq!(seen, (updated + deleted, created, deleted), "{ended:?}");
    let pods = items(&client, "/api/v1/pods").await;
    assert_eq!(pods.len() as u64, 60 + created - deleted + 1);
}

/// Starts churn without a time limit.
fn spawn_churn(server: &str) -> Child {
    Command::new(BINARY)
        .args(["churn", "--server", server, "--rate", "200/s"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts")
}

/// Sends a signal and waits for the process to end.
async fn signal(child: Child, signal: &str) -> Ended {
    let id = child.id().expect("runs until it is waited for");
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status().await.expect("sh runs");
    assert!(sent.success(), "no signal for {id}");
    let output = child.wait_with_output().await.expect("its output");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn churn_that_is_told_to_stop_says_what_it_did() {
    for name in ["TERM", "INT"] {
        let server = Server::start(BINARY, &[]).await;
        let mut watch = server.client().watch("/api/v1/pods?watch=1").await;
        let churn = spawn_churn(&url(&server));
        // Without pods, the first write creates one.
        assert!(watch.event().await.brief().starts_with("ADDED "));
        let ended = signal(churn, name).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        let counts = counts(&ended.stdout);
        assert!(counts["created"] > 0 && counts["failed"] == 0, "{ended:?}");
    }
}

/// Goal: churn counts failures and continues. Method: a server that lists one pod, refuses every write, and closes
/// every connection after its response.
#[tokio::test]
async fn churn_counts_failures_and_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let churn = spawn_churn(&server);
    let mut writes = 0;
    while writes < 5 {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut start = [0; 64 << 10];
        let read = stream.read(&mut start).await.unwrap();
        let (code, body) = if start[..read].starts_with(b"GET ") {
            ("200 OK", r#"{"items":[{"metadata":{"name":"a","namespace":"ns"}}]}"#)
        } else {
            writes += 1;
            ("503 Service Unavailable", "")
        };
        let answer = format!("HTTP/1.1 {code}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    let ended = signal(churn, "TERM").await;
    let counts = counts(&ended.stdout);
    assert!(ended.code == Some(0) && counts["failed"] >= 4, "{ended:?}");
    assert_eq!((counts["updated"], counts["created"], counts["deleted"]), (0, 0, 0), "{ended:?}");
    assert!(ended.stdout.contains("; first failure: cannot "), "{ended:?}");
}

#[tokio::test]
async fn what_cannot_be_used_is_one_line_and_exit_code_two() {
    const NOWHERE: &str = "http://127.0.0.1:1";
    for (arguments, why) in [
        (&[][..], "such as serve"),
        (&["populate"], "required"),
        (&["populate", "--server", NOWHERE], "required"),
        (&["populate", "pods=1"], "required"),
        (&["populate", "--server", NOWHERE, "cats=1"], "unknown key"),
        (&["populate", "--server", NOWHERE, "pods=1,nodes=0"], "at least one node"),
        (&["populate", "--server", "127.0.0.1:8001", "pods=1"], "only http:// URLs"),
        (&["populate", "--server", "https://127.0.0.1:8001", "pods=1"], "only http:// URLs"),
        (&["populate", "--server", "http://", "pods=1"], "not a URL"),
        (&["populate", "--server", "http://127.0.0.1:8001/api", "pods=1"], "only a host and a port"),
        (&["populate", "--server", NOWHERE, "--rate", "1/s", "pods=1"], "--rate"),
        (&["churn", "--server", NOWHERE], "required"),
        (&["churn", "--server", NOWHERE, "--rate", "fast"], "not a rate"),
        (&["churn", "--server", NOWHERE, "--rate", "0/s"], "not a rate"),
        (&["churn", "--server", NOWHERE, "--rate", "1/s", "--seconds", "0"], "--seconds"),
        (&["churn", "--server", NOWHERE, "--rate", "1/s", "--seed", "x"], "--seed"),
        (&["churn", "--server", "ftp://a", "--rate", "1/s"], "only http:// URLs"),
        (&["serve", "--unsent-bytes", "0"], "more than 0"),
        (&["serve", "--unsent-bytes", "4GiB"], "less than 2GiB"),
        (&["serve", "--unsent-bytes", "some"], "not a size"),
        (&["serve", "--object-bytes-max", "0"], "more than 0"),
    ] {
        assert_refused(&Server::run(BINARY, arguments).await, 2, why);
    }
}

/// Goal: packagers get completions and manual pages from the program itself. Method: each names a flag of `serve`.
#[tokio::test]
async fn completions_and_manual_pages_have_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Server::run(BINARY, &["completions", shell]).await;
        assert!(script.code == Some(0) && script.stdout.contains("data-dir"), "{shell}: {script:?}");
    }
    let page = Server::run(BINARY, &["man"]).await;
    assert!(page.code == Some(0) && page.stdout.contains(".TH cache-server 1"), "{page:?}");
    let folder = tempfile::tempdir().unwrap();
    let written = Server::run(BINARY, &["man", "--dir", folder.path().to_str().unwrap()]).await;
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{written:?}");
    let page = std::fs::read_to_string(folder.path().join("cache-server-serve.1")).unwrap();
    assert!(page.contains("data\\-dir"), "{page}");
    assert_refused(
        &Server::run(BINARY, &["man", "--dir", "/dev/null/pages"]).await,
        1,
        "cannot write to /dev/null/pages",
    );
    assert_refused(&Server::run(BINARY, &["completions", "command.com"]).await, 2, "command.com");
}

/// Runs both commands against `server`.
async fn both(server: &str) -> [Ended; 2] {
    let populate = Server::run(BINARY, &["populate", "--server", server, "pods=1,nodes=1,namespaces=1"]).await;
    [populate, Server::run(BINARY, &["churn", "--server", server, "--rate", "1/s", "--seconds", "1"]).await]
}

#[tokio::test]
async fn a_server_that_is_not_there_is_one_line_and_exit_code_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for ended in both(&server).await {
        assert_refused(&ended, 1, &format!("cannot reach {server}: Connection refused"));
    }
    for ended in both("http://no-such-host.invalid").await {
        assert_refused(&ended, 1, "cannot reach http://no-such-host.invalid:80: ");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_http_is_one_line_and_exit_code_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1_024]).await;
            let _ = stream.write_all(b"220 mail.example.com\r\nwho\r\nare\r\nyou\r\n\r\n").await;
        }
    });
    for ended in both(&server).await {
        assert_refused(&ended, 1, &format!("the connection to {server} broke: "));
    }
}

#[tokio::test]
async fn a_refusal_is_one_line_and_exit_code_one() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "you\nmay\tnot"});
    for (answer, why) in [
        (ResponseTemplate::new(403).set_body_json(status), ": you may not"),
        (ResponseTemplate::new(502).set_body_string("<html>\n<body>"), ": the server answered 502 Bad Gateway"),
        (ResponseTemplate::new(200).set_body_string("<html>\n<body>"), "answered something else than was asked for"),
    ] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(answer).mount(&server).await;
        for ended in both(&server.uri()).await {
            assert_refused(&ended, 1, why);
        }
    }
}

#[tokio::test]
async fn flags_can_come_from_the_environment() {
    let environment =
        [("CACHE_SERVER_POPULATE", "pods=5,nodes=2,namespaces=1"), ("CACHE_SERVER_UNSENT_BYTES", "32KiB")];
    let server = Server::start_with(BINARY, &environment, &[]).await;
    assert_eq!(items(&server.client(), "/api/v1/pods").await.len(), 5);

    let url = url(&server);
    let populate =
        [("CACHE_SERVER_SERVER", url.as_str()), ("CACHE_SERVER_POPULATE", "pods=9,nodes=2,namespaces=1,seed=2")];
    let ended = Server::run_with(BINARY, &populate, &["populate"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(items(&server.client(), "/api/v1/pods").await.len(), 14);

    let churn = [
        ("CACHE_SERVER_SERVER", url.as_str()),
        ("CACHE_SERVER_RATE", "50/s"),
        ("CACHE_SERVER_SECONDS", "1"),
        ("CACHE_SERVER_SEED", "7"),
    ];
    let ended = Server::run_with(BINARY, &churn, &["churn"]).await;
    assert!(ended.code == Some(0) && ended.stdout.contains("/s of 50/s, p50 "), "{ended:?}");

    for (name, command) in [
        ("CACHE_SERVER_UNSENT_BYTES", &["serve", "--listen", "127.0.0.1:0"][..]),
        ("CACHE_SERVER_OBJECT_BYTES_MAX", &["serve", "--listen", "127.0.0.1:0"]),
        ("CACHE_SERVER_LISTEN", &["serve"]),
        ("CACHE_SERVER_SERVER", &["populate", "pods=1"]),
        ("CACHE_SERVER_RATE", &["churn", "--server", "http://127.0.0.1:1"]),
    ] {
        assert_refused(&Server::run_with(BINARY, &[(name, "nonsense")], command).await, 2, "nonsense");
    }
}

/// Goal: a server that was given a policy does not start without it. Method: the variable of the removed flag, then an
/// empty one beside those that Kubernetes sets for a Service of the server's name.
#[tokio::test]
async fn the_variable_of_a_removed_flag_is_refused() {
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for policy in
        [("CACHE_SERVER_AUTHORIZATION_POLICY_FILE", "/policies.jsonl"), ("CACHE_SERVER_AUTHORIZATION", "policy")]
    {
        assert_refused(&Server::run_with(BINARY, &[policy], &serve).await, 2, "use --authorization rbac");
    }
    let harmless = [
        ("CACHE_SERVER_AUTHORIZATION_POLICY_FILE", ""),
        ("CACHE_SERVER_PORT", "tcp://10.0.0.1:8001"),
        ("CACHE_SERVER_SERVICE_HOST", "10.0.0.1"),
    ];
    let server = Server::start_with(BINARY, &harmless, &[]).await;
    server.client().get("/readyz").await.with_code(200);
}
