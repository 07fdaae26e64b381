//! All roles and bindings, indexed by subject.
//!
//! INVARIANT: each binding that is readable stands once at each of its subjects, and each role that exists or is bound
//! has a number.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use informer_serving::go::quote;

use super::{
    GROUP, RbacKind, RbacObject, RoleRule, RoleSubject, RuleRequest, aggregation, object::RbacMetadata,
    rule::RuleSketch,
};
use crate::{
    decision::AccessDecision, request_info::RequestInfo, review::SubjectRules, slots::NumberedEntries, user::User,
};

/// The roles and bindings of a cluster.
///
/// Memory: each object once, and for each subject of a binding 24 bytes. Cost of a decision: a look at each binding of
/// the user and its groups in the cluster and in the namespace of the request, about 5 ns each.
#[derive(Clone, Debug, Default)]
pub struct RbacPolicy {
    roles: NumberedEntries<RoleKey, BoundRole>,
    bindings: HashMap<RbacKey, BoundSubjects>,
    users: HashMap<String, SubjectGrants>,
    groups: HashMap<String, SubjectGrants>,
    /// True if aggregated roles have the rules that are stored in them.
    is_collected: bool,
}

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RbacKey {
    namespace: String,
    name: String,
}

/// A role as bindings refer to it. The kind may be one that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct RoleKey {
    kind: String,
    key: RbacKey,
}

/// A role and the number of bindings that refer to it.
#[derive(Clone, Debug, Default)]
struct BoundRole {
    object: Option<RbacObject>,
    /// The rules that it grants, aggregated ones included. Empty if there is no such role.
    rules: Vec<RoleRule>,
    sketch: RuleSketch,
    bindings: usize,
}

/// A binding and the number of its role.
#[derive(Clone, Debug)]
struct BoundSubjects {
    object: Arc<RbacObject>,
    role: u32,
}

/// The bindings of a subject: of the cluster (with an empty namespace), and of each namespace.
#[derive(Clone, Debug, Default)]
struct SubjectGrants(HashMap<String, Vec<Grant>>);

/// A binding at one of its subjects.
#[derive(Clone, Debug)]
struct Grant {
    binding: Arc<RbacObject>,
    role: u32,
}

impl RbacPolicy {
    /// Creates the policy of a cluster in which a controller collects the rules of aggregated roles: those that it has
    /// stored count, as they do for the cluster's own authorizer.
    #[must_use]
    pub fn of_cluster() -> Self {
        Self { is_collected: true, ..Self::default() }
    }

    /// Takes over the current state of an object: JSON, as it is stored. Returns true if a decision may change by it.
    ///
    /// An unreadable object is treated as missing.
    ///
    /// # Errors
    /// The error of the parser.
    pub fn apply(
        &mut self,
        kind: RbacKind,
        namespace: &str,
        name: &str,
        json: &[u8],
    ) -> Result<bool, serde_json::Error> {
        match serde_json::from_slice(json) {
            Ok(object) => Ok(self.set(kind, namespace, name, Some(object))),
            Err(error) => {
                self.set(kind, namespace, name, None);
                Err(error)
            }
        }
    }

    /// Removes an object. Returns true if a decision may change by it.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) -> bool {
        self.set(kind, namespace, name, None)
    }

    /// Decides about a request.
    #[must_use]
    pub fn decide(&self, user: &User, info: &RequestInfo) -> AccessDecision {
        let request = RuleRequest::new(info);
        let namespace = info.resource.as_ref().map_or("", |resource| &resource.namespace);
        let mut unresolved = Vec::new();
        for grant in self.grants(user, namespace) {
            let role = self.roles.value(grant.role);
            if role.object.is_none() {
                unresolved.push(grant.role);
            } else if request.may_match(role.sketch) && role.rules.iter().any(|rule| rule.allows(&request)) {
                return AccessDecision::Allowed { reason: format!("RBAC: allowed by {}", grant.describe(user)) };
            }
        }
        let errors = self.errors(&unresolved);
        let reason = if errors.is_empty() { errors } else { format!("RBAC: {errors}") };
        AccessDecision::NoOpinion { reason }
    }

    /// Returns the rules of a user in a namespace (in the cluster only if it is empty).
    #[must_use]
    pub fn rules_for(&self, user: &User, namespace: &str) -> SubjectRules {
        let mut rules = SubjectRules::default();
        let (mut visited, mut unresolved) = (HashSet::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            let role = self.roles.value(grant.role);
            if !visited.insert(Arc::as_ptr(&grant.binding)) {
                continue;
            }
            match role.object {
                Some(_) => rules.extend(&role.rules),
                None => unresolved.push(grant.role),
            }
        }
        rules.evaluation_error = self.errors(&unresolved);
        rules
    }

    /// Returns the rules that a role grants, or the error text if there is no such role. `namespace` is that of the
    /// binding.
    ///
    /// # Errors
    /// The text of the 404.
    pub fn rules_of(&self, kind: &str, namespace: &str, name: &str) -> Result<&[RoleRule], String> {
        let key = RoleKey::new(kind, namespace, name);
        let role = self.roles.get(&key).filter(|role| role.object.is_some());
        role.map(|role| &*role.rules).ok_or_else(|| key.not_found())
    }

    /// True without any object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }

    fn set(&mut self, kind: RbacKind, namespace: &str, name: &str, object: Option<RbacObject>) -> bool {
        let object = object.map(|mut object| {
            name.clone_into(&mut object.metadata.name);
            namespace.clone_into(&mut object.metadata.namespace);
            object
        });
        if kind.is_binding() {
            self.set_binding(RbacKey::new(namespace, name), object)
        } else {
            self.set_role(RoleKey::new(kind.name(), namespace, name), object)
        }
    }

    fn set_role(&mut self, key: RoleKey, object: Option<RbacObject>) -> bool {
        let known = self.roles.get(&key).and_then(|role| role.object.as_ref());
        if known == object.as_ref() {
            return false;
        }
        let labels = [known, object.as_ref()].into_iter().flatten();
        let labels: Vec<RbacMetadata> = labels.map(|object| object.metadata.clone()).collect();
        let is_cluster_role = key.kind == RbacKind::ClusterRole.name();
        let number = self.roles.number_or_insert(key);
        let role = self.roles.value_mut(number);
        let is_unused = object.is_none() && role.bindings == 0;
        role.set_rules(object.as_ref().map_or_else(Vec::new, |object| object.rules.clone()));
        role.object = object;
        if is_unused {
            self.roles.remove(number);
        }
        if is_cluster_role && !self.is_collected {
            self.aggregate(number, &labels);
        }
        true
    }

    /// Collects the rules of the aggregated roles that a changed ClusterRole may affect: those that select its labels,
    /// before or after the change, those that select such a role, and itself.
    fn aggregate(&mut self, changed: u32, labels: &[RbacMetadata]) {
        let numbered: Vec<(u32, &RbacObject)> = self.cluster_roles().collect();
        let selects = |role: &RbacObject| {
            let rule = role.aggregation_rule.as_ref();
            rule.is_some_and(|rule| labels.iter().any(|changed| rule.selects(&changed.labels)))
        };
        let is_affected =
            numbered.iter().any(|&(number, role)| (number == changed && role.is_aggregated()) || selects(role));
        if !is_affected {
            return;
        }
        let roles: Vec<&RbacObject> = numbered.iter().map(|&(_, role)| role).collect();
        let collected: Vec<(u32, Vec<RoleRule>)> = (0..roles.len())
            .filter(|&at| roles[at].is_aggregated())
            .map(|at| {
                let sources = aggregation::sources(&roles, at);
                let mut known = HashSet::new();
                let rules = sources.into_iter().flat_map(|source| &roles[source].rules);
                (numbered[at].0, rules.filter(|&rule| known.insert(rule)).cloned().collect())
            })
            .collect();
        for (number, rules) in collected {
            self.roles.value_mut(number).set_rules(rules);
        }
    }

    /// The ClusterRoles that exist, by name, as the controller collects them.
    fn cluster_roles(&self) -> impl Iterator<Item = (u32, &RbacObject)> {
        let cluster_roles = self.roles.iter().filter(|(_, key, _)| key.kind == RbacKind::ClusterRole.name());
        let existing = cluster_roles.filter_map(|(number, _, role)| Some((number, role.object.as_ref()?)));
        let by_name: BTreeMap<&str, (u32, &RbacObject)> = existing.map(|found| (found.1.name(), found)).collect();
        by_name.into_values()
    }

    fn set_binding(&mut self, key: RbacKey, object: Option<RbacObject>) -> bool {
        let known = self.bindings.get(&key).map(|known| &*known.object);
        if known == object.as_ref() {
            return false;
        }
        if let Some(removed) = self.bindings.remove(&key) {
            self.index(&removed.object, |grants| grants.remove(&key));
            let role = self.roles.value_mut(removed.role);
            role.bindings -= 1;
            if role.bindings == 0 && role.object.is_none() {
                self.roles.remove(removed.role);
            }
        }
        if let Some(object) = object {
            let of = &object.role_ref;
            let role = self.roles.number_or_insert(RoleKey::new(&of.kind, &key.namespace, &of.name));
            self.roles.value_mut(role).bindings += 1;
            let object = Arc::new(object);
            self.index(&object, |grants| grants.insert(&key, &object, role));
            self.bindings.insert(key, BoundSubjects { object, role });
        }
        true
    }

    /// Changes the grants of each subject of a binding.
    fn index(&mut self, binding: &RbacObject, mut change: impl FnMut(&mut SubjectGrants)) {
        for subject in &binding.subjects {
            let (table, name) = match &*subject.kind {
                "User" => (&mut self.users, subject.name.clone()),
                "Group" => (&mut self.groups, subject.name.clone()),
                "ServiceAccount" => match subject.service_account(binding.namespace()) {
                    Some(name) => (&mut self.users, name),
                    None => continue,
                },
                _ => continue,
            };
            let grants = table.entry(name.clone()).or_default();
            change(grants);
            if grants.0.is_empty() {
                table.remove(&name);
            }
        }
    }

    /// The bindings of a user: cluster-wide ones first, then the namespace's.
    fn grants<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Grant> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let scopes = [Some(""), namespace].into_iter().flatten();
        scopes.flat_map(move |scope| {
            let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
            let subjects = self.users.get(&user.name).into_iter().chain(groups);
            subjects.filter_map(move |grants| grants.0.get(scope)).flatten()
        })
    }

    /// Returns the texts of several missing roles as one, in the words of Kubernetes.
    fn errors(&self, unresolved: &[u32]) -> String {
        let mut known = HashSet::new();
        let texts = unresolved.iter().filter(|number| known.insert(**number));
        let texts: Vec<String> = texts.map(|&number| self.roles.key(number).not_found()).collect();
        match &*texts {
            [text] => text.clone(),
            [] => String::new(),
            _ => format!("[{}]", texts.join(", ")),
        }
    }
}

/// Returns the part of a user that an allow of RBAC was given to, by the allow's reason: its name, or one of its groups.
/// The policy decides about that part alone for as long as it explains the allow.
#[must_use]
pub fn allowed_subject(reason: &str) -> Option<User> {
    let described = reason.strip_prefix("RBAC: allowed by ").filter(|text| !text.contains('\\'))?;
    let [kind, _, role, _, subject, name, ""] = described.split('"').collect::<Vec<_>>()[..] else { return None };
    let is_binding = matches!(kind, "ClusterRoleBinding " | "RoleBinding ");
    if !is_binding || !matches!(role, " of ClusterRole " | " of Role ") {
        return None;
    }
    let named = |name: String| User { name, ..User::default() };
    match subject {
        " to User " => Some(named(name.to_owned())),
        " to Group " => Some(User { groups: vec![name.to_owned()], ..User::default() }),
        " to ServiceAccount " => {
            let (name, namespace) = name.split_once('/')?;
            Some(named(User::service_account(namespace, name).name))
        }
        _ => None,
    }
}

impl RbacKey {
    fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl RoleKey {
    fn new(kind: &str, namespace: &str, name: &str) -> Self {
        let namespace = if kind == RbacKind::Role.name() { namespace } else { "" };
        Self { kind: kind.to_owned(), key: RbacKey::new(namespace, name) }
    }

    fn not_found(&self) -> String {
        match &*self.kind {
            "Role" | "ClusterRole" => {
                format!("{}.{GROUP} {} not found", self.kind.to_ascii_lowercase(), quote(&self.key.name))
            }
            kind => format!("unsupported role reference kind: {}", quote(kind)),
        }
    }
}

impl BoundRole {
    fn set_rules(&mut self, rules: Vec<RoleRule>) {
        self.sketch = RuleSketch::of(&rules);
        self.rules = rules;
    }
}

impl SubjectGrants {
    fn insert(&mut self, key: &RbacKey, binding: &Arc<RbacObject>, role: u32) {
        let grants = self.0.entry(key.namespace.clone()).or_default();
        if let Err(at) = grants.binary_search_by(|grant| grant.binding.name().cmp(&key.name)) {
            grants.insert(at, Grant { binding: Arc::clone(binding), role });
        }
    }

    fn remove(&mut self, key: &RbacKey) {
        let Some(grants) = self.0.get_mut(&key.namespace) else { return };
        if let Ok(at) = grants.binary_search_by(|grant| grant.binding.name().cmp(&key.name)) {
            grants.remove(at);
        }
        if grants.is_empty() {
            self.0.remove(&key.namespace);
        }
    }
}

impl Grant {
    /// Returns `RoleBinding "b/ns" of Role "r" to User "u"`, with the first subject that the user is.
    fn describe(&self, user: &User) -> String {
        let binding = &self.binding;
        let (kind, name) = match binding.namespace() {
            "" => ("ClusterRoleBinding", binding.name().to_owned()),
            namespace => ("RoleBinding", format!("{}/{namespace}", binding.name())),
        };
        let role = binding.role_ref();
        let subject = binding.subjects.iter().find(|subject| subject.is(user, binding.namespace()));
        let subject = subject.map(|subject| subject.describe(binding.namespace())).unwrap_or_default();
        format!("{kind} {} of {} {} to {subject}", quote(&name), role.kind, quote(&role.name))
    }
}

impl RoleSubject {
    /// Returns true if the user is this subject of a binding in `namespace`.
    fn is(&self, user: &User, namespace: &str) -> bool {
        match &*self.kind {
            "User" => self.name == user.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => self.service_account(namespace).is_some_and(|name| name == user.name),
            _ => false,
        }
    }

    /// Returns the user name of a service account. Without a namespace, the binding's counts.
    fn service_account(&self, binding: &str) -> Option<String> {
        let namespace = if self.namespace.is_empty() { binding } else { &self.namespace };
        (!namespace.is_empty()).then(|| User::service_account(namespace, &self.name).name)
    }

    fn describe(&self, binding: &str) -> String {
        let name = match (&*self.kind, &*self.namespace) {
            ("ServiceAccount", "") => format!("{}/{binding}", self.name),
            ("ServiceAccount", namespace) => format!("{}/{namespace}", self.name),
            _ => self.name.clone(),
        };
        format!("{} {}", self.kind, quote(&name))
    }
}
