//! A stock kube-apiserver and its etcd with the same objects, to run the same load for comparison.
//!
//! Built by `benches/kube-apiserver/prepare`. Connections use TLS and a token with all permissions. Priority and
//! fairness is disabled, so that only the cost of the responses is compared.

use std::{
    fs, io,
    net::TcpListener,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cache_server::populate;
use http::Method;
use tokio::task::JoinSet;

use super::{
    Failure,
    processes::{self, RunningProcess, log},
    server::{Endpoint, TlsPair, ready, runtime, settle},
};
use crate::load::{
    client::{Connection, JSON},
    failure::Failure as LoadFailure,
    writer,
};

/// Timeout of the start.
const READY_WAIT: Duration = Duration::from_secs(180);
const TOKEN: &str = "numbers";
const PORTS: Range<u16> = 20_000..32_000;
const PORT_TRIES: u32 = 100;
/// Concurrent requests while it is filled.
const LANES: usize = 8;

/// The etcd with the objects, shared by all starts of kube-apiserver.
pub(crate) struct Cluster {
    binaries: PathBuf,
    etcd: RunningProcess,
    etcd_port: u16,
    tls: TlsPair,
    /// Removed on drop, after etcd has ended.
    folder: tempfile::TempDir,
}

/// A running kube-apiserver, killed on drop.
pub(crate) struct Stock {
    endpoint: Endpoint,
    /// Time from its start until it was ready.
    pub(crate) ready_after: Duration,
    _process: RunningProcess,
}

impl Cluster {
    /// Starts etcd and fills it through a kube-apiserver.
    pub(crate) fn start(binaries: &Path, spec: &populate::PopulateSpec) -> Result<Self, Failure> {
        let cluster = Self::empty(binaries)?;
        fill(&cluster.serve()?, spec, &["namespaces", "nodes", "pods"])?;
        Ok(cluster)
    }

    /// Starts etcd. It does not wait for the disk.
    pub(crate) fn empty(binaries: &Path) -> Result<Self, Failure> {
        Self::empty_with(binaries, &["--unsafe-no-fsync"])
    }

    /// Starts etcd as operators do: each batch of writes is synced to the disk.
    pub(crate) fn durable(binaries: &Path) -> Result<Self, Failure> {
        Self::empty_with(binaries, &[])
    }

    fn empty_with(binaries: &Path, flags: &[&str]) -> Result<Self, Failure> {
        let folder = processes::folder()?;
        let (etcd_port, peers) = (free_port()?, free_port()?);
        let (clients, peers) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new(binaries.join("etcd"));
        command
            .arg("--data-dir")
            .arg(folder.path().join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(["--quota-backend-bytes", "4294967296"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log(folder.path(), "etcd")?);
        let etcd = RunningProcess::start(&mut command)?;
        keys(folder.path())?;
        let tls = TlsPair::write(folder.path())?;
        Ok(Self { binaries: binaries.to_owned(), etcd, etcd_port, tls, folder })
    }

    /// Starts a kube-apiserver for one measurement, and waits until it is ready and has settled.
    pub(crate) fn serve(&self) -> Result<Stock, Failure> {
        self.serve_with(&[])
    }

    /// Like [`serve`](Self::serve), with more flags.
    pub(crate) fn serve_with(&self, flags: &[&str]) -> Result<Stock, Failure> {
        let (folder, port) = (self.folder.path(), free_port()?);
        let at = |name: &str| folder.join(name).display().to_string();
        let mut command = Command::new(self.binaries.join("kube-apiserver"));
        command
            .args(["--etcd-servers", &format!("http://127.0.0.1:{}", self.etcd_port)])
            .args(["--secure-port", &port.to_string(), "--bind-address", "127.0.0.1", "--cert-dir", &at("certs")])
            .args(["--tls-cert-file", &at("tls.crt"), "--tls-private-key-file", &at("tls.key")])
            .args(["--service-account-key-file", &at("sa.pub"), "--service-account-signing-key-file", &at("sa.key")])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args(["--token-auth-file", &at("tokens.csv"), "--authorization-mode", "AlwaysAllow"])
            .args(["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"])
            .args(["--enable-priority-and-fairness=false", "--max-requests-inflight", "10000"])
            .args(["--max-mutating-requests-inflight", "10000"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log(folder, "kube-apiserver")?);
        let begun = Instant::now();
        let process = RunningProcess::start(&mut command)?;
        let endpoint = Endpoint {
            url: format!("https://127.0.0.1:{port}"),
            ca: Some(self.tls.certificate.clone()),
            token_file: Some(folder.join("token")),
            pid: process.id(),
        };
        ready(&endpoint, READY_WAIT)?;
        let stock = Stock { endpoint, ready_after: begun.elapsed(), _process: process };
        settle(stock.endpoint.pid)?;
        Ok(stock)
    }

    /// etcd, over plain HTTP without a token.
    pub(crate) fn etcd(&self) -> Endpoint {
        let url = format!("http://127.0.0.1:{}", self.etcd_port);
        Endpoint { url, ca: None, token_file: None, pid: self.etcd.id() }
    }
}

impl Stock {
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// A port that was free a moment ago, below those that the system gives to outgoing connections.
fn free_port() -> Result<u16, Failure> {
    let bound = (0..PORT_TRIES).find_map(|_| TcpListener::bind(("127.0.0.1", fastrand::u16(PORTS))).ok());
    Ok(bound.ok_or_else(|| io::Error::other("no port is free"))?.local_addr()?.port())
}

/// Writes the signing key of service accounts and the token of the load tool.
fn keys(folder: &Path) -> Result<(), Failure> {
    let key = rcgen::KeyPair::generate()?;
    fs::write(folder.join("sa.key"), key.serialize_pem())?;
    fs::write(folder.join("sa.pub"), key.public_key_pem())?;
    fs::write(folder.join("tokens.csv"), format!("{TOKEN},numbers,1,\"system:masters\"\n"))?;
    fs::write(folder.join("token"), TOKEN)?;
    Ok(())
}

/// Creates the generator's objects of these types, pods with their status.
pub(crate) fn fill(stock: &Stock, spec: &populate::PopulateSpec, types: &[&str]) -> Result<(), Failure> {
    let target = stock.endpoint.target()?;
    runtime()?.block_on(async {
        // Namespaces and nodes one at a time, in order; then all pods concurrently.
        let (first, rest): (Vec<_>, Vec<_>) = populate::objects(spec)
            .filter(|object| types.contains(&object.plural))
            .partition(|object| object.plural != "pods");
        let mut connection = target.connect().await?;
        for object in first {
            store(&mut connection, &object).await?;
        }
        let mut tasks = JoinSet::new();
        let rest = std::sync::Arc::new(rest);
        for lane in 0..LANES {
            let (target, rest) = (target.clone(), std::sync::Arc::clone(&rest));
            tasks.spawn(async move {
                let mut connection = target.connect().await?;
                for object in rest.iter().skip(lane).step_by(LANES) {
                    store(&mut connection, object).await?;
                }
                Ok::<_, LoadFailure>(())
            });
        }
        while let Some(lane) = tasks.join_next().await {
            lane.map_err(|error| Failure::Server(error.to_string()))??;
        }
        Ok(())
    })
}

async fn store(connection: &mut Connection, object: &populate::GeneratedObject) -> Result<(), LoadFailure> {
    let protocol = |error| LoadFailure::new(crate::load::failure::Kind::Protocol, error);
    let mut json: serde_json::Value = serde_json::from_slice(&object.json).map_err(protocol)?;
    let text = |json: &serde_json::Value, member: &str| json["metadata"][member].as_str().map(str::to_owned);
    let (namespace, name) = (text(&json, "namespace"), text(&json, "name").unwrap_or_default());
    let inside = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    let collection = format!("/api/{}{inside}/{}", object.version, object.plural);
    writer::create(connection, &collection, json.to_string()).await?;
    if object.plural == "pods" {
        // Remove our uid and times, which differ from the server's and would be rejected.
        if let Some(metadata) = json["metadata"].as_object_mut() {
            for member in ["uid", "creationTimestamp", "managedFields"] {
                metadata.remove(member);
            }
        }
        let path = format!("{collection}/{name}/status");
        writer::send(connection, Method::PUT, &path, Some((JSON, json.to_string()))).await?;
    }
    Ok(())
}
