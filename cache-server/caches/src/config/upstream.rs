//! Settings of the connection to the API server that this server stands in front of.

use std::{path::PathBuf, time::Duration};

/// Source of the address, the certificate authority and the identity of an upstream API server.
///
/// A kubeconfig that is named is used. Otherwise a URL stands for itself. With neither, the kubeconfig in `KUBECONFIG`
/// or `~/.kube/config` is used if there is one, else the service account of this pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// URL of the API server. Replaces the server of the kubeconfig if both are given.
    pub url: Option<String>,
    /// URLs of the same cluster that are used while the first one does not answer. They share its certificate authority,
    /// server name and identity.
    pub further_urls: Vec<String>,
    /// Path of a kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    pub context: Option<String>,
    /// File with a bearer token, which is read again as it changes. Replaces the identity of the kubeconfig.
    pub token_file: Option<PathBuf>,
    /// PEM file with the certificate authorities of the API server, which is read again as it changes. Replaces those of
    /// the kubeconfig. Default for a bare URL: the authorities of the operating system.
    pub ca_file: Option<PathBuf>,
    /// URLs of other cache-servers in front of the same cluster, whose states fill empty caches. Requests to them carry
    /// this server's identity. Default none.
    pub peers: Vec<String>,
    /// PEM file with the certificate authorities of the peers. Default: those of the API server.
    pub peer_ca_file: Option<PathBuf>,
    /// True if the server listens only once all named types are filled. Default false.
    pub listens_when_ready: bool,
    /// The types to cache, as `pods` or `deployments.apps`. Default empty: every type on first use, but Secrets.
    pub resources: Vec<String>,
    /// Types of which only a part is cached: the type, and the field selector of the part.
    pub scopes: Vec<(String, String)>,
    /// True if reads outside the cached part of a type are refused. Default false: they are passed on.
    pub refuses_outside: bool,
    /// Maximum age of the API server's confirmation that a read without a resourceVersion accepts. Default zero: each
    /// such read waits for a confirmation of its own.
    pub max_staleness: Duration,
    /// True if this server's own account acts as the users that only this server knows, where a request is passed on.
    /// Default false: such requests are refused.
    pub impersonates: bool,
    /// Folder in which the caches are saved, so that a restart resumes. Default `None`: they are lost with the process.
    pub state_dir: Option<PathBuf>,
    /// True if cached Secrets are saved as well, in plain text. Default false.
    pub saves_secrets: bool,
}
