//! Settings of a server: plain data with defaults. The command line fills it in `cli.rs`; nothing else reads arguments
//! or the environment.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use crate::{limits, populate};

/// What a server is told. Each field names its unit and default.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Default 127.0.0.1:8001; port 0 picks one. Only loopback while there is no authentication.
    pub listen: SocketAddr,
    /// How LIST bodies are made. Default streaming.
    pub list_encoding: ListEncoding,
    /// Revision the embedded store starts at; `None` takes one from the clock and from chance, so that positions of an
    /// earlier run are refused. For tests.
    pub first_revision: Option<u64>,
    /// Bounds of each resource type's cache.
    pub limits: watch_cache::Limits,
    /// Pause between bookmarks on a quiet watch. Default 60 s. Shorter costs one line per watch each time.
    pub bookmark_interval: Duration,
    /// Bytes of one connection that the kernel holds and has not sent, above which its socket counts as full. Default
    /// [`limits::SOCKET_UNSENT_BYTES`]. More is memory for each client that reads slowly. Linux alone has it.
    pub unsent_bytes: u32,
    /// How long a full socket may take nothing before the server resets it. Default [`limits::SOCKET_STUCK`]. Longer
    /// keeps what a client that stopped reading pins.
    pub socket_stuck: Duration,
    /// Bytes of one stored object, however it was sent or patched. Default [`limits::OBJECT_BYTES_MAX`], as etcd's limit of
    /// a request; larger ones are answered 413.
    pub object_bytes_max: usize,
    /// How long open connections may take to end at shutdown. Default 10 s.
    pub grace: Duration,
    /// Connections open at once. Default [`limits::CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Files and folders of manifests whose objects are created at start, in order.
    pub load: Vec<PathBuf>,
    /// Synthetic objects created at start.
    pub populate: Option<populate::Spec>,
    /// What TLS is spoken with. Default `None`: HTTP in the clear.
    pub tls: Option<TlsFiles>,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's certificate, then those that sign it.
    pub cert: PathBuf,
    /// PEM: the key of the first certificate, as PKCS #8, SEC 1 or PKCS #1.
    pub key: PathBuf,
}

/// How LIST bodies are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ListEncoding {
    /// Item by item from a snapshot: memory does not grow with the list.
    #[default]
    Streaming,
    /// The whole body in memory first: the old way, for comparison.
    Buffered,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)),
            list_encoding: ListEncoding::Streaming,
            first_revision: None,
            limits: watch_cache::Limits::default(),
            bookmark_interval: Duration::from_secs(60),
            unsent_bytes: limits::SOCKET_UNSENT_BYTES,
            socket_stuck: limits::SOCKET_STUCK,
            object_bytes_max: limits::OBJECT_BYTES_MAX,
            grace: limits::GRACE,
            connections_max: limits::CONNECTIONS_MAX,
            load: Vec::new(),
            populate: None,
            tls: None,
        }
    }
}
