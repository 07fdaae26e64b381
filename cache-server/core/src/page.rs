//! The items of one LIST answer: where a page starts and ends in a snapshot, and its items one by one.
//!
//! INVARIANT: memory is a snapshot and two keys, whatever the number of items.

use std::sync::Arc;

use informer_core::{Keyed, Objects};

use crate::{
    entry::Entry,
    epoch::Frozen,
    filter::{Filter, Range},
    form::{Form, Showing, SlowItem},
    limits::{LOOKED_AT_PER_STEP, READ_PER_STEP},
    reader::Snapshot,
    slices::{Budget, Slices},
};

/// A place in a snapshot: everything before it is done. Initial states and LIST answers walk the same way.
#[derive(Debug)]
pub(crate) struct Walk {
    state: Frozen,
    filter: Arc<Filter>,
    /// Where to go on.
    key: String,
    /// Whether the object at `key` itself is done.
    passed: bool,
    /// False for a walk whose reader gets nothing of it.
    is_shown: bool,
}

impl Walk {
    pub(crate) fn new(state: Frozen, filter: Arc<Filter>) -> Self {
        let key = filter.range().start().to_owned();
        Self { state, filter, key, passed: false, is_shown: true }
    }

    /// The same from `start` on: as in a continue token, relative to the namespace of the path, inclusive.
    pub(crate) fn starting(state: Frozen, filter: Arc<Filter>, start: &str) -> Self {
        let mut walk = Self::new(state, filter);
        let absolute = match walk.filter.namespace() {
            Some(namespace) => format!("{namespace}/{start}"),
            None => start.to_owned(),
        };
        walk.key = absolute.max(walk.key);
        walk
    }

    /// Where [`Self::starting`] goes on behind what was shown so far; `None` when that is nothing.
    pub(crate) fn behind(&self) -> Option<String> {
        let prefix = self.filter.namespace().map_or(0, |namespace| namespace.len() + 1);
        self.passed.then(|| format!("{}\0", self.key.get(prefix..).unwrap_or_default()))
    }

    pub(crate) const fn state(&self) -> &Frozen {
        &self.state
    }

    /// Shows objects that match, in key order, until `visit` says to stop behind one, or too many were looked at.
    /// Returns whether there may be more; not to be called again when there is not. Of a state that was cut there is always
    /// more, and nothing is shown.
    pub(crate) fn step(&mut self, mut visit: impl FnMut(&Arc<Entry>) -> bool) -> bool {
        let mut last = None;
        let mut more = false;
        let (mut looked, mut shown) = (0, 0);
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

/// Shows every object of `range` from `key` on until `look` says to stop. Cost: O(log n + shown).
fn walk(objects: &Objects<Entry>, range: &Range, key: &str, passed: bool, look: &mut impl FnMut(&Arc<Entry>) -> bool) {
    match (range, passed) {
        (Range::Key(_), true) => {}
        // Everything in the range starts at or behind its start, so a key before it would change nothing.
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

/// The items of one LIST answer. Holds a snapshot and a key, no list of items.
#[derive(Debug)]
pub struct Page {
    walk: Walk,
    /// Matching objects left to send; `None` is all.
    left: Option<usize>,
    first: bool,
    done: bool,
    /// While the end of the page is looked for.
    ahead: Option<Box<Ahead>>,
    next: Option<String>,
    remaining: Option<u64>,
    /// Objects from the start of the page on, if the page before counted them.
    following: Option<u64>,
    showing: Showing,
    /// An item behind everything that was pushed, to be made by the caller.
    slow: Option<SlowItem>,
}

/// Walks before a page to its last object, and on to count what follows.
#[derive(Debug)]
struct Ahead {
    walk: Walk,
    /// Matching objects up to the end of the page.
    left: usize,
}

impl Page {
    /// The objects of `snapshot` that `filter` wants, from `start` (as in a continue token: relative to the namespace of
    /// the path, inclusive), at most `limit` of them; zero is no limit. Cost: without a limit nothing; with one, that of
    /// [`Self::look_ahead`] to its end.
    #[must_use]
    pub fn new(snapshot: Snapshot, filter: Arc<Filter>, start: Option<&str>, limit: Option<usize>) -> Self {
        let mut page = Self::begin(snapshot, filter, start, limit);
        while page.look_ahead() {}
        page
    }

    /// The same, of which it is not known yet what follows: call [`Self::look_ahead`] until there is no more.
    #[must_use]
    pub fn begin(snapshot: Snapshot, filter: Arc<Filter>, start: Option<&str>, limit: Option<usize>) -> Self {
        let left = limit.filter(|&limit| 0 < limit);
        let state = snapshot.freeze(false);
        let walk = || match start {
            Some(start) => Walk::starting(state.clone(), Arc::clone(&filter), start),
            None => Walk::new(state.clone(), Arc::clone(&filter)),
        };
        let ahead = left.map(|left| Box::new(Ahead { walk: Walk { is_shown: false, ..walk() }, left }));
        let (walk, next, remaining, following, showing) = (walk(), None, None, None, Showing::default());
        Self { walk, left, first: true, done: false, ahead, next, remaining, following, showing, slow: None }
    }

    /// Objects from the start of the page on, as the page before says. Then those behind this page are not counted: a list
    /// read page by page costs one walk over its objects and not one for each page.
    #[must_use]
    pub fn with_following(mut self, following: Option<u64>) -> Self {
        self.following = following;
        self
    }

    /// Looks for the end of the page, and counts what follows when there is no selector. Returns whether there is more to
    /// do. Cost: one step; each object of the page is walked over once, and those behind it when they are counted.
    pub fn look_ahead(&mut self) -> bool {
        // Nothing follows a page that was cut, and nobody is told so: its reader is cut as well.
        let Some(Ahead { walk, left }) = self.ahead.as_deref_mut().filter(|ahead| !ahead.walk.state.is_cut()) else {
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
                    // A number that cannot be right is none.
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

    /// What the list's metadata says.
    #[must_use]
    pub const fn resource_version(&self) -> u64 {
        self.walk.state.resource_version
    }

    /// `start` of the next page, when at least one more stored object follows in the range, wanted or not.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Objects after this page; only with [`Self::next`] and without selectors.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The same in another form: to be said before the first step. `now` is what ages in the rows of a table are counted
    /// to, in Unix seconds.
    #[must_use]
    pub fn shown_as(mut self, form: Form, now: i64) -> Self {
        self.showing = Showing::new(form);
        self.showing.set_now(now);
        self
    }

    /// Pushes items with the commas between them, within `budget`. `false` once the last is pushed; `true` may push
    /// nothing when nothing matched so far. Ask [`Self::take_slow`] after each step: the item it returns goes behind what
    /// was pushed.
    pub fn step(&mut self, budget: Budget, out: &mut Slices) -> bool {
        let showing = std::mem::take(&mut self.showing);
        let (mut slow, mut effort) = (None, 0);
        let more = self.visit(|entry, first| {
            slow = showing.slow_item(entry, first);
            if slow.is_none() {
                effort += showing.effort(entry);
                showing.item(entry, first, out);
            }
            slow.is_none() && effort < READ_PER_STEP && !out.reached(budget)
        });
        (self.showing, self.slow) = (showing, slow);
        more
    }

    /// The item at which the last step stopped because it takes long to make.
    pub fn take_slow(&mut self) -> Option<SlowItem> {
        self.slow.take()
    }

    /// Shows objects, and whether each is the first of the page, until `visit` says to stop behind one. Returns as
    /// [`Self::step`] does. For those who make other texts of them: it also stops when much was shown.
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

    /// Shows objects and their text in this page's form, without commas, as [`Self::visit`] does.
    pub fn visit_texts(&mut self, mut visit: impl FnMut(&Arc<Entry>, &Slices) -> bool) -> bool {
        let showing = std::mem::take(&mut self.showing);
        let mut text = Slices::new();
        let more = self.visit(|entry, _| {
            text.clear();
            showing.item(entry, true, &mut text);
            visit(entry, &text)
        });
        self.showing = showing;
        more
    }

    /// Returns true if items are made when they are shown first: rows of a table.
    #[must_use]
    pub const fn shows_rows(&self) -> bool {
        self.showing.tells_time()
    }

    /// Whether items are the stored bytes.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.showing.is_plain()
    }

    /// Whether the snapshot became too expensive to keep: reset the connection, never end it cleanly. Nothing more is
    /// shown then, though there seems to be more.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.walk.state.is_cut()
    }
}
