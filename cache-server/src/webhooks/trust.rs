//! Checks the certificates of webhooks. As Go does, it trusts a certificate that is in the bundle itself, by any issuer:
//! envtest's bundle has no other one.
//!
//! Not implemented, on purpose: the validity of such a certificate.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};

/// Settings of connections to a webhook whose bundle has these authorities, in PEM.
///
/// # Errors
/// A text about a bundle without certificates.
pub(super) fn by_bundle(authorities: &[u8]) -> Result<ClientConfig, String> {
    let none = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let bundle: Vec<_> = CertificateDer::pem_slice_iter(authorities).flatten().collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = BundleVerifier { bundle, issued: issued.map_err(|_| none())? };
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Trusts the certificates of a bundle, and those that they issued.
#[derive(Debug)]
struct BundleVerifier {
    bundle: Vec<CertificateDer<'static>>,
    issued: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.bundle.contains(end_entity) {
            return self.issued.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
