//! One store of the pods for a whole program, with indexes, and with fast, slow and late subscribers.
//!
//! `cargo run --example shared-informer` starts an API server with pods, changes some of them, and shows the events
//! that four subscribers of one informer received. It fails if one of them ends with a state other than the server's.

#![expect(clippy::print_stdout, reason = "the table is the product")]

mod churn;
mod subscriber;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use cache_server::{Server, config, populate};
use clap::Parser;
use informer::{Cluster, Informer, ObjectView, Snapshot, index};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Barrier, watch};

use self::{
    churn::{Churn, Writes},
    subscriber::{Pace, Signals, Tally, follow},
};

/// Any error, printed as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A subscriber's state: key to resourceVersion.
type State = BTreeMap<String, String>;

/// Timeout that is ample even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Capacity of the ring for subscribers that want each change. A subscriber that lags further gets a reset and the
/// difference.
const RING: usize = 256;

/// One informer, two indexes, four subscribers.
#[derive(Debug, Parser)]
#[command(name = "shared-informer", version, about)]
struct Arguments {
    /// Pods of the server at its start.
    #[arg(long, default_value_t = 300)]
    pods: u32,
    /// Number of changes. With no more than the ring holds, the late subscriber gets each of them.
    #[arg(long, default_value_t = 600)]
    writes: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shared-informer: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let client = serve(arguments.pods).await?;
    let cluster = Cluster::new(client.clone());

    // Indexes are declared before the start; each handle is valid only for snapshots of this informer.
    let mut declared = cluster.informer::<Pod>();
    let by_node = declared.index(index::node);
    let by_app = declared.index(index::label("app"));
    let pods = declared.start()?;
    pods.ready(PATIENCE).await?;
    println!("{}", pods.explain());

    let snapshot = pods.store().snapshot();
    let mut on_node = snapshot.by(&by_node, "node-1");
    let app = on_node.next().and_then(|pod| pod.label("app").map(|app| app.into_owned())).unwrap_or_default();
    println!("{} pods, {} of them on node-1", snapshot.len(), 1 + on_node.count());
    println!("the first of those has the label app={app}, and {} pods have it", snapshot.by(&by_app, &app).count());

    let (tallies, writes) = everybody(&pods, client, arguments.writes).await?;
    println!("\nmeanwhile: {writes}\n{}", Tally::HEADER);
    tallies.iter().for_each(|tally| println!("{tally}"));

    check(&tallies, &writes)?;
    let now = pods.store().snapshot();
    let scanned = |pod: &ObjectView<'_, Pod>| pod.field("spec.nodeName").as_deref() == Some("node-1");
    let found: Vec<String> = now.by(&by_node, "node-1").map(|pod| pod.key().to_owned()).collect();
    let expected: Vec<String> = now.iter().filter(scanned).map(|pod| pod.key().to_owned()).collect();
    if found != expected {
        return Err("the index and a scan find different pods".into());
    }
    // A snapshot never changes, however long it is held.
    let version = |snapshot: &Snapshot<Pod>| snapshot.resource_version().map(ToString::to_string).unwrap_or_default();
    println!("\nthe first snapshot is still at {}, the store is at {}", version(&snapshot), version(&now));
    println!("requests for all of this: {}", pods.stats().reflector.requests);
    Ok(())
}

/// Starts a server with pods on a free port. It ends with the program.
async fn serve(pods: u32) -> Result<kube::Client, Failure> {
    let populate = Some(populate::PopulateSpec { pods, nodes: 10, namespaces: 4, seed: 1 });
    let listen = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(config::Config { listen, populate, ..config::Config::default() }).await?;
    let url = format!("http://{}", server.local_addr()).parse()?;
    tokio::spawn(server.serve(std::future::pending()));
    Ok(kube::Client::try_from(kube::Config::new(url))?)
}

/// Lets four subscribers read while pods change, until each has the final state.
async fn everybody(pods: &Informer<Pod>, client: kube::Client, writes: usize) -> Result<(Vec<Tally>, Writes), Failure> {
    let (end, ended) = watch::channel(None);
    let (progress, delivered) = watch::channel(0);
    let signals = Signals { ready: Arc::new(Barrier::new(5)), end: ended };
    let each_pace = Pace::Prompt { delivered: progress };
    let slow_pace = Pace::Slow(Duration::from_millis(5));
    let readers = [
        tokio::spawn(follow("latest", pods.subscribe(), Pace::prompt(), signals.clone())),
        tokio::spawn(follow("latest, slow", pods.subscribe(), slow_pace, signals.clone())),
        tokio::spawn(follow("each", pods.subscribe_all(RING), each_pace, signals.clone())),
        tokio::spawn(follow("each, late", pods.subscribe_all(RING), Pace::Late, signals.clone())),
    ];
    signals.ready.wait().await;

    let begun = Instant::now();
    let mut churn = Churn::new(client, &pods.store().snapshot());
    while churn.writes.total() < writes {
        churn.write().await?;
        // Limit the rate, so that a prompt reader is not overrun even on a busy machine.
        let least = churn.writes.total().saturating_sub(RING / 2);
        let mut delivered = delivered.clone();
        tokio::time::timeout(PATIENCE, delivered.wait_for(|delivered| *delivered >= least)).await??;
    }
    pods.wait_for(churn.last(), PATIENCE).await?;
    churn.writes.took = begun.elapsed();
    end.send_replace(Some(state_of(&pods.store().snapshot())));

    let mut tallies = Vec::new();
    for reader in readers {
        tallies.push(tokio::time::timeout(PATIENCE, reader).await.map_err(|_| "a subscriber does not end")???);
    }
    Ok((tallies, churn.writes))
}

fn state_of(snapshot: &Snapshot<Pod>) -> State {
    snapshot.iter().map(|pod| (pod.key().to_owned(), pod.resource_version().to_owned())).collect()
}

/// Checks the promises of each kind of subscription.
fn check(tallies: &[Tally], writes: &Writes) -> Result<(), Failure> {
    let [latest, slow, each, late] = tallies else { return Err("four subscribers were started".into()) };
    let changes = (each.updated, each.created(), each.deleted, each.resets);
    // A delete marks the pod first, which is an update.
    if changes != (writes.updated + writes.deleted, writes.created, writes.deleted, 0) {
        return Err(format!("who wants each change was told {changes:?} of {writes}").into());
    }
    for coalescing in [latest, slow, late] {
        if coalescing.changes() > each.changes() {
            return Err(format!("{} was told more than there was", coalescing.name).into());
        }
    }
    if writes.total() > RING && late.resets == 0 {
        return Err("the late one was overrun, and not told".into());
    }
    Ok(())
}
