//! HTTPS: responses equal those without TLS over both versions of HTTP, and misbehaving clients do no harm.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tests::{
    http::{ANSWER_WAIT, Answer, Client, LINE_WAIT, MERGE_PATCH, Step, briefs, watch_list},
    objects::configmap,
    process::{READY, Server},
    tls::{Authority, Files, Trust},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";

/// A server with TLS, and what its clients need.
struct Secured {
    server: Server,
    trust: Trust,
    authority: Authority,
    files: Files,
    _folder: tempfile::TempDir,
}

impl Secured {
    async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let server = Server::start(BINARY, &[&files.flags(), arguments].concat()).await;
        Self { server, trust: authority.trust(), authority, files, _folder: folder }
    }

    fn client(&self) -> Client {
        self.server.client().over_tls(self.trust.clone())
    }

    /// Clients of both versions of HTTP.
    fn clients(&self) -> [Client; 2] {
        [self.client(), self.client().over_http2()]
    }
}

/// Creates an object of about `bytes`.
async fn create_large(client: &Client, name: &str, bytes: usize) {
    let object = configmap(name).with("data", json!({"k": "x".repeat(bytes)}));
    client.create(&object).await;
}

/// Headers that are equal in two responses of one kind.
fn steady(answer: &Answer) -> BTreeMap<String, String> {
    let header = |name: &&str| !["date", "audit-id", "connection", "transfer-encoding"].contains(name);
    let names = answer.headers.keys().map(http::HeaderName::as_str).filter(header);
    names.map(|name| (name.to_owned(), answer.header(name).to_owned())).collect()
}

#[tokio::test]
async fn both_versions_of_http_say_the_same_over_tls_and_in_the_clear() {
    let arguments = ["--populate", "pods=700,nodes=8,namespaces=5,seed=1", "--first-revision", "100"];
    let (secured, open) = tokio::join!(Secured::start(&arguments), Server::start(BINARY, &arguments));
    let [one, two] = secured.clients();
    for path in ["/api/v1/pods?limit=3", "/livez", "/api/v1/namespaces/none/pods/none"] {
        let [one, two] = [one.get(path).await, two.get(path).await];
        assert_eq!((one.code, steady(&one), &one.body), (two.code, steady(&two), &two.body), "{path}");
    }
    let whole = async |client: Client| client.get("/api/v1/pods").await.with_code(200).keys();
    let plain = whole(open.client()).await;
    assert_eq!(plain.len(), 700);
    for client in [one, two, open.client().over_http2()] {
        assert_eq!(whole(client).await, plain, "{client:?}");
        let mut stream = client.watch(&watch_list("/api/v1/pods")).await;
        let events = stream.events(701).await;
        assert!(events[700].ends_initial_state(), "{client:?}: {:?}", events[700]);
    }
}

#[tokio::test]
async fn events_come_as_they_happen() {
    let secured = Secured::start(&[]).await;
    for (client, name) in secured.clients().into_iter().zip(["one", "two"]) {
        let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&fieldSelector=metadata.name={name}")).await;
        client.create(&configmap(name)).await;
        let path = configmap(name).path();
        client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
        client.delete(&path).await.with_code(200);
        let expected = ["ADDED", "MODIFIED", "DELETED"].map(|kind| format!("{kind} default/{name}"));
        assert_eq!(briefs(&watch.events(3).await), expected, "{client:?}");
    }
}

#[tokio::test]
async fn watches_end_cleanly_at_shutdown() {
    let secured = Secured::start(&[]).await;
    let [one, two] = secured.clients();
    let path = format!("{CONFIGMAPS}?watch=1");
    let (mut one, mut two) = (one.watch(&path).await, two.watch(&path).await);
    secured.server.terminate();
    assert!(one.rest(LINE_WAIT).await.is_empty() && two.rest(LINE_WAIT).await.is_empty());
    assert_eq!(secured.server.ended().await.code, Some(0));
}

#[tokio::test]
async fn other_names_are_refused_over_tls_too() {
    let secured = Secured::start(&[]).await;
    let answer = secured.client().get_with("/livez", &[("host", "evil.example")]).await;
    assert_eq!(answer.code, 403);
}

/// Goal: a reader that stops delays no other client and misses no event. Method: more data than sockets hold, read
/// after other clients were served.
#[tokio::test]
async fn a_slow_reader_delays_nobody_and_gets_everything() {
    let secured = Secured::start(&[]).await;
    let writer = secured.client();
    for index in 0..60 {
        create_large(&writer, &format!("a{index:02}"), 200_000).await;
    }
    for client in secured.clients() {
        let mut slow = client.watch(&watch_list(CONFIGMAPS)).await;
        let first = slow.event().await;
        let mut others = client.watch(&watch_list(CONFIGMAPS)).await;
        let events = others.events(61).await;
        assert!(events[60].ends_initial_state());
        let mut seen = vec![first];
        seen.extend(slow.events(60).await);
        assert_eq!(briefs(&seen), briefs(&events), "{client:?}");
    }
}

async fn connections(client: &Client) -> u64 {
    let text = client.get("/metrics").await.with_code(200).text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("cache_connections "));
    line.and_then(|count| count.parse().ok()).expect("a number of connections")
}

/// Waits until only this client's own connection is left.
async fn all_left(client: &Client) {
    let left = async {
        while connections(client).await > 1 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(ANSWER_WAIT, left).await.expect("those that left are noticed");
}

const IDLE: &[u8] = b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn clients_that_leave_are_noticed_however_they_do() {
    let secured = Secured::start(&[]).await;
    let client = secured.client();
    for orderly in [true, false] {
        let mut stream = secured.trust.connect(secured.server.address(), &["http/1.1"]).await.unwrap();
        stream.write_all(IDLE).await.unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        assert!(connections(&client).await > 1);
        if orderly {
            // An orderly client sends close_notify; otherwise the connection just ends.
            stream.shutdown().await.unwrap();
        }
        drop(stream);
        all_left(&client).await;
    }
    drop(client.over_http2().watch(&format!("{CONFIGMAPS}?watch=1")).await);
    all_left(&client).await;
}

/// Sends `bytes`. Returns the server's response up to the end of the connection.
async fn answer(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
    stream.write_all(bytes).await.expect("it takes some");
    let mut answer = Vec::new();
    // The connection may be reset; the response before that counts.
    let _ = timeout(ANSWER_WAIT, stream.read_to_end(&mut answer)).await.expect("the server closes");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_wrong_protocol_is_answered_or_closed_at_once() {
    let secured = Secured::start(&[]).await;
    let plain = answer(&secured.server, IDLE).await;
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(plain, expected);
    let plain = answer(&secured.server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(plain, expected);
    for garbage in [&[0; 64][..], &[0x16; 64], b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"] {
        answer(&secured.server, garbage).await;
    }
    let open = Server::start(BINARY, &[]).await;
    let refused = timeout(ANSWER_WAIT, secured.trust.connect(open.address(), &["h2"])).await.expect("it ends");
    assert!(refused.is_err(), "TLS where there is none");
    for client in [secured.client(), open.client()] {
        client.get("/livez").await.with_code(200);
    }
    all_left(&secured.client()).await;
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_hold_nobody_up() {
    let secured = Secured::start(&[]).await;
    let mut silent = Vec::new();
    for index in 0..200 {
        let mut stream = TcpStream::connect(secured.server.address()).await.unwrap();
        if index % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        }
        silent.push(stream);
    }
    for client in secured.clients() {
        client.get("/livez").await.with_code(200);
    }
    secured.server.terminate();
    assert_eq!(secured.server.ended().await.code, Some(0), "nor the end");
}

#[tokio::test]
async fn a_stranger_is_not_trusted_and_does_no_harm() {
    let secured = Secured::start(&[]).await;
    let stranger = Authority::new().trust();
    let refused = stranger.connect(secured.server.address(), &["h2"]).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("invalid peer certificate")));
    secured.client().get("/livez").await.with_code(200);
}

#[tokio::test]
async fn an_idle_watch_says_that_it_lives() {
    let secured = Secured::start(&["--bookmark-interval", "50ms"]).await;
    for client in secured.clients() {
        let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
        let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={listed}");
        let mut watch = client.watch(&path).await;
        let step = watch.step(LINE_WAIT).await;
        assert!(matches!(&step, Step::Event(event) if event.brief() == "BOOKMARK"), "{client:?}: {step:?}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_one_line_and_exit_code_two() {
    let secured = Secured::start(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let other = secured.authority.issue(folder.path());
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key, other) = (text(&secured.files.cert), text(&secured.files.key), text(&other.key));
    for (flags, why) in [
        (&["--tls-cert", &cert][..], "--tls-key"),
        (&["--tls-key", &key], "--tls-cert"),
        (&["--tls-cert", "/none.crt", "--tls-key", &key], "/none.crt: No such file"),
        (&["--tls-cert", &key, "--tls-key", &key], "tls.key: there is no certificate in it"),
        (&["--tls-cert", &cert, "--tls-key", &cert], "tls.crt: there is no private key in it"),
        (&["--tls-cert", &cert, "--tls-key", &other], "the key is of another certificate"),
    ] {
        let ended = Server::run(BINARY, &[&["serve", "--listen", "127.0.0.1:0"], flags].concat()).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{flags:?}: {ended:?}");
        assert!(ended.stderr.contains(why) && ended.stderr.trim().lines().count() == 1, "{flags:?}: {ended:?}");
    }
    let environment = [("CACHE_SERVER_TLS_CERT", cert.as_str()), ("CACHE_SERVER_TLS_KEY", key.as_str())];
    let server = Server::start_with(BINARY, &environment, &[]).await;
    server.client().over_tls(secured.trust.clone()).get("/livez").await.with_code(200);
}

#[tokio::test]
async fn the_url_it_prints_is_the_one_to_use() {
    let secured = Secured::start(&["--grace", "0s"]).await;
    let flags = secured.files.flags();
    let mut child = tokio::process::Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(flags)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = vec![0; READY.len() + "https://127.0.0.1:".len()];
    child.stdout.take().unwrap().read_exact(&mut line).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&line), format!("{READY}https://127.0.0.1:"));
}
