//! Rights of users, as the API server reports them to this server's own account.
//!
//! INVARIANT: two questions share an answer only if user and attributes are equal, apart from this: a user that may read
//! all objects of a collection may read those that a selector chooses. The reverse never holds.
//!
//! Source: `authorization.k8s.io/v1` SubjectAccessReview; KEP-4601 (selectors in authorization).

use std::sync::Arc;

use access_rules::{decision::AccessDecision, request_info::RequestInfo, user::User};
use http::Method;
use informer_serving::status::Status;

use super::review::{self, Decision};
use crate::{
    answers::AnswerTable,
    frequent,
    key::KeyMaker,
    limits::{REVIEW_BYTES_MAX, REVIEW_WAIT, RIGHT_AGE_AWAY, RIGHTS_MAX, SUBJECT_REVIEWS_MAX},
    own_requests::{AnswerBounds, QuestionOrigin, ReviewSlots, SendOwn},
};

/// Rights of users. Its account needs the right to create SubjectAccessReviews (ClusterRole `system:auth-delegator`).
///
/// Memory: at most [`RIGHTS_MAX`] answers.
pub struct SubjectRights {
    own: Arc<dyn SendOwn>,
    keys: KeyMaker,
    decisions: AnswerTable<Decision>,
    slots: ReviewSlots,
}

impl SubjectRights {
    /// Starts without answers.
    pub fn new(own: Arc<dyn SendOwn>) -> Self {
        let decisions = AnswerTable::new(RIGHTS_MAX, Decision::age_max, RIGHT_AGE_AWAY);
        Self { own, keys: KeyMaker::random(), decisions, slots: ReviewSlots::new(SUBJECT_REVIEWS_MAX) }
    }

    /// True if no question is on its way, and no slot is taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        (self.slots.free(), self.decisions.open_len()) == (SUBJECT_REVIEWS_MAX, 0)
    }

    /// Decides whether `user` may send the request. A collection with selectors is first asked about without them, so that
    /// users who may read all of it share one answer.
    ///
    /// Cost: as of `Rights::check`, but all callers that are the same user share answers.
    ///
    /// # Errors
    /// 500 if this server's account may not ask; 503 or 504 if no answer comes; 429 while too many questions of requests are
    /// open.
    pub async fn decide(
        &self,
        user: &User,
        info: &RequestInfo,
        origin: QuestionOrigin,
    ) -> Result<AccessDecision, Status> {
        if let Some(whole) = without_selectors(info)
            && let Decision::Allowed(reason) = self.answer(user, &whole, origin).await?
        {
            return Ok(AccessDecision::Allowed { reason: (*reason).to_owned() });
        }
        Ok(match self.answer(user, info, origin).await? {
            Decision::Allowed(reason) => AccessDecision::Allowed { reason: (*reason).to_owned() },
            Decision::Denied(denial) => AccessDecision::NoOpinion { reason: denial.reason.clone() },
        })
    }

    async fn answer(&self, user: &User, info: &RequestInfo, origin: QuestionOrigin) -> Result<Decision, Status> {
        let key = self.keys.subject(user, info);
        let review = |before| self.review(user, info, before, origin);
        self.decisions.answer_for(origin, key, review).await
    }

    fn review(
        &self,
        user: &User,
        info: &RequestInfo,
        before: Option<Decision>,
        origin: QuestionOrigin,
    ) -> impl Future<Output = Result<Decision, Status>> + Send + 'static {
        let (own, slots) = (Arc::clone(&self.own), self.slots.clone());
        let body = review::user_access_review(user, info);
        async move {
            let _slot = slots.enter(origin).await?;
            let bounds = AnswerBounds { bytes_max: REVIEW_BYTES_MAX, wait: REVIEW_WAIT };
            let answer = own.send(Method::POST, review::USER_ACCESS_REVIEWS, body, bounds).await;
            let (code, body) = answer.map_err(|error| error.status("whether the request is allowed"))?;
            Ok(review::user_decision(code, &body)?.after(before))
        }
    }
}

/// Returns the read of the whole collection; `None` if the request has no selectors.
pub(super) fn without_selectors(info: &RequestInfo) -> Option<RequestInfo> {
    let of = info.resource.as_ref()?;
    if of.field_selector.raw_selector.is_empty() && of.label_selector.raw_selector.is_empty() {
        return None;
    }
    let mut whole = info.clone();
    if let Some(of) = &mut whole.resource {
        (of.field_selector, of.label_selector) = Default::default();
        // `RequestInfo` has this name from a selector on `metadata.name`, which the whole collection lacks.
        of.name = String::new();
    }
    Some(whole)
}

/// Returns the reads that contain `info`, the widest first: of all namespaces, of its namespace, and itself. A caller that
/// may read a wider one may read `info`.
pub(super) fn containing(info: &RequestInfo) -> Vec<RequestInfo> {
    let mut reads = frequent::widened(&without_selectors(info).unwrap_or_else(|| info.clone()));
    reads.push(info.clone());
    reads.dedup();
    reads
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        time::Duration,
    };

    use bytes::Bytes;
    use futures::{FutureExt as _, future::BoxFuture};
    use http::StatusCode;
    use informer_serving::query::Query;
    use serde_json::json;
    use tokio::{task::JoinSet, time::advance};

    use super::{
        QuestionOrigin::{OpenWatch, Request},
        *,
    };
    use crate::{limits::RIGHT_AGE_AWAY, own_requests::OwnRequestError};

    /// An API server that allows everything. Once stuck, it never answers questions about users other than `known`.
    #[derive(Default)]
    struct StuckServer {
        is_stuck: AtomicBool,
        unanswered: AtomicUsize,
    }

    impl SendOwn for StuckServer {
        fn send<'a>(
            &'a self,
            _: Method,
            _: &'a str,
            body: Bytes,
            _: AnswerBounds,
        ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
            if self.is_stuck.load(Ordering::SeqCst) && !body.windows(7).any(|part| part == b"\"known\"") {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                return std::future::pending().boxed();
            }
            let mut answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
            answer["status"] = json!({ "allowed": true });
            async move { Ok((StatusCode::CREATED, answer.to_string().into())) }.boxed()
        }
    }

    fn user(name: &str) -> User {
        User { name: name.to_owned(), ..User::default() }
    }

    /// Goal: a flood of users neither loads the API server without bound, nor prolongs rights, nor delays the checks of open
    /// watches. Method: as many unanswered questions as there are slots, then a request and a check of a known user.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_users_gets_429() {
        let server = Arc::new(StuckServer::default());
        let rights = Arc::new(SubjectRights::new(Arc::clone(&server) as Arc<dyn SendOwn>));
        let pods = info("/api/v1/pods");
        let allowed = Ok(AccessDecision::Allowed { reason: String::new() });
        assert_eq!(rights.decide(&user("known"), &pods, Request).await, allowed);
        advance(RIGHT_AGE_AWAY / 2).await;
        server.is_stuck.store(true, Ordering::SeqCst);
        let mut flood = JoinSet::new();
        for number in 0..SUBJECT_REVIEWS_MAX {
            let (rights, pods) = (Arc::clone(&rights), pods.clone());
            flood.spawn(async move { rights.decide(&user(&format!("u{number}")), &pods, Request).await });
        }
        while server.unanswered.load(Ordering::SeqCst) < SUBJECT_REVIEWS_MAX {
            tokio::task::yield_now().await;
        }
        let known = user("known");
        let (refused, checked) =
            futures::join!(rights.decide(&known, &pods, Request), rights.decide(&known, &pods, OpenWatch));
        assert_eq!(refused.map_err(|status| status.code), Err(429));
        assert_eq!(checked, allowed);
        flood.shutdown().await;
        assert_eq!(rights.decide(&known, &info("/api/v1/nodes"), Request).await, allowed);
    }

    fn info(request: &str) -> RequestInfo {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        RequestInfo::new("GET", path, &Query::parse(Some(query)))
    }

    /// Goal: a decision that is known costs some microseconds. Method: one user of twenty groups and one selection, 10,000
    /// times. Prints the mean; the bound is for debug builds.
    #[tokio::test]
    async fn known_decisions_are_cheap() {
        let rights = SubjectRights::new(Arc::new(StuckServer::default()));
        let user = User { groups: (0..20).map(|group| format!("group-{group}")).collect(), ..user("alice") };
        let info = info("/api/v1/pods?fieldSelector=spec.nodeName=n1&watch=1");
        rights.decide(&user, &info, Request).await.unwrap();
        let began = std::time::Instant::now();
        for _ in 0..10_000 {
            rights.decide(&user, &info, Request).await.unwrap();
        }
        let each = began.elapsed() / 10_000;
        println!("a known decision: {each:?}");
        assert!(each < Duration::from_micros(200), "{each:?}");
    }

    #[test]
    fn the_whole_of_a_selected_part_is_its_collection() {
        for (request, whole) in [
            ("/api/v1/pods?fieldSelector=spec.nodeName=n", Some("/api/v1/pods")),
            ("/api/v1/namespaces/a/pods?watch=1&labelSelector=b", Some("/api/v1/namespaces/a/pods?watch=1")),
            ("/api/v1/pods?fieldSelector=metadata.name=n", Some("/api/v1/pods")),
            ("/api/v1/pods", None),
            ("/api/v1/namespaces/a/pods/b", None),
            ("/metrics", None),
        ] {
            assert_eq!(without_selectors(&info(request)), whole.map(info), "{request}");
        }
    }

    #[test]
    fn reads_are_widened_to_all_namespaces_first() {
        for (request, expected) in [
            ("/api/v1/namespaces/a/pods?watch=1&labelSelector=b", &["/api/v1/pods", "/api/v1/namespaces/a/pods"][..]),
            ("/api/v1/namespaces/a/pods?watch=1", &["/api/v1/pods"]),
            ("/api/v1/pods?watch=1&fieldSelector=metadata.name=n", &["/api/v1/pods"]),
            ("/api/v1/pods?watch=1", &[]),
        ] {
            let attributes = |info: RequestInfo| (info.verb, info.resource);
            let expected = expected.iter().map(|path| info(&format!("{path}?watch=1"))).chain([info(request)]);
            let reads = containing(&info(request)).into_iter().map(attributes);
            assert_eq!(reads.collect::<Vec<_>>(), expected.map(attributes).collect::<Vec<_>>(), "{request}");
        }
    }

    #[test]
    fn users_that_differ_in_one_part_share_no_answer() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        };
        let extra = User { extra: [("b".to_owned(), vec!["c".to_owned()])].into(), ..user("a", &[]) };
        let users = [
            user("a", &[]),
            user("a", &["b"]),
            user("a", &["b", "c"]),
            user("a", &["bc"]),
            user("ab", &[]),
            User { uid: "b".to_owned(), ..user("a", &[]) },
            extra,
        ];
        let keys = KeyMaker::random();
        let of = |user: &User| keys.subject(user, &info("/api/v1/pods"));
        for (at, user) in users.iter().enumerate() {
            assert!(users[..at].iter().all(|other| of(other) != of(user)), "{user:?}");
            assert_eq!(of(user), of(&user.clone()));
        }
    }
}
