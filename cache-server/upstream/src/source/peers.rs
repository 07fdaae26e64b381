//! States of types that other cache-servers in front of the same API server hold.
//!
//! INVARIANT: nothing of such a state is delivered before the API server has proved that it has the state's history, and
//! has accepted a watch from its position. INVARIANT: a peer answers from its caches only: its requests carry
//! `Cache-Control: only-if-cached`, so that they never reach the API server.

use std::{cmp::Reverse, mem, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use informer::{
    Cluster,
    raw::{Event, Events},
};
use informer_core::proof;
use kube::core::ApiResource;
use tokio::time::{Instant, sleep, timeout};

use super::{STATES_AT_ONCE, followed::object_record};
use crate::{
    identity::{ClusterName, NameAnswer, UpstreamIdentity, read_name},
    storage::{SourceError, SourceRecord, Update},
};

/// Other cache-servers in front of the same API server.
pub struct Peers {
    /// They have no order of preference.
    peers: Vec<Peer>,
    /// The cluster that they must be in front of; `None`: histories prove it.
    identity: Option<Arc<UpstreamIdentity>>,
}

/// One peer.
struct Peer {
    client: kube::Client,
    cluster: Cluster,
    /// Its last answer about its cluster, with the time of the question.
    found: tokio::sync::Mutex<Option<(Instant, Option<ClusterName>)>>,
}

/// Relation of a peer's cluster to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerCluster {
    Ours,
    Another,
    Unknown,
}

/// State of a type that a peer holds. Memory: its objects as JSON, which move into the cache once they are proved.
pub(super) struct PeerState {
    /// The state as the source delivers it, but for its end.
    updates: Vec<Update>,
    /// Its position.
    pub(super) revision: u64,
    /// True if the peer is known to be in front of our cluster.
    pub(super) is_ours: bool,
}

/// Result of the proof of a peer's state.
#[derive(Debug)]
pub(super) enum StateProof {
    /// The API server has the state's history, and sends the changes after it.
    Proved,
    /// The API server has another history, and sends its own state, beginning with this event.
    Refuted(Event),
    /// The API server did not answer in time, or refuses the reads.
    Unknown,
}

impl Peers {
    /// Reads through `clients`, one for each peer.
    pub fn new(clients: Vec<kube::Client>) -> Self {
        let peer = |client: kube::Client| {
            let cluster = Cluster::builder(client.clone()).relists_at_once(STATES_AT_ONCE).build();
            Peer { client, cluster, found: tokio::sync::Mutex::default() }
        };
        Self { peers: clients.into_iter().map(peer).collect(), identity: None }
    }

    /// Reads from no peer that is in front of another cluster.
    pub fn in_cluster(self, identity: Arc<UpstreamIdentity>) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Returns the state of a type, or of the part that `scope` selects, from the first peer that has it. `None` if no peer
    /// has it, or if it is empty: its history cannot be proved without an object. If no peer has it, tries all of them once
    /// more after a random pause: of servers that start together, most then read from the first ones that are filled.
    pub(super) async fn state(&self, resource: &ApiResource, scope: Option<&str>) -> Option<PeerState> {
        if self.peers.is_empty() {
            return None;
        }
        if let Some(state) = self.first_state(resource, scope).await {
            return state.has_objects().then_some(state);
        }
        sleep(PEERS_PAUSE_MAX.mul_f64(fastrand::f64())).await;
        self.first_state(resource, scope).await.filter(PeerState::has_objects)
    }

    async fn first_state(&self, resource: &ApiResource, scope: Option<&str>) -> Option<PeerState> {
        let mut order: Vec<usize> = (0..self.peers.len()).collect();
        fastrand::shuffle(&mut order);
        for peer in order {
            let cluster = self.cluster_of(peer).await;
            if cluster == PeerCluster::Another {
                continue;
            }
            let read = timeout(PEER_STATE_WAIT, PeerState::read(&self.peers[peer].cluster, resource, scope)).await;
            let resource = resource.plural.as_str();
            match read.unwrap_or_else(|_| Err("its state takes too long".to_owned())) {
                Ok(mut state) => {
                    state.is_ours = cluster == PeerCluster::Ours;
                    let (objects, resource_version) = (state.updates.len(), state.revision);
                    tracing::info!(resource, peer, objects, resource_version, "peer state read");
                    return Some(state);
                }
                Err(error) => tracing::info!(resource, peer, error, "peer state not available"),
            }
        }
        None
    }

    /// Asks a peer for its cluster, unless it was asked lately.
    async fn cluster_of(&self, peer: usize) -> PeerCluster {
        let Some(ours) = self.identity.as_ref().and_then(|identity| identity.cluster()) else {
            return PeerCluster::Unknown;
        };
        let Peer { client, found, .. } = &self.peers[peer];
        let found = &mut *found.lock().await;
        if found.as_ref().is_none_or(|(sent, _)| PEER_CLUSTER_AGE <= sent.elapsed()) {
            let sent = Instant::now();
            let name = match read_name(client).await {
                NameAnswer::Known(name) => Some(name),
                NameAnswer::Busy | NameAnswer::None(_) => None,
            };
            if let Some((theirs, expected)) = name.as_ref().and_then(ClusterName::uid).zip(ours.uid())
                && theirs != expected
            {
                tracing::error!(peer, found = theirs, expected, "peer refused: another cluster");
            }
            *found = Some((sent, name));
        }
        let theirs = found.as_ref().and_then(|(_, name)| name.as_ref()).and_then(ClusterName::uid);
        match theirs.zip(ours.uid()) {
            Some((theirs, ours)) if theirs == ours => PeerCluster::Ours,
            Some(_) => PeerCluster::Another,
            None => PeerCluster::Unknown,
        }
    }
}

impl PeerState {
    /// Reads the state that a peer has now.
    async fn read(cluster: &Cluster, resource: &ApiResource, scope: Option<&str>) -> Result<Self, String> {
        let raw = cluster.raw(resource).config(|config| config.headers_timeout = PEER_PATIENCE);
        let raw = match scope {
            Some(scope) => raw.fields(scope),
            None => raw,
        };
        let mut events = raw.start().map_err(|error| error.to_string())?;
        let mut updates = vec![Update::StateBegins];
        let no_number = |error: SourceError| error.to_string();
        loop {
            match timeout(PEER_PATIENCE, events.next()).await.map_err(|_| "it sends nothing".to_owned())? {
                Some(Ok(Event::Init | Event::InitAbandoned)) => updates.truncate(1),
                Some(Ok(Event::InitApply(object))) => {
                    updates.push(Update::Object(object_record(&object).map_err(no_number)?));
                }
                Some(Ok(Event::Delete(object))) => updates.push(Update::Removed(object.key().to_owned())),
                Some(Ok(Event::InitDone(position))) => {
                    let revision = position.as_u64().ok_or("its resourceVersions are no numbers")?;
                    return Ok(Self { updates, revision, is_ours: false });
                }
                Some(Ok(Event::Apply(_) | Event::Bookmark(_) | _)) => {}
                // The next peer, or the API server, is quicker than another attempt.
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("it ended the stream".to_owned()),
            }
        }
    }

    fn has_objects(&self) -> bool {
        self.updates.iter().any(|update| matches!(update, Update::Object(_)))
    }

    /// Returns the object for the proof after `asked` others proved nothing, as JSON. Cost: one pass over all versions.
    pub(super) fn witness(&self, requested: usize) -> Option<Bytes> {
        let mut objects = Vec::with_capacity(self.updates.len());
        for update in &self.updates {
            if let Update::Object(SourceRecord::Json { json, revision }) = update {
                objects.push((*revision, json));
            }
        }
        let rank = proof::rank(requested, objects.len());
        if objects.len() <= rank {
            return None;
        }
        let (_, (_, json), _) = objects.select_nth_unstable_by_key(rank, |(revision, _)| Reverse(*revision));
        Some(Bytes::clone(json))
    }

    /// Takes the objects out, as a whole state.
    pub(super) fn take(&mut self) -> Vec<Update> {
        let mut updates = mem::take(&mut self.updates);
        updates.push(Update::StateComplete(self.revision));
        updates
    }
}

impl StateProof {
    /// Waits for the proof of the position that `events` resume from.
    pub(super) async fn of(events: &mut Events) -> Self {
        let proof = async {
            loop {
                match events.next().await {
                    Some(Ok(Event::Bookmark(_))) => return Self::Proved,
                    Some(Ok(event)) => return Self::Refuted(event),
                    // The API server is away or overloaded, so a read of its state would fail as well.
                    Some(Err(error)) if error.is_retryable() => {}
                    Some(Err(_)) | None => return Self::Unknown,
                }
            }
        };
        timeout(PROOF_WAIT, proof).await.unwrap_or(Self::Unknown)
    }
}

/// Longest wait for the next event of a peer. A peer that is not filled, or that holds another part of the type, answers
/// 504 at once.
const PEER_PATIENCE: Duration = Duration::from_secs(5);

/// Time for which a peer's answer about its cluster is used.
const PEER_CLUSTER_AGE: Duration = Duration::from_secs(30);

/// Longest time to read one state from a peer: that of some millions of objects.
const PEER_STATE_WAIT: Duration = Duration::from_secs(120);

/// Longest pause before the peers are tried once more. It delays servers that start together without a filled peer by half
/// of it on average.
const PEERS_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Longest wait for the proof of a peer's state.
const PROOF_WAIT: Duration = Duration::from_secs(10);
