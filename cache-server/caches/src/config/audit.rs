//! Settings of the audit log.

use std::path::PathBuf;

use access_rules::audit::policy::AuditPolicy;

use crate::limits;

/// File, rotation and policy of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// File to write, with mode 0600. `None`: stdout.
    pub file: Option<PathBuf>,
    /// Rules that choose what is recorded. Default: every request, without bodies.
    pub policy: AuditPolicy,
    /// Bytes of the file before it is renamed and a new one begins; 0: never. Default [`limits::AUDIT_FILE_BYTES`].
    pub file_bytes_max: u64,
    /// Renamed files that are kept; 0: all. Default [`limits::AUDIT_BACKUPS`].
    pub backups_max: usize,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file: None,
            policy: AuditPolicy::metadata(),
            file_bytes_max: limits::AUDIT_FILE_BYTES,
            backups_max: limits::AUDIT_BACKUPS,
        }
    }
}
