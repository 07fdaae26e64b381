//! Client certificates: the authorities that sign them, and the callers that they prove.
//!
//! INVARIANT: a certificate counts only while an authority of the current file signs it. TLS verifies it in the handshake;
//! connections that outlive a change of the file are verified again with their next request.
//!
//! Certificates are not looked up in revocation lists, as in kube-apiserver.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use access_rules::authentication::certificate::{self, CertificateError};
use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{Caller, CallerCredential, instant_of};
use crate::watched::{AccessFileError, FileWatcher, WatchedFile};

/// The authorities of client certificates.
pub struct ClientAuthorities {
    file: WatchedFile<ClientVerifier>,
}

/// Verifies client certificates, and lets clients without one connect.
struct ClientVerifier(Arc<dyn ClientCertVerifier>);

/// A client certificate that TLS has verified.
pub struct PeerCertificate {
    /// The certificate, then those that sign it. Not empty.
    chain: Vec<CertificateDer<'static>>,
    /// Generation of the authorities that last verified it.
    verified: AtomicU64,
}

impl ClientAuthorities {
    /// Reads the PEM file.
    ///
    /// # Errors
    /// [`AccessFileError`] if it has no usable certificate.
    pub async fn load(path: &Path, files: &FileWatcher) -> Result<Self, AccessFileError> {
        Ok(Self { file: WatchedFile::load(files, path, parse).await? })
    }

    /// Returns the verifier for handshakes, and its generation, which changes with the file.
    pub fn verifier(&self) -> (Arc<dyn ClientCertVerifier>, u64) {
        let (verifier, generation) = self.file.current();
        (Arc::clone(&verifier.0), generation)
    }

    /// Returns true if an authority of the current file signs the certificate, which is valid now. Cost: nothing while the
    /// file does not change.
    pub(super) fn confirms(&self, certificate: &PeerCertificate) -> bool {
        let (verifier, generation) = self.file.current();
        if certificate.verified.load(Ordering::Relaxed) == generation {
            return true;
        }
        let Some((own, issuers)) = certificate.chain.split_first() else { return false };
        let is_valid = verifier.0.verify_client_cert(own, issuers, UnixTime::now()).is_ok();
        if is_valid {
            certificate.verified.store(generation, Ordering::Relaxed);
        }
        is_valid
    }
}

/// Returns the caller of a connection whose client sent this chain, verified by authorities of `generation`; `None` if the
/// certificate names no user.
///
/// # Errors
/// [`CertificateError`] if its names are unreadable.
pub fn caller(chain: Vec<CertificateDer<'static>>, generation: u64) -> Result<Option<Arc<Caller>>, CertificateError> {
    let Some(own) = chain.first() else { return Ok(None) };
    let read = match certificate::user(own) {
        Ok(read) => read,
        Err(CertificateError::NoName) => return Ok(None),
        Err(error) => return Err(error),
    };
    let credential = CallerCredential::Certificate(PeerCertificate { chain, verified: AtomicU64::new(generation) });
    Ok(Some(Arc::new(Caller { user: read.user, expires: Some(instant_of(read.expires)), credential })))
}

fn parse(pem: &[u8]) -> Result<ClientVerifier, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "it is not well-formed PEM")?;
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.allow_unauthenticated().build().map_err(|error| error.to_string())?;
    Ok(ClientVerifier(verifier))
}
