//! Tables of options and kube-apiserver's answers.

use super::*;

fn read(query: &str) -> Result<ListOptions, Status> {
    ListOptions::read(&Query::parse(Some(query)))
}

#[test]
fn what_cannot_be_read_is_refused_in_gos_words() {
    for (query, expected) in [
        ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ("limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        ("watch=1&limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        ("timeoutSeconds=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        ("limit=99999999999999999999", r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#),
        ("labelSelector=a,", "found '', expected: identifier after ','"),
        ("labelSelector=a%20in%20b", "unable to parse requirement: found 'b' expected: '('"),
        ("labelSelector=!", "unable to parse requirement: found '', expected: identifier"),
        ("fieldSelector=foo", "invalid selector: 'foo'; can't understand 'foo'"),
        // Unreadable options are reported before invalid combinations.
        ("resourceVersionMatch=Bad&limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
    ] {
        let status = read(query).expect_err(query);
        assert_eq!(status, Status::bad_request(expected), "{query}");
    }
    assert_eq!(read("limit=-3&limit=x").map(|options| options.limit), Ok(-3));
}

const V1: &str = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
const V2: &str = "Forbidden: resourceVersionMatch is forbidden when continue is provided";
const V3: &str = r#"Unsupported value: "Bad": supported values: "Exact", "NotOlderThan", """#;
const V4: &str = r#"Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
const V5: &str = "Forbidden: sendInitialEvents is forbidden for list";
const W1: &str = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
const W3: &str = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
const W4: &str = r#"Unsupported value: "Exact": supported values: "NotOlderThan""#;

/// Goal: the validation rules of list and watch. Method: queries, and the texts of the causes in order.
#[test]
fn options_that_do_not_go_together_are_all_named() {
    for (query, expected) in [
        ("", &[][..]),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", &[]),
        ("resourceVersion=5&resourceVersionMatch=Exact", &[]),
        ("resourceVersion=0&continue=x", &[]),
        ("resourceVersionMatch=NotOlderThan", &[V1]),
        ("resourceVersion=5&resourceVersionMatch=Exact&continue=x", &[V2]),
        ("resourceVersion=5&resourceVersionMatch=Bad", &[V3]),
        ("resourceVersionMatch=Bad&continue=x", &[V1, V2, V3]),
        ("resourceVersion=0&resourceVersionMatch=Exact", &[V4]),
        ("sendInitialEvents=true", &[V5]),
        ("sendInitialEvents=false", &[V5]),
        ("watch=0&sendInitialEvents=false", &[V5]),
        ("resourceVersionMatch=Exact&sendInitialEvents", &[V1, V5]),
        ("watch=1", &[]),
        ("watch=1&resourceVersion=5&continue=x&limit=5", &[]),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", &[]),
        ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0", &[]),
        ("watch=1&sendInitialEvents=true", &[W1]),
        ("watch=1&sendInitialEvents=false&resourceVersion=1", &[W1]),
        ("watch=1&resourceVersion=1&resourceVersionMatch=Exact&sendInitialEvents=true", &[W1, W4]),
        ("watch=1&resourceVersionMatch=NotOlderThan", &[W3]),
        ("watch=1&resourceVersionMatch=Exact&continue=x", &[W3, W4, V2]),
        ("watch=1&sendInitialEvents=1&resourceVersionMatch=Exact&continue=x", &[W1, W4, V2]),
        ("watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x", &[V2]),
    ] {
        let texts = match read(query) {
            Ok(_) => Vec::new(),
            Err(status) => status.causes().iter().map(|cause| cause.message.clone()).collect(),
        };
        assert_eq!(texts, expected, "{query}");
    }
}

#[test]
fn a_refusal_looks_like_that_of_the_api_server() {
    for (query, expected) in [
        (
            "resourceVersionMatch=NotOlderThan",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided","field":"resourceVersionMatch"}]},"code":422}"#,
        ),
        (
            "watch=1&resourceVersion=1&resourceVersionMatch=Exact&sendInitialEvents=true",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan","field":"resourceVersionMatch"},{"reason":"FieldValueNotSupported","message":"Unsupported value: \"Exact\": supported values: \"NotOlderThan\"","field":"resourceVersionMatch"}]},"code":422}"#,
        ),
    ] {
        let status = read(query).expect_err(query);
        assert_eq!(String::from_utf8(status.to_json()).unwrap().trim_end(), expected, "{query}");
    }
}

#[test]
fn a_watch_from_nothing_becomes_a_watch_list() {
    for (query, expected) in [
        ("watch=1", (Some(true), NOT_OLDER_THAN)),
        ("watch=1&resourceVersion=0", (Some(true), NOT_OLDER_THAN)),
        ("watch=1&resourceVersion=7", (None, "")),
        ("watch=1&resourceVersion=00", (None, "")),
        ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", (Some(false), NOT_OLDER_THAN)),
        ("watch=0", (None, "")),
    ] {
        let options = read(query).expect(query);
        assert_eq!((options.send_initial_events, &*options.resource_version_match), expected, "{query}");
    }
}

#[test]
fn resource_versions_are_unsigned_decimals() {
    for (text, expected) in [("05", 5), ("0", 0), ("18446744073709551615", u64::MAX)] {
        assert_eq!(resource_version(text), Ok(expected));
    }
    for (text, why) in [
        ("abc", "invalid syntax"),
        ("-1", "invalid syntax"),
        ("+5", "invalid syntax"),
        ("1.5", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("99999999999999999999", "value out of range"),
    ] {
        let expected =
            format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {why}");
        assert_eq!(resource_version(text), Err(expected));
    }
}

#[test]
fn a_name_alone_is_a_read_of_one_object() {
    for (namespaced, namespace, selector, expected) in [
        (true, Some("ns"), "metadata.name=a", true),
        (true, None, "metadata.name=a", false),
        (true, None, "metadata.name=a,metadata.namespace=ns", true),
        (true, Some("ns"), "metadata.name=a,metadata.name=b", false),
        (true, Some("ns"), "metadata.name!=a", false),
        (true, Some("ns"), "metadata.name=a/b", false),
        (true, Some("ns"), "metadata.name=", false),
        (true, Some("ns"), "status.phase=Running", false),
        (false, None, "metadata.name=a", true),
    ] {
        let options = read(&format!("fieldSelector={selector}")).expect(selector);
        assert_eq!(options.names_one(namespaced, namespace), expected, "{namespace:?} {selector}");
    }
}
