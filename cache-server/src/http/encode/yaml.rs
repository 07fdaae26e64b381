//! Objects and lists as YAML: members sorted, as Kubernetes writes them.
//!
//! An item is decoded and written again, so this costs some ten times what JSON does. It is for people.

use serde_json::{Map, Value};

/// Writes one list.
#[derive(Debug)]
pub(crate) struct Yaml {
    /// `items` or `rows`.
    member: String,
    head: String,
    tail: String,
    any: bool,
}

impl Yaml {
    /// A list whose compact JSON is `head`, items, `tail`. `None` when that is no document with one empty list in it.
    pub(crate) fn new(head: &[u8], tail: &[u8]) -> Option<Self> {
        let Ok(Value::Object(empty)) = serde_json::from_slice(&[head, tail].concat()) else { return None };
        let is_empty_list = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let member = ["items", "rows"].into_iter().find(|name| empty.get(*name).is_some_and(is_empty_list))?.to_owned();
        let (before, after): (Vec<_>, Vec<_>) =
            empty.into_iter().filter(|(name, _)| *name != member).partition(|(name, _)| *name < member);
        Some(Self { head: members(before)?, tail: members(after)?, member, any: false })
    }

    /// The list up to its items.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// One item. What cannot be read is left out: a stored object always can.
    pub(crate) fn item(&mut self, item: &[u8], out: &mut Vec<u8>) {
        let Some(text) = serde_json::from_slice::<Value>(item).ok().and_then(|value| document(&value)) else { return };
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

    /// The list behind its items.
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
    document(&Value::Object(Map::from_iter(members)))
}

/// One document, with a newline at the end. `None` for what YAML cannot hold, which no JSON is.
pub(crate) fn document(value: &Value) -> Option<String> {
    let mut text = serde_saphyr::to_string(value).ok()?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Goal: no text changes on its way. Method: everything that YAML reads as something else than text.
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
            let yaml = document(&value).expect("YAML");
            assert_eq!(read(&yaml), value, "{yaml}");
        }
        let numbers = json!({"i": -7, "u": u64::MAX, "f": 0.25, "big": 1e300, "t": true, "n": null, "e": {}, "l": [], "ll": [[1], []]});
        assert_eq!(read(&document(&numbers).expect("YAML")), numbers);
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
