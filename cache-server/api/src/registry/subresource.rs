//! Subresources of built-in types with rules of their own, beside `status` and `scale`.

use std::sync::{Arc, LazyLock};

use super::{REVIEW_VERBS, ResourceType, table};

/// A subresource with rules of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// Approves or denies a signing request, by a condition in its status.
    Approval,
    /// Binds a pod to a node.
    Binding,
    /// Adds containers to a pod that runs.
    EphemeralContainers,
    /// Deletes a pod, unless a PodDisruptionBudget forbids it.
    Eviction,
    /// Changes the finalizers in the spec of a namespace.
    Finalize,
    /// Issues a token of a service account.
    Token,
}

/// Verbs of a subresource that is a part of its object.
const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The types of objects that are sent to subresources, and never stored.
static SENT: LazyLock<Vec<Arc<ResourceType>>> = LazyLock::new(|| {
    let groups = table::SENT.iter();
    groups.flat_map(|group| group.rows.iter().map(|row| Arc::new(ResourceType::built_in(group, row)))).collect()
});

impl Subresource {
    /// The last segment of its path.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::Token => "token",
        }
    }

    /// Verbs in the order of discovery.
    #[must_use]
    pub const fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Approval | Self::EphemeralContainers => &PART_VERBS,
            Self::Binding | Self::Eviction | Self::Token => &REVIEW_VERBS,
            Self::Finalize => &["update"],
        }
    }

    /// The type of the objects that a POST sends to it; `None` if it has no POST, and the objects of its type.
    #[must_use]
    pub fn sent(self) -> Option<&'static Arc<ResourceType>> {
        let kind = match self {
            Self::Approval | Self::EphemeralContainers | Self::Finalize => return None,
            Self::Binding => "Binding",
            Self::Eviction => "Eviction",
            Self::Token => "TokenRequest",
        };
        SENT.iter().find(|ty| ty.kind == kind)
    }
}

impl ResourceType {
    /// True for requests that another party approves: their specs are what their creators asked for, and never change.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        self.subresources.contains(&Subresource::Approval)
    }

    /// Its subresource of this name, beside `status` and `scale`.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name() == name)
    }
}
