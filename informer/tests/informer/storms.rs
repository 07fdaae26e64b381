//! Many clients of one server: their requests after a restart, and after it comes back as another one.

use std::{collections::BTreeMap, time::Duration};

use informer::{Cluster, Informer, Ready, testing::FakeApiServer};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::{SOON, contents};

const AGENTS: usize = 200;

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "containers": []}})
}

/// Server with two pods, at 42 and 43.
fn server() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x", "n")).put(pod("y", "n"))
}

/// Ready agents, as if each were a process of its own.
async fn agents(server: &FakeApiServer) -> Vec<Informer<Pod>> {
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
        assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
        agents.push(pods);
    }
    // Long enough for each session to be healthy.
    sleep(MINUTE).await;
    agents
}

/// Requests since `since`: the average per agent, and the number in the busiest second.
fn load(server: &FakeApiServer, since: usize) -> (f64, usize) {
    let seen: Vec<Duration> = server.requests().iter().skip(since).map(|seen| seen.at).collect();
    let mut seconds = BTreeMap::new();
    for at in &seen {
        *seconds.entry(at.as_secs()).or_insert(0) += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let each = seen.len() as f64 / AGENTS as f64;
    (each, seconds.into_values().max().unwrap_or_default())
}

/// Goal: the minute after a restart is no worse than the outage. Method: half a minute without a server, then count
/// each client's requests: a GET of one object, which proves the history, and the watch.
#[tokio::test(start_paused = true)]
async fn a_restarted_server_is_asked_for_two_things_by_each_client_and_not_at_once() {
    let server = server();
    let agents = agents(&server).await;
    let (lists, before) = (server.initial_reads(), server.requests().len());
    server.refuse_connections().close_watches();
    sleep(MINUTE / 2).await;
    let (each, _) = load(&server, before);
    assert!(each <= 10.0, "{each} while it was down");
    server.recover();
    let before = server.requests().len();
    sleep(MINUTE).await;
    let (each, most) = load(&server, before);
    assert_eq!((each, server.initial_reads()), (2.0, lists), "no lists");
    assert!(most <= AGENTS / 2, "{most} in one second");
    server.put(pod("x", "m"));
    sleep(MINUTE).await;
    assert!(agents.iter().all(|pods| contents(pods) == "a/x@44 a/y@43"));
}

/// The restarted server answers before it works: it cannot authenticate or authorize clients yet. Informers that took
/// this for a verdict on their watches would list as soon as they may.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_for_a_while_is_not_listed_when_it_is_well() {
    for code in [401, 403, 429, 500, 503] {
        let server = server();
        let agents = agents(&server).await;
        let (lists, before) = (server.initial_reads(), server.requests().len());
        server.fail_next(usize::MAX, code).close_watches();
        sleep(MINUTE / 2).await;
        server.recover();
        sleep(2 * MINUTE).await;
        let (each, _) = load(&server, before);
        assert!(each <= 9.0, "{code}: {each}");
        assert_eq!(server.initial_reads(), lists, "{code}: no lists");
        server.put(pod("x", "m"));
        sleep(MINUTE).await;
        assert!(agents.iter().all(|pods| contents(pods) == "a/x@44 a/y@43"), "{code}");
    }
}

/// Every client must list, but each detects the restore by itself, so the lists are spread.
#[tokio::test(start_paused = true)]
async fn a_server_restored_to_an_older_state_is_listed_once_by_each_client_and_not_at_once() {
    let server = server();
    let before = server.resource_version();
    server.put(pod("x", "m"));
    let agents = agents(&server).await;
    let lists = server.initial_reads();
    server.refuse_connections().close_watches();
    sleep(MINUTE / 2).await;
    server.restore(before).recover();
    let before = server.requests().len();
    sleep(5 * MINUTE).await;
    let (each, most) = load(&server, before);
    assert!(agents.iter().all(|pods| contents(pods) == "a/x@42 a/y@43"));
    assert_eq!(server.initial_reads() - lists, AGENTS);
    assert!(each <= 5.0 && most <= AGENTS / 4, "{each}, {most} in one second");
}

/// A revoked permission is detected nevertheless: by a list of one object, then by polling.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_forbidden_later_on_is_replaced_by_polling() {
    let server = server();
    let pods = Cluster::new(server.client()).informer::<Pod>().start().unwrap();
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
    sleep(MINUTE).await;
    server.forbid_watch().close_watches().put(pod("x", "m"));
    sleep(MINUTE).await;
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Polling);
    sleep(6 * MINUTE).await;
    assert_eq!(contents(&pods), "a/x@44 a/y@43");
    server.recover();
    sleep(6 * MINUTE).await;
    assert_eq!(pods.ready(SOON).await.unwrap(), Ready::Watching);
}
