//! Tokens that the API server decides: `authentication.k8s.io/v1` TokenReview, with this server's own identity.
//!
//! INVARIANT: only a well-formed answer with `authenticated: true` and a name is an identity.

use std::sync::Arc;

use access_rules::user::{AUTHENTICATED, User};
use http::{Method, StatusCode};
use informer_serving::status::{Status, StatusExt as _};
use serde::{Deserialize, Serialize};

use super::tokens::{BearerToken, undecided};
use crate::{
    limits::{REVIEW_BYTES_MAX, REVIEW_WAIT, TOKEN_REVIEWS_MAX},
    upstream::own_requests::{AnswerBounds, QuestionOrigin, ReviewSlots, SendOwn},
};

/// Path of questions for the user of a token.
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

const API_VERSION: &str = "authentication.k8s.io/v1";

const KIND: &str = "TokenReview";

/// Asks the API server about tokens.
pub struct TokenReviews {
    upstream: Arc<dyn SendOwn>,
    audiences: Vec<String>,
    slots: ReviewSlots,
}

/// The API server's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReviewedToken {
    /// The user of the token.
    Authenticated(User),
    /// The token is not valid.
    Unauthenticated,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenQuestion<'a> {
    api_version: &'a str,
    kind: &'a str,
    spec: TokenQuestionSpec<'a>,
}

#[derive(Serialize)]
struct TokenQuestionSpec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenAnswer {
    api_version: String,
    kind: String,
    status: TokenAnswerStatus,
}

#[derive(Deserialize)]
struct TokenAnswerStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
    #[serde(default)]
    audiences: Vec<String>,
}

impl TokenReviews {
    /// `audiences` are those that a token may have; empty: those of the API server.
    pub(super) fn new(upstream: Arc<dyn SendOwn>, audiences: Vec<String>) -> Self {
        Self { upstream, audiences, slots: ReviewSlots::new(TOKEN_REVIEWS_MAX) }
    }

    /// True if no slot is taken.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_idle(&self) -> bool {
        self.slots.free() == TOKEN_REVIEWS_MAX
    }

    /// Asks about one token.
    ///
    /// # Errors
    /// 429 while too many tokens of requests are reviewed; 503 without a usable answer.
    pub(super) async fn review(&self, token: &BearerToken, origin: QuestionOrigin) -> Result<ReviewedToken, Status> {
        let spec = TokenQuestionSpec { token: token.text(), audiences: &self.audiences };
        let question = TokenQuestion { api_version: API_VERSION, kind: KIND, spec };
        let question = serde_json::to_vec(&question).expect("a review is texts").into();
        let _slot = self.slots.enter(origin).await?;
        let bounds = AnswerBounds { bytes_max: REVIEW_BYTES_MAX, wait: REVIEW_WAIT };
        let answer = self.upstream.send(Method::POST, TOKEN_REVIEWS, question, bounds).await;
        let (code, body) = answer.map_err(|error| {
            tracing::warn!(%error, "token review failed");
            error.status("about the bearer token")
        })?;
        if code == StatusCode::TOO_MANY_REQUESTS {
            // Flow control: the API server is there, so earlier answers do not count for longer.
            return Err(Status::too_many_requests("the API server reviews too many tokens", 1));
        }
        if !code.is_success() {
            return Err(failed(&format!("the API server answered {}", code.as_u16())));
        }
        self.read(&body).ok_or_else(|| failed("the API server's answer is unreadable"))
    }

    fn read(&self, body: &[u8]) -> Option<ReviewedToken> {
        let TokenAnswer { api_version, kind, status } = serde_json::from_slice(body).ok()?;
        if (&*api_version, &*kind) != (API_VERSION, KIND) {
            return None;
        }
        if !status.authenticated {
            return Some(ReviewedToken::Unauthenticated);
        }
        // An API server that does not know audiences names none: it has not checked them.
        let is_ours = |audience: &String| self.audiences.contains(audience);
        if !self.audiences.is_empty() && !status.audiences.iter().any(is_ours) {
            return Some(ReviewedToken::Unauthenticated);
        }
        let mut user = status.user;
        if user.name.is_empty() {
            return None;
        }
        if !user.is_in(AUTHENTICATED) && !user.is_anonymous() {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Some(ReviewedToken::Authenticated(user))
    }
}

fn failed(why: &str) -> Status {
    tracing::warn!(why, "token review failed");
    undecided("the API server did not decide")
}
