//! The server of one act, on one port, with one set of objects; killed and started again while agents use it.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Method, StatusCode};
use measured::Failure;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    daemon::{Daemon, free_port, path},
    http::{Target, drain},
    identities::{IdentityFiles, OPERATOR},
    manifests,
    plan::{Act, NodePods, Side, Sizes},
    stock::StockCluster,
};

/// Pause between two attempts of a request that must succeed.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// A server of an act.
pub(crate) struct Host<'a> {
    pub(crate) act: Act,
    sizes: Sizes,
    files: &'a IdentityFiles,
    /// `None`: this project's server.
    stock: Option<&'a StockCluster>,
    folder: tempfile::TempDir,
    port: u16,
    pub(crate) target: Target,
    running: Option<Daemon>,
}

impl<'a> Host<'a> {
    /// Prepares a server that does not run yet.
    pub(crate) fn new(
        act: Act,
        sizes: Sizes,
        files: &'a IdentityFiles,
        stock: Option<&'a StockCluster>,
    ) -> Result<Self, Failure> {
        let (folder, port) = (crate::daemon::folder()?, free_port()?);
        manifests::write(&folder.path().join("flow-control"))?;
        let target = Target::new(SocketAddr::from(([127, 0, 0, 1], port)), files.client_config()?);
        Ok(Self { act, sizes, files, stock, folder, port, target, running: None })
    }

    pub(crate) const fn side(&self) -> Side {
        if self.stock.is_some() { Side::KubeApiserver } else { Side::CacheServer }
    }

    /// Process id of etcd, if the server has one.
    pub(crate) fn etcd(&self) -> Option<u32> {
        self.stock.map(StockCluster::etcd)
    }

    /// Starts the process and returns its id; it is not ready yet.
    pub(crate) fn launch(&mut self) -> Result<u32, Failure> {
        let daemon = match self.stock {
            Some(stock) => stock.serve(self.act, self.port, self.files)?,
            None => self.launch_ours()?,
        };
        let id = daemon.id();
        self.running = Some(daemon);
        Ok(id)
    }

    fn launch_ours(&self) -> Result<Daemon, Failure> {
        let data = self.folder.path().join("data");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["server", "serve", "--listen", &format!("127.0.0.1:{}", self.port), "--data-dir", &path(&data)])
            .args(["--tls-cert", &path(&self.files.certificate), "--tls-key", &path(&self.files.key)])
            .args(["--list-encoding", self.act.encoding()]);
        // Later starts find the objects in the folder.
        if !data.exists() {
            let spec = self.sizes.populate();
            let (pods, nodes, namespaces, seed) = (spec.pods, spec.nodes, spec.namespaces, spec.seed);
            command.args(["--populate", &format!("pods={pods},nodes={nodes},namespaces={namespaces},seed={seed}")]);
        }
        if self.act == Act::Queued {
            let manifests = self.folder.path().join("flow-control");
            command.args(["--token-auth-file", &path(&self.files.tokens)]).args(["--flow-config", &path(&manifests)]);
        }
        Daemon::start(&mut command, self.log())
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    /// Kills the process, as the kernel kills one that takes too much memory.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// True if the process runs no more. An error if it ended by itself with an error.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(Daemon::has_ended)
    }

    /// The end of the process's log.
    pub(crate) fn log_end(&self) -> String {
        self.running.as_ref().map(Daemon::log_end).unwrap_or_default()
    }

    /// Creates the manifests of act 2 in a server that stores them.
    pub(crate) async fn apply_manifests(target: Target) -> Result<(), Failure> {
        for object in manifests::served()? {
            let mut wire = target.connect(OPERATOR).await?;
            let answer = wire.send(Method::POST, object.collection, &object.json).await?;
            if !answer.status().is_success() && answer.status() != StatusCode::CONFLICT {
                return Err(format!("{}: HTTP {}", object.collection, answer.status()).into());
            }
        }
        Ok(())
    }
}

/// Waits until the server is ready.
pub(crate) async fn ready(target: Target) {
    loop {
        let answered = async {
            let mut wire = target.connect(OPERATOR).await?;
            let answer = wire.get("/readyz").await?;
            let is_ready = answer.status() == StatusCode::OK;
            drain(answer.into_body()).await?;
            Ok::<_, Failure>(is_ready)
        };
        if answered.await.unwrap_or(false) {
            return;
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Version of the newest state of the pods.
pub(crate) async fn position(target: Target) -> Result<u64, Failure> {
    let list = target.call(OPERATOR, Method::GET, "/api/v1/pods?limit=1", &Value::Null).await?;
    version_of(&list)
}

/// Changes one pod of each node, and writes the version of each change to `marks`.
pub(crate) async fn write_marks(target: Target, places: Vec<Arc<NodePods>>, marks: Arc<Vec<AtomicU64>>) {
    let mut writers = JoinSet::new();
    for (node, place) in places.into_iter().enumerate() {
        let (target, marks) = (target.clone(), Arc::clone(&marks));
        writers.spawn(async move {
            let change = json!({"metadata": {"annotations": {"incident-replay/mark": fastrand::u64(..).to_string()}}});
            loop {
                match target
                    .call(OPERATOR, Method::PATCH, &place.marked, &change)
                    .await
                    .and_then(|pod| version_of(&pod))
                {
                    Ok(version) => return marks[node].store(version, Relaxed),
                    Err(_) => sleep(RETRY_EVERY).await,
                }
            }
        });
    }
    while writers.join_next().await.is_some() {}
}

fn version_of(object: &Value) -> Result<u64, Failure> {
    let version = object["metadata"]["resourceVersion"].as_str().ok_or("an answer without a resourceVersion")?;
    Ok(version.parse()?)
}
