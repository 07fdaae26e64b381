//! The agents of act 3: as many informers of the SDK, each with a watch-list of its node's pods.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use informer::{Cluster, Informer, InitialList, ListSemantic};
use k8s_openapi::api::core::v1::Pod;
use kube::config::AuthInfo;
use measured::Failure;
use tokio::time::sleep;

use crate::{
    board::Board,
    http::Target,
    identities::{AGENT, IdentityFiles},
    plan::NodePods,
};

/// Pause between two looks at the positions of all informers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// All informers of all agents; dropping it ends them.
pub(crate) struct InformerFleet {
    informers: Vec<Informer<Pod>>,
    places: Vec<Arc<NodePods>>,
}

/// Sums over all informers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FleetCounts {
    /// Requests for initial states.
    pub(crate) initial: u64,
    /// Watches that resumed at a position.
    pub(crate) resumes: u64,
    pub(crate) bytes: u64,
}

impl InformerFleet {
    /// Starts one client for each agent, and its informers. Must be called inside a runtime.
    pub(crate) fn start(
        target: &Target,
        files: &IdentityFiles,
        places: &[Arc<NodePods>],
        lists: usize,
        board: &Arc<Board>,
    ) -> Result<Self, Failure> {
        let mut config = kube::Config::new(format!("https://{}", target.address).parse()?);
        config.root_cert = Some(vec![files.authority()?.to_vec()]);
        config.auth_info = AuthInfo { token: Some(AGENT.token.to_owned().into()), ..AuthInfo::default() };
        let clusters: Vec<Cluster> =
            places.iter().map(|_| Cluster::try_from(config.clone())).collect::<Result<_, _>>()?;
        let mut informers = Vec::with_capacity(places.len() * lists);
        // Copy `i` belongs to node `i % nodes`, so that all agents start alike.
        for _ in 0..lists {
            for (cluster, place) in clusters.iter().zip(places) {
                // Agents need names and labels only: copies without spec and status are small.
                let informer = cluster
                    .informer::<Pod>()
                    .fields(format!("spec.nodeName={}", place.node))
                    .initial_list(InitialList::Stream)
                    .list_semantic(ListSemantic::Any)
                    .drop_path("spec")
                    .drop_path("status")
                    .start()?;
                tokio::spawn(first_sync(informer.clone(), Arc::clone(board), Instant::now()));
                informers.push(informer);
            }
        }
        Ok(Self { informers, places: places.to_vec() })
    }

    /// Copies the positions of all informers to the board until dropped.
    pub(crate) async fn report(&self, board: &Board) {
        loop {
            for (copy, informer) in self.informers.iter().enumerate() {
                if let Some(version) = informer.resource_version().and_then(|version| version.as_u64()) {
                    board.reach(copy, version);
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Compares the number of pods of each complete copy, and returns sums.
    pub(crate) fn check(&self, board: &Board) -> FleetCounts {
        let mut counts = FleetCounts::default();
        for (copy, informer) in self.informers.iter().enumerate() {
            let place = &self.places[copy % self.places.len()];
            let pods = informer.store().snapshot().len();
            let is_complete = informer.resource_version().is_some();
            if is_complete && pods != place.count {
                board.note_wrong(|| {
                    format!("a copy of {} has {pods} pods, and should have {}", place.node, place.count)
                });
            }
            let stats = informer.stats();
            counts.initial += stats.reflector.requests - stats.reflector.resumes;
            counts.resumes += stats.reflector.resumes;
            counts.bytes += stats.bytes_received;
        }
        board.bytes.store(counts.bytes, Relaxed);
        counts
    }
}

async fn first_sync(informer: Informer<Pod>, board: Arc<Board>, begun: Instant) {
    const AMPLE: Duration = Duration::from_secs(3600);
    if informer.ready(AMPLE).await.is_ok() {
        board.answered(begun.elapsed());
    }
}
