//! The listening socket: accepts connections, hands each request to `http`, and shuts down cleanly.
//!
//! INVARIANT: the address is bound before anything is loaded, and no connection is accepted before everything is
//! loaded.

mod connection;
mod flood;
mod handler;
mod host;
mod http1;
mod http2;
mod origin;
mod socket;
mod takeover;
mod tap;
mod tls;
mod tunnel;
mod watch_sink;
mod websocket;

use std::{fmt, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};

pub use self::tls::TlsError;

use self::{connection::AcceptedConnection, tls::Acceptor};
#[cfg(feature = "etcd")]
use crate::storage::etcd::EtcdOpenError;
use crate::{
    access::peer::Peer,
    allocator,
    app::App,
    config::Config,
    limits,
    storage::{backup::ExistingObjects, durable::DataFolderError, folder::FolderError},
    upstream::connect::{UpstreamAddresses, UpstreamError},
    workload::{
        manifests::{self, LoadError},
        populate::{self, PopulateError},
    },
};

/// Reason why a server cannot start, in one line.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Anyone who can connect could write, so only loopback addresses are allowed.
    #[error("will not listen on {0}: there is no authentication, so only loopback addresses are allowed")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {}", reason(source))]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] TlsError),
    /// The upstream API server cannot be used.
    #[error("cannot use the upstream: {0}")]
    Upstream(#[from] UpstreamError),
    /// The caches cannot be saved.
    #[error("cannot use the state folder: {0}")]
    State(#[from] FolderError),
    /// The folder of the objects cannot be used.
    #[error("cannot use the data folder: {0}")]
    Data(#[from] DataFolderError),
    /// The etcd of the objects cannot be used.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] EtcdOpenError),
    /// A manifest cannot be used.
    #[error("cannot load {0}")]
    Load(#[from] LoadError),
    /// The generated objects cannot be stored.
    #[error("cannot populate: {0}")]
    Populate(#[from] PopulateError),
}

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse { "the port is in use".to_owned() } else { error.to_string() }
}

/// A server with its address bound and its objects loaded, ready to serve.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    tls: Option<Arc<Acceptor>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Builds the app over the storage that the settings name.
async fn assemble(config: Config) -> Result<App, StartError> {
    if let Some(upstream) = config.upstream.clone() {
        return Ok(App::with_upstream(config, UpstreamAddresses::load(&upstream).await?, &upstream)?);
    }
    #[cfg(feature = "etcd")]
    if let Some(etcd) = config.etcd.clone() {
        return Ok(App::with_etcd(config, &etcd).await?);
    }
    match config.data_dir.clone() {
        Some(folder) => Ok(App::durable(config, folder).await?),
        None => Ok(App::new(config)),
    }
}

impl Server {
    /// Binds the address, then loads and populates. Connections wait in the listen queue until [`Self::serve`].
    ///
    /// # Errors
    /// [`StartError`]; no request was served, and the address is released.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let address = config.listen;
        if !address.ip().is_loopback() {
            return Err(StartError::NotLoopback(address));
        }
        let failed = |source| StartError::Listen { address, source };
        let socket = socket(address, config.unsent_bytes).map_err(failed)?;
        let tls = match &config.tls {
            Some(files) => Some(Arc::new(Acceptor::load(files.clone()).await?)),
            None => None,
        };
        let app = Arc::new(assemble(config).await?);
        app.start().await;
        app.keep_checking_rights();
        let existing = if app.config.objects_last() { ExistingObjects::Keep } else { ExistingObjects::Refuse };
        manifests::into_storage(&app, &app.config.load, existing, &mut 0).await?;
        if let Some(spec) = &app.config.populate {
            populate::into_storage(&app, spec).await?;
        }
        // Loading leaves garbage behind that would otherwise stay resident.
        allocator::trim();
        let listener = socket.listen(limits::LISTEN_BACKLOG).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, app, tls })
    }

    /// Returns the bound address, with the real port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the scheme of the server's URLs: `http` or `https`.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns the parts that its requests share.
    #[must_use]
    pub const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `shutdown` resolves. Then it stops accepting, ends watches cleanly, lets requests finish for at
    /// most [`Config::grace`], and drops the remaining connections.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, address, app, tls } = self;
        let (closing, closed) = watch::channel(());
        let mut connections = JoinSet::new();
        let trimming = tokio::spawn({
            let app = Arc::clone(&app);
            async move { allocator::trim_after_bursts(&app.metrics, &app.caches).await }
        });
        let slots = Arc::new(Semaphore::new(app.config.connections_max));
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => {
                    report(ended);
                    app.crowd.note(&slots, app.config.connections_max);
                }
                (stream, peer, slot) = accept(&listener, &slots) => {
                    app.crowd.note(&slots, app.config.connections_max);
                    let (app, tls, closed) = (Arc::clone(&app), tls.clone(), closed.clone());
                    let connection = AcceptedConnection { app, tls, bound: address.ip(), peer: Peer::tcp(peer), closed, slot };
                    connections.spawn(connection.run(stream));
                }
            }
        }
        drop(listener);
        tracing::info!(connections = connections.len(), "drain started");
        // Ends the watches cleanly; dropping `closing` then ends each connection after its open requests.
        app.caches.shut_down();
        drop(closing);
        let deadline = Instant::now() + app.config.grace;
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout_at(deadline, drained).await.is_err() {
            tracing::warn!(connections = connections.len(), grace = ?app.config.grace, "drain timed out");
        }
        // The caches ended when the drain started. A disk that needs longer keeps an older state.
        let _ = timeout_at(deadline, app.caches.saved()).await;
        trimming.abort();
    }
}

/// Creates a bound socket that does not listen yet. Accepted connections inherit its options.
fn socket(address: SocketAddr, unsent_bytes: u32) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a restarted server rebind its port at once; a port in use is still an error.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(limits::SOCKET_SEND_BYTES)?;
    #[cfg(target_os = "linux")]
    {
        let options = socket2::SockRef::from(&socket);
        options.set_tcp_notsent_lowat(unsent_bytes)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = unsent_bytes;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts the next connection once a slot is free.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let slot = Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, slot),
            Err(error) => {
                // Usually the process is out of file descriptors, and other connections must end first.
                tracing::warn!(%error, delay = ?ACCEPT_PAUSE, "connection accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Pause after a failed accept, so that an exhausted process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection task failed");
    }
}

#[cfg(test)]
mod tests;
