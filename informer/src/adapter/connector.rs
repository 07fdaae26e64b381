//! Opens connections to the server of a configuration: through a proxy if it has one, over TLS that offers HTTP/2.
//!
//! Trust, client certificates and server names are kube's. This file adds ALPN, which kube's own connector lacks.

use http::{Uri, uri::Scheme};

use super::kube::{Config, Error, client::ConfigExt};
use crate::transport::connector::{Connector, LayeredConnector, boxed, tcp};

/// Creates the connector of a configuration. Opens no connection. May run an exec plugin, because it may provide the
/// client certificate.
///
/// # Errors
/// No TLS backend or no provider of cryptography for an `https` URL, a proxy of a kind that the enabled features do
/// not support, or credentials that cannot be read.
pub(super) fn connector(config: &Config) -> Result<Connector, Error> {
    let tcp = tcp();
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
            let tls = ConfigExt::rustls_https_connector_with_connector(config, tcp)?;
            secured(config, tunnel(config, proxy, tls))
        }
        #[cfg(all(feature = "http-proxy", feature = "openssl-tls", not(feature = "rustls-tls")))]
        Some("https") => {
            let tls = ConfigExt::openssl_https_connector_with_connector(config, tcp)?;
            secured(config, tunnel(config, proxy, tls))
        }
        #[cfg(not(feature = "http-proxy"))]
        Some("http" | "https") => Err(needs_feature(proxy, "http-proxy")),
        Some(_) | None => Err(Error::ProxyProtocolUnsupported { proxy_url: proxy.clone().into() }),
    }
}

#[cfg(not(all(feature = "http-proxy", feature = "socks5")))]
fn needs_feature(proxy: &Uri, protocol_feature: &'static str) -> Error {
    Error::ProxyProtocolDisabled { proxy_url: proxy.clone().into(), protocol_feature }
}

/// A tunnel by CONNECT, with the credentials in the proxy's URL.
#[cfg(feature = "http-proxy")]
fn tunnel<C>(config: &Config, proxy: &Uri, connector: C) -> hyper_util::client::legacy::connect::proxy::Tunnel<C> {
    use hyper_util::client::{legacy::connect::proxy::Tunnel, proxy::matcher::Matcher};

    let tunnel = Tunnel::new(proxy.clone(), connector);
    let matcher = Matcher::builder().all(proxy.to_string()).build();
    match matcher.intercept(&config.cluster_url).and_then(|proxy| proxy.basic_auth().cloned()) {
        Some(credentials) => tunnel.with_auth(credentials),
        None => tunnel,
    }
}

/// Adds TLS, if the server's URL asks for it.
fn secured(config: &Config, connector: impl LayeredConnector) -> Result<Connector, Error> {
    if config.cluster_url.scheme() == Some(&Scheme::HTTPS) {
        over_tls(config, connector)
    } else {
        Ok(boxed(connector, config.connect_timeout))
    }
}

#[cfg(feature = "rustls-tls")]
fn over_tls(config: &Config, connector: impl LayeredConnector) -> Result<Connector, Error> {
    use std::sync::Arc;

    use super::kube::client::RustlsTlsError;
    use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};

    ensure_provider()?;
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let names: Arc<dyn ResolveServerName + Send + Sync> = match config.tls_server_name.clone() {
        Some(name) => {
            let invalid = |error| Error::RustlsTls(RustlsTlsError::InvalidServerName(error));
            Arc::new(FixedServerNameResolver::new(name.try_into().map_err(invalid)?))
        }
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    Ok(boxed(HttpsConnector::new(connector, tls, true, names), config.connect_timeout))
}

#[cfg(all(feature = "openssl-tls", not(feature = "rustls-tls")))]
fn over_tls(config: &Config, connector: impl LayeredConnector) -> Result<Connector, Error> {
    let mut tls = ConfigExt::openssl_https_connector_with_connector(config, connector)?;
    // kube applies both settings in the connector's only callback, which must stay; such servers get HTTP/1.1.
    if !config.accept_invalid_certs && config.tls_server_name.is_none() {
        tls.set_callback(|connection, _| connection.set_alpn_protos(b"\x02h2\x08http/1.1"));
    }
    Ok(boxed(tls, config.connect_timeout))
}

#[cfg(not(any(feature = "openssl-tls", feature = "rustls-tls")))]
fn over_tls(_: &Config, _: impl LayeredConnector) -> Result<Connector, Error> {
    Err(Error::TlsRequired)
}

/// Installs the process's provider of cryptography if the program has not installed one. Without it, rustls panics
/// when more than one provider is in the dependency tree. As in kube, aws-lc-rs is preferred.
///
/// # Errors
/// There is none to install: the features have neither `ring` nor `aws-lc-rs`.
#[cfg(feature = "rustls-tls")]
fn ensure_provider() -> Result<(), Error> {
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
    let provider = provider.ok_or_else(|| Error::Service(Box::new(MissingProvider)))?;
    // Fails if another thread installed one meanwhile, which serves as well.
    let _ = provider.install_default();
    Ok(())
}

/// rustls is enabled without cryptography.
#[cfg(feature = "rustls-tls")]
#[derive(Debug, thiserror::Error)]
#[error("rustls has no provider of cryptography: enable the feature `ring` or `aws-lc-rs`, or install one")]
struct MissingProvider;
