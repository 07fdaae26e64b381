//! The identities of a run: users with their tokens, and the certificate of both servers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use measured::Failure;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// A user: its token, name and groups, as a line of a token file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) token: &'static str,
    name: &'static str,
    groups: &'static str,
}

/// The service account of all agents.
pub(crate) const AGENT: Identity = Identity {
    token: "replay-agent",
    name: "system:serviceaccount:monitoring:log-agent",
    groups: "system:serviceaccounts,system:serviceaccounts:monitoring",
};
/// A node, whose lease must be renewed whatever the agents do.
pub(crate) const NODE: Identity = Identity { token: "replay-node", name: "system:node:node-0", groups: "system:nodes" };
/// The operator: fills the server, and writes the changes that the agents wait for.
pub(crate) const OPERATOR: Identity = Identity { token: "replay-operator", name: "operator", groups: "system:masters" };

/// Files that identify the users and the servers, in one folder.
pub(crate) struct IdentityFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) tokens: PathBuf,
    /// Key pair with which a kube-apiserver signs tokens of service accounts.
    pub(crate) signing_key: PathBuf,
    pub(crate) signing_public_key: PathBuf,
}

impl IdentityFiles {
    /// Writes the files with new keys.
    pub(crate) fn write(folder: &Path) -> Result<Self, Failure> {
        let at = |name: &str| folder.join(name);
        let files = Self {
            certificate: at("tls.crt"),
            key: at("tls.key"),
            tokens: at("tokens.csv"),
            signing_key: at("sa.key"),
            signing_public_key: at("sa.pub"),
        };
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        fs::write(&files.certificate, made.cert.pem())?;
        fs::write(&files.key, made.signing_key.serialize_pem())?;
        let signing = rcgen::KeyPair::generate()?;
        fs::write(&files.signing_key, signing.serialize_pem())?;
        fs::write(&files.signing_public_key, signing.public_key_pem())?;
        fs::write(&files.tokens, token_file())?;
        Ok(files)
    }

    /// The certificate, which is its own authority.
    pub(crate) fn authority(&self) -> Result<CertificateDer<'static>, Failure> {
        Ok(CertificateDer::from_pem_file(&self.certificate)?)
    }

    /// TLS settings of clients that trust this certificate only. No connection resumes the session of another client.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority()?)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Kubernetes' static token file.
fn token_file() -> String {
    let line = |(number, user): (usize, &Identity)| {
        let Identity { token, name, groups } = user;
        format!("{token},{name},{number},\"{groups}\"\n")
    };
    [AGENT, NODE, OPERATOR].iter().enumerate().map(line).collect()
}

/// Name of a user, as servers see it.
#[cfg(test)]
pub(crate) const fn user_name(user: Identity) -> &'static str {
    user.name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_a_line_of_the_token_file() {
        let file = token_file();
        assert_eq!(file.lines().count(), 3);
        assert!(file.contains("replay-node,system:node:node-0,1,\"system:nodes\"\n"), "{file}");
    }
}
