//! Protobuf's wire format: splits a message into numbered fields.
//!
//! Source: the unmarshallers that gogo/protobuf generates for Kubernetes.

use super::super::weight::TooHeavy;

/// Bytes that are no valid protobuf, or do not fit the message. The messages are Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: {0}: wiretype end group for non-group")]
    EndOfNoGroup(&'static str),
    #[error("proto: {0}: illegal tag {1} (wire type {2})")]
    IllegalTag(&'static str, i32, u64),
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u64),
    #[error("proto: wrong wireType = {0} for field {1}")]
    WrongWireType(u64, String),
    #[error("proto: nested deeper than {0}")]
    TooDeep(usize),
    #[error(transparent)]
    TooHeavy(#[from] TooHeavy),
    #[error("{0}")]
    Value(&'static str),
}

impl ProtobufError {
    /// Describes the error without any number of the bytes, which may be part of a text.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::UnexpectedEof => "the protobuf message is truncated",
            Self::TooDeep(_) => "the object is nested too deeply",
            Self::TooHeavy(_) => "the object has too many values",
            Self::Value(_) => "a value of the object has no JSON form",
            Self::Overflow
            | Self::NegativeLength
            | Self::EndOfNoGroup(_)
            | Self::IllegalTag(..)
            | Self::IllegalWireType(_)
            | Self::WrongWireType(..) => "no such protobuf message",
        }
    }
}

/// Reads the fields of one message, in order.
pub(crate) struct MessageReader<'a> {
    /// Name of the message, for errors.
    message: &'static str,
    rest: &'a [u8],
}

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A group; always skipped, as no Kubernetes message has one.
    Group,
    Fixed32,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const GROUP: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED32: u64 = 5;

impl<'a> MessageReader<'a> {
    pub(crate) const fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self { message, rest: bytes }
    }

    /// Returns the next field: its number and its value.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        if tag & 7 == GROUP_END {
            return Err(ProtobufError::EndOfNoGroup(self.message));
        }
        #[expect(clippy::cast_possible_truncation, reason = "as Go has it")]
        let number = (tag >> 3) as i32;
        let Some(field) = u32::try_from(number).ok().filter(|&number| number > 0) else {
            return Err(ProtobufError::IllegalTag(self.message, number, tag));
        };
        Ok(Some((field, self.piece(tag & 7)?)))
    }

    /// Returns the next number of a packed list.
    pub(crate) fn number(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn piece(&mut self, wire_type: u64) -> Result<FieldValue<'a>, ProtobufError> {
        match wire_type {
            VARINT => Ok(FieldValue::Varint(self.varint()?)),
            FIXED64 => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Ok(FieldValue::Fixed64(u64::from_le_bytes(bytes)))
            }
            BYTES => {
                let length = i64::try_from(self.varint()?).map_err(|_| ProtobufError::NegativeLength)?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::UnexpectedEof)?;
                Ok(FieldValue::Bytes(self.take(length)?))
            }
            GROUP => {
                self.skip_group()?;
                Ok(FieldValue::Group)
            }
            FIXED32 => self.take(4).map(|_| FieldValue::Fixed32),
            other => Err(ProtobufError::IllegalWireType(other)),
        }
    }

    /// Skips a group. Nested groups are counted instead of entered, so the stack stays bounded.
    fn skip_group(&mut self) -> Result<(), ProtobufError> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.varint()? & 7 {
                GROUP => depth += 1,
                GROUP_END => depth -= 1,
                wire_type => drop(self.piece(wire_type)?),
            }
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::UnexpectedEof)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtobufError::UnexpectedEof)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Overflow)
    }
}

impl<'a> FieldValue<'a> {
    pub(crate) fn bytes(self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            FieldValue::Bytes(bytes) => Ok(bytes),
            FieldValue::Varint(_) | FieldValue::Fixed64(_) | FieldValue::Group | FieldValue::Fixed32 => {
                Err(self.unfit(field))
            }
        }
    }

    /// Returns a string. Invalid UTF-8 is replaced, as in Go's JSON.
    pub(crate) fn text(self, field: &str) -> Result<String, ProtobufError> {
        Ok(String::from_utf8_lossy(self.bytes(field)?).into_owned())
    }

    pub(crate) fn varint(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            FieldValue::Varint(number) => Ok(number),
            FieldValue::Bytes(_) | FieldValue::Fixed64(_) | FieldValue::Group | FieldValue::Fixed32 => {
                Err(self.unfit(field))
            }
        }
    }

    pub(crate) fn double(self, field: &str) -> Result<f64, ProtobufError> {
        match self {
            FieldValue::Fixed64(bits) => Ok(f64::from_bits(bits)),
            FieldValue::Varint(_) | FieldValue::Bytes(_) | FieldValue::Group | FieldValue::Fixed32 => {
                Err(self.unfit(field))
            }
        }
    }

    /// Builds the error; Go's name of the field begins with a capital letter.
    fn unfit(self, field: &str) -> ProtobufError {
        let wire_type = match self {
            FieldValue::Varint(_) => VARINT,
            FieldValue::Fixed64(_) => FIXED64,
            FieldValue::Bytes(_) => BYTES,
            FieldValue::Group => GROUP,
            FieldValue::Fixed32 => FIXED32,
        };
        let mut name = field.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        ProtobufError::WrongWireType(wire_type, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u32, FieldValue<'_>)>, ProtobufError> {
        let mut reader = MessageReader::new("M", bytes);
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next()? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    #[test]
    fn fields_come_by_number() {
        assert_eq!(
            read(&[0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0]),
            Ok(vec![
                (1, FieldValue::Varint(150)),
                (2, FieldValue::Bytes(b"ab")),
                (3, FieldValue::Fixed64(1)),
                (4, FieldValue::Fixed32)
            ])
        );
        assert_eq!(read(&[0x0b, 0x13, 0x08, 7, 0x14, 0x0c]), Ok(vec![(1, FieldValue::Group)]), "groups in groups");
        assert_eq!(read(&[]), Ok(vec![]));
    }

    /// Goal: malformed bytes lead to an error. Method: a table of bytes and Go's messages.
    #[test]
    fn malformed_bytes_are_refused_in_words_of_go() {
        let table: &[(&[u8], &str)] = &[
            (&[0x08], "unexpected EOF"),
            (&[0x08, 0x80], "unexpected EOF"),
            (&[0x12, 5, b'a'], "unexpected EOF"),
            (&[0x19, 1], "unexpected EOF"),
            (&[0x0b, 0x08, 1], "unexpected EOF"),
            (&[0xff; 11], "proto: integer overflow"),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "proto: negative length found during unmarshaling",
            ),
            (&[0x0c], "proto: M: wiretype end group for non-group"),
            (&[0x00], "proto: M: illegal tag 0 (wire type 0)"),
            (&[0x0e], "proto: illegal wireType 6"),
        ];
        for (bytes, text) in table {
            assert_eq!(read(bytes).expect_err(text).to_string(), *text);
        }
        let error = FieldValue::Varint(1).bytes("spec").expect_err("not bytes");
        assert_eq!(error.to_string(), "proto: wrong wireType = 0 for field Spec");
    }
}
