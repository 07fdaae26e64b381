//! The I/O loop behind informers and raw streams: waits, reports events to the session, and carries out its actions.
//!
//! INVARIANT: decides nothing; the session does. Readers see a change only between two frames.

mod link;
mod proving;
mod reporting;
mod saving;
mod setup;
mod sink;
mod task;

use std::sync::Arc;

use bytes::Bytes;
use informer_core::{
    Read, Request, ResourceVersion, Time,
    endpoints::Endpoints,
    reflector::{End, Failure, ProofBy, Testimony},
    session::{Session, SessionAction, SessionInput},
    store::Entry,
    wire::framer::{Framer, FramerConfig, Shape},
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};
use tracing::{Instrument as _, Span};

use self::{
    link::{Link, NetworkEvent},
    proving::Question,
    reporting::Reporter,
    setup::TypeVerdicts,
};
pub(crate) use self::{
    setup::Setup,
    sink::{DriverSink, StoreSink},
    task::start,
};
use crate::{
    connection::ServerConnection,
    error::{Error, Kind},
    progress::{InitialPhase, Outlet},
    readiness::name_of,
    stats::Strategy,
    transport::{Answer, RequestedParts, ResponseForm, Transport},
};

pub(crate) struct Driver<S> {
    // Dropped first: the reason of the end is readable before the drop of the session ends subscriptions.
    reporter: Reporter,
    setup: Setup,
    // One for each endpoint of the cluster.
    transports: Vec<Transport>,
    session: Session<S, TypeVerdicts>,
    link: Link,
    // Permit of the cluster's relist budget.
    permit: Option<OwnedSemaphorePermit>,
    // Origin of the session's times.
    zero: Instant,
    requested_at: Instant,
    // Span of the request in flight, or of the last one.
    span: Span,
}

impl<S: DriverSink> Driver<S> {
    /// Creates a driver that has its first request but has not sent it. `resume` is the position of an already present
    /// state. Needs a tokio runtime.
    pub(crate) fn new(mut setup: Setup, sink: S, progress: Outlet, resume: Option<ResourceVersion>) -> Self {
        let timeout = setup.config.headers_timeout;
        let parts = RequestedParts {
            metadata_only: setup.metadata_only,
            without_managed_fields: setup.config.drops_managed_fields(),
            gzip: setup.config.gzip(),
        };
        let transport = |connection: &ServerConnection| Transport::new(connection.clone(), timeout, parts);
        let transports: Vec<Transport> = setup.cluster.connections().iter().map(transport).collect();
        let endpoints = Endpoints::new(transports.len(), setup.cluster.endpoints().clone(), fastrand::u64(..));
        let delays = setup.delays.take();
        let session = Session::new(setup.reflector(resume), delays, endpoints, setup.verdicts(), sink);
        let session = session.in_shard(setup.resource.shard.clone());
        let now = Instant::now();
        let mut driver = Self {
            reporter: Reporter::new(name_of(&setup.resource.group_version_path, &setup.resource.plural), progress),
            setup,
            transports,
            session,
            link: Link::Closed,
            permit: None,
            zero: now,
            requested_at: now,
            span: Span::none(),
        };
        driver.tell(SessionInput::Start);
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

    fn on_timer(&mut self) {
        let _session = self.span.clone().entered();
        self.tell(SessionInput::TimedOut);
    }

    fn on_network(&mut self, happened: NetworkEvent) {
        let _session = self.span.clone().entered();
        match happened {
            NetworkEvent::Granted(permit) => {
                self.permit = Some(permit);
                self.tell(SessionInput::Granted);
            }
            NetworkEvent::Answered(Ok(answer)) => self.on_accepted(answer),
            NetworkEvent::Chunk(Ok(Some(bytes))) => self.on_chunk(&bytes),
            NetworkEvent::Chunk(Ok(None)) => self.on_end(),
            NetworkEvent::Proved(Ok((proof, witness))) => {
                self.link = Link::Closed;
                self.tell(SessionInput::Proved(Testimony { proof, key: witness.key(), uid: witness.uid() }));
            }
            NetworkEvent::Answered(Err(error)) | NetworkEvent::Chunk(Err(error)) | NetworkEvent::Proved(Err(error)) => {
                self.on_failure(error);
            }
        }
    }

    /// Reports one input, carries out what follows, and publishes changes to readers.
    fn tell(&mut self, input: SessionInput<'_>) {
        self.session.handle(self.now(), input);
        self.carry_out();
        self.reporter.publish(&mut self.session);
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.session.poll_action() {
            match action {
                SessionAction::Queue { read, is_attempt } => self.queue(&read, is_attempt),
                SessionAction::Send { endpoint, read } => self.send(endpoint, &read),
                SessionAction::Prove { endpoint, witness, at, by } => self.prove(endpoint, witness, at, by),
                SessionAction::Close => self.link = Link::Closed,
                SessionAction::Release => self.permit = None,
                SessionAction::Report(report) => {
                    self.reporter.report(self.now(), report, self.requested_at, &mut self.session);
                }
            }
        }
    }

    pub(crate) const fn sink(&mut self) -> &mut S {
        self.session.sink_mut()
    }

    /// True once no further turn can yield anything.
    pub(crate) const fn is_over(&self) -> bool {
        self.session.is_over()
    }

    fn now(&self) -> Time {
        Time(self.zero.elapsed())
    }

    /// The session's timer; `None` if none is set.
    fn timer(&self) -> Option<Instant> {
        self.session.poll_timeout().and_then(|time| self.zero.checked_add(time.0))
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
        let marks = answer.marks();
        self.link = Link::Open { answer: Box::new(answer), framer: Box::new(framer) };
        self.tell(SessionInput::Accepted(marks));
    }

    fn on_chunk(&mut self, bytes: &Bytes) {
        self.reporter.received(bytes.len());
        let now = self.now();
        let mut rest = &bytes[..];
        // An action that drops the response drops the rest of the chunk with it.
        while let Link::Open { answer, framer } = &mut self.link {
            let handled = match framer.next(&mut rest) {
                Ok(Some(frame)) => self.session.handle_frame(now, frame).map_err(Kind::from),
                Ok(None) => break,
                Err(error) => Err(Kind::Frame(error)),
            };
            if let Err(kind) = handled {
                let error = Error::new(kind, Some(answer.request()));
                self.carry_out();
                return self.on_failure(error);
            }
            self.carry_out();
        }
        self.reporter.publish(&mut self.session);
    }

    fn on_end(&mut self) {
        let Link::Open { answer, framer } = &mut self.link else {
            unreachable!("only an open answer ends");
        };
        match framer.finish() {
            Ok(()) => {
                self.link = Link::Closed;
                self.tell(SessionInput::Ended(End::Closed));
            }
            Err(error) => {
                let error = Error::new(Kind::Frame(error), Some(answer.request()));
                self.on_failure(error);
            }
        }
    }

    fn on_failure(&mut self, error: Error) {
        self.link = Link::Closed;
        let failure = Failure { class: error.class(), retry_after: error.retry_after() };
        self.reporter.failed(error, &mut self.session);
        self.tell(SessionInput::Ended(End::Failed(failure)));
    }

    fn queue(&mut self, read: &Read, is_attempt: bool) {
        self.reporter.queued(self.setup.request(read), is_attempt);
        self.link = match std::mem::replace(&mut self.link, Link::Closed) {
            queued @ Link::Queued { .. } => queued,
            before @ (Link::Closed | Link::Sent(_) | Link::Open { .. } | Link::Proving(_)) => {
                let permit = Box::pin(Arc::clone(self.setup.cluster.relists()).acquire_owned());
                Link::Queued { permit, finished: before.finished() }
            }
        };
    }

    fn send(&mut self, endpoint: usize, read: &Read) {
        let finished = std::mem::replace(&mut self.link, Link::Closed).finished();
        let request = self.setup.request(read);
        let strategy = match read {
            Read::Stream { .. } => Some(Strategy::Stream),
            Read::List { limit: Some(_), .. } => Some(Strategy::Paged),
            Read::List { limit: None, .. } => Some(Strategy::Unpaged),
            Read::Page { .. } | Read::Watch { .. } => None,
        };
        let transport = self.asking(endpoint, &request, InitialPhase::Reading, strategy);
        let form = if read.is_watch() { ResponseForm::Watch } else { ResponseForm::List };
        self.link = Link::sent(transport, request, form, finished, &self.span);
    }

    fn prove(&mut self, endpoint: usize, witness: Arc<Entry>, at: ResourceVersion, by: ProofBy) {
        let (object_bytes_max, patience) = (self.setup.config.object_bytes_max, self.setup.config.headers_timeout);
        let question = Question { witness, at, by, object_bytes_max, patience };
        let request = question.request(&self.setup.resource);
        let transport = self.asking(endpoint, &request, InitialPhase::Proving, None);
        self.link = Link::Proving(Box::pin(question.ask(transport, request).instrument(self.span.clone())));
    }

    /// Begins a request: selects the endpoint's transport and opens its span.
    fn asking(
        &mut self,
        endpoint: usize,
        request: &Request,
        stage: InitialPhase,
        strategy: Option<Strategy>,
    ) -> Transport {
        let resource = self.reporter.resource();
        // `parent: None`, because the previous session's span is entered here: as its child, this span would keep it
        // open, and it in turn all spans before it.
        self.span = tracing::info_span!(parent: None, "session", resource, %request, endpoint);
        self.reporter.requested(request.clone(), endpoint, stage, strategy);
        self.requested_at = Instant::now();
        self.transports[endpoint].clone()
    }
}
