//! The load that many clients behind a cache are for the API server, by its own counters.

use std::{
    env,
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use informer::{Cluster, Informer, RelistCause};
use kube::{
    Client, Config,
    config::AuthInfo,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use tests::{
    genuine::{ADMIN, Counters, Genuine, token_of},
    objects::{configmap, node, pod, replica_set, secret},
    relay::Relay,
};
use tokio::time::sleep;

use super::{PATIENCE, cache_of, cache_with, client_of, until};

/// Types that the clients follow: API group, kind and plural.
const TYPES: [(&str, &str, &str); 5] = [
    ("", "Pod", "pods"),
    ("", "Node", "nodes"),
    ("", "ConfigMap", "configmaps"),
    ("", "Secret", "secrets"),
    ("apps", "ReplicaSet", "replicasets"),
];
const RESOURCES: &str = "pods,nodes,configmaps,secrets,replicasets.apps";
/// Clients of a usual run. The nightly run sets `UPSTREAM_CLIENTS=1000`.
const CLIENTS: usize = 100;
/// Time without changes of four types in a usual run. The nightly run sets `UPSTREAM_IDLE_SECONDS=50`.
const IDLE_SECONDS: usize = 2;
/// Pause between two writes of the fifth.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// Clients that start at once.
const STARTING: usize = 32;

/// Follows a type through the cache, as an agent does.
async fn follow(address: SocketAddr, (group, kind, plural): (&str, &str, &str)) -> Informer<DynamicObject> {
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.auth_info = AuthInfo { token: Some(token_of(ADMIN).into()), ..AuthInfo::default() };
    let cluster = Cluster::new(Client::try_from(config).unwrap());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    let informer = cluster.informer_for::<DynamicObject>(&resource).start().unwrap();
    informer.ready(PATIENCE).await.unwrap_or_else(|error| panic!("{plural}: {error}"));
    informer
}

/// Lists and initial streams of the types that the API server answered so far.
fn initial_reads(counters: &Counters) -> Vec<(u64, u64)> {
    TYPES.iter().map(|(_, _, plural)| (counters.lists(plural), counters.initial_streams(plural))).collect()
}

fn open_watches(counters: &Counters) -> Vec<u64> {
    TYPES.iter().map(|(_, _, plural)| counters.open_watches(plural)).collect()
}

/// A number of the environment.
fn setting(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Creates one object of each type.
async fn create_each(admin: &tests::http::Client, name: &str) {
    admin.create(&pod(name)).await;
    admin.create(&node(name)).await;
    admin.create(&configmap(name)).await;
    admin.create(&secret(name)).await;
    admin.create(&replica_set(name)).await;
}

/// Waits until each client has the object of its type with this name.
async fn all_have(informers: &[Informer<DynamicObject>], name: &str) {
    for informer in informers {
        until("every client has the last object", async || {
            informer.store().snapshot().iter().any(|object| object.key().ends_with(name))
        })
        .await;
    }
}

/// Relists of all clients so far.
fn relists(informers: &[Informer<DynamicObject>]) -> u64 {
    let of = |informer: &Informer<DynamicObject>| {
        let stats = informer.stats();
        RelistCause::all().map(|cause| stats.reflector.relists(cause)).sum::<u64>()
    };
    informers.iter().map(of).sum()
}

/// Goal: a restart of the cache makes no client relist, busy or idle, and costs the API server no initial stream. Method:
/// clients of five types, of which only the ConfigMaps change for some seconds; then the cache is terminated, another
/// process continues its state at the same address, and each client gets one more object.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_cache_makes_no_client_relist() {
    let Some(genuine) = Genuine::start("upstream restart with clients").await else { return };
    let admin = genuine.client(ADMIN);
    create_each(&admin, "the-first").await;
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--state-dir", folder.path().to_str().unwrap(), "--state-secrets"];
    let first = cache_with(&genuine, RESOURCES, &flags).await;
    let door = Relay::start(first.address()).await;
    let clients = setting("UPSTREAM_CLIENTS", CLIENTS);
    let starting = stream::iter(0..clients).map(|client| follow(door.address(), TYPES[client % TYPES.len()]));
    let informers: Vec<_> = starting.buffer_unordered(STARTING).collect().await;

    let idle = Instant::now() + Duration::from_secs(setting("UPSTREAM_IDLE_SECONDS", IDLE_SECONDS) as u64);
    for number in 0.. {
        admin.create(&configmap(&format!("m{number}"))).await;
        if idle < Instant::now() {
            break;
        }
        sleep(WRITE_EVERY).await;
    }
    let (reads, before) = (initial_reads(&genuine.counters().await), relists(&informers));
    first.terminate();
    first.ended().await;
    admin.create(&configmap("meanwhile")).await;
    let second = cache_with(&genuine, RESOURCES, &flags).await;
    door.lead_to(second.address());
    create_each(&admin, "the-last").await;
    all_have(&informers, "the-last").await;

    assert_eq!(relists(&informers), before, "relists of {clients} clients");
    let reads = initial_reads(&genuine.counters().await).into_iter().zip(reads).zip(TYPES);
    for (((lists, streams), (lists_before, streams_before)), (.., plural)) in reads {
        assert_eq!(streams, streams_before, "initial streams of {plural}");
        // The proof of the history may be a list of one name. Then keys and versions are compared, in one page.
        assert!(lists <= lists_before + 2, "{lists} lists of {plural} after {lists_before}");
    }
}

/// Goal: clients cost the API server nothing. Method: one cache for five types, then many clients with the SDK's
/// defaults, then writes that all of them see; counters of the API server before the cache, before the clients, and
/// afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_one_watch_of_each_type_and_no_list() {
    let Some(genuine) = Genuine::start("upstream counts").await else { return };
    let clients = setting("UPSTREAM_CLIENTS", CLIENTS);
    let admin = genuine.client(ADMIN);
    for number in 0..50 {
        admin.create(&pod(&format!("p{number}"))).await;
        admin.create(&configmap(&format!("m{number}")).data("one")).await;
    }
    let without_cache = genuine.counters().await;
    let server = cache_of(&genuine, RESOURCES).await;
    // The first read of a type decides nothing that a later one could change.
    client_of(&server, ADMIN).get("/api/v1/pods?resourceVersion=0").await.with_code(200);
    until("one watch of each type is open", async || {
        let open = open_watches(&genuine.counters().await);
        open.iter().zip(open_watches(&without_cache)).all(|(now, before)| *now == before + 1)
    })
    .await;
    let started = genuine.counters().await;

    let starting = stream::iter(0..clients).map(|client| follow(server.address(), TYPES[client % TYPES.len()]));
    let informers: Vec<_> = starting.buffer_unordered(STARTING).collect().await;
    create_each(&admin, "the-last").await;
    all_have(&informers, "the-last").await;

    let ended = genuine.counters().await;
    assert_eq!(initial_reads(&ended), initial_reads(&started), "lists and initial streams of {TYPES:?}");
    assert_eq!(open_watches(&ended), open_watches(&started), "open watches of {TYPES:?}");
}
