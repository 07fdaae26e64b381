//! Users that only the server in front of the cluster knows: with `--upstream-impersonate`, its account acts as them.

use std::{
    fs,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, CACHE, Genuine, cluster_role, cluster_role_binding},
    http::{Client, Step},
    objects::configmap,
    process::Server,
    tls::Authority,
};

use super::{BINARY, until};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Longest time from the loss of a right to the end of a watch.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// A server with TLS in front of the cluster, whose users have certificates and tokens of its own.
struct Front {
    server: Server,
    /// Signs the server's certificate, and those of clients.
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Front {
    async fn start(genuine: &Genuine, flags: &[&str]) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let files = authority.issue(folder.path());
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (tokens, clients) = (at("tokens.csv"), at("clients.crt"));
        fs::write(&tokens, "local-alice,alice,1,dev\nlocal-bob,bob,2,\n").unwrap();
        fs::write(&clients, authority.pem()).unwrap();
        let kubeconfig = genuine.kubeconfig(CACHE).display().to_string();
        let upstream = ["--upstream", "--kubeconfig", &kubeconfig, "--resources=pods"];
        let own = ["--token-auth-file", &tokens, "--client-ca-file", &clients];
        let server = Server::start(BINARY, &[&upstream[..], &own, &files.flags(), flags].concat()).await;
        Self { server, authority, folder }
    }

    fn with_token(&self, token: &str) -> Client {
        Client::new(self.server.address()).over_tls(self.authority.trust()).with_token(token)
    }

    fn with_certificate(&self, user: &str, groups: &[&str]) -> Client {
        let files = self.authority.issue_user(self.folder.path(), user, groups);
        Client::new(self.server.address()).over_tls(self.authority.trust_as(&files))
    }
}

/// The cluster's answer to the question for the caller's name.
async fn identity(client: Client) -> Value {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.post(WHO_AM_I, &question).await;
    if answer.code == 201 { answer.json()["status"]["userInfo"].clone() } else { Value::Null }
}

/// Goal: what only the cluster can answer is answered to users that it does not know, with exactly their rights, and only if
/// this server's account may act as them. Method: users with a token and with a certificate, before and after the account
/// gets the right; what they ask to be beside that; and the end of a watch whose right is withdrawn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_acts_as_users_that_only_this_server_knows() {
    let Some(genuine) = Genuine::start("impersonation").await else { return };
    let admin = genuine.client(ADMIN);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list", "watch"]}]);
    admin.create_manifest(&cluster_role("writes", &rules)).await.with_code(201);
    for user in ["alice", "carol"] {
        admin.create_manifest(&cluster_role_binding(user, "writes", "User", user)).await.with_code(201);
    }
    let delegator = cluster_role_binding("asks", "system:auth-delegator", "User", CACHE);
    admin.create_manifest(&delegator).await.with_code(201);
    let (front, closed) =
        (Front::start(&genuine, &["--upstream-impersonate"]).await, Front::start(&genuine, &[]).await);
    let (alice, bob) = (front.with_token("local-alice"), front.with_token("local-bob"));
    until("alice is refused for the account", async || {
        let refused = alice.get(CONFIGMAPS).await;
        refused.code == 403 && refused.message().contains("does not know these credentials")
    })
    .await;

    let rules = json!([
        {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["uids", "userextras/authentication.kubernetes.io/credential-id"], "verbs": ["impersonate"]},
    ]);
    admin.create_manifest(&cluster_role("acts", &rules)).await.with_code(201);
    admin.create_manifest(&cluster_role_binding("acts", "acts", "User", CACHE)).await.with_code(201);
    until("the account may act", async || !identity(alice).await.is_null()).await;
    let of_alice = identity(alice).await;
    let expected = json!({"username": "alice", "uid": "1", "groups": ["dev", "system:authenticated"]});
    assert_eq!(of_alice, expected);
    let carol = front.with_certificate("carol", &["ops"]);
    for carol in [carol, carol.over_http2()] {
        let of_carol = identity(carol).await;
        assert_eq!(of_carol["username"], "carol");
        assert_eq!(of_carol["groups"], json!(["ops", "system:authenticated"]), "{of_carol}");
    }
    alice.post(CONFIGMAPS, configmap("made").body()).await.with_code(201);
    assert_eq!(carol.get(&format!("{CONFIGMAPS}/made")).await.code, 200);
    assert_eq!(bob.get(&format!("{CONFIGMAPS}/made")).await.code, 403);
    let answer = closed.with_token("local-alice").get(&format!("{CONFIGMAPS}/made")).await;
    assert!(answer.with_code(403).message().contains("does not know"), "only with the flag");

    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    for (name, value) in [("impersonate-user", "admin"), ("impersonate-user", "bob")] {
        for more in [("accept", "*/*"), ("impersonate-group", "system:masters"), ("connection", "impersonate-user")] {
            let headers = [("content-type", "application/json"), (name, value), more];
            let request = Client::request(Method::POST, WHO_AM_I, &headers, question.clone().into());
            assert_eq!(alice.send(request).await.code, 403, "{value} {more:?}");
        }
    }
    let alone = [("content-type", "application/json"), ("impersonate-group", "system:masters")];
    let request = Client::request(Method::POST, WHO_AM_I, &alone, question.into());
    assert_eq!(alice.send(request).await.code, 400, "a group without a user");

    let mut watch = alice.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    watch.event().await;
    admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/alice").await.with_code(200);
    let withdrawn = Instant::now();
    while let Step::Event(_) = watch.step(2 * ENDED_WITHIN).await {}
    assert!(withdrawn.elapsed() < ENDED_WITHIN, "{:?}", withdrawn.elapsed());
}
