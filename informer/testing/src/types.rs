//! Resource types of a fake server, and routing of paths to objects.
//!
//! INVARIANT: built-in types are served from the start, as by every API server; others once they are declared or
//! written.

use std::sync::Arc;

use informer_serving::query::unescape;
use serde_json::Value;

/// One resource type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FakeType {
    /// Empty for the core group.
    pub(super) group: String,
    /// `v1`, `apps/v1`.
    pub(super) api_version: String,
    /// As in the path: `pods`.
    pub(super) plural: String,
    /// `Pod`.
    pub(super) kind: String,
    /// True if its objects are namespaced; `None` if unknown, then both scopes are served.
    pub(super) namespaced: Option<bool>,
    /// True if lists have the form of built-in types, whose items carry no kind.
    pub(super) builtin: bool,
}

impl FakeType {
    pub(super) fn new(api_version: &str, plural: &str, kind: &str, namespaced: Option<bool>) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            api_version: api_version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            builtin: false,
        }
    }

    /// `namespace/name`, or `name`.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
    }

    /// Fields its objects can be selected by, besides name and namespace; `None` allows every scalar.
    pub(super) fn fields(&self) -> Option<&'static [&'static str]> {
        let known = |(api_version, kind, _): &&Selectable| *api_version == self.api_version && *kind == self.kind;
        match SELECTABLE.iter().find(known) {
            Some((_, _, fields)) => Some(fields),
            None if self.builtin => Some(&[]),
            None => None,
        }
    }

    /// Returns true if kube-apiserver refuses unknown fields of the type with the error text of its own conversion.
    pub(super) fn refuses_in_its_own_words(&self) -> bool {
        !self.builtin || self.fields().is_some_and(|fields| !fields.is_empty())
    }
}

/// `apiVersion`, kind, fields.
type Selectable = (&'static str, &'static str, &'static [&'static str]);

/// Source: `pkg/apis/core/v1/conversion.go` of kubernetes/kubernetes.
const SELECTABLE: &[Selectable] = &[
    (
        "v1",
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    ("v1", "Node", &["spec.unschedulable"]),
    ("v1", "Namespace", &["status.phase"]),
    ("v1", "Secret", &["type"]),
    ("v1", "Service", &["spec.clusterIP", "spec.type"]),
    ("v1", "ReplicationController", &["status.replicas"]),
    (
        "v1",
        "Event",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("batch/v1", "Job", &["status.successful"]),
];

/// `apiVersion`, namespaced types, cluster-scoped types, each as `plural=Kind`.
type GroupTypes = (&'static str, &'static [&'static str], &'static [&'static str]);

const BUILTIN: &[GroupTypes] = &[
    (
        "v1",
        &[
            "configmaps=ConfigMap",
            "endpoints=Endpoints",
            "events=Event",
            "limitranges=LimitRange",
            "persistentvolumeclaims=PersistentVolumeClaim",
            "pods=Pod",
            "podtemplates=PodTemplate",
            "replicationcontrollers=ReplicationController",
            "resourcequotas=ResourceQuota",
            "secrets=Secret",
            "serviceaccounts=ServiceAccount",
            "services=Service",
        ],
        &["namespaces=Namespace", "nodes=Node", "persistentvolumes=PersistentVolume"],
    ),
    (
        "apps/v1",
        &[
            "controllerrevisions=ControllerRevision",
            "daemonsets=DaemonSet",
            "deployments=Deployment",
            "replicasets=ReplicaSet",
            "statefulsets=StatefulSet",
        ],
        &[],
    ),
    ("autoscaling/v2", &["horizontalpodautoscalers=HorizontalPodAutoscaler"], &[]),
    ("batch/v1", &["cronjobs=CronJob", "jobs=Job"], &[]),
    ("coordination.k8s.io/v1", &["leases=Lease"], &[]),
    ("discovery.k8s.io/v1", &["endpointslices=EndpointSlice"], &[]),
    ("networking.k8s.io/v1", &["ingresses=Ingress", "networkpolicies=NetworkPolicy"], &["ingressclasses=IngressClass"]),
    ("policy/v1", &["poddisruptionbudgets=PodDisruptionBudget"], &[]),
    (
        "rbac.authorization.k8s.io/v1",
        &["rolebindings=RoleBinding", "roles=Role"],
        &["clusterrolebindings=ClusterRoleBinding", "clusterroles=ClusterRole"],
    ),
    ("scheduling.k8s.io/v1", &[], &["priorityclasses=PriorityClass"]),
    ("storage.k8s.io/v1", &[], &["csinodes=CSINode", "storageclasses=StorageClass"]),
];

/// The types that every server serves.
pub(super) fn builtin() -> impl Iterator<Item = FakeType> {
    let rows = BUILTIN.iter().flat_map(|(api_version, inside, outside)| {
        let inside = inside.iter().map(|row| (row, true));
        let rows = inside.chain(outside.iter().map(|row| (row, false)));
        rows.map(move |(row, namespaced)| (*api_version, *row, namespaced))
    });
    rows.filter_map(|(api_version, row, namespaced)| {
        let (plural, kind) = row.split_once('=')?;
        Some(FakeType { builtin: true, ..FakeType::new(api_version, plural, kind, Some(namespaced)) })
    })
}

/// Plural of CustomResourceDefinitions.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions";

/// The types that a CustomResourceDefinition defines, one for each version; empty if it is malformed.
pub(super) fn defined(definition: &Value) -> Vec<FakeType> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (Some(group), Some(plural), Some(kind)) =
        (text(&spec["group"]), text(&spec["names"]["plural"]), text(&spec["names"]["kind"]))
    else {
        return Vec::new();
    };
    let namespaced = Some(spec["scope"] == "Namespaced");
    let versions = spec["versions"].as_array().into_iter().flatten().filter_map(|version| version["name"].as_str());
    versions.map(|version| FakeType::new(&format!("{group}/{version}"), &plural, &kind, namespaced)).collect()
}

/// Target of a path.
#[derive(Clone, Debug)]
pub(super) struct PathTarget {
    pub(super) ty: Arc<FakeType>,
    /// The namespace in the path.
    pub(super) namespace: Option<String>,
    /// The object; `None` for the collection.
    pub(super) name: Option<String>,
    /// `status`.
    #[cfg_attr(not(feature = "writes"), expect(dead_code, reason = "only writes differ by it"))]
    pub(super) subresource: Option<String>,
}

impl PathTarget {
    /// Key of the object `name`.
    pub(super) fn key(&self, name: &str) -> String {
        self.ty.key(self.namespace.as_deref().unwrap_or_default(), name)
    }

    /// Returns true if objects of the type are namespaced, as far as known.
    pub(super) fn namespaced(&self) -> bool {
        self.ty.namespaced.unwrap_or_else(|| self.namespace.is_some())
    }
}

/// Parses a path; `find` looks up a type by `apiVersion` and plural.
pub(super) fn route(path: &str, find: impl Fn(&str, &str) -> Option<Arc<FakeType>>) -> Option<PathTarget> {
    let segments =
        path.trim_matches('/').split('/').map(|segment| unescape(segment, false)).collect::<Option<Vec<_>>>()?;
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let (api_version, rest) = match *segments {
        ["api", version, ref rest @ ..] => (version.to_owned(), rest),
        ["apis", group, version, ref rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return None,
    };
    let (namespace, plural, rest) = match *rest {
        ["namespaces", namespace, plural, ref rest @ ..] if !matches!(plural, "status" | "finalize") => {
            (Some(namespace), plural, rest)
        }
        [plural, ref rest @ ..] => (None, plural, rest),
        [] => return None,
    };
    let (name, subresource) = match *rest {
        [] => (None, None),
        [name] => (Some(name), None),
        [name, "status"] => (Some(name), Some("status")),
        _ => return None,
    };
    let ty = find(&api_version, plural)?;
    let fits = match ty.namespaced {
        Some(true) => namespace.is_some() || name.is_none(),
        Some(false) => namespace.is_none(),
        None => true,
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let named = [namespace, name].into_iter().flatten().all(|segment| !segment.is_empty());
    (fits && named).then(|| PathTarget {
        ty,
        namespace: owned(namespace),
        name: owned(name),
        subresource: owned(subresource),
    })
}
