//! Splits an expression into tokens.

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionToken {
    Name(String),
    /// A whole number without its sign.
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Operators and brackets, longer ones first.
const SYMBOLS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-", "+", "*", "/", "%",
    "<", ">",
];

/// Splits `text` into tokens, the last of which is [`ExpressionToken::End`].
///
/// # Errors
/// The part of the text that is no token.
pub(super) fn tokens(text: &str) -> Result<Vec<ExpressionToken>, String> {
    let (mut rest, mut tokens) = (text, Vec::new());
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, next)| next);
            continue;
        }
        let Some(first) = rest.chars().next() else {
            tokens.push(ExpressionToken::End);
            return Ok(tokens);
        };
        let starts_number =
            first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit());
        let (token, length) = if let Some(quoted) = quoted(rest)? {
            quoted
        } else if starts_number {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = name_length(rest);
            (ExpressionToken::Name(rest[..length].to_owned()), length)
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            (ExpressionToken::Symbol(symbol), symbol.len())
        } else {
            return Err(format!("unexpected {first:?}"));
        };
        tokens.push(token);
        rest = &rest[length..];
    }
}

fn name_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len())
}

fn number(text: &str) -> Result<(ExpressionToken, usize), String> {
    let digits =
        |from: usize| text[from..].find(|letter: char| !letter.is_ascii_digit()).map_or(text.len(), |at| from + at);
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let length = hex.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(hex.len());
        let number = u64::from_str_radix(&hex[..length], 16).map_err(|_| "invalid number".to_owned())?;
        return Ok(whole(text, number, length + 2));
    }
    let mut end = digits(0);
    let is_digit = |at: usize| text[at..].starts_with(|letter: char| letter.is_ascii_digit());
    let mut is_double = false;
    if text[end..].starts_with('.') && is_digit(end + 1) {
        (end, is_double) = (digits(end + 1), true);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        if is_digit(end + 1 + sign) {
            (end, is_double) = (digits(end + 1 + sign), true);
        }
    }
    if is_double {
        let number = text[..end].parse().map_err(|_| "invalid number".to_owned())?;
        return Ok((ExpressionToken::Double(number), end));
    }
    let number = text[..end].parse().map_err(|_| format!("invalid int literal {}", &text[..end]))?;
    Ok(whole(text, number, end))
}

fn whole(text: &str, number: u64, length: usize) -> (ExpressionToken, usize) {
    if text[length..].starts_with(['u', 'U']) {
        (ExpressionToken::Uint(number), length + 1)
    } else {
        (ExpressionToken::Int(number), length)
    }
}

/// Reads a quoted text or bytes; `None` if none begins here.
fn quoted(text: &str) -> Result<Option<(ExpressionToken, usize)>, String> {
    let prefix = text.find(|letter: char| !"rRbB".contains(letter)).filter(|length| *length <= 2).unwrap_or_default();
    let (marks, rest) = text.split_at(prefix);
    let Some(quote) = rest.chars().next().filter(|first| ['"', '\''].contains(first)) else { return Ok(None) };
    let is_raw = marks.contains(['r', 'R']);
    let is_bytes = marks.contains(['b', 'B']);
    let triple: String = [quote; 3].iter().collect();
    let end = if rest.starts_with(&triple) { triple } else { quote.to_string() };
    let body = &rest[end.len()..];
    let length = closing(body, &end, is_raw).ok_or("a text without its end")?;
    let inner = &body[..length];
    if end.len() == 1 && inner.contains('\n') {
        return Err("a line break in a text".to_owned());
    }
    let token = match (is_raw, is_bytes) {
        (true, false) => ExpressionToken::Text(inner.to_owned()),
        (true, true) => ExpressionToken::Bytes(inner.as_bytes().to_vec()),
        (false, false) => {
            let bytes = unescape(inner, false)?;
            ExpressionToken::Text(String::from_utf8(bytes).map_err(|_| "invalid escape".to_owned())?)
        }
        (false, true) => ExpressionToken::Bytes(unescape(inner, true)?),
    };
    Ok(Some((token, prefix + 2 * end.len() + length)))
}

/// Returns the place of the closing quote.
fn closing(body: &str, end: &str, is_raw: bool) -> Option<usize> {
    let mut is_escaped = false;
    body.char_indices().find_map(|(at, letter)| {
        if is_escaped {
            is_escaped = false;
            return None;
        }
        is_escaped = letter == '\\' && !is_raw;
        body[at..].starts_with(end).then_some(at)
    })
}

/// Replaces escapes. In bytes, `\x` and octal escapes are bytes, else code points.
fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let kind = rest.chars().next().ok_or("an escape without its end")?;
        let simple = match kind {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '\\' | '?' | '"' | '\'' | '`' => Some(kind),
            _ => None,
        };
        let mut buffer = [0; 4];
        if let Some(letter) = simple {
            out.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
            rest = &rest[1..];
            continue;
        }
        let (skipped, digits, radix) = match kind {
            'x' | 'X' => (1, 2, 16),
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            '0'..='3' => (0, 3, 8),
            _ => return Err("an unknown escape".to_owned()),
        };
        let code = rest.get(skipped..skipped + digits).and_then(|code| u32::from_str_radix(code, radix).ok());
        let code = code.ok_or("an invalid escape")?;
        match u8::try_from(code) {
            Ok(byte) if is_bytes && !['u', 'U'].contains(&kind) => out.push(byte),
            _ => {
                let letter = char::from_u32(code).ok_or("an invalid code point")?;
                out.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
            }
        }
        rest = &rest[skipped + digits..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}
