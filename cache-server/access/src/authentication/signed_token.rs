//! JSON Web Tokens in compact form, and the public keys that verify them.
//!
//! INVARIANT: the key decides which algorithms it may verify, never the token: `none` and HMAC have no key at all.
//! INVARIANT: a payload is handed out only after its signature was verified.
//!
//! Not supported: ES512, because `ring` has no P-521; encrypted tokens; tokens in JSON form.
//!
//! Source: RFC 7515, 7517, 7518, 8037.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    digest::{SHA256, digest},
    signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm},
};
use serde::Deserialize;
use x509_cert::{
    der::{Decode as _, asn1::ObjectIdentifier},
    spki::SubjectPublicKeyInfoRef,
};

use super::claims::{NumericDate, UnixSeconds};

/// Bytes of the longest token that is verified. Tokens of identity providers list up to some hundred groups.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Keys of one set.
pub const KEYS_MAX: usize = 32;

/// Signatures that one token may cost: keys that fit a token without a key id, or that share an id. Anyone may send tokens,
/// before flow control. Issuers with several keys must name one in their tokens (OpenID Connect Core, section 10.1).
pub const SIGNATURES_MAX: usize = 4;

/// Reason why a signed token proves no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedTokenError {
    /// The token is longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is too long")]
    TooLong,
    /// The token is not of three parts in base64, or a part is not the JSON that it should be.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// The token names an algorithm that is never verified, such as `none`.
    #[error("the token's algorithm is not supported")]
    Algorithm,
    /// No key has the token's id.
    #[error("no key has the token's id")]
    UnknownKey,
    /// More than [`SIGNATURES_MAX`] keys may have signed the token.
    #[error("the token names no key id, and more than {SIGNATURES_MAX} keys fit it")]
    Ambiguous,
    /// No key with the token's id and algorithm verifies the signature.
    #[error("the signature is wrong")]
    Signature,
    /// The issuer is not trusted.
    #[error("the issuer is another one")]
    Issuer,
    /// The audience does not include this server.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The claims name no user.
    #[error("the claims name no user: {0}")]
    Claims(Cow<'static, str>),
}

/// Error of a key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The document is no JSON Web Key Set.
    #[error("it is no JSON Web Key Set, and has no key in PEM")]
    NoSet,
    /// No key of the set can verify tokens.
    #[error("it has no key that can verify tokens")]
    NoKeys,
    /// There are more keys than [`KEYS_MAX`].
    #[error("it has {0} keys; at most {KEYS_MAX} are used")]
    TooMany(usize),
}

/// A way to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum SigningAlgorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "RS384")]
    Rs384,
    #[serde(rename = "RS512")]
    Rs512,
    #[serde(rename = "PS256")]
    Ps256,
    #[serde(rename = "PS384")]
    Ps384,
    #[serde(rename = "PS512")]
    Ps512,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "ES384")]
    Es384,
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// Any other one, `none` and HMAC included.
    #[serde(other)]
    Unsupported,
}

/// A token whose signature was not verified yet.
#[derive(Clone)]
pub struct UnverifiedToken<'a> {
    /// The signed bytes: header and payload in base64.
    signed: &'a str,
    header: JoseHeader,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

#[derive(Clone, Deserialize)]
struct JoseHeader {
    alg: SigningAlgorithm,
    #[serde(default)]
    kid: String,
    /// Names of extensions that the verifier must understand. None are understood.
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct UnverifiedClaims<'a> {
    #[serde(borrow)]
    iss: Cow<'a, str>,
}

#[derive(Deserialize)]
struct UnverifiedExpiry {
    exp: NumericDate,
}

#[derive(Deserialize)]
struct UnverifiedAudience {
    aud: AudienceClaim,
}

/// Audiences of a token: one, or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AudienceClaim {
    One(String),
    Many(Vec<String>),
}

impl AudienceClaim {
    pub(super) fn has(&self, expected: &str) -> bool {
        match self {
            Self::One(audience) => audience == expected,
            Self::Many(audiences) => audiences.iter().any(|audience| audience == expected),
        }
    }
}

impl<'a> UnverifiedToken<'a> {
    /// Splits and decodes a token. Cost: linear in its length.
    ///
    /// # Errors
    /// [`SignedTokenError`] if it cannot be verified by any key.
    pub fn parse(token: &'a str) -> Result<Self, SignedTokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(SignedTokenError::TooLong);
        }
        let malformed = SignedTokenError::Malformed;
        let parts = token.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, payload) = signed.split_once('.')?;
            Some((signed, header, payload, signature))
        });
        let Some((signed, header, payload, signature)) = parts else { return Err(malformed("it has no three parts")) };
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed("a part is not base64"));
        let header: JoseHeader =
            serde_json::from_slice(&decode(header)?).map_err(|_| malformed("its header is unreadable"))?;
        if header.crit.is_some() {
            return Err(malformed("its header has critical extensions"));
        }
        if header.alg == SigningAlgorithm::Unsupported {
            return Err(SignedTokenError::Algorithm);
        }
        Ok(Self { signed, header, payload: decode(payload)?, signature: decode(signature)? })
    }

    /// Returns the issuer that the token claims: only to find the keys that verify it.
    #[must_use]
    pub fn claimed_issuer(&self) -> Option<String> {
        serde_json::from_slice(&self.payload).ok().map(|UnverifiedClaims { iss }| iss.into_owned())
    }

    /// Returns the time at which the token expires by its own account: only to ask another server in time.
    #[must_use]
    pub fn claimed_expiry(&self) -> Option<UnixSeconds> {
        serde_json::from_slice(&self.payload).ok().map(|UnverifiedExpiry { exp: NumericDate(seconds) }| seconds)
    }
}

/// Returns the `audiences` that a token names. Call for verified tokens only.
#[must_use]
pub fn shared_audiences(token: &str, audiences: &[String]) -> Vec<String> {
    let claimed = UnverifiedToken::parse(token).ok().and_then(|token| serde_json::from_slice(&token.payload).ok());
    let Some(UnverifiedAudience { aud }) = claimed else { return Vec::new() };
    audiences.iter().filter(|audience| aud.has(audience)).cloned().collect()
}

/// The public keys of one issuer.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
}

#[derive(Clone, Debug)]
struct VerificationKey {
    /// Empty if the set names none.
    id: String,
    /// The only algorithm of the key, if the set names one.
    alg: Option<SigningAlgorithm>,
    material: KeyMaterial,
}

#[derive(Clone, Debug)]
enum KeyMaterial {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An RSAPublicKey of PKCS #1.
    RsaDer(Vec<u8>),
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JsonKeySet {
    keys: Vec<JsonKey>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct JsonKey {
    kty: String,
    kid: String,
    alg: Option<SigningAlgorithm>,
    #[serde(rename = "use")]
    usage: String,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys for encryption, of unknown kinds, and symmetric ones are skipped.
    ///
    /// # Errors
    /// [`KeySetError`] if no key is left, or too many are.
    pub fn parse(document: &[u8]) -> Result<Self, KeySetError> {
        let JsonKeySet { keys } = serde_json::from_slice(document).map_err(|_| KeySetError::NoSet)?;
        Self::of(keys.into_iter().filter_map(JsonKey::into_verification_key).collect())
    }

    /// Reads public keys in DER, as SubjectPublicKeyInfo. Their ids are those of kube-apiserver: see [`key_id`]. Keys of
    /// other kinds than RSA, P-256 and P-384 are skipped.
    ///
    /// # Errors
    /// [`KeySetError`] if no key is left, or too many are.
    pub fn of_public_keys<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Result<Self, KeySetError> {
        Self::of(keys.into_iter().filter_map(VerificationKey::of_public_key).collect())
    }

    fn of(keys: Vec<VerificationKey>) -> Result<Self, KeySetError> {
        match keys.len() {
            0 => Err(KeySetError::NoKeys),
            count if count > KEYS_MAX => Err(KeySetError::TooMany(count)),
            _ => Ok(Self { keys }),
        }
    }

    /// Verifies the signature, and returns the payload. Cost: some 30 µs for RSA, some 100 µs for a curve, and for a token
    /// without a key id up to [`SIGNATURES_MAX`] times as much.
    ///
    /// # Errors
    /// [`SignedTokenError::UnknownKey`] if newer keys may verify it, [`SignedTokenError::Ambiguous`] or
    /// [`SignedTokenError::Signature`] if not.
    pub fn verify<'t>(&self, token: &'t UnverifiedToken<'_>) -> Result<&'t [u8], SignedTokenError> {
        let JoseHeader { alg, kid, .. } = &token.header;
        let mut named = self.keys.iter().filter(|key| kid.is_empty() || key.id == *kid).peekable();
        if named.peek().is_none() {
            return Err(SignedTokenError::UnknownKey);
        }
        let fitting: Vec<_> = named.filter(|key| key.fits(*alg)).take(SIGNATURES_MAX + 1).collect();
        if fitting.len() > SIGNATURES_MAX {
            return Err(SignedTokenError::Ambiguous);
        }
        let is_valid = fitting.iter().any(|key| key.material.verifies(*alg, token.signed.as_bytes(), &token.signature));
        if is_valid { Ok(&token.payload) } else { Err(SignedTokenError::Signature) }
    }
}

/// Returns the id that kube-apiserver gives a public key, from its SubjectPublicKeyInfo in DER.
#[must_use]
pub fn key_id(public_key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, public_key))
}

const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

impl VerificationKey {
    fn of_public_key(der: &[u8]) -> Option<Self> {
        let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
        let key = info.subject_public_key.as_bytes()?.to_vec();
        let material = match (info.algorithm.oid, info.algorithm.parameters_oid()) {
            (RSA_ENCRYPTION, _) => KeyMaterial::RsaDer(key),
            (_, Ok(P256)) => KeyMaterial::P256(key),
            (_, Ok(P384)) => KeyMaterial::P384(key),
            (_, _) => return None,
        };
        Some(Self { id: key_id(der), alg: None, material })
    }

    /// Returns true if the key may verify tokens of `alg`.
    fn fits(&self, alg: SigningAlgorithm) -> bool {
        self.alg.is_none_or(|own| own == alg)
            && match (&self.material, alg) {
                (KeyMaterial::Rsa { .. } | KeyMaterial::RsaDer(_), alg) => rsa(alg).is_some(),
                (KeyMaterial::P256(_), SigningAlgorithm::Es256)
                | (KeyMaterial::P384(_), SigningAlgorithm::Es384)
                | (KeyMaterial::Ed25519(_), SigningAlgorithm::EdDsa) => true,
                (KeyMaterial::P256(_) | KeyMaterial::P384(_) | KeyMaterial::Ed25519(_), _) => false,
            }
    }
}

impl JsonKey {
    fn into_verification_key(self) -> Option<VerificationKey> {
        if !matches!(&*self.usage, "" | "sig") {
            return None;
        }
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| !bytes.is_empty());
        let point = |length: usize| {
            let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
            (x.len() == length && y.len() == length).then(|| [&[UNCOMPRESSED][..], &x, &y].concat())
        };
        let material = match (&*self.kty, &*self.crv) {
            ("RSA", _) => KeyMaterial::Rsa { modulus: bytes(&self.n)?, exponent: bytes(&self.e)? },
            ("EC", "P-256") => KeyMaterial::P256(point(32)?),
            ("EC", "P-384") => KeyMaterial::P384(point(48)?),
            ("OKP", "Ed25519") => KeyMaterial::Ed25519(bytes(&self.x)?),
            (_, _) => return None,
        };
        Some(VerificationKey { id: self.kid, alg: self.alg, material })
    }
}

/// First byte of an uncompressed point.
const UNCOMPRESSED: u8 = 4;

impl KeyMaterial {
    /// Returns true if `signature` is one of `signed` by this key with `alg`, and the key is of the kind for `alg`.
    fn verifies(&self, alg: SigningAlgorithm, signed: &[u8], signature: &[u8]) -> bool {
        let by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(signed, signature).is_ok()
        };
        match (self, alg) {
            (Self::Rsa { modulus, exponent }, alg) => rsa(alg).is_some_and(|parameters| {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, signed, signature).is_ok()
            }),
            (Self::RsaDer(key), alg) => rsa(alg).is_some_and(|parameters| by(parameters, key)),
            (Self::P256(point), SigningAlgorithm::Es256) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
            (Self::P384(point), SigningAlgorithm::Es384) => by(&signature::ECDSA_P384_SHA384_FIXED, point),
            (Self::Ed25519(key), SigningAlgorithm::EdDsa) => by(&signature::ED25519, key),
            (Self::P256(_) | Self::P384(_) | Self::Ed25519(_), _) => false,
        }
    }
}

const fn rsa(alg: SigningAlgorithm) -> Option<&'static RsaParameters> {
    Some(match alg {
        SigningAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SigningAlgorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SigningAlgorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        SigningAlgorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        SigningAlgorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        SigningAlgorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        SigningAlgorithm::Es256 | SigningAlgorithm::Es384 | SigningAlgorithm::EdDsa | SigningAlgorithm::Unsupported => {
            return None;
        }
    })
}

#[cfg(test)]
pub(super) mod tests;
