//! Usage that quotas count, and their refusals.

use std::sync::Arc;

use api_rules::registry::Registry;
use serde_json::json;

use super::*;

fn ty(group: &str, plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find(group, "v1", plural).expect("a built-in type")
}

fn object(value: &Value) -> Object {
    value.as_object().expect("an object").clone()
}

fn quota(name: &str, spec: &Value, hard: &Value, used: &Value) -> Object {
    object(&json!({"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used}}))
}

/// Charges quotas for a create; returns what each has used then, or the refusal.
fn created(ty: &ResourceType, new: &Value, quotas: &[Object]) -> Result<Vec<Value>, String> {
    charged(ty, Part::Main, new, None, quotas)
}

fn charged(
    ty: &ResourceType,
    part: Part,
    new: &Value,
    old: Option<&Value>,
    quotas: &[Object],
) -> Result<Vec<Value>, String> {
    let (new, old) = (object(new), old.map(object));
    let write = QuotaWrite { ty, part, object: &new, old: old.as_ref() };
    if !write.is_counted() {
        return Ok(Vec::new());
    }
    let used = |quota: Option<Object>| quota.map_or(Value::Null, |quota| quota["status"]["used"].clone());
    let charged = write.charge(quotas).map_err(|status| status.message.to_string())?;
    Ok(charged.into_iter().map(used).collect())
}

fn pod(resources: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
}

#[test]
fn each_resource_of_a_pod_is_counted() {
    let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi", "example.com/card": "2", "hugepages-2Mi": "4Mi"},
        "limits": {"cpu": "1", "memory": "2Gi", "example.com/card": "2", "ephemeral-storage": "3Gi"}});
    let mut new = pod(&resources);
    new["spec"]["overhead"] = json!({"cpu": "100m", "memory": "1Mi"});
    let names = [
        ("pods", "1", "2"),
        ("count/pods", "0", "1"),
        ("cpu", "1", "1600m"),
        ("requests.cpu", "0", "600m"),
        ("requests.memory", "1Gi", "2049Mi"),
        ("limits.cpu", "0", "1100m"),
        ("limits.memory", "0", "2049Mi"),
        ("limits.ephemeral-storage", "0", "3Gi"),
        ("requests.example.com/card", "0", "2"),
        ("hugepages-2Mi", "0", "4Mi"),
        ("requests.hugepages-2Mi", "0", "4Mi"),
    ];
    let map = |value: fn(&(&str, &'static str, &'static str)) -> &'static str| -> Value {
        names.iter().map(|row| (row.0.to_owned(), Value::from(value(row)))).collect::<Object>().into()
    };
    let hard = map(|_| "100Gi");
    let charged = created(&ty("", "pods"), &new, &[quota("q", &json!({}), &hard, &map(|row| row.1))]);
    assert_eq!(charged, Ok(vec![map(|row| row.2)]));
}

#[test]
fn other_types_are_counted_by_their_names() {
    let storage = json!({"metadata": {"name": "a"}, "spec": {"storageClassName": "gold",
        "resources": {"requests": {"storage": "1500m"}}}});
    let service = |ty: &str, more: &Value| {
        let mut service = json!({"metadata": {"name": "a"}, "spec": {"type": ty, "ports": [{"port": 1}, {"port": 2, "nodePort": 30000}]}});
        for (member, value) in more.as_object().expect("members") {
            service["spec"][member] = value.clone();
        }
        service
    };
    let quiet = json!({"allocateLoadBalancerNodePorts": false});
    for (group, plural, new, name, used) in [
        ("", "configmaps", json!({}), "configmaps", "1"),
        ("", "configmaps", json!({}), "count/configmaps", "1"),
        ("", "resourcequotas", json!({}), "resourcequotas", "1"),
        ("apps", "deployments", json!({}), "count/deployments.apps", "1"),
        ("", "services", service("ClusterIP", &json!({})), "services", "1"),
        ("", "services", service("NodePort", &json!({})), "services.nodeports", "2"),
        ("", "services", service("LoadBalancer", &json!({})), "services.nodeports", "2"),
        ("", "services", service("LoadBalancer", &json!({})), "services.loadbalancers", "1"),
        ("", "services", service("LoadBalancer", &quiet), "services.nodeports", "1"),
        ("", "persistentvolumeclaims", storage.clone(), "persistentvolumeclaims", "1"),
        ("", "persistentvolumeclaims", storage.clone(), "requests.storage", "2"),
        ("", "persistentvolumeclaims", storage.clone(), "gold.storageclass.storage.k8s.io/requests.storage", "2"),
        ("", "persistentvolumeclaims", storage, "gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1"),
    ] {
        let quota = quota("q", &json!({}), &json!({name: "5"}), &json!({name: "0"}));
        assert_eq!(created(&ty(group, plural), &new, &[quota]), Ok(vec![json!({name: used})]), "{plural} {name}");
    }
    let others = [
        quota("q", &json!({}), &json!({"services.nodeports": "0"}), &json!({"services.nodeports": "0"})),
        quota("r", &json!({}), &json!({"silver.storageclass.storage.k8s.io/requests.storage": "0"}), &json!({})),
        quota("s", &json!({}), &json!({"count/deployments.apps": "0"}), &json!({})),
    ];
    assert_eq!(created(&ty("", "services"), &service("ClusterIP", &json!({})), &others[..1]), Ok(vec![Value::Null]));
    assert_eq!(created(&ty("apps", "replicasets"), &json!({}), &others), Ok(vec![Value::Null; 3]));
    assert_eq!(created(&ty("", "events"), &json!({}), &others), Ok(Vec::new()));
    assert_eq!(created(&ty("", "nodes"), &json!({}), &others), Ok(Vec::new()));
}

#[test]
fn refusals_have_the_texts_of_kubernetes() {
    let pods = ty("", "pods");
    let full = pod(&json!({"requests": {"cpu": "1", "memory": "1Gi"}}));
    let hard = json!({"pods": "1", "requests.cpu": "2", "requests.memory": "1536Mi"});
    let used = json!({"pods": "1", "requests.cpu": "500m", "requests.memory": "1Gi"});
    assert_eq!(
        created(&pods, &full, &[quota("q", &json!({}), &hard, &used)]).unwrap_err(),
        "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1,requests.memory=1Gi, used: \
         pods=1,requests.memory=1Gi, limited: pods=1,requests.memory=1536Mi"
    );
    let unknown = quota("q", &json!({}), &hard, &json!({"pods": "0"}));
    assert_eq!(
        created(&pods, &full, &[unknown]).unwrap_err(),
        "pods \"p\" is forbidden: status unknown for quota: q, resources: pods,requests.cpu,requests.memory"
    );
    let mut bare = full.clone();
    bare["metadata"] = json!({"generateName": "p-"});
    bare["spec"]["containers"] = json!([{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]);
    bare["spec"]["initContainers"] = json!([{"name": "c"}]);
    assert_eq!(
        created(&pods, &bare, &[quota("q", &json!({}), &hard, &used)]).unwrap_err(),
        "pods \"p-\" is forbidden: failed quota: q: must specify requests.cpu for: b,c; requests.memory for: a,b,c"
    );
    bare["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    let empty = json!({"pods": "0", "requests.cpu": "0", "requests.memory": "0"});
    let charged = created(&pods, &bare, &[quota("q", &json!({}), &hard, &empty)]);
    assert_eq!(charged, Ok(vec![json!({"pods": "1", "requests.cpu": "1", "requests.memory": "0"})]));
}

#[test]
fn a_quota_counts_the_objects_in_all_of_its_scopes() {
    let pods = ty("", "pods");
    let is_counted = |spec: &Value, change: &dyn Fn(&mut Value)| {
        let mut new = pod(&json!({}));
        change(&mut new);
        let quota = quota("q", spec, &json!({"pods": "1"}), &json!({"pods": "0"}));
        created(&pods, &new, &[quota]).expect("fits") != [Value::Null]
    };
    let ends = |pod: &mut Value| pod["spec"]["activeDeadlineSeconds"] = 5.into();
    let requests = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    };
    let high = |pod: &mut Value| pod["spec"]["priorityClassName"] = "high".into();
    let far = |pod: &mut Value| {
        let term = json!({"topologyKey": "zone", "namespaceSelector": {}});
        let terms = json!([{"weight": 1, "podAffinityTerm": term}]);
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}});
    };
    let none = |_: &mut Value| {};
    let scopes = |scopes: &[&str]| json!({"scopes": scopes});
    for (scope, change, expected) in [
        ("Terminating", &ends as &dyn Fn(&mut Value), true),
        ("Terminating", &none, false),
        ("NotTerminating", &none, true),
        ("BestEffort", &none, true),
        ("BestEffort", &requests, false),
        ("NotBestEffort", &requests, true),
        ("PriorityClass", &high, true),
        ("PriorityClass", &none, false),
        ("CrossNamespacePodAffinity", &far, true),
        ("CrossNamespacePodAffinity", &none, false),
        ("Unknown", &none, false),
    ] {
        assert_eq!(is_counted(&scopes(&[scope]), change), expected, "{scope}");
    }
    assert!(is_counted(&scopes(&["NotTerminating", "NotBestEffort"]), &requests));
    assert!(!is_counted(&scopes(&["Terminating", "NotBestEffort"]), &requests));
    for (operator, values, of_high, of_none) in [
        ("In", vec!["high"], true, false),
        ("In", vec!["low"], false, false),
        ("NotIn", vec!["high"], false, true),
        ("Exists", vec![], true, false),
        ("DoesNotExist", vec![], false, true),
    ] {
        let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        let spec = json!({"scopeSelector": {"matchExpressions": [expression]}});
        assert_eq!((is_counted(&spec, &high), is_counted(&spec, &none)), (of_high, of_none), "{operator}");
    }
}

#[test]
fn an_update_is_charged_for_what_it_adds() {
    let claim = |storage: &str, allocated: &str| {
        json!({"metadata": {"name": "a"}, "spec": {"resources": {"requests": {"storage": storage}}},
            "status": {"allocatedResources": {"storage": allocated}}})
    };
    let claims = ty("", "persistentvolumeclaims");
    let quotas = [quota("q", &json!({}), &json!({"requests.storage": "3Gi"}), &json!({"requests.storage": "2Gi"}))];
    let update = |part, new: &Value, old: &Value| charged(&claims, part, new, Some(old), &quotas);
    let (one, two, three) = (claim("1Gi", "0"), claim("2Gi", "0"), claim("3Gi", "0"));
    assert_eq!(update(Part::Main, &two, &one), Ok(vec![json!({"requests.storage": "3Gi"})]));
    assert_eq!(update(Part::Main, &one, &two), Ok(vec![Value::Null]));
    let refused = update(Part::Main, &three, &one).unwrap_err();
    assert!(
        refused.ends_with("requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi")
    );
    // Allocated already: it counts, whatever the limit is.
    let allocated = update(Part::Status, &claim("1Gi", "4Gi"), &one);
    assert_eq!(allocated, Ok(vec![json!({"requests.storage": "5Gi"})]));

    let pods = ty("", "pods");
    let (mut ends, lasts) = (pod(&json!({})), pod(&json!({})));
    ends["spec"]["activeDeadlineSeconds"] = 5.into();
    let quotas = ["Terminating", "NotTerminating"]
        .map(|scope| quota(scope, &json!({"scopes": [scope]}), &json!({"pods": "1"}), &json!({"pods": "0"})));
    let update = |new: &Value, old: &Value| charged(&pods, Part::Main, new, Some(old), &quotas);
    assert_eq!(update(&ends, &lasts), Ok(vec![json!({"pods": "1"}), Value::Null]));
    assert_eq!(update(&lasts, &lasts), Ok(Vec::new()));
}
