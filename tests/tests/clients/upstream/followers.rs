//! The clients that keep a copy through the cache-server: the programs in other languages, kube's `watcher`, and the SDK.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use informer::{Cluster, Event, kube5};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, runtime::watcher};
use tests::genuine::token_of;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::scene::{READER, Scene};
use crate::{
    faults::{Fault, Plan, Proxy},
    libraries::{
        check::Line,
        faults,
        history::{SELECTOR, SENTINEL},
        kube_rs::{Soon, keep_copy, maps},
    },
    programs::Program,
    running::{Printed, RunningProgram},
};

/// Time of a follower from its start to its end.
const LIFETIME: Duration = Duration::from_secs(400);
/// Timeout until a follower prints its first line: five programs of Go, three of Java, two of Python and one of
/// JavaScript start at once.
const START_WAIT: Duration = Duration::from_secs(120);
/// Arguments of programs that a brief run spares, as their start takes most of its time.
const SPARED: [&str; 4] = ["dynamic", "metadata", "7", "websocket"];
/// Timeout until a follower has ended, once the sentinel was written.
const END_WAIT: Duration = Duration::from_secs(90);

/// One client, behind a proxy of its own unless it speaks TLS by itself.
pub(super) struct Follower {
    pub(super) name: String,
    pub(super) proxy: Option<Proxy>,
    printed: Printed,
    ending: JoinHandle<Result<(), String>>,
}

/// A program, its name, and the kinds of faults for it besides cuts.
struct FollowingProgram {
    name: String,
    program: Program,
    others: &'static [Fault],
    speaks_tls: bool,
}

/// The programs that are here; one of each library if `is_brief`.
fn programs(scene: &Scene, is_brief: bool) -> Vec<FollowingProgram> {
    // As in `libraries`: client-go's reflector treats refused connections as an error, and relists.
    let (gentle, every): (&[Fault], &[Fault]) = (&[Fault::End], &[Fault::End, Fault::Refuse]);
    let mut all = Vec::new();
    let mut add = |name: &str, arguments: &[&str], streams: Option<&str>, others| {
        if is_brief && arguments.iter().any(|argument| SPARED.contains(argument)) {
            return;
        }
        let Some(program) = Program::ready(name) else { return };
        let program = arguments.iter().fold(program, |program, argument| program.argument(argument));
        let program = match streams {
            Some(streams) => program.environment("KUBE_FEATURE_WatchListClient", streams),
            None => program,
        };
        let streams = streams.map_or("", |streams| if streams == "true" { " streaming" } else { " listing" });
        let name = format!("{name} {}{streams}", arguments.join(" "));
        all.push(FollowingProgram { name, program, others, speaks_tls: false });
    };
    for (mode, streams) in [
        ("typed", "false"),
        ("typed", "true"),
        ("protobuf", "true"),
        ("dynamic", "true"),
        ("metadata", "false"),
        ("metadata", "true"),
    ] {
        add("client-go", &[mode], Some(streams), gentle);
    }
    add("client-go", &["retry-watcher"], None, every);
    add("python", &["0"], None, every);
    add("python", &["7"], None, every);
    add("javascript", &[], None, every);
    add("java", &["Fabric8", "websocket"], None, every);
    add("java", &["Fabric8", "http"], None, every);
    add("java", &["ClientJava"], None, every);
    if let Some(program) = Program::ready("client-go") {
        let program = program
            .argument("typed")
            .environment("KUBE_FEATURE_WatchListClient", "true")
            .environment("TOKEN", &token_of(READER))
            .environment("CA_FILE", scene.ca_file().to_str().unwrap());
        let name = "client-go typed streaming over TLS".to_owned();
        all.push(FollowingProgram { name, program, others: &[], speaks_tls: true });
    }
    all
}

/// Starts all clients; one of each library if `is_brief`.
pub(super) async fn start_all(scene: &Scene, is_brief: bool) -> Vec<Follower> {
    let mut followers = Vec::new();
    for FollowingProgram { name, program, others, speaks_tls } in programs(scene, is_brief) {
        if speaks_tls {
            let url = format!("https://{}", scene.below.address());
            followers.push(Follower::of_program(name, program, url, None));
        } else {
            let proxy = proxy(scene, followers.len() as u64, others).await;
            let url = format!("http://{}", proxy.address());
            followers.push(Follower::of_program(name, program, url, Some(proxy)));
        }
    }
    let pages = watcher::Config::default().page_size(7);
    let streams = watcher::Config::default().streaming_lists();
    for (name, config) in [("kube's watcher with pages", pages), ("kube's watcher streaming", streams)] {
        let proxy = proxy(scene, followers.len() as u64, &[Fault::End, Fault::Refuse]).await;
        let maps = maps(&format!("http://{}", proxy.address()));
        let printed = Printed::default();
        let lines = Arc::clone(&printed);
        let ending = tokio::spawn(async move {
            keep_copy(maps, config.labels(SELECTOR), &lines).await;
            Ok(())
        });
        followers.push(Follower { name: name.to_owned(), proxy: Some(proxy), printed, ending });
    }
    let proxy = proxy(scene, followers.len() as u64, &[Fault::End, Fault::Refuse]).await;
    let printed = Printed::default();
    let ending = tokio::spawn(keep_sdk_copy(format!("http://{}", proxy.address()), Arc::clone(&printed)));
    followers.push(Follower { name: "the SDK's informer".to_owned(), proxy: Some(proxy), printed, ending });
    followers
}

/// A proxy that breaks connections, and adds TLS and the token for the cache-server.
async fn proxy(scene: &Scene, seed: u64, others: &[Fault]) -> Proxy {
    let (faults, credentials) = (faults(seed, others, &[]), Some(scene.credentials()));
    let plan = Plan { collection: "configmaps".to_owned(), faults, credentials, ..Plan::default() };
    Proxy::start(scene.below.address(), plan).await
}

impl Follower {
    fn of_program(name: String, program: Program, url: String, proxy: Option<Proxy>) -> Self {
        let mut running = RunningProgram::start(&program, &url, SELECTOR);
        let printed = running.printed();
        let ending = tokio::spawn(async move {
            match timeout(LIFETIME, running.ended()).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("failed; it complained:\n{}", running.complaints().await)),
                Err(_) => Err(format!("hangs; it complained:\n{}", running.complaints().await)),
            }
        });
        Self { name, proxy, printed, ending }
    }

    /// Waits until it has printed a line: of its initial state.
    pub(super) async fn started(&self) {
        let begun = Instant::now();
        while self.printed.lock().unwrap().is_empty() && self.is_running() {
            assert!(begun.elapsed() < START_WAIT, "{}: no line yet", self.name);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// True until it has ended or failed.
    pub(super) fn is_running(&self) -> bool {
        !self.ending.is_finished()
    }

    /// True once it has printed an event of this object, or a state with it.
    pub(super) fn has(&self, key: &str) -> bool {
        let printed = self.printed.lock().unwrap();
        printed.iter().rev().any(|line| line.key == key || line.items.contains_key(key))
    }

    /// Checks that it read the whole state at most `most` times. client-java does after every broken
    /// connection.
    pub(super) fn check_states(&self, most: usize) -> Result<(), String> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        let (states, faults) = (proxy.positions().len(), proxy.done().len());
        eprintln!("{}: read {states} states, {faults} faults", self.name);
        let is_excused = states <= most || self.name.contains("ClientJava");
        if is_excused { Ok(()) } else { Err(format!("read {states} states: {:#?}", proxy.initial_reads())) }
    }

    /// Waits until it has ended, which it does once its copy contains the sentinel. Returns its lines.
    pub(super) async fn ended(&mut self) -> Result<Vec<Line>, String> {
        let ended = timeout(END_WAIT, &mut self.ending).await;
        let lines = self.printed.lock().unwrap().clone();
        match ended {
            Ok(ended) => ended.map_err(|error| error.to_string())?.map(|()| lines),
            Err(_) => Err(format!("hangs after {:?}", lines.last())),
        }
    }
}

/// Keeps a copy with the SDK until it contains the sentinel.
async fn keep_sdk_copy(url: String, printed: Printed) -> Result<(), String> {
    let say = |event: &str, key: &str, rv: &str| {
        let (event, key, rv) = (event.to_owned(), key.to_owned(), rv.to_owned());
        printed.lock().unwrap().push(Line { event, key, rv, ..Line::default() });
    };
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let informer = Cluster::new(client).informer::<ConfigMap>().labels(SELECTOR).delays(kube5::delays(Soon)).start();
    let informer = informer.map_err(|error| error.to_string())?;
    let mut events = informer.subscribe();
    while let Some(event) = events.next().await {
        match &event {
            Event::Added(object) => say("ADDED", object.key(), object.resource_version()),
            Event::Updated { new, .. } => say("MODIFIED", new.key(), new.resource_version()),
            Event::Deleted { last_known, .. } => say("DELETED", last_known.key(), last_known.resource_version()),
            Event::Reset | Event::Synced(_) | _ => {}
        }
        if matches!(event, Event::Added(object) if object.name() == SENTINEL) {
            let objects = informer.store().snapshot();
            let copy: BTreeMap<_, _> =
                objects.iter().map(|object| (object.key().to_owned(), object.resource_version().to_owned())).collect();
            printed.lock().unwrap().push(Line { cache: Some(copy), ..Line::default() });
            return Ok(());
        }
    }
    Err("the informer stopped".to_owned())
}
