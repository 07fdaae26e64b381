//! Discovery and OpenAPI through the cache-server: the API server's own documents, which it sends once.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tests::{
    genuine::{ADMIN, CACHE, Genuine},
    http::Client,
    process::Server,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
};

use super::{BINARY, client_of, definition, until};

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Documents with an ETag: path, Accept and Accept-Encoding. The index of OpenAPI v3 has none.
const DOCUMENTS: [(&str, &str, &str); 5] = [
    ("/api", AGGREGATED, ""),
    ("/apis", AGGREGATED, ""),
    ("/openapi/v2", JSON, ""),
    ("/openapi/v2", JSON, "gzip"),
    ("/openapi/v3/apis/apps/v1", JSON, ""),
];
/// Documents that name every group.
const WITH_GROUPS: [(&str, &str); 3] = [("/apis", AGGREGATED), ("/openapi/v2", JSON), ("/openapi/v3", JSON)];
/// Reads of each document after the first one.
const REPEATS: u64 = 5;
const NEW_GROUP: &str = "documents.example.com";

/// A proxy in front of the API server that counts the bytes of its answers. Lives as long as the runtime.
async fn counting(server: SocketAddr, answered: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(server).await else { return };
                let ((mut from_client, to_client), (from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::select! {
                    _ = copy(&mut from_client, &mut to_server) => {}
                    () = copy_counted(from_server, to_client, &answered) => {}
                }
            });
        }
    });
    address
}

async fn copy_counted(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, count: &AtomicU64) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut piece).await {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        if to.write_all(&piece[..bytes]).await.is_err() {
            return;
        }
    }
}

/// Goal: the API server sends each document once, and clients cannot see that. Method: bytes of its answers, while
/// documents are read again; then a definition, which must be in every document once it is in the API server's.
#[tokio::test]
async fn documents_are_sent_once_and_are_never_old() {
    let Some(genuine) = Genuine::start("upstream documents").await else { return };
    let answered = Arc::new(AtomicU64::new(0));
    let proxy = counting(genuine.address(), Arc::clone(&answered)).await;
    let (url, kubeconfig) = (format!("https://{proxy}"), genuine.kubeconfig(CACHE));
    let flags = ["--upstream", &url, "--kubeconfig", kubeconfig.to_str().unwrap(), "--resources", "configmaps"];
    let server = Server::start(BINARY, &flags).await;
    until("the cache is ready", async || server.client().get("/readyz").await.code == 200).await;
    let (direct, cached) = (genuine.client(ADMIN), client_of(&server, ADMIN));
    let bytes = || answered.load(Ordering::Relaxed);

    for (path, accept, encoding) in DOCUMENTS {
        let headers = [("accept", accept), ("accept-encoding", encoding)];
        let first = cached.get_with(path, &headers).await.with_code(200);
        let theirs = direct.get_with(path, &headers).await.with_code(200);
        let before = bytes();
        for _ in 0..REPEATS {
            let again = cached.get_with(path, &headers).await.with_code(200);
            assert!(first.body == theirs.body && again.body == theirs.body, "{path}: other bytes");
            for name in ["content-type", "content-encoding", "etag", "vary", "cache-control"] {
                assert_eq!(again.header(name), theirs.header(name), "{name} of {path}");
            }
        }
        let sent = bytes() - before;
        eprintln!("{path} {encoding}: {} bytes, read again {REPEATS} times for {sent} bytes", first.body.len());
        assert!(sent < REPEATS * 4096, "{path}: {sent} bytes for {REPEATS} answers");
        let known = [&headers[..], &[("if-none-match", first.header("etag"))]].concat();
        assert_eq!(cached.get_with(path, &known).await.code, 304, "{path}");
        let (ours, theirs) = (server.client().get(path).await, genuine.anonymous().get(path).await);
        assert_eq!((ours.code.as_u16(), theirs.code.as_u16()), (403, 403), "{path} without credentials");
    }

    direct.create_manifest(&definition(NEW_GROUP, "Paper", "pages")).await;
    for (path, accept) in WITH_GROUPS {
        let headers = [("accept", accept)];
        let has_group =
            async |client: &Client| client.get_with(path, &headers).await.with_code(200).text().contains(NEW_GROUP);
        until("the API server documents the new group", async || has_group(&direct).await).await;
        assert!(has_group(&cached).await, "{path} is older than the API server's");
    }
}
