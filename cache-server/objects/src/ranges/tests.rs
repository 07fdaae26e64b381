//! Default amounts, and refusals of others.

use std::{slice, sync::Arc};

use api_rules::registry::Registry;
use serde_json::json;

use super::*;

fn ty(plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", plural).expect("a built-in type")
}

fn object(value: &Value) -> Object {
    value.as_object().expect("an object").clone()
}

fn range(items: &[Value]) -> Object {
    object(&json!({"spec": {"limits": items}}))
}

fn container(name: &str, requests: &Value, limits: &Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

fn checked(plural: &str, item: &Value, spec: &Value) -> Result<(), String> {
    let object = object(&json!({"metadata": {"name": "a"}, "spec": spec}));
    let checked = check(&ty(plural), &[range(slice::from_ref(item))], &object);
    checked.map_err(|status| status.message.to_string())
}

#[test]
fn containers_get_the_amounts_that_they_lack() {
    let item =
        json!({"type": "Container", "default": {"cpu": "1", "memory": "1024Mi"}, "defaultRequest": {"cpu": "0.1"}});
    let other = json!({"type": "Pod", "default": {"cpu": "7"}});
    let own = container("own", &json!({"cpu": "200m"}), &json!({"memory": "1Gi"}));
    let mut pod = object(&json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}, own],
        "initContainers": [{"name": "i", "resources": {}}]}}));
    complete(&[range(&[other, item])], &mut pod).expect("few");
    let all = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(pod["spec"]["containers"][0]["resources"], all);
    assert_eq!(pod["spec"]["initContainers"][0]["resources"], all);
    let own = json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(pod["spec"]["containers"][1]["resources"], own);
    let note = "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c; cpu limit for \
                container own; cpu request for init container i; cpu, memory limit for init container i";
    assert_eq!(pod["metadata"]["annotations"][ANNOTATION], note);
    let before = pod.clone();
    complete(&[range(&[])], &mut pod).expect("none");
    assert_eq!(pod, before);
}

#[test]
fn a_pod_that_would_get_too_many_amounts_is_refused() {
    let amounts: Object = (0..RANGE_DEFAULTS_MAX / 2).map(|at| (format!("example.com/r{at}"), "1".into())).collect();
    let range = range(&[json!({"type": "Container", "default": amounts})]);
    let of = |count: usize| object(&json!({"spec": {"containers": vec![json!({}); count]}}));
    assert!(complete(slice::from_ref(&range), &mut of(2)).is_ok());
    assert_eq!(complete(slice::from_ref(&range), &mut of(3)).unwrap_err().code, 413);
}

/// Goal: refusals are those of Kubernetes. Method: ranges of each kind, and the requests and limits of a pod's containers.
#[test]
fn refusals_have_the_texts_of_kubernetes() {
    let amounts = |text: &str| if text == "-" { json!({}) } else { json!({"cpu": text}) };
    let (none, ratio) = ("no request is specified or request is 0", "provided ratio is 3.333333");
    for (kind, member, amount, containers, expected) in [
        ("Container", "min", "50m", "- -", ".  No request is specified"),
        ("Container", "min", "50m", "10m -", ", but request is 10m"),
        ("Container", "min", "50m", "50m 10m", ", but limit is 10m"),
        ("Container", "min", "50m", "50m -", ""),
        ("Container", "max", "1", "1 -", ".  No limit is specified"),
        ("Container", "max", "1", "1 2", ", but limit is 2"),
        ("Container", "max", "1", "2 1", ", but request is 2"),
        ("Container", "max", "1", "- 1", ""),
        ("Container", "maxLimitRequestRatio", "2", "- 1", &format!(", but {none}")),
        ("Container", "maxLimitRequestRatio", "2", "1 0", ", but no limit is specified or limit is 0"),
        ("Container", "maxLimitRequestRatio", "2", "300m 1", &format!(", but {ratio}")),
        ("Container", "maxLimitRequestRatio", "2", "500m 1", ""),
        ("Pod", "max", "1", "- 600m - 600m", ", but limit is 1200m"),
        ("Pod", "max", "1", "- 600m", ""),
        ("PersistentVolumeClaim", "max", "1", "2 2", ""),
    ] {
        let words: Vec<&str> = containers.split(' ').collect();
        let containers = words.chunks(2).map(|pair| container("c", &amounts(pair[0]), &amounts(pair[1])));
        let spec = json!({"containers": containers.collect::<Vec<_>>()});
        let rule = match member {
            "min" => format!("minimum cpu usage per {kind} is {amount}"),
            "max" => format!("maximum cpu usage per {kind} is {amount}"),
            _ => format!("cpu max limit to request ratio per {kind} is {amount}"),
        };
        let refused = format!("pods \"a\" is forbidden: {rule}{expected}");
        let refused = if expected.is_empty() { Ok(()) } else { Err(refused) };
        assert_eq!(checked("pods", &json!({"type": kind, member: {"cpu": amount}}), &spec), refused);
    }
    let item = json!({"type": "Container", "min": {"cpu": "1", "memory": "1Gi"}});
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "b"}]});
    assert_eq!(
        checked("pods", &item, &spec).unwrap_err(),
        "pods \"a\" is forbidden: [minimum cpu usage per Container is 1.  No request is specified, minimum memory usage \
         per Container is 1Gi.  No request is specified]"
    );
}

#[test]
fn a_claim_requests_what_its_range_allows() {
    let item = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
    for (requests, expected) in [
        (json!({"storage": "1Gi"}), None),
        (json!({"storage": "1Mi"}), Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")),
        (json!({"storage": "3Gi"}), Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")),
    ] {
        let refused = expected.map_or(Ok(()), |text| Err(format!("persistentvolumeclaims \"a\" is forbidden: {text}")));
        assert_eq!(checked("persistentvolumeclaims", &item, &json!({"resources": {"requests": requests}})), refused);
    }
    let claims = ty("persistentvolumeclaims");
    let ends = object(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert!(concern(&claims, Part::Main, Some(&Object::new())) && !concern(&claims, Part::Main, Some(&ends)));
    assert!(concern(&ty("pods"), Part::Main, None) && !concern(&ty("pods"), Part::Main, Some(&Object::new())));
}
