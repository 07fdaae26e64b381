//! gitops-engine's cluster cache, with which Argo CD follows a cluster: every object of every type, custom ones too.

use std::{collections::BTreeMap, fs::File, path::Path, process::Stdio, time::Instant};

use serde_json::{Value, json};
use tests::http::Client as Http;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use super::scene::{PATIENCE, until};
use crate::programs::Program;

/// Objects of each custom type: two pages of its lists.
pub(super) const CUSTOM_OBJECTS: usize = 25;

pub(super) struct GitopsCache {
    _child: Child,
    requests: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl GitopsCache {
    /// Starts it, and waits until it has all objects. `None` if it is not here.
    pub(super) async fn start(kubeconfig: &Path) -> Option<Self> {
        let mut command = Program::ready("gitops-engine")?.process();
        let log = File::create(kubeconfig.with_extension("log")).unwrap();
        command.arg(kubeconfig).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("it was made ready");
        let (requests, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut started = Self { _child: child, requests, lines };
        let begun = Instant::now();
        let line = started.line().await;
        eprintln!("gitops-engine: {line} after {:.1} s", begun.elapsed().as_secs_f64());
        Some(started)
    }

    async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("gitops-engine answers");
        line.unwrap().expect("gitops-engine runs; its log is beside its kubeconfig")
    }

    /// The resourceVersion of each object that it holds, by `group/kind/namespace/name`.
    pub(super) async fn objects(&mut self) -> BTreeMap<String, String> {
        self.requests.write_all(b"\n").await.unwrap();
        let mut objects = BTreeMap::new();
        loop {
            let line = self.line().await;
            let Some((key, version)) = line.rsplit_once(' ') else { return objects };
            objects.insert(key.to_owned(), version.to_owned());
        }
    }

    /// Differences between two of them.
    pub(super) async fn differences(&mut self, other: &mut Self) -> Vec<String> {
        let (ours, theirs) = (self.objects().await, other.objects().await);
        let keys = ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key)));
        let differing = keys.filter(|key| ours.get(*key) != theirs.get(*key));
        differing.map(|key| format!("{key}: {:?}, not {:?}", ours.get(key), theirs.get(key))).collect()
    }
}

/// Number of objects by kind, as text.
pub(super) fn by_kind(objects: &BTreeMap<String, String>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for key in objects.keys() {
        *counts.entry(key.split('/').nth(1).unwrap_or_default()).or_default() += 1;
    }
    let counts: Vec<_> = counts.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    counts.join(", ")
}

/// Defines a type, and creates its objects.
pub(super) async fn create_custom(client: Http, kind: &str) {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    client.create_manifest(&definition).await;
    let collection = format!("/apis/example.com/v1/namespaces/default/{plural}");
    let object = |index: usize| -> Value {
        json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": format!("{singular}-{index}")}})
    };
    let first = object(0);
    until("the new type is served", async || client.post(&collection, &first).await.code == 201).await;
    for index in 1..CUSTOM_OBJECTS {
        client.post(&collection, &object(index)).await.with_code(201);
    }
}

/// Deletes a type with its objects.
pub(super) async fn delete_custom(client: Http, kind: &str) {
    let name = format!("{}s.example.com", kind.to_lowercase());
    client.delete(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")).await.with_code(200);
}
