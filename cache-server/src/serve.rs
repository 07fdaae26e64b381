//! The start of a server, and its shutdown. `cache-server-wire` serves the connections in between.
//!
//! INVARIANT: the address is bound before anything is loaded, and no connection is accepted before everything is
//! loaded.

mod handler;
mod upgrade;

use std::{
    convert::Infallible,
    fmt,
    fs::File,
    future, io,
    net::{self, SocketAddr},
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::{BoxFuture, join};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, sleep, timeout, timeout_at},
};

pub use cache_server_wire::tls::TlsError;

use access_rules::authentication::certificate::ServerNames;
use cache_server_wire::{
    accept::{self, ConnectionGate, OpenConnections},
    handler::{ConnectionSettings, ConnectionShared},
    http2::GOODBYES_SPREAD,
    listeners::{GivenUnixSocket, Listeners, UnixSocketFile, adopt_tcp, bind_tcp},
    tls::{Acceptor, ClientVerifiers},
};

use self::{
    handler::AppHandler,
    upgrade::{Predecessor, SocketShares, UpgradeError},
};
#[cfg(feature = "durable")]
use crate::storage::durable::DataFolderError;
#[cfg(feature = "etcd")]
use crate::storage::etcd::EtcdOpenError;
#[cfg(feature = "workload")]
use crate::workload::populate::{self, PopulateError};
use crate::{
    access::authenticate::{Authenticator, assemble::AuthenticationError, certificates::ClientAuthorities},
    allocator,
    app::{App, StartPart},
    cacher::HandedStates,
    config::{AuthorizationConfigError, Config, KeySource},
    limits, openapi,
    storage::folder::FolderError,
    stored::ExistingObjects,
    traces::Traces,
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
    /// Forks are allowed where they cannot be, or must not be.
    #[error("--forks {0}")]
    Forks(&'static str),
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
    /// The collector of traces cannot be used.
    #[error("cannot send traces: {0}")]
    Traces(String),
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
    /// Told once another process replaces this one.
    departed: Option<oneshot::Sender<()>>,
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
    /// Opens the sockets: those of the process before where the settings still name them.
    fn open(config: &Config, mut before: Option<&mut Predecessor>) -> Result<Self, StartError> {
        let open = |path: &Option<PathBuf>, given: Option<GivenUnixSocket>| {
            let path = path.as_deref()?;
            let failed = |source| StartError::ListenUnix { path: path.to_owned(), source };
            Some(UnixSocketFile::open(path, given).map_err(failed))
        };
        let requests = before.as_mut().and_then(|before| before.take_requests());
        let upgrades = before.and_then(Predecessor::take_upgrades);
        let requests = open(&config.authentication.unix_socket, requests).transpose()?;
        Ok(Self { requests, upgrades: open(&config.upgrade_socket, upgrades).transpose()? })
    }
}

/// Reads the files that are needed after the process before has left its folder: their mistakes must not end it.
async fn rehearse(config: &Config) -> StartOutcome {
    flow_objects::check(&config.flow.source)?;
    let load = config.load.clone();
    spawn_blocking(move || manifests::verify(&load)).await.expect("reading returns its errors")?;
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

/// Builds the app over the storage that the settings name, with the states of the process before if this one takes over, or
/// the `copy` of its file. Waits for `folder_wait` until a process without a copy has left the folder.
async fn assemble(
    config: Config,
    handed: Option<HandedStates>,
    copy: Option<File>,
    folder_wait: Duration,
) -> Result<App, StartError> {
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
        return Ok(App::durable(config, folder, copy, folder_wait).await?);
    }
    // Objects in memory are not handed over.
    drop((handed, copy, folder_wait));
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
        (config.traces.is_some(), "--otlp-endpoint", "traces", cfg!(feature = "traces")),
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
/// Beside a process that serves, waits until all has begun. After one that has left its folder nothing else serves, so that
/// a failure is noted only.
async fn begin_in_time(app: &Arc<App>, before: Option<&Predecessor>) -> Result<JoinSet<StartOutcome>, StartError> {
    let mut starting = JoinSet::new();
    starting.spawn(begin(Arc::clone(app)));
    if let Some(before) = before {
        if before.holds_folder() {
            let started = starting.join_next().await.expect("it has begun");
            note_start(app, started, &mut starting);
            return Ok(starting);
        }
        tokio::select! {
            started = timeout(limits::UPGRADE_WARM_WAIT, starting.join_next()) => {
                let late = |_| UpgradeError::NotReady("the API server".to_owned());
                return outcome(started.map_err(late)?).map(|()| starting);
            }
            () = before.ended() => {}
        }
    }
    let waits = app.config.upstream.as_ref().is_none_or(|upstream| upstream.listens_when_ready);
    let wait = if waits { Duration::MAX } else { limits::UPSTREAM_START_WAIT };
    match timeout(wait, starting.join_next()).await {
        Ok(started) => outcome(started)?,
        Err(_) => tracing::warn!(timeout = ?wait, "upstream start wait timed out"),
    }
    Ok(starting)
}

/// Returns the outcome of a start that has ended. Resumes its panic.
fn outcome(started: Option<Result<StartOutcome, JoinError>>) -> StartOutcome {
    match started {
        Some(Ok(started)) => started,
        Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        None => Ok(()),
    }
}

async fn begin(app: Arc<App>) -> Result<(), StartError> {
    app.start().await;
    app.progress.wait_for(StartPart::Settings);
    finish(&app).await
}

/// Repeats the end of a start that failed, until it succeeds.
async fn finish_again(app: Arc<App>) -> Result<(), StartError> {
    sleep(limits::START_RETRY_PAUSE).await;
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

/// Notes the outcome of a start behind a server that listens already. Behind an API server it is repeated: the cause may be
/// a definition that is missing there. Elsewhere a failure may have created objects, and would create them again.
fn note_start(app: &Arc<App>, started: Result<StartOutcome, JoinError>, starting: &mut JoinSet<StartOutcome>) {
    let reason = match started {
        Ok(Ok(())) => return tracing::info!("start completed"),
        Ok(Err(error)) => {
            if app.upstream().is_some() {
                starting.spawn(finish_again(Arc::clone(app)));
            }
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
        check_forks(&config)?;
        config.authorization.check(config.upstream.is_some())?;
        let mut predecessor = Predecessor::begin(&config).await?;
        let given = predecessor.as_mut().and_then(Predecessor::take_listener).or(given);
        let socket = TcpPlace::open(given, address, config.unsent_bytes).map_err(failed(address))?;
        let UnixPlaces { requests, upgrades } = UnixPlaces::open(&config, predecessor.as_mut())?;
        let handed = predecessor.as_mut().map(Predecessor::take_states);
        // Before the process before leaves.
        let traces = Traces::open(&config).map_err(StartError::Traces)?;
        let (mut copy, mut folder_wait) = (None, Duration::ZERO);
        if let Some(predecessor) = predecessor.as_mut().filter(|predecessor| predecessor.holds_folder()) {
            rehearse(&config).await?;
            (copy, folder_wait) = (predecessor.take_copy(), limits::UPGRADE_WAIT);
        }
        let mut app = assemble(config, handed, copy, folder_wait).await?;
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
        app.traces = Arc::new(traces);
        let app = Arc::new(app);
        app.keep_checking_rights();
        if let Some(predecessor) = &predecessor {
            predecessor.take_folder(&app).await?;
        }
        let starting = begin_in_time(&app, predecessor.as_ref()).await?;
        // Loading leaves garbage behind that would otherwise stay resident.
        allocator::trim();
        let tcp = socket.listen().map_err(failed(address))?;
        let address = tcp.local_addr().map_err(failed(address))?;
        if let Some(predecessor) = &predecessor {
            predecessor.agree(&app).await?;
        }
        let (listeners, departed) = (Listeners { tcp, unix: requests }, None);
        Ok(Self { listeners, upgrades, predecessor, address, app, tls, departed, starting })
    }

    /// Tells `departed` once another process replaces this one.
    pub(crate) fn noting_departure(self, departed: oneshot::Sender<()>) -> Self {
        Self { departed: Some(departed), ..self }
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
        let Self { listeners, upgrades, predecessor, app, tls, departed, mut starting, .. } = self;
        let trimmed = Arc::clone(&app);
        let trimming = app.tasks.spawn("memory", move || {
            let app = Arc::clone(&trimmed);
            async move { allocator::trim_after_bursts(&app.metrics, &app.caches).await }
        });
        let forgetting = tokio::spawn(drop_idle(Arc::downgrade(&app)));
        // An error means that no descriptor is free: no process can take over.
        let shares = upgrades.as_ref().and_then(|upgrades| SocketShares::of(&listeners, upgrades).ok());
        listeners.unix.iter().chain(&upgrades).for_each(UnixSocketFile::own);
        let (mut is_replaced, gate) = (false, Arc::<ConnectionGate>::default());
        let stop = async {
            tokio::select! {
                biased;
                () = &mut shutdown => {}
                () = upgrade::replaced(upgrades, shares, &app, &gate) => is_replaced = true,
                never = follow_start(&app, &mut starting) => match never {},
            }
        };
        let shared = ConnectionShared { handler: AppHandler(Arc::clone(&app)), tls, settings: settings(&app) };
        if let Some(predecessor) = predecessor {
            predecessor.serves();
        }
        let mut connections = accept::serve(listeners, shared, Arc::clone(&gate), stop).await;
        tracing::info!(connections = connections.count(), is_replaced, "drain started");
        if is_replaced {
            if let Some(departed) = departed {
                let _ = departed.send(());
            }
            tokio::select! {
                () = leave(&mut connections, &app) => {}
                () = shutdown => {}
            }
        }
        // Before the connections close: each of them ends after its open requests, and so after its watch.
        app.metrics.open_watches().shut_down();
        app.forks.end_all();
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
        // Their requests end with them, and so do the spans of these.
        drop(connections);
        app.traces.shut_down(deadline).await;
        trimming.abort();
        forgetting.abort();
    }
}

/// Lets clients leave for the next process.
async fn leave(connections: &mut OpenConnections, app: &App) {
    connections.leave();
    // Before it knows that its connection ends, a client whose watch ends would watch here again.
    sleep(GOODBYES_SPREAD).await;
    join(upgrade::end_watches(app), connections.ended(Instant::now() + limits::ENDS_SPREAD)).await;
}

/// Drops protobuf messages, converted and compressed objects, and documents that no client uses, while the server lives.
async fn drop_idle(app: Weak<App>) {
    loop {
        sleep(watch_cache::limits::MESSAGES_IDLE).await;
        watch_cache::drop_idle_messages();
        watch_cache::drop_idle_pieces();
        let Some(app) = app.upgrade() else { return };
        openapi::drop_idle(&app);
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

/// Refuses forks for callers beyond this machine, and of objects that are not in memory.
fn check_forks(config: &Config) -> StartOutcome {
    let is_elsewhere = config.objects_last() || config.upstream.is_some();
    match (config.forks, config.listen.ip().is_loopback()) {
        (false, _) => Ok(()),
        (true, false) => Err(StartError::Forks("needs --listen with a loopback address")),
        (true, true) if is_elsewhere => {
            Err(StartError::Forks("needs objects in memory: leave out --data-dir, --etcd-endpoints and --upstream"))
        }
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
