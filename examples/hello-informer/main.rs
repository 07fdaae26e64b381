//! Prints the existing pods and their changes as they happen.
//!
//! `cargo run --example hello-informer` uses KUBECONFIG, or the pod's service account; `cargo run --example
//! hello-informer -- --server http://127.0.0.1:8001` uses that server, without credentials.

#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::{error::Error, time::Duration};

use informer::{Cluster, Event};
use k8s_openapi::api::core::v1::Pod;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().skip(1).find(|argument| argument != "--server");
    let config = match server {
        Some(url) => kube::Config::new(url.parse()?),
        None => kube::Config::infer().await?,
    };
    let pods = Cluster::try_from(config)?.informer::<Pod>().start()?;
    println!("{}", pods.explain());
    pods.ready(Duration::from_secs(30)).await?;

    let mut changes = pods.subscribe();
    while let Some(event) = changes.next().await {
        match event {
            Event::Added(pod) => println!("+ {} on {}", pod.key(), pod.field("spec.nodeName").unwrap_or_default()),
            Event::Updated { new, .. } => println!("~ {} at {}", new.key(), new.resource_version()),
            Event::Deleted { last_known, missed } => println!("- {} (missed: {missed})", last_known.key()),
            Event::Synced(version) => println!("= {} pods at {version}", pods.store().snapshot().len()),
            Event::Reset | _ => {}
        }
    }
    Ok(())
}
