//! An agent for a DaemonSet: reads the log lines of this node's pods, writes JSON lines with the pods' labels.
//!
//! `cargo run --example log-collector -- --demo` needs no cluster: it creates log files and an API server, and checks
//! that every line comes out exactly once with its pod. `daemonset.yaml` beside this file runs it on a cluster.
//!
//! Read `collect.rs` first: one turn of it is the whole program. `enrich.rs` is where the informer is used.

mod collect;
mod cri;
mod demo;
mod enrich;
mod names;
mod positions;
mod scratch;
mod tail;

use std::{io, path::PathBuf, process::ExitCode, sync::mpsc, time::Duration};

use clap::Parser;
use informer::Cluster;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    collect::{Collector, Counts, Settings},
    enrich::Pods,
    tail::Limits,
};

/// Any error, printed as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Time to wait for the pods before a warning is printed. Waiting continues after that.
const READY_WAIT: Duration = Duration::from_secs(30);

/// Time to wait for the last save at the end; the kubelet kills the process after 30 s.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Writes the log lines of this node's pods to stdout, as JSON with the pods' labels.
#[derive(Debug, Parser)]
#[command(name = "log-collector", version, about)]
struct Arguments {
    /// The node's name, as pods have it in spec.nodeName.
    #[arg(long, env = "NODE_NAME", required_unless_present = "demo")]
    node: Option<String>,
    /// Root of the kubelet's log files.
    #[arg(long, default_value = "/var/log/pods")]
    root: PathBuf,
    /// The uid of the pod this runs in: its lines are skipped, because collecting them would produce more of them.
    #[arg(long, env = "POD_UID")]
    own_uid: Option<String>,
    /// File that keeps how far each log was read, so that a restart neither repeats nor loses lines.
    #[arg(long)]
    positions: Option<PathBuf>,
    /// Directory that keeps the pods' metadata, so that pods deleted during a restart are still known.
    #[arg(long)]
    checkpoint: Option<PathBuf>,
    /// A kubeconfig. Default: KUBECONFIG, else the pod's service account.
    #[arg(long, conflicts_with = "server")]
    kubeconfig: Option<PathBuf>,
    /// URL of a server that needs no credentials.
    #[arg(long)]
    server: Option<String>,
    /// Milliseconds between two scans of the files.
    #[arg(long, default_value_t = 250)]
    poll_ms: u64,
    /// Seconds that lines wait for their pod's metadata; then they come out without it, marked as such.
    #[arg(long, default_value_t = 10)]
    metadata_wait_s: u64,
    /// Maximum bytes of a line; longer lines are truncated.
    #[arg(long, default_value_t = 256 << 10)]
    line_bytes_max: usize,
    /// Maximum of open files.
    #[arg(long, default_value_t = 512)]
    files_open_max: usize,
    /// Runs against files and a server in this process, checks the result, and ends.
    #[arg(long)]
    demo: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let outcome = if arguments.demo { demo::run(io::stdout()).await } else { collect(&arguments).await };
    match outcome {
        Ok(counts) => {
            eprintln!("log-collector: {counts}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("log-collector: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Collects until SIGTERM or SIGINT.
async fn collect(arguments: &Arguments) -> Result<Counts, Failure> {
    let cluster = Cluster::try_from(config(arguments).await?)?;
    let settings = arguments.settings();
    let pods = Pods::of_node(&cluster, &settings.node, arguments.checkpoint.as_deref())?;
    let informer = pods.informer().clone();
    let waiting = informer.clone();
    let waiting = tokio::spawn(async move {
        if let Err(why) = waiting.ready(READY_WAIT).await {
            eprintln!("log-collector: {why}; lines come out without labels");
        }
    });

    let collector = Collector::new(settings, pods, io::stdout())?;
    let (stop, stopped) = mpsc::channel();
    let mut collecting = tokio::task::spawn_blocking(move || collector.run(&stopped));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        outcome = &mut collecting => return outcome?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(stop);
    let outcome = collecting.await?;
    // Stop the informer cleanly, so that its checkpoint is complete for the next start.
    waiting.abort();
    if let Err(late) = informer.shutdown(STOP_WAIT).await {
        eprintln!("log-collector: {late}; the next start reads what was not saved again");
    }
    outcome
}

async fn config(arguments: &Arguments) -> Result<kube::Config, Failure> {
    if let Some(url) = &arguments.server {
        return Ok(kube::Config::new(url.parse()?));
    }
    Ok(match &arguments.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await?,
    })
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            node: self.node.clone().unwrap_or_default(),
            root: self.root.clone(),
            own_uid: self.own_uid.clone(),
            positions: self.positions.clone(),
            poll: Duration::from_millis(self.poll_ms),
            metadata_wait: Duration::from_secs(self.metadata_wait_s),
            limits: Limits { line_bytes_max: self.line_bytes_max, files_open_max: self.files_open_max },
        }
    }
}
