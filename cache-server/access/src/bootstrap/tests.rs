//! The objects of the table, and their restoration.

use serde_json::{Value, json};

use super::*;

fn object(kind: RbacKind, name: &str) -> BootstrapObject {
    objects().into_iter().find(|object| (object.kind, &*object.name) == (kind, name)).unwrap()
}

fn stored(of: &BootstrapObject) -> Map<String, Value> {
    of.manifest.clone()
}

fn updated(existing: &Map<String, Value>, expected: &BootstrapObject) -> Map<String, Value> {
    let found = reconcile(existing, expected);
    let Reconciliation::Update(object) = found else { panic!("{found:?}") };
    object
}

#[test]
fn every_paragraph_is_an_object() {
    assert_eq!(objects().len(), paragraphs().count());
    assert_eq!(objects().len(), 133);
    let rules = node_rules();
    assert!(rules.iter().any(|rule| rule.resources == ["pods/eviction"]), "{rules:?}");
}

#[test]
fn objects_are_as_a_client_would_create_them() {
    assert_eq!(
        Value::Object(object(RbacKind::ClusterRole, "edit").manifest),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": "edit",
                "labels": {
                    "kubernetes.io/bootstrapping": "rbac-defaults",
                    "rbac.authorization.k8s.io/aggregate-to-admin": "true",
                },
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "rules": null,
            "aggregationRule": {"clusterRoleSelectors": [
                {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
            ]},
        })
    );
    let binding = object(RbacKind::ClusterRoleBinding, "cluster-admin").manifest;
    let subject = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:masters"});
    assert_eq!(binding["subjects"], json!([subject]));
}

#[test]
fn complete_objects_stay() {
    for expected in objects() {
        assert_eq!(reconcile(&stored(&expected), &expected), Reconciliation::None, "{}", expected.name);
    }
}

#[test]
fn missing_parts_come_back_and_added_parts_stay() {
    let expected = object(RbacKind::ClusterRole, "system:discovery");
    let mut existing = stored(&expected);
    existing["rules"] = json!([{"verbs": ["get"], "nonResourceURLs": ["/own"]}]);
    existing["metadata"]["labels"] = json!({"own": "1"});
    let restored = updated(&existing, &expected);
    assert_eq!(restored["metadata"]["labels"]["own"], "1");
    assert_eq!(restored["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    assert_eq!(restored["rules"][0]["nonResourceURLs"], json!(["/own"]));
    assert_eq!(reconcile(&restored, &expected), Reconciliation::None);

    let expected = object(RbacKind::ClusterRoleBinding, "system:basic-user");
    let mut existing = stored(&expected);
    existing["subjects"] = Value::Null;
    assert_eq!(updated(&existing, &expected)["subjects"], expected.manifest["subjects"]);
    existing["roleRef"]["name"] = json!("view");
    assert_eq!(reconcile(&existing, &expected), Reconciliation::Recreate);
    existing["metadata"]["annotations"][AUTOUPDATE] = json!("false");
    assert_eq!(reconcile(&existing, &expected), Reconciliation::None);
}
