//! The sockets on which the server listens: one address, and a Unix socket if the settings name one.
//!
//! INVARIANT: a connection is accepted once a slot is free for it, whichever socket it comes from. INVARIANT: only the
//! user of this process can connect to the Unix socket.

use std::{
    fs, io,
    net::{self as tcp, SocketAddr},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net,
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::limits;

/// The sockets of a server.
pub struct Listeners {
    pub tcp: TcpListener,
    pub unix: Option<UnixSocketFile>,
}

/// A socket that a client has connected to.
pub enum AcceptedStream {
    /// A connection of the network.
    Tcp(TcpStream),
    /// A connection of this machine.
    Unix(UnixStream),
}

/// The other end of a connection, as the kernel names it.
#[derive(Clone, Copy, Debug)]
pub enum RemoteEnd {
    /// A client of the network.
    Tcp(SocketAddr),
    /// A process of this machine.
    Unix { uid: u32, gid: u32 },
}

impl RemoteEnd {
    /// Address of the client; `None` for a Unix socket.
    pub const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(address),
            Self::Unix { .. } => None,
        }
    }
}

/// A Unix socket with its file, which is removed with it unless another process has the socket too.
#[derive(Debug)]
pub struct UnixSocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Number of the file, in whose place another server may have put its own.
    inode: u64,
    /// True if another process has it too.
    is_shared: Arc<AtomicBool>,
}

/// A Unix socket that another process has opened.
#[derive(Debug)]
pub struct GivenUnixSocket {
    pub listener: OwnedFd,
    /// Number of its file.
    pub inode: u64,
}

/// A copy of a Unix socket for another process.
#[derive(Debug)]
pub struct UnixSocketShare {
    pub socket: GivenUnixSocket,
    is_shared: Arc<AtomicBool>,
}

impl Listeners {
    /// Accepts the next connection once a slot is free.
    pub async fn accept(&self, slots: &Arc<Semaphore>) -> (AcceptedStream, RemoteEnd, OwnedSemaphorePermit) {
        let slot = Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => {
                    accepted.map(|(stream, address)| (AcceptedStream::Tcp(stream), RemoteEnd::Tcp(address)))
                }
                accepted = accept_local(self.unix.as_ref()) => accepted,
            };
            match accepted {
                Ok((stream, end)) => return (stream, end, slot),
                Err(error) => {
                    // Usually the process is out of file descriptors, and other connections must end first.
                    tracing::warn!(%error, delay = ?ACCEPT_PAUSE, "connection accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Pause after a failed accept, so that an exhausted process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts the next connection of the Unix socket; never resolves without one.
async fn accept_local(unix: Option<&UnixSocketFile>) -> io::Result<(AcceptedStream, RemoteEnd)> {
    let Some(UnixSocketFile { listener, .. }) = unix else { return std::future::pending().await };
    let (stream, _) = listener.accept().await?;
    let credentials = stream.peer_cred()?;
    Ok((AcceptedStream::Unix(stream), RemoteEnd::Unix { uid: credentials.uid(), gid: credentials.gid() }))
}

/// Creates a bound socket that does not listen yet. Accepted connections inherit its options.
pub fn bind_tcp(address: SocketAddr, unsent_bytes: u32) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a restarted server rebind its port at once; a port in use is still an error.
    socket.set_reuseaddr(true)?;
    set_options(SockRef::from(&socket), unsent_bytes)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Serves a socket that listens already: of systemd, or of the process before. Accepted connections inherit its options.
///
/// # Errors
/// The operating system refuses an option.
pub fn adopt_tcp(listener: tcp::TcpListener, unsent_bytes: u32) -> io::Result<TcpListener> {
    set_options(SockRef::from(&listener), unsent_bytes)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn set_options(options: SockRef<'_>, unsent_bytes: u32) -> io::Result<()> {
    options.set_send_buffer_size(limits::SOCKET_SEND_BYTES as usize)?;
    let probes = TcpKeepalive::new().with_time(limits::KEEPALIVE).with_interval(limits::KEEPALIVE_EVERY);
    options.set_tcp_keepalive(&probes.with_retries(limits::KEEPALIVE_TRIES))?;
    #[cfg(target_os = "linux")]
    options.set_tcp_notsent_lowat(unsent_bytes)?;
    #[cfg(not(target_os = "linux"))]
    let _ = unsent_bytes;
    Ok(())
}

impl UnixSocketFile {
    /// Listens at `path`: by the socket that was given if its file is there, else by a new one. Replaces the file of a
    /// process that has ended.
    ///
    /// # Errors
    /// Another process listens there, the file is no socket, or the folder cannot be written.
    pub fn open(path: &Path, given: Option<GivenUnixSocket>) -> io::Result<Self> {
        match given {
            Some(given) if fs::symlink_metadata(path).is_ok_and(|file| file.ino() == given.inode) => {
                let (listener, inode) = (net::UnixListener::from(given.listener), given.inode);
                listener.set_nonblocking(true)?;
                let listener = UnixListener::from_std(listener)?;
                Ok(Self { listener, path: path.to_owned(), inode, is_shared: Arc::new(AtomicBool::new(true)) })
            }
            _ => Self::bind(path),
        }
    }

    fn bind(path: &Path) -> io::Result<Self> {
        check_place(path)?;
        // Bound under another name: no other user connects before the permissions are set.
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        let _ = fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh)?;
        let placed = fs::set_permissions(&fresh, fs::Permissions::from_mode(SOCKET_MODE))
            .and_then(|()| fs::symlink_metadata(&fresh))
            .and_then(|file| fs::rename(&fresh, path).map(|()| file.ino()));
        match placed {
            Ok(inode) => Ok(Self { listener, path: path.to_owned(), inode, is_shared: Arc::default() }),
            Err(error) => {
                let _ = fs::remove_file(&fresh);
                Err(error)
            }
        }
    }

    /// Notes that no other process has the socket.
    pub fn own(&self) {
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// Returns a copy for another process.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn share(&self) -> io::Result<UnixSocketShare> {
        let socket = GivenUnixSocket { listener: self.listener.as_fd().try_clone_to_owned()?, inode: self.inode };
        Ok(UnixSocketShare { socket, is_shared: Arc::clone(&self.is_shared) })
    }

    /// Accepts the next connection; returns it with the user of its process. Cancel safe.
    ///
    /// # Errors
    /// Usually the process is out of file descriptors.
    pub async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        Ok((stream, user))
    }
}

impl UnixSocketShare {
    /// Notes whether another process has the socket.
    pub fn note_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }
}

/// Refuses a path with a file that is no socket, or at which another process listens.
fn check_place(path: &Path) -> io::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is no socket"));
    }
    if net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
    }
    Ok(())
}

/// Permissions of the Unix socket: its owner reads and writes.
const SOCKET_MODE: u32 = 0o600;

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        if !is_shared && fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_file_of_a_dead_process_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = UnixSocketFile::open(&path, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = UnixSocketFile::open(&path, None).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "another process listens there");
        drop(first);
        assert!(!path.exists(), "the file goes with the server");
        // A process that was killed leaves its file behind.
        drop(net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(UnixSocketFile::open(&path, None).unwrap());
        fs::write(&path, "text").unwrap();
        assert_eq!(UnixSocketFile::open(&path, None).map(|_| ()).unwrap_err().to_string(), "the file is no socket");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    /// Goal: a socket that two processes have keeps its file until the last one ends. Method: both in this process, with a
    /// client that waits in the queue while they change.
    #[tokio::test]
    async fn a_shared_socket_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = UnixSocketFile::open(&path, None).unwrap();
        let share = |socket: &UnixSocketFile| {
            let share = socket.share().unwrap();
            share.note_shared(true);
            share.socket
        };
        // The next process ends before it serves.
        drop(UnixSocketFile::open(&path, Some(share(&first))).unwrap());
        let _client = UnixStream::connect(&path).await.unwrap();
        let next = UnixSocketFile::open(&path, Some(share(&first))).unwrap();
        drop(first);
        next.accept().await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        next.own();
        let given = share(&next);
        next.own();
        fs::remove_file(&path).unwrap();
        let fresh = UnixSocketFile::open(&path, Some(given)).unwrap();
        drop(next);
        UnixStream::connect(&path).await.unwrap();
        drop(fresh);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    /// Goal: a client whose host vanished does not keep its connection. Method: the options of an accepted connection, which
    /// decide when the kernel ends it.
    #[tokio::test]
    async fn silent_clients_are_probed() {
        let listener =
            bind_tcp((tcp::Ipv4Addr::LOCALHOST, 0).into(), limits::SOCKET_UNSENT_BYTES).unwrap().listen(1).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let options = SockRef::from(&accepted);
        assert!(options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), limits::KEEPALIVE);
        assert_eq!(options.tcp_keepalive_interval().unwrap(), limits::KEEPALIVE_EVERY);
        assert_eq!(options.tcp_keepalive_retries().unwrap(), limits::KEEPALIVE_TRIES);
    }
}
