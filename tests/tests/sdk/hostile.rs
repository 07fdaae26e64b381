//! The SDK against servers that break the protocol in every known way: it does not panic, sends no more requests than
//! allowed, subscriptions agree with the store, and the copy is correct once the server recovers.
//!
//! A subset runs with all tests. `HOSTILE=all` runs every scenario for `HOSTILE_SECONDS` (60), about twenty minutes;
//! `HOSTILE=s429,watch_` runs those whose name contains one of these.

#![expect(clippy::unwrap_used, reason = "a harness that fails is a test that fails")]

mod faults;
mod judge;
mod server;
mod world;

use std::{
    collections::BTreeMap,
    env,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use informer::{Cluster, Informer, InitialList, ObjectView};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::{sleep, timeout};

use self::{
    faults::{FAULTS, Fault},
    judge::{Replica, states},
    server::{ReadKind, Server},
    world::World,
};

/// One run of a fault.
struct Scenario {
    fault: &'static Fault,
    start: bool,
    paged: bool,
}

impl Scenario {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for fault in FAULTS {
            let of = |start, paged| Self { fault, start, paged };
            if fault.list.is_some() {
                // Clients list only at a start, and in pages.
                all.push(of(true, true));
                continue;
            }
            all.push(of(false, false));
            if fault.starts {
                all.extend([of(true, false), of(true, true)]);
            }
        }
        all
    }

    fn name(&self) -> String {
        let (start, paged) = (if self.start { "_start" } else { "" }, if self.paged { "_paged" } else { "" });
        format!("{}{start}{paged}", self.fault.name)
    }
}

/// Scenarios of every test run: one for each kind of fault, and only those that converge within seconds.
const ALWAYS: [&str; 14] = [
    "refused",
    "rst_accept_start",
    "s429_retry_after_date",
    "s503_start",
    "s200_html",
    "chunk_reset",
    "error_410",
    "error_null",
    "type_last",
    "some_deep_start",
    "some_null",
    "list_with_null_start_paged",
    "compacted",
    "history_lower",
];

fn chosen() -> (Vec<Scenario>, Duration) {
    let seconds = |least: u64| env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(least);
    let Ok(wanted) = env::var("HOSTILE") else {
        let always = |scenario: &Scenario| ALWAYS.contains(&&*scenario.name());
        return (Scenario::all().into_iter().filter(always).collect(), Duration::from_secs(seconds(2)));
    };
    let parts: Vec<&str> = wanted.split(',').collect();
    let is_wanted = |scenario: &Scenario| {
        wanted == "all" || parts.iter().any(|part| !part.is_empty() && scenario.name().contains(part))
    };
    (Scenario::all().into_iter().filter(is_wanted).collect(), Duration::from_secs(seconds(60)))
}

/// Number of concurrent scenarios; they mostly wait.
const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_survives_every_hostile_server_and_is_right_afterwards() {
    let (scenarios, hostile_for) = chosen();
    assert!(!scenarios.is_empty(), "no scenario has such a name");
    let count = scenarios.len();
    let outcomes = stream::iter(scenarios).map(|scenario| async move {
        let name = scenario.name();
        // A separate task turns a panic into a failure of this scenario only.
        let outcome = tokio::spawn(async move { run(&scenario, hostile_for).await }).await;
        let outcome = outcome.unwrap_or_else(|panic| Err(panic.to_string()));
        println!("{name}: {}", outcome.as_ref().map_or_else(|why| format!("FAILED {why}"), Clone::clone));
        outcome.err().map(|why| format!("{name}: {why}"))
    });
    let failures: Vec<String> = outcomes.buffer_unordered(AT_ONCE).filter_map(|it| async { it }).collect().await;
    assert!(failures.is_empty(), "{} of {count} scenarios: {failures:#?}", failures.len());
}

#[test]
fn every_scenario_has_a_name_of_its_own_and_those_of_every_run_exist() {
    let names: Vec<String> = Scenario::all().iter().map(Scenario::name).collect();
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.len() >= 135, "{} scenarios", names.len());
    for always in ALWAYS {
        assert!(names.iter().any(|name| name == always), "{always}");
    }
}

/// Runs one scenario. Returns a summary, or what is wrong.
async fn run(scenario: &Scenario, hostile_for: Duration) -> Result<String, String> {
    let server = Server::start(7).await;
    if scenario.start {
        server.turn_hostile(scenario.fault);
    }
    let maps = start(&server, scenario.paged);
    let (latest, all) = (Replica::follow(maps.subscribe()), Replica::follow(maps.subscribe_all(4_096)));
    if !scenario.start {
        maps.ready(Duration::from_secs(20)).await.map_err(|error| format!("before it was hostile: {error}"))?;
        server.turn_hostile(scenario.fault);
    }
    let began = Instant::now();
    while began.elapsed() < hostile_for {
        sleep(Duration::from_millis(100)).await;
        server.write(World::step);
        if !maps.is_running() {
            return Err(format!("it ended after {:?}", began.elapsed()));
        }
    }
    let requests = most_in_a_minute(&server, began);
    server.behave();
    let behaved = Instant::now();
    if scenario.fault.touches {
        server.write(World::touch);
    }
    // Keep writing for a while.
    for _ in 0..20 {
        sleep(Duration::from_millis(50)).await;
        server.write(World::step);
    }
    let deadline = behaved + Duration::from_secs(scenario.fault.converges);
    while contents(&maps) != server.state().world.truth() {
        if Instant::now() > deadline {
            let (have, want) = (contents(&maps).len(), server.state().world.truth().len());
            return Err(format!(
                "{have} objects, not the {want} there are, {:?} later: {}",
                behaved.elapsed(),
                maps.explain()
            ));
        }
        sleep(Duration::from_millis(50)).await;
    }
    if requests > scenario.fault.requests_max {
        return Err(format!("{requests} requests in a minute: {}", log_of_requests(&server, began)));
    }
    let converged = async {
        while [&latest, &all].iter().any(|replica| replica.objects() != states(&maps)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = timeout(Duration::from_secs(10), converged).await;
    for (name, replica) in [("subscribe", &latest), ("subscribe_all", &all)] {
        if let Some(wrong) = replica.wrong().first() {
            return Err(format!("{name} was told {wrong}"));
        }
        if replica.objects() != states(&maps) {
            return Err(format!("{name} was told something else than the store holds"));
        }
    }
    let stats = maps.stats();
    let line = format!(
        "right after {:?}, {requests} requests in a minute, {} skipped, {} syncs",
        behaved.elapsed(),
        stats.skipped,
        stats.reflector.syncs
    );
    maps.stop().await;
    Ok(line)
}

/// Starts an informer with shorter timeouts than in production, so that stalled requests end within a run. Backoff is
/// as in production.
fn start(server: &Server, paged: bool) -> Informer<ConfigMap> {
    let config = kube::Config::new(server.url().parse().unwrap());
    let declared = Cluster::try_from(config).unwrap().informer::<ConfigMap>().config(|config| {
        config.idle_timeout = Duration::from_secs(8);
        config.headers_timeout = Duration::from_secs(8);
        config.initial_events_stall = Duration::from_secs(4);
    });
    let initial = if paged { InitialList::Paged } else { InitialList::Auto };
    declared.initial_list(initial).page_size(15).start().unwrap()
}

/// Names and values in the store.
fn contents(maps: &Informer<ConfigMap>) -> BTreeMap<String, u64> {
    let value = |object: &ObjectView<'_, ConfigMap>| object.field("data.value").and_then(|text| text.parse().ok());
    let all = maps.store().snapshot();
    all.iter().map(|object| (object.name().to_owned(), value(&object).unwrap_or(u64::MAX))).collect()
}

/// The requests, with the seconds since the server turned hostile.
fn log_of_requests(server: &Server, since: Instant) -> String {
    let state = server.state();
    let asked = state.requests.iter().filter(|(at, _)| *at >= since);
    let asked = asked.map(|(at, asked)| format!("{:.1} {asked:?}", (*at - since).as_secs_f64()));
    asked.collect::<Vec<_>>().join(", ")
}

/// The highest number of requests in any minute, without the further pages of lists.
fn most_in_a_minute(server: &Server, since: Instant) -> usize {
    let state = server.state();
    let counted = state.requests.iter().filter(|(at, asked)| *at >= since && *asked != ReadKind::Page);
    let times: Vec<Instant> = counted.map(|(at, _)| *at).collect();
    let minute = Duration::from_secs(60);
    let within = |first: &Instant| times.iter().filter(|at| *at >= first && **at < *first + minute).count();
    times.iter().map(within).max().unwrap_or_default()
}
