//! An issuer of service accounts' tokens.

use access_rules::authentication::claims::UnixSeconds;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

pub(super) const ISSUER: &str = "https://kubernetes.default.svc";
pub(super) const AUDIENCE: &str = "cache";

/// One key with its id.
pub(super) struct Issuer {
    id: &'static str,
    key: EcdsaKeyPair,
}

/// Claims of a valid token.
pub(super) fn claims(now: UnixSeconds) -> Value {
    json!({
        "iss": ISSUER, "aud": [AUDIENCE], "exp": now + 600, "nbf": now, "sub": "system:serviceaccount:default:app",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "app", "uid": "u"}},
    })
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(super) fn new(id: &'static str) -> Self {
        let (random, curve) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Self { id, key: EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).unwrap() }
    }

    pub(super) fn key_set(&self) -> Value {
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": self.id, "x": encode(x), "y": encode(y)}]})
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "ES256", "kid": self.id}), claims)
    }

    /// A token with this header, signed with ES256.
    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }
}
