//! Clients of a [`Config`]: kube's authentication over our connections, renewed when credentials change.

use std::{sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::{
    sync::Mutex,
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};
use tower::{
    BoxError, ServiceBuilder, ServiceExt as _,
    util::{BoxCloneSyncService, BoxService},
};

use super::{
    connector::connector,
    credentials::CredentialFiles,
    kube::{
        self, Client, Config,
        client::{Body, ClientBuilder, ConfigExt as _, DynBody},
    },
};
use crate::{
    error::{Chain, Error, Kind},
    transport::connections::{ConnectionPool, PooledBody},
};

/// Least time between two reads of the files of the client certificate and the CA. A request that is sent reads them, so
/// the cost is three small files in each round of watches.
const FILES_READ_EVERY: Duration = Duration::from_secs(1);

/// Least time between two renewals after the server answered 401. A renewal reads token files and runs exec plugins.
const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// Creates a client for informers, with the transport that `Cluster::try_from` uses: for
/// [`ClusterBuilder::fallback`](crate::ClusterBuilder::fallback) and for other requests over the same connections.
/// Opens no connection. Cost: an exec plugin runs twice. Requests need a tokio runtime.
///
/// Over TLS the client offers HTTP/2. All requests share one connection then, up to 100 at a time; more open another.
/// The client pings a silent connection after 30 s and ends it after another 15 s. A connection that the server closes
/// with GOAWAY keeps its watches and gets no further requests. Servers that choose HTTP/1.1, and `http` URLs, get one
/// connection for each watch, with TCP keepalive.
///
/// Requests use the current credentials: token files are read again within a minute, changed client certificates and CA
/// files at the next request, and all of them, like exec plugins, after a 401. Running watches keep their connection.
///
/// Unlike kube's client it has neither retries nor compression, and `read_timeout` and `write_timeout` have no effect:
/// pings and [`idle_timeout`](crate::Config::idle_timeout) take their place.
///
/// # Errors
/// kube rejects the configuration, its URL has no scheme, or a feature for its TLS or proxy is not enabled.
pub fn client_from(config: Config) -> Result<Client, Error> {
    let invalid = |error: kube::Error| Error::new(Kind::Client(error.into()), None);
    let namespace = config.default_namespace.clone();
    let client = RenewingClient::new(config).map_err(invalid)?;
    Ok(Client::new(tower::service_fn(move |request| Arc::clone(&client).send(request)), namespace))
}

/// Like [`client_from`], for a client with layers of your own: in place of kube's `ClientBuilder::try_from(config)`, and
/// with its types.
///
/// # Errors
/// In the cases of [`client_from`], as kube's own error.
#[expect(clippy::type_complexity, reason = "kube's alias of this service is private")]
pub fn client_builder_from(
    config: Config,
) -> Result<ClientBuilder<BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>>, kube::Error> {
    let namespace = config.default_namespace.clone();
    let client = RenewingClient::new(config)?;
    let service = tower::service_fn(move |request| {
        let response = Arc::clone(&client).send(request);
        async move { Ok(response.await?.map(|body| -> Box<DynBody> { Box::new(body.map_err(Into::into)) })) }
    });
    Ok(ClientBuilder::new(BoxService::new(service), namespace))
}

/// Adds authentication and sends requests over one pool.
type RequestService = BoxCloneSyncService<Request<Body>, Response<PooledBody>, BoxError>;

/// A client that is replaced when its credentials change.
struct RenewingClient {
    config: Config,
    url: http::Uri,
    /// True if some credentials can change.
    is_renewable: bool,
    current: Mutex<CurrentClient>,
}

struct CurrentClient {
    service: RequestService,
    /// Number of renewals.
    generation: u64,
    files: CredentialFiles,
    files_read: Instant,
    /// True if the server answered 401 to this generation.
    is_rejected: bool,
    /// True if the last renewal to start was because of a 401.
    is_handling_rejection: bool,
    /// Time of the last renewal after a 401.
    rejection_handled: Option<Instant>,
    /// The renewal in progress. It outlives the request that started it: a plugin that hangs is not started again.
    renewal: Option<Renewal>,
}

/// A renewal in a task of its own, because files and plugins block.
type Renewal = JoinHandle<Result<Option<(RequestService, CredentialFiles)>, kube::Error>>;

impl RenewingClient {
    fn new(config: Config) -> Result<Arc<Self>, kube::Error> {
        // kube's client would panic on a URL without a scheme when it sends a request.
        let mut url = config.cluster_url.clone().into_parts();
        url.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let url = http::Uri::from_parts(url).map_err(|error| kube::Error::HttpError(error.into()))?;
        let files = CredentialFiles::read(&config);
        let service = authenticated(&config, &url)?;
        let auth = &config.auth_info;
        let is_renewable =
            files.exist() || auth.token_file.is_some() || auth.exec.is_some() || auth.auth_provider.is_some();
        let current = CurrentClient {
            service,
            generation: 0,
            files,
            files_read: Instant::now(),
            is_rejected: false,
            is_handling_rejection: false,
            rejection_handled: None,
            renewal: None,
        };
        Ok(Arc::new(Self { config, url, is_renewable, current: Mutex::new(current) }))
    }

    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<PooledBody>, BoxError> {
        let (service, generation) = Arc::clone(&self).current().await;
        let response = service.oneshot(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let mut current = self.current.lock().await;
            // Requests that were in flight during a renewal say nothing about the new credentials.
            current.is_rejected |= current.generation == generation;
        }
        Ok(response)
    }

    /// The client with the current credentials, and its generation. Other requests wait during a renewal.
    async fn current(self: Arc<Self>) -> (RequestService, u64) {
        let mut current = self.current.lock().await;
        let is_rejected =
            current.is_rejected && current.rejection_handled.is_none_or(|handled| handled.elapsed() >= RENEWED_EVERY);
        let is_due = is_rejected || current.files_read.elapsed() >= FILES_READ_EVERY;
        if self.is_renewable && is_due && current.renewal.is_none() {
            let (client, files) = (Arc::clone(&self), current.files);
            current.renewal = Some(spawn_blocking(move || client.renewal(files, is_rejected)));
            current.is_handling_rejection = is_rejected;
        }
        if let Some(renewal) = &mut current.renewal {
            let renewed = renewal.await;
            current.renewal = None;
            current.files_read = Instant::now();
            if current.is_handling_rejection {
                current.rejection_handled = Some(current.files_read);
            }
            match renewed {
                Ok(Ok(Some((service, files)))) => current.replace(service, files),
                Ok(Ok(None)) => {}
                // Half of a new pair may be written so far: the next request tries again.
                Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "credentials not renewed"),
                Err(error) => tracing::warn!(%error, "credentials not renewed"),
            }
        }
        (current.service.clone(), current.generation)
    }

    /// A new client, if the files changed or the server rejected the present credentials.
    fn renewal(
        &self,
        known: CredentialFiles,
        is_rejected: bool,
    ) -> Result<Option<(RequestService, CredentialFiles)>, kube::Error> {
        let files = CredentialFiles::read(&self.config);
        if files == known && !is_rejected {
            return Ok(None);
        }
        Ok(Some((authenticated(&self.config, &self.url)?, files)))
    }
}

impl CurrentClient {
    fn replace(&mut self, service: RequestService, files: CredentialFiles) {
        tracing::info!("credentials renewed");
        (self.service, self.files, self.is_rejected) = (service, files, false);
        self.generation += 1;
    }
}

/// The layers of kube's own client that informers need, over a pool of its own.
fn authenticated(config: &Config, url: &http::Uri) -> Result<RequestService, kube::Error> {
    let pool = ConnectionPool::new(url.clone(), connector(config)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(tower::service_fn(move |request: Request<Body>| {
            pool.clone().send(request.map(|body| body.map_err(Into::into).boxed_unsync()))
        }));
    Ok(BoxCloneSyncService::new(service))
}

#[cfg(all(test, feature = "ring", feature = "rustls-tls"))]
mod tests {
    use std::{fs, path::Path};

    use rcgen::{CertificateParams, KeyPair};

    use super::{kube::config::AuthInfo, *};

    /// Goal: a client is renewed by a whole new pair of files, and neither by half of one nor by the same one.
    #[test]
    fn a_client_certificate_is_renewed_when_its_pair_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| path(name).to_str().map(str::to_owned);
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new([]).expect("no names").self_signed(&key).expect("a certificate");
        let write = |file: &Path, text: String| fs::write(file, text).expect("a file");
        write(&path("tls.crt"), certificate.pem());
        write(&path("tls.key"), key.serialize_pem());

        let url = http::Uri::from_static("https://server");
        let mut config = Config::new(url);
        config.root_cert = Some(vec![certificate.der().to_vec()]);
        config.auth_info =
            AuthInfo { client_certificate: text("tls.crt"), client_key: text("tls.key"), ..AuthInfo::default() };
        let client = RenewingClient::new(config).expect("a client");
        let known = client.current.blocking_lock().files;
        assert!(client.is_renewable && client.renewal(known, false).expect("unchanged").is_none());
        assert!(client.renewal(known, true).expect("rejected").is_some());

        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new([]).expect("no names").self_signed(&key).expect("a certificate");
        write(&path("tls.crt"), certificate.pem());
        assert!(client.renewal(known, false).is_err(), "the key is still the old one");
        write(&path("tls.key"), key.serialize_pem());
        let (_, files) = client.renewal(known, false).expect("a whole pair").expect("a new client");
        assert!(client.renewal(files, false).expect("unchanged").is_none());
    }

    /// Goal: a plugin that hangs runs once, however many requests give up waiting for it, and its result is used. Method:
    /// a plugin that counts its runs and, after the first ones, waits for a file.
    #[tokio::test]
    async fn a_renewal_outlives_the_request_that_started_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = r#"echo run >> runs; while [ -e hang ]; do sleep 0.02; done
            echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'"#;
        let script = format!("cd '{}'; {script}", folder.path().display());
        let plugin = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never",
        });
        let url = http::Uri::from_static("http://server");
        let mut config = Config::new(url);
        config.auth_info = serde_json::from_value(serde_json::json!({"exec": plugin})).expect("an exec plugin");
        let client = RenewingClient::new(config).expect("a client");
        let runs = || fs::read_to_string(folder.path().join("runs")).expect("a file").lines().count();
        let before = runs();

        fs::write(folder.path().join("hang"), "").expect("a file");
        client.current.lock().await.is_rejected = true;
        for _ in 0..3 {
            let waiting = Arc::clone(&client).current();
            let waited = tokio::time::timeout(Duration::from_millis(300), waiting).await;
            assert!(waited.is_err(), "the plugin hangs");
        }
        while runs() == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(runs(), before + 1);
        fs::remove_file(folder.path().join("hang")).expect("it goes on");
        let renewed = tokio::time::timeout(Duration::from_secs(20), Arc::clone(&client).current()).await;
        assert_eq!(renewed.expect("it is renewed").1, 1);
        assert!(runs() <= 2 * before, "one renewal");
    }
}
