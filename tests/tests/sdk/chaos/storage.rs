//! The storage of the cache-servers of a run: an etcd, or a stock kube-apiserver with its own; and the faults of it.

use std::{collections::HashSet, net::SocketAddr};

use fastrand::Rng;
use tempfile::TempDir;
use tests::{
    etcd::{EtcdCluster, EtcdEvent, EtcdKeyValue, EtcdKeys, EtcdSettings},
    genuine::{ADMIN, CACHE, Genuine, GenuineSettings, token_of},
    http::Client,
    relay::Relay,
};

use super::history::{
    truth::{Epoch, Kind, State, WatchedEvent},
    watchers::{NAMESPACES, content},
};

/// Prefix of the keys of ConfigMaps.
const KEYS: &str = "/registry/configmaps/";

pub(crate) enum Storage {
    Etcd {
        etcd: Box<EtcdCluster>,
        members: usize,
    },
    /// With the folders in which the cache-servers save their states.
    Apiserver {
        genuine: Box<Genuine>,
        states: TempDir,
    },
}

/// A fault of the storage, until it is healed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StorageFault {
    /// kill -9 of a member of etcd, or of kube-apiserver.
    Killed(usize),
    /// SIGSTOP of it.
    Stopped(usize),
    /// A member of etcd that does not reach the others.
    Parted(usize),
    /// kill -9 of the etcd of kube-apiserver.
    EtcdKilled,
    /// The history up to now is removed.
    Compacted,
}

impl Storage {
    pub(crate) async fn etcd(test: &str, members: usize) -> Option<Self> {
        let settings = EtcdSettings { members, ..EtcdSettings::default() };
        Some(Self::Etcd { etcd: Box::new(EtcdCluster::start_with(test, settings).await?), members })
    }

    pub(crate) async fn apiserver(test: &str) -> Option<Self> {
        // The test reads values, too.
        let flags = vec!["--storage-media-type=application/json".to_owned()];
        let genuine = Genuine::start_with(test, GenuineSettings { flags, ..GenuineSettings::default() }).await?;
        for number in 0..NAMESPACES {
            genuine.client(ADMIN).create(&tests::objects::namespace(&format!("ns{number}"))).await;
        }
        Some(Self::Apiserver { genuine: Box::new(genuine), states: TempDir::new().unwrap() })
    }

    /// Addresses that cache-servers connect to.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Etcd { etcd, members } => (0..*members).map(|member| etcd.address(member)).collect(),
            Self::Apiserver { genuine, .. } => vec![genuine.address()],
        }
    }

    /// Flags of a cache-server that reaches it through relays.
    pub(crate) fn flags(&self, server: usize, relays: &[Relay]) -> Vec<String> {
        let urls = |scheme: &str| {
            let urls = relays.iter().map(|relay| format!("{scheme}://{}", relay.address()));
            urls.collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Etcd { .. } => vec!["--etcd-endpoints".to_owned(), urls("http")],
            Self::Apiserver { genuine, states } => {
                let state = states.path().join(server.to_string()).display().to_string();
                let kubeconfig = genuine.kubeconfig(CACHE).display().to_string();
                let flags = ["--kubeconfig", &kubeconfig, "--resources", "configmaps", "--state-dir", &state];
                let rights = ["--authorization", "always-allow"];
                let upstream = std::iter::once(format!("--upstream={}", urls("https")));
                upstream.chain(flags.into_iter().chain(rights).map(str::to_owned)).collect()
            }
        }
    }

    /// Clients of writers, given those of the cache-servers.
    pub(crate) fn writing(&self, servers: Vec<Client>) -> Vec<Client> {
        match self {
            Self::Etcd { .. } => servers,
            Self::Apiserver { genuine, .. } => [servers, vec![genuine.client(ADMIN)]].concat(),
        }
    }

    /// Token of all clients: servers pass requests that no cache answers on to the storage, such as later pages of a list.
    pub(crate) fn token(&self) -> Option<String> {
        matches!(self, Self::Apiserver { .. }).then(|| token_of(ADMIN))
    }

    /// A client of a cache-server.
    pub(crate) fn client(&self, address: SocketAddr) -> Client {
        let client = Client::new(address);
        self.token().map_or(client, |token| client.with_token(&token))
    }

    pub(crate) fn keys(&self) -> EtcdKeys {
        match self {
            Self::Etcd { etcd, .. } => etcd.keys(),
            Self::Apiserver { genuine, .. } => genuine.keys(),
        }
    }

    /// The ConfigMaps that it has now.
    pub(crate) async fn state(&self) -> State {
        let pairs = self.keys().range(KEYS).await;
        pairs.iter().map(|pair| (key_of(&pair.key).into(), (pair.mod_revision, content(&pair.json())))).collect()
    }

    /// The uids of its ConfigMaps.
    pub(crate) async fn uids(&self) -> HashSet<String> {
        let pairs = self.keys().range(KEYS).await;
        let uid = |pair: &EtcdKeyValue| pair.json()["metadata"]["uid"].as_str().expect("a uid").to_owned();
        pairs.iter().map(uid).collect()
    }

    /// Adds its changes after a position to a history of ConfigMaps. Returns the position that it has read up to.
    pub(crate) async fn tell(&self, epoch: &mut Epoch, after: u64) -> u64 {
        let keys = self.keys();
        let revision = keys.revision().await;
        for event in keys.history(KEYS, after).await {
            let (key, at) = (key_of(event.key()), event.revision());
            let (kind, content) = match &event {
                EtcdEvent::Put(pair) if pair.create_revision == at => (Kind::Added, content(&pair.json())),
                EtcdEvent::Put(pair) => (Kind::Modified, content(&pair.json())),
                // The last content of the object.
                EtcdEvent::Deleted { .. } => (Kind::Deleted, epoch.content(key).cloned().expect("it existed")),
            };
            let seen = WatchedEvent { kind, key: key.into(), at, content };
            epoch.take(seen).unwrap_or_else(|story| panic!("the history of the storage: {story}"));
        }
        revision.max(epoch.last())
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> StorageFault {
        use StorageFault::{Compacted, EtcdKilled, Killed, Parted, Stopped};
        match self {
            Self::Etcd { members: 1, .. } => rng.choice([Killed(0), Stopped(0), Compacted]).unwrap(),
            Self::Etcd { members, .. } => {
                let member = rng.usize(0..*members);
                rng.choice([Killed(member), Stopped(member), Parted(member), Compacted]).unwrap()
            }
            Self::Apiserver { .. } => rng.choice([Killed(0), Stopped(0), EtcdKilled, Compacted]).unwrap(),
        }
    }

    pub(crate) async fn strike(&mut self, fault: StorageFault, known: u64) {
        match (fault, self) {
            (StorageFault::Compacted, storage) => storage.keys().compact(known).await,
            (StorageFault::Killed(member), Self::Etcd { etcd, .. }) => etcd.kill(member),
            (StorageFault::Stopped(member), Self::Etcd { etcd, .. }) => etcd.pause(member),
            (StorageFault::Parted(member), Self::Etcd { etcd, .. }) => etcd.part(member),
            (StorageFault::Killed(_), Self::Apiserver { genuine, .. }) => genuine.kill(),
            (StorageFault::Stopped(_), Self::Apiserver { genuine, .. }) => genuine.pause(),
            (StorageFault::EtcdKilled, Self::Apiserver { genuine, .. }) => genuine.kill_etcd(),
            (fault, _) => unreachable!("{fault:?} of this storage"),
        }
    }

    pub(crate) async fn heal(&mut self, fault: StorageFault) {
        match (fault, self) {
            (StorageFault::Compacted, _) => {}
            (StorageFault::Killed(member), Self::Etcd { etcd, .. }) => etcd.restart(member).await,
            (StorageFault::Stopped(member), Self::Etcd { etcd, .. }) => etcd.resume(member),
            (StorageFault::Parted(_), Self::Etcd { etcd, .. }) => etcd.rejoin(),
            (StorageFault::Killed(_), Self::Apiserver { genuine, .. }) => genuine.restart().await,
            (StorageFault::Stopped(_), Self::Apiserver { genuine, .. }) => genuine.resume(),
            (StorageFault::EtcdKilled, Self::Apiserver { genuine, .. }) => genuine.start_etcd(),
            (fault, _) => unreachable!("{fault:?} of this storage"),
        }
    }

    /// True once it answers consistent reads.
    pub(crate) async fn answers(&self) -> bool {
        let is_read = self.keys().try_revision().await.is_ok();
        match self {
            Self::Etcd { .. } => is_read,
            Self::Apiserver { genuine, .. } => {
                let ready = genuine.client(ADMIN).try_get("/readyz").await;
                is_read && ready.is_ok_and(|answer| answer.code == 200)
            }
        }
    }
}

fn key_of(key: &str) -> &str {
    &key[KEYS.len()..]
}
