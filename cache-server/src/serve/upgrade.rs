//! The hand-over from a running server to the process that replaces it, by a Unix socket that both name.
//!
//! The new process gets the listening socket, and the states of all caches where others may fill them at the same time.
//! It proves these, serves, and only then the old one lets its watches end.
//!
//! INVARIANT: the old process serves until the new one does, whatever fails. With `--data-dir` it ends before the new
//! one opens the folder, as at a restart: their clients wait in the listen queue meanwhile. INVARIANT: only a process
//! of the same user takes over.

use std::{
    io, mem,
    net::TcpListener,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use cache_server_wire::{descriptors, listeners::UnixSocketFile};

use crate::{
    app::App,
    cacher::HandedStates,
    config::Config,
    limits::{ENDS_SPREAD, START_RETRY_PAUSE, UPGRADE_CHECK_EVERY, UPGRADE_WAIT, UPGRADE_WARM_WAIT},
};

/// Reason why a process did not take over, in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpgradeError {
    /// The other process cannot be reached, has ended, or does not answer.
    #[error("{0}")]
    Link(#[from] io::Error),
    /// The other process refuses.
    #[error("it answers: {0}")]
    Refused(String),
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
    /// The caches that were handed over could not be used in time.
    #[error("this process could not use the cache of {0} in time")]
    NotReady(String),
}

/// Version of the messages.
const FORMAT: u32 = 1;

/// The messages, each from the new process or from the old one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "camelCase")]
enum UpgradeMessage {
    /// New: is about to take over.
    Hello { format: u32, storage: StorageKind },
    /// Old: goes on alone.
    Refused { reason: String },
    /// Old: the listening socket.
    Listener,
    /// Old: the state of a type's cache, as a file.
    State { id: String },
    /// Old: nothing else follows.
    Complete,
    /// New: can serve, or needs the folder for that.
    Ready,
    /// Old: stops once the new one serves, or at once if that one needs the folder.
    Go,
    /// New: serves.
    Serves,
}

/// Place of a server's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StorageKind {
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
    const fn is_shared(self) -> bool {
        matches!(self, Self::Etcd | Self::Upstream)
    }
}

/// Kind of a server's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Nothing replaces it now: watches end at once.
    Stopped,
    /// Another process waits for its folder: watches end at once.
    Awaited,
    /// Another process serves its clients: watches end one after the other.
    Replaced,
}

/// The connection to the process before.
#[derive(Debug)]
struct UpgradeLink(UnixStream);

impl UpgradeLink {
    /// Blocks for at most `wait` in each later call.
    fn new(stream: UnixStream, wait: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(UPGRADE_WAIT))?;
        Ok(Self(stream))
    }

    fn send(&self, message: &UpgradeMessage, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        descriptors::send(&self.0, &serde_json::to_vec(message)?, file)
    }

    fn receive(&self) -> Result<(UpgradeMessage, Option<OwnedFd>), UpgradeError> {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let late = |error| if is_late(&error) { io::ErrorKind::TimedOut.into() } else { error };
        let (message, file) = descriptors::receive(&self.0).map_err(late)?;
        let message = serde_json::from_slice(&message).map_err(|_| UpgradeError::Version)?;
        Ok((message, file))
    }

    fn expect(&self, expected: &UpgradeMessage) -> Result<(), UpgradeError> {
        let found = self.receive()?.0;
        if found == *expected { Ok(()) } else { Err(UpgradeError::Version) }
    }
}

/// The parts that a new process got from the one before.
#[derive(Debug)]
pub(super) struct Predecessor {
    link: Arc<UpgradeLink>,
    storage: StorageKind,
    /// `None` once it is used.
    listener: Option<TcpListener>,
    states: HandedStates,
}

impl Predecessor {
    /// Asks the server that listens at the path of the settings for its sockets and caches; `None` if there is none.
    pub(super) async fn begin(config: &Config) -> Result<Option<Self>, UpgradeError> {
        let Some(path) = config.upgrade_socket.clone() else { return Ok(None) };
        let (storage, listen) = (StorageKind::of(config), config.listen);
        let begun = spawn_blocking(move || Self::begin_blocking(&path, storage));
        let begun = begun.await.expect("it does not panic")?;
        let Some(listener) = begun.as_ref().and_then(|begun| begun.listener.as_ref()) else { return Ok(begun) };
        let found = listener.local_addr()?;
        // A port that was chosen by the system may have been chosen for the process before.
        if found.ip() == listen.ip() && (found.port() == listen.port() || listen.port() == 0) {
            return Ok(begun);
        }
        Err(UpgradeError::Address { found: found.to_string(), expected: listen.to_string() })
    }

    fn begin_blocking(path: &Path, storage: StorageKind) -> Result<Option<Self>, UpgradeError> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let link = UpgradeLink::new(stream, UPGRADE_WAIT)?;
        link.send(&UpgradeMessage::Hello { format: FORMAT, storage }, None)?;
        let (mut listener, mut states) = (None, Vec::new());
        loop {
            match link.receive()? {
                (UpgradeMessage::Listener, Some(file)) => listener = Some(TcpListener::from(file)),
                (UpgradeMessage::State { id }, Some(file)) => states.push((id, file.into())),
                (UpgradeMessage::Complete, None) if listener.is_some() => break,
                (UpgradeMessage::Refused { reason }, _) => return Err(UpgradeError::Refused(reason)),
                _ => return Err(UpgradeError::Version),
            }
        }
        let states = states.into_iter().collect();
        Ok(Some(Self { link: Arc::new(link), storage, listener, states }))
    }

    /// Takes the listening socket.
    pub(super) const fn take_listener(&mut self) -> Option<TcpListener> {
        self.listener.take()
    }

    /// Takes the states of the caches.
    pub(super) fn take_states(&mut self) -> HandedStates {
        mem::take(&mut self.states)
    }

    /// Lets the process before end, if this one needs its folder to begin.
    pub(super) async fn free_folder(&self) -> Result<(), UpgradeError> {
        if self.storage.is_shared() { Ok(()) } else { self.go().await }
    }

    /// Waits until the caches serve what they got, and agrees with the process before on the change.
    pub(super) async fn agree(&self, app: &App, handed: &[String]) -> Result<(), UpgradeError> {
        if !self.storage.is_shared() {
            return Ok(());
        }
        warm(app, handed).await?;
        self.go().await
    }

    async fn go(&self) -> Result<(), UpgradeError> {
        let link = Arc::clone(&self.link);
        let going = spawn_blocking(move || {
            link.send(&UpgradeMessage::Ready, None)?;
            link.expect(&UpgradeMessage::Go)
        });
        going.await.expect("it does not panic")
    }

    /// Lets the process before stop: this one serves.
    pub(super) fn serves(self) {
        if self.storage.is_shared()
            && let Err(error) = self.link.send(&UpgradeMessage::Serves, None)
        {
            // It has ended, or will notice the end of the link and go on beside this one.
            tracing::warn!(%error, "upgrade not reported");
        }
    }
}

/// Waits until the caches of these types follow their source. Types that do not exist any more have none.
async fn warm(app: &App, handed: &[String]) -> Result<(), UpgradeError> {
    let (registry, deadline) = (app.registry.now(), Instant::now() + UPGRADE_WARM_WAIT);
    let types: Vec<_> = handed.iter().filter_map(|id| registry.by_id(id)).collect();
    types.iter().for_each(|ty| app.caches.start(ty));
    for ty in types {
        while !app.caches.is_filled(&ty) || app.caches.down_for(&ty).is_some() {
            if deadline < Instant::now() {
                return Err(UpgradeError::NotReady(ty.id().to_owned()));
            }
            sleep(UPGRADE_CHECK_EVERY).await;
        }
    }
    app.caches.drop_handed();
    Ok(())
}

/// Hands the server over to the first process that asks for it and can serve.
pub(super) async fn replaced(socket: Option<UnixSocketFile>, listener: Option<OwnedFd>, app: &Arc<App>) -> Departure {
    let Some((socket, listener)) = socket.zip(listener.map(Arc::new)) else { return std::future::pending().await };
    loop {
        let stream = match socket.accept().await {
            Ok((stream, user)) if user == rustix::process::getuid().as_raw() => stream,
            Ok((_, user)) => {
                tracing::warn!(user, reason = "another user", "upgrade refused");
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "upgrade failed");
                sleep(START_RETRY_PAUSE).await;
                continue;
            }
        };
        let (app, listener) = (Arc::clone(app), Arc::clone(&listener));
        let session = spawn_blocking(move || {
            let link = UpgradeLink::new(stream.into_std()?, UPGRADE_WARM_WAIT + UPGRADE_WAIT)?;
            hand_over(&link, listener.as_fd(), &app)
        });
        match session.await {
            Ok(Ok(departure)) => return departure,
            Ok(Err(error)) => tracing::warn!(%error, "upgrade failed"),
            // Reported when it happened.
            Err(_) => {}
        }
    }
}

/// Hands over to the process at the other end. Blocks until that one serves, or needs the folder.
fn hand_over(link: &UpgradeLink, listener: BorrowedFd<'_>, app: &App) -> Result<Departure, UpgradeError> {
    let storage = StorageKind::of(&app.config);
    let (UpgradeMessage::Hello { format, storage: other }, _) = link.receive()? else {
        return Err(UpgradeError::Version);
    };
    if let Some(reason) = refusal(format, storage, other) {
        link.send(&UpgradeMessage::Refused { reason: reason.to_owned() }, None)?;
        return Err(UpgradeError::Refused(reason.to_owned()));
    }
    tracing::info!("upgrade began");
    link.send(&UpgradeMessage::Listener, Some(listener))?;
    if storage.is_shared() {
        // etcd's changes of one revision come together.
        for (id, state) in app.caches.hand_over(&app.registry.now(), storage == StorageKind::Etcd)? {
            link.send(&UpgradeMessage::State { id }, Some(state.as_fd()))?;
        }
    }
    link.send(&UpgradeMessage::Complete, None)?;
    link.expect(&UpgradeMessage::Ready)?;
    link.send(&UpgradeMessage::Go, None)?;
    if !storage.is_shared() {
        return Ok(Departure::Awaited);
    }
    link.expect(&UpgradeMessage::Serves)?;
    Ok(Departure::Replaced)
}

/// Returns the reason why this process goes on, if there is one.
fn refusal(format: u32, storage: StorageKind, other: StorageKind) -> Option<&'static str> {
    if format != FORMAT {
        Some("the running server is of another version: restart it")
    } else if storage != other {
        Some("the running server keeps its objects elsewhere: restart it")
    } else if storage == StorageKind::Memory {
        Some("the objects of the running server are in its memory only, and end with it: use --data-dir")
    } else {
        None
    }
}

/// Lets the watches end within [`ENDS_SPREAD`].
pub(super) async fn end_watches(app: &App) {
    let watches = app.metrics.open_watches();
    watches.leave();
    let deadline = Instant::now() + ENDS_SPREAD;
    while 0 < watches.count() && Instant::now() < deadline {
        // Again and again: a watcher that was about to wait for events has missed the last time.
        app.caches.wake_watchers();
        sleep(ENDS_SPREAD / 10).await;
    }
}
