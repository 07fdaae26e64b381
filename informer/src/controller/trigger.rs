//! Sources of triggers: subscriptions mapped to the keys of the objects to reconcile, and streams of the program.
//!
//! INVARIANT: a source of related objects is ready when every state before has been skipped, and yields each change
//! after it. Subscriptions are level-triggered: a source that is not polled holds no queue.

use std::{collections::HashMap, sync::Arc, task::Poll};

use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;

use crate::{
    controller::{
        changed,
        metadata::{self, OwnerReference, Owners},
    },
    ended::EndReason,
    informer::Informer,
    object::Object,
    subscription::{EVENTS_AT_ONCE, Event, Subscription},
};

/// Request to reconcile, before it is looked up in the store.
#[derive(Debug, PartialEq)]
pub(super) enum Trigger {
    /// The object with this key: something changed.
    Object(String),
    /// The object with this key, which existed when the controller started.
    Present(String),
    /// An owner of a changed object: of that name, in the namespace of the changed one or in none.
    Owner { namespace: String, name: String, uid: String },
    /// Every object.
    All,
    /// The object with this key was deleted.
    Deleted(String),
    /// The informer with this last request has ended.
    InformerEnded { request: String, reason: EndReason },
}

/// Triggers of one source.
pub(super) type Triggers = BoxStream<'static, Trigger>;

/// Triggers of an informer that is ready. Resolves once the objects that need no trigger are skipped.
pub(super) type PendingTriggers = BoxFuture<'static, Triggers>;

/// Deletions of primary objects, for a controller that reconciles them.
///
/// INVARIANT: each reconciled object that is deleted is taken from here once. An object is reconciled only if its
/// deletion is the next one of its key, and none is until that one is taken. So of several deleted objects of a key
/// only the first can have been reconciled, and the others are dropped.
///
/// Memory: the deleted objects whose turn has not come.
pub(super) struct Deletions<K> {
    /// The source of the events; `None` before the start.
    subscription: Mutex<Option<Subscription<K>>>,
    /// Last versions by key.
    deleted: Mutex<HashMap<String, Object<K>>>,
}

impl<K> Deletions<K> {
    pub(super) fn new() -> Self {
        Self { subscription: Mutex::new(None), deleted: Mutex::default() }
    }

    /// Takes the deleted object of a key whose turn has come.
    pub(super) fn take(&self, key: &str) -> Option<Object<K>> {
        self.deleted.lock().remove(key)
    }

    /// True if `object` may be reconciled. If not, the store is ahead of the events, and one of its key follows.
    pub(super) fn may_reconcile(&self, object: &Object<K>) -> bool {
        self.subscription.lock().as_ref().is_some_and(|subscription| subscription.has_delivered(object))
    }

    fn add(&self, last_known: Object<K>) {
        self.deleted.lock().entry(last_known.key().to_owned()).or_insert(last_known);
    }

    /// The events of `subscription`.
    fn follow(self: Arc<Self>, subscription: Subscription<K>) -> impl Stream<Item = Event<K>> {
        *self.subscription.lock() = Some(subscription);
        stream::poll_fn(move |cx| {
            self.subscription.lock().as_mut().map_or(Poll::Ready(None), |subscription| subscription.poll_next_unpin(cx))
        })
    }
}

/// Returns true if an update from the first version to the second triggers.
pub(super) type UpdatePredicate<K> = Box<dyn Fn(&Object<K>, &Object<K>) -> bool + Send>;

/// Triggers of the primary type: its present objects, and those added, updated or deleted. Deleted ones are put into
/// `deletions` first.
pub(super) fn of_primary<K: Send + Sync + 'static>(
    informer: Informer<K>,
    when: UpdatePredicate<K>,
    deletions: Option<Arc<Deletions<K>>>,
) -> PendingTriggers {
    let mut is_synced = false;
    let followed = deletions.clone();
    let map = move |event: Event<K>| match event {
        Event::Added(object) if is_synced => vec![Trigger::Object(object.key().to_owned())],
        Event::Added(object) => vec![Trigger::Present(object.key().to_owned())],
        Event::Updated { old, new } if when(&old, &new) || changed::deletion(&old, &new) => {
            vec![Trigger::Object(new.key().to_owned())]
        }
        Event::Deleted { last_known, .. } => {
            let trigger = Trigger::Deleted(last_known.key().to_owned());
            if let Some(deletions) = &deletions {
                deletions.add(last_known);
            }
            vec![trigger]
        }
        Event::Synced(_) => {
            is_synced = true;
            Vec::new()
        }
        Event::Updated { .. } | Event::Reset => Vec::new(),
    };
    async move {
        let subscription = informer.subscribe();
        match followed {
            Some(deletions) => triggers(informer, deletions.follow(subscription), map),
            None => triggers(informer, subscription, map),
        }
    }
    .boxed()
}

/// Triggers of a related type: `map` applied to every object added, updated or deleted after the start. Of an update,
/// both versions are mapped: a reference that moved concerns two objects.
pub(super) fn of_related<C, M>(informer: Informer<C>, when: UpdatePredicate<C>, map: M) -> PendingTriggers
where
    C: Send + Sync + 'static,
    M: Fn(&Object<C>) -> Vec<Trigger> + Send + 'static,
{
    let map = move |event: Event<C>| match event {
        Event::Added(object) | Event::Deleted { last_known: object, .. } => map(&object),
        Event::Updated { old, new } if when(&old, &new) => {
            let mut found = map(&new);
            for trigger in map(&old) {
                if !found.contains(&trigger) {
                    found.push(trigger);
                }
            }
            found
        }
        Event::Updated { .. } | Event::Reset | Event::Synced(_) => Vec::new(),
    };
    async move {
        let mut subscription = informer.subscribe();
        skip_present(&mut subscription).await;
        triggers(informer, subscription, map)
    }
    .boxed()
}

/// Triggers for the owners of an object that are of this type.
pub(super) fn owner<C>(object: &Object<C>, owners: Owners, group: &str, kind: &str) -> Vec<Trigger> {
    let json = object.json();
    let owners = metadata::owners_of(&json, owners).into_iter().filter(|owner| owner.is_of(group, kind));
    let trigger = |owner: OwnerReference<'_>| Trigger::Owner {
        namespace: object.namespace().to_owned(),
        name: owner.name.into_owned(),
        uid: owner.uid.into_owned(),
    };
    owners.map(trigger).collect()
}

/// Triggers of a stream of the program. Its end is no failure.
pub(super) fn of_stream(triggers: impl Stream<Item = Trigger> + Send + 'static) -> PendingTriggers {
    futures::future::ready(triggers.boxed()).boxed()
}

/// Skips the objects present now. They need no trigger: every reconcile comes later, and reads a store that has them.
async fn skip_present<C>(subscription: &mut Subscription<C>) {
    let mut skipped = 0_usize;
    // A subscription that is not ready has delivered the whole current state.
    while let Some(Some(_)) = subscription.next().now_or_never() {
        skipped += 1;
        if skipped.is_multiple_of(EVENTS_AT_ONCE) {
            tokio::task::yield_now().await;
        }
    }
}

/// Maps the events of an informer, and ends with [`Trigger::InformerEnded`]. Keeps the informer running.
fn triggers<C, M>(informer: Informer<C>, events: impl Stream<Item = Event<C>> + Send + 'static, mut map: M) -> Triggers
where
    C: Send + Sync + 'static,
    M: FnMut(Event<C>) -> Vec<Trigger> + Send + 'static,
{
    let ended = async move { Trigger::InformerEnded { request: informer.explain(), reason: informer.join().await } };
    events.flat_map(move |event| stream::iter(map(event))).chain(stream::once(ended)).boxed()
}
