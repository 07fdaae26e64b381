//! What the query of a write asks for, and the body of a delete.
//!
//! Source: apimachinery `pkg/apis/meta/v1/validation`.

use informer_core::wire::{
    go::quote,
    status::{Cause, CauseReason, Status},
};
use serde_json::Value;

use super::{Request, body::Encoding};

/// What every write may ask for. Field managers and field validation are read by nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Do everything but store it.
    pub(super) dry_run: bool,
}

/// What a delete may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeleteOptions {
    /// Only the object of this uid.
    pub(super) uid: Option<String>,
    /// Only the object at this resourceVersion.
    pub(super) resource_version: Option<String>,
    /// Do everything but store it.
    pub(super) dry_run: bool,
}

impl Options {
    /// Reads the query. `kind` is what messages call these options.
    ///
    /// # Errors
    /// 422 for a dry run of something else than everything.
    pub(super) fn read(kind: &str, query: &[(String, String)]) -> Result<Self, Status> {
        let asked: Vec<&str> =
            query.iter().filter(|(name, _)| name == "dryRun").map(|(_, value)| value.as_str()).collect();
        let dry_run = read_dry_run(&asked).map_err(|cause| Status::invalid_options(kind, vec![cause]))?;
        Ok(Self { dry_run })
    }
}

fn read_dry_run(asked: &[&str]) -> Result<bool, Cause> {
    if asked.iter().any(|value| *value != "All") {
        let asked = asked.iter().map(|value| quote(value)).collect::<Vec<_>>().join(",");
        let text = format!("Unsupported value: [{asked}]: supported values: \"All\"");
        return Err(Cause::new(CauseReason::FieldValueNotSupported, "dryRun", &text));
    }
    Ok(!asked.is_empty())
}

/// The policies of Kubernetes. There is no garbage collector here, so all mean the same.
const POLICIES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

impl DeleteOptions {
    /// Reads the body, or the query when there is none.
    ///
    /// # Errors
    /// 415 and 400 for a body that is no `DeleteOptions`; 422 for unknown values.
    pub(super) fn read(request: &Request<'_>) -> Result<Self, Status> {
        if request.body.is_empty() {
            let query = |name: &str| request.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            check_policy(query("propagationPolicy").unwrap_or_default())?;
            let Options { dry_run } = Options::read("DeleteOptions", request.query)?;
            return Ok(Self { uid: None, resource_version: None, dry_run });
        }
        let unreadable = |error: &str| {
            Status::bad_request(format!("the object provided is unrecognized (must be of type DeleteOptions): {error}"))
        };
        let body = Encoding::of(request.content_type)?.decode(request.body).map_err(|error| unreadable(&error))?;
        let Some(body) = body.as_object() else { return Err(unreadable("not an object")) };
        if body.get("kind").is_some_and(|kind| kind != "DeleteOptions") {
            return Err(unreadable("another kind"));
        }
        let text = |value: Option<&Value>, what: &str| match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok((!text.is_empty()).then(|| text.clone())),
            Some(_) => Err(unreadable(&format!("{what} must be a string"))),
        };
        check_policy(text(body.get("propagationPolicy"), "propagationPolicy")?.as_deref().unwrap_or_default())?;
        let preconditions = body.get("preconditions");
        let condition = |name: &str| text(preconditions.and_then(|preconditions| preconditions.get(name)), name);
        let asked: Vec<&str> =
            body.get("dryRun").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        Ok(Self {
            uid: condition("uid")?,
            resource_version: condition("resourceVersion")?,
            dry_run: read_dry_run(&asked).map_err(|cause| Status::invalid_options("DeleteOptions", vec![cause]))?,
        })
    }
}

fn check_policy(policy: &str) -> Result<(), Status> {
    if policy.is_empty() || POLICIES[..3].contains(&policy) {
        return Ok(());
    }
    Err(Status::invalid_options("DeleteOptions", vec![Cause::not_supported("propagationPolicy", policy, &POLICIES)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn read(query: Pairs<'_>, body: &str) -> Result<DeleteOptions, (u16, String)> {
        let ty = Registry::builtin().find("", "v1", "pods").expect("pods");
        let query: Vec<(String, String)> = query.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        DeleteOptions::read(&Request {
            ty: &ty,
            namespace: Some("ns"),
            name: Some("a"),
            subresource: None,
            query: &query,
            content_type: None,
            body: body.as_bytes(),
        })
        .map_err(|status| (status.code, status.message))
    }

    #[test]
    fn the_body_comes_before_the_query() {
        assert_eq!(read(&[], ""), Ok(DeleteOptions::default()));
        assert_eq!(read(&[], r#"{"propagationPolicy":"Background"}"#), Ok(DeleteOptions::default()));
        let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
        assert_eq!(read(&[("dryRun", "All"), ("propagationPolicy", "Orphan")], ""), Ok(dry.clone()));
        assert_eq!(read(&[], r#"{"dryRun":["All"]}"#), Ok(dry));
        let body = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"}}"#;
        let asked = DeleteOptions { uid: Some("u".into()), resource_version: Some("7".into()), dry_run: false };
        assert_eq!(read(&[("dryRun", "All")], body), Ok(asked));
    }

    #[test]
    fn unknown_values_are_refused() {
        let table: &[(Pairs<'_>, &str, u16, &str)] = &[
            (
                &[("dryRun", "x")],
                "",
                422,
                "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
            (
                &[],
                r#"{"propagationPolicy":"Maybe"}"#,
                422,
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": supported \
                 values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ),
            (
                &[],
                r#"{"kind":"Pod"}"#,
                400,
                "the object provided is unrecognized (must be of type DeleteOptions): another kind",
            ),
            (
                &[],
                r#"{"preconditions":{"uid":7}}"#,
                400,
                "the object provided is unrecognized (must be of type DeleteOptions): uid must be a string",
            ),
        ];
        for (query, body, code, text) in table {
            assert_eq!(read(query, body), Err((*code, (*text).to_owned())));
        }
    }
}
