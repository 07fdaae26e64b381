//! Sources of triggers: subscriptions mapped to the keys of the objects to reconcile, and streams of the program.
//!
//! INVARIANT: a source of related objects is ready when every state before has been skipped, and yields each change
//! after it. Subscriptions are level-triggered: a source that is not polled holds no queue.

use std::time::Duration;

use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};

use crate::{
    controller::{
        changed,
        metadata::{self, OwnerReference, Owners},
    },
    ended::EndReason,
    error::NotReady,
    informer::Informer,
    object::Object,
    subscription::{EVENTS_AT_ONCE, Event, Subscription},
};

/// Request to reconcile, before it is looked up in the store.
#[derive(Debug, PartialEq)]
pub(super) enum Trigger {
    /// The object with this key.
    Object(String),
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

/// Resolves once the informer behind the triggers is ready, or has ended before.
pub(super) type PendingTriggers = BoxFuture<'static, Result<Triggers, NotReady>>;

/// Returns true if an update from the first version to the second triggers.
pub(super) type UpdatePredicate<K> = Box<dyn Fn(&Object<K>, &Object<K>) -> bool + Send>;

/// A controller waits for its informers as long as they run.
const EVER: Duration = Duration::MAX;

/// Triggers of the primary type: its present objects, and those added or updated.
pub(super) fn of_primary<K: Send + Sync + 'static>(informer: Informer<K>, when: UpdatePredicate<K>) -> PendingTriggers {
    let map = move |event: Event<K>| match event {
        Event::Added(object) => vec![Trigger::Object(object.key().to_owned())],
        Event::Updated { old, new } if when(&old, &new) || changed::deletion(&old, &new) => {
            vec![Trigger::Object(new.key().to_owned())]
        }
        Event::Deleted { last_known, .. } => vec![Trigger::Deleted(last_known.key().to_owned())],
        Event::Updated { .. } | Event::Reset | Event::Synced(_) => Vec::new(),
    };
    async move {
        informer.ready(EVER).await?;
        let subscription = informer.subscribe();
        Ok(triggers(informer, subscription, map))
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
        informer.ready(EVER).await?;
        let mut subscription = informer.subscribe();
        skip_present(&mut subscription).await;
        Ok(triggers(informer, subscription, map))
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
    futures::future::ready(Ok(triggers.boxed())).boxed()
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

/// Maps the events of a subscription, and ends with [`Trigger::InformerEnded`]. Keeps the informer running.
fn triggers<C, M>(informer: Informer<C>, subscription: Subscription<C>, mut map: M) -> Triggers
where
    C: Send + Sync + 'static,
    M: FnMut(Event<C>) -> Vec<Trigger> + Send + 'static,
{
    let ended = async move { Trigger::InformerEnded { request: informer.explain(), reason: informer.join().await } };
    subscription.flat_map(move |event| stream::iter(map(event))).chain(stream::once(ended)).boxed()
}
