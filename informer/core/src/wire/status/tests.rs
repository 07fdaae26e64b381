//! Goal: a client draws the right conclusions from any error. Method: bodies of kube-apiserver and of others.

use super::*;

fn failure(rest: &str) -> String {
    format!(r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure",{rest}}}"#)
}

#[test]
fn relisting_is_decided_by_reason_and_then_by_code() {
    let read = |rest: &str| Status::read(failure(rest).as_bytes()).unwrap();
    for (rest, expired, too_large) in [
        (r#""reason":"Expired","code":410"#, true, false),
        (r#""reason":"Gone","code":410"#, true, false),
        (r#""reason":"Expired""#, true, false),
        (r#""code":410"#, true, false),
        (r#""reason":"Weird","code":410"#, true, false),
        (r#""reason":"NotFound","code":410"#, false, false),
        (r#""reason":"Timeout","code":504,"message":"Timeout: slow""#, false, false),
        // 1.19 and later, 1.17 to 1.18.5, before 1.17.
        (r#""details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#, false, true),
        (
            r#""reason":"Timeout","details":{"causes":[{"message":"Too large resource version"}]},"code":504"#,
            false,
            true,
        ),
        (
            r#""reason":"Timeout","message":"Timeout: Too large resource version: 9, current: 8","code":504"#,
            false,
            true,
        ),
        (r#""reason":"BadRequest","message":"Too large resource version","code":400"#, false, false),
    ] {
        let status = read(rest);
        assert_eq!((status.is_expired(), status.is_too_large_resource_version()), (expired, too_large), "{rest}");
    }
}

#[test]
fn waiting_is_asked_for_in_whole_seconds() {
    for (details, expected) in [
        (r#""details":{"retryAfterSeconds":7}"#, Some(Duration::from_secs(7))),
        (r#""details":{"retryAfterSeconds":0}"#, None),
        (r#""details":{"retryAfterSeconds":-3}"#, None),
        (r#""details":null"#, None),
        (r#""code":429"#, None),
    ] {
        assert_eq!(Status::read(failure(details).as_bytes()).unwrap().retry_after(), expected, "{details}");
    }
}

#[test]
fn reading_survives_foreign_and_broken_senders() {
    let odd = br#"{"kind":"Status","metadata":null,"message":7,"reason":null,"details":{"causes":[{"message":null}]},"code":-1,"x":[]}"#;
    let status = Status::read(odd).unwrap();
    assert_eq!((status.message.as_str(), status.code, status.causes().len()), ("", 0, 1));
    for text in ["", "{}", "[]", "null", "<html>", r#"{"items":[]}"#, r#"{"kind":"PodList"}"#, r#"{"kind":"Status""#] {
        assert_eq!(Status::read(text.as_bytes()), None, "{text}");
    }
    let unknown = Status::read(failure(r#""reason":"StorageReadError","code":500"#).as_bytes()).unwrap();
    assert_eq!(unknown.reason, Reason::Other("StorageReadError".into()));
    assert_eq!(unknown.to_string(), "");
}
