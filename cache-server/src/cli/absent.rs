//! Flags that this program lacks: removed ones, and those of features that are not built in.
//!
//! INVARIANT: neither they nor their variables are ignored. A server without the policy that it was given, or with
//! objects in memory in place of etcd, would start and be wrong.

use clap::error::{ContextKind, ContextValue};

const POLICY: &str = "the authorization policy (ABAC) was removed; use --authorization rbac with roles and bindings, \
                      such as manifests of --load";

/// Beginnings of flags, each with the reason of its absence; `None` if the program has the flag.
const ABSENT: [(&str, Option<&str>); 8] = [
    ("--authorization-policy-file", Some(POLICY)),
    ("--data-dir", unless(cfg!(feature = "durable"), "--data-dir needs a build with the feature durable")),
    ("--etcd-endpoints", unless(cfg!(feature = "etcd"), "--etcd-endpoints needs a build with the feature etcd")),
    ("--forks", unless(cfg!(feature = "embedded"), "--forks needs a build with the feature embedded")),
    ("--load", unless(cfg!(feature = "embedded"), "--load needs a build with the feature embedded")),
    ("--otlp-endpoint", unless(cfg!(feature = "traces"), "--otlp-endpoint needs a build with the feature traces")),
    (
        "--populate",
        unless(
            cfg!(all(feature = "embedded", feature = "workload")),
            "--populate needs a build with the features embedded and workload",
        ),
    ),
    ("--upstream", unless(cfg!(feature = "upstream"), "--upstream needs a build with the feature upstream")),
];

const fn unless(is_there: bool, reason: &'static str) -> Option<&'static str> {
    if is_there { None } else { Some(reason) }
}

/// Returns the first variable of the environment that stands for an absent flag, with the reason. Other unknown
/// variables are not refused: Kubernetes sets `CACHE_SERVER_PORT` and more for a Service `cache-server`.
pub(super) fn variable() -> Option<String> {
    ABSENT.into_iter().find_map(|(flag, reason)| {
        let name = format!("CACHE_SERVER_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"));
        let is_set = std::env::var_os(&name).is_some_and(|value| !value.is_empty());
        reason.filter(|_| is_set).map(|reason| format!("{name}: {reason}"))
    })
}

/// Returns the reason why the flag or value that clap refused does not exist, if one is known.
pub(super) fn reason(error: &clap::Error) -> Option<&'static str> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let flag = text(ContextKind::InvalidArg);
    if flag.starts_with("--authorization ") && text(ContextKind::InvalidValue).starts_with("policy") {
        return Some(POLICY);
    }
    ABSENT.into_iter().find(|(absent, _)| flag.starts_with(absent)).and_then(|(_, reason)| reason)
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
            (&["--data-dir", "a", "--upstream", "b"], false),
        ] {
            let error = Arguments::try_parse_from([&["cache-server", "serve"], flags].concat()).unwrap_err();
            let reason = reason(&error);
            assert_eq!(reason.is_some_and(|line| line.contains("use --authorization rbac")), is_named, "{flags:?}");
        }
    }
}
