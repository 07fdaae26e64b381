//! Files of static tokens: lines of CSV with token, user name, uid, and groups in one quoted field.
//!
//! Source: apiserver `authentication/token/tokenfile/tokenfile.go`; Go `encoding/csv`.

use std::{collections::HashMap, fmt};

use crate::user::User;

/// One token and the user it proves.
#[derive(Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The token. Secret.
    pub token: String,
    /// Its user.
    pub user: User,
}

impl fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticToken").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// Error of a token file: the line, without its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A record has fewer than three fields.
    #[error("line {line} has {fields} fields; token, user name and uid are needed")]
    Fields {
        /// Number of the record's first line, from 1.
        line: usize,
        /// Number of its fields.
        fields: usize,
    },
    /// A record has no token.
    #[error("line {line} has no token")]
    NoToken {
        /// Number of the record's first line, from 1.
        line: usize,
    },
    /// A record has no user name.
    #[error("line {line} has no user name")]
    NoName {
        /// Number of the record's first line, from 1.
        line: usize,
    },
    /// Two records have one token.
    #[error("line {line} has the token of line {earlier}")]
    Duplicate {
        /// Number of the later record's first line, from 1.
        line: usize,
        /// Number of the earlier record's first line.
        earlier: usize,
    },
    /// A quote is not where a quoted field begins or ends, or is missing.
    #[error("line {line} has a misplaced or missing quote")]
    Quote {
        /// Number of its line, from 1.
        line: usize,
    },
}

/// Reads a token file. kube-apiserver skips records without a token, and lets the last of equal tokens win; both are
/// errors here.
///
/// # Errors
/// [`TokenFileError`] for the first misplaced quote, else for the first unusable record.
pub fn parse(text: &str) -> Result<Vec<StaticToken>, TokenFileError> {
    // Go's reader takes other carriage returns as text, so they may not end a record here.
    let text = &*text.replace("\r\n", "\n");
    let text = text.strip_suffix('\r').unwrap_or(text);
    check_quotes(text)?;
    let mut tokens: Vec<StaticToken> = Vec::new();
    let mut lines = HashMap::new();
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true).terminator(csv::Terminator::Any(b'\n'));
    let mut records = reader.from_reader(text.as_bytes());
    for record in records.records() {
        let record = record.expect("records of any length, from UTF-8 in memory");
        let (line, field) = (line_of(&record, text), |at| record.get(at).unwrap_or_default());
        if record.len() < 3 {
            return Err(TokenFileError::Fields { line, fields: record.len() });
        }
        let groups = field(3).split(',').filter(|group| !group.is_empty()).map(str::to_owned);
        let mut user = User::authenticated(field(1).to_owned(), groups);
        user.uid = field(2).to_owned();
        let token = field(0).to_owned();
        if token.is_empty() {
            return Err(TokenFileError::NoToken { line });
        }
        if user.name.is_empty() {
            return Err(TokenFileError::NoName { line });
        }
        if let Some(earlier) = lines.insert(token.clone(), line) {
            return Err(TokenFileError::Duplicate { line, earlier });
        }
        tokens.push(StaticToken { token, user });
    }
    Ok(tokens)
}

/// Returns the number of a record's first line. The reader counts the empty lines before a record to it.
fn line_of(record: &csv::StringRecord, text: &str) -> usize {
    let Some(position) = record.position() else { return 1 };
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let rest = text.get(number(position.byte())..).unwrap_or_default();
    number(position.line()) + rest.chars().take_while(|end| "\r\n".contains(*end)).filter(|end| *end == '\n').count()
}

/// Refuses the quotes that Go's reader refuses. The one used here takes them as text: without its closing quote, a
/// field of groups would contain the rest of the file.
fn check_quotes(text: &str) -> Result<(), TokenFileError> {
    let (mut line, mut parts) = (1, text.split('"').peekable());
    let (mut is_quoted, mut is_first) = (false, true);
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        // Two quotes within a quoted field have an empty part between them.
        let begins = is_first || part.is_empty() || [",", "\n", "\r\n"].iter().any(|end| part.starts_with(end));
        let ends = is_last || part.is_empty() || part.ends_with([',', '\n']);
        let last_line = line + part.matches('\n').count();
        match is_quoted {
            true if is_last => return Err(TokenFileError::Quote { line }),
            false if !begins => return Err(TokenFileError::Quote { line }),
            false if !ends => return Err(TokenFileError::Quote { line: last_line }),
            true | false => {}
        }
        (line, is_quoted, is_first) = (last_line, !is_quoted, false);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_go_reads_csv() {
        let text = "\n31ada4fd,alice,u1\r\n\"a\"\"b\",\"bob, the\nsecond\",u2,\"dev,ops\"\n\nx,carl,,one,ignored\r";
        let read = parse(text).unwrap();
        let lines: Vec<String> = read
            .iter()
            .map(|entry| {
                let User { name, uid, groups, .. } = &entry.user;
                format!("{}|{name}|{uid}|{}", entry.token, groups.join("+"))
            })
            .collect();
        assert_eq!(
            lines,
            [
                "31ada4fd|alice|u1|system:authenticated",
                "a\"b|bob, the\nsecond|u2|dev+ops+system:authenticated",
                "x|carl||one+system:authenticated",
            ]
        );
        assert!(!format!("{read:?}").contains("31ada4fd"), "tokens are not printed");
    }

    #[test]
    fn a_carriage_return_within_a_record_ends_none() {
        let read = parse("a,alice,u1,dev\rb,bob,u2,admins\n").unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].user.groups, ["dev\rb", "system:authenticated"]);
    }

    #[test]
    fn errors_name_the_line_and_no_content() {
        for (text, error) in [
            ("a,b,c\nd,e\n", "line 2 has 2 fields; token, user name and uid are needed"),
            ("\n\n,b,c", "line 3 has no token"),
            ("a,,c", "line 1 has no user name"),
            ("a,b,c\n\"x\n\",y,z\na,d,e\n", "line 4 has the token of line 1"),
            ("a,b\"c,d", "line 1 has a misplaced or missing quote"),
            ("\"a\"b,c,d", "line 1 has a misplaced or missing quote"),
            ("a,b,c\n\"a,b,c", "line 2 has a misplaced or missing quote"),
            ("a,b,c,\"dev\nd,e,f\n", "line 1 has a misplaced or missing quote"),
            ("a,b,c\r\n\r\nd,e\"", "line 3 has a misplaced or missing quote"),
            ("a,b,c\r\n\r\n\nd,e", "line 4 has 2 fields; token, user name and uid are needed"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
        assert_eq!(parse("").unwrap(), []);
    }
}
