//! Objects in etcd, laid out as Kubernetes does it, so that several servers share them with their resourceVersions.
//!
//! INVARIANT: a resourceVersion is the revision of etcd, the same for every server of one cluster and prefix. INVARIANT:
//! an object is written or deleted only in a transaction on the revision of its last change. A write whose outcome is
//! unknown is reported as such, and is never repeated. INVARIANT: a position is continued only if etcd has the cached
//! objects at it: an etcd that was restored from a snapshot has another history.
//!
//! Each type has one watch (`stream`), which is asked for its position, or compared with etcd's keys where members are too
//! old for that.
//!
//! Source: `staging/src/k8s.io/apiserver/pkg/storage/etcd3` of kubernetes/kubernetes.

mod batches;
mod client;
mod compactor;
mod connect;
mod failure;
mod history;
mod keys;
mod listing;
mod messages;
mod owner;
mod position;
mod stream;
mod versions;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream as streams};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use watch_cache::{Draft, Entry, Reader};

pub use self::connect::EtcdConfigError;
pub use self::owner::EtcdAccess;
use self::{
    client::EtcdClient,
    failure::EtcdFailure,
    history::HistoryReads,
    keys::TypeKeys,
    listing::{PagedRange, signed, unsigned},
    messages::{
        Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestStep, ResponseStep, TxnRequest,
    },
    position::StreamPosition,
    stream::{StreamStart, TypeStream, read_value},
};
use super::{
    Expect, FollowFrom, ListSnapshot, Source, SourceError, StateRead, Store, StoredState, Txn, Updates, WriteError,
    WriteResult,
};
use crate::{config::EtcdConfig, registry::ResourceType, supervised::SupervisedTasks};

/// Objects in etcd. Needs a tokio runtime.
pub struct EtcdStorage {
    client: Arc<EtcdClient>,
    /// Begins and ends with `/`.
    root: String,
    access: EtcdAccess,
    history: HistoryReads,
    /// Turns of the comparisons of whole types.
    comparisons: Semaphore,
    /// By type id. One entry per type that was ever followed.
    positions: Mutex<HashMap<String, Arc<StreamPosition>>>,
}

/// An etcd that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdOpenError {
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] EtcdConfigError),
    /// No member answered, or the user is refused.
    #[error("etcd at {endpoints} cannot be used: {cause}")]
    Unusable {
        /// The addresses, by commas.
        endpoints: String,
        /// The last failure.
        cause: String,
    },
}

impl EtcdStorage {
    /// Connects, and finds out whether this server may write. Waits up to [`OPEN_WAIT`] for etcd.
    ///
    /// # Errors
    /// [`EtcdOpenError`].
    pub async fn open(config: &EtcdConfig) -> Result<Self, EtcdOpenError> {
        let client = EtcdClient::new(connect::members(config)?, connect::login(config)?);
        let root = keys::root_of(&config.prefix);
        let access = owner::open(&client, &root, config.allow_writes).await.map_err(|failure| {
            EtcdOpenError::Unusable { endpoints: config.endpoints.join(","), cause: failure.to_string() }
        })?;
        versions::check(&client).await;
        let history = HistoryReads::new(Arc::clone(&client));
        let comparisons = Semaphore::new(COMPARISONS_AT_ONCE);
        Ok(Self { client, root, access, history, comparisons, positions: Mutex::default() })
    }

    /// Checks the members again and again, and drops old revisions, until the store is dropped.
    pub fn keep_checking(&self, config: &EtcdConfig, tasks: &Arc<SupervisedTasks>) {
        let client = Arc::downgrade(&self.client);
        let checked = Weak::clone(&client);
        tasks.spawn("etcd-members", move || versions::keep_checking(Weak::clone(&checked)));
        let interval = config.compaction_interval;
        if self.access != EtcdAccess::ReadOnly && !interval.is_zero() {
            tasks.spawn("etcd-compaction", move || compactor::run(Weak::clone(&client), interval));
        }
    }

    /// Returns the rights of this server over the objects.
    pub const fn access(&self) -> EtcdAccess {
        self.access
    }

    fn keys(&self, ty: &ResourceType) -> TypeKeys {
        TypeKeys::new(&self.root, ty)
    }

    fn position(&self, ty: &ResourceType) -> Arc<StreamPosition> {
        Arc::clone(self.positions.lock().entry(ty.id().to_owned()).or_default())
    }

    /// Checks that etcd has the objects of `cache` at `position`, by their keys and revisions, and by the content of the
    /// newest: a restored history may have used a revision again.
    ///
    /// Cost: etcd reads the type once, in pages, and sends its keys. At most [`COMPARISONS_AT_ONCE`] types are compared at the
    /// same time; others wait for their turn.
    async fn check_history(
        &self,
        ty: &ResourceType,
        keys: &TypeKeys,
        position: u64,
        cache: &Reader,
    ) -> Result<(), SourceError> {
        let failed = |failure: EtcdFailure| failure.of_read(position);
        let another = || Err(SourceError::Compacted { after: position });
        let _turn = self.comparisons.acquire().await.expect("the semaphore is never closed");
        let (stream, snapshot) = (self.position(ty), cache.snapshot());
        if snapshot.resource_version != position {
            // Keys of two positions prove nothing.
            return another();
        }
        let is_cached = |kv: &KeyValue| {
            let entry = keys.object(&kv.key).and_then(|object| snapshot.objects.get(object));
            entry.map_or_else(
                || stream.is_unreadable(&kv.key),
                |entry| entry.resource_version() == unsigned(kv.mod_revision),
            )
        };
        let (mut pages, mut found) = (PagedRange::new(Arc::clone(&self.client), keys, position).keys_only(), 0);
        while let Some(page) = pages.next().await.map_err(failed)? {
            found += page.kvs.len();
            if !stream.note_cluster(page.cluster) || !page.kvs.iter().all(is_cached) {
                return another();
            }
        }
        if found != snapshot.objects.len() + stream.unreadable() {
            return another();
        }
        let Some(newest) = snapshot.objects.iter().max_by_key(|entry| entry.resource_version()) else { return Ok(()) };
        let key = keys.key(informer_core::KeyedObject::key(&**newest));
        let witness = RangeRequest { key, revision: signed(position), limit: 1, ..RangeRequest::default() };
        let witness = self.client.range(witness).await.map_err(failed)?;
        if witness.kvs.first().is_some_and(|kv| is_version(ty, kv, newest)) { Ok(()) } else { another() }
    }

    /// Sends a write, and returns its result.
    async fn commit(&self, txn: Txn) -> Result<WriteResult, WriteError> {
        let keys = self.keys(&txn.ty);
        let key = keys.key(&txn.key);
        let expected = match txn.expect {
            Expect::Absent => 0,
            Expect::At(revision) => signed(revision),
        };
        let step = match &txn.put {
            Some(draft) => {
                RequestStep::Put(PutRequest { key: key.clone(), value: Bytes::copy_from_slice(draft.json()) })
            }
            None => RequestStep::Delete(DeleteRangeRequest { key: key.clone(), prev_kv: true }),
        };
        let cause = txn.cause.as_ref().map(|cause| (self.keys(&cause.ty).key(&cause.key), signed(cause.revision)));
        let found = |key| RequestStep::Range(RangeRequest { key, limit: 1, ..RangeRequest::default() }).into();
        let mut request = TxnRequest {
            compare: vec![Compare::mod_revision(key.clone(), expected)],
            success: vec![step.into()],
            failure: vec![found(key)],
        };
        if let Some((key, revision)) = &cause {
            request.compare.push(Compare::mod_revision(key.clone(), *revision));
            request.failure.push(found(key.clone()));
        }
        let answer = self.client.write(request).await.map_err(EtcdFailure::of_write)?;
        let revision = unsigned(answer.header.unwrap_or_default().revision);
        let mut steps = answer.responses.into_iter().map(|op| op.response);
        let step = steps.next().flatten();
        if !answer.succeeded {
            let found = steps.next().flatten().and_then(found_key);
            let stands = cause.is_none_or(|(_, expected)| found.is_some_and(|kv| kv.mod_revision == expected));
            return Err(if stands { refusal(txn.expect, step) } else { WriteError::CauseChanged });
        }
        let entry = match (txn.put, txn.expect) {
            (Some(draft), Expect::Absent) => draft.commit(revision),
            (Some(draft), Expect::At(_)) => draft.commit_update(revision),
            (None, _) => deleted(&txn.ty, step)?,
        };
        Ok(WriteResult { resource_version: revision, entry })
    }
}

/// Returns the reason why a write was refused, from the object that etcd has.
fn refusal(expect: Expect, found: Option<ResponseStep>) -> WriteError {
    match (expect, found.and_then(found_key)) {
        (Expect::Absent, _) => WriteError::Exists,
        (Expect::At(_), None) => WriteError::NotFound,
        (Expect::At(_), Some(kv)) => WriteError::Conflict { current: unsigned(kv.mod_revision) },
    }
}

/// Returns the key that a range of one key found.
fn found_key(step: ResponseStep) -> Option<KeyValue> {
    match step {
        ResponseStep::Range(range) => range.kvs.into_iter().next(),
        ResponseStep::Delete(_) => None,
    }
}

/// Returns the last version of a deleted object.
fn deleted(ty: &ResourceType, step: Option<ResponseStep>) -> Result<Arc<Entry>, WriteError> {
    let last = match step {
        Some(ResponseStep::Delete(deleted)) => deleted.prev_kvs.into_iter().next(),
        Some(ResponseStep::Range(_)) | None => None,
    };
    let last = last.and_then(|kv| entry(ty, &kv).transpose()).transpose()?;
    // The caller has read this version, so it was an object then.
    last.ok_or_else(|| SourceError::Unavailable("the deleted object cannot be read".to_owned()).into())
}

/// Returns the object of a key; `None` if it is none.
fn entry(ty: &ResourceType, kv: &KeyValue) -> Result<Option<Arc<Entry>>, SourceError> {
    let Some(json) = read_value(ty, &kv.value)? else { return Ok(None) };
    let draft = Draft::new(&ty.schema, &json);
    let draft = draft.inspect_err(|error| tracing::error!(resource = ty.id(), %error, "object skipped"));
    Ok(draft.ok().map(|draft| draft.commit(unsigned(kv.mod_revision))))
}

/// True if a key has this version of an object.
fn is_version(ty: &ResourceType, kv: &KeyValue, cached: &Entry) -> bool {
    let json = read_value(ty, &kv.value).ok().flatten();
    let draft = json.and_then(|json| Draft::new(&ty.schema, &json).ok());
    unsigned(kv.mod_revision) == cached.resource_version() && draft.is_some_and(|draft| draft.same_content(cached))
}

impl Source for EtcdStorage {
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let (ty, keys, position) = (Arc::clone(ty), self.keys(ty), self.position(ty));
        async move {
            if let FollowFrom::After(after) = from {
                self.check_history(&ty, &keys, after, &cache).await?;
            }
            let begin = match from {
                FollowFrom::After(after) => StreamStart::After(after),
                FollowFrom::Start if cache.applied() == 0 => StreamStart::WithHistory,
                FollowFrom::Start => StreamStart::Newest,
            };
            let following = TypeStream::new(Arc::clone(&self.client), ty, keys, position, cache, begin);
            let updates = streams::unfold(following, |mut following| async {
                let update = following.next().await?;
                Some((update, following))
            });
            Ok(updates.boxed())
        }
        .boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let (keys, stream) = (self.keys(ty), self.position(ty));
        async move {
            let before = stream.of_cache();
            let header = history::newest(&self.client, &keys).await.map_err(|failure| failure.of_read(0))?;
            let newest = unsigned(header.revision);
            if !stream.has_history(before, newest, header.cluster_id) {
                return Err(SourceError::Restored { newest });
            }
            stream.want(newest);
            Ok(newest)
        }
        .boxed()
    }

    /// The identity of the cluster that answered last.
    fn history(&self) -> Option<u64> {
        self.client.cluster()
    }

    fn read_at(&self, ty: &Arc<ResourceType>, read: StateRead) -> BoxFuture<'_, Result<StoredState, SourceError>> {
        let (ty, keys) = (Arc::clone(ty), self.keys(ty));
        async move { self.history.read(&ty, &keys, read).await }.boxed()
    }
}

impl Store for EtcdStorage {
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>> {
        let ty = Arc::clone(ty);
        let mut pages = PagedRange::new(Arc::clone(&self.client), &self.keys(&ty), 0);
        async move {
            let failed = |failure: EtcdFailure| failure.of_read(0);
            let first = pages.next().await.map_err(failed)?;
            let resource_version = first.as_ref().map_or(0, |page| page.revision);
            let entries = streams::try_unfold((pages, first, ty), move |(mut pages, ready, ty)| async move {
                let page = match ready {
                    Some(page) => Some(page),
                    None => pages.next().await.map_err(failed)?,
                };
                let Some(page) = page else { return Ok(None) };
                let entries: Vec<_> = page.kvs.iter().filter_map(|kv| entry(&ty, kv).transpose()).collect();
                Ok(Some((streams::iter(entries), (pages, None, ty))))
            });
            let entries = futures::TryStreamExt::try_flatten(entries).boxed();
            Ok(ListSnapshot { resource_version, entries })
        }
        .boxed()
    }

    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>> {
        if self.access == EtcdAccess::ReadOnly {
            return std::future::ready(Err(SourceError::ReadOnly.into())).boxed();
        }
        self.commit(txn).boxed()
    }
}

/// Types whose keys are compared at the same time. After an outage of etcd all types resume at once, and etcd reads every
/// value for that.
const COMPARISONS_AT_ONCE: usize = 4;

/// Time for which a starting server waits for etcd.
pub const OPEN_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::time::sleep;
    use tonic::transport::Endpoint;
    use watch_cache::{Limits, cache};

    use super::{client::EtcdMember, *};
    use crate::{limits::RESTART_PAUSE_MAX, registry::Registry};

    /// A store whose etcd does not answer.
    fn unanswered(access: EtcdAccess) -> EtcdStorage {
        let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let client = EtcdClient::new(vec![EtcdMember::new("http://127.0.0.1:1".to_owned(), channel)], None);
        let (root, history) = ("/registry/".to_owned(), HistoryReads::new(Arc::clone(&client)));
        let (comparisons, positions) = (Semaphore::new(1), Mutex::default());
        EtcdStorage { client, root, access, history, comparisons, positions }
    }

    /// Goal: a cache is continued only from the position of its objects. Method: one that has none, and positions; etcd does not
    /// answer, so that nothing else decides.
    #[tokio::test]
    async fn a_cache_at_another_position_has_another_history() {
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
        let (_writer, _waker, reader) = cache(Arc::clone(&ty.schema), Limits::default());
        let followed = unanswered(EtcdAccess::ReadOnly).follow(&ty, FollowFrom::After(9), reader).await.map(drop);
        assert!(matches!(followed, Err(SourceError::Compacted { after: 9 })), "{followed:?}");
    }

    /// Goal: a panic ends neither the checks of the members nor the compactions, and names them. Method: the tasks of each
    /// kind of access panic.
    #[tokio::test(start_paused = true)]
    async fn tasks_of_the_store_that_panic_are_named_and_go_on() {
        for (access, expected) in
            [(EtcdAccess::Owner, &["etcd-compaction", "etcd-members"][..]), (EtcdAccess::ReadOnly, &["etcd-members"])]
        {
            let (store, tasks) = (unanswered(access), Arc::<SupervisedTasks>::default());
            store.keep_checking(&EtcdConfig::default(), &tasks);
            sleep(Duration::from_millis(1)).await;
            tasks.break_all();
            sleep(Duration::from_millis(1)).await;
            let failing = tasks.failing();
            let names: Vec<_> = failing.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, expected, "{access:?}");
            sleep(2 * RESTART_PAUSE_MAX).await;
            assert_eq!(tasks.failing(), [], "{access:?}");
        }
    }
}
