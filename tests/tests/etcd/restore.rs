//! An etcd that is restored from a snapshot under a running server: whatever was lost is never continued.

use http::Method;
use serde_json::Value;
use tests::{
    etcd::EtcdCluster,
    http::{Client, with_query},
    objects::configmap,
    process::Server,
    relay::Relay,
};

use super::{
    MAPS, assert_converged,
    follower::{Follower, History},
    raw_map, serve, serve_at, stored, until,
};

/// Objects in the snapshot.
const OBJECTS: usize = 10;

/// A server whose etcd lost its newest history, and what clients have of that.
struct RestoredScene {
    etcd: EtcdCluster,
    server: Server,
    /// A position of the lost history.
    lost: u64,
    /// A continue token of the lost history.
    token: String,
    follower: Follower,
    history: History,
}

impl RestoredScene {
    async fn set(test: &str, bumps: bool) -> Option<Self> {
        let mut etcd = EtcdCluster::start(test).await?;
        let server = serve(&etcd, &[]).await;
        let client = server.client();
        for number in 0..OBJECTS {
            client.create(&configmap(&format!("m{number}")).data("kept")).await;
        }
        let before = client.get(MAPS).await.with_code(200).resource_version();
        let follower = Follower::start(&[client], before, None);
        let snapshot = etcd.snapshot();
        client.update(&configmap("m0").data("lost")).await;
        client.remove(&configmap("m1")).await;
        let lost = client.create(&configmap("lost")).await;
        let token = client.get(&format!("{MAPS}?limit=2")).await.with_code(200).token().unwrap();
        let history = History::read(&etcd.keys(), before).await;
        etcd.restore(&snapshot, bumps).await;
        until_restored(&client).await;
        Some(Self { etcd, server, lost, token, follower, history })
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// Asserts that positions and tokens of the lost history are refused, and that the server goes on with the rest.
    async fn check(self) -> u64 {
        let client = self.client();
        assert_converged(&client, &self.etcd.keys()).await;
        let after_lost = with_query(MAPS, &[("watch", "1"), ("resourceVersion", &self.lost.to_string())]);
        let event = client.watch(&after_lost).await.event().await;
        assert_eq!(event.brief(), "ERROR 410", "{event:?}");
        let page = with_query(MAPS, &[("limit", "2"), ("continue", &self.token)]);
        let refused = client.get(&page).await.with_code(410).json();
        assert_eq!(refused["reason"], Value::from("Expired"));
        self.follower.assert_expired(&self.history).await;

        let now = client.get(MAPS).await.with_code(200).resource_version();
        let mut watch = client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &now.to_string())])).await;
        let json = [("content-type", "application/json")];
        let body = configmap("m0").data("new").body().to_string();
        let put = Client::request(Method::PUT, &configmap("m0").path(), &json, body.into());
        let written = client.send(put).await.with_code(200).resource_version();
        let event = watch.event().await;
        assert_eq!((event.brief(), event.resource_version()), ("MODIFIED default/m0".to_owned(), written));
        assert_converged(&client, &self.etcd.keys()).await;
        written
    }
}

/// Goal: after a restore with a bump nothing of the lost history is continued. Method: a watch, a position and a token from
/// after the snapshot, under a server that goes on running.
#[tokio::test]
async fn a_restore_with_a_bump_ends_the_lost_history() {
    let Some(scene) = RestoredScene::set("etcd restore with a bump", true).await else { return };
    let lost = scene.lost;
    let written = scene.check().await;
    assert!(lost < written, "positions are never used twice: {written}");
}

/// Goal: like with a bump, although etcd uses revisions again. Method: the same restore without a bump.
#[tokio::test]
async fn a_restore_without_a_bump_ends_the_lost_history() {
    let Some(scene) = RestoredScene::set("etcd restore without a bump", false).await else { return };
    scene.check().await;
}

/// Goal: a server that was away during a restore with a bump knows the lost positions too. Method: a second server that
/// starts after it.
#[tokio::test]
async fn a_server_that_starts_after_a_restore_refuses_lost_positions() {
    let Some(scene) = RestoredScene::set("etcd restore before a start", true).await else { return };
    let server = serve(&scene.etcd, &[]).await;
    let client = server.client();
    assert_eq!(client.get(MAPS).await.with_code(200).keys().len(), OBJECTS);
    let after_lost = with_query(MAPS, &[("watch", "1"), ("resourceVersion", &scene.lost.to_string())]);
    assert_eq!(client.watch(&after_lost).await.event().await.brief(), "ERROR 410");
    client.get(&with_query(MAPS, &[("limit", "2"), ("continue", &scene.token)])).await.with_code(410);
    assert_eq!(stored(&scene.etcd.keys(), 0).await.len(), OBJECTS);
}

/// Goal: an object of a quiet type that was changed only in the restored history is served as it is there. Method: the
/// server reads nothing between the restore and the time at which etcd has passed its position; the number of objects and
/// the newest of them are the same in both histories.
#[tokio::test]
async fn a_change_below_the_position_in_a_restored_history_is_not_missed() {
    let Some(mut etcd) = EtcdCluster::start("etcd restore of a quiet type").await else { return };
    let door = Relay::start(etcd.address(0)).await;
    let server = serve_at(&format!("http://{}", door.address()), &[]).await;
    let client = server.client();
    for name in ["changed", "newest"] {
        client.create(&configmap(name).data("1")).await;
    }
    let snapshot = etcd.snapshot();
    // Other types move the position of this one.
    let write_elsewhere = async |etcd: &EtcdCluster, count: usize| {
        for _ in 0..count {
            etcd.keys().put("/elsewhere", "1").await;
        }
    };
    write_elsewhere(&etcd, 20).await;
    let position = client.get(MAPS).await.with_code(200).resource_version();
    door.part();
    etcd.restore(&snapshot, false).await;
    let (key, object) = raw_map("changed", "2");
    let changed = etcd.keys().put(&key, object).await;
    assert!(changed < position, "{changed} is new to the server, and below its position {position}");
    write_elsewhere(&etcd, 30).await;
    door.rejoin();
    until("the server reads again", async || client.try_get(MAPS).await.is_ok_and(|answer| answer.code == 200)).await;
    assert_converged(&client, &etcd.keys()).await;
    let found = client.get(&configmap("changed").path()).await.with_code(200).json();
    assert_eq!(found["data"]["k"], "2");
}

/// Goal: a consistent read shows no lost history whose revisions etcd has not reached again, also while the watch of an etcd
/// that is gone seems to live. Method: the watch goes through a network that falls silent; later calls go to another address
/// of the same etcd.
#[tokio::test]
async fn a_consistent_read_beside_a_silent_watch_never_shows_the_lost_history() {
    let Some(mut etcd) = EtcdCluster::start("etcd restore beside a silent watch").await else { return };
    let door = Relay::start(etcd.address(0)).await;
    let server = serve_at(&format!("http://{},{}", door.address(), etcd.endpoint(0)), &[]).await;
    let client = server.client();
    client.create(&configmap("kept")).await;
    let snapshot = etcd.snapshot();
    client.create(&configmap("lost")).await;
    assert_eq!(client.get(MAPS).await.with_code(200).keys().len(), 2);
    door.silence();
    etcd.restore(&snapshot, false).await;
    until_restored(&client).await;
    assert_converged(&client, &etcd.keys()).await;
}

/// Waits until a consistent read is answered, which never shows the lost history.
async fn until_restored(client: &Client) {
    until("a consistent read is answered", async || {
        let Some(answer) = client.try_get(MAPS).await.ok().filter(|answer| answer.code == 200) else { return false };
        assert!(!answer.keys().contains(&"default/lost".to_owned()), "a consistent read shows the lost history");
        true
    })
    .await;
}
