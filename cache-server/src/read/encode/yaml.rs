//! Encodes objects and lists as YAML, members sorted as Kubernetes does.
//!
//! Each item is decoded and encoded again, at about ten times the cost of JSON. For people only.

use std::fmt;

use serde_json::{Map, Value};

use crate::read::pretty::{BYTES_ALLOWED, TIMES_MAX};

/// State of one YAML list.
#[derive(Debug)]
pub(crate) struct Yaml {
    /// Member that holds the items: `items` or `rows`.
    member: String,
    head: String,
    tail: String,
    any: bool,
}

impl Yaml {
    /// Creates an encoder for a list whose compact JSON is `head`, items, `tail`. `None` if that is no document with
    /// one empty list.
    pub(crate) fn new(head: &[u8], tail: &[u8]) -> Option<Self> {
        let Ok(Value::Object(empty)) = serde_json::from_slice(&[head, tail].concat()) else { return None };
        let is_empty_list = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let member = ["items", "rows"].into_iter().find(|name| empty.get(*name).is_some_and(is_empty_list))?.to_owned();
        let (before, after): (Vec<_>, Vec<_>) =
            empty.into_iter().filter(|(name, _)| *name != member).partition(|(name, _)| *name < member);
        Some(Self { head: members(before)?, tail: members(after)?, member, any: false })
    }

    /// Returns the part of the list before its items.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// Writes one item. An item that cannot be parsed is left out; stored objects always can.
    pub(crate) fn item(&mut self, item: &[u8], out: &mut Vec<u8>) {
        let Some(text) = document(item) else { return };
        if !std::mem::replace(&mut self.any, true) {
            out.extend_from_slice(self.member.as_bytes());
            out.extend_from_slice(b":\n");
        }
        for (place, line) in text.lines().enumerate() {
            if !line.is_empty() {
                out.extend_from_slice(if place == 0 { b"- " } else { b"  " });
                out.extend_from_slice(line.as_bytes());
            }
            out.push(b'\n');
        }
    }

    /// Writes the part of the list behind its items.
    pub(crate) fn tail(&self, out: &mut Vec<u8>) {
        if !self.any {
            out.extend_from_slice(self.member.as_bytes());
            out.extend_from_slice(b": []\n");
        }
        out.extend_from_slice(self.tail.as_bytes());
    }
}

fn members(members: Vec<(String, Value)>) -> Option<String> {
    if members.is_empty() {
        return Some(String::new());
    }
    write(&Value::Object(Map::from_iter(members)), usize::MAX)
}

/// Encodes one JSON document as YAML, with a newline at the end. A document that is deep and has many members or lines
/// stays JSON, which is valid YAML, if its indentation would exceed the bounds. `None` if `json` cannot be parsed.
pub(crate) fn document(json: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let text = write(&value, json.len() * TIMES_MAX + BYTES_ALLOWED);
    text.or_else(|| Some(format!("{value}\n")))
}

/// Returns `None` if the text exceeds `bytes_max`; YAML can hold every JSON value.
fn write(value: &Value, bytes_max: usize) -> Option<String> {
    let mut text = BoundedText { text: String::new(), room: bytes_max };
    serde_saphyr::to_fmt_writer(&mut text, value).ok()?;
    let mut text = text.text;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Some(text)
}

/// A text that may grow by `room` more bytes.
struct BoundedText {
    text: String,
    room: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.room = self.room.checked_sub(text.len()).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Goal: every text survives encoding. Method: texts that YAML would read as something other than text.
    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "",
            " ",
            "1",
            "1.5",
            "0x1f",
            "0644",
            "true",
            "no",
            "off",
            "y",
            "null",
            "~",
            "a: b",
            "- a",
            "#",
            "a #b",
            "'",
            "\"",
            "{}",
            "[]",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a`",
            "|",
            ">",
            "2020-01-01T00:00:00Z",
            "1e3",
            ".5",
            "+1",
            "=",
            "<<",
            "a\nb",
            "a\n",
            "\n",
            "  a\n b\n\nc\n\n",
            "a\r\nb",
            "\t",
            "a\tb",
            "\u{0}",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "ä",
            "🦀",
            "---",
            "...",
            "a:",
            ":a",
            "?",
            "? a",
            ",",
            "line one\n  line two\n",
            "x".repeat(200).as_str(),
            "words and words and words and words and words and words and words and words and words and words and words",
        ] {
            let value = json!({"a": text, "b": [text, {"c": text}], text: 1});
            let yaml = document(value.to_string().as_bytes()).expect("YAML");
            assert_eq!(read(&yaml), value, "{yaml}");
        }
        let numbers = json!({"i": -7, "u": u64::MAX, "f": 0.25, "big": 1e300, "t": true, "n": null, "e": {}, "l": [], "ll": [[1], []]});
        assert_eq!(read(&document(numbers.to_string().as_bytes()).expect("YAML")), numbers);
    }

    /// Returns a random value of characters that have a meaning in YAML.
    fn any_value(random: &mut fastrand::Rng, depth: usize) -> Value {
        const LETTERS: [char; 30] = [
            'a', 'b', '0', '1', 'e', '.', '-', '+', ' ', ' ', '\n', '\n', '\t', '\r', ':', '#', ',', '?', '|', '>',
            '\'', '"', '\\', '&', '*', '!', '[', '{', '\u{85}', '\u{2028}',
        ];
        let mut text = || -> String {
            let most = if random.u8(..10) == 0 { 200 } else { 8 };
            (0..random.usize(..most)).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect()
        };
        let (key, leaf) = ([text(), text(), text()], text());
        match random.u8(..4) {
            0 | 1 if depth > 0 => {
                let count = random.usize(..4);
                Value::Object(key.into_iter().take(count).map(|key| (key, any_value(random, depth - 1))).collect())
            }
            2 if depth > 0 => {
                let count = random.usize(..4);
                Value::Array((0..count).map(|_| any_value(random, depth - 1)).collect())
            }
            _ => Value::String(leaf),
        }
    }

    /// Goal: an item is read back from a list unchanged. Method: random values of characters that have a meaning in
    /// YAML.
    #[test]
    fn any_value_is_read_back() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..1_000 {
            let items: Vec<Value> = (0..2).map(|_| json!({"metadata": any_value(&mut random, 4)})).collect();
            let mut list = Yaml::new(br#"{"kind":"PodList","items":["#, b"]}").expect("a list");
            let mut out = list.head().as_bytes().to_vec();
            for item in &items {
                list.item(item.to_string().as_bytes(), &mut out);
            }
            list.tail(&mut out);
            assert_eq!(read(std::str::from_utf8(&out).expect("text")), json!({"kind": "PodList", "items": items}));
        }
    }

    /// Goal: no document takes much more memory than its JSON. Method: documents that would be mostly indentation.
    #[test]
    fn a_document_that_would_be_mostly_indentation_is_json() {
        let lines = json!("\na".repeat(20_000)).to_string();
        for inner in ["1,".repeat(20_000) + "1", lines] {
            let json = format!("{}{inner}{}", "[".repeat(100), "]".repeat(100));
            assert_eq!(document(json.as_bytes()), Some(json + "\n"));
        }
    }

    #[test]
    fn a_list_item_by_item_is_the_list() {
        let items = [
            json!({"metadata": {"name": "a"}, "data": {"k": "v\n\n  w\n"}}),
            json!({}),
            json!({"x": [[], {"y": [1]}]}),
        ];
        for (head, tail) in [
            (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#, "]}\n"),
            (r#"{"apiVersion":"a/v1","items":["#, "],\"kind\":\"FooList\",\"metadata\":{\"continue\":\"\"}}\n"),
            (r#"{"kind":"Table","columnDefinitions":[{"name":"Name"}],"rows":["#, "]}\n"),
        ] {
            for count in 0..=items.len() {
                let mut list = Yaml::new(head.as_bytes(), tail.as_bytes()).expect("a list");
                let mut out = list.head().as_bytes().to_vec();
                let texts: Vec<String> = items[..count].iter().map(Value::to_string).collect();
                for text in &texts {
                    list.item(text.as_bytes(), &mut out);
                }
                list.tail(&mut out);
                let whole: Value = serde_json::from_str(&format!("{head}{}{tail}", texts.join(","))).expect("JSON");
                assert_eq!(read(std::str::from_utf8(&out).expect("text")), whole);
            }
        }
    }
}
