//! Signs tokens of service accounts.
//!
//! INVARIANT: the private key is neither logged nor printed.

use access_rules::authentication::signed_token::key_id;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::{Signer, SigningKey},
};
use serde_json::{Value, json};

use crate::watched::WatchedFile;

/// Issues tokens of service accounts.
pub struct TokenSigner {
    pub(super) issuer: String,
    pub(super) audiences: Vec<String>,
    pub(super) key: WatchedFile<SigningPair>,
}

/// A private key, and what tokens say about it.
pub struct SigningPair {
    signer: Box<dyn Signer>,
    algorithm: &'static str,
    /// Bytes of each of the two numbers of a signature; `None` for RSA.
    number_bytes: Option<usize>,
    id: String,
}

impl TokenSigner {
    /// The issuer in the tokens.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Audiences of this server.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the token with these claims; `None` if it cannot be signed.
    #[must_use]
    pub fn token(&self, claims: &Value) -> Option<String> {
        self.key.current().0.token(claims)
    }
}

/// Reads a private key of RSA, P-256 or P-384 in PEM.
pub(super) fn parse(pem: &[u8]) -> Result<SigningPair, String> {
    SigningPair::read(pem).ok_or_else(|| "it has no private key of RSA, P-256 or P-384 in PEM".to_owned())
}

/// Returns the public key of a private one: SubjectPublicKeyInfo in DER.
pub(super) fn public_key(private: &PrivateKeyDer<'_>) -> Option<Vec<u8>> {
    Some(any_supported_type(private).ok()?.public_key()?.to_vec())
}

impl SigningPair {
    fn read(pem: &[u8]) -> Option<Self> {
        let private = PrivateKeyDer::from_pem_slice(pem).ok()?;
        let key = any_supported_type(&private).ok()?;
        let schemes = [
            (SignatureScheme::RSA_PKCS1_SHA256, "RS256", None),
            (SignatureScheme::ECDSA_NISTP256_SHA256, "ES256", Some(32)),
            (SignatureScheme::ECDSA_NISTP384_SHA384, "ES384", Some(48)),
        ];
        let signed = |(scheme, algorithm, number_bytes)| {
            Some((SigningKey::choose_scheme(&*key, &[scheme])?, algorithm, number_bytes))
        };
        let (signer, algorithm, number_bytes) = schemes.into_iter().find_map(signed)?;
        Some(Self { signer, algorithm, number_bytes, id: key_id(&key.public_key()?) })
    }

    fn token(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.algorithm, "kid": self.id});
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.signer.sign(signed.as_bytes()).ok()?;
        let signature = match self.number_bytes {
            Some(bytes) => numbers(&signature, bytes)?,
            None => signature,
        };
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Turns an ECDSA signature in DER, a sequence of two integers, into the two numbers of `bytes` bytes each.
fn numbers(der: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // All lengths are below 128, so each is one byte.
    let [0x30, _, rest @ ..] = der else { return None };
    let (mut rest, mut out) = (rest, Vec::with_capacity(2 * bytes));
    for _ in 0..2 {
        let [0x02, length, tail @ ..] = rest else { return None };
        let (number, tail) = tail.split_at_checked(usize::from(*length))?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = number.get(zeros..)?;
        out.resize(out.len() + bytes.checked_sub(number.len())?, 0);
        out.extend_from_slice(number);
        rest = tail;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_signatures_have_their_full_length() {
        let der = [0x30, 8, 2, 3, 0, 0x80, 1, 2, 1, 7];
        assert_eq!(numbers(&der, 3), Some(vec![0, 0x80, 1, 0, 0, 7]));
        assert_eq!((numbers(&der, 1), numbers(&der[..6], 3), numbers(&[], 3)), (None, None, None));
    }
}
