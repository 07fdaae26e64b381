//! Users of verified tokens: from the claims of a payload to an identity.
//!
//! INVARIANT: the payload's signature was verified with the keys of the issuer whose rules are applied here.
//!
//! Stricter than kube-apiserver: tokens without an expiry or an audience are refused, and a service account's subject must
//! be the account that its other claims name. Looser: the account, its pod and its secret are not looked up, so a token is
//! valid until it expires.
//!
//! Source: `pkg/serviceaccount/claims.go`, `pkg/serviceaccount/jwt.go`; apiserver
//! `plugin/pkg/authenticator/token/oidc/oidc.go`.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::signed_token::{AudienceClaim, SignedTokenError};
use crate::user::User;

/// Attribute of users for the credential that proved the identity.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Seconds by which the clock of a service accounts' issuer may differ.
const ACCOUNT_LEEWAY: i64 = 60;

/// Seconds by which the clock of an OIDC provider may be ahead.
const OIDC_LEEWAY: i64 = 300;

/// Unix time in seconds.
pub type UnixSeconds = i64;

/// The user of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    /// The identity.
    pub user: User,
    /// Time from which on the token proves nothing.
    pub expires: UnixSeconds,
}

/// Rules for tokens of service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRules {
    /// The issuer.
    pub issuer: String,
    /// The audiences of this server; a token must have one of them.
    pub audiences: Vec<String>,
}

/// Rules for tokens of an OpenID Connect provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcRules {
    /// The issuer.
    pub issuer: String,
    /// The audience that a token must have.
    pub client_id: String,
    /// Claim with the user's name.
    pub username_claim: String,
    /// Prefix of the names; `None` is the default, and `-` is none.
    pub username_prefix: Option<String>,
    /// Claim with the groups; `None` for no groups.
    pub groups_claim: Option<String>,
    /// Prefix of the groups.
    pub groups_prefix: String,
}

/// A time in a token: whole or fractional seconds.
#[derive(Clone, Copy)]
pub(super) struct NumericDate(pub(super) UnixSeconds);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        #[expect(clippy::cast_possible_truncation, reason = "a float beyond the range becomes its end")]
        Ok(Self(seconds.floor() as UnixSeconds))
    }
}

/// The registered claims.
#[derive(Deserialize)]
struct RegisteredClaims {
    iss: String,
    aud: Option<AudienceClaim>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
    #[serde(default)]
    sub: String,
    #[serde(default)]
    jti: String,
}

#[derive(Deserialize)]
struct AccountClaims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaims,
}

#[derive(Deserialize)]
struct KubernetesClaims {
    namespace: String,
    serviceaccount: ObjectClaim,
    pod: Option<ObjectClaim>,
    node: Option<ObjectClaim>,
}

#[derive(Deserialize)]
struct ObjectClaim {
    name: String,
    #[serde(default)]
    uid: String,
}

const UNREADABLE: SignedTokenError = SignedTokenError::Malformed("its claims are unreadable");

impl RegisteredClaims {
    /// Reads and checks issuer, audience and times, and returns the time from which on the token is invalid.
    fn read(
        payload: &[u8],
        issuer: &str,
        audiences: &[String],
        leeway: [i64; 2],
        now: UnixSeconds,
    ) -> Result<(Self, UnixSeconds), SignedTokenError> {
        let claims: Self = serde_json::from_slice(payload).map_err(|_| UNREADABLE)?;
        if claims.iss != issuer {
            return Err(SignedTokenError::Issuer);
        }
        let is_ours = |aud: &AudienceClaim| audiences.iter().any(|own| aud.has(own));
        if !claims.aud.as_ref().is_some_and(is_ours) {
            return Err(SignedTokenError::Audience);
        }
        let [early, late] = leeway;
        let Some(NumericDate(expiry)) = claims.exp else { return Err(SignedTokenError::Expired) };
        let expires = expiry.saturating_add(late);
        if now >= expires {
            return Err(SignedTokenError::Expired);
        }
        let is_ahead = |time: &NumericDate| now.saturating_add(early) < time.0;
        if claims.nbf.as_ref().is_some_and(is_ahead) || claims.iat.as_ref().is_some_and(is_ahead) {
            return Err(SignedTokenError::NotYetValid);
        }
        Ok((claims, expires))
    }

    /// Adds the attribute for the token's id.
    fn mark(&self, user: &mut User) {
        if !self.jti.is_empty() {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", self.jti)]);
        }
    }
}

impl AccountRules {
    /// Returns the service account of a verified payload.
    ///
    /// # Errors
    /// [`SignedTokenError`] if the claims prove no identity here and now.
    pub fn user(&self, payload: &[u8], now: UnixSeconds) -> Result<TokenUser, SignedTokenError> {
        let leeway = [ACCOUNT_LEEWAY; 2];
        let (claims, expires) = RegisteredClaims::read(payload, &self.issuer, &self.audiences, leeway, now)?;
        let AccountClaims { kubernetes: KubernetesClaims { namespace, serviceaccount: account, pod, node } } =
            serde_json::from_slice(payload).map_err(|_| UNREADABLE)?;
        let mut user = User::service_account(&namespace, &account.name);
        if user.service_account_name() != Some((&namespace, &account.name)) || user.name != claims.sub {
            return Err(SignedTokenError::Claims("the subject is another account".into()));
        }
        user.uid = account.uid;
        for (key, object) in [("pod", pod), ("node", node)] {
            let Some(ObjectClaim { name, uid }) = object else { continue };
            for (part, value) in [("name", name), ("uid", uid)] {
                if !value.is_empty() {
                    user.extra.insert(format!("authentication.kubernetes.io/{key}-{part}"), vec![value]);
                }
            }
        }
        claims.mark(&mut user);
        Ok(TokenUser { user, expires })
    }
}

impl OidcRules {
    /// Returns the user of a verified payload.
    ///
    /// # Errors
    /// [`SignedTokenError`] if the claims prove no identity here and now.
    pub fn user(&self, payload: &[u8], now: UnixSeconds) -> Result<TokenUser, SignedTokenError> {
        let audience = std::slice::from_ref(&self.client_id);
        let (claims, expires) = RegisteredClaims::read(payload, &self.issuer, audience, [OIDC_LEEWAY, 0], now)?;
        let all: Map<String, Value> = serde_json::from_slice(payload).map_err(|_| UNREADABLE)?;
        let name = self.name(&all)?;
        let mut user = User::authenticated(name, self.groups(&all)?);
        claims.mark(&mut user);
        Ok(TokenUser { user, expires })
    }

    fn name(&self, claims: &Map<String, Value>) -> Result<String, SignedTokenError> {
        let claim = &self.username_claim;
        let unusable = |why| SignedTokenError::Claims(format!("claim {claim:?} {why}").into());
        let name = claims.get(claim).ok_or_else(|| unusable("is missing"))?;
        let name = name.as_str().filter(|name| !name.is_empty()).ok_or_else(|| unusable("is no name"))?;
        if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != true) {
            return Err(unusable("is not verified"));
        }
        Ok(match self.username_prefix.as_deref() {
            Some("-") => name.to_owned(),
            Some(prefix) => format!("{prefix}{name}"),
            // Names of different providers must not be equal; addresses are unique anyway.
            None if claim == "email" => name.to_owned(),
            None => format!("{}#{name}", self.issuer),
        })
    }

    fn groups(&self, claims: &Map<String, Value>) -> Result<Vec<String>, SignedTokenError> {
        let Some(claim) = &self.groups_claim else { return Ok(Vec::new()) };
        let unusable = || SignedTokenError::Claims(format!("claim {claim:?} has no groups").into());
        let prefixed = |group: &Value| {
            let group = group.as_str().ok_or_else(unusable)?;
            Ok(format!("{}{group}", self.groups_prefix))
        };
        match claims.get(claim) {
            None => Ok(Vec::new()),
            Some(Value::Array(groups)) => groups.iter().map(prefixed).collect(),
            Some(group) => Ok(vec![prefixed(group)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: UnixSeconds = 1_700_000_000;

    fn accounts() -> AccountRules {
        AccountRules { issuer: "https://issuer".to_owned(), audiences: vec!["api".to_owned(), "other".to_owned()] }
    }

    fn account_claims() -> Value {
        json!({
            "iss": "https://issuer", "sub": "system:serviceaccount:a:b", "aud": ["api"], "jti": "id",
            "exp": NOW + 600, "nbf": NOW, "iat": NOW,
            "kubernetes.io": {
                "namespace": "a", "serviceaccount": {"name": "b", "uid": "u"},
                "pod": {"name": "p", "uid": "pu"}, "node": {"name": "n", "uid": "nu"}, "warnafter": NOW + 300,
            },
        })
    }

    fn with(mut claims: Value, pointer: &str, value: Value) -> Value {
        match pointer.rsplit_once('/') {
            Some((parent, key)) => claims.pointer_mut(parent).unwrap()[key] = value,
            None => unreachable!("a pointer"),
        }
        claims
    }

    #[test]
    fn service_accounts_have_their_groups_and_attributes() {
        let read = accounts().user(account_claims().to_string().as_bytes(), NOW).unwrap();
        assert_eq!(read.expires, NOW + 660);
        assert_eq!(
            serde_json::to_value(&read.user).unwrap(),
            json!({
                "username": "system:serviceaccount:a:b", "uid": "u",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/credential-id": ["JTI=id"],
                    "authentication.kubernetes.io/node-name": ["n"],
                    "authentication.kubernetes.io/node-uid": ["nu"],
                    "authentication.kubernetes.io/pod-name": ["p"],
                    "authentication.kubernetes.io/pod-uid": ["pu"],
                },
            })
        );
    }

    #[test]
    fn claims_of_accounts_prove_nothing_elsewhere_or_at_another_time() {
        use SignedTokenError::{Audience, Claims, Expired, Issuer, Malformed, NotYetValid};
        let other = || Claims("the subject is another account".into());
        let unreadable = Malformed("its claims are unreadable");
        for (pointer, value, error) in [
            ("/iss", json!("https://issuer/"), Issuer),
            ("/aud", json!("api2"), Audience),
            ("/aud", json!([]), Audience),
            ("/aud", json!(null), Audience),
            ("/aud", json!(7), unreadable.clone()),
            ("/exp", json!(NOW - 60), Expired),
            ("/exp", json!(null), Expired),
            ("/exp", json!(-1e300), Expired),
            ("/exp", json!("tomorrow"), unreadable.clone()),
            ("/nbf", json!(NOW + 61), NotYetValid),
            ("/nbf", json!(1e300), NotYetValid),
            ("/iat", json!(NOW + 61), NotYetValid),
            ("/sub", json!("system:serviceaccount:a:c"), other()),
            ("/sub", json!("system:serviceaccount:c:b"), other()),
            ("/sub", json!(""), other()),
            ("/kubernetes.io/namespace", json!(""), other()),
            ("/kubernetes.io/serviceaccount/name", json!("b:c"), other()),
            ("/kubernetes.io", json!(null), unreadable.clone()),
        ] {
            let claims = with(account_claims(), pointer, value.clone()).to_string();
            assert_eq!(accounts().user(claims.as_bytes(), NOW), Err(error), "{pointer} {value}");
        }
        for (pointer, value) in [
            ("/aud", json!("other")),
            ("/exp", json!(NOW - 59)),
            ("/nbf", json!(NOW + 60)),
            ("/exp", json!(1e300)),
            ("/exp", json!(NOW as f64 + 0.5)),
        ] {
            let claims = with(account_claims(), pointer, value.clone()).to_string();
            assert!(accounts().user(claims.as_bytes(), NOW).is_ok(), "{pointer} {value}");
        }
    }

    fn oidc() -> OidcRules {
        OidcRules {
            issuer: "https://issuer".to_owned(),
            client_id: "client".to_owned(),
            username_claim: "sub".to_owned(),
            username_prefix: None,
            groups_claim: Some("groups".to_owned()),
            groups_prefix: "oidc:".to_owned(),
        }
    }

    fn oidc_claims() -> Value {
        json!({
            "iss": "https://issuer", "sub": "alice", "aud": ["client", "x"], "exp": NOW + 600, "email": "a@example.com",
            "email_verified": true, "groups": ["dev", "ops"],
        })
    }

    fn described(rules: &OidcRules, claims: &Value) -> Result<String, String> {
        let read = rules.user(claims.to_string().as_bytes(), NOW);
        read.map(|read| format!("{} {}", read.user.name, read.user.groups.join(","))).map_err(|error| error.to_string())
    }

    #[test]
    fn users_of_providers_are_named_by_claims_and_prefixes() {
        let groups = "oidc:dev,oidc:ops,system:authenticated";
        for (claim, prefix, name) in [
            ("sub", None, "https://issuer#alice"),
            ("sub", Some("-"), "alice"),
            ("sub", Some("oidc:"), "oidc:alice"),
            ("email", None, "a@example.com"),
            ("email", Some("oidc:"), "oidc:a@example.com"),
        ] {
            let rules =
                OidcRules { username_claim: claim.to_owned(), username_prefix: prefix.map(str::to_owned), ..oidc() };
            assert_eq!(described(&rules, &oidc_claims()), Ok(format!("{name} {groups}")));
        }
        let one = described(&oidc(), &with(oidc_claims(), "/groups", json!("dev")));
        assert_eq!(one, Ok("https://issuer#alice oidc:dev,system:authenticated".to_owned()));
        let none = OidcRules { groups_claim: None, ..oidc() };
        assert_eq!(described(&none, &oidc_claims()), Ok("https://issuer#alice system:authenticated".to_owned()));
    }

    #[test]
    fn claims_of_providers_prove_nothing_elsewhere_or_at_another_time() {
        let email = OidcRules { username_claim: "email".to_owned(), ..oidc() };
        let (expired, early) = ("the token has expired", "the token is not valid yet");
        let no_user = |text: &str| format!("the claims name no user: {text}");
        for (rules, pointer, value, error) in [
            (&oidc(), "/iss", json!("https://other"), "the issuer is another one".to_owned()),
            (&oidc(), "/aud", json!("api"), "the token is for another audience".to_owned()),
            (&oidc(), "/exp", json!(NOW), expired.to_owned()),
            (&oidc(), "/exp", json!(null), expired.to_owned()),
            (&oidc(), "/nbf", json!(NOW + 301), early.to_owned()),
            (&oidc(), "/sub", json!(""), no_user(r#"claim "sub" is no name"#)),
            (&oidc(), "/groups", json!([7]), no_user(r#"claim "groups" has no groups"#)),
            (&oidc(), "/groups", json!({}), no_user(r#"claim "groups" has no groups"#)),
            (&email, "/email", json!(7), no_user(r#"claim "email" is no name"#)),
            (&email, "/email_verified", json!(false), no_user(r#"claim "email" is not verified"#)),
            (&email, "/email_verified", json!("true"), no_user(r#"claim "email" is not verified"#)),
        ] {
            assert_eq!(described(rules, &with(oidc_claims(), pointer, value)), Err(error), "{pointer}");
        }
    }
}
