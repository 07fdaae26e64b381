//! Finds out who sends a request.

use std::sync::Arc;

use access_rules::user::User;
use http::HeaderMap;
use informer_serving::status::Status;
use tokio::time::Instant;

use super::peer::Peer;

/// The sender of a request.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Its identity, after an impersonation that of the impersonated user.
    pub(crate) user: User,
    /// Time at which its credentials expire.
    pub(crate) expires: Option<Instant>,
}

/// Finds out who sends a request.
pub(crate) enum Authenticator {
    /// Credentials are not read: every caller is the same user.
    Unsecured(Arc<Caller>),
}

impl Authenticator {
    /// Reads no credentials.
    pub(crate) fn unsecured() -> Self {
        Self::Unsecured(Arc::new(Caller { user: User::unsecured(), expires: None }))
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// 401 for credentials that are not valid.
    pub(crate) async fn authenticate(&self, _peer: &Peer, _headers: &HeaderMap) -> Result<Arc<Caller>, Status> {
        match self {
            Self::Unsecured(caller) => Ok(Arc::clone(caller)),
        }
    }

    /// Returns `Ok` if the credentials of a caller are still valid.
    ///
    /// # Errors
    /// 401 if they are not.
    pub(crate) async fn confirm(&self, _caller: &Caller) -> Result<(), Status> {
        match self {
            Self::Unsecured(_) => Ok(()),
        }
    }

    /// True if credentials can become invalid before they expire.
    pub(crate) const fn checks_again(&self) -> bool {
        match self {
            Self::Unsecured(_) => false,
        }
    }
}
