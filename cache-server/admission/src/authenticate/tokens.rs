//! Bearer tokens: static ones of a file, ones that an issuer signed, and ones that the API server knows.
//!
//! INVARIANT: tokens of the file are compared by keyed hashes, so that the time of a comparison tells nothing. INVARIANT: a
//! token of a trusted issuer is decided here, whatever the API server would answer.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use access_rules::authentication::{
    claims::{AccountRules, OidcRules, TokenUser, UnixSeconds},
    signed_token::{SignedTokenError, TOKEN_BYTES_MAX, UnverifiedToken},
    token_file,
};
use informer_serving::status::{Details, Status, StatusExt as _};
use tokio::time::Instant;

use super::{
    Caller, CallerCredential, instant_of,
    keys::{IssuerKeys, VerifyError},
    refused,
    reviews::{ReviewedToken, TokenReviews},
    unix_now,
};
use crate::{
    limits::{DENIAL_AGE_MIN, RIGHT_AGE, RIGHT_AGE_AWAY, TOKENS_MAX},
    upstream::{
        answers::AnswerTable,
        key::{KeyMaker, QuestionKey},
        own_requests::QuestionOrigin,
    },
    watched::WatchedFile,
};

/// Key of the hashes of this process.
static HASHES: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::random);

/// A token that is kept to be checked again. Never printed.
#[derive(Clone)]
pub struct BearerToken {
    text: Arc<str>,
    key: QuestionKey,
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}

impl BearerToken {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) const fn key(&self) -> QuestionKey {
        self.key
    }
}

/// The tokens of a file, by their hashes.
pub struct StaticTokens(HashMap<QuestionKey, Arc<Caller>>);

/// Parses a file of tokens.
pub fn parse(content: &[u8]) -> Result<StaticTokens, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is no UTF-8".to_owned())?;
    let tokens = token_file::parse(text).map_err(|error| error.to_string())?;
    let callers = tokens.into_iter().map(|entry| {
        let key = HASHES.token(&entry.token);
        let credential = CallerCredential::StaticToken(key);
        (key, Arc::new(Caller { user: entry.user, expires: None, credential }))
    });
    Ok(StaticTokens(callers.collect()))
}

/// An issuer of tokens that are verified here.
pub struct TrustedIssuer {
    pub(super) rules: IssuerRules,
    pub(super) keys: IssuerKeys,
}

/// Rules for the claims of an issuer.
pub enum IssuerRules {
    /// An issuer of service accounts' tokens.
    Accounts(AccountRules),
    /// An OpenID Connect provider.
    Oidc(OidcRules),
}

impl IssuerRules {
    fn issuer(&self) -> &str {
        match self {
            Self::Accounts(rules) => &rules.issuer,
            Self::Oidc(rules) => &rules.issuer,
        }
    }

    fn user(&self, payload: &[u8], now: UnixSeconds) -> Result<TokenUser, SignedTokenError> {
        match self {
            Self::Accounts(rules) => rules.user(payload, now),
            Self::Oidc(rules) => rules.user(payload, now),
        }
    }
}

/// Finds the callers of tokens.
///
/// Memory: at most [`TOKENS_MAX`] callers with their tokens.
pub struct TokenAuthenticator {
    file: Option<WatchedFile<StaticTokens>>,
    deciders: Arc<TokenDeciders>,
    known: AnswerTable<KnownToken>,
}

/// Decides about tokens that are not in the file.
pub(super) struct TokenDeciders {
    pub(super) issuers: Vec<TrustedIssuer>,
    pub(super) reviews: Option<TokenReviews>,
}

/// The answer about a token.
#[derive(Clone)]
enum KnownToken {
    /// The caller.
    Valid(Arc<Caller>),
    /// The API server does not know it.
    Invalid,
}

impl KnownToken {
    fn age_max(&self, _sent: Instant) -> Duration {
        match self {
            Self::Valid(_) => RIGHT_AGE,
            Self::Invalid => DENIAL_AGE_MIN,
        }
    }
}

impl TokenAuthenticator {
    pub(super) fn new(file: Option<WatchedFile<StaticTokens>>, deciders: TokenDeciders) -> Self {
        let known = AnswerTable::new(TOKENS_MAX, KnownToken::age_max, RIGHT_AGE_AWAY);
        Self { file, deciders: Arc::new(deciders), known }
    }

    /// Returns the caller of a token. Cost: one hash for a token that is known, one signature for a new one, and one request
    /// for one that the API server decides.
    ///
    /// # Errors
    /// 401 if the token is not valid; 503 if it cannot be decided.
    pub(super) async fn authenticate(&self, token: &str, origin: QuestionOrigin) -> Result<Arc<Caller>, Status> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused(&SignedTokenError::TooLong));
        }
        let key = HASHES.token(token);
        if let Some(file) = &self.file
            && let Some(caller) = file.current().0.0.get(&key)
        {
            return Ok(Arc::clone(caller));
        }
        let (deciders, bearer) = (Arc::clone(&self.deciders), BearerToken { text: token.into(), key });
        let decide = |_| async move { deciders.decide(bearer, origin).await };
        match self.known.answer_for(origin, key, decide).await? {
            KnownToken::Valid(caller) if caller.has_expired() => Err(refused(&SignedTokenError::Expired)),
            KnownToken::Valid(caller) => Ok(caller),
            KnownToken::Invalid => Err(refused(&"the API server does not know the token")),
        }
    }

    /// True if no token is being reviewed.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_idle(&self) -> bool {
        self.known.open_len() == 0 && self.deciders.reviews.as_ref().is_none_or(TokenReviews::is_idle)
    }

    /// True if the API server decides about a token.
    pub(super) fn asks_about(&self, token: &BearerToken) -> bool {
        let parsed = UnverifiedToken::parse(token.text()).ok();
        self.deciders.reviews.is_some() && parsed.and_then(|parsed| self.deciders.issuer_of(&parsed)).is_none()
    }

    /// Returns `Ok` if the token of `caller` is still valid for the same user.
    pub(super) async fn confirm(&self, caller: &Caller) -> Result<(), Status> {
        let current = match &caller.credential {
            CallerCredential::StaticToken(key) => match &self.file {
                Some(file) => file.current().0.0.get(key).cloned(),
                None => None,
            },
            CallerCredential::Token(token) => Some(self.authenticate(token.text(), QuestionOrigin::OpenWatch).await?),
            CallerCredential::None | CallerCredential::Certificate(_) | CallerCredential::Impersonation(_) => None,
        };
        let is_same = current.is_some_and(|current| current.user == caller.user);
        if is_same { Ok(()) } else { Err(Status::unauthorized()) }
    }
}

impl TokenDeciders {
    /// The issuer that a token claims, if its tokens are verified here.
    fn issuer_of(&self, token: &UnverifiedToken<'_>) -> Option<&TrustedIssuer> {
        let claimed = token.claimed_issuer()?;
        self.issuers.iter().find(|issuer| issuer.rules.issuer() == claimed)
    }

    async fn decide(&self, token: BearerToken, origin: QuestionOrigin) -> Result<KnownToken, Status> {
        let parsed = UnverifiedToken::parse(token.text());
        if let Ok(parsed) = &parsed
            && let Some(issuer) = self.issuer_of(parsed)
        {
            let user = issuer.keys.verify(parsed, |payload| issuer.rules.user(payload, unix_now())).await;
            return match user {
                Ok(TokenUser { user, expires }) => {
                    let (expires, credential) = (Some(instant_of(expires)), CallerCredential::Token(token.clone()));
                    Ok(KnownToken::Valid(Arc::new(Caller { user, expires, credential })))
                }
                Err(VerifyError::Invalid(error)) => Err(refused(&error)),
                Err(VerifyError::NoKeys) => Err(undecided("the keys of its issuer are not available")),
            };
        }
        match (&self.reviews, parsed) {
            (Some(reviews), _) => match reviews.review(&token, origin).await? {
                ReviewedToken::Authenticated(user) => {
                    let credential = CallerCredential::Token(token.clone());
                    Ok(KnownToken::Valid(Arc::new(Caller { user, expires: None, credential })))
                }
                ReviewedToken::Unauthenticated => Ok(KnownToken::Invalid),
            },
            (None, Err(error)) => Err(refused(&error)),
            (None, Ok(_)) => Err(refused(&SignedTokenError::Issuer)),
        }
    }
}

/// The 503 for a token that may be valid.
pub(super) fn undecided(why: &str) -> Status {
    let details = Some(Details { retry_after_seconds: UNDECIDED_RETRY_SECONDS, ..Details::default() });
    Status { details, ..Status::unavailable(format!("the bearer token cannot be checked now: {why}")) }
}

/// Seconds after which a caller may repeat a request whose token could not be checked.
const UNDECIDED_RETRY_SECONDS: u32 = 1;
