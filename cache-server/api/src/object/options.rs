//! Options of writes, read from the query, and of deletes, read from the body too.
//!
//! Source: apimachinery `pkg/apis/meta/v1/validation`.

use informer_serving::{
    go::{parse_int, quote},
    status::{CauseExt as _, CauseReason, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{
    WriteRequest,
    body::{Encoding, Object},
};

/// Options of create, update and patch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Do everything except storing the result.
    pub dry_run: bool,
    /// Handling of unknown and duplicate fields.
    pub validation: FieldValidation,
}

/// Handling of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop unknown fields.
    Ignore,
    /// Drop unknown fields, and report them in `Warning` headers.
    #[default]
    Warn,
    /// Refuse the write.
    Strict,
}

/// Options of a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// Options that all writes have.
    pub options: Options,
    /// Field manager. Never empty for an apply.
    pub manager: String,
    /// Take over fields that other managers own. Only for an apply.
    pub force: bool,
}

/// Options of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Precondition: uid of the object.
    pub uid: Option<String>,
    /// Precondition: resourceVersion of the object.
    pub resource_version: Option<String>,
    /// Do everything except storing the result.
    pub dry_run: bool,
    /// Grace period in seconds, for objects with something running.
    pub grace_seconds: Option<i64>,
    /// Deprecated form of `propagationPolicy`: true to keep dependents.
    pub orphan_dependents: Option<bool>,
    /// Handling of dependents, by either option.
    pub policy: Option<PropagationPolicy>,
    /// True if a garbage collector may run, so that the object waits for it. Set by the server, never by a client.
    pub is_collected: bool,
}

/// Handling of the objects that a deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// They are deleted before it.
    Foreground,
    /// They are deleted after it.
    Background,
    /// They stay.
    Orphan,
}

impl PropagationPolicy {
    const fn name(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Foreground, Self::Background, Self::Orphan].into_iter().find(|policy| policy.name() == name)
    }
}

/// The values of `fieldValidation`, in the order of error messages.
const VALIDATIONS: [&str; 4] = ["", "Ignore", "Strict", "Warn"];
/// Upper bound on the bytes of a field manager's name.
const MANAGER_BYTES_MAX: usize = 128;

impl Options {
    /// Reads the query. `kind` names the options in messages.
    ///
    /// # Errors
    /// 422 for invalid values.
    pub fn read(kind: &str, query: &[(String, String)]) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let options = Self::collect(query, &mut causes);
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_options(kind, causes)) }
    }

    fn collect(query: &[(String, String)], causes: &mut Vec<StatusCause>) -> Self {
        check_manager(first(query, "fieldManager").unwrap_or_default(), causes);
        let dry_run = read_dry_run(&all(query, "dryRun")).unwrap_or_else(|cause| {
            causes.push(cause);
            false
        });
        let requested = first(query, "fieldValidation").unwrap_or_default();
        let validation = match requested {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            _ => {
                causes.push(StatusCause::not_supported("fieldValidation", requested, &VALIDATIONS));
                FieldValidation::Warn
            }
        };
        Self { dry_run, validation }
    }
}

impl PatchOptions {
    /// Reads the query of a patch; `applies` is true for an apply.
    ///
    /// # Errors
    /// 422 for invalid values, for an apply without a field manager, and for `force` of any other patch.
    pub fn read(query: &[(String, String)], applies: bool) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let (manager, force) = (first(query, "fieldManager").unwrap_or_default(), first(query, "force"));
        if applies && manager.is_empty() {
            causes.push(StatusCause::required("fieldManager", "is required for apply patch"));
        }
        if !applies && force.is_some() {
            causes.push(StatusCause::forbidden("force", "may not be specified for non-apply patch"));
        }
        let options = Options::collect(query, &mut causes);
        if !causes.is_empty() {
            return Err(Status::invalid_options("PatchOptions", causes));
        }
        let force = force.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
        Ok(Self { options, manager: manager.to_owned(), force })
    }
}

fn first<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn all<'a>(query: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

fn check_manager(manager: &str, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "fieldManager";
    if manager.len() > MANAGER_BYTES_MAX {
        let text = format!("Too long: may not be more than {MANAGER_BYTES_MAX} bytes");
        causes.push(StatusCause::new(CauseReason::FieldValueTooLong, FIELD, &text));
    }
    let printable =
        |letter: char| matches!(letter, '"' | '\\') || !quote(letter.encode_utf8(&mut [0; 4])).contains('\\');
    if let Some((at, letter)) = manager.char_indices().find(|&(_, letter)| !printable(letter)) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
        causes.push(StatusCause::invalid(FIELD, &quote(manager), &why));
    }
}

fn read_dry_run(requested: &[&str]) -> Result<bool, StatusCause> {
    if requested.iter().any(|value| *value != "All") {
        let requested = requested.iter().map(|value| quote(value)).collect::<Vec<_>>().join(",");
        let text = format!("Unsupported value: [{requested}]: supported values: \"All\"");
        return Err(StatusCause::new(CauseReason::FieldValueNotSupported, "dryRun", &text));
    }
    Ok(!requested.is_empty())
}

/// Propagation policies, in the order of error messages.
const POLICIES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

impl DeleteOptions {
    /// Reads the body, or the query if the body is empty.
    ///
    /// # Errors
    /// 415 and 400 for a body that is no `DeleteOptions`, 400 for a query that cannot be parsed; 422 for unknown values
    /// and for conflicting options about dependents.
    pub fn read(request: &WriteRequest<'_>) -> Result<Self, Status> {
        let options = if request.body.is_empty() {
            RawDeleteOptions::in_query(request.query)?
        } else {
            RawDeleteOptions::in_body(request)?
        };
        options.check()
    }

    /// Reads the options that another object contains.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of(object: &Object) -> Result<Self, Status> {
        RawDeleteOptions::of(object)?.check()
    }
}

/// Options of a delete, not validated.
#[derive(Debug, Default)]
struct RawDeleteOptions {
    policy: Option<String>,
    dry_run: Vec<String>,
    options: DeleteOptions,
}

impl RawDeleteOptions {
    fn in_query(query: &[(String, String)]) -> Result<Self, Status> {
        let grace = first(query, "gracePeriodSeconds").map(|text| parse_int(text).map_err(Status::bad_request));
        let is_true = |text: &str| text != "0" && !text.eq_ignore_ascii_case("false");
        // kube-apiserver reads them with deletecollection too, where `resourceVersion` is also an option of the list.
        let condition = |name: &str| first(query, name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = DeleteOptions {
            uid: condition("uid"),
            resource_version: condition("resourceVersion"),
            grace_seconds: grace.transpose()?,
            orphan_dependents: first(query, "orphanDependents").map(is_true),
            ..DeleteOptions::default()
        };
        let policy = first(query, "propagationPolicy").filter(|policy| !policy.is_empty()).map(str::to_owned);
        let dry_run = all(query, "dryRun").into_iter().map(str::to_owned).collect();
        Ok(Self { policy, dry_run, options })
    }

    fn in_body(request: &WriteRequest<'_>) -> Result<Self, Status> {
        let encoding = Encoding::of(request.ty, request.content_type)?;
        let body = encoding.decode(request.body).map_err(|error| unreadable(&error))?;
        let Some(body) = body.as_object() else { return Err(unreadable("not an object")) };
        Self::of(body)
    }

    fn of(body: &Object) -> Result<Self, Status> {
        if body.get("kind").is_some_and(|kind| kind != "DeleteOptions") {
            return Err(unreadable("another kind"));
        }
        let conditions = match body.get("preconditions") {
            None | Some(Value::Null) => &Object::new(),
            Some(Value::Object(conditions)) => conditions,
            Some(_) => return Err(unreadable("preconditions must be an object")),
        };
        let options = DeleteOptions {
            uid: text(conditions, "uid")?,
            resource_version: text(conditions, "resourceVersion")?,
            grace_seconds: member(body, "gracePeriodSeconds", "an integer", Value::as_i64)?,
            orphan_dependents: member(body, "orphanDependents", "a boolean", Value::as_bool)?,
            ..DeleteOptions::default()
        };
        let texts = |value: &Value| value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect();
        let dry_run: Option<Vec<String>> = member(body, "dryRun", "a list of strings", texts)?;
        Ok(Self { policy: text(body, "propagationPolicy")?, dry_run: dry_run.unwrap_or_default(), options })
    }

    fn check(self) -> Result<DeleteOptions, Status> {
        let Self { policy, dry_run, options } = self;
        let mut causes = Vec::new();
        let named = policy.as_deref().and_then(PropagationPolicy::named);
        if let Some(policy) = &policy {
            if options.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(StatusCause::invalid("propagationPolicy", &quote(policy), why));
            }
            if named.is_none() {
                causes.push(StatusCause::not_supported("propagationPolicy", policy, &POLICIES));
            }
        }
        let dry_run = read_dry_run(&dry_run.iter().map(String::as_str).collect::<Vec<_>>());
        let dry_run = dry_run.map_err(|cause| causes.push(cause)).unwrap_or_default();
        if !causes.is_empty() {
            return Err(Status::invalid_options("DeleteOptions", causes));
        }
        // Negative grace periods mean one second, as in kube-apiserver.
        let grace_seconds = options.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
        let older = |orphans| if orphans { PropagationPolicy::Orphan } else { PropagationPolicy::Background };
        let policy = named.or_else(|| options.orphan_dependents.map(older));
        Ok(DeleteOptions { dry_run, grace_seconds, policy, ..options })
    }
}

fn unreadable(error: &str) -> Status {
    Status::bad_request(format!("the object provided is unrecognized (must be of type DeleteOptions): {error}"))
}

/// Reads a member of a body; null counts as absent.
fn member<T>(
    body: &Object,
    name: &str,
    what: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, Status> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| unreadable(&format!("{name} must be {what}"))),
    }
}

/// Reads a string member; empty counts as absent.
fn text(body: &Object, name: &str) -> Result<Option<String>, Status> {
    let text = member(body, name, "a string", |value| value.as_str().map(str::to_owned))?;
    Ok(text.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn read(query: Pairs<'_>, body: &str) -> Result<DeleteOptions, (u16, String)> {
        let ty = Registry::builtin().find("", "v1", "pods").expect("pods");
        let query: Vec<(String, String)> = query.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        DeleteOptions::read(&WriteRequest {
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

    /// Goal: every option is checked, and all errors are reported together. Method: a table of query and message.
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
        assert_eq!(read(&[], "{}"), Ok(DeleteOptions::default()));
        let says = |policy| DeleteOptions { policy: Some(policy), ..DeleteOptions::default() };
        let background = says(PropagationPolicy::Background);
        assert_eq!(read(&[], r#"{"propagationPolicy":"Background"}"#), Ok(background));
        let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
        assert_eq!(
            read(&[("dryRun", "All"), ("propagationPolicy", "Orphan")], ""),
            Ok(DeleteOptions { dry_run: true, ..says(PropagationPolicy::Orphan) })
        );
        assert_eq!(read(&[], r#"{"dryRun":["All"]}"#), Ok(dry));
        let body = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"}}"#;
        let expected =
            DeleteOptions { uid: Some("u".into()), resource_version: Some("7".into()), ..DeleteOptions::default() };
        assert_eq!(read(&[("dryRun", "All")], body), Ok(expected.clone()));
        assert_eq!(read(&[("uid", "u"), ("resourceVersion", "7")], ""), Ok(expected));
    }

    #[test]
    fn grace_and_dependents_are_read_from_both() {
        let expected = |grace_seconds, orphan_dependents: Option<bool>| {
            let policy = orphan_dependents.map(|orphans| match orphans {
                true => PropagationPolicy::Orphan,
                false => PropagationPolicy::Background,
            });
            Ok(DeleteOptions { grace_seconds, orphan_dependents, policy, ..DeleteOptions::default() })
        };
        assert_eq!(read(&[("gracePeriodSeconds", "5")], ""), expected(Some(5), None));
        assert_eq!(read(&[("gracePeriodSeconds", "-5")], ""), expected(Some(1), None));
        for (text, orphans) in [("", true), ("true", true), ("0", false), ("False", false)] {
            assert_eq!(read(&[("orphanDependents", text)], ""), expected(None, Some(orphans)), "{text}");
        }
        let body = r#"{"gracePeriodSeconds":0,"orphanDependents":false,"propagationPolicy":null}"#;
        assert_eq!(read(&[("gracePeriodSeconds", "5")], body), expected(Some(0), Some(false)));
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
            (
                &[],
                r#"{"gracePeriodSeconds":"5"}"#,
                400,
                "the object provided is unrecognized (must be of type DeleteOptions): gracePeriodSeconds must be an \
                 integer",
            ),
            (&[("gracePeriodSeconds", "x")], "", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                &[],
                r#"{"propagationPolicy":"Orphan","orphanDependents":true,"dryRun":["x"]}"#,
                422,
                "DeleteOptions.meta.k8s.io \"\" is invalid: [propagationPolicy: Invalid value: \"Orphan\": \
                 orphanDependents and deletionPropagation cannot be both set, dryRun: Unsupported value: [\"x\"]: \
                 supported values: \"All\"]",
            ),
        ];
        for (query, body, code, text) in table {
            assert_eq!(read(query, body), Err((*code, (*text).to_owned())));
        }
    }
}
