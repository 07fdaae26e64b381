//! Requests for tokens of service accounts: their bounds, and the claims of the tokens.
//!
//! Not supported: tokens that are bound to configurations of webhooks, and longer lives for tokens of pods.
//!
//! Source: `pkg/apis/authentication/validation`, `pkg/serviceaccount/claims.go` and
//! `pkg/registry/core/serviceaccount/storage/token.go` of kubernetes/kubernetes.

use informer_serving::status::{CauseExt as _, Status, StatusCause, StatusExt as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::claims::UnixSeconds;
use crate::user::User;

/// Life of a token if the request names none.
const SECONDS_DEFAULT: i64 = 3_600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// Longest life of a token. It outlives its account and the objects that it is bound to, since nothing asks for these.
const SECONDS_ISSUED_MAX: i64 = 24 * 3_600;

/// The spec of a TokenRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenRequest {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    /// The object with which the token ends.
    pub bound_object_ref: Option<BoundObject>,
}

/// The object that a token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundObject {
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// Kind of an object that a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    /// A pod of the account's namespace, and its node.
    Pod,
    /// A secret of the account's namespace.
    Secret,
    /// A node.
    Node,
}

/// Name and uid of an object in the claims of a token.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedObject<'a> {
    /// Its name.
    pub name: &'a str,
    /// Empty if it is not known.
    pub uid: &'a str,
}

impl ClaimedObject<'_> {
    fn claim(self) -> Value {
        if self.uid.is_empty() { json!({"name": self.name}) } else { json!({"name": self.name, "uid": self.uid}) }
    }
}

impl TokenRequest {
    /// Reads the object that a client sends.
    ///
    /// # Errors
    /// 400 for a spec of another form; 422 for a life that is too short or too long.
    pub fn read(sent: &Map<String, Value>) -> Result<Self, Status> {
        let spec = sent.get("spec").filter(|spec| !spec.is_null());
        let request = spec.map(Self::deserialize).transpose();
        let request = request.map_err(|_| Status::bad_request("the spec cannot be read"))?.unwrap_or_default();
        let seconds = request.expiration_seconds.unwrap_or(SECONDS_DEFAULT);
        let why = match seconds {
            ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
            SECONDS_MIN..=SECONDS_MAX => return Ok(request),
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        let cause = StatusCause::invalid("spec.expirationSeconds", &seconds.to_string(), why);
        Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", vec![cause]))
    }

    /// Seconds of the token's life: at most a day, as if kube-apiserver had `--service-account-max-token-expiration=24h`.
    #[must_use]
    pub fn expiration_seconds(&self) -> i64 {
        self.expiration_seconds.unwrap_or(SECONDS_DEFAULT).min(SECONDS_ISSUED_MAX)
    }

    /// The requested audiences; empty for those of the server.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        self.audiences.as_deref().unwrap_or_default()
    }

    /// The claims of a token of `account` in `namespace`. `objects` are those that the token is bound to, by the names of
    /// their claims.
    #[must_use]
    pub fn claims(
        &self,
        issuer: &TokenOrigin<'_>,
        (namespace, account): (&str, ClaimedObject<'_>),
        objects: &[(&str, ClaimedObject<'_>)],
    ) -> Value {
        let mut kubernetes = json!({"namespace": namespace, "serviceaccount": account.claim()});
        for (name, object) in objects {
            kubernetes[*name] = object.claim();
        }
        let TokenOrigin { issuer, audiences, id, now } = *issuer;
        let audiences = if self.audiences().is_empty() { audiences } else { self.audiences() };
        json!({
            "iss": issuer, "sub": User::service_account(namespace, account.name).name, "aud": audiences, "jti": id,
            "exp": now.saturating_add(self.expiration_seconds()), "nbf": now, "iat": now, "kubernetes.io": kubernetes,
        })
    }
}

/// Issuer and circumstances of a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenOrigin<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// Audiences of the issuer's server.
    pub audiences: &'a [String],
    /// A new id.
    pub id: &'a str,
    /// The present time.
    pub now: UnixSeconds,
}

impl BoundObject {
    /// Returns the kind of the object.
    ///
    /// # Errors
    /// 400 for a kind that no token can be bound to.
    pub fn kind(&self) -> Result<BoundKind, Status> {
        let (api_version, kind) = (text(&self.api_version), text(&self.kind));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        match (group, kind) {
            ("", "Pod") => Ok(BoundKind::Pod),
            ("", "Secret") => Ok(BoundKind::Secret),
            ("", "Node") => Ok(BoundKind::Node),
            _ => {
                let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                Err(Status::bad_request(text))
            }
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.name)
    }

    /// Its uid; empty for any.
    #[must_use]
    pub fn uid(&self) -> &str {
        text(&self.uid)
    }

    /// True for a reference to a pod as nodes write it.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        (text(&self.api_version), text(&self.kind)) == ("v1", "Pod") && !self.name().is_empty()
    }

    /// Checks that the object has the uid that the request names.
    ///
    /// # Errors
    /// 409 if it has another one.
    pub fn match_uid(&self, found: &str) -> Result<(), Status> {
        if self.uid().is_empty() || self.uid() == found {
            return Ok(());
        }
        let why = another_uid(self.uid());
        Err(Status::conflict("", text(&self.kind), self.name(), &why))
    }
}

/// Text about an object that has not the uid of its reference.
pub(crate) fn another_uid(uid: &str) -> String {
    format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
         deleted and then recreated"
    )
}

fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authentication::claims::AccountRules;

    fn read(spec: Value) -> Result<TokenRequest, (u16, String)> {
        let sent = json!({ "spec": spec });
        TokenRequest::read(sent.as_object().expect("an object")).map_err(|status| (status.code, status.message))
    }

    #[test]
    fn a_token_lives_from_ten_minutes_to_a_day() {
        let life = |seconds: i64| read(json!({ "expirationSeconds": seconds })).map(|read| read.expiration_seconds());
        assert_eq!(read(Value::Null).map(|read| read.expiration_seconds()), Ok(3_600));
        assert_eq!((life(600), life(1 << 32)), (Ok(600), Ok(86_400)));
        let refused = |value: i64, why: &str| {
            let text = format!("spec.expirationSeconds: Invalid value: {value}: may not specify a duration {why}");
            Err((422, format!("TokenRequest.authentication.k8s.io \"\" is invalid: {text}")))
        };
        assert_eq!(life(599), refused(599, "less than 10 minutes"));
        assert_eq!(life((1 << 32) + 1), refused((1 << 32) + 1, "larger than 2^32 seconds"));
    }

    /// Goal: claims prove the account to the rules that read them. Method: a token of a pod, for the server's audience.
    #[test]
    fn claims_are_those_of_their_account() {
        let request = read(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})).expect("fits");
        let audiences = ["api".to_owned()];
        let origin = TokenOrigin { issuer: "https://issuer", audiences: &audiences, id: "i", now: 1_000 };
        let account = ClaimedObject { name: "b", uid: "u" };
        let objects = [("pod", ClaimedObject { name: "p", uid: "pu" }), ("node", ClaimedObject { name: "n", uid: "" })];
        let claims = request.claims(&origin, ("a", account), &objects);
        assert_eq!(
            claims,
            json!({
                "iss": "https://issuer", "sub": "system:serviceaccount:a:b", "aud": ["api"], "jti": "i", "exp": 4_600,
                "nbf": 1_000, "iat": 1_000, "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b", "uid": "u"},
                    "pod": {"name": "p", "uid": "pu"}, "node": {"name": "n"}},
            })
        );
        let rules = AccountRules { issuer: "https://issuer".to_owned(), audiences: audiences.to_vec() };
        let user = rules.user(claims.to_string().as_bytes(), 1_000).expect("is valid").user;
        assert_eq!((&*user.name, &*user.uid), ("system:serviceaccount:a:b", "u"));
    }

    #[test]
    fn tokens_are_bound_to_pods_secrets_and_nodes() {
        let kind = |api_version: &str, kind: &str| {
            let of =
                BoundObject { api_version: Some(api_version.into()), kind: Some(kind.into()), ..Default::default() };
            of.kind().map_err(|status| status.message)
        };
        assert_eq!(kind("v1", "Pod"), Ok(BoundKind::Pod));
        let refused = "cannot bind token to object of type apps/v1, Kind=Deployment";
        assert_eq!(kind("apps/v1", "Deployment"), Err(refused.to_owned()));
        let text = "cannot bind token to object of type /v1, Kind=ConfigMap";
        assert_eq!(kind("v1", "ConfigMap"), Err(text.to_owned()));
    }
}
