//! Rules for names of objects, and the errors for invalid ones.
//!
//! Source: `apimachinery/pkg/util/validation`, `apimachinery/pkg/api/validation/path`.

/// Rule for `metadata.name` of a resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// An RFC 1123 subdomain of at most 253 characters: most types.
    Subdomain,
    /// An RFC 1123 label of at most 63 characters: namespaces, services.
    Label,
    /// An RFC 1035 label of at most 63 characters, which starts with a letter: kinds of custom resources.
    ServiceLabel,
    /// Any valid path segment: RBAC.
    PathSegment,
}

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;

const SUBDOMAIN_REFUSED: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
    '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
    is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_REFUSED: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE_LABEL_REFUSED: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
    with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used \
    for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

impl NameRule {
    /// The errors for `name` in Kubernetes' words; empty if it is valid. Callers report an empty name as a missing value
    /// instead.
    #[must_use]
    pub fn refuse(self, name: &str) -> Vec<String> {
        let mut refused = Vec::new();
        match self {
            Self::Subdomain => {
                too_long(name, SUBDOMAIN_BYTES_MAX, &mut refused);
                if !is_subdomain(name) {
                    refused.push(SUBDOMAIN_REFUSED.to_owned());
                }
            }
            Self::Label => {
                too_long(name, LABEL_BYTES_MAX, &mut refused);
                if !is_label(name) {
                    let is_dotted = is_subdomain(name);
                    refused.push(if is_dotted { "must not contain dots" } else { LABEL_REFUSED }.to_owned());
                }
            }
            Self::ServiceLabel => {
                too_long(name, LABEL_BYTES_MAX, &mut refused);
                if !is_label(name) || name.starts_with(|first: char| first.is_ascii_digit()) {
                    refused.push(SERVICE_LABEL_REFUSED.to_owned());
                }
            }
            Self::PathSegment => match name {
                "." | ".." => refused.push(format!("may not be '{name}'")),
                _ => refused.extend(
                    ["/", "%"]
                        .iter()
                        .filter(|part| name.contains(**part))
                        .map(|part| format!("may not contain '{part}'")),
                ),
            },
        }
        refused
    }

    /// The errors for `base` as a prefix of generated names. A trailing dash is allowed, because a suffix follows.
    #[must_use]
    pub fn refuse_base(self, base: &str) -> Vec<String> {
        match self {
            Self::PathSegment => {
                self.refuse(base).into_iter().filter(|text| text.starts_with("may not contain")).collect()
            }
            Self::Subdomain | Self::Label | Self::ServiceLabel => match base.strip_suffix('-') {
                Some(rest) => self.refuse(&format!("{rest}a")),
                None => self.refuse(base),
            },
        }
    }
}

/// The errors for `namespace` as the namespace of an object; empty if it is valid.
#[must_use]
pub fn refuse_namespace(namespace: &str) -> Vec<String> {
    NameRule::Label.refuse(namespace)
}

/// The errors for `name` as an RFC 1035 label, joined; empty if it is valid.
#[must_use]
pub fn refuse_service_label(name: &str) -> String {
    NameRule::ServiceLabel.refuse(name).join(",")
}

/// True if `name` consists of lower-case RFC 1123 labels joined by dots, of any length.
fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// True if `name` has the form of a lower-case RFC 1123 label, of any length.
fn is_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    inner(first) && inner(last) && bytes.iter().all(|byte| inner(byte) || *byte == b'-')
}

fn too_long(name: &str, bytes_max: usize, refused: &mut Vec<String>) {
    if name.len() > bytes_max {
        refused.push(format!("must be no more than {bytes_max} bytes"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each rule accepts the right names. Method: a table of names, with a letter for each rule that accepts the
    /// name.
    #[test]
    fn each_rule_takes_its_names() {
        let long_label = "a".repeat(63);
        let long_subdomain = format!("{}.{}", "a".repeat(126), "b".repeat(126));
        let table: &[(&str, &str)] = &[
            ("a", "dlsp"),
            ("my-name", "dlsp"),
            ("123-abc", "dlp"),
            ("example.com", "dp"),
            (&long_label, "dlsp"),
            (&format!("{long_label}a"), "dp"),
            (&long_subdomain, "dp"),
            (&format!("{long_subdomain}c"), "p"),
            ("system:controller:job", "p"),
            ("Upper", "p"),
            ("under_score", "p"),
            ("-a", "p"),
            ("a-", "p"),
            ("a..b", "p"),
            (".a", "p"),
            ("a b", "p"),
            ("ä", "p"),
            (".", ""),
            ("..", ""),
            ("a/b", ""),
            ("a%b", ""),
        ];
        let rules = [
            ('d', NameRule::Subdomain),
            ('l', NameRule::Label),
            ('s', NameRule::ServiceLabel),
            ('p', NameRule::PathSegment),
        ];
        for (name, taken_by) in table {
            let taken: String =
                rules.iter().filter(|(_, rule)| rule.refuse(name).is_empty()).map(|(letter, _)| letter).collect();
            assert_eq!(taken, *taken_by, "{name}");
        }
    }

    #[test]
    fn refusals_speak_kubernetes() {
        assert_eq!(
            NameRule::Subdomain.refuse("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(NameRule::PathSegment.refuse("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(NameRule::Label.refuse(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(NameRule::Label.refuse("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn a_base_may_end_in_a_dash() {
        assert!(NameRule::Subdomain.refuse_base("job-").is_empty());
        assert!(NameRule::Subdomain.refuse_base("job").is_empty());
        assert!(!NameRule::Subdomain.refuse_base("Job-").is_empty());
        assert!(NameRule::PathSegment.refuse_base(".").is_empty());
    }
}
