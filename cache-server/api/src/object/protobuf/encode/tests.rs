//! Goal: objects are encoded without loss. Method: random objects of every kind, and tables of values, decoded again.

use serde_json::{Map, Value, json};

use super::*;
use crate::{
    object::{
        protobuf::{decoded, document, message, messages, metadata_messages, open_stored, table::find},
        weight::Weight,
    },
    registry::Registry,
    schemas,
};

/// Encodes an object with the message of a definition, and decodes it again.
fn around(definition: &str, object: &Value) -> Value {
    let message = find(definition).expect(definition);
    let mut bytes = Vec::new();
    encode(message, object.to_string().as_bytes(), "", &mut bytes).expect("is JSON");
    let mut back = Map::new();
    message::decode(message, &bytes, &mut back, 1, &mut Weight::default()).expect("is decoded");
    Value::Object(back)
}

/// Describes the first difference of two values, without the rest of them.
fn difference(one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys());
            let null = Value::Null;
            names.find_map(|name| {
                let (one, other) = (one.get(name).unwrap_or(&null), other.get(name).unwrap_or(&null));
                difference(one, other).map(|found| format!(".{name}{found}"))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).find_map(|(one, other)| difference(one, other)).map(|found| format!("[]{found}"))
        }
        (one, other) => (one != other).then(|| format!(": {one:.200} is not {other:.200}")),
    }
}

/// Makes objects of messages: every field at times, and never a value that Go leaves out.
struct Objects(fastrand::Rng);

impl Objects {
    fn object(&mut self, message: &'static Message, levels: usize) -> Map<String, Value> {
        let mut object = Map::new();
        for field in &message.fields {
            if self.0.bool() {
                continue;
            }
            let value = match field.label {
                Label::Embedded => {
                    if let Type::Message(inner) = field.ty {
                        object.append(&mut self.object(field.message(inner), levels));
                    }
                    continue;
                }
                Label::Once => self.value(field, levels),
                Label::Repeated => (0..self.0.usize(1..4)).map(|_| self.value(field, levels)).collect(),
                Label::Map => {
                    let members = (0..self.0.usize(1..4)).map(|_| Some((self.text(), self.value(field, levels)?)));
                    members.collect::<Option<Map<_, _>>>().map(Value::Object)
                }
            };
            if let Some(value) = value {
                object.insert(field.name.to_owned(), value);
            }
        }
        object
    }

    /// `None` where the object would be too deep.
    fn value(&mut self, field: &'static MessageField, levels: usize) -> Option<Value> {
        Some(match field.ty {
            Type::Scalar(Scalar::String) => self.text().into(),
            Type::Scalar(Scalar::Bool) => true.into(),
            Type::Scalar(Scalar::Int32) => self.0.i32(..).max(1).into(),
            Type::Scalar(Scalar::Int64) => json!(if self.0.bool() { self.0.i64(1..) } else { self.0.i64(..0) }),
            Type::Scalar(Scalar::Double) => json!(self.0.i32(1..) as f64 + 0.5),
            Type::Scalar(Scalar::Bytes) => STANDARD.encode(self.text()).into(),
            Type::Message(name) if levels > 0 => Value::Object(self.object(field.message(name), levels - 1)),
            Type::Message(_) => return None,
            Type::Special(name) => self.special(name, levels)?,
        })
    }

    fn special(&mut self, name: &'static str, levels: usize) -> Option<Value> {
        let kind = special::kind(name).expect(name);
        let schema = |objects: &mut Self| {
            let schema = find("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
            (levels > 0).then(|| Value::Object(objects.object(schema, levels.min(2) - 1)))
        };
        Some(match kind {
            SpecialMessage::Time { micro: false } => {
                jiff::Timestamp::new(self.0.i64(-1..1 << 33), 0).unwrap().to_string().into()
            }
            SpecialMessage::Time { micro: true } => {
                let nanos = self.0.i32(0..1_000_000) * 1_000;
                format!("{:.6}", jiff::Timestamp::new(self.0.i64(1..1 << 33), nanos).unwrap()).into()
            }
            SpecialMessage::Quantity => format!("{}m", self.0.u32(..)).into(),
            SpecialMessage::IntOrString if self.0.bool() => self.0.i32(..).into(),
            SpecialMessage::IntOrString => self.text().into(),
            SpecialMessage::Raw => json!({"f:a": {".": {}, "f:b": [1, null, self.text()]}, "n": 1.5}),
            SpecialMessage::ExtraValue => json!([self.text(), self.text()]),
            SpecialMessage::SchemaOrBool if self.0.bool() => self.0.bool().into(),
            SpecialMessage::SchemaOrTexts if self.0.bool() => json!([self.text(), "b"]),
            SpecialMessage::SchemaOrList if self.0.bool() => json!([schema(self)?, schema(self)?]),
            SpecialMessage::SchemaOrBool | SpecialMessage::SchemaOrTexts | SpecialMessage::SchemaOrList => {
                schema(self)?
            }
        })
    }

    fn text(&mut self) -> String {
        let length_max = if self.0.u8(..8) == 0 { 200 } else { 12 };
        let length = self.0.usize(1..length_max);
        (0..length)
            .map(|_| self.0.choice(['a', 'B', '-', '"', '\\', '\n', 'é', '\u{1f980}', '\u{2028}']).unwrap())
            .collect()
    }
}

/// Goal: no field of any kind is lost or changed. Method: random objects of every built-in kind, back through the decoder of
/// bodies; members in the order of their names.
#[test]
fn objects_of_every_kind_come_back() {
    let mut objects = Objects(fastrand::Rng::with_seed(36));
    for ty in Registry::builtin().iter() {
        let definition = schemas::definition(ty.api_version(), &ty.kind).expect("is built in");
        for _ in 0..20 {
            let object = Value::Object(objects.object(find(definition).expect(definition), 7));
            let back = around(definition, &object);
            assert_eq!(difference(&back, &object), None, "{definition}");
        }
    }
}

/// Goal: JSON that Go accepts has Go's value. Method: a table of values, and the members that come back.
#[test]
fn values_are_those_that_go_reads() {
    let pod = "io.k8s.api.core.v1.Pod";
    for (definition, sent, expected) in [
        (
            pod,
            json!({"spec": null, "metadata": {"name": "a", "creationTimestamp": null}}),
            json!({"metadata": {"name": "a"}}),
        ),
        (
            pod,
            json!({"spec": {"terminationGracePeriodSeconds": 0, "hostNetwork": false, "volumes": [], "nodeSelector": {}}}),
            json!({"spec": {"terminationGracePeriodSeconds": 0}}),
        ),
        (
            pod,
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, null], "new": [{"x": 1}]}, "odd": {"a": "b"}}),
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {}]}}),
        ),
        (
            pod,
            json!({"spec": {"nodeName": 7, "priority": "high", "containers": "all", "volumes": {"a": 1}}}),
            json!({"spec": {}}),
        ),
        (
            pod,
            json!({"metadata": {"labels": {"a": null, "b": "c"}}}),
            json!({"metadata": {"labels": {"a": "", "b": "c"}}}),
        ),
        (
            pod,
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi", "x": 0.5}}}]}}),
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi", "x": "0.5"}}}]}}),
        ),
        (
            pod,
            json!({"status": {"startTime": "2024-02-03T04:05:06.7+02:00", "conditions": [{"lastProbeTime": "x"}]}}),
            json!({"status": {"startTime": "2024-02-03T02:05:06Z", "conditions": [{}]}}),
        ),
        (
            "io.k8s.api.coordination.v1.Lease",
            json!({"spec": {"renewTime": "1969-12-31T23:59:58.5Z", "acquireTime": "2024-02-03T04:05:06.1234567Z"}}),
            json!({"spec": {"renewTime": "1969-12-31T23:59:58.500000Z", "acquireTime": "2024-02-03T04:05:06.123456Z"}}),
        ),
        (
            "io.k8s.api.coordination.v1.Lease",
            json!({"spec": {"renewTime": "9999-12-31T23:59:59.999999Z", "acquireTime": "9999-12-31T23:59:59Z"},
                "metadata": {"creationTimestamp": "9999-12-31T23:59:59Z", "deletionTimestamp": "9999-12-31T22:59:59-02:00"}}),
            json!({"spec": {"renewTime": "9999-12-31T23:59:59.999999Z", "acquireTime": "9999-12-31T23:59:59.000000Z"},
                "metadata": {"creationTimestamp": "9999-12-31T23:59:59Z"}}),
        ),
        (
            "io.k8s.api.core.v1.Secret",
            json!({"data": {"a": "AAE=", "b": "", "c": "no base64!"}}),
            json!({"data": {"a": "AAE=", "b": "", "c": ""}}),
        ),
        (
            "io.k8s.api.apps.v1.ControllerRevision",
            json!({"data": {"spec": {"z": 1, "a": [null]}}, "revision": 3}),
            json!({"data": {"spec": {"z": 1, "a": [null]}}, "revision": 3}),
        ),
    ] {
        assert_eq!(around(definition, &sent), expected, "{sent}");
    }
}

/// Goal: text that serde refuses is encoded as Go reads it, or is no object. Method: halves of surrogate pairs; nesting.
#[test]
fn text_beyond_serde_is_encoded_as_far_as_it_can_be() {
    let pods = Registry::builtin().by_id("pods").expect("pods");
    let messages = messages(&pods).expect("a message");
    let halves = br#"{"name":"\ud83d\ud83e\udd80 \\ud83d \udd80x","labels":{"\ud800":"\\\ud800"}}"#;
    let mut meta = Map::new();
    let bytes = messages.metadata(halves).expect("is encoded");
    let message = find(schemas::OBJECT_META).expect("metadata");
    message::decode(message, &bytes, &mut meta, 1, &mut Weight::default()).expect("is decoded");
    let expected = json!({"name": "\u{fffd}\u{1f980} \\ud83d \u{fffd}x", "labels": {"\u{fffd}": "\\\u{fffd}"}});
    assert_eq!(Value::Object(meta), expected);
    let deep = format!(r#"{{"spec":{{"nodeName":"n","odd":{}1{}}}}}"#, "[".repeat(400), "]".repeat(400));
    assert_eq!(
        messages.rest(deep.as_bytes()).as_deref(),
        Some(&b"\x12\x03\x52\x01n"[..]),
        "what the message does not have may be deep"
    );
    let deep = format!("{}{}", r#"{"spec":"#.repeat(200), "}".repeat(200));
    assert_eq!(messages.rest(deep.as_bytes()), None, "the innermost member has no value");
}

/// Goal: an object that cannot be encoded as a whole is no object, not one without a spec. Method: schemas nested beyond
/// serde's limit, and a number beyond doubles.
#[test]
fn what_cannot_be_encoded_is_no_object() {
    let registry = Registry::builtin();
    let crds = registry.by_id("customresourcedefinitions.apiextensions.k8s.io").expect("definitions");
    let schema = format!("{}{{}}{}", r#"{"not":"#.repeat(200), "}".repeat(200));
    let deep = format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
    assert_eq!(messages(&crds).expect("a message").rest(deep.as_bytes()), None);
    let pods = messages(&registry.by_id("pods").expect("pods")).expect("a message");
    assert_eq!(pods.rest(br#"{"spec":{"nodeName":"n","priority":1e400}}"#), None);
    assert_eq!(pods.metadata(br#"{"name":"a","generation":1e400}"#), None);
    assert_eq!(document(br#"{"kind":"Pod","apiVersion":"v1","spec":{"priority":1e400}}"#), None);
}

/// Goal: the audit log has lists and metadata of protobuf as it has those of JSON.
#[test]
fn lists_and_metadata_are_decoded_for_logs() {
    use informer_serving::protobuf::{envelope, put_bytes};

    let meta = b"\x0a\x01a";
    let mut object = Vec::new();
    put_bytes(1, meta, &mut object);
    let mut list = Vec::new();
    put_bytes(1, b"\x12\x017", &mut list);
    put_bytes(2, &object, &mut list);
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
    for (api_version, kind, message, expected) in [
        ("meta.k8s.io/v1", "PartialObjectMetadata", &object, partial.clone()),
        (
            "meta.k8s.io/v1",
            "PartialObjectMetadataList",
            &list,
            json!({"kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"}, "items": [partial]}),
        ),
        (
            "v1",
            "ConfigMapList",
            &list,
            json!({"kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}),
        ),
    ] {
        assert_eq!(decoded(&envelope(api_version, kind, message)), Some(expected), "{kind}");
    }
}

#[test]
fn documents_have_the_envelope_of_their_kind() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
        "details": {"name": "a", "causes": [{"field": "f"}], "retryAfterSeconds": 1}, "code": 404});
    let bytes = document(status.to_string().as_bytes()).expect("a Status");
    assert!(bytes.starts_with(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12"), "{bytes:x?}");
    assert_eq!(decoded(&bytes), Some(status));
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
    let bytes = document(partial.to_string().as_bytes()).expect("metadata");
    let stored = open_stored(&bytes).expect("an envelope").expect("is whole");
    assert_eq!((&*stored.api_version, &*stored.kind), ("meta.k8s.io/v1", "PartialObjectMetadata"));
    assert_eq!(metadata_messages().metadata(br#"{"name":"a"}"#).as_deref(), Some(&b"\x0a\x01a"[..]));
    for other in
        ["", "[]", "{}", r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#, r#"{"kind":"Foo","apiVersion":"a/v1"}"#]
    {
        assert_eq!(document(other.as_bytes()), None, "{other}");
    }
}
