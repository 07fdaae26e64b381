//! Pods and templates of pods: what is beside their containers, volumes and place.
//!
//! Source: `ValidatePodSpec`, `ValidatePodCreate`, `ValidatePodUpdate` in `pkg/apis/core/validation/validation.go`.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    FoundCauses, Place, RowArguments, ShownValue, ValidationTable, ValueCheck, checks, texts, workloads::is_changed_but,
};
use crate::validation::equality::have_same_items;

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "pod_annotations" => pod_annotations,
        "template_labels" => template_labels,
        "template_annotations" => template_annotations,
        "grace" => grace,
        "containers" => containers,
        "host_ports" => host_ports,
        "dns" => dns,
        "gates" => gates,
        "pod_only" => pod_only,
        "not_on_create" => not_on_create,
        "pod_create" => pod_create,
        "pod_update" => pod_update,
        "process_namespace" => process_namespace,
        "sysctls" => sysctls,
        "seccomp_type" => seccomp_type,
        "seccomp_profile" => seccomp_profile,
        _ => return None,
    })
}

/// Annotations that mean something: `ValidatePodSpecificAnnotations`.
fn pod_annotations(found: &mut FoundCauses, annotations: &Place<'_>, _: &RowArguments) {
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let is_valid = |cost: Option<&Value>| {
        let Some(text) = cost.map(|cost| cost.as_str().unwrap_or_default()) else { return true };
        let is_canonical = text == "0" || !text.starts_with(['+', '0']) && !text.starts_with("-0");
        is_canonical && text.parse::<i32>().is_ok()
    };
    // An invalid one that is stored may be replaced by another one.
    if !is_valid(annotations.get(COST)) && is_valid(annotations.stored_member(COST)) {
        found.invalid(&annotations.key(COST), "must be a 32bit integer");
    }
}

/// Labels of a template, whose paths lack `metadata`.
fn template_labels(found: &mut FoundCauses, labels: &Place<'_>, _: &RowArguments) {
    at_template(labels, "labels", |place| checks::labels(found, place));
}

fn template_annotations(found: &mut FoundCauses, annotations: &Place<'_>, _: &RowArguments) {
    at_template(annotations, "annotations", |place| checks::annotations(found, place));
}

/// Visits a member of a template's metadata at the path that causes name.
fn at_template(member: &Place<'_>, name: &str, mut visit: impl FnMut(&Place<'_>)) {
    if let Some(template) = member.outer().and_then(Place::outer) {
        visit(&template.renamed(name, member.value));
    }
}

/// The period has a default: one of zero seconds is present.
fn grace(found: &mut FoundCauses, period: &Place<'_>, _: &RowArguments) {
    if !period.is_set() {
        found.required(period, "");
    }
}

/// The containers of a pod, once its volumes are known.
fn containers(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let table = ValidationTable::get();
    let (main, first) = (spec.member("containers"), spec.member("initContainers"));
    if main.is_empty() {
        found.required(&main, "");
    }
    let mut names = HashSet::new();
    for container in main.items() {
        table.run_named("Container", &container, found);
        let name = container.member("name");
        if !names.insert(container.str("name")) {
            found.duplicate(&name);
        }
        if container.has("lifecycle") {
            super::containers::lifecycle(found, &container.member("lifecycle"), spec);
        }
        super::containers::probes(found, &container);
        super::containers::restart_policy(found, &container);
    }
    super::containers::host_port_conflicts(found, main.items());
    for container in first.items() {
        table.run_named("Container", &container, found);
        super::containers::restart_policy(found, &container);
        let name = container.member("name");
        if !names.insert(container.str("name")) {
            found.duplicate(&name);
        }
        if container.str("restartPolicy") == "Always" {
            super::containers::lifecycle(found, &container.member("lifecycle"), spec);
            super::containers::probes(found, &container);
            continue;
        }
        for member in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(member) {
                let why = "may not be set for init containers without restartPolicy=Always";
                found.forbidden(&container.member(member), why);
            }
        }
    }
}

/// A container in the network of the node listens at ports of the node.
fn host_ports(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    if !spec.is_true("hostNetwork") {
        return;
    }
    // In a template, absent ones are filled in with the pod.
    let is_pod = spec.depth() == 1;
    for container in spec.member("containers").items() {
        for port in container.member("ports").items() {
            let [host, own] = ["hostPort", "containerPort"].map(|member| port.num(member).unwrap_or_default());
            if (is_pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                found.invalid_number(&port.member("hostPort"), why);
            }
        }
    }
}

fn dns(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let config = spec.member("dnsConfig");
    let servers = config.member("nameservers");
    if spec.str("dnsPolicy") == "None" {
        if !config.is_set() {
            return found.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return found.required(&servers, "must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        found.invalid(&servers, "must not have more than 3 nameservers");
    }
    for server in servers.items() {
        found.refuse(&server, &texts::ip(server.text()));
    }
    let searches = config.member("searches");
    if searches.len() > 32 {
        found.invalid(&searches, "must not have more than 32 search paths");
    }
    if searches.items().map(|search| search.text().len() + 1).sum::<usize>() > 2049 {
        found.invalid(&searches, "must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text();
        let text = text.strip_suffix('.').unwrap_or(text);
        found.refuse_as(&search, text, &texts::search_domain(text));
    }
    for option in config.member("options").items() {
        if option.str("name").is_empty() {
            found.required(&option, "must not be empty");
        }
    }
}

fn gates(found: &mut FoundCauses, gates: &Place<'_>, _: &RowArguments) {
    let mut seen = HashSet::new();
    for gate in gates.items() {
        let name = gate.str("name");
        found.refuse_as(&gate, name, &texts::qualified(name));
        if !seen.insert(name) {
            found.duplicate_as(&gate, ShownValue::Text(name));
        }
    }
}

/// Checks a pod for rules that templates do not have.
fn pod_only(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    if account(spec).is_empty() {
        for volume in spec.member("volumes").items() {
            let projected = volume.member("projected");
            for source in projected.member("sources").items() {
                let token = source.member("serviceAccountToken");
                if token.is_set() {
                    found.forbidden(&token, "must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.member(list).items() {
            image_space(found, &container);
        }
    }
}

/// Returns the account of a pod; `serviceAccount` is its older name.
fn account<'a>(spec: &Place<'a>) -> &'a str {
    let account = spec.str("serviceAccountName");
    if account.is_empty() { spec.str("serviceAccount") } else { account }
}

fn image_space(found: &mut FoundCauses, container: &Place<'_>) {
    let image = container.member("image");
    if image.text().trim() != image.text() {
        found.invalid(&image, "must not have leading or trailing whitespace");
    }
}

fn not_on_create(found: &mut FoundCauses, containers: &Place<'_>, _: &RowArguments) {
    if !containers.is_empty() {
        found.forbidden(containers, "cannot be set on create");
    }
}

fn pod_create(found: &mut FoundCauses, pod: &Place<'_>, _: &RowArguments) {
    let spec = pod.member("spec");
    let node = spec.member("nodeName");
    if !node.is_empty() && !spec.member("schedulingGates").is_empty() {
        found.forbidden(&node, "cannot be set until all schedulingGates have been cleared");
    }
}

const UNCHANGED: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
    negative)";

/// The few changes of a pod that are allowed.
fn pod_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let stored = |name: &str| spec.stored_member(name);
    for list in ["containers", "initContainers"] {
        let containers = spec.member(list);
        if containers.len() != stored(list).and_then(Value::as_array).map_or(0, Vec::len) {
            return found.forbidden(&containers, "pod updates may not add or remove containers");
        }
        for container in containers.items() {
            if container.str("image").is_empty() {
                found.required(&container.member("image"), "");
            }
            image_space(found, &container);
        }
    }
    let deadline = spec.member("activeDeadlineSeconds");
    match (deadline.int(), stored("activeDeadlineSeconds").and_then(Value::as_i64)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            return found.invalid(&deadline, "must be between 0 and 2147483647, inclusive");
        }
        (Some(seconds), Some(before)) if before < seconds => {
            return found.invalid(&deadline, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            found.invalid_as(&deadline, ShownValue::OrNull(None), why);
        }
        _ => {}
    }
    tolerations_update(found, spec);
    gates_update(found, spec);
    let is_gated = stored("schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty());
    if is_changed_but(spec, |name| may_change(spec, name, is_gated)) {
        found.forbidden(spec, UNCHANGED);
    }
}

/// True if a member of the spec is as it may be after an update.
fn may_change(spec: &Place<'_>, name: &str, is_gated: bool) -> bool {
    match name {
        "activeDeadlineSeconds" | "tolerations" | "schedulingGates" => true,
        "serviceAccount" | "serviceAccountName" => {
            let stored = spec.stored.and_then(Value::as_object);
            stored.is_none_or(|stored| account(&Place::root(stored, None)) == account(spec))
        }
        // Only its subresource changes it.
        "ephemeralContainers" => true,
        // Its additions are not told from other changes.
        "nodeSelector" | "affinity" => is_gated,
        "terminationGracePeriodSeconds" => {
            let before = spec.stored_member(name).and_then(Value::as_i64);
            before.is_some_and(|before| before < 0) && spec.num(name) == Some(1)
        }
        "containers" | "initContainers" => have_same_items(&["image"], spec.get(name), spec.stored_member(name)),
        _ => false,
    }
}

/// Returns a toleration without its seconds.
fn without_seconds(toleration: &Value) -> [&str; 4] {
    ["key", "operator", "value", "effect"]
        .map(|member| toleration.get(member).and_then(Value::as_str).unwrap_or_default())
}

/// Tolerations may be added, and their seconds changed.
fn tolerations_update(found: &mut FoundCauses, spec: &Place<'_>) {
    let tolerations = spec.member("tolerations");
    let retained: HashSet<_> = tolerations.items().filter_map(|one| one.value).map(without_seconds).collect();
    let mut before = tolerations.stored.and_then(Value::as_array).into_iter().flatten();
    if before.any(|toleration| !retained.contains(&without_seconds(toleration))) {
        found.forbidden(&tolerations, "existing toleration can not be modified except its tolerationSeconds");
    } else {
        for toleration in tolerations.items() {
            super::pod_placement::toleration(found, &toleration, &RowArguments::default());
        }
    }
}

/// Gates may only be removed.
fn gates_update(found: &mut FoundCauses, spec: &Place<'_>) {
    let gates = spec.member("schedulingGates");
    let before: HashSet<&str> = gates
        .stored
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|gate| gate.get("name").and_then(Value::as_str))
        .collect();
    for gate in gates.items() {
        let name = gate.member("name");
        if !before.contains(name.text()) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            found.forbidden(&name, &why);
        }
    }
}

fn process_namespace(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    if spec.is_true("hostPID") && spec.is_true("shareProcessNamespace") {
        let context = spec.member("securityContext");
        let place = context.renamed("shareProcessNamespace", spec.get("shareProcessNamespace"));
        found.invalid(&place, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
}

fn sysctls(found: &mut FoundCauses, sysctls: &Place<'_>, _: &RowArguments) {
    const REFUSED: &str = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = HashSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.member("name");
        let text = sysctl.str("name");
        let is_segment = |segment: &str| {
            let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let bytes = segment.as_bytes();
            bytes.first().is_some_and(is_inner)
                && bytes.last().is_some_and(is_inner)
                && bytes.iter().all(|byte| is_inner(byte) || matches!(byte, b'-' | b'_'))
        };
        if text.is_empty() {
            found.required(&name, "");
        } else if text.len() > 253 || !text.split(['.', '/']).all(is_segment) {
            found.invalid(&name, REFUSED);
        } else if !seen.insert(text) {
            found.duplicate(&name);
        }
    }
}

fn seccomp_type(found: &mut FoundCauses, ty: &Place<'_>, _: &RowArguments) {
    let known = ["Localhost", "RuntimeDefault", "Unconfined"];
    if ty.is_empty() {
        found.required(ty, "type is required when seccompProfile is set");
    } else if !known.contains(&ty.text()) {
        found.unsupported(ty, &known);
    }
}

fn seccomp_profile(found: &mut FoundCauses, profile: &Place<'_>, _: &RowArguments) {
    let local = profile.member("localhostProfile");
    match (profile.str("type"), local.is_set()) {
        ("Localhost", false) => found.required(&local, "must be set when seccomp type is Localhost"),
        ("Localhost", true) => checks::relative_path(found, &local),
        (_, true) => found.invalid(profile, "can only be set when seccomp type is Localhost"),
        (_, false) => {}
    }
}
