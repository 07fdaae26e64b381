//! The SDK against the real server over sockets: equal state by every strategy, changes, filters, restarts.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use informer::{
    Cluster, Event, Informer, InitialList, LabelSelector, ListSemantic, ObjectView, ResourceVersion, Subscription,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use tests::{
    objects::{configmap, pod},
    process::Server,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster_at(address: SocketAddr) -> Cluster {
    Cluster::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Every object in the store, byte for byte.
fn contents<K>(informer: &Informer<K>) -> BTreeMap<String, Vec<u8>> {
    informer.store().snapshot().iter().map(|object| (object.key().to_owned(), object.json().into_owned())).collect()
}

async fn next<K>(changes: &mut Subscription<K>) -> Event<K> {
    soon("an event", changes.next()).await.expect("the informer runs")
}

/// The next event other than `Synced`, as text without the version.
async fn told<K>(changes: &mut Subscription<K>) -> String {
    loop {
        return match next(changes).await {
            Event::Added(object) => format!("+{}", object.key()),
            Event::Updated { new, .. } => format!("~{}", new.key()),
            Event::Deleted { last_known, missed } => format!("-{}{}", last_known.key(), if missed { "?" } else { "" }),
            Event::Synced(_) => continue,
            Event::Reset | _ => "unknown".into(),
        };
    }
}

/// Goal: the initial list strategy does not affect the stored bytes. Method: every strategy with two semantics,
/// compared byte by byte.
#[tokio::test]
async fn stream_pages_and_one_list_give_the_same_bytes() {
    let server = Server::start(BINARY, &["--populate", "pods=400,nodes=4,namespaces=5,seed=7"]).await;
    let cluster = cluster_at(server.address());
    let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
    for semantic in [ListSemantic::Any, ListSemantic::MostRecent] {
        for initial in [InitialList::Auto, InitialList::Stream, InitialList::Paged, InitialList::Unpaged] {
            let declared = cluster.informer::<Pod>().initial_list(initial).list_semantic(semantic.clone());
            let pods = declared.page_size(64).start().unwrap();
            pods.ready(PATIENCE).await.unwrap();
            let found = contents(&pods);
            assert_eq!(found.len(), 400, "{initial:?}");
            let expected = first.get_or_insert_with(|| found.clone());
            assert!(found == *expected, "{initial:?} {semantic:?} differs");
        }
    }
    let one = first.unwrap().into_values().next().unwrap();
    assert!(one.starts_with(br#"{"kind":"Pod","apiVersion":"v1","metadata":{"#));
    assert!(!String::from_utf8(one).unwrap().contains("managedFields"));
}

#[tokio::test]
async fn changes_arrive_in_order_and_reads_follow_writes() {
    let server = Server::start(BINARY, &[]).await;
    let http = server.client();
    http.create(&configmap("before")).await;
    // The default semantic may read a state from before the first write.
    let declared = cluster_at(server.address()).informer::<ConfigMap>().list_semantic(ListSemantic::MostRecent);
    let maps = declared.start().unwrap();
    maps.ready(PATIENCE).await.unwrap();
    let mut changes = maps.subscribe();
    assert_eq!(told(&mut changes).await, "+default/before");
    assert!(matches!(next(&mut changes).await, Event::Synced(_)));
    http.create(&configmap("a")).await;
    assert_eq!(told(&mut changes).await, "+default/a");
    let written = http.update(&configmap("a").data("new")).await;
    let Event::Updated { old, new } = next(&mut changes).await else { panic!("an update") };
    let data = |map: &ConfigMap| map.data.clone().unwrap_or_default();
    assert_ne!(data(&old.decode().unwrap()), data(&new.decode().unwrap()));
    assert_eq!(new.resource_version(), written.to_string());
    http.remove(&configmap("a")).await;
    assert_eq!(told(&mut changes).await, "-default/a");
    let last = http.create(&configmap("b")).await;
    maps.wait_for(&ResourceVersion::from(last), PATIENCE).await.unwrap();
    assert!(maps.store().snapshot().get("default/b").is_some(), "read your writes");
    assert_eq!(maps.stats().reflector.requests, 1, "one stream for all of it");
}

#[tokio::test]
async fn selectors_and_namespaces_filter_on_the_server_and_in_snapshots() {
    let server = Server::start(BINARY, &["--populate", "pods=200,nodes=4,namespaces=5,seed=7"]).await;
    let cluster = cluster_at(server.address());
    let all = cluster.informer::<Pod>().start().unwrap();
    all.ready(PATIENCE).await.unwrap();
    let everything = all.store().snapshot();
    let namespace = everything.iter().next().unwrap().namespace().to_owned();
    let label = everything.iter().find_map(|pod| pod.label("app").map(|app| format!("app={app}"))).unwrap();

    let on_node = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start().unwrap();
    let in_namespace =
        cluster.informer::<Pod>().namespace(&namespace).initial_list(InitialList::Paged).start().unwrap();
    let labelled = cluster.informer::<Pod>().labels(&label).start().unwrap();
    let nodes = cluster.informer::<Node>().start().unwrap();
    for ready in [on_node.ready(PATIENCE), in_namespace.ready(PATIENCE), labelled.ready(PATIENCE)] {
        ready.await.unwrap();
    }
    nodes.ready(PATIENCE).await.unwrap();
    let keys = |informer: &Informer<Pod>| contents(informer).into_keys().collect::<Vec<_>>();
    let expected = |wanted: &mut dyn FnMut(&ObjectView<'_, Pod>) -> bool| {
        everything.iter().filter(|pod| wanted(pod)).map(|pod| pod.key().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&on_node), expected(&mut |pod| pod.field("spec.nodeName").as_deref() == Some("node-1")));
    assert_eq!(
        keys(&in_namespace),
        everything.namespace(&namespace).map(|pod| pod.key().to_owned()).collect::<Vec<_>>()
    );
    let selector = LabelSelector::parse(&label).unwrap();
    assert_eq!(keys(&labelled), everything.select(&selector).map(|pod| pod.key().to_owned()).collect::<Vec<_>>());
    assert!(!keys(&on_node).is_empty() && !keys(&in_namespace).is_empty() && !keys(&labelled).is_empty());
    assert!(nodes.store().snapshot().get("node-1").is_some());
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_deleted_for_its_readers() {
    let server = Server::start(BINARY, &[]).await;
    let http = server.client();
    http.create(&pod("a").label("tier", "web")).await;
    http.create(&pod("b").label("tier", "db")).await;
    let web = cluster_at(server.address()).informer::<Pod>().labels("tier=web").start().unwrap();
    let mut changes = web.subscribe();
    assert_eq!(told(&mut changes).await, "+default/a");
    http.update(&pod("a").label("tier", "db")).await;
    assert_eq!(told(&mut changes).await, "-default/a");
    http.update(&pod("b").label("tier", "web")).await;
    assert_eq!(told(&mut changes).await, "+default/b");
}

/// Goal: the informer handles a server that restarts with another history. Method: one address with two servers in
/// turn, the second with fewer and other objects; the informer must converge and report missed deletions.
#[tokio::test]
async fn a_restarted_server_is_read_again_and_what_is_gone_is_told() {
    let before = Server::start(BINARY, &["--first-revision", "1000"]).await;
    for name in ["goes", "stays"] {
        before.client().create(&configmap(name)).await;
    }
    let door = Door::open(before.address()).await;
    let maps = cluster_at(door.address).informer::<ConfigMap>().start().unwrap();
    maps.ready(PATIENCE).await.unwrap();
    let mut changes = maps.subscribe();
    assert_eq!([told(&mut changes).await, told(&mut changes).await], ["+default/goes", "+default/stays"]);

    let after = Server::start(BINARY, &["--first-revision", "1000000"]).await;
    for name in ["new", "stays"] {
        after.client().create(&configmap(name)).await;
    }
    door.lead_to(after.address());
    before.terminate();
    assert_eq!(before.ended().await.code, Some(0));
    // An equal name with another uid is another object.
    let seen = [told(&mut changes).await, told(&mut changes).await, told(&mut changes).await, told(&mut changes).await];
    assert_eq!(seen, ["-default/goes?", "+default/new", "-default/stays?", "+default/stays"]);
    let last = after.client().create(&configmap("later")).await;
    assert_eq!(told(&mut changes).await, "+default/later", "and it goes on");
    assert_eq!(maps.resource_version().unwrap().as_u64(), Some(last));
}

/// Goal: a server whose positions went back, as after a clock change, is read again. Method: the second server begins
/// below the first; informers whose position is ahead of it, with and without objects that can prove the history.
#[tokio::test]
async fn a_server_whose_positions_went_back_is_read_again() {
    let before = Server::start(BINARY, &["--first-revision", "1000000"]).await;
    before.client().create(&configmap("goes")).await;
    let door = Door::open(before.address()).await;
    let cluster = cluster_at(door.address);
    let maps = cluster.informer::<ConfigMap>().start().unwrap();
    let pods = cluster.informer::<Pod>().start().unwrap();
    let paged = cluster.informer::<Pod>().initial_list(InitialList::Paged).start().unwrap();
    maps.ready(PATIENCE).await.unwrap();
    pods.ready(PATIENCE).await.unwrap();
    paged.ready(PATIENCE).await.unwrap();

    let after = Server::start(BINARY, &["--first-revision", "1000"]).await;
    after.client().create(&configmap("new")).await;
    after.client().create(&pod("new")).await;
    door.lead_to(after.address());
    before.terminate();
    assert_eq!(before.ended().await.code, Some(0));
    let keys = |expected: [&str; 1], found: BTreeMap<String, Vec<u8>>| found.keys().eq(expected.iter());
    let converged = async {
        while !(keys(["default/new"], contents(&maps))
            && keys(["default/new"], contents(&pods))
            && keys(["default/new"], contents(&paged)))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the state of the other server", converged).await;
    let last = after.client().create(&pod("later")).await;
    for pods in [&pods, &paged] {
        soon("what follows", async {
            while contents(pods).len() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(pods.resource_version().unwrap().as_u64(), Some(last));
    }
}

#[tokio::test]
async fn a_first_object_comes_long_before_the_last() {
    let server = Server::start(BINARY, &["--populate", "pods=2000,nodes=4,namespaces=5,seed=7"]).await;
    for initial in [InitialList::Stream, InitialList::Unpaged] {
        let pods = cluster_at(server.address()).informer::<Pod>().initial_list(initial).start().unwrap();
        pods.ready(PATIENCE).await.unwrap();
        let stats = pods.stats();
        let (first, all) = (stats.first_object_after.unwrap(), stats.synced_after.unwrap());
        assert!(first * 2 < all, "{initial:?}: first after {first:?}, all after {all:?}");
    }
}

/// A proxy with one address and a changeable target.
struct Door {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Door {
    async fn open(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let leads_to = Arc::clone(&target);
        tokio::spawn(async move {
            loop {
                let (mut outside, _) = listener.accept().await.unwrap();
                let target = *leads_to.lock().unwrap();
                tokio::spawn(async move {
                    if let Ok(mut inside) = TcpStream::connect(target).await {
                        // When either side closes, close the other.
                        let _ = copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
            }
        });
        Self { address, target }
    }

    fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }
}
