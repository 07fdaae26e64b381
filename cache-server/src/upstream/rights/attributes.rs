//! Attributes of a read, as kube-apiserver's authorizers see it.
//!
//! INVARIANT: they are derived from the route and the query that the read itself uses, so the question is about the
//! objects that the answer would contain.
//!
//! Source: apiserver `endpoints/request/requestinfo.go`, `endpoints/handlers/responsewriters/errors.go`.

use http::Method;
use informer_core::selector::{field, label};
use informer_serving::{
    go::{self, quote},
    query::Query,
    status::{Status, StatusExt as _, qualified},
};
use serde::Serialize;

use crate::route::{Target, check_name};

/// The verb of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadVerb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Events of a collection or an object, with or without initial state.
    Watch,
}

/// A read as the API server's authorizers see it: `resourceAttributes` of a SelfSubjectAccessReview. Empty texts mean
/// no restriction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadAttributes {
    pub(crate) verb: ReadVerb,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "RawSelector::is_empty")]
    pub(crate) field_selector: RawSelector,
    #[serde(skip_serializing_if = "RawSelector::is_empty")]
    pub(crate) label_selector: RawSelector,
}

/// A selector as the caller wrote it. The API server parses it like that of a request, so every operator has its
/// meaning. Servers before 1.31 ignore it and answer for all objects, which is stricter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawSelector {
    raw_selector: String,
}

impl RawSelector {
    const fn is_empty(&self) -> bool {
        self.raw_selector.is_empty()
    }
}

impl ReadAttributes {
    /// Returns the attributes of a request for `target`; `None` if its method reads nothing.
    pub(crate) fn new(method: &Method, target: &Target, query: &Query) -> Option<Self> {
        if ![Method::GET, Method::HEAD].contains(method) {
            return None;
        }
        let ty = &target.ty;
        let in_path = target.name.clone().unwrap_or_default();
        let (verb, name) = match (target.watched, in_path.is_empty()) {
            (true, _) => (ReadVerb::Watch, in_path),
            (false, false) => (ReadVerb::Get, in_path),
            (false, true) => {
                let watch = query.flag("watch").unwrap_or_default();
                let verb = if watch { ReadVerb::Watch } else { ReadVerb::List };
                (verb, selected_name(query).unwrap_or_default())
            }
        };
        // A namespace is in itself, as is any other object below a collection of this name.
        let namespace = match &target.namespace {
            None if ty.plural == "namespaces" => target.name.clone(),
            namespace => namespace.clone(),
        };
        // Paths with `/watch/` and single objects are authorized without selectors.
        let has_selectors = !target.watched && verb != ReadVerb::Get;
        let selector = |option: &str| {
            let text = query.get(option).filter(|_| has_selectors).unwrap_or_default();
            RawSelector { raw_selector: text.to_owned() }
        };
        Some(Self {
            verb,
            group: ty.group.clone(),
            version: ty.version.clone(),
            resource: ty.plural.clone(),
            subresource: target.subresource.clone().unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            name,
            field_selector: selector("fieldSelector"),
            label_selector: selector("labelSelector"),
        })
    }

    /// All attributes as texts, in a fixed order.
    pub(super) fn parts(&self) -> [&str; 9] {
        [
            self.verb.text(),
            &self.group,
            &self.version,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.field_selector.raw_selector,
            &self.label_selector.raw_selector,
        ]
    }

    /// Returns the 403 for this read, if `refused` is that of a question about it: callers without an account, or whose
    /// impersonation is refused, may not even ask. The two differ in what was refused only.
    pub(super) fn instead_of_review(&self, refused: Status) -> Status {
        let Some((_, caller)) = refused.message.split_once(" is forbidden: User ") else { return refused };
        let Some((user, rest)) = caller.rsplit_once(REVIEW_ACT) else { return refused };
        let own = self.forbidden(None, "");
        let Some((head, act)) = own.message.split_once("the caller cannot ") else { return refused };
        // `user` ends with the verb's prefix of an impersonation, if there is one.
        Status { message: format!("{head}User {user}{act}{rest}"), code: refused.code, ..own }
    }

    /// Returns kube-apiserver's 403 for this read. Without `user` the text names no user.
    pub(super) fn forbidden(&self, user: Option<&str>, reason: &str) -> Status {
        let caller = user.map_or_else(|| "the caller".to_owned(), |user| format!("User {}", quote(user)));
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let resource = quote(&format!("{}{slash}{}", self.resource, self.subresource));
        let scope = match &*self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        let (verb, group) = (self.verb.text(), quote(&self.group));
        let text = format!("{caller} cannot {verb} resource {resource} in API group {group} {scope}");
        // Errors that look like HTML are avoided. The authorizer's reason is sent as it is.
        let mut text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        let status = Status::forbidden(&self.group, &self.resource, &self.name, &text);
        if !self.name.is_empty() {
            return status;
        }
        Status { message: format!("{} is forbidden: {text}", qualified(&self.group, &self.resource)), ..status }
    }
}

/// The act that kube-apiserver refuses to callers who may not ask about their rights.
const REVIEW_ACT: &str =
    r#"create resource "selfsubjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope"#;

impl ReadVerb {
    const fn text(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// Returns the name that a field selector requires. Like kube-apiserver, reads it only if all options of the list are
/// readable, and only names that can be a part of a path.
fn selected_name(query: &Query) -> Option<String> {
    let selector = query.get("fieldSelector")?;
    let is_number = |option: &str| query.get(option).is_none_or(|text| go::parse_int(text).is_ok());
    label::Selector::parse(query.get("labelSelector").unwrap_or_default()).ok()?;
    field::Selector::parse(selector).ok()?;
    let name = required_name(selector).filter(|_| is_number("limit") && is_number("timeoutSeconds"))?;
    check_name(&name).is_ok().then_some(name)
}

/// Returns the first name that a readable selector requires, in kube-apiserver's order: by the text of the terms.
fn required_name(selector: &str) -> Option<String> {
    let mut escaped = false;
    let is_comma = |letter: char| {
        let separates = letter == ',' && !escaped;
        escaped = letter == '\\' && !escaped;
        separates
    };
    let mut terms: Vec<&str> = selector.split(is_comma).collect();
    terms.sort_unstable();
    let parsed = terms.into_iter().filter_map(|term| field::Selector::parse(term).ok());
    parsed.filter_map(|term| term.exact("metadata.name").map(str::to_owned)).next()
}

#[cfg(test)]
mod tests;
