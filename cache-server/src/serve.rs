//! The start of a server, and its shutdown. `cache-server-wire` serves the connections in between.
//!
//! INVARIANT: the address is bound before anything is loaded, and no connection is accepted before everything is
//! loaded.

mod handler;
mod upgrade;

use std::{
    convert::Infallible,
    fmt,
    fs::OpenOptions,
    future, io,
    net::{self, SocketAddr},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use tokio::{
    net::{TcpListener, TcpSocket},
    task::{JoinError, JoinSet},
    time::{Instant, timeout, timeout_at},
};

pub use cache_server_wire::tls::TlsError;

use access_rules::authentication::certificate::ServerNames;
use cache_server_wire::{
    accept,
    handler::{ConnectionSettings, ConnectionShared},
    listeners::{Listeners, UnixSocketFile, adopt_tcp, bind_tcp},
    tls::{Acceptor, ClientVerifiers},
};

use self::{
    handler::AppHandler,
    upgrade::{Departure, Predecessor, UpgradeError},
};
#[cfg(feature = "durable")]
use crate::storage::durable::DataFolderError;
#[cfg(feature = "etcd")]
use crate::storage::etcd::EtcdOpenError;
#[cfg(feature = "workload")]
use crate::workload::populate::{self, PopulateError};
use crate::{
    access::{
        authenticate::{Authenticator, assemble::AuthenticationError, certificates::ClientAuthorities},
        metrics::AuthenticationMetrics,
    },
    allocator,
    app::{App, StartPart},
    cacher::HandedStates,
    config::{AuthorizationConfigError, Config, KeySource},
    limits,
    storage::folder::FolderError,
    stored::ExistingObjects,
    upstream::{error::UpstreamError, gateway::Upstream},
    watched::FileWatcher,
    workload::{
        cluster_objects, flow_objects,
        manifests::{self, LoadError},
    },
};

/// Reason why a server cannot start, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Callers would be served without knowing them.
    #[error(
        "will not listen on {0}, which is no loopback address: callers must prove who they are, over TLS; give --tls-cert, \
         --tls-key, and --client-ca-file, --token-auth-file, --service-account-issuer, --oidc-issuer-url or --token-review"
    )]
    NotAuthenticated(SocketAddr),
    /// Bearer tokens would be sent in the clear.
    #[error(
        "will not listen on {0}, which is no loopback address: tokens would be sent in the clear; give --tls-cert and --tls-key"
    )]
    NotEncrypted(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {}", reason(source))]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The Unix socket cannot be bound.
    #[error("cannot listen on {}: {source}", path.display())]
    ListenUnix {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process that runs goes on.
    #[error("cannot take over from the running server, which goes on: {0}")]
    Upgrade(String),
    /// The settings of authentication cannot be used.
    #[error("cannot authenticate callers: {0}")]
    Authentication(#[from] AuthenticationError),
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] TlsError),
    /// The settings of authorization contradict each other.
    #[error(transparent)]
    Authorization(#[from] AuthorizationConfigError),
    /// The audit log cannot be written.
    #[error("cannot write the audit log {}: {source}", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The upstream API server cannot be used.
    #[error("cannot use the upstream: {0}")]
    Upstream(#[from] UpstreamError),
    /// The caches cannot be saved.
    #[error("cannot use the state folder: {0}")]
    State(#[from] FolderError),
    /// The folder of the objects cannot be used.
    #[cfg(feature = "durable")]
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
    #[cfg(feature = "workload")]
    #[error("cannot populate: {0}")]
    Populate(#[from] PopulateError),
    /// The settings need a feature of this crate that is not built in.
    #[error("{use_case} needs a build with the feature {feature}")]
    NotBuilt {
        /// The flag of the settings, or the lack of one.
        use_case: &'static str,
        /// The feature.
        feature: &'static str,
    },
}

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse { "the port is in use".to_owned() } else { error.to_string() }
}

impl From<UpgradeError> for StartError {
    fn from(error: UpgradeError) -> Self {
        Self::Upgrade(error.to_string())
    }
}

/// The outcome of a start, or of an attempt to finish one.
type StartOutcome = Result<(), StartError>;

/// A server with its address bound and its objects loaded, ready to serve.
pub struct Server {
    listeners: Listeners,
    /// Socket by which the next process takes over.
    upgrades: Option<UnixSocketFile>,
    /// `None` unless this process takes over from another one.
    predecessor: Option<Predecessor>,
    address: SocketAddr,
    app: Arc<App>,
    tls: Option<Arc<Acceptor>>,
    /// The rest of the start, if the API server behind this server has not answered yet.
    starting: JoinSet<StartOutcome>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A socket of the server, before it accepts connections.
enum TcpPlace {
    /// Connections are refused until all is loaded.
    Bound(TcpSocket),
    /// Connections wait.
    Listening(TcpListener),
}

impl TcpPlace {
    /// Uses the socket of the process before, or of systemd; or binds the address.
    fn open(given: Option<net::TcpListener>, address: SocketAddr, unsent_bytes: u32) -> io::Result<Self> {
        Ok(match given {
            Some(given) => Self::Listening(adopt_tcp(given, unsent_bytes)?),
            None => Self::Bound(bind_tcp(address, unsent_bytes)?),
        })
    }

    fn listen(self) -> io::Result<TcpListener> {
        match self {
            Self::Bound(socket) => socket.listen(limits::LISTEN_BACKLOG),
            Self::Listening(listener) => Ok(listener),
        }
    }
}

/// The Unix sockets of the settings: for requests, and for the next process.
struct UnixPlaces {
    requests: Option<UnixSocketFile>,
    upgrades: Option<UnixSocketFile>,
}

impl UnixPlaces {
    /// Opens the sockets beside their places, where `before` may still listen.
    fn open(config: &Config, before: Option<&Predecessor>) -> Result<Self, StartError> {
        let before = before.and_then(Predecessor::process);
        let open = |path: &Option<PathBuf>| {
            let path = path.as_deref()?;
            Some(UnixSocketFile::beside(path, before).map_err(Self::failed(path)))
        };
        let (requests, upgrades) = (open(&config.authentication.unix_socket), open(&config.upgrade_socket));
        Ok(Self { requests: requests.transpose()?, upgrades: upgrades.transpose()? })
    }

    /// Puts the sockets in their places.
    fn place(&mut self, config: &Config) -> StartOutcome {
        let requests = self.requests.as_mut().zip(config.authentication.unix_socket.as_deref());
        for (socket, path) in requests.into_iter().chain(self.upgrades.as_mut().zip(config.upgrade_socket.as_deref())) {
            socket.place(path).map_err(Self::failed(path))?;
        }
        Ok(())
    }

    fn failed(path: &Path) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::ListenUnix { path: path.to_owned(), source }
    }
}

/// Reads the files of the settings, whose mistakes must not end the process before.
async fn rehearse(config: &Config) -> StartOutcome {
    let files = FileWatcher::default();
    let authenticator =
        Authenticator::load(&config.authentication, None, AuthenticationMetrics::default(), true, &files).await?;
    load_tls(config, authenticator.authorities(), &files).await?;
    if let Some(path) = config.audit.as_ref().and_then(|audit| audit.file.as_ref()) {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|source| StartError::Audit { path: path.clone(), source })?;
    }
    Ok(())
}

/// Loads the certificate of the settings; `None` without one.
async fn load_tls(
    config: &Config,
    authorities: Option<&Arc<ClientAuthorities>>,
    files: &FileWatcher,
) -> Result<Option<Arc<Acceptor>>, TlsError> {
    let Some(tls) = config.tls.clone() else { return Ok(None) };
    let verifiers = authorities.cloned().map(|all| -> ClientVerifiers { Box::new(move || all.verifier()) });
    Ok(Some(Arc::new(Acceptor::load(tls, verifiers, files).await?)))
}

/// Builds the app over the storage that the settings name, with the states of the process before if this one takes over.
async fn assemble(config: Config, handed: Option<HandedStates>) -> Result<App, StartError> {
    #[cfg(feature = "upstream")]
    if let Some(upstream) = config.upstream.clone() {
        let files = FileWatcher::default();
        let addresses = crate::upstream::connect::UpstreamAddresses::load(&upstream, &files).await?;
        return Ok(App::with_upstream(config, addresses, &upstream, files, handed)?);
    }
    #[cfg(feature = "etcd")]
    if let Some(etcd) = config.etcd.clone() {
        return Ok(App::with_etcd(config, &etcd, handed.unwrap_or_default()).await?);
    }
    #[cfg(feature = "durable")]
    if let Some(folder) = config.data_dir.clone() {
        // The process before lets its requests finish.
        let wait = handed.map(|_| limits::UPGRADE_WARM_WAIT + config.grace).unwrap_or_default();
        return Ok(App::durable(config, folder, wait).await?);
    }
    // Objects in memory are not handed over.
    drop(handed);
    #[cfg(feature = "embedded")]
    return Ok(App::new(config));
    #[cfg(not(feature = "embedded"))]
    unreachable!("check_features")
}

/// Refuses settings whose feature is not built in.
fn check_features(config: &Config) -> Result<(), StartError> {
    // The client of the upstream fetches the keys of issuers, too.
    let is_fetched = |keys: &KeySource| !matches!(keys, KeySource::File(_));
    let needed = [
        (config.upstream.is_some(), "--upstream", "upstream", cfg!(feature = "upstream")),
        (config.etcd.is_some(), "--etcd-endpoints", "etcd", cfg!(feature = "etcd")),
        (config.data_dir.is_some(), "--data-dir", "durable", cfg!(feature = "durable")),
        (
            config.authentication.service_accounts.as_ref().is_some_and(|accounts| is_fetched(&accounts.keys)),
            "--service-account-issuer without a file in --service-account-jwks",
            "upstream",
            cfg!(feature = "upstream"),
        ),
        (
            config.authentication.oidc.as_ref().is_some_and(|oidc| is_fetched(&oidc.keys)),
            "--oidc-issuer-url without a file in --oidc-jwks",
            "upstream",
            cfg!(feature = "upstream"),
        ),
        (config.populate.is_some(), "--populate", "workload", cfg!(feature = "workload")),
        (config.upstream.is_none(), "a server without --upstream", "embedded", cfg!(feature = "embedded")),
    ];
    match needed.into_iter().find(|(is_needed, .., is_built)| *is_needed && !is_built) {
        Some((_, use_case, feature, _)) => Err(StartError::NotBuilt { use_case, feature }),
        None => Ok(()),
    }
}

/// Begins the work of the server. Behind a server that does not answer, goes on in the background after
/// [`UPSTREAM_START_WAIT`](limits::UPSTREAM_START_WAIT), so that probes find a server that lives and is not ready.
/// Returns what is left of it.
///
/// With `whole`, waits until all has begun: another process serves meanwhile.
async fn begin_in_time(app: &Arc<App>, whole: bool) -> Result<JoinSet<StartOutcome>, StartError> {
    let mut starting = JoinSet::new();
    if whole {
        let begun = timeout(limits::UPGRADE_WARM_WAIT, begin(Arc::clone(app))).await;
        begun.unwrap_or_else(|_| Err(UpgradeError::NotReady("the API server".to_owned()).into()))?;
        return Ok(starting);
    }
    if app.config.upstream.as_ref().is_none_or(|upstream| upstream.listens_when_ready) {
        begin(Arc::clone(app)).await?;
        return Ok(starting);
    }
    starting.spawn(begin(Arc::clone(app)));
    match timeout(limits::UPSTREAM_START_WAIT, starting.join_next()).await {
        Ok(Some(Ok(started))) => started?,
        // As without a task of its own.
        Ok(Some(Err(error))) => std::panic::resume_unwind(error.into_panic()),
        Ok(None) => {}
        Err(_) => tracing::warn!(timeout = ?limits::UPSTREAM_START_WAIT, "upstream start wait timed out"),
    }
    Ok(starting)
}

async fn begin(app: Arc<App>) -> Result<(), StartError> {
    app.start().await;
    app.progress.wait_for(StartPart::Settings);
    finish(&app).await
}

/// Repeats the end of a start that failed, until it succeeds.
async fn finish_again(app: Arc<App>) -> Result<(), StartError> {
    tokio::time::sleep(limits::START_RETRY_PAUSE).await;
    finish(&app).await
}

/// Applies the settings that need the types or the storage. Nothing of it was done if it fails behind an API server, where
/// no objects are loaded.
async fn finish(app: &Arc<App>) -> Result<(), StartError> {
    app.check_scopes()?;
    // Read before anything is loaded, which may be what it looks for.
    #[cfg(feature = "workload")]
    let populate = match &app.config.populate {
        Some(spec) if populate::is_done(app, spec).await? => {
            tracing::warn!(reason = "the storage is in use already", "populate skipped");
            None
        }
        populate => populate.as_ref(),
    };
    if app.config.acts_as_cluster {
        cluster_objects::into_storage(app).await;
    }
    let existing = if app.config.objects_last() { ExistingObjects::Keep } else { ExistingObjects::Refuse };
    manifests::into_storage(app, &app.config.load, existing, &mut 0).await?;
    #[cfg(feature = "workload")]
    if let Some(spec) = populate {
        populate::into_storage(app, spec).await?;
    }
    flow_objects::begin(app).await?;
    app.progress.complete();
    Ok(())
}

/// Notes the outcome of a start behind a server that listens already. Repeats what failed: the cause may be a definition
/// that is missing, or a file.
fn note_start(app: &Arc<App>, started: Result<StartOutcome, JoinError>, starting: &mut JoinSet<StartOutcome>) {
    let reason = match started {
        Ok(Ok(())) => return tracing::info!("start completed"),
        Ok(Err(error)) => {
            starting.spawn(finish_again(Arc::clone(app)));
            error.to_string()
        }
        Err(error) => error.to_string(),
    };
    if app.progress.fail(reason.clone()) {
        tracing::error!(error = reason, "start failed");
    }
}

/// Notes the outcomes of a start behind a server that listens already, for as long as it is polled.
async fn follow_start(app: &Arc<App>, starting: &mut JoinSet<StartOutcome>) -> Infallible {
    while let Some(started) = starting.join_next().await {
        note_start(app, started, starting);
    }
    future::pending().await
}

impl Server {
    /// Binds the address, then loads and populates. Connections wait in the listen queue until [`Self::serve`].
    ///
    /// # Errors
    /// [`StartError`]; no request was served, and the address is released.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        Self::start(config, None).await
    }

    /// Like [`bind`](Self::bind), with a socket that listens already, such as systemd's, in place of [`Config::listen`].
    ///
    /// # Errors
    /// [`StartError`]; no request was served.
    pub async fn bind_on(config: Config, listener: net::TcpListener) -> Result<Self, StartError> {
        Self::start(config, Some(listener)).await
    }

    /// Boxed, so that the start is compiled with this crate, and not again with every program that starts a server.
    fn start(config: Config, given: Option<net::TcpListener>) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::bind_here(config, given))
    }

    async fn bind_here(mut config: Config, given: Option<net::TcpListener>) -> Result<Self, StartError> {
        check_features(&config)?;
        let failed = |address| move |source| StartError::Listen { address, source };
        if let Some(given) = &given {
            config.listen = given.local_addr().map_err(failed(config.listen))?;
        }
        let address = config.listen;
        check_exposure(&config)?;
        config.authorization.check(config.upstream.is_some())?;
        let mut predecessor = Predecessor::begin(&config).await?;
        let given = predecessor.as_mut().and_then(Predecessor::take_listener).or(given);
        let socket = TcpPlace::open(given, address, config.unsent_bytes).map_err(failed(address))?;
        let handed = predecessor.as_mut().map(Predecessor::take_states);
        let mut unix = UnixPlaces::open(&config, predecessor.as_ref())?;
        match &predecessor {
            Some(predecessor) if predecessor.holds_folder() => {
                rehearse(&config).await?;
                predecessor.go().await?;
            }
            Some(_) => {}
            None => unix.place(&config)?,
        }
        let mut app = assemble(config, handed).await?;
        let (authentication, metrics) = (&app.config.authentication, app.metrics.authentication.clone());
        let own_requests = app.upstream().map(Upstream::own_requests);
        let is_open = !app.access.authorizer.checks_again();
        let authenticator = Authenticator::load(authentication, own_requests, metrics, is_open, &app.files).await?;
        if !authentication.names_callers() && !is_open {
            tracing::warn!("authorization without authentication: every caller is anonymous");
        }
        if authenticator.is_configured() && !authentication.is_configured() && !authenticator.serves_anonymous_callers()
        {
            tracing::warn!("requests over TCP get 401: only the Unix socket names callers");
        }
        app.access.authenticate_by(authenticator);
        let tls = load_tls(&app.config, app.access.client_authorities(), &app.files).await?;
        app.open_audit_log().map_err(|(path, source)| StartError::Audit { path, source })?;
        let app = Arc::new(app);
        app.keep_checking_rights();
        let starting = begin_in_time(&app, predecessor.is_some()).await?;
        // Loading leaves garbage behind that would otherwise stay resident.
        allocator::trim();
        let tcp = socket.listen().map_err(failed(address))?;
        let address = tcp.local_addr().map_err(failed(address))?;
        if let Some(predecessor) = &predecessor {
            predecessor.agree(&app).await?;
            // The process before still serves its own, whose files these replace.
            unix.place(&app.config)?;
        }
        let UnixPlaces { requests, upgrades } = unix;
        Ok(Self { listeners: Listeners { tcp, unix: requests }, upgrades, predecessor, address, app, tls, starting })
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
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        self.serve_until(Box::pin(shutdown)).await;
    }

    /// Boxed for the same reason as in `start`.
    fn serve_until(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(self.serve_here(shutdown))
    }

    async fn serve_here(self, mut shutdown: BoxFuture<'static, ()>) {
        let Self { listeners, upgrades, predecessor, app, tls, mut starting, .. } = self;
        let trimmed = Arc::clone(&app);
        let trimming = app.tasks.spawn("memory", move || {
            let app = Arc::clone(&trimmed);
            async move { allocator::trim_after_bursts(&app.metrics, &app.caches).await }
        });
        let forgetting = tokio::spawn(drop_idle_forms());
        // An error means that no descriptor is free: no process can take over.
        let listener = upgrades.as_ref().and_then(|_| listeners.tcp.as_fd().try_clone_to_owned().ok());
        let mut departure = Departure::Stopped;
        let stop = async {
            tokio::select! {
                biased;
                () = &mut shutdown => {}
                replaced = upgrade::replaced(upgrades, listener, &app) => departure = replaced,
                never = follow_start(&app, &mut starting) => match never {},
            }
        };
        let shared = ConnectionShared { handler: AppHandler(Arc::clone(&app)), tls, settings: settings(&app) };
        if let Some(predecessor) = predecessor {
            predecessor.serves();
        }
        let mut connections = accept::serve(listeners, shared, stop).await;
        tracing::info!(connections = connections.count(), ?departure, "drain started");
        if departure != Departure::Stopped {
            connections.used(limits::UPGRADE_UNUSED_WAIT).await;
        }
        if departure == Departure::Replaced {
            connections.close();
            tokio::select! {
                () = upgrade::end_watches(&app) => {}
                () = shutdown => {}
            }
        }
        // Before the connections close: each of them ends after its open requests, and so after its watch.
        app.metrics.open_watches().shut_down();
        app.caches.shut_down();
        let deadline = Instant::now() + app.config.grace;
        if !connections.drained(deadline).await {
            let (connections, watches) = (connections.count(), app.metrics.open_watches().count());
            tracing::warn!(connections, watches, grace = ?app.config.grace, "drain timed out");
        }
        app.metrics.open_watches().flush();
        // The caches ended when the drain started. A disk that needs longer keeps an older state.
        let _ = timeout_at(deadline, app.caches.saved()).await;
        if let Some(audit) = &app.access.audit {
            let _ = timeout_at(deadline.max(Instant::now() + limits::AUDIT_WAIT_MAX), audit.flushed()).await;
        }
        trimming.abort();
        forgetting.abort();
    }
}

/// Drops protobuf messages and compressed objects that no client uses, for ever.
async fn drop_idle_forms() {
    loop {
        tokio::time::sleep(watch_cache::limits::MESSAGES_IDLE).await;
        watch_cache::drop_idle_messages();
        watch_cache::drop_idle_pieces();
    }
}

/// The settings of connections.
fn settings(app: &App) -> ConnectionSettings {
    let config = &app.config;
    ConnectionSettings {
        connections_max: config.connections_max,
        socket_stuck: config.socket_stuck,
        forwards_bodies: app.upstream().is_some(),
        listed: ServerNames::listed(&config.authentication.hosts),
    }
}

/// Refuses to serve unknown callers, or to receive tokens in the clear, beyond this machine.
fn check_exposure(config: &Config) -> Result<(), StartError> {
    let (address, authentication) = (config.listen, &config.authentication);
    if address.ip().is_loopback() {
        return Ok(());
    }
    match (config.tls.is_some(), authentication.is_configured()) {
        (true, true) => Ok(()),
        (_, false) if authentication.insecure_anonymous => Ok(()),
        (_, false) => Err(StartError::NotAuthenticated(address)),
        (false, true) => Err(StartError::NotEncrypted(address)),
    }
}

#[cfg(test)]
mod tests;
