//! Runs the table of LIST and WATCH against every implementation of the protocol: the server's binary over a socket,
//! the SDK's fake API server behind a listener, and the model API server of the seeded worlds.

use std::collections::BTreeSet;

use futures::future::join_all;
use tests::table::{self, Peer, Who};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Number of concurrent groups, each with its own server.
const AT_ONCE: usize = 6;

/// Requests of the table that a reflector can send: without selectors, forms or refused options.
const ROWS_OF_THE_MODEL_MIN: usize = 100;

async fn all_rows_hold(who: Who) {
    let groups: Vec<_> = table::groups().collect();
    let mut wrong = Vec::new();
    for some in groups.chunks(AT_ONCE) {
        let runs = some.iter().map(|group| async move {
            let peer = Peer::start(who, BINARY).await;
            table::run(group, peer.client(), who).await
        });
        wrong.extend(join_all(runs).await.into_iter().flatten());
    }
    assert!(wrong.is_empty(), "{} rows of {who:?}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn the_server_keeps_every_row() {
    all_rows_hold(Who::CacheServer).await;
}

#[tokio::test]
async fn the_fake_server_keeps_every_row() {
    all_rows_hold(Who::Fake).await;
}

#[test]
fn the_model_of_the_seeded_worlds_keeps_every_row_that_a_reflector_can_send() {
    let runs: Vec<_> = table::groups().map(table::run_model).collect();
    let wrong: Vec<&str> = runs.iter().flat_map(|(_, wrong)| wrong).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} rows of the model:\n{}", wrong.len(), wrong.join("\n"));
    // A change of the notation must not skip rows unnoticed.
    let rows: usize = runs.iter().map(|(rows, _)| rows).sum();
    assert!(rows >= ROWS_OF_THE_MODEL_MIN, "{rows}");
}

#[test]
fn every_row_claims_something_of_its_own() {
    let claims: Vec<_> =
        table::groups().flat_map(|group| group.cases.iter().map(|case| (group.about, case.claim))).collect();
    assert_eq!(claims.iter().collect::<BTreeSet<_>>().len(), claims.len());
    assert!(claims.len() >= 60, "{}", claims.len());
}
