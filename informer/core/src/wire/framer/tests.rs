//! Tests of the framer: any document in any chunks gives the same frames, equal to a full decoder's, within the limits.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;

mod skipping;

use super::*;
use crate::limits::FRAMER_KEEP_BYTES;

/// One frame, owned.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Event(EventKind, String),
    Item(String),
    ListEnd(ListEnd),
    Status(String),
    Skipped(SkippedObject),
}

type Outcome = (Vec<Got>, Result<(), FrameError>);

/// Returns all frames of a body sent in `chunks`, and its end.
fn frames<'a>(config: &FramerConfig, chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut framer = Framer::new(config.clone());
    let mut got = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for mut chunk in chunks {
        loop {
            match framer.next(&mut chunk) {
                Ok(None) => break assert!(chunk.is_empty(), "no frame, but bytes left"),
                Ok(Some(Frame::Event { kind, object })) => got.push(Got::Event(kind, text(object))),
                Ok(Some(Frame::Item(object))) => got.push(Got::Item(text(object))),
                Ok(Some(Frame::ListEnd(end))) => got.push(Got::ListEnd(end)),
                Ok(Some(Frame::Skipped(skipped))) => got.push(Got::Skipped(skipped)),
                Ok(Some(Frame::Status(status))) => got.push(Got::Status(text(status))),
                Err(error) => {
                    assert_eq!(framer.next(&mut &b"{}"[..]), Err(error), "errors repeat");
                    assert_eq!(framer.finish(), Err(error), "errors repeat");
                    assert_eq!(framer.bytes_held(), 0, "errors hold nothing");
                    return (got, Err(error));
                }
            }
        }
    }
    let end = framer.finish();
    (got, end)
}

/// Returns the frames of `body`, after checking that single bytes and any two chunks give the same frames.
fn check(config: &FramerConfig, body: &str) -> Outcome {
    let body = body.as_bytes();
    let whole = frames(config, [body]);
    assert_eq!(frames(config, body.chunks(1)), whole, "byte by byte");
    for cut in 0..=body.len() {
        let (left, right) = body.split_at(cut);
        assert_eq!(frames(config, [left, right]), whole, "cut at {cut}");
    }
    whole
}

fn watch(cut: &[&str]) -> FramerConfig {
    let cut = cut.iter().map(ToString::to_string).collect();
    FramerConfig { cut, ..FramerConfig::new(Shape::Watch) }
}

fn list(cut: &[&str]) -> FramerConfig {
    FramerConfig { shape: Shape::List, ..watch(cut) }
}

fn with_type(config: FramerConfig) -> FramerConfig {
    let type_meta = TypeMeta { api_version: "apps/v1".into(), kind: "Deployment".into() };
    FramerConfig { type_meta: Some(type_meta), ..config }
}

fn event(kind: EventKind, object: &str) -> Got {
    Got::Event(kind, object.to_owned())
}

fn item(object: &str) -> Got {
    Got::Item(object.to_owned())
}

fn list_end(resource_version: &str) -> Got {
    Got::ListEnd(ListEnd { resource_version: resource_version.into(), ..ListEnd::default() })
}

#[test]
fn a_watch_becomes_events() {
    use EventKind::{Added, Bookmark, Deleted, Error, Modified, Other};
    let body = concat!(
        "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n{\"type\":\"MODIFIED\",\"object\":{}}\r\n\n",
        " { \"object\" : { \"b\" : [ 1 , \"}\\\"{\" ] } , \"type\" : \"DELETED\" } ",
        "{\"type\":\"BOOKMARK\",\"more\":[{\"object\":{}}],\"object\":{\"c\":{\"object\":{}}}}",
        "{\"t\\u0079pe\":\"ERR\\u004FR\",\"\\u006fbject\":{\"kind\":\"Status\"}}",
        "{\"type\":\"RENAMED\",\"object\":{}}",
    );
    let expected = [
        event(Added, r#"{"a":1}"#),
        event(Modified, "{}"),
        event(Deleted, r#"{ "b" : [ 1 , "}\"{" ] }"#),
        event(Bookmark, r#"{"c":{"object":{}}}"#),
        event(Error, r#"{"kind":"Status"}"#),
        event(Other, "{}"),
    ];
    assert_eq!(check(&watch(&[]), body), (expected.to_vec(), Ok(())));
    assert_eq!(check(&watch(&[]), ""), (vec![], Ok(())));
    assert_eq!(check(&watch(&[]), " \n"), (vec![], Ok(())));
}

#[test]
fn a_list_becomes_items_in_any_member_order() {
    let kind = r#""kind":"PodList","apiVersion":"v1""#;
    let meta = r#""metadata":{"resourceVersion":"12","continue":"a\u0062c","remainingItemCount":7}"#;
    let items = r#""items":[{"a":1},{ "b":2 }]"#;
    let spaced = r#""i\u0074ems" : [ {"a":1} , { "b":2 } ] "#;
    let end = ListEnd { resource_version: "12".into(), continue_token: Some("abc".into()), remaining: Some(7) };
    let typed = |kind: &str| {
        let head = |rest| format!("{{{kind},{rest}");
        vec![Got::Item(head(r#""a":1}"#)), Got::Item(head(r#" "b":2 }"#)), Got::ListEnd(end.clone())]
    };
    let (own, given) = (kind.replace("List", ""), r#""kind":"Deployment","apiVersion":"apps/v1""#);
    for (members, expected) in [
        ([kind, meta, items], typed(&own)),
        ([meta, kind, items], typed(&own)),
        ([kind, spaced, meta], typed(&own)),
        ([items, kind, meta], typed(given)),
        ([meta, spaced, kind], typed(given)),
    ] {
        let body = format!("{{{}}}\n", members.join(","));
        assert_eq!(check(&with_type(list(&[])), &body), (expected, Ok(())), "{body}");
    }
    let untyped = vec![item(r#"{"a":1}"#), item(r#"{ "b":2 }"#), Got::ListEnd(end.clone())];
    assert_eq!(check(&list(&[]), &format!("{{{items},{meta}}}")), (untyped, Ok(())));
}

#[test]
fn lists_without_items_end() {
    for (body, end) in [
        (r#"{"kind":"PodList","metadata":{"resourceVersion":"3"},"items":[]}"#, list_end("3")),
        (r#"{"items":[ ],"metadata":{"resourceVersion":"3","continue":""}} "#, list_end("3")),
        (r#"{"items":null,"metadata":{"resourceVersion":"3","remainingItemCount":null}}"#, list_end("3")),
        (r#"{"items": null }"#, list_end("")),
        (r#"{"items":[],"metadata":null}"#, list_end("")),
        (r#"{"items":[],"metadata":{"resourceVersion":null,"remainingItemCount":-1}}"#, list_end("")),
    ] {
        assert_eq!(check(&list(&[]), body), (vec![end], Ok(())), "{body}");
    }
}

#[test]
fn items_get_the_type_they_lack_and_keep_the_one_they_have() {
    let body = |item: &str| format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{item}],"metadata":{{}}}}"#);
    for (sent, framed) in [
        (r#"{}"#, r#"{"kind":"Pod","apiVersion":"v1"}"#),
        (r#"{ }"#, r#"{"kind":"Pod","apiVersion":"v1" }"#),
        (r#"{"a":{"kind":1}}"#, r#"{"kind":"Pod","apiVersion":"v1","a":{"kind":1}}"#),
        (r#"{"kind":"X","apiVersion":"y","a":1}"#, r#"{"kind":"X","apiVersion":"y","a":1}"#),
        (r#"{"a":1,"apiV\u0065rsion":"y","kind":"X"}"#, r#"{"a":1,"apiV\u0065rsion":"y","kind":"X"}"#),
        (r#"{"kind":"X","a":1}"#, r#"{"apiVersion":"v1","kind":"X","a":1}"#),
        (r#"{"apiVersion":"y","a":1}"#, r#"{"kind":"Pod","apiVersion":"y","a":1}"#),
        (r#"{"cut":1}"#, r#"{"kind":"Pod","apiVersion":"v1"}"#),
        (r#"{"cut":1,"a":2}"#, r#"{"kind":"Pod","apiVersion":"v1","a":2}"#),
    ] {
        let expected = (vec![item(framed), list_end("")], Ok(()));
        assert_eq!(check(&list(&["cut"]), &body(sent)), expected, "{sent}");
    }
    // A list without its items' type uses the configured type, or leaves items unchanged.
    let nameless = r#"{"kind":"List","apiVersion":"v1","items":[{}]}"#;
    let given = vec![item(r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#), list_end("")];
    assert_eq!(check(&with_type(list(&[])), nameless), (given, Ok(())));
    assert_eq!(check(&list(&[]), nameless), (vec![item("{}"), list_end("")], Ok(())));
}

#[test]
fn both_strategies_yield_identical_bytes() {
    let rest = r#""metadata":{"name":"a","managedFields":[{"x":1}]},"spec":{}}"#;
    let watched = format!(r#"{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1",{rest}}}"#);
    let listed = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{{{rest}]}}"#);
    let object = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
    assert_eq!(check(&watch(&[MANAGED_FIELDS]), &watched).0, [event(EventKind::Added, object)]);
    assert_eq!(check(&list(&[MANAGED_FIELDS]), &listed).0[0], item(object));
}

#[test]
fn cuts_leave_valid_json_wherever_they_are() {
    let paths = &["m.x", "m.y", "m.deep.er", "m.dotted.key/a", "gone"];
    for (sent, retained) in [
        (r#"{"m":{"x":[1,{"y":2}],"a":1,"b":2}}"#, r#"{"m":{"a":1,"b":2}}"#),
        (r#"{"m":{"a":1,"x":"}","b":2}}"#, r#"{"m":{"a":1,"b":2}}"#),
        (r#"{"m":{"a":1,"b":2,"x":null}}"#, r#"{"m":{"a":1,"b":2}}"#),
        (r#"{"m":{"x":{"z":[]}}}"#, r#"{"m":{}}"#),
        (r#"{"m":{"x":1,"y":2}}"#, r#"{"m":{}}"#),
        (r#"{"m":{"x":1,"y":2,"a":3}}"#, r#"{"m":{"a":3}}"#),
        (r#"{"m":{"a":0,"x":1,"y":2,"b":3}}"#, r#"{"m":{"a":0,"b":3}}"#),
        (r#"{"m":{"x":1,"a":2,"y":3}}"#, r#"{"m":{"a":2}}"#),
        (r#"{"m" : { "x" : 1 , "a" : 2 , "y" : 3 } }"#, r#"{"m" : { "a" : 2  } }"#),
        (r#"{ "gone" : 1 }"#, "{}"),
        (r#"{"gone":1,"gone":2,"a":1}"#, r#"{"a":1}"#),
        (r#"{"m":{"\u0078":1,"a":2}}"#, r#"{"m":{"a":2}}"#),
        (r#"{"m":{"deep":{"er":1,"est":2},"er":3}}"#, r#"{"m":{"deep":{"est":2},"er":3}}"#),
        (r#"{"m":{"dotted":{"key/a":1,"b":2},"dotted.key/a":3}}"#, r#"{"m":{"dotted":{"b":2}}}"#),
        (r#"{"m":{"deep":[{"er":1}]},"x":1}"#, r#"{"m":{"deep":[{"er":1}]},"x":1}"#),
        (r#"{"m":[{"x":1}],"n":{"m":{"x":1}}}"#, r#"{"m":[{"x":1}],"n":{"m":{"x":1}}}"#),
        (r#"{"m":5,"n":1}"#, r#"{"m":5,"n":1}"#),
        (r#"{"m":"x","gone":{"m":{}}}"#, r#"{"m":"x"}"#),
        (r#"{"m":{"x\"":1,"xx":2,"":3}}"#, r#"{"m":{"x\"":1,"xx":2,"":3}}"#),
    ] {
        serde_json::from_str::<Value>(retained).unwrap();
        let body = format!(r#"{{"object":{sent},"type":"ADDED"}}"#);
        assert_eq!(check(&watch(paths), &body), (vec![event(EventKind::Added, retained)], Ok(())), "{sent}");
    }
}

/// Goal: cut paths never remove members that the protocol needs. Method: cut the annotation that ends the initial
/// state, and members of a Status that some types have too.
#[test]
fn bookmarks_and_errors_are_never_cut() {
    let (annotated, status) =
        (r#"{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}"#, r#"{"reason":"Expired","code":410}"#);
    let body = format!(
        r#"{{"type":"ADDED","object":{annotated}}}{{"type":"BOOKMARK","object":{annotated}}}{{"type":"ERROR","object":{status}}}"#
    );
    let expected = vec![
        event(EventKind::Added, r#"{"metadata":{}}"#),
        event(EventKind::Bookmark, annotated),
        event(EventKind::Error, status),
    ];
    assert_eq!(check(&watch(&["metadata.annotations", "reason"]), &body), (expected, Ok(())));
}

#[test]
fn a_status_in_place_of_a_body_is_handed_out() {
    let status = r#"{"apiVersion":"v1","code":410,"details":{"causes":[]},"kind":"Status","metadata":{}}"#;
    for config in [watch(&[MANAGED_FIELDS]), list(&[])] {
        assert_eq!(check(&config, &format!(" {status}\n")), (vec![Got::Status(status.into())], Ok(())));
    }
}

#[test]
fn what_is_not_json_is_told_by_its_first_byte() {
    for (body, begins) in [
        ("<!doctype html><p>502</p>", ForeignBody::Markup),
        ("\n <html>", ForeignBody::Markup),
        ("upstream connect error", ForeignBody::Text),
        ("[{}]", ForeignBody::OtherJson),
        ("\"x\"", ForeignBody::OtherJson),
        ("\u{1f}\u{8b}", ForeignBody::Gzip),
        ("\0\0\0\u{1}k8s\0", ForeignBody::Binary),
    ] {
        for config in [watch(&[]), list(&[])] {
            assert_eq!(check(&config, body), (vec![], Err(FrameError::NotJson { begins })), "{body}");
        }
    }
}

#[test]
fn garbage_is_refused_where_it_begins() {
    let malformed = |at| FrameError::Malformed { at };
    let unexpected = |at| FrameError::Unexpected { at };
    for (config, body, error) in [
        (watch(&[]), r#"{"type":"ADDED","object":{"a":1]}"#, malformed(31)),
        (watch(&[]), r#"{"type":"ADDED","object":{"a":1,}}"#, malformed(32)),
        (watch(&[]), r#"{"type":"ADDED","object":{"a" 1}}"#, malformed(30)),
        (watch(&[]), r#"{"type":"ADDED","object":{"a":<}}"#, malformed(30)),
        (watch(&["a"]), r#"{"type":"ADDED","object":{"a":1 2}}"#, malformed(32)),
        (watch(&["a"]), r#"{"type":"ADDED","object":{"a":1,,"b":2}}"#, malformed(32)),
        (watch(&[]), " \n{\"type\":\"ADDED\" <html>", malformed(18)),
        (watch(&[]), r#"{"type":"ADDED","object":<}"#, malformed(25)),
        (watch(&[]), r#"{"type":"ADDED","object":[{}}"#, malformed(28)),
        (watch(&[]), r#"{"type":"ADDED","object":{},"object":{}}"#, unexpected(37)),
        (watch(&[]), r#"{"type":7,"object":{}}"#, unexpected(0)),
        (watch(&[]), r#" {"object":{}}"#, unexpected(1)),
        (watch(&[]), r#"{"type":"ADDED"}"#, unexpected(0)),
        (list(&[]), r#"{}"#, unexpected(0)),
        (list(&[]), r#"{"kind":"PodList","metadata":{"resourceVersion":"1"}}"#, unexpected(0)),
        (list(&[]), r#"{"items":{}}"#, unexpected(9)),
        (list(&[]), r#"{"items":[],"items":[]}"#, unexpected(20)),
        (list(&[]), r#"{"items":null,"items":[]}"#, unexpected(22)),
        (list(&[]), r#"{"items":nil}"#, unexpected(0)),
        (list(&[]), r#"{"items":[],"metadata":[]}"#, unexpected(0)),
        (list(&[]), r#"{"items":[],"metadata":{"resourceVersion":5}}"#, unexpected(0)),
        (list(&[]), r#"{"items":[],"metadata":{"continue":5}}"#, unexpected(0)),
        (list(&[]), r#"{"items":[<]}"#, malformed(10)),
    ] {
        assert_eq!(check(&config, body), (vec![], Err(error)), "{body}");
    }
    for (body, error) in [(r#"{"items":[{},]}"#, malformed(13)), (r#"{"items":[{} {}]}"#, malformed(13))] {
        assert_eq!(check(&list(&[]), body), (vec![item("{}")], Err(error)), "{body}");
    }
}

#[test]
fn nothing_may_follow_a_list_but_white_space() {
    let whole = (vec![list_end("")], Ok(()));
    assert_eq!(check(&list(&[]), "{\"items\":[]}\n\r\t "), whole);
    for rest in ["{\"items\":[]}", "<", "]", "\0"] {
        let expected = (whole.0.clone(), Err(FrameError::Trailing { at: 13 }));
        assert_eq!(check(&list(&[]), &format!("{{\"items\":[]}} {rest}")), expected, "{rest}");
    }
}

#[test]
fn a_body_cut_short_is_truncated_and_makes_nothing_up() {
    let event = r#"{"object":{"m":{"x":[1],"a":"\"","b":-1.5e3}},"type":"ADDED"}"#;
    let items = r#"{"items":[{"m":{"a":"\\"}},{"m":{"x":1}}],"metadata":{"resourceVersion":"1"}}"#;
    for (config, body) in [(watch(&["m.x"]), event), (list(&["m.x"]), items), (with_type(list(&[])), items)] {
        let (whole, end) = check(&config, body);
        assert_eq!(end, Ok(()));
        for cut in 1..body.len() {
            let (got, end) = frames(&config, [&body.as_bytes()[..cut]]);
            assert_eq!(end, Err(FrameError::Truncated { after: cut as u64 }), "cut at {cut}");
            assert_eq!(got, whole[..got.len()], "cut at {cut}");
            assert!(got.len() < whole.len(), "cut at {cut}");
        }
    }
    assert_eq!(check(&list(&[]), " "), (vec![], Err(FrameError::Truncated { after: 1 })));
}

#[test]
fn an_object_may_be_as_large_as_the_limit_and_no_larger() {
    for (config, sent, ok) in [
        (watch(&[]), r#"{"a":"12345678"}"#, true),
        (watch(&[]), r#"{"a":"123456789"}"#, false),
        (watch(&["a"]), r#"{"a":"12345678"}"#, true),
        // Cut bytes count as well.
        (watch(&["a"]), r#"{"a":"123456789"}"#, false),
        (watch(&["a"]), r#"{"a":  1,      "b":2}"#, false),
    ] {
        let config = FramerConfig { object_bytes_max: 16, ..config };
        let (got, end) = check(&config, &format!(r#"{{"type":"ADDED","object":{sent}}}"#));
        let is_whole = matches!(&got[..], [Got::Event(EventKind::Added, _)]);
        let too_large = SkipReason::TooLarge { limit: 16 };
        let is_skipped = matches!(&got[..], [Got::Skipped(skipped)] if skipped.reason == too_large && skipped.at == 25);
        assert_eq!((is_whole, is_skipped, end), (ok, !ok, Ok(())), "{sent}");
    }
}

#[test]
fn an_object_of_any_size_is_framed_where_the_limit_is_the_largest_number() {
    let config = FramerConfig { object_bytes_max: usize::MAX, ..list(&[]) };
    let (got, end) = frames(&with_type(config), [&br#"{"items":[{"a":1},{"a":"#[..], &br#"2}]}"#[..]]);
    assert_eq!((got.len(), end), (3, Ok(())));
}

#[test]
fn what_stands_around_objects_has_a_limit_of_its_own() {
    let long = "x".repeat(ENVELOPE_BYTES_MAX);
    let error = Err(FrameError::TooLarge { limit: ENVELOPE_BYTES_MAX });
    for (config, body) in [
        (watch(&[]), format!(r#"{{"type":"{long}","object":{{}}}}"#)),
        (list(&[]), format!(r#"{{"metadata":{{"continue":"{long}"}},"items":[]}}"#)),
        (list(&[]), format!(r#"{{"{long}":0,"items":[]}}"#)),
        (list(&[]), format!(r#"{{{}"items":[]}}"#, " ".repeat(ENVELOPE_BYTES_MAX))),
    ] {
        assert_eq!(frames(&config, [body.as_bytes()]), (vec![], error));
        assert_eq!(frames(&config, body.as_bytes().chunks(1000)), (vec![], error));
    }
    // White space between items is not buffered, so a list may contain any amount of it.
    let items = format!("{{}}{},", " ".repeat(999)).repeat(200);
    let (got, end) = frames(&list(&[]), [format!("{{\"items\":[{items}{{}}]}}").as_bytes()]);
    assert_eq!((got.len(), end), (202, Ok(())));
}

#[test]
fn a_large_object_does_not_pin_its_memory() {
    let large = format!(r#"{{"type":"ADDED","object":{{"a":"{}"}}}}"#, "x".repeat(4 << 20));
    let mut framer = Framer::new(watch(&[]));
    let mut chunk = large.as_bytes();
    assert!(framer.next(&mut chunk).unwrap().is_some());
    assert!(framer.bytes_held() >= 4 << 20);
    assert_eq!(framer.next(&mut chunk), Ok(None));
    assert!(framer.bytes_held() <= FRAMER_KEEP_BYTES + ENVELOPE_BYTES_MAX, "{} held", framer.bytes_held());
}

#[test]
fn errors_say_what_happened_and_nothing_of_the_body() {
    for (error, text) in [
        (
            FrameError::NotJson { begins: ForeignBody::Markup },
            "expected a JSON object, but the body begins like HTML or XML",
        ),
        (FrameError::Truncated { after: 5 }, "the body ends too early, after 5 bytes"),
        (FrameError::TooLarge { limit: 16 }, "larger than 16 bytes"),
        (FrameError::Malformed { at: 7 }, "malformed JSON at byte 7"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

/// A JSON value that remembers the order of its members.
#[derive(Clone, Debug)]
enum Json {
    Scalar(String),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    fn value(&self) -> Value {
        match self {
            Self::Scalar(text) => serde_json::from_str(text).unwrap(),
            Self::Text(text) => Value::String(text.clone()),
            Self::Array(all) => all.iter().map(Self::value).collect(),
            Self::Object(all) => Value::Object(all.iter().map(|(key, value)| (key.clone(), value.value())).collect()),
        }
    }

    /// Writes the value with white space and escapes drawn from `rng`; compact and unescaped without one.
    fn write(&self, rng: &mut Option<fastrand::Rng>, out: &mut String) {
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Text(text) => write_text(text, rng, out),
            Self::Array(all) => {
                out.push('[');
                for (at, value) in all.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    space(rng, out);
                    value.write(rng, out);
                    space(rng, out);
                }
                out.push(']');
            }
            Self::Object(all) => {
                out.push('{');
                space(rng, out);
                for (at, (key, value)) in all.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    space(rng, out);
                    write_text(key, rng, out);
                    space(rng, out);
                    out.push(':');
                    space(rng, out);
                    value.write(rng, out);
                    space(rng, out);
                }
                out.push('}');
            }
        }
    }

    fn text(&self, seed: Option<u64>) -> String {
        let mut out = String::new();
        self.write(&mut seed.map(fastrand::Rng::with_seed), &mut out);
        out
    }
}

fn space(rng: &mut Option<fastrand::Rng>, out: &mut String) {
    if let Some(rng) = rng {
        out.push_str(["", "", "", " ", "\n\t", "\r"][rng.usize(..6)]);
    }
}

fn write_text(text: &str, rng: &mut Option<fastrand::Rng>, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        if rng.as_mut().is_some_and(|rng| rng.u8(..8) == 0) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            let quoted = crate::wire::json::quote(letter.encode_utf8(&mut [0; 4]));
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    out.push('"');
}

/// Removes the paths from a decoded `value`, independently of the framer's algorithm.
fn without(value: &mut Value, paths: &[&str]) {
    let Value::Object(members) = value else { return };
    members.retain(|key, _| !paths.contains(&key.as_str()));
    for (key, inner) in members {
        let rests: Vec<&str> =
            paths.iter().filter_map(|path| path.strip_prefix(key.as_str())?.strip_prefix('.')).collect();
        if !rests.is_empty() {
            without(inner, &rests);
        }
    }
}

const KEYS: &[&str] =
    &["metadata", "managedFields", "kind", "apiVersion", "a", "b", "a.b", "items", "object", "\"\\", "é"];
const PATHS: &[&str] = &["metadata.managedFields", "metadata", "a.b", "b", "a.b.a", "é", "a.metadata.managedFields"];

fn json() -> impl Strategy<Value = Json> {
    let text = || {
        prop_oneof![
            select(vec!["", "}", "],[{", "\"", "\\", "\\\"", "plain text that is long"]).prop_map(str::to_owned),
            ".{0,8}"
        ]
    };
    let leaf = prop_oneof![
        select(vec!["null", "true", "false", "0", "-1.5e+3", "17"]).prop_map(|text| Json::Scalar(text.to_owned())),
        text().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Json::Array), members(inner).prop_map(Json::Object)]
    })
}

/// Members with distinct keys in any order.
fn members(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Vec<(String, Json)>> {
    vec((select(KEYS), value), 0..6).prop_map(|all| {
        let mut seen = std::collections::BTreeSet::new();
        all.into_iter().filter(|(key, _)| seen.insert(*key)).map(|(key, value)| (key.to_owned(), value)).collect()
    })
}

fn object() -> impl Strategy<Value = Json> {
    members(json()).prop_map(Json::Object)
}

/// Cuts `body` into chunks of the given lengths, repeated.
fn chunked<'a>(body: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut chunks) = (body, Vec::new());
    for length in lengths.iter().cycle() {
        let (chunk, after) = rest.split_at((*length).min(rest.len()));
        chunks.push(chunk);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    chunks
}

proptest! {
    #[test]
    fn events_equal_what_a_full_decoder_says(
        objects in vec((object(), any::<bool>(), any::<Option<u64>>()), 0..4),
        paths in vec(select(PATHS), 0..4),
        lengths in vec(1_usize..40, 1..5),
    ) {
        let mut body = String::new();
        for (object, type_first, seed) in &objects {
            let kind = Json::Text("MODIFIED".into());
            let mut members = vec![("type".to_owned(), kind), ("object".to_owned(), object.clone())];
            if !type_first {
                members.reverse();
            }
            body += &Json::Object(members).text(*seed);
            body += "\n";
        }
        let config = watch(&paths);
        let (got, end) = frames(&config, [body.as_bytes()]);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(got.len(), objects.len());
        for (got, (object, _, seed)) in got.iter().zip(&objects) {
            let Got::Event(EventKind::Modified, text) = got else { panic!("{got:?}") };
            let mut expected = object.value();
            without(&mut expected, &paths);
            prop_assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
            if paths.is_empty() {
                prop_assert!(body.contains(text.as_str()), "as sent");
            }
            if seed.is_none() {
                let compact: Box<serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
                prop_assert!(object_is_compact(compact.get()), "{}", compact.get());
            }
        }
        prop_assert_eq!(frames(&config, chunked(body.as_bytes(), &lengths)), (got, Ok(())));
    }

    #[test]
    fn items_equal_what_a_full_decoder_says(
        items in vec(object(), 0..4),
        paths in vec(select(PATHS), 0..3),
        order in Just(vec![0, 1, 2, 3]).prop_shuffle(),
        seed in any::<Option<u64>>(),
        lengths in vec(1_usize..40, 1..5),
    ) {
        let paths: Vec<&str> = paths.into_iter().filter(|path| path.contains('.')).collect();
        let text = |text: &str| Json::Text(text.into());
        let metadata = vec![("resourceVersion".to_owned(), text("77")), ("continue".to_owned(), text("é\""))];
        let members = [
            ("kind", text("DeploymentList")),
            ("apiVersion", text("apps/v1")),
            ("metadata", Json::Object(metadata)),
            ("items", Json::Array(items.clone())),
        ];
        let members = order.into_iter().map(|at: usize| (members[at].0.to_owned(), members[at].1.clone())).collect();
        let body = Json::Object(members).text(seed);
        let config = with_type(list(&paths));
        let (got, end) = frames(&config, [body.as_bytes()]);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(got.len(), items.len() + 1);
        for (got, item) in got.iter().zip(&items) {
            let Got::Item(text) = got else { panic!("{got:?}") };
            let mut expected = item.value();
            without(&mut expected, &paths);
            let members = expected.as_object_mut().unwrap();
            members.entry("kind").or_insert("Deployment".into());
            members.entry("apiVersion").or_insert("apps/v1".into());
            prop_assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
        }
        let end = ListEnd { resource_version: "77".into(), continue_token: Some("é\"".into()), remaining: None };
        prop_assert_eq!(got.last(), Some(&Got::ListEnd(end)));
        prop_assert_eq!(frames(&config, chunked(body.as_bytes(), &lengths)), (got, Ok(())));
    }

    #[test]
    fn any_bytes_end_in_frames_or_a_typed_error_in_any_chunks(
        bytes in vec(prop_oneof![4 => select(b"{}[]:,\"\\ \n1n".to_vec()), 1 => any::<u8>()], 0..80),
        head in select(vec!["", r#"{"type":"ADDED","object":{"a":"#, r#"{"items":[{"a":{"b":1"#, r#"{"items":["#]),
        lengths in vec(1_usize..9, 1..5),
    ) {
        let body = [head.as_bytes(), &bytes].concat();
        // The harness compares frames as text, so make the body valid UTF-8.
        let body = String::from_utf8_lossy(&body).into_owned();
        for config in [watch(&["a.b", "b"]), with_type(list(&["a.b", "b"]))] {
            let whole = frames(&config, [body.as_bytes()]);
            prop_assert_eq!(&frames(&config, chunked(body.as_bytes(), &lengths)), &whole);
        }
    }
}

/// Returns true if the JSON has no white space outside of strings.
fn object_is_compact(json: &str) -> bool {
    let mut strings = json.replace("\\\\", "").replace("\\\"", "");
    while let Some(start) = strings.find('"') {
        let end = start + 1 + strings[start + 1..].find('"').unwrap();
        strings.replace_range(start..=end, "");
    }
    !strings.contains(char::is_whitespace)
}
