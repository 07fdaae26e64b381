//! Checkpoints from a user's view: when they are written, what they restore, and fallbacks when they cannot be used.
//! Servers that come back with another history are in `proofs.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use informer::{
    Cluster, ConfigError, Informer, InformerBuilder, Representation,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::PartialObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::fixture::{SOON, contents, until};

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "containers": []}})
}

/// Server with two pods, at 42 and 43.
fn server() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x", "n")).put(pod("y", "n"))
}

fn cluster(server: &FakeApiServer) -> Cluster {
    Cluster::builder(server.client()).identity("one").build()
}

fn declared(server: &FakeApiServer, directory: &TempDir) -> InformerBuilder<Pod> {
    cluster(server).informer::<Pod>().checkpoint(directory.path())
}

async fn started<K: Send + Sync + 'static>(declared: InformerBuilder<K>) -> Informer<K> {
    let informer = declared.start().unwrap();
    informer.ready(SOON).await.unwrap();
    informer
}

fn logs(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut logs: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "checkpoint")).collect();
    logs.sort();
    logs
}

fn bytes_on_disk(directory: &Path) -> u64 {
    logs(directory).iter().map(|log| fs::metadata(log).unwrap().len()).sum()
}

#[tokio::test]
async fn secrets_are_written_only_when_somebody_said_so() {
    let (server, directory) = (FakeApiServer::new(), tempfile::tempdir().unwrap());
    let secrets = || cluster(&server).informer::<Secret>().checkpoint(directory.path());
    assert_eq!(secrets().start().unwrap_err(), ConfigError::CheckpointSecrets);
    assert!(logs(directory.path()).is_empty());
    server.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}));
    started(secrets().checkpoint_secrets()).await.stop().await;
    assert_eq!(logs(directory.path()).len(), 1);
}

/// Goal: a change is on disk two seconds later, and a quiet type writes no data. Method: observe the log's size over
/// time.
#[tokio::test]
async fn a_change_is_on_disk_two_seconds_later_and_nothing_is_written_without_one() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let pods = started(declared(&server, &directory)).await;
    until("the first save", || bytes_on_disk(directory.path()) > 0).await;
    let first = bytes_on_disk(directory.path());
    sleep(Duration::from_millis(2_300)).await;
    assert_eq!(bytes_on_disk(directory.path()), first, "nothing moved");
    server.put(pod("z", "n"));
    let changed = Instant::now();
    until("the change on disk", || bytes_on_disk(directory.path()) > first).await;
    assert!(changed.elapsed() < Duration::from_secs(2 + 5), "{:?}", changed.elapsed());
    let added = bytes_on_disk(directory.path()) - first;
    assert!(added < 600, "one pod, not all: {added} bytes");
    drop(pods);
}

#[tokio::test]
async fn the_last_change_before_a_stop_is_saved() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let pods = started(declared(&server, &directory)).await;
    until("the first save", || bytes_on_disk(directory.path()) > 0).await;
    server.put(pod("z", "n"));
    until("the change", || contents(&pods).contains("a/z@44")).await;
    pods.stop().await;
    let earlier = server.requests().len();
    let pods = started(declared(&server, &directory)).await;
    assert_eq!(contents(&pods), "a/x@42 a/y@43 a/z@44");
    let requests: Vec<String> = server.requests().into_iter().skip(earlier).map(|seen| seen.request).collect();
    assert!(requests[0].ends_with("resourceVersion=44"), "resumed where it ended: {requests:?}");
}

/// Goal: no content on disk keeps an informer from working. Method: replace the log by what an accident might leave;
/// each time the informer starts as without a checkpoint, and the next start resumes again.
#[tokio::test]
async fn a_checkpoint_that_cannot_be_used_costs_one_list_and_nothing_else() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    started(declared(&server, &directory)).await.stop().await;
    let log = logs(directory.path()).remove(0);
    let whole = fs::read(&log).unwrap();
    let half = &whole[..whole.len() / 2];
    for damaged in [&b""[..], b"not a checkpoint at all", half, &[b"informer\xff\0\0\0", &whole[12..]].concat()] {
        fs::write(&log, damaged).unwrap();
        let before = server.initial_reads();
        let pods = started(declared(&server, &directory)).await;
        assert_eq!((contents(&pods).as_str(), server.initial_reads()), ("a/x@42 a/y@43", before + 1));
        pods.stop().await;
        started(declared(&server, &directory)).await.stop().await;
        assert_eq!(server.initial_reads(), before + 1, "what was replaced is used");
    }
}

#[tokio::test]
async fn the_second_informer_of_one_checkpoint_works_without_it() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let first = started(declared(&server, &directory)).await;
    until("the first save", || bytes_on_disk(directory.path()) > 0).await;
    let second = started(declared(&server, &directory)).await;
    assert_eq!((contents(&first), server.initial_reads()), (contents(&second), 2));
    assert!(second.stats().checkpoint_failures > 0, "it is counted");
}

/// Goal: the new pod of a rolling update saves its state once the old one has ended. Method: the first informer holds
/// the lock for 5 s beyond the second's start; its saved state is removed.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_was_locked_is_taken_over_when_it_is_free() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let first = started(declared(&server, &directory)).await;
    until("the first save", || bytes_on_disk(directory.path()) > 0).await;
    let second = started(declared(&server, &directory)).await;
    sleep(Duration::from_secs(5)).await;
    let failures = second.stats().checkpoint_failures;
    assert!((1..=4).contains(&failures), "{failures} attempts in 5 s");
    first.stop().await;
    fs::remove_file(&logs(directory.path())[0]).unwrap();
    server.put(pod("z", "n"));
    until("a save of the second", || bytes_on_disk(directory.path()) > 0).await;
    let failures = second.stats().checkpoint_failures;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(second.stats().checkpoint_failures, failures, "it goes on without failures");
    second.stop().await;
    let reads = server.initial_reads();
    let third = started(declared(&server, &directory)).await;
    assert_eq!((contents(&third).as_str(), server.initial_reads()), ("a/x@42 a/y@43 a/z@44", reads));
}

#[tokio::test(start_paused = true)]
async fn a_stop_saves_to_a_checkpoint_that_has_just_become_free() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    let first = started(declared(&server, &directory)).await;
    let second = started(declared(&server, &directory)).await;
    first.stop().await;
    server.put(pod("z", "n"));
    until("the change", || contents(&second).contains("a/z@44")).await;
    second.stop().await;
    let reads = server.initial_reads();
    let third = started(declared(&server, &directory)).await;
    assert_eq!((contents(&third).as_str(), server.initial_reads()), ("a/x@42 a/y@43 a/z@44", reads));
}

#[tokio::test]
async fn informers_of_other_selectors_share_the_directory() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    server.put(pod("z", "m"));
    let of = |node: &str| declared(&server, &directory).fields(format!("spec.nodeName={node}"));
    for _ in 0..2 {
        let (n, m) = (started(of("n")).await, started(of("m")).await);
        assert_eq!((contents(&n).as_str(), contents(&m).as_str()), ("a/x@42 a/y@43", "a/z@44"));
        n.stop().await;
        m.stop().await;
    }
    assert_eq!((logs(directory.path()).len(), server.initial_reads()), (2, 2));
}

/// Goal: failed saves are logged and counted, and do not stop the informer. Method: remove the directory before the
/// first save.
#[tokio::test]
async fn saves_that_fail_are_counted_and_stop_nothing() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    server.refuse_connections();
    let pods = declared(&server, &directory).start().unwrap();
    until("the lock", || fs::read_dir(directory.path()).unwrap().count() > 0).await;
    until("a request", || pods.stats().reflector.requests > 0).await;
    fs::remove_dir_all(directory.path()).unwrap();
    server.recover();
    pods.ready(SOON).await.unwrap();
    until("a failure", || pods.stats().checkpoint_failures > 0).await;
    server.put(pod("z", "n"));
    until("the change", || contents(&pods) == "a/x@42 a/y@43 a/z@44").await;
    fs::create_dir(directory.path()).unwrap();
    until("a save", || bytes_on_disk(directory.path()) > 0).await;
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Slim {
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

/// Goal: objects are restored in their stored form. Method: a transform that must not be applied twice, a user's own
/// type without names, compressed bodies, metadata only; each resumes, with its index.
#[tokio::test]
async fn objects_come_back_in_the_form_in_which_they_were_kept() {
    let (server, directory) = (server(), tempfile::tempdir().unwrap());
    for start in 0..2 {
        let mut own = declared(&server, &directory)
            .transform(|pod: &mut Pod| {
                if let Some(node) = pod.spec.as_mut().and_then(|spec| spec.node_name.as_mut()) {
                    node.push('!');
                }
            })
            .project::<Slim>();
        let by_node = own.index(|pod| pod.field("spec.nodeName"));
        let own = started(own).await;
        let state = own.store().snapshot();
        let pod = state.get("a/x").unwrap();
        assert_eq!((pod.name(), pod.resource_version()), ("x", "42"));
        assert_eq!(pod.decode().unwrap().spec.node_name, "n!", "transformed once");
        assert_eq!(state.by(&by_node, "n!").count(), 2, "start {start}");

        let packed = started(declared(&server, &directory).store(Representation::Packed)).await;
        assert_eq!(packed.store().snapshot().get("a/y").unwrap().field("spec.nodeName").as_deref(), Some("n"));
        let typed = started(declared(&server, &directory).namespace("a").store(Representation::Typed)).await;
        let spec = typed.store().snapshot().get("a/y").unwrap().decode().unwrap().spec.clone();
        assert_eq!(spec.and_then(|spec| spec.node_name).as_deref(), Some("n"));
        let metadata = started(declared(&server, &directory).metadata_only::<PartialObjectMeta<Pod>>()).await;
        assert_eq!(metadata.store().snapshot().get("a/y").unwrap().field("spec.nodeName"), None);

        assert_eq!(server.initial_reads(), 4, "start {start}");
        own.stop().await;
        packed.stop().await;
        typed.stop().await;
        metadata.stop().await;
    }
    assert_eq!((logs(directory.path()).len(), server.count(RequestKind::Get)), (4, 4));
}

/// The only fields a program wants of a pod; labels are not among them.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Placed {
    spec: Value,
}

/// Goal: labels survive a restart even if the stored type lacks them. Method: a type without metadata, looked up by
/// label; the second start reads no initial state.
#[tokio::test]
async fn labels_outlive_a_restart_also_where_the_type_does_not_know_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut labelled = pod("l", "n");
    labelled["metadata"]["labels"] = json!({"app": "web"});
    let server = server().put(labelled).clone();
    for restart in [false, true] {
        let earlier = server.initial_reads();
        let mut declared = declared(&server, &directory).project::<Placed>();
        let by_app = declared.index(informer::index::label("app"));
        let pods = started(declared).await;
        let now = pods.store().snapshot();
        let found: Vec<String> = now.by(&by_app, "web").map(|pod| pod.key().to_owned()).collect();
        assert_eq!((found, now.get("a/l").unwrap().label("app").as_deref()), (vec!["a/l".to_owned()], Some("web")));
        let selector = informer::LabelSelector::parse("app=web").unwrap();
        assert_eq!(now.select(&selector).count(), 1);
        assert_eq!(server.initial_reads() == earlier, restart);
        drop(now);
        pods.stop().await;
    }
}
