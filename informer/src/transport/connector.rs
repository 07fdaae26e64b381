//! Opens connections to the server: TCP with keepalive, a proxy if one is configured, and TLS that offers HTTP/2.
//!
//! Trust, client certificates and server names are kube's. This file adds ALPN and socket options, which kube's own
//! connector lacks.

use std::{io, time::Duration};

use http::{Uri, uri::Scheme};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Opens a connection to the server's URL.
pub(super) type Connector = BoxCloneSyncService<Uri, BoxedSocket, BoxError>;

/// A connection in the clear or over TLS, direct or through a proxy.
pub(super) type BoxedSocket = Box<dyn ClientSocket>;

/// A byte stream that knows which protocol its peer chose.
pub(super) trait ClientSocket: Read + Write + Connection + Send + Unpin {}

impl<S: Read + Write + Connection + Send + Unpin> ClientSocket for S {}

impl Connection for Box<dyn ClientSocket> {
    fn connected(&self) -> Connected {
        (**self).connected()
    }
}

/// A connector of any layer: TCP, a proxy's tunnel or TLS.
trait LayeredConnector:
    Service<Uri, Response: ClientSocket + 'static, Error: Into<BoxError>, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<C> LayeredConnector for C where
    C: Service<Uri, Response: ClientSocket + 'static, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Time without bytes after which the kernel probes a connection. Cost: one packet.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Unanswered probes after which the kernel ends a connection: a host that vanished is noticed after
/// `KEEPALIVE_IDLE + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL`, 45 s.
const KEEPALIVE_PROBES: u32 = 3;

/// Longest time that sent bytes may stay unacknowledged. Keepalive does not probe while some are.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(45);

/// Creates the connector of a configuration. Opens no connection. May run an exec plugin, because it may provide the
/// client certificate.
///
/// # Errors
/// No TLS backend or no provider of cryptography for an `https` URL, a proxy of a kind that the enabled features do
/// not support, or credentials that cannot be read.
pub(super) fn connector(config: &kube::Config) -> Result<Connector, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    let Some(proxy) = &config.proxy_url else { return secured(config, tcp) };
    match proxy.scheme_str() {
        #[cfg(feature = "socks5")]
        Some("socks5") => secured(config, hyper_util::client::legacy::connect::proxy::SocksV5::new(proxy.clone(), tcp)),
        #[cfg(not(feature = "socks5"))]
        Some("socks5") => Err(needs_feature(proxy, "socks5")),
        #[cfg(feature = "http-proxy")]
        Some("http") => secured(config, tunnel(config, proxy, tcp)),
        #[cfg(all(feature = "http-proxy", feature = "rustls-tls"))]
        Some("https") => {
            ensure_provider()?;
            let tls = kube::client::ConfigExt::rustls_https_connector_with_connector(config, tcp)?;
            secured(config, tunnel(config, proxy, tls))
        }
        #[cfg(all(feature = "http-proxy", feature = "openssl-tls", not(feature = "rustls-tls")))]
        Some("https") => {
            let tls = kube::client::ConfigExt::openssl_https_connector_with_connector(config, tcp)?;
            secured(config, tunnel(config, proxy, tls))
        }
        #[cfg(not(feature = "http-proxy"))]
        Some("http" | "https") => Err(needs_feature(proxy, "http-proxy")),
        Some(_) | None => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) }),
    }
}

#[cfg(not(all(feature = "http-proxy", feature = "socks5")))]
fn needs_feature(proxy: &Uri, protocol_feature: &'static str) -> kube::Error {
    kube::Error::ProxyProtocolDisabled { proxy_url: Box::new(proxy.clone()), protocol_feature }
}

/// A tunnel by CONNECT, with the credentials in the proxy's URL.
#[cfg(feature = "http-proxy")]
fn tunnel<C>(
    config: &kube::Config,
    proxy: &Uri,
    connector: C,
) -> hyper_util::client::legacy::connect::proxy::Tunnel<C> {
    use hyper_util::client::{legacy::connect::proxy::Tunnel, proxy::matcher::Matcher};

    let tunnel = Tunnel::new(proxy.clone(), connector);
    let matcher = Matcher::builder().all(proxy.to_string()).build();
    match matcher.intercept(&config.cluster_url).and_then(|proxy| proxy.basic_auth().cloned()) {
        Some(credentials) => tunnel.with_auth(credentials),
        None => tunnel,
    }
}

/// Adds TLS, if the server's URL asks for it.
fn secured(config: &kube::Config, connector: impl LayeredConnector) -> Result<Connector, kube::Error> {
    if config.cluster_url.scheme() == Some(&Scheme::HTTPS) {
        over_tls(config, connector)
    } else {
        Ok(boxed(connector, config.connect_timeout))
    }
}

#[cfg(feature = "rustls-tls")]
fn over_tls(config: &kube::Config, connector: impl LayeredConnector) -> Result<Connector, kube::Error> {
    use std::sync::Arc;

    use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
    use kube::client::{ConfigExt as _, RustlsTlsError};

    ensure_provider()?;
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let names: Arc<dyn ResolveServerName + Send + Sync> = match config.tls_server_name.clone() {
        Some(name) => {
            let invalid = |error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error));
            Arc::new(FixedServerNameResolver::new(name.try_into().map_err(invalid)?))
        }
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    Ok(boxed(HttpsConnector::new(connector, tls, true, names), config.connect_timeout))
}

#[cfg(all(feature = "openssl-tls", not(feature = "rustls-tls")))]
fn over_tls(config: &kube::Config, connector: impl LayeredConnector) -> Result<Connector, kube::Error> {
    let mut tls = kube::client::ConfigExt::openssl_https_connector_with_connector(config, connector)?;
    // kube applies both settings in the connector's only callback, which must stay; such servers get HTTP/1.1.
    if !config.accept_invalid_certs && config.tls_server_name.is_none() {
        tls.set_callback(|connection, _| connection.set_alpn_protos(b"\x02h2\x08http/1.1"));
    }
    Ok(boxed(tls, config.connect_timeout))
}

#[cfg(not(any(feature = "openssl-tls", feature = "rustls-tls")))]
fn over_tls(_: &kube::Config, _: impl LayeredConnector) -> Result<Connector, kube::Error> {
    Err(kube::Error::TlsRequired)
}

/// Erases the type of a connector and bounds its time.
fn boxed(connector: impl LayeredConnector, time_max: Option<Duration>) -> Connector {
    BoxCloneSyncService::new(tower::service_fn(move |url: Uri| {
        let opening = connector.clone().oneshot(url);
        async move {
            let socket = match time_max {
                Some(time_max) => tokio::time::timeout(time_max, opening).await.map_err(|_| timed_out(time_max))?,
                None => opening.await,
            };
            Ok::<BoxedSocket, BoxError>(Box::new(socket.map_err(Into::<BoxError>::into)?))
        }
    }))
}

fn timed_out(time_max: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {time_max:?}"))
}

/// Installs the process's provider of cryptography if the program has not installed one. Without it, rustls panics
/// when more than one provider is in the dependency tree. As in kube, aws-lc-rs is preferred.
///
/// # Errors
/// There is none to install: the features have neither `ring` nor `aws-lc-rs`.
#[cfg(feature = "rustls-tls")]
fn ensure_provider() -> Result<(), kube::Error> {
    use rustls::crypto::CryptoProvider;

    if CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    #[cfg(feature = "aws-lc-rs")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
    let provider: Option<CryptoProvider> = None;
    let provider = provider.ok_or_else(|| kube::Error::Service(Box::new(MissingProvider)))?;
    // Fails if another thread installed one meanwhile, which serves as well.
    let _ = provider.install_default();
    Ok(())
}

/// rustls is enabled without cryptography.
#[cfg(feature = "rustls-tls")]
#[derive(Debug, thiserror::Error)]
#[error("rustls has no provider of cryptography: enable the feature `ring` or `aws-lc-rs`, or install one")]
struct MissingProvider;
