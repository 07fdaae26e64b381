//! A skipped object: read to its end, keeping only its names.
//!
//! INVARIANT: memory does not depend on the object: at most six names of `SKIPPED_NAME_BYTES_MAX` each.

use std::borrow::Cow;

use super::FrameError;
use crate::{
    limits::{SKIPPED_DEPTH_MAX, SKIPPED_NAME_BYTES_MAX},
    object::Meta,
    wire::{
        json::{
            self, Key,
            structure::{Stop, Stops, Structure},
        },
        watch_event::EventKind,
    },
};

/// An object that was skipped, with its names as far as they are readable. Of repeated names the first counts, as in
/// [`Meta`]; names that are not strings, or longer than [`SKIPPED_NAME_BYTES_MAX`], are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedObject {
    /// Type of its watch event; `None` for an item of a list.
    pub kind: Option<EventKind>,
    /// The reason for skipping it.
    pub reason: SkipReason,
    /// Position of its first byte in the body.
    pub at: u64,
    names: [Option<String>; NAMES],
}

/// Reason for skipping an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// It is larger than [`FramerConfig::object_bytes_max`](super::FramerConfig::object_bytes_max).
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It is nested deeper than [`DEPTH_MAX`](crate::limits::DEPTH_MAX).
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit, in levels of the document.
        limit: usize,
    },
    /// It is `null` or another value that is not a JSON object.
    #[error("no JSON object")]
    NotAnObject,
}

impl SkippedObject {
    /// Returns the readable part of its metadata.
    #[must_use]
    pub fn meta(&self) -> Meta<'_> {
        let name = |name: NameMember| self.names[name as usize].as_deref().map(Cow::Borrowed);
        Meta {
            kind: name(NameMember::Kind),
            api_version: name(NameMember::ApiVersion),
            namespace: name(NameMember::Namespace).unwrap_or_default(),
            name: name(NameMember::Name).unwrap_or_default(),
            uid: name(NameMember::Uid).unwrap_or_default(),
            resource_version: name(NameMember::ResourceVersion).unwrap_or_default(),
            ..Meta::default()
        }
    }

    /// Returns the object as JSON, reduced to its names.
    #[must_use]
    pub fn json(&self) -> String {
        let members = |names: &[(NameMember, &str)]| -> Vec<String> {
            let named = names.iter().filter_map(|(name, key)| Some((key, self.names[*name as usize].as_deref()?)));
            named.map(|(key, text)| format!("\"{key}\":{}", json::quote(text))).collect()
        };
        let mut all = members(&[(NameMember::Kind, "kind"), (NameMember::ApiVersion, "apiVersion")]);
        let metadata = members(&METADATA);
        all.push(format!("\"metadata\":{{{}}}", metadata.join(",")));
        format!("{{{}}}", all.join(","))
    }
}

/// A member that contains a name of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameMember {
    Kind,
    ApiVersion,
    Namespace,
    Name,
    Uid,
    ResourceVersion,
}

const NAMES: usize = 6;

const METADATA: [(NameMember, &str); 4] = [
    (NameMember::Name, "name"),
    (NameMember::Namespace, "namespace"),
    (NameMember::Uid, "uid"),
    (NameMember::ResourceVersion, "resourceVersion"),
];

/// Reads an object to its end and keeps its names.
#[derive(Debug)]
pub(super) struct Skip {
    reason: SkipReason,
    at: u64,
    names: [Option<String>; NAMES],
    place: NextElement,
    // The last bytes read, which include a key that has just ended.
    tail: Vec<u8>,
    // The value of a name as sent, so far.
    text: Vec<u8>,
    in_metadata: bool,
}

/// Next element in the object or in its metadata.
#[derive(Clone, Copy, Debug)]
enum NextElement {
    /// A key.
    Key,
    /// The first byte of the metadata.
    Metadata,
    /// The first byte of a name.
    Value(NameMember),
    /// The rest of a name.
    Text(NameMember),
}

/// Length of the longest relevant key with every letter escaped, and its quotes.
const TAIL_BYTES: usize = "\"resourceVersion\"".len() * 6;

impl Skip {
    /// Starts with an object at this position of the body.
    pub(super) fn new(reason: SkipReason, at: u64) -> Self {
        let (names, tail, text) = (Default::default(), Vec::new(), Vec::new());
        Self { reason, at, names, place: NextElement::Key, tail, text, in_metadata: false }
    }

    /// Takes the beginning of the object, which was buffered before it was skipped. It lacks the cut members.
    pub(super) fn begin(&mut self, mut buffered: &[u8]) {
        // These bytes passed the grammar before, so this cannot fail.
        let _ = self.feed(&mut Structure::new(), 0, &mut buffered);
    }

    /// Consumes bytes of `chunk` until the object, in a container at `depth`, ends (`true`) or the chunk is used up.
    pub(super) fn feed(
        &mut self,
        structure: &mut Structure,
        depth: usize,
        chunk: &mut &[u8],
    ) -> Result<bool, FrameError> {
        while !chunk.is_empty() {
            let level = depth + 1 + usize::from(self.in_metadata);
            let stops = match self.place {
                NextElement::Key => Stops { keys: level, ends: level - 1, ..Stops::NONE },
                NextElement::Metadata | NextElement::Value(_) => Stops { values: level, ..Stops::NONE },
                NextElement::Text(_) => Stops { ends: level, ..Stops::NONE },
            };
            let (taken, stop) = structure.run(chunk, stops)?;
            let (bytes, rest) = chunk.split_at(taken);
            *chunk = rest;
            self.keep(bytes);
            match (stop, self.place) {
                (None, _) => {}
                (Some(Stop::Depth), _) => return Err(FrameError::TooDeep { limit: SKIPPED_DEPTH_MAX }),
                (Some(Stop::Key), _) => self.place = self.behind_key(structure.key_len()),
                (Some(Stop::Value), place) => self.place = self.at_value(place, rest.first()),
                (Some(Stop::End), NextElement::Text(name)) => {
                    self.names[name as usize] = json::string(&self.text).map(Cow::into_owned);
                    self.text = Vec::new();
                    self.place = NextElement::Key;
                }
                (Some(Stop::End), _) if self.in_metadata => self.in_metadata = false,
                (Some(Stop::End), _) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns the result, for an event of this kind.
    pub(super) fn finish(self, kind: Option<EventKind>) -> SkippedObject {
        SkippedObject { kind, reason: self.reason, at: self.at, names: self.names }
    }

    /// Memory held, in bytes.
    pub(super) fn capacity(&self) -> usize {
        let names: usize = self.names.iter().flatten().map(String::capacity).sum();
        names + self.tail.capacity() + self.text.capacity()
    }

    fn keep(&mut self, bytes: &[u8]) {
        match self.place {
            NextElement::Key => {
                let last = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
                let too_many = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
                self.tail.drain(..too_many);
                self.tail.extend_from_slice(last);
            }
            // A text that is too long has no closing quote here, so it is not read as a name.
            NextElement::Text(_) => {
                let room = (SKIPPED_NAME_BYTES_MAX + 2).saturating_sub(self.text.len());
                self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            NextElement::Metadata | NextElement::Value(_) => {}
        }
    }

    /// Returns the element that follows a key of `len` bytes, quotes included, that has just ended.
    fn behind_key(&self, len: usize) -> NextElement {
        let Some(start) = self.tail.len().checked_sub(len) else { return NextElement::Key };
        let key = Key(&self.tail[start + 1..self.tail.len() - 1]);
        let name = match self.in_metadata {
            true => METADATA.iter().find(|(_, text)| key.is(text)).map(|(name, _)| *name),
            false if key.is("kind") => Some(NameMember::Kind),
            false if key.is("apiVersion") => Some(NameMember::ApiVersion),
            false if key.is("metadata") => return NextElement::Metadata,
            false => None,
        };
        // Of repeated names the first counts.
        name.filter(|name| self.names[*name as usize].is_none()).map_or(NextElement::Key, NextElement::Value)
    }

    fn at_value(&mut self, place: NextElement, first: Option<&u8>) -> NextElement {
        match (place, first) {
            (NextElement::Metadata, Some(b'{')) => {
                self.in_metadata = true;
                NextElement::Key
            }
            (NextElement::Value(name), Some(b'"')) => NextElement::Text(name),
            (NextElement::Key | NextElement::Metadata | NextElement::Value(_) | NextElement::Text(_), _) => {
                NextElement::Key
            }
        }
    }
}
