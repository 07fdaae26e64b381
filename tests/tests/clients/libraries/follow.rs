//! Follows one client through writes and broken connections to its end.

use std::{pin::pin, time::Duration};

use fastrand::Rng;
use tests::{
    http::{Client as Http, key, resource_version, with_query},
    process::Server,
};
use tokio::time::timeout;

use super::{
    check::{Line, Rule, check, state},
    history::{History, SELECTOR, State},
};
use crate::{
    SERVER,
    faults::{Fault, Plan, Proxy},
    programs::Program,
    running::RunningProgram,
};

/// Writes to the server, and the bursts they are divided into. The faults are spread over the bursts.
const WRITES: usize = 2_000;
const BURSTS: usize = 20;
/// Time that a burst waits for its faults.
const BURST_WAIT: Duration = Duration::from_millis(500);
/// Timeout of a client on a busy machine, including its delays before relists.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client and its faults.
pub(crate) struct Client {
    /// Called with the server's URL and the selector as last arguments.
    pub(crate) program: Program,
    pub(crate) rule: Rule,
    pub(crate) faults: Vec<Fault>,
    pub(crate) seed: u64,
}

/// A client's requests as the proxy saw them.
pub(crate) struct Summary {
    /// Requests for the whole state.
    pub(crate) initial_reads: Vec<String>,
    /// Number of further pages.
    pub(crate) pages: usize,
}

/// Runs the client to its end and checks its output.
pub(crate) async fn follow(client: Client) -> Summary {
    let scene = Scene::set(&client.faults).await;
    let mut program = RunningProgram::start(&client.program, &scene.url(), SELECTOR);
    match scene.play(client.seed, program.ended()).await {
        (history, Some(true)) => scene.check(client.rule, &program.lines(), &history).await,
        (_, Some(false)) => panic!("the client failed; it complained:\n{}", program.complaints().await),
        (history, None) => {
            let (lines, due, done) = (program.lines(), history.told().last(), scene.proxy.done());
            let asked = scene.proxy.take();
            let story = format!("{asked:#?}, {done:?} and {:?}; due was {due:?}", lines.last());
            panic!("the client hangs after {story}; it complained:\n{}", program.complaints().await)
        }
    }
}

/// A server, and the proxy in front of it.
pub(crate) struct Scene {
    server: Server,
    proxy: Proxy,
    faults: Vec<Fault>,
}

impl Scene {
    /// Starts the server and the proxy.
    pub(crate) async fn set(faults: &[Fault]) -> Self {
        let server = Server::start(SERVER, &[]).await;
        let plan = Plan { collection: "configmaps".to_owned(), faults: faults.to_vec(), ..Plan::default() };
        let proxy = Proxy::start(server.address(), plan).await;
        Self { server, proxy, faults: faults.to_vec() }
    }

    /// URL for the client, which is the proxy's.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.proxy.address())
    }

    /// A client that bypasses the proxy.
    pub(crate) const fn client(&self) -> Http {
        self.server.client()
    }

    /// Writes until every fault has happened and `ended` resolves. Returns `None` for it after a timeout.
    pub(crate) async fn play<T>(&self, seed: u64, ended: impl Future<Output = T>) -> (History, Option<T>) {
        let mut history = History::default();
        let both = async {
            let (mut ended, mut writing) = (pin!(ended), pin!(self.write(seed, &mut history)));
            tokio::select! {
                // Either the client saw the last object before this test got the write's response, or it failed and no
                // more faults will happen.
                early = &mut ended => {
                    let _ = timeout(BURST_WAIT, writing).await;
                    early
                }
                () = &mut writing => ended.await,
            }
        };
        let ended = timeout(PATIENCE, both).await.ok();
        (history, ended)
    }

    async fn write(&self, seed: u64, history: &mut History) {
        let (client, mut random) = (self.client(), Rng::with_seed(seed));
        // Initial objects.
        history.write(client, &mut random, WRITES / BURSTS).await;
        self.proxy.synced(1).await;
        // A cut needs an open watch with events. A client that backs off before a relist has none, so more bursts may
        // be needed.
        let mut burst = 1;
        while burst < BURSTS || timeout(BURST_WAIT, self.proxy.broke(self.faults.len())).await.is_err() {
            history.write(client, &mut random, WRITES / BURSTS).await;
            let due = (self.faults.len() * burst / (BURSTS - 1)).min(self.faults.len());
            // Some clients notice a closed connection at once, others only later; this pause covers both.
            let _ = timeout(BURST_WAIT, self.proxy.broke(due)).await;
            burst += 1;
        }
        history.finish(client).await;
    }

    /// Checks the client's output against the history.
    pub(crate) async fn check(&self, rule: Rule, lines: &[Line], history: &History) -> Summary {
        let end = lines.iter().find_map(|line| line.cache.as_ref()).expect("it printed its copy");
        let served = self.served().await;
        assert!(history.told().len() > WRITES / 2 && served.len() > 1, "{} changes", history.told().len());
        assert_eq!(served, history.state_at(u64::MAX), "the server holds what was written");
        assert_eq!(state(end), served, "the client holds what the server holds");
        if let Err(error) = check(rule, lines, history, &self.proxy.positions()) {
            panic!("{error}\nafter {:#?}", self.proxy.take());
        }
        self.relists(rule)
    }

    /// Checks that every fault happened, that there were no more relists than 410s, and at least the necessary ones. A
    /// client with `Rule::EachObject` may relist after any fault.
    pub(crate) fn relists(&self, rule: Rule) -> Summary {
        let (requests, initial_reads) = (self.proxy.take(), self.proxy.initial_reads());
        let (mut planned, mut done) = (self.faults.clone(), self.proxy.done());
        planned.sort_unstable();
        done.sort_unstable();
        assert_eq!(done, planned, "each fault happens once: {requests:#?}");
        for reset in [false, true] {
            let has = |fault: &Fault| matches!(fault, Fault::Cut { reset: is, .. } if *is == reset);
            assert!(planned.iter().any(has), "of the cuts some are resets and some are not");
        }
        let relists = initial_reads.len() - 1;
        // One or several consecutive 410s cause at least one relist.
        let told = |at: usize| self.faults[at] == Fault::Expire;
        let least = (0..self.faults.len()).filter(|&at| told(at) && (at == 0 || !told(at - 1))).count();
        let most = if rule == Rule::EachObject { self.faults.len() } else { self.proxy.expired() };
        assert!((least..=most).contains(&relists), "{relists} relists after {most} 410s: {requests:#?}");
        assert!(least > 0, "some 410s are told");
        let pages = requests.iter().filter(|request| request.contains("continue=")).count();
        Summary { initial_reads, pages }
    }

    /// The matching objects of the server.
    pub(crate) async fn served(&self) -> State {
        let path = with_query("/api/v1/configmaps", &[("labelSelector", SELECTOR)]);
        let list = self.client().get(&path).await.with_code(200).json();
        let items = list["items"].as_array().expect("a list has items");
        items.iter().map(|item| (key(item), resource_version(item))).collect()
    }
}
