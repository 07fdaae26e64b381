//! Loads on a server that is restricted to some cores of the machine.
//!
//! The load tool runs on all cores. Compared is the CPU time of the server for one operation. It grows with the number of
//! cores, because locks are contended and cache lines travel between the cores.

use serde::{Deserialize, Serialize};

use super::{Failure, steps};
use crate::numbers::{
    case::{Fields, Setup},
    run,
};

/// A load and its operation.
pub(super) struct ScaledLoad {
    pub(super) name: &'static str,
    what: &'static str,
    pods: (u32, u32),
    tls: bool,
    pub(super) arguments: &'static str,
    /// CPU seconds of one operation.
    cost: fn(&Fields) -> Result<f64, Failure>,
}

/// Costs of a load by cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoadCurve {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) command: String,
    pub(super) points: Vec<LoadPoint>,
}

/// Cost with one number of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoadPoint {
    pub(super) cores: u32,
    /// CPU microseconds of the server for one operation, of each run.
    pub(super) micros: Vec<f64>,
}

impl LoadPoint {
    pub(super) fn mean(&self) -> f64 {
        self.micros.iter().sum::<f64>() / f64::from(u32::try_from(self.micros.len().max(1)).unwrap_or(u32::MAX))
    }
}

/// Watchers of the load `wide`, all of one type.
pub(super) const WIDE_WATCHERS: u32 = 10_000;

/// All loads.
pub(super) fn all() -> impl Iterator<Item = ScaledLoad> {
    [
        ScaledLoad {
            name: "writes",
            what: "a write of a Lease by one of 64 clients",
            pods: (0, 0),
            tls: false,
            arguments: "writes --clients 64 --kind lease --operation update --seconds 3 --http 1",
            cost: |found| run::number(found, "serverCpuSecondsPerWrite"),
        },
        ScaledLoad {
            name: "deliveries",
            what: "a delivery of 0.5 KB in bursts of 100 to 1,000 watchers",
            pods: (0, 0),
            tls: false,
            arguments: "fanout --clients 1000 --rate 200 --burst 100 --bytes 512 --seconds 3 --http 1",
            cost: |found| run::number(found, "serverCpuSecondsPerDelivery"),
        },
        ScaledLoad {
            name: "wide",
            what: "a delivery of 0.5 KB that wakes each of 10,000 watchers alone",
            pods: (0, 0),
            tls: false,
            arguments: "fanout --clients 10000 --rate 4 --burst 1 --bytes 512 --seconds 4 --connect-rate 4000 --http 1",
            cost: |found| run::number(found, "serverCpuSecondsPerDelivery"),
        },
        ScaledLoad {
            name: "bytes",
            what: "a MB of an initial stream, 64 at once",
            pods: (7_130, 80),
            tls: false,
            arguments: "watch-list --clients 64 --settle 0 --http 1",
            cost: a_megabyte,
        },
        ScaledLoad {
            name: "bytes-tls",
            what: "a MB of an initial stream over TLS, 64 at once",
            pods: (7_130, 80),
            tls: true,
            arguments: "watch-list --clients 64 --settle 0 --http 1",
            cost: a_megabyte,
        },
        ScaledLoad {
            name: "connects",
            what: "a connection with a watch that is opened, 5,000 at once",
            pods: (0, 0),
            tls: false,
            arguments: "reconnect-storm --clients 5000 --return resume --rate 100 --burst 100 --bytes 512 --seconds 1 \
                        --http 1",
            cost: |found| run::number(found, "serverCpuSecondsPerClient"),
        },
    ]
    .into_iter()
}

fn a_megabyte(found: &Fields) -> Result<f64, Failure> {
    Ok(run::number(found, "serverProcess.cpuSeconds")? * 1e6 / run::number(found, "bytes")?)
}

impl ScaledLoad {
    /// Runs the load with a new server for each number of cores and each run; runs with different numbers take turns.
    pub(super) fn measure(&self, runs: u8) -> Result<LoadCurve, Failure> {
        let mut points: Vec<LoadPoint> = steps().map(|cores| LoadPoint { cores, micros: Vec::new() }).collect();
        for _ in 0..runs {
            for point in &mut points {
                let (pods, nodes) = self.pods;
                let setup = Setup { pods, nodes, tls: self.tls, cores: Some(point.cores), ..Setup::default() };
                let found = run::with_server(&setup, |endpoint| run::load(endpoint, &run::words(self.arguments)))?;
                let micros = (self.cost)(&found)? * 1e6;
                eprintln!("numbers: {} with {} cores: {micros:.2} CPU µs", self.name, point.cores);
                point.micros.push(micros);
            }
        }
        let command = format!("load {}", self.arguments);
        Ok(LoadCurve { name: self.name.to_owned(), what: self.what.to_owned(), command, points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_tool_understands_all_loads() {
        for load in all() {
            let words = ["load"].into_iter().chain(load.arguments.split_whitespace());
            let all = words.chain(["--server", "http://127.0.0.1:8001"]).map(str::to_owned);
            assert_eq!(crate::load::understands(all), Ok(()), "{}", load.name);
        }
    }
}
