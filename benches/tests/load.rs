//! Tests the load tool as a program, against this project's server with various flags, and against servers that break
//! the protocol.
//!
//! INVARIANT: no test depends on timing. The benches measure costs; these tests check correctness.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

const PODS: u64 = 300;

/// A server process, killed on drop.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_benches-cache-server"))
            .args(["serve", "--listen", "127.0.0.1:0", "--populate"])
            .arg(format!("pods={PODS},nodes=10,namespaces=3,seed=1"))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
        Self { child, url: url.expect("it listens") }
    }

    /// Runs the load tool against the server; the run must succeed.
    fn load(&self, arguments: &str) -> Value {
        let pid = self.child.id();
        let flags = format!("{arguments} --server {} --pid {pid} --settle 0 --json", self.url);
        let output = load(&flags);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{flags}: {stderr}");
        let report = json(&output);
        assert_eq!(report["errors"], serde_json::json!({}), "{flags}");
        let idle = report["serverProcess"]["rssIdleBytes"].as_u64().unwrap();
        let peak = report["serverProcess"]["rssPeakBytes"].as_u64().unwrap();
        assert!(idle > 0 && peak >= idle, "{flags}: {report}");
        report
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_load")).args(arguments.split_whitespace()).output().unwrap()
}

/// Parses stdout, which must be a single line.
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Runs every scenario with `flags` for the connection.
fn every_scenario(server: &Server, flags: &str) {
    let count = |report: &Value, name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    let run = |scenario: &str| {
        let report = server.load(&format!("{scenario} {flags}"));
        assert!(count(&report, "requests") > 0, "{report}");
        report
    };
    let list = run("list --clients 3 --rounds 2");
    assert_eq!((count(&list, "objects"), count(&list, "objectsPerClient")), (6 * PODS, PODS));
    assert!(list["firstObjectMillis"]["p50"].as_f64() <= list["syncMillis"]["p50"].as_f64());
    assert_eq!(count(&run("list --clients 2 --gzip"), "objectsPerClient"), PODS);
    let selected = run("list --field-selector spec.nodeName=node-{i%1} --counts-may-differ");
    assert!(count(&selected, "objects") < PODS);
    let paged = run("paged --clients 2 --limit 70");
    assert_eq!((count(&paged, "objectsPerClient"), count(&paged, "pages")), (PODS, 10));
    let stream = run("watch-list --clients 5 --hold 0.1");
    assert_eq!((count(&stream, "objectsPerClient"), count(&stream, "bookmarks")), (PODS, 5));
    assert!(stream["serverProcess"]["rssHeldBytes"].is_u64());
    let idle = run("idle --clients 20 --seconds 0.1");
    assert_eq!((count(&idle, "requests"), count(&idle, "objects")), (20, 0));
    let slow = run("slow-readers --clients 2 --rate 20MB");
    assert_eq!((count(&slow, "objectsPerClient"), count(&slow, "resumed")), (PODS, 2));
    assert_eq!(count(&run("slow-readers --of list --rate 20MB"), "objectsPerClient"), PODS);
    assert_eq!(count(&run("slow-readers --rate 100kB --seconds 0.2"), "unfinished"), 1);
}

#[test]
fn every_scenario_runs_over_http_1_and_2() {
    let server = Server::start(&[]);
    for flags in ["", "--http 2", "--http 2 --streams 4 --threads 2"] {
        every_scenario(&server, flags);
    }
}

#[test]
fn every_scenario_runs_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = (text(&certificate), text(&key));
    let server = Server::start(&["--tls-cert", &certificate, "--tls-key", &key]);
    for flags in [format!("--ca {certificate}"), format!("--ca {certificate} --http 2"), "--insecure".to_owned()] {
        every_scenario(&server, &flags);
    }
    let stranger = load(&format!("list --server {} --ca {}", server.url, other_authority(folder.path())));
    assert_eq!(stranger.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("FAILED 1 x tls: "));
}

/// Goal: scenarios with writes report each delivery and the size of the objects. Method: a small run of each.
#[test]
fn writes_are_found_by_all_they_concern() {
    let server = Server::start(&[]);
    for (scenario, events) in [
        (
            "fanout --clients 6 --scope label --groups 3 --objects 7 --rate 100 --burst 5 --seconds 0.5 --warm-up 0.1",
            100,
        ),
        ("reconnect-storm --clients 5 --objects 4 --rate 100 --burst 10 --seconds 0.1 --http 2 --streams 3", 50),
        ("reconnect-storm --clients 5 --objects 4 --rate 100 --burst 10 --seconds 0.1 --return watch-list", 20),
    ] {
        let flags = format!("{scenario} --bytes 1 --server {} --pid {} --json", server.url, server.child.id());
        let output = load(&flags);
        assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
        let report = json(&output);
        let counts = ["events", "lost", "duplicated", "strange", "neverDelivered"].map(|name| report[name].as_u64());
        assert_eq!(counts, [Some(events), Some(0), Some(0), Some(0), Some(0)], "{flags}: {report}");
        assert!(report["objectBytes"].is_null() || report["objectBytes"].as_u64() > Some(100), "{report}");
    }
}

fn other_authority(folder: &Path) -> String {
    let path = folder.join("other.crt");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&path, made.cert.pem()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn flags_that_cannot_be_used_are_one_line_and_exit_code_2() {
    for flags in [
        "",
        "dance",
        "list",
        "list --server nowhere",
        "list --server ftp://127.0.0.1:1",
        "list --server http://127.0.0.1:1/api",
        "list --server http://127.0.0.1:1 --clients 0",
        "list --server http://127.0.0.1:1 --clients 4000000000",
        "list --server http://127.0.0.1:1 --http 3",
        "list --server http://127.0.0.1:1 --path pods",
        "list --server http://127.0.0.1:1 --insecure",
        "list --server http://127.0.0.1:1 --pid 4000000000",
        "list --server http://127.0.0.1:1 --token-file /nowhere",
        "list --server http://127.0.0.1:1 --accept application/vnd.kubernetes.protobuf",
        "list --server https://127.0.0.1:1",
        "list --server https://127.0.0.1:1 --ca /nowhere",
        "list --server https://127.0.0.1:1 --ca /nowhere --insecure",
        "list --server https://127.0.0.1:1 --insecure --client-cert /nowhere",
        "list --server http://127.0.0.1:1 --expect 1 --counts-may-differ",
        "slow-readers --server http://127.0.0.1:1 --rate fast",
        "idle --server http://127.0.0.1:1 --seconds -1",
        "idle --server http://127.0.0.1:1 --expect 1",
        "list --server http://127.0.0.1:1 --streams 2",
        "fanout --server http://127.0.0.1:1 --groups 2",
        "fanout --server http://127.0.0.1:1 --warm-up -1",
        "fanout --server http://127.0.0.1:1 --rate 1000000 --seconds 1000000",
        "reconnect-storm --server http://127.0.0.1:1 --warm-up 1",
    ] {
        let output = load(flags);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{flags}: {stderr}");
        assert!(stderr.starts_with("error: ") && output.stdout.is_empty(), "{flags}: {stderr}");
    }
}

/// Starts a server that sends each connection the next of these responses and closes it. Responses to several requests
/// of one connection are separated by a zero byte.
fn answering(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answer.split('\0') {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap() == 0 {
                        break;
                    }
                    request.extend(byte);
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    url
}

fn chunked(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len())
}

fn pods(count: usize) -> String {
    let item = r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}"#;
    let items = vec![item; count].join(",");
    format!(r#"{{"kind":"PodList","metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
}

fn page(position: u32, token: &str) -> String {
    format!(r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{position}","continue":"{token}"}},"items":[]}}"#)
}

/// Goal: no bad response counts as success. Method: one server for each kind of bad response.
#[test]
fn answers_that_are_not_whole_are_counted_and_are_exit_code_1() {
    let end = "0\r\n\r\n";
    let added = "{\"type\":\"ADDED\",\"object\":{}}\n";
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}"#;
    for (scenario, answers, error) in [
        ("list", vec![chunked(&pods(2))], "short"),
        ("list", vec![chunked("{\"kind\":") + end], "protocol"),
        ("list", vec!["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_owned()], "short"),
        ("list", vec!["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_owned()], "status503"),
        ("list", vec!["SSH-2.0\r\n\r\n".to_owned()], "protocol"),
        ("list", vec![String::new()], "reset"),
        ("list --clients 3", vec![chunked(&pods(2)) + end, chunked(&pods(2)) + end, chunked(&pods(1)) + end], "count"),
        ("list --expect 3", vec![chunked(&pods(2)) + end], "count"),
        ("watch-list", vec![chunked(added) + end], "ended"),
        ("watch-list", vec![chunked(added)], "short"),
        ("watch-list", vec![chunked("no event at all, but long\n")], "protocol"),
        ("watch-list", vec![chunked(&format!("{added}{expired}\n")) + end], "errorEvent410"),
        ("paged", vec![chunked(&page(1, "next")) + end + "\0" + &chunked(&page(2, "")) + end], "protocol"),
        ("slow-readers --cuts-are-good", vec![chunked(added) + end, chunked(&pods(1)) + end], "ended"),
        ("slow-readers --cuts-are-good", vec![chunked(added)], "connect"),
        ("slow-readers --cuts-are-good", vec![String::new(), chunked(&pods(1)) + end], "reset"),
        ("idle --seconds 60", vec![chunked(&pods(1)) + end, chunked(added) + end], "ended"),
    ] {
        let output = load(&format!("{scenario} --json --server {}", answering(answers)));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{scenario}: {stderr}");
        assert_eq!(json(&output)["errors"], serde_json::json!({ error: 1 }), "{scenario}: {stderr}");
    }
}

#[test]
fn cuts_can_be_what_is_looked_for() {
    let afterwards = chunked(&pods(1)) + "0\r\n\r\n";
    let url = answering(vec![chunked("{\"type\":\"ADDED\",\"object\":{}}\n"), afterwards]);
    let output = load(&format!("slow-readers --cuts-are-good --json --server {url}"));
    assert!(output.status.success());
    assert_eq!(json(&output)["cut"], 1);
}
