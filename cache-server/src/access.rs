//! How clients reach the server: over TLS, or in the clear.
//!
//! INVARIANT: nobody is authenticated yet, so either way only this machine is served.

pub(crate) mod tls;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}
