//! Checks the sizes and bounds of numbers.

use std::cmp::Ordering;

use api_rules::object::validation::ValuePath;
use informer_serving::{
    go,
    status::{CauseExt as _, StatusCause},
};
use serde_json::{Number, Value};

use super::{
    SchemaObject, flag, formats,
    values::{Violations, expected_type, shown},
};

/// The largest integer that a number with a fraction or an exponent may be: beyond it, not all integers are such numbers.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// The number after the largest integer.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

/// Half a step beyond the largest number of 32 bits: smaller ones are rounded to it.
const FLOATS_END: f64 = 340_282_356_779_733_661_637_539_395_458_142_568_448.0;

/// Returns true if a number is an integer to kube-apiserver.
pub(super) fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(|it| it.fract() == 0.0 && it.abs() <= FLOAT_INTEGER_MAX)
}

/// Checks a number against the bounds of its schema.
pub(super) fn check(found: &mut Violations<'_>, value: &Value, schema: &SchemaObject, path: &ValuePath<'_>) {
    if let Some(format) = missed_format(value, schema) {
        // kube-apiserver gives it no field.
        let field = found.nameless_field();
        found.add(|| {
            let why = format!("Checked value must be of type {format} in {}", path.text());
            StatusCause::invalid(field, "\"\"", &why)
        });
    }
    if let Some(factor) = schema.get("multipleOf").and_then(Value::as_f64) {
        check_multiple(found, value, factor, schema, path);
    }
    for (name, exclusive, than, wrong) in [
        ("minimum", "exclusiveMinimum", "greater", Ordering::Less),
        ("maximum", "exclusiveMaximum", "less", Ordering::Greater),
    ] {
        let Some(bound) = schema.get(name).and_then(Value::as_f64) else { continue };
        let (is_open, (order, bound)) = (flag(schema, exclusive), compare(value, bound));
        if order == wrong || is_open && order == Ordering::Equal {
            found.add_at(path, |field, path| {
                let or_equal = if is_open { "" } else { " or equal to" };
                let why = format!("{path} in body should be {than} than{or_equal} {bound}");
                StatusCause::invalid(field, &shown(value), &why)
            });
        }
    }
}

/// Checks that a number is a multiple. Like kube-apiserver, takes integers for multiples of integers, whatever the factor.
fn check_multiple(found: &mut Violations<'_>, value: &Value, factor: f64, schema: &SchemaObject, path: &ValuePath<'_>) {
    let is_typed = expected_type(schema) != "integer" || factor.fract() == 0.0;
    if !is_typed {
        let (field, format) = (found.nameless_field(), formats::format(schema));
        let format = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
        found.add(|| {
            let why = format!("MultipleOf value must be of type integer {format} in {}", path.text());
            StatusCause::invalid(field, "\"\"", &why)
        });
    }
    #[expect(clippy::cast_possible_truncation, reason = "as in kube-apiserver")]
    let (is_positive, is_multiple, factor) = match value.as_i64().filter(|_| is_typed) {
        Some(number) => {
            let factor = factor as i64;
            (factor > 0, number.checked_rem(factor) == Some(0), factor.to_string())
        }
        None => {
            let number = value.as_f64().unwrap_or_default();
            let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            (factor > 0.0, is_about_whole(quotient), go::float(factor))
        }
    };
    if !is_positive {
        found.add_at(path, |field, path| {
            let why = format!("factor MultipleOf declared for {path} must be positive: {factor}");
            StatusCause::invalid(field, &factor, &why)
        });
    } else if !is_multiple {
        found.add_at(path, |field, path| {
            let why = format!("{path} in body should be a multiple of {factor}");
            StatusCause::invalid(field, &shown(value), &why)
        });
    }
}

/// Returns true for an integer, apart from errors of division.
fn is_about_whole(number: f64) -> bool {
    let whole = number.round();
    number.abs() <= FLOAT_INTEGER_MAX && (number == whole || (number - whole).abs() < 1e-9 * whole.abs())
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

/// Returns the type and the format of the schema if the number is too large for them, or no integer.
fn missed_format(value: &Value, schema: &SchemaObject) -> Option<&'static str> {
    let is_whole = |least: f64, most: f64| {
        value.as_f64().is_some_and(|number| number.fract() == 0.0 && least < number && number < most)
    };
    let (fits, format) = match (expected_type(schema), formats::format(schema)) {
        ("integer", Some("int32")) => {
            (is_whole(f64::from(i32::MIN) - 1.0, f64::from(i32::MAX) + 1.0), "integer with format int32")
        }
        ("integer", format) => {
            let text = if format == Some("int64") { "integer with format int64" } else { "integer (default format)" };
            (value.is_i64() || is_whole(-INTEGERS_END, INTEGERS_END), text)
        }
        ("number", Some("float")) => {
            let fits = value.as_f64().is_none_or(|number| number.abs() < FLOATS_END);
            (fits, "number with format float")
        }
        _ => return None,
    };
    (!fits).then_some(format)
}
