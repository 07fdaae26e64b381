//! Differences that `docs/guarantees.md` documents. Each rule names the first cell of its row.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use super::{
    Answer,
    compare::Difference,
    script::{self, Request},
};

/// The responses of both servers to a request.
pub(crate) struct Case<'a> {
    pub(crate) request: &'a Request,
    pub(crate) stock: &'a Answer,
    pub(crate) ours: &'a Answer,
    /// Paths that the stock server fills in for this type.
    pub(crate) defaults: &'a BTreeSet<String>,
}

/// The row that allows a difference, and whether the servers still hold equal objects (`is_presentation`).
pub(crate) struct Allowed {
    pub(crate) row: &'static str,
    pub(crate) is_presentation: bool,
}

type Rule = fn(&Case<'_>, &Difference) -> bool;

/// Rules about the presentation of equal state.
const SHOWN: [(&str, Rule); 11] = [
    ("defaults", |case, difference| {
        let path = difference.path.strip_prefix("items[].").unwrap_or(&difference.path);
        let rest = |filled: &String| path.strip_prefix(filled.as_str());
        let is_filled_in = |filled: &String| rest(filled).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        difference.ours.is_none() && case.defaults.iter().any(is_filled_in)
    }),
    // The stock server allocates the address of a Service before it validates the object.
    ("defaults", |case, _| has(&Some(case.stock.body["message"].clone()), &["failed to allocate IP"])),
    ("empty values", |_, difference| match (&difference.stock, &difference.ours) {
        (None, Some(value)) | (Some(value), None) => is_empty(value),
        (Some(stock), Some(ours)) => is_empty(stock) && is_empty(ours),
        (None, None) => false,
    }),
    ("messages of JSON patches that do not apply", |_, difference| {
        difference.path == "message" && has(&difference.ours, &[": JSON patch operation "])
    }),
    ("messages about bodies that cannot be read", |_, difference| {
        let parts = [
            "patch: Invalid value: ",
            "Invalid value: \"{",
            "Invalid value: \"map[",
            "Invalid value: \"[",
            "the object provided is unrecognized",
            "error decoding YAML",
        ];
        has(&difference.stock, &parts)
    }),
    ("CBOR", |_, difference| difference.path == "message" && has(&difference.stock, &["accepted media types include"])),
    ("messages that name parts of kube-apiserver", |_, difference| {
        // Go's types and files, the order of its maps, and keys of etcd.
        let parts = [
            "in scheme \"",
            "cannot unmarshal",
            "cannot be handled as a",
            "failed to create typed patch object",
            "StorageError: invalid object",
        ];
        difference.path == "message" && has(&difference.stock, &parts)
    }),
    ("causes of a refusal", |_, difference| {
        // A uid may be part of it.
        let text = |cause: &Value| cause.to_string().replace(|letter: char| letter.is_ascii_hexdigit(), "");
        let set = |causes: &Option<Value>| -> BTreeSet<String> {
            causes.iter().filter_map(Value::as_array).flatten().map(text).collect()
        };
        difference.path == "details.causes" && set(&difference.stock) == set(&difference.ours)
    }),
    ("labels, annotations, specs", |case, difference| {
        let causes = |answer: &Answer| answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let (stock, is_refused) = (causes(case.stock), case.stock.code == 422 && case.ours.code == 422);
        let is_about = difference.path == "message" || difference.path == "details.causes";
        is_refused && is_about && causes(case.ours).iter().all(|cause| stock.contains(cause))
    }),
    ("warnings of requests that are refused", |case, difference| {
        difference.path == "warnings" && case.ours.code >= 400 && case.ours.warnings.is_empty()
    }),
    ("the `Status` of a delete", |case, difference| {
        difference.path == "metadata.resourceVersion"
            && case.ours.body["kind"] == "Status"
            && difference.stock.is_none()
    }),
];

/// Error text for a new object with a resourceVersion.
const WITH_VERSION: &str = "resourceVersion should not be set on objects to be created";

/// Rules about requests after which the servers hold different objects.
const DECIDED: [(&str, Rule); 7] = [
    ("labels, annotations, specs", |case, difference| {
        let is_refused = case.stock.code == 422 && case.stock.body["reason"] == "Invalid";
        // The stock server makes its other checks after validation.
        let is_later = matches!(case.ours.code, 200 | 201 | 404 | 409) || case.ours.body["message"] == WITH_VERSION;
        difference.path == "code" && is_refused && is_later
    }),
    ("defaults", |_, difference| difference.path == "spec.clusterIP" && difference.ours.is_none()),
    ("defaults", |case, difference| {
        // A JSON patch of a member inside a filled-in one.
        let body = case.request.body.as_deref().unwrap_or_default();
        let leads_through = |path: &String| body.contains(&format!("\"/{}/", path.replace('.', "/")));
        difference.path == "code" && case.ours.code == 422 && case.defaults.iter().any(leads_through)
    }),
    ("custom resources without kind or apiVersion in a body", |case, difference| {
        difference.path == "code" && has(&Some(case.stock.body["message"].clone()), &["Object 'Kind' is missing"])
    }),
    ("the status of a Service that is not there", |case, difference| {
        let is_status = case.request.path.contains("/services/") && case.request.path.contains("/status");
        difference.path == "code" && is_status && case.ours.code == 404
    }),
    ("managedFields", |case, difference| {
        // The stock server also writes changes of field ownership with equal values; and an apply keeps fields of other
        // managers.
        let is_other = difference.stock.is_some() && difference.ours.is_some();
        let is_shorter = difference.ours.is_none() || difference.path == "metadata.generation";
        let is_kept = case.request.content_type == script::APPLY && is_shorter;
        difference.path == "metadata.resourceVersion" && is_other || is_kept
    }),
    ("times of deletion in new objects", |_, difference| {
        let members = ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"];
        difference.path.strip_prefix("metadata.").is_some_and(|member| members.contains(&member))
            && difference.ours.is_none()
    }),
];

type CachedRule = fn(&Difference) -> bool;

/// Rules about answers from a cache, beside those of the API server behind it. The objects are always equal.
const CACHED: [(&str, CachedRule); 3] = [
    ("one custom resource as a list of metadata", |difference| {
        difference.path == "code" && difference.stock == Some(500.into()) && difference.ours == Some(406.into())
    }),
    ("columns of tables", |difference| {
        let is_no_row = difference.stock == Some(Value::Null) && difference.ours == Some(Value::Array(Vec::new()));
        difference.path == "columnDefinitions[].description" || difference.path == "rows" && is_no_row
    }),
    ("states older than the window: exact reads, expired tokens", |difference| {
        difference.path == "code" && difference.ours == Some(410.into())
    }),
];

fn has(value: &Option<Value>, parts: &[&str]) -> bool {
    let text = value.as_ref().map(ToString::to_string).unwrap_or_default();
    // The part as it is escaped in JSON.
    parts.iter().any(|part| text.contains(&part.replace('"', "\\\"")))
}

/// Returns true for values that Go omits for a field with `omitempty`, and writes for one without.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
    }
}

/// Checks that each rule names a row.
pub(crate) fn assert_rows_exist() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guarantees.md");
    let guarantees = fs::read_to_string(file).unwrap();
    let rows = SHOWN.iter().chain(&DECIDED).map(|(row, _)| row);
    for row in rows.chain(CACHED.iter().map(|(row, _)| row)) {
        assert!(guarantees.contains(&format!("| {row} |")), "there is no row {row:?}");
    }
}

/// Finds the rule of a difference.
pub(crate) fn rule(case: &Case<'_>, difference: &Difference) -> Option<Allowed> {
    let find = |rules: &[(&'static str, Rule)], is_presentation| {
        let (row, _) = rules.iter().find(|(_, rule)| rule(case, difference))?;
        Some(Allowed { row, is_presentation })
    };
    find(&SHOWN, true).or_else(|| find(&DECIDED, false))
}

/// Finds the row that allows a difference between a cache and the API server behind it.
pub(crate) fn row_of_cached(difference: &Difference) -> Option<&'static str> {
    CACHED.iter().find(|(_, rule)| rule(difference)).map(|(row, _)| *row)
}
