//! Encodes the cells of one row as JSON.
//!
//! INVARIANT: the text equals the output of Go's encoder. Ages are filled in when the row is sent.

use std::fmt::{self, Write as _};

use watch_cache::Cells;

/// A row being written: each method adds one cell.
#[derive(Debug, Default)]
pub(crate) struct RowWriter {
    /// Text after the last age.
    text: String,
    cells: Cells,
    begun: bool,
    conditions: &'static str,
}

impl RowWriter {
    /// Creates a row with capacity for the columns of a typical object.
    pub(crate) fn new() -> Self {
        Self { text: String::with_capacity(ROOM), ..Self::default() }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.next().text.push('"');
        escape(text, &mut self.text);
        self.text.push('"');
        self
    }

    /// Adds a formatted string.
    pub(crate) fn write(&mut self, text: fmt::Arguments<'_>) -> &mut Self {
        self.next().text.push('"');
        // Writing to a String cannot fail.
        let _ = EscapedText(&mut self.text).write_fmt(text);
        self.text.push('"');
        self
    }

    /// Adds a string that needs no escaping.
    pub(crate) fn escaped(&mut self, text: &str) -> &mut Self {
        self.raw(format_args!("\"{text}\""))
    }

    pub(crate) fn integer(&mut self, number: i64) -> &mut Self {
        self.raw(format_args!("{number}"))
    }

    pub(crate) fn float(&mut self, number: f64) -> &mut Self {
        if number.is_finite() { self.raw(format_args!("{number}")) } else { self.null() }
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.raw(format_args!("{value}"))
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.raw(format_args!("null"))
    }

    /// Adds an age, computed when the row is sent.
    pub(crate) fn age(&mut self, since: Option<i64>) -> &mut Self {
        let Some(since) = since else { return self.text("<unknown>") };
        self.aged("", since, "")
    }

    /// Adds an age between two strings.
    pub(crate) fn aged(&mut self, before: &str, since: i64, after: &str) -> &mut Self {
        self.next().text.push('"');
        escape(before, &mut self.text);
        self.cells.push(&self.text);
        self.cells.push_since(since);
        self.text.clear();
        escape(after, &mut self.text);
        self.text.push('"');
        self
    }

    /// Sets the row's `conditions`, as JSON.
    pub(crate) const fn conditions(&mut self, conditions: &'static str) -> &mut Self {
        self.conditions = conditions;
        self
    }

    /// Returns the `cells`, followed by the conditions.
    pub(crate) fn finish(mut self) -> Cells {
        self.text.push_str(if self.begun { "]" } else { "[]" });
        if !self.conditions.is_empty() {
            self.text.push_str(",\"conditions\":");
            self.text.push_str(self.conditions);
        }
        self.cells.push(&self.text);
        self.cells
    }

    fn raw(&mut self, value: fmt::Arguments<'_>) -> &mut Self {
        let _ = self.next().text.write_fmt(value);
        self
    }

    fn next(&mut self) -> &mut Self {
        self.text.push(if self.begun { ',' } else { '[' });
        self.begun = true;
        self
    }
}

/// Initial capacity in bytes; the cells of most rows fit. Allocated only while a row is written.
const ROOM: usize = 256;

/// Escapes the text written through it.
struct EscapedText<'a>(&'a mut String);

impl fmt::Write for EscapedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(text, self.0);
        Ok(())
    }
}

/// Escapes the contents of a JSON string as Go's encoder does, which also escapes angle brackets and ampersands.
pub(crate) fn escape(text: &str, out: &mut String) {
    let plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&') && byte != 0xe2;
    if text.bytes().all(plain) {
        out.push_str(text);
        return;
    }
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..=' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if letter != ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
}
