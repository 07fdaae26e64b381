//! A controller on an informer's store. It keeps copies of a ConfigMap, such as the certificates a company trusts, in
//! all namespaces that a `Bundle` selects, and has the parts of a controller in production: a custom resource, owned
//! objects, a finalizer, status conditions, events, and leader election between replicas.
//!
//! `cargo run --example controller -- --demo` needs no cluster: it starts a server and two replicas, changes Bundles as
//! users do, prints the controller's effects, and ends. `cargo run --example controller -- --print-crd | kubectl apply -f -` and
//! `cargo run --example controller` work on the cluster of your kubeconfig.
//!
//! Read `control` first: it has the four informers and their triggers. `reconcile` makes the copies of one Bundle,
//! `leader` is the election, and the tests in `kills` abort the controller at each of its requests.

#![expect(clippy::print_stdout, reason = "printing what it did is what this program is for")]

mod bundle;
mod control;
mod demo;
#[cfg(test)]
mod kills;
mod leader;
mod reconcile;
mod stage;

use std::{error::Error, process::ExitCode};

use clap::Parser;
use futures::FutureExt as _;
use kube::{
    Api, Client, CustomResourceExt as _,
    runtime::events::{Recorder, Reporter},
};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
};

use bundle::Bundle;
use control::{Informers, control};
use leader::{Candidate, Timing};
use reconcile::Context;

/// Any error, printed as one line.
type Failure = Box<dyn Error + Send + Sync>;

/// Copies ConfigMaps to the namespaces that Bundles select.
#[derive(Debug, Parser)]
#[command(name = "controller", version, about)]
struct Arguments {
    /// Namespace of the originals.
    #[arg(long, default_value = "trust")]
    trust_namespace: String,
    /// Namespace of the lease by which replicas elect their leader.
    #[arg(long, default_value = "default")]
    lease_namespace: String,
    /// Name of this replica, unique among them, such as the pod's name.
    #[arg(long, env = "POD_NAME", default_value = "local")]
    identity: String,
    /// URL of a server that needs no credentials. Default: KUBECONFIG, else the pod's service account.
    #[arg(long)]
    server: Option<String>,
    /// Prints the definition of Bundle, and ends.
    #[arg(long)]
    print_crd: bool,
    /// Runs against a server in this process, checks the result, and ends.
    #[arg(long)]
    demo: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let outcome = match (arguments.print_crd, arguments.demo) {
        (true, _) => serde_json::to_string_pretty(&Bundle::crd())
            .map(|definition| println!("{definition}"))
            .map_err(Failure::from),
        (false, true) => demo::run().await,
        (false, false) => serve(arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("controller: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until SIGTERM or Ctrl+C.
async fn serve(arguments: Arguments) -> Result<(), Failure> {
    let config = match &arguments.server {
        Some(url) => kube::Config::new(url.parse()?),
        None => kube::Config::infer().await?,
    };
    let replica = Replica {
        client: Client::try_from(config)?,
        trust_namespace: arguments.trust_namespace,
        lease_namespace: arguments.lease_namespace,
        identity: arguments.identity,
        timing: Timing::default(),
    };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    replica
        .run(async move {
            select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
}

/// One of the processes that run this controller.
struct Replica {
    client: Client,
    trust_namespace: String,
    lease_namespace: String,
    identity: String,
    timing: Timing,
}

impl Replica {
    /// Starts the informers, waits until this replica leads, and runs the controller until `stop` resolves. Releases the
    /// lease after the last write.
    ///
    /// # Errors
    /// Also if the leadership was lost. The process must end then; when it is started again, it is a follower.
    async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        let Self { client, trust_namespace, lease_namespace, identity, timing } = self;
        let informers = Informers::start(client.clone(), &trust_namespace)?;
        let leases = Api::namespaced(client.clone(), &lease_namespace);
        let candidate = Candidate { leases, name: "bundles".to_owned(), identity: identity.clone(), timing };
        let stop = stop.shared();
        let mut leader = select! {
            leader = candidate.lead() => leader,
            () = stop.clone() => return Ok(()),
        };
        println!("{identity} leads, term {}", leader.term());
        let reporter =
            Reporter { controller: "bundles.copies.example.dev".to_owned(), instance: Some(identity.clone()) };
        let recorder = Recorder::new(client.clone(), reporter);
        let context = Context { client, informers: informers.clone(), recorder, term: leader.term() };
        let outcome = select! {
            outcome = control(&informers, context, stop) => outcome,
            () = leader.hold() => return Err(format!("{identity} lost its leadership").into()),
        };
        leader.release().await?;
        informers.shutdown().await;
        println!("{identity} hands over");
        outcome.map_err(Failure::from)
    }
}
