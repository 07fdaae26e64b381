//! Streams of the reference storage, with the faults that their readers see.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, atomic::Ordering},
};

use cache_server::{
    registry::ResourceType,
    storage::{SourceError, SourceRecord, Update, Updates},
};
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;
use watch_cache::{Change, Draft};

use super::{Fault, reference::ReferenceStore};
use crate::contract::CONTENT;

/// How far a stream was read.
pub(crate) struct StreamReads {
    pub(crate) ty: String,
    /// Changes of the type when it was opened.
    pub(crate) begun: usize,
    /// Changes that it has yielded.
    pub(crate) read: usize,
}

/// One open stream.
struct ReferenceStream {
    number: usize,
    ty: Arc<ResourceType>,
    store: Arc<ReferenceStore>,
    updates: Updates,
    parted: watch::Receiver<bool>,
    /// True once the stream has reported that it is parted.
    is_reported: bool,
    ready: VecDeque<Update>,
    /// A change that comes after the next one.
    held: Option<Update>,
    puts: usize,
    objects: usize,
    /// True if the next change is lost.
    loses_next: bool,
}

/// Returns a change as an update.
pub(crate) fn update(change: Change) -> Update {
    match change {
        Change::Put(entry) => Update::Put(SourceRecord::Entry(entry)),
        Change::Deleted { key, resource_version } => Update::Deleted { key, revision: resource_version },
        Change::Progress(revision) => Update::Progress(revision),
    }
}

/// Returns what follows the state of a stream.
pub(crate) fn after_state(updates: Updates) -> Updates {
    let is_state = |update: &Result<Update, SourceError>| {
        std::future::ready(!matches!(update, Ok(Update::Put(_) | Update::Deleted { .. } | Update::Progress(_))))
    };
    updates.skip_while(is_state).boxed()
}

/// Returns a stream of the store, with its fault.
pub(crate) fn checked(store: &Arc<ReferenceStore>, ty: &Arc<ResourceType>, updates: Updates) -> Updates {
    let number = store.streams.fetch_add(1, Ordering::Relaxed);
    let reads = StreamReads { ty: ty.id().to_owned(), begun: store.changed(ty.id()), read: 0 };
    store.reads.lock().unwrap().insert(number, reads);
    let stream = ReferenceStream {
        number,
        ty: Arc::clone(ty),
        store: Arc::clone(store),
        updates,
        parted: store.is_parted.subscribe(),
        is_reported: false,
        ready: VecDeque::new(),
        held: None,
        puts: 0,
        objects: 0,
        loses_next: false,
    };
    stream::unfold(stream, |mut stream| async {
        let update = stream.next().await?;
        Some((update, stream))
    })
    .boxed()
}

impl ReferenceStream {
    /// Returns the next update. Cancel safe.
    async fn next(&mut self) -> Option<Result<Update, SourceError>> {
        loop {
            if *self.parted.borrow_and_update() {
                if !mem::replace(&mut self.is_reported, true) {
                    self.loses_next = self.has(Fault::GapAfterOutage);
                    return Some(Err(SourceError::Unavailable("parted".to_owned())));
                }
                self.parted.changed().await.ok()?;
                continue;
            }
            self.is_reported = false;
            if let Some(update) = self.ready.pop_front() {
                return Some(Ok(update));
            }
            tokio::select! {
                biased;
                changed = self.parted.changed() => changed.ok()?,
                update = self.updates.next() => match update? {
                    Ok(update) => self.take(update),
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::State { objects, revision } => {
                self.take(Update::StateBegins);
                objects.iter().for_each(|entry| self.take(Update::Object(SourceRecord::Entry(Arc::clone(entry)))));
                self.take(Update::StateComplete(revision));
            }
            Update::Put(SourceRecord::Entry(ref entry)) => {
                let revision = entry.resource_version();
                self.change(update, revision);
            }
            Update::Deleted { revision, .. } => self.change(update, revision),
            Update::Object(_) => {
                self.objects += 1;
                if self.has(Fault::StateRepeated) {
                    self.ready.push_back(update.clone());
                }
                if !(self.has(Fault::StateLacksObject) && self.objects == 1) {
                    self.ready.push_back(update);
                }
            }
            Update::StateComplete(revision) if self.has(Fault::StateHasLaterRevision) => {
                self.ready.push_back(Update::StateComplete(revision + 1));
            }
            Update::Progress(_) if self.has(Fault::ForgetsProgress) => {}
            other @ (Update::StateBegins
            | Update::Removed(_)
            | Update::StateComplete(_)
            | Update::StateAbandoned
            | Update::HistoryLost
            | Update::Put(_)
            | Update::Batch(_)
            | Update::Progress(_)) => self.ready.push_back(other),
        }
    }

    fn change(&mut self, update: Update, revision: u64) {
        if let Some(reads) = self.store.reads.lock().unwrap().get_mut(&self.number) {
            reads.read += 1;
        }
        self.puts += 1;
        let is_chosen = self.puts % 5 == 4;
        let is_deletion = matches!(update, Update::Deleted { .. });
        let is_hidden = self.store.cancelled.lock().unwrap().contains(&revision);
        let is_lost = mem::take(&mut self.loses_next)
            || is_hidden
            || is_chosen && self.has(Fault::DropsChanges)
            || is_deletion && self.has(Fault::DropsDeletions);
        if is_lost {
            return;
        }
        if self.has(Fault::ProgressBeforeChanges) {
            self.ready.push_back(Update::Progress(revision));
        }
        if is_chosen && self.has(Fault::SwapsChanges) && self.held.is_none() {
            self.held = Some(update);
            return;
        }
        if is_chosen && self.has(Fault::RepeatsChanges) {
            self.ready.push_back(update.clone());
        }
        let is_old = is_chosen && self.has(Fault::SendsOldContent);
        self.ready.push_back(if is_old { self.with_old_content(update, revision) } else { update });
        self.ready.extend(self.held.take());
    }

    fn with_old_content(&self, update: Update, revision: u64) -> Update {
        let Update::Put(SourceRecord::Entry(entry)) = &update else { return update };
        let mut object: Value = serde_json::from_slice(&entry.object()).expect("JSON");
        object["metadata"]["annotations"][CONTENT] = "424242".into();
        let draft = Draft::new(&self.ty.schema, object.to_string().as_bytes()).expect("an object");
        Update::Put(SourceRecord::Entry(draft.commit(revision)))
    }

    fn has(&self, fault: Fault) -> bool {
        self.store.has(fault)
    }
}

impl Drop for ReferenceStream {
    fn drop(&mut self) {
        self.store.reads.lock().unwrap().remove(&self.number);
        if self.has(Fault::LeaksStreams) {
            mem::forget(mem::replace(&mut self.updates, stream::pending().boxed()));
        }
    }
}
