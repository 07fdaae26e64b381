//! The manifests through kubectl: into our server, and as a dry run at a stock kube-apiserver.

use std::{path::Path, process::Output, time::Duration};

use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine},
    http::MERGE_PATCH,
    process::Server,
};

use super::{PLACEMENTS, Placement, is_slow_requested, path};
use crate::{SERVER, programs::Program, upstream::scene::until_within};

/// Timeout until admission knows the level of a namespace, which takes milliseconds.
const ADMITTED_WAIT: Duration = Duration::from_secs(10);
const POD_DRY_RUN: &str = "/api/v1/namespaces/cache-server/pods?dryRun=All&fieldValidation=Strict";

/// Runs kubectl with a home of its own.
async fn run(kubectl: &Program, home: &Path, arguments: &[&str]) -> Output {
    kubectl.process().args(arguments).env("HOME", home).env_remove("KUBECONFIG").output().await.unwrap()
}

/// Asserts that a command succeeded, with warnings about namespaces only: another client created them. Returns its output.
fn printed(what: &str, output: Output) -> String {
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let has_warnings = stderr.lines().any(|line| !line.contains(" namespaces/"));
    assert!(output.status.success() && !has_warnings, "{what}: {stdout}{stderr}");
    stdout
}

/// The manifests of each placement, of the log collector and of the rights of a Prometheus.
fn files() -> [String; 5] {
    let collector = path("../examples/log-collector/daemonset.yaml");
    let placements = PLACEMENTS.map(|name| path(&format!("manifests/{name}.yaml")));
    let [deployment, daemonset, sidecar] = placements;
    [deployment, daemonset, sidecar, collector, path("observe/scrape.yaml")].map(|path| path.display().to_string())
}

/// Goal: our server takes the manifests, validated, by both kinds of apply. Method: kubectl; a misspelled field is refused.
#[tokio::test]
async fn our_server_takes_the_manifests() {
    let Some(kubectl) = Program::ready("kubectl") else { return };
    let (server, home) = (Server::start(SERVER, &[]).await, tempfile::tempdir().unwrap());
    let url = format!("--server=http://{}", server.address());
    let files = files();
    // Two placements have Deployments of one name.
    for chosen in [&files[1..], &files[..1]] {
        let names: Vec<_> = chosen.iter().flat_map(|file| ["-f", file]).collect();
        let apply = [&[&*url, "apply", "--validate=strict"], &names[..]].concat();
        let created = printed("apply", run(&kubectl, home.path(), &apply).await);
        assert!(created.contains("apps/cache-server"), "{created}");
        let forced = [&apply[..], &["--server-side", "--force-conflicts"]].concat();
        printed("apply --server-side", run(&kubectl, home.path(), &forced).await);
    }
    let text = std::fs::read_to_string(&files[0]).unwrap().replace("maxUnavailable", "maxUnavailible");
    let wrong = home.path().join("wrong.yaml");
    std::fs::write(&wrong, text).unwrap();
    let apply = [&*url, "apply", "--validate=strict", "-f", wrong.to_str().unwrap()];
    let refused = run(&kubectl, home.path(), &apply).await;
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && message.contains("maxUnavailible"), "{message}");
}

/// Goal: kube-apiserver accepts each object, knows all its fields, and admits the pods at the level of their namespace.
/// Method: a dry run with strict validation, and of a pod of each workload.
#[tokio::test]
async fn a_stock_kube_apiserver_takes_the_manifests() {
    if !is_slow_requested("manifests at kube-apiserver") {
        return;
    }
    let Some(genuine) = Genuine::start("manifests at kube-apiserver").await else { return };
    let Some(kubectl) = Program::ready("kubectl") else { return };
    let (admin, home, kubeconfig) = (genuine.client(ADMIN), tempfile::tempdir().unwrap(), genuine.kubeconfig(ADMIN));
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let collector = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "log-collector"}});
    admin.create_manifest(&collector).await;
    for (file, placement) in files().iter().zip(PLACEMENTS.iter().map(Some).chain([None, None])) {
        let placement = placement.map(|name| Placement::read(name));
        if let Some(placement) = &placement {
            let namespace = placement.of("Namespace").next().unwrap();
            if admin.post("/api/v1/namespaces", namespace).await.code == 409 {
                admin.patch("/api/v1/namespaces/cache-server", MERGE_PATCH, namespace).await.with_code(200);
            }
        }
        for kind in [&["--server-side"][..], &[]] {
            let apply = [&[&*kubeconfig, "apply", "--dry-run=server", "--validate=strict", "-f", file], kind].concat();
            let lines = printed(file, run(&kubectl, home.path(), &apply).await);
            assert!(lines.lines().all(|line| line.ends_with("(server dry run)")), "{lines}");
        }
        if let Some(placement) = &placement {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": placement.pod()});
            // The level of the namespace takes effect a moment after it was written.
            let mut answer = String::new();
            let is_admitted = async || {
                let posted = admin.post(POD_DRY_RUN, &pod).await;
                posted.text().clone_into(&mut answer);
                posted.code == 201
            };
            assert!(until_within(ADMITTED_WAIT, is_admitted).await, "{file}: {answer}");
        }
    }
}
