//! A controller on an informer's store. It keeps copies of a ConfigMap, such as the certificates a company trusts, in
//! all namespaces that a `Bundle` selects, and has the parts of a controller in production: a custom resource, owned
//! objects, a finalizer, status conditions, events, and leader election between replicas.
//!
//! `cargo run --example controller -- --demo` needs no cluster: it starts a server and two replicas, changes Bundles as
//! users do, prints the controller's effects, and ends. `cargo run --example controller -- --print-crd | kubectl apply -f -` and
//! `cargo run --example controller` work on the cluster of your kubeconfig.
//!
//! Read `control` first: it has the four informers and their triggers. `reconcile` makes the copies of one Bundle, and
//! the tests in `kills` abort the controller at each of its requests.

#![expect(clippy::print_stdout, reason = "printing what it did is what this program is for")]

mod bundle;
mod control;
mod demo;
#[cfg(test)]
mod kills;
mod reconcile;
mod stage;

use std::{error::Error, process::ExitCode};

use clap::Parser;
use futures::FutureExt as _;
use informer::{Cluster, controller::shutdown_signal, lease::Election};
use kube::{
    CustomResourceExt as _,
    runtime::events::{Recorder, Reporter},
};
use tokio::select;

use bundle::Bundle;
use control::{Informers, control};
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
    let cluster = Cluster::try_from(config)?;
    let election = Election::new(cluster.client(), &arguments.lease_namespace, LEASE, &arguments.identity);
    let Arguments { trust_namespace, identity, .. } = arguments;
    Replica { cluster, trust_namespace, identity, election }.run(shutdown_signal()).await
}

/// Name of the Lease by which replicas elect their leader.
const LEASE: &str = "bundles";

/// One of the processes that run this controller.
struct Replica {
    cluster: Cluster,
    trust_namespace: String,
    /// Name of the replica, unique among them.
    identity: String,
    election: Election,
}

impl Replica {
    /// Starts the informers, waits until this replica leads, and runs the controller until `stop` resolves. Releases the
    /// lease after the last write.
    ///
    /// # Errors
    /// Also if the leadership was lost. The process must end then; when it is started again, it is a follower.
    async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        let Self { cluster, trust_namespace, identity, election } = self;
        let (client, informers) = (cluster.client(), Informers::start(&cluster, &trust_namespace)?);
        let stop = stop.shared();
        // Leading first: a Lease that is known to be acquired is released.
        let leadership = select! { biased;
            leadership = election.lead() => leadership,
            () = stop.clone() => return Ok(()),
        };
        let term = leadership.term();
        println!("{identity} leads, term {term}");
        let reporter =
            Reporter { controller: "bundles.copies.example.dev".to_owned(), instance: Some(identity.clone()) };
        let recorder = Recorder::new(client.clone(), reporter);
        let context = Context { client, informers: informers.clone(), recorder, term };
        let outcome = leadership.run(control(&informers, context, stop)).await?;
        informers.shutdown().await;
        println!("{identity} hands over");
        outcome.map_err(Failure::from)
    }
}
