//! Bodies of reviews, and the API server's answers to them.
//!
//! INVARIANT: an answer that is incomplete, contradicts itself or has another kind decides nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use access_rules::{
    request_info::{RequestInfo, ResourceAttributes},
    user::User,
};
use bytes::Bytes;
use http::StatusCode;
use informer_serving::status::{Reason, Status, StatusExt as _};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::unreadable;
use crate::limits::{DENIAL_AGE_MIN, REVIEW_TEXT_BYTES_MAX, RIGHT_AGE};

/// Path of questions whether a request is allowed.
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Path of questions for the caller's name.
pub(super) const SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Path of questions about the rights of any user.
pub(super) const USER_ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const USER_ACCESS_KIND: ReviewKind<'static> =
    ReviewKind { api_version: "authorization.k8s.io/v1", kind: "SubjectAccessReview" };

const ACCESS_KIND: ReviewKind<'static> =
    ReviewKind { api_version: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview" };

const SUBJECT_KIND: ReviewKind<'static> =
    ReviewKind { api_version: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };

/// The API server's decision about a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The caller may read, for this reason of the authorizer, at most [`REVIEW_TEXT_BYTES_MAX`]; often empty.
    Allowed(Arc<str>),
    /// The caller may not read.
    Denied(Arc<Denial>),
}

/// A decision against a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// The authorizer's reason, at most [`REVIEW_TEXT_BYTES_MAX`]; often empty.
    pub(super) reason: String,
    /// Time of the first of the caller's denials since the read was last allowed.
    since: Instant,
}

impl Decision {
    /// Continues the row of denials that `before` is part of.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (Self::Denied(denial), Some(Self::Denied(before))) => {
                Self::Denied(Arc::new(Denial { reason: denial.reason.clone(), since: before.since }))
            }
            (first, _) => first,
        }
    }

    /// Returns the age up to which the decision is used, if its question was sent at `sent`. A denial is used for as
    /// long as the row of denials before it: a kube-apiserver that has just started denies every read for a moment.
    pub(super) fn age_max(&self, sent: Instant) -> Duration {
        match self {
            Self::Allowed(_) => RIGHT_AGE,
            Self::Denied(denial) => sent.saturating_duration_since(denial.since).clamp(DENIAL_AGE_MIN, RIGHT_AGE),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewKind<'a> {
    api_version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct AccessReview<'a> {
    #[serde(flatten)]
    of: ReviewKind<'a>,
    spec: AccessSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessSpec<'a> {
    /// Empty if the question is about its sender.
    #[serde(flatten)]
    user: Option<ReviewedUser<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ReviewedResource<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<ReviewedPath<'a>>,
}

#[derive(Serialize)]
struct ReviewedUser<'a> {
    user: &'a str,
    uid: &'a str,
    groups: &'a [String],
    extra: &'a BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct ReviewedResource<'a> {
    verb: &'a str,
    #[serde(flatten)]
    resource: &'a ResourceAttributes,
}

#[derive(Serialize)]
struct ReviewedPath<'a> {
    verb: &'a str,
    path: &'a str,
}

impl<'a> AccessSpec<'a> {
    fn of(user: Option<&'a User>, info: &'a RequestInfo) -> Self {
        let verb = &*info.verb;
        let non_resource = || ReviewedPath { verb, path: &info.path };
        let user = user.map(|User { name, uid, groups, extra }| ReviewedUser { user: name, uid, groups, extra });
        Self {
            user,
            resource_attributes: info.resource.as_ref().map(|resource| ReviewedResource { verb, resource }),
            non_resource_attributes: info.resource.is_none().then(non_resource),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessAnswer {
    api_version: String,
    kind: String,
    status: AccessStatus,
}

#[derive(Deserialize)]
struct AccessStatus {
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubjectAnswer {
    status: SubjectStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubjectStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

/// Returns the question whether `read` is allowed.
pub(super) fn access_review(read: &RequestInfo) -> Bytes {
    let review = AccessReview { of: ACCESS_KIND, spec: AccessSpec::of(None, read) };
    serde_json::to_vec(&review).expect("a review is texts").into()
}

/// The question whether `user` may send a request.
pub(super) fn user_access_review(user: &User, info: &RequestInfo) -> Bytes {
    let review = AccessReview { of: USER_ACCESS_KIND, spec: AccessSpec::of(Some(user), info) };
    serde_json::to_vec(&review).expect("a review is texts").into()
}

/// Returns the question for the caller's name.
pub(super) fn subject_review() -> Bytes {
    serde_json::to_vec(&SUBJECT_KIND).expect("a review is texts").into()
}

/// Reads the answer to [`access_review`].
///
/// # Errors
/// The API server's Status, or 503.
pub(super) fn decision(code: StatusCode, body: &[u8]) -> Result<Decision, Status> {
    if !code.is_success() {
        return Err(refused(code, body));
    }
    decision_of(&ACCESS_KIND, body)
}

/// Reads the answer about the right of a user. A refusal concerns this server's own account, not the user.
///
/// # Errors
/// 500 if this server may not ask; 503 or 504 if the answer is unreadable.
pub(super) fn user_decision(code: StatusCode, body: &[u8]) -> Result<Decision, Status> {
    if code.is_success() {
        return decision_of(&USER_ACCESS_KIND, body);
    }
    Err(match refused(code, body) {
        own if matches!(own.code, 401 | 403) => {
            Status::internal(&format!("this server may not ask for rights: {}", own.message))
        }
        other => other,
    })
}

fn decision_of(expected: &ReviewKind<'_>, body: &[u8]) -> Result<Decision, Status> {
    let Ok(AccessAnswer { api_version, kind, status }) = serde_json::from_slice(body) else {
        return Err(unreadable("its answer is no review with a status"));
    };
    if (ReviewKind { api_version: &api_version, kind: &kind }) != *expected {
        return Err(unreadable("its answer is of another kind"));
    }
    match status {
        AccessStatus { allowed: true, denied: false, reason } => Ok(Decision::Allowed(shortened(&reason).into())),
        AccessStatus { allowed: true, denied: true, .. } => Err(unreadable("its answer both allows and denies")),
        AccessStatus { allowed: false, reason, .. } => {
            Ok(Decision::Denied(Arc::new(Denial { reason: shortened(&reason).to_owned(), since: Instant::now() })))
        }
    }
}

/// Reads the answer to [`subject_review`]: `None` if the API server does not report names, as before Kubernetes 1.28.
///
/// # Errors
/// A Status if another answer may come later.
pub(super) fn user(code: StatusCode, body: &[u8]) -> Result<Option<Arc<str>>, Status> {
    if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS {
        return Ok(None);
    }
    if !code.is_success() {
        return Err(refused(code, body));
    }
    match serde_json::from_slice(body) {
        Ok(SubjectAnswer { status }) => Ok(Some(shortened(&status.user_info.username).into())),
        Err(_) => Err(unreadable("its answer names no user")),
    }
}

/// The error for a refused question. The API server's Status is passed on only if it also holds for the read: a 404 about
/// reviews would mean that the type of the read does not exist. A 400 holds for it, because only the caller's headers can
/// be wrong, such as Impersonate-Group without a user.
fn refused(code: StatusCode, body: &[u8]) -> Status {
    let concerns_read = code.is_server_error()
        || [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS].contains(&code);
    let sent = Status::read(body).filter(Status::is_failure);
    match sent {
        Some(sent) if concerns_read || code == StatusCode::BAD_REQUEST => Status { code: code.as_u16(), ..sent },
        Some(sent) => unreadable(&format!("it answered {}: {}", code.as_u16(), shortened(&sent.message))),
        None if concerns_read => without_body(code),
        None => unreadable(&format!("it answered {}", code.as_u16())),
    }
}

/// The error for a refusal that is no Status, as proxies send it.
fn without_body(code: StatusCode) -> Status {
    let text = code.canonical_reason().unwrap_or("refused");
    Status { code: code.as_u16(), reason: reason_of(code), ..unreadable(&format!("it answered {text}")) }
}

fn reason_of(code: StatusCode) -> Reason {
    match code {
        StatusCode::UNAUTHORIZED => Reason::Unauthorized,
        StatusCode::FORBIDDEN => Reason::Forbidden,
        StatusCode::TOO_MANY_REQUESTS => Reason::TooManyRequests,
        StatusCode::GATEWAY_TIMEOUT => Reason::Timeout,
        StatusCode::INTERNAL_SERVER_ERROR => Reason::InternalError,
        _ => Reason::ServiceUnavailable,
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(REVIEW_TEXT_BYTES_MAX)]
}
