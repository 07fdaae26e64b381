//! Callers of tokens: from files, signed by issuers whose keys are fetched, and reviewed by an API server.

mod issuer;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use access_rules::authentication::claims::AccountRules;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, StatusCode};
use informer_serving::query::Query;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::issuer::{AUDIENCE, ISSUER, Issuer};
use super::{
    keys::{FetchKeys, FetchedKeys, IssuerKeys},
    reviews::TokenReviews,
    tokens::{IssuerRules, TokenDeciders, TrustedIssuer},
    *,
};
use crate::{
    limits::{
        JWKS_AGE, JWKS_FETCH_PAUSE, JWKS_WAIT, RECHECKED_AGE, RIGHT_AGE, RIGHT_AGE_AWAY, RIGHT_AGE_LATE,
        TOKEN_REVIEWS_MAX,
    },
    upstream::own_requests::{AnswerBounds, OwnRequestError, SendOwn},
    watched::{FileWatcher, WatchedFile},
};

/// An authenticator of tokens.
fn of_tokens(tokens: TokenAuthenticator) -> Authenticator {
    Authenticator { unsecured: None, tokens: Some(tokens), ..Authenticator::unsecured() }
}

fn info(path: &str) -> RequestInfo {
    RequestInfo::new("GET", path, &Query::default())
}

/// A client beyond this machine.
fn distant() -> Peer {
    Peer::tcp("192.0.2.1:1000".parse().unwrap())
}

fn authorization(value: &str) -> HeaderMap {
    [(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())].into_iter().collect()
}

/// Name of the caller, or the code of the refusal.
async fn name_of(authenticator: &Authenticator, headers: &HeaderMap) -> Result<String, u16> {
    let caller = authenticator.authenticate(&distant(), &info("/api/v1/pods"), headers).await;
    caller.map(|caller| caller.user.name.clone()).map_err(|status| status.code)
}

async fn bearer_name(authenticator: &Authenticator, token: &str) -> Result<String, u16> {
    name_of(authenticator, &authorization(&format!("Bearer {token}"))).await
}

/// A folder with one file of tokens, and the watcher of the file.
async fn token_file(content: &str) -> (TempDir, PathBuf, FileWatcher, Authenticator) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.csv");
    fs::write(&path, content).unwrap();
    let watcher = FileWatcher::default();
    let file = WatchedFile::load(&watcher, &path, tokens::parse).await.unwrap();
    let deciders = TokenDeciders { issuers: Vec::new(), reviews: None };
    (folder, path, watcher, of_tokens(TokenAuthenticator::new(Some(file), deciders)))
}

/// Goal: only valid credentials make a caller, and invalid ones never an anonymous one. Method: one server's file, and
/// requests with each kind of credentials.
#[tokio::test]
async fn credentials_are_valid_or_refused() {
    let (_folder, _, _, authenticator) = token_file("t-1,alice,u1,\"dev,ops\"\nt-2,bob,u2\n").await;
    for (value, expected) in [
        ("Bearer t-1", Ok("alice")),
        ("bearer t-2", Ok("bob")),
        ("Bearer t-3", Err(401)),
        ("Bearer t-1x", Err(401)),
        ("Basic t-1", Err(401)),
        ("t-1", Err(401)),
    ] {
        let name = name_of(&authenticator, &authorization(value)).await;
        assert_eq!(name, expected.map(str::to_owned), "{value}");
    }
    assert_eq!(name_of(&authenticator, &HeaderMap::new()).await, Err(401), "a distant caller needs credentials");
    let mut twice = authorization("Bearer t-1");
    twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer t-2"));
    assert_eq!(name_of(&authenticator, &twice).await, Err(401));
    let protocols = "base64url.bearer.authorization.k8s.io.dC0x, v4.channel.k8s.io";
    let browser = [(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols))].into_iter().collect();
    assert_eq!(name_of(&authenticator, &browser).await, Ok("alice".to_owned()));
    let huge = "x".repeat(60_000);
    assert_eq!(bearer_name(&authenticator, &huge).await, Err(401));
}

#[tokio::test]
async fn callers_without_credentials_are_near_or_ask_for_health() {
    let (_folder, _, _, mut authenticator) = token_file("t-1,alice,u1\n").await;
    let near = Peer::tcp("127.0.0.1:1000".parse().unwrap());
    let mapped = Peer::tcp("[::ffff:127.0.0.1]:1000".parse().unwrap());
    let none = HeaderMap::new();
    for peer in [near, mapped] {
        let caller = authenticator.authenticate(&peer, &info("/api/v1/pods"), &none).await.unwrap();
        assert!(caller.user.is_anonymous(), "{peer:?}");
        let wrong = authenticator.authenticate(&peer, &info("/livez"), &authorization("Bearer x")).await;
        assert_eq!(wrong.unwrap_err().code, 401, "{peer:?}");
    }
    let caller = authenticator.authenticate(&Peer::unix(1000, 100), &info("/"), &none).await.unwrap();
    assert_eq!((&*caller.user.name, &caller.user.groups[0]), ("unix:uid:1000", &"unix:gid:100".to_owned()));
    for (path, is_served) in [
        ("/livez", true),
        ("/readyz/ping", true),
        ("/healthz", true),
        ("/livezz", false),
        ("/metrics", false),
        ("/api/v1/namespaces/livez", false),
        ("/", false),
    ] {
        assert_eq!(authenticator.authenticate(&distant(), &info(path), &none).await.is_ok(), is_served, "{path}");
    }
    authenticator.anonymous_from = AnonymousOrigin::Anywhere;
    assert_eq!(name_of(&authenticator, &none).await, Ok("system:anonymous".to_owned()));
    assert_eq!(bearer_name(&authenticator, "x").await, Err(401), "wrong credentials are refused nevertheless");
    authenticator.anonymous_from = AnonymousOrigin::Nowhere;
    let near = Peer::tcp("127.0.0.1:1000".parse().unwrap());
    for (path, is_served) in [("/livez", true), ("/metrics", false), ("/version", false), ("/api/v1/pods", false)] {
        assert_eq!(authenticator.authenticate(&near, &info(path), &none).await.is_ok(), is_served, "{path}");
    }
    authenticator.authenticate(&Peer::unix(1000, 100), &info("/"), &none).await.expect("its socket names it");
}

/// Goal: a token that nothing here can verify makes no anonymous caller. Method: a server that reads certificates only.
#[tokio::test]
async fn a_token_that_nothing_verifies_is_refused() {
    let authenticator = Authenticator { unsecured: None, ..Authenticator::unsecured() };
    let near = Peer::tcp("127.0.0.1:1000".parse().unwrap());
    for path in ["/livez", "/metrics", "/version", "/api/v1/pods"] {
        let refused = authenticator.authenticate(&near, &info(path), &authorization("Bearer x")).await;
        assert_eq!(refused.unwrap_err().code, 401, "{path}");
    }
    assert!(authenticator.authenticate(&near, &info("/"), &HeaderMap::new()).await.is_ok());
}

/// Goal: a removed token is refused, also for open watches, and a broken file removes none. Method: change the file.
#[tokio::test]
async fn removed_tokens_are_refused() {
    let (_folder, path, watcher, authenticator) = token_file("t-1,alice,u1\nt-2,bob,u2\n").await;
    let headers = authorization("Bearer t-1");
    let caller = authenticator.authenticate(&distant(), &info("/"), &headers).await.unwrap();
    fs::write(&path, "broken").unwrap();
    watcher.check().await;
    assert!(authenticator.confirm(&caller, true).await.is_ok());
    fs::write(&path, "t-1,alice,u1,admins\n").unwrap();
    watcher.check().await;
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 401, "the groups are others");
    assert_eq!(bearer_name(&authenticator, "t-1").await, Ok("alice".to_owned()));
    assert_eq!(bearer_name(&authenticator, "t-2").await, Err(401));
}

/// A source of keys that counts its fetches.
#[derive(Clone)]
struct KeyServer {
    answer: Arc<Mutex<KeyAnswer>>,
    fetches: Arc<AtomicUsize>,
}

#[derive(Clone)]
enum KeyAnswer {
    Document(Value),
    Failure,
    Silence,
}

impl KeyServer {
    fn new(answer: KeyAnswer) -> Self {
        Self { answer: Arc::new(Mutex::new(answer)), fetches: Arc::default() }
    }

    fn answers(&self, answer: KeyAnswer) {
        *self.answer.lock() = answer;
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    /// An authenticator that trusts the issuer of these keys.
    fn authenticator(&self, reviews: Option<TokenReviews>) -> Authenticator {
        let rules = AccountRules { issuer: ISSUER.to_owned(), audiences: vec![AUDIENCE.to_owned()] };
        let keys = IssuerKeys::Fetched(FetchedKeys::new(Box::new(self.clone()), ISSUER.to_owned()));
        let issuers = vec![TrustedIssuer { rules: IssuerRules::Accounts(rules), keys }];
        of_tokens(TokenAuthenticator::new(None, TokenDeciders { issuers, reviews }))
    }
}

impl FetchKeys for KeyServer {
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, String>> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().clone();
        Box::pin(async move {
            match answer {
                KeyAnswer::Document(document) => Ok(document.to_string().into()),
                KeyAnswer::Failure => Err("refused".to_owned()),
                KeyAnswer::Silence => std::future::pending().await,
            }
        })
    }
}

/// Goal: only unexpired tokens of the trusted issuer for this server are valid. Method: one key, and tokens with one other
/// claim each.
#[tokio::test]
async fn signed_tokens_are_verified_without_a_request_each() {
    let (issuer, stranger) = (Issuer::new("k1"), Issuer::new("k1"));
    let server = KeyServer::new(KeyAnswer::Document(issuer.key_set()));
    let authenticator = server.authenticator(None);
    let now = unix_now();
    let claims = |name: &str, value: Value| {
        let mut claims = issuer::claims(now);
        claims[name] = value;
        claims
    };
    for (token, expected) in [
        (issuer.token(&issuer::claims(now)), Ok("system:serviceaccount:default:app")),
        (stranger.token(&issuer::claims(now)), Err(401)),
        (issuer.token(&claims("exp", json!(now - 61))), Err(401)),
        (issuer.token(&claims("nbf", json!(now + 120))), Err(401)),
        (issuer.token(&claims("aud", json!(["other"]))), Err(401)),
        (issuer.token(&claims("iss", json!("https://other"))), Err(401)),
        (issuer.token_with(&json!({"alg": "none", "kid": "k1"}), &issuer::claims(now)), Err(401)),
        (issuer.token_with(&json!({"alg": "HS256", "kid": "k1"}), &issuer::claims(now)), Err(401)),
        (issuer.token_with(&json!({"alg": "RS256", "kid": "k1"}), &issuer::claims(now)), Err(401)),
        (format!("{}.x", issuer.token(&issuer::claims(now))), Err(401)),
    ] {
        for _ in 0..10 {
            assert_eq!(bearer_name(&authenticator, &token).await, expected.map(str::to_owned), "{token}");
        }
    }
    assert_eq!(server.fetches(), 1, "all were verified with keys that were fetched once");
}

/// Goal: a token that is valid at first is refused once it has expired, from the cache too.
#[tokio::test]
async fn cached_callers_expire_with_their_token() {
    let issuer = Issuer::new("k1");
    let authenticator = KeyServer::new(KeyAnswer::Document(issuer.key_set())).authenticator(None);
    let mut claims = issuer::claims(unix_now());
    // The leeway is 60 s.
    claims["exp"] = json!(unix_now() - 58);
    let headers = authorization(&format!("Bearer {}", issuer.token(&claims)));
    let caller = authenticator.authenticate(&distant(), &info("/"), &headers).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(name_of(&authenticator, &headers).await, Err(401));
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 401);
}

/// Goal: tokens with unknown key ids cost the issuer a bounded number of requests, and new keys are found. Method: a
/// flood of 1,000 tokens, then a rotation.
#[tokio::test(start_paused = true)]
async fn unknown_keys_are_fetched_once_in_a_while() {
    let (old, new) = (Issuer::new("k1"), Issuer::new("k2"));
    let server = KeyServer::new(KeyAnswer::Document(old.key_set()));
    let authenticator = Arc::new(server.authenticator(None));
    let claims = issuer::claims(unix_now());
    assert!(bearer_name(&authenticator, &old.token(&claims)).await.is_ok());
    let flood = async |count: usize| {
        let asking = (0..count).map(|number| {
            let token = old.token_with(&json!({"alg": "ES256", "kid": number.to_string()}), &claims);
            let authenticator = Arc::clone(&authenticator);
            tokio::spawn(async move { bearer_name(&authenticator, &token).await })
        });
        for answer in futures::future::join_all(asking).await {
            assert_eq!(answer.unwrap(), Err(401));
        }
    };
    flood(1_000).await;
    assert_eq!(server.fetches(), 1, "the keys are new");
    assert_eq!(bearer_name(&authenticator, &new.token(&claims)).await, Err(401));
    server.answers(KeyAnswer::Document(new.key_set()));
    tokio::time::advance(JWKS_FETCH_PAUSE).await;
    assert!(bearer_name(&authenticator, &new.token(&claims)).await.is_ok(), "the new key is found");
    assert_eq!(server.fetches(), 2);
    // A server that is silent: each of the callers waits for one fetch, and the keys stay.
    server.answers(KeyAnswer::Silence);
    tokio::time::advance(JWKS_FETCH_PAUSE).await;
    let began = Instant::now();
    flood(100).await;
    assert_eq!((server.fetches(), began.elapsed()), (3, JWKS_WAIT));
    tokio::time::advance(RIGHT_AGE).await;
    assert!(bearer_name(&authenticator, &new.token(&claims)).await.is_ok());
    assert_eq!(bearer_name(&authenticator, &old.token(&claims)).await, Err(401), "a withdrawn key is refused");
}

/// Goal: without keys, a token is neither valid nor invalid; withdrawn keys are noticed.
#[tokio::test(start_paused = true)]
async fn keys_are_fetched_again_when_they_are_old() {
    let (old, new) = (Issuer::new("k1"), Issuer::new("k1"));
    let server = KeyServer::new(KeyAnswer::Failure);
    let authenticator = server.authenticator(None);
    let token = old.token(&issuer::claims(unix_now()));
    assert_eq!(bearer_name(&authenticator, &token).await, Err(503));
    assert_eq!(bearer_name(&authenticator, &token).await, Err(503));
    assert_eq!(server.fetches(), 1);
    server.answers(KeyAnswer::Document(old.key_set()));
    tokio::time::advance(JWKS_FETCH_PAUSE).await;
    let headers = authorization(&format!("Bearer {token}"));
    let caller = authenticator.authenticate(&distant(), &info("/"), &headers).await.unwrap();
    server.answers(KeyAnswer::Document(new.key_set()));
    tokio::time::advance(JWKS_AGE).await;
    assert!(authenticator.confirm(&caller, true).await.is_ok(), "the old keys are used while new ones are fetched");
    while server.fetches() < 3 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(RIGHT_AGE).await;
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 401, "a withdrawn key ends watches");
    assert_eq!(bearer_name(&authenticator, &token).await, Err(401));
}

/// An API server that reviews tokens.
struct Reviewer {
    answer: Mutex<Result<(StatusCode, Value), OwnRequestError>>,
    questions: AtomicUsize,
}

impl Reviewer {
    fn new(status: Value) -> Arc<Self> {
        Arc::new(Self { answer: Mutex::new(Ok(review(status))), questions: AtomicUsize::new(0) })
    }

    fn answers(&self, answer: Result<(StatusCode, Value), OwnRequestError>) {
        *self.answer.lock() = answer;
    }

    fn authenticator(self: &Arc<Self>, audiences: &[&str]) -> Authenticator {
        let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        let reviews = Some(TokenReviews::new(Arc::clone(self) as Arc<dyn SendOwn>, audiences));
        of_tokens(TokenAuthenticator::new(None, TokenDeciders { issuers: Vec::new(), reviews }))
    }
}

fn review(status: Value) -> (StatusCode, Value) {
    let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status});
    (StatusCode::CREATED, answer)
}

impl SendOwn for Reviewer {
    fn send<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        _bounds: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
        assert_eq!((method, path), (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews"));
        let question: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(question["spec"]["token"], "t", "{question}");
        self.questions.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer.map(|(code, answer)| (code, answer.to_string().into()))
        })
    }
}

/// Goal: the API server is asked once for many requests, and its last answer counts while it is away. Method: 100
/// requests at the same time, then failures.
#[tokio::test(start_paused = true)]
async fn reviews_are_shared_and_kept_for_a_while() {
    let user = json!({"username": "alice", "uid": "u", "groups": ["dev"], "extra": {"a": ["b"]}});
    let reviewer = Reviewer::new(json!({"authenticated": true, "user": user}));
    let authenticator = reviewer.authenticator(&[]);
    let headers = authorization("Bearer t");
    let names = futures::future::join_all((0..100).map(|_| name_of(&authenticator, &headers))).await;
    assert!(names.iter().all(|name| *name == Ok("alice".to_owned())), "{names:?}");
    assert_eq!(reviewer.questions.load(Ordering::SeqCst), 1);
    let caller = authenticator.authenticate(&distant(), &info("/"), &headers).await.unwrap();
    assert_eq!(caller.user.groups, ["dev", "system:authenticated"]);
    // Refused by flow control: neither valid nor an outage.
    reviewer.answers(Ok((StatusCode::TOO_MANY_REQUESTS, json!({}))));
    tokio::time::advance(RIGHT_AGE).await;
    assert_eq!(name_of(&authenticator, &headers).await, Err(429));
    // Late, while the API server answers others: the last answer counts for a moment.
    reviewer.answers(Err(OwnRequestError::Late));
    assert_eq!(name_of(&authenticator, &headers).await, Ok("alice".to_owned()));
    tokio::time::advance(RIGHT_AGE_LATE).await;
    assert_eq!(name_of(&authenticator, &headers).await, Err(504));
    // Away: the last answer counts.
    reviewer.answers(Err(OwnRequestError::Silent));
    tokio::time::advance(RIGHT_AGE).await;
    assert_eq!(name_of(&authenticator, &headers).await, Ok("alice".to_owned()));
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 503, "which ends no watch");
    assert_eq!(authenticator.confirm(&caller, false).await, Ok(()));
    tokio::time::advance(RIGHT_AGE_AWAY).await;
    assert_eq!(name_of(&authenticator, &headers).await, Err(503));
    // Back, and the token was revoked.
    reviewer.answers(Ok(review(json!({"authenticated": false, "error": "gone"}))));
    assert_eq!(name_of(&authenticator, &headers).await, Err(401));
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 401);
}

/// An API server that reviews the token `t` at once, and others never.
#[derive(Default)]
struct BusyReviewer {
    has_revoked: AtomicBool,
    unanswered: AtomicUsize,
}

impl SendOwn for BusyReviewer {
    fn send<'a>(
        &'a self,
        _: Method,
        _: &'a str,
        body: Bytes,
        _: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
        let question: Value = serde_json::from_slice(&body).unwrap();
        if question["spec"]["token"] != "t" {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            return Box::pin(std::future::pending());
        }
        let is_valid = !self.has_revoked.load(Ordering::SeqCst);
        let (code, answer) = review(json!({"authenticated": is_valid, "user": {"username": "alice"}}));
        Box::pin(async move { Ok((code, answer.to_string().into())) })
    }
}

/// Goal: invented tokens do not prolong the watches of a revoked one. Method: as many unanswered reviews of requests as are
/// sent at once, then the check of an open watch.
#[tokio::test(start_paused = true)]
async fn a_flood_of_tokens_does_not_delay_the_end_of_a_watch() {
    let reviewer = Arc::new(BusyReviewer::default());
    let reviews = Some(TokenReviews::new(Arc::clone(&reviewer) as Arc<dyn SendOwn>, Vec::new()));
    let tokens = TokenAuthenticator::new(None, TokenDeciders { issuers: Vec::new(), reviews });
    let authenticator = Arc::new(of_tokens(tokens));
    let caller = authenticator.authenticate(&distant(), &info("/"), &authorization("Bearer t")).await.unwrap();
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..TOKEN_REVIEWS_MAX {
        let authenticator = Arc::clone(&authenticator);
        flood.spawn(async move { bearer_name(&authenticator, &format!("invented-{number}")).await });
    }
    while reviewer.unanswered.load(Ordering::SeqCst) < TOKEN_REVIEWS_MAX {
        tokio::task::yield_now().await;
    }
    reviewer.has_revoked.store(true, Ordering::SeqCst);
    tokio::time::advance(RECHECKED_AGE).await;
    let began = Instant::now();
    assert_eq!(authenticator.confirm(&caller, true).await.unwrap_err().code, 401);
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
    assert_eq!(bearer_name(&authenticator, "another").await, Err(429), "requests wait");
}

#[tokio::test(start_paused = true)]
async fn only_well_formed_reviews_are_identities() {
    let user = json!({"username": "alice"});
    let other_kind = (StatusCode::CREATED, json!({"apiVersion": "v1", "kind": "Status", "status": {}}));
    for (audiences, answer, expected) in [
        (&[][..], review(json!({"authenticated": true, "user": user})), Ok("alice")),
        (&[], review(json!({"authenticated": true, "user": {}})), Err(503)),
        (&[], review(json!({"user": user})), Err(401)),
        (&[], review(json!({"authenticated": "true", "user": user})), Err(503)),
        (&[], review(json!({})), Err(401)),
        (&[], other_kind, Err(503)),
        (&[], (StatusCode::FORBIDDEN, json!({})), Err(503)),
        (&["a"], review(json!({"authenticated": true, "user": user})), Err(401)),
        (&["a"], review(json!({"authenticated": true, "user": user, "audiences": ["b"]})), Err(401)),
        (&["a"], review(json!({"authenticated": true, "user": user, "audiences": ["b", "a"]})), Ok("alice")),
    ] {
        let reviewer = Reviewer::new(Value::Null);
        reviewer.answers(Ok(answer.clone()));
        let name = bearer_name(&reviewer.authenticator(audiences), "t").await;
        assert_eq!(name, expected.map(str::to_owned), "{answer:?}");
    }
}

/// Goal: the API server is not asked about tokens of an issuer that is trusted here.
#[tokio::test]
async fn issuers_are_decided_here() {
    let issuer = Issuer::new("k1");
    let server = KeyServer::new(KeyAnswer::Document(issuer.key_set()));
    let reviewer = Reviewer::new(json!({"authenticated": true, "user": {"username": "alice"}}));
    let reviews = TokenReviews::new(Arc::clone(&reviewer) as Arc<dyn SendOwn>, Vec::new());
    let authenticator = server.authenticator(Some(reviews));
    let mut expired = issuer::claims(unix_now());
    expired["exp"] = json!(0);
    assert_eq!(bearer_name(&authenticator, &issuer.token(&expired)).await, Err(401));
    assert_eq!(reviewer.questions.load(Ordering::SeqCst), 0);
    assert_eq!(bearer_name(&authenticator, "t").await, Ok("alice".to_owned()));
}

/// Goal: a caller that is known costs some microseconds. Method: one token of 1 KiB, 10,000 times. Prints the mean; the bound
/// is for debug builds.
#[tokio::test]
async fn known_callers_are_cheap() {
    let issuer = Issuer::new("k1");
    let authenticator = KeyServer::new(KeyAnswer::Document(issuer.key_set())).authenticator(None);
    let mut claims = issuer::claims(unix_now());
    claims["padding"] = "x".repeat(600).into();
    let headers = authorization(&format!("Bearer {}", issuer.token(&claims)));
    let (peer, info) = (distant(), info("/api/v1/pods"));
    let began = std::time::Instant::now();
    for _ in 0..10_000 {
        authenticator.authenticate(&peer, &info, &headers).await.unwrap();
    }
    let each = began.elapsed() / 10_000;
    println!("a known caller: {each:?}");
    assert!(each < Duration::from_micros(200), "{each:?}");
}
