//! Plain replacements beside those of decoded bodies.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        body::read_valid,
        draft::bounded_draft,
        metadata::match_namespace,
        options::{FieldValidation, Options},
        update::{ChangedObject, RequestedChange, SentObject, UpdatePlan, plan, requested},
    },
    *,
};
use crate::registry::Registry;

const JSON: &str = "application/json";

/// Longest object that the drafts may have.
const BYTES_MAX: usize = 1 << 20;

/// A stored object, and the registry with its type.
struct Stored {
    registry: Registry,
    ty: Arc<ResourceType>,
    entry: Arc<Entry>,
}

/// The outcome of a replacement.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused,
    Warned,
    Unchanged,
    /// The stored text.
    Changed(String),
}

impl Stored {
    fn new(group: &str, plural: &str, object: &Value) -> Self {
        let registry = Registry::builtin();
        let ty = registry.find(group, "v1", plural).expect("a built-in type");
        let draft = bounded_draft(&ty, object.as_object().expect("an object"), BYTES_MAX).expect("a valid object");
        Self { registry, ty, entry: draft.commit_update(7) }
    }

    /// The same text as etcd returns it: without the mark of its writer.
    fn unmarked(mut self) -> Self {
        self.entry = Draft::new(&self.ty.schema, self.entry.object_text()).expect("an object").commit_update(7);
        assert!(!self.entry.is_normal());
        self
    }

    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { ty: &self.ty, namespace: "ns", name: "a", part: Part::Main }
    }

    /// Replaces the object by the decoded body.
    fn decoded(&self, content_type: &str, body: &[u8]) -> Outcome {
        let Self { registry, ty, entry } = self;
        let (mut warnings, content_type) = (Vec::new(), Some(content_type));
        let read = || {
            let mut object = read_valid(registry, ty, content_type, body, FieldValidation::Warn, &mut Vec::new())?;
            match_namespace(ty, "ns", &mut object)?;
            self.target().match_name(&object)?;
            Ok(object)
        };
        let stored = serde_json::from_slice(&entry.object()).expect("a stored object");
        let next = read_valid(registry, ty, content_type, body, FieldValidation::Warn, &mut warnings).and_then(|_| {
            let sent = RequestedChange::Replace(SentObject::new(read()?, &read));
            let stored = ChangedObject { object: &stored, sealed: None };
            let next = requested(&self.target(), stored, &sent, Options::default(), "", &mut Vec::new())?;
            plan(&self.target(), stored, &sent, next)
        });
        match next {
            Ok(_) if !warnings.is_empty() => Outcome::Warned,
            Ok(UpdatePlan::Keep) => Outcome::Unchanged,
            Ok(UpdatePlan::Put(next)) => bounded_draft(ty, &next, BYTES_MAX).map_or(Outcome::Refused, changed),
            Ok(UpdatePlan::Delete(_)) | Err(_) => Outcome::Refused,
        }
    }

    /// Replaces the object without decoding the body.
    fn plain(&self, body: &[u8]) -> Option<Outcome> {
        self.plain_as(JSON, body)
    }

    fn plain_as(&self, content_type: &str, body: &[u8]) -> Option<Outcome> {
        let request = WriteRequest {
            ty: &self.ty,
            namespace: Some("ns"),
            name: Some("a"),
            subresource: None,
            query: &[],
            content_type: Some(content_type),
            body,
        };
        let stored = NormalEntry::of(&self.ty, Arc::clone(&self.entry))?;
        let draft = PlainObject::read(&self.ty, &text(&request)?)?.succeed(&self.target(), &stored)?;
        Some(if draft.same_content(&self.entry) { Outcome::Unchanged } else { changed(draft) })
    }

    /// Asserts that a plain body leads to the outcome of the decoded one. Returns true if it is plain.
    fn assert_equal(&self, body: &[u8]) -> bool {
        self.assert_equal_as(JSON, body)
    }

    fn assert_equal_as(&self, content_type: &str, body: &[u8]) -> bool {
        let plain = self.plain_as(content_type, body);
        if let Some(plain) = &plain {
            assert_eq!(*plain, self.decoded(content_type, body), "{}", String::from_utf8_lossy(body));
        }
        plain.is_some()
    }
}

/// Describes all that an entry of the draft has.
fn changed(draft: Draft) -> Outcome {
    let key = draft.key().to_owned();
    let entry = draft.commit_update(8);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let spans = [&*entry.metadata(), &entry.digits(), entry.uid().as_bytes(), entry.name().as_bytes()].map(text);
    assert!(entry.is_normal());
    Outcome::Changed(format!("{key} {} {spans:?} {:?}", text(&entry.object()), entry.label("app")))
}

fn lease() -> Stored {
    Stored::new(
        "coordination.k8s.io",
        "leases",
        &json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "x"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}, "spec": {"holderIdentity": "h"}}),
    )
}

fn config_map() -> Stored {
    Stored::new(
        "",
        "configmaps",
        &json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z"}, "data": {"k": "v"}}),
    )
}

fn endpoints() -> Stored {
    Stored::new(
        "",
        "endpoints",
        &json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7"}, "subsets": [{"ports": [{"port": 1}]}]}),
    )
}

/// A body of a Lease in the order of Go's encoder.
const LEASE: &str = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u1","resourceVersion":"7","creationTimestamp":null,"labels":{"b/c":"","app":"y"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u2","controller":true}],"managedFields":[{"manager":"k","operation":"Update","fieldsV1":{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"u2\"}":{}}},"f:spec":{"f:b":{},".":{}}}}]},"spec":{"holderIdentity":"h","leaseDurationSeconds":40,"acquireTime":null,"renewTime":"2026-01-01T00:00:00.000000Z"}}"#;

/// Goal: bodies that clients send lead to the text of their decoded form, without decoding. Method: a table of stored
/// object and body.
#[test]
fn usual_bodies_are_plain() {
    let of_lease = |metadata: &str, spec: &str| {
        format!(r#"{{"metadata":{{"name":"a","resourceVersion":"7"{metadata}}},"spec":{{{spec}}}}}"#)
    };
    for (stored, body) in [
        (lease(), LEASE.to_owned()),
        (lease(), LEASE.replace(r#""h""#, "\"h\u{e4}\u{7f}\"")),
        (lease(), LEASE.replace(['\n', ','], " ,\r\n\t")),
        (lease(), LEASE.replace(r#""h""#, r#""\"\\\b\f\n\r\t""#)),
        (lease(), LEASE.replace(r#""app":"y""#, r#""a\\b":"y","a\"b":"y","a!b":"y","a\nb":"y","a\tb":"""#)),
        (lease(), of_lease("", "")),
        (lease(), of_lease(r#","labels":{"app":"x"}"#, r#""holderIdentity":"h""#)),
        (lease(), of_lease(r#","uid":"","namespace":"","selfLink":"/x""#, "")),
        (lease(), of_lease(r#","labels":{},"finalizers":[],"annotations":null"#, r#""leaseTransitions":-1"#)),
        (lease(), of_lease(r#","finalizers":["x/y"],"annotations":{"z":"1","a":"2"}"#, r#""renewTime":"t""#)),
        (config_map(), r#"{"data":{"z":"","a":"b"},"metadata":{"generation":9,"resourceVersion":"7","name":"a"}}"#.to_owned()),
        (config_map(), r#"{"data":{"k":"v"},"metadata":{"resourceVersion":"7","name":"a"}} "#.to_owned()),
        (config_map(), r#"{"immutable":false,"data":{},"kind":null,"metadata":{"resourceVersion":"7","name":"a"}}"#.to_owned()),
        (
            endpoints(),
            r#"{"subsets":[{"ports":[{"port":80,"name":"b"}],"addresses":[{"ip":"1.1.1.1","targetRef":{}}],"notReadyAddresses":[]}],"metadata":{"resourceVersion":"7","name":"a"}}"#
                .to_owned(),
        ),
    ] {
        assert!(stored.assert_equal(body.as_bytes()), "{body}");
        assert!(stored.unmarked().assert_equal(body.as_bytes()), "{body}");
    }
    let unchanged = br#"{"data":{"k":"v"},"metadata":{"resourceVersion":"7","name":"a"}}"#;
    assert_eq!(config_map().plain(unchanged), Some(Outcome::Unchanged));
    assert_eq!(config_map().unmarked().plain(unchanged), Some(Outcome::Unchanged));
}

/// Goal: an object that another program stored is decoded unless its text is the one that is written here. Method:
/// texts of one object, as Go's encoder and others write them.
#[test]
fn only_texts_as_they_are_written_here_are_normal() {
    let ty = config_map().ty;
    let stored = |object: &str| Draft::new(&ty.schema, object.as_bytes()).expect("an object").commit(7);
    let metadata = r#""metadata":{"name":"a","namespace":"ns","resourceVersion":"","uid":"u1"}"#;
    for (object, expected) in [
        (format!(r#"{{"data":{{"a":"b","k":"v"}},{metadata}}}"#), true),
        (format!(r#"{{ "data": {{"a": "b"}}, {metadata} }}"#), true),
        (format!(r#"{{"data":{{"k":"v","a":"b"}},{metadata}}}"#), false),
        (format!(r#"{{{metadata},"data":{{"a":"b"}}}}"#), false),
        (format!(r#"{{"data":{{"a":"\u0062"}},{metadata}}}"#), false),
        (format!(r#"{{"data":{{}},{metadata}}}"#), false),
        (format!(r#"{{"data":null,{metadata}}}"#), false),
        (format!(r#"{{"unknown":1,{metadata}}}"#), false),
        (r#"{"metadata":{"namespace":"ns","name":"a","resourceVersion":"","uid":"u1"}}"#.to_owned(), false),
    ] {
        assert_eq!(NormalEntry::of(&ty, stored(&object)).is_some(), expected, "{object}");
    }
}

/// Goal: the first update of an object is plain, too. Method: an object as a create stores it, without a resourceVersion.
#[test]
fn a_created_object_is_replaced_without_decoding() {
    let metadata = json!({"name": "a", "namespace": "ns", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let created = Stored::new("", "configmaps", &json!({ "metadata": metadata, "data": {"k": "v"} }));
    assert!(created.assert_equal(br#"{"data":{"k":"w"},"metadata":{"resourceVersion":"7","name":"a"}}"#));
}

/// Goal: bodies with anything unusual are decoded. Method: a table of changes to a plain body.
#[test]
fn members_that_decoded_objects_lose_are_not_plain() {
    for (member, value) in [("generation", json!(0)), ("generation", json!(-1)), ("managedFields", json!([{}]))] {
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u1", member: value});
        let stored = Stored::new("", "configmaps", &json!({ "metadata": metadata }));
        let body = br#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}"#;
        assert!(stored.plain(body).is_none(), "{member}");
    }
}

#[test]
fn unusual_bodies_are_not_plain() {
    let stored = lease();
    let with = |from: &str, to: &str| {
        assert!(LEASE.contains(from), "{from}");
        LEASE.replacen(from, to, 1).into_bytes()
    };
    let spec = |value: &str| with(r#""leaseDurationSeconds":40"#, value);
    let deep = format!("{}{}", r#"{"a":"#.repeat(40), "1".to_owned() + &"}".repeat(40));
    for body in [
        with(r#""resourceVersion":"7""#, r#""resourceVersion":"6""#),
        with(r#""resourceVersion":"7","#, ""),
        with(r#""resourceVersion":"7""#, r#""resourceVersion":7"#),
        with(r#""name":"a""#, r#""name":"b""#),
        with(r#""name":"a","#, ""),
        with(r#""namespace":"ns""#, r#""namespace":"other""#),
        with(r#""uid":"u1""#, r#""uid":"u2""#),
        with(r#""uid":"u1""#, r#""uid":"u1","uid":"u1""#),
        with(r#""uid":"u1""#, r#""uid":"u1","deletionTimestamp":"2026-01-01T00:00:00Z""#),
        with(r#""uid":"u1""#, r#""uid":"\u00751""#),
        with(r#""uid":"u1""#, r#""\u0075id":"u1""#),
        with(r#":"h""#, r#":"\/""#),
        with(r#":"h""#, r#":"\u00e4""#),
        with(r#":"h""#, r#":"\x""#),
        with(r#""kind":"Lease""#, r#""kind":"Pod""#),
        with(r#""kind":"Lease""#, r#""kind":"""#),
        with("coordination.k8s.io/v1", "v1"),
        with(r#""labels":{"#, r#""labels":{"n":null,"#),
        with(r#""labels":{"#, r#""labels":{"app":"z","#),
        with(r#""labels":{"#, r#""labels":{"a\"":"z","a\"":"","#),
        with(r#""metadata":{"#, r#""status":{},"metadata":{"#),
        with(r#""metadata":{"#, r#""metadata":null,"metadata":{"#),
        with(r#"[{"manager""#, r#"[null,{"manager""#),
        with(r#"{"f:b":{}"#, r#"{"f:b":{},"f:b":{}"#),
        with(r#"{"f:b":{}"#, &format!(r#"{{"f:b":{deep}"#)),
        spec(r#""leaseDurationSeconds":40.0"#),
        spec(r#""leaseDurationSeconds":4e1"#),
        spec(r#""leaseDurationSeconds":-0"#),
        spec(r#""leaseDurationSeconds":040"#),
        spec(r#""leaseDurationSeconds":3000000000"#),
        spec(r#""leaseDurationSeconds":12345678901234567890"#),
        spec(r#""leaseDurationSeconds":"40""#),
        spec(r#""leaseDurationSeconds":40,"leaseDurationSeconds":null"#),
        spec(r#""leaseDuration":40"#),
        with(r#":"h""#, ":\"a\nb\""),
        [b"\xef\xbb\xbf", LEASE.as_bytes()].concat(),
        [LEASE.as_bytes(), b"{}"].concat(),
        LEASE.as_bytes()[1..].to_vec(),
        LEASE.as_bytes()[..LEASE.len() - 1].to_vec(),
        [&LEASE.as_bytes()[..LEASE.len() - 4], b"\xff\"}}"].concat(),
        LEASE
            .replace(r#"[{"manager":"k","operation":"Update","fieldsV1":{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"u2\"}":{}}},"f:spec":{"f:b":{},".":{}}}}]"#, "[{}]")
            .into_bytes(),
        b"".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
    ] {
        assert_eq!(stored.plain(&body), None, "{}", String::from_utf8_lossy(&body));
    }
}

/// Goal: no body leads to another result than its decoded form, and none with an error or a complaint is plain. Method:
/// random changes of plain bodies, with a fixed seed.
#[test]
fn plain_bodies_lead_to_what_their_decoded_form_leads_to() {
    const TOKENS: [&str; 36] = [
        "null",
        "true",
        "{}",
        "[]",
        "\"\"",
        "1",
        "-1",
        "-0",
        "1.0",
        "1e3",
        "99999999999",
        "\\u0041",
        "\\\"",
        " ",
        "\n",
        "\u{1}",
        "\u{e4}",
        ",",
        ":",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\"a\":1,",
        "\"app\":\"q\",",
        "\"labels\":{},",
        "\"uid\":\"u1\",",
        "\"spec\":{},",
        "\"finalizers\":[\"f\"],",
        "\"generation\":3,",
        "\"managedFields\":[{}],",
        "\"selfLink\":\"\",",
        "\"deletionGracePeriodSeconds\":0,",
        "\"namespace\":\"ns\",",
        "\"creationTimestamp\":null,",
    ];
    let map = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"k":"v","b":"w"},"immutable":true,"metadata":{"name":"a","namespace":"ns","resourceVersion":"7","annotations":{"x":"y"}}}"#;
    let ports = r#"{"subsets":[{"ports":[{"port":80,"name":"b"}],"addresses":[{"ip":"1.1.1.1","targetRef":{"kind":"Pod"}}]}],"metadata":{"resourceVersion":"7","name":"a"}}"#;
    let mut random = fastrand::Rng::with_seed(17);
    let mut plain = 0;
    for (stored, body) in [(lease(), LEASE), (config_map().unmarked(), map), (endpoints(), ports)] {
        assert!(stored.assert_equal(body.as_bytes()));
        for _ in 0..10_000 {
            let mut body = body.as_bytes().to_vec();
            for _ in 0..random.usize(1..3) {
                let at = random.usize(..body.len());
                let token = TOKENS[random.usize(..TOKENS.len())].as_bytes();
                // Changes that keep the grammar are likely next to a brace, a comma or a colon.
                let at = body[at..]
                    .iter()
                    .position(|byte| matches!(byte, b'{' | b',' | b':'))
                    .map_or(at, |after| at + after + 1);
                let removed = if random.bool() { 0 } else { random.usize(..8).min(body.len() - at) };
                body.splice(at..at + removed, token.iter().copied());
            }
            plain += usize::from(stored.assert_equal(&body));
        }
    }
    assert!(plain > 500, "{plain} of the changed bodies are plain");
}

/// Encodes a field of bytes. Numbers must be below 16 here.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (low, high) = (bytes.len() & 0x7f, bytes.len() >> 7);
    let length = [u8::try_from(low).expect("seven bits"), u8::try_from(high).expect("a short field")];
    let length = if high == 0 { vec![length[0]] } else { vec![0x80 | length[0], length[1]] };
    [&[number << 3 | 2][..], &length, bytes].concat()
}

/// A renewal as nodes send it: protobuf of a Lease, with an owner and managedFields.
fn renewal(version: &str) -> Vec<u8> {
    let owner = [field(1, b"Node"), field(3, b"n"), field(4, b"u2"), field(5, b"v1")].concat();
    let fields = field(1, br#"{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u2\"}":{},".":{}}}}"#);
    let manager = [field(1, b"kubelet"), field(2, b"Update"), field(6, b"FieldsV1"), field(7, &fields)].concat();
    let label = field(11, &[field(1, b"app"), field(2, b"x")].concat());
    let metadata = [
        field(1, b"a"),
        field(3, b"ns"),
        field(5, b"u1"),
        field(6, version.as_bytes()),
        field(8, b"\x08\x80\x92\xda\xca\x06"),
        label,
        field(13, &owner),
    ];
    // Numbers of 16 and more have two bytes: managedFields is 17.
    let managed = [&[0x8a, 0x01][..], &field(0, &manager)[1..]].concat();
    let spec = [field(1, b"h"), vec![2 << 3, 40], field(4, b"\x08\x80\x92\xda\xca\x06\x10\x80\x04")].concat();
    let raw = [field(1, &[metadata.concat(), managed].concat()), field(2, &spec)].concat();
    let type_meta = [field(1, b"coordination.k8s.io/v1"), field(2, b"Lease")].concat();
    [b"k8s\0", &field(1, &type_meta)[..], &field(2, &raw)].concat()
}

/// Goal: a node's renewal is plain, and no protobuf leads to another result than its decoded form. Method: a renewal, and
/// random changes of its bytes, with a fixed seed.
#[test]
fn a_nodes_renewal_is_plain() {
    const PROTOBUF: &str = protobuf::MEDIA_TYPE;
    let stored = lease();
    assert!(stored.assert_equal_as(PROTOBUF, &renewal("7")));
    let Some(Outcome::Changed(next)) = stored.plain_as(PROTOBUF, &renewal("7")) else { panic!("no change") };
    assert!(next.contains(r#""leaseDurationSeconds":40,"renewTime":"2026-"#), "{next}");
    assert_eq!(stored.plain_as(PROTOBUF, &renewal("6")), None, "another version");
    assert_eq!(config_map().plain_as(PROTOBUF, &renewal("7")), None, "another type");
    assert_eq!(stored.plain_as(JSON, &renewal("7")), None);
    assert_eq!(stored.plain_as("application/yaml", LEASE.as_bytes()), None);
    let (mut random, mut plain) = (fastrand::Rng::with_seed(18), 0);
    for _ in 0..20_000 {
        let mut body = renewal("7");
        for _ in 0..random.usize(1..3) {
            let at = random.usize(..body.len());
            body[at] = if random.bool() { random.u8(..) } else { body[at] ^ 1 << random.u8(..8) };
        }
        plain += usize::from(stored.assert_equal_as(PROTOBUF, &body));
    }
    assert!(plain > 500, "{plain} of the changed bodies are plain");
}
