//! One pass over a JSON text that checks it against a shape, and writes its values in canonical form: compact, members
//! sorted by name.
//!
//! INVARIANT: the text equals the text of the decoded and checked value. Texts for which that would take decoding, and
//! values that the checks would refuse, complain about or convert, end the scan without a result.

use std::borrow::Cow;

use informer_core::wire::json;

use crate::schemas::{JsonKind, ShapeMember, ValueShape};

/// Nesting of objects and lists that a scan follows; Kubernetes' own types nest up to about ten levels.
const DEPTH_MAX: usize = 32;

/// Digits up to which every integer fits 64 bits.
const DIGITS_MAX: usize = 18;

/// Members of nested objects that are open at a time, for which there is room at first.
const USUAL_MEMBERS: usize = 16;

/// A scan and its result.
pub(super) struct PlainScan<'a> {
    source: &'a str,
    at: usize,
    /// The canonical text so far.
    pub(super) text: Vec<u8>,
    /// Members of the objects that are open, those of the innermost last.
    pub(super) members: Vec<PlainMember<'a>>,
    /// Members of the metadata, sorted by name.
    pub(super) metadata: Vec<PlainMember<'a>>,
}

/// A member of an object that was written.
#[derive(Debug)]
pub(super) struct PlainMember<'a> {
    /// Without escapes. Keys of managedFields have some: `k:{\"uid\":\"…\"}`.
    pub(super) name: Cow<'a, str>,
    /// Offsets of the name, of the value and of the end in the text. They are equal if the member is dropped.
    start: usize,
    value: usize,
    end: usize,
}

impl PlainMember<'_> {
    /// Returns the value in the text that it was written to; `None` if the member is dropped.
    pub(super) fn value_in<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        (self.start < self.end).then(|| &text[self.value..self.end])
    }
}

impl<'a> PlainScan<'a> {
    /// Scans one object. Without a shape, all members are allowed. `members` are sorted, and the text has the order of
    /// the source.
    pub(super) fn of_object(source: &'a [u8], shape: Option<&ValueShape>) -> Option<Self> {
        let source = str::from_utf8(source).ok()?;
        let (text, members) = (Vec::with_capacity(source.len()), Vec::with_capacity(USUAL_MEMBERS));
        let mut scan = Self { source, at: 0, text, members, metadata: Vec::new() };
        scan.skip_space();
        scan.take(b'{')?;
        scan.members(shape, DEPTH_MAX)?;
        scan.skip_space();
        let is_whole = scan.at == source.len();
        (is_whole && !has_duplicate(&mut scan.members)).then_some(scan)
    }

    /// Scans the metadata of the object, and keeps its members.
    fn metadata(&mut self, shape: &ValueShape) -> Option<()> {
        let first = self.members.len();
        self.take(b'{')?;
        self.members(Some(shape), DEPTH_MAX - 1)?;
        self.metadata = self.members.split_off(first);
        (!has_duplicate(&mut self.metadata)).then_some(())
    }

    /// Scans a value. Without a shape, all values are allowed.
    fn value(&mut self, shape: Option<&ValueShape>, depth: usize) -> Option<()> {
        let (from, kind) = (self.at, shape.map_or(JsonKind::Any, ValueShape::kind));
        let format = || shape.map_or("", ValueShape::format);
        match (self.next()?, kind) {
            (b'{', JsonKind::Object) => return self.object(shape, depth.checked_sub(1)?),
            (b'{', JsonKind::Any) => return self.object(None, depth.checked_sub(1)?),
            (b'[', JsonKind::Array) => {
                let item = shape.and_then(ValueShape::item);
                return self.list(item.as_ref(), depth.checked_sub(1)?);
            }
            (b'[', JsonKind::Any) => return self.list(None, depth.checked_sub(1)?),
            // Base64 is converted to its canonical form.
            (b'"', JsonKind::String) if format() == "byte" => return None,
            (b'"', JsonKind::String | JsonKind::IntOrString | JsonKind::Quantity | JsonKind::Any) => {
                self.string()?;
            }
            (b'-' | b'0'..=b'9', JsonKind::Integer | JsonKind::Number | JsonKind::IntOrString | JsonKind::Any) => {
                let is_narrow = kind == JsonKind::IntOrString || kind == JsonKind::Integer && format() == "int32";
                self.integer(from).filter(|number| !is_narrow || i32::try_from(*number).is_ok())?;
            }
            (b't', JsonKind::Boolean | JsonKind::Any) => self.word("rue")?,
            (b'f', JsonKind::Boolean | JsonKind::Any) => self.word("alse")?,
            // Known members are dropped instead, see `member`, and other nulls of a known type are converted.
            (b'n', JsonKind::Any) if shape.is_none() => self.word("ull")?,
            _ => return None,
        }
        self.text.extend_from_slice(self.source.get(from..self.at)?.as_bytes());
        Some(())
    }

    /// Scans an object after its brace, and sorts its members.
    fn object(&mut self, shape: Option<&ValueShape>, depth: usize) -> Option<()> {
        let (start, first) = (self.text.len(), self.members.len());
        self.members(shape, depth)?;
        if !self.members[first..].is_sorted_by(|one, other| one.name < other.name) {
            self.sort(start, first)?;
        }
        self.members.truncate(first);
        Some(())
    }

    /// Sorts the members from `first` on of an object that was written at `start`.
    fn sort(&mut self, start: usize, first: usize) -> Option<()> {
        let members = &mut self.members[first..];
        if has_duplicate(members) {
            return None;
        }
        let unsorted = self.text.split_off(start);
        self.text.push(b'{');
        for member in members.iter().filter(|member| member.start < member.end) {
            self.text.extend_from_slice(&unsorted[member.start - start..member.end - start]);
            self.text.push(b',');
        }
        self.close();
        Some(())
    }

    /// Scans the members of an object after its brace, writes them with both braces, and adds them to `members`.
    fn members(&mut self, shape: Option<&ValueShape>, depth: usize) -> Option<()> {
        self.text.push(b'{');
        self.skip_space();
        if self.peek()? == b'}' {
            self.at += 1;
            self.text.push(b'}');
            return Some(());
        }
        loop {
            self.skip_space();
            self.member(shape, depth)?;
            self.skip_space();
            match self.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        self.close();
        Some(())
    }

    /// Scans a member, and writes it with a comma, unless its value counts as absent.
    fn member(&mut self, shape: Option<&ValueShape>, depth: usize) -> Option<()> {
        let from = self.at;
        self.take(b'"')?;
        let text = self.string()?;
        let is_plain = !text.contains('\\');
        let name =
            if is_plain { Cow::Borrowed(text) } else { json::string(self.source.get(from..self.at)?.as_bytes())? };
        self.skip_space();
        self.take(b':')?;
        self.skip_space();
        let start = self.text.len();
        self.text.push(b'"');
        self.text.extend_from_slice(text.as_bytes());
        self.text.extend_from_slice(b"\":");
        let value = self.text.len();
        let is_dropped = match shape.map_or(ShapeMember::Free(None), |shape| shape.member(&name)) {
            ShapeMember::Known(_) if self.peek()? == b'n' => {
                self.at += 1;
                self.word("ull")?;
                true
            }
            ShapeMember::Known(inner) if depth == DEPTH_MAX && name == "metadata" => {
                self.metadata(&inner)?;
                false
            }
            ShapeMember::Known(inner) => {
                self.value(Some(&inner), depth)?;
                let written = &self.text[value..];
                written == b"[]" || (written == b"{}" && inner.is_map())
            }
            ShapeMember::Free(inner) => {
                self.value(inner.as_ref(), depth)?;
                false
            }
            ShapeMember::Unknown => return None,
        };
        if is_dropped {
            self.text.truncate(start);
            self.members.push(PlainMember { name, start, value: start, end: start });
        } else {
            self.members.push(PlainMember { name, start, value, end: self.text.len() });
            self.text.push(b',');
        }
        Some(())
    }

    /// Ends an object after its members.
    fn close(&mut self) {
        if self.text.ends_with(b",") {
            self.text.pop();
        }
        self.text.push(b'}');
    }

    /// Scans a list after its bracket.
    fn list(&mut self, item: Option<&ValueShape>, depth: usize) -> Option<()> {
        self.text.push(b'[');
        self.skip_space();
        if self.peek()? == b']' {
            self.at += 1;
            self.text.push(b']');
            return Some(());
        }
        loop {
            self.skip_space();
            self.value(item, depth)?;
            self.skip_space();
            let after = self.next()?;
            self.text.push(after);
            match after {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Scans a string after its quote. Returns its text, in which escapes are as the canonical form has them.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        loop {
            let rest = self.source.as_bytes().get(self.at..)?;
            self.at += rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
            match self.next()? {
                b'"' => return self.source.get(start..self.at - 1),
                b'\\' if matches!(self.next()?, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                _ => return None,
            }
        }
    }

    /// Scans an integer after its first character, which is at `from`. Returns its value.
    fn integer(&mut self, from: usize) -> Option<i64> {
        while self.source.as_bytes().get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let text = self.source.get(from..self.at)?;
        let is_plain = match text.strip_prefix('-').unwrap_or(text).as_bytes() {
            // Minus zero is a fraction.
            b"0" => text == "0",
            [b'1'..=b'9', digits @ ..] => digits.len() < DIGITS_MAX,
            _ => false,
        };
        let is_ended = !matches!(self.peek()?, b'.' | b'e' | b'E');
        (is_plain && is_ended).then(|| text.parse().ok())?
    }

    /// Takes the rest of a word.
    fn word(&mut self, rest: &str) -> Option<()> {
        let is_there = self.source.as_bytes().get(self.at..)?.starts_with(rest.as_bytes());
        self.at += rest.len();
        is_there.then_some(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.source.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Takes this byte.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }
}

/// Sorts members by name, and returns true if two have one name.
fn has_duplicate(members: &mut [PlainMember<'_>]) -> bool {
    members.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    members.windows(2).any(|pair| pair[0].name == pair[1].name)
}
