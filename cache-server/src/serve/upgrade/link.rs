//! The link between two processes of an upgrade, and the messages on it.

use std::{
    fs, io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::Path,
    time::Duration,
};

use cache_server_wire::descriptors;
use serde::{Deserialize, Serialize};

use crate::{
    config::Config,
    limits::{UPGRADE_WAIT, UPGRADE_WARM_WAIT},
};

/// Reason why a process did not take over, in one line.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum UpgradeError {
    /// The other process cannot be reached, has ended, or does not answer.
    #[error("{0}")]
    Link(#[from] io::Error),
    /// The other process refuses.
    #[error("it answers: {0}")]
    Refused(String),
    /// This process refuses.
    #[error("{0}")]
    Unfit(&'static str),
    /// The other process is not ours.
    #[error("it belongs to the user {0}")]
    User(u32),
    /// The other process sent something else than it should: it is of another version.
    #[error("it is of another version")]
    Version,
    /// The listening socket has another address than the settings.
    #[error("it listens on {found}, and --listen is {expected}")]
    Address {
        /// Address of the running server.
        found: String,
        /// Address of the settings.
        expected: String,
    },
    /// The folder cannot be used.
    #[error("cannot use the data folder: {0}")]
    Folder(String),
    /// The caches that were handed over could not be used in time.
    #[error("this process could not use the cache of {0} in time")]
    NotReady(String),
}

impl UpgradeError {
    /// True if the other process has ended. A process that refuses sends a reason first.
    pub(super) fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        matches!(self, Self::Link(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof))
    }
}

/// Time that a server waits for the first message of a new process. Others wait meanwhile.
pub(super) const HELLO_WAIT: Duration = Duration::from_secs(3);

/// Version of the messages.
pub(super) const FORMAT: u32 = 3;

/// The part of the first message that every version has.
#[derive(Deserialize)]
struct MessageFormat {
    format: u32,
}

/// The messages, each from the new process or from the old one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "camelCase")]
pub(super) enum UpgradeMessage {
    /// New: is about to take over.
    Hello { format: u32, storage: StoragePlace },
    /// Old: goes on alone.
    Refused { reason: String },
    /// Old: the listening socket of the address.
    Listener,
    /// Old: the Unix socket for requests, by the number of its file.
    Requests { inode: u64 },
    /// Old: the Unix socket for upgrades.
    Upgrades { inode: u64 },
    /// Old: the copy of the file of its folder.
    Copy,
    /// Old: the state of a type's cache, as a file unless it is in the copy. True if that one is up to date.
    State { id: String, is_current: bool },
    /// Old: nothing else follows.
    Complete,
    /// New: can serve, or needs the folder for that.
    Ready,
    /// Old: has left the folder, and stops once the new one serves.
    Go,
    /// New: serves.
    Serves,
}

/// Kind of a server's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StorageKind {
    Memory,
    Folder,
    Etcd,
    Upstream,
}

impl StorageKind {
    const fn of(config: &Config) -> Self {
        if config.upstream.is_some() {
            Self::Upstream
        } else if config.etcd.is_some() {
            Self::Etcd
        } else if config.data_dir.is_some() {
            Self::Folder
        } else {
            Self::Memory
        }
    }

    /// True if two processes may serve its objects at the same time.
    pub(super) const fn is_shared(self) -> bool {
        matches!(self, Self::Etcd | Self::Upstream)
    }
}

/// Place of a server's objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoragePlace {
    pub(super) kind: StorageKind,
    /// Equal for the same objects, as far as that is known without asking their server.
    name: String,
}

impl StoragePlace {
    pub(super) fn of(config: &Config) -> Self {
        let name = if let Some(upstream) = &config.upstream {
            format!("{:?}", (&upstream.url, &upstream.kubeconfig, &upstream.context))
        } else if let Some(etcd) = &config.etcd {
            let mut endpoints: Vec<_> = etcd.endpoints.iter().collect();
            endpoints.sort();
            format!("{:?}", (&etcd.prefix, endpoints))
        } else {
            config.data_dir.as_deref().map(folder_name).unwrap_or_default()
        };
        Self { kind: StorageKind::of(config), name }
    }
}

/// Names a folder, whatever path leads to it.
fn folder_name(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| format!("{path:?}"), |folder| format!("{}:{}", folder.dev(), folder.ino()))
}

/// The connection to the process before.
#[derive(Debug)]
pub(super) struct UpgradeLink(UnixStream);

impl UpgradeLink {
    /// Blocks for at most `wait` in each later call.
    pub(super) fn new(stream: UnixStream, wait: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(UPGRADE_WAIT))?;
        Ok(Self(stream))
    }

    pub(super) fn send(&self, message: &UpgradeMessage, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        descriptors::send(&self.0, &serde_json::to_vec(message)?, file)
    }

    fn receive_text(&self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let late = |error| if is_late(&error) { io::ErrorKind::TimedOut.into() } else { error };
        descriptors::receive(&self.0).map_err(late)
    }

    pub(super) fn receive(&self) -> Result<(UpgradeMessage, Option<OwnedFd>), UpgradeError> {
        let (message, file) = self.receive_text()?;
        match serde_json::from_slice(&message) {
            Ok(UpgradeMessage::Refused { reason }) => Err(UpgradeError::Refused(reason)),
            Ok(message) => Ok((message, file)),
            Err(_) => Err(UpgradeError::Version),
        }
    }

    /// Receives the first message of a new process: the place of its objects.
    pub(super) fn receive_hello(&self) -> Result<StoragePlace, UpgradeError> {
        self.0.set_read_timeout(Some(HELLO_WAIT))?;
        let message = self.receive_text()?.0;
        self.0.set_read_timeout(Some(UPGRADE_WARM_WAIT + UPGRADE_WAIT))?;
        let of_version = serde_json::from_slice::<MessageFormat>(&message).is_ok_and(|found| found.format == FORMAT);
        match serde_json::from_slice(&message) {
            Ok(UpgradeMessage::Hello { storage, .. }) if of_version => Ok(storage),
            _ => Err(UpgradeError::Unfit("the running server is of another version: restart it")),
        }
    }

    pub(super) fn expect(&self, expected: &UpgradeMessage) -> Result<(), UpgradeError> {
        let found = self.receive()?.0;
        if found == *expected { Ok(()) } else { Err(UpgradeError::Version) }
    }

    /// Sends the new process the reason why this process refuses.
    pub(super) fn refuse(&self, reason: String) {
        // It may have ended.
        let _ = self.send(&UpgradeMessage::Refused { reason }, None);
    }

    /// True if the other process has ended.
    pub(super) fn is_closed(&self) -> bool {
        descriptors::is_closed(&self.0)
    }
}
