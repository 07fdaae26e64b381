//! Members that a create adds beyond defaults.

use std::net::SocketAddr;

use cache_server::{Server, config::Config, testing};
use serde_json::json;
use tests::{
    http::{Client, MERGE_PATCH},
    process,
};

use super::client_of;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Goal: the job controller, which makes no pods for a Job without labels, finds what it needs. Method: a Job as people
/// write it, and one that brings its selector.
#[tokio::test]
async fn a_job_selects_its_own_pods() {
    let server = testing::start().await;
    let client = client_of(&server);
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}});
    let made = client.post(JOBS, &job("one")).await.with_code(201).json();
    let uid = &made["metadata"]["uid"];
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let labels = json!({"app": "a", "job-name": "one", "batch.kubernetes.io/job-name": "one", "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid});
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);

    let mut manual = job("two");
    manual["spec"]["manualSelector"] = true.into();
    manual["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
    let made = client.post(JOBS, &manual).await.with_code(201).json();
    assert_eq!(made["spec"]["selector"], manual["spec"]["selector"]);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], json!({"app": "a"}));
}

#[tokio::test]
async fn a_pod_has_its_class_and_waits_for_its_gates() {
    let server = testing::start().await;
    let client = client_of(&server);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"schedulingGates": [{"name": "example.com/wait"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}});
    let status = client.post(PODS, &pod).await.with_code(201).json()["status"].clone();
    assert_eq!((&status["phase"], &status["qosClass"]), (&"Pending".into(), &"Burstable".into()));
    assert_eq!(status["conditions"][0]["reason"], "SchedulingGated");
}

/// Goal: objects can be changed that are stored without defaults, such as by a server that does not act as a cluster.
/// Method: objects of such a server, in its folder; then changes of each by a server that does, of what may change and
/// of what may not.
#[tokio::test]
async fn objects_that_lack_defaults_can_be_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = process::Server::start(BINARY, &["--data-dir", folder.path().to_str().expect("a plain path")]).await;
    let client = first.client();
    let container = json!({"name": "c", "image": "i"});
    let set = json!({"metadata": {"name": "a"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    client.post(SETS, &set).await.with_code(201);
    client.post(PODS, &json!({"metadata": {"name": "a"}, "spec": {"containers": [container]}})).await.with_code(201);
    first.terminate();
    first.ended().await;
    let (listen, data_dir) = (SocketAddr::from(([127, 0, 0, 1], 0)), Some(folder.path().to_owned()));
    let config = Config { listen, acts_as_cluster: true, data_dir, ..Config::default() };
    let server = Server::bind(config).await.expect("starts");
    let client = Client::new(server.local_addr());
    tokio::spawn(server.serve(std::future::pending()));
    let stored = client.get(&format!("{SETS}/a")).await.with_code(200).json();
    assert_eq!(stored["spec"].get("podManagementPolicy"), None, "{stored}");
    let scaled =
        client.patch(&format!("{SETS}/a"), MERGE_PATCH, &json!({"spec": {"replicas": 3}})).await.with_code(200);
    assert_eq!(scaled.json()["spec"]["podManagementPolicy"], "OrderedReady");
    let image = json!({"spec": {"containers": [{"name": "c", "image": "j"}]}});
    client.patch(&format!("{PODS}/a"), MERGE_PATCH, &image).await.with_code(200);
    let moved = json!({"spec": {"nodeName": "n"}});
    let moved = client.patch(&format!("{PODS}/a"), MERGE_PATCH, &moved).await.with_code(422);
    assert!(moved.message().contains("pod updates may not change fields"), "{}", moved.message());
}
