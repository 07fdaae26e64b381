//! `metadata.managedFields` as written by server-side apply: which manager owns which field, derived from the object.
//!
//! # Source
//! structured-merge-diff, `fieldpath` serialisation of sets; merge keys from the types' `+listMapKey` markers.

use serde_json::{Map, Value, json};

/// Lists whose items are identified by these fields. Other lists are owned as a whole.
const MERGE_KEYS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("ports", &["containerPort", "protocol"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Objects that are owned as a whole.
const ATOMIC: &[&str] = &["fieldRef", "nodeSelector", "secretKeyRef"];

/// Objects that no manager creates, so none owns the object itself.
const UNOWNED: &[&str] = &["metadata", "spec", "status", "containers"];

/// One entry of managedFields for the members `owned` of an object.
pub(super) fn entry(manager: &str, subresource: Option<&str>, time: &str, owned: &[(&str, &Value)]) -> Value {
    let mut entry = json!({
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "manager": manager,
        "operation": "Update",
        "time": time,
    });
    let members = owned.iter().map(|(name, value)| (format!("f:{name}"), fields(name, value)));
    entry["fieldsV1"] = Value::Object(members.collect());
    if let Some(subresource) = subresource {
        entry["subresource"] = subresource.into();
    }
    entry
}

fn fields(name: &str, value: &Value) -> Value {
    let mut out = Map::new();
    match value {
        Value::Object(members) if !ATOMIC.contains(&name) => {
            out.extend(members.iter().map(|(name, value)| (format!("f:{name}"), fields(name, value))));
        }
        Value::Array(items) => {
            let keys = MERGE_KEYS.iter().find(|(list, _)| *list == name).map_or(&[][..], |(_, keys)| *keys);
            if !keys.is_empty() {
                // An owner reference is owned as a whole.
                let own =
                    |item| if name == "ownerReferences" { Value::Object(Map::new()) } else { fields("an item", item) };
                out.extend(items.iter().map(|item| (item_key(keys, item), own(item))));
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if !out.is_empty() && !UNOWNED.contains(&name) {
        out.insert(".".into(), Value::Object(Map::new()));
    }
    Value::Object(out)
}

fn item_key(keys: &[&str], item: &Value) -> String {
    let key: Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect();
    format!("k:{}", Value::Object(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_api_server_writes_them() {
        let spec = json!({
            "containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
            "tolerations": [{"key": "x"}],
        });
        let expected = json!({"f:spec": {
            "f:containers": {r#"k:{"name":"a"}"#: {".": {}, "f:name": {}, "f:ports": {
                ".": {},
                r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}, "f:protocol": {}},
            }}},
            "f:tolerations": {},
        }});
        assert_eq!(entry("m", None, "t", &[("spec", &spec)])["fieldsV1"], expected);
    }
}
