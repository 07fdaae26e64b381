//! One client, followed through writes and broken connections to the end.

use std::{
    pin::pin,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use tests::{
    faults::{Fault, Plan, Proxy},
    http::{Client as Http, key, resource_version, with_query},
    process::Server,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    task::JoinHandle,
    time::timeout,
};

use super::{
    SERVER,
    check::{Line, Rule, check, state},
    history::{History, SELECTOR, State},
    programs::Program,
};

/// Writes to the server, in so many bursts: the faults are spread over them.
const WRITES: usize = 2_000;
const BURSTS: usize = 20;
/// How long a burst waits for the faults that are its due.
const BURST_WAIT: Duration = Duration::from_millis(500);
/// Longer than a client takes for anything here on a busy machine, its delays before relists included.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client and what happens to it.
pub(crate) struct Client {
    /// It is given the server's URL and the selector as last arguments.
    pub(crate) program: Program,
    pub(crate) rule: Rule,
    pub(crate) faults: Vec<Fault>,
    pub(crate) seed: u64,
}

/// What the server's side saw of it.
pub(crate) struct Summary {
    /// Requests for the whole state.
    pub(crate) initial_reads: Vec<String>,
    /// Further pages.
    pub(crate) pages: usize,
}

/// What a client prints, as it comes.
pub(crate) type Printed = Arc<Mutex<Vec<Line>>>;

/// Runs the client to its end and checks everything.
pub(crate) async fn follow(client: Client) -> Summary {
    let scene = Scene::set(&client.faults).await;
    let mut command = client.program.process();
    command.args([scene.url(), SELECTOR.to_owned()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it was made ready");
    let printed = Printed::default();
    let lines = read_lines(child.stdout.take().expect("is piped"), Arc::clone(&printed));
    let complaints = read_all(child.stderr.take().expect("is piped"));
    let ended = async {
        let status = child.wait().await.unwrap();
        lines.await.unwrap();
        status.success()
    };
    let tell = async || format!("it complained:\n{}", complaints.await.unwrap_or_default());
    match scene.play(client.seed, ended).await {
        (history, Some(true)) => {
            let lines = printed.lock().unwrap().clone();
            scene.check(client.rule, &lines, &history).await
        }
        (_, Some(false)) => panic!("the client failed; {}", tell().await),
        (_, None) => {
            child.kill().await.unwrap();
            panic!("the client hangs after {:?}; {}", scene.proxy.take(), tell().await)
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
    /// Starts both.
    pub(crate) async fn set(faults: &[Fault]) -> Self {
        let server = Server::start(SERVER, &[]).await;
        let plan = Plan { collection: "configmaps".to_owned(), faults: faults.to_vec(), ..Plan::default() };
        let proxy = Proxy::start(server.address(), plan).await;
        Self { server, proxy, faults: faults.to_vec() }
    }

    /// Where the client connects.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.proxy.address())
    }

    /// A client of the server itself.
    pub(crate) const fn client(&self) -> Http {
        self.server.client()
    }

    /// Writes until everything happened and `ended` comes, which is `None` when it does not.
    pub(crate) async fn play<T>(&self, seed: u64, ended: impl Future<Output = T>) -> (History, Option<T>) {
        let mut history = History::default();
        let both = async {
            let (mut ended, mut writing) = (pin!(ended), pin!(self.write(seed, &mut history)));
            tokio::select! {
                // It saw the last object before its write was acknowledged here; or it failed, and no fault will come.
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
        // Something to begin with.
        history.write(client, &mut random, WRITES / BURSTS).await;
        self.proxy.synced(1).await;
        // A cut needs something to cut; a client that waits before it reads everything again leaves nothing. So it may
        // take more bursts.
        let mut burst = 1;
        while burst < BURSTS || timeout(BURST_WAIT, self.proxy.broke(self.faults.len())).await.is_err() {
            history.write(client, &mut random, WRITES / BURSTS).await;
            let due = (self.faults.len() * burst / (BURSTS - 1)).min(self.faults.len());
            // Some find out at once that a connection is gone, others are away for a while: both should happen.
            let _ = timeout(BURST_WAIT, self.proxy.broke(due)).await;
            burst += 1;
        }
        history.finish(client).await;
    }

    /// Holds what the client printed against what happened.
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

    /// Every fault happened, and made no more relists than there were 410s, and no fewer than it must. Who reads object
    /// by object may relist after any of them.
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
        // Whoever is told 410 once, or several times in a row, reads everything again.
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

fn read_lines(stream: impl AsyncRead + Unpin + Send + 'static, printed: Printed) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
            printed.lock().unwrap().push(line);
        }
    })
}

fn read_all(mut stream: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<String> {
    tokio::spawn(async move {
        let mut text = Vec::new();
        // A stream that breaks has said what it had to say.
        let _ = stream.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    })
}
