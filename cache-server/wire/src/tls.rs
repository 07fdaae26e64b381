//! TLS from two PEM files, a certificate chain and its key, which are reloaded when they change. Clients may show a
//! certificate of their own, if there are authorities for them.
//!
//! INVARIANT: an unusable pair of files never replaces a working one; at start it is an error.
//! INVARIANT: a session resumes only under the authorities that verified its client.
//! INVARIANT: a handshake ends within [`TLS_HANDSHAKE_WAIT`], and buffers at most [`TLS_UNSENT_BYTES_MAX`] that the
//! client has not read.
//!
//! Clients resume sessions with stateless tickets: the server stores no session of a closed connection.

mod suites;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use access_rules::authentication::certificate::ServerNames;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::{NoClientAuth, NoServerSessionStorage, ProducesTickets, danger::ClientCertVerifier},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::LazyConfigAcceptor;

use self::suites::SuiteOrders;

use crate::{
    config::TlsFiles,
    limits::{TLS_HANDSHAKE_WAIT, TLS_UNSENT_BYTES_MAX},
    socket::TlsStream,
    watched::{FileWatcher, WatchedFile},
};

/// HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Reason why a certificate and its key cannot be used: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file has unusable content.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// The problem, without any of the file's content.
        problem: &'static str,
    },
    /// Both files are well-formed but cannot be used together.
    #[error("{} with {}: {problem}", cert.display(), key.display())]
    Pair {
        /// Path of the certificate file.
        cert: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// The problem.
        problem: String,
    },
}

/// Returns the present verifier of client certificates, and its generation, which changes with the authorities.
pub type ClientVerifiers = Box<dyn Fn() -> (Arc<dyn ClientCertVerifier>, u64) + Send + Sync>;

/// Makes TLS streams of accepted connections.
pub struct Acceptor {
    files: TlsFiles,
    /// Verifiers of client certificates; `None`: the server requests none.
    verifiers: Option<ClientVerifiers>,
    /// The contents of the files, which were parsed once.
    pem: WatchedFile<Pem, TlsError>,
    current: Mutex<CertificatePair>,
}

/// The files in use.
#[derive(Clone)]
struct CertificatePair {
    /// Generation of the files.
    of_files: u64,
    /// Kept across certificate reloads, so that clients can still resume their sessions; replaced with the authorities of
    /// clients, which verify no certificate of a session that resumes.
    tickets: Arc<dyn ProducesTickets>,
    /// Generation of the authorities of clients.
    of_authorities: u64,
    configs: SuiteOrders,
    names: Arc<ServerNames>,
}

/// A connection after its handshake.
pub struct TlsConnection<S> {
    pub stream: TlsStream<S>,
    pub protocol: Protocol,
    /// Names of the server's certificate.
    pub names: Arc<ServerNames>,
    /// The client's certificate; `None` if it sent none.
    pub certificate: Option<ClientCertificate>,
}

/// A certificate of a client that TLS has verified.
pub struct ClientCertificate {
    /// The certificate, then those that sign it. Not empty.
    pub chain: Vec<CertificateDer<'static>>,
    /// Generation of the authorities that verified it.
    pub of_authorities: u64,
}

/// Contents of both files.
struct Pem {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Acceptor {
    /// Reads and checks the files, which `watcher` checks from now on. `verifiers` check the certificates of clients.
    ///
    /// # Errors
    /// [`TlsError`] names the unusable file and the problem.
    pub async fn load(
        files: TlsFiles,
        verifiers: Option<ClientVerifiers>,
        watcher: &FileWatcher,
    ) -> Result<Self, TlsError> {
        let unreadable = |path: &Path, source| TlsError::Read { path: path.to_owned(), source };
        let parsed = files.clone();
        let parse = move |contents: Vec<Vec<u8>>| {
            let [cert, key] = contents.try_into().expect("two files were read");
            let pem = Pem { cert, key };
            // Only what makes a configuration replaces the files in use.
            server_config(&pem, &parsed, Arc::new(NoClientAuth)).map(|_| pem)
        };
        let pem =
            WatchedFile::load_all(watcher, vec![files.cert.clone(), files.key.clone()], unreadable, parse).await?;
        let (content, of_files) = pem.current();
        let (verifier, of_authorities) = verifier(verifiers.as_ref());
        let current = pair(&content, &files, new_tickets(&files)?, verifier, [of_files, of_authorities])?;
        Ok(Self { files, verifiers, pem, current: Mutex::new(current) })
    }

    /// Performs the handshake. `wrap` is applied to the TCP stream first; TLS reads from and writes to its result.
    ///
    /// # Errors
    /// The client disconnected, did not finish the handshake within [`TLS_HANDSHAKE_WAIT`], shares no parameters with us, or
    /// showed a certificate that is not valid. A client that speaks plain HTTP gets [`PLAIN`] first.
    pub async fn accept<S>(&self, stream: TcpStream, wrap: impl FnOnce(TcpStream) -> S) -> io::Result<TlsConnection<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = async {
            let stream = refuse_plain(stream).await?;
            let limited = |session: &mut rustls::ServerConnection| {
                session.set_buffer_limit(Some(TLS_UNSENT_BYTES_MAX));
            };
            let current = self.current();
            // Boxed, so that the memory of the handshake is freed when it is over.
            let hello = Box::pin(LazyConfigAcceptor::new(rustls::server::Acceptor::default(), wrap(stream))).await?;
            let config = current.configs.of(&hello.client_hello());
            Ok::<_, io::Error>((Box::pin(hello.into_stream_with(config, limited)).await?, current))
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long");
        let (stream, current) = timeout(TLS_HANDSHAKE_WAIT, accepting).await.map_err(late)??;
        let session = stream.get_ref().1;
        let protocol = match session.alpn_protocol() {
            Some(name) if name == HTTP2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let chain = session.peer_certificates().filter(|chain| !chain.is_empty());
        let certificate =
            chain.map(|chain| ClientCertificate { chain: chain.to_vec(), of_authorities: current.of_authorities });
        Ok(TlsConnection { stream: TlsStream::new(stream), protocol, names: current.names, certificate })
    }

    /// The files in use, and the authorities of clients.
    fn current(&self) -> CertificatePair {
        let (pem, of_files) = self.pem.current();
        let (verifier, of_authorities) = verifier(self.verifiers.as_ref());
        let mut current = self.current.lock();
        if (current.of_files, current.of_authorities) == (of_files, of_authorities) {
            return current.clone();
        }
        let tickets = if current.of_authorities == of_authorities {
            Ok(Arc::clone(&current.tickets))
        } else {
            new_tickets(&self.files)
        };
        match tickets.and_then(|tickets| pair(&pem, &self.files, tickets, verifier, [of_files, of_authorities])) {
            Ok(renewed) => *current = renewed,
            // The requests of its clients are checked against the new authorities nevertheless.
            Err(error) => tracing::warn!(%error, "client authorities not used"),
        }
        current.clone()
    }
}

/// Returns the verifier of client certificates, and its generation. Without authorities, clients are not asked for one.
fn verifier(verifiers: Option<&ClientVerifiers>) -> (Arc<dyn ClientCertVerifier>, u64) {
    verifiers.map_or_else(|| (Arc::new(NoClientAuth) as _, 0), |current| current())
}

fn new_tickets(files: &TlsFiles) -> Result<Arc<dyn ProducesTickets>, TlsError> {
    ring::Ticketer::new().map_err(|error| TlsError::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        problem: error.to_string(),
    })
}

/// ALPN name of HTTP/2.
const HTTP2: &[u8] = b"h2";

/// ALPN name of HTTP/1.1.
const HTTP1: &[u8] = b"http/1.1";

/// Makes configurations of the files. The generations are those of the files and of the authorities of clients.
fn pair(
    pem: &Pem,
    files: &TlsFiles,
    tickets: Arc<dyn ProducesTickets>,
    verifier: Arc<dyn ClientCertVerifier>,
    [of_files, of_authorities]: [u64; 2],
) -> Result<CertificatePair, TlsError> {
    let (mut config, names) = server_config(pem, files, verifier)?;
    config.ticketer = Arc::clone(&tickets);
    let configs = SuiteOrders::new(config);
    Ok(CertificatePair { of_files, tickets, of_authorities, configs, names })
}

/// Checks the files. Returns a configuration without tickets, and the names of the certificate.
fn server_config(
    pem: &Pem,
    files: &TlsFiles,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<(ServerConfig, Arc<ServerNames>), TlsError> {
    let content = |path: &Path, problem| TlsError::Content { path: path.to_owned(), problem };
    let mismatch = |error: rustls::Error| TlsError::Pair {
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
    let names = Arc::new(chain.first().map(|own| ServerNames::of_certificate(own)).unwrap_or_default());
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| content(&files.key, problem(&error)))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(suites::provider()))
        .with_safe_default_protocol_versions()
        .map_err(mismatch)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(mismatch)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    // Resume with tickets only: the default would keep sessions in memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok((config, names))
}

/// The problem of a PEM file. Omits the parser's text, which may quote the key.
fn problem(error: &pem::Error) -> &'static str {
    if matches!(error, pem::Error::NoItemsFound) {
        "there is no private key in it"
    } else {
        "it is not well-formed PEM"
    }
}

/// Response to plain HTTP, with kube-apiserver's text.
const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Returns the stream, unless its first byte is an upper-case letter: HTTP methods begin with one, TLS records never
/// do.
async fn refuse_plain(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    if count == 0 || !first[0].is_ascii_uppercase() {
        return Ok(stream);
    }
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    // Drain the request: closing a socket with unread bytes sends a reset, which can discard the response.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks HTTP in the clear"))
}

#[cfg(test)]
mod tests;
