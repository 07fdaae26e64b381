//! Runs the table of LIST and WATCH against both implementations of the protocol: the server's binary over a socket,
//! and the SDK's fake API server behind a listener.

use std::collections::BTreeSet;

use futures::future::join_all;
use tests::table::{self, Peer, Who};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Number of concurrent groups, each with its own server.
const AT_ONCE: usize = 6;

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
fn every_row_claims_something_of_its_own() {
    let claims: Vec<_> =
        table::groups().flat_map(|group| group.cases.iter().map(|case| (group.about, case.claim))).collect();
    assert_eq!(claims.iter().collect::<BTreeSet<_>>().len(), claims.len());
    assert!(claims.len() >= 60, "{}", claims.len());
}
