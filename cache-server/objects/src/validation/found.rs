//! The causes that are found.

use std::{collections::HashMap, fmt};

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
        super::steps::count();
        self.count += 1;
        self.causes.push_with(|| make(&place.path()));
    }

    /// Refuses a value as often as kube-apiserver does, which pairs its causes with other values. Cost: constant.
    pub(super) fn add_times(&mut self, times: usize, place: &Place<'_>, make: impl Fn(&str) -> StatusCause) {
        super::steps::count();
        self.count = self.count.saturating_add(times);
        self.causes.push_times(times, || make(&place.path()));
    }

    pub(super) fn required(&mut self, place: &Place<'_>, why: &str) {
        self.add(place, |field| StatusCause::required(field, why));
    }

    pub(super) fn forbidden(&mut self, place: &Place<'_>, why: &str) {
        self.add(place, |field| StatusCause::forbidden(field, why));
    }

    /// Refuses the value at the place.
    pub(super) fn invalid(&mut self, place: &Place<'_>, why: &str) {
        self.invalid_as(place, ShownValue::Found(place.value), why);
    }

    /// Refuses another value than the one at the place.
    pub(super) fn invalid_as(&mut self, place: &Place<'_>, shown: ShownValue<'_>, why: &str) {
        self.add(place, |field| StatusCause::invalid(field, &shown.to_string(), why));
    }

    /// Refuses a number, which is zero if it is absent.
    pub(super) fn invalid_number(&mut self, place: &Place<'_>, why: &str) {
        self.invalid_as(place, ShownValue::Number(place.int().unwrap_or_default()), why);
    }

    /// Refuses the text at the place, for each reason.
    pub(super) fn refuse(&mut self, place: &Place<'_>, why: &[String]) {
        self.refuse_as(place, place.text(), why);
    }

    pub(super) fn refuse_as(&mut self, place: &Place<'_>, text: &str, why: &[String]) {
        for why in why {
            self.invalid_as(place, ShownValue::Text(text), why);
        }
    }

    pub(super) fn duplicate(&mut self, place: &Place<'_>) {
        self.duplicate_as(place, ShownValue::Found(place.value));
    }

    pub(super) fn duplicate_as(&mut self, place: &Place<'_>, shown: ShownValue<'_>) {
        self.add(place, |field| StatusCause::duplicate(field, &shown.to_string()));
    }

    pub(super) fn not_found(&mut self, place: &Place<'_>) {
        self.add(place, |field| {
            let text = format!("Not found: {}", ShownValue::Found(place.value));
            StatusCause::new(CauseReason::FieldValueNotFound, field, &text)
        });
    }

    pub(super) fn too_long(&mut self, place: &Place<'_>, most: usize) {
        self.add(place, |field| {
            let text = format!("Too long: may not be more than {most} bytes");
            StatusCause::new(CauseReason::FieldValueTooLong, field, &text)
        });
    }

    pub(super) fn too_many(&mut self, place: &Place<'_>, most: usize) {
        self.add(place, |field| StatusCause::too_many(field, place.len(), most));
    }

    pub(super) fn unsupported(&mut self, place: &Place<'_>, supported: &[&str]) {
        self.unsupported_as(place, ShownValue::Found(place.value), supported);
    }

    pub(super) fn unsupported_as(&mut self, place: &Place<'_>, shown: ShownValue<'_>, supported: &[&str]) {
        self.add(place, |field| {
            let supported = supported.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ");
            let text = format!("Unsupported value: {shown}: supported values: {supported}");
            StatusCause::new(CauseReason::FieldValueNotSupported, field, &text)
        });
    }
}

/// A value as a cause shows it. Its text is built with the cause.
#[derive(Clone, Copy)]
pub(super) enum ShownValue<'a> {
    /// A value of the object; an absent one is an empty text.
    Found(Option<&'a Value>),
    /// A value of the object; an absent one is null.
    OrNull(Option<&'a Value>),
    /// A text, in quotes.
    Text(&'a str),
    Number(i64),
    /// JSON.
    Json(&'a str),
}

impl fmt::Display for ShownValue<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(None) => to.write_str("\"\""),
            Self::OrNull(None) => to.write_str("null"),
            Self::Found(Some(Value::String(text))) | Self::OrNull(Some(Value::String(text))) => {
                to.write_str(&quote(text))
            }
            Self::Found(Some(value)) | Self::OrNull(Some(value)) => to.write_str(&json(value)),
            Self::Text(text) => to.write_str(&quote(text)),
            Self::Number(number) => write!(to, "{number}"),
            Self::Json(text) => to.write_str(text),
        }
    }
}

/// Members of Kubernetes' types of metadata in the order in which Go shows them. Others follow by their names.
const FIRST: [&str; 9] =
    ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion", "matchLabels", "matchExpressions", "key"];

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
