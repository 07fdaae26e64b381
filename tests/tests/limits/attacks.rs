//! Attacks on a server, with an honest client beside each attack.
//!
//! Goal: whatever one client sends, the server stays up, stays within a memory bound, serves other clients, and ends on
//! SIGTERM. Method: a release build with `ATTACKS=all` also checks the honest client's p99 and maximum. Without it each
//! attack runs at a fraction of its size, so that a debug build on a busy machine detects hangs and growth.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "what fails here fails the test, and it reports")]

mod bodies;
mod floods;
mod frames;
mod honest;
mod types;

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, FutureExt as _};
use honest::{Honest, Took};
use tests::process::Server;
use tokio::time::{sleep, timeout};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Bound on the server's growth during any attack, in MiB: the budget of bodies, windows, and the stored objects that
/// the attack created.
const GROWTH_MIB_MAX: u64 = 640;

/// Bounds on the latency of an honest GET or PUT on two cores during any one attack.
const P99_MAX: Duration = Duration::from_millis(250);
const MOST_MAX: Duration = Duration::from_secs(1);

/// Bound on the latency of an honest request in every build.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// Time from SIGTERM to the end: the grace period, plus a margin for busy machines.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Size of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
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

type Attack = fn(&Server, Size) -> BoxFuture<'_, ()>;

/// Every attack by name.
const ATTACKS: &[(&str, Attack)] = &[
    ("amplified JSON", |server, size| bodies::amplified_json(server, size).boxed()),
    ("amplified merge patch", |server, size| bodies::amplified_patch(server, size).boxed()),
    ("amplified protobuf", |server, size| bodies::amplified_protobuf(server, size).boxed()),
    ("large posts", |server, size| bodies::large_posts(server, size).boxed()),
    ("held bodies", |server, size| bodies::held(server, size).boxed()),
    ("definitions that are wrong everywhere", |server, size| bodies::wrong_everywhere(server, size).boxed()),
    ("unfinished heads", |server, size| bodies::unfinished_heads(server, size).boxed()),
    ("connects", |server, size| bodies::connects(server, size).boxed()),
    ("garbage", |server, size| bodies::garbage(server, size).boxed()),
    ("wide rows", |server, size| types::wide_rows(server, size).boxed()),
    ("definitions that come and go", |server, size| types::definitions_churn(server, size).boxed()),
    ("many versions", |server, size| types::many_versions(server, size).boxed()),
    ("long selectors", |server, size| types::long_selectors(server, size).boxed()),
    ("false deletion marks", |server, size| types::false_marks(server, size).boxed()),
    ("many namespaces", |server, size| types::many_namespaces(server, size).boxed()),
    ("rapid reset", |server, size| frames::rapid_reset(server, size).boxed()),
    ("delayed resets", |server, size| frames::delayed_resets(server, size).boxed()),
    ("resets behind the head", |server, size| frames::resets_behind_the_head(server, size).boxed()),
    ("HTTP/2 floods", |server, size| frames::floods(server, size).boxed()),
    ("trailers", |server, size| frames::trailers(server, size).boxed()),
    ("endless heads", |server, size| frames::continuation(server, size).boxed()),
    ("held streams", |server, size| frames::held_streams(server, size).boxed()),
    ("shut windows", |server, size| frames::shut_windows(server, size).boxed()),
    ("narrow windows", |server, size| frames::narrow_windows(server, size).boxed()),
];

/// Timeout of an attack, including its own responses.
const ATTACK_ENDS: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_survives_each_attack_and_serves_others_meanwhile() {
    let wanted = std::env::var("ATTACKS").unwrap_or_default();
    let size = if wanted.is_empty() { Size::Small } else { Size::Full };
    let chosen = |name: &str| size == Size::Small || wanted == "all" || wanted == name;
    println!("| attack | s | CPU s | RSS MiB before / most / after | requests | median ms | p99 ms | max ms |");
    println!("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |");
    let mut missed = Vec::new();
    for (name, attack) in ATTACKS.iter().filter(|(name, _)| chosen(name)) {
        missed.extend(suffer(name, *attack, size).await);
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Runs one attack against a fresh server. Returns the violated bounds.
async fn suffer(name: &str, attack: Attack, size: Size) -> Vec<String> {
    let server = Server::start(BINARY, &["--populate", "pods=500,nodes=10,namespaces=5,seed=1"]).await;
    let honest = Honest::start(server.client()).await;
    sleep(Duration::from_millis(300)).await;
    let (before, cpu, begun) = (mib(&server), server.cpu_time(), Instant::now());
    let mut most = before;
    // Catch a panic of one attack, so that the others still run.
    let mut running = AssertUnwindSafe(attack(&server, size)).catch_unwind();
    let finished = timeout(ATTACK_ENDS, async {
        loop {
            tokio::select! {
                done = &mut running => return done.is_ok(),
                () = sleep(Duration::from_millis(20)) => most = most.max(mib(&server)),
            }
        }
    });
    let finished = finished.await;
    // A timed-out attack must not continue during the shutdown.
    drop(running);
    let (took, seconds) = (honest.stop().await, begun.elapsed());
    let (after, cpu) = (mib(&server), server.cpu_time() - cpu);
    let ended = end(server).await;
    report(name, [seconds, cpu], [before, most, after], took);
    let mut missed = Vec::new();
    let mut hold = |holds: bool, what: String| {
        if !holds {
            missed.push(format!("{name}: {what}"));
        }
    };
    hold(finished.is_ok(), format!("no end within {ATTACK_ENDS:?}"));
    hold(finished.unwrap_or(true), "not the answers that were due".to_owned());
    hold(most - before <= GROWTH_MIB_MAX, format!("{} MiB more", most - before));
    hold(took.most <= ANSWERS_WITHIN, format!("an honest request took {:?}", took.most));
    hold(ended.is_ok(), format!("SIGTERM: {ended:?}"));
    if size == Size::Full && !cfg!(debug_assertions) {
        hold(took.p99 <= P99_MAX, format!("honest p99 {:?}", took.p99));
        hold(took.most <= MOST_MAX, format!("honest maximum {:?}", took.most));
    }
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

fn report(name: &str, [seconds, cpu]: [Duration; 2], [before, most, after]: [u64; 3], took: Took) {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    println!(
        "| {name} | {:.1} | {:.1} | {before} / {most} / {after} | {} | {} | {} | {} |",
        seconds.as_secs_f64(),
        cpu.as_secs_f64(),
        took.requests,
        ms(took.median),
        ms(took.p99),
        ms(took.most)
    );
}
