//! ConfigMaps, Secrets, Nodes, Leases and priorities.
//!
//! Source: `pkg/apis/{core,scheduling,coordination}/validation/validation.go`.

use std::collections::BTreeMap;

use api_rules::object::Object;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::{
    go,
    status::{CauseExt as _, StatusCause},
};
use serde_json::{Value, json};

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "config_data" => config_data,
        "secret_data" => secret_data,
        "frozen_data" => frozen_data,
        "pod_cidrs" => pod_cidrs,
        "event" => event,
        "provisioner" => provisioner,
        "namespace_finalizers" => namespace_finalizers,
        "node_update" => node_update,
        "priority" => priority,
        "lease_duration" => lease_duration,
        _ => return None,
    })
}

/// Most bytes of values in a ConfigMap or a Secret.
const DATA_BYTES_MAX: usize = 1 << 20;

/// Returns the length of what base64 encodes.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn config_data(found: &mut FoundCauses, map: &Place<'_>, _: &RowArguments) {
    let (data, binary) = (map.member("data"), map.member("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        found.refuse_as(&value, key, &texts::config_key(key));
        if binary.has(key) {
            found.invalid_as(&value, ShownValue::Text(key), "duplicate of key present in binaryData");
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        found.refuse_as(&value, key, &texts::config_key(key));
        bytes += decoded_len(value.text());
    }
    if bytes > DATA_BYTES_MAX {
        found.too_long(&map.member(""), DATA_BYTES_MAX);
    }
}

fn secret_data(found: &mut FoundCauses, secret: &Place<'_>, _: &RowArguments) {
    let data = secret.member("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        found.refuse_as(&value, key, &texts::config_key(key));
        bytes += decoded_len(value.text());
    }
    if bytes > DATA_BYTES_MAX {
        found.too_long(&data, DATA_BYTES_MAX);
    }
    let mut needs = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !data.has(key)) {
            found.required(&data.key(key), "");
        }
    };
    match secret.str("type") {
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        "kubernetes.io/basic-auth" if data.has("username") || data.has("password") => {}
        "kubernetes.io/basic-auth" => needs(&["username", "password"]),
        "kubernetes.io/ssh-auth" if data.str("ssh-privatekey").is_empty() => {
            found.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/dockercfg" => docker_config(found, &data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(found, &data, ".dockerconfigjson"),
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let metadata = secret.member("metadata");
            let annotations = metadata.member("annotations");
            if annotations.str(ACCOUNT).is_empty() {
                found.required(&annotations.key(ACCOUNT), "");
            }
        }
        _ => {}
    }
}

fn docker_config(found: &mut FoundCauses, data: &Place<'_>, key: &str) {
    let config = data.key(key);
    if !config.is_set() {
        return found.required(&config, "");
    }
    let bytes = STANDARD.decode(config.text()).unwrap_or_default();
    let parsed: Result<Option<Object>, _> = serde_json::from_slice(&bytes);
    if parsed.is_err() {
        let why = match bytes.as_slice() {
            [] => "unexpected end of JSON input".to_owned(),
            bytes => match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    go::json_type(&value)
                ),
                Err(_) => "invalid JSON".to_owned(),
            },
        };
        found.invalid_as(&config, ShownValue::Text("<secret contents redacted>"), &why);
    }
}

/// Checks that an immutable ConfigMap or Secret stays as it is.
fn frozen_data(found: &mut FoundCauses, object: &Place<'_>, _: &RowArguments) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if object.stored_member("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if !object.is_true("immutable") {
        found.forbidden(&object.member("immutable"), WHY);
    }
    for member in ["data", "binaryData"].map(|member| object.member(member)) {
        if exact_texts(member.value) != exact_texts(member.stored) {
            found.forbidden(&member, WHY);
        }
    }
}

/// Returns the texts of a map by their keys. Base64 has one form here.
fn exact_texts(map: Option<&Value>) -> BTreeMap<&str, &str> {
    let members = map.and_then(Value::as_object).into_iter().flatten();
    members.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

fn provisioner(found: &mut FoundCauses, name: &Place<'_>, _: &RowArguments) {
    let text = name.text().to_lowercase();
    found.refuse_as(name, &text, &texts::qualified(&text));
}

/// The finalizers of a namespace. Causes name the list.
fn namespace_finalizers(found: &mut FoundCauses, list: &Place<'_>, _: &RowArguments) {
    for finalizer in list.items() {
        let name = finalizer.text();
        found.refuse_as(list, name, &texts::qualified(name));
        if !checks::is_kube_finalizer(name) {
            found.invalid_as(list, ShownValue::Text(name), checks::NO_FINALIZER);
        }
    }
}

/// Checks that an event has the namespace of the object it is about.
fn event(found: &mut FoundCauses, event: &Place<'_>, _: &RowArguments) {
    let (metadata, object) = (event.member("metadata"), event.member("involvedObject"));
    let (own, namespace) = (metadata.str("namespace"), object.member("namespace"));
    let is_matched = match (event.has("eventTime"), namespace.text()) {
        (false, "") => own == "default",
        (true, "") => ["default", "kube-system"].contains(&own),
        (false, namespace) => own == namespace,
        (true, _) => true,
    };
    if !is_matched {
        found.invalid(&namespace, "does not match event.namespace");
    }
}

/// Returns the networks of a node: those of the list, or only `podCIDR` if the list begins with another one.
fn networks(spec: &Place<'_>) -> Value {
    let (first, listed) = (spec.str("podCIDR"), spec.get("podCIDRs"));
    let is_listed = listed.and_then(|list| list.get(0)).and_then(Value::as_str) == Some(first);
    match listed {
        Some(listed) if is_listed || first.is_empty() => listed.clone(),
        _ if first.is_empty() => json!([]),
        _ => json!([first]),
    }
}

fn pod_cidrs(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let networks = networks(spec);
    let cidrs = &spec.renamed("podCIDRs", Some(&networks));
    for cidr in cidrs.items() {
        found.refuse(&cidr, &texts::cidr(cidr.text()));
    }
    let sixes = cidrs.items().filter(|cidr| cidr.text().contains(':')).count();
    if cidrs.len() > 1 && (sixes != 1 || cidrs.len() > 2) {
        found.invalid(cidrs, "may specify no more than one CIDR for each IP family");
    }
}

fn node_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let Some(before) = spec.stored.and_then(Value::as_object) else { return };
    let (networks, before) = (networks(spec), networks(&Place::root(before, None)));
    let (cidrs, provider) = (spec.renamed("podCIDRs", Some(&networks)), spec.member("providerID"));
    let why = "node updates may not change podCIDR except from \"\" to valid";
    if let Some(stored) = before.as_array().filter(|stored| !stored.is_empty()) {
        let changed = match stored.len() == cidrs.len() {
            true => cidrs.items().zip(stored).filter(|(cidr, stored)| cidr.value != Some(*stored)).count(),
            false => 1,
        };
        found.add_times(changed, &cidrs, |field| StatusCause::forbidden(field, why));
    }
    let stored = provider.stored.and_then(Value::as_str).unwrap_or_default();
    if !stored.is_empty() && provider.text() != stored {
        found.forbidden(&provider, "node updates may not change providerID except from \"\" to valid");
    }
}

fn priority(found: &mut FoundCauses, class: &Place<'_>, _: &RowArguments) {
    const HIGHEST: i64 = 1_000_000_000;
    let (metadata, value) = (class.member("metadata"), class.member("value"));
    let name = metadata.member("name");
    let known = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    if !name.text().starts_with("system-") {
        if value.int().is_some_and(|value| value > HIGHEST) {
            found.forbidden(&value, &format!("maximum allowed value of a user defined priority is {HIGHEST}"));
        }
        return;
    }
    let error = match known.iter().find(|(known, _)| *known == name.text()) {
        None => format!("{} is not a known system priority class", name.text()),
        Some((_, known)) if value.int() != Some(*known) => {
            format!("value of {} PriorityClass must be {known}", name.text())
        }
        Some(_) if class.is_true("globalDefault") => {
            format!("globalDefault of {} PriorityClass must be false", name.text())
        }
        Some(_) => return,
    };
    let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {error}");
    found.forbidden(&name, &why);
}

fn lease_duration(found: &mut FoundCauses, seconds: &Place<'_>, _: &RowArguments) {
    if seconds.int().is_some_and(|number| number <= 0) {
        found.invalid(seconds, "must be greater than 0");
    }
}
