//! TLS: trust in the server, and the client's certificate.

use std::{path::Path, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
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
