//! Settings that only custom resources have.

use std::sync::Arc;

use super::ResourceType;

/// Settings of one version of a CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq)]
pub struct Custom {
    /// `schema.openAPIV3Schema` as compact JSON; `null` if missing. Kept as text, because the parsed form takes five
    /// times the memory and is never needed for most types.
    pub schema: Arc<str>,
    /// `additionalPrinterColumns` unchanged: a list, or null if missing.
    pub printer_columns: serde_json::Value,
    /// `preserveUnknownFields` of the whole type: true if objects may have members that the schema does not know.
    pub preserve_unknown_fields: bool,
}

impl Custom {
    /// Parses the schema. Cost: a full parse on each call.
    #[must_use]
    pub fn read_schema(&self) -> serde_json::Value {
        serde_json::from_str(&self.schema).unwrap_or_default()
    }
}

/// The webhook that makes the objects of one version of a custom resource.
#[derive(Debug)]
pub struct Converter {
    /// The type of the stored objects.
    pub stored: Arc<ResourceType>,
    /// `spec.conversion.webhook` of the definition.
    pub webhook: serde_json::Value,
}
