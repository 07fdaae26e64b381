//! Callers that act as other users, and the checks of their open watches.

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, StatusCode};
use informer_serving::query::Query;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::advance;

use super::*;
use crate::testing::caller;
use crate::{
    config::AuthorizationConfig,
    limits::{RECHECKED_AGE, RIGHT_AGE_AWAY},
    metrics::AuthorizationMetrics,
    upstream::{
        own_requests::{AnswerBounds, OwnRequestError, SendOwn},
        rights::SubjectRights,
    },
};

/// Outcome of a question about a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    Unanswered,
}

/// An API server that allows all verbs but these.
#[derive(Default)]
struct Reviewer(Mutex<Vec<(&'static str, Outcome)>>);

impl SendOwn for Reviewer {
    fn send<'a>(
        &'a self,
        _: Method,
        _: &'a str,
        body: Bytes,
        _: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let verb = &review["spec"]["resourceAttributes"]["verb"];
        let outcome = self.0.lock().iter().find(|(changed, _)| verb == changed).map(|(_, outcome)| *outcome);
        review["status"] = json!({ "allowed": outcome.is_none() });
        let answer = match outcome {
            Some(Outcome::Unanswered) => Err(OwnRequestError::Late),
            Some(Outcome::Refused) | None => Ok((StatusCode::CREATED, review.to_string().into())),
        };
        async move { answer }.boxed()
    }
}

/// Goal: a watch of an impersonated user ends with the right to impersonate it, and with the right of that user, whichever of
/// them cannot be decided. Method: a right is withdrawn just after it was allowed, and while the other one has no answer.
#[tokio::test(start_paused = true)]
async fn watches_of_impersonated_users_are_checked_with_fresh_answers() {
    let (impersonate, watch) = ("impersonate", "watch");
    for (waits, changed, expected) in [
        (RECHECKED_AGE, vec![], Ok(())),
        (RECHECKED_AGE, vec![(impersonate, Outcome::Refused)], Err(403)),
        (RECHECKED_AGE, vec![(watch, Outcome::Refused)], Err(403)),
        (RIGHT_AGE_AWAY, vec![(impersonate, Outcome::Unanswered), (watch, Outcome::Refused)], Err(403)),
        (RIGHT_AGE_AWAY, vec![(impersonate, Outcome::Refused), (watch, Outcome::Unanswered)], Err(403)),
        (RIGHT_AGE_AWAY, vec![(watch, Outcome::Unanswered)], Err(504)),
    ] {
        let reviewer = Arc::new(Reviewer::default());
        let mut authorizer = Authorizer::new(&AuthorizationConfig::default(), true, AuthorizationMetrics::default());
        authorizer.ask_about_users(Arc::new(SubjectRights::new(Arc::clone(&reviewer) as Arc<dyn SendOwn>)));
        let access = Access::new(Authenticator::unsecured(), authorizer, FlowControl::new(600));
        let headers = [("impersonate-user", &b"jane"[..])];
        let Impersonation { user, rights } = impersonation::read(headers).unwrap().unwrap();
        let watch = RequestInfo::new("GET", "/api/v1/pods", &Query::parse(Some("watch=1")));
        let jane = access.impersonated(&caller(&User::authenticated("john", [])), user, rights).await.unwrap();
        assert_eq!(access.admit_again(&jane, &watch, true).await.map(drop), Ok(()));
        advance(waits).await;
        reviewer.0.lock().clone_from(&changed);
        let again = access.admit_again(&jane, &watch, true).await.map(drop).map_err(|status| status.code);
        assert_eq!(again, expected, "{changed:?}");
    }
}

#[test]
fn only_requests_for_streams_of_the_api_are_long_running() {
    for (method, path, expected) in [
        ("GET", "/api/v1/namespaces/a/pods/b/log", true),
        ("POST", "/api/v1/namespaces/a/pods/b/exec", true),
        ("GET", "/api/v1/watch/pods", true),
        ("GET", "/api/v1/nodes/a/proxy/metrics", true),
        ("GET", "/api/v1/pods", false),
        ("PUT", "/api/v1/namespaces/a/pods/b/status", false),
        ("PROXY", "/healthz", false),
        ("WATCH", "/healthz", false),
    ] {
        let info = RequestInfo::new(method, path, &Query::default());
        assert_eq!(is_long_running(&info), expected, "{method} {path}");
    }
}
