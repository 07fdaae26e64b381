//! Rules for texts, and the reasons of a refusal in Kubernetes' words; none for a text that is allowed.
//!
//! Source: apimachinery `pkg/api/validate/content`, `pkg/util/validation`.

use api_rules::registry::NameRule;

use crate::structural;

/// A rule for a text.
pub(super) type TextRule = fn(&str) -> Vec<String>;

const NAME_REFUSED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_REFUSED: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY_REFUSED: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
    or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const UNDERSCORE_REFUSED: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', \
    '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const WILDCARD_REFUSED: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
    must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
    '*.example.com', regex used for validation is \
    '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PERCENT_REFUSED: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
    '93%', regex used for validation is '[0-9]+%')";
const IP_REFUSED: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR_REFUSED: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const VARIABLE_REFUSED: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// Finds the rule of a name in the table.
pub(super) fn find(name: &str) -> Option<TextRule> {
    Some(match name {
        "label" => label,
        "subdomain" => subdomain,
        "qualified" => qualified,
        "label-value" => label_value,
        "port-name" => port_name,
        "config-key" => config_key,
        "variable" => variable,
        "path-segment" => path_segment,
        "ip" => ip,
        "cidr" => cidr,
        "percent" => percent,
        _ => return None,
    })
}

pub(super) fn label(text: &str) -> Vec<String> {
    NameRule::Label.refuse(text)
}

pub(super) fn subdomain(text: &str) -> Vec<String> {
    NameRule::Subdomain.refuse(text)
}

pub(super) fn path_segment(text: &str) -> Vec<String> {
    NameRule::PathSegment.refuse(text)
}

/// True for `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(|byte| is_key_byte(*byte))
}

const fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

/// A key of labels: a name that may have the prefix of a domain.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut refused = Vec::new();
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return vec![format!(
                "a valid label key {NAME_REFUSED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        None => {}
        Some("") => refused.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => refused.extend(subdomain(prefix).iter().map(|why| format!("prefix part {why}"))),
    }
    if name.is_empty() {
        refused.push("name part must be non-empty".to_owned());
    }
    refused.extend(too_long(name, 63).map(|why| format!("name part {why}")));
    if !is_name(name) {
        refused.push(format!("name part {NAME_REFUSED}"));
    }
    refused
}

pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut refused: Vec<String> = too_long(text, 63).into_iter().collect();
    if !text.is_empty() && !is_name(text) {
        refused.push(VALUE_REFUSED.to_owned());
    }
    refused
}

pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut refused: Vec<String> = too_long(text, 15).into_iter().collect();
    let mut refuse = |is_refused: bool, why: &str| refused.extend(is_refused.then(|| why.to_owned()));
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    refuse(
        text.is_empty() || !text.bytes().all(is_allowed),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuse(!text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    refuse(text.contains("--"), "must not contain consecutive hyphens");
    refuse(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    refused
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut refused: Vec<String> = too_long(text, 253).into_iter().collect();
    if text.is_empty() || !text.bytes().all(is_key_byte) {
        refused.push(KEY_REFUSED.to_owned());
    }
    match text {
        "." => refused.push("must not be '.'".to_owned()),
        ".." => refused.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => refused.push("must not start with '..'".to_owned()),
        _ => {}
    }
    refused
}

/// A name of an environment variable.
pub(super) fn variable(text: &str) -> Vec<String> {
    let mut refused = Vec::new();
    if text.is_empty() {
        refused.push("environment variable name must be non-empty".to_owned());
    }
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        refused.push(VARIABLE_REFUSED.to_owned());
    }
    refused
}

/// A domain to search, whose labels may begin with an underscore.
pub(super) fn search_domain(text: &str) -> Vec<String> {
    let mut refused: Vec<String> = too_long(text, 253).into_iter().collect();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label).as_bytes();
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        match (label.first(), label.last()) {
            (Some(first), Some(last)) => {
                is_inner(*first)
                    && is_inner(*last)
                    && label.iter().all(|byte| is_inner(*byte) || matches!(byte, b'-' | b'_'))
            }
            _ => false,
        }
    };
    if !text.split('.').all(is_label) {
        refused.push(UNDERSCORE_REFUSED.to_owned());
    }
    refused
}

/// A host of an Ingress.
pub(super) fn host(text: &str) -> Vec<String> {
    if !text.contains('*') {
        return subdomain(text);
    }
    let mut refused: Vec<String> = too_long(text, 253).into_iter().collect();
    if text.strip_prefix("*.").is_none_or(|rest| !subdomain(rest).is_empty()) {
        refused.push(WILDCARD_REFUSED.to_owned());
    }
    refused
}

pub(super) fn percent(text: &str) -> Vec<String> {
    let is_percent = text
        .strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_percent { Vec::new() } else { vec![PERCENT_REFUSED.to_owned()] }
}

pub(super) fn ip(text: &str) -> Vec<String> {
    if structural::is_ip(text) { Vec::new() } else { vec![IP_REFUSED.to_owned()] }
}

pub(super) fn cidr(text: &str) -> Vec<String> {
    if structural::is_cidr(text) { Vec::new() } else { vec![CIDR_REFUSED.to_owned()] }
}
