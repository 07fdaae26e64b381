//! A position in one history. Opaque except for equality and the order that KEP-5504 defines.

use std::{cmp::Ordering, convert::Infallible, fmt, io::Write as _, str::FromStr};

/// The resourceVersion of an object, a list or a bookmark.
///
/// Never `""` and never `"0"`: those are request modes, see [`ListSemantic`](crate::ListSemantic). Cost: 24 bytes, and
/// an allocation only above 22 digits, which no etcd revision has; comparing reads the text without parsing it.
///
/// # Source
/// Kubernetes API concepts, "Resource versions"; KEP-5504 (comparable resource versions).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionText);

/// INVARIANT: printable ASCII. Texts of at most `SHORT_BYTES` are always `Short`, padded with zeros, so equal texts are
/// equal values.
#[derive(Clone, PartialEq, Eq, Hash)]
enum VersionText {
    Short { len: u8, bytes: [u8; SHORT_BYTES] },
    Long(Box<str>),
}

/// Bytes that fit beside the length in the size of a boxed string.
const SHORT_BYTES: usize = 22;

/// Characters of an invalid text that its error contains.
const SHOWN_CHARS_MAX: usize = 128;

/// The text is not a position: it is empty or `"0"`, which are request modes, or it cannot be sent in a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a resourceVersion")]
pub struct InvalidResourceVersion(pub String);

impl ResourceVersion {
    /// Longest accepted text, in bytes. An etcd revision has at most 19 digits; multi-cluster proxies send an encoded
    /// map with a version for each cluster. It must fit a request's URL, for which servers accept 8 KiB or more.
    pub const BYTES_MAX: usize = 8 << 10;

    /// Parses a position.
    ///
    /// # Errors
    /// [`InvalidResourceVersion`] for `""`, `"0"`, control characters, and texts above [`Self::BYTES_MAX`].
    pub fn parse(text: &str) -> Result<Self, InvalidResourceVersion> {
        let printable = text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if text.is_empty() || text == "0" || text.len() > Self::BYTES_MAX || !printable {
            return Err(InvalidResourceVersion(text.chars().take(SHOWN_CHARS_MAX).collect()));
        }
        Ok(Self(VersionText::new(text)))
    }

    /// The text, as sent by the server.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            VersionText::Short { len, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("it was a text when it was put in")
            }
            VersionText::Long(text) => text,
        }
    }

    /// Compares two positions of one resource type; `None` if either is not in KEP-5504's form (decimal digits without
    /// a leading zero), where only equality has a meaning.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        compare(self.as_str(), other.as_str())
    }

    /// Returns the position as a number, for histories known to count in `u64` (etcd, this project's server).
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let text = self.as_str();
        is_comparable(text).then(|| text.parse().ok()).flatten()
    }
}

impl VersionText {
    fn new(text: &str) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match (u8::try_from(text.len()), bytes.get_mut(..text.len())) {
            (Ok(len), Some(place)) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            (Ok(_) | Err(_), _) => Self::Long(text.into()),
        }
    }
}

/// Like [`ResourceVersion::compare`], on borrowed texts. Equal texts are equal in any form.
#[must_use]
pub fn compare(left: &str, right: &str) -> Option<Ordering> {
    if left == right {
        return Some(Ordering::Equal);
    }
    // Without leading zeros, the longer number is the larger one.
    (is_comparable(left) && is_comparable(right)).then(|| left.len().cmp(&right.len()).then_with(|| left.cmp(right)))
}

fn is_comparable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() && !text.starts_with('0')
}

impl From<u64> for ResourceVersion {
    /// # Panics
    /// On zero, which is a request mode and not a position.
    fn from(position: u64) -> Self {
        assert!(position != 0, "position zero does not exist");
        let mut bytes = [0; SHORT_BYTES];
        let mut room = &mut bytes[..];
        write!(room, "{position}").expect("twenty digits at most");
        let len = u8::try_from(SHORT_BYTES - room.len()).expect("twenty digits at most");
        Self(VersionText::Short { len, bytes })
    }
}

/// See [`ResourceVersion::parse`].
impl FromStr for ResourceVersion {
    type Err = InvalidResourceVersion;

    fn from_str(text: &str) -> Result<Self, InvalidResourceVersion> {
        Self::parse(text)
    }
}

impl From<&Self> for ResourceVersion {
    fn from(version: &Self) -> Self {
        version.clone()
    }
}

/// See [`ResourceVersion::parse`].
impl TryFrom<&str> for ResourceVersion {
    type Error = InvalidResourceVersion;

    fn try_from(text: &str) -> Result<Self, InvalidResourceVersion> {
        Self::parse(text)
    }
}

/// See [`ResourceVersion::parse`].
impl TryFrom<String> for ResourceVersion {
    type Error = InvalidResourceVersion;

    fn try_from(text: String) -> Result<Self, InvalidResourceVersion> {
        Self::parse(&text)
    }
}

/// Like a text; `None`, as in the metadata of an object that was never written, is no version.
impl TryFrom<Option<&str>> for ResourceVersion {
    type Error = InvalidResourceVersion;

    fn try_from(text: Option<&str>) -> Result<Self, InvalidResourceVersion> {
        Self::parse(text.unwrap_or_default())
    }
}

/// Like a text; `None`, as in the metadata of an object that was never written, is no version.
impl TryFrom<Option<String>> for ResourceVersion {
    type Error = InvalidResourceVersion;

    fn try_from(text: Option<String>) -> Result<Self, InvalidResourceVersion> {
        Self::try_from(text.as_deref())
    }
}

impl From<Infallible> for InvalidResourceVersion {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_modes_are_not_positions() {
        for text in ["", "0", " 1", "a\nb", &"9".repeat(ResourceVersion::BYTES_MAX + 1)] {
            assert!(ResourceVersion::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(ResourceVersion::parse("00").unwrap().as_u64(), None);
    }

    #[test]
    fn a_text_is_the_same_however_it_came_and_however_long_it_is() {
        assert_eq!(ResourceVersion::from(u64::MAX), ResourceVersion::parse(&u64::MAX.to_string()).unwrap());
        for len in (1..300).chain([ResourceVersion::BYTES_MAX - 1, ResourceVersion::BYTES_MAX]) {
            let text = "9".repeat(len);
            assert_eq!(ResourceVersion::parse(&text).unwrap().as_str(), text);
        }
        assert_eq!(size_of::<Option<ResourceVersion>>(), 24);
    }

    #[test]
    fn longer_numbers_are_later_and_other_forms_only_equal() {
        for (left, right, expected) in [
            ("9", "10", Some(Ordering::Less)),
            ("100000000000000000000", "99999999999999999999", Some(Ordering::Greater)),
            ("7", "7", Some(Ordering::Equal)),
            ("abc", "abc", Some(Ordering::Equal)),
            ("abc", "abd", None),
            ("007", "8", None),
        ] {
            assert_eq!(compare(left, right), expected, "{left} {right}");
        }
    }
}
