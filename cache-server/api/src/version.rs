//! The Kubernetes version whose behaviour these rules follow.

/// Its major version.
pub const MAJOR: &str = "1";
/// Its minor version.
pub const MINOR: &str = "36";

/// Version reported to clients, such as `v1.36.0`.
pub fn git_version() -> String {
    format!("v{MAJOR}.{MINOR}.0")
}
