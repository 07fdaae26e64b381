//! Columns of pods in each of their states.

use super::*;

/// Checks name, ready, status, restarts and age of a pod with two containers.
#[track_caller]
fn check_pod(status: Value, expected: [&str; 3]) {
    check_with(json!({"status": status}), expected);
}

#[track_caller]
fn check_with(rest: Value, expected: [&str; 3]) {
    let mut pod = object(json!({"spec": {"containers": [{"name": "c"}, {"name": "d"}]}}));
    merge(&mut pod, rest);
    let row = row(&columns("pods"), pod.to_string().as_bytes());
    let cells: Vec<String> = row["cells"].as_array().expect("cells").iter().map(plain).collect();
    assert_eq!([&*cells[0], &*cells[4]], ["a", "5m"]);
    assert_eq!([&*cells[1], &*cells[2], &*cells[3]], expected, "{pod}");
}

fn running(ready: bool) -> Value {
    json!({"name": "c", "ready": ready, "restartCount": 0, "state": {"running": {}}})
}

fn waiting(reason: &str) -> Value {
    json!({"name": "c", "state": {"waiting": {"reason": reason}}})
}

fn ended(terminated: Value) -> Value {
    json!({"name": "c", "state": {"terminated": terminated}})
}

#[test]
fn containers_say_how_a_pod_fares() {
    check_pod(json!({"phase": "Pending"}), ["0/2", "Pending", "0"]);
    check_pod(
        json!({"phase": "Running", "containerStatuses": [running(true), running(true)]}),
        ["2/2", "Running", "0"],
    );
    check_pod(
        json!({"phase": "Running", "containerStatuses": [running(true), running(false)]}),
        ["1/2", "Running", "0"],
    );
    // The first container with a reason determines the status.
    let statuses = json!([waiting("CrashLoopBackOff"), waiting("ImagePullBackOff")]);
    check_pod(json!({"phase": "Running", "containerStatuses": statuses}), ["0/2", "CrashLoopBackOff", "0"]);
    let statuses = json!([running(true), ended(json!({"reason": "OOMKilled"}))]);
    check_pod(json!({"phase": "Running", "containerStatuses": statuses}), ["1/2", "OOMKilled", "0"]);
    check_pod(
        json!({"phase": "Running", "containerStatuses": [ended(json!({"exitCode": 3}))]}),
        ["0/2", "ExitCode:3", "0"],
    );
    check_pod(
        json!({"phase": "Running", "containerStatuses": [ended(json!({"exitCode": 3, "signal": 9}))]}),
        ["0/2", "Signal:9", "0"],
    );
    check_pod(json!({"phase": "Failed", "reason": "Evicted"}), ["0/2", "Evicted", "0"]);
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    check_pod(json!({"phase": "Pending", "conditions": gated}), ["0/2", "SchedulingGated", "0"]);
}

#[test]
fn a_container_that_ended_well_is_not_all_of_a_pod() {
    let statuses = json!([running(true), ended(json!({"reason": "Completed", "exitCode": 0}))]);
    let status = |ready: &str| json!({"phase": "Running", "containerStatuses": statuses, "conditions": [{"type": "Ready", "status": ready}]});
    check_pod(status("True"), ["1/2", "Running", "0"]);
    check_pod(status("False"), ["1/2", "NotReady", "0"]);
    let statuses = json!([ended(json!({"reason": "Completed", "exitCode": 0}))]);
    check_pod(json!({"phase": "Succeeded", "containerStatuses": statuses}), ["0/2", "Completed", "0"]);
}

#[test]
fn init_containers_come_first() {
    let spec = json!({"initContainers": [{"name": "i"}, {"name": "j"}]});
    let pod =
        |statuses: Value| json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": statuses}});
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    check_with(pod(json!([{"name": "i", "state": {"running": {}}}])), ["0/2", "Init:0/2", "0"]);
    check_with(pod(json!([done, {"name": "j", "state": {"running": {}}}])), ["0/2", "Init:1/2", "0"]);
    check_with(pod(json!([waiting("PodInitializing")])), ["0/2", "Init:0/2", "0"]);
    check_with(pod(json!([waiting("CrashLoopBackOff")])), ["0/2", "Init:CrashLoopBackOff", "0"]);
    check_with(pod(json!([ended(json!({"exitCode": 2, "reason": "Error"}))])), ["0/2", "Init:Error", "0"]);
    check_with(pod(json!([ended(json!({"exitCode": 2}))])), ["0/2", "Init:ExitCode:2", "0"]);
    check_with(pod(json!([ended(json!({"exitCode": 2, "signal": 6}))])), ["0/2", "Init:Signal:6", "0"]);
    check_with(pod(json!([done, done])), ["0/2", "Pending", "0"]);
    // Once the pod is initialized, init containers no longer count.
    let mut restarted = pod(json!([waiting("CrashLoopBackOff")]));
    merge(
        &mut restarted["status"],
        json!({"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}], "containerStatuses": [waiting("Again")]}),
    );
    check_with(restarted, ["0/2", "Again", "0"]);
}

#[test]
fn init_containers_that_stay_are_counted() {
    let spec = json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let sidecar = |ready: bool| json!({"name": "s", "started": true, "ready": ready, "restartCount": 2, "state": {"running": {}}});
    let pod = |ready: bool| {
        json!({"spec": spec, "status": {
            "phase": "Running", "initContainerStatuses": [sidecar(ready)], "containerStatuses": [running(true), running(true)],
        }})
    };
    check_with(pod(true), ["3/3", "Running", "2"]);
    check_with(pod(false), ["2/3", "Running", "2"]);
    let mut starting = pod(true);
    starting["status"]["initContainerStatuses"][0]["started"] = json!(false);
    check_with(starting, ["0/3", "Init:0/1", "2"]);
}

#[test]
fn restarts_tell_when_the_last_one_was() {
    let restarted = |count: i64, at: &str| {
        json!({"name": "c", "restartCount": count, "ready": true, "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": at}}})
    };
    let statuses = json!([restarted(1, "2026-01-01T00:05:00Z"), restarted(2, "2026-01-01T00:08:30Z")]);
    check_pod(json!({"phase": "Running", "containerStatuses": statuses}), ["2/2", "Running", "3 (90s ago)"]);
    let statuses = json!([{"restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    check_pod(json!({"phase": "Running", "containerStatuses": statuses}), ["0/2", "CrashLoopBackOff", "7"]);
    let statuses = json!([restarted(0, "2026-01-01T00:08:30Z")]);
    check_pod(json!({"phase": "Running", "containerStatuses": statuses}), ["1/2", "Running", "0"]);
}

#[test]
fn a_deletion_has_the_last_word() {
    let going = |phase: &str, reason: &str| json!({"metadata": {"deletionTimestamp": CREATED_AT}, "status": {"phase": phase, "reason": reason}});
    check_with(going("Running", ""), ["0/2", "Terminating", "0"]);
    check_with(going("Running", "NodeLost"), ["0/2", "Unknown", "0"]);
    check_with(going("Succeeded", ""), ["0/2", "Succeeded", "0"]);
    check_with(going("Failed", "Evicted"), ["0/2", "Evicted", "0"]);
}

#[test]
fn wide_cells_say_where_a_pod_is() {
    let wide = |pod: Value| {
        let row = row(&columns("pods"), object(pod).to_string().as_bytes());
        row["cells"].as_array().expect("cells")[5..].iter().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(wide(json!({})), ["<none>"; 4]);
    let pod = json!({
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
        "status": {
            "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd::1"}], "nominatedNodeName": "n2",
            "conditions": [{"type": "x", "status": "True"}, {"type": "y", "status": "False"}],
        },
    });
    assert_eq!(wide(pod), ["10.0.0.1", "n1", "n2", "1/2"]);
    assert_eq!(wide(json!({"status": {"podIP": "10.0.0.9"}}))[0], "10.0.0.9");
}

#[test]
fn pods_that_have_ended_are_marked() {
    let conditions = |phase: &str| {
        let pod = object(json!({"status": {"phase": phase}}));
        row(&columns("pods"), pod.to_string().as_bytes())["conditions"].clone()
    };
    assert_eq!(conditions("Succeeded")[0]["reason"], "Succeeded");
    assert_eq!(conditions("Failed")[0]["reason"], "Failed");
    assert_eq!(conditions("Running"), Value::Null);
}

#[test]
fn restarts_that_cannot_be_counted_break_nothing() {
    let report = json!({"name": "c", "restartCount": i64::MAX});
    check_pod(
        json!({"phase": "Running", "containerStatuses": [report, report]}),
        ["0/2", "Running", &i64::MAX.to_string()],
    );
}
