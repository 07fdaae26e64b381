//! Tests of skipped objects: the body continues, memory stays bounded, and their names are read.

use super::*;
use crate::object::Meta;

/// Formats the names of a skipped object in one line.
fn named(got: &Got) -> String {
    let Got::Skipped(skipped) = got else { return "frame".into() };
    let meta = skipped.meta();
    let kind = skipped.kind.map_or("ITEM", EventKind::as_str);
    format!("{kind} {} {} {} {} at {}", skipped.reason, meta.key(), meta.uid, meta.resource_version, skipped.at)
}

/// Goal: one bad object does not hide the others, and its owner can find it. Method: a watch and a list with an object
/// that is too large, too deep, or no object, between two others, with its names in front, behind, escaped and nested.
#[test]
fn an_object_that_cannot_be_framed_is_skipped_and_named() {
    let names = r#""name":"a","namespace":"d","uid":"u","resourceVersion":"7""#;
    let (large, deep) = (format!(r#""{}""#, "x".repeat(300)), "[".repeat(600) + &"]".repeat(600));
    let decoy = r#"{"metadata":{"name":"no"},"kind":"no","name":"no"}"#;
    let (too_large, too_deep) = ("larger than 200 bytes", "nested deeper than 512 levels");
    for (object, reason, found) in [
        (format!(r#"{{"metadata":{{{names}}},"spec":{large}}}"#), too_large, "d/a u 7"),
        (format!(r#"{{"spec":{large},"metadata":{{{names}}}}}"#), too_large, "d/a u 7"),
        (format!(r#"{{"spec":{decoy},"more":[{large}],"metadata":{{{names}}},"x":{decoy}}}"#), too_large, "d/a u 7"),
        (format!(r#"{{"metadata":{{"annotations":{{"name":{large}}},{names},"x":[]}}}}"#), too_large, "d/a u 7"),
        (format!(r#"{{"metadata":{{"cut":{large},{names}}}}}"#), too_large, "d/a u 7"),
        (format!(r#"{{"metadata":{{"cut":[{decoy}],{names},"cut":{large}}}}}"#), too_large, "d/a u 7"),
        (
            format!(r#"{{"x":{large},"metad\u0061ta":{{ "n\u0061me" : "\u0061" ,"resourceVersion":"7"}}}}"#),
            too_large,
            "a  7",
        ),
        (format!(r#"{{"metadata":{{"name":"first","name":"second"}},"x":{large}}}"#), too_large, "first  "),
        (format!(r#"{{"metadata":{{"name":{large},"uid":7,"resourceVersion":null}}}}"#), too_large, &"x".repeat(300)),
        (format!(r#"{{"metadata":{large}}}"#), too_large, "  "),
        (format!(r#"{{"spec":{deep},"metadata":{{{names}}}}}"#), too_deep, "d/a u 7"),
        (format!(r#"{{"metadata":{{"cut":{deep},{names}}}}}"#), too_deep, "d/a u 7"),
        ("null".into(), "no JSON object", "  "),
        ("-12.5".into(), "no JSON object", "  "),
        (r#""{\"metadata\":{}}""#.into(), "no JSON object", "  "),
        (format!("[{decoy}]"), "no JSON object", "  "),
        (deep.clone(), "no JSON object", "  "),
    ] {
        // Let objects reach the depth limit first.
        let object_bytes_max = if reason == too_deep { 1 << 20 } else { 200 };
        let found = if found.len() == 300 { format!("{found}  ") } else { found.to_owned() };
        let body = format!(
            r#"{{"type":"ADDED","object":{{}}}}{{"type":"MODIFIED","object":{object}}}{{"type":"DELETED","object":{{}}}}"#
        );
        let config = FramerConfig { object_bytes_max, ..watch(&["metadata.cut"]) };
        let (got, end) = frames(&config, [body.as_bytes()]);
        assert_eq!(named(&got[1]), format!("MODIFIED {reason} {found} at 56"), "{object}");
        assert_eq!((got.len(), named(&got[2]).as_str(), end), (3, "frame", Ok(())), "{object}");
        assert_eq!(frames(&config, body.as_bytes().chunks(1)), (got, end), "byte by byte");
        let body = format!(r#"{{"items":[{{}},{object} ,{{}}],"metadata":{{"resourceVersion":"9"}}}}"#);
        let config = FramerConfig { object_bytes_max, ..with_type(list(&["metadata.cut"])) };
        let (got, end) = frames(&config, [body.as_bytes()]);
        assert_eq!(named(&got[1]), format!("ITEM {reason} {found} at 13"), "{object}");
        let rest = [item(r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#), list_end("9")];
        assert_eq!((&got[2..], end), (&rest[..], Ok(())), "{object}");
        assert_eq!(frames(&config, body.as_bytes().chunks(1)), (got, end), "byte by byte");
    }
}

#[test]
fn a_skipped_object_can_be_written_with_its_names_alone() {
    let names = r#""name":"\"é","resourceVersion":"7""#;
    let body = format!(r#"{{"object":{{"spec":"long","kind":"Pod","metadata":{{{names}}}}},"type":"DELETED"}}"#);
    let (got, _) = check(&FramerConfig { object_bytes_max: 10, ..watch(&[]) }, &body);
    let [Got::Skipped(skipped)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(skipped.json(), format!(r#"{{"kind":"Pod","metadata":{{{names}}}}}"#));
    assert_eq!(Meta::read(skipped.json().as_bytes()).unwrap().key(), skipped.meta().key());
}

/// Goal: memory does not depend on the size of a skipped object. Method: objects of 40 times the limit, with the length
/// in one string, in a cut path, in a key, in names, and in many members.
#[test]
fn an_object_of_any_size_is_skipped_with_bounded_memory() {
    let limit = 256 << 10;
    let text = vec![b'x'; 64 << 10];
    let members = br#""name":{"metadata":"x"},"#.repeat(2 << 10);
    for (cut, head, chunk, tail) in [
        ("", &br#"{"type":"ADDED","object":{"a":""#[..], &text, &b"\"}}"[..]),
        ("a", br#"{"type":"ADDED","object":{"a":""#, &text, b"\"}}"),
        ("", br#"{"type":"ADDED","object":{"a"#, &text, b"\":1}}"),
        ("", br#"{"type":"ADDED","object":{"metadata":{"name":""#, &text, b"\"}}}"),
        ("", br#"{"type":"ADDED","object":{"metadata":{"#, &members, br#""x":1}}}"#),
        ("", br#"{"type":"ADDED","object":{"#, &members, br#""metadata":{"name":"a"}}}"#),
    ] {
        let mut framer = Framer::new(FramerConfig { object_bytes_max: limit, ..watch(&[cut]) });
        assert_eq!(framer.next(&mut &head[..]), Ok(None));
        let (mut sent, mut most) = (0, 0);
        while sent < 40 * limit {
            assert_eq!(framer.next(&mut &chunk[..]), Ok(None));
            sent += chunk.len();
            most = most.max(framer.bytes_held());
        }
        assert!(most <= limit + ENVELOPE_BYTES_MAX, "{most} held");
        assert!(framer.bytes_held() <= 2 * ENVELOPE_BYTES_MAX, "{} held at the end", framer.bytes_held());
        let found = framer.next(&mut &tail[..]);
        let Ok(Some(Frame::Skipped(skipped))) = found else { panic!("{found:?}") };
        assert_eq!(skipped.reason, SkipReason::TooLarge { limit });
        assert_eq!(framer.finish(), Ok(()));
    }
}

/// Goal: any object that kube-apiserver can store is skipped. Method: Go's limit of 10,000 levels, and more.
#[test]
fn nesting_has_a_limit() {
    let deep = |levels: usize| {
        let value = "[".repeat(levels - 2) + &"]".repeat(levels - 2);
        format!(r#"{{"type":"ADDED","object":{{"a":{value}}}}}{{"type":"ADDED","object":{{}}}}"#)
    };
    for cut in ["", "a"] {
        let skipped = |levels: usize| {
            let (got, end) = frames(&watch(&[cut]), deep(levels).as_bytes().chunks(7));
            let reasons: Vec<_> = got.iter().map(|got| matches!(got, Got::Skipped(_))).collect();
            (reasons, end)
        };
        assert_eq!(skipped(512), (vec![false, false], Ok(())));
        assert_eq!(skipped(513), (vec![true, false], Ok(())));
        assert_eq!(skipped(10_001), (vec![true, false], Ok(())));
        assert_eq!(skipped(10_048), (vec![true, false], Ok(())));
        assert_eq!(skipped(10_049), (vec![], Err(FrameError::TooDeep { limit: 10_048 })));
    }
    // The higher limit for a skipped object does not apply to the objects after it.
    let (whole, too_deep) = ("{}", "[".repeat(600) + &"]".repeat(600));
    let items = [&too_deep, whole, &format!(r#"{{"a":{too_deep}}}"#), whole].join(",");
    let (got, end) = frames(&list(&[]), [format!("{{\"items\":[{items}]}}").as_bytes()]);
    let skipped: Vec<_> = got.iter().map(|got| matches!(got, Got::Skipped(_))).collect();
    assert_eq!((skipped, end), (vec![true, false, true, false, false], Ok(())));
    let endless = b"{\"a\":".repeat(1 << 16);
    assert_eq!(frames(&watch(&[]), [&endless[..]]).1, Err(FrameError::TooDeep { limit: 512 }), "around objects");
}
