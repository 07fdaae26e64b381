//! A server that knows its callers, and honest ones of it, each on a priority level of its own.

use std::{fmt::Write as _, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tests::{http::Client, objects::namespace, process::Server, tls::Authority};
use tokio::time::sleep;

use super::{
    BINARY, By, Size,
    victim::{Victim, Way},
};

/// Users that attack together.
const ATTACKERS: usize = 50;

/// Users by their token, with uid and groups: no one but the first is exempt from flow control.
const USERS: [(&str, &str, &str); 6] = [
    ("admin", "admin", "system:masters"),
    ("owner", "owner", ""),
    // Levels global-default, workload-low, node-high and workload-high.
    ("honest", "honest", ""),
    ("robot", "system:serviceaccount:default:robot", "system:serviceaccounts,system:serviceaccounts:default"),
    ("node", "system:node:n1", "system:nodes"),
    ("manager", "system:kube-controller-manager", ""),
];

/// A server under attack.
pub(crate) struct World {
    pub(crate) server: Server,
    client: Client,
    certificate: Option<std::path::PathBuf>,
    _files: TempDir,
}

fn attacker(index: usize) -> String {
    format!("mal{index}")
}

impl World {
    pub(crate) async fn new(way: Way, pods: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let mut users = String::new();
        for (token, name, groups) in USERS {
            writeln!(users, "{token},{name},{name},\"{groups}\"").unwrap();
        }
        for name in (0..ATTACKERS).map(attacker) {
            writeln!(users, "{name},{name},{name}").unwrap();
        }
        let tokens = folder.path().join("tokens.csv");
        std::fs::write(&tokens, users).unwrap();
        let populate = format!("pods={pods},nodes=10,namespaces=5,seed=1");
        let mut flags = vec!["--token-auth-file", tokens.to_str().unwrap(), "--authorization", "node,rbac"];
        flags.extend(["--populate", &populate]);
        let tls = files.flags();
        flags.extend(tls.iter().filter(|_| way.tls));
        let server = Server::start(BINARY, &flags).await;
        let certificate = way.tls.then(|| files.cert.clone());
        let client = server.client();
        let client = if way.tls { client.over_tls(authority.trust()) } else { client };
        let world = Self { server, client, certificate, _files: folder };
        world.grant().await;
        world
    }

    /// Lets everyone do everything, but for the owner of a namespace.
    async fn grant(&self) {
        let admin = self.as_user("admin");
        let user = |name: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        let names = USERS.iter().map(|(_, name, _)| (*name).to_owned()).filter(|name| name != "owner");
        let all: Vec<_> = names.chain((0..ATTACKERS).map(attacker)).map(|name| user(&name)).collect();
        let role = |name: &str| json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        let binding = json!({"kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "all"}, "roleRef": role("cluster-admin"), "subjects": all});
        admin.create_manifest(&binding).await;
        admin.create(&namespace("owned")).await;
        let binding = json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "owner", "namespace": "owned"}, "roleRef": role("admin"), "subjects": [user("owner")]});
        admin.create_manifest(&binding).await;
        // Bindings take effect soon, not at once.
        for user in ["owner", "honest"].map(|name| self.as_user(name)) {
            while user.get("/api/v1/namespaces/owned/configmaps").await.code == 403 {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// A client with the token of a user.
    pub(crate) fn as_user(&self, token: &str) -> Client {
        self.client.with_token(token)
    }

    /// Returns the server as its attackers see it.
    pub(crate) fn victim(&self, way: Way, by: By) -> Victim {
        let tokens = match by {
            By::Nobody => Vec::new(),
            By::Owner => vec!["owner".to_owned()],
            By::Users => (0..ATTACKERS).map(attacker).collect(),
        };
        Victim::new(self.server.address(), way, self.certificate.as_deref(), tokens)
    }

    /// Creates what an attack needs before it begins.
    pub(crate) async fn prepare(&self, name: &str, size: Size) {
        if name.contains("tables") {
            super::types::create_wide(self.as_user("admin"), size).await;
        }
    }
}
