//! The items of one LIST response: the start and end of a page in a snapshot, and its items one by one.
//!
//! INVARIANT: memory is a snapshot and two keys, independent of the number of items.

use std::sync::Arc;

use informer_core::{KeyedObject, Objects};

use crate::{
    entry::Entry,
    epoch::FrozenState,
    filter::{Filter, Range},
    form::{EventFormatter, Form, SlowItem},
    limits::{LONG_SELECTOR_WEIGHT, LOOKED_AT_PER_STEP, READ_PER_STEP},
    reader::CacheSnapshot,
    slices::{Budget, Slices},
};

/// A position in a snapshot, before which all objects were visited. Used by initial states and LIST responses.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotWalk {
    state: FrozenState,
    filter: Arc<Filter>,
    /// Key to resume from.
    key: String,
    /// True if the object at `key` itself was visited.
    passed: bool,
    /// False for a walk that only counts and sends no object.
    is_shown: bool,
}

impl SnapshotWalk {
    pub(crate) fn new(state: FrozenState, filter: Arc<Filter>) -> Self {
        let key = filter.range().start().to_owned();
        Self { state, filter, key, passed: false, is_shown: true }
    }

    /// Starts at `start`: as in a continue token, relative to the namespace of the path, inclusive.
    pub(crate) fn starting(state: FrozenState, filter: Arc<Filter>, start: &str) -> Self {
        let mut walk = Self::new(state, filter);
        let absolute = match walk.filter.namespace() {
            Some(namespace) => format!("{namespace}/{start}"),
            None => start.to_owned(),
        };
        walk.key = absolute.max(walk.key);
        walk
    }

    /// Returns the key for [`Self::starting`] to resume after the visited objects; `None` before the first one.
    pub(crate) fn behind(&self) -> Option<String> {
        let prefix = self.filter.namespace().map_or(0, |namespace| namespace.len() + 1);
        // The zero byte makes the key the smallest one after the last visited object.
        self.passed.then(|| format!("{}\0", self.key.get(prefix..).unwrap_or_default()))
    }

    /// Returns a walk from here that sends no object.
    pub(crate) fn ahead(&self) -> Self {
        Self { is_shown: false, ..self.clone() }
    }

    pub(crate) const fn state(&self) -> &FrozenState {
        &self.state
    }

    /// Visits matching objects in key order until `visit` returns false or `LOOKED_AT_PER_STEP` are examined. Returns
    /// true if there may be more; must not be called again after false. For a cut snapshot it visits no object and
    /// always returns true.
    pub(crate) fn step(&mut self, mut visit: impl FnMut(&Arc<Entry>) -> bool) -> bool {
        let mut last = None;
        let mut more = false;
        let (mut looked, mut shown) = (0, 0);
        // Clones the map for one step only: a cut can then free the objects even if this reader stops.
        let Some(objects) = self.state.objects() else { return true };
        {
            let range = self.filter.range();
            let mut look = |entry: &Arc<Entry>| {
                looked += self.filter.weight();
                more = looked >= LOOKED_AT_PER_STEP;
                if self.filter.matches(entry) {
                    shown += entry.len();
                    more |= !visit(entry);
                }
                if more {
                    last = Some(Arc::clone(entry));
                }
                !more
            };
            walk(&objects, range, &self.key, self.passed, &mut look);
        }
        // A walk ahead must not count as progress: the client has received no bytes of it.
        if self.is_shown {
            self.state.read(shown);
        }
        if let Some(last) = last {
            self.key.clear();
            self.key.push_str(last.key());
            self.passed = true;
        }
        if !more && self.is_shown {
            self.state.done();
        }
        more
    }

    fn is_at_end(&self) -> bool {
        let Some(objects) = self.state.objects() else { return false };
        let mut end = true;
        walk(&objects, self.filter.range(), &self.key, self.passed, &mut |_| {
            end = false;
            false
        });
        end
    }
}

/// Visits every object of `range` from `key` on until `look` returns false. Cost: O(log n + visited).
fn walk(objects: &Objects<Entry>, range: &Range, key: &str, passed: bool, look: &mut impl FnMut(&Arc<Entry>) -> bool) {
    match (range, passed) {
        (Range::Key(_), true) => {}
        // Every key in the range is at or after the range's start, so an earlier `key` makes no difference.
        (Range::Key(only), false) => {
            if let Some(entry) = objects.get(only).filter(|entry| key <= entry.key()) {
                look(entry);
            }
        }
        (Range::All | Range::Namespace(_), true) => {
            let mut entries = objects.after(Some(key)).take_while(|entry| range.contains(entry));
            entries.all(look);
        }
        (Range::All | Range::Namespace(_), false) => {
            let mut entries = objects.from(key).take_while(|entry| range.contains(entry));
            entries.all(look);
        }
    }
}

/// The items of one LIST response. Holds a snapshot and a key, no list of items.
#[derive(Debug)]
pub struct Page {
    walk: SnapshotWalk,
    /// Matching objects left to send; `None` if unlimited.
    left: Option<usize>,
    first: bool,
    done: bool,
    /// Set while the end of the page is being searched.
    ahead: Option<Box<PageLookAhead>>,
    next: Option<String>,
    remaining: Option<u64>,
    /// Objects from the start of the page on, if the previous page counted them.
    following: Option<u64>,
    formatter: EventFormatter,
    /// An item after all pushed ones that the caller has to format. Boxed, because few pages ever have one.
    slow: Option<Box<SlowItem>>,
    /// Set while the items are being measured.
    measure: Option<Box<PageMeasure>>,
}

/// Result of one step of [`Page::measure`].
#[derive(Debug)]
pub enum Measurement {
    /// Call [`Page::measure`] again.
    More,
    /// The next object takes long to encode: call [`Form::item_bytes`] for it where it delays no other client, and then
    /// [`Page::measure`] again.
    Slow(Arc<Entry>),
    /// The bytes of all items.
    All(u64),
    /// An object that cannot be encoded: send no protobuf list.
    Failed(Arc<Entry>),
}

/// A walk over the page that sums up the bytes of its items.
#[derive(Debug)]
struct PageMeasure {
    walk: SnapshotWalk,
    left: Option<usize>,
    bytes: u64,
    /// An object behind the measured ones, whose bytes are to be added.
    slow: Option<Arc<Entry>>,
}

/// A walk ahead of the page to its last object, and then on to count the rest.
#[derive(Debug)]
struct PageLookAhead {
    walk: SnapshotWalk,
    /// Matching objects left up to the end of the page.
    left: usize,
}

impl Page {
    /// Creates a page of the objects of `snapshot` that match `filter`, from `start` (as in a continue token: relative
    /// to the namespace of the path, inclusive), at most `limit` of them; zero means unlimited. Cost: none without a
    /// limit; with one, a complete [`Self::look_ahead`].
    #[must_use]
    pub fn new(snapshot: CacheSnapshot, filter: Arc<Filter>, start: Option<&str>, limit: Option<usize>) -> Self {
        let mut page = Self::begin(snapshot, filter, start, limit);
        while page.look_ahead() {}
        page
    }

    /// Like [`Self::new`], without searching for the end: call [`Self::look_ahead`] until it returns false.
    #[must_use]
    pub fn begin(snapshot: CacheSnapshot, filter: Arc<Filter>, start: Option<&str>, limit: Option<usize>) -> Self {
        let left = limit.filter(|&limit| 0 < limit);
        let state = snapshot.freeze(false);
        let walk = || match start {
            Some(start) => SnapshotWalk::starting(state.clone(), Arc::clone(&filter), start),
            None => SnapshotWalk::new(state.clone(), Arc::clone(&filter)),
        };
        let ahead = left.map(|left| Box::new(PageLookAhead { walk: SnapshotWalk { is_shown: false, ..walk() }, left }));
        // Every object of the state follows the start of a whole list.
        let is_whole = start.is_none() && filter.is_trivial() && matches!(filter.range(), Range::All);
        let following = state.objects().filter(|_| is_whole).and_then(|objects| u64::try_from(objects.len()).ok());
        let (walk, next, remaining, formatter) = (walk(), None, None, EventFormatter::default());
        let (first, done, slow, measure) = (true, false, None, None);
        Self { walk, left, first, done, ahead, next, remaining, following, formatter, slow, measure }
    }

    /// Sets the number of objects from the start of the page on, as counted by the previous page. The objects after
    /// this page are then not counted again, so a paged list costs one walk over its objects, not one per page. The first
    /// page of a list without a range takes the number from the state.
    #[must_use]
    pub fn with_following(mut self, following: Option<u64>) -> Self {
        self.following = following.or(self.following);
        self
    }

    /// Searches for the end of the page and, without a selector, counts the objects after it. Returns true if there is
    /// more to do. Cost: one step; visits each object of the page once, and each one after it if they are counted.
    pub fn look_ahead(&mut self) -> bool {
        // A cut page needs no end: its reader is cut as well.
        let Some(PageLookAhead { walk, left }) = self.ahead.as_deref_mut().filter(|ahead| !ahead.walk.state.is_cut())
        else {
            return false;
        };
        let more = match &mut self.remaining {
            Some(count) => walk.step(|_| {
                *count += 1;
                true
            }),
            None => {
                let more = walk.step(|_| {
                    *left -= 1;
                    *left > 0
                });
                if *left == 0 && !walk.is_at_end() {
                    self.next = walk.behind();
                    let shown = self.left.and_then(|left| u64::try_from(left).ok());
                    // A count smaller than the page is invalid and ignored; it comes from the client's token.
                    let known = self.following.zip(shown).and_then(|(following, shown)| following.checked_sub(shown));
                    let known = known.filter(|&remaining| remaining > 0);
                    self.remaining = walk.filter.selects_all().then(|| known.unwrap_or(0));
                    if known.is_some() {
                        self.ahead = None;
                        return false;
                    }
                }
                more && (*left > 0 || self.remaining.is_some())
            }
        };
        if !more {
            self.ahead = None;
        }
        more
    }

    /// Returns the resourceVersion of the list's metadata.
    #[must_use]
    pub const fn resource_version(&self) -> u64 {
        self.walk.state.resource_version
    }

    /// Returns `start` of the next page, if at least one more object follows in the range, matching or not.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Returns the number of objects after this page; only with [`Self::next`] and without selectors.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Sets the format. Call before the first step. `now` is the time for ages in table rows, in Unix seconds.
    #[must_use]
    pub fn shown_as(mut self, form: Form, now: i64) -> Self {
        self.formatter = EventFormatter::new(form);
        self.formatter.set_now(now);
        self
    }

    /// Sums up the bytes of all items of a protobuf list, which must be known before the first item is sent. Call until it
    /// returns [`Measurement::All`], before the first step. Cost: one step; encodes each object whose length is not known.
    pub fn measure(&mut self) -> Measurement {
        let Self { walk, left, formatter, measure, .. } = self;
        let measure = measure
            .get_or_insert_with(|| Box::new(PageMeasure { walk: walk.ahead(), left: *left, bytes: 0, slow: None }));
        let PageMeasure { walk, left, bytes, slow } = &mut **measure;
        let mut failed = None;
        let mut add = |entry: &Arc<Entry>| {
            let item = formatter.item_bytes(entry);
            if item == 0 {
                failed.get_or_insert_with(|| Arc::clone(entry));
            }
            *bytes += item;
        };
        if let Some(slow) = slow.take() {
            add(&slow);
        }
        // A cut page sends no item.
        let is_over = walk.state.is_cut() || *left == Some(0) || {
            let mut read = 0;
            !walk.step(|entry| {
                *left = left.map(|left| left - 1);
                if formatter.is_slow_to_measure(entry) {
                    *slow = Some(Arc::clone(entry));
                } else {
                    add(entry);
                }
                read += entry.len();
                slow.is_none() && read < READ_PER_STEP && *left != Some(0)
            })
        };
        match (failed, slow) {
            (Some(entry), _) => Measurement::Failed(entry),
            (None, Some(slow)) => Measurement::Slow(Arc::clone(slow)),
            (None, None) if is_over => Measurement::All(*bytes),
            (None, None) => Measurement::More,
        }
    }

    /// Pushes items with the commas between them, within `budget`. Returns false once the last is pushed; a step that
    /// returns true may push no item. Call [`Self::take_slow`] after each step: the item it returns follows the pushed
    /// ones.
    pub fn step(&mut self, budget: Budget, out: &mut Slices) -> bool {
        let formatter = std::mem::take(&mut self.formatter);
        let (mut slow, mut effort) = (None, 0);
        let more = self.visit(|entry, first| {
            slow = formatter.slow_item(entry, first);
            if slow.is_none() {
                effort += formatter.effort(entry);
                formatter.item(entry, first, out);
            }
            slow.is_none() && effort < READ_PER_STEP && !out.reached(budget)
        });
        (self.formatter, self.slow) = (formatter, slow.map(Box::new));
        more
    }

    /// Takes the item at which the last step stopped because it takes long to format.
    pub fn take_slow(&mut self) -> Option<SlowItem> {
        self.slow.take().map(|item| *item)
    }

    /// Visits objects until `visit` returns false or `READ_PER_STEP` bytes were visited; the flag is true for the
    /// first object of the page. Returns as [`Self::step`] does. For callers that encode the objects themselves.
    pub fn visit(&mut self, mut visit: impl FnMut(&Arc<Entry>, bool) -> bool) -> bool {
        if self.done {
            return false;
        }
        let Self { walk, left, first, .. } = self;
        let mut shown = 0;
        let more = walk.step(|entry| {
            shown += entry.len();
            let go_on = visit(entry, std::mem::take(first)) && shown < READ_PER_STEP;
            *left = left.map(|left| left - 1);
            *left != Some(0) && go_on
        });
        self.done = !more || self.left == Some(0);
        if self.done {
            walk.state.done();
        }
        !self.done
    }

    /// Like [`Self::visit`], with each object's text in this page's format, without commas.
    pub fn visit_texts(&mut self, mut visit: impl FnMut(&Arc<Entry>, &Slices) -> bool) -> bool {
        let formatter = std::mem::take(&mut self.formatter);
        let mut text = Slices::new();
        let more = self.visit(|entry, _| {
            text.clear();
            formatter.item(entry, true, &mut text);
            visit(entry, &text)
        });
        self.formatter = formatter;
        more
    }

    /// Returns true if items are table rows, which are computed at their first use.
    #[must_use]
    pub const fn shows_rows(&self) -> bool {
        self.formatter.tells_time()
    }

    /// Returns true if a selector with many conditions makes each step take about a millisecond.
    #[must_use]
    pub fn has_long_selector(&self) -> bool {
        self.walk.filter.weight() > LONG_SELECTOR_WEIGHT
    }

    /// Returns true if the snapshot was cut: reset the connection, never end it cleanly. The page then sends no more
    /// items, although `step` returns true.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.walk.state.is_cut()
    }
}
