//! The I/O loop behind informers and raw streams: waits, reports events to the reflector, and carries out its orders.
//!
//! INVARIANT: decides nothing. Only the driver writes a store, and publishes it only between two frames.

mod core;
mod link;
mod proving;
mod saving;
mod setup;
mod sink;
mod task;

use std::sync::Arc;

use bytes::Bytes;
use informer_core::{
    Read, Request, ResourceVersion, Time,
    endpoints::Endpoints,
    reflector::{self, Class, Input, Proof, ProofBy, Testimony, Verdict},
    wire::{
        framer::{Framer, FramerConfig, Shape},
        marks::Answered,
    },
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};
use tracing::{Instrument as _, Span};

use self::{
    core::{Core, LastOrder},
    link::{Link, NetworkEvent},
    proving::Question,
};
pub(crate) use self::{
    setup::Setup,
    sink::{Evidence, Order as SinkOrder, Sink, StoreSink},
    task::start,
};
use crate::{
    cluster::{TURN_MAX, name_of},
    error::{Error, Kind},
    progress::{InitialPhase, Outlet},
    stats::Strategy,
    transport::{Answer, RequestedParts, ResponseForm, Transport},
};

pub(crate) struct Driver<S> {
    setup: Setup,
    // One for each endpoint of the cluster.
    transports: Vec<Transport>,
    endpoints: Endpoints,
    core: Core<S>,
    link: Link,
    // Origin of the core's times.
    zero: Instant,
    // Held from the grant until initial state is complete, the attempt ends, the read stalls, or `TURN_MAX` has passed.
    turn: Option<RelistPermit>,
    asked_at: Instant,
    // Span of the request in flight, or of the last one.
    span: Span,
}

/// A permit of the cluster's relist budget, with the time at which it expires.
struct RelistPermit {
    _permit: OwnedSemaphorePermit,
    until: Time,
}

impl<S: Sink> Driver<S> {
    /// Creates a driver that has its first request but has not sent it. `resume` is the position of an already present
    /// state. Needs a tokio runtime.
    pub(crate) fn new(mut setup: Setup, sink: S, progress: Outlet, resume: Option<ResourceVersion>) -> Self {
        let timeout = setup.config.headers_timeout;
        let wanted = RequestedParts {
            metadata_only: setup.metadata_only,
            without_managed_fields: setup.config.drops_managed_fields(),
        };
        let transport = |client: &kube::Client| Transport::new(client.clone(), timeout, wanted);
        let transports: Vec<Transport> = setup.cluster.clients().iter().map(transport).collect();
        let endpoints = Endpoints::new(transports.len(), setup.cluster.endpoints().clone(), fastrand::u64(..));
        let config = setup.reflector(resume, endpoints.current());
        let core = Core::new(config, setup.delays.take(), sink, progress, &name_of(&setup.resource));
        let now = Instant::now();
        let mut driver = Self {
            setup,
            transports,
            endpoints,
            core,
            link: Link::Closed,
            zero: now,
            turn: None,
            asked_at: now,
            span: Span::none(),
        };
        driver.tell(Input::Start);
        driver
    }

    /// Waits for one event and handles it; the sink has received everything when this returns. Reads at most one chunk.
    /// Cancel safe.
    pub(crate) async fn turn(&mut self) {
        let timer = self.timer();
        tokio::select! { biased;
            // Network before timer: a reader that polls late must not take unread data for silence.
            happened = self.link.next() => self.on_network(happened),
            () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => self.on_timer(),
        }
    }

    /// Runs an overdue timer. The network comes first in `turn`, so a loop without pauses would starve the timers.
    fn keep_time(&mut self) {
        if self.timer().is_some_and(|due| due <= Instant::now()) {
            self.on_timer();
        }
    }

    pub(crate) const fn sink(&mut self) -> &mut S {
        self.core.sink()
    }

    /// True once no further turn can yield anything.
    pub(crate) const fn is_over(&self) -> bool {
        self.core.is_over()
    }

    fn on_network(&mut self, happened: NetworkEvent) {
        let _session = self.span.clone().entered();
        match happened {
            NetworkEvent::Granted(permit) => self.on_granted(permit),
            NetworkEvent::Answered(Ok(answer)) => self.on_accepted(answer),
            NetworkEvent::Chunk(Ok(Some(bytes))) => self.on_chunk(&bytes),
            NetworkEvent::Chunk(Ok(None)) => self.on_end(),
            NetworkEvent::Proved(Ok((proof, witness))) => {
                self.on_proof(Testimony { proof, key: witness.key(), uid: witness.uid() });
            }
            NetworkEvent::Answered(Err(error)) | NetworkEvent::Chunk(Err(error)) | NetworkEvent::Proved(Err(error)) => {
                self.on_failure(error);
            }
        }
    }

    fn now(&self) -> Time {
        Time(self.zero.elapsed())
    }

    /// The earliest of all timers; `None` if none is set.
    fn timer(&self) -> Option<Instant> {
        let due =
            [self.reflector_timeout(), self.endpoints.poll_timeout(), self.core.sink_timeout(), self.turn_ends_at()];
        due.into_iter().flatten().min().and_then(|time| self.zero.checked_add(time.0))
    }

    /// The reflector's timer. Not while queued: the read has not been sent, so it can neither be silent nor stall.
    fn reflector_timeout(&self) -> Option<Time> {
        if matches!(self.link, Link::Queued { .. }) { None } else { self.core.poll_timeout() }
    }

    fn on_timer(&mut self) {
        let _session = self.span.clone().entered();
        let now = self.now();
        if self.turn_ends_at().is_some_and(|due| due <= now) {
            self.give_back();
        }
        if self.core.sink_timeout().is_some_and(|due| due <= now) {
            self.core.sink().handle_timeout(now);
            self.core.publish();
        }
        let from = self.endpoints.current();
        if self.endpoints.poll_timeout().is_some_and(|due| due <= now)
            && let Some(to) = self.endpoints.handle_timeout(now)
        {
            return self.fail_over(from, to);
        }
        if self.reflector_timeout().is_some_and(|due| due <= now) {
            self.tell(Input::TimedOut);
        }
    }

    fn on_granted(&mut self, permit: OwnedSemaphorePermit) {
        let Link::Queued { read, finished, .. } = std::mem::replace(&mut self.link, Link::Closed) else {
            unreachable!("a permit is granted to a queued request");
        };
        let now = self.now();
        self.turn = Some(RelistPermit { _permit: permit, until: now + TURN_MAX });
        self.core.went_out(now);
        self.ask(read, finished);
    }

    fn on_accepted(&mut self, answer: Answer) {
        let shape = match answer.form() {
            ResponseForm::Watch => Shape::Watch,
            ResponseForm::List | ResponseForm::Object => Shape::List,
        };
        let framer = Framer::new(FramerConfig {
            shape,
            cut: self.setup.config.drop_paths.clone(),
            object_bytes_max: self.setup.config.object_bytes_max,
            type_meta: Some(self.setup.type_meta.clone()),
        });
        let accepted = match answer.marks() {
            None => Input::Accepted,
            Some(Answered::Accepted | Answered::Restarted) => Input::AcceptedWithMarks,
            Some(Answered::Resumed) => Input::Resumed,
        };
        self.link = Link::Open { answer: Box::new(answer), framer: Box::new(framer) };
        self.endpoints.worked(self.now());
        self.core.confirmed();
        self.tell(accepted);
    }

    fn on_chunk(&mut self, bytes: &Bytes) {
        let Link::Open { answer, framer } = &mut self.link else {
            unreachable!("chunks come from an open answer");
        };
        self.core.received(bytes.len());
        let now = Time(self.zero.elapsed());
        let mut rest = &bytes[..];
        let failed = loop {
            match framer.next(&mut rest) {
                Ok(Some(frame)) => {
                    if let Err(kind) = self.core.on_frame(now, frame) {
                        break Some(kind);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(Kind::Frame(error)),
            }
            // Every order replaces this response, so the rest of the chunk is discarded.
            if self.core.has_order() {
                break None;
            }
        };
        if self.core.take_first_object() {
            self.core.first_object_after(self.asked_at.elapsed());
        }
        match failed.map(|kind| Error::new(kind, Some(answer.request()))) {
            Some(error) => self.on_failure(error),
            None => self.follow(),
        }
        if self.core.take_list_end() && matches!(self.link, Link::Open { .. }) {
            // The list is complete and no request follows it now.
            self.link = Link::Closed;
            self.give_back();
        }
    }

    fn on_end(&mut self) {
        let Link::Open { answer, framer } = &mut self.link else {
            unreachable!("only an open answer ends");
        };
        match framer.finish() {
            Ok(()) => {
                self.link = Link::Closed;
                self.tell(Input::Ended(reflector::End::Closed));
            }
            Err(error) => {
                let error = Error::new(Kind::Frame(error), Some(answer.request()));
                self.on_failure(error);
            }
        }
    }

    fn on_proof(&mut self, testimony: Testimony<'_>) {
        self.link = Link::Closed;
        self.tell(Input::Proof(testimony));
    }

    fn on_failure(&mut self, error: Error) {
        self.link = Link::Closed;
        let now = self.now();
        let failure = reflector::Failure { class: error.class(), retry_after: error.retry_after() };
        self.core.failed(error);
        let from = self.endpoints.current();
        self.endpoints.failed(now, failure.class);
        let is_too_old = failure.class == Class::Expired && !self.core.is_initial();
        match is_too_old.then(|| self.endpoints.expired(now)).flatten() {
            // An old position may still be in the history window of the preferred endpoint.
            Some(to) => self.fail_over(from, to),
            None => self.tell(Input::Ended(reflector::End::Failed(failure))),
        }
    }

    fn fail_over(&mut self, from: usize, to: usize) {
        let resource_version = self.core.position().map(tracing::field::display);
        tracing::info!(resource = self.core.resource(), from, to, resource_version, "endpoint failover");
        self.core.moved(self.verdict());
        if !matches!(self.link, Link::Queued { .. }) {
            self.link = Link::Closed;
        }
        self.tell(Input::Moved { home: self.endpoints.is_home() });
    }

    fn tell(&mut self, input: Input<'_>) {
        self.core.handle(self.now(), input);
        self.follow();
    }

    /// Verdict on the streams of the endpoint in use.
    fn verdict(&self) -> Verdict {
        self.setup.cluster.verdicts().of(self.endpoints.current(), self.setup.type_path())
    }

    /// Carries out the reflector's last order, then publishes changes to readers.
    fn follow(&mut self) {
        // Before `take_refused` switches endpoints: the verdict belongs to the endpoint just used.
        if let Some(verdict) = self.core.take_verdict() {
            self.setup.cluster.verdicts().set(self.endpoints.current(), self.setup.type_path(), verdict);
        }
        if self.core.take_unanswered() {
            self.endpoints.failed(self.now(), Class::Connection);
        }
        if self.core.take_refused() {
            let from = self.endpoints.current();
            let to = self.endpoints.refuse(self.now());
            tracing::warn!(resource = self.core.resource(), from, to, "endpoint failover reverted");
            self.core.moved(self.verdict());
        }
        if self.core.is_settled() {
            self.endpoints.settle();
        }
        match self.core.take_order() {
            Some(LastOrder::Send(read)) => self.send(read),
            Some(LastOrder::Prove { at, by, skip }) => self.prove(at, by, skip),
            Some(LastOrder::Close) => self.link = Link::Closed,
            None => {}
        }
        if !self.core.is_initial() || matches!(self.link, Link::Closed) {
            self.give_back();
        }
        self.core.publish();
    }

    fn prove(&mut self, at: ResourceVersion, by: ProofBy, skip: usize) {
        self.give_back();
        let witness = match self.core.sink().evidence(skip, !self.endpoints.is_home()) {
            Evidence::Witness(witness) => witness,
            Evidence::Word => {
                // Vouches only for the history; only the server can say whether lists are allowed.
                let word = if by == ProofBy::Get { Proof::Same } else { Proof::Nothing };
                return self.on_proof(Testimony::without_object(word));
            }
            Evidence::Nothing => return self.on_proof(Testimony::without_object(Proof::Nothing)),
        };
        let (object_bytes_max, patience) = (self.setup.config.object_bytes_max, self.setup.config.headers_timeout);
        let question = Question { witness, at, by, object_bytes_max, patience };
        let request = question.request(&self.setup.resource);
        let transport = self.asking(&request, InitialPhase::Proving, None);
        self.link = Link::Proving(Box::pin(question.ask(transport, request).instrument(self.span.clone())));
    }

    fn send(&mut self, read: Read) {
        let before = std::mem::replace(&mut self.link, Link::Closed);
        let keeps_turn = matches!(read, Read::Page { .. }) && self.turn.is_some();
        if !read.is_initial() || keeps_turn {
            return self.ask(read, before.finished());
        }
        self.give_back();
        self.core.queued(self.setup.request(&read), !matches!(read, Read::Page { .. }));
        self.link = match before {
            // The new read keeps the queue position of the old one.
            Link::Queued { permit, finished, .. } => Link::Queued { read, permit, finished },
            Link::Closed | Link::Sent(_) | Link::Open { .. } | Link::Proving(_) => {
                let permit = Box::pin(Arc::clone(self.setup.cluster.relists()).acquire_owned());
                Link::Queued { read, permit, finished: before.finished() }
            }
        };
    }

    fn ask(&mut self, read: Read, finished: Option<Answer>) {
        let request = self.setup.request(&read);
        let strategy = match &read {
            Read::Stream { .. } => Some(Strategy::Stream),
            Read::List { limit: Some(_), .. } => Some(Strategy::Paged),
            Read::List { limit: None, .. } => Some(Strategy::Unpaged),
            Read::Page { .. } | Read::Watch { .. } => None,
        };
        let transport = self.asking(&request, InitialPhase::Reading, strategy);
        let form = if read.is_watch() { ResponseForm::Watch } else { ResponseForm::List };
        self.link = Link::sent(transport, request, form, finished, &self.span);
    }

    /// Begins a session: selects the endpoint's transport and opens its span.
    fn asking(&mut self, request: &Request, stage: InitialPhase, strategy: Option<Strategy>) -> Transport {
        let endpoint = self.endpoints.current();
        let resource = self.core.resource();
        // `parent: None`, because the previous session's span is entered here: as its child, this span would keep it
        // open, and it in turn all spans before it.
        self.span = tracing::info_span!(parent: None, "session", resource, %request, endpoint);
        self.core.asked(request.clone(), endpoint, stage, strategy);
        self.asked_at = Instant::now();
        self.transports[endpoint].clone()
    }

    /// When the permit passes to the next informer: when the read stalls, so that one sick API does not keep the others
    /// from starting, and at the latest after `TURN_MAX`. The read itself continues.
    fn turn_ends_at(&self) -> Option<Time> {
        let turn = self.turn.as_ref()?;
        Some(self.core.stands_still_at().map_or(turn.until, |at| at.min(turn.until)))
    }

    fn give_back(&mut self) {
        self.turn = None;
    }
}
