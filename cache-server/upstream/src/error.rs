//! Reasons why an API server cannot be used.

use std::{io, path::PathBuf};

use crate::limits::{PEERS_MAX, UPSTREAM_ADDRESSES_MAX};

/// Reason why the upstream API server cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Neither a flag nor the environment names a cluster.
    #[error("no upstream is known: no URL was given, {kubeconfig}, and this is no pod: {pod}")]
    NotFound {
        /// The problem of the kubeconfig.
        kubeconfig: String,
        /// The problem of the service account.
        pod: String,
    },
    /// A kubeconfig cannot be used.
    #[error("{kubeconfig}: {problem}")]
    Kubeconfig {
        /// Path of the kubeconfig, or the words for the default one.
        kubeconfig: String,
        /// The problem, without any of the file's content.
        problem: String,
    },
    /// A URL cannot be used.
    #[error("the upstream URL {url}: {problem}")]
    Url {
        /// The URL, without user name and password.
        url: String,
        /// The problem.
        problem: &'static str,
    },
    /// More URLs than [`UPSTREAM_ADDRESSES_MAX`].
    #[error("there are {count} upstream URLs; at most {UPSTREAM_ADDRESSES_MAX} are used")]
    TooManyUrls {
        /// Number of URLs.
        count: usize,
    },
    /// More peers than [`PEERS_MAX`].
    #[error("there are {count} peers; at most {PEERS_MAX} are used")]
    TooManyPeers {
        /// Number of peers.
        count: usize,
    },
    /// The cached part of a type cannot be used.
    #[error("the scope of {ty}: {problem}")]
    Scope {
        /// The type.
        ty: String,
        /// The problem.
        problem: &'static str,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file has unusable content.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// The problem, without any of the file's content.
        problem: &'static str,
    },
    /// kube rejects the identity or the certificates.
    #[error("cannot connect to {server}: {problem}")]
    Client {
        /// URL of the server.
        server: String,
        /// The problem.
        problem: String,
    },
}

/// Problem of a setting that names an unknown type.
pub const NO_SUCH_TYPE: &str = "there is no such type; give its plural and group, such as deployments.apps";

/// Strips user name and password from a URL, so that it can be printed.
pub(super) fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (_, None) => url.to_owned(),
    }
}
