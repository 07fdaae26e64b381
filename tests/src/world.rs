//! A simulated world in one thread: the histories of its model are the truth, and everything else must agree with one
//! of them.
//!
//! INVARIANT: the seed determines every run; time is virtual; nothing sleeps, and no result depends on a memory
//! address.

mod evidence;
mod histories;
mod node;
mod notes;
mod replica;
mod wire;

mod alone;

use std::{cell::Cell, time::Duration};

use fastrand::Rng;
use informer_core::{InitialList, ListSemantic, Time, reflector, stats::ReflectorStats};

use crate::{
    api::{Api, Fact},
    checkers::{self, Violation, ensure},
    model::Model,
};

use evidence::{HeldCopy, Write};
use histories::Histories;
use node::{Around, Heard, Node};

pub use alone::{ReflectorRequest, requests, saved_object};

/// Steps of the world with faults, and the time between steps without.
const STORM_STEPS: u32 = 400;
const CALM_STEP: Duration = Duration::from_secs(5);

/// Bound on the timers that fire in one step of the world, for all clients together.
const TIMERS_MAX: u32 = 10_000;

/// Index of the preferred endpoint.
const PREFERRED: usize = 0;

/// Histories, servers, and clients.
struct World {
    rng: Rng,
    now: Time,
    histories: Histories,
    sites: Vec<Site>,
    nodes: Vec<Node>,
    /// Free permits of the relist budget.
    permits: Cell<u32>,
    /// Index of the client handled last, which a violation is attributed to.
    suspect: usize,
}

/// One endpoint: a server and the history it serves.
struct Site {
    api: Api,
    history: usize,
}

/// A failed world: the violation and the last actions of the client.
#[derive(Debug)]
pub struct Failed {
    /// The seed that reproduces the failure.
    pub seed: u64,
    /// The violated guarantee.
    pub violation: Violation,
    /// The last actions and inputs of the client that saw the violation.
    pub trace: Vec<String>,
}

/// Runs the world of `seed`: a storm of faults, then calm, then every guarantee. Returns each client's counters.
///
/// # Errors
/// Returns the violated guarantee.
pub fn run(seed: u64) -> Result<Vec<ReflectorStats>, Failed> {
    let mut world = World::new(seed, false);
    if world.live().is_ok() {
        return Ok(world.nodes.iter().map(Node::stats).collect());
    }
    // Run again with a trace: tracing costs more than the world itself.
    let mut world = World::new(seed, true);
    let violation = world.live().expect_err("a seed decides everything");
    Err(Failed { seed, violation, trace: world.nodes[world.suspect].trace() })
}

impl World {
    fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut model = Model::new(rng.u64(1..200));
        for key in 0..rng.u32(..30) {
            model.put(&key_name(key));
        }
        let version = model.version();
        let mut histories = Histories::new(model);
        let mut sites = vec![Site { api: Api::draw(&mut rng), history: 0 }];
        match rng.u8(..4) {
            // A second server of this history, possibly lagging; or a server of another cluster.
            0 => sites.push(Site { api: Api::draw(&mut rng), history: 0 }),
            1 => sites.push(Site { api: Api::draw(&mut rng), history: histories.twin(0) }),
            _ => {}
        }
        let node = |rng: &mut Rng| Node::new(draw_config(rng, version), sites.len(), traced);
        let nodes = (0..rng.u32(1..4)).map(|_| node(&mut rng)).collect();
        let permits = Cell::new(rng.u32(1..3));
        Self { rng, now: Time::ZERO, histories, sites, nodes, permits, suspect: 0 }
    }

    fn live(&mut self) -> Result<(), Violation> {
        self.storm()?;
        self.calm()?;
        for (at, node) in self.nodes.iter().enumerate() {
            self.suspect = at;
            node.check(&self.histories)?;
        }
        Ok(())
    }

    /// Runs writes and faults.
    fn storm(&mut self) -> Result<(), Violation> {
        self.each(|_| true, |node, now, around, rng| node.tell(now, &Heard::Start, around, rng))?;
        let with_other_histories = self.rng.bool();
        for _ in 0..STORM_STEPS {
            match self.rng.u8(..24) {
                0..8 => self.write(),
                8 => self.pass(),
                9 => self.forget(),
                10 if self.rng.u8(..4) == 0 => self.restart_server()?,
                11 if self.rng.u8(..4) == 0 => {
                    let site = self.rng.usize(..self.sites.len());
                    self.sites[site].api.down = !self.sites[site].api.down;
                }
                12 if self.rng.u8(..3) == 0 => self.restart_clients(false)?,
                13 if with_other_histories && self.rng.u8(..6) == 0 => self.restore_server()?,
                14 if with_other_histories && self.rng.u8(..12) == 0 => self.replace_server()?,
                _ => {}
            }
            let pause = [0, 5, 200, 2_000, 20_000, 200_000][self.rng.usize(..6)];
            let pause = Duration::from_millis(self.rng.u64(..=pause));
            self.advance(pause)?;
        }
        Ok(())
    }

    /// Runs without faults: writes for a while, then time for every client to converge.
    fn calm(&mut self) -> Result<(), Violation> {
        for site in &mut self.sites {
            site.api = site.api.without_faults();
        }
        let begun = self.now;
        while self.now.since(begun) < checkers::CONVERGES_WITHIN {
            if self.now.since(begun) < checkers::CONVERGES_WITHIN * 2 / 3 && self.rng.u8(..4) == 0 {
                self.write();
            }
            self.advance(CALM_STEP)?;
        }
        let around = Around { sites: &self.sites, histories: &self.histories, permits: &self.permits };
        for (at, node) in self.nodes.iter().enumerate() {
            self.suspect = at;
            node.converged(&around)?;
        }
        Ok(())
    }

    /// Applies `act` to each client that `concerns` selects.
    fn each(
        &mut self,
        concerns: impl Fn(&Node) -> bool,
        act: impl Fn(&mut Node, Time, &Around<'_>, &mut Rng) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let around = Around { sites: &self.sites, histories: &self.histories, permits: &self.permits };
        for (at, node) in self.nodes.iter_mut().enumerate() {
            self.suspect = at;
            if concerns(node) {
                act(node, self.now, &around, &mut self.rng)?;
            }
        }
        Ok(())
    }

    /// Writes to the history of every server.
    fn write(&mut self) {
        for site in 0..self.sites.len() {
            let history = self.sites[site].history;
            if site > 0 && history == self.sites[PREFERRED].history {
                continue;
            }
            for _ in 0..self.rng.u32(1..4) {
                let (key, is_put) = (key_name(self.rng.u32(..30)), self.rng.u8(..3) > 0);
                let key = key.as_str();
                if self.room(history, 1, Some(&Write { key, is_put })) == 0 {
                    continue;
                }
                let model = self.histories.model_mut(history);
                if is_put { model.put(key) } else { model.delete(key) }
            }
        }
    }

    fn pass(&mut self) {
        let history = self.sites[PREFERRED].history;
        let versions = self.rng.u64(1..30);
        let versions = self.room(history, versions, None);
        self.histories.model_mut(history).pass(versions);
    }

    /// Number of `versions` by which a restored server may advance, the first perhaps by `write`. The server passes a
    /// position of its former history only if its clients noticed the restore and an object of their copy distinguishes
    /// the two histories.
    fn room(&self, history: usize, versions: u64, write: Option<&Write<'_>>) -> u64 {
        let model = self.histories.model(history);
        let may_pass = self.histories.may_pass(history);
        if may_pass && write.is_some_and(|write| self.histories.is_taken(history, write.key, model.version() + 1)) {
            return 0;
        }
        let is_lost = |of: usize, at: u64| (1..at).contains(&self.histories.agree_up_to(of, history));
        let lost = self.nodes.iter().flat_map(|node| node.copies(is_lost));
        let room = |copy: HeldCopy| {
            let reaches = model.version() + versions >= copy.at;
            let is_told = may_pass && reaches && copy.tells(model, write);
            if is_told { versions } else { (copy.at - 1).saturating_sub(model.version()).min(versions) }
        };
        lost.map(room).min().unwrap_or(versions)
    }

    /// Compacts the history of every server, partly or whole.
    fn forget(&mut self) {
        let kept = self.rng.u64(..40);
        for site in &self.sites {
            let model = self.histories.model_mut(site.history);
            model.compact(model.version().saturating_sub(kept));
        }
    }

    /// Breaks every connection; the new server process has no history window.
    fn restart_server(&mut self) -> Result<(), Violation> {
        let history = self.sites[PREFERRED].history;
        let model = self.histories.model_mut(history);
        model.compact(model.version());
        self.sites[PREFERRED].api.marks_key = self.rng.u64(..);
        self.break_connections(history)
    }

    fn break_connections(&mut self, history: usize) -> Result<(), Violation> {
        let sites: Vec<bool> = self.sites.iter().map(|site| site.history == history).collect();
        self.each(
            |node| node.is_connected() && sites[node.site()],
            |node, now, around, rng| {
                let broken = reflector::Failure::new(reflector::Class::Connection);
                let fact = Fact::Ended(reflector::End::Failed(broken));
                node.tell(now, &Heard::Fact(fact), around, rng)
            },
        )
    }

    /// Restores the preferred server, and every server of its history, to an earlier state: at once, or after minutes
    /// without a server, in which each client notices the outage.
    fn restore_server(&mut self) -> Result<(), Violation> {
        let history = self.sites[PREFERRED].history;
        let model = self.histories.model(history);
        let version = self.rng.u64(model.version().saturating_sub(40).max(model.oldest())..=model.version());
        let takes_minutes = self.rng.bool();
        // Reads of single objects prove nothing if they may be older than requested.
        let is_provable = self.sites.iter().all(|site| site.history != history || !site.api.gets_anything);
        let restored = self.histories.restore(history, version, takes_minutes && is_provable);
        self.show(history, restored);
        if takes_minutes {
            let until = self.now + Duration::from_secs(self.rng.u64(120..300));
            for site in self.sites.iter_mut().filter(|site| site.history == restored) {
                site.api.unreachable_until = until;
            }
        }
        self.break_connections(restored)
    }

    /// Replaces the preferred server while its clients are down, by one with equal versions and other objects.
    fn replace_server(&mut self) -> Result<(), Violation> {
        let history = self.sites[PREFERRED].history;
        let twin = self.histories.twin(history);
        self.show(history, twin);
        self.restart_clients(true)
    }

    fn show(&mut self, old: usize, new: usize) {
        for site in &mut self.sites {
            if site.history == old {
                site.history = new;
            }
        }
    }

    fn restart_clients(&mut self, all: bool) -> Result<(), Violation> {
        self.each(
            |_| true,
            |node, now, around, rng| {
                if all || rng.u8(..3) == 0 {
                    let forgets = rng.u8(..4) == 0;
                    node.restart(now, forgets, around, rng)?;
                }
                Ok(())
            },
        )
    }

    /// Lets `span` pass: fires timers when they are due and delivers responses meanwhile.
    fn advance(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        for _ in 0..TIMERS_MAX {
            let due = self.nodes.iter().filter_map(Node::poll_timeout).min();
            self.now = due.map_or(end, |due| due.max(self.now).min(end));
            self.each(|_| true, |node, now, around, rng| node.tick(now, around, rng))?;
            if self.now >= end {
                return Ok(());
            }
        }
        ensure(false, "Bounded", || format!("{TIMERS_MAX} timers in {span:?}"))
    }
}

fn key_name(number: u32) -> String {
    // Namespaces with the characters that sort before a slash.
    format!("{}/pod-{number}", ["prod", "prod-a", "prod.b"][number as usize % 3])
}

fn draw_config(rng: &mut Rng, version: u64) -> reflector::Config {
    let semantic = match rng.u8(..4) {
        0 => ListSemantic::MostRecent,
        1 => ListSemantic::NotOlderThan(version.into()),
        _ => ListSemantic::Any,
    };
    let initial = match rng.u8(..6) {
        0 => InitialList::Paged,
        1 => InitialList::Unpaged,
        _ => InitialList::Auto,
    };
    let spread = if rng.u8(..4) == 0 { Duration::from_secs(60) } else { Duration::ZERO };
    let (page_size, seed) = (rng.u32(1..20), rng.u64(..));
    let resume_initial = rng.u8(..8) > 0;
    let default =
        reflector::Config { semantic, initial, spread, page_size, seed, resume_initial, ..Default::default() };
    if rng.u8(..4) == 0 { reflector::Config { watch_timeout_seconds: 5..=30, ..default } } else { default }
}
