//! Order of API versions: stable before beta before alpha, higher numbers before lower ones, other names last.
//!
//! Source: apimachinery `pkg/version/helpers.go`.

use std::cmp::Ordering;

/// Compares two versions such as `v1` and `v1beta2`; the preferred one is greater.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Names that are not versions are in alphabetical order.
        (None, None) => other.cmp(one),
    }
}

/// Stability, major and minor number of a version.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let major = number(&rest[..end])?;
    let (stability, minor) = match &rest[end..] {
        "" => return Some((2, major, 0)),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (None, Some(minor)) => (0, minor),
            (None, None) => return None,
        },
    };
    Some((stability, major, number(minor)?))
}

/// Parses digits without a leading zero.
fn number(digits: &str) -> Option<u32> {
    let ordinary = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    ordinary.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_strangers_last() {
        let ordered = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
            "v1gamma1",
            "v1beta",
        ];
        let mut versions = ordered;
        versions.reverse();
        versions.sort_by(|one, other| compare(other, one));
        assert_eq!(versions[..8], ordered[..8]);
        assert_eq!(versions[8..], ["foo1", "foo10", "v01", "v1beta", "v1gamma1"]);
    }
}
