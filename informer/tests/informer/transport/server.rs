//! The fake API server behind TLS, over HTTP/2 or HTTP/1.1, and a proxy that opens tunnels.

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use informer::testing::FakeApiServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// A certificate authority for servers and their clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    /// A certificate with these names, as PEM with its key.
    fn sign(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap(), key)
    }

    /// Writes a client certificate and its key into `folder`, in place of earlier ones. Returns the certificate.
    pub(crate) fn issue(&self, folder: &Path) -> Vec<u8> {
        let (certificate, key) = self.sign(&["client"]);
        std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        certificate.der().to_vec()
    }
}

/// A listening server.
pub(crate) struct SecureServer {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Arc<Authority>,
    /// TLS of the connections to come.
    acceptor: Arc<Mutex<TlsAcceptor>>,
    alpn: Vec<Vec<u8>>,
    /// Streams that connections to come allow; zero for the default.
    streams_max: Arc<AtomicU32>,
    pub(crate) log: Arc<ConnectionLog>,
    network: watch::Sender<ConnectionOrder>,
}

/// Orders to all connections. Each is a count: connections obey its changes.
#[derive(Clone, Copy, Default)]
struct ConnectionOrder {
    goaway: usize,
    cut: usize,
}

/// Connections and requests so far.
#[derive(Default)]
pub(crate) struct ConnectionLog {
    connections: Mutex<Vec<ConnectionFacts>>,
    requests: Mutex<Vec<RequestFacts>>,
    /// Bearer tokens that are accepted; empty: every request.
    pub(crate) tokens: Mutex<HashSet<String>>,
}

/// Facts of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) server_name: Option<String>,
    pub(crate) is_http2: bool,
    pub(crate) client_certificate: Option<Vec<u8>>,
}

/// Facts of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestFacts {
    /// Number of its connection, from zero.
    pub(crate) connection: usize,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
}

impl ConnectionLog {
    pub(crate) fn connections(&self) -> Vec<ConnectionFacts> {
        self.connections.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> Vec<RequestFacts> {
        self.requests.lock().unwrap().clone()
    }

    /// Number of the connection of the last request.
    pub(crate) fn last_connection(&self) -> usize {
        self.requests().last().unwrap().connection
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let tokens = self.tokens.lock().unwrap();
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        tokens.is_empty() || given.strip_prefix("Bearer ").is_some_and(|token| tokens.contains(token))
    }
}

impl SecureServer {
    /// Serves `fake` on the loopback address of IPv4, with HTTP/2.
    pub(crate) async fn start(fake: &FakeApiServer) -> Self {
        Self::with(fake, Ipv4Addr::LOCALHOST.into(), &[b"h2", b"http/1.1"]).await.unwrap()
    }

    /// Serves `fake` on this address, with these protocols.
    ///
    /// # Errors
    /// The machine has no such address.
    pub(crate) async fn with(fake: &FakeApiServer, address: IpAddr, alpn: &[&[u8]]) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let authority = Arc::new(Authority::new());
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls(&authority, &address.to_string(), alpn.clone())));
        let server = Self {
            address: listener.local_addr()?,
            acceptor: Arc::new(Mutex::new(acceptor)),
            alpn,
            streams_max: Arc::default(),
            log: Arc::default(),
            network: watch::Sender::default(),
            authority: Arc::clone(&authority),
        };
        let (log, network, fake) = (Arc::clone(&server.log), server.network.clone(), fake.clone());
        let (acceptor, streams_max) = (Arc::clone(&server.acceptor), Arc::clone(&server.streams_max));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.lock().unwrap().clone();
                let streams_max = streams_max.load(Ordering::Relaxed);
                let (log, fake) = (Arc::clone(&log), fake.clone());
                let mut orders = network.subscribe();
                tokio::spawn(async move {
                    let cuts = orders.borrow_and_update().cut;
                    let mut cut = orders.clone();
                    tokio::select! {
                        () = serve((acceptor, streams_max), socket, log, fake, orders) => {}
                        _ = async { cut.wait_for(|order| order.cut != cuts).await.is_ok() } => {}
                    }
                });
            }
        });
        Ok(server)
    }

    /// Configuration of a client that trusts this server.
    pub(crate) fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.authority.der()]);
        config
    }

    /// Replaces the certificate of later connections by one that `authority` signed.
    pub(crate) fn recertify(&self, authority: &Authority) {
        let tls = tls(authority, &self.address.ip().to_string(), self.alpn.clone());
        *self.acceptor.lock().unwrap() = TlsAcceptor::from(Arc::new(tls));
    }

    /// Sets how many streams later connections allow.
    pub(crate) fn allow_streams(&self, count: u32) {
        self.streams_max.store(count, Ordering::Relaxed);
    }

    /// Sends GOAWAY on all connections, and lets their streams go on.
    pub(crate) fn goaway(&self) {
        self.network.send_modify(|order| order.goaway += 1);
    }

    /// Closes all connections at once.
    pub(crate) fn cut(&self) {
        self.network.send_modify(|order| order.cut += 1);
    }
}

fn tls(authority: &Authority, address: &str, alpn: Vec<Vec<u8>>) -> ServerConfig {
    let (certificate, key) = authority.sign(&[address, "api.internal"]);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.der())).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let clients = clients.allow_unauthenticated().build().unwrap();
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = versions.with_client_cert_verifier(clients);
    let mut config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    config.alpn_protocols = alpn;
    config
}

/// Serves one connection to its end.
async fn serve(
    (acceptor, streams_max): (TlsAcceptor, u32),
    socket: TcpStream,
    log: Arc<ConnectionLog>,
    fake: FakeApiServer,
    mut orders: watch::Receiver<ConnectionOrder>,
) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let facts = facts_of(&stream);
    let is_http2 = facts.is_http2;
    let connection = {
        let mut connections = log.connections.lock().unwrap();
        connections.push(facts);
        connections.len() - 1
    };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (headers, uri) = (request.headers().clone(), request.uri().to_string());
        let is_admitted = log.admits(&headers);
        log.requests.lock().unwrap().push(RequestFacts { connection, uri, headers });
        let fake = fake.clone();
        async move {
            let mut response = if is_admitted { fake.respond(request).await? } else { refused(fake).await? };
            if !is_admitted {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            Ok::<_, io::Error>(response)
        }
    });
    if !is_http2 {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        return;
    }
    let mut http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    if streams_max > 0 {
        http2.max_concurrent_streams(streams_max);
    }
    let mut serving = pin!(http2.serve_connection(TokioIo::new(stream), service));
    let goaways = orders.borrow_and_update().goaway;
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = async { orders.wait_for(|order| order.goaway != goaways).await.is_ok() } => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

/// Some response, whose status the caller replaces.
async fn refused(fake: FakeApiServer) -> io::Result<Response<informer::testing::Body>> {
    fake.replica().respond(Request::get("/").body(String::new()).unwrap()).await
}

fn facts_of(stream: &TlsStream<TcpStream>) -> ConnectionFacts {
    let (_, session) = stream.get_ref();
    ConnectionFacts {
        server_name: session.server_name().map(str::to_owned),
        is_http2: session.alpn_protocol() == Some(b"h2"),
        client_certificate: session.peer_certificates().map(|chain| chain[0].to_vec()),
    }
}

/// A proxy that opens tunnels and notes the heads of the requests for them.
pub(crate) struct TunnelProxy {
    pub(crate) address: SocketAddr,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    silence: watch::Sender<usize>,
}

impl TunnelProxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy =
            Self { address: listener.local_addr().unwrap(), heads: Arc::default(), silence: watch::Sender::new(0) };
        let (heads, silence) = (Arc::clone(&proxy.heads), proxy.silence.clone());
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (heads, mut silence) = (Arc::clone(&heads), silence.subscribe());
                tokio::spawn(async move {
                    let mut near = BufReader::new(near);
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        near.read_line(&mut head).await.unwrap();
                    }
                    let target = head.split(' ').nth(1).unwrap().to_owned();
                    heads.lock().unwrap().push(head);
                    let mut far = TcpStream::connect(target).await.unwrap();
                    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        // Both sockets stay open.
                        _ = silence.changed() => std::future::pending().await,
                    }
                });
            }
        });
        proxy
    }

    /// Lets the open tunnels pass no more bytes, and keeps them open. Later tunnels work.
    pub(crate) fn silence(&self) {
        self.silence.send_modify(|silences| *silences += 1);
    }
}
