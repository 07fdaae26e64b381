//! Flags of `cache-server serve` for objects of its own.

use std::path::PathBuf;

use clap::Args;

use super::units;
use crate::config::Config;
#[cfg(feature = "workload")]
use crate::config::PopulateSpec;

/// Heading of the flags that few people need.
const OWN_OBJECTS: &str = "Objects in this server";

/// Flags about the objects of a server without another one behind it.
#[derive(Debug, Args)]
pub(super) struct ObjectFlags {
    /// Folder in which the objects are stored, so that they outlive the process and clients resume. Created if it is
    /// missing. Only one server may use it. Left out: the objects are in memory only.
    #[cfg(feature = "durable")]
    #[arg(long, env = "CACHE_SERVER_DATA_DIR", value_name = "FOLDER", group = super::STORAGE, display_order = 2)]
    data_dir: Option<PathBuf>,

    /// Manifests (YAML or JSON, a file or a folder) whose objects are created at start, definitions and namespaces
    /// first; with --data-dir, those that exist already stay as they are. May be repeated. Left out: none.
    #[arg(long, env = "CACHE_SERVER_LOAD", value_name = "PATH", display_order = 5)]
    load: Vec<PathBuf>,

    /// Synthetic objects created at start; parts left out default to 7130 pods, 80 nodes, 40 namespaces, seed 1. With
    /// --data-dir or etcd only once: not if the namespace default exists. Left out: none.
    #[cfg(feature = "workload")]
    #[arg(long, env = "CACHE_SERVER_POPULATE", value_name = "pods=N,nodes=N,namespaces=N,seed=N", display_order = 6)]
    populate: Option<PopulateSpec>,

    /// Revision to start at, for tests: positions that an earlier run assigned count as this run's. Left out: a number
    /// from the clock and from chance, so that positions of an earlier run are refused.
    #[arg(
        long, env = "CACHE_SERVER_FIRST_REVISION", value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..1 << 62), help_heading = OWN_OBJECTS
    )]
    #[cfg_attr(feature = "etcd", arg(conflicts_with = "etcd_endpoints"))]
    first_revision: Option<u64>,

    /// Let POST /snapshots start forks: servers below /snapshots/NAME that begin with the objects of this one, for tests.
    /// Needs a loopback address and objects in memory. Left out: such requests get 404.
    #[arg(long, env = "CACHE_SERVER_FORKS", help_heading = OWN_OBJECTS)]
    forks: bool,

    /// Largest object that is stored, as JSON, however it was sent or patched: bytes, or with KiB, MiB, GiB. Larger
    /// ones are answered 413. A request body has 3 MiB at most.
    #[arg(
        long, env = "CACHE_SERVER_OBJECT_BYTES_MAX", value_name = "SIZE", default_value = "1536KiB",
        value_parser = units::positive_size, help_heading = OWN_OBJECTS
    )]
    object_bytes_max: usize,
}

impl ObjectFlags {
    /// Adds the settings.
    pub(super) fn fill(self, config: &mut Config) {
        config.first_revision = self.first_revision;
        config.forks = self.forks;
        config.object_bytes_max = self.object_bytes_max;
        config.load = self.load;
        #[cfg(feature = "durable")]
        (config.data_dir = self.data_dir);
        #[cfg(feature = "workload")]
        (config.populate = self.populate);
    }
}
