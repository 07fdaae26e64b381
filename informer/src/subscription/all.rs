//! Every change in order, as one subscriber sees it: a cursor into the ring all of them share.
//!
//! INVARIANT: what was told is the state of number `cursor` while following, and a difference is under way otherwise.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::Stream;
use informer_core::store::{
    self,
    ring::{Listener, Overrun},
};

use super::{
    EVENTS_AT_ONCE, Event,
    source::{Saved, Source, Wait},
    telling::{Target, Teller},
};
use crate::decode::Decoded;

/// The changes of an informer, each of them, in the order they came: first what was there, then one event a change.
///
/// A subscriber that falls behind by more than the ring holds is told [`Event::Reset`], then the difference from what
/// it was told to what is, as [`Subscription`](super::Subscription) would, and then each change again; no gap, and
/// nothing twice. A relist is told as the changes it found, with `missed` for what had vanished, and `Synced` after
/// them. Nobody waits for a slow subscriber. Also a [`Stream`].
///
/// Memory: the ring, one for all subscribers of an informer; see
/// [`subscribe_all`](crate::Informer::subscribe_all). Of its own the subscriber keeps [`EVENTS_AT_ONCE`] events at most
/// and, when it is behind, the state it was told, which shares with the store whatever has not changed since.
#[must_use = "a subscriber is told nothing unless it asks"]
pub struct SubscriptionAll<K> {
    wait: Wait,
    listener: Listener,
    state: State,
    teller: Teller<K>,
}

enum State {
    /// Nothing, or only what was saved, has been told.
    Starting { saved: Option<Arc<Saved>> },
    /// The state it starts from is told in parts; changes after it, from this number on, wait in the ring.
    Telling { start: Target, sequence: u64 },
    /// Every change up to this number has been told.
    Following { cursor: u64 },
    /// Overrun: the difference to now is told in parts.
    CatchingUp,
}

impl<K> SubscriptionAll<K> {
    pub(crate) fn new(source: Source, decoded: Arc<Decoded<K>>, capacity: usize) -> Self {
        let saved = source.saved();
        let listener = source.ring.listen(capacity, &source.now.borrow());
        let (wait, state) = (Wait::new(source.now), State::Starting { saved });
        Self { wait, listener, state, teller: Teller::new(decoded) }
    }

    /// The next change; `None` when the informer was stopped and everything has been told.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<K>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            if let Some(event) = self.teller.pop() {
                return Poll::Ready(Some(event));
            }
            let now = self.wait.look();
            if !self.advance(&now) && self.teller.queued_len() == 0 && !ready!(self.wait.poll(cx)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Queues what comes next. Returns whether there may be more.
    fn advance(&mut self, now: &store::Snapshot) -> bool {
        match &mut self.state {
            State::Starting { saved } => {
                if let Some(state) = saved.as_ref().and_then(|saved| saved.get()) {
                    if !self.teller.look(state) {
                        *saved = None;
                    }
                    return true;
                }
                match self.listener.start(now) {
                    None => return false,
                    Some(Ok(start)) => {
                        let sequence = start.sequence;
                        self.state = State::Telling { start: Target::from(start), sequence };
                    }
                    Some(Err(Overrun)) => self.overrun(),
                }
                true
            }
            State::Telling { start, sequence } => {
                if !self.teller.look(start) {
                    self.state = State::Following { cursor: *sequence };
                }
                true
            }
            // Also when the ring has gone further: readers must not be told what a snapshot does not show yet.
            State::Following { cursor } if *cursor == now.sequence => false,
            State::Following { cursor } => {
                match self.listener.read(*cursor, now.sequence, EVENTS_AT_ONCE) {
                    Ok(records) => {
                        *cursor += records.len() as u64;
                        self.teller.follow(records, (*cursor == now.sequence).then_some(&now.objects));
                    }
                    Err(Overrun) => self.overrun(),
                }
                true
            }
            State::CatchingUp => {
                if !self.teller.look(&Target::from(now)) {
                    self.state = State::Following { cursor: now.sequence };
                }
                true
            }
        }
    }

    fn overrun(&mut self) {
        self.teller.reset();
        self.state = State::CatchingUp;
    }
}

impl<K> Stream for SubscriptionAll<K> {
    type Item = Event<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.get_mut().poll_event(cx)
    }
}

impl<K> fmt::Debug for SubscriptionAll<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionAll")
            .field("told", &self.teller.told_len())
            .field("queued", &self.teller.queued_len())
            .finish_non_exhaustive()
    }
}
