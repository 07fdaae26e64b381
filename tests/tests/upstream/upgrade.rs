//! A process takes over from another one in front of the same API server.

use tests::{
    genuine::{ADMIN, CACHE, Genuine, token_of},
    upgrade::Upgraded,
};

use super::BINARY;

/// Goal: clients notice an upgrade only by the end of their watches, and the API server sends no state again. Method:
/// watches over TLS, half of them over HTTP/2, beside writes; the counters of the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_resume_at_the_next_process() {
    let Some(genuine) = Genuine::start("upgrade").await else { return };
    let kubeconfig = genuine.kubeconfig(CACHE);
    let flags = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap(), "--resources", "configmaps"];
    let mut upgraded = Upgraded::start(BINARY, &flags, Some(token_of(ADMIN).leak())).await;
    upgraded.client().get("/api/v1/configmaps").await.with_code(200);
    let streams = async || genuine.counters().await.initial_streams("configmaps");
    let before = streams().await;
    let report = upgraded.upgrade_under_load().await;
    println!("in front of kube-apiserver: {report:?}");
    assert_eq!(streams().await, before);
    upgraded.assert_not_listed("configmaps").await;
}
