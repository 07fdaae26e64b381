//! Checks where a webhook is.
//!
//! Source: apiserver `pkg/util/webhook/validation.go`.

use api_rules::registry::NameRule;
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

/// Returns a URL with its path as kube-apiserver's client sends it: without empty and relative segments.
pub(super) fn with_clean_path(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("{scheme}://{authority}/{}", segments.join("/"))
}

const FORM: &str = "; desired format: https://host[/path]";

/// Adds what is wrong with a `clientConfig`.
pub(super) fn check(client: &Value, field: &str, causes: &mut Causes) {
    let (url, service) = (client.get("url").and_then(Value::as_str), client.get("service").filter(|it| it.is_object()));
    match (url, service) {
        (Some(url), None) => check_url(url, &format!("{field}.url"), causes),
        (None, Some(service)) => check_service(service, &format!("{field}.service"), causes),
        _ => causes.push(StatusCause::required(field, "exactly one of url or service is required")),
    }
}

fn check_url(url: &str, field: &str, causes: &mut Causes) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let mut invalid = |value: &str, why: &str| causes.push(StatusCause::invalid(field, &quote(value), why));
    if scheme != "https" {
        invalid(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        invalid(host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        invalid(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL");
    }
}

fn check_service(service: &Value, field: &str, causes: &mut Causes) {
    let text = |member: &str| service.get(member).and_then(Value::as_str).unwrap_or_default();
    for member in ["name", "namespace"] {
        if text(member).is_empty() {
            causes.push(StatusCause::required(&format!("{field}.{member}"), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(StatusCause::invalid(&format!("{field}.port"), &port.to_string(), why));
    }
    check_path(text("path"), &format!("{field}.path"), causes);
}

fn check_path(path: &str, field: &str, causes: &mut Causes) {
    if ["", "/"].contains(&path) {
        return;
    }
    let mut invalid = |why: &str| causes.push(StatusCause::invalid(field, &quote(path), why));
    let Some(inner) = path.strip_prefix('/') else { return invalid("must start with a '/'") };
    for (at, segment) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if segment.is_empty() {
            invalid(&format!("segment[{at}] may not be empty"));
            continue;
        }
        for refused in NameRule::Subdomain.refuse(segment) {
            invalid(&format!("segment[{at}]: {refused}"));
        }
    }
}
