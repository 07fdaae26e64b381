//! Settings of the etcd in which the objects are stored.

use std::{path::PathBuf, time::Duration};

/// Addresses, credentials and use of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Addresses of the members, such as `https://10.0.0.1:2379`. At least one.
    pub endpoints: Vec<String>,
    /// Prefix of all keys. Default `/registry`, as in kube-apiserver.
    pub prefix: String,
    /// True if objects of another program, such as a kube-apiserver, may be written. Default false.
    pub allow_writes: bool,
    /// PEM file with the certificate authorities of etcd. Default: those of the operating system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with this server's certificate for etcd. Default none.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    pub key_file: Option<PathBuf>,
    /// User of etcd. Default none.
    pub user: Option<String>,
    /// File with the user's password; white space at its end does not count.
    pub password_file: Option<PathBuf>,
    /// Age at which etcd's history is dropped. Default 5 min, as in kube-apiserver; zero: this server does not do it.
    pub compaction_interval: Duration,
}

impl Default for EtcdConfig {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "/registry".to_owned(),
            allow_writes: false,
            ca_file: None,
            cert_file: None,
            key_file: None,
            user: None,
            password_file: None,
            compaction_interval: Duration::from_mins(5),
        }
    }
}
