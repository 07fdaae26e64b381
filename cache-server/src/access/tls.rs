//! TLS: a certificate and its key from two PEM files, which are read again when they change.
//!
//! INVARIANT: a pair of files that cannot be used never replaces one that could; at the start it is an error.
//! INVARIANT: a handshake ends within [`TLS_HANDSHAKE_WAIT`], and what the client has not taken of it is at most
//! [`TLS_UNSENT_BYTES_MAX`].
//!
//! Clients come back with tickets that they keep themselves: nothing is remembered of those that left.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::{NoServerSessionStorage, ProducesTickets},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::Protocol;
use crate::{
    config::TlsFiles,
    limits::{TLS_HANDSHAKE_WAIT, TLS_RELOAD_EVERY, TLS_UNSENT_BYTES_MAX},
};

/// A stream that is encrypted on its way. Its state has more than a kilobyte: boxed, whatever holds a stream on the way
/// to its protocol has room for a pointer.
pub(crate) type TlsStream<S> = Box<tokio_rustls::server::TlsStream<S>>;

/// Why a certificate and its key cannot be used: one line.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it; nothing of the content itself.
        problem: &'static str,
    },
    /// Both files are well-formed, and still cannot be used together.
    #[error("{} with {}: {problem}", cert.display(), key.display())]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// Makes encrypted streams of accepted connections.
pub(crate) struct Acceptor {
    files: TlsFiles,
    /// Outlives the certificates, and so do the sessions that clients resume.
    tickets: Arc<dyn ProducesTickets>,
    current: Mutex<Current>,
}

/// What is used now.
struct Current {
    pem: Pem,
    acceptor: TlsAcceptor,
    /// When the files were looked at.
    looked: Instant,
}

/// The texts of both files.
#[derive(PartialEq, Eq)]
struct Pem {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Acceptor {
    /// Reads the files and checks them.
    ///
    /// # Errors
    /// [`TlsError`] says which file cannot be used, and why.
    pub(crate) async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let tickets = ring::Ticketer::new().map_err(|error| TlsError::Pair {
            cert: files.cert.clone(),
            key: files.key.clone(),
            problem: error.to_string(),
        })?;
        let pem = Pem::read(&files).await?;
        let acceptor = acceptor(&pem, &files, &tickets)?;
        Ok(Self { files, tickets, current: Mutex::new(Current { pem, acceptor, looked: Instant::now() }) })
    }

    /// The encrypted stream, and what is spoken on it. `wrap` makes of the connection what is written to.
    ///
    /// # Errors
    /// The client left, said nothing for [`TLS_HANDSHAKE_WAIT`], or cannot agree with us. One that speaks HTTP in the
    /// clear was told.
    pub(crate) async fn accept<S>(
        &self,
        stream: TcpStream,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<(TlsStream<S>, Protocol)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = async {
            let stream = refuse_plain(stream).await?;
            let limited = |session: &mut rustls::ServerConnection| {
                session.set_buffer_limit(Some(TLS_UNSENT_BYTES_MAX));
            };
            // Boxed: what a handshake needs is given back when it is over.
            Box::pin(self.current().await.accept_with(wrap(stream), limited)).await
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long");
        let stream = timeout(TLS_HANDSHAKE_WAIT, accepting).await.map_err(late)??;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(name) if name == HTTP2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok((Box::new(stream), protocol))
    }

    /// What is used now; one connection in [`TLS_RELOAD_EVERY`] looks at the files first.
    async fn current(&self) -> TlsAcceptor {
        let due = {
            let mut current = self.current.lock();
            let due = current.looked.elapsed() >= TLS_RELOAD_EVERY;
            if due {
                current.looked = Instant::now();
            }
            due
        };
        if due && let Err(error) = self.reload().await {
            tracing::warn!(%error, "the certificate stays as it was");
        }
        self.current.lock().acceptor.clone()
    }

    async fn reload(&self) -> Result<(), TlsError> {
        let pem = Pem::read(&self.files).await?;
        if self.current.lock().pem == pem {
            return Ok(());
        }
        let acceptor = acceptor(&pem, &self.files, &self.tickets)?;
        let mut current = self.current.lock();
        (current.pem, current.acceptor) = (pem, acceptor);
        drop(current);
        tracing::info!("new connections see another certificate");
        Ok(())
    }
}

impl Pem {
    async fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = async |path: &Path| {
            tokio::fs::read(path).await.map_err(|source| TlsError::Read { path: path.to_owned(), source })
        };
        Ok(Self { cert: read(&files.cert).await?, key: read(&files.key).await? })
    }
}

/// What clients call HTTP/2.
const HTTP2: &[u8] = b"h2";

/// What clients call HTTP/1.1.
const HTTP1: &[u8] = b"http/1.1";

fn acceptor(pem: &Pem, files: &TlsFiles, tickets: &Arc<dyn ProducesTickets>) -> Result<TlsAcceptor, TlsError> {
    let content = |path: &Path, problem| TlsError::Content { path: path.to_owned(), problem };
    let pair = |error: rustls::Error| TlsError::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        problem: if matches!(error, rustls::Error::InconsistentKeys(_)) {
            "the key is of another certificate".to_owned()
        } else {
            error.to_string()
        },
    };
    let chain = CertificateDer::pem_slice_iter(&pem.cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| content(&files.cert, problem(&error)))?;
    if chain.is_empty() {
        return Err(content(&files.cert, "there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| content(&files.key, problem(&error)))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    config.ticketer = Arc::clone(tickets);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config).into())
}

/// What is wrong with a PEM file. Its own text stays out of it: it may be a key.
fn problem(error: &pem::Error) -> &'static str {
    if matches!(error, pem::Error::NoItemsFound) {
        "there is no private key in it"
    } else {
        "it is not well-formed PEM"
    }
}

/// What a client gets that speaks HTTP in the clear, in the words of kube-apiserver.
const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// The stream, unless its client begins with a letter: TLS never does.
async fn refuse_plain(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    if count == 0 || !first[0].is_ascii_uppercase() {
        return Ok(stream);
    }
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // Closing before all is read would take the answer back.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks HTTP in the clear"))
}

#[cfg(test)]
mod tests;
