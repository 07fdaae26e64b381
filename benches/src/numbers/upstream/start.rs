//! `start`: time and memory of a start with many pods already in kube-apiserver.

use std::{thread, time::Duration};

use super::{
    Failure, LoadSizes,
    front::FrontServer,
    metrics,
    row::{SideRow, float, percentile},
};
use crate::{
    load::sampler::Memory,
    numbers::{
        amount,
        case::Unit,
        run,
        server::Endpoint,
        stock::{Cluster, Stock},
    },
};

/// Time in which this server returns the last free memory to the system.
const REST: Duration = Duration::from_secs(12);

pub(super) fn method(sizes: &LoadSizes) -> String {
    format!(
        "{} pods in etcd; `--resources pods`; from exec to 200 from /readyz, median of {} starts; peak memory since exec over \
         resident memory once settled, the worst of them. Alone: kube-apiserver itself",
        amount(f64::from(sizes.large.pods)),
        sizes.starts
    )
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    let stock = cluster.serve()?;
    let alone = ProcessSize::of(stock.endpoint())?;
    let read_alone = read(&stock, stock.endpoint(), sizes.large.pods)?;
    let (mut seconds, mut sizes_seen, mut read_through) = (Vec::new(), Vec::new(), f64::NAN);
    for _ in 0..sizes.starts {
        let front = FrontServer::start(&stock, "pods")?;
        thread::sleep(REST);
        seconds.push(front.ready_after.as_secs_f64());
        sizes_seen.push(ProcessSize::of(front.endpoint())?);
        read_through = read(&stock, front.endpoint(), sizes.large.pods)?;
    }
    let worst = sizes_seen.iter().max_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let with_us = worst.ok_or_else(|| Failure::Server("it was never started".to_owned()))?;
    let pods = amount(f64::from(sizes.large.pods));
    Ok(vec![
        SideRow::new(
            format!("from exec to ready with {pods} pods"),
            Unit::Seconds,
            percentile(&seconds, 50),
            stock.ready_after.as_secs_f64(),
        )
        .at_most(15.0),
        SideRow::new("… peak memory ÷ memory once settled", Unit::Times, with_us.ratio(), alone.ratio()).at_most(1.2),
        SideRow::new("… memory once settled", Unit::Mib, with_us.settled, alone.settled),
        SideRow::new("then one client reads all pods as a stream", Unit::Seconds, read_through, read_alone),
        metrics::reviews_row(stock.endpoint())?,
    ])
}

/// Memory of a process that has settled.
struct ProcessSize {
    peak: f64,
    settled: f64,
}

impl ProcessSize {
    fn of(endpoint: &Endpoint) -> Result<Self, Failure> {
        let Memory { rss_bytes, high_water_bytes, .. } = Memory::of(endpoint.pid)?;
        Ok(Self { peak: float(high_water_bytes), settled: float(rss_bytes) })
    }

    fn ratio(&self) -> f64 {
        self.peak / self.settled
    }
}

/// Seconds in which one client reads all pods; their number is checked.
fn read(stock: &Stock, server: &Endpoint, pods: u32) -> Result<f64, Failure> {
    // The load samples the process of its `--pid`; here it must not be the one whose peak is measured.
    let server = Endpoint { pid: stock.endpoint().pid, ..server.clone() };
    let arguments = format!("watch-list --clients 1 --settle 0 --expect {pods}");
    let found = run::load(&server, &run::words(&arguments))?;
    run::number(&found, "syncMillis.max").map(|millis| millis / 1e3)
}
