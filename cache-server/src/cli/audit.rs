//! Flags of `cache-server serve` for the audit log.

use std::{
    fs,
    path::{Path, PathBuf},
};

use access_rules::audit::policy::AuditPolicy;
use clap::Args;

use crate::config::AuditConfig;

/// Flags that record requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit log")]
pub(super) struct AuditFlags {
    /// File for a record of each request, one line of JSON for each stage, as kube-apiserver's --audit-log-path; created
    /// with mode 0600. -: stdout. Left out: requests are not recorded.
    #[arg(long, env = "CACHE_SERVER_AUDIT_LOG", value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// Policy (audit.k8s.io/v1, YAML or JSON) that chooses what is recorded. Bodies of Secrets and tokens never are. Left
    /// out: every request, without bodies.
    #[arg(long, env = "CACHE_SERVER_AUDIT_POLICY_FILE", value_name = "FILE", requires = "audit_log", value_parser = policy)]
    audit_policy_file: Option<AuditPolicy>,

    /// MiB of the file before it is renamed and a new one begins. 0: never.
    #[arg(
        long,
        env = "CACHE_SERVER_AUDIT_LOG_MAXSIZE",
        value_name = "MIB",
        default_value_t = 100,
        requires = "audit_log"
    )]
    audit_log_maxsize: u32,

    /// Renamed files that are kept; the oldest are deleted. 0: all.
    #[arg(
        long,
        env = "CACHE_SERVER_AUDIT_LOG_MAXBACKUP",
        value_name = "N",
        default_value_t = 100,
        requires = "audit_log"
    )]
    audit_log_maxbackup: usize,
}

/// Reads the policy of a file.
fn policy(path: &str) -> Result<AuditPolicy, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    AuditPolicy::parse(&text).map_err(|error| error.to_string())
}

impl AuditFlags {
    /// Returns the settings; `None` if requests are not recorded.
    pub(super) fn into_config(self) -> Option<AuditConfig> {
        let file = self.audit_log?;
        let usual = AuditConfig::default();
        Some(AuditConfig {
            file: (file != Path::new("-")).then_some(file),
            policy: self.audit_policy_file.unwrap_or(usual.policy),
            file_bytes_max: u64::from(self.audit_log_maxsize) << 20,
            backups_max: self.audit_log_maxbackup,
        })
    }
}
