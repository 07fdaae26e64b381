//! Connections that changed their protocol (exec, attach, port-forward): bytes are copied to the upstream and back.
//!
//! INVARIANT: each direction holds at most [`TUNNEL_BYTES`]; a side that does not read stops the other. INVARIANT: the end
//! of one direction is passed on, and leaves the other direction open. A failure of either side resets the client.
//!
//! There is no time limit: a session may be silent, and its client may pause, for as long as both sides want. Only a watch
//! ends once its caller lost the right to it.

use std::io;

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional_with_sizes};

use crate::{handler::Handler, limits::TUNNEL_BYTES, phase::ConnectionPhase, socket::Socket, takeover::head};

/// Sends the head of `response` on `stream`, of which `read` was already read, and copies until both sides have ended.
/// The connection ends with it.
pub fn copying<S: Socket, H: Handler>(mut stream: S, read: Bytes, response: Response<H::Body>) -> ConnectionPhase {
    let (parts, body) = response.into_parts();
    let term = H::term(&body);
    ConnectionPhase::new(async move {
        let Some((mut upstream, held)) = H::into_tunnel(body) else { return Ok(None) };
        stream.lift_stall_limit();
        let copying = async {
            stream.write_all(&head::switching(&parts)).await?;
            stream.flush().await?;
            // Clients may send data of the new protocol along with their request.
            upstream.write_all(&read).await?;
            // Not needed for the hours that a session may last.
            drop((parts, read));
            copy_bidirectional_with_sizes(&mut stream, &mut upstream, TUNNEL_BYTES, TUNNEL_BYTES).await
        };
        let over = async {
            match term {
                Some(term) => term.over().await,
                None => std::future::pending().await,
            }
        };
        let copied = tokio::select! {
            copied = copying => copied,
            () = over => Err(io::Error::other("the right to the watch was withdrawn")),
        };
        match copied {
            Ok((sent, received)) => tracing::debug!(sent, received, "tunnel closed"),
            Err(error) => {
                tracing::debug!(%error, "tunnel broken");
                stream.reset_on_close();
            }
        }
        drop(held);
        Ok(None)
    })
}

#[cfg(test)]
mod tests;
