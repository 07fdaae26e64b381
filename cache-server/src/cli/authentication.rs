//! Flags of `cache-server serve` for authentication.

use std::path::PathBuf;

use clap::Args;

use super::CONNECTIONS;
use crate::config::{AuthenticationConfig, KeySource, OidcConfig, ServiceAccountsConfig};

/// Flags that say who callers are, and where they may come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct AuthenticationFlags {
    /// PEM file with the certificate authorities of clients: the common name of a client's certificate is its user, the
    /// organizations are its groups. Read again when it changes. Left out: client certificates are not read.
    #[arg(long, env = "CACHE_SERVER_CLIENT_CA_FILE", value_name = "FILE", requires = "tls_cert")]
    client_ca_file: Option<PathBuf>,

    /// File of static tokens in Kubernetes' CSV: token,user,uid,"group1,group2". Read again when it changes. Left out: none.
    #[arg(long, env = "CACHE_SERVER_TOKEN_AUTH_FILE", value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Issuer of service accounts' tokens, as in kube-apiserver's flag. Left out: such tokens are not verified here.
    #[arg(long, env = "CACHE_SERVER_SERVICE_ACCOUNT_ISSUER", value_name = "URL")]
    service_account_issuer: Option<String>,

    /// Public keys of that issuer as a JSON Web Key Set: a file, a URL, or upstream for the upstream's /openid/v1/jwks; or
    /// a file in PEM. Left out: the key of the signing key file, or the keys that the issuer announces.
    #[arg(
        long, env = "CACHE_SERVER_SERVICE_ACCOUNT_JWKS", value_name = "FILE|URL|upstream", value_parser = key_source,
        requires = "service_account_issuer"
    )]
    service_account_jwks: Option<KeySource>,

    /// PEM file with the private key (RSA, P-256, P-384) by which this server signs tokens of its own service accounts:
    /// serviceaccounts/token. Read again when it changes. Left out: it issues none.
    #[arg(
        long,
        env = "CACHE_SERVER_SERVICE_ACCOUNT_SIGNING_KEY_FILE",
        value_name = "FILE",
        requires = "service_account_issuer"
    )]
    #[cfg_attr(feature = "upstream", arg(conflicts_with = "upstream"))]
    service_account_signing_key_file: Option<PathBuf>,

    /// Audiences of this server, one of which a service account's token must have. Left out: the issuer.
    #[arg(long, env = "CACHE_SERVER_API_AUDIENCES", value_name = "NAME,…", value_delimiter = ',')]
    api_audiences: Vec<String>,

    /// Issuer of OpenID Connect tokens. Left out: such tokens are not verified here.
    #[arg(long, env = "CACHE_SERVER_OIDC_ISSUER_URL", value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer_url: Option<String>,

    /// Audience that such a token must have. Left out: none, and there is no issuer.
    #[arg(long, env = "CACHE_SERVER_OIDC_CLIENT_ID", value_name = "NAME", requires = "oidc_issuer_url")]
    oidc_client_id: Option<String>,

    /// Claim with the user's name.
    #[arg(long, env = "CACHE_SERVER_OIDC_USERNAME_CLAIM", value_name = "CLAIM", default_value = "sub")]
    oidc_username_claim: String,

    /// Prefix of the users' names; - for none. Left out: the issuer and #, but none for the claim email.
    #[arg(
        long,
        env = "CACHE_SERVER_OIDC_USERNAME_PREFIX",
        value_name = "PREFIX",
        requires = "oidc_issuer_url",
        allow_hyphen_values = true
    )]
    oidc_username_prefix: Option<String>,

    /// Claim with the user's groups. Left out: users have none.
    #[arg(long, env = "CACHE_SERVER_OIDC_GROUPS_CLAIM", value_name = "CLAIM", requires = "oidc_issuer_url")]
    oidc_groups_claim: Option<String>,

    /// Prefix of the groups. Left out: none.
    #[arg(long, env = "CACHE_SERVER_OIDC_GROUPS_PREFIX", value_name = "PREFIX", requires = "oidc_issuer_url")]
    oidc_groups_prefix: Option<String>,

    /// Public keys of that issuer as a JSON Web Key Set: a file or a URL. Left out: discovered at the issuer.
    #[arg(
        long, env = "CACHE_SERVER_OIDC_JWKS", value_name = "FILE|URL", value_parser = key_source,
        requires = "oidc_issuer_url"
    )]
    oidc_jwks: Option<KeySource>,

    /// PEM file with the certificate authorities of the servers from which keys are fetched. Left out: those of the system.
    #[arg(long, env = "CACHE_SERVER_OIDC_CA_FILE", value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,

    /// Ask the upstream's TokenReview, with this server's own identity, about tokens that no other flag decides. Left out:
    /// such tokens are not valid.
    #[arg(long, env = "CACHE_SERVER_TOKEN_REVIEW")]
    #[cfg_attr(feature = "upstream", arg(requires = "upstream"))]
    #[cfg_attr(not(feature = "upstream"), arg(hide = true))]
    token_review: bool,

    /// Serve callers without credentials on every address, as system:anonymous, and without TLS. Left out: on loopback only,
    /// and not even there if a flag above says who callers are and --authorization is left out.
    #[arg(long, env = "CACHE_SERVER_INSECURE_ANONYMOUS")]
    insecure_anonymous: bool,

    /// Listen on this Unix socket too, in plain HTTP. Its users are named after their uid: unix:uid:1000. Without other
    /// credentials, requests over TCP get 401. Left out: none.
    #[arg(long, env = "CACHE_SERVER_UNIX_SOCKET", value_name = "PATH", help_heading = CONNECTIONS)]
    unix_socket: Option<PathBuf>,

    /// Further host names by which clients may call this server, beside localhost, its address, and the names in its
    /// certificate. Left out: none.
    #[arg(
        long, env = "CACHE_SERVER_HOST", value_name = "NAME,…", value_delimiter = ',', help_heading = CONNECTIONS
    )]
    host: Vec<String>,
}

impl AuthenticationFlags {
    /// Returns the settings.
    pub(super) fn into_config(self) -> AuthenticationConfig {
        let (claim, prefix, groups) = (self.oidc_username_claim, self.oidc_username_prefix, self.oidc_groups_claim);
        let (groups_prefix, oidc_keys) = (self.oidc_groups_prefix, self.oidc_jwks);
        // clap requires both flags together.
        let oidc = self.oidc_issuer_url.zip(self.oidc_client_id).map(|(issuer_url, client_id)| OidcConfig {
            issuer_url,
            client_id,
            username_claim: claim,
            username_prefix: prefix,
            groups_claim: groups,
            groups_prefix: groups_prefix.unwrap_or_default(),
            keys: oidc_keys.unwrap_or_default(),
        });
        let signing_key = self.service_account_signing_key_file;
        let keys = self.service_account_jwks.or_else(|| signing_key.clone().map(KeySource::File)).unwrap_or_default();
        AuthenticationConfig {
            client_ca_file: self.client_ca_file,
            token_auth_file: self.token_auth_file,
            service_accounts: self.service_account_issuer.map(|issuer| ServiceAccountsConfig {
                issuer,
                keys,
                signing_key,
            }),
            oidc,
            oidc_ca_file: self.oidc_ca_file,
            api_audiences: self.api_audiences,
            token_review: self.token_review,
            insecure_anonymous: self.insecure_anonymous,
            unix_socket: self.unix_socket,
            hosts: self.host,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap's parsers return results")]
fn key_source(text: &str) -> Result<KeySource, String> {
    Ok(match text {
        "upstream" => KeySource::Upstream,
        url if url.contains("://") => KeySource::Url(url.to_owned()),
        path => KeySource::File(path.into()),
    })
}
