//! Jobs and CronJobs.
//!
//! Source: `pkg/apis/batch/validation/validation.go`; `robfig/cron`.

use std::{collections::HashSet, num::IntErrorKind};

use api_rules::object::Object;
use informer_serving::{
    go,
    status::{CauseExt as _, CauseReason, StatusCause},
};
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, texts, workloads};
use crate::validation::checks::{SelectorMatch, selects};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "generated_labels" => generated_labels,
        "job_selector" => job_selector,
        "indexed_name" => indexed_name,
        "completions_update" => completions_update,
        "job_template_update" => job_template_update,
        "job_indexes" => job_indexes,
        "failure_policy" => failure_policy,
        "replacement_policy" => replacement_policy,
        "job_restart_policy" => job_restart_policy,
        "cron_job_name" => cron_job_name,
        "schedule" => schedule,
        "time_zone" => time_zone,
        "job_template_selector" => job_template_selector,
        _ => return None,
    })
}

/// Checks that the pods of a Job have the labels by which it selects them, unless it brings its selector.
fn generated_labels(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let Some(job) = spec.outer().filter(|_| spec.has("selector") && !spec.is_true("manualSelector")) else { return };
    let (own, template) = (job.member("metadata"), spec.member("template"));
    let (uid, name, metadata) = (own.str("uid"), own.str("name"), template.member("metadata"));
    let labels = metadata.member("labels");
    let (mut expected, mut selected) = (vec![("controller-uid", uid), ("job-name", name)], Object::new());
    // Older versions did not add them.
    let prefixed = [("batch.kubernetes.io/controller-uid", uid), ("batch.kubernetes.io/job-name", name)];
    if has_labels(spec, prefixed.map(|(label, _)| label)) {
        expected.extend(prefixed);
    }
    for (label, value) in expected {
        let why = || format!("must be '{value}'");
        if !labels.has(label) {
            found.required(&labels.key(label), &why());
        } else if labels.str(label) != value {
            found.invalid_as(&labels.key(label), ShownValue::Found(labels.value), &why());
        }
        selected.insert(label.to_owned(), value.into());
    }
    let selector = spec.member("selector");
    if let SelectorMatch::Some(false) = selects(&selector, Some(&selected)) {
        found.invalid(&selector, "`selector` not auto-generated");
    }
}

/// True if the stored template has the labels. A new one has them.
fn has_labels(spec: &Place<'_>, labels: [&str; 2]) -> bool {
    let stored = spec.stored.and_then(|spec| spec.pointer("/template/metadata/labels"));
    !spec.is_update() || labels.iter().all(|label| stored.is_some_and(|stored| stored.get(label).is_some()))
}

/// Checks that a Job has a selector, and that it selects the pods.
fn job_selector(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (selector, template) = (spec.member("selector"), spec.member("template"));
    let metadata = template.member("metadata");
    let labels = metadata.member("labels");
    // An older version of this server did not add it.
    if !selector.is_set() && spec.is_update() && spec.stored_member("selector").is_none() {
        return;
    }
    if !selector.is_set() {
        found.required(&selector, "");
    }
    checks::selector(found, &selector);
    if let SelectorMatch::Some(false) = selects(&selector, labels.value.and_then(Value::as_object)) {
        workloads::mismatch(found, &labels);
    }
}

/// Checks the hosts of indexed pods. They have the name of the Job and an index.
fn indexed_name(found: &mut FoundCauses, job: &Place<'_>, _: &RowArguments) {
    let (metadata, spec) = (job.member("metadata"), job.member("spec"));
    let name = metadata.member("name");
    let last = spec.num("completions").filter(|completions| *completions > 0).map(|completions| completions - 1);
    if let Some(last) = last.filter(|_| spec.str("completionMode") == "Indexed") {
        let host = format!("{}-{last}", name.text());
        if !texts::label(&host).is_empty() {
            found.invalid(&name, &format!("will not able to create pod with invalid DNS label: {host}"));
        }
    }
}

fn completions_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let completions = spec.member("completions");
    if spec.str("completionMode") != "Indexed" {
        checks::immutable(found, &completions);
    } else if completions.is_set() && completions.is_changed() && completions.int() != spec.num("parallelism") {
        found.invalid(&completions, "can only be modified in tandem with spec.parallelism");
    }
    checks::immutable(found, &spec.member("selector"));
}

/// A suspended Job may change where its pods run.
fn job_template_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let template = spec.member("template");
    let is_suspended = spec.stored_member("suspend") == Some(&Value::Bool(true));
    if !is_suspended {
        checks::immutable(found, &template);
    }
}

fn job_indexes(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (per_index, failed, completions, mode) = (
        spec.member("backoffLimitPerIndex"),
        spec.member("maxFailedIndexes"),
        spec.member("completions"),
        spec.member("completionMode"),
    );
    if failed.is_set() && !per_index.is_set() {
        found.required(&per_index, "when maxFailedIndexes is specified");
    }
    if mode.is_set() && !["NonIndexed", "Indexed"].contains(&mode.text()) {
        return found.unsupported(&mode, &["NonIndexed", "Indexed"]);
    }
    if mode.text() == "Indexed" {
        if !completions.is_set() {
            found.required(&completions, "when completion mode is Indexed");
        }
        let parallelism = spec.member("parallelism");
        if parallelism.int().is_some_and(|number| number > 100_000) {
            found.invalid(&parallelism, "must be less than or equal to 100000 when completion mode is Indexed");
        }
        if failed.int().zip(completions.int()).is_some_and(|(failed, completions)| failed > completions) {
            found.invalid(&failed, "must be less than or equal to completions");
        }
        if failed.int().is_some_and(|number| number > 100_000) {
            found.invalid(&failed, "must be less than or equal to 100000");
        }
        return;
    }
    for member in [per_index, failed] {
        if member.is_set() {
            found.invalid(&member, "requires indexed completion mode");
        }
    }
    let success = spec.member("successPolicy");
    if success.is_set() {
        found.invalid(&success, "requires indexed completion mode");
    }
}

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

/// Checks a value of a rule, and lists those that are allowed.
fn one_of(found: &mut FoundCauses, place: &Place<'_>, known: &[&str]) {
    if place.is_empty() {
        let known = known.iter().map(|known| format!("\"{known}\"")).collect::<Vec<_>>().join(" ");
        found.required(place, &format!("valid values: [{known}]"));
    } else if !known.contains(&place.text()) {
        found.unsupported(place, known);
    }
}

fn failure_policy(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let policy = spec.member("podFailurePolicy");
    let rules = policy.member("rules");
    if rules.len() > 20 {
        found.too_many(&rules, 20);
    }
    let (template, mut names) = (spec.member("template"), HashSet::new());
    let pod = template.member("spec");
    for list in ["containers", "initContainers"].map(|list| pod.get(list)) {
        let containers = list.and_then(Value::as_array).into_iter().flatten();
        names.extend(containers.filter_map(|container| container.get("name").and_then(Value::as_str)));
    }
    for rule in rules.items() {
        let action = rule.member("action");
        if action.text() == "FailIndex" {
            if !spec.has("backoffLimitPerIndex") {
                found.invalid(&action, "requires the backoffLimitPerIndex to be set");
            }
        } else {
            one_of(found, &action, &ACTIONS);
        }
        let (codes, conditions) = (rule.member("onExitCodes"), rule.member("onPodConditions"));
        if codes.is_set() {
            exit_codes(found, &codes, &names);
        }
        for condition in conditions.items() {
            let ty = condition.member("type");
            found.refuse(&ty, &texts::qualified(ty.text()));
            one_of(found, &condition.member("status"), &["False", "True", "Unknown"]);
        }
        let which = match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            (true, false) | (false, true) => continue,
        };
        found.add(&rule, |field| {
            StatusCause::new(CauseReason::FieldValueInvalid, field, &format!("Invalid value: {which}"))
        });
    }
}

fn exit_codes(found: &mut FoundCauses, codes: &Place<'_>, names: &HashSet<&str>) {
    let (operator, container, values) =
        (codes.member("operator"), codes.member("containerName"), codes.member("values"));
    one_of(found, &operator, &["In", "NotIn"]);
    if container.is_set() && !names.contains(container.text()) {
        found.invalid(&container, "must be one of the container or initContainer names in the pod template");
    }
    if values.is_empty() {
        found.invalid_as(&values, ShownValue::OrNull(values.value), "at least one value is required");
    } else if values.len() > 255 {
        found.too_many(&values, 255);
    }
    let (mut seen, mut before, mut is_ordered) = (HashSet::new(), None, true);
    for value in values.items() {
        let code = value.int().unwrap_or_default();
        if operator.text() == "In" && code == 0 {
            found.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            found.duplicate(&value);
        }
        is_ordered &= before.is_none_or(|before| before <= code);
        before = Some(code);
    }
    if !is_ordered {
        found.invalid(&values, "must be ordered");
    }
}

fn replacement_policy(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let policy = spec.member("podReplacementPolicy");
    let known = ["Failed", "TerminatingOrFailed"];
    let known = if spec.has("podFailurePolicy") { &known[..1] } else { &known[..] };
    if policy.is_set() && !known.contains(&policy.text()) {
        found.unsupported(&policy, known);
    }
}

fn job_restart_policy(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let template = spec.member("template");
    let pod = template.member("spec");
    let policy = pod.member("restartPolicy");
    match policy.text() {
        "Always" | "" => found.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if spec.has("podFailurePolicy") {
                found.invalid(&policy, "only \"Never\" is supported when podFailurePolicy is specified");
            }
        }
        _ => found.unsupported(&policy, &["OnFailure", "Never"]),
    }
}

fn cron_job_name(found: &mut FoundCauses, name: &Place<'_>, _: &RowArguments) {
    if name.text().len() > 52 {
        found.invalid(name, "must be no more than 52 characters");
    }
}

fn job_template_selector(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (selector, manual) = (spec.member("selector"), spec.member("manualSelector"));
    if selector.is_set() {
        found.invalid(&selector, "`selector` will be auto-generated");
    }
    if manual.value == Some(&Value::Bool(true)) {
        found.unsupported(&manual, &["nil", "false"]);
    }
}

fn schedule(found: &mut FoundCauses, schedule: &Place<'_>, _: &RowArguments) {
    let text = schedule.text();
    if let Err(why) = cron(text) {
        found.invalid(schedule, &why);
    }
    // Older versions stored such schedules: they may be kept, and changed.
    let is_stored = schedule.stored.and_then(Value::as_str).is_some_and(|stored| stored.contains("TZ"));
    let has_zone = || schedule.outer().is_some_and(|spec| spec.has("timeZone"));
    if text.contains("TZ") && !is_stored {
        found.invalid(schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if text.contains("TZ") && has_zone() {
        found.invalid(schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

/// Fields of a schedule: their bounds, and their names.
const FIELDS: [(u64, u64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Checks a schedule as the parser of `robfig/cron` does, with its errors.
fn cron(schedule: &str) -> Result<(), String> {
    let rest = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(zoned) => zoned.split_once(' ').map_or("", |(_, rest)| rest.trim()),
        None => schedule,
    };
    if rest.starts_with('@') {
        let known = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
        if known.contains(&rest) {
            return Ok(());
        }
        return match rest.strip_prefix("@every ") {
            Some(every) => {
                go::parse_duration(every).map(drop).map_err(|why| format!("failed to parse duration {rest}: {why}"))
            }
            None => Err(format!("unrecognized descriptor: {rest}")),
        };
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| cron_range(range, bounds))?;
    }
    Ok(())
}

fn cron_range(range: &str, (least, most, names): (u64, u64, &[&str])) -> Result<(), String> {
    let number = |text: &str| -> Result<u64, String> {
        if let Some(at) = names.iter().position(|name| !name.is_empty() && name.eq_ignore_ascii_case(text)) {
            return Ok(u64::try_from(at).unwrap_or_default());
        }
        plain_number(text)
    };
    let parts: Vec<&str> = range.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (mut start, mut end) = (least, most);
    if !["*", "?"].contains(&bounds[0]) {
        start = number(bounds[0])?;
        end = match bounds.as_slice() {
            [_] => start,
            [_, end] => number(end)?,
            _ => return Err(format!("too many hyphens: {range}")),
        };
    }
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if bounds.len() == 1 {
                end = most;
            }
            plain_number(step)?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {range}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

/// Parses a number as Go does, whose `int` has 64 bits.
fn plain_number(text: &str) -> Result<u64, String> {
    let number = text.parse::<i64>().map_err(|error| {
        let is_range = matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if is_range { "value out of range" } else { "invalid syntax" };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", go::quote(text))
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

/// The form of a time zone: which ones there are depends on the machine.
fn time_zone(found: &mut FoundCauses, zone: &Place<'_>, _: &RowArguments) {
    if !zone.is_set() {
        return;
    }
    let text = zone.text();
    if text.is_empty() {
        return found.invalid(zone, "timeZone must be nil or non-empty string");
    }
    let is_part = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        ![".", ".."].contains(&part)
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(is_allowed)
    };
    if !text.split('/').all(is_part) {
        return found.invalid(zone, &format!("unknown time zone {text}"));
    }
    if text.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        found.invalid(zone, why);
    }
}
