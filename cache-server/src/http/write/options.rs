//! What the query of a write asks for, and the body of a delete.
//!
//! Source: apimachinery `pkg/apis/meta/v1/validation`.

use informer_core::wire::{
    go::quote,
    status::{Cause, CauseReason, Status},
};
use serde_json::Value;

use super::{Request, body::Encoding};

/// What a create, an update or a patch may ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Do everything but store it.
    pub(super) dry_run: bool,
    /// What to do about fields that the type does not have, and about fields that stand there twice.
    pub(super) validation: FieldValidation,
}

/// What to do about fields that the type does not have, and about fields that stand there twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them, and say so in a header.
    #[default]
    Warn,
    /// Refuse the write.
    Strict,
}

/// What a patch may ask for besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PatchOptions {
    pub(super) options: Options,
    /// Who writes. Never empty when a configuration is applied.
    pub(super) manager: String,
    /// Take over what others own. Only when a configuration is applied.
    pub(super) force: bool,
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

/// The values of `fieldValidation`, as messages list them.
const VALIDATIONS: [&str; 4] = ["", "Ignore", "Strict", "Warn"];
/// Bytes of the name of a field manager.
const MANAGER_BYTES_MAX: usize = 128;

impl Options {
    /// Reads the query. `kind` is what messages call these options.
    ///
    /// # Errors
    /// 422 for values that no option has.
    pub(super) fn read(kind: &str, query: &[(String, String)]) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let options = Self::collect(query, &mut causes);
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_options(kind, causes)) }
    }

    fn collect(query: &[(String, String)], causes: &mut Vec<Cause>) -> Self {
        check_manager(first(query, "fieldManager").unwrap_or_default(), causes);
        let dry_run = read_dry_run(&all(query, "dryRun")).unwrap_or_else(|cause| {
            causes.push(cause);
            false
        });
        let asked = first(query, "fieldValidation").unwrap_or_default();
        let validation = match asked {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            _ => {
                causes.push(Cause::not_supported("fieldValidation", asked, &VALIDATIONS));
                FieldValidation::Warn
            }
        };
        Self { dry_run, validation }
    }
}

impl PatchOptions {
    /// Reads the query of a patch; `applies` is whether it applies a configuration.
    ///
    /// # Errors
    /// 422 for values that no option has, for an unnamed manager of an applied configuration, and for `force` of any
    /// other patch.
    pub(super) fn read(query: &[(String, String)], applies: bool) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let (manager, force) = (first(query, "fieldManager").unwrap_or_default(), first(query, "force"));
        if applies && manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        if !applies && force.is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        let options = Options::collect(query, &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid_options("PatchOptions", causes));
        }
        let force = force.is_some_and(|said| said != "0" && !said.eq_ignore_ascii_case("false"));
        Ok(Self { options, manager: manager.to_owned(), force })
    }
}

fn first<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn all<'a>(query: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

fn check_manager(manager: &str, causes: &mut Vec<Cause>) {
    const FIELD: &str = "fieldManager";
    if manager.len() > MANAGER_BYTES_MAX {
        let text = format!("Too long: may not be more than {MANAGER_BYTES_MAX} bytes");
        causes.push(Cause::new(CauseReason::FieldValueTooLong, FIELD, &text));
    }
    let printable =
        |letter: char| matches!(letter, '"' | '\\') || !quote(letter.encode_utf8(&mut [0; 4])).contains('\\');
    if let Some((at, letter)) = manager.char_indices().find(|&(_, letter)| !printable(letter)) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
        causes.push(Cause::invalid(FIELD, &quote(manager), &why));
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
            let dry_run = read_dry_run(&all(request.query, "dryRun"))
                .map_err(|cause| Status::invalid_options("DeleteOptions", vec![cause]))?;
            return Ok(Self { uid: None, resource_version: None, dry_run });
        }
        let unreadable = |error: &str| {
            Status::bad_request(format!("the object provided is unrecognized (must be of type DeleteOptions): {error}"))
        };
        let encoding = Encoding::of(request.ty, request.content_type)?;
        let body = encoding.decode(request.body).map_err(|error| unreadable(&error))?;
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

    fn patch(query: Pairs<'_>, applies: bool) -> Result<PatchOptions, String> {
        let query: Vec<(String, String)> = query.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        PatchOptions::read(&query, applies).map_err(|status| format!("{} {}", status.code, status.message))
    }

    #[test]
    fn who_applies_says_who_it_is() {
        let read =
            patch(&[("fieldManager", "m"), ("force", ""), ("fieldValidation", "Strict")], true).expect("is fine");
        assert_eq!((read.manager.as_str(), read.force), ("m", true));
        assert_eq!(read.options.validation, FieldValidation::Strict);
        assert!(!patch(&[("fieldManager", "m"), ("force", "False")], true).expect("is fine").force);
        assert_eq!(patch(&[], false), Ok(PatchOptions::default()));
    }

    /// Goal: every option is checked, and all that is wrong is said. Method: a table of query and message.
    #[test]
    fn options_of_patches_are_checked_together() {
        let long = "m".repeat(129);
        let table: &[(Pairs<'_>, bool, &str)] = &[
            (&[], true, "fieldManager: Required value: is required for apply patch"),
            (
                &[("force", "false"), ("fieldManager", "m")],
                false,
                "force: Forbidden: may not be specified for non-apply patch",
            ),
            (
                &[("fieldValidation", "x")],
                false,
                "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (&[("fieldManager", &long)], true, "fieldManager: Too long: may not be more than 128 bytes"),
            (
                &[("fieldManager", "a\nb")],
                true,
                "fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
            ),
            (
                &[("dryRun", "x"), ("fieldValidation", "strict")],
                true,
                "[fieldManager: Required value: is required for apply patch, dryRun: Unsupported value: [\"x\"]: \
                 supported values: \"All\", fieldValidation: Unsupported value: \"strict\": supported values: \"\", \
                 \"Ignore\", \"Strict\", \"Warn\"]",
            ),
        ];
        for (query, applies, causes) in table {
            let message = format!("422 PatchOptions.meta.k8s.io \"\" is invalid: {causes}");
            assert_eq!(patch(query, *applies), Err(message));
        }
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
