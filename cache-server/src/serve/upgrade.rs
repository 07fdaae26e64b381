//! The hand-over from a running server to the process that replaces it, by a Unix socket that both name.
//!
//! The new process gets the listening sockets, and the states of all caches where others may fill them at the same time.
//! It proves these, serves, and only then the old one lets its watches end. With `--data-dir` it gets a copy of the file in
//! place of the states, and fills its caches from that. Then the old one moves its clients to new connections, lets these
//! wait in the listen queues, and closes the file. The new one opens it, reads what was written since, and serves.
//!
//! INVARIANT: the old process serves until the new one does, whatever fails, and one that ends without a word leaves the
//! new one to go on alone. A file is open in one process at a time: the old one opens it again if the new one ends before
//! it serves. INVARIANT: only a process of the same user, with the same objects, takes over.

mod link;

use std::{
    fs::File,
    io, mem,
    net::TcpListener,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until},
};

use cache_server_wire::{
    accept::ConnectionGate,
    http2::GOODBYES_SPREAD,
    listeners::{GivenUnixSocket, Listeners, UnixSocketFile, UnixSocketShare},
};

pub(super) use self::link::UpgradeError;
use self::link::{FORMAT, HELLO_WAIT, StorageKind, StoragePlace, UpgradeLink, UpgradeMessage};
use crate::{
    app::App,
    cacher::HandedStates,
    config::Config,
    limits::{
        ENDS_SPREAD, START_RETRY_PAUSE, UPGRADE_ANSWERS_WAIT, UPGRADE_CHECK_EVERY, UPGRADE_WAIT, UPGRADE_WARM_WAIT,
    },
    registry::ResourceType,
    storage::StoreFile,
};

/// The parts that a new process got from the one before: all of them, unless that one has ended meanwhile.
#[derive(Debug, Default)]
struct ReceivedParts {
    /// `None` once it is used.
    listener: Option<TcpListener>,
    requests: Option<GivenUnixSocket>,
    upgrades: Option<GivenUnixSocket>,
    /// Copy of the file of the folder.
    copy: Option<File>,
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
                (UpgradeMessage::Copy, Some(file)) => self.copy = Some(file.into()),
                (UpgradeMessage::State { id, is_current }, file) => {
                    self.types.push((id.clone(), is_current));
                    self.states.extend(file.map(|file| (id, file.into())));
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

    /// Takes the copy of the file of the folder.
    pub(super) const fn take_copy(&mut self) -> Option<File> {
        self.parts.copy.take()
    }

    /// Fills the caches from the copy, and takes the folder of that process.
    pub(super) async fn take_folder(&self, app: &App) -> Result<(), UpgradeError> {
        let Some(file) = app.file() else { return Ok(()) };
        let warming = async {
            app.definitions.settle().await;
            warm(app, &self.parts.types).await
        };
        tokio::select! {
            biased;
            warmed = warming => warmed?,
            () = self.ended() => {}
        }
        self.go().await?;
        file.take(UPGRADE_WAIT).await.map_err(UpgradeError::Folder)?;
        tracing::info!("data folder taken");
        Ok(())
    }

    /// True if that process must leave its folder before this one can open it.
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
        self.go().await
    }

    /// Agrees with the process before on the change, unless it has ended.
    pub(super) async fn go(&self) -> Result<(), UpgradeError> {
        let link = Arc::clone(&self.link);
        let going = spawn_blocking(move || {
            // A failure shows in the answer, which may be there already.
            let _ = link.send(&UpgradeMessage::Ready, None);
            link.expect(&UpgradeMessage::Go)
        });
        match going.await.expect("it does not panic") {
            Err(error) if error.is_end() => {
                tracing::warn!(%error, "upgrade completed alone");
                Ok(())
            }
            agreed => agreed,
        }
    }

    /// Lets the process before stop: this one serves.
    pub(super) fn serves(self) {
        if let Err(error) = self.link.send(&UpgradeMessage::Serves, None) {
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

/// Hands the server over to the first process that asks for it and can serve. Polled by the task that accepts connections.
pub(super) async fn replaced(
    socket: Option<UnixSocketFile>,
    shares: Option<SocketShares>,
    app: &Arc<App>,
    gate: &ConnectionGate,
) {
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
                if session(link, &shares, app, gate).await {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "upgrade failed"),
        }
    }
}

/// Hands over to the process at the other end. Returns false after a refusal, which it sends: the new process takes the end
/// of the link without one for the end of this process.
async fn session(link: UpgradeLink, shares: &Arc<SocketShares>, app: &Arc<App>, gate: &ConnectionGate) -> bool {
    let link = Arc::new(link);
    let (used, sent, state) = (Arc::clone(&link), Arc::clone(shares), Arc::clone(app));
    let mut outcome = blocking(move || hand_over(&used, &sent, &state)).await;
    if outcome.is_ok() {
        outcome = match app.file() {
            Some(file) => hand_file_over(&link, file, gate).await,
            None => go(&link).await,
        };
    }
    let Err(reason) = outcome else { return true };
    tracing::warn!(error = reason, "upgrade failed");
    shares.note_shared(false);
    link.refuse(reason);
    false
}

/// Runs a step that blocks. Returns the reason of its failure.
async fn blocking(step: impl FnOnce() -> Result<(), UpgradeError> + Send + 'static) -> Result<(), String> {
    let ended = spawn_blocking(step).await;
    // A panic was reported when it happened.
    ended.map_or_else(|_| Err("it has failed".to_owned()), |done| done.map_err(|error| error.to_string()))
}

/// Hands everything but the folder over to the process at the other end. Blocks until that one is ready.
fn hand_over(link: &UpgradeLink, shares: &SocketShares, app: &App) -> Result<(), UpgradeError> {
    let (place, other) = (StoragePlace::of(&app.config), link.receive_hello()?);
    if let Some(reason) = refusal(&place, &other) {
        return Err(UpgradeError::Unfit(reason));
    }
    tracing::info!("upgrade began");
    shares.send(link)?;
    let state = |ty: &ResourceType| UpgradeMessage::State { id: ty.id().to_owned(), is_current: is_current(app, ty) };
    if let Some(file) = app.file() {
        link.send(&UpgradeMessage::Copy, Some(file.copy()?.as_fd()))?;
        app.caches.filled(&app.registry.now()).iter().try_for_each(|(ty, _)| link.send(&state(ty), None))?;
    } else {
        // etcd's changes of one revision come together.
        for handed in app.caches.hand_over(&app.registry.now(), place.kind == StorageKind::Etcd) {
            let (ty, file) = handed?;
            link.send(&state(&ty), Some(file.as_fd()))?;
        }
    }
    link.send(&UpgradeMessage::Complete, None)?;
    link.expect(&UpgradeMessage::Ready)
}

/// Lets the process at the other end go on, and waits until it serves.
async fn go(link: &Arc<UpgradeLink>) -> Result<(), String> {
    let link = Arc::clone(link);
    blocking(move || {
        link.send(&UpgradeMessage::Go, None)?;
        link.expect(&UpgradeMessage::Serves)
    })
    .await
}

/// Moves clients to new connections, which wait from the moment on at which this process leaves its file to the one at the
/// other end. Opens it again if that one ends before it serves.
async fn hand_file_over(
    link: &Arc<UpgradeLink>,
    file: &Arc<dyn StoreFile>,
    gate: &ConnectionGate,
) -> Result<(), String> {
    gate.leave();
    sleep(2 * GOODBYES_SPREAD).await;
    gate.close();
    gate.answered(UPGRADE_ANSWERS_WAIT).await;
    if link.is_closed() {
        gate.reopen();
        return Err("it has ended".to_owned());
    }
    let released = Arc::clone(file);
    // A panic was reported when it happened. The lock of the folder decides then.
    let _ = spawn_blocking(move || released.release()).await;
    tracing::info!("data folder left");
    let Err(reason) = go(link).await else { return Ok(()) };
    // The other process may have the file for as long as it lives, and serve then.
    while let Err(error) = file.take(START_RETRY_PAUSE).await {
        tracing::error!(error, "data folder not opened again");
        let link = Arc::clone(link);
        if blocking(move || link.expect(&UpgradeMessage::Serves)).await.is_ok() {
            return Ok(());
        }
    }
    gate.reopen();
    Err(reason)
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
    use std::{
        os::unix::net::{UnixListener, UnixStream},
        path::Path,
        thread,
    };

    use cache_server_wire::descriptors;

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
