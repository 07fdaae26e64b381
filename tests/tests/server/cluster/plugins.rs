//! Quotas, ranges of limits and service accounts, which decide about writes as in kube-apiserver.

use std::fs;

use cache_server::{
    config::{AdmissionPlugins, AuthenticationConfig, AuthorizationConfig, AuthorizationMode, Config},
    testing::{self, ApiServer},
};
use futures::future::join_all;
use serde_json::{Value, json};
use tests::http::{Client, MERGE_PATCH};
use tokio::join;

use super::client_of;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Stores a quota that its controller has measured.
async fn quota(client: &Client, name: &str, hard: &Value, used: &Value) {
    client.post(QUOTAS, &json!({"metadata": {"name": name}, "spec": {"hard": hard}})).await.with_code(201);
    let status = json!({"status": {"hard": hard, "used": used}});
    client.patch(&format!("{QUOTAS}/{name}/status"), MERGE_PATCH, &status).await.with_code(200);
}

async fn used(client: &Client, name: &str) -> Value {
    client.get(&format!("{QUOTAS}/{name}")).await.with_code(200).json()["status"]["used"].clone()
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

/// Goal: the last units of a quota are given once. Method: more creates at once than two quotas allow, while another client
/// changes one of them; then one more, a dry run and a delete.
#[tokio::test]
async fn writes_at_once_share_what_is_left_of_a_quota() {
    let server = testing::start().await;
    let client = client_of(&server);
    quota(&client, "maps", &json!({"configmaps": "5"}), &json!({"configmaps": "1"})).await;
    quota(&client, "more", &json!({"count/configmaps": "9", "pods": "1"}), &json!({"count/configmaps": "0"})).await;
    let bodies: Vec<Value> = (0..12).map(|at| named(&format!("m{at}"))).collect();
    let annotate = async |at: usize| {
        let change = json!({"metadata": {"annotations": {"at": at.to_string()}}});
        client.patch(&format!("{QUOTAS}/maps"), MERGE_PATCH, &change).await.with_code(200);
    };
    let creates = join_all(bodies.iter().map(|body| client.post(MAPS, body)));
    let (answers, _) = join!(creates, join_all((0..12).map(annotate)));
    let refused: Vec<_> = answers.iter().filter(|answer| answer.code == 403).map(|answer| answer.message()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.code == 201).count(), 4);
    assert_eq!(refused.len(), 8);
    let text = "is forbidden: exceeded quota: maps, requested: configmaps=1, used: configmaps=5, limited: configmaps=5";
    assert!(refused.iter().all(|message| message.ends_with(text)), "{refused:?}");
    assert_eq!(used(&client, "maps").await, json!({"configmaps": "5"}));
    assert_eq!(used(&client, "more").await, json!({"count/configmaps": "4"}));

    let tried = client.post(&format!("{MAPS}?dryRun=All"), &named("m")).await.with_code(403);
    assert!(tried.message().ends_with(text), "{}", tried.message());
    let made = client.get(MAPS).await.keys();
    client.delete(&format!("/api/v1/namespaces/{}", made[0].replace('/', "/configmaps/"))).await.with_code(200);
    client.post(MAPS, &named("m")).await.with_code(403);
    let status = json!({"status": {"used": {"configmaps": "4"}}});
    client.patch(&format!("{QUOTAS}/maps/status"), MERGE_PATCH, &status).await.with_code(200);
    client.post(&format!("{MAPS}?dryRun=All"), &named("m")).await.with_code(201);
    assert_eq!(used(&client, "maps").await, json!({"configmaps": "4"}));
    let fork = server.fork();
    client_of(&fork).post(MAPS, &named("m")).await.with_code(201);
    client_of(&fork).post(MAPS, &named("n")).await.with_code(403);
    assert_eq!(used(&client, "maps").await, json!({"configmaps": "4"}));
    client.post("/api/v1/namespaces/kube-system/configmaps", &named("elsewhere")).await.with_code(201);
}

/// Goal: a quota counts what its controller has measured, also of changes. Method: a quota without a status; then a Service that
/// changes its type and a claim that grows.
#[tokio::test]
async fn changes_are_charged_for_what_they_add() {
    let server = testing::start().await;
    let client = client_of(&server);
    let hard = json!({"services.nodeports": "2", "requests.storage": "2Gi"});
    client.post(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.with_code(201);
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    client.post(SERVICES, &service).await.with_code(201);
    let path = format!("{QUOTAS}/q/status");
    client.patch(&path, MERGE_PATCH, &json!({"status": {"hard": hard}})).await.with_code(200);
    let node_ports = json!({"spec": {"type": "NodePort"}});
    let unknown = client.patch(&format!("{SERVICES}/s"), MERGE_PATCH, &node_ports).await.with_code(403);
    let text = "services \"s\" is forbidden: status unknown for quota: q, resources: services.nodeports";
    assert_eq!(unknown.message(), text);
    let used_now = json!({"services.nodeports": "0", "requests.storage": "0"});
    client.patch(&path, MERGE_PATCH, &json!({"status": {"used": used_now}})).await.with_code(200);
    client.patch(&format!("{SERVICES}/s"), MERGE_PATCH, &node_ports).await.with_code(200);
    assert_eq!(used(&client, "q").await["services.nodeports"], "2");
    client
        .post(SERVICES, &json!({"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}}))
        .await
        .with_code(403);

    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    client.post(CLAIMS, &claim).await.with_code(201);
    let phase = json!({"status": {"phase": "Bound"}});
    client.patch(&format!("{CLAIMS}/c/status"), MERGE_PATCH, &phase).await.with_code(200);
    assert_eq!(used(&client, "q").await["requests.storage"], "1Gi");
    client
        .post(
            RANGES,
            &json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}}),
        )
        .await
        .with_code(201);
    let again = json!({"metadata": {"labels": {"a": "b"}}});
    client.patch(&format!("{CLAIMS}/c"), MERGE_PATCH, &again).await.with_code(200);
    let more = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    let refused = client.post(CLAIMS, &more).await.with_code(403).message();
    assert!(
        refused.ends_with("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"),
        "{refused}"
    );
}

/// Goal: pods get the amounts that their namespace defaults to, and count with them. Method: a range and a quota; pods created
/// in each way, and one beyond the range.
#[tokio::test]
async fn pods_count_with_the_amounts_that_they_get() {
    let server = testing::start().await;
    let client = client_of(&server);
    let range = json!({"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}});
    client.post(RANGES, &json!({"metadata": {"name": "r"}, "spec": {"limits": [range]}})).await.with_code(201);
    quota(&client, "q", &json!({"requests.cpu": "1", "pods": "9"}), &json!({"requests.cpu": "0", "pods": "0"})).await;
    let made = client.post(PODS, &pod("a", &json!({}))).await.with_code(201).json();
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let applied = pod("b", &json!({"limits": {"cpu": "300m"}}));
    let path = format!("{PODS}/b?fieldManager=me");
    let applied = client.patch(&path, APPLY_PATCH, &applied).await.with_code(201).json();
    assert_eq!(applied["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "300m"}));
    assert_eq!(used(&client, "q").await, json!({"requests.cpu": "400m", "pods": "2"}));
    let refused = client.post(PODS, &pod("c", &json!({"limits": {"cpu": "2"}}))).await.with_code(403).message();
    assert!(refused.ends_with("maximum cpu usage per Container is 1, but limit is 2"), "{refused}");
    let refused = client.post(PODS, &pod("c", &json!({"limits": {"cpu": "700m"}}))).await.with_code(403).message();
    let text = "exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=400m, limited: requests.cpu=1";
    assert!(refused.ends_with(text), "{refused}");
    client.delete(&format!("{RANGES}/r")).await.with_code(200);
    let bare = client.post(PODS, &pod("c", &json!({}))).await.with_code(403).message();
    assert!(bare.ends_with("failed quota: q: must specify requests.cpu for: c"), "{bare}");
}

/// Goal: a quota counts for users who may not see it. Method: a user who may only create, up to the quota.
#[tokio::test]
async fn a_quota_counts_for_users_without_rights_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "admin-token,admin,1,system:masters\nuser-token,user,2,\n").expect("a file");
    let config = Config {
        acts_as_cluster: true,
        authentication: AuthenticationConfig { token_auth_file: Some(tokens), ..AuthenticationConfig::default() },
        authorization: AuthorizationConfig { modes: vec![AuthorizationMode::Rbac] },
        ..Config::default()
    };
    let server = testing::start_with(config).await.expect("starts");
    let (admin, user) = (client_of(&server).with_token("admin-token"), client_of(&server).with_token("user-token"));
    let rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    admin.post(&format!("{rights}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await.with_code(201);
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let binding = json!({"metadata": {"name": "r"}, "roleRef": role, "subjects": [subject]});
    admin.post(&format!("{rights}/rolebindings"), &binding).await.with_code(201);
    quota(&admin, "q", &json!({"configmaps": "1"}), &json!({"configmaps": "0"})).await;
    user.get(&format!("{QUOTAS}/q")).await.with_code(403);
    while user.post(MAPS, &named("a")).await.code != 201 {
        tokio::task::yield_now().await;
    }
    assert!(user.post(MAPS, &named("b")).await.with_code(403).message().contains("exceeded quota: q"));
    assert_eq!(used(&admin, "q").await, json!({"configmaps": "1"}));
}

async fn with(admission: AdmissionPlugins, acts_as_cluster: bool) -> ApiServer {
    let config = Config { acts_as_cluster, admission, ..Config::default() };
    testing::start_with(config).await.expect("starts")
}

/// Goal: a pod has an account, and its token. Method: a pod that waits for the account of its namespace, one whose account
/// does not exist, and one that wants no token.
#[tokio::test]
async fn a_pod_has_a_service_account_and_its_token() {
    let server = with(AdmissionPlugins::ALL, true).await;
    let client = client_of(&server);
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    let (made, first) = (pod("a", &json!({})), pod("first", &json!({})));
    let (_, made) = join!(client.post(ACCOUNTS, &account), client.post(PODS, &made));
    let spec = made.with_code(201).json()["spec"].clone();
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let volume = spec["volumes"][0]["name"].as_str().expect("a volume");
    assert!(volume.starts_with("kube-api-access-") && volume.len() == 21, "{volume}");
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    let mount = json!({"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    let mut other = first.clone();
    other["spec"]["serviceAccountName"] = "app".into();
    let refused = client.post(PODS, &other).await.with_code(403).message();
    let text = "error looking up service account default/app: serviceaccount \"app\" not found";
    assert_eq!(refused, format!("pods \"first\" is forbidden: {text}"));
    let mut quiet = first;
    quiet["spec"]["automountServiceAccountToken"] = false.into();
    let spec = client.post(PODS, &quiet).await.with_code(201).json()["spec"].clone();
    assert_eq!((spec.get("volumes"), &spec["serviceAccountName"]), (None, &json!("default")));
}

/// Goal: plugins are off where the server is no cluster, and where settings say so. Method: writes that each of them would
/// refuse or change.
#[tokio::test]
async fn plugins_that_are_off_decide_nothing() {
    let none = AdmissionPlugins::without(&["LimitRanger", "ResourceQuota", "ServiceAccount"]);
    for server in [with(AdmissionPlugins::ALL, false).await, with(none, true).await] {
        let client = client_of(&server);
        quota(&client, "q", &json!({"pods": "0"}), &json!({"pods": "0"})).await;
        let range = json!({"type": "Container", "min": {"cpu": "1"}, "default": {"cpu": "2"}});
        client.post(RANGES, &json!({"metadata": {"name": "r"}, "spec": {"limits": [range]}})).await.with_code(201);
        let made = client.post(PODS, &pod("a", &json!({}))).await.with_code(201).json();
        let spec = &made["spec"];
        assert_eq!((spec.get("serviceAccountName"), &spec["containers"][0]["resources"]), (None, &json!({})), "{made}");
    }
}
