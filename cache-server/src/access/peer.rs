//! The other end of a connection.

use std::net::SocketAddr;

/// Properties of a client that its connection shows, before any request.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Address of the client; `None` for a connection that is no network connection.
    pub(crate) address: Option<SocketAddr>,
}

impl Peer {
    /// A client of a TCP connection.
    pub(crate) const fn tcp(address: SocketAddr) -> Self {
        Self { address: Some(address) }
    }
}
