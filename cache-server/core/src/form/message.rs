//! Objects as protobuf messages: encoded at their first use, shared by all clients, dropped when idle.
//!
//! INVARIANT: messages of all objects of this process together stay within [`MESSAGES_BYTES_MAX`]. An object refers to
//! its message weakly; what keeps it alive is one of two generations, the one in which it was last used.

use std::{
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use informer_serving::protobuf::{
    self, ENVELOPE_TAIL, MESSAGE_FIELD, METADATA_FIELD, envelope_head, field_len, put_bytes, put_event_head, put_head,
};
use parking_lot::{Mutex, RwLock};

use super::{
    MetaVersion, SentEvent,
    budget::{ByteBudget, Share},
};
use crate::{
    entry::Entry,
    limits::{MESSAGES_BYTES_MAX, SHARED_BYTES_MIN, SHARED_PART_MIN},
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
    /// Generation in which it was last used.
    generation: AtomicU32,
    _share: Option<Share>,
}

/// Weak reference to an object's message, and the message's length.
#[derive(Debug, Default)]
pub(crate) struct MessageSlot {
    message: RwLock<Weak<SharedMessage>>,
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

/// Recently used messages, in two generations.
#[derive(Debug)]
struct Generations {
    /// Messages used in the current generation, and those used last in the one before.
    retained: Mutex<[Vec<Arc<SharedMessage>>; 2]>,
    current: AtomicU32,
    room: ByteBudget,
}

static GENERATIONS: Generations = Generations::new(MESSAGES_BYTES_MAX);

/// Returns the bytes of messages that are cached for clients, in all caches of this process.
#[must_use]
pub fn messages_bytes() -> usize {
    GENERATIONS.room.taken()
}

/// Drops the messages that were not used since the call before. Cost: frees them.
pub fn drop_idle_messages() {
    GENERATIONS.advance();
}

impl Generations {
    const fn new(max: usize) -> Self {
        let retained = Mutex::new([Vec::new(), Vec::new()]);
        Self { retained, current: AtomicU32::new(0), room: ByteBudget::new(max) }
    }

    /// Starts a generation and drops the messages not used in the previous one.
    fn advance(&self) {
        let dropped = {
            let mut retained = self.retained.lock();
            self.current.fetch_add(1, Ordering::Relaxed);
            let used = std::mem::take(&mut retained[0]);
            std::mem::replace(&mut retained[1], used)
        };
        // Outside of the lock: there may be tens of thousands.
        drop(dropped);
    }

    /// Takes room for a message. Without room a list keeps no message, as it would displace those of the items before;
    /// an event displaces the oldest, as many watchers are about to send it.
    fn room(&'static self, bytes: usize, is_live: bool) -> Option<Share> {
        let bytes = bytes + size_of::<SharedMessage>() + 2 * size_of::<Arc<SharedMessage>>();
        let turns = if is_live { 2 } else { 0 };
        let found = self.room.share(bytes);
        (0..turns).fold(found, |found, _| {
            found.or_else(|| {
                self.advance();
                self.room.share(bytes)
            })
        })
    }

    /// Retains a message in the current generation.
    fn mark_used(&self, message: &Arc<SharedMessage>) {
        let current = self.current.load(Ordering::Relaxed);
        if message.generation.swap(current, Ordering::Relaxed) != current {
            self.retain(message);
        }
    }

    fn retain(&self, message: &Arc<SharedMessage>) {
        self.retained.lock()[0].push(Arc::clone(message));
    }
}

impl MessageSlot {
    /// Returns the message if it is cached.
    pub(crate) fn cached(&self) -> Option<Arc<SharedMessage>> {
        let message = self.message.read().upgrade()?;
        GENERATIONS.mark_used(&message);
        Some(message)
    }

    /// Returns the cached message, or makes and caches it. Clients that come at once wait for the first. Returns `None`
    /// if the object cannot be encoded.
    fn get(&self, entry: &Entry, form: &MessageForm, is_live: bool) -> Option<Arc<SharedMessage>> {
        if let Some(message) = self.cached() {
            return Some(message);
        }
        let mut slot = self.message.write();
        if let Some(message) = slot.upgrade() {
            return Some(message);
        }
        if self.len.load(Ordering::Relaxed) == UNENCODABLE {
            return None;
        }
        let Some(mut message) = SharedMessage::of(entry, form) else {
            self.len.store(UNENCODABLE, Ordering::Relaxed);
            return None;
        };
        self.len.store(u32::try_from(message.field_len()).unwrap_or(UNENCODABLE), Ordering::Relaxed);
        message._share = GENERATIONS.room(message.bytes.len(), is_live);
        message.generation = AtomicU32::new(GENERATIONS.current.load(Ordering::Relaxed));
        let is_retained = message._share.is_some();
        let message = Arc::new(message);
        if is_retained {
            *slot = Arc::downgrade(&message);
            GENERATIONS.retain(&message);
        }
        Some(message)
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
        Some(Self { bytes, object_at, field_at, metadata, generation: AtomicU32::new(0), _share: None })
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

impl Entry {
    fn slot(&self, form: &MessageForm) -> &MessageSlot {
        match form.part {
            MessagePart::Whole => self.message_slot(),
            MessagePart::Metadata(_) => self.metadata_slot(),
        }
    }

    /// Returns true if its message is cached.
    pub(super) fn has_message(&self, form: &MessageForm) -> bool {
        self.slot(form).cached().is_some()
    }

    /// Pushes the object as a message; nothing if it cannot be encoded, as no part of it may pass for the whole.
    pub(super) fn push_message(
        &self,
        form: &MessageForm,
        without: bool,
        context: MessageContext<'_>,
        out: &mut Slices,
    ) {
        let is_live = matches!(context, MessageContext::Event { is_initial: false, .. });
        let Some(message) = self.slot(form).get(self, form, is_live) else { return };
        let is_deleted = matches!(context, MessageContext::Event { event: SentEvent::Deleted(_), .. });
        // The shared bytes are those of the first version.
        let is_old = form.part == MessagePart::Metadata(MetaVersion::V1Beta1);
        if is_deleted || without || is_old {
            message.push_edited(context, &form.envelope, without, out);
        } else {
            message.push(context, self.is_updated(), out);
        }
    }

    /// Returns the bytes of its item in a list; zero if it cannot be encoded. Cost: encodes the object at the first call.
    pub(super) fn message_len(&self, form: &MessageForm, without: bool) -> usize {
        if without {
            let mut item = Slices::new();
            self.push_message(form, true, MessageContext::Item, &mut item);
            return item.bytes();
        }
        let slot = self.slot(form);
        slot.known_len().unwrap_or_else(|| slot.get(self, form, false).map_or(0, |message| message.field_len()))
    }

    /// Returns true if [`Self::message_len`] does not encode the object.
    pub(super) fn has_message_len(&self, form: &MessageForm) -> bool {
        self.slot(form).known_len().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without room, a list retains no more messages, and an event displaces the oldest. Method: small generations
    /// that are filled with messages.
    #[test]
    fn lists_stop_at_the_budget_and_events_displace() {
        static SMALL: Generations = Generations::new(10_000);
        while let Some(share) = SMALL.room(1_000, false) {
            let (bytes, metadata, generation, _share) = (Bytes::new(), 0..0, AtomicU32::new(0), Some(share));
            SMALL.retain(&Arc::new(SharedMessage { bytes, object_at: 0, field_at: 0, metadata, generation, _share }));
        }
        let full = SMALL.room.taken();
        assert!(5_000 < full);
        assert!(SMALL.room(1_000, false).is_none());
        assert_eq!(SMALL.room.taken(), full, "a list displaces nothing");
        assert!(SMALL.room(1_000, true).is_some());
        assert_eq!(SMALL.room.taken(), 0, "idle messages, and the share that was dropped at once");
    }
}
