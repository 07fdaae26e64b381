//! Counts the content of responses without decoding it: events by the beginning of their lines, objects of lists by a
//! member that each object has exactly once.
//!
//! INVARIANT: the result does not depend on how a response is split into pieces.

mod events;
mod list;
mod messages;

pub use self::{
    events::{Bookmark, Counts, Events},
    list::{List, ListEnd},
};

/// The value of the first member `name` (given with quotes and colon), if it is a string without escapes.
fn string<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let start = memchr::memmem::find(text, name.as_bytes())? + name.len();
    let value = text[start..].strip_prefix(b"\"")?;
    std::str::from_utf8(&value[..memchr::memchr(b'"', value)?]).ok()
}
