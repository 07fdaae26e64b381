//! A stock kube-apiserver, a cache-server in front of it, and a relay on either side of the cache-server.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::json;
use tests::{
    genuine::{ADMIN, CACHE, Genuine, GenuineSettings, Identity, cluster_role_binding, token_of},
    http::Client as Http,
    process::Server,
    relay::Relay,
    tls::{Authority, Trust},
};
use tokio::time::sleep;

use crate::{SERVER, faults::Credentials};

/// User of all client programs: may get, list and watch, and write nothing.
pub(super) const READER: &str = "reader";
/// The types that the cache-server caches, and their collections.
pub(super) const RESOURCES: [(&str, &str); 4] = [
    ("configmaps", "/api/v1/configmaps"),
    ("pods", "/api/v1/pods"),
    ("nodes", "/api/v1/nodes"),
    ("deployments.apps", "/apis/apps/v1/deployments"),
];
/// Timeout of every step, with a margin for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Pause between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// The servers. Client programs connect to `below`, and the cache-server to `above`.
pub(super) struct Scene {
    pub(super) genuine: Genuine,
    pub(super) above: Relay,
    pub(super) below: Relay,
    front: Front,
}

/// A cache-server with TLS in front of a cluster.
pub(super) struct Front {
    server: Server,
    arguments: Vec<String>,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Scene {
    /// Starts the servers. `None`, with one line, if the programs were not built.
    pub(super) async fn set(test: &str) -> Option<Self> {
        let identities = vec![Identity::new(READER, &[])];
        let settings = GenuineSettings { identities, records_reads: true, ..GenuineSettings::default() };
        let genuine = Genuine::start_with(test, settings).await?;
        let binding = cluster_role_binding("reader", "cache-reader", "User", READER);
        genuine.client(ADMIN).create_manifest(&binding).await;
        let above = Relay::start(genuine.address()).await;
        let resources = RESOURCES.map(|(name, _)| name).join(",");
        let kubeconfig = genuine.kubeconfig_at(CACHE, above.address());
        let front = Front::start(kubeconfig, &["--resources", &resources]).await;
        let below = Relay::start(front.server.address()).await;
        Some(Self { genuine, above, below, front })
    }

    /// The administrator at the API server.
    pub(super) fn direct(&self) -> Http {
        self.genuine.client(ADMIN)
    }

    /// The administrator at the cache-server.
    pub(super) fn cached(&self) -> Http {
        self.front.client(ADMIN)
    }

    /// TLS and the token that the client programs need.
    pub(super) fn credentials(&self) -> Credentials {
        Credentials { trust: self.front.trust(), token: token_of(READER) }
    }

    /// Path of the certificate to trust.
    pub(super) fn ca_file(&self) -> PathBuf {
        self.front.ca_file()
    }

    /// A kubeconfig of the client programs' user.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.front.kubeconfig(READER, self.below.address())
    }
}

impl Front {
    /// Starts a cache-server in front of the cluster of a kubeconfig, and waits until it is ready.
    pub(super) async fn start(kubeconfig: PathBuf, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
        let upstream = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let arguments = [&upstream, &files.flags()[..], flags].concat();
        let server = Server::start(SERVER, &arguments).await;
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let front = Self { server, arguments, authority, folder };
        front.is_ready().await;
        front
    }

    /// Ends the server and starts it again at another address, with the same certificate.
    pub(super) async fn restart(&mut self) {
        self.server.terminate();
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.server = Server::start(SERVER, &arguments).await;
        self.is_ready().await;
    }

    async fn is_ready(&self) {
        let client = self.client(READER);
        until("the cache-server is ready", async || client.get("/readyz").await.code == 200).await;
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(super) fn client(&self, user: &str) -> Http {
        self.server.client().over_tls(self.trust()).with_token(&token_of(user))
    }

    fn trust(&self) -> Trust {
        self.authority.trust()
    }

    fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Writes a kubeconfig with a user's token, for an address that leads to this server.
    pub(super) fn kubeconfig(&self, user: &str, address: SocketAddr) -> PathBuf {
        self.kubeconfig_with(user, &token_of(user), address)
    }

    /// Like [`kubeconfig`](Self::kubeconfig), with another token.
    pub(super) fn kubeconfig_with(&self, user: &str, token: &str, address: SocketAddr) -> PathBuf {
        let cluster = json!({"server": format!("https://{address}"), "certificate-authority": self.ca_file()});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "front",
            "clusters": [{"name": "front", "cluster": cluster}],
            "contexts": [{"name": "front", "context": {"cluster": "front", "user": user}}],
            "users": [{"name": user, "user": {"token": token}}],
        });
        let path = self.folder.path().join(format!("{user}.kubeconfig"));
        fs::write(&path, config.to_string()).unwrap();
        path
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(until_within(PATIENCE, condition).await, "waited in vain: {what}");
}

/// Waits until a condition holds. Returns false if it does not within `wait`.
pub(crate) async fn until_within(wait: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition().await {
        if begun.elapsed() > wait {
            return false;
        }
        sleep(CHECK_EVERY).await;
    }
    true
}
