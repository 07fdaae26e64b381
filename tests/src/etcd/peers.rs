//! The network between the members of a cluster: a relay in front of each member's port for its peers.
//!
//! A member names its own address in the head of each connection that it opens. So a member that is cut off neither
//! reaches the others nor is reached by them.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

use crate::relay::pass;

/// Header with the address of the member that opens a connection, in lower case.
const ADDRESS_HEADER: &str = "x-peerurls:";
/// Largest head that is read, in bytes. Those of etcd have 500.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Pause between two looks at an incomplete head.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// The network. It lives as long as the runtime.
pub(super) struct PeerNetwork {
    advertised: Vec<SocketAddr>,
    /// Members that are cut off.
    parted: watch::Sender<BTreeSet<usize>>,
}

impl PeerNetwork {
    /// Opens a relay to each of several members. A single member has no peers and needs none.
    pub(super) async fn start(members: &[SocketAddr]) -> Self {
        let parted = watch::Sender::default();
        if let [_] = members {
            return Self { advertised: members.to_vec(), parted };
        }
        let (mut listeners, mut advertised) = (Vec::new(), Vec::new());
        for _ in members {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            advertised.push(listener.local_addr().unwrap());
            listeners.push(listener);
        }
        for (to, (listener, &member)) in listeners.into_iter().zip(members).enumerate() {
            let (parted, advertised) = (parted.subscribe(), advertised.clone());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, to, member, advertised.clone(), parted.clone()));
                }
            });
        }
        Self { advertised, parted }
    }

    /// Addresses under which the members reach each other.
    pub(super) fn advertised(&self) -> &[SocketAddr] {
        &self.advertised
    }

    /// Stops all bytes from and to a member. No connection ends.
    pub(super) fn part(&self, member: usize) {
        self.parted.send_if_modified(|parted| parted.insert(member));
    }

    /// Lets all bytes pass again.
    pub(super) fn rejoin(&self) {
        self.parted.send_modify(BTreeSet::clear);
    }
}

/// Serves one connection to the member `to`.
async fn serve(
    mut client: TcpStream,
    to: usize,
    member: SocketAddr,
    advertised: Vec<SocketAddr>,
    mut parted: watch::Receiver<BTreeSet<usize>>,
) {
    let Some(head) = head(&client).await else { return };
    let from = sender(&head, &advertised);
    let is_passing =
        |parted: &BTreeSet<usize>| !parted.contains(&to) && from.is_none_or(|from| !parted.contains(&from));
    if parted.wait_for(is_passing).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(member).await else { return };
    // Its error is the members' to notice.
    let _ = pass(&mut client, &mut server, &parted, is_passing).await;
}

/// Reads the head of the first request, and leaves it to be read again. `None` if the connection ends before.
async fn head(client: &TcpStream) -> Option<String> {
    let mut bytes = vec![0; HEAD_BYTES_MAX];
    loop {
        let count = client.peek(&mut bytes).await.ok().filter(|&count| count > 0)?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        if text.contains("\r\n\r\n") || count == HEAD_BYTES_MAX {
            return Some(text.to_lowercase());
        }
        // The kernel reports the bytes that were seen as readable again.
        sleep(CHECK_EVERY).await;
    }
}

/// The member that sent a head. Requests for the version of a member have no sender.
fn sender(head: &str, advertised: &[SocketAddr]) -> Option<usize> {
    let urls = head.lines().find_map(|line| line.strip_prefix(ADDRESS_HEADER))?;
    advertised.iter().position(|address| urls.trim() == format!("http://{address}"))
}
