//! Merge patches (RFC 7386) with the semantics of kube-apiserver.
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `merge.go`.

use serde_json::Value;

use super::super::body::Object;

/// Merges `patch` into `object`: null removes a member, objects merge, every other value replaces the old one.
pub(crate) fn merge(object: &mut Object, patch: &Object) {
    for (name, value) in patch {
        match (object.get_mut(name), value) {
            (_, Value::Null) => {
                object.remove(name);
            }
            (Some(Value::Object(there)), Value::Object(value)) => merge(there, value),
            // kube-apiserver keeps nulls in a value that replaces an object.
            (Some(there @ Value::Object(_)), value) => *there = value.clone(),
            (Some(_) | None, value) => {
                let mut value = value.clone();
                without_nulls(&mut value);
                object.insert(name.clone(), value);
            }
        }
    }
}

/// Removes null members of objects. Null items of lists stay.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: the cases of RFC 7386 and kube-apiserver's deviations. Method: a table of object, patch and result.
    #[test]
    fn a_merge_patch_replaces_merges_and_removes() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c", "b": "d"}), json!({"a": "c", "b": "d"})),
            (json!({"a": "b"}), json!({"a": null, "none": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": {"b": "c"}}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({"a": [1]}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
        ];
        for (object, patch, expected) in table {
            let (mut merged, patch) =
                (object.as_object().expect("an object").clone(), patch.as_object().expect("a patch").clone());
            merge(&mut merged, &patch);
            assert_eq!(Value::Object(merged), expected, "{object} {patch:?}");
        }
    }
}
