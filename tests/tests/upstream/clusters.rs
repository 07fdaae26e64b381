//! Which cluster answers: addresses, saved states and peers of another one are named and never used, and a server whose API
//! server was not reached says so. The clusters are servers with their objects in memory, so these tests need no other program.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH, with_query},
    objects::{configmap, pod},
    process::Server,
    relay::Relay,
};

use super::{BINARY, namespace, until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Longest time for a start that another cluster's peer must not delay. It took ten seconds more before.
const STARTED_WITHIN: Duration = Duration::from_secs(8);
/// Line about an address or a state that is not used.
const ADDRESS_REFUSED: &str = "upstream address refused: another cluster";
const STATES_DROPPED: &str = "saved states of another cluster dropped";
const PEER_REFUSED: &str = "peer refused: another cluster";

/// A cluster with ConfigMaps of these names, whose positions begin at `first`.
async fn cluster(first: u64, maps: &[&str]) -> Server {
    let server = Server::start(BINARY, &["--first-revision", &first.to_string()]).await;
    server.client().create_manifest(&namespace("kube-system")).await;
    for name in maps {
        server.client().create(&configmap(name)).await;
    }
    server
}

/// A cache of ConfigMaps in front of the servers at these addresses.
async fn front(urls: &str, flags: &[&str]) -> Server {
    let upstream = ["--upstream", urls, "--authorization", "always-allow", "--resources", "configmaps"];
    Server::start(BINARY, &[&upstream, flags].concat()).await
}

async fn ready(server: &Server) {
    until("the cache is ready", async || server.client().get("/readyz").await.code == 200).await;
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

fn any(path: &str) -> String {
    with_query(path, &[("resourceVersion", "0")])
}

/// Number of lines with `text` in a server's log.
fn lines(server: &Server, text: &str) -> usize {
    server.log().lines().filter(|line| line.contains(text)).count()
}

/// Goal: a second address of another cluster gets no request, neither while the first one answers nor when it is away. Method:
/// both clusters have one object; reads and writes through both states, for another cluster with higher and with lower
/// positions.
#[tokio::test]
async fn a_second_address_of_another_cluster_is_named_and_never_used() {
    for other_first in [10, 1_000_000] {
        let (ours, other) = (cluster(1_000, &["ours"]).await, cluster(other_first, &["other"]).await);
        let relay = Relay::start(ours.address()).await;
        let server = front(&format!("http://{},{}", relay.address(), url(&other)), &[]).await;
        ready(&server).await;
        let cached = server.client();
        server.logged(ADDRESS_REFUSED).await;
        cached.create(&configmap("written")).await;
        let both = ["default/ours", "default/written"];
        until("the cache has the write", async || cached.get(&any(MAPS)).await.keys() == both).await;
        relay.part();
        until("the first address is missed", async || cached.get(MAPS).await.code == 503).await;
        for _ in 0..5 {
            let written = cached.post(MAPS, configmap("lost").body()).await;
            // 504 if a connection was reset after the request was sent: that to the first cluster.
            assert!(matches!(written.code.as_u16(), 503 | 504), "{}", written.text());
            assert_eq!(cached.get(MAPS).await.code, 503);
            assert_eq!(cached.get(&any(MAPS)).await.with_code(200).keys(), both);
        }
        relay.rejoin();
        until("the first address is back", async || cached.get(MAPS).await.code == 200).await;
        assert_eq!(cached.get(MAPS).await.keys(), both);
        assert_eq!(other.client().get(MAPS).await.keys(), ["default/other"]);
        assert_eq!(lines(&server, ADDRESS_REFUSED), 1, "{}", server.log());
    }
}

/// Goal: a saved state of another cluster is never served, whatever its positions. Method: a folder filled in front of one
/// cluster, then used in front of another one at the same address; every answer from the first one on.
#[tokio::test]
async fn a_saved_state_of_another_cluster_is_dropped() {
    for other_first in [10, 1_000_000] {
        let (ours, other) = (cluster(1_000, &["ours"]).await, cluster(other_first, &["other"]).await);
        let (relay, folder) = (Relay::start(ours.address()).await, tempfile::tempdir().unwrap());
        let (upstream, flags) =
            (format!("http://{}", relay.address()), ["--state-dir", folder.path().to_str().unwrap()]);
        let first = front(&upstream, &flags).await;
        ready(&first).await;
        first.terminate();
        first.ended().await;
        let same = front(&upstream, &flags).await;
        ready(&same).await;
        assert_eq!(lines(&same, STATES_DROPPED), 0, "{}", same.log());
        same.terminate();
        same.ended().await;

        relay.lead_to(other.address());
        let server = front(&upstream, &flags).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            for path in [any(MAPS), MAPS.to_owned()] {
                let answer = server.client().get(&path).await;
                assert!(answer.code != 200 || answer.keys() == ["default/other"], "{}", answer.text());
            }
        }
        ready(&server).await;
        assert_eq!(lines(&server, STATES_DROPPED), 1, "{}", server.log());
    }
}

/// Goal: an operator can drop saved states, and not those of a running server. Method: the command during a run, after it, with
/// a type and without; then the next server lists.
#[tokio::test]
async fn saved_states_are_dropped_by_a_command() {
    let (ours, folder) = (cluster(1_000, &["ours"]).await, tempfile::tempdir().unwrap());
    let path = folder.path().to_str().unwrap();
    let drops = async |more: &[&str]| {
        let ended = Server::run(BINARY, &[&["state", "drop", "--state-dir", path], more].concat()).await;
        (ended.code, ended.stdout.trim().to_owned())
    };
    let first = front(&url(&ours), &["--state-dir", path, "--log", "info"]).await;
    ready(&first).await;
    assert_eq!(drops(&[]).await.0, Some(1), "a server uses it");
    first.terminate();
    first.ended().await;
    assert_eq!(drops(&["--type", "nodes"]).await, (Some(0), "dropped 0 saved states".to_owned()));
    assert_eq!(drops(&["--type", "configmaps"]).await, (Some(0), "dropped 1 saved states".to_owned()));
    assert!(drops(&[]).await.1.starts_with("dropped "));
    let second = front(&url(&ours), &["--state-dir", path, "--log", "info"]).await;
    ready(&second).await;
    assert_eq!(lines(&second, "saved state loaded"), 0, "{}", second.log());
    let missing = Server::run(BINARY, &["state", "drop", "--state-dir", "/nowhere/at/all"]).await;
    assert_eq!((missing.code, missing.stderr.lines().count()), (Some(2), 1), "{}", missing.stderr);
}

/// Goal: a peer in front of another cluster neither delays the start nor fills a cache. Method: such a peer, with higher
/// positions, whose proof takes longest; and one in front of the same cluster beside it.
#[tokio::test]
async fn a_peer_of_another_cluster_is_refused_at_once() {
    let (ours, other) = (cluster(1_000, &["ours"]).await, cluster(1_000_000, &["other"]).await);
    let (peer, foreign) = (front(&url(&ours), &[]).await, front(&url(&other), &[]).await);
    ready(&peer).await;
    ready(&foreign).await;
    for peers in [url(&foreign), format!("{},{}", url(&foreign), url(&peer))] {
        let begun = Instant::now();
        let server = front(&url(&ours), &["--peer", &peers]).await;
        ready(&server).await;
        assert!(begun.elapsed() < STARTED_WITHIN, "{:?}", begun.elapsed());
        assert_eq!(server.client().get(&any(MAPS)).await.keys(), ["default/ours"]);
    }
    let server = front(&url(&ours), &["--peer", &url(&foreign)]).await;
    server.logged(PEER_REFUSED).await;
}

/// Goal: another cluster at the only address is followed at once, and nothing of the first one is read as its state. Method:
/// connections are cut and lead to another server, with lower and with higher positions.
#[tokio::test]
async fn another_cluster_at_the_only_address_is_followed() {
    for other_first in [10, 1_000_000] {
        let (ours, other) = (cluster(1_000, &["ours"]).await, cluster(other_first, &["other"]).await);
        let relay = Relay::start(ours.address()).await;
        let server = front(&format!("http://{}", relay.address()), &[]).await;
        ready(&server).await;
        let cached = server.client();
        assert_eq!(cached.get(MAPS).await.with_code(200).keys(), ["default/ours"]);
        relay.lead_to(other.address());
        relay.cut();
        until("the other cluster is followed", async || {
            let answer = cached.get(MAPS).await;
            assert!(answer.code != 200 || answer.keys() == ["default/other"], "{}", answer.text());
            answer.code == 200
        })
        .await;
        assert_eq!(cached.get(&any(MAPS)).await.with_code(200).keys(), ["default/other"]);
        server.logged("upstream cluster replaced").await;
    }
}

/// Goal: an orchestrator sees a server that lives and is not ready, and why, until the API server was reached. Method: an
/// address that resets every connection, and one that answers nothing; then the API server is there.
#[tokio::test]
async fn until_the_api_server_is_reached_only_probes_are_answered() {
    let ours = cluster(1_000, &["ours"]).await;
    let relay = Relay::start(ours.address()).await;
    for is_silent in [false, true] {
        if is_silent {
            relay.silence()
        } else {
            relay.part()
        }
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--state-dir", folder.path().to_str().unwrap()];
        let server = front(&format!("http://{}", relay.address()), &flags).await;
        let client = server.client();
        client.get("/livez").await.with_code(200);
        let readiness = client.get("/readyz").await.with_code(500);
        assert!(readiness.text().contains("[-]upstream failed: the API server was not reached yet"), "{readiness:?}");
        for path in [&*any(MAPS), MAPS, "/api", "/version", "/metrics", "/nowhere"] {
            let answer = client.get(path).await.with_code(503);
            assert!(!answer.header("retry-after").is_empty(), "{path}");
        }
        relay.rejoin();
        ready(&server).await;
        assert_eq!(client.get(&any(MAPS)).await.keys(), ["default/ours"]);
    }
}

/// Goal: an orchestrator sees a start that fails after the server listens, and its end. Method: a scope of a type that is not
/// defined when the API server is reached, later than a start waits; then it is defined.
#[tokio::test]
async fn a_start_that_fails_late_is_named_until_it_succeeds() {
    let ours = cluster(1_000, &["ours"]).await;
    let relay = Relay::start(ours.address()).await;
    relay.part();
    let scope = ["--scope", "things.example.com=metadata.name=a"];
    let server = front(&format!("http://{}", relay.address()), &scope).await;
    let client = server.client();
    let waits = client.get("/readyz").await.with_code(500);
    assert!(waits.text().contains("[-]start failed: waits for the first answer of the API server for "), "{waits:?}");
    let unread = server.logged("cluster identity not read").await;
    assert!(unread.contains(" WARN ") && unread.contains("error="), "{unread}");
    relay.rejoin();
    let reason =
        "[-]start failed: the settings failed: cannot use the upstream: the scope of things.example.com: there is";
    until("the failure is named", async || client.get("/readyz").await.text().contains(reason)).await;
    server.logged("start failed").await;
    client.get("/livez").await.with_code(200);
    ours.client().create_manifest(&super::definition("example.com", "Thing", "size")).await.with_code(201);
    ready(&server).await;
    assert!(client.get("/readyz?verbose").await.text().contains("[+]start ok\n"));
    assert_eq!(lines(&server, "start failed"), 1, "{}", server.log());
}

/// Goal: an API server that hangs delays no read that a cache may answer, and clients see how old the answers are. Method: a
/// network that loses everything; the reads after it was noticed.
#[tokio::test]
async fn an_api_server_that_hangs_is_named_and_delays_no_cached_read() {
    let ours = cluster(1_000, &["ours"]).await;
    let relay = Relay::start(ours.address()).await;
    let server = front(&format!("http://{}", relay.address()), &[]).await;
    ready(&server).await;
    let cached = server.client();
    assert_eq!(cached.get(&any(MAPS)).await.with_code(200).header("age"), "");
    relay.silence();
    until("the silence is noticed", async || !cached.get(&any(MAPS)).await.with_code(200).header("age").is_empty())
        .await;
    let verbose = cached.get("/readyz?verbose").await.with_code(200);
    assert!(verbose.text().contains("[+]upstream degraded since"), "{}", verbose.text());
    let scrape = cached.get("/metrics").await.with_code(200);
    let silent = scrape.text().lines().find_map(|line| line.strip_prefix("cache_upstream_silent_seconds "));
    assert!(silent.is_some_and(|silent| 0.0 < silent.parse::<f64>().expect("a number")), "{}", scrape.text());
    relay.rejoin();
    until("the end is noticed", async || cached.get(&any(MAPS)).await.with_code(200).header("age").is_empty()).await;
    assert!(cached.get("/readyz?verbose").await.text().contains("[+]upstream ok\n"));
}

/// Goal: settings that can never work end the start with one line. Method: scopes of unknown types, of the core group and of
/// a group, and two of one type.
#[tokio::test]
async fn scopes_that_cannot_work_are_refused_at_the_start() {
    let ours = cluster(1_000, &[]).await;
    let refused = async |scopes: &[&str]| {
        let upstream = url(&ours);
        let mut flags = vec!["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream];
        scopes.iter().for_each(|scope| flags.extend(["--scope", scope]));
        let ended = Server::run(BINARY, &flags).await;
        assert_eq!((ended.code, ended.stderr.trim().lines().count()), (Some(2), 1), "{}", ended.stderr);
        ended.stderr
    };
    assert!(refused(&["nosuch=metadata.name=a"]).await.contains("the scope of nosuch: there is no such type"));
    assert!(refused(&["things.example.com=metadata.name=a"]).await.contains("the scope of things.example.com"));
    let twice = refused(&["pods=spec.nodeName=a", "pods=spec.nodeName=b"]).await;
    assert!(twice.contains("the scope of pods: a type has one scope"), "{twice}");
    let definition = super::definition("example.com", "Thing", "size");
    ours.client().create_manifest(&definition).await.with_code(201);
    front(&url(&ours), &["--scope", "things.example.com=metadata.name=a"]).await;
}

/// Goal: a cache of a part answers what is in the part, in each form, and refuses the rest. Method: a pod inside, one outside
/// and one that does not exist; GETs at positions, and lists.
#[tokio::test]
async fn a_part_of_a_type_is_read_by_name_too() {
    let ours = cluster(1_000, &[]).await;
    let inside = ours.client().create(&pod("inside").node("n1")).await;
    ours.client().create(&pod("outside").node("n2")).await;
    let flags = ["--scope", "pods=spec.nodeName=n1", "--refuse-outside-scope"];
    let upstream = ["--upstream", &url(&ours), "--authorization", "always-allow", "--resources", "pods"];
    let server = Server::start(BINARY, &[&upstream[..], &flags].concat()).await;
    ready(&server).await;
    let cached: Client = server.client();
    let at = |name: &str, position: u64| format!("/api/v1/namespaces/default/pods/{name}?resourceVersion={position}");
    for position in [0, inside] {
        assert_eq!(cached.get(&at("inside", position)).await.with_code(200).json()["metadata"]["name"], "inside");
        for name in ["outside", "missing"] {
            let refused = cached.get(&at(name, position)).await.with_code(400);
            assert!(refused.message().contains("this cache holds only a part of pods"), "{}", refused.message());
        }
    }
    let later = ours.client().create(&pod("later").node("n1")).await;
    assert_eq!(cached.get(&at("later", later)).await.with_code(200).json()["spec"]["nodeName"], json!("n1"));
    cached.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.with_code(200);
    cached.get("/api/v1/pods").await.with_code(400);
}

/// Goal: a refusal for a scope tells nothing to a caller without a right. Method: an API server with roles, whose callers pass
/// their own tokens through the cache; reads inside and outside, by name and as lists.
#[tokio::test]
async fn a_part_of_a_type_is_refused_only_to_callers_with_a_right() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("tokens.csv"), "t-cache,cache,1,system:masters\nt-alice,alice,2\nt-bob,bob,3\n").unwrap();
    fs::write(at("token"), "t-cache").unwrap();
    let ours = Server::start(BINARY, &["--token-auth-file", &at("tokens.csv"), "--authorization", "rbac"]).await;
    let admin = ours.client().with_token("t-cache");
    admin.create_manifest(&namespace("kube-system")).await;
    for (name, node) in [("inside", "n1"), ("outside", "n2")] {
        admin.create(&pod(name).node(node)).await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    admin.create_manifest(&role("readers", &rules)).await.with_code(201);
    admin.create_manifest(&bound("readers", "alice")).await.with_code(201);
    let (url, token) = (url(&ours), at("token"));
    let upstream = ["--upstream", &url, "--upstream-token-file", &token, "--resources", "pods"];
    let scope = ["--scope", "pods=spec.nodeName=n1", "--refuse-outside-scope"];
    let server = Server::start(BINARY, &[&upstream[..], &scope].concat()).await;
    ready(&server).await;
    let named = "/api/v1/namespaces/default/pods";
    for (path, is_inside) in [
        (format!("{named}/inside?resourceVersion=0"), true),
        (format!("{named}/outside?resourceVersion=0"), false),
        (format!("{named}/missing?resourceVersion=0"), false),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1".to_owned(), true),
        ("/api/v1/pods".to_owned(), false),
    ] {
        let client = server.client();
        let code = async |client: Client| client.get(&path).await.code.as_u16();
        assert_eq!(code(client.with_token("t-alice")).await, if is_inside { 200 } else { 400 }, "alice: {path}");
        assert_eq!(code(client.with_token("t-bob")).await, 403, "bob: {path}");
        assert_eq!(code(client.with_token("wrong")).await, 401, "an invalid token: {path}");
        let none = code(client).await;
        assert!([401, 403].contains(&none), "no token: {path}: {none}");
    }
}

/// Goal: an aggregated role gives what the cluster has stored in it, as at the API server, whatever its parts would. Method: a
/// part that the cluster's controller has not added yet; then it does.
#[tokio::test]
async fn an_aggregated_role_counts_as_the_cluster_has_stored_it() {
    let ours = cluster(1_000, &["ours"]).await;
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "t-alice,alice,1\n").unwrap();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let mut part = role("part", &rules);
    part["metadata"]["labels"] = json!({"aggregate": "yes"});
    let mut whole = role("whole", &json!([]));
    whole["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"aggregate": "yes"}}]});
    for manifest in [&part, &whole, &bound("whole", "alice")] {
        ours.client().create_manifest(manifest).await.with_code(201);
    }
    let upstream = ["--upstream", &url(&ours), "--resources", "configmaps", "--authorization", "rbac"];
    let server =
        Server::start(BINARY, &[&upstream[..], &["--token-auth-file", tokens.to_str().unwrap()]].concat()).await;
    ready(&server).await;
    let alice = server.client().with_token("t-alice");
    assert_eq!(alice.get(&any(MAPS)).await.code, 403, "the stored role has no rules");
    let patch = json!({"rules": rules});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/whole";
    ours.client().patch(path, MERGE_PATCH, &patch).await.with_code(200);
    until("the stored rules count", async || alice.get(&any(MAPS)).await.code == 200).await;
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn bound(role: &str, user: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
