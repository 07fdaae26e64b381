//! The causes that are found.

use std::collections::HashMap;

use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Causes, StatusCause},
};
use serde_json::Value;

use super::place::Place;

/// Causes so far, and what further checks need to know.
#[derive(Default)]
pub(super) struct FoundCauses {
    pub(super) causes: Causes,
    count: usize,
    /// The volumes of the pod at hand by their names; true for those that are claims.
    pub(super) volumes: HashMap<String, bool>,
    /// Claims that a StatefulSet makes for each of its pods, by their names.
    pub(super) claims: Vec<String>,
}

impl FoundCauses {
    /// Returns the number of causes so far.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, place: &Place<'_>, make: impl FnOnce(&str) -> StatusCause) {
        self.count += 1;
        self.causes.push_with(|| make(&place.path()));
    }

    pub(super) fn required(&mut self, place: &Place<'_>, why: &str) {
        self.add(place, |field| StatusCause::required(field, why));
    }

    pub(super) fn forbidden(&mut self, place: &Place<'_>, why: &str) {
        self.add(place, |field| StatusCause::forbidden(field, why));
    }

    /// Refuses the value at the place.
    pub(super) fn invalid(&mut self, place: &Place<'_>, why: &str) {
        self.add(place, |field| StatusCause::invalid(field, &shown(place.value), why));
    }

    /// Refuses another value than the one at the place, as its text in JSON.
    pub(super) fn invalid_as(&mut self, place: &Place<'_>, shown: &str, why: &str) {
        self.add(place, |field| StatusCause::invalid(field, shown, why));
    }

    /// Refuses a number, which is zero if it is absent.
    pub(super) fn invalid_number(&mut self, place: &Place<'_>, why: &str) {
        self.invalid_as(place, &place.int().unwrap_or_default().to_string(), why);
    }

    /// Refuses the text at the place, for each reason.
    pub(super) fn refuse(&mut self, place: &Place<'_>, why: &[String]) {
        self.refuse_as(place, place.text(), why);
    }

    pub(super) fn refuse_as(&mut self, place: &Place<'_>, text: &str, why: &[String]) {
        for why in why {
            self.add(place, |field| StatusCause::invalid(field, &quote(text), why));
        }
    }

    pub(super) fn duplicate(&mut self, place: &Place<'_>) {
        self.duplicate_as(place, &shown(place.value));
    }

    pub(super) fn duplicate_as(&mut self, place: &Place<'_>, shown: &str) {
        self.add(place, |field| StatusCause::duplicate(field, shown));
    }

    pub(super) fn not_found(&mut self, place: &Place<'_>) {
        self.add(place, |field| {
            StatusCause::new(CauseReason::FieldValueNotFound, field, &format!("Not found: {}", shown(place.value)))
        });
    }

    pub(super) fn too_long(&mut self, place: &Place<'_>, most: usize) {
        self.add(place, |field| {
            let text = format!("Too long: may not be more than {most} bytes");
            StatusCause::new(CauseReason::FieldValueTooLong, field, &text)
        });
    }

    pub(super) fn unsupported(&mut self, place: &Place<'_>, supported: &[&str]) {
        self.unsupported_as(place, &shown(place.value), supported);
    }

    pub(super) fn unsupported_as(&mut self, place: &Place<'_>, shown: &str, supported: &[&str]) {
        self.add(place, |field| {
            let supported = supported.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ");
            let text = format!("Unsupported value: {shown}: supported values: {supported}");
            StatusCause::new(CauseReason::FieldValueNotSupported, field, &text)
        });
    }
}

/// Members of Kubernetes' types of metadata in the order in which Go shows them. Others follow in the order of their names.
const FIRST: [&str; 9] =
    ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion", "matchLabels", "matchExpressions", "key"];

/// Shows a value as kube-apiserver does in a cause.
pub(super) fn shown(value: Option<&Value>) -> String {
    match value {
        None => "\"\"".to_owned(),
        Some(Value::String(text)) => quote(text),
        Some(value) => json(value),
    }
}

/// Writes JSON with members in Go's order.
fn json(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| place(name));
            let members = sorted.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), json(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
