//! Objects as protobuf messages: encoded at their first use, shared by all clients, dropped when idle.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use informer_serving::protobuf::{
    self, ENVELOPE_TAIL, MESSAGE_FIELD, METADATA_FIELD, envelope_head, field_len, put_bytes, put_event_head, put_head,
};

use super::{
    MetaVersion, SentEvent,
    derived::{DerivedForm, DerivedSlot},
    served::ServedEntry,
};
use crate::{
    entry::Entry,
    limits::{SHARED_BYTES_MIN, SHARED_PART_MIN},
    slices::Slices,
};

/// Encodes objects of one type as protobuf messages.
pub trait Messages: Send + Sync {
    /// Returns the fields of the ObjectMeta whose JSON is `metadata`; `None` if it cannot be encoded as a whole.
    fn metadata(&self, metadata: &[u8]) -> Option<Vec<u8>>;

    /// Returns the fields of the object whose JSON is `object`, but for its metadata; `None` if it cannot be encoded as
    /// a whole.
    fn rest(&'static self, object: &[u8]) -> Option<Vec<u8>>;
}

/// The protobuf format of one request.
#[derive(Clone)]
pub(crate) struct MessageForm {
    pub(super) messages: &'static dyn Messages,
    /// The envelope up to the message.
    pub(super) envelope: Bytes,
    pub(super) part: MessagePart,
}

/// The part of an object that its message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessagePart {
    Whole,
    Metadata(MetaVersion),
}

impl std::fmt::Debug for MessageForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageForm").field("part", &self.part).finish_non_exhaustive()
    }
}

/// A watch event as bytes; the envelope and the message are sub-ranges of it.
#[derive(Debug)]
pub(crate) struct SharedMessage {
    bytes: Bytes,
    /// Start of the envelope.
    object_at: usize,
    /// Start of the message, with its tag and length.
    field_at: usize,
    /// The fields of the metadata.
    metadata: Range<usize>,
}

/// An object's message while it is cached, and the message's length.
#[derive(Debug, Default)]
pub(crate) struct MessageSlot {
    message: DerivedSlot<SharedMessage>,
    /// Length of the message with its tag and length; zero before the first encoding, and [`UNENCODABLE`].
    len: AtomicU32,
}

/// Marks an object that cannot be encoded, in place of a length. Messages are shorter: stored objects have a limit.
const UNENCODABLE: u32 = u32::MAX;

/// Context of a message: list item, single object or watch event.
#[derive(Clone, Copy)]
pub(super) enum MessageContext<'a> {
    /// Among the items of a list.
    Item,
    /// Alone.
    Document,
    /// In an event of a watch. Objects of an initial state displace no other messages.
    Event { event: &'a SentEvent<'a>, is_initial: bool },
}

impl MessageSlot {
    /// Returns the cached message, or makes and caches it. Clients that come at once wait for the first. Returns `None`
    /// if the object cannot be encoded.
    fn get(
        &self,
        served: ServedEntry<'_>,
        form: &MessageForm,
        is_live: bool,
    ) -> Option<Arc<DerivedForm<SharedMessage>>> {
        self.message.get(is_live, || {
            if self.len.load(Ordering::Relaxed) == UNENCODABLE {
                return None;
            }
            let Some(message) = SharedMessage::of(&served.object_once(), form) else {
                self.len.store(UNENCODABLE, Ordering::Relaxed);
                return None;
            };
            self.len.store(u32::try_from(message.field_len()).unwrap_or(UNENCODABLE), Ordering::Relaxed);
            let bytes = message.bytes.len();
            Some((message, bytes))
        })
    }

    /// Returns the length of the message with its tag and length, if it is known; zero if there can be no message.
    fn known_len(&self) -> Option<usize> {
        match self.len.load(Ordering::Relaxed) {
            0 => None,
            UNENCODABLE => Some(0),
            len => Some(len as usize),
        }
    }
}

impl SharedMessage {
    /// Encodes an object, as the event that created or updated it; metadata in the envelope of the first version, whichever
    /// `form` has.
    fn of(entry: &Entry, form: &MessageForm) -> Option<Self> {
        let metadata = form.messages.metadata(entry.metadata_text())?;
        let (rest, envelope) = match form.part {
            MessagePart::Whole => (form.messages.rest(entry.object_text())?, form.envelope.clone()),
            MessagePart::Metadata(_) => (Vec::new(), partial_envelope(MetaVersion::V1)),
        };
        let len = field_len(metadata.len()) + rest.len();
        let object_len = envelope.len() + field_len(len) + ENVELOPE_TAIL.len();
        let mut bytes = Vec::with_capacity(object_len + EVENT_HEAD_BYTES);
        put_event_head(SentEvent::as_stored(entry.is_updated()).name(), object_len, &mut bytes);
        let object_at = bytes.len();
        bytes.extend_from_slice(&envelope);
        let field_at = bytes.len();
        put_head(MESSAGE_FIELD, len, &mut bytes);
        put_head(METADATA_FIELD, metadata.len(), &mut bytes);
        let metadata_at = bytes.len();
        bytes.extend_from_slice(&metadata);
        bytes.extend_from_slice(&rest);
        bytes.extend_from_slice(ENVELOPE_TAIL);
        let metadata = metadata_at..metadata_at + metadata.len();
        let bytes = Bytes::from(bytes.into_boxed_slice());
        Some(Self { bytes, object_at, field_at, metadata })
    }

    /// End of the message.
    fn tail_at(&self) -> usize {
        self.bytes.len() - ENVELOPE_TAIL.len()
    }

    /// Length of the message with its tag and length.
    fn field_len(&self) -> usize {
        self.tail_at() - self.field_at
    }

    /// Returns bytes to send: a shared slice, or a copy where little would keep much alive.
    fn part(&self, range: Range<usize>) -> Bytes {
        if self.bytes.len() <= SHARED_BYTES_MIN || self.bytes.len() <= range.len() * SHARED_PART_MIN {
            self.bytes.slice(range)
        } else {
            Bytes::copy_from_slice(self.bytes.get(range).unwrap_or_default())
        }
    }

    /// Pushes the message unchanged.
    fn push(&self, context: MessageContext<'_>, is_updated: bool, out: &mut Slices) {
        match context {
            MessageContext::Item => out.push(self.part(self.field_at..self.tail_at())),
            MessageContext::Document => out.push(self.part(self.object_at..self.bytes.len())),
            MessageContext::Event { event, .. } => {
                if event.name() == SentEvent::as_stored(is_updated).name() {
                    return out.push(self.bytes.clone());
                }
                let mut head = Vec::with_capacity(EVENT_HEAD_BYTES);
                put_event_head(event.name(), self.bytes.len() - self.object_at, &mut head);
                out.push(head.into());
                out.push(self.part(self.object_at..self.bytes.len()));
            }
        }
    }

    /// Pushes the object in another envelope, without managedFields, or with other digits.
    fn push_edited(&self, context: MessageContext<'_>, envelope: &[u8], without: bool, out: &mut Slices) {
        let digits = match context {
            MessageContext::Event { event, .. } => event.digits(),
            MessageContext::Item | MessageContext::Document => None,
        };
        let metadata = self.edited_metadata(digits, without);
        let metadata_len = metadata.iter().map(Bytes::len).sum();
        let rest = self.part(self.metadata.end..self.tail_at());
        let len = field_len(metadata_len) + rest.len();
        let mut head = Vec::new();
        if let MessageContext::Event { event, .. } = context {
            put_event_head(event.name(), envelope.len() + field_len(len) + ENVELOPE_TAIL.len(), &mut head);
        }
        if !matches!(context, MessageContext::Item) {
            head.extend_from_slice(envelope);
        }
        put_head(MESSAGE_FIELD, len, &mut head);
        put_head(METADATA_FIELD, metadata_len, &mut head);
        out.push(head.into());
        metadata.into_iter().for_each(|part| out.push(part));
        out.push(rest);
        if !matches!(context, MessageContext::Item) {
            out.push_static(ENVELOPE_TAIL);
        }
    }

    /// Returns the fields of the metadata, without managedFields or with other digits.
    fn edited_metadata(&self, digits: Option<&Bytes>, without: bool) -> Vec<Bytes> {
        let metadata = self.bytes.get(self.metadata.clone()).unwrap_or_default();
        let (mut parts, mut from) = (Vec::new(), 0);
        for (number, range) in fields(metadata) {
            let replacement = match (number, digits) {
                (RESOURCE_VERSION_FIELD, Some(digits)) => {
                    let mut field = Vec::new();
                    put_bytes(RESOURCE_VERSION_FIELD, digits, &mut field);
                    field
                }
                (MANAGED_FIELDS_FIELD, _) if without => Vec::new(),
                _ => continue,
            };
            parts.push(self.part(self.metadata.start + from..self.metadata.start + range.start));
            parts.push(replacement.into());
            from = range.end;
        }
        parts.push(self.part(self.metadata.start + from..self.metadata.end));
        parts
    }
}

/// Returns the envelope of a PartialObjectMetadata up to its message.
pub(super) fn partial_envelope(meta: MetaVersion) -> Bytes {
    envelope_head(meta.api_version(), "PartialObjectMetadata").into()
}

/// Room for the bytes of an event before its object.
const EVENT_HEAD_BYTES: usize = 32;

/// Numbers of fields of ObjectMeta.
const RESOURCE_VERSION_FIELD: u32 = 6;
const MANAGED_FIELDS_FIELD: u32 = 17;

/// Splits an encoded ObjectMeta into fields: number, and range with tag and length.
fn fields(message: &[u8]) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let tag = protobuf::take_varint(message, &mut at)?;
        let value = protobuf::take_varint(message, &mut at)?;
        // Every ObjectMeta field is a varint or length-delimited.
        if tag & 7 == u64::from(protobuf::BYTES) {
            at += usize::try_from(value).ok()?;
        }
        Some((u32::try_from(tag >> 3).ok()?, start..at.min(message.len())))
    })
}

impl ServedEntry<'_> {
    /// Returns true if its message is cached.
    pub(super) fn has_message(self, form: &MessageForm) -> bool {
        self.slot(form).message.cached().is_some()
    }

    /// Pushes the object as a message; nothing if it cannot be encoded, as no part of it may pass for the whole.
    pub(super) fn push_message(self, form: &MessageForm, without: bool, context: MessageContext<'_>, out: &mut Slices) {
        let is_live = matches!(context, MessageContext::Event { is_initial: false, .. });
        let Some(message) = self.slot(form).get(self, form, is_live) else { return };
        let is_deleted = matches!(context, MessageContext::Event { event: SentEvent::Deleted(_), .. });
        // The shared bytes are those of the first version.
        let is_old = form.part == MessagePart::Metadata(MetaVersion::V1Beta1);
        if is_deleted || without || is_old {
            message.push_edited(context, &form.envelope, without, out);
        } else {
            message.push(context, self.stored.is_updated(), out);
        }
    }

    /// Returns the bytes of its item in a list; zero if it cannot be encoded. Cost: encodes the object at the first call.
    pub(super) fn message_len(self, form: &MessageForm, without: bool) -> usize {
        if without {
            let mut item = Slices::new();
            self.push_message(form, true, MessageContext::Item, &mut item);
            return item.bytes();
        }
        let slot = self.slot(form);
        slot.known_len().unwrap_or_else(|| slot.get(self, form, false).map_or(0, |message| message.field_len()))
    }

    /// Returns true if [`Self::message_len`] does not encode the object.
    pub(super) fn has_message_len(self, form: &MessageForm) -> bool {
        self.slot(form).known_len().is_some()
    }

    fn slot(&self, form: &MessageForm) -> &MessageSlot {
        self.stored.message_slot(self.conversion.is_some(), matches!(form.part, MessagePart::Metadata(_)))
    }
}
