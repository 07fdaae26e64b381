//! An empty cache is filled from a peer that has its history, and from the API server otherwise.

use informer::testing::RequestKind;
use tokio::time::Instant;
use watch_cache::Limits;

use super::*;

/// Caches of a new server in front of `api`, with a cache-server of the same protocol for each peer.
fn caches(api: &FakeApiServer, peers: &[&FakeApiServer], scopes: HashMap<String, String>) -> Caches {
    let peers = Peers::new(peers.iter().map(|peer| peer.client()).collect());
    let source = Arc::new(UpstreamSource::new(vec![api.client()], peers, scopes));
    Caches::new(source, Limits::default())
}

/// An API server with four ConfigMaps.
fn api() -> FakeApiServer {
    let api = FakeApiServer::new().at(100);
    (0..4).for_each(|number| drop(api.put(map(&format!("m{number}"), 0))));
    api
}

/// Goal: a new server costs the API server no initial read, and its cache is as good as one that was listed. Method: a peer
/// with the state; then writes, which only the API server shows.
#[tokio::test(start_paused = true)]
async fn a_new_server_is_filled_from_a_peer_and_follows_the_api_server() {
    let api = api();
    let (away, peer) = (api.replica().refuse_connections(), api.replica());
    let caches = caches(&api, &[&away, &peer], HashMap::new());
    let reader = filled(&caches).await;
    assert_eq!((cached(&reader), reader.applied()), (listed(&api).await, api.resource_version()));
    peer.freeze();
    api.put(map("m1", 1)).delete(map("m2", 0)).put(map("new", 0));
    let reader = becomes_equal(&caches, &api).await;
    // The list is of one object: without a uid of the cluster, it shows that the peer is not ahead.
    let reads = [RequestKind::Stream, RequestKind::List].map(|kind| api.count(kind));
    assert_eq!((reads, peer.initial_reads(), reader.stats().epochs), ([0, 1], 1, 1));
    assert!(api.count(RequestKind::Get) > 0, "the history was proved");
    assert_eq!(caches.down(), []);
    assert_eq!(peer.requests().len(), 1, "the peer is not followed");
}

/// Goal: a peer that lags is as good, as long as the API server has what follows. Method: a peer that hides the last
/// changes, with and without an API server that has forgotten them.
#[tokio::test(start_paused = true)]
async fn a_peer_that_lags_saves_the_read_if_the_api_server_has_the_rest() {
    for (is_forgotten, reads) in [(false, 0), (true, 1)] {
        let api = api();
        let peer = api.replica().freeze();
        api.put(map("m1", 1)).delete(map("m2", 0)).put(map("new", 0));
        if is_forgotten {
            api.expire_at(api.resource_version() - 1);
        }
        becomes_equal(&caches(&api, &[&peer], HashMap::new()), &api).await;
        assert_eq!(api.count(RequestKind::Stream), reads);
    }
}

/// Goal: a peer that cannot help costs little time and no wrong object. Method: each kind of such a peer; the first state
/// that readers see must be the API server's.
#[tokio::test(start_paused = true)]
async fn a_peer_that_cannot_help_is_passed_over() {
    let api = api();
    let other = || {
        (0..4).fold(FakeApiServer::new().at(90), |other, number| {
            let mut object = map(&format!("m{number}"), 1);
            object["metadata"]["uid"] = json!("another");
            other.put(object)
        })
    };
    let ahead = FakeApiServer::new().at(1_000_000).put(map("ahead", 0));
    let peers = [
        ("away", other().refuse_connections(), 2),
        ("not filled, or of another part", api.replica().fail_next(usize::MAX, 504), 2),
        ("overloaded", api.replica().fail_next(usize::MAX, 429).retry_after(Duration::from_secs(60)), 2),
        ("refuses us", api.replica().fail_next(usize::MAX, 403), 2),
        ("breaks off", api.replica().break_streams_after(2), 2),
        ("slow", api.replica().stall_streams(), 25),
        ("without objects", FakeApiServer::new().at(100), 2),
        ("in front of another cluster", other(), 15),
        ("in front of one that is far ahead", ahead, 2),
    ];
    for (name, peer, seconds) in peers {
        let begun = Instant::now();
        let before = api.initial_reads();
        let reader = filled(&caches(&api, &[&peer], HashMap::new())).await;
        assert_eq!(cached(&reader), listed(&api).await, "{name}");
        assert_eq!(reader.stats().epochs, 1, "{name}");
        let (reads, elapsed) = (api.initial_reads() - before, begun.elapsed());
        assert!((1..=4).contains(&reads) && elapsed < Duration::from_secs(seconds), "{name}: {reads} in {elapsed:?}");
    }
}

/// Goal: a peer that holds what the API server has lost is found out. Method: an API server restored to an older state of
/// the same history; the peer has a later version of one object, or one object more.
#[tokio::test(start_paused = true)]
async fn a_peer_ahead_of_a_restored_api_server_is_found_out() {
    for lost in ["m1", "new"] {
        let (api, peer) = (api(), api());
        peer.put(map(lost, 1));
        let caches = caches(&api, &[&peer], HashMap::new());
        becomes_equal(&caches, &api).await;
        api.put(map("later", 0)).put(map("m0", 2));
        becomes_equal(&caches, &api).await;
    }
}

/// Goal: servers that start together mostly read from the first that are filled. Method: a peer that is filled a moment
/// after the first question.
#[tokio::test(start_paused = true)]
async fn peers_are_asked_once_more() {
    let api = api();
    let peer = api.replica().fail_next(1, 504);
    filled(&caches(&api, &[&peer], HashMap::new())).await;
    assert_eq!((api.count(RequestKind::Stream), peer.initial_reads()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_asked_for_the_part_that_is_cached() {
    let api = api();
    let peer = api.replica();
    let scopes = [("configmaps".to_owned(), "metadata.name=m1".to_owned())].into();
    let reader = filled(&caches(&api, &[&peer], scopes)).await;
    assert_eq!(cached(&reader).len(), 1);
    assert!(peer.requests()[0].request.contains("fieldSelector=metadata.name%3Dm1"), "{}", peer.requests()[0]);
    assert_eq!(api.count(RequestKind::Stream), 0);
}
