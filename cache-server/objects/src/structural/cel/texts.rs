//! Functions of texts. Places in a text count code points.

use super::{
    conversions::as_text,
    eval::{Evaluation, EvaluationFailure, EvaluationResult},
    lists::count,
    value::CelValue,
};
use crate::{
    limits::{DIGITS_MAX, PATTERN_STATES_MAX, PATTERN_STEPS, STATES_PER_STEP},
    pattern::Pattern,
};
use informer_serving::go::quote;

impl<'a> Evaluation<'a, '_> {
    /// Calls a method of a text. `pattern` is the compiled argument, if it is a constant.
    pub(super) fn call_text(
        &mut self,
        name: &str,
        text: &str,
        rest: &[CelValue<'a>],
        pattern: Option<&Pattern>,
    ) -> EvaluationResult<'a> {
        if ["matches", "find", "findAll"].contains(&name) {
            return self.search(name, text, rest, pattern);
        }
        match (name, rest) {
            ("size", []) => Ok(place(text.chars().count())),
            ("contains", [CelValue::Text(other)]) => Ok(CelValue::Bool(text.contains(&**other))),
            ("startsWith", [CelValue::Text(other)]) => Ok(CelValue::Bool(text.starts_with(&**other))),
            ("endsWith", [CelValue::Text(other)]) => Ok(CelValue::Bool(text.ends_with(&**other))),
            ("charAt", [CelValue::Int(at)]) => letter_at(text, *at),
            ("indexOf", [CelValue::Text(other)]) => index_of(text, other, 0),
            ("indexOf", [CelValue::Text(other), CelValue::Int(from)]) => index_of(text, other, *from),
            ("lastIndexOf", [CelValue::Text(other)]) => last_index_of(text, other, None),
            ("lastIndexOf", [CelValue::Text(other), CelValue::Int(to)]) => last_index_of(text, other, Some(*to)),
            ("lowerAscii", []) => Ok(CelValue::text(text.to_ascii_lowercase())),
            ("upperAscii", []) => Ok(CelValue::text(text.to_ascii_uppercase())),
            ("trim", []) => Ok(CelValue::text(text.trim())),
            ("reverse", []) => Ok(CelValue::text(text.chars().rev().collect::<String>())),
            ("substring", [CelValue::Int(start)]) => substring(text, *start, None),
            ("substring", [CelValue::Int(start), CelValue::Int(end)]) => substring(text, *start, Some(*end)),
            ("replace", [CelValue::Text(old), CelValue::Text(new)]) => self.replace(text, old, new, None),
            ("replace", [CelValue::Text(old), CelValue::Text(new), CelValue::Int(limit)]) => {
                self.replace(text, old, new, count(*limit))
            }
            ("split", [CelValue::Text(separator)]) => self.split(text, separator, None),
            ("split", [CelValue::Text(separator), CelValue::Int(limit)]) => self.split(text, separator, count(*limit)),
            ("format", [list]) => self.format(text, list),
            (_, _) => Err(EvaluationFailure::no_overload()),
        }
    }

    fn search(
        &mut self,
        name: &str,
        text: &str,
        rest: &[CelValue<'a>],
        pattern: Option<&Pattern>,
    ) -> EvaluationResult<'a> {
        let Some((CelValue::Text(source), limit)) = rest.split_first() else {
            return Err(EvaluationFailure::no_overload());
        };
        let compiled;
        let pattern = if let Some(pattern) = pattern {
            pattern
        } else {
            compiled = self.compiled(source)?;
            &compiled
        };
        let times = 1 + pattern.states() / STATES_PER_STEP;
        self.charge_bytes(text.len().saturating_mul(times))?;
        let limit = match (name, limit) {
            ("matches", []) => return Ok(CelValue::Bool(pattern.is_match(text))),
            ("find", []) => return Ok(CelValue::text(pattern.find_iter(text).next().map_or("", |(found, _)| found))),
            ("findAll", []) => None,
            ("findAll", [CelValue::Int(limit)]) => count(*limit),
            (_, _) => return Err(EvaluationFailure::no_overload()),
        };
        let mut found = Vec::new();
        for (part, end) in pattern.find_iter(text).take(limit.unwrap_or(usize::MAX)) {
            // Each search may read the rest of the text.
            self.charge(1)?;
            self.charge_bytes((text.len() - end).saturating_mul(times))?;
            found.push(CelValue::text(part));
        }
        Ok(CelValue::list(found))
    }

    /// Compiles a pattern, and takes steps for its states.
    fn compiled(&mut self, source: &str) -> Result<Pattern, EvaluationFailure> {
        let mut left = PATTERN_STATES_MAX;
        let compiled = Pattern::compile(source, &mut left);
        self.charge(PATTERN_STEPS * (PATTERN_STATES_MAX - left))?;
        compiled.map_err(|error| EvaluationFailure::error(error.to_string()))
    }

    fn replace(&mut self, text: &str, old: &str, new: &str, limit: Option<usize>) -> EvaluationResult<'a> {
        let matches = text.matches(old).count().min(limit.unwrap_or(usize::MAX));
        self.charge_bytes(text.len().saturating_add(matches.saturating_mul(new.len())))?;
        Ok(CelValue::text(limit.map_or_else(|| text.replace(old, new), |limit| text.replacen(old, new, limit))))
    }

    fn split(&mut self, text: &str, separator: &str, limit: Option<usize>) -> EvaluationResult<'a> {
        if limit == Some(0) {
            return Ok(CelValue::list(Vec::new()));
        }
        let limit = limit.unwrap_or(usize::MAX);
        let mut parts = Vec::new();
        if separator.is_empty() {
            let mut rest = text;
            while let Some(first) = rest.chars().next() {
                self.charge(1)?;
                let length = if parts.len() + 1 == limit { rest.len() } else { first.len_utf8() };
                parts.push(CelValue::text(&rest[..length]));
                rest = &rest[length..];
            }
            return Ok(CelValue::list(parts));
        }
        for part in text.splitn(limit, separator) {
            self.charge(1)?;
            parts.push(CelValue::text(part));
        }
        Ok(CelValue::list(parts))
    }

    /// Fills a format such as `%s is %d` with the items of a list.
    fn format(&mut self, format: &str, list: &CelValue<'a>) -> EvaluationResult<'a> {
        let (mut rest, mut out, mut at) = (format, String::new(), 0);
        while let Some(start) = rest.find('%') {
            out.push_str(&rest[..start]);
            rest = &rest[start + 1..];
            if let Some(next) = rest.strip_prefix('%') {
                out.push('%');
                rest = next;
                continue;
            }
            let item =
                list.item(at, self).ok_or_else(|| EvaluationFailure::error(format!("index {at} out of range")))??;
            at += 1;
            let digits = rest.strip_prefix('.').map(|after| {
                let length = after.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(after.len());
                after.split_at(length)
            });
            let precision = match digits {
                Some((digits, after)) => {
                    rest = after;
                    let precision = digits.parse().ok().filter(|digits| *digits <= DIGITS_MAX);
                    Some(precision.ok_or_else(|| malformed("error while parsing precision"))?)
                }
                None => None,
            };
            let kind = rest.chars().next().ok_or_else(|| EvaluationFailure::error("unexpected end of string"))?;
            rest = &rest[kind.len_utf8()..];
            let clause = self.clause(kind, precision, &item)?;
            self.charge_bytes(clause.len())?;
            out.push_str(&clause);
        }
        out.push_str(rest);
        Ok(CelValue::text(out))
    }

    fn clause(
        &mut self,
        kind: char,
        precision: Option<usize>,
        item: &CelValue<'a>,
    ) -> Result<String, EvaluationFailure> {
        let digits = precision.unwrap_or(6);
        Ok(match (kind, item) {
            ('s', item) => self.shown(item, false)?,
            ('d' | 'b' | 'o' | 'x' | 'X', CelValue::Int(number)) => {
                let sign = if *number < 0 { "-" } else { "" };
                format!("{sign}{}", based(kind, number.unsigned_abs()))
            }
            ('d' | 'b' | 'o' | 'x' | 'X', CelValue::Uint(number)) => based(kind, *number),
            ('b', CelValue::Bool(value)) => u8::from(*value).to_string(),
            ('x' | 'X', CelValue::Text(text)) => hex(kind, text.as_bytes()),
            ('x' | 'X', CelValue::Bytes(bytes)) => hex(kind, bytes),
            ('f', CelValue::Double(number)) => format!("{number:.digits$}"),
            ('e', CelValue::Double(number)) => {
                let text = format!("{number:.digits$e}");
                // Go writes a sign and at least two digits.
                match text.split_once('e') {
                    Some((head, exponent)) => {
                        let (sign, value) = exponent.strip_prefix('-').map_or(("+", exponent), |value| ("-", value));
                        format!("{head}e{sign}{value:0>2}")
                    }
                    None => text,
                }
            }
            ('d' | 'b' | 'o' | 'x' | 'X' | 'f' | 'e', _) => {
                return Err(EvaluationFailure::error("error during formatting: wrong type of an argument"));
            }
            (_, _) => return Err(malformed(&format!("unrecognized formatting clause \"{kind}\""))),
        })
    }

    /// Writes a value as `%s` does; one in a list or map as a literal.
    fn shown(&mut self, value: &CelValue<'a>, is_inner: bool) -> Result<String, EvaluationFailure> {
        self.charge(1)?;
        Ok(match value {
            CelValue::Null => "null".to_owned(),
            CelValue::Items(_) | CelValue::List(_) => {
                let mut parts = Vec::new();
                for item in self.range(value)? {
                    parts.push(self.shown(&item, true)?);
                }
                format!("[{}]", parts.join(", "))
            }
            CelValue::Members(_) | CelValue::Map(_) => {
                let mut parts = Vec::new();
                for key in self.range(value)? {
                    // A null member is absent.
                    let Some(member) = self.member(value, &key)? else { continue };
                    parts.push(format!("{}:{}", self.shown(&key, true)?, self.shown(&member, true)?));
                }
                parts.sort_unstable();
                format!("{{{}}}", parts.join(", "))
            }
            value => {
                let text = as_text(value).ok_or_else(EvaluationFailure::no_overload)?;
                self.charge_bytes(text.len())?;
                match value {
                    CelValue::Text(_) if is_inner => quote(&text),
                    CelValue::Bytes(_) if is_inner => format!("b{}", quote(&text)),
                    CelValue::Double(number) if is_inner => format!("{number:.6}"),
                    CelValue::Timestamp(_) if is_inner => format!("timestamp({})", quote(&text)),
                    CelValue::Duration(_) if is_inner => format!("duration({})", quote(&text)),
                    _ => text,
                }
            }
        })
    }
}

fn malformed(why: &str) -> EvaluationFailure {
    EvaluationFailure::error(format!("could not parse formatting clause: {why}"))
}

fn based(kind: char, number: u64) -> String {
    match kind {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

fn hex(kind: char, bytes: &[u8]) -> String {
    let digits = |byte: &u8| if kind == 'X' { format!("{byte:02X}") } else { format!("{byte:02x}") };
    bytes.iter().map(digits).collect()
}

/// A place or a length as a value.
pub(super) fn place<'a>(at: usize) -> CelValue<'a> {
    CelValue::Int(i64::try_from(at).unwrap_or(i64::MAX))
}

fn out_of_range(at: i64) -> EvaluationFailure {
    EvaluationFailure::error(format!("index out of range: {at}"))
}

/// Returns the byte at a place, which may be the end.
fn byte_at(text: &str, at: i64) -> Result<usize, EvaluationFailure> {
    let index = usize::try_from(at).map_err(|_| out_of_range(at))?;
    let mut ends = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
    ends.nth(index).ok_or_else(|| out_of_range(at))
}

fn letter_at<'a>(text: &str, at: i64) -> EvaluationResult<'a> {
    let rest = &text[byte_at(text, at)?..];
    Ok(CelValue::text(&rest[..rest.chars().next().map_or(0, char::len_utf8)]))
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> EvaluationResult<'a> {
    if let Some(end) = end
        && start > end
    {
        return Err(EvaluationFailure::error(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_at(text, start)?;
    let to = end.map_or(Ok(text.len()), |end| byte_at(text, end))?;
    Ok(CelValue::text(&text[from..to]))
}

fn index_of<'a>(text: &str, other: &str, from: i64) -> EvaluationResult<'a> {
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Ok(start) = byte_at(text, from) else {
        return Ok(if other.is_empty() { place(text.chars().count()) } else { CelValue::Int(-1) });
    };
    let found = text[start..].find(other);
    Ok(found.map_or(CelValue::Int(-1), |at| place(text[..start + at].chars().count())))
}

fn last_index_of<'a>(text: &str, other: &str, to: Option<i64>) -> EvaluationResult<'a> {
    let end = match to {
        None => text.len(),
        Some(to) if to < 0 => return Err(out_of_range(to)),
        Some(to) => match byte_at(text, to) {
            Ok(at) if at < text.len() || other.is_empty() => text.len().min(at + other.len()),
            Ok(_) => return Ok(CelValue::Int(-1)),
            Err(_) => return Ok(if other.is_empty() { place(text.chars().count()) } else { CelValue::Int(-1) }),
        },
    };
    // The end of the match may lie within a letter only where there is no match.
    let searched = text.get(..end).or_else(|| text.get(..text.floor_char_boundary(end))).unwrap_or_default();
    Ok(searched.rfind(other).map_or(CelValue::Int(-1), |at| place(text[..at].chars().count())))
}
