//! `cache-server top` beside a running server: a frame as text, and the screen of a terminal.

use std::{fs, process::Stdio, time::Duration};

use tests::{
    http::Watch,
    objects::configmap,
    process::{Ended, Server},
    tls::{Authority, Files},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// The user of the watches has a name that would clear a terminal.
const TOKENS: &str = "t-carol,\u{1b}[2Jcarol,u1,system:masters\nt-bob,bob,u2\n";

/// A server where roles decide, over TLS, with two watches.
struct Scene {
    server: Server,
    folder: tempfile::TempDir,
    admin: Files,
    _watches: [Watch; 2],
}

impl Scene {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        fs::write(folder.path().join("ca.crt"), authority.pem()).expect("a file");
        fs::write(folder.path().join("tokens.csv"), TOKENS).expect("a file");
        fs::write(folder.path().join("bob"), "t-bob\n").expect("a file");
        let admin = authority.issue_user(folder.path(), "root", &["system:masters"]);
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (ca, tokens) = (at("ca.crt"), at("tokens.csv"));
        let flags = ["--client-ca-file", &ca, "--token-auth-file", &tokens, "--authorization", "rbac"];
        let server = Server::start(BINARY, &[&files.flags()[..], &flags].concat()).await;
        let client = server.client().over_tls(authority.trust()).with_token("t-carol");
        client.create(&configmap("a")).await;
        let mut watches = [
            client.watch_with("/api/v1/configmaps?watch=1", &[("user-agent", "first-agent")]).await,
            client
                .watch_with("/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Da", &[])
                .await,
        ];
        for watch in &mut watches {
            watch.event().await;
        }
        Self { server, folder, admin, _watches: watches }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    async fn top(&self, flags: &[&str]) -> Ended {
        let (url, ca) = (format!("https://{}", self.server.address()), self.path("ca.crt"));
        Server::run(BINARY, &[&["top", "--server", &url, "--certificate-authority", &ca], flags].concat()).await
    }
}

/// Goal: one frame shows what runs in a server, and asks for no more than the caller's rights. Method: an administrator
/// by a certificate, and a user without rights by a token, while two watches of a user with an odd name are open.
#[tokio::test]
async fn a_frame_shows_watches_or_which_right_is_missing() {
    let scene = Scene::start().await;
    let (cert, key) = (scene.admin.cert.display().to_string(), scene.admin.key.display().to_string());
    let all = scene.top(&["--once", "--client-certificate", &cert, "--client-key", &key]).await;
    assert_eq!((all.code, all.stderr.as_str()), (Some(0), ""), "{all:?}");
    for text in
        ["health   ready, ", "MiB resident", "watches  2: 2 live", "lag      0: 2, ", "\nconfigmaps ", "first-agent"]
    {
        assert!(all.stdout.contains(text), "{text}: {}", all.stdout);
    }
    let rows: Vec<&str> = all.stdout.lines().filter(|line| line.contains("carol")).collect();
    assert_eq!(rows.len(), 2, "{}", all.stdout);
    assert!(rows.iter().all(|row| row.contains("live") && row.contains("events")), "{rows:?}");
    assert!(rows.iter().any(|row| row.ends_with("-n default metadata.name=a")), "{rows:?}");
    assert!(all.stdout.chars().all(|letter| letter == '\n' || !letter.is_control()), "{:?}", all.stdout);

    let few = scene.top(&["--token-file", &scene.path("bob")]).await;
    assert_eq!((few.code, few.stderr.as_str()), (Some(0), ""), "{few:?}");
    for text in ["health   ready, ", "metrics  403: needs the right to get /metrics\n", "get /debug/watches\n"] {
        assert!(few.stdout.contains(text), "{text}: {}", few.stdout);
    }
    assert!(!few.stdout.contains("carol"), "{}", few.stdout);

    fs::write(scene.path("bob"), "t-other\n").expect("a file");
    let none = scene.top(&["--token-file", &scene.path("bob")]).await;
    assert!(none.stdout.contains("health   401: the server does not know these credentials"), "{none:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_read_is_one_line() {
    let server = Server::start(BINARY, &[]).await;
    let url = format!("http://{}", server.address());
    server.terminate();
    server.ended().await;
    let gone = Server::run(BINARY, &["top", "--once", "--server", &url]).await;
    let line = format!("error: cannot read {url}: Connection refused");
    assert!(gone.code == Some(1) && gone.stdout.is_empty() && gone.stderr.starts_with(&line), "{gone:?}");
    let flags = ["--server", "https://127.0.0.1:1", "--certificate-authority", "/nowhere"];
    let unusable = Server::run(BINARY, &[&["top"], &flags[..]].concat()).await;
    assert!(unusable.code == Some(2) && unusable.stderr.contains("/nowhere"), "{unusable:?}");
}

/// Leaves the alternate screen.
const RESTORED: &str = "\u{1b}[?1049l";

/// Longest time until a text is on the screen.
const SCREEN_WAIT: Duration = Duration::from_secs(30);

/// Goal: keys and signals work, and the terminal is usable afterwards. Method: the program on a terminal of `script`,
/// ended by `q` and by SIGTERM, and a server that goes away meanwhile.
#[tokio::test]
async fn a_screen_is_drawn_until_a_key_or_a_signal() {
    for by_signal in [false, true] {
        let server = Server::start(BINARY, &["--populate", "pods=7,nodes=1,namespaces=1"]).await;
        let Some(mut script) =
            on_terminal(&format!("{BINARY} top --interval 100ms --server http://{}", server.address()))
        else {
            return;
        };
        let (mut input, mut output) = (script.stdin.take().expect("a pipe"), script.stdout.take().expect("a pipe"));
        until_printed(&mut output, "resident").await;
        server.terminate();
        server.ended().await;
        until_printed(&mut output, "again").await;
        if by_signal {
            let id = script.id().expect("it runs");
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("Linux has it");
            let child = children.split_whitespace().next().expect("the program").to_owned();
            assert!(Command::new("kill").args(["-TERM", &child]).status().await.expect("kill").success());
        } else {
            input.write_all(b"q").await.expect("it reads");
        }
        until_printed(&mut output, RESTORED).await;
        let code = timeout(SCREEN_WAIT, script.wait()).await.expect("it ends").expect("a status").code();
        assert_eq!(code, Some(0), "by_signal: {by_signal}");
    }
}

/// Runs a command on a new terminal; `None` without the program `script`, which CI needs.
fn on_terminal(command: &str) -> Option<Child> {
    let mut script = Command::new("script");
    script.args([
        "--quiet",
        "--return",
        "--flush",
        "--command",
        &format!("stty cols 100 rows 30; exec {command}"),
        "/dev/null",
    ]);
    let spawned = script.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    if spawned.is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the program `script`");
        eprintln!("skipped: there is no program `script`");
    }
    spawned.ok()
}

/// Reads until `text` was printed: one word, because spaces may be movements of the cursor.
async fn until_printed(output: &mut (impl AsyncRead + Unpin), text: &str) {
    let mut printed = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&printed).contains(text) {
            let mut part = [0; 4_096];
            let count = output.read(&mut part).await.expect("the terminal is there");
            assert!(count > 0, "it ended before {text:?}: {}", String::from_utf8_lossy(&printed));
            printed.extend_from_slice(&part[..count]);
        }
    };
    if timeout(SCREEN_WAIT, read).await.is_err() {
        panic!("no {text:?} in {}", String::from_utf8_lossy(&printed));
    }
}
