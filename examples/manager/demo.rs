//! The demo: a server in this process, and replicas as processes of their own, which end at SIGTERM.
//!
//! Goal: a kubelet, Prometheus and users see what they rely on. Method: requests to the probes, writes as users do, and
//! waits for their effects. Ends by itself, with an error at the first effect that does not come.

use std::{
    env, io,
    net::SocketAddr,
    process::{Stdio, exit},
    thread,
    time::Duration,
};

use cache_server::{Server, config};
use futures::future::try_join_all;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdin, Command},
    time::{sleep, timeout},
    try_join,
};

use crate::{
    Arguments, Failure,
    control::{CONFIG_MAPS, COUNTED, TEMPLATE},
    manage,
    probes::CONNECTIONS_MAX,
};

/// Timeout that is ample even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const ERRORS: &str = "controller_runtime_reconcile_total{controller=\"render\",result=\"error\"} ";

/// Metrics of which a dashboard or an alert of controllers needs the names.
const METRICS: [&str; 7] = [
    ERRORS,
    "controller_runtime_reconcile_total{controller=\"render\",result=\"success\"}",
    "controller_runtime_reconcile_total{controller=\"count\",result=\"success\"}",
    "controller_runtime_reconcile_time_seconds_bucket{le=\"1.0\",controller=\"count\"}",
    "workqueue_depth{name=\"render\",",
    "informer_ready{resource=\"namespaces\"} 1",
    // One list for both controllers.
    "informer_requests_total{resource=\"configmaps\",kind=\"initial\"} 1\n",
];

/// Runs the demo, or one of its replicas if a server is given.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.server.is_some() {
        // Standard input ends with the demo, also if that is killed.
        thread::spawn(|| {
            drop(io::copy(&mut io::stdin(), &mut io::sink()));
            exit(1)
        });
        return manage(arguments).await;
    }
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(config::Config { listen, ..config::Config::default() }).await?;
    let url = format!("http://{}", server.local_addr());
    tokio::spawn(server.serve(std::future::pending()));
    try_join!(replicas(&url), silent_server()).map(drop)
}

/// A server that never answers: a replica lives, is not ready, and ends after the deadline of its first sync.
async fn silent_server() -> Result<(), Failure> {
    let silent = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", silent.local_addr()?);
    let replica = Replica::start(&url, "lonely", "3600").await?;
    let silent_sockets = (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(replica.probes));
    let _silent_sockets = try_join_all(silent_sockets).await?;
    let (alive, ready) = (replica.get("/healthz").await?, replica.get("/readyz").await?);
    let is_right =
        alive.contains("200 OK") && ready.contains("503 Service Unavailable") && ready.contains("configmaps");
    check(is_right, "while the server is silent, a replica lives and is not ready", &(alive + &ready))?;
    let mut replica = Replica::start(&url, "late", "1").await?;
    let end = timeout(PATIENCE, replica.process.wait()).await??;
    check(!end.success(), "the first sync has a deadline", "it ended as if all were well")
}

/// Two replicas, the second of which takes over.
async fn replicas(url: &str) -> Result<(), Failure> {
    let client = Client::try_from(kube::Config::new(url.parse()?))?;
    let namespaces = Api::<Namespace>::all(client.clone());
    for (name, labels) in [("team", json!({COUNTED: ""})), ("other", json!({}))] {
        let namespace = from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    let leases = Api::<Lease>::namespaced(client.clone(), "team");
    let holder = async || {
        let spec = leases.get("manager").await?.spec.unwrap_or_default();
        Ok::<_, Failure>((spec.holder_identity, spec.lease_transitions))
    };
    let maps = Api::<ConfigMap>::namespaced(client, "team");
    let template = json!({TEMPLATE: ""});
    for (name, labels) in [("greeting", &template), ("taken", &template), ("taken-rendered", &json!({}))] {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"text": "hello $NAMESPACE"}});
        maps.create(&PostParams::default(), &from_value(map)?).await?;
    }
    let has_output = async |text: &str| {
        let output = maps.get_opt("greeting-rendered").await?.and_then(|output| output.data);
        Ok(output.is_some_and(|data| data.get("text").is_some_and(|found| found == text)))
    };
    let is_counted = async |count: &str| {
        let annotations = namespaces.get("team").await?.metadata.annotations.unwrap_or_default();
        Ok(annotations.get(CONFIG_MAPS).is_some_and(|found| found == count))
    };

    let first = Replica::start(url, "first", "60").await?;
    until("it is ready", async || Ok(first.get("/readyz").await?.contains("200 OK"))).await?;
    until("it leads", async || first.leads("1").await).await?;
    until("the template is rendered", async || has_output("hello team").await).await?;
    until("the ConfigMaps are counted", async || is_counted("4").await).await?;
    let has_failed = async || Ok(!first.get("/metrics").await?.contains(&format!("{ERRORS}0\n")));
    until("an output that exists is an error", has_failed).await?;
    let scraped = first.get("/metrics").await?;
    for metric in METRICS {
        check(scraped.contains(metric), &format!("a scrape has {}", metric.trim_end()), &scraped)?;
    }
    let informers = first.get("/debug/informers").await?;
    let shows =
        ["configmaps", "namespaces"].map(|resource| informers.contains(&format!("\"resource\": \"{resource}\"")));
    let is_right =
        shows == [true; 2] && informers.contains("\"phase\": \"watching\"") && !informers.contains("greeting");
    check(is_right, "a page has the status of both copies, without objects", &informers)?;

    let second = Replica::start(url, "second", "60").await?;
    until("the follower is ready", async || Ok(second.get("/readyz").await?.contains("200 OK"))).await?;
    check(second.leads("0").await?, "one replica leads", "both lead")?;
    check(holder().await? == (Some("first".to_owned()), Some(0)), "the Lease names it", "it does not")?;
    first.terminate("the leader ends in order").await?;
    check(holder().await?.0.as_deref() != Some("first"), "it has released the Lease", "it holds it")?;
    until("the follower leads", async || second.leads("1").await).await?;
    check(holder().await? == (Some("second".to_owned()), Some(1)), "the Lease names it, once", "it does not")?;
    maps.patch("greeting", &PatchParams::default(), &Patch::Merge(json!({"data": {"text": "bye $NAMESPACE"}}))).await?;
    until("the output follows the template", async || has_output("bye team").await).await?;
    maps.delete("greeting-rendered", &DeleteParams::default()).await?;
    until("a deleted output comes back", async || has_output("bye team").await).await?;
    second.terminate("the last replica ends in order").await?;
    let taken = maps.get("taken-rendered").await?;
    let is_untouched = taken.metadata.owner_references.is_none() && taken.data == maps.get("taken").await?.data;
    check(is_untouched, "a user's ConfigMap stays his", &format!("{taken:?}"))?;
    let annotations = namespaces.get("other").await?.metadata.annotations;
    check(annotations.is_none(), "a namespace without the label is not written", &format!("{annotations:?}"))
}

/// A process of this program.
struct Replica {
    process: Child,
    probes: SocketAddr,
    /// Its end ends the process.
    _stdin: Option<ChildStdin>,
}

impl Replica {
    async fn start(server: &str, identity: &str, sync_seconds: &str) -> Result<Self, Failure> {
        let settings = ["--demo", "--server", server, "--identity", identity, "--sync-seconds", sync_seconds];
        let mut command = Command::new(env::current_exe()?);
        command.args(settings).args(["--listen", "127.0.0.1:0", "--namespace", "team"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = process.stdout.take().ok_or("its output is piped")?;
        let line = timeout(PATIENCE, BufReader::new(stdout).lines().next_line()).await??.unwrap_or_default();
        let probes = line.rsplit(' ').next().unwrap_or_default().parse()?;
        let stdin = process.stdin.take();
        Ok(Self { process, probes, _stdin: stdin })
    }

    /// Status line, headers and body of a response.
    async fn get(&self, path: &str) -> Result<String, Failure> {
        let mut socket = TcpStream::connect(self.probes).await?;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.probes).as_bytes()).await?;
        let mut response = String::new();
        timeout(PATIENCE, socket.read_to_string(&mut response)).await??;
        Ok(response)
    }

    async fn leads(&self, value: &str) -> Result<bool, Failure> {
        let line = format!("\nleader_election_master_status{{name=\"manager\"}} {value}\n");
        Ok(self.get("/metrics").await?.contains(&line))
    }

    /// Ends the process as a kubelet does.
    async fn terminate(mut self, claim: &str) -> Result<(), Failure> {
        let id = self.process.id().ok_or("it runs")?.to_string();
        Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().await?;
        let end = timeout(PATIENCE, self.process.wait()).await??;
        check(end.success(), claim, &end.to_string())
    }
}

/// Waits until `holds` returns true.
async fn until(claim: &str, holds: impl AsyncFn() -> Result<bool, Failure>) -> Result<(), Failure> {
    let waiting = async {
        while !holds().await? {
            sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, Failure>(())
    };
    timeout(PATIENCE, waiting).await.map_err(|_| format!("waited in vain: {claim}"))??;
    check(true, claim, "")
}

/// Prints a claim, or fails with it and with what was seen.
fn check(holds: bool, claim: &str, seen: &str) -> Result<(), Failure> {
    if !holds {
        return Err(format!("not so: {claim}: {seen}").into());
    }
    println!("{claim}");
    Ok(())
}
