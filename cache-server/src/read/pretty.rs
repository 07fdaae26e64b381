//! Indents JSON for people, as Go's `json.Indent` does with two spaces: no newline at the end, `{}` and `[]` unchanged.
//!
//! INVARIANT: only white space between tokens changes; strings and numbers are copied as they are.

use informer_core::wire::json::string_end;

/// Bounds of an indented document: at most `TIMES_MAX` times its compact length plus `BYTES_ALLOWED`.
pub(crate) const TIMES_MAX: usize = 8;
pub(crate) const BYTES_ALLOWED: usize = 64 << 10;

/// Indents one JSON document. A document that is deep and has many members stays as it is if its indentation would
/// exceed the bounds. Cost: one pass.
pub(crate) fn indent(json: &[u8]) -> Vec<u8> {
    indent_at(json, 0)
}

/// Like [`indent`], for a part of a document that is `depth` levels deep; the part may end at an opening bracket, or
/// begin at a closing one.
pub(crate) fn indent_at(json: &[u8], depth: usize) -> Vec<u8> {
    let bytes_max = json.len() * TIMES_MAX + BYTES_ALLOWED;
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut at) = (depth, 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        if out.len() > bytes_max {
            return json.to_vec();
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' => {
                let next = json[at..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|skip| at + skip);
                if let Some(next) = next.filter(|&next| json[next] == byte + 2) {
                    out.extend([byte, byte + 2]);
                    at = next + 1;
                    continue;
                }
                depth += 1;
                out.push(byte);
                new_line(&mut out, depth);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                let end = string_end(json, at);
                out.extend_from_slice(&json[at - 1..end]);
                at = end;
            }
            other => out.push(other),
        }
    }
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth * 2, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_would_be_mostly_indentation_stays() {
        let json = format!("{}{}1{}", "[".repeat(100), "1,".repeat(10_000), "]".repeat(100));
        assert_eq!(indent(json.as_bytes()), json.as_bytes());
    }

    #[test]
    fn documents_are_indented_as_go_does() {
        for (json, expected) in [
            ("{}\n", "{}"),
            ("[ ]", "[]"),
            (r#"{"a":1}"#, "{\n  \"a\": 1\n}"),
            (
                r#"{"a":"x:{,}\"\\","b":[1,{"c":[]}],"d":{}}"#,
                "{\n  \"a\": \"x:{,}\\\"\\\\\",\n  \"b\": [\n    1,\n    {\n      \"c\": []\n    }\n  ],\n  \"d\": {}\n}",
            ),
            // Invalid JSON: the loop ends, and no byte is lost.
            ("\"abc\\", "\"abc\\"),
            ("}", "\n}"),
        ] {
            assert_eq!(String::from_utf8(indent(json.as_bytes())).unwrap(), expected, "{json}");
        }
    }
}
