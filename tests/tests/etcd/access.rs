//! TLS with certificates of both sides, users and passwords, and clear refusals where one of them is wrong.

use std::fs;

use futures::future::join_all;
use tests::{
    etcd::{EtcdCluster, EtcdSettings},
    http::with_query,
    objects::configmap,
    process::Server,
    rights::{write_faults, write_tokens},
    tls::Authority,
};

use super::{BINARY, MAP_KEYS, MAPS, is_long, serve};

const ROOT_PASSWORD: &str = "of-root";
const USER: &str = "cache";
const PASSWORD: &str = "a-good-password";

/// Runs a server that must end by itself because of wrong credentials. Returns its last line.
async fn refused(etcd: &EtcdCluster, flags: &[&str]) -> String {
    let endpoints = etcd.endpoints();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--etcd-endpoints", &endpoints];
    let ended = Server::run(BINARY, &[&serve, flags].concat()).await;
    assert!(ended.code == Some(2) && !ended.stdout.contains("listening"), "{flags:?}: {ended:?}");
    // A member that refuses a connection may be starting: one line says that the server waits for it.
    let lines: Vec<&str> = ended.stderr.trim().lines().collect();
    assert!(lines.len() <= 2 && lines.iter().rev().skip(1).all(|line| line.contains("not reached")), "{ended:?}");
    lines.last().unwrap().to_lowercase()
}

/// Goal: an etcd with TLS, client certificates and users is used, with the rights of the user; anything wrong is one line and
/// exit code 2. Method: writes and a watch as a user of the prefix; then a wrong password, an unknown user, another
/// authority, no certificate, and no user.
#[tokio::test]
async fn tls_and_users_are_used_and_wrong_ones_are_one_line() {
    let settings = EtcdSettings { has_tls: true, ..EtcdSettings::default() };
    let Some(etcd) = EtcdCluster::start_with("etcd access", settings).await else { return };
    etcd.keys().enable_users(ROOT_PASSWORD, USER, PASSWORD, "/registry/").await;
    let keys = etcd.keys().log_in("root", ROOT_PASSWORD).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Editors end a file with a newline, which is no part of the password.
    let (password, wrong) = (file("password", &format!("{PASSWORD}\n")), file("wrong", "another-password"));
    let other_authority = file("other.crt", &Authority::new().pem());
    let issued = etcd.certificates().unwrap();
    let (ca, files) = (issued.ca_file(), issued.client_files());
    let trust = ["--etcd-cafile", ca];
    let own = ["--etcd-certfile", files.cert.to_str().unwrap(), "--etcd-keyfile", files.key.to_str().unwrap()];
    let user = ["--etcd-user", USER, "--etcd-password-file", &password];

    let server = serve(&etcd, &[&trust[..], &own, &user].concat()).await;
    let client = server.client();
    let before = client.get(MAPS).await.with_code(200).resource_version().to_string();
    let mut watch = client.watch(&with_query(MAPS, &[("watch", "1"), ("resourceVersion", &before)])).await;
    let at = client.create(&configmap("a").data("1")).await;
    assert_eq!(watch.event().await.brief(), "ADDED default/a");
    assert_eq!(client.get(&configmap("a").path()).await.with_code(200).resource_version(), at);
    assert_eq!(keys.get(&format!("{MAP_KEYS}default/a")).await.unwrap().mod_revision, at);

    let wrong_password = [&trust[..], &own, &["--etcd-user", USER, "--etcd-password-file", &wrong]].concat();
    let unknown = [&trust[..], &own, &["--etcd-user", "unknown", "--etcd-password-file", &password]].concat();
    let (nobody, distrusting) = ([&trust[..], &own].concat(), ["--etcd-cafile", &other_authority]);
    let (distrusting, anonymous) = ([&distrusting[..], &own, &user].concat(), [&trust[..], &user].concat());
    let mut cases = vec![
        (wrong_password, "invalid user id or password"),
        (unknown, "invalid user id or password"),
        (nobody, "permission denied"),
    ];
    if is_long() {
        // The server waits ten seconds for a member that ends its connections. The alert may be lost with one.
        cases.extend([(distrusting, "certificate"), (anonymous, "does not answer")]);
    }
    join_all(cases.iter().map(async |(flags, expected)| {
        let line = refused(&etcd, flags).await;
        assert!(line.contains(expected) && !line.contains("another-password"), "{flags:?}: {line}");
    }))
    .await;
}

/// Goal: a server survives that its token expires. Method: a token's lifetime in etcd is five minutes; users that are disabled
/// and enabled again void all tokens at once.
#[tokio::test]
async fn a_token_that_became_void_is_replaced() {
    let Some(etcd) = EtcdCluster::start("etcd tokens").await else { return };
    etcd.keys().enable_users(ROOT_PASSWORD, USER, PASSWORD, "/registry/").await;
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).unwrap();
    let server = serve(&etcd, &["--etcd-user", USER, "--etcd-password-file", password.to_str().unwrap()]).await;
    let client = server.client();
    client.create(&configmap("before")).await;
    let root = etcd.keys().log_in("root", ROOT_PASSWORD).await;
    root.call("/v3/auth/disable", &serde_json::json!({})).await;
    etcd.keys().call("/v3/auth/enable", &serde_json::json!({})).await;
    super::until("the server writes again", async || {
        let object = configmap("after");
        let answer = client.post(&object.collection(), object.body()).await;
        matches!(answer.code.as_u16(), 201 | 409)
    })
    .await;
    assert_eq!(client.get(MAPS).await.with_code(200).keys(), ["default/after", "default/before"]);
}

/// Goal: writes of restricted callers are refused with objects in etcd as in memory. Method: the table of which a stock
/// kube-apiserver answers each row as expected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restricted_writes_are_refused_over_etcd() {
    let Some(etcd) = EtcdCluster::start("etcd restricted writes").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, write_tokens()).unwrap();
    let flags = ["--token-auth-file", tokens.to_str().unwrap(), "--authorization", "node,rbac"];
    let faults = write_faults(serve(&etcd, &flags).await.client()).await;
    assert!(faults.is_empty(), "{} rows:\n{}", faults.len(), faults.join("\n"));
}
