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
    /// A remark: what holds although, or why the condition does not hold. Not for every caller: it may contain paths,
    /// addresses, and errors of the operating system.
    pub(super) note: Option<String>,
}

/// True if the answer has notes, for a caller who may see them.
pub(super) fn has_notes(check: Option<&str>, query: &[(String, String)], checks: &[Check]) -> bool {
    let is_long = check.is_some() || is_verbose(query) || checks.iter().any(|check| !check.passes);
    is_long && checks.iter().any(|check| check.note.is_some())
}

fn is_verbose(query: &[(String, String)]) -> bool {
    query.iter().any(|(name, _)| name == "verbose")
}

/// Returns the answer of a health endpoint: 200 or 500, and plain text. `check` selects a single check; returns `None`
/// if there is no such check. `shows_notes`: the caller may see the notes.
pub(super) fn health(
    endpoint: Health,
    check: Option<&str>,
    query: &[(String, String)],
    checks: &[Check],
    shows_notes: bool,
) -> Option<(u16, String)> {
    let endpoint = endpoint.name();
    let note = |check: &Check| check.note.clone().filter(|_| shows_notes);
    if let Some(name) = check {
        let check = checks.iter().find(|check| check.name == name)?;
        return Some(match check.passes {
            true => (200, "ok".to_owned()),
            false => {
                let reason = note(check).unwrap_or_else(|| format!("{name} is not well"));
                (500, format!("internal server error: {reason}\n"))
            }
        });
    }
    let excluded: Vec<&str> =
        query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str()).collect();
    let (mut text, mut well) = (String::new(), true);
    for check in checks {
        let name = &check.name;
        match (excluded.contains(&&**name), check.passes) {
            (true, _) => text.push_str(&format!("[+]{name} excluded: ok\n")),
            (false, true) => text.push_str(&format!("[+]{name} {}\n", note(check).as_deref().unwrap_or("ok"))),
            (false, false) => {
                text.push_str(&format!("[-]{name} failed: {}\n", note(check).as_deref().unwrap_or("reason withheld")));
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
    Some(match (well, is_verbose(query)) {
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
            health(Health::Readyz, None, &query, &checks, true).expect("an endpoint")
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
        assert_eq!(health(Health::Livez, Some("ping"), &[], &one, true), Some((200, "ok".to_owned())));
        assert_eq!(health(Health::Livez, Some("none"), &[], &one, true), None);
    }

    /// Goal: notes are for callers who may see them. Method: a check that fails and one that passes, each with a note, for
    /// both kinds of callers, together and alone.
    #[test]
    fn notes_are_withheld_from_callers_without_the_right() {
        let check =
            |name: &'static str, passes, note: &str| Check { name: name.into(), passes, note: Some(note.into()) };
        let checks = [check("upstream", true, "degraded"), check("storage", false, "/data is gone")];
        let answer = |name, shows| health(Health::Readyz, name, &[], &checks, shows).expect("a check").1;
        let shown = "[+]upstream degraded\n[-]storage failed: /data is gone\nreadyz check failed\n";
        let withheld = "[+]upstream ok\n[-]storage failed: reason withheld\nreadyz check failed\n";
        assert_eq!((answer(None, true), answer(None, false)), (shown.to_owned(), withheld.to_owned()));
        assert_eq!(answer(Some("storage"), true), "internal server error: /data is gone\n");
        assert_eq!(answer(Some("storage"), false), "internal server error: storage is not well\n");
        let has = |checks: &[Check], query: &str| has_notes(None, &[(query.to_owned(), String::new())], checks);
        assert!(has(&checks, "") && has(&checks[..1], "verbose") && !has(&checks[..1], ""));
    }
}
