//! Several cache-servers on one etcd: they share resourceVersions, so clients continue at another one without a list.

use std::time::{Duration, Instant};

use informer::{Cluster, Informer, RelistCause, delays::Delays};
use k8s_openapi::api::core::v1::ConfigMap;
use tests::{
    etcd::EtcdCluster,
    http::Client,
    objects::{configmap, namespace},
    process::Server,
    relay::Relay,
};

use super::{
    MAPS, PATIENCE, assert_converged, counters,
    follower::{Follower, History},
    is_long, listed, serve, serve_at, stored, until,
    writers::{NAMESPACES, Writers, team},
};

/// Servers on one etcd.
const SERVERS: usize = 3;
/// Objects before anything happens.
const OBJECTS: usize = 30;
/// Time after which an informer leaves a server that fails.
const LEAVE_AFTER: Duration = Duration::from_millis(200);

/// The delay of informers after failures: servers restart here within seconds of each other, for which the default
/// delays would be half a minute.
struct Soon;

impl Delays for Soon {
    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn reset(&mut self) {}
}

/// The servers, each behind an address that stays when the server is replaced.
struct Replicas {
    etcd: EtcdCluster,
    servers: Vec<Option<Server>>,
    doors: Vec<Relay>,
}

/// Number of clients in the rolling restart.
struct Load {
    followers: usize,
    informers: usize,
    writers: usize,
    /// Pause of each writer.
    pause: Duration,
    /// Writes before, after and during the absence of each server.
    writes: usize,
}

impl Replicas {
    async fn start(test: &str) -> Option<Self> {
        let etcd = EtcdCluster::start(test).await?;
        let (mut servers, mut doors) = (Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let server = serve(&etcd, &[]).await;
            doors.push(Relay::start(server.address()).await);
            servers.push(Some(server));
        }
        let replicas = Self { etcd, servers, doors };
        let client = replicas.client(0);
        for number in 0..NAMESPACES {
            client.create(&namespace(&team(number))).await;
        }
        for number in 0..OBJECTS {
            client.create(&configmap(&format!("m{number}")).namespace(&team(number)).data("1")).await;
        }
        Some(replicas)
    }

    /// A client of one server's address.
    fn client(&self, server: usize) -> Client {
        Client::new(self.doors[server % SERVERS].address())
    }

    fn clients(&self) -> Vec<Client> {
        (0..SERVERS).map(|server| self.client(server)).collect()
    }

    /// Clients of all servers, beginning with one of them.
    fn clients_from(&self, first: usize) -> Vec<Client> {
        let mut clients = self.clients();
        clients.rotate_left(first % SERVERS);
        clients
    }

    /// An informer that prefers one server, and may use the others.
    async fn informer(&self, first: usize) -> Informer<ConfigMap> {
        let client = |door: &Relay| {
            let url = format!("http://{}", door.address()).parse().unwrap();
            kube::Client::try_from(kube::Config::new(url)).unwrap()
        };
        let mut builder = Cluster::builder(client(&self.doors[first % SERVERS]));
        for other in 1..SERVERS {
            builder = builder.fallback(client(&self.doors[(first + other) % SERVERS]));
        }
        let cluster = builder.leave_after(LEAVE_AFTER..=LEAVE_AFTER).build();
        let informer = cluster.informer::<ConfigMap>().delays(Soon).start().unwrap();
        informer.ready(PATIENCE).await.unwrap();
        informer
    }

    /// Ends a server, by a signal.
    async fn end(&mut self, server: usize, signal: &str) {
        let ended = self.servers[server].take().unwrap();
        ended.signal(signal);
        ended.ended().await;
    }

    /// Starts a server at the address of an earlier one.
    async fn begin(&mut self, server: usize) {
        let begun = serve(&self.etcd, &[]).await;
        self.doors[server].lead_to(begun.address());
        self.servers[server] = Some(begun);
    }

    /// Lists of ConfigMaps that a server has answered, and histories of them that it has begun.
    async fn lists(&self, server: usize) -> (u64, u64) {
        let counters = counters(&self.client(server)).await;
        let lists = counters.sum("apiserver_request_total", &[("verb", "LIST"), ("resource", "configmaps")]);
        (lists, counters.sum("cache_epochs_total", &[("resource", "configmaps")]))
    }
}

/// Reads of the whole state by an informer so far.
fn relists(informer: &Informer<ConfigMap>) -> u64 {
    let stats = informer.stats();
    RelistCause::all().map(|cause| stats.reflector.relists(cause)).sum()
}

/// The objects of an informer are those in etcd.
async fn assert_equals(informer: &Informer<ConfigMap>, etcd: &EtcdCluster) {
    let due = stored(&etcd.keys(), 0).await;
    until("the informer has the state of etcd", async || {
        let objects = informer.store().snapshot();
        let mut found: Vec<(String, u64)> = objects
            .iter()
            .map(|object| (object.key().to_owned(), object.resource_version().parse().unwrap_or_default()))
            .collect();
        found.sort();
        found == due
    })
    .await;
}

/// Goal: clients of a killed server continue on another from their resourceVersion, and list nothing. Method: a watch and
/// an informer at the first of three servers, which is killed; then writes through the second. The metrics of the
/// servers and of the informer count lists.
#[tokio::test]
async fn clients_of_a_killed_server_continue_on_another_without_a_list() {
    let Some(mut replicas) = Replicas::start("etcd replicas").await else { return };
    let before = replicas.client(0).get(MAPS).await.with_code(200).resource_version();
    // The other servers know the type, as in a fleet.
    for server in 1..SERVERS {
        replicas.client(server).get(&format!("{MAPS}?resourceVersion=0&limit=1")).await.with_code(200);
    }
    let follower = Follower::start(&replicas.clients(), before, None);
    let informer = replicas.informer(0).await;
    let lists = [replicas.lists(1).await, replicas.lists(2).await];
    let started = relists(&informer);
    replicas.client(0).create(&configmap("first").namespace(&team(0))).await;

    replicas.end(0, "KILL").await;
    let second = replicas.client(1);
    second.update(&configmap("m0").namespace(&team(0)).data("2")).await;
    second.delete(&configmap("m1").namespace(&team(1)).path()).await.with_code(200);
    let last = second.create(&configmap("last").namespace(&team(0))).await;
    assert_equals(&informer, &replicas.etcd).await;

    let history = History::read(&replicas.etcd.keys(), before).await;
    assert_eq!(history.len(), 4);
    let followed = follower.assert_equals(&history, last).await;
    assert_eq!(followed.watches(), 2, "one watch at each of two servers");
    assert_eq!(relists(&informer), started, "relists of the informer");
    assert_eq!([replicas.lists(1).await, replicas.lists(2).await], lists, "lists and histories at the other servers");
}

/// Goal: three servers that restart one after the other cost no client a list, and no client misses a change. Method:
/// writers, watchers and informers at all of them; the events of each watcher are compared with etcd's own history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_no_list_and_no_event() {
    let Some(mut replicas) = Replicas::start("etcd rolling restart").await else { return };
    let load = if is_long() {
        Load { followers: 300, informers: 12, writers: 50, pause: Duration::from_millis(100), writes: 5_000 }
    } else {
        Load { followers: 30, informers: 3, writers: 5, pause: Duration::from_millis(50), writes: 100 }
    };
    let before = replicas.client(0).get(MAPS).await.with_code(200).resource_version();
    let follower = |number: usize| {
        // Most of them follow a part, as agents do.
        let namespace = (!number.is_multiple_of(4)).then(|| team(number));
        Follower::start(&replicas.clients_from(number), before, namespace.as_deref())
    };
    let followers: Vec<Follower> = (0..load.followers).map(follower).collect();
    let mut informers = Vec::new();
    for number in 0..load.informers {
        informers.push(replicas.informer(number).await);
    }
    let started: u64 = informers.iter().map(relists).sum();
    let (writers, begun) = (Writers::start(&replicas.clients(), load.writers, load.pause), Instant::now());
    writers.wrote(load.writes).await;
    for server in 0..SERVERS {
        assert_eq!(replicas.lists(server).await.0, u64::from(server == 0), "lists at server {server}");
        replicas.end(server, "TERM").await;
        writers.wrote(load.writes).await;
        replicas.begin(server).await;
        writers.wrote(load.writes).await;
        assert_eq!(replicas.lists(server).await.0, 0, "lists at the new server {server}");
    }
    let (written, failed, took) = (writers.written(), writers.failed(), begun.elapsed());
    let log = writers.stop().await;
    // Every follower sees a last event.
    let mut ends = Vec::new();
    for number in 0..NAMESPACES {
        ends.push(replicas.client(0).create(&configmap("last").namespace(&team(number))).await);
    }
    assert_eq!(informers.iter().map(relists).sum::<u64>(), started, "relists of the informers");
    for informer in &informers {
        assert_equals(informer, &replicas.etcd).await;
    }
    let history = History::read(&replicas.etcd.keys(), before).await;
    log.assert_within(&history);
    let mut watches = 0;
    for (number, follower) in followers.into_iter().enumerate() {
        let end = if number.is_multiple_of(4) { ends[NAMESPACES - 1] } else { ends[number % NAMESPACES] };
        watches += follower.assert_equals(&history, end).await.watches();
    }
    for client in replicas.clients() {
        assert_converged(&client, &replicas.etcd.keys()).await;
    }
    println!("{written} writes in {took:.1?}, {failed} failed requests, {watches} watches, no list");
}

/// Goal: a client that comes from a server that is ahead is neither refused nor misses anything. Method: the second server
/// is cut off from etcd while the first writes; a client of the first continues at the second.
#[tokio::test]
async fn a_position_ahead_of_a_server_is_waited_for() {
    let Some(etcd) = EtcdCluster::start("etcd position ahead").await else { return };
    let door = Relay::start(etcd.address(0)).await;
    let (first, second) = (serve(&etcd, &[]).await, serve_at(&format!("http://{}", door.address()), &[]).await);
    first.client().create(&configmap("before")).await;
    until("the second server has the type", async || second.client().get(MAPS).await.with_code(200).keys().len() == 1)
        .await;
    door.silence();
    let ahead = first.client().create(&configmap("ahead")).await;
    let follower = Follower::start(&[second.client()], ahead, None);
    first.client().create(&configmap("after")).await;
    until("the follower has asked", async || follower.watches() > 0).await;
    door.rejoin();
    let last = first.client().update(&configmap("before").data("2")).await;
    let history = History::read(&etcd.keys(), ahead).await;
    assert_eq!(history.len(), 2);
    follower.assert_equals(&history, last).await;
}

/// Goal: a server sees a write that was acknowledged by another in its next consistent read. Method: writes through one
/// server, each followed by a list and a get at another.
#[tokio::test]
async fn a_consistent_read_at_one_server_has_the_writes_of_another() {
    let Some(replicas) = Replicas::start("etcd consistent reads").await else { return };
    for round in 0..20 {
        let (here, there) = (replicas.client(round), replicas.client(round + 1));
        let object = configmap(&format!("c{round}")).namespace(&team(0));
        let at = here.create(&object).await;
        let list = there.get(MAPS).await.with_code(200).json();
        assert!(listed(&list).contains(&(format!("{}/c{round}", team(0)), at)), "round {round}");
        assert_eq!(there.get(&object.path()).await.with_code(200).resource_version(), at);
        let newer = format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=NotOlderThan&limit=500");
        assert!(replicas.client(round + 2).get(&newer).await.with_code(200).resource_version() >= at);
        there.delete(&object.path()).await.with_code(200);
        here.get(&object.path()).await.with_code(404);
    }
}
