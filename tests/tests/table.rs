//! The table of LIST and WATCH against both who serve the protocol here: the server's binary over a socket, and the
//! SDK's fake API server behind a listener.

use std::{collections::BTreeSet, net::SocketAddr};

use futures::future::join_all;
use hyper_util::rt::TokioIo;
use informer::testing::FakeApiServer;
use tests::{
    http::Client,
    process::Server,
    table::{self, Who},
};
use tokio::net::TcpListener;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Groups that run at once, each with a server of its own.
const AT_ONCE: usize = 6;

/// A fake server that begins where the other one does: nothing is remembered before position 1000.
async fn fake() -> SocketAddr {
    let server = FakeApiServer::new().at(1_000).expire_at(999);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let server = server.clone();
            let service = hyper::service::service_fn(move |request| {
                let server = server.clone();
                async move { server.respond(request).await }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

async fn all_rows_hold(who: Who) {
    let groups: Vec<_> = table::groups().collect();
    let mut wrong = Vec::new();
    for some in groups.chunks(AT_ONCE) {
        let runs = some.iter().map(|group| async move {
            match who {
                Who::CacheServer => {
                    let server = Server::start(BINARY, &["--first-revision", "1000"]).await;
                    table::run(group, server.client(), who).await
                }
                Who::Fake => table::run(group, Client::new(fake().await), who).await,
            }
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
