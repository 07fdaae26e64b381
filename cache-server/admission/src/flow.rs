//! Flow control: which requests wait for seats, and which are refused. The rules are those of `access_rules::flow`.
//!
//! INVARIANT: seats come back however a request or its response ends: each belongs to one [`Seat`], which gives them back
//! when it is dropped. INVARIANT: no task or thread waits for a request: a request that waits is a oneshot channel.
//! INVARIANT: exempt requests take no lock but for the current rules.
//!
//! A request holds its seats until it is answered, a watch until its initial state is sent, and a list until its body ends;
//! a body that its client does not read for [`SEAT_PARKED`] gives them back before, and takes them again to continue.

mod hold;
mod measures;
mod rules;
mod seat;
mod stored;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use access_rules::{
    flow::{
        config::FlowConfig,
        estimate::RequestCost,
        levels::{LevelId, PriorityLevels},
        objects::FlowObject,
        queues::{Arrival, FlowTicket, RefusalReason, SeatGrant},
        retry_after::RetryAfter,
    },
    request_info::RequestInfo,
    user::User,
};
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry as MetricsRegistry;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use self::{
    hold::HeldSeats,
    measures::FlowMeasures,
    rules::{FlowRules, SchemaRules},
    seat::SeatWait,
};
pub use self::{
    hold::SeatHold,
    rules::FlowHeaders,
    seat::{FlowAdmission, FlowRefusal, Seat},
    stored::follow,
};
use crate::limits::{SEAT_CHECK_EVERY, SEAT_CHECK_EVERY_HELD, SEAT_PARKED};

/// Flow control of one server.
pub struct FlowControl {
    began: Instant,
    /// Makes the hands of flows differ from those of other servers.
    seed: u64,
    seats: u32,
    rules: RwLock<Arc<FlowRules>>,
    table: Mutex<LevelTable>,
    exempt: ExemptRequests,
    /// Bodies with seats.
    held: HeldSeats,
    measures: Arc<FlowMeasures>,
}

/// The levels, and the requests that wait in their queues.
struct LevelTable {
    levels: PriorityLevels,
    waiting: HashMap<(LevelId, FlowTicket), oneshot::Sender<SeatGrant>>,
    /// By name of the level.
    retry_after: HashMap<String, RetryAfter>,
}

/// Number of exempt requests. They use seats that other levels then cannot borrow.
#[derive(Default)]
struct ExemptRequests {
    executing: AtomicU32,
    /// Most since the last adjustment of the levels.
    most: AtomicU32,
}

impl ExemptRequests {
    fn begin(&self) {
        let executing = self.executing.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(executing, Ordering::Relaxed);
    }

    fn end(&self) {
        self.executing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LevelTable {
    /// Gives seats to a request that waited.
    fn wake(
        waiting: &mut HashMap<(LevelId, FlowTicket), oneshot::Sender<SeatGrant>>,
        key: (LevelId, FlowTicket),
        grant: SeatGrant,
    ) {
        let sender = waiting.remove(&key).expect("a ticket waits until it is dispatched or cancelled");
        // The receiver is dropped only after its ticket was removed under the same lock.
        sender.send(grant).expect("a request that waits can be woken");
    }
}

impl FlowControl {
    /// Creates flow control with the objects that every cluster has. `seats` are shared by its levels.
    pub fn new(seats: u32) -> Self {
        let (began, config) = (Instant::now(), FlowConfig::builtin());
        let levels = PriorityLevels::new(Duration::ZERO, seats, &config);
        let measures = Arc::<FlowMeasures>::default();
        let rules = RwLock::new(Arc::new(FlowRules::new(config, &levels, &measures)));
        measures.set_limits(levels.seats());
        let table = LevelTable { levels, waiting: HashMap::new(), retry_after: HashMap::new() };
        let (seed, exempt, held) = (fastrand::u64(..), ExemptRequests::default(), HeldSeats::default());
        Self { began, seed, seats, rules, table: Mutex::new(table), exempt, held, measures }
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut MetricsRegistry) {
        self.measures.register(registry);
    }

    /// Takes other objects over, at once. Requests keep their seats and their places in queues.
    pub fn configure(&self, objects: impl IntoIterator<Item = FlowObject>) {
        let config = FlowConfig::new(objects);
        for name in config.unused() {
            tracing::warn!(name, "FlowSchema or PriorityLevelConfiguration without effect");
        }
        let table = &mut *self.table.lock();
        let LevelTable { levels, waiting, retry_after } = table;
        let exempt = self.exempt.most.load(Ordering::Relaxed);
        levels.configure(self.now(), &config, exempt, |level, ticket, grant| {
            LevelTable::wake(waiting, (level, ticket), grant);
        });
        retry_after.retain(|name, _| config.levels().contains_key(name));
        let rules = FlowRules::new(config, levels, &self.measures);
        self.measures.retain(&rules);
        self.measures.set_limits(levels.seats());
        *self.rules.write() = Arc::new(rules);
    }

    /// Counts changed files that were read again.
    pub fn count_reload(&self, is_used: bool) {
        self.measures.reloaded(is_used);
    }

    /// Finds seats for a request of `user`. `cost` is called unless the request is exempt.
    pub fn arrive(
        self: &Arc<Self>,
        user: &User,
        info: &RequestInfo,
        cost: impl FnOnce() -> RequestCost,
    ) -> FlowAdmission {
        let mut rules = Arc::clone(&self.rules.read());
        let mut schema = rules.classify(user, info);
        if schema.level.is_none() {
            self.exempt.begin();
            return FlowAdmission::Seated(Seat::exempt(self, schema));
        }
        let cost = cost();
        loop {
            let Some((level, width_max)) = schema.level else {
                self.exempt.begin();
                return FlowAdmission::Seated(Seat::exempt(self, schema));
            };
            let (flow, width) = (schema.schema.flow(self.seed, user, info), cost.width(width_max));
            if let Some(admission) = self.arrive_at(schema, level, flow, width) {
                return admission;
            }
            // The level was removed after the rules were read.
            rules = Arc::clone(&self.rules.read());
            schema = rules.classify(user, info);
        }
    }

    fn arrive_at(
        self: &Arc<Self>,
        schema: &Arc<SchemaRules>,
        level: LevelId,
        flow: u64,
        width: u32,
    ) -> Option<FlowAdmission> {
        let LevelTable { levels, waiting, .. } = &mut *self.table.lock();
        let arrival = levels.arrive(self.now(), level, flow, width, |ticket, grant| {
            LevelTable::wake(waiting, (level, ticket), grant);
        });
        Some(match arrival? {
            Arrival::Dispatched(grant) => {
                FlowAdmission::Seated(Seat::granted(self, schema, level, grant, Duration::ZERO))
            }
            Arrival::Queued(ticket) => {
                let (sender, receiver) = oneshot::channel();
                waiting.insert((level, ticket), sender);
                FlowAdmission::Waits(SeatWait::new(self, schema, (level, ticket), width, receiver))
            }
            Arrival::Refused(reason) => FlowAdmission::Refused(Box::new((Arc::clone(schema), reason))),
        })
    }

    /// Counts a refusal, and returns the answer to it.
    pub fn refuse(&self, schema: &SchemaRules, reason: RefusalReason) -> FlowRefusal {
        schema.measures.refused(reason);
        let now = self.now().as_secs();
        let mut table = self.table.lock();
        let retry_after = table.retry_after.entry(schema.schema.level.clone()).or_default().refused(now);
        FlowRefusal { retry_after, headers: schema.headers.clone() }
    }

    fn finish(&self, level: LevelId, grant: SeatGrant) {
        let LevelTable { levels, waiting, .. } = &mut *self.table.lock();
        levels.finish(self.now(), level, grant, |ticket, grant| LevelTable::wake(waiting, (level, ticket), grant));
    }

    /// Ends the wait of a request. Returns false if it has its seats already.
    fn cancel(&self, key: (LevelId, FlowTicket)) -> bool {
        let LevelTable { levels, waiting, .. } = &mut *self.table.lock();
        let (level, ticket) = key;
        if waiting.remove(&key).is_none() {
            return false;
        }
        levels.cancel(self.now(), level, ticket, |ticket, grant| LevelTable::wake(waiting, (level, ticket), grant))
    }

    /// Time since the start: the clock of the levels.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Adjusts the levels when that is due, and takes seats from bodies that are not read. Returns the pause before the next
    /// check.
    fn check(&self) -> Duration {
        let now = self.now();
        {
            let LevelTable { levels, waiting, .. } = &mut *self.table.lock();
            let most = self.exempt.most.load(Ordering::Relaxed);
            let wake = |level, ticket, grant| LevelTable::wake(waiting, (level, ticket), grant);
            if levels.tick(now, most, wake) {
                self.exempt.most.store(self.exempt.executing.load(Ordering::Relaxed), Ordering::Relaxed);
                self.measures.set_limits(levels.seats());
            }
        }
        // Dropped outside of both locks: a seat gives itself back.
        drop(self.held.parked_since(now.saturating_sub(SEAT_PARKED)));
        if self.held.is_empty() { SEAT_CHECK_EVERY } else { SEAT_CHECK_EVERY_HELD }
    }
}

/// Adjusts levels and takes seats from bodies that are not read, until the server is dropped.
pub async fn keep_checking(flow: Weak<FlowControl>) {
    loop {
        let Some(pause) = flow.upgrade().map(|flow| flow.check()) else { return };
        sleep(pause).await;
    }
}

impl std::fmt::Debug for FlowControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowControl").field("seats", &self.seats).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub mod tests;
