//! Options of a list or watch: decoded, defaulted and validated like kube-apiserver, with its error texts.
//!
//! INVARIANT: checks run in kube-apiserver's order: decode (400), default (watch only), validate (422). The selectable
//! fields of a type are not checked here. Unknown parameters are ignored.
//!
//! Source: apiserver `endpoints/handlers/get.go`, apimachinery `apis/meta/internalversion/{defaults,validation}`.

use informer_core::selector::{field, label, shard};

use crate::{
    go,
    query::Query,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};

/// Validated options of a list or watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// As sent; `""` and `"0"` have special meanings.
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub resource_version_match: String,
    /// Zero or less means no limit.
    pub limit: i64,
    /// Token of the previous page.
    pub continue_token: String,
    /// Label selector.
    pub labels: label::Selector,
    /// Field selector.
    pub fields: field::Selector,
    /// Shard selector as sent; see [`Self::shard`].
    pub shard_selector: String,
    /// Requested lifetime of the watch, in seconds.
    pub timeout_seconds: Option<i64>,
    /// True for a watch.
    pub watch: bool,
    /// True if the client accepts bookmarks.
    pub allow_bookmarks: bool,
    /// True if the watch starts with the state; sent or defaulted.
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Decodes, defaults and validates the options.
    ///
    /// # Errors
    /// 400 for unreadable options, 422 for invalid combinations.
    pub fn read(query: &Query) -> Result<Self, Status> {
        let mut options = Self::decode(query)?;
        options.set_defaults();
        let causes = if options.watch { options.refused_watch() } else { options.refused_list() };
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_options("ListOptions", causes)) }
    }

    fn decode(query: &Query) -> Result<Self, Status> {
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let number = |name: &str| query.get(name).map(go::parse_int).transpose().map_err(Status::bad_request);
        let timeout_seconds = number("timeoutSeconds")?;
        let limit = number("limit")?.unwrap_or_default();
        let bad_request = |text: String| Status::bad_request(text);
        let labels = label::Selector::parse(query.get("labelSelector").unwrap_or_default());
        let fields = field::Selector::parse(query.get("fieldSelector").unwrap_or_default());
        Ok(Self {
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            limit,
            continue_token: text("continue"),
            labels: labels.map_err(|error| bad_request(error.to_string()))?,
            fields: fields.map_err(|error| bad_request(error.to_string()))?,
            shard_selector: text("shardSelector"),
            timeout_seconds,
            watch: query.flag("watch").unwrap_or_default(),
            allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: query.flag("sendInitialEvents"),
        })
    }

    /// Turns a watch without resourceVersion, or from `0`, into a watch-list, since it has always started with the
    /// state.
    fn set_defaults(&mut self) {
        if self.watch
            && self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(&*self.resource_version, "" | "0")
        {
            self.send_initial_events = Some(true);
            NOT_OLDER_THAN.clone_into(&mut self.resource_version_match);
        }
    }

    fn refused_list(&self) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let requested = &*self.resource_version_match;
        if !requested.is_empty() {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(StatusCause::forbidden(MATCH, why));
            }
            if !self.continue_token.is_empty() {
                causes
                    .push(StatusCause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(requested, EXACT | NOT_OLDER_THAN) {
                causes.push(StatusCause::not_supported(MATCH, requested, &[EXACT, NOT_OLDER_THAN, ""]));
            }
            if requested == EXACT && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(StatusCause::forbidden(MATCH, why));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(StatusCause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        causes
    }

    fn refused_watch(&self) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let requested = &*self.resource_version_match;
        if self.send_initial_events.is_some() && requested != NOT_OLDER_THAN {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(StatusCause::forbidden(MATCH, why));
        }
        if !requested.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(StatusCause::forbidden(MATCH, why));
            }
            if requested != NOT_OLDER_THAN {
                causes.push(StatusCause::not_supported(MATCH, requested, &[NOT_OLDER_THAN]));
            }
            if !self.continue_token.is_empty() {
                causes
                    .push(StatusCause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        causes
    }

    /// Parses the shard selector; `None` without one.
    ///
    /// # Errors
    /// 500 for an invalid one, as kube-apiserver answers: it parses the selector only where it reads the objects.
    pub fn shard(&self) -> Result<Option<shard::Selector>, Status> {
        let parse = |text| shard::Selector::parse(text).map_err(|error| format!("invalid shard selector: {error}"));
        let selector = Some(&*self.shard_selector).filter(|text| !text.is_empty());
        selector.map(parse).transpose().map_err(Status::unmapped)
    }

    /// Returns true if the read is of one object: `metadata.name=x` alone, with a known namespace if the type is
    /// namespaced. Such a read has no pages.
    ///
    /// `namespaced` is true if objects of the type live in namespaces; `namespace` is the one in the request's path.
    #[must_use]
    pub fn names_one(&self, namespaced: bool, namespace: Option<&str>) -> bool {
        let names: Vec<_> = self.fields.terms().iter().filter(|term| term.field == NAME).collect();
        let namespace_known = || namespace.is_some() || self.fields.exact(NAMESPACE).is_some();
        matches!(*names, [name] if name.op == field::Op::Eq && !name.value.is_empty() && !name.value.contains('/'))
            && (!namespaced || namespace_known())
    }
}

/// Value of `resourceVersionMatch` for the state at a position.
pub const EXACT: &str = "Exact";
/// Value of `resourceVersionMatch` for a state at least as new as a position.
pub const NOT_OLDER_THAN: &str = "NotOlderThan";

const MATCH: &str = "resourceVersionMatch";
const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Parses a resourceVersion.
///
/// # Errors
/// The error text: a get or a watch sends it unchanged (500), a list after `invalid resource version: ` (400).
pub fn resource_version(text: &str) -> Result<u64, String> {
    go::parse_uint(text).map_err(|error| format!("resourceVersion: Invalid value: {}: {error}", go::quote(text)))
}

#[cfg(test)]
mod tests;
