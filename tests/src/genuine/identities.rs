//! Users of a cluster, and the files that name them: certificates, keys, tokens and kubeconfigs.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::tls::{Authority, Trust};

/// A user and its groups.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    groups: Vec<String>,
}

impl Identity {
    /// A user in some groups. Every user is also in `system:authenticated`.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
    }
}

/// The bearer token of a user.
pub fn token_of(user: &str) -> String {
    format!("token-of-{user}")
}

/// The files in a cluster's folder.
pub(super) struct IdentityFiles {
    folder: PathBuf,
    trust: Trust,
}

impl IdentityFiles {
    /// Writes the server's certificate, the signing keys of service accounts, the tokens, and a kubeconfig for each
    /// user.
    pub(super) fn write(folder: &Path, address: SocketAddr, identities: &[Identity]) -> Self {
        let authority = Authority::new();
        authority.issue(folder);
        fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(folder.join("sa.key"), key.serialize_pem()).unwrap();
        fs::write(folder.join("sa.pub"), key.public_key_pem()).unwrap();
        let line = |(number, Identity { name, groups }): (usize, &Identity)| {
            format!("{},{name},{number},\"{}\"\n", token_of(name), groups.join(","))
        };
        let tokens: String = identities.iter().enumerate().map(line).collect();
        fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let files = Self { folder: folder.to_owned(), trust: authority.trust() };
        for Identity { name, .. } in identities {
            let text = files.kubeconfig_for(name, address);
            fs::write(files.kubeconfig(name), text).unwrap();
        }
        files
    }

    /// A kubeconfig as JSON, which is YAML.
    fn kubeconfig_for(&self, user: &str, address: SocketAddr) -> String {
        let cluster = json!({"server": format!("https://{address}"), "certificate-authority": self.ca_file()});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "genuine",
            "clusters": [{"name": "genuine", "cluster": cluster}],
            "contexts": [{"name": "genuine", "context": {"cluster": "genuine", "user": user}}],
            "users": [{"name": user, "user": {"token": token_of(user)}}],
        });
        config.to_string()
    }

    /// Writes a kubeconfig with another address of the server.
    pub(super) fn kubeconfig_at(&self, user: &str, address: SocketAddr) -> PathBuf {
        let path = self.folder.join(format!("{user}-{}.kubeconfig", address.port()));
        fs::write(&path, self.kubeconfig_for(user, address)).unwrap();
        path
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.kubeconfig"))
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust.clone()
    }
}
