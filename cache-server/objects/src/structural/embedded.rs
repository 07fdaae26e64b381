//! Checks what kube-apiserver needs to know of objects in a custom one.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/objectmeta/validation.go`.

use api_rules::{
    object::{Object, validation::ValuePath},
    registry::refuse_service_label,
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

use super::{EMBEDDED, SchemaNode, each_value, flag};

/// Adds causes for embedded objects without a type. Unchanged ones are refused, too.
pub(super) fn check(object: &Object, root: &SchemaNode<'_>, causes: &mut Causes) {
    each_value(object, root, &mut |value: &Value, node: &SchemaNode<'_>| {
        if let Value::Object(object) = value
            && flag(node.schema, EMBEDDED)
        {
            check_type(object, &node.path, causes);
        }
    });
}

fn check_type(object: &Object, path: &ValuePath<'_>, causes: &mut Causes) {
    for name in ["apiVersion", "kind"] {
        let at = ValuePath::Key(path, name);
        let refuse = |shown: &str, why: &str| StatusCause::invalid(&at.text(), shown, why);
        match object.get(name) {
            None => causes.push_with(|| StatusCause::required(&at.text(), "")),
            Some(Value::String(text)) if text.is_empty() => causes.push_with(|| refuse("\"\"", "must not be empty")),
            Some(Value::String(text)) if name == "kind" => {
                let why = refuse_service_label(&text.to_ascii_lowercase());
                if !why.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {why}");
                    causes.push_with(|| refuse(&quote(text), &why));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {text}");
                causes.push_with(|| refuse(&quote(text), &why));
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.push_with(|| refuse(&other.to_string(), "must be a string")),
        }
    }
}
