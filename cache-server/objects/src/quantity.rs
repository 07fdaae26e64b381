//! Quantities such as `500m` and `1Gi`, in billionths.
//!
//! Source: apimachinery `pkg/api/resource`.

use std::fmt;

/// One, in billionths.
pub(crate) const ONE: i128 = 1_000_000_000;
/// A thousandth, in billionths.
const MILLI: i128 = ONE / 1000;
/// Stands for all numbers beyond the range, as the largest number does in kube-apiserver.
const BEYOND: i128 = i128::MAX / 4;

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantityError {
    /// The number.
    Number,
    /// Its suffix.
    Suffix,
}

/// The form of a quantity's suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityForm {
    /// `Gi`.
    Binary,
    /// `G`.
    Decimal,
    /// `e9`.
    Exponential,
}

/// A quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    pub(crate) billionths: i128,
    form: QuantityForm,
}

impl Quantity {
    /// Parses a quantity. Parts below a billionth are rounded up.
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let length = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::Number);
        }
        let (scale, form) =
            scale(suffix).ok_or(if text.is_empty() { QuantityError::Number } else { QuantityError::Suffix })?;
        let billionths = scaled(whole, fraction, scale).unwrap_or(BEYOND).min(BEYOND);
        Ok(Self { billionths: if text.starts_with('-') { -billionths } else { billionths }, form })
    }

    /// Returns zero.
    pub(crate) const fn zero() -> Self {
        Self { billionths: 0, form: QuantityForm::Decimal }
    }

    /// Returns the quantity of so many objects.
    pub(crate) fn of(count: usize) -> Self {
        Self { billionths: i128::try_from(count).map_or(BEYOND, |count| count * ONE), form: QuantityForm::Decimal }
    }

    /// Rounds up to a thousandth, away from zero. Returns `None` if that changes nothing, and beyond the range.
    pub(crate) fn rounded_up(self) -> Option<Self> {
        let rest = self.billionths % MILLI;
        let is_known = self.billionths.abs() < BEYOND;
        (rest != 0 && is_known).then(|| Self { billionths: self.billionths - rest + rest.signum() * MILLI, ..self })
    }

    /// Adds another quantity. Zero takes the other's form.
    pub(crate) fn plus(self, other: Self) -> Self {
        let form = if self.billionths == 0 { other.form } else { self.form };
        Self { billionths: self.billionths.saturating_add(other.billionths).clamp(-BEYOND, BEYOND), form }
    }

    /// Subtracts another quantity, down to zero.
    pub(crate) fn less(self, other: Self) -> Self {
        Self { billionths: self.billionths.saturating_sub(other.billionths).clamp(0, BEYOND), ..self }
    }

    /// Returns the other quantity if it is greater.
    pub(crate) const fn or_greater(self, other: Self) -> Self {
        if self.billionths < other.billionths { other } else { self }
    }

    /// Rounds up to a whole number.
    pub(crate) const fn whole(self) -> Self {
        let rest = self.billionths.rem_euclid(ONE);
        Self { billionths: if rest == 0 { self.billionths } else { self.billionths - rest + ONE }, ..self }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::zero()
    }
}

/// Writes the canonical text: the greatest suffix without a fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.billionths == 0 {
            return to.write_str("0");
        }
        let is_binary = self.form == QuantityForm::Binary && 1024 * ONE <= self.billionths.abs();
        if is_binary && self.billionths % ONE == 0 {
            let (mut number, mut suffix) = (self.billionths / ONE, "");
            for (larger, _) in BINARY.iter().take_while(|(_, power)| self.billionths / ONE % (1 << power) == 0) {
                (number, suffix) = (number / 1024, larger);
            }
            return write!(to, "{number}{suffix}");
        }
        let (mut number, mut at) = (self.billionths, 0);
        while number % 1000 == 0 && at + 1 < DECIMAL.len() {
            (number, at) = (number / 1000, at + 1);
        }
        let (suffix, exponent) = DECIMAL[at];
        if self.form == QuantityForm::Exponential && exponent != 0 {
            return write!(to, "{number}e{exponent}");
        }
        write!(to, "{number}{suffix}")
    }
}

/// The unit of a suffix.
#[derive(Clone, Copy)]
enum QuantityScale {
    Two(u32),
    Ten(i32),
}

fn scale(suffix: &str) -> Option<(QuantityScale, QuantityForm)> {
    if let Some((_, power)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Some((QuantityScale::Two(*power), QuantityForm::Binary));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((QuantityScale::Ten(*power), QuantityForm::Decimal));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((QuantityScale::Ten(exponent), QuantityForm::Exponential))
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
    let number = number.checked_add(i128::from(cut.bytes().any(|digit| digit != b'0')))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_below_a_thousandth_are_rounded_up() {
        for (text, expected) in [
            ("1u", Some("1m")),
            ("1500u", Some("2m")),
            ("999999u", Some("1")),
            ("999999999999n", Some("1k")),
            ("-1u", Some("-1m")),
            ("0.0001", Some("1m")),
            ("1.23456", Some("1235m")),
            ("1e-6", Some("1e-3")),
            ("0.0001Ki", Some("103m")),
            ("1.2345k", None),
            ("1000u", None),
            ("100m", None),
            ("1", None),
            ("1.000000", None),
            ("1Gi", None),
            ("1e40", None),
            ("200000000000Ei", None),
            ("170141183460469231731687303715884105727n", None),
            ("-170141183460469231731687303715884105727.1n", None),
        ] {
            let rounded = Quantity::parse(text).expect(text).rounded_up();
            assert_eq!(rounded.map(|rounded| rounded.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn sums_have_the_form_of_the_first_that_is_not_zero() {
        for (one, other, expected) in [
            ("100m", "1", "1100m"),
            ("500m", "500m", "1"),
            ("1Gi", "512Mi", "1536Mi"),
            ("1Gi", "1G", "2073741824"),
            ("512", "512Mi", "536871424"),
            ("0", "1Gi", "1Gi"),
            ("1Ki", "-1", "1023"),
            ("1e3", "1k", "2e3"),
            ("0", "0", "0"),
        ] {
            let sum = Quantity::parse(one).expect(one).plus(Quantity::parse(other).expect(other));
            assert_eq!(sum.to_string(), expected, "{one} + {other}");
        }
    }
}
