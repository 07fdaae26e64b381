//! Clients that leave in each phase of a request: each of them has its last record.

use std::time::Duration;

use serde_json::json;
use tests::{http::watch_list, objects::configmap, slow::Slow, tls::Authority, websocket::WebSocket};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{Audited, CONFIGMAPS};

const LEFT: &str = "audit.cache-server/client-left";

/// Sends the beginning of a request, and returns the connection.
async fn begin(audited: &Audited, id: &str, request: &str) -> TcpStream {
    let address = audited.server.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (line, rest) = request.split_once("\r\n").unwrap();
    let head = format!("{line}\r\nHost: {address}\r\nAudit-Id: {id}\r\n{rest}");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Waits until a request has arrived, as its records show.
async fn arrived(audited: &Audited, id: &str) {
    audited.when(|all| all.contains_key(id), id).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_is_recorded() {
    let audited = Audited::start(None, &[]).await;
    audited.client().create(&configmap("a")).await;
    // A position ahead of the cache is waited for.
    let waiting = "GET /api/v1/configmaps?resourceVersion=9000000000000000000 HTTP/1.1\r\n\r\n";
    let body = format!("POST {CONFIGMAPS} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{");
    for (id, request) in [("waiting", waiting), ("body", &*body)] {
        let stream = begin(&audited, id, request).await;
        arrived(&audited, id).await;
        drop(stream);
        let found = audited.last(id).await;
        assert_eq!(found.stages, ["RequestReceived", "ResponseComplete"]);
        // hyper may tell the handler of a body that broke off, which then answers a client that is gone.
        if id == "waiting" {
            assert_eq!(found.annotation(LEFT), "before-response", "{found:#?}");
            assert_eq!(found.last["responseStatus"]["message"], "Connection closed early");
        } else {
            assert_ne!(found.last["responseStatus"]["code"], 201, "{found:#?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_within_a_response_is_recorded() {
    let audited = Audited::start(None, &["--populate", "pods=3000,nodes=10,namespaces=5,seed=1"]).await;
    let address = audited.server.address();
    let slow = Slow::get(address, "/api/v1/pods", &[("audit-id", "list")]).await;
    drop(slow);
    let found = audited.last("list").await;
    assert_eq!((found.stages.len(), found.annotation(LEFT)), (2, "during-response"), "{found:#?}");
    assert_eq!(found.last["responseStatus"]["code"], 200);
    // The initial state of a watch, before its end.
    let slow = Slow::get(address, &watch_list("/api/v1/pods"), &[("audit-id", "initial")]).await;
    drop(slow);
    let found = audited.last("initial").await;
    assert_eq!(found.stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

/// Goal: each watch ends with a record, over each kind of connection, parked or live. Method: open many, leave, and compare
/// the sums over the stages.
#[tokio::test]
async fn every_watch_ends_with_a_record() {
    let tls = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.issue(tls.path());
    let flags = files.flags();
    let (open, secured) = tokio::join!(Audited::start(None, &[]), Audited::start(None, &flags));
    let tls = secured.client().over_tls(authority.trust());
    let path = watch_list("/api/v1/configmaps");
    for (audited, writer, clients) in
        [(&open, open.client(), [open.client(), open.client().over_http2()]), (&secured, tls, [tls, tls.over_http2()])]
    {
        let mut watches = Vec::new();
        for (way, client) in clients.iter().enumerate() {
            for number in 0..5 {
                let id = format!("live-{way}-{number}");
                let mut watch = client.watch_with(&path, &[("audit-id", &*id)]).await;
                watch.event().await;
                watches.push(watch);
            }
            // Closed by the server.
            let id = format!("ended-{way}");
            let short = format!("{path}&timeoutSeconds=1");
            client.watch_with(&short, &[("audit-id", &*id)]).await.rest(Duration::from_secs(10)).await;
            audited.last(&id).await;
        }
        // Parked: more events than sockets hold.
        for number in 0..40 {
            let large = configmap(&format!("large-{number}")).with("data", json!({"k": "x".repeat(400_000)}));
            writer.create(&large).await;
        }
        let still_open = |all: &std::collections::BTreeMap<String, super::RequestRecords>| {
            all.iter().filter(|(id, found)| id.starts_with("live") && !found.are_complete()).count()
        };
        assert_eq!(still_open(&audited.records()), watches.len());
        drop(watches);
        let all = audited.when(|all| still_open(all) == 0, "all watches end").await;
        let stages = ["RequestReceived", "ResponseStarted", "ResponseComplete"];
        let watches = all.iter().filter(|(id, _)| id.starts_with("live") || id.starts_with("ended"));
        assert_eq!(watches.map(|(id, found)| assert_eq!(found.stages, stages, "{id}")).count(), 12);
    }
    let stream = TcpStream::connect(open.server.address()).await.unwrap();
    let socket = WebSocket::over(stream, open.server.address(), &path, &[("audit-id", "socket")]).await;
    drop(socket);
    open.last("socket").await;
}

/// Goal: the sums over the stages are right at the end of the server. Method: open watches and a waiting request, SIGTERM.
#[tokio::test]
async fn a_server_that_ends_writes_the_last_records() {
    let audited = Audited::start(None, &["--grace", "2s"]).await;
    let client = audited.client();
    client.create(&configmap("a")).await;
    let path = watch_list("/api/v1/configmaps");
    let mut one = client.watch_with(&path, &[("audit-id", "one")]).await;
    let mut two = client.over_http2().watch_with(&path, &[("audit-id", "two")]).await;
    one.event().await;
    two.event().await;
    let Audited { server, folder } = audited;
    server.terminate();
    assert_eq!(server.ended().await.code, Some(0));
    let events: Vec<serde_json::Value> =
        super::lines_of(folder.path()).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |stage: &str| events.iter().filter(|event| event["stage"] == stage).count();
    assert_eq!(count("RequestReceived"), count("ResponseComplete"), "{events:#?}");
    assert_eq!(count("ResponseStarted"), 2);
}

/// Goal: a connection that carries many requests records each. Method: pipelined requests, then a break.
#[tokio::test]
async fn pipelined_requests_have_records() {
    let audited = Audited::start(None, &[]).await;
    let address = audited.server.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let requests: String =
        (0..20).map(|at| format!("GET /livez HTTP/1.1\r\nHost: {address}\r\nAudit-Id: piped-{at}\r\n\r\n")).collect();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut byte = [0];
    timeout(Duration::from_secs(10), stream.read_exact(&mut byte)).await.unwrap().unwrap();
    drop(stream);
    audited.last("piped-0").await;
    audited.when(|all| all.values().all(super::RequestRecords::are_complete), "all are complete").await;
}
