//! Three components of one program that share one copy of the pods, and so one watch.
//!
//! `cargo run --example shared-copy` starts an API server with pods, and prints every read request that the components
//! send. It fails if there is more than one.

#![expect(clippy::print_stdout, reason = "the requests are the product")]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cache_server::{Server, config, populate};
use informer::{Cluster, Event, Informer};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
    client::{Body, ClientBuilder},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;
use tower::util::MapRequestLayer;

/// Timeout that is ample even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = serve(300).await?;
    let requests = Arc::new(AtomicUsize::new(0));
    let cluster = Cluster::new(counted(&url, &requests)?);

    // Each component declares what it needs, and knows nothing of the others.
    let audit = cluster.informer::<Pod>().start_shared()?;
    let inventory = cluster.informer_for::<DynamicObject>(&ApiResource::erase::<Pod>(&())).start_shared()?;
    cluster.ready_all(PATIENCE).await?;
    // A ready copy also answers narrower declarations.
    let agent = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start_shared()?;
    agent.ready(PATIENCE).await?;

    println!("audit:     {}", shared(&audit));
    println!("inventory: {}", shared(&inventory));
    println!("agent:     {}", shared(&agent));
    let (all, mine) = (inventory.store().snapshot(), agent.store().snapshot());
    println!("\ninventory counts {} pods, the agent sees {} of them on its node", all.len(), mine.len());

    // One write reaches all three.
    let pod = mine.iter().next().ok_or("no pod is on node-1")?;
    let mut changes = audit.subscribe();
    let writer: Api<Pod> = Api::namespaced(kube::Client::try_from(kube::Config::new(url.parse()?))?, pod.namespace());
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    let written = writer.patch(pod.name(), &PatchParams::default(), &label).await?;
    let version = written.metadata.resource_version.as_deref();
    inventory.wait_for(version, PATIENCE).await?;
    agent.wait_for(version, PATIENCE).await?;
    let audited = tokio::time::timeout(PATIENCE, async {
        while let Some(event) = changes.next().await {
            if matches!(&event, Event::Added(new) | Event::Updated { new, .. } if new.label("touched").is_some()) {
                return true;
            }
        }
        false
    });
    let agent_sees = agent.store().snapshot().get(pod.key()).is_some_and(|pod| pod.label("touched").is_some());
    println!("a write to {}: seen by audit: {}, by the agent: {agent_sees}", pod.key(), audited.await?);

    let sent = requests.load(Ordering::Relaxed);
    println!("requests of the three components: {sent}");
    if sent == 1 && agent_sees { Ok(()) } else { Err("they do not share one watch".into()) }
}

/// The users of a copy, and the filter over it: the part of `explain` behind the request.
fn shared<K>(pods: &Informer<K>) -> String {
    let explained = pods.explain();
    explained.split_once(" (").map_or_else(String::new, |(_, sharing)| sharing.trim_end_matches(')').to_owned())
}

/// A client that prints and counts its requests.
fn counted(url: &str, count: &Arc<AtomicUsize>) -> Result<kube::Client, Box<dyn Error>> {
    let count = Arc::clone(count);
    let printing = MapRequestLayer::new(move |request: http::Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        println!("request: {} {}\n", request.method(), request.uri());
        request
    });
    let mut config = kube::Config::new(url.parse()?);
    // The informer retries by itself.
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(&printing).build())
}

/// Starts a server with pods on a free port. It ends with the program.
async fn serve(pods: u32) -> Result<String, Box<dyn Error>> {
    let populate = Some(populate::PopulateSpec { pods, nodes: 10, namespaces: 4, seed: 1 });
    let listen = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(config::Config { listen, populate, ..config::Config::default() }).await?;
    let url = format!("http://{}", server.local_addr());
    tokio::spawn(server.serve(std::future::pending()));
    Ok(url)
}
