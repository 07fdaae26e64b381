//! The port: three informers. Onto types of the fields that are read, which is how a collector should use them; and
//! with kube's types, decoded on arrival or at each access.

use std::time::Duration;

use informer::{Cluster, Informer, Representation, ready_all};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use measured::Failure;

use crate::{
    fields::{Labelled, PodFields},
    lines::{self, Lookups, Outcome, Source},
};

/// Time for which the lines of a deleted pod still find it.
const LINGER: Duration = Duration::from_mins(1);

/// Longest wait for the three copies.
const READY_MAX: Duration = Duration::from_secs(60);

struct Copies<P, N, O> {
    pods: Informer<P>,
    namespaces: Informer<N>,
    node: Informer<O>,
    node_name: String,
}

type Projected = Copies<PodFields, Labelled, Labelled>;

type OfKube = Copies<Pod, Namespace, Node>;

pub(crate) async fn projected(config: kube::Config, node: &str, count: usize) -> Result<Outcome, Failure> {
    let cluster = Cluster::try_from(config)?;
    let before = lines::heap();
    let copies = Projected {
        pods: pods(&cluster, node).project().start()?,
        namespaces: cluster.informer::<Namespace>().project().start()?,
        node: cluster.informer::<Node>().fields(format!("metadata.name={node}")).project().start()?,
        node_name: node.to_owned(),
    };
    let live = copies.ready().await? - before;
    let pods = copies.pods.store().snapshot();
    let sources = lines::sources(pods.iter().filter_map(|pod| {
        let containers = pod.typed()?.spec.containers.iter().map(|each| &*each.name).collect();
        Some((pod.namespace(), pod.name(), containers))
    }));
    lines::run(&copies, &sources, count, live)
}

pub(crate) async fn of_kube(
    config: kube::Config,
    node: &str,
    form: Representation,
    count: usize,
) -> Result<Outcome, Failure> {
    let cluster = Cluster::try_from(config)?;
    let before = lines::heap();
    let copies = OfKube {
        pods: pods(&cluster, node).store(form).start()?,
        namespaces: cluster.informer().store(form).start()?,
        node: cluster.informer().fields(format!("metadata.name={node}")).store(form).start()?,
        node_name: node.to_owned(),
    };
    let live = copies.ready().await? - before;
    let decoded: Result<Vec<_>, _> = copies.pods.store().snapshot().iter().map(|pod| pod.decode()).collect();
    let decoded = decoded?;
    let sources = lines::sources(decoded.iter().map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|each| &*each.name).collect();
        let texts = [&pod.metadata.namespace, &pod.metadata.name].map(|text| text.as_deref().unwrap_or_default());
        (texts[0], texts[1], containers)
    }));
    // Or decoded objects would be shared.
    drop(decoded);
    lines::run(&copies, &sources, count, live)
}

fn pods(cluster: &Cluster, node: &str) -> informer::InformerBuilder<Pod> {
    cluster.informer::<Pod>().fields(format!("spec.nodeName={node}")).linger(LINGER)
}

impl<P, N, O> Copies<P, N, O> {
    /// Waits for all, and returns the heap.
    async fn ready(&self) -> Result<usize, Failure> {
        ready_all([self.pods.readiness(), self.namespaces.readiness(), self.node.readiness()], READY_MAX).await?;
        Ok(lines::heap())
    }
}

impl Projected {
    fn found<R>(&self, line: &Source, take: impl FnOnce(&PodFields, &Labelled, &Labelled) -> R) -> Result<R, Failure> {
        let pod = self.pods.store().snapshot().get_named(&line.namespace, &line.pod).ok_or("a pod is missing")?;
        let namespace = self.namespaces.store().snapshot().get(&line.namespace).ok_or("a namespace is missing")?;
        let node = self.node.store().snapshot().get(&self.node_name).ok_or("the node is missing")?;
        match (pod.typed(), namespace.typed(), node.typed()) {
            (Some(pod), Some(namespace), Some(node)) => Ok(take(pod, namespace, node)),
            _ => Err("an object has no name".into()),
        }
    }
}

impl Lookups for Projected {
    fn look_up(&self, line: &Source) -> Result<usize, Failure> {
        let length = |pod: &PodFields, namespace: &Labelled, node: &Labelled| {
            pod.metadata.name.len() + namespace.metadata.name.len() + node.metadata.name.len()
        };
        self.found(line, length)
    }

    fn record(&self, line: &Source, record: &mut String) -> Result<(), Failure> {
        self.found(line, |pod, namespace, node| lines::write_fields(pod, namespace, node, &line.container, record))
    }
}

impl OfKube {
    fn found<R>(&self, line: &Source, take: impl FnOnce(&Pod, &Namespace, &Node) -> R) -> Result<R, Failure> {
        let pod = self.pods.store().snapshot().get_named(&line.namespace, &line.pod).ok_or("a pod is missing")?;
        let namespace = self.namespaces.store().snapshot().get(&line.namespace).ok_or("a namespace is missing")?;
        let node = self.node.store().snapshot().get(&self.node_name).ok_or("the node is missing")?;
        Ok(take(&*pod.decode()?, &*namespace.decode()?, &*node.decode()?))
    }
}

impl Lookups for OfKube {
    fn look_up(&self, line: &Source) -> Result<usize, Failure> {
        self.found(line, lines::length_of_kube)
    }

    fn record(&self, line: &Source, record: &mut String) -> Result<(), Failure> {
        self.found(line, |pod, namespace, node| lines::write_of_kube(pod, namespace, node, &line.container, record))
    }
}
