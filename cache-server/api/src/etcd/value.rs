//! Decodes values: JSON unchanged, Kubernetes' protobuf and CBOR to JSON.
//!
//! INVARIANT: any bytes lead to JSON or an error, and errors contain no text of an object: they may reach logs.
//!
//! A protobuf value is what clients send as a protobuf body, at the version that kube-apiserver stores, which may be
//! another one than it serves. Versions with equal members are read as the version of the type
//! ([`ResourceType::equal_versions`]), and definitions at v1beta1 are converted. There is no conversion between others,
//! such as autoscaling/v1 and autoscaling/v2.
//!
//! kube-apiserver applies defaults at each read. It has stored nearly all of them; the others are filled in here, for
//! values in protobuf ([`defaults`]).
//!
//! Source: `pkg/server/options/encryptionconfig/config.go` in apiserver for values that are encrypted at rest.

use std::borrow::Cow;

use informer_core::wire::json::{Walk, string};

use super::{cbor, defaults, definition};
use crate::{
    object::{
        Object,
        draft::ordered,
        protobuf::{self, ProtobufError, StoredMessage},
        weight::Weight,
    },
    registry::ResourceType,
};

/// Reason why a value cannot be read. Contains nothing of an object but the names of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredValueError {
    /// Encrypted at rest: kube-apiserver runs with `--encryption-provider-config`.
    #[error("the value is encrypted at rest (provider {provider}), and only kube-apiserver has the key")]
    Encrypted {
        /// Provider, such as `aescbc`, `secretbox` or `kms`.
        provider: String,
    },
    /// An object of another type, or at a version that is not converted.
    #[error("the value is a {kind} of {api_version}, which is not read as {expected}")]
    OtherType {
        /// Kind of the value.
        kind: String,
        /// Its apiVersion.
        api_version: String,
        /// [`ResourceType::id`] and version of the type.
        expected: String,
    },
    /// Neither JSON nor Kubernetes' protobuf nor CBOR.
    #[error("the value cannot be decoded: {reason}")]
    Malformed {
        /// The reason, without text of the value.
        reason: &'static str,
    },
}

const TOO_HEAVY: &str = "the object has too many values";
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// Length of names that errors repeat: the longest apiVersion has a DNS subdomain as its group.
const NAME_BYTES_MAX: usize = 317;

/// Returns a value as the JSON of an object of `ty`. JSON is returned unchanged and not validated beyond its kind and
/// apiVersion; custom types may have any version of their group, which the caller replaces.
///
/// Cost: for JSON, a scan to the end of kind and apiVersion, which come first in the values of kube-apiserver and of this
/// server. For protobuf one copy, some 5 ns per byte of JSON; the table of messages is parsed at the first call.
///
/// # Errors
/// [`StoredValueError`].
pub fn decode_value<'a>(ty: &ResourceType, value: &'a [u8]) -> Result<Cow<'a, [u8]>, StoredValueError> {
    if let Some(message) = protobuf::open_stored(value) {
        let message = message.map_err(|error| malformed(error.reason()))?;
        return decode_message(ty, &message).map(Cow::Owned);
    }
    if let Some(sealed) = value.strip_prefix(ENCRYPTED) {
        let provider = sealed.split(|byte| *byte == b':').next().and_then(|name| std::str::from_utf8(name).ok());
        let provider = provider.filter(|name| is_name(name)).unwrap_or("unknown").to_owned();
        return Err(StoredValueError::Encrypted { provider });
    }
    if let Some(value) = value.strip_prefix(cbor::PREFIX) {
        return decode_cbor(ty, value).map(Cow::Owned);
    }
    match value.trim_ascii_start().first() {
        Some(b'{') => decode_json(ty, value),
        Some(_) => Err(malformed("neither JSON nor protobuf nor CBOR")),
        None => Err(malformed("it is empty")),
    }
}

/// Form of a value of the right type.
enum StoredForm {
    /// Members of the served version.
    Equal,
    /// A definition at [`definition::VERSION`].
    OldDefinition,
}

fn decode_message(ty: &ResourceType, message: &StoredMessage<'_>) -> Result<Vec<u8>, StoredValueError> {
    let refused = |error: ProtobufError| malformed(error.reason());
    match form(ty, &message.api_version, &message.kind)? {
        StoredForm::Equal => {
            let json = message.json(ty).map_err(refused)?;
            let filled = || defaults::fill(ty, serde_json::from_slice(&json).ok()?).map(|object| ordered(ty, object));
            Ok(defaults::concern(ty).then(filled).flatten().unwrap_or(json))
        }
        StoredForm::OldDefinition => converted(ty, message.object(definition::MESSAGE).map_err(refused)?),
    }
}

/// Returns an object in CBOR as JSON with the members in the order of custom resources: CBOR sorts them by length first.
fn decode_cbor(ty: &ResourceType, value: &[u8]) -> Result<Vec<u8>, StoredValueError> {
    let json = cbor::json(value).map_err(malformed)?;
    Weight::default().json(&json).map_err(|_| malformed(TOO_HEAVY))?;
    let json = decode_json(ty, &json)?;
    let object = serde_json::from_slice(&json).map_err(|_| malformed("no object"))?;
    Ok(ordered(ty, object))
}

/// Reads kind and apiVersion of a JSON object of a built-in type. The caller gives objects of custom types their own.
fn decode_json<'a>(ty: &ResourceType, value: &'a [u8]) -> Result<Cow<'a, [u8]>, StoredValueError> {
    if !ty.schema.builtin {
        return Ok(Cow::Borrowed(value));
    }
    let broken = |_| malformed("no JSON object");
    let (mut kind, mut api_version) = (None, None);
    let mut walk = Walk::new(value).map_err(broken)?;
    while (kind.is_none() || api_version.is_none())
        && let Some(key) = walk.key().map_err(broken)?
    {
        let place = match () {
            () if key.is("kind") => &mut kind,
            () if key.is("apiVersion") => &mut api_version,
            () => continue,
        };
        *place = value.get(walk.value().map_err(broken)?).and_then(string);
    }
    let (Some(kind), Some(api_version)) = (kind, api_version) else {
        return Err(malformed("no kind or no apiVersion"));
    };
    match form(ty, &api_version, &kind)? {
        StoredForm::Equal => Ok(Cow::Borrowed(value)),
        StoredForm::OldDefinition => {
            Weight::default().json(value).map_err(|_| malformed(TOO_HEAVY))?;
            let object = serde_json::from_slice(value).map_err(|_| malformed("no JSON object"))?;
            converted(ty, object).map(Cow::Owned)
        }
    }
}

fn converted(ty: &ResourceType, mut object: Object) -> Result<Vec<u8>, StoredValueError> {
    definition::convert(&mut object).map_err(|_| malformed(TOO_HEAVY))?;
    Ok(ordered(ty, object))
}

/// Returns how objects of this apiVersion and kind are read as objects of `ty`.
fn form(ty: &ResourceType, api_version: &str, kind: &str) -> Result<StoredForm, StoredValueError> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if ty.schema.builtin && kind == ty.kind && group == ty.group {
        if version == ty.version || ty.equal_versions.contains(&version) {
            return Ok(StoredForm::Equal);
        }
        if ty.defines_types && version == definition::VERSION {
            return Ok(StoredForm::OldDefinition);
        }
    }
    if !is_name(kind) || !api_version.split('/').all(is_name) {
        return Err(malformed("kind and apiVersion are no names"));
    }
    Err(StoredValueError::OtherType {
        kind: kind.to_owned(),
        api_version: api_version.to_owned(),
        expected: format!("{} {}", ty.id(), ty.version),
    })
}

/// Returns true for texts that cannot be but the name of a kind, a group, a version or a provider.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain)
}

const fn malformed(reason: &'static str) -> StoredValueError {
    StoredValueError::Malformed { reason }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Instant};

    use serde_json::Value;

    use super::*;
    use crate::registry::Registry;

    /// Folder of Kubernetes' own round-trip data: `testdata/HEAD` of the Go module k8s.io/api.
    const TESTDATA: &str = "KUBERNETES_TESTDATA";

    fn type_of(id: &str) -> std::sync::Arc<ResourceType> {
        Registry::builtin().by_id(id).expect(id)
    }

    /// Encodes a field of bytes, with a number below 16.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len();
        let mut field = vec![number << 3 | 2];
        if length > 0x7f {
            field.push(0x80 | u8::try_from(length & 0x7f).expect("seven bits"));
        }
        field.push(u8::try_from(if length > 0x7f { length >> 7 } else { length }).expect("below 16 KiB"));
        [&field, bytes].concat()
    }

    fn protobuf(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let ty = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0", &*field(1, &ty), &field(2, raw)].concat()
    }

    /// Removes nulls, which this server omits where Go writes them for unset times and lists.
    fn without_nulls(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|_, value| !value.is_null());
                members.values_mut().for_each(without_nulls);
            }
            Value::Array(items) => items.iter_mut().for_each(without_nulls),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn json_is_returned_unchanged() {
        let pods = type_of("pods");
        for value in [
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}"#,
            " \n{\"metadata\":{\"name\":\"p\"},\"apiVersion\":\"v1\",\"kind\":\"Pod\"}",
        ] {
            assert!(
                matches!(decode_value(&pods, value.as_bytes()), Ok(Cow::Borrowed(same)) if same == value.as_bytes())
            );
        }
        let thing = br#"{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"t"}}"#;
        assert!(matches!(decode_value(&super::super::tests::custom(), thing), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn protobuf_becomes_json_of_the_served_version() {
        let metadata = field(1, &[field(1, b"p"), field(3, b"n")].concat());
        let decoded = |id: &str, value: &[u8]| {
            String::from_utf8(decode_value(&type_of(id), value).expect("is decoded").into_owned()).expect("UTF-8")
        };
        assert_eq!(
            decoded("pods", &protobuf("v1", "Pod", &metadata)),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n"}}"#
        );
        let policies = "mutatingadmissionpolicies.admissionregistration.k8s.io";
        assert_eq!(
            decoded(policies, &protobuf("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy", &metadata)),
            r#"{"kind":"MutatingAdmissionPolicy","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"p","namespace":"n"}}"#,
            "kube-apiserver 1.36 stores it at v1beta1"
        );
    }

    /// Goal: a value in CBOR is read like the same object in JSON, with its members in order. Method: texts as byte
    /// strings, as kube-apiserver writes them.
    #[test]
    fn cbor_becomes_json() {
        let thing = super::super::tests::custom();
        let value = [
            &b"\xd9\xd9\xf7\xa4\x44kind\x45Thing\x44spec\xa2\x41b\xf5\x42aa\x82\x01\x22"[..],
            b"\x48metadata\xa1\x44name\x41t\x4aapiVersion\x4eexample.com/v1",
        ];
        let decoded = decode_value(&thing, &value.concat()).expect("is decoded").into_owned();
        assert_eq!(
            String::from_utf8(decoded).expect("UTF-8"),
            r#"{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"name":"t"},"spec":{"aa":[1,-3],"b":true}}"#
                .to_owned()
                + "\n"
        );
        let error = decode_value(&thing, b"\xd9\xd9\xf7\x80").expect_err("is no object").to_string();
        assert!(error.contains("decoded: no object"), "{error}");
    }

    /// Goal: fields in any order are read. Method: fields that gogo/protobuf writes once and in order, twice and in
    /// another one.
    #[test]
    fn messages_of_other_writers_are_merged() {
        let raw = [
            field(2, &field(10, b"node")),
            field(1, &field(1, b"p")),
            field(1, &[field(3, b"n"), field(11, &field(1, b"b")), field(11, &field(1, b"a"))].concat()),
        ];
        let value = protobuf("v1", "Pod", &raw.concat());
        let decoded: Value =
            serde_json::from_slice(&decode_value(&type_of("pods"), &value).expect("is decoded")).expect("JSON");
        let expected = serde_json::json!({"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "node"},
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "", "b": ""}}});
        assert_eq!(decoded, expected);
    }

    /// Goal: an operator can tell from the error what to do, and errors contain nothing of the object. Method: a table
    /// of values.
    #[test]
    fn other_values_are_refused_by_name() {
        let scalers = "horizontalpodautoscalers.autoscaling";
        let table: [(&str, &[u8], &str); 14] = [
            ("secrets", b"k8s:enc:aescbc:v1:key1:\x00\x01", "encrypted at rest (provider aescbc)"),
            ("secrets", b"k8s:enc:kms:v2:vault:\x00", "encrypted at rest (provider kms)"),
            ("secrets", b"k8s:enc:\xff\x00", "encrypted at rest (provider unknown)"),
            (
                scalers,
                &protobuf("autoscaling/v1", "HorizontalPodAutoscaler", b""),
                "a HorizontalPodAutoscaler of autoscaling/v1, which is not read as horizontalpodautoscalers.autoscaling v2",
            ),
            (
                scalers,
                br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1"}"#,
                "of autoscaling/v1, which",
            ),
            ("events", &protobuf("events.k8s.io/v1", "Event", b""), "a Event of events.k8s.io/v1, which is not read"),
            ("pods", &protobuf("v1", "Secret", b""), "a Secret of v1, which is not read as pods v1"),
            ("pods", &protobuf("v1", "pass word", b""), "decoded: kind and apiVersion are no names"),
            ("pods", b"", "decoded: it is empty"),
            ("pods", b"k8s\0\x0a\x7f", "decoded: the protobuf message is truncated"),
            ("pods", &protobuf("v1", "Pod", &[0x08, 1]), "decoded: no such protobuf message"),
            ("pods", b"{}", "decoded: no kind or no apiVersion"),
            ("pods", b"{\"kind", "decoded: no JSON object"),
            ("pods", b"\xd9\xd9\xf7\xa0", "decoded: no kind or no apiVersion"),
        ];
        for (id, value, text) in table {
            let error = decode_value(&type_of(id), value).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
        let value = protobuf("v1", "Pod", b"");
        let error = decode_value(&super::super::tests::custom(), &value).expect_err("is protobuf").to_string();
        assert!(error.contains("a Pod of v1, which is not read as things.example.com v1"), "{error}");
    }

    /// Goal: any bytes lead to JSON or an error, by both decoders alike. Method: for every type, messages of random
    /// fields, and valid values with random changes.
    #[test]
    fn random_bytes_lead_to_json_or_an_error() {
        let mut random = fastrand::Rng::with_seed(14);
        let registry = Registry::builtin();
        for ty in registry.iter() {
            for _ in 0..100 {
                let mut raw = Vec::new();
                for _ in 0..random.usize(..12) {
                    let inner: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..0x20)).collect();
                    raw.extend(field(random.u8(1..15), &field(random.u8(1..15), &inner)));
                }
                let mut value = protobuf(ty.api_version(), &ty.kind, &raw);
                check_both(ty, &value);
                for _ in 0..random.usize(..4) {
                    let at = random.usize(..value.len());
                    value[at] = random.u8(..);
                }
                value.truncate(random.usize(..value.len() + 1).max(value.len() / 2));
                check_both(ty, &value);
            }
        }
    }

    /// Asserts that a value and the body of a request with equal bytes are equal objects, or neither is an object.
    fn check_both(ty: &ResourceType, value: &[u8]) {
        match decode_value(ty, value) {
            Ok(decoded) => {
                let decoded: Value = serde_json::from_slice(&decoded).expect("JSON");
                assert_eq!(decoded["kind"], *ty.kind);
                let body = protobuf::read(value, "", "").expect("both decode it");
                if body["apiVersion"] == ty.api_version() {
                    let filled = defaults::fill(ty, body.clone()).unwrap_or(body);
                    assert_eq!(decoded, Value::Object(filled));
                }
            }
            Err(StoredValueError::Malformed { .. }) if value.starts_with(b"k8s\0") => {
                let is_type = |body: Object| body["kind"] == *ty.kind && body["apiVersion"] == ty.api_version();
                let is_read = protobuf::read(value, "", "").is_ok_and(is_type);
                assert!(!is_read, "only one decodes it: {value:?}");
            }
            Err(_) => {}
        }
    }

    /// Goal: every field of every type is read as Go reads it. Method: Kubernetes' round-trip data, objects with all
    /// fields set as protobuf and as JSON.
    #[test]
    #[ignore = "needs KUBERNETES_TESTDATA, a folder of the Go module k8s.io/api"]
    fn values_with_every_field_are_read() {
        let folder = std::env::var_os(TESTDATA).expect(TESTDATA);
        let (registry, mut read) = (Registry::builtin(), Vec::new());
        for ty in registry.iter() {
            let group = if ty.group.is_empty() { "core" } else { &ty.group };
            let old = ty.defines_types.then_some(definition::VERSION);
            for version in ty.equal_versions.iter().copied().chain([&*ty.version]).chain(old) {
                let file =
                    |end: &str| fs::read(Path::new(&folder).join(format!("{group}.{version}.{}.{end}", ty.kind)));
                let (Ok(value), Ok(json)) = (file("pb"), file("json")) else { continue };
                let decoded = decode_value(ty, &value).unwrap_or_else(|error| panic!("{} {version}: {error}", ty.id()));
                let mut decoded: Value = serde_json::from_slice(&decoded).expect("JSON");
                let mut expected: Value = serde_json::from_slice(&json).expect("JSON");
                if Some(version) == old {
                    definition::convert(expected.as_object_mut().expect("an object")).expect("is small");
                }
                if let Some(filled) = defaults::fill(ty, expected.as_object().expect("an object").clone()) {
                    expected = Value::Object(filled);
                }
                expected["apiVersion"] = ty.api_version().into();
                without_nulls(&mut decoded);
                without_nulls(&mut expected);
                assert_eq!(decoded, expected, "{} {version}", ty.id());
                read.push(format!("{} {version}", ty.id()));
            }
        }
        println!("{} kinds: {read:?}", read.len());
        assert!(!read.is_empty());
    }

    /// Prints the time per value of `KUBERNETES_TESTDATA`'s pod or another file, with the two other ways to read it.
    #[test]
    #[ignore = "measures; needs VALUE, a file with a protobuf pod"]
    fn time_of_a_pod() {
        const ROUNDS: u32 = 20_000;
        let value = fs::read(std::env::var_os("VALUE").expect("VALUE")).expect("a file");
        let pods = type_of("pods");
        let time = |name: &str, read: &dyn Fn() -> usize| {
            let (begun, bytes) = (Instant::now(), (0..ROUNDS).map(|_| read()).sum::<usize>() / ROUNDS as usize);
            println!("{name}: {} ns, {bytes} bytes of JSON", begun.elapsed().as_nanos() / u128::from(ROUNDS));
        };
        println!("{} bytes of protobuf", value.len());
        time("text", &|| decode_value(&pods, &value).expect("is decoded").len());
        time("values", &|| {
            let object = protobuf::read(&value, "", "").expect("is decoded");
            serde_json::to_vec(&object).expect("JSON").len()
        });
        let text = decode_value(&pods, &value).expect("is decoded");
        time("draft", &|| watch_cache::Draft::new(&pods.schema, &text).expect("an object").len());
    }
}
