//! Keys of questions: keyed hashes of credentials and attributes.
//!
//! INVARIANT: every part is hashed with its length, so that different questions never have equal inputs.

use access_rules::{request_info::RequestInfo, user::User};
use http::HeaderMap;
use ring::{hmac, rand::SystemRandom};

/// HMAC-SHA-256 of a question. Without the key of the process it reveals no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey([u8; 32]);

/// Makes the keys of one process.
pub struct KeyMaker(hmac::Key);

impl KeyMaker {
    /// Draws a random key.
    pub fn random() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the operating system has random bytes"))
    }

    /// Returns the key of a read by a caller. Cost: one hash of both, some microseconds.
    pub fn question(&self, credentials: &HeaderMap, read: &RequestInfo) -> QuestionKey {
        let mut hash = self.hash_of(b"read", credentials);
        for part in parts(read) {
            add(&mut hash, part.as_bytes());
        }
        finish(hash)
    }

    /// Returns the key of a caller.
    pub fn caller(&self, credentials: &HeaderMap) -> QuestionKey {
        finish(self.hash_of(b"caller", credentials))
    }

    /// Returns the key of a bearer token.
    pub fn token(&self, token: &str) -> QuestionKey {
        let mut hash = hmac::Context::with_key(&self.0);
        add(&mut hash, b"token");
        add(&mut hash, token.as_bytes());
        finish(hash)
    }

    /// Returns the key of a user's right to `info`.
    pub fn subject(&self, user: &User, info: &RequestInfo) -> QuestionKey {
        let mut hash = hmac::Context::with_key(&self.0);
        add(&mut hash, b"subject");
        for text in [&user.name, &user.uid] {
            add(&mut hash, text.as_bytes());
        }
        add_all(&mut hash, &user.groups);
        add(&mut hash, &user.extra.len().to_be_bytes());
        for (key, values) in &user.extra {
            add(&mut hash, key.as_bytes());
            add_all(&mut hash, values);
        }
        for part in parts(info) {
            add(&mut hash, part.as_bytes());
        }
        finish(hash)
    }

    fn hash_of(&self, purpose: &[u8], credentials: &HeaderMap) -> hmac::Context {
        let mut hash = hmac::Context::with_key(&self.0);
        add(&mut hash, purpose);
        // The order of values with one name counts, the order of names does not.
        let mut headers: Vec<(&str, &[u8])> =
            credentials.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_by_key(|(name, _)| *name);
        add(&mut hash, &headers.len().to_be_bytes());
        for (name, value) in headers {
            add(&mut hash, name.as_bytes());
            add(&mut hash, value);
        }
        hash
    }
}

/// All attributes of a read as texts, in a fixed order.
fn parts(read: &RequestInfo) -> Vec<&str> {
    let Some(of) = &read.resource else { return vec![&read.verb, &read.path] };
    vec![
        &read.verb,
        &of.group,
        &of.version,
        &of.resource,
        &of.subresource,
        &of.namespace,
        &of.name,
        &of.field_selector.raw_selector,
        &of.label_selector.raw_selector,
    ]
}

fn add_all(hash: &mut hmac::Context, texts: &[String]) {
    add(hash, &texts.len().to_be_bytes());
    for text in texts {
        add(hash, text.as_bytes());
    }
}

fn add(hash: &mut hmac::Context, part: &[u8]) {
    hash.update(&part.len().to_be_bytes());
    hash.update(part);
}

fn finish(hash: hmac::Context) -> QuestionKey {
    let mut key = [0; 32];
    key.copy_from_slice(hash.sign().as_ref());
    QuestionKey(key)
}
