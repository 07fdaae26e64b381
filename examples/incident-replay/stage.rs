//! Plays one act on one server: quiet, the agents' start, restarts of the server, and the time until all are in sync.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use measured::{Failure, memory::mib};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    agents::ListingClient,
    board::Board,
    bystander::{Bystander, Duty, summary},
    host::{self, Host},
    identities::IdentityFiles,
    informers::InformerFleet,
    plan::{Act, NodePods, Options, Side, Sizes, StockReads},
    sampler::Sampler,
    scene::{DutyComparison, Scene},
    view::{Moment, View},
};

/// Pause between two looks, and two drawings.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for a server to return the memory of its start.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest start of a server.
const START_WAIT: Duration = Duration::from_secs(120);
/// The server is killed once this share of the copies is in sync, in percent, or after this part of the deadline.
const KILL_AT_PERCENT: usize = 25;
const KILL_AT_DEADLINE_PART: u32 = 3;
/// Pause between two kills, if there are several.
const BETWEEN_KILLS: Duration = Duration::from_secs(2);
/// Time after the sync that the picture shows.
const LINGER: Duration = Duration::from_secs(1);
/// Renewals in the view.
const RENEWALS_SHOWN: usize = 200;

/// Everything that all acts share.
pub(crate) struct Production<'a> {
    pub(crate) options: &'a Options,
    pub(crate) files: &'a IdentityFiles,
    pub(crate) places: &'a [Arc<NodePods>],
    /// Runtime for requests of the operator.
    pub(crate) control: &'a Runtime,
}

/// A running act.
struct Stage<'a> {
    production: &'a Production<'a>,
    sizes: Sizes,
    host: Host<'a>,
    sampler: Sampler,
    bystander: Bystander,
    board: Arc<Board>,
    view: View,
    /// Version of each node's change; `u64::MAX` until it is written.
    marks: Arc<Vec<AtomicU64>>,
    /// Version that lists request exactly; 0: the newest.
    exact: Arc<AtomicU64>,
    /// Times without a server that is ready.
    away: Vec<(Instant, Instant)>,
    title: String,
    /// Beginning of the quiet time.
    opened: Instant,
}

/// The agents' runtime and, in act 3, the informers. Dropping it ends all agents.
struct Crowd {
    runtime: Option<Runtime>,
    fleet: Option<Arc<InformerFleet>>,
}

impl Production<'_> {
    /// Plays an act from the start of its server to the end.
    pub(crate) fn play(&self, mut host: Host<'_>) -> Result<Scene, Failure> {
        let sizes = self.options.sizes();
        let sampler = Sampler::start(host.etcd())?;
        sampler.follow(Some(self.open(&mut host)?));
        if host.act == Act::Queued && host.side() == Side::KubeApiserver {
            self.control.block_on(Host::apply_manifests(host.target.clone()))?;
        }
        thread::sleep(SETTLE);
        let idle = sampler.begin()?;
        let title = format!("{}   {}", host.act.title(), host.side().name());
        let mut stage = Stage {
            production: self,
            sizes,
            bystander: Bystander::start(host.target.clone())?,
            host,
            sampler,
            board: Arc::new(Board::new(self.places.len() * sizes.lists)),
            view: View::begin(self.places.len() * sizes.lists)?,
            marks: Arc::new(self.places.iter().map(|_| AtomicU64::new(u64::MAX)).collect()),
            exact: Arc::default(),
            away: Vec::new(),
            title,
            opened: Instant::now(),
        };
        stage.perform(idle)
    }

    /// Starts a server for the first time, waits until it is ready, and returns its process id.
    pub(crate) fn open(&self, host: &mut Host<'_>) -> Result<u32, Failure> {
        let id = host.launch()?;
        let ready = self.control.spawn(host::ready(host.target.clone()));
        let begun = Instant::now();
        while !ready.is_finished() {
            if host.has_ended() || begun.elapsed() > START_WAIT {
                ready.abort();
                return Err(format!("{} does not start: {}", host.side().name(), host.log_end()).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(id)
    }
}

impl Stage<'_> {
    fn perform(&mut self, idle: usize) -> Result<Scene, Failure> {
        self.look_until(self.sizes.quiet, |_| false)?;
        self.note_position()?;
        let begun = Instant::now();
        let crowd = self.gather()?;
        self.restart_in_the_storm()?;
        let killed = self.away.last().map_or(begun, |&(from, _)| from);
        let writing = self.write_marks();
        self.look_until(self.sizes.deadline, |stage| stage.in_sync() == stage.copies())?;
        writing.abort();
        let (end, in_sync) = (Instant::now(), self.in_sync());
        self.look_until(LINGER, |_| false)?;
        let counts = crowd.fleet.as_ref().map(|fleet| fleet.check(&self.board));
        drop(crowd);
        if let Some(wrong) = self.board.wrong() {
            return Err(format!("{}: {wrong}", self.title).into());
        }
        let seconds = |at: Instant| at.duration_since(begun).as_secs_f64() - begun.duration_since(at).as_secs_f64();
        Ok(Scene {
            side: self.host.side(),
            act: self.host.act,
            idle,
            peak: self.sampler.peak(),
            etcd_peak: self.sampler.etcd_peak(),
            curve: self.sampler.samples().iter().map(|sample| (seconds(sample.at), sample.bytes.map(mib))).collect(),
            initial: counts.map_or_else(|| self.board.answered.load(Relaxed), |counts| counts.initial),
            resumed: counts.map_or(0, |counts| counts.resumes),
            refused: self.board.refused.load(Relaxed),
            bytes: self.board.bytes.load(Relaxed),
            lists: self.board.latencies(),
            leases: self.comparison(Duty::Lease, begun, end),
            health: self.comparison(Duty::Health, begun, end),
            away: self.away.iter().map(|(from, to)| to.duration_since(*from)).sum(),
            synced: (in_sync == self.copies()).then(|| end.duration_since(killed)),
            copies: self.copies(),
            in_sync,
            memory_kills: self.sampler.kills(),
        })
    }

    /// Starts all agents at once.
    fn gather(&self) -> Result<Crowd, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let Production { files, places, .. } = self.production;
        let fleet = if self.host.act == Act::Streams {
            let guard = runtime.enter();
            let fleet = InformerFleet::start(&self.host.target, files, places, self.sizes.lists, &self.board)?;
            drop(guard);
            let (fleet, board) = (Arc::new(fleet), Arc::clone(&self.board));
            let reported = Arc::clone(&fleet);
            runtime.spawn(async move { reported.report(&board).await });
            Some(fleet)
        } else {
            for copy in 0..self.copies() {
                let client = ListingClient {
                    target: self.host.target.clone(),
                    board: Arc::clone(&self.board),
                    copy,
                    place: Arc::clone(&places[copy % places.len()]),
                    exact: Arc::clone(&self.exact),
                };
                runtime.spawn(client.run());
            }
            None
        };
        Ok(Crowd { runtime: Some(runtime), fleet })
    }

    /// Kills the server in the middle of the storm and starts it again.
    fn restart_in_the_storm(&mut self) -> Result<(), Failure> {
        let enough = self.copies() * KILL_AT_PERCENT / 100;
        let any_version = vec![1; self.production.places.len()];
        let deadline = self.sizes.deadline / KILL_AT_DEADLINE_PART;
        self.look_until(deadline, |stage| stage.board.in_sync(&any_version) >= enough)?;
        for number in 0..self.production.options.restarts {
            if number > 0 {
                self.look_until(BETWEEN_KILLS, |_| false)?;
            }
            self.restart()?;
        }
        Ok(())
    }

    /// Kills the server unless it has ended, starts it again, and waits until it is ready.
    fn restart(&mut self) -> Result<(), Failure> {
        let from = Instant::now();
        self.sampler.follow(None);
        self.host.kill();
        self.sampler.follow(Some(self.host.launch()?));
        let ready = self.production.control.spawn(host::ready(self.host.target.clone()));
        while !ready.is_finished() && from.elapsed() < START_WAIT && !self.host.has_ended() {
            self.look();
        }
        ready.abort();
        self.away.push((from, Instant::now()));
        self.note_position()
    }

    /// Looks and draws for a time or until a condition holds. Starts the server again if it ended.
    fn look_until(&mut self, time: Duration, is_over: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        while begun.elapsed() < time && !is_over(self) {
            if self.host.has_ended() {
                // A server that ends by itself, and not because of its memory, is a failure of the run.
                if self.sampler.kills() == 0 {
                    return Err(format!("{} ended: {}", self.host.side().name(), self.host.log_end()).into());
                }
                self.restart()?;
            }
            self.look();
        }
        Ok(())
    }

    fn look(&self) {
        let (samples, records) = (self.sampler.samples(), self.bystander.records());
        let all = summary(&records, Duty::Lease, (self.opened, Instant::now()), &self.away);
        let any_version = vec![1; self.production.places.len()];
        let refused = self.board.refused.load(Relaxed);
        self.view.draw(&Moment {
            title: self.title.clone(),
            samples: &samples,
            peak: self.sampler.peak(),
            in_sync: if self.away.is_empty() { self.board.in_sync(&any_version) } else { self.in_sync() },
            counts: format!(", {} answers, {refused} refused", self.board.answered.load(Relaxed)),
            renewals: all.latencies.last(RENEWALS_SHOWN),
            failed: all.failed,
        });
        thread::sleep(LOOK_EVERY);
    }

    /// Lists of an exact version request the newest one of now.
    fn note_position(&self) -> Result<(), Failure> {
        let is_exact =
            self.production.options.stock_reads == StockReads::Etcd && self.host.side() == Side::KubeApiserver;
        if is_exact && self.host.act != Act::Streams {
            let version = self.production.control.block_on(host::position(self.host.target.clone()))?;
            self.exact.store(version, Relaxed);
        }
        Ok(())
    }

    fn write_marks(&self) -> JoinHandle<()> {
        let places = self.production.places.to_vec();
        self.production.control.spawn(host::write_marks(self.host.target.clone(), places, Arc::clone(&self.marks)))
    }

    fn copies(&self) -> usize {
        self.production.places.len() * self.sizes.lists
    }

    /// Number of copies that have the change of their node.
    fn in_sync(&self) -> usize {
        let marks: Vec<u64> = self.marks.iter().map(|mark| mark.load(Relaxed)).collect();
        self.board.in_sync(&marks)
    }

    /// The bystander's requests before and during the storm.
    fn comparison(&self, duty: Duty, begun: Instant, end: Instant) -> DutyComparison {
        let records = self.bystander.records();
        let within = |from, to| summary(&records, duty, (from, to), &self.away);
        DutyComparison { quiet: within(self.opened, begun), storm: within(begun, end) }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.fleet = None;
        // Thousands of tasks end without being waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
