//! The certificates of a cluster that demands TLS: its own, and one of a client.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::tls::{Authority, Files, Trust};

/// Paths of the certificates, which one authority issued.
#[derive(Clone, Debug)]
pub struct EtcdCertificates {
    ca: PathBuf,
    server: Files,
    client: Files,
    trust: Trust,
}

impl EtcdCertificates {
    pub(super) fn write(folder: &Path) -> Self {
        let authority = Authority::new();
        let ca = folder.join("ca.crt");
        fs::write(&ca, authority.pem()).unwrap();
        let [server, client] = ["server", "client"].map(|name| {
            let folder = folder.join(name);
            fs::create_dir(&folder).unwrap();
            authority.issue_nameless(&folder)
        });
        let trust = authority.trust_as(&client);
        Self { ca, server, client, trust }
    }

    /// Flags of etcd.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            format!("--cert-file={}", self.server.cert.display()),
            format!("--key-file={}", self.server.key.display()),
            format!("--trusted-ca-file={}", self.ca.display()),
            "--client-cert-auth".to_owned(),
        ]
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// Path of the authority's certificate.
    pub fn ca_file(&self) -> &str {
        self.ca.to_str().unwrap()
    }

    /// Paths of a client's certificate and key.
    pub const fn client_files(&self) -> &Files {
        &self.client
    }
}
