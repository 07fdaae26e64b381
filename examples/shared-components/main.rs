//! Three components and a controller share one copy of the pods.

#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use informer::{
    Cluster,
    controller::{Controller, Requeue, changed},
};
use k8s_openapi::api::core::v1::Pod;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::try_default().await?; // from the kubeconfig, or as a pod of the cluster

    // Each component declares what it needs. The first declaration starts a watch, and an equal one uses its copy.
    let capacity = cluster.informer::<Pod>().start_shared()?;
    let audit = cluster.informer::<Pod>().start_shared()?;
    cluster.ready_all(PATIENCE).await?;
    // A narrower one is filtered out of the copy, in this process.
    let agent = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start_shared()?;
    agent.ready(PATIENCE).await?;
    println!("{}\n{}", capacity.explain(), agent.explain());

    let (all, own) = (capacity.store().snapshot(), agent.store().snapshot());
    println!("capacity: {} pods, {} of them on node-1", all.len(), own.len());
    let mut changes = audit.subscribe();
    tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            println!("audit: {change:?}");
        }
    });

    let reconcile = |pod: Arc<Pod>, _: Arc<()>| async move {
        println!("reconciled {}", pod.metadata.name.as_deref().unwrap_or_default());
        Ok::<_, Infallible>(Requeue::await_change())
    };
    Controller::new(&capacity)
        .when(changed::generation)
        .shutdown_on_signal()
        .run(reconcile, |failure| failure.backoff(), Arc::new(()))
        .await?;
    Ok(())
}
