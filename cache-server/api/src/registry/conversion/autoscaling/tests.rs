//! Autoscalers of both versions.

use super::*;

fn object(value: &Value) -> Object {
    value.as_object().expect("an object").clone()
}

/// Decodes the annotations that this conversion makes, so that the order of their members does not count.
fn decoded(mut autoscaler: Object) -> Value {
    if let Some(annotations) = member(&mut autoscaler, "metadata").and_then(|metadata| member(metadata, "annotations"))
    {
        for (name, value) in annotations.iter_mut() {
            if ANNOTATIONS.contains(&name.as_str()) {
                let text = value.as_str().expect("a text");
                *value = without_nulls(&serde_json::from_str(text).expect("JSON"));
            }
        }
    }
    without_nulls(&Value::Object(autoscaler))
}

fn without_nulls(value: &Value) -> Value {
    renamed(value, str::to_owned)
}

/// Goal: autoscalers are converted as kube-apiserver converts them. Method: the rows that `tests/clients/defaults` printed from
/// its functions, in both directions; `CONVERSION_ROWS` names a file with others.
#[test]
fn rows_of_kube_apiserver_are_converted_alike() {
    let (mut older, mut newer) = (0, 0);
    let others = std::env::var_os("CONVERSION_ROWS").map(|file| std::fs::read_to_string(file).expect("a file"));
    let rows = others.as_deref().unwrap_or(include_str!("rows.txt"));
    for line in rows.lines().filter(|line| !line.starts_with('#')) {
        let row: Value = serde_json::from_str(line).expect("a row");
        let mut ours = object(&row["from"]);
        if row["from"]["apiVersion"] == "autoscaling/v2" {
            from_stored(&mut ours);
            older += 1;
        } else {
            to_stored(&mut ours);
            newer += 1;
        }
        ours.insert("apiVersion".to_owned(), row["to"]["apiVersion"].clone());
        assert_eq!(decoded(ours), decoded(object(&row["to"])), "{line}");
    }
    assert!(20 <= older && 20 <= newer, "{older} {newer}");
}

#[test]
fn annotations_that_are_too_long_or_no_json_are_dropped() {
    let long = format!("[{}{{}}]", "{},".repeat(AUTOSCALING_ANNOTATION_BYTES_MAX / 3));
    for text in [long.as_str(), "[", "{}", "[7]"] {
        let mut autoscaler =
            object(&json!({"metadata": {"annotations": {METRICS: text, "other": "kept"}}, "spec": {}}));
        to_stored(&mut autoscaler);
        assert_eq!(autoscaler["metadata"]["annotations"], json!({"other": "kept"}));
        assert!(autoscaler["spec"]["metrics"].is_array());
    }
}
