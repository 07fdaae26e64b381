//! The load that many clients behind a cache are for the API server, by its own counters.

use std::{env, net::SocketAddr};

use futures::{StreamExt as _, stream};
use informer::{Cluster, Informer};
use kube::{
    Client, Config,
    config::AuthInfo,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use tests::{
    genuine::{ADMIN, Counters, Genuine, token_of},
    objects::{configmap, pod, replica_set, secret},
};

use super::{PATIENCE, cache_of, client_of, until};

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

/// Goal: clients cost the API server nothing. Method: one cache for five types, then many clients with the SDK's
/// defaults, then writes that all of them see; counters of the API server before the cache, before the clients, and
/// afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_one_watch_of_each_type_and_no_list() {
    let Some(genuine) = Genuine::start("upstream counts").await else { return };
    let clients = env::var("UPSTREAM_CLIENTS").map_or(CLIENTS, |text| text.parse().expect("a number of clients"));
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
    let last = "the-last";
    admin.create(&pod(last)).await;
    admin.create(&tests::objects::node(last)).await;
    admin.create(&configmap(last)).await;
    admin.create(&secret(last)).await;
    admin.create(&replica_set(last)).await;
    for informer in &informers {
        until("every client has the last object", async || {
            informer.store().snapshot().iter().any(|object| object.key().ends_with(last))
        })
        .await;
    }

    let ended = genuine.counters().await;
    assert_eq!(initial_reads(&ended), initial_reads(&started), "lists and initial streams of {TYPES:?}");
    assert_eq!(open_watches(&ended), open_watches(&started), "open watches of {TYPES:?}");
}
