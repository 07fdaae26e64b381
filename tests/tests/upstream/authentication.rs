//! Tokens of a stock kube-apiserver, verified by a cache-server in front of it.

use std::{fs, path::Path};

use http::Method;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, CACHE, Genuine, cluster_role, cluster_role_binding, token_of},
    http::Client,
    process::Server,
};

use super::{BINARY, cache_with, until};

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
    server.logged("system:serviceaccount:default:app").await;
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

/// A server without an upstream that knows the users of `genuine` and the keys of its service accounts.
async fn stand_alone(genuine: &Genuine, folder: &Path) -> Server {
    let (tokens, keys) = (folder.join("tokens.csv"), folder.join("keys.json"));
    let users = [(ADMIN, 0, "system:masters"), (CACHE, 1, "")];
    let lines = users.map(|(user, number, groups)| format!("{},{user},{number},{groups}\n", token_of(user)));
    fs::write(&tokens, lines.concat()).unwrap();
    let document = genuine.client(ADMIN).get("/openid/v1/jwks").await.with_code(200);
    fs::write(&keys, &document.body).unwrap();
    let [tokens, keys] = [&tokens, &keys].map(|path| path.to_str().unwrap());
    let issuer = ["--service-account-issuer", ISSUER, "--service-account-jwks", keys];
    let flags = ["--token-auth-file", tokens, "--authorization", "rbac", "--log", "cache_server=debug"];
    Server::start(BINARY, &[&issuer[..], &flags].concat()).await
}

/// Goal: requests that act as another user are allowed and refused as by kube-apiserver. Method: equal headers for both
/// servers, of a user who may impersonate and of one who may not.
#[tokio::test]
async fn impersonation_is_that_of_kube_apiserver() {
    let Some(genuine) = Genuine::shared("impersonation_is_that_of_kube_apiserver").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = stand_alone(genuine, folder.path()).await;
    for user in [ADMIN, CACHE] {
        let (theirs, ours) = (genuine.client(user), server.client().with_token(&token_of(user)));
        for headers in [
            &[("impersonate-group", "dev")][..],
            &[("impersonate-group", "dev"), ("impersonate-group", "ops")],
            &[("impersonate-uid", "u")],
            &[("impersonate-extra-scopes", "a")],
            &[("impersonate-user", ""), ("impersonate-group", "dev")],
            &[("impersonate-user", "bob")],
            &[("impersonate-user", "bob"), ("impersonate-group", "dev"), ("impersonate-uid", "u")],
            &[("impersonate-user", "bob"), ("impersonate-extra-acme.com%2fproject", "a")],
            &[("impersonate-user", "system:serviceaccount:default:app")],
            &[("impersonate-user", "system:anonymous")],
        ] {
            let path = "/api/v1/namespaces/none/pods/none";
            let [theirs, ours] = [theirs.get_with(path, headers).await, ours.get_with(path, headers).await];
            assert_eq!(ours.code, theirs.code, "{user} {headers:?}: {} {}", ours.message(), theirs.message());
            // kube-apiserver also asks for the verbs of constrained impersonation, and names those that are missing.
            let names_other_verbs = theirs.message().contains(" cannot impersonate-on:");
            if !names_other_verbs {
                assert_eq!(ours.json(), theirs.json(), "{user} {headers:?}");
            }
            assert!(!names_other_verbs || ours.message().contains(" cannot impersonate resource "), "{headers:?}");
        }
    }
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = |client: Client, headers: &'static [(&'static str, &'static str)]| {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = Client::request(Method::POST, path, &headers, whoami.to_string().into());
        async move { client.send(request).await.with_code(201).json()["status"].clone() }
    };
    for headers in [
        &[][..],
        &[("impersonate-user", "bob"), ("impersonate-group", "dev"), ("impersonate-uid", "u")],
        &[("impersonate-user", "bob"), ("impersonate-extra-acme.com%2fproject", "a")],
        &[("impersonate-user", "system:serviceaccount:default:app")],
    ] {
        let [theirs, ours] = [
            request(genuine.client(ADMIN), headers).await,
            request(server.client().with_token(&token_of(ADMIN)), headers).await,
        ];
        assert_eq!(ours, theirs, "{headers:?}");
    }
}

/// Goal: what only a caller's headers can be blamed for gets the API server's answer, not one that is repeated. Method: bad
/// headers of impersonation on reads that a cache answers, through both doors.
#[tokio::test]
async fn bad_headers_of_impersonation_get_the_answer_of_the_api_server() {
    let Some(genuine) = Genuine::shared("bad_headers_of_impersonation").await else { return };
    let server = cache_with(genuine, "pods", &[]).await;
    let (theirs, ours) = (genuine.client(ADMIN), server.client().with_token(&token_of(ADMIN)));
    for headers in [
        &[("impersonate-group", "dev")][..],
        &[("impersonate-uid", "u")],
        &[("impersonate-extra-scopes", "a")],
        &[("impersonate-user", ""), ("impersonate-group", "dev")],
    ] {
        for path in [
            "/api/v1/pods?resourceVersion=0",
            "/api/v1/pods",
            "/api/v1/namespaces/default/pods?watch=1&resourceVersion=0",
        ] {
            let [theirs, ours] = [theirs.get_with(path, headers).await, ours.get_with(path, headers).await];
            assert_eq!(theirs.code, 400, "{headers:?} {path}: {}", theirs.message());
            assert_eq!((ours.code, ours.message()), (theirs.code, theirs.message()), "{headers:?} {path}");
        }
    }
}

/// Goal: paths and options at their edges mean the same in this server, in front of a cluster and in the cluster. Method:
/// encoded slashes and negative timeouts, at each of the three.
#[tokio::test]
async fn encoded_slashes_and_negative_timeouts_mean_what_they_mean_to_kube_apiserver() {
    let Some(genuine) = Genuine::shared("encoded_slashes_and_negative_timeouts").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (front, alone) = (cache_with(genuine, "pods", &[]).await, stand_alone(genuine, folder.path()).await);
    let doors = [&front, &alone].map(|server| server.client().with_token(&token_of(ADMIN)));
    let direct = genuine.client(ADMIN);
    for path in [
        "/api/v1/namespaces/a%2Fb/pods",
        "/api/v1/namespaces/a%2F..%2Fb/pods",
        "/api/v1/namespaces/default%2Fpods",
        "/api/v1/namespaces/default/pods/none%2Fb",
        "/api/v1/namespaces/default/pods%2Fnone",
        "/api/v1/pods%2F",
    ] {
        let expected = direct.get(path).await;
        for door in &doors {
            let answer = door.get(path).await;
            assert_eq!(answer.code, expected.code, "{path}: {} {}", answer.text(), expected.text());
            assert_eq!(answer.json()["kind"], expected.json()["kind"], "{path}");
        }
    }
    let watches =
        ["", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"];
    for options in watches {
        let path = format!("/api/v1/namespaces/none/pods?watch=1&timeoutSeconds=-1{options}");
        for door in &doors {
            let answer = door.get(&path).await.with_code(200);
            // kube-apiserver looks at the deadline and at the first event in no order, so half of its answers are empty.
            until("the API server gives this answer too", async || direct.get(&path).await.text() == answer.text())
                .await;
        }
    }
}

/// Goal: TokenReviews are answered as by kube-apiserver, attributes of service accounts included. Method: equal questions for
/// both servers; the texts of errors may differ.
#[tokio::test]
async fn token_reviews_are_those_of_kube_apiserver() {
    let Some(genuine) = Genuine::shared("token_reviews_are_those_of_kube_apiserver").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = stand_alone(genuine, folder.path()).await;
    let account = account_token(genuine, "reviewed").await;
    let (theirs, ours) = (genuine.client(ADMIN), server.client().with_token(&token_of(ADMIN)));
    for spec in [
        json!({"token": token_of(ADMIN)}),
        json!({"token": token_of(CACHE), "audiences": [ISSUER]}),
        json!({"token": token_of(CACHE), "audiences": ["other"]}),
        json!({"token": account}),
        json!({"token": account, "audiences": ["other", ISSUER]}),
        json!({"token": account, "audiences": ["other"]}),
        json!({"token": format!("{account}x")}),
        json!({"token": "none"}),
        json!({"token": ""}),
    ] {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let [mut theirs, mut ours] = [theirs.post(path, &review).await, ours.post(path, &review).await]
            .map(|answer| (answer.code, answer.json()));
        for (_, answer) in [&mut theirs, &mut ours] {
            answer.as_object_mut().unwrap().remove("metadata");
            if let Some(error) = answer.pointer_mut("/status/error") {
                *error = "some".into();
            }
            // A user without groups is in the empty one there.
            if let Some(groups) = answer.pointer_mut("/status/user/groups").and_then(Value::as_array_mut) {
                groups.retain(|group| group != "");
            }
        }
        assert_eq!(ours, theirs, "{spec}");
    }
}
