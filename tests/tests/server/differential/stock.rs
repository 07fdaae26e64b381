//! The stock kube-apiserver and its etcd, as processes that end with the test.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use kube::{Client, Config, config::AuthInfo};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

/// Environment variable for the folder of the programs, in place of the one that `benches/kube-apiserver/prepare`
/// fills.
const FOLDER: &str = "DIFFERENTIAL_KUBE_APISERVER";
/// Timeout until it is ready, and the polling interval. It needs 20 s on two cores.
const READY_WAIT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const TOKEN: &str = "differential";
/// Admission plugins that add values which no client sent, or need objects that controllers create.
const WITHOUT: &str = "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,Priority,NamespaceLifecycle";

/// A running kube-apiserver.
pub(crate) struct Stock {
    pub(crate) client: Client,
    // Fields drop in order: kube-apiserver ends before etcd, and etcd before its files are removed.
    _apiserver: Child,
    _etcd: Child,
    _folder: tempfile::TempDir,
}

/// The folder of the programs; `None` if they were not built.
pub(crate) fn programs() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kube-apiserver");
    let folder = env::var_os(FOLDER).map_or(built, PathBuf::from);
    ["etcd", "kube-apiserver"].iter().all(|name| folder.join(name).is_file()).then_some(folder)
}

impl Stock {
    /// Starts both programs, and waits until kube-apiserver is ready.
    pub(crate) async fn start(programs: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (clients, peers) =
            (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let etcd = spawn(
            Command::new(programs.join("etcd"))
                .arg("--data-dir")
                .arg(folder.path().join("etcd"))
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
                .args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"]),
        );
        write_keys(folder.path());
        let at = |name: &str| folder.path().join(name).display().to_string();
        let port = free_port();
        let apiserver = spawn(
            Command::new(programs.join("kube-apiserver"))
                .args(["--etcd-servers", &clients, "--secure-port", &port.to_string(), "--bind-address", "127.0.0.1"])
                .args(["--cert-dir", &at("certs"), "--service-account-issuer", "https://kubernetes.default.svc"])
                .args([
                    "--service-account-key-file",
                    &at("sa.pub"),
                    "--service-account-signing-key-file",
                    &at("sa.key"),
                ])
                .args(["--token-auth-file", &at("tokens.csv"), "--authorization-mode", "AlwaysAllow"])
                .args(["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", WITHOUT]),
        );
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info = AuthInfo { token: Some(TOKEN.to_owned().into()), ..AuthInfo::default() };
        let client = Client::try_from(config).unwrap();
        let begun = Instant::now();
        while super::send(&client, "GET", "/readyz", None, "").await.is_none_or(|answer| answer.code != 200) {
            assert!(begun.elapsed() < READY_WAIT, "kube-apiserver is not ready");
            sleep(LOOK_EVERY).await;
        }
        Self { client, _apiserver: apiserver, _etcd: etcd, _folder: folder }
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes the signing keys for service accounts, and the test's token.
fn write_keys(folder: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(folder.join("sa.key"), key.serialize_pem()).unwrap();
    fs::write(folder.join("sa.pub"), key.public_key_pem()).unwrap();
    fs::write(folder.join("tokens.csv"), format!("{TOKEN},tests,1,\"system:masters\"\n")).unwrap();
}
