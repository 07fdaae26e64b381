//! Events on their way down: commits, caches that apply them, rounds of waking, arrivals at caches and agents.

use super::world::{Happening, MICRO, MILLI, Nanos, World, micros, seconds, work};

/// Pauses between rounds, as in `cache-server/caches/src/cacher/task.rs`.
const ROUND_PER_WATCHER: Nanos = 20 * MICRO;
const ROUND_PAUSE_MIN: Nanos = MILLI;
const ROUND_PAUSE_MAX: Nanos = 20 * MILLI;

/// Bytes of an event around its object.
pub(super) const ENVELOPE_BYTES: f64 = 30.0;

/// Time between two writes of a burst, about the CPU of one write.
const WRITE_GAP: Nanos = 110 * MICRO;

impl World {
    /// Commits one event, or one burst, and schedules the next.
    pub(super) fn commit(&mut self) {
        if self.until <= self.now || self.is_whole() {
            return;
        }
        let takes_writes = self.members(0).any(|server| self.servers[server].is_up);
        if takes_writes {
            let node = self.rng.usize(0..self.plan.nodes);
            self.by_node[node].push(self.log.len());
            self.log.push((self.now, node));
            for server in self.members(0) {
                if self.servers[server].is_up {
                    self.take(server, self.log.len(), self.now);
                }
            }
        }
        let mean = 1e6 / self.plan.rate;
        let next = if !self.plan.is_paced {
            micros(-mean * (1.0 - self.rng.f64()).ln())
        } else if self.log.len().is_multiple_of(self.plan.burst) {
            let burst = self.plan.burst as u64;
            micros(mean * self.plan.burst as f64).saturating_sub((burst - 1) * WRITE_GAP).max(1)
        } else {
            WRITE_GAP
        };
        self.schedule(self.now + next, Happening::Commit);
    }

    /// The server reads the events below `position` from upstream and applies them.
    fn take(&mut self, server: usize, position: usize, now: Nanos) {
        let tier = self.servers[server].tier;
        let costs = &self.plan.tiers[tier].costs;
        let member = &mut self.servers[server];
        let new = position.saturating_sub(member.taken) as f64;
        member.taken = member.taken.max(position);
        let receive = if member.client.is_some() { costs.receive } else { 0.0 };
        let cost = (receive + costs.apply) * new;
        member.writer = member.writer.max(now) + micros(cost);
        let (at, run) = (member.writer, member.run);
        self.sums[tier].event_cpu += cost;
        self.schedule(at, Happening::Applied { server, run, position });
    }

    pub(super) fn applied(&mut self, server: usize, run: u32, position: usize) {
        let member = &mut self.servers[server];
        if member.run != run || position <= member.position {
            return;
        }
        for (commit, _) in &self.log[member.position..position] {
            self.sums[member.tier].staleness.saturating_record((self.now - commit) / MICRO);
        }
        member.position = position;
        self.plan_round(server);
    }

    fn plan_round(&mut self, server: usize) {
        let member = &mut self.servers[server];
        if !member.is_round_due && member.sent < member.position {
            member.is_round_due = true;
            let (at, run) = (self.now.max(member.not_before), member.run);
            self.schedule(at, Happening::Round { server, run });
        }
    }

    /// Wakes the watchers of the events since the last round.
    pub(super) fn round(&mut self, server: usize, run: u32) {
        if self.servers[server].run != run {
            return;
        }
        self.servers[server].is_round_due = false;
        let (from, to) = (self.servers[server].sent, self.servers[server].position);
        self.servers[server].sent = to;
        let woken = self.woken(server, from, to);
        if woken.is_empty() {
            return;
        }
        let tier = self.servers[server].tier;
        let costs = self.plan.tiers[tier].costs;
        let each_event = (self.plan.bytes + ENVELOPE_BYTES).mul_add(costs.byte, costs.event);
        let each = |events: usize| (events as f64).mul_add(each_event, costs.wake);
        let events: usize = woken.iter().map(|(_, events)| events).sum();
        let total = costs.round + woken.iter().map(|(_, events)| each(*events)).sum::<f64>();
        let cores = &mut self.servers[server].deliveries;
        let lanes = woken.len().min(cores.len());
        let share = (self.plan.shared.mul_add(events as f64, total)) / lanes as f64;
        let mut start = Nanos::MAX;
        for _ in 0..lanes {
            start = start.min(work(cores, self.now, share).0);
        }
        let mut sum = costs.round;
        for (client, events) in &woken {
            sum += self.plan.shared.mul_add(*events as f64, each(*events)) / lanes as f64;
            self.send(*client, to, start + micros(sum));
        }
        self.sums[tier].event_cpu += total;
        self.sums[tier].event_bytes_out += events as f64 * (self.plan.bytes + ENVELOPE_BYTES);
        let pause = (ROUND_PER_WATCHER * woken.len() as Nanos).min(ROUND_PAUSE_MAX);
        if costs.has_pauses && ROUND_PAUSE_MIN <= pause {
            self.servers[server].not_before = self.now + pause;
        }
        self.plan_round(server);
    }

    /// The clients that events of this range concern, each with their number.
    fn woken(&self, server: usize, from: usize, to: usize) -> Vec<(usize, usize)> {
        let wide = self.servers[server].wide.iter();
        let mut woken: Vec<(usize, usize)> = wide.map(|client| (*client, to - from)).collect();
        if self.plan.is_scoped && self.servers[server].tier + 1 == self.plan.tiers.len() {
            let mut nodes: Vec<usize> = self.log[from..to].iter().map(|(_, node)| *node).collect();
            nodes.sort_unstable();
            for same in nodes.chunk_by(|a, b| a == b) {
                let leaves = self.leaves_of(same[0]).filter(|leaf| self.clients[*leaf].parent == Some(server));
                woken.extend(leaves.map(|leaf| (leaf, same.len())));
            }
        }
        woken
    }

    /// Sends everything below `position` to the client. A connection keeps the order.
    pub(super) fn send(&mut self, client: usize, position: usize, sent: Nanos) {
        let hop = self.plan.hop + self.below(self.plan.hop / 2);
        let to = &mut self.clients[client];
        to.last_arrival = to.last_arrival.max(sent + hop);
        let (at, connection) = (to.last_arrival, to.connection);
        self.schedule(at, Happening::Arrival { client, connection, position });
    }

    pub(super) fn arrival(&mut self, client: usize, connection: u32, position: usize) {
        let to = &mut self.clients[client];
        if to.connection != connection || position <= to.position {
            return;
        }
        let from = to.position;
        to.position = position;
        to.version = to.version.max(self.log[position - 1].0);
        let tier = to.upstream + 1;
        let bytes = self.plan.bytes + ENVELOPE_BYTES;
        if let Some(server) = to.server {
            self.sums[tier].bytes_in += (position - from) as f64 * bytes;
            self.take(server, position, self.now);
            return;
        }
        let events = self.concerning(client, from, position);
        self.sums[tier].bytes_in += events.len() as f64 * bytes;
        self.reach_agents(client, &events, self.now, None);
    }

    /// The events of a leaf's scope in a range of positions.
    pub(super) fn concerning(&self, client: usize, from: usize, to: usize) -> Vec<usize> {
        if !self.plan.is_scoped {
            return (from..to).collect();
        }
        let of = &self.by_node[self.clients[client].node];
        of[of.partition_point(|event| *event < from)..].iter().copied().take_while(|event| *event < to).collect()
    }

    /// Passes events through the cache on the node, if there is one, to the agents. Events that initial state brings
    /// reach each agent at its time in `states`.
    pub(super) fn reach_agents(&mut self, client: usize, events: &[usize], now: Nanos, states: Option<&[Nanos]>) {
        let (tier, agents) = (self.plan.tiers.len(), self.agents_of(client));
        for event in events {
            let commit = self.log[*event].0;
            let mut at = now;
            let mut delivered = 0.0;
            if let (Some(costs), None) = (&self.plan.node_cache, states) {
                let each = (self.plan.bytes + ENVELOPE_BYTES).mul_add(costs.byte, costs.wake + costs.event);
                let apply = costs.receive + costs.apply;
                at = at.max(self.clients[client].free) + micros(apply);
                self.sums[tier].staleness.saturating_record((at - commit) / MICRO);
                at += micros(costs.round);
                delivered = each;
                let cost = (agents.len() as f64).mul_add(each, apply + costs.round);
                self.clients[client].free = at + micros(cost);
                self.sums[tier].event_cpu += cost;
                self.sums[tier].event_bytes_out += agents.len() as f64 * (self.plan.bytes + ENVELOPE_BYTES);
            }
            for (number, agent) in agents.clone().enumerate() {
                let sent = at + micros(delivered * (number + 1) as f64);
                let state = states.map_or(0, |states| states[number]);
                let seen = sent.max(self.agents_online[agent]).max(state);
                self.staleness.saturating_record((seen - commit) / MICRO);
                self.agent_events[agent] += 1;
            }
        }
    }

    /// CPU microseconds and bytes of bookmarks in a second of each tier, which the queue does not contain.
    pub(crate) fn bookmarks(&self, tier: usize, connections: f64) -> (f64, f64) {
        const BOOKMARK_BYTES: f64 = 300.0;
        let a_second = connections / seconds(self.plan.bookmark);
        let costs = self.plan.tiers.get(tier).map(|of| of.costs).or(self.plan.node_cache).unwrap_or_default();
        (a_second * (costs.wake + costs.event), a_second * BOOKMARK_BYTES)
    }
}
