//! Compares the keys and versions of a whole type with the API server's, after a resume that is in doubt.
//!
//! A proof reads a few objects. An API server that was restored to an older state, and has written more since than was
//! lost, may pass it: then objects that it lost would stay in the cache for ever, and deletions that it lost too.
//!
//! INVARIANT: the verdict is about one revision: all pages of a list have it, and so has the state of the cache.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use watch_cache::Reader;

use super::{
    followed::StreamState,
    probe::{ListedVersions, PROBE_WAIT},
    reads::{COMPARED_PAGE, TypeReads},
};
use crate::storage::SourceError;

/// Result of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedHistory {
    /// The stream when the comparison began.
    pub(super) seen: StreamState,
    pub(super) verdict: HistoryVerdict,
}

/// Relation of the cached objects to the API server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryVerdict {
    /// The API server has exactly these.
    Same,
    /// It has others.
    Other,
    /// The type changes faster than it can be compared.
    Outrun,
}

/// Reason why a comparison has no result.
enum NoResult {
    /// The state of the list was forgotten, by the API server before its last page or by the cache.
    Outrun,
    /// The API server does not answer, or the stream is broken or slow: reading the type anew would not help either.
    Failed(SourceError),
}

impl From<SourceError> for NoResult {
    fn from(error: SourceError) -> Self {
        if matches!(error, SourceError::Compacted { .. }) { Self::Outrun } else { Self::Failed(error) }
    }
}

/// Compares the cache with the API server until there is a result. Cost: lists of the type's metadata in pages, each when
/// it is its turn among all types; types of several pages are compared one after the other. At most [`RESTARTS_MAX`] more
/// attempts follow one that the type's changes outran: then the type must be read anew. Memory: one page.
pub(super) async fn compare(reads: TypeReads, cache: Reader) -> ComparedHistory {
    let (mut pause, mut restarts) = (RETRY_PAUSE, 0);
    loop {
        let seen = reads.followed.state();
        match attempt(&reads, &cache, seen).await {
            Ok(true) => return ComparedHistory { seen, verdict: HistoryVerdict::Same },
            Ok(false) => return ComparedHistory { seen, verdict: HistoryVerdict::Other },
            Err(NoResult::Outrun) if restarts == RESTARTS_MAX => {
                return ComparedHistory { seen, verdict: HistoryVerdict::Outrun };
            }
            Err(NoResult::Outrun) => restarts += 1,
            Err(NoResult::Failed(error)) => {
                tracing::debug!(resource = reads.ty.id(), %error, delay = ?pause, "comparison repeated");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

async fn attempt(reads: &TypeReads, cache: &Reader, seen: StreamState) -> Result<bool, NoResult> {
    let _turn = match COMPARED_PAGE < cache.snapshot().objects.len() {
        true => Some(reads.shared.long_comparison.acquire().await.expect("the semaphore is never closed")),
        false => None,
    };
    let mut page = reads.compared_page(None).await?;
    if page.revision < seen.position {
        return Ok(false);
    }
    let revision = page.revision;
    // Changes that only the list has are on their way. A quiet type whose position the API server does not send has none.
    if reads.reach(revision).await? {
        let passed = timeout(PROBE_WAIT, async {
            reads.followed.passed(revision).await;
            cache.reached(revision).await
        });
        let is_passed = passed.await.is_ok_and(|reached| reached.is_ok());
        if !is_passed {
            return Err(SourceError::Unavailable("the stream does not reach the list".to_owned()).into());
        }
    }
    let state = cache.at(revision).map_err(|_| NoResult::Outrun)?;
    let mut count = 0;
    loop {
        let Some(listed) = page.count_in(&state.objects) else { return Ok(false) };
        count += listed;
        let Some(token) = page.next_page() else { return Ok(count == state.objects.len()) };
        page = same_list(reads.compared_page(Some(token)).await?, revision)?;
    }
}

/// Refuses a page of another state, with which some API servers continue after the first one is too old.
fn same_list(page: ListedVersions, revision: u64) -> Result<ListedVersions, SourceError> {
    if page.revision == revision { Ok(page) } else { Err(SourceError::Compacted { after: revision }) }
}

/// Pause before a comparison without a result is repeated: doubled each time, up to `RETRY_PAUSE_MAX`.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Attempts that follow one that the type's changes outran.
pub(super) const RESTARTS_MAX: u32 = 3;
