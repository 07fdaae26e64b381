//! Files with credentials and trust: detects changed ones, and finds the CA file that kube forgets.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    differences,
    kube::{Config, config::Kubeconfig},
};
use crate::checkpoint::digest;

/// Digest of the files of the client certificate and of the CA; `None` if there are none, or if one cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CredentialFiles(Option<u64>);

impl CredentialFiles {
    /// Reads the files. Blocks.
    pub(super) fn read(config: &Config) -> Self {
        let auth = &config.auth_info;
        let certificate = [&auth.client_certificate, &auth.client_key].into_iter().flatten().map(Path::new);
        let mut contents = Vec::new();
        for path in certificate.chain(differences::authority_file(config)) {
            let Ok(bytes) = fs::read(path) else { return Self(None) };
            contents.extend(bytes);
        }
        Self((!contents.is_empty()).then(|| digest(&contents)))
    }

    pub(super) const fn exist(self) -> bool {
        self.0.is_some()
    }
}

/// Lets the CA file of the current kubeconfig be read again. kube keeps its contents, and forgets its path.
pub(super) fn with_authority_file(mut config: Config) -> Config {
    if differences::authority_file(&config).is_none()
        && config.root_cert.is_some()
        && let Some(file) = authority_file(&config)
    {
        differences::set_authority_file(&mut config, file);
    }
    config
}

/// The CA file of the current context, if its cluster is that of `config`.
fn authority_file(config: &Config) -> Option<PathBuf> {
    let kubeconfig = Kubeconfig::read().ok()?;
    let context = kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let cluster = &context?.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == *cluster)?.cluster.as_ref()?;
    let is_file = cluster.certificate_authority_data.is_none();
    let server = cluster.server.as_ref()?.parse::<http::Uri>().ok()?;
    let file = cluster.certificate_authority.as_ref()?;
    (is_file && server == config.cluster_url).then(|| file.into())
}
