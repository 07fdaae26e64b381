//! Two controllers in one program, as a Deployment with two replicas runs it: probes, metrics, signals, leader election,
//! and a deadline for the first sync. Both work on one copy of the ConfigMaps, and write over its connection if that is
//! HTTP/2. They write only where a label requests it.
//!
//! `cargo run --example manager -- --demo` needs no cluster: it starts a server and replicas of this program, acts like
//! users and a kubelet, checks every effect, and ends. `cargo run --example manager` works on the cluster of your kubeconfig.

#![expect(clippy::print_stdout, reason = "the demo prints what it has seen, and a replica where its probes are")]

mod control;
mod demo;
mod probes;

use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use clap::Parser;
use futures::FutureExt as _;
use informer::{
    Cluster,
    controller::{ControllerMetrics, shutdown_signal},
    lease::Election,
};
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::{net::TcpListener, select};

use control::Controllers;
use probes::Probes;

/// Any error, printed as one line.
type Failure = Box<dyn Error + Send + Sync>;

/// Renders templates, and counts the ConfigMaps of each namespace.
#[derive(Debug, Parser)]
#[command(name = "manager", version, about)]
struct Arguments {
    /// Address of the probes and metrics.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Namespace of the Lease by which replicas elect their leader.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// Name of this replica, unique among them, such as the pod's name.
    #[arg(long, env = "POD_NAME", default_value = "local")]
    identity: String,
    /// Seconds after which a replica whose copies are not complete ends.
    #[arg(long, default_value_t = 120)]
    sync_seconds: u64,
    /// URL of a server that needs no credentials. Default: KUBECONFIG, else the pod's service account.
    #[arg(long)]
    server: Option<String>,
    /// Runs against a server in this process, checks the result, and ends.
    #[arg(long)]
    demo: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let outcome = if arguments.demo { demo::run(arguments).await } else { manage(arguments).await };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manager: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a replica until SIGTERM or SIGINT.
///
/// # Errors
/// Also if a copy was not complete in time, or if the leadership was lost. The kubelet then starts the replica again.
async fn manage(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { listen, namespace, identity, sync_seconds, server, .. } = arguments;
    let cluster = match server {
        Some(url) => Cluster::try_from(kube::Config::new(url.parse()?))?,
        None => Cluster::try_default().await?,
    };
    let mut registry = Registry::default();
    informer::metrics::register(&mut registry, &cluster);
    let metrics = ControllerMetrics::register(&mut registry);
    // The name of client-go.
    let leads = Family::<[(&str, &str); 1], Gauge>::default();
    registry.register("leader_election_master_status", "1 while this replica leads", leads.clone());
    let leads = leads.get_or_create_owned(&[("name", "manager")]);

    // Followers have the copies too, so that a new leader begins at once.
    let controllers = Controllers::new(&cluster, metrics)?;
    let probes = Probes { copies: controllers.copies(), cluster: cluster.clone(), registry };
    let listener = TcpListener::bind(listen).await?;
    println!("{identity} serves probes on {}", listener.local_addr()?);

    let stop = shutdown_signal().shared();
    let election = Election::new(cluster.client(), &namespace, "manager", &identity);
    let work = async {
        let leading = async {
            cluster.ready_all(Duration::from_secs(sync_seconds)).await?;
            Ok::<_, Failure>(election.lead().await)
        };
        // Leading first: a Lease that is known to be acquired is released.
        let leadership = select! { biased;
            leadership = leading => leadership?,
            () = stop.clone() => return Ok(()),
        };
        leads.set(1);
        // Releases the Lease after both have ended; drops them if it is lost.
        leadership.run(controllers.run(stop.clone())).await?
    };
    select! {
        outcome = work => outcome,
        never = probes.serve(listener) => match never {},
    }
}
