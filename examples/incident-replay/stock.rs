//! A stock kube-apiserver with its etcd, filled once for all acts.

use std::{path::PathBuf, process::Command, sync::Arc};

use cache_server::populate::{self, GeneratedObject};
use http::{Method, StatusCode};
use measured::Failure;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    daemon::{Daemon, free_port, path},
    http::{Target, drain},
    identities::{IdentityFiles, OPERATOR},
    plan::{Act, Sizes, StockReads},
};

/// Concurrent requests while it is filled.
const LANES: usize = 16;
/// Flag with which kube-apiserver 1.36 reads lists of an exact resourceVersion from etcd. Before 1.31 it read lists
/// without one from there too.
const FROM_ETCD: &str = "--feature-gates=ListFromCacheSnapshot=false";
/// Flags without flow control. The bound on requests in flight is above all that the agents send at once.
const NO_LIMITS: [&str; 5] = [
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight",
    "100000",
    "--max-mutating-requests-inflight",
    "100000",
];

/// The etcd with the objects, and the programs.
pub(crate) struct StockCluster {
    programs: PathBuf,
    folder: tempfile::TempDir,
    etcd: Daemon,
    etcd_port: u16,
    reads: StockReads,
}

impl StockCluster {
    /// Starts an empty etcd. It does not wait for the disk.
    pub(crate) fn start(programs: PathBuf, reads: StockReads) -> Result<Self, Failure> {
        let folder = crate::daemon::folder()?;
        let (etcd_port, peers) = (free_port()?, free_port()?);
        let (clients, peers) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new(programs.join("etcd"));
        command
            .args(["--data-dir", &path(&folder.path().join("etcd")), "--unsafe-no-fsync"])
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--quota-backend-bytes", "4294967296"]);
        let etcd = Daemon::start(&mut command, folder.path().join("etcd.log"))?;
        Ok(Self { programs, folder, etcd, etcd_port, reads })
    }

    /// Process id of etcd.
    pub(crate) fn etcd(&self) -> u32 {
        self.etcd.id()
    }

    /// Starts a kube-apiserver for an act.
    pub(crate) fn serve(&self, act: Act, port: u16, files: &IdentityFiles) -> Result<Daemon, Failure> {
        let mut command = Command::new(self.programs.join("kube-apiserver"));
        command
            .args(["--etcd-servers", &format!("http://127.0.0.1:{}", self.etcd_port)])
            .args(["--secure-port", &port.to_string(), "--bind-address", "127.0.0.1"])
            .args(["--cert-dir", &path(&self.folder.path().join("certs"))])
            .args(["--tls-cert-file", &path(&files.certificate), "--tls-private-key-file", &path(&files.key)])
            .args(["--service-account-key-file", &path(&files.signing_public_key)])
            .args(["--service-account-signing-key-file", &path(&files.signing_key)])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args(["--token-auth-file", &path(&files.tokens), "--authorization-mode", "AlwaysAllow"])
            .args(["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"]);
        match act {
            Act::Lists | Act::Streams => command.args(NO_LIMITS),
            Act::Queued => &mut command,
        };
        if self.reads == StockReads::Etcd {
            command.arg(FROM_ETCD);
        }
        Daemon::start(&mut command, self.folder.path().join("kube-apiserver.log"))
    }

    /// Creates the namespaces, nodes and pods of a run through kube-apiserver, as a cluster's clients do.
    pub(crate) async fn fill(target: &Target, sizes: &Sizes) -> Result<(), Failure> {
        let plurals = ["namespaces", "nodes", "pods"];
        let objects = populate::objects(&sizes.populate()).filter(|object| plurals.contains(&object.plural));
        let (first, pods): (Vec<_>, Vec<_>) = objects.partition(|object| object.plural != "pods");
        store(target, &first).await?;
        let pods = Arc::new(pods);
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            let (target, pods) = (target.clone(), Arc::clone(&pods));
            lanes.spawn(async move {
                let part: Vec<GeneratedObject> = pods.iter().skip(lane).step_by(LANES).cloned().collect();
                store(&target, &part).await
            });
        }
        while let Some(ended) = lanes.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// Creates objects one after the other, pods with their status.
async fn store(target: &Target, objects: &[GeneratedObject]) -> Result<(), Failure> {
    let mut wire = target.connect(OPERATOR).await?;
    for object in objects {
        let mut json: Value = serde_json::from_slice(&object.json)?;
        let text = |member: &str| json["metadata"][member].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let inside = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let collection = format!("/api/{}{inside}/{}", object.version, object.plural);
        let mut requests = vec![(Method::POST, collection.clone())];
        if object.plural == "pods" {
            requests.push((Method::PUT, format!("{collection}/{name}/status")));
        }
        for (method, path) in requests {
            let answer = wire.send(method, &path, &json).await?;
            // It creates some namespaces itself.
            if !answer.status().is_success() && answer.status() != StatusCode::CONFLICT {
                return Err(format!("{path}: HTTP {}", answer.status()).into());
            }
            drain(answer.into_body()).await?;
            // The server gives these itself, and refuses an update with others.
            for member in ["uid", "creationTimestamp", "managedFields"] {
                json["metadata"][member] = json!(null);
            }
        }
    }
    Ok(())
}
