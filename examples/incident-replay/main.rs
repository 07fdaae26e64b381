//! Replays a published incident: 80 agents list the pods of their nodes 60 times each while the API server restarts.
//!
//! `cargo run --release -p examples --example incident-replay` plays it in three acts: buffered LISTs without limits, the same LISTs
//! queued by the two manifests that ended the incident, and watch-lists through the SDK. It shows the server's memory, the
//! agents' progress and the latency of a node's lease renewals meanwhile, prints a table, and writes a picture. Where
//! `benches/kube-apiserver/prepare` has built a stock kube-apiserver, that one plays the same acts.
//!
//! Read `stage.rs` first: it is one act from its beginning to its end. `agents.rs` and `informers.rs` are the two kinds of
//! agents.

#![expect(clippy::print_stdout, reason = "the table is the product")]

mod agents;
mod board;
mod bystander;
mod chart;
mod daemon;
mod host;
mod http;
mod identities;
mod informers;
mod latency;
mod manifests;
mod plan;
mod report;
mod sampler;
mod scene;
mod stage;
mod stock;
mod view;

use std::{fs, process::ExitCode, sync::Arc};

use clap::{Parser, Subcommand};
use measured::{Failure, exit_code, server};

use crate::{
    host::Host,
    identities::IdentityFiles,
    plan::{Act, Options, Side},
    report::Machine,
    scene::Scene,
    stage::Production,
    stock::StockCluster,
};

/// An incident of agents that list too much, in three acts.
#[derive(Debug, Parser)]
#[command(name = "incident-replay", version, about)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The child processes of this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// The server under test.
    #[command(hide = true)]
    Server(server::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.role {
        None => replay(&arguments.options),
        Some(Role::Server(arguments)) => return server::main(&arguments),
    };
    exit_code("incident-replay", outcome)
}

fn replay(options: &Options) -> Result<(), Failure> {
    let (sizes, machine) = (options.sizes(), Machine::now());
    // A connection for each copy at either end.
    let files = rlimit::increase_nofile_limit(u64::MAX)?;
    let needed = sizes.copies() as u64 + 200;
    if files < needed {
        return Err(format!("{needed} open files are needed, and {files} allowed: raise `ulimit -n`").into());
    }
    let folder = daemon::folder()?;
    let files = IdentityFiles::write(folder.path())?;
    let places: Vec<_> = plan::nodes(&sizes.populate())?.into_iter().map(Arc::new).collect();
    let control = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let production = Production { options, files: &files, places: &places, control: &control };

    let mut scenes: Vec<Scene> = Vec::new();
    for side in options.sides() {
        let stock = match side {
            Side::CacheServer => None,
            Side::KubeApiserver => Some(fill_stock(&production)?),
        };
        for act in options.acts() {
            let scene = production.play(Host::new(act, sizes, &files, stock.as_ref())?)?;
            eprintln!("{}, {}: {} in sync", side.name(), act.title(), scene.synced_text());
            scenes.push(scene);
        }
    }
    let table = report::text(&machine, &sizes, &scenes);
    println!("{table}");
    chart::draw(&options.picture(), &sizes, &scenes)?;
    println!("\nwrote {}", options.picture().display());
    if let Some(page) = options.page() {
        let text = report::replace_table(&fs::read_to_string(&page)?, &table).ok_or("the page has no table")?;
        fs::write(&page, text)?;
    }
    // With a storm of lists, agents that are late are a result; with streams, or few agents, they are a failure.
    let must_sync = |scene: &&Scene| options.quick || scene.act == Act::Streams;
    let mut ours = scenes.iter().filter(|scene| scene.side == Side::CacheServer);
    let late = ours.find(|scene| must_sync(scene) && scene.synced.is_none());
    late.map_or(Ok(()), |scene| Err(format!("{}: {}", scene.act.title(), scene.synced_text()).into()))
}

/// Starts etcd and fills it through a kube-apiserver that is stopped then.
fn fill_stock(production: &Production<'_>) -> Result<StockCluster, Failure> {
    let options = production.options;
    eprintln!("kube-apiserver: creates {} pods", options.sizes().pods);
    let stock = StockCluster::start(options.kube_apiserver.clone(), options.stock_reads)?;
    let mut host = Host::new(Act::Lists, options.sizes(), production.files, Some(&stock))?;
    production.open(&mut host)?;
    production.control.block_on(StockCluster::fill(&host.target, &options.sizes()))?;
    drop(host);
    Ok(stock)
}
