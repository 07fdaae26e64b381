//! An API server for the tests of a program, and forks of it: each test gets its own copy of the objects, in less than a
//! millisecond.
//!
//! A test program starts one server, creates its definitions and objects there once, and forks it in each test. The server
//! has threads of its own, so that it may be kept in a `static` and outlives the runtime of the test that started it.
//! Clients such as kube's take [`ApiServer::url`].

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::{
    Server, StartError,
    app::{App, Fork},
    config::Config,
    route::FORKS,
};

/// A server on a free loopback port, or a fork of one. Dropping a fork ends it, and its watches. The server itself ends once
/// it and all of its forks are dropped.
pub struct ApiServer {
    url: String,
    app: Arc<App>,
    /// Name of the fork; `None` for the server itself.
    fork: Option<String>,
    process: Arc<ServerThread>,
}

/// The thread of a server. Ends with its last user.
struct ServerThread {
    /// URL of the server itself.
    url: String,
    runtime: Handle,
    /// Ends the server when it is dropped.
    _stop: oneshot::Sender<()>,
}

/// Starts a server that acts as a new cluster, with its objects in memory: it has the namespaces of a cluster, and enforces
/// the schemas of custom resources. Every caller may do everything.
///
/// # Panics
/// If the server cannot start, such as without a free port.
pub async fn start() -> ApiServer {
    let config = Config { acts_as_cluster: true, ..Config::default() };
    start_with(config).await.unwrap_or_else(|error| panic!("the server cannot start: {error}"))
}

/// Starts a server with other settings, such as manifests to load, TLS or authorization. It listens on a free port, and
/// forks are allowed, whatever the settings are.
///
/// # Errors
/// [`StartError`].
///
/// # Panics
/// If the system starts no thread.
pub async fn start_with(config: Config) -> Result<ApiServer, StartError> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = Config { listen, forks: true, grace: GRACE, ..config };
    let (begun, is_begun) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).thread_name(NAME).enable_all().build();
    let runtime = runtime.expect("the system starts threads");
    let handle = runtime.handle().clone();
    let serve = async move {
        match Server::bind(config).await {
            Err(error) => drop(begun.send(Err(error))),
            Ok(server) => {
                let url = format!("{}://{}", server.scheme(), server.local_addr());
                // An error means that the caller was dropped, and with it the sender of the stop.
                let _ = begun.send(Ok((url, Arc::clone(server.app()))));
                server.serve(async { drop(stopped.await) }).await;
            }
        }
    };
    let run = move || {
        runtime.block_on(serve);
        runtime.shutdown_background();
    };
    thread::Builder::new().name(NAME.to_owned()).spawn(run).expect("the system starts threads");
    let (url, app) = is_begun.await.expect("the start has an outcome")?;
    let process = Arc::new(ServerThread { url: url.clone(), runtime: handle, _stop: stop });
    Ok(ApiServer { url, app, fork: None, process })
}

impl ApiServer {
    /// URL of the server, such as `http://127.0.0.1:41234`, or of the fork: `http://127.0.0.1:41234/snapshots/abcdefghij`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Forks this server, or this fork: returns a server with the objects that this one has now. Both change apart from each
    /// other. Cost: independent of the number of objects.
    ///
    /// # Panics
    /// If there are [`FORKS_MAX`](crate::limits::FORKS_MAX) forks of the server.
    #[must_use = "a fork ends when it is dropped"]
    pub fn fork(&self) -> Self {
        let _runtime = self.process.runtime.enter();
        let begun = self.app.forks.begin(&self.app);
        let Fork { name, app, .. } = begun.unwrap_or_else(|error| panic!("no further fork: {error:?}"));
        let url = format!("{}/{FORKS}/{name}", self.process.url);
        Self { url, app, fork: Some(name), process: Arc::clone(&self.process) }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(name) = &self.fork {
            let _runtime = self.process.runtime.enter();
            // A client may have ended it.
            let _ended = self.app.forks.end(name);
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Threads that answer requests: tests run in parallel.
const WORKERS: usize = 2;

/// Name of the threads.
const NAME: &str = "api-server";

/// Time for open requests once the server ends: the clients belong to tests that have ended.
const GRACE: Duration = Duration::from_secs(1);
