//! Columns of workload types.

use super::*;

fn spec(replicas: i64) -> Value {
    json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "a0", "operator": "DoesNotExist"},
        ]},
        "template": {"spec": {"nodeSelector": {"os": "linux"}, "containers": [
            {"name": "c", "image": "i:1"}, {"name": "d", "image": "j"},
        ]}},
    }})
}

const SELECTOR: &str = "a=1,!a0,b=2,c in (x,y)";

#[test]
fn controllers_count_their_pods() {
    let with = |status: Value| {
        let mut object = spec(3);
        object["status"] = status;
        object
    };
    check(
        "deployments.apps",
        with(json!({"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2})),
        &["a", "2/3", "1", "2", "5m", "c,d", "i:1,j", SELECTOR],
    );
    check("deployments.apps", json!({"spec": {}}), &["a", "0/1", "0", "0", "5m", "", "", ""]);
    let odd = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}});
    check("deployments.apps", odd, &["a", "0/1", "0", "0", "5m", "", "", "<invalid>"]);
    check(
        "replicasets.apps",
        with(json!({"replicas": 3, "readyReplicas": 1})),
        &["a", "3", "3", "1", "5m", "c,d", "i:1,j", SELECTOR],
    );
    check("statefulsets.apps", with(json!({"readyReplicas": 3})), &["a", "3/3", "5m", "c,d", "i:1,j"]);
    check("statefulsets.apps", json!({"spec": {"replicas": 0}}), &["a", "0/0", "5m", "", ""]);
    check(
        "replicationcontrollers",
        json!({"spec": {"replicas": 2, "selector": {"x": "y"}}, "status": {"replicas": 1}}),
        &["a", "2", "1", "0", "5m", "", "", "x=y"],
    );
    check(
        "daemonsets.apps",
        with(json!({
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
            "numberAvailable": 1,
        })),
        &["a", "5", "4", "3", "2", "1", "os=linux", "5m", "c,d", "i:1,j", SELECTOR],
    );
}

#[test]
fn a_scale_says_how_many_there_are() {
    let scale = object(json!({"spec": {"replicas": 3}, "status": {"replicas": 2}}));
    let columns = Columns::scale();
    assert_eq!(row(&columns, scale.to_string().as_bytes()), json!({"cells": ["a", 3, 2, "5m"]}));
    assert_eq!(definitions(&columns).len(), 4);
}

#[test]
fn templates_and_revisions_say_whose_they_are() {
    let template = json!({"template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    check("podtemplates", template, &["a", "c", "i", "x=y"]);
    check("podtemplates", json!({}), &["a", "", "", "<none>"]);
    let owner = json!([{"kind": "Other", "name": "o"}, {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "controller": true}]);
    let revision = json!({"metadata": {"ownerReferences": owner}, "revision": 3});
    check("controllerrevisions.apps", revision, &["a", "daemonset.apps/d", "3", "5m"]);
    check("controllerrevisions.apps", json!({}), &["a", "<none>", "0", "5m"]);
}

#[test]
fn jobs_say_how_far_they_are() {
    let job = |spec: Value, status: Value| json!({"spec": spec, "status": status});
    let (start, end) = ("2026-01-01T00:06:00Z", "2026-01-01T00:07:30Z");
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    let done = json!({
        "conditions": [{"type": "Complete", "status": "True"}], "succeeded": 2, "startTime": start, "completionTime": end,
    });
    check("jobs.batch", job(json!({"completions": 2}), done), &["a", "Complete", "2/2", "90s", "5m", "", "", "<none>"]);
    let running = json!({"startTime": start});
    check(
        "jobs.batch",
        job(json!({"parallelism": 3}), running),
        &["a", "Running", "0/1 of 3", "4m", "5m", "", "", "<none>"],
    );
    check("jobs.batch", json!({}), &["a", "Running", "0/1", "", "5m", "", "", "<none>"]);
    for (kind, status) in [("Failed", "Failed"), ("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")] {
        check("jobs.batch", job(json!({}), condition(kind)), &["a", status, "0/1", "", "5m", "", "", "<none>"]);
    }
    let mut going = job(json!({}), condition("Suspended"));
    going["metadata"] = json!({"deletionTimestamp": CREATED_AT});
    check("jobs.batch", going, &["a", "Terminating", "0/1", "", "5m", "", "", "<none>"]);
}

#[test]
fn cron_jobs_say_when_they_ran() {
    let spec = json!({"schedule": "*/5 * * * *", "timeZone": "Etc/UTC", "suspend": true, "jobTemplate": {"spec": {
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    }}});
    let status = json!({"active": [{}, {}], "lastScheduleTime": "2026-01-01T00:09:00Z"});
    check(
        "cronjobs.batch",
        json!({"spec": spec, "status": status}),
        &["a", "*/5 * * * *", "Etc/UTC", "True", "2", "60s", "5m", "c", "i", "<none>"],
    );
    check("cronjobs.batch", json!({}), &["a", "", "<none>", "False", "0", "<none>", "5m", "", "", "<none>"]);
}

#[test]
fn disruption_budgets_know_numbers_and_percentages() {
    let budget = json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}});
    check("poddisruptionbudgets.policy", budget, &["a", "50%", "N/A", "1", "5m"]);
    check("poddisruptionbudgets.policy", json!({"spec": {"maxUnavailable": 2}}), &["a", "N/A", "2", "0", "5m"]);
}

#[test]
fn autoscalers_say_what_each_metric_says() {
    let id = "horizontalpodautoscalers.autoscaling";
    check(id, json!({}), &["a", "/", "<none>", "<unset>", "0", "0", "5m"]);
    let resource =
        |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let cpu = resource("cpu", json!({"averageUtilization": 80}));
    let shown = |metrics: Value, current: Value| {
        let object = object(json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}}));
        plain(&row(&columns(id), object.to_string().as_bytes())["cells"][2])
    };
    let now = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42}}}]);
    assert_eq!(shown(json!([cpu]), now), "cpu: 42%/80%");
    assert_eq!(shown(json!([cpu]), json!([])), "cpu: <unknown>/80%");
    assert_eq!(shown(json!([resource("cpu", json!({}))]), json!([])), "cpu: <unknown>/<auto>");
    let memory = resource("memory", json!({"averageValue": "1Gi"}));
    let now = json!([{}, {"resource": {"current": {"averageValue": "512Mi"}}}]);
    assert_eq!(shown(json!([cpu, memory, cpu]), now), "cpu: <unknown>/80%, memory: 512Mi/1Gi + 1 more...");
    let pods = json!([{"type": "Pods", "pods": {"target": {"averageValue": "10"}}}]);
    assert_eq!(shown(pods, json!([{"pods": {"current": {"averageValue": 7}}}])), "7/10");
    let external = |target: Value| json!([{"type": "External", "external": {"target": target}}]);
    let now = json!([{"external": {"current": {"value": "3", "averageValue": "4"}}}]);
    assert_eq!(shown(external(json!({"value": "30"})), now.clone()), "3/30");
    assert_eq!(shown(external(json!({"averageValue": "40"})), now), "4/40 (avg)");
    let object = json!([{"type": "Object", "object": {"target": {"value": "5k"}}}, {"type": "Odd"}]);
    assert_eq!(shown(object, json!([])), "<unknown>/5k, <unknown type>");
    let whole = json!({
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5},
        "status": {"currentReplicas": 2},
    });
    check(id, whole, &["a", "Deployment/d", "<none>", "1", "5", "2", "5m"]);
}
