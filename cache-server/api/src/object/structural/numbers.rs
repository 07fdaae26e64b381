//! Checks the sizes and bounds of numbers.

use std::cmp::Ordering;

use informer_serving::{
    go,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::{Number, Value};

use super::{
    super::validation::ValuePath,
    SchemaObject, flag,
    values::{expected_type, shown},
};

/// The largest integer that a number with a fraction or an exponent may be: beyond it, not all integers are such numbers.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// The number after the largest integer.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

/// Returns true if a number is an integer to kube-apiserver.
pub(super) fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(|it| it.fract() == 0.0 && it.abs() <= FLOAT_INTEGER_MAX)
}

/// Checks a number against the bounds of its schema.
pub(super) fn check(value: &Value, schema: &SchemaObject, path: &ValuePath<'_>, causes: &mut Causes) {
    if let Some(format) = missed_format(value, schema) {
        // kube-apiserver gives it no field.
        causes.push_with(|| {
            let why = format!("Checked value must be of type integer {format} in {}", path.text());
            StatusCause::invalid("<nil>", "\"\"", &why)
        });
    }
    for (name, exclusive, than, wrong) in [
        ("minimum", "exclusiveMinimum", "greater", Ordering::Less),
        ("maximum", "exclusiveMaximum", "less", Ordering::Greater),
    ] {
        let Some(bound) = schema.get(name).and_then(Value::as_f64) else { continue };
        let (is_open, (order, bound)) = (flag(schema, exclusive), compare(value, bound));
        if order == wrong || is_open && order == Ordering::Equal {
            causes.push_with(|| {
                let (path, or_equal) = (path.text(), if is_open { "" } else { " or equal to" });
                let why = format!("{path} in body should be {than} than{or_equal} {bound}");
                StatusCause::invalid(&path, &shown(value), &why)
            });
        }
    }
}

/// Compares a number with a bound, and returns the text of the bound. Integers are compared as integers, because not all of
/// them are numbers with a fraction.
fn compare(value: &Value, bound: f64) -> (Ordering, String) {
    #[expect(clippy::cast_possible_truncation, reason = "the bound is an integer of that size")]
    match value.as_i64() {
        Some(number) if bound.fract() == 0.0 && bound.abs() < INTEGERS_END => {
            let bound = bound as i64;
            (number.cmp(&bound), bound.to_string())
        }
        _ => (value.as_f64().unwrap_or_default().partial_cmp(&bound).unwrap_or(Ordering::Equal), go::float(bound)),
    }
}

/// Returns a text for the format of the schema if the number is no integer of that size.
fn missed_format(value: &Value, schema: &SchemaObject) -> Option<&'static str> {
    let is_whole = |least: f64, most: f64| {
        value.as_f64().is_some_and(|number| number.fract() == 0.0 && least < number && number < most)
    };
    let (fits, format) = match format(schema) {
        _ if expected_type(schema) != "integer" => return None,
        Some("int32") => (is_whole(f64::from(i32::MIN) - 1.0, f64::from(i32::MAX) + 1.0), "with format int32"),
        Some("int64") => (value.is_i64() || is_whole(-INTEGERS_END, INTEGERS_END), "with format int64"),
        _ => (value.is_i64() || is_whole(-INTEGERS_END, INTEGERS_END), "(default format)"),
    };
    (!fits).then_some(format)
}

/// Returns the format of a number, if kube-apiserver knows it.
pub(super) fn format(schema: &SchemaObject) -> Option<&str> {
    let format = schema.get("format").and_then(Value::as_str);
    format.filter(|format| ["int32", "int64", "float", "double"].contains(format))
}
