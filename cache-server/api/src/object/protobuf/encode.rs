//! Encodes JSON as messages, by the table that decodes them.
//!
//! INVARIANT: one pass over the text, which builds no values. Equal texts give equal bytes, and a member that the
//! message does not have costs nothing but its text.
//!
//! As in kube-apiserver, unknown members are dropped, and so are values of another type than their field's, which
//! kube-apiserver would not store. Fields come in the order of the text; a message whose members are inlined is written
//! once for each of them. Decoders accept any order, and merge.
//!
//! Source: the marshallers that gogo/protobuf generates for Kubernetes; the sources of the parent module.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::protobuf::{BYTES, VARINT, put_bytes, put_tag, put_varint, varint_len};
use serde::de::{
    DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
    value::{MapAccessDeserializer, SeqAccessDeserializer},
};
use serde_json::value::RawValue;

use super::{
    message::{Label, Message, MessageField, Scalar, Type},
    special::{self, SpecialMessage},
    table,
};

/// Wire type of doubles.
const FIXED64: u32 = 1;

/// Appends the fields of the object in `json`, but for the member `without`.
///
/// # Errors
/// For text that serde does not read: a half of a surrogate pair, a field nested above 127, and a field's number beyond
/// doubles. `out` then has an incomplete end.
pub(crate) fn encode(
    message: &'static Message,
    json: &[u8],
    without: &'static str,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    serde_json::Deserializer::from_slice(json).deserialize_map(Members { message, without, out })
}

/// Replaces each escaped half of a surrogate pair by U+FFFD, as Go does. Returns text of equal length.
pub(super) fn whole_surrogates(json: &[u8]) -> Vec<u8> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut text = json.to_vec();
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\\')) {
        at += found;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                text[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            _ => 2,
        };
    }
    text
}

/// Writes the fields of an object.
struct Members<'a> {
    message: &'static Message,
    /// Name of a member that is left out; empty for none.
    without: &'static str,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { message, without, out } = self;
        while let Some(named) = members.next_key_seed(MemberName(message))? {
            match named.filter(|(_, field)| without.is_empty() || field.name != without) {
                Some((path, field)) => {
                    let begun: Vec<usize> = path.iter().map(|&number| begin(number, out)).collect();
                    members.next_value_seed(FieldWriter::of(field, out))?;
                    begun.into_iter().rev().for_each(|start| end(start, out));
                }
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Finds the field of a member.
struct MemberName(&'static Message);

impl<'de> DeserializeSeed<'de> for MemberName {
    type Value = Option<(&'static [u32], &'static MessageField)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberName {
    type Value = Option<(&'static [u32], &'static MessageField)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.member(name))
    }
}

/// Writes one value with the tag of its field.
struct FieldWriter<'a> {
    number: u32,
    field: &'static MessageField,
    label: Label,
    /// True in lists and maps, where null is the zero value.
    keeps_null: bool,
    out: &'a mut Vec<u8>,
}

impl<'a> FieldWriter<'a> {
    fn of(field: &'static MessageField, out: &'a mut Vec<u8>) -> Self {
        Self { number: field.number, field, label: field.label, keeps_null: false, out }
    }

    /// One value in the list or map of a field.
    fn item(number: u32, field: &'static MessageField, out: &'a mut Vec<u8>) -> Self {
        Self { number, field, label: Label::Once, keeps_null: true, out }
    }

    /// The special form of the value, if it is one value.
    fn special(&self) -> Option<(SpecialMessage, &'static str)> {
        match (self.label, self.field.ty) {
            (Label::Once, Type::Special(name)) => special::kind(name).map(|kind| (kind, name)),
            (Label::Once | Label::Repeated | Label::Map | Label::Embedded, _) => None,
        }
    }

    /// The scalar type of the value, if it is one value.
    fn scalar(&self) -> Option<Scalar> {
        match (self.label, self.field.ty) {
            (Label::Once, Type::Scalar(scalar)) => Some(scalar),
            (Label::Once | Label::Repeated | Label::Map | Label::Embedded, _) => None,
        }
    }

    /// Writes a message of one field.
    fn put_message(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = begin(self.number, self.out);
        write(self.out);
        end(start, self.out);
    }

    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "numbers are cut as Go cuts them")]
    fn put_integer(mut self, number: i64) {
        match (self.scalar(), self.special()) {
            (Some(Scalar::Int32), _) => self.put_number(i64::from(number as i32) as u64),
            (Some(Scalar::Int64), _) => self.put_number(number as u64),
            #[expect(clippy::cast_precision_loss, reason = "Go's conversion")]
            (Some(Scalar::Double), _) => self.put_double(number as f64),
            (_, Some((SpecialMessage::IntOrString, _))) => self.put_message(|out| {
                put_tag(2, VARINT, out);
                put_varint(i64::from(number as i32) as u64, out);
            }),
            (_, Some((SpecialMessage::Quantity, _))) => {
                self.put_message(|out| put_bytes(1, number.to_string().as_bytes(), out));
            }
            _ => {}
        }
    }

    fn put_number(&mut self, number: u64) {
        put_tag(self.number, VARINT, self.out);
        put_varint(number, self.out);
    }

    fn put_double(&mut self, number: f64) {
        put_tag(self.number, FIXED64, self.out);
        self.out.extend_from_slice(&number.to_bits().to_le_bytes());
    }

    /// Writes a text; nothing for text that is no value of the field.
    fn put_text(&mut self, text: &str) {
        match (self.scalar(), self.special()) {
            (Some(Scalar::String), _) => put_bytes(self.number, text.as_bytes(), self.out),
            (Some(Scalar::Bytes), _) => {
                if let Ok(bytes) = STANDARD.decode(text) {
                    put_bytes(self.number, &bytes, self.out);
                }
            }
            (_, Some((SpecialMessage::Quantity, _))) => self.put_message(|out| put_bytes(1, text.as_bytes(), out)),
            (_, Some((SpecialMessage::IntOrString, _))) => self.put_message(|out| {
                put_tag(1, VARINT, out);
                put_varint(1, out);
                put_bytes(3, text.as_bytes(), out);
            }),
            (_, Some((SpecialMessage::Time { micro }, _))) => {
                if let Some(since) = special::since_1970(text) {
                    self.put_message(|out| put_time(since, micro, out));
                }
            }
            _ => {}
        }
    }

    /// Writes the zero value of an item; nothing for other fields, which null leaves unset.
    fn put_null(&mut self) {
        match self.field.ty {
            _ if !self.keeps_null => {}
            Type::Scalar(Scalar::Bool | Scalar::Int32 | Scalar::Int64) => self.put_number(0),
            Type::Scalar(Scalar::Double) => self.put_double(0.0),
            Type::Scalar(Scalar::String | Scalar::Bytes) | Type::Message(_) | Type::Special(_) => {
                put_bytes(self.number, b"", self.out);
            }
        }
    }
}

/// Writes a time since 1970: whole seconds, or with microseconds.
#[expect(clippy::cast_sign_loss, reason = "negative numbers are sign-extended")]
fn put_time(since: jiff::SignedDuration, micro: bool, out: &mut Vec<u8>) {
    // Go's split: nanoseconds count upwards, also before 1970.
    let nanos = since.subsec_nanos().rem_euclid(1_000_000_000);
    let seconds = since.as_secs() - i64::from(since.subsec_nanos() < 0);
    // Written even at zero: an empty message is an unset time.
    put_tag(1, VARINT, out);
    put_varint(seconds as u64, out);
    let nanos = nanos / 1_000 * 1_000;
    if micro && nanos != 0 {
        put_tag(2, VARINT, out);
        put_varint(nanos as u64, out);
    }
}

impl<'de> DeserializeSeed<'de> for FieldWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        if !matches!(self.special(), Some((SpecialMessage::Raw, _))) {
            return deserializer.deserialize_any(self);
        }
        let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
        match raw.get() {
            "null" => self.put_null(),
            text => self.put_message(|out| put_bytes(1, text.as_bytes(), out)),
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for FieldWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.put_null();
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        match (self.scalar(), self.special()) {
            (Some(Scalar::Bool), _) => self.put_number(u64::from(value)),
            (_, Some((SpecialMessage::SchemaOrBool, _))) => self.put_message(|out| put_allows(value, out)),
            _ => {}
        }
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.put_integer(number);
        Ok(())
    }

    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.put_integer(number),
            Err(_) => self.put_text_of(&number),
        }
        Ok(())
    }

    fn visit_f64<E>(mut self, number: f64) -> Result<(), E> {
        if matches!(self.scalar(), Some(Scalar::Double)) {
            self.put_double(number);
        } else {
            self.put_text_of(&number);
        }
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.put_text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.label == Label::Repeated {
            while items.next_element_seed(FieldWriter::item(self.number, self.field, self.out))?.is_some() {}
            return Ok(());
        }
        let list = match self.special() {
            Some((SpecialMessage::ExtraValue, name)) => inner_field(name, 1),
            Some((SpecialMessage::SchemaOrList | SpecialMessage::SchemaOrTexts, name)) => inner_field(name, 2),
            Some(_) | None => None,
        };
        let Some(list) = list else { return IgnoredAny.visit_seq(items).map(drop) };
        self.put_inner(|out| FieldWriter::of(list, out).deserialize(SeqAccessDeserializer::new(items)))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.label == Label::Map {
            while let Some(key) = members.next_key::<std::borrow::Cow<'de, str>>()? {
                let start = begin(self.number, self.out);
                put_bytes(1, key.as_bytes(), self.out);
                members.next_value_seed(FieldWriter::item(2, self.field, self.out))?;
                end(start, self.out);
            }
            return Ok(());
        }
        match (self.label, self.field.ty, self.special()) {
            (Label::Once, Type::Message(name), _) => {
                let message = self.field.message(name);
                self.put_inner(|out| Members { message, without: "", out }.visit_map(members))
            }
            (_, _, Some((kind, name))) if kind.is_schema() => {
                let place = if kind == SpecialMessage::SchemaOrBool { 2 } else { 1 };
                let Some(schema) = inner_field(name, place) else { return IgnoredAny.visit_map(members).map(drop) };
                self.put_inner(|out| {
                    // A schema also allows: Go sets both.
                    if kind == SpecialMessage::SchemaOrBool {
                        put_allows(true, out);
                    }
                    FieldWriter::of(schema, out).deserialize(MapAccessDeserializer::new(members))
                })
            }
            _ => IgnoredAny.visit_map(members).map(drop),
        }
    }
}

impl FieldWriter<'_> {
    /// Writes a number that is no integer of the field: a quantity has its text.
    fn put_text_of(&mut self, number: &dyn fmt::Display) {
        if matches!(self.special(), Some((SpecialMessage::Quantity, _))) {
            self.put_text(&number.to_string());
        }
    }

    /// Writes a message of the field.
    fn put_inner<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = begin(self.number, self.out);
        write(self.out)?;
        end(start, self.out);
        Ok(())
    }
}

fn put_allows(value: bool, out: &mut Vec<u8>) {
    put_tag(1, VARINT, out);
    put_varint(u64::from(value), out);
}

/// Returns a field of a message in the table.
fn inner_field(message: &str, number: u32) -> Option<&'static MessageField> {
    table::find(message)?.field(number)
}

/// Begins a message of yet unknown length. Returns its start, for [`end`].
fn begin(number: u32, out: &mut Vec<u8>) -> usize {
    put_tag(number, BYTES, out);
    // Most lengths take one byte; `end` makes room for more.
    out.push(0);
    out.len()
}

fn end(start: usize, out: &mut Vec<u8>) {
    let len = out.len() - start;
    let more = varint_len(len) - 1;
    if more > 0 {
        out.resize(out.len() + more, 0);
        out.copy_within(start..start + len, start + more);
    }
    let mut digits = Vec::new();
    put_varint(len as u64, &mut digits);
    out[start - 1..start + more].copy_from_slice(&digits);
}

#[cfg(test)]
mod tests;
