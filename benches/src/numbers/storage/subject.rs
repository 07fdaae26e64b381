//! The servers that are measured.

use std::{path::Path, time::Duration};

use cache_server::populate::PopulateSpec;

use super::Failure;
use crate::numbers::{
    case::Setup,
    processes,
    server::{Endpoint, Server, ready},
    stock::{Cluster, Stock},
};

/// A server and its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasuredStorage {
    Memory,
    DataDir,
    Etcd,
    Stock,
}

/// A running server with its storage. Both end when it is dropped, the server first.
pub(super) struct RunningStorage {
    server: RunningServer,
    origin: DataOrigin,
}

enum RunningServer {
    Own(Server),
    Stock(Stock),
}

/// Storage that outlives a server: none, a folder, or an etcd.
pub(super) enum DataOrigin {
    Nowhere,
    Folder(tempfile::TempDir),
    Etcd(Box<Cluster>),
}

impl DataOrigin {
    /// Waits until a new etcd is ready.
    pub(super) fn etcd(cluster: Cluster) -> Result<Self, Failure> {
        ready(&cluster.etcd(), READY_WAIT)?;
        Ok(Self::Etcd(Box::new(cluster)))
    }
}

/// Timeout of a start with many objects.
const READY_WAIT: Duration = Duration::from_secs(300);

impl MeasuredStorage {
    pub(super) const ALL: [Self; 4] = [Self::Memory, Self::DataDir, Self::Etcd, Self::Stock];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::DataDir => "data-dir",
            Self::Etcd => "etcd",
            Self::Stock => "kube-apiserver",
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Memory => "`cache-server serve`",
            Self::DataDir => "`cache-server serve --data-dir`",
            Self::Etcd => "`cache-server serve --etcd-endpoints`, with an etcd of its own",
            Self::Stock => "a stock kube-apiserver, with an etcd of its own",
        }
    }

    pub(super) const fn needs_programs(self) -> bool {
        matches!(self, Self::Etcd | Self::Stock)
    }

    /// True if objects outlive the server.
    pub(super) const fn starts_with_objects(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Largest time of a start with 100,000 objects, in seconds.
    pub(super) const fn ready_within(self) -> Option<f64> {
        match self {
            Self::DataDir => Some(3.0),
            Self::Etcd => Some(15.0),
            Self::Memory | Self::Stock => None,
        }
    }

    /// Makes empty data on the disk, which is synced.
    pub(super) fn empty(self, programs: &Path) -> Result<DataOrigin, Failure> {
        Ok(match self {
            Self::Memory => DataOrigin::Nowhere,
            Self::DataDir => DataOrigin::Folder(processes::folder()?),
            Self::Etcd | Self::Stock => DataOrigin::etcd(Cluster::durable(programs)?)?,
        })
    }

    /// Starts a server on data, and waits until it is ready. It generates `populate` first, if that is given.
    pub(super) fn serve(self, origin: DataOrigin, populate: Option<&PopulateSpec>) -> Result<RunningStorage, Failure> {
        let server = match (self, &origin) {
            (Self::Stock, DataOrigin::Etcd(cluster)) => RunningServer::Stock(cluster.serve()?),
            (_, origin) => RunningServer::Own(own(origin, populate)?),
        };
        Ok(RunningStorage { server, origin })
    }
}

/// Starts this server.
fn own(origin: &DataOrigin, populate: Option<&PopulateSpec>) -> Result<Server, Failure> {
    let mut flags = match origin {
        DataOrigin::Nowhere => Vec::new(),
        DataOrigin::Folder(folder) => vec!["--data-dir".to_owned(), folder.path().join("data").display().to_string()],
        DataOrigin::Etcd(cluster) => vec!["--etcd-endpoints".to_owned(), cluster.etcd().url],
    };
    if let Some(PopulateSpec { pods, nodes, namespaces, seed }) = populate {
        flags.push(format!("--populate=pods={pods},nodes={nodes},namespaces={namespaces},seed={seed}"));
    }
    let server = Server::launch(&Setup { tls: true, flags, ..Setup::default() })?;
    ready(server.endpoint(), READY_WAIT)?;
    Ok(server)
}

impl RunningStorage {
    pub(super) const fn endpoint(&self) -> &Endpoint {
        match &self.server {
            RunningServer::Own(server) => server.endpoint(),
            RunningServer::Stock(stock) => stock.endpoint(),
        }
    }

    /// Time since its start.
    pub(super) fn age(&self) -> Option<Duration> {
        match &self.server {
            RunningServer::Own(server) => Some(server.begun.elapsed()),
            RunningServer::Stock(_) => None,
        }
    }

    /// Time from its start until it was ready, as the server reported it.
    pub(super) fn ready_after(&self) -> Option<Duration> {
        match &self.server {
            RunningServer::Own(_) => None,
            RunningServer::Stock(stock) => Some(stock.ready_after),
        }
    }

    /// The process of its etcd.
    pub(super) fn etcd(&self) -> Option<u32> {
        match &self.origin {
            DataOrigin::Etcd(cluster) => Some(cluster.etcd().pid),
            DataOrigin::Nowhere | DataOrigin::Folder(_) => None,
        }
    }

    /// Ends the server, and returns its data.
    pub(super) fn end(self) -> DataOrigin {
        self.origin
    }
}
