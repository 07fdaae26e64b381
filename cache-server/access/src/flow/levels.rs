//! All priority levels of a server: their seats, and who borrows how many.
//!
//! INVARIANT: knows requests only by their level, flow and width. Exempt requests do not come here.
//!
//! Source: apiserver `util/flowcontrol/apf_controller.go`.

use std::time::Duration;

use super::{
    config::FlowConfig,
    demand::{SeatBounds, share},
    estimate::WIDTH_MAX,
    objects::{LimitResponse, PriorityLevel, QueueSettings},
    queues::{Arrival, FairQueues, FlowTicket, SeatGrant},
};

/// Pause between two adjustments of the limits to the demand.
pub const ADJUST_EVERY: Duration = Duration::from_secs(10);

/// Part of the smoothed demand that remains after [`ADJUST_EVERY`]: half of it after five minutes.
const SMOOTHING: f64 = 0.977;

/// Part of a level's seats that one request may use.
const WIDTH_SHARE: f64 = 0.15;

/// Identifies a level while it exists; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LevelId(u64);

/// The seats of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelSeats {
    /// Its name.
    pub name: String,
    /// Seats by its configuration.
    pub nominal: u32,
    /// Seats that it does not lend.
    pub lower: u32,
    /// Seats that it has at most.
    pub upper: u32,
    /// Seats that it has now.
    pub current: u32,
    /// Seats in use.
    pub in_use: u32,
    /// Requests that are executed.
    pub executing: usize,
    /// Requests that wait.
    pub waiting: usize,
}

/// The priority levels of a server.
#[derive(Debug)]
pub struct PriorityLevels {
    seats: u32,
    levels: Vec<LevelState>,
    next_id: u64,
    adjusted: Duration,
}

#[derive(Debug)]
struct LevelState {
    id: LevelId,
    spec: PriorityLevel,
    /// True once the configuration does not have the level; it goes when its last request has.
    is_removed: bool,
    queues: FairQueues,
    nominal: u32,
    lower: u32,
    upper: u32,
    smoothed: f64,
    /// Most seats requested in the last period.
    most: u32,
}

impl LevelState {
    fn settings(&self) -> Option<QueueSettings> {
        match self.spec.response {
            LimitResponse::Queue(settings) => Some(settings),
            LimitResponse::Reject | LimitResponse::Exempt => None,
        }
    }

    fn is_exempt(&self) -> bool {
        self.spec.response == LimitResponse::Exempt
    }

    /// Returns the seats that the level keeps if it has lent the others: those of its demand, and of what it does not lend.
    fn needed(&self) -> u32 {
        if self.is_exempt() { self.most.max(self.lower) } else { self.most.min(self.nominal).max(self.lower) }
    }

    /// Returns the largest width of one of its requests.
    fn width_max(&self) -> u32 {
        let Some(settings) = self.settings() else { return WIDTH_MAX };
        let part = rounded((f64::from(self.nominal) * WIDTH_SHARE).ceil());
        part.min(self.nominal / settings.hand_size).clamp(1, WIDTH_MAX)
    }
}

fn rounded(seats: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
    let seats = seats.round() as u32;
    seats
}

impl PriorityLevels {
    /// Creates the levels of `config`, which share `seats`.
    #[must_use]
    pub fn new(now: Duration, seats: u32, config: &FlowConfig) -> Self {
        let mut levels = Self { seats, levels: Vec::new(), next_id: 0, adjusted: now };
        levels.configure(now, config, 0, |_, _, _| {});
        levels
    }

    /// Takes another configuration over. Requests keep their seats and places; a removed level serves those that it
    /// has. `exempt` is the largest number of exempt requests since the last adjustment.
    pub fn configure(
        &mut self,
        now: Duration,
        config: &FlowConfig,
        exempt: u32,
        dispatch: impl FnMut(LevelId, FlowTicket, SeatGrant),
    ) {
        for state in &mut self.levels {
            state.is_removed = true;
        }
        for level in config.levels().values() {
            match self.levels.iter_mut().find(|state| state.spec.name == level.name) {
                Some(state) => (state.spec, state.is_removed) = (level.clone(), false),
                None => {
                    let id = LevelId(self.next_id);
                    self.next_id += 1;
                    let queues = FairQueues::new(now, None, 0);
                    let (nominal, lower, upper, smoothed, most) = (0, 0, 0, 0.0, 0);
                    let spec = level.clone();
                    self.levels.push(LevelState {
                        id,
                        spec,
                        is_removed: false,
                        queues,
                        nominal,
                        lower,
                        upper,
                        smoothed,
                        most,
                    });
                }
            }
        }
        self.levels.retain(|state| !state.is_removed || !state.queues.is_idle());
        self.divide();
        self.adjust(now, exempt, dispatch);
    }

    /// Returns the level of a name and the largest width of its requests.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(LevelId, u32)> {
        let mut present = self.levels.iter().filter(|state| !state.is_removed);
        present.find(|state| state.spec.name == name).map(|state| (state.id, state.width_max()))
    }

    /// Takes up a request, as [`FairQueues::arrive`]. `None` if the level was removed: the request has to be classified again.
    pub fn arrive(
        &mut self,
        now: Duration,
        level: LevelId,
        flow: u64,
        width: u32,
        mut dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) -> Option<Arrival> {
        let state = self.level(level).filter(|state| !state.is_removed)?;
        Some(state.queues.arrive(now, flow, width, &mut dispatch))
    }

    /// Takes seats back, as [`FairQueues::finish`].
    pub fn finish(
        &mut self,
        now: Duration,
        level: LevelId,
        grant: SeatGrant,
        dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) {
        if let Some(state) = self.level(level) {
            state.queues.finish(now, grant, dispatch);
        }
    }

    /// Removes a request that waits, as [`FairQueues::cancel`].
    pub fn cancel(
        &mut self,
        now: Duration,
        level: LevelId,
        ticket: FlowTicket,
        dispatch: impl FnMut(FlowTicket, SeatGrant),
    ) -> bool {
        self.level(level).is_some_and(|state| state.queues.cancel(now, ticket, dispatch))
    }

    /// Adjusts the limits to the demand if [`ADJUST_EVERY`] has passed, and drops removed levels that are idle. Returns true
    /// if it did.
    pub fn tick(&mut self, now: Duration, exempt: u32, dispatch: impl FnMut(LevelId, FlowTicket, SeatGrant)) -> bool {
        if now.saturating_sub(self.adjusted) < ADJUST_EVERY {
            return false;
        }
        self.levels.retain(|state| !state.is_removed || !state.queues.is_idle());
        self.divide();
        self.adjust(now, exempt, dispatch);
        true
    }

    /// Returns the seats of all levels.
    pub fn seats(&self) -> impl Iterator<Item = LevelSeats> + '_ {
        self.levels.iter().map(|state| LevelSeats {
            name: state.spec.name.clone(),
            nominal: state.nominal,
            lower: state.lower,
            upper: state.upper,
            current: state.queues.limit(),
            in_use: state.queues.seats_in_use(),
            executing: state.queues.executing(),
            waiting: state.queues.waiting(),
        })
    }

    fn level(&mut self, id: LevelId) -> Option<&mut LevelState> {
        self.levels.iter_mut().find(|state| state.id == id)
    }

    /// Divides the server's seats by shares. Removed levels that are busy still have theirs. The sum may exceed the
    /// server's seats by one for each level.
    fn divide(&mut self) {
        let shares: f64 = self.levels.iter().map(|state| f64::from(state.spec.shares)).sum();
        for state in &mut self.levels {
            let part = f64::from(state.spec.shares) / shares.max(1.0);
            state.nominal = rounded((f64::from(self.seats) * part).ceil());
            let percent = |percent: i32| rounded(f64::from(state.nominal) * f64::from(percent) / 100.0);
            state.lower = state.nominal.saturating_sub(percent(state.spec.lendable_percent));
            state.upper = state.nominal.saturating_add(state.spec.borrowing_percent.map_or(self.seats, percent));
        }
    }

    /// Sets the limits by the demand of the period that ends now.
    fn adjust(&mut self, now: Duration, exempt: u32, mut dispatch: impl FnMut(LevelId, FlowTicket, SeatGrant)) {
        self.adjusted = now;
        for state in &mut self.levels {
            state.note_demand(now, exempt);
        }
        let limits = self.limits();
        for (state, limit) in self.levels.iter_mut().zip(limits) {
            let (id, settings) = (state.id, state.settings());
            state.queues.configure(now, settings, limit, |ticket, grant| dispatch(id, ticket, grant));
        }
    }

    /// Returns the limit of each level.
    fn limits(&self) -> Vec<u32> {
        let limited = || self.levels.iter().filter(|state| !state.is_exempt());
        let nominal: u32 = self.levels.iter().map(|state| state.nominal).sum();
        let exempt: u32 = self.levels.iter().filter(|state| state.is_exempt()).map(LevelState::needed).sum();
        let left = nominal.saturating_sub(exempt);
        let lower: u32 = limited().map(|state| state.lower).sum();
        let needed: u32 = limited().map(LevelState::needed).sum();
        let bounds = |state: &LevelState| SeatBounds {
            lower: f64::from(state.needed()),
            upper: f64::from(state.upper),
            target: f64::from(state.needed()).max(state.smoothed),
        };
        let shared = (left > needed).then(|| share(f64::from(nominal), &limited().map(bounds).collect::<Vec<_>>()));
        let mut shares = shared.flatten().map(|(_, shares)| shares.into_iter());
        let part = f64::from(left.saturating_sub(lower)) / f64::from(needed.saturating_sub(lower).max(1));
        let limit = |state: &LevelState| match &mut shares {
            _ if state.is_exempt() => state.needed(),
            Some(shares) => shares.next().map_or(state.nominal, rounded),
            // Not shared, because all is needed: what lies between the bounds is cut in proportion.
            None if left <= needed => state.lower + rounded(f64::from(state.needed() - state.lower) * part),
            None => state.queues.limit(),
        };
        self.levels.iter().map(limit).collect()
    }
}

impl LevelState {
    fn note_demand(&mut self, now: Duration, exempt: u32) {
        let demand = self.queues.take_demand(now);
        if self.is_exempt() {
            self.most = exempt;
            return;
        }
        self.most = rounded(demand.most);
        if let Some((average, deviation)) = demand.moments {
            let envelope = average + deviation;
            self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
        }
    }
}

#[cfg(test)]
mod tests;
