//! Reads of one type at the API server: its stream, and lists of its objects' versions.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use informer::{Cluster, raw};
use informer_core::{ListSemantic, proof};
use kube::core::ApiResource;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use watch_cache::Reader;

use super::{
    STREAM_WAIT,
    followed::{FollowedType, StreamState},
    probe::{self, ListedVersions, PROBE_WAIT},
};
use crate::{last_answer::LastAnswer, registry::ResourceType, storage::SourceError};

/// The parts that the reads of all types share.
pub(super) struct UpstreamReads {
    pub(super) cluster: Cluster,
    /// For probes, in order of preference.
    pub(super) clients: Vec<kube::Client>,
    pub(super) last_answer: Arc<LastAnswer>,
    /// Held while a page of a comparison is read: one at a time, whatever the number of types.
    pub(super) compared_pages: Semaphore,
    /// Held for all pages of a type that has more than one: two such types would slow each other down, and change meanwhile.
    pub(super) long_comparison: Semaphore,
}

/// Reads of one type. Cheap to clone.
#[derive(Clone)]
pub(super) struct TypeReads {
    pub(super) ty: Arc<ResourceType>,
    /// Field selector of the cached part; `None` if all of the type is cached.
    pub(super) scope: Option<Arc<str>>,
    pub(super) shared: Arc<UpstreamReads>,
    pub(super) followed: Arc<FollowedType>,
}

impl TypeReads {
    /// Returns the names of the type, for the SDK.
    pub(super) fn resource(&self) -> ApiResource {
        let ty = &self.ty;
        ApiResource {
            group: ty.group.clone(),
            version: ty.version.clone(),
            api_version: ty.api_version().to_owned(),
            kind: ty.kind.clone(),
            plural: ty.plural.clone(),
        }
    }

    /// Declares a stream of the type.
    pub(super) fn raw(&self) -> raw::Builder {
        let raw = self.shared.cluster.raw(&self.resource());
        match &self.scope {
            Some(scope) => raw.fields(&**scope),
            None => raw,
        }
    }

    /// Declares a stream that begins with the newest state, whatever the cache holds. `cache` proves it later.
    pub(super) fn anew(&self, cache: &Reader) -> raw::Builder {
        let raw = self.raw().config(|config| config.list_semantic = ListSemantic::MostRecent);
        raw.witnesses(self.witnesses(cache))
    }

    /// Returns the evidence of a cache for proofs of its history.
    pub(super) fn witnesses(&self, cache: &Reader) -> impl Fn(usize) -> Option<Bytes> + Send + Sync + 'static {
        let (cache, followed) = (cache.clone(), Arc::clone(&self.followed));
        move |requested| {
            if 0 < requested {
                // The newest object was changed, deleted or replaced.
                followed.suspect();
            }
            cached_witness(&cache, requested)
        }
    }

    /// Lists the type's objects without their bodies, at most `limit`.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`] if the API server is behind the stream: it has another history, which is read anew.
    pub(super) async fn list(&self, limit: usize) -> Result<ListedVersions, SourceError> {
        let before = self.followed.state();
        let listed = self.page(limit, None).await?;
        self.check_position(before, listed.revision)?;
        Ok(listed)
    }

    /// Returns the newest revision of the cluster; the stream is at `before`. Cost: the API server looks up one name, whatever
    /// the number of objects. Reads a page of one object instead while the stream is broken, because a kube-apiserver answers
    /// that before its own cache is filled; for a part of a type, because this server's identity may have no right to more;
    /// and from an aggregated API that refuses the selector.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(super) async fn newest_position(&self, before: StreamState) -> Result<u64, SourceError> {
        let is_by_name = before.is_followed() && self.scope.is_none();
        let by_name = match is_by_name {
            true => Some(self.noted(probe::list_none(&self.shared.clients, &self.ty)).await),
            false => None,
        };
        let listed = match by_name {
            None | Some(Err(SourceError::Unsupported(_))) => self.page(1, None).await?,
            Some(listed) => listed?,
        };
        self.check_position(before, listed.revision)?;
        Ok(listed.revision)
    }

    async fn page(&self, limit: usize, token: Option<&str>) -> Result<ListedVersions, SourceError> {
        self.noted(probe::list(&self.shared.clients, &self.ty, self.scope.as_deref(), limit, token)).await
    }

    /// Notes whether the API server has answered.
    async fn noted(
        &self,
        list: impl Future<Output = Result<ListedVersions, SourceError>>,
    ) -> Result<ListedVersions, SourceError> {
        let sent = Instant::now();
        let listed = list.await;
        match &listed {
            Ok(_) => self.shared.last_answer.note(),
            Err(_) if PROBE_WAIT <= sent.elapsed() => self.shared.last_answer.doubt(),
            Err(_) => {}
        }
        listed
    }

    /// Reads a page of a comparison, when it is its turn. Then pauses as long as the read took, so that comparisons use at
    /// most half of the time of one connection.
    pub(super) async fn compared_page(&self, token: Option<&str>) -> Result<ListedVersions, SourceError> {
        let _turn = self.shared.compared_pages.acquire().await.expect("the semaphore is never closed");
        let began = Instant::now();
        let page = self.page(COMPARED_PAGE, token).await;
        sleep(began.elapsed().min(PACE_MAX)).await;
        page
    }

    /// A consistent read that was sent when the stream was at `before` returned `revision`. A lower one than the position is
    /// no delay of the API server: its history is another one.
    pub(super) fn check_position(&self, before: StreamState, revision: u64) -> Result<(), SourceError> {
        if before.position <= revision {
            return Ok(());
        }
        if self.followed.lose(before) {
            let (resource, position) = (self.ty.id(), before.position);
            tracing::warn!(resource, position, found = revision, "upstream history lost");
        }
        Err(SourceError::Unavailable("its history went back".to_owned()))
    }

    /// Waits until the type's stream is complete at `newest`, or proves that it is. Returns false if the API server sends
    /// no position of the type that high.
    ///
    /// # Errors
    /// [`SourceError`] if the stream is not accepted again in time.
    pub(super) async fn reach(&self, newest: u64) -> Result<bool, SourceError> {
        if timeout(STREAM_WAIT, self.followed.passed(newest)).await.is_ok() {
            return Ok(true);
        }
        // Until the API server has accepted the stream, a second watch proves nothing: it may be of another history.
        let is_followed = timeout(RESUME_WAIT, self.followed.wait_for(StreamState::is_followed)).await.is_ok();
        if !is_followed {
            return Err(SourceError::Unavailable("its stream is broken".to_owned()));
        }
        probe::prove(self.raw(), &self.followed, newest).await
    }
}

/// Returns the cached object for a proof after `requested` others proved nothing, as JSON. Cost: one pass over the versions
/// of all objects.
pub(super) fn cached_witness(cache: &Reader, requested: usize) -> Option<Bytes> {
    let snapshot = cache.snapshot();
    let rank = proof::rank(requested, snapshot.objects.len());
    let mut entries: Vec<_> = snapshot.objects.iter().collect();
    if entries.len() <= rank {
        return None;
    }
    let (_, entry, _) = entries.select_nth_unstable_by_key(rank, |entry| std::cmp::Reverse(entry.resource_version()));
    Some(entry.object())
}

/// Longest wait of a read for a broken stream to be accepted again.
const RESUME_WAIT: Duration = Duration::from_secs(2);

/// Longest pause after a page of a comparison.
const PACE_MAX: Duration = Duration::from_secs(1);

/// Objects of one page of a comparison: some 500 KiB from the API server, mostly managedFields.
pub(super) const COMPARED_PAGE: usize = 500;
