//! A stock kube-apiserver and its etcd with the same objects, to run the same load for comparison.
//!
//! Built by `benches/kube-apiserver/prepare`. Connections use TLS and a token with all permissions. Priority and
//! fairness is disabled, so that only the cost of the responses is compared.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use cache_server::populate;
use http::Method;
use tokio::task::JoinSet;

use super::{
    Failure,
    server::{Endpoint, settle},
};
use crate::load::{
    client::{Ask, Connection, JSON, Target},
    failure::Failure as LoadFailure,
    writer,
};

/// Timeout of the start, and the interval of checks.
const READY_WAIT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const TOKEN: &str = "numbers";
/// Concurrent requests while it is filled.
const LANES: usize = 8;

/// The etcd with the objects, shared by all starts of kube-apiserver.
pub(crate) struct Cluster {
    binaries: PathBuf,
    folder: tempfile::TempDir,
    etcd: Child,
    etcd_port: u16,
}

/// A running kube-apiserver, killed on drop.
pub(crate) struct Stock {
    child: Child,
    endpoint: Endpoint,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&mut self.etcd);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // No state to save, so it can be killed.
    let _ = child.kill();
    let _ = child.wait();
}

impl Cluster {
    /// Starts etcd and fills it through a kube-apiserver.
    pub(crate) fn start(binaries: &Path, spec: &populate::PopulateSpec) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let (etcd_port, peers) = (free_port()?, free_port()?);
        let (clients, peers) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peers}"));
        let etcd = Command::new(binaries.join("etcd"))
            .arg("--data-dir")
            .arg(folder.path().join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"])
            .args(["--quota-backend-bytes", "4294967296"])
            .stdout(Stdio::null())
            .stderr(log(folder.path(), "etcd")?)
            .spawn()?;
        keys(folder.path())?;
        let cluster = Self { binaries: binaries.to_owned(), folder, etcd, etcd_port };
        let stock = cluster.serve()?;
        fill(&stock, spec)?;
        Ok(cluster)
    }

    /// Starts a kube-apiserver for one measurement, and waits until it is ready and has settled.
    pub(crate) fn serve(&self) -> Result<Stock, Failure> {
        let (folder, port) = (self.folder.path(), free_port()?);
        let at = |name: &str| folder.join(name).display().to_string();
        let child = Command::new(self.binaries.join("kube-apiserver"))
            .args(["--etcd-servers", &format!("http://127.0.0.1:{}", self.etcd_port)])
            .args(["--secure-port", &port.to_string(), "--bind-address", "127.0.0.1", "--cert-dir", &at("certs")])
            .args(["--service-account-key-file", &at("sa.pub"), "--service-account-signing-key-file", &at("sa.key")])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args(["--token-auth-file", &at("tokens.csv"), "--authorization-mode", "AlwaysAllow"])
            .args(["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"])
            .args(["--enable-priority-and-fairness=false", "--max-requests-inflight", "10000"])
            .args(["--max-mutating-requests-inflight", "10000"])
            .stdout(Stdio::null())
            .stderr(log(folder, "kube-apiserver")?)
            .spawn()?;
        let endpoint = Endpoint {
            url: format!("https://127.0.0.1:{port}"),
            ca: None,
            token_file: Some(folder.join("token")),
            pid: child.id(),
        };
        let stock = Stock { child, endpoint };
        stock.ready()?;
        settle(stock.endpoint.pid)?;
        Ok(stock)
    }
}

impl Stock {
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn target(&self) -> Result<Target, Failure> {
        Target::new(&self.endpoint.access()).map_err(Failure::Server)
    }

    fn ready(&self) -> Result<(), Failure> {
        let (start, target) = (Instant::now(), self.target()?);
        let runtime = runtime()?;
        while start.elapsed() < READY_WAIT {
            let asked: Result<_, LoadFailure> =
                runtime.block_on(async { target.connect().await?.send_well(&Ask::get("/readyz")).await });
            if asked.is_ok() {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(Failure::Server(format!("kube-apiserver is not ready after {READY_WAIT:?}")))
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A port that was free a moment ago; another process may take it.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn log(folder: &Path, name: &str) -> Result<File, Failure> {
    Ok(File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?)
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

/// Creates the generator's namespaces, nodes and pods, the pods with their status.
fn fill(stock: &Stock, spec: &populate::PopulateSpec) -> Result<(), Failure> {
    let target = stock.target()?;
    runtime()?.block_on(async {
        // Namespaces and nodes one at a time, in order; then all pods concurrently.
        let (first, rest): (Vec<_>, Vec<_>) = populate::objects(spec)
            .filter(|object| ["namespaces", "nodes", "pods"].contains(&object.plural))
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
