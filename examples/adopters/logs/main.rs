//! Shows what a log collector's metadata costs: for each line of a container it looks up the pod, its namespace and its
//! node, as Vector's `kubernetes_logs` does. Compares four stores: kube-runtime's reflectors, and the informer onto
//! own types of the fields that are read (`project`), with kube's types decoded once (`Typed`), and in its default form.
//!
//! Each runs in a process of its own beside one server, writes the same records and must end with the same hash.

#![expect(clippy::print_stdout, reason = "the table is the product, and the parts answer on stdout")]

mod fields;
mod informers;
mod lines;
mod reflectors;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measured::{Failure, child::Part, exit_code, server};

use self::lines::Outcome;

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Lookups of a log collector, and their memory.
#[derive(Debug, Parser)]
#[command(name = "kubernetes-logs", version, about)]
struct Arguments {
    /// Pods of the node.
    #[arg(long, default_value_t = 250)]
    pods: usize,
    /// Namespaces of the cluster.
    #[arg(long, default_value_t = 500)]
    namespaces: usize,
    /// Lines, each with three lookups.
    #[arg(long, default_value_t = 1_000_000)]
    lines: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The child processes of this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// The server.
    #[command(hide = true)]
    Server(server::Arguments),
    /// A collector.
    #[command(hide = true)]
    Collector(Collector),
}

/// Arguments of a collector.
#[derive(Debug, Args)]
struct Collector {
    #[arg(long)]
    server: String,
    #[arg(long)]
    store: Store,
    #[arg(long)]
    lines: usize,
}

/// Store of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    /// kube-runtime's reflectors.
    Reflectors,
    /// The informer with types of the fields that are read.
    Projected,
    /// The informer with kube's types, stored decoded.
    Typed,
    /// The informer with kube's types, in its default form.
    Default,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.role {
        None => compare(&arguments),
        Some(Role::Server(arguments)) => return server::main(arguments),
        Some(Role::Collector(collector)) => collect(collector),
    };
    exit_code("kubernetes-logs", outcome)
}

fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let populate = format!("pods={},nodes=1,namespaces={}", arguments.pods, arguments.namespaces);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--populate", &populate].map(str::to_owned);
    let mut server = Part::spawn("server", &serve)?;
    let url = server.line()?.trim_start_matches("listening on ").to_owned();
    println!("{populate}, {} lines\n", arguments.lines);
    println!("| store | live MiB | lines a second | lookups a second | records a second |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut hashes = Vec::new();
    for store in [Store::Reflectors, Store::Projected, Store::Typed, Store::Default] {
        let name = store.to_possible_value().ok_or("a store has no name")?.get_name().to_owned();
        // The default form decodes at each access: a tenth of the lines takes long enough.
        let lines = arguments.lines / if store == Store::Default { 10 } else { 1 };
        let flags = ["--server", &url, "--store", &name, "--lines", &lines.to_string()].map(str::to_owned);
        let outcome: Outcome = Part::spawn("collector", &flags)?.outcome()?;
        hashes.push(outcome.hash);
        println!("{}", outcome.row(&name, lines));
    }
    if hashes.iter().any(|hash| *hash != hashes[0]) {
        return Err(format!("the stores made different records: {hashes:?}").into());
    }
    Ok(())
}

fn collect(collector: &Collector) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let config = kube::Config::new(collector.server.parse()?);
        let node = lines::first_node(&config).await?;
        match collector.store {
            Store::Reflectors => reflectors::collect(config, &node, collector.lines).await,
            Store::Projected => informers::projected(config, &node, collector.lines).await,
            Store::Typed => informers::of_kube(config, &node, informer::Representation::Typed, collector.lines).await,
            Store::Default => informers::of_kube(config, &node, informer::Representation::Json, collector.lines).await,
        }
    })?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}
