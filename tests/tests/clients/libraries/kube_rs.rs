//! kube's own runtime: `watcher` with both initial list strategies, and a `Controller`.
//!
//! They run in the test's process and record the lines that the programs in other languages print.

use std::{collections::BTreeMap, future::ready, sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{Controller, WatchStreamExt as _, controller::Action, utils::Backoff, watcher},
};
use tests::objects::configmap;
use tokio::{sync::watch, time::timeout};

use super::{
    check::{Line, Rule},
    every_fault,
    follow::{Scene, Summary},
    history::{SELECTOR, SENTINEL, State},
};
use crate::running::Printed;

/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn maps(url: &str) -> Api<ConfigMap> {
    Api::all(Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap())
}

fn described(object: &ConfigMap) -> (String, String) {
    let key = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    (key, object.resource_version().unwrap_or_default())
}

/// A backoff of 20 ms: kube's starts at 0.8 s and grows to 30 s, which is too slow for tests.
pub(crate) struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn kubes_watcher_that_lists_in_pages() {
    let summary = follow_watcher(watcher::Config::default().page_size(7), 11).await;
    assert!(summary.pages > 2, "{} further pages", summary.pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubes_watcher_that_streams_its_state() {
    let reads = follow_watcher(watcher::Config::default().streaming_lists(), 12).await.initial_reads;
    assert!(reads.iter().all(|line| line.contains("sendInitialEvents=true")), "{reads:?}");
}

async fn follow_watcher(config: watcher::Config, seed: u64) -> Summary {
    let scene = Scene::set(&every_fault(seed, 3)).await;
    let printed = Printed::default();
    let (history, ended) = scene.play(seed, keep_copy(maps(&scene.url()), config.labels(SELECTOR), &printed)).await;
    let lines = printed.lock().unwrap().clone();
    assert!(ended.is_some(), "the watcher hangs after {:#?}", lines.last());
    scene.check(Rule::States, &lines, &history).await
}

/// The program: keeps a copy as kube's documentation describes, until it contains the sentinel.
pub(crate) async fn keep_copy(api: Api<ConfigMap>, config: watcher::Config, printed: &Printed) {
    let say = |line| printed.lock().unwrap().push(line);
    let (mut held, mut stage) = (BTreeMap::new(), BTreeMap::new());
    let mut events = watcher(api, config).backoff(Soon).boxed();
    while !held.contains_key(&format!("team-0/{SENTINEL}")) {
        // The watcher also yields errors, and continues after them.
        let Some(Ok(event)) = events.next().await else { continue };
        match event {
            watcher::Event::Init => stage.clear(),
            watcher::Event::InitApply(object) => {
                stage.extend([described(&object)]);
            }
            watcher::Event::InitDone => {
                held.clone_from(&stage);
                say(Line { event: "RELIST".to_owned(), items: held.clone(), ..Line::default() });
            }
            watcher::Event::Apply(object) => {
                let (key, rv) = described(&object);
                held.insert(key.clone(), rv.clone());
                say(Line { event: "APPLIED".to_owned(), key, rv, ..Line::default() });
            }
            watcher::Event::Delete(object) => {
                let (key, rv) = described(&object);
                held.remove(&key);
                say(Line { event: "DELETED".to_owned(), key, rv, ..Line::default() });
            }
        }
    }
    say(Line { cache: Some(held), ..Line::default() });
}

/// Reconciled objects with their versions, in order.
type Reconciled = watch::Sender<Vec<(String, u64)>>;

/// A controller merges changes of one object that arrive while it is busy, and does not reconcile deleted objects: both
/// by design (`kube_runtime::scheduler`, "deduplication"). So this test checks that no object goes back, that every
/// reconciled version existed, that every object is reconciled at its newest version, and that an isolated change is
/// reconciled.
#[tokio::test(flavor = "multi_thread")]
async fn kubes_controller() {
    let scene = Scene::set(&every_fault(13, 3)).await;
    let reconciled = Arc::new(Reconciled::default());
    let config = watcher::Config::default().labels(SELECTOR);
    let controller = Controller::new(maps(&scene.url()), config).trigger_backoff(Soon);
    let store = controller.store();
    let running = controller.run(
        |object: Arc<ConfigMap>, reconciled: Arc<Reconciled>| {
            let (key, version) = described(&object);
            reconciled.send_modify(|all| all.push((key, version.parse().unwrap())));
            ready(Ok::<_, std::io::Error>(Action::await_change()))
        },
        |_, _, _| Action::await_change(),
        Arc::clone(&reconciled),
    );
    tokio::spawn(running.for_each(|_| ready(())));
    let last_of =
        |all: &[(String, u64)], key: &str| all.iter().rev().find(|(of, _)| of == key).map(|(_, version)| *version);
    let sentinel = format!("team-0/{SENTINEL}");
    let mut seen = reconciled.subscribe();
    let came = async { seen.wait_for(|all| last_of(all, &sentinel).is_some()).await.is_ok() };
    let (history, ended) = scene.play(13, came).await;
    assert_eq!(ended, Some(true), "the controller hangs");

    let served = scene.served().await;
    assert_eq!(served, history.state_at(u64::MAX));
    let mut seen = reconciled.subscribe();
    let newest = |all: &Vec<(String, u64)>| served.iter().all(|(key, version)| last_of(all, key) == Some(*version));
    let settled = timeout(PATIENCE, async { seen.wait_for(newest).await.is_ok() }).await;
    assert!(settled == Ok(true), "not everything was reconciled at its newest version");
    let held: State =
        store.state().iter().map(|object| described(object)).map(|(key, rv)| (key, rv.parse().unwrap())).collect();
    assert_eq!(held, served, "its store is the server's state");
    let all = reconciled.borrow().clone();
    let mut newest = State::new();
    for (key, version) in all {
        let was = history.told().iter().any(|told| told.key == key && told.version == version);
        assert!(was, "{key} never was at {version}");
        let before = newest.insert(key.clone(), version);
        assert!(before <= Some(version), "{key} went from {before:?} back to {version}");
    }
    scene.relists(Rule::States);

    for round in 0..10 {
        let object = configmap(SENTINEL).namespace("team-0").label("followed", "yes").data(&format!("round {round}"));
        let version = scene.client().update(&object).await;
        let mut seen = reconciled.subscribe();
        let is_there = |all: &Vec<(String, u64)>| last_of(all, &sentinel) == Some(version);
        let came = timeout(PATIENCE, async { seen.wait_for(is_there).await.is_ok() }).await;
        assert!(came == Ok(true), "round {round} was not reconciled");
    }
}
