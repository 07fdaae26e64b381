//! The compared trees, and the restarts of their tiers.

use super::{
    Flags, RESTART_MAX, ScenarioRun,
    costs::Measurements,
    world::{Nanos, Restart, SECOND, TierPlan, TreePlan, World, micros, seconds},
};
use crate::numbers::Failure;

/// One run of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) plan: TreePlan,
    /// Undisturbed if `None`.
    pub(crate) restart: Option<Restart>,
    /// Time of undisturbed events.
    pub(crate) time: Nanos,
    /// Words after the restart's name.
    pub(crate) note: &'static str,
}

impl Scenario {
    /// Runs it to its end.
    ///
    /// # Errors
    /// An agent misses an event, or got one twice.
    pub(crate) fn run(self) -> Result<ScenarioRun, Failure> {
        let mut world = World::new(self.plan.clone());
        match self.restart {
            Some(restart) => world.run_restart(restart, RESTART_MAX),
            None => world.run(self.time),
        }
        let wrong = world.wrong_agents();
        if wrong > 0 && world.recovery().is_some() {
            return Err(Failure::Page(format!(
                "{}: {wrong} agents hold other events than their nodes",
                self.plan.name
            )));
        }
        world.release();
        Ok(ScenarioRun { seconds: seconds(self.time), scenario: self, world })
    }
}

/// Retention of kube-apiserver's watch cache: `DefaultEventFreshDuration`.
const KUBE_WINDOW: Nanos = 75 * SECOND;
/// Age at which cache-server drops events even when there is room.
const WINDOW_AGE_MAX: Nanos = 300 * SECOND;
/// Coverage below which cache-server sends bookmarks every third of it, and not every minute.
const COVERAGE_LOW: Nanos = 180 * SECOND;
const BOOKMARK_PERIOD: Nanos = 60 * SECOND;
const BOOKMARK_PERIOD_MIN: Nanos = 5 * SECOND;

/// Window whose coverage is shorter than a restart: the default of `--window-bytes`.
const SMALL_WINDOW_MIB: f64 = 64.0;

/// Time that a window of this size covers.
pub(crate) fn coverage(flags: &Flags, mib: f64) -> Nanos {
    micros(mib * f64::from(1 << 20) / (flags.rate * flags.bytes) * 1e6).min(WINDOW_AGE_MAX)
}

/// Cache-servers of the last tier.
fn caches(flags: &Flags) -> usize {
    flags.nodes.div_ceil(flags.nodes_per_cache).max(2)
}

/// The trees: without caches, with caches on the nodes, and with one and two tiers above these.
pub(crate) fn trees(flags: &Flags, measured: &Measurements) -> Vec<TreePlan> {
    let api = TierPlan {
        name: "API servers",
        members: flags.api_servers,
        cores: flags.api_cores,
        costs: measured.kube,
        window: KUBE_WINDOW,
    };
    let tier = |name, members| TierPlan {
        name,
        members,
        cores: flags.cache_cores,
        costs: measured.tls,
        window: coverage(flags, flags.window_mib),
    };
    let direct = TreePlan {
        name: "no caches",
        tiers: vec![api.clone()],
        nodes: flags.nodes,
        pods_per_node: flags.pods_per_node,
        leaves_per_node: flags.agents,
        agents_per_leaf: 1,
        node_cache: None,
        is_scoped: true,
        rate: flags.rate,
        burst: 1,
        is_paced: false,
        bytes: flags.bytes,
        hop: micros(flags.hop_millis * 1e3),
        bookmark: BOOKMARK_PERIOD,
        shared: 0.0,
        has_lists: flags.lists,
        seed: flags.seed,
    };
    let flat = TreePlan {
        name: "node caches",
        leaves_per_node: 1,
        agents_per_leaf: flags.agents,
        node_cache: Some(measured.plain),
        ..direct.clone()
    };
    let one = TreePlan { name: "one tier", tiers: vec![api.clone(), tier("tier 1", caches(flags))], ..flat.clone() };
    let two = TreePlan {
        name: "two tiers",
        tiers: vec![api, tier("tier 1", flags.relays), tier("tier 2", caches(flags))],
        ..flat.clone()
    };
    let mut trees = vec![direct, flat, one, two];
    for tree in &mut trees {
        set_bookmarks(tree);
    }
    trees
}

fn set_bookmarks(tree: &mut TreePlan) {
    let covered = tree.tiers.iter().skip(1).map(|tier| tier.window).min().unwrap_or(Nanos::MAX);
    let is_low = covered < COVERAGE_LOW;
    tree.bookmark = if is_low { (covered / 3).max(BOOKMARK_PERIOD_MIN) } else { BOOKMARK_PERIOD };
}

/// The tree for one type that every agent reads whole, such as EndpointSlices: one event a second.
fn shared(plan: TreePlan) -> Scenario {
    let plan = TreePlan { is_scoped: false, rate: 1.0, is_paced: true, bytes: 5_000.0, ..plan };
    Scenario { plan, restart: None, time: 10 * SECOND, note: SHARED }
}

/// Note of the scenarios with a type that every agent reads whole.
pub(crate) const SHARED: &str = "shared";

/// Every tree undisturbed, then the restarts of its tiers.
pub(crate) fn scenarios(flags: &Flags, measured: &Measurements) -> Vec<Scenario> {
    let trees = trees(flags, measured);
    let time = micros(flags.seconds * 1e6);
    let steady = trees.iter().map(|plan| Scenario { plan: plan.clone(), restart: None, time, note: "" });
    let mut all: Vec<Scenario> = steady.collect();
    all.extend(trees.iter().map(|plan| shared(plan.clone())));
    let load = micros(flags.load_micros * (flags.nodes * flags.pods_per_node) as f64);
    for plan in &trees {
        for tier in 0..=plan.tiers.len() {
            let is_leaf = tier == plan.tiers.len();
            // Tiers above the caches on the nodes change little for their restart.
            if is_leaf && (plan.node_cache.is_none() || plan.tiers.len() > 1) {
                continue;
            }
            let down = micros(1e6 * if tier == 0 { flags.api_down_seconds } else { flags.down_seconds });
            // One member restarts in trees of at most one tier.
            let has_single = !is_leaf && plan.tiers.len() < 3;
            for is_whole in [false, true].into_iter().filter(|is_whole| *is_whole || has_single) {
                for is_warm in if tier == 0 { vec![false] } else { vec![true, false] } {
                    let restart = Restart { tier, is_whole, is_warm, down, load, refuses: false };
                    all.push(Scenario { plan: plan.clone(), restart: Some(restart), time, note: "" });
                }
            }
        }
    }
    let first_tier = |restart: Restart| restart.tier == 1 && !restart.is_whole;
    let variants: Vec<Scenario> = all.iter().filter(|one| one.plan.tiers.len() == 2).cloned().collect();
    for mut variant in variants {
        let Some(restart) = variant.restart.as_mut().filter(|restart| first_tier(**restart)) else { continue };
        if restart.is_warm {
            for tier in variant.plan.tiers.iter_mut().skip(1) {
                tier.window = coverage(flags, SMALL_WINDOW_MIB);
            }
            set_bookmarks(&mut variant.plan);
            variant.note = ", window of 64 MiB";
        } else {
            restart.refuses = true;
            variant.note = ", refusing while it fills";
        }
        all.push(variant);
    }
    all
}
