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

/// Goal: what Go would not decode is not stored. Method: annotations that are too long, no JSON, or of another type somewhere, and
/// as controls annotations that fit, with unknown members.
#[test]
fn annotations_that_do_not_fit_are_dropped() {
    let long = format!("[{}{{}}]", "{},".repeat(AUTOSCALING_ANNOTATION_BYTES_MAX / 3));
    let pods = |value: &str| format!(r#"[{{"type":"Pods","pods":{{"metricName":"q","targetAverageValue":{value}}}}}]"#);
    let target = |value: &str| json!([{"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": value}}}]);
    let resource = |value: &str| format!(r#"[{{"resource":{{"name":"cpu","currentAverageUtilization":{value}}}}}]"#);
    let condition = |member: &str| format!(r#"[{{"type":"AbleToScale","status":"True",{member}}}]"#);
    let none = Value::Null;
    for (name, text, member, expected) in [
        (METRICS, long.as_str(), "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, "[", "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, "{}", "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, "[7]", "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, r#"[{"type":7}]"#, "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, r#"[{"pods":[]}]"#, "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, &pods("true"), "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, &pods(r#""5 pods""#), "/spec/metrics", json!([cpu_metric(json!(80))])),
        (METRICS, &pods("null"), "/spec/metrics", target("0")),
        (METRICS, &pods("5"), "/spec/metrics", target("5")),
        (METRICS, &pods(r#""-1.5e3""#), "/spec/metrics", target("-1.5e3")),
        (METRICS, &pods(r#""1500m","more":1"#), "/spec/metrics", target("1500m")),
        (BEHAVIOR, "7", "/spec/behavior", none.clone()),
        (BEHAVIOR, "[]", "/spec/behavior", none.clone()),
        (BEHAVIOR, "null", "/spec/behavior", none.clone()),
        (BEHAVIOR, r#"{"Other":1}"#, "/spec/behavior", none.clone()),
        (BEHAVIOR, r#"{"ScaleUp":{"Policies":{}}}"#, "/spec/behavior", none.clone()),
        (BEHAVIOR, r#"{"ScaleUp":{"Policies":[{"Value":2147483648}]}}"#, "/spec/behavior", none.clone()),
        (
            BEHAVIOR,
            r#"{"ScaleUp":{"StabilizationWindowSeconds":3,"Tolerance":"0.1"},"ScaleDown":null,"Other":1}"#,
            "/spec/behavior",
            json!({"scaleUp": {"stabilizationWindowSeconds": 3, "tolerance": "0.1"}}),
        ),
        (CURRENT_METRICS, &resource("1.5"), "/status/currentMetrics", none.clone()),
        (
            CURRENT_METRICS,
            &resource("7"),
            "/status/currentMetrics",
            json!([{"resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "0"}}}]),
        ),
        (CONDITIONS, r#"{"type":"AbleToScale"}"#, "/status/conditions", none.clone()),
        (CONDITIONS, &condition(r#""lastTransitionTime":"today""#), "/status/conditions", none),
        (
            CONDITIONS,
            &condition(r#""lastTransitionTime":"2026-01-01T00:00:00Z","reason":null,"more":{}"#),
            "/status/conditions",
            json!([{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
        ),
    ] {
        let annotations = json!({name: text, "other": "kept"});
        let mut autoscaler = object(&json!({"metadata": {"annotations": annotations}, "spec": {}, "status": {}}));
        to_stored(&mut autoscaler);
        assert_eq!(autoscaler["metadata"]["annotations"], json!({"other": "kept"}));
        let autoscaler = Value::Object(autoscaler);
        let found = autoscaler.pointer(member).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{name}: {}", text.get(..200).unwrap_or(text));
    }
}

/// Goal: the current use of processors is a member of the older version and one of the metrics of the newer one. Method: both
/// directions; an annotation with all metrics comes first, and of several metrics the last one counts.
#[test]
fn current_use_of_processors_is_converted() {
    let metric =
        |ty: &str, name: &str, current: Value| json!({"type": ty, "resource": {"name": name, "current": current}});
    let cpu = |percent: i32| metric("Resource", "cpu", json!({"averageUtilization": percent}));
    let newer = |metrics: Value| object(&json!({"metadata": {}, "status": {"currentMetrics": metrics}}));
    for (metrics, expected) in [
        (json!([cpu(40), cpu(70)]), json!(70)),
        (json!([cpu(40), metric("Resource", "cpu", json!({"averageValue": "2"}))]), json!(40)),
        (json!([metric("Resource", "memory", json!({"averageUtilization": 5}))]), Value::Null),
        (json!([metric("ContainerResource", "cpu", json!({"averageUtilization": 5}))]), Value::Null),
    ] {
        let mut autoscaler = newer(metrics.clone());
        from_stored(&mut autoscaler);
        let percent = autoscaler["status"].get("currentCPUUtilizationPercentage").cloned().unwrap_or_default();
        assert_eq!(percent, expected, "{metrics}");
        assert!(autoscaler["metadata"]["annotations"][CURRENT_METRICS].is_string());
        to_stored(&mut autoscaler);
        let current = autoscaler["status"]["currentMetrics"].as_array().expect("metrics");
        assert_eq!(current.len(), metrics.as_array().map_or(0, Vec::len), "those of the annotation");
        assert_eq!(autoscaler["status"].get("currentCPUUtilizationPercentage"), None);
    }
    let mut older = object(&json!({"status": {"currentCPUUtilizationPercentage": 70}}));
    to_stored(&mut older);
    assert_eq!(Value::Object(older), json!({"status": {"currentMetrics": [cpu(70)]}}));
}
