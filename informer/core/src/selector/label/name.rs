//! Validates keys and values of labels, with kube-apiserver's error texts.

/// Longest name part of a key, and longest value, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Longest prefix of a key, in bytes: a DNS subdomain.
const PREFIX_BYTES_MAX: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Returns the errors of a key (`[prefix/]name`), joined by `; `; `None` for a valid one.
pub(super) fn key_error(key: &str) -> Option<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            let rule = NAME_RULE;
            return Some(format!(
                "a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some((prefix, name)) => {
            prefix_errors(prefix, &mut errors);
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES_MAX {
        errors.push(format!("name part must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    joined(&errors)
}

/// Returns the errors of a value, joined by `; `; `None` for a valid one. Empty values are valid.
pub(super) fn value_error(value: &str) -> Option<String> {
    let mut errors = Vec::new();
    if value.len() > NAME_BYTES_MAX {
        errors.push(format!("must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    joined(&errors)
}

fn prefix_errors(prefix: &str, errors: &mut Vec<String>) {
    if prefix.is_empty() {
        errors.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        errors.push(format!("prefix part must be no more than {PREFIX_BYTES_MAX} bytes"));
    }
    if !is_subdomain(prefix) {
        errors.push(format!("prefix part {SUBDOMAIN_RULE}"));
    }
}

fn joined(errors: &[String]) -> Option<String> {
    (!errors.is_empty()).then(|| errors.join("; "))
}

fn is_name(text: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|&byte| is_letter(byte))
            && bytes.last().is_some_and(|&byte| is_letter(byte))
            && bytes.iter().all(|&byte| is_letter(byte) || byte == b'-')
    })
}
