//! Flags of `cache-server serve` for authorization.

use clap::Args;

use super::COMMON;
use crate::config::{AuthorizationConfig, AuthorizationMode};

/// Flags that say what callers may do.
#[derive(Debug, Args)]
pub(super) struct AuthorizationFlags {
    /// Authorizers that are asked in order; one that allows a request is enough. rbac: roles and bindings, stored in this
    /// server or followed from the upstream; node: nodes read their own pods, and what these refer to; upstream: the
    /// upstream, by the callers' credentials. Members of system:masters may do everything. Left out: upstream with
    /// --upstream, else always-allow.
    #[arg(
        long, env = "CACHE_SERVER_AUTHORIZATION", value_name = "MODE,…", value_enum, value_delimiter = ',',
        help_heading = COMMON, display_order = 9
    )]
    authorization: Vec<AuthorizationMode>,
}

impl AuthorizationFlags {
    pub(super) fn into_config(self) -> AuthorizationConfig {
        AuthorizationConfig { modes: self.authorization }
    }
}
