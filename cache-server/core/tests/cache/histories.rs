//! Random histories: every watcher's output must follow from the model's history, for any speed of the watcher and any
//! evictions. A revision may have many changes, delivered as a batch or one by one. The guarantees by name: Ordered, Unique, Reliable, Resumable, Bookmarkable, Atomic, Filtered, Converges.

use std::{collections::BTreeMap, sync::Arc};

use fastrand::Rng;
use informer_core::Time;
use watch_cache::{
    BucketWaker, Budget, Change, Cursor, CursorStart, ExpiredPosition, Filter, Limits, Page, Reader, Slices, Step,
    Writer, cache,
};

use super::common::{Pod, at, deleted, filter, lines, pod, put, schema};

/// The reference: all changes of one epoch.
#[derive(Clone, Default)]
struct Model {
    epoch: u64,
    /// Start position of the epoch, with the objects listed there.
    from: u64,
    first: BTreeMap<String, Pod>,
    /// In order: the resourceVersion, the key, and the object, or `None` for a deletion.
    history: Vec<(u64, String, Option<Pod>)>,
    applied: u64,
}

/// Start of a watch in the model's history: it sees the changes from `index` on whose revision is above `above`.
#[derive(Clone, Copy, Debug)]
struct Start {
    index: usize,
    above: u64,
}

impl Model {
    fn state(&self, position: u64) -> BTreeMap<String, Pod> {
        self.state_before(self.changes_up_to(position))
    }

    /// Returns the number of changes at or below `position`.
    fn changes_up_to(&self, position: u64) -> usize {
        self.history.partition_point(|(at, ..)| *at <= position)
    }

    /// Returns the start of a watch from `position`, which may be ahead.
    fn start(&self, position: u64) -> Start {
        let above = if self.applied < position { position } else { 0 };
        Start { index: self.changes_up_to(position), above }
    }

    /// Returns the state before the change of this index.
    fn state_before(&self, index: usize) -> BTreeMap<String, Pod> {
        let mut state = self.first.clone();
        for (_, key, pod) in &self.history[..index] {
            match pod {
                Some(pod) => state.insert(key.clone(), pod.clone()),
                None => state.remove(key),
            };
        }
        state
    }

    /// Returns the lines that a watcher of `selection` sees from `start` on, by the table of selector transitions.
    fn seen(&self, start: Start, selection: &Selection) -> Vec<(String, Pod)> {
        self.changes_seen(start, selection).into_iter().map(|(_, line)| line).collect()
    }

    /// Like `seen`, with the index of each change.
    fn changes_seen(&self, start: Start, selection: &Selection) -> Vec<(usize, (String, Pod))> {
        let mut state: BTreeMap<&str, &Pod> = self.first.iter().map(|(key, pod)| (key.as_str(), pod)).collect();
        let mut seen = Vec::new();
        for (index, (at, key, now)) in self.history.iter().enumerate() {
            let before = match now {
                Some(pod) => state.insert(key, pod),
                None => state.remove(key.as_str()),
            };
            if index < start.index || *at <= start.above {
                continue;
            }
            let before = before.filter(|pod| selection.matches(pod));
            let now = now.as_ref().filter(|pod| selection.matches(pod));
            match (before, now) {
                (None, None) => {}
                (None, Some(now)) => seen.push((index, ("ADDED".to_owned(), now.clone()))),
                (Some(_), Some(now)) => seen.push((index, ("MODIFIED".to_owned(), now.clone()))),
                (Some(before), None) => {
                    seen.push((index, ("DELETED".to_owned(), Pod { resource_version: *at, ..before.clone() })));
                }
            }
        }
        seen
    }
}

/// A filter as the model evaluates it.
#[derive(Clone, Debug, Default)]
struct Selection {
    namespace: Option<String>,
    name: Option<String>,
    node: Option<String>,
    app: Option<String>,
}

impl Selection {
    fn random(rng: &mut Rng) -> Self {
        let mut maybe =
            |chance: f64, of: &[&str]| (rng.f64() < chance).then(|| (*rng.choice(of).expect("some")).to_owned());
        Self {
            namespace: maybe(0.4, &NAMESPACES),
            name: maybe(0.2, &NAMES),
            node: maybe(0.4, &NODES),
            app: maybe(0.4, &APPS),
        }
    }

    fn matches(&self, pod: &Pod) -> bool {
        let is = |selected: &Option<String>, value: &str| selected.as_ref().is_none_or(|selected| selected == value);
        is(&self.namespace, pod.namespace())
            && is(&self.name, &pod.key[pod.namespace().len() + 1..])
            && is(&self.node, &pod.node)
            && is(&self.app, &pod.app)
    }

    fn filter(&self) -> Arc<Filter> {
        let field = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value}"));
        let fields = [field("metadata.name", &self.name), field("spec.nodeName", &self.node)];
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        let labels = field("app", &self.app).unwrap_or_default();
        filter(self.namespace.as_deref(), &labels, &fields.join(","))
    }
}

/// One client: watches, checks its input, and resumes from its last position.
struct Watcher {
    selection: Selection,
    cursor: Option<Cursor>,
    epoch: u64,
    /// Start of the lines seen so far, and the revision of the initial state; `initial` is set while it is sent.
    from: Start,
    listed: u64,
    initial: Option<Vec<Pod>>,
    /// Set if the connection broke in the initial state: the history id, its position, and the key to resume after.
    broken: Option<(u64, u64, String)>,
    seen: usize,
    /// Last position this client could resume from.
    last: u64,
    /// Runs one step in this many turns on average.
    slowness: usize,
}

struct World {
    seed: u64,
    rng: Rng,
    now: Time,
    writer: Writer,
    waking: BucketWaker,
    reader: Reader,
    model: Model,
    watchers: Vec<Watcher>,
    reached: CaseCounts,
}

/// Counts of the interesting cases: a test that never reaches them proves nothing.
#[derive(Debug, Default)]
struct CaseCounts {
    lines: usize,
    batches: usize,
    /// Changes at a revision that was applied before.
    late: usize,
    repeats: usize,
    /// Writes after which a revision was evicted in part.
    cut_batches: usize,
    /// Lines of revisions that no resume would get any more.
    rest_lines: usize,
    partial_ends: usize,
    left_selector: usize,
    initial_done: usize,
    initial_cut: usize,
    went_on: usize,
    began_anew: usize,
    fell_behind: usize,
    resumed: usize,
    refused: usize,
    bookmarks: usize,
    exact: usize,
    pages: usize,
}

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const NAMES: [&str; 7] = ["p", "p-1", "p.1", "q", "r", "s", "t"];
const NODES: [&str; 3] = ["", "n1", "n2"];
const APPS: [&str; 2] = ["x", "y"];

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let limits = Limits {
            window_bytes_max: rng.usize(1..16) * 1_000,
            window_events_max: rng.usize(1..200),
            window_age_max: std::time::Duration::from_secs(rng.u64(1..400)),
            snapshot_bytes_max: rng.usize(1..24) * 1_000,
            read_time_max: std::time::Duration::from_secs(rng.u64(1..100)),
            stream_rate_min: rng.u64(0..2_000),
            window_bytes_total_max: usize::MAX,
        };
        let (writer, waking, reader) = cache(schema(), limits);
        let mut world = Self {
            seed,
            rng,
            now: at(0),
            writer,
            waking,
            reader,
            model: Model::default(),
            watchers: Vec::new(),
            reached: CaseCounts::default(),
        };
        world.relist();
        world
    }

    /// Relists with a state that may differ from the last one, as after an outage.
    fn relist(&mut self) {
        let position = self.model.applied + self.rng.u64(1..5);
        let mut first = self.model.state(self.model.applied);
        first.retain(|_, _| self.rng.f64() < 0.8);
        let fresh = self.random_pod(position);
        first.insert(fresh.key.clone(), fresh);
        let objects = first.values().map(|pod| pod.entry(&schema())).collect();
        self.writer.reset(objects, position, self.now);
        let epoch = self.model.epoch + 1;
        self.model = Model { epoch, from: position, first, history: Vec::new(), applied: position };
    }

    fn random_pod(&mut self, resource_version: u64) -> Pod {
        let rng = &mut self.rng;
        let mut one = |of: &[&'static str]| *rng.choice(of).expect("some");
        pod(&format!("{}/{}", one(&NAMESPACES), one(&NAMES)), one(&NODES), one(&APPS), resource_version)
    }

    /// Writes one change, a batch, or a few changes of one revision one by one.
    fn write(&mut self) {
        let position = self.model.applied + self.rng.u64(1..4);
        let count = self.rng.usize(1..9);
        match self.rng.u32(0..10) {
            0 => self.write_batch(position, count),
            1 => self.write_batch(self.model.applied, count / 2),
            2 => (0..count / 2).for_each(|_| self.write_one(self.model.applied)),
            _ => self.write_one(position),
        }
        // A revision is evicted in part if more events are left than those above the oldest position.
        let above = self.model.history.len() - self.model.changes_up_to(self.reader.oldest());
        let left = self.reader.stats().window_events;
        assert!(above <= left, "seed {}: {left} of {above} events", self.seed);
        self.reached.cut_batches += usize::from(above < left);
    }

    fn write_one(&mut self, position: u64) {
        self.reached.late += usize::from(position == self.model.applied);
        let (change, is_event) = self.change(position);
        let event = self.writer.apply(change, self.now).expect("in order");
        assert_eq!(event.is_some(), is_event, "seed {}: at {position}", self.seed);
    }

    fn write_batch(&mut self, position: u64, count: usize) {
        let (changes, are_events): (Vec<Change>, Vec<bool>) = (0..count).map(|_| self.change(position)).unzip();
        let events = are_events.into_iter().filter(|is_event| *is_event).count();
        assert_eq!(self.writer.apply_batch(changes, self.now), Ok(events), "seed {}: at {position}", self.seed);
        self.reached.batches += usize::from(1 < events);
    }

    /// Makes a random change at `position` and adds it to the model. Returns true beside it if it changes an object.
    fn change(&mut self, position: u64) -> (Change, bool) {
        self.model.applied = position;
        let pod = self.random_pod(position);
        let state = self.model.state(position);
        if self.rng.f64() < 0.3 {
            let is_there = state.contains_key(&pod.key);
            if is_there {
                self.model.history.push((position, pod.key.clone(), None));
            }
            return (deleted(&pod.key, position), is_there);
        }
        let is_repeat = state.get(&pod.key).is_some_and(|known| known.resource_version == position);
        self.reached.repeats += usize::from(is_repeat);
        if !is_repeat {
            self.model.history.push((position, pod.key.clone(), Some(pod.clone())));
        }
        (put(&pod), !is_repeat)
    }

    fn turn(&mut self) {
        self.now = self.now + std::time::Duration::from_millis(self.rng.u64(0..2_000));
        match self.rng.u32(0..100) {
            0 => self.relist(),
            1..=4 => {
                self.model.applied += 1;
                let progress = Change::Progress(self.model.applied);
                self.writer.apply(progress, self.now).expect("progress is always in order");
            }
            5..=6 => self.writer.trim(self.now),
            7..=12 => self.open(),
            13..=16 => self.read_exactly(),
            17..=20 => self.read_pages(),
            21..=22 => {
                self.waking.wake();
            }
            23..=25 => {
                let at = self.rng.usize(0..self.watchers.len().max(1));
                match self.watchers.get(at).map(|watcher| watcher.initial.is_some()) {
                    Some(true) if self.watchers[at].broken.is_none() => self.begin(at),
                    Some(true) => {}
                    Some(false) => self.resume(at),
                    None => {}
                }
            }
            26..=55 => self.write(),
            _ => {
                for at in 0..self.watchers.len() {
                    if self.rng.usize(0..self.watchers[at].slowness) == 0 {
                        self.step(at);
                        self.perhaps_break(at);
                    }
                }
            }
        }
    }

    fn open(&mut self) {
        if 12 < self.watchers.len() {
            let gone = self.rng.usize(0..self.watchers.len());
            self.watchers.swap_remove(gone);
        }
        let selection = Selection::random(&mut self.rng);
        let slowness = *self.rng.choice([1, 2, 60].iter()).expect("some");
        let ahead = self.model.applied + 3;
        let position = self.rng.u64(self.model.from.saturating_sub(3)..=ahead);
        let watcher = Watcher {
            selection,
            cursor: None,
            epoch: self.model.epoch,
            from: self.model.start(position),
            listed: 0,
            initial: None,
            broken: None,
            seen: 0,
            last: position,
            slowness,
        };
        self.watchers.push(watcher);
        let at = self.watchers.len() - 1;
        if self.rng.bool() { self.begin(at) } else { self.resume(at) }
    }

    /// Starts with the current state.
    fn begin(&mut self, at: usize) {
        let snapshot = self.reader.snapshot();
        let watcher = &mut self.watchers[at];
        watcher.epoch = self.model.epoch;
        watcher.from = Start { index: self.model.history.len(), above: 0 };
        (watcher.listed, watcher.last, watcher.seen) = (snapshot.resource_version, 0, 0);
        (watcher.initial, watcher.broken) = (Some(Vec::new()), None);
        let cursor = self.reader.cursor(CursorStart::Initial(snapshot), watcher.selection.filter());
        watcher.cursor = Some(cursor.expect("a snapshot just taken is in the window"));
    }

    fn perhaps_break(&mut self, at: usize) {
        let watcher = &self.watchers[at];
        match (&watcher.initial, &watcher.broken) {
            (Some(_), None) if self.rng.usize(0..4) == 0 => self.break_off(at),
            (Some(_), Some(_)) if self.rng.usize(0..4) == 0 => self.go_on(at),
            _ => {}
        }
    }

    /// Breaks the connection in the initial state. The position is held or not at random.
    fn break_off(&mut self, at: usize) {
        let watcher = &mut self.watchers[at];
        let Some(cursor) = &watcher.cursor else { return };
        let Some(behind) = cursor.behind() else { return };
        let now = self.reader.snapshot();
        if watcher.epoch != self.model.epoch {
            return;
        }
        watcher.broken = Some((now.history_id(), cursor.position(), behind));
        if self.rng.bool() {
            self.reader.hold(cursor.position(), self.now + std::time::Duration::from_secs(75));
        }
        watcher.cursor = None;
    }

    /// Continues with the rest of the initial state, or begins a new one if its history or position was lost.
    fn go_on(&mut self, at: usize) {
        let watcher = &mut self.watchers[at];
        let (history, position, behind) = watcher.broken.take().expect("broken");
        // Changes that were added to the revision later are not in the first part of the state.
        let is_same = watcher.from.index == self.model.changes_up_to(position);
        match self.reader.at(position) {
            Ok(snapshot) if snapshot.history_id() == history && is_same => {
                assert_eq!(snapshot.resource_version, position, "seed {}", self.seed);
                let cursor = self.reader.cursor(CursorStart::Rest(snapshot, behind), watcher.selection.filter());
                watcher.cursor = Some(cursor.expect("a state that can be read is in the window"));
                self.reached.went_on += 1;
            }
            Ok(_) | Err(_) => {
                self.reached.began_anew += 1;
                self.begin(at);
            }
        }
    }

    /// Resumable: resumes from the last position, or gets Expired and starts with the current state.
    fn resume(&mut self, at: usize) {
        let oldest = self.reader.oldest();
        let watcher = &mut self.watchers[at];
        let last = watcher.last;
        match self.reader.cursor(CursorStart::After(last), watcher.selection.filter()) {
            Ok(cursor) => {
                (watcher.cursor, watcher.from, watcher.seen) = (Some(cursor), self.model.start(last), 0);
                (watcher.initial, watcher.epoch) = (None, self.model.epoch);
                self.reached.resumed += 1;
                // A position of an earlier epoch is below the window, except the exact position at which the new one
                // began.
                assert!(self.model.from <= last, "seed {}: resumed {last} in another history", self.seed);
            }
            Err(ExpiredPosition { requested, oldest: reported }) => {
                assert_eq!((requested, reported), (last, oldest), "seed {}", self.seed);
                assert!(last < oldest, "seed {}: {last} is not below {oldest}", self.seed);
                self.reached.refused += 1;
                self.begin(at);
            }
        }
    }

    fn step(&mut self, at: usize) {
        let budget = Budget { slices: self.rng.usize(1..9), bytes: self.rng.usize(1..2_000) };
        let seed = self.seed;
        let watcher = &mut self.watchers[at];
        let Some(cursor) = &mut watcher.cursor else { return };
        let mut out = Slices::new();
        let step = cursor.step(budget, &mut out, None);
        let current = watcher.epoch == self.model.epoch;
        if !current {
            assert!(out.is_empty() && step == Step::EpochEnded, "seed {seed}: {step:?} in a history that is over");
        }
        let sent = lines(&out);
        if let Some(initial) = &mut watcher.initial {
            assert!(sent.iter().all(|(kind, _)| kind == "ADDED"));
            initial.extend(sent.into_iter().map(|(_, pod)| pod));
        } else if current {
            // Ordered, Unique, Reliable, Filtered: exactly the next expected lines.
            let expected = self.model.seen(watcher.from, &watcher.selection);
            let until = watcher.seen + sent.len();
            assert_eq!(Some(&sent[..]), expected.get(watcher.seen..until), "seed {seed}: {:?}", watcher.selection);
            watcher.seen = until;
            self.reached.lines += sent.len();
            let oldest = self.reader.oldest();
            self.reached.rest_lines += sent.iter().filter(|(_, pod)| pod.resource_version <= oldest).count();
            // The reported position is never between two changes of a revision of which one is unread.
            let position = cursor.position();
            let is_unread = expected.get(until).is_some_and(|(_, pod)| pod.resource_version <= position);
            assert!(
                !is_unread || matches!(step, Step::Expired(_)),
                "seed {seed}: {position} is reported too early to {:?}",
                watcher.selection
            );
            let ends: Vec<_> =
                self.model.history.iter().filter(|(.., pod)| pod.is_none()).map(|(at, ..)| *at).collect();
            let left = |(kind, pod): &&(String, Pod)| kind == "DELETED" && !ends.contains(&pod.resource_version);
            self.reached.left_selector += sent.iter().filter(left).count();
            watcher.last = sent.last().map_or(watcher.last, |(_, pod)| pod.resource_version);
        }
        match step {
            Step::Sent => {}
            Step::Wait => {
                let left = self.model.seen(watcher.from, &watcher.selection).len() - watcher.seen;
                assert_eq!(left, 0, "seed {seed}: waits with {left} events unread");
            }
            Step::InitialDone(position) => self.initial_done(at, position),
            Step::EpochEnded => {
                assert!(!current, "seed {seed}: the history is not over");
                self.resume(at);
            }
            Step::Expired(expired) => self.fell_behind(at, expired),
        }
        self.bookmark(at);
    }

    /// Atomic: the initial state equals the state at its position, in key order, and can be resumed from.
    fn initial_done(&mut self, at: usize, position: u64) {
        let watcher = &mut self.watchers[at];
        let state = self.model.state_before(watcher.from.index);
        let expected: Vec<Pod> = state.into_values().filter(|pod| watcher.selection.matches(pod)).collect();
        assert_eq!(watcher.initial.take().as_ref(), Some(&expected), "seed {}: {:?}", self.seed, watcher.selection);
        // Changes that were added to the revision later follow; until then the position before is complete.
        let is_partial = watcher.from.index < self.model.changes_up_to(watcher.listed);
        assert_eq!(position, watcher.listed - u64::from(is_partial), "seed {}", self.seed);
        self.reached.partial_ends += usize::from(is_partial);
        watcher.last = position;
        self.reached.initial_done += 1;
        let again = self.reader.cursor(CursorStart::After(position), watcher.selection.filter());
        assert!(again.is_ok(), "seed {}: an end bookmark at {position} cannot be resumed from", self.seed);
    }

    /// Only a watcher with an initial snapshot or with unread events in its own bucket falls behind.
    fn fell_behind(&mut self, at: usize, expired: ExpiredPosition) {
        let watcher = &self.watchers[at];
        assert!(expired.requested < expired.oldest, "seed {}: {expired:?}", self.seed);
        if watcher.initial.is_none() {
            let Selection { namespace, name, node, .. } = watcher.selection.clone();
            let name = name.filter(|_| namespace.is_some());
            let node = node.filter(|_| name.is_none());
            let namespace = namespace.filter(|_| node.is_none());
            let bucket = Selection { namespace, name, node, app: None };
            let seen = self.model.changes_seen(watcher.from, &watcher.selection);
            let last = watcher.seen.checked_sub(1).map_or(watcher.from.index, |last| seen[last].0 + 1);
            let unread = self.model.seen(Start { index: last, ..watcher.from }, &bucket);
            let lost = unread.first().is_some_and(|(_, pod)| pod.resource_version <= expired.oldest);
            assert!(lost, "seed {}: expired by others' events: {:?}", self.seed, watcher.selection);
            self.reached.fell_behind += 1;
        } else {
            self.reached.initial_cut += 1;
        }
        self.resume(at);
    }

    /// Bookmarkable: a bookmark is at the head, and all lines up to it were seen.
    fn bookmark(&mut self, at: usize) {
        let watcher = &mut self.watchers[at];
        let Some(position) = watcher.cursor.as_mut().and_then(Cursor::bookmark) else { return };
        assert_eq!((watcher.epoch, position), (self.model.epoch, self.model.applied), "seed {}", self.seed);
        let expected = self.model.seen(watcher.from, &watcher.selection);
        assert_eq!(watcher.seen, expected.len(), "seed {}: a bookmark over unread events", self.seed);
        watcher.last = position;
        self.reached.bookmarks += 1;
    }

    /// An exact state equals the replayed history, or is Expired below the window.
    fn read_exactly(&mut self) {
        let position = self.rng.u64(self.model.from.saturating_sub(2)..=self.model.applied);
        match self.reader.at(position) {
            Ok(snapshot) => {
                let objects = snapshot
                    .objects
                    .iter()
                    .map(|entry| Pod::read(&serde_json::from_slice(&entry.object()).expect("JSON")));
                let expected: Vec<Pod> = self.model.state(position).into_values().collect();
                assert_eq!(objects.collect::<Vec<_>>(), expected, "seed {}: at {position}", self.seed);
                assert_eq!(snapshot.resource_version, position);
                self.reached.exact += 1;
            }
            Err(expired) => assert!(position < expired.oldest, "seed {}: {expired:?}", self.seed),
        }
    }

    /// Pages of one snapshot together equal the whole list, with correct `next` and `remaining` between them.
    fn read_pages(&mut self) {
        let selection = Selection::random(&mut self.rng);
        let limit = self.rng.usize(1..5);
        let snapshot = self.reader.snapshot();
        let state = self.model.state(snapshot.resource_version);
        let mut start: Option<String> = None;
        let mut read = Vec::new();
        loop {
            let mut page = Page::new(snapshot.clone(), selection.filter(), start.as_deref(), Some(limit));
            let mut out = Slices::new();
            while page.step(Budget { slices: out.len() + 1, bytes: usize::MAX }, &mut out) {}
            let bytes: Vec<u8> = out.iter().flat_map(|slice| slice.iter().copied()).collect();
            let items = format!("[{}]", String::from_utf8(bytes).expect("UTF-8"));
            let items: Vec<serde_json::Value> = serde_json::from_str(&items).expect("items with commas");
            read.extend(items.iter().map(Pod::read));
            let is_plain = selection.name.is_none() && selection.node.is_none() && selection.app.is_none();
            if is_plain && page.next().is_some() {
                let all = state.values().filter(|pod| selection.matches(pod)).count();
                assert_eq!(page.remaining(), Some((all - read.len()) as u64), "seed {}", self.seed);
            } else {
                assert_eq!(page.remaining(), None);
            }
            let Some(next) = page.next() else { break };
            assert_eq!(items.len(), limit, "seed {}: only full pages promise more", self.seed);
            start = Some(next.to_owned());
            self.reached.pages += 1;
        }
        let expected: Vec<Pod> = state.into_values().filter(|pod| selection.matches(pod)).collect();
        assert_eq!(read, expected, "seed {}: {selection:?} by {limit}", self.seed);
    }

    /// Converges: without further writes every watcher reaches the head.
    fn calm(&mut self) {
        for at in 0..self.watchers.len() {
            if self.watchers[at].broken.is_some() {
                self.go_on(at);
            }
            let there = (0..10_000).any(|_| {
                self.step(at);
                let watcher = &self.watchers[at];
                // A watcher that started in the future has no position to reach yet.
                let ahead = watcher.initial.is_none() && self.model.applied < watcher.from.above;
                ahead || watcher.last == self.model.applied
            });
            assert!(there, "seed {}: stuck at {}", self.seed, self.watchers[at].last);
        }
    }
}

/// Goal: every guarantee for every watcher. Method: random writes, relists, windows of random size, and watchers with
/// random filters and speeds; each line is compared with the model's history. `SEEDS=5000` runs more.
#[test]
fn every_watcher_sees_what_happened() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let mut all: Vec<CaseCounts> = Vec::new();
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.turn();
        }
        world.calm();
        world.watchers.clear();
        let stats = world.reader.stats();
        assert_eq!((stats.watchers(), stats.buckets), (0, 0), "seed {seed}: left behind");
        all.push(world.reached);
    }
    for (what, count) in [
        ("lines", all.iter().map(|reached| reached.lines).sum::<usize>()),
        ("batches", all.iter().map(|reached| reached.batches).sum()),
        ("changes at an applied revision", all.iter().map(|reached| reached.late).sum()),
        ("repeated changes", all.iter().map(|reached| reached.repeats).sum()),
        ("revisions evicted in part", all.iter().map(|reached| reached.cut_batches).sum()),
        ("lines of the rest of a revision", all.iter().map(|reached| reached.rest_lines).sum()),
        ("initial states between changes of a revision", all.iter().map(|reached| reached.partial_ends).sum()),
        ("objects that leave a selector", all.iter().map(|reached| reached.left_selector).sum()),
        ("initial states", all.iter().map(|reached| reached.initial_done).sum()),
        ("initial states cut", all.iter().map(|reached| reached.initial_cut).sum()),
        ("initial states that went on", all.iter().map(|reached| reached.went_on).sum()),
        ("initial states begun anew", all.iter().map(|reached| reached.began_anew).sum()),
        ("watchers behind the window", all.iter().map(|reached| reached.fell_behind).sum()),
        ("resumes", all.iter().map(|reached| reached.resumed).sum()),
        ("resumes refused", all.iter().map(|reached| reached.refused).sum()),
        ("bookmarks", all.iter().map(|reached| reached.bookmarks).sum()),
        ("exact states", all.iter().map(|reached| reached.exact).sum()),
        ("pages", all.iter().map(|reached| reached.pages).sum()),
    ] {
        println!("{what}: {count}");
        assert!(20 <= count, "{what}: only {count}");
    }
}
