//! Role-based access control: decides from Roles, ClusterRoles and their bindings.
//!
//! INVARIANT: rules only allow. A role that is missing, unreadable or not known yet grants nothing.
//!
//! In reading order: `object` (the four kinds), `rule` (one rule and one request), `aggregation` (ClusterRoles that
//! collect the rules of others), `policy` (all objects, indexed by subject), `escalation` (rules that a user may
//! grant) over `held` (the rules that it has).
//!
//! Source: Kubernetes `plugin/pkg/auth/authorizer/rbac`, `pkg/registry/rbac/validation`.

mod aggregation;
mod escalation;
mod held;
mod object;
mod policy;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use self::{escalation::missing_rules, object::nullable, rule::RuleRequest};
pub use self::{
    escalation::{COMBINATIONS_MAX, GrantRefusal, check_held, full_authority},
    object::{RbacKind, RbacObject, RoleReference, RoleRule, RoleSubject},
    policy::{RbacPolicy, allowed_subject},
};

/// API group of the four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";
