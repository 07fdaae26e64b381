//! The SDK's own client against the real server over TLS: one connection for many types, client certificates.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{fs, path::Path, time::Duration};

use informer::{Cluster, Informer};
use kube::{
    config::AuthInfo,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tests::{
    http::Client,
    objects::configmap,
    process::Server,
    relay::Relay,
    tls::{Authority, Files},
};
use tokio::time::{Instant, sleep};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// Types that the server has from its start.
const TYPES: [(&str, &str, &str); 10] = [
    ("", "Pod", "pods"),
    ("", "Node", "nodes"),
    ("", "ConfigMap", "configmaps"),
    ("", "Secret", "secrets"),
    ("", "Service", "services"),
    ("", "Namespace", "namespaces"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "DaemonSet", "daemonsets"),
];

/// A server that asks for client certificates, behind a relay.
struct Secured {
    server: Server,
    relay: Relay,
    authority: Authority,
    clients: Authority,
    folder: tempfile::TempDir,
}

impl Secured {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, clients) = (Authority::new(), Authority::new());
        let files = authority.issue(folder.path());
        let ca = folder.path().join("clients.crt");
        fs::write(&ca, clients.pem()).unwrap();
        let arguments = [&files.flags()[..], &["--client-ca-file", ca.to_str().unwrap()]].concat();
        let server = Server::start(BINARY, &arguments).await;
        let relay = Relay::start(server.address()).await;
        Self { server, relay, authority, clients, folder }
    }

    /// A client of the harness, past the relay.
    fn writer(&self) -> Client {
        let files = self.clients.issue_user(self.folder.path(), "writer", &[]);
        Client::new(self.server.address()).over_tls(self.authority.trust_as(&files))
    }

    fn config(&self, files: &Files) -> kube::Config {
        let text = |path: &Path| Some(path.to_str().unwrap().to_owned());
        let mut config = kube::Config::new(format!("https://{}", self.relay.address()).parse().unwrap());
        config.root_cert =
            Some(vec![CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap().to_vec()]);
        config.auth_info =
            AuthInfo { client_certificate: text(&files.cert), client_key: text(&files.key), ..AuthInfo::default() };
        config
    }
}

async fn follow_all(cluster: &Cluster) -> Vec<Informer<DynamicObject>> {
    let declare = |(group, kind, plural): (&str, &str, &str)| {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        cluster.informer_for::<DynamicObject>(&resource).start().unwrap()
    };
    let informers: Vec<_> = TYPES.into_iter().map(declare).collect();
    for informer in &informers {
        informer.ready(PATIENCE).await.unwrap_or_else(|error| panic!("{error}"));
    }
    informers
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Goal: informers of many types authenticate with a client certificate over one HTTP/2 connection, and resume over one.
/// Method: ten types; reset the connection.
#[tokio::test]
async fn informers_share_a_connection_and_resume_on_one() {
    let secured = Secured::start().await;
    let (folder, writer) = (secured.folder.path(), secured.writer());
    let files = secured.clients.issue_user(folder, "agent", &[]);
    let cluster = Cluster::try_from(secured.config(&files)).unwrap();
    let informers = follow_all(&cluster).await;
    assert_eq!(secured.relay.open(), 1);

    let maps = &informers[2];
    let has = |name: &str| maps.store().snapshot().get(&format!("default/{name}")).is_some();
    writer.create(&configmap("one")).await;
    until("the first object", || has("one")).await;

    secured.relay.cut();
    writer.create(&configmap("two")).await;
    until("the second object", || has("two")).await;
    until("all watches", || secured.relay.open() == 1).await;
    assert_eq!(secured.relay.broken(), 1);
    assert!(informers.iter().all(|informer| informer.stats().reflector.syncs == 1), "no informer listed again");
}

/// Goal: a certificate that the server does not trust is a refusal with its reason, and a trusted one in the same files
/// ends it. Method: a certificate of a stranger, replaced.
#[tokio::test]
async fn a_trusted_certificate_ends_a_refusal() {
    let secured = Secured::start().await;
    let folder = secured.folder.path();
    let files = Authority::new().issue_user(folder, "agent", &[]);
    let cluster = Cluster::try_from(secured.config(&files)).unwrap();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let pods = cluster.informer_for::<DynamicObject>(&resource).start().unwrap();
    until("a refusal", || pods.stats().reflector.unhealthy_ends > 0).await;
    secured.clients.issue_user(folder, "agent", &[]);
    pods.ready(PATIENCE).await.unwrap();
}
