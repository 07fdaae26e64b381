//! Decides what a caller may do.

use access_rules::{request_info::RequestInfo, user::User};
use informer_serving::status::Status;
use tokio::sync::watch;

/// Decides about the requests of callers.
pub(crate) enum Authorizer {
    /// Every caller may do everything, or another server decides.
    AlwaysAllow,
}

impl Authorizer {
    /// Returns `Ok` if `user` may send the request.
    ///
    /// # Errors
    /// 403 if it may not; 5xx if that cannot be decided.
    pub(crate) async fn authorize(&self, _user: &User, _info: &RequestInfo) -> Result<(), Status> {
        match self {
            Self::AlwaysAllow => Ok(()),
        }
    }

    /// True if rights can be withdrawn.
    pub(crate) const fn checks_again(&self) -> bool {
        match self {
            Self::AlwaysAllow => false,
        }
    }

    /// Number of the policies' version, which changes with them; `None` if they never change, or without a notice.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Self::AlwaysAllow => None,
        }
    }
}
