//! Parses the text of a session into rows.
//!
//! INVARIANT: an unknown line is an error in the session and is never skipped.

/// One request and its expected response.
#[derive(Debug, Default)]
pub(super) struct Row<'a> {
    pub(super) claim: &'a str,
    /// First cell of the guarantee that documents a difference.
    pub(super) differs: Option<&'a str>,
    /// The method; `WATCH` is a GET whose response is read line by line.
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: String,
    pub(super) code: u16,
    pub(super) expected_headers: Vec<(&'a str, &'a str)>,
    /// True if the body is text and not JSON.
    pub(super) text: bool,
    pub(super) lines: Vec<&'a str>,
}

/// Parses the rows of a session.
pub(super) fn parse(session: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for line in session.lines().filter(|line| !line.trim().is_empty()) {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        if mark == "==" {
            rows.push(Row { claim: rest, ..Row::default() });
            continue;
        }
        let row = rows.last_mut().unwrap_or_else(|| panic!("no claim before {line:?}"));
        match mark {
            "~" => row.differs = Some(rest),
            ">" if row.method.is_empty() => {
                (row.method, row.path) = rest.split_once(' ').unwrap_or_else(|| panic!("no request in {line:?}"));
            }
            ">" if rest.starts_with(['{', '[']) => row.body = rest.to_owned(),
            ">" => {
                let (name, value) = header(rest);
                row.headers.push((name, value.to_owned()));
            }
            ">|" => row.body.extend([rest, "\n"]),
            "<" if row.code == 0 => row.code = rest.parse().unwrap_or_else(|_| panic!("no status in {line:?}")),
            "<" if rest == "END" => {}
            "<" if rest.starts_with('{') => row.lines.push(rest),
            "<" => row.expected_headers.push(header(rest)),
            "<|" => {
                row.text = true;
                row.lines.push(rest);
            }
            _ => panic!("what is {line:?}?"),
        }
    }
    for row in &mut rows {
        assert!(row.code > 0, "{}: no answer is expected", row.claim);
        // A row without an expected body would accept any response.
        let looked_at = row.method == "WATCH" || row.text || row.lines.len() == 1;
        assert!(looked_at, "{}: {} documents are expected", row.claim, row.lines.len());
        if !row.body.is_empty() && !row.headers.iter().any(|(name, _)| *name == "content-type") {
            row.headers.push(("content-type", "application/json".to_owned()));
        }
    }
    rows
}

fn header(text: &str) -> (&str, &str) {
    text.split_once(": ").unwrap_or_else(|| panic!("{text:?} is no header"))
}
