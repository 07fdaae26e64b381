//! Faults of an etcd of three members under writes: restarts, changes of the leader, a member that is cut off or stalled.
//! No watcher misses a change or must list, no acknowledged write is lost, and no consistent read is stale.

use std::time::Duration;

use tests::{
    etcd::{EtcdCluster, EtcdKeys, EtcdSettings},
    http::{Client, with_query},
    objects::{configmap, namespace},
    process::Server,
    relay::Relay,
};
use tokio::time::timeout;

use super::{
    CHECK_EVERY, MAPS, assert_converged,
    follower::{Follower, History},
    is_long, listed, raw_map, serve_at, until,
    writers::{NAMESPACES, Writers, team},
};

/// Servers on the etcd.
const SERVERS: usize = 2;
const FOLLOWERS: usize = 4;
const WRITERS: usize = 4;
/// Pause of each writer.
const PAUSE: Duration = Duration::from_millis(20);
/// Acknowledged writes between two steps of a case.
const WRITES: usize = 50;

/// An etcd, servers that reach its members through a relay each, and clients that write and watch.
struct FaultScene {
    etcd: EtcdCluster,
    servers: Vec<Server>,
    /// The doors to the members, by server and member.
    doors: Vec<Vec<Relay>>,
    before: u64,
    followers: Vec<Follower>,
    writers: Writers,
}

impl FaultScene {
    async fn set(test: &str, members: usize) -> Option<Self> {
        let settings = EtcdSettings { members, ..EtcdSettings::default() };
        let etcd = EtcdCluster::start_with(test, settings).await?;
        let (mut servers, mut doors) = (Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let mut to_members = Vec::new();
            for member in 0..members {
                to_members.push(Relay::start(etcd.address(member)).await);
            }
            let urls: Vec<String> = to_members.iter().map(|door| format!("http://{}", door.address())).collect();
            servers.push(serve_at(&urls.join(","), &[]).await);
            doors.push(to_members);
        }
        let clients: Vec<Client> = servers.iter().map(Server::client).collect();
        for number in 0..NAMESPACES {
            clients[0].create(&namespace(&team(number))).await;
        }
        let before = clients[1].get(MAPS).await.with_code(200).resource_version();
        let followers = (0..FOLLOWERS).map(|number| Follower::start(&clients[number % SERVERS..], before, None));
        let followers = followers.collect();
        let writers = Writers::start(&clients, WRITERS, PAUSE);
        writers.wrote(WRITES).await;
        Some(Self { etcd, servers, doors, before, followers, writers })
    }

    /// The member that the first server has most connections to.
    fn member_in_use(&self) -> usize {
        let doors = self.doors[0].iter().enumerate();
        doors.max_by_key(|(_, door)| door.open()).map_or(0, |(member, _)| member)
    }

    /// Asserts that no server answers a consistent read without a write that etcd has. Errors are no stale answers.
    async fn assert_not_stale(&self, keys: &EtcdKeys, round: usize) {
        let (key, object) = raw_map(&format!("past-{round}"), "1");
        let mut at = 0;
        until("etcd takes a write", async || {
            at = keys.try_put(&key, &object).await.unwrap_or_default();
            at > 0
        })
        .await;
        for server in &self.servers {
            for path in [MAPS, &with_query(MAPS, &[("limit", "1000")])] {
                let Ok(answer) = server.client().try_get(path).await else { continue };
                assert!(answer.code == 200 || answer.code.as_u16() >= 500, "{path}: {}", answer.text());
                let is_stale =
                    answer.code == 200 && !listed(&answer.json()).contains(&(format!("default/past-{round}"), at));
                assert!(!is_stale, "{path} lacks the write at {at}: {}", answer.resource_version());
            }
        }
    }

    /// Waits until every server answers consistent reads, and takes writes.
    async fn recovered(&self) {
        for server in &self.servers {
            until("a server reads from etcd again", async || {
                let answer = timeout(CHECK_EVERY * 100, server.client().try_get(MAPS)).await;
                answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.code == 200))
            })
            .await;
        }
        self.writers.wrote(WRITES).await;
    }

    /// Ends the writers, and compares everything with etcd.
    async fn end(self) {
        let (written, failed) = (self.writers.written(), self.writers.failed());
        let log = self.writers.stop().await;
        let last = self.servers[0].client().create(&configmap("last")).await;
        let history = History::read(&self.etcd.keys(), self.before).await;
        log.assert_within(&history);
        for follower in self.followers {
            follower.assert_equals(&history, last).await;
        }
        for server in &self.servers {
            assert_converged(&server.client(), &self.etcd.keys()).await;
        }
        eprintln!("{written} writes, {failed} failed requests, {} changes", history.len());
    }
}

/// Goal: a restart of etcd ends no history: watches go on, and reads that allow it are answered meanwhile. Method: the only
/// member is killed until writes fail, and started again.
#[tokio::test]
async fn a_restart_of_etcd_costs_no_list_and_no_event() {
    let Some(mut scene) = FaultScene::set("etcd restart", 1).await else { return };
    scene.etcd.kill(0);
    let failed = scene.writers.failed();
    until("writes fail", async || scene.writers.failed() >= failed + WRITERS).await;
    for server in &scene.servers {
        server.client().get(&format!("{MAPS}?resourceVersion=0")).await.with_code(200);
    }
    scene.etcd.restart(0).await;
    scene.recovered().await;
    scene.end().await;
}

/// Goal: a change of the leader costs neither an event nor a list. Method: the leader is moved to another member, which is
/// then killed and started again.
#[tokio::test]
async fn a_change_of_the_leader_costs_no_list_and_no_event() {
    let Some(mut scene) = FaultScene::set("etcd leader", 3).await else { return };
    let leader = scene.etcd.leader().await;
    scene.etcd.move_leader((leader + 1) % 3).await;
    scene.recovered().await;
    let leader = scene.etcd.leader().await;
    scene.etcd.kill(leader);
    scene.etcd.leader_beside(Some(leader)).await;
    scene.recovered().await;
    scene.etcd.restart(leader).await;
    scene.recovered().await;
    scene.end().await;
}

/// Goal: a member that is cut off from the others neither holds back events nor makes reads stale. Method: the member that
/// a server uses loses the others, while writes reach them; no connection ends.
#[tokio::test]
async fn a_partition_of_a_member_costs_no_list_and_no_event() {
    let Some(scene) = FaultScene::set("etcd partition", 3).await else { return };
    let member = scene.member_in_use();
    scene.etcd.part(member);
    let leader = scene.etcd.leader_beside(Some(member)).await;
    for round in 0..3 {
        scene.assert_not_stale(&scene.etcd.keys_of(leader), round).await;
    }
    scene.recovered().await;
    scene.etcd.rejoin();
    scene.recovered().await;
    scene.end().await;
}

/// Goal: a member that stalls, as one with a stalled disk does, is left. Method: the member that a server uses is stopped,
/// and continued once both servers work without it.
#[tokio::test]
async fn a_stalled_member_costs_no_list_and_no_event() {
    let Some(scene) = FaultScene::set("etcd stall", 3).await else { return };
    let member = scene.member_in_use();
    scene.etcd.pause(member);
    let leader = scene.etcd.leader_beside(Some(member)).await;
    for round in 0..3 {
        scene.assert_not_stale(&scene.etcd.keys_of(leader), round).await;
    }
    scene.recovered().await;
    scene.etcd.resume(member);
    scene.recovered().await;
    scene.end().await;
}

/// Goal: a stall of the only member loses no write and invents none: those without an answer are said to be of unknown
/// outcome. Method: etcd is stopped until a write gets 504, and continued; it then carries out what it had received.
#[tokio::test]
async fn a_stall_of_all_of_etcd_leaves_outcomes_unknown() {
    let Some(scene) = FaultScene::set("etcd stall of all", 1).await else { return };
    scene.etcd.pause(0);
    let object = configmap("unknown");
    let answer = scene.servers[0].client().post(&object.collection(), object.body()).await.with_code(504);
    assert!(answer.message().contains("may have happened"), "{}", answer.text());
    scene.etcd.resume(0);
    scene.recovered().await;
    let found = scene.servers[1].client().get(&object.path()).await.code;
    let stored = scene.etcd.keys().get(&raw_map("unknown", "").0).await;
    assert_eq!(found == 200, stored.is_some(), "{found}");
    scene.end().await;
}

/// Goal: members that restart one after the other cost neither an event nor a list. Method: each of three is killed and
/// started again while writes go on.
#[tokio::test]
async fn a_rolling_restart_of_members_costs_no_list_and_no_event() {
    if !is_long() {
        return;
    }
    let Some(mut scene) = FaultScene::set("etcd rolling restart of members", 3).await else { return };
    for member in 0..3 {
        scene.etcd.kill(member);
        scene.recovered().await;
        scene.etcd.restart(member).await;
        scene.recovered().await;
    }
    scene.end().await;
}

/// Goal: a member that is away delays no start. Method: a server whose first address refuses connections, and one whose
/// first member is stopped.
#[tokio::test]
async fn a_server_starts_without_one_of_the_members() {
    let settings = EtcdSettings { members: 3, ..EtcdSettings::default() };
    let Some(mut etcd) = EtcdCluster::start_with("etcd start", settings).await else { return };
    etcd.kill(0);
    let first = serve_at(&etcd.endpoints(), &[]).await;
    first.client().create(&configmap("a")).await;
    etcd.restart(0).await;
    etcd.pause(0);
    let second = serve_at(&etcd.endpoints(), &[]).await;
    second.client().create(&configmap("b")).await;
    let list = first.client().get(MAPS).await.with_code(200);
    assert_eq!(list.keys(), ["default/a", "default/b"]);
}

/// Goal: a network that loses everything between a server and etcd costs neither an event nor a list. Method: all bytes of
/// one server stop while the other one writes; no connection ends.
#[tokio::test]
async fn a_server_that_is_cut_off_catches_up() {
    let Some(scene) = FaultScene::set("etcd cut off", 1).await else { return };
    scene.doors[1][0].silence();
    scene.writers.wrote(WRITES).await;
    scene.assert_not_stale(&scene.etcd.keys(), 0).await;
    scene.doors[1][0].rejoin();
    scene.recovered().await;
    scene.end().await;
}
