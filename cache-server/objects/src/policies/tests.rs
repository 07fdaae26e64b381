//! Policies as tables: which writes they match, what they say about one, and which of them are refused.

use std::sync::Arc;

use api_rules::{
    object::Object,
    registry::{Registry, ResourceType},
};
use serde_json::{Value, json};

use super::*;
use crate::webhooks::{AdmissionOperation, AdmissionRequest, MatchedWrites};

fn object(value: &Value) -> Object {
    value.as_object().expect("an object").clone()
}

fn ty(group: &str, version: &str, plural: &str) -> Arc<ResourceType> {
    Registry::builtin().find(group, version, plural).expect("is built in")
}

/// Calls `see` with an update of a deployment with two replicas.
fn with_request<T>(see: impl FnOnce(&AdmissionRequest<'_>) -> T) -> T {
    let deployment = |replicas: i64| {
        object(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns", "labels": {"app": "a"}}, "spec": {"replicas": replicas}}))
    };
    let (new, old, ty) = (deployment(2), deployment(1), ty("apps", "v1", "deployments"));
    see(&AdmissionRequest {
        operation: AdmissionOperation::Update,
        ty: &ty,
        subresource: "",
        kind: None,
        namespace: "ns",
        name: "d",
        object: Some(&new),
        old: Some(&old),
        options: &Object::new(),
        is_dry: false,
        user: &json!({"username": "me"}),
    })
}

#[test]
fn rules_and_selectors_match_writes() {
    let rule = |more: Value| {
        let mut rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
            "resources": ["deployments"]});
        rule.as_object_mut().expect("members").extend(object(&more));
        rule
    };
    let ours = || rule(json!({}));
    let namespace = object(&json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}));
    for (constraints, expected) in [
        (json!({"resourceRules": [ours()]}), true),
        (json!({}), false),
        (json!({"resourceRules": [rule(json!({"operations": ["CREATE"]}))]}), false),
        (json!({"resourceRules": [rule(json!({"operations": ["*"], "scope": "Namespaced"}))]}), true),
        (json!({"resourceRules": [rule(json!({"scope": "Cluster"}))]}), false),
        (json!({"resourceRules": [rule(json!({"resources": ["deployments/scale"]}))]}), false),
        (json!({"resourceRules": [rule(json!({"resourceNames": ["c", "d"]}))]}), true),
        (json!({"resourceRules": [rule(json!({"resourceNames": ["c"]}))]}), false),
        (json!({"resourceRules": [ours()], "excludeResourceRules": [ours()]}), false),
        (json!({"resourceRules": [ours()], "excludeResourceRules": [rule(json!({"resourceNames": ["c"]}))]}), true),
        (json!({"resourceRules": [ours()], "namespaceSelector": {"matchLabels": {"team": "a"}}}), true),
        (json!({"resourceRules": [ours()], "namespaceSelector": {"matchLabels": {"team": "b"}}}), false),
        (json!({"resourceRules": [ours()], "objectSelector": {"matchLabels": {"app": "a"}}}), true),
        (json!({"resourceRules": [ours()], "objectSelector": {"matchLabels": {"app": "b"}}}), false),
    ] {
        let matches = |writes: &MatchedWrites| {
            with_request(|request| {
                writes.target(request, &[]).is_some() && writes.select(request, Some(&namespace)) == Some(true)
            })
        };
        assert_eq!(matches(&MatchedWrites::of_policy(&constraints)), expected, "{constraints}");
        // Without rules, a binding is about all writes of its policy.
        let is_bare = constraints == json!({});
        assert_eq!(matches(&MatchedWrites::of_binding(&constraints)), expected || is_bare, "{constraints}");
    }
}

/// Returns what a policy says: `-`, or the code and the text of its refusal.
fn outcome(spec: &Value, parameter: &Value) -> String {
    let mut spec = spec.clone();
    spec["matchConstraints"] = json!({});
    let policy = AdmissionPolicy::read(&object(&json!({"metadata": {"name": "p"}, "spec": spec})));
    let actions = json!({"metadata": {"name": "b"}, "spec": {"validationActions": ["Deny"]}});
    let binding = PolicyBinding::read(&object(&actions));
    let namespace = object(&json!({"kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}}));
    with_request(|request| {
        let input = PolicyInput::new(request, request.ty, Some(&namespace));
        let Err(status) = policy.decide(&binding, request, &input, parameter, &mut Vec::new()) else {
            return "-".to_owned();
        };
        let start =
            "deployments.apps \"d\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
        let text = status.message.strip_prefix(start).expect("the start of a denial");
        assert_eq!(status.details.map(|details| details.causes.len()), Some(1));
        format!("{} {} {text}", status.code, status.reason.as_str())
    })
}

/// A policy with one validation.
fn validation(expression: &str, more: &Value) -> Value {
    let mut validation = object(&json!({"expression": expression}));
    validation.extend(object(more));
    json!({"validations": [validation]})
}

fn one(expression: &str) -> Value {
    validation(expression, &json!({}))
}

fn failed(expression: &str) -> String {
    format!("422 Invalid failed expression: {expression}")
}

/// An expression that fails.
const FAILING: &str = "object.none == 1";

fn error_of(expression: &str, text: &str) -> String {
    format!("422 Invalid expression '{expression}' resulted in error: {text}")
}

fn check_outcomes(rows: &[(Value, &str)]) {
    for (spec, expected) in rows {
        assert_eq!(outcome(spec, &Value::Null), *expected, "{spec}");
    }
}

#[test]
fn validations_deny() {
    check_outcomes(&[
        (one("object.spec.replicas > oldObject.spec.replicas"), "-"),
        (one("object.spec.replicas > 2"), &failed("object.spec.replicas > 2")),
        (one("request.operation == 'UPDATE' && request.userInfo.username == 'me'"), "-"),
        (one("namespaceObject.metadata.labels.team == 'a' && !has(namespaceObject.kind)"), "-"),
        (one("'text'"), &failed("'text'")),
        (one(FAILING), &error_of(FAILING, "no such key: none")),
        (one("params.x"), "422 Invalid compilation error: compilation failed: unknown name 'params'"),
        (json!({"failurePolicy": "Ignore", "validations": [{"expression": FAILING}]}), "-"),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": FAILING}, {"expression": "1 > 2"}]}),
            &failed("1 > 2"),
        ),
    ]);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params == null || object.spec.replicas <= int(params.data.max)"}]});
    for (parameter, expected) in [(Value::Null, "-"), (json!({"data": {"max": "2"}}), "-")] {
        assert_eq!(outcome(&spec, &parameter), expected);
    }
    assert!(outcome(&spec, &json!({"data": {"max": "1"}})).starts_with("422"));
}

#[test]
fn denials_have_messages_and_reasons() {
    check_outcomes(&[
        (validation("false", &json!({"message": " told \n"})), "422 Invalid told"),
        (
            validation("false", &json!({"message": "m", "messageExpression": "'got ' + object.metadata.name"})),
            "422 Invalid got d",
        ),
        // A text and a number have no sum.
        (
            validation("false", &json!({"message": "m", "messageExpression": "'got ' + object.spec.replicas"})),
            "422 Invalid m",
        ),
        (validation("false", &json!({"messageExpression": "'two\\nlines'"})), &failed("false")),
        (validation("false", &json!({"reason": "Unauthorized"})), "401 Unauthorized failed expression: false"),
        (validation("false", &json!({"reason": "Forbidden"})), "403 Forbidden failed expression: false"),
        (
            validation("false", &json!({"reason": "RequestEntityTooLarge"})),
            "413 RequestEntityTooLarge failed expression: false",
        ),
        (validation("false", &json!({"reason": "Other"})), &failed("false")),
    ]);
}

#[test]
fn variables_are_evaluated_when_they_are_read() {
    let over = |variables: &[(&str, &str)], expression: &str| {
        let variables = variables.iter().map(|(name, expression)| json!({"name": name, "expression": expression}));
        json!({"variables": variables.collect::<Vec<_>>(), "validations": [{"expression": expression}]})
    };
    let chain: Vec<_> = (0..200_usize)
        .map(|at| {
            (format!("v{at}"), at.checked_sub(1).map_or_else(|| "1".to_owned(), |at| format!("variables.v{at} + 1")))
        })
        .collect();
    let chain: Vec<_> = chain.iter().map(|(name, expression)| (&**name, &**expression)).collect();
    let composited = |text: &str| format!("composited variable \"x\" fails to {text}");
    check_outcomes(&[
        (
            over(&[("n", "object.spec.replicas"), ("odd", "variables.n % 2 == 1")], "variables.odd"),
            &failed("variables.odd"),
        ),
        (over(&[("x", FAILING)], "true || variables.x"), "-"),
        (over(&[("x", FAILING)], "variables.x"), &error_of("variables.x", &composited("evaluate: no such key: none"))),
        (
            over(&[("x", "variables.y"), ("y", "1")], "variables.x == 1"),
            &error_of("variables.x == 1", &composited("compile: unknown name 'variables'")),
        ),
        (over(&[("x", "[1]")], "has(variables.x) && [2].all(variables, variables == 2)"), "-"),
        (over(&chain, "variables.v40 == 41"), "-"),
        // Too deep.
        (over(&chain, "true || variables.v199 == 200"), "-"),
        (
            over(&[("x", "[1]"), ("y", "variables.z")], "variables.x.map(a, a + variables.y)"),
            "422 Invalid expression 'variables.x.map(a, a + variables.y)' resulted in error: \
             composited variable \"y\" fails to compile: undefined field 'z'",
        ),
    ]);
}

#[test]
fn conditions_come_first() {
    let under = |conditions: &[&str], policy: &str| {
        let named = conditions.iter().map(|expression| json!({"name": "c", "expression": expression}));
        json!({"failurePolicy": policy, "matchConditions": named.collect::<Vec<_>>(),
            "validations": [{"expression": "false"}]})
    };
    check_outcomes(&[
        (under(&["request.name == 'd'"], "Fail"), &failed("false")),
        (under(&["request.name == 'e'", FAILING], "Fail"), "-"),
        (under(&[FAILING], "Fail"), &error_of(FAILING, "no such key: none")),
        (under(&[FAILING], "Ignore"), "-"),
        (under(&["namespaceObject != null"], "Fail"), "-"),
    ]);
}

/// Goal: an expensive policy ends. Method: validations whose steps exceed the budget together, and a message for which
/// none is left.
#[test]
fn steps_are_bounded() {
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    // Some 300,000 steps.
    let long =
        format!("{digits}.all(a, {digits}.all(b, {digits}.all(c, {digits}.all(d, {digits}.all(e, a + b > -1)))))");
    let spec = |count: usize, more: &[Value]| {
        let validations = std::iter::repeat_n(json!({"expression": long}), count).chain(more.iter().cloned());
        json!({"validations": validations.collect::<Vec<_>>()})
    };
    let failed = outcome(&spec(60, &[]), &Value::Null);
    assert_eq!(
        failed,
        "422 Invalid validation failed due to running out of cost budget, no further validation rules will be run"
    );
    assert_eq!(outcome(&spec(3, &[]), &Value::Null), "-");
}

/// Checks what the refusal of a spec of a type has in it; nothing for one that is accepted.
fn check_refused(plural: &str, rows: &[(Value, &str)]) {
    for (spec, expected) in rows {
        let message = refused(plural, spec, None);
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{expected}: {message}");
        assert_eq!(refused(plural, spec, Some(spec)), "", "what is stored stays");
    }
}

fn refused(plural: &str, spec: &Value, stored: Option<&Value>) -> String {
    let of = |spec: &Value| object(&json!({"metadata": {"name": "a"}, "spec": spec}));
    let result = check(&ty(GROUP, "v1", plural), &of(spec), stored.map(of).as_ref());
    result.err().map_or_else(String::new, |status| status.message)
}

fn with(spec: &Value, more: &Value) -> Value {
    let mut spec = object(spec);
    spec.extend(object(more));
    Value::Object(spec)
}

fn policy(more: &Value) -> Value {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]);
    let good = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
    with(&good, more)
}

const PLURAL: &str = "validatingadmissionpolicies";

#[test]
fn bad_policies_are_refused() {
    let none = "spec.validations: Required value: validations or auditAnnotations must contain at least one item";
    check_refused(
        PLURAL,
        &[
            (policy(&json!({})), ""),
            (json!({}), "spec.matchConstraints: Required value"),
            (json!({}), none),
            (policy(&json!({"matchConstraints": {}})), "spec.matchConstraints.resourceRules: Required value"),
            (policy(&json!({"failurePolicy": "No"})), "spec.failurePolicy: Unsupported value: \"No\""),
            (policy(&json!({"paramKind": {"kind": "A"}})), "spec.paramKind.apiVersion: Required value"),
            (
                policy(&json!({"paramKind": {"apiVersion": "v1", "kind": "A_"}})),
                "spec.paramKind.kind: Invalid value: \"A_\"",
            ),
            (
                policy(&json!({"auditAnnotations": [{"key": "a b", "valueExpression": "'v'"}]})),
                "spec.auditAnnotations[0].key: Invalid value: \"a/a b\"",
            ),
            (
                policy(&json!({"auditAnnotations": [{"key": "a", "valueExpression": "'"}]})),
                "spec.auditAnnotations[0].valueExpression: Invalid value",
            ),
        ],
    );
}

#[test]
fn bad_expressions_are_refused() {
    let variables = |variables: &Value| policy(&json!({"variables": variables}));
    let validation = |validation: &Value| policy(&json!({"validations": [validation]}));
    check_refused(
        PLURAL,
        &[
            (
                policy(&json!({"matchConditions": [{"name": "c", "expression": "variables.x"}]})),
                "spec.matchConditions[0].expression: Invalid value: \"variables.x\": compilation failed: unknown name",
            ),
            (
                variables(&json!([{"name": "a-b", "expression": "1"}])),
                "spec.variables[0].name: Invalid value: \"a-b\": name is not a valid CEL identifier",
            ),
            (
                variables(&json!([{"name": "a", "expression": "1"}, {"name": "a", "expression": "1"}])),
                "spec.variables[1].name: Duplicate value: \"a\"",
            ),
            (
                variables(&json!([{"name": "a", "expression": " "}])),
                "spec.variables[0].expression: Required value: expression is not specified",
            ),
            (
                policy(&json!({"variables": [{"name": "a", "expression": "1"}],
                    "validations": [{"expression": "variables.b"}]})),
                "spec.validations[0].expression: Invalid value: \"variables.b\": compilation failed: undefined field 'b'",
            ),
            (validation(&json!({"expression": "params != null"})), "compilation failed: unknown name 'params'"),
            (
                validation(&json!({"expression": "authorizer.path('/').check('get').allowed()"})),
                "compilation failed: unknown name 'authorizer'",
            ),
            (
                validation(&json!({"expression": "true", "message": "a\nb"})),
                "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            ),
            (
                validation(&json!({"expression": "true", "reason": "No"})),
                "spec.validations[0].reason: Unsupported value: \"No\"",
            ),
        ],
    );
    let unknown = "[1].sort() == [1]";
    let (stored, next) =
        (validation(&json!({"expression": unknown})), validation(&json!({"expression": unknown, "message": "m"})));
    assert!(refused(PLURAL, &next, None).contains("unknown function 'sort'"));
    assert_eq!(refused(PLURAL, &next, Some(&stored)), "");
}

#[test]
fn bad_bindings_are_refused() {
    let bound = |more: &Value| with(&json!({"policyName": "p", "validationActions": ["Deny"]}), more);
    check_refused(
        "validatingadmissionpolicybindings",
        &[
            (bound(&json!({})), ""),
            (bound(&json!({"policyName": ""})), "spec.policyName: Required value"),
            (bound(&json!({"validationActions": []})), "spec.validationActions: Required value"),
            (bound(&json!({"validationActions": ["Deny", "Warn"]})), "must not contain both Deny and Warn"),
            (
                bound(&json!({"validationActions": ["Deny", "Deny"]})),
                "spec.validationActions[1]: Duplicate value: \"Deny\"",
            ),
            (bound(&json!({"validationActions": ["No"]})), "spec.validationActions[0]: Unsupported value: \"No\""),
            (
                bound(&json!({"paramRef": {}})),
                "spec.paramRef: Required value: one of name or selector must be specified",
            ),
            (bound(&json!({"paramRef": {"name": "a"}})), "spec.paramRef.parameterNotFoundAction: Required value"),
            (
                bound(&json!({"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}})),
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            ),
            (
                bound(&json!({"matchResources": {"resourceRules": [{}]}})),
                "spec.matchResources.resourceRules[0].operations: Required value",
            ),
        ],
    );
}
