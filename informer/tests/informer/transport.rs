//! The client that `Cluster::try_from` makes, over sockets with TLS: shared connections, their end, and credentials that
//! change.

mod environment;
mod server;

use std::{
    collections::HashSet,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::{
    Cluster, Informer, raw,
    testing::{FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, ResourceExt as _,
    api::PostParams,
    config::AuthInfo,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tower::util::MapRequestLayer;

use self::server::{Authority, SecureServer, TunnelProxy};
use crate::fixture::{SOON, hurry, soon, until};

/// Types in tests of many informers.
const TYPES: usize = 30;

fn types() -> Vec<ApiResource> {
    let gvk = |number| GroupVersionKind::gvk("example.com", "v1", &format!("Kind{number}"));
    (0..TYPES).map(|number| ApiResource::from_gvk_with_plural(&gvk(number), &format!("kind{number}s"))).collect()
}

fn fake() -> FakeApiServer {
    let fake = FakeApiServer::new();
    for resource in types() {
        fake.serve_resource(&resource);
        fake.put(object(&resource, "first"));
    }
    fake
}

fn object(resource: &ApiResource, name: &str) -> serde_json::Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata})
}

/// An informer of each type, ready.
async fn follow_all(cluster: &Cluster) -> Vec<Informer<DynamicObject>> {
    let informers: Vec<_> =
        types().iter().map(|resource| cluster.informer_for::<DynamicObject>(resource).start().unwrap()).collect();
    for informer in &informers {
        informer.ready(SOON).await.unwrap();
    }
    informers
}

/// Waits until every informer has an object of this name.
async fn have(informers: &[Informer<DynamicObject>], name: &str) {
    let key = format!("default/{name}");
    until(name, || informers.iter().all(|informer| informer.store().snapshot().get(&key).is_some())).await;
}

fn put_all(fake: &FakeApiServer, name: &str) {
    for resource in types() {
        fake.put(object(&resource, name));
    }
}

/// Waits until each type has `count` watches from a position.
async fn watches(fake: &FakeApiServer, count: usize) {
    until("watches", || fake.count(RequestKind::Watch) >= count).await;
}

/// Goal: the informers of a process share one connection. Method: 30 informers of 30 types start at once.
#[tokio::test]
async fn thirty_types_share_one_connection() {
    let fake = fake();
    let server = SecureServer::start(&fake).await;
    let informers = follow_all(&Cluster::try_from(server.config()).unwrap()).await;
    put_all(&fake, "second");
    have(&informers, "second").await;
    let connections = server.log.connections();
    assert!(connections.len() == 1 && connections[0].is_http2, "{connections:?}");
    assert_eq!(fake.initial_reads(), TYPES);
}

/// Goal: a controller's writes cost no connection. Method: an informer, and a write by the client of its cluster.
#[tokio::test]
async fn writes_share_the_connection_of_the_watches() {
    let fake = FakeApiServer::new();
    let server = SecureServer::start(&fake).await;
    let cluster = Cluster::try_from(server.config()).unwrap();
    let maps = cluster.informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    let map = serde_json::from_value(json!({"metadata": {"name": "written"}})).unwrap();
    let api = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    let written = api.create(&PostParams::default(), &map).await.unwrap();
    maps.wait_for(written.resource_version(), SOON).await.unwrap();
    assert!(maps.store().snapshot().get("default/written").is_some());
    let connections = server.log.connections();
    assert!(connections.len() == 1 && connections[0].is_http2, "{connections:?}");
}

/// Goal: a server that allows few streams on a connection stalls no informer. Method: servers of each limit, 30 informers
/// of 30 types each, and a change of each type.
#[tokio::test]
async fn a_server_that_allows_few_streams_gets_more_connections() {
    for (allowed, connections) in [(1, 30), (2, 15), (5, 6), (10, 3), (100, 1)] {
        let fake = fake();
        let server = SecureServer::start(&fake).await;
        server.allow_streams(allowed);
        let informers = follow_all(&Cluster::try_from(server.config()).unwrap()).await;
        put_all(&fake, "second");
        have(&informers, "second").await;
        assert_eq!(server.log.connections().len(), connections, "{allowed} streams");
        assert_eq!(fake.initial_reads(), TYPES, "{allowed} streams");
    }
}

/// Goal: GOAWAY breaks no watch, and later requests share one new connection without a relist. Method: GOAWAY, a change
/// that the old streams deliver, then their clean end.
#[tokio::test]
async fn goaway_moves_watches_without_a_relist() {
    let fake = fake();
    let server = SecureServer::start(&fake).await;
    let informers = follow_all(&Cluster::try_from(server.config()).unwrap()).await;
    server.goaway();
    put_all(&fake, "old-connection");
    have(&informers, "old-connection").await;
    assert_eq!((server.log.connections().len(), fake.count(RequestKind::Watch)), (1, 0));

    fake.close_watches();
    watches(&fake, TYPES).await;
    put_all(&fake, "new-connection");
    have(&informers, "new-connection").await;
    assert_eq!((server.log.connections().len(), server.log.last_connection()), (2, 1));
    assert_eq!((fake.initial_reads(), fake.count(RequestKind::Watch)), (TYPES, TYPES));
}

/// Goal: a connection that breaks is replaced by one, and watches resume. Method: cut it.
#[tokio::test]
async fn watches_of_a_broken_connection_resume_on_one_connection() {
    let fake = fake();
    let server = SecureServer::start(&fake).await;
    let informers = follow_all(&Cluster::try_from(server.config()).unwrap()).await;
    server.cut();
    put_all(&fake, "after-cut");
    have(&informers, "after-cut").await;
    assert_eq!(server.log.connections().len(), 2);
    assert_eq!(fake.initial_reads(), TYPES);
}

/// Goal: a server without HTTP/2 is served by HTTP/1.1. Method: ALPN without it.
#[tokio::test]
async fn a_server_of_http1_gets_http1() {
    let fake = FakeApiServer::new();
    fake.put(object(&ApiResource::erase::<ConfigMap>(&()), "one"));
    let server = SecureServer::with(&fake, Ipv4Addr::LOCALHOST.into(), &[b"http/1.1"]).await.unwrap();
    let cluster = Cluster::try_from(server.config()).unwrap();
    let maps = cluster.informer::<ConfigMap>().start().unwrap();
    let pods = cluster.informer::<Pod>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!(maps.store().snapshot().len(), 1);
    assert!(server.log.connections().iter().all(|connection| !connection.is_http2));
}

/// Goal: readers that stand still do not stop the others on the same connection. Method: twelve raw streams of 2 MiB
/// that nothing polls after their first object, beside an informer.
#[tokio::test]
async fn slow_readers_do_not_starve_the_others() {
    let fake = FakeApiServer::new();
    for number in 0..32 {
        let metadata = json!({"name": format!("large-{number}"), "namespace": "default"});
        let data = json!({"k": "x".repeat(64 << 10)});
        fake.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}));
    }
    let server = SecureServer::start(&fake).await;
    let builder = Cluster::builder(informer::client_from(server.config()).unwrap());
    let cluster = builder.relists_at_once(20).build();
    let mut slow: Vec<raw::Events> = Vec::new();
    for _ in 0..12 {
        let mut events = cluster.raw(&ApiResource::erase::<ConfigMap>(&())).start().unwrap();
        while !matches!(events.next().await, Some(Ok(raw::Event::InitApply(_)))) {}
        slow.push(events);
    }
    let secrets = cluster.informer::<Secret>().start().unwrap();
    secrets.ready(SOON).await.unwrap();
    fake.put(object(&ApiResource::erase::<Secret>(&()), "one"));
    until("the secret", || secrets.store().snapshot().len() == 1).await;
    assert_eq!(server.log.connections().len(), 1);
}

/// Goal: a client with layers of its own has the shared connection. Method: a layer that counts requests.
#[tokio::test]
async fn a_client_with_layers_shares_its_connection() {
    let server = SecureServer::start(&fake()).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counting = MapRequestLayer::new({
        let sent = Arc::clone(&sent);
        move |request: http::Request<kube::client::Body>| {
            sent.fetch_add(1, Relaxed);
            request
        }
    });
    let client = informer::kube5::client_builder_from(server.config()).unwrap().with_layer(&counting).build();
    follow_all(&Cluster::new(client)).await;
    assert!(sent.load(Relaxed) >= TYPES);
    let connections = server.log.connections();
    assert!(connections.len() == 1 && connections[0].is_http2, "{}", connections.len());
}

/// Goal: IPv6 addresses work in URLs and certificates. Method: a server on `::1`.
#[tokio::test]
async fn ipv6_works() {
    let fake = FakeApiServer::new();
    let Ok(server) = SecureServer::with(&fake, Ipv6Addr::LOCALHOST.into(), &[b"h2"]).await else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    let cluster = Cluster::try_from(server.config()).unwrap();
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert!(server.log.connections()[0].is_http2);
}

/// Goal: a proxy gets one CONNECT with its credentials, and TLS goes through to the server. Method: the proxy's URL in a
/// configuration, with characters that URLs escape.
#[tokio::test]
async fn a_proxy_opens_a_tunnel() {
    let fake = fake();
    let (server, proxy) = (SecureServer::start(&fake).await, TunnelProxy::start().await);
    let mut config = server.config();
    config.proxy_url = Some(format!("http://user:p%40ss@{}", proxy.address).parse().unwrap());
    let informers = follow_all(&Cluster::try_from(config).unwrap()).await;
    have(&informers, "first").await;
    let heads = proxy.heads.lock().unwrap().clone();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(heads[0].starts_with(&format!("CONNECT {} HTTP/1.1\r\n", server.address)), "{heads:?}");
    // user:p@ss
    assert!(heads[0].to_lowercase().contains("proxy-authorization: basic dxnlcjpwqhnz"), "{heads:?}");
}

/// Goal: `tls-server-name` is sent and verified. Method: a certificate with that name; a wrong name fails.
#[tokio::test]
async fn the_servers_name_is_sent_and_verified() {
    let fake = FakeApiServer::new();
    let server = SecureServer::start(&fake).await;
    let mut config = server.config();
    config.tls_server_name = Some("api.internal".into());
    let pods = Cluster::try_from(config.clone()).unwrap().informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!(server.log.connections()[0].server_name.as_deref(), Some("api.internal"));

    config.tls_server_name = Some("other.internal".into());
    let pods = Cluster::try_from(config).unwrap().informer::<Pod>().start().unwrap();
    until("a failure", || pods.stats().reflector.unhealthy_ends > 0).await;
    let not_ready = pods.ready(Duration::ZERO).await.unwrap_err();
    assert!(not_ready.to_string().contains("not valid for name"), "{not_ready}");
    assert_eq!(server.log.connections().len(), 1);
}

/// Goal: impersonation is sent with every request, also over HTTP/2.
#[tokio::test]
async fn impersonation_is_sent() {
    let fake = FakeApiServer::new();
    let server = SecureServer::start(&fake).await;
    let mut config = server.config();
    config.auth_info.impersonate = Some("system:serviceaccount:default:agent".into());
    config.auth_info.impersonate_groups = Some(vec!["one".into(), "two".into()]);
    let pods = Cluster::try_from(config).unwrap().informer::<Pod>().start().unwrap();
    pods.ready(SOON).await.unwrap();
    let requests = server.log.requests();
    for request in &requests {
        assert_eq!(request.headers["impersonate-user"], "system:serviceaccount:default:agent");
        let groups: Vec<_> = request.headers.get_all("impersonate-group").iter().collect();
        assert_eq!(groups, ["one", "two"], "{}", request.uri);
    }
    assert!(!requests.is_empty());
}

/// Goal: a token that the server no longer accepts is read again, long before kube's minute is over, and running watches
/// resume. Method: a token file, and an exec plugin whose token has no expiry; replace the token and end the watch.
#[tokio::test]
async fn a_rotated_token_is_used_after_a_401() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.to_str().unwrap();
    let version = "client.authentication.k8s.io/v1";
    let plugin = json!({"apiVersion": version, "command": "cat", "args": [path], "interactiveMode": "Never"});
    let credential = |token: &str| json!({"kind": "ExecCredential", "status": {"token": token}}).to_string();
    let plain = str::to_owned as fn(&str) -> String;
    for (auth, written) in [(json!({"tokenFile": path}), plain), (json!({"exec": plugin}), credential)] {
        let fake = FakeApiServer::new();
        let server = SecureServer::start(&fake).await;
        let rotate = |token: &str| {
            std::fs::write(&file, written(token)).unwrap();
            *server.log.tokens.lock().unwrap() = HashSet::from([token.to_owned()]);
        };
        rotate("old");
        let mut config = server.config();
        config.auth_info = serde_json::from_value(auth).unwrap();
        let maps = Cluster::try_from(config).unwrap().informer::<ConfigMap>().delays(soon()).start().unwrap();
        maps.ready(SOON).await.unwrap();

        rotate("new");
        fake.close_watches();
        fake.put(object(&ApiResource::erase::<ConfigMap>(&()), "one"));
        until("the object", || maps.store().snapshot().len() == 1).await;
        assert_eq!(fake.initial_reads(), 1);
    }
}

/// Goal: a client certificate that is replaced in its files is used by the next request, and running watches stay open.
/// Method: one informer runs, and others start until one of them uses a new connection.
#[tokio::test]
async fn a_rotated_client_certificate_is_used_by_the_next_request() {
    let fake = fake();
    let server = SecureServer::start(&fake).await;
    let folder = tempfile::tempdir().unwrap();
    let old = server.authority.issue(folder.path());
    let path = |name| Some(folder.path().join(name).to_str().unwrap().to_owned());
    let mut config = server.config();
    config.auth_info =
        AuthInfo { client_certificate: path("tls.crt"), client_key: path("tls.key"), ..AuthInfo::default() };
    let cluster = Cluster::try_from(config).unwrap();
    let certificate = |connection: usize| server.log.connections()[connection].client_certificate.clone();
    let maps = cluster.informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    assert_eq!(certificate(0), Some(old));

    let new = server.authority.issue(folder.path());
    let renewed = async {
        while server.log.connections().len() == 1 {
            cluster.informer::<Pod>().start().unwrap().ready(SOON).await.unwrap();
        }
    };
    timeout(SOON, renewed).await.unwrap();
    assert_eq!((server.log.last_connection(), certificate(1)), (1, Some(new)));

    // The first watch is still open, on the first connection.
    fake.put(object(&ApiResource::erase::<ConfigMap>(&()), "one"));
    until("the object", || maps.store().snapshot().len() == 1).await;
    assert_eq!(fake.count(RequestKind::Watch), 0);
}

/// Goal: a CA that is replaced in its file is trusted by the next connection, and watches resume. Method: the server
/// shows a certificate of another CA; connections fail until the file has that CA.
#[tokio::test]
async fn a_rotated_authority_is_trusted_by_the_next_connection() {
    let fake = FakeApiServer::new();
    let server = SecureServer::start(&fake).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, server.authority.pem()).unwrap();
    let mut config = server.config();
    config.root_cert_file = Some(file.clone());
    let maps = Cluster::try_from(config).unwrap().informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();

    let successor = Authority::new();
    server.recertify(&successor);
    server.cut();
    fake.put(object(&ApiResource::erase::<ConfigMap>(&()), "one"));
    until("refused certificates", || maps.stats().reflector.unhealthy_ends > 1).await;
    assert_eq!(
        (server.log.connections().len(), maps.store().snapshot().len()),
        (1, 0),
        "the new CA is not trusted yet"
    );
    std::fs::write(&file, successor.pem()).unwrap();
    until("the object", || maps.store().snapshot().len() == 1).await;
    assert_eq!((fake.initial_reads(), server.log.connections().len()), (1, 2));
}

/// Goal: a peer that vanished without closing its connection is noticed within 45 s, and watches resume. Method: a proxy
/// that stops passing bytes and keeps its sockets open; nothing can pass meanwhile, so the clock runs fast.
#[tokio::test]
async fn a_peer_that_stops_answering_is_noticed_within_45_seconds() {
    let fake = FakeApiServer::new();
    let (server, proxy) = (SecureServer::start(&fake).await, TunnelProxy::start().await);
    let mut config = server.config();
    config.proxy_url = Some(format!("http://{}", proxy.address).parse().unwrap());
    let maps = Cluster::try_from(config).unwrap().informer::<ConfigMap>().start().unwrap();
    maps.ready(SOON).await.unwrap();
    let since = Instant::now();
    proxy.silence();
    fake.put(object(&ApiResource::erase::<ConfigMap>(&()), "one"));
    hurry("the time of the ping", Duration::from_secs(50), || since.elapsed() >= Duration::from_secs(44)).await;
    assert!(maps.store().snapshot().is_empty(), "not a byte passes");
    let resumed = timeout(SOON, async {
        maps.wait_until(|now| now.len() == 1).await.unwrap();
    });
    resumed.await.expect("it is noticed");
    assert!(since.elapsed() < Duration::from_secs(48), "{:?}, with the delay before the next request", since.elapsed());
    assert_eq!((fake.initial_reads(), server.log.connections().len()), (1, 2));
}
