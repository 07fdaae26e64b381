//! An etcd of a process of its own as a storage under test: two stores of this process are two servers on it.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use cache_server::{
    config::EtcdConfig,
    storage::{Source, Store, etcd::EtcdStorage},
};
use futures::{FutureExt as _, future::BoxFuture};
use tempfile::TempDir;
use tests::{genuine, relay::Relay};
use tokio::{runtime::Handle, task::block_in_place};

use crate::contract::{Features, Lasting, ObjectWriter, Storage, StoreWriter};

/// The store, through a relay, and another server's on the same etcd.
pub(crate) struct EtcdPair {
    config: EtcdConfig,
    open: Mutex<Arc<EtcdStorage>>,
    other: Arc<EtcdStorage>,
    relay: Relay,
    _etcd: EtcdProcess,
}

/// One member, without syncs to the disk.
pub(crate) struct EtcdProcess {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl EtcdProcess {
    /// Starts it. `None`, with one line, if it was not built.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let program = program(test)?;
        let folder = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = ports.each_ref().map(|port| port.local_addr().unwrap());
        drop(ports);
        let (clients, peers) = (format!("http://{client}"), format!("http://{peer}"));
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, address: client, _folder: folder })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Path of etcd, which needs no kube-apiserver beside it.
fn program(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kube-apiserver");
    let program = env::var_os(genuine::FOLDER).map_or(built, PathBuf::from).join("etcd");
    if !program.is_file() {
        eprintln!("{test}: skipped, benches/kube-apiserver/prepare was not run");
        return None;
    }
    Some(program)
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl EtcdPair {
    /// `None` if etcd was not built.
    pub(crate) async fn start() -> Option<Self> {
        let etcd = EtcdProcess::start("storage")?;
        let relay = Relay::start(etcd.address).await;
        let config = |address| EtcdConfig { endpoints: vec![format!("http://{address}")], ..EtcdConfig::default() };
        let other = Arc::new(EtcdStorage::open(&config(etcd.address)).await.unwrap());
        let config = config(relay.address());
        let open = Mutex::new(Arc::new(EtcdStorage::open(&config).await.unwrap()));
        Some(Self { config, open, other, relay, _etcd: etcd })
    }

    fn now(&self) -> Arc<EtcdStorage> {
        Arc::clone(&self.open.lock().unwrap())
    }
}

impl Storage for EtcdPair {
    fn features(&self) -> Features {
        Features {
            // One cache follows a type.
            streams: 1,
            resumes: true,
            lasts: Lasting::Objects,
            parts: true,
            flood: 1_536,
            patience: Duration::from_secs(30),
        }
    }

    fn source(&self) -> Arc<dyn Source> {
        let opening = EtcdStorage::open(&self.config);
        Arc::new(block_in_place(|| Handle::current().block_on(opening)).unwrap())
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(self.now())
    }

    /// The second one is another server, which is not parted from etcd.
    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>> {
        vec![Arc::new(StoreWriter(self.now())), Arc::new(StoreWriter(self.other.clone()))]
    }

    fn reopen(&self) -> BoxFuture<'_, ()> {
        async {
            let opened = EtcdStorage::open(&self.config).await.unwrap();
            *self.open.lock().unwrap() = Arc::new(opened);
        }
        .boxed()
    }

    fn part(&self, is_parted: bool) {
        if is_parted { self.relay.part() } else { self.relay.rejoin() }
    }
}
