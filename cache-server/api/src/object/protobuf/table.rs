//! Table of messages: the JSON member of each field, from `protobuf_fields.txt`.
//!
//! INVARIANT: parsed once, with the first protobuf body. About 2,400 fields, 200 KiB.

use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

use super::{
    message::{Label, Message, MessageField, Scalar, Type},
    special,
};

/// Returns the message of a definition, such as `io.k8s.api.core.v1.Pod`.
pub(crate) fn find(name: &str) -> Option<&'static Message> {
    MESSAGES.get(name)
}

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: HashMap<&'static str, Message> = HashMap::new();
    let mut name = "";
    for line in include_str!("../protobuf_fields.txt").lines().filter(|line| !line.starts_with('#')) {
        match field(line) {
            Some(field) => messages.entry(name).or_default().fields.push(field),
            None => {
                name = line;
                let name_in_errors = name.rsplit('.').next().unwrap_or(name);
                messages.insert(name, Message { name: name_in_errors, ..Message::default() });
            }
        }
    }
    messages
});

/// Parses a line `number name type`, optionally with `!`; returns `None` for the name of a message.
fn field(line: &'static str) -> Option<MessageField> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let (name, ty) = (words.next()?, words.next()?);
    let (label, ty) = match (ty.strip_prefix("[]"), ty.strip_prefix("{}")) {
        (Some(ty), _) => (Label::Repeated, ty),
        (_, Some(ty)) => (Label::Map, ty),
        (None, None) if name == "." => (Label::Embedded, ty),
        (None, None) => (Label::Once, ty),
    };
    let ty = match ty {
        "string" => Type::Scalar(Scalar::String),
        "bool" => Type::Scalar(Scalar::Bool),
        "int32" => Type::Scalar(Scalar::Int32),
        "int64" => Type::Scalar(Scalar::Int64),
        "double" => Type::Scalar(Scalar::Double),
        "bytes" => Type::Scalar(Scalar::Bytes),
        message if special::is(message) => Type::Special(message),
        message => Type::Message(message),
    };
    Some(MessageField { number, name, ty, label, zero_stays: words.next() == Some("!"), target: OnceLock::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_a_field_is_known_and_numbers_rise() {
        assert!(MESSAGES.len() > 400);
        for message in MESSAGES.values() {
            assert!(message.fields.is_sorted_by(|one, other| one.number < other.number), "{}", message.name);
            for field in &message.fields {
                if let Type::Message(name) | Type::Special(name) = field.ty {
                    assert!(find(name).is_some(), "{}.{}: {name}", message.name, field.name);
                }
            }
        }
    }
}
