//! How do I feed a kube `Controller` from this library? A controller that hands one ConfigMap to every namespace that
//! asks for it by label, such as the certificates a company trusts, and keeps the copies as the original is.
//!
//! `cargo run --example controller -- --demo` needs no cluster: it starts a server, does to it what users do, prints what
//! the controller made of it, and ends. `cargo run --example controller -- --original trust/bundle` works on the cluster
//! of your kubeconfig; give a namespace its copy with `kubectl label namespace default copies.example.dev/bundle=wanted`.
//!
//! Read `streams` first: three watches and nothing else about the server. `reconcile` is an ordinary kube reconciler.

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

/// Any failure, as one line.
type Failure = Box<dyn Error + Send + Sync>;

/// Hands copies of one ConfigMap to the namespaces that ask for them.
#[derive(Debug, Parser)]
#[command(name = "controller", version, about)]
struct Arguments {
    /// The original, as namespace/name.
    #[arg(long, default_value = "trust/bundle")]
    original: String,
    /// The URL of a server that asks for no credentials. Default: KUBECONFIG, else what a pod gets from its cluster.
    #[arg(long)]
    server: Option<String>,
    /// Runs against a server of its own, checks the result, and ends.
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

/// Everything the controller knows about the cluster, and the stores where it looks things up.
struct Streams<N, C, O> {
    client: Client,
    namespaces: (Store<Namespace>, N),
    copies: (Store<ConfigMap>, C),
    original: (Store<ConfigMap>, O),
}

/// What a namespace that wants a copy is labelled with, and what copies are labelled with: label and value.
const WANTED: (&str, &str) = ("copies.example.dev/bundle", "wanted");
const COPY: (&str, &str) = ("copies.example.dev/bundle", "copy");

/// Three watches of one cluster: they take turns in reading their initial state, and wait by themselves after failures,
/// so that no `default_backoff()` is needed. To kube they are streams like any other.
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
    // Labels say who wants a copy, and nothing else of a namespace matters here.
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

/// Runs the controller until `until` says so.
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
        // Whoever changes the original changes all copies.
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

/// The stream goes on by itself.
fn complain(error: &watcher::Error) {
    eprintln!("watching goes on: {error}");
}
