//! Consecutive objects of a response as one compressed piece, shared by all responses that send them in a row.
//!
//! Pods of some kilobytes shrink to a third each, and to a fifth in groups of a few dozen. An object's resourceVersion
//! decides if a group ends behind it, so a change concerns its own group and seldom the next one. Pages, namespaces and
//! later lists have most groups in common.
//!
//! INVARIANT: cached pieces of all objects of this process together stay within [`PIECES_BYTES_MAX`]. INVARIANT: a
//! cached piece is used only for the objects that it was made of. It refers to them weakly, so no other object gets
//! their addresses.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use informer_core::KeyedObject as _;
use parking_lot::Mutex;

use super::{
    Content, EventFormatter, Form, SentEvent,
    budget::{ByteBudget, Share},
};
use crate::{
    entry::Entry,
    limits::{GROUP_BYTES, GROUP_BYTES_MAX, PIECES_BYTES_MAX},
    slices::Slices,
};

/// The text of a group, compressed so that it is valid anywhere in a deflate stream: whole blocks without references to
/// earlier data that end on a byte boundary.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Deflate blocks, none of them marked as the last.
    pub deflated: Bytes,
    /// CRC-32 of the text.
    pub sum: u32,
    /// Length of the text, in bytes.
    pub len: u32,
}

/// Consecutive objects of one response, in its format. Memory: one reference for each; they have at most
/// [`GROUP_BYTES_MAX`] bytes, or one object more.
#[derive(Debug)]
pub struct ObjectGroup {
    form: Form,
    text: GroupText,
    objects: Vec<Arc<Entry>>,
    bytes: usize,
    has_long: bool,
    is_complete: bool,
}

/// Shape of the objects in a group's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GroupText {
    /// The first items of a list: no comma before them.
    FirstItems,
    /// Items of a list behind others.
    Items,
    /// ADDED events of an initial state.
    Added,
}

/// A piece, and the objects and format that it was made of.
#[derive(Debug)]
struct CachedPiece {
    form: Form,
    text: GroupText,
    objects: Box<[Weak<Entry>]>,
    piece: Piece,
    _share: Share,
}

/// Pieces used in the current generation, and those used last in the one before. A place is a hash of format and ends: a
/// group replaces the one that had its ends before a change.
struct CachedPieces {
    places: Mutex<[BTreeMap<u64, CachedPiece>; 2]>,
    room: ByteBudget,
}

static PIECES: CachedPieces = CachedPieces::new(PIECES_BYTES_MAX);

/// Returns the bytes of compressed objects that are cached for responses, in all caches of this process.
#[must_use]
pub fn pieces_bytes() -> usize {
    PIECES.room.taken()
}

/// Drops the compressed objects that no response used since the call before. Cost: frees them.
pub fn drop_idle_pieces() {
    PIECES.advance();
}

impl ObjectGroup {
    /// Creates a group for the first items of a list. Returns `None` for rows, whose text depends on the time.
    #[must_use]
    pub fn of_items(form: &Form) -> Option<Self> {
        Self::new(form, GroupText::FirstItems)
    }

    /// Like [`Self::of_items`], for the ADDED events of an initial state.
    #[must_use]
    pub fn of_added(form: &Form) -> Option<Self> {
        Self::new(form, GroupText::Added)
    }

    fn new(form: &Form, text: GroupText) -> Option<Self> {
        let is_timeless = !matches!(form.content, Content::Row(_));
        let (form, objects) = (form.clone(), Vec::new());
        is_timeless.then_some(Self { form, text, objects, bytes: 0, has_long: false, is_complete: false })
    }

    /// Appends an object. Returns true if the group ends behind it.
    pub fn push(&mut self, entry: &Arc<Entry>) -> bool {
        self.bytes += entry.len();
        self.has_long |= entry.is_long();
        self.objects.push(Arc::clone(entry));
        self.is_complete = self.bytes >= GROUP_BYTES_MAX || ends_behind(entry);
        self.is_complete
    }

    /// Returns true if the last pushed object ended the group, or [`Self::complete`] was called.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Ends the group, whatever its length.
    pub const fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Returns the format of its objects.
    #[must_use]
    pub const fn form(&self) -> &Form {
        &self.form
    }

    /// Returns its objects.
    #[must_use]
    pub fn objects(&self) -> &[Arc<Entry>] {
        &self.objects
    }

    /// Removes all objects; the next ones follow them.
    pub fn clear(&mut self) {
        self.objects.clear();
        (self.bytes, self.has_long, self.is_complete) = (0, false, false);
        if self.text == GroupText::FirstItems {
            self.text = GroupText::Items;
        }
    }

    /// Returns true if it takes long to write: it has a long object to compress or to encode.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.is_slow_with(&PIECES)
    }

    fn is_slow_with(&self, pieces: &CachedPieces) -> bool {
        self.has_long && pieces.get(self).is_none() && (self.form.is_protobuf() || pieces.has_room(self))
    }

    /// Returns the compressed text. `compress` is called if it is not cached. Returns `None` if there is no room for
    /// it, or an object cannot be encoded.
    pub fn piece(&self, compress: impl FnOnce(&Slices) -> Piece) -> Option<Piece> {
        let cached = PIECES.get(self);
        if cached.is_some() || !PIECES.has_room(self) {
            return cached;
        }
        let mut text = Slices::new();
        self.text(&mut text).then(|| {
            let piece = compress(&text);
            PIECES.keep(self, &piece);
            piece
        })
    }

    /// Pushes the text. Returns false if an object cannot be encoded; neither it nor the ones behind it are pushed.
    pub fn text(&self, out: &mut Slices) -> bool {
        let mut formatter = EventFormatter::new(self.form.clone());
        formatter.set_initial(true);
        for (place, entry) in self.objects.iter().enumerate() {
            let before = out.bytes();
            match self.text {
                GroupText::Added => formatter.line(entry, &SentEvent::Added, out),
                GroupText::Items => formatter.item(entry, false, out),
                GroupText::FirstItems => formatter.item(entry, place == 0, out),
            }
            if out.bytes() == before {
                return false;
            }
        }
        true
    }

    /// Hashes format and ends. Objects keep their uid through changes.
    fn place(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Form { content, without_managed_fields, version, message } = &self.form;
        (mem::discriminant(content), without_managed_fields, self.text).hash(&mut hasher);
        if let Content::Metadata(version) = content {
            mem::discriminant(version).hash(&mut hasher);
        }
        version.as_ref().map(|version| &version.head).hash(&mut hasher);
        message.as_ref().map(|message| &message.envelope).hash(&mut hasher);
        for entry in [self.objects.first(), self.objects.last()].into_iter().flatten() {
            if entry.uid().is_empty() { entry.key() } else { entry.uid() }.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Decides if a group ends behind `entry`: with a probability that grows with its length, so that groups have
/// [`GROUP_BYTES`] on average.
fn ends_behind(entry: &Entry) -> bool {
    // Mixes all bits, as versions of neighbours are often consecutive. Source: SplitMix64.
    let mut mixed = entry.resource_version();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % (GROUP_BYTES as u64) < entry.len() as u64
}

impl CachedPiece {
    fn is_of(&self, group: &ObjectGroup) -> bool {
        self.text == group.text
            && self.objects.len() == group.objects.len()
            && self.objects.iter().zip(&group.objects).all(|(weak, entry)| weak.as_ptr() == Arc::as_ptr(entry))
            && self.form.has_text_of(&group.form)
    }
}

impl CachedPieces {
    const fn new(max: usize) -> Self {
        Self { places: Mutex::new([BTreeMap::new(), BTreeMap::new()]), room: ByteBudget::new(max) }
    }

    /// Starts a generation and drops the pieces not used in the previous one.
    fn advance(&self) {
        let dropped = {
            let mut places = self.places.lock();
            let used = mem::take(&mut places[0]);
            mem::replace(&mut places[1], used)
        };
        // Outside of the lock: there may be thousands.
        drop(dropped);
    }

    /// Returns the piece of `group`; removes the one of another group at its place.
    fn get(&self, group: &ObjectGroup) -> Option<Piece> {
        let place = group.place();
        let [current, previous] = &mut *self.places.lock();
        if let Some(idle) = previous.remove(&place) {
            current.entry(place).or_insert(idle);
        }
        let found = current.get(&place)?;
        if found.is_of(group) {
            return Some(found.piece.clone());
        }
        current.remove(&place);
        None
    }

    /// Returns true if there is room for the piece, however badly it compresses: no work is done for one that has none.
    fn has_room(&self, group: &ObjectGroup) -> bool {
        self.room.has_room(cost(group, group.bytes))
    }

    /// Caches `piece`, if the budget allows it.
    fn keep(&'static self, group: &ObjectGroup, piece: &Piece) {
        let Some(share) = self.room.share(cost(group, piece.deflated.len())) else { return };
        let objects = group.objects.iter().map(Arc::downgrade).collect();
        let (form, text, piece) = (group.form.clone(), group.text, piece.clone());
        let cached = CachedPiece { form, text, objects, piece, _share: share };
        self.places.lock()[0].insert(group.place(), cached);
    }
}

/// Memory of the group's piece, if it has `bytes`.
const fn cost(group: &ObjectGroup, bytes: usize) -> usize {
    size_of::<CachedPiece>() + bytes + group.objects.len() * OBJECT_BYTES
}

/// Memory of a piece for each of its objects: a reference, which keeps the allocation of a replaced object, but not its
/// text.
const OBJECT_BYTES: usize = size_of::<Weak<Entry>>() + size_of::<Entry>() + 2 * size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::{super::MetaVersion, *};
    use crate::{
        entry::{Draft, Schema},
        form::Messages,
        limits::APART_BYTES,
    };

    fn pods(count: u64, bytes: usize) -> Vec<Arc<Entry>> {
        let (kind, api_version) = ("Pod".to_owned(), "v1".to_owned());
        let schema = Schema { kind, api_version, builtin: true, fields: Vec::new(), node_field: None };
        let pod = |number| {
            let meta = format!(r#"{{"name":"p{number}","uid":"{number}"}}"#);
            format!(r#"{{"metadata":{meta},"spec":"{}"}}"#, "x".repeat(bytes))
        };
        (1..=count).map(|at| Draft::new(&schema, pod(at).as_bytes()).expect("a pod").commit(at)).collect()
    }

    /// Splits objects into groups, by their resourceVersions.
    fn groups(objects: &[Arc<Entry>]) -> Vec<Vec<u64>> {
        let (mut group, mut all) = (ObjectGroup::of_items(&Form::whole()).expect("a form without time"), Vec::new());
        for (place, entry) in objects.iter().enumerate() {
            if group.push(entry) || place + 1 == objects.len() {
                all.push(group.objects().iter().map(|entry| entry.resource_version()).collect());
                group.clear();
            }
        }
        all
    }

    #[test]
    fn groups_are_bounded_and_most_survive_an_insertion() {
        for bytes in [100, 2_000, 20_000] {
            let all = pods(4_000, bytes);
            let whole = groups(&all);
            let objects_max = GROUP_BYTES_MAX / bytes + 1;
            assert!(whole.iter().all(|group| group.len() <= objects_max), "{bytes}");
            let average = 4_000 * all[0].len() / whole.len();
            assert!((GROUP_BYTES / 2..GROUP_BYTES_MAX).contains(&average), "{average} bytes on average");
            // Without one object in the middle, and without the beginning.
            let removed: Vec<_> = all.iter().filter(|entry| entry.resource_version() != 2_000).cloned().collect();
            for others in [groups(&removed), groups(&all[100..])] {
                let common = others.iter().filter(|group| whole.contains(group)).count();
                assert!(common + 4 >= others.len(), "{bytes}: {common} of {}", others.len());
            }
        }
    }

    fn piece(_: &Slices) -> Piece {
        Piece { deflated: vec![7; 1_000].into(), sum: 0, len: 0 }
    }

    fn group_of(form: &Form, objects: &[Arc<Entry>]) -> ObjectGroup {
        let mut group = ObjectGroup::of_items(form).expect("a form without time");
        for entry in objects {
            group.push(entry);
        }
        group
    }

    #[test]
    fn a_piece_is_used_for_its_objects_and_format_only() {
        let made = |group: &ObjectGroup| {
            let mut made = false;
            let found = group.piece(|text| {
                made = true;
                piece(text)
            });
            assert!(found.is_some());
            made
        };
        let objects = pods(3, 100);
        let whole = Form::whole();
        let without = Form { without_managed_fields: true, ..Form::whole() };
        assert!(made(&group_of(&whole, &objects)));
        assert!(!made(&group_of(&whole, &objects)), "cached");
        assert!(made(&group_of(&without, &objects)), "another format");
        assert!(made(&ObjectGroup { text: GroupText::Added, ..group_of(&whole, &objects) }), "events");
        let metadata = [MetaVersion::V1, MetaVersion::V1Beta1]
            .map(|version| Form { content: Content::Metadata(version), ..Form::whole() });
        assert!(metadata.iter().all(|form| made(&group_of(form, &objects))), "versions of metadata");
        assert!(!metadata.iter().any(|form| made(&group_of(form, &objects))), "each at its own place");
        assert!(!made(&group_of(&whole, &objects)), "still cached");
        drop_idle_pieces();
        assert!(!made(&group_of(&whole, &objects)), "used since");
        drop_idle_pieces();
        drop_idle_pieces();
        assert!(made(&group_of(&whole, &objects)), "idle");
        // The same ends, another object between them: it replaces the piece.
        let changed = [objects[0].clone(), pods(3, 100)[1].clone(), objects[2].clone()];
        assert!(made(&group_of(&whole, &changed)));
        assert!(made(&group_of(&whole, &objects)));
        assert!(made(&group_of(&whole, &objects[..2])), "fewer objects");
    }

    struct NoMessages;

    impl Messages for NoMessages {
        fn metadata(&self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }

        fn rest(&'static self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    #[test]
    fn only_groups_with_a_long_object_to_write_are_slow() {
        static ROOMY: CachedPieces = CachedPieces::new(1 << 20);
        static FULL: CachedPieces = CachedPieces::new(0);
        let (long, short) = (pods(2, APART_BYTES), pods(2, APART_BYTES / 2));
        for form in [Form::whole(), Form::whole().in_protobuf(&NoMessages, "v1", "Pod")] {
            let [short, mixed, mut long] = [short.clone(), vec![short[0].clone(), long[1].clone()], long.clone()]
                .map(|pods| group_of(&form, &pods));
            assert_eq!([&short, &mixed, &long].map(|group| group.is_slow_with(&ROOMY)), [false, true, true]);
            // For want of room nothing is compressed, but protobuf is still to be encoded.
            assert_eq!(long.is_slow_with(&FULL), form.is_protobuf());
            ROOMY.keep(&long, &piece(&Slices::new()));
            assert!(!long.is_slow_with(&ROOMY), "cached");
            long.clear();
            assert!(!long.is_slow_with(&ROOMY), "empty");
        }
    }

    #[test]
    fn pieces_stay_within_the_budget() {
        static SMALL: CachedPieces = CachedPieces::new(10_000);
        let objects = pods(100, 100);
        for entry in &objects {
            let group = group_of(&Form::whole(), std::slice::from_ref(entry));
            SMALL.keep(&group, &piece(&Slices::new()));
        }
        let taken = SMALL.room.taken();
        assert!((8_000..=10_000).contains(&taken), "{taken}");
        let group = group_of(&Form::whole(), &objects[..1]);
        assert!(SMALL.get(&group).is_some());
        let newer = group_of(&Form::whole(), &pods(1, 200));
        assert!(SMALL.get(&newer).is_none(), "a newer version of the object");
        assert!(SMALL.room.taken() < taken, "which removed the older one");
        SMALL.advance();
        SMALL.advance();
        assert_eq!(SMALL.room.taken(), 0);
    }
}
