//! The body of one object in the form it is kept in. Whatever the form, readers can have JSON.

use std::{any::Any, borrow::Cow, fmt, sync::Arc};

use serde::Serialize;

/// The body of one object. Immutable.
pub enum Body {
    /// The JSON as it was handed in.
    Json(Box<[u8]>),
    /// The same in fewer bytes.
    Packed(Box<dyn Packed>),
    /// What the JSON decodes to, and no JSON.
    Value {
        /// The object.
        value: Arc<dyn Value>,
        /// Bytes of the JSON it was decoded from.
        json_bytes: u32,
    },
}

/// JSON in fewer bytes.
pub trait Packed: Send + Sync {
    /// The JSON, byte for byte as it was packed.
    fn unpack(&self) -> Vec<u8>;

    /// Bytes of the JSON.
    fn json_bytes(&self) -> usize;

    /// Bytes kept for it.
    fn packed_bytes(&self) -> usize;
}

/// A decoded object.
pub trait Value: Any + Send + Sync {
    /// It as JSON: what its type knows of the object. `null` when its type cannot say it as JSON.
    fn to_json(&self) -> Vec<u8>;
}

impl<T: Serialize + Send + Sync + 'static> Value for T {
    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| b"null".to_vec())
    }
}

impl Body {
    /// The JSON. Borrowed where it is kept as such, else made now.
    #[must_use]
    pub fn json(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Json(json) => Cow::Borrowed(json),
            Self::Packed(packed) => Cow::Owned(packed.unpack()),
            Self::Value { value, .. } => Cow::Owned(value.to_json()),
        }
    }

    /// Bytes of the JSON that was handed in.
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Packed(packed) => packed.json_bytes(),
            Self::Value { json_bytes, .. } => *json_bytes as usize,
        }
    }

    /// Bytes kept for it. Of a decoded object nobody knows them; its JSON's are taken instead.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Packed(packed) => packed.packed_bytes(),
            Self::Value { json_bytes, .. } => *json_bytes as usize,
        }
    }
}

/// Never shows the object: bodies do not belong in logs.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self {
            Self::Json(_) => "Json",
            Self::Packed(_) => "Packed",
            Self::Value { .. } => "Value",
        };
        write!(f, "{form}({} bytes)", self.kept_bytes())
    }
}
