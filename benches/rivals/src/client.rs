//! The measured process: one client with a real store, which executes commands from stdin line by line.

use std::{
    io::BufRead as _,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use informer::{Cluster, InitialList, ListSemantic, Representation};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{Failure, HEAP, gate::Gate, memory};

/// Client to measure and address of the server.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    address: String,
    #[arg(long)]
    kind: Kind,
}

/// The client under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// kube's reflector in its default mode: pages, then watch.
    KubePages,
    /// kube's reflector over watch-list.
    KubeStream,
    /// kube's reflector over watch-list, with managedFields cleared before the store, as its users do.
    KubeStreamTrimmed,
    /// The informer with its defaults: watch-list, JSON.
    Informer,
    /// The informer in pages.
    InformerPages,
    /// The informer with decoded objects in its store.
    InformerTyped,
    /// The informer with compressed objects in its store.
    InformerPacked,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KubePages => "kube reflector, pages",
            Self::KubeStream => "kube reflector, watch-list",
            Self::KubeStreamTrimmed => "kube reflector, watch-list, managedFields cleared",
            Self::Informer => "informer, watch-list (default)",
            Self::InformerPages => "informer, pages",
            Self::InformerTyped => "informer, Typed",
            Self::InformerPacked => "informer, Packed",
        }
    }
}

/// Results of one command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) objects: usize,
    pub(crate) first_object_ms: f64,
    pub(crate) synced_ms: f64,
    /// Resident bytes now, and their maximum since the last command.
    pub(crate) resident: usize,
    pub(crate) resident_peak: usize,
    /// Live heap bytes now, and their maximum since the last command.
    pub(crate) live: usize,
    pub(crate) live_peak: usize,
    /// CPU seconds of this process since the last command.
    pub(crate) cpu_s: f64,
    /// Live changes received so far.
    pub(crate) events: u64,
}

/// Pause before the resident size is measured.
const REST: Duration = Duration::from_secs(2);

/// State of any client, read only on commands, so that it costs nothing per event.
struct Copy {
    /// Number of completed initial states.
    syncs: Box<dyn Fn() -> u64>,
    /// Number of live changes.
    events: Box<dyn Fn() -> u64>,
    /// Time from the start to the first object.
    first: Box<dyn Fn() -> Duration>,
    objects: Box<dyn Fn() -> usize>,
}

/// Executes commands from stdin until it is closed.
pub(crate) fn main(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (commands, mut received) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if commands.send(line).is_err() {
                break;
            }
        }
    });
    runtime.block_on(async {
        let gate = Gate::new();
        let client = kube::Client::try_from(kube::Config::new(format!("http://{}", arguments.address).parse()?))?;
        let client = gate.client(client);
        println!("ready");
        let mut copy = None;
        while let Some(command) = received.recv().await {
            let report = match command.as_str() {
                "sync" => {
                    let mut measure = Measure::begin()?;
                    let started = copy.insert(start(arguments.kind, client.clone())?);
                    measure.until_synced(started, 1).await?;
                    measure.report(started).await?
                }
                "cut" => {
                    gate.cut();
                    Report::default()
                }
                "relist" => {
                    let copy = copy.as_ref().ok_or("nothing is synced")?;
                    let mut measure = Measure::begin()?;
                    let next = (copy.syncs)() + 1;
                    gate.expire();
                    measure.until_synced(copy, next).await?;
                    measure.report(copy).await?
                }
                "now" => now(copy.as_ref().ok_or("nothing is synced")?),
                other => return Err(format!("no such command: {other}").into()),
            };
            println!("{}", serde_json::to_string(&report)?);
        }
        Ok(())
    })
}

/// CPU time and changes since the start; the parent computes differences.
fn now(copy: &Copy) -> Report {
    Report { cpu_s: memory::cpu_seconds().unwrap_or_default(), events: (copy.events)(), ..Report::default() }
}

struct Measure {
    start: Instant,
    cpu: f64,
    synced: Duration,
}

impl Measure {
    fn begin() -> Result<Self, Failure> {
        memory::reset_peak()?;
        HEAP.reset_peak_usage();
        Ok(Self { start: Instant::now(), cpu: memory::cpu_seconds()?, synced: Duration::ZERO })
    }

    async fn until_synced(&mut self, copy: &Copy, syncs: u64) -> Result<(), Failure> {
        while (copy.syncs)() < syncs {
            if self.start.elapsed() > Duration::from_secs(100) {
                return Err("no sync in 100 s".into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.synced = self.start.elapsed();
        Ok(())
    }

    async fn report(self, copy: &Copy) -> Result<Report, Failure> {
        let cpu_s = memory::cpu_seconds()? - self.cpu;
        let live_peak = HEAP.peak_usage();
        tokio::time::sleep(REST).await;
        let usage = memory::usage()?;
        Ok(Report {
            objects: (copy.objects)(),
            first_object_ms: (copy.first)().as_secs_f64() * 1e3,
            synced_ms: self.synced.as_secs_f64() * 1e3,
            resident: usage.resident,
            resident_peak: usage.peak,
            live: HEAP.current_usage(),
            live_peak,
            cpu_s,
            events: (copy.events)(),
        })
    }
}

fn start(kind: Kind, client: kube::Client) -> Result<Copy, Failure> {
    let stream = watcher::Config::default().streaming_lists();
    match kind {
        Kind::KubePages => Ok(kube_reflector(client, watcher::Config::default(), false)),
        Kind::KubeStream => Ok(kube_reflector(client, stream, false)),
        Kind::KubeStreamTrimmed => Ok(kube_reflector(client, stream, true)),
        Kind::Informer => informer(client, InitialList::Stream, Representation::Json),
        Kind::InformerPages => informer(client, InitialList::Paged, Representation::Json),
        Kind::InformerTyped => informer(client, InitialList::Stream, Representation::Typed),
        Kind::InformerPacked => informer(client, InitialList::Stream, Representation::Packed),
    }
}

fn kube_reflector(client: kube::Client, config: watcher::Config, trimmed: bool) -> Copy {
    let (reader, writer) = reflector::store();
    let counted = Arc::new(Counted::default());
    let (counts, start) = (Arc::clone(&counted), Instant::now());
    let source = watcher(Api::<Pod>::all(client), config).modify(move |pod| {
        if trimmed {
            pod.managed_fields_mut().clear();
        }
    });
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(reflector(writer, source).default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::InitApply(_)) => drop(counts.first.get_or_init(|| start.elapsed())),
                Ok(watcher::Event::InitDone) => drop(counts.syncs.fetch_add(1, Ordering::SeqCst)),
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                    counts.events.fetch_add(1, Ordering::SeqCst);
                }
                Ok(watcher::Event::Init) | Err(_) => {}
            }
        }
    });
    let (syncs, events, first) = (Arc::clone(&counted), Arc::clone(&counted), counted);
    Copy {
        syncs: Box::new(move || syncs.syncs.load(Ordering::SeqCst)),
        events: Box::new(move || events.events.load(Ordering::SeqCst)),
        first: Box::new(move || first.first.get().copied().unwrap_or_default()),
        objects: Box::new(move || reader.len()),
    }
}

/// Counters for kube's stream, which has none itself.
#[derive(Default)]
struct Counted {
    syncs: AtomicU64,
    events: AtomicU64,
    first: OnceLock<Duration>,
}

fn informer(client: kube::Client, initial: InitialList, representation: Representation) -> Result<Copy, Failure> {
    let semantic = match initial {
        // With resourceVersion 0 a stock server would ignore the limit.
        InitialList::Paged => ListSemantic::MostRecent,
        InitialList::Auto | InitialList::Stream | InitialList::Unpaged | _ => ListSemantic::Any,
    };
    let builder = Cluster::new(client).informer::<Pod>().initial_list(initial).list_semantic(semantic);
    let pods = builder.store(representation).start()?;
    let (syncs, events, first) = (pods.clone(), pods.clone(), pods.clone());
    Ok(Copy {
        syncs: Box::new(move || syncs.stats().reflector.syncs),
        events: Box::new(move || events.stats().reflector.live_objects),
        first: Box::new(move || first.stats().first_object_after.unwrap_or_default()),
        objects: Box::new(move || pods.store().snapshot().len()),
    })
}
