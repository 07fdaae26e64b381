//! Sizes and durations as written by people: `64MiB`, `5m`, `1h30m`.

use std::time::Duration;

const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
    ("", 1),
];

/// Parses bytes: a whole number, with an optional unit.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = split(text);
    let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes = factor.and_then(|factor| digits.parse::<u64>().ok()?.checked_mul(factor));
    bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "not a size; write bytes, or a number with KiB, MiB or GiB".to_owned())
}

/// Like [`size`], and refuses 0.
pub(super) fn positive_size(text: &str) -> Result<usize, String> {
    size(text).and_then(|bytes| if bytes == 0 { Err("must be more than 0".to_owned()) } else { Ok(bytes) })
}

const TIMES: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Parses a sum of whole numbers with units, such as `90s` or `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "not a duration; write a number with ms, s, m or h".to_owned();
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, tail) = split(rest);
        let letters = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let factor = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(bad)?;
        let part = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        rest = tail;
    }
    if text.is_empty() { Err(bad()) } else { Ok(Duration::from_millis(total)) }
}

/// Splits off the leading digits.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("16384", 16_384),
            ("1B", 1),
            ("16KiB", 16 << 10),
            ("64MiB", 64 << 20),
            ("2GiB", 2 << 30),
            ("5kB", 5_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "MiB", "-1", "1.5MiB", "1 MiB", "1mib", "1TiB", "99999999999999999999", "18446744073709551615KiB"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_sums() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1m1ms", 60_001),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "m", "5 m", "-5m", "5d", "1m30", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
