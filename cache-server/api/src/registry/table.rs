//! Table of the built-in resource types, one entry per type, in the order of kube-apiserver's discovery.
//!
//! INVARIANT: data only; `registry.rs` is the only reader of the table and decides what its columns mean.
//!
//! Source: `pkg/registry/*/*/{storage/storage,strategy}.go` and `pkg/apis/*/*/conversion.go` of kubernetes/kubernetes.

use super::{REVIEW_VERBS, ScaleSelector, Subresource, VERBS, names::NameRule};

/// Treatment of `.status` by a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreatedStatus {
    /// Stored as sent: types without the subresource, and nodes, which register with their status.
    Retained,
    /// Dropped: only the status subresource writes it.
    Dropped,
    /// Replaced by a status with this phase only.
    Phase(&'static str),
}

/// Treatment of client-owned metadata (labels, annotations, finalizers, owners) by a write of `…/{name}/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Unchanged: custom resources and the newer built-in types.
    Stays,
    /// Written, except for these members.
    WrittenBut(&'static [&'static str]),
}

/// A member that every object has and no update may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedMember {
    /// Name of the member.
    pub member: &'static str,
    /// Value for objects that are created without one.
    pub default: &'static str,
}

/// A write-only member: its texts are stored as base64 values of another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texts {
    /// The member that clients write texts to.
    pub from: &'static str,
    /// The map of base64 values that receives them.
    pub to: &'static str,
}

/// Settings of a type's graceful deletion. Paths are dotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Path of the object's own grace period in seconds.
    pub seconds: &'static str,
    /// Grace period of an object without one.
    pub default_seconds: i64,
    /// Path of the node an object runs on. An object without a node is deleted at once.
    pub runs_at: &'static str,
    /// Path of the phase; objects in one of the phases `ended` are deleted at once.
    pub phase: &'static str,
    /// See [`Self::phase`].
    pub ended: &'static [&'static str],
}

/// Fate of the objects that an object owns, unless its delete says another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// They are deleted after it.
    Deleted,
    /// They stay, with a warning if there is one: types that are older than the garbage collector.
    Orphaned {
        /// Empty if there is none.
        warning: &'static str,
    },
    /// It owns none: no delete waits for the garbage collector.
    Uncollected,
}

/// Form of the error for an unsupported field selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFieldText {
    /// `"X" is not a known field selector: only "metadata.name", "metadata.namespace"`: types without a field list.
    Default,
    /// `field label not supported: X`.
    Plain,
    /// `field label not supported for {kind}: X`.
    Kind(&'static str),
    /// `field label "X" not supported for {kind}`.
    Quoted(&'static str),
}

/// One group version and its types.
pub(crate) struct Group {
    pub name: &'static str,
    pub version: &'static str,
    pub rows: &'static [TypeRow],
}

/// A type. Its constructors give the columns their most common values.
#[derive(Clone, Copy)]
pub(crate) struct TypeRow {
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub fields: Fields,
    pub name_rule: NameRule,
    pub has_status: bool,
    pub created_status: CreatedStatus,
    pub status_metadata: StatusMetadata,
    pub fixed: Option<FixedMember>,
    pub texts: Option<Texts>,
    pub tracks_generation: bool,
    pub tracked_metadata: &'static [&'static str],
    pub returns_deleted: bool,
    pub grace: Option<&'static Grace>,
    pub dependents: Dependents,
    pub holds_objects: bool,
    pub unconditional_update: bool,
    pub create_on_update: bool,
    pub defines_types: bool,
    pub etcd_folder: Option<&'static str>,
    pub equal_versions: &'static [&'static str],
    /// Form of the selector at `spec.selector`, for types with the scale subresource.
    pub scale: Option<fn(String) -> ScaleSelector>,
    pub subresources: &'static [Subresource],
}

/// Selectable fields beyond `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy)]
pub(crate) struct Fields {
    /// (label, path, value if absent or empty, which kube-apiserver would fill in).
    pub own: &'static [(&'static str, &'static str, &'static str)],
    pub unknown: UnknownFieldText,
    /// A field that may be empty, and the field that is used instead; both by label.
    pub or: Option<(&'static str, &'static str)>,
}

impl Fields {
    const fn of(own: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        Self { own, unknown: UnknownFieldText::Plain, or: None }
    }

    const fn or(self, empty: &'static str, other: &'static str) -> Self {
        Self { or: Some((empty, other)), ..self }
    }

    const fn refused(self, unknown: UnknownFieldText) -> Self {
        Self { unknown, ..self }
    }
}

const POD: Fields = Fields::of(&[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.host", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", "Always"),
    ("spec.schedulerName", "spec.schedulerName", "default-scheduler"),
    ("spec.serviceAccountName", "spec.serviceAccountName", "default"),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    // The value is a list, not a scalar, so it counts as empty, as in kube-apiserver.
    ("status.podIPs", "status.podIPs", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
]);
const EVENT: Fields = Fields::of(&[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
])
.or("source", "reportingComponent");
const NODE: Fields = Fields::of(&[("spec.unschedulable", "spec.unschedulable", "false")]);
const NAMESPACE: Fields = Fields::of(&[("status.phase", "status.phase", "Active")]);
const SECRET: Fields = Fields::of(&[("type", "type", "Opaque")]);
const SERVICE: Fields =
    Fields::of(&[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "ClusterIP")]);
const REPLICATION_CONTROLLER: Fields = Fields::of(&[("status.replicas", "status.replicas", "0")]);
const JOB: Fields =
    Fields::of(&[("status.successful", "status.succeeded", "0")]).refused(UnknownFieldText::Quoted("Job"));
const RESOURCE_SLICE: Fields =
    Fields::of(&[("spec.nodeName", "spec.nodeName", ""), ("spec.driver", "spec.driver", "")])
        .refused(UnknownFieldText::Kind("resource.k8s.io/v1, Kind=ResourceSlice"));
const SIGNING_REQUEST: Fields = Fields::of(&[("spec.signerName", "spec.signerName", "")]);

const fn namespaced(plural: &'static str, kind: &'static str) -> TypeRow {
    TypeRow {
        plural,
        kind,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: &VERBS,
        fields: Fields::of(&[]).refused(UnknownFieldText::Default),
        name_rule: NameRule::Subdomain,
        has_status: false,
        created_status: CreatedStatus::Retained,
        status_metadata: StatusMetadata::WrittenBut(&[]),
        fixed: None,
        texts: None,
        tracks_generation: false,
        tracked_metadata: &[],
        returns_deleted: false,
        grace: None,
        dependents: Dependents::Deleted,
        holds_objects: false,
        unconditional_update: true,
        create_on_update: false,
        defines_types: false,
        etcd_folder: None,
        equal_versions: &[],
        scale: None,
        subresources: &[],
    }
}

const fn cluster(plural: &'static str, kind: &'static str) -> TypeRow {
    TypeRow { namespaced: false, ..namespaced(plural, kind) }
}

impl TypeRow {
    const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    /// Adds the type to `kubectl get all`.
    const fn all(self) -> Self {
        Self { categories: &["all"], ..self }
    }

    /// Adds the type to `kubectl get api-extensions`.
    const fn extends(self) -> Self {
        Self { categories: &["api-extensions"], ..self }
    }

    const fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    const fn fields(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    const fn named(self, name_rule: NameRule) -> Self {
        Self { name_rule, ..self }
    }

    const fn status(self) -> Self {
        Self { has_status: true, created_status: CreatedStatus::Dropped, ..self }
    }

    const fn created(self, created_status: CreatedStatus) -> Self {
        Self { created_status, ..self }
    }

    /// A write of the status leaves metadata unchanged.
    const fn status_alone(self) -> Self {
        Self { status_metadata: StatusMetadata::Stays, ..self }
    }

    /// A write of the status leaves these members of metadata unchanged.
    const fn status_without(self, members: &'static [&'static str]) -> Self {
        Self { status_metadata: StatusMetadata::WrittenBut(members), ..self }
    }

    const fn fixed(self, member: &'static str, default: &'static str) -> Self {
        Self { fixed: Some(FixedMember { member, default }), ..self }
    }

    const fn texts(self, from: &'static str, to: &'static str) -> Self {
        Self { texts: Some(Texts { from, to }), ..self }
    }

    const fn generation(self) -> Self {
        Self { tracks_generation: true, ..self }
    }

    /// Changes of these members of metadata count too.
    const fn generation_with(self, member: &'static [&'static str]) -> Self {
        Self { tracked_metadata: member, ..self.generation() }
    }

    /// An immediate delete returns the last object instead of a Status.
    const fn returned(self) -> Self {
        Self { returns_deleted: true, ..self }
    }

    /// Deletes are graceful.
    const fn graceful(self, grace: &'static Grace) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// Sets the fate of the objects that its objects own.
    const fn dependents(self, dependents: Dependents) -> Self {
        Self { dependents, ..self }
    }

    /// Other objects live in objects of this type.
    const fn holding(self) -> Self {
        Self { holds_objects: true, ..self }
    }

    /// An update must include the resourceVersion that it replaces.
    const fn versioned(self) -> Self {
        Self { unconditional_update: false, ..self }
    }

    /// An update of a missing object creates it.
    const fn upserted(self) -> Self {
        Self { create_on_update: true, ..self }
    }

    /// Adds the scale subresource.
    const fn scale(self, selector: fn(String) -> ScaleSelector) -> Self {
        Self { scale: Some(selector), ..self }
    }

    /// Adds subresources beside `status` and `scale`.
    const fn with(self, subresources: &'static [Subresource]) -> Self {
        Self { subresources, ..self }
    }

    const fn types(self) -> Self {
        Self { defines_types: true, ..self }
    }

    /// Sets the folder of its objects in etcd.
    const fn folder(self, folder: &'static str) -> Self {
        Self { etcd_folder: Some(folder), ..self }
    }

    /// Sets the other versions at which stored values have equal members and meaning.
    const fn equals(self, versions: &'static [&'static str]) -> Self {
        Self { equal_versions: versions, ..self }
    }
}

const POD_GRACE: Grace = Grace {
    seconds: "spec.terminationGracePeriodSeconds",
    default_seconds: 30,
    runs_at: "spec.nodeName",
    phase: "status.phase",
    ended: &["Failed", "Succeeded"],
};

/// The warning about a deleted Job.
const JOB_DELETED: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                           remove them or set propagationPolicy=Orphan to suppress this warning";

const PENDING: CreatedStatus = CreatedStatus::Phase("Pending");
const ACTIVE: CreatedStatus = CreatedStatus::Phase("Active");

/// Namespaces have no `deletecollection`.
const NAMESPACE_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// All built-in types.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "",
        version: "v1",
        rows: &[
            namespaced("configmaps", "ConfigMap").short(&["cm"]),
            namespaced("endpoints", "Endpoints").folder("services/endpoints").short(&["ep"]).upserted(),
            namespaced("events", "Event")
                .short(&["ev"])
                .fields(EVENT)
                .named(NameRule::PathSegment)
                .dependents(Dependents::Uncollected)
                .upserted(),
            namespaced("limitranges", "LimitRange").short(&["limits"]).upserted(),
            cluster("namespaces", "Namespace")
                .short(&["ns"])
                .fields(NAMESPACE)
                .named(NameRule::Label)
                .status()
                .created(ACTIVE)
                .with(&[Subresource::Finalize])
                .verbs(&NAMESPACE_VERBS)
                .returned()
                .holding(),
            cluster("nodes", "Node")
                .folder("minions")
                .short(&["no"])
                .fields(NODE)
                .status()
                .created(CreatedStatus::Retained),
            namespaced("persistentvolumeclaims", "PersistentVolumeClaim")
                .short(&["pvc"])
                .status()
                .created(PENDING)
                .returned(),
            cluster("persistentvolumes", "PersistentVolume").short(&["pv"]).status().created(PENDING).returned(),
            namespaced("pods", "Pod")
                .short(&["po"])
                .all()
                .fields(POD)
                .status()
                .status_without(&["deletionTimestamp", "ownerReferences"])
                .created(PENDING)
                .generation()
                .returned()
                .graceful(&POD_GRACE)
                .with(&[Subresource::Binding, Subresource::EphemeralContainers, Subresource::Eviction]),
            namespaced("podtemplates", "PodTemplate").generation().returned(),
            namespaced("replicationcontrollers", "ReplicationController")
                .folder("controllers")
                .short(&["rc"])
                .all()
                .fields(REPLICATION_CONTROLLER)
                .status()
                .scale(ScaleSelector::Map)
                .dependents(Dependents::Orphaned { warning: "" })
                .generation(),
            namespaced("resourcequotas", "ResourceQuota").short(&["quota"]).status().returned(),
            namespaced("secrets", "Secret").fields(SECRET).fixed("type", "Opaque").texts("stringData", "data"),
            namespaced("serviceaccounts", "ServiceAccount").short(&["sa"]).returned().with(&[Subresource::Token]),
            namespaced("services", "Service")
                .folder("services/specs")
                .short(&["svc"])
                .all()
                .fields(SERVICE)
                .named(NameRule::Label)
                .status()
                .upserted()
                .returned(),
        ],
    },
    Group {
        name: "apiregistration.k8s.io",
        version: "v1",
        rows: &[cluster("apiservices", "APIService")
            .folder("apiregistration.k8s.io/apiservices")
            .equals(&["v1beta1"])
            .extends()
            .status()
            .status_alone()
            .versioned()],
    },
    Group {
        name: "apps",
        version: "v1",
        rows: &[
            namespaced("controllerrevisions", "ControllerRevision").equals(&["v1beta1", "v1beta2"]),
            namespaced("daemonsets", "DaemonSet").equals(&["v1beta2"]).short(&["ds"]).all().status().generation(),
            namespaced("deployments", "Deployment")
                .equals(&["v1beta2"])
                .short(&["deploy"])
                .all()
                .status()
                .status_without(&["labels"])
                .scale(ScaleSelector::Labels)
                .generation_with(&["annotations"]),
            namespaced("replicasets", "ReplicaSet")
                .equals(&["v1beta2"])
                .short(&["rs"])
                .all()
                .status()
                .scale(ScaleSelector::Labels)
                .generation(),
            namespaced("statefulsets", "StatefulSet")
                .equals(&["v1beta2"])
                .short(&["sts"])
                .all()
                .status()
                .scale(ScaleSelector::Labels)
                .generation(),
        ],
    },
    // Groups of reviews only.
    Group { name: "authentication.k8s.io", version: "v1", rows: &[] },
    Group { name: "authorization.k8s.io", version: "v1", rows: &[] },
    Group {
        name: "autoscaling",
        version: "v2",
        rows: &[namespaced("horizontalpodautoscalers", "HorizontalPodAutoscaler").short(&["hpa"]).all().status()],
    },
    Group {
        name: "batch",
        version: "v1",
        rows: &[
            namespaced("cronjobs", "CronJob").equals(&["v1beta1"]).short(&["cj"]).all().status().generation(),
            namespaced("jobs", "Job")
                .all()
                .fields(JOB)
                .dependents(Dependents::Orphaned { warning: JOB_DELETED })
                .status()
                .generation(),
        ],
    },
    Group {
        name: "certificates.k8s.io",
        version: "v1",
        rows: &[cluster("certificatesigningrequests", "CertificateSigningRequest")
            .short(&["csr"])
            .fields(SIGNING_REQUEST)
            .named(NameRule::PathSegment)
            .status()
            .with(&[Subresource::Approval])],
    },
    Group {
        name: "networking.k8s.io",
        version: "v1",
        rows: &[
            cluster("ingressclasses", "IngressClass").equals(&["v1beta1"]).generation(),
            namespaced("ingresses", "Ingress").folder("ingress").short(&["ing"]).status().generation(),
            // The name is the address itself, and IPv6 addresses contain colons.
            cluster("ipaddresses", "IPAddress").equals(&["v1beta1"]).short(&["ip"]).named(NameRule::PathSegment),
            namespaced("networkpolicies", "NetworkPolicy").short(&["netpol"]).generation(),
            // A create stores the status as sent.
            cluster("servicecidrs", "ServiceCIDR")
                .equals(&["v1beta1"])
                .status()
                .status_alone()
                .created(CreatedStatus::Retained),
        ],
    },
    Group {
        name: "policy",
        version: "v1",
        rows: &[namespaced("poddisruptionbudgets", "PodDisruptionBudget")
            .short(&["pdb"])
            .status()
            .generation()
            .versioned()],
    },
    Group {
        name: "rbac.authorization.k8s.io",
        version: "v1",
        rows: &[
            cluster("clusterrolebindings", "ClusterRoleBinding")
                .equals(&["v1beta1"])
                .named(NameRule::PathSegment)
                .upserted(),
            cluster("clusterroles", "ClusterRole").equals(&["v1beta1"]).named(NameRule::PathSegment).upserted(),
            namespaced("rolebindings", "RoleBinding").equals(&["v1beta1"]).named(NameRule::PathSegment).upserted(),
            namespaced("roles", "Role").equals(&["v1beta1"]).named(NameRule::PathSegment).upserted(),
        ],
    },
    Group {
        name: "storage.k8s.io",
        version: "v1",
        rows: &[
            cluster("csidrivers", "CSIDriver").equals(&["v1beta1"]).returned().versioned(),
            cluster("csinodes", "CSINode").equals(&["v1beta1"]).returned().versioned(),
            namespaced("csistoragecapacities", "CSIStorageCapacity").equals(&["v1beta1"]).versioned(),
            cluster("storageclasses", "StorageClass").equals(&["v1beta1"]).short(&["sc"]).returned(),
            cluster("volumeattachments", "VolumeAttachment")
                .equals(&["v1beta1"])
                .status()
                .status_alone()
                .returned()
                .versioned(),
            cluster("volumeattributesclasses", "VolumeAttributesClass").equals(&["v1beta1"]).short(&["vac"]).returned(),
        ],
    },
    Group {
        name: "admissionregistration.k8s.io",
        version: "v1",
        rows: &[
            cluster("mutatingadmissionpolicies", "MutatingAdmissionPolicy")
                .equals(&["v1beta1"])
                .extends()
                .generation()
                .versioned(),
            cluster("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding")
                .equals(&["v1beta1"])
                .extends()
                .generation()
                .versioned(),
            cluster("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
                .equals(&["v1beta1"])
                .extends()
                .generation()
                .versioned(),
            cluster("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
                .equals(&["v1beta1"])
                .extends()
                .status()
                .status_alone()
                .generation()
                .versioned(),
            cluster("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
                .equals(&["v1beta1"])
                .extends()
                .generation()
                .versioned(),
            cluster("validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
                .equals(&["v1beta1"])
                .extends()
                .generation()
                .versioned(),
        ],
    },
    Group {
        name: "apiextensions.k8s.io",
        version: "v1",
        rows: &[cluster("customresourcedefinitions", "CustomResourceDefinition")
            .folder("apiextensions.k8s.io/customresourcedefinitions")
            .short(&["crd", "crds"])
            .extends()
            .status()
            .generation()
            .versioned()
            .types()],
    },
    Group {
        name: "scheduling.k8s.io",
        version: "v1",
        rows: &[cluster("priorityclasses", "PriorityClass").equals(&["v1beta1"]).short(&["pc"]).generation()],
    },
    Group {
        name: "coordination.k8s.io",
        version: "v1",
        rows: &[namespaced("leases", "Lease").equals(&["v1beta1"]).versioned().upserted()],
    },
    Group {
        name: "node.k8s.io",
        version: "v1",
        rows: &[cluster("runtimeclasses", "RuntimeClass").equals(&["v1beta1"]).versioned()],
    },
    Group {
        name: "discovery.k8s.io",
        version: "v1",
        rows: &[namespaced("endpointslices", "EndpointSlice").generation_with(&["labels"])],
    },
    Group {
        name: "flowcontrol.apiserver.k8s.io",
        version: "v1",
        rows: &[
            cluster("flowschemas", "FlowSchema")
                .equals(&["v1beta1", "v1beta2", "v1beta3"])
                .status()
                .status_alone()
                .generation(),
            cluster("prioritylevelconfigurations", "PriorityLevelConfiguration").status().status_alone().generation(),
        ],
    },
    Group {
        name: "resource.k8s.io",
        version: "v1",
        rows: &[
            cluster("deviceclasses", "DeviceClass").equals(&["v1beta1", "v1beta2"]).generation().returned(),
            namespaced("resourceclaims", "ResourceClaim").equals(&["v1beta2"]).status().status_alone().returned(),
            namespaced("resourceclaimtemplates", "ResourceClaimTemplate").equals(&["v1beta2"]).returned(),
            cluster("resourceslices", "ResourceSlice")
                .equals(&["v1beta2"])
                .fields(RESOURCE_SLICE)
                .generation()
                .returned(),
        ],
    },
];

const BINDINGS: TypeRow = namespaced("bindings", "Binding").verbs(&REVIEW_VERBS);

/// Types of the objects that are sent to subresources.
pub(crate) const SENT: &[Group] = &[
    Group { name: "", version: "v1", rows: &[BINDINGS] },
    Group { name: "policy", version: "v1", rows: &[namespaced("evictions", "Eviction").verbs(&REVIEW_VERBS)] },
    Group {
        name: "authentication.k8s.io",
        version: "v1",
        rows: &[namespaced("tokenrequests", "TokenRequest").verbs(&REVIEW_VERBS)],
    },
];

/// Types whose objects are questions or orders: a create is answered with a status, and nothing is stored.
pub(crate) const REVIEWS: &[Group] = &[
    Group { name: "", version: "v1", rows: &[BINDINGS] },
    Group {
        name: "authentication.k8s.io",
        version: "v1",
        rows: &[
            cluster("selfsubjectreviews", "SelfSubjectReview").verbs(&REVIEW_VERBS),
            cluster("tokenreviews", "TokenReview").verbs(&REVIEW_VERBS),
        ],
    },
    Group {
        name: "authorization.k8s.io",
        version: "v1",
        rows: &[
            namespaced("localsubjectaccessreviews", "LocalSubjectAccessReview").verbs(&REVIEW_VERBS),
            cluster("selfsubjectaccessreviews", "SelfSubjectAccessReview").verbs(&REVIEW_VERBS),
            cluster("selfsubjectrulesreviews", "SelfSubjectRulesReview").verbs(&REVIEW_VERBS),
            cluster("subjectaccessreviews", "SubjectAccessReview").verbs(&REVIEW_VERBS),
        ],
    },
];
