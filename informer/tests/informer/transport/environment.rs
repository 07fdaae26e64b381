//! Settings from the environment, which a process reads once: each test runs this binary again as a child process.

use std::{path::Path, process::Command, time::Duration};

use informer::{Cluster, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::server::{SecureServer, TunnelProxy};

/// Program of the child processes: an informer of the cluster in `KUBECONFIG`. A child installs no provider of
/// cryptography; with the features `ring` and `aws-lc-rs`, both are in its dependency tree, and rustls chooses none.
#[tokio::test]
#[ignore = "the program of the child processes"]
async fn read_pods() {
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    let pods = Cluster::try_default().await.unwrap().informer::<Pod>().start().unwrap();
    pods.ready(Duration::from_secs(20)).await.unwrap();
}

/// Runs [`read_pods`] in a child process with these variables.
async fn child(folder: &Path, server: &SecureServer, variables: &[(&str, String)]) {
    let kubeconfig = folder.join("kubeconfig");
    let authority = folder.join("ca.crt");
    std::fs::write(&authority, server.authority.pem()).unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster":
            {"server": format!("https://{}", server.address), "certificate-authority": authority}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "transport::environment::read_pods", "--ignored", "--nocapture"]);
    for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
        program.env_remove(name);
    }
    program.env("KUBECONFIG", kubeconfig).envs(variables.iter().map(|(name, value)| (name, value)));
    let output = spawn_blocking(move || program.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Goal: `HTTPS_PROXY` and `NO_PROXY` of the environment decide, without a word in the program. Method: child processes
/// with a proxy, and with a proxy that their server's address is excepted from.
#[tokio::test]
async fn the_proxy_of_the_environment_is_used() {
    let fake = FakeApiServer::new();
    let (server, proxy) = (SecureServer::start(&fake).await, TunnelProxy::start().await);
    let folder = tempfile::tempdir().unwrap();
    let url = ("HTTPS_PROXY", format!("http://{}", proxy.address));
    child(folder.path(), &server, &[url.clone(), ("NO_PROXY", "127.0.0.1".into())]).await;
    assert_eq!((proxy.heads.lock().unwrap().len(), server.log.connections().len()), (0, 1));
    child(folder.path(), &server, &[url]).await;
    let heads = proxy.heads.lock().unwrap().clone();
    assert!(heads.len() == 1 && heads[0].starts_with(&format!("CONNECT {} ", server.address)), "{heads:?}");
}

/// Goal: a program with two providers of cryptography in its tree, and without a default one, does not panic.
#[cfg(all(feature = "aws-lc-rs", feature = "ring"))]
#[tokio::test]
async fn two_providers_of_cryptography_do_not_panic() {
    let fake = FakeApiServer::new();
    let server = SecureServer::start(&fake).await;
    let folder = tempfile::tempdir().unwrap();
    child(folder.path(), &server, &[]).await;
    assert!(server.log.connections()[0].is_http2);
}
