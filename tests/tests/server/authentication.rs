//! Identity of callers over real sockets: certificates, tokens, Unix sockets, and addresses beyond loopback.

mod provider;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;
use tests::{
    http::{Client, Step},
    objects::configmap,
    process::Server,
    tls::{Authority, Files, own_address},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::sleep,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PODS: &str = "/api/v1/pods";
const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Longest time for which a removed credential may count.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
/// Margin for busy machines.
const MARGIN: Duration = Duration::from_secs(20);

const TOKENS: &str = "t-alice,alice,u1,\"dev,ops\"\nt-bob,bob,u2\n";

/// A server with TLS and every kind of credentials that needs no other server.
struct Guarded {
    server: Server,
    /// Signs the server's certificate.
    authority: Authority,
    /// Signs those of clients.
    clients: Authority,
    folder: tempfile::TempDir,
}

impl Guarded {
    async fn start(listen: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (authority, clients) = (Authority::new(), Authority::new());
        let files = authority.issue(folder.path());
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("clients.crt"), clients.pem()).expect("a file");
        fs::write(at("tokens.csv"), TOKENS).expect("a file");
        let (ca, tokens) = (at("clients.crt"), at("tokens.csv"));
        let flags = ["--client-ca-file", &ca, "--token-auth-file", &tokens, "--log", "cache_server=debug"];
        let arguments = [&files.flags()[..], &flags, arguments].concat();
        let server = Server::start_at(listen, BINARY, &[], &arguments).await;
        Self { server, authority, clients, folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Client {
        Client::new(self.server.address()).over_tls(self.authority.trust())
    }

    fn client_as(&self, files: &Files) -> Client {
        Client::new(self.server.address()).over_tls(self.authority.trust_as(files))
    }

    fn both(client: Client) -> [Client; 2] {
        [client, client.over_http2()]
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < REMOVED_WITHIN + MARGIN, "not in time: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Goal: beyond loopback each request proves who sends it, and learns nothing otherwise. Method: each kind of credentials,
/// valid and not, over both versions of HTTP on an address of this machine.
#[tokio::test]
async fn each_request_proves_who_sends_it() {
    let Some(address) = own_address() else {
        eprintln!("each_request_proves_who_sends_it: skipped, this machine has only loopback addresses");
        return;
    };
    let guarded = Guarded::start(&format!("{address}:0"), &["--host", "cache.example.com"]).await;
    let (folder, stranger) = (guarded.folder.path(), Authority::new());
    let carol = guarded.client_as(&guarded.clients.issue_user(folder, "carol", &["dev"]));
    let nameless = guarded.client_as(&guarded.clients.issue_user(folder, "", &["system:masters"]));
    let (foreign, expired) = (
        guarded.client_as(&stranger.issue_user(folder, "mallory", &["system:masters"])),
        guarded.client_as(&guarded.clients.issue_expired_user(folder, "dave")),
    );
    let none = guarded.client();
    let huge = "x".repeat(50_000);
    for [client, over_http2] in [Guarded::both(none.with_token("t-alice")), Guarded::both(carol)] {
        for client in [client, over_http2] {
            assert_eq!(client.get(PODS).await.code, 200, "{client:?}");
            assert_eq!(client.get_with(PODS, &[("host", "cache.example.com")]).await.code, 200, "{client:?}");
        }
    }
    for refused in [none, nameless, none.with_token("t-carol"), none.with_token("t-alic"), none.with_token(&huge)] {
        for client in Guarded::both(refused) {
            for path in [PODS, "/apis/none.example.com/v1/things", "/metrics", "/none", "/"] {
                let answer = client.get(path).await.with_code(401);
                let expected = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
                });
                assert_eq!(answer.json(), expected, "{path} {client:?}");
            }
        }
    }
    for client in Guarded::both(none) {
        assert_eq!(client.get("/livez").await.code, 200, "probes have no credentials");
    }
    for client in [foreign, expired].map(Guarded::both).concat() {
        assert!(client.try_get(PODS).await.is_err(), "the certificate is refused in the handshake: {client:?}");
    }
    guarded.server.logged("alice").await;
    let log = guarded.server.logged("carol").await;
    assert!(!log.contains("t-alice") && !log.contains("t-carol"), "tokens are not logged: {log}");
}

/// Goal: a certificate counts only while its authority is in the file, on open connections and resumed sessions too.
/// Method: replace the authority while a watch is open.
#[tokio::test]
async fn a_removed_authority_ends_its_clients() {
    let guarded = Guarded::start("127.0.0.1:0", &[]).await;
    let folder = guarded.folder.path();
    let old = guarded.client_as(&guarded.clients.issue_user(folder, "carol", &[]));
    let mut watches = Vec::new();
    for client in Guarded::both(old) {
        watches.push(client.watch(&format!("{CONFIGMAPS}?watch=1")).await);
    }
    let replacement = Authority::new();
    fs::write(guarded.path("clients.crt"), "broken").expect("a file");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(old.get(PODS).await.code, 200, "a broken file removes no authority");
    fs::write(guarded.path("clients.crt"), replacement.pem()).expect("a file");
    let replaced = Instant::now();
    for mut watch in watches {
        let step = watch.step(REMOVED_WITHIN + MARGIN).await;
        assert!(matches!(step, Step::End | Step::Cut(_)), "{step:?}");
        assert!(replaced.elapsed() < REMOVED_WITHIN + Duration::from_secs(2), "{:?}", replaced.elapsed());
    }
    for client in Guarded::both(old) {
        assert!(client.try_get(PODS).await.is_err(), "a session of the old authority does not resume: {client:?}");
    }
    let new = guarded.client_as(&replacement.issue_user(folder, "erin", &[]));
    for client in Guarded::both(new) {
        assert_eq!(client.get(PODS).await.code, 200, "{client:?}");
    }
}

/// Goal: a removed token ends its open watches within ten seconds, and no others.
#[tokio::test]
async fn a_removed_token_ends_its_watches() {
    let guarded = Guarded::start("127.0.0.1:0", &[]).await;
    let [alice, bob] = ["t-alice", "t-bob"].map(|token| guarded.client().with_token(token));
    let path = format!("{CONFIGMAPS}?watch=1");
    let (mut ended, mut stays) = (alice.over_http2().watch(&path).await, bob.watch(&path).await);
    fs::write(guarded.path("tokens.csv"), "t-bob,bob,u2\n").expect("a file");
    let removed = Instant::now();
    let step = ended.step(REMOVED_WITHIN + MARGIN).await;
    assert!(matches!(step, Step::End | Step::Cut(_)), "{step:?}");
    assert!(removed.elapsed() < REMOVED_WITHIN + Duration::from_secs(2), "{:?}", removed.elapsed());
    until("the token is refused", async || alice.get(PODS).await.code == 401).await;
    bob.create(&configmap("a")).await;
    assert_eq!(stays.event().await.brief(), "ADDED default/a", "other watches stay");
}

/// Sends requests with a wrong token and resets each at once, over one connection after the other, until it is aborted: the
/// server drops a request after its first poll.
async fn cut_requests(address: std::net::SocketAddr) {
    let (host, token) = (address.to_string(), "Bearer wrong");
    // `GET http /` as HPACK indices, then `:authority` and `authorization` as literals.
    let mut block = b"\x82\x86\x84\x01".to_vec();
    block.push(u8::try_from(host.len()).expect("a short text"));
    block.extend(host.bytes());
    block.extend(b"\x0f\x08");
    block.push(u8::try_from(token.len()).expect("a short text"));
    block.extend(token.bytes());
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // Few enough for a connection that is no flood.
    for number in (1..20_u32).step_by(2) {
        sent.extend([0, 0, u8::try_from(block.len()).expect("a short block"), 1, 5]);
        sent.extend(number.to_be_bytes());
        sent.extend(&block);
        sent.extend(b"\0\0\x04\x03\0");
        sent.extend(number.to_be_bytes());
        sent.extend(8_u32.to_be_bytes());
    }
    loop {
        let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { continue };
        let _ = stream.write_all(&sent).await;
        // Until the server has read them.
        let _ = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0; 64])).await;
    }
}

/// Goal: no caller can keep a removed token valid. Method: callers without credentials whose requests are cut, all the time,
/// while a token leaves the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_requests_put_off_no_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, TOKENS).expect("a file");
    let server = Server::start(BINARY, &["--token-auth-file", tokens.to_str().expect("is text")]).await;
    let [alice, bob] = ["t-alice", "t-bob"].map(|token| server.client().with_token(token));
    assert_eq!(alice.get(PODS).await.code, 200);
    let floods: Vec<_> = (0..4).map(|_| tokio::spawn(cut_requests(server.address()))).collect();
    fs::write(&tokens, "t-bob,bob,u2\n").expect("a file");
    let removed = Instant::now();
    until("the token is refused", async || alice.get(PODS).await.code == 401).await;
    println!("the token was refused {:.1?} after it was removed", removed.elapsed());
    assert!(removed.elapsed() < REMOVED_WITHIN, "{:?}", removed.elapsed());
    assert_eq!(bob.get(PODS).await.code, 200);
    for flood in floods {
        flood.abort();
    }
}

/// Goal: a token file that becomes a FIFO, which no process writes to, holds up no request, and keeps the tokens. Method:
/// requests over longer than the interval of the checks, and a usable file after it.
#[tokio::test]
async fn a_fifo_as_token_file_holds_nothing_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, TOKENS).expect("a file");
    let server = Server::start(BINARY, &["--token-auth-file", tokens.to_str().expect("is text")]).await;
    let alice = server.client().with_token("t-alice");
    fs::remove_file(&tokens).expect("a file");
    let made = std::process::Command::new("mkfifo").arg(&tokens).status().expect("mkfifo runs");
    assert!(made.success());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        // A request that hangs ends this test by the timeout of its client.
        assert_eq!(alice.get(PODS).await.code, 200);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(server.logged("it is no regular file").await.contains("tokens.csv"));
    fs::remove_file(&tokens).expect("a file");
    fs::write(&tokens, "t-bob,bob,u2\n").expect("a file");
    until("the file is read again", async || alice.get(PODS).await.code == 401).await;
}

/// Sends a request over a Unix socket, and returns the answer.
async fn over_socket(path: &Path, host: &str) -> String {
    let mut stream = UnixStream::connect(path).await.expect("the server listens");
    let request = format!("GET {PODS} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn a_unix_socket_names_its_callers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache.sock");
    // A killed server leaves its file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let text = path.display().to_string();
    let server = Server::start(BINARY, &["--unix-socket", &text, "--log", "cache_server=debug"]).await;
    assert!(over_socket(&path, "localhost").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(over_socket(&path, "evil.example").await.starts_with("HTTP/1.1 403 Forbidden\r\n"));
    server.logged("unix:uid:").await;
    server.terminate();
    assert_eq!(server.ended().await.code, Some(0));
    assert!(!path.exists(), "the file goes with the server");
}

/// Goal: an unsafe combination of flags is one line that says what to do. Method: start the program with each.
#[tokio::test]
async fn unsafe_addresses_are_refused_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, TOKENS).expect("a file");
    let broken = folder.path().join("broken.csv");
    fs::write(&broken, "t-alice,alice\n").expect("a file");
    let [tokens, broken] = [&tokens, &broken].map(|path| path.to_str().expect("is text"));
    for (arguments, line) in [
        (&["--listen", "0.0.0.0:0"][..], "give --tls-cert, --tls-key, and --client-ca-file, --token-auth-file"),
        (&["--listen", "0.0.0.0:0", "--token-auth-file", tokens], "tokens would be sent in the clear"),
        (&["--listen", "127.0.0.1:0", "--token-auth-file", broken], "broken.csv: line 1 has 2 fields"),
        (&["--listen", "127.0.0.1:0", "--service-account-issuer", "http://192.0.2.1"], "over https only"),
        (&["--listen", "127.0.0.1:0", "--token-review"], "--upstream"),
    ] {
        let ended = Server::run(BINARY, &[&["serve"], arguments].concat()).await;
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(line) && !ended.stderr.contains("t-alice"), "{arguments:?}: {}", ended.stderr);
    }
}
