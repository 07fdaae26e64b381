//! PersistentVolumes and their claims.
//!
//! Source: `ValidatePersistentVolumeSpec`, `ValidatePersistentVolumeClaimSpec` in `pkg/apis/core/validation/validation.go`.

use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ValueCheck, resources, workloads::is_changed_but};
use crate::validation::{checks, equality::is_same, found::shown, table::ValidationTable};

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
            found.unsupported_as(modes, &shown(mode.value), &MODES);
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
        found.invalid_as(&place, &shown(Some(&amount.to_string().into())), "must be greater than zero");
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
    let may: &[&str] = match (is_bound, is_first_volume) {
        (true, true) => &["resources", "volumeName", "volumeAttributesClassName"],
        (true, false) => &["resources", "volumeAttributesClassName"],
        (false, true) => &["resources", "volumeName"],
        (false, false) => &["resources"],
    };
    // A class that was unset may be set, as by the controller of defaults.
    let gets_class = spec.stored_member("storageClassName").is_none() && spec.has("storageClassName");
    let may: Vec<&str> = may.iter().copied().chain(gets_class.then_some("storageClassName")).collect();
    let are_resources_same = is_same(without_size(spec.value).as_ref(), without_size(spec.stored).as_ref());
    if is_changed_but(&spec, &may) || !are_resources_same {
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

/// Its cause names no spec.
fn volume_mode_update(found: &mut FoundCauses, object: &Place<'_>, spec: &Place<'_>) {
    let mode = spec.member("volumeMode");
    if !is_same(mode.value, mode.stored) {
        let shown = mode.value.map_or_else(|| "null".to_owned(), |mode| shown(Some(mode)));
        found.invalid_as(&object.member("volumeMode"), &shown, "field is immutable");
    }
}

fn volume_capacity(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let capacity = spec.member("capacity");
    if capacity.is_empty() {
        found.required(&capacity, "");
    }
    if !capacity.has("storage") || capacity.len() > 1 {
        let shown = capacity.value.map_or_else(|| "null".to_owned(), |capacity| shown(Some(capacity)));
        found.unsupported_as(&capacity, &shown, &["storage"]);
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
    let is_changed =
        SOURCES.iter().map(|(name, _)| spec.member(name)).any(|source| !is_same(source.value, source.stored));
    if is_changed {
        let place = spec.member("persistentvolumesource");
        found.forbidden(&place, "spec.persistentvolumesource is immutable after creation");
    }
    if let Some(volume) = spec.outer() {
        volume_mode_update(found, volume, spec);
        let affinity = spec.member("nodeAffinity");
        if affinity.stored.is_some() && !is_same(affinity.value, affinity.stored) {
            let shown = affinity.value.map_or_else(|| "null".to_owned(), |affinity| shown(Some(affinity)));
            let why = "field is immutable, except for updating from beta label to GA";
            found.invalid_as(&volume.member("nodeAffinity"), &shown, why);
        }
    }
}
