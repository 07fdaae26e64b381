//! Runs a new server, the other clients and the measured client, and collects the kernel's measurements.

use std::{
    collections::VecDeque,
    io::Write as _,
    iter,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use measured::{
    Failure,
    child::Part,
    memory::{self, Usage},
};

use crate::{
    chart,
    checksum::Checksum,
    client, load,
    plan::{Kind, Mode, Options},
    report,
};

/// Pause before the idle size of the server is measured.
const REST: Duration = Duration::from_secs(1);

/// Pause after a run: the server checks once a second for memory to return. The next server starts meanwhile.
const REST_AFTER: Duration = Duration::from_millis(2500);

/// Pause before the resident size of a client is measured, in runs that compare clients.
const CLIENT_REST: Duration = Duration::from_secs(1);

/// A row of the server table.
pub(crate) struct ServerRow {
    pub(crate) mode: Mode,
    pub(crate) clients: usize,
    /// Resident bytes before the run.
    pub(crate) idle: usize,
    /// Peak minus idle.
    pub(crate) growth: usize,
    /// Resident bytes after the run, with all clients disconnected.
    pub(crate) after: usize,
    /// Time until all clients are in sync. All start at once.
    pub(crate) all_synced_ms: f64,
    pub(crate) client: client::Outcome,
}

/// A row of the client table.
pub(crate) struct ClientRow {
    pub(crate) kind: Kind,
    pub(crate) outcome: client::Outcome,
}

/// Runs all measurements and shows the results.
pub(crate) fn all(options: &Options) -> Result<(), Failure> {
    let modes = options.modes();
    let kinds = [Kind::KubeList, Kind::KubeReflectorPaged, Kind::KubeReflectorStream, Kind::InformerUnpaged];
    let kinds: Vec<Kind> = kinds.into_iter().chain([Kind::InformerPaged, Kind::InformerStream]).collect();
    let bar = ProgressBar::new((modes.len() * options.clients.len() + kinds.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]")?);

    let mut supply = Supply::new(options, &modes, kinds.len());
    let mut servers = Vec::new();
    let mut resting: Option<Resting> = None;
    for &mode in &modes {
        for &clients in &options.clients {
            bar.set_message(format!("{mode}, {clients} clients"));
            let prepared = bar_safe(&bar, Prepared::new(options, mode, clients.max(1), &mut supply))?;
            if let Some(before) = resting.take() {
                servers.push(bar_safe(&bar, before.finish())?);
            }
            resting = Some(bar_safe(&bar, prepared.run())?);
            bar.inc(1);
        }
    }
    if let Some(last) = resting {
        servers.push(bar_safe(&bar, last.finish())?);
    }
    let mut clients = Vec::new();
    for kind in kinds {
        bar.set_message(kind.to_string());
        clients.push(bar_safe(&bar, client_run(kind, &mut supply))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    report::print(options, &servers, &clients);
    chart::draw(&options.svg, &servers, &clients)?;
    println!("\nwrote {}", options.svg.display());
    Ok(())
}

/// Clears the progress bar before an error is printed.
fn bar_safe<T>(bar: &ProgressBar, result: Result<T, Failure>) -> Result<T, Failure> {
    result.inspect_err(|_| bar.finish_and_clear())
}

/// The servers of all runs, in their order. Each is started while the run before it rests.
struct Supply<'a> {
    options: &'a Options,
    /// Modes of the servers that are not started yet.
    modes: VecDeque<Mode>,
    next: Option<(Server, Truth)>,
}

impl<'a> Supply<'a> {
    /// One server for each number of clients in each mode, then `count` servers for single clients.
    fn new(options: &'a Options, modes: &[Mode], count: usize) -> Self {
        let compared = modes.iter().flat_map(|&mode| options.clients.iter().map(move |_| mode));
        let modes = compared.chain(iter::repeat_n(Mode::StreamedList, count)).collect();
        Self { options, modes, next: None }
    }

    /// Starts the next server, unless it was started already or there is none.
    fn prepare(&mut self) -> Result<(), Failure> {
        if self.next.is_none()
            && let Some(mode) = self.modes.pop_front()
        {
            let server = Server::start(self.options, mode)?;
            let truth = server.truth()?;
            self.next = Some((server, truth));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(Server, Truth), Failure> {
        self.prepare()?;
        self.next.take().ok_or_else(|| "there are more runs than servers".into())
    }
}

/// A server at rest and its clients, before they start to read.
struct Prepared {
    mode: Mode,
    clients: usize,
    server: Server,
    truth: Truth,
    fleet: Part,
    measured: Part,
    idle: usize,
}

impl Prepared {
    fn new(options: &Options, mode: Mode, clients: usize, supply: &mut Supply<'_>) -> Result<Self, Failure> {
        let (server, truth) = supply.take()?;
        let clients = mode.fitting(clients, truth.bytes);
        let fleet = Part::start(
            "load",
            &[
                format!("--address={}", server.address),
                format!("--mode={}", value_name(&mode)),
                format!("--clients={}", clients - 1),
                format!("--slow-readers={}", options.slow_readers),
                format!("--slow-rate={}", options.slow_rate_mib << 20),
            ],
        )?;
        let measured = server.measured(mode.client(), Duration::ZERO)?;
        let idle = server.rest(supply)?;
        Ok(Self { mode, clients, server, truth, fleet, measured, idle })
    }

    fn run(self) -> Result<Resting, Failure> {
        let Self { mode, clients, server, truth, mut fleet, mut measured, idle } = self;
        fleet.go()?;
        measured.go()?;
        let fleet_outcome: load::Outcome = fleet.outcome()?;
        client::until_synced(&mut measured)?;
        let client: client::Outcome = measured.outcome()?;
        let peak = server.usage()?.peak;
        drop((fleet, measured));
        let left_at = Instant::now();

        if let Some(error) = fleet_outcome.errors.first() {
            let failed = fleet_outcome.errors.len();
            return Err(format!("{mode}, {clients} clients: {failed} failed, first: {error}").into());
        }
        for checksum in fleet_outcome.checksums.iter().chain([&client.checksum]) {
            truth.agrees(&mode.to_string(), *checksum)?;
        }
        let all_synced_ms = fleet_outcome.synced_ms.max(client.synced_ms);
        let growth = peak.saturating_sub(idle);
        let row = ServerRow { mode, clients, idle, growth, after: 0, all_synced_ms, client };
        Ok(Resting { row, server, left_at })
    }
}

/// A server whose clients have left. Its memory afterwards is not known yet.
struct Resting {
    row: ServerRow,
    server: Server,
    left_at: Instant,
}

impl Resting {
    fn finish(self) -> Result<ServerRow, Failure> {
        std::thread::sleep(REST_AFTER.saturating_sub(self.left_at.elapsed()));
        Ok(ServerRow { after: self.server.usage()?.resident, ..self.row })
    }
}

fn client_run(kind: Kind, supply: &mut Supply<'_>) -> Result<ClientRow, Failure> {
    let (server, truth) = supply.take()?;
    let mut measured = server.measured(kind, CLIENT_REST)?;
    measured.go()?;
    // The client rests now.
    client::until_synced(&mut measured)?;
    supply.prepare()?;
    let outcome: client::Outcome = measured.outcome()?;
    truth.agrees(&kind.to_string(), outcome.checksum)?;
    Ok(ClientRow { kind, outcome })
}

/// The server's objects, read independently of the code under test: in pages over plain HTTP/1.0, decoded by serde.
struct Truth {
    checksum: Checksum,
    bytes: usize,
}

impl Truth {
    fn agrees(&self, who: &str, checksum: Checksum) -> Result<(), Failure> {
        if checksum == self.checksum {
            return Ok(());
        }
        Err(format!("{who}: a client ended with {checksum:?}, the server has {:?}", self.checksum).into())
    }
}

struct Server {
    process: Part,
    address: String,
}

impl Server {
    fn start(options: &Options, mode: Mode) -> Result<Self, Failure> {
        let mut process = Part::spawn(
            "server",
            &[
                "serve".into(),
                "--listen=127.0.0.1:0".into(),
                format!("--populate=pods={},nodes={}", options.pods, options.nodes),
                format!("--list-encoding={}", mode.encoding()),
            ],
        )?;
        let line = process.line()?;
        let address = line.strip_prefix("listening on http://").ok_or_else(|| format!("the server said {line:?}"))?;
        Ok(Self { address: address.to_owned(), process })
    }

    fn measured(&self, kind: Kind, rest: Duration) -> Result<Part, Failure> {
        Part::start(
            "client",
            &[
                format!("--address={}", self.address),
                format!("--kind={}", value_name(&kind)),
                format!("--rest-ms={}", rest.as_millis()),
            ],
        )
    }

    fn truth(&self) -> Result<Truth, Failure> {
        let mut checksum = Checksum::default();
        let mut bytes = 0;
        let mut query = "limit=500".to_owned();
        loop {
            let body = get(&self.address, &format!("/api/v1/pods?{query}"))?;
            bytes += body.len();
            let list: serde_json::Value = serde_json::from_slice(&body)?;
            for pod in list["items"].as_array().ok_or("a list without items")? {
                let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
                checksum.add(
                    &format!("{}/{}", text("namespace"), text("name")),
                    &text("uid"),
                    &text("resourceVersion"),
                );
            }
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => query = format!("limit=500&continue={token}"),
                _ => return Ok(Truth { checksum, bytes }),
            }
        }
    }

    fn usage(&self) -> std::io::Result<Usage> {
        memory::usage(self.process.id())
    }

    /// Waits, resets the peak, and returns the resident size of the server. Starts the next server meanwhile.
    fn rest(&self, supply: &mut Supply<'_>) -> Result<usize, Failure> {
        let began = Instant::now();
        supply.prepare()?;
        std::thread::sleep(REST.saturating_sub(began.elapsed()));
        memory::reset_peak(self.process.id())?;
        Ok(self.usage()?.resident)
    }
}

/// One HTTP/1.0 exchange without a client library: the response ends with the connection.
fn get(host: &str, path: &str) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    let mut stream = std::net::TcpStream::connect(host)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("an answer without a head")?;
    if !answer.starts_with(b"HTTP/1.0 200") && !answer.starts_with(b"HTTP/1.1 200") {
        return Err(format!("{path}: {}", String::from_utf8_lossy(&answer[..head])).into());
    }
    Ok(answer.split_off(head + 4))
}

fn value_name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
