//! Quantities in rules.

use super::{
    eval::{EvaluationFailure, EvaluationResult},
    value::CelValue,
};
use crate::quantity::{ONE, Quantity, QuantityError};

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Parses a quantity, as a number of billionths.
///
/// # Errors
/// kube-apiserver's text.
pub(super) fn parse(text: &str) -> Result<i128, EvaluationFailure> {
    Quantity::parse(text).map(|quantity| quantity.billionths).map_err(|error| match error {
        QuantityError::Number => EvaluationFailure::error(FORMAT),
        QuantityError::Suffix => EvaluationFailure::error(SUFFIX),
    })
}

/// Calls a method of a quantity.
pub(super) fn call<'a>(name: &str, receiver: i128, argument: Option<&CelValue<'a>>) -> EvaluationResult<'a> {
    let operand = match (name, argument) {
        (_, Some(CelValue::Quantity(other))) => Some(*other),
        ("add" | "sub", Some(CelValue::Int(other))) => Some(i128::from(*other) * ONE),
        (_, Some(_)) => return Err(EvaluationFailure::no_overload()),
        (_, None) => None,
    };
    let as_int = || if receiver % ONE == 0 { i64::try_from(receiver / ONE).ok() } else { None };
    Ok(match (name, operand) {
        ("sign", None) => CelValue::Int(i64::try_from(receiver.signum()).unwrap_or_default()),
        ("isInteger", None) => CelValue::Bool(as_int().is_some()),
        ("asInteger", None) => {
            CelValue::Int(as_int().ok_or_else(|| EvaluationFailure::error("cannot convert value to integer"))?)
        }
        ("asApproximateFloat", None) => CelValue::Double(receiver as f64 / ONE as f64),
        ("isGreaterThan", Some(other)) => CelValue::Bool(receiver > other),
        ("isLessThan", Some(other)) => CelValue::Bool(receiver < other),
        ("compareTo", Some(other)) => CelValue::Int(receiver.cmp(&other) as i64),
        ("add", Some(other)) => CelValue::Quantity(receiver.saturating_add(other)),
        ("sub", Some(other)) => CelValue::Quantity(receiver.saturating_sub(other)),
        (_, _) => return Err(EvaluationFailure::no_overload()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_by_kube_apiserver() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(ONE)),
            ("500m", Some(ONE / 2)),
            ("1.5", Some(ONE * 3 / 2)),
            ("-1k", Some(-1_000 * ONE)),
            ("1Ki", Some(1_024 * ONE)),
            ("0.5Gi", Some((1 << 29) * ONE)),
            ("1e3", Some(1_000 * ONE)),
            ("1E3", Some(1_000 * ONE)),
            ("1.", Some(ONE)),
            (".5", Some(ONE / 2)),
            ("1n", Some(1)),
            ("0.1n", Some(1)),
            ("0.5000000000000000000000000000000000000000000000000", Some(ONE / 2)),
            ("1.0000000000000000000000000000000000000000000000001", Some(ONE + 1)),
            ("", None),
            ("abc", None),
            ("1x", None),
            ("1 Gi", None),
            ("1.2.3", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
    }
}
