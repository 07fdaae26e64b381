//! The measured process: one client with a real store, which executes commands from stdin line by line.

use std::{
    io::BufRead as _,
    path::PathBuf,
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
    core::ApiResource,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{Failure, HEAP, components, controllers, gate::Gate, memory, socket, types};

/// Client to measure and address of the server.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerAddress,
    #[arg(long)]
    kind: Kind,
}

/// Address of the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerAddress {
    #[arg(long)]
    pub(crate) url: String,
    /// Certificate of the server, in DER.
    #[arg(long)]
    pub(crate) ca: Option<PathBuf>,
}

impl ServerAddress {
    pub(crate) fn config(&self) -> Result<kube::Config, Failure> {
        let mut config = kube::Config::new(self.url.parse()?);
        config.root_cert = self.ca.as_ref().map(|ca| Ok::<_, Failure>(vec![std::fs::read(ca)?])).transpose()?;
        Ok(config)
    }

    /// kube's own client.
    pub(crate) fn client(&self) -> Result<kube::Client, Failure> {
        Ok(kube::Client::try_from(self.config()?)?)
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        let ca = self.ca.iter().map(|ca| format!("--ca={}", ca.display()));
        [format!("--url={}", self.url)].into_iter().chain(ca).collect()
    }
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
    /// kube's controller.
    KubeController,
    /// The controller on an informer's store.
    InformerController,
    /// Components of one program, each with a reflector of its own.
    KubeComponents,
    /// Components of one program as subscribers of one shared reflector (feature `unstable-runtime`).
    KubeComponentsShared,
    /// Components of one program that declare a shared informer.
    InformerComponents,
    /// The same components, with decoded objects in the store.
    InformerComponentsTyped,
    /// A reflector for each of many types.
    KubeTypes,
    /// An informer for each of many types, over kube's client, which speaks HTTP/1.1.
    InformerTypesHttp1,
    /// An informer for each of many types, over HTTP/2.
    InformerTypes,
    /// The informer by one list.
    InformerList,
    /// The informer by one compressed list.
    InformerListGzip,
    /// A shared informer of client-go.
    ClientGo,
    /// A shared informer of client-go that asks for protobuf.
    ClientGoProtobuf,
    /// A shared informer of client-go with a transform that clears managedFields.
    ClientGoTrimmed,
    /// Components of one program as handlers of a shared informer of client-go, which clears managedFields.
    ClientGoComponents,
    /// The floor: a socket that is read and not kept.
    Socket,
}

/// Section of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// One copy of all pods, or a controller over it, at each size.
    Copies,
    /// Components of one program on one type.
    Components,
    /// One program on many types.
    Types,
    /// One list, plain and compressed.
    Lists,
    /// Programs with client-go, if Go is there.
    ClientGo,
    /// Framing and storing without sockets.
    Frames,
    /// Requests to a failing server.
    Refusals,
}

impl Kind {
    /// The section that measures this client.
    pub(crate) const fn section(self) -> Section {
        match self {
            Self::KubePages
            | Self::KubeStream
            | Self::KubeStreamTrimmed
            | Self::Informer
            | Self::InformerPages
            | Self::InformerTyped
            | Self::InformerPacked
            | Self::KubeController
            | Self::InformerController => Section::Copies,
            Self::KubeComponents
            | Self::KubeComponentsShared
            | Self::InformerComponents
            | Self::InformerComponentsTyped => Section::Components,
            Self::KubeTypes | Self::InformerTypesHttp1 | Self::InformerTypes => Section::Types,
            Self::InformerList | Self::InformerListGzip => Section::Lists,
            Self::ClientGo
            | Self::ClientGoProtobuf
            | Self::ClientGoTrimmed
            | Self::ClientGoComponents
            | Self::Socket => Section::ClientGo,
        }
    }

    /// Returns true for informers with the client that `Cluster::try_from` makes, which is not kube's.
    const fn has_own_client(self) -> bool {
        matches!(self, Self::Informer | Self::InformerComponents | Self::InformerTypes)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KubePages => "kube reflector, pages",
            Self::KubeStream => "kube reflector, watch-list",
            Self::KubeStreamTrimmed => "kube reflector, watch-list, managedFields cleared",
            Self::Informer => "informer, watch-list (default)",
            Self::InformerPages => "informer, pages",
            Self::InformerTyped => "informer, Typed",
            Self::InformerPacked => "informer, Packed",
            Self::KubeController => "kube controller",
            Self::InformerController => "informer, controller",
            Self::KubeComponents => "kube, a reflector each",
            Self::KubeComponentsShared => "kube, one shared reflector (unstable)",
            Self::InformerComponents => "informer, shared",
            Self::InformerComponentsTyped => "informer, shared, Typed",
            Self::KubeTypes => "kube reflectors, HTTP/1.1",
            Self::InformerTypesHttp1 => "informers, HTTP/1.1",
            Self::InformerTypes => "informers, HTTP/2",
            Self::InformerList => "informer, one list",
            Self::InformerListGzip => "informer, one list, gzip",
            Self::ClientGo => "client-go",
            Self::ClientGoProtobuf => "client-go, protobuf",
            Self::ClientGoTrimmed => "client-go, managedFields cleared",
            Self::ClientGoComponents => "client-go, five handlers, managedFields cleared",
            Self::Socket => "a socket, nothing kept",
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
    /// Live changes received so far; reconciles, for a controller.
    pub(crate) events: u64,
    /// Requests sent so far.
    pub(crate) requests: u64,
    /// Bytes of response bodies received so far, as sent.
    pub(crate) body_bytes: u64,
    /// Connections that are open.
    pub(crate) connections: usize,
}

/// Pause before the resident size is measured.
const REST: Duration = Duration::from_secs(2);

/// State of any client, read only on commands, so that it costs nothing per event.
pub(crate) struct Copy {
    /// Number of completed initial states.
    pub(crate) syncs: Box<dyn Fn() -> u64>,
    /// Number of live changes; of reconciles, for a controller.
    pub(crate) events: Box<dyn Fn() -> u64>,
    /// Time from the start to the first object.
    pub(crate) first: Box<dyn Fn() -> Duration>,
    pub(crate) objects: Box<dyn Fn() -> usize>,
}

/// Executes commands from stdin until it is closed.
pub(crate) fn main(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.kind == Kind::Socket {
        return socket::main(&arguments.server.url);
    }
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
        let types = if arguments.kind.section() == Section::Types {
            types::all(arguments.server.client()?).await?
        } else {
            Vec::new()
        };
        let client = if arguments.kind.has_own_client() {
            informer::client_from(arguments.server.config()?)?
        } else {
            arguments.server.client()?
        };
        let client = gate.client(client);
        println!("ready");
        let mut copy = None;
        while let Some(command) = received.recv().await {
            let report = match command.as_str() {
                "sync" => {
                    let mut measure = Measure::begin()?;
                    let started = copy.insert(start(arguments.kind, &types, client.clone())?);
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
            let report = Report {
                requests: gate.passed.requests.load(Ordering::Relaxed),
                body_bytes: gate.passed.body_bytes.load(Ordering::Relaxed),
                // Not for `now`: procfs lists every socket of the machine, and its CPU time would count for the changes
                // that follow.
                connections: if command == "sync" { memory::connections(&arguments.server.url)? } else { 0 },
                ..report
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
            ..Report::default()
        })
    }
}

fn start(kind: Kind, types: &[ApiResource], client: kube::Client) -> Result<Copy, Failure> {
    let stream = watcher::Config::default().streaming_lists();
    match kind {
        Kind::KubePages => Ok(kube_reflector(client, watcher::Config::default(), false)),
        Kind::KubeStream => Ok(kube_reflector(client, stream, false)),
        Kind::KubeStreamTrimmed => Ok(kube_reflector(client, stream, true)),
        Kind::Informer => informer(client, InitialList::Stream, Representation::Json, false),
        Kind::InformerPages => informer(client, InitialList::Paged, Representation::Json, false),
        Kind::InformerTyped => informer(client, InitialList::Stream, Representation::Typed, false),
        Kind::InformerPacked => informer(client, InitialList::Stream, Representation::Packed, false),
        Kind::InformerList => informer(client, InitialList::Unpaged, Representation::Json, false),
        Kind::InformerListGzip => informer(client, InitialList::Unpaged, Representation::Json, true),
        Kind::KubeController => Ok(controllers::kube(client)),
        Kind::InformerController => controllers::informer(client),
        Kind::KubeComponents => Ok(components::kube(&client)),
        Kind::KubeComponentsShared => components::kube_shared(client),
        Kind::InformerComponents => components::informer(client, Representation::Json),
        Kind::InformerComponentsTyped => components::informer(client, Representation::Typed),
        Kind::KubeTypes => Ok(types::kube(&client, types)),
        Kind::InformerTypesHttp1 | Kind::InformerTypes => types::informer(client, types),
        Kind::ClientGo | Kind::ClientGoProtobuf | Kind::ClientGoTrimmed | Kind::ClientGoComponents | Kind::Socket => {
            Err("a client with a program of its own".into())
        }
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

fn informer(
    client: kube::Client,
    initial: InitialList,
    representation: Representation,
    gzip: bool,
) -> Result<Copy, Failure> {
    let semantic = match initial {
        // With resourceVersion 0 a stock server would ignore the limit.
        InitialList::Paged => ListSemantic::MostRecent,
        InitialList::Auto | InitialList::Stream | InitialList::Unpaged | _ => ListSemantic::Any,
    };
    let builder = Cluster::new(client).informer::<Pod>().initial_list(initial).list_semantic(semantic);
    let pods = builder.config(|config| config.gzip_lists = gzip).store(representation).start()?;
    let (syncs, events, first) = (pods.clone(), pods.clone(), pods.clone());
    Ok(Copy {
        syncs: Box::new(move || syncs.stats().reflector.syncs),
        events: Box::new(move || events.stats().reflector.live_objects),
        first: Box::new(move || first.stats().first_object_after.unwrap_or_default()),
        objects: Box::new(move || pods.store().snapshot().len()),
    })
}
