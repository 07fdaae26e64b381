//! The simulated tree: servers, clients, one log of events, and a queue of what happens next, in virtual time.
//!
//! A position is an index of the log: its owner holds every event of its scope below it. A resourceVersion is the
//! virtual time of a commit, so that bookmarks can move it without an event.
//!
//! INVARIANT: one seed and one plan give one result: one generator, one thread, and ties in the order of scheduling.

use std::{cmp::Reverse, collections::BinaryHeap};

use hdrhistogram::Histogram;

use super::costs::Costs;

/// Virtual time in nanoseconds.
pub(crate) type Nanos = u64;
pub(crate) const MICRO: Nanos = 1_000;
pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// Virtual time at which a world begins: bookmarks before it have left different positions.
pub(super) const START: Nanos = 1_000 * SECOND;

/// Virtual time of this many microseconds.
pub(crate) fn micros(micros: f64) -> Nanos {
    u64::try_from(std::time::Duration::from_secs_f64(micros.max(0.0) / 1e6).as_nanos()).unwrap_or(Nanos::MAX)
}

/// Seconds of a virtual time.
pub(crate) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// One tier of servers.
#[derive(Clone, Debug)]
pub(crate) struct TierPlan {
    pub(crate) name: &'static str,
    pub(crate) members: usize,
    pub(crate) cores: usize,
    pub(crate) costs: Costs,
    /// Time that its history window covers.
    pub(crate) window: Nanos,
}

/// A whole tree. The first tier is the API server; the leaves connect to the last one.
#[derive(Clone, Debug)]
pub(crate) struct TreePlan {
    pub(crate) name: &'static str,
    pub(crate) tiers: Vec<TierPlan>,
    pub(crate) nodes: usize,
    pub(crate) pods_per_node: usize,
    /// Connections of one node to the last tier: 1 for a cache on the node, else one for each agent.
    pub(crate) leaves_per_node: usize,
    /// Agents behind one leaf.
    pub(crate) agents_per_leaf: usize,
    /// Costs of the cache on a node. `None` if agents connect to the last tier themselves.
    pub(crate) node_cache: Option<Costs>,
    /// True if each leaf reads the events of its node only.
    pub(crate) is_scoped: bool,
    /// Events a second, and how many of them are committed together.
    pub(crate) rate: f64,
    pub(crate) burst: usize,
    /// True if bursts come at equal intervals; else events arrive at random.
    pub(crate) is_paced: bool,
    /// Bytes of one event or object.
    pub(crate) bytes: f64,
    /// Time between two machines.
    pub(crate) hop: Nanos,
    /// Interval of bookmarks.
    pub(crate) bookmark: Nanos,
    /// CPU of the receiver that shares the server's cores, in microseconds a delivery: for comparisons with one
    /// machine.
    pub(crate) shared: f64,
    /// True if the API server serves lists and no streams.
    pub(crate) has_lists: bool,
    pub(crate) seed: u64,
}

/// The part of the tree that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restart {
    /// Index of the tier; the number of tiers means the caches on the nodes.
    pub(crate) tier: usize,
    /// True for all members at once, false for one.
    pub(crate) is_whole: bool,
    /// True if members resume from a state on disk.
    pub(crate) is_warm: bool,
    /// Time until the new process runs.
    pub(crate) down: Nanos,
    /// Time to read the state from disk.
    pub(crate) load: Nanos,
    /// True if a cache that fills itself refuses connections instead of answering 429.
    pub(crate) refuses: bool,
}

/// Requests that the members of one tier received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) proofs: u64,
    /// Watches from a position that the window covers.
    pub(crate) resumes: u64,
    /// Watches from a position that the window no longer covers: 410.
    pub(crate) expired: u64,
    /// Streams of initial state.
    pub(crate) initial: u64,
    /// Lists, where the server has no streams.
    pub(crate) lists: u64,
    /// 429 while the member fills its cache.
    pub(crate) busy: u64,
    /// Connections that no process accepted.
    pub(crate) refused: u64,
}

/// Sums of one tier.
#[derive(Clone, Debug)]
pub(crate) struct TierSums {
    pub(crate) requests: Requests,
    /// CPU for events, and for requests, in microseconds.
    pub(crate) event_cpu: f64,
    pub(crate) request_cpu: f64,
    pub(crate) event_bytes_out: f64,
    /// Bytes of initial state.
    pub(crate) initial_bytes_out: f64,
    pub(crate) bytes_in: f64,
    /// Microseconds from the commit until the tier's members have applied an event.
    pub(crate) staleness: Histogram<u64>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) tier: usize,
    /// Its own connection upstream.
    pub(super) client: Option<usize>,
    pub(super) is_up: bool,
    pub(super) is_ready: bool,
    /// Lower bound of its window: the start of its epoch.
    pub(super) epoch: Nanos,
    /// Position up to which the writer task has work; applied; sent by rounds.
    pub(super) taken: usize,
    pub(super) position: usize,
    pub(super) sent: usize,
    /// Time at which each core is free of requests; and of deliveries, which do not wait behind them.
    pub(super) requests: Vec<Nanos>,
    pub(super) deliveries: Vec<Nanos>,
    /// Time at which the writer task is free.
    pub(super) writer: Nanos,
    pub(super) is_round_due: bool,
    pub(super) not_before: Nanos,
    /// Clients that read everything.
    pub(super) wide: Vec<usize>,
    /// Number of the process.
    pub(super) run: u32,
}

#[derive(Debug)]
pub(super) struct Client {
    /// The server that it fills. `None` for a leaf.
    pub(super) server: Option<usize>,
    /// Tier that it reads from.
    pub(super) upstream: usize,
    pub(super) node: usize,
    pub(super) parent: Option<usize>,
    /// Member of the upstream tier that it prefers or moved to.
    pub(super) endpoint: usize,
    /// Number of the connection; older arrivals are void.
    pub(super) connection: u32,
    pub(super) position: usize,
    pub(super) version: Nanos,
    pub(super) has_state: bool,
    pub(super) unhealthy: u32,
    pub(super) leave_at: Option<Nanos>,
    pub(super) last_arrival: Nanos,
    pub(super) bookmark_phase: Nanos,
    /// Time at which a cache on a node has finished its work.
    pub(super) free: Nanos,
    pub(super) is_broken: bool,
    /// Last time at which a broken connection was whole again, its agents included.
    pub(super) recovered: Nanos,
}

/// A thing that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Commit,
    Applied { server: usize, run: u32, position: usize },
    Round { server: usize, run: u32 },
    Arrival { client: usize, connection: u32, position: usize },
    Connect { client: usize, connection: u32 },
    Resumed { client: usize, connection: u32, server: usize },
    Initial { client: usize, connection: u32, server: usize, position: usize, version: Nanos },
    EndWatch { client: usize, connection: u32 },
    Fail,
    Up { server: usize },
    Loaded { server: usize },
    LeafUp { client: usize },
}

/// The running simulation.
pub(crate) struct World {
    pub(crate) plan: TreePlan,
    pub(super) restart: Option<Restart>,
    pub(super) now: Nanos,
    queue: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    order: u64,
    pub(super) rng: fastrand::Rng,
    /// (commit, node) of every event.
    pub(super) log: Vec<(Nanos, usize)>,
    pub(super) by_node: Vec<Vec<usize>>,
    pub(super) servers: Vec<Server>,
    /// First server of each tier.
    pub(super) first: Vec<usize>,
    pub(super) clients: Vec<Client>,
    pub(super) first_leaf: usize,
    /// For each agent: the time from which its watch is open, and the events that it holds.
    pub(super) agents_online: Vec<Nanos>,
    pub(crate) agent_events: Vec<usize>,
    pub(super) until: Nanos,
    pub(super) broken: usize,
    pub(super) restarting: usize,
    /// Time of the restart.
    pub(crate) failed_at: Nanos,
    /// One for each tier; then the caches on nodes, whose requests come from agents.
    pub(crate) sums: Vec<TierSums>,
    /// Microseconds from the commit to each agent.
    pub(crate) staleness: Histogram<u64>,
}

pub(super) fn histogram() -> Histogram<u64> {
    // An hour in microseconds, three digits.
    Histogram::new_with_max(3_600_000_000, 3).expect("valid bounds")
}

impl World {
    /// Builds the tree with every connection open and every cache at the head.
    pub(crate) fn new(plan: TreePlan) -> Self {
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let (mut servers, mut first, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for (tier, of) in plan.tiers.iter().enumerate() {
            first.push(servers.len());
            for member in 0..of.members {
                let client = (tier > 0).then_some(clients.len());
                if tier > 0 {
                    let endpoint = member % plan.tiers[tier - 1].members;
                    clients.push(Client::new(tier - 1, Some(servers.len()), 0, endpoint, &plan, &mut rng));
                }
                servers.push(Server::new(tier, client, of.cores));
            }
        }
        let (first_leaf, last) = (clients.len(), plan.tiers.len() - 1);
        for leaf in 0..plan.nodes * plan.leaves_per_node {
            let endpoint = leaf % plan.tiers[last].members;
            clients.push(Client::new(last, None, leaf / plan.leaves_per_node, endpoint, &plan, &mut rng));
        }
        let agents = (clients.len() - first_leaf) * plan.agents_per_leaf;
        let mut world = Self {
            restart: None,
            now: START,
            queue: BinaryHeap::new(),
            order: 0,
            rng,
            log: Vec::new(),
            by_node: vec![Vec::new(); plan.nodes],
            servers,
            first,
            clients,
            first_leaf,
            agents_online: vec![0; agents],
            agent_events: vec![0; agents],
            until: 0,
            broken: 0,
            restarting: 0,
            failed_at: 0,
            sums: vec![TierSums::new(); plan.tiers.len() + 1],
            staleness: histogram(),
            plan,
        };
        for client in 0..world.clients.len() {
            let at = world.first[world.clients[client].upstream] + world.clients[client].endpoint;
            world.attach(client, at);
        }
        world
    }

    /// Commits events for `time`, and ends once all of them have arrived.
    pub(crate) fn run(&mut self, time: Nanos) {
        self.until = START + time;
        self.schedule(START, Happening::Commit);
        self.drain();
    }

    /// Restarts a part of the tree after a second. Commits events until every connection is whole again, or `most` has
    /// passed, and ends once all events have arrived.
    pub(crate) fn run_restart(&mut self, restart: Restart, most: Nanos) {
        self.restart = Some(restart);
        self.failed_at = START + SECOND;
        self.until = START + most;
        self.schedule(START, Happening::Commit);
        self.schedule(self.failed_at, Happening::Fail);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(Reverse((at, _, what))) = self.queue.pop() {
            self.now = at;
            self.handle(what);
        }
    }

    fn handle(&mut self, what: Happening) {
        match what {
            Happening::Commit => self.commit(),
            Happening::Applied { server, run, position } => self.applied(server, run, position),
            Happening::Round { server, run } => self.round(server, run),
            Happening::Arrival { client, connection, position } => self.arrival(client, connection, position),
            Happening::Connect { client, connection } => self.connect(client, connection),
            Happening::Resumed { client, connection, server } => self.resumed(client, connection, server),
            Happening::Initial { client, connection, server, position, version } => {
                self.initial(client, connection, server, (position, version));
            }
            Happening::EndWatch { client, connection } => {
                if self.clients[client].connection == connection {
                    self.disconnect(client);
                    self.reconnect_soon(client);
                }
            }
            Happening::Fail => self.fail(),
            Happening::Up { server } => self.up(server),
            Happening::Loaded { server } => self.loaded(server),
            Happening::LeafUp { client } => self.leaf_up(client),
        }
    }

    pub(super) fn schedule(&mut self, at: Nanos, what: Happening) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, what)));
    }

    /// True if the restart is over: commits then end.
    pub(super) const fn is_whole(&self) -> bool {
        self.restart.is_some() && self.failed_at < self.now && self.broken == 0 && self.restarting == 0
    }

    /// Members of a tier.
    pub(super) fn members(&self, tier: usize) -> std::ops::Range<usize> {
        let first = self.first[tier];
        first..first + self.plan.tiers[tier].members
    }

    /// A random time below `most`.
    pub(super) fn below(&mut self, most: Nanos) -> Nanos {
        self.rng.u64(0..most.max(1))
    }

    /// Agents behind a leaf.
    pub(super) fn agents_of(&self, client: usize) -> std::ops::Range<usize> {
        let each = self.plan.agents_per_leaf;
        let first = (client - self.first_leaf) * each;
        first..first + each
    }

    /// Leaves of a node.
    pub(super) fn leaves_of(&self, node: usize) -> std::ops::Range<usize> {
        let each = self.plan.leaves_per_node;
        let first = self.first_leaf + node * each;
        first..first + each
    }

    /// Times from the failure after which each broken leaf was whole again.
    pub(crate) fn recoveries(&self) -> Vec<Nanos> {
        let leaves = &self.clients[self.first_leaf..];
        leaves.iter().filter(|leaf| leaf.recovered > 0).map(|leaf| leaf.recovered - self.failed_at).collect()
    }

    /// Time from the failure until the last connection was whole again. `None` if one is broken at the end.
    pub(crate) fn recovery(&self) -> Option<Nanos> {
        let last = self.clients.iter().map(|client| client.recovered).max().unwrap_or(0);
        (self.broken == 0).then(|| last.saturating_sub(self.failed_at))
    }

    /// Frees what the results do not need.
    pub(crate) fn release(&mut self) {
        (self.by_node, self.log) = (Vec::new(), Vec::new());
        (self.agents_online, self.agent_events) = (Vec::new(), Vec::new());
    }

    /// Checks that each agent holds every event of its node once. Returns the number of agents that do not.
    pub(crate) fn wrong_agents(&self) -> usize {
        let all = self.log.len();
        let leaves = self.first_leaf..self.clients.len();
        let expected = |client: usize| {
            if self.plan.is_scoped { self.by_node[self.clients[client].node].len() } else { all }
        };
        leaves
            .flat_map(|client| self.agents_of(client).map(move |agent| (client, agent)))
            .filter(|(client, agent)| self.agent_events[*agent] != expected(*client))
            .count()
    }
}

impl TierSums {
    fn new() -> Self {
        Self {
            requests: Requests::default(),
            event_cpu: 0.0,
            request_cpu: 0.0,
            event_bytes_out: 0.0,
            initial_bytes_out: 0.0,
            bytes_in: 0.0,
            staleness: histogram(),
        }
    }
}

impl Server {
    fn new(tier: usize, client: Option<usize>, cores: usize) -> Self {
        Self {
            tier,
            client,
            is_up: true,
            is_ready: true,
            epoch: 0,
            taken: 0,
            position: 0,
            sent: 0,
            requests: vec![START; cores],
            deliveries: vec![START; cores],
            writer: START,
            is_round_due: false,
            not_before: 0,
            wide: Vec::new(),
            run: 0,
        }
    }
}

/// Puts work of `cost` microseconds on the core that is free first. Returns its start and end.
pub(super) fn work(cores: &mut [Nanos], now: Nanos, cost: f64) -> (Nanos, Nanos) {
    let core = cores.iter_mut().min().expect("a server has a core");
    let start = now.max(*core);
    *core = start + micros(cost);
    (start, *core)
}

impl Client {
    fn new(
        upstream: usize,
        server: Option<usize>,
        node: usize,
        endpoint: usize,
        plan: &TreePlan,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let bookmark_phase = rng.u64(0..plan.bookmark.max(1));
        Self {
            server,
            upstream,
            node,
            parent: None,
            endpoint,
            connection: 0,
            position: 0,
            version: START - (START - bookmark_phase) % plan.bookmark.max(1),
            has_state: true,
            unhealthy: 0,
            leave_at: None,
            last_arrival: 0,
            bookmark_phase,
            free: 0,
            is_broken: false,
            recovered: 0,
        }
    }
}
