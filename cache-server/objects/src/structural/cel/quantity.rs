//! Quantities such as `500m` and `1Gi`, in billionths.

use super::{
    eval::{EvaluationFailure, EvaluationResult},
    value::CelValue,
};

/// One, in billionths.
const ONE: i128 = 1_000_000_000;

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Parses a quantity. Parts below a billionth are rounded up.
///
/// # Errors
/// kube-apiserver's text.
pub(super) fn parse(text: &str) -> Result<i128, EvaluationFailure> {
    let malformed = || EvaluationFailure::error(FORMAT);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let length = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(length);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(malformed());
    }
    let scale =
        scale(suffix).ok_or_else(|| if text.is_empty() { malformed() } else { EvaluationFailure::error(SUFFIX) })?;
    // Numbers beyond the range are as large as it gets, as in kube-apiserver.
    let billionths = scaled(whole, fraction, scale).unwrap_or(i128::MAX / 4);
    Ok(if text.starts_with('-') { -billionths } else { billionths })
}

/// The unit of a suffix.
#[derive(Clone, Copy)]
enum QuantityScale {
    Two(u32),
    Ten(i32),
}

fn scale(suffix: &str) -> Option<QuantityScale> {
    Some(match suffix {
        "" => QuantityScale::Ten(0),
        "n" => QuantityScale::Ten(-9),
        "u" => QuantityScale::Ten(-6),
        "m" => QuantityScale::Ten(-3),
        "k" => QuantityScale::Ten(3),
        "M" => QuantityScale::Ten(6),
        "G" => QuantityScale::Ten(9),
        "T" => QuantityScale::Ten(12),
        "P" => QuantityScale::Ten(15),
        "E" => QuantityScale::Ten(18),
        "Ki" => QuantityScale::Two(10),
        "Mi" => QuantityScale::Two(20),
        "Gi" => QuantityScale::Two(30),
        "Ti" => QuantityScale::Two(40),
        "Pi" => QuantityScale::Two(50),
        "Ei" => QuantityScale::Two(60),
        other => QuantityScale::Ten(other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Returns the value in billionths; `None` beyond the range.
fn scaled(whole: &str, fraction: &str, scale: QuantityScale) -> Option<i128> {
    let room = match scale {
        QuantityScale::Two(_) => 19,
        QuantityScale::Ten(_) => 37,
    };
    let whole = whole.trim_start_matches('0');
    let (fraction, cut) = fraction.split_at(fraction.len().min(usize::saturating_sub(room, whole.len())));
    let digits = [whole, fraction].concat();
    let number: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    // Digits for which there is no room are below a billionth: they round up.
    let number = number + i128::from(cut.bytes().any(|digit| digit != b'0'));
    let places = i32::try_from(fraction.len()).ok()?;
    let (number, exponent) = match scale {
        QuantityScale::Two(power) => (number.checked_mul(1 << power)?, 9 - places),
        QuantityScale::Ten(power) => (number, power.checked_add(9)?.checked_sub(places)?),
    };
    if number == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        return number.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?);
    }
    let Some(divisor) = 10_i128.checked_pow(exponent.unsigned_abs()) else { return Some(1) };
    Some(number.div_euclid(divisor) + i128::from(number % divisor != 0))
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
