//! Addresses in texts: of networks, of mail, and URIs, as Go reads them.
//!
//! Source: Go's `net`, `net/netip`, `net/url`, `net/mail`; `k8s.io/utils/net` for addresses with leading zeros.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true for an IP address. Its numbers may have leading zeros.
pub(crate) fn is_ip(text: &str) -> bool {
    sloppy_ip(text).is_some()
}

fn sloppy_ip(text: &str) -> Option<IpAddr> {
    let without_zeros = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        number => number.to_owned(),
    };
    let v4 = |text: &str| text.split('.').map(without_zeros).collect::<Vec<_>>().join(".");
    if !text.contains(':') {
        return v4(text).parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let groups = text.split(':').map(|group| if group.contains('.') { v4(group) } else { without_zeros(group) });
    groups.collect::<Vec<_>>().join(":").parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Returns true for an IP address and the length of its network.
pub(crate) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match sloppy_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// Returns true for 6, 8 or 20 bytes: with colons or dashes, with a dot after each two bytes, or together.
pub(super) fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes() {
        [_, _, separator @ (b':' | b'-'), ..] => (char::from(*separator), 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        _ => return [12, 16, 40].contains(&text.len()) && is_hex(text),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    groups.iter().all(|group| group.len() == digits && is_hex(group))
        && [6, 8, 20].contains(&(groups.len() * digits / 2))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true for a URI that a request may have: an absolute one, or an absolute path.
pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let Some(authority) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) else { return is_escaped(rest) };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    is_host(scheme, host) && user.bytes().all(is_user) && is_escaped(user) && is_escaped(path)
}

/// Separates the scheme, which may be missing. `None` for an empty one before a colon.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (at, letter) in text.bytes().enumerate() {
        match letter {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' => return (at > 0).then(|| (&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

/// Returns true if each percent sign begins an escaped byte.
fn is_escaped(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

fn is_host(scheme: &str, host: &str) -> bool {
    match host.rfind('[') {
        Some(0) => {
            let Some((address, port)) = host[1..].rsplit_once(']') else { return false };
            let (address, zone) = address.split_once("%25").unwrap_or((address, "zone"));
            address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && has_host_letters(zone) && is_port(port)
        }
        Some(_) => false,
        None => {
            let is_strict = ["http", "https"].iter().any(|strict| scheme.eq_ignore_ascii_case(strict));
            let colon = if is_strict { host.find(':') } else { host.rfind(':') };
            colon.is_none_or(|colon| is_port(&host[colon..])) && has_host_letters(host)
        }
    }
}

/// Returns true for a colon and digits, or for nothing.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if a host may have these letters. Only bytes beyond ASCII may be escaped, and the percent sign.
fn has_host_letters(text: &str) -> bool {
    let is_letter =
        |byte: u8| !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte);
    let is_allowed =
        |after: &str| after.starts_with("25") || after.starts_with(|high: char| high.to_digit(16) >= Some(8));
    text.bytes().all(is_letter) && is_escaped(text) && text.split('%').skip(1).all(is_allowed)
}

/// Returns true for a mail address, which may stand in angle brackets behind a name.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let Some(named) = text.strip_suffix('>') else { return is_mailbox(text) };
    let mut rest = named;
    // Words of the name, some of them quoted.
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let end = match rest.chars().next() {
            Some('<') => return is_mailbox(rest[1..].trim_start_matches([' ', '\t'])),
            Some('"') => quoted(rest),
            _ => Some(rest.find(|letter| !is_atom_letter(letter) && letter != '.').unwrap_or(rest.len())),
        };
        match end {
            None | Some(0) => return false,
            Some(end) => rest = &rest[end..],
        }
    }
}

fn is_mailbox(text: &str) -> bool {
    let (local, domain) = match quoted(text) {
        Some(end) if end > 2 => text.split_at(end),
        Some(_) => return false,
        None => {
            let (local, domain) = text.split_at(text.find('@').unwrap_or(text.len()));
            if !is_dotted_atom(local) {
                return false;
            }
            (local, domain)
        }
    };
    let Some(domain) = domain.strip_prefix('@').filter(|_| !local.is_empty()) else { return false };
    let domain = domain.trim_start_matches([' ', '\t']);
    match domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']')) {
        Some(address) => address.parse::<IpAddr>().is_ok(),
        None => is_dotted_atom(domain),
    }
}

/// Returns the length of a quoted text at the begin, with its quotes.
fn quoted(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip_while(|(at, letter)| *at == 0 && *letter == '"');
    if !text.starts_with('"') {
        return None;
    }
    while let Some((at, letter)) = letters.next() {
        let is_printed = |letter: char| letter == ' ' || letter == '\t' || is_printed(letter);
        match letter {
            '"' => return Some(at + 1),
            '\\' if letters.next().is_some_and(|(_, escaped)| is_printed(escaped)) => {}
            '\\' => return None,
            letter if is_printed(letter) => {}
            _ => return None,
        }
    }
    None
}

fn is_dotted_atom(text: &str) -> bool {
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_letter))
}

fn is_atom_letter(letter: char) -> bool {
    is_printed(letter) && !r#"()<>[]:;@\,"."#.contains(letter)
}

fn is_printed(letter: char) -> bool {
    letter > ' ' && letter != '\u{7f}'
}
