//! The chart and the manifests in `deploy/`: the server starts with their flags, API servers accept their objects, and the
//! account has no right that it does not need.
//!
//! `DEPLOY=all` also runs what is slow: everything beside a stock kube-apiserver, and helm, which it may have to build.

mod chart;
mod kubectl;
mod nodes;
mod rights;

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tests::{
    http::Client,
    process::Server,
    tls::{Authority, Files},
};

use crate::SERVER;

/// The placements, each with a file of manifests.
const PLACEMENTS: [&str; 3] = ["deployment", "daemonset", "sidecar"];
/// Node of the DaemonSet's server.
const NODE: &str = "node-1";

/// Path of a file or folder of `deploy/`.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// User of this process.
fn own_uid() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// Returns true if the slow tests were requested. Prints one line otherwise.
fn is_slow_requested(test: &str) -> bool {
    let is_requested = env::var_os("DEPLOY").is_some();
    if !is_requested {
        eprintln!("{test}: skipped, DEPLOY is not set");
    }
    is_requested
}

/// The objects that one placement creates, and the files that its server reads.
struct Placement {
    objects: Vec<Value>,
    folder: tempfile::TempDir,
    authority: Authority,
    files: Files,
}

impl Placement {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(path(&format!("manifests/{name}.yaml"))).unwrap();
        let objects = text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        fs::create_dir(folder.path().join("tls")).unwrap();
        let files = authority.issue(&folder.path().join("tls"));
        fs::write(folder.path().join("tls/ca.crt"), authority.pem()).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        Self { objects, folder, authority, files }
    }

    /// The objects of a kind.
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The spec of the pods.
    fn pod(&self) -> &Value {
        let workload = self.of("Deployment").chain(self.of("DaemonSet")).next().expect("a workload");
        &workload["spec"]["template"]["spec"]
    }

    /// The container of the server.
    fn container(&self) -> &Value {
        let pod = self.pod();
        let all = [&pod["initContainers"], &pod["containers"]].into_iter().filter_map(Value::as_array).flatten();
        all.into_iter().find(|container| container["name"] == "cache-server").expect("a container")
    }

    /// The flags of the container, with the files of this test in place of its volumes, and an API server in place of the
    /// pod's own. Peers are left out: their Service has no address here.
    fn flags(&self, node: &str, upstream: &str, ca: &Path, token: &Path) -> Vec<String> {
        let volumes = self.container()["volumeMounts"].as_array().unwrap();
        let args = self.container()["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
        let kept = args.filter(|arg| !["serve", "--upstream"].contains(arg));
        let kept = kept.filter(|arg| !arg.starts_with("--listen=") && !arg.starts_with("--peer"));
        let here = kept.map(|arg| {
            let mut arg = arg.replace("$(NODE_NAME)", node);
            for volume in volumes.iter().map(|volume| volume["mountPath"].as_str().unwrap()) {
                if let Some((flag, file)) = arg.split_once(&format!("={volume}/")) {
                    let folder = self.folder.path().join(&volume[1..]);
                    fs::create_dir_all(&folder).unwrap();
                    arg = format!("{flag}={}", folder.join(file).display());
                }
            }
            arg
        });
        let own = [
            format!("--upstream={upstream}"),
            format!("--upstream-ca={}", ca.display()),
            format!("--upstream-token-file={}", token.display()),
        ];
        here.chain(own).collect()
    }

    /// Starts the server on the addresses of the flags, as in a pod. Returns it with a client of it.
    async fn serve(&self, flags: &[String]) -> (Server, Client) {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut args = self.container()["args"].as_array().unwrap().iter().filter_map(Value::as_str);
        let listen = args.find_map(|arg| arg.strip_prefix("--listen=")).expect("an address");
        let listen = listen.replace(":8443", ":0");
        let server = Server::start_at(&listen, SERVER, &[], &flags).await;
        let address = ([127, 0, 0, 1], server.address().port()).into();
        (server, Client::new(address).over_tls(self.authority.trust()))
    }
}

/// Goal: each placement starts, and its probes answer as the kubelet needs it. Method: its flags, in front of an API server
/// that is away.
#[tokio::test]
async fn the_server_starts_with_the_flags_of_each_placement() {
    for name in PLACEMENTS {
        let placement = Placement::read(name);
        let token = placement.folder.path().join("token");
        fs::write(&token, "token").unwrap();
        let flags = placement.flags(NODE, "https://127.0.0.1:1", &placement.files.cert, &token);
        let (_server, client) = placement.serve(&flags).await;
        let container = placement.container();
        for (probe, code) in [("livenessProbe", 200), ("readinessProbe", 500)] {
            let Some(path) = container[probe]["httpGet"]["path"].as_str() else {
                assert_eq!(name, "sidecar", "{name} has no {probe}");
                continue;
            };
            let answer = client.get(path).await;
            assert_eq!(answer.code, code, "{name} {path}: {}", answer.text());
        }
        let metrics = client.get("/metrics").await;
        assert!([401, 403, 503].contains(&metrics.code.as_u16()), "{name}: callers without credentials read metrics");
    }
}
