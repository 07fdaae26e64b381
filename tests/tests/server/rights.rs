//! The table of rights is one: its cases are different ones, and its check finds what a cache must never send.

use std::collections::BTreeSet;

use serde_json::json;
use tests::rights::{Expected, MARKER, RightsCaller, cases, world};

#[test]
fn cases_differ_and_cover_both_outcomes() {
    let cases = cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "each case has its own name");
    let grants: Vec<String> = cases.iter().flat_map(|case| &case.grants).map(tests::rights::Manifest::path).collect();
    assert_eq!(grants.iter().collect::<BTreeSet<_>>().len(), grants.len(), "each object is created once");
    let refused = cases.iter().filter(|case| matches!(case.expected, Expected::Refused(_))).count();
    assert!(refused > 40 && cases.len() - refused > 30, "{refused} of {} are refused", cases.len());
    assert!(cases.iter().filter(|case| case.then.is_some()).count() >= 5);
    assert!(cases.iter().any(|case| case.caller == RightsCaller::Anonymous));
}

#[test]
fn an_answer_is_allowed_with_its_objects_or_refused_without_any() {
    let list = json!({"items": world().iter().map(|manifest| &manifest.body).collect::<Vec<_>>()}).to_string();
    let allowed = |keys: &[&str]| Expected::Allowed(keys.iter().map(|&key| key.to_owned()).collect());
    let object = json!({"metadata": {"name": "a", "namespace": "n"}});
    let forms = [
        object.clone(),
        json!({"items": [object]}),
        json!({"rows": [{"cells": ["a"], "object": object}]}),
        json!({"type": "ADDED", "object": object}),
    ];
    for form in forms {
        assert_eq!(allowed(&["n/a"]).check(200, form.to_string().as_bytes()), Ok(()), "{form}");
        assert!(allowed(&["n/b"]).check(200, form.to_string().as_bytes()).is_err(), "{form}");
        assert!(allowed(&["n/a"]).check(403, form.to_string().as_bytes()).is_err(), "{form}");
        assert!(Expected::Refused(403).check(403, form.to_string().as_bytes()).is_err(), "{form}");
    }
    assert_eq!(allowed(&["rights-n1"]).check(200, list.as_bytes()), Ok(()));
    let refusal = |message: &str| json!({"kind": "Status", "code": 403, "message": message}).to_string();
    assert_eq!(Expected::Refused(403).check(403, refusal("no").as_bytes()), Ok(()));
    assert!(Expected::Refused(403).check(403, refusal(MARKER).as_bytes()).is_err(), "it contains an object");
    assert!(Expected::Refused(401).check(403, refusal("no").as_bytes()).is_err());
    assert!(Expected::Refused(403).check(403, b"").is_err());
}
