//! WATCH over real sockets against the real binary: how selectors and namespaces turn writes into events.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use tests::{
    http::{Client, Event, LINE_WAIT, Watch, briefs, strictly_increase, watch_list, with_query},
    objects::{Object, configmap, pod},
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";
const PODS: &str = "/api/v1/pods";

async fn server() -> Server {
    Server::start(BINARY, &["--first-revision", "1000"]).await
}

/// What one watcher is to see of a script of writes: exactly this.
struct Viewer {
    path: String,
    expected: &'static [&'static str],
}

/// Opens all viewers, plays the writes, reads every stream to its end, and compares.
async fn view(client: &Client, type_path: &str, viewers: &[Viewer], writes: &[Object]) -> Vec<Vec<Event>> {
    let listed = client.get(type_path).await.with_code(200).resource_version().to_string();
    let query = [("watch", "1"), ("resourceVersion", listed.as_str()), ("timeoutSeconds", VIEW_SECONDS)];
    let mut open: Vec<Watch> = Vec::new();
    for viewer in viewers {
        open.push(client.watch(&with_query(&viewer.path, &query)).await);
    }
    let mut known = BTreeSet::new();
    for object in writes {
        let path = object.path();
        if object.body()["gone"] == true {
            client.delete(&path).await.with_code(200);
            known.remove(&path);
        } else if known.insert(path) {
            client.create(object).await;
        } else {
            client.update(object).await;
        }
    }
    let seen = join_all(open.iter_mut().map(|watch| watch.rest(LINE_WAIT))).await;
    for (viewer, events) in viewers.iter().zip(&seen) {
        assert_eq!(briefs(events), viewer.expected, "{}", viewer.path);
        let positions: Vec<_> = events.iter().map(Event::resource_version).collect();
        assert!(strictly_increase(&positions), "{}: {positions:?}", viewer.path);
    }
    seen
}

/// How long a viewer looks: the writes take far less, and the clean end shows that nothing else came.
const VIEW_SECONDS: &str = "5";

fn gone(object: Object) -> Object {
    object.with("gone", json!(true))
}

/// Goal: entering and leaving a selector are additions and deletions, with the old content and the new position.
#[tokio::test]
async fn leaving_a_selector_is_a_deletion_and_entering_it_an_addition() {
    let server = server().await;
    let client = server.client();
    let path = with_query(CONFIGMAPS, &[("labelSelector", "app=x")]);
    let viewers = [
        Viewer { path, expected: &["ADDED default/p", "DELETED default/p", "ADDED default/p", "DELETED default/p"] },
        Viewer {
            path: with_query(CONFIGMAPS, &[("labelSelector", "app=y")]),
            expected: &["ADDED default/p", "MODIFIED default/p", "DELETED default/p"],
        },
        Viewer {
            path: with_query(CONFIGMAPS, &[("labelSelector", "app in (x,y)"), ("fieldSelector", "metadata.name=p")]),
            expected: &[
                "ADDED default/p",
                "MODIFIED default/p",
                "MODIFIED default/p",
                "MODIFIED default/p",
                "DELETED default/p",
            ],
        },
        Viewer { path: with_query(CONFIGMAPS, &[("labelSelector", "!app")]), expected: &[] },
    ];
    let p = |app: &str, data: &str| configmap("p").label("app", app).data(data);
    let writes = [p("x", "1"), p("y", "2"), p("y", "3"), p("x", "4"), gone(p("x", "4"))];
    let seen = view(&client, CONFIGMAPS, &viewers, &writes).await;
    let (x, y, both) = (&seen[0], &seen[1], &seen[2]);
    // Old content, new position.
    assert_eq!((&x[1].object["metadata"]["labels"]["app"], &x[1].object["data"]["k"]), (&json!("x"), &json!("1")));
    assert_eq!(x[1].resource_version(), y[0].resource_version());
    assert_eq!((&y[2].object["metadata"]["labels"]["app"], &y[2].object["data"]["k"]), (&json!("y"), &json!("3")));
    assert_eq!(y[2].resource_version(), x[2].resource_version());
    assert_eq!(x[3].object["data"]["k"], "4");
    assert_eq!(x[3].resource_version(), both[4].resource_version());
}

/// Goal: the same for a field that moves, as watches of one node see it.
#[tokio::test]
async fn a_pod_that_moves_is_gone_here_and_new_there() {
    let server = server().await;
    let client = server.client();
    let on = |node: &str| with_query(PODS, &[("fieldSelector", &format!("spec.nodeName={node}"))]);
    let viewers = [
        Viewer { path: on("host"), expected: &["ADDED default/a", "DELETED default/a", "ADDED default/a"] },
        Viewer {
            path: on("other"),
            expected: &["ADDED default/b", "MODIFIED default/b", "DELETED default/b", "ADDED default/c"],
        },
        Viewer {
            path: with_query(PODS, &[("fieldSelector", "spec.nodeName!=host,spec.nodeName!=other")]),
            expected: &[
                "ADDED default/a",
                "DELETED default/a",
                "ADDED default/b",
                "MODIFIED default/b",
                "DELETED default/b",
                "ADDED default/b",
                "MODIFIED default/b",
            ],
        },
    ];
    let a = |node: &str| pod("a").node(node);
    let b = |node: &str, step: &str| pod("b").node(node).label("step", step);
    let writes = [
        a("host"),
        a(""),
        a("host"),
        b("", "1"),
        b("", "2"),
        b("other", "3"),
        b("other", "4"),
        b("", "5"),
        b("", "6"),
        pod("c").node("other"),
    ];
    let seen = view(&client, PODS, &viewers, &writes).await;
    assert_eq!(seen[0][1].object["spec"]["nodeName"], "host", "the content of before");
    assert_eq!(seen[1][2].object["metadata"]["labels"]["step"], "4");
    assert_eq!(seen[1][2].object["spec"]["nodeName"], "other");
}

#[tokio::test]
async fn namespaces_with_a_common_prefix_are_watched_apart() {
    let server = server().await;
    let client = server.client();
    let viewers = [
        Viewer {
            path: "/api/v1/namespaces/foo/configmaps".into(),
            expected: &["ADDED foo/a", "MODIFIED foo/a", "DELETED foo/a", "ADDED foo/last"],
        },
        Viewer {
            path: "/api/v1/namespaces/foo-bar/configmaps".into(),
            expected: &["ADDED foo-bar/a", "ADDED foo-bar/b"],
        },
        Viewer { path: "/api/v1/namespaces/foobar/configmaps".into(), expected: &["ADDED foobar/a"] },
        Viewer {
            path: with_query(CONFIGMAPS, &[("fieldSelector", "metadata.namespace=foo")]),
            expected: &["ADDED foo/a", "MODIFIED foo/a", "DELETED foo/a", "ADDED foo/last"],
        },
        Viewer {
            path: with_query("/api/v1/namespaces/foo/configmaps", &[("fieldSelector", "metadata.namespace=foo-bar")]),
            expected: &[],
        },
        Viewer {
            path: with_query(CONFIGMAPS, &[("fieldSelector", "metadata.name=a")]),
            expected: &["ADDED foo-bar/a", "ADDED foo/a", "ADDED foobar/a", "MODIFIED foo/a", "DELETED foo/a"],
        },
    ];
    let at = |namespace: &str, name: &str| configmap(name).namespace(namespace);
    let writes = [
        at("foo-bar", "a"),
        at("foo", "a"),
        at("foobar", "a"),
        at("foo", "a").data("new"),
        at("foo-bar", "b"),
        gone(at("foo", "a")),
        at("foo", "last"),
    ];
    view(&client, CONFIGMAPS, &viewers, &writes).await;
    let mut watch = client.watch(&watch_list("/api/v1/namespaces/foo/configmaps")).await;
    assert_eq!(briefs(&watch.events(2).await), ["ADDED foo/last", "INITIAL-END"]);
}
