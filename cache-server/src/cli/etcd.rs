//! Flags of `cache-server serve` and `cache-server storage import` for objects in etcd.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{COMMON, STORAGE, units};
use crate::config::EtcdConfig;

/// Flags that store the objects in etcd.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objects in etcd")]
pub(super) struct EtcdFlags {
    /// Store the objects in the etcd at these addresses, the members of one cluster, laid out as Kubernetes does it.
    /// Servers of one etcd share resourceVersions, so that clients move between them. Left out: the objects are in memory.
    #[arg(
        long, env = "CACHE_SERVER_ETCD_ENDPOINTS", value_name = "URL,…", value_delimiter = ',', group = STORAGE,
        help_heading = COMMON, display_order = 3
    )]
    etcd_endpoints: Vec<String>,

    /// Prefix of the keys in etcd.
    #[arg(long, env = "CACHE_SERVER_ETCD_PREFIX", value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,

    /// Write to objects of another program, such as a kube-apiserver on the same etcd. Its controllers remain responsible
    /// for namespaces and definitions. Left out: such objects can only be read.
    #[arg(long, env = "CACHE_SERVER_ETCD_ALLOW_WRITES", requires = "etcd_endpoints")]
    etcd_allow_writes: bool,

    /// PEM file with the certificate authorities of etcd. Left out: those of the system.
    #[arg(long, env = "CACHE_SERVER_ETCD_CAFILE", value_name = "FILE", requires = "etcd_endpoints")]
    etcd_cafile: Option<PathBuf>,

    /// PEM file with the certificate that this server shows to etcd. Left out: none.
    #[arg(long, env = "CACHE_SERVER_ETCD_CERTFILE", value_name = "FILE", requires_all = ["etcd_endpoints", "etcd_keyfile"])]
    etcd_certfile: Option<PathBuf>,

    /// PEM file with the key of that certificate. Left out: none.
    #[arg(long, env = "CACHE_SERVER_ETCD_KEYFILE", value_name = "FILE", requires_all = ["etcd_endpoints", "etcd_certfile"])]
    etcd_keyfile: Option<PathBuf>,

    /// User of etcd. Left out: none.
    #[arg(long, env = "CACHE_SERVER_ETCD_USER", value_name = "NAME", requires_all = ["etcd_endpoints", "etcd_password_file"])]
    etcd_user: Option<String>,

    /// File with the password of the user. Left out: none.
    #[arg(long, env = "CACHE_SERVER_ETCD_PASSWORD_FILE", value_name = "FILE", requires_all = ["etcd_endpoints", "etcd_user"])]
    etcd_password_file: Option<PathBuf>,

    /// Age at which old revisions are dropped from etcd: with ms, s, m, h. 0s leaves that to others.
    #[arg(long, env = "CACHE_SERVER_ETCD_COMPACTION_INTERVAL", value_name = "TIME", default_value = "5m", value_parser = units::duration)]
    etcd_compaction_interval: Duration,
}

impl EtcdFlags {
    /// Returns the settings; `None` if the objects are not in etcd.
    pub(super) fn config(&self) -> Option<EtcdConfig> {
        (!self.etcd_endpoints.is_empty()).then(|| EtcdConfig {
            endpoints: self.etcd_endpoints.clone(),
            prefix: self.etcd_prefix.clone(),
            allow_writes: self.etcd_allow_writes,
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
            compaction_interval: self.etcd_compaction_interval,
        })
    }
}
