//! How do I feed a kube `Controller` from this library? This controller copies one ConfigMap, such as the certificates
//! a company trusts, to every namespace that requests it by label, and keeps the copies equal to the original.
//!
//! `cargo run --example controller -- --demo` needs no cluster: it starts a server, acts on it like users, prints the
//! controller's effects, and ends. `cargo run --example controller -- --original trust/bundle` works on the cluster of
//! your kubeconfig; give a namespace its copy with `kubectl label namespace default copies.example.dev/bundle=wanted`.
//!
//! Read `streams` first: it defines three watches, which are all that connects the controller to a server. `reconcile`
//! is an ordinary kube reconciler.

#![expect(clippy::print_stdout, reason = "printing what it did is what this program is for")]

mod demo;
mod reconcile;

use std::{error::Error, process::ExitCode, sync::Arc};

use clap::Parser;
use futures::{Stream, StreamExt, TryStreamExt};
use informer::Cluster;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        Controller, PredicateConfig, WatchStreamExt, predicates,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};

use reconcile::Context;

/// Any error, printed as one line.
type Failure = Box<dyn Error + Send + Sync>;

/// Copies one ConfigMap to the namespaces that request it.
#[derive(Debug, Parser)]
#[command(name = "controller", version, about)]
struct Arguments {
    /// The original, as namespace/name.
    #[arg(long, default_value = "trust/bundle")]
    original: String,
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
    let outcome = if arguments.demo { demo::run().await } else { serve(arguments).await };
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
    let (namespace, name) = arguments.original.split_once('/').ok_or("--original is namespace/name")?;
    let config = match &arguments.server {
        Some(url) => kube::Config::new(url.parse()?),
        None => kube::Config::infer().await?,
    };
    let streams = streams(Client::try_from(config)?, namespace, name);
    control(streams, |controller| controller.shutdown_on_signal()).await;
    Ok(())
}

/// The event streams of the controller, and the stores for lookups.
struct Streams<N, C, O> {
    client: Client,
    namespaces: (Store<Namespace>, N),
    copies: (Store<ConfigMap>, C),
    original: (Store<ConfigMap>, O),
}

/// Label and value of namespaces that request a copy, and, below, of the copies.
const WANTED: (&str, &str) = ("copies.example.dev/bundle", "wanted");
const COPY: (&str, &str) = ("copies.example.dev/bundle", "copy");

/// Three watches of one cluster: the cluster limits how many read their initial state at once, and each backs off after
/// failures by itself, so that no `default_backoff()` is needed. For kube they are ordinary streams.
fn streams(
    client: Client,
    namespace: &str,
    name: &str,
) -> Streams<
    impl Stream<Item = watcher::Result<Namespace>> + Send + use<>,
    impl Stream<Item = watcher::Result<ConfigMap>> + Send + use<>,
    impl Stream<Item = watcher::Result<ConfigMap>> + Send + use<>,
> {
    let cluster = Cluster::new(client.clone());
    let streamed = || watcher::Config::default().streaming_lists();

    let all = cluster.watcher(&Api::<Namespace>::all(client.clone()), streamed());
    let (namespaces, writer) = reflector::store();
    let all = all.drop_path("metadata.managedFields").stream().reflect(writer).applied_objects();
    // Only the labels of a namespace matter: they request the copy.
    let all = all.predicate_filter(predicates::labels, PredicateConfig::default());

    let copies_only = streamed().labels(&format!("{}={}", COPY.0, COPY.1));
    let made = cluster.watcher(&Api::<ConfigMap>::all(client.clone()), copies_only);
    let (copies, writer) = reflector::store();
    let made = made.drop_path("metadata.managedFields").stream().reflect(writer).touched_objects();

    let one = streamed().fields(&format!("metadata.name={name}"));
    let source = cluster.watcher(&Api::<ConfigMap>::namespaced(client.clone(), namespace), one);
    let (original, writer) = reflector::store();
    let source = source.drop_path("metadata.managedFields").stream().reflect(writer).touched_objects();

    Streams { client, namespaces: (namespaces, all), copies: (copies, made), original: (original, source) }
}

/// Runs the controller, with the shutdown condition that `until` adds.
async fn control<N, C, O>(streams: Streams<N, C, O>, until: impl FnOnce(Controller<Namespace>) -> Controller<Namespace>)
where
    N: Stream<Item = watcher::Result<Namespace>> + Send + 'static,
    C: Stream<Item = watcher::Result<ConfigMap>> + Send + 'static,
    O: Stream<Item = watcher::Result<ConfigMap>> + Send + 'static,
{
    let Streams { client, namespaces, copies, original } = streams;
    let all = namespaces.0.clone();
    let context = Arc::new(Context::new(client, copies.0, original.0));
    let controller = Controller::for_stream(namespaces.1.inspect_err(complain), namespaces.0)
        .watches_stream(copies.1.inspect_err(complain), |copy| copy.namespace().map(|name| ObjectRef::new(&name)))
        // A change of the original concerns all namespaces.
        .watches_stream(original.1.inspect_err(complain), move |_| {
            all.state().into_iter().map(|namespace| ObjectRef::from_obj(&*namespace)).collect::<Vec<_>>()
        });
    let outcomes = until(controller).run(reconcile::reconcile, reconcile::on_error, context);
    outcomes
        .for_each(|outcome| async {
            if let Err(error) = outcome {
                eprintln!("will be tried again: {error}");
            }
        })
        .await;
}

/// Prints the error; the stream retries by itself.
fn complain(error: &watcher::Error) {
    eprintln!("watching goes on: {error}");
}
