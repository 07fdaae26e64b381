//! Compactions of etcd at the worst moments: during a first list, behind a server that is cut off, and the servers' own.

use std::time::Duration;

use serde_json::json;
use tests::{
    etcd::EtcdCluster,
    http::{Client, briefs, with_query},
    objects::configmap,
    relay::Relay,
};
use tokio::time::interval;

use super::{
    MAPS, assert_converged, counters,
    follower::{Follower, History},
    listed, raw_map, serve, serve_at, stored, until,
};

/// Objects of a first list: more than one page of any client of etcd.
const OBJECTS: usize = 3_000;
/// Bytes of each.
const OBJECT_BYTES: usize = 1_000;
/// Compactions during the first list, and the pause between two of them.
const COMPACTIONS: usize = 20;
const COMPACT_EVERY: Duration = Duration::from_millis(25);

fn watch_after(at: u64) -> String {
    with_query(MAPS, &[("watch", "1"), ("resourceVersion", &at.to_string())])
}

/// Goal: compactions during a first list delay it and do not break it. Method: another writer changes an object and
/// compacts again and again while a server lists thousands of objects for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compactions_during_the_first_list_do_not_break_it() {
    let Some(etcd) = EtcdCluster::start("etcd compaction of a list").await else { return };
    // The first server makes the prefix its own.
    drop(serve(&etcd, &[]).await);
    let keys = etcd.keys();
    let value = "x".repeat(OBJECT_BYTES);
    let objects: Vec<(String, String)> = (0..OBJECTS).map(|number| raw_map(&format!("m{number:04}"), &value)).collect();
    keys.put_all(&objects).await;
    let server = serve(&etcd, &[]).await;
    let compacting = tokio::spawn(async move {
        let mut ticks = interval(COMPACT_EVERY);
        for number in 0..COMPACTIONS {
            ticks.tick().await;
            let (key, object) = raw_map(&format!("m{:04}", OBJECTS - 1), &number.to_string());
            let at = keys.put(&key, object).await;
            keys.compact(at).await;
        }
    });
    let client = server.client();
    until("the first list is answered", async || {
        client.try_get(MAPS).await.is_ok_and(|answer| answer.code == 200 && listed(&answer.json()).len() == OBJECTS)
    })
    .await;
    compacting.await.unwrap();
    assert_converged(&client, &etcd.keys()).await;
}

/// Goal: after a compaction that a server could not follow, its clients get 410 or all events, and its cache equals etcd
/// again. Method: the connections of the second of two servers are reset and refused while the first writes, and etcd
/// is compacted up to the last write.
#[tokio::test]
async fn a_compaction_behind_a_server_that_is_cut_off_is_410_and_a_relist() {
    let Some(etcd) = EtcdCluster::start("etcd compaction behind a server").await else { return };
    let door = Relay::start(etcd.address(0)).await;
    let first = serve(&etcd, &[]).await;
    let second = serve_at(&format!("http://{}", door.address()), &[]).await;
    let (here, there) = (first.client(), second.client());
    for name in ["kept", "changed", "deleted"] {
        here.create(&configmap(name).data("1")).await;
    }
    let before = there.get(MAPS).await.with_code(200).resource_version();
    let follower = Follower::start(&[there], before, None);
    let other = Follower::start(&[here], before, None);
    let seen = here.update(&configmap("changed").data("2")).await;
    until("the second server has it", async || {
        let list = there.get(&format!("{MAPS}?resourceVersion=0")).await.with_code(200).json();
        listed(&list).iter().any(|(_, at)| *at == seen)
    })
    .await;

    door.part();
    here.update(&configmap("changed").data("3")).await;
    here.remove(&configmap("deleted")).await;
    let last = here.create(&configmap("created")).await;
    let history = History::read(&etcd.keys(), before).await;
    etcd.keys().compact(etcd.keys().revision().await).await;
    door.rejoin();
    until("the second server reads again", async || there.try_get(MAPS).await.is_ok_and(|answer| answer.code == 200))
        .await;
    assert_converged(&there, &etcd.keys()).await;
    other.assert_equals(&history, last).await;
    follower.assert_expired(&history).await;
    assert_eq!(there.watch(&watch_after(seen)).await.event().await.brief(), "ERROR 410");
    let now = there.get(MAPS).await.with_code(200).resource_version();
    let mut watch = there.watch(&watch_after(now)).await;
    here.create(&configmap("later")).await;
    assert_eq!(watch.event().await.brief(), "ADDED default/later");
}

/// Goal: a new server answers 410 for positions below the compaction, and all that follows for positions above. Method: a
/// compaction between writes, then a server that knows nothing of them.
#[tokio::test]
async fn positions_below_a_compaction_are_410_at_a_new_server() {
    let Some(etcd) = EtcdCluster::start("etcd compaction and a new server").await else { return };
    let first = serve(&etcd, &[]).await;
    let old = first.client().create(&configmap("a").data("1")).await;
    let middle = first.client().update(&configmap("a").data("2")).await;
    etcd.keys().compact(middle).await;
    first.client().update(&configmap("a").data("3")).await;
    let second = serve(&etcd, &[]).await;
    let client = second.client();
    assert_eq!(listed(&client.get(MAPS).await.with_code(200).json()), stored(&etcd.keys(), 0).await);
    assert_eq!(client.watch(&watch_after(old)).await.event().await.brief(), "ERROR 410");
    let exact = |at: u64| format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={at}");
    client.get(&exact(old)).await.with_code(410);
    let list = client.get(&exact(middle)).await.with_code(200).json();
    assert_eq!(listed(&list), [("default/a".to_owned(), middle)]);
}

/// Goal: after a compaction by another program, clients of a new server resume from every position that etcd still has.
/// Method: `etcdctl compact` in the middle of writes, without the key in which servers count their compactions.
#[tokio::test]
async fn positions_above_a_foreign_compaction_resume_at_a_new_server() {
    let Some(etcd) = EtcdCluster::start("etcd foreign compaction").await else { return };
    let flags = ["--etcd-compaction-interval", "0s"];
    let first = serve(&etcd, &flags).await;
    let mut written = Vec::new();
    for number in 0..20 {
        written.push(first.client().create(&configmap(&format!("m{number:02}")).data("1")).await);
    }
    etcd.keys().compact(written[5]).await;
    drop(first);
    let server = serve(&etcd, &flags).await;
    let client = server.client();
    assert_eq!(client.watch(&watch_after(written[4])).await.event().await.brief(), "ERROR 410");
    for from in [5, 6, 15] {
        let events = client.watch(&watch_after(written[from])).await.events(19 - from).await;
        let expected: Vec<_> = (from + 1..20).map(|number| format!("ADDED default/m{number:02}")).collect();
        assert_eq!(briefs(&events), expected, "from the write number {from}");
    }
    assert_converged(&client, &etcd.keys()).await;
}

/// Goal: the servers compact etcd themselves, and keep the history of the last interval. Method: two servers with a short
/// interval, until an old revision is compacted; a watch over it all.
#[tokio::test]
async fn servers_compact_what_is_older_than_the_interval() {
    let Some(etcd) = EtcdCluster::start("etcd compaction by servers").await else { return };
    let flags = ["--etcd-compaction-interval", "1s"];
    let servers = [serve(&etcd, &flags).await, serve(&etcd, &flags).await];
    let [here, there] = [0, 1].map(|server| servers[server].client());
    let first = here.create(&configmap("a").data("0")).await;
    let follower = Follower::start(&[there], first, None);
    let mut newest = first;
    until("the first revision is compacted", async || {
        let range = json!({"key": "AA==", "revision": first.to_string()});
        newest = here.update(&configmap("a").data("again")).await.max(newest);
        etcd.keys().try_call("/v3/kv/range", &range).await.is_err_and(|error| error.contains("compacted"))
    })
    .await;
    let last = there.create(&configmap("last")).await;
    let followed = follower.observed(last).await;
    assert_eq!(followed.watches(), 1, "{followed:?}");
    assert!(newest > first);
    let epochs =
        async |client: &Client| counters(client).await.sum("cache_epochs_total", &[("resource", "configmaps")]);
    assert_eq!((epochs(&here).await, epochs(&there).await), (1, 1), "no server lists again");
}
