//! Names of images, as far as the policy of pulls depends on them.
//!
//! Source: `ParseImageName` in `pkg/util/parsers/parsers.go`; distribution/reference `normalize.go`, `regexp.go`.

/// Longest path of an image at its registry.
const PATH_MAX: usize = 255;
/// Longest tag.
const TAG_MAX: usize = 128;
/// Part of the path of an image of Docker Hub without one.
const OFFICIAL: &str = "library/";

/// True if the image has the tag `latest`, or neither tag nor digest. False for a malformed name.
pub(super) fn is_latest(image: &str) -> bool {
    // The text of a digest alone.
    if image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return false;
    }
    let (domain, rest) = split_domain(image);
    let (named, digest) = match rest.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match named.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (named, None),
    };
    let is_of_hub = domain.is_none_or(|domain| ["docker.io", "index.docker.io"].contains(&domain));
    let official = if is_of_hub && !path.contains('/') { OFFICIAL } else { "" };
    let is_well_formed = domain.is_none_or(is_domain)
        && path.len() + official.len() <= PATH_MAX
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    is_well_formed && tag.map_or_else(|| digest.is_none(), |tag| tag == "latest")
}

/// Splits off the registry: a first part with a dot, a colon or a capital letter, or `localhost`.
fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address =
                !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
            return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => domain.split_once(':').map_or((domain, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// True for small letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(component: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(first), Some(last)) = (component.bytes().next(), component.bytes().last()) else { return false };
    is_inner(first)
        && is_inner(last)
        && component
            .split(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    digits.len() == length && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_tag_are_the_latest() {
        let digest = format!("@sha256:{}", "0a".repeat(32));
        for (image, expected) in [
            ("nginx".to_owned(), true),
            ("nginx:latest".to_owned(), true),
            ("nginx:1".to_owned(), false),
            ("localhost:5000/a/b".to_owned(), true),
            ("host.example/a:latest".to_owned(), true),
            (format!("nginx{digest}"), false),
            (format!("nginx:latest{digest}"), true),
            (String::new(), false),
            ("Nginx".to_owned(), false),
            ("nginx:".to_owned(), false),
            ("a//b".to_owned(), false),
            ("a/b_".to_owned(), false),
            ("a__b--c.d".to_owned(), true),
            ("a___b".to_owned(), false),
            ("[::1]:5000/a".to_owned(), true),
            ("[::1/a".to_owned(), false),
            ("0a".repeat(32), false),
            ("nginx@sha256:00".to_owned(), false),
        ] {
            assert_eq!(is_latest(&image), expected, "{image}");
        }
    }
}
