//! Goal: errors equal kube-apiserver's, byte for byte. Method: its recorded bodies.

use super::*;
use crate::go::quote;

fn json(status: &Status) -> String {
    let body = String::from_utf8(status.to_json()).unwrap();
    assert_eq!(Status::read(body.as_bytes()).as_ref(), Some(status), "reads back");
    body.strip_suffix('\n').unwrap().to_owned()
}

fn failure(rest: &str) -> String {
    format!(r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure",{rest}}}"#)
}

#[test]
fn errors_about_an_object_look_like_those_of_the_api_server() {
    for (status, expected) in [
        (
            Status::not_found("", "configmaps", "nope"),
            r#""message":"configmaps \"nope\" not found","reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404"#,
        ),
        (
            Status::not_found("apps", "deployments", "nope"),
            r#""message":"deployments.apps \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"apps","kind":"deployments"},"code":404"#,
        ),
        (
            Status::already_exists("", "configmaps", "w1"),
            r#""message":"configmaps \"w1\" already exists","reason":"AlreadyExists","details":{"name":"w1","kind":"configmaps"},"code":409"#,
        ),
        (
            Status::modified("", "configmaps", "w1"),
            r#""message":"Operation cannot be fulfilled on configmaps \"w1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"w1","kind":"configmaps"},"code":409"#,
        ),
        (
            Status::conflict("", "ConfigMap", "w1", "why"),
            r#""message":"Operation cannot be fulfilled on ConfigMap \"w1\": why","reason":"Conflict","details":{"name":"w1","kind":"ConfigMap"},"code":409"#,
        ),
        (
            Status::forbidden("", "pods", "x", "no"),
            r#""message":"pods \"x\" is forbidden: no","reason":"Forbidden","details":{"name":"x","kind":"pods"},"code":403"#,
        ),
        (
            Status::method_not_supported("", "componentstatuses", "watch"),
            r#""message":"watch is not supported on resources of kind \"componentstatuses\"","reason":"MethodNotAllowed","details":{"kind":"componentstatuses"},"code":405"#,
        ),
        (
            Status::server_timeout("", "pods", "list"),
            r#""message":"The list operation against pods could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"kind":"pods"},"code":500"#,
        ),
    ] {
        assert_eq!(json(&status), failure(expected));
        assert!(status.is_failure());
    }
}

#[test]
fn errors_about_a_request_look_like_those_of_the_api_server() {
    for (status, expected) in [
        (Status::bad_request("text"), r#""message":"text","reason":"BadRequest","code":400"#),
        (Status::unauthorized(), r#""message":"Unauthorized","reason":"Unauthorized","code":401"#),
        (Status::gone("text"), r#""message":"text","reason":"Gone","code":410"#),
        (
            Status::generic_not_found(),
            r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404"#,
        ),
        (
            Status::generic_method_not_allowed(),
            r#""message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405"#,
        ),
        (
            Status::generic_invalid(),
            r#""message":"the server rejected our request due to an error in our request","reason":"Invalid","details":{},"code":422"#,
        ),
        (
            Status::generic_unsupported_media_type(),
            r#""message":"415: Unsupported Media Type","reason":"UnsupportedMediaType","details":{},"code":415"#,
        ),
        (
            Status::unsupported_media_type(&["application/json", "application/yaml"]),
            r#""message":"the body of the request was in an unknown format - accepted media types include: application/json, application/yaml","reason":"UnsupportedMediaType","code":415"#,
        ),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            r#""message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406"#,
        ),
        (
            Status::request_entity_too_large("limit is 3145728"),
            r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413"#,
        ),
        (
            Status::too_many_requests("storage is (re)initializing", 2),
            r#""message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":2},"code":429"#,
        ),
        (
            Status::internal("boom"),
            r#""message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500"#,
        ),
        (
            Status::unmapped("resourceVersion should not be set on objects to be created"),
            r#""message":"resourceVersion should not be set on objects to be created","code":500"#,
        ),
        (Status::unavailable("text"), r#""message":"text","reason":"ServiceUnavailable","code":503"#),
    ] {
        assert_eq!(json(&status), failure(expected));
    }
}

#[test]
fn errors_about_a_position_look_like_those_of_the_api_server() {
    for (status, expected) in [
        (
            Status::expired_watch(5, 1200),
            r#""message":"too old resource version: 5 (1200)","reason":"Expired","code":410"#,
        ),
        (
            Status::expired_list(),
            r#""message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410"#,
        ),
        (
            Status::too_large_resource_version(99999, 84),
            r#""message":"Timeout: Too large resource version: 99999, current: 84","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504"#,
        ),
        (Status::timeout("why", 0), r#""message":"Timeout: why","reason":"Timeout","details":{},"code":504"#),
    ] {
        assert_eq!(json(&status), failure(expected));
    }
    let page = Status::expired_continue("TOKEN");
    assert_eq!(
        json(&page),
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"TOKEN"},"status":"Failure","message":"The provided "#,
            r#"continue parameter is too old to display a consistent list result. You can start a new list without the "#,
            r#"continue parameter, or use the continue token in this response to retrieve the remainder of the results. "#,
            r#"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "#,
            r#"deleted between the time the first chunk was returned and now may show up in the list.","#,
            r#""reason":"Expired","code":410}"#
        )
    );
}

/// Goal: an error costs no more than its request, and its body is short. Method: far more causes than the limit; those
/// beyond it need no text.
#[test]
fn invalid_lists_a_hundred_causes_and_counts_the_others() {
    let mut causes = Causes::default();
    let mut made = 0;
    for place in 0..200_000 {
        causes.push_with(|| {
            made += 1;
            StatusCause::duplicate(&format!("a[{place}]"), "1")
        });
    }
    let status = Status::invalid("", "Pod", "x", causes);
    assert_eq!((made, status.causes().len()), (100, 100));
    assert!(status.message.ends_with("a[99]: Duplicate value: 1, and 199900 more]"), "{}", status.message);
    let equal = Status::invalid("", "Pod", "x", vec![StatusCause::forbidden("a", "no"); 300]);
    assert_eq!(equal.message, "Pod \"x\" is invalid: [a: Forbidden: no, and 200 more]");
    let all = Status::invalid("", "Pod", "x", vec![StatusCause::forbidden("a", "no"); 100]);
    assert_eq!((&*all.message, all.causes().len()), ("Pod \"x\" is invalid: a: Forbidden: no", 100));
    let long = Status::invalid("", "Pod", "x", vec![StatusCause::forbidden("a", &"x".repeat(600_000)); 100]);
    assert_eq!(long.causes().len(), 2, "their texts are bounded together");
    assert!(long.message.ends_with("x, and 98 more]"));
}

#[test]
fn invalid_names_every_cause_and_says_each_once() {
    let required = StatusCause::required("metadata.name", "name or generateName is required");
    for (status, message, details) in [
        (
            Status::invalid("", "ConfigMap", "", vec![required]),
            r#"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"#,
            r#""kind":"ConfigMap","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]"#,
        ),
        (
            Status::invalid_options(
                "ListOptions",
                vec![
                    StatusCause::forbidden("a", "no"),
                    StatusCause::not_supported("a", "Bad", &["Exact", "NotOlderThan", ""]),
                    StatusCause::forbidden("a", "no"),
                ],
            ),
            r#"ListOptions.meta.k8s.io \"\" is invalid: [a: Forbidden: no, a: Unsupported value: \"Bad\": supported values: \"Exact\", \"NotOlderThan\", \"\"]"#,
            r#""group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: no","field":"a"},{"reason":"FieldValueNotSupported","message":"Unsupported value: \"Bad\": supported values: \"Exact\", \"NotOlderThan\", \"\"","field":"a"},{"reason":"FieldValueForbidden","message":"Forbidden: no","field":"a"}]"#,
        ),
        (
            Status::invalid(
                "cr.bar.com",
                "foos",
                "f1",
                vec![StatusCause::invalid("metadata.resourceVersion", "0", "must be specified for an update")],
            ),
            r#"foos.cr.bar.com \"f1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#,
            r#""name":"f1","group":"cr.bar.com","kind":"foos","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: 0: must be specified for an update","field":"metadata.resourceVersion"}]"#,
        ),
        (
            Status::invalid("", "Pod", "p", vec![StatusCause::duplicate("a", &quote("x"))]),
            r#"Pod \"p\" is invalid: a: Duplicate value: \"x\""#,
            r#""name":"p","kind":"Pod","causes":[{"reason":"FieldValueDuplicate","message":"Duplicate value: \"x\"","field":"a"}]"#,
        ),
        (Status::invalid("", "Pod", "p", vec![]), r#"Pod \"p\" is invalid"#, r#""name":"p","kind":"Pod""#),
    ] {
        let expected = format!(r#""message":"{message}","reason":"Invalid","details":{{{details}}},"code":422"#);
        assert_eq!(json(&status), failure(&expected));
    }
}

#[test]
fn a_delete_answers_success_without_a_code() {
    let status = Status::deleted("", "configmaps", "cm1", "u-1");
    assert_eq!(
        json(&status),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"cm1","kind":"configmaps","uid":"u-1"}}"#
    );
    assert!(!status.is_failure());
    assert_eq!(status.http_code(), 200);
}
