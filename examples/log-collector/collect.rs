//! The collector: each turn scans the log tree and the pods, and writes the new lines.
//!
//! INVARIANT: a position is saved only after its lines were written and flushed. A clean stop neither repeats nor loses
//! a line; a crash repeats at most the lines written since the last save.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use crate::{
    Failure,
    cri::Line,
    enrich::{Metadata, Pods, Record},
    names::PodRef,
    positions,
    tail::{Limits, Lines, Tail},
};

/// Minimum time between two saves of the positions. Bounds the lines that a crash repeats.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Size of the output buffer.
const OUT_BYTES: usize = 64 << 10;

/// Maximum of distinct errors that are printed to stderr. Further ones are only counted.
const TROUBLES_REPORTED_MAX: usize = 100;

/// Settings of a collector.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Name of this node, as in the pods' `spec.nodeName`.
    pub(crate) node: String,
    /// Root of the log tree, usually `/var/log/pods`.
    pub(crate) root: PathBuf,
    /// The uid of the pod that this program runs in, whose lines are skipped.
    pub(crate) own_uid: Option<String>,
    /// File that keeps positions over restarts.
    pub(crate) positions: Option<PathBuf>,
    /// Pause between two turns without more to read. Delays a line by at most this time. A shorter pause costs more
    /// directory scans.
    pub(crate) poll: Duration,
    /// Time for which the lines of a pod wait for its metadata.
    pub(crate) metadata_wait: Duration,
    pub(crate) limits: Limits,
}

/// Counters of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    /// Lines without labels.
    pub(crate) without_metadata: u64,
    /// Lines that were too long and truncated.
    pub(crate) cut: u64,
    /// Failed reads of files or directories.
    pub(crate) troubles: u64,
}

/// Reads log files and writes records.
pub(crate) struct Collector<W: Write> {
    tail: Tail,
    out: Out<W>,
    settings: Settings,
    /// Time and content of the last save.
    saved: Option<(Instant, Vec<positions::Position>)>,
    /// True once the root was read. Before that there are no positions worth saving.
    has_scanned: bool,
}

/// Turns lines into records.
struct Out<W: Write> {
    node: String,
    pods: Pods,
    metadata_wait: Duration,
    /// State of each pod that has files.
    known: HashMap<PodRef, Known>,
    sink: BufWriter<W>,
    counts: Counts,
    /// Errors printed before, so that a lasting one is printed once.
    reported: BTreeSet<String>,
}

/// State of a pod that has files.
struct Known {
    since: Instant,
    metadata: Option<Arc<Metadata>>,
}

impl<W: Write> Collector<W> {
    /// Resumes from the saved positions.
    ///
    /// # Errors
    /// The positions cannot be read.
    pub(crate) fn new(settings: Settings, pods: Pods, sink: W) -> Result<Self, Failure> {
        let saved = match &settings.positions {
            Some(path) => positions::load(path).map_err(|error| format!("{}: {error}", path.display()))?,
            None => HashMap::new(),
        };
        let mut tail = Tail::new(settings.root.clone(), settings.limits, saved);
        settings.own_uid.clone().into_iter().for_each(|uid| tail.skip(uid));
        let out = Out {
            node: settings.node.clone(),
            pods,
            metadata_wait: settings.metadata_wait,
            known: HashMap::new(),
            sink: BufWriter::with_capacity(OUT_BYTES, sink),
            counts: Counts::default(),
            reported: BTreeSet::new(),
        };
        Ok(Self { tail, out, settings, saved: None, has_scanned: false })
    }

    /// The pods of the node.
    pub(crate) const fn pods(&self) -> &Pods {
        &self.out.pods
    }

    /// Collects until `stop` receives a message or is disconnected. Blocks its thread.
    ///
    /// # Errors
    /// Records or positions cannot be written.
    pub(crate) fn run(mut self, stop: &mpsc::Receiver<()>) -> Result<Counts, Failure> {
        loop {
            let has_more = self.turn()?;
            if self.saved.as_ref().is_none_or(|(at, _)| at.elapsed() >= SAVE_EVERY) {
                self.save()?;
            }
            let pause = if has_more { Duration::ZERO } else { self.settings.poll };
            match stop.recv_timeout(pause) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => return self.finish(),
            }
        }
    }

    /// Writes the new lines. Returns true if there is more to read.
    ///
    /// # Errors
    /// Records cannot be written.
    pub(crate) fn turn(&mut self) -> Result<bool, Failure> {
        self.out.pods.look();
        match self.tail.scan(&mut self.out) {
            Ok(()) => self.has_scanned = true,
            Err(error) => self.out.trouble(&self.settings.root, &error),
        }
        self.out.known.retain(|pod, _| self.tail.follows(pod));
        let has_more = self.tail.read(&mut self.out)?;
        self.out.sink.flush()?;
        Ok(has_more)
    }

    /// Saves the positions if they have changed and a file for them is set.
    fn save(&mut self) -> Result<(), Failure> {
        let Some(path) = self.settings.positions.as_ref().filter(|_| self.has_scanned) else { return Ok(()) };
        let now = self.tail.positions();
        if self.saved.as_ref().is_none_or(|(_, saved)| *saved != now) {
            positions::save(path, &now).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        self.saved = Some((Instant::now(), now));
        Ok(())
    }

    /// Saves the last positions. The next run reads incomplete lines again.
    ///
    /// # Errors
    /// The positions cannot be written.
    pub(crate) fn finish(mut self) -> Result<Counts, Failure> {
        self.save()?;
        Ok(self.out.counts)
    }
}

impl<W: Write> Lines for Out<W> {
    fn takes(&mut self, pod: &PodRef) -> bool {
        let known = self.known.entry(pod.clone()).or_insert_with(|| Known { since: Instant::now(), metadata: None });
        known.metadata = self.pods.find(pod, known.metadata.as_ref());
        known.metadata.is_some() || known.since.elapsed() >= self.metadata_wait
    }

    fn line(&mut self, pod: &PodRef, container: &str, line: Line<'_>) -> io::Result<()> {
        let metadata = self.known.get(pod).and_then(|known| known.metadata.as_deref());
        self.counts.lines += 1;
        self.counts.without_metadata += u64::from(metadata.is_none());
        self.counts.cut += u64::from(line.cut > 0);
        serde_json::to_writer(&mut self.sink, &Record::new(&self.node, pod, container, metadata, &line))?;
        self.sink.write_all(b"\n")
    }

    fn trouble(&mut self, path: &Path, error: &io::Error) {
        self.counts.troubles += 1;
        let trouble = format!("{}: {error}", path.display());
        if self.reported.len() < TROUBLES_REPORTED_MAX && !self.reported.contains(&trouble) {
            eprintln!("log-collector: {trouble}");
            self.reported.insert(trouble);
        }
    }
}

impl Counts {
    /// Adds the counts of another run.
    pub(crate) const fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.without_metadata += other.without_metadata;
        self.cut += other.cut;
        self.troubles += other.troubles;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, without_metadata, cut, troubles } = self;
        write!(f, "{lines} lines, {without_metadata} of them without metadata, {cut} cut, {troubles} failed reads")
    }
}
