//! GETs of single objects: whose rights are asked about, what that costs, and what comes before it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::future::{join_all, pending};
use http::{
    HeaderValue, Request, Response,
    header::{AUTHORIZATION, CACHE_CONTROL},
};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use informer::testing::FakeApiServer;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use watch_cache::Limits;

use super::*;
use crate::{
    limits::{REVIEW_WAIT, UPSTREAM_ASKS_MAX},
    route,
    tests::{Api, ApiBody, addresses_of, full},
};

const MAP: &str = "/api/v1/namespaces/n/configmaps/m0";
/// Reads at once: more than are passed on.
const AT_ONCE: usize = 8;
/// Longest time until what must happen has happened, beside other load.
const HAPPENS_WITHIN: Duration = Duration::from_secs(30);

/// A cache of ConfigMaps in front of an API server whose reviews go to a server of their own.
struct Scene {
    objects: FakeApiServer,
    reviewer: Api,
    upstream: Upstream,
    caches: Caches,
}

impl Scene {
    async fn start() -> Self {
        Self::with(200, FakeApiServer::client).await
    }

    /// With this number of objects, which the caches read through `client`.
    async fn with(count: usize, client: impl FnOnce(&FakeApiServer) -> kube::Client) -> Self {
        let objects = FakeApiServer::new().at(100);
        for number in 0..count {
            let metadata = json!({"name": format!("m{number}"), "namespace": "n"});
            objects.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
        }
        let reviewer = Api::start(|request| Box::pin(review(request))).await;
        let config = UpstreamConfig { url: Some(reviewer.url()), ..UpstreamConfig::default() };
        let addresses = addresses_of(&config).await.expect("a configuration");
        let upstream = Upstream::new(UpstreamAddresses { clients: vec![client(&objects)], ..addresses }, &config);
        let caches = Caches::new(upstream.shared_source(), Limits::default());
        let Route::Resource(target) = route::parse(&Registry::builtin(), MAP) else { panic!("no resource") };
        caches.reader(&target.ty).await.expect("a filled cache");
        Self { objects, reviewer, upstream, caches }
    }

    /// Decides about a GET of a caller with this token; `None`: its right is known.
    async fn answerer(&self, target: &str, token: Option<&str>, is_passable: bool) -> Result<Answerer<'_>, Status> {
        self.answerer_of(target, &token.map(credentials_of).unwrap_or_default(), token.is_some(), is_passable).await
    }

    /// Like [`answerer`](Self::answerer), of a request with these headers.
    async fn answerer_of(
        &self,
        target: &str,
        headers: &HeaderMap,
        checks_rights: bool,
        is_passable: bool,
    ) -> Result<Answerer<'_>, Status> {
        let registry = &Registry::builtin();
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let query = &Query::parse(query);
        let info = &RequestInfo::new("GET", path, query);
        let method = &Method::GET;
        let read = ReadHead { method, headers, query, info, checks_rights, is_acceptable: true, is_passable };
        self.upstream.answerer(&self.caches, registry, read, &route::parse(registry, path)).await
    }

    /// Sends GETs with these tokens at once. Returns the number that the cache answers.
    async fn read(&self, tokens: impl Iterator<Item = String>) -> usize {
        let reads = tokens.map(|token| async move {
            usize::from(matches!(self.answerer(MAP, Some(&token), true).await, Ok(Answerer::Proved(_))))
        });
        join_all(reads).await.into_iter().sum()
    }

    async fn read_as(&self, token: &str) -> usize {
        self.read((0..AT_ONCE).map(|_| token.to_owned())).await
    }

    /// Reads until the cache answers, as it does beside so many other reads.
    async fn is_answered(&self, token: &str) {
        until(&format!("the cache answers {token}"), async || 0 < self.read_as(token).await).await;
    }

    /// Questions for the position so far.
    fn questions(&self) -> usize {
        let asks = |request: &str| request.contains("configmaps?fieldSelector=metadata.name");
        self.objects.requests().iter().filter(|seen| asks(&seen.request)).count()
    }

    /// Reviews so far, by token.
    fn reviews(&self) -> HashMap<String, usize> {
        let mut reviews = HashMap::new();
        for seen in &*self.reviewer.seen.lock() {
            *reviews.entry(token_of(&seen.head.headers)).or_default() += 1;
        }
        reviews
    }
}

/// Waits for a condition. The pauses let late reviews go on.
async fn until(expected: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(HAPPENS_WITHIN, waiting).await.unwrap_or_else(|_| panic!("{expected}"));
}

fn credentials_of(token: &str) -> HeaderMap {
    [(AUTHORIZATION, format!("Bearer {token}").parse().expect("a header"))].into_iter().collect()
}

fn token_of(headers: &HeaderMap) -> String {
    let value = headers[AUTHORIZATION].to_str().expect("a text");
    value.strip_prefix("Bearer ").expect("a token").to_owned()
}

/// Answers a review by its token: allowed, denied, delayed, or a token that is not valid.
async fn review(request: Request<Incoming>) -> Response<ApiBody> {
    let token = token_of(request.headers());
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let mut review: Value = serde_json::from_slice(&body).expect("JSON");
    let name = review["spec"]["resourceAttributes"]["name"].as_str().unwrap_or_default();
    let allowed = match &*token {
        "all" => true,
        "empty-name" => name.is_empty(),
        "any-other" => !name.is_empty(),
        "late" | "late-denied" => {
            sleep(4 * PROOF_WAIT).await;
            token == "late"
        }
        token if token.starts_with("slow") => pending().await,
        token if token.starts_with("denied") => false,
        _ => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized",
                "message": "Unauthorized", "code": 401});
            return Response::builder().status(401).body(full(status.to_string())).expect("a response");
        }
    };
    review["status"] = json!({"allowed": allowed});
    Response::builder().status(201).body(full(review.to_string())).expect("a response")
}

/// Goal: callers without a right cause no question with this server's identity, and few about themselves. Method: crowds of
/// invented tokens and of denied ones, then a caller that may read.
#[tokio::test]
async fn callers_without_a_right_cause_no_question_of_ours() {
    let scene = Scene::start().await;
    for kind in ["invented", "denied"] {
        for _ in 0..4 {
            let crowd = (0..20 * AT_ONCE).map(|number| format!("{kind}-{}", number % 20));
            assert_eq!(scene.read(crowd).await, 0);
        }
    }
    assert_eq!(scene.questions(), 0);
    until("all of them read often", async || scene.reviews().len() == 40).await;
    let reviews = scene.reviews();
    // About all namespaces, and about one; equal ones at once share a review.
    assert!(reviews.values().all(|&count| count <= 4), "{reviews:?}");
    scene.is_answered("all").await;
    assert!(0 < scene.questions());
}

/// Goal: a right to an empty name is no right to all objects, nor is a right to all names but some. Method: callers that have
/// one of both, beside one that may read all.
#[tokio::test]
async fn both_questions_must_be_allowed() {
    let scene = Scene::start().await;
    scene.is_answered("all").await;
    for token in ["empty-name", "any-other"] {
        for _ in 0..8 {
            assert_eq!(scene.read_as(token).await, 0, "{token}");
        }
    }
    scene.is_answered("all").await;
}

/// Goal: no GET waits for a review that is late. Method: reviews that are never answered.
#[tokio::test]
async fn reads_do_not_wait_for_a_late_review() {
    let scene = Scene::start().await;
    let reading = async {
        for _ in 0..8 {
            assert_eq!(scene.read_as("slow").await, 0);
        }
    };
    timeout(REVIEW_WAIT / 2, reading).await.expect("passed on");
    until("a review", async || scene.reviews().contains_key("slow")).await;
    assert!(scene.reviews()["slow"] <= 2, "{:?}", scene.reviews());
}

/// Goal: what a late review says counts. Method: reviews that take longer than a GET waits: an allow, and a denial.
#[tokio::test]
async fn later_reads_use_a_late_review() {
    let scene = Scene::start().await;
    scene.is_answered("late").await;
    let upstream = &scene.upstream;
    let read = RequestInfo::new("GET", MAP, &Query::parse(None));
    let [all, _] = upstream.readers.questions(&read).swap_remove(0);
    let key = upstream.rights.key(&credentials_of("late-denied"), &all);
    // No read of it follows.
    assert_eq!(scene.read_as("late-denied").await, 0);
    until("the denial is noted", async || upstream.readers.state(key) == ReaderState::Refused).await;
}

/// Goal: callers whose reviews are late take no slots that other reads need. Method: GETs with more tokens than there
/// are slots, none of which is ever reviewed; then a LIST of a caller with the right to it.
#[tokio::test]
async fn late_reviews_leave_slots_to_others() {
    let scene = Scene::start().await;
    let crowd = (0..(UPSTREAM_ASKS_MAX + 44) * AT_ONCE).map(|number| format!("slow-{}", number / AT_ONCE));
    assert_eq!(scene.read(crowd).await, 0);
    let rights = &scene.upstream.rights;
    let (late, free) = (LATE_REVIEWS_MAX - scene.upstream.late_reviews.available_permits(), rights.free_slots());
    assert!(UPSTREAM_ASKS_MAX - LATE_REVIEWS_MAX <= free, "{free} slots are free, {late} reviews are late");
    let list = RequestInfo::new("GET", "/api/v1/namespaces/n/configmaps", &Query::parse(None));
    assert_eq!(rights.allows(&credentials_of("all"), &list).await, Ok(true));
}

/// Goal: while it is not known whether the objects of a large type are the API server's, its lists are the API server's, and
/// everything that may be old or cannot be passed on stays here. Method: the newest object is deleted while the watch is
/// broken, and the pages of the comparison do not come for some time.
#[tokio::test(start_paused = true)]
async fn lists_of_a_type_in_doubt_are_passed_on() {
    let hangs = Arc::new(AtomicBool::new(true));
    let scene = Scene::with(300, |api| {
        let (api, hangs) = (api.clone(), Arc::clone(&hangs));
        let answering = move |request: Request<kube::client::Body>| {
            let (api, hangs) = (api.clone(), Arc::clone(&hangs));
            async move {
                let is_page = request.uri().query().is_some_and(|query| query.contains("limit=500"));
                while is_page && hangs.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(10)).await;
                }
                api.respond(request).await
            }
        };
        kube::Client::new(tower::service_fn(answering), "default")
    })
    .await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let is_here = async |target: &str, is_passable| match scene.answerer(target, None, is_passable).await {
        Ok(Answerer::Here) => true,
        Ok(Answerer::Upstream(_)) => false,
        Ok(Answerer::Proved(_) | Answerer::Identity(_)) => panic!("{target}: another answer"),
        Err(status) => panic!("{target}: {}", status.message),
    };
    // True if it is passed on, false if it is refused for a while.
    let is_passed = async |target: &str| match scene.answerer(target, None, true).await {
        Ok(Answerer::Upstream(_)) => true,
        Err(status)
            if status.code == 503 && status.details.as_ref().is_some_and(|details| details.retry_after_seconds > 0) =>
        {
            false
        }
        Ok(_) | Err(_) => panic!("{target}: another answer"),
    };
    assert!(is_here(maps, true).await);
    scene.objects.refuse_connections().close_watches();
    scene
        .objects
        .delete(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m299", "namespace": "n"}}));
    scene.objects.recover();
    let paged = format!("{maps}?limit=500");
    until("the type is in doubt", async || !is_here(&paged, true).await).await;
    // Lists that wait together: one whole list and one first page are passed on, and all later pages.
    for (lists, passed) in [("a=b", 1), ("labelSelector=a&limit=1", 1), ("limit=501", 1), ("limit=501&continue=x", 3)] {
        let lists = format!("{maps}?{lists}");
        let outcomes = join_all([(); 3].map(|()| is_passed(&lists))).await;
        assert_eq!(outcomes.into_iter().filter(|&is_passed| is_passed).count(), passed, "{lists}");
    }
    let only_cached = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"))]);
    let of_a_peer = scene.answerer_of(maps, &only_cached, false, true).await;
    assert_eq!(of_a_peer.err().map(|status| status.code), Some(504));
    for old in ["resourceVersion=0", "resourceVersion=120", "watch=1", "watch=1&resourceVersion=120"] {
        assert!(is_here(&format!("{maps}?{old}"), true).await, "{old}");
    }
    assert!(is_here(maps, false).await, "the caller is known only here");
    hangs.store(false, Ordering::SeqCst);
    until("the doubt is over", async || is_here(maps, true).await).await;
}
