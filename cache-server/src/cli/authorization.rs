//! Flags of `cache-server serve` for authorization.

use std::path::PathBuf;

use clap::Args;

use crate::config::{AuthorizationConfig, AuthorizationMode};

/// Flags that say what callers may do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization")]
pub(super) struct AuthorizationFlags {
    /// Authorizers that are asked in order; one that allows a request is enough. rbac: roles and bindings, stored in this
    /// server or followed from the upstream; node: nodes read their own pods, and what these refer to; policy: the file of
    /// --authorization-policy-file; upstream: the upstream, by the callers' credentials. Members of system:masters may do
    /// everything. Left out: upstream with --upstream, else always-allow.
    #[arg(long, env = "CACHE_SERVER_AUTHORIZATION", value_name = "MODE,…", value_enum, value_delimiter = ',')]
    authorization: Vec<AuthorizationMode>,

    /// File of policies, one JSON object per line: Kubernetes' ABAC v1beta1. Read again when it changes. Left out: none.
    #[arg(long, env = "CACHE_SERVER_AUTHORIZATION_POLICY_FILE", value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
}

impl AuthorizationFlags {
    pub(super) fn into_config(self) -> AuthorizationConfig {
        AuthorizationConfig { modes: self.authorization, policy_file: self.authorization_policy_file }
    }
}
