//! Shard selectors (KEP-5866): a kube-apiserver with the feature gate `ShardedListAndWatch` on, and a cache in front of
//! it, answer alike; a cache in front of one without the gate serves shards all the same.

use std::{collections::BTreeSet, iter};

use fastrand::Rng;
use informer::{Cluster, Informer};
use informer_core::selector::shard::{Selector, ShardField};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, token_of},
    http::{Client, Event, with_query},
    objects::{Object, configmap},
};

use super::{PATIENCE, Sides, cache_of, namespace, until};

const GATE: &str = "--feature-gates=ShardedListAndWatch=true";
const CONFIGMAPS: &str = "/api/v1/configmaps";
const NAMESPACES: [&str; 3] = ["shards-a", "shards-b", "shards-c"];
const OBJECTS: usize = 40;
const WRITES: usize = 60;

/// Selectors with ranges that overlap, touch and leave gaps.
fn selectors() -> Vec<String> {
    let part = |key, index, count| Selector::part(key, index, count).unwrap().to_string();
    vec![
        part(ShardField::Uid, 0, 2),
        part(ShardField::Uid, 1, 2),
        part(ShardField::Namespace, 0, 3),
        [part(ShardField::Uid, 2, 3), part(ShardField::Uid, 0, 5), part(ShardField::Uid, 0, 4)].join(" || "),
        format!("(\n{}) ||{}", part(ShardField::Namespace, 6, 7), part(ShardField::Namespace, 1, 7))
            .replace('\'', "\""),
        part(ShardField::Uid, 0, 1),
    ]
}

async fn create_some(client: &Client, rng: &mut Rng) -> Vec<Object> {
    for name in NAMESPACES {
        client.create_manifest(&namespace(name)).await;
    }
    let mut objects = Vec::new();
    for index in 0..OBJECTS {
        let app = ["x", "y"][rng.usize(..2)];
        let object = configmap(&format!("c{index:02}")).namespace(NAMESPACES[rng.usize(..3)]).label("app", app);
        client.create(&object).await;
        objects.push(object);
    }
    objects
}

/// The keys and the `shardInfo` of a whole list, read in pages of `limit`.
async fn list(client: &Client, query: &[(&str, &str)], limit: Option<&str>) -> (Vec<String>, Value) {
    let (mut keys, mut token) = (Vec::new(), String::new());
    loop {
        let mut query = query.to_vec();
        query.extend(limit.map(|limit| ("limit", limit)));
        if !token.is_empty() {
            query.push(("continue", &token));
        }
        let page = client.get(&with_query(CONFIGMAPS, &query)).await.with_code(200);
        keys.extend(page.keys());
        match page.token() {
            Some(next) => token = next,
            None => return (keys, page.json()["metadata"]["shardInfo"].clone()),
        }
    }
}

/// Goal: clients cannot tell the cache from kube-apiserver by a shard selector. Method: random objects and writes; whole
/// lists, pages, other selectors beside it, watches, and refusals of both.
#[tokio::test]
async fn shards_are_those_of_kube_apiserver() {
    let settings = GenuineSettings { flags: vec![GATE.to_owned()], ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("upstream shards", settings).await else { return };
    let server = cache_of(&genuine, "configmaps").await;
    let sides = Sides::new(&genuine, &server);
    let mut rng = Rng::with_seed(5866);
    let objects = create_some(&sides.direct, &mut rng).await;
    let mut selected = 0;
    for selector in selectors() {
        let shard = ("shardSelector", &*selector);
        for beside in [None, Some(("labelSelector", "app=x")), Some(("fieldSelector", "metadata.name!=c00"))] {
            let query: Vec<_> = [shard].into_iter().chain(beside).collect();
            for limit in [None, Some("7")] {
                let direct = list(&sides.direct, &query, limit).await;
                assert_eq!(list(&sides.cached, &query, limit).await, direct, "{query:?} {limit:?}");
                selected += direct.0.len();
            }
        }
    }
    assert!(OBJECTS < selected, "most selectors match something");
    compare_watches(&sides, &objects, &mut rng).await;
    for refused in ["half", " ", "shardRange(object.metadata.name, '0x0', '0x1')", "shardRange(object.metadata.uid)"] {
        let path = with_query(CONFIGMAPS, &[("shardSelector", refused)]);
        for path in [path.clone(), with_query(&path, &[("watch", "1"), ("timeoutSeconds", "1")])] {
            let [direct, cached] = [sides.direct.get(&path).await, sides.cached.get(&path).await];
            assert_eq!((cached.code, cached.json()), (direct.code, direct.json()), "{path}");
        }
    }
}

/// Compares the events of random writes in watches of all selectors.
async fn compare_watches(sides: &Sides, objects: &[Object], rng: &mut Rng) {
    let at = sides.cached.get(CONFIGMAPS).await.with_code(200).resource_version().to_string();
    let mut watches = Vec::new();
    for selector in selectors() {
        let query = [("watch", "1"), ("resourceVersion", &at), ("shardSelector", &selector)];
        let path = with_query(CONFIGMAPS, &query);
        watches.push((selector, sides.direct.watch(&path).await, sides.cached.watch(&path).await));
    }
    // uid and namespace of the object of each event.
    let (mut changed, mut present) = (Vec::new(), vec![true; objects.len()]);
    for write in 0..WRITES {
        let at = rng.usize(..objects.len());
        let path = objects[at].path();
        if !present[at] {
            sides.direct.create(&objects[at]).await;
        }
        let object = sides.direct.get(&path).await.with_code(200).json();
        if present[at] && rng.u8(..3) == 0 {
            sides.direct.delete(&path).await.with_code(200);
            present[at] = false;
        } else if present[at] {
            let patch = json!({"data": {"k": write.to_string()}});
            sides.direct.patch(&path, "application/merge-patch+json", &patch).await.with_code(200);
        } else {
            present[at] = true;
        }
        changed.push(["uid", "namespace"].map(|name| object["metadata"][name].as_str().unwrap().to_owned()));
    }
    for (selector, mut direct, mut cached) in watches {
        let shard = Selector::parse(&selector).unwrap();
        let count = changed.iter().filter(|[uid, namespace]| shard.matches(uid, namespace)).count();
        let [direct, cached] = [direct.events(count).await, cached.events(count).await];
        let shown =
            |events: Vec<Event>| -> Vec<_> { events.into_iter().map(|event| (event.kind, event.object)).collect() };
        assert_eq!(shown(cached), shown(direct), "{selector}");
    }
}

/// Goal: shards need no API server that knows them. Method: one without the gate, which ignores the selector. A deletion and
/// a watch that it would not restrict do not reach it.
#[tokio::test]
async fn a_cache_serves_shards_that_its_upstream_does_not_know() {
    let Some(genuine) = Genuine::start("upstream without shards").await else { return };
    let server = cache_of(&genuine, "configmaps").await;
    let sides = Sides::new(&genuine, &server);
    create_some(&genuine.client(ADMIN), &mut Rng::with_seed(1)).await;
    let all = list(&sides.direct, &[], None).await.0;
    let mut found = Vec::new();
    for half in &selectors()[..2] {
        let query = [("shardSelector", &**half)];
        let direct = list(&sides.direct, &query, None).await;
        assert_eq!(direct, (all.clone(), Value::Null), "the API server ignores the selector");
        let (keys, info) = list(&sides.cached, &query, None).await;
        assert_eq!(info["selector"], **half);
        assert!(keys.len() < all.len(), "{keys:?}");
        found.extend(keys);
    }
    found.sort_unstable();
    assert_eq!(found, all);
    let half = [("shardSelector", &*selectors()[0])];
    sides.cached.delete(&with_query("/api/v1/namespaces/shards-a/configmaps", &half)).await.with_code(400);
    assert_eq!(list(&sides.direct, &[], None).await.0, all, "nothing is deleted");
    let watch = [half[0], ("watch", "1")];
    sides.cached.get(&with_query("/api/v1/secrets", &watch)).await.with_code(400);
}

/// The objects that an informer holds.
fn held(maps: &Informer<ConfigMap>) -> BTreeSet<String> {
    maps.store().snapshot().iter().map(|map| map.key().to_owned()).collect()
}

/// Goal: of two programs that declare a half each, one has an object, and it reads half of the bytes where the server knows
/// shards. Method: an API server with the gate, one without it, and a cache in front of each; writes meanwhile.
#[tokio::test]
async fn two_programs_have_one_half_each() {
    for is_known in [true, false] {
        let flags = if is_known { vec![GATE.to_owned()] } else { Vec::new() };
        let settings = GenuineSettings { flags, ..GenuineSettings::default() };
        let Some(genuine) = Genuine::start_with("two programs and shards", settings).await else { return };
        let server = cache_of(&genuine, "configmaps").await;
        let (sides, mut rng) = (Sides::new(&genuine, &server), Rng::with_seed(2));
        let mut objects = create_some(&sides.direct, &mut rng).await;
        let mut config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
        config.auth_info.token = Some(token_of(ADMIN).into());
        let clients = [(genuine.kube_client(ADMIN).await, is_known), (kube::Client::try_from(config).unwrap(), true)];
        let programs: Vec<_> = clients
            .into_iter()
            .map(|(client, is_known)| {
                let program = || Cluster::new(client.clone()).informer::<ConfigMap>();
                let halves = [0, 1].map(|index| program().shard(ShardField::Uid, index, 2).start().unwrap());
                (program().start().unwrap(), halves, is_known)
            })
            .collect();
        for (whole, halves, is_known) in &programs {
            for maps in halves.iter().chain(iter::once(whole)) {
                maps.ready(PATIENCE).await.unwrap();
            }
            let read = |maps: &Informer<ConfigMap>| maps.stats().bytes_received;
            for half in halves {
                assert_eq!(read(half) * 4 < read(whole) * 3, *is_known, "{} of {}", read(half), read(whole));
            }
        }
        for object in objects.drain(..OBJECTS / 2) {
            sides.direct.delete(&object.path()).await.with_code(200);
            if rng.bool() {
                sides.direct.create(&object).await;
            }
        }
        sides.direct.create(&configmap("last").namespace(NAMESPACES[0])).await;
        let listed: BTreeSet<_> = list(&sides.direct, &[], None).await.0.into_iter().collect();
        for (whole, halves, _) in &programs {
            until("each object is in one half", async || {
                let [first, second] = halves.each_ref().map(held);
                held(whole) == listed && first.is_disjoint(&second) && first.union(&second).eq(&listed)
            })
            .await;
        }
    }
}
