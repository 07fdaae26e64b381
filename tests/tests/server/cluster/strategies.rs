//! Members that a create adds beyond defaults.

use cache_server::testing;
use serde_json::json;

use super::client_of;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Goal: the job controller, which makes no pods for a Job without labels, finds what it needs. Method: a Job as people write
/// it, and one that brings its selector.
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
