//! Objects at a version other than the stored one, with other members: converted at their first use, shared by all clients,
//! dropped when idle.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{derived::DerivedSlot, message::MessageSlot};
use crate::entry::{Draft, Entry};

/// Converts the stored objects of one type to another version, with other members. A type has at most one conversion.
pub trait Conversion: fmt::Debug + Send + Sync {
    /// Returns the object whose JSON is `stored`, without its resourceVersion. `None` for an object that cannot be
    /// converted, which is sent with its stored members.
    fn convert(&self, stored: &[u8]) -> Option<Draft>;
}

/// A stored object, and the conversion that a client needs.
#[derive(Clone, Copy)]
pub(super) struct ServedEntry<'a> {
    pub(super) stored: &'a Entry,
    pub(super) conversion: Option<&'static dyn Conversion>,
}

/// Forms of an object at its other version.
#[derive(Debug, Default)]
pub(crate) struct ConvertedForms {
    object: DerivedSlot<Arc<Entry>>,
    /// True once a conversion failed.
    is_unfit: AtomicBool,
    /// The object as a protobuf message, and its PartialObjectMetadata.
    pub(crate) message: MessageSlot,
    pub(crate) partial: MessageSlot,
}

/// An object with the members that a client gets.
pub(super) enum ServedObject<'a> {
    Stored(&'a Entry),
    Converted(Arc<Entry>),
}

impl Deref for ServedObject<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        match self {
            Self::Stored(entry) => entry,
            Self::Converted(entry) => entry,
        }
    }
}

impl<'a> ServedEntry<'a> {
    /// Returns the object, and keeps it for other clients. Cost: converts it unless it is cached. Only `is_live` displaces other
    /// objects.
    pub(super) fn object(self, is_live: bool) -> ServedObject<'a> {
        let Some(conversion) = self.conversion else { return ServedObject::Stored(self.stored) };
        let forms = self.stored.converted_forms();
        let made = forms.object.get(is_live, || {
            let entry = forms.convert(self.stored, conversion)?;
            let bytes = entry.cost();
            Some((entry, bytes))
        });
        made.map_or(ServedObject::Stored(self.stored), |made| ServedObject::Converted(Arc::clone(&**made)))
    }

    /// Like [`Self::object`], for a client that keeps another form of it.
    pub(super) fn object_once(self) -> ServedObject<'a> {
        let Some(conversion) = self.conversion else { return ServedObject::Stored(self.stored) };
        let forms = self.stored.converted_forms();
        let cached = forms.object.cached().map(|made| Arc::clone(&**made));
        let made = cached.or_else(|| forms.convert(self.stored, conversion));
        made.map_or(ServedObject::Stored(self.stored), ServedObject::Converted)
    }

    /// Returns true if [`Self::object`] has to convert it.
    pub(super) fn is_unconverted(self) -> bool {
        self.conversion.is_some() && !self.stored.converted_forms().has_object()
    }
}

impl ConvertedForms {
    fn convert(&self, stored: &Entry, conversion: &dyn Conversion) -> Option<Arc<Entry>> {
        if self.is_unfit.load(Ordering::Relaxed) {
            return None;
        }
        let draft = conversion.convert(stored.object_text());
        self.is_unfit.store(draft.is_none(), Ordering::Relaxed);
        let version = stored.resource_version();
        draft.map(|draft| if stored.is_updated() { draft.commit_update(version) } else { draft.commit(version) })
    }

    /// Returns true if the object is cached, or cannot be converted.
    fn has_object(&self) -> bool {
        self.is_unfit.load(Ordering::Relaxed) || self.object.cached().is_some()
    }
}
