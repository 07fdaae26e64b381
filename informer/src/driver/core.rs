//! The pure half of a driver: takes frames, returns orders. Does no I/O.

use std::{collections::BTreeSet, time::Duration};

use super::sink::{self, Sink};
use crate::{
    delays::Delays,
    error::{Chain, Error, Kind},
    labels,
    progress::{ConfirmedTime, InitialPhase, Outlet},
    stats::Strategy,
};
use informer_core::{
    Read, Request, ResourceVersion, Time, limits,
    object::Meta,
    reflector::{self, Action, Change, Input, Observed, ProofBy, Reflector, Report, Verdict},
    wire::{
        framer::{Frame, FrameError, Skipped},
        marks,
        status::Status,
        watch_event::EventKind,
    },
};

/// The reflector's last order.
pub(super) enum LastOrder {
    Send(Read),
    Prove { at: ResourceVersion, by: ProofBy, skip: usize },
    Close,
}

pub(super) struct Core<S> {
    // Name of the type, for logs.
    resource: String,
    verdict: Verdict,
    reflector: Reflector,
    sink: S,
    progress: Outlet,
    order: Option<LastOrder>,
    // Set before `order`: the reflector refuses the endpoint it was just moved to.
    refused: bool,
    // True if the request in flight, or the next one, reads initial state that is not complete.
    is_initial: bool,
    // True once a state was complete, or restored and proven.
    is_synced: bool,
    // A frame arrived since the last `publish`.
    confirmed: bool,
    list_ended: bool,
    // A request timed out without headers.
    unanswered: bool,
    // Some(true): the first object arrived and its latency is not recorded yet; Some(false): recorded.
    first_object: Option<bool>,
    bytes_received: u64,
    unreadable: UnreadableObjects,
    // Objects the framer skipped.
    skipped: u64,
    // Key of the current object; kept to reuse its allocation.
    key: String,
}

/// The object just received, for the orders the reflector gives about it.
#[derive(Clone, Copy)]
struct ReceivedObject<'a> {
    // For a skipped object, JSON of its names only.
    json: &'a [u8],
    meta: &'a Meta<'a>,
    // Why the object was skipped.
    skipped: Option<&'a Error>,
}

/// Objects without a name (left out), without a position (kept) or skipped. Logs each key once and remembers at most
/// [`UNREADABLE_TOLD_MAX`] keys.
#[derive(Default)]
struct UnreadableObjects {
    /// Number of objects left out.
    count: u64,
    told: BTreeSet<String>,
}

impl UnreadableObjects {
    /// Returns true for a key not logged before, while there is room to remember it.
    fn is_new(&mut self, key: &str) -> bool {
        let key = logged(key);
        self.told.len() < UNREADABLE_TOLD_MAX && !self.told.contains(key) && self.told.insert(key.to_owned())
    }
}

/// Number of unreadable objects logged by name. Further ones are only counted.
const UNREADABLE_TOLD_MAX: usize = 64;

/// Longest key that is logged, in bytes: namespace, slash, name. A longer key is not a valid name.
const KEY_TOLD_BYTES_MAX: usize = 63 + 1 + 253;

/// Returns the key as it is logged: empty above [`KEY_TOLD_BYTES_MAX`].
const fn logged(key: &str) -> &str {
    if key.len() <= KEY_TOLD_BYTES_MAX { key } else { "" }
}

impl<S: Sink> Core<S> {
    pub(super) fn new(
        config: reflector::Config,
        delays: Option<Box<dyn Delays>>,
        sink: S,
        progress: Outlet,
        resource: &str,
    ) -> Self {
        Self {
            resource: resource.to_owned(),
            verdict: config.verdict,
            reflector: match delays {
                Some(delays) => Reflector::with_delays(config, delays),
                None => Reflector::new(config),
            },
            sink,
            progress,
            order: None,
            refused: false,
            is_initial: true,
            is_synced: false,
            confirmed: false,
            list_ended: false,
            unanswered: false,
            first_object: None,
            bytes_received: 0,
            unreadable: UnreadableObjects::default(),
            skipped: 0,
            key: String::new(),
        }
    }

    /// Handles one complete frame.
    ///
    /// # Errors
    /// The error the frame carries, or `Malformed` if the frame is not part of the protocol.
    pub(super) fn on_frame(&mut self, now: Time, frame: Frame<'_>) -> Result<(), Kind> {
        match frame {
            Frame::Item(object) => self.on_object(now, Change::Item, object),
            Frame::Skipped(skipped) => return self.on_skipped(now, &skipped),
            Frame::Event { kind, object } => match kind {
                EventKind::Added => self.on_object(now, Change::Added, object),
                EventKind::Modified => self.on_object(now, Change::Modified, object),
                EventKind::Deleted => self.on_object(now, Change::Deleted, object),
                EventKind::Bookmark => self.on_bookmark(now, object),
                EventKind::Error => return Err(told(object)),
                EventKind::Other => self.handle(now, Input::Ignored),
            },
            Frame::ListEnd(end) => {
                self.confirmed = true;
                self.list_ended = true;
                let resource_version = &end.resource_version;
                self.handle(now, Input::PageEnd { resource_version, continue_token: end.continue_token.as_deref() });
            }
            Frame::Status(status) => return Err(told(status)),
        }
        Ok(())
    }

    fn on_object(&mut self, now: Time, change: Change, object: &[u8]) {
        self.first_object.get_or_insert(true);
        let meta = match Meta::read_lenient(object) {
            Ok(meta) if !meta.name.is_empty() => meta,
            Ok(meta) => return self.on_unreadable(now, meta.key()),
            Err(_) => return self.on_unreadable(now, String::new()),
        };
        self.confirmed = true;
        meta.write_key(&mut self.key);
        let resource_version = &*meta.resource_version;
        if ResourceVersion::parse(resource_version).is_err() {
            self.on_unversioned();
        }
        let mut observed = Observed { change, key: &self.key, uid: &meta.uid, resource_version, is_news: true };
        if self.reflector.is_behind(resource_version) {
            observed.is_news = self.sink.is_news(&observed);
        }
        self.reflector.handle(now, Input::Object(observed));
        self.key.shrink_to(limits::KEY_KEEP_BYTES);
        self.obey(now, Some(ReceivedObject { json: object, meta: &meta, skipped: None }));
    }

    /// Kept without a position, as client-go and kube do.
    fn on_unversioned(&mut self) {
        if self.unreadable.is_new(&self.key) {
            tracing::warn!(resource = self.resource, key = logged(&self.key), "unversioned object kept");
        }
    }

    /// Reported as a sign of life: an object without a name must not stop the others. It confirms no state.
    fn on_unreadable(&mut self, now: Time, key: String) {
        self.unreadable.count += 1;
        if self.unreadable.is_new(&key) {
            tracing::warn!(resource = self.resource, key = logged(&key), "nameless object dropped");
        }
        self.handle(now, Input::Ignored);
    }

    /// Handles an object the framer skipped. If its position is readable, the reflector advances to it as with any
    /// other object; an older stored state of the object is removed, because it is stale.
    fn on_skipped(&mut self, now: Time, skipped: &Skipped) -> Result<(), Kind> {
        let change = match skipped.kind {
            None => Change::Item,
            Some(EventKind::Added) => Change::Added,
            Some(EventKind::Modified) => Change::Modified,
            Some(EventKind::Deleted) => Change::Deleted,
            Some(EventKind::Error) => return Err(Kind::Malformed),
            Some(EventKind::Bookmark | EventKind::Other) => {
                self.handle(now, Input::Ignored);
                return Ok(());
            }
        };
        self.first_object.get_or_insert(true);
        self.skipped += 1;
        let meta = skipped.meta();
        let (key, at, reason) = (meta.key(), skipped.at, skipped.reason);
        if self.unreadable.is_new(&key) {
            tracing::warn!(resource = self.resource, key = logged(&key), offset = at, %reason, "object skipped");
        }
        if meta.name.is_empty() && matches!(change, Change::Modified | Change::Deleted) {
            // Some stored object is now stale and cannot be identified, so the response cannot be trusted from here on.
            return Err(Kind::Frame(FrameError::Unexpected { at }));
        }
        let error = Error::new(Kind::Skipped { key: key.clone(), at, reason }, self.progress.borrow().request.as_ref());
        if meta.name.is_empty() {
            self.give(now, sink::Order::Skip(&error, &meta));
            self.handle(now, Input::Ignored);
            return Ok(());
        }
        self.confirmed = true;
        let (uid, resource_version) = (&*meta.uid, &*meta.resource_version);
        let mut observed = Observed { change, key: &key, uid, resource_version, is_news: true };
        if self.reflector.is_behind(resource_version) {
            observed.is_news = self.sink.is_news(&observed);
        }
        self.reflector.handle(now, Input::Object(observed));
        let json = skipped.json();
        self.obey(now, Some(ReceivedObject { json: json.as_bytes(), meta: &meta, skipped: Some(&error) }));
        Ok(())
    }

    fn on_bookmark(&mut self, now: Time, object: &[u8]) {
        self.confirmed = true;
        match Meta::read(object) {
            Ok(meta) => match marks::token(object, &meta) {
                Some(token) => self.handle(now, Input::Mark { token: &token }),
                None => {
                    let initial_events_end = meta.initial_events_end;
                    let resource_version = &meta.resource_version;
                    self.handle(now, Input::Bookmark { resource_version, initial_events_end });
                }
            },
            Err(_) => self.handle(now, Input::Ignored),
        }
    }

    /// Reports one event without an object to the reflector.
    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) {
        self.reflector.handle(now, input);
        self.obey(now, None);
    }

    fn obey(&mut self, now: Time, object: Option<ReceivedObject<'_>>) {
        while let Some(action) = self.reflector.poll_action() {
            match (action, object) {
                (Action::Send(read), _) => {
                    self.is_initial = read.is_initial();
                    self.order = Some(LastOrder::Send(read));
                }
                (Action::Close, _) => self.order = Some(LastOrder::Close),
                (Action::Prove { at, by, skip }, _) => {
                    self.is_initial = !self.is_synced;
                    self.order = Some(LastOrder::Prove { at, by, skip });
                }
                (Action::Refuse, _) => self.refused = true,
                (Action::Restored, _) => self.restored(now),
                (Action::Init { trusts_versions }, _) => self.give(now, sink::Order::Init { trusts_versions }),
                (Action::InitApply | Action::Apply, Some(ReceivedObject { meta, skipped: Some(error), .. })) => {
                    self.give(now, sink::Order::Skip(error, meta));
                }
                (Action::InitApply, Some(ReceivedObject { json, meta, .. })) => {
                    self.give(now, sink::Order::InitApply(json, meta));
                }
                (Action::InitDone(position), _) => {
                    self.is_initial = false;
                    self.is_synced = true;
                    self.give(now, sink::Order::InitDone(position.clone()));
                    tracing::info!(resource = self.resource, resource_version = %position, "relist completed");
                }
                (Action::Apply, Some(ReceivedObject { json, meta, .. })) => {
                    self.give(now, sink::Order::Apply(json, meta))
                }
                (Action::Delete, Some(ReceivedObject { json, meta, .. })) => {
                    self.give(now, sink::Order::Delete(json, meta))
                }
                (Action::Bookmark(position), _) => self.give(now, sink::Order::Bookmark(position)),
                (Action::Abandon, _) => self.give(now, sink::Order::Abandon),
                (Action::Report(report), _) => self.report(now, report),
                (Action::InitApply | Action::Apply | Action::Delete, None) => {
                    unreachable!("the reflector orders this about the object just handed in")
                }
            }
        }
    }

    /// Marks a restored state as current. It keeps its saved timestamp until the server next confirms it.
    fn restored(&mut self, now: Time) {
        self.is_initial = false;
        self.is_synced = true;
        self.confirmed = false;
        self.give(now, sink::Order::Restored);
        self.progress.send_modify(|progress| progress.confirmed = progress.restored);
        let resource_version = self.position().map(tracing::field::display);
        tracing::info!(resource = self.resource, resource_version, "saved position resumed");
    }

    fn give(&mut self, now: Time, order: sink::Order<'_>) {
        let meta = order.meta();
        if let Err(error) = self.sink.take(now, order) {
            self.unreadable.count += 1;
            let key = meta.map(Meta::key).unwrap_or_default();
            tracing::warn!(resource = self.resource, key = logged(&key), error = %Chain(&error), "object dropped");
        }
    }

    fn report(&mut self, now: Time, report: Report) {
        let resource = &self.resource;
        match report {
            Report::Relist { cause } => tracing::info!(resource, cause = labels::cause_text(cause), "relist started"),
            Report::FellBack { cause } => {
                tracing::info!(resource, cause = labels::fall_back_text(cause), "fallback to pages");
                if cause == reflector::FallBack::Stalled {
                    self.note(Kind::Silent);
                }
            }
            Report::Waiting { until, cause } => {
                let delay = until.since(now);
                tracing::debug!(resource, cause = labels::ending_text(cause), ?delay, "request delayed");
                match cause {
                    // The failure was already recorded when it arrived.
                    reflector::Ending::Failed(_) | reflector::Ending::WatchForbidden => {}
                    reflector::Ending::Closed => self.note(Kind::Ended),
                    reflector::Ending::Unanswered => {
                        self.unanswered = true;
                        self.note(Kind::Silent);
                    }
                    reflector::Ending::WentBack | reflector::Ending::Unproven => self.note(Kind::History),
                    reflector::Ending::Unusable => self.note(Kind::Unusable),
                    reflector::Ending::Endless => self.note(Kind::Endless),
                }
            }
            Report::Healthy => tracing::debug!(resource, "backoff reset"),
            Report::Spread { until } => {
                tracing::debug!(resource, delay = ?until.since(now), "start delayed");
                self.progress.send_modify(|progress| progress.stage = InitialPhase::Spread);
            }
            Report::Proved => tracing::debug!(resource, "position proved"),
            Report::Foreign => tracing::warn!(resource, "foreign history detected"),
            Report::HistoryReset => tracing::warn!(resource, "history reset detected"),
            Report::Unordered => tracing::warn!(resource, "unordered resourceVersions detected"),
            Report::Expired => {
                tracing::warn!(resource, "exact resourceVersion expired");
                self.progress.send_modify(|progress| progress.is_final = true);
            }
        }
    }

    /// Records why initial state is not complete, for callers of `ready`.
    fn note(&mut self, kind: Kind) {
        if self.is_incomplete() {
            let error = Error::new(kind, self.progress.borrow().request.as_ref());
            self.sink.failed(&error);
            self.progress.send_modify(|progress| progress.failure = Some(error));
        }
    }

    pub(super) fn failed(&mut self, error: Error) {
        let class = labels::class_text(error.class());
        tracing::warn!(resource = self.resource, class, error = %Chain(&error), "request failed");
        self.sink.failed(&error);
        if self.is_incomplete() {
            self.progress.send_modify(|progress| progress.failure = Some(error));
        }
    }

    /// True while readers wait for a state: no complete state yet, none proven and accepted, or a new one is being
    /// read.
    const fn is_incomplete(&self) -> bool {
        self.is_initial || !self.is_synced
    }

    /// Records that a read of initial state waits for its permit. A repeated page is not a new attempt.
    pub(super) fn queued(&self, request: Request, is_attempt: bool) {
        self.progress.send_modify(|progress| {
            progress.request = Some(request);
            progress.stage = InitialPhase::Queued;
            progress.attempts += u64::from(is_attempt);
        });
    }

    /// Records a request sent to an endpoint.
    pub(super) fn asked(&self, request: Request, endpoint: usize, stage: InitialPhase, strategy: Option<Strategy>) {
        self.progress.send_modify(|progress| {
            progress.request = Some(request);
            progress.endpoint = endpoint;
            progress.stage = stage;
            progress.stats.strategy = strategy.or(progress.stats.strategy);
        });
    }

    /// Records a move to another endpoint, with the verdict on its streams.
    pub(super) fn moved(&mut self, verdict: Verdict) {
        self.verdict = verdict;
        self.reflector.set_verdict(verdict);
        self.progress.send_modify(|progress| progress.stats.moves += 1);
    }

    /// Name of the type, for logs.
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    /// Position of the copy, if it has one.
    pub(super) const fn position(&self) -> Option<&ResourceVersion> {
        self.reflector.position()
    }

    /// Returns true if the copy belongs to the history of the endpoint in use.
    pub(super) const fn is_settled(&self) -> bool {
        self.reflector.is_settled()
    }

    /// Returns true if the reflector refused the endpoint just moved to, since the last call.
    pub(super) const fn take_refused(&mut self) -> bool {
        std::mem::replace(&mut self.refused, false)
    }

    /// Returns true if a request was given up without headers, since the last call.
    pub(super) const fn take_unanswered(&mut self) -> bool {
        std::mem::replace(&mut self.unanswered, false)
    }

    pub(super) const fn received(&mut self, bytes: usize) {
        self.bytes_received += bytes as u64;
    }

    /// Returns the verdict on streams if it changed since the last call.
    pub(super) fn take_verdict(&mut self) -> Option<Verdict> {
        let now = self.reflector.verdict();
        let is_news = now != self.verdict;
        self.verdict = now;
        is_news.then_some(now)
    }

    /// Publishes changes to readers.
    pub(super) fn publish(&mut self) {
        self.sink.flush();
        let confirmed = std::mem::take(&mut self.confirmed) && !self.is_initial;
        self.progress.send_if_modified(|progress| {
            progress.stats.reflector = self.reflector.stats().clone();
            progress.stats.bytes_received = self.bytes_received;
            progress.stats.unreadable = self.unreadable.count;
            progress.stats.skipped = self.skipped;
            if confirmed {
                progress.confirmed = Some(ConfirmedTime::now());
            }
            progress.is_polling = self.reflector.is_polling();
            progress.is_sound = self.reflector.is_sound();
            let has_synced = self.is_synced && !progress.is_synced;
            if has_synced {
                progress.stats.synced_after = Some(progress.started.elapsed());
            }
            if !self.is_incomplete() {
                progress.failure = None;
            }
            progress.is_synced |= has_synced;
            has_synced
        });
    }

    /// Returns true if the very first object arrived since the last call.
    pub(super) fn take_first_object(&mut self) -> bool {
        self.first_object.as_mut().is_some_and(std::mem::take)
    }

    pub(super) fn first_object_after(&self, elapsed: Duration) {
        self.progress.send_modify(|progress| progress.stats.first_object_after = Some(elapsed));
    }

    /// Notes a sign of the server. It confirms the stored state, unless that is about to be replaced.
    pub(super) const fn confirmed(&mut self) {
        self.confirmed = true;
    }

    /// Returns true if a list was completed since the last call.
    pub(super) fn take_list_end(&mut self) -> bool {
        std::mem::take(&mut self.list_ended)
    }

    pub(super) const fn has_order(&self) -> bool {
        self.order.is_some()
    }

    pub(super) const fn take_order(&mut self) -> Option<LastOrder> {
        self.order.take()
    }

    pub(super) const fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    pub(super) fn sink_timeout(&self) -> Option<Time> {
        self.sink.poll_timeout()
    }

    /// Counts a checkpoint that could not be opened or saved.
    pub(super) fn not_saved(&self) {
        self.progress.send_modify(|progress| progress.stats.checkpoint_failures += 1);
    }

    pub(super) const fn is_over(&self) -> bool {
        self.reflector.is_over()
    }

    pub(super) const fn is_initial(&self) -> bool {
        self.is_initial
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.reflector.poll_timeout()
    }

    pub(super) const fn went_out(&mut self, now: Time) {
        self.reflector.went_out(now);
    }

    pub(super) fn stands_still_at(&self) -> Option<Time> {
        self.reflector.stands_still_at()
    }
}

/// Error carried by an ERROR event, or by a Status in place of a list. `Malformed` if it reports success or cannot be
/// read.
pub(super) fn told(object: &[u8]) -> Kind {
    // Decoding takes many times the bytes, and no real Status is as large as an object may be.
    let readable = object.len() <= limits::ERROR_BODY_BYTES_MAX;
    match readable.then(|| Status::read(object)).flatten() {
        Some(status) => Kind::InAnswer(Box::new(status)),
        None => Kind::Malformed,
    }
}
