//! The chart by helm: the manifests are its rendering, it is free of lint, and bad values are refused.

use std::{
    env,
    process::{Command, Output},
};

use super::path;
use crate::programs::Program;

/// helm if it was built, or if the slow tests may build it.
fn helm() -> Option<Program> {
    let built = path("../target/clients/bin/helm");
    if env::var_os("DEPLOY").is_none() && !built.is_file() {
        eprintln!("the chart: skipped, helm was not built and DEPLOY is not set");
        return None;
    }
    Program::ready("helm")
}

async fn run(helm: &Program, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    helm.process().args(arguments).current_dir(path("helm")).env("HOME", home.path()).output().await.unwrap()
}

#[test]
fn the_manifests_are_the_charts_rendering() {
    if helm().is_none() {
        return;
    }
    let output = Command::new(path("render")).arg("--check").output().unwrap();
    let difference = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "run deploy/render: {difference}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn values_of_the_chart_are_checked() {
    let Some(helm) = helm() else { return };
    let lint = run(&helm, &["lint", "--strict", "cache-server"]).await;
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    let app = "placement=sidecar,sidecar.containers[0].name=app";
    for (setting, complaint) in [
        ("placement=everywhere", "placement"),
        ("placement=sidecar", "containers"),
        (app, "needs Kubernetes 1.29"),
        ("types=null", "types"),
        ("types[0]=Pods", "types"),
        ("replicas=3", "replicas"),
        ("image.digest=sha256:1", "digest"),
        ("tls.secretName=", "secretName"),
        ("extraArgs[0]=verbose", "extraArgs"),
    ] {
        let old = ["template", "cache-server", "--kube-version", "1.28.0", "--set", setting];
        let refused = run(&helm, &old).await;
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && message.contains(complaint), "{setting}: {message}");
    }
    for (setting, line) in [
        ("image.digest=sha256:{}", "image: cache-server@sha256:"),
        ("types[0]=deployments.apps", "apiGroups: [\"apps\"]"),
        ("scope.pods=spec.nodeName=n", "--scope=pods=spec.nodeName=n"),
        ("placement=daemonset,scope.pods=a=b", "\"--scope=pods=spec.nodeName=$(NODE_NAME),a=b\""),
        ("placement=daemonset", "placement: daemonset"),
        (app, "--listen=127.0.0.1:8443"),
        ("listenAddress=[::]", "--listen=[::]:8443"),
        ("enabled=true", "kind: Deployment"),
        ("preStopSeconds=0", "readOnlyRootFilesystem: true"),
        ("extraArgs[0]=--max-staleness=5s", "--max-staleness=5s"),
    ] {
        let setting = setting.replace("{}", &"0".repeat(64));
        let rendered = run(&helm, &["template", "1", "cache-server", "--namespace", "2", "--set", &setting]).await;
        let text = String::from_utf8_lossy(&rendered.stdout);
        assert!(rendered.status.success() && text.contains(line), "{setting}: {text}");
        let has_numbers = text.contains("name: 1\n") || text.contains("namespace: 2\n");
        assert!(!has_numbers && text.contains("namespace: \"2\"\n"), "{setting}: {text}");
    }
}
