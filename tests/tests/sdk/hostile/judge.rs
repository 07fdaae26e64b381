//! Checks an informer's subscriptions: each event must follow from the previous ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{Stream, StreamExt as _};
use informer::{Event, Informer, ObjectView};
use k8s_openapi::api::core::v1::ConfigMap;

/// A copy built only from events.
#[derive(Clone, Default)]
pub(crate) struct Replica(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    objects: BTreeMap<String, String>,
    wrong: Vec<String>,
}

fn state_of(object: ObjectView<'_, ConfigMap>) -> String {
    format!("{}@{}", object.uid(), object.resource_version())
}

/// The objects of an informer, in the format of replicas.
pub(crate) fn states(maps: &Informer<ConfigMap>) -> BTreeMap<String, String> {
    maps.store().snapshot().iter().map(|object| (object.key().to_owned(), state_of(object))).collect()
}

impl Replica {
    /// Follows a subscription until it ends.
    pub(crate) fn follow(events: impl Stream<Item = Event<ConfigMap>> + Send + 'static) -> Self {
        let replica = Self::default();
        let told = Arc::clone(&replica.0);
        tokio::spawn(events.for_each(move |event| {
            told.lock().unwrap().take(&event);
            std::future::ready(())
        }));
        replica
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap().objects.clone()
    }

    /// Events that do not follow from the previous ones.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.0.lock().unwrap().wrong.clone()
    }
}

impl Told {
    fn take(&mut self, event: &Event<ConfigMap>) {
        let (before, expected) = match event {
            Event::Added(new) => (self.objects.insert(new.key().to_owned(), state_of(new.view())), None),
            Event::Updated { old, new } => {
                (self.objects.insert(new.key().to_owned(), state_of(new.view())), Some(state_of(old.view())))
            }
            Event::Deleted { last_known, .. } => {
                (self.objects.remove(last_known.key()), Some(state_of(last_known.view())))
            }
            Event::Reset | Event::Synced(_) | _ => return,
        };
        if before != expected {
            self.wrong.push(format!("{event:?} when there was {before:?}"));
        }
    }
}
