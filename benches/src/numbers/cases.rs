//! All cases: server, load and targets.

use super::{
    busy,
    case::{Case, How, Row, Setup, Take, Target, Unit},
    publish,
};
use crate::load::client::PROTOBUF;

/// Pods and nodes of the published incident's cluster.
const INCIDENT: (u32, u32) = (7_130, 80);
/// Pods and nodes of a cluster seven times as large.
const LARGE: (u32, u32) = (50_000, 560);

/// HTTP version and TLS of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    name: &'static str,
    http: &'static str,
    tls: bool,
}

const H1: Way = Way { name: "h1", http: "1", tls: false };
const H2: Way = Way { name: "h2", http: "2", tls: false };
const H1_TLS: Way = Way { name: "h1-tls", http: "1", tls: true };
const H2_TLS: Way = Way { name: "h2-tls", http: "2", tls: true };
const WAYS: [Way; 4] = [H1, H2, H1_TLS, H2_TLS];

impl Way {
    /// True if the bare server speaks it.
    fn is_bare(self) -> bool {
        self.http == H1.http
    }
}

/// All cases, in the order of measurement.
pub(crate) fn all() -> Vec<Case> {
    [
        super::density::cases(),
        idle(),
        syncs(),
        lists(),
        secrets(),
        slow_readers(),
        busy::cases(),
        fanouts(),
        nodes(),
        storms(),
        writes(),
        super::lease::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A target that depends on a measurement: a row of `case` may be at most the same row of `like`, times and plus
/// these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelatedTarget {
    pub(crate) like: &'static str,
    pub(crate) case: &'static str,
    /// Index of the row in both cases.
    pub(crate) row: usize,
    pub(crate) times: f64,
    pub(crate) plus: f64,
}

/// All of them: the memory of a client is the same among more objects, HTTP/2 costs little more CPU than HTTP/1.1, and
/// protobuf costs no more than JSON, in fewer bytes.
pub(crate) const RELATED: [RelatedTarget; 6] = [
    RelatedTarget { like: "sync-again-h1", case: "sync-50000-h1", row: 0, times: 1.0, plus: 8.0 },
    RelatedTarget { like: "sync-again-h1-tls", case: "sync-50000-h1-tls", row: 0, times: 1.0, plus: 8.0 },
    RelatedTarget { like: "sync-h1", case: "sync-h2", row: 1, times: 1.2, plus: 0.0 },
    RelatedTarget { like: "sync-h1-tls", case: "sync-h2-tls", row: 1, times: 1.2, plus: 0.0 },
    RelatedTarget { like: "sync-again-h2-tls", case: "sync-protobuf-again-h2-tls", row: 1, times: 1.0, plus: 0.0 },
    RelatedTarget { like: "sync-again-h2-tls", case: "sync-protobuf-again-h2-tls", row: 2, times: 0.6, plus: 0.0 },
];

pub(super) fn row(what: &str, unit: Unit, take: Take, target: Target) -> Row {
    Row { what: what.to_owned(), unit, take, target }
}

pub(super) fn most(value: f64) -> Target {
    Target::AtMost(value)
}

/// Selects a value by whether the way uses TLS.
fn by_tls<T>(way: Way, plain: T, tls: T) -> T {
    if way.tls { tls } else { plain }
}

fn load(way: Way, arguments: &str) -> How {
    let words = arguments.split_whitespace().chain(["--http", way.http]);
    How::Load(words.map(str::to_owned).collect())
}

fn setup(way: Way, (pods, nodes): (u32, u32)) -> Setup {
    Setup { pods, nodes, tls: way.tls, ..Setup::default() }
}

/// A case that neither other servers nor `--quick` run.
pub(super) fn case(name: String, setup: Setup, how: How, rows: Vec<Row>) -> Case {
    Case { name, setup, before: None, how, rows, is_comparable: false, has_floor: false, is_quick: false }
}

const GROWTH: Take = Take::Field("serverProcess.rssGrowthPerClientBytes");
const GROWTH_ALL: Take = Take::Field("serverProcess.rssGrowthBytes");
const CPU: Take = Take::Field("serverProcess.cpuSeconds");
const BYTES: Take = Take::Field("bytes");

fn idle() -> Vec<Case> {
    let resident = row("resident memory, idle", Unit::Mib, Take::Field("rssBytes"), most(64.0));
    let mut cases = vec![Case {
        is_comparable: true,
        is_quick: true,
        ..case("idle".to_owned(), setup(H1, INCIDENT), How::Idle, vec![resident])
    }];
    for (way, target) in [(H1, most(4.0)), (H1_TLS, most(8.0)), (H2, Target::None), (H2_TLS, Target::None)] {
        let held = Take::Field("serverProcess.rssHeldPerClientBytes");
        let rows = vec![row("10,000 idle watches, one a connection", Unit::KibPerClient, held, target)];
        let how =
            load(way, "idle --clients 10000 --connect-rate 5000 --seconds 6 --path /api/v1/configmaps --settle 1");
        let name = format!("idle-10000-{}", way.name);
        cases.push(Case {
            is_comparable: way == H1_TLS || way == H2_TLS,
            has_floor: way.is_bare(),
            is_quick: way == H1,
            ..case(name, setup(way, (0, 0)), how, rows)
        });
    }
    cases
}

fn syncs() -> Vec<Case> {
    let rows = |way: Way, growth_target: Target| {
        let growth = row("64 watch-list syncs at once, memory growth", Unit::KibPerClient, GROWTH, growth_target);
        // The target of HTTP/2 is the measurement of HTTP/1.1 times 1.2, see [`RELATED`].
        let cpu = row("… server CPU", Unit::CpuSeconds, CPU, most(by_tls(way, 1.0, 1.6)));
        vec![growth, cpu]
    };
    let mut cases = Vec::new();
    for way in WAYS {
        let target = most(by_tls(way, 64.0, 128.0));
        let how = load(way, "watch-list --clients 64 --settle 1");
        let name = format!("sync-{}", way.name);
        cases.push(Case {
            is_comparable: way.tls,
            has_floor: way.is_bare(),
            is_quick: way == H1,
            ..case(name, setup(way, INCIDENT), how, rows(way, target))
        });
    }
    for way in [H1, H1_TLS] {
        cases.extend(warm_syncs(way));
    }
    cases.extend(warm_client_go_syncs());
    let first = row("the first client that reads 50,000 pods, memory growth", Unit::Mib, GROWTH_ALL, Target::None);
    cases.push(case("sync-first".to_owned(), setup(H1, LARGE), load(H1, "watch-list --settle 1"), vec![first]));
    cases
}

/// Syncs of clients like client-go's, in JSON and in protobuf, whose messages the first reader has made; and those of a
/// new server, which makes them meanwhile.
fn warm_client_go_syncs() -> [Case; 3] {
    let sync = |name: &str, what: &str, form: &str, target: Target, is_warm: bool| {
        let rows = vec![
            row(what, Unit::KibPerClient, GROWTH, target),
            row("… server CPU", Unit::CpuSeconds, CPU, Target::None),
            row("… bytes", Unit::Mib, BYTES, Target::None),
        ];
        let how = load(H2_TLS, &format!("watch-list --clients 64 --settle 1 {form}"));
        let before = is_warm.then(|| load(H2_TLS, &format!("watch-list --settle 0 {form}")));
        let name = format!("{name}-{}", H2_TLS.name);
        Case { before, is_comparable: true, ..case(name, setup(H2_TLS, INCIDENT), how, rows) }
    };
    let protobuf = format!("--accept {PROTOBUF}");
    [
        sync("sync-again", "64 watch-list syncs of what was read before, memory growth", "", most(128.0), true),
        sync("sync-protobuf-again", "… in protobuf", &protobuf, most(64.0), true),
        sync("sync-protobuf", "… in protobuf, for the first time", &protobuf, Target::None, false),
    ]
}

/// Cost of clients on a warm server: the first reader of all objects also pays for caches that depend on the number of
/// objects.
fn warm_syncs(way: Way) -> [Case; 3] {
    let sync = |name: &str, data, what: &str, flags: &str| {
        let target = most(by_tls(way, 64.0, 128.0));
        let growth = row(what, Unit::KibPerClient, GROWTH, target);
        let how = load(way, &format!("watch-list --clients 64 --settle 1 {flags}"));
        let before = Some(load(way, "watch-list --settle 0"));
        Case { before, ..case(format!("{name}-{}", way.name), setup(way, data), how, vec![growth]) }
    };
    [
        sync("sync-again", INCIDENT, "64 watch-list syncs of what was read before, memory growth", ""),
        // Its target is the measurement above plus 8 KiB, see [`RELATED`].
        sync("sync-50000", LARGE, "… of 50,000 pods", ""),
        sync("sync-gzip", INCIDENT, "… by clients that would take gzip", "--gzip"),
    ]
}

fn lists() -> Vec<Case> {
    let growth = || row("256 LISTs at once, memory growth", Unit::Mib, GROWTH_ALL, most(16.0));
    let cpu = || row("… server CPU", Unit::CpuSeconds, CPU, Target::None);
    let mut cases = Vec::new();
    for way in WAYS {
        let how = load(way, "list --clients 256 --settle 1");
        let name = format!("list-256-{}", way.name);
        cases.push(Case { is_comparable: way.tls, ..case(name, setup(way, INCIDENT), how, vec![growth(), cpu()]) });
    }
    let gzip = load(H1, "list --clients 64 --gzip --settle 1");
    // Warm up: compressed pieces are made once and kept; the case measures what 64 clients add to them.
    let once = load(H1, "list --gzip --settle 0");
    let each = row("64 LISTs at once with gzip, memory growth", Unit::KibPerClient, GROWTH, most(64.0));
    let gzip = case("list-gzip".to_owned(), setup(H1, INCIDENT), gzip, vec![each]);
    cases.push(Case { before: Some(once), ..gzip });
    cases
}

fn secrets() -> Vec<Case> {
    [H1, H1_TLS]
        .into_iter()
        .map(|way| {
            let rows = vec![
                row(
                    "64 watch-list syncs of 200 Secrets of 1 MB, memory growth",
                    Unit::KibPerClient,
                    GROWTH,
                    most(by_tls(way, 64.0, 128.0)),
                ),
                row("… server CPU", Unit::CpuSeconds, CPU, most(by_tls(way, 4.0, 10.0))),
            ];
            let how = load(way, "watch-list --clients 64 --path /api/v1/secrets --settle 1");
            let setup = Setup { large_secrets: 200, tls: way.tls, ..Setup::default() };
            case(format!("secrets-{}", way.name), setup, how, rows)
        })
        .collect()
}

fn slow_readers() -> Vec<Case> {
    [H1, H2, H1_TLS]
        .into_iter()
        .map(|way| {
            let both = Take::Field("serverProcess.rssAndSocketGrowthPerClientBytes");
            let rows =
                vec![row("64 slow readers, memory growth and unsent bytes", Unit::KibPerClient, both, most(128.0))];
            let how = load(way, "slow-readers --clients 64 --rate 1000000 --seconds 8 --settle 1");
            case(format!("slow-{}", way.name), setup(way, INCIDENT), how, rows)
        })
        .collect()
}

/// A load with writes and watchers.
struct Fanout {
    name: &'static str,
    what: &'static str,
    way: Way,
    flags: &'static str,
    target: Target,
    is_comparable: bool,
}

#[rustfmt::skip]
fn fanouts() -> Vec<Case> {
    const PACED: &str = "fanout --clients 100 --rate 10 --bytes 3000 --seconds 6";
    const SMALL: &str = "fanout --clients 1000 --rate 200 --burst 100 --bytes 512 --seconds 4";
    const MIDDLE: &str = "fanout --clients 1000 --rate 100 --burst 100 --bytes 5000 --seconds 4";
    const BIG: &str = "fanout --clients 1000 --rate 20 --burst 20 --bytes 50000 --seconds 4";
    const WIDE: &str = "fanout --clients 10000 --rate 20 --burst 20 --bytes 512 --seconds 4 --connect-rate 4000";
    let none = Target::None;
    let table = [
        Fanout { name: "paced", what: "100 watchers, 10 events/s of 3 KB: a delivery, writes included", way: H1, flags: PACED, target: most(15.0), is_comparable: false },
        Fanout { name: "paced", what: "… HTTP/2", way: H2, flags: PACED, target: none, is_comparable: false },
        Fanout { name: "paced", what: "… TLS", way: H1_TLS, flags: PACED, target: none, is_comparable: true },
        Fanout { name: "paced", what: "100 watchers, 10 events/s of 3 KB: a delivery, writes included", way: H2_TLS, flags: PACED, target: none, is_comparable: true },
        Fanout { name: "burst-05k", what: "1,000 watchers, bursts of 100 events of 0.5 KB: a delivery", way: H1, flags: SMALL, target: most(2.0), is_comparable: false },
        Fanout { name: "burst-05k", what: "… HTTP/2", way: H2, flags: SMALL, target: none, is_comparable: false },
        Fanout { name: "burst-05k", what: "… TLS", way: H1_TLS, flags: SMALL, target: none, is_comparable: false },
        Fanout { name: "burst-05k", what: "… HTTP/2 over TLS", way: H2_TLS, flags: SMALL, target: none, is_comparable: false },
        Fanout { name: "burst-5k", what: "1,000 watchers, bursts of 100 events of 5 KB: a delivery", way: H1, flags: MIDDLE, target: most(3.0), is_comparable: false },
        Fanout { name: "burst-5k", what: "… HTTP/2", way: H2, flags: MIDDLE, target: none, is_comparable: false },
        Fanout { name: "burst-5k", what: "… TLS", way: H1_TLS, flags: MIDDLE, target: none, is_comparable: false },
        Fanout { name: "burst-50k", what: "1,000 watchers, bursts of 20 events of 50 KB: a delivery", way: H1, flags: BIG, target: none, is_comparable: false },
        Fanout { name: "burst-50k", what: "… HTTP/2", way: H2, flags: BIG, target: none, is_comparable: false },
        Fanout { name: "burst-50k", what: "… TLS", way: H1_TLS, flags: BIG, target: none, is_comparable: false },
        Fanout { name: "wide", what: "10,000 watchers, bursts of 20 events of 0.5 KB: a delivery", way: H1, flags: WIDE, target: most(2.0), is_comparable: false },
        Fanout { name: "wide", what: "… HTTP/2", way: H2, flags: WIDE, target: none, is_comparable: false },
    ];
    let mut cases: Vec<Case> = table.into_iter().map(Fanout::case).collect();
    cases.push(flood());
    cases
}

impl Fanout {
    fn case(self) -> Case {
        let Self { name, what, way, flags, target, is_comparable } = self;
        let cost = row(what, Unit::CpuMicros, Take::Field("serverCpuSecondsPerDelivery"), target);
        let late = row("… latency, p99", Unit::Millis, Take::Millis("latencyMillis.p99"), Target::None);
        let is_quick = way == H1 && name == "burst-05k";
        Case {
            is_comparable,
            has_floor: way.is_bare() && name == "paced",
            is_quick,
            ..case(format!("{name}-{}", way.name), setup(way, (0, 0)), load(way, flags), vec![cost, late])
        }
    }
}

/// The maximum throughput of the machine.
fn flood() -> Case {
    let rows = vec![
        row(
            "1,000 watchers, 505 writes/s of 0.5 KB for 30 s: deliveries",
            Unit::PerSecond,
            Take::Field("deliveriesPerSecond"),
            Target::AtLeast(500_000.0),
        ),
        row("… not at the head 1 s after", Unit::Count, Take::Field("behindAfterOneSecond"), most(0.0)),
        row("… lost, cut", Unit::Count, Take::Field("lost"), most(0.0)),
        row("… a delivery, writes included", Unit::CpuMicros, Take::Field("serverCpuSecondsPerDelivery"), Target::None),
        row("… latency, p99", Unit::Millis, Take::Millis("latencyMillis.p99"), Target::None),
    ];
    let how = load(H1, "fanout --clients 1000 --rate 505 --burst 5 --bytes 512 --seconds 30");
    case("flood".to_owned(), setup(H1, (0, 0)), how, rows)
}

/// Events that concern one of 10,000 watchers.
fn nodes() -> Vec<Case> {
    let inside = How::Inside(publish::compare);
    let rows = vec![
        row(
            "an event for 1 of 10,000 node-scoped watchers, in process",
            Unit::CpuMicros,
            Take::Field("manySeconds"),
            most(5.0),
        ),
        row("… by its cost at 100", Unit::Times, Take::Ratio("manySeconds", "fewSeconds"), most(1.5)),
    ];
    let publish = Case { is_quick: true, ..case("publish".to_owned(), Setup::default(), inside, rows) };
    let rows = vec![
        row(
            "150,000 pods, updated as fast as possible, in process, without watchers: writes",
            Unit::PerSecond,
            Take::Field("writesPerSecondAlone"),
            Target::None,
        ),
        row("… with 10 watchers of all: writes", Unit::PerSecond, Take::Field("writesPerSecond"), Target::None),
        row("… watch events", Unit::PerSecond, Take::Field("eventsPerSecond"), Target::None),
    ];
    let throughput = case("throughput".to_owned(), Setup::default(), How::Inside(publish::throughput), rows);
    let rows = vec![
        row(
            "an event for 1 of 10,000 node-scoped watchers, end to end, the write included",
            Unit::CpuMicros,
            Take::Field("serverCpuSecondsPerWrite"),
            most(80.0),
        ),
        row(
            "… beyond the cost of a write without watchers",
            Unit::CpuMicros,
            Take::Beyond("serverCpuSecondsPerWrite", "serverCpuSecondsPerWriteAlone"),
            Target::None,
        ),
        row("… latency, p99", Unit::Millis, Take::Millis("latencyMillis.p99"), Target::None),
    ];
    let how = load(
        H1,
        "fanout --clients 10000 --scope node --objects 1000 --rate 1000 --burst 10 --bytes 512 --seconds 4 --connect-rate 4000",
    );
    let nodes = Case { has_floor: true, ..case("nodes".to_owned(), Setup::default(), how, rows) };
    vec![publish, throughput, nodes]
}

fn storms() -> Vec<Case> {
    [
        ("resume", H1, "--return resume"),
        ("watch-list", H1, "--return watch-list"),
        ("resume", H1_TLS, "--return resume"),
        ("resume-tickets", H1_TLS, "--return resume --tickets"),
        ("watch-list", H1_TLS, "--return watch-list"),
    ]
    .into_iter()
    .map(|(name, way, flags)| {
        let over = by_tls(way, "", " over TLS");
        let rows = vec![
            row(
                &format!("5,000 clients return at once by {name}{over}: the last is back after"),
                Unit::Millis,
                Take::Millis("backMillis.max"),
                Target::None,
            ),
            row("… server CPU for each", Unit::CpuMicros, Take::Field("serverCpuSecondsPerClient"), Target::None),
        ];
        let writes = "--rate 100 --burst 100 --bytes 512 --seconds 1";
        let how = load(way, &format!("reconnect-storm --clients 5000 {flags} {writes}"));
        let name = format!("storm-{name}{}", by_tls(way, "", "-tls"));
        case(name, setup(way, (0, 0)), how, rows)
    })
    .collect()
}

/// Writes without watchers: many clients at once, and patches of pods.
fn writes() -> Vec<Case> {
    let none = Target::None;
    let rate = |what: &str, target| row(what, Unit::PerSecond, Take::Field("writesPerSecond"), target);
    let cpu = |target| {
        row("… server CPU a write, at full load", Unit::CpuMicros, Take::Field("serverCpuSecondsPerWrite"), target)
    };
    let all = || row("… with its etcd", Unit::CpuMicros, Take::Field("allCpuSecondsPerWrite"), none);
    let late = || row("… latency, p99", Unit::Millis, Take::Millis("writeMillis.p99"), none);
    let mut cases = Vec::new();
    for way in [H1, H1_TLS, H2_TLS] {
        let by_way = |target: f64, direction: fn(f64) -> Target| by_tls(way, direction(target), none);
        let rows = vec![
            rate("64 clients renew Leases as fast as they can: writes", by_way(25_000.0, Target::AtLeast)),
            cpu(by_way(60.0, Target::AtMost)),
            all(),
            late(),
        ];
        let how = load(way, "writes --clients 64 --kind lease --operation update --seconds 5");
        cases.push(Case {
            is_comparable: way.tls,
            has_floor: way.is_bare(),
            is_quick: !way.tls,
            ..case(format!("writes-64-{}", way.name), setup(way, (0, 0)), how, rows)
        });
    }
    for (name, what) in [("apply", "server-side apply"), ("strategic-merge", "strategic merge patch")] {
        for way in [H1, H1_TLS] {
            let rows =
                vec![rate(&format!("8 clients, {what} of a pod of 5 KB: writes"), none), cpu(none), all(), late()];
            let how = load(way, &format!("writes --clients 8 --kind pod --operation {name} --seconds 4"));
            let name = format!("{name}-{}", way.name);
            cases.push(Case { is_comparable: way.tls, ..case(name, setup(way, (0, 0)), how, rows) });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_each_case_has_rows() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| !case.rows.is_empty()));
        for RelatedTarget { like, case, row, .. } in RELATED {
            let has_row = |name: &str| cases.iter().any(|case| case.name == name && row < case.rows.len());
            assert!(has_row(like) && has_row(case), "{case}");
        }
    }

    #[test]
    fn the_load_tool_understands_what_it_is_told() {
        for case in all() {
            for how in case.before.iter().chain([&case.how]) {
                let How::Load(arguments) = how else { continue };
                let words = ["load", "--server", "http://127.0.0.1:8001"].map(str::to_owned).into_iter();
                let (name, rest) = (words.clone().take(1), words.skip(1));
                let all = name.chain(arguments.iter().cloned()).chain(rest);
                assert_eq!(crate::load::understands(all), Ok(()), "{}", case.name);
            }
        }
    }

    #[test]
    fn what_is_compared_can_be_put_to_a_stock_server() {
        for case in all().iter().filter(|case| case.is_comparable) {
            let is_secure = case.setup.tls || matches!(case.how, How::Idle);
            assert!(is_secure && !matches!(case.how, How::Run(_) | How::Inside(_)), "{}", case.name);
        }
    }
}
