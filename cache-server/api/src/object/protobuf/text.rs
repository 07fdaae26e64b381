//! Writes a message as JSON text, without building values in between: stored objects are decoded by the 100,000.
//!
//! INVARIANT: equal to the JSON of [`message::decode`](super::message::decode), except for the order of members; or
//! [`TextError::Unordered`] for bytes that only the decoder of values can read: gogo/protobuf writes fields and keys of maps
//! in ascending order, but readers must accept any order.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    message::{self, Label, Message, MessageField, Scalar, Type},
    special,
    wire::{FieldValue, MessageReader, ProtobufError},
};
use crate::{
    limits::{DECODED_BYTES_MAX, PROTOBUF_DEPTH_MAX},
    object::weight::{self, Weight},
};

/// Reason why no text was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextError {
    /// A field or a key of a map comes after a greater one, or again, or the text would be longer than
    /// [`DECODED_BYTES_MAX`]: the decoder of values merges or refuses it.
    Unordered,
    /// The bytes are no such message.
    Protobuf(ProtobufError),
}

impl From<ProtobufError> for TextError {
    fn from(error: ProtobufError) -> Self {
        Self::Protobuf(error)
    }
}

/// Appends the members of a message to `text`, separated by commas. They begin with a comma unless `text` ends with
/// `{`.
///
/// # Errors
/// [`TextError`]; `text` then has an incomplete end.
pub(crate) fn write_members(message: &Message, bytes: &[u8], text: &mut Vec<u8>) -> Result<(), TextError> {
    let mut writer = TextWriter { text, weight: Weight::default() };
    writer.members(message, bytes, 1)
}

struct TextWriter<'a> {
    text: &'a mut Vec<u8>,
    /// Of values that are built in between: messages with a JSON form of their own.
    weight: Weight,
}

impl TextWriter<'_> {
    fn members(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<(), TextError> {
        if depth > PROTOBUF_DEPTH_MAX {
            return Err(ProtobufError::TooDeep(PROTOBUF_DEPTH_MAX).into());
        }
        if self.text.len() > DECODED_BYTES_MAX {
            return Err(TextError::Unordered);
        }
        let mut reader = MessageReader::new(message.name, bytes);
        let (mut last, mut last_key) = (0, Cow::Borrowed(""));
        // The bracket of the list or map that is being written.
        let mut bracket = None;
        while let Some((number, piece)) = reader.next()? {
            let Some(field) = message.field(number) else { continue };
            let continues = number == last && matches!(field.label, Label::Repeated | Label::Map);
            if number <= last && !continues {
                return Err(TextError::Unordered);
            }
            if !continues {
                self.text.extend(bracket.take());
            }
            match field.label {
                Label::Once => self.once(field, piece, depth)?,
                Label::Repeated => {
                    self.begin(continues, field.name, b'[');
                    bracket = Some(b']');
                    self.items(field, piece, depth)?;
                }
                Label::Map => {
                    self.begin(continues, field.name, b'{');
                    bracket = Some(b'}');
                    let key = self.entry(field, piece, continues.then_some(&*last_key), depth)?;
                    last_key = key;
                }
                Label::Embedded => {
                    if let Type::Message(inner) = field.ty {
                        self.members(field.message(inner), piece.bytes(inner)?, depth)?;
                    }
                }
            }
            last = number;
        }
        self.text.extend(bracket);
        Ok(())
    }

    /// Begins a list or a map, unless it continues.
    fn begin(&mut self, continues: bool, name: &str, bracket: u8) {
        if !continues {
            self.name(name);
            self.text.push(bracket);
        }
    }

    /// Writes the name of a member; those in the table need no escapes.
    fn name(&mut self, name: &str) {
        self.comma();
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
    }

    /// Separates a member or an item from the one before.
    fn comma(&mut self) {
        if !matches!(self.text.last(), Some(b'{' | b'[') | None) {
            self.text.push(b',');
        }
    }

    fn once(&mut self, field: &MessageField, piece: FieldValue<'_>, depth: usize) -> Result<(), TextError> {
        match field.ty {
            Type::Scalar(Scalar::String | Scalar::Bytes) => {
                if field.zero_stays || !piece.bytes(field.name)?.is_empty() {
                    self.name(field.name);
                    self.value(field, piece, depth + 1)?;
                }
            }
            Type::Scalar(ty) => {
                let value = message::scalar(ty, piece, field.name, &mut self.weight)?;
                if field.zero_stays || !message::is_zero(&value) {
                    self.name(field.name);
                    self.json(&value);
                }
            }
            Type::Special(name) => {
                let before = self.text.len();
                self.name(field.name);
                if !self.special(name, piece.bytes(field.name)?, depth + 1)? {
                    self.text.truncate(before);
                }
            }
            Type::Message(_) => {
                self.name(field.name);
                self.value(field, piece, depth + 1)?;
            }
        }
        Ok(())
    }

    fn items(&mut self, field: &MessageField, piece: FieldValue<'_>, depth: usize) -> Result<(), TextError> {
        if let (Type::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Bool), FieldValue::Bytes(packed)) =
            (field.ty, piece)
        {
            let mut packed = MessageReader::new("", packed);
            while let Some(number) = packed.number()? {
                self.comma();
                self.value(field, FieldValue::Varint(number), depth + 2)?;
            }
            return Ok(());
        }
        self.comma();
        self.value(field, piece, depth + 2)
    }

    /// Writes one entry of a map. Returns its key, which must be greater than `before`.
    fn entry<'b>(
        &mut self,
        field: &MessageField,
        piece: FieldValue<'b>,
        before: Option<&str>,
        depth: usize,
    ) -> Result<Cow<'b, str>, TextError> {
        let (key, held) = message::key_and_value(field, piece)?;
        if before.is_some_and(|before| *key <= *before) {
            return Err(TextError::Unordered);
        }
        self.comma();
        self.quoted(&key);
        self.text.push(b':');
        self.value(field, held, depth + 2)?;
        Ok(key)
    }

    /// Writes a value that is not omitted.
    fn value(&mut self, field: &MessageField, piece: FieldValue<'_>, depth: usize) -> Result<(), TextError> {
        match field.ty {
            Type::Scalar(Scalar::String) => self.quoted(&String::from_utf8_lossy(piece.bytes(field.name)?)),
            Type::Scalar(Scalar::Bytes) => {
                let encoded = STANDARD.encode(piece.bytes(field.name)?);
                self.text.push(b'"');
                self.text.extend_from_slice(encoded.as_bytes());
                self.text.push(b'"');
            }
            Type::Scalar(ty) => {
                let value = message::scalar(ty, piece, field.name, &mut self.weight)?;
                self.json(&value);
            }
            Type::Special(name) => {
                if !self.special(name, piece.bytes(field.name)?, depth)? {
                    self.text.extend_from_slice(b"null");
                }
            }
            Type::Message(name) => {
                self.text.push(b'{');
                self.members(field.message(name), piece.bytes(field.name)?, depth)?;
                self.text.push(b'}');
            }
        }
        Ok(())
    }

    /// Writes a message with a JSON form of its own. Returns false if it is unset.
    fn special(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<bool, TextError> {
        if !special::is_raw(name) {
            let value = special::value(name, bytes, depth, &mut self.weight)?;
            value.iter().for_each(|value| self.json(value));
            return Ok(value.is_some());
        }
        let held = special::raw_text(bytes)?;
        if held.is_empty() {
            let value = special::empty_raw(name);
            value.iter().for_each(|value| self.json(value));
            return Ok(value.is_some());
        }
        // The checks of `special::raw`, without its value.
        let refused = ProtobufError::Value("json: error calling MarshalJSON");
        let json = std::str::from_utf8(held).ok().filter(|json| serde_json::from_str::<IgnoredAny>(json).is_ok());
        let json = json.ok_or(refused)?;
        if depth + weight::nesting(held) > PROTOBUF_DEPTH_MAX {
            return Err(ProtobufError::TooDeep(PROTOBUF_DEPTH_MAX).into());
        }
        self.text.extend_from_slice(json.trim_ascii().as_bytes());
        Ok(true)
    }

    fn quoted(&mut self, text: &str) {
        serde_json::to_writer(&mut *self.text, text).expect("memory takes every text");
    }

    fn json(&mut self, value: &Value) {
        serde_json::to_writer(&mut *self.text, value).expect("memory takes every value");
    }
}
