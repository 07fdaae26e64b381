//! One client of one resource type: the reflector with the choice of its endpoint, its place in the relist budget, the
//! evidence of its proofs and the objects it receives. Does no I/O.
//!
//! The driver reports what happened to [`Session::handle`] and each frame of a response to [`Session::handle_frame`],
//! then drains [`Session::poll_action`], then arms a timer for [`Session::poll_timeout`].

mod budget;
mod frames;
mod vocabulary;

use std::collections::VecDeque;

use crate::{
    ResourceVersion, Time,
    backoff::Delays,
    endpoints::Endpoints,
    reflector::{self, Action, Class, End, Ending, Input, Proof, ProofBy, Reflector, Report, Testimony, Verdict},
    selector::shard,
    semantics::Read,
    stats::ReflectorStats,
};

use budget::RelistTurn;
use frames::{ReceivedObject, given};

pub use budget::TURN_MAX;
pub use vocabulary::{
    BadFrame, Evidence, Order, SessionAction, SessionInput, SessionReport, Sink, UnreadableCause, VerdictTable,
};

/// A reflector with everything that decides its requests.
///
/// At most one request is open. Every request goes to [`endpoint`](Self::endpoint).
///
/// Cost: a frame allocates only where the reflector does, and for objects that cannot be read or stored.
#[derive(Debug)]
pub struct Session<S, V> {
    reflector: Reflector,
    // The objects to keep, whatever the server sends.
    shard: Option<shard::Selector>,
    endpoints: Endpoints,
    verdicts: V,
    // The last value read from `verdicts` or written to it, for the endpoint in use.
    verdict: Verdict,
    sink: S,
    request: OpenRequest,
    turn: RelistTurn,
    actions: VecDeque<SessionAction>,
    // True if the open request, or the next one, reads initial state that is not complete.
    is_initial: bool,
    // True once a state was complete, or restored and proven.
    is_synced: bool,
    // True if the input confirms the stored state, unless that is about to be replaced.
    is_sign: bool,
    confirmed_at: Option<Time>,
    has_first_object: bool,
    // Key of the current object; kept to reuse its allocation.
    key: String,
}

/// The single request of a session.
#[derive(Debug)]
enum OpenRequest {
    Closed,
    /// A read of initial state waits for a permit of the relist budget.
    Queued(Read),
    /// Sent, accepted, or reading an object for a proof.
    Open,
}

/// The reflector's orders after one input.
#[derive(Default)]
struct ReflectorOrders {
    /// The last order about requests, which replaces earlier ones.
    next: Option<NextRequest>,
    has_stale_object: bool,
}

/// The result of one input.
struct FollowUp {
    /// True if a request was sent, queued or closed.
    has_request: bool,
    /// True if a stored object is stale now.
    has_stale_object: bool,
}

/// The reflector's order about requests.
enum NextRequest {
    Send(Read),
    Prove { at: ResourceVersion, by: ProofBy, skip: usize },
    Close,
}

impl<S: Sink, V: VerdictTable> Session<S, V> {
    /// Creates a session that has sent no request yet. `config.verdict` is replaced by the one of `verdicts`.
    #[must_use]
    pub fn new(
        mut config: reflector::Config,
        delays: Option<Box<dyn Delays>>,
        endpoints: Endpoints,
        verdicts: V,
        sink: S,
    ) -> Self {
        config.verdict = verdicts.verdict(endpoints.current());
        Self {
            verdict: config.verdict,
            reflector: match delays {
                Some(delays) => Reflector::with_delays(config, delays),
                None => Reflector::new(config),
            },
            shard: None,
            endpoints,
            verdicts,
            sink,
            request: OpenRequest::Closed,
            turn: RelistTurn::default(),
            actions: VecDeque::new(),
            is_initial: true,
            is_synced: false,
            is_sign: false,
            confirmed_at: None,
            has_first_object: false,
            key: String::new(),
        }
    }

    /// Keeps only objects of this shard: servers that do not know `shardSelector` send all. Cost: a hash of the uid or
    /// namespace of each object received.
    #[must_use]
    pub fn in_shard(self, shard: Option<shard::Selector>) -> Self {
        Self { shard, ..self }
    }

    /// Handles one input other than a frame. Afterwards drain [`Self::poll_action`], then arm a timer for
    /// [`Self::poll_timeout`].
    pub fn handle(&mut self, now: Time, input: SessionInput<'_>) {
        match input {
            SessionInput::Start => self.tell(now, Input::Start),
            SessionInput::Granted => self.granted(now),
            SessionInput::Accepted(marks) => {
                self.endpoints.worked(now);
                self.is_sign = true;
                self.tell(now, vocabulary::accepted(marks));
            }
            SessionInput::Proved(testimony) => {
                self.request = OpenRequest::Closed;
                self.tell(now, Input::Proof(testimony));
            }
            SessionInput::Ended(end) => self.ended(now, end),
            SessionInput::TimedOut => self.timed_out(now),
        }
        self.confirm(now);
    }

    /// Returns the next action; `None` when the queue is empty until the next input.
    pub fn poll_action(&mut self) -> Option<SessionAction> {
        self.actions.pop_front()
    }

    /// Returns when to pass [`SessionInput::TimedOut`]. `None` before the start and after the end.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = [
            self.reflector_timeout(),
            self.endpoints.poll_timeout(),
            self.sink.poll_timeout(),
            self.turn.ends_at(&self.reflector),
        ];
        due.into_iter().flatten().min()
    }

    /// The reflector's timer. Not while queued: the read has not been sent, so it can neither be silent nor stall.
    fn reflector_timeout(&self) -> Option<Time> {
        if matches!(self.request, OpenRequest::Queued(_)) { None } else { self.reflector.poll_timeout() }
    }

    fn timed_out(&mut self, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.turn.ends_at(&self.reflector)) {
            self.give_back();
        }
        if is_due(self.sink.poll_timeout()) {
            self.sink.handle_timeout(now);
        }
        let from = self.endpoints.current();
        if is_due(self.endpoints.poll_timeout())
            && let Some(to) = self.endpoints.handle_timeout(now)
        {
            return self.fail_over(now, from, to);
        }
        if is_due(self.reflector_timeout()) {
            self.tell(now, Input::TimedOut);
        }
    }

    fn granted(&mut self, now: Time) {
        let OpenRequest::Queued(read) = std::mem::replace(&mut self.request, OpenRequest::Open) else {
            unreachable!("a permit is granted to a queued request");
        };
        self.turn.begin(now);
        self.reflector.went_out(now);
        self.ask(read);
    }

    fn ended(&mut self, now: Time, end: End) {
        self.request = OpenRequest::Closed;
        if let End::Failed(failure) = end {
            let from = self.endpoints.current();
            self.endpoints.failed(now, failure.class);
            let is_too_old = failure.class == Class::Expired && !self.is_initial;
            // An old position may still be in the history window of the preferred endpoint.
            if let Some(to) = is_too_old.then(|| self.endpoints.expired(now)).flatten() {
                return self.fail_over(now, from, to);
            }
        }
        self.tell(now, Input::Ended(end));
    }

    fn fail_over(&mut self, now: Time, from: usize, to: usize) {
        self.report(SessionReport::Moved { from, to });
        self.use_verdict();
        if matches!(self.request, OpenRequest::Open) {
            self.close();
        }
        self.tell(now, Input::Moved { home: self.endpoints.is_home() });
    }

    fn use_verdict(&mut self) {
        self.verdict = self.verdicts.verdict(self.endpoints.current());
        self.reflector.set_verdict(self.verdict);
    }

    fn tell(&mut self, now: Time, input: Input<'_>) {
        self.reflector.handle(now, input);
        let _followed = self.follow(now, None);
    }

    /// Carries out what the reflector orders about objects and requests. `object` is the object just handed in.
    fn follow(&mut self, now: Time, object: Option<ReceivedObject<'_>>) -> FollowUp {
        let ReflectorOrders { mut next, has_stale_object } = self.obey(now, object);
        let has_request = next.is_some();
        while let Some(request) = next.take() {
            match request {
                NextRequest::Send(read) => self.send(read),
                NextRequest::Close => self.close(),
                NextRequest::Prove { at, by, skip } => {
                    if let Some(word) = self.prove(at, by, skip) {
                        self.reflector.handle(now, Input::Proof(Testimony::without_object(word)));
                        next = self.obey(now, None).next;
                    }
                }
            }
        }
        if !self.is_initial || matches!(self.request, OpenRequest::Closed) {
            self.give_back();
        }
        FollowUp { has_request, has_stale_object }
    }

    /// Carries out the reflector's actions in order, except those about requests.
    fn obey(&mut self, now: Time, object: Option<ReceivedObject<'_>>) -> ReflectorOrders {
        let mut ordered = ReflectorOrders::default();
        while let Some(action) = self.reflector.poll_action() {
            match action {
                Action::Send(read) => {
                    self.is_initial = read.is_initial();
                    ordered.next = Some(NextRequest::Send(read));
                }
                Action::Close => ordered.next = Some(NextRequest::Close),
                Action::Prove { at, by, skip } => {
                    self.is_initial = !self.is_synced;
                    ordered.next = Some(NextRequest::Prove { at, by, skip });
                }
                Action::Refuse => self.refuse(now),
                Action::Restored => self.restored(now),
                Action::Init { trusts_versions, continues_history } => {
                    self.give(now, Order::Init { trusts_versions, continues_history });
                }
                Action::InitDone(position) => self.synced(now, position),
                Action::InitApply | Action::Apply | Action::Delete if given(object).is_elsewhere => {}
                Action::InitApply => ordered.has_stale_object = self.give_object(now, given(object).init_apply()),
                Action::Apply => ordered.has_stale_object = self.give_object(now, given(object).apply()),
                Action::Delete => self.give(now, given(object).delete()),
                Action::Bookmark(position) => self.give(now, Order::Bookmark(position)),
                Action::Abandon => self.give(now, Order::Abandon),
                Action::Report(report) => self.reported(now, report),
            }
        }
        self.note_verdict();
        if self.reflector.is_settled() {
            self.endpoints.settle();
        }
        ordered
    }

    fn reported(&mut self, now: Time, report: Report) {
        if matches!(report, Report::Waiting { cause: Ending::Unanswered, .. }) {
            self.endpoints.failed(now, Class::Connection);
        }
        self.report(SessionReport::Reflector(report));
    }

    fn synced(&mut self, now: Time, position: ResourceVersion) {
        self.is_initial = false;
        self.is_synced = true;
        self.give(now, Order::InitDone(position.clone()));
        self.report(SessionReport::Synced(position));
    }

    /// Returns to the previous endpoint. The verdict found so far belongs to the refused one.
    fn refuse(&mut self, now: Time) {
        self.note_verdict();
        let from = self.endpoints.current();
        let to = self.endpoints.refuse(now);
        self.report(SessionReport::Reverted { from, to });
        self.use_verdict();
    }

    fn note_verdict(&mut self) {
        let verdict = self.reflector.verdict();
        if verdict != self.verdict {
            self.verdict = verdict;
            self.verdicts.set_verdict(self.endpoints.current(), verdict);
        }
    }

    /// Marks a restored state as current. It keeps its saved timestamp until the server next confirms it.
    fn restored(&mut self, now: Time) {
        self.is_initial = false;
        self.is_synced = true;
        self.is_sign = false;
        self.give(now, Order::Restored);
        self.report(SessionReport::Restored);
    }

    /// Sends a read, or queues it for a permit if it needs one and has none.
    fn send(&mut self, read: Read) {
        let is_page = matches!(read, Read::Page { .. });
        if !read.is_initial() || (is_page && self.turn.is_held()) {
            return self.ask(read);
        }
        self.give_back();
        self.request = OpenRequest::Queued(read.clone());
        self.actions.push_back(SessionAction::Queue { read, is_attempt: !is_page });
    }

    fn ask(&mut self, read: Read) {
        self.request = OpenRequest::Open;
        self.actions.push_back(SessionAction::Send { endpoint: self.endpoints.current(), read });
    }

    /// Reads one stored object. Returns the proof at once if no object is left to read.
    fn prove(&mut self, at: ResourceVersion, by: ProofBy, skip: usize) -> Option<Proof> {
        self.give_back();
        let word = match self.sink.evidence(skip, !self.endpoints.is_home()) {
            Evidence::Witness(witness) => {
                self.request = OpenRequest::Open;
                let endpoint = self.endpoints.current();
                self.actions.push_back(SessionAction::Prove { endpoint, witness, at, by });
                return None;
            }
            // Vouches only for the history; only the server can say whether lists are allowed.
            Evidence::Word if by == ProofBy::Get => Proof::Same,
            Evidence::Word | Evidence::Nothing => Proof::Nothing,
        };
        self.close();
        Some(word)
    }

    fn close(&mut self) {
        if !matches!(self.request, OpenRequest::Closed) {
            self.request = OpenRequest::Closed;
            self.actions.push_back(SessionAction::Close);
        }
    }

    /// Ends the turn in the relist budget, if it has one.
    fn give_back(&mut self) {
        if self.turn.end() {
            self.actions.push_back(SessionAction::Release);
        }
    }

    fn report(&mut self, report: SessionReport) {
        self.actions.push_back(SessionAction::Report(report));
    }

    fn confirm(&mut self, now: Time) {
        if std::mem::take(&mut self.is_sign) && !self.is_initial {
            self.confirmed_at = Some(now);
        }
    }

    /// The receiver of the objects.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// The receiver of the objects.
    pub const fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Index of the endpoint for requests, in order of preference.
    #[must_use]
    pub const fn endpoint(&self) -> usize {
        self.endpoints.current()
    }

    /// Returns true while readers wait for a state: no complete state yet, none proven and accepted, or a new one is
    /// being read.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.is_initial || !self.is_synced
    }

    /// Returns true once a state was complete, or restored and proven.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// When the server last confirmed what the store holds. A restored state is not confirmed by that alone.
    #[must_use]
    pub const fn confirmed_at(&self) -> Option<Time> {
        self.confirmed_at
    }

    /// The reflector, to read its position, counters and flags.
    #[must_use]
    pub const fn reflector(&self) -> &Reflector {
        &self.reflector
    }

    /// Counters of the reflector.
    #[must_use]
    pub const fn stats(&self) -> &ReflectorStats {
        self.reflector.stats()
    }

    /// Returns true once no request follows.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.reflector.is_over()
    }
}

#[cfg(test)]
mod tests;
