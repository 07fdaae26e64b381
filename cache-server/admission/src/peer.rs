//! The other end of a connection.

use std::{fmt, net::SocketAddr, sync::Arc};

use access_rules::{authentication::certificate::CertificateError, user::User};

use super::authenticate::Caller;

/// The caller that a client's certificate names, or the reason why the names are unreadable.
pub type CertifiedCaller = Result<Arc<Caller>, CertificateError>;

/// Properties of a client that its connection shows, before any request.
#[derive(Default)]
pub struct Peer {
    /// Address of the client; `None` for a connection that is no network connection.
    pub address: Option<SocketAddr>,
    /// The client's certificate.
    pub certificate: Option<CertifiedCaller>,
    /// The caller at the other end of a Unix socket.
    local_user: Option<Arc<Caller>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Peer {
    /// A client of a TCP connection.
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { address: Some(address), certificate: None, local_user: None }
    }

    /// A process at the other end of a Unix socket: `unix:uid:1000` in the group `unix:gid:1000`.
    pub fn unix(uid: u32, gid: u32) -> Self {
        let user = User::authenticated(format!("unix:uid:{uid}"), [format!("unix:gid:{gid}")]);
        Self { address: None, certificate: None, local_user: Some(Caller::without_credentials(user)) }
    }

    /// The caller that the connection itself proves.
    pub const fn local_user(&self) -> Option<&Arc<Caller>> {
        self.local_user.as_ref()
    }

    /// True for a client on this machine.
    pub fn is_near(&self) -> bool {
        self.address.is_none_or(|address| address.ip().to_canonical().is_loopback())
    }
}
