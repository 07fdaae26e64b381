//! Connections: failures, backoff, failover, resumes, initial state, and what a lost position causes below.
//!
//! The delays are those of `informer/core/src/backoff.rs` and `informer/core/src/endpoints.rs`.

use super::{
    costs::SDK_OBJECT,
    world::{Happening, MILLI, Nanos, Restart, SECOND, World, micros, work},
};

/// Upper bound of the delay after a healthy end.
const HEALTHY_MAX: Nanos = 100 * MILLI;
/// Upper bound of the delay after the first unhealthy end.
const FIRST_MAX: Nanos = SECOND;
/// Delay after the second unhealthy end, before jitter; doubled for each further one.
const BASE: Nanos = 800 * MILLI;
const DELAY_MAX: Nanos = 30 * SECOND;
/// `Retry-After` of a 429.
const RETRY_AFTER: Nanos = SECOND;
/// Range of the time for which an endpoint must fail before its client leaves it.
const LEAVE_MIN: Nanos = 5 * SECOND;
const LEAVE_MAX: Nanos = 30 * SECOND;
/// Time over which a new epoch ends the watches of the old one.
const EPOCH_SPREAD: Nanos = 10 * SECOND;
/// Age of the state on disk.
const CHECKPOINT_LAG: Nanos = 2 * SECOND;
/// Bytes a second between two machines: 10 Gbit/s.
const LINK_BYTES: f64 = 1.25e9;

impl World {
    /// Opens the live part of a watch.
    pub(super) fn attach(&mut self, client: usize, server: usize) {
        let from = &mut self.clients[client];
        from.parent = Some(server);
        from.endpoint = server - self.first[from.upstream];
        from.unhealthy = 0;
        from.leave_at = None;
        if from.server.is_some() || !self.plan.is_scoped {
            self.servers[server].wide.push(client);
        }
    }

    /// Closes the connection and counts the client as broken. Void if it was broken already.
    pub(super) fn disconnect(&mut self, client: usize) {
        let version = self.version_of(client);
        let from = &mut self.clients[client];
        from.connection += 1;
        from.version = version;
        if let Some(server) = from.parent.take() {
            self.servers[server].wide.retain(|other| *other != client);
        }
        if !from.is_broken {
            from.is_broken = true;
            self.broken += 1;
        }
    }

    /// The client's resourceVersion: of its last event or bookmark. A bookmark is no newer than the cache that sends
    /// it.
    fn version_of(&self, client: usize) -> Nanos {
        let to = &self.clients[client];
        let Some(server) = to.parent else { return to.version };
        let marked = self.now - (self.now - to.bookmark_phase) % self.plan.bookmark.max(1);
        to.version.max(marked.min(self.version_at(server)))
    }

    /// The resourceVersion of a server's cache. API servers know that nothing newer was committed.
    fn version_at(&self, server: usize) -> Nanos {
        self.servers[server].client.map_or(self.now, |client| self.version_of(client))
    }

    pub(super) fn reconnect_soon(&mut self, client: usize) {
        let delay = self.below(HEALTHY_MAX);
        self.reconnect_after(client, delay);
    }

    fn reconnect_after(&mut self, client: usize, delay: Nanos) {
        let connection = self.clients[client].connection;
        self.schedule(self.now + delay, Happening::Connect { client, connection });
    }

    /// Delay after one more unhealthy end.
    fn backoff(&mut self, client: usize, least: Nanos) -> Nanos {
        let ends = self.clients[client].unhealthy;
        self.clients[client].unhealthy += 1;
        let (base, spread) = match ends {
            0 => (0, FIRST_MAX),
            _ => {
                let delay = (BASE << (ends - 1).min(10)).min(DELAY_MAX);
                (delay, delay)
            }
        };
        base.max(least) + self.below(spread)
    }

    pub(super) fn connect(&mut self, client: usize, connection: u32) {
        if self.clients[client].connection != connection {
            return;
        }
        let tier = self.clients[client].upstream;
        let Some(server) = self.endpoint(client) else {
            self.sums[tier].requests.refused += 1;
            return self.retry_refused(client);
        };
        if !self.servers[server].is_ready {
            // 429 is no failure of the endpoint: its client stays.
            self.sums[tier].requests.busy += 1;
            self.charge(server, self.plan.tiers[tier].costs.connect);
            self.clients[client].leave_at = None;
            let delay = self.backoff(client, RETRY_AFTER);
            return self.reconnect_after(client, delay);
        }
        self.open(client, server);
    }

    /// The member that accepts a connection. A load balancer chooses among API servers; below, the SDK does.
    fn endpoint(&mut self, client: usize) -> Option<usize> {
        let tier = self.clients[client].upstream;
        if tier == 0 {
            let up: Vec<usize> = self.members(0).filter(|server| self.servers[*server].is_up).collect();
            return (!up.is_empty()).then(|| up[self.rng.usize(0..up.len())]);
        }
        if self.clients[client].leave_at.is_some_and(|at| at <= self.now) {
            let count = self.plan.tiers[tier].members;
            self.clients[client].endpoint = (self.clients[client].endpoint + self.rng.usize(1..count)) % count;
            self.clients[client].leave_at = None;
        }
        let server = self.first[tier] + self.clients[client].endpoint;
        let member = &self.servers[server];
        let refuses = self.restart.is_some_and(|restart| restart.refuses) && !member.is_ready;
        (member.is_up && !refuses).then_some(server)
    }

    fn retry_refused(&mut self, client: usize) {
        let mut delay = self.backoff(client, 0);
        let tier = self.clients[client].upstream;
        if tier > 0 && self.plan.tiers[tier].members > 1 {
            if self.clients[client].leave_at.is_none() {
                let patience = LEAVE_MIN + self.below(LEAVE_MAX - LEAVE_MIN);
                self.clients[client].leave_at = Some(self.now + patience);
            }
            let leave = self.clients[client].leave_at.unwrap_or(Nanos::MAX);
            delay = delay.min(leave - self.now);
        }
        self.reconnect_after(client, delay);
    }

    fn charge(&mut self, server: usize, cost: f64) -> (Nanos, Nanos) {
        self.sums[self.servers[server].tier].request_cpu += cost;
        work(&mut self.servers[server].requests, self.now, cost)
    }

    /// Oldest resourceVersion from which the server resumes.
    fn window_start(&self, server: usize) -> Nanos {
        let member = &self.servers[server];
        member.epoch.max(self.now.saturating_sub(self.plan.tiers[member.tier].window))
    }

    /// Resumes if the window covers the client's position, else reads initial state.
    fn open(&mut self, client: usize, server: usize) {
        let tier = self.servers[server].tier;
        let costs = self.plan.tiers[tier].costs;
        let connection = self.clients[client].connection;
        if self.clients[client].has_state {
            self.sums[tier].requests.proofs += 1;
            let (_, done) = self.charge(server, costs.proof + costs.connect);
            if self.window_start(server) <= self.clients[client].version {
                self.sums[tier].requests.resumes += 1;
                return self.schedule(done, Happening::Resumed { client, connection, server });
            }
            self.sums[tier].requests.expired += 1;
        }
        let requests = &mut self.sums[tier].requests;
        *(if self.plan.has_lists && tier == 0 { &mut requests.lists } else { &mut requests.initial }) += 1;
        let pods = self.plan.pods_per_node;
        let is_wide = self.clients[client].server.is_some() || !self.plan.is_scoped;
        let objects = (if is_wide { pods * self.plan.nodes } else { pods }) as f64;
        let bytes = objects * self.plan.bytes;
        let (start, sent) = self.charge(server, objects.mul_add(costs.object, costs.connect));
        self.sums[tier].initial_bytes_out += bytes;
        self.sums[tier + 1].bytes_in += bytes;
        // The receiver decodes while it reads, so the slower side and the wire decide.
        let read = start + micros((objects * SDK_OBJECT).max(bytes / LINK_BYTES * 1e6));
        if self.clients[client].server.is_some() || self.plan.node_cache.is_some() {
            self.sums[tier + 1].request_cpu += objects * SDK_OBJECT;
        }
        let (position, version) = (self.servers[server].position, self.version_at(server));
        let done = sent.max(read) + self.plan.hop;
        self.schedule(done, Happening::Initial { client, connection, server, position, version });
    }

    /// True if the connection was opened to a process that still runs.
    fn is_open(&mut self, client: usize, connection: u32, server: usize) -> bool {
        if self.clients[client].connection != connection {
            return false;
        }
        if self.servers[server].is_up && self.servers[server].is_ready {
            return true;
        }
        self.reconnect_soon(client);
        false
    }

    pub(super) fn resumed(&mut self, client: usize, connection: u32, server: usize) {
        if self.is_open(client, connection, server) {
            self.attach(client, server);
            self.replay(client, server);
        }
    }

    /// Sends what happened since the client's position, and counts it as whole from the arrival on.
    fn replay(&mut self, client: usize, server: usize) {
        let (from, to) = (self.clients[client].position, self.servers[server].position.max(self.servers[server].sent));
        let is_wide = self.clients[client].server.is_some();
        let events = match to.saturating_sub(from) {
            0 => 0,
            missed if is_wide => missed,
            _ => self.concerning(client, from, to).len(),
        };
        let tier = self.servers[server].tier;
        let costs = self.plan.tiers[tier].costs;
        let bytes = events as f64 * self.plan.bytes;
        let cost = (events as f64).mul_add(costs.event, bytes * costs.byte);
        self.sums[tier].request_cpu += cost;
        let (_, done) = work(&mut self.servers[server].deliveries, self.now, cost);
        self.sums[tier].event_bytes_out += bytes;
        self.send(client, to, done);
        let whole = self.clients[client].last_arrival;
        self.recover(client, whole);
    }

    fn recover(&mut self, client: usize, at: Nanos) {
        let from = &mut self.clients[client];
        from.recovered = from.recovered.max(at);
        if from.is_broken {
            from.is_broken = false;
            self.broken -= 1;
        }
    }

    /// Initial state is complete. A cache starts an epoch with it, so its own clients lose their positions.
    pub(super) fn initial(&mut self, client: usize, connection: u32, server: usize, state: (usize, Nanos)) {
        if !self.is_open(client, connection, server) {
            return;
        }
        let (position, version) = state;
        let from = self.clients[client].position;
        let had_state = self.clients[client].has_state;
        let own = self.clients[client].server;
        // Bookmarks of the old epoch are older than the new state.
        if let Some(own) = own {
            self.start_epoch(own, position, version);
        }
        self.clients[client].position = position.max(from);
        self.clients[client].version = version;
        self.clients[client].has_state = true;
        if own.is_none() {
            let events = self.concerning(client, from, position.max(from));
            let states = self.relist_agents(client, had_state);
            self.reach_agents(client, &events, self.now, Some(&states));
        }
        self.attach(client, server);
        self.replay(client, server);
        if let Some(last) = self.clients[client].server.is_none().then(|| self.agents_of(client)) {
            let last = last.map(|agent| self.agents_online[agent]).max().unwrap_or(0);
            self.recover(client, last);
        }
    }

    /// The agents of a cache with a new epoch lose their watches within 10 s, get 410, and read their pods again.
    /// Returns when each of them is complete.
    fn relist_agents(&mut self, client: usize, was_serving: bool) -> Vec<Nanos> {
        let agents = self.agents_of(client);
        let Some(costs) = self.plan.node_cache else { return vec![self.now; agents.len()] };
        let objects = self.plan.pods_per_node as f64;
        let cost = objects.mul_add(costs.object, costs.connect);
        let sums = self.plan.tiers.len();
        for agent in agents.clone() {
            let spread = if was_serving { EPOCH_SPREAD } else { 0 };
            let delay = self.below(spread) + self.below(HEALTHY_MAX);
            self.agents_online[agent] = self.now + delay + micros(cost);
            self.sums[sums].requests.proofs += 1;
            self.sums[sums].requests.expired += 1;
            self.sums[sums].requests.initial += 1;
            self.sums[sums].request_cpu += cost + costs.proof + costs.connect;
            self.sums[sums].initial_bytes_out += objects * self.plan.bytes;
        }
        agents.map(|agent| self.agents_online[agent]).collect()
    }

    fn start_epoch(&mut self, server: usize, position: usize, version: Nanos) {
        let member = &mut self.servers[server];
        let was_serving = member.is_ready;
        member.epoch = version;
        member.sent = member.sent.max(position);
        member.taken = member.taken.max(position);
        if member.position < position {
            for (commit, _) in &self.log[member.position..position] {
                self.sums[member.tier].staleness.saturating_record((self.now - commit) / 1_000);
            }
            member.position = position;
        }
        if !was_serving {
            member.is_ready = true;
            self.restarting -= 1;
            return;
        }
        let watchers: Vec<usize> =
            (0..self.clients.len()).filter(|client| self.clients[*client].parent == Some(server)).collect();
        for client in watchers {
            // No newer event is sent before the watch ends.
            self.disconnect(client);
            let delay = self.below(EPOCH_SPREAD);
            let connection = self.clients[client].connection;
            self.schedule(self.now + delay, Happening::EndWatch { client, connection });
        }
    }

    /// Ends the processes of the restart.
    pub(super) fn fail(&mut self) {
        let Some(restart) = self.restart else { return };
        if restart.tier == self.plan.tiers.len() {
            return self.fail_leaves(restart);
        }
        let members: Vec<usize> =
            self.members(restart.tier).take(if restart.is_whole { usize::MAX } else { 1 }).collect();
        self.restarting = members.len();
        for server in &members {
            let member = &mut self.servers[*server];
            member.is_up = false;
            member.is_ready = false;
            member.run += 1;
            member.is_round_due = false;
            if let Some(client) = member.client {
                self.disconnect(client);
            }
            self.schedule(self.now + restart.down, Happening::Up { server: *server });
        }
        for client in 0..self.clients.len() {
            if self.clients[client].parent.is_some_and(|parent| members.contains(&parent)) {
                self.disconnect(client);
                self.reconnect_soon(client);
            }
        }
    }

    fn fail_leaves(&mut self, restart: Restart) {
        let leaves = self.first_leaf..if restart.is_whole { self.clients.len() } else { self.first_leaf + 1 };
        for client in leaves {
            self.disconnect(client);
            // Agents have what the cache has sent, and nothing more until it serves again.
            for agent in self.agents_of(client) {
                self.agents_online[agent] = self.now;
            }
            let at = self.now + restart.down + self.below(restart.down);
            self.schedule(at, Happening::LeafUp { client });
        }
    }

    /// A cache on a node runs again.
    pub(super) fn leaf_up(&mut self, client: usize) {
        let Some(restart) = self.restart else { return };
        let Some(costs) = self.plan.node_cache else { return };
        self.clients[client].has_state = restart.is_warm;
        if restart.is_warm {
            let tier = self.plan.tiers.len();
            for agent in self.agents_of(client) {
                let delay = self.below(FIRST_MAX);
                self.agents_online[agent] = self.now + delay + micros(costs.connect);
                self.sums[tier].requests.proofs += 1;
                self.sums[tier].requests.resumes += 1;
                self.sums[tier].request_cpu += costs.proof + costs.connect;
                let online = self.agents_online[agent];
                self.clients[client].recovered = self.clients[client].recovered.max(online);
            }
        }
        self.reconnect_soon(client);
    }

    /// The new process runs: an API server has read its objects, a cache loads its state or fills itself.
    pub(super) fn up(&mut self, server: usize) {
        let Some(restart) = self.restart else { return };
        let Some(client) = self.servers[server].client else {
            // Its watch cache starts at the newest revision, and with it the positions from which it resumes.
            self.servers[server].epoch = self.now;
            self.servers[server].taken = self.log.len();
            self.servers[server].position = self.log.len();
            self.servers[server].sent = self.log.len();
            self.servers[server].is_up = true;
            self.servers[server].is_ready = true;
            self.restarting -= 1;
            return;
        };
        if restart.is_warm {
            return self.schedule(self.now + restart.load, Happening::Loaded { server });
        }
        self.servers[server].is_up = true;
        self.clients[client].has_state = false;
        self.reconnect_soon(client);
    }

    /// The state is read: serves it, and resumes upstream.
    pub(super) fn loaded(&mut self, server: usize) {
        let saved = self.failed_at.saturating_sub(CHECKPOINT_LAG);
        let member = &mut self.servers[server];
        member.is_up = true;
        member.is_ready = true;
        self.restarting -= 1;
        let position = self.log.partition_point(|(commit, _)| *commit < saved).min(member.position);
        member.taken = position;
        member.position = position;
        member.sent = position;
        if let Some(client) = member.client {
            self.clients[client].position = position;
            self.clients[client].version = saved;
            self.reconnect_soon(client);
        }
    }
}
