//! Answers are counted, not decoded: events by how their lines begin, objects of lists by a member each has once.
//!
//! INVARIANT: however an answer is cut into pieces, the same is found.

mod events;
mod list;

pub use self::{
    events::{Bookmark, Counts, Events},
    list::{List, ListEnd},
};

/// The value of the first member `name` (with quotes and colon) of a text, if it is a string without escapes.
fn string<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let start = memchr::memmem::find(text, name.as_bytes())? + name.len();
    let value = text[start..].strip_prefix(b"\"")?;
    std::str::from_utf8(&value[..memchr::memchr(b'"', value)?]).ok()
}
