//! Tables of rules, requests and wrong policies.

use informer_serving::query::Query;

use super::*;

fn parse(rules: &str) -> Result<AuditPolicy, String> {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    AuditPolicy::parse(&text).map_err(|error| error.to_string())
}

/// Returns the decision about a request of `alice`, a member of `devs`.
fn decide(policy: &AuditPolicy, request: &str) -> AuditDecision {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let info = RequestInfo::new(method, path, &Query::parse(Some(query)));
    policy.decide(Some(&User::authenticated("alice", ["devs".to_owned()])), &info)
}

/// A rule, a request, and true if kube-apiserver's rule matches it.
const MATCHES: &[(&str, &str, bool)] = &[
    ("", "GET /healthz", true),
    ("", "GET /api/v1/pods", true),
    ("users: [alice]", "GET /api/v1/pods", true),
    ("users: [bob]", "GET /api/v1/pods", false),
    ("userGroups: [devs, others]", "GET /api/v1/pods", true),
    ("userGroups: [system:authenticated]", "GET /api/v1/pods", true),
    ("userGroups: [system:masters]", "GET /api/v1/pods", false),
    ("verbs: [list]", "GET /api/v1/pods", true),
    ("verbs: [get]", "GET /api/v1/pods", false),
    ("verbs: [get]", "GET /healthz", true),
    ("verbs: [watch]", "GET /api/v1/pods?watch=1", true),
    ("verbs: ['*']", "GET /api/v1/pods", false),
    ("namespaces: [a]", "GET /api/v1/namespaces/a/pods", true),
    ("namespaces: [a]", "GET /api/v1/namespaces/b/pods", false),
    ("namespaces: ['']", "GET /api/v1/nodes/n", true),
    ("namespaces: ['']", "GET /healthz", false),
    ("resources: [{group: ''}]", "GET /api/v1/pods", true),
    ("resources: [{group: ''}]", "GET /apis/apps/v1/deployments", false),
    ("resources: [{group: apps, resources: [deployments]}]", "GET /apis/apps/v1/deployments", true),
    (
        "resources: [{group: apps, resources: [deployments]}]",
        "PUT /apis/apps/v1/namespaces/a/deployments/b/scale",
        false,
    ),
    (
        "resources: [{group: apps, resources: [deployments/scale]}]",
        "PUT /apis/apps/v1/namespaces/a/deployments/b/scale",
        true,
    ),
    ("resources: [{group: apps, resources: ['*/scale']}]", "PUT /apis/apps/v1/namespaces/a/deployments/b/scale", true),
    ("resources: [{group: apps, resources: ['*/scale']}]", "PUT /apis/apps/v1/namespaces/a/deployments/b", false),
    (
        "resources: [{group: apps, resources: ['*/status']}]",
        "PUT /apis/apps/v1/namespaces/a/deployments/b/scale",
        false,
    ),
    ("resources: [{group: apps, resources: [deployments/status]}]", "GET /apis/apps/v1/deployments", false),
    (
        "resources: [{group: apps, resources: [deployments/status]}]",
        "PUT /apis/apps/v1/namespaces/a/deployments/b/scale",
        false,
    ),
    (
        "resources: [{group: apps, resources: ['deployments/*']}]",
        "PUT /apis/apps/v1/namespaces/a/deployments/b/scale",
        true,
    ),
    ("resources: [{group: apps, resources: ['deployments/*']}]", "PUT /apis/apps/v1/namespaces/a/deployments/b", true),
    ("resources: [{group: apps, resources: ['*']}]", "PUT /apis/apps/v1/namespaces/a/deployments/b/scale", true),
    ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", "GET /api/v1/namespaces/a/pods/x", true),
    ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", "GET /api/v1/namespaces/a/pods/y", false),
    ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", "GET /api/v1/pods", false),
    ("nonResourceURLs: ['/healthz*']", "GET /healthz/ping", true),
    ("nonResourceURLs: ['/healthz']", "GET /healthz/ping", false),
    ("nonResourceURLs: ['*']", "GET /version", true),
    ("nonResourceURLs: ['*']", "GET /api/v1/pods", false),
    ("nonResourceURLs: ['/api*']", "GET /api/v1/pods", false),
];

/// Goal: a rule matches the requests that kube-apiserver's matches. Method: [`MATCHES`].
#[test]
fn rules_match_as_in_kube_apiserver() {
    for &(rule, request, matches) in MATCHES {
        let rule = if rule.is_empty() { String::new() } else { format!(", {rule}") };
        let policy =
            parse(&format!("rules: [{{level: Metadata{rule}}}]")).unwrap_or_else(|error| panic!("{rule}: {error}"));
        let expected = if matches { AuditLevel::Metadata } else { AuditLevel::None };
        assert_eq!(decide(&policy, request).level, expected, "{rule}: {request}");
    }
}

#[test]
fn the_first_rule_counts() {
    let policy = parse(
        "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: None, verbs: [list]}\n- {level: Request, \
         verbs: [create], omitStages: [Panic], omitManagedFields: false}\n- {level: RequestResponse}\n",
    )
    .unwrap();
    assert_eq!(decide(&policy, "GET /api/v1/pods").level, AuditLevel::None);
    let create = decide(&policy, "POST /api/v1/namespaces/a/pods");
    assert_eq!((create.level, create.omits_managed_fields), (AuditLevel::Request, false));
    assert!(create.omitted.contains(AuditStage::RequestReceived) && create.omitted.contains(AuditStage::Panic));
    let rest = decide(&policy, "GET /healthz");
    assert_eq!((rest.level, rest.omits_managed_fields), (AuditLevel::RequestResponse, true));
    assert!(rest.omitted.contains(AuditStage::RequestReceived) && !rest.omitted.contains(AuditStage::Panic));
    let info = RequestInfo::new("GET", "/api/v1/pods", &Query::default());
    let of_users = parse("rules: [{level: Metadata, userGroups: [devs]}]").unwrap();
    assert_eq!(of_users.decide(None, &info).level, AuditLevel::None, "rules with groups need a user");
    assert_eq!(AuditPolicy::metadata().decide(None, &info).level, AuditLevel::Metadata);
}

/// Goal: an operator finds the wrong line. Method: a table of policies and errors, each with the rule's place.
#[test]
fn wrong_policies_name_the_rule() {
    for (rules, error) in [
        ("rules: []", "rules: Required value: a policy without rules records nothing"),
        ("", "rules: Required value: a policy without rules records nothing"),
        ("rules: [{verbs: [get]}]", "rules[0].level: Required value"),
        (
            "rules: [{level: None}, {level: metadata}]",
            "rules[1].level: Unsupported value: \"metadata\": supported values: \"None\", \"Metadata\", \"Request\", \
             \"RequestResponse\"",
        ),
        (
            "rules: [{level: None, omitStages: [Panic, Over]}]",
            "rules[0].omitStages[1]: Invalid value: \"Over\": allowed stages are \
             RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
        (
            "omitStages: [x]\nrules: [{level: None}]",
            "omitStages[0]: Invalid value: \"x\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [healthz, '/a*b', '']}]",
            "rules[0].nonResourceURLs[0]: Invalid value: \"healthz\": non-resource URL rules must begin with a '/' \
             character; rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the \
             final character of the rule; rules[0].nonResourceURLs[2]: Invalid value: \"\": non-resource URL rules must \
             begin with a '/' character",
        ),
        (
            "rules: [{level: None, nonResourceURLs: ['*'], namespaces: [a]}]",
            "rules[0].nonResourceURLs: Invalid value: rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            "rules: [{level: None, resources: [{group: ''}, {group: apps/v1}]}]",
            "rules[0].resources[1].group: Invalid value: \"apps/v1\": must be an API group without its version",
        ),
        (
            "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]",
            "rules[0].resources[0].resourceNames: Invalid value: needs at least one resource",
        ),
        ("rules: [{level: None, resourcenames: [a]}]", "rules[0]: unknown field `resourcenames`, expected one of"),
        ("rules: [{level: None, verbs: get}]", "rules[0]: invalid type: string \"get\", expected a sequence"),
        ("rules: [{level: None}]\nomitstages: []", "unknown field `omitstages`"),
    ] {
        let refused = parse(rules).expect_err(rules);
        assert!(refused.starts_with(error), "{rules}: {refused}");
    }
    for text in ["", "kind: Policy\nrules: [{level: None}]", "apiVersion: audit.k8s.io/v1beta1\nkind: Policy", "{"] {
        assert!(AuditPolicy::parse(text).is_err(), "{text}");
    }
    let error = AuditPolicy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n").unwrap_err().to_string();
    assert_eq!(error, "apiVersion \"audit.k8s.io/v1beta1\", kind \"Policy\": must be audit.k8s.io/v1, Policy");
}
