//! The body of one object in its stored form. Readers can get JSON from every form.

use std::{any::Any, borrow::Cow, fmt, sync::Arc};

use serde::Serialize;

/// The body of one object. Immutable.
pub enum Body {
    /// The JSON as passed in.
    Json(Box<[u8]>),
    /// The JSON in packed form, in fewer bytes.
    Packed(Box<dyn PackedJson>),
    /// The decoded object, without its JSON.
    Value {
        /// The object.
        value: Arc<dyn Value>,
        /// Length of the JSON that it was decoded from, in bytes.
        json_bytes: u32,
    },
    /// JSON of the names only: the object exists, and its current contents are not available here. It is larger than one
    /// object may be, nested too deep, or no JSON object.
    Skipped(Box<[u8]>),
}

/// Packed JSON.
pub trait PackedJson: Send + Sync {
    /// Returns the JSON, byte for byte as it was packed.
    fn unpack(&self) -> Vec<u8>;

    /// Length of the JSON, in bytes.
    fn json_bytes(&self) -> usize;

    /// Length of the packed form, in bytes.
    fn packed_bytes(&self) -> usize;
}

/// A decoded object.
pub trait Value: Any + Send + Sync {
    /// Returns the object as JSON, with the fields that its type knows. `null` if the type cannot be serialized.
    fn to_json(&self) -> Vec<u8>;
}

impl<T: Serialize + Send + Sync + 'static> Value for T {
    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| b"null".to_vec())
    }
}

impl Body {
    /// Returns the JSON. Borrowed if stored as JSON, otherwise built by this call.
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Json(json) | Self::Skipped(json) => Cow::Borrowed(json),
            Self::Packed(packed) => Cow::Owned(packed.unpack()),
            Self::Value { value, .. } => Cow::Owned(value.to_json()),
        }
    }

    /// Length of the JSON as passed in, in bytes.
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        match self {
            Self::Json(json) | Self::Skipped(json) => json.len(),
            Self::Packed(packed) => packed.json_bytes(),
            Self::Value { json_bytes, .. } => *json_bytes as usize,
        }
    }

    /// Length of the stored form, in bytes. The size of a decoded object is unknown; its JSON's length is used instead.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        match self {
            Self::Json(json) | Self::Skipped(json) => json.len(),
            Self::Packed(packed) => packed.packed_bytes(),
            Self::Value { json_bytes, .. } => *json_bytes as usize,
        }
    }
}

/// Omits the object's contents: bodies do not belong in logs.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self {
            Self::Json(_) => "Json",
            Self::Packed(_) => "Packed",
            Self::Value { .. } => "Value",
            Self::Skipped(_) => "Skipped",
        };
        write!(f, "{form}({} bytes)", self.stored_bytes())
    }
}
