//! The rights of the chart's account: with all of them the server does its work, and without any one something is missing
//! that an operator sees.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity, cluster_role_binding, token_of},
    http::Client,
    objects::{node, pod},
    process::Server,
};

use super::{NODE, PLACEMENTS, Placement, is_slow_requested, own_uid};
use crate::upstream::scene::{until, until_within};

const ACCOUNT: &str = "system:serviceaccount:cache-server:cache-server";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// User that may read the cached types, by the role of the chart.
const READER: &str = "reader";
/// User without rights.
const STRANGER: &str = "stranger";
/// Timeout until the server is ready and quiet, if it has its rights. It needs a second.
const OBSERVED: Duration = Duration::from_secs(6);
/// Time in which a server complains in its log, once it is ready.
const QUIET: Duration = Duration::from_millis(1500);
/// Flag of an API server that does not stream lists, as older ones do not: all initial state is listed.
const WITHOUT_STREAMS: &str = "--feature-gates=WatchList=false";

/// One right of a role: a verb on a resource.
#[derive(Clone, Debug)]
struct Right {
    role: usize,
    rule: usize,
    resource: String,
    verb: String,
}

/// The cluster, with the objects of one placement.
pub(super) struct Scene {
    pub(super) genuine: Genuine,
    placement: Placement,
    name: &'static str,
}

impl Scene {
    /// Starts a cluster. The user at the socket is this process's.
    pub(super) async fn set(name: &'static str, flags: &[&str]) -> Option<Self> {
        let identities = vec![Identity::new(READER, &[]), Identity::new(STRANGER, &[])];
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let settings = GenuineSettings { identities, flags, ..GenuineSettings::default() };
        let genuine = Genuine::start_with(&format!("rights of {name}"), settings).await?;
        let (placement, admin) = (Placement::read(name), genuine.client(ADMIN));
        for kind in ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"] {
            for object in placement.of(kind) {
                let text = object.to_string().replace("unix:uid:0", &format!("unix:uid:{}", own_uid()));
                admin.create_manifest(&serde_json::from_str(&text).unwrap()).await;
            }
        }
        let types = placement.of("ClusterRole").nth(1).unwrap()["metadata"]["name"].as_str().unwrap();
        admin.create_manifest(&cluster_role_binding(READER, types, "User", READER)).await;
        admin.create(&node(NODE)).await;
        admin.create(&pod("first").namespace("default").node(NODE)).await;
        admin.create_manifest(&definition()).await;
        let path = "/api/v1/namespaces/cache-server/serviceaccounts/cache-server/token";
        let token = admin.post(path, &json!({"spec": {}})).await.with_code(201).json();
        let scene = Self { genuine, placement, name };
        fs::write(scene.token(), token["status"]["token"].as_str().unwrap()).unwrap();
        Some(scene)
    }

    fn token(&self) -> PathBuf {
        self.placement.folder.path().join("token")
    }

    /// The flags of a placement's server on a node, as the account of the chart.
    pub(super) fn flags_of(&self, placement: &Placement, node: &str) -> Vec<String> {
        let upstream = format!("https://{}", self.genuine.address());
        placement.flags(node, &upstream, &self.genuine.ca_file(), &self.token())
    }

    /// Each right of the roles.
    fn rights(&self) -> Vec<Right> {
        let texts =
            |list: &Value| list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        let mut rights = Vec::new();
        for (role, manifest) in self.placement.of("ClusterRole").enumerate() {
            for (rule, rights_of_rule) in manifest["rules"].as_array().unwrap().iter().enumerate() {
                let (resources, verbs): (Vec<String>, Vec<String>) =
                    (texts(&rights_of_rule["resources"]), texts(&rights_of_rule["verbs"]));
                for resource in &resources {
                    rights.extend(verbs.iter().map(|verb| Right {
                        role,
                        rule,
                        resource: resource.clone(),
                        verb: verb.clone(),
                    }));
                }
            }
        }
        rights
    }

    /// Writes the role of a right, with or without that right, and waits until it has effect.
    async fn set_right(&self, right: &Right, is_given: bool) {
        let mut role = self.placement.of("ClusterRole").nth(right.role).unwrap().clone();
        let rules = role["rules"].as_array_mut().unwrap();
        let group = rules[right.rule]["apiGroups"][0].clone();
        let name = rules[right.rule]["resourceNames"][0].clone();
        if !is_given {
            let mut other = rules[right.rule].clone();
            other["resources"].as_array_mut().unwrap().retain(|resource| *resource != right.resource);
            let own = &mut rules[right.rule];
            own["resources"] = json!([right.resource]);
            own["verbs"].as_array_mut().unwrap().retain(|verb| *verb != right.verb);
            rules.push(other);
            rules.retain(|rule| rule["resources"] != json!([]) && rule["verbs"] != json!([]));
        }
        let admin = self.genuine.client(ADMIN);
        let path = format!("{ROLES}/{}", role["metadata"]["name"].as_str().unwrap());
        admin.put(&path, &role).await.with_code(200);
        let attributes = json!({"group": group, "resource": right.resource, "verb": right.verb, "name": name});
        let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": ACCOUNT, "resourceAttributes": attributes}});
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        until("the role has effect", async || {
            admin.post(reviews, &question).await.with_code(201).json()["status"]["allowed"] == is_given
        })
        .await;
    }

    /// Starts the server twice on one folder of states, and returns what an operator misses first.
    async fn symptoms(&self) -> BTreeSet<String> {
        let _ = fs::remove_dir_all(self.placement.folder.path().join("state"));
        let flags = self.flags_of(&self.placement, NODE);
        let mut symptoms = BTreeSet::new();
        for _ in 0..2 {
            let (server, client) = self.placement.serve(&flags).await;
            self.check_reads(&client, &mut symptoms).await;
            until_within(QUIET, async || {
                symptoms.extend(complaints(&server));
                !symptoms.is_empty()
            })
            .await;
            server.terminate();
            server.ended().await;
            if !symptoms.is_empty() {
                break;
            }
        }
        symptoms
    }

    async fn check_reads(&self, client: &Client, symptoms: &mut BTreeSet<String>) {
        let as_user = |user: &str| (*client).with_token(&token_of(user));
        let mut unready = String::new();
        let is_ready = async || {
            let answer = client.get("/readyz?verbose").await;
            let failed = answer.text().lines().filter(|line| line.starts_with("[-]"));
            unready = failed.map(|line| line.split(' ').next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
            answer.code == 200
        };
        if !until_within(OBSERVED, is_ready).await {
            symptoms.insert(format!("not ready: {unready}"));
        }
        let scope =
            if self.name == "daemonset" { format!("?fieldSelector=spec.nodeName={NODE}") } else { String::new() };
        let follows = async || {
            let answer = as_user(ADMIN).get("/readyz?verbose").await;
            answer.code == 200 && answer.text().contains("rights followed")
        };
        if unready.is_empty() && !until_within(OBSERVED, follows).await {
            symptoms.insert("roles are not followed".to_owned());
        }
        for (path, scope) in [("/api/v1/pods", &*scope), ("/api/v1/nodes", "")] {
            let path = format!("{path}{scope}");
            for (user, expected) in [(READER, 200), (STRANGER, 403)] {
                let code = as_user(user).get(&path).await.code;
                if code != expected {
                    symptoms.insert(format!("LIST of the {user}: {code}"));
                }
            }
        }
    }
}

/// The lines of the log that complain about rights or the cluster's identity.
fn complaints(server: &Server) -> BTreeSet<String> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let complains = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        line["level"] == "WARN"
            && (text("class") == "forbidden"
                || text("error").contains("answered 403")
                || text("message") == "cluster identity not readable")
    };
    let lines = lines.filter(complains);
    lines.map(|line| format!("log: {}", line["message"].as_str().unwrap_or_default())).collect()
}

/// A definition: without any, the server has nothing to prove of them.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

/// Goal: the account's rights suffice. Method: the server with the flags of each placement in front of a kube-apiserver that
/// authorizes by RBAC, as that account, twice on one folder of states.
#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_the_account_suffice() {
    if !is_slow_requested("rights of the chart") {
        return;
    }
    for name in PLACEMENTS {
        let Some(scene) = Scene::set(name, &[]).await else { return };
        let symptoms = scene.symptoms().await;
        assert!(symptoms.is_empty(), "{name}: {symptoms:?}");
    }
}

/// Goal: the account has no right that it does not need. Method: as above, without each right. Rights to list are for API
/// servers that do not stream initial state.
async fn check_each_right(name: &'static str) {
    if !is_slow_requested("each right of the chart") {
        return;
    }
    let Some(scene) = Scene::set(name, &[WITHOUT_STREAMS]).await else { return };
    let symptoms = scene.symptoms().await;
    assert!(symptoms.is_empty(), "{name}: {symptoms:?}");
    let mut idle = Vec::new();
    for right in scene.rights() {
        scene.set_right(&right, false).await;
        let symptoms = scene.symptoms().await;
        scene.set_right(&right, true).await;
        let Right { resource, verb, .. } = &right;
        eprintln!("{name}, without {verb} on {resource}: {}", Vec::from_iter(symptoms.iter().cloned()).join("; "));
        if symptoms.is_empty() {
            idle.push(format!("{verb} on {resource}"));
        }
    }
    assert!(idle.is_empty(), "{name}: rights that nothing needs: {idle:?}");
}

/// Covers the DaemonSet too, whose rights are the same.
#[tokio::test(flavor = "multi_thread")]
async fn each_right_of_the_deployment_is_needed() {
    check_each_right("deployment").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_right_of_the_sidecar_is_needed() {
    check_each_right("sidecar").await;
}
