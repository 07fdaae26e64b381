//! Flags of `cache-server serve` for authorization.

use clap::{
    Args,
    error::{ContextKind, ContextValue},
};

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

/// Returns what replaces the flag or value that clap refused, if an earlier version had it.
pub(super) fn replacement(error: &clap::Error) -> Option<&'static str> {
    let is = |kind, prefix: &str| match error.get(kind) {
        Some(ContextValue::String(text)) => text.starts_with(prefix),
        _ => false,
    };
    let is_policy = is(ContextKind::InvalidArg, "--authorization ") && is(ContextKind::InvalidValue, "policy");
    (is_policy || is(ContextKind::InvalidArg, "--authorization-policy-file")).then_some(
        "the authorization policy (ABAC) was removed; use --authorization rbac with roles and bindings, such as manifests \
         of --load",
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Arguments;

    /// Goal: who had a policy file learns what to use instead. Method: both of its flags, and one that never was.
    #[test]
    fn a_removed_flag_names_its_replacement() {
        for (flags, is_named) in [
            (&["--authorization", "policy"][..], true),
            (&["--authorization=rbac,policy"], true),
            (&["--authorization-policy-file", "policies.jsonl"], true),
            (&["--authorization-policy-file=policies.jsonl"], true),
            (&["--authorization", "abac"], false),
            (&["--log", "="], false),
        ] {
            let error = Arguments::try_parse_from([&["cache-server", "serve"], flags].concat()).unwrap_err();
            let replacement = replacement(&error);
            assert_eq!(
                replacement.is_some_and(|line| line.contains("use --authorization rbac")),
                is_named,
                "{flags:?}"
            );
        }
    }
}
