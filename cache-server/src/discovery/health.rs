//! Health endpoints `/livez`, `/readyz` and `/healthz`, in plain text.
//!
//! Source: apiserver `server/healthz`.

use std::borrow::Cow;

use crate::route::Health;

/// One condition that a health endpoint reports.
#[derive(Debug, Clone)]
pub(super) struct Check {
    /// Name in `/readyz/{name}` and in verbose answers.
    pub(super) name: Cow<'static, str>,
    /// True if the condition holds.
    pub(super) passes: bool,
    /// A remark: what holds although, or why the condition does not hold.
    pub(super) note: Option<String>,
}

/// Returns the answer of a health endpoint: 200 or 500, and plain text. `check` selects a single check; returns `None`
/// if there is no such check.
pub(super) fn health(
    endpoint: Health,
    check: Option<&str>,
    query: &[(String, String)],
    checks: &[Check],
) -> Option<(u16, String)> {
    let endpoint = match endpoint {
        Health::Healthz => "healthz",
        Health::Livez => "livez",
        Health::Readyz => "readyz",
    };
    if let Some(name) = check {
        let check = checks.iter().find(|check| check.name == name)?;
        return Some(match check.passes {
            true => (200, "ok".to_owned()),
            false => (500, format!("internal server error: {name} is not well\n")),
        });
    }
    let excluded: Vec<&str> =
        query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str()).collect();
    let (mut text, mut well) = (String::new(), true);
    for Check { name, passes, note } in checks {
        match (excluded.contains(&&**name), passes) {
            (true, _) => text.push_str(&format!("[+]{name} excluded: ok\n")),
            (false, true) => text.push_str(&format!("[+]{name} {}\n", note.as_deref().unwrap_or("ok"))),
            (false, false) => {
                text.push_str(&format!("[-]{name} failed: {}\n", note.as_deref().unwrap_or("reason withheld")));
                well = false;
            }
        }
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|excluded| !checks.iter().any(|check| check.name == **excluded))
        .map(|excluded| format!("{excluded:?}"))
        .collect();
    if !unknown.is_empty() {
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(",")));
    }
    Some(match (well, query.iter().any(|(name, _)| name == "verbose")) {
        (false, _) => (500, format!("{text}{endpoint} check failed\n")),
        (true, true) => (200, format!("{text}{endpoint} check passed\n")),
        (true, false) => (200, "ok".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: status and text of health answers. Method: two checks, one failing or not, with several queries.
    #[test]
    fn health_is_short_unless_asked_or_failing() {
        let ask = |query: &[(&str, &str)], well: bool| {
            let query: Vec<(String, String)> =
                query.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let check = |name: &'static str, passes| Check { name: name.into(), passes, note: None };
            let checks = [check("ping", true), check("storage", well)];
            health(Health::Readyz, None, &query, &checks).expect("an endpoint")
        };
        assert_eq!(ask(&[], true), (200, "ok".to_owned()));
        assert_eq!(ask(&[("verbose", "")], true), (200, "[+]ping ok\n[+]storage ok\nreadyz check passed\n".to_owned()));
        assert_eq!(
            ask(&[], false),
            (500, "[+]ping ok\n[-]storage failed: reason withheld\nreadyz check failed\n".to_owned())
        );
        assert_eq!(ask(&[("exclude", "storage")], false).0, 200);
        assert_eq!(
            ask(&[("verbose", "1"), ("exclude", "zzz")], true).1,
            "[+]ping ok\n[+]storage ok\nwarn: some health checks cannot be excluded: no matches for \"zzz\"\nreadyz \
             check passed\n"
        );
        let one = [Check { name: "ping".into(), passes: true, note: None }];
        assert_eq!(health(Health::Livez, Some("ping"), &[], &one), Some((200, "ok".to_owned())));
        assert_eq!(health(Health::Livez, Some("none"), &[], &one), None);
    }
}
