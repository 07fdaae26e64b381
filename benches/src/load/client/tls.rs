//! TLS: trust in the server, and the client's certificate.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme,
    client::{
        ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_rustls::TlsConnector;

use super::{Access, Http};

/// Trust in the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates of this PEM file, and those that they sign.
    Authority(PathBuf),
    /// Any certificate.
    Anybody,
}

/// Makes a connector from the files of `access`.
pub(super) fn connector(access: &Access) -> Result<TlsConnector, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = match &access.trust {
        None => return Err("an https:// server needs --ca FILE or --insecure".to_owned()),
        Some(Trust::Authority(file)) => builder.with_root_certificates(roots(file)?),
        Some(Trust::Anybody) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(BelieveAnybody { provider }))
        }
    };
    let mut config = match &access.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates(chain)?;
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            builder.with_client_auth_cert(chain, key_der).map_err(|error| unreadable(key, &error))?
        }
    };
    config.alpn_protocols = match access.http {
        Http::One => vec![b"http/1.1".to_vec()],
        Http::Two => vec![b"h2".to_vec()],
    };
    // Each connection simulates a separate client, so none may resume another's session.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Like `connector`, with resumption of sessions.
pub(super) fn with_tickets(connector: &TlsConnector) -> TlsConnector {
    let mut config = ClientConfig::clone(connector.config());
    config.resumption = Resumption::store(Arc::new(TicketStore::default()));
    TlsConnector::from(Arc::new(config))
}

/// The tickets of all connections to one server. The store of rustls keeps eight for each server, and so would serve
/// eight clients.
#[derive(Debug, Default)]
struct TicketStore {
    tickets: Mutex<VecDeque<Tls13ClientSessionValue>>,
    group: Mutex<Option<NamedGroup>>,
}

impl ClientSessionStore for TicketStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // TLS 1.2 is not used with this project's server.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unreadable(file, &error))?;
    if found.is_empty() { Err(format!("{} holds no certificate", file.display())) } else { Ok(found) }
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| unreadable(file, &error))?;
    }
    Ok(roots)
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot use {}: {error}", file.display())
}

/// Accepts self-signed certificates of test servers: the traffic is encrypted, but the server is not authenticated.
#[derive(Debug)]
struct BelieveAnybody {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for BelieveAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
