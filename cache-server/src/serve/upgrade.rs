//! The hand-over from a running server to the process that replaces it, by a Unix socket that both name.
//!
//! The new process gets the listening socket, and the states of all caches where others may fill them at the same time.
//! It proves these, serves, and only then the old one lets its watches end.
//!
//! INVARIANT: the old process serves until the new one does, whatever fails. With `--data-dir` it ends before the new
//! one opens the folder, as at a restart: their clients wait in the listen queue meanwhile. INVARIANT: only a process
//! of the same user, with the same objects, takes over.

use std::{
    fs, io, mem,
    net::TcpListener,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    net,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use cache_server_wire::{descriptors, listeners::UnixSocketFile};

use crate::{
    app::App,
    cacher::HandedStates,
    config::Config,
    limits::{ENDS_SPREAD, START_RETRY_PAUSE, UPGRADE_CHECK_EVERY, UPGRADE_WAIT, UPGRADE_WARM_WAIT},
    registry::ResourceType,
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
    Hello { format: u32, storage: StoragePlace },
    /// Old: goes on alone.
    Refused { reason: String },
    /// Old: the listening socket.
    Listener,
    /// Old: the state of a type's cache, as a file. True if that one is up to date.
    State { id: String, is_current: bool },
    /// Old: nothing else follows.
    Complete,
    /// New: can serve, or needs the folder for that.
    Ready,
    /// Old: stops once the new one serves, or at once if that one needs the folder.
    Go,
    /// New: serves.
    Serves,
}

/// Kind of a server's storage.
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

/// Place of a server's objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoragePlace {
    kind: StorageKind,
    /// Equal for the same objects, as far as that is known without asking their server.
    name: String,
}

impl StoragePlace {
    fn of(config: &Config) -> Self {
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
    /// Path of the socket at which it listens for upgrades.
    path: PathBuf,
    process: Option<i32>,
    storage: StorageKind,
    /// `None` once it is used.
    listener: Option<TcpListener>,
    states: HandedStates,
    /// Ids of the types with a state, each with true if the process before has it up to date.
    types: Vec<(String, bool)>,
}

impl Predecessor {
    /// Asks the server that listens at the path of the settings for its sockets and caches; `None` if there is none.
    pub(super) async fn begin(config: &Config) -> Result<Option<Self>, UpgradeError> {
        let Some(path) = config.upgrade_socket.clone() else { return Ok(None) };
        let stream = match net::UnixStream::connect(&path).await {
            Ok(stream) => stream,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let owner = stream.peer_cred()?;
        if owner.uid() != rustix::process::getuid().as_raw() {
            return Err(UpgradeError::User(owner.uid()));
        }
        let (stream, storage, listen) = (stream.into_std()?, StoragePlace::of(config), config.listen);
        let begun = spawn_blocking(move || Self::begin_blocking(stream, path, owner.pid(), storage));
        let begun = begun.await.expect("it does not panic")?;
        let Some(listener) = &begun.listener else { return Ok(Some(begun)) };
        let found = listener.local_addr()?;
        // A port that was chosen by the system may have been chosen for the process before.
        if found.ip() == listen.ip() && (found.port() == listen.port() || listen.port() == 0) {
            return Ok(Some(begun));
        }
        Err(UpgradeError::Address { found: found.to_string(), expected: listen.to_string() })
    }

    fn begin_blocking(
        stream: UnixStream,
        path: PathBuf,
        process: Option<i32>,
        storage: StoragePlace,
    ) -> Result<Self, UpgradeError> {
        let link = UpgradeLink::new(stream, UPGRADE_WAIT)?;
        let kind = storage.kind;
        link.send(&UpgradeMessage::Hello { format: FORMAT, storage }, None)?;
        let (mut listener, mut states, mut types) = (None, Vec::new(), Vec::new());
        loop {
            match link.receive()? {
                (UpgradeMessage::Listener, Some(file)) => listener = Some(TcpListener::from(file)),
                (UpgradeMessage::State { id, is_current }, Some(file)) => {
                    types.push((id.clone(), is_current));
                    states.push((id, file.into()));
                }
                (UpgradeMessage::Complete, None) if listener.is_some() => break,
                (UpgradeMessage::Refused { reason }, _) => return Err(UpgradeError::Refused(reason)),
                _ => return Err(UpgradeError::Version),
            }
        }
        let (link, states) = (Arc::new(link), states.into_iter().collect());
        Ok(Self { link, path, process, storage: kind, listener, states, types })
    }

    /// The id of the process, if the system tells.
    pub(super) const fn process(&self) -> Option<i32> {
        self.process
    }

    /// Takes the listening socket.
    pub(super) const fn take_listener(&mut self) -> Option<TcpListener> {
        self.listener.take()
    }

    /// Takes the states of the caches.
    pub(super) fn take_states(&mut self) -> HandedStates {
        mem::take(&mut self.states)
    }

    /// True if that process must end before this one can open its folder.
    pub(super) const fn holds_folder(&self) -> bool {
        !self.storage.is_shared()
    }

    /// Waits until the caches serve what they got, and agrees with the process before on the change.
    pub(super) async fn agree(&self, app: &App) -> Result<(), UpgradeError> {
        if self.holds_folder() {
            return Ok(());
        }
        warm(app, &self.types).await?;
        self.go().await
    }

    /// Agrees with the process before on the change. If it has ended, this one goes on alone.
    pub(super) async fn go(&self) -> Result<(), UpgradeError> {
        let link = Arc::clone(&self.link);
        let going = spawn_blocking(move || {
            link.send(&UpgradeMessage::Ready, None)?;
            link.expect(&UpgradeMessage::Go)
        });
        match going.await.expect("it does not panic") {
            Err(UpgradeError::Link(error)) if is_end(&error) && self.has_ended().await => {
                tracing::warn!(%error, "upgrade completed alone");
                Ok(())
            }
            agreed => agreed,
        }
    }

    /// True if the process does not listen any more. One that goes on may have broken off the upgrade.
    async fn has_ended(&self) -> bool {
        let is_gone = async || net::UnixStream::connect(&self.path).await.is_err_and(|error| is_absent(&error));
        if is_gone().await {
            return true;
        }
        // The system closes the files of a process that was killed one after the other.
        sleep(START_RETRY_PAUSE).await;
        is_gone().await
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

/// True if a path has no process that listens.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// True if the other end of a link is closed.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Waits until the caches of these types are up to date, if they were before. Types that do not exist any more have none.
async fn warm(app: &App, types: &[(String, bool)]) -> Result<(), UpgradeError> {
    let deadline = Instant::now() + UPGRADE_WARM_WAIT;
    types.iter().filter_map(|(id, _)| app.registry.now().by_id(id)).for_each(|ty| app.caches.start(&ty));
    for (id, _) in types.iter().filter(|(_, was_current)| *was_current) {
        while let Some(ty) = app.registry.now().by_id(id)
            && !is_current(app, &ty)
        {
            if deadline < Instant::now() {
                return Err(UpgradeError::NotReady(id.clone()));
            }
            app.caches.start(&ty);
            sleep(UPGRADE_CHECK_EVERY).await;
        }
    }
    app.caches.drop_handed();
    Ok(())
}

/// True if the cache of a type follows its source, whose history is not in doubt.
fn is_current(app: &App, ty: &ResourceType) -> bool {
    let is_suspect = || app.upstream().is_some_and(|upstream| upstream.source.is_suspect(ty));
    app.caches.is_filled(ty) && app.caches.down_for(ty).is_none() && !is_suspect()
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
    let place = StoragePlace::of(&app.config);
    let (UpgradeMessage::Hello { format, storage: other }, _) = link.receive()? else {
        return Err(UpgradeError::Version);
    };
    if let Some(reason) = refusal(format, &place, &other) {
        link.send(&UpgradeMessage::Refused { reason: reason.to_owned() }, None)?;
        return Err(UpgradeError::Refused(reason.to_owned()));
    }
    let storage = place.kind;
    tracing::info!("upgrade began");
    link.send(&UpgradeMessage::Listener, Some(listener))?;
    if storage.is_shared() {
        // etcd's changes of one revision come together.
        for state in app.caches.hand_over(&app.registry.now(), storage == StorageKind::Etcd) {
            let (ty, state) = state?;
            let (id, is_current) = (ty.id().to_owned(), is_current(app, &ty));
            link.send(&UpgradeMessage::State { id, is_current }, Some(state.as_fd()))?;
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
fn refusal(format: u32, storage: &StoragePlace, other: &StoragePlace) -> Option<&'static str> {
    if format != FORMAT {
        Some("the running server is of another version: restart it")
    } else if storage != other {
        Some("the running server keeps its objects elsewhere: restart it")
    } else if storage.kind == StorageKind::Memory {
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Begins to take over from a process that ends, or breaks off, once it has sent everything. Returns its socket too.
    async fn begun(config: &Config, ends: bool) -> (Predecessor, Option<UnixListener>) {
        let upgrades = UnixListener::bind(config.upgrade_socket.as_ref().unwrap()).unwrap();
        let before = spawn_blocking(move || {
            let link = UpgradeLink::new(upgrades.accept().unwrap().0, UPGRADE_WAIT).unwrap();
            assert!(matches!(link.receive().unwrap().0, UpgradeMessage::Hello { .. }));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            link.send(&UpgradeMessage::Listener, Some(listener.as_fd())).unwrap();
            link.send(&UpgradeMessage::Complete, None).unwrap();
            (!ends).then_some(upgrades)
        });
        let predecessor = Predecessor::begin(config).await.unwrap().unwrap();
        (predecessor, before.await.unwrap())
    }

    #[tokio::test]
    async fn a_process_goes_on_alone_if_the_one_before_has_ended() {
        for ends in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let config = Config {
                listen: ([127, 0, 0, 1], 0).into(),
                data_dir: Some(folder.path().to_owned()),
                upgrade_socket: Some(folder.path().join("upgrade")),
                ..Config::default()
            };
            let (predecessor, _upgrades) = begun(&config, ends).await;
            let outcome = predecessor.go().await;
            assert_eq!(outcome.is_ok(), ends, "{outcome:?}");
        }
    }

    #[test]
    fn storages_are_told_apart() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |folder: &Path| StoragePlace::of(&Config { data_dir: Some(folder.to_owned()), ..Config::default() });
        let place = of(one.path());
        assert_eq!(refusal(FORMAT, &place, &of(&one.path().join("."))), None);
        assert!(refusal(FORMAT, &place, &of(other.path())).is_some_and(|reason| reason.contains("elsewhere")));
        assert!(refusal(FORMAT, &place, &of(&one.path().join("none"))).is_some());
    }
}
