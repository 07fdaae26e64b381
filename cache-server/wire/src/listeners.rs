//! The sockets on which the server listens: one address, and a Unix socket if the settings name one.
//!
//! INVARIANT: a connection is accepted once a slot is free for it, whichever socket it comes from. INVARIANT: only the
//! user of this process can connect to the Unix socket.

use std::{
    fs, io,
    net::{self, SocketAddr},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
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

/// A Unix socket with its file, which is removed with it.
pub struct UnixSocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Number of the file, in whose place another server may have put its own.
    inode: u64,
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
pub fn adopt_tcp(listener: net::TcpListener, unsent_bytes: u32) -> io::Result<TcpListener> {
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
    /// Listens at `path`. Replaces the file of a process that has ended.
    ///
    /// # Errors
    /// As for [`Self::beside`].
    pub fn bind(path: &Path) -> io::Result<Self> {
        let mut socket = Self::beside(path, None)?;
        socket.place(path)?;
        Ok(socket)
    }

    /// Listens beside `path`, until [`Self::place`]. `before` is the process that may listen there until then.
    ///
    /// # Errors
    /// Another process listens there, the file is no socket, or the folder cannot be written.
    pub fn beside(path: &Path, before: Option<i32>) -> io::Result<Self> {
        check_place(path, before)?;
        // Bound under another name: no other user connects before the permissions are set.
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        let _ = fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh)?;
        let owned = fs::set_permissions(&fresh, fs::Permissions::from_mode(SOCKET_MODE))
            .and_then(|()| fs::symlink_metadata(&fresh));
        match owned {
            Ok(file) => Ok(Self { listener, path: fresh, inode: file.ino() }),
            Err(error) => {
                let _ = fs::remove_file(&fresh);
                Err(error)
            }
        }
    }

    /// Moves the socket to `path`, in place of one that is there.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn place(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }
}

/// Refuses a path with a file that is no socket, or at which another process than `before` listens.
fn check_place(path: &Path, before: Option<i32>) -> io::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is no socket"));
    }
    let Ok(stream) = std::os::unix::net::UnixStream::connect(path) else { return Ok(()) };
    stream.set_nonblocking(true)?;
    let found = UnixStream::from_std(stream)?.peer_cred()?.pid();
    if before.is_some() && found == before {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"))
}

impl UnixSocketFile {
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

/// Permissions of the Unix socket: its owner reads and writes.
const SOCKET_MODE: u32 = 0o600;

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
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
        let first = UnixSocketFile::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = UnixSocketFile::bind(&path).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "another process listens there");
        drop(first);
        assert!(!path.exists(), "the file goes with the server");
        // A process that was killed leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(UnixSocketFile::bind(&path).unwrap());
        fs::write(&path, "text").unwrap();
        assert_eq!(UnixSocketFile::bind(&path).map(|_| ()).unwrap_err().to_string(), "the file is no socket");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[tokio::test]
    async fn only_the_socket_of_the_process_before_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = UnixSocketFile::bind(&path).unwrap();
        let this = i32::try_from(std::process::id()).unwrap();
        let error = UnixSocketFile::beside(&path, Some(this + 1)).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "another process listens there");
        let mut next = UnixSocketFile::beside(&path, Some(this)).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), first.inode, "the first one is still there");
        next.place(&path).unwrap();
        drop(first);
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), next.inode, "the file of the next one stays");
        drop(next);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        fs::write(&path, "text").unwrap();
        let error = UnixSocketFile::beside(&path, Some(this)).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the file is no socket");
    }

    /// Goal: a client whose host vanished does not keep its connection. Method: the options of an accepted connection, which
    /// decide when the kernel ends it.
    #[tokio::test]
    async fn silent_clients_are_probed() {
        let listener =
            bind_tcp((net::Ipv4Addr::LOCALHOST, 0).into(), limits::SOCKET_UNSENT_BYTES).unwrap().listen(1).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let options = SockRef::from(&accepted);
        assert!(options.keepalive().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), limits::KEEPALIVE);
        assert_eq!(options.tcp_keepalive_interval().unwrap(), limits::KEEPALIVE_EVERY);
        assert_eq!(options.tcp_keepalive_retries().unwrap(), limits::KEEPALIVE_TRIES);
    }
}
