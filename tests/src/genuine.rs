//! A stock kube-apiserver and its etcd as processes of a test. `benches/kube-apiserver/prepare` builds them.
//!
//! INVARIANT: neither a process nor a file outlives its `Genuine`, however the test ends; see `processes`.
//! INVARIANT: nothing but clients of the test and kube-apiserver itself writes objects: no controllers run. So
//! namespaces have no service accounts, and deleted namespaces stay until a test finalizes them.

mod audit;
mod counters;
mod door;
mod etcd;
mod identities;

use std::{
    collections::BTreeMap,
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::sleep};

pub use audit::RecordedRead;
pub use counters::Counters;
pub use door::Door;
pub use etcd::EtcdState;
pub use identities::{Identity, token_of};

use crate::{
    etcd::{EtcdKeys, run},
    http::Client,
    processes::{Exit, ProcessGroup, free_ports},
};
use identities::IdentityFiles;

/// Environment variable for the folder of the programs. Default: `target/kube-apiserver`.
pub const FOLDER: &str = "GENUINE_FOLDER";
/// Environment variable that is `required` where missing programs are an error, as in the nightly run.
pub const REQUIREMENT: &str = "GENUINE";
/// Names of the kube-apiservers' processes.
const SERVERS: [&str; 2] = ["kube-apiserver", "kube-apiserver-2"];
/// User of the group `system:masters`, who may do everything.
pub const ADMIN: &str = "admin";
/// User of a cache: may get, list and watch every type, and write nothing.
pub const CACHE: &str = "cache";

/// Minor version whose well-known roles, columns and messages this server has.
const OUR_MINOR: u32 = 36;
/// Timeout until kube-apiserver is ready, and the pause between two checks. It needs 10 s on two idle cores.
const READY_WAIT: Duration = Duration::from_secs(180);
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Attempts to start: another process may take a port before the program listens on it.
const STARTS_MAX: usize = 3;
/// Address that kube-apiserver writes into the endpoints of its own service. Never used for connections.
const ADVERTISED: &str = "192.0.2.1";

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct GenuineSettings {
    /// Users beside [`ADMIN`] and [`CACHE`].
    pub identities: Vec<Identity>,
    /// Admission plugins that are disabled, separated by commas. Default `ServiceAccount`: it rejects pods in namespaces
    /// without a service account, which a controller would create.
    pub without_plugins: &'static str,
    /// More flags of kube-apiserver.
    pub flags: Vec<String>,
    /// Number of kube-apiservers on the one etcd, 1 or 2.
    pub servers: usize,
    /// True to record lists and watches, for [`Genuine::reads`].
    pub records_reads: bool,
}

impl Default for GenuineSettings {
    fn default() -> Self {
        Self {
            identities: Vec::new(),
            without_plugins: "ServiceAccount",
            flags: Vec::new(),
            servers: 1,
            records_reads: false,
        }
    }
}

/// A running kube-apiserver, or two, with its etcd. Authorizes by RBAC, and authenticates the tokens of [`token_of`].
pub struct Genuine {
    // Drops before the certificates and the data are removed with its folder.
    processes: ProcessGroup,
    programs: PathBuf,
    settings: GenuineSettings,
    ports: Ports,
    /// A client without credentials that trusts the server's certificate.
    anonymous: Client,
    files: IdentityFiles,
}

/// The ports of one cluster.
#[derive(Clone, Copy, Debug)]
struct Ports {
    apiservers: [u16; SERVERS.len()],
    etcd: u16,
    peers: u16,
}

impl Ports {
    fn free() -> Self {
        let [first, second, etcd, peers] = free_ports();
        Self { apiservers: [first, second], etcd, peers }
    }
}

/// Folder in which the programs are if they were built.
pub(crate) fn folder() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kube-apiserver");
    env::var_os(FOLDER).map_or(built, PathBuf::from)
}

/// Folder of the programs. Prints one line and returns `None` if they were not built and are not required.
///
/// # Panics
/// If they were not built, and [`REQUIREMENT`] is `required`.
pub fn programs(test: &str) -> Option<PathBuf> {
    let folder = folder();
    if ["etcd", "kube-apiserver"].iter().all(|name| folder.join(name).is_file()) {
        return Some(folder);
    }
    let is_required = env::var(REQUIREMENT).is_ok_and(|value| value == "required");
    assert!(!is_required, "{test}: no kube-apiserver in {}", folder.display());
    eprintln!("{test}: skipped, benches/kube-apiserver/prepare was not run");
    None
}

impl Genuine {
    /// Starts a cluster for a test with default settings. `None`, with one line, if the programs were not built.
    pub async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, GenuineSettings::default()).await
    }

    /// Like [`start`](Self::start), with other settings.
    pub async fn start_with(test: &str, settings: GenuineSettings) -> Option<Self> {
        let programs = programs(test)?;
        let mut failures = Vec::new();
        while failures.len() < STARTS_MAX {
            match Self::try_start(&programs, &settings).await {
                Ok(started) => return Some(started),
                Err(exit) => failures.push(exit),
            }
        }
        panic!("kube-apiserver does not start: {failures:#?}");
    }

    /// The cluster shared by all tests of this process that do not stop it, count its requests or need settings.
    pub async fn shared(test: &str) -> Option<&'static Self> {
        static SHARED: OnceCell<Option<Genuine>> = OnceCell::const_new();
        programs(test)?;
        SHARED.get_or_init(|| Self::start(test)).await.as_ref()
    }

    async fn try_start(programs: &Path, settings: &GenuineSettings) -> Result<Self, Exit> {
        let ports = Ports::free();
        let processes = ProcessGroup::new();
        let mut identities = vec![Identity::new(ADMIN, &["system:masters"]), Identity::new(CACHE, &[])];
        identities.extend(settings.identities.iter().cloned());
        let address = SocketAddr::from(([127, 0, 0, 1], ports.apiservers[0]));
        let files = IdentityFiles::write(processes.folder(), address, &identities);
        let anonymous = Client::new(address).over_tls(files.trust());
        let (programs, settings) = (programs.to_owned(), settings.clone());
        let mut started = Self { processes, programs, settings, ports, anonymous, files };
        started.start_etcd();
        for server in 0..started.settings.servers {
            started.serve(server).await?;
        }
        started.let_the_cache_read().await;
        Ok(started)
    }

    /// Starts etcd, with the data of an earlier process.
    pub fn start_etcd(&mut self) {
        let flags = etcd_flags(self.processes.folder(), self.ports);
        self.processes.spawn("etcd", &self.programs.join("etcd"), &flags);
    }

    /// Saves a backup of etcd with `etcdctl`, as operators do. Returns its path.
    pub fn snapshot(&self) -> PathBuf {
        let path = self.processes.folder().join("snapshot");
        let endpoint = format!("http://{}", self.etcd());
        run(Command::new(self.programs.join("etcdctl"))
            .args(["--endpoints", &endpoint, "snapshot", "save"])
            .arg(&path));
        path
    }

    /// Replaces the data of etcd by a backup's with `etcdutl`, and starts it with that. The kube-apiservers must be stopped.
    pub fn restore_snapshot(&mut self, snapshot: &Path) {
        self.kill_etcd();
        let data = self.processes.folder().join("data");
        fs::remove_dir_all(&data).unwrap();
        let peers = format!("http://127.0.0.1:{}", self.ports.peers);
        run(Command::new(self.programs.join("etcdutl"))
            .args(["snapshot", "restore", "--name", "default", "--initial-cluster", &format!("default={peers}")])
            .args(["--initial-advertise-peer-urls", &peers, "--data-dir"])
            .args([&data, snapshot]));
        self.start_etcd();
    }

    /// Stops the process of the first kube-apiserver, as a machine without CPU time does: it answers nothing, and no
    /// connection ends.
    pub fn pause(&self) {
        self.processes.signal(SERVERS[0], "STOP");
    }

    /// Continues a paused kube-apiserver.
    pub fn resume(&self) {
        self.processes.signal(SERVERS[0], "CONT");
    }

    /// Kills etcd, as a crash does. kube-apiserver goes on and tries to reach it.
    pub fn kill_etcd(&mut self) {
        self.processes.kill("etcd");
    }

    /// Starts a kube-apiserver and waits until it is ready.
    async fn serve(&mut self, server: usize) -> Result<(), Exit> {
        let program = self.programs.join("kube-apiserver");
        self.processes.spawn(SERVERS[server], &program, &self.apiserver_flags(server));
        let (begun, admin) = (Instant::now(), self.client_at(server, ADMIN));
        loop {
            if admin.try_get("/readyz").await.is_ok_and(|answer| answer.code == 200) {
                return Ok(());
            }
            if let Some(exit) = self.processes.exited() {
                return Err(exit);
            }
            assert!(begun.elapsed() < READY_WAIT, "kube-apiserver is not ready: {}", self.processes.log());
            sleep(CHECK_EVERY).await;
        }
    }

    fn apiserver_flags(&self, server: usize) -> Vec<String> {
        let at = |name: &str| self.processes.folder().join(name).display().to_string();
        let mut flags: Vec<String> = [
            ("etcd-servers", format!("http://127.0.0.1:{}", self.ports.etcd)),
            // Compaction is the test's decision.
            ("etcd-compaction-interval", "0".to_owned()),
            ("secure-port", self.ports.apiservers[server].to_string()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("advertise-address", ADVERTISED.to_owned()),
            ("tls-cert-file", at("tls.crt")),
            ("tls-private-key-file", at("tls.key")),
            ("cert-dir", at("certs")),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("service-account-key-file", at("sa.pub")),
            ("service-account-signing-key-file", at("sa.key")),
            ("token-auth-file", at("tokens.csv")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("disable-admission-plugins", self.settings.without_plugins.to_owned()),
        ]
        .map(|(name, value)| format!("--{name}={value}"))
        .into();
        if self.settings.records_reads {
            flags.extend(audit::flags(self.processes.folder()));
        }
        flags.extend(self.settings.flags.iter().cloned());
        flags
    }

    /// Lets [`CACHE`] read everything, and waits until the authorizer knows that.
    async fn let_the_cache_read(&self) {
        let admin = self.client(ADMIN);
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        admin.create_manifest(&cluster_role("cache-reader", &rules)).await;
        admin.create_manifest(&cluster_role_binding("cache-reader", "cache-reader", "User", CACHE)).await;
        let (begun, cache) = (Instant::now(), self.client(CACHE));
        while cache.get("/api/v1/secrets?limit=1").await.code != 200 {
            assert!(begun.elapsed() < READY_WAIT, "the role of {CACHE} has no effect");
            sleep(CHECK_EVERY).await;
        }
    }

    /// Address of the first kube-apiserver, for HTTPS. The same after a restart.
    pub fn address(&self) -> SocketAddr {
        self.address_of(0)
    }

    /// Address of one kube-apiserver, counted from zero.
    pub fn address_of(&self, server: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.apiservers[server]))
    }

    /// Minor version of the release, such as 36.
    pub async fn minor(&self) -> u32 {
        let version = self.client(ADMIN).get("/version").await.with_code(200).json();
        version["minor"].as_str().and_then(|minor| minor.parse().ok()).expect("a number")
    }

    /// Returns true if the release is the one whose tables and texts this server has. Prints one line otherwise.
    pub async fn is_of_our_release(&self, test: &str) -> bool {
        let minor = self.minor().await;
        if minor != OUR_MINOR {
            eprintln!("{test}: skipped, it compares with 1.{OUR_MINOR}, not with 1.{minor}");
        }
        minor == OUR_MINOR
    }

    /// A client of the first kube-apiserver with a user's token. Trusts the server's certificate only.
    pub fn client(&self, user: &str) -> Client {
        self.client_at(0, user)
    }

    /// A client of one kube-apiserver, counted from zero.
    pub fn client_at(&self, server: usize, user: &str) -> Client {
        Client::new(self.address_of(server)).over_tls(self.files.trust()).with_token(&token_of(user))
    }

    /// A client without credentials.
    pub const fn anonymous(&self) -> Client {
        self.anonymous
    }

    /// A client of another server, with a user's token. Trusts the authority of this cluster's certificates only.
    pub fn client_of(&self, address: SocketAddr, user: &str) -> Client {
        self.anonymous_of(address).with_token(&token_of(user))
    }

    /// Like [`client_of`](Self::client_of), without credentials.
    pub fn anonymous_of(&self, address: SocketAddr) -> Client {
        Client::new(address).over_tls(self.files.trust())
    }

    /// Opens a plain HTTP address that sends a user's token.
    pub async fn door(&self, user: &str) -> Door {
        Door::open(self.address(), self.files.trust(), &token_of(user)).await
    }

    /// Path of a kubeconfig with a user's token: [`ADMIN`], [`CACHE`] or a user of the settings.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.files.kubeconfig(user)
    }

    /// Writes a kubeconfig with a user's token and another address of the server, such as a relay's. Returns its path.
    pub fn kubeconfig_at(&self, user: &str, address: SocketAddr) -> PathBuf {
        self.files.kubeconfig_at(user, address)
    }

    /// Path of the authority's certificate, as PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.files.ca_file()
    }

    /// A client of kube with a user's token.
    pub async fn kube_client(&self, user: &str) -> kube::Client {
        let file = Kubeconfig::read_from(self.kubeconfig(user)).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }

    /// Kills the first kube-apiserver, as a crash does. Its connections are reset.
    pub fn kill(&mut self) {
        self.kill_server(0);
    }

    /// Kills one kube-apiserver, counted from zero.
    pub fn kill_server(&mut self, server: usize) {
        self.processes.kill(SERVERS[server]);
    }

    /// Starts the first kube-apiserver again, with the same port and data, and waits until it is ready. Kills it before
    /// if it runs.
    pub async fn restart(&mut self) {
        self.restart_server(0).await;
    }

    /// Like [`restart`](Self::restart), for one kube-apiserver, counted from zero.
    pub async fn restart_server(&mut self, server: usize) {
        self.kill_server(server);
        self.serve(server).await.unwrap_or_else(|exit| panic!("kube-apiserver does not start again: {exit:?}"));
    }

    /// Removes the history before the present from etcd, and returns the present revision.
    pub async fn compact(&self) -> u64 {
        let revision = self.keys().revision().await;
        self.keys().compact(revision).await;
        revision
    }

    /// The state of etcd, for [`restore`](Self::restore).
    pub async fn state(&self) -> EtcdState {
        EtcdState::read(&self.keys()).await
    }

    /// Makes all objects again what they were, except for those that kube-apiserver writes by itself. Its caches and
    /// watches see that as deletions and changes; its next consistent read waits for them.
    pub async fn restore(&self, state: &EtcdState) {
        state.restore(&self.keys()).await;
    }

    /// The keys of etcd.
    pub const fn keys(&self) -> EtcdKeys {
        EtcdKeys::new(Client::new(self.etcd()))
    }

    /// Address of etcd.
    pub const fn etcd(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.ports.etcd)
    }

    /// The lists and watches that reached the server so far, also before its restarts. None if the settings do not
    /// request the record.
    pub fn reads(&self) -> Vec<RecordedRead> {
        audit::reads(self.processes.folder())
    }

    /// Number of reviews of rights that reached the server so far, by their caller, like [`reads`](Self::reads).
    pub fn reviews(&self) -> BTreeMap<String, usize> {
        audit::reviews(self.processes.folder())
    }

    /// Counters of the first kube-apiserver now.
    pub async fn counters(&self) -> Counters {
        self.counters_of(0).await
    }

    /// Counters of one kube-apiserver, counted from zero.
    pub async fn counters_of(&self, server: usize) -> Counters {
        Counters::parse(self.client_at(server, ADMIN).get("/metrics").await.with_code(200).text())
    }
}

fn etcd_flags(folder: &Path, ports: Ports) -> Vec<String> {
    let clients = format!("http://127.0.0.1:{}", ports.etcd);
    let peers = format!("http://127.0.0.1:{}", ports.peers);
    [
        ("data-dir", folder.join("data").display().to_string()),
        ("listen-client-urls", clients.clone()),
        ("advertise-client-urls", clients),
        ("listen-peer-urls", peers.clone()),
        ("initial-advertise-peer-urls", peers.clone()),
        ("initial-cluster", format!("default={peers}")),
        // A test does not need its data after a crash of the machine.
        ("unsafe-no-fsync", "true".to_owned()),
    ]
    .map(|(name, value)| format!("--{name}={value}"))
    .into()
}

/// A ClusterRole.
pub fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    })
}

/// A ClusterRoleBinding of a role to one `User` or `Group`.
pub fn cluster_role_binding(name: &str, role: &str, kind: &str, subject: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    })
}
