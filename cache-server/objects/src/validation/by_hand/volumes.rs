//! PersistentVolumes and their claims.
//!
//! Source: `ValidatePersistentVolumeSpec`, `ValidatePersistentVolumeClaimSpec` in
//! `pkg/apis/core/validation/validation.go`.

use serde_json::Value;

use super::{
    FoundCauses, Place, RowArguments, ShownValue, ValidationTable, ValueCheck, checks, resources,
    workloads::is_changed_but,
};
use crate::validation::equality::is_same;

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "access_modes" => access_modes,
        "claim_storage" => claim_storage,
        "claim_update" => claim_update,
        "volume_capacity" => volume_capacity,
        "volume_sources" => volume_sources,
        "volume_update" => volume_update,
        _ => return None,
    })
}

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(found: &mut FoundCauses, modes: &Place<'_>, _: &RowArguments) {
    let (mut alone, mut others) = (false, false);
    for mode in modes.items() {
        let is_known = MODES.contains(&mode.text());
        if !is_known {
            found.unsupported_as(modes, ShownValue::Found(mode.value), &MODES);
        }
        alone |= mode.text() == "ReadWriteOncePod";
        others |= is_known && mode.text() != "ReadWriteOncePod";
    }
    if alone && others {
        found.forbidden(modes, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The size of a claim. Its cause names the resources.
fn claim_storage(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let resources = spec.member("resources");
    let requests = resources.member("requests");
    let size = requests.key("storage");
    let place = resources.key("storage");
    if !size.is_set() {
        return found.required(&place, "");
    }
    let amount = resources::quantity(size.value);
    if amount.billionths <= 0 {
        found.invalid_as(&place, ShownValue::Text(&amount.to_string()), "must be greater than zero");
    }
}

const CLAIM_UNCHANGED: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

fn claim_update(found: &mut FoundCauses, claim: &Place<'_>, _: &RowArguments) {
    let spec = claim.member("spec");
    let size = |spec: Option<&Value>| {
        let size = spec.and_then(|spec| spec.get("resources")?.get("requests")?.get("storage"));
        resources::quantity(size)
    };
    let (new, old) = (size(spec.value), size(spec.stored));
    let is_bound = claim.stored_member("status").and_then(|status| status.get("phase")) == Some(&"Bound".into());
    let without_size = |spec: Option<&Value>| {
        let mut resources = spec?.get("resources")?.clone();
        if is_bound && let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
            requests.remove("storage");
        }
        Some(resources)
    };
    let is_first_volume = spec.stored_member("volumeName").is_none();
    // A class that was unset may be set, as by the controller of defaults.
    let gets_class = spec.stored_member("storageClassName").is_none() && spec.has("storageClassName");
    let may_change = |name: &str| match name {
        "resources" => true,
        "volumeName" => is_first_volume,
        "volumeAttributesClassName" => is_bound,
        "storageClassName" => gets_class,
        "dataSource" | "dataSourceRef" => has_same_source(&spec, name),
        _ => false,
    };
    let (resources, stored_resources) = (without_size(spec.value), without_size(spec.stored));
    let are_resources_same = is_same("resources", resources.as_ref(), stored_resources.as_ref());
    if is_changed_but(&spec, may_change) || !are_resources_same {
        found.forbidden(&spec, CLAIM_UNCHANGED);
    }
    if new.billionths < old.billionths {
        let capacity = claim.stored_member("status").and_then(|status| status.get("capacity")?.get("storage"));
        if new.billionths <= resources::quantity(capacity).billionths {
            let resources = spec.member("resources");
            let requests = resources.member("requests");
            found.forbidden(&requests.member("storage"), "field can not be less than status.capacity");
        }
    }
    volume_mode_update(found, claim, &spec);
}

/// True if a source that is absent was only copied from its other name: kube-apiserver copies it in both directions.
fn has_same_source(spec: &Place<'_>, name: &str) -> bool {
    let other = if name == "dataSource" { "dataSourceRef" } else { "dataSource" };
    let value = spec.get(name).or_else(|| spec.get(other));
    let stored = spec.stored_member(name).or_else(|| spec.stored_member(other));
    is_same(name, value, stored)
}

/// Its cause names no spec.
fn volume_mode_update(found: &mut FoundCauses, object: &Place<'_>, spec: &Place<'_>) {
    let mode = spec.member("volumeMode");
    if mode.is_changed() {
        found.invalid_as(&object.member("volumeMode"), ShownValue::OrNull(mode.value), "field is immutable");
    }
}

fn volume_capacity(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let capacity = spec.member("capacity");
    if capacity.is_empty() {
        found.required(&capacity, "");
    }
    if !capacity.has("storage") || capacity.len() > 1 {
        found.unsupported_as(&capacity, ShownValue::OrNull(capacity.value), &["storage"]);
    }
    for (_, amount) in capacity.entries() {
        resources::capacity(found, &amount);
    }
    let policy = spec.member("persistentVolumeReclaimPolicy");
    let known = ["Delete", "Recycle", "Retain"];
    if !policy.is_empty() && !known.contains(&policy.text()) {
        found.unsupported(&policy, &known);
    }
    let affinity = spec.member("nodeAffinity");
    let required = affinity.member("required");
    if affinity.is_set() && !required.is_set() {
        found.required(&required, "must specify required node constraints");
    } else if required.is_set() {
        ValidationTable::get().run_named("NodeSelector", &required, found);
    }
}

/// Members that are sources of volumes, and the rules of those that have some here.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "HostPathVolume"),
    ("gcePersistentDisk", ""),
    ("awsElasticBlockStore", ""),
    ("glusterfs", ""),
    ("flocker", ""),
    ("nfs", "NFSVolume"),
    ("rbd", ""),
    ("quobyte", ""),
    ("cephfs", ""),
    ("iscsi", ""),
    ("cinder", ""),
    ("fc", ""),
    ("flexVolume", ""),
    ("azureFile", ""),
    ("vsphereVolume", ""),
    ("photonPersistentDisk", ""),
    ("portworxVolume", ""),
    ("azureDisk", ""),
    ("scaleIO", ""),
    ("local", "local"),
    ("storageos", ""),
    ("csi", "csi"),
];

fn volume_sources(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let mut is_first = true;
    for (name, rules) in SOURCES {
        let source = spec.member(name);
        if !source.is_set() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            found.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        match rules {
            "" => {}
            "csi" => {
                ValidationTable::get().run_named("CSIVolume", &source, found);
                let handle = source.member("volumeHandle");
                if handle.is_empty() {
                    found.required(&handle, "");
                }
            }
            "local" => local(found, spec, &source),
            rules => ValidationTable::get().run_named(rules, &source, found),
        }
    }
    if is_first {
        found.required(spec, "must specify a volume type");
    }
    let is_root = spec.member("hostPath").str("path").trim_end_matches('/').is_empty() && spec.has("hostPath");
    let policy = spec.member("persistentVolumeReclaimPolicy");
    if is_root && policy.text() == "Recycle" {
        found.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

fn local(found: &mut FoundCauses, spec: &Place<'_>, source: &Place<'_>) {
    let path = source.member("path");
    if path.is_empty() {
        found.required(&path, "");
    } else {
        checks::no_backsteps(found, &path);
    }
    let affinity = spec.member("nodeAffinity");
    if !affinity.is_set() {
        found.required(&affinity, "Local volume requires node affinity");
    }
}

fn volume_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let is_changed = SOURCES.iter().any(|(name, _)| {
        let source = spec.member(name);
        // The secret of a driver that expands the volume may be added.
        let may_change = |member: &str| {
            *name == "csi" && member == EXPAND_SECRET && source.is_update() && source.stored_member(member).is_none()
        };
        source.is_changed() && (source.value.is_none() || is_changed_but(&source, may_change))
    });
    if is_changed {
        let place = spec.member("persistentvolumesource");
        found.forbidden(&place, "spec.persistentvolumesource is immutable after creation");
    }
    if let Some(volume) = spec.outer() {
        volume_mode_update(found, volume, spec);
        let affinity = spec.member("nodeAffinity");
        let renamed = affinity.stored.map(|stored| with_stable_labels(stored, affinity.value));
        if renamed.is_some_and(|stored| !is_same("nodeAffinity", affinity.value, Some(&stored))) {
            let why = "field is immutable, except for updating from beta label to GA";
            found.invalid_as(&volume.member("nodeAffinity"), ShownValue::OrNull(affinity.value), why);
        }
    }
}

const EXPAND_SECRET: &str = "controllerExpandSecretRef";

/// Older names of labels of nodes, and their present ones.
const STABLE_LABELS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// Returns the stored affinity with the present names of labels, where `next` has them.
fn with_stable_labels(stored: &Value, next: Option<&Value>) -> Value {
    match stored {
        Value::Object(members) => {
            let is_renamed = |name: &str, value: &Value, next: &Value| {
                name == "key" && STABLE_LABELS.iter().any(|(old, new)| *value == **old && *next == **new)
            };
            let members = members.iter().map(|(name, value)| {
                let value = match next.and_then(|next| next.get(name)) {
                    Some(next) if is_renamed(name, value, next) => next.clone(),
                    next => with_stable_labels(value, next),
                };
                (name.clone(), value)
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.map(|(at, item)| with_stable_labels(item, next.and_then(|next| next.get(at)))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => stored.clone(),
    }
}
