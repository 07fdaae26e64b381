//! Settings of a server: plain data with defaults. The command line fills it in `cli.rs`; no other code reads arguments
//! or the environment.

mod audit;
mod authentication;
mod authorization;
mod etcd;
mod flow;
mod spec;
mod upstream;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use api_rules::service_range::ServiceRange;

use crate::limits;

pub use audit::AuditConfig;
pub use authentication::{AuthenticationConfig, KeySource, OidcConfig, ServiceAccountsConfig};
pub use authorization::{AuthorizationConfig, AuthorizationConfigError, AuthorizationMode};
pub use etcd::EtcdConfig;
pub use flow::{FlowSettings, FlowSource};
pub use spec::{PopulateSpec, PopulateSpecError};
pub use upstream::UpstreamConfig;

/// The settings of a server. Each field names its unit and default.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on. Default 127.0.0.1:8001; port 0 picks a free one. Other addresses than loopback
    /// need TLS and authentication.
    pub listen: SocketAddr,
    /// Encoding of LIST bodies. Default streaming.
    pub list_encoding: ListEncoding,
    /// First revision of the embedded store; `None` derives it from the clock and random bits, so that positions of an
    /// earlier run are refused. For tests.
    pub first_revision: Option<u64>,
    /// Bounds of each resource type's cache.
    pub limits: watch_cache::Limits,
    /// Pause between bookmarks on a quiet watch. Default 60 s. A shorter pause costs one more line per watch each
    /// time.
    pub bookmark_interval: Duration,
    /// Unsent bytes of one connection in the kernel above which its socket counts as full. Default
    /// [`limits::SOCKET_UNSENT_BYTES`]. More costs memory for each client that reads slowly. Linux only.
    pub unsent_bytes: u32,
    /// Time for which a full socket may make no progress before the server resets it. Default
    /// [`limits::SOCKET_STUCK`]. A longer time keeps the memory pinned by stopped clients longer.
    pub socket_stuck: Duration,
    /// Bytes of one stored object, for every kind of write. Default [`limits::OBJECT_BYTES_MAX`], as in etcd's limit
    /// of a request; larger ones get 413.
    pub object_bytes_max: usize,
    /// Time that open connections may take to finish at shutdown. Default 10 s.
    pub grace: Duration,
    /// Path of the Unix socket by which the next process takes over from this one, and this one from the process before.
    /// Default none.
    pub upgrade_socket: Option<PathBuf>,
    /// Connections open at once. Default [`limits::CONNECTIONS_MAX`]; the program has fewer where its limit of open files allows
    /// fewer.
    pub connections_max: usize,
    /// Watches that all users but masters may have open. Default [`limits::WATCHES_MAX`].
    pub watches_max: usize,
    /// Files and folders of manifests whose objects are created at start, in order.
    pub load: Vec<PathBuf>,
    /// True if the server acts as a new cluster: it starts with namespaces, priority classes and the Service `kubernetes`,
    /// serves converted types, and enforces the schemas of custom resources in a build with the feature `assets`. Default
    /// false.
    pub acts_as_cluster: bool,
    /// Admission plugins where the server acts as a cluster. Default: those that need no controllers.
    pub admission: AdmissionPlugins,
    /// Addresses of Services where the server acts as a cluster. Default 10.0.0.0/24.
    pub service_range: ServiceRange,
    /// Address of the Endpoints of the Service `kubernetes` where the server acts as a cluster: one at which programs reach
    /// it. Loopback addresses cannot be. Default none: the Service has no Endpoints.
    pub advertise_address: Option<IpAddr>,
    /// True if requests may start forks: servers in this process that begin with the objects of this one. Needs a loopback
    /// address, and objects in memory. Default false.
    pub forks: bool,
    /// Synthetic objects created at start.
    pub populate: Option<PopulateSpec>,
    /// Folder in which the objects are stored. Default `None`: they are in memory, and lost when the process ends.
    pub data_dir: Option<PathBuf>,
    /// etcd in which the objects are stored. Default `None`.
    pub etcd: Option<EtcdConfig>,
    /// API server that answers the requests. Default `None`: this server keeps the objects itself.
    pub upstream: Option<UpstreamConfig>,
    /// Which requests wait. Default: as in every cluster; without authentication, all callers are exempt.
    pub flow: FlowSettings,
    /// Certificate files for TLS. Default `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Ways in which callers prove their identity. Default none.
    pub authentication: AuthenticationConfig,
    /// Authorizers of requests. Default: none, and every caller may do everything.
    pub authorization: AuthorizationConfig,
    /// Audit log. Default `None`: requests are not recorded.
    pub audit: Option<AuditConfig>,
    /// Collector of OpenTelemetry that gets spans of requests. Default `None`: there are none.
    pub traces: Option<TraceConfig>,
}

/// Spans of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// URL of the collector; the exporter adds `/v1/traces`. `None`: the exporter reads
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, then `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<String>,
    /// Traces that begin here, among a million requests whose clients have none. Others are as sampled as their parent.
    pub sampled_per_million: u32,
}

/// Admission plugins of kube-apiserver that may be off. They are true if they decide about writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionPlugins {
    /// Pods and claims fit the LimitRanges of their namespace, and containers get defaults from them.
    pub limit_ranger: bool,
    /// Objects fit the ResourceQuotas of their namespace, which a controller has measured.
    pub resource_quota: bool,
    /// A pod has a service account that exists, and its token. Needs a controller that makes accounts.
    pub service_account: bool,
}

impl AdmissionPlugins {
    /// All of them, as in kube-apiserver.
    pub const ALL: Self = Self { limit_ranger: true, resource_quota: true, service_account: true };

    /// All but those with these names. Names of others have no effect.
    #[must_use]
    pub fn without(names: &[&str]) -> Self {
        Self {
            limit_ranger: !names.contains(&"LimitRanger"),
            resource_quota: !names.contains(&"ResourceQuota"),
            service_account: !names.contains(&"ServiceAccount"),
        }
    }
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's certificate, then its issuers.
    pub cert: PathBuf,
    /// PEM: the key of the first certificate, as PKCS #8, SEC 1 or PKCS #1.
    pub key: PathBuf,
}

/// Encoding of LIST bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum ListEncoding {
    /// Item by item from a snapshot: memory does not grow with the list.
    #[default]
    Streaming,
    /// The whole body in memory first: the old way, for comparison.
    Buffered,
}

impl Config {
    /// True if the objects outlive the process.
    #[must_use]
    pub const fn objects_last(&self) -> bool {
        self.data_dir.is_some() || self.etcd.is_some()
    }
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
            upgrade_socket: None,
            connections_max: limits::CONNECTIONS_MAX,
            watches_max: limits::WATCHES_MAX,
            load: Vec::new(),
            acts_as_cluster: false,
            admission: AdmissionPlugins { service_account: false, ..AdmissionPlugins::ALL },
            service_range: ServiceRange::DEFAULT,
            advertise_address: None,
            forks: false,
            populate: None,
            data_dir: None,
            etcd: None,
            upstream: None,
            flow: FlowSettings::default(),
            tls: None,
            authentication: AuthenticationConfig::default(),
            authorization: AuthorizationConfig::default(),
            audit: None,
            traces: None,
        }
    }
}
