//! Public keys of token issuers: from a file, or fetched and fetched again as they change.
//!
//! INVARIANT: fetches are at least [`JWKS_FETCH_PAUSE`] apart and one at a time, whatever key ids tokens name. INVARIANT:
//! an answer that is late, long or unusable replaces nothing.

use std::sync::Arc;

use access_rules::authentication::{
    certificate,
    signed_token::{KeySet, SignedTokenError, UnverifiedToken},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::pki_types::{
    PrivateKeyDer,
    pem::{PemObject as _, SectionKind},
};
use tokio::time::{Instant, timeout};

use super::signer;
use crate::{
    limits::{JWKS_AGE, JWKS_FETCH_PAUSE, JWKS_WAIT},
    watched::WatchedFile,
};

/// Fetches the document with the keys of one issuer, within a bound of its length.
pub trait FetchKeys: Send + Sync {
    /// Returns the JSON Web Key Set.
    ///
    /// # Errors
    /// The reason in one line, for the log.
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, String>>;
}

/// The public keys of one issuer.
pub enum IssuerKeys {
    /// Keys in a file.
    File(WatchedFile<KeySet>),
    /// Keys of a server.
    Fetched(Arc<FetchedKeys>),
}

/// Error of a verification.
#[derive(Debug)]
pub enum VerifyError {
    /// The token is not valid.
    Invalid(SignedTokenError),
    /// There are no keys, so the token may be valid.
    NoKeys,
}

impl IssuerKeys {
    /// Verifies the signature, and passes the payload to `read`. Fetches the keys again if the token names an unknown one.
    ///
    /// # Errors
    /// [`VerifyError`]
    pub async fn verify<T>(
        &self,
        token: &UnverifiedToken<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, SignedTokenError>,
    ) -> Result<T, VerifyError> {
        let verified = match self {
            Self::File(file) => file.current().0.verify(token),
            Self::Fetched(fetched) => match fetched.current().await.ok_or(VerifyError::NoKeys)?.verify(token) {
                Err(SignedTokenError::UnknownKey) => fetched.newer().await.ok_or(VerifyError::NoKeys)?.verify(token),
                verified => verified,
            },
        };
        verified.and_then(read).map_err(VerifyError::Invalid)
    }
}

/// Parses a file of keys: a JSON Web Key Set; or keys and certificates in PEM, in which private keys stand for their public
/// ones.
pub fn parse(document: &[u8]) -> Result<KeySet, String> {
    let blocks: Vec<_> = PemBlock::pem_slice_iter(document).filter_map(Result::ok).collect();
    let keys = if blocks.is_empty() {
        KeySet::parse(document)
    } else {
        let keys: Vec<Vec<u8>> = blocks.into_iter().filter_map(public_key).collect();
        KeySet::of_public_keys(keys.iter().map(Vec::as_slice))
    };
    keys.map_err(|error| error.to_string())
}

type PemBlock = (SectionKind, Vec<u8>);

fn public_key((kind, content): PemBlock) -> Option<Vec<u8>> {
    match kind {
        SectionKind::PublicKey => Some(content),
        SectionKind::Certificate => certificate::public_key(&content).ok(),
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
            signer::public_key(&PrivateKeyDer::from_pem(kind, content)?)
        }
        SectionKind::Crl | SectionKind::Csr | SectionKind::EchConfigList | _ => None,
    }
}

/// Keys that are fetched when they are needed first, when they are old, and for unknown key ids.
pub struct FetchedKeys {
    source: Box<dyn FetchKeys>,
    /// Name of the source for the log.
    name: String,
    state: Mutex<FetchedState>,
    /// Held by the task that fetches, so that others wait for it.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct FetchedState {
    keys: Option<Arc<KeySet>>,
    /// Start of the last fetch.
    tried: Option<Instant>,
    /// Start of the last fetch that succeeded.
    fetched: Option<Instant>,
}

impl FetchedKeys {
    /// Starts without keys. `name` is the source in the log.
    pub fn new(source: Box<dyn FetchKeys>, name: String) -> Arc<Self> {
        Arc::new(Self { source, name, state: Mutex::default(), fetching: tokio::sync::Mutex::default() })
    }

    /// Returns the keys; fetches them if there are none. Old ones are fetched again in the background.
    async fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let (keys, is_old) = {
            let state = self.state.lock();
            let is_old = state.fetched.is_none_or(|fetched| fetched.elapsed() >= JWKS_AGE);
            (state.keys.clone(), is_old && state.may_fetch())
        };
        match keys {
            Some(keys) => {
                if is_old {
                    tokio::spawn(Arc::clone(self).fetch());
                }
                Some(keys)
            }
            None => self.newer().await,
        }
    }

    /// Fetches the keys, unless that was tried less than [`JWKS_FETCH_PAUSE`] ago, and returns the newest ones.
    async fn newer(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        // A task of its own: callers that leave must not end the fetch that others wait for.
        let _ = tokio::spawn(Arc::clone(self).fetch()).await;
        self.state.lock().keys.clone()
    }

    async fn fetch(self: Arc<Self>) {
        if !self.state.lock().may_fetch() && self.fetching.try_lock().is_ok() {
            return;
        }
        let _fetching = self.fetching.lock().await;
        let began = Instant::now();
        {
            let mut state = self.state.lock();
            // Another task may have fetched them meanwhile.
            if !state.may_fetch() {
                return;
            }
            state.tried = Some(began);
        }
        let fetched = match timeout(JWKS_WAIT, self.source.fetch()).await {
            Ok(fetched) => fetched.and_then(|document| parse(&document)),
            Err(_) => Err("no answer came in time".to_owned()),
        };
        match fetched {
            Ok(keys) => {
                let mut state = self.state.lock();
                (state.keys, state.fetched) = (Some(Arc::new(keys)), Some(began));
                drop(state);
                tracing::debug!(source = self.name, "token keys fetched");
            }
            Err(problem) => tracing::warn!(source = self.name, problem, "token keys fetch failed"),
        }
    }
}

impl FetchedState {
    fn may_fetch(&self) -> bool {
        self.tried.is_none_or(|tried| tried.elapsed() >= JWKS_FETCH_PAUSE)
    }
}
