//! A store whose custom resources a webhook converts: each version but the stored one is a type with a cache of its own, which
//! follows the stored objects through the webhook.
//!
//! INVARIANT: a converted object has the resourceVersion of the stored one, and the history of a version the positions of the
//! stored history. INVARIANT: no object is served that was not converted: while the webhook fails, the cache of its version
//! stays behind, and reads of it fail with its reason. INVARIANT: a write that waits for a webhook has no permits, so that
//! the webhooks of one type delay no other type.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/conversion`.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use api_rules::object::{
    draft,
    weight::{self, Size},
};
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, Fuse},
};
use object_rules::{
    limits::{CONVERSION_PAUSE, CONVERSION_TIME, CONVERTED_AT_ONCE, CONVERTED_BYTES, WEBHOOK_ANSWER_BYTES_MAX},
    webhooks::{
        answer,
        conversion::{ConversionQuestion, ConversionWebhook},
    },
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use watch_cache::{Entry, Reader};

use super::client::WebhookClient;
use crate::{
    budget::{WaitingMemory, current_turn},
    config::Config,
    ids,
    registry::{Converter, Object, ResourceType},
    storage::{
        FollowFrom, ListSnapshot, Source, SourceChange, SourceError, SourceRecord, Store, StoreFork, Txn, Update,
        Updates, WriteError, WriteResult,
    },
};

/// Returns the store with conversions if the server acts as a cluster, else itself.
pub(crate) fn over(config: &Config, store: Arc<dyn Store>) -> Arc<dyn Store> {
    if config.acts_as_cluster { Arc::new(ConvertingStore::new(store, config.object_bytes_max)) } else { store }
}

/// Converts objects of one version to another one; `None` if no webhook does.
///
/// # Errors
/// [`SourceError::Conversion`].
pub(crate) async fn convert(
    from: &ResourceType,
    to: &ResourceType,
    objects: &[Object],
) -> Result<Option<Vec<Object>>, SourceError> {
    let by = |ty: &ResourceType| ty.converter.as_ref().map(|converter| ConnectedConverter::of(ty, converter));
    let Some(webhook) = by(from).or_else(|| by(to)).filter(|_| from.api_version() != to.api_version()) else {
        return Ok(None);
    };
    webhook.convert(from, to, objects).await.map(Some)
}

/// Waits for `others` without the permits of the write that runs here, if one does. `size` measures what it decodes then.
async fn aside<T>(
    memory: WaitingMemory,
    others: impl Future<Output = T>,
    size: impl FnOnce(&T) -> Size,
) -> Result<T, SourceError> {
    let Some((turn, work)) = current_turn() else { return Ok(others.await) };
    work.wait(&turn, memory, others, size).await.map_err(|_| SourceError::Crowded)
}

/// A store that knows the versions of custom resources.
struct ConvertingStore {
    inner: Arc<dyn Store>,
    /// Bytes of a stored object.
    object_bytes_max: usize,
    /// Progress of each version, by [`ResourceType::cache_id`], as long as its stream or a reader has it.
    versions: Mutex<HashMap<String, Weak<VersionState>>>,
}

/// Progress of the conversion to a version, shared by its stream and its readers.
#[derive(Default)]
struct VersionState {
    progress: watch::Sender<ConversionProgress>,
    /// Wakes the stream between two attempts: a reader waits.
    wake: Notify,
}

#[derive(Default)]
struct ConversionProgress {
    /// Position up to which objects are converted.
    position: u64,
    /// Attempts to convert so far, including the present one.
    begun: u64,
    /// Why the next objects are not converted, and the attempt that found it.
    failure: Option<(u64, String)>,
}

impl ConversionProgress {
    /// Returns the position if all objects up to it are converted, or the failure of an attempt after those that had `begun`.
    fn decided(&self, position: u64, begun: u64) -> Option<Result<u64, SourceError>> {
        match &self.failure {
            _ if position <= self.position => Some(Ok(position)),
            Some((attempt, failure)) if begun < *attempt => Some(Err(SourceError::Conversion(failure.clone()))),
            _ => None,
        }
    }
}

/// A webhook, and the connections to it.
struct ConnectedConverter {
    webhook: ConversionWebhook,
    client: WebhookClient,
}

impl ConnectedConverter {
    fn of(ty: &ResourceType, converter: &Converter) -> Arc<Self> {
        ty.derived.get_or_make(|| {
            let webhook = ConversionWebhook::read(&converter.webhook);
            let client = WebhookClient::at(&webhook.address, &webhook.authorities, CONVERSION_TIME);
            Self { webhook, client }
        })
    }

    /// Converts objects.
    ///
    /// # Errors
    /// [`SourceError::Conversion`].
    async fn convert(
        &self,
        from: &ResourceType,
        to: &ResourceType,
        objects: &[Object],
    ) -> Result<Vec<Object>, SourceError> {
        let uid = ids::uuid().to_string();
        let question = ConversionQuestion { uid: &uid, from, to, objects };
        let sent = self.webhook.question(&question).map_err(SourceError::Conversion)?;
        let memory = WaitingMemory { documents: weight::of_json(&sent), questions: sent.len(), calls: 1 };
        let turn = current_turn();
        let post = self.client.post(sent, WEBHOOK_ANSWER_BYTES_MAX, turn.as_ref().map(|(_, work)| work));
        let answer =
            aside(memory, post, |answer| answer.as_ref().map_or(Size::Small(0), |answer| answer::size(&answer.bytes)));
        let answer = answer
            .await?
            .map_err(|failure| SourceError::Conversion(question.failed(&format!("failed: {}", failure.reason))))?;
        self.webhook.answer(&question, &answer.bytes).map_err(SourceError::Conversion)
    }
}

impl ConvertingStore {
    fn new(inner: Arc<dyn Store>, object_bytes_max: usize) -> Self {
        Self { inner, object_bytes_max, versions: Mutex::default() }
    }

    fn state(&self, ty: &ResourceType) -> Arc<VersionState> {
        let versions = &mut *self.versions.lock();
        if let Some(state) = versions.get(ty.cache_id()).and_then(Weak::upgrade) {
            return state;
        }
        versions.retain(|_, state| state.strong_count() > 0);
        let state = Arc::default();
        versions.insert(ty.cache_id().to_owned(), Arc::downgrade(&state));
        state
    }

    /// Writes an object of a version that is not the stored one.
    async fn write_converted(&self, mut txn: Txn, converter: &Converter) -> Result<WriteResult, WriteError> {
        let ty = std::mem::replace(&mut txn.ty, Arc::clone(&converter.stored));
        let webhook = ConnectedConverter::of(&ty, converter);
        let Some(put) = txn.put.take() else { return self.inner.write(txn).await };
        let sent = [without_version(&put.commit(0))?];
        let stored = webhook.convert(&ty, &txn.ty, &sent).await?.pop().unwrap_or_default();
        let unfit = |_| SourceError::Conversion("a webhook's object cannot be stored".to_owned());
        let draft = draft::bounded_draft(&txn.ty, &stored, self.object_bytes_max);
        txn.put = Some(draft.map_err(|status| match status.code {
            413 => SourceError::TooLarge(status.message),
            _ => unfit(status),
        })?);
        let WriteResult { resource_version, entry } = self.inner.write(txn).await?;
        let object = [decoded(entry.object_text())?];
        let shown = webhook.convert(&converter.stored, &ty, &object).await;
        let shown = shown.map_err(|error| {
            if let SourceError::Crowded = error { SourceError::Undecided(error.to_string()) } else { error }
        });
        let shown = shown?.pop().unwrap_or_default();
        let shown = draft::draft(&ty, &shown).map_err(unfit)?;
        Ok(WriteResult { resource_version, entry: shown.commit_update(resource_version) })
    }
}

fn decoded(text: &[u8]) -> Result<Object, SourceError> {
    serde_json::from_slice(text).map_err(|_| SourceError::Unavailable("a stored object cannot be read".to_owned()))
}

/// The object of a write, which has no version yet.
fn without_version(entry: &Entry) -> Result<Object, SourceError> {
    let mut object = decoded(entry.object_text())?;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    Ok(object)
}

impl Source for ConvertingStore {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let Some(converter) = ty.converter.clone() else { return self.inner.follow(ty, from, cache) };
        let (ty, state) = (Arc::clone(ty), self.state(ty));
        async move {
            let stored = self.inner.follow(&converter.stored, from, cache).await?.fuse();
            let webhook = ConnectedConverter::of(&ty, &converter);
            let version = ConvertedVersion { ty, converter, webhook };
            Ok(VersionStream { stored, version, state, failed: None }.updates())
        }
        .boxed()
    }

    fn skipped(&self, ty: &ResourceType) {
        self.inner.skipped(ty);
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.inner.current(ResourceType::stored_as(ty))
    }

    /// For a converted version, waits until its objects are converted so far, or until an attempt fails that began after the
    /// call.
    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        if ty.converter.is_none() {
            return self.inner.confirmed(ty);
        }
        let (stored, state) = (Arc::clone(ResourceType::stored_as(ty)), self.state(ty));
        async move {
            let position = self.inner.confirmed(&stored).await?;
            let mut progress = state.progress.subscribe();
            let begun = progress.borrow().begun;
            let decided = async {
                loop {
                    state.wake.notify_one();
                    if let Some(decided) = progress.borrow_and_update().decided(position, begun) {
                        return decided;
                    }
                    // `state` has the sender.
                    let _ = progress.changed().await;
                }
            };
            if position <= state.progress.borrow().position {
                return Ok(position);
            }
            aside(WaitingMemory::default(), decided, |_| Size::Small(0)).await?
        }
        .boxed()
    }

    fn counts_while_away(&self) -> bool {
        self.inner.counts_while_away()
    }

    fn is_known(&self, position: u64) -> bool {
        self.inner.is_known(position)
    }

    fn newest(&self) -> Option<u64> {
        self.inner.newest()
    }

    fn history(&self) -> Option<u64> {
        self.inner.history()
    }
}

impl Store for ConvertingStore {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        self.inner.list(ResourceType::stored_as(ty))
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        match txn.ty.converter.clone() {
            None => self.inner.write(txn),
            Some(converter) => async move { self.write_converted(txn, &converter).await }.boxed(),
        }
    }

    fn refuses(&self) -> Option<SourceError> {
        self.inner.refuses()
    }

    fn fork(&self) -> Option<StoreFork> {
        let fork = self.inner.fork()?;
        Some(StoreFork { store: Arc::new(Self::new(fork.store, self.object_bytes_max)), ..fork })
    }
}

/// A version whose objects are made from the stored ones.
struct ConvertedVersion {
    ty: Arc<ResourceType>,
    converter: Arc<Converter>,
    webhook: Arc<ConnectedConverter>,
}

/// A stream of the history of a version, from the stored one.
struct VersionStream {
    /// Fused: it is polled once more after it ended behind other updates.
    stored: Fuse<Updates>,
    version: ConvertedVersion,
    state: Arc<VersionState>,
    /// Updates that the webhook did not convert.
    failed: Option<Vec<Result<Update, SourceError>>>,
}

impl VersionStream {
    fn updates(self) -> Updates {
        let parts = stream::unfold(self, |mut this| async move { Some((stream::iter(this.next().await?), this)) });
        parts.flatten().boxed()
    }

    /// Returns the next updates; the failure, if they are not converted.
    async fn next(&mut self) -> Option<Vec<Result<Update, SourceError>>> {
        let updates = match self.failed.take() {
            Some(updates) => {
                // The time is over if there is no reader that waits.
                let _ = timeout(CONVERSION_PAUSE, self.state.wake.notified()).await;
                updates
            }
            None => self.arrived().await?,
        };
        let progress = &self.state.progress;
        progress.send_modify(|progress| progress.begun += 1);
        match self.version.converted(&updates).await {
            Ok(converted) => {
                let position = updates.iter().flatten().filter_map(position).max();
                progress.send_modify(|progress| {
                    progress.position = progress.position.max(position.unwrap_or_default());
                    progress.failure = None;
                });
                Some(converted)
            }
            Err(error) => {
                let reason =
                    if let SourceError::Conversion(reason) = &error { reason.clone() } else { error.to_string() };
                progress.send_modify(|progress| progress.failure = Some((progress.begun, reason)));
                self.failed = Some(updates);
                Some(vec![Err(error)])
            }
        }
    }

    /// Waits for updates, and returns those that are there.
    async fn arrived(&mut self) -> Option<Vec<Result<Update, SourceError>>> {
        let mut arrived = Vec::new();
        arrived.push(self.stored.next().await?);
        while arrived.len() < CONVERTED_AT_ONCE
            && let Some(Some(update)) = self.stored.next().now_or_never()
        {
            arrived.push(update);
        }
        Some(arrived)
    }
}

impl ConvertedVersion {
    async fn converted(
        &self,
        updates: &[Result<Update, SourceError>],
    ) -> Result<Vec<Result<Update, SourceError>>, SourceError> {
        let stored: Vec<_> = updates.iter().flatten().flat_map(records).collect();
        let mut converted = self.objects(&stored).await?.into_iter();
        let rewritten = updates.iter().cloned().flat_map(|update| match update {
            Ok(update) => rewritten(update, &mut converted).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        });
        Ok(rewritten.collect())
    }

    /// Returns the converted objects, in parts that a question holds.
    async fn objects(&self, stored: &[SourceRecord]) -> Result<Vec<SourceRecord>, SourceError> {
        let (mut converted, mut rest) = (Vec::with_capacity(stored.len()), stored);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&SourceRecord| {
                let is_first = bytes == 0;
                bytes += text(record).len();
                is_first || bytes <= CONVERTED_BYTES
            };
            let (part, behind) = rest.split_at(rest.iter().take(CONVERTED_AT_ONCE).take_while(fits).count());
            let objects: Vec<_> = part.iter().map(|record| decoded(&text(record))).collect::<Result<_, _>>()?;
            let objects = self.webhook.convert(&self.converter.stored, &self.ty, &objects).await?;
            converted.extend(part.iter().zip(objects).map(|(record, object)| SourceRecord::Json {
                json: serde_json::to_vec(&object).unwrap_or_default().into(),
                revision: revision(record),
            }));
            rest = behind;
        }
        Ok(converted)
    }
}

fn text(record: &SourceRecord) -> Bytes {
    match record {
        SourceRecord::Entry(entry) => entry.object(),
        SourceRecord::Json { json, .. } => json.clone(),
    }
}

fn revision(record: &SourceRecord) -> u64 {
    match record {
        SourceRecord::Entry(entry) => entry.resource_version(),
        SourceRecord::Json { revision, .. } => *revision,
    }
}

/// The objects of an update, in order.
fn records(update: &Update) -> Vec<SourceRecord> {
    match update {
        Update::State { objects, .. } => objects.iter().cloned().map(SourceRecord::Entry).collect(),
        Update::Object(record) | Update::Put(record) => vec![record.clone()],
        Update::Batch(changes) => {
            let put = |change: &SourceChange| match change {
                SourceChange::Put(record) => Some(record.clone()),
                SourceChange::Deleted { .. } => None,
            };
            changes.iter().filter_map(put).collect()
        }
        Update::StateBegins
        | Update::Removed(_)
        | Update::StateComplete(_)
        | Update::StateAbandoned
        | Update::HistoryLost
        | Update::Deleted { .. }
        | Update::Progress(_) => Vec::new(),
    }
}

/// The update with converted objects, as many as [`records`] has.
fn rewritten(update: Update, converted: &mut impl Iterator<Item = SourceRecord>) -> Vec<Update> {
    match update {
        Update::State { objects, revision } => {
            let objects = converted.take(objects.len()).map(Update::Object);
            let updates = [Update::StateBegins].into_iter().chain(objects);
            updates.chain([Update::StateComplete(revision)]).collect()
        }
        Update::Object(_) => converted.next().map(Update::Object).into_iter().collect(),
        Update::Put(_) => converted.next().map(Update::Put).into_iter().collect(),
        Update::Batch(changes) => {
            let changes = changes.into_iter().filter_map(|change| match change {
                SourceChange::Put(_) => converted.next().map(SourceChange::Put),
                deleted @ SourceChange::Deleted { .. } => Some(deleted),
            });
            vec![Update::Batch(changes.collect())]
        }
        other @ (Update::StateBegins
        | Update::Removed(_)
        | Update::StateComplete(_)
        | Update::StateAbandoned
        | Update::HistoryLost
        | Update::Deleted { .. }
        | Update::Progress(_)) => vec![other],
    }
}

/// The position that a reader has after an update.
fn position(update: &Update) -> Option<u64> {
    match update {
        Update::State { revision, .. }
        | Update::StateComplete(revision)
        | Update::Progress(revision)
        | Update::Deleted { revision, .. } => Some(*revision),
        Update::Put(record) => Some(revision(record)),
        Update::Batch(changes) => changes.iter().map(revision_of).max(),
        Update::StateBegins | Update::Object(_) | Update::Removed(_) | Update::StateAbandoned | Update::HistoryLost => {
            None
        }
    }
}

fn revision_of(change: &SourceChange) -> u64 {
    match change {
        SourceChange::Put(record) => revision(record),
        SourceChange::Deleted { revision, .. } => *revision,
    }
}
