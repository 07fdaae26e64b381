//! Attributes of a request, as authorizers, flow control and audit see them: derived from method, path and query alone,
//! so that they do not depend on the types that exist.
//!
//! INVARIANT: the path is split as the server's router splits it: a path that leads to a resource has the attributes of
//! this resource.
//!
//! Source: apiserver `endpoints/request/requestinfo.go`, `endpoints/handlers/responsewriters/errors.go`.

use std::borrow::Cow;

use informer_core::selector::{field, label};
use informer_serving::{
    go::{self, quote},
    query::{Query, segments, unescape},
    status::{Status, StatusExt as _, qualified},
};
use serde::Serialize;

/// Attributes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestInfo {
    /// Kubernetes verb of a request for a resource: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`, `proxy`; empty for another method. Otherwise the method in lower case.
    pub verb: Cow<'static, str>,
    /// The decoded path.
    pub path: String,
    /// The resource; `None` for discovery, health and other documents.
    pub resource: Option<ResourceAttributes>,
}

/// The resource of a request: `resourceAttributes` of a SubjectAccessReview, apart from the verb. Empty texts mean no
/// restriction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAttributes {
    /// Group of the API; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Version of the API, such as `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Plural name, such as `pods`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Subresource, such as `status`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Namespace; empty for all namespaces and for cluster-scoped types.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object, from the path or from the field selector of a collection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Field selector of a list, watch or deletecollection.
    #[serde(skip_serializing_if = "RawSelector::is_empty")]
    pub field_selector: RawSelector,
    /// Label selector of a list, watch or deletecollection.
    #[serde(skip_serializing_if = "RawSelector::is_empty")]
    pub label_selector: RawSelector,
}

/// A selector as the caller wrote it. The API server parses it like the selector of a request, so every operator has its
/// meaning. Servers before 1.31 ignore it and answer for all objects, which is stricter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RawSelector {
    /// The text; empty without a selector.
    pub raw_selector: String,
}

impl RawSelector {
    const fn is_empty(&self) -> bool {
        self.raw_selector.is_empty()
    }
}

impl RequestInfo {
    /// Reads the attributes of a request for `path`, as it stands in the URL. Cost: linear in path and query.
    #[must_use]
    pub fn new(method: &str, path: &str, query: &Query) -> Self {
        let decoded = unescape(path, false);
        let is_readable = decoded.is_some();
        let decoded = decoded.unwrap_or(Cow::Borrowed(path));
        let trimmed = decoded.strip_prefix('/').unwrap_or(&decoded);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let segments = if is_readable { segments(trimmed) } else { Vec::new() };
        let (group, version, rest) = match *segments {
            ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
            _ => return Self { verb: method.to_ascii_lowercase().into(), path: decoded.into_owned(), resource: None },
        };
        let (verb, in_path, rest) = match *rest {
            ["watch", ref rest @ ..] => ("watch", true, rest),
            ["proxy", ref rest @ ..] => ("proxy", true, rest),
            _ => (verb_of(method), false, rest),
        };
        let mut resource = ResourceAttributes { group: group.into(), version: version.into(), ..Default::default() };
        resource.read_path(rest, verb == "proxy");
        let verb = if in_path { verb } else { resource.read_query(verb, query) };
        Self { verb: verb.into(), path: decoded.into_owned(), resource: Some(resource) }
    }

    /// Returns `create resource "pods" in API group "" in the namespace "a"`: the act that a 403 refuses.
    #[must_use]
    pub fn act(&self) -> String {
        let verb = &self.verb;
        let Some(of) = &self.resource else { return format!("{verb} path {}", quote(&self.path)) };
        let slash = if of.subresource.is_empty() { "" } else { "/" };
        let resource = quote(&format!("{}{slash}{}", of.resource, of.subresource));
        let scope = match &*of.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        format!("{verb} resource {resource} in API group {} {scope}", quote(&of.group))
    }

    /// Returns the 403 for this request, in kube-apiserver's words. Without a user it names `the caller`. `reason` is the
    /// authorizer's and may be empty.
    #[must_use]
    pub fn forbidden(&self, user: Option<&str>, reason: &str) -> Status {
        let caller = user.map_or_else(|| "the caller".to_owned(), |user| format!("User {}", quote(user)));
        // Errors that look like HTML are avoided. The authorizer's reason is sent as it is.
        let text = format!("{caller} cannot {}", self.act());
        let mut text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        let (group, resource, name) = match &self.resource {
            Some(of) => (&*of.group, &*of.resource, &*of.name),
            None => ("", "", ""),
        };
        let status = Status::forbidden(group, resource, name, &text);
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {text}"),
            (_, "") => format!("{} is forbidden: {text}", qualified(group, resource)),
            _ => return status,
        };
        Status { message, ..status }
    }
}

impl ResourceAttributes {
    /// Reads resource, namespace, name and subresource from the segments after the version.
    fn read_path(&mut self, rest: &[&str], has_no_subresource: bool) {
        let object = match *rest {
            ["namespaces", namespace, ref object @ ..] => {
                namespace.clone_into(&mut self.namespace);
                // `namespaces` is also the prefix of namespaced resources; these two subresources belong to the
                // namespace itself.
                if matches!(object, [] | ["status" | "finalize", ..]) { rest } else { object }
            }
            _ => rest,
        };
        let part = |at: usize| object.get(at).copied().unwrap_or_default().to_owned();
        (self.resource, self.name) = (part(0), part(1));
        if !has_no_subresource {
            self.subresource = part(2);
        }
    }

    /// Reads the selectors of a collection, and returns the verb.
    fn read_query(&mut self, verb: &'static str, query: &Query) -> &'static str {
        if !self.name.is_empty() {
            return verb;
        }
        let verb = match verb {
            "get" if query.flag("watch").unwrap_or_default() => "watch",
            "get" => "list",
            "delete" => "deletecollection",
            other => other,
        };
        if matches!(verb, "list" | "watch") {
            self.name = selected_name(query).unwrap_or_default();
        }
        if matches!(verb, "list" | "watch" | "deletecollection") {
            let raw = |option: &str| RawSelector { raw_selector: query.get(option).unwrap_or_default().to_owned() };
            (self.field_selector, self.label_selector) = (raw("fieldSelector"), raw("labelSelector"));
        }
        verb
    }
}

fn verb_of(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
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
    let is_segment = !matches!(&*name, "." | "..") && !name.contains(['/', '%']);
    is_segment.then_some(name)
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
