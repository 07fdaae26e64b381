//! Paths in an object that its subresource `scale` reads and writes.

/// Paths for `…/{name}/scale`. Paths are dotted, without a leading dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Path of the desired number of replicas, such as `spec.replicas`.
    pub spec_replicas: String,
    /// Path of the current number of replicas, such as `status.replicas`.
    pub status_replicas: String,
    /// Selector of the replicas.
    pub selector: ScaleSelector,
}

impl Scale {
    /// Those of the built-in types.
    pub(super) fn built_in(selector: fn(String) -> ScaleSelector) -> Self {
        Self {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: selector("spec.selector".to_owned()),
        }
    }
}

/// Path and form of the selector of a [`Scale`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleSelector {
    /// No selector.
    Nowhere,
    /// Path of a serialized selector: custom resources.
    Text(String),
    /// Path of a LabelSelector with matchLabels and matchExpressions.
    Labels(String),
    /// Path of a map of labels: replication controllers.
    Map(String),
}
