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
            text("Capacity", "How much it holds."),
            text("Access Modes", "How it can be mounted."),
            text("Reclaim Policy", "What becomes of it when its claim goes."),
            text("Status", "How the volume fares."),
            text("Claim", "Whose volume it is."),
            text("StorageClass", "The class it belongs to."),
            text("VolumeAttributesClass", "The class of its attributes."),
            text("Reason", "Why it fares so."),
            AGE,
            text("VolumeMode", "Whether it holds files or blocks.").wide(),
        ],
        print: volume,
    },
    TypeColumns {
        id: "persistentvolumeclaims",
        columns: &[
            NAME,
            text("Status", "How the claim fares."),
            text("Volume", "The volume it got."),
            text("Capacity", "How much that volume holds."),
            text("Access Modes", "How that volume can be mounted."),
            text("StorageClass", "The class that is wanted."),
            text("VolumeAttributesClass", "The class of attributes that is wanted."),
            AGE,
            text("VolumeMode", "Whether files or blocks are wanted.").wide(),
        ],
        print: claim,
    },
    TypeColumns {
        id: "storageclasses.storage.k8s.io",
        columns: &[
            NAME,
            text("Provisioner", "Who makes its volumes."),
            text("ReclaimPolicy", "What becomes of a volume when its claim goes."),
            text("VolumeBindingMode", "When volumes are made."),
            text("AllowVolumeExpansion", "Whether volumes can grow."),
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
        columns: &[NAME, text("DriverName", "Who knows its attributes."), AGE],
        print: |object, row| {
            class_name(object, DEFAULT_ATTRIBUTES, row).text(object.get("driverName").text()).age(created(object));
        },
    },
    TypeColumns {
        id: "volumeattachments.storage.k8s.io",
        columns: &[
            NAME,
            super::Column { format: "name", ..text("Attacher", "Who attaches the volume.") },
            text("PV", "The volume."),
            text("Node", "The node it is attached to."),
            boolean("Attached", "Whether it is attached now."),
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
            boolean("AttachRequired", "Whether volumes are attached before they are mounted."),
            boolean("PodInfoOnMount", "Whether it is told of the pod."),
            boolean("StorageCapacity", "Whether it says how much room there is."),
            text("TokenRequests", "Whom it wants tokens for."),
            boolean("RequiresRepublish", "Whether it is asked to mount again and again."),
            text("Modes", "Which volumes it knows."),
            AGE,
        ],
        print: driver,
    },
    TypeColumns {
        id: "csinodes.storage.k8s.io",
        columns: &[NAME, integer("Drivers", "Drivers on the node."), AGE],
        print: |object, row| {
            row.text(name(object)).integer(count(object.at("spec.drivers"))).age(created(object));
        },
    },
    TypeColumns {
        id: "csistoragecapacities.storage.k8s.io",
        columns: &[
            NAME,
            text("StorageClassName", "The class it is about."),
            text("Capacity", "How much room there is."),
        ],
        print: |object, row| {
            row.text(name(object)).text(object.get("storageClassName").text());
            row.text(&object.get("capacity").plain_or("<unset>"));
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
