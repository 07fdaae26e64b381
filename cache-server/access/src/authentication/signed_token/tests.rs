//! Tokens of every algorithm, and forged ones.

use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
        RsaEncoding, RsaKeyPair,
    },
};
use serde_json::{Value, json};

use super::*;

/// A private RSA key of 2,048 bits for tests, as RSAPrivateKey of PKCS #1: `ring` generates none.
const RSA_KEY: &str = "\
MIIEpAIBAAKCAQEAwVOTRuISrMsMwjngV7aYUIxr9q6mFaNR9IeYFXLjerZTaqoHaq7LMVbJOIQqlkkOnVl/1/dUv3B34GwWtGCwwpgClzjgPH\
JcW4XeQW8qN//A5tscG3tH41XMESsH2pcffrQDsBJC24EwI3Q/nXWgioj1RLPZmtHHSIAt30v6rDR3vCt/ZICgNBW0OfHaL/oB3t4NlfCxUDLT\
pKrg5EffmrmC1ZoHKNUWpSy4MgPJVRl8QFv90QxsyJz5rAOFm9ck9WyfJH4ONb1WVIDjV/pQ+jJ7Q8SNEesubIcXLyPBu+frkAVTof3mVNfh7X\
XDeF3gHDiEiS4I34vq64/yb7NT9wIDAQABAoIBAFZLXXqu8AIUUrohxnuwpDWUMJ74n2caMztxCRhN46+DUiHTCqN6qXV5FTG2gSH7M1xWNmQq\
4Tfg1omlBc93N39tBf8FYsZoj8REsYxIuDIt5afGlznHIjQeOIxTRlqyyVqvtNOzmwdLF7dDrR+2gTZFYyHLG+9pA0jf+lnpmtehfihlQ2/ze0\
hFEAF09fveDfWH7te8TG0sCgf2kfQhsNtApQy8sbvsXnqVOWRL4mANWrdAHlSfDrq+mQFIsOcz4ohaFQzAAgiIAyLUwIy0fiQUpFhSVcld7VDZ\
4trvhu/INz0inq61WPWwR9QW2A7lYw3M40GTuipZK1ykdCcUX1kCgYEA9/GbQaW71eRJ91U6ubEkLI40BmOUkuIFgNNyoEMLF4jN5zSx4M5p2D\
wdoESiOrzugynagfr0jhi0sW2CmCcEqS0e49l7VN26iFOGgdSLTWEHY0ynJbC4m+LTpq2OkKX02S3JARpNg1b2gmkoh73Iuh5TWcXWekNJ3zV5\
mDAra68CgYEAx5uppId8AoJN2vve+tvHv/mNacR7+uxPqTd9C6YjA5hssU5XsQNgFAidpQH96mTWGkMrHleJNN+86fuarQ7Y/OcWxo++3ZYJzL\
teVSBqKbVrM0uWabbmRAQsz5e7mfTCePKje1i8Glk+d5DhP3oBIgahGKBxXKZWGNbtaY/xxjkCgYEA6C7FP+1uf3bfWRDkBF4AzQSBbXY0/HNR\
yfi4f6Eosuo2PwvWgvlonsh0yc9bx/uCsysvZsbV2ncCRqCRSeBH+hC5u46+cpOMiPsGm2+o31Y8b92pLJ9X0QrRPmWKeqQeLH42m6TA73wxLa\
BCBxNO9BNP5GJiXW3DsJVH/58kGhsCgYAUXFeAleVbaClC5iBHnHWSqoT3PfibjtFNZICX2JmHu1uS9nfRcZOyV3KlKz/YUfLY+PMEBE/VmeDu\
SSDs+C/AFF5pYK5KcgyL2qzzp/vMR1opAFPWcraoR3i+sC6NtL7FkZKFeXauhV3u2lNvoyVMcDqshWkq1zi/DeVnuCwkWQKBgQCR+QOhRPLitW\
MJbwgoXFh7rsR2j6AsJlB0LvuVuKJg2ApVo2+rpfnqbj2TZ+2Zv2i7wOHn/IuRIoT3ycxW2m/6ZcmTHlKQE8N4Hh26NiOGpa3/xHfr/g9EIGcL\
4marabtbhNfCzAjw/Kmy4OrISDka6ZF2Ado/RMyutszZcRo6FQ==";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A private key with its JSON Web Key.
enum Signer {
    Rsa(RsaKeyPair),
    Curve(EcdsaKeyPair),
    Edwards(Ed25519KeyPair),
}

impl Signer {
    fn new(alg: &str) -> Self {
        let random = SystemRandom::new();
        match alg {
            "ES256" | "ES384" => {
                let curve =
                    if alg == "ES256" { &ECDSA_P256_SHA256_FIXED_SIGNING } else { &ECDSA_P384_SHA384_FIXED_SIGNING };
                let key = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
                Self::Curve(EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).unwrap())
            }
            "EdDSA" => {
                let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Self::Edwards(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
            }
            _ => {
                let key = base64::engine::general_purpose::STANDARD.decode(RSA_KEY).unwrap();
                Self::Rsa(RsaKeyPair::from_der(&key).unwrap())
            }
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let RsaPublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                let [n, e] = [n, e].map(encode);
                json!({"kty": "RSA", "kid": kid, "use": "sig", "n": n, "e": e})
            }
            Self::Curve(key) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let crv = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "kid": kid, "crv": crv, "x": encode(x), "y": encode(y)})
            }
            Self::Edwards(key) => {
                json!({"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": encode(key.public_key())})
            }
        }
    }

    fn sign(&self, alg: &str, signed: &str) -> Vec<u8> {
        let (random, signed) = (SystemRandom::new(), signed.as_bytes());
        let encoding: &dyn RsaEncoding = match alg {
            "RS384" => &RSA_PKCS1_SHA384,
            "RS512" => &RSA_PKCS1_SHA512,
            "PS256" => &RSA_PSS_SHA256,
            "PS384" => &RSA_PSS_SHA384,
            "PS512" => &RSA_PSS_SHA512,
            _ => &RSA_PKCS1_SHA256,
        };
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &random, signed, &mut signature).unwrap();
                signature
            }
            Self::Curve(key) => key.sign(&random, signed).unwrap().as_ref().to_vec(),
            Self::Edwards(key) => key.sign(signed).as_ref().to_vec(),
        }
    }

    /// A token whose header names `named`, signed with `alg`.
    fn token(&self, alg: &str, header: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(r#"{"iss":"https://issuer"}"#));
        format!("{signed}.{}", encode(self.sign(alg, &signed)))
    }
}

fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn verified(keys: &KeySet, token: &str) -> Result<String, SignedTokenError> {
    let token = UnverifiedToken::parse(token)?;
    keys.verify(&token).map(|payload| String::from_utf8(payload.to_vec()).unwrap())
}

const ALGORITHMS: [&str; 9] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

#[test]
fn each_algorithm_is_verified_by_its_keys_only() {
    let signers = ALGORITHMS.map(Signer::new);
    let keys: Vec<Value> = signers.iter().zip(ALGORITHMS).map(|(signer, alg)| signer.jwk(alg)).collect();
    let all = key_set(&keys);
    // One key of each kind: the RSA keys fit each other's tokens.
    let unlike = key_set(&keys[5..]);
    for (signer, alg) in signers.iter().zip(ALGORITHMS) {
        let payload = Ok(r#"{"iss":"https://issuer"}"#.to_owned());
        assert_eq!(verified(&all, &signer.token(alg, &json!({"alg": alg, "kid": alg}))), payload, "{alg}");
        assert_eq!(verified(&unlike, &signer.token(alg, &json!({"alg": alg}))), payload, "{alg} without a key id");
        for other in ALGORITHMS.iter().filter(|other| **other != alg) {
            let confused = signer.token(alg, &json!({"alg": other, "kid": alg}));
            assert_eq!(verified(&all, &confused), Err(SignedTokenError::Signature), "{alg} as {other}");
        }
        let mut only = signer.jwk("k");
        only["alg"] = if alg == "RS512" { "RS256".into() } else { "RS512".into() };
        let token = signer.token(alg, &json!({"alg": alg, "kid": "k"}));
        assert_eq!(verified(&key_set(&[only]), &token), Err(SignedTokenError::Signature), "{alg} is not the key's");
    }
}

/// Goal: a token costs at most four signatures, also an invented one. Method: sets of as many keys as may be tried, and of one
/// more, for tokens without a key id and with one that all keys share; then a token that names one of many keys.
#[test]
fn a_token_costs_a_bounded_number_of_signatures() {
    let signers: Vec<Signer> = (0..KEYS_MAX).map(|_| Signer::new("EdDSA")).collect();
    let last = |count: usize, header: &Value, id: &dyn Fn(usize) -> String| {
        let keys: Vec<Value> = signers[..count].iter().enumerate().map(|(at, signer)| signer.jwk(&id(at))).collect();
        verified(&key_set(&keys), &signers[count - 1].token("EdDSA", header))
    };
    let payload = Ok(r#"{"iss":"https://issuer"}"#.to_owned());
    let (unnamed, shared) = (json!({"alg": "EdDSA"}), json!({"alg": "EdDSA", "kid": "k"}));
    for (header, id) in
        [(&unnamed, &(|at: usize| at.to_string()) as &dyn Fn(usize) -> String), (&shared, &|_| "k".into())]
    {
        assert_eq!(last(SIGNATURES_MAX, header, id), payload, "{header}");
        for count in [SIGNATURES_MAX + 1, KEYS_MAX] {
            assert_eq!(last(count, header, id), Err(SignedTokenError::Ambiguous), "{count} keys, {header}");
        }
    }
    let named = json!({"alg": "EdDSA", "kid": (KEYS_MAX - 1).to_string()});
    assert_eq!(last(KEYS_MAX, &named, &|at| at.to_string()), payload);
}

#[test]
fn an_audience_is_one_or_a_list() {
    for (claim, has) in [(json!("a"), true), (json!("b"), false), (json!(["b", "a"]), true), (json!(["b"]), false)] {
        let claim: AudienceClaim = serde_json::from_value(claim).unwrap();
        assert_eq!(claim.has("a"), has);
    }
}

#[test]
fn the_longest_token_is_read() {
    let parse = |bytes| UnverifiedToken::parse(&"A".repeat(bytes)).err();
    assert_eq!(parse(TOKEN_BYTES_MAX), Some(SignedTokenError::Malformed("it has no three parts")));
    assert_eq!(parse(TOKEN_BYTES_MAX + 1), Some(SignedTokenError::TooLong));
}

#[test]
fn forged_tokens_are_refused() {
    let (signer, other) = (Signer::new("ES256"), Signer::new("ES256"));
    let keys = key_set(&[signer.jwk("k")]);
    let token = signer.token("ES256", &json!({"alg": "ES256", "kid": "k"}));
    assert!(verified(&keys, &token).is_ok());
    assert_eq!(UnverifiedToken::parse(&token).unwrap().claimed_issuer().as_deref(), Some("https://issuer"));
    let of_another = other.token("ES256", &json!({"alg": "ES256", "kid": "k"}));
    assert_eq!(verified(&keys, &of_another), Err(SignedTokenError::Signature));
    let unknown = signer.token("ES256", &json!({"alg": "ES256", "kid": "l"}));
    assert_eq!(verified(&keys, &unknown), Err(SignedTokenError::UnknownKey));
    // Each changed byte makes it invalid, at the latest by its signature.
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(verified(&keys, &changed).is_err(), "byte {at}");
    }
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let payload = signed.split_once('.').unwrap().1;
    let with = |header: Value, signature: &str| format!("{}.{payload}.{signature}", encode(header.to_string()));
    let malformed = SignedTokenError::Malformed;
    for (token, error) in [
        (with(json!({"alg": "none", "kid": "k"}), ""), SignedTokenError::Algorithm),
        (with(json!({"alg": "None", "kid": "k"}), signature), SignedTokenError::Algorithm),
        (with(json!({"alg": "HS256", "kid": "k"}), signature), SignedTokenError::Algorithm),
        (with(json!({"alg": "ES512", "kid": "k"}), signature), SignedTokenError::Algorithm),
        (with(json!({"alg": "ES256", "kid": "k"}), ""), SignedTokenError::Signature),
        (with(json!({"alg": "ES256", "crit": ["b64"]}), signature), malformed("its header has critical extensions")),
        (with(json!({"kid": "k"}), signature), malformed("its header is unreadable")),
        (with(json!({"alg": 7}), signature), malformed("its header is unreadable")),
        (format!("{signed}."), SignedTokenError::Signature),
        (format!("{token}.x"), malformed("its header is unreadable")),
        (signed.replace('.', ""), malformed("it has no three parts")),
        (format!("{token}="), malformed("a part is not base64")),
        (String::new(), malformed("it has no three parts")),
        ("..".to_owned(), malformed("its header is unreadable")),
        (format!("{token}{}", "A".repeat(TOKEN_BYTES_MAX)), SignedTokenError::TooLong),
    ] {
        assert!(verified(&keys, &token).is_err(), "{token}");
        if !token.ends_with(".x") {
            assert_eq!(verified(&keys, &token), Err(error), "{token}");
        }
    }
}

#[test]
fn key_sets_keep_the_keys_that_verify() {
    let key = Signer::new("ES256").jwk("k");
    let parse = |keys: &[Value]| KeySet::parse(json!({"keys": keys}).to_string().as_bytes());
    let with = |name: &str, value: &str| {
        let mut key = key.clone();
        key[name] = value.into();
        key
    };
    for unusable in [
        with("use", "enc"),
        with("kty", "oct"),
        with("crv", "P-521"),
        with("x", "AA"),
        with("y", "*"),
        json!({"kty": "RSA", "n": "", "e": "AQAB"}),
        json!({"kty": "oct", "k": "AAAA"}),
        json!({}),
    ] {
        assert_eq!(parse(std::slice::from_ref(&unusable)).unwrap_err(), KeySetError::NoKeys, "{unusable}");
        assert_eq!(parse(&[unusable, key.clone()]).unwrap().keys.len(), 1);
    }
    assert_eq!(parse(&vec![key.clone(); KEYS_MAX]).unwrap().keys.len(), KEYS_MAX);
    assert_eq!(parse(&vec![key; KEYS_MAX + 1]).unwrap_err(), KeySetError::TooMany(KEYS_MAX + 1));
    assert_eq!(KeySet::parse(b"{}").unwrap_err(), KeySetError::NoSet);
    assert_eq!(KeySet::parse(b"-----BEGIN").unwrap_err(), KeySetError::NoSet);
}
