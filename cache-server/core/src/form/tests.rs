//! Goal: every format of an object is JSON with the object's content and no other. Method: golden texts, and a full
//! decoder over objects with their members in every order.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::*;
use crate::Draft;
use crate::limits::{CELLS_KEPT_MAX, LONG_CELLS_BYTES_MAX};

/// Cells with the name, and the age since second 1000.
struct NameAndAge;

impl Rows for NameAndAge {
    fn cells(&self, object: &[u8]) -> Cells {
        let object: Value = serde_json::from_slice(object).expect("an entry is JSON");
        let mut cells = Cells::new();
        cells.push(&format!("[{},\"", object["metadata"]["name"]));
        cells.push_since(1_000);
        cells.push("\"]");
        cells
    }
}

fn schema(builtin: bool) -> Schema {
    Schema {
        kind: "Pod".into(),
        api_version: "v1".into(),
        builtin,
        fields: vec![crate::Field { label: "spec.x".into(), path: "spec.x".into(), absent: "none".into(), or: None }],
        node_field: None,
    }
}

fn entry(builtin: bool, object: &str) -> Arc<Entry> {
    Draft::new(&schema(builtin), object.as_bytes()).expect(object).commit(77)
}

fn row(object: RowObject) -> Form {
    let definitions = Bytes::from_static(br#"[{"name":"Name"},{"name":"Age"}]"#);
    Form::row(Row { rows: Arc::new(NameAndAge), definitions, object, meta: MetaVersion::V1 })
}

fn without_managed_fields(form: Form) -> Form {
    Form { without_managed_fields: true, ..form }
}

fn text(push: impl FnOnce(&mut Slices)) -> String {
    let mut out = Slices::new();
    push(&mut out);
    out.iter().map(|slice| std::str::from_utf8(slice).expect("UTF-8")).collect()
}

const OBJECT: &str = r#"{"metadata":{"name":"a","managedFields":[{"x":{}}],"labels":{"b":"c"}},"spec":{"x":1}}"#;

#[test]
fn every_form_of_a_single_object() {
    let metadata = r#"{"resourceVersion":"77","name":"a","managedFields":[{"x":{}}],"labels":{"b":"c"}}"#;
    let short = r#"{"resourceVersion":"77","name":"a","labels":{"b":"c"}}"#;
    let partial = |metadata: &str, version: &str| {
        format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":{metadata}}}"#)
    };
    let whole = |metadata: &str, version: &str| {
        format!(r#"{{"kind":"Pod","apiVersion":"{version}","metadata":{metadata},"spec":{{"x":1}}}}"#)
    };
    let table = |object: &str| {
        format!(
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"77"}},"columnDefinitions":[{{"name":"Name"}},{{"name":"Age"}}],"rows":[{{"cells":["a","60s"],"object":{object}}}]}}"#
        )
    };
    let entry = entry(true, OBJECT);
    for (form, expected) in [
        (Form::whole(), whole(metadata, "v1")),
        (without_managed_fields(Form::whole()), whole(short, "v1")),
        (Form::whole().at_version("Pod", "v2"), whole(metadata, "v2")),
        (without_managed_fields(Form::whole().at_version("Pod", "v2")), whole(short, "v2")),
        (Form::metadata(MetaVersion::V1), partial(metadata, "v1")),
        (Form::metadata(MetaVersion::V1Beta1), partial(metadata, "v1beta1")),
        (without_managed_fields(Form::metadata(MetaVersion::V1)), partial(short, "v1")),
        (Form::metadata(MetaVersion::V1).at_version("Pod", "v2"), partial(metadata, "v1")),
        (row(RowObject::Metadata), table(&partial(metadata, "v1"))),
        (without_managed_fields(row(RowObject::Metadata)), table(&partial(short, "v1"))),
        (row(RowObject::Whole), table(&whole(metadata, "v1"))),
        (row(RowObject::Whole).at_version("Pod", "v2"), table(&whole(metadata, "v2"))),
        (row(RowObject::None), table("null")),
    ] {
        assert_eq!(text(|out| entry.object_as(&form, 1_060, out)), expected, "{form:?}");
    }
}

#[test]
fn items_are_as_their_lists_have_them() {
    let short = r#""metadata":{"resourceVersion":"77","name":"a","labels":{"b":"c"}},"spec":{"x":1}}"#;
    let partial = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"77","name":"a","labels":{"b":"c"}}}"#;
    for (builtin, form, expected) in [
        (true, Form::whole(), format!("{{{short}")),
        (false, Form::whole(), format!(r#"{{"kind":"Pod","apiVersion":"v1",{short}"#)),
        (false, Form::whole().at_version("Pod", "v2"), format!(r#"{{"kind":"Pod","apiVersion":"v2",{short}"#)),
        (true, Form::metadata(MetaVersion::V1), partial.to_owned()),
        (false, Form::metadata(MetaVersion::V1), partial.to_owned()),
        (true, row(RowObject::Metadata), format!(r#"{{"cells":["a","0s"],"object":{partial}}}"#)),
    ] {
        let (entry, form) = (entry(builtin, OBJECT), without_managed_fields(form));
        assert_eq!(text(|out| entry.item_as(&form, true, 1_000, out)), expected);
        assert_eq!(text(|out| entry.item_as(&form, false, 1_000, out)), format!(",{expected}"));
    }
}

/// Goal: cuts and swaps are correct for every member order. Method: all orders of four metadata members, compared with
/// a decoder's view of the object.
#[test]
fn lines_of_every_form_say_the_same_wherever_members_stand() {
    let members =
        [r#""name":"a""#, r#""resourceVersion":"5""#, r#""managedFields":[{"a":"}"}]"#, r#""labels":{"b":"c"}"#];
    let digits = Bytes::from_static(b"12345");
    for order in 0..256_usize {
        let places = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 & 3];
        if (0..4).any(|place| !places.contains(&place)) {
            continue;
        }
        let metadata = places.map(|place| members[place]).join(",");
        let entry = entry(true, &format!(r#"{{"spec":{{"x":"y"}},"metadata":{{{metadata}}},"status":{{}}}}"#));
        assert_eq!((entry.field(0), entry.label("b").as_deref()), ("y", Some("c")), "{metadata}");
        for without in [false, true] {
            let stored = |version: &str| {
                let mut object: Value = serde_json::from_slice(&entry.object()).expect("an entry is JSON");
                object["metadata"]["resourceVersion"] = json!(version);
                if without {
                    object["metadata"].as_object_mut().expect("an object").remove("managedFields");
                }
                object
            };
            for form in
                [Form::whole(), Form::metadata(MetaVersion::V1), row(RowObject::Metadata), row(RowObject::Whole)]
            {
                let form = Form { without_managed_fields: without, ..form };
                let expected = |version: &str, columns_sent: bool| match &form.content {
                    Content::Whole => stored(version),
                    Content::Metadata(_) => partial(&stored(version)),
                    Content::Row(row) => {
                        let object =
                            if row.object == RowObject::Whole { stored(version) } else { partial(&stored(version)) };
                        let columns =
                            if columns_sent { Value::Null } else { json!([{"name": "Name"}, {"name": "Age"}]) };
                        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
                            "columnDefinitions": columns, "rows": [{"cells": ["a", "7s"], "object": object}]})
                    }
                };
                let read = |line: &str| {
                    assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
                    serde_json::from_str::<Value>(line).expect(line)
                };
                let added = read(&text(|out| entry.added_as(&form, 1_007, out)));
                assert_eq!(added, json!({"type": "ADDED", "object": expected("77", false)}), "{metadata}");
                let modified = read(&text(|out| entry.modified_as(&form, 1_007, out)));
                assert_eq!(modified, json!({"type": "MODIFIED", "object": expected("77", true)}), "{metadata}");
                let deleted = read(&text(|out| entry.deleted_as(&digits, &form, 1_007, out)));
                assert_eq!(deleted, json!({"type": "DELETED", "object": expected("12345", true)}), "{metadata}");
            }
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[test]
fn columns_are_told_once_in_a_stream() {
    let entry = entry(true, OBJECT);
    let mut formatter = EventFormatter::new(row(RowObject::None));
    let defined = |line: String| {
        let line: Value = serde_json::from_str(&line).expect(&line);
        !line["object"]["columnDefinitions"].is_null()
    };
    assert!(defined(text(|out| formatter.line(&entry, &SentEvent::Added, out))));
    assert!(!defined(text(|out| formatter.line(&entry, &SentEvent::Modified, out))));
    assert!(!defined(text(|out| formatter.bookmark(&schema(true), 9, false, out))));
    assert!(defined(text(|out| EventFormatter::new(row(RowObject::None)).bookmark(&schema(true), 9, false, out))));
}

#[test]
fn bookmarks_come_in_the_form_of_their_stream() {
    let end = r#"{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}"#;
    let partial = format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{end}}}"#);
    for (form, object) in [
        (Form::whole(), format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{end}}}"#)),
        (Form::whole().at_version("Pod", "v2"), format!(r#"{{"kind":"Pod","apiVersion":"v2","metadata":{end}}}"#)),
        (Form::metadata(MetaVersion::V1), partial.clone()),
        (
            row(RowObject::None),
            format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"9"}},"columnDefinitions":[{{"name":"Name"}},{{"name":"Age"}}],"rows":[{{"cells":[null,"5s"],"object":{partial}}}]}}"#
            ),
        ),
    ] {
        let mut formatter = EventFormatter::new(form);
        formatter.set_now(1_005);
        let line = text(|out| formatter.bookmark(&schema(true), 9, true, out));
        assert_eq!(line, format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"));
    }
}

/// Goal: every form of a converted object has its members. Method: an object whose spec has another name there, in each
/// form; then one that cannot be converted.
#[test]
fn converted_objects_come_in_every_form() {
    static RENAMED: Renaming = Renaming(AtomicUsize::new(0));
    let form = |form: Form| form.converted("Pod", "v2", &RENAMED);
    let [entry, bare] = [OBJECT, r#"{"metadata":{"name":"b"}}"#].map(|object| entry(true, object));
    let object = |digits: &str| {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v2","metadata":{{"resourceVersion":"{digits}","name":"a","managedFields":[{{"x":{{}}}}],"labels":{{"b":"c"}}}},"other":{{"x":1}}}}"#
        )
    };
    let whole = form(Form::whole());
    assert_eq!(text(|out| entry.object_as(&whole, 0, out)), object("77"));
    let item = object("77").replace(r#""kind":"Pod","apiVersion":"v2","#, "");
    assert_eq!(text(|out| entry.item_as(&whole, false, 0, out)), format!(",{item}"));
    let line = |kind: &str, digits: &str| format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(digits));
    assert_eq!(text(|out| entry.added_as(&whole, 0, out)), line("ADDED", "77"));
    assert_eq!(text(|out| entry.modified_as(&whole, 0, out)), line("MODIFIED", "77"));
    assert_eq!(text(|out| entry.deleted_as(&Bytes::from_static(b"80"), &whole, 0, out)), line("DELETED", "80"));
    let table = text(|out| entry.object_as(&form(row(RowObject::Whole)), 1_060, out));
    assert!(table.contains(&format!(r#"{{"cells":["a","60s"],"object":{}}}"#, object("77"))), "{table}");
    let short = text(|out| entry.object_as(&form(without_managed_fields(Form::metadata(MetaVersion::V1))), 0, out));
    assert!(short.contains("PartialObjectMetadata") && !short.contains("managedFields"), "{short}");
    let expected = r#"{"kind":"Pod","apiVersion":"v2","metadata":{"resourceVersion":"77","name":"b"}}"#;
    assert_eq!(text(|out| bare.object_as(&whole, 0, out)), expected);
    let message = bytes(|out| entry.object_as(&message_form(whole.clone()), 0, out));
    let length = object("77").len();
    assert_eq!(message, protobuf::envelope("v1", "Pod", &self::message("77", true, Some(length))));
}

/// Renames the spec, and counts. Fails without one.
#[derive(Debug)]
struct Renaming(AtomicUsize);

impl Conversion for Renaming {
    fn convert(&self, stored: &[u8]) -> Option<Draft> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = str::from_utf8(stored).ok().filter(|text| text.contains("\"spec\""))?;
        Draft::new(
            &Schema { api_version: "v2".into(), ..schema(true) },
            text.replace("\"spec\"", "\"other\"").as_bytes(),
        )
        .ok()
    }
}

/// Goal: cells are computed once per object, and never reused for other columns. Method: count.
#[test]
fn cells_are_made_once_for_an_object_version() {
    struct Counting(AtomicUsize, &'static str);
    impl Rows for Counting {
        fn cells(&self, _: &[u8]) -> Cells {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut cells = Cells::new();
            cells.push(self.1);
            cells
        }
    }
    let entry = entry(true, OBJECT);
    let [one, other] = ["[1]", "[2]"].map(|text| Arc::new(Counting(0.into(), text)));
    for (rows, expected) in [(&one, "[1]"), (&other, "[2]"), (&one, "[1]"), (&one, "[1]")] {
        let rows: Arc<dyn Rows> = Arc::clone(rows) as _;
        let row = Row { rows, definitions: Bytes::new(), object: RowObject::None, meta: MetaVersion::V1 };
        let item = text(|out| entry.item_as(&Form::row(row), true, 0, out));
        assert_eq!(item, format!(r#"{{"cells":{expected},"object":null}}"#));
    }
    assert_eq!(one.0.load(Ordering::Relaxed), 1);
    // Long cells are cached while there is room for them.
    for (length, times) in [(CELLS_KEPT_MAX + 1, 1), (LONG_CELLS_BYTES_MAX + 1, 2)] {
        let long: Arc<Counting> = Arc::new(Counting(0.into(), " ".repeat(length).leak()));
        let entry = self::entry(true, OBJECT);
        for _ in 0..2 {
            entry.cells(&(Arc::clone(&long) as _));
        }
        assert_eq!(long.0.load(Ordering::Relaxed), times);
    }
}

/// Goal: a write's response has the same formats as the stored object. Method: compare the two.
#[test]
fn what_is_not_stored_has_the_same_forms() {
    let entry = entry(true, OBJECT);
    let object = entry.object();
    for form in [
        Form::whole().at_version("Pod", "v2"),
        without_managed_fields(Form::whole()),
        Form::metadata(MetaVersion::V1),
        without_managed_fields(Form::metadata(MetaVersion::V1Beta1)),
        row(RowObject::Metadata),
        row(RowObject::Whole),
        without_managed_fields(row(RowObject::Whole)),
        row(RowObject::None),
    ] {
        let expected = text(|out| entry.object_as(&form, 1_060, out)) + "\n";
        let came = form.text(&object, &object, 1_060).expect("another form");
        assert_eq!(String::from_utf8(came).expect("UTF-8"), expected, "{form:?}");
    }
    assert_eq!(Form::whole().text(&object, &object, 0), None, "nothing changes");
    let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
    assert_eq!(Form::metadata(MetaVersion::V1).text(status, status, 0), None, "a Status has one form");
    assert_eq!(Form::metadata(MetaVersion::V1).text(b"[]", b"[]", 0), None);
}

/// A message: names and versions in the metadata, and the length of the object's JSON in field 2.
struct NameAndLength;

impl Messages for NameAndLength {
    fn metadata(&self, metadata: &[u8]) -> Option<Vec<u8>> {
        let metadata: Value = serde_json::from_slice(metadata).expect("an entry is JSON");
        let mut out = Vec::new();
        // As in JSON, managedFields may come before other fields.
        for _ in 0..metadata["managedFields"].as_array().map_or(0, Vec::len) {
            protobuf::put_bytes(17, b"managed", &mut out);
        }
        for (number, name) in [(1, "name"), (6, "resourceVersion")] {
            protobuf::put_bytes(number, metadata[name].as_str().expect("a text").as_bytes(), &mut out);
        }
        protobuf::put_tag(7, protobuf::VARINT, &mut out);
        protobuf::put_varint(300, &mut out);
        Some(out)
    }

    fn rest(&'static self, object: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        protobuf::put_bytes(2, &vec![b'x'; object.len()], &mut out);
        Some(out)
    }
}

fn message_form(form: Form) -> Form {
    form.in_protobuf(&NameAndLength, "v1", "Pod")
}

fn bytes(push: impl FnOnce(&mut Slices)) -> Vec<u8> {
    let mut out = Slices::new();
    push(&mut out);
    out.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// The message of an object, for these digits.
fn message(digits: &str, managed: bool, whole: Option<usize>) -> Vec<u8> {
    let mut metadata = Vec::new();
    if managed {
        protobuf::put_bytes(17, b"managed", &mut metadata);
    }
    protobuf::put_bytes(1, b"a", &mut metadata);
    protobuf::put_bytes(6, digits.as_bytes(), &mut metadata);
    metadata.extend_from_slice(&[7 << 3, 0xac, 2]);
    let mut message = Vec::new();
    protobuf::put_bytes(1, &metadata, &mut message);
    if let Some(length) = whole {
        protobuf::put_bytes(2, &vec![b'x'; length], &mut message);
    }
    message
}

/// Goal: lists, objects and events have the envelopes of one message, in every form. Method: bytes put together apart.
#[test]
fn every_form_of_a_message() {
    for object in [OBJECT.to_owned(), OBJECT.replace("\"x\":1}}", &format!("\"x\":\"{}\"}}}}", "long ".repeat(4_000)))]
    {
        let entry = entry(true, &object);
        let length = Some(entry.object_text().len());
        for (form, kind, managed, length) in [
            (Form::whole(), ("v1", "Pod"), true, length),
            (without_managed_fields(Form::whole()), ("v1", "Pod"), false, length),
            (Form::metadata(MetaVersion::V1), ("meta.k8s.io/v1", "PartialObjectMetadata"), true, None),
            (Form::metadata(MetaVersion::V1Beta1), ("meta.k8s.io/v1beta1", "PartialObjectMetadata"), true, None),
            (
                without_managed_fields(Form::metadata(MetaVersion::V1)),
                ("meta.k8s.io/v1", "PartialObjectMetadata"),
                false,
                None,
            ),
        ] {
            let form = message_form(form);
            let envelope = |digits| protobuf::envelope(kind.0, kind.1, &message(digits, managed, length));
            let event = |name, digits| protobuf::event(name, &envelope(digits));
            let mut item = Vec::new();
            protobuf::put_bytes(2, &message("77", managed, length), &mut item);
            for first in [true, false] {
                assert_eq!(bytes(|out| entry.item_as(&form, first, 0, out)), item, "{kind:?}");
            }
            assert_eq!(form.item_bytes(&entry), item.len() as u64, "{kind:?}");
            assert_eq!(bytes(|out| entry.object_as(&form, 0, out)), envelope("77"), "{kind:?}");
            assert_eq!(bytes(|out| entry.added_as(&form, 0, out)), event("ADDED", "77"), "{kind:?}");
            assert_eq!(bytes(|out| entry.modified_as(&form, 0, out)), event("MODIFIED", "77"), "{kind:?}");
            let digits = Bytes::from_static(b"12345");
            assert_eq!(bytes(|out| entry.deleted_as(&digits, &form, 0, out)), event("DELETED", "12345"), "{kind:?}");
        }
    }
    let rows = message_form(row(RowObject::None));
    assert!(!rows.is_protobuf(), "a Table has no message");
}

/// Goal: a long object is never converted where that would delay other clients. Method: questions about an object in every form,
/// and a count of conversions.
#[test]
fn no_question_about_an_object_converts_it() {
    static RENAMED: Renaming = Renaming(AtomicUsize::new(0));
    let long = entry(true, &OBJECT.replace("\"x\":1}}", &format!("\"x\":\"{}\"}}}}", "long ".repeat(20_000))));
    assert!(long.is_long());
    for form in [Form::whole(), row(RowObject::Whole), message_form(Form::whole())] {
        let form = form.converted("Pod", "v2", &RENAMED);
        assert!(form.is_slow(&long), "{form:?}");
        assert_eq!(form.is_slow_to_measure(&long), form.is_protobuf(), "{form:?}");
        EventFormatter::new(form).effort(&long);
    }
    assert_eq!(RENAMED.0.load(Ordering::Relaxed), 0);
    let rows = row(RowObject::None).converted("Pod", "v2", &RENAMED);
    let _ = text(|out| long.object_as(&rows, 0, out));
    assert!(!rows.is_slow(&long), "a row without an object needs its cells only");
    assert_eq!(RENAMED.0.load(Ordering::Relaxed), 0);
}

/// Goal: messages and converted objects are made once and shared, until they were idle for a generation; the length of a
/// message stays known. Method: addresses, and a count of conversions. One test, as all tests of the process share the
/// generations.
#[test]
fn forms_are_made_once_and_dropped_when_idle() {
    static RENAMED: Renaming = Renaming(AtomicUsize::new(0));
    let converted = Form::whole().converted("Pod", "v2", &RENAMED);
    let other = entry(true, OBJECT);
    let conversions = || {
        let _ = text(|out| other.added_as(&converted, 0, out));
        RENAMED.0.load(Ordering::Relaxed)
    };
    let entry = entry(true, OBJECT);
    let form = message_form(Form::whole());
    let made = || {
        let mut out = Slices::new();
        entry.object_as(&form, 0, &mut out);
        out.iter().next().expect("bytes").clone()
    };
    let first = made();
    assert_eq!(made().as_ptr(), first.as_ptr());
    assert_eq!((conversions(), conversions()), (1, 1));
    drop_idle_messages();
    assert_eq!(made().as_ptr(), first.as_ptr(), "it was used in the generation before");
    assert_eq!(conversions(), 1, "it was used in the generation before");
    let before = messages_bytes();
    assert!(before >= first.len() + other.cost(), "{before}");
    drop_idle_messages();
    drop_idle_messages();
    assert!(!form.is_slow_to_measure(&entry));
    assert_ne!(made().as_ptr(), first.as_ptr(), "no client used it");
    assert_eq!(conversions(), 2, "no client used it");
}

/// Goal: each client gets the envelope of its own version, whichever came first. Method: the old one first, on a fresh entry.
#[test]
fn the_envelope_of_metadata_is_that_of_the_request() {
    let entry = entry(true, OBJECT);
    for meta in [MetaVersion::V1Beta1, MetaVersion::V1, MetaVersion::V1Beta1] {
        let form = message_form(Form::metadata(meta));
        let expected = protobuf::envelope(meta.api_version(), "PartialObjectMetadata", &message("77", true, None));
        assert_eq!(bytes(|out| entry.object_as(&form, 0, out)), expected, "{meta:?}");
        let event = protobuf::event("ADDED", &expected);
        assert_eq!(bytes(|out| entry.added_as(&form, 0, out)), event, "{meta:?}");
    }
}

/// Encodes metadata, but no object.
struct OnlyMetadata;

impl Messages for OnlyMetadata {
    fn metadata(&self, metadata: &[u8]) -> Option<Vec<u8>> {
        NameAndLength.metadata(metadata)
    }

    fn rest(&'static self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Goal: an object that cannot be encoded is never sent without its spec. Method: an encoder that encodes no object.
#[test]
fn an_object_that_cannot_be_encoded_is_not_sent() {
    let entry = entry(true, OBJECT);
    for form in [Form::whole(), without_managed_fields(Form::whole())] {
        let form = form.in_protobuf(&OnlyMetadata, "v1", "Pod");
        for _ in 0..2 {
            assert_eq!(bytes(|out| entry.object_as(&form, 0, out)), b"");
            assert_eq!(bytes(|out| entry.item_as(&form, true, 0, out)), b"");
            assert_eq!(form.item_bytes(&entry), 0);
        }
        let mut formatter = EventFormatter::new(form);
        assert_eq!(bytes(|out| formatter.line(&entry, &SentEvent::Added, out)), b"");
        assert_eq!(formatter.failed(), Some(entry.key()));
        let other = self::entry(true, OBJECT);
        formatter.form = message_form(Form::whole());
        assert_eq!(bytes(|out| formatter.line(&other, &SentEvent::Added, out)), b"", "nothing follows");
    }
    let form = Form::metadata(MetaVersion::V1).in_protobuf(&OnlyMetadata, "v1", "Pod");
    assert_ne!(form.item_bytes(&entry), 0, "its metadata can be encoded");
}
