//! Users that the server in front of the cluster has authenticated itself: the cluster decides about them, or its roles do.

use std::{fs, time::Instant};

use serde_json::json;
use tests::{
    genuine::{ADMIN, CACHE, Genuine, cluster_role, cluster_role_binding},
    http::Client,
    process::Server,
};

use super::{BINARY, until};

const PODS: &str = "/api/v1/pods";
const NODE_PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";

/// A server in front of the cluster whose users come from a file of tokens.
async fn front(genuine: &Genuine, folder: &tempfile::TempDir, flags: &[&str]) -> Server {
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "local-alice,alice,1,\nlocal-bob,bob,2,\n").unwrap();
    let kubeconfig = genuine.kubeconfig(CACHE);
    let upstream = ["--upstream", "--kubeconfig", kubeconfig.to_str().unwrap(), "--resources=pods"];
    let own = ["--token-auth-file", tokens.to_str().unwrap()];
    Server::start(BINARY, &[&upstream[..], &own, flags].concat()).await
}

/// Requests for a resource that the API server has answered.
async fn count(genuine: &Genuine, resource: &str) -> u64 {
    genuine.counters().await.sum("apiserver_request_total", &[("resource", resource)])
}

async fn code(client: Client, path: &str) -> u16 {
    client.get(path).await.code.as_u16()
}

/// Goal: users of this server have the rights that the cluster gives to their names, and lose them with the cluster's
/// binding; what only the cluster can answer is refused. Method: two users of a token file, one of them bound to a role,
/// with the cluster's reviews and with its roles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_are_known_here_have_the_rights_of_the_cluster() {
    let Some(genuine) = Genuine::start("known users").await else { return };
    let admin = genuine.client(ADMIN);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]);
    admin.create_manifest(&cluster_role("reads-pods", &rules)).await.with_code(201);
    let delegator = cluster_role_binding("asks", "system:auth-delegator", "User", CACHE);
    admin.create_manifest(&delegator).await.with_code(201);
    for flags in [&[][..], &["--authorization=rbac"]] {
        let folder = tempfile::tempdir().unwrap();
        let binding = cluster_role_binding("alice", "reads-pods", "User", "alice");
        admin.create_manifest(&binding).await.with_code(201);
        let server = front(&genuine, &folder, flags).await;
        let (alice, bob) = (server.client().with_token("local-alice"), server.client().with_token("local-bob"));
        until("alice may read", async || code(alice, PODS).await == 200).await;
        assert_eq!([code(bob, PODS).await, code(server.client(), PODS).await], [403, 403], "{flags:?}");
        let before = count(&genuine, "subjectaccessreviews").await;
        for node in 0..20 {
            let path = format!("{PODS}?fieldSelector=spec.nodeName%3Dn{node}&resourceVersion=0");
            assert_eq!(code(alice, &path).await, 200);
        }
        assert_eq!(count(&genuine, "subjectaccessreviews").await, before, "all of a collection is asked about once");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let refused = alice.post("/api/v1/namespaces/default/configmaps", &map).await.with_code(403);
        assert!(!refused.text().contains("local-alice"));
        let mut watch = alice.watch(&format!("{NODE_PODS}&watch=1")).await;
        admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/alice").await.with_code(200);
        let withdrawn = Instant::now();
        watch.rest(std::time::Duration::from_secs(10)).await;
        println!("{flags:?}: the watch ended after {:.1?}", withdrawn.elapsed());
        until("alice may not read", async || code(alice, PODS).await == 403).await;
    }
}
