//! `kubectl wait`: client-go's own reflector, and its requests.

use tests::objects::configmap;

use super::{Scene, scenes, scenes_with};
use crate::faults::{Fault, Plan};

const WAIT: &str = "wait --for=jsonpath={.data.k}=done cm/a --timeout=50s";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits for `count` requests for ConfigMaps and returns them.
async fn asked(scene: &Scene, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(scene.proxy.take().into_iter().filter(|request| request.contains("/configmaps")));
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    all
}

/// Name and value of each parameter except the random `timeoutSeconds`, which a watch must have.
fn parameters(request: &str) -> Vec<&str> {
    let (path, query) = request.split_once('?').unwrap_or((request, ""));
    assert_eq!(path, format!("GET {MAPS}"));
    let (time, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with("timeoutSeconds="));
    assert_eq!(time.len(), usize::from(query.contains("watch=true")), "{request}");
    rest
}

#[tokio::test]
async fn a_change_is_waited_for_by_list_and_watch() {
    for scene in scenes().await {
        let client = scene.client();
        client.create(&configmap("a").data("begun")).await;
        let mut command = scene.command(&WAIT.split(' ').collect::<Vec<_>>());
        command.env("KUBE_FEATURE_WatchListClient", "false");
        let change = async {
            let requests = asked(&scene, 3).await;
            client.update(&configmap("a").data("done")).await;
            requests
        };
        let (output, requests) = tokio::join!(scene.output(command), change);
        assert!(output.status.success(), "{}: {}", scene.name, String::from_utf8_lossy(&output.stderr));
        let one = "fieldSelector=metadata.name%3Da";
        assert_eq!(requests[0], format!("GET {MAPS}/a"), "{}", scene.name);
        assert_eq!(parameters(&requests[1]), [one, "limit=500", "resourceVersion=0"], "{}", scene.name);
        let watch = parameters(&requests[2]);
        assert_eq!([watch[0], watch[1], watch[3]], ["allowWatchBookmarks=true", one, "watch=true"], "{}", scene.name);
        assert!(watch[2].starts_with("resourceVersion="), "{watch:?}");
        assert_eq!(requests.len(), 3, "{}: {requests:?}", scene.name);
    }
}

/// Checks the request sequence of a stock client: the object, a stream that begins with the state, and, once that ends,
/// a watch from its bookmark.
#[tokio::test]
async fn a_change_is_waited_for_by_a_stream() {
    let plan = Plan { collection: "configmaps".to_owned(), faults: vec![Fault::End], ..Plan::default() };
    for scene in scenes_with(&[], &plan).await {
        let client = scene.client();
        client.create(&configmap("a").data("begun")).await;
        let mut command = scene.command(&WAIT.split(' ').collect::<Vec<_>>());
        command.env("KUBE_FEATURE_WatchListClient", "true");
        let change = async {
            let requests = asked(&scene, 3).await;
            client.update(&configmap("a").data("done")).await;
            requests
        };
        let (output, requests) = tokio::join!(scene.output(command), change);
        assert!(output.status.success(), "{}: {}", scene.name, String::from_utf8_lossy(&output.stderr));
        let (bookmarks, one) = ("allowWatchBookmarks=true", "fieldSelector=metadata.name%3Da");
        assert_eq!(requests[0], format!("GET {MAPS}/a"), "{}", scene.name);
        let streamed = [bookmarks, one, "resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "watch=true"];
        assert_eq!(parameters(&requests[1]), streamed, "{}", scene.name);
        let position = format!("resourceVersion={}", scene.proxy.positions()[0]);
        assert_eq!(parameters(&requests[2]), [bookmarks, one, &position, "watch=true"], "{}", scene.name);
        assert_eq!(requests.len(), 3, "{}: {requests:?}", scene.name);
    }
}

#[tokio::test]
async fn a_deletion_is_waited_for() {
    for scene in scenes().await {
        let client = scene.client();
        client.create(&configmap("a")).await;
        let command = scene.command(&["wait", "--for=delete", "cm/a", "--timeout=50s"]);
        let change = async {
            asked(&scene, 2).await;
            client.remove(&configmap("a")).await;
        };
        let (output, ()) = tokio::join!(scene.output(command), change);
        assert!(output.status.success(), "{}: {}", scene.name, String::from_utf8_lossy(&output.stderr));
    }
}
