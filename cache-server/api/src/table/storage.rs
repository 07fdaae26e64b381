//! Columns of storage types: volumes, claims, classes and CSI drivers.

use super::{
    TypeColumns,
    column::{AGE, NAME, boolean, integer, text},
    created,
    json::CellJson,
    name,
    network::{given, joined},
    row::RowWriter,
    workloads::count,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns {
        id: "persistentvolumes",
        columns: &[
            NAME,
            text("Capacity", "Capacity of the volume."),
            text("Access Modes", "Access modes of the volume."),
            text("Reclaim Policy", "Policy for the volume after its claim is deleted."),
            text("Status", "Phase of the volume."),
            text("Claim", "Claim that is bound to the volume."),
            text("StorageClass", "Storage class of the volume."),
            text("VolumeAttributesClass", "Volume attributes class of the volume."),
            text("Reason", "Reason of the phase."),
            AGE,
            text("VolumeMode", "Mode of the volume: Filesystem or Block.").wide(),
        ],
        print: volume,
    },
    TypeColumns {
        id: "persistentvolumeclaims",
        columns: &[
            NAME,
            text("Status", "Phase of the claim."),
            text("Volume", "Volume that is bound to the claim."),
            text("Capacity", "Capacity of the bound volume."),
            text("Access Modes", "Access modes of the bound volume."),
            text("StorageClass", "Requested storage class."),
            text("VolumeAttributesClass", "Requested volume attributes class."),
            AGE,
            text("VolumeMode", "Requested volume mode: Filesystem or Block.").wide(),
        ],
        print: claim,
    },
    TypeColumns {
        id: "storageclasses.storage.k8s.io",
        columns: &[
            NAME,
            text("Provisioner", "Provisioner of the volumes."),
            text("ReclaimPolicy", "Policy for a volume after its claim is deleted."),
            text("VolumeBindingMode", "Time of binding: Immediate or WaitForFirstConsumer."),
            text("AllowVolumeExpansion", "True if volumes can be expanded."),
            AGE,
        ],
        print: |object, row| {
            class_name(object, DEFAULT_CLASS, row).text(object.get("provisioner").text());
            row.text(given(object.get("reclaimPolicy"), "Delete"));
            row.text(given(object.get("volumeBindingMode"), "Immediate"));
            row.boolean(object.get("allowVolumeExpansion").is_true()).age(created(object));
        },
    },
    TypeColumns {
        id: "volumeattributesclasses.storage.k8s.io",
        columns: &[NAME, text("DriverName", "Driver of the attributes."), AGE],
        print: |object, row| {
            class_name(object, DEFAULT_ATTRIBUTES, row).text(object.get("driverName").text()).age(created(object));
        },
    },
    TypeColumns {
        id: "volumeattachments.storage.k8s.io",
        columns: &[
            NAME,
            super::Column { format: "name", ..text("Attacher", "Driver that attaches the volume.") },
            text("PV", "Attached volume."),
            text("Node", "Node to which the volume is attached."),
            boolean("Attached", "True if the volume is attached."),
            AGE,
        ],
        print: |object, row| {
            let spec = object.get("spec");
            row.text(name(object)).text(spec.get("attacher").text());
            row.text(spec.at("source.persistentVolumeName").text()).text(spec.get("nodeName").text());
            row.boolean(object.at("status.attached").is_true()).age(created(object));
        },
    },
    TypeColumns {
        id: "csidrivers.storage.k8s.io",
        columns: &[
            NAME,
            boolean("AttachRequired", "True if volumes must be attached before they are mounted."),
            boolean("PodInfoOnMount", "True if a mount request contains information about the pod."),
            boolean("StorageCapacity", "True if the driver reports its storage capacity."),
            text("TokenRequests", "Audiences of the requested service account tokens."),
            boolean("RequiresRepublish", "True if mount requests are repeated periodically."),
            text("Modes", "Supported lifecycle modes of volumes."),
            AGE,
        ],
        print: driver,
    },
    TypeColumns {
        id: "csinodes.storage.k8s.io",
        columns: &[NAME, integer("Drivers", "Number of drivers on the node."), AGE],
        print: |object, row| {
            row.text(name(object)).integer(count(object.at("spec.drivers"))).age(created(object));
        },
    },
];

/// Annotations that mark a class as the default.
const DEFAULT_CLASS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const DEFAULT_ATTRIBUTES: &[&str] = &["volumeattributesclass.alpha.kubernetes.io/is-default-class"];

/// Annotation for the class, from before there was a field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn class_name<'r>(object: &CellJson<'_>, marks: &[&str], row: &'r mut RowWriter) -> &'r mut RowWriter {
    let annotations = object.at("metadata.annotations");
    let default = marks.iter().any(|mark| annotations.get(mark).text() == "true");
    row.write(format_args!("{}{}", name(object), if default { " (default)" } else { "" }))
}

fn volume(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    row.text(name(object)).text(&spec.at("capacity.storage").plain_or("0"));
    row.text(&modes(spec.get("accessModes")));
    // Default set by kube-apiserver.
    let policy = if spec.is_null() { "" } else { "Retain" };
    row.text(given(spec.get("persistentVolumeReclaimPolicy"), policy)).text(phase(object));
    let claim = spec.get("claimRef");
    if claim.is_null() {
        row.text("");
    } else {
        row.write(format_args!("{}/{}", claim.get("namespace").text(), claim.get("name").text()));
    }
    row.text(class(object)).text(given(spec.get("volumeAttributesClassName"), "<unset>"));
    row.text(status.get("reason").text()).age(created(object)).text(volume_mode(spec));
}

fn claim(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    let volume = spec.get("volumeName").text();
    row.text(name(object)).text(phase(object)).text(volume);
    if volume.is_empty() {
        row.text("").text("");
    } else {
        row.text(&status.at("capacity.storage").plain_or("0"));
        row.text(&modes(status.get("accessModes")));
    }
    row.text(class(object)).text(given(spec.get("volumeAttributesClassName"), "<unset>"));
    row.age(created(object)).text(volume_mode(spec));
}

fn phase<'s>(object: &'s CellJson<'_>) -> &'s str {
    let going = !object.at("metadata.deletionTimestamp").is_null();
    if going { "Terminating" } else { object.at("status.phase").text() }
}

fn class<'s>(object: &'s CellJson<'_>) -> &'s str {
    let old = object.at("metadata.annotations").get(OLD_CLASS);
    given(old, object.at("spec.storageClassName").text())
}

/// Returns the volume mode, with kube-apiserver's default.
fn volume_mode<'s>(spec: &'s CellJson<'_>) -> &'s str {
    given(spec.get("volumeMode"), if spec.is_null() { "<unset>" } else { "Filesystem" })
}

/// Formats access modes by their abbreviations, in a fixed order and each once.
fn modes(modes: &CellJson<'_>) -> String {
    let given = |mode: &str| modes.items().iter().any(|item| item.text() == mode);
    let letters =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let letters: Vec<&str> = letters.into_iter().filter(|(mode, _)| given(mode)).map(|(_, letters)| letters).collect();
    letters.join(",")
}

fn driver(object: &CellJson<'_>, row: &mut RowWriter) {
    let spec = object.get("spec");
    row.text(name(object)).boolean(!matches!(spec.get("attachRequired"), CellJson::Bool(false)));
    row.boolean(spec.get("podInfoOnMount").is_true()).boolean(spec.get("storageCapacity").is_true());
    let requests = spec.get("tokenRequests");
    let audiences: Vec<&str> = requests.items().iter().map(|request| request.get("audience").text()).collect();
    row.text(&if requests.is_null() { "<unset>".to_owned() } else { audiences.join(",") });
    row.boolean(spec.get("requiresRepublish").is_true());
    let modes = joined(spec.get("volumeLifecycleModes"));
    // Default set by kube-apiserver.
    let absent = if spec.is_null() { "<none>" } else { "Persistent" };
    row.text(if modes.is_empty() { absent } else { &modes }).age(created(object));
}
