//! Authorizers over the caches of a server without sockets.

use std::sync::Arc;

use access_rules::{
    bootstrap,
    rbac::RbacKind,
    request_info::RequestInfo,
    user::{NODES, User},
};
use api_rules::object::draft::draft;
use informer_serving::query::Query;
use serde_json::{Value, json};

use super::{Server, with_body};
use crate::{
    access::authorize::*,
    app::App,
    config::{AuthorizationConfig, AuthorizationMode, Config},
    registry::Registry,
    storage::{
        Expect, Store as _, Txn,
        faulty::{Fault, Faulty, Verb},
    },
    upstream::own_requests::QuestionOrigin,
};

fn config(modes: &[AuthorizationMode]) -> Config {
    let authorization = AuthorizationConfig { modes: modes.to_vec() };
    Config { authorization, ..Config::default() }
}

async fn server(modes: &[AuthorizationMode]) -> Server {
    let server = Server::with(config(modes));
    server.app.start().await;
    server
}

fn info(request: &str) -> RequestInfo {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestInfo::new(method, path, &Query::parse(Some(query)))
}

fn user(name: &str) -> User {
    User::authenticated(name, [])
}

async fn is_allowed(app: &App, user: &User, request: &str) -> bool {
    app.access.authorizer.decide(user, &info(request)).await.unwrap().is_allowed()
}

/// Waits until a decision is as expected. A test that fails runs into the timeout of its runner.
async fn becomes(app: &App, user: &User, request: &str, expected: bool) {
    let mut changes = app.access.authorizer.changes().expect("roles change");
    while is_allowed(app, user, request).await != expected {
        changes.changed().await.unwrap();
    }
}

/// Writes an object of the group of roles, and returns the code and the message.
async fn write(server: &Server, method: &str, path: &str, object: &Value) -> (u16, String) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
    let answer = server.send(with_body(method, &path, object.to_string())).await;
    let message = serde_json::from_str::<Value>(&answer.body).unwrap_or_default()["message"].take();
    (answer.code, message.as_str().unwrap_or_default().to_owned())
}

fn role(name: &str, resource: &str) -> Value {
    json!({"metadata": {"name": name}, "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": [resource]}]})
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    })
}

#[tokio::test]
async fn stored_roles_decide_and_a_change_acts() {
    let server = server(&[AuthorizationMode::Rbac]).await;
    let (alice, pods) = (user("alice"), "GET /api/v1/namespaces/a/pods");
    assert!(is_allowed(&server.app, &alice, "GET /api/v1").await, "the bootstrap roles are there");
    assert!(is_allowed(&server.app, &User::unsecured(), "DELETE /api/v1/nodes").await);
    assert!(!is_allowed(&server.app, &alice, pods).await);
    assert_eq!(write(&server, "POST", "namespaces/a/roles", &role("r", "pods")).await.0, 201);
    assert_eq!(write(&server, "POST", "namespaces/a/rolebindings", &binding("b", "r", "alice")).await.0, 201);
    becomes(&server.app, &alice, pods, true).await;
    assert_eq!(write(&server, "PUT", "namespaces/a/roles/r", &role("r", "secrets")).await.0, 200);
    becomes(&server.app, &alice, pods, false).await;
    becomes(&server.app, &alice, "GET /api/v1/namespaces/a/secrets", true).await;
    assert_eq!(write(&server, "DELETE", "namespaces/a/rolebindings/b", &json!({})).await.0, 200);
    becomes(&server.app, &alice, "GET /api/v1/namespaces/a/secrets", false).await;
    let refusal =
        server.app.access.authorizer.authorize(&alice, &info(pods), QuestionOrigin::Request).await.unwrap_err();
    assert_eq!(refusal.code, 403);
    assert_eq!(
        refusal.message,
        r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "a""#
    );
}

#[tokio::test]
async fn decisions_are_counted() {
    let server = server(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    is_allowed(&server.app, &user("alice"), "GET /api/v1").await;
    is_allowed(&server.app, &user("alice"), "GET /api/v1/pods").await;
    is_allowed(&server.app, &User::authenticated("system:node:n1", [NODES.to_owned()]), "GET /api/v1/nodes/n1").await;
    let text = server.get("/metrics").await.body;
    for (by, decision) in [("RBAC", "allowed"), ("All", "denied"), ("Node", "allowed")] {
        let line = format!("apiserver_authorization_decisions_total{{type=\"{by}\",decision=\"{decision}\"}} 1\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test]
async fn nodes_read_what_their_pods_refer_to() {
    let server = server(&[AuthorizationMode::Node, AuthorizationMode::Rbac]).await;
    let node = User::authenticated("system:node:n1", [NODES.to_owned()]);
    let secret = "GET /api/v1/namespaces/a/secrets/s";
    assert!(!is_allowed(&server.app, &node, secret).await);
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    });
    let answer = server.send(with_body("POST", "/api/v1/namespaces/a/pods", pod.to_string())).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    while !is_allowed(&server.app, &node, secret).await {
        tokio::task::yield_now().await;
    }
    assert!(!is_allowed(&server.app, &User::authenticated("system:node:n2", [NODES.to_owned()]), secret).await);
}

/// Goal: a restart restores what is missing, and keeps what an administrator changed. Method: a second start over one
/// store.
#[tokio::test]
async fn bootstrap_objects_are_restored_at_the_start() {
    let server = server(&[AuthorizationMode::Rbac]).await;
    let list = server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=500").await.body;
    let list: Value = serde_json::from_str(&list).unwrap();
    let expected = bootstrap::objects().iter().filter(|object| object.kind == RbacKind::ClusterRole).count();
    assert_eq!(list["items"].as_array().unwrap().len(), expected);
    assert_eq!(write(&server, "DELETE", "clusterroles/view", &json!({})).await.0, 200);
    let emptied = json!({"metadata": {"name": "system:discovery"}, "rules": []});
    assert_eq!(write(&server, "PUT", "clusterroles/system:discovery", &emptied).await.0, 200);
    let own = json!({
        "metadata": {"name": "system:basic-user", "annotations": {bootstrap::AUTOUPDATE: "false"}}, "rules": [],
    });
    assert_eq!(write(&server, "PUT", "clusterroles/system:basic-user", &own).await.0, 200);
    let store = server.app.local().unwrap().store;
    let again = App::with_storage(config(&[AuthorizationMode::Rbac]), Arc::clone(store));
    again.start().await;
    let alice = user("alice");
    assert!(is_allowed(&again, &alice, "GET /version").await, "restored");
    let review = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert!(!is_allowed(&again, &alice, review).await, "protected");
    assert_eq!(server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view").await.code, 200);
}

/// Goal: while roles are not known, nothing is decided by them. Method: an authorizer that was not started.
#[tokio::test(start_paused = true)]
async fn unknown_roles_decide_nothing() {
    let app = App::new(config(&[AuthorizationMode::Rbac]));
    let refusal = app
        .access
        .authorizer
        .authorize(&user("alice"), &info("GET /version"), QuestionOrigin::Request)
        .await
        .unwrap_err();
    assert_eq!(refusal.code, 429);
    assert!(is_allowed(&app, &User::unsecured(), "GET /version").await);
}

/// Goal: a node is not refused for want of a relation that was not read yet, and `/readyz` names what is missing. Method: a
/// store whose pods cannot be read when the server starts; then they can.
#[tokio::test(start_paused = true)]
async fn unknown_relations_of_nodes_decide_nothing() {
    let storage =
        Faulty::new(|_, verb, ty| if verb == Verb::Follow && ty == "pods" { Fault::Fails } else { Fault::None });
    let pods = Registry::builtin().find("", "v1", "pods").unwrap();
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "a", "name": "p", "uid": "u"},
        "spec": {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    });
    let put = Some(draft(&pods, pod.as_object().unwrap()).unwrap());
    let txn = Txn { ty: pods, key: "a/p".to_owned(), expect: Expect::Absent, put, cause: None };
    storage.inner.write(txn).await.unwrap();
    let app = App::with_storage(config(&[AuthorizationMode::Node, AuthorizationMode::Rbac]), storage.clone());
    app.start().await;
    let server = Server { app: Arc::new(app) };
    let node = User::authenticated("system:node:n1", [NODES.to_owned()]);
    let (secret, other) = ("GET /api/v1/namespaces/a/secrets/s", "GET /api/v1/namespaces/a/secrets/other");
    let decide = async |request: &str| server.app.access.authorizer.decide(&node, &info(request)).await;
    for request in [secret, other] {
        let refusal = decide(request).await.unwrap_err();
        assert_eq!(refusal.code, 503, "{request}: {}", refusal.message);
        assert_eq!(refusal.details.unwrap().retry_after_seconds, 1, "{request}");
    }
    assert!(decide("GET /api/v1/nodes/n1").await.unwrap().is_allowed(), "no relation decides");
    assert!(!is_allowed(&server.app, &user("alice"), secret).await, "no node");
    let ready = server.get("/readyz").await;
    assert_eq!(ready.code, 500);
    assert!(ready.body.contains("[-]authorization failed: "), "{}", ready.body);
    assert_eq!(server.app.access.authorizer.unread(), Some(vec!["pods"]));
    storage.heal();
    assert!(decide(secret).await.unwrap().is_allowed(), "once the pods are read");
    assert!(!decide(other).await.unwrap().is_allowed());
    assert!(server.get("/readyz?verbose").await.body.contains("[+]authorization ok\n"));
}

/// Goal: callers grant what they have, and nothing else, with each verb of a write. Method: a user who may write roles and
/// bindings in one namespace and has one right; the words are kube-apiserver's.
#[tokio::test]
async fn callers_grant_only_what_they_have() {
    let server = server(&[AuthorizationMode::Rbac]).await;
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]});
    // The verbs above include escalate and bind: a second user has them spelled out.
    let limited = json!({"metadata": {"name": "limited"}, "rules": [
        {"verbs": ["create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]});
    for (name, role) in [("writer", writer), ("limited", limited)] {
        assert_eq!(write(&server, "POST", "namespaces/a/roles", &role).await.0, 201);
        assert_eq!(write(&server, "POST", "namespaces/a/rolebindings", &binding(name, name, name)).await.0, 201);
        becomes(&server.app, &user(name), "GET /api/v1/namespaces/a/pods", true).await;
    }
    let check = async |of: &str, kind: RbacKind, old: Option<&Value>, new: &Value| {
        let mut new = new.clone();
        new["metadata"]["namespace"] = json!(if kind == RbacKind::ClusterRole { "" } else { "a" });
        let write = escalation::GrantWrite {
            kind,
            namespace: new["metadata"]["namespace"].as_str().unwrap(),
            name: "",
            old: old.and_then(Value::as_object),
            new: new.as_object().unwrap(),
        };
        let known = (&server.app.caches, &*server.app.registry);
        server.app.access.authorizer.check_grant(&user(of), &write, known).await.map_err(|status| status.message)
    };
    assert_eq!(check("limited", RbacKind::Role, None, &role("r", "pods")).await, Ok(()));
    assert_eq!(
        check("limited", RbacKind::Role, None, &role("r", "secrets")).await.unwrap_err(),
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"limited\" (groups=[\"system:authenticated\"]) is attempting \
         to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    assert_eq!(check("writer", RbacKind::Role, None, &role("r", "secrets")).await, Ok(()));
    assert!(check("writer", RbacKind::ClusterRole, None, &role("r", "pods")).await.is_err());
    let stored = role("r", "secrets");
    let mut namespaced = stored.clone();
    namespaced["metadata"]["namespace"] = json!("a");
    assert_eq!(check("limited", RbacKind::Role, Some(&namespaced), &stored).await, Ok(()), "no right is granted");
    assert!(check("limited", RbacKind::RoleBinding, None, &binding("b", "writer", "x")).await.is_err());
    assert_eq!(check("writer", RbacKind::RoleBinding, None, &binding("b", "limited", "x")).await, Ok(()));
    assert_eq!(write(&server, "POST", "namespaces/a/roles", &role("pods", "pods")).await.0, 201);
    assert_eq!(check("limited", RbacKind::RoleBinding, None, &binding("b", "pods", "x")).await, Ok(()));
    assert_eq!(
        check("limited", RbacKind::RoleBinding, None, &binding("b", "none", "x")).await.unwrap_err(),
        "rolebindings.rbac.authorization.k8s.io \"none\" not found"
    );
    let aggregated = json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let refusal = check("limited", RbacKind::ClusterRole, None, &aggregated).await.unwrap_err();
    assert!(refusal.ends_with("must have cluster-admin privileges to use the aggregationRule"), "{refusal}");
}

/// Goal: reviews are answered, with authorization and without. Method: one of each kind, of the caller without
/// credentials and about other users.
#[tokio::test]
async fn reviews_are_answered() {
    let rbac = server(&[AuthorizationMode::Rbac]).await;
    let open = server(&[]).await;
    let ask = async |server: &Server, path: &str, review: Value| -> (u16, Value) {
        let answer = server.send(with_body("POST", &format!("/apis/{path}"), review.to_string())).await;
        (answer.code, serde_json::from_str(&answer.body).unwrap())
    };
    let authorization = |kind: &str| format!("authorization.k8s.io/v1/{kind}");
    let pods = json!({"verb": "list", "resource": "pods"});
    let of_alice = json!({"spec": {"user": "alice", "groups": ["system:authenticated"], "resourceAttributes": pods}});
    let (code, review) = ask(&rbac, &authorization("subjectaccessreviews"), of_alice.clone()).await;
    assert_eq!((code, &review["status"]), (201, &json!({"allowed": false})));
    assert_eq!(review["kind"], "SubjectAccessReview");
    let (_, review) = ask(&open, &authorization("subjectaccessreviews"), of_alice).await;
    assert_eq!(review["status"], json!({"allowed": true}));
    let path = json!({"spec": {"user": "x", "groups": ["system:authenticated"],
        "nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    let (_, review) = ask(&rbac, &authorization("subjectaccessreviews"), path).await;
    assert_eq!(review["status"]["allowed"], true);
    let reason = review["status"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("RBAC: allowed by ClusterRoleBinding \"system:"), "{reason}");
    let (_, review) =
        ask(&rbac, &authorization("selfsubjectaccessreviews"), json!({"spec": {"resourceAttributes": pods}})).await;
    assert_eq!(review["status"], json!({"allowed": true}));
    let (_, review) = ask(&rbac, &authorization("selfsubjectrulesreviews"), json!({"spec": {"namespace": "a"}})).await;
    assert_eq!(review["status"]["resourceRules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    assert_eq!(review["status"]["incomplete"], false);
    let local = authorization("namespaces/a/localsubjectaccessreviews");
    let wrong =
        json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "b", "verb": "get", "resource": "pods"}}});
    let (code, status) = ask(&rbac, &local, wrong).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"b\": must match \
         metadata.namespace"
    );
    let (code, status) = ask(&rbac, &authorization("subjectaccessreviews"), json!({"spec": {}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of \
         nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user \
         or group must be specified]"
    );
    let (code, review) = ask(&open, "authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    assert_eq!((code, &review["status"]["userInfo"]["username"]), (201, &json!("system:unsecured")));
    assert_eq!(open.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").await.code, 405);
    assert_eq!(open.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/a").await.code, 404);
}
