//! Tokens of a stock kube-apiserver, verified by a cache-server in front of it.

use serde_json::json;
use tests::{
    genuine::{ADMIN, CACHE, Genuine, cluster_role, cluster_role_binding, token_of},
    http::Client,
    process::Server,
};

use super::{cache_with, until};

/// Issuer of the cluster's tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Creates a service account, and returns a token of it.
async fn account_token(genuine: &Genuine, name: &str) -> String {
    let admin = genuine.client(ADMIN);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}});
    admin.create_manifest(&account).await;
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = admin.post(&path, &request).await.with_code(201).json();
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// Requests that the API server has answered, but those of its own.
async fn requests(genuine: &Genuine) -> u64 {
    genuine.counters().await.sum("apiserver_request_total", &[])
}

/// Goal: real tokens of service accounts are verified here, without a request for each call. Method: 200 requests for the
/// server's own pages with one token, and the API server's count of requests.
#[tokio::test]
async fn tokens_of_accounts_are_verified_with_the_upstreams_keys() {
    let Some(genuine) = Genuine::start("tokens_of_accounts_are_verified_with_the_upstreams_keys").await else { return };
    let token = account_token(&genuine, "app").await;
    // Not every user may read the keys.
    let discovery = "system:service-account-issuer-discovery";
    genuine.client(ADMIN).create_manifest(&cluster_role_binding("keys", discovery, "User", CACHE)).await;
    let flags =
        ["--service-account-issuer", ISSUER, "--service-account-jwks", "upstream", "--log", "cache_server=debug"];
    let server = cache_with(&genuine, "pods", &flags).await;
    let client = server.client().with_token(&token);
    assert_eq!(client.get("/livez").await.code, 200, "{}", server.log());
    let before = requests(&genuine).await;
    for _ in 0..200 {
        assert_eq!(client.get("/livez").await.code, 200);
    }
    let sent = requests(&genuine).await - before;
    assert!(sent < 50, "{sent} requests to the API server");
    assert!(server.log().contains("system:serviceaccount:default:app"), "{}", server.log());
    let forged = format!("{}A", &token[..token.len() - 1]);
    let other = if forged == token { format!("{}B", &token[..token.len() - 1]) } else { forged };
    for wrong in [&other, "x", &token_of(ADMIN)] {
        assert_eq!(server.client().with_token(wrong).get("/livez").await.code, 401);
    }
}

/// Goal: the API server decides about other tokens if it may be asked. Method: static tokens of the API server, and one
/// that it does not know.
#[tokio::test]
async fn other_tokens_are_reviewed() {
    let Some(genuine) = Genuine::start("other_tokens_are_reviewed").await else { return };
    let admin = genuine.client(ADMIN);
    let role = json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]);
    admin.create_manifest(&cluster_role("reviewer", &role)).await;
    admin.create_manifest(&cluster_role_binding("reviewer", "reviewer", "User", CACHE)).await;
    let server = cache_with(&genuine, "pods", &["--token-review", "--log", "cache_server=debug"]).await;
    let with = |token: &str| -> Client { server.client().with_token(token) };
    until("the review is allowed", async || with(&token_of(ADMIN)).get("/livez").await.code == 200).await;
    let before = genuine.counters().await.sum("apiserver_request_total", &[("resource", "tokenreviews")]);
    for _ in 0..50 {
        assert_eq!(with(&token_of(ADMIN)).get("/livez").await.code, 200);
    }
    let asked = genuine.counters().await.sum("apiserver_request_total", &[("resource", "tokenreviews")]) - before;
    assert!(asked <= 3, "{asked} reviews");
    assert_eq!(with("token-of-none").get("/livez").await.code, 401);
    assert_eq!(with(&token_of(ADMIN)).get("/api/v1/pods").await.code, 200);
}

/// Goal: requests that act as another user are refused as by kube-apiserver. Method: equal headers for both servers.
#[tokio::test]
async fn impersonation_is_read_as_by_kube_apiserver() {
    let Some(genuine) = Genuine::shared("impersonation_is_read_as_by_kube_apiserver").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, format!("{},{ADMIN},u,system:masters\n", token_of(ADMIN))).unwrap();
    let flags = ["--token-auth-file", tokens.to_str().unwrap(), "--log", "cache_server=debug"];
    let server = Server::start(super::BINARY, &flags).await;
    let (theirs, ours) = (genuine.client(ADMIN), server.client().with_token(&token_of(ADMIN)));
    for headers in [
        &[("impersonate-group", "dev")][..],
        &[("impersonate-group", "dev"), ("impersonate-group", "ops")],
        &[("impersonate-uid", "u")],
        &[("impersonate-extra-scopes", "a")],
        &[("impersonate-user", ""), ("impersonate-group", "dev")],
        &[("impersonate-user", "bob")],
    ] {
        let path = "/api/v1/namespaces/none";
        let [theirs, ours] = [theirs.get_with(path, headers).await, ours.get_with(path, headers).await];
        let is_allowed = headers == [("impersonate-user", "bob")];
        if is_allowed {
            // Every user may do everything there, and bob nothing here.
            assert_eq!((theirs.code.as_u16(), ours.code.as_u16()), (403, 404), "{headers:?}");
        } else {
            assert_eq!((theirs.code, theirs.json()), (ours.code, ours.json()), "{headers:?}");
        }
    }
    assert!(server.log().contains("bob"), "{}", server.log());
}
