//! One followed type: the stream that fills its cache, the proofs of completeness that wait for it, and whether it can be
//! cached.
//!
//! INVARIANT: a stream that failed is followed again only once the API server has accepted it, so nothing is proved of its
//! position before. INVARIANT: a history that was lost ends with the stream's next update, and with a whole new state.

mod state;

use std::{mem, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{self, BoxFuture},
};
use informer::{
    Error,
    raw::{Event, Events, Object},
};
use tokio::time::{Instant, sleep};
use watch_cache::Reader;

pub use self::state::Fitness;
pub(super) use self::state::{FollowedType, StreamState};
use super::{
    comparison::{ComparedHistory, HistoryVerdict, RESTARTS_MAX, compare},
    reads::TypeReads,
    started,
};
use crate::storage::{FollowFrom, SourceError, SourceRecord, Update};

/// Turns the SDK's events of one type into updates.
pub(super) struct FollowedEvents {
    followed: Arc<FollowedType>,
    reads: TypeReads,
    /// The cache that the stream fills.
    cache: Reader,
    /// A whole state that comes before the events.
    state: std::vec::IntoIter<Update>,
    /// The first event, if it was received already.
    first: Option<Event>,
    events: Events,
    /// True while a state is being read.
    is_initial: bool,
    /// True if the cache has a state already.
    had_state: bool,
    /// True if the last update completed a whole state.
    has_completed: bool,
    /// True while the state of another history is read.
    reads_anew: bool,
    /// The last error, until the server has confirmed the state again.
    trouble: Option<Trouble>,
    /// The comparison of a history that is in doubt.
    comparison: Option<BoxFuture<'static, ComparedHistory>>,
    is_over: bool,
}

/// An error of a stream.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: Instant,
    /// True if the error came with Retry-After.
    has_retry_after: bool,
}

impl FollowedEvents {
    /// `events` continue at `from`. If the history of the cache was lost before, that is the first update.
    pub(super) fn new(reads: TypeReads, cache: Reader, events: Events, from: FollowFrom) -> Self {
        let followed = Arc::clone(&reads.followed);
        let had_state = match from {
            FollowFrom::Start => {
                followed.begin();
                false
            }
            FollowFrom::After(position) => {
                followed.resume(position);
                true
            }
        };
        Self {
            followed,
            reads,
            cache,
            state: Vec::new().into_iter(),
            first: None,
            events,
            is_initial: false,
            had_state,
            has_completed: false,
            reads_anew: false,
            trouble: None,
            comparison: None,
            is_over: false,
        }
    }

    /// Delivers a whole state before the events, which follow it.
    pub(super) fn after_state(mut self, state: Vec<Update>) -> Self {
        self.state = state.into_iter();
        self
    }

    /// Delivers an event before the others.
    pub(super) fn after_event(mut self, first: Event) -> Self {
        self.first = Some(first);
        self
    }

    /// Returns the next update; `None` if the stream is over. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<Update, SourceError>> {
        // The cacher has applied an update before it requests the next one.
        if mem::take(&mut self.has_completed) {
            self.followed.end_state();
        }
        loop {
            // A loss comes before all else: what follows it here is of the lost history.
            if let Some(update) = self.due() {
                return Some(update);
            }
            if let Some(update) = self.state.next() {
                if let Update::StateBegins = update {
                    self.followed.begin_state();
                } else if let Update::StateComplete(revision) = update {
                    self.complete(revision);
                }
                return Some(Ok(update));
            }
            if let Some(first) = self.first.take() {
                return Some(self.update(first));
            }
            if self.is_over {
                return None;
            }
            let event = tokio::select! {
                event = self.events.next() => event?,
                () = self.followed.changed() => continue,
                result = compared(&mut self.comparison) => {
                    self.conclude(result);
                    continue;
                }
                () = sleep(RECOVERY_CHECK), if self.trouble.is_some() => continue,
            };
            let update = match event {
                Ok(event) => self.update(event),
                Err(error) => Err(self.failed(&error)),
            };
            if let Err(error @ SourceError::Unsupported(_)) = &update {
                self.is_over = true;
                self.followed.set_fitness(Fitness::Unfit(error.clone()));
            }
            return Some(update);
        }
    }

    /// Returns the update that is due without an event of the stream.
    fn due(&mut self) -> Option<Result<Update, SourceError>> {
        if self.is_over {
            return None;
        }
        if self.followed.state().is_lost() && !self.reads_anew {
            return Some(self.read_anew());
        }
        if !self.is_initial
            && let Some(complete) = self.followed.take_proven()
        {
            self.followed.pass(complete);
            return Some(Ok(Update::Progress(complete)));
        }
        if self.trouble.is_some_and(|trouble| self.events.age().is_some_and(|age| age < trouble.since.elapsed())) {
            // A watch was accepted: the state is up to date again, though nothing has changed.
            self.trouble = None;
            self.followed.shared_answer().note();
            self.followed.end_delays(0);
            self.accepted();
            return Some(Ok(Update::Progress(self.followed.state().position)));
        }
        if self.waits_in_vain() {
            // The cacher opens another stream at once, which resumes where this one was.
            self.followed.end_delays(self.followed.ended_delays() + 1);
            self.is_over = true;
            return None;
        }
        if self.had_state && !self.is_initial && !self.reads_anew && self.followed.moved_to(self.events.endpoint()) {
            self.followed.suspect();
        }
        let is_comparable = self.had_state && !self.is_initial && self.comparison.is_none();
        if is_comparable && self.followed.state().needs_comparison() {
            self.comparison = Some(compare(self.reads.clone(), self.cache.clone()).boxed());
        }
        None
    }

    /// Replaces the stream by one that begins with the state of the other history.
    fn read_anew(&mut self) -> Result<Update, SourceError> {
        self.events = started(self.reads.anew(&self.cache))?;
        (self.state, self.first) = (Vec::new().into_iter(), None);
        (self.is_initial, self.reads_anew, self.trouble, self.comparison) = (false, true, None, None);
        Ok(Update::HistoryLost)
    }

    /// The API server has accepted a watch from the stream's position.
    fn accepted(&self) {
        let has_moved = self.followed.moved_to(self.events.endpoint());
        self.followed.accept(has_moved);
    }

    /// Ends a doubt, or the history.
    fn conclude(&mut self, compared: ComparedHistory) {
        self.comparison = None;
        let resource = self.reads.ty.id();
        let position = compared.seen.position;
        match compared.verdict {
            HistoryVerdict::Same => {
                tracing::info!(resource, resource_version = position, "upstream history confirmed");
                self.followed.confirm(compared.seen);
            }
            HistoryVerdict::Other => {
                if self.followed.lose(compared.seen) {
                    tracing::warn!(resource, position, "upstream history refuted");
                }
            }
            HistoryVerdict::Outrun => {
                if self.followed.lose(compared.seen) {
                    tracing::info!(resource, position, restarts = RESTARTS_MAX, "upstream history not comparable");
                }
            }
        }
    }

    /// The stream failed. An object that is skipped is no failure: the stream goes on.
    fn failed(&mut self, error: &Error) -> SourceError {
        if error.skipped().is_some() {
            self.followed.skip();
        } else {
            let has_retry_after = error.retry_after().is_some();
            self.trouble = Some(Trouble { since: Instant::now(), has_retry_after });
            self.followed.fail();
            // A refusal came over a connection that holds.
            if error.code().is_none_or(|code| 500 <= code) {
                self.followed.shared_answer().break_off();
            }
        }
        self.classify(error)
    }

    /// True if the API server has answered any request since the stream failed, but the stream may still be in a delay:
    /// delays grow with each failure, up to a minute.
    fn waits_in_vain(&self) -> bool {
        let Some(trouble) = self.trouble.filter(|trouble| !trouble.has_retry_after) else { return false };
        let is_answered = self.followed.shared_answer().is_after(trouble.since);
        let doublings = self.followed.ended_delays().min(DOUBLINGS_MAX);
        let is_due = RETRY_PAUSE * (1 << doublings) < trouble.since.elapsed();
        self.had_state && !self.is_initial && is_answered && is_due
    }

    fn update(&mut self, event: Event) -> Result<Update, SourceError> {
        Ok(match event {
            Event::Init => {
                self.is_initial = true;
                if self.had_state {
                    // The API server rejected the position, or has other objects.
                    self.followed.suspect();
                }
                self.followed.begin_state();
                Update::StateBegins
            }
            Event::InitApply(object) => Update::Object(object_record(&object)?),
            Event::InitDone(position) => {
                let revision = position.as_u64().ok_or_else(no_number)?;
                self.complete(revision);
                Update::StateComplete(revision)
            }
            Event::InitAbandoned => {
                self.is_initial = false;
                Update::StateAbandoned
            }
            Event::Apply(object) => {
                let record = object_record(&object)?;
                self.pass(object_revision(&object)?);
                Update::Put(record)
            }
            Event::Delete(object) if self.is_initial => Update::Removed(object.key().to_owned()),
            Event::Delete(object) => {
                let revision = object_revision(&object)?;
                self.pass(revision);
                Update::Deleted { key: object.key().to_owned(), revision }
            }
            Event::Bookmark(position) => {
                let revision = position.as_u64().ok_or_else(no_number)?;
                self.pass(revision);
                Update::Progress(revision)
            }
            other => return Err(SourceError::Unavailable(format!("the SDK reports {other:?}"))),
        })
    }

    /// The stream has delivered every change at or below `revision`.
    fn pass(&self, revision: u64) {
        self.followed.pass(revision);
        // After an error, the age of the stream says when a watch was accepted.
        if self.trouble.is_none() && !self.followed.state().is_followed() {
            self.accepted();
        }
    }

    /// A state is complete.
    fn complete(&mut self, revision: u64) {
        (self.is_initial, self.had_state, self.reads_anew, self.comparison) = (false, true, false, None);
        self.has_completed = true;
        self.followed.moved_to(self.events.endpoint());
        self.followed.restart(revision);
        self.followed.set_fitness(Fitness::Fit);
    }

    /// Classifies an error. Only refusals before the first state end the stream; it retries after all others.
    fn classify(&self, error: &Error) -> SourceError {
        let text = error.to_string();
        match error.code() {
            _ if self.had_state => SourceError::Unavailable(text),
            Some(401 | 403 | 404 | 405) => SourceError::Unsupported(text),
            _ => SourceError::Unavailable(text),
        }
    }
}

impl Drop for FollowedEvents {
    /// An ended cache is freed with its last reader. Until the next stream the history counts as broken off.
    fn drop(&mut self) {
        self.followed.set_cache(None);
        self.followed.fail();
    }
}

/// Waits for the result of the comparison; for ever if there is none.
async fn compared(comparison: &mut Option<BoxFuture<'static, ComparedHistory>>) -> ComparedHistory {
    match comparison {
        Some(comparison) => comparison.await,
        None => future::pending().await,
    }
}

pub(super) fn object_record(object: &Object) -> Result<SourceRecord, SourceError> {
    Ok(SourceRecord::Json { json: object.json().clone(), revision: object_revision(object)? })
}

fn object_revision(object: &Object) -> Result<u64, SourceError> {
    object.resource_version().parse().map_err(|_| no_number())
}

pub(super) fn no_number() -> SourceError {
    SourceError::Unsupported("its resourceVersions are no numbers".to_owned())
}

/// Pause between two checks of a stream that has failed: for an accepted watch, or any other answer of the API server.
const RECOVERY_CHECK: Duration = Duration::from_millis(100);

/// Minimum time from the failure of a stream to its next attempt. Doubles with each attempt that fails, because an API
/// server may answer other requests and refuse this watch.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Largest number of doublings, so that the pause reaches 32 s. A stream's own delays grow to a minute.
const DOUBLINGS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use informer::testing::FakeApiServer;
    use serde_json::json;
    use tokio::time::timeout;
    use watch_cache::{Limits, cache};

    use super::*;
    use crate::{
        registry::Registry,
        source::{Peers, UpstreamSource},
    };

    /// Goal: a stream that failed for a while does not wait for the rest of a long delay if the API server is back. Method:
    /// an API server that refuses connections until the delays are long, then an answer to another request.
    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_api_server_ends_the_delay_of_a_stream_that_failed() {
        // Delays have jitter: with this seed the last one is long.
        fastrand::seed(1);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        let server = FakeApiServer::new().put(map);
        let source = UpstreamSource::new(vec![server.client()], Peers::new(Vec::new()), HashMap::new());
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
        let (reads, (_writer, _, reader)) = (source.reads(&ty), cache(Arc::clone(&ty.schema), Limits::default()));
        let (followed, events) = (Arc::clone(&reads.followed), reads.raw().start().expect("a stream"));
        let mut following = FollowedEvents::new(reads, reader, events, FollowFrom::Start);
        while !matches!(following.next().await, Some(Ok(Update::StateComplete(_)))) {}
        followed.shared_answer().note();
        server.refuse_connections().close_watches();
        let mut failures = 0;
        while failures < 16 {
            failures += u32::from(following.next().await.expect("the stream goes on by itself").is_err());
        }
        server.recover();
        assert!(timeout(RETRY_PAUSE * 2, following.next()).await.is_err(), "it waits for more than ten seconds");
        followed.shared_answer().note();
        let ended = timeout(RETRY_PAUSE, following.next()).await;
        assert!(matches!(ended, Ok(None)), "{ended:?}");
        followed.pass(followed.state().position);
        assert_eq!(followed.ended_delays(), 1, "the next stream has not moved yet");
    }

    /// Goal: a long pause between two streams puts the history in doubt, and a loss is reported before anything else.
    /// Method: a stream that ends, and later another one, which continues or starts with a state.
    #[tokio::test(start_paused = true)]
    async fn a_history_that_nobody_followed_is_in_doubt_or_lost() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
        for (pause, is_lost, starts) in
            [(short, false, false), (long, false, false), (short, true, false), (short, true, true)]
        {
            let case = format!("{pause:?}, lost: {is_lost}, starts: {starts}");
            let server = FakeApiServer::new().put(&map);
            let source = UpstreamSource::new(vec![server.client()], Peers::new(Vec::new()), HashMap::new());
            let (reads, (_writer, _, reader)) = (source.reads(&ty), cache(Arc::clone(&ty.schema), Limits::default()));
            let followed = Arc::clone(&reads.followed);
            let mut following = source.open(reads.clone(), FollowFrom::Start, &reader).await.expect("a stream");
            while !matches!(following.next().await, Some(Ok(Update::StateComplete(_)))) {}
            let position = followed.state().position;
            drop(following);
            sleep(pause).await;
            if is_lost {
                assert!(followed.end_history(followed.state()));
            }
            let from = if starts { FollowFrom::Start } else { FollowFrom::After(position) };
            let mut following = source.open(reads, from, &reader).await.expect("a stream");
            assert_eq!(followed.state().needs_comparison(), pause == long, "{case}");
            if is_lost {
                let first = following.next().await;
                assert!(matches!(first, Some(Ok(Update::HistoryLost))), "{case}: {first:?}");
                while !matches!(following.next().await, Some(Ok(Update::StateComplete(_)))) {}
                assert!(followed.state().is_sound(), "{case}");
            }
        }
    }
}
