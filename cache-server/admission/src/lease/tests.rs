//! Rights of open watches: one for equal callers and reads, and their withdrawal.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Wake, Waker},
    time::Duration,
};

use access_rules::rbac::{RbacKind, RbacPolicy};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, StatusCode, header::AUTHORIZATION};
use informer_serving::{
    query::Query,
    status::{Status, StatusExt as _},
};
use parking_lot::RwLock;
use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    limits::{
        DOUBTED_RIGHT_RETRY_MAX, EXPIRED_TOKEN_LEEWAY, EXPIRY_MARGIN, EXPLAINED_RIGHT_ASKED_EVERY, RIGHT_AGE,
        RIGHT_ASKED_EVERY, WITHDRAWAL_WAIT,
    },
    term::WatchTerm,
    upstream::rights::{AskUpstream, Rights},
};

fn right(user: &str, path: &str) -> (Arc<Caller>, Arc<RequestInfo>) {
    let caller = Caller::without_credentials(User::authenticated(user, []));
    (caller, Arc::new(RequestInfo::new("GET", path, &Query::default())))
}

/// Terms of a right that this server decides about.
fn here() -> LeaseTerms {
    LeaseTerms { is_checked_here: true, ..LeaseTerms::default() }
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn equal_rights_are_held_once_and_only_while_a_watch_needs_them() {
    let leases = Arc::new(WatchLeases::default());
    let open = |user, path| {
        let (caller, info) = right(user, path);
        leases.open(&caller, &info, here())
    };
    let pods = [open("a", "/api/v1/pods"), open("a", "/api/v1/pods")];
    let others = [open("b", "/api/v1/pods"), open("a", "/api/v1/nodes")];
    assert_eq!(leases.in_turn(|_| true).len(), 3);
    assert_eq!(Arc::strong_count(&pods[0].right.key), 2, "the table and the right have the key, and no watch");
    let [first, second] = pods;
    drop(first);
    assert_eq!(leases.in_turn(|_| true).len(), 3);
    drop((second, others));
    assert_eq!(leases.in_turn(|_| true).len(), 0);
}

#[test]
fn a_withdrawal_wakes_the_watches_of_its_right_only() {
    let leases = Arc::new(WatchLeases::default());
    let (caller, info) = right("a", "/api/v1/pods");
    let (lease, twin) = (leases.open(&caller, &info, here()), leases.open(&caller, &info, here()));
    let (caller, info) = right("b", "/api/v1/pods");
    let other = leases.open(&caller, &info, here());
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let cx = Context::from_waker(&waker);
    for lease in [&lease, &twin, &other] {
        assert!(lease.poll_withdrawn(&cx).is_pending());
    }
    lease.right.withdraw();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    assert!(lease.poll_withdrawn(&cx).is_ready() && twin.poll_withdrawn(&cx).is_ready());
    assert!(other.poll_withdrawn(&cx).is_pending());
}

/// Goal: a refusal ends a watch in time, another error of the authorizer does not. Method: each Status for one pass.
#[tokio::test(start_paused = true)]
async fn only_refusals_withdraw_a_right() {
    for (answer, withdrawn) in [
        (Ok(()), false),
        (Err(Status::unauthorized()), true),
        (Err(Status::forbidden("", "pods", "", "no")), true),
        (Err(Status::unavailable("away")), false),
        (Err(Status::too_many_requests("later", 1)), false),
    ] {
        let leases = Arc::new(WatchLeases::default());
        let (caller, info) = right("a", "/api/v1/pods");
        let lease = leases.open(&caller, &info, here());
        let term = WatchTerm::new(Instant::now() + Duration::from_secs(3_600), Some(lease.withdrawal()));
        let given = answer.clone();
        let check = move |_, _| future::ready(given.clone().map(|()| None));
        let checking = keep_checking(Arc::downgrade(&leases), None, Arc::<Roles>::default(), check);
        let checking = tokio::spawn(checking);
        let began = Instant::now();
        let is_over = tokio::time::timeout(WITHDRAWAL_WAIT, term.over()).await.is_ok();
        assert_eq!(is_over, withdrawn, "{answer:?} after {:?}", began.elapsed());
        checking.abort();
    }
}

/// Goal: a user with many rights does not prolong the right of another one. Method: 20,000 rights, whose checks take 16 s
/// in all, and one right that is withdrawn meanwhile.
#[tokio::test(start_paused = true)]
async fn a_user_with_many_rights_delays_no_other_user() {
    let leases = Arc::new(WatchLeases::default());
    let open = |user: &str, path: &str| {
        let (caller, info) = right(user, path);
        leases.open(&caller, &info, here())
    };
    let greedy: Vec<_> =
        (0..20_000).map(|number| open("greedy", &format!("/api/v1/namespaces/n{number}/pods"))).collect();
    let modest = open("modest", "/api/v1/pods");
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    let checking =
        tokio::spawn(keep_checking(Arc::downgrade(&leases), None, Arc::<Roles>::default(), move |right, _| {
            let refused = Arc::clone(&refused);
            async move {
                sleep(Duration::from_millis(50)).await;
                let is_refused = right.caller.user.name == "modest" && refused.load(Ordering::Relaxed);
                if is_refused { Err(Status::unauthorized()) } else { Ok(None) }
            }
        }));
    // The checks of the greedy user have begun.
    sleep(RECHECK_EVERY + Duration::from_secs(1)).await;
    is_refused.store(true, Ordering::Relaxed);
    let began = Instant::now();
    modest.right.withdrawal.withdrawn().await;
    let took = began.elapsed();
    assert!(took <= RECHECK_EVERY + Duration::from_millis(500), "{took:?}");
    sleep(Duration::from_secs(60)).await;
    let oldest = greedy.iter().map(|lease| lease.right.checked.lock().elapsed()).max().unwrap_or_default();
    assert!(oldest < Duration::from_secs(20), "each right is checked in its turn: {oldest:?}");
    checking.abort();
}

/// Goal: a change of the policies acts at once. Method: a notice, long before the next regular check.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_policies_is_acted_upon_at_once() {
    let leases = Arc::new(WatchLeases::default());
    let (caller, info) = right("a", "/api/v1/pods");
    let lease = leases.open(&caller, &info, here());
    let (policies, changes) = watch::channel(0);
    let refuse = |_, _| future::ready(Err(Status::forbidden("", "pods", "", "no")));
    let roles = Arc::<Roles>::default();
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&leases), Some(changes), roles, refuse));
    tokio::task::yield_now().await;
    let began = Instant::now();
    policies.send_replace(1);
    lease.right.withdrawal.withdrawn().await;
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    drop(leases);
    drop(lease);
    checking.await.expect("ends with the server");
}

/// Roles that change each time they are looked at.
struct RestlessRoles(watch::Sender<u64>);

impl FollowedRoles for RestlessRoles {
    fn version(&self) -> Option<u64> {
        self.0.send_modify(|version| *version += 1);
        Some(*self.0.borrow())
    }

    fn allow(&self, _: &User, _: &RequestInfo) -> bool {
        true
    }
}

/// Goal: changes of the policies that never end put no check off. Method: a change in each round, before its checks.
#[tokio::test(start_paused = true)]
async fn a_stream_of_changes_does_not_prevent_checks() {
    let leases = Arc::new(WatchLeases::default());
    let (caller, info) = right("a", "/api/v1/pods");
    let lease = leases.open(&caller, &info, here());
    let (policies, changes) = watch::channel(0);
    let refuse = |_, _| future::ready(Err(Status::forbidden("", "pods", "", "no")));
    let roles = Arc::new(RestlessRoles(policies));
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&leases), Some(changes), roles, refuse));
    let withdrawn = tokio::time::timeout(WITHDRAWAL_WAIT, lease.right.withdrawal.withdrawn()).await;
    assert!(withdrawn.is_ok(), "never checked");
    checking.abort();
}

/// The API server of these tests: counts the reviews of callers, which have the tokens `t0`, `t1` and so on.
#[derive(Default)]
struct Reviewer {
    reviews: AtomicUsize,
    /// Answer to all questions: allowed, with this reason; denied; or a Status.
    answer: Mutex<ReviewAnswer>,
    /// Time from which tokens are not accepted.
    accepts_until: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ReviewAnswer {
    #[default]
    ByNode,
    ByRole,
    Denied,
    Code(u16),
}

const BY_ROLE: &str = r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "g""#;

impl AskUpstream for Reviewer {
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        _: &'a HeaderMap,
        _: Bytes,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), Status>> {
        assert_eq!((method, path), (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"));
        self.reviews.fetch_add(1, Ordering::Relaxed);
        let is_over = self.accepts_until.lock().is_some_and(|until| until <= Instant::now());
        let answer = if is_over { ReviewAnswer::Code(401) } else { *self.answer.lock() };
        let status = match answer {
            ReviewAnswer::ByNode => json!({"allowed": true}),
            ReviewAnswer::ByRole => json!({"allowed": true, "reason": BY_ROLE}),
            ReviewAnswer::Denied => json!({"allowed": false}),
            ReviewAnswer::Code(code) => {
                let code = StatusCode::from_u16(code).unwrap();
                return Box::pin(future::ready(Ok((code, Bytes::new()))));
            }
        };
        let review =
            json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": status});
        Box::pin(future::ready(Ok((StatusCode::CREATED, review.to_string().into()))))
    }
}

/// The followed roles of these tests.
#[derive(Default)]
struct Roles {
    policy: RwLock<RbacPolicy>,
    is_lost: AtomicBool,
    version: watch::Sender<u64>,
}

impl FollowedRoles for Roles {
    fn version(&self) -> Option<u64> {
        (!self.is_lost.load(Ordering::Relaxed)).then(|| *self.version.borrow())
    }

    fn allow(&self, subject: &User, info: &RequestInfo) -> bool {
        self.policy.read().decide(subject, info).is_allowed()
    }
}

impl Roles {
    /// Lets the group of [`BY_ROLE`] watch pods.
    fn bound() -> Arc<Self> {
        let roles = Self::default();
        let role = json!({"rules": [{"verbs": ["watch"], "apiGroups": [""], "resources": ["pods"]}]});
        let binding =
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": "g"}]});
        for (kind, name, object) in [(RbacKind::ClusterRole, "r", role), (RbacKind::ClusterRoleBinding, "b", binding)] {
            roles.policy.write().apply(kind, "", name, object.to_string().as_bytes()).unwrap();
        }
        Arc::new(roles)
    }

    fn unbind(&self) {
        self.policy.write().remove(RbacKind::ClusterRoleBinding, "", "b");
        self.change();
    }

    /// Gives notice of a change.
    fn change(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }
}

/// Open watches in front of an API server, and the task that checks them.
struct Fleet {
    reviewer: Arc<Reviewer>,
    roles: Arc<Roles>,
    leases: Vec<WatchLease>,
    checking: JoinHandle<()>,
}

impl Fleet {
    /// Opens one watch for each of `count` callers, after the API server has allowed it.
    async fn open(count: usize, answer: ReviewAnswer, roles: Arc<Roles>, expires: Option<Instant>) -> Self {
        Self::open_with(count, answer, roles, expires, false).await
    }

    async fn open_with(
        count: usize,
        answer: ReviewAnswer,
        roles: Arc<Roles>,
        expires: Option<Instant>,
        keeps_asking: bool,
    ) -> Self {
        let reviewer = Arc::new(Reviewer { answer: Mutex::new(answer), ..Reviewer::default() });
        let upstream = Arc::clone(&reviewer) as Arc<dyn AskUpstream>;
        let (rights, table) = (Arc::new(Rights::new(upstream, Arc::default())), Arc::<WatchLeases>::default());
        let caller = Caller::without_credentials(User::unsecured());
        let mut leases = Vec::new();
        for number in 0..count {
            let path = "/api/v1/pods";
            let query = Query::parse(Some(&format!("watch=1&fieldSelector=spec.nodeName%3Dn{number}")));
            let info = Arc::new(RequestInfo::new("GET", path, &query));
            let token = format!("Bearer t{number}").parse().unwrap();
            let credentials: HeaderMap = [(AUTHORIZATION, token)].into_iter().collect();
            rights.check(&credentials, &info).await.expect("allowed");
            let (key, allow) = (rights.caller(&credentials), rights.last_allow(&credentials, &info));
            let reason = allow.as_ref().map(|allow| Arc::clone(&allow.reason));
            let own = Some(CredentialRight { caller: key, credentials, allow });
            let asking = Some(ReviewedRight { reason, expires, keeps_asking });
            leases.push(table.open(&caller, &info, LeaseTerms { own, asking, ..LeaseTerms::default() }));
        }
        let check = move |right: Arc<HeldRight>, may_ask: bool| {
            let rights = Arc::clone(&rights);
            async move {
                let Some(credentials) = right.credentials.as_ref().filter(|_| may_ask) else { return Ok(None) };
                let held = right.allow.lock().clone();
                let allow = rights.check_again(credentials, &right.info, false, held.as_ref()).await?;
                *right.allow.lock() = Some(allow.clone());
                Ok(Some(allow.reason))
            }
        };
        let (changes, followed) = (roles.version.subscribe(), Arc::clone(&roles) as Arc<dyn FollowedRoles>);
        let checking = tokio::spawn(keep_checking(Arc::downgrade(&table), Some(changes), followed, check));
        Self { reviewer, roles, leases, checking }
    }

    /// Reviews since the last call.
    fn reviews(&self) -> usize {
        self.reviewer.reviews.swap(0, Ordering::Relaxed)
    }

    fn answers(&self, answer: ReviewAnswer) {
        *self.reviewer.answer.lock() = answer;
    }

    fn withdrawn(&self) -> usize {
        self.leases.iter().filter(|lease| lease.right.withdrawal.is_withdrawn()).count()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.checking.abort();
    }
}

/// Goal: rights cost the API server nothing while roles explain them, and one review in five minutes otherwise.
/// Method: 10,000 callers with one watch each for ten minutes (1,000 in the last case), with followed roles, without,
/// and allowed by another authorizer.
#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_cost_no_review_while_roles_explain_them() {
    for (answer, is_followed, watches, expected) in [
        (ReviewAnswer::ByRole, true, 10_000, 0),
        (ReviewAnswer::ByRole, false, 10_000, 2),
        (ReviewAnswer::ByNode, true, 1_000, 2),
    ] {
        let case = format!("{answer:?} {is_followed}");
        let roles = Roles::bound();
        roles.is_lost.store(!is_followed, Ordering::Relaxed);
        let fleet = Fleet::open(watches, answer, roles, None).await;
        assert_eq!(fleet.reviews(), watches, "{case}: one for each at its start");
        let mut most = 0;
        let mut total = 0;
        for _ in 0..60 {
            sleep(Duration::from_secs(10)).await;
            let reviews = fleet.reviews();
            (most, total) = (most.max(reviews), total + reviews);
        }
        assert_eq!((total, fleet.withdrawn()), (expected * watches, 0), "{case}");
        assert!(most < watches / 4, "{case}: {most} reviews in ten seconds");
    }
}

/// Goal: a withdrawn right ends its watches within two seconds where roles are followed, and within five minutes where not.
/// Method: the binding is deleted; the API server's own authorizer notices first, or a moment later.
#[tokio::test(start_paused = true)]
async fn a_right_that_no_role_explains_any_more_is_asked_about_at_once() {
    for lag in [0, 300].map(Duration::from_millis) {
        let fleet = Fleet::open(100, ReviewAnswer::ByRole, Roles::bound(), None).await;
        sleep(Duration::from_secs(1_000)).await;
        fleet.roles.unbind();
        let began = Instant::now();
        sleep(lag).await;
        fleet.answers(ReviewAnswer::Denied);
        for lease in &fleet.leases {
            lease.right.withdrawal.withdrawn().await;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{lag:?}: {:?}", began.elapsed());
    }
    let roles = Roles::bound();
    roles.lose();
    let fleet = Fleet::open(100, ReviewAnswer::ByRole, roles, None).await;
    sleep(Duration::from_secs(1_000)).await;
    fleet.answers(ReviewAnswer::Denied);
    sleep(RIGHT_ASKED_EVERY).await;
    assert_eq!(fleet.withdrawn(), 100);
}

/// Goal: roles that are not up to date any more explain nothing, and the questions that they put off do not come at once.
/// Method: watches that are older than five minutes when the roles are lost; the API server denies all.
#[tokio::test(start_paused = true)]
async fn lost_roles_put_no_question_off_for_longer_than_five_minutes() {
    let fleet = Fleet::open(1_000, ReviewAnswer::ByRole, Roles::bound(), None).await;
    sleep(2 * RIGHT_ASKED_EVERY).await;
    fleet.reviews();
    fleet.roles.lose();
    fleet.answers(ReviewAnswer::Denied);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.reviews(), 0, "not at once");
    sleep(RIGHT_ASKED_EVERY - Duration::from_secs(60)).await;
    assert_eq!(fleet.withdrawn(), 1_000);
}

/// Goal: a token's expiry ends its watches, though roles explain their rights. Method: tokens that expire, at an API server that
/// remembers them for ten seconds.
#[tokio::test(start_paused = true)]
async fn an_expired_token_is_asked_about() {
    let expires = Instant::now() + Duration::from_secs(500);
    let fleet = Fleet::open(10, ReviewAnswer::ByRole, Roles::bound(), Some(expires)).await;
    fleet.reviews();
    sleep(Duration::from_secs(499)).await;
    assert_eq!(fleet.reviews(), 0);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((fleet.reviews(), fleet.withdrawn()), (10, 0));
    fleet.answers(ReviewAnswer::Code(401));
    sleep(RIGHT_AGE).await;
    assert_eq!((fleet.reviews(), fleet.withdrawn()), (10, 10));
}

/// Goal: an expired token ends its watches also if the API server accepts it for some time, though roles explain them.
/// Method: kube-apiserver's leeway for service accounts, and a server whose clock is four minutes behind; both remember
/// a token for ten seconds.
#[tokio::test(start_paused = true)]
async fn an_expired_token_that_is_still_accepted_is_asked_about_later() {
    for (leeway, within) in
        [(EXPIRED_TOKEN_LEEWAY, Duration::from_secs(5)), (Duration::from_secs(240), RIGHT_ASKED_EVERY)]
    {
        let expires = Instant::now() + Duration::from_secs(500);
        let fleet = Fleet::open(10, ReviewAnswer::ByRole, Roles::bound(), Some(expires)).await;
        let ends = expires + leeway + RIGHT_AGE;
        *fleet.reviewer.accepts_until.lock() = Some(ends);
        sleep_until(ends).await;
        assert_eq!(fleet.withdrawn(), 0, "{leeway:?}");
        sleep(within).await;
        assert_eq!(fleet.withdrawn(), 10, "{leeway:?}");
    }
}

/// Goal: a token's expiry ends its watches in time, though questions were left undecided. Method: 503 from a while
/// before the expiry on, until the expiry or until long after it, then 401.
#[tokio::test(start_paused = true)]
async fn an_expired_token_is_asked_about_after_undecided_questions() {
    for (answer, expiry, refused) in [(ReviewAnswer::ByNode, 360, 360), (ReviewAnswer::ByRole, 360, 1_200)] {
        let began = Instant::now();
        let [expiry, refused] = [expiry, refused].map(|seconds| began + Duration::from_secs(seconds));
        let fleet = Fleet::open(10, answer, Roles::bound(), Some(expiry)).await;
        sleep(Duration::from_secs(200)).await;
        fleet.answers(ReviewAnswer::Code(503));
        sleep_until(refused).await;
        assert_eq!(fleet.withdrawn(), 0, "{answer:?}");
        fleet.answers(ReviewAnswer::Code(401));
        sleep(Duration::from_secs(15)).await;
        assert_eq!(fleet.withdrawn(), 10, "{answer:?}");
    }
}

/// Goal: lost roles put no question off that they did not put off before. Method: rights that roles explain in part,
/// and those of expired tokens that the API server accepts all the same; no roles from 200 s after their last question
/// on.
#[tokio::test(start_paused = true)]
async fn lost_roles_put_off_no_question_that_is_due_anyway() {
    let lifetime = Duration::from_secs(100);
    for (keeps_asking, expires, reviewed) in [
        (true, None, Duration::ZERO),
        (false, Some(lifetime), lifetime + EXPIRED_TOKEN_LEEWAY + RIGHT_AGE + 2 * EXPIRY_MARGIN),
    ] {
        let expiry = expires.map(|lifetime| Instant::now() + lifetime);
        let fleet = Fleet::open_with(10, ReviewAnswer::ByRole, Roles::bound(), expiry, keeps_asking).await;
        sleep(reviewed).await;
        fleet.reviews();
        sleep(Duration::from_secs(200)).await;
        assert_eq!(fleet.reviews(), 0, "{expires:?}: not earlier");
        fleet.roles.lose();
        sleep(RIGHT_ASKED_EVERY - Duration::from_secs(200)).await;
        assert_eq!(fleet.reviews(), 10, "{expires:?}");
    }
}

/// Goal: changes of other roles put no question off. Method: a binding is deleted, and twenty roles change in the
/// second in which the API server's own authorizer is behind.
#[tokio::test(start_paused = true)]
async fn a_storm_of_role_changes_puts_no_question_off() {
    let fleet = Fleet::open(10, ReviewAnswer::ByRole, Roles::bound(), None).await;
    sleep(Duration::from_secs(1_000)).await;
    fleet.roles.unbind();
    let began = Instant::now();
    for _ in 0..20 {
        sleep(Duration::from_millis(50)).await;
        fleet.roles.change();
    }
    fleet.answers(ReviewAnswer::Denied);
    for lease in &fleet.leases {
        lease.right.withdrawal.withdrawn().await;
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

/// Goal: what roles cannot tell, as that a token was revoked, ends a watch of any length, at a small price. Method: rights
/// that roles explain for four hours, then an API server that accepts their tokens no more.
#[tokio::test(start_paused = true)]
async fn rights_that_roles_explain_are_asked_about_every_hour() {
    let fleet = Fleet::open(100, ReviewAnswer::ByRole, Roles::bound(), None).await;
    assert_eq!(fleet.reviews(), 100);
    sleep(EXPLAINED_RIGHT_ASKED_EVERY / 2).await;
    assert_eq!(fleet.reviews(), 0, "not earlier");
    let mut most = 0;
    let mut total = 0;
    for _ in 0..4 * 60 {
        sleep(EXPLAINED_RIGHT_ASKED_EVERY / 60).await;
        let reviews = fleet.reviews();
        (most, total) = (most.max(reviews), total + reviews);
    }
    assert!((400..=900).contains(&total) && fleet.withdrawn() == 0, "{total} reviews of 100 watches in four hours");
    assert!(most < 25, "{most} reviews in a minute");
    fleet.answers(ReviewAnswer::Code(401));
    sleep(EXPLAINED_RIGHT_ASKED_EVERY).await;
    assert_eq!(fleet.withdrawn(), 100);
}

/// Goal: a caller keeps no withdrawn watch by filling its own queues at the API server. Method: the binding is deleted,
/// and questions get no decision for ten minutes, then a denial.
#[tokio::test(start_paused = true)]
async fn a_right_that_no_role_explains_any_more_is_asked_about_often() {
    for code in [429, 503, 504] {
        let fleet = Fleet::open(10, ReviewAnswer::ByRole, Roles::bound(), None).await;
        sleep(Duration::from_secs(1_000)).await;
        fleet.answers(ReviewAnswer::Code(code));
        fleet.roles.unbind();
        sleep(Duration::from_secs(600)).await;
        fleet.reviews();
        sleep(Duration::from_secs(60)).await;
        let repeated = fleet.reviews();
        assert!((60..200).contains(&repeated), "{code}: {repeated} questions about ten rights in a minute");
        assert_eq!(fleet.withdrawn(), 0, "{code}");
        fleet.answers(ReviewAnswer::Denied);
        sleep(DOUBTED_RIGHT_RETRY_MAX + RECHECK_PAUSE).await;
        assert_eq!(fleet.withdrawn(), 10, "{code}");
    }
}

/// Goal: a review that flow control refuses, or that has no answer, neither ends a watch nor counts as an allow. Method: 429 and
/// 503 for a while when a question is due, then a denial.
#[tokio::test(start_paused = true)]
async fn a_question_without_a_decision_is_repeated() {
    for code in [429, 503] {
        let fleet = Fleet::open(10, ReviewAnswer::ByNode, Roles::bound(), None).await;
        fleet.answers(ReviewAnswer::Code(code));
        sleep(RIGHT_ASKED_EVERY).await;
        assert_eq!(fleet.withdrawn(), 0, "{code}");
        fleet.reviews();
        sleep(Duration::from_secs(60)).await;
        let repeated = fleet.reviews();
        assert!((10..100).contains(&repeated), "{code}: {repeated} questions about ten rights in a minute");
        fleet.answers(ReviewAnswer::Denied);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(fleet.withdrawn(), 10, "{code}");
    }
}
