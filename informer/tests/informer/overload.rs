//! Overloaded servers while informers start: the kinds of requests they get.
//!
//! A stream costs a server little. A kube-apiserver with a cold cache reads a LIST with a limit from etcd, so an
//! informer that falls back to lists because of overload makes it worse.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use informer::{
    Cluster, Informer, Ready,
    testing::{Body, FakeApiServer, RequestKind},
};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body as KubeBody;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::fixture::{SOON, contents};

const COLD: usize = 100;

const SECOND: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}})
}

/// Server with two pods, at 42 and 43.
fn server() -> FakeApiServer {
    FakeApiServer::new().at(41).put(pod("x")).put(pod("y"))
}

/// Informers without a state, as if each were a process of its own.
fn cold(cluster: impl Fn() -> Cluster) -> Vec<Informer<Pod>> {
    (0..COLD).map(|_| cluster().informer::<Pod>().start().unwrap()).collect()
}

async fn all_ready(informers: &[Informer<Pod>], deadline: Duration) {
    for pods in informers {
        assert_eq!(pods.ready(deadline).await.unwrap(), Ready::Watching);
        assert_eq!(contents(pods), "a/x@42 a/y@43");
    }
}

/// A client of `server` whose requests wait for `wait` before they are answered.
fn client_through<W>(server: &FakeApiServer, wait: impl Fn() -> W + Clone + Send + 'static) -> kube::Client
where
    W: Future<Output = ()> + Send,
{
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        let (server, wait) = (server.clone(), wait.clone());
        async move {
            wait().await;
            server.respond(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// Goal: a fleet that starts during an outage ends up streaming. Method: half a minute of each kind of trouble; count
/// LISTs.
#[tokio::test(start_paused = true)]
async fn cold_informers_meet_an_overloaded_server_with_streams_alone() {
    let too_many = |server: &FakeApiServer| server.fail_next(usize::MAX, 429).retry_after(SECOND);
    let unavailable = |server: &FakeApiServer| server.fail_next(usize::MAX, 503);
    let refused = |server: &FakeApiServer| server.refuse_connections();
    for (what, trouble) in [
        ("429", &too_many as &dyn Fn(&FakeApiServer) -> FakeApiServer),
        ("503", &unavailable),
        ("refused connections", &refused),
    ] {
        let server = server();
        trouble(&server);
        let informers = cold(|| Cluster::new(server.client()));
        sleep(30 * SECOND).await;
        assert!(server.count(RequestKind::Stream) >= COLD, "{what}");
        server.recover();
        all_ready(&informers, MINUTE).await;
        sleep(2 * MINUTE).await;
        assert_eq!((server.count(RequestKind::List), server.count(RequestKind::Page)), (0, 0), "{what}");
        assert_eq!(server.count(RequestKind::Watch), 0, "{what}: the streams go on as watches");
    }
}

/// Goal: informers do not bypass the cold cache of a kube-apiserver. Method: it answers streams with 429 and LISTs with
/// a limit from etcd, as 1.31 and later do.
#[tokio::test(start_paused = true)]
async fn a_cold_cache_is_not_read_around() {
    let server = server();
    let warm_at = Instant::now() + 30 * SECOND;
    let lists = Arc::new(AtomicUsize::new(0));
    let (warm, counted) = (server.clone(), Arc::clone(&lists));
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        let (server, lists) = (warm.clone(), Arc::clone(&counted));
        async move {
            let uri = request.uri().to_string();
            let is_watch = uri.contains("watch=true");
            lists.fetch_add(usize::from(!is_watch), Ordering::Relaxed);
            if Instant::now() >= warm_at || (!is_watch && uri.contains("limit=")) {
                return server.respond(request).await;
            }
            let cold = FakeApiServer::new().fail_next(1, 429).retry_after(SECOND);
            let answer: Result<http::Response<Body>, _> = cold.respond(request).await;
            answer
        }
    });
    let client = kube::Client::new(service, "default");
    let informers = cold(|| Cluster::new(client.clone()));
    sleep(30 * SECOND).await;
    all_ready(&informers, MINUTE).await;
    sleep(2 * MINUTE).await;
    assert_eq!(lists.load(Ordering::Relaxed), 0);
}

/// Flow control may queue a request for 15 s before it sends headers.
#[tokio::test(start_paused = true)]
async fn headers_that_take_twenty_seconds_are_waited_for() {
    let server = server();
    let open_at = Instant::now() + 20 * SECOND;
    let client = client_through(&server, move || sleep_until(open_at));
    let pods = Cluster::new(client).informer::<Pod>().start().unwrap();
    all_ready(&[pods], 21 * SECOND).await;
    assert_eq!((server.count(RequestKind::Stream), server.requests().len()), (1, 1));
}

/// Goal: an overloaded or warming cache does not shift its load to the API server behind it. Method: two minutes of 429
/// at the preferred endpoint.
#[tokio::test(start_paused = true)]
async fn a_429_moves_no_informer_to_the_fallback() {
    let cache = server();
    let fallback = cache.replica();
    cache.fail_next(usize::MAX, 429).retry_after(SECOND);
    let informers = cold(|| Cluster::builder(cache.client()).fallback(fallback.client()).build());
    sleep(2 * MINUTE).await;
    assert!(fallback.requests().is_empty(), "{:?}", fallback.requests().first());
    cache.recover();
    all_ready(&informers, 2 * MINUTE).await;
    assert_eq!((cache.count(RequestKind::List), fallback.requests().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn how_long_an_endpoint_may_fail_is_a_setting() {
    let preferred = server();
    let fallback = preferred.replica();
    preferred.refuse_connections();
    let cluster = Cluster::builder(preferred.client()).fallback(fallback.client()).leave_after(2 * MINUTE..=2 * MINUTE);
    let pods = cluster.build().informer::<Pod>().start().unwrap();
    assert!(pods.ready(2 * MINUTE).await.is_err());
    assert!(fallback.requests().is_empty());
    all_ready(&[pods], MINUTE).await;
}

/// Goal: servers of one history may run different versions. Method: the fallback does not support streams; that verdict
/// must not make the informer list at the preferred endpoint.
#[tokio::test(start_paused = true)]
async fn a_verdict_on_streams_stays_at_its_endpoint() {
    let preferred = server();
    let fallback = preferred.replica().refuse_stream(422);
    preferred.refuse_connections();
    let cluster = Cluster::builder(preferred.client()).fallback(fallback.client()).build();
    let pods = cluster.informer::<Pod>().start().unwrap();
    pods.ready(2 * MINUTE).await.unwrap();
    assert_eq!((fallback.count(RequestKind::Stream), fallback.count(RequestKind::List)), (1, 1));
    preferred.recover();
    sleep(20 * MINUTE).await;
    assert!(!pods.explain().contains("fallback"), "{}", pods.explain());
    let streams = preferred.count(RequestKind::Stream);
    preferred.put(pod("z")).expire_at(43).close_watches();
    sleep(MINUTE).await;
    assert_eq!(contents(&pods), "a/x@42 a/y@43 a/z@44");
    assert_eq!((preferred.count(RequestKind::List), preferred.count(RequestKind::Stream)), (0, streams + 1));
}

/// Goal: a stampede on one server ends, because clients that must wait retry as streams, each with its own jitter.
/// Method: the server accepts ten requests a second for a minute and answers 429 to the rest.
#[tokio::test(start_paused = true)]
async fn a_rush_that_is_let_in_slowly_stays_a_rush_of_streams() {
    let server = server();
    let began = Instant::now();
    let taken = Arc::new(AtomicUsize::new(0));
    let (behind, seen) = (server.clone(), Arc::clone(&taken));
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        let (server, taken) = (behind.clone(), Arc::clone(&seen));
        async move {
            let may = usize::try_from(began.elapsed().as_secs() * 10).unwrap();
            if taken.load(Ordering::Relaxed) < may {
                taken.fetch_add(1, Ordering::Relaxed);
                return server.respond(request).await;
            }
            FakeApiServer::new().fail_next(1, 429).retry_after(SECOND).respond(request).await
        }
    });
    let client = kube::Client::new(service, "default");
    let informers = cold(|| Cluster::new(client.clone()));
    all_ready(&informers, 3 * MINUTE).await;
    assert_eq!((server.count(RequestKind::Stream), server.requests().len()), (COLD, COLD));
    assert!(informers[0].ready(SOON).await.is_ok());
}
