//! The collector: one turn looks at the tree and the pods, and writes what is new.
//!
//! INVARIANT: a position is saved after its lines were written out and flushed. A clean stop neither repeats nor loses a
//! line; a crash repeats at most what was written since the last save.

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

/// Pause between two saves of the positions, while there is something to save. Bounds what a crash repeats.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Bytes of records that are written at once.
const OUT_BYTES: usize = 64 << 10;

/// Different troubles that are told on stderr. Others are counted.
const TROUBLES_TOLD_MAX: usize = 100;

/// What a collector is told.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The name of this node, as pods have it in `spec.nodeName`.
    pub(crate) node: String,
    /// `/var/log/pods`.
    pub(crate) root: PathBuf,
    /// The uid of the pod that this program runs in, whose lines are its own.
    pub(crate) own_uid: Option<String>,
    /// Where positions are kept over restarts.
    pub(crate) positions: Option<PathBuf>,
    /// Pause between two looks at the files, when there was nothing more to read. A line is at most so much older when
    /// it comes out. Shorter costs a look at each directory each time.
    pub(crate) poll: Duration,
    /// How long the lines of a pod wait for its metadata.
    pub(crate) metadata_wait: Duration,
    pub(crate) limits: Limits,
}

/// What came out, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    /// Lines without labels.
    pub(crate) without_metadata: u64,
    /// Lines that were too long.
    pub(crate) cut: u64,
    /// Times that a file or directory could not be read.
    pub(crate) troubles: u64,
}

/// Files in, records out.
pub(crate) struct Collector<W: Write> {
    tail: Tail,
    out: Out<W>,
    settings: Settings,
    /// When positions were saved last, and which.
    saved: Option<(Instant, Vec<positions::Position>)>,
    /// The root was read since the start. Before, nothing is known that is worth saving.
    has_scanned: bool,
}

/// Where lines become records.
struct Out<W: Write> {
    node: String,
    pods: Pods,
    metadata_wait: Duration,
    /// One for each pod that has files.
    known: HashMap<PodRef, Known>,
    sink: BufWriter<W>,
    counts: Counts,
    /// Troubles told, so that one that lasts is told once.
    told: BTreeSet<String>,
}

/// What is known of a pod that has files.
struct Known {
    since: Instant,
    metadata: Option<Arc<Metadata>>,
}

impl<W: Write> Collector<W> {
    /// Goes on where the positions say.
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
            told: BTreeSet::new(),
        };
        Ok(Self { tail, out, settings, saved: None, has_scanned: false })
    }

    /// The pods it knows.
    pub(crate) const fn pods(&self) -> &Pods {
        &self.out.pods
    }

    /// Collects until `stop` says so or its other end is gone. Blocks; belongs on a thread of its own.
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

    /// Writes what is new. Returns whether there is more.
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

    /// Saves the positions, where they are wanted and have changed.
    fn save(&mut self) -> Result<(), Failure> {
        let Some(path) = self.settings.positions.as_ref().filter(|_| self.has_scanned) else { return Ok(()) };
        let now = self.tail.positions();
        if self.saved.as_ref().is_none_or(|(_, saved)| *saved != now) {
            positions::save(path, &now).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        self.saved = Some((Instant::now(), now));
        Ok(())
    }

    /// Saves the last positions. Lines of which only a part came are left to the next run.
    ///
    /// # Errors
    /// They cannot be written.
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
        if self.told.len() < TROUBLES_TOLD_MAX && !self.told.contains(&trouble) {
            eprintln!("log-collector: {trouble}");
            self.told.insert(trouble);
        }
    }
}

impl Counts {
    /// Adds what another run counted.
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
