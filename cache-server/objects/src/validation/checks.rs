//! The checks that rows of the table name.

use api_rules::object::Object;
use serde_json::Value;

use super::{
    found::{FoundCauses, ShownValue},
    place::Place,
    table::RowArguments,
    texts,
};

/// A check of the value at a place.
pub(super) type ValueCheck = fn(&mut FoundCauses, &Place<'_>, &RowArguments);

/// Most bytes of keys and values of annotations.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// The least number of a port, and the greatest one.
const PORTS: [i64; 2] = [1, 65_535];

/// Finds the check of a name in the table.
pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "required" => required,
        "forbidden" => forbidden,
        "enum" => one_of,
        "at-least-0" => |found, place, _| at_least_0(found, place),
        "range" => range,
        "port" => |found, place, _| port(found, place),
        "port-number-or-name" => |found, place, _| port_number_or_name(found, place),
        "mode" => |found, place, _| mode(found, place),
        "percent-or-int" => |found, place, _| percent_or_int(found, place),
        "labels" => |found, place, _| labels(found, place),
        "annotations" => |found, place, _| annotations(found, place),
        "owners" => |found, place, _| owners(found, place),
        "finalizers" => |found, place, _| finalizers(found, place),
        "kube-finalizers" => |found, place, _| kube_finalizers(found, place),
        "selector" => |found, place, _| selector(found, place),
        "immutable" => |found, place, arguments| immutable_as(found, place, &arguments.text),
        "frozen" => frozen,
        "relative-path" => |found, place, _| relative_path(found, place),
        "no-backsteps" => |found, place, _| no_backsteps(found, place),
        _ => return None,
    })
}

/// `required WHY`: for a value that is empty.
fn required(found: &mut FoundCauses, place: &Place<'_>, arguments: &RowArguments) {
    if place.is_empty() {
        found.required(place, &arguments.text);
    }
}

/// `forbidden WHY`: for a value that is present.
fn forbidden(found: &mut FoundCauses, place: &Place<'_>, arguments: &RowArguments) {
    if place.is_set() {
        found.forbidden(place, &arguments.text);
    }
}

/// `enum VALUE…`.
fn one_of(found: &mut FoundCauses, place: &Place<'_>, arguments: &RowArguments) {
    if !arguments.words.iter().any(|word| word == place.text()) {
        let supported: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
        found.unsupported(place, &supported);
    }
}

pub(super) fn at_least_0(found: &mut FoundCauses, place: &Place<'_>) {
    if place.int().is_some_and(|number| number < 0) {
        found.invalid(place, "must be greater than or equal to 0");
    }
}

/// `range LEAST MOST`, for a number that is present.
fn range(found: &mut FoundCauses, place: &Place<'_>, arguments: &RowArguments) {
    let (least, most) = (arguments.number(0), arguments.number(1));
    if place.int().is_some_and(|number| !(least..=most).contains(&number)) {
        found.invalid(place, &format!("must be between {least} and {most}, inclusive"));
    }
}

pub(super) fn port(found: &mut FoundCauses, place: &Place<'_>) {
    let [least, most] = PORTS;
    if !(least..=most).contains(&place.int().unwrap_or_default()) {
        found.invalid_number(place, &format!("must be between {least} and {most}, inclusive"));
    }
}

pub(super) fn port_number_or_name(found: &mut FoundCauses, place: &Place<'_>) {
    match place.value {
        Some(Value::String(name)) => found.refuse(place, &texts::port_name(name)),
        _ => port(found, place),
    }
}

pub(super) fn mode(found: &mut FoundCauses, place: &Place<'_>) {
    if place.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        found.invalid(place, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn percent_or_int(found: &mut FoundCauses, place: &Place<'_>) {
    amount(found, place);
    at_most_all(found, place);
}

/// Checks a number or a percentage, of any size.
pub(super) fn amount(found: &mut FoundCauses, place: &Place<'_>) {
    match place.value {
        Some(Value::String(text)) => found.refuse(place, &texts::percent(text)),
        _ => at_least_0(found, place),
    }
}

/// Refuses a percentage over 100.
pub(super) fn at_most_all(found: &mut FoundCauses, place: &Place<'_>) {
    let is_percent = place.value.is_some_and(Value::is_string);
    if is_percent && percent_value(place).is_some_and(|percent| percent > 100) {
        found.invalid(place, "must not be greater than 100%");
    }
}

/// Returns the number of a percentage or of a number; `None` for another text.
pub(super) fn percent_value(place: &Place<'_>) -> Option<i64> {
    match place.value {
        Some(Value::String(text)) => text.strip_suffix('%').and_then(|digits| digits.parse().ok()),
        _ => Some(place.int().unwrap_or_default()),
    }
}

pub(super) fn labels(found: &mut FoundCauses, place: &Place<'_>) {
    for (key, value) in place.entries() {
        found.refuse_as(place, key, &texts::qualified(key));
        let value = value.text();
        found.refuse_as(place, value, &texts::label_value(value));
    }
}

pub(super) fn annotations(found: &mut FoundCauses, place: &Place<'_>) {
    let mut bytes = 0;
    for (key, value) in place.entries() {
        bytes += key.len() + value.text().len();
        let refused = texts::qualified(key);
        // Upper case is allowed.
        if !refused.is_empty() {
            found.refuse_as(place, key, &texts::qualified(&key.to_lowercase()));
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        found.too_long(place, ANNOTATIONS_BYTES_MAX);
    }
}

/// References to owners.
fn owners(found: &mut FoundCauses, place: &Place<'_>) {
    let mut controller: Option<String> = None;
    for owner in place.items() {
        let (version, kind, name) = (owner.str("apiVersion"), owner.str("kind"), owner.str("name"));
        let members = [
            ("apiVersion", version.is_empty() || version.ends_with('/'), "version must not be empty"),
            ("kind", kind.is_empty(), "must not be empty"),
            ("name", name.is_empty(), "must not be empty"),
            ("uid", owner.str("uid").is_empty(), "must not be empty"),
        ];
        for (member, _, why) in members.iter().filter(|(_, is_refused, _)| *is_refused) {
            found.invalid_as(&place.member(member), ShownValue::Text(owner.str(member)), why);
        }
        if version == "v1" && kind == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            found.invalid_as(place, ShownValue::Found(owner.value), why);
        }
        if !owner.is_true("controller") {
            continue;
        }
        let this = format!("{kind}/{name}");
        match &controller {
            Some(first) => found.invalid(
                place,
                &format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                ),
            ),
            None => controller = Some(this),
        }
    }
}

fn finalizers(found: &mut FoundCauses, place: &Place<'_>) {
    let (mut orphans, mut deletes) = (false, false);
    for finalizer in place.items() {
        let name = finalizer.text();
        found.refuse_as(place, name, &texts::qualified(name));
        orphans |= name == "orphan";
        deletes |= name == "foregroundDeletion";
    }
    if orphans && deletes {
        found.invalid(place, "finalizer foregroundDeletion and orphan cannot be both set");
    }
}

/// Finalizers of the core types: those that Kubernetes knows, and those with a domain.
fn kube_finalizers(found: &mut FoundCauses, place: &Place<'_>) {
    for finalizer in place.items() {
        if !is_kube_finalizer(finalizer.text()) {
            found.invalid(&finalizer, NO_FINALIZER);
        }
    }
}

pub(super) const NO_FINALIZER: &str = "name is neither a standard finalizer name nor is it fully qualified";

pub(super) fn is_kube_finalizer(name: &str) -> bool {
    name.contains('/') || ["kubernetes", "orphan", "foregroundDeletion"].contains(&name)
}

pub(super) fn selector(found: &mut FoundCauses, place: &Place<'_>) {
    labels(found, &place.member("matchLabels"));
    for expression in place.member("matchExpressions").items() {
        label_operator(found, &expression);
        let key = expression.member("key");
        found.refuse(&key, &texts::qualified(key.text()));
        label_values(found, &expression.member("values"));
    }
}

/// Checks the operator of a requirement for labels.
pub(super) fn label_operator(found: &mut FoundCauses, requirement: &Place<'_>) {
    let (operator, values) = (requirement.member("operator"), requirement.member("values"));
    match operator.text() {
        "In" | "NotIn" => {
            if values.is_empty() {
                found.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                found.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        _ => found.invalid(&operator, "not a valid selector operator"),
    }
}

pub(super) fn label_values(found: &mut FoundCauses, values: &Place<'_>) {
    for value in values.items() {
        found.refuse(&value, &texts::label_value(value.text()));
    }
}

/// The relation of a selector to some labels.
pub(super) enum SelectorMatch {
    Invalid,
    All,
    Some(bool),
}

/// Evaluates a selector for labels. An absent one selects none.
pub(super) fn selects(selector: &Place<'_>, labels: Option<&Object>) -> SelectorMatch {
    if !selector.is_set() {
        return SelectorMatch::Some(false);
    }
    let mut refused = FoundCauses::default();
    self::selector(&mut refused, selector);
    if !refused.causes.is_empty() {
        return SelectorMatch::Invalid;
    }
    let value_of = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let (pairs, expressions) = (selector.member("matchLabels"), selector.member("matchExpressions"));
    if pairs.is_empty() && expressions.is_empty() {
        return SelectorMatch::All;
    }
    let are_equal = pairs.entries().all(|(key, value)| value_of(key) == Some(value.text()));
    let are_met = expressions.items().all(|expression| {
        let value = value_of(expression.str("key"));
        let values = expression.member("values");
        let is_in = || value.is_some_and(|value| values.items().any(|one| one.text() == value));
        match expression.str("operator") {
            "In" => is_in(),
            "NotIn" => !is_in(),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    });
    SelectorMatch::Some(are_equal && are_met)
}

pub(super) fn immutable(found: &mut FoundCauses, place: &Place<'_>) {
    immutable_as(found, place, "");
}

/// `immutable ABSENT`: causes show an absent value as ABSENT, by default as null.
fn immutable_as(found: &mut FoundCauses, place: &Place<'_>, absent: &str) {
    if place.is_changed() {
        let shown = match place.value {
            None if !absent.is_empty() => ShownValue::Json(absent),
            value => ShownValue::OrNull(value),
        };
        found.invalid_as(place, shown, "field is immutable");
    }
}

/// `frozen WHY`: forbids a change.
fn frozen(found: &mut FoundCauses, place: &Place<'_>, arguments: &RowArguments) {
    if place.is_changed() {
        found.forbidden(place, &arguments.text);
    }
}

pub(super) fn no_backsteps(found: &mut FoundCauses, place: &Place<'_>) {
    if place.text().split('/').any(|part| part == "..") {
        found.invalid(place, "must not contain '..'");
    }
}

/// A path that stays below another one.
pub(super) fn relative_path(found: &mut FoundCauses, place: &Place<'_>) {
    if place.text().starts_with('/') {
        found.invalid(place, "must be a relative path");
    }
    no_backsteps(found, place);
}
