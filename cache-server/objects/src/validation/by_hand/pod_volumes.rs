//! Volumes of pods.
//!
//! Source: `ValidateVolumes` and what it calls in `pkg/apis/core/validation/validation.go`.

use std::collections::HashSet;

use informer_serving::go::quote;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValidationTable, ValueCheck, checks, containers, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "volumes" => volumes,
        "local_path" => |found, path, _| local_path(found, path),
        "host_path" => host_path,
        "absolute_path" => absolute_path,
        "csi_driver" => csi_driver,
        "csi_secret" => csi_secret,
        "downward_items" => downward_items,
        "projections" => projections,
        _ => return None,
    })
}

/// Members of volumes that are their sources in the order of their checks, and the types of those that have rules here.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", ""),
    ("hostPath", "HostPathVolume"),
    ("gitRepo", ""),
    ("gcePersistentDisk", ""),
    ("awsElasticBlockStore", ""),
    ("secret", "SecretVolume"),
    ("nfs", "NFSVolume"),
    ("iscsi", ""),
    ("glusterfs", ""),
    ("flocker", ""),
    ("persistentVolumeClaim", "ClaimVolume"),
    ("rbd", ""),
    ("cinder", ""),
    ("cephfs", ""),
    ("quobyte", ""),
    ("downwardAPI", "DownwardVolume"),
    ("fc", ""),
    ("flexVolume", ""),
    ("configMap", "ConfigMapVolume"),
    ("azureFile", ""),
    ("vsphereVolume", ""),
    ("photonPersistentDisk", ""),
    ("portworxVolume", ""),
    ("azureDisk", ""),
    ("storageos", ""),
    ("projected", "ProjectedVolume"),
    ("scaleIO", ""),
    ("csi", "CSIVolume"),
    ("ephemeral", "EphemeralVolume"),
    ("image", ""),
];

/// The volumes of a pod, which its containers then mount.
fn volumes(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    claimed_volumes(found, spec);
    // They replace volumes of the same names.
    let claims: HashSet<String> = found.claims.iter().cloned().collect();
    for volume in spec.member("volumes").items().filter(|volume| !claims.contains(volume.str("name"))) {
        let before = found.count();
        sources(found, &volume);
        claim_name(found, spec, &volume);
        let name = volume.member("name");
        if name.is_empty() {
            found.required(&name, "");
        } else {
            found.refuse(&name, &texts::label(name.text()));
        }
        if found.volumes.contains_key(name.text()) {
            found.duplicate(&name);
        }
        if found.count() == before {
            let is_claim = volume.has("persistentVolumeClaim") || volume.has("ephemeral");
            found.volumes.insert(name.text().to_owned(), is_claim);
        }
    }
}

/// The volumes of a StatefulSet's claims come first.
fn claimed_volumes(found: &mut FoundCauses, spec: &Place<'_>) {
    let volumes = spec.member("volumes");
    found.volumes.clear();
    for (at, name) in found.claims.clone().into_iter().enumerate() {
        let volume = volumes.item(at);
        let (place, claim) = (volume.member("name"), volume.member("persistentVolumeClaim"));
        let refused = texts::label(&name);
        if name.is_empty() {
            found.required(&claim.member("claimName"), "");
            found.required(&place, "");
        } else if refused.is_empty() {
            found.volumes.insert(name, true);
        } else {
            found.refuse_as(&place, &name, &refused);
        }
    }
}

/// Checks the name of the claim that a pod makes for a volume: the names of both, with a dash between them.
fn claim_name(found: &mut FoundCauses, spec: &Place<'_>, volume: &Place<'_>) {
    let Some(pod) = spec.outer().filter(|_| spec.depth() == 1) else { return };
    let (name, metadata) = (volume.member("name"), pod.member("metadata"));
    if volume.has("ephemeral") && !name.is_empty() {
        let claim = format!("{}-{}", metadata.str("name"), name.text());
        for why in texts::subdomain(&claim) {
            found.invalid(&name, &format!("PVC name {}: {why}", quote(&claim)));
        }
    }
}

/// Checks that a volume has one source, and checks that one.
fn sources(found: &mut FoundCauses, volume: &Place<'_>) {
    let mut is_first = true;
    for (name, rules) in SOURCES {
        let source = volume.member(name);
        if !source.is_set() {
            continue;
        }
        let is_another = !std::mem::take(&mut is_first);
        let size = source.member("sizeLimit");
        if is_another {
            // As the original spells it.
            let name = if name == "downwardAPI" { "downwarAPI" } else { name };
            found.forbidden(&volume.member(name), "may not specify more than 1 volume type");
        } else if name == "emptyDir" && size.text().starts_with('-') {
            found.forbidden(&size, "SizeLimit field must be a valid resource quantity");
        } else if !rules.is_empty() {
            ValidationTable::get().run_named(rules, &source, found);
        }
    }
    if is_first {
        found.required(volume, "must specify a volume type");
    }
}

/// A path inside a volume.
fn local_path(found: &mut FoundCauses, path: &Place<'_>) {
    checks::relative_path(found, path);
    if path.text().starts_with("..") && path.text() != ".." && !path.text().starts_with("../") {
        found.invalid(path, "must not start with '..'");
    }
}

fn host_path(found: &mut FoundCauses, source: &Place<'_>, _: &RowArguments) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let (path, ty) = (source.member("path"), source.member("type"));
    if path.is_empty() {
        return found.required(&path, "");
    }
    checks::no_backsteps(found, &path);
    if !TYPES.contains(&ty.text()) {
        found.unsupported(&ty, &TYPES);
    }
}

fn absolute_path(found: &mut FoundCauses, path: &Place<'_>, _: &RowArguments) {
    if !path.text().starts_with('/') {
        found.invalid(path, "must be an absolute path");
    }
}

fn csi_driver(found: &mut FoundCauses, driver: &Place<'_>, _: &RowArguments) {
    let text = driver.text();
    if text.is_empty() {
        return found.required(driver, "");
    }
    if text.len() > 63 {
        found.too_long(driver, 63);
    }
    found.refuse(driver, &texts::subdomain(&text.to_lowercase()));
}

fn csi_secret(found: &mut FoundCauses, source: &Place<'_>, _: &RowArguments) {
    let secret = source.member("nodePublishSecretRef");
    let name = secret.member("name");
    if secret.is_set() && name.is_empty() {
        found.required(&name, "");
    } else if !name.is_empty() {
        found.refuse_as(&source.member("name"), name.text(), &texts::subdomain(name.text()));
    }
}

/// Causes in files of the downward API name the list's holder.
fn downward_items(found: &mut FoundCauses, source: &Place<'_>, _: &RowArguments) {
    for file in source.member("items").items() {
        downward_file(found, source, &file);
    }
}

const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn downward_file(found: &mut FoundCauses, source: &Place<'_>, file: &Place<'_>) {
    let at = |name| source.renamed(name, file.get(name));
    let (path, field, resource, mode) = (at("path"), at("fieldRef"), at("resourceFieldRef"), at("mode"));
    if path.is_empty() {
        found.required(&path, "");
    }
    local_path(found, &path);
    if field.is_set() {
        containers::field(found, &field, &VOLUME_FIELDS);
        if resource.is_set() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            found.invalid_as(source, ShownValue::Text("resource"), why);
        }
    } else if resource.is_set() {
        containers::resource_field(found, &resource, true);
    } else {
        found.required(source, "one of fieldRef and resourceFieldRef is required");
    }
    checks::mode(found, &mode);
}

fn projections(found: &mut FoundCauses, volume: &Place<'_>, _: &RowArguments) {
    const KINDS: [&str; 6] =
        ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
    let mut paths = HashSet::new();
    for source in volume.member("sources").items() {
        for name in ["secret", "configMap"] {
            let projection = source.member(name);
            if projection.is_set() {
                keys(found, volume, &projection, &mut paths);
            }
        }
        let downward = source.member("downwardAPI");
        for file in downward.member("items").items() {
            downward_file(found, &downward, &file);
            let path = file.str("path");
            if !path.is_empty() && !paths.insert(path.to_owned()) {
                found.invalid_as(volume, ShownValue::Text(path), "conflicting duplicate paths");
            }
        }
        token(found, volume, &source.member("serviceAccountToken"));
        if KINDS.iter().filter(|kind| source.has(kind)).count() > 1 {
            found.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

fn keys(found: &mut FoundCauses, volume: &Place<'_>, projection: &Place<'_>, paths: &mut HashSet<String>) {
    let name = projection.member("name");
    if name.is_empty() {
        found.required(&name, "");
    }
    for item in projection.member("items").items() {
        ValidationTable::get().run_named("KeyToPath", &item, found);
        let path = item.str("path");
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            found.invalid_as(volume, ShownValue::Text(name.text()), "conflicting duplicate paths");
        }
    }
}

fn token(found: &mut FoundCauses, volume: &Place<'_>, token: &Place<'_>) {
    if !token.is_set() {
        return;
    }
    let seconds = token.member("expirationSeconds");
    if seconds.int().unwrap_or_default() < 600 {
        found.invalid_number(&seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds.int().unwrap_or_default() > 1 << 32 {
        found.invalid_number(&seconds, "may not specify a duration larger than 2^32 seconds");
    }
    let path = volume.renamed("path", token.get("path"));
    if path.is_empty() {
        found.required(&path, "");
    } else {
        local_path(found, &path);
    }
}
