//! Rights of callers: a cached read is answered only if the API server allows it to the caller.
//!
//! INVARIANT: only a well-formed answer of the API server with `allowed: true` is an allow. Errors, timeouts and
//! unreadable answers are none, and are not cached.
//! INVARIANT: two questions share an answer only if all of their credentials and attributes are equal.
//!
//! Source: `authorization.k8s.io/v1` SelfSubjectAccessReview; apiserver `endpoints/filters/authorization.go`.

mod review;
mod subjects;

use std::{sync::Arc, time::Duration};

use access_rules::{authentication::impersonation, request_info::RequestInfo};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use informer_serving::status::{Details, Status, StatusExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use self::review::{Decision, Denial};
pub use self::subjects::SubjectRights;
use super::{
    answers::AnswerTable,
    key::{KeyMaker, QuestionKey},
    last_answer::LastAnswer,
    own_requests::{QuestionOrigin, ReviewSlots},
};
use crate::limits::{REVIEW_BYTES_MAX, REVIEW_WAIT, RIGHT_AGE, RIGHT_AGE_AWAY, RIGHTS_MAX, UPSTREAM_ASKS_MAX};

/// Sends small requests to the API server on behalf of a caller.
pub trait AskUpstream: Send + Sync {
    /// Sends `body` as JSON with the caller's `credentials`, and returns the answer.
    ///
    /// # Errors
    /// The Status for the caller if no answer came, or one that is longer than its limit.
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        credentials: &'a HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), Status>>;
}

/// Rights of callers, as the API server reports them.
///
/// Memory: at most [`RIGHTS_MAX`] answers and as many names of users. Credentials are kept while a question that
/// carries them is unanswered, and afterwards only as a keyed hash.
pub struct Rights {
    asker: Asker,
    keys: KeyMaker,
    decisions: AnswerTable<Decision>,
    /// Names of users by their credentials. `None` is the name on an API server that does not report it.
    users: AnswerTable<Option<Arc<str>>>,
}

/// An allow of the API server that an open watch holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAllow {
    /// The authorizer's reason; empty if it is none of the caller's own rights alone.
    pub reason: Arc<str>,
    /// Index of the narrowest read that is worth a question: wider ones were denied.
    width: usize,
}

impl HeldAllow {
    fn new(credentials: &HeaderMap, reason: Arc<str>, width: usize) -> Self {
        // The right to act as another user has a reason of its own, which no answer contains.
        let impersonates = credentials.keys().any(|name| name.as_str().starts_with(impersonation::HEADER_PREFIX));
        Self { reason: if impersonates { "".into() } else { reason }, width }
    }
}

/// The right of a caller to a read, by its own credentials.
pub struct CredentialRight {
    /// Hash of the credentials.
    pub caller: QuestionKey,
    pub credentials: HeaderMap,
    /// The answer by which the read was allowed; `None` if the API server was not asked.
    pub allow: Option<HeldAllow>,
}

/// Sends questions, each when it is its turn.
#[derive(Clone)]
struct Asker {
    upstream: Arc<dyn AskUpstream>,
    /// Bounds the questions of requests. Apart from the requests that are passed on, so that long streams cannot use them up.
    slots: ReviewSlots,
    last_answer: Arc<LastAnswer>,
}

impl Rights {
    /// Starts without answers. `last_answer` is shared with all requests to the API server.
    pub fn new(upstream: Arc<dyn AskUpstream>, last_answer: Arc<LastAnswer>) -> Self {
        Self {
            asker: Asker { upstream, slots: ReviewSlots::new(UPSTREAM_ASKS_MAX), last_answer },
            keys: KeyMaker::random(),
            decisions: AnswerTable::new(RIGHTS_MAX, Decision::age_max, RIGHT_AGE_AWAY),
            users: AnswerTable::new(RIGHTS_MAX, |_, _| RIGHT_AGE, RIGHT_AGE_AWAY),
        }
    }

    /// Returns `Ok` if the API server allows `read` to the owner of `credentials`: all headers of the request that
    /// identify the caller, and no others.
    ///
    /// Cost: one request to the API server per caller and read in [`RIGHT_AGE`], up to five in the first 16 s of a row of
    /// denials, and one for the name of a denied caller in [`RIGHT_AGE`]. Equal questions at the same time share a
    /// request, which ends early only if all their callers leave.
    ///
    /// # Errors
    /// 403 in kube-apiserver's words if the read is denied; the API server's own Status if it refuses the question
    /// (401, 403, 429, 5xx); 503 or 504 with a delay if its answer is unreadable, or late by [`REVIEW_WAIT`]; 429 if too many
    /// questions of requests are open here.
    pub async fn check(&self, credentials: &HeaderMap, read: &RequestInfo) -> Result<(), Status> {
        let deadline = Instant::now() + REVIEW_WAIT;
        match self.decide(credentials, read).await? {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(denial) => Err(self.refusal(credentials, read, &denial, deadline).await),
        }
    }

    /// Like [`check`](Self::check), for a read that goes on: asks the API server again, first about all that contains the read,
    /// so that the open watches of one caller share an answer. `held` is its last answer.
    ///
    /// Cost: one request; up to three if `held` does not show that wider reads are denied.
    ///
    /// # Errors
    /// As `check`, but without the name of a denied caller. Earlier answers do not count. For a forwarded read, which was not
    /// checked before: 503 if the caller may not even ask.
    pub async fn check_again(
        &self,
        credentials: &HeaderMap,
        read: &RequestInfo,
        is_forwarded: bool,
        held: Option<&HeldAllow>,
    ) -> Result<HeldAllow, Status> {
        if self.asker.last_answer.silent_for().is_some() {
            return Err(unreadable("it does not answer"));
        }
        let mut reason = String::new();
        let first = held.map_or(0, |held| held.width);
        for (width, wider) in subjects::containing(read).iter().enumerate().skip(first) {
            let (key, origin) = (self.keys.question(credentials, wider), QuestionOrigin::OpenWatch);
            let review = |before| self.review(credentials, wider, before, origin);
            match self.decisions.answer(key, origin.age_max(), review).await {
                Ok(Decision::Allowed(reason)) => return Ok(HeldAllow::new(credentials, reason, width)),
                Ok(Decision::Denied(denial)) => reason.clone_from(&denial.reason),
                Err(refused) if refused.code == 403 && is_forwarded && held.is_none() => {
                    return Err(unreadable("the caller may not ask"));
                }
                Err(error) => return Err(error),
            }
        }
        Err(read.forbidden(None, &reason))
    }

    /// Returns the answer by which a read was allowed just now; `None` if the API server was not asked.
    pub fn last_allow(&self, credentials: &HeaderMap, read: &RequestInfo) -> Option<HeldAllow> {
        match self.decisions.last(&self.keys.question(credentials, read), RIGHT_AGE_AWAY)? {
            Decision::Allowed(reason) => Some(HeldAllow::new(credentials, reason, 0)),
            Decision::Denied(_) => None,
        }
    }

    /// Returns true if the API server allows `act` to the owner of `credentials`. Cost: as of [`check`](Self::check).
    ///
    /// # Errors
    /// As `check`, apart from a denial.
    pub async fn allows(&self, credentials: &HeaderMap, act: &RequestInfo) -> Result<bool, Status> {
        let decision = self.decide(credentials, act).await?;
        Ok(matches!(decision, Decision::Allowed(_)))
    }

    async fn decide(&self, credentials: &HeaderMap, read: &RequestInfo) -> Result<Decision, Status> {
        let (origin, key) = (QuestionOrigin::Request, self.keys.question(credentials, read));
        // Known to be silent: another question would take all of its time, and get no answer.
        if self.asker.last_answer.silent_for().is_some()
            && let Some(last) = self.decisions.last(&key, RIGHT_AGE_AWAY)
        {
            return Ok(last);
        }
        let review = |before| self.review(credentials, read, before, origin);
        self.decisions.answer_for(origin, key, review).await
    }

    /// Asks the API server whether `read` is allowed. `before` is its last decision.
    fn review(
        &self,
        credentials: &HeaderMap,
        read: &RequestInfo,
        before: Option<Decision>,
        origin: QuestionOrigin,
    ) -> impl Future<Output = Result<Decision, Status>> + Send + 'static {
        let (asker, credentials) = (self.asker.clone(), credentials.clone());
        let (body, read) = (review::access_review(read), read.clone());
        async move {
            let (code, body) = asker.post(review::ACCESS_REVIEWS, &credentials, body, origin).await?;
            let decision = review::decision(code, &body).map_err(|refused| instead_of_review(&read, refused))?;
            Ok(decision.after(before))
        }
    }

    /// The Status of a denied read. Without a name for the caller it names none, and is a denial nevertheless.
    async fn refusal(&self, credentials: &HeaderMap, read: &RequestInfo, denial: &Denial, deadline: Instant) -> Status {
        let key = self.keys.caller(credentials);
        let user = self.users.answer(key, Duration::MAX, |_| self.user(credentials));
        let user = timeout_at(deadline, user).await.ok().and_then(Result::ok).flatten();
        read.forbidden(user.as_deref(), &denial.reason)
    }

    /// Reviews of requests that may be sent now.
    #[cfg(test)]
    pub fn free_slots(&self) -> usize {
        self.asker.slots.free()
    }

    /// True if no question is on its way, and no slot is taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        let open = self.decisions.open_len() + self.users.open_len();
        (self.asker.slots.free(), open) == (UPSTREAM_ASKS_MAX, 0)
    }

    /// Key of a caller's right to `read`.
    pub fn key(&self, credentials: &HeaderMap, read: &RequestInfo) -> QuestionKey {
        self.keys.question(credentials, read)
    }

    /// Key of a caller.
    pub fn caller(&self, credentials: &HeaderMap) -> QuestionKey {
        self.keys.caller(credentials)
    }

    /// The question for the caller's name, as `forbidden` errors contain it.
    fn user(&self, credentials: &HeaderMap) -> impl Future<Output = Result<Option<Arc<str>>, Status>> + Send + 'static {
        let (asker, credentials) = (self.asker.clone(), credentials.clone());
        async move {
            let (question, origin) = (review::subject_review(), QuestionOrigin::Request);
            let (code, body) = asker.post(review::SUBJECT_REVIEWS, &credentials, question, origin).await?;
            review::user(code, &body)
        }
    }
}

/// Returns the 403 for `read`, if `refused` is that of a question about it: callers without an account, or whose
/// impersonation is refused, may not even ask. The two differ in what was refused only.
fn instead_of_review(read: &RequestInfo, refused: Status) -> Status {
    let Some((_, caller)) = refused.message.split_once(" is forbidden: User ") else { return refused };
    let Some((user, rest)) = caller.rsplit_once(REVIEW_ACT) else { return refused };
    let own = read.forbidden(None, "");
    let Some((head, act)) = own.message.split_once("the caller cannot ") else { return refused };
    // `user` ends with the verb's prefix of an impersonation, if there is one.
    Status { message: format!("{head}User {user}{act}{rest}"), code: refused.code, ..own }
}

/// The act that kube-apiserver refuses to callers who may not ask about their rights.
const REVIEW_ACT: &str =
    r#"create resource "selfsubjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope"#;

impl Asker {
    /// Sends one question when it is its turn, within its time and the length of its answer.
    ///
    /// # Errors
    /// 429 if it is not its turn in time: that is no fault of the API server, so earlier answers do not count for longer.
    async fn post(
        &self,
        path: &str,
        credentials: &HeaderMap,
        body: Bytes,
        origin: QuestionOrigin,
    ) -> Result<(StatusCode, Bytes), Status> {
        let _slot = self.slots.enter(origin).await?;
        let asking = self.upstream.ask(Method::POST, path, credentials, body);
        let Ok(answer) = timeout(REVIEW_WAIT, asking).await else {
            self.last_answer.doubt();
            let late = "the API server did not decide in time whether the read is allowed";
            return Err(Status::timeout(late, RETRY_SECONDS));
        };
        let (code, body) = answer?;
        if body.len() > REVIEW_BYTES_MAX {
            return Err(unreadable("its answer is too long"));
        }
        Ok((code, body))
    }
}

/// Error for an answer that allows nothing and denies nothing.
fn unreadable(why: &str) -> Status {
    let details = Some(Details { retry_after_seconds: RETRY_SECONDS, ..Details::default() });
    let text = format!("the API server did not decide whether the read is allowed: {why}");
    Status { details, ..Status::unavailable(text) }
}

/// Seconds after which a caller may repeat a read that was neither allowed nor denied.
const RETRY_SECONDS: u32 = 1;

#[cfg(test)]
mod tests;
