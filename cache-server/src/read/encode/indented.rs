//! Encodes lists with two spaces a level, as Go's `json.Indent` does: no newline at the end, `[]` unchanged.

use crate::read::pretty::indent_at;

/// Depth of the items of a list.
const ITEM_DEPTH: usize = 2;
/// Depth of the list's own members.
const MEMBER_DEPTH: usize = 1;

/// State of one indented list.
#[derive(Debug, Default)]
pub(crate) struct IndentedList {
    any: bool,
}

impl IndentedList {
    /// Returns the part of the list before its items: `head` ends with their opening bracket.
    pub(crate) fn head(head: &[u8]) -> Vec<u8> {
        let mut text = indent_at(head, 0);
        text.truncate(text.trim_ascii_end().len());
        text
    }

    /// Writes one item, and a comma before it unless it is the first.
    pub(crate) fn item(&mut self, item: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.any { b",\n" } else { b"\n" });
        self.any = true;
        out.resize(out.len() + ITEM_DEPTH * 2, b' ');
        out.extend_from_slice(&indent_at(item, ITEM_DEPTH));
    }

    /// Writes the part of the list behind its items: `tail` begins with their closing bracket.
    pub(crate) fn tail(&self, tail: &[u8], out: &mut Vec<u8>) {
        let text = indent_at(tail, MEMBER_DEPTH + 1);
        // The closing bracket has its own line unless the list is empty.
        out.extend_from_slice(if self.any { &text } else { text.trim_ascii_start() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(head: &str, items: &[&str], tail: &str) -> String {
        let mut out = IndentedList::head(head.as_bytes());
        let mut list = IndentedList::default();
        for item in items {
            list.item(item.as_bytes(), &mut out);
        }
        list.tail(tail.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    /// Goal: encoding item by item gives the same text as indenting the whole. Method: both, for lists of both shapes,
    /// with and without items.
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
                let expected = String::from_utf8(crate::read::pretty::indent(whole.as_bytes())).expect("text");
                assert_eq!(list(head, &items[..count], tail), expected);
            }
        }
    }
}
