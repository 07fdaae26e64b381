//! Settings of authorization.

use std::path::PathBuf;

/// Authorizers that are asked in order. A request passes if one of them allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// The authorizers. Default: none, and every caller may do everything; in front of an API server,
    /// [`AuthorizationMode::Upstream`].
    pub modes: Vec<AuthorizationMode>,
    /// Policies of [`AuthorizationMode::Policy`]: Kubernetes' ABAC v1beta1, one JSON object per line. Read again as it
    /// changes. Default none.
    pub policy_file: Option<PathBuf>,
}

/// An authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum AuthorizationMode {
    /// Allows everything.
    AlwaysAllow,
    /// Lets nodes read their own pods, and what these refer to.
    Node,
    /// Roles and bindings.
    Rbac,
    /// The policies of a file.
    Policy,
    /// The API server behind this server decides by the callers' own credentials.
    Upstream,
}

/// Reason why the settings of authorization cannot be used, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationConfigError {
    /// The policies have no file.
    #[error("the authorization policy needs --authorization-policy-file")]
    NoPolicyFile,
    /// The file would not be used.
    #[error("--authorization-policy-file needs the authorization policy")]
    UnusedPolicyFile,
    /// There is no API server to leave decisions to.
    #[error("the authorization upstream needs --upstream")]
    NoUpstream,
    /// The API server decides by itself.
    #[error("the authorization upstream cannot be combined with others")]
    UpstreamIsNotAlone,
}

impl AuthorizationConfig {
    /// True if `mode` is among the authorizers.
    #[must_use]
    pub fn has(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns an error if the settings contradict each other.
    ///
    /// # Errors
    /// [`AuthorizationConfigError`].
    pub fn check(&self, has_upstream: bool) -> Result<(), AuthorizationConfigError> {
        let leaves = self.has(AuthorizationMode::Upstream);
        match (self.has(AuthorizationMode::Policy), self.policy_file.is_some()) {
            (true, false) => Err(AuthorizationConfigError::NoPolicyFile),
            (false, true) => Err(AuthorizationConfigError::UnusedPolicyFile),
            _ if leaves && !has_upstream => Err(AuthorizationConfigError::NoUpstream),
            _ if leaves && self.modes.len() > 1 => Err(AuthorizationConfigError::UpstreamIsNotAlone),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_errors() {
        use AuthorizationMode::{Node, Policy, Rbac, Upstream};
        let check = |modes: &[AuthorizationMode], file: Option<&str>, has_upstream| {
            let config = AuthorizationConfig { modes: modes.to_vec(), policy_file: file.map(PathBuf::from) };
            config.check(has_upstream)
        };
        assert_eq!(check(&[], None, false), Ok(()));
        assert_eq!(check(&[Node, Rbac], None, true), Ok(()));
        assert_eq!(check(&[Policy], Some("file"), false), Ok(()));
        assert_eq!(check(&[Upstream], None, true), Ok(()));
        assert_eq!(check(&[Policy], None, false), Err(AuthorizationConfigError::NoPolicyFile));
        assert_eq!(check(&[Rbac], Some("file"), false), Err(AuthorizationConfigError::UnusedPolicyFile));
        assert_eq!(check(&[Upstream], None, false), Err(AuthorizationConfigError::NoUpstream));
        assert_eq!(check(&[Rbac, Upstream], None, true), Err(AuthorizationConfigError::UpstreamIsNotAlone));
    }
}
