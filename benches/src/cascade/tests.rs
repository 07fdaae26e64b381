//! Conservation: events, requests and time in small trees.

use super::{
    costs::Costs,
    world::{MICRO, MILLI, Nanos, Requests, Restart, SECOND, TierPlan, TreePlan, World, micros},
};

const COSTS: Costs = Costs {
    receive: 40.0,
    apply: 3.0,
    round: 20.0,
    wake: 7.0,
    event: 0.5,
    byte: 0.0003,
    connect: 60.0,
    proof: 11.0,
    object: 2.0,
    connection: 2.0,
    has_pauses: true,
};
const HOP: Nanos = 250 * MICRO;
const AGENTS: usize = 5;

fn tree(seed: u64) -> TreePlan {
    let tier = |name, members, window| TierPlan { name, members, cores: 4, costs: COSTS, window };
    TreePlan {
        name: "tree",
        tiers: vec![
            tier("API servers", 3, 75 * SECOND),
            tier("tier 1", 2, 200 * SECOND),
            tier("tier 2", 4, 200 * SECOND),
        ],
        nodes: 200,
        pods_per_node: 30,
        leaves_per_node: 1,
        agents_per_leaf: AGENTS,
        node_cache: Some(COSTS),
        is_scoped: true,
        rate: 300.0,
        burst: 1,
        is_paced: false,
        bytes: 5_000.0,
        hop: HOP,
        bookmark: 60 * SECOND,
        shared: 0.0,
        has_lists: false,
        seed,
    }
}

fn restart(tier: usize, is_whole: bool, is_warm: bool) -> Restart {
    Restart { tier, is_whole, is_warm, down: 5 * SECOND, load: SECOND, refuses: false }
}

fn run(plan: TreePlan, restart: Option<Restart>) -> World {
    let mut world = World::new(plan);
    match restart {
        Some(restart) => world.run_restart(restart, 600 * SECOND),
        None => world.run(10 * SECOND),
    }
    world
}

fn requests(world: &World) -> Vec<Requests> {
    world.sums.iter().map(|sums| sums.requests).collect()
}

#[test]
fn every_agent_sees_every_event_of_its_node_once() {
    for seed in 0..5 {
        let world = run(tree(seed), None);
        assert!(world.agent_events.iter().sum::<usize>() > 2_000 * AGENTS);
        assert_eq!(world.wrong_agents(), 0, "seed {seed}");
        assert_eq!(requests(&world), vec![Requests::default(); 4], "an undisturbed tree sends no request");
    }
}

#[test]
fn no_event_is_faster_than_its_hops_and_costs() {
    let plan = tree(1);
    let world = run(plan.clone(), None);
    let hops = plan.tiers.len() as u64;
    let cost = 3.0 * (COSTS.apply + COSTS.wake) + 3.0 * COSTS.receive;
    assert!((hops * HOP + micros(cost)) / MICRO <= world.staleness.min());
    assert!(world.staleness.max() < 100 * MILLI / MICRO, "and none waits: {}", world.staleness.max());
    let medians: Vec<u64> = world.sums.iter().map(|sums| sums.staleness.value_at_quantile(0.5)).collect();
    assert!(medians.is_sorted(), "each tier is later than the one before it: {medians:?}");
}

#[test]
fn a_tier_with_saved_state_costs_resumes_only() {
    for (seed, tier, is_whole) in [(1, 1, false), (2, 1, true), (3, 2, false), (4, 2, true), (5, 3, true)] {
        let mut plan = tree(seed);
        // A resume stays a resume where initial state would be a list.
        plan.has_lists = true;
        let world = run(plan, Some(restart(tier, is_whole, true)));
        assert!(world.recovery().is_some(), "tier {tier} is current again");
        assert_eq!(world.wrong_agents(), 0, "tier {tier}: nothing is lost, nothing comes twice");
        let all = requests(&world);
        assert!(all.iter().all(|one| (one.initial, one.lists, one.expired) == (0, 0, 0)), "tier {tier}: {all:?}");
        assert!(all[tier - 1].resumes > 0);
    }
}

/// Every broken connection opens again once, so the number of resumes is that of the connections.
#[test]
fn each_client_of_a_restarted_tier_resumes_once() {
    let world = run(tree(1), Some(restart(2, true, true)));
    assert_eq!(requests(&world)[2].resumes, 200);
    assert_eq!(requests(&world)[1].resumes, 4, "the tier itself");
    assert_eq!(requests(&world)[0], Requests::default());
    assert_eq!(requests(&world)[2].proofs, 200);
}

#[test]
fn a_tier_without_state_reads_it_again_and_so_does_everything_below() {
    let mut plan = tree(1);
    plan.has_lists = true;
    // A tier reads its state for longer than this.
    plan.bookmark = 20 * MILLI;
    let world = run(plan, Some(restart(1, true, false)));
    assert_eq!(world.wrong_agents(), 0);
    let all = requests(&world);
    assert_eq!((all[0].lists, all[0].initial), (2, 0), "tier 1 lists");
    assert_eq!((all[1].initial, all[1].expired), (4, 4), "tier 2 lost its positions");
    assert_eq!((all[2].initial, all[2].expired), (200, 200), "and the node caches");
    assert_eq!(all[3].initial, 200 * AGENTS as u64, "and the agents");
    let objects = 200.0 * 30.0;
    assert!((world.sums[0].initial_bytes_out - 2.0 * objects * 5_000.0).abs() < 1.0);
}

#[test]
fn a_member_of_the_api_servers_leaves_positions_and_the_last_one_does_not() {
    let one = run(tree(1), Some(restart(0, false, false)));
    assert_eq!((one.wrong_agents(), requests(&one)[0].initial), (0, 0));
    let all = run(tree(1), Some(restart(0, true, false)));
    assert_eq!((all.wrong_agents(), requests(&all)[0].initial), (0, 2));
    let below: Vec<u64> = requests(&all)[1..].iter().map(|tier| tier.initial).collect();
    assert_eq!(below, [4, 200, 200 * AGENTS as u64], "positions of the old epoch are lost everywhere");
}

#[test]
fn a_window_shorter_than_the_restart_costs_relists() {
    let mut plan = tree(1);
    for tier in &mut plan.tiers {
        tier.window = 3 * SECOND;
    }
    plan.bookmark = SECOND;
    let world = run(plan, Some(restart(2, true, true)));
    assert_eq!(world.wrong_agents(), 0);
    assert!(requests(&world)[2].expired > 0, "{:?}", requests(&world));
}

#[test]
fn a_seed_repeats_its_run() {
    let outcome = |seed| {
        let world = run(tree(seed), Some(restart(1, true, false)));
        (requests(&world), world.recovery(), world.staleness.max(), world.agent_events)
    };
    assert_eq!(outcome(7), outcome(7));
    assert_ne!(outcome(7), outcome(8));
}
