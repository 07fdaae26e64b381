//! Settings of authentication, and of the addresses that need it.

use std::path::PathBuf;

/// Ways in which callers prove their identity. Without any of them, every caller is the same user, and the server listens
/// on loopback only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// PEM file with the authorities of client certificates, which is read again as it changes. Default none.
    pub client_ca_file: Option<PathBuf>,
    /// File of static tokens in Kubernetes' CSV, which is read again as it changes. Default none.
    pub token_auth_file: Option<PathBuf>,
    /// Issuer of service accounts' tokens. Default none.
    pub service_accounts: Option<ServiceAccountsConfig>,
    /// Provider of OpenID Connect. Default none.
    pub oidc: Option<OidcConfig>,
    /// PEM file with the authorities of the servers from which keys of tokens are fetched. Default: those of the operating
    /// system.
    pub oidc_ca_file: Option<PathBuf>,
    /// Audiences of this server. Default: the issuer of service accounts' tokens.
    pub api_audiences: Vec<String>,
    /// True if the upstream's TokenReview is asked about tokens that nothing else decides. Default false.
    pub token_review: bool,
    /// True if callers without credentials are served on every address. Default false: on loopback only, and where there
    /// are credentials, only if an authorizer decides about rights.
    pub insecure_anonymous: bool,
    /// Path of a Unix socket to listen on as well, whose callers are known by their process. Default none.
    pub unix_socket: Option<PathBuf>,
    /// Further names and addresses by which clients may call this server. Default none.
    pub hosts: Vec<String>,
}

/// The issuer of service accounts' tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountsConfig {
    /// Issuer in the tokens.
    pub issuer: String,
    /// Source of its keys.
    pub keys: KeySource,
    /// PEM file with the private key by which this server signs such tokens, which is read again as it changes. Default none.
    pub signing_key: Option<PathBuf>,
}

/// A provider of OpenID Connect: kube-apiserver's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// Issuer in the tokens.
    pub issuer_url: String,
    /// Audience in the tokens.
    pub client_id: String,
    /// Claim with the user's name. Default `sub`.
    pub username_claim: String,
    /// Prefix of the names; `-` is none. Default: the issuer and `#`, but none for the claim `email`.
    pub username_prefix: Option<String>,
    /// Claim with the groups. Default none.
    pub groups_claim: Option<String>,
    /// Prefix of the groups. Default empty.
    pub groups_prefix: String,
    /// Source of the provider's keys.
    pub keys: KeySource,
}

/// Source of the public keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// The document that the issuer names at `/.well-known/openid-configuration`.
    #[default]
    Discovered,
    /// A file with a JSON Web Key Set, or with keys or certificates in PEM, which is read again as it changes.
    File(PathBuf),
    /// The URL of a JSON Web Key Set.
    Url(String),
    /// The upstream's `/openid/v1/jwks`.
    Upstream,
}

impl AuthenticationConfig {
    /// True if callers can prove an identity.
    #[must_use]
    pub const fn is_configured(&self) -> bool {
        self.client_ca_file.is_some() || self.reads_tokens()
    }

    /// True if a setting of this server names its callers: credentials, or the Unix socket.
    #[must_use]
    pub const fn names_callers(&self) -> bool {
        self.is_configured() || self.unix_socket.is_some()
    }

    /// True if callers can prove an identity by a bearer token.
    #[must_use]
    pub const fn reads_tokens(&self) -> bool {
        self.token_auth_file.is_some() || self.service_accounts.is_some() || self.oidc.is_some() || self.token_review
    }
}
