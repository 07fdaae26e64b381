//! Settings of a run: its acts, its sizes, and the nodes with their pods.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use cache_server::populate::{self, PopulateSpec};
use clap::{Args, ValueEnum};
use measured::Failure;

/// Namespaces that the pods are spread over.
const NAMESPACES: u32 = 40;
/// Folder that `benches/kube-apiserver/prepare` fills.
const STOCK_FOLDER: &str = "target/kube-apiserver";

/// Settings from the command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Sizes for a check that takes seconds: 400 pods, 8 nodes, 6 lists of each agent, no kube-apiserver.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Pods on the server. Left out: 7130, as in the incident.
    #[arg(long, value_name = "N")]
    pods: Option<u32>,
    /// Nodes, each with one agent. Left out: 80.
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Copies of its node's pods that each agent keeps; each of them is listed by itself. Left out: 60.
    #[arg(long, value_name = "N")]
    lists: Option<usize>,
    /// Times the server is killed and started again in each act.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) restarts: usize,
    /// Seconds after which an act ends although not all agents are in sync.
    #[arg(long, default_value_t = 45, value_name = "SECONDS")]
    deadline: u64,
    /// Only these acts.
    #[arg(long, value_delimiter = ',', value_name = "ACT,…")]
    acts: Vec<Act>,
    /// Only these servers. Left out: cache-server, and kube-apiserver if it was built.
    #[arg(long, value_delimiter = ',', value_name = "SERVER,…")]
    servers: Vec<Side>,
    /// Folder with a stock kube-apiserver and its etcd, which benches/kube-apiserver/prepare builds.
    #[arg(long, default_value = STOCK_FOLDER, value_name = "FOLDER")]
    pub(crate) kube_apiserver: PathBuf,
    /// Storage from which kube-apiserver answers lists: its cache, or etcd as before version 1.31.
    #[arg(long, value_enum, default_value_t = StockReads::Cache)]
    pub(crate) stock_reads: StockReads,
    /// File for the picture.
    #[arg(long, default_value = "incident-replay.svg", value_name = "FILE")]
    svg: PathBuf,
    /// Folder `docs` of the repository, in which the picture and the table are replaced. Left out: neither is.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
}

/// Sizes of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) pods: u32,
    pub(crate) nodes: u32,
    pub(crate) lists: usize,
    /// Time in which the bystander is measured before the agents start.
    pub(crate) quiet: Duration,
    /// Longest time of an act after that.
    pub(crate) deadline: Duration,
}

/// An act of the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Act {
    /// The incident: whole lists, each built in memory, without flow control.
    Lists,
    /// The same lists behind the two manifests that ended the incident.
    Queued,
    /// Streams through the SDK instead of lists, without flow control.
    Streams,
}

/// A server under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// This project's server.
    CacheServer,
    /// A stock kube-apiserver.
    KubeApiserver,
}

/// Storage from which kube-apiserver answers lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StockReads {
    /// Lists without a resourceVersion, which it answers from its cache.
    Cache,
    /// Lists of an exact resourceVersion, which it reads from etcd with this setting.
    Etcd,
}

impl Options {
    /// The sizes of this run.
    pub(crate) fn sizes(&self) -> Sizes {
        let (pods, nodes, lists) = if self.quick { (400, 8, 6) } else { (7130, 80, 60) };
        Sizes {
            pods: self.pods.unwrap_or(pods),
            nodes: self.nodes.unwrap_or(nodes).max(1),
            lists: self.lists.unwrap_or(lists).max(1),
            quiet: Duration::from_millis(if self.quick { 500 } else { 2000 }),
            deadline: Duration::from_secs(self.deadline),
        }
    }

    /// File for the picture.
    pub(crate) fn picture(&self) -> PathBuf {
        self.write.as_ref().map_or_else(|| self.svg.clone(), |docs| docs.join("incident-replay.svg"))
    }

    /// Page whose table is replaced.
    pub(crate) fn page(&self) -> Option<PathBuf> {
        self.write.as_ref().map(|docs| docs.join("benchmarks/incident-replay.md"))
    }

    /// The acts, in order.
    pub(crate) fn acts(&self) -> Vec<Act> {
        if self.acts.is_empty() { Act::value_variants().to_vec() } else { self.acts.clone() }
    }

    /// The servers, in order.
    pub(crate) fn sides(&self) -> Vec<Side> {
        if !self.servers.is_empty() {
            return self.servers.clone();
        }
        let is_built = ["etcd", "kube-apiserver"].iter().all(|name| self.kube_apiserver.join(name).is_file());
        if is_built && !self.quick { vec![Side::CacheServer, Side::KubeApiserver] } else { vec![Side::CacheServer] }
    }
}

impl Sizes {
    /// Number of copies that all agents keep together.
    pub(crate) const fn copies(&self) -> usize {
        self.nodes as usize * self.lists
    }

    /// The objects of the server.
    pub(crate) fn populate(&self) -> PopulateSpec {
        PopulateSpec { pods: self.pods, nodes: self.nodes, namespaces: NAMESPACES, seed: 1 }
    }
}

impl Act {
    /// Title in the view and the picture.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Lists => "1. buffered LISTs, no limits",
            Self::Queued => "2. buffered LISTs, two manifests queue them",
            Self::Streams => "3. watch-lists through the SDK",
        }
    }

    /// Name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lists => "1 LISTs",
            Self::Queued => "2 queued",
            Self::Streams => "3 SDK",
        }
    }

    /// Value for the server's `--list-encoding`.
    pub(crate) const fn encoding(self) -> &'static str {
        match self {
            Self::Lists | Self::Queued => "buffered",
            Self::Streams => "streaming",
        }
    }
}

impl Side {
    /// Name in the view, the table and the picture.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CacheServer => "cache-server",
            Self::KubeApiserver => "kube-apiserver",
        }
    }
}

/// The pods of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePods {
    pub(crate) node: String,
    pub(crate) count: usize,
    /// Path of the first of them: the pod that is changed after a restart.
    pub(crate) marked: String,
}

/// The nodes that have pods, with the pods that the server must show for each.
pub(crate) fn nodes(spec: &PopulateSpec) -> Result<Vec<NodePods>, Failure> {
    let mut found = BTreeMap::<String, NodePods>::new();
    for object in populate::objects(spec).filter(|object| object.plural == "pods") {
        let pod: serde_json::Value = serde_json::from_slice(&object.json)?;
        let text = |pointer: &str| pod.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
        let node = text("/spec/nodeName").to_owned();
        let place = found.entry(node.clone()).or_default();
        if place.count == 0 {
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            place.marked = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            place.node = node;
        }
        place.count += 1;
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Options {
        Flags::parse_from(["replay"].iter().chain(arguments)).options
    }

    #[test]
    fn the_incident_is_the_default() {
        let sizes = parse(&[]).sizes();
        assert_eq!((sizes.pods, sizes.nodes, sizes.lists, sizes.copies()), (7130, 80, 60, 4800));
        assert_eq!(parse(&[]).acts(), [Act::Lists, Act::Queued, Act::Streams]);
    }

    #[test]
    fn a_quick_run_is_small_and_may_be_resized() {
        let quick = parse(&["--quick", "--pods=50", "--acts=streams"]);
        assert_eq!((quick.sizes().pods, quick.sizes().nodes, quick.acts()), (50, 8, vec![Act::Streams]));
        assert_eq!(quick.sides(), [Side::CacheServer]);
    }

    #[test]
    fn every_pod_belongs_to_a_node() {
        let found = nodes(&parse(&["--quick"]).sizes().populate()).unwrap();
        assert_eq!((found.len(), found.iter().map(|node| node.count).sum::<usize>()), (8, 400));
        assert!(
            found.iter().all(|node| node.marked.starts_with("/api/v1/namespaces/") && node.marked.contains("/pods/"))
        );
    }
}
