//! GETs of single objects: whose rights are asked about, what that costs, and what comes before it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::future::{join, join_all, join3, pending};
use http::{
    HeaderValue, Request, Response,
    header::{AUTHORIZATION, CACHE_CONTROL},
};
use http_body_util::{BodyExt as _, Either};
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

const MAPS: &str = "/api/v1/namespaces/n/configmaps";
const ACCESS_REVIEWS: &str = "selfsubjectaccessreviews";
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
    /// The file of the server's own token.
    _token: tempfile::NamedTempFile,
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
        let token = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&token, "own").expect("written");
        let (url, token_file) = (Some(reviewer.url()), Some(token.path().to_owned()));
        let config = UpstreamConfig { url, token_file, impersonates: true, ..UpstreamConfig::default() };
        let addresses = addresses_of(&config).await.expect("a configuration");
        let upstream = Upstream::new(UpstreamAddresses { clients: vec![client(&objects)], ..addresses }, &config);
        let caches = Caches::new(upstream.shared_source(), Limits::default());
        let Route::Resource(target) = route::parse(&Registry::builtin(), MAP) else { panic!("no resource") };
        caches.reader(&target.ty).await.expect("a filled cache");
        Self { objects, reviewer, upstream, caches, _token: token }
    }

    /// Decides about a GET of a caller with this token.
    async fn answerer(&self, target: &str, token: &str) -> Result<Answerer<'_>, Status> {
        self.answerer_of(target, &credentials_of(token), true, None).await
    }

    /// True if a GET is answered here, false if it is passed on. Its caller has the right to it, and is `local` if only this
    /// server knows it.
    async fn is_here(&self, target: &str, local: Option<&User>) -> bool {
        match self.answerer_of(target, &HeaderMap::new(), false, local).await {
            Ok(Answerer::Here) => true,
            Ok(Answerer::Upstream(_)) => false,
            Ok(Answerer::Proved(_) | Answerer::Identity(_)) => panic!("{target}: another answer"),
            Err(status) => panic!("{target}: {}", status.message),
        }
    }

    /// Like [`is_here`](Self::is_here), but true if it is passed on, and false if it is refused for a while.
    async fn is_passed(&self, target: &str, local: Option<&User>) -> bool {
        match self.answerer_of(target, &HeaderMap::new(), false, local).await {
            Ok(Answerer::Upstream(_)) => true,
            Err(status)
                if status.code == 503
                    && status.details.as_ref().is_some_and(|details| details.retry_after_seconds > 0) =>
            {
                false
            }
            Ok(_) | Err(_) => panic!("{target}: another answer"),
        }
    }

    /// True if another cache-server gets the state, false if it learns that there is none.
    async fn is_shown_to_peers(&self) -> bool {
        let only_cached = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"))]);
        let of_a_peer = self.answerer_of(&format!("{MAPS}?resourceVersion=0"), &only_cached, false, None).await;
        assert!(matches!(of_a_peer, Ok(Answerer::Here) | Err(Status { code: 504, .. })), "another answer");
        of_a_peer.is_ok()
    }

    /// Decides about a GET with these headers.
    async fn answerer_of(
        &self,
        target: &str,
        headers: &HeaderMap,
        checks_rights: bool,
        local: Option<&User>,
    ) -> Result<Answerer<'_>, Status> {
        let registry = &Registry::builtin();
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let query = &Query::parse(query);
        let info = &RequestInfo::new("GET", path, query);
        let method = &Method::GET;
        let read = ReadHead { method, headers, query, info, checks_rights, is_acceptable: true, local };
        self.upstream.answerer(&self.caches, registry, read, &route::parse(registry, path)).await
    }

    /// Sends GETs with these tokens at once. Returns the number that the cache answers.
    async fn read(&self, tokens: impl Iterator<Item = String>) -> usize {
        let reads = tokens.map(|token| async move {
            usize::from(matches!(self.answerer(MAP, &token).await, Ok(Answerer::Proved(_))))
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

/// Allows this server to act as all users but those of a group.
async fn own_review(api: &FakeApiServer, request: Request<kube::client::Body>) -> Response<kube::client::Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    // Logs the request.
    drop(api.respond(Request::from_parts(parts, kube::client::Body::empty())).await);
    let mut review: Value = serde_json::from_slice(&body).expect("JSON");
    review["status"] = json!({"allowed": review["spec"]["resourceAttributes"]["name"] != "system:masters"});
    let body = kube::client::Body::from(review.to_string().into_bytes());
    Response::builder().status(201).body(body).expect("a response")
}

/// A cache of this number of ConfigMaps, of which it is not known whether they are the API server's, until the flag is false:
/// the newest object was deleted while the watch was broken, and the pages of the comparison do not come.
async fn in_doubt(count: usize) -> (Scene, Arc<AtomicBool>) {
    let hangs = Arc::new(AtomicBool::new(true));
    let scene = Scene::with(count, |api| {
        let (api, hangs) = (api.clone(), Arc::clone(&hangs));
        let answering = move |request: Request<kube::client::Body>| {
            let (api, hangs) = (api.clone(), Arc::clone(&hangs));
            async move {
                let is_page = request.uri().query().is_some_and(|query| query.contains("limit=500"));
                while is_page && hangs.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(10)).await;
                }
                if request.uri().path().ends_with(ACCESS_REVIEWS) {
                    return Ok(own_review(&api, request).await.map(Either::Left));
                }
                Ok::<_, std::io::Error>(api.respond(request).await?.map(Either::Right))
            }
        };
        kube::Client::new(tower::service_fn(answering), "default")
    })
    .await;
    assert!(scene.is_here(MAPS, None).await && scene.is_shown_to_peers().await);
    scene.objects.refuse_connections().close_watches();
    let metadata = json!({"name": format!("m{}", count - 1), "namespace": "n"});
    scene.objects.delete(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    scene.objects.recover();
    until("the type is in doubt", async || !scene.is_shown_to_peers().await).await;
    (scene, hangs)
}

/// Goal: while it is not known whether the objects of a large type are the API server's, its lists are the API server's, and
/// everything that may be old or cannot be passed on stays here. Method: a type in doubt.
#[tokio::test(start_paused = true)]
async fn lists_of_a_type_in_doubt_are_passed_on() {
    let (mut scene, hangs) = in_doubt(300).await;
    let paged = format!("{MAPS}?limit=500");
    until("lists are passed on", async || !scene.is_here(&paged, None).await).await;
    // Lists that wait together: one whole list and one first page are passed on, and all later pages.
    for (lists, passed) in [("a=b", 1), ("labelSelector=a&limit=1", 1), ("limit=501", 1), ("limit=501&continue=x", 3)] {
        let lists = format!("{MAPS}?{lists}");
        let outcomes = join_all([(); 3].map(|()| scene.is_passed(&lists, None))).await;
        assert_eq!(outcomes.into_iter().filter(|&is_passed| is_passed).count(), passed, "{lists}");
    }
    // Pages take no turn from whole lists, and wait less for each other.
    let list = format!("{MAPS}?a=c");
    let next = async || {
        sleep(Duration::from_millis(100)).await;
        join(scene.is_passed(&list, None), scene.is_passed(&paged, None)).await
    };
    let outcomes = join3(scene.is_passed(&list, None), scene.is_passed(&paged, None), next()).await;
    assert_eq!(outcomes, (true, true, (false, true)));
    let began = Instant::now();
    assert!(scene.is_passed(&format!("{paged}&continue=x"), None).await);
    assert_eq!(began.elapsed(), Duration::ZERO, "a later page waits for nothing");
    // No header has such a name, so this server may not act as the user, who takes no turn from others.
    let local = User::authenticated("bob ", []);
    let outcomes = join(scene.is_passed(&list, Some(&local)), scene.is_passed(&list, None)).await;
    assert_eq!(outcomes, (false, true));
    assert!(!scene.is_passed(&format!("{paged}&continue=x"), Some(&local)).await);
    for old in ["resourceVersion=0", "resourceVersion=120", "watch=1", "watch=1&resourceVersion=120"] {
        assert!(scene.is_here(&format!("{MAPS}?{old}"), None).await, "{old}");
    }
    scene.upstream.impersonator = None;
    assert!(scene.is_here(MAPS, Some(&local)).await, "the caller is known only here");
    assert!(!scene.is_passed(&format!("{paged}&continue=x"), Some(&local)).await, "a page behind another history's");
    let ends = async {
        sleep(Duration::from_millis(100)).await;
        hangs.store(false, Ordering::SeqCst);
    };
    assert!(join(scene.is_here(MAPS, None), ends).await.0, "the list waits for the end of the doubt");
    until("the doubt is over", async || scene.is_here(MAPS, None).await && scene.is_shown_to_peers().await).await;
}

/// Goal: a list of a small type is not passed on, because it is compared itself. Method: a small type in doubt.
#[tokio::test(start_paused = true)]
async fn lists_of_a_small_type_in_doubt_stay_here() {
    let (scene, _hangs) = in_doubt(3).await;
    let began = Instant::now();
    assert!(scene.is_here(MAPS, None).await);
    assert!(scene.is_passed(&format!("{MAPS}?limit=1&continue=x"), None).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(!scene.is_shown_to_peers().await);
}

/// Goal: neither later pages nor peers get a state that may be of another history. An outage alone ends no list. Method: a
/// long outage; a type in doubt whose watch breaks; and the loss of a history whose successor does not come.
#[tokio::test(start_paused = true)]
async fn pages_and_peers_get_nothing_of_a_lost_history() {
    let page = format!("{MAPS}?limit=500&continue=x");
    let (scene, hangs) = in_doubt(300).await;
    scene.objects.refuse_connections().close_watches();
    until("the watch is broken", async || scene.is_here(MAPS, None).await).await;
    assert!(scene.is_passed(&page, None).await && !scene.is_shown_to_peers().await, "broken, and in doubt before");
    scene.objects.recover();
    hangs.store(false, Ordering::SeqCst);
    until("the doubt is over", async || scene.is_shown_to_peers().await).await;
    assert!(scene.is_here(&page, None).await);
    scene.objects.refuse_connections().close_watches();
    until("a long outage", async || !scene.is_shown_to_peers().await).await;
    assert!(scene.is_here(&page, None).await, "an outage");
    scene.objects.recover();
    until("the outage is over", async || scene.is_shown_to_peers().await).await;
    // The SDK's last proof is too old then.
    sleep(Duration::from_secs(60)).await;
    scene.objects.refuse_connections().replace_history();
    sleep(Duration::from_secs(2)).await;
    scene.objects.recover().withhold_end_bookmark();
    until("the SDK has found another history", async || !scene.is_here(&page, None).await).await;
    scene.objects.recover();
    until("the other history is read", async || scene.is_shown_to_peers().await).await;
    scene.objects.stall_streams();
    scene.upstream.source.lose_histories();
    let local = User::authenticated("alice", []);
    for at in ["at once", "while the new state is read"] {
        for caller in [None, Some(&local)] {
            let refused = scene.answerer_of(&page, &HeaderMap::new(), false, caller).await;
            assert!(matches!(refused, Err(Status { code: 410, .. })), "{at}");
        }
        assert!(!scene.is_shown_to_peers().await, "{at}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// Goal: while a type is in doubt, users that only this server knows take turns like others; few of them cost a review,
/// and none without a free turn. A user that this server may not impersonate takes no turn. Method: a crowd, and pairs of
/// lists.
#[tokio::test(start_paused = true)]
async fn users_that_only_this_server_knows_take_turns_in_a_doubt() {
    let (scene, _hangs) = in_doubt(300).await;
    let user = |name: String, group: &str| User::authenticated(name, [group.to_owned()]);
    let questions = || scene.objects.requests().iter().filter(|seen| seen.request.contains(ACCESS_REVIEWS)).count();
    let nodes: Vec<_> = (0..4 * DOUBTED_CALLERS_MAX).map(|n| user(format!("node-{n}"), "system:nodes")).collect();
    let outcomes = join_all(nodes.iter().map(|node| scene.is_passed(MAPS, Some(node)))).await;
    assert_eq!(outcomes.into_iter().filter(|&is_passed| is_passed).count(), 1);
    assert!((3..=DOUBTED_CALLERS_MAX + 2).contains(&questions()), "{} about names and groups", questions());
    let (before, last) = (questions(), nodes.last());
    assert_eq!(join(scene.is_passed(MAPS, None), scene.is_passed(MAPS, last)).await, (true, false));
    assert_eq!(questions(), before, "there was no turn");
    let master = user("eve".to_owned(), "system:masters");
    assert_eq!(join(scene.is_passed(MAPS, Some(&master)), scene.is_passed(MAPS, None)).await, (false, true));
    assert!(before < questions(), "the API server was asked");
}
