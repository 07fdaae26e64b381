//! The schemas and levels in force, and the schema of a request.
//!
//! Source: apiserver `util/flowcontrol/rule.go`, `apf_controller.go`.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{
    bootstrap,
    objects::{
        CATCH_ALL, Distinguisher, EXEMPT, FlowObject, FlowPathRule, FlowResourceRule, FlowRule, FlowSchema,
        FlowSubject, LimitResponse, PriorityLevel, TextSet,
    },
};
use crate::{
    request_info::{RequestInfo, ResourceAttributes},
    user::User,
};

/// Schemas, and as many levels, that take effect: each is compared with every request. Memory: about 1 KiB each.
pub const FLOW_OBJECTS_MAX: usize = 500;

/// The schemas and levels in force. Immutable: a change makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// In the order in which they are compared with a request. The last one is `catch-all`.
    schemas: Vec<FlowSchema>,
    /// By name.
    levels: BTreeMap<String, PriorityLevel>,
    /// Schemas without effect.
    unused: Vec<String>,
}

impl FlowConfig {
    /// Arranges objects; of equal kind and name, the last one counts. Missing mandatory objects are added, and those
    /// given keep nothing but their uid and the shares of `exempt`. Schemas whose level is missing have no effect.
    ///
    /// # Panics
    /// Never: the built-in objects have a `catch-all`.
    #[must_use]
    pub fn new(objects: impl IntoIterator<Item = FlowObject>) -> Self {
        let (mut schemas, mut levels) = (BTreeMap::new(), BTreeMap::new());
        let mut unused = Vec::new();
        for object in objects {
            match object {
                FlowObject::Schema(schema)
                    if schemas.len() < FLOW_OBJECTS_MAX || schemas.contains_key(&schema.name) =>
                {
                    schemas.insert(schema.name.clone(), schema);
                }
                FlowObject::Level(level) if levels.len() < FLOW_OBJECTS_MAX || levels.contains_key(&level.name) => {
                    levels.insert(level.name.clone(), level);
                }
                FlowObject::Schema(_) | FlowObject::Level(_) => unused.push(object.name().to_owned()),
            }
        }
        for object in bootstrap::objects().into_iter().filter(|object| bootstrap::is_mandatory(object.name())) {
            match object {
                FlowObject::Schema(fixed) => {
                    let uid = schemas.remove(&fixed.name).map(|given| given.uid).unwrap_or_default();
                    schemas.insert(fixed.name.clone(), FlowSchema { uid, ..fixed });
                }
                FlowObject::Level(fixed) => {
                    let level = match levels.remove(&fixed.name) {
                        Some(given) if given.response == LimitResponse::Exempt => given,
                        Some(given) => PriorityLevel { uid: given.uid, ..fixed },
                        None => fixed,
                    };
                    levels.insert(level.name.clone(), level);
                }
            }
        }
        let mut in_order = Vec::with_capacity(schemas.len());
        for (name, schema) in schemas {
            if levels.contains_key(&schema.level) { in_order.push(schema) } else { unused.push(name) }
        }
        // Stable: equal ones stay in the order of their names. Another schema may also have the highest precedence.
        in_order.sort_by_key(|schema| (schema.name == CATCH_ALL, schema.precedence));
        Self { schemas: in_order, levels, unused }
    }

    /// Returns the objects that every cluster has.
    #[must_use]
    pub fn builtin() -> Self {
        Self::new(bootstrap::objects())
    }

    /// Returns the schemas, in the order in which they are compared with a request.
    #[must_use]
    pub fn schemas(&self) -> &[FlowSchema] {
        &self.schemas
    }

    /// Returns the levels by name. `exempt` and `catch-all` are among them.
    #[must_use]
    pub fn levels(&self) -> &BTreeMap<String, PriorityLevel> {
        &self.levels
    }

    /// Returns the names of objects without effect: schemas whose level is missing, and objects beyond
    /// [`FLOW_OBJECTS_MAX`].
    #[must_use]
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// Returns the place in [`schemas`](Self::schemas) of the schema that a request belongs to.
    #[must_use]
    pub fn classify(&self, user: &User, info: &RequestInfo) -> usize {
        let found = self.schemas.iter().position(|schema| schema.matches(user, info));
        // Every caller is in one of the groups of `catch-all`, the last one, or should be.
        found.unwrap_or(self.schemas.len() - 1)
    }
}

impl FlowSchema {
    /// Returns true if a request belongs to the schema, unless it belongs to one before it.
    #[must_use]
    pub fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, info))
    }

    /// Returns the hash of a request's flow. `seed` makes hashes of different servers differ.
    #[must_use]
    pub fn flow(&self, seed: u64, user: &User, info: &RequestInfo) -> u64 {
        let distinguisher = match self.distinguisher {
            Some(Distinguisher::User) => &*user.name,
            Some(Distinguisher::Namespace) => info.resource.as_ref().map_or("", |of| &*of.namespace),
            None => "",
        };
        let mut hasher = DefaultHasher::new();
        (seed, &*self.name, distinguisher).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns true if requests of the schema need no seats.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.level == EXEMPT
    }
}

impl FlowRule {
    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let is_of_resource = |of: &ResourceAttributes| self.resources.iter().any(|rule| rule.matches(&info.verb, of));
        self.subjects.iter().any(|subject| subject.matches(user))
            && match &info.resource {
                Some(of) => is_of_resource(of),
                None => self.paths.iter().any(|rule| rule.matches(&info.verb, &info.path)),
            }
    }
}

impl FlowSubject {
    fn matches(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(group) => group == "*" || user.is_in(group),
            Self::ServiceAccount { namespace, name } => user
                .service_account_name()
                .is_some_and(|(within, account)| within == namespace && (name == "*" || name == account)),
        }
    }
}

impl FlowResourceRule {
    fn matches(&self, verb: &str, of: &ResourceAttributes) -> bool {
        self.verbs.has(verb)
            && match &self.resources {
                TextSet::All => true,
                TextSet::These(names) => names.iter().any(|name| is_resource(name, of)),
            }
            && self.groups.has(&of.group)
            && if of.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(&of.namespace) }
    }
}

/// Returns true if a rule's `name` is the request's resource, such as `pods` or `pods/status`.
fn is_resource(name: &str, of: &ResourceAttributes) -> bool {
    if of.subresource.is_empty() {
        return name == of.resource;
    }
    name.split_once('/').is_some_and(|(resource, subresource)| resource == of.resource && subresource == of.subresource)
}

impl FlowPathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        let TextSet::These(paths) = &self.paths else { return self.verbs.has(verb) };
        let is_below = |rule: &str| {
            let prefix = rule.strip_suffix('*').unwrap_or(rule);
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| prefix.ends_with('/') || rest.starts_with('/'))
        };
        self.verbs.has(verb) && paths.iter().any(|rule| rule == path || is_below(rule))
    }
}

impl TextSet {
    fn has(&self, text: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(texts) => texts.iter().any(|one| one == text),
        }
    }
}

#[cfg(test)]
mod tests;
