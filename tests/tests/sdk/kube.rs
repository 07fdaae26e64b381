//! The SDK under kube's own runtime against the real server: reflectors and controllers fed by `informer::watcher`.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::StreamExt;
use informer::kube5;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        finalizer::{self, Event, finalizer},
        reflector::{self, ObjectRef, Store},
        utils::Backoff,
        watcher,
    },
};
use tests::{
    objects::{Object, configmap, pod},
    process::Server,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

fn client_at(address: SocketAddr) -> Client {
    Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

/// Waits until `condition` holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Versions by name of the objects in a reflector's store.
fn held<K>(store: &Store<K>) -> BTreeMap<String, String>
where
    K: ResourceExt + reflector::Lookup + Clone + 'static,
    <K as reflector::Lookup>::DynamicType: Eq + std::hash::Hash + Clone,
{
    let version = |object: &K| ResourceExt::resource_version(object).unwrap();
    store.state().iter().map(|object| (object.name_any(), version(object))).collect()
}

/// Versions by name of the server's objects.
async fn served(server: &Server, object: &Object) -> BTreeMap<String, String> {
    let list = server.client().get(&object.everywhere()).await.json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    items.iter().map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["resourceVersion"]))).collect()
}

/// A backoff of 20 ms for tests.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

/// Goal: kube's own watcher, which retries a watch after any error but 410, recovers from a server whose positions went
/// back. Method: one address, a second server that begins below the first.
#[tokio::test]
async fn kubes_own_watcher_reads_a_server_again_whose_positions_went_back() {
    let before = Server::start(BINARY, &["--first-revision", "1000000"]).await;
    before.client().create(&configmap("goes")).await;
    let door = Door::open(before.address()).await;
    let (reader, writer) = reflector::store();
    let api: Api<ConfigMap> = Api::all(client_at(door.address));
    let events = watcher(api, watcher::Config::default()).backoff(Soon);
    tokio::spawn(reflector::reflector(writer, events).for_each(|_| ready(())));
    until("the first state", || held(&reader).contains_key("goes")).await;
    let after = Server::start(BINARY, &["--first-revision", "1000"]).await;
    after.client().create(&configmap("new")).await;
    door.lead_to(after.address());
    before.terminate();
    until("the state of the other server", || held(&reader).keys().eq(["new"])).await;
}

/// Goal: kube's reflector converges to the server's state. Method: seeded writes while connections are cut and the
/// proxy refuses connections at times, with more changes than the history window holds; each initial list strategy. The
/// test counts relists, to be sure that it causes some.
#[tokio::test]
async fn a_reflector_converges_over_random_writes_and_disconnects() {
    let server = Server::start(BINARY, &["--window-bytes", "8KiB"]).await;
    let door = Door::open(server.address()).await;
    let api: Api<ConfigMap> = Api::all(client_at(door.address));
    let cluster = informer::Cluster::new(client_at(door.address));
    let mut reflectors: Vec<(Store<ConfigMap>, Arc<AtomicUsize>)> = Vec::new();
    for config in [
        watcher::Config::default().page_size(7),
        watcher::Config { page_size: None, ..watcher::Config::default().any_semantic() },
        watcher::Config::default().streaming_lists(),
    ] {
        let (reader, writer) = reflector::store();
        let events = cluster.watcher(&api, config).delays(kube5::delays(Soon)).stream();
        let inits = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&inits);
        tokio::spawn(reflector::reflector(writer, events).for_each(move |event| {
            seen.fetch_add(usize::from(matches!(event, Ok(watcher::Event::InitDone))), Relaxed);
            ready(())
        }));
        reflectors.push((reader, inits));
    }
    let http = server.client();
    let mut random = fastrand::Rng::with_seed(7);
    let mut there = BTreeSet::new();
    for round in 0..10 {
        for step in 0..random.usize(20..60) {
            let name = format!("map-{}", random.u8(0..30));
            let object = configmap(&name).data(&format!("{round}-{step}"));
            if there.insert(name.clone()) {
                http.create(&object).await;
            } else if random.u8(0..3) == 0 {
                there.remove(&name);
                http.remove(&object).await;
            } else {
                http.update(&object).await;
            }
            if random.u8(0..15) == 0 {
                door.cut();
            }
        }
        door.set_open(round % 3 != 0);
    }
    door.set_open(true);
    let expected = served(&server, &configmap("any")).await;
    assert_eq!(expected.len(), there.len());
    for (store, inits) in &reflectors {
        until("the reflector's state is the server's", || held(store) == expected).await;
        assert!(inits.load(Relaxed) > 1, "no relist");
    }
}

/// A program written for kube needs one changed line: `informer::watcher` instead of kube's.
#[tokio::test]
async fn a_controller_reconciles_every_object_and_what_changes() {
    let server = Server::start(BINARY, &["--populate", "pods=300,nodes=4,namespaces=5,seed=7"]).await;
    let client = client_at(server.address());
    let pods: Api<Pod> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::all(client);
    let (reader, writer) = reflector::store();
    let triggers = informer::watcher(pods, watcher::Config::default()).default_backoff().reflect(writer);
    // A ConfigMap concerns the pod of its name.
    let related = informer::watcher(maps, watcher::Config::default().streaming_lists()).touched_objects();
    let reconciled: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counts = Arc::clone(&reconciled);
    let controller = Controller::for_stream(triggers.applied_objects(), reader).watches_stream(related, |map| {
        Some(ObjectRef::new(&map.name_any()).within(&map.namespace().unwrap_or_default()))
    });
    let running = controller.run(
        |pod: Arc<Pod>, counts: Arc<Mutex<BTreeMap<String, usize>>>| async move {
            let key = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            *counts.lock().unwrap().entry(key).or_default() += 1;
            Ok::<_, std::io::Error>(Action::await_change())
        },
        |_, _, _| Action::await_change(),
        counts,
    );
    tokio::spawn(running.for_each(|_| ready(())));
    until("every pod was seen to", || reconciled.lock().unwrap().len() == 300).await;

    let http = server.client();
    let times = |key: &str| reconciled.lock().unwrap().get(key).copied().unwrap_or_default();
    http.create(&pod("late")).await;
    until("a new pod was seen to", || times("default/late") == 1).await;
    http.update(&pod("late").label("app", "web")).await;
    until("a changed pod was seen to", || times("default/late") == 2).await;
    http.create(&configmap("late")).await;
    until("what belongs to the pod was seen to", || times("default/late") == 3).await;
    http.remove(&configmap("late")).await;
    until("and that it is gone", || times("default/late") == 4).await;
}

/// Goal: a stock controller with a finalizer works. Method: kube's own `finalizer`, from an object's first
/// reconciliation to its deletion; its patches contain a `test` of finalizers, which may be absent.
#[tokio::test]
async fn a_controller_with_a_finalizer_cleans_up_before_its_objects_go() {
    let server = Server::start(BINARY, &[]).await;
    let maps: Api<ConfigMap> = Api::namespaced(client_at(server.address()), "default");
    let told: Arc<Mutex<Vec<&str>>> = Arc::default();
    let controller = Controller::new(maps.clone(), watcher::Config::default()).run(
        move |map, told: Arc<Mutex<Vec<&str>>>| {
            let maps = maps.clone();
            async move {
                finalizer(&maps, "example.com/cleanup", map, async |event| {
                    told.lock().unwrap().push(match event {
                        Event::Apply(_) => "apply",
                        Event::Cleanup(_) => "cleanup",
                    });
                    Ok::<_, std::io::Error>(Action::await_change())
                })
                .await
            }
        },
        // A cached object may be older than the finalizer: the `test` operation fails then, and the next attempt
        // succeeds.
        |_, _: &finalizer::Error<std::io::Error>, _| Action::requeue(Duration::from_millis(10)),
        Arc::clone(&told),
    );
    tokio::spawn(controller.for_each(|_| ready(())));
    let http = server.client();
    http.create(&configmap("a")).await;
    until("the object was seen to", || told.lock().unwrap().contains(&"apply")).await;
    http.delete(&configmap("a").path()).await.with_code(200);
    until("it was cleaned up", || told.lock().unwrap().last() == Some(&"cleanup")).await;
    let deadline = Instant::now() + PATIENCE;
    while http.get(&configmap("a").path()).await.code != 404 {
        assert!(Instant::now() < deadline, "it does not go");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn metadata_and_dynamic_objects_are_read_like_any_other() {
    let server = Server::start(BINARY, &[]).await;
    for name in ["a", "b"] {
        server.client().create(&configmap(name).data("x")).await;
    }
    let client = client_at(server.address());
    let expected = served(&server, &configmap("any")).await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (reader, writer) = reflector::store();
        let api: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
        tokio::spawn(reflector::reflector(writer, informer::watcher(api, config.clone())).for_each(|_| ready(())));
        until("all metadata", || held(&reader) == expected).await;

        let of = ApiResource::erase::<ConfigMap>(&());
        let writer = reflector::store::Writer::<DynamicObject>::new(of.clone());
        let reader = writer.as_reader();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &of);
        tokio::spawn(reflector::reflector(writer, informer::watcher(api, config)).for_each(|_| ready(())));
        until("all objects", || held(&reader) == expected).await;
        let one = reader.get(&ObjectRef::new_with("a", of).within("default")).unwrap();
        assert_eq!(one.data["data"]["k"], "x");
        assert_eq!(one.types.as_ref().map(|types| &*types.kind), Some("ConfigMap"));
    }
}

/// A proxy whose connections can be cut, and which can refuse connections.
struct Door {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    inside: Arc<Mutex<JoinSet<()>>>,
    is_open: Arc<AtomicBool>,
}

impl Door {
    async fn open(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (inside, is_open) = (Arc::new(Mutex::new(JoinSet::new())), Arc::new(AtomicBool::new(true)));
        let target = Arc::new(Mutex::new(target));
        let (connections, leads, leads_to) = (Arc::clone(&inside), Arc::clone(&is_open), Arc::clone(&target));
        tokio::spawn(async move {
            loop {
                let (mut outside, _) = listener.accept().await.unwrap();
                if !leads.load(Relaxed) {
                    continue;
                }
                let target = *leads_to.lock().unwrap();
                connections.lock().unwrap().spawn(async move {
                    if let Ok(mut inside) = TcpStream::connect(target).await {
                        // When either side closes, close the other.
                        let _ = copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
            }
        });
        Self { address, target, inside, is_open }
    }

    fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }

    /// Cuts all connections.
    fn cut(&self) {
        self.inside.lock().unwrap().abort_all();
    }

    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Relaxed);
        if !is_open {
            self.cut();
        }
    }
}
