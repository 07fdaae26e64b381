//! One followed type: the stream's position, the proofs of completeness that wait for it, and whether it can be cached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::{
    Error,
    raw::{Event, Events, Object},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};

use watch_cache::Reader;

use crate::{
    storage::{FollowFrom, SourceError, SourceRecord, Update},
    upstream::last_answer::LastAnswer,
};

/// Whether a type can be cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// No answer yet.
    #[default]
    Unknown,
    /// Its state was read.
    Fit,
    /// The API server does not serve it, does not let us watch it, or its resourceVersions are no numbers.
    Unfit(SourceError),
}

/// State shared by the stream of a type and the probes for it.
#[derive(Default)]
pub(super) struct FollowedType {
    /// Every change at or below it was delivered. Zero before the first state.
    passed: watch::Sender<u64>,
    proofs: Mutex<Vec<CompletenessProof>>,
    proved: Notify,
    last_answer: Arc<LastAnswer>,
    /// Number of delays that were ended early since the stream last moved or was confirmed.
    ended_delays: AtomicU32,
    fitness: watch::Sender<Fitness>,
    unfit_since: Mutex<Option<Instant>>,
    /// The cache that the stream fills.
    cache: Mutex<Option<Reader>>,
    /// Time at which the API server last sent no position of the quiet type.
    mute_since: Mutex<Option<Instant>>,
}

/// Result of a second watch.
#[derive(Clone, Copy, Debug)]
struct CompletenessProof {
    /// Newest change that the second watch saw, or where it began.
    newest_change: u64,
    /// The stream is complete here once it has passed `newest_change`.
    complete: u64,
}

impl FollowedType {
    /// `last_answer` is shared with all requests to the API server.
    pub(super) fn new(last_answer: Arc<LastAnswer>) -> Self {
        Self { last_answer, ..Self::default() }
    }

    pub(super) fn cache(&self) -> Option<Reader> {
        self.cache.lock().clone()
    }

    pub(super) fn set_cache(&self, cache: Reader) {
        *self.cache.lock() = Some(cache);
    }

    /// Returns the position of the stream.
    pub(super) fn position(&self) -> u64 {
        *self.passed.borrow()
    }

    /// Waits until the stream has passed `revision`.
    pub(super) async fn passed(&self, revision: u64) {
        // The sender is part of `self`, so the channel stays open.
        let _ = self.passed.subscribe().wait_for(|passed| revision <= *passed).await;
    }

    /// Adds the result of a second watch.
    pub(super) fn prove(&self, newest_change: u64, complete: u64) {
        let proofs = &mut *self.proofs.lock();
        if PROOFS_MAX <= proofs.len() {
            proofs.remove(0);
        }
        proofs.push(CompletenessProof { newest_change, complete });
        self.proved.notify_one();
    }

    /// Takes the proofs that hold at the stream's position; returns the newest one's, if it is ahead of the stream.
    fn take_proven(&self) -> Option<u64> {
        let passed = self.position();
        let proofs = &mut *self.proofs.lock();
        let proven = proofs.extract_if(.., |proof| proof.newest_change <= passed).map(|proof| proof.complete).max();
        proven.filter(|&complete| passed < complete)
    }

    fn pass(&self, revision: u64) {
        let has_moved = self.passed.send_if_modified(|passed| {
            let is_new = *passed < revision;
            *passed = revision.max(*passed);
            is_new
        });
        if has_moved {
            self.ended_delays.store(0, Ordering::Relaxed);
        }
    }

    /// Resets position and proofs for a new state, which may belong to another history.
    fn restart(&self) {
        self.passed.send_replace(0);
        self.proofs.lock().clear();
    }

    fn set_fitness(&self, fitness: Fitness) {
        *self.unfit_since.lock() = matches!(fitness, Fitness::Unfit(_)).then(Instant::now);
        self.fitness.send_if_modified(|known| {
            let is_new = *known != fitness;
            *known = fitness;
            is_new
        });
    }

    /// Waits for the first answer.
    pub(super) async fn known_fitness(&self) -> Fitness {
        let mut fitness = self.fitness.subscribe();
        let known = fitness.wait_for(|fitness| *fitness != Fitness::Unknown).await;
        known.map_or(Fitness::Unknown, |fitness| fitness.clone())
    }

    /// True if the API server sent no position of the quiet type in the last [`MUTE_WITHIN`].
    pub(super) fn is_mute(&self) -> bool {
        self.mute_since.lock().is_some_and(|since| since.elapsed() < MUTE_WITHIN)
    }

    pub(super) fn note_mute(&self) {
        *self.mute_since.lock() = Some(Instant::now());
    }

    /// Returns the time until a type that cannot be cached may be tried again.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let until = (*self.unfit_since.lock())? + UNFIT_PAUSE;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

/// Turns the SDK's events of one type into updates.
pub(super) struct FollowedEvents {
    followed: Arc<FollowedType>,
    /// A whole state that comes before the events.
    state: std::vec::IntoIter<Update>,
    /// The first event, if it was received already.
    first: Option<Event>,
    events: Events,
    /// True while a state is being read.
    is_initial: bool,
    /// True if the cache has a state already.
    had_state: bool,
    /// The last error, until the server has confirmed the state again.
    trouble: Option<Trouble>,
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
    pub(super) fn new(followed: Arc<FollowedType>, events: Events, from: FollowFrom) -> Self {
        let had_state = match from {
            FollowFrom::Start => false,
            FollowFrom::After(position) => {
                followed.pass(position);
                true
            }
        };
        let (state, first) = (Vec::new().into_iter(), None);
        Self { followed, state, first, events, is_initial: false, had_state, trouble: None, is_over: false }
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
        if self.is_over {
            return None;
        }
        if let Some(update) = self.state.next() {
            if let Update::StateComplete(revision) = update {
                self.complete(revision);
            }
            return Some(Ok(update));
        }
        if let Some(first) = self.first.take() {
            return Some(self.update(first));
        }
        loop {
            if !self.is_initial
                && let Some(complete) = self.followed.take_proven()
            {
                self.followed.pass(complete);
                return Some(Ok(Update::Progress(complete)));
            }
            if self.trouble.is_some_and(|trouble| self.events.age().is_some_and(|age| age < trouble.since.elapsed())) {
                // A watch was accepted: the state is up to date again, though nothing has changed.
                self.trouble = None;
                self.followed.last_answer.note();
                self.followed.ended_delays.store(0, Ordering::Relaxed);
                return Some(Ok(Update::Progress(self.followed.position())));
            }
            if self.waits_in_vain() {
                // The cacher opens another stream at once, which resumes where this one was.
                self.followed.ended_delays.fetch_add(1, Ordering::Relaxed);
                self.is_over = true;
                return None;
            }
            let event = tokio::select! {
                event = self.events.next() => event?,
                () = self.followed.proved.notified() => continue,
                () = sleep(RECOVERY_CHECK), if self.trouble.is_some() => continue,
            };
            let update = match event {
                Ok(event) => self.update(event),
                Err(error) => {
                    let has_retry_after = error.retry_after().is_some();
                    self.trouble = Some(Trouble { since: Instant::now(), has_retry_after });
                    Err(self.classify(&error))
                }
            };
            if let Err(error @ SourceError::Unsupported(_)) = &update {
                self.is_over = true;
                self.followed.set_fitness(Fitness::Unfit(error.clone()));
            }
            return Some(update);
        }
    }

    /// True if the API server has answered any request since the stream failed, but the stream may still be in a delay:
    /// delays grow with each failure, up to a minute.
    fn waits_in_vain(&self) -> bool {
        let Some(trouble) = self.trouble.filter(|trouble| !trouble.has_retry_after) else { return false };
        let is_answered = self.followed.last_answer.is_after(trouble.since);
        let doublings = self.followed.ended_delays.load(Ordering::Relaxed).min(DOUBLINGS_MAX);
        let is_due = RETRY_PAUSE * (1 << doublings) < trouble.since.elapsed();
        self.had_state && !self.is_initial && is_answered && is_due
    }

    fn update(&mut self, event: Event) -> Result<Update, SourceError> {
        Ok(match event {
            Event::Init => {
                self.is_initial = true;
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
                self.followed.pass(object_revision(&object)?);
                Update::Put(record)
            }
            Event::Delete(object) if self.is_initial => Update::Removed(object.key().to_owned()),
            Event::Delete(object) => {
                let revision = object_revision(&object)?;
                self.followed.pass(revision);
                Update::Deleted { key: object.key().to_owned(), revision }
            }
            Event::Bookmark(position) => {
                let revision = position.as_u64().ok_or_else(no_number)?;
                self.followed.pass(revision);
                Update::Progress(revision)
            }
            other => return Err(SourceError::Unavailable(format!("the SDK reports {other:?}"))),
        })
    }

    /// A state is complete.
    fn complete(&mut self, revision: u64) {
        self.is_initial = false;
        self.had_state = true;
        self.followed.restart();
        self.followed.pass(revision);
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
    /// An ended cache is freed with its last reader.
    fn drop(&mut self) {
        *self.followed.cache.lock() = None;
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

/// Proofs that wait for the stream. A stream that does not move leaves one for each probe; only late ones matter.
const PROOFS_MAX: usize = 16;

/// Pause between two checks of a stream that has failed: for an accepted watch, or any other answer of the API server.
const RECOVERY_CHECK: Duration = Duration::from_millis(100);

/// Minimum time from the failure of a stream to its next attempt. Doubles with each attempt that fails, because an API
/// server may answer other requests and refuse this watch.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Largest number of doublings, so that the pause reaches 32 s. A stream's own delays grow to a minute.
const DOUBLINGS_MAX: u32 = 6;

/// Time until a type that cannot be cached is tried again: a definition or a role may have been added.
const UNFIT_PAUSE: Duration = Duration::from_secs(30);

/// Time after which a second watch is tried again at an API server that sent no position: it may have been upgraded.
const MUTE_WITHIN: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use informer::{Cluster, testing::FakeApiServer};
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    /// Goal: a stream that failed for a while does not wait for the rest of a long delay if the API server is back. Method:
    /// an API server that refuses connections until the delays are long, then an answer to another request.
    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_api_server_ends_the_delay_of_a_stream_that_failed() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        let server = FakeApiServer::new().put(map);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let events = Cluster::new(server.client()).raw(&resource).start().expect("a stream");
        let followed = Arc::new(FollowedType::default());
        let mut following = FollowedEvents::new(Arc::clone(&followed), events, FollowFrom::Start);
        while !matches!(following.next().await, Some(Ok(Update::StateComplete(_)))) {}
        followed.last_answer.note();
        server.refuse_connections().close_watches();
        let mut failures = 0;
        while failures < 8 {
            failures += u32::from(following.next().await.expect("the stream goes on by itself").is_err());
        }
        server.recover();
        assert!(timeout(RETRY_PAUSE * 2, following.next()).await.is_err(), "it waits for half a minute");
        followed.last_answer.note();
        let ended = timeout(RETRY_PAUSE, following.next()).await;
        assert!(matches!(ended, Ok(None)), "{ended:?}");
        followed.pass(followed.position());
        assert_eq!(followed.ended_delays.load(Ordering::Relaxed), 1, "the next stream has not moved yet");
    }

    /// Goal: a stream counts as complete only where a second watch proves it. Method: proofs before and after the stream
    /// has passed what the second watch saw, overtaken ones, and a state that begins again.
    #[test]
    fn a_proof_holds_once_the_stream_has_passed_what_it_saw() {
        let followed = FollowedType::default();
        followed.pass(5);
        followed.prove(7, 9);
        assert_eq!(followed.take_proven(), None, "the change at 7 is still on its way");
        followed.pass(7);
        assert_eq!(followed.take_proven(), Some(9));
        followed.pass(9);
        assert_eq!(followed.take_proven(), None, "taken once");
        followed.prove(5, 8);
        assert_eq!(followed.take_proven(), None, "behind the stream");
        followed.prove(9, 12);
        followed.prove(9, 15);
        assert_eq!(followed.take_proven(), Some(15), "the newest one that holds");
        followed.prove(9, 20);
        followed.restart();
        followed.pass(30);
        assert_eq!((followed.take_proven(), followed.position()), (None, 30), "of the state before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_that_cannot_be_cached_is_tried_again_later() {
        let followed = FollowedType::default();
        assert_eq!(followed.retry_after(), None);
        let refused = Fitness::Unfit(SourceError::Unsupported("not found".to_owned()));
        followed.set_fitness(refused.clone());
        assert_eq!((followed.known_fitness().await, followed.retry_after()), (refused, Some(UNFIT_PAUSE)));
        tokio::time::advance(UNFIT_PAUSE).await;
        assert_eq!(followed.retry_after(), Some(Duration::ZERO));
        followed.set_fitness(Fitness::Fit);
        assert_eq!((followed.known_fitness().await, followed.retry_after()), (Fitness::Fit, None));
    }
}
