//! Finds out who sends a request.
//!
//! INVARIANT: credentials that are not valid are refused, and never make an anonymous caller. INVARIANT: tokens are
//! neither logged nor printed.
//!
//! In reading order: [`certificates`], [`tokens`] with [`keys`] and [`reviews`], [`signer`] (new tokens), [`assemble`]
//! (from the settings).

pub mod assemble;
pub mod certificates;
pub mod keys;
pub mod reviews;
pub mod signer;
pub mod tokens;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use access_rules::{
    authentication::{
        bearer,
        claims::UnixSeconds,
        signed_token::{self, UnverifiedToken},
    },
    request_info::RequestInfo,
    user::User,
};
use http::{HeaderMap, header};
use informer_serving::status::{Status, StatusExt as _};
use tokio::time::Instant;

use self::{
    certificates::{ClientAuthorities, PeerCertificate},
    signer::TokenSigner,
    tokens::{BearerToken, TokenAuthenticator},
};
use super::{HEALTH_PATHS, peer::Peer};
use crate::{
    metrics::AuthenticationMetrics,
    upstream::{key::QuestionKey, own_requests::QuestionOrigin},
};

/// The sender of a request.
#[derive(Debug)]
pub struct Caller {
    /// Its identity; after an impersonation, the impersonated user.
    pub user: User,
    /// Time at which its credentials expire.
    pub expires: Option<Instant>,
    /// The credentials, to be checked again.
    pub credential: CallerCredential,
}

/// Credentials of a caller.
pub enum CallerCredential {
    /// None: an anonymous caller, a peer of the Unix socket, or a server without authentication.
    None,
    /// A TLS client certificate.
    Certificate(PeerCertificate),
    /// A token of the file, by its hash.
    StaticToken(QuestionKey),
    /// Another token.
    Token(BearerToken),
    /// The caller acts as another user.
    Impersonation(ImpersonationRights),
}

/// Identity of the credentials that prove a user: open watches with equal ones are checked together. That of a certificate
/// is among the attributes of its user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallerProof {
    /// The connection.
    Connection,
    /// A token, by its hash.
    Token(QuestionKey),
    /// The right of another user to act as this one.
    Impersonation(Box<(User, Self)>),
}

/// A caller that acts as another user, and the rights that it needs for this.
pub struct ImpersonationRights {
    /// The caller itself.
    pub caller: Arc<Caller>,
    /// Its rights with the verb `impersonate`.
    pub rights: Vec<RequestInfo>,
}

impl fmt::Debug for CallerCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Certificate(_) => "Certificate",
            Self::StaticToken(_) => "StaticToken",
            Self::Token(_) => "Token",
            Self::Impersonation(_) => "Impersonation",
        })
    }
}

impl Caller {
    /// A caller whose identity its connection proves, or that has none.
    pub fn without_credentials(user: User) -> Arc<Self> {
        Arc::new(Self { user, expires: None, credential: CallerCredential::None })
    }

    /// The caller itself, if it acts as another user.
    pub const fn impersonation(&self) -> Option<&ImpersonationRights> {
        match &self.credential {
            CallerCredential::Impersonation(rights) => Some(rights),
            CallerCredential::None
            | CallerCredential::Certificate(_)
            | CallerCredential::StaticToken(_)
            | CallerCredential::Token(_) => None,
        }
    }

    /// Identity of the credentials.
    pub fn proof(&self) -> CallerProof {
        match &self.credential {
            CallerCredential::None | CallerCredential::Certificate(_) => CallerProof::Connection,
            CallerCredential::StaticToken(key) => CallerProof::Token(*key),
            CallerCredential::Token(token) => CallerProof::Token(token.key()),
            CallerCredential::Impersonation(ImpersonationRights { caller, .. }) => {
                CallerProof::Impersonation(Box::new((caller.user.clone(), caller.proof())))
            }
        }
    }

    /// True if the credentials mean nothing to an API server behind this server: client certificates and static tokens.
    pub fn is_local(&self) -> bool {
        match &self.credential {
            CallerCredential::Certificate(_) | CallerCredential::StaticToken(_) => true,
            CallerCredential::None | CallerCredential::Token(_) => false,
            CallerCredential::Impersonation(ImpersonationRights { caller, .. }) => caller.is_local(),
        }
    }

    fn has_expired(&self) -> bool {
        self.expires.is_some_and(|at| at <= Instant::now())
    }
}

/// The clients that are served without credentials. All of them may ask for the server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnonymousOrigin {
    /// None: there are credentials, and nothing else decides about rights.
    Nowhere,
    /// Those of this machine.
    ThisMachine,
    /// All.
    Anywhere,
}

/// Finds out who sends a request.
pub struct Authenticator {
    /// The caller of every request of the network, if no credentials are read.
    unsecured: Option<Arc<Caller>>,
    anonymous: Arc<Caller>,
    anonymous_from: AnonymousOrigin,
    authorities: Option<Arc<ClientAuthorities>>,
    tokens: Option<TokenAuthenticator>,
    /// Issues tokens; `None` if this server issues none.
    pub(super) signer: Option<TokenSigner>,
    /// Audiences of this server.
    audiences: Vec<String>,
    metrics: AuthenticationMetrics,
}

impl Authenticator {
    /// True if no token is being reviewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        self.tokens.as_ref().is_none_or(TokenAuthenticator::is_idle)
    }

    /// Reads no credentials.
    pub fn unsecured() -> Self {
        Self {
            unsecured: Some(Caller::without_credentials(User::unsecured())),
            anonymous: Caller::without_credentials(User::anonymous()),
            anonymous_from: AnonymousOrigin::ThisMachine,
            authorities: None,
            tokens: None,
            signer: None,
            audiences: Vec::new(),
            metrics: AuthenticationMetrics::default(),
        }
    }

    /// Reads no credentials: every caller is `user`.
    #[cfg(any(test, feature = "testing"))]
    pub fn letting_in(user: &User) -> Self {
        Self { unsecured: Some(Caller::without_credentials(user.clone())), ..Self::unsecured() }
    }

    /// The authorities of client certificates.
    pub const fn authorities(&self) -> Option<&Arc<ClientAuthorities>> {
        self.authorities.as_ref()
    }

    /// True if callers have identities.
    pub const fn is_configured(&self) -> bool {
        self.unsecured.is_none()
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// 401 for credentials that are not valid, and for missing ones where they are needed; 503 if it cannot be decided.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        info: &RequestInfo,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, Status> {
        if let Some(unsecured) = &self.unsecured {
            return Ok(Arc::clone(peer.local_user().unwrap_or(unsecured)));
        }
        let identified = match self.identify(peer, headers).await {
            Ok(Some(caller)) => Ok(caller),
            Ok(None) if self.may_be_anonymous(peer, info) => Ok(Arc::clone(&self.anonymous)),
            Ok(None) => Err(Status::unauthorized()),
            Err(refusal) => Err(refusal),
        };
        match &identified {
            Ok(caller) => self.metrics.succeeded(&caller.user.name),
            Err(refusal) => self.metrics.failed(refusal.code),
        }
        identified
    }

    /// Returns the caller that the credentials prove; `None` if there are none.
    async fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Arc<Caller>>, Status> {
        if let (Some(authorities), Some(certified)) = (&self.authorities, &peer.certificate) {
            match certified {
                Ok(caller) => return Self::certified(authorities, caller).map(Some),
                Err(error) => return Err(refused(error)),
            }
        }
        if let Some(token) = bearer_token(headers)? {
            // Not anonymous: a caller that sends a token means to be its user.
            let Some(tokens) = &self.tokens else { return Err(refused(&"no setting says which tokens are valid")) };
            return tokens.authenticate(&token, QuestionOrigin::Request).await.map(Some);
        }
        Ok(peer.local_user().cloned())
    }

    fn certified(authorities: &ClientAuthorities, caller: &Arc<Caller>) -> Result<Arc<Caller>, Status> {
        let CallerCredential::Certificate(certificate) = &caller.credential else { return Err(Status::unauthorized()) };
        if caller.has_expired() {
            return Err(refused(&"the client certificate has expired"));
        }
        if !authorities.confirms(certificate) {
            return Err(refused(&"no authority signs the client certificate any more"));
        }
        Ok(Arc::clone(caller))
    }

    /// True if callers without credentials may send other requests than probes, at least from this machine.
    pub fn serves_anonymous_callers(&self) -> bool {
        self.anonymous_from != AnonymousOrigin::Nowhere
    }

    /// True if a caller without credentials is served.
    fn may_be_anonymous(&self, peer: &Peer, info: &RequestInfo) -> bool {
        let asks_for_health = info.resource.is_none()
            && HEALTH_PATHS
                .iter()
                .any(|path| info.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        match self.anonymous_from {
            AnonymousOrigin::Nowhere => asks_for_health,
            AnonymousOrigin::ThisMachine => asks_for_health || peer.is_near(),
            AnonymousOrigin::Anywhere => true,
        }
    }

    /// Returns `Ok` if the credentials of a caller are still valid, and prove the same identity. Unless it `may_ask`, those
    /// that another server decides about count as valid.
    ///
    /// # Errors
    /// 401 if they are not; 503 if it cannot be decided.
    pub async fn confirm(&self, caller: &Caller, may_ask: bool) -> Result<(), Status> {
        if caller.has_expired() {
            return Err(Status::unauthorized());
        }
        match &caller.credential {
            CallerCredential::None => Ok(()),
            CallerCredential::Certificate(certificate) => match &self.authorities {
                Some(authorities) if authorities.confirms(certificate) => Ok(()),
                Some(_) | None => Err(Status::unauthorized()),
            },
            CallerCredential::StaticToken(_) | CallerCredential::Token(_) => match &self.tokens {
                Some(_) if !may_ask && self.asks_about(caller) => Ok(()),
                Some(tokens) => tokens.confirm(caller).await,
                None => Err(Status::unauthorized()),
            },
            CallerCredential::Impersonation(rights) => Box::pin(self.confirm(&rights.caller, may_ask)).await,
        }
    }

    /// True if another server decides about the credentials of a caller.
    pub fn asks_about(&self, caller: &Caller) -> bool {
        match (&caller.credential, &self.tokens) {
            (CallerCredential::Token(token), Some(tokens)) => tokens.asks_about(token),
            (CallerCredential::Impersonation(rights), _) => self.asks_about(&rights.caller),
            _ => false,
        }
    }

    /// Returns the user of a token and those of `wanted` audiences that it is for, which are those of this server if there are
    /// none; `None` if the token is not valid, or for none of them.
    ///
    /// # Errors
    /// 503 if it cannot be decided.
    pub async fn review(&self, token: &str, requested: &[String]) -> Result<Option<(User, Vec<String>)>, Status> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let caller = match tokens.authenticate(token, QuestionOrigin::Request).await {
            Ok(caller) => caller,
            Err(refusal) if refusal.code == 401 => return Ok(None),
            Err(undecided) => return Err(undecided),
        };
        let is_requested = |audience: &&String| requested.is_empty() || requested.contains(audience);
        let audiences: Vec<String> = self.audiences.iter().filter(is_requested).cloned().collect();
        let audiences = match &caller.credential {
            CallerCredential::Token(token) => signed_token::shared_audiences(token.text(), &audiences),
            // A token of the file is for this server.
            CallerCredential::None
            | CallerCredential::Certificate(_)
            | CallerCredential::StaticToken(_)
            | CallerCredential::Impersonation(_) => audiences,
        };
        let is_for_none = audiences.is_empty() && !requested.is_empty();
        Ok((!is_for_none).then(|| (caller.user.clone(), audiences)))
    }

    /// True if credentials can become invalid before they expire.
    pub const fn checks_again(&self) -> bool {
        self.authorities.is_some() || self.tokens.is_some()
    }
}

/// Returns the bearer token of a request; `None` without one.
fn bearer_token(headers: &HeaderMap) -> Result<Option<String>, Status> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        if values.next().is_some() {
            return Err(refused(&bearer::BearerError::Several));
        }
        let text = value.to_str().map_err(|_| refused(&"the Authorization header is no text"))?;
        if let Some(token) = bearer::of_authorization(text) {
            return Ok(Some(token.to_owned()));
        }
    }
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    bearer::of_subprotocols(protocols).map_err(|error| refused(&error))
}

/// Returns the time at which the token of a request expires by its own account, if it has one: only to ask another server in
/// time.
pub fn claimed_expiry(headers: &HeaderMap) -> Option<Instant> {
    let token = bearer_token(headers).ok()??;
    UnverifiedToken::parse(&token).ok()?.claimed_expiry().map(instant_of)
}

/// The 401 for credentials that are not valid. The reason is only logged: it helps to forge them.
fn refused(reason: &dyn fmt::Display) -> Status {
    tracing::debug!(%reason, "authentication failed");
    Status::unauthorized()
}

/// Returns the time of this process at a time of the world.
fn instant_of(time: UnixSeconds) -> Instant {
    let ahead = time.saturating_sub(unix_now());
    let now = Instant::now();
    match u64::try_from(ahead) {
        Ok(seconds) => now + Duration::from_secs(seconds).min(FAR),
        Err(_) => now,
    }
}

/// Longest time after which credentials expire; any later time is as far.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

fn unix_now() -> UnixSeconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds::try_from(now.as_secs()).unwrap_or(UnixSeconds::MAX)
}

#[cfg(test)]
mod tests;
