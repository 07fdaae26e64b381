//! Connections to the upstream API server: clients with our identity, and addresses for callers without it.
//!
//! INVARIANT: the addresses for callers hold no client certificate, token or header of this server. Addresses with its
//! certificate exist only if the settings let its account act as users ([`OwnAddresses`]).
//!
//! Proxies of kubeconfigs and of the environment are not used: the upstream is one hop away.

mod dial;
mod token_file;

use std::{fmt, io, path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{
    HeaderMap, HeaderValue, Request, Response, Uri,
    header::CACHE_CONTROL,
    uri::{self, PathAndQuery, Scheme},
};
use http_body_util::Empty;
use informer_core::text::Chain;
use kube::{
    client::{ClientBuilder, ConfigExt as _, middleware::AuthLayer},
    config::{AuthInfo, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn, util::MapRequestLayer};

pub use self::dial::{ConnectionUse, Dial};
use self::token_file::TokenFile;
use crate::{
    config::UpstreamConfig,
    error::{NO_SUCH_TYPE, UpstreamError, without_user},
    limits::{PEERS_MAX, UPSTREAM_ADDRESSES_MAX},
    registry::Registry,
    watched::FileWatcher,
};

/// The upstream API server as its users need it.
pub struct UpstreamAddresses {
    /// A client with our identity for each address, in order of preference; at least one. They do not retry.
    pub clients: Vec<kube::Client>,
    /// The same addresses, for the requests of callers.
    pub callers: Vec<CallerAddress>,
    /// The same addresses with our identity, for requests in which it acts as a user; `None` unless the settings want that.
    pub own: Option<OwnAddresses>,
    /// A client with our identity for each peer. Peers answer it from their caches only.
    pub peers: Vec<kube::Client>,
}

impl fmt::Debug for UpstreamAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpstreamAddresses").field(&self.callers).finish()
    }
}

/// Addresses of the upstream API server with our identity.
pub struct OwnAddresses {
    /// Their connections have our client certificate, if that is our identity.
    pub addresses: Vec<CallerAddress>,
    pub identity: OwnIdentity,
}

/// Our identity in headers.
pub enum OwnIdentity {
    /// None: a client certificate.
    Connection,
    File(TokenFile),
    /// A token that is kept or renewed as kube does.
    Kube(AuthLayer),
}

/// One address of the upstream API server, to which requests of callers are passed on.
#[derive(Clone)]
pub struct CallerAddress {
    pub scheme: Scheme,
    /// Host and port, as the URL names them.
    pub authority: uri::Authority,
    /// Path before that of every request, without a slash at its end; usually empty.
    pub prefix: String,
    /// Host header of every request.
    pub host: HeaderValue,
    /// Opens connections to it.
    pub dial: Dial,
}

impl fmt::Debug for CallerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

impl UpstreamAddresses {
    /// Returns the URL of the first address, without user name and password.
    pub fn origin(&self) -> String {
        self.callers.first().map(|caller| format!("{caller:?}")).unwrap_or_default()
    }

    /// Reads the configuration, the certificates and the identity; runs a kubeconfig's exec plugin. Connects to no
    /// server. `files` checks the token's file for changes.
    ///
    /// # Errors
    /// [`UpstreamError`] names the file or URL and the problem.
    pub async fn load(config: &UpstreamConfig, files: &FileWatcher) -> Result<Self, UpstreamError> {
        let count = 1 + config.further_urls.len();
        if count > UPSTREAM_ADDRESSES_MAX {
            return Err(UpstreamError::TooManyUrls { count });
        }
        check_scopes(&config.scopes)?;
        let mut first = kube_config(config).await?;
        let token = TokenFile::take(&mut first.auth_info, files).await?;
        let mut configs = vec![first];
        for url in &config.further_urls {
            let mut further = configs[0].clone();
            further.cluster_url = parse_url(url)?;
            configs.push(further);
        }
        let peers = peers(config, &configs[0], token.as_ref())?;
        let callers = configs.iter().map(CallerAddress::without_identity).collect::<Result<_, _>>()?;
        let own = if config.impersonates { Some(OwnAddresses::new(&configs, token.as_ref())?) } else { None };
        let clients = configs.into_iter().map(|config| client(config, token.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { clients, callers, own, peers })
    }
}

impl OwnAddresses {
    fn new(configs: &[kube::Config], token: Option<&TokenFile>) -> Result<Self, UpstreamError> {
        let first = &configs[0];
        let failed = |problem| UpstreamError::Client { server: first.cluster_url.to_string(), problem };
        if first.auth_info.impersonate.is_some() {
            let problem = "the identity of the kubeconfig acts as another user already, and cannot act as callers";
            return Err(failed(problem.to_owned()));
        }
        let identity = match token {
            Some(token) => OwnIdentity::File(token.clone()),
            None => OwnIdentity::of_kube(first)?,
        };
        let addresses = configs.iter().map(CallerAddress::new).collect::<Result<_, _>>()?;
        Ok(Self { addresses, identity })
    }
}

impl OwnIdentity {
    fn of_kube(config: &kube::Config) -> Result<Self, UpstreamError> {
        let layer = config.auth_layer().map_err(|error| UpstreamError::Client {
            server: config.cluster_url.to_string(),
            problem: Chain(&error).to_string(),
        })?;
        Ok(layer.map_or(Self::Connection, Self::Kube))
    }

    /// Returns the headers of a request with our identity. Renews a token that has expired.
    ///
    /// # Errors
    /// The problem of the token's source, in one line.
    pub async fn headers(&self) -> Result<HeaderMap, String> {
        let layer = match self {
            Self::Connection => return Ok(HeaderMap::new()),
            Self::File(file) => {
                let mut headers = HeaderMap::new();
                file.set(&mut headers);
                return Ok(headers);
            }
            Self::Kube(layer) => layer,
        };
        let echo = |request: Request<Empty<Bytes>>| async move {
            let mut echo = Response::new(());
            *echo.headers_mut() = request.into_parts().0.headers;
            Ok::<_, BoxError>(echo)
        };
        // Boxed: the compiler cannot prove that the layer's own future is `Send` for every lifetime.
        let reading: BoxFuture<'static, Result<Response<()>, BoxError>> =
            Box::pin(layer.layer(service_fn(echo)).oneshot(Request::new(Empty::new())));
        reading.await.map(|echo| echo.into_parts().0.headers).map_err(|error| Chain(&*error).to_string())
    }
}

impl CallerAddress {
    /// Strips everything from `config` that identifies us.
    fn without_identity(config: &kube::Config) -> Result<Self, UpstreamError> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        Self::new(&bare)
    }

    /// Connections have the client certificate of `config`, if there is one.
    fn new(config: &kube::Config) -> Result<Self, UpstreamError> {
        let server = config.cluster_url.to_string();
        let failed =
            |problem: &dyn fmt::Display| UpstreamError::Client { server: server.clone(), problem: problem.to_string() };
        let parts = config.cluster_url.clone().into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(UpstreamError::Url { url: server, problem: NO_HOST });
        };
        let tls = if scheme == Scheme::HTTPS {
            let mut tls = config.rustls_client_config().map_err(|error| failed(&error))?;
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            let name = config.tls_server_name.as_deref().unwrap_or_else(|| authority.host());
            let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
            Some((Arc::new(tls), name.map_err(|error| failed(&error))?))
        } else {
            None
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| failed(&error))?;
        let prefix = config.cluster_url.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, authority, prefix, host, dial: Dial::new(tls) })
    }
}

impl CallerAddress {
    /// The URI of a request.
    pub fn uri(&self, path_and_query: &PathAndQuery) -> Uri {
        let path_and_query = if self.prefix.is_empty() {
            path_and_query.clone()
        } else {
            let joined = format!("{}{path_and_query}", self.prefix);
            joined.parse().expect("a path behind a path is a path")
        };
        let mut parts = uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        Uri::from_parts(parts).expect("all three parts are there")
    }
}

/// Builds the client with our identity: the one in `config`, and the token of a file.
pub(super) fn client(mut config: kube::Config, token: Option<&TokenFile>) -> Result<kube::Client, UpstreamError> {
    let server = config.cluster_url.to_string();
    // The SDK decides about retries.
    config.default_retry = false;
    let client = ClientBuilder::try_from(config)
        .map_err(|error| UpstreamError::Client { server, problem: Chain(&error).to_string() })?;
    let Some(token) = token.cloned() else { return Ok(client.build()) };
    let identified = MapRequestLayer::new(move |mut request: Request<kube::client::Body>| {
        token.set(request.headers_mut());
        request
    });
    Ok(client.with_layer(&identified).build())
}

/// Builds the clients of the peers: `upstream` with their addresses and authorities.
fn peers(
    config: &UpstreamConfig,
    upstream: &kube::Config,
    token: Option<&TokenFile>,
) -> Result<Vec<kube::Client>, UpstreamError> {
    let count = config.peers.len();
    if count > PEERS_MAX {
        return Err(UpstreamError::TooManyPeers { count });
    }
    let mut common = upstream.clone();
    common.tls_server_name = None;
    // A peer could not pass a certificate on to the API server.
    let identity = &mut common.auth_info;
    (identity.client_certificate, identity.client_certificate_data) = (None, None);
    (identity.client_key, identity.client_key_data) = (None, None);
    common.headers.push((CACHE_CONTROL, HeaderValue::from_static(ONLY_IF_CACHED)));
    if let Some(path) = &config.peer_ca_file {
        common.root_cert = Some(authorities(path)?);
        common.root_cert_file = Some(path.clone());
    }
    let peer = |url: &String| {
        let cluster_url = parse_url(url)?;
        if cluster_url.scheme() == Some(&Scheme::HTTP) && !is_loopback(&cluster_url) {
            let problem = "this server's token would be sent to it in clear: use https";
            return Err(UpstreamError::Url { url: without_user(url), problem });
        }
        let mut config = common.clone();
        config.cluster_url = cluster_url;
        client(config, token)
    };
    config.peers.iter().map(peer).collect()
}

/// Refuses scopes that no discovery could make right: of types that are named twice, and of types of the core group that
/// do not exist. Only definitions add types, and their groups have names.
fn check_scopes(scopes: &[(String, String)]) -> Result<(), UpstreamError> {
    let builtin = Registry::builtin();
    for (at, (ty, _)) in scopes.iter().enumerate() {
        let problem = if scopes[..at].iter().any(|(before, _)| before == ty) {
            "a type has one scope: join the selectors by commas"
        } else if !ty.contains('.') && builtin.by_id(ty).is_none() {
            NO_SUCH_TYPE
        } else {
            continue;
        };
        return Err(UpstreamError::Scope { ty: ty.clone(), problem });
    }
    Ok(())
}

pub(super) fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Loads the configuration of the first address.
async fn kube_config(config: &UpstreamConfig) -> Result<kube::Config, UpstreamError> {
    let options = KubeConfigOptions { context: config.context.clone(), ..KubeConfigOptions::default() };
    let mut loaded = match (&config.kubeconfig, &config.url) {
        (Some(path), _) => from_kubeconfig(&path.display().to_string(), Kubeconfig::read_from(path), &options).await?,
        (None, Some(url)) if config.context.is_none() => kube::Config::new(parse_url(url)?),
        (None, _) => match Kubeconfig::read() {
            Err(error) if is_absent(&error) && config.context.is_none() => {
                kube::Config::incluster().map_err(|pod| UpstreamError::NotFound {
                    kubeconfig: problem(&error),
                    pod: in_cluster_problem(&pod),
                })?
            }
            read => from_kubeconfig("the default kubeconfig", read, &options).await?,
        },
    };
    if let Some(url) = &config.url {
        loaded.cluster_url = parse_url(url)?;
    }
    check(&loaded.cluster_url)?;
    if let Some(path) = &config.token_file {
        let token_file = Some(path.display().to_string());
        loaded.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
    }
    if let Some(path) = &config.ca_file {
        loaded.root_cert = Some(authorities(path)?);
        loaded.root_cert_file = Some(path.clone());
    }
    if loaded.proxy_url.take().is_some() {
        tracing::warn!(server = %loaded.cluster_url, "upstream proxy ignored");
    }
    Ok(loaded)
}

async fn from_kubeconfig(
    kubeconfig: &str,
    read: Result<Kubeconfig, KubeconfigError>,
    options: &KubeConfigOptions,
) -> Result<kube::Config, UpstreamError> {
    let failed = |error| UpstreamError::Kubeconfig { kubeconfig: kubeconfig.to_owned(), problem: problem(&error) };
    kube::Config::from_custom_kubeconfig(read.map_err(failed)?, options).await.map_err(failed)
}

/// Returns true if there is no kubeconfig.
fn is_absent(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::FindPath)
        || matches!(error, KubeconfigError::ReadConfig(error, _) if error.kind() == io::ErrorKind::NotFound)
}

/// The problem of a kubeconfig. Omits the parser's text, which quotes the file.
#[expect(clippy::wildcard_enum_match_arm, reason = "kube's own texts are good enough for the rest")]
fn problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::FindPath => "there is no home folder with a kubeconfig".to_owned(),
        KubeconfigError::ReadConfig(error, path) => format!("cannot read {}: {error}", path.display()),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig in YAML: line {}, column {}", at.line(), at.column()),
            None => "it is no kubeconfig in YAML".to_owned(),
        },
        KubeconfigError::CurrentContextNotSet => "it has no current context, and none was named".to_owned(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        other => Chain(other).to_string(),
    }
}

fn in_cluster_problem(error: &InClusterError) -> String {
    if let InClusterError::ReadEnvironmentVariable(_) = error {
        return "KUBERNETES_SERVICE_HOST is not set".to_owned();
    }
    Chain(error).to_string()
}

/// Directive of Cache-Control in requests to peers, which then answer from their caches or with 504 (RFC 9111, 5.2.1.7).
pub const ONLY_IF_CACHED: &str = "only-if-cached";

const NO_HOST: &str = "it needs a scheme and a host, such as https://10.0.0.1:6443";

pub(super) fn parse_url(url: &str) -> Result<Uri, UpstreamError> {
    let parsed: Uri = url.parse().map_err(|_| UpstreamError::Url { url: without_user(url), problem: NO_HOST })?;
    check(&parsed)?;
    Ok(parsed)
}

fn check(url: &Uri) -> Result<(), UpstreamError> {
    let refused = |problem| Err(UpstreamError::Url { url: without_user(&url.to_string()), problem });
    match (url.scheme_str(), url.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            refused("a URL holds no password here: use a kubeconfig or a token file")
        }
        (Some("http" | "https"), Some(_)) if url.query().is_some() => refused("it must have no query"),
        (Some("http" | "https"), Some(_)) => Ok(()),
        (_, _) => refused(NO_HOST),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UpstreamError> {
    crate::watched::read(path).map_err(|source| UpstreamError::File { path: path.to_owned(), source })
}

/// Reads the certificates of a PEM file.
pub(super) fn authorities(path: &Path) -> Result<Vec<Vec<u8>>, UpstreamError> {
    let content = |problem| UpstreamError::Content { path: path.to_owned(), problem };
    let found = CertificateDer::pem_slice_iter(&read(path)?)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| content("it is not well-formed PEM"))?;
    if found.is_empty() { Err(content("there is no certificate in it")) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
