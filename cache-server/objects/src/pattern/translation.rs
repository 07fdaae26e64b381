//! Translates Go's syntax into the syntax of the crate `regex`: copies letters and digits, writes other characters as their
//! numbers, and drops the names of groups.

use std::fmt::Write as _;

use regex::Regex;

use super::PatternError;

/// Repetitions of one character, also through nested ones.
const REPEATS_MAX: usize = 1_000;

/// States of a class of many characters, whose bytes in UTF-8 differ in length.
const WIDE_STATES: usize = 8;

/// States of a class of Unicode.
const UNICODE_STATES: usize = 512;

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Size of a part of an expression.
#[derive(Clone, Copy, Default)]
struct PartSize {
    states: usize,
    /// Product of its nested counted repetitions.
    repeats: usize,
}

/// A translated expression.
pub(super) struct CratePattern<'a> {
    pub(super) text: String,
    pub(super) states: usize,
    unicode_classes: Vec<&'a str>,
}

impl CratePattern<'_> {
    /// Returns an error for the first class of Unicode that the crate does not know.
    pub(super) fn unknown_class(&self) -> Option<PatternError> {
        let is_unknown = |class: &&&str| Regex::new(&class.replace("{^", "{")).is_err();
        self.unicode_classes
            .iter()
            .find(is_unknown)
            .map(|class| PatternError::new("invalid character class range", class))
    }
}

/// Position in an expression, and its translation up to there.
pub(super) struct SyntaxTranslation<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    /// Sizes of the open groups, the whole expression first.
    groups: Vec<PartSize>,
    /// The part that a repetition would repeat.
    last: Option<PartSize>,
    unicode_classes: Vec<&'a str>,
}

impl<'a> SyntaxTranslation<'a> {
    /// Translates an expression.
    pub(super) fn of(whole: &'a str) -> Result<CratePattern<'a>, PatternError> {
        let mut this = Self {
            whole,
            rest: whole,
            out: String::new(),
            groups: vec![PartSize::default()],
            last: None,
            unicode_classes: Vec::new(),
        };
        let mut repetition = None;
        while let Some(first) = this.rest.chars().next() {
            repetition = match first {
                '*' | '+' | '?' | '{' => this.repeat(first, repetition)?,
                _ => {
                    this.part(first)?;
                    None
                }
            };
        }
        this.end_part();
        match &*this.groups {
            [size] => Ok(CratePattern { states: size.states, text: this.out, unicode_classes: this.unicode_classes }),
            _ => Err(PatternError::new("missing closing )", whole)),
        }
    }

    /// Translates what begins with `first`, apart from repetitions.
    fn part(&mut self, first: char) -> Result<(), PatternError> {
        match first {
            '(' if self.rest.starts_with("(?") => return self.flags(),
            '(' => {
                self.open("(?:");
                self.rest = &self.rest[1..];
            }
            ')' => return self.close(),
            '|' => {
                self.out.push('|');
                self.end_part();
                self.rest = &self.rest[1..];
            }
            '^' | '$' | '.' => {
                self.out.push(first);
                self.begin_part(if first == '.' { WIDE_STATES } else { 1 });
                self.rest = &self.rest[1..];
            }
            '[' => return self.class(),
            '\\' => return self.escape(),
            _ => {
                self.rest = &self.rest[first.len_utf8()..];
                self.literal(first);
            }
        }
        Ok(())
    }

    fn begin_part(&mut self, states: usize) {
        self.end_part();
        self.last = Some(PartSize { states, repeats: 1 });
    }

    /// Adds the size of the last part to its group.
    fn end_part(&mut self) {
        if let (Some(part), Some(group)) = (self.last.take(), self.groups.last_mut()) {
            group.states = group.states.saturating_add(part.states);
            group.repeats = group.repeats.max(part.repeats);
        }
    }

    fn open(&mut self, text: &str) {
        self.out.push_str(text);
        self.end_part();
        self.groups.push(PartSize { states: 1, repeats: 1 });
    }

    fn close(&mut self) -> Result<(), PatternError> {
        self.end_part();
        if self.groups.len() < 2 {
            return Err(PatternError::new("unexpected )", self.whole));
        }
        self.last = self.groups.pop();
        self.out.push(')');
        self.rest = &self.rest[1..];
        Ok(())
    }

    fn literal(&mut self, letter: char) {
        self.put(letter);
        self.begin_part(1);
    }

    /// Writes one character.
    fn put(&mut self, letter: char) {
        if letter.is_alphanumeric() {
            self.out.push(letter);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(self.out, "\\x{{{:X}}}", u32::from(letter));
        }
    }

    /// Translates a repetition, and returns the text from it on; `None` for a brace that is a character. `previous` is the
    /// text from the repetition directly before it on.
    fn repeat(&mut self, first: char, previous: Option<&'a str>) -> Result<Option<&'a str>, PatternError> {
        let before = self.rest;
        let counts = if first == '{' { counts(before) } else { Some((0, None, &before[1..])) };
        let Some((least, most, mut after)) = counts else {
            self.rest = &before[1..];
            self.literal('{');
            return Ok(None);
        };
        if least.max(most.unwrap_or_default()) > REPEATS_MAX || most.is_some_and(|most| most < least) {
            return Err(PatternError::new("invalid repeat count", &before[..before.len() - after.len()]));
        }
        after = after.strip_prefix('?').unwrap_or(after);
        let text = &before[..before.len() - after.len()];
        if let Some(previous) = previous {
            let at = &previous[..previous.len() - after.len()];
            return Err(PatternError::new("invalid nested repetition operator", at));
        }
        let Some(part) = &mut self.last else {
            return Err(PatternError::new("missing argument to repetition operator", text));
        };
        if first == '{' {
            part.repeats = part.repeats.max(1) * most.unwrap_or(least).max(1);
            if part.repeats > REPEATS_MAX {
                return Err(PatternError::new("invalid repeat count", text));
            }
            part.states = part.states.saturating_mul(most.unwrap_or(least + 1).max(1));
        }
        part.states = part.states.saturating_add(1);
        self.out.push_str(text);
        self.rest = after;
        Ok(Some(before))
    }

    /// Translates what begins with `(?`: a group, or flags.
    fn flags(&mut self) -> Result<(), PatternError> {
        let before = self.rest;
        let name = before.strip_prefix("(?P<").or_else(|| before.strip_prefix("(?<")).filter(|name| !name.is_empty());
        if let Some(name) = name {
            let Some((name, after)) = name.split_once('>') else {
                return Err(PatternError::new("invalid named capture", before));
            };
            if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                return Err(PatternError::new("invalid named capture", &before[..before.len() - after.len()]));
            }
            self.open("(?:");
            self.rest = after;
            return Ok(());
        }
        let [mut set, mut unset] = [String::new(), String::new()];
        let (mut is_unset, mut is_empty) = (false, true);
        for (at, letter) in before.char_indices().skip(2) {
            let flags = if is_unset { &mut unset } else { &mut set };
            match letter {
                'i' | 'm' | 's' | 'U' => {
                    is_empty = false;
                    if !flags.contains(letter) {
                        flags.push(letter);
                    }
                }
                '-' if !is_unset => (is_unset, is_empty) = (true, true),
                ':' | ')' if !is_unset || !is_empty => {
                    set.retain(|flag| !unset.contains(flag));
                    let minus = if unset.is_empty() { "" } else { "-" };
                    if letter == ':' {
                        self.open(&format!("(?{set}{minus}{unset}:"));
                    } else if !set.is_empty() || !unset.is_empty() {
                        let _ = write!(self.out, "(?{set}{minus}{unset})");
                    }
                    self.rest = &before[at + 1..];
                    return Ok(());
                }
                _ => {
                    let at = &before[..at + letter.len_utf8()];
                    return Err(PatternError::new("invalid or unsupported Perl syntax", at));
                }
            }
        }
        Err(PatternError::new("invalid or unsupported Perl syntax", before))
    }

    /// Translates what begins with a backslash, outside of a class.
    fn escape(&mut self) -> Result<(), PatternError> {
        let known = match self.rest.as_bytes().get(1) {
            Some(b'A') => r"\A",
            Some(b'z') => r"\z",
            // Words are of ASCII.
            Some(b'b') => r"(?-u:\b)",
            Some(b'B') => r"(?-u:\B)",
            Some(b'Q') => {
                let quoted = &self.rest[2..];
                let (quoted, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                self.rest = after;
                quoted.chars().for_each(|letter| self.literal(letter));
                return Ok(());
            }
            _ => {
                if let Some(states) = self.group()? {
                    self.begin_part(states);
                } else {
                    let letter = self.escaped()?;
                    self.literal(letter);
                }
                return Ok(());
            }
        };
        self.out.push_str(known);
        self.begin_part(1);
        self.rest = &self.rest[2..];
        Ok(())
    }

    /// Translates a class such as `\d` or `\p{Greek}` in brackets or outside, and returns its states.
    fn group(&mut self) -> Result<Option<usize>, PatternError> {
        let Some(&[b'\\', name]) = self.rest.as_bytes().get(..2) else { return Ok(None) };
        let letters = match name.to_ascii_lowercase() {
            b'd' => "0-9",
            b's' => r"\t\n\f\r\x20",
            b'w' => "0-9A-Za-z_",
            b'p' => return self.unicode_class().map(Some),
            _ => return Ok(None),
        };
        let negation = if name.is_ascii_uppercase() { "^" } else { "" };
        let _ = write!(self.out, "[{negation}{letters}]");
        self.rest = &self.rest[2..];
        Ok(Some(if negation.is_empty() { 1 } else { WIDE_STATES }))
    }

    /// Translates `\pL`, `\p{Greek}`, `\P{Greek}` or `\p{^Greek}`.
    fn unicode_class(&mut self) -> Result<usize, PatternError> {
        let refuse = |at: &str| PatternError::new("invalid character class range", at);
        let before = self.rest;
        let letter = before[2..].chars().next().ok_or_else(|| refuse(before))?;
        let length =
            if letter == '{' { before.find('}').ok_or_else(|| refuse(before))? + 1 } else { 2 + letter.len_utf8() };
        let (text, after) = before.split_at(length);
        let name = text[2..].trim_start_matches('{').trim_end_matches('}');
        let (name, is_negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_- ".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(refuse(text));
        }
        let kind = if is_negated == text.starts_with(r"\P") { 'p' } else { 'P' };
        let _ = write!(self.out, r"\{kind}{{{name}}}");
        self.unicode_classes.push(text);
        self.rest = after;
        Ok(UNICODE_STATES)
    }

    /// Translates a class in brackets.
    fn class(&mut self) -> Result<(), PatternError> {
        let (whole, mut states) = (self.rest, 1);
        self.rest = &self.rest[1..];
        self.out.push('[');
        if let Some(after) = self.rest.strip_prefix('^') {
            self.out.push('^');
            (self.rest, states) = (after, WIDE_STATES);
        }
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            states += match self.named_class()? {
                Some(states) => states,
                None => match self.group()? {
                    Some(states) => states,
                    None => self.range(whole)?,
                },
            };
        }
        self.out.push(']');
        self.rest = &self.rest[1..];
        self.begin_part(states);
        Ok(())
    }

    /// Translates a class such as `[:alpha:]` within brackets.
    fn named_class(&mut self) -> Result<Option<usize>, PatternError> {
        let Some(end) = self.rest.strip_prefix("[:").and_then(|name| name.find(":]")) else { return Ok(None) };
        let (text, after) = self.rest.split_at(end + 4);
        let name = &text[2..end + 2];
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(PatternError::new("invalid character class range", text));
        }
        self.out.push_str(text);
        self.rest = after;
        Ok(Some(WIDE_STATES))
    }

    /// Translates a character or a range of them within brackets.
    fn range(&mut self, class: &str) -> Result<usize, PatternError> {
        let before = self.rest;
        let first = self.class_letter(class)?;
        self.put(first);
        let mut last = first;
        if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest[1..].starts_with(']') {
            self.rest = &self.rest[1..];
            last = self.class_letter(class)?;
            if last < first {
                let at = &before[..before.len() - self.rest.len()];
                return Err(PatternError::new("invalid character class range", at));
            }
            self.out.push('-');
            self.put(last);
        }
        Ok(if last.is_ascii() { 0 } else { WIDE_STATES })
    }

    fn class_letter(&mut self, class: &str) -> Result<char, PatternError> {
        match self.rest.chars().next() {
            None => Err(PatternError::new("missing closing ]", class)),
            Some('\\') => self.escaped(),
            Some(letter) => {
                self.rest = &self.rest[letter.len_utf8()..];
                Ok(letter)
            }
        }
    }

    /// Reads an escaped character.
    fn escaped(&mut self) -> Result<char, PatternError> {
        let mut letters = self.rest[1..].chars();
        let Some(first) = letters.next() else {
            return Err(PatternError::new("trailing backslash at end of expression", ""));
        };
        let letter = match first {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            'x' => hexadecimal(&mut letters),
            // One digit would be a reference to a group.
            '1'..='7' if !letters.as_str().starts_with(|next| ('0'..='7').contains(&next)) => None,
            '0'..='7' => {
                let digits: String = letters.clone().take(2).take_while(|next| ('0'..='7').contains(next)).collect();
                letters = letters.as_str()[digits.len()..].chars();
                u32::from_str_radix(&format!("{first}{digits}"), 8).ok().and_then(char::from_u32)
            }
            _ if first.is_ascii() && !first.is_ascii_alphanumeric() => Some(first),
            _ => None,
        };
        let at = &self.rest[..self.rest.len() - letters.as_str().len()];
        let letter = letter.ok_or_else(|| PatternError::new("invalid escape sequence", at))?;
        self.rest = letters.as_str();
        Ok(letter)
    }
}

/// Reads the digits after `\x`: two, or any number in braces.
fn hexadecimal(letters: &mut std::str::Chars<'_>) -> Option<char> {
    let mut number = 0_u32;
    match letters.next()? {
        '{' => {
            let mut is_empty = true;
            loop {
                let letter = letters.next()?;
                if letter == '}' {
                    return char::from_u32(number).filter(|_| !is_empty);
                }
                number = number.checked_mul(16)?.checked_add(letter.to_digit(16)?)?;
                is_empty = false;
                if number > u32::from(char::MAX) {
                    return None;
                }
            }
        }
        first => {
            let second = letters.next()?;
            number += first.to_digit(16)? * 16 + second.to_digit(16)?;
            char::from_u32(number)
        }
    }
}

/// Reads `{least}`, `{least,}` or `{least,most}`, and the text after it.
fn counts(text: &str) -> Option<(usize, Option<usize>, &str)> {
    let (least, after) = number(&text[1..])?;
    if let Some(after) = after.strip_prefix('}') {
        return Some((least, Some(least), after));
    }
    let after = after.strip_prefix(',')?;
    if let Some(after) = after.strip_prefix('}') {
        return Some((least, None, after));
    }
    let (most, after) = number(after)?;
    Some((least, Some(most), after.strip_prefix('}')?))
}

/// Reads a number without leading zeros. A large one is one more than may be.
fn number(text: &str) -> Option<(usize, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = text.split_at(length);
    if digits.is_empty() || length > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(usize::MAX).min(REPEATS_MAX + 1), after))
}
