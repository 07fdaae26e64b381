//! Effects of writes on objects: reads bodies and patches, and checks and changes objects as kube-apiserver does.
//!
//! Not implemented, on purpose: admission (an object may name a namespace that does not exist), defaulting, validation
//! beyond metadata and the JSON types of fields, and the work of controllers: kubelets that end pods, and the garbage collector.

pub mod apply;
pub mod approval;
pub mod binding;
pub mod body;
mod conditions;
pub mod create;
mod definition_rules;
pub mod deletion;
pub mod draft;
mod ephemeral;
pub mod eviction;
pub mod label_selector;
mod managed;
pub mod metadata;
pub mod options;
pub mod patch;
pub mod plain;
pub mod protobuf;
pub mod request;
pub mod scale;
mod sparse;
mod strategic;
pub mod update;
pub mod validation;
pub mod weight;

use serde_json::{Value, json};

pub use body::Object;
pub use managed::record;
pub use request::{WriteRequest, WriteTarget};

/// Returns the value at a dotted path.
pub fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = object.get(first)?;
    rest.map_or(Some(value), |rest| at(value.as_object()?, rest))
}

/// Sets the value at a dotted path, creating the objects on the way.
pub fn put(object: &mut Object, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        object.insert(path.to_owned(), value);
        return;
    };
    let next = object.entry(first).or_insert_with(|| json!({}));
    if !next.is_object() {
        *next = json!({});
    }
    if let Value::Object(next) = next {
        put(next, rest, value);
    }
}
