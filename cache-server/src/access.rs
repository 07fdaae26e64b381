//! Access to the server: TLS or plain TCP.
//!
//! INVARIANT: the server authenticates no client yet, so it listens on loopback only, with or without TLS.

pub(crate) mod tls;

/// HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}
