//! Programs that pause after errors of their stream: on `informer::watcher`, beside the same program on kube's own.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "what fails here fails the test, which prints times")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt, future::join};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, runtime::watcher};
use tests::{objects::configmap, process::Server, relay::Relay};
use tokio::time::{Instant, sleep};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause after the second error in a row, and after each that follows: kubert's rule and its default.
const PAUSE: Duration = Duration::from_secs(5);

/// Both programs share a machine and a server: the time by which one may be behind the other. Ours spreads requests after
/// many breaks by up to 3.8 s each; `outages` of the SDK's own tests compares times without a machine's load.
const BEHIND_MAX: Duration = Duration::from_secs(15);

/// One program behind a relay of its own.
struct Program {
    relay: Relay,
    items: Arc<Mutex<Vec<String>>>,
}

impl Program {
    async fn start<S>(server: &Server, stream: impl FnOnce(Api<ConfigMap>) -> S) -> Self
    where
        S: Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Send + 'static,
    {
        let relay = Relay::start(server.address()).await;
        let url = format!("http://{}", relay.address());
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let items: Arc<Mutex<Vec<String>>> = Arc::default();
        tokio::spawn(read(stream(Api::default_namespaced(client)), Arc::clone(&items)));
        let program = Self { relay, items };
        program.reach("InitDone").await;
        program
    }

    /// Waits for an item, and returns the time until then.
    async fn reach(&self, item: &str) -> Duration {
        let started = Instant::now();
        while !self.items.lock().unwrap().iter().any(|seen| seen == item) {
            assert!(started.elapsed() < PATIENCE, "{item} is missing: {:?}", self.items.lock().unwrap());
            sleep(Duration::from_millis(5)).await;
        }
        started.elapsed()
    }

    /// Removes and returns the items so far: the events, and the number of errors.
    fn take(&self) -> (Vec<String>, usize) {
        let items = std::mem::take(&mut *self.items.lock().unwrap());
        let (errors, events): (Vec<String>, _) = items.into_iter().partition(|item| item.starts_with("error"));
        (events, errors.len())
    }
}

async fn read(events: impl Stream<Item = watcher::Result<watcher::Event<ConfigMap>>>, items: Arc<Mutex<Vec<String>>>) {
    let mut events = std::pin::pin!(events);
    let mut has_failed = false;
    while let Some(item) = events.next().await {
        let pause = if item.is_err() && has_failed { PAUSE } else { Duration::ZERO };
        has_failed = item.is_err();
        items.lock().unwrap().push(item.map_or_else(|error| format!("error: {error:?}"), |event| event.to_string()));
        sleep(pause).await;
    }
}

/// The server, and both programs.
struct Scene {
    server: Server,
    ours: Program,
    kubes: Program,
    writes: usize,
}

/// Outcome of one disturbance: the programs' events, their errors, and the time until they had the last write.
struct Outcome {
    ours: (Vec<String>, usize, Duration),
    kubes: (Vec<String>, usize, Duration),
}

impl Scene {
    fn each(&self, disturb: impl Fn(&Relay)) {
        disturb(&self.ours.relay);
        disturb(&self.kubes.relay);
    }

    /// Creates an object. Returns its event.
    async fn write(&mut self) -> String {
        self.writes += 1;
        let name = format!("map-{}", self.writes);
        self.server.client().create(&configmap(&name)).await;
        format!("Apply({name})")
    }

    /// Writes once more, and waits until both programs have seen it.
    async fn outcome(&mut self, disturbance: &str) -> Outcome {
        let last = self.write().await;
        let (ours, kubes) = join(self.ours.reach(&last), self.kubes.reach(&last)).await;
        let of = |program: &Program, time| {
            let (events, errors) = program.take();
            (events, errors, time)
        };
        let outcome = Outcome { ours: of(&self.ours, ours), kubes: of(&self.kubes, kubes) };
        let (errors, kubes_errors) = (outcome.ours.1, outcome.kubes.1);
        println!("{disturbance}: {errors} errors, equal after {ours:.1?}; kube: {kubes_errors} errors, {kubes:.1?}");
        assert!(ours < kubes + BEHIND_MAX, "{disturbance}: behind kube's");
        outcome
    }

    /// Resets all connections five times, a second apart, with a write after each.
    async fn reset_often(&mut self, when: &str) -> Outcome {
        for _ in 0..5 {
            self.each(Relay::cut);
            self.write().await;
            sleep(Duration::from_secs(1)).await;
        }
        self.outcome(when).await
    }
}

/// Goal: a program that pauses after errors waits no longer on our stream than on kube's: a watch that breaks and
/// resumes is no error. Method: both side by side, through resets, a network without bytes and then without connections,
/// resets soon after, and a restart of the server; both see the same events.
#[tokio::test]
async fn a_program_that_pauses_after_errors_is_never_behind_one_on_kubes_stream() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap()];
    let server = Server::start(BINARY, &arguments).await;
    // Without an object, no small read could prove that a server still has the history.
    server.client().create(&configmap("first")).await;
    let config = watcher::Config::default;
    let ours = Program::start(&server, |api| informer::watcher(api, config())).await;
    let kubes = Program::start(&server, |api| watcher(api, config())).await;
    let mut scene = Scene { server, ours, kubes, writes: 0 };
    scene.outcome("start").await;

    let resets = scene.reset_often("resets").await;
    assert_eq!(resets.ours.1, 0, "errors");
    assert_eq!(resets.ours.0, resets.kubes.0);

    scene.each(Relay::silence);
    scene.write().await;
    sleep(Duration::from_secs(2)).await;
    scene.each(Relay::part);
    sleep(Duration::from_secs(4)).await;
    scene.each(Relay::rejoin);
    let partitioned = scene.outcome("partitioned network").await;
    assert_eq!(partitioned.ours.0, partitioned.kubes.0);
    let resets = scene.reset_often("resets soon after it").await;
    assert_eq!(resets.ours.1, 0, "errors");
    assert_eq!(resets.ours.0, resets.kubes.0);

    let Scene { server, ours, kubes, writes } = scene;
    server.terminate();
    server.ended().await;
    let server = Server::start(BINARY, &arguments).await;
    let mut scene = Scene { server, ours, kubes, writes };
    scene.each(|relay| relay.lead_to(scene.server.address()));
    let restarted = scene.outcome("restart").await;
    assert_eq!(restarted.ours.0, restarted.kubes.0);
}
