//! The tables and the picture of `docs/cascade.md`. The prose of the page is written by hand, around two marks.

use std::{fmt::Write as _, path::Path};

use super::{
    Flags, ScenarioRun,
    check::Comparison,
    costs::Measurements,
    shape,
    world::{Requests, SECOND, TreePlan, World, seconds},
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
    [steady(flags, measured, runs), shared(runs), restarts(runs), compared(checks), inputs(flags, measured)].join("\n")
}

fn steady(flags: &Flags, measured: &Measurements, runs: &[ScenarioRun]) -> String {
    let mut text =
        String::from("## Undisturbed\n\nFor each member; staleness is from the commit until the tier has it.\n\n");
    text += "| tree | tier | members | connections | in, KB/s | out, KB/s | CPU, % of a core | memory, MiB \
         | staleness p50, ms | p99 | worst |\n";
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for run in undisturbed(runs, "") {
        let plan = &run.scenario.plan;
        for tier in 0..=plan.tiers.len() {
            if tier < plan.tiers.len() || plan.node_cache.is_some() {
                text += &tier_row(flags, measured, run, tier);
            }
        }
        let agents = plan.nodes * plan.leaves_per_node * plan.agents_per_leaf;
        let times = staleness(&run.world.staleness);
        let _ = writeln!(text, "| | agents | {} | | | | | | {times} |", whole(agents as f64));
    }
    text
}

fn undisturbed<'a>(runs: &'a [ScenarioRun], note: &'a str) -> impl Iterator<Item = &'a ScenarioRun> {
    runs.iter().filter(move |run| run.scenario.restart.is_none() && run.scenario.note == note)
}

/// Events of a type that every agent reads whole.
fn shared(runs: &[ScenarioRun]) -> String {
    let mut text = String::from("## One event a second for every agent\n\n");
    text += "An EndpointSlice of 5,000 bytes: the load of a member of the tier that the nodes connect to, and \
         staleness at the agents.\n\n";
    text += "| tree | out of each API server, MB/s | CPU, % of a core \
         | out of each member of the last tier, MB/s | CPU, % of a core | staleness p50, ms | p99 | worst |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for run in undisturbed(runs, shape::SHARED) {
        let plan = &run.scenario.plan;
        let load = |tier: usize| {
            let (sums, members) = (&run.world.sums[tier], members(plan, tier) as f64);
            let a_second = |sum: f64| sum / run.seconds / members;
            format!("{} | {}", short(a_second(sums.event_bytes_out) / 1e6), short(a_second(sums.event_cpu) / 1e4))
        };
        let last = if plan.tiers.len() > 1 { load(plan.tiers.len() - 1) } else { "– | –".to_owned() };
        let _ = writeln!(text, "| {} | {} | {last} | {} |", plan.name, load(0), staleness(&run.world.staleness));
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
        if is_first { "–".to_owned() } else { short(into / 1e3) },
        short(out / 1e3),
        short(percent),
        memory,
        if is_first { "– | – | –".to_owned() } else { staleness(&sums.staleness) },
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
    let [p50, p99] = [0.5, 0.99].map(|quantile| millis(times.value_at_quantile(quantile)));
    format!("{p50} | {p99} | {}", millis(times.max()))
}

fn restarts(runs: &[ScenarioRun]) -> String {
    let mut text = String::from("## Restarts\n\n");
    text += "| tree | restarted | API servers: resumes | initial | GB | CPU s | cache tiers: resumes \
         | initial | 429 | moved | GB | CPU s | node caches: resumes | initial | worst staleness, s \
         | all current after, s |\n";
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: \
         | ---: | ---: |\n";
    let mut tree = "";
    for run in runs {
        if run.scenario.restart.is_none() {
            continue;
        }
        let (plan, world) = (&run.scenario.plan, &run.world);
        let tiers = plan.tiers.len();
        let (resumes, reads, _, bytes, cpu) = sum(world, 0..1);
        let (lower_resumes, lower_reads, busy, lower_bytes, lower_cpu) = sum(world, 1..tiers);
        let (agent_resumes, agent_reads, ..) = sum(world, tiers..tiers + 1);
        let name = if tree == plan.name { "" } else { plan.name };
        tree = plan.name;
        let what = restarted(plan, run);
        let counts = [resumes, reads].map(|count| whole(count as f64)).join(" | ");
        let lower = [lower_resumes, lower_reads, busy, world.moved].map(|count| whole(count as f64)).join(" | ");
        let agents = [agent_resumes, agent_reads].map(|count| whole(count as f64)).join(" | ");
        let worst = short(world.staleness.max() as f64 / 1e6);
        let current = world.recovery().map_or_else(|| "never".to_owned(), |at| short(seconds(at)));
        let _ = writeln!(
            text,
            "| {name} | {what} | {counts} | {} | {} | {lower} | {} | {} | {agents} | {worst} | {current} |",
            short(bytes / 1e9),
            short(cpu / 1e6),
            short(lower_bytes / 1e9),
            short(lower_cpu / 1e6),
        );
    }
    text
}

/// Resumes, reads of initial state, 429s, bytes of initial state, and CPU microseconds of requests of some tiers.
fn sum(world: &World, tiers: std::ops::Range<usize>) -> (u64, u64, u64, f64, f64) {
    let sums = &world.sums[tiers];
    let count = |of: fn(&Requests) -> u64| sums.iter().map(|tier| of(&tier.requests)).sum();
    // An empty sum of floats is -0.
    let bytes = sums.iter().fold(0.0, |sum, tier| sum + tier.initial_bytes_out);
    let cpu = sums.iter().fold(0.0, |sum, tier| sum + tier.request_cpu);
    (count(|all| all.resumes), count(|all| all.initial + all.lists), count(|all| all.busy), bytes, cpu)
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

fn compared(checks: &[Comparison]) -> String {
    let mut text =
        String::from("## The model beside measurements\n\n| case | value | measured | model | deviation |\n");
    text += "| --- | --- | ---: | ---: | ---: |\n";
    for check in checks {
        let (measured, modelled) = (short(check.measured), short(check.modelled));
        let _ =
            writeln!(text, "| {} | {} | {measured} | {modelled} | {:+.0} % |", check.case, check.what, check.percent());
    }
    text
}

fn inputs(flags: &Flags, measured: &Measurements) -> String {
    let mut text =
        String::from("## Inputs\n\nkube-apiserver over TLS / cache-server over TLS / cache-server without TLS.\n\n");
    text += "| cost | value | measured in |\n| --- | ---: | --- |\n";
    for (name, value, source) in &measured.lines {
        let _ = writeln!(text, "| {name} | {value} | {source} |");
    }
    let coverage = seconds(shape::coverage(flags, flags.window_mib));
    let _ = writeln!(
        text,
        "\n{} nodes, {} pods of {} bytes and {} agents on each, {} events a second; {} API servers of {} cores, \
         cache-servers of {}; a window of {} MiB, which covers {} s; {} ms between machines; {} s until a cache-server \
         runs, {} s for an API server; {} µs to load an object of saved state; seed {}.",
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
        return "–".to_owned();
    }
    crate::numbers::amount(value.round())
}

fn short(value: f64) -> String {
    match value {
        0.0 => "–".to_owned(),
        small if small < 0.005 => "< 0.01".to_owned(),
        large if large >= 100.0 => crate::numbers::amount(large.round()),
        between => crate::numbers::amount(between),
    }
}
