//! Semantics of LIST and WATCH requests: the state that a LIST reads and the start of a WATCH, by the tables of
//! resourceVersion, match, limit, continue and sendInitialEvents.
//!
//! INVARIANT: decisions depend on the options alone. The caller waits for the position, or answers that it is too old
//! or too large; the cost of serving it is not known here.
//!
//! Source: apiserver `storage/cacher/delegator/interface.go`, `storage/cacher/cacher.go`; KEP-2340, KEP-3157, KEP-4988.

use crate::{
    continue_token::{ContinueToken, Position},
    options::{EXACT, ListOptions, resource_version},
    status::{Status, StatusExt as _},
};

/// Decision about one LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRead {
    /// The state to read.
    pub which: RequestedState,
    /// First key to return, relative to the path's namespace.
    pub start: Option<String>,
    /// Objects per page; `None` for all.
    pub limit: Option<i64>,
}

/// The state that a LIST reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedState {
    /// The state when the request arrived, or newer.
    MostRecent,
    /// The cached state, of any age.
    Any,
    /// The cached state, once it is at least this new.
    NotOlderThan(u64),
    /// The state at exactly this position.
    Exact {
        /// The position.
        at: u64,
        /// True if a token requested it: its expiry then offers another token.
        by_token: bool,
    },
}

impl ListRead {
    /// Decides by resourceVersion, match, limit and continue. `one` reads a single object, which has no pages.
    ///
    /// # Errors
    /// 400 for an unreadable position or token, or for both together.
    pub fn of(options: &ListOptions, one: bool) -> Result<Self, Status> {
        let paged = if one || options.limit <= 0 { None } else { Some(options.limit) };
        if !options.continue_token.is_empty() {
            let token = ContinueToken::decode(&options.continue_token)
                .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))?;
            if !matches!(&*options.resource_version, "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let which = match token.resource_version {
                Position::At(at) => RequestedState::Exact { at, by_token: true },
                Position::Latest => RequestedState::MostRecent,
            };
            return Ok(Self { which, start: (!one).then_some(token.start), limit: paged });
        }
        let given = &*options.resource_version;
        if given.is_empty() {
            return Ok(Self { which: RequestedState::MostRecent, start: None, limit: paged });
        }
        let refuse = |error| Status::bad_request(format!("invalid resource version: {error}"));
        let (which, limit) = match resource_version(given).map_err(refuse)? {
            // kube-apiserver ignores the limit of such a list.
            0 => (RequestedState::Any, None),
            at if options.resource_version_match == EXACT => (RequestedState::Exact { at, by_token: false }, paged),
            // As in kube-apiserver, a limit without a match means the exact version.
            at if options.resource_version_match.is_empty() && paged.is_some() => {
                (RequestedState::Exact { at, by_token: false }, paged)
            }
            at => (RequestedState::NotOlderThan(at), paged),
        };
        Ok(Self { which, start: None, limit })
    }

    /// Returns the error for an expired position; for a token it offers one that continues from the same key at the
    /// latest state.
    #[must_use]
    pub fn expired(&self) -> Status {
        match &self.start {
            Some(start) if matches!(self.which, RequestedState::Exact { by_token: true, .. }) => {
                let token = ContinueToken { resource_version: Position::Latest, start: start.clone() };
                Status::expired_continue(token.encode())
            }
            Some(_) | None => Status::expired_list(),
        }
    }
}

/// Start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the state: the most recent (`None`) or one at least this new; zero accepts any cached state.
    State(Option<u64>),
    /// Without the state, from now: at the storage's current position (`true`), or at the cache's.
    Now(bool),
    /// After a position.
    After(u64),
}

impl WatchStart {
    /// Decides by resourceVersion and sendInitialEvents.
    ///
    /// # Errors
    /// 500 for an unreadable position, as in kube-apiserver.
    pub fn of(options: &ListOptions) -> Result<Self, Status> {
        let given = match &*options.resource_version {
            "" => None,
            text => Some(resource_version(text).map_err(Status::unmapped)?),
        };
        Ok(match (options.send_initial_events, given) {
            (Some(true), given) => Self::State(given),
            (Some(false), None) => Self::Now(true),
            (Some(false), Some(0)) => Self::Now(false),
            // Defaulting leaves only other spellings of zero here, which mean the state, as in kube-apiserver.
            (None, None | Some(0)) => Self::State(given),
            (Some(false) | None, Some(after)) => Self::After(after),
        })
    }
}

#[cfg(test)]
mod tests;
