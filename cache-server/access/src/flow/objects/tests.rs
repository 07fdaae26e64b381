//! Objects of all versions, and errors that name their fields.

use serde_json::json;

use super::*;

/// The two objects of a published incident: agents that listed the pods of their nodes were limited with them.
const INCIDENT: &str = r#"
- apiVersion: flowcontrol.apiserver.k8s.io/v1beta1
  kind: FlowSchema
  metadata: {name: restrict-pod-lister}
  spec:
    priorityLevelConfiguration: {name: restrict-pod-lister}
    matchingPrecedence: 1000
    distinguisherMethod: {type: ByUser}
    rules:
      - resourceRules:
          - {apiGroups: [""], namespaces: ["*"], resources: [pods], verbs: [list, get]}
        subjects:
          - {kind: ServiceAccount, serviceAccount: {name: node-agent, namespace: kube-system}}
- apiVersion: flowcontrol.apiserver.k8s.io/v1beta1
  kind: PriorityLevelConfiguration
  metadata: {name: restrict-pod-lister}
  spec:
    type: Limited
    limited:
      assuredConcurrencyShares: 5
      limitResponse:
        type: Queue
        queuing: {queues: 10, queueLengthLimit: 20, handSize: 4}
"#;

#[test]
fn objects_of_older_versions_are_converted() {
    let manifests: Vec<Value> = serde_saphyr::from_str(INCIDENT).unwrap();
    let objects: Vec<_> = manifests.iter().map(|value| FlowObject::read(value, true).unwrap()).collect();
    let [FlowObject::Schema(schema), FlowObject::Level(level)] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!((schema.precedence, schema.distinguisher), (1_000, Some(Distinguisher::User)));
    assert_eq!(level.shares, 5);
    assert_eq!((level.lendable_percent, level.borrowing_percent), (0, None));
    assert_eq!(level.response, LimitResponse::Queue(QueueSettings { queues: 10, hand_size: 4, length_limit: 20 }));
}

fn level(version: &str, limited: &Value, annotation: bool) -> Result<PriorityLevel, String> {
    let annotations =
        if annotation { json!({"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}) } else { json!({}) };
    let object = json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"type": "Limited", "limited": limited},
    });
    match FlowObject::read(&object, true) {
        Ok(FlowObject::Level(level)) => Ok(level),
        Ok(FlowObject::Schema(schema)) => panic!("{schema:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn zero_shares_mean_the_default_before_v1() {
    let reject = json!({"type": "Reject"});
    let shares = |version, field: &str, annotation| {
        level(version, &json!({field: 0, "limitResponse": reject}), annotation).unwrap().shares
    };
    assert_eq!(shares("v1", "nominalConcurrencyShares", false), 0);
    assert_eq!(shares("v1beta3", "nominalConcurrencyShares", false), 30);
    assert_eq!(shares("v1beta3", "nominalConcurrencyShares", true), 0);
    assert_eq!(shares("v1beta2", "assuredConcurrencyShares", false), 30);
    assert_eq!(level("v1", &json!({"limitResponse": reject}), false).unwrap().shares, 30);
}

#[test]
fn errors_name_the_object_and_the_field() {
    let queue = |queuing: Value| json!({"limitResponse": {"type": "Queue", "queuing": queuing}});
    let object = r#"PriorityLevelConfiguration "a": spec.limited"#;
    for (limited, error) in [
        (json!({}), ".limitResponse.type: must be Queue or Reject"),
        (json!({"limitResponse": {"type": "Queue"}}), ".limitResponse.queuing: must not be empty if type is Queue"),
        (queue(json!({"handSize": 65})), ".limitResponse.queuing.handSize: should not be greater than queues (64)"),
        (queue(json!({"handSize": -1})), ".limitResponse.queuing.handSize: must be positive"),
        (
            queue(json!({"queues": 512})),
            ".limitResponse.queuing.handSize: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60",
        ),
        (queue(json!({"queues": 10_001})), ".limitResponse.queuing.queues: must not be greater than 10000"),
        (queue(json!({"queus": 1})), ".limitResponse.queuing.queus: unknown field"),
        (
            json!({"lendablePercent": 101, "limitResponse": {"type": "Reject"}}),
            ".lendablePercent: must be between 0 and 100, inclusive",
        ),
        (json!({"assuredConcurrencyShares": 1}), ".assuredConcurrencyShares: unknown field"),
        (json!({"nominalConcurrencyShares": "1"}), ".nominalConcurrencyShares: must be a 32-bit integer"),
        (json!({"nominalConcurrencyShares": -1}), ".nominalConcurrencyShares: must be a non-negative integer"),
    ] {
        assert_eq!(level("v1", &limited, false), Err(format!("{object}{error}")));
    }
    for (queues, hand_size) in [(1, 1), (10_000, 1), (1_024, 6)] {
        let largest = queue(json!({"queues": queues, "handSize": hand_size}));
        assert!(level("v1", &largest, false).is_ok(), "{largest}");
    }
}

#[test]
fn errors_of_schemas_name_the_rule() {
    let subject = json!({"kind": "User", "user": {"name": "a"}});
    let resources = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]);
    let schema = |spec: Value| {
        let meta = json!({"name": "a"});
        let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema", "metadata": meta, "spec": spec});
        FlowObject::read(&object, true).unwrap_err().to_string()
    };
    let rule = |rule: Value| schema(json!({"priorityLevelConfiguration": {"name": "b"}, "rules": [rule]}));
    let of_subject = |subject: Value| rule(json!({"subjects": [subject], "resourceRules": resources}));
    let path = |path: &str| {
        rule(json!({"subjects": [subject], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [path]}]}))
    };
    for (error, expected) in [
        (schema(json!({})), "spec.priorityLevelConfiguration.name: must reference a priority level"),
        (schema(json!({"matchingPrecedence": -1})), "spec.matchingPrecedence: must be a positive value"),
        (schema(json!({"matchingPrecedence": 10_001})), "spec.matchingPrecedence: must not be greater than 10000"),
        (
            schema(json!({"matchingPrecedence": 1})),
            "spec.matchingPrecedence: only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (rule(json!({})), "spec.rules[0].subjects: subjects must contain at least one value"),
        (
            rule(json!({"subjects": [subject]})),
            "spec.rules[0]: at least one of resourceRules and nonResourceRules has to be non-empty",
        ),
        (of_subject(json!({"kind": "Robot"})), "spec.rules[0].subjects[0].kind: must be User, Group or ServiceAccount"),
        (
            of_subject(json!({"kind": "User", "group": {"name": "a"}})),
            "spec.rules[0].subjects[0].group: group is forbidden when subject kind is 'User'",
        ),
        (
            of_subject(json!({"kind": "ServiceAccount", "serviceAccount": {"name": "a"}})),
            "spec.rules[0].subjects[0].serviceAccount.namespace: must not be empty",
        ),
        (
            rule(json!({"subjects": [subject], "resourceRules": [{"verbs": ["*", "get"]}]})),
            "spec.rules[0].resourceRules[0].verbs: if '*' is present, must not specify other verbs",
        ),
        (path("healthz"), "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: must start with slash"),
        (path("/a*"), "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: wildcard can only do suffix matching"),
        (path("/a//b"), "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: must not contain double slash"),
    ] {
        assert_eq!(error, format!(r#"FlowSchema "a": {expected}"#));
    }
}

#[test]
fn newer_fields_of_stored_objects_are_ignored() {
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "a", "uid": "u"}, "spec": {"type": "Limited", "more": 1, "limited": {
            "limitResponse": {"type": "Reject", "queuing": null}, "newer": {}}},
    });
    let read = FlowObject::read(&object, false).unwrap();
    assert!(matches!(read, FlowObject::Level(level) if level.uid == "u"));
    assert!(FlowObject::read(&object, true).is_err());
    for wrong in
        [json!({}), json!([]), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}})]
    {
        assert!(FlowObject::read(&wrong, false).is_err());
    }
}
