//! Flags of `cache-server serve` for the API server behind it.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use informer_core::selector::field;

use super::{COMMON, STORAGE, units};
use crate::{config::UpstreamConfig, limits::STALENESS_MAX};

/// Flags that put this server in front of an API server.
#[derive(Debug, Args)]
#[command(next_help_heading = "In front of an API server")]
pub(super) struct UpstreamFlags {
    /// Serve from caches of another API server, and pass everything else on to it with the callers' own credentials.
    /// Without URL: the cluster of the kubeconfig, else that of this pod. Several URLs, by commas, are addresses of one
    /// cluster. Left out: this server keeps the objects itself.
    #[arg(
        long, env = "CACHE_SERVER_UPSTREAM", value_name = "URL", num_args = 0..=1, default_missing_value = "",
        value_delimiter = ',', group = STORAGE, help_heading = COMMON, display_order = 4
    )]
    #[cfg_attr(feature = "embedded", arg(conflicts_with_all = ["load", "first_revision"]))]
    #[cfg_attr(all(feature = "embedded", feature = "workload"), arg(conflicts_with = "populate"))]
    upstream: Option<Vec<String>>,

    /// Kubeconfig with the cluster and with this server's own identity, which fills the caches. Left out:
    /// $KUBECONFIG, else ~/.kube/config, else the service account of this pod.
    #[arg(long, env = "CACHE_SERVER_KUBECONFIG", value_name = "FILE", requires = "upstream")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Left out: its current one.
    #[arg(long, env = "CACHE_SERVER_CONTEXT", value_name = "NAME", requires = "upstream")]
    context: Option<String>,

    /// File with a bearer token that is this server's own identity. Read again when it changes. Left out: the identity
    /// of the kubeconfig.
    #[arg(long, env = "CACHE_SERVER_UPSTREAM_TOKEN_FILE", value_name = "FILE", requires = "upstream")]
    upstream_token_file: Option<PathBuf>,

    /// PEM file with the certificate authorities of the API server. Read again when it changes. Left out: those of the
    /// kubeconfig, else of the system.
    #[arg(long, env = "CACHE_SERVER_UPSTREAM_CA", value_name = "FILE", requires = "upstream")]
    upstream_ca: Option<PathBuf>,

    /// Other cache-servers in front of the same cluster, over HTTPS or on loopback. An empty cache is filled from one of
    /// them, and from the API server if no peer has the type. Requests to peers carry this server's own identity, which
    /// must be a token. Left out: every cache is filled from the API server.
    #[arg(long, env = "CACHE_SERVER_PEER", value_name = "URL,…", value_delimiter = ',', requires = "upstream")]
    peer: Vec<String>,

    /// PEM file with the certificate authorities of the peers. Left out: those of the API server.
    #[arg(long, env = "CACHE_SERVER_PEER_CA", value_name = "FILE", requires = "peer")]
    peer_ca: Option<PathBuf>,

    /// Listen only once the caches of all types in --resources are filled, so that clients stay connected to another
    /// replica until then. Left out: requests for a type that is not filled get 429, and /readyz fails.
    #[arg(long, env = "CACHE_SERVER_LISTEN_WHEN_READY", requires = "resources")]
    listen_when_ready: bool,

    /// Types to cache, such as pods,nodes,deployments.apps; others are passed on. Left out: every type on first use,
    /// but Secrets.
    #[arg(long, env = "CACHE_SERVER_RESOURCES", value_name = "TYPE,…", value_delimiter = ',', requires = "upstream")]
    resources: Vec<String>,

    /// Cache only the part of a type that a field selector chooses, such as pods=spec.nodeName=node-1. May be repeated.
    #[arg(long, env = "CACHE_SERVER_SCOPE", value_name = "TYPE=SELECTOR", value_parser = scope, requires = "upstream")]
    scope: Vec<(String, String)>,

    /// Refuse reads outside the part of a type that is cached. Left out: they are passed on.
    #[arg(long, env = "CACHE_SERVER_REFUSE_OUTSIDE_SCOPE", requires = "scope")]
    refuse_outside_scope: bool,

    /// Answer lists and watches without resourceVersion from the cache if the API server confirmed it less than this time
    /// ago, such as 5s; at most 1m. Such answers can lack writes of that time. Left out: each answer waits until the API
    /// server has confirmed the cache.
    #[arg(
        long, env = "CACHE_SERVER_MAX_STALENESS", value_name = "TIME", value_parser = staleness, requires = "upstream"
    )]
    max_staleness: Option<Duration>,

    /// Pass requests of users that only this server knows (client certificates, tokens of --token-auth-file) on with this
    /// server's own identity, which acts as them: it needs the right to impersonate. Left out: such requests get 403,
    /// unless a cache answers them.
    #[arg(long, env = "CACHE_SERVER_UPSTREAM_IMPERSONATE", requires = "upstream")]
    upstream_impersonate: bool,

    /// Folder in which the caches are saved, so that after a restart clients resume and nothing is listed. Only one
    /// server may use it. Left out: the caches are lost with the process.
    #[arg(long, env = "CACHE_SERVER_STATE_DIR", value_name = "FOLDER", requires = "upstream")]
    state_dir: Option<PathBuf>,

    /// Save cached Secrets as well, in plain text. Left out: they are not saved.
    #[arg(long, env = "CACHE_SERVER_STATE_SECRETS", requires = "state_dir")]
    state_secrets: bool,
}

impl UpstreamFlags {
    /// Returns the settings; `None` if this server keeps the objects itself.
    pub(super) fn into_config(self) -> Option<UpstreamConfig> {
        let mut urls = self.upstream?.into_iter().filter(|url| !url.is_empty());
        Some(UpstreamConfig {
            url: urls.next(),
            further_urls: urls.collect(),
            kubeconfig: self.kubeconfig,
            context: self.context,
            token_file: self.upstream_token_file,
            ca_file: self.upstream_ca,
            peers: self.peer,
            peer_ca_file: self.peer_ca,
            listens_when_ready: self.listen_when_ready,
            resources: self.resources,
            scopes: self.scope,
            refuses_outside: self.refuse_outside_scope,
            max_staleness: self.max_staleness.unwrap_or_default(),
            impersonates: self.upstream_impersonate,
            state_dir: self.state_dir,
            saves_secrets: self.state_secrets,
        })
    }
}

fn staleness(text: &str) -> Result<Duration, String> {
    let bounded =
        |time| if time <= STALENESS_MAX { Ok(time) } else { Err(format!("must be at most {STALENESS_MAX:?}")) };
    units::duration(text).and_then(bounded)
}

fn scope(text: &str) -> Result<(String, String), String> {
    let (ty, selector) = text.split_once('=').ok_or("has no TYPE=SELECTOR")?;
    if ty.is_empty() || selector.is_empty() {
        return Err("has no TYPE=SELECTOR".to_owned());
    }
    field::Selector::parse(selector).map_err(|error| error.to_string())?;
    Ok((ty.to_owned(), selector.to_owned()))
}
