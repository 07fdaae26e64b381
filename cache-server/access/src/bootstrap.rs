//! The roles and bindings that a cluster has from its start, and how changed ones are restored.
//!
//! Source: Kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`, `pkg/registry/rbac/reconciliation`.

mod reconcile;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use self::reconcile::{Reconciliation, reconcile};
use crate::rbac::{GROUP, RbacKind, RoleRule};

const TABLE: &str = include_str!("bootstrap/objects.txt");

/// Annotation of objects that the server restores at each start. The value `false` prevents that.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const LABEL: &str = "kubernetes.io/bootstrapping";

/// ClusterRole of the nodes: its rules are those that the node authorizer does not divide between nodes.
const NODE_ROLE: &str = "system:node";

/// An object of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapObject {
    /// Kind of the object.
    pub kind: RbacKind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object as a client would create it.
    pub manifest: Map<String, Value>,
}

/// Returns all objects, in the order in which kube-apiserver creates them: roles before bindings.
#[must_use]
pub fn objects() -> Vec<BootstrapObject> {
    paragraphs().filter_map(|paragraph| BootstrapObject::parse(&paragraph)).collect()
}

/// Returns the rules of the role of nodes.
pub(crate) fn node_rules() -> Vec<RoleRule> {
    let is_node =
        |paragraph: &Vec<&str>| paragraph.first().is_some_and(|line| *line == format!("ClusterRole {NODE_ROLE}"));
    let lines = paragraphs().find(is_node).unwrap_or_default();
    lines.into_iter().skip(1).filter_map(rule).collect()
}

/// The paragraphs of the table, as lines.
fn paragraphs() -> impl Iterator<Item = Vec<&'static str>> {
    TABLE.split("\n\n").skip(1).map(|paragraph| paragraph.lines().collect())
}

impl BootstrapObject {
    /// Reads a paragraph. `None` if it is malformed, which a test excludes.
    fn parse(lines: &[&str]) -> Option<Self> {
        let (head, lines) = lines.split_first()?;
        let mut words = head.split(' ');
        let kind = RbacKind::named(words.next()?)?;
        let namespace = match kind {
            RbacKind::Role | RbacKind::RoleBinding => words.next()?,
            RbacKind::ClusterRole | RbacKind::ClusterRoleBinding => "",
        };
        let name = words.next()?;
        let mut labels = Map::from_iter([(LABEL.to_owned(), json!("rbac-defaults"))]);
        let (mut selectors, mut rules, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            match line.split_once(' ')? {
                ("label", label) => drop(labels.insert(label.to_owned(), json!("true"))),
                ("aggregates", label) => selectors.push(json!({"matchLabels": {label: "true"}})),
                _ if kind.is_binding() => subjects.push(subject(line)?),
                _ => rules.push(json!(rule(line)?)),
            }
        }
        let mut metadata = json!({"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}});
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let mut manifest = Map::new();
        manifest.insert("apiVersion".to_owned(), json!(format!("{GROUP}/v1")));
        manifest.insert("kind".to_owned(), json!(kind.name()));
        manifest.insert("metadata".to_owned(), metadata);
        if !selectors.is_empty() {
            manifest.insert("aggregationRule".to_owned(), json!({"clusterRoleSelectors": selectors}));
            manifest.insert("rules".to_owned(), Value::Null);
        } else if !kind.is_binding() {
            manifest.insert("rules".to_owned(), Value::Array(rules));
        }
        if !subjects.is_empty() {
            manifest.insert("subjects".to_owned(), Value::Array(subjects));
        }
        if kind.is_binding() {
            let role = json!({"apiGroup": GROUP, "kind": words.next()?, "name": words.next()?});
            manifest.insert("roleRef".to_owned(), role);
        }
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), manifest })
    }
}

/// Reads a rule: verbs, groups, resources and names, or verbs and paths.
fn rule(line: &str) -> Option<RoleRule> {
    let words: Vec<Vec<String>> = line.split(' ').map(list).collect();
    let rule = match &*words {
        [verbs, paths] => RoleRule { verbs: verbs.clone(), non_resource_urls: paths.clone(), ..RoleRule::default() },
        [verbs, groups, resources, names @ ..] => RoleRule {
            verbs: verbs.clone(),
            api_groups: groups.clone(),
            resources: resources.clone(),
            resource_names: names.first().cloned().unwrap_or_default(),
            non_resource_urls: Vec::new(),
        },
        _ => return None,
    };
    Some(rule)
}

/// Reads a list; `-` is the empty text.
fn list(word: &str) -> Vec<String> {
    word.split(',').map(|item| if item == "-" { String::new() } else { item.to_owned() }).collect()
}

fn subject(line: &str) -> Option<Value> {
    Some(match *line.split(' ').collect::<Vec<_>>() {
        ["ServiceAccount", namespace, name] => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        [kind, name] => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
        _ => return None,
    })
}
