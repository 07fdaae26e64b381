//! Reads the query string of a list, watch or get, and refuses what kube-apiserver refuses, in its words.
//!
//! INVARIANT: checks run in kube-apiserver's order: decode (400), default (watch only), validate (422), field names
//! (400). Unknown parameters are ignored; of a repeated one the first value counts.
//!
//! Source: apiserver `endpoints/handlers/get.go`, apimachinery `apis/meta/internalversion/{defaults,validation}`.

use std::sync::Arc;

use informer_core::{
    selector::{field, label},
    wire::{
        go,
        status::{Cause, Status},
    },
};
use watch_cache::{Filter, UnknownField};

use super::route::Target;

/// Decoded names and values in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string; like Go's, it leaves out pairs that cannot be decoded.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter_map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((unescape(name, true)?, unescape(value, true)?))
                })
                .collect(),
        )
    }

    /// All pairs.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The first value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    /// `0` and `false` are false; anything else that is given is true, even nothing.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        self.get(name).map(go::parse_int).transpose().map_err(Status::bad_request)
    }
}

/// Percent-decoding; `None` for a broken escape. `plus` reads `+` as a space.
pub(crate) fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || Some(u8::try_from(char::from(bytes.next()?).to_digit(16)?).unwrap_or(0));
                digit()? << 4 | digit()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    Some(String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// What a list or watch asks for, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    /// As sent; `""` and `"0"` have meanings of their own.
    pub(crate) resource_version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub(crate) resource_version_match: String,
    /// Zero or less is no limit.
    pub(crate) limit: i64,
    /// The token of the page before.
    pub(crate) continue_token: String,
    /// Which labels.
    pub(crate) labels: label::Selector,
    /// Which fields.
    pub(crate) fields: field::Selector,
    /// When the watch ends.
    pub(crate) timeout_seconds: Option<i64>,
    /// Whether it is a watch.
    pub(crate) watch: bool,
    /// Whether the client understands bookmarks.
    pub(crate) allow_bookmarks: bool,
    /// Whether the watch starts with the state; given or defaulted.
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Decodes, defaults and validates.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what does not go together.
    pub(crate) fn read(query: &Query) -> Result<Self, Status> {
        let mut options = Self::decode(query)?;
        options.set_defaults();
        let causes = if options.watch { options.refused_watch() } else { options.refused_list() };
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_options("ListOptions", causes)) }
    }

    fn decode(query: &Query) -> Result<Self, Status> {
        let timeout_seconds = query.number("timeoutSeconds")?;
        let limit = query.number("limit")?.unwrap_or_default();
        let bad_request = |text: String| Status::bad_request(text);
        let labels = label::Selector::parse(query.get("labelSelector").unwrap_or_default());
        let fields = field::Selector::parse(query.get("fieldSelector").unwrap_or_default());
        Ok(Self {
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
            limit,
            continue_token: query.text("continue"),
            labels: labels.map_err(|error| bad_request(error.to_string()))?,
            fields: fields.map_err(|error| bad_request(error.to_string()))?,
            timeout_seconds,
            watch: query.flag("watch").unwrap_or_default(),
            allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: query.flag("sendInitialEvents"),
        })
    }

    /// A watch from nothing, or from `0`, has always started with the state: it becomes a watch-list by itself.
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

    fn refused_list(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let wanted = &*self.resource_version_match;
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(Cause::forbidden(MATCH, why));
            }
            if !self.continue_token.is_empty() {
                causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(wanted, EXACT | NOT_OLDER_THAN) {
                causes.push(Cause::not_supported(MATCH, wanted, &[EXACT, NOT_OLDER_THAN, ""]));
            }
            if wanted == EXACT && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden(MATCH, why));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        causes
    }

    fn refused_watch(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let wanted = &*self.resource_version_match;
        if self.send_initial_events.is_some() && wanted != NOT_OLDER_THAN {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(Cause::forbidden(MATCH, why));
            }
            if wanted != NOT_OLDER_THAN {
                causes.push(Cause::not_supported(MATCH, wanted, &[NOT_OLDER_THAN]));
            }
            if !self.continue_token.is_empty() {
                causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        causes
    }

    /// Which objects of `target` are wanted.
    ///
    /// # Errors
    /// 400 for a field that objects of this type cannot be selected by, in the dialect of the type.
    pub(crate) fn filter(&self, target: &Target) -> Result<Arc<Filter>, Status> {
        let ty = &target.ty;
        let refuse = |label: &str| {
            Status::bad_request(if ty.other_fields {
                format!("field label not supported: {label}")
            } else {
                let quoted = go::quote(label);
                format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            })
        };
        // Cluster-scoped types with a field list of their own do not list the namespace; the others take it from all.
        let has_namespace = ty.namespaced || !ty.other_fields;
        if let Some(term) = self.fields.terms().iter().find(|term| !has_namespace && term.field == NAMESPACE) {
            return Err(refuse(&term.field));
        }
        Filter::new(&ty.schema, ty.namespaced, target.namespace.as_deref(), self.labels.clone(), &self.fields)
            .map_err(|UnknownField { label }| refuse(&label))
    }

    /// Whether the read is of one object: `metadata.name=x` alone, and the namespace is known where there are any.
    /// Such a read has no pages.
    pub(crate) fn names_one(&self, target: &Target) -> bool {
        let names: Vec<_> = self.fields.terms().iter().filter(|term| term.field == NAME).collect();
        let namespace_known = || target.namespace.is_some() || self.fields.exact(NAMESPACE).is_some();
        matches!(*names, [name] if name.op == field::Op::Eq && !name.value.is_empty() && !name.value.contains('/'))
            && (!target.ty.namespaced || namespace_known())
    }
}

/// The words of `resourceVersionMatch`.
pub(crate) const EXACT: &str = "Exact";
pub(crate) const NOT_OLDER_THAN: &str = "NotOlderThan";

const MATCH: &str = "resourceVersionMatch";
const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Reads a resourceVersion.
///
/// # Errors
/// The text that a get or a watch sends as it is (500), and a list behind `invalid resource version: ` (400).
pub(crate) fn resource_version(text: &str) -> Result<u64, String> {
    go::parse_uint(text).map_err(|error| format!("resourceVersion: Invalid value: {}: {error}", go::quote(text)))
}

#[cfg(test)]
mod tests;
