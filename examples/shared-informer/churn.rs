//! Changes to the pods: many updates of a few of them, and some creates and deletes.

use std::{fmt, time::Duration};

use informer::{ResourceVersion, Snapshot};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::Failure;

/// Number of pods that are updated repeatedly, so that a reader of the latest state may coalesce updates.
const BUSY_PODS: usize = 20;

/// Every tenth write creates a pod, and the fifth write after that deletes it.
const CREATE_EVERY: usize = 10;

/// Writes through kube's client, one at a time.
pub(crate) struct Churn {
    client: kube::Client,
    /// Namespace and name of each updated pod.
    busy: Vec<(String, String)>,
    /// The pod created last, until it is deleted.
    visitor: Option<(String, String)>,
    last: ResourceVersion,
    pub(crate) writes: Writes,
}

/// Numbers of writes.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) updated: usize,
    pub(crate) created: usize,
    pub(crate) deleted: usize,
    pub(crate) took: Duration,
}

impl Churn {
    /// Will update the first pods of `snapshot`.
    pub(crate) fn new(client: kube::Client, snapshot: &Snapshot<Pod>) -> Self {
        let busy = snapshot.iter().take(BUSY_PODS).map(|pod| (pod.namespace().to_owned(), pod.name().to_owned()));
        let last = snapshot.resource_version().cloned().unwrap_or_else(|| ResourceVersion::from(1));
        Self { client, busy: busy.collect(), visitor: None, last, writes: Writes::default() }
    }

    /// The resourceVersion in the response to the last write.
    pub(crate) const fn last(&self) -> &ResourceVersion {
        &self.last
    }

    /// Performs one write.
    ///
    /// # Errors
    /// The server's error.
    pub(crate) async fn write(&mut self) -> Result<(), Failure> {
        let number = self.writes.total();
        let (namespace, name) = self.busy.get(number % BUSY_PODS).ok_or("there are too few pods")?.clone();
        match (number % CREATE_EVERY, self.visitor.take()) {
            (0, None) => self.create(&namespace, &format!("visitor-{number}")).await,
            (5, Some((namespace, name))) => self.delete(&namespace, &name).await,
            (_, visitor) => {
                self.visitor = visitor;
                self.update(&namespace, &name, number).await
            }
        }
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn update(&mut self, namespace: &str, name: &str, number: usize) -> Result<(), Failure> {
        let change = json!({"metadata": {"annotations": {"demo/write": number.to_string()}}});
        let pod = self.pods(namespace).patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        self.writes.updated += 1;
        self.wrote(&pod)
    }

    async fn create(&mut self, namespace: &str, name: &str) -> Result<(), Failure> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "visitor"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "demo"}]},
        }))?;
        let pod = self.pods(namespace).create(&PostParams::default(), &pod).await?;
        self.visitor = Some((namespace.to_owned(), name.to_owned()));
        self.writes.created += 1;
        self.wrote(&pod)
    }

    async fn delete(&mut self, namespace: &str, name: &str) -> Result<(), Failure> {
        let deleted = self.pods(namespace).delete(name, &DeleteParams::default()).await?;
        self.writes.deleted += 1;
        // A graceful delete responds with the pod as marked; its removal has a later version.
        deleted.left().map_or(Ok(()), |pod| self.wrote(&pod))
    }

    fn wrote(&mut self, pod: &Pod) -> Result<(), Failure> {
        let version = pod.resource_version().ok_or("an answer without resourceVersion")?;
        self.last = ResourceVersion::parse(&version)?;
        Ok(())
    }
}

impl Writes {
    /// Number of all writes.
    pub(crate) const fn total(&self) -> usize {
        self.updated + self.created + self.deleted
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { updated, created, deleted, took } = self;
        write!(f, "{created} created, {updated} updated, {deleted} deleted in {:.1} s", took.as_secs_f64())
    }
}
