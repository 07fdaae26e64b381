//! `reads`: consistent reads with a small answer, while the cache is current.

use std::{cell::Cell, ops::Range, time::Duration};

use http::Method;

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer, PairTimes, RequestPair},
    metrics,
    row::{SideRow, percentile},
};
use crate::{
    load::{
        client::Target,
        failure::Failure as LoadFailure,
        fanout::subject::{Kind as ObjectKind, Scope},
        writer::Writer,
    },
    numbers::{amount, case::Unit, server::runtime, stock::Cluster},
};

/// Connections that write.
const LANES: usize = 32;
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 3_000;
/// Milliseconds of pause before each read, by chance: a read that waits for the newest state makes it known to the next
/// one, so reads of both sides must not follow each other at once.
const PAUSE_MILLIS: Range<u64> = 5..45;

/// A kind of read, and what is written meanwhile.
struct ReadLoad {
    what: &'static str,
    path: &'static str,
    /// Type of the written objects, and writes per second.
    writes: Option<(ObjectKind, f64)>,
    /// True if the read has the target of this case.
    is_held: bool,
}

const LOADS: [ReadLoad; 6] = [
    ReadLoad {
        what: "LIST limit=1 of the pods, 500 of which are written a second",
        path: "/api/v1/pods?limit=1",
        writes: Some((ObjectKind::Pods, 500.0)),
        is_held: true,
    },
    ReadLoad {
        what: "LIST limit=1 of the pods, 50 of which are written a second",
        path: "/api/v1/pods?limit=1",
        writes: Some((ObjectKind::Pods, 50.0)),
        is_held: true,
    },
    ReadLoad {
        what: "LIST of the pods of one node, 50 pods are written a second",
        path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-0",
        writes: Some((ObjectKind::Pods, 50.0)),
        is_held: false,
    },
    ReadLoad {
        what: "LIST limit=1 of the namespaces, which are quiet, 50 pods are written a second",
        path: "/api/v1/namespaces?limit=1",
        writes: Some((ObjectKind::Pods, 50.0)),
        is_held: true,
    },
    ReadLoad {
        what: "LIST limit=1 of the pods, which are quiet, 50 ConfigMaps are written a second",
        path: "/api/v1/pods?limit=1",
        writes: Some((ObjectKind::ConfigMaps, 50.0)),
        is_held: true,
    },
    ReadLoad {
        what: "LIST limit=1 of the pods, nothing is written",
        path: "/api/v1/pods?limit=1",
        writes: None,
        is_held: true,
    },
];

pub(super) fn method(sizes: &LoadSizes) -> String {
    format!(
        "{} pods; LISTs without resourceVersion, in turns directly and through us, for {} s each, one at a time, \
         25 ms apart on average; writes go to \
         kube-apiserver directly; `--resources pods,namespaces`; medians",
        amount(f64::from(sizes.large.pods)),
        sizes.seconds
    )
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    let stock = cluster.serve()?;
    let front = FrontServer::start(&stock, "pods,namespaces")?;
    let (direct, through) = (stock.endpoint().target()?, front.endpoint().target()?);
    let runtime = runtime()?;
    let mut rows = Vec::new();
    for load in &LOADS {
        let times = runtime.block_on(load.measure(&direct, &through, sizes.seconds))?;
        let [ours, theirs] = [&times.through, &times.direct].map(|times| percentile(times, 50));
        rows.push(SideRow::new(load.what, Unit::Millis, ours, theirs));
        let more = SideRow::new("… more than directly, median", Unit::Millis, ours - theirs, None);
        rows.push(if load.is_held { more.at_most(2.0) } else { more });
        let [ours, theirs] = [&times.through, &times.direct].map(|times| percentile(times, 99));
        rows.push(SideRow::new("… 99th percentile of each side", Unit::Millis, ours, theirs));
    }
    rows.push(metrics::reviews_row(stock.endpoint())?);
    Ok(rows)
}

impl ReadLoad {
    /// Times of the reads while its objects are written.
    async fn measure(&self, direct: &Target, through: &Target, seconds: u64) -> Result<PairTimes, Failure> {
        let mut pair = RequestPair::connect(direct, through).await?;
        // The first request asks for the caller's rights.
        pair.send(&Method::GET, self.path, None).await?;
        pair.times = PairTimes::default();
        let is_over = Cell::new(false);
        let Some((kind, rate)) = self.writes else {
            let timer = async {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                is_over.set(true);
            };
            let (read, ()) = tokio::join!(self.read(&mut pair, &is_over), timer);
            return Ok(read.map(|()| pair.times)?);
        };
        let subject = front::subject(kind, Scope::All, OBJECTS, 1);
        let mut writer = Writer::prepare(direct, subject, LANES, OBJECT_BYTES).await?;
        let writes = async {
            let written = writer.write(front::pace(rate, seconds), 0).await;
            is_over.set(true);
            written
        };
        let (read, written) = tokio::join!(self.read(&mut pair, &is_over), writes);
        read?;
        if written.failures.total() > 0 {
            return Err(Failure::Load(written.failures.lines().collect::<Vec<_>>().join("; ")));
        }
        writer.clean().await?;
        Ok(pair.times)
    }

    async fn read(&self, pair: &mut RequestPair, is_over: &Cell<bool>) -> Result<(), LoadFailure> {
        while !is_over.get() {
            let pause = || Duration::from_millis(fastrand::u64(PAUSE_MILLIS));
            pair.send_after(pause, &Method::GET, self.path, None).await?;
        }
        Ok(())
    }
}
