//! A process takes over from another one on the same etcd.

use tests::{etcd::EtcdCluster, upgrade::Upgraded};

use super::BINARY;

/// Goal: clients notice an upgrade only by the end of their watches, and no type is listed again. Method: watches over
/// TLS, half of them over HTTP/2, beside writes; the log of the new process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_resume_at_the_next_process() {
    let Some(etcd) = EtcdCluster::start("upgrade").await else { return };
    let mut upgraded = Upgraded::start(BINARY, &["--etcd-endpoints", &etcd.endpoints()], None).await;
    let report = upgraded.upgrade_under_load().await;
    println!("on etcd: {report:?}");
    upgraded.assert_not_listed("configmaps").await;
}
