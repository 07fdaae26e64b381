//! Random policies, decided by a second implementation that knows no index.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::{
    rbac::{RbacKind, RbacPolicy, allowed_subject},
    request_info::{RequestInfo, ResourceAttributes},
    user::User,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const VERBS: [&str; 4] = ["get", "list", "create", "*"];
const GROUPS: [&str; 3] = ["", "apps", "*"];
const RESOURCES: [&str; 6] = ["pods", "pods/log", "*/log", "*", "nodes", "pods/*"];
const PATHS: [&str; 5] = ["/healthz", "/healthz/*", "*", "/metrics", "/m*"];

/// All objects as they are stored.
#[derive(Default)]
struct Objects(BTreeMap<(RbacKind, String, String), Value>);

fn some(random: &mut Rng, of: &[&str]) -> Vec<String> {
    let count = random.usize(1..=of.len().min(3));
    random.choose_multiple(of.iter(), count).into_iter().map(|text| (*text).to_owned()).collect()
}

fn one(random: &mut Rng, of: &[&str]) -> String {
    of[random.usize(0..of.len())].to_owned()
}

fn role(random: &mut Rng) -> Value {
    let rules: Vec<Value> = (0..random.usize(0..5))
        .map(|_| {
            if random.u8(0..4) == 0 {
                return json!({"verbs": some(random, &VERBS), "nonResourceURLs": some(random, &PATHS)});
            }
            json!({
                "verbs": some(random, &VERBS), "apiGroups": some(random, &GROUPS), "resources": some(random, &RESOURCES),
                "resourceNames": if random.bool() { some(random, &NAMES) } else { Vec::new() },
            })
        })
        .collect();
    let labels: BTreeMap<String, &str> = some(random, &NAMES).into_iter().map(|label| (label, "1")).collect();
    let mut role = json!({"metadata": {"labels": labels}, "rules": rules});
    if random.u8(0..4) == 0 {
        let selectors: Vec<Value> =
            some(random, &NAMES).iter().map(|label| json!({"matchLabels": {label: "1"}})).collect();
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    role
}

fn binding(random: &mut Rng, kind: RbacKind) -> Value {
    let subject = |random: &mut Rng| {
        let kind = one(random, &["User", "Group", "ServiceAccount"]);
        let namespace = if kind == "ServiceAccount" && random.bool() { one(random, &NAMES) } else { String::new() };
        json!({"kind": kind, "name": one(random, &NAMES), "namespace": namespace})
    };
    let subjects: Vec<Value> = (0..random.usize(0..6)).map(|_| subject(random)).collect();
    let is_role = kind == RbacKind::RoleBinding && random.bool();
    let role = json!({"kind": if is_role { "Role" } else { "ClusterRole" }, "name": one(random, &NAMES)});
    json!({"roleRef": role, "subjects": subjects})
}

fn has(list: &Value, requested: &str) -> bool {
    list.as_array().into_iter().flatten().any(|value| value == "*" || value == requested)
}

impl Objects {
    fn of(&self, kind: RbacKind) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.0
            .iter()
            .filter(move |((of, ..), _)| *of == kind)
            .map(|((_, namespace, name), object)| (&**namespace, &**name, object))
    }

    /// The rules of a ClusterRole; `seen` are the roles on the way to it.
    fn cluster_rules(&self, name: &str, seen: &mut Vec<String>) -> Vec<Value> {
        let Some((.., role)) = self.of(RbacKind::ClusterRole).find(|(_, found, _)| *found == name) else {
            return vec![];
        };
        let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
            return role["rules"].as_array().cloned().unwrap_or_default();
        };
        if seen.iter().any(|known| known == name) {
            return vec![];
        }
        seen.push(name.to_owned());
        let selected = |role: &Value| {
            let labels = &role["metadata"]["labels"];
            selectors.iter().any(|selector| {
                selector["matchLabels"].as_object().unwrap().iter().all(|(key, value)| &labels[key] == value)
            })
        };
        let parts = self.of(RbacKind::ClusterRole).filter(|(.., role)| selected(role));
        parts.flat_map(|(_, name, _)| self.cluster_rules(name, seen)).collect()
    }

    fn is_allowed(&self, user: &User, info: &RequestInfo) -> bool {
        let requested = info.resource.as_ref().map_or("", |of| &of.namespace);
        let global = self.of(RbacKind::ClusterRoleBinding);
        let local = self.of(RbacKind::RoleBinding).filter(|(namespace, ..)| *namespace == requested);
        global.chain(local).any(|(namespace, _, binding)| {
            let subjects = binding["subjects"].as_array().unwrap();
            let applies = subjects.iter().any(|subject| {
                let name = subject["name"].as_str().unwrap();
                let own = subject["namespace"].as_str().unwrap();
                let own = if own.is_empty() { namespace } else { own };
                match subject["kind"].as_str().unwrap() {
                    "User" => user.name == name,
                    "Group" => user.groups.iter().any(|group| group == name),
                    _ => !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{name}"),
                }
            });
            let role = binding["roleRef"]["name"].as_str().unwrap();
            let rules = if binding["roleRef"]["kind"] == "Role" {
                let found = self.0.get(&(RbacKind::Role, namespace.to_owned(), role.to_owned()));
                found.map(|role| role["rules"].as_array().unwrap().clone()).unwrap_or_default()
            } else {
                self.cluster_rules(role, &mut Vec::new())
            };
            applies && rules.iter().any(|rule| matches(rule, info))
        })
    }
}

fn matches(rule: &Value, info: &RequestInfo) -> bool {
    if !has(&rule["verbs"], &info.verb) {
        return false;
    }
    let Some(of) = &info.resource else {
        return rule["nonResourceURLs"].as_array().into_iter().flatten().any(|pattern| {
            let pattern = pattern.as_str().unwrap();
            pattern == info.path || pattern.strip_suffix('*').is_some_and(|start| info.path.starts_with(start))
        });
    };
    let name = |names: &Value| names.as_array().is_none_or(|names| names.is_empty() || names.contains(&json!(of.name)));
    let mut resources = vec![if of.subresource.is_empty() {
        of.resource.clone()
    } else {
        format!("{}/{}", of.resource, of.subresource)
    }];
    if !of.subresource.is_empty() {
        resources.push(format!("*/{}", of.subresource));
    }
    has(&rule["apiGroups"], &of.group)
        && resources.iter().any(|resource| has(&rule["resources"], resource))
        && name(&rule["resourceNames"])
}

fn request(random: &mut Rng) -> RequestInfo {
    let verb = one(random, &["get", "list", "create", "delete"]).into();
    if random.u8(0..5) == 0 {
        return RequestInfo { verb, path: one(random, &["/healthz", "/healthz/a", "/metrics", "/x"]), resource: None };
    }
    let resource = ResourceAttributes {
        group: one(random, &["", "apps", "x"]),
        resource: one(random, &["pods", "nodes", "x"]),
        subresource: one(random, &["", "", "log"]),
        namespace: one(random, &["", "a", "b"]),
        name: one(random, &["", "a", "b"]),
        ..ResourceAttributes::default()
    };
    RequestInfo { verb, path: String::new(), resource: Some(resource) }
}

/// Goal: the index, the sketches and the incremental changes decide as a search through all objects does.
/// Method: random objects are set and removed; after each change, random requests of random users.
#[test]
fn decisions_are_those_of_a_search() {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..60 {
        let random = &mut Rng::with_seed(seed);
        let (mut policy, mut objects) = (RbacPolicy::default(), Objects::default());
        for _ in 0..100 {
            let kind = RbacKind::ALL[random.usize(0..4)];
            let is_local = matches!(kind, RbacKind::Role | RbacKind::RoleBinding);
            let namespace = if is_local { one(random, &["a", "b"]) } else { String::new() };
            let name = one(random, &NAMES);
            if random.u8(0..6) == 0 {
                policy.remove(kind, &namespace, &name);
                objects.0.remove(&(kind, namespace, name));
            } else {
                let object = if kind.is_binding() { binding(random, kind) } else { role(random) };
                policy.apply(kind, &namespace, &name, object.to_string().as_bytes()).unwrap();
                objects.0.insert((kind, namespace, name), object);
            }
            for _ in 0..20 {
                let user = match random.bool() {
                    true => User::service_account(&one(random, &NAMES), &one(random, &NAMES)),
                    false => User::authenticated(one(random, &NAMES), some(random, &NAMES)),
                };
                let request = request(random);
                let expected = objects.is_allowed(&user, &request);
                let decision = policy.decide(&user, &request);
                assert_eq!(decision.is_allowed(), expected, "{seed}: {user:?} {request:?} {:#?}", objects.0);
                if expected {
                    let subject = allowed_subject(decision.reason()).expect("a reason names its subject");
                    assert!(subject.name.is_empty() || subject.name == user.name, "{subject:?} {user:?}");
                    assert!(subject.groups.iter().all(|group| user.is_in(group)), "{subject:?} {user:?}");
                    assert!(policy.decide(&subject, &request).is_allowed(), "{seed}: {decision:?} {request:?}");
                }
                if expected { allowed += 1 } else { refused += 1 }
            }
        }
        for (kind, namespace, name) in objects.0.into_keys() {
            policy.remove(kind, &namespace, &name);
        }
        assert!(policy.is_empty(), "{seed}: {policy:?}");
    }
    assert!(allowed > 5_000 && refused > 5_000, "{allowed} {refused}");
}
