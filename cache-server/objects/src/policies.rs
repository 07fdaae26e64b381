//! ValidatingAdmissionPolicies: which of them a write has to pass ([`AdmissionPolicy`], bound by a [`PolicyBinding`]),
//! and what their expressions say about it. [`check`] refuses policies and bindings. The caller reads parameters and
//! namespaces.
//!
//! Not implemented, on purpose: `auditAnnotations` and the action Audit, which are checked but not recorded; types of
//! expressions, and their warnings in the status of a policy; the variable `authorizer`, with which an expression does
//! not compile; the operation CONNECT.
//!
//! INVARIANT: the expressions of one policy about one write and parameter take at most
//! [`POLICY_STEPS_MAX`](crate::limits::POLICY_STEPS_MAX) steps, and its conditions
//! [`CONDITIONS_STEPS_MAX`](crate::limits::CONDITIONS_STEPS_MAX). INVARIANT: a variable is evaluated when an expression
//! reads it, once: the errors of others harm nothing.
//!
//! Source: apiserver `pkg/admission/plugin/policy`; `pkg/apis/admissionregistration/validation` of
//! kubernetes/kubernetes 1.37.

mod binding;
mod check;
mod policy;

#[cfg(test)]
mod tests;

pub use self::{
    binding::{ParameterChoice, ParameterReference, PolicyBinding},
    check::check,
    policy::{AdmissionPolicy, ParameterKind, PolicyInput},
};
use api_rules::registry::ResourceType;

use crate::webhooks::GROUP;

/// Id of the type of policies; see [`ResourceType::id`].
pub const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";

/// Id of the type of bindings.
pub const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// True for types whose writes pass no policies: a policy must not be able to guard itself. Configurations of webhooks
/// pass them.
#[must_use]
pub fn is_exempt(ty: &ResourceType) -> bool {
    ty.group == GROUP && ty.plural.contains("admissionpolic")
}
