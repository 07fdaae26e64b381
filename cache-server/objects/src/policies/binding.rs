//! Bindings: the writes for which a policy counts, with which parameters, and what follows.

use api_rules::{
    object::{Object, label_selector::LabelSelector, metadata},
    registry::ResourceType,
};
use serde_json::Value;

use crate::webhooks::{MatchedWrites, check::texts};

/// A binding of a policy.
pub struct PolicyBinding {
    /// Its name.
    pub name: String,
    /// Name of the policy.
    pub policy: String,
    /// The writes that it is about; `None` for all that its policy is about.
    pub writes: Option<MatchedWrites>,
    /// The parameters of the policy; `None` for none.
    pub parameters: Option<ParameterReference>,
    pub(super) denies: bool,
    pub(super) warns: bool,
}

/// The objects that a binding gives its policy as parameters.
pub struct ParameterReference {
    /// Empty for the namespace of the write.
    namespace: String,
    /// The way to find them.
    pub choice: ParameterChoice,
    /// True if a write without a parameter is denied.
    denies_none: bool,
}

/// The way to find parameters.
pub enum ParameterChoice {
    /// The one with a name.
    Name(String),
    /// All with some labels.
    Selector(LabelSelector),
    /// This server cannot tell.
    Unreadable,
}

impl PolicyBinding {
    /// Reads a binding.
    #[must_use]
    pub fn read(binding: &Object) -> Self {
        let spec = binding.get("spec").unwrap_or(&Value::Null);
        let part = |member: &str| spec.get(member).filter(|part| part.is_object());
        let actions = texts(spec, "validationActions");
        Self {
            name: metadata::text(binding, "name").to_owned(),
            policy: spec.get("policyName").and_then(Value::as_str).unwrap_or_default().to_owned(),
            writes: part("matchResources").map(MatchedWrites::of_binding),
            parameters: part("paramRef").map(ParameterReference::read),
            denies: actions.contains(&"Deny"),
            warns: actions.contains(&"Warn"),
        }
    }
}

impl ParameterReference {
    fn read(reference: &Value) -> Self {
        let text = |member: &str| reference.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
        let selector = reference.get("selector").filter(|selector| selector.is_object());
        let choice = match (text("name"), selector) {
            (name, None) if !name.is_empty() => ParameterChoice::Name(name),
            (name, Some(selector)) if name.is_empty() => {
                LabelSelector::read(selector).map_or(ParameterChoice::Unreadable, ParameterChoice::Selector)
            }
            _ => ParameterChoice::Unreadable,
        };
        Self { namespace: text("namespace"), choice, denies_none: text("parameterNotFoundAction") == "Deny" }
    }

    /// Returns the namespace of the parameters, which are of a type; empty for cluster-scoped ones. `of_write` is the
    /// namespace of the write.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn namespace<'a>(&'a self, ty: &ResourceType, of_write: &'a str) -> Result<&'a str, &'static str> {
        match (ty.namespaced, &*self.namespace) {
            (false, "") => Ok(""),
            (false, _) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
            (true, "") if of_write.is_empty() => {
                Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
            }
            (true, "") => Ok(of_write),
            (true, own) => Ok(own),
        }
    }

    /// # Errors
    /// The reason why a write without a parameter is denied.
    pub const fn check_none(&self) -> Result<(), &'static str> {
        if self.denies_none {
            Err("no params found for policy binding with `Deny` parameterNotFoundAction")
        } else {
            Ok(())
        }
    }
}
