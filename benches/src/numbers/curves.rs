//! Curves of cost: memory by clients and by objects, CPU by watchers and by the rate of events.

use serde_json::Value;

use super::{
    Failure,
    case::{Fields, Setup},
    picture::{Graph, Series},
    run,
    server::{Endpoint, settle},
};

/// Names of the curves, for `--row`.
pub(crate) const NAMES: [&str; 4] = ["memory-by-clients", "memory-by-objects", "cpu-by-watchers", "cpu-by-rate"];

const CLIENTS: [u32; 5] = [1, 16, 64, 256, 1_024];
const CLIENTS_PODS: (u32, u32) = (7_130, 80);
const OBJECTS: [u32; 5] = [1_000, 10_000, 25_000, 50_000, 100_000];
const OBJECTS_CLIENTS: u32 = 16;
const WATCHERS: [u32; 5] = [1, 1_000, 2_500, 5_000, 10_000];
const RATES: [u32; 5] = [10, 100, 200, 350, 500];
const MIB: f64 = 1_048_576.0;

/// Measures a curve. Each point has a new server, except in `memory-by-objects`, where each number of objects has one.
pub(crate) fn measure(name: &str) -> Result<Graph, Failure> {
    match name {
        "memory-by-clients" => memory_by_clients(),
        "memory-by-objects" => memory_by_objects(),
        "cpu-by-watchers" => cpu_by_watchers(),
        _ => cpu_by_rate(),
    }
}

fn graph(name: &str, title: &str, x: &str, y: &str, series: Vec<Series>) -> Graph {
    let [name, title, x, y] = [name, title, x, y].map(str::to_owned);
    Graph { name, title, x, y, series }
}

fn number(found: &Fields, name: &str) -> Result<f64, Failure> {
    let missing = || Failure::Load(format!("it did not say {name}"));
    found.get(name).and_then(Value::as_f64).ok_or_else(missing)
}

fn load(endpoint: &Endpoint, arguments: &str) -> Result<Fields, Failure> {
    let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    run::load(endpoint, &words)
}

fn setup((pods, nodes): (u32, u32), tls: bool) -> Setup {
    Setup { pods, nodes, tls, ..Setup::default() }
}

/// Memory growth while clients read everything at once.
fn memory_by_clients() -> Result<Graph, Failure> {
    let curve = |tls: bool, scenario: &str| {
        let point = |&clients: &u32| {
            run::with_server(&setup(CLIENTS_PODS, tls), |endpoint| {
                let found = load(endpoint, &format!("{scenario} --clients {clients} --settle 1"))?;
                Ok((f64::from(clients), number(&found, "serverProcess.rssGrowthBytes")? / MIB))
            })
        };
        CLIENTS.iter().map(point).collect::<Result<Vec<_>, Failure>>()
    };
    let series = vec![
        Series::new("watch-list", curve(false, "watch-list")?),
        Series::new("watch-list over TLS", curve(true, "watch-list")?),
        Series::new("LIST", curve(false, "list")?),
    ];
    let title = "Memory the server grows by while clients read 7,130 pods at once";
    Ok(graph("memory-by-clients", title, "clients", "MiB", series))
}

/// Memory of objects, and growth by clients, by number of objects.
fn memory_by_objects() -> Result<Graph, Failure> {
    let (mut idle, mut first, mut growth) = (Vec::new(), Vec::new(), Vec::new());
    for objects in OBJECTS {
        run::with_server(&setup((objects, (objects / 100).max(10)), false), |endpoint| {
            idle.push((f64::from(objects), resident(endpoint)?));
            for (clients, curve) in [(1, &mut first), (OBJECTS_CLIENTS, &mut growth)] {
                let found = load(endpoint, &format!("watch-list --clients {clients} --settle 1"))?;
                curve.push((f64::from(objects), number(&found, "serverProcess.rssGrowthBytes")? / MIB));
            }
            Ok(())
        })?;
    }
    let series = vec![
        Series::new("resident, idle", idle),
        Series::new("growth by the first client that syncs", first),
        Series::new(format!("growth while {OBJECTS_CLIENTS} more sync"), growth),
    ];
    Ok(graph("memory-by-objects", "Memory of the server by objects", "pods", "MiB", series))
}

fn resident(endpoint: &Endpoint) -> Result<f64, Failure> {
    // Bytes of a process are far below 2^52.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    Ok(settle(endpoint.pid)? as f64 / MIB)
}

/// Server CPU while a burst of 20 events goes to all watchers each second.
fn cpu_by_watchers() -> Result<Graph, Failure> {
    let curve = |http: u32| {
        let point = |&watchers: &u32| {
            run::with_server(&Setup::default(), |endpoint| {
                let flags = format!(
                    "fanout --clients {watchers} --rate 20 --burst 20 --bytes 512 --seconds 3 --connect-rate 4000 --http {http}"
                );
                Ok((f64::from(watchers), cpu_percent(&load(endpoint, &flags)?)?))
            })
        };
        WATCHERS.iter().map(point).collect::<Result<Vec<_>, Failure>>()
    };
    let series = vec![Series::new("HTTP/1.1", curve(1)?), Series::new("HTTP/2", curve(2)?)];
    let title = "Server CPU while a burst of 20 events of 0.5 KB goes to all, each second";
    Ok(graph("cpu-by-watchers", title, "watchers", "% of a core", series))
}

/// Server CPU with 1,000 watchers, by rate of events.
fn cpu_by_rate() -> Result<Graph, Failure> {
    let curve = |burst: u32| {
        let point = |&rate: &u32| {
            run::with_server(&Setup::default(), |endpoint| {
                let burst = burst.min(rate);
                let flags = format!("fanout --clients 1000 --rate {rate} --burst {burst} --bytes 512 --seconds 3");
                Ok((f64::from(rate), cpu_percent(&load(endpoint, &flags)?)?))
            })
        };
        RATES.iter().map(point).collect::<Result<Vec<_>, Failure>>()
    };
    let series = vec![Series::new("in bursts of 50", curve(50)?), Series::new("one by one", curve(1)?)];
    Ok(graph(
        "cpu-by-rate",
        "Server CPU with 1,000 watchers of everything, events of 0.5 KB",
        "events a second",
        "% of a core",
        series,
    ))
}

fn cpu_percent(found: &Fields) -> Result<f64, Failure> {
    number(found, "serverCpuPercent")
}
