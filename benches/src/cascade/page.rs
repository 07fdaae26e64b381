//! The tables and the picture of `docs/cascade.md`. The prose of the page is written by hand, around two marks.

use std::{fmt::Write as _, path::Path};

use super::{
    Flags, ScenarioRun,
    check::Comparison,
    costs::{Measurements, REVIEW},
    shape,
    world::{SECOND, TreePlan, World, seconds},
};
use crate::{
    marked,
    numbers::{
        Failure,
        picture::{self, Graph, Series},
    },
};

const PAGE: &str = "cascade.md";
const PICTURE: &str = "cascade.svg";

/// All tables, as Markdown.
pub(crate) fn tables(flags: &Flags, measured: &Measurements, checks: &[Comparison], runs: &[ScenarioRun]) -> String {
    let tables = [steady(flags, measured, runs), shared(runs), reviews(flags, runs), restarts(runs)];
    [tables.join("\n"), inputs(flags, measured, checks)].join("\n")
}

fn steady(flags: &Flags, measured: &Measurements, runs: &[ScenarioRun]) -> String {
    let mut text =
        String::from("## Undisturbed\n\nFor each member; staleness is from the commit until the tier has it.\n\n");
    text += "| tree | tier | members | connections | in, KB/s | out, KB/s | CPU, % of a core | memory, MiB \
         | staleness p50, ms | worst |\n";
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for run in undisturbed(runs, "") {
        let plan = &run.scenario.plan;
        for tier in 0..=plan.tiers.len() {
            if tier < plan.tiers.len() || plan.node_cache.is_some() {
                text += &tier_row(flags, measured, run, tier);
            }
        }
        let agents = plan.nodes * plan.leaves_per_node * plan.agents_per_leaf;
        let times = staleness(&run.world.staleness);
        let _ = writeln!(text, "|  | agents | {} |  |  |  |  |  | {times} |", whole(agents as f64));
    }
    text
}

fn undisturbed<'a>(runs: &'a [ScenarioRun], note: &'a str) -> impl Iterator<Item = &'a ScenarioRun> {
    runs.iter().filter(move |run| run.scenario.restart.is_none() && run.scenario.note == note)
}

/// Events of a type that every agent reads whole.
fn shared(runs: &[ScenarioRun]) -> String {
    let mut text = String::from("## One event a second for every agent\n\n");
    text += "An EndpointSlice of 5,000 bytes: load of a member of the tier that the nodes connect to, staleness at the \
         agents.\n\n";
    text += "| tree | out of each API server, MB/s | CPU, % of a core \
         | out of each member of the last tier, MB/s | CPU, % of a core | staleness p50, ms | worst |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for run in undisturbed(runs, shape::SHARED) {
        let plan = &run.scenario.plan;
        let load = |tier: usize| {
            let (sums, members) = (&run.world.sums[tier], members(plan, tier) as f64);
            let a_second = |sum: f64| sum / run.seconds / members;
            format!("{} | {}", short(a_second(sums.event_bytes_out) / 1e6), short(a_second(sums.event_cpu) / 1e4))
        };
        let last = if plan.tiers.len() > 1 { load(plan.tiers.len() - 1) } else { " | ".to_owned() };
        let _ = writeln!(text, "| {} | {} | {last} | {} |", plan.name, load(0), staleness(&run.world.staleness));
    }
    text
}

/// Reviews of the watches that caches hold open. Every tier passes them on, so the API servers answer all.
fn reviews(flags: &Flags, runs: &[ScenarioRun]) -> String {
    let mut text = String::from("## Reviews of open watches\n\n");
    let _ = writeln!(
        text,
        "For each API server. One review costs it {} µs. Where caches follow roles, an open watch has none after its start;\n\
         elsewhere one in {} s.\n",
        whole(REVIEW),
        whole(flags.review_seconds)
    );
    text += "| tree | watches that caches hold open | CPU s for one review each, at their start | roles followed: reviews a \
         second | not followed | CPU, % of a core |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: |\n";
    for run in undisturbed(runs, "") {
        let plan = &run.scenario.plan;
        let lowest = plan.tiers.len() - usize::from(plan.node_cache.is_none());
        let watches: usize = (1..=lowest).map(|tier| connections(plan, tier)).sum();
        let each = watches as f64 / members(plan, 0) as f64;
        let a_second = each / flags.review_seconds;
        let _ = writeln!(
            text,
            "| {} | {} | {} | 0 | {} | {} |",
            plan.name,
            whole(watches as f64),
            short(each * REVIEW / 1e6),
            short(a_second),
            short(a_second * REVIEW / 1e4),
        );
    }
    text
}

fn tier_row(flags: &Flags, measured: &Measurements, run: &ScenarioRun, tier: usize) -> String {
    let (plan, sums) = (&run.scenario.plan, &run.world.sums[tier]);
    let members = members(plan, tier) as f64;
    let connections = connections(plan, tier) as f64;
    let (bookmark_cpu, bookmark_bytes) = run.world.bookmarks(tier, connections);
    let received = if tier > 0 { run.world.bookmarks(tier - 1, upstream_watches(plan, tier) as f64).1 } else { 0.0 };
    let a_second = |sum: f64| sum / run.seconds / members;
    let into = a_second(sums.bytes_in) + received / members;
    let out = a_second(sums.event_bytes_out) + bookmark_bytes / members;
    let percent = (a_second(sums.event_cpu) + bookmark_cpu / members) / 1e4;
    let memory = memory(flags, measured, plan, tier, connections / members);
    let is_first = tier == 0;
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        if is_first { plan.name } else { "" },
        tier_name(plan, tier),
        whole(members),
        whole(connections / members),
        if is_first { String::new() } else { short(into / 1e3) },
        short(out / 1e3),
        short(percent),
        memory,
        if is_first { " | ".to_owned() } else { staleness(&sums.staleness) },
    )
}

fn members(plan: &TreePlan, tier: usize) -> usize {
    plan.tiers.get(tier).map_or(plan.nodes * plan.leaves_per_node, |of| of.members)
}

/// Watches that the members of a tier have open upstream.
fn upstream_watches(plan: &TreePlan, tier: usize) -> usize {
    members(plan, tier)
}

/// Connections to all members of a tier.
fn connections(plan: &TreePlan, tier: usize) -> usize {
    if tier == plan.tiers.len() { plan.nodes * plan.agents_per_leaf } else { upstream_watches(plan, tier + 1) }
}

fn tier_name(plan: &TreePlan, tier: usize) -> &'static str {
    plan.tiers.get(tier).map_or("node cache", |of| of.name)
}

/// Resident memory of a member, in MiB.
fn memory(flags: &Flags, measured: &Measurements, plan: &TreePlan, tier: usize, connections: f64) -> String {
    let (base, each) = measured.memory;
    let pods = plan.pods_per_node as f64;
    let mib = if tier == 0 {
        return format!(
            "{} + objects",
            whole(connections.mul_add(measured.kube.connection / 1024.0, measured.kube_memory))
        );
    } else if tier == plan.tiers.len() {
        pods.mul_add(each, base) + connections * measured.plain.connection / 1024.0
    } else {
        (pods * plan.nodes as f64).mul_add(each, base)
            + flags.window_mib
            + connections * measured.tls.connection / 1024.0
    };
    short(mib)
}

fn staleness(times: &hdrhistogram::Histogram<u64>) -> String {
    let millis = |micros: u64| short(micros as f64 / 1e3);
    format!("{} | {}", millis(times.value_at_quantile(0.5)), millis(times.max()))
}

fn restarts(runs: &[ScenarioRun]) -> String {
    let mut text = String::from("## Restarts\n\n");
    text += "| tree | restarted | API servers: initial | GB | CPU s | cache tiers: initial | GB | worst staleness, s \
         | all current after, s |\n";
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    let mut tree = "";
    for run in runs {
        if run.scenario.restart.is_none() {
            continue;
        }
        let (plan, world) = (&run.scenario.plan, &run.world);
        let (reads, bytes, cpu) = sum(world, 0..1);
        let (lower_reads, lower_bytes, _) = sum(world, 1..plan.tiers.len());
        let name = if tree == plan.name { "" } else { plan.name };
        tree = plan.name;
        let what = restarted(plan, run);
        let worst = short(world.staleness.max() as f64 / 1e6);
        let current = world.recovery().map_or_else(|| "never".to_owned(), |at| short(seconds(at)));
        let _ = writeln!(
            text,
            "| {name} | {what} | {} | {} | {} | {} | {} | {worst} | {current} |",
            whole(reads as f64),
            short(bytes / 1e9),
            short(cpu / 1e6),
            whole(lower_reads as f64),
            short(lower_bytes / 1e9),
        );
    }
    text
}

/// Reads and bytes of initial state, and CPU microseconds of requests of some tiers.
fn sum(world: &World, tiers: std::ops::Range<usize>) -> (u64, f64, f64) {
    let sums = &world.sums[tiers];
    let reads = sums.iter().map(|tier| tier.requests.initial + tier.requests.lists).sum();
    // An empty sum of floats is -0.
    let bytes = sums.iter().fold(0.0, |sum, tier| sum + tier.initial_bytes_out);
    let cpu = sums.iter().fold(0.0, |sum, tier| sum + tier.request_cpu);
    (reads, bytes, cpu)
}

fn restarted(plan: &TreePlan, run: &ScenarioRun) -> String {
    let Some(restart) = run.scenario.restart else { return String::new() };
    let name = tier_name(plan, restart.tier);
    let who = match (restart.is_whole, restart.tier) {
        (true, 0) => format!("all {name}"),
        (false, 0) => format!("one of the {name}"),
        (true, tier) if tier == plan.tiers.len() => "all node caches".to_owned(),
        (true, _) => format!("all of {name}"),
        (false, _) => format!("one of {name}"),
    };
    let how = match (restart.tier, restart.is_warm) {
        (0, _) => "",
        (_, true) => ", `--state-dir`",
        (_, false) => ", no state",
    };
    format!("{who}{how}{}", run.scenario.note)
}

/// The measurements that the model takes, and those that it is compared with.
fn inputs(flags: &Flags, measured: &Measurements, checks: &[Comparison]) -> String {
    let mut text = String::from("## Inputs and checks\n\n");
    text += "Inputs are of kube-apiserver over TLS / cache-server over TLS / cache-server without TLS. Rows with a model \
         check it.\n\n";
    text += "| value | measured in | measured | model |\n| --- | --- | ---: | ---: |\n";
    for (name, value, source) in &measured.lines {
        let _ = writeln!(text, "| {name} | {source} | {value} |  |");
    }
    for Comparison { case, what, values } in checks {
        let side = |of: fn(&(f64, f64)) -> f64| values.iter().map(|pair| short(of(pair))).collect::<Vec<_>>();
        let [measured, modelled] = [side(|pair| pair.0), side(|pair| pair.1)].map(|side| side.join(" / "));
        let _ = writeln!(text, "| {what} | {case} | {measured} | {modelled} |");
    }
    let coverage = seconds(shape::coverage(flags, flags.window_mib));
    let _ = writeln!(
        text,
        "\n{} nodes, {} pods of {} bytes and {} agents on each, {} events a second; {} API servers of {} cores,\n\
         cache-servers of {}; a window of {} MiB ({} s); {} ms between machines; {} s until a cache-server runs, {} s\n\
         for an API server; {} µs to load a saved object; {} s between reviews of a watch; seed {}.",
        whole(flags.nodes as f64),
        flags.pods_per_node,
        whole(flags.bytes),
        flags.agents,
        whole(flags.rate),
        flags.api_servers,
        flags.api_cores,
        flags.cache_cores,
        whole(flags.window_mib),
        whole(coverage),
        flags.hop_millis,
        flags.down_seconds,
        flags.api_down_seconds,
        flags.load_micros,
        whole(flags.review_seconds),
        flags.seed,
    );
    text
}

/// Replaces the written part of the page, and draws the picture beside it.
///
/// # Errors
/// The page cannot be read or written, or lacks a mark.
pub(crate) fn write(folder: &Path, tables: &str, runs: &[ScenarioRun]) -> Result<(), Failure> {
    marked::replace(&folder.join(PAGE), tables)?;
    picture::draw(&folder.join(PICTURE), &graph(runs))
}

/// Shown part of the time after a restart, in seconds.
const SHOWN_SECONDS: u32 = 120;

fn graph(runs: &[ScenarioRun]) -> Graph {
    let series = runs.iter().filter(|run| is_drawn(run)).map(|run| {
        let plan = &run.scenario.plan;
        let (recoveries, all) = (run.world.recoveries(), plan.nodes * plan.leaves_per_node);
        let share = |at: u32| {
            let left = recoveries.iter().filter(|after| u64::from(at) * SECOND < **after).count();
            (f64::from(at), left as f64 * 100.0 / all as f64)
        };
        let points = (0..=SHOWN_SECONDS).step_by(4).map(share).collect();
        let label = format!("{}: {}", plan.name, restarted(plan, run).replace('`', ""));
        Series { label, points, line: None }
    });
    Graph {
        name: "cascade".to_owned(),
        title: "Clients of a restarted tier that are not current again".to_owned(),
        x: "seconds after the restart".to_owned(),
        y: "% of the tier's clients".to_owned(),
        series: series.collect(),
    }
}

/// True for restarts of the whole tier that the nodes connect to.
fn is_drawn(run: &ScenarioRun) -> bool {
    let plan = &run.scenario.plan;
    let is_last = |tier: usize| tier + 1 == plan.tiers.len();
    run.scenario.restart.is_some_and(|restart| restart.is_whole && is_last(restart.tier)) && plan.tiers.len() < 3
}

fn whole(value: f64) -> String {
    if value == 0.0 {
        return String::new();
    }
    crate::numbers::amount(value.round())
}

fn short(value: f64) -> String {
    match value {
        0.0 => String::new(),
        small if small < 0.005 => "< 0.01".to_owned(),
        large if large >= 100.0 => crate::numbers::amount(large.round()),
        between => crate::numbers::amount(between),
    }
}
