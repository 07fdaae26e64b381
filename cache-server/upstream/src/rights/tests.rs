//! Answers about rights: their age, their sharing, their bound, and errors, none of which is an allow.

mod keys;

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures::FutureExt as _;
use http::header::{AUTHORIZATION, HeaderName};
use informer_serving::{query::Query, status::Reason};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::*;
use crate::limits::{DENIAL_AGE_MIN, REVIEW_TEXT_BYTES_MAX, RIGHT_AGE_LATE, UPSTREAM_ASKS_MAX};

/// A read of the built-in types.
pub(super) fn read(request: &str) -> RequestInfo {
    let (path, query) = request.split_once('?').unwrap_or((request, ""));
    RequestInfo::new("GET", path, &Query::parse(Some(query)))
}

/// The credentials of one header.
pub(super) fn token(token: &str) -> HeaderMap {
    [(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect()
}

const PODS: &str = "/api/v1/namespaces/default/pods";

type Reply = Result<(StatusCode, Bytes), Status>;

/// An API server that answers reviews as a test wants.
struct Reviewer {
    /// Time for one answer.
    latency: Duration,
    /// Outcome of an access review.
    access: Mutex<Reply>,
    /// Outcome of a review of the subject.
    subject: Mutex<Reply>,
    /// Path, credentials and body of each question.
    questions: Mutex<Vec<(String, HeaderMap, Value)>>,
    /// Questions that were dropped before their answer.
    dropped: AtomicUsize,
    /// True once no question is answered any more.
    is_stuck: AtomicBool,
    /// True once questions without selectors are denied.
    is_narrow: AtomicBool,
}

struct DropCounter<'a>(Option<&'a AtomicUsize>);

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        if let Some(dropped) = self.0 {
            dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl AskUpstream for Reviewer {
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        credentials: &'a HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            assert_eq!(method, Method::POST);
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let is_wide = body["spec"]["resourceAttributes"].get("labelSelector").is_none();
            self.questions.lock().push((path.to_owned(), credentials.clone(), body));
            let mut counter = DropCounter(Some(&self.dropped));
            sleep(self.latency).await;
            if self.is_stuck.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            counter.0 = None;
            if is_wide && self.is_narrow.load(Ordering::SeqCst) {
                return status(&json!({"allowed": false}));
            }
            let reply = if path == review::ACCESS_REVIEWS { &self.access } else { &self.subject };
            reply.lock().clone()
        })
    }
}

impl Reviewer {
    fn new(latency: Duration) -> Arc<Self> {
        let subject = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "status": {"userInfo": {"username": "x", "groups": ["system:authenticated"]}}});
        Arc::new(Self {
            latency,
            access: Mutex::new(status(&json!({"allowed": true}))),
            subject: Mutex::new(Ok((StatusCode::CREATED, subject.to_string().into()))),
            questions: Mutex::default(),
            dropped: AtomicUsize::new(0),
            is_stuck: AtomicBool::new(false),
            is_narrow: AtomicBool::new(false),
        })
    }

    /// Answers no further question.
    fn stick(&self) {
        self.is_stuck.store(true, Ordering::SeqCst);
    }

    /// Answers every access review with `reply` from now on.
    fn reply(&self, reply: Reply) {
        *self.access.lock() = reply;
    }

    fn allow(&self, allowed: bool) {
        self.reply(status(&json!({"allowed": allowed})));
    }

    /// Number of questions at a path.
    fn questions(&self, path: &str) -> usize {
        self.questions.lock().iter().filter(|(sent_to, _, _)| sent_to == path).count()
    }

    fn reviews(&self) -> usize {
        self.questions(review::ACCESS_REVIEWS)
    }
}

/// The answer to an access review with this status.
fn status(status: &Value) -> Reply {
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": {"resourceAttributes": {"verb": "list"}}, "status": status});
    Ok((StatusCode::CREATED, review.to_string().into()))
}

fn rights(reviewer: &Arc<Reviewer>) -> Rights {
    Rights::new(Arc::clone(reviewer) as Arc<dyn AskUpstream>, Arc::default())
}

/// The code of an outcome: 200 for an allow.
fn code(outcome: &Result<(), Status>) -> u16 {
    outcome.as_ref().map_or_else(|status| status.code, |()| 200)
}

#[tokio::test(start_paused = true)]
async fn an_allow_is_used_for_ten_seconds_and_then_asked_again() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let check = async || code(&rights.check(&token("a"), &read(PODS)).await);
    assert_eq!(check().await, 200);
    reviewer.allow(false);
    sleep(Duration::from_millis(9_990)).await;
    assert_eq!((check().await, reviewer.reviews()), (200, 1), "the answer is still used");
    sleep(Duration::from_millis(20)).await;
    assert_eq!((check().await, reviewer.reviews()), (403, 2), "the right was revoked");
}

#[tokio::test(start_paused = true)]
async fn a_lasting_denial_is_used_for_ten_seconds_and_then_asked_again() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let check = async || code(&rights.check(&token("a"), &read(PODS)).await);
    reviewer.allow(false);
    assert_eq!(check().await, 403);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((check().await, reviewer.reviews()), (403, 2), "the caller is denied for a minute now");
    reviewer.allow(true);
    sleep(Duration::from_millis(9_990)).await;
    assert_eq!((check().await, reviewer.reviews()), (403, 2), "the answer is still used");
    sleep(Duration::from_millis(20)).await;
    assert_eq!((check().await, reviewer.reviews()), (200, 3), "the right was granted");
}

/// Goal: a caller is not locked out for long by a kube-apiserver that has just started, and costs it few questions if it is
/// denied for good. Method: an allowed caller that is denied and reads every 10 ms, after an outage and for a minute.
#[tokio::test(start_paused = true)]
async fn a_new_denial_is_asked_about_again_after_a_second() {
    const TICK: Duration = Duration::from_millis(10);
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let check = async || code(&rights.check(&token("a"), &read(PODS)).await);
    assert_eq!(check().await, 200);
    reviewer.reply(Err(Status::unavailable("no connection")));
    sleep(RIGHT_AGE_AWAY / 2).await;
    assert_eq!(check().await, 200, "the last answer before the outage");

    let before = reviewer.reviews();
    reviewer.allow(false);
    let denied = Instant::now();
    assert_eq!(check().await, 403);
    reviewer.allow(true);
    while check().await == 403 {
        sleep(TICK).await;
    }
    assert_eq!((denied.elapsed(), reviewer.reviews() - before), (DENIAL_AGE_MIN, 2));

    reviewer.allow(false);
    sleep(RIGHT_AGE).await;
    let (before, denied) = (reviewer.reviews(), Instant::now());
    let mut times = Vec::new();
    while denied.elapsed() < Duration::from_secs(60) {
        assert_eq!(check().await, 403);
        if times.len() < reviewer.reviews() - before {
            times.push(denied.elapsed().as_secs());
        }
        sleep(TICK).await;
    }
    assert_eq!(times, [0, 1, 2, 4, 8, 16, 26, 36, 46, 56], "seconds of the questions");
}

#[tokio::test(start_paused = true)]
async fn an_answer_ages_from_the_moment_it_was_asked() {
    let reviewer = Reviewer::new(Duration::from_secs(2));
    let rights = rights(&reviewer);
    rights.check(&token("a"), &read(PODS)).await.expect("allowed");
    sleep(Duration::from_millis(7_990)).await;
    rights.check(&token("a"), &read(PODS)).await.expect("allowed");
    assert_eq!(reviewer.reviews(), 1);
    sleep(Duration::from_millis(20)).await;
    rights.check(&token("a"), &read(PODS)).await.expect("allowed");
    assert_eq!(reviewer.reviews(), 2, "the right may have been revoked while the answer was on its way");
}

/// Goal: a slow allow does not undo a denial. Method: a request and then the check of an open
/// watch ask the API server, which answers them in reverse order.
#[tokio::test(start_paused = true)]
async fn an_answer_does_not_replace_that_of_a_later_question() {
    let (key, table) = (KeyMaker::random().caller(&token("a")), AnswerTable::new(8, |_, _| RIGHT_AGE, RIGHT_AGE));
    let answer =
        |after: u64, answer: &'static str| move |_| sleep(Duration::from_secs(after)).map(move |()| Ok(answer));
    let slow = table.answer(key, Duration::MAX, answer(3, "allowed"));
    let later = async {
        sleep(Duration::from_secs(1)).await;
        table.answer(key, Duration::ZERO, answer(1, "denied")).await
    };
    assert_eq!(futures::join!(slow, later), (Ok("allowed"), Ok("denied")));
    assert_eq!(table.last(&key, RIGHT_AGE), Some("denied"));
}

#[tokio::test(start_paused = true)]
async fn equal_questions_at_once_are_one_request() {
    let reviewer = Reviewer::new(Duration::from_secs(1));
    let rights = Arc::new(rights(&reviewer));
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let rights = Arc::clone(&rights);
        callers.spawn(async move { rights.check(&token("a"), &read(PODS)).await });
    }
    let outcomes = callers.join_all().await;
    assert!(outcomes.len() == 100 && outcomes.iter().all(Result::is_ok));
    assert_eq!((reviewer.reviews(), rights.decisions.open_len()), (1, 0));
}

/// Goal: a watch that the API server allowed is not ended because its caller may not ask about rights, and ends with a refusal
/// otherwise. Method: refused questions before and after an allow, for watches of a cache and forwarded ones.
#[tokio::test(start_paused = true)]
async fn a_caller_that_may_not_ask_keeps_a_forwarded_watch() {
    let refused = || Err(Status::forbidden("", "", "", "x cannot create selfsubjectaccessreviews"));
    for (is_forwarded, was_allowed, expected) in
        [(true, false, 503), (true, true, 403), (false, false, 403), (false, true, 403)]
    {
        let reviewer = Reviewer::new(Duration::ZERO);
        let rights = rights(&reviewer);
        let again = async |held: Option<&HeldAllow>| {
            rights.check_again(&token("a"), &read(PODS), is_forwarded, held).await.map_err(|status| status.code)
        };
        let held = if was_allowed { Some(again(None).await.expect("allowed")) } else { None };
        sleep(Duration::from_secs(4)).await;
        reviewer.reply(refused());
        assert_eq!(again(held.as_ref()).await, Err(expected), "{is_forwarded} {was_allowed}");
        reviewer.allow(false);
        assert_eq!(again(held.as_ref()).await, Err(403), "a denial is one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_takes_no_answer_from_the_others() {
    let reviewer = Reviewer::new(Duration::from_secs(1));
    let rights = Arc::new(rights(&reviewer));
    let caller = || {
        let rights = Arc::clone(&rights);
        tokio::spawn(async move { rights.check(&token("a"), &read(PODS)).await })
    };
    let callers: Vec<_> = (0..100).map(|_| caller()).collect();
    sleep(Duration::from_millis(500)).await;
    // The first one sent the question.
    callers[..99].iter().for_each(tokio::task::JoinHandle::abort);
    let last = callers.into_iter().next_back().expect("a hundred");
    assert_eq!(last.await.expect("was not aborted"), Ok(()));
    assert_eq!((reviewer.reviews(), reviewer.dropped.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_question_without_callers_ends_and_can_be_asked_anew() {
    let reviewer = Reviewer::new(Duration::from_secs(1));
    let rights = Arc::new(rights(&reviewer));
    let caller = || {
        let rights = Arc::clone(&rights);
        tokio::spawn(async move { rights.check(&token("a"), &read(PODS)).await })
    };
    let callers: Vec<_> = (0..10).map(|_| caller()).collect();
    sleep(Duration::from_millis(500)).await;
    for caller in callers {
        caller.abort();
        assert!(caller.await.is_err());
    }
    assert_eq!(reviewer.dropped.load(Ordering::SeqCst), 1, "the request upstream ended");
    assert_eq!(rights.decisions.open_len(), 0);
    assert_eq!(caller().await.expect("no panic"), Ok(()));
    assert_eq!(reviewer.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_questions_leave_a_bounded_table() {
    let (keys, table) = (KeyMaker::random(), AnswerTable::new(RIGHTS_MAX, |(), _| RIGHT_AGE, RIGHT_AGE));
    let count = AtomicUsize::new(0);
    let ask = async |number: usize| {
        let question = |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(()))
        };
        table.answer(keys.caller(&token(&number.to_string())), Duration::MAX, question).await.expect("an answer");
        assert!(table.len() <= RIGHTS_MAX, "{}", table.len());
    };
    for number in 0..100_000 {
        ask(number).await;
    }
    for recent in 100_000 - RIGHTS_MAX / 2..100_000 {
        ask(recent).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 100_000, "the most recent answers are kept");
    ask(0).await;
    assert_eq!(count.load(Ordering::SeqCst), 100_001, "the oldest are not");
}

/// An answer with this code and body.
fn text(code: u16, body: &str) -> Reply {
    Ok((StatusCode::from_u16(code).unwrap(), body.to_owned().into()))
}

/// The review of a caller that may read, whose members are replaced by those of `changes`.
fn review_with(changes: &Value) -> Value {
    let mut review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "status": {"allowed": true}});
    for (member, value) in changes.as_object().expect("members") {
        review[member] = value.clone();
    }
    review
}

/// Refused questions, each with the code for the caller.
fn refusals() -> Vec<(&'static str, Reply, u16)> {
    let refused = |code: u16, reason: &str| {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": reason,
            "code": code});
        text(code, &body.to_string())
    };
    let allow = review_with(&json!({})).to_string();
    vec![
        ("no answer", Err(Status::unavailable("no connection")), 503),
        ("unauthorized", refused(401, "Unauthorized"), 401),
        ("anonymous", refused(403, "Forbidden"), 403),
        ("too many requests", refused(429, "TooManyRequests"), 429),
        ("internal error", refused(500, "InternalError"), 500),
        ("unavailable", refused(503, "ServiceUnavailable"), 503),
        ("no reviews", refused(404, "NotFound"), 503),
        ("gone", refused(410, "Expired"), 503),
        ("too large", refused(413, "RequestEntityTooLarge"), 503),
        ("bad headers", refused(400, "BadRequest"), 400),
        ("a bad request to a proxy", text(400, "<html>"), 503),
        ("unauthorized by a proxy", text(401, "<html>"), 401),
        ("forbidden by a proxy", text(403, ""), 403),
        ("bad gateway", text(502, "<html>"), 502),
        ("500 with an allow", text(500, &allow), 500),
        ("403 with an allow", text(403, &allow), 403),
        ("404 with an allow", text(404, &allow), 503),
        ("a redirect", text(302, ""), 503),
        ("a redirect with an allow", text(307, &allow), 503),
    ]
}

/// Answers with a code of success that allow nothing, each with the code for the caller.
fn misleading_answers() -> Vec<(&'static str, Reply, u16)> {
    let with = |changes: Value| text(201, &review_with(&changes).to_string());
    let of = |status: Value| with(json!({"status": status}));
    let allow = review_with(&json!({})).to_string();
    let spaces = " ".repeat(REVIEW_BYTES_MAX);
    let unknown = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}).to_string();
    let twice = allow.replace("\"status\"", "\"status\":{\"allowed\":false},\"status\"");
    vec![
        ("garbage", text(200, "hello"), 503),
        ("no bytes", text(200, ""), 503),
        ("null", text(200, "null"), 503),
        ("a list", text(200, "[]"), 503),
        ("half an answer", text(201, &allow[..allow.len() - 1]), 503),
        ("two answers", text(201, &format!("{allow}{allow}")), 503),
        ("no status", text(201, &unknown), 503),
        ("null status", of(Value::Null), 503),
        ("empty status", of(json!({})), 503),
        ("allowed is a text", of(json!({"allowed": "true"})), 503),
        ("allowed is a number", of(json!({"allowed": 1})), 503),
        ("allowed is null", of(json!({"allowed": null})), 503),
        ("another case", of(json!({"Allowed": true})), 503),
        ("allowed and denied", of(json!({"allowed": true, "denied": true})), 503),
        ("denied only", of(json!({"denied": true})), 503),
        ("not allowed", of(json!({"allowed": false})), 403),
        ("denied", of(json!({"allowed": false, "denied": true})), 403),
        ("conditional", of(json!({"allowed": false, "conditionalDecision": {"allowed": true}})), 403),
        ("allowed outside of the status", with(json!({"status": {}, "allowed": true})), 503),
        ("another kind", with(json!({"kind": "SubjectAccessReview"})), 503),
        ("another version", with(json!({"apiVersion": "v1"})), 503),
        ("two statuses", text(201, &twice), 503),
        ("a success Status", text(200, r#"{"kind":"Status","status":"Success","code":200}"#), 503),
        ("a long reason", of(json!({"allowed": true, "reason": spaces})), 503),
        ("a long allow", text(201, &format!("{allow}{spaces}")), 503),
    ]
}

/// Goal: only an allow allows. Method: every answer that could be mistaken for one, and a second question: errors are
/// not kept, so a caller is served as soon as the API server is.
#[tokio::test(start_paused = true)]
async fn errors_never_allow_and_are_not_kept() {
    for (name, reply, expected) in [refusals(), misleading_answers()].concat() {
        let reviewer = Reviewer::new(Duration::ZERO);
        reviewer.reply(reply);
        let rights = rights(&reviewer);
        let outcome = rights.check(&token("a"), &read(PODS)).await;
        assert_eq!(code(&outcome), expected, "{name}: {outcome:?}");
        let status = outcome.expect_err("no allow");
        assert!(status.is_failure() && !status.message.is_empty(), "{name}: {status:?}");
        let is_denial = status.message.starts_with("pods is forbidden");
        reviewer.allow(true);
        let then = code(&rights.check(&token("a"), &read(PODS)).await);
        assert_eq!(then, if is_denial { 403 } else { 200 }, "{name}: errors are not kept");
    }
    let reviewer = Reviewer::new(Duration::ZERO);
    reviewer.reply(text(200, &review_with(&json!({})).to_string()));
    assert_eq!(rights(&reviewer).check(&token("a"), &read(PODS)).await, Ok(()), "unchanged, it is an allow");
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_question_reach_the_caller_unchanged() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let sent = Status::unauthorized();
    reviewer.reply(Ok((StatusCode::UNAUTHORIZED, sent.to_json().into())));
    let rights = rights(&reviewer);
    assert_eq!(rights.check(&token("a"), &read(PODS)).await, Err(sent));
    // A caller without credentials is asked about as well, and usually may not ask.
    let text = r#"User "system:anonymous" cannot create resource "selfsubjectaccessreviews""#;
    let sent = Status::forbidden("authorization.k8s.io", "selfsubjectaccessreviews", "", text);
    reviewer.reply(Ok((StatusCode::FORBIDDEN, sent.to_json().into())));
    assert_eq!(rights.check(&HeaderMap::new(), &read(PODS)).await, Err(sent));
    assert_eq!(reviewer.questions.lock().last().expect("was questions").1, HeaderMap::new());
    let sent = Status::too_many_requests("slow down", 7);
    reviewer.reply(Err(sent.clone()));
    assert_eq!(rights.check(&token("b"), &read(PODS)).await, Err(sent), "errors of the connection too");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_an_error_after_three_seconds() {
    let reviewer = Reviewer::new(Duration::from_secs(3_600));
    let rights = rights(&reviewer);
    let began = Instant::now();
    let status = rights.check(&token("a"), &read(PODS)).await.expect_err("no answer");
    assert_eq!((status.code, began.elapsed().as_secs()), (504, 3), "{status:?}");
    assert!(status.retry_after().is_some());
    assert_eq!((rights.decisions.open_len(), reviewer.dropped.load(Ordering::SeqCst)), (0, 1));
    let unreadable = review::decision(StatusCode::OK, b"").expect_err("no review");
    assert!(unreadable.code == 503 && unreadable.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_denial_names_the_user_as_the_api_server_does() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    reviewer.reply(status(&json!({"allowed": false, "reason": "no"})));
    for path in [PODS, "/api/v1/nodes", PODS] {
        let status = rights.check(&token("a"), &read(path)).await.expect_err("denied");
        assert!(status.message.contains(r#"User "x" cannot list resource"#), "{status}");
        assert!(status.message.ends_with(": no") && status.reason == Reason::Forbidden, "{status}");
    }
    assert_eq!((reviewer.reviews(), reviewer.questions(review::SUBJECT_REVIEWS)), (2, 1), "one name for all denials");
    let (_, credentials, body) = reviewer.questions.lock()[1].clone();
    assert_eq!(credentials, token("a"));
    assert_eq!(body, json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}));
    // Texts of authorizers and authenticators are cut.
    let long = "ä".repeat(REVIEW_TEXT_BYTES_MAX);
    reviewer.reply(status(&json!({"allowed": false, "reason": long})));
    let status = rights.check(&token("b"), &read(PODS)).await.expect_err("denied");
    assert!(status.message.len() < 2 * REVIEW_TEXT_BYTES_MAX, "{}", status.message.len());
}

#[tokio::test(start_paused = true)]
async fn a_denial_without_a_name_is_a_denial() {
    let not_found = Status::generic_not_found();
    for (subject, expected) in [
        (Ok((StatusCode::NOT_FOUND, not_found.to_json().into())), 1),
        (Ok((StatusCode::FORBIDDEN, Bytes::new())), 1),
        (Ok((StatusCode::CREATED, "hello".into())), 2),
        (Ok((StatusCode::TOO_MANY_REQUESTS, Bytes::new())), 2),
        (Err(Status::unavailable("no connection")), 2),
    ] {
        let reviewer = Reviewer::new(Duration::from_millis(10));
        *reviewer.subject.lock() = subject;
        reviewer.allow(false);
        let rights = rights(&reviewer);
        for _ in 0..2 {
            let status = rights.check(&token("a"), &read(PODS)).await.expect_err("denied");
            assert!(status.code == 403 && status.message.contains("the caller cannot list"), "{status}");
        }
        let questions = reviewer.questions(review::SUBJECT_REVIEWS);
        assert_eq!(questions, expected, "only errors that may pass are expected again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_come_delays_a_denial_within_its_three_seconds() {
    let reviewer = Reviewer::new(Duration::from_secs(2));
    reviewer.allow(false);
    let rights = rights(&reviewer);
    let began = Instant::now();
    let status = rights.check(&token("a"), &read(PODS)).await.expect_err("denied");
    assert_eq!((status.code, began.elapsed().as_secs()), (403, 3), "{status}");
}

#[tokio::test(start_paused = true)]
async fn the_question_carries_the_callers_credentials_and_no_others() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let mut credentials = token("a");
    for (name, value) in [("impersonate-user", "u"), ("impersonate-group", "g"), ("impersonate-group", "h")] {
        credentials.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    rights.check(&credentials, &read(PODS)).await.expect("allowed");
    let questions = reviewer.questions.lock().clone();
    let question = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec":
        {"resourceAttributes": {"verb": "list", "version": "v1", "resource": "pods", "namespace": "default"}}});
    assert_eq!(questions, [(review::ACCESS_REVIEWS.to_owned(), credentials, question)]);
}

/// Goal: a queue of our own prolongs no right. Method: as many unanswered questions of other callers as there are slots, then
/// a read whose last answer is too old. It gets 429, not the answer that counts while the API server is away.
#[tokio::test(start_paused = true)]
async fn a_wait_for_our_own_slots_is_no_outage_of_the_api_server() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = Arc::new(rights(&reviewer));
    rights.check(&token("known"), &read(PODS)).await.expect("allowed");
    sleep(RIGHT_AGE).await;
    reviewer.stick();
    let mut flood = JoinSet::new();
    for number in 0..UPSTREAM_ASKS_MAX {
        let rights = Arc::clone(&rights);
        flood.spawn(async move { rights.check(&token(&format!("t{number}")), &read(PODS)).await });
    }
    while reviewer.reviews() < 1 + UPSTREAM_ASKS_MAX {
        tokio::task::yield_now().await;
    }
    let (refused, checked) = futures::join!(async { rights.check(&token("known"), &read(PODS)).await }, async {
        rights.check_again(&token("known"), &read(PODS), false, None).await
    },);
    assert_eq!((code(&refused), code(&checked.map(drop))), (429, 504), "neither allows nor ends a watch");
    assert_eq!(reviewer.reviews(), 2 + UPSTREAM_ASKS_MAX, "the question of the open watch did not wait");
}

/// Goal: the open watches of one caller share a question, and one that has a narrow right alone costs one question each time.
/// Method: watches of three namespaces with selectors, of a caller that may read all and of one that may read these.
#[tokio::test(start_paused = true)]
async fn open_watches_are_asked_about_by_the_widest_right_first() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let watch = |namespace: &str| read(&format!("/api/v1/namespaces/{namespace}/pods?watch=1&labelSelector=a"));
    for namespace in ["a", "b", "c"] {
        rights.check_again(&token("wide"), &watch(namespace), false, None).await.expect("allowed");
    }
    assert_eq!(reviewer.reviews(), 1, "one question for all of them");
    let question = |at: usize| reviewer.questions.lock()[at].2["spec"]["resourceAttributes"].clone();
    assert_eq!(question(0), json!({"verb": "watch", "version": "v1", "resource": "pods"}));

    reviewer.is_narrow.store(true, Ordering::SeqCst);
    let held = rights.check_again(&token("narrow"), &watch("a"), false, None).await.expect("allowed");
    assert_eq!((reviewer.reviews(), &question(3)["labelSelector"]["rawSelector"]), (4, &json!("a")));
    sleep(RIGHT_AGE).await;
    let held = rights.check_again(&token("narrow"), &watch("a"), false, Some(&held)).await.expect("allowed");
    assert_eq!(reviewer.reviews(), 5, "wider rights are not asked about again");
    reviewer.allow(false);
    sleep(RIGHT_AGE).await;
    let refused = rights.check_again(&token("narrow"), &watch("a"), false, Some(&held)).await;
    assert_eq!(code(&refused.map(drop)), 403);
}

/// Goal: only an outage prolongs a right for minutes: the API server's flow control does not. Method: a known caller whose
/// reviews are refused with 429, and then late while the API server answers others.
#[tokio::test(start_paused = true)]
async fn a_review_that_waits_at_the_api_server_is_no_outage() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    let check = async || code(&rights.check(&token("a"), &read(PODS)).await);
    assert_eq!(check().await, 200);
    sleep(RIGHT_AGE).await;
    reviewer.reply(text(429, ""));
    assert_eq!(check().await, 429, "refused by flow control");
    reviewer.stick();
    assert_eq!(check().await, 200, "a late answer, once");
    sleep(RIGHT_AGE_LATE).await;
    assert_eq!(check().await, 504, "it stays late");
}

/// Goal: an API server that hangs delays no read for longer than the check that finds out. Method: a question without an
/// answer, whose caller counts by its last one; the check has no answer either: then reads of known callers are decided at
/// once, until the API server answers anything.
#[tokio::test(start_paused = true)]
async fn a_silent_api_server_delays_no_known_caller() {
    let reviewer = Reviewer::new(Duration::ZERO);
    let last_answer = Arc::<LastAnswer>::default();
    let rights = Rights::new(Arc::clone(&reviewer) as Arc<dyn AskUpstream>, Arc::clone(&last_answer));
    rights.check(&token("known"), &read(PODS)).await.expect("allowed");
    last_answer.note();
    sleep(RIGHT_AGE).await;
    reviewer.stick();
    let sent = Instant::now();
    let (read, known) = (read(PODS), token("known"));
    let (checked, ()) = futures::join!(rights.check(&known, &read), last_answer.doubted());
    assert_eq!((code(&checked), sent.elapsed()), (200, REVIEW_WAIT), "nobody knows yet");
    last_answer.miss(sent);
    assert!(last_answer.silent_for() >= Some(RIGHT_AGE), "since its last answer");
    let (begun, before) = (Instant::now(), reviewer.reviews());
    assert_eq!((code(&rights.check(&known, &read).await), begun.elapsed()), (200, Duration::ZERO));
    assert_eq!(code(&rights.check(&token("unknown"), &read).await), 504, "no earlier answer counts");
    assert_eq!(reviewer.reviews(), before + 1);
    last_answer.note();
    assert_eq!(last_answer.silent_for(), None);
    sleep(RIGHT_AGE_AWAY).await;
    last_answer.miss(Instant::now());
    assert_eq!(code(&rights.check(&known, &read).await), 504, "its last answer is too old");
}
