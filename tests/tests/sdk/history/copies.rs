//! Informers with every initial list strategy and representation, with subscribers that keep their own replicas.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fastrand::Rng;
use informer::{Cluster, Event, Informer, InitialList, ListSemantic, ObjectView, Representation, Snapshot};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::sleep;

use super::{
    truth::{Content, Selector, State},
    watchers,
};

/// Ring size of a subscriber of every change. It is small, so that some subscribers are reset.
const RING: usize = 64;

/// An informer, its selector, and its replicas.
pub(crate) struct Copy {
    pub(crate) name: String,
    pub(crate) selector: Selector,
    informer: Informer<ConfigMap>,
    samples: Arc<Mutex<Vec<(u64, State)>>>,
    replicas: [Replica; 2],
}

type Replica = Arc<Mutex<State>>;

impl Copy {
    /// Starts an informer that prefers the first of several addresses, and sends a token to all.
    pub(crate) fn start(
        number: usize,
        proxies: &[SocketAddr],
        token: Option<&str>,
        checkpoints: &std::path::Path,
        rng: &mut Rng,
    ) -> Self {
        let client = |proxy: &SocketAddr| {
            let mut config = kube::Config::new(format!("http://{proxy}").parse().unwrap());
            config.auth_info.token = token.map(|token| token.to_owned().into());
            informer::client_from(config).unwrap()
        };
        let preferred = Cluster::builder(client(&proxies[0])).identity(proxies[0].to_string());
        let cluster = proxies[1..].iter().fold(preferred, |builder, proxy| builder.fallback(client(proxy))).build();
        let selector = watchers::selector(rng);
        let initial = rng.choice([InitialList::Auto, InitialList::Stream, InitialList::Paged]).unwrap();
        let semantic = rng.choice([ListSemantic::Any, ListSemantic::MostRecent]).unwrap();
        let form = rng.choice([Representation::Json, Representation::Typed]).unwrap();
        let name = format!("copy {number}: {initial:?} {semantic:?} {form:?} {selector:?}");
        let mut builder = cluster
            .informer::<ConfigMap>()
            .labels(selector.labels())
            .list_semantic(semantic)
            .initial_list(initial)
            .page_size(rng.u32(5..60))
            .store(form);
        if let Some(namespace) = &selector.namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(object) = &selector.name {
            builder = builder.fields(format!("metadata.name={object}"));
        }
        if rng.u8(0..3) == 0 {
            builder = builder.checkpoint(checkpoints.join(number.to_string()));
        }
        let informer = builder.start().unwrap();
        let replicas = [Replica::default(), Replica::default()];
        tokio::spawn(latest(name.clone(), informer.clone(), Arc::clone(&replicas[0])));
        tokio::spawn(every(name.clone(), informer.clone(), Arc::clone(&replicas[1])));
        let samples = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(sample(informer.clone(), Arc::clone(&samples), rng.fork()));
        Self { name, selector, informer, samples, replicas }
    }

    /// Takes the states sampled since the last call, with their positions.
    pub(crate) fn samples(&self) -> Vec<(u64, State)> {
        std::mem::take(&mut *self.samples.lock().unwrap())
    }

    /// Waits until the store and the replicas equal `expected`. Returns the time it took.
    pub(crate) async fn converges(&self, expected: &State, within: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            let store = state(&self.informer.store().snapshot());
            let replicas = self.replicas.each_ref().map(|replica| replica.lock().unwrap().clone());
            if store == *expected && replicas.iter().all(|replica| replica == expected) {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > within {
                let story = self.informer.ready(Duration::ZERO).await;
                let counts = [&store, &replicas[0], &replicas[1]].map(|state| differences(state, expected));
                return Err(format!(
                    "{}: store, latest and every differ in {counts:?} from the server; {story:?}, {:?}",
                    self.name,
                    self.informer.stats()
                ));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn differences(left: &State, right: &State) -> usize {
    left.iter().filter(|(key, object)| right.get(*key) != Some(object)).count()
        + right.keys().filter(|key| !left.contains_key(*key)).count()
}

fn content(object: ObjectView<'_, ConfigMap>) -> (u64, Content) {
    let json = serde_json::from_slice(&object.json()).expect("what the server sent");
    (object.resource_version().parse().expect("a position"), watchers::content(&json))
}

fn state(snapshot: &Snapshot<ConfigMap>) -> State {
    snapshot.iter().map(|object| (object.key().into(), content(object))).collect()
}

async fn sample(informer: Informer<ConfigMap>, into: Arc<Mutex<Vec<(u64, State)>>>, mut rng: Rng) {
    loop {
        sleep(Duration::from_millis(rng.u64(300..1_500))).await;
        let snapshot = informer.store().snapshot();
        if let Some(at) = snapshot.resource_version() {
            let at = at.to_string().parse().expect("a position");
            into.lock().unwrap().push((at, state(&snapshot)));
        }
    }
}

async fn latest(name: String, informer: Informer<ConfigMap>, replica: Replica) {
    let mut events = informer.subscribe();
    while let Some(event) = events.next().await {
        apply(&name, &mut replica.lock().unwrap(), &event);
    }
}

async fn every(name: String, informer: Informer<ConfigMap>, replica: Replica) {
    let mut events = informer.subscribe_all(RING);
    while let Some(event) = events.next().await {
        apply(&name, &mut replica.lock().unwrap(), &event);
    }
}

fn apply(name: &str, replica: &mut State, event: &Event<ConfigMap>) {
    match event {
        Event::Added(object) => {
            let known = replica.insert(object.key().into(), content(object.view()));
            assert!(known.is_none(), "{name}: {} was there when it was added", object.key());
        }
        Event::Updated { old, new } => {
            let known = replica.insert(new.key().into(), content(new.view()));
            assert_eq!(known, Some(content(old.view())), "{name}: {} was updated from another state", new.key());
        }
        Event::Deleted { last_known, .. } => {
            let known = replica.remove(last_known.key());
            assert_eq!(
                known,
                Some(content(last_known.view())),
                "{name}: {} was deleted from another state",
                last_known.key()
            );
        }
        Event::Reset | Event::Synced(_) => {}
        _ => panic!("{name}: an event of a new kind"),
    }
}
