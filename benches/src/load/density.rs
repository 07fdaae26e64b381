//! `load density`: connections like those of client-go, over TLS and HTTP/2, with more and more idle watches on each.
//! Measures the memory that a connection and each of its watches cost the server.
//!
//! The client is frugal, so that a million watches fit beside the server: one thread, no task for a watch, and no
//! memory for a stream.
//!
//! INVARIANT: a watch that is refused or ends is a failure.

mod connection;
mod frames;

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use http::Method;
use mio::{Events, Poll, Token};
use serde_json::{Map, json};

use self::{
    connection::{ReadOutcome, TlsServer, WatchConnection},
    frames::Fields,
};
use super::{
    client::Target,
    failure::{Failure, Failures, Kind},
    flags::{self, seconds},
    report::{Looks, Quantiles, Report},
    sampler::{Sampler, own_cpu},
    scan::List,
    writer,
};

/// Requests without an answer, each on another connection: more would only wait in the server.
const OPENING_MAX: usize = 128;
/// Sockets that one `epoll_wait` returns.
const EVENTS: usize = 1_024;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Longest sleep before the end of a period is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Like client-go's, whose user agent a program sets.
const USER_AGENT: &str = "kubelet/v1.36.0 (linux/amd64) kubernetes/load";
/// Written to stdout once all watches are open.
pub(crate) const OPEN: &str = "open";

/// Flags of `density`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(super) server: flags::Server,

    /// Watches of each connection, from step to step. Memory is sampled at the end of each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,18,100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    watches: Vec<u32>,

    /// Path to watch, with an optional query.
    #[arg(long, value_name = "PATH", default_value = "/api/v1/configmaps")]
    path: String,

    /// The media type asked for.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf, application/json")]
    accept: String,

    /// Duration for which the watches of each step are idle.
    #[arg(long, value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    seconds: Duration,

    /// Write `open` to stdout once all watches are open, and hold them until stdin ends, in place of the last step's duration.
    #[arg(long)]
    until_closed: bool,

    /// Loopback addresses that the connections come from, in turn, from 127.0.0.1 on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=250))]
    addresses: u8,

    /// File with a bearer token in each line, for the connections in turn. Left out: the token of --token-file.
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    tokens: Option<PathBuf>,

    /// Timeout of each step's requests.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,
}

impl Flags {
    /// Checks combinations of flags. The error is one line.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.watches.is_sorted_by(|one, next| one < next) {
            return Err("--watches must grow".to_owned());
        }
        Ok(())
    }

    /// Values of `authorization` for the connections in turn; empty without tokens.
    fn authorizations(&self, target: &Target) -> Result<Vec<String>, Failure> {
        let tokens = match &self.tokens {
            Some(file) => {
                let text = fs::read_to_string(file).map_err(|error| Failure::new(Kind::Client, error))?;
                text.lines().map(str::to_owned).collect()
            }
            None => target.token().map(str::to_owned).into_iter().collect::<Vec<_>>(),
        };
        Ok(tokens.into_iter().map(|token| format!("Bearer {token}")).collect())
    }
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let tls = target.tls().ok_or_else(|| Failure::new(Kind::Client, "--server must be https://, with --http 2"))?;
    let (config, name) = tls;
    let server = TlsServer { address: target.address(), config, name };
    let sampler = flags.server.pid.map(Sampler::without_sockets).transpose();
    let sampler = sampler.map_err(|error| Failure::new(Kind::Client, format!("--pid: {error}")))?;
    let authorizations = flags.authorizations(&target)?;
    let position = position(&target, flags, &authorizations).await?;
    let query = if flags.path.contains('?') { '&' } else { '?' };
    let path = format!(
        "{}{query}allowWatchBookmarks=true&resourceVersion={position}&timeoutSeconds=7200&watch=true",
        flags.path
    );
    let clients = IdleClients::new(flags, &server, target.authority(), &authorizations, &path);
    let clients = clients.map_err(|error| Failure::new(Kind::Client, error))?;
    let report = blank(flags, &target);
    measure(clients, sampler.as_ref(), report)
}

fn blank(flags: &Flags, target: &Target) -> Report {
    Report {
        scenario: "density".to_owned(),
        server: target.url().to_owned(),
        path: flags.path.clone(),
        http: 2,
        tls: true,
        clients: u64::from(flags.server.clients),
        ..Report::default()
    }
}

/// The current position, from a page of one object.
async fn position(target: &Target, flags: &Flags, authorizations: &[String]) -> Result<String, Failure> {
    let token = authorizations.first().and_then(|value| value.strip_prefix("Bearer "));
    let mut connection = target.clone().with_token(token).connect().await?;
    let query = if flags.path.contains('?') { '&' } else { '?' };
    let page = writer::send(&mut connection, Method::GET, &format!("{}{query}limit=1", flags.path), None).await?;
    let mut list = List::default();
    list.feed(&page);
    Ok(list.finish()?.position)
}

/// Opens and holds the watches of each step, and samples the server after it.
fn measure(mut clients: IdleClients<'_>, sampler: Option<&Sampler>, mut report: Report) -> Result<Report, Failure> {
    let flags = clients.flags;
    let sample = || sampler.and_then(|sampler| sampler.sample().ok()).unwrap_or_default();
    let (begun, own_before) = (Instant::now(), own_cpu().unwrap_or_default());
    let mut looks = Looks { idle: sample(), ..Looks::default() };
    looks.connected = looks.idle;
    let (mut held, mut further) = (Map::new(), Map::new());
    let mut first = None;
    for (place, watches) in flags.watches.iter().enumerate() {
        clients.open(*watches)?;
        looks.ended = sample();
        if place + 1 == flags.watches.len() && flags.until_closed {
            clients.hold_until_closed()?;
        } else {
            clients.hold(|begun| begun.elapsed() < flags.seconds)?;
        }
        let now = sample();
        looks.held = Some(now);
        let each = |before: u64, count: u32| {
            let bytes = now.rss_bytes.saturating_sub(before);
            bytes / (u64::from(flags.server.clients) * u64::from(count)).max(1)
        };
        held.insert(watches.to_string(), each(looks.idle.rss_bytes, 1).into());
        let (bytes, of) = *first.get_or_insert((now.rss_bytes, *watches));
        if *watches > of {
            further.insert(watches.to_string(), each(bytes, watches - of).into());
        }
    }
    report.seconds = begun.elapsed().as_secs_f64();
    report.client_cpu_seconds = (own_cpu().unwrap_or_default() - own_before).as_secs_f64();
    if let Some(sampler) = sampler {
        looks.peaks = sampler.peaks();
        let held = looks.held.unwrap_or_default();
        report.add("heldCpuSeconds", held.cpu_seconds - looks.ended.cpu_seconds);
    }
    report.add("connectionBytes", held);
    report.add("furtherWatchBytes", further);
    describe(&mut report, clients);
    thread::sleep(Duration::from_secs(1));
    looks.after = sample();
    report.server_process = flags.server.pid.map(|pid| looks.report(pid, u64::from(flags.server.clients)));
    Ok(report)
}

/// Adds the counts of the clients, which end here.
fn describe(report: &mut Report, clients: IdleClients<'_>) {
    let IdleClients { opened, frames, failures, open_times, .. } = clients;
    report.requests = opened + failures.total();
    report.bookmarks = frames;
    report.add("watches", opened);
    report.add("lostWatches", failures.total());
    if let Some(Quantiles { p50, p99, max }) = Quantiles::millis(open_times) {
        report.add("openMillis", json!({ "p50": p50, "p99": p99, "max": max }));
    }
    report.failures.merge(failures);
}

/// All clients, read by one thread.
struct IdleClients<'a> {
    flags: &'a Flags,
    server: &'a TlsServer,
    authority: &'a str,
    authorizations: &'a [String],
    path: &'a str,
    poll: Poll,
    scratch: Vec<u8>,
    /// By token; `None` once one has ended.
    connections: Vec<Option<WatchConnection>>,
    /// Connections that need another watch.
    due: VecDeque<usize>,
    /// Requests without an answer.
    opening: usize,
    opened: u64,
    frames: u64,
    failures: Failures,
    open_times: Vec<Duration>,
}

impl<'a> IdleClients<'a> {
    fn new(
        flags: &'a Flags,
        server: &'a TlsServer,
        authority: &'a str,
        authorizations: &'a [String],
        path: &'a str,
    ) -> io::Result<Self> {
        Ok(Self {
            flags,
            server,
            authority,
            authorizations,
            path,
            poll: Poll::new()?,
            scratch: vec![0; READ_BYTES],
            connections: Vec::new(),
            due: VecDeque::new(),
            opening: 0,
            opened: 0,
            frames: 0,
            failures: Failures::default(),
            open_times: Vec::new(),
        })
    }

    /// Opens watches until each connection has so many. Times are those of this step.
    fn open(&mut self, watches: u32) -> Result<(), Failure> {
        let begun = Instant::now();
        self.open_times.clear();
        self.due = (0..self.flags.server.clients as usize).collect();
        let mut events = Events::with_capacity(EVENTS);
        while self.opening > 0 || !self.due.is_empty() {
            while self.opening < OPENING_MAX
                && let Some(index) = self.due.pop_front()
            {
                self.request(index);
            }
            self.turn(&mut events, watches)?;
            if self.flags.timeout < begun.elapsed() {
                return Err(Failure::new(Kind::Timeout, format!("{} watches are open", self.opened)));
            }
        }
        Ok(())
    }

    /// Reads while `more` holds, given the begin.
    fn hold(&mut self, more: impl Fn(Instant) -> bool) -> Result<(), Failure> {
        let (begun, mut events) = (Instant::now(), Events::with_capacity(EVENTS));
        while more(begun) {
            self.turn(&mut events, 0)?;
        }
        Ok(())
    }

    /// Writes that all watches are open, and reads until stdin ends.
    fn hold_until_closed(&mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::new(Kind::Client, error);
        let mut stdout = io::stdout();
        writeln!(stdout, "{OPEN}").and_then(|()| stdout.flush()).map_err(failed)?;
        let closed = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&closed);
        // Ends with stdin, or with the process.
        thread::spawn(move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            noted.store(true, Ordering::Relaxed);
        });
        self.hold(|_| !closed.load(Ordering::Relaxed))
    }

    /// Waits for the sockets once, and reads them. Connections with fewer than so many requests are due again once they
    /// have their answer.
    fn turn(&mut self, events: &mut Events, watches: u32) -> Result<(), Failure> {
        match self.poll.poll(events, Some(LOOK_EVERY)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(Failure::new(Kind::Client, error));
            }
            Ok(()) | Err(_) => {}
        }
        for event in &*events {
            self.advance(event.token().0, watches);
        }
        Ok(())
    }

    /// Sends the next request of a connection, the first of which connects.
    fn request(&mut self, index: usize) {
        let sent = self.send(index);
        match sent {
            Ok(true) => self.opening += 1,
            Ok(false) => {}
            Err(failure) => self.lose(index, failure),
        }
    }

    /// False if the connection has ended.
    fn send(&mut self, index: usize) -> Result<bool, Failure> {
        if index == self.connections.len() {
            let turn = u8::try_from(index % usize::from(self.flags.addresses)).unwrap_or_default();
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1 + turn));
            let made = WatchConnection::connect(self.server, from, self.poll.registry(), Token(index));
            let made = made.map_err(|error| Failure::new(Kind::Connect, error));
            // A connection that fails has a place, too: the next one has the next token.
            let (connection, failed) = made.map_or_else(|failure| (None, Err(failure)), |made| (Some(made), Ok(())));
            self.connections.push(connection);
            failed?;
        }
        let authorization = self.authorizations.get(index % self.authorizations.len().max(1)).map(String::as_str);
        let Self { authority, path, flags: Flags { accept, .. }, .. } = self;
        let fields = Fields { authority, user_agent: USER_AGENT, accept, authorization };
        let Some(Some(connection)) = self.connections.get_mut(index) else { return Ok(false) };
        connection.request(&fields, path)?;
        Ok(true)
    }

    fn advance(&mut self, index: usize, watches: u32) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let mut outcome = ReadOutcome::default();
        let advanced = connection.advance(&mut self.scratch, &mut outcome);
        let ReadOutcome { opened, lost, frames, is_answered } = outcome;
        let is_over = is_answered || advanced.is_err() && connection.awaits_answer();
        self.opening -= usize::from(is_over);
        if is_answered && connection.requested < watches {
            self.due.push_back(index);
        }
        self.opened += opened.len() as u64;
        self.open_times.extend(opened);
        self.frames += frames;
        lost.into_iter().for_each(|failure| self.failures.add(failure));
        if let Err(failure) = advanced {
            self.lose(index, failure);
        }
    }

    /// Closes a connection: all its watches are lost.
    fn lose(&mut self, index: usize, failure: Failure) {
        let Some(slot) = self.connections.get_mut(index) else { return self.failures.add(failure) };
        let watches = slot.take().map_or(1, |connection| connection.requested.max(1));
        (0..watches).for_each(|_| self.failures.add(failure.clone()));
    }
}
