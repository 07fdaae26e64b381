//! The hand-over from a running server to the process that replaces it, by a Unix socket that both name.
//!
//! The new process gets the listening sockets, and the states of all caches where others may fill them at the same time.
//! It proves these, serves, and only then the old one lets its watches end.
//!
//! INVARIANT: the old process serves until the new one does, whatever fails, and one that ends without a word leaves the
//! new one to go on alone. With `--data-dir` it ends before the new one opens the folder, as at a restart: their clients
//! wait in the listen queues meanwhile. INVARIANT: only a process of the same user, with the same objects, takes over.

use std::{
    fs::{self, File},
    io, mem,
    net::TcpListener,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    net,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until},
};

use cache_server_wire::{
    descriptors,
    listeners::{GivenUnixSocket, Listeners, UnixSocketFile, UnixSocketShare},
};

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
    /// The caches that were handed over could not be used in time.
    #[error("this process could not use the cache of {0} in time")]
    NotReady(String),
}

impl UpgradeError {
    /// True if the other process has ended. A process that refuses sends a reason first.
    fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        matches!(self, Self::Link(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof))
    }
}

/// Time that a server waits for the first message of a new process. Others wait meanwhile.
const HELLO_WAIT: Duration = Duration::from_secs(3);

/// Version of the messages.
const FORMAT: u32 = 2;

/// The part of the first message that every version has.
#[derive(Deserialize)]
struct MessageFormat {
    format: u32,
}

/// The messages, each from the new process or from the old one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "camelCase")]
enum UpgradeMessage {
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
    /// Old: the state of a type's cache, as a file. True if that one is up to date.
    State { id: String, is_current: bool },
    /// Old: nothing else follows.
    Complete,
    /// New: can serve, or needs the folder for that.
    Ready,
    /// Old: stops once the new one serves, or at once if that one needs the folder. Then requests may last for `grace`.
    Go { grace: Duration },
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

    fn receive_text(&self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let late = |error| if is_late(&error) { io::ErrorKind::TimedOut.into() } else { error };
        descriptors::receive(&self.0).map_err(late)
    }

    fn receive(&self) -> Result<(UpgradeMessage, Option<OwnedFd>), UpgradeError> {
        let (message, file) = self.receive_text()?;
        match serde_json::from_slice(&message) {
            Ok(UpgradeMessage::Refused { reason }) => Err(UpgradeError::Refused(reason)),
            Ok(message) => Ok((message, file)),
            Err(_) => Err(UpgradeError::Version),
        }
    }

    /// Receives the first message of a new process: the place of its objects.
    fn receive_hello(&self) -> Result<StoragePlace, UpgradeError> {
        self.0.set_read_timeout(Some(HELLO_WAIT))?;
        let message = self.receive_text()?.0;
        self.0.set_read_timeout(Some(UPGRADE_WARM_WAIT + UPGRADE_WAIT))?;
        let of_version = serde_json::from_slice::<MessageFormat>(&message).is_ok_and(|found| found.format == FORMAT);
        match serde_json::from_slice(&message) {
            Ok(UpgradeMessage::Hello { storage, .. }) if of_version => Ok(storage),
            _ => Err(UpgradeError::Unfit("the running server is of another version: restart it")),
        }
    }

    fn expect(&self, expected: &UpgradeMessage) -> Result<(), UpgradeError> {
        let found = self.receive()?.0;
        if found == *expected { Ok(()) } else { Err(UpgradeError::Version) }
    }

    /// Sends the new process the reason why this process refuses.
    fn refuse(&self, reason: String) {
        // It may have ended.
        let _ = self.send(&UpgradeMessage::Refused { reason }, None);
    }

    /// True if the other process has ended.
    fn is_closed(&self) -> bool {
        descriptors::is_closed(&self.0)
    }
}

/// The parts that a new process got from the one before: all of them, unless that one has ended meanwhile.
#[derive(Debug, Default)]
struct ReceivedParts {
    /// `None` once it is used.
    listener: Option<TcpListener>,
    requests: Option<GivenUnixSocket>,
    upgrades: Option<GivenUnixSocket>,
    /// By type id.
    states: Vec<(String, File)>,
    /// Ids of the types with a state, each with true if the process before has it up to date.
    types: Vec<(String, bool)>,
}

impl ReceivedParts {
    /// Receives all parts. Blocks.
    fn fill(&mut self, link: &UpgradeLink) -> Result<(), UpgradeError> {
        loop {
            match link.receive()? {
                (UpgradeMessage::Listener, Some(file)) => self.listener = Some(file.into()),
                (UpgradeMessage::Requests { inode }, Some(listener)) => {
                    self.requests = Some(GivenUnixSocket { listener, inode });
                }
                (UpgradeMessage::Upgrades { inode }, Some(listener)) => {
                    self.upgrades = Some(GivenUnixSocket { listener, inode });
                }
                (UpgradeMessage::State { id, is_current }, Some(file)) => {
                    self.types.push((id.clone(), is_current));
                    self.states.push((id, file.into()));
                }
                (UpgradeMessage::Complete, None) if self.listener.is_some() => return Ok(()),
                _ => return Err(UpgradeError::Version),
            }
        }
    }

    /// Checks that the listening socket has the address of the settings.
    fn check_address(&self, config: &Config) -> Result<(), UpgradeError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let (found, listen) = (listener.local_addr()?, config.listen);
        // A port that was chosen by the system may have been chosen for the process before.
        if found.ip() == listen.ip() && (found.port() == listen.port() || listen.port() == 0) {
            return Ok(());
        }
        Err(UpgradeError::Address { found: found.to_string(), expected: listen.to_string() })
    }
}

/// The process before this one, and the parts that it gave.
#[derive(Debug)]
pub(super) struct Predecessor {
    link: Arc<UpgradeLink>,
    storage: StorageKind,
    parts: ReceivedParts,
}

impl Predecessor {
    /// Asks the server that listens at the path of the settings for its sockets and caches; `None` if there is none.
    pub(super) async fn begin(config: &Config) -> Result<Option<Self>, UpgradeError> {
        let Some(path) = &config.upgrade_socket else { return Ok(None) };
        let stream = match net::UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let owner = stream.peer_cred()?.uid();
        if owner != rustix::process::getuid().as_raw() {
            return Err(UpgradeError::User(owner));
        }
        let (stream, storage) = (stream.into_std()?, StoragePlace::of(config));
        let kind = storage.kind;
        let asking = spawn_blocking(move || {
            let (link, mut parts) = (UpgradeLink::new(stream, UPGRADE_WAIT)?, ReceivedParts::default());
            let sent = link.send(&UpgradeMessage::Hello { format: FORMAT, storage }, None).map_err(UpgradeError::from);
            let received = sent.and_then(|()| parts.fill(&link));
            Ok::<_, UpgradeError>((link, parts, received))
        });
        let (link, parts, received) = asking.await.expect("it does not panic")?;
        match received {
            Err(error) if error.is_end() => {
                tracing::warn!(types = parts.types.len(), "upgrade continued alone");
                // The system closes the files of a process that was killed one after the other.
                sleep(START_RETRY_PAUSE).await;
            }
            received => received?,
        }
        parts.check_address(config)?;
        Ok(Some(Self { link: Arc::new(link), storage: kind, parts }))
    }

    /// Takes the listening socket.
    pub(super) const fn take_listener(&mut self) -> Option<TcpListener> {
        self.parts.listener.take()
    }

    /// Takes the Unix socket for requests.
    pub(super) const fn take_requests(&mut self) -> Option<GivenUnixSocket> {
        self.parts.requests.take()
    }

    /// Takes the Unix socket for upgrades.
    pub(super) const fn take_upgrades(&mut self) -> Option<GivenUnixSocket> {
        self.parts.upgrades.take()
    }

    /// Takes the states of the caches.
    pub(super) fn take_states(&mut self) -> HandedStates {
        mem::take(&mut self.parts.states).into_iter().collect()
    }

    /// True if that process must end before this one can open its folder.
    pub(super) const fn holds_folder(&self) -> bool {
        !self.storage.is_shared()
    }

    /// Resolves once that process has ended.
    pub(super) async fn ended(&self) {
        while !self.link.is_closed() {
            sleep(UPGRADE_CHECK_EVERY).await;
        }
    }

    /// Waits until the caches serve what they got, and agrees with the process before on the change.
    pub(super) async fn agree(&self, app: &App) -> Result<(), UpgradeError> {
        if self.holds_folder() {
            return Ok(());
        }
        tokio::select! {
            biased;
            warmed = warm(app, &self.parts.types) => {
                warmed?;
                app.caches.drop_handed();
            }
            () = self.ended() => {}
        }
        self.go().await.map(drop)
    }

    /// Agrees with the process before on the change. Returns the grace period of its requests; zero if that process has
    /// ended.
    pub(super) async fn go(&self) -> Result<Duration, UpgradeError> {
        let link = Arc::clone(&self.link);
        let going = spawn_blocking(move || {
            // A failure shows in the answer, which may be there already.
            let _ = link.send(&UpgradeMessage::Ready, None);
            let UpgradeMessage::Go { grace } = link.receive()?.0 else { return Err(UpgradeError::Version) };
            Ok(grace)
        });
        match going.await.expect("it does not panic") {
            Err(error) if error.is_end() => {
                tracing::warn!(%error, "upgrade completed alone");
                Ok(Duration::ZERO)
            }
            agreed => agreed,
        }
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
    Ok(())
}

/// True if the cache of a type follows its source, whose history is not in doubt.
fn is_current(app: &App, ty: &ResourceType) -> bool {
    let is_suspect = || app.upstream().is_some_and(|upstream| upstream.source.is_suspect(ty));
    app.caches.is_filled(ty) && app.caches.down_for(ty).is_none() && !is_suspect()
}

/// Copies of the sockets of a server, for the next process.
#[derive(Debug)]
pub(super) struct SocketShares {
    listener: OwnedFd,
    requests: Option<UnixSocketShare>,
    upgrades: UnixSocketShare,
}

impl SocketShares {
    /// # Errors
    /// No descriptor is free.
    pub(super) fn of(listeners: &Listeners, upgrades: &UnixSocketFile) -> io::Result<Self> {
        Ok(Self {
            listener: listeners.tcp.as_fd().try_clone_to_owned()?,
            requests: listeners.unix.as_ref().map(UnixSocketFile::share).transpose()?,
            upgrades: upgrades.share()?,
        })
    }

    /// Notes whether another process has the sockets: their files stay then.
    fn note_shared(&self, is_shared: bool) {
        self.requests.iter().chain([&self.upgrades]).for_each(|socket| socket.note_shared(is_shared));
    }

    fn send(&self, link: &UpgradeLink) -> io::Result<()> {
        self.note_shared(true);
        link.send(&UpgradeMessage::Listener, Some(self.listener.as_fd()))?;
        if let Some(UnixSocketShare { socket, .. }) = &self.requests {
            link.send(&UpgradeMessage::Requests { inode: socket.inode }, Some(socket.listener.as_fd()))?;
        }
        let GivenUnixSocket { listener, inode } = &self.upgrades.socket;
        link.send(&UpgradeMessage::Upgrades { inode: *inode }, Some(listener.as_fd()))
    }
}

/// Hands the server over to the first process that asks for it and can serve.
pub(super) async fn replaced(
    socket: Option<UnixSocketFile>,
    shares: Option<SocketShares>,
    app: &Arc<App>,
) -> Departure {
    let Some((socket, shares)) = socket.zip(shares.map(Arc::new)) else { return std::future::pending().await };
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
        match stream.into_std().and_then(|stream| UpgradeLink::new(stream, HELLO_WAIT)) {
            Ok(link) => {
                if let Some(departure) = session(link, &shares, app).await {
                    return departure;
                }
            }
            Err(error) => tracing::warn!(%error, "upgrade failed"),
        }
    }
}

/// Hands over to the process at the other end. Returns `None` after a refusal, which it sends: the new process takes the end
/// of the link without one for the end of this process.
async fn session(link: UpgradeLink, shares: &Arc<SocketShares>, app: &Arc<App>) -> Option<Departure> {
    let link = Arc::new(link);
    let (used, sent, state) = (Arc::clone(&link), Arc::clone(shares), Arc::clone(app));
    let reason = match spawn_blocking(move || hand_over(&used, &sent, &state)).await {
        Ok(Ok(departure)) => return Some(departure),
        Ok(Err(error)) => {
            tracing::warn!(%error, "upgrade failed");
            error.to_string()
        }
        // Reported when it happened.
        Err(_) => "it has failed".to_owned(),
    };
    shares.note_shared(false);
    link.refuse(reason);
    None
}

/// Hands over to the process at the other end. Blocks until that one serves, or needs the folder.
fn hand_over(link: &UpgradeLink, shares: &SocketShares, app: &App) -> Result<Departure, UpgradeError> {
    let (place, other) = (StoragePlace::of(&app.config), link.receive_hello()?);
    if let Some(reason) = refusal(&place, &other) {
        return Err(UpgradeError::Unfit(reason));
    }
    let storage = place.kind;
    tracing::info!("upgrade began");
    shares.send(link)?;
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
    link.send(&UpgradeMessage::Go { grace: app.config.grace }, None)?;
    if !storage.is_shared() {
        return Ok(Departure::Awaited);
    }
    link.expect(&UpgradeMessage::Serves)?;
    Ok(Departure::Replaced)
}

/// Returns the reason why this process goes on, if there is one.
fn refusal(storage: &StoragePlace, other: &StoragePlace) -> Option<&'static str> {
    if storage != other {
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
        let next = Instant::now() + ENDS_SPREAD / 10;
        let mut parked = app.caches.watchers();
        for parts in (1..=WAKE_PARTS).rev() {
            parked.iter_mut().for_each(|watchers| watchers.wake_part(parts));
            sleep(WAKE_PAUSE).await;
        }
        sleep_until(next).await;
    }
}

/// Parts in which watchers are woken, and the pause after each: requests of others come in between.
const WAKE_PARTS: usize = 20;
const WAKE_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    /// End of the process before in a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Before {
        EndsAtOnce,
        EndsWhileItSends,
        EndsThen,
        GoesOn,
    }

    /// Plays the process before for one connection.
    fn play(upgrades: &UnixListener, before: Before) {
        let link = UpgradeLink::new(upgrades.accept().unwrap().0, UPGRADE_WAIT).unwrap();
        link.receive_hello().unwrap();
        if before == Before::EndsAtOnce {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        link.send(&UpgradeMessage::Listener, Some(listener.as_fd())).unwrap();
        if before == Before::EndsWhileItSends {
            return;
        }
        link.send(&UpgradeMessage::Complete, None).unwrap();
        if before == Before::GoesOn {
            link.expect(&UpgradeMessage::Ready).unwrap();
            link.refuse("no".to_owned());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_goes_on_alone_if_the_one_before_has_ended() {
        for before in [Before::EndsAtOnce, Before::EndsWhileItSends, Before::EndsThen, Before::GoesOn] {
            let folder = tempfile::tempdir().unwrap();
            let config = Config {
                listen: ([127, 0, 0, 1], 0).into(),
                data_dir: Some(folder.path().to_owned()),
                upgrade_socket: Some(folder.path().join("upgrade")),
                ..Config::default()
            };
            let upgrades = UnixListener::bind(config.upgrade_socket.as_ref().unwrap()).unwrap();
            let played = thread::spawn(move || play(&upgrades, before));
            let mut predecessor = Predecessor::begin(&config).await.unwrap().unwrap();
            assert_eq!(predecessor.take_listener().is_some(), before != Before::EndsAtOnce);
            let outcome = predecessor.go().await;
            assert_eq!(outcome.is_ok(), before != Before::GoesOn, "{before:?}: {outcome:?}");
            played.join().unwrap();
        }
    }

    /// Goal: processes of versions to come get an answer. Method: first messages that this one does not know.
    #[test]
    fn another_version_is_refused_by_name() {
        for hello in
            [&b"{\"message\":\"hello\",\"format\":99}"[..], b"{\"message\":\"hi\",\"format\":2}", b"GET / HTTP/1.1"]
        {
            let (here, there) = UnixStream::pair().unwrap();
            descriptors::send(&there, hello, None).unwrap();
            let error = UpgradeLink::new(here, UPGRADE_WAIT).unwrap().receive_hello().unwrap_err();
            assert!(error.to_string().contains("another version"), "{error}");
        }
    }

    #[test]
    fn storages_are_told_apart() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |folder: &Path| StoragePlace::of(&Config { data_dir: Some(folder.to_owned()), ..Config::default() });
        let place = of(one.path());
        assert_eq!(refusal(&place, &of(&one.path().join("."))), None);
        assert!(refusal(&place, &of(other.path())).is_some_and(|reason| reason.contains("elsewhere")));
        assert!(refusal(&place, &of(&one.path().join("none"))).is_some());
    }
}
