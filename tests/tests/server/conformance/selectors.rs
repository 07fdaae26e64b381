//! Field selectors of every type that declares fields, and consistent results of lists and watches.

use serde_json::{Value, json};
use tests::{
    http::{Client, watch_list, with_query},
    objects::pod,
};

use super::server;

/// One type, two objects of it, and selectors that match only the first.
struct Fields {
    path: &'static str,
    first: Value,
    second: Value,
    /// Patch for the first object's status subresource.
    status: Value,
    fields: &'static [&'static str],
}

fn tables() -> Vec<Fields> {
    vec![pods(), nodes(), secrets(), services(), replication_controllers(), events(), jobs(), signing_requests()]
}

/// The first object with this spec.
fn first(spec: Value) -> Value {
    json!({"metadata": {"name": "first"}, "spec": spec})
}

fn containers() -> Value {
    json!([{"name": "c", "image": "i"}])
}

fn pods() -> Fields {
    Fields {
        path: "/api/v1/namespaces/default/pods",
        first: first(json!({"containers": containers(), "nodeName": "n1", "restartPolicy": "Never",
            "schedulerName": "mine", "serviceAccountName": "robot", "hostNetwork": true})),
        second: json!({"metadata": {"name": "second"}, "spec": {"containers": containers(), "nodeName": "n2",
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "default"}}),
        status: json!({"phase": "Failed", "podIP": "10.0.0.1", "nominatedNodeName": "n9"}),
        fields: &[
            "spec.nodeName=n1",
            "spec.host=n1",
            "spec.restartPolicy=Never",
            "spec.schedulerName=mine",
            "spec.serviceAccountName=robot",
            "spec.hostNetwork=true",
            "spec.hostNetwork!=false",
            "status.phase=Failed",
            "status.podIP=10.0.0.1",
            "status.nominatedNodeName=n9",
            "status.phase!=Running,status.phase!=Pending,status.phase!=Succeeded,status.phase!=",
            "spec.nodeName=n1,status.phase=Failed",
        ],
    }
}

fn nodes() -> Fields {
    Fields {
        path: "/api/v1/nodes",
        first: first(json!({"unschedulable": true})),
        second: json!({"metadata": {"name": "second"}}),
        status: Value::Null,
        fields: &["spec.unschedulable=true", "spec.unschedulable!=false"],
    }
}

fn secrets() -> Fields {
    Fields {
        path: "/api/v1/namespaces/default/secrets",
        first: json!({"metadata": {"name": "first"}, "type": "kubernetes.io/tls"}),
        second: json!({"metadata": {"name": "second"}, "type": "Opaque"}),
        status: Value::Null,
        fields: &["type=kubernetes.io/tls", "type!=Opaque"],
    }
}

fn services() -> Fields {
    Fields {
        path: "/api/v1/namespaces/default/services",
        first: first(json!({"clusterIP": "None", "type": "ClusterIP"})),
        second: json!({"metadata": {"name": "second"}, "spec": {"clusterIP": "10.0.0.2", "type": "NodePort"}}),
        status: Value::Null,
        fields: &["spec.clusterIP=None", "spec.type=ClusterIP"],
    }
}

fn replication_controllers() -> Fields {
    Fields {
        path: "/api/v1/namespaces/default/replicationcontrollers",
        first: first(json!({"replicas": 3})),
        second: json!({"metadata": {"name": "second"}}),
        status: json!({"replicas": 3}),
        fields: &["status.replicas=3", "status.replicas!=0"],
    }
}

fn events() -> Fields {
    Fields {
        path: "/api/v1/namespaces/default/events",
        first: json!({"metadata": {"name": "first"}, "reason": "Pulled", "type": "Warning",
            "reportingComponent": "kubelet", "source": {"component": "kubelet"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u1",
                "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "spec.containers{c}"}}),
        second: json!({"metadata": {"name": "second"}, "reason": "Started", "type": "Normal",
            "source": {"component": "scheduler"}, "involvedObject": {"kind": "Node", "name": "n"}}),
        status: Value::Null,
        fields: &[
            "involvedObject.kind=Pod",
            "involvedObject.namespace=default",
            "involvedObject.name=p",
            "involvedObject.uid=u1",
            "involvedObject.apiVersion=v1",
            "involvedObject.resourceVersion=7",
            "involvedObject.fieldPath=spec.containers{c}",
            "reason=Pulled",
            "reportingComponent=kubelet",
            "source=kubelet",
            "type=Warning",
            "involvedObject.kind=Pod,involvedObject.name=p,type!=Normal",
        ],
    }
}

fn jobs() -> Fields {
    Fields {
        path: "/apis/batch/v1/namespaces/default/jobs",
        first: first(json!({"template": {"spec": {"containers": containers(), "restartPolicy": "Never"}}})),
        second: json!({"metadata": {"name": "second"}, "spec": {}}),
        status: json!({"succeeded": 1}),
        fields: &["status.successful=1", "status.successful!=0"],
    }
}

fn signing_requests() -> Fields {
    Fields {
        path: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        first: first(json!({"signerName": "example.com/mine", "request": "eA==", "usages": ["client auth"]})),
        second: json!({"metadata": {"name": "second"}, "spec": {"signerName": "example.com/other",
            "request": "eA==", "usages": ["client auth"]}}),
        status: Value::Null,
        fields: &["spec.signerName=example.com/mine"],
    }
}

#[tokio::test]
async fn each_type_selects_by_the_fields_it_declares() {
    let server = server(&[]).await;
    let client = server.client();
    for Fields { path, first, second, status, fields } in tables() {
        client.post(path, &first).await.with_code(201);
        client.post(path, &second).await.with_code(201);
        if !status.is_null() {
            let patch = json!({ "status": status });
            client.patch(&format!("{path}/first/status"), tests::http::MERGE_PATCH, &patch).await.with_code(200);
        }
        for selector in fields {
            let query = [("fieldSelector", *selector)];
            let listed = names(&client.get(&with_query(path, &query)).await.with_code(200).json());
            assert_eq!(listed, ["first"], "{path} {selector}");
            let mut watch = client.watch(&watch_list(&with_query(path, &query))).await;
            let added = watch.event().await;
            assert_eq!(added.object["metadata"]["name"], "first", "watched: {path} {selector}");
            assert!(watch.event().await.ends_initial_state(), "watched: {path} {selector}");
        }
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_phase_of_a_namespace_is_a_field() {
    let server = server(&[]).await;
    let client = server.client();
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.with_code(201);
    let active = client.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive").await.with_code(200);
    assert!(active.keys().contains(&"team".to_owned()));
    assert!(client.get("/api/v1/namespaces?fieldSelector=status.phase%3DTerminating").await.keys().is_empty());
}

/// Goal: {all namespaces, one} × fields × labels is exactly the intersection, and never an error. Method: every
/// combination as a list, as pages, and as initial events, against a model of eight pods.
#[tokio::test]
async fn paths_fields_and_labels_intersect() {
    let server = server(&[]).await;
    let client = server.client();
    let mut pods = Vec::new();
    for namespace in ["ns1", "ns2"] {
        for (name, node, app) in [("a", "n1", "web"), ("b", "n2", "web"), ("c", "n1", "api"), ("d", "", "")] {
            let mut object = pod(name).namespace(namespace).node(node);
            if !app.is_empty() {
                object = object.label("app", app);
            }
            client.create(&object).await;
            pods.push((namespace, name, node, app));
        }
    }
    type Keep = fn(&(&str, &str, &str, &str)) -> bool;
    let fields: [(&str, Keep); 9] = [
        ("", |_| true),
        ("metadata.namespace=ns1", |pod| pod.0 == "ns1"),
        ("metadata.namespace=ns2", |pod| pod.0 == "ns2"),
        ("metadata.name=a", |pod| pod.1 == "a"),
        ("metadata.name=a,metadata.namespace=ns1", |pod| pod.1 == "a" && pod.0 == "ns1"),
        ("spec.nodeName=n1", |pod| pod.2 == "n1"),
        ("spec.nodeName=n1,metadata.name!=a", |pod| pod.2 == "n1" && pod.1 != "a"),
        ("spec.nodeName=", |pod| pod.2.is_empty()),
        ("metadata.name=a,spec.nodeName=n2", |_| false),
    ];
    let labels: [(&str, Keep); 5] = [
        ("", |_| true),
        ("app=web", |pod| pod.3 == "web"),
        ("app in (web,api)", |pod| !pod.3.is_empty()),
        ("!app", |pod| pod.3.is_empty()),
        ("app notin (web)", |pod| pod.3 != "web"),
    ];
    for inside in ["", "ns1", "ns3"] {
        let path =
            if inside.is_empty() { "/api/v1/pods".to_owned() } else { format!("/api/v1/namespaces/{inside}/pods") };
        for (field, has_field) in fields {
            for (label, has_label) in labels {
                let kept = pods.iter().filter(|pod| inside.is_empty() || pod.0 == inside);
                let kept = kept.filter(|pod| has_field(pod) && has_label(pod));
                let expected: Vec<String> = kept.map(|pod| format!("{}/{}", pod.0, pod.1)).collect();
                let path = with_query(&path, &[("fieldSelector", field), ("labelSelector", label)]);
                assert_all_reads_give(&client, &path, &expected).await;
            }
        }
    }
}

async fn assert_all_reads_give(client: &Client, path: &str, expected: &[String]) {
    for more in ["resourceVersion=", "resourceVersion=0", "limit=500"] {
        let list = client.get(&format!("{path}&{more}")).await.with_code(200);
        assert_eq!(list.keys(), expected, "{path}&{more}");
    }
    let (mut walked, mut token) = (Vec::new(), String::new());
    loop {
        let page = client.get(&with_query(path, &[("limit", "1"), ("continue", &token)])).await.with_code(200);
        walked.extend(page.keys());
        match page.token() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!(walked, expected, "{path} by pages of one");
    let mut watch = client.watch(&watch_list(path)).await;
    let mut streamed = Vec::new();
    loop {
        let event = watch.event().await;
        if event.ends_initial_state() {
            break;
        }
        streamed.push(tests::http::key(&event.object));
    }
    assert_eq!(streamed, expected, "{path} as initial state");
}

/// Goal: unknown fields are refused with the error text of their type. Method: a type of each family.
#[tokio::test]
async fn unknown_fields_are_refused_in_the_words_of_their_type() {
    let server = server(&[]).await;
    let client = server.client();
    let scheme = "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    let plain = "field label not supported: spec.foo";
    for (path, message) in [
        ("/api/v1/services", plain),
        ("/api/v1/namespaces", plain),
        ("/api/v1/events", plain),
        ("/api/v1/replicationcontrollers", plain),
        ("/apis/batch/v1/jobs", "field label \"spec.foo\" not supported for Job"),
        ("/apis/apps/v1/statefulsets", scheme),
        ("/api/v1/serviceaccounts", scheme),
        ("/apis/rbac.authorization.k8s.io/v1/roles", scheme),
    ] {
        for watch in ["", "&watch=1"] {
            let answer = client.get(&format!("{path}?fieldSelector=spec.foo%3Dx{watch}")).await.with_code(400);
            assert_eq!(answer.message(), message, "{path}");
            assert_eq!(answer.json()["reason"], "BadRequest");
        }
    }
}

/// Goal: selectors are parsed as in Kubernetes. Method: odd spellings with an ordinary meaning.
#[tokio::test]
async fn odd_spellings_of_selectors_mean_the_same() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&pod("a").label("app", "web").label("in", "notin").label("example.com/zone", "")).await;
    client.create(&pod("b").label("app", "api")).await;
    for label in [
        "app=web",
        "app==web",
        " app = web ",
        "app\tin\r\n( web )",
        "app in (web,)",
        "app in (web,web)",
        "app notin (api)",
        "app!=api",
        "in=notin",
        "in in (notin,in)",
        "example.com/zone",
        "example.com/zone=",
        "app=web,in",
        "example.com/zone in ()",
    ] {
        let listed = client.get(&with_query("/api/v1/pods", &[("labelSelector", label)])).await.with_code(200);
        assert_eq!(listed.keys(), ["default/a"], "{label:?}");
    }
    for field in ["metadata.name=a", "metadata.name==a", ",metadata.name=a,", "metadata.name!=b", "metadata.name=\\a"] {
        let answer = client.get(&with_query("/api/v1/pods", &[("fieldSelector", field)])).await;
        if field.contains('\\') {
            assert_eq!(answer.with_code(400).message(), "invalid field selector: invalid escape sequence: \\a");
        } else {
            assert_eq!(answer.with_code(200).keys(), ["default/a"], "{field:?}");
        }
    }
}
