//! Costs of events, deliveries and requests, derived from the measured numbers in `docs/benchmarks`.

use std::{fs, path::Path};

use serde_json::Value;

use super::Failure;

/// Cost of one server process. CPU is in microseconds, memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// Reads one event from upstream, and keeps it.
    pub(crate) receive: f64,
    /// Applies one event to the cache.
    pub(crate) apply: f64,
    /// One round of waking, whatever the number of watchers.
    pub(crate) round: f64,
    /// Wakes one watcher and writes to its socket once.
    pub(crate) wake: f64,
    /// One event in that write.
    pub(crate) event: f64,
    /// One byte in that write.
    pub(crate) byte: f64,
    /// Accepts one connection and one watch from a position.
    pub(crate) connect: f64,
    /// The small read that proves the history before a resume.
    pub(crate) proof: f64,
    /// Sends one object of an initial stream.
    pub(crate) object: f64,
    /// Memory of one connection with a parked watch.
    pub(crate) connection: f64,
    /// True if rounds of waking are followed by a pause, as in `cache-server/caches/src/cacher/task.rs`.
    pub(crate) has_pauses: bool,
}

/// All inputs that were measured.
#[derive(Clone, Debug)]
pub(crate) struct Measurements {
    /// kube-apiserver over TLS.
    pub(crate) kube: Costs,
    /// cache-server, over TLS between machines.
    pub(crate) tls: Costs,
    /// cache-server, without TLS, within one machine.
    pub(crate) plain: Costs,
    /// Resident MiB of a cache-server without objects, and for each pod.
    pub(crate) memory: (f64, f64),
    /// Resident MiB of kube-apiserver with 7,130 pods.
    pub(crate) kube_memory: f64,
    /// Each input as (name, value with unit, source), for the page.
    pub(crate) lines: Vec<(String, String, String)>,
    numbers: Value,
    rates: Value,
}

/// CPU of the SDK for one change of one object, sockets included, in microseconds: `rivals.md`, "CPU a change".
const SDK_CHANGE: f64 = 40.0;
/// CPU of the SDK for one object of initial state, in microseconds: `rivals.md`, 470 ms for 50,000 pods.
pub(crate) const SDK_OBJECT: f64 = 9.4;
/// CPU of kube-apiserver for one SelfSubjectAccessReview, in microseconds: 4,760 of them took 2.44 s while 1,000 watches were
/// asked about every 4.2 s (`upstream.md`, `watchers-node`, of 2026-11-22).
pub(crate) const REVIEW: f64 = 510.0;
/// CPU of a single GET, in microseconds: `reads.md`.
const GET: f64 = 11.0;
/// Objects of the initial streams in the case `sync-*`.
const SYNC_OBJECTS: f64 = 456_320.0;
/// Events that one write carries in bursts of 100, of which the first wakes the watchers and the others wait.
const BURST_BATCH: f64 = 50.0;

impl Measurements {
    /// Reads the raw numbers in `folder`.
    ///
    /// # Errors
    /// A file or a case is missing.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let json = |name: &str| -> Result<Value, Failure> {
            Ok(serde_json::from_str(&fs::read_to_string(folder.join(name))?)?)
        };
        let (numbers, objects) = (json("numbers.json")?, json("memory-by-objects.json")?);
        let line = &objects["series"][0]["line"];
        let memory = (number(&line["intercept"], "objects")?, number(&line["slope"], "objects")?);
        let mut found = Self {
            kube: Costs::default(),
            tls: Costs::default(),
            plain: Costs::default(),
            memory,
            kube_memory: 0.0,
            lines: Vec::new(),
            rates: json("cpu-by-rate.json")?,
            numbers,
        };
        found.plain = found.cache("")?;
        // The case `nodes` exists without TLS only.
        found.tls = Costs { round: found.plain.round, ..found.cache("-tls")? };
        found.kube = found.stock()?;
        found.kube_memory = found.field("idle", true, "rssBytes")? / f64::from(1 << 20);
        found.lines = found.described();
        Ok(found)
    }

    /// A field of what a case found.
    pub(crate) fn field(&self, case: &str, is_stock: bool, name: &str) -> Result<f64, Failure> {
        let outcomes = self.numbers["outcomes"].as_array().into_iter().flatten();
        let outcome = outcomes.into_iter().find(|outcome| outcome["case"] == case && outcome["is_stock"] == is_stock);
        number(outcome.map_or(&Value::Null, |outcome| &outcome["found"][name]), &format!("{case}.{name}"))
    }

    fn micros(&self, case: &str, is_stock: bool, name: &str) -> Result<f64, Failure> {
        Ok(self.field(case, is_stock, name)? * 1e6)
    }

    /// Percent of a core with 1,000 watchers by writes a second, one by one.
    pub(crate) fn paced(&self) -> Vec<(f64, f64)> {
        let points = self.rates["series"][1]["points"].as_array();
        let point = |point: &Value| Some((point[0].as_f64()?, point[1].as_f64()?));
        points.into_iter().flatten().filter_map(point).collect()
    }

    /// Microseconds of a delivery without its share of the write, which `watchers` share.
    fn delivery(&self, case: &str, is_stock: bool, watchers: f64) -> Result<f64, Failure> {
        let whole = self.micros(case, is_stock, "serverCpuSecondsPerDelivery")?;
        let write = self.micros(case, is_stock, "serverCpuSecondsPerWriteAlone")?;
        Ok(whole - write / watchers)
    }

    fn cache(&self, tls: &str) -> Result<Costs, Failure> {
        let case = |name: &str| format!("{name}-h1{tls}");
        let small = self.delivery(&case("burst-05k"), false, 1e3)?;
        let large = self.delivery(&case("burst-50k"), false, 1e3)?;
        let byte = (large - small) / (50_000.0 - 512.0);
        // Two equations: a burst of 100 events of 512 bytes, and single events of 3,000 bytes.
        let single = self.delivery(&case("paced"), false, 100.0)? - 3_000.0 * byte;
        let batched = small - 512.0 * byte;
        let wake = (single - batched) / (1.0 - 1.0 / BURST_BATCH);
        let event = single - wake;
        let lone = self.delivery("nodes", false, 1.0)?;
        let connect = if tls.is_empty() {
            self.micros("storm-resume", false, "serverCpuSecondsPerClient")?
        } else {
            self.micros(&case("idle-10000"), false, "serverProcess.connectCpuSeconds")? / 1e4
        };
        Ok(Costs {
            receive: SDK_CHANGE,
            apply: self.micros("publish", false, "manySeconds")?,
            round: (lone - single - 512.0 * byte).max(0.0),
            wake,
            event,
            byte,
            connect,
            proof: GET,
            object: self.micros(&case("sync"), false, "serverProcess.cpuSeconds")? / SYNC_OBJECTS,
            connection: self.field(&case("idle-10000"), false, "serverProcess.rssHeldPerClientBytes")? / 1024.0,
            has_pauses: true,
        })
    }

    fn stock(&self) -> Result<Costs, Failure> {
        Ok(Costs {
            // Each event is a write of its own.
            event: self.delivery("paced-h1-tls", true, 100.0)?,
            connect: self.micros("idle-10000-h1-tls", true, "serverProcess.connectCpuSeconds")? / 1e4,
            proof: GET,
            object: self.micros("sync-h1-tls", true, "serverProcess.cpuSeconds")? / SYNC_OBJECTS,
            connection: self.field("idle-10000-h1-tls", true, "serverProcess.rssHeldPerClientBytes")? / 1024.0,
            ..Costs::default()
        })
    }

    fn described(&self) -> Vec<(String, String, String)> {
        let Self { kube, tls, plain, .. } = self;
        let three = |of: fn(&Costs) -> f64| format!("{:.3} / {:.3} / {:.3} µs", of(kube), of(tls), of(plain));
        let two = |of: fn(&Costs) -> f64| format!("– / {:.2} / {:.2} µs", of(tls), of(plain));
        let memory = format!("{:.1} / {:.1} / {:.1} KiB", kube.connection, tls.connection, plain.connection);
        let line = |name: &str, value: String, source: &str| (name.to_owned(), value, source.to_owned());
        vec![
            line(
                "deliver one small event alone",
                three(|costs| costs.wake + costs.event),
                "`paced-h1-tls`, `paced-h1`, less the write",
            ),
            line("… of that for each event in one write", two(|costs| costs.event), "`burst-05k-*`"),
            line("… and for each KiB", two(|costs| costs.byte * 1024.0), "`burst-50k-*` less `burst-05k-*`"),
            line("one round of waking", two(|costs| costs.round), "`nodes`, less a wake"),
            line("apply an event to a cache", two(|costs| costs.apply), "`publish`"),
            line("read an event from upstream", two(|costs| costs.receive), "[rivals.md](benchmarks/rivals.md)"),
            line("connect and resume a watch", three(|costs| costs.connect), "`idle-10000-h1-tls`, `storm-resume`"),
            line("send an object of initial state", three(|costs| costs.object), "`sync-h1-tls`, `sync-h1`"),
            line("a connection with a parked watch", memory, "`idle-10000-*`"),
        ]
    }
}

fn number(value: &Value, name: &str) -> Result<f64, Failure> {
    value.as_f64().ok_or_else(|| Failure::Page(format!("the measured numbers have no {name}")))
}
