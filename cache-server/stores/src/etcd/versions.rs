//! Finds out which members answer requests for a watch's position reliably, and reports their alarms.
//!
//! Versions before 3.4.31 and 3.5.13 may tell a position before they have sent the changes up to it. A member that has
//! not answered yet may be one of them. It is asked for no position, and keys are compared instead.
//!
//! Source: `pkg/storage/feature/feature_support_checker.go` of kubernetes/apiserver; etcd-io/etcd#17557.

use std::{sync::Weak, time::Duration};

use tokio::time::sleep;

use super::{client::EtcdClient, messages::StatusResponse};

/// Checks all members.
pub(super) async fn check(client: &EtcdClient) {
    for (member, status) in client.members().iter().zip(client.status().await) {
        let address = &*member.address;
        match status {
            Ok(StatusResponse { version, errors, .. }) => {
                let is_reliable = is_reliable(&version);
                if member.note(Some(is_reliable)) && !is_reliable {
                    tracing::warn!(address, version, "etcd too old for progress requests: keys are compared instead");
                }
                for error in errors {
                    tracing::error!(address, error, "etcd alarm raised");
                }
            }
            Err(error) => {
                if member.note(None) {
                    tracing::warn!(address, %error, "etcd member not reached");
                }
            }
        }
    }
}

/// Checks the members again and again, since they may be upgraded or replaced, until the client is dropped.
pub(super) async fn keep_checking(client: Weak<EtcdClient>) {
    let mut pause = CHECK_INTERVAL;
    loop {
        sleep(pause).await;
        let Some(client) = client.upgrade() else { return };
        check(&client).await;
        pause = if client.has_silent_members() { CHECK_INTERVAL_SILENT } else { CHECK_INTERVAL };
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

/// Pause while a member does not answer: reads at it cost more until it has.
const CHECK_INTERVAL_SILENT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};
    use tonic::transport::Endpoint;

    use super::{super::client::EtcdMember, *};

    /// Goal: a member that has not answered is not believed, whatever others have answered. Method: one that accepts
    /// connections and is silent, beside one that was reliable before it fell silent.
    #[tokio::test]
    async fn a_silent_member_is_not_reliable_until_it_has_answered() {
        let (silent, broken) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let listeners = [silent.expect("a port"), broken.expect("a port")];
        let members = listeners.each_ref().map(|listener| {
            let address = format!("http://{}", listener.local_addr().expect("is bound"));
            let channel = Endpoint::from_shared(address.clone()).expect("a URL").connect_lazy();
            EtcdMember::new(address, channel)
        });
        members[1].note(Some(true));
        let [_silent, broken] = listeners;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = broken.accept().await {
                let _ = stream.write_all(b"no HTTP/2").await;
            }
        });
        let client = EtcdClient::new(members.into(), None);
        check(&client).await;
        assert!(client.has_silent_members());
        assert_eq!([0, 1].map(|member| client.tells_progress(member)), [false, true]);
        assert!(client.members()[0].note(Some(true)), "its answer is news");
        assert!(client.tells_progress(0));
        assert!(client.members()[0].note(Some(false)), "it was replaced by an old one");
        assert!(!client.tells_progress(0));
    }

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
