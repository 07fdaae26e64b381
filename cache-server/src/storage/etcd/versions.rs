//! Finds out whether all members answer requests for a watch's position reliably, and reports their alarms.
//!
//! Versions before 3.4.31 and 3.5.13 may tell a position before they have sent the changes up to it.
//!
//! Source: `pkg/storage/feature/feature_support_checker.go` of kubernetes/apiserver; etcd-io/etcd#17557.

use std::{sync::Weak, time::Duration};

use tokio::time::sleep;

use super::{client::EtcdClient, messages::StatusResponse};

/// Checks the members that answer.
pub(super) async fn check(client: &EtcdClient) {
    let mut known = 0;
    let mut is_safe = true;
    for (member, status) in client.status().await.into_iter().enumerate() {
        let address = client.address(member);
        match status {
            Ok(StatusResponse { version, errors, .. }) => {
                known += 1;
                if !is_reliable(&version) {
                    is_safe = false;
                    tracing::warn!(address, version, "etcd too old for progress requests: keys are compared instead");
                }
                for error in errors {
                    tracing::error!(address, error, "etcd alarm raised");
                }
            }
            Err(error) => tracing::warn!(address, %error, "etcd member not reached"),
        }
    }
    if known > 0 {
        client.set_tells_progress(is_safe);
    }
}

/// Checks the members again and again, since they may be upgraded or replaced, until the client is dropped.
pub(super) async fn keep_checking(client: Weak<EtcdClient>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let Some(client) = client.upgrade() else { return };
        check(&client).await;
    }
}

/// True if a member of this version sends all changes up to a position before the position.
fn is_reliable(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().flatten();
    match (next(), next(), next()) {
        (Some(3), Some(..=3), _) => false,
        (Some(3), Some(4), Some(patch)) => patch >= 31,
        (Some(3), Some(5), Some(patch)) => patch >= 13,
        (Some(major), Some(_), Some(_)) => major >= 3,
        _ => false,
    }
}

/// Pause between two checks. Each is one short request to each member.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_repairs_are_not_reliable() {
        for (version, expected) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("3.6.13", true),
            ("3.7.0", true),
            ("4.0.0", true),
            ("2.3.8", false),
            ("", false),
            ("next", false),
        ] {
            assert_eq!(is_reliable(version), expected, "{version}");
        }
    }
}
