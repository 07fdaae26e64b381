//! The stream of one type: its objects at one revision, then the events of a watch.
//!
//! INVARIANT: all changes of one revision are delivered as one update, however etcd cuts its responses, so that a reader
//! that resumes at a position misses none of them.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use api_rules::etcd::{StoredValueError, decode_value};
use bytes::Bytes;
use tokio::time::Instant;
use watch_cache::Reader;

use super::{
    batches::{EventBatches, by_revision, revision_of},
    client::{EtcdClient, WatchConnection},
    failure::EtcdFailure,
    history,
    keys::TypeKeys,
    listing::{PagedRange, RangePage, signed, unsigned},
    messages::{
        EVENT_DELETE, KeyValue, RangeRequest, WatchCreateRequest, WatchProgressRequest, WatchResponse, WatchStep,
        WatchStreamRequest, WatchedEvent,
    },
    position::{CachePosition, StreamPosition},
};
use crate::{
    registry::ResourceType,
    storage::{SourceChange, SourceError, SourceRecord, Update},
};

/// The updates of one type.
pub(super) struct TypeStream {
    client: Arc<EtcdClient>,
    ty: Arc<ResourceType>,
    keys: TypeKeys,
    position: Arc<StreamPosition>,
    /// Its number, of [`StreamPosition::follow`].
    number: u64,
    phase: StreamPhase,
    /// Updates that were received.
    pending: VecDeque<Result<Update, SourceError>>,
    /// Revision up to which every change is delivered or pending.
    delivered: u64,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamStart {
    /// With an earlier state and all changes since, so that an empty cache gets a window as well: clients that come from
    /// another server, or were here before a restart, resume.
    WithHistory,
    /// With the newest state.
    Newest,
    /// With the changes after a revision.
    After(u64),
}

enum StreamPhase {
    /// Looking for a revision to begin at.
    Anchoring,
    Listing(PagedRange),
    Opening,
    Watching(OpenWatch),
    Over,
}

struct OpenWatch {
    connection: WatchConnection,
    batches: EventBatches,
    /// Time of the last request for the position, until it is answered.
    requested: Option<Instant>,
}

impl TypeStream {
    pub(super) fn new(
        client: Arc<EtcdClient>,
        ty: Arc<ResourceType>,
        keys: TypeKeys,
        position: Arc<StreamPosition>,
        cache: Reader,
        begin: StreamStart,
    ) -> Self {
        let number = position.follow(cache);
        let (phase, pending, delivered) = (StreamPhase::Opening, VecDeque::new(), 0);
        let mut stream = Self { client, ty, keys, position, number, phase, pending, delivered };
        match begin {
            StreamStart::WithHistory => stream.phase = StreamPhase::Anchoring,
            StreamStart::Newest => stream.list(0),
            StreamStart::After(after) => stream.delivered = after,
        }
        stream
    }

    /// Returns the next update; `None` if the stream is over. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<Update, SourceError>> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Some(update);
            }
            match &mut self.phase {
                StreamPhase::Anchoring => match anchor(&self.client, &self.ty, &self.keys).await {
                    Ok(revision) => self.list(revision),
                    Err(error) => self.end(error),
                },
                StreamPhase::Listing(pages) => {
                    let page = pages.next().await;
                    self.take_page(page);
                }
                StreamPhase::Opening => match self.client.watch(create(&self.keys, self.delivered)).await {
                    Ok(connection) => {
                        self.phase = StreamPhase::Watching(OpenWatch {
                            connection,
                            batches: EventBatches::default(),
                            requested: None,
                        });
                    }
                    Err(failure) => self.fail(failure),
                },
                StreamPhase::Watching(watch) => {
                    tokio::select! {
                        response = watch.connection.responses.message() => self.take_response(response),
                        () = self.position.due(self.delivered, watch.requested) => self.seek_position().await,
                    }
                }
                StreamPhase::Over => return None,
            }
        }
    }

    /// Begins with the state at a revision; zero for the newest.
    fn list(&mut self, revision: u64) {
        self.position.begin();
        self.pending.push_back(Ok(Update::StateBegins));
        self.phase = StreamPhase::Listing(PagedRange::new(Arc::clone(&self.client), &self.keys, revision));
    }

    fn take_page(&mut self, page: Result<Option<RangePage>, EtcdFailure>) {
        match page {
            Ok(Some(page)) => {
                if !self.position.note_cluster(page.cluster) {
                    return self.list(0);
                }
                self.delivered = page.revision;
                for kv in page.kvs {
                    match self.record(&kv) {
                        Ok(Some(record)) => self.pending.push_back(Ok(Update::Object(record))),
                        Ok(None) => {}
                        Err(error) => return self.end(error),
                    }
                }
            }
            Ok(None) => {
                self.pending.push_back(Ok(Update::StateComplete(self.delivered)));
                // It may be noted since the cache had another history: this state is of the one that etcd has.
                self.position.take_lost();
                self.phase = StreamPhase::Opening;
            }
            // The history was compacted while it was read. The rest of the pages would be of no state.
            Err(EtcdFailure::Compacted) => self.list(0),
            Err(failure) => self.fail(failure),
        }
    }

    fn take_response(&mut self, response: Result<Option<WatchResponse>, tonic::Status>) {
        let response = match response {
            Ok(Some(response)) => response,
            Ok(None) => return self.leave(EtcdFailure::Unanswered("the watch ended".to_owned())),
            Err(status) => return self.leave(status.into()),
        };
        if response.canceled {
            if response.compact_revision > 0 {
                return self.end(SourceError::Compacted { after: self.delivered });
            }
            return self.leave(EtcdFailure::Unanswered(format!("the watch was canceled: {}", response.cancel_reason)));
        }
        let revision = unsigned(response.header.unwrap_or_default().revision);
        if response.created {
            // The cache is up to date again, though nothing may have changed.
            self.pending.push_back(Ok(Update::Progress(self.delivered)));
        } else if response.events.is_empty() {
            self.progress(revision);
        } else {
            self.take_events(response.events, response.fragment);
        }
    }

    /// Asks for a later position, which a reader needs. Ends if etcd has another history.
    async fn seek_position(&mut self) {
        if self.position.take_lost() {
            return self.end(SourceError::Unavailable("etcd was restored, or has another history".to_owned()));
        }
        let StreamPhase::Watching(watch) = &mut self.phase else { return };
        watch.requested = Some(Instant::now());
        if self.client.preferred() != watch.connection.member {
            // Its member failed other calls meanwhile, so this stream may wait for it in vain.
            self.fail(EtcdFailure::Unanswered("its member failed other calls".to_owned()));
        } else if self.client.tells_progress(watch.connection.member) {
            watch.ask();
        } else {
            self.compare().await;
        }
    }

    /// Compares the cache with the keys of etcd, for members that cannot be asked for the watch's position. If no object
    /// has a later change and none is missing, the cached state is the current one, and the watch begins anew behind it.
    /// Events in flight are then those of objects that were created and deleted in between.
    async fn compare(&mut self) {
        let Some(cache) = self.position.cache().filter(|cache| cache.applied() == self.delivered) else { return };
        let expected = cache.snapshot().objects.len() + self.position.unreadable();
        let changed = RangeRequest {
            key: self.keys.prefix.clone(),
            range_end: self.keys.end.clone(),
            limit: 1,
            keys_only: true,
            min_mod_revision: signed(self.delivered.saturating_add(1)),
            ..RangeRequest::default()
        };
        // A failure ends the watch as well, or the next attempt succeeds.
        let Ok(changed) = self.client.range(changed).await else { return };
        let header = changed.header.unwrap_or_default();
        let before = CachePosition { applied: self.delivered, stream: self.number };
        if !self.position.has_history(before, unsigned(header.revision), header.cluster_id) {
            return;
        }
        if changed.kvs.is_empty() && u64::try_from(expected).is_ok_and(|count| count == unsigned(changed.count)) {
            self.progress(unsigned(header.revision));
            self.phase = StreamPhase::Opening;
        }
    }

    fn progress(&mut self, revision: u64) {
        if let StreamPhase::Watching(watch) = &mut self.phase {
            watch.requested = None;
        }
        if self.delivered < revision {
            self.delivered = revision;
            self.pending.push_back(Ok(Update::Progress(revision)));
        }
    }

    /// Delivers events by revision.
    fn take_events(&mut self, events: Vec<WatchedEvent>, is_fragment: bool) {
        let StreamPhase::Watching(watch) = &mut self.phase else { return };
        let complete = watch.batches.take(events, is_fragment);
        for batch in by_revision(&complete) {
            let changes: Result<Vec<_>, _> = batch.iter().filter_map(|event| self.change(event).transpose()).collect();
            match changes {
                Ok(changes) => self.deliver(revision_of(&batch[0]), changes),
                Err(error) => return self.end(error),
            }
        }
    }

    fn deliver(&mut self, revision: u64, mut changes: Vec<SourceChange>) {
        self.delivered = revision;
        let update = match changes.pop() {
            None => Update::Progress(revision),
            Some(only) if changes.is_empty() => only.into(),
            Some(last) => {
                changes.push(last);
                Update::Batch(changes)
            }
        };
        self.pending.push_back(Ok(update));
    }

    /// Returns the change of an event; `None` if it is of no object.
    fn change(&self, event: &WatchedEvent) -> Result<Option<SourceChange>, SourceError> {
        let Some(kv) = &event.kv else { return Ok(None) };
        let deleted = || {
            let key = self.keys.object(&kv.key)?.to_owned();
            Some(SourceChange::Deleted { key, revision: unsigned(kv.mod_revision) })
        };
        if event.kind == EVENT_DELETE {
            self.position.note_readable(&kv.key, true);
            return Ok(deleted());
        }
        // An object that cannot be read any more is none: its last version would be stale.
        Ok(self.record(kv)?.map(SourceChange::Put).or_else(deleted))
    }

    /// Returns the object of a key; `None`, and a line in the log, if there is none.
    fn record(&self, kv: &KeyValue) -> Result<Option<SourceRecord>, SourceError> {
        let json = match self.keys.object(&kv.key) {
            Some(_) => read_value(&self.ty, &kv.value)?,
            None => None,
        };
        self.position.note_readable(&kv.key, json.is_some());
        if json.is_none() {
            let key = String::from_utf8_lossy(&kv.key);
            tracing::error!(resource = self.ty.id(), key = &*key, "object skipped");
        }
        Ok(json.map(|json| SourceRecord::Json { json, revision: unsigned(kv.mod_revision) }))
    }

    /// Ends the stream because of the member that it came from.
    fn leave(&mut self, failure: EtcdFailure) {
        if let StreamPhase::Watching(watch) = &self.phase {
            self.client.leave(watch.connection.member);
        }
        self.fail(failure);
    }

    fn fail(&mut self, failure: EtcdFailure) {
        self.end(failure.of_read(self.delivered));
    }

    fn end(&mut self, error: SourceError) {
        self.pending.push_back(Err(error));
        self.phase = StreamPhase::Over;
    }
}

impl Drop for TypeStream {
    /// An ended cache is freed with its last reader.
    fn drop(&mut self) {
        self.position.leave(self.number);
    }
}

impl OpenWatch {
    /// Asks for the position. A full queue has such a request already.
    fn ask(&mut self) {
        let request = WatchStreamRequest { request: Some(WatchStep::Progress(WatchProgressRequest {})) };
        let _ = self.connection.requests.try_send(request);
    }
}

/// Returns the revision to begin at. Fails if values are encrypted now: an older state would be served for ever.
async fn anchor(client: &EtcdClient, ty: &ResourceType, keys: &TypeKeys) -> Result<u64, SourceError> {
    let failed = |failure: EtcdFailure| failure.of_read(0);
    let revision = history::recent(client, keys).await.map_err(failed)?;
    let (key, range_end) = (keys.prefix.clone(), keys.end.clone());
    let any = RangeRequest { key, range_end, limit: 1, ..RangeRequest::default() };
    if let Some(kv) = client.range(any).await.map_err(failed)?.kvs.first() {
        read_value(ty, &kv.value)?;
    }
    Ok(revision)
}

/// Returns the request for the changes after a revision.
pub(super) fn create(keys: &TypeKeys, after: u64) -> WatchStreamRequest {
    let create = WatchCreateRequest {
        key: keys.prefix.clone(),
        range_end: keys.end.clone(),
        start_revision: signed(after.saturating_add(1)),
        progress_notify: true,
        fragment: true,
    };
    WatchStreamRequest { request: Some(WatchStep::Create(create)) }
}

/// Returns the JSON of a stored value; `None` if it is no object.
///
/// # Errors
/// [`SourceError::Forbidden`] if the value is encrypted, or at a version that this server does not read: the type would be
/// served without such objects, and its clients would take them for deleted.
pub(super) fn read_value(ty: &ResourceType, value: &Bytes) -> Result<Option<Bytes>, SourceError> {
    match decode_value(ty, value) {
        Ok(Cow::Borrowed(_)) => Ok(Some(value.clone())),
        Ok(Cow::Owned(json)) => Ok(Some(Bytes::from(json))),
        Err(error @ (StoredValueError::Encrypted { .. } | StoredValueError::OtherType { .. })) => {
            Err(SourceError::Forbidden(error.to_string()))
        }
        Err(error @ StoredValueError::Malformed { .. }) => {
            tracing::error!(resource = ty.id(), %error, "value not readable");
            Ok(None)
        }
    }
}
