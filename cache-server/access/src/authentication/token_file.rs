//! Files of static tokens: lines of CSV with token, user name, uid, and groups in one quoted field.
//!
//! Source: apiserver `authentication/token/tokenfile/tokenfile.go`; Go `encoding/csv`.

use std::fmt;

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
        /// Number of the record's first line, from 1.
        line: usize,
    },
}

/// Reads a token file. kube-apiserver skips records without a token, and lets the last of equal tokens win; both are
/// errors here.
///
/// # Errors
/// [`TokenFileError`] for the first unusable record.
pub fn parse(text: &str) -> Result<Vec<StaticToken>, TokenFileError> {
    let mut tokens: Vec<StaticToken> = Vec::new();
    let mut lines = std::collections::HashMap::new();
    let mut records = CsvRecords { rest: text, line: 1 };
    while let Some((line, mut fields)) = records.next_record()? {
        if fields.len() < 3 {
            return Err(TokenFileError::Fields { line, fields: fields.len() });
        }
        let groups = fields.get(3).map(|groups| groups.split(',').map(str::to_owned).collect::<Vec<_>>());
        let groups = groups.into_iter().flatten().filter(|group| !group.is_empty());
        let mut user = User::authenticated(std::mem::take(&mut fields[1]), groups);
        user.uid = std::mem::take(&mut fields[2]);
        let token = std::mem::take(&mut fields[0]);
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

/// Reads CSV record by record.
struct CsvRecords<'a> {
    rest: &'a str,
    /// Number of the next line.
    line: usize,
}

impl CsvRecords<'_> {
    /// Returns the fields of the next record that is not empty, and the number of its first line.
    fn next_record(&mut self) -> Result<Option<(usize, Vec<String>)>, TokenFileError> {
        while let Some(rest) = self.rest.strip_prefix('\n').or_else(|| self.rest.strip_prefix("\r\n")) {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (line, mut fields) = (self.line, Vec::new());
        loop {
            fields.push(match self.rest.strip_prefix('"') {
                Some(quoted) => {
                    self.rest = quoted;
                    self.quoted_field(line)?
                }
                None => self.bare_field(line)?,
            });
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => break,
            }
        }
        // A field ends at a comma, the end of the line, or the end of the file.
        if let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            self.rest = rest;
            self.line += 1;
        }
        Ok(Some((line, fields)))
    }

    fn bare_field(&mut self, line: usize) -> Result<String, TokenFileError> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        let ends_line = !rest.starts_with(',');
        let (field, rest) = match field.strip_suffix('\r').filter(|_| ends_line) {
            Some(without) => (without, &self.rest[without.len() + usize::from(rest.is_empty())..]),
            None => (field, rest),
        };
        if field.contains('"') {
            return Err(TokenFileError::Quote { line });
        }
        self.rest = rest;
        Ok(field.to_owned())
    }

    /// Reads a field behind its opening quote.
    fn quoted_field(&mut self, line: usize) -> Result<String, TokenFileError> {
        let mut field = String::new();
        loop {
            let end = self.rest.find('"').ok_or(TokenFileError::Quote { line })?;
            let (part, rest) = self.rest.split_at(end);
            self.line += part.matches('\n').count();
            field.push_str(part);
            match rest.strip_prefix("\"\"") {
                Some(rest) => {
                    field.push('"');
                    self.rest = rest;
                }
                None => {
                    self.rest = &rest[1..];
                    let is_end = ["", ",", "\n", "\r\n"].iter().any(|end| match *end {
                        "" => self.rest.is_empty(),
                        end => self.rest.starts_with(end),
                    });
                    return if is_end { Ok(field) } else { Err(TokenFileError::Quote { line }) };
                }
            }
        }
    }
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
    fn errors_name_the_line_and_no_content() {
        for (text, error) in [
            ("a,b,c\nd,e\n", "line 2 has 2 fields; token, user name and uid are needed"),
            ("\n\n,b,c", "line 3 has no token"),
            ("a,,c", "line 1 has no user name"),
            ("a,b,c\n\"x\n\",y,z\na,d,e\n", "line 4 has the token of line 1"),
            ("a,b\"c,d", "line 1 has a misplaced or missing quote"),
            ("\"a\"b,c,d", "line 1 has a misplaced or missing quote"),
            ("a,b,c\n\"a,b,c", "line 2 has a misplaced or missing quote"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
        assert_eq!(parse("").unwrap(), []);
    }
}
