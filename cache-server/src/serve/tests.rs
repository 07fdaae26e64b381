//! The server as an embedder sees it: start, requests, refusals, shutdown.

mod forwarding;

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
};

use super::*;
use crate::config::{AuthenticationConfig, TlsFiles};

fn config() -> Config {
    Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), grace: Duration::from_secs(5), ..Config::default() }
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// Goal: beyond loopback, callers prove who they are, over TLS. Method: each combination of settings, checked as at start.
#[test]
fn only_loopback_is_served_without_authentication() {
    let tls = || Some(TlsFiles { cert: "tls.crt".into(), key: "tls.key".into() });
    let tokens = || AuthenticationConfig { token_auth_file: Some("tokens".into()), ..AuthenticationConfig::default() };
    let anonymous = || AuthenticationConfig { insecure_anonymous: true, ..AuthenticationConfig::default() };
    for (tls, authentication, refusal) in [
        (None, AuthenticationConfig::default(), Some("callers must prove who they are, over TLS")),
        (tls(), AuthenticationConfig::default(), Some("callers must prove who they are, over TLS")),
        (None, tokens(), Some("tokens would be sent in the clear")),
        (
            None,
            AuthenticationConfig { insecure_anonymous: true, ..tokens() },
            Some("tokens would be sent in the clear"),
        ),
        (tls(), tokens(), None),
        (None, anonymous(), None),
    ] {
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            let (listen, tls, authentication) = (listen.parse().unwrap(), tls.clone(), authentication.clone());
            let checked = check_exposure(&Config { listen, tls, authentication, ..config() });
            let error = checked.err().map(|error| error.to_string());
            let is_expected = match (&error, refusal) {
                (Some(error), Some(refusal)) => error.contains(refusal) && !error.contains('\n'),
                (error, refusal) => error.is_none() && refusal.is_none(),
            };
            assert!(is_expected, "{listen}: {error:?} {refusal:?}");
        }
        assert!(check_exposure(&Config { tls, authentication, ..config() }).is_ok(), "loopback");
    }
}

#[tokio::test]
async fn a_port_in_use_is_said_so() {
    let first = Server::bind(config()).await.unwrap();
    let error = Server::bind(Config { listen: first.local_addr(), ..config() }).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {}: the port is in use", first.local_addr()));
}

#[tokio::test]
async fn answers_its_own_names_only() {
    let server = Server::bind(config()).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.serve(future::pending()));
    let answer = exchange(address, &get("/livez", "localhost")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok"), "{answer}");
    let answer = exchange(address, &get("/livez", "evil.example")).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.contains(r#""kind": "Status""#), "{answer}");
}

#[tokio::test]
async fn an_open_watch_ends_cleanly_at_shutdown() {
    let server = Server::bind(config()).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(get("/api/v1/pods?watch=1", "localhost").as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
    stop.send(()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "the chunked body ends: {rest}");
    serving.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nothing listens any more");
}

/// A watch that begins with the initial state.
const INITIAL: &str = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                       &allowWatchBookmarks=true";

/// Goal: a state that was cut never looks complete. Method: a state larger than the sockets' buffers, a tiny bound on
/// snapshots, a reader that stops, and writes until the bound is reached. A list of HTTP/1.0 ends only with its
/// connection.
#[tokio::test]
async fn a_state_that_is_cut_never_ends_like_a_whole_one() {
    let limits = watch_cache::Limits { window_bytes_max: 64 << 10, snapshot_bytes_max: 64 << 10, ..Default::default() };
    let server = Server::bind(Config { limits, ..config() }).await.unwrap();
    let (address, app) = (server.local_addr(), Arc::clone(server.app()));
    tokio::spawn(server.serve(future::pending()));
    let ty = app.registry.now().by_id("configmaps").expect("a built-in type");
    let create = async |name: String, filler: usize| {
        let object = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{}"}}}}"#, "x".repeat(filler));
        crate::write::create_from_manifest(
            &app.local().expect("writes are local"),
            &ty,
            Some("ns"),
            object.as_bytes(),
            false,
        )
        .await
        .expect("is created");
    };
    for index in 0..200 {
        create(format!("a{index}"), 100_000).await;
    }
    let (list, old) = (get("/api/v1/configmaps", "localhost"), "GET /api/v1/configmaps HTTP/1.0\r\n\r\n".to_owned());
    for (round, request) in [&list, &get(INITIAL, "localhost"), &old].into_iter().enumerate() {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[8..], *b" 200");
        for index in 0..500 {
            create(format!("b{round}-{index}"), 0).await;
        }
        app.caches.fresh(&ty).await.expect("taken in");
        let ended = stream.read_to_end(&mut answer).await;
        assert!(ended.is_err(), "{request}: ends like a whole one after {} bytes", answer.len());
        assert!(answer.len() < 20_000_000, "{request}: {} bytes are all of it", answer.len());
    }
    let whole = exchange(address, &list).await;
    assert!(whole.ends_with("\r\n0\r\n\r\n"), "a reader that reads gets all of it");
}
