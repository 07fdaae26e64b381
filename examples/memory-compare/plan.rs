//! Settings of a run: modes, client counts, and how many clients fit into the machine's memory.

use std::fmt;

use clap::{Args, ValueEnum};
use measured::memory;
use serde::{Deserialize, Serialize};

/// Settings from the command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Clients that sync at once, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64", value_name = "N,…")]
    pub(crate) clients: Vec<usize>,
    /// Pods on the server.
    #[arg(long, default_value_t = 7130)]
    pub(crate) pods: usize,
    /// Nodes that the pods are spread over.
    #[arg(long, default_value_t = 80)]
    pub(crate) nodes: usize,
    /// Number of clients that read slowly.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_readers: usize,
    /// Rate of a slow client, in MiB per second.
    #[arg(long, default_value_t = 8)]
    pub(crate) slow_rate_mib: usize,
    /// Only these modes.
    #[arg(long, value_delimiter = ',', value_name = "MODE,…")]
    pub(crate) modes: Vec<Mode>,
    /// File for the chart.
    #[arg(long, default_value = "memory-compare.svg", value_name = "FILE")]
    pub(crate) svg: std::path::PathBuf,
}

impl Options {
    /// The modes to run, in the order of the table.
    pub(crate) fn modes(&self) -> Vec<Mode> {
        if self.modes.is_empty() { Mode::value_variants().to_vec() } else { self.modes.clone() }
    }
}

/// Mode of fetching the initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[expect(clippy::enum_variant_names, reason = "these are their names")]
pub(crate) enum Mode {
    /// One LIST; the server builds the body in memory first, as servers did before streaming encoders.
    BufferedList,
    /// One LIST; the server writes item by item.
    StreamedList,
    /// A LIST in pages of 500.
    PagedList,
    /// A watch that starts with the initial state.
    WatchList,
}

impl Mode {
    /// Value for the server's `--list-encoding`.
    pub(crate) const fn encoding(self) -> &'static str {
        match self {
            Self::BufferedList => "buffered",
            Self::StreamedList | Self::PagedList | Self::WatchList => "streaming",
        }
    }

    /// The measured client in the server table.
    pub(crate) const fn client(self) -> Kind {
        match self {
            Self::BufferedList => Kind::KubeList,
            Self::StreamedList => Kind::InformerUnpaged,
            Self::PagedList => Kind::InformerPaged,
            Self::WatchList => Kind::InformerStream,
        }
    }

    /// Estimated bytes that the server needs for `clients` clients, given the size of one full response. In buffered
    /// mode: the body, its growth while it is built, and the objects decoded for it.
    pub(crate) const fn estimate(self, clients: usize, answer_bytes: usize) -> usize {
        match self {
            Self::BufferedList => clients * answer_bytes * 2,
            Self::StreamedList | Self::PagedList | Self::WatchList => clients * (1 << 20),
        }
    }

    /// Reduces `clients` until half of the available memory stays free; prints a note if it does.
    pub(crate) fn fitting(self, clients: usize, answer_bytes: usize) -> usize {
        let available = memory::available().unwrap_or(usize::MAX);
        let mut fitting = clients;
        while fitting > 1 && self.estimate(fitting, answer_bytes).saturating_mul(2) > available {
            fitting /= 2;
        }
        if fitting < clients {
            eprintln!("{self}: {clients} clients would need too much memory here; running {fitting}");
        }
        fitting
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferedList => "buffered LIST",
            Self::StreamedList => "streamed LIST",
            Self::PagedList => "paged LIST",
            Self::WatchList => "watch-list",
        })
    }
}

/// The client in the measured process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `kube::Api::list` into a `Vec<Pod>`.
    KubeList,
    /// kube's reflector in its default mode: pages, then watch.
    KubeReflectorPaged,
    /// kube's reflector over watch-list.
    KubeReflectorStream,
    /// This project's informer, one LIST.
    InformerUnpaged,
    /// This project's informer, pages.
    InformerPaged,
    /// This project's informer, watch-list.
    InformerStream,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KubeList => "kube Api::list",
            Self::KubeReflectorPaged => "kube reflector, pages",
            Self::KubeReflectorStream => "kube reflector, watch-list",
            Self::InformerUnpaged => "informer, one LIST",
            Self::InformerPaged => "informer, pages",
            Self::InformerStream => "informer, watch-list",
        })
    }
}
