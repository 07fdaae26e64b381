//! Attacks on a server by ordinary users and by callers without credentials, with honest clients beside each attack.
//!
//! Goal: whatever one client sends, the server stays up, stays within a memory bound, serves other clients, and ends on
//! SIGTERM. Method: the server authenticates tokens and authorizes by roles, so that flow control and shares concern all
//! callers; the attacker is a process of its own. A release build with `ATTACKS=all` also checks the honest clients' p99 and
//! maximum, and prints the table of `docs/limits.md`. Without it each attack runs at a fraction of its size, so that a debug
//! build on a busy machine detects hangs and growth.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "what fails here fails the test, and it reports")]

mod bodies;
mod floods;
mod frames;
mod honest;
mod seats;
mod types;
mod victim;
mod world;

use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt as _};
use honest::{Honest, Took};
use tests::process::Server;
use tokio::time::{sleep, timeout};
use victim::{Victim, WAYS, Way};
use world::World;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Bound on the latency of an honest GET or PUT, and of a renewal, on two cores during any one attack.
const P99_MAX: Duration = Duration::from_millis(250);
const MOST_MAX: Duration = Duration::from_secs(1);

/// Tries of an attack that misses such a bound: other programs on the machine delay the honest clients, too.
const TRIES: usize = 3;

/// Bound on the latency of an honest request in every build.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// Time from SIGTERM to the end: the grace period, plus a margin for busy machines.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Time for the honest clients before the attack.
const QUIET: Duration = Duration::from_secs(1);

/// Size of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    Small,
}

impl Size {
    fn of(self, full: usize, small: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Small => small,
        }
    }
}

/// The callers that attack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// Callers without credentials.
    Nobody,
    /// Users that may do everything, but are not exempt from flow control.
    Users,
    /// A user that administers one namespace.
    Owner,
}

/// An attack.
struct Attack {
    name: &'static str,
    run: fn(&Victim, Size) -> BoxFuture<'_, ()>,
    by: By,
    /// Bound on the server's growth, in MiB.
    growth: u64,
    /// Pods on the server, in a full attack.
    pods: usize,
    ways: &'static [Way],
}

/// Growth by the budget of bodies, windows, and the stored objects that the attack created.
const BODIES: u64 = 640;

/// Growth by connections and unread responses.
const UNREAD: u64 = 64;

const fn attack(name: &'static str, by: By, growth: u64, run: fn(&Victim, Size) -> BoxFuture<'_, ()>) -> Attack {
    Attack { name, run, by, growth, pods: 500, ways: WAYS.first_chunk::<1>().expect("a way").as_slice() }
}

impl Attack {
    const fn on_all_ways(self) -> Self {
        Self { ways: &WAYS, ..self }
    }

    const fn among_pods(self) -> Self {
        Self { pods: 7_130, ..self }
    }
}

/// Every attack.
const ATTACKS: &[Attack] = &[
    attack("amplified JSON", By::Users, BODIES, |at, size| bodies::amplified_json(at, size).boxed()),
    attack("amplified merge patch", By::Users, BODIES, |at, size| bodies::amplified_patch(at, size).boxed()),
    attack("amplified protobuf", By::Users, BODIES, |at, size| bodies::amplified_protobuf(at, size).boxed()),
    attack("large posts", By::Users, BODIES, |at, size| bodies::large_posts(at, size).boxed()),
    attack("held bodies", By::Users, BODIES, |at, size| bodies::held(at, size).boxed()),
    attack("definitions wrong everywhere", By::Users, BODIES, |at, size| bodies::wrong_everywhere(at, size).boxed()),
    attack("unfinished heads", By::Nobody, BODIES, |at, size| bodies::unfinished_heads(at, size).boxed()),
    attack("connects", By::Nobody, UNREAD, |at, size| bodies::connects(at, size).boxed()),
    attack("garbage", By::Nobody, UNREAD, |at, size| bodies::garbage(at, size).boxed()),
    attack("wide rows", By::Users, BODIES, |at, size| types::wide_rows(at, size).boxed()),
    attack("definitions that come and go", By::Users, BODIES, |at, size| types::definitions_churn(at, size).boxed()),
    attack("many versions", By::Users, BODIES, |at, size| types::many_versions(at, size).boxed()),
    attack("long selectors", By::Users, BODIES, |at, size| types::long_selectors(at, size).boxed()),
    attack("false deletion marks", By::Users, BODIES, |at, size| types::false_marks(at, size).boxed()),
    attack("many namespaces", By::Users, BODIES, |at, size| types::many_namespaces(at, size).boxed()),
    attack("rapid reset", By::Users, UNREAD, |at, size| frames::rapid_reset(at, size).boxed()),
    attack("delayed resets", By::Users, UNREAD, |at, size| frames::delayed_resets(at, size).boxed()),
    attack("resets behind the head", By::Users, UNREAD, |at, size| frames::resets_behind_the_head(at, size).boxed()),
    attack("HTTP/2 floods", By::Users, UNREAD, |at, size| frames::floods(at, size).boxed()),
    attack("trailers", By::Users, UNREAD, |at, size| frames::trailers(at, size).boxed()),
    attack("endless heads", By::Nobody, UNREAD, |at, size| frames::continuation(at, size).boxed()),
    attack("held streams", By::Users, UNREAD, |at, size| frames::held_streams(at, size).boxed()),
    attack("shut watches", By::Users, UNREAD, |at, size| frames::shut_watches(at, size).boxed()),
    attack("narrow windows", By::Users, UNREAD, |at, size| frames::narrow_windows(at, size).boxed()),
    attack("shut windows, no credentials", By::Nobody, UNREAD, |at, size| {
        frames::shut_windows_of_get(at, size).boxed()
    }),
    attack("shut windows of GETs", By::Users, UNREAD, |at, size| frames::shut_windows_of_get(at, size).boxed()),
    attack("shut windows of lists", By::Users, UNREAD, |at, size| frames::shut_windows_of_lists(at, size).boxed())
        .among_pods(),
    attack("shut windows of watches", By::Users, UNREAD, |at, size| frames::shut_windows_of_watches(at, size).boxed()),
    attack("slowloris, 1,000", By::Nobody, UNREAD, |at, size| floods::slowloris(at, size).boxed()).on_all_ways(),
    attack("64 bodies of 1 GB", By::Users, UNREAD, |at, size| floods::endless_bodies(at, size).boxed()).on_all_ways(),
    attack("32 bodies of 3 MiB", By::Users, UNREAD, |at, size| floods::large_bodies(at, size).boxed()).on_all_ways(),
    attack("100 hostile tables", By::Users, UNREAD, |at, size| floods::tables(at, size).boxed()).on_all_ways(),
    attack("multiplied roles", By::Owner, UNREAD, |at, size| seats::multiplied_roles(at, size).boxed()),
    attack("600 empty watches", By::Users, UNREAD, |at, size| seats::empty_watches(at, size).boxed()).among_pods(),
    attack("1,000 unmatched watches", By::Users, UNREAD, |at, size| seats::unmatched_watches(at, size).boxed())
        .among_pods(),
    attack("16 lists as YAML", By::Users, BODIES, |at, size| seats::yaml_lists(at, size).boxed()).among_pods(),
    attack("16 lists in protobuf", By::Users, BODIES, |at, size| seats::protobuf_lists(at, size).boxed()).among_pods(),
    attack("16 lists with indentation", By::Users, BODIES, |at, size| seats::pretty_lists(at, size).boxed())
        .among_pods(),
    attack("64 lists", By::Users, BODIES, |at, size| seats::many_lists(at, size).boxed()).among_pods(),
    attack("16 selected lists", By::Users, BODIES, |at, size| seats::selected_lists(at, size).boxed()).among_pods(),
    attack("lists of 50 users", By::Users, BODIES, |at, size| seats::lists_of_users(at, size).boxed()).among_pods(),
    attack("200 unread lists", By::Users, UNREAD, |at, size| seats::unread_lists(at, size).boxed()).among_pods(),
    attack("200 lists that pause 150 ms", By::Users, UNREAD, |at, size| seats::pausing_lists(at, size).boxed())
        .among_pods(),
    attack("1,000 lists at 1 B/s", By::Users, UNREAD, |at, size| seats::trickling_lists(at, size).boxed()).among_pods(),
    attack("19,400 connections", By::Nobody, BODIES, |at, size| seats::silent_connections(at, size).boxed()),
];

/// Timeout of an attack, including its own responses.
const ATTACK_ENDS: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_survives_each_attack_and_serves_others_meanwhile() {
    let wanted = std::env::var("ATTACKS").unwrap_or_default();
    let size = if wanted.is_empty() { Size::Small } else { Size::Full };
    let chosen = |name: &str| size == Size::Small || wanted == "all" || wanted.split(';').any(|part| name == part);
    println!(
        "| attack | clients | CPU s | RSS MiB | GET median ms | GET p99 | GET max | list max | lease max | event max |"
    );
    println!("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut missed = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| chosen(attack.name)) {
        for &way in attack.ways {
            let mut still = suffer(attack, way, size).await;
            for _ in 1..if size == Size::Full { TRIES } else { 1 } {
                if !still.is_empty() {
                    still = suffer(attack, way, size).await;
                }
            }
            missed.extend(still);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Runs one attack against a fresh server. Returns the violated bounds.
async fn suffer(attack: &Attack, way: Way, size: Size) -> Vec<String> {
    let name = attack.name;
    let world = World::new(way, size.of(attack.pods, 200)).await;
    world.prepare(name, size).await;
    let server = &world.server;
    let honest = Honest::start(&world).await;
    sleep(if size == Size::Full { QUIET } else { QUIET / 5 }).await;
    let quiet = honest.stop().await;
    let honest = Honest::start(&world).await;
    let (before, cpu) = (mib(server), server.cpu_time());
    let mut most = before;
    let child = world.victim(way, attack.by).attack(name, size);
    let finished = timeout(ATTACK_ENDS, async {
        let mut running = std::pin::pin!(child.wait_with_output());
        loop {
            tokio::select! {
                done = &mut running => {
                    let done = done.unwrap();
                    return done.status.success().then_some(()).ok_or_else(|| {
                        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
                    });
                }
                () = sleep(Duration::from_millis(20)) => most = most.max(mib(server)),
            }
        }
    });
    let finished = finished.await;
    let took = honest.stop().await;
    let (after, cpu) = (mib(server), server.cpu_time() - cpu);
    report(name, way, cpu, [before, most, after], quiet, took);
    let ended = end(world.server).await;
    let mut missed = Vec::new();
    let mut hold = |holds: bool, what: String| {
        if !holds {
            missed.push(format!("{name}, {}: {what}", way.name));
        }
    };
    match finished {
        Err(_) => hold(false, format!("no end within {ATTACK_ENDS:?}")),
        Ok(finished) => hold(finished.is_ok(), format!("not the answers that were due: {finished:?}")),
    }
    // Without optimization, tasks are more than twice as large.
    let growth = attack.growth * if cfg!(debug_assertions) { 3 } else { 1 };
    hold(most - before <= growth, format!("{} MiB more", most - before));
    for (what, took) in [("GET", took.get), ("list", took.list), ("lease", took.lease), ("event", took.event)] {
        hold(took.most <= ANSWERS_WITHIN, format!("an honest {what} took {:?}", took.most));
        if size == Size::Full && !cfg!(debug_assertions) && matches!(what, "GET" | "lease") {
            hold(took.p99 <= P99_MAX && took.most <= MOST_MAX, format!("honest {what}: {took:?}"));
        }
    }
    hold(ended.is_ok(), format!("SIGTERM: {ended:?}"));
    missed
}

/// Ends the server with SIGTERM, as an operator would.
async fn end(server: Server) -> Result<(), String> {
    let begun = Instant::now();
    server.terminate();
    let ended = timeout(ENDS_WITHIN, server.ended()).await.map_err(|_| format!("alive after {ENDS_WITHIN:?}"))?;
    match ended.code {
        Some(0) => Ok(()),
        code => Err(format!("{code:?} after {:?}: {}", begun.elapsed(), ended.stderr)),
    }
}

fn mib(server: &Server) -> u64 {
    server.private_bytes() >> 20
}

fn report(name: &str, way: Way, cpu: Duration, [before, most, after]: [u64; 3], quiet: Took, took: Took) {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    println!(
        "| {name} | {} | {:.1} | {before} / {most} / {after} | {} → {} | {} → {} | {} | {} | {} | {} |",
        way.name,
        cpu.as_secs_f64(),
        ms(quiet.get.median),
        ms(took.get.median),
        ms(quiet.get.p99),
        ms(took.get.p99),
        ms(took.get.most),
        ms(took.list.most),
        ms(took.lease.most),
        ms(took.event.most),
    );
}
