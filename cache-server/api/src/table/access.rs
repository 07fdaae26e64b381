//! Columns of RBAC, certificates, admission, flow control and API services.

use watch_cache::form::human_duration;

use super::{
    Column, TypeColumns,
    column::{AGE, NAME, integer, text},
    created,
    json::CellJson,
    labels, name,
    row::RowWriter,
    workloads::count,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns { id: "rolebindings.rbac.authorization.k8s.io", columns: BINDING, print: role_binding },
    TypeColumns { id: "clusterrolebindings.rbac.authorization.k8s.io", columns: BINDING, print: role_binding },
    TypeColumns {
        id: "certificatesigningrequests.certificates.k8s.io",
        columns: &[
            NAME,
            AGE,
            text("SignerName", "Requested signer."),
            text("Requestor", "User who created the request."),
            text("RequestedDuration", "Requested lifetime of the certificate."),
            text("Condition", "Conditions of the request."),
        ],
        print: signing_request,
    },
    TypeColumns {
        id: "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        columns: WEBHOOKS,
        print: webhooks,
    },
    TypeColumns {
        id: "validatingwebhookconfigurations.admissionregistration.k8s.io",
        columns: WEBHOOKS,
        print: webhooks,
    },
    TypeColumns {
        id: "validatingadmissionpolicies.admissionregistration.k8s.io",
        columns: &[NAME, integer("Validations", "Number of validation rules."), PARAM_KIND, AGE],
        print: |object, row| policy(object, "validations", row),
    },
    TypeColumns {
        id: "mutatingadmissionpolicies.admissionregistration.k8s.io",
        columns: &[NAME, integer("Mutations", "Number of mutations."), PARAM_KIND, AGE],
        print: |object, row| policy(object, "mutations", row),
    },
    TypeColumns {
        id: "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        columns: POLICY_BINDING,
        print: policy_binding,
    },
    TypeColumns {
        id: "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        columns: POLICY_BINDING,
        print: policy_binding,
    },
    TypeColumns {
        id: "flowschemas.flowcontrol.apiserver.k8s.io",
        columns: &[
            NAME,
            text("PriorityLevel", "Priority level of its requests."),
            text("MatchingPrecedence", "Precedence; schemas with lower values are matched first."),
            text("DistinguisherMethod", "Attribute that distinguishes flows."),
            AGE,
            text("MissingPL", "True if the priority level does not exist."),
        ],
        print: flow_schema,
    },
    TypeColumns {
        id: "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        columns: &[
            NAME,
            text("Type", "Type of the level: Exempt or Limited."),
            text("NominalConcurrencyShares", "Share of concurrent requests."),
            text("Queues", "Number of queues for waiting requests."),
            text("HandSize", "Number of queues of one flow."),
            text("QueueLengthLimit", "Maximum number of requests in one queue."),
            AGE,
        ],
        print: priority_level,
    },
    TypeColumns {
        id: "apiservices.apiregistration.k8s.io",
        columns: &[
            NAME,
            text("Service", "Service of the API; `Local` for this server."),
            text("Available", "True if the API is available."),
            AGE,
        ],
        print: api_service,
    },
];

const BINDING: &[Column] = &[
    NAME,
    text("Role", "Role that is granted."),
    AGE,
    text("Users", "Users with this role.").wide(),
    text("Groups", "Groups with this role.").wide(),
    text("ServiceAccounts", "Service accounts with this role.").wide(),
];
const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", "Number of webhooks."), AGE];
const PARAM_KIND: Column = text("ParamKind", "Kind of the parameters.");
const POLICY_BINDING: &[Column] =
    &[NAME, text("PolicyName", "The policy it puts to work."), text("ParamRef", "That policy's parameters."), AGE];

fn role_binding(object: &CellJson<'_>, row: &mut RowWriter) {
    let role = object.get("roleRef");
    row.text(name(object)).write(format_args!("{}/{}", role.get("kind").text(), role.get("name").text()));
    row.age(created(object));
    for kind in ["User", "Group", "ServiceAccount"] {
        let subjects = object.get("subjects").items().iter().filter(|subject| subject.get("kind").text() == kind);
        let names: Vec<String> = subjects
            .map(|subject| match (kind, subject.get("name").text()) {
                ("ServiceAccount", name) => format!("{}/{name}", subject.get("namespace").text()),
                (_, name) => name.to_owned(),
            })
            .collect();
        row.text(&names.join(", "));
    }
}

fn signing_request(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    row.text(name(object)).age(created(object)).text(spec.get("signerName").text_or("<none>"));
    row.text(spec.get("username").text());
    match spec.get("expirationSeconds").as_integer() {
        Some(seconds) => row.escaped(&human_duration(seconds)),
        None => row.text("<none>"),
    };
    let says = |kind: &str| status.get("conditions").items().iter().any(|it| it.get("type").text() == kind);
    let answer = match (says("Denied"), says("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if says("Failed") { ",Failed" } else { "" };
    let issued = if status.get("certificate").text().is_empty() { "" } else { ",Issued" };
    row.write(format_args!("{answer}{failed}{issued}"));
}

fn webhooks(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object)).integer(count(object.get("webhooks"))).age(created(object));
}

fn policy(object: &CellJson<'_>, rules: &str, row: &mut RowWriter) {
    let spec = object.get("spec");
    row.text(name(object)).integer(count(spec.get(rules)));
    match spec.get("paramKind").present() {
        None => row.text("<unset>"),
        Some(kind) => row.write(format_args!("{}/{}", kind.get("apiVersion").text(), kind.get("kind").text())),
    };
    row.age(created(object));
}

fn policy_binding(object: &CellJson<'_>, row: &mut RowWriter) {
    let spec = object.get("spec");
    row.text(name(object)).text(spec.get("policyName").text());
    let params = spec.get("paramRef");
    match (params.get("name").text(), params.get("selector").present()) {
        ("", None) => row.text("<unset>"),
        ("", Some(selector)) => row.text(&labels::selector(selector)),
        (name, _) => row.write(format_args!("{}/{name}", params.get("namespace").text_or("*"))),
    };
    row.age(created(object));
}

fn flow_schema(object: &CellJson<'_>, row: &mut RowWriter) {
    let spec = object.get("spec");
    row.text(name(object)).text(spec.at("priorityLevelConfiguration.name").text());
    row.integer(spec.get("matchingPrecedence").integer());
    match spec.get("distinguisherMethod").present() {
        None => row.text("<none>"),
        Some(method) => row.text(method.get("type").text()),
    };
    let mut conditions = object.at("status.conditions").items().iter();
    let dangling = conditions.find(|condition| condition.get("type").text() == "Dangling");
    row.age(created(object)).text(dangling.map_or("?", |condition| condition.get("status").text()));
}

fn priority_level(object: &CellJson<'_>, row: &mut RowWriter) {
    let limited = object.at("spec.limited");
    let queuing = limited.at("limitResponse.queuing");
    row.text(name(object)).text(object.at("spec.type").text());
    for (holder, field) in [
        (limited, "nominalConcurrencyShares"),
        (queuing, "queues"),
        (queuing, "handSize"),
        (queuing, "queueLengthLimit"),
    ] {
        match holder.get(field).as_integer() {
            Some(number) => row.integer(number),
            None => row.text("<none>"),
        };
    }
    row.age(created(object));
}

fn api_service(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object));
    match object.at("spec.service").present() {
        None => row.text("Local"),
        Some(service) => row.write(format_args!("{}/{}", service.get("namespace").text(), service.get("name").text())),
    };
    let mut conditions = object.at("status.conditions").items().iter();
    let available = conditions.find(|condition| condition.get("type").text() == "Available");
    match available.map(|condition| (condition.get("status").text(), condition.get("reason").text())) {
        None => row.text("Unknown"),
        Some((status @ "True", _) | (status, "")) => row.text(status),
        Some((status, reason)) => row.write(format_args!("{status} ({reason})")),
    };
    row.age(created(object));
}
