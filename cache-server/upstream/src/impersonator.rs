//! Passes on the requests of users that only this server knows: with this server's own account, which acts as them.
//!
//! INVARIANT: a request carries either its caller's credentials or this server's, never both. INVARIANT: the API server has
//! allowed the account every attribute of the user, by an answer that is at most [`RIGHT_AGE`](crate::limits::RIGHT_AGE)
//! old. It checks that with each request as well.

use std::sync::Arc;

use access_rules::{
    authentication::impersonation::{RIGHTS_MAX, rights_to_be},
    user::User,
};
use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use http::{HeaderMap, Method, StatusCode};
use informer_serving::status::{Status, StatusExt as _};

use super::{
    connect::{OwnAddresses, OwnIdentity},
    forward::{self, Forwarder},
    last_answer::LastAnswer,
    own_requests::{AnswerBounds, SendOwn as _},
    rights::{AskUpstream, Rights},
    sender::OwnRequests,
};
use crate::limits::{REVIEW_BYTES_MAX, REVIEW_WAIT};

/// Acts as users with this server's own account.
pub struct Impersonator {
    /// Its connections have this server's client certificate, if that is its identity.
    pub forwarder: Forwarder,
    identity: OwnIdentity,
    /// Rights of the account.
    rights: Rights,
}

impl Impersonator {
    /// `forwarder` is the one for callers with credentials of their own.
    pub fn new(own: OwnAddresses, forwarder: &Forwarder, requests: OwnRequests, last_answer: &Arc<LastAnswer>) -> Self {
        let OwnAddresses { addresses, identity } = own;
        let rights = Rights::new(Arc::new(OwnQuestions(requests)), Arc::clone(last_answer));
        Self { forwarder: forwarder.to(addresses), identity, rights }
    }

    /// True if no question about the account is on its way.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        self.rights.is_idle()
    }

    /// Returns the headers of a request in which the account acts as `user`; `None` if it may not. Cost: one question for
    /// each attribute in [`RIGHT_AGE`](crate::limits::RIGHT_AGE), which users with equal groups share.
    ///
    /// # Errors
    /// 503 or 504 if that is not known, or the account has no valid token.
    pub async fn act_as(&self, user: &User) -> Result<Option<HeaderMap>, Status> {
        let rights = rights_to_be(user);
        let named = match forward::user_headers(user) {
            Ok(named) if rights.len() <= RIGHTS_MAX => named,
            Ok(_) | Err(_) => {
                tracing::debug!(user = %user.name, "attributes of the user do not fit into headers");
                return Ok(None);
            }
        };
        // The rights are those of the account, whatever the caller sent.
        let account = HeaderMap::new();
        let allowed = try_join_all(rights.iter().map(|right| self.rights.allows(&account, right))).await?;
        if !allowed.into_iter().all(|allowed| allowed) {
            return Ok(None);
        }
        let mut headers = self.identity.headers().await.map_err(|problem| {
            tracing::warn!(problem, "own token not available");
            Status::unavailable("this server has no valid token for the API server")
        })?;
        headers.extend(named);
        Ok(Some(headers))
    }
}

/// Questions about the rights of this server's own account.
pub(super) struct OwnQuestions(pub(super) OwnRequests);

impl AskUpstream for OwnQuestions {
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        _: &'a HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), Status>> {
        let bounds = AnswerBounds { bytes_max: REVIEW_BYTES_MAX, wait: REVIEW_WAIT };
        Box::pin(async move {
            let answer = self.0.send(method, path, body, bounds).await;
            answer.map_err(|error| error.status("whether this server may act as the user"))
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use serde_json::{Value, json};
    use tokio::time::{advance, pause};

    use super::*;
    use crate::{
        config::UpstreamConfig,
        forward::RequestIdentity,
        gateway::Upstream,
        limits::RIGHT_AGE,
        tests::{Api, addresses_of, caller, full},
    };

    /// An API server that allows its callers to impersonate everything but the group `system:masters`.
    async fn api() -> Api {
        Api::start(|request| {
            Box::pin(async move {
                let text = request.into_body().collect().await.unwrap().to_bytes();
                let Ok(mut review) = serde_json::from_slice::<Value>(&text) else {
                    return http::Response::new(full(""));
                };
                let act = &review["spec"]["resourceAttributes"];
                let allowed = act["verb"] == "impersonate" && act["name"] != "system:masters";
                review["status"] = json!({ "allowed": allowed });
                http::Response::builder().status(201).body(full(review.to_string())).unwrap()
            })
        })
        .await
    }

    /// An upstream whose account has a token.
    async fn upstream(api: &Api, impersonates: bool) -> (Upstream, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "own").unwrap();
        let config =
            UpstreamConfig { url: Some(api.url()), token_file: Some(token), impersonates, ..UpstreamConfig::default() };
        (Upstream::new(addresses_of(&config).await.unwrap(), &config), folder)
    }

    /// Goal: a request is sent with the account's token and the exact user, after the API server allowed each attribute, and
    /// such answers are shared. Method: users with equal and other groups, and the requests that the API server got.
    #[tokio::test]
    async fn the_account_acts_as_users_as_far_as_it_may() {
        let api = api().await;
        assert!(upstream(&api, false).await.0.impersonator.is_none(), "only if the settings want it");
        let (upstream, _folder) = upstream(&api, true).await;
        let impersonator = upstream.impersonator.as_ref().unwrap();
        let user = |name: &str, group: &str| User::authenticated(name, [group.to_owned()]);
        let acting = impersonator.act_as(&user("alice", "dev")).await.unwrap().unwrap();
        let questions = || api.seen.lock().iter().filter(|seen| !seen.head.uri.path().ends_with("kube-system")).count();
        assert_eq!(questions(), 3, "questions about one name and two groups");
        let request = http::Request::get("/api/v1/secrets").header("authorization", "Bearer local");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let identity = RequestIdentity { user: Some(&acting), ..caller() };
        impersonator.forwarder.forward(&parts, identity, Empty::<Bytes>::new()).await.unwrap();
        let headers =
            ["authorization", "impersonate-user", "impersonate-group", "audit-id"].map(|name| api.header(name));
        assert_eq!(headers, ["Bearer own", "alice", "dev", "id"]);
        assert!(impersonator.act_as(&user("bob", "dev")).await.unwrap().is_some());
        assert_eq!(questions(), 5, "a question about a name, and one request");
        for _ in 0..2 {
            assert_eq!(impersonator.act_as(&user("bob", "system:masters")).await, Ok(None));
        }
        assert_eq!(impersonator.act_as(&user("bob ", "dev")).await, Ok(None), "it would be trimmed");
        let before = questions();
        pause();
        advance(RIGHT_AGE).await;
        tokio::time::resume();
        impersonator.act_as(&user("bob", "dev")).await.unwrap().unwrap();
        assert_eq!(questions() - before, 3, "asked again");
    }
}
