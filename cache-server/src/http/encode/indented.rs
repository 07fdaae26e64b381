//! Lists with two spaces a level, as Go's `json.Indent` writes them: no newline at the end, `[]` stays.

use crate::http::pretty::indent_at;

/// How deep the items of a list stand.
const ITEM_DEPTH: usize = 2;
/// How deep its members stand.
const MEMBER_DEPTH: usize = 1;

/// Writes one list.
#[derive(Debug, Default)]
pub(crate) struct Indented {
    any: bool,
}

impl Indented {
    /// The list up to its items: `head` ends with the bracket that opens them.
    pub(crate) fn head(head: &[u8]) -> Vec<u8> {
        let mut text = indent_at(head, 0);
        text.truncate(text.trim_ascii_end().len());
        text
    }

    /// One item, without a comma.
    pub(crate) fn item(&mut self, item: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.any { b",\n" } else { b"\n" });
        self.any = true;
        out.resize(out.len() + ITEM_DEPTH * 2, b' ');
        out.extend_from_slice(&indent_at(item, ITEM_DEPTH));
    }

    /// The list behind its items: `tail` begins with the bracket that closes them.
    pub(crate) fn tail(&self, tail: &[u8], out: &mut Vec<u8>) {
        let text = indent_at(tail, MEMBER_DEPTH + 1);
        // The bracket stands on a line of its own unless there is nothing in front of it.
        out.extend_from_slice(if self.any { &text } else { text.trim_ascii_start() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(head: &str, items: &[&str], tail: &str) -> String {
        let mut out = Indented::head(head.as_bytes());
        let mut list = Indented::default();
        for item in items {
            list.item(item.as_bytes(), &mut out);
        }
        list.tail(tail.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    /// Goal: item by item is as good as at once. Method: both, for lists of both shapes, with and without items.
    #[test]
    fn a_list_is_indented_as_the_whole_document_would_be() {
        let items = [r#"{"metadata":{"name":"a"},"spec":{},"x":[1,{"y":"z, [{"}]}"#, "{}", r#"{"a":[]}"#];
        for (head, tail) in [
            (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#, "]}\n"),
            (r#"{"apiVersion":"a/v1","items":["#, "],\"kind\":\"FooList\",\"metadata\":{\"continue\":\"\"}}\n"),
            (r#"{"kind":"Table","columnDefinitions":[{"name":"Name"}],"rows":["#, "]}\n"),
        ] {
            for count in 0..=items.len() {
                let whole = format!("{head}{}{tail}", items[..count].join(","));
                let expected = String::from_utf8(crate::http::pretty::indent(whole.as_bytes())).expect("text");
                assert_eq!(list(head, &items[..count], tail), expected);
            }
        }
    }
}
