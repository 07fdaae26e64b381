//! Addresses, ranges of addresses, and URLs.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
};

use informer_serving::go::quote;

use super::{
    eval::{Evaluation, EvaluationFailure, EvaluationResult},
    value::CelValue,
};

/// A range of addresses, and the address that it was written with.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// A URL in its parts.
#[derive(PartialEq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

/// Parses an address without a zone.
///
/// # Errors
/// kube-apiserver's text.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, EvaluationFailure> {
    let quoted = quote(text);
    let parsed: IpAddr = text.parse().map_err(|_| {
        let why = format!("ParseAddr({quoted}): unable to parse IP");
        EvaluationFailure::error(format!("IP Address {quoted} parse error during conversion from string: {why}"))
    })?;
    match parsed {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(EvaluationFailure::error(format!("IPv4-mapped IPv6 address {quoted} is not allowed")))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => Ok(parsed),
    }
}

/// Parses a range such as `10.0.0.0/8`.
///
/// # Errors
/// kube-apiserver's text.
pub(super) fn parse_cidr(text: &str) -> Result<Cidr, EvaluationFailure> {
    let parse_error = "network address parse error during conversion from string";
    let invalid = |why: &str| {
        EvaluationFailure::error(format!("{parse_error}: {parse_error}: netip.ParsePrefix({}): {why}", quote(text)))
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(|| invalid("no '/'"))?;
    let address: IpAddr = address.parse().map_err(|_| invalid("unable to parse IP"))?;
    let is_plain = length.bytes().all(|digit| digit.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let bits = length.parse::<u8>().ok().filter(|bits| is_plain && *bits <= width(address));
    let bits = bits.ok_or_else(|| invalid("prefix length out of range"))?;
    if let IpAddr::V6(mapped) = address
        && mapped.to_ipv4_mapped().is_some()
    {
        let text = format!("{parse_error}: IPv4-mapped IPv6 address {} is not allowed", quote(text));
        return Err(EvaluationFailure::error(text));
    }
    Ok(Cidr { address, bits })
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Cidr {
    fn masked(self) -> Self {
        let shift = width(self.address) - self.bits;
        let address = match self.address {
            IpAddr::V4(address) => {
                IpAddr::V4((u32::MAX.checked_shl(shift.into()).unwrap_or_default() & u32::from(address)).into())
            }
            IpAddr::V6(address) => {
                IpAddr::V6((u128::MAX.checked_shl(shift.into()).unwrap_or_default() & u128::from(address)).into())
            }
        };
        Self { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, bits: self.bits }.masked().address == self.masked().address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Calls a method of an address.
pub(super) fn call_ip<'a>(name: &str, address: IpAddr) -> EvaluationResult<'a> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_local_multicast = match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    };
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local;
    Ok(match name {
        "family" => CelValue::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => CelValue::Bool(address.is_unspecified()),
        "isLoopback" => CelValue::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => CelValue::Bool(is_local_multicast),
        "isLinkLocalUnicast" => CelValue::Bool(is_link_local),
        "isGlobalUnicast" => CelValue::Bool(!is_special && address != IpAddr::V4(Ipv4Addr::BROADCAST)),
        _ => return Err(EvaluationFailure::no_overload()),
    })
}

/// Calls a method of a range.
pub(super) fn call_cidr<'a>(name: &str, range: Cidr, argument: Option<&CelValue<'a>>) -> EvaluationResult<'a> {
    Ok(match (name, argument) {
        ("ip", None) => CelValue::Ip(range.address),
        ("prefixLength", None) => CelValue::Int(range.bits.into()),
        ("masked", None) => CelValue::Cidr(range.masked()),
        ("containsIP", Some(CelValue::Ip(address))) => CelValue::Bool(range.contains(*address)),
        ("containsIP", Some(CelValue::Text(text))) => CelValue::Bool(range.contains(parse_ip(text)?)),
        ("containsCIDR", Some(CelValue::Cidr(other))) => CelValue::Bool(covers(range, *other)),
        ("containsCIDR", Some(CelValue::Text(text))) => CelValue::Bool(covers(range, parse_cidr(text)?)),
        (_, _) => return Err(EvaluationFailure::no_overload()),
    })
}

fn covers(range: Cidr, other: Cidr) -> bool {
    range.bits <= other.bits && range.contains(other.address)
}

impl Url {
    /// Parses an absolute URL, or a path.
    ///
    /// # Errors
    /// Go's text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("parse {}: {why}", quote(text));
        if text.is_empty() {
            return Err(refuse("empty url"));
        }
        if text.contains(|letter: char| letter.is_ascii_control()) {
            return Err(refuse("net/url: invalid control character in URL"));
        }
        let (whole, _) = text.split_once('#').unwrap_or((text, ""));
        let (before, query) = whole.split_once('?').unwrap_or((whole, ""));
        let (scheme, rest) = scheme(before).map_err(refuse)?;
        if rest.is_empty() && scheme.is_empty() || !rest.starts_with('/') && scheme.is_empty() {
            return Err(refuse("invalid URI for request"));
        }
        let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
            Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
            // Go keeps such a part, which is no path.
            None if !rest.starts_with('/') => ("", ""),
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        check_host(host).map_err(|why| refuse(&why))?;
        check_escapes(path).map_err(|why| refuse(&why))?;
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    fn port_at(&self) -> usize {
        let end = self.host.rfind(']').unwrap_or_default();
        self.host[end..].rfind(':').map_or(self.host.len(), |at| end + at)
    }

    fn hostname(&self) -> &str {
        self.host[..self.port_at()].trim_start_matches('[').trim_end_matches(']')
    }

    fn escaped_path(&self) -> String {
        let mut out = String::with_capacity(self.path.len());
        for byte in self.path.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        out
    }
}

/// Splits off the scheme.
fn scheme(text: &str) -> Result<(&str, &str), &'static str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    let end = text.find(|letter: char| !is_letter(letter)).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(_) if end == 0 => Err("missing protocol scheme"),
        Some(rest) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => Ok((&text[..end], rest)),
        Some(_) => Err("first path segment in URL cannot contain colon"),
        None => Ok(("", text)),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(letter) = host.chars().find(|letter| " <>\"\\^`{|}".contains(*letter)) {
        return Err(format!("invalid character {} in host name", quote(&letter.to_string())));
    }
    let end = match (host.starts_with('['), host.rfind(']')) {
        (true, None) => return Err("missing ']' in host".to_owned()),
        (_, end) => end.map_or(0, |end| end + 1),
    };
    let port = host[end..].rfind(':').map(|at| &host[end + at..]);
    match port {
        Some(port) if !port[1..].bytes().all(|digit| digit.is_ascii_digit()) => {
            Err(format!("invalid port {} after host", quote(port)))
        }
        Some(_) | None => check_escapes(host),
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let escape = &rest.as_bytes()[at..rest.len().min(at + 3)];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("invalid URL escape {}", quote(&String::from_utf8_lossy(escape))));
        }
        rest = &rest[at + 3..];
    }
    Ok(())
}

/// Decodes a part of a query; `None` for invalid escapes.
fn decoded(text: &str) -> Option<String> {
    check_escapes(text).ok()?;
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'%' => {
                out.push(u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok()?);
                at += 2;
            }
            b'+' => out.push(b' '),
            other => out.push(*other),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

impl Url {
    /// Returns the bytes of its parts.
    pub(super) const fn length(&self) -> usize {
        self.scheme.len() + self.host.len() + self.path.len() + self.query.len()
    }
}

impl<'a> Evaluation<'a, '_> {
    /// Calls a method of a URL.
    pub(super) fn call_url(&mut self, name: &str, url: &Url) -> EvaluationResult<'a> {
        Ok(match name {
            "getScheme" => CelValue::text(&*url.scheme),
            "getHost" => CelValue::text(&*url.host),
            "getHostname" => CelValue::text(url.hostname()),
            "getPort" => CelValue::text(url.host[url.port_at()..].trim_start_matches(':')),
            "getEscapedPath" => CelValue::text(url.escaped_path()),
            "getQuery" => return self.query(url),
            _ => return Err(EvaluationFailure::no_overload()),
        })
    }

    /// Returns the values of each key of a query.
    fn query(&mut self, url: &Url) -> EvaluationResult<'a> {
        let mut members: Vec<(String, Vec<CelValue<'a>>)> = Vec::new();
        for part in url.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(key), Some(value)) = (decoded(key), decoded(value)) else { continue };
            self.charge(1 + members.len())?;
            let value = CelValue::text(value);
            match members.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => members.push((key, vec![value])),
            }
        }
        let members = members.into_iter().map(|(key, values)| (CelValue::text(key), CelValue::list(values)));
        Ok(CelValue::Map(Rc::new(members.collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_their_addresses() {
        let range = parse_cidr("192.168.0.1/24").expect("a range");
        assert_eq!(range.masked().to_string(), "192.168.0.0/24");
        assert!(range.contains(parse_ip("192.168.0.9").expect("an address")));
        assert!(!range.contains(parse_ip("192.168.1.9").expect("an address")));
        assert!(!range.contains(parse_ip("::1").expect("an address")));
        assert!(covers(parse_cidr("0.0.0.0/0").expect("a range"), range));
        for invalid in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "::1/129", "::ffff:1.2.3.4/96", "x/1", "10.0.0.0/+1"]
        {
            assert!(parse_cidr(invalid).is_err(), "{invalid}");
        }
        for invalid in ["1.2.3", "01.2.3.4", "::ffff:1.2.3.4", "fe80::1%eth0", ""] {
            assert!(parse_ip(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn urls_are_split_as_by_go() {
        let parts = |text: &str| {
            let url = Url::parse(text).expect("a URL");
            [url.scheme.clone(), url.host.clone(), url.hostname().to_owned(), url.escaped_path(), url.query.clone()]
        };
        assert_eq!(
            parts("https://example.com:80/a b?k=v#f"),
            ["https", "example.com:80", "example.com", "/a%20b", "k=v"]
        );
        assert_eq!(parts("https://[::1]/"), ["https", "[::1]", "::1", "/", ""]);
        assert_eq!(parts("/path"), ["", "", "", "/path", ""]);
        assert_eq!(parts("HTTP://u:p@h"), ["http", "h", "h", "", ""]);
        for invalid in ["", "path", "http://a b/", "http://h:x/", "http://[::1/", "/%zz", ":x", "a\u{1}"] {
            assert!(Url::parse(invalid).is_err(), "{invalid}");
        }
    }
}
