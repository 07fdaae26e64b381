//! The loop behind informers and raw streams: waits, tells the reflector what happened, does what it orders.
//!
//! INVARIANT: decides nothing. A store is written here and nowhere else, and published only between two frames.

mod core;
mod link;
mod sink;

use std::sync::Arc;

use bytes::Bytes;
use informer_core::{
    Read, Request, Resource, Time,
    reflector::{self, Input},
    wire::framer::{Framer, FramerConfig, Shape, TypeMeta},
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::{Instant, sleep_until},
};

pub(crate) use self::sink::{Order as SinkOrder, Sink, StoreSink};
use self::{
    core::{Core, Order},
    link::{Happened, Link},
};
use crate::{
    cluster::Cluster,
    config::Config,
    error::{Error, Kind},
    progress::Progress,
    transport::{Answer, Transport},
};

/// What a driver is made of. Nothing here changes while it runs.
pub(crate) struct Setup {
    pub(crate) cluster: Cluster,
    pub(crate) resource: Resource,
    pub(crate) type_meta: TypeMeta,
    pub(crate) config: Config,
}

impl Setup {
    /// The resource type without namespace and selectors: what a verdict is about.
    fn type_path(&self) -> String {
        format!("{}/{}", self.resource.group_version_path, self.resource.plural)
    }
}

pub(crate) struct Driver<S> {
    setup: Setup,
    transport: Transport,
    core: Core<S>,
    link: Link,
    clock: Clock,
    // Held from the grant until initial state is complete, the attempt is over, or the stream stands still.
    permit: Option<OwnedSemaphorePermit>,
    // When a stream that brings nothing has to give the permit back.
    permit_until: Option<Instant>,
    asked_at: Instant,
}

/// The reflector's time: stands still while a request waits for its turn, so that waiting is not taken for silence.
struct Clock {
    zero: Instant,
}

impl Clock {
    fn now(&self) -> Time {
        Time(self.zero.elapsed())
    }

    /// `None` for a time that never comes.
    fn instant(&self, time: Time) -> Option<Instant> {
        self.zero.checked_add(time.0)
    }

    fn skip(&mut self, since: Instant) {
        self.zero += since.elapsed();
    }
}

impl<S: Sink> Driver<S> {
    /// A driver that knows its first request and has not sent it. Needs a tokio runtime.
    pub(crate) fn new(setup: Setup, sink: S) -> (Self, watch::Receiver<Progress>) {
        let transport = Transport::new(setup.cluster.client().clone(), setup.config.headers_timeout);
        let verdict = setup.cluster.verdicts().of(&setup.type_path());
        let config = reflector::Config {
            semantic: setup.config.list_semantic.clone(),
            initial: setup.config.initial_list,
            verdict,
            page_size: setup.config.page_size,
            healthy_after: setup.config.healthy_after,
            idle_timeout: setup.config.idle_timeout,
            initial_events_stall: setup.config.initial_events_stall,
            seed: fastrand::u64(..),
            ..reflector::Config::default()
        };
        let (core, progress) = Core::new(config, sink, &setup.resource.plural);
        let now = Instant::now();
        let mut driver = Self {
            setup,
            transport,
            core,
            link: Link::Closed,
            clock: Clock { zero: now },
            permit: None,
            permit_until: None,
            asked_at: now,
        };
        driver.tell(Input::Start);
        (driver, progress)
    }

    /// Runs until the last handle is dropped.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            tokio::select! { biased;
                _ = &mut stop => return,
                () = self.turn() => {}
            }
            // A body that always has more must not keep the worker from others, nor from the stop above.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Waits for one thing to happen and does what follows from it: what the sink has taken then is all there is until
    /// the next turn. Reads at most one chunk. Cancel safe.
    pub(crate) async fn turn(&mut self) {
        let timer = self.timer();
        tokio::select! { biased;
            () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => self.on_timer(),
            happened = self.link.next() => self.on_network(happened),
        }
    }

    pub(crate) const fn sink(&mut self) -> &mut S {
        self.core.sink()
    }

    /// Whether no turn will bring anything any more.
    pub(crate) const fn is_over(&self) -> bool {
        self.core.is_over()
    }

    fn on_network(&mut self, happened: Happened) {
        match happened {
            Happened::Granted(permit) => self.on_granted(permit),
            Happened::Answered(Ok(answer)) => self.on_accepted(answer),
            Happened::Chunk(Ok(Some(bytes))) => self.on_chunk(&bytes),
            Happened::Chunk(Ok(None)) => self.on_end(),
            Happened::Answered(Err(error)) | Happened::Chunk(Err(error)) => self.on_failure(error),
        }
    }

    /// The earlier of the reflector's timer and the permit's. None runs while a request waits for its turn.
    fn timer(&self) -> Option<Instant> {
        if matches!(self.link, Link::Queued { .. }) {
            return None;
        }
        let due = self.core.poll_timeout().and_then(|time| self.clock.instant(time));
        [due, self.permit_until].into_iter().flatten().min()
    }

    fn on_timer(&mut self) {
        if self.permit_until.is_some_and(|until| until <= Instant::now()) {
            self.give_back();
        }
        if self.core.poll_timeout().is_some_and(|due| due <= self.clock.now()) {
            self.tell(Input::TimedOut);
        }
    }

    fn on_granted(&mut self, permit: OwnedSemaphorePermit) {
        let Link::Queued { read, since, finished, .. } = std::mem::replace(&mut self.link, Link::Closed) else {
            unreachable!("a permit is granted to a queued request");
        };
        self.clock.skip(since);
        self.permit = Some(permit);
        let is_stream = matches!(read, Read::Stream { .. });
        self.permit_until = if is_stream { self.stalls_at() } else { None };
        self.ask(read, finished);
    }

    fn on_accepted(&mut self, answer: Answer) {
        let shape = if answer.is_watch() { Shape::Watch } else { Shape::List };
        let framer = Framer::new(FramerConfig {
            shape,
            cut: self.setup.config.drop_paths.clone(),
            object_bytes_max: self.setup.config.object_bytes_max,
            type_meta: Some(self.setup.type_meta.clone()),
        });
        self.link = Link::Open { answer: Box::new(answer), framer: Box::new(framer) };
        self.core.confirmed();
        self.tell(Input::Accepted);
    }

    fn on_chunk(&mut self, bytes: &Bytes) {
        let Link::Open { answer, framer } = &mut self.link else {
            unreachable!("chunks come from an open answer");
        };
        self.core.received(bytes.len());
        let now = self.clock.now();
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
            // The list was complete and nothing follows it now.
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

    fn on_failure(&mut self, error: Error) {
        self.link = Link::Closed;
        let failure = reflector::Failure { class: error.class(), retry_after: error.retry_after() };
        self.core.failed(error);
        self.tell(Input::Ended(reflector::End::Failed(failure)));
    }

    fn tell(&mut self, input: Input<'_>) {
        self.core.handle(self.clock.now(), input);
        self.follow();
    }

    /// Carries out what the reflector ordered last, then lets readers see what changed.
    fn follow(&mut self) {
        match self.core.take_order() {
            Some(Order::Send(read)) => self.send(read),
            Some(Order::Close) => self.link = Link::Closed,
            None => {}
        }
        if !self.core.is_initial() || matches!(self.link, Link::Closed) {
            self.give_back();
        } else if self.core.take_progressed() && self.permit_until.is_some() {
            self.permit_until = self.stalls_at();
        }
        if let Some(verdict) = self.core.take_verdict() {
            self.setup.cluster.verdicts().set(self.setup.type_path(), verdict);
        }
        self.core.publish();
    }

    fn send(&mut self, read: Read) {
        let finished = std::mem::replace(&mut self.link, Link::Closed).finished();
        let keeps_turn = matches!(read, Read::Page { .. }) && self.permit.is_some();
        if !read.is_initial() || keeps_turn {
            return self.ask(read, finished);
        }
        self.give_back();
        let permit = Arc::clone(self.setup.cluster.relists()).acquire_owned();
        self.core.queued(Request::new(&self.setup.resource, &read));
        self.link = Link::Queued { read, permit: Box::pin(permit), since: Instant::now(), finished };
    }

    fn ask(&mut self, read: Read, finished: Option<Answer>) {
        let request = Request::new(&self.setup.resource, &read);
        self.core.asked(request.clone());
        self.asked_at = Instant::now();
        self.link = Link::sent(self.transport.clone(), request, read.is_watch(), finished);
    }

    /// When a stream that brings nothing from now on counts as stalled; `None` for never.
    fn stalls_at(&self) -> Option<Instant> {
        Instant::now().checked_add(self.setup.config.initial_events_stall)
    }

    fn give_back(&mut self) {
        self.permit = None;
        self.permit_until = None;
    }
}
