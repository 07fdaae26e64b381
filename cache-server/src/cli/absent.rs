//! Flags that this program lacks: removed ones, and those of features that are not built in.

use clap::error::{ContextKind, ContextValue};

const POLICY: &str = "the authorization policy (ABAC) was removed; use --authorization rbac with roles and bindings, \
                      such as manifests of --load";

/// Beginnings of flags, each with the reason of its absence; `None` if the program has the flag.
const ABSENT: [(&str, Option<&str>); 6] = [
    ("--authorization-policy-file", Some(POLICY)),
    ("--data-dir", unless(cfg!(feature = "durable"), "--data-dir needs a build with the feature durable")),
    ("--etcd-endpoints", unless(cfg!(feature = "etcd"), "--etcd-endpoints needs a build with the feature etcd")),
    ("--load", unless(cfg!(feature = "embedded"), "--load needs a build with the feature embedded")),
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
