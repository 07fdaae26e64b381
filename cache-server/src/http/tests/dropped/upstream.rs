//! Requests that are dropped in front of an API server: while it answers, while it answers no review, and while it is silent.
//!
//! Real time: answers come over sockets.

use std::{
    future,
    sync::atomic::{AtomicU8, Ordering},
};

use http_body_util::StreamBody;
use hyper::body::Incoming;
use serde_json::Value;

use super::*;
use crate::{
    config::UpstreamConfig,
    upstream::tests::{Api, ApiBody, addresses_of, full},
    watched::FileWatcher,
};

/// Time between two polls of a request, in which answers arrive.
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// Longest time until what must happen has happened, beside other load. The silence of an API server is noticed, and its end,
/// within ten seconds.
const HAPPENS_WITHIN: Duration = Duration::from_secs(60);

/// The requests that the API server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    All,
    /// All, but every right is denied.
    NoRight,
    AllButReviews,
    None,
}

/// An API server without objects, of which every caller may do everything, and whose answers can cease.
struct Behind {
    api: Api,
    answered: Arc<AtomicU8>,
}

impl Behind {
    async fn start(answered: Answered) -> Self {
        let state = Arc::new(AtomicU8::new(answered as u8));
        let current = Arc::clone(&state);
        let api = Api::start(move |request| {
            let current = Arc::clone(&current);
            Box::pin(async move { answer(request, current.load(Ordering::SeqCst)).await })
        })
        .await;
        Self { api, answered: state }
    }

    fn now(&self, answered: Answered) {
        self.answered.store(answered as u8, Ordering::SeqCst);
    }
}

async fn answer(request: Request<Incoming>, answered: u8) -> http::Response<ApiBody> {
    let is_review = request.uri().path().ends_with("reviews");
    if answered == Answered::None as u8 || is_review && answered == Answered::AllButReviews as u8 {
        return future::pending().await;
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let (code, document) = if is_review {
        let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let name = review["spec"]["token"].as_str().and_then(|token| token.strip_prefix("t-")).map(str::to_owned);
        review["status"] = match name {
            Some(name) => json!({"authenticated": true, "user": {"username": name}}),
            None => json!({"allowed": answered != Answered::NoRight as u8}),
        };
        (201, review)
    } else if query.contains("sendInitialEvents") {
        (422, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}))
    } else if query.contains("watch=") {
        let nothing = StreamBody::new(futures::stream::pending());
        return http::Response::new(ApiBody::new(nothing));
    } else {
        let metadata = json!({"name": "kube-system", "uid": "u", "resourceVersion": "100"});
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []}))
    };
    http::Response::builder().status(code).body(full(document.to_string())).unwrap()
}

/// A server in front of it.
async fn front(behind: &Behind, authentication: AuthenticationConfig, settings: UpstreamConfig) -> Server {
    let settings = UpstreamConfig { url: Some(behind.api.url()), ..settings };
    let addresses = addresses_of(&settings).await.expect("a configuration");
    let flow = FlowSettings { seats: 1 + OTHER_SEATS, ..FlowSettings::default() };
    let config = Config { flow, authentication, upstream: Some(settings.clone()), ..Config::default() };
    let mut app =
        App::with_upstream(config, addresses, &settings, FileWatcher::default(), None).expect("no state folder");
    let (own, metrics) = (app.upstream().map(Upstream::own_requests), app.metrics.authentication.clone());
    let is_open = !app.access.authorizer.checks_again();
    let authenticator = Authenticator::load(&app.config.authentication, own, metrics, is_open, &app.files).await;
    app.access.authenticate_by(authenticator.expect("usable settings"));
    app.access.flow.configure(objects(1, 50));
    let app = Arc::new(app);
    app.keep_checking_rights();
    app.start().await;
    Server { app }
}

/// Drops requests in front of an API server that answers, that answers no review, and that is silent.
async fn drop_in_front(authentication: AuthenticationConfig, settings: UpstreamConfig) {
    let behind = Behind::start(Answered::All).await;
    let server = Arc::new(front(&behind, authentication, settings).await);
    let free = server.free("alice");
    let is_answered = async |token| server.send_as(token, "/api/v1/configmaps").await == 200;
    assert!(is_answered("t-bob").await, "before all");
    let pause = async || sleep(POLL_PAUSE).await;
    for answered in [Answered::All, Answered::AllButReviews, Answered::None] {
        behind.now(answered);
        let honest = Arc::clone(&server);
        // Shares its questions with those that are dropped.
        let honest = tokio::spawn(async move { honest.send_as("t-alice", "/api/v1/configmaps").await });
        server.drop_all_after("t-alice", &requests(), POLLS_MAX, pause).await;
        server.drop_all_after("t-carol", &requests_of_types(&server.app), 1, tokio::task::yield_now).await;
        let code = tokio::time::timeout(HAPPENS_WITHIN, honest).await.expect("answered in time").expect("no panic");
        assert!(code == 200 || answered != Answered::All && 500 <= code, "{answered:?}: {code}");
        server.until_idle(free, &format!("{answered:?}")).await;
    }
    behind.now(Answered::All);
    for token in ["t-alice", "t-bob", "t-erin"] {
        let answering = async {
            while !is_answered(token).await {
                sleep(10 * POLL_PAUSE).await;
            }
        };
        tokio::time::timeout(HAPPENS_WITHIN, answering).await.unwrap_or_else(|_| panic!("{token} is never answered"));
    }
}

/// Goal: requests that are cut in front of an API server give back what they hold there and here, and take no answer from
/// others. Method: as `a_dropped_request_gives_everything_back`; the callers' own credentials decide.
#[tokio::test]
async fn dropped_requests_leave_no_review_of_credentials() {
    drop_in_front(AuthenticationConfig::default(), UpstreamConfig::default()).await;
}

/// Like `dropped_requests_leave_no_review_of_credentials`, with reviews of tokens and of users.
#[tokio::test]
async fn dropped_requests_leave_no_review_of_tokens_and_users() {
    let authentication = AuthenticationConfig { token_review: true, ..AuthenticationConfig::default() };
    drop_in_front(authentication, UpstreamConfig::default()).await;
}

/// Like `dropped_requests_leave_no_review_of_credentials`, of users that only this server knows, as which it acts.
#[tokio::test]
async fn dropped_requests_leave_no_review_of_an_impersonation() {
    let folder = tempfile::tempdir().unwrap();
    let [tokens, own] = ["tokens.csv", "own"].map(|name| folder.path().join(name));
    fs::write(&tokens, "t-alice,alice,1\nt-bob,bob,2\nt-carol,carol,3\nt-erin,erin,4\n").unwrap();
    fs::write(&own, "own").unwrap();
    let authentication = AuthenticationConfig { token_auth_file: Some(tokens), ..AuthenticationConfig::default() };
    let settings = UpstreamConfig { token_file: Some(own), impersonates: true, ..UpstreamConfig::default() };
    drop_in_front(authentication, settings).await;
}

/// Goal: a panic ends no task of a server in front of an API server, and `/readyz` names the tasks. Method: all of them panic.
#[tokio::test]
async fn tasks_in_front_of_an_api_server_go_on_after_a_panic() {
    let behind = Behind::start(Answered::NoRight).await;
    let server = front(&behind, AuthenticationConfig::default(), UpstreamConfig::default()).await;
    let expected =
        ["definitions", "idle-caches", "roles-allowed", "upstream-cluster", "upstream-identity", "watch-rights"];
    // Nothing comes over sockets from now on.
    tokio::time::pause();
    sleep(Duration::from_millis(1)).await;
    server.app.tasks.break_all();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.failing_tasks().await, expected);
    sleep(2 * RESTART_PAUSE_MAX).await;
    assert_eq!(server.failing_tasks().await, [""; 0]);
}
