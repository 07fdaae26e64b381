//! Ready-made conditions of waits.

use std::time::Duration;

use informer::{Cluster, Informer, Snapshot, conditions, testing::FakeApiServer};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, Pod, Service},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fixture::SOON;

type Test<K> = Box<dyn Fn(&Snapshot<K>) -> bool + Send>;

/// Puts each object in turn, and checks that the condition holds from the last one on, and not before.
async fn holds_at_last<K>(server: &FakeApiServer, informer: &Informer<K>, steps: &[Value], condition: Test<K>) {
    for (number, step) in steps.iter().enumerate() {
        server.put(step);
        informer.wait_for(server.resource_version(), SOON).await.unwrap();
        let waited = timeout(Duration::from_secs(60), informer.wait_until(&condition)).await;
        assert_eq!(waited.is_ok(), number + 1 == steps.len(), "step {number}: {step}");
    }
}

/// Goal: waits end when the object is as expected, and never by the status of an older spec. Method: for each
/// condition, the states before it and the first that satisfies it.
#[tokio::test(start_paused = true)]
async fn ready_made_conditions_hold_from_the_right_state_on() {
    let server = FakeApiServer::new().serve::<Pod>().serve::<Deployment>();
    let cluster = Cluster::new(server.client());
    let pods = cluster.informer::<Pod>().start().unwrap();
    let is_gone = conditions::deleted("a/x", "uid");
    assert!(!is_gone(&pods.store().snapshot()), "nothing is known before the first sync");
    let deployments = cluster.informer::<Deployment>().start().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    let metadata = |generation: u64| json!({"name": "x", "namespace": "a", "generation": generation});
    let pod = |status: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(1), "status": status});
    let ready = |status: &str| {
        let other = json!({"type": "Other", "status": "True"});
        json!({"conditions": [other, {"type": "Ready", "status": status}]})
    };
    let steps = [pod(json!({})), pod(ready("False")), pod(ready("Unknown")), pod(ready("True"))];
    holds_at_last(&server, &pods, &steps, Box::new(conditions::ready("a/x"))).await;
    let steps = [pod(json!({"phase": "Pending"})), pod(json!({"phase": "Running"}))];
    holds_at_last(&server, &pods, &steps, Box::new(conditions::field_is("a/x", "status.phase", "Running"))).await;

    let deployment = |generation: u64, status: Value| {
        let (metadata, spec) = (metadata(generation), json!({"replicas": 3}));
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec, "status": status})
    };
    let status = |observed: u64, updated: u64, all: u64, available: u64| {
        let conditions = [json!({"type": "Available", "status": "True"})];
        json!({"observedGeneration": observed, "updatedReplicas": updated, "replicas": all,
            "availableReplicas": available, "conditions": conditions})
    };
    let mut empty = deployment(1, json!({}));
    empty["spec"]["replicas"] = json!(0);
    let steps = [
        empty,
        deployment(2, json!({})),
        deployment(2, status(1, 3, 3, 3)),
        deployment(2, status(2, 2, 3, 3)),
        deployment(2, status(2, 3, 4, 3)),
        deployment(2, status(2, 3, 3, 2)),
        deployment(2, status(2, 3, 3, 3)),
    ];
    holds_at_last(&server, &deployments, &steps, Box::new(conditions::rolled_out("a/x"))).await;
    let steps = [deployment(3, status(2, 3, 3, 3)), deployment(3, status(3, 3, 3, 3))];
    holds_at_last(&server, &deployments, &steps, Box::new(conditions::available("a/x"))).await;

    let observed = |observed: u64| {
        let condition = json!({"type": "Available", "status": "True", "observedGeneration": observed});
        deployment(3, json!({"observedGeneration": 3, "conditions": [condition]}))
    };
    let steps = [observed(2), observed(3)];
    holds_at_last(&server, &deployments, &steps, Box::new(conditions::is_true("a/x", "Available"))).await;
    let usual = |replicas: u64| {
        let mut usual = deployment(4, status(4, replicas, replicas, replicas));
        usual["spec"] = json!({});
        usual
    };
    holds_at_last(&server, &deployments, &[usual(0), usual(1)], Box::new(conditions::rolled_out("a/x"))).await;

    let uid = pods.wait_until(conditions::exists("a/x")).await.unwrap().get("a/x").unwrap().uid().to_owned();
    let is_deleted = conditions::deleted("a/x", uid);
    assert!(timeout(SOON, pods.wait_until(&is_deleted)).await.is_err());
    server.delete(pod(json!({}))).put(pod(json!({})));
    timeout(SOON, pods.wait_until(&is_deleted)).await.expect("another object has the name now").unwrap();
}

/// Goal: waits for Jobs, Namespaces and load balancers end at the right state. Method: as above.
#[tokio::test(start_paused = true)]
async fn jobs_namespaces_and_load_balancers_have_conditions() {
    let server = FakeApiServer::new().serve::<Job>().serve::<Namespace>().serve::<Service>();
    let cluster = Cluster::new(server.client());
    let jobs = cluster.informer::<Job>().start().unwrap();
    let namespaces = cluster.informer::<Namespace>().start().unwrap();
    let services = cluster.informer::<Service>().start().unwrap();
    cluster.ready_all(SOON).await.unwrap();
    let job = |condition: &str, status: &str| {
        let conditions =
            [json!({"type": "Suspended", "status": "False"}), json!({"type": condition, "status": status})];
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "a"},
            "status": {"conditions": conditions}})
    };
    let steps = |last: &str| [job("FailureTarget", "True"), job(last, "False"), job(last, "True")];
    for (last, condition) in [
        ("Complete", Box::new(conditions::complete("a/x")) as Test<Job>),
        ("Complete", Box::new(conditions::finished("a/x"))),
        ("Failed", Box::new(conditions::failed("a/x"))),
        ("Failed", Box::new(conditions::finished("a/x"))),
    ] {
        holds_at_last(&server, &jobs, &steps(last), condition).await;
    }
    let failed = jobs.store().snapshot();
    assert!(conditions::failed("a/x")(&failed) && !conditions::complete("a/x")(&failed));

    let namespace = |phase: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "status": {"phase": phase}});
    let steps = [namespace("Terminating"), namespace("Active")];
    holds_at_last(&server, &namespaces, &steps, Box::new(conditions::active("n"))).await;

    let service = |addresses: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": "a"},
            "status": {"loadBalancer": {"ingress": addresses}}})
    };
    for address in [json!([{"ip": "10.0.0.1"}]), json!([{}, {"hostname": "lb.example"}])] {
        let steps = [service(Value::Null), service(json!([])), service(json!([{}])), service(address)];
        holds_at_last(&server, &services, &steps, Box::new(conditions::load_balanced("a/x"))).await;
    }
}
