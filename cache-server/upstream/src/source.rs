//! Fills caches from another API server through the SDK's reflector.
//!
//! INVARIANT: one watch per type upstream, whatever the number of readers. INVARIANT: a position is reported as reached
//! only if every change at or below it was delivered: by a later change, a bookmark of the stream, or a proof.
//!
//! A consistent read needs the newest revision R, which a LIST of one name returns. A quiet type's stream does not reach R
//! by itself, so a second, short watch from the stream's position searches for changes: its bookmark B at or above R
//! proves that the stream is complete at B once it has passed the last of them.
//!
//! An empty cache gets its state from another cache-server, if one has it (`peers`), and follows the API server from there.

mod comparison;
mod followed;
mod objects;
mod peers;
mod probe;
mod reads;

use std::{collections::HashMap, ops::RangeInclusive, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use informer::{Cluster, raw::Events};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use watch_cache::Reader;

pub use self::{
    followed::Fitness,
    objects::{PROOF_WAIT, ProvedCache},
    peers::Peers,
};
use self::{
    followed::{FollowedEvents, FollowedType, StreamState},
    peers::StateProof,
    probe::ListedVersions,
    reads::{TypeReads, UpstreamReads, cached_witness},
};
use crate::{
    last_answer::LastAnswer,
    registry::ResourceType,
    storage::{FollowFrom, Source, SourceError, Updates},
};

/// The API server as a source.
pub struct UpstreamSource {
    reads: Arc<UpstreamReads>,
    peers: Peers,
    /// Field selectors of types of which only a part is cached, by type id.
    scopes: HashMap<String, String>,
    /// By type id. One entry per type that was ever followed.
    followed: Mutex<HashMap<String, Arc<FollowedType>>>,
}

impl UpstreamSource {
    /// Reads all types through one client, which must not retry by itself.
    #[must_use]
    pub fn of(client: kube::Client) -> Self {
        Self::new(vec![client], Peers::new(Vec::new()), HashMap::new())
    }

    /// Reads through `clients`: endpoints of one cluster, in order of preference; at least one. `peers` are in front of
    /// the same cluster.
    pub fn new(clients: Vec<kube::Client>, peers: Peers, scopes: HashMap<String, String>) -> Self {
        Self::noting(clients, peers, scopes, Arc::default())
    }

    /// Like [`new`](Self::new). `last_answer` is shared with all requests to the API server.
    pub fn noting(
        clients: Vec<kube::Client>,
        peers: Peers,
        scopes: HashMap<String, String>,
        last_answer: Arc<LastAnswer>,
    ) -> Self {
        let (first, rest) = clients.split_first().expect("an upstream has an address");
        let builder = Cluster::builder(first.clone()).relists_at_once(STATES_AT_ONCE).leave_after(LEAVE_AFTER);
        let cluster = rest.iter().fold(builder, |builder, client| builder.fallback(client.clone())).build();
        let (compared_pages, long_comparison) = (Semaphore::new(1), Semaphore::new(1));
        let reads = Arc::new(UpstreamReads { cluster, clients, last_answer, compared_pages, long_comparison });
        Self { reads, peers, scopes, followed: Mutex::default() }
    }

    /// Time of the API server's last answer. Any request may note its own one, which ends the delays of streams that
    /// have failed.
    pub fn last_answer(&self) -> Arc<LastAnswer> {
        Arc::clone(&self.reads.last_answer)
    }

    /// Waits until it is known whether the API server lets us cache the type. Returns at once after the first time,
    /// unless the answer has changed.
    pub async fn fitness(&self, ty: &ResourceType) -> Fitness {
        self.followed(ty).known_fitness().await
    }

    /// Returns the field selector of the cached part; `None` if all of the type is cached.
    pub fn scope(&self, ty: &ResourceType) -> Option<&str> {
        self.scopes.get(ty.id()).map(String::as_str)
    }

    /// Returns the types of which only a part is cached.
    pub fn scoped_types(&self) -> impl Iterator<Item = &str> {
        self.scopes.keys().map(String::as_str)
    }

    /// Returns a future of the type's cache, proved to hold everything that was committed `max_age` before the call; `None` if
    /// the read is better passed on. The future waits at most 50 ms. Cost: reads share questions of the API server, at most
    /// 200 a second, and at most one for ten reads above 500 a second.
    pub fn proved_cache(
        &self,
        ty: &Arc<ResourceType>,
        max_age: Duration,
    ) -> Option<impl Future<Output = Option<ProvedCache>> + Send + use<>> {
        objects::prove(self.reads(ty), max_age)
    }

    /// False if [`proved_cache`](Self::proved_cache) is of no use: too few reads of all callers call this. Sends
    /// nothing.
    pub fn may_prove(&self, ty: &ResourceType, max_age: Duration) -> bool {
        objects::may_prove(&self.followed(ty), max_age)
    }

    /// Returns false if a list of the newest state is better passed on: the history of a large type is in doubt, and its
    /// comparison has no result within [`DOUBT_WAIT`]. Waits that long at most; sends nothing.
    pub async fn may_list_newest(&self, ty: &ResourceType) -> bool {
        let followed = self.followed(ty);
        let is_compared_by_reads = || followed.cache().is_some_and(|cache| is_small(&cache));
        if !followed.state().is_doubtful() || is_compared_by_reads() {
            return true;
        }
        timeout(DOUBT_WAIT, followed.wait_for(|stream| !stream.is_doubtful())).await.is_ok()
    }

    /// True if the cached state may be of another history than the API server's: lost, in doubt, or in doubt once the
    /// API server accepts a watch again.
    pub fn is_in_doubt(&self, ty: &ResourceType) -> bool {
        let stream = self.followed(ty).state();
        stream.is_lost() || stream.needs_comparison()
    }

    /// True if the API server has another history, whose state is not complete here.
    pub fn is_lost(&self, ty: &ResourceType) -> bool {
        self.followed(ty).state().is_lost()
    }

    /// Like [`is_in_doubt`](Self::is_in_doubt), but false in an outage, however long, if nothing else speaks against
    /// the history.
    pub fn is_suspect(&self, ty: &ResourceType) -> bool {
        self.followed(ty).state().is_suspect()
    }

    /// True if a list of a type in doubt would get a turn now.
    pub fn has_list_turn(&self, ty: &ResourceType, is_page: bool) -> bool {
        self.followed(ty).has_list_turn(is_page)
    }

    /// Returns true if a list of a type in doubt may go to the API server: one whole list a second for each type, and 20 of
    /// its pages.
    pub fn takes_list_turn(&self, ty: &ResourceType, is_page: bool) -> bool {
        self.followed(ty).takes_list_turn(is_page)
    }

    /// Ends the histories of all types: the cluster was replaced by another one.
    pub fn lose_histories(&self) {
        let followed: Vec<_> = self.followed.lock().values().cloned().collect();
        for followed in followed {
            followed.end_history(followed.state());
        }
    }

    fn followed(&self, ty: &ResourceType) -> Arc<FollowedType> {
        let new = || Arc::new(FollowedType::new(self.last_answer()));
        Arc::clone(self.followed.lock().entry(ty.id().to_owned()).or_insert_with(new))
    }

    fn reads(&self, ty: &Arc<ResourceType>) -> TypeReads {
        TypeReads {
            ty: Arc::clone(ty),
            scope: self.scope(ty).map(Arc::from),
            shared: Arc::clone(&self.reads),
            followed: self.followed(ty),
        }
    }

    /// Opens the stream of a type. An empty cache gets the state of a peer, if there is one.
    async fn open(&self, reads: TypeReads, from: FollowFrom, cache: &Reader) -> Result<FollowedEvents, SourceError> {
        let is_empty = from == FollowFrom::Start && cache.applied() == 0;
        if is_empty && let Some(following) = self.open_after_peer(&reads, cache).await? {
            return Ok(following);
        }
        let raw = match from {
            FollowFrom::Start => reads.raw().witnesses(reads.witnesses(cache)),
            FollowFrom::After(position) => reads.raw().resume_from(position.into()).witnesses(reads.witnesses(cache)),
        };
        let events = started(raw)?;
        Ok(FollowedEvents::new(reads, cache.clone(), events, from))
    }

    /// Opens the stream of a type after the state that a peer has; `None` if none has one, or if it cannot be proved.
    async fn open_after_peer(&self, reads: &TypeReads, cache: &Reader) -> Result<Option<FollowedEvents>, SourceError> {
        let Some(state) = self.peers.state(&reads.resource(), reads.scope.as_deref()).await else { return Ok(None) };
        let resource_version = state.revision;
        let resource = reads.ty.id();
        if !state.is_ours && reads.list(1).await.is_ok_and(|newest| newest.revision < resource_version) {
            // Proofs of positions that the API server has not reached take seconds.
            tracing::warn!(resource, resource_version, "peer state refuted");
            return Ok(None);
        }
        let raw = reads.raw().resume_from(resource_version.into());
        let state = Arc::new(Mutex::new(state));
        // Once its objects are taken, the cache has them.
        let (unproved, cached) = (Arc::clone(&state), cache.clone());
        let raw = raw.witnesses(move |requested| {
            unproved.lock().witness(requested).or_else(|| cached_witness(&cached, requested))
        });
        let mut events = started(raw)?;
        let proof = StateProof::of(&mut events).await;
        let objects = state.lock().take();
        let following = FollowedEvents::new(reads.clone(), cache.clone(), events, FollowFrom::Start);
        Ok(match proof {
            StateProof::Proved => {
                tracing::info!(resource, resource_version, "peer state proved");
                Some(following.after_state(objects))
            }
            StateProof::Refuted(first) => {
                tracing::warn!(resource, resource_version, "peer state refuted");
                Some(following.after_event(first))
            }
            StateProof::Unknown => {
                tracing::warn!(resource, resource_version, "peer state not proved");
                None
            }
        })
    }

    /// Returns the newest revision, and sees to it that the type's stream reaches it.
    async fn reach_newest(&self, reads: &TypeReads) -> Result<u64, SourceError> {
        let newest = reads.newest_position(reads.followed.state()).await?;
        reads.reach(newest).await?;
        Ok(newest)
    }

    /// Compares the state of a small type with a list of its objects' versions. Does the same for a larger type if its stream
    /// does not reach the newest revision by itself, and the list is short or the API server does not send the position. Any
    /// other type, and one whose short list fails, must reach the newest revision, and be in no doubt.
    async fn confirm(&self, reads: &TypeReads) -> Result<u64, SourceError> {
        let followed = &reads.followed;
        // Between two streams, the next one may find the history in doubt.
        let Some(cache) = followed.cache() else {
            let newest = self.reach_newest(reads).await?;
            undoubted(followed).await?;
            return Ok(newest);
        };
        if is_small(&cache) {
            return compared(reads, &cache, reads.list(COMPARED_MAX + 1).await?).await;
        }
        let is_comparable = cache.count() <= COMPARED_MUTE_MAX;
        let is_short = is_within(&cache, COMPARED_QUIET_MAX, COMPARED_QUIET_BYTES_MAX);
        let waits_briefly = is_short || is_comparable && (is_uncached(&reads.ty) || followed.is_mute());
        let newest = reads.newest_position(followed.state()).await?;
        // A busy type's stream passes the position by itself, which is cheaper than a list of all versions.
        let is_reached = if waits_briefly {
            timeout(STREAM_WAIT, followed.passed(newest)).await.is_ok()
        } else {
            reads.reach(newest).await?
        };
        if is_reached || !is_comparable {
            undoubted(followed).await?;
            return Ok(newest);
        }
        if !waits_briefly {
            note_mute(reads);
        }
        let most = if is_short { COMPARED_QUIET_MAX } else { COMPARED_MUTE_MAX };
        match reads.list(most + 1).await {
            Ok(listed) => compared(reads, &cache, listed).await,
            // The list is too much for an API server that is overloaded, or reads it from etcd. A watch costs it less.
            Err(error @ SourceError::Unavailable(_)) if sends_position(reads) => {
                // No bookmark in time is no proof that none is ever sent: the API server may be overloaded.
                if !reads.reach(newest).await? {
                    return Err(error);
                }
                undoubted(followed).await?;
                Ok(newest)
            }
            Err(error) => Err(error),
        }
    }
}

/// False if a second watch would prove nothing: the API server sends no position of the type, or has another history.
fn sends_position(reads: &TypeReads) -> bool {
    let followed = &reads.followed;
    !is_uncached(&reads.ty) && !followed.is_mute() && !followed.state().is_lost()
}

fn note_mute(reads: &TypeReads) {
    reads.followed.note_mute();
    tracing::info!(resource = reads.ty.id(), "position of a quiet type not sent");
}

/// Compares the cache with a list of its objects' versions, while its stream continues.
///
/// # Errors
/// [`SourceError::Unavailable`] if the history is in doubt and the comparison of the whole type has no result in time.
async fn compared(reads: &TypeReads, cache: &Reader, listed: ListedVersions) -> Result<u64, SourceError> {
    let followed = &reads.followed;
    // Changes that only the list has are on their way.
    for _ in 0..COMPARISONS {
        let stream = followed.state();
        if stream.is_sound() && listed.revision <= stream.position {
            return Ok(listed.revision);
        }
        let snapshot = cache.snapshot();
        if listed.is_state(&snapshot.objects) {
            return Ok(snapshot.resource_version);
        }
        let _ = timeout(STREAM_WAIT / COMPARISONS, followed.passed(listed.revision)).await;
    }
    reads.reach(listed.revision).await?;
    undoubted(followed).await?;
    Ok(listed.revision)
}

/// Waits until the history is known to be the API server's.
///
/// # Errors
/// [`SourceError::Unavailable`] if the comparison of the whole type has no result within [`DOUBT_WAIT`].
async fn undoubted(followed: &FollowedType) -> Result<(), SourceError> {
    if followed.state().is_sound() {
        return Ok(());
    }
    let sound = timeout(DOUBT_WAIT, followed.wait_for(StreamState::is_sound)).await;
    sound.map_err(|_| SourceError::Unavailable("its history is in doubt".to_owned()))
}

impl Source for UpstreamSource {
    fn skipped(&self, ty: &ResourceType) {
        self.followed(ty).skip();
    }

    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let reads = self.reads(ty);
        async move {
            let followed = Arc::clone(&reads.followed);
            if let Some(pause) = followed.retry_after() {
                sleep(pause).await;
            }
            let following = self.open(reads, from, &cache).await?;
            followed.set_cache(Some(cache));
            let updates = stream::unfold(following, |mut following| async {
                let update = following.next().await?;
                Some((update, following))
            });
            Ok(updates.boxed())
        }
        .boxed()
    }

    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let reads = self.reads(ty);
        async move { self.reach_newest(&reads).await }.boxed()
    }

    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        let reads = self.reads(ty);
        async move { self.confirm(&reads).await }.boxed()
    }

    fn is_doubted_since(&self, ty: &ResourceType, time: Instant) -> bool {
        self.followed(ty).is_doubted_since(time)
    }

    /// Controllers only read what the API server stores.
    fn counts_while_away(&self) -> bool {
        true
    }
}

fn started(raw: informer::raw::Builder) -> Result<Events, SourceError> {
    raw.start().map_err(|error| SourceError::Unsupported(error.to_string()))
}

/// True if the type is compared for each consistent read.
fn is_small(cache: &Reader) -> bool {
    is_within(cache, COMPARED_MAX, COMPARED_BYTES_MAX)
}

/// True if the cache has at most so many objects and bytes of them.
fn is_within(cache: &Reader, objects_max: usize, bytes_max: usize) -> bool {
    let objects = cache.snapshot().objects.clone();
    objects.len() <= objects_max && objects.iter().map(|entry| entry.object().len()).sum::<usize>() <= bytes_max
}

/// True for Events: kube-apiserver does not cache them, and so sends no position of quiet ones, unless
/// `--watch-cache-sizes` names them.
fn is_uncached(ty: &ResourceType) -> bool {
    ty.plural == "events" && matches!(&*ty.group, "" | "events.k8s.io")
}

/// Types whose state is read at the same time. Each is one request that costs the API server most at its start.
const STATES_AT_ONCE: usize = 4;

/// Time for which an address must fail before a stream moves to another one. Shorter than a client's: all readers of the
/// cache wait for its one stream, which is no crowd.
const LEAVE_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3);

/// Time for the stream to reach the newest revision by itself before a second watch is opened.
const STREAM_WAIT: Duration = Duration::from_millis(20);

/// Objects of a type whose state is compared with a list of their metadata: some 100 KiB from the API server for each
/// consistent read that no other one shares. Such a read then takes milliseconds, where a second watch takes seconds.
const COMPARED_MAX: usize = 250;

/// Objects of a type that is compared if its stream does not reach the newest revision within [`STREAM_WAIT`]: it is quiet
/// while others change. kube-apiserver 1.37 lists 1,000 ConfigMaps in 8 ms, with 7 ms of CPU and 500 KB: as much as seven lists
/// of one object, where a second watch takes one to two seconds. 250 cost 2 ms of CPU, and 4,000 would cost 32.
const COMPARED_QUIET_MAX: usize = 1_000;

/// Bytes of these objects: 8 KiB for each, as of [`COMPARED_BYTES_MAX`].
const COMPARED_QUIET_BYTES_MAX: usize = 8 << 20;

/// Objects of a larger type that are compared because the API server does not send the position of a quiet type: of Events,
/// which it does not cache, and of all types before Kubernetes 1.31. It reads such a list from etcd, like each consistent
/// list of its own clients. Here concurrent readers share one.
const COMPARED_MUTE_MAX: usize = 10_000;

/// Bytes of the objects of a small type: a bound of the list, which has no more of each than its metadata.
const COMPARED_BYTES_MAX: usize = 2 << 20;

/// Longest wait of a read for the comparison of a whole type. Shorter than the time of the read, so that its answer has the
/// reason.
const DOUBT_WAIT: Duration = Duration::from_secs(2);

/// Comparisons with one list.
const COMPARISONS: u32 = 4;

#[cfg(test)]
mod tests;
