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
            text("SignerName", "Who shall sign it."),
            text("Requestor", "Who asks."),
            text("RequestedDuration", "How long the certificate shall hold."),
            text("Condition", "What became of it."),
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
        columns: &[NAME, integer("Validations", "How many rules it has."), PARAM_KIND, AGE],
        print: |object, row| policy(object, "validations", row),
    },
    TypeColumns {
        id: "mutatingadmissionpolicies.admissionregistration.k8s.io",
        columns: &[NAME, integer("Mutations", "How many changes it makes."), PARAM_KIND, AGE],
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
            text("PriorityLevel", "The level its requests belong to."),
            text("MatchingPrecedence", "Lower ones are asked first."),
            text("DistinguisherMethod", "How flows are told apart."),
            AGE,
            text("MissingPL", "Whether that level does not exist."),
        ],
        print: flow_schema,
    },
    TypeColumns {
        id: "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        columns: &[
            NAME,
            text("Type", "Whether its requests are limited."),
            text("NominalConcurrencyShares", "Its share of requests at once."),
            text("Queues", "Queues for requests that wait."),
            text("HandSize", "Queues a flow is spread over."),
            text("QueueLengthLimit", "Requests a queue holds."),
            AGE,
        ],
        print: priority_level,
    },
    TypeColumns {
        id: "apiservices.apiregistration.k8s.io",
        columns: &[
            NAME,
            text("Service", "Who serves it; Local when it is this server."),
            text("Available", "Whether it is served."),
            AGE,
        ],
        print: api_service,
    },
];

const BINDING: &[Column] = &[
    NAME,
    text("Role", "What is allowed."),
    AGE,
    text("Users", "Users it is allowed to.").wide(),
    text("Groups", "Groups it is allowed to.").wide(),
    text("ServiceAccounts", "Service accounts it is allowed to.").wide(),
];
const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", "How many are asked."), AGE];
const PARAM_KIND: Column = text("ParamKind", "The kind of its parameters.");
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
