//! The members of pods, volumes, attachments and slices that relate objects to nodes.
//!
//! Source: Kubernetes `pkg/api/v1/pod/util.go`, `pkg/api/v1/persistentvolume/util.go`.

use std::collections::BTreeMap;

use informer_serving::go::quote;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::graph::ReferencedKind;
use crate::rbac::nullable;

/// Annotation of pods that a node wrote.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The node of a pod, and the objects in its namespace that it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodReferences {
    /// Name of the node; empty before the pod is scheduled.
    pub node: String,
    /// Kind and name of each object.
    pub references: Vec<(ReferencedKind, String)>,
}

/// The claim of a volume, and the secrets that its nodes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeReferences {
    pub claim_namespace: String,
    pub claim_name: String,
    /// Namespace and name of each secret.
    pub secrets: Vec<(String, String)>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodObject {
    #[serde(deserialize_with = "nullable")]
    metadata: PodMetadata,
    #[serde(deserialize_with = "nullable")]
    spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMetadata {
    #[serde(deserialize_with = "nullable")]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    node_name: String,
    #[serde(deserialize_with = "nullable")]
    service_account_name: String,
    #[serde(deserialize_with = "nullable")]
    service_account: String,
    #[serde(deserialize_with = "nullable")]
    image_pull_secrets: Vec<NamedReference>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<PodContainer>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<PodContainer>,
    #[serde(deserialize_with = "nullable")]
    ephemeral_containers: Vec<PodContainer>,
    #[serde(deserialize_with = "nullable")]
    volumes: Vec<BTreeMap<String, Value>>,
    #[serde(deserialize_with = "nullable")]
    resource_claims: Vec<PodResourceClaim>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    resource_claim_statuses: Vec<PodResourceClaim>,
    #[serde(deserialize_with = "nullable")]
    extended_resource_claim_status: PodResourceClaim,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodResourceClaim {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    resource_claim_name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodContainer {
    #[serde(deserialize_with = "nullable")]
    env: Vec<EnvironmentVariable>,
    #[serde(deserialize_with = "nullable")]
    env_from: Vec<EnvironmentSource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvironmentVariable {
    #[serde(deserialize_with = "nullable")]
    value_from: EnvironmentSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvironmentSource {
    #[serde(alias = "secretKeyRef", deserialize_with = "nullable")]
    secret_ref: NamedReference,
    #[serde(alias = "configMapKeyRef", deserialize_with = "nullable")]
    config_map_ref: NamedReference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedReference {
    #[serde(deserialize_with = "nullable")]
    name: String,
}

impl PodReferences {
    pub(super) fn read(json: &[u8], name: &str) -> Result<Self, serde_json::Error> {
        let PodObject { metadata, spec, status } = serde_json::from_slice(json)?;
        let mut pod = Self { node: spec.node_name.clone(), references: Vec::new() };
        if pod.node.is_empty() || metadata.annotations.contains_key(MIRROR) {
            return Ok(pod);
        }
        pod.refer_to_spec(name, &spec);
        pod.refer_to_claims(&spec, &status);
        Ok(pod)
    }

    fn refer_to_spec(&mut self, name: &str, spec: &PodSpec) {
        self.refer(ReferencedKind::ServiceAccount, &spec.service_account_name);
        for secret in &spec.image_pull_secrets {
            self.refer(ReferencedKind::Secret, &secret.name);
        }
        let containers = [&spec.containers, &spec.init_containers, &spec.ephemeral_containers];
        for container in containers.into_iter().flatten() {
            let variables = container.env.iter().map(|variable| &variable.value_from);
            for source in variables.chain(&container.env_from) {
                self.refer(ReferencedKind::Secret, &source.secret_ref.name);
                self.refer(ReferencedKind::ConfigMap, &source.config_map_ref.name);
            }
        }
        for volume in &spec.volumes {
            self.refer_to_volume(name, volume);
        }
    }

    fn refer(&mut self, kind: ReferencedKind, name: &str) {
        if !name.is_empty() {
            self.references.push((kind, name.to_owned()));
        }
    }

    /// A volume is a name and one source.
    fn refer_to_volume(&mut self, pod: &str, volume: &BTreeMap<String, Value>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for (source, value) in volume {
            match &**source {
                "secret" | "azureFile" => self.refer(ReferencedKind::Secret, &text(&value["secretName"])),
                "configMap" => self.refer(ReferencedKind::ConfigMap, &text(&value["name"])),
                "persistentVolumeClaim" => self.refer(ReferencedKind::Claim, &text(&value["claimName"])),
                "ephemeral" => {
                    let name = volume.get("name").map(text).unwrap_or_default();
                    self.refer(ReferencedKind::Claim, &format!("{pod}-{name}"));
                }
                "projected" => {
                    for part in value["sources"].as_array().into_iter().flatten() {
                        self.refer(ReferencedKind::Secret, &text(&part["secret"]["name"]));
                        self.refer(ReferencedKind::ConfigMap, &text(&part["configMap"]["name"]));
                    }
                }
                "csi" => self.refer(ReferencedKind::Secret, &text(&value["nodePublishSecretRef"]["name"])),
                "cephfs" | "cinder" | "flexVolume" | "iscsi" | "rbd" | "scaleIO" | "storageos" => {
                    self.refer(ReferencedKind::Secret, &text(&value["secretRef"]["name"]));
                }
                _ => {}
            }
        }
    }

    /// A claim is named by the pod, or was made from a template and is named by its status.
    fn refer_to_claims(&mut self, spec: &PodSpec, status: &PodStatus) {
        for claim in &spec.resource_claims {
            let is_own = |made: &&PodResourceClaim| made.name == claim.name;
            let made = status.resource_claim_statuses.iter().find(is_own).map(|made| &made.resource_claim_name);
            let named = Some(&claim.resource_claim_name).filter(|name| !name.is_empty());
            if let Some(name) = named.or(made) {
                self.refer(ReferencedKind::ResourceClaim, name);
            }
        }
        self.refer(ReferencedKind::ResourceClaim, &status.extended_resource_claim_status.resource_claim_name);
    }
}

/// Returns the kind of object that a pod refers to, in kube-apiserver's words; `None` if it refers to none.
///
/// # Errors
/// One line about a pod of which that is not known.
pub(super) fn api_reference(pod: &Map<String, Value>) -> Result<Option<&'static str>, String> {
    let PodObject { spec, .. } =
        PodObject::deserialize(pod).map_err(|error| format!("the pod is unreadable: {error}"))?;
    let mut found = PodReferences::default();
    found.refer_to_spec("", &spec);
    let refers = |kind| found.references.iter().any(|(own, _)| *own == kind);
    if refers(ReferencedKind::ServiceAccount) || !spec.service_account.is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if refers(ReferencedKind::Secret) {
        return Ok(Some("secrets"));
    }
    if refers(ReferencedKind::ConfigMap) {
        return Ok(Some("configmaps"));
    }
    if !spec.resource_claims.is_empty() {
        return Ok(Some("resourceclaims"));
    }
    // All sources of a volume count: nothing here refuses a volume with several of them.
    for (source, value) in spec.volumes.iter().flatten().filter(|(_, value)| !value.is_null()) {
        if let Some(resource) = volume_reference(source, value)? {
            return Ok(Some(resource));
        }
    }
    Ok(None)
}

/// Sources of volumes that need no object of the API, apart from secrets. `name` is no source.
const PLAIN_SOURCES: [&str; 23] = [
    "name",
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Returns the kind of object that a source of a volume refers to.
fn volume_reference(source: &str, value: &Value) -> Result<Option<&'static str>, String> {
    Ok(match source {
        "configMap" => Some("configmaps (via configmap volumes)"),
        "secret" => Some("secrets (via secret volumes)"),
        "csi" => Some("csidrivers (via CSI volumes)"),
        "glusterfs" => Some("endpoints (via glusterFS volumes)"),
        "persistentVolumeClaim" => Some("persistentvolumeclaims"),
        "ephemeral" => Some("persistentvolumeclaims (via ephemeral volumes)"),
        "azureFile" => Some("secrets (via azureFile volumes)"),
        "projected" => {
            let sources = value["sources"].as_array().into_iter().flatten().filter_map(Value::as_object);
            let mut parts = sources.flatten().filter(|(_, value)| !value.is_null());
            parts.find_map(|(part, _)| projected_reference(part).transpose()).transpose()?
        }
        plain if PLAIN_SOURCES.contains(&plain) => None,
        other => return Err(format!("unknown volume type {}", quote(other))),
    })
}

fn projected_reference(part: &str) -> Result<Option<&'static str>, String> {
    Ok(match part {
        "configMap" => Some("configmaps (via projected volumes)"),
        "secret" => Some("secrets (via projected volumes)"),
        "serviceAccountToken" => Some("serviceaccounts (via projected volumes)"),
        "clusterTrustBundle" => Some("clustertrustbundles"),
        "podCertificate" => Some("podcertificates"),
        "downwardAPI" => None,
        other => return Err(format!("unknown source {} of a projected volume", quote(other))),
    })
}

impl VolumeReferences {
    /// Reads a volume. `None` if it is not claimed.
    pub(super) fn read(json: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let object: Value = serde_json::from_slice(json)?;
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claim = &spec["claimRef"];
        if !claim.is_object() {
            return Ok(None);
        }
        let claim_namespace = text(&claim["namespace"]);
        let mut secrets = Vec::new();
        let mut refer = |secret: &Value, name: &str, namespace: &str| {
            let own = text(&secret[namespace]);
            let namespace = if own.is_empty() { claim_namespace.clone() } else { own };
            secrets.push((namespace, text(&secret[name])));
        };
        refer(&spec["azureFile"], "secretName", "secretNamespace");
        for source in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            refer(&spec[source]["secretRef"], "name", "namespace");
        }
        for secret in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
            refer(&spec["csi"][secret], "name", "namespace");
        }
        secrets.retain(|(_, name)| !name.is_empty());
        Ok(Some(Self { claim_name: text(&claim["name"]), claim_namespace, secrets }))
    }
}

/// A VolumeAttachment or ResourceSlice.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlacedSpec {
    #[serde(deserialize_with = "nullable")]
    spec: PlacedNode,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlacedNode {
    #[serde(deserialize_with = "nullable")]
    node_name: String,
}

/// Reads the node of a VolumeAttachment or ResourceSlice; empty without one.
pub(super) fn read_node(json: &[u8]) -> Result<String, serde_json::Error> {
    serde_json::from_slice(json).map(|object: PlacedSpec| object.spec.node_name)
}
