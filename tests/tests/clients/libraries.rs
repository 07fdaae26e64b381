//! Third-party client libraries in several languages against the built server.
//!
//! Goal: they cannot distinguish it from kube-apiserver. Method: `tests/clients/` holds a small program for each
//! library. It keeps a copy of the objects that match a selector and prints the events of its library. A proxy between
//! the program and the server breaks connections while the test writes 2,000 seeded changes to the server. The test
//! compares the output with the history that it wrote: the copy equals the server's state, and between relists every
//! matching change came once and in order. The proxy counts relists: a client makes one for a 410, and none for a
//! broken connection.
//!
//! A program that cannot be built or installed here is skipped with one line, except under `CI`.

pub(crate) mod check;
mod follow;
pub(crate) mod history;
pub(crate) mod kube_rs;

use fastrand::Rng;

use super::{faults::Fault, programs::Program};
use check::Rule;
use follow::{Client, follow};

/// Connections break in every way, in seeded order: cut at any byte, ended, refused, or ended by a 410.
fn every_fault(seed: u64, expired: usize) -> Vec<Fault> {
    faults(seed, &[Fault::End, Fault::Refuse], &vec![vec![Fault::Expire]; expired])
}

/// Like [`every_fault`], without refused connections: client-go's reflector treats a watch that ends within a second
/// and without an event as an error, and lists again (`tools/cache/reflector.go`, "very short watch").
fn all_but_refusals(seed: u64, expired: usize) -> Vec<Fault> {
    faults(seed, &[Fault::End], &vec![vec![Fault::Expire]; expired])
}

/// Cuts and other faults in random order. The first fault and the one after each 410 are cuts, because a stream that
/// begins with initial state can only be cut.
pub(crate) fn faults(seed: u64, others: &[Fault], expiring: &[Vec<Fault>]) -> Vec<Fault> {
    let mut random = Rng::with_seed(seed);
    let mut units: Vec<Vec<Fault>> = (0..6).map(|_| vec![Fault::cut(&mut random)]).collect();
    units.extend(others.iter().map(|fault| vec![*fault]));
    units.extend(expiring.iter().map(|unit| [unit.as_slice(), &[Fault::cut(&mut random)]].concat()));
    random.shuffle(&mut units);
    units.insert(0, vec![Fault::cut(&mut random)]);
    units.concat()
}

async fn client_go(mode: &str, streams: &str, seed: u64) {
    let Some(program) = Program::ready("client-go") else { return };
    let program = program.argument(mode).environment("KUBE_FEATURE_WatchListClient", streams);
    // Each relist doubles the delay before it; two relists take six seconds at most.
    let client = Client { program, rule: Rule::Everything, faults: all_but_refusals(seed, 2), seed };
    let summary = follow(client).await;
    let asks = |word: &str| summary.initial_reads.iter().filter(|line| line.contains(word)).count();
    let expected = if streams == "true" { summary.initial_reads.len() } else { 0 };
    assert_eq!(asks("sendInitialEvents=true"), expected, "{:?}", summary.initial_reads);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_informer_of_client_go_that_lists_and_watches() {
    client_go("typed", "false", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_informer_of_client_go_that_streams_its_state() {
    client_go("typed", "true", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_informer_of_client_go_that_lists_and_watches_in_protobuf() {
    client_go("protobuf", "false", 31).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_informer_of_client_go_that_streams_its_state_in_protobuf() {
    client_go("protobuf", "true", 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gos_dynamic_client_that_streams_its_state() {
    client_go("dynamic", "true", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gos_metadata_client_that_lists_and_watches() {
    client_go("metadata", "false", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gos_metadata_client_that_streams_its_state() {
    client_go("metadata", "true", 5).await;
}

/// The `RetryWatcher` waits a second before each new watch and stops at a 410; the program then lists and starts
/// another.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_watcher_of_client_go() {
    let Some(program) = Program::ready("client-go") else { return };
    let program = program.argument("retry-watcher");
    follow(Client { program, rule: Rule::States, faults: every_fault(6, 2), seed: 6 }).await;
}

/// A first 410 makes its `Watch` retry from the same position, so every 410 comes twice in a row.
fn twice_expired(seed: u64) -> Vec<Fault> {
    faults(seed, &[Fault::End, Fault::Refuse], &vec![vec![Fault::Expire; 2]; 2])
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_list_and_watch() {
    let Some(program) = Program::ready("python") else { return };
    follow(Client { program: program.argument("0"), rule: Rule::States, faults: twice_expired(7), seed: 7 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_paged_list_and_watch() {
    let Some(program) = Program::ready("python") else { return };
    let client = Client { program: program.argument("7"), rule: Rule::States, faults: twice_expired(8), seed: 8 };
    let summary = follow(client).await;
    assert!(summary.pages > 2, "{} further pages", summary.pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn javascripts_informer() {
    let Some(program) = Program::ready("javascript") else { return };
    follow(Client { program, rule: Rule::Differences, faults: every_fault(9, 3), seed: 9 }).await;
}

/// Its informer watches over WebSockets by default.
async fn fabric8(watches: &str, seed: u64) {
    let Some(program) = Program::ready("java") else { return };
    let program = program.argument("Fabric8").argument(watches);
    follow(Client { program, rule: Rule::Differences, faults: every_fault(seed, 2), seed }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_fabric8_over_websockets() {
    fabric8("websocket", 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_fabric8_over_http() {
    fabric8("http", 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_informer_of_client_java() {
    let Some(program) = Program::ready("java") else { return };
    let program = program.argument("ClientJava");
    follow(Client { program, rule: Rule::EachObject, faults: every_fault(12, 2), seed: 12 }).await;
}
