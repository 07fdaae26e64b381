//! Metadata of the node's pods, and the records made of lines and metadata.
//!
//! The informer requests only the metadata of the pods of one node: the agent costs the API server one watch of a few
//! hundred small objects, and itself a few hundred kilobytes.
//!
//! Deleted pods log for a while, and their files are read after the deletion. Three mechanisms keep their metadata: it
//! is kept here as long as the pod has files; a pod that is deleted before its files are found lingers in the
//! informer's snapshots; and a pod that is deleted while no agent runs is in the checkpoint, if there is one.

use std::{borrow::Cow, collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use informer::{Cluster, ConfigError, Informer, Object, ObjectView, Snapshot};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{cri::Line, names::PodRef};

/// Annotation of a mirror pod (the API object of a static pod) with the uid that the kubelet uses in file names.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Time for which a deleted pod can still be found. Files appear when a container starts; this bounds the time to find
/// them, and to read a pod's last lines if the collector lags.
const LINGER: Duration = Duration::from_mins(5);

/// A pod without spec and status.
pub(crate) type PodMeta = PartialObjectMeta<Pod>;

/// The pods of a node.
pub(crate) struct Pods {
    informer: Informer<PodMeta>,
    now: Snapshot<PodMeta>,
}

/// The metadata of a pod at one version, as needed by records.
#[derive(Debug)]
pub(crate) struct Metadata {
    resource_version: String,
    uid: String,
    /// JSON, serialized once for all lines.
    labels: Box<RawValue>,
}

impl Pods {
    /// Starts the informer; the directory `checkpoint` keeps its state over restarts. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// The name of the node is not valid in a selector.
    pub(crate) fn of_node(cluster: &Cluster, node: &str, checkpoint: Option<&Path>) -> Result<Self, ConfigError> {
        let pods = cluster.informer::<Pod>().fields(format!("spec.nodeName={node}")).metadata_only().linger(LINGER);
        let pods = match checkpoint {
            Some(directory) => pods.checkpoint(directory),
            None => pods,
        };
        let informer = pods.start()?;
        let now = informer.store().snapshot();
        Ok(Self { informer, now })
    }

    /// The informer, for its state and readiness.
    pub(crate) const fn informer(&self) -> &Informer<PodMeta> {
        &self.informer
    }

    /// Takes a new snapshot of the pods, which `find` uses until the next call.
    pub(crate) fn look(&mut self) {
        self.now = self.informer.store().snapshot();
    }

    /// The metadata of the pod with this log directory. Returns `known` itself if that is current.
    pub(crate) fn find(&self, pod: &PodRef, known: Option<&Arc<Metadata>>) -> Option<Arc<Metadata>> {
        let key = pod.key();
        let living = self.now.get(&key).filter(|object| is_of(object.view(), pod));
        let lingering = || self.now.lingering(&key).find(|object| is_of(*object, pod)).map(ObjectView::to_object);
        match (living.or_else(lingering), known) {
            (Some(object), Some(known)) if known.resource_version == object.resource_version() => {
                Some(Arc::clone(known))
            }
            (Some(object), _) => Some(Arc::new(Metadata::of(&object))),
            // The pod is no longer in the snapshot, not even lingering, but its files are not fully read.
            (None, known) => known.cloned(),
        }
    }
}

/// True if this object is the pod with that log directory, not another of the same name.
fn is_of(object: ObjectView<'_, PodMeta>, pod: &PodRef) -> bool {
    let mirrors = || {
        let annotations = object.decode().ok()?.metadata.annotations.clone()?;
        annotations.get(MIRROR_ANNOTATION).map(|uid| *uid == pod.uid)
    };
    object.uid() == pod.uid || mirrors().unwrap_or(false)
}

impl Metadata {
    fn of(pod: &Object<PodMeta>) -> Self {
        let labels: BTreeMap<_, _> = pod.labels().into_iter().collect();
        let labels = to_raw_value(&labels).expect("texts are JSON");
        Self { resource_version: pod.resource_version().to_owned(), uid: pod.uid().to_owned(), labels }
    }
}

/// A line with its metadata: one line of JSON on stdout.
#[derive(Debug, Serialize)]
pub(crate) struct Record<'a> {
    /// RFC 3339 time as the runtime wrote it; for a line in parts, the time of the first part.
    #[serde(skip_serializing_if = "str::is_empty")]
    time: &'a str,
    /// `stdout` or `stderr`. Missing, like the time, if the line is not in CRI format.
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'static str>,
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
    uid: &'a str,
    node: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    /// `"missing"` if the pod was not known in time; there are no labels then.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'static str>,
    /// Bytes dropped from the end of a line that was too long.
    #[serde(skip_serializing_if = "is_zero")]
    cut: u64,
    /// True if the end of the line never arrived.
    #[serde(skip_serializing_if = "is_false")]
    unfinished: bool,
    /// The text; invalid UTF-8 is replaced.
    text: Cow<'a, str>,
}

impl<'a> Record<'a> {
    /// Combines a line with the metadata of its pod.
    pub(crate) fn new(
        node: &'a str,
        pod: &'a PodRef,
        container: &'a str,
        metadata: Option<&'a Metadata>,
        line: &'a Line<'_>,
    ) -> Self {
        Self {
            time: &line.time,
            stream: line.stream.name(),
            namespace: &pod.namespace,
            pod: &pod.name,
            container,
            uid: metadata.map_or(&pod.uid, |metadata| &metadata.uid),
            node,
            labels: metadata.map(|metadata| &*metadata.labels),
            metadata: metadata.is_none().then_some("missing"),
            cut: line.cut,
            unfinished: line.is_unfinished,
            text: String::from_utf8_lossy(&line.text),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::Stream;

    fn record(metadata: Option<&Metadata>, line: &Line<'_>) -> String {
        let pod = PodRef { namespace: "prod".into(), name: "web-0".into(), uid: "u-1".into() };
        serde_json::to_string(&Record::new("node-1", &pod, "app", metadata, line)).unwrap()
    }

    #[test]
    fn a_record_has_the_line_and_its_pod() {
        let labels = RawValue::from_string(r#"{"app":"web"}"#.into()).unwrap();
        let metadata = Metadata { resource_version: "7".into(), uid: "u-1".into(), labels };
        let text = Cow::Borrowed(&b"hello"[..]);
        let line = Line { time: "2026".into(), stream: Stream::Stderr, text, cut: 0, is_unfinished: false };
        let expected = concat!(
            r#"{"time":"2026","stream":"stderr","namespace":"prod","pod":"web-0","container":"app","uid":"u-1","#,
            r#""node":"node-1","labels":{"app":"web"},"text":"hello"}"#
        );
        assert_eq!(record(Some(&metadata), &line), expected);
    }

    #[test]
    fn a_record_says_what_it_lacks() {
        let text = Cow::Borrowed(&b"\xff"[..]);
        let line = Line { time: "".into(), stream: Stream::Unknown, text, cut: 3, is_unfinished: true };
        let expected = concat!(
            r#"{"namespace":"prod","pod":"web-0","container":"app","uid":"u-1","node":"node-1","metadata":"missing","#,
            "\"cut\":3,\"unfinished\":true,\"text\":\"\u{fffd}\"}"
        );
        assert_eq!(record(None, &line), expected);
    }
}
