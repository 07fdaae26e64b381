//! Subscription to every change in order: a cursor into the ring that all such subscribers share.
//!
//! INVARIANT: while following, the delivered state is the state at sequence number `cursor`; in the other states a
//! difference is being delivered.

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
    source::{SavedTarget, Source, Wait},
    telling::{DeliveryTarget, Teller},
};
use crate::{decode::DecodedObjects, ended::EndReason, keep_alive::KeepAlive};

/// Every change of an informer, in order: first the objects present, then one event per change.
///
/// A subscriber that falls behind by more than the ring holds receives [`Event::Reset`], then the difference between
/// its last state and the current one, like a [`Subscription`](super::Subscription), and then each change again,
/// without gaps or duplicates. A relist is delivered as the changes it found, with `missed` set for objects it no
/// longer contained, followed by `Synced`. A slow subscriber delays neither the informer nor other subscribers. Keeps
/// its informer running. Also a [`Stream`].
///
/// Memory: the ring, shared by all subscribers of an informer (see [`subscribe_all`](crate::Informer::subscribe_all)).
/// In addition each subscriber keeps at most [`EVENTS_AT_ONCE`] events and, while it is behind, the state last
/// delivered, which shares all unchanged objects with the store.
#[must_use = "a subscription yields events only when polled"]
pub struct SubscriptionAll<K> {
    wait: Wait,
    listener: Listener,
    state: DeliveryState,
    teller: Teller<K>,
    // `None` only before `keeping`.
    informer: Option<Arc<KeepAlive>>,
}

enum DeliveryState {
    /// No event delivered yet, or only the saved state.
    Starting { saved: Option<Arc<SavedTarget>> },
    /// The start state is being delivered in parts; changes after `sequence` wait in the ring.
    Telling { start: DeliveryTarget, sequence: u64 },
    /// Every change up to this sequence number was delivered.
    Following { cursor: u64 },
    /// Overrun: the difference to the current state is being delivered in parts.
    CatchingUp,
}

impl<K> SubscriptionAll<K> {
    pub(crate) fn new(source: Source, decoded: Arc<DecodedObjects<K>>, capacity: usize) -> Self {
        let saved = source.saved();
        let listener = source.ring.listen(capacity, &source.now.borrow());
        let (wait, state) = (Wait::new(source.now), DeliveryState::Starting { saved });
        Self { wait, listener, state, teller: Teller::new(decoded), informer: None }
    }

    /// Keeps `informer` running until the subscription is dropped.
    pub(crate) fn keeping(self, informer: Arc<KeepAlive>) -> Self {
        let wait = self.wait.ending_with(informer.life().clone());
        Self { wait, informer: Some(informer), ..self }
    }

    /// Returns the next change; `None` once the informer has ended and every event was delivered.
    /// [`end_reason`](Self::end_reason) then has the reason. Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event<K>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Why the informer has ended; `None` while it runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.informer.as_ref().and_then(|informer| informer.life().end_reason())
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

    /// Queues the next events. Returns true if there may be more.
    fn advance(&mut self, now: &store::Snapshot) -> bool {
        match &mut self.state {
            DeliveryState::Starting { saved } => {
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
                        self.state = DeliveryState::Telling { start: DeliveryTarget::from(start), sequence };
                    }
                    Some(Err(Overrun)) => self.overrun(),
                }
                true
            }
            DeliveryState::Telling { start, sequence } => {
                if !self.teller.look(start) {
                    self.state = DeliveryState::Following { cursor: *sequence };
                }
                true
            }
            // Even if the ring is already further: subscribers must not see a change before snapshots show it.
            DeliveryState::Following { cursor } if *cursor == now.sequence => false,
            DeliveryState::Following { cursor } => {
                match self.listener.read(*cursor, now.sequence, EVENTS_AT_ONCE) {
                    Ok(records) => {
                        *cursor += records.len() as u64;
                        self.teller.follow(records, (*cursor == now.sequence).then_some(&now.objects));
                    }
                    Err(Overrun) => self.overrun(),
                }
                true
            }
            DeliveryState::CatchingUp => {
                if !self.teller.look(&DeliveryTarget::from(now)) {
                    self.state = DeliveryState::Following { cursor: now.sequence };
                }
                true
            }
        }
    }

    fn overrun(&mut self) {
        self.teller.reset();
        self.state = DeliveryState::CatchingUp;
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
            .field("delivered", &self.teller.delivered_len())
            .field("queued", &self.teller.queued_len())
            .finish_non_exhaustive()
    }
}
