//! Filters objects by a request's namespace and selectors.

use std::borrow::Cow;

use informer_core::selector::{field, label, shard};
use informer_serving::{
    go,
    options::ListOptions,
    status::{Status, StatusExt as _},
};

use super::{history::StoredObject, types::PathTarget};

/// A namespace and selectors.
#[derive(Clone, Debug)]
pub(super) struct FakeFilter {
    namespace: Option<String>,
    labels: label::Selector,
    fields: field::Selector,
    shard: Option<shard::Selector>,
}

impl FakeFilter {
    /// # Errors
    /// 400 for a field the type cannot be selected by, 500 for an invalid shard selector.
    pub(super) fn new(options: &ListOptions, target: &PathTarget) -> Result<Self, Status> {
        let ty = &target.ty;
        let knows = |name: &str| match name {
            "metadata.name" => true,
            "metadata.namespace" => ty.namespaced != Some(false) || !ty.refuses_in_its_own_words(),
            name => ty.fields().is_none_or(|fields| fields.contains(&unaliased(name))),
        };
        if let Some(term) = options.fields.terms().iter().find(|term| !knows(&term.field)) {
            let name = &term.field;
            return Err(Status::bad_request(if ty.refuses_in_its_own_words() {
                format!("field label not supported: {name}")
            } else {
                let quoted = go::quote(name);
                format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }));
        }
        let (labels, fields, shard) = (options.labels.clone(), options.fields.clone(), options.shard()?);
        Ok(Self { namespace: target.namespace.clone(), labels, fields, shard })
    }

    /// Returns the shard selector.
    pub(super) const fn shard(&self) -> Option<&shard::Selector> {
        self.shard.as_ref()
    }

    /// Returns true if there is no selector.
    pub(super) fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }

    pub(super) fn matches(&self, stored: &StoredObject) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == stored.namespace)
            && self.shard.as_ref().is_none_or(|shard| {
                let uid = stored.field("metadata.uid").unwrap_or_default();
                shard.matches(&uid, &stored.namespace)
            })
            && self.labels.matches(|key| stored.label(key))
            && self.fields.matches(|name| match name {
                "metadata.name" => Some(Cow::from(&stored.name)),
                "metadata.namespace" => Some(Cow::from(&stored.namespace)),
                // The only field that has a default for selection when it is absent.
                "spec.hostNetwork" => stored.field(name).or_else(|| Some("false".into())),
                name => stored.field(unaliased(name)),
            })
    }
}

fn unaliased(name: &str) -> &str {
    if name == "spec.host" { "spec.nodeName" } else { name }
}
