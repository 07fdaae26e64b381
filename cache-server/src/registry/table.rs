//! The built-in resource types, one line a type, in the order of kube-apiserver's discovery.
//!
//! INVARIANT: data only. What a column means is decided in `registry.rs`; nothing else reads this table.
//!
//! Source: `pkg/registry/*/*/{storage/storage,strategy}.go` and `pkg/apis/*/*/conversion.go` of kubernetes/kubernetes.

use super::names::NameRule;

/// What a create does with `.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreatedStatus {
    /// Stored as sent: types without the subresource, and nodes, which register with their status.
    Kept,
    /// Dropped: only the status subresource writes it.
    Dropped,
    /// Replaced by this phase alone.
    Phase(&'static str),
}

/// One group version and its types.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) rows: &'static [Row],
}

/// One type. Columns left out have the value that most types have.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    pub(super) short_names: &'static [&'static str],
    pub(super) in_all: bool,
    pub(super) fields: Fields,
    pub(super) name_rule: NameRule,
    pub(super) has_status: bool,
    pub(super) created_status: CreatedStatus,
    pub(super) tracks_generation: bool,
    pub(super) returns_deleted: bool,
    pub(super) unconditional_update: bool,
}

/// Selectable fields beyond `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy)]
pub(super) enum Fields {
    /// None, and an unknown one is refused in the words of the default conversion.
    Default,
    /// These, as (label, path, value when absent).
    Own(&'static [(&'static str, &'static str, &'static str)]),
}

const POD: Fields = Fields::Own(&[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.host", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", ""),
    ("spec.schedulerName", "spec.schedulerName", ""),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    // A list: no scalar stands there, so it selects as empty, in kube-apiserver too.
    ("status.podIPs", "status.podIPs", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
]);
const EVENT: Fields = Fields::Own(&[
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
]);
const NODE: Fields = Fields::Own(&[("spec.unschedulable", "spec.unschedulable", "false")]);
const NAMESPACE: Fields = Fields::Own(&[("status.phase", "status.phase", "")]);
const SECRET: Fields = Fields::Own(&[("type", "type", "")]);
const SERVICE: Fields = Fields::Own(&[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")]);
const REPLICATION_CONTROLLER: Fields = Fields::Own(&[("status.replicas", "status.replicas", "0")]);
const JOB: Fields = Fields::Own(&[("status.successful", "status.succeeded", "0")]);
const SIGNING_REQUEST: Fields = Fields::Own(&[("spec.signerName", "spec.signerName", "")]);

const fn namespaced(plural: &'static str, kind: &'static str) -> Row {
    Row {
        plural,
        kind,
        namespaced: true,
        short_names: &[],
        in_all: false,
        fields: Fields::Default,
        name_rule: NameRule::Subdomain,
        has_status: false,
        created_status: CreatedStatus::Kept,
        tracks_generation: false,
        returns_deleted: false,
        unconditional_update: true,
    }
}

const fn cluster(plural: &'static str, kind: &'static str) -> Row {
    Row { namespaced: false, ..namespaced(plural, kind) }
}

impl Row {
    const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    /// Shown by `kubectl get all`.
    const fn all(self) -> Self {
        Self { in_all: true, ..self }
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

    const fn generation(self) -> Self {
        Self { tracks_generation: true, ..self }
    }

    /// An immediate delete answers the last object instead of a Status.
    const fn returned(self) -> Self {
        Self { returns_deleted: true, ..self }
    }

    /// An update must name the resourceVersion that it replaces.
    const fn versioned(self) -> Self {
        Self { unconditional_update: false, ..self }
    }
}

const PENDING: CreatedStatus = CreatedStatus::Phase("Pending");
const ACTIVE: CreatedStatus = CreatedStatus::Phase("Active");

/// All built-in types.
pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "",
        version: "v1",
        rows: &[
            namespaced("configmaps", "ConfigMap").short(&["cm"]),
            namespaced("endpoints", "Endpoints").short(&["ep"]),
            namespaced("events", "Event").short(&["ev"]).fields(EVENT).named(NameRule::PathSegment),
            namespaced("limitranges", "LimitRange").short(&["limits"]),
            cluster("namespaces", "Namespace")
                .short(&["ns"])
                .fields(NAMESPACE)
                .named(NameRule::Label)
                .status()
                .created(ACTIVE)
                .returned(),
            cluster("nodes", "Node").short(&["no"]).fields(NODE).status().created(CreatedStatus::Kept),
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
                .created(PENDING)
                .generation()
                .returned(),
            namespaced("podtemplates", "PodTemplate").generation().returned(),
            namespaced("replicationcontrollers", "ReplicationController")
                .short(&["rc"])
                .all()
                .fields(REPLICATION_CONTROLLER)
                .status()
                .generation(),
            namespaced("resourcequotas", "ResourceQuota").short(&["quota"]).status().returned(),
            namespaced("secrets", "Secret").fields(SECRET),
            namespaced("serviceaccounts", "ServiceAccount").short(&["sa"]).returned(),
            namespaced("services", "Service")
                .short(&["svc"])
                .all()
                .fields(SERVICE)
                .named(NameRule::ServiceLabel)
                .status()
                .returned(),
        ],
    },
    Group {
        name: "apps",
        version: "v1",
        rows: &[
            namespaced("controllerrevisions", "ControllerRevision"),
            namespaced("daemonsets", "DaemonSet").short(&["ds"]).all().status().generation(),
            namespaced("deployments", "Deployment").short(&["deploy"]).all().status().generation(),
            namespaced("replicasets", "ReplicaSet").short(&["rs"]).all().status().generation(),
            namespaced("statefulsets", "StatefulSet").short(&["sts"]).all().status().generation(),
        ],
    },
    Group {
        name: "autoscaling",
        version: "v2",
        rows: &[namespaced("horizontalpodautoscalers", "HorizontalPodAutoscaler").short(&["hpa"]).all().status()],
    },
    Group {
        name: "batch",
        version: "v1",
        rows: &[
            namespaced("cronjobs", "CronJob").short(&["cj"]).all().status().generation(),
            namespaced("jobs", "Job").all().fields(JOB).status().generation(),
        ],
    },
    Group {
        name: "certificates.k8s.io",
        version: "v1",
        rows: &[cluster("certificatesigningrequests", "CertificateSigningRequest")
            .short(&["csr"])
            .fields(SIGNING_REQUEST)
            .named(NameRule::PathSegment)
            .status()],
    },
    Group {
        name: "networking.k8s.io",
        version: "v1",
        rows: &[
            cluster("ingressclasses", "IngressClass").generation(),
            namespaced("ingresses", "Ingress").short(&["ing"]).status().generation(),
            // Named by the address itself, and an IPv6 one holds colons.
            cluster("ipaddresses", "IPAddress").short(&["ip"]).named(NameRule::PathSegment),
            namespaced("networkpolicies", "NetworkPolicy").short(&["netpol"]).generation(),
            cluster("servicecidrs", "ServiceCIDR").status(),
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
            cluster("clusterrolebindings", "ClusterRoleBinding").named(NameRule::PathSegment),
            cluster("clusterroles", "ClusterRole").named(NameRule::PathSegment),
            namespaced("rolebindings", "RoleBinding").named(NameRule::PathSegment),
            namespaced("roles", "Role").named(NameRule::PathSegment),
        ],
    },
    Group {
        name: "storage.k8s.io",
        version: "v1",
        rows: &[
            cluster("csidrivers", "CSIDriver").returned().versioned(),
            cluster("csinodes", "CSINode").returned().versioned(),
            namespaced("csistoragecapacities", "CSIStorageCapacity").returned().versioned(),
            cluster("storageclasses", "StorageClass").short(&["sc"]).returned(),
            cluster("volumeattachments", "VolumeAttachment").status().returned().versioned(),
            cluster("volumeattributesclasses", "VolumeAttributesClass").short(&["vac"]).returned(),
        ],
    },
    Group {
        name: "admissionregistration.k8s.io",
        version: "v1",
        rows: &[
            cluster("mutatingwebhookconfigurations", "MutatingWebhookConfiguration").generation().versioned(),
            cluster("validatingadmissionpolicies", "ValidatingAdmissionPolicy").status().generation().versioned(),
            cluster("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding").generation().versioned(),
            cluster("validatingwebhookconfigurations", "ValidatingWebhookConfiguration").generation().versioned(),
        ],
    },
    Group {
        name: "scheduling.k8s.io",
        version: "v1",
        rows: &[cluster("priorityclasses", "PriorityClass").short(&["pc"]).generation()],
    },
    Group { name: "coordination.k8s.io", version: "v1", rows: &[namespaced("leases", "Lease").versioned()] },
    Group { name: "node.k8s.io", version: "v1", rows: &[cluster("runtimeclasses", "RuntimeClass").versioned()] },
    Group {
        name: "discovery.k8s.io",
        version: "v1",
        rows: &[namespaced("endpointslices", "EndpointSlice").generation()],
    },
    Group {
        name: "flowcontrol.apiserver.k8s.io",
        version: "v1",
        rows: &[
            cluster("flowschemas", "FlowSchema").status().generation().versioned(),
            cluster("prioritylevelconfigurations", "PriorityLevelConfiguration").status().generation().versioned(),
        ],
    },
];
