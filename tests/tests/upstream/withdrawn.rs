//! Open watches end soon after their caller lost the right to them.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity, cluster_role, cluster_role_binding},
    http::{MERGE_PATCH, Step},
    objects::configmap,
    phases::{PhasedWatches, UNREAD_BYTES},
    process::Server,
    slow::{End, Slow},
};

use tokio::time::sleep;

use super::{cache_of, cache_with, client_of, namespace, until};

const OBJECTS: usize = 32;
/// Longest time from the loss of a right to the end of its last watch. kube-apiserver itself needs a moment of it.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// Like [`ENDED_WITHIN`], where the server follows roles and bindings. Where it does not, that takes almost four
/// minutes.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);

/// Open watches for configmaps, as the server counts them.
async fn open(server: &Server) -> usize {
    let metrics = server.client().get("/metrics").await.with_code(200);
    let gauge = r#"apiserver_longrunning_requests{verb="WATCH",resource="configmaps"} "#;
    metrics.text().lines().find_map(|line| line.strip_prefix(gauge)).map_or(0, |count| count.parse().unwrap())
}

/// Goal: a right that is withdrawn at the API server ends all watches that it allowed, and no others. Method: watches of
/// two users in each phase and over each protocol; the binding of one user is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_when_their_right_is_withdrawn() {
    let identities = ["reader", "other"].map(|name| Identity::new(name, &[])).into();
    let settings = GenuineSettings { identities, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("withdrawn", settings).await else { return };
    let admin = genuine.client(ADMIN);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    admin.create_manifest(&cluster_role("reads", &rules)).await.with_code(201);
    for user in ["reader", "other"] {
        let binding = cluster_role_binding(user, "reads", "User", user);
        admin.create_manifest(&binding).await.with_code(201);
    }
    admin.create_manifest(&namespace("full")).await.with_code(201);
    let text = "x".repeat(UNREAD_BYTES / OBJECTS);
    let path = "/api/v1/namespaces/full/configmaps";
    join_all((0..OBJECTS).map(async |at| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text},
            "metadata": {"name": format!("map-{at}"), "namespace": "full"}});
        admin.create_manifest(&map).await.with_code(201);
    }))
    .await;
    let server = cache_with(&genuine, "configmaps", &["--log", "info"]).await;
    let client = client_of(&server, "reader");
    until("the reader may read", async || client.get(path).await.code == 200).await;
    let watches = PhasedWatches::open(server.address(), client, path).await;
    let mut other =
        client_of(&server, "other").watch(&format!("{path}?watch=1&fieldSelector=metadata.name%3Dnone")).await;
    join_all((0..OBJECTS).map(async |at| {
        let change = json!({"metadata": {"labels": {"changed": "yes"}}});
        admin.patch(&format!("{path}/map-{at}"), MERGE_PATCH, &change).await.with_code(200);
    }))
    .await;
    assert_eq!(open(&server).await, PhasedWatches::COUNT + 1);

    admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/reader").await.with_code(200);
    let withdrawn = Instant::now();
    server.logged("watch right withdrawn").await;
    let noticed = withdrawn.elapsed();
    assert!(noticed < FOLLOWED_WITHIN, "{noticed:?}");
    until("the watches end", async || open(&server).await == 1).await;
    let took = withdrawn.elapsed();
    println!(
        "{} watches ended {took:.1?} after their right was withdrawn, noticed {noticed:.1?}",
        PhasedWatches::COUNT
    );
    watches.have_ended().await;
    until("the reader may read no list", async || client.get(path).await.code == 403).await;
    // The other user's watch goes on.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none", "namespace": "full"}});
    admin.create_manifest(&map).await.with_code(201);
    other.event().await;
    forwarded_watches_end(&genuine, path).await;
}

/// Goal: open watches cost the API server no review while nothing changes, and a deleted binding ends them long before
/// they would be asked about. Method: watches of two users, whose roles are followed; the API server's count of reviews
/// before and after some seconds with changes of other roles, and after the binding of one user is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_roles_spare_the_reviews_of_open_watches() {
    const WATCHES: usize = 20;
    let identities = ["reader", "other"].map(|name| Identity::new(name, &[])).into();
    let settings = GenuineSettings { identities, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("followed roles", settings).await else { return };
    let admin = genuine.client(ADMIN);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    admin.create_manifest(&cluster_role("reads", &rules)).await.with_code(201);
    for user in ["reader", "other"] {
        admin.create_manifest(&cluster_role_binding(user, "reads", "User", user)).await.with_code(201);
    }
    let server = cache_of(&genuine, "configmaps").await;
    until("roles are followed", async || {
        let ready = client_of(&server, ADMIN).get("/readyz?verbose").await;
        ready.text().contains("[+]rights followed")
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut watches = Vec::new();
    for user in ["reader", "other"] {
        let client = client_of(&server, user);
        until("the user may read", async || client.get(path).await.code == 200).await;
        for number in 0..WATCHES {
            watches.push(client.watch(&format!("{path}?watch=1&fieldSelector=metadata.name%3Dm{number}")).await);
        }
    }
    let reviews = async || {
        let counters = genuine.counters().await;
        counters.sum("apiserver_request_total", &[("resource", "selfsubjectaccessreviews")])
    };
    let before = reviews().await;
    // Longer than between two checks, with changes that concern no watch.
    for number in 0..12 {
        admin.create_manifest(&cluster_role(&format!("another-{number}"), &rules)).await.with_code(201);
        sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(reviews().await, before, "reviews of {} open watches", watches.len());
    admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/reader").await.with_code(200);
    let withdrawn = Instant::now();
    until("the watches end", async || open(&server).await == WATCHES).await;
    let (took, asked) = (withdrawn.elapsed(), reviews().await - before);
    println!("{WATCHES} watches ended {took:.1?} after their binding was deleted, with {asked} reviews");
    assert!(took < FOLLOWED_WITHIN, "{took:?}");
    // The other user's watches go on.
    for (number, watch) in watches[WATCHES..].iter_mut().enumerate() {
        admin.create(&configmap(&format!("m{number}"))).await;
        watch.event().await;
    }
}

/// Watches that the API server itself answers end as well: over HTTP/1.1 and HTTP/2, and one whose client stopped reading.
async fn forwarded_watches_end(genuine: &Genuine, path: &str) {
    let server = cache_of(genuine, "pods").await;
    let client = client_of(&server, "other");
    let quiet = format!("{path}?watch=1&fieldSelector=metadata.name%3Dquiet");
    let mut idle = [client.watch(&quiet).await, client.over_http2().watch(&quiet).await];
    let authorization = client.authorization().unwrap();
    let headers = [("authorization", authorization)];
    let mut stalled = Slow::get(server.address(), &format!("{path}?watch=1&resourceVersion=0"), &headers).await;
    stalled.take(1).await;
    // Longer than between two checks: a right that is held ends nothing.
    for watch in &mut idle {
        assert!(matches!(watch.step(Duration::from_secs(3)).await, Step::Silence));
    }
    let admin = genuine.client(ADMIN);
    admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/other").await.with_code(200);
    let withdrawn = Instant::now();
    for watch in &mut idle {
        let step = watch.step(2 * ENDED_WITHIN).await;
        assert!(matches!(step, Step::Cut(_)), "{step:?}");
    }
    let took = withdrawn.elapsed();
    assert!(took < ENDED_WITHIN, "{took:?}");
    assert_eq!(stalled.to_the_end().await, End::Cut);
    assert!(withdrawn.elapsed() < ENDED_WITHIN + Duration::from_secs(5), "{:?}", withdrawn.elapsed());
}
