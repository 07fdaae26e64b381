//! ValidatingAdmissionPolicies of a server that acts as a cluster.

use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::{namespace, pod},
};

use super::{
    CONFIGMAPS, DEPLOYMENTS, PODS, allows, client, configuration, configure, hook::Hook, named, start, webhook,
};

pub(super) const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A policy for all writes of `resources`. `more` replaces and adds members of its spec.
pub(super) fn policy(name: &str, resources: &[&str], more: &Value) -> Value {
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}});
    for (member, value) in more.as_object().expect("members") {
        spec[member] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec})
}

/// Stores a policy with one validation, and a binding `b-NAME` of it.
pub(super) async fn enforce(client: &Client, name: &str, resources: &[&str], expression: &str, binding: &Value) {
    let policy = policy(name, resources, &json!({"validations": [{"expression": expression}]}));
    client.post(POLICIES, &policy).await.with_code(201);
    bind(client, name, binding).await.with_code(201);
}

pub(super) async fn bind(client: &Client, policy: &str, more: &Value) -> Answer {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    for (member, value) in more.as_object().expect("members") {
        spec[member] = value.clone();
    }
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("b-{policy}")}, "spec": spec});
    client.post(BINDINGS, &binding).await
}

/// The message of a denial by a policy.
fn denied(object: &str, policy: &str, why: &str) -> String {
    format!(
        "{object} is forbidden: ValidatingAdmissionPolicy '{policy}' with binding 'b-{policy}' denied request: {why}"
    )
}

fn workload(kind: &str, name: &str, replicas: u64) -> Value {
    let labels = json!({"app": "a"});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// Goal: the policies of Kubernetes' conformance cases decide here as there: "should validate against a Deployment",
/// and "should allow expressions to refer variables". Method: their policies, in a labelled namespace.
#[tokio::test]
async fn conformance_policies_decide() {
    let (api, _) = start().await;
    let more = |validations: Value, variables: Value| {
        let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["deployments"]}]);
        let constraints = json!({"namespaceSelector": {"matchLabels": {"unique": "true"}}, "resourceRules": rules});
        json!({"matchConstraints": constraints, "validations": validations, "variables": variables})
    };
    let replicas = json!([{"expression": "object.spec.replicas > 1",
        "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"}]);
    let odd = json!([{"expression": "variables.replicas > 1"}, {"expression": "variables.oddReplicas"}]);
    let variables = json!([{"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"}]);
    for (more, why, good) in [
        (more(replicas, json!([])), "failed expression: object.spec.replicas > 1", 2),
        (more(odd, variables), "failed expression: variables.replicas > 1", 3),
    ] {
        let fork = api.fork();
        let client = client(&fork);
        client.create(&namespace("ns").label("unique", "true")).await;
        client.post(POLICIES, &policy("p", &[], &more)).await.with_code(201);
        let deployments = "/apis/apps/v1/namespaces/ns/deployments";
        client.post(deployments, &workload("Deployment", "unbound", 1)).await.with_code(201);
        let binding = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"unique": "true"}}}});
        bind(&client, "p", &binding).await.with_code(201);
        let refused = client.post(deployments, &workload("Deployment", "marker", 1)).await.with_code(422);
        let message = denied("deployments.apps \"marker\"", "p", why);
        assert_eq!(refused.message(), message);
        let status = refused.json();
        let cause = message.split_once("is forbidden: ").map(|(_, cause)| json!([{"message": cause}]));
        assert_eq!((&status["reason"], status["details"].get("causes")), (&json!("Invalid"), cause.as_ref()));
        client.post(deployments, &workload("Deployment", "replicated", good)).await.with_code(201);
        let sets = "/apis/apps/v1/namespaces/ns/replicasets";
        client.post(sets, &workload("ReplicaSet", "non-replicated", 1)).await.with_code(201);
        client.post(DEPLOYMENTS, &workload("Deployment", "elsewhere", 1)).await.with_code(201);
    }
}

fn limit(name: &str, max: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"limits": "true"}},
        "data": {"max": max}})
}

/// Stores policies about replicas with parameters of three kinds, one of which does not exist, and parameters.
async fn store_limits(client: &Client) {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "maxima.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "maxima", "kind": "Maximum"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"max": {"type": "integer"}}}}}]}});
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
    let limits = |name: &str, version: &str, kind: &str, max: &str| {
        let validation = json!({"expression": format!("object.spec.replicas <= {max}"),
            "messageExpression": "'over the limit of ' + params.metadata.name", "reason": "Forbidden"});
        let kind = json!({"apiVersion": version, "kind": kind});
        policy(name, &["deployments"], &json!({"paramKind": kind, "validations": [validation]}))
    };
    let config = limits("config", "v1", "ConfigMap", "int(params.data.max)");
    client.post(POLICIES, &config).await.with_code(201);
    client.post(POLICIES, &limits("custom", "example.com/v1", "Maximum", "params.max")).await.with_code(201);
    client.post(POLICIES, &limits("none", "example.com/v1", "None", "1")).await.with_code(201);
    client.post(CONFIGMAPS, &limit("wide", "5")).await.with_code(201);
    client.post(CONFIGMAPS, &limit("close", "2")).await.with_code(201);
    client
        .post(
            "/apis/example.com/v1/maxima",
            &json!({"apiVersion": "example.com/v1", "kind": "Maximum",
        "metadata": {"name": "most"}, "max": 3}),
        )
        .await
        .with_code(201);
}

/// Goal: parameters of any type are read as they are stored. Method: limits in ConfigMaps by name and by labels, and in
/// a custom resource, under all rules about a parameter that is missing.
#[tokio::test]
async fn parameters_configure_policies() {
    let (_api, client) = start().await;
    store_limits(&client).await;
    let over = |limit: &str| format!("over the limit of {limit}");
    let configured = |what: &str, why: &str| format!("failed to configure {what}: {why}");
    let missing = "no params found for policy binding with `Deny` parameterNotFoundAction";
    let selector = json!({"selector": {"matchLabels": {"limits": "true"}}});
    let nothing = json!({"selector": {"matchLabels": {"limits": "false"}}});
    for (policy, reference, action, expected) in [
        ("config", json!({"name": "wide"}), "Deny", String::new()),
        ("config", json!({"name": "close"}), "Deny", over("close")),
        ("config", json!({"name": "close", "namespace": "default"}), "Deny", over("close")),
        ("config", selector, "Deny", over("close")),
        ("config", json!({"name": "other"}), "Allow", String::new()),
        ("config", json!({"name": "other"}), "Deny", configured("binding", missing)),
        ("config", nothing, "Deny", configured("binding", missing)),
        ("custom", json!({"name": "most"}), "Deny", over("most")),
        (
            "custom",
            json!({"name": "most", "namespace": "default"}),
            "Deny",
            configured("binding", "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        ),
        (
            "none",
            json!({"name": "a"}),
            "Deny",
            configured("policy", "failed to find resource referenced by paramKind: 'example.com/v1, Kind=None'"),
        ),
    ] {
        let mut reference = reference;
        reference["parameterNotFoundAction"] = action.into();
        bind(&client, policy, &json!({"paramRef": reference})).await.with_code(201);
        let dry = format!("{DEPLOYMENTS}?dryRun=All");
        let answer = client.post(&dry, &workload("Deployment", "d", 4)).await;
        assert_eq!(
            answer.code.as_u16(),
            match &*expected {
                "" => 201,
                text if text.starts_with("over") => 403,
                _ => 422,
            },
            "{reference}: {}",
            answer.text()
        );
        assert!(answer.text().contains(&expected), "{reference}: {}", answer.text());
        client.delete(&format!("{BINDINGS}/b-{policy}")).await.with_code(200);
    }
    // The next write sees a parameter that changed.
    bind(&client, "config", &json!({"paramRef": {"name": "close", "parameterNotFoundAction": "Deny"}}))
        .await
        .with_code(201);
    client.post(DEPLOYMENTS, &workload("Deployment", "d", 4)).await.with_code(403);
    client.put(&format!("{CONFIGMAPS}/close"), &limit("close", "4")).await.with_code(200);
    client.post(DEPLOYMENTS, &workload("Deployment", "d", 4)).await.with_code(201);
}

/// Goal: each way to write asks policies, before webhooks. Method: a policy for each kind of write, with a webhook that
/// must not be asked.
#[tokio::test]
async fn every_write_asks_policies() {
    let (_api, client) = start().await;
    let hook = Hook::start(|_, _| allows()).await;
    for name in ["a", "keep"] {
        client.post(CONFIGMAPS, &named(name)).await.with_code(201);
    }
    client.create(&pod("p")).await;
    client.post(DEPLOYMENTS, &workload("Deployment", "d", 1)).await.with_code(201);
    configure(&client, "Validating", "x", &[webhook(&hook, "x", &["*/*"], &json!({}))]).await.with_code(201);
    let none = json!({});
    enforce(&client, "grow", &["configmaps"], "oldObject == null || object == null || has(object.data)", &none).await;
    enforce(&client, "keep", &["configmaps"], "object != null || oldObject.metadata.name != 'keep'", &none).await;
    enforce(&client, "scale", &["deployments/scale"], "object.kind == 'Scale' && object.spec.replicas < 3", &none)
        .await;
    enforce(&client, "evict", &["pods/eviction"], "request.subResource != 'eviction'", &none).await;
    let failed = |object: &str, policy: &str, expression: &str| {
        denied(object, policy, &format!("failed expression: {expression}"))
    };
    let path = format!("{CONFIGMAPS}/a");
    let label = json!({"metadata": {"labels": {"l": "v"}}});
    let refused = client.patch(&path, MERGE_PATCH, &label).await.with_code(422);
    let grow = "oldObject == null || object == null || has(object.data)";
    assert_eq!(refused.message(), failed("configmaps \"a\"", "grow", grow));
    client.patch(&format!("{path}?dryRun=All"), MERGE_PATCH, &label).await.with_code(422);
    let keep = "object != null || oldObject.metadata.name != 'keep'";
    let refused = client.delete(&format!("{CONFIGMAPS}/keep")).await.with_code(422);
    assert_eq!(refused.message(), failed("configmaps \"keep\"", "keep", keep));
    let scale = format!("{DEPLOYMENTS}/d/scale");
    client.patch(&scale, MERGE_PATCH, &json!({"spec": {"replicas": 3}})).await.with_code(422);
    let metadata = json!({"name": "p", "namespace": "default"});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
    let refused = client.post(&format!("{PODS}/p/eviction"), &eviction).await.with_code(422);
    assert_eq!(refused.message(), failed("pods \"p\"", "evict", "request.subResource != 'eviction'"));
    assert_eq!(hook.seen().len(), 0);
    client.patch(&scale, MERGE_PATCH, &json!({"spec": {"replicas": 2}})).await.with_code(200);
    client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
    client.delete(&path).await.with_code(200);
    client.delete(CONFIGMAPS).await.with_code(422);
    assert_eq!(hook.seen().len(), 3);
    client.get(&format!("{CONFIGMAPS}/keep")).await.with_code(200);
}

/// Goal: the action of a binding and the failure policy decide what follows. Method: warnings, an action without effect
/// here, and an expression that fails.
#[tokio::test]
async fn bindings_warn_and_failures_are_ignored() {
    let (api, _) = start().await;
    let failing = "object.none == 1";
    for (expression, policy_of_failure, action, code, warning) in [
        ("false", "Fail", "Warn", 201, "failed expression: false"),
        ("false", "Fail", "Audit", 201, ""),
        ("false", "Ignore", "Deny", 422, ""),
        (failing, "Fail", "Deny", 422, ""),
        (failing, "Ignore", "Deny", 201, ""),
        (failing, "Fail", "Warn", 201, "expression 'object.none == 1' resulted in error: no such key: none"),
    ] {
        let fork = api.fork();
        let client = client(&fork);
        let more = json!({"failurePolicy": policy_of_failure, "validations": [{"expression": expression}]});
        client.post(POLICIES, &policy("p", &["configmaps"], &more)).await.with_code(201);
        bind(&client, "p", &json!({"validationActions": [action]})).await.with_code(201);
        let answer = client.post(CONFIGMAPS, &named("a")).await.with_code(code);
        let start = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b-p'";
        let expected = if warning.is_empty() { String::new() } else { format!("299 - \"{start}: {warning}\"") };
        assert_eq!(answer.header("warning"), expected);
    }
}

/// Goal: policies cannot guard themselves, but configurations of webhooks; a fork has its own. Method: a policy that
/// denies everything, changed in a fork.
#[tokio::test]
async fn policies_are_exempt_and_belong_to_a_fork() {
    let (api, origin) = start().await;
    enforce(&origin, "all", &["*/*"], "false", &json!({})).await;
    origin.post(CONFIGMAPS, &named("a")).await.with_code(422);
    let (path, hooks) = configuration("Validating", "x", &[]);
    origin.post(&path, &hooks).await.with_code(422);
    let fork = api.fork();
    let of_fork = client(&fork);
    of_fork.post(CONFIGMAPS, &named("a")).await.with_code(422);
    let only_pods = policy("all", &["pods"], &json!({"validations": [{"expression": "false"}]}));
    of_fork.patch(&format!("{POLICIES}/all"), MERGE_PATCH, &only_pods).await.with_code(200);
    of_fork.post(CONFIGMAPS, &named("a")).await.with_code(201);
    of_fork.post(PODS, pod("p").body()).await.with_code(422);
    of_fork.delete(&format!("{POLICIES}/all")).await.with_code(200);
    of_fork.post(PODS, pod("p").body()).await.with_code(201);
    origin.post(CONFIGMAPS, &named("a")).await.with_code(422);
}

/// Goal: policies and bindings that kube-apiserver refuses are refused, and a status is stored without a look at the
/// rest.
#[tokio::test]
async fn bad_policies_are_refused() {
    let (_api, client) = start().await;
    let refused = client.post(POLICIES, &policy("p", &["pods"], &json!({}))).await.with_code(422);
    let why = "Required value: validations or auditAnnotations must contain at least one item";
    assert_eq!(
        refused.message(),
        format!(
            "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: [spec.validations: {why}, \
             spec.auditAnnotations: {why}]"
        )
    );
    let validations = |expression: &str| json!({"validations": [{"expression": expression}]});
    let refused = client.post(POLICIES, &policy("p", &["pods"], &validations("1 +"))).await.with_code(422);
    assert!(refused.message().contains("spec.validations[0].expression: Invalid value: \"1 +\": compilation failed"));
    client.post(POLICIES, &policy("p", &["pods"], &validations("true"))).await.with_code(201);
    let path = format!("{POLICIES}/p");
    client.patch(&path, MERGE_PATCH, &json!({"spec": validations("variables.x")})).await.with_code(422);
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await.with_code(200);
    let status = json!({"status": {"observedGeneration": 1}});
    client.patch(&format!("{path}/status"), MERGE_PATCH, &status).await.with_code(200);
    let refused = bind(&client, "p", &json!({"validationActions": ["Deny", "Warn"]})).await.with_code(422);
    assert!(refused.message().contains("must not contain both Deny and Warn"), "{}", refused.message());
}
