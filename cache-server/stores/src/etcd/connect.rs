//! The addresses and credentials of an etcd cluster, as settings and as connections.

use std::{fs, path::Path, time::Duration};

use http::Uri;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::client::EtcdMember;
use crate::config::EtcdConfig;

/// A user of etcd.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdConfigError {
    /// No endpoint was given.
    #[error("--etcd-endpoints needs at least one address")]
    NoEndpoint,
    /// An endpoint is no address.
    #[error("{0} is no address of etcd: it must be http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// The cause.
        error: std::io::Error,
    },
    /// The certificates or the key cannot be used.
    #[error("the certificates for etcd cannot be used: {0}")]
    Tls(String),
}

/// Returns the members of `config`, not yet connected.
pub(super) fn members(config: &EtcdConfig) -> Result<Vec<EtcdMember>, EtcdConfigError> {
    if config.endpoints.is_empty() {
        return Err(EtcdConfigError::NoEndpoint);
    }
    let tls = tls(config)?;
    let member = |address: &String| {
        let unusable = || EtcdConfigError::Address(address.clone());
        let uri: Uri = address.parse().map_err(|_| unusable())?;
        let endpoint = Endpoint::from(uri.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let endpoint = match uri.scheme_str() {
            Some("http") => endpoint,
            Some("https") => {
                endpoint.tls_config(tls.clone()).map_err(|error| EtcdConfigError::Tls(error.to_string()))?
            }
            _ => return Err(unusable()),
        };
        if uri.path().len() > 1 || uri.query().is_some() {
            return Err(unusable());
        }
        Ok(EtcdMember::new(address.clone(), endpoint.connect_lazy()))
    };
    config.endpoints.iter().map(member).collect()
}

/// Returns the user of `config`.
pub(super) fn login(config: &EtcdConfig) -> Result<Option<Login>, EtcdConfigError> {
    let Some((user, file)) = config.user.as_ref().zip(config.password_file.as_ref()) else { return Ok(None) };
    let password = String::from_utf8(read(file)?)
        .map_err(|_| EtcdConfigError::File { path: file.display().to_string(), error: not_text() })?;
    Ok(Some(Login { user: user.clone(), password: password.trim_end_matches(['\r', '\n']).to_owned() }))
}

fn tls(config: &EtcdConfig) -> Result<ClientTlsConfig, EtcdConfigError> {
    let tls = ClientTlsConfig::new();
    let tls = match &config.ca_file {
        Some(file) => tls.ca_certificate(Certificate::from_pem(read(file)?)),
        None => tls.with_native_roots(),
    };
    Ok(match (&config.cert_file, &config.key_file) {
        (Some(cert), Some(key)) => tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => tls,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, EtcdConfigError> {
    fs::read(path).map_err(|error| EtcdConfigError::File { path: path.display().to_string(), error })
}

fn not_text() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "not UTF-8")
}

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between pings of a connection. etcd closes connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);

/// Time for the answer to a ping: a member that hangs is left after this and the pause.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes in flight of one watch or response: of a watch that is read slowly, etcd keeps the rest.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Bytes in flight of one connection, for some 60 watches. Memory: as much while all of them are read slowly.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
