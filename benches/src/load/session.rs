//! A scenario from the first look at the server to the last: connect, work at the same time, hold still, look again.
//!
//! INVARIANT: what one client finds is the same as what another finds, or the report says that it is not.

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

/// Connections that are made at once: more would only wait in the server's backlog.
const CONNECTING_MAX: usize = 256;

/// Rest between connecting and working, so that the one does not count as the other.
const REST: Duration = Duration::from_millis(200);

/// What one client found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// Objects of each initial state.
    pub(super) objects: Vec<u64>,
    /// Objects of one that was not read to its end.
    pub(super) partial_objects: u64,
    pub(super) events: u64,
    pub(super) bookmarks: u64,
    /// From a request to its first object.
    pub(super) first: Vec<Duration>,
    /// From a request to its last object.
    pub(super) synced: Vec<Duration>,
    /// Of each page.
    pub(super) pages: Vec<Duration>,
    /// Whether it was told to stop before its end.
    pub(super) unfinished: bool,
    /// Whether it went on from the position it reached.
    pub(super) resumed: bool,
    /// Whether the server cut it, where that is no failure.
    pub(super) cut: bool,
    pub(super) failure: Option<Failure>,
}

/// What each client does.
pub(super) trait Work: Send + Sync + 'static {
    /// Does it once. What was found until a failure counts too.
    fn work(&self, reader: &mut Reader, found: &mut Found) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Where clients wait for each other.
#[derive(Debug)]
pub(super) struct Gate {
    /// Those who hold still, and those who are done.
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
        self.changed.notify_one();
    }

    async fn all(&self, clients: usize) {
        while self.arrived.load(Ordering::Acquire) < clients {
            self.changed.notified().await;
        }
    }

    /// Tells that one holds still; resolves when it need not any more.
    pub(super) async fn hold(&self) {
        let mut stop = self.stop.subscribe();
        self.arrive();
        // The sender lives in the gate.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// A scenario that runs.
pub(super) struct Session {
    pub(super) reading: Arc<Reading>,
    target: Target,
    sampler: Option<Sampler>,
    looks: Looks,
    report: Report,
}

impl Session {
    /// Looks at the server while it is idle.
    ///
    /// # Errors
    /// There is no such process.
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
        // A server that is gone shows in everything else.
        self.sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default()
    }

    /// Lets all clients work at once, and hold still for a while if they do. `limit`: for the work of each.
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
            // Nobody is left to hold still when all have failed.
            let _ = timeout(hold, self.gather_all(&mut running, &mut all)).await;
            let held = self.look();
            self.report.add("heldSeconds", hold.as_secs_f64());
            if self.sampler.is_some() {
                self.report.add("heldCpuSeconds", held.cpu_seconds - self.looks.ended.cpu_seconds);
            }
            self.looks.held = Some(held);
        }
        // Whoever did not hold does not wait for it.
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

    /// Connects them all; those who cannot are failures.
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

    /// Holds the clients to the same number of objects.
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

/// One client, to its end.
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
