//! Formats of texts, as kube-apiserver validates them.
//!
//! Differences: of mail addresses, groups and comments are refused.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/validation/formats.go`; kube-openapi `pkg/validation/strfmt`,
//! `pkg/internal/third_party/govalidator`.

use std::{net::Ipv6Addr, sync::LazyLock};

use api_rules::registry::NameRule;
use informer_serving::go;
use jiff::civil::Date;
use regex::Regex;
use serde_json::Value;

use super::{INT_OR_STRING, SchemaObject, addresses, flag};
use crate::{limits::PATTERN_STATES_MAX, pattern::Pattern};

/// Formats of texts without their dashes.
const NAMES: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

const OF_NUMBERS: [&str; 4] = ["int32", "int64", "float", "double"];

/// Returns true if the format of a schema is one that kube-apiserver knows for its type.
pub(super) fn is_validated(schema: &SchemaObject) -> bool {
    let Some(format) = schema.get("format").and_then(Value::as_str) else { return false };
    let ty = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    match ty {
        _ if flag(schema, INT_OR_STRING) => NAMES.contains(&&*format.replace('-', "")),
        "" | "string" => NAMES.contains(&&*format.replace('-', "")),
        "integer" => OF_NUMBERS[..2].contains(&format),
        "number" => OF_NUMBERS[2..].contains(&format),
        _ => false,
    }
}

/// Returns the format of a schema without those that are not validated.
pub(super) fn format(schema: &SchemaObject) -> Option<&str> {
    schema.get("format").and_then(Value::as_str)
}

/// Returns the format of a schema if it is one of texts.
pub(super) fn of_texts(schema: &SchemaObject) -> Option<&str> {
    format(schema).filter(|format| !OF_NUMBERS.contains(format))
}

/// Returns true if a text has a format.
pub(super) fn has_format(format: &str, text: &str) -> bool {
    static HEX_COLOR: LazyLock<Pattern> = LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
    static RGB_COLOR: LazyLock<Pattern> = LazyLock::new(|| {
        let number = r"(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])";
        pattern(&format!(r"^rgb\(\s*{number}\s*,\s*{number}\s*,\s*{number}\s*\)$"))
    });
    static BASE64: LazyLock<Pattern> =
        LazyLock::new(|| pattern("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
    static SSN: LazyLock<Pattern> = LazyLock::new(|| pattern(r"^\d{3}[- ]\d{2}[- ]\d{4}$"));
    match &*format.replace('-', "") {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "byte" => BASE64.is_match(text),
        "cidr" => addresses::is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => parse_duration(text).is_some(),
        "email" => addresses::is_email(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && addresses::is_ip(text),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => NameRule::Subdomain.refuse(text).is_empty(),
        "k8sshortname" => NameRule::Label.refuse(text).is_empty(),
        "mac" => addresses::is_mac(text),
        "rgbcolor" => RGB_COLOR.is_match(text),
        "ssn" => SSN.is_match(text),
        "uri" => addresses::is_request_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        // Passwords are any texts.
        _ => true,
    }
}

/// Compiles a pattern of Go.
fn pattern(text: &str) -> Pattern {
    Pattern::compile(text, &mut PATTERN_STATES_MAX.clone()).expect("a constant")
}

fn is_date(text: &str) -> bool {
    let &[a, b, c, d, b'-', month1, month2, b'-', day1, day2] = text.as_bytes() else { return false };
    let number = |digits: &[u8]| {
        digits
            .iter()
            .try_fold(0_i16, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0')))
    };
    let (Some(year), Some(month), Some(day)) =
        (number(&[a, b, c, d]), number(&[month1, month2]), number(&[day1, day2]))
    else {
        return false;
    };
    let [month, day] = [month, day].map(|number| i8::try_from(number).unwrap_or_default());
    Date::new(year, month, day).is_ok()
}

fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Pattern> =
        LazyLock::new(|| pattern(r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d{2}:\d{2})$"));
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    // Text behind a further `t` is ignored.
    parts.next().is_some_and(is_date) && parts.next().is_some_and(|time| TIME.is_match(time))
}

/// Returns the nanoseconds of a duration of Go or of several of Scala, which may be anywhere in a text.
pub(super) fn parse_duration(text: &str) -> Option<i64> {
    static SCALA: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("([0-9]+)[\\t\\n\\f\\r ]*([A-Za-z\u{b5}]+)").expect("a constant"));
    if let Ok(nanoseconds) = go::parse_duration(text) {
        return Some(nanoseconds);
    }
    let mut sum = None;
    for found in SCALA.captures_iter(text) {
        let (_, [number, unit]) = found.extract();
        let number: i64 = number.parse().ok()?;
        if let Some(unit) = unit_nanoseconds(&unit.to_lowercase()) {
            // As in Go, a sum beyond the range wraps.
            sum = Some(sum.unwrap_or(0_i64).wrapping_add(number.wrapping_mul(unit)));
        }
    }
    sum
}

fn unit_nanoseconds(unit: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    const DAY: i64 = 86_400 * SECOND;
    let units: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "\u{b5}s"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", DAY),
        (&["w", "wk"], "week", 7 * DAY),
    ];
    let found = units.iter().find(|(short, long, _)| short.contains(&unit) || unit.starts_with(long));
    found.map(|(_, _, nanoseconds)| *nanoseconds)
}

/// Returns true for one label, or for several of which the last has letters only.
fn is_hostname(text: &str) -> bool {
    static LETTERS: LazyLock<Pattern> = LazyLock::new(|| pattern(r"^[a-zA-Z0-9\p{S}\p{L}-]+$"));
    static LAST: LazyLock<Pattern> = LazyLock::new(|| pattern(r"^[a-zA-Z\p{L}][a-zA-Z\p{L}]+$"));
    let labels: Vec<&str> = text.split('.').collect();
    let has_letters = |label: &str| label.len() <= 63 && LETTERS.is_match(label) && !label.starts_with('-');
    match &*labels {
        // One dash at the second place, if any, is allowed by its pattern.
        [label] => has_letters(label) && !label.chars().skip(2).any(|letter| letter == '-'),
        [first @ .., last] => {
            let is_label = |label: &&str| has_letters(label) && !label.ends_with('-');
            text.len() <= 255 && LAST.is_match(last) && last.len() <= 63 && first.iter().all(is_label)
        }
        [] => false,
    }
}

/// Returns true for digits with a dash after each group, or without.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (place, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        let is_variant = version.is_none_or(|version| match (place, version) {
            (2, version) => group.starts_with(version),
            (3, '4' | '5') => group.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        });
        if !is_variant || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_credit_card(text: &str) -> bool {
    static NUMBER: LazyLock<Pattern> = LazyLock::new(|| {
        let diners = r"3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}";
        pattern(&format!(r"^(?:4\d{{12}}(?:\d{{3}})?|5[1-5]\d{{14}}|6(?:011|5\d\d)\d{{12}}|3[47]\d{{13}}|{diners})$"))
    });
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(place, digit): (usize, u8)| {
        let digit = u32::from(digit - b'0') * if place % 2 == 1 { 2 } else { 1 };
        digit / 10 + digit % 10
    };
    NUMBER.is_match(&number) && number.bytes().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// Removes what Go's `\s` and dashes stand for.
fn without_spaces(text: &str) -> String {
    text.chars().filter(|letter| !"\t\n\u{c}\r -".contains(*letter)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let number = without_spaces(text);
    let Some((digits, check)) = number.split_at_checked(9) else { return false };
    let check = match check {
        "X" => 10,
        check => match check.parse::<u32>() {
            Ok(check) if check < 10 && number.len() == 10 => check,
            _ => return false,
        },
    };
    let weighted = |(place, digit): (u32, u8)| (place + 1) * u32::from(digit - b'0');
    digits.bytes().all(|byte| byte.is_ascii_digit())
        && ((0..).zip(digits.bytes()).map(weighted).sum::<u32>() + 10 * check) % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let number = without_spaces(text);
    let weighted = |(place, digit): (usize, u8)| u32::from(digit - b'0') * if place % 2 == 1 { 3 } else { 1 };
    number.len() == 13
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && number.bytes().enumerate().map(weighted).sum::<u32>() % 10 == 0
}
