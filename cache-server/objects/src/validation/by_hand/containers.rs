//! Containers: their ports, environment, mounts, probes and rights.
//!
//! Source: `validateContainerCommon` and what it calls in `pkg/apis/core/validation/validation.go`.

use std::collections::HashSet;

use api_rules::registry::NameRule;
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValidationTable, ValueCheck, checks, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "container_ports" => container_ports,
        "env_source" => env_source,
        "env_from" => env_from,
        "mounts" => mounts,
        "devices" => devices,
        "escalation" => escalation,
        "resize" => resize,
        "probe_handler" => |found, probe, _| handler(found, probe, None, &PROBE_HANDLERS),
        "probe_grace" => probe_grace,
        "headers" => headers,
        _ => return None,
    })
}

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const LIFECYCLE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks the protocol of a port. It has a default.
pub(super) fn protocol(found: &mut FoundCauses, port: &Place<'_>) {
    let protocol = port.member("protocol");
    if protocol.is_empty() {
        found.required(&protocol, "");
    } else if !PROTOCOLS.contains(&protocol.text()) {
        found.unsupported(&protocol, &PROTOCOLS);
    }
}

fn container_ports(found: &mut FoundCauses, ports: &Place<'_>, _: &RowArguments) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.member("name");
        if !name.is_empty() {
            let refused = texts::port_name(name.text());
            if refused.is_empty() && !names.insert(port.str("name")) {
                found.duplicate(&name);
            }
            found.refuse(&name, &refused);
        }
        let number = port.member("containerPort");
        if number.is_empty() {
            found.required(&number, "");
        } else {
            checks::port(found, &number);
        }
        let host = port.member("hostPort");
        if !host.is_empty() {
            checks::port(found, &host);
        }
        protocol(found, &port);
    }
}

/// Refuses ports of the node that two ports of containers claim.
pub(super) fn host_port_conflicts<'a>(found: &mut FoundCauses, containers: impl Iterator<Item = Place<'a>>) {
    let mut seen = HashSet::new();
    for container in containers {
        let claims = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        for (port, claim) in container.member("ports").items().zip(claims) {
            let host = port.member("hostPort");
            let Some(number) = host.int().filter(|number| *number != 0) else { continue };
            let text = |name: &str| claim.get(name).and_then(Value::as_str).unwrap_or_default();
            let (protocol, ip) = (text("protocol"), text("hostIP"));
            if !seen.insert((protocol, ip, number)) {
                found.duplicate_as(&host, ShownValue::Text(&format!("{protocol}/{ip}/{number}")));
            }
        }
    }
}

const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that are known, and not for the environment.
const OTHER_FIELDS: [&str; 6] = [
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "spec.host",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn env_source(found: &mut FoundCauses, variable: &Place<'_>, _: &RowArguments) {
    let from = variable.member("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut sources = 0;
    for (member, check) in [
        ("fieldRef", (|found, place| field(found, place, &POD_FIELDS)) as fn(&mut FoundCauses, &Place<'_>)),
        ("resourceFieldRef", |found, place| resource_field(found, place, false)),
        ("configMapKeyRef", |found, place| ValidationTable::get().run_named("KeySelector", place, found)),
        ("secretKeyRef", |found, place| ValidationTable::get().run_named("KeySelector", place, found)),
        ("fileKeyRef", |_, _| {}),
    ] {
        let source = from.member(member);
        if source.is_set() {
            sources += 1;
            check(found, &source);
        }
    }
    let why = if sources == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !variable.str("value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if sources > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    found.invalid_as(&from, ShownValue::Text(""), why);
}

/// A field of the pod: `validateObjectFieldSelector`.
pub(super) fn field(found: &mut FoundCauses, reference: &Place<'_>, allowed: &[&str]) {
    let path = reference.member("fieldPath");
    let text = path.text();
    if text.is_empty() {
        return found.required(&path, "");
    }
    let subscript = text.split_once("['").and_then(|(name, rest)| Some((name, rest.strip_suffix("']")?)));
    if let Some((name, key)) = subscript {
        match name {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                found.refuse_as(reference, &key, &texts::qualified(&key));
            }
            "metadata.labels" => found.refuse_as(reference, key, &texts::qualified(key)),
            _ => {
                let why = format!("error converting fieldPath: field label does not support subscript: {text}");
                found.invalid(&path, &why);
            }
        }
    } else if !POD_FIELDS.contains(&text) && !OTHER_FIELDS.contains(&text) {
        found.invalid(&path, &format!("error converting fieldPath: field label not supported: {text}"));
    } else if !allowed.contains(&text) {
        found.unsupported(&path, allowed);
    }
}

/// A resource of a container: `validateContainerResourceFieldSelector`.
pub(super) fn resource_field(found: &mut FoundCauses, reference: &Place<'_>, is_volume: bool) {
    let (container, resource) = (reference.member("containerName"), reference.member("resource"));
    let is_page = ["limits.hugepages-", "requests.hugepages-"].iter().any(|pages| resource.text().starts_with(pages));
    if is_volume && container.is_empty() {
        found.required(&container, "");
    } else if resource.is_empty() {
        found.required(&resource, "");
    } else if !RESOURCES.contains(&resource.text()) && !is_page {
        found.unsupported(&resource, &RESOURCES);
    }
}

fn env_from(found: &mut FoundCauses, list: &Place<'_>, _: &RowArguments) {
    for from in list.items() {
        let prefix = from.member("prefix");
        if !prefix.is_empty() {
            found.refuse(&prefix, &texts::variable(prefix.text()));
        }
        let mut sources = 0;
        for source in ["configMapRef", "secretRef"].map(|member| from.member(member)) {
            if source.is_set() {
                sources += 1;
                name(found, &source.member("name"));
            }
        }
        if sources == 0 {
            found.invalid_as(list, ShownValue::Text(""), "must specify one of: `configMapRef` or `secretRef`");
        } else if sources > 1 {
            found.invalid_as(list, ShownValue::Text(""), "may not have more than one field specified at a time");
        }
    }
}

/// The name of another object. It may end with a dash, as the base of a generated name does.
fn name(found: &mut FoundCauses, name: &Place<'_>) {
    if name.is_empty() {
        found.required(name, "");
    } else {
        found.refuse(name, &NameRule::Subdomain.refuse_base(name.text()));
    }
}

fn mounts(found: &mut FoundCauses, container: &Place<'_>, _: &RowArguments) {
    let (list, devices) = (container.member("volumeMounts"), container.member("volumeDevices"));
    let device_names: HashSet<&str> = devices.items().map(|device| device.str("name")).collect();
    let device_paths: HashSet<&str> = devices.items().map(|device| device.str("devicePath")).collect();
    let mut paths = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.member("name"), mount.member("mountPath"));
        if name.is_empty() {
            found.required(&name, "");
        }
        if !found.volumes.contains_key(name.text()) {
            found.not_found(&name);
        }
        if path.is_empty() {
            found.required(&path, "");
        }
        if !paths.insert(mount.str("mountPath")) {
            found.invalid(&path, "must be unique");
        }
        if device_names.contains(name.text()) {
            found.invalid(&name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            found.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        mount_details(found, &list, &mount, container);
    }
}

/// Causes in the details of a mount name the list.
fn mount_details(found: &mut FoundCauses, list: &Place<'_>, mount: &Place<'_>, container: &Place<'_>) {
    let (path, expression) = (mount.member("subPath"), mount.member("subPathExpr"));
    if !path.is_empty() {
        checks::relative_path(found, &list.renamed("subPath", path.value));
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            found.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
        }
        checks::relative_path(found, &list.renamed("subPathExpr", expression.value));
    }
    let propagation = mount.member("mountPropagation");
    if propagation.is_set() {
        let place = list.renamed("mountPropagation", propagation.value);
        let known = ["Bidirectional", "HostToContainer", "None"];
        if !known.contains(&propagation.text()) {
            found.unsupported(&place, &known);
        }
        if propagation.text() == "Bidirectional" && !container.member("securityContext").is_true("privileged") {
            found.forbidden(&place, "Bidirectional mount propagation is available only to privileged containers");
        }
    }
}

fn devices(found: &mut FoundCauses, container: &Place<'_>, _: &RowArguments) {
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.member("volumeDevices").items() {
        let (name, path) = (device.member("name"), device.member("devicePath"));
        if name.is_empty() {
            found.required(&name, "");
        }
        if !names.insert(device.str("name")) {
            found.invalid(&name, "must be unique");
        }
        match found.volumes.get(name.text()) {
            Some(true) => {}
            Some(false) => found
                .invalid(&name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
            None => found.not_found(&name),
        }
        if path.is_empty() {
            found.required(&path, "");
        }
        if paths.contains(path.text()) {
            found.invalid(&path, "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            found.invalid(&path, "can not contain backsteps ('..')");
        } else {
            paths.insert(device.str("devicePath"));
        }
    }
}

fn escalation(found: &mut FoundCauses, context: &Place<'_>, _: &RowArguments) {
    if context.get("allowPrivilegeEscalation") != Some(&false.into()) {
        return;
    }
    if context.is_true("privileged") {
        found.invalid(context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    let capabilities = context.member("capabilities");
    if capabilities.member("add").items().any(|capability| capability.text() == "CAP_SYS_ADMIN") {
        found.invalid(context, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
    }
}

fn resize(found: &mut FoundCauses, policies: &Place<'_>, _: &RowArguments) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let name = policy.str("resourceName");
        if !seen.insert(name) {
            found.duplicate_as(&policy, ShownValue::Text(name));
        }
        for (member, known) in
            [("resourceName", ["cpu", "memory"]), ("restartPolicy", ["NotRequired", "RestartContainer"])]
        {
            let text = policy.str(member);
            if text.is_empty() {
                found.required(policies, "");
            } else if !known.contains(&text) {
                found.unsupported_as(policies, ShownValue::Text(text), &known);
            }
        }
    }
}

/// Checks the handlers of the start and of the end of a container.
pub(super) fn lifecycle(found: &mut FoundCauses, lifecycle: &Place<'_>, spec: &Place<'_>) {
    // One that is negative becomes 1.
    let grace = spec.num("terminationGracePeriodSeconds").map(|seconds| if seconds < 0 { 1 } else { seconds });
    for event in ["postStart", "preStop"].map(|event| lifecycle.member(event)) {
        if event.is_set() {
            handler(found, &event, grace, &LIFECYCLE_HANDLERS);
        }
    }
}

/// Checks the probes of a container.
pub(super) fn probes(found: &mut FoundCauses, container: &Place<'_>) {
    for (member, is_readiness) in [("livenessProbe", false), ("readinessProbe", true), ("startupProbe", false)] {
        let probe = container.member(member);
        if !probe.is_set() {
            continue;
        }
        ValidationTable::get().run_named("Probe", &probe, found);
        let grace = probe.member("terminationGracePeriodSeconds");
        if is_readiness && grace.is_set() {
            found.invalid(&grace, "must not be set for readinessProbes");
        }
        if !is_readiness && probe.num("successThreshold").unwrap_or_default() != 1 {
            found.invalid_number(&probe.member("successThreshold"), "must be 1");
        }
    }
}

/// Checks that there is one handler, and checks that one: `validateHandler`.
fn handler(found: &mut FoundCauses, place: &Place<'_>, grace: Option<i64>, known: &[&str]) {
    let mut is_first = true;
    for name in known {
        let handler = place.member(name);
        if !handler.is_set() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            found.forbidden(&handler, "may not specify more than 1 handler type");
            continue;
        }
        match *name {
            "exec" => {
                let command = handler.member("command");
                if command.is_empty() {
                    found.required(&command, "");
                }
            }
            "httpGet" => ValidationTable::get().run_named("HTTPGet", &handler, found),
            "sleep" => sleep(found, &handler, grace),
            _ => checks::port_number_or_name(found, &handler.member("port")),
        }
    }
    if is_first {
        found.required(place, "must specify a handler type");
    }
}

fn sleep(found: &mut FoundCauses, handler: &Place<'_>, grace: Option<i64>) {
    let seconds = handler.num("seconds").unwrap_or_default();
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        found.invalid_as(handler, ShownValue::Number(seconds), &why);
    }
}

fn probe_grace(found: &mut FoundCauses, period: &Place<'_>, _: &RowArguments) {
    if period.int().is_some_and(|seconds| seconds <= 0) {
        found.invalid(period, "must be greater than 0");
    }
}

fn headers(found: &mut FoundCauses, action: &Place<'_>, _: &RowArguments) {
    const REFUSED: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
        used for validation is '[-A-Za-z0-9]+')";
    let headers = action.member("httpHeaders");
    for header in headers.items() {
        let name = header.str("name");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            found.invalid_as(&headers, ShownValue::Text(name), REFUSED);
        }
    }
}

/// Checks the restart policy of one container. Rules need one.
pub(super) fn restart_policy(found: &mut FoundCauses, container: &Place<'_>) {
    let policy = container.member("restartPolicy");
    let known = ["Always", "Never", "OnFailure"];
    if !policy.is_set() {
        if !container.member("restartPolicyRules").is_empty() {
            found.required(&policy, "must specify restartPolicy when restart rules are used");
        }
    } else if !known.contains(&policy.text()) {
        found.unsupported(&policy, &known);
    }
}
