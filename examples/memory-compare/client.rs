//! The measured process: one client with a real store, started by a line on stdin.

use std::{
    io::{BufRead as _, Read as _},
    time::{Duration, Instant},
};

use clap::Args;
use futures::StreamExt as _;
use informer::{Cluster, InitialList, ListSemantic};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use measured::{Failure, child::Part, memory};
use serde::{Deserialize, Serialize};

use crate::{checksum::Checksum, plan::Kind};

/// The line of a client that has all objects.
const SYNCED: &str = "synced";

/// Arguments from the parent process.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    address: String,
    #[arg(long)]
    kind: Kind,
    /// Pause before the resident size is measured.
    #[arg(long)]
    rest_ms: u64,
}

/// Results of the client, as one line of JSON.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) checksum: Checksum,
    pub(crate) first_object_ms: f64,
    pub(crate) synced_ms: f64,
    /// Maximum of resident bytes.
    pub(crate) peak: usize,
    /// Resident bytes after the pause.
    pub(crate) resident: usize,
    /// Total bytes of the stored objects, for clients that store bytes.
    pub(crate) stored_bytes: Option<usize>,
}

/// Syncs once and prints the results.
pub(crate) fn main(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = kube::Config::new(format!("http://{}", arguments.address).parse()?);
        println!("ready");
        std::io::stdin().lock().read_line(&mut String::new())?;
        let rest = Duration::from_millis(arguments.rest_ms);
        let outcome = match arguments.kind {
            Kind::KubeList => kube_list(config, rest).await?,
            Kind::KubeReflectorPaged => kube_reflector(config, watcher::Config::default(), rest).await?,
            Kind::KubeReflectorStream => {
                kube_reflector(config, watcher::Config::default().streaming_lists(), rest).await?
            }
            Kind::InformerUnpaged => informer(config, InitialList::Unpaged, ListSemantic::Any, rest).await?,
            // With resourceVersion 0 a stock server would ignore the limit.
            Kind::InformerPaged => informer(config, InitialList::Paged, ListSemantic::MostRecent, rest).await?,
            Kind::InformerStream => informer(config, InitialList::Stream, ListSemantic::Any, rest).await?,
        };
        println!("{}", serde_json::to_string(&outcome)?);
        std::io::stdin().lock().read_to_end(&mut Vec::new())?;
        Ok(())
    })
}

/// Waits until the client has all objects.
pub(crate) fn until_synced(client: &mut Part) -> Result<(), Failure> {
    match client.line()?.as_str() {
        SYNCED => Ok(()),
        other => Err(format!("the client reported {other:?}").into()),
    }
}

async fn kube_list(config: kube::Config, rest: Duration) -> Result<Outcome, Failure> {
    let api = Api::<Pod>::all(kube::Client::try_from(config)?);
    let start = Instant::now();
    let pods = api.list(&ListParams::default().match_any()).await?;
    let synced = start.elapsed();
    finish(synced, synced, checksum_of(&pods.items), None, rest).await
}

async fn kube_reflector(config: kube::Config, watch: watcher::Config, rest: Duration) -> Result<Outcome, Failure> {
    let api = Api::<Pod>::all(kube::Client::try_from(config)?);
    let (reader, writer) = reflector::store();
    let start = Instant::now();
    let mut first = None;
    let mut stream = std::pin::pin!(reflector(writer, watcher(api, watch)).default_backoff());
    loop {
        match stream.next().await.ok_or("kube's watcher ended")?? {
            watcher::Event::InitApply(_) => first = first.or_else(|| Some(start.elapsed())),
            watcher::Event::InitDone => break,
            watcher::Event::Init | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {}
        }
    }
    let synced = start.elapsed();
    let mut checksum = Checksum::default();
    for pod in reader.state() {
        add(&mut checksum, &pod);
    }
    let outcome = finish(first.unwrap_or(synced), synced, checksum, None, rest);
    // Poll the stream during the pause, like a program would.
    tokio::select! { outcome = outcome => outcome, () = async { while stream.next().await.is_some() {} } => Err("kube's watcher ended".into()) }
}

async fn informer(
    config: kube::Config,
    initial: InitialList,
    semantic: ListSemantic,
    rest: Duration,
) -> Result<Outcome, Failure> {
    let cluster = Cluster::try_from(config)?;
    let start = Instant::now();
    let pods = cluster.informer::<Pod>().initial_list(initial).list_semantic(semantic).start()?;
    pods.ready(Duration::from_secs(100)).await?;
    let synced = start.elapsed();
    let (mut checksum, mut stored) = (Checksum::default(), 0);
    for pod in &pods.store().snapshot() {
        checksum.add(pod.key(), pod.uid(), pod.resource_version());
        stored += pod.json().len();
    }
    let first = pods.stats().first_object_after.unwrap_or(synced);
    let outcome = finish(first, synced, checksum, Some(stored), rest).await?;
    drop(pods);
    Ok(outcome)
}

fn checksum_of(pods: &[Pod]) -> Checksum {
    let mut checksum = Checksum::default();
    for pod in pods {
        add(&mut checksum, pod);
    }
    checksum
}

fn add(checksum: &mut Checksum, pod: &Pod) {
    let key = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    checksum.add(&key, &pod.uid().unwrap_or_default(), &pod.resource_version().unwrap_or_default());
}

async fn finish(
    first: Duration,
    synced: Duration,
    checksum: Checksum,
    stored_bytes: Option<usize>,
    rest: Duration,
) -> Result<Outcome, Failure> {
    println!("{SYNCED}");
    tokio::time::sleep(rest).await;
    let usage = memory::usage(std::process::id())?;
    Ok(Outcome {
        checksum,
        first_object_ms: first.as_secs_f64() * 1e3,
        synced_ms: synced.as_secs_f64() * 1e3,
        peak: usage.peak,
        resident: usage.resident,
        stored_bytes,
    })
}
