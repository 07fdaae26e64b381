//! Columns of the other built-in types.

use super::*;

#[test]
fn nodes_say_whether_they_take_pods() {
    let ready =
        |status: &str| json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]);
    let node = json!({
        "metadata": {"labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "db",
            "node-role.kubernetes.io/": "", "other": "x",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": ready("True"),
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2"},
        },
    });
    let expected = [
        "a",
        "Ready,SchedulingDisabled",
        "control-plane,db,worker",
        "5m",
        "v1.36.0",
        "10.0.0.1",
        "1.2.3.4",
        "Linux",
        "6.1",
        "containerd://2",
    ];
    check("nodes", node, &expected);
    let rest = ["<none>", "5m", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"];
    for (status, expected) in [
        (json!({"conditions": ready("Unknown")}), "NotReady"),
        (json!({"conditions": ready("False")}), "NotReady"),
        (json!({}), "Unknown"),
    ] {
        check("nodes", json!({"status": status}), &[&["a", expected], &rest[..]].concat());
    }
}

#[test]
fn services_say_where_they_are() {
    let service = |spec: Value, status: Value| json!({"spec": spec, "status": status});
    let ports =
        json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}, {"port": 1}]);
    let ports_text = "80:30080/TCP,53/UDP,1/TCP";
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": ports, "selector": {"b": "2", "a": "1"}});
    check("services", service(spec, json!({})), &["a", "NodePort", "10.0.0.1", "<none>", ports_text, "5m", "a=1,b=2"]);
    let headless = json!({"clusterIP": "None"});
    check("services", service(headless, json!({})), &["a", "ClusterIP", "None", "<none>", "<none>", "5m", "<none>"]);
    let external = |kind: &str, ips: Value, ingress: Value| {
        let service = object(service(
            json!({"type": kind, "externalIPs": ips, "externalName": "x.y"}),
            json!({"loadBalancer": {"ingress": ingress}}),
        ));
        plain(&row(&columns("services"), service.to_string().as_bytes())["cells"][3])
    };
    let balancers = json!([{"ip": "2.2.2.2"}, {"hostname": "lb.example.com"}, {"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]);
    assert_eq!(external("ClusterIP", json!(["9.9.9.9", "8.8.8.8"]), json!([])), "9.9.9.9,8.8.8.8");
    assert_eq!(external("LoadBalancer", json!([]), json!([])), "<pending>");
    assert_eq!(external("LoadBalancer", json!([]), balancers.clone()), "1.1.1.1,2.2.2.2,lb.example.com");
    assert_eq!(external("LoadBalancer", json!(["9.9.9.9"]), json!([{"ip": "1.1.1.1"}])), "1.1.1.1,9.9.9.9");
    assert_eq!(external("LoadBalancer", json!(["9.9.9.9"]), json!([])), "9.9.9.9");
    assert_eq!(external("ExternalName", json!([]), json!([])), "x.y");
    assert_eq!(external("Odd", json!([]), json!([])), "<unknown>");
}

#[test]
fn long_lists_are_cut_and_counted() {
    let addresses = |count: usize| (1..=count).map(|at| json!({"ip": format!("10.0.0.{at}")})).collect::<Vec<_>>();
    let endpoints = |subsets: Value| json!({"subsets": subsets});
    check("endpoints", json!({}), &["a", "<none>", "5m"]);
    let two = json!([{"addresses": addresses(2), "ports": [{"port": 80}]}]);
    check("endpoints", endpoints(two), &["a", "10.0.0.1:80,10.0.0.2:80", "5m"]);
    let many =
        json!([{"addresses": addresses(2), "ports": [{"port": 80}, {"port": 81}]}, {"addresses": [{"ip": "fd::1"}]}]);
    check("endpoints", endpoints(many), &["a", "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 2 more...", "5m"]);
    let plain = json!([{"addresses": [{"ip": "fd::1"}], "ports": [{"port": 80}]}, {"addresses": [{"ip": "fd::1"}]}]);
    check("endpoints", endpoints(plain), &["a", "[fd::1]:80,fd::1", "5m"]);

    let slice = json!({
        "addressType": "IPv4", "ports": [{"port": 80, "name": "http"}, {"name": "x"}, {}, {"port": 1}, {"port": 2}],
        "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]}],
    });
    let expected = ["a", "IPv4", "80,x,* + 2 more...", "10.0.0.1,10.0.0.2,10.0.0.3", "5m"];
    check("endpointslices.discovery.k8s.io", slice, &expected);
    check("endpointslices.discovery.k8s.io", json!({}), &["a", "", "<unset>", "<unset>", "5m"]);

    let ingress = |hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        json!({"spec": {"rules": rules, "ingressClassName": "c", "tls": [{}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}})
    };
    let id = "ingresses.networking.k8s.io";
    check(id, ingress(&["x", "", "y"]), &["a", "c", "x,y", "1.1.1.1", "80, 443", "5m"]);
    check(id, ingress(&["x", "y", "z", "w", ""]), &["a", "c", "x,y,z + 2 more...", "1.1.1.1", "80, 443", "5m"]);
    check(id, ingress(&["", "x", "y", "z"]), &["a", "c", "x,y,z", "1.1.1.1", "80, 443", "5m"]);
    check(id, json!({}), &["a", "<none>", "*", "", "80", "5m"]);
}

#[test]
fn other_network_types() {
    let class = |parameters: Value| json!({"spec": {"controller": "x/y", "parameters": parameters}});
    let id = "ingressclasses.networking.k8s.io";
    check(id, class(json!({"kind": "K", "name": "p"})), &["a", "x/y", "K/p", "5m"]);
    check(id, class(json!({"kind": "K", "name": "p", "apiGroup": "g.io"})), &["a", "x/y", "K.g.io/p", "5m"]);
    check(id, class(Value::Null), &["a", "x/y", "<none>", "5m"]);
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"x": "y"}}}});
    check("networkpolicies.networking.k8s.io", policy, &["a", "x=y", "5m"]);
    check("networkpolicies.networking.k8s.io", json!({"spec": {"podSelector": {}}}), &["a", "<none>", "5m"]);
    let address = json!({"spec": {"parentRef": {"resource": "Services", "namespace": "n", "name": "s"}}});
    check("ipaddresses.networking.k8s.io", address, &["a", "services/n/s", "5m"]);
    let address = json!({"spec": {"parentRef": {"group": "g.io", "resource": "gs", "name": "s"}}});
    check("ipaddresses.networking.k8s.io", address, &["a", "gs.g.io/s", "5m"]);
    check("servicecidrs.networking.k8s.io", json!({"spec": {"cidrs": ["a/8", "b/8"]}}), &["a", "a/8,b/8", "5m"]);
}

#[test]
fn volumes_and_claims() {
    let volume = json!({
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block",
        },
        "status": {"phase": "Bound"},
    });
    let expected = ["a", "5Gi", "RWO,RWX", "Delete", "Bound", "n/c", "fast", "<unset>", "", "5m", "Block"];
    check("persistentvolumes", volume, &expected);
    let bare = json!({"metadata": {"deletionTimestamp": CREATED_AT}, "spec": {"volumeAttributesClassName": "v"}, "status": {"reason": "r"}});
    let expected = ["a", "0", "", "Retain", "Terminating", "", "", "v", "r", "5m", "Filesystem"];
    check("persistentvolumes", bare, &expected);
    let claim = json!({
        "spec": {"volumeName": "v", "storageClassName": "fast"},
        "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]},
    });
    check(
        "persistentvolumeclaims",
        claim,
        &["a", "Bound", "v", "5Gi", "ROX,RWOP", "fast", "<unset>", "5m", "Filesystem"],
    );
    let old = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending", "capacity": {"storage": "5Gi"}},
    });
    check("persistentvolumeclaims", old, &["a", "Pending", "", "", "", "old", "<unset>", "5m", "Filesystem"]);
}

#[test]
fn other_storage_types() {
    let mark = |name: &str| json!({"metadata": {"annotations": {name: "true"}}, "provisioner": "p", "allowVolumeExpansion": true});
    let id = "storageclasses.storage.k8s.io";
    check(
        id,
        mark("storageclass.kubernetes.io/is-default-class"),
        &["a (default)", "p", "Delete", "Immediate", "true", "5m"],
    );
    let class = json!({"provisioner": "p", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"});
    check(id, class, &["a", "p", "Retain", "WaitForFirstConsumer", "false", "5m"]);
    check("volumeattributesclasses.storage.k8s.io", json!({"driverName": "d"}), &["a", "d", "5m"]);
    let attachment = json!({
        "spec": {"attacher": "d", "source": {"persistentVolumeName": "v"}, "nodeName": "n"}, "status": {"attached": true},
    });
    check("volumeattachments.storage.k8s.io", attachment, &["a", "d", "v", "n", "true", "5m"]);
    let driver = json!({"spec": {
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        "tokenRequests": [{"audience": "x"}, {"audience": "y"}], "requiresRepublish": true,
    }});
    let id = "csidrivers.storage.k8s.io";
    check(id, driver, &["a", "false", "true", "false", "x,y", "true", "Persistent,Ephemeral", "5m"]);
    check(id, json!({"spec": {}}), &["a", "true", "false", "false", "<unset>", "false", "Persistent", "5m"]);
    check("csinodes.storage.k8s.io", json!({"spec": {"drivers": [{}, {}]}}), &["a", "2", "5m"]);
}

#[test]
fn devices_and_claims() {
    check("deviceclasses.resource.k8s.io", json!({}), &["a", "5m"]);
    check("resourceclaimtemplates.resource.k8s.io", json!({}), &["a", "5m"]);
    let slice = json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}});
    check("resourceslices.resource.k8s.io", slice, &["a", "n", "d", "p", "5m"]);
    let claims = [
        (json!({}), "pending"),
        (json!({"allocation": {"devices": {}}}), "allocated"),
        (json!({"allocation": {"devices": {}}, "reservedFor": [{"name": "p"}]}), "allocated,reserved"),
        (json!({"reservedFor": [{"name": "p"}]}), "pending"),
    ];
    for (status, state) in claims {
        check("resourceclaims.resource.k8s.io", json!({ "status": status }), &["a", state, "5m"]);
    }
}

#[test]
fn events_say_what_happened_to_what() {
    let event = json!({
        "firstTimestamp": "2026-01-01T00:06:00Z", "lastTimestamp": "2026-01-01T00:09:00Z", "count": 4, "type": "Warning",
        "reason": "BackOff", "message": " restarting \n", "source": {"component": "kubelet", "host": "n1"},
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
    });
    let expected =
        ["60s", "Warning", "BackOff", "pod/p", "spec.containers{c}", "kubelet, n1", "restarting", "4m", "4", "a"];
    check("events", event, &expected);
    let new = json!({
        "eventTime": "2026-01-01T00:08:00.123456Z", "involvedObject": {"kind": "Node"}, "reportingComponent": "x",
        "reportingInstance": "y",
    });
    check("events", new.clone(), &["2m", "", "", "node", "", "x, y", "", "2m", "1", "a"]);
    let mut series = new;
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-01-01T00:09:30.5Z"});
    check("events", series, &["30s", "", "", "node", "", "x, y", "", "2m", "9", "a"]);
    check("events", json!({}), &["<unknown>", "", "", "", "", "", "", "<unknown>", "1", "a"]);
}

#[test]
fn what_a_cluster_keeps_about_itself() {
    check("namespaces", json!({"status": {"phase": "Active"}}), &["a", "Active", "5m"]);
    check("configmaps", json!({"data": {"x": "1", "y": "2"}, "binaryData": {"z": ""}}), &["a", "3", "5m"]);
    check("secrets", json!({"data": {"x": ""}}), &["a", "Opaque", "1", "5m"]);
    check("secrets", json!({"type": "kubernetes.io/tls"}), &["a", "kubernetes.io/tls", "0", "5m"]);
    check("serviceaccounts", json!({"secrets": [{}]}), &["a", "5m"]);
    let quota = json!({"status": {
        "hard": {"pods": "10", "limits.cpu": 4, "cpu": "2", "limits": "1"}, "used": {"pods": "3", "limits.cpu": "500m"},
    }});
    check("resourcequotas", quota, &["a", "cpu: 0/2, limits: 0/1, pods: 3/10", "limits.cpu: 500m/4", "5m"]);
    check("leases.coordination.k8s.io", json!({"spec": {"holderIdentity": "h"}}), &["a", "h", "5m"]);
    let class = json!({"value": -7, "globalDefault": true, "preemptionPolicy": "Never"});
    check("priorityclasses.scheduling.k8s.io", class, &["a", "-7", "true", "5m", "Never"]);
    check("priorityclasses.scheduling.k8s.io", json!({}), &["a", "0", "false", "5m", "PreemptLowerPriority"]);
    check("runtimeclasses.node.k8s.io", json!({"handler": "runc"}), &["a", "runc", "5m"]);
}

#[test]
fn who_may_do_what() {
    for id in ["rolebindings.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"] {
        let subject = |kind: &str, name: &str| json!({"kind": kind, "name": name, "namespace": "n"});
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [subject("User", "u"), subject("Group", "g"), subject("ServiceAccount", "s"), subject("User", "v")],
        });
        check(id, binding, &["a", "ClusterRole/view", "5m", "u, v", "g", "n/s"]);
        check(id, json!({}), &["a", "/", "5m", "", "", ""]);
    }
    for id in ["roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "limitranges"] {
        check(id, json!({}), &["a", CREATED_AT]);
        assert_eq!(definitions(&columns(id))[1]["type"], "date");
    }
    let id = "certificatesigningrequests.certificates.k8s.io";
    let request = |conditions: &[&str]| {
        let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind})).collect();
        json!({"spec": {"signerName": "x/y", "username": "u", "expirationSeconds": 3600}, "status": {"conditions": conditions, "certificate": "Zg=="}})
    };
    check(id, request(&["Approved"]), &["a", "5m", "x/y", "u", "60m", "Approved,Issued"]);
    check(id, request(&["Approved", "Denied", "Failed"]), &["a", "5m", "x/y", "u", "60m", "Denied,Failed,Issued"]);
    check(id, json!({}), &["a", "5m", "<none>", "", "<none>", "Pending"]);
}

#[test]
fn who_is_asked_before_it_is_done() {
    for id in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        check(&format!("{id}.admissionregistration.k8s.io"), json!({"webhooks": [{}, {}]}), &["a", "2", "5m"]);
    }
    let id = "validatingadmissionpolicies.admissionregistration.k8s.io";
    let policy = json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    check(id, policy, &["a", "1", "v1/ConfigMap", "5m"]);
    check(id, json!({}), &["a", "0", "<unset>", "5m"]);
    let id = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
    let binding = |params: Value| json!({"spec": {"policyName": "p", "paramRef": params}});
    check(id, binding(json!({"name": "x", "namespace": "n"})), &["a", "p", "n/x", "5m"]);
    check(id, binding(json!({"name": "x"})), &["a", "p", "*/x", "5m"]);
    check(id, binding(json!({"selector": {"matchLabels": {"x": "y"}}})), &["a", "p", "x=y", "5m"]);
    check(id, binding(Value::Null), &["a", "p", "<unset>", "5m"]);
    let id = "flowschemas.flowcontrol.apiserver.k8s.io";
    let schema = json!({
        "spec": {"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 100, "distinguisherMethod": {"type": "ByUser"}},
        "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
    });
    check(id, schema, &["a", "l", "100", "ByUser", "5m", "False"]);
    check(id, json!({}), &["a", "", "0", "<none>", "5m", "?"]);
    let id = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    let level = json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "limitResponse": {"queuing": queuing}}}});
    check(id, level, &["a", "Limited", "30", "64", "6", "50", "5m"]);
    check(id, json!({"spec": {"type": "Exempt"}}), &["a", "Exempt", "<none>", "<none>", "<none>", "<none>", "5m"]);
}

/// Goal: a row of a built-in type costs about as much as parsing its object. Method: lists and maps whose parts refer
/// to each other, as long as a body can hold.
#[test]
fn parts_that_belong_together_are_found_at_once() {
    let names = || (0..60_000).map(|number| format!("n{number}"));
    let begun = std::time::Instant::now();
    let amounts: serde_json::Map<String, Value> = names().map(|name| (name, json!("1"))).collect();
    let quota = object(json!({"status": {"hard": amounts, "used": amounts}}));
    assert!(row(&columns("resourcequotas"), quota.to_string().as_bytes()).to_string().contains("n59999: 1/1"));
    let inits: Vec<Value> = names().map(|name| json!({"name": name, "restartPolicy": "Always"})).collect();
    let reports: Vec<Value> =
        names().map(|name| json!({"name": name, "started": true, "ready": true, "restartCount": 1})).collect();
    let pod = object(json!({"spec": {"initContainers": inits}, "status": {"initContainerStatuses": reports}}));
    assert_eq!(row(&columns("pods"), pod.to_string().as_bytes())["cells"][1], "60000/60000");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
