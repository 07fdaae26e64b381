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
use serde::Deserialize;

use crate::{
    chart,
    checksum::Checksum,
    client, load,
    plan::{Kind, Mode, Options},
    report,
};

/// Pause of a new server before its idle size is measured. The run before takes place meanwhile.
const REST: Duration = Duration::from_secs(1);

/// Pause after a run: the server checks once a second for memory to return. The next runs take place meanwhile.
const REST_AFTER: Duration = Duration::from_millis(2500);

/// Pause before the resident size of a client is measured, in runs that compare clients. The next client syncs meanwhile.
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
    let mut resting = VecDeque::<Resting>::new();
    for &mode in &modes {
        for &clients in &options.clients {
            bar.set_message(format!("{mode}, {clients} clients"));
            let prepared = bar_safe(&bar, Prepared::new(options, mode, clients.max(1), &mut supply))?;
            while let Some(rested) = resting.pop_front_if(|resting| resting.has_rested()) {
                servers.push(bar_safe(&bar, rested.finish())?);
            }
            resting.push_back(bar_safe(&bar, prepared.run())?);
            bar.inc(1);
        }
    }
    for last in resting {
        servers.push(bar_safe(&bar, last.finish())?);
    }
    let mut clients = Vec::new();
    let mut synced: Option<SyncedClient> = None;
    for kind in kinds {
        bar.set_message(kind.to_string());
        let next = bar_safe(&bar, SyncedClient::new(kind, &mut supply))?;
        if let Some(before) = synced.replace(next) {
            clients.push(bar_safe(&bar, before.finish())?);
        }
        bar.inc(1);
    }
    if let Some(last) = synced {
        clients.push(bar_safe(&bar, last.finish())?);
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
            self.next = Some(Server::start(self.options, mode)?);
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
    fn has_rested(&self) -> bool {
        self.left_at.elapsed() >= REST_AFTER
    }

    /// Waits until the server has rested.
    fn finish(self) -> Result<ServerRow, Failure> {
        std::thread::sleep(REST_AFTER.saturating_sub(self.left_at.elapsed()));
        Ok(ServerRow { after: self.server.usage()?.resident, ..self.row })
    }
}

/// A client that has all objects, before its resident size is measured.
struct SyncedClient {
    kind: Kind,
    client: Part,
    truth: Truth,
    /// Ends with the client.
    _server: Server,
}

impl SyncedClient {
    fn new(kind: Kind, supply: &mut Supply<'_>) -> Result<Self, Failure> {
        let (server, truth) = supply.take()?;
        let mut client = server.measured(kind, CLIENT_REST)?;
        supply.prepare()?;
        client.go()?;
        client::until_synced(&mut client)?;
        Ok(Self { kind, client, truth, _server: server })
    }

    fn finish(mut self) -> Result<ClientRow, Failure> {
        let outcome: client::Outcome = self.client.outcome()?;
        self.truth.agrees(&self.kind.to_string(), outcome.checksum)?;
        Ok(ClientRow { kind: self.kind, outcome })
    }
}

/// The server's objects, read independently of the code under test: in pages over plain HTTP/1.0, decoded by serde.
#[derive(Default)]
struct Truth {
    checksum: Checksum,
    bytes: usize,
}

/// The members of a list that [`Truth`] has, as serde decodes them. The others are skipped: all pods of a server as
/// `serde_json::Value` take a second.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMeta {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl Truth {
    fn of(address: &str) -> Result<Self, Failure> {
        let mut truth = Self::default();
        let mut query = "limit=500".to_owned();
        loop {
            let body = get(address, &format!("/api/v1/pods?{query}"))?;
            truth.bytes += body.len();
            let page: Page = serde_json::from_slice(&body)?;
            for Item { metadata: pod } in page.items {
                truth.checksum.add(&format!("{}/{}", pod.namespace, pod.name), &pod.uid, &pod.resource_version);
            }
            if page.metadata.token.is_empty() {
                return Ok(truth);
            }
            query = format!("limit=500&continue={}", page.metadata.token);
        }
    }

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
    /// End of the requests that [`Truth`] took.
    idle_since: Instant,
}

impl Server {
    fn start(options: &Options, mode: Mode) -> Result<(Self, Truth), Failure> {
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
        let truth = Truth::of(address)?;
        Ok((Self { address: address.to_owned(), process, idle_since: Instant::now() }, truth))
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

    fn usage(&self) -> std::io::Result<Usage> {
        memory::usage(self.process.id())
    }

    /// Waits, resets the peak, and returns the resident size of the server. Starts the next server meanwhile.
    fn rest(&self, supply: &mut Supply<'_>) -> Result<usize, Failure> {
        supply.prepare()?;
        std::thread::sleep(REST.saturating_sub(self.idle_since.elapsed()));
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
