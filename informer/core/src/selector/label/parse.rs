//! Parser of label selectors: tokens, grammar, and kube-apiserver's error texts.
//!
//! INVARIANT: the list of tokens ends with exactly one [`TokenKind::End`], and no rule reads past it.

use super::{Operator, ParseError, name};
use crate::wire::go::quote;

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    End,
    Identifier,
    /// `in` or `notin`: an operator after a key, otherwise an identifier.
    Word(Operator),
    Compare(Operator),
    Not,
    Comma,
    Open,
    Close,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
}

impl Token<'_> {
    /// Returns the kind in the place of a key or a value, where `in` and `notin` are ordinary names.
    const fn as_name(self) -> TokenKind {
        match self.kind {
            TokenKind::Word(_) => TokenKind::Identifier,
            kind @ (TokenKind::End
            | TokenKind::Identifier
            | TokenKind::Compare(_)
            | TokenKind::Not
            | TokenKind::Comma
            | TokenKind::Open
            | TokenKind::Close) => kind,
        }
    }
}

/// Two-letter symbols first, so that the longest match wins.
const SYMBOLS: [(&str, TokenKind); 9] = [
    ("!=", TokenKind::Compare(Operator::NotEquals)),
    ("==", TokenKind::Compare(Operator::DoubleEquals)),
    ("=", TokenKind::Compare(Operator::Equals)),
    ("<", TokenKind::Compare(Operator::LessThan)),
    (">", TokenKind::Compare(Operator::GreaterThan)),
    ("!", TokenKind::Not),
    (",", TokenKind::Comma),
    ("(", TokenKind::Open),
    (")", TokenKind::Close),
];

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

const fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'<' | b'>')
}

fn scan(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|letter: char| u8::try_from(letter).is_ok_and(is_space));
        // A NUL byte ends the text, as in kube-apiserver's lexer.
        if rest.is_empty() || rest.starts_with('\0') {
            tokens.push(Token { kind: TokenKind::End, text: "" });
            return tokens;
        }
        let (kind, length) = SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)).map_or_else(
            || {
                let ends = |byte: u8| byte == 0 || is_space(byte) || is_symbol(byte);
                let length = rest.bytes().position(ends).unwrap_or(rest.len());
                let kind = match &rest[..length] {
                    "in" => TokenKind::Word(Operator::In),
                    "notin" => TokenKind::Word(Operator::NotIn),
                    _ => TokenKind::Identifier,
                };
                (kind, length)
            },
            |(symbol, kind)| (*kind, symbol.len()),
        );
        let (text, after) = rest.split_at(length);
        tokens.push(Token { kind, text });
        rest = after.strip_prefix('\0').filter(|_| kind == TokenKind::Identifier).unwrap_or(after);
    }
}

/// One requirement as written, except that its values are sorted and distinct.
pub(super) struct ParsedRequirement<'a> {
    pub(super) key: &'a str,
    pub(super) operator: Operator,
    values: Vec<&'a str>,
}

impl<'a> ParsedRequirement<'a> {
    fn new(key: &'a str, operator: Operator, mut values: Vec<&'a str>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self { key, operator, values }
    }

    /// Appends the requirement as Kubernetes prints it.
    pub(super) fn push_to(&self, text: &mut String) {
        if self.operator == Operator::DoesNotExist {
            text.push('!');
        }
        text.push_str(self.key);
        let (open, close) = self.operator.around();
        text.push_str(open);
        for (at, value) in self.values.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(value);
        }
        text.push_str(close);
    }
}

/// Parses the requirements, in the order written.
pub(super) fn parse(text: &str) -> Result<Vec<ParsedRequirement<'_>>, ParseError> {
    let mut parser = Parser { tokens: scan(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        let token = parser.peek();
        match token.as_name() {
            TokenKind::Identifier | TokenKind::Not => {}
            TokenKind::End => return Ok(requirements),
            TokenKind::Word(_) | TokenKind::Compare(_) | TokenKind::Comma | TokenKind::Open | TokenKind::Close => {
                return found(token, ", expected: !, identifier, or 'end of string'");
            }
        }
        let requirement = parser.requirement();
        requirements
            .push(requirement.map_err(|error| ParseError(format!("unable to parse requirement: {}", error.0)))?);
        let token = parser.take();
        match token.kind {
            TokenKind::End => return Ok(requirements),
            TokenKind::Comma if matches!(parser.peek().as_name(), TokenKind::Identifier | TokenKind::Not) => {}
            TokenKind::Comma => return found(parser.peek(), ", expected: identifier after ','"),
            TokenKind::Identifier
            | TokenKind::Word(_)
            | TokenKind::Compare(_)
            | TokenKind::Not
            | TokenKind::Open
            | TokenKind::Close => {
                return found(token, ", expected: ',' or 'end of string'");
            }
        }
    }
}

fn found<T>(token: Token<'_>, expected: &str) -> Result<T, ParseError> {
    Err(ParseError(format!("found '{}'{expected}", token.text)))
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    /// Returns the next token; the end can be taken repeatedly.
    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn requirement(&mut self) -> Result<ParsedRequirement<'a>, ParseError> {
        let not = self.peek().kind == TokenKind::Not;
        if not {
            self.take();
        }
        let key = self.take();
        if key.as_name() != TokenKind::Identifier {
            return found(key, ", expected: identifier");
        }
        if let Some(error) = name::key_error(key.text) {
            return Err(invalid("<nil>", key.text, &error));
        }
        if not {
            return Ok(ParsedRequirement::new(key.text, Operator::DoesNotExist, Vec::new()));
        }
        if matches!(self.peek().kind, TokenKind::End | TokenKind::Comma) {
            return Ok(ParsedRequirement::new(key.text, Operator::Exists, Vec::new()));
        }
        let token = self.take();
        let (TokenKind::Word(operator) | TokenKind::Compare(operator)) = token.kind else {
            return found(token, &format!(", expected: {OPERATORS}"));
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            Operator::Equals
            | Operator::DoubleEquals
            | Operator::NotEquals
            | Operator::GreaterThan
            | Operator::LessThan => vec![self.exact_value()?],
            Operator::Exists | Operator::DoesNotExist => Vec::new(),
        };
        let requirement = ParsedRequirement::new(key.text, operator, values);
        check_values(&requirement)?;
        Ok(requirement)
    }

    fn exact_value(&mut self) -> Result<&'a str, ParseError> {
        if matches!(self.peek().kind, TokenKind::End | TokenKind::Comma) {
            return Ok("");
        }
        let token = self.take();
        if token.as_name() == TokenKind::Identifier { Ok(token.text) } else { found(token, ", expected: identifier") }
    }

    fn values(&mut self) -> Result<Vec<&'a str>, ParseError> {
        let token = self.take();
        if token.kind != TokenKind::Open {
            return found(token, " expected: '('");
        }
        let token = self.peek();
        match token.as_name() {
            TokenKind::Identifier | TokenKind::Comma => {}
            TokenKind::Close => {
                self.take();
                return Ok(vec![""]);
            }
            TokenKind::End | TokenKind::Word(_) | TokenKind::Compare(_) | TokenKind::Not | TokenKind::Open => {
                return found(token, ", expected: ',', ')' or identifier");
            }
        }
        let values = self.identifiers()?;
        self.take();
        Ok(values)
    }

    /// Reads values up to the closing parenthesis, which stays. Empty values count; repeated ones are removed later.
    fn identifiers(&mut self) -> Result<Vec<&'a str>, ParseError> {
        let mut values = Vec::new();
        loop {
            let token = self.take();
            match token.as_name() {
                TokenKind::Identifier => {
                    values.push(token.text);
                    match self.peek().kind {
                        TokenKind::Comma => {}
                        TokenKind::Close => return Ok(values),
                        TokenKind::End
                        | TokenKind::Identifier
                        | TokenKind::Word(_)
                        | TokenKind::Compare(_)
                        | TokenKind::Not
                        | TokenKind::Open => {
                            return found(self.peek(), ", expected: ',' or ')'");
                        }
                    }
                }
                TokenKind::Comma => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek().kind {
                        TokenKind::Close => {
                            values.push("");
                            return Ok(values);
                        }
                        TokenKind::Comma => {
                            self.take();
                            values.push("");
                        }
                        TokenKind::End
                        | TokenKind::Identifier
                        | TokenKind::Word(_)
                        | TokenKind::Compare(_)
                        | TokenKind::Not
                        | TokenKind::Open => {}
                    }
                }
                TokenKind::End
                | TokenKind::Word(_)
                | TokenKind::Compare(_)
                | TokenKind::Not
                | TokenKind::Open
                | TokenKind::Close => {
                    return found(token, ", expected: ',', or identifier");
                }
            }
        }
    }
}

fn invalid(path: &str, value: &str, why: &str) -> ParseError {
    ParseError(format!("{path}: Invalid value: {}: {why}", quote(value)))
}

fn check_values(requirement: &ParsedRequirement<'_>) -> Result<(), ParseError> {
    let mut errors = Vec::new();
    if matches!(requirement.operator, Operator::GreaterThan | Operator::LessThan) {
        for (at, value) in requirement.values.iter().enumerate() {
            if value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(invalid(&format!("values[{at}]"), value, why).0);
            }
        }
    }
    for (at, value) in requirement.values.iter().enumerate() {
        if let Some(why) = name::value_error(value) {
            errors.push(invalid(&format!("values[{at}][{}]", requirement.key), value, &why).0);
        }
    }
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(ParseError(error.clone())),
        _ => Err(ParseError(format!("[{}]", errors.join(", ")))),
    }
}
