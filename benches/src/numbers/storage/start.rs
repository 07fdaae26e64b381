//! Starts with many pods in the storage: time until a client has read one of them, and memory.

use std::{path::Path, thread, time::Duration};

use cache_server::populate::PopulateSpec;
use http::Method;
use serde::{Deserialize, Serialize};

use super::{
    Failure, StorageSizes,
    subject::{DataOrigin, MeasuredStorage},
};
use crate::{
    load::{
        client::Target,
        failure::{Failure as LoadFailure, Kind},
        sampler::Memory,
        scan::List,
        writer,
    },
    numbers::{
        server::{ready, runtime, settle},
        stock::Cluster,
        upstream::fill,
    },
};

/// Time in which the server returns the last free memory to the system.
const REST: Duration = Duration::from_secs(12);

/// Timeout of the start of an empty etcd.
const ETCD_WAIT: Duration = Duration::from_secs(60);

/// Largest ratio of the peak to the memory once settled.
const PEAK_RATIO_MAX: f64 = 1.2;

/// Pause before a read that the server is not ready for is sent again.
const READ_EVERY: Duration = Duration::from_millis(10);

/// The start of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StartRow {
    pub(super) server: String,
    /// Largest number of seconds.
    pub(super) target: Option<f64>,
    pub(super) costs: Option<StartCosts>,
    /// Reason why there are no numbers.
    pub(super) problem: Option<String>,
}

/// Time and memory of a start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StartCosts {
    pub(super) pods: u32,
    /// From exec until a client has read a pod from the cache.
    pub(super) seconds: f64,
    pub(super) peak_bytes: u64,
    pub(super) settled_bytes: u64,
}

impl StartCosts {
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    pub(super) const fn ratio(&self) -> f64 {
        self.peak_bytes as f64 / self.settled_bytes as f64
    }
}

impl StartRow {
    pub(super) fn of(server: String, target: Option<f64>, measured: Result<StartCosts, String>) -> Self {
        let problem = measured.as_ref().err().cloned();
        Self { server, target, costs: measured.ok(), problem }
    }

    /// True if its targets are met; kube-apiserver has none.
    pub(super) fn holds(&self) -> bool {
        let Some(costs) = self.costs else { return false };
        self.target.is_none_or(|target| costs.seconds <= target && costs.ratio() <= PEAK_RATIO_MAX)
    }
}

/// Fills a storage, starts a server on it, and reads.
pub(super) fn measure(storage: MeasuredStorage, programs: &Path, sizes: StorageSizes) -> Result<StartCosts, Failure> {
    let pods = sizes.pods;
    let spec = PopulateSpec { pods, nodes: pods.div_ceil(100), namespaces: pods.div_ceil(1_000), seed: 1 };
    let running = storage.serve(filled(storage, programs, &spec)?, None)?;
    let target = running.endpoint().target()?;
    runtime()?.block_on(read(&target))?;
    let took = running.ready_after().or_else(|| running.age()).unwrap_or_default();
    thread::sleep(REST);
    settle(running.endpoint().pid)?;
    let Memory { rss_bytes, high_water_bytes, .. } = Memory::of(running.endpoint().pid)?;
    let (peak_bytes, settled_bytes) = (high_water_bytes, rss_bytes);
    Ok(StartCosts { pods, seconds: took.as_secs_f64(), peak_bytes, settled_bytes })
}

/// Makes data with the pods.
fn filled(storage: MeasuredStorage, programs: &Path, spec: &PopulateSpec) -> Result<DataOrigin, Failure> {
    match storage {
        MeasuredStorage::Memory | MeasuredStorage::DataDir => {
            Ok(storage.serve(storage.empty(programs)?, Some(spec))?.end())
        }
        MeasuredStorage::Etcd | MeasuredStorage::Stock => {
            // Only the start is measured, and to sync each transaction would take minutes.
            let cluster = Cluster::empty(programs)?;
            ready(&cluster.etcd(), ETCD_WAIT)?;
            fill::pods(&cluster, spec)?;
            Ok(DataOrigin::Etcd(Box::new(cluster)))
        }
    }
}

/// Reads one pod, once the server has its objects. A page of one: a list from the cache alone (`resourceVersion=0`) would
/// ignore the limit and return all pods.
async fn read(target: &Target) -> Result<(), LoadFailure> {
    let mut connection = target.connect().await?;
    loop {
        match writer::send(&mut connection, Method::GET, "/api/v1/pods?limit=1", None).await {
            // The cache is not filled, or not yet as new as the storage.
            Err(LoadFailure { kind: Kind::Status(429 | 504), .. }) => tokio::time::sleep(READ_EVERY).await,
            Err(failure) => return Err(failure),
            Ok(page) => {
                let mut list = List::default();
                list.feed(&page);
                list.finish()?;
                return match list.objects {
                    0 => Err(LoadFailure::new(Kind::Protocol, "the server has none of the pods")),
                    _ => Ok(()),
                };
            }
        }
    }
}
