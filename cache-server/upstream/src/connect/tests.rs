//! Kubeconfigs, URLs and files: the settings read from them, the requests that carry our identity, and the errors.

use std::path::PathBuf;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};

use super::*;
use crate::{
    forward::Forwarder,
    limits::FILE_CHECK_EVERY,
    tests::{Api, Certificates, addresses_of, caller, full},
};

const NAME: &str = "kubernetes.example";

async fn start(certificates: &Certificates) -> Api {
    Api::with_tls(Some(certificates.server_config()), |_| Box::pin(async { Response::new(full("{}")) })).await
}

/// Sends one request of a caller; returns its status code.
async fn forwarded(addresses: &UpstreamAddresses) -> u16 {
    let forwarder = Forwarder::new(addresses.callers.clone(), Arc::default());
    let (parts, ()) = Request::get("/version").header("accept", "*/*").body(()).unwrap().into_parts();
    match forwarder.forward(&parts, caller(), Full::<Bytes>::default()).await {
        Ok(answer) => {
            let (parts, body) = answer.into_parts();
            body.collect().await.expect("a whole body");
            parts.status.as_u16()
        }
        Err(status) => status.code,
    }
}

fn from(kubeconfig: PathBuf) -> UpstreamConfig {
    UpstreamConfig { kubeconfig: Some(kubeconfig), ..UpstreamConfig::default() }
}

/// Goal: callers never act as us. Method: a kubeconfig with a client certificate, a token and an impersonated user; the
/// server asks for certificates.
#[tokio::test]
async fn callers_get_nothing_of_our_identity() {
    let certificates = Certificates::new("127.0.0.1");
    let api = start(&certificates).await;
    let server = format!("https://{}", api.address);
    let user = "    token: ours\n    as: admin\n";
    let addresses = addresses_of(&from(certificates.kubeconfig(&server, user, ""))).await.unwrap();

    let _ = addresses.clients[0].apiserver_version().await;
    assert_eq!(api.header("authorization"), "Bearer ours");
    assert_eq!(api.header("impersonate-user"), "admin");
    assert!(api.seen.lock().last().unwrap().has_certificate, "our own requests show the certificate");

    assert_eq!(forwarded(&addresses).await, 200);
    let seen = api.seen.lock();
    let last = seen.last().unwrap();
    assert!(!last.has_certificate, "a caller showed our certificate");
    let names: Vec<_> = last.head.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["accept", "audit-id", "host"]);
}

#[tokio::test]
async fn a_server_name_of_the_kubeconfig_is_the_one_that_is_checked() {
    let certificates = Certificates::new(NAME);
    let api = start(&certificates).await;
    let server = format!("https://{}", api.address);
    let named = certificates.kubeconfig(&server, "", &format!("    tls-server-name: {NAME}\n"));
    assert_eq!(forwarded(&addresses_of(&from(named)).await.unwrap()).await, 200);
    let unnamed = certificates.kubeconfig(&server, "", "");
    assert_eq!(forwarded(&addresses_of(&from(unnamed)).await.unwrap()).await, 503);
    let others = Certificates::new(NAME);
    let stranger = others.kubeconfig(&server, "", &format!("    tls-server-name: {NAME}\n"));
    let stranger = addresses_of(&from(stranger)).await.unwrap();
    assert_eq!(forwarded(&stranger).await, 503, "an unknown authority");
}

#[tokio::test]
async fn a_url_stands_for_itself_with_a_token_and_an_authority() {
    let certificates = Certificates::new("127.0.0.1");
    let api = start(&certificates).await;
    let token_file = certificates.path("token");
    // A line break at the end, as editors and `echo` write it.
    std::fs::write(&token_file, "from-a-file\r\n").unwrap();
    let config = UpstreamConfig {
        url: Some(format!("https://{}", api.address)),
        token_file: Some(token_file),
        ca_file: Some(certificates.path("ca.crt")),
        ..UpstreamConfig::default()
    };
    let addresses = addresses_of(&config).await.unwrap();
    let _ = addresses.clients[0].apiserver_version().await;
    assert_eq!(api.header("authorization"), "Bearer from-a-file");
    assert_eq!(forwarded(&addresses).await, 200);
    assert_eq!(api.header("authorization"), "");
}

#[tokio::test]
async fn a_url_replaces_the_server_of_a_kubeconfig_and_a_token_its_identity() {
    let certificates = Certificates::new("127.0.0.1");
    let api = start(&certificates).await;
    let token_file = certificates.path("token");
    std::fs::write(&token_file, "other\n").unwrap();
    let kubeconfig = certificates.kubeconfig("https://unused.example", "    token: ours\n", "");
    let url = Some(format!("https://{}", api.address));
    let config = UpstreamConfig { url, token_file: Some(token_file), ..from(kubeconfig) };
    let addresses = addresses_of(&config).await.unwrap();
    let _ = addresses.clients[0].apiserver_version().await;
    assert_eq!(api.header("authorization"), "Bearer other");
    assert!(!api.seen.lock().last().unwrap().has_certificate, "the token is the whole identity");
}

/// Goal: the identity is the same wherever a token file is named, and changes with the file. Method: the file of a
/// kubeconfig, with a line break at its end, seen by the API server; then its content changes, and a FIFO takes its place.
#[tokio::test]
async fn the_token_file_of_a_kubeconfig_is_trimmed_and_read_again() {
    let certificates = Certificates::new("127.0.0.1");
    let api = start(&certificates).await;
    let token_file = certificates.path("token");
    std::fs::write(&token_file, "first\n").unwrap();
    // The file precedes a plugin.
    let plugin = "    exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /missing}\n";
    let user = format!("    tokenFile: {}\n{plugin}", token_file.display());
    let kubeconfig = certificates.kubeconfig(&format!("https://{}", api.address), &user, "");
    let config = UpstreamConfig { impersonates: true, ..from(kubeconfig) };
    let files = FileWatcher::default();
    let addresses = UpstreamAddresses::load(&config, &files).await.unwrap();
    let own = addresses.own.as_ref().unwrap();
    let is_sent = async |token: &str| {
        let _ = addresses.clients[0].apiserver_version().await;
        let expected = format!("Bearer {token}");
        api.header("authorization") == expected
            && own.identity.headers().await.unwrap()["authorization"].to_str().unwrap() == expected
    };
    assert!(is_sent("first").await);
    std::fs::write(&token_file, "second\n").unwrap();
    let sending = async {
        while !is_sent("second").await {
            tokio::time::sleep(FILE_CHECK_EVERY / 10).await;
        }
    };
    tokio::time::timeout(FILE_CHECK_EVERY * 20, sending).await.expect("it is read again");
    std::fs::remove_file(&token_file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&token_file).status().unwrap().success());
    tokio::time::sleep(FILE_CHECK_EVERY * 2).await;
    assert!(is_sent("second").await, "what cannot be read takes the token away from no one");
}

/// Goal: a FIFO as an authority does not hold the start up. Method: one without a writer.
#[tokio::test]
async fn a_fifo_is_no_authority() {
    let certificates = Certificates::new("127.0.0.1");
    let fifo = certificates.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let kubeconfig = certificates.kubeconfig("https://unused.example", "    token: ours\n", "");
    let error = addresses_of(&UpstreamConfig { ca_file: Some(fifo), ..from(kubeconfig) }).await.err().unwrap();
    assert!(error.to_string().contains("no regular file"), "{error}");
}

/// Goal: a peer gets our token over a connection that is checked, and the API server's name is not expected of it. Method:
/// a peer with an authority of its own, and none.
#[tokio::test]
async fn peers_get_our_identity_and_answer_from_their_caches() {
    let (certificates, peers) = (Certificates::new(NAME), Certificates::new("127.0.0.1"));
    let peer = start(&peers).await;
    let cluster = format!("    tls-server-name: {NAME}\n");
    let kubeconfig = certificates.kubeconfig("https://unused.example", "    token: ours\n", &cluster);
    let config = UpstreamConfig { peers: vec![format!("https://{}", peer.address)], ..from(kubeconfig) };
    let unknown = addresses_of(&config).await.unwrap();
    unknown.peers[0].apiserver_version().await.expect_err("an unknown authority");
    assert!(peer.seen.lock().is_empty());
    let config = UpstreamConfig { peer_ca_file: Some(peers.path("ca.crt")), ..config };
    let addresses = addresses_of(&config).await.unwrap();
    let _ = addresses.peers[0].apiserver_version().await;
    assert_eq!(peer.header("authorization"), "Bearer ours");
    assert_eq!(peer.header("cache-control"), ONLY_IF_CACHED);
    assert!(!peer.seen.lock().last().unwrap().has_certificate, "a peer cannot pass a certificate on");
    assert_eq!((addresses.clients.len(), addresses.callers.len()), (1, 1), "no request of a caller goes to a peer");
}

/// Goal: each error is one line that names the file or URL, and quotes no secret.
#[tokio::test]
async fn errors_name_the_file_and_the_problem() {
    let certificates = Certificates::new(NAME);
    let good = certificates.kubeconfig("https://a.example:6443", "    token: hunter2\n", "");
    let write = |name: &str, text: &str| {
        let path = certificates.path(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let url = |url: &str| UpstreamConfig { url: Some(url.to_owned()), ..UpstreamConfig::default() };
    let file = |path: &Path| path.display().to_string();
    let (broken, empty) = (write("broken", "users: [{user: {token: hunter2}"), write("empty", "\n"));
    let lines = write("token", "hunter\n2\n");
    let no_cluster =
        write("no-cluster", "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: b}}]\n");
    let absent = certificates.path("absent");
    let named = |path: &PathBuf, context: &str| UpstreamConfig { context: Some(context.into()), ..from(path.clone()) };
    let addresses = vec!["https://b.example".to_owned(); UPSTREAM_ADDRESSES_MAX];
    let peers = |peers: Vec<String>| UpstreamConfig { peers, ..url("https://a") };
    for (config, texts) in [
        (from(absent.clone()), &[&*file(&absent), "cannot read"][..]),
        (from(broken.clone()), &[&*file(&broken), "no kubeconfig in YAML"]),
        (from(empty.clone()), &[&*file(&empty)]),
        (named(&good, "none"), &[&*file(&good), r#"no context "none""#]),
        (named(&no_cluster, "a"), &[&*file(&no_cluster), r#"no cluster "b""#]),
        (url("ten.example"), &["ten.example", NO_HOST]),
        (url("ftp://ten.example"), &["ftp://ten.example", NO_HOST]),
        (url("https://user:hunter2@ten.example"), &["https://ten.example", "holds no password"]),
        (url("https://user:hunter2@ten example"), &["https://ten example", NO_HOST]),
        (url("https://ten.example/?a=b"), &["no query"]),
        (UpstreamConfig { token_file: Some(absent.clone()), ..url("http://a") }, &[&*file(&absent)]),
        (UpstreamConfig { token_file: Some(empty.clone()), ..url("http://a") }, &[&*file(&empty), "no token"]),
        (UpstreamConfig { token_file: Some(lines.clone()), ..url("http://a") }, &[&*file(&lines), "no token has"]),
        (UpstreamConfig { ca_file: Some(empty.clone()), ..url("https://a") }, &[&*file(&empty), "no certificate"]),
        (UpstreamConfig { further_urls: addresses, ..url("https://a") }, &["9 upstream URLs", "at most 8"]),
        (peers(vec!["https://b".to_owned(); PEERS_MAX + 1]), &["33 peers", "at most 32"]),
        (peers(vec!["http://b.example".to_owned()]), &["http://b.example", "in clear"]),
        (peers(vec!["b.example".to_owned()]), &["b.example", NO_HOST]),
        (
            UpstreamConfig { peer_ca_file: Some(empty.clone()), ..peers(vec!["http://[::1]:1".to_owned()]) },
            &[&*file(&empty), "no certificate"],
        ),
    ] {
        let error = addresses_of(&config).await.expect_err("unusable").to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error} has not {texts:?}");
        assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn a_path_of_the_url_stands_before_each_path() {
    let config =
        UpstreamConfig { url: Some("https://a.example/k8s/clusters/c-1/".into()), ..UpstreamConfig::default() };
    let addresses = addresses_of(&config).await.unwrap();
    let uri = |path: &str| addresses.callers[0].uri(&path.parse().unwrap()).to_string();
    assert_eq!(uri("/api/v1/pods?limit=1"), "https://a.example/k8s/clusters/c-1/api/v1/pods?limit=1");
}
