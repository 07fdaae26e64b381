//! Bounds of the audit log.

use std::time::Duration;

/// Bytes of audit records that wait for the writer. Memory: twice this, for the records that are being written. Further
/// records are lost, and counted by `apiserver_audit_error_total`.
pub const AUDIT_QUEUE_BYTES_MAX: usize = 8 << 20;

/// Time a request waits while half of [`AUDIT_QUEUE_BYTES_MAX`] is in use. After one wait in vain none waits, until the
/// writer moves on.
pub const AUDIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of a body that an audit record holds, as kube-apiserver's `--audit-log-truncate-max-event-size`. Longer ones are
/// left out, and the record is annotated. Memory: both bodies of a request while it is answered.
pub const AUDIT_BODY_BYTES_MAX: usize = 100 << 10;

/// Bytes of the audit log before it is renamed. Flag: `--audit-log-maxsize`.
pub const AUDIT_FILE_BYTES: u64 = 100 << 20;

/// Renamed audit logs that are kept. Flag: `--audit-log-maxbackup`.
pub const AUDIT_BACKUPS: usize = 100;
