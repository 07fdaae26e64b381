//! One watcher's place in the history: in the initial snapshot, catching up, parked, live, or over.
//!
//! INVARIANT: its memory does not depend on objects, events or other watchers. INVARIANT: a position is told only when
//! nothing before it is unread. INVARIANT: the initial state is never called complete at a position that cannot be
//! resumed from.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    task::Context,
};

use crate::{
    backlog::Past,
    buckets::{Join, Scope},
    cache::{Expired, Shared, State},
    epoch::Epoch,
    event::Event,
    filter::{Filter, Judge},
    form::{Form, Showing, Told},
    interest::{self, Look, Place, Waiters},
    limits::{EVENTS_PER_LOCK, LOOKED_AT_PER_STEP, READ_PER_STEP},
    page::Walk,
    reader::Snapshot,
    slices::{Budget, Slices},
};

/// Where a watch begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// With the objects of the snapshot as ADDED, in key order, then what happened after it.
    Initial(Snapshot),
    /// With the rest of such a snapshot, from where [`Cursor::behind`] said; relative to the namespace of the filter.
    Rest(Snapshot, String),
    /// With the first change after the position. One ahead of the cache is accepted: nothing at or below it is
    /// delivered.
    After(u64),
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The cursor moved; slices may have been pushed, or nothing matched so far. Step again, perhaps after letting
    /// others run.
    Sent,
    /// The initial state is complete at this position, which can be resumed from: the end bookmark goes behind what was
    /// pushed, before the next step. Comes once, and only for [`Start::Initial`].
    InitialDone(u64),
    /// Nothing to do. The waker given is called at the next change that may concern the filter.
    Wait,
    /// The cursor fell behind the window, or its snapshot was cut: end the stream without another word.
    Expired(Expired),
    /// The history ended: the storage was listed again or the cache was closed, see [`Cursor::is_closed`]. End the stream
    /// cleanly.
    EpochEnded,
}

/// One watcher's place. Pulls: nothing is queued for it. At most about 1 KiB with everything it owns, whatever the
/// number of objects.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    epoch: Arc<Epoch>,
    judge: Arc<Judge>,
    scope: Scope,
    /// Of the scope's bucket; `None` when the history was over before it was joined.
    waiters: Option<Arc<Waiters>>,
    place: Place,
    /// Everything that matches at or below was pushed.
    position: u64,
    phase: Phase,
    showing: Showing,
}

/// From the first to the last one, except that those in the middle alternate.
#[derive(Debug)]
enum Phase {
    /// Sends a frozen state; its events are kept meanwhile. Boxed: most watchers are past it.
    Initial(Box<Walk>),
    /// Behind, and on its way: it just began, or what it looked at so far was not for it.
    CatchingUp,
    /// Behind, with as much given out as its sink asked for, and not asked for more yet: the socket is full, or about to
    /// be written to. Costs nothing else meanwhile, and goes on as long as its bucket has what comes next.
    Parked,
    /// Nothing was unread when it looked last.
    Live,
    /// Says the same for ever: expired, or the history ended.
    Over(Step),
}

/// What was read under the lock.
enum Read {
    /// So many events, and whether that is all there are.
    Events {
        count: usize,
        all: bool,
    },
    Over(Step),
}

impl Cursor {
    pub(crate) fn open(shared: Arc<Shared>, start: Start, filter: Arc<Filter>) -> Result<Self, Expired> {
        let scope = filter.scope();
        let (epoch, position) = match &start {
            Start::Initial(snapshot) | Start::Rest(snapshot, _) => {
                (Arc::clone(snapshot.history()), snapshot.resource_version)
            }
            Start::After(position) => (Arc::clone(&shared.state.read().epoch), *position),
        };
        shared.counters.catching_up.fetch_add(1, Ordering::Relaxed);
        let showing = Showing::default();
        let judge = shared.filters.share(filter);
        let (waiters, place, phase) = (None, Place::default(), Phase::CatchingUp);
        let mut cursor = Self { shared, epoch, judge, scope, waiters, place, position, phase, showing };
        cursor.join()?;
        let filter = Arc::clone(cursor.judge.filter());
        match start {
            Start::Initial(snapshot) => {
                cursor.enter(Phase::Initial(Box::new(Walk::new(snapshot.freeze(true), filter))))
            }
            Start::Rest(snapshot, start) => {
                cursor.enter(Phase::Initial(Box::new(Walk::starting(snapshot.freeze(true), filter, &start))));
            }
            Start::After(_) => {}
        }
        Ok(cursor)
    }

    /// Joins the scope's bucket, so that its events are kept from `position` on. Does nothing in a history that is over.
    fn join(&mut self) -> Result<(), Expired> {
        let expired = |state: &State| Expired { asked: self.position, oldest: state.window.log.lost() };
        if self.scope == Scope::All {
            // Watching everything changes nothing in the state.
            let state = self.shared.state.read();
            if self.position < state.window.log.lost() && !self.epoch.ended() {
                return Err(expired(&state));
            }
            self.waiters = Some(Arc::clone(&state.buckets.all));
            return Ok(());
        }
        let mut past = None;
        loop {
            let joined = {
                let state = &mut *self.shared.state.write();
                if self.epoch.ended() {
                    return Ok(());
                }
                // A start in the future must not hide events from a bucket that others share.
                let past = past.get_or_insert_with(|| Past::new(self.position.min(state.applied)));
                let node_field = self.shared.schema.node_field;
                match state.buckets.join(&self.scope, past, &state.window.log, node_field) {
                    Join::Expired => return Err(expired(state)),
                    joined @ (Join::Joined(_) | Join::Far) => joined,
                }
            };
            match (joined, &mut past) {
                (Join::Far, Some(past)) => {
                    let Shared { state, backlog, schema, .. } = &*self.shared;
                    backlog.read(state, &self.epoch, &self.scope, schema.node_field, past);
                }
                (Join::Joined(waiters), _) => {
                    self.waiters = Some(waiters);
                    return Ok(());
                }
                (Join::Far | Join::Expired, _) => {}
            }
        }
    }

    /// The same in another form: to be said before the first step.
    #[must_use]
    pub fn shown_as(mut self, form: Form) -> Self {
        self.showing = Showing::new(form);
        self
    }

    /// Whether it matters what time it is: the rows of a table have ages.
    #[must_use]
    pub const fn tells_time(&self) -> bool {
        self.showing.tells_time()
    }

    /// What ages in the rows of a table are counted to from now on, in Unix seconds.
    pub const fn set_now(&mut self, now: i64) {
        self.showing.set_now(now);
    }

    /// Pushes what comes next into `out`, within `budget`. Without a context, [`Step::Wait`] registers nothing.
    /// Cost: short read locks; selectors and slices are done outside.
    pub fn step(&mut self, budget: Budget, out: &mut Slices, cx: Option<&mut Context<'_>>) -> Step {
        let showing = &mut self.showing;
        let step = match &mut self.phase {
            Phase::Over(step) => return *step,
            Phase::Initial(walk) => {
                if self.epoch.ended() {
                    Step::EpochEnded
                } else if walk.state().is_cut() {
                    Step::Expired(Expired { asked: self.position, oldest: self.shared.state.read().window.log.lost() })
                } else {
                    let mut shown = 0;
                    let more = walk.step(|entry| {
                        shown += showing.effort(entry);
                        showing.line(entry, &Told::Added, out);
                        !out.reached(budget) && shown < READ_PER_STEP
                    });
                    if more { Step::Sent } else { self.finish_initial() }
                }
            }
            Phase::CatchingUp | Phase::Parked | Phase::Live => self.follow(budget, out, cx),
        };
        match step {
            Step::Sent | Step::Wait => {}
            Step::InitialDone(_) => self.enter(Phase::CatchingUp),
            Step::EpochEnded => self.enter(Phase::Over(step)),
            Step::Expired(_) => {
                self.shared.counters.expired.fetch_add(1, Ordering::Relaxed);
                self.enter(Phase::Over(step));
            }
        }
        step
    }

    /// The last object was pushed: complete, if the events since are still there.
    fn finish_initial(&self) -> Step {
        let state = self.shared.state.read();
        match state.log(&self.scope) {
            Some(_) | None if self.epoch.ended() => Step::EpochEnded,
            // The window, not the bucket: who resumes may find its bucket gone and has only the window then.
            Some(_) if state.window.log.lost() <= self.position => Step::InitialDone(self.position),
            Some(_) | None => Step::Expired(Expired { asked: self.position, oldest: state.window.log.lost() }),
        }
    }

    /// Pushes the events after the position, until the budget is reached or none is left.
    fn follow(&mut self, budget: Budget, out: &mut Slices, mut cx: Option<&mut Context<'_>>) -> Step {
        let before = out.bytes();
        let mut looked = 0;
        let mut batch = [const { None }; EVENTS_PER_LOCK];
        // What goes beyond the budget is read again. So it bounds what is read first; when little of that was wanted,
        // more is read the next time.
        let mut bytes = budget.bytes;
        while looked < LOOKED_AT_PER_STEP {
            if out.reached(budget) {
                return self.now(Phase::Parked, Step::Sent);
            }
            let room = budget.slices.saturating_sub(out.len()).clamp(1, EVENTS_PER_LOCK);
            let sent = out.bytes() != before;
            let (count, all) = match self.read(&mut batch[..room], bytes, if sent { None } else { cx.as_deref_mut() }) {
                Look::Found(Read::Events { count, all }) => (count, all),
                Look::Found(Read::Over(step)) => return step,
                Look::Nothing => return self.now(Phase::Live, if sent { Step::Sent } else { Step::Wait }),
            };
            bytes = bytes.saturating_mul(2);
            out.reserve(count);
            let mut unread = count;
            for event in batch.iter_mut().map_while(Option::take) {
                if !out.reached(budget) {
                    self.push(&event, out);
                    self.position = event.resource_version;
                    looked += self.judge.filter().weight();
                    unread -= 1;
                }
            }
            if all && unread == 0 && out.bytes() != before {
                // Who sends first and asks then finds out whether there is more by now.
                return self.now(Phase::Live, Step::Sent);
            }
        }
        self.now(if out.bytes() == before { Phase::CatchingUp } else { Phase::Parked }, Step::Sent)
    }

    /// Takes the next events of the bucket, until their objects have `bytes`; or waits when there are none.
    fn read(&mut self, batch: &mut [Option<Arc<Event>>], bytes: usize, cx: Option<&mut Context<'_>>) -> Look<Read> {
        let Self { shared, epoch, scope, position, waiters, place, .. } = self;
        let wait = waiters.as_deref().zip(cx.map(|cx| cx.waker()));
        interest::look_or_wait(&shared.state, wait, place, |state| {
            let log = match state.log(scope) {
                // A history that was replaced is not there any more; one that was closed is read to its end.
                Some(log) if Arc::ptr_eq(&state.epoch, epoch) => log,
                Some(_) | None => return Look::Found(Read::Over(Step::EpochEnded)),
            };
            if *position < log.lost() {
                let oldest = state.window.log.lost();
                return Look::Found(Read::Over(Step::Expired(Expired { asked: *position, oldest })));
            }
            let mut events = log.after(*position);
            let (mut count, mut taken) = (0, 0);
            for (place, event) in batch.iter_mut().zip(&mut events) {
                taken += event.object.len();
                *place = Some(Arc::clone(event));
                count += 1;
                if bytes <= taken {
                    break;
                }
            }
            if 0 < count {
                return Look::Found(Read::Events { count, all: events.next().is_none() });
            }
            if epoch.ended() {
                return Look::Found(Read::Over(Step::EpochEnded));
            }
            // Nothing unread in the bucket: what happened elsewhere up to here is no concern of this watcher.
            *position = state.applied.max(*position);
            Look::Nothing
        })
    }

    /// Pushes `event` as this watcher sees it: objects enter and leave the selector.
    fn push(&mut self, event: &Event, out: &mut Slices) {
        let verdict = self.judge.verdict(event, &self.shared.filters.asked);
        match (event.previous.as_ref().filter(|_| verdict.before), verdict.now) {
            (None, false) => {}
            (None, true) => self.showing.line(&event.object, &Told::Added, out),
            (Some(_), true) => self.showing.line(&event.object, &Told::Modified, out),
            (Some(previous), false) => self.showing.line(previous, &Told::Deleted(&event.digits), out),
        }
    }

    /// The position a bookmark may carry now, or `None` while something is unread, the initial state is incomplete, the
    /// start lies ahead of the cache, or the cursor is over. Write it before the next step.
    pub fn bookmark(&mut self) -> Option<u64> {
        match self.phase {
            // Even if it was parked: what it gave out goes before the bookmark.
            Phase::CatchingUp | Phase::Parked | Phase::Live => {}
            Phase::Initial(_) | Phase::Over(_) => return None,
        }
        let state = self.shared.state.read();
        let log = state.log(&self.scope).filter(|_| !self.epoch.ended())?;
        let at_head = log.lost() <= self.position && log.after(self.position).next().is_none();
        if !at_head || state.applied < self.position {
            return None;
        }
        self.position = state.applied;
        Some(self.position)
    }

    /// Pushes the line of a bookmark at `at`, in the form of the stream.
    pub fn push_bookmark(&mut self, at: u64, initial_events_end: bool, out: &mut Slices) {
        self.showing.bookmark(&self.shared.schema, at, initial_events_end, out);
    }

    /// Everything that matches at or below was pushed. The snapshot's position during the initial state.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Where [`Start::Rest`] goes on from behind what was pushed so far; `None` before the first object and once the
    /// initial state is over.
    #[must_use]
    pub fn behind(&self) -> Option<String> {
        match &self.phase {
            Phase::Initial(walk) => walk.behind(),
            Phase::CatchingUp | Phase::Parked | Phase::Live | Phase::Over(_) => None,
        }
    }

    /// Whether the cache takes nothing in any more, which is the other reason for [`Step::EpochEnded`]: there is nothing
    /// to come back for.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.waiting.is_closed()
    }

    /// Whether the initial state is still being sent.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        matches!(self.phase, Phase::Initial(_))
    }

    /// The end of a step in `phase`, which costs nothing where it was before.
    fn now(&mut self, phase: Phase, step: Step) -> Step {
        if mem::discriminant(&self.phase) != mem::discriminant(&phase) {
            self.enter(phase);
        }
        step
    }

    /// Changes the phase and what is counted. Lets the snapshot go.
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
            Phase::Live => Some(&counters.live),
            Phase::Over(_) => None,
        }
    }

    /// Leaves the bucket; the last watcher takes it along.
    fn leave(&mut self) {
        let Some(waiters) = self.waiters.take() else { return };
        drop(waiters.leave(mem::take(&mut self.place)));
        if self.scope != Scope::All {
            let state = &mut *self.shared.state.write();
            // Buckets of a later history are not ours.
            if Arc::ptr_eq(&state.epoch, &self.epoch) {
                state.buckets.leave(&self.scope);
            }
        }
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
