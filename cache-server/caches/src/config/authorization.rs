//! Settings of authorization.

/// The authorizers, in the order of their decisions. A request passes if one of them allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// The authorizers. Default: none, and every caller may do everything; in front of an API server,
    /// [`AuthorizationMode::Upstream`].
    pub modes: Vec<AuthorizationMode>,
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
    /// The API server behind this server decides by the callers' own credentials.
    Upstream,
}

impl AuthorizationMode {
    /// Type of the authorizer in metrics, as in kube-apiserver.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::Upstream => "Upstream",
        }
    }
}

/// Reason why the settings of authorization cannot be used, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationConfigError {
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
        match (self.has(AuthorizationMode::Upstream), has_upstream) {
            (true, false) => Err(AuthorizationConfigError::NoUpstream),
            (true, true) if self.modes.len() > 1 => Err(AuthorizationConfigError::UpstreamIsNotAlone),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_errors() {
        use AuthorizationMode::{Node, Rbac, Upstream};
        let check = |modes: &[AuthorizationMode], has_upstream| {
            AuthorizationConfig { modes: modes.to_vec() }.check(has_upstream)
        };
        assert_eq!(check(&[], false), Ok(()));
        assert_eq!(check(&[Node, Rbac], true), Ok(()));
        assert_eq!(check(&[Upstream], true), Ok(()));
        assert_eq!(check(&[Upstream], false), Err(AuthorizationConfigError::NoUpstream));
        assert_eq!(check(&[Rbac, Upstream], true), Err(AuthorizationConfigError::UpstreamIsNotAlone));
    }
}
