//! The scenarios of kube-apiserver's queueset tests, and random runs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::*;

/// Clients of one flow: each of `threads` sends the next request `think` after the answer to the last.
#[derive(Clone, Copy)]
struct UniformClient {
    flow: u64,
    threads: usize,
    calls: usize,
    execute: Duration,
    think: Duration,
    width: u32,
}

const SECOND: Duration = Duration::from_secs(1);
const ALMOST: Duration = SECOND.saturating_sub(Duration::from_nanos(1));

fn client(flow: u64, threads: usize, calls: usize, think: Duration) -> UniformClient {
    UniformClient { flow, threads, calls, execute: SECOND, think, width: 1 }
}

fn settings(queues: u32, length_limit: u32, hand_size: u32) -> Option<QueueSettings> {
    Some(QueueSettings { queues, hand_size, length_limit })
}

/// A run of uniform clients on a virtual clock.
struct Simulation {
    queues: FairQueues,
    clients: Vec<UniformClient>,
    now: Duration,
    /// Time, order of entry, client, thread and call; a grant's number for an end.
    events: BinaryHeap<Reverse<(Duration, u64, SimulationEvent)>>,
    order: u64,
    waiting: BTreeMap<FlowTicket, (usize, usize, usize)>,
    grants: BTreeMap<u64, SeatGrant>,
    /// Seat-seconds of each client up to the end of the evaluation.
    used: Vec<f64>,
    refused: usize,
    evaluated: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimulationEvent {
    Call { client: usize, thread: usize, call: usize },
    End(u64),
}

impl Simulation {
    fn run(queues: FairQueues, clients: &[UniformClient], evaluated: Duration) -> Self {
        let mut run = Self {
            queues,
            clients: clients.to_vec(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            waiting: BTreeMap::new(),
            grants: BTreeMap::new(),
            used: vec![0.0; clients.len()],
            refused: 0,
            evaluated,
        };
        for (client, of) in clients.iter().enumerate() {
            for thread in 0..of.threads {
                let delay = u64::try_from(90 * thread + 20 * client).unwrap();
                run.at(Duration::from_nanos(delay), SimulationEvent::Call { client, thread, call: 0 });
            }
        }
        while let Some(Reverse((time, _, event))) = run.events.pop() {
            run.now = time;
            run.handle(event);
            let most = run.queues.limit() + run.queues.limit() / GUESTS_PART;
            assert!(run.queues.seats_in_use() <= most.max(run.widest()), "seats exceed the limit");
        }
        assert!(run.queues.is_idle() && run.waiting.is_empty(), "every request ends");
        assert_eq!((run.queues.seats_in_use, run.queues.seats_waiting, run.queues.busy), (0, 0, 0));
        run
    }

    fn widest(&self) -> u32 {
        if self.grants.len() == 1 { self.grants.values().next().unwrap().width() } else { 0 }
    }

    fn at(&mut self, time: Duration, event: SimulationEvent) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn handle(&mut self, event: SimulationEvent) {
        let mut woken = Vec::new();
        match event {
            SimulationEvent::Call { client, thread, call } => {
                let of = self.clients[client];
                if call >= of.calls {
                    return;
                }
                let arrival =
                    self.queues.arrive(self.now, of.flow, of.width, |ticket, grant| woken.push((ticket, grant)));
                match arrival {
                    Arrival::Dispatched(grant) => self.execute((client, thread, call), grant),
                    Arrival::Queued(ticket) => drop(self.waiting.insert(ticket, (client, thread, call))),
                    Arrival::Refused(_) => self.refused += 1,
                }
            }
            SimulationEvent::End(grant) => {
                let grant = self.grants.remove(&grant).unwrap();
                self.queues.finish(self.now, grant, |ticket, grant| woken.push((ticket, grant)));
            }
        }
        for (ticket, grant) in woken {
            let call = self.waiting.remove(&ticket).unwrap();
            self.execute(call, grant);
        }
    }

    fn execute(&mut self, (client, thread, call): (usize, usize, usize), grant: SeatGrant) {
        let of = self.clients[client];
        let counted = (self.now + of.execute).min(self.evaluated).saturating_sub(self.now.min(self.evaluated));
        self.used[client] += counted.as_secs_f64() * f64::from(of.width);
        let end = self.order;
        self.grants.insert(end, grant);
        self.at(self.now + of.execute, SimulationEvent::End(end));
        let next = SimulationEvent::Call { client, thread, call: call + 1 };
        self.at(self.now + of.execute + of.think, next);
    }

    /// Checks that each client used its fair part of `seats` on average, within `margin` of it.
    fn expect_fair(&self, seats: u32, margin: f64) {
        let demands: Vec<_> = self.clients.iter().map(UniformClient::demand).collect();
        for ((used, fair), demand) in self.used.iter().zip(fair_parts(&demands, f64::from(seats))).zip(&demands) {
            let average = used / self.evaluated.as_secs_f64();
            assert!((average - fair).abs() <= margin * fair, "{average} of {demand}, where {fair} is fair");
        }
        assert_eq!(self.refused, 0);
    }
}

impl UniformClient {
    /// Seats that the client would use if it never waited.
    fn demand(&self) -> f64 {
        let busy = self.execute.as_secs_f64() / (self.execute + self.think).as_secs_f64();
        f64::from(u32::try_from(self.threads).unwrap()) * f64::from(self.width) * busy
    }

    const fn wide(self, width: u32) -> Self {
        Self { width, ..self }
    }
}

/// Returns the max-min fair parts of `seats`.
fn fair_parts(demands: &[f64], seats: f64) -> Vec<f64> {
    let part = |level: f64| demands.iter().map(|demand| demand.min(level)).sum::<f64>();
    let (mut low, mut high) = (0.0, seats);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if part(middle) < seats { low = middle } else { high = middle }
    }
    demands.iter().map(|demand| demand.min(high)).collect()
}

/// Goal: flows share the seats fairly. Method: the scenarios of kube-apiserver's `queueset_test.go`, with its margins.
#[test]
fn uniform_clients_get_their_fair_part() {
    let half = SECOND / 2;
    let zero = Duration::ZERO;
    let (one, two) = (1_001_001_001, 2_002_002_002);
    let (a, b) = (10_010_010_010_010, 20_020_020_020_020);
    for (name, shape, seats, clients, seconds, margin) in [
        ("baseline", settings(9, 8, 3), 1, vec![client(one, 1, 21, zero)], 20, 0.0),
        ("one flow with pauses", settings(9, 8, 3), 2, vec![client(one, 1, 25, SECOND)], 24, 0.0),
        (
            "two flows with pauses",
            settings(9, 8, 3),
            1,
            vec![client(one, 1, 25, SECOND), client(two, 1, 25, SECOND)],
            24,
            0.001,
        ),
        (
            "uniform, hand of 1",
            settings(9, 8, 1),
            4,
            vec![client(one, 8, 20, ALMOST), client(two, 8, 20, ALMOST)],
            50,
            0.01,
        ),
        (
            "uniform, hand of 3",
            settings(8, 16, 3),
            4,
            vec![client(400_900_100_100, 8, 30, ALMOST), client(300_900_200_200, 8, 30, ALMOST)],
            60,
            0.03,
        ),
        (
            "different, equal parts",
            settings(9, 8, 1),
            4,
            vec![client(one, 8, 20, SECOND), client(two, 7, 30, half)],
            40,
            0.01,
        ),
        (
            "different, unequal parts",
            settings(9, 6, 1),
            3,
            vec![client(one, 4, 20, ALMOST), client(two, 2, 20, ALMOST)],
            20,
            0.01,
        ),
        (
            "different widths",
            settings(64, 13, 7),
            6,
            vec![client(a, 13, 10, ALMOST), client(b, 7, 10, ALMOST).wide(2)],
            20,
            0.155,
        ),
    ] {
        println!("{name}");
        let queues = FairQueues::new(Duration::ZERO, shape, seats);
        Simulation::run(queues, &clients, Duration::from_secs(seconds)).expect_fair(seats, margin);
    }
}

#[test]
fn requests_wider_than_the_limit_are_served_alone() {
    let flows = [40_040_040_040_040, 50_050_050_050_050, 60_060_060_060_060, 70_070_070_070_070];
    let mut clients: Vec<_> = flows.map(|flow| client(flow, 15, 21, ALMOST).wide(2)).into();
    clients.push(client(90_090_090_090_090, 15, 21, ALMOST).wide(7));
    let queues = FairQueues::new(Duration::ZERO, settings(64, 35, 7), 6);
    Simulation::run(queues, &clients, Duration::from_secs(225)).expect_fair(6, 0.33);
}

#[test]
fn without_queues_requests_without_seats_are_refused() {
    let mut queues = FairQueues::new(Duration::ZERO, None, 2);
    let mut grants = Vec::new();
    let never = |_, _| panic!("none waits");
    for _ in 0..2 {
        let Arrival::Dispatched(grant) = queues.arrive(SECOND, 1, 1, never) else { panic!("a seat is free") };
        grants.push(grant);
    }
    assert_eq!(queues.arrive(SECOND, 2, 1, never), Arrival::Refused(RefusalReason::ConcurrencyLimit));
    queues.finish(SECOND, grants.pop().unwrap(), never);
    assert!(!queues.is_idle());
    assert!(matches!(queues.arrive(SECOND, 2, 1, never), Arrival::Dispatched(_)));
}

#[test]
fn a_level_without_seats_refuses_all() {
    let mut queues = FairQueues::new(Duration::ZERO, None, 0);
    let refused = queues.arrive(SECOND, 1, 1, |_, _| panic!("none waits"));
    assert_eq!(refused, Arrival::Refused(RefusalReason::ConcurrencyLimit));
}

#[test]
fn a_full_queue_refuses_and_a_cancelled_request_frees_its_place() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(1, 2, 1), 1);
    let never = |_, _| panic!("no seat is free");
    let Arrival::Dispatched(grant) = queues.arrive(SECOND, 1, 1, never) else { panic!("a seat is free") };
    let Arrival::Queued(first) = queues.arrive(SECOND, 1, 1, never) else { panic!("a place is free") };
    let Arrival::Queued(second) = queues.arrive(SECOND, 1, 1, never) else { panic!("a place is free") };
    assert_eq!(queues.arrive(SECOND, 1, 1, never), Arrival::Refused(RefusalReason::QueueFull));
    assert!(queues.cancel(SECOND, first, never));
    assert!(!queues.cancel(SECOND, first, never));
    let Arrival::Queued(third) = queues.arrive(SECOND, 1, 1, never) else { panic!("a place is free") };
    let mut next = Vec::new();
    queues.finish(2 * SECOND, grant, |ticket, grant| next.push((ticket, grant)));
    let (ticket, grant) = next.pop().unwrap();
    assert_eq!(ticket, second);
    queues.finish(2 * SECOND, grant, |ticket, grant| next.push((ticket, grant)));
    assert_eq!(next[0].0, third);
}

#[test]
fn a_queue_that_settings_lose_serves_its_requests() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(8, 10, 1), 1);
    let (mut waiting, mut grants) = (Vec::new(), Vec::new());
    for flow in 0..8 {
        match queues.arrive(SECOND, flow, 1, |_, _| panic!("no seat is free")) {
            Arrival::Dispatched(grant) => grants.push(grant),
            Arrival::Queued(ticket) => waiting.push(ticket),
            Arrival::Refused(reason) => panic!("{reason:?}"),
        }
    }
    queues.configure(SECOND, None, 2, |ticket, grant| {
        waiting.retain(|one| *one != ticket);
        grants.push(grant);
    });
    assert_eq!((waiting.len(), grants.len(), queues.queues.len()), (6, 2, 8));
    while let Some(grant) = grants.pop() {
        queues.finish(2 * SECOND, grant, |ticket, grant| {
            waiting.retain(|one| *one != ticket);
            grants.push(grant);
        });
    }
    assert!(waiting.is_empty() && queues.is_idle());
    assert_eq!(queues.queues.len(), 0);
}

/// Goal: a flow with any number of requests delays another flow's request by little, even if no seat beyond the limit is
/// free. Method: one flow fills its queues, another has the one guest's seat at first, then a request of each of 1,000 other flows
/// arrives in turn; the hands of nearly all have a queue without elephants.
#[test]
fn an_elephant_does_not_block_mice() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(128, 50, 6), 10);
    let (mut now, mut executing) = (SECOND, VecDeque::new());
    for _ in 0..1_000 {
        if let Arrival::Dispatched(grant) = queues.arrive(now, 77, 1, |_, _| {}) {
            executing.push_back(grant);
        }
    }
    assert_eq!(queues.waiting(), 300, "six queues of 50 are full");
    let Arrival::Dispatched(_guest) = queues.arrive(now, 78, 1, |_, _| {}) else { panic!("one guest has a seat") };
    let mut random = fastrand::Rng::with_seed(3);
    let (mut refused, mut late) = (0, 0);
    for _ in 0..1_000 {
        let ticket = match queues.arrive(now, random.u64(..), 1, |_, _| {}) {
            Arrival::Queued(ticket) => ticket,
            // The seat of a guest was free.
            Arrival::Dispatched(grant) => {
                queues.finish(now, grant, |_, grant| executing.push_back(grant));
                continue;
            }
            Arrival::Refused(_) => {
                refused += 1;
                continue;
            }
        };
        let mut ends = 0;
        let mut is_served = false;
        while !is_served {
            now += Duration::from_millis(3);
            ends += 1;
            let grant = executing.pop_front().unwrap();
            queues.finish(now, grant, |served, grant| {
                is_served |= served == ticket;
                executing.push_back(grant);
            });
            // The elephant sends the next request at once.
            if let Arrival::Dispatched(grant) = queues.arrive(now, 77, 1, |_, _| {}) {
                executing.push_back(grant);
            }
        }
        late = late.max(ends);
    }
    assert_eq!(refused, 0);
    assert!(late <= 20, "served after {late} ends, which is more than two rounds of seats");
}

/// Goal: no request is lost or served twice, and the limit holds, whatever happens. Method: random arrivals, ends,
/// cancellations and changes of limits and settings, against a model that counts.
#[test]
fn requests_are_conserved() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let shapes = [None, settings(1, 3, 1), settings(8, 5, 3), settings(64, 2, 6)];
        let mut queues = FairQueues::new(Duration::ZERO, shapes[random.usize(..4)], random.u32(1..12));
        let (mut waiting, mut grants, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
        for _ in 0..400 {
            now += Duration::from_micros(random.u64(..20_000));
            let mut woken = Vec::new();
            match random.u8(..100) {
                0..50 => {
                    let dispatch = |ticket, grant| woken.push((ticket, grant));
                    match queues.arrive(now, random.u64(..5), random.u32(1..=10), dispatch) {
                        Arrival::Dispatched(grant) => grants.push(grant),
                        Arrival::Queued(ticket) => waiting.push(ticket),
                        Arrival::Refused(_) => {}
                    }
                }
                50..90 if !grants.is_empty() => {
                    let grant = grants.swap_remove(random.usize(..grants.len()));
                    queues.finish(now, grant, |ticket, grant| woken.push((ticket, grant)));
                }
                90..97 if !waiting.is_empty() => {
                    let ticket = waiting.swap_remove(random.usize(..waiting.len()));
                    assert!(queues.cancel(now, ticket, |ticket, grant| woken.push((ticket, grant))));
                }
                _ => {
                    let (shape, limit) = (shapes[random.usize(..4)], random.u32(1..12));
                    queues.configure(now, shape, limit, |ticket, grant| woken.push((ticket, grant)));
                }
            }
            for (ticket, grant) in woken {
                let place = waiting.iter().position(|one| *one == ticket).expect("a request that waits");
                waiting.swap_remove(place);
                grants.push(grant);
            }
            let seats: u32 = grants.iter().map(SeatGrant::width).sum();
            assert_eq!((queues.waiting(), queues.executing()), (waiting.len(), grants.len()));
            assert_eq!(queues.seats_in_use(), seats);
        }
        // Without further arrivals, all are served.
        while let Some(grant) = grants.pop() {
            now += Duration::from_millis(1);
            queues.finish(now, grant, |ticket, grant| {
                waiting.retain(|one| *one != ticket);
                grants.push(grant);
            });
        }
        assert!(waiting.is_empty() && queues.is_idle(), "{seed}");
    }
}

/// Goal: seats in use never exceed the limit and its guests, but for a request that is wider and alone. Method: random arrivals and ends
/// under a fixed limit.
#[test]
fn the_limit_holds() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u32(1..30);
        let mut queues = FairQueues::new(Duration::ZERO, settings(16, 20, 4), limit);
        let mut grants = Vec::new();
        for step in 0..500 {
            let now = Duration::from_millis(step);
            let mut woken = Vec::new();
            if random.bool() || grants.is_empty() {
                let arrival = queues.arrive(now, random.u64(..9), random.u32(1..=10), |_, grant| woken.push(grant));
                woken.extend(if let Arrival::Dispatched(grant) = arrival { Some(grant) } else { None });
            } else {
                let grant: SeatGrant = grants.swap_remove(random.usize(..grants.len()));
                queues.finish(now, grant, |_, grant| woken.push(grant));
            }
            grants.extend(woken);
            let seats: u32 = grants.iter().map(SeatGrant::width).sum();
            let most = limit + limit / GUESTS_PART;
            let is_alone = grants.iter().filter(|grant| !grant.is_guest).count() == 1;
            assert!(seats <= most || is_alone, "{seats} of {limit} for {}", grants.len());
        }
    }
}

/// Goal: however many long requests of a flow, and of others, hold the seats, a flow without any gets one for a short request
/// at once, and no second one. Method: wide requests that never end, then requests of flows without seats.
#[test]
fn a_flow_without_seats_gets_one_at_once() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(128, 50, 6), 56);
    let never = |_, _| panic!("no seat is given back");
    let wide = (0..100).map(|index| queues.arrive(SECOND, 77 + index % 3, 8, never)).collect::<Vec<_>>();
    assert_eq!(wide.iter().filter(|arrival| matches!(arrival, Arrival::Dispatched(_))).count(), 7);
    let Arrival::Dispatched(first) = queues.arrive(SECOND, 5, 1, never) else { panic!("a guest") };
    let Arrival::Queued(second) = queues.arrive(SECOND, 5, 1, never) else { panic!("it has a seat") };
    let Arrival::Queued(_) = queues.arrive(SECOND, 6, 2, never) else { panic!("more than one seat") };
    let mut next = Vec::new();
    queues.finish(SECOND, first, |ticket, grant| next.push((ticket, grant)));
    assert_eq!(next.pop().map(|(ticket, _)| ticket), Some(second));
    let guests = (100..).take_while(|&flow| matches!(queues.arrive(SECOND, flow, 1, never), Arrival::Dispatched(_)));
    assert_eq!(guests.count(), 56 / 6 - 1);
    assert_eq!(queues.seats_in_use(), 56 + 56 / 6);
}

/// Goal: a flow that fills the queues of others does not take the seats beyond the limit from them. Method: one queue with one
/// place, which a flow with all seats has taken.
#[test]
fn a_full_queue_refuses_no_guest() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(1, 1, 1), 12);
    let never = |_, _| panic!("no seat is given back");
    let taken: Vec<_> = (0..13).map(|_| queues.arrive(SECOND, 1, 1, never)).collect();
    assert!(matches!(taken[11..], [Arrival::Dispatched(_), Arrival::Queued(_)]));
    let refused = Arrival::Refused(RefusalReason::QueueFull);
    assert_eq!(queues.arrive(SECOND, 1, 1, never), refused, "it has seats");
    let Arrival::Dispatched(guest) = queues.arrive(SECOND, 2, 1, never) else { panic!("a guest") };
    assert_eq!(queues.arrive(SECOND, 2, 1, never), refused, "it has a seat");
    assert_eq!(queues.arrive(SECOND, 3, 2, never), refused, "it needs two seats");
    let Arrival::Dispatched(_) = queues.arrive(SECOND, 3, 1, never) else { panic!("a guest") };
    assert_eq!(queues.arrive(SECOND, 4, 1, never), refused, "there are two guests");
    queues.finish(SECOND, guest, never);
    let Arrival::Dispatched(_) = queues.arrive(SECOND, 4, 1, never) else { panic!("a guest") };
    assert_eq!((queues.seats_in_use(), queues.waiting()), (14, 1));
}

/// Goal: guests keep the bound on queues, and none is lost. Method: random arrivals and ends at small queues.
#[test]
fn queues_stay_within_their_length_while_guests_pass_them() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queues = FairQueues::new(Duration::ZERO, settings(3, 2, 2), random.u32(6..20));
        let (mut grants, mut waiting): (Vec<SeatGrant>, _) = (Vec::new(), BTreeMap::new());
        for step in 0..500 {
            let (now, mut woken) = (Duration::from_millis(step), Vec::new());
            if random.u8(..3) > 0 || grants.is_empty() {
                let (flow, width) = (random.u64(..9), random.u32(1..=2));
                let has_guest_seat = width == 1 && queues.may_have_guest(flow);
                let arrival = queues.arrive(now, flow, width, |ticket, grant| woken.push((ticket, grant)));
                match arrival {
                    Arrival::Dispatched(grant) => grants.push(grant),
                    Arrival::Queued(ticket) => drop(waiting.insert(ticket, flow)),
                    Arrival::Refused(_) => {
                        let older = waiting.values().any(|&other| other == flow);
                        assert!(!has_guest_seat || older, "{seed}: a guest is refused");
                    }
                }
            } else {
                let grant = grants.swap_remove(random.usize(..grants.len()));
                queues.finish(now, grant, |ticket, grant| woken.push((ticket, grant)));
            }
            for (ticket, grant) in woken {
                assert!(waiting.remove(&ticket).is_some(), "{seed}: a ticket that does not wait");
                grants.push(grant);
            }
            assert!(queues.queues.iter().all(|queue| queue.waiting.len() <= 2), "{seed}");
            assert_eq!((queues.waiting(), queues.executing()), (waiting.len(), grants.len()), "{seed}");
            let seats = grants.iter().map(SeatGrant::width).sum::<u32>();
            assert_eq!(queues.seats_in_use(), seats, "{seed}");
        }
    }
}

/// Goal: short requests of many flows do not keep a wide one waiting. Method: sixty flows send their next request as soon as
/// the last one ends, and one request needs seven of 49 seats.
#[test]
fn guests_do_not_starve_wide_requests() {
    let mut queues = FairQueues::new(Duration::ZERO, settings(128, 50, 6), 49);
    let mut executing = VecDeque::new();
    let mut wide = None;
    let mut now = SECOND;
    for step in 0..10_000_u64 {
        now += Duration::from_millis(1);
        let mut dispatched = Vec::new();
        if step == 1_000 {
            let Arrival::Queued(ticket) = queues.arrive(now, 5_000, 7, |_, _| panic!("no seat is given back")) else {
                panic!("all seats are in use")
            };
            wide = Some(ticket);
        }
        if step >= 60 {
            let grant: SeatGrant = executing.pop_front().expect("requests are executed");
            queues.finish(now, grant, |ticket, grant| dispatched.push((ticket, grant)));
        }
        let arrival = queues.arrive(now, step % 60, 1, |ticket, grant| dispatched.push((ticket, grant)));
        if let Some(wide) = wide
            && dispatched.iter().any(|(ticket, _)| *ticket == wide)
        {
            return;
        }
        executing.extend(dispatched.into_iter().map(|(_, grant)| grant));
        executing.extend(if let Arrival::Dispatched(grant) = arrival { Some(grant) } else { None });
    }
    panic!("the wide request waits for ever");
}
