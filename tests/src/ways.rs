//! The four servers that the conformance cases and the differential test run against: this one with objects of its own in
//! memory (`embedded`) or in etcd (`etcd`), a stock kube-apiserver (`genuine`), and this one in front of a kube-apiserver
//! (`upstream`). The environment variable `CONFORMANCE` selects one; default `embedded`.
//!
//! `.ci/conformance` runs all cases each way, and compares the failures with `conformance/differences.txt`.

use std::{
    env,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, OnceCell, OwnedMutexGuard},
    time::timeout,
};

use crate::{
    etcd::EtcdCluster,
    genuine::{ADMIN, CACHE, EtcdState, Genuine, GenuineSettings, token_of},
    process::Server,
};

/// Admission plugins of kube-apiserver that add values which no client sent, or need namespaces and objects that
/// controllers create.
pub const WITHOUT_PLUGINS: &str =
    "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,Priority,NamespaceLifecycle,PodSecurity";
/// Types that are cached when a case begins; others from its first read.
const FIRST_READ: [&str; 6] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/apps/v1/deployments",
    "/apis/coordination.k8s.io/v1/leases",
];
/// Time for the case before to give the cluster back: only a case that starts two servers waits for itself.
const TURN_WAIT: Duration = Duration::from_secs(60);

/// One cluster for all cases, used by one at a time, and its state before the first.
static CLUSTER: OnceCell<(Genuine, EtcdState)> = OnceCell::const_new();
/// One etcd for all cases, each with a prefix of its own.
static ETCD: OnceCell<Option<EtcdCluster>> = OnceCell::const_new();
static CASES: AtomicUsize = AtomicUsize::new(0);
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// Starts the selected server with these flags, without objects of other cases. `binary` is this server's.
///
/// # Panics
/// If the case cannot run this way: kube-apiserver has none of this server's flags, and there is one cluster.
pub async fn server(binary: &str, flags: &[&str]) -> Server {
    match env::var("CONFORMANCE").as_deref() {
        Err(_) | Ok("" | "embedded") => Server::start(binary, flags).await,
        Ok("etcd") => {
            let etcd = ETCD.get_or_init(async || EtcdCluster::start("conformance").await).await;
            let etcd = etcd.as_ref().expect("benches/kube-apiserver/prepare was run");
            let prefix = format!("/case-{}", CASES.fetch_add(1, Ordering::Relaxed));
            let stored = ["--etcd-endpoints", &etcd.endpoints(), "--etcd-prefix", &prefix];
            Server::start(binary, &[&stored, flags].concat()).await
        }
        Ok("genuine") => {
            assert!(flags.is_empty(), "kube-apiserver has no flags {flags:?}");
            let (genuine, turn) = cluster().await;
            let door = genuine.door(ADMIN).await;
            Server::foreign(door.address(), (door, turn))
        }
        Ok("upstream") => {
            let (genuine, turn) = cluster().await;
            let kubeconfig = genuine.kubeconfig(CACHE);
            let upstream = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap()];
            let server = Server::start(binary, &[&upstream, flags].concat()).await.with_token(&token_of(ADMIN));
            // A position before the first read of a type cannot be watched from.
            for path in FIRST_READ {
                server.client().get(&format!("{path}?limit=1")).await.with_code(200);
            }
            server.keeping(turn)
        }
        Ok(other) => panic!("CONFORMANCE={other}: known are embedded, etcd, genuine and upstream"),
    }
}

async fn cluster() -> (&'static Genuine, OwnedMutexGuard<()>) {
    let turn = timeout(TURN_WAIT, Arc::clone(&TURN).lock_owned()).await;
    let turn = turn.expect("a case uses one cluster, and gives it back");
    let start = async || {
        let settings = GenuineSettings { without_plugins: WITHOUT_PLUGINS, ..GenuineSettings::default() };
        let genuine = Genuine::start_with("conformance", settings).await;
        let genuine = genuine.expect("benches/kube-apiserver/prepare was run");
        let state = genuine.state().await;
        (genuine, state)
    };
    let (genuine, state) = CLUSTER.get_or_init(start).await;
    genuine.restore(state).await;
    (genuine, turn)
}
