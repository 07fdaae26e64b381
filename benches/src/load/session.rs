//! Runs a scenario from the first sample of the server to the last: connect all clients, let them work at the same
//! time, hold the streams, sample again.
//!
//! INVARIANT: all clients find the same number of objects, or the report has failures.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    client::{Http, Target},
    failure::{Failure, Kind},
    flags::Reading,
    reader::Reader,
    report::{Looks, Quantiles, Report},
    sampler::{Sample, Sampler, own_cpu},
};

/// Maximum of concurrent connection attempts: more would only wait in the server's accept queue.
const CONNECTING_MAX: usize = 256;

/// Pause between connecting and working, so that their costs do not mix.
const REST: Duration = Duration::from_millis(200);

/// Results of one client.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// Number of objects of each complete initial state.
    pub(super) objects: Vec<u64>,
    /// Number of objects of an incomplete initial state.
    pub(super) partial_objects: u64,
    pub(super) events: u64,
    pub(super) bookmarks: u64,
    /// Times from a request to its first object.
    pub(super) first: Vec<Duration>,
    /// Times from a request to its last object.
    pub(super) synced: Vec<Duration>,
    /// Times of single pages.
    pub(super) pages: Vec<Duration>,
    /// True if the time was over before the read was complete.
    pub(super) unfinished: bool,
    /// True if the client resumed from the position it had reached.
    pub(super) resumed: bool,
    /// True if the server cut the stream in a scenario in which that is not a failure.
    pub(super) cut: bool,
    pub(super) failure: Option<Failure>,
}

/// The work of each client in a scenario.
pub(super) trait Work: Send + Sync + 'static {
    /// Runs the work once. Results found before a failure count too.
    fn work(&self, reader: &mut Reader, found: &mut Found) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Barrier for the clients of a session.
#[derive(Debug)]
pub(super) struct Gate {
    /// Number of clients that hold their streams or have ended.
    arrived: AtomicUsize,
    changed: Notify,
    stop: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Self {
        Self { arrived: AtomicUsize::new(0), changed: Notify::new(), stop: watch::channel(false).0 }
    }

    pub(super) fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        // `notify_one` stores a permit, so an arrival between the check and the wait in `all` is not lost.
        self.changed.notify_one();
    }

    async fn all(&self, clients: usize) {
        while self.arrived.load(Ordering::Acquire) < clients {
            self.changed.notified().await;
        }
    }

    /// Arrives at the gate and waits until the hold phase is over.
    pub(super) async fn hold(&self) {
        let mut stop = self.stop.subscribe();
        self.arrive();
        // The sender is a field of `self`, so it is open.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// A running scenario.
pub(super) struct Session {
    pub(super) reading: Arc<Reading>,
    target: Target,
    sampler: Option<Sampler>,
    looks: Looks,
    report: Report,
}

impl Session {
    /// Takes the first sample of the server, while it is idle.
    ///
    /// # Errors
    /// The process of `--pid` does not exist.
    pub(super) fn begin(scenario: &str, reading: &Reading, target: Target) -> Result<Self, Failure> {
        let sampler = reading.server.pid.map(|pid| Sampler::start(pid, target.address().port())).transpose();
        let sampler = sampler.map_err(|error| Failure::new(Kind::Client, format!("--pid: {error}")))?;
        let report = Report {
            scenario: scenario.to_owned(),
            server: target.url().to_owned(),
            path: reading.path(0, &[]),
            http: if target.http() == Http::Two { 2 } else { 1 },
            tls: target.is_tls(),
            gzip: reading.gzip,
            clients: u64::from(reading.server.clients),
            ..Report::default()
        };
        let mut session = Self { reading: Arc::new(reading.clone()), target, sampler, looks: Looks::default(), report };
        session.looks.idle = session.look();
        Ok(session)
    }

    fn look(&self) -> Sample {
        // If the server has ended, the failures of all clients show it.
        self.sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default()
    }

    /// Lets all clients work at the same time, then hold their streams for `hold` if given. `limit` bounds the work of
    /// each client.
    pub(super) async fn run<W: Work>(mut self, work: W, limit: Option<Duration>, hold: Option<Duration>) -> Report {
        let gate = Arc::new(Gate::new());
        let readers = self.readers(&gate).await;
        sleep(REST).await;
        self.looks.connected = self.look();
        let (begun, cpu) = (Instant::now(), own_cpu().unwrap_or_default());
        let (work, count) = (Arc::new(work), readers.len());
        let mut running = JoinSet::new();
        for reader in readers {
            running.spawn(one(Arc::clone(&work), reader, limit));
        }
        gate.all(count).await;
        self.report.seconds = begun.elapsed().as_secs_f64();
        self.report.client_cpu_seconds = own_cpu().unwrap_or_default().saturating_sub(cpu).as_secs_f64();
        self.looks.ended = self.look();
        let mut all = Vec::with_capacity(count);
        if let Some(hold) = hold {
            // Ends early if all clients have failed.
            let _ = timeout(hold, self.gather_all(&mut running, &mut all)).await;
            let held = self.look();
            self.report.add("heldSeconds", hold.as_secs_f64());
            if self.sampler.is_some() {
                self.report.add("heldCpuSeconds", held.cpu_seconds - self.looks.ended.cpu_seconds);
            }
            self.looks.held = Some(held);
        }
        // An error means that no client is in the hold phase.
        let _ = gate.stop.send(true);
        self.gather_all(&mut running, &mut all).await;
        self.finish(all).await
    }

    /// Waits until all clients have ended. Cancel safe.
    async fn gather_all(&mut self, running: &mut JoinSet<Found>, all: &mut Vec<Found>) {
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok(found) => all.push(found),
                Err(error) => self.report.failures.add(Failure::new(Kind::Client, error)),
            }
        }
    }

    /// Connects all clients; clients that cannot connect count as failures.
    async fn readers(&mut self, gate: &Arc<Gate>) -> Vec<Reader> {
        let begun = Instant::now();
        let clients = self.reading.server.clients as usize;
        let streams = if self.target.http() == Http::Two { self.reading.streams as usize } else { 1 };
        let places = Arc::new(Semaphore::new(CONNECTING_MAX));
        let mut connecting = JoinSet::new();
        for first in (0..clients).step_by(streams) {
            let (target, places) = (self.target.clone(), Arc::clone(&places));
            #[expect(clippy::cast_precision_loss, reason = "a count of connections")]
            let due = begun + Duration::from_secs_f64((first / streams) as f64 / self.reading.server.connect_rate);
            connecting.spawn(async move {
                sleep_until(due).await;
                let _place = places.acquire().await;
                (first, target.connect().await)
            });
        }
        let mut readers = Vec::with_capacity(clients);
        while let Some(connected) = connecting.join_next().await {
            let (first, connection) = match connected {
                Ok((first, Ok(connection))) => (first, connection),
                Ok((_, Err(failure))) => {
                    self.report.failures.add(failure);
                    continue;
                }
                Err(error) => {
                    self.report.failures.add(Failure::new(Kind::Client, error));
                    continue;
                }
            };
            let others: Vec<_> =
                (first + 1..clients.min(first + streams)).map_while(|at| Some((at, connection.another()?))).collect();
            for (number, connection) in std::iter::once((first, connection)).chain(others) {
                let (reading, target) = (Arc::clone(&self.reading), self.target.clone());
                readers.push(Reader::new(number, connection, reading, target, Arc::clone(gate)));
            }
        }
        self.report.connect_seconds = begun.elapsed().as_secs_f64();
        readers
    }

    async fn finish(mut self, all: Vec<Found>) -> Report {
        self.gather(all);
        self.looks.peaks = self.sampler.as_ref().map(Sampler::peaks).unwrap_or_default();
        if let Some(pid) = self.reading.server.pid {
            sleep(self.reading.settle).await;
            self.looks.after = self.look();
            self.report.server_process = Some(self.looks.report(pid, self.report.clients));
        }
        self.report
    }

    fn gather(&mut self, all: Vec<Found>) {
        let report = &mut self.report;
        let (mut first, mut synced, mut pages, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut unfinished, mut resumed, mut cut) = (0_u64, 0_u64, 0_u64);
        for found in all {
            report.bytes += found.bytes;
            report.requests += found.requests;
            report.events += found.events;
            report.bookmarks += found.bookmarks;
            report.objects += found.objects.iter().sum::<u64>() + found.partial_objects;
            first.extend(found.first);
            synced.extend(found.synced);
            pages.extend(found.pages);
            counts.extend(found.objects);
            unfinished += u64::from(found.unfinished);
            resumed += u64::from(found.resumed);
            cut += u64::from(found.cut);
            if let Some(failure) = found.failure {
                report.failures.add(failure);
            }
        }
        report.first_object_millis = Quantiles::millis(first);
        report.sync_millis = Quantiles::millis(synced);
        let pages_read = pages.len() as u64;
        for (name, count) in [("pages", pages_read), ("unfinished", unfinished), ("resumed", resumed), ("cut", cut)] {
            if count > 0 {
                report.add(name, count);
            }
        }
        if let Some(Quantiles { p50, p99, max }) = Quantiles::millis(pages) {
            report.add("pageMillis", serde_json::json!({ "p50": p50, "p99": p99, "max": max }));
        }
        self.compare(&counts);
    }

    /// Checks that all clients found the same number of objects.
    fn compare(&mut self, counts: &[u64]) {
        let mut often = BTreeMap::<u64, u64>::new();
        for count in counts {
            *often.entry(*count).or_default() += 1;
        }
        let usual = often.iter().max_by_key(|(_, times)| **times).map(|(count, _)| *count);
        if often.len() == 1 {
            self.report.objects_per_client = usual;
        }
        let Some(right) = self.reading.expect.or(usual) else { return };
        for count in counts.iter().filter(|count| **count != right && !self.reading.counts_may_differ) {
            self.report.failures.add(Failure::new(Kind::Count, format!("{count} objects, not {right}")));
        }
    }
}

/// Runs the work of one client.
async fn one(work: Arc<impl Work>, mut reader: Reader, limit: Option<Duration>) -> Found {
    let mut found = Found::default();
    let working = work.work(&mut reader, &mut found);
    let result = match limit {
        None => working.await,
        Some(limit) => timeout(limit, working)
            .await
            .unwrap_or_else(|_| Err(Failure::new(Kind::Timeout, format!("not done in {} s", limit.as_secs_f64())))),
    };
    found.failure = result.err();
    found
}
