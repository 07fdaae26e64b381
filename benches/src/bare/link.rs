//! A socket, in the clear or with TLS.

use std::{
    io::{self, Read as _, Write as _},
    sync::Arc,
};

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

/// Bytes that rustls encrypts at once, as four records.
const BATCH_BYTES: usize = 64 << 10;

/// A socket that never blocks.
pub(super) struct Link {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl Link {
    pub(super) fn new(socket: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let tls = tls.map(ServerConnection::new).transpose().map_err(io::Error::other)?;
        Ok(Self { socket, tls: tls.map(Box::new) })
    }

    /// Reads bytes; `None` if there are none yet, and 0 at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return some(self.socket.read(into)) };
        loop {
            if let Some(read) = some(tls.reader().read(into))? {
                return Ok(Some(read));
            }
            match some(tls.read_tls(&mut self.socket))? {
                None => return Ok(None),
                Some(0) => return Ok(Some(0)),
                Some(_) => {}
            }
            tls.process_new_packets().map_err(io::Error::other)?;
            flush(tls, &mut self.socket)?;
        }
    }

    /// True if a read of so many bytes, of those asked for, had all that was there: the socket tells when it has more.
    pub(super) const fn is_drained(&self, read: usize, asked: usize) -> bool {
        self.tls.is_none() && read < asked
    }

    /// Writes bytes. Returns how many were taken, which may wait encrypted until [`flush`](Self::flush).
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(some(self.socket.write(bytes))?.unwrap_or(0)) };
        if !flush(tls, &mut self.socket)? {
            return Ok(0);
        }
        let taken = tls.writer().write(&bytes[..bytes.len().min(BATCH_BYTES)])?;
        flush(tls, &mut self.socket)?;
        Ok(taken)
    }

    /// Writes encrypted bytes that wait.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| flush(tls, &mut self.socket).map(drop))
    }
}

/// Writes what is encrypted. False if the socket does not take all of it.
fn flush(tls: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<bool> {
    while tls.wants_write() {
        if some(tls.write_tls(socket))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A number of bytes, or `None` if the socket is not ready.
fn some(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
