//! The authenticator from its settings.

use std::{path::Path, sync::Arc};

use access_rules::{
    authentication::claims::{AccountRules, OidcRules},
    user::User,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Uri};
use serde::Deserialize;

use super::{
    AnonymousOrigin, Authenticator, Caller,
    certificates::ClientAuthorities,
    keys::{self, FetchKeys, FetchedKeys, IssuerKeys},
    reviews::TokenReviews,
    signer::{self, TokenSigner},
    tokens::{self, IssuerRules, TokenAuthenticator, TokenDeciders, TrustedIssuer},
};
use crate::{
    config::{AuthenticationConfig, KeySource, ServiceAccountsConfig},
    limits::{JWKS_BYTES_MAX, JWKS_WAIT},
    metrics::AuthenticationMetrics,
    upstream::{
        error::UpstreamError,
        own_requests::{AnswerBounds, SendOwn},
        sender::OwnRequests,
    },
    watched::{AccessFileError, FileWatcher, WatchedFile},
};

/// Reason why the settings of authentication cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] AccessFileError),
    /// A URL, or the authorities for it, cannot be used.
    #[error(transparent)]
    Url(#[from] UpstreamError),
    /// Keys of the upstream are wanted, or its reviews, but there is none.
    #[error("{0} needs --upstream")]
    NoUpstream(&'static str),
}

impl Authenticator {
    /// Reads the files of the settings, which `files` checks from now on. `upstream` sends requests with this server's own identity. `is_open`: nothing decides
    /// about rights, so that callers need no identity unless the settings give them one.
    ///
    /// # Errors
    /// [`AuthenticationError`] names the file or URL and the problem.
    pub async fn load(
        config: &AuthenticationConfig,
        upstream: Option<&OwnRequests>,
        metrics: AuthenticationMetrics,
        is_open: bool,
        files: &FileWatcher,
    ) -> Result<Self, AuthenticationError> {
        let authorities = match &config.client_ca_file {
            Some(path) => Some(Arc::new(ClientAuthorities::load(path, files).await?)),
            None => None,
        };
        let own = config.service_accounts.as_ref().map(|accounts| accounts.issuer.clone());
        let audiences =
            if config.api_audiences.is_empty() { own.into_iter().collect() } else { config.api_audiences.clone() };
        // An API server behind this one knows callers of both sockets by their own credentials.
        let names_callers = if upstream.is_some() { config.is_configured() } else { config.names_callers() };
        let unsecured = is_open && !names_callers && !config.insecure_anonymous;
        Ok(Self {
            unsecured: unsecured.then(|| Caller::without_credentials(User::unsecured())),
            anonymous: Caller::without_credentials(User::anonymous()),
            anonymous_from: match (config.insecure_anonymous, is_open) {
                (true, _) => AnonymousOrigin::Anywhere,
                // A setting that names credentials means that callers need them, unless an authorizer decides.
                (false, true) => AnonymousOrigin::Nowhere,
                (false, false) => AnonymousOrigin::ThisMachine,
            },
            authorities,
            tokens: match config.reads_tokens() {
                true => Some(token_authenticator(config, upstream, files).await?),
                false => None,
            },
            signer: match &config.service_accounts {
                Some(ServiceAccountsConfig { issuer, signing_key: Some(path), .. }) => {
                    let key = WatchedFile::load(files, path, signer::parse).await?;
                    Some(TokenSigner { issuer: issuer.clone(), audiences: audiences.clone(), key })
                }
                Some(_) | None => None,
            },
            audiences,
            metrics,
        })
    }
}

async fn token_authenticator(
    config: &AuthenticationConfig,
    upstream: Option<&OwnRequests>,
    files: &FileWatcher,
) -> Result<TokenAuthenticator, AuthenticationError> {
    let file = match &config.token_auth_file {
        Some(path) => Some(WatchedFile::load(files, path, tokens::parse).await?),
        None => None,
    };
    let sources = KeySources { ca_file: config.oidc_ca_file.as_deref(), upstream, files };
    let mut issuers = Vec::new();
    if let Some(accounts) = &config.service_accounts {
        let own = std::slice::from_ref(&accounts.issuer);
        let audiences = if config.api_audiences.is_empty() { own } else { &config.api_audiences };
        let rules = AccountRules { issuer: accounts.issuer.clone(), audiences: audiences.to_vec() };
        let keys = sources.keys_of(&accounts.issuer, &accounts.keys).await?;
        issuers.push(TrustedIssuer { rules: IssuerRules::Accounts(rules), keys });
    }
    if let Some(oidc) = &config.oidc {
        let rules = OidcRules {
            issuer: oidc.issuer_url.clone(),
            client_id: oidc.client_id.clone(),
            username_claim: oidc.username_claim.clone(),
            username_prefix: oidc.username_prefix.clone(),
            groups_claim: oidc.groups_claim.clone(),
            groups_prefix: oidc.groups_prefix.clone(),
        };
        let keys = sources.keys_of(&oidc.issuer_url, &oidc.keys).await?;
        issuers.push(TrustedIssuer { rules: IssuerRules::Oidc(rules), keys });
    }
    let reviews = if config.token_review {
        let upstream = upstream.ok_or(AuthenticationError::NoUpstream("--token-review"))?;
        Some(TokenReviews::new(Arc::new(upstream.clone()), config.api_audiences.clone()))
    } else {
        None
    };
    Ok(TokenAuthenticator::new(file, TokenDeciders { issuers, reviews }))
}

/// Sources of the keys of issuers.
struct KeySources<'a> {
    /// Authorities of the servers that keys are fetched from.
    ca_file: Option<&'a Path>,
    upstream: Option<&'a OwnRequests>,
    files: &'a FileWatcher,
}

impl KeySources<'_> {
    async fn keys_of(&self, issuer: &str, source: &KeySource) -> Result<IssuerKeys, AuthenticationError> {
        let ca_file = self.ca_file;
        let source: Box<dyn FetchKeys> = match source {
            KeySource::File(path) => {
                return Ok(IssuerKeys::File(WatchedFile::load(self.files, path, keys::parse).await?));
            }
            KeySource::Url(url) => {
                Box::new(KeyDocument { requests: OwnRequests::anonymous(url, ca_file)?, path: target_of(url) })
            }
            KeySource::Upstream => {
                let no_upstream = AuthenticationError::NoUpstream("--service-account-jwks upstream");
                let requests = self.upstream.ok_or(no_upstream)?.clone();
                Box::new(KeyDocument { requests, path: "/openid/v1/jwks".to_owned() })
            }
            KeySource::Discovered => Box::new(DiscoveredSource {
                requests: OwnRequests::anonymous(issuer, ca_file)?,
                issuer: issuer.to_owned(),
                ca_file: ca_file.map(Path::to_owned),
            }),
            _ => unreachable!("crates of one version know the same sources"),
        };
        Ok(IssuerKeys::Fetched(FetchedKeys::new(source, issuer.to_owned())))
    }
}

/// Path of a URL, with a slash at least.
fn path_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    uri.map_or_else(|| "/".to_owned(), |uri| uri.path().to_owned())
}

/// Path and query of a URL. Some issuers tell the keys of several policies apart by the query.
fn target_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let target = uri.as_ref().and_then(Uri::path_and_query);
    target.map_or_else(|| "/".to_owned(), ToString::to_string)
}

/// Keys at one path.
struct KeyDocument {
    requests: OwnRequests,
    path: String,
}

impl FetchKeys for KeyDocument {
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, String>> {
        Box::pin(get(&self.requests, &self.path))
    }
}

/// Keys at the path that the issuer's configuration names.
struct DiscoveredSource {
    requests: OwnRequests,
    issuer: String,
    ca_file: Option<std::path::PathBuf>,
}

/// The part of an issuer's configuration that leads to its keys.
#[derive(Deserialize)]
struct ProviderDocument {
    issuer: String,
    jwks_uri: String,
}

impl FetchKeys for DiscoveredSource {
    fn fetch(&self) -> BoxFuture<'_, Result<Bytes, String>> {
        Box::pin(async {
            let path = format!("{}/.well-known/openid-configuration", path_of(&self.issuer).trim_end_matches('/'));
            let document = get(&self.requests, &path).await?;
            let document: ProviderDocument = serde_json::from_slice(&document)
                .map_err(|_| "the issuer's configuration names no issuer and no keys".to_owned())?;
            if document.issuer != self.issuer {
                return Err("the issuer's configuration is that of another issuer".to_owned());
            }
            let keys = OwnRequests::anonymous(&document.jwks_uri, self.ca_file.as_deref());
            let keys = keys.map_err(|error| error.to_string())?;
            get(&keys, &target_of(&document.jwks_uri)).await
        })
    }
}

async fn get(requests: &OwnRequests, path: &str) -> Result<Bytes, String> {
    let bounds = AnswerBounds { bytes_max: JWKS_BYTES_MAX, wait: JWKS_WAIT };
    let (code, body) =
        requests.send(Method::GET, path, Bytes::new(), bounds).await.map_err(|error| error.to_string())?;
    if code.is_success() { Ok(body) } else { Err(format!("{path} was answered {}", code.as_u16())) }
}
