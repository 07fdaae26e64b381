//! Three reflectors of kube-runtime.

use std::{fmt::Debug, hash::Hash};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef},
        watcher,
    },
};
use measured::Failure;
use serde::de::DeserializeOwned;

use crate::lines::{self, Lookups, Outcome, Source};

struct Reflectors {
    pods: reflector::Store<Pod>,
    namespaces: reflector::Store<Namespace>,
    node: reflector::Store<Node>,
    node_name: String,
}

pub(crate) async fn collect(config: kube::Config, node: &str, count: usize) -> Result<Outcome, Failure> {
    let client = Client::try_from(config)?;
    let before = lines::heap();
    let all = watcher::Config::default();
    let stores = Reflectors {
        pods: follow(Api::all(client.clone()), all.clone().fields(&format!("spec.nodeName={node}"))),
        namespaces: follow(Api::all(client.clone()), all.clone()),
        node: follow(Api::all(client), all.fields(&format!("metadata.name={node}"))),
        node_name: node.to_owned(),
    };
    stores.pods.wait_until_ready().await?;
    stores.namespaces.wait_until_ready().await?;
    stores.node.wait_until_ready().await?;
    let live = lines::heap() - before;
    let pods = stores.pods.state();
    let sources = lines::sources(pods.iter().map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|each| &*each.name).collect();
        let texts = [&pod.metadata.namespace, &pod.metadata.name].map(|text| text.as_deref().unwrap_or_default());
        (texts[0], texts[1], containers)
    }));
    lines::run(&stores, &sources, count, live)
}

fn follow<K>(api: Api<K>, config: watcher::Config) -> reflector::Store<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone + Send + Sync>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync,
    K: 'static,
{
    let (reader, writer) = reflector::store();
    let events = reflector::reflector(writer, watcher(api, config).default_backoff());
    tokio::spawn(events.for_each(async |_| ()));
    reader
}

impl Reflectors {
    fn found<R>(&self, line: &Source, take: impl FnOnce(&Pod, &Namespace, &Node) -> R) -> Result<R, Failure> {
        let pod = self.pods.get(&ObjectRef::new(&line.pod).within(&line.namespace)).ok_or("a pod is missing")?;
        let namespace = self.namespaces.get(&ObjectRef::new(&line.namespace)).ok_or("a namespace is missing")?;
        let node = self.node.get(&ObjectRef::new(&self.node_name)).ok_or("the node is missing")?;
        Ok(take(&pod, &namespace, &node))
    }
}

impl Lookups for Reflectors {
    fn look_up(&self, line: &Source) -> Result<usize, Failure> {
        self.found(line, lines::length_of_kube)
    }

    fn record(&self, line: &Source, record: &mut String) -> Result<(), Failure> {
        self.found(line, |pod, namespace, node| lines::write_of_kube(pod, namespace, node, &line.container, record))
    }
}
