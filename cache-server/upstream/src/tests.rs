//! An API server for tests: hyper on a real socket, with TLS if wanted, which records the requests it gets.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{convert::Infallible, io, net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, request::Parts};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::{
    connect::UpstreamAddresses,
    error::UpstreamError,
    forward::{Forwarder, RequestIdentity},
    last_answer::LastAnswer,
};
use crate::{config::UpstreamConfig, watched::FileWatcher};

pub type ApiBody = UnsyncBoxBody<Bytes, io::Error>;
pub type ApiAnswer = BoxFuture<'static, Response<ApiBody>>;

/// A request that the API server got.
pub struct Seen {
    pub head: Parts,
    /// True if the client showed a certificate.
    pub has_certificate: bool,
}

/// A running API server. It stops with the runtime of its test.
pub struct Api {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Api {
    /// Answers each request with `answer`.
    pub async fn start(answer: impl Fn(Request<Incoming>) -> ApiAnswer + Clone + Send + Sync + 'static) -> Self {
        Self::with_tls(None, answer).await
    }

    pub async fn with_tls(
        tls: Option<ServerConfig>,
        answer: impl Fn(Request<Incoming>) -> ApiAnswer + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (tls, log) = (tls.map(|tls| TlsAcceptor::from(Arc::new(tls))), Arc::clone(&seen));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, log, answer) = (tls.clone(), Arc::clone(&log), answer.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, false, log, answer).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                            assert_eq!(stream.get_ref().1.alpn_protocol().unwrap_or(b"http/1.1"), b"http/1.1");
                            serve(stream, has_certificate, log, answer).await;
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the header of the latest request, or an empty text.
    pub fn header(&self, name: &str) -> String {
        let seen = self.seen.lock();
        let headers = &seen.last().expect("a request").head.headers;
        headers.get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    }
}

async fn serve<S>(
    stream: S,
    has_certificate: bool,
    log: Arc<Mutex<Vec<Seen>>>,
    answer: impl Fn(Request<Incoming>) -> ApiAnswer,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut head, body) = request.into_parts();
        let upgrade = head.extensions.remove::<hyper::upgrade::OnUpgrade>();
        log.lock().push(Seen { head: head.clone(), has_certificate });
        upgrade.into_iter().for_each(|upgrade| drop(head.extensions.insert(upgrade)));
        let answering = answer(Request::from_parts(head, body));
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// A caller whose own credentials pass.
pub fn caller() -> RequestIdentity<'static> {
    static ID: HeaderValue = HeaderValue::from_static("id");
    RequestIdentity { id: (HeaderName::from_static("audit-id"), &ID), user: None }
}

/// A body of known length.
pub fn full(bytes: impl Into<Bytes>) -> ApiBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Answers with the body of the request.
pub fn echo(request: Request<Incoming>) -> ApiAnswer {
    Box::pin(async move { Response::new(request.into_body().map_err(io::Error::other).boxed_unsync()) })
}

/// An API server that speaks by itself: `script` gets each accepted connection with its number.
pub async fn raw<F>(script: impl Fn(usize, TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(script(number, stream));
        }
    });
    address
}

/// Reads the head of a request.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the rest of a head"));
    }
    String::from_utf8(head).unwrap()
}

/// A forwarder to URLs without any configuration.
pub async fn forwarder(urls: &[String]) -> Forwarder {
    forwarder_noting(urls, Arc::default()).await
}

/// The addresses of the settings. The file of a token is not read again.
pub async fn addresses_of(config: &UpstreamConfig) -> Result<UpstreamAddresses, UpstreamError> {
    UpstreamAddresses::load(config, &FileWatcher::default()).await
}

/// Like [`forwarder`], with a record of the time of the last answer.
pub async fn forwarder_noting(urls: &[String], last_answer: Arc<LastAnswer>) -> Forwarder {
    let config =
        UpstreamConfig { url: Some(urls[0].clone()), further_urls: urls[1..].to_vec(), ..UpstreamConfig::default() };
    Forwarder::new(addresses_of(&config).await.expect("a configuration").callers, last_answer)
}

/// An address at which no server listens.
pub async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A certificate authority with files in a folder: of the server, and of a client.
pub struct Certificates {
    pub folder: tempfile::TempDir,
    server: (String, String),
    authority: String,
}

impl Certificates {
    /// The server's certificate is valid for `name` only.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let (server, client) = (issue(name), issue("admin"));
        let authority = issuer.pem();
        for (file, text) in [("ca.crt", &authority), ("client.crt", &client.0), ("client.key", &client.1)] {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        Self { folder, server, authority }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Asks for a client certificate, and does not insist on it.
    pub fn server_config(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let chain = vec![CertificateDer::from_pem_slice(self.server.0.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// Writes a kubeconfig for `server` with a client certificate and `more` lines of a user and of a cluster.
    pub fn kubeconfig(&self, server: &str, user: &str, cluster: &str) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
             contexts:\n- name: main\n  context: {{cluster: c, user: u}}\n\
             clusters:\n- name: c\n  cluster:\n    server: {server}\n    certificate-authority: ca.crt\n{cluster}\
             users:\n- name: u\n  user:\n    client-certificate: client.crt\n    client-key: client.key\n{user}"
        );
        let path = self.path("config");
        std::fs::write(&path, text).unwrap();
        path
    }
}
