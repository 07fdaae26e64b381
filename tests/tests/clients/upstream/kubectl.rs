//! kubectl through the cache-server and past it: equal commands have equal outputs.
//!
//! Method: each command runs on both sides with the administrator's token, in a namespace of its own for each side.
//! Namespaces, ages and values that the API server assigns are masked; columns of tables are compared without their widths.

use std::{
    fs,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tests::genuine::{ADMIN, CACHE, Genuine};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
    time::timeout,
};

use super::scene::Front;
use crate::{kubectl::DEPLOYMENT_SPEC, programs::Program};

/// Timeout of a command, which takes under a second; the rest is for busy machines.
const COMMAND_WAIT: Duration = Duration::from_secs(60);

/// All but the end of the Deployment.
const WEB: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {colour: blue}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 80}, {name: https, port: 443}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
";

const POD: &str = "\
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec: {containers: [{name: c, image: i}]}
";

/// A ConfigMap, a Service, a Deployment and a pod.
fn manifest() -> String {
    [WEB, DEPLOYMENT_SPEC, POD].concat()
}

/// kubectl with one server.
struct Side {
    program: Program,
    kubeconfig: PathBuf,
    namespace: &'static str,
    /// The namespaces of both sides, which are masked.
    namespaces: [&'static str; 2],
    home: tempfile::TempDir,
}

/// Both sides. The cache-server ends with them.
struct Sides {
    through: Side,
    direct: Side,
    _front: Front,
}

/// Starts a cache-server in front of the shared cluster. `None` if the cluster or kubectl is not here.
async fn sides(test: &str, namespaces: [&'static str; 2]) -> Option<Sides> {
    let genuine = Genuine::shared(test).await?;
    let program = Program::ready("kubectl")?;
    let front = Front::start(genuine.kubeconfig(CACHE), &[]).await;
    let side = |kubeconfig, namespace| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("team.yaml"), manifest()).unwrap();
        Side { program: program.clone(), kubeconfig, namespace, namespaces, home }
    };
    let through = side(front.kubeconfig(ADMIN, front.address()), namespaces[0]);
    let direct = side(genuine.kubeconfig(ADMIN), namespaces[1]);
    for side in [&through, &direct] {
        side.output(&["create", "namespace", side.namespace]).await;
    }
    Some(Sides { through, direct, _front: front })
}

impl Side {
    fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = self.program.process();
        command
            .args(["--kubeconfig", self.kubeconfig.to_str().unwrap(), "--namespace", self.namespace])
            .args(words)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG");
        command
    }

    async fn output(&self, words: &[&str]) -> Output {
        let output = timeout(COMMAND_WAIT, self.command(words).output()).await;
        output.unwrap_or_else(|_| panic!("kubectl {words:?} does not end")).unwrap()
    }

    /// Exit code, standard output and standard error of a command, masked.
    async fn said(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.output(words).await;
        (status.code(), self.masked(&stdout), self.masked(&stderr))
    }

    fn masked(&self, text: &[u8]) -> String {
        let text = self.without_namespaces(text);
        text.lines().map(|line| line.split_whitespace().map(masked_word).collect::<Vec<_>>().join(" ") + "\n").collect()
    }

    fn without_namespaces(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text).into_owned();
        self.namespaces.iter().fold(text, |text, namespace| text.replace(namespace, "NAMESPACE"))
    }

    /// An object as JSON, without what the API server assigned.
    async fn object(&self, name: &str) -> Value {
        let output = self.output(&["get", name, "-o", "json"]).await;
        let text = self.without_namespaces(&output.stdout);
        let mut object: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        for member in ["uid", "resourceVersion", "creationTimestamp"] {
            object["metadata"].as_object_mut().unwrap().remove(member);
        }
        object
    }

    /// Starts a command that keeps running. Returns it with its output lines.
    fn start(&self, words: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.command(words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }
}

/// Replaces ages, and values that the API server assigns.
fn masked_word(word: &str) -> &str {
    let bare = word.trim_matches(|c: char| "\"',".contains(c));
    let is_age = |word: &str| {
        !word.is_empty()
            && word.ends_with(['s', 'm', 'h'])
            && word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || "smh".contains(c))
    };
    let is_time = bare.len() == 20 && bare.starts_with("20") && bare.ends_with('Z');
    let is_clock = bare.len() == 8 && bare.bytes().filter(|byte| *byte == b':').count() == 2;
    let is_uid = bare.len() == 36 && bare.bytes().filter(|byte| *byte == b'-').count() == 4;
    let is_version = bare.len() > 1 && bare.bytes().all(|byte| byte.is_ascii_digit()) && word.starts_with('"');
    if is_age(bare) || is_time || is_clock || is_uid || is_version { "MASKED" } else { word }
}

impl Sides {
    /// Runs a command on both sides, and asserts that the outputs are equal. Returns the output.
    async fn equal(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let (through, direct) = tokio::join!(self.through.said(words), self.direct.said(words));
        assert_eq!(through, direct, "kubectl {words:?}");
        through
    }

    /// Like [`equal`](Self::equal), for commands that are split at blanks and must succeed.
    async fn succeed(&self, line: &str) -> String {
        let (code, stdout, stderr) = self.equal(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(code, Some(0), "kubectl {line}: {stderr}");
        stdout
    }

    /// Like [`succeed`](Self::succeed), for commands that must fail. Returns their complaint.
    async fn fail(&self, line: &str) -> String {
        let (code, _, stderr) = self.equal(&line.split(' ').collect::<Vec<_>>()).await;
        assert!(code != Some(0) && !stderr.is_empty(), "kubectl {line}: {code:?} {stderr}");
        stderr
    }
}

#[tokio::test]
async fn reading_commands_print_what_they_print_at_the_api_server() {
    let Some(sides) = sides("kubectl reads upstream", ["reads-through", "reads-direct"]).await else { return };
    sides.succeed("create -f team.yaml").await;
    for line in [
        "get pods",
        "get pods -o wide",
        "get deployments,services,configmaps,pods",
        "get all -o name",
        "get pod p -o json",
        "get pod p -o yaml",
        "get deployments -o yaml",
        "get configmaps -o json",
        "get pods -l app=web",
        "get pods -l app!=web",
        "get pods --field-selector metadata.name=p",
        "get pods --field-selector status.phase=Running",
        "get pods --sort-by=.metadata.name -o jsonpath={.items[*].metadata.name}",
        "get pods --chunk-size=1 -o name",
        "get pods -A --field-selector metadata.namespace=reads-through",
        "get pods -A --field-selector metadata.namespace=reads-direct --show-labels -o wide",
        "get pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase",
        "get namespaces default reads-through",
        "get nodes",
        "get clusterroles -o name",
        "get customresourcedefinitions",
        "get leases -A -o name",
        "get --raw /version",
        "describe configmap settings",
        "describe deployment web",
        "api-resources",
        "api-versions",
        "explain pod.spec",
        "explain deployment.spec.strategy --recursive",
        "version",
        "auth can-i list pods",
        "auth whoami",
    ] {
        let stdout = sides.succeed(line).await;
        let is_empty = ["app!=web", "phase=Running", "get nodes", "customresourcedefinitions"];
        assert_eq!(stdout.is_empty(), is_empty.iter().any(|part| line.contains(part)), "kubectl {line}: {stdout}");
    }
    for (line, complaint) in [
        ("get configmap none", "configmaps \"none\" not found"),
        ("get nonsense", "the server doesn't have a resource type \"nonsense\""),
        ("get pods --field-selector spec.nonsense=x", "field label not supported: spec.nonsense"),
        ("get pods -l a=b=c", "that match label selector"),
        ("top pods", "Metrics API not available"),
    ] {
        let stderr = sides.fail(line).await;
        assert!(stderr.contains(complaint), "kubectl {line}: {stderr}");
    }
}

#[tokio::test]
async fn writing_commands_do_what_they_do_at_the_api_server() {
    let Some(sides) = sides("kubectl writes upstream", ["writes-through", "writes-direct"]).await else { return };
    sides.succeed("create -f team.yaml").await;
    assert!(sides.fail("create -f team.yaml").await.contains("configmaps \"settings\" already exists"));
    let wrong = manifest().replace("replicas: 2", "replicass: 2");
    let changed = manifest().replace("web:1", "web:2").replace("colour: blue", "colour: red");
    for side in [&sides.through, &sides.direct] {
        fs::write(side.home.path().join("wrong.yaml"), &wrong).unwrap();
        fs::write(side.home.path().join("changed.yaml"), &changed).unwrap();
    }
    assert!(sides.fail("apply -f wrong.yaml").await.contains("unknown field \"spec.replicass\""));
    for line in [
        "apply -f team.yaml",
        "apply -f changed.yaml",
        "apply --server-side --force-conflicts -f team.yaml",
        "apply --server-side -f changed.yaml --force-conflicts",
        "apply -f changed.yaml --dry-run=server",
        "diff -f changed.yaml",
        "patch deployment/web --type=merge -p {\"spec\":{\"paused\":true}}",
        "patch deployment/web --type=json -p [{\"op\":\"remove\",\"path\":\"/spec/paused\"}]",
        "patch configmap/settings -p {\"data\":{\"size\":\"1\"}}",
        "patch configmap/settings -p {\"data\":{\"size\":\"1\"}}",
        "label configmap/settings tier=front",
        "annotate configmap/settings note=x",
        "scale deployment/web --replicas=5",
        "get deployment/web -o jsonpath={.spec.replicas}",
        "set image deployment/web web=web:3",
        "rollout restart deployment/web",
        "rollout history deployment/web",
        "create configmap more --from-literal=a=b",
        "create secret generic secret --from-literal=a=b",
        "run more --image=i",
        "expose deployment/web --name=exposed --port=80 --cluster-ip=None",
        "autoscale deployment/web --min=1 --max=3",
        "replace -f changed.yaml --dry-run=server",
        "wait --for=jsonpath={.data.size}=1 configmap/settings --timeout=20s",
        "delete pod more --grace-period=0 --force",
        "delete configmap more --wait=true",
        "wait --for=delete configmap/more --timeout=20s",
    ] {
        sides.succeed(line).await;
    }
    for name in ["deployment/web", "configmap/settings", "service/web"] {
        let (through, direct) = (sides.through.object(name).await, sides.direct.object(name).await);
        assert_eq!(without_times(through), without_times(direct), "{name}");
    }
    assert!(sides.fail("label configmap/settings tier=back").await.contains("--overwrite is false"));
    // There is no kubelet, so the API server itself refuses.
    assert_eq!(sides.succeed("logs p").await, "");
    for line in ["exec p -- ls", "attach p", "port-forward p 18080:80"] {
        let stderr = sides.fail(line).await;
        assert!(stderr.contains("does not have a host assigned") || stderr.contains("pod is not running"), "{stderr}");
    }
    sides.succeed("delete -f team.yaml --grace-period=0 --force").await;
    sides.fail("wait --for=condition=Ready pod/p --timeout=1s").await;
}

/// An object without the times in its managedFields and annotations.
fn without_times(mut object: Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array_mut().into_iter().flatten();
    entries.for_each(|entry| drop(entry.as_object_mut().unwrap().remove("time")));
    let template = object.pointer_mut("/spec/template/metadata/annotations");
    if let Some(annotations) = template.and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/restartedAt");
    }
    object
}

#[tokio::test]
async fn watching_commands_print_the_changes_of_the_api_server() {
    let Some(sides) = sides("kubectl watches upstream", ["watches-through", "watches-direct"]).await else { return };
    let words = ["get", "configmaps", "--watch", "--output-watch-events", "-o"];
    let words = [&words[..], &["jsonpath={.type} {.object.metadata.name} {.object.data}{\"\\n\"}"]].concat();
    // Both watch the namespace of the side that goes through the cache-server.
    let watched = [&words[..], &["--namespace", sides.through.namespace]].concat();
    sides.succeed("create configmap first --from-literal=a=b").await;
    let mut watches = [sides.through.start(&watched), sides.direct.start(&watched)];
    let mut line = async |watch: usize| {
        let line = timeout(COMMAND_WAIT, watches[watch].1.next_line()).await;
        line.unwrap_or_else(|_| panic!("watch {watch}: a line is due")).unwrap().expect("the watch goes on")
    };
    for watch in [0, 1] {
        assert_eq!(line(watch).await, "ADDED first {\"a\":\"b\"}");
    }
    for (command, expected) in [
        ("create configmap second --from-literal=a=b", "ADDED second {\"a\":\"b\"}"),
        ("patch configmap second -p {\"data\":{\"a\":\"c\"}}", "MODIFIED second {\"a\":\"c\"}"),
        ("delete configmap first", "DELETED first {\"a\":\"b\"}"),
    ] {
        sides.succeed(command).await;
        for watch in [0, 1] {
            assert_eq!(line(watch).await, expected, "watch {watch} after {command}");
        }
    }
}
