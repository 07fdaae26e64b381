//! One watcher's cursor: in the initial snapshot, catching up, parked, live, or over.
//!
//! INVARIANT: its memory does not depend on the number of objects, events or other watchers. INVARIANT: a position is
//! reported only when no event at or below it is unread: within the changes of one revision, a cursor reports the
//! position before them. INVARIANT: the initial state is never reported complete at a position that cannot be resumed
//! from.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    task::Context,
};

use crate::{
    backlog::EventsBehind,
    buckets::{Join, Scope},
    cache::{CacheCore, ExpiredPosition},
    entry::Entry,
    epoch::Epoch,
    event::Event,
    filter::{CachedFilter, Filter},
    form::{EventFormatter, Form, SentEvent},
    interest::{self, Look, WaiterRegistration, Waiters},
    limits::{EVENTS_PER_LOCK, LOOKED_AT_PER_STEP, READ_PER_STEP},
    page::SnapshotWalk,
    reader::CacheSnapshot,
    slices::{Budget, Slices},
    window::Log,
};

/// Start of a watch.
#[derive(Clone, Debug)]
pub enum CursorStart {
    /// The objects of the snapshot as ADDED, in key order, then the events after it.
    Initial(CacheSnapshot),
    /// The rest of such a snapshot, from the point that [`Cursor::behind`] returned; relative to the filter's
    /// namespace.
    Rest(CacheSnapshot, String),
    /// The first change after the position. A position ahead of the cache is accepted: no change at or below it is
    /// delivered.
    After(u64),
}

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The cursor moved; slices may have been pushed, or nothing matched so far. Call `step` again, perhaps after
    /// yielding to other tasks.
    Sent,
    /// The initial state is complete at this position, which can be resumed from: write the end bookmark after the
    /// pushed slices and before the next step. Returned once, and only for initial starts.
    InitialDone(u64),
    /// No unread events. The given waker is called at the next change that may concern the filter.
    Wait,
    /// The cursor fell behind the window, or its snapshot was cut: end the stream without further data.
    Expired(ExpiredPosition),
    /// The epoch ended: the cache relisted from the storage or was closed, see [`Cursor::is_closed`]. End the stream
    /// cleanly.
    EpochEnded,
}

/// One watcher's position. The consumer pulls, so no queue exists per watcher. Owns at most about 1 KiB, independent
/// of the number of objects.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<CacheCore>,
    epoch: Arc<Epoch>,
    filter: Arc<CachedFilter>,
    scope: Scope,
    /// Waiters of the scope's bucket; `None` before the cursor joined it and after its end.
    waiters: Option<Arc<Waiters>>,
    place: WaiterRegistration,
    /// All matching events at or below this revision were pushed.
    position: u64,
    /// All matching events up to the event of this number were pushed.
    number: u64,
    phase: Phase,
    formatter: EventFormatter,
}

/// Runs from the first to the last phase, except that the three phases before the last one alternate.
#[derive(Debug)]
enum Phase {
    /// The cache has not passed the start: events at or below `position` are skipped.
    Ahead,
    /// Sends a frozen state, whose later events are kept meanwhile. Boxed because most watchers have left this phase.
    Initial(Box<SnapshotWalk>),
    /// Has unread events and is still scanning: it just began, or nothing matched yet.
    CatchingUp,
    /// Has unread events but its batch is full; waits for the socket to drain. Costs only the cursor's memory, and can
    /// resume as long as its bucket still has the next event.
    Parked,
    /// Had no unread events at the last step.
    Live,
    /// Returns one final step for ever.
    Over(EndCause),
}

/// Position of a new cursor in the history.
#[derive(Clone, Copy)]
enum JoinedAt {
    /// The cache has reached the position.
    Known,
    Ahead,
    /// The epoch ended before the cursor joined its bucket: the cursor has no number to read from.
    End,
}

impl JoinedAt {
    const fn of(is_ahead: bool) -> Self {
        if is_ahead { Self::Ahead } else { Self::Known }
    }
}

/// Cause of the end of a cursor.
#[derive(Clone, Copy, Debug)]
enum EndCause {
    /// The next event was evicted; the oldest position then.
    Expired(u64),
    EpochEnded,
}

/// Result of reading under the lock.
enum LockedRead {
    Events(EventsRead),
    Over(Step),
}

/// Events taken under the lock.
#[derive(Clone, Copy)]
struct EventsRead {
    count: usize,
    /// True if no more events are unread.
    all: bool,
    /// True if the next unread event has the revision of the last one taken.
    is_partial: bool,
}

impl Cursor {
    pub(crate) fn open(
        shared: Arc<CacheCore>,
        start: CursorStart,
        filter: Arc<Filter>,
    ) -> Result<Self, ExpiredPosition> {
        let scope = filter.scope();
        let (epoch, position, number) = match &start {
            CursorStart::Initial(snapshot) | CursorStart::Rest(snapshot, _) => {
                (Arc::clone(snapshot.history()), snapshot.resource_version, Some(snapshot.number()))
            }
            CursorStart::After(position) => (Arc::clone(&shared.state.read().epoch), *position, None),
        };
        shared.counters.catching_up.fetch_add(1, Ordering::Relaxed);
        let formatter = EventFormatter::default();
        let filter = shared.filters.share(filter);
        let (waiters, place, phase) = (None, WaiterRegistration::default(), Phase::CatchingUp);
        let mut cursor = Self { shared, epoch, filter, scope, waiters, place, position, number: 0, phase, formatter };
        let filter = Arc::clone(cursor.filter.filter());
        let phase = match (cursor.join(number)?, start) {
            (JoinedAt::End, _) => Phase::Over(EndCause::EpochEnded),
            (_, CursorStart::Initial(snapshot)) => {
                Phase::Initial(Box::new(SnapshotWalk::new(snapshot.freeze(true), filter)))
            }
            (_, CursorStart::Rest(snapshot, start)) => {
                Phase::Initial(Box::new(SnapshotWalk::starting(snapshot.freeze(true), filter, &start)))
            }
            (JoinedAt::Ahead, CursorStart::After(_)) => Phase::Ahead,
            (JoinedAt::Known, CursorStart::After(_)) => Phase::CatchingUp,
        };
        cursor.enter(phase);
        Ok(cursor)
    }

    /// Joins the scope's bucket, so that its events are kept after the event `number`, or after `position` if there is
    /// no number.
    fn join(&mut self, number: Option<u64>) -> Result<JoinedAt, ExpiredPosition> {
        if self.scope == Scope::All {
            // `Scope::All` reads the window itself, so joining it changes no bucket and a read lock is enough.
            let state = self.shared.state.read();
            if self.epoch.ended() {
                return Ok(JoinedAt::End);
            }
            self.number = state.start(self.position, number)?;
            self.waiters = Some(Arc::clone(&state.buckets.all));
            return Ok(JoinedAt::of(state.applied < self.position));
        }
        let mut past = None;
        loop {
            let (joined, is_ahead) = {
                let state = &mut *self.shared.state.write();
                if self.epoch.ended() {
                    return Ok(JoinedAt::End);
                }
                // Clamped to the head: a start in the future must not hide events from other watchers of the bucket.
                let position = self.position.min(state.applied);
                let past = match &mut past {
                    Some(past) => past,
                    None => past.insert(EventsBehind::new(position, state.start(self.position, number)?)),
                };
                let node_field = self.shared.schema.node_field;
                match state.buckets.join(&self.scope, past, &state.window.log, node_field) {
                    Join::Expired => return Err(state.expired(self.position)),
                    joined @ (Join::Joined(_) | Join::Far) => (joined, state.applied < self.position),
                }
            };
            match (joined, &mut past) {
                (Join::Far, Some(past)) => {
                    let CacheCore { state, backlog, schema, .. } = &*self.shared;
                    backlog.read(state, &self.epoch, &self.scope, schema.node_field, past);
                }
                (Join::Joined(waiters), Some(past)) => {
                    (self.waiters, self.number) = (Some(waiters), past.number);
                    return Ok(JoinedAt::of(is_ahead));
                }
                (Join::Joined(_) | Join::Far | Join::Expired, _) => {}
            }
        }
    }

    /// Sets the response format. Call before the first `step`.
    #[must_use]
    pub fn shown_as(mut self, form: Form) -> Self {
        self.formatter = EventFormatter::new(form);
        self
    }

    /// Returns true if the output depends on the current time: table rows have ages.
    #[must_use]
    pub const fn tells_time(&self) -> bool {
        self.formatter.tells_time()
    }

    /// Returns true if events are protobuf, not JSON.
    #[must_use]
    pub const fn is_protobuf(&self) -> bool {
        self.formatter.is_protobuf()
    }

    /// Returns the key of the object whose event was left out because it cannot be encoded. Nothing follows it: end the
    /// stream with an error.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.formatter.failed()
    }

    /// Sets the time used for the AGE column, in Unix seconds.
    pub fn set_now(&mut self, now: i64) {
        self.formatter.set_now(now);
    }

    /// Pushes the next objects or events into `out`, within `budget`. Without a context, [`Step::Wait`] registers no
    /// waker. Cost: short read locks; selectors and slices are evaluated without a lock.
    pub fn step(&mut self, budget: Budget, out: &mut Slices, cx: Option<&mut Context<'_>>) -> Step {
        let step = match &self.phase {
            Phase::Over(EndCause::EpochEnded) => return Step::EpochEnded,
            Phase::Over(EndCause::Expired(oldest)) => {
                return Step::Expired(ExpiredPosition { requested: self.position, oldest: *oldest });
            }
            Phase::Initial(_) => {
                let (mut formatter, mut shown) = (mem::take(&mut self.formatter), 0);
                formatter.set_initial(true);
                let step = self.visit_initial(|entry| {
                    shown += formatter.effort(entry);
                    formatter.line(entry, &SentEvent::Added, out);
                    !out.reached(budget) && shown < READ_PER_STEP
                });
                formatter.set_initial(false);
                self.formatter = formatter;
                return step;
            }
            Phase::Ahead | Phase::CatchingUp | Phase::Parked | Phase::Live => self.follow(budget, out, cx),
        };
        self.after(step)
    }

    /// Like [`Self::step`] in the initial state, for callers that encode its objects themselves: visits the next objects
    /// until `visit` returns false or a step's objects are examined.
    pub fn visit_initial(&mut self, visit: impl FnMut(&Arc<Entry>) -> bool) -> Step {
        let Phase::Initial(walk) = &mut self.phase else { return Step::Sent };
        let step = if self.epoch.ended() {
            Step::EpochEnded
        } else if walk.state().is_cut() {
            Step::Expired(self.shared.state.read().expired(self.position))
        } else if walk.step(visit) {
            Step::Sent
        } else {
            self.finish_initial()
        };
        self.after(step)
    }

    /// Returns true if the objects of the initial state have at least `bytes`, as far as one step finds out.
    #[must_use]
    pub fn has_initial_bytes(&self, bytes: usize) -> bool {
        let Phase::Initial(walk) = &self.phase else { return false };
        let mut sum = 0;
        walk.ahead().step(|entry| {
            sum += entry.len();
            sum < bytes
        });
        bytes <= sum
    }

    /// Returns its filter, which cursors with equal ones may share.
    #[must_use]
    pub fn filter(&self) -> &Arc<Filter> {
        self.filter.filter()
    }

    /// Returns the format of its events.
    #[must_use]
    pub const fn form(&self) -> &Form {
        self.formatter.form()
    }

    /// Pushes the ADDED event of an object of the initial state.
    pub fn push_initial(&mut self, entry: &Entry, out: &mut Slices) {
        self.formatter.set_initial(true);
        self.formatter.line(entry, &SentEvent::Added, out);
        self.formatter.set_initial(false);
    }

    /// Enters the phase that `step` leads to.
    fn after(&mut self, step: Step) -> Step {
        match step {
            Step::Sent | Step::Wait => {}
            Step::InitialDone(position) => {
                self.position = position;
                self.enter(Phase::CatchingUp);
            }
            Step::EpochEnded => self.enter(Phase::Over(EndCause::EpochEnded)),
            Step::Expired(ExpiredPosition { requested, oldest }) => {
                self.position = requested;
                self.shared.counters.expired.fetch_add(1, Ordering::Relaxed);
                self.enter(Phase::Over(EndCause::Expired(oldest)));
            }
        }
        step
    }

    /// Called after the last object was pushed: the state is complete if the events since are still in the window.
    fn finish_initial(&self) -> Step {
        let state = self.shared.state.read();
        let window = &state.window.log;
        // The snapshot lacks changes of its own revision that were applied later: only the position before is complete.
        let has_more = |event: &Arc<Event>| event.resource_version <= self.position;
        let is_partial = window.after(self.number).next().is_some_and(has_more);
        let complete = if is_partial { self.position - 1 } else { self.position };
        match state.log(&self.scope) {
            Some(_) | None if self.epoch.ended() => Step::EpochEnded,
            // Checks the window instead of the bucket: a resuming client may find its bucket removed and has only the
            // window then.
            Some(_) if window.lost() <= complete && window.evicted() <= self.number => Step::InitialDone(complete),
            Some(_) | None => Step::Expired(state.expired(self.position)),
        }
    }

    /// Pushes the events after the position until the budget is reached or no event is unread.
    fn follow(&mut self, budget: Budget, out: &mut Slices, mut cx: Option<&mut Context<'_>>) -> Step {
        let before = out.bytes();
        let mut looked = 0;
        let mut batch = [const { None }; EVENTS_PER_LOCK];
        // Events beyond the budget are read again later, so bound the bytes read per lock by the budget first; double
        // the bound when few of them matched.
        let mut bytes = budget.bytes;
        while looked < LOOKED_AT_PER_STEP {
            if out.reached(budget) {
                return self.now(Phase::Parked, Step::Sent);
            }
            let room = budget.slices.saturating_sub(out.len()).clamp(1, EVENTS_PER_LOCK);
            // No waker is registered once data was pushed: the caller sends it and steps again before it waits.
            let sent = out.bytes() != before;
            let read = match self.read(&mut batch[..room], bytes, if sent { None } else { cx.as_deref_mut() }) {
                Look::Found(LockedRead::Events(read)) => read,
                Look::Found(LockedRead::Over(step)) => return step,
                Look::Nothing => return self.now(Phase::Live, if sent { Step::Sent } else { Step::Wait }),
            };
            bytes = bytes.saturating_mul(2);
            out.reserve(read.count);
            let mut unread = read.count;
            let mut is_partial = false;
            for event in batch.iter_mut().map_while(Option::take) {
                if !out.reached(budget) {
                    self.push(&event, out);
                    (self.position, self.number) = (event.resource_version, event.number);
                    looked += self.filter.filter().weight();
                    unread -= 1;
                } else {
                    is_partial |= event.resource_version == self.position;
                }
            }
            if is_partial || unread == 0 && read.is_partial {
                self.position = self.position.saturating_sub(1);
            }
            if read.all && unread == 0 && out.bytes() != before {
                // All events were read: the caller sends them and steps again, which finds newer ones.
                return self.now(Phase::Live, Step::Sent);
            }
        }
        self.now(if out.bytes() == before { Phase::CatchingUp } else { Phase::Parked }, Step::Sent)
    }

    /// Takes the next events of the bucket until their objects reach `bytes`; waits if there are none.
    fn read(
        &mut self,
        batch: &mut [Option<Arc<Event>>],
        bytes: usize,
        cx: Option<&mut Context<'_>>,
    ) -> Look<LockedRead> {
        let was_ahead = matches!(self.phase, Phase::Ahead);
        let mut is_ahead = was_ahead;
        let Self { shared, epoch, scope, position, number, waiters, place, .. } = self;
        let wait = waiters.as_deref().zip(cx.map(|cx| cx.waker()));
        let look = interest::look_or_wait(&shared.state, wait, place, |state| {
            let log = match state.log(scope) {
                // A replaced epoch has no log any more; the log of a closed cache is read to its end.
                Some(log) if Arc::ptr_eq(&state.epoch, epoch) => log,
                Some(_) | None => return Look::Found(LockedRead::Over(Step::EpochEnded)),
            };
            let Some(read) = last_read(log, is_ahead, *position, *number) else {
                return Look::Found(LockedRead::Over(Step::Expired(state.expired(*position))));
            };
            is_ahead &= state.applied <= *position;
            let mut events = log.after(read);
            let (mut count, mut taken, mut revision) = (0, 0, 0);
            for (place, event) in batch.iter_mut().zip(&mut events) {
                taken += event.object.len();
                revision = event.resource_version;
                *place = Some(Arc::clone(event));
                count += 1;
                if bytes <= taken {
                    break;
                }
            }
            if 0 < count {
                let next = events.next();
                let is_partial = next.is_some_and(|event| event.resource_version == revision);
                return Look::Found(LockedRead::Events(EventsRead { count, all: next.is_none(), is_partial }));
            }
            if epoch.ended() {
                return Look::Found(LockedRead::Over(Step::EpochEnded));
            }
            // No unread events in the bucket: the changes elsewhere up to `applied` do not concern this watcher.
            (*position, *number) = (state.applied.max(*position), state.events);
            Look::Nothing
        });
        if was_ahead && !is_ahead {
            self.enter(Phase::CatchingUp);
        }
        look
    }

    /// Pushes `event` as this watcher sees it: an object may enter or leave the selector.
    fn push(&mut self, event: &Event, out: &mut Slices) {
        let verdict = self.filter.verdict(event, &self.shared.filters.evaluations);
        match (event.previous.as_ref().filter(|_| verdict.before), verdict.now) {
            (None, false) => {}
            (None, true) => self.formatter.line(&event.object, &SentEvent::Added, out),
            (Some(_), true) => self.formatter.line(&event.object, &SentEvent::Modified, out),
            (Some(previous), false) => self.formatter.line(previous, &SentEvent::Deleted(&event.digits), out),
        }
    }

    /// Returns the position a bookmark may carry now. `None` while an event is unread, the initial state is
    /// incomplete, the start is ahead of the cache, or the cursor is over. Write the bookmark before the next step.
    pub fn bookmark(&mut self) -> Option<u64> {
        match self.phase {
            // A parked cursor too: its pushed slices are written before the bookmark.
            Phase::Ahead | Phase::CatchingUp | Phase::Parked | Phase::Live => {}
            Phase::Initial(_) | Phase::Over(_) => return None,
        }
        let is_ahead = matches!(self.phase, Phase::Ahead);
        let (applied, number) = {
            let state = self.shared.state.read();
            let log = state.log(&self.scope).filter(|_| !self.epoch.ended())?;
            let read = last_read(log, is_ahead, self.position, self.number)?;
            if log.after(read).next().is_some() || state.applied < self.position {
                return None;
            }
            (state.applied, state.events)
        };
        if is_ahead && self.position < applied {
            self.enter(Phase::CatchingUp);
        }
        (self.position, self.number) = (applied, number);
        Some(applied)
    }

    /// Pushes a bookmark line at `at`, in the format of the stream.
    pub fn push_bookmark(&mut self, at: u64, initial_events_end: bool, out: &mut Slices) {
        self.formatter.bookmark(&self.shared.schema, at, initial_events_end, out);
    }

    /// Returns the position at or below which all matching events were pushed; during the initial state, the position
    /// of the snapshot.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the key for [`CursorStart::Rest`] to resume after the pushed objects; `None` before the first object and
    /// after the initial state.
    #[must_use]
    pub fn behind(&self) -> Option<String> {
        match &self.phase {
            Phase::Initial(walk) => walk.behind(),
            Phase::Ahead | Phase::CatchingUp | Phase::Parked | Phase::Live | Phase::Over(_) => None,
        }
    }

    /// Returns true if the cache was closed, the other cause of [`Step::EpochEnded`]: reconnecting to it is useless.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.waiting.is_closed()
    }

    /// Returns true while the initial state is being sent.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        matches!(self.phase, Phase::Initial(_))
    }

    /// Ends a step in `phase`; free if the phase does not change. Only [`Self::read`] and [`Self::bookmark`] end
    /// [`Phase::Ahead`].
    fn now(&mut self, phase: Phase, step: Step) -> Step {
        if !matches!(self.phase, Phase::Ahead) && mem::discriminant(&self.phase) != mem::discriminant(&phase) {
            self.enter(phase);
        }
        step
    }

    /// Changes the phase and the watcher counters. Drops the snapshot.
    fn enter(&mut self, phase: Phase) {
        if let Some(counter) = self.counter() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        drop(mem::replace(&mut self.phase, phase));
        if let Some(counter) = self.counter() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(self.phase, Phase::Over(_)) {
            self.leave();
        }
    }

    fn counter(&self) -> Option<&std::sync::atomic::AtomicU64> {
        let counters = &self.shared.counters;
        match self.phase {
            Phase::Initial(_) => Some(&counters.initial),
            Phase::CatchingUp => Some(&counters.catching_up),
            Phase::Parked => Some(&counters.parked),
            Phase::Ahead | Phase::Live => Some(&counters.live),
            Phase::Over(_) => None,
        }
    }

    /// Leaves the bucket; the last watcher removes it.
    fn leave(&mut self) {
        let Some(waiters) = self.waiters.take() else { return };
        drop(waiters.leave(mem::take(&mut self.place)));
        if self.scope != Scope::All {
            let state = &mut *self.shared.state.write();
            // After a relist `state` holds the buckets of the new epoch, which this cursor never joined.
            if Arc::ptr_eq(&state.epoch, &self.epoch) {
                state.buckets.leave(&self.scope);
            }
        }
    }
}

/// Returns the number of the newest event in `log` that a cursor has read: `number`, or while it is ahead of the cache,
/// the last one at or below `position`. `None` if a later event was evicted.
fn last_read(log: &Log, is_ahead: bool, position: u64, number: u64) -> Option<u64> {
    if is_ahead {
        (log.lost() <= position).then(|| log.number_at(position))
    } else {
        (log.evicted() <= number).then_some(number)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(counter) = self.counter() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        self.leave();
    }
}
