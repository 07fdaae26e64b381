//! Fair queues of one priority level: which waiting request gets the next free seats.
//!
//! Each flow uses a hand of the queues, and a request waits in the shortest of them. A virtual clock advances by the
//! seat-seconds that each busy queue would get if all got equally much. Each queue has the virtual time of its next
//! dispatch, and the queue whose oldest request would finish first in virtual time is served next.
//!
//! A flow that has no seats gets one beyond the limit at once, if its request needs one: short requests do not wait for the
//! long ones of others.
//!
//! INVARIANT: the seats in use exceed the limit by a part of it at most (`GUESTS_PART`); by more only if the one request
//! in execution that is no guest is wider than the limit, or if the limit fell meanwhile.
//! INVARIANT: guests never count for the limit: a wide request gets its seats however many short ones arrive meanwhile.
//! INVARIANT: every grant comes back through `finish`, every ticket through `finish` of its grant or `cancel`.
//!
//! Differs from kube-apiserver: a request has one width for its whole life; a queue that is full refuses requests even if
//! seats are free (the one at its head is too wide for them), so that its length is bounded, but none that gets a seat beyond
//! the limit at once; kube-apiserver has no such seats.
//!
//! Source: apiserver `util/flowcontrol/fairqueuing/queueset`.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{dealer, demand::SeatDemand, objects::QueueSettings};

/// Seat-nanoseconds, of the virtual clock or of a request.
type VirtualWork = i128;

/// Assumed duration of a request that is not finished yet.
const ESTIMATED_DURATION: Duration = Duration::from_millis(3);

/// One seat for so many of the limit is added for flows that have none. A level with fewer seats has no such seat.
const GUESTS_PART: u32 = 6;

/// A request that waits for its seats. Unique within its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowTicket(u64);

/// The seats of a request. Not cloneable: it is given back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the seats stay in use until the grant is given to `finish`"]
pub struct SeatGrant {
    width: u32,
    since: Duration,
    flow: u64,
    /// The queue that the request waited in; `None` if its level had none.
    queue: Option<usize>,
    /// True if its one seat is beyond the limit.
    is_guest: bool,
}

impl SeatGrant {
    /// Returns the number of seats.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.width
    }

    /// Returns the hash of the flow.
    #[must_use]
    pub const fn flow(&self) -> u64 {
        self.flow
    }
}

/// Outcome of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It has its seats.
    Dispatched(SeatGrant),
    /// It waits.
    Queued(FlowTicket),
    /// It is refused.
    Refused(RefusalReason),
}

/// Reason to refuse a request: the values of the label `reason` of kube-apiserver's metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The seats are in use, and the level has no queues.
    ConcurrencyLimit,
    /// The queues of its flow are full.
    QueueFull,
    /// It waited too long, or its client left.
    TimeOut,
}

impl RefusalReason {
    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// The queues of a level. Time is that since any fixed moment, and does not go back.
#[derive(Debug)]
pub struct FairQueues {
    /// `None`: requests that find no seat are refused.
    settings: Option<QueueSettings>,
    limit: u32,
    /// As many as `settings` has, and further ones that are not empty yet.
    queues: Vec<FairQueue>,
    /// The virtual clock.
    progress: VirtualWork,
    last: Duration,
    /// The queue that was served last.
    robin: usize,
    arrivals: usize,
    next_ticket: u64,
    waiting: usize,
    executing: usize,
    seats_in_use: u32,
    /// Part of `seats_in_use` that is beyond the limit: the number of guests.
    guests: u32,
    /// Part of `seats_in_use` that belongs to no queue.
    seats_without_queue: u32,
    seats_waiting: u32,
    /// Queues with requests that wait or are executed.
    busy: u32,
    /// Flows with seats, and how many.
    flows: HashMap<u64, u32>,
    pub(super) demand: SeatDemand,
}

#[derive(Debug, Default)]
struct FairQueue {
    /// Oldest first.
    waiting: VecDeque<WaitingRequest>,
    seats_waiting: u32,
    executing: u32,
    seats_in_use: u32,
    /// Virtual time of its next dispatch.
    next_dispatch: VirtualWork,
}

#[derive(Debug)]
struct WaitingRequest {
    ticket: FlowTicket,
    flow: u64,
    width: u32,
    arrived: VirtualWork,
}

impl FairQueue {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    /// A queue that could not use its share may not save it up: no request is dispatched before it arrived.
    fn bound_next_dispatch(&mut self) {
        if let Some(oldest) = self.waiting.front() {
            self.next_dispatch = self.next_dispatch.max(oldest.arrived);
        }
    }
}

fn work(width: u32, time: Duration) -> VirtualWork {
    VirtualWork::from(width) * time.as_nanos().cast_signed()
}

impl FairQueues {
    /// Creates queues with `limit` seats.
    #[must_use]
    pub fn new(now: Duration, settings: Option<QueueSettings>, limit: u32) -> Self {
        let mut queues = Self {
            settings: None,
            limit,
            queues: Vec::new(),
            progress: 0,
            last: now,
            robin: 0,
            arrivals: 0,
            next_ticket: 0,
            waiting: 0,
            executing: 0,
            seats_in_use: 0,
            guests: 0,
            seats_without_queue: 0,
            seats_waiting: 0,
            busy: 0,
            flows: HashMap::new(),
            demand: SeatDemand::new(now),
        };
        queues.resize(settings);
        queues
    }

    /// Changes settings and limit. Requests that wait keep their places; surplus queues go once they are idle. Calls
    /// `dispatch` for each request that gets its seats.
    pub fn configure(
        &mut self,
        now: Duration,
        settings: Option<QueueSettings>,
        limit: u32,
        dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) {
        self.advance(now);
        self.limit = limit;
        self.resize(settings);
        self.dispatch_all(now, dispatch);
    }

    /// Takes up a request of `width` seats. `flow` is the hash of its flow. Calls `dispatch` for each request that waited
    /// before and gets its seats.
    pub fn arrive(
        &mut self,
        now: Duration,
        flow: u64,
        width: u32,
        mut dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) -> Arrival {
        self.advance(now);
        let width = width.max(1);
        let Some(settings) = self.settings else {
            if !self.has_seats(width) {
                return Arrival::Refused(RefusalReason::ConcurrencyLimit);
            }
            self.executing += 1;
            self.seats_in_use += width;
            self.seats_without_queue += width;
            self.note_demand(now);
            return Arrival::Dispatched(SeatGrant { width, since: now, flow, queue: None, is_guest: false });
        };
        let at = self.shortest_of_hand(settings, flow);
        let length_limit = settings.length_limit as usize;
        // A guest needs no place: it leaves its queue below.
        if self.queues[at].waiting.len() >= length_limit && (width > 1 || !self.may_have_guest(flow)) {
            return Arrival::Refused(RefusalReason::QueueFull);
        }
        let ticket = self.enqueue(at, flow, width);
        self.note_demand(now);
        let mut own = None;
        let mut dispatch = |dispatched, grant| {
            if dispatched == ticket { own = Some(grant) } else { dispatch(dispatched, grant) }
        };
        self.dispatch_all(now, &mut dispatch);
        self.seat_guest(now, settings, flow, dispatch);
        if own.is_none() && self.queues[at].waiting.len() > length_limit {
            // An older request of the flow, in another queue, became the guest. The new one is the last of its queue.
            self.withdraw(now, at, self.queues[at].waiting.len() - 1);
            return Arrival::Refused(RefusalReason::QueueFull);
        }
        own.map_or(Arrival::Queued(ticket), Arrival::Dispatched)
    }

    /// Takes the seats of a request back. Calls `dispatch` for each request that gets seats.
    pub fn finish(&mut self, now: Duration, grant: SeatGrant, mut dispatch: impl FnMut(FlowTicket, SeatGrant)) {
        self.advance(now);
        let SeatGrant { width, since, flow, queue, is_guest } = grant;
        self.executing -= 1;
        self.seats_in_use -= width;
        self.guests -= u32::from(is_guest);
        match queue {
            None => self.seats_without_queue -= width,
            Some(at) => {
                let queue = &mut self.queues[at];
                queue.executing -= 1;
                queue.seats_in_use -= width;
                // The dispatch counted the estimated duration.
                queue.next_dispatch += work(width, now.saturating_sub(since)) - work(width, ESTIMATED_DURATION);
                queue.bound_next_dispatch();
                self.busy -= u32::from(queue.is_idle());
                self.drop_surplus();
                if let Some(seats) = self.flows.get_mut(&flow) {
                    *seats -= width;
                    if *seats == 0 {
                        self.flows.remove(&flow);
                    }
                }
            }
        }
        self.note_demand(now);
        self.dispatch_all(now, &mut dispatch);
        if let Some(settings) = self.settings {
            self.seat_guest(now, settings, flow, dispatch);
        }
    }

    /// Removes a request that no longer waits for its seats. Returns false if it has them already.
    pub fn cancel(&mut self, now: Duration, ticket: FlowTicket, dispatch: impl FnMut(FlowTicket, SeatGrant)) -> bool {
        self.advance(now);
        let place = |queue: &FairQueue| queue.waiting.binary_search_by_key(&ticket, |one| one.ticket).ok();
        let mut places = self.queues.iter().enumerate();
        let Some((at, place)) = places.find_map(|(at, queue)| place(queue).map(|place| (at, place))) else {
            return false;
        };
        self.withdraw(now, at, place);
        // A request behind one that was too wide may have its seats now.
        self.dispatch_all(now, dispatch);
        true
    }

    /// Removes the request at a place of a queue, without seats.
    fn withdraw(&mut self, now: Duration, at: usize, place: usize) {
        let queue = &mut self.queues[at];
        let Some(request) = queue.waiting.remove(place) else { return };
        queue.seats_waiting -= request.width;
        queue.bound_next_dispatch();
        self.busy -= u32::from(queue.is_idle());
        self.waiting -= 1;
        self.seats_waiting -= request.width;
        self.drop_surplus();
        self.note_demand(now);
    }

    /// Returns true if no request waits or is executed.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of requests that are executed.
    #[must_use]
    pub const fn executing(&self) -> usize {
        self.executing
    }

    /// Returns the seats in use.
    #[must_use]
    pub const fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// Returns the number of seats.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the seats that requests used or waited for since the last call.
    pub(super) fn take_demand(&mut self, now: Duration) -> super::demand::DemandSummary {
        self.demand.take(now)
    }

    fn note_demand(&mut self, now: Duration) {
        self.demand.set(now, self.seats_in_use + self.seats_waiting);
    }

    fn resize(&mut self, settings: Option<QueueSettings>) {
        self.settings = settings;
        let configured = settings.map_or(0, |settings| settings.queues as usize);
        if configured > self.queues.len() {
            self.queues.resize_with(configured, FairQueue::default);
        }
        self.drop_surplus();
    }

    /// Removes idle queues at the end that the settings do not have: the places of the others stay.
    fn drop_surplus(&mut self) {
        let configured = self.settings.map_or(0, |settings| settings.queues as usize);
        while self.queues.len() > configured && self.queues.last().is_some_and(FairQueue::is_idle) {
            self.queues.pop();
        }
    }

    /// Advances the virtual clock. Call before any change.
    fn advance(&mut self, now: Duration) {
        let time = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if self.busy > 0 {
            let demand = self.seats_in_use - self.seats_without_queue + self.seats_waiting;
            self.progress += work(demand.min(self.limit), time) / VirtualWork::from(self.busy);
        }
    }

    /// Returns the queue of the flow's hand with the least waiting work. Begins with another card for each request, so
    /// that flows with common cards do not prefer the same.
    fn shortest_of_hand(&mut self, settings: QueueSettings, flow: u64) -> usize {
        let mut hand = [0; dealer::HAND_MAX];
        let mut dealt = 0;
        dealer::deal(settings.queues, settings.hand_size, flow, |card| {
            hand[dealt] = card;
            dealt += 1;
        });
        let first = self.arrivals % dealt.max(1);
        self.arrivals = self.arrivals.wrapping_add(1);
        let in_turn = hand[first..dealt].iter().chain(&hand[..first]);
        in_turn.copied().min_by_key(|&at| self.queues[at].seats_waiting).unwrap_or_default()
    }

    fn enqueue(&mut self, at: usize, flow: u64, width: u32) -> FlowTicket {
        let (ticket, arrived) = (FlowTicket(self.next_ticket), self.progress);
        self.next_ticket += 1;
        let queue = &mut self.queues[at];
        if queue.is_idle() {
            queue.next_dispatch = arrived;
            self.busy += 1;
        }
        queue.waiting.push_back(WaitingRequest { ticket, flow, width, arrived });
        queue.bound_next_dispatch();
        queue.seats_waiting += width;
        self.waiting += 1;
        self.seats_waiting += width;
        ticket
    }

    fn has_seats(&self, width: u32) -> bool {
        let in_limit = self.seats_in_limit();
        if width > self.limit { in_limit == 0 && self.limit > 0 } else { in_limit + width <= self.limit }
    }

    /// Returns the seats in use that count for the limit.
    const fn seats_in_limit(&self) -> u32 {
        self.seats_in_use - self.guests
    }

    fn dispatch_all(&mut self, now: Duration, mut dispatch: impl FnMut(FlowTicket, SeatGrant)) {
        while self.waiting > 0 && self.seats_in_limit() < self.limit {
            let Some(at) = self.next_queue() else { return };
            let Some(request) = self.queues[at].waiting.pop_front() else { return };
            self.robin = at;
            let (ticket, grant) = self.seat(now, at, &request);
            dispatch(ticket, grant);
        }
    }

    /// Gives seats to a request that was taken out of its queue.
    fn seat(&mut self, now: Duration, at: usize, request: &WaitingRequest) -> (FlowTicket, SeatGrant) {
        let &WaitingRequest { ticket, flow, width, .. } = request;
        let queue = &mut self.queues[at];
        queue.seats_waiting -= width;
        queue.executing += 1;
        queue.seats_in_use += width;
        queue.next_dispatch += work(width, ESTIMATED_DURATION);
        queue.bound_next_dispatch();
        self.waiting -= 1;
        self.seats_waiting -= width;
        self.executing += 1;
        self.seats_in_use += width;
        *self.flows.entry(flow).or_default() += width;
        (ticket, SeatGrant { width, since: now, flow, queue: Some(at), is_guest: false })
    }

    /// True if a request of the flow may have a seat beyond the limit.
    fn may_have_guest(&self, flow: u64) -> bool {
        self.guests < self.limit / GUESTS_PART && !self.flows.contains_key(&flow)
    }

    /// Gives a flow that has no seats one beyond the limit, for its oldest request that needs one. Cost: a look at the
    /// requests in the queues of its hand, and only while requests wait.
    fn seat_guest(
        &mut self,
        now: Duration,
        settings: QueueSettings,
        flow: u64,
        mut dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) {
        if self.waiting == 0 || !self.may_have_guest(flow) {
            return;
        }
        let mut oldest: Option<(FlowTicket, usize, usize)> = None;
        dealer::deal(settings.queues, settings.hand_size, flow, |at| {
            let mut waiting = self.queues[at].waiting.iter().enumerate();
            let own = waiting.find(|(_, request)| request.flow == flow && request.width == 1);
            oldest = oldest.into_iter().chain(own.map(|(place, request)| (request.ticket, at, place))).min();
        });
        if let Some((_, at, place)) = oldest
            && let Some(request) = self.queues[at].waiting.remove(place)
        {
            let (ticket, grant) = self.seat(now, at, &request);
            self.guests += 1;
            dispatch(ticket, SeatGrant { is_guest: true, ..grant });
        }
    }

    /// Returns the queue to serve: the one whose oldest request would finish first in virtual time, and of equal ones the
    /// next after the one served last. `None` if that request has to wait for more seats.
    fn next_queue(&self) -> Option<usize> {
        let first = (self.robin + 1) % self.queues.len().max(1);
        let in_turn = (first..self.queues.len()).chain(0..first);
        let oldest = in_turn.filter_map(|at| {
            let queue = &self.queues[at];
            queue.waiting.front().map(|request| (at, request.width, queue.next_dispatch))
        });
        let finish = |width, start: VirtualWork| start + work(width, ESTIMATED_DURATION);
        let (at, width, _) = oldest.min_by_key(|&(_, width, start)| finish(width, start))?;
        self.has_seats(width).then_some(at)
    }
}

#[cfg(test)]
mod tests;
