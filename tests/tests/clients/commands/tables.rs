//! kubectl's printed tables: the server renders the cells, kubectl only lays them out.
//!
//! Goal: tables look as with a cluster. Method: objects in a known state, and every printed cell of them; only the ages
//! of new objects are not compared.

use std::process::Stdio;

use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH},
    objects::{namespace, node, pod},
    process::Server,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{COMMAND_WAIT, Kubectl, SERVER, timeout};

/// Rows of cells, which kubectl separates by three blanks.
fn cells(printed: &str) -> Vec<Vec<&str>> {
    let lines = printed.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

/// Compares all cells of a printed table; `~` matches an age in seconds.
#[track_caller]
fn check(printed: &str, expected: &[&[&str]]) {
    let rows = cells(printed);
    let fits = |cell: &str, wanted: &str| match wanted {
        "~" => cell.strip_suffix('s').is_some_and(|age| age.parse::<u32>().is_ok()),
        _ => cell == wanted,
    };
    let same = rows.len() == expected.len()
        && rows.iter().zip(expected).all(|(row, wanted)| {
            row.len() == wanted.len() && row.iter().zip(wanted.iter()).all(|(cell, wanted)| fits(cell, wanted))
        });
    assert!(same, "printed\n{printed}\nwanted {expected:?}");
}

/// Writes a status as a controller would.
async fn report(client: &Client, path: &str, status: Value) {
    client.patch(&format!("{path}/status"), MERGE_PATCH, &json!({"status": status})).await.with_code(200);
}

const LONG_AGO: &str = "2001-02-03T04:05:06Z";

#[tokio::test]
async fn pods_look_as_in_a_cluster() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let client = server.client();
    let broken = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "containerStatuses": [{
        "name": "c", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "9999-01-01T00:00:00Z"}},
    }]});
    for (name, status) in [
        ("new", json!({"phase": "Pending"})),
        ("broken", broken),
        (
            "done",
            json!({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]}),
        ),
    ] {
        client.create(&pod(name).node(if name == "broken" { "n1" } else { "" }).label("app", "web")).await;
        report(&client, &pod(name).path(), status).await;
    }
    let header: &[&str] = &["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    let expected: &[&[&str]] = &[
        header,
        &["broken", "0/1", "CrashLoopBackOff", "5 (<invalid> ago)", "~"],
        &["done", "0/1", "Completed", "0", "~"],
        &["new", "0/1", "Pending", "0", "~"],
    ];
    check(&kubectl.run(&["get", "pods"]).await, expected);
    check(&kubectl.run(&["get", "pods", "--chunk-size=2"]).await, expected);
    check(&kubectl.run(&["get", "pods", "broken"]).await, &expected[..2]);
    check(&kubectl.run(&["get", "pods", "--field-selector=status.phase=Pending"]).await, &[header, expected[3]]);
    check(
        &kubectl.run(&["get", "pods", "broken", "-o", "wide"]).await,
        &[
            &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"],
            &["broken", "0/1", "CrashLoopBackOff", "5 (<invalid> ago)", "~", "10.0.0.7", "n1", "<none>", "<none>"],
        ],
    );
    let labelled = kubectl.run(&["get", "pods", "new", "-L", "app", "--show-labels"]).await;
    check(&labelled, &[&[header, &["APP", "LABELS"]].concat(), &[expected[3], &["web", "app=web"]].concat()]);
    let sorted = kubectl.run(&["get", "pods", "--sort-by=.status.phase", "--no-headers"]).await;
    let names: Vec<&str> = cells(&sorted).iter().map(|row| row[0]).collect();
    assert_eq!(names, ["new", "broken", "done"]);
}

#[tokio::test]
async fn nodes_look_as_in_a_cluster() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let client = server.client();
    let closed = json!({"unschedulable": true});
    client.create(&node("n1").label("node-role.kubernetes.io/worker", "").with("spec", closed)).await;
    let status = json!({
        "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Some Linux", "containerRuntimeVersion": "containerd://2"},
    });
    report(&client, &node("n1").path(), status).await;
    check(
        &kubectl.run(&["get", "nodes", "-o", "wide"]).await,
        &[
            &[
                "NAME",
                "STATUS",
                "ROLES",
                "AGE",
                "VERSION",
                "INTERNAL-IP",
                "EXTERNAL-IP",
                "OS-IMAGE",
                "KERNEL-VERSION",
                "CONTAINER-RUNTIME",
            ],
            &[
                "n1",
                "Ready,SchedulingDisabled",
                "worker",
                "~",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "Some Linux",
                "<unknown>",
                "containerd://2",
            ],
        ],
    );
}

const OBJECTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:1"}, {name: d, image: j}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80, nodePort: 30080, protocol: TCP}]}
---
apiVersion: v1
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: p, namespace: default}
type: Warning
reason: BackOff
message: Back-off restarting
count: 3
source: {component: kubelet, host: n1}
firstTimestamp: "9999-01-01T00:00:00Z"
lastTimestamp: "9999-01-01T00:00:00Z"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: view}
subjects: [{kind: User, name: ann, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1", b: "2"}
"#;

#[tokio::test]
async fn other_types_look_as_in_a_cluster() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let file = kubectl.file("objects.yaml", OBJECTS);
    kubectl.run(&["create", "-f", &file]).await;
    report(&server.client(), "/apis/apps/v1/namespaces/default/deployments/web", json!({"readyReplicas": 1})).await;
    let run = async |line: &str| kubectl.run(&line.split(' ').collect::<Vec<_>>()).await;
    check(
        &run("get deploy -o wide").await,
        &[
            &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"],
            &["web", "1/2", "0", "0", "~", "c,d", "i:1,j", "app=web"],
        ],
    );
    check(
        &run("get svc -o wide").await,
        &[
            &["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"],
            &["web", "LoadBalancer", "10.96.0.10", "<pending>", "80:30080/TCP", "~", "app=web"],
        ],
    );
    check(
        &run("get events").await,
        &[
            &["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
            &["<invalid>", "Warning", "BackOff", "pod/p", "Back-off restarting"],
        ],
    );
    check(
        &run("get rolebindings -o wide").await,
        &[&["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"], &["view", "Role/view", "~", "ann"]],
    );
    check(&run("get cm").await, &[&["NAME", "DATA", "AGE"], &["settings", "2", "~"]]);
    let both = run("get deploy,svc --show-kind --no-headers").await;
    check(
        &both,
        &[
            &["deployment.apps/web", "1/2", "0", "0", "~"],
            &["service/web", "LoadBalancer", "10.96.0.10", "<pending>", "80:30080/TCP", "~"],
        ],
    );
    let told = run("events").await;
    assert!(told.contains("Pod/p") && told.contains("Back-off restarting"), "{told}");
    let named = run("get svc -o custom-columns=A:.metadata.name,B:.spec.ports[*].nodePort").await;
    check(&named, &[&["A", "B"], &["web", "30080"]]);
    let refused = kubectl.fail(&["top", "pods"]).await;
    assert!(refused.contains("Metrics API not available"), "{refused}");
    for (line, words) in [
        ("describe deployment web", "Replicas: 2 desired | 0 updated | 0 total | 0 available | 0 unavailable"),
        ("describe service web", "NodePort: <unset> 30080/TCP"),
    ] {
        let described = run(line).await.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(described.contains(words), "{described}");
    }
}

#[tokio::test]
async fn a_watch_prints_each_change_as_a_row() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let client = server.client();
    client.create(&pod("p")).await;
    let mut child = kubectl.command(&["get", "pods", "-w"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
    let mut line = async || {
        let line = timeout(COMMAND_WAIT, lines.next_line()).await.expect("a line is due").expect("is text");
        line.expect("the watch goes on")
    };
    check(&line().await, &[&["NAME", "READY", "STATUS", "RESTARTS", "AGE"]]);
    check(&line().await, &[&["p", "0/1", "Pending", "0", "~"]]);
    let running = json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": {"running": {"startedAt": LONG_AGO}}}]});
    report(&client, &pod("p").path(), running).await;
    check(&line().await, &[&["p", "1/1", "Running", "0", "~"]]);
    client.remove(&pod("p")).await;
    for _ in ["told to go", "gone"] {
        check(&line().await, &[&["p", "1/1", "Terminating", "0", "~"]]);
    }
    child.kill().await.expect("it was running");
}

const BOATS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
      additionalPrinterColumns:
        - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
        - {name: Length, type: integer, jsonPath: .spec.length}
        - {name: Home, type: string, jsonPath: '.metadata.annotations.example\.com/home', priority: 1}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
"#;

const BOAT: &str = r#"
apiVersion: example.com/v1
kind: Boat
metadata: {name: anna, annotations: {example.com/home: Kiel}}
spec: {length: 12}
status: {conditions: [{type: Afloat, status: "True"}, {type: Ready, status: "False"}]}
"#;

#[tokio::test]
async fn custom_resources_have_the_columns_of_their_definition() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    for (name, text) in [("boats.yaml", BOATS), ("boat.yaml", BOAT)] {
        let file = kubectl.file(name, text);
        kubectl.run(&["create", "-f", &file]).await;
        if text == BOATS {
            kubectl.run(&["wait", "--for=condition=Established", "crd/boats.example.com", "--timeout=30s"]).await;
        }
    }
    check(&kubectl.run(&["get", "bt"]).await, &[&["NAME", "READY", "LENGTH", "AGE"], &["anna", "False", "12", "~"]]);
    let wide = kubectl.run(&["get", "boats.example.com", "-o", "wide"]).await;
    check(&wide, &[&["NAME", "READY", "LENGTH", "HOME", "AGE"], &["anna", "False", "12", "Kiel", "~"]]);
    let definitions = kubectl.run(&["get", "crd"]).await;
    let rows = cells(&definitions);
    assert_eq!((&*rows[0], rows[1][0]), (&["NAME", "CREATED AT"][..], "boats.example.com"));
    assert!(rows[1][1].ends_with('Z'), "{definitions}");
}

#[tokio::test]
async fn namespaces_and_nothing_at_all() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    server.client().create(&namespace("team")).await;
    let spaces = kubectl.run(&["get", "ns", "team"]).await;
    check(&spaces, &[&["NAME", "STATUS", "AGE"], &["team", "Active", "~"]]);
    let nothing = kubectl.output(&["get", "pods", "-n", "team"]).await;
    assert_eq!(String::from_utf8_lossy(&nothing.stderr), "No resources found in team namespace.\n");
}
